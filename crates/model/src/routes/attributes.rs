//! Path attributes of routes: given, or derived from a pattern and the group number.

use super::mix;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr};

/// Origin of a route (RFC 4271 section 5.1.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// Interior to the originating AS.
    #[default]
    Igp,
    /// Learned by EGP.
    Egp,
    /// Learned by other means.
    Incomplete,
}

impl Origin {
    /// The value of the attribute.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Returns the origin with this value.
    pub fn from_code(code: u8) -> Option<Origin> {
        [Origin::Igp, Origin::Egp, Origin::Incomplete].get(usize::from(code)).copied()
    }
}

/// Kind of a segment of an AS path (RFC 4271 section 4.3, RFC 5065 section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PathSegmentKind {
    /// Unordered ASes.
    Set = 1,
    /// Ordered ASes.
    Sequence,
    /// Ordered ASes of a confederation.
    ConfederationSequence,
    /// Unordered ASes of a confederation.
    ConfederationSet,
}

impl PathSegmentKind {
    /// The type in a message.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The kind with this type in a message.
    pub fn from_code(code: u8) -> Option<PathSegmentKind> {
        use PathSegmentKind::*;
        [Set, Sequence, ConfederationSequence, ConfederationSet].into_iter().find(|kind| kind.code() == code)
    }
}

/// A segment of an AS path.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PathSegment {
    /// Its kind.
    pub kind: PathSegmentKind,
    /// Its ASes, 1 to 255.
    pub ases: Vec<u32>,
}

/// Path attributes that the routes of a group share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RouteAttributes {
    /// Origin.
    pub origin: Origin,
    /// ASes from the nearest to the originating one, in one sequence, without the speaker's AS; at most 254.
    pub as_path: Vec<u32>,
    /// The path as it is sent to any peer, instead of the speaker's AS and `as_path`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<Vec<PathSegment>>,
    /// MULTI_EXIT_DISC.
    pub med: Option<u32>,
    /// LOCAL_PREF, sent only to peers of the same AS.
    pub local_pref: Option<u32>,
    /// Communities (RFC 1997), ascending.
    pub communities: Vec<u32>,
    /// Large communities (RFC 8092), ascending.
    pub large_communities: Vec<[u32; 3]>,
    /// Next hop; `None` for the speaker itself.
    pub next_hop: Option<IpAddr>,
    /// ATOMIC_AGGREGATE.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub atomic_aggregate: bool,
    /// AGGREGATOR: AS and identifier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregator: Option<(u32, Ipv4Addr)>,
    /// Extended communities (RFC 4360), ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extended_communities: Vec<[u8; 8]>,
    /// All other transitive attributes, encoded as in a message (flags, type, length, value) and ascending by type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<u8>,
}

/// Number of consecutive routes that share attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupSizes {
    /// Groups of this size; the last one may be smaller.
    Fixed(u32),
    /// Sizes as in a table of the Internet: small on average, with some groups of hundreds.
    Internet,
}

/// Number of items in a group's attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Amount {
    /// A constant number, up to 200.
    Fixed(u8),
    /// Numbers as in a table of the Internet.
    Internet,
}

/// The rule from which the attributes of each group of routes are derived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct AttributePattern {
    /// Sizes of groups.
    pub routes_per_group: GroupSizes,
    /// Number of ASes in a path, without the speaker's AS.
    pub as_path: Amount,
    /// Number of communities.
    pub communities: Amount,
    /// Number of large communities.
    pub large_communities: Amount,
    /// Share of groups with a MED, in per cent.
    pub med_percent: u8,
    /// Seed of all random choices.
    pub seed: u64,
}

impl Default for AttributePattern {
    /// One origin, three ASes, no optional attributes, 100 routes per group.
    fn default() -> AttributePattern {
        AttributePattern {
            routes_per_group: GroupSizes::Fixed(100),
            as_path: Amount::Fixed(3),
            communities: Amount::Fixed(0),
            large_communities: Amount::Fixed(0),
            med_percent: 0,
            seed: 1,
        }
    }
}

