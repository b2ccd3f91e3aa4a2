//! The order in which the prefixes of a range are sent.
//!
//! Routes of one attribute group have consecutive indices in every order, so an order only determines the prefix of
//! each index. All orders have the same prefixes.

use super::affine::{Affine, Divisor};
use super::attributes::{CYCLE, CYCLE_GROUPS, CYCLE_ROUTES, GROUPS, GroupSizes};
use serde::{Deserialize, Serialize};

crate::choice! {
    /// The order in which a table's prefixes are sent.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Order {
        /// Ascending by address. The prefixes of a group are adjacent, and so are consecutive groups.
        Sorted = "sorted",
        /// The prefixes of a group are adjacent, but consecutive groups are far apart, as in an Internet feed.
        Clustered = "clustered",
        /// Each prefix is far from the previous one, even within a group.
        Scattered = "scattered",
    }
}

/// Maps a group of a cycle to its slot: multiplication by an odd factor modulo a power of two, near its golden section.
const SLOT_FACTOR: u32 = 159;
/// The inverse of [`SLOT_FACTOR`].
const SLOT_INVERSE: u32 = {
    let mut inverse = 1;
    while inverse * SLOT_FACTOR % CYCLE_GROUPS != 1 {
        inverse += 2;
    }
    inverse
};

/// A permutation of routes that keeps each group together and places the groups far apart.
#[derive(Clone, Debug)]
pub(super) enum Clusters {
    /// Groups of one size. An incomplete group remains at the end.
    Fixed { size: Divisor, groups: Affine, whole: u32 },
    /// Groups in cycles of 256 sizes. The space has one slot per group of a cycle; slot g holds group g of all cycles.
    Cycles { cycles: Affine, whole: u32, starts: Vec<u32> },
}

impl Clusters {
    /// A permutation of `count` routes, at least one.
    pub fn new(sizes: GroupSizes, count: u32) -> Clusters {
        match sizes {
            GroupSizes::Fixed(size) => {
                let size = Divisor::new(size);
                let groups = count / size.get();
                Clusters::Fixed { size, groups: Affine::new(groups, 0), whole: groups * size.get() }
            }
            GroupSizes::Internet => {
                let (whole, rest) = (count / CYCLE_ROUTES, count % CYCLE_ROUTES);
                let mut start = 0;
                let mut starts: Vec<u32> = (0..CYCLE_GROUPS)
                    .map(|slot| {
                        let (first, size) = group(slot * SLOT_INVERSE % CYCLE_GROUPS);
                        let here = start;
                        start += whole * size + rest.saturating_sub(first).min(size);
                        here
                    })
                    .collect();
                starts.push(start);
                Clusters::Cycles { cycles: Affine::new(whole, 0), whole, starts }
            }
        }
    }

    /// Heap memory in bytes.
    #[cfg(test)]
    pub fn heap(&self) -> usize {
        match self {
            Clusters::Fixed { .. } => 0,
            Clusters::Cycles { starts, .. } => starts.capacity() * size_of::<u32>(),
        }
    }

    /// Position of route `i`.
    #[inline]
    pub fn at(&self, i: u32) -> u32 {
        match self {
            Clusters::Fixed { whole, .. } if i >= *whole => i,
            Clusters::Fixed { size, groups, .. } => {
                let (group, offset) = size.div_rem(u64::from(i));
                groups.at(group as u32) * size.get() + offset
            }
            Clusters::Cycles { cycles, whole, starts } => {
                let (cycle, in_cycle) = (i / CYCLE_ROUTES, i % CYCLE_ROUTES);
                let number = u32::from(GROUPS[in_cycle as usize]);
                let (first, size) = group(number);
                let offset = in_cycle - first;
                let cycle = if cycle < *whole { cycles.at(cycle) } else { *whole };
                let start = starts[(number * SLOT_FACTOR % CYCLE_GROUPS) as usize];
                start + cycle * size + offset
            }
        }
    }

    /// The route at position `at`.
    #[inline]
    pub fn place(&self, at: u32) -> u32 {
        match self {
            Clusters::Fixed { whole, .. } if at >= *whole => at,
            Clusters::Fixed { size, groups, .. } => {
                let (group, offset) = size.div_rem(u64::from(at));
                groups.place(group as u32) * size.get() + offset
            }
            Clusters::Cycles { cycles, whole, starts } => {
                let slot = starts[..CYCLE_GROUPS as usize].partition_point(|start| *start <= at).saturating_sub(1);
                let (first, size) = group(slot as u32 * SLOT_INVERSE % CYCLE_GROUPS);
                let rest = at - starts[slot];
                let (cycle, offset) = (rest / size, rest % size);
                let cycle = if cycle < *whole { cycles.place(cycle) } else { *whole };
                cycle * CYCLE_ROUTES + first + offset
            }
        }
    }
}

/// First route and size of a group of a cycle.
#[inline]
fn group(number: u32) -> (u32, u32) {
    let (first, end) = (CYCLE[number as usize], CYCLE[number as usize + 1]);
    (first.into(), (end - first).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_route_once_and_groups_together(internet: bool, size in 0u32..300, count in 1u32..6_000) {
            let sizes = if internet { GroupSizes::Internet } else { GroupSizes::Fixed(size) };
            let clusters = Clusters::new(sizes, count);
            let mut seen = vec![false; count as usize];
            for i in 0..count {
                let at = clusters.at(i);
                prop_assert!(at < count && !std::mem::replace(&mut seen[at as usize], true), "{} at {}", i, at);
                prop_assert_eq!(clusters.place(at), i);
                if i + 1 < count && sizes.group_of(i) == sizes.group_of(i + 1) {
                    prop_assert_eq!(clusters.at(i + 1), at + 1);
                }
            }
        }
    }

    #[test]
    fn groups_that_follow_each_other_are_far_apart() {
        for (sizes, count) in [(GroupSizes::Internet, 1_000_000), (GroupSizes::Fixed(500), 1_000_000)] {
            let clusters = Clusters::new(sizes, count);
            let start = |group: u32| clusters.at(sizes.start(group) as u32);
            for group in 0..1_000 {
                let distance = start(group).abs_diff(start(group + 1));
                assert!(distance > count / 10, "{sizes:?}: groups {group} and the next are {distance} routes apart");
            }
        }
    }
}
