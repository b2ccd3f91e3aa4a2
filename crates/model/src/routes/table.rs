//! Routes listed one by one.

use super::prefix::{address, number};
use super::{Prefix, RouteAttributes, mix};
use crate::trial::Family;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::Range;

/// Explicit routes, for example from a file: each prefix once, in groups of routes with the same attributes. Prefixes
/// can be nested.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "TableDescription", into = "TableDescription")]
pub struct RouteTable {
    name: String,
    family: Family,
    count: u32,
    /// Prefixes in order of groups.
    prefixes: Vec<Prefix>,
    /// First route of each group, and the end of the last group.
    starts: Vec<u32>,
    attributes: Vec<RouteAttributes>,
    /// Routes ordered by prefix.
    sorted: Vec<u32>,
    /// For each entry of `sorted`, the index in `sorted` of the longest prefix that covers it.
    parents: Vec<u32>,
}

/// The part of a table that a record stores. The routes stay in their file.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct TableDescription {
    name: String,
    family: Family,
    count: u32,
}

const NONE: u32 = u32::MAX;

impl RouteTable {
    /// Builds a table of one family and leaves out routes of the other family. If several routes have the same prefix,
    /// the last one counts. Groups keep the order of their first routes, and routes keep their order within the group.
    pub fn new(
        name: impl Into<String>,
        family: Family,
        routes: impl IntoIterator<Item = (Prefix, RouteAttributes)>,
    ) -> RouteTable {
        let mut groups: HashMap<RouteAttributes, u32> = HashMap::new();
        let mut attributes: Vec<RouteAttributes> = Vec::new();
        let mut all: Vec<(Prefix, u32)> = Vec::new();
        let mut known: HashMap<Prefix, usize> = HashMap::new();
        for (prefix, attrs) in routes.into_iter().filter(|(p, _)| p.family() == family) {
            let group = *groups.entry(attrs).or_insert_with_key(|attrs| {
                attributes.push(attrs.clone());
                attributes.len() as u32 - 1
            });
            match known.entry(prefix) {
                std::collections::hash_map::Entry::Occupied(at) => all[*at.get()].1 = group,
                std::collections::hash_map::Entry::Vacant(at) => {
                    at.insert(all.len());
                    all.push((prefix, group));
                }
            }
        }
        drop(known);
        all.sort_by_key(|(_, group)| *group);
        // A group is empty if all its routes were replaced by later ones.
        let mut kept = Vec::new();
        let mut starts = Vec::new();
        for (i, (_, group)) in all.iter().enumerate() {
            if i == 0 || all[i - 1].1 != *group {
                starts.push(i as u32);
                kept.push(std::mem::take(&mut attributes[*group as usize]));
            }
        }
        starts.push(all.len() as u32);
        let prefixes: Vec<Prefix> = all.into_iter().map(|(p, _)| p).collect();
        let mut sorted: Vec<u32> = (0..prefixes.len() as u32).collect();
        sorted.sort_unstable_by_key(|i| prefixes[*i as usize]);
        let mut parents = vec![NONE; sorted.len()];
        let mut open: Vec<u32> = Vec::new();
        for at in 0..sorted.len() {
            let prefix = &prefixes[sorted[at] as usize];
            while open.last().is_some_and(|p| !prefixes[sorted[*p as usize] as usize].covers(prefix)) {
                open.pop();
            }
            parents[at] = open.last().copied().unwrap_or(NONE);
            open.push(at as u32);
        }
        let count = prefixes.len() as u32;
        RouteTable { name: name.into(), family, count, prefixes, starts, attributes: kept, sorted, parents }
    }

    /// Source of the routes.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The same table with a different name.
    #[must_use]
    pub fn called(self, name: impl FnOnce(&str) -> String) -> RouteTable {
        RouteTable { name: name(&self.name), ..self }
    }

    /// IP version.
    pub fn family(&self) -> Family {
        self.family
    }

    /// Number of routes.
    pub fn len(&self) -> u32 {
        self.count
    }

    /// True if there are no routes.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The first `count` routes, or all if there are fewer.
    pub fn first(self, count: u32) -> RouteTable {
        if count >= self.count || !self.is_loaded() {
            return self;
        }
        let name = format!("{count} routes of {}", self.name);
        let route = |i: u32| (self.prefix(i), self.attributes(self.group_of(i)));
        RouteTable::new(name, self.family, (0..count).map(route))
    }

    /// True if the routes are loaded, false if the table comes from a record.
    pub fn is_loaded(&self) -> bool {
        self.prefixes.len() == self.count as usize
    }

    /// Prefix of route `i`. Panics if the routes are not loaded.
    #[inline]
    pub fn prefix(&self, i: u32) -> Prefix {
        self.prefixes[i as usize]
    }

    pub(super) fn slice(&self, part: Range<u32>) -> &[Prefix] {
        &self.prefixes[part.start as usize..part.end as usize]
    }

    /// The route with this prefix.
    pub fn index_of(&self, prefix: &Prefix) -> Option<u32> {
        let at = self.sorted.binary_search_by_key(prefix, |i| self.prefixes[*i as usize]).ok()?;
        Some(self.sorted[at])
    }

    pub(super) fn group_of(&self, i: u32) -> u32 {
        (self.starts.partition_point(|start| *start <= i) as u32).saturating_sub(1)
    }

    pub(super) fn groups(&self) -> u32 {
        self.attributes.len() as u32
    }

    pub(super) fn group(&self, group: u32) -> Range<u32> {
        self.starts[group as usize]..self.starts[group as usize + 1]
    }

    pub(super) fn attributes(&self, group: u32) -> RouteAttributes {
        self.attributes[group as usize].clone()
    }