/// Group sizes, and how many of 256 groups have each size, modelled on the tables of public collectors: half of all
/// attribute sets have one route, a few have hundreds.
const GROUP_SIZES: [(u16, u16); 15] = [
    (1, 106),
    (2, 43),
    (3, 23),
    (4, 17),
    (5, 11),
    (6, 9),
    (8, 14),
    (11, 11),
    (16, 8),
    (24, 6),
    (40, 4),
    (70, 2),
    (130, 1),
    (250, 1),
    (0, 0),
];
/// Groups per cycle of sizes.
pub(super) const CYCLE_GROUPS: u32 = 256;

/// First route of each group of a cycle, and the end of the last one.
pub(super) const CYCLE: [u16; CYCLE_GROUPS as usize + 1] = {
    let mut starts = [0; CYCLE_GROUPS as usize + 1];
    let mut place = 0;
    while place < CYCLE_GROUPS as usize {
        // Multiplication by an odd factor modulo a power of two permutes the sizes, so they have no visible order.
        let rank = (place * 157 % CYCLE_GROUPS as usize) as u16;
        let (mut kind, mut below) = (0, GROUP_SIZES[0].1);
        while rank >= below {
            kind += 1;
            below += GROUP_SIZES[kind].1;
        }
        starts[place + 1] = starts[place] + GROUP_SIZES[kind].0;
        place += 1;
    }
    starts
};
/// Routes per cycle of sizes.
pub(super) const CYCLE_ROUTES: u32 = CYCLE[CYCLE_GROUPS as usize] as u32;

/// Group of each route of a cycle.
pub(super) static GROUPS: [u8; CYCLE_ROUTES as usize] = {
    let mut groups = [0; CYCLE_ROUTES as usize];
    let mut group = 0;
    while group < CYCLE_GROUPS as usize {
        let mut route = CYCLE[group] as usize;
        while route < CYCLE[group + 1] as usize {
            groups[route] = group as u8;
            route += 1;
        }
        group += 1;
    }
    groups
};

impl GroupSizes {
    /// Group of route `i`.
    #[inline]
    pub fn group_of(self, i: u32) -> u32 {
        match self {
            GroupSizes::Fixed(size) => i / size.max(1),
            GroupSizes::Internet => i / CYCLE_ROUTES * CYCLE_GROUPS + u32::from(GROUPS[(i % CYCLE_ROUTES) as usize]),
        }
    }

    /// First route of group `group`.
    #[inline]
    pub fn start(self, group: u32) -> u64 {
        match self {
            GroupSizes::Fixed(size) => u64::from(group) * u64::from(size.max(1)),
            GroupSizes::Internet => {
                let cycles = u64::from(group / CYCLE_GROUPS) * u64::from(CYCLE_ROUTES);
                cycles + u64::from(CYCLE[(group % CYCLE_GROUPS) as usize])
            }
        }
    }
}

/// Expands weighted values to a table with one entry per per cent. The weights must add up to 100.
const fn weighted<const N: usize>(table: [(u8, u8); N]) -> [u8; 100] {
    let (mut values, mut at, mut kind) = ([0; 100], 0, 0);
    while kind < N {
        let mut left = table[kind].1;
        while left > 0 {
            values[at] = table[kind].0;
            (at, left) = (at + 1, left - 1);
        }
        kind += 1;
    }
    assert!(at == 100);
    values
}

/// AS path lengths: 2 to 8, 4.0 on average.
static PATH_LENGTHS: [u8; 100] = weighted([(2, 14), (3, 26), (4, 28), (5, 17), (6, 8), (7, 4), (8, 3)]);
/// The number of communities.
static COMMUNITIES: [u8; 100] =
    weighted([(0, 32), (1, 14), (2, 14), (3, 11), (4, 9), (6, 8), (8, 6), (11, 3), (16, 2), (24, 1)]);
