//! Computed routes: the description of a range, and the prefix of each route.
//!
//! Route `i` has a place in a permutation of all routes, and the place determines its prefix. A uniform range counts
//! prefixes of one length and leaves out forbidden space; for a table like the Internet's see [`super::internet`]. An
//! [`Order`] selects one of three permutations.

use super::affine::{Affine, Divisor};
use super::attributes::{AttributePattern, GroupSizes};
use super::internet::Internet;
use super::order::{Clusters, Order};
use super::prefix::{number, width};
use super::space;
use super::{Prefix, Prefixes, mix};
use crate::trial::Family;
use serde::{Deserialize, Serialize};

/// Why a range cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum RouteError {
    #[error("a range needs at least one route")]
    Empty,
    #[error("the step from one prefix to the next is 0")]
    Step,
    #[error("{first} overlaps {reserved}, where a test cannot have routes")]
    Forbidden { first: Prefix, reserved: Prefix },
    #[error("{asked} routes do not fit; there is space for {fit} routes of this kind")]
    TooMany { asked: u32, fit: u32 },
}

/// The stored form of a range.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Description {
    /// Prefixes of one length at equal distances.
    Uniform {
        /// The lowest prefix.
        first: Prefix,
        /// Number of prefixes.
        count: u32,
        /// Distance between consecutive prefixes, in prefixes.
        step: u32,
        /// Their attributes.
        attributes: AttributePattern,
        /// Their order.
        #[serde(default = "scattered")]
        order: Order,
    },
    /// Lengths, group sizes and attributes as in a table of the Internet.
    Internet {
        /// IP version.
        family: Family,
        /// Number of prefixes.
        count: u32,
        /// Seed of all choices.
        seed: u64,
        /// Sizes of groups.
        #[serde(default = "of_the_internet")]
        routes_per_group: GroupSizes,
        /// Their order.
        #[serde(default = "scattered")]
        order: Order,
    },
}

/// The order in records without this field.
fn scattered() -> Order {
    Order::Scattered
}

/// The group sizes in records without this field.
fn of_the_internet() -> GroupSizes {
    GroupSizes::Internet
}

/// Computed routes. They take some hundred bytes, whatever the number of routes.
///
/// A range computes prefixes only; [`VpnRoutes`](super::VpnRoutes) adds labels and route distinguishers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "Description", into = "Description")]
pub struct RouteRange {
    description: Description,
    pub(super) family: Family,
    pub(super) count: u32,
    pub(super) attributes: AttributePattern,
    /// The size of groups, if all have one size.
    group_size: Divisor,
    /// The permutation of the scattered order.
    pub(super) scattered: Affine,
    arrangement: Arrangement,
    layout: Layout,
}

/// The size of groups if all have one size, otherwise 1.
fn divisor(sizes: GroupSizes) -> Divisor {
    Divisor::new(match sizes {
        GroupSizes::Fixed(size) => size,
        GroupSizes::Internet => 1,
    })
}

/// Data that an order needs in addition to the layout.
#[derive(Clone, Debug)]
enum Arrangement {
    Scattered,
    Clustered(Clusters),
    /// Number of routes before each block, for a table like the Internet's.
    Sorted(Vec<u32>),
}

impl PartialEq for RouteRange {
    fn eq(&self, other: &RouteRange) -> bool {
        self.description == other.description
    }
}

#[derive(Clone, Debug)]
// Each range has one layout, and it is read for every route.
#[allow(clippy::large_enum_variant)]
enum Layout {
    Uniform { length: u8, step: Divisor, pieces: Vec<Piece> },
    Internet(Internet),
}

/// Prefixes of a uniform range between two forbidden blocks.
#[derive(Clone, Copy, Debug)]
struct Piece {
    /// Place of its first prefix.
    start: u32,
    /// Its first prefix as a number, without host bits.
    first: u128,
}