    /// The route that longest match selects for an address.
    pub fn longest_match(&self, host: IpAddr) -> Option<u32> {
        let below = |i: &u32| {
            let prefix = &self.prefixes[*i as usize];
            prefix.address() <= host
        };
        let mut at = (self.sorted.partition_point(below) as u32).checked_sub(1)?;
        while at != NONE {
            let i = self.sorted[at as usize];
            if self.prefixes[i as usize].contains(host) {
                return Some(i);
            }
            at = self.parents[at as usize];
        }
        None
    }

    /// An address that longest match resolves to route `i`; `None` if longer prefixes cover all of it.
    pub fn reachable(&self, i: u32, salt: u32) -> Option<IpAddr> {
        let prefix = self.prefix(i);
        let host = prefix.host(salt);
        if self.longest_match(host) == Some(i) {
            return Some(host);
        }
        let (first, last) = prefix.bounds();
        let from = number(host);
        // Searches from the host upwards, then from the start of the prefix, and skips each longer prefix.
        for (mut next, end) in [(from, last), (first, from)] {
            while next <= end {
                let candidate = address(self.family, next);
                match self.longest_match(candidate) {
                    Some(found) if found == i => {
                        let ends = next == first || next == last;
                        if !ends || first == last {
                            return Some(candidate);
                        }
                        next += 1;
                    }
                    Some(found) => {
                        // The prefix found may be nested in another prefix longer than route `i`, but never ends after
                        // it.
                        next = match self.prefix(found).bounds().1.checked_add(1) {
                            Some(next) => next,
                            None => break,
                        };
                    }
                    None => break,
                }
            }
        }
        // Only the first or the last address can be left.
        [first, last].map(|n| address(self.family, n)).into_iter().find(|a| self.longest_match(*a) == Some(i))
    }

    pub(super) fn host(&self, i: u32, salt: u32) -> IpAddr {
        self.reachable(i, mix(u64::from(salt)) as u32).unwrap_or_else(|| self.prefix(i).address())
    }
}

impl From<TableDescription> for RouteTable {
    fn from(d: TableDescription) -> RouteTable {
        RouteTable { count: d.count, ..RouteTable::new(d.name, d.family, []) }
    }
}

impl From<RouteTable> for TableDescription {
    fn from(table: RouteTable) -> TableDescription {
        TableDescription { name: table.name, family: table.family, count: table.count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn table(texts: &[(&str, u32)]) -> RouteTable {
        let routes = texts.iter().map(|(text, asn)| {
            (text.parse().unwrap(), RouteAttributes { as_path: vec![*asn], ..RouteAttributes::default() })
        });
        RouteTable::new("t", Family::Ipv4, routes)
    }

    #[test]
    fn groups_and_duplicates() {
        let t = table(&[("1.0.0.0/8", 1), ("2.0.0.0/8", 2), ("3.0.0.0/8", 1), ("2.0.0.0/8", 3), ("2a00::/16", 3)]);
        assert_eq!((t.len(), t.groups(), t.is_loaded()), (3, 2, true));
        assert_eq!((t.group(0), t.group(1)), (0..2, 2..3));
        assert_eq!((t.attributes(1).as_path, t.prefix(2).to_string()), (vec![3], "2.0.0.0/8".into()));
        assert_eq!((t.group_of(1), t.group_of(2)), (0, 1));
    }

    #[test]
    fn the_first_routes_keep_their_order_and_attributes() {
        let t = table(&[("1.0.0.0/8", 1), ("2.0.0.0/8", 2), ("3.0.0.0/8", 1)]);
        let first = t.clone().first(2);
        assert_eq!((first.len(), first.groups(), first.name()), (2, 1, "2 routes of t"));
        assert_eq!((first.prefix(1), first.attributes(0)), (t.prefix(1), t.attributes(0)));
        assert_eq!(first.index_of(&t.prefix(2)), None);
        assert_eq!((t.clone().first(3), t.clone().first(9)), (t.clone(), t));
    }

    #[test]
    fn addresses_go_around_longer_prefixes() {
        let t = table(&[("1.0.0.0/30", 1), ("1.0.0.0/31", 2), ("1.0.0.2/31", 3), ("1.0.0.3/32", 4)]);
        assert_eq!(t.reachable(0, 1), None);
        assert_eq!(t.host(0, 1).to_string(), "1.0.0.0");
        assert_eq!(t.reachable(2, 1).unwrap().to_string(), "1.0.0.2");
    }

    proptest! {
        #[test]
        fn addresses_resolve_to_their_route(
            raw in prop::collection::vec((0u32..4096, 20u8..=32), 1..40), salt: u32,
        ) {
            let routes = raw.iter().map(|(bits, length)| {
                let prefix = Prefix::masked(address(Family::Ipv4, u128::from(0x0500_0000 | bits)), *length).unwrap();
                (prefix, RouteAttributes::default())
            });
            let t = RouteTable::new("t", Family::Ipv4, routes);
            for i in 0..t.len() {
                prop_assert_eq!(t.index_of(&t.prefix(i)), Some(i));
                let longest = |host: IpAddr| {
                    let all = (0..t.len()).filter(|j| t.prefix(*j).contains(host));
                    all.max_by_key(|j| t.prefix(*j).length())
                };
                match t.reachable(i, salt) {
                    Some(host) => prop_assert_eq!(longest(host), Some(i)),
                    None => {
                        let (first, last) = t.prefix(i).bounds();
                        for n in first..=last {
                            prop_assert!(longest(address(Family::Ipv4, n)) != Some(i));
                        }
                    }
                }
            }
        }
    }
}