/// The number of large communities.
static LARGE_COMMUNITIES: [u8; 100] = weighted([(0, 90), (1, 4), (3, 4), (6, 2)]);
/// ORIGIN.
static ORIGINS: [u8; 100] = weighted([(0, 91), (1, 1), (2, 8)]);
/// Share of groups, in per cent, whose path repeats the originating AS.
const PREPENDED: u64 = 12;

/// A sequence of pseudo-random numbers. Skipping a number costs one addition.
struct Random(u64);

impl Random {
    #[inline]
    fn skip(&mut self) {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
    }

    #[inline]
    fn next(&mut self) -> u64 {
        self.skip();
        mix(self.0)
    }

    #[inline]
    fn percent(&mut self) -> usize {
        (self.next() % 100) as usize
    }
}

impl Amount {
    #[inline]
    fn draw(self, table: &[u8; 100], random: &mut Random) -> usize {
        usize::from(match self {
            Amount::Fixed(n) => {
                random.skip();
                n.min(200)
            }
            Amount::Internet => table[random.percent()],
        })
    }
}

/// Public 16-bit ASes: 1 to 64495 except 23456 (RFC 7607, 6793, 5398).
const ASES_16: u64 = 64_494;
/// 32-bit ASes from 131072 upwards, which registries assign.
const ASES_32: u64 = 270_000;
/// Number of ASes in paths. It is coprime to the step below, so this many consecutive groups have different origins.
const ASES: u64 = ASES_16 + ASES_32;
const AS_STEP: u64 = 206_911;

#[inline]
fn as_number(n: u64) -> u32 {
    // Has no branches, because they would be mispredicted.
    let n = (n % ASES) as u32;
    let past_as_trans = u32::from(n >= 23_455);
    let past_16_bits = u32::from(n >= ASES_16 as u32);
    n + 1 + past_as_trans + past_16_bits * (131_072 - ASES_16 as u32 - 2)
}

impl AttributePattern {
    /// The pattern of a table like the Internet's.
    pub fn internet(seed: u64) -> AttributePattern {
        AttributePattern {
            routes_per_group: GroupSizes::Internet,
            as_path: Amount::Internet,
            communities: Amount::Internet,
            large_communities: Amount::Internet,
            med_percent: 15,
            seed,
        }
    }

    /// Attributes of group `group`. The first 334,494 groups all have different paths, if paths have an AS.
    pub fn attributes(&self, group: u32) -> RouteAttributes {
        let mut attributes = RouteAttributes::default();
        self.attributes_into(group, &mut attributes);
        attributes
    }