impl RouteRange {
    /// `count` prefixes with the same length as `first`, which is route 0. They ascend from `first` in steps of `step`
    /// prefixes and leave out forbidden space. Prefixes from a private block (RFC 1918, RFC 4193) on stay in it, for the routes of VPNs.
    pub fn uniform(
        first: Prefix,
        count: u32,
        step: u32,
        attributes: AttributePattern,
    ) -> Result<RouteRange, RouteError> {
        if count == 0 {
            return Err(RouteError::Empty);
        }
        if step == 0 {
            return Err(RouteError::Step);
        }
        let private = space::private(&first);
        if let Some(reserved) = space::reserved(&first).filter(|_| private.is_none()) {
            return Err(RouteError::Forbidden { first, reserved });
        }
        let (family, length) = (first.family(), first.length());
        let host_bits = u32::from(width(family) - length);
        let origin = number(first.address()) >> host_bits;
        let step_wide = u128::from(step);
        let mut pieces = Vec::new();
        let mut placed = 0u32;
        let usable = private.into_iter().chain(space::usable(family).filter(|_| private.is_none()));
        for (low, high) in usable {
            // The first and last whole prefix of the piece that are not below `origin`.
            let low = low.div_ceil(1 << host_bits).max(origin);
            let Some(high) = ((high + 1) >> host_bits).checked_sub(1).filter(|high| *high >= low) else { continue };
            let low = origin + (low - origin).div_ceil(step_wide) * step_wide;
            if low > high || placed == count {
                continue;
            }
            pieces.push(Piece { start: placed, first: low });
            let here = (high - low) / step_wide + 1;
            placed += u32::try_from(here).unwrap_or(u32::MAX).min(count - placed);
        }
        if placed < count {
            return Err(RouteError::TooMany { asked: count, fit: placed });
        }
        Ok(RouteRange {
            description: Description::Uniform { first, count, step, attributes, order: Order::Scattered },
            family,
            count,
            attributes,
            group_size: divisor(attributes.routes_per_group),
            scattered: Affine::new(count, 0),
            arrangement: Arrangement::Scattered,
            layout: Layout::Uniform { length, step: Divisor::new(step), pieces },
        })
    }

    /// `count` prefixes with the lengths, group sizes and attributes of a table of the Internet. If there is not enough
    /// space, long prefixes replace the shortest ones.
    pub fn internet(family: Family, count: u32, seed: u64) -> Result<RouteRange, RouteError> {
        if count == 0 {
            return Err(RouteError::Empty);
        }
        Ok(RouteRange {
            description: Description::Internet {
                family,
                count,
                seed,
                routes_per_group: GroupSizes::Internet,
                order: Order::Scattered,
            },
            family,
            count,
            attributes: AttributePattern::internet(seed),
            group_size: divisor(GroupSizes::Internet),
            scattered: Affine::new(count, mix(seed)),
            arrangement: Arrangement::Scattered,
            layout: Layout::Internet(Internet::new(family, count, seed)?),
        })
    }

    /// The same prefixes in a different order. A new range is scattered.
    pub fn in_order(mut self, wanted: Order) -> RouteRange {
        let (Description::Uniform { order, .. } | Description::Internet { order, .. }) = &mut self.description;
        *order = wanted;
        self.arrangement = match (wanted, &self.layout) {
            (Order::Scattered, _) => Arrangement::Scattered,
            (Order::Clustered, _) => {
                Arrangement::Clustered(Clusters::new(self.attributes.routes_per_group, self.count))
            }
            (Order::Sorted, Layout::Uniform { .. }) => Arrangement::Sorted(Vec::new()),
            (Order::Sorted, Layout::Internet(internet)) => Arrangement::Sorted(internet.before_blocks(self.family)),
        };
        self
    }

    /// The same prefixes with different group sizes.
    pub fn in_groups(mut self, sizes: GroupSizes) -> RouteRange {
        let order = self.order();
        match &mut self.description {
            Description::Uniform { attributes, .. } => attributes.routes_per_group = sizes,
            Description::Internet { routes_per_group, .. } => *routes_per_group = sizes,
        }
        self.attributes.routes_per_group = sizes;
        self.group_size = divisor(sizes);
        // The clustered order depends on the group sizes.
        self.in_order(order)
    }

    /// Order of the prefixes.
    pub fn order(&self) -> Order {
        let (Description::Uniform { order, .. } | Description::Internet { order, .. }) = &self.description;
        *order
    }

    /// Group of route `i`.
    #[inline]
    pub(super) fn group_of(&self, i: u32) -> u32 {
        match self.attributes.routes_per_group {
            GroupSizes::Fixed(_) => self.group_size.quotient(i),
            sizes @ GroupSizes::Internet => sizes.group_of(i),
        }
    }

    /// Prefix of route `i`.
    #[inline]
    pub(super) fn prefix(&self, i: u32) -> Prefix {
        match &self.arrangement {
            Arrangement::Scattered => self.at(self.scattered.at(i)),
            Arrangement::Clustered(clusters) => self.at_distance(clusters.at(i)),
            Arrangement::Sorted(before) => match &self.layout {
                Layout::Uniform { .. } => self.at(i),
                Layout::Internet(internet) => internet.at_rank(self.family, before, i),
            },
        }
    }

