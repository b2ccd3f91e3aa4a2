//! LSAs that neighbours have sent, and how they compare with the expected ones.

use crate::expectation::{Expectation, KeyList, Keys, Verification};
use drophammer_model::Instant;
use drophammer_model::routes::Prefix;
use drophammer_wire::ospf::body::{LS_INFINITY, link};
use drophammer_wire::ospf::lsa::MAX_AGE;
use drophammer_wire::ospf::{Body, LsaHeader, LsaKey, lsa_type};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Maximum size of all stored bodies, in bytes.
const MOST_BYTES: usize = 256 << 20;

/// What a neighbour is expected to advertise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Expected {
    /// An LSA.
    Lsa(LsaKey),
    /// A prefix, in a stub link of a Router-LSA, in a Network-LSA, a Summary-LSA or an AS-external-LSA.
    Prefix(Prefix),
}

/// A stored LSA.
#[derive(Clone, Debug)]
pub(super) struct Learned {
    header: LsaHeader,
    body: Box<[u8]>,
    /// When it was installed; `header.age` is its age then.
    pub installed: Instant,
}

impl Learned {
    pub fn header(&self, now: Instant) -> LsaHeader {
        let age = u64::from(self.header.age) + now.since(self.installed).as_secs();
        LsaHeader { age: age.min(MAX_AGE.into()) as u16, ..self.header }
    }

    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// When its age becomes MaxAge.
    pub fn expires(&self) -> Instant {
        self.installed + Duration::from_secs((MAX_AGE - self.header.age.min(MAX_AGE)).into())
    }
}

/// The stored LSAs.
#[derive(Debug, Default)]
pub(super) struct LearnedLsas {
    all: BTreeMap<LsaKey, Learned>,
    most: usize,
    bytes: usize,
    expectation: Option<Expecting>,
}

#[derive(Debug)]
struct Expecting {
    expectation: Expectation<KeyList<Expected>>,
    /// Number of LSAs that contain each key.
    holders: Vec<u32>,
}