    /// Like [`AttributePattern::attributes`], but reuses the memory of `out`.
    pub fn attributes_into(&self, group: u32, out: &mut RouteAttributes) {
        // A route from a file may have left attributes that computed routes do not have.
        (out.atomic_aggregate, out.aggregator) = (false, None);
        out.extended_communities.clear();
        out.others.clear();
        let RouteAttributes { as_path, communities, large_communities, .. } = out;
        as_path.clear();
        communities.clear();
        large_communities.clear();
        let mut random = Random(mix(self.seed ^ mix(u64::from(group))));
        let origin_as = as_number((u64::from(group) * AS_STEP) + mix(self.seed) % ASES);
        let length = self.as_path.draw(&PATH_LENGTHS, &mut random);
        let distinct = if self.as_path == Amount::Internet && random.next() % 100 < PREPENDED {
            1 + random.next() as usize % length.max(1)
        } else {
            length
        };
        as_path.resize(length, origin_as);
        // Few ASes carry most of the transit traffic, so an AS near the speaker is one of only 40 << bits.
        for (hop, asn) in as_path.iter_mut().take(distinct.saturating_sub(1)).enumerate() {
            let (random, bits) = (random.next(), 3 * hop.min(4));
            *asn = as_number(mix((((random >> bits) % 40) << bits) | (random & ((1 << bits) - 1))));
        }
        let owner = |random: u64| as_number(random % ASES_16) << 16;
        for n in 0..self.communities.draw(&COMMUNITIES, &mut random) {
            let owner = owner(mix(random.next() % 600));
            communities.push(owner | (n as u32 * 256) | (random.next() & 0xff) as u32);
        }
        communities.sort_unstable();
        communities.dedup();
        for n in 0..self.large_communities.draw(&LARGE_COMMUNITIES, &mut random) {
            let owner = as_number(mix(random.next() % 600));
            large_communities.push([owner, n as u32, (random.next() & 0xffff) as u32]);
        }
        large_communities.sort_unstable();
        large_communities.dedup();
        out.origin = match self.as_path {
            Amount::Internet => Origin::from_code(ORIGINS[random.percent()]).unwrap_or_default(),
            Amount::Fixed(_) => Origin::Igp,
        };
        let told = random.next() % 100 < u64::from(self.med_percent);
        out.med = told.then(|| (random.next() % 500) as u32);
        (out.local_pref, out.next_hop) = (None, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    /// [`AttributePattern::attributes`] computed without tables, with one division for each choice.
    fn plainly(pattern: &AttributePattern, group: u32) -> RouteAttributes {
        fn weighted(table: &[(u8, u64)], random: u64) -> u8 {
            let mut left = random % table.iter().map(|(_, weight)| weight).sum::<u64>();
            for (value, weight) in table {
                if left < *weight {
                    return *value;
                }
                left -= weight;
            }
            unreachable!()
        }
        let draw = |amount, table: &[(u8, u64)], random| match amount {
            Amount::Fixed(n) => n.min(200),
            Amount::Internet => weighted(table, random),
        };
        let mut state = mix(pattern.seed ^ mix(u64::from(group)));
        let mut random = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mix(state)
        };
        let origin_as = as_number(u64::from(group) * AS_STEP + mix(pattern.seed) % ASES);
        let lengths = [(2, 14), (3, 26), (4, 28), (5, 17), (6, 8), (7, 4), (8, 3)];
        let length = usize::from(draw(pattern.as_path, &lengths, random()));
        let mut distinct = length;
        if pattern.as_path == Amount::Internet && random() % 100 < PREPENDED {
            distinct = 1 + random() as usize % length;
        }
        let transit = |hop: usize, random: u64| as_number(mix(random % (40 << (3 * hop.min(4)))));
        let as_path =
            (0..length).map(|hop| if hop + 1 < distinct { transit(hop, random()) } else { origin_as }).collect();
        let counts = [(0, 32), (1, 14), (2, 14), (3, 11), (4, 9), (6, 8), (8, 6), (11, 3), (16, 2), (24, 1)];
        let count = u32::from(draw(pattern.communities, &counts, random()));
        let owner = |random: u64| as_number(mix(random % 600) % ASES_16) << 16;
        let mut communities: Vec<_> =
            (0..count).map(|n| owner(random()) | (n * 256) | (random() & 0xff) as u32).collect();
        communities.sort();
        communities.dedup();
        let count = u32::from(draw(pattern.large_communities, &[(0, 90), (1, 4), (3, 4), (6, 2)], random()));
        let mut large_communities: Vec<_> =
            (0..count).map(|n| [as_number(mix(random() % 600)), n, (random() & 0xffff) as u32]).collect();
        large_communities.sort();
        large_communities.dedup();
        let origin = match pattern.as_path {
            Amount::Internet => Origin::from_code(weighted(&[(0, 91), (1, 1), (2, 8)], random())).unwrap(),
            Amount::Fixed(_) => Origin::Igp,
        };
        let med = (random() % 100 < u64::from(pattern.med_percent)).then(|| (random() % 500) as u32);
        RouteAttributes { origin, as_path, med, communities, large_communities, ..RouteAttributes::default() }
    }

    fn amount() -> impl Strategy<Value = Amount> {
        prop_oneof![any::<u8>().prop_map(Amount::Fixed), Just(Amount::Internet)]
    }

    proptest! {
        #[test]
        fn the_same_as_done_plainly(
            as_path in amount(), communities in amount(), large_communities in amount(), med_percent in 0u8..=100,
            seed: u64, groups in prop::collection::vec(any::<u32>(), 1..20)
        ) {
            let routes_per_group = GroupSizes::Fixed(1);
            let given = AttributePattern { routes_per_group, as_path, communities, large_communities, med_percent, seed };
            let mut kept = RouteAttributes::default();
            for pattern in [given, AttributePattern::internet(seed)] {
                for group in &groups {
                    pattern.attributes_into(*group, &mut kept);
                    prop_assert_eq!(&kept, &plainly(&pattern, *group));
                }
            }
        }
    }

    #[test]
    fn groups_like_those_of_the_internet() {
        assert_eq!(GROUP_SIZES.iter().map(|(_, n)| u32::from(*n)).sum::<u32>(), CYCLE_GROUPS);
        let mean = f64::from(CYCLE_ROUTES) / f64::from(CYCLE_GROUPS);
        assert!((5.0..8.0).contains(&mean), "{mean}");
        let sizes = GroupSizes::Internet;
        for i in 0..3 * CYCLE_ROUTES {
            let group = sizes.group_of(i);
            assert!(sizes.start(group) <= u64::from(i) && u64::from(i) < sizes.start(group + 1), "{i}");
        }
        assert_eq!(GroupSizes::Fixed(7).group_of(14), 2);
        assert_eq!(GroupSizes::Fixed(0).group_of(14), 14);
    }

    #[test]
    fn attributes_like_those_of_the_internet() {
        let pattern = AttributePattern::internet(3);
        let groups = 40_000;
        let all: Vec<_> = (0..groups).map(|g| pattern.attributes(g)).collect();
        let mean =
            |of: &dyn Fn(&RouteAttributes) -> usize| all.iter().map(of).sum::<usize>() as f64 / f64::from(groups);
        assert!((3.8..4.2).contains(&mean(&|a| a.as_path.len())));
        assert!(all.iter().all(|a| (2..=8).contains(&a.as_path.len())));
        assert!((2.0..4.0).contains(&mean(&|a| a.communities.len())));
        assert!((0.13..0.17).contains(&mean(&|a| usize::from(a.med.is_some()))));
        assert!((0.9..0.93).contains(&mean(&|a| usize::from(a.origin == Origin::Igp))));
        let paths: HashSet<_> = all.iter().map(|a| a.as_path.clone()).collect();
        assert_eq!(paths.len(), groups as usize, "each group has its own path");
        for a in &all {
            let public = |n: u32| (1..=64_495).contains(&n) && n != 23_456 || (131_072..402_000).contains(&n);
            assert!(a.as_path.iter().copied().all(public), "{a:?}");
            assert!(a.communities.is_sorted() && a.communities.iter().all(|c| public(c >> 16)), "{a:?}");
            assert!(a.large_communities.is_sorted() && a.local_pref.is_none() && a.next_hop.is_none());
        }
        assert_eq!(all[7], pattern.attributes(7));
        assert_ne!(all[7], AttributePattern::internet(4).attributes(7));
    }

    #[test]
    fn the_default_is_plain() {
        let a = AttributePattern::default().attributes(5);
        assert_eq!((a.as_path.len(), a.communities.len(), a.med, a.origin), (3, 0, None, Origin::Igp));
        assert_eq!(serde_json::from_str::<AttributePattern>("{}").unwrap(), AttributePattern::default());
    }

    #[test]
    fn public_as_numbers_in_order() {
        let numbers = (1..=64_495).filter(|n| *n != 23_456).chain(131_072..).take(ASES as usize);
        assert!((0..ASES).map(as_number).eq(numbers));
        assert_eq!(as_number(ASES), 1);
    }

    #[test]
    fn origins_differ_for_as_many_groups_as_there_are_ases() {
        let origins: HashSet<_> = (0..ASES).map(|g| as_number(g * AS_STEP)).collect();
        assert_eq!(origins.len() as u64, ASES);
    }
}
