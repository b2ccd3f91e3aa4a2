//! The link state database (RFC 2328 section 12.2).

use drophammer_model::Instant;
use drophammer_wire::ospf::lsa::MAX_AGE;
use drophammer_wire::ospf::{LsaHeader, LsaKey};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Maximum number of LSAs, and of bytes in their bodies.
const MOST: usize = 200_000;
const MOST_BYTES: usize = 64 << 20;

/// An LSA in the database.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The header; its age is the age at `installed`.
    header: LsaHeader,
    pub body: Box<[u8]>,
    pub installed: Instant,
}

impl Entry {
    /// The header with the age at `now`.
    pub fn header(&self, now: Instant) -> LsaHeader {
        let age = u64::from(self.header.age) + now.since(self.installed).as_secs();
        LsaHeader { age: age.min(MAX_AGE.into()) as u16, ..self.header }
    }

    fn expires(&self) -> Instant {
        self.installed + Duration::from_secs(MAX_AGE.saturating_sub(self.header.age).into())
    }
}

/// All LSAs.
#[derive(Default)]
pub struct Database {
    all: BTreeMap<LsaKey, Entry>,
    bytes: usize,
    /// When each LSA reaches MaxAge.
    expiries: BTreeSet<(Instant, LsaKey)>,
}

impl Database {
    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn get(&self, key: &LsaKey) -> Option<&Entry> {
        self.all.get(key)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&LsaKey, &Entry)> {
        self.all.iter()
    }

    /// True if an LSA with this key can be installed.
    pub fn has_room(&self, key: &LsaKey) -> bool {
        self.all.contains_key(key) || self.all.len() < MOST && self.bytes < MOST_BYTES
    }

    /// Installs an instance in place of an older one. Returns true if the contents have changed (section 13.2).
    pub fn install(&mut self, now: Instant, header: LsaHeader, body: &[u8]) -> bool {
        let entry = Entry { header, body: body.into(), installed: now };
        self.bytes += body.len();
        self.expiries.insert((entry.expires(), header.key));
        let Some(old) = self.all.insert(header.key, entry) else { return true };
        self.bytes -= old.body.len();
        if old.expires() != now + Duration::from_secs(MAX_AGE.saturating_sub(header.age).into()) {
            self.expiries.remove(&(old.expires(), header.key));
        }
        let aged = |header: &LsaHeader| header.age >= MAX_AGE;
        old.header.options != header.options || aged(&old.header(now)) != aged(&header) || *old.body != *body
    }

    /// Lets an LSA reach MaxAge at `now`.
    pub fn age_out(&mut self, now: Instant, key: &LsaKey) {
        if let Some(entry) = self.all.get_mut(key) {
            self.expiries.remove(&(entry.expires(), *key));
            (entry.header.age, entry.installed) = (MAX_AGE, now);
        }
    }

    pub fn remove(&mut self, key: &LsaKey) {
        if let Some(entry) = self.all.remove(key) {
            self.bytes -= entry.body.len();
            self.expiries.remove(&(entry.expires(), *key));
        }
    }

    /// Returns the next LSA that has reached MaxAge by `now`, and removes it from the list of deadlines.
    pub fn take_expired(&mut self, now: Instant) -> Option<LsaKey> {
        let first = self.expiries.first().copied().filter(|(at, _)| *at <= now)?;
        self.expiries.remove(&first);
        Some(first.1)
    }

    /// When the next LSA reaches MaxAge.
    pub fn next_expiry(&self) -> Option<Instant> {
        self.expiries.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(age: u16, sequence: i32) -> LsaHeader {
        let key = LsaKey { kind: 5, id: [10, 0, 0, 0].into(), router: [1, 1, 1, 1].into() };
        LsaHeader { age, options: 2, key, sequence, checksum: 1, length: 24 }
    }

    #[test]
    fn an_instance_replaces_another_and_says_whether_its_contents_differ() {
        let mut database = Database::default();
        let (at, key) = (|s: u64| Instant(s * 1_000_000_000), header(0, 1).key);
        assert!(database.install(at(0), header(10, 1), &[1, 2, 3, 4]));
        assert!(!database.install(at(5), header(0, 2), &[1, 2, 3, 4]), "a refresh");
        assert!(database.install(at(6), header(0, 3), &[1, 2, 3, 5]));
        assert_eq!((database.len(), database.bytes, database.next_expiry()), (1, 4, Some(at(3606))));
        assert_eq!(database.get(&key).unwrap().header(at(106)).age, 100);
        assert_eq!((database.take_expired(at(3605)), database.take_expired(at(3606))), (None, Some(key)));
        database.age_out(at(3606), &key);
        assert_eq!(database.get(&key).unwrap().header(at(3606)).age, MAX_AGE);
        database.remove(&key);
        assert_eq!((database.len(), database.bytes, database.next_expiry()), (0, 0, None));
    }
}