impl LearnedLsas {
    pub fn new(most: u32) -> LearnedLsas {
        LearnedLsas { most: most as usize, ..LearnedLsas::default() }
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn get(&self, key: &LsaKey) -> Option<&Learned> {
        self.all.get(key)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&LsaKey, &Learned)> {
        self.all.iter()
    }

    /// True if another LSA can be stored under `key`.
    pub fn has_room(&self, key: &LsaKey) -> bool {
        self.all.contains_key(key) || self.all.len() < self.most && self.bytes < MOST_BYTES
    }

    /// Stores an instance in place of an older one.
    pub fn install(&mut self, now: Instant, header: LsaHeader, body: &[u8]) {
        self.bytes += body.len();
        let lsa = Learned { header, body: body.into(), installed: now };
        let old = self.all.insert(header.key, lsa);
        self.bytes -= old.as_ref().map_or(0, |old| old.body.len());
        let old = old.filter(|old| old.header.age < MAX_AGE);
        let before = old.as_ref().map_or_else(Vec::new, |old| keys(&old.header.key, &old.body));
        let after = if header.age < MAX_AGE { keys(&header.key, body) } else { Vec::new() };
        self.compare(now, &before, &after);
    }

    /// Marks an LSA that has reached MaxAge. False if it is unknown.
    pub fn age_out(&mut self, now: Instant, key: &LsaKey) -> bool {
        let Some(lsa) = self.all.get_mut(key) else { return false };
        if lsa.header.age < MAX_AGE {
            lsa.header.age = MAX_AGE;
            let before = keys(key, &lsa.body);
            self.compare(now, &before, &[]);
        }
        true
    }

    /// Removes an LSA that has reached MaxAge.
    pub fn remove(&mut self, key: &LsaKey) {
        if let Some(lsa) = self.all.remove(key) {
            self.bytes -= lsa.body.len();
        }
    }

    /// Forgets all LSAs.
    pub fn clear(&mut self, now: Instant) {
        self.all.clear();
        self.bytes = 0;
        if let Some(Expecting { expectation, holders }) = &mut self.expectation {
            expectation.lost(now);
            holders.fill(0);
        }
    }

    /// Counts the keys of a changed LSA before and after the change.
    fn compare(&mut self, now: Instant, before: &[Expected], after: &[Expected]) {
        let Some(Expecting { expectation, holders }) = &mut self.expectation else { return };
        for i in before.iter().filter_map(|key| expectation.keys().index_of(key)).collect::<Vec<_>>() {
            holders[i as usize] = holders[i as usize].saturating_sub(1);
        }
        for i in after.iter().filter_map(|key| expectation.keys().index_of(key)).collect::<Vec<_>>() {
            holders[i as usize] += 1;
            expectation.received(now, i, false);
        }
        for i in before.iter().filter_map(|key| expectation.keys().index_of(key)).collect::<Vec<_>>() {
            if holders[i as usize] == 0 {
                expectation.withdrawn(now, i);
            }
        }
    }

    /// Expects these keys from `now` on. Keys that are already present count as received.
    pub fn expect(&mut self, now: Instant, keys_of: impl IntoIterator<Item = Expected>, times: bool) {
        let list = KeyList::new(keys_of);
        let holders = vec![0; list.len() as usize];
        self.expectation = Some(Expecting { expectation: Expectation::new(now, list, times), holders });
        let alive = self.all.iter().filter(|(_, lsa)| lsa.header.age < MAX_AGE);
        let present: Vec<_> = alive.map(|(key, lsa)| keys(key, &lsa.body)).collect();
        present.iter().for_each(|after| self.compare(now, &[], after));
    }

    pub fn expectation(&self) -> Option<&Expectation<KeyList<Expected>>> {
        self.expectation.as_ref().map(|e| &e.expectation)
    }

    pub fn expectation_mut(&mut self) -> Option<&mut Expectation<KeyList<Expected>>> {
        self.expectation.as_mut().map(|e| &mut e.expectation)
    }

    pub fn verification(&self) -> Verification {
        self.expectation().map_or_else(Verification::default, Expectation::verification)
    }
}

/// What an LSA advertises: itself, and its prefixes, each once.
fn keys(key: &LsaKey, body: &[u8]) -> Vec<Expected> {
    let mut found = vec![Expected::Lsa(*key)];
    let mut push = |network: Ipv4Addr, mask: Ipv4Addr| {
        let length = mask.to_bits().leading_ones() as u8;
        let contiguous = mask.to_bits().count_ones() == u32::from(length);
        if let Some(prefix) = Prefix::masked(network.into(), length).filter(|_| contiguous) {
            found.push(Expected::Prefix(prefix));
        }
    };
    match Body::parse(key.kind, body) {
        Ok(Body::Router(router)) => {
            router.links().filter(|l| l.kind == link::STUB).for_each(|l| push(l.id, l.data));
        }
        Ok(Body::Network(network)) => push(key.id, network.mask),
        Ok(Body::Summary(summary)) if key.kind == lsa_type::SUMMARY_NETWORK && summary.metric < LS_INFINITY => {
            push(key.id, summary.mask);
        }
        Ok(Body::External(external)) if external.metric < LS_INFINITY => push(key.id, external.mask),
        _ => {}
    }
    found.sort_unstable_by_key(|key| match key {
        Expected::Lsa(_) => None,
        Expected::Prefix(prefix) => Some(*prefix),
    });
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_wire::ospf::External;

    fn external(id: [u8; 4], age: u16) -> (LsaHeader, Vec<u8>) {
        let key = LsaKey { kind: 5, id: id.into(), router: [9, 9, 9, 9].into() };
        let mut body = Vec::new();
        let [mask, forwarding] = [[255, 255, 255, 0], [0; 4]].map(Ipv4Addr::from);
        External { mask, type_2: false, metric: 1, forwarding, tag: 0 }.emit(&mut body);
        (LsaHeader { age, options: 2, key, sequence: 1, checksum: 1, length: 36 }, body)
    }

    #[test]
    fn a_prefix_is_present_while_an_lsa_contains_it() {
        let mut learned = LearnedLsas::new(3);
        // Two LSAs of one network, as in appendix E.
        let [(a, body), (b, _)] = [external([20, 0, 0, 0], 0), external([20, 0, 0, 255], 0)];
        learned.install(Instant(1), a, &body);
        let prefix = |text: &str| Expected::Prefix(text.parse().unwrap());
        learned.expect(Instant(2), [prefix("20.0.0.0/24"), prefix("20.0.1.0/24"), Expected::Lsa(b.key)], false);
        let counts = |learned: &LearnedLsas| (learned.verification().present, learned.verification().missing);
        assert_eq!(counts(&learned), (1, 2));
        learned.install(Instant(3), b, &body);
        assert_eq!(counts(&learned), (2, 1));
        assert!(learned.age_out(Instant(4), &a.key) && learned.age_out(Instant(4), &a.key));
        assert_eq!(counts(&learned), (2, 1), "the other LSA still has it");
        learned.install(Instant(5), LsaHeader { age: MAX_AGE, ..b }, &body);
        assert_eq!((counts(&learned), learned.verification().withdrawn), ((0, 3), 2));
        learned.remove(&a.key);
        learned.remove(&b.key);
        assert_eq!((learned.len(), learned.bytes), (0, 0));
    }

    #[test]
    fn the_number_of_stored_lsas_is_limited() {
        let mut learned = LearnedLsas::new(2);
        for n in 0..2 {
            let (header, body) = external([20, n, 0, 0], 3000);
            assert!(learned.has_room(&header.key));
            learned.install(Instant(1), header, &body);
        }
        let [first, third] = [0, 2].map(|n| external([20, n, 0, 0], 0).0.key);
        assert!(learned.has_room(&first) && !learned.has_room(&third));
        let lsa = learned.get(&first).unwrap();
        assert_eq!(lsa.header(Instant(5_500_000_000)).age, 3005);
        assert_eq!((lsa.expires(), lsa.header(lsa.expires()).age), (Instant(600_000_000_001), 3600));
        learned.clear(Instant(9));
        assert_eq!(learned.len(), 0);
    }
}