    /// The route with exactly this prefix.
    #[inline]
    pub(super) fn index_of(&self, prefix: &Prefix) -> Option<u32> {
        let place = self.place(prefix)?;
        Some(match (&self.arrangement, &self.layout) {
            (Arrangement::Scattered, _) => self.scattered.place(place),
            (Arrangement::Clustered(clusters), Layout::Uniform { .. }) => clusters.place(place),
            (Arrangement::Clustered(clusters), Layout::Internet(internet)) => clusters.place(internet.distance(place)),
            (Arrangement::Sorted(_), Layout::Uniform { .. }) => place,
            (Arrangement::Sorted(before), Layout::Internet(internet)) => internet.rank(self.family, before, prefix)?,
        })
    }

    /// Prefix of route `i`. Not inlined, because inlining slows down the scattered order in loops over prefixes.
    #[inline(never)]
    pub(super) fn arranged(&self, i: u32) -> Prefix {
        self.prefix(i)
    }

    /// Prefixes of `left` routes from `start` on.
    pub(super) fn iter(&self, start: u32, left: u32) -> Prefixes<'_> {
        match &self.arrangement {
            Arrangement::Scattered => {
                Prefixes::Range { range: self, place: self.scattered.at(start % self.count), left }
            }
            _ => Prefixes::Arranged { range: self, next: start, left },
        }
    }

    /// The prefix at a place of the layout in which neighbours have adjacent addresses.
    #[inline]
    pub(super) fn at_distance(&self, distance: u32) -> Prefix {
        match &self.layout {
            Layout::Uniform { .. } => self.at(distance),
            Layout::Internet(internet) => internet.at_distance(self.family, distance),
        }
    }

    /// The description from which the range was built.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Heap memory in bytes.
    #[cfg(test)]
    pub(super) fn heap(&self) -> usize {
        let arrangement = match &self.arrangement {
            Arrangement::Scattered => 0,
            Arrangement::Clustered(clusters) => clusters.heap(),
            Arrangement::Sorted(before) => before.capacity() * size_of::<u32>(),
        };
        arrangement
            + match &self.layout {
                Layout::Uniform { pieces, .. } => pieces.capacity() * size_of::<Piece>(),
                Layout::Internet(internet) => internet.heap(),
            }
    }

    /// The prefix at a place of the scattered order.
    #[inline(always)]
    pub(super) fn at(&self, place: u32) -> Prefix {
        match &self.layout {
            Layout::Uniform { length, step, pieces } => {
                let piece = pieces.iter().rev().find(|p| p.start <= place).unwrap_or(&pieces[0]);
                let n = piece.first + u128::from(u64::from(place - piece.start) * u64::from(step.get()));
                Prefix::trusted(self.family, n << (width(self.family) - length), *length)
            }
            Layout::Internet(internet) => internet.at(self.family, place),
        }
    }

    /// The place of a prefix in the scattered order.
    #[inline]
    fn place(&self, prefix: &Prefix) -> Option<u32> {
        if prefix.family() != self.family {
            return None;
        }
        let place = match &self.layout {
            Layout::Uniform { length, step, pieces } => {
                if prefix.length() != *length {
                    return None;
                }
                let n = number(prefix.address()) >> (width(self.family) - length);
                let at = pieces.iter().rposition(|p| p.first <= n)?;
                // Places and steps have 32 bits, so no place is further away.
                let (steps, rest) = step.div_rem(u64::try_from(n - pieces[at].first).ok()?);
                let end = pieces.get(at + 1).map_or(self.count, |next| next.start);
                let place = u64::from(pieces[at].start).checked_add(steps)?;
                (rest == 0 && place < u64::from(end)).then_some(place as u32)
            }
            Layout::Internet(internet) => internet.place(self.family, prefix),
        };
        place.filter(|place| *place < self.count)
    }
}

impl TryFrom<Description> for RouteRange {
    type Error = RouteError;
    fn try_from(description: Description) -> Result<RouteRange, RouteError> {
        Ok(match description {
            Description::Uniform { first, count, step, attributes, order } => {
                RouteRange::uniform(first, count, step, attributes)?.in_order(order)
            }
            Description::Internet { family, count, seed, routes_per_group, order } => {
                RouteRange::internet(family, count, seed)?.in_groups(routes_per_group).in_order(order)
            }
        })
    }
}

impl From<RouteRange> for Description {
    fn from(range: RouteRange) -> Description {
        range.description
    }
}
