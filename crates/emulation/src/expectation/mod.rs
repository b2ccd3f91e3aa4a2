//! Compares received keys with expected keys: which are present, missing, wrong or unexpected, and when they arrived.
//!
//! The keys of an [`Expectation`] are numbered ([`Keys`]): prefixes today, and labels, FECs, LSPs or LSAs for other
//! protocols. A key needs three bits, a fourth one during a refresh, and 4 additional bytes if times are stored. The protocol maps a key to its
//! number, reports which keys were received, withdrawn or lost, and decides whether the data received with a key is
//! wrong; this module does all counting.

mod bitmap;
#[cfg(test)]
mod tests;

pub(crate) use bitmap::Bitmap;
use drophammer_model::Instant;
use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Range;

/// Stands for "never" in a list of times.
pub const NEVER: u32 = u32::MAX;

/// The keys of an expectation, numbered from 0. The numbers must not change.
pub trait Keys {
    /// Type of a key, such as a prefix, a FEC, or an LSA header.
    type Key;

    /// Number of keys.
    fn len(&self) -> u32;

    /// True if there are no keys.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of a key; `None` if it is not expected.
    fn index_of(&self, key: &Self::Key) -> Option<u32>;

    /// The key with this number, which must be below [`Keys::len`].
    fn key(&self, index: u32) -> Self::Key;
}

/// An explicit list of keys, for protocols that cannot compute the number of a key.
#[derive(Clone, Debug, Default)]
pub struct KeyList<T> {
    keys: Vec<T>,
    numbers: HashMap<T, u32>,
}

impl<T: Clone + Eq + Hash> KeyList<T> {
    /// Makes a list of these keys, in this order; duplicates count once.
    pub fn new(keys: impl IntoIterator<Item = T>) -> KeyList<T> {
        let mut list = KeyList { keys: Vec::new(), numbers: HashMap::new() };
        for key in keys {
            let next = list.keys.len() as u32;
            if *list.numbers.entry(key.clone()).or_insert(next) == next {
                list.keys.push(key);
            }
        }
        list
    }
}

impl<T: Clone + Eq + Hash> Keys for KeyList<T> {
    type Key = T;

    fn len(&self) -> u32 {
        self.keys.len() as u32
    }

    fn index_of(&self, key: &T) -> Option<u32> {
        self.numbers.get(key).copied()
    }

    fn key(&self, index: u32) -> T {
        self.keys[index as usize].clone()
    }
}

/// State of an expectation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verification {
    /// Keys that must be present.
    pub expected: u32,
    /// Expected keys that are present.
    pub present: u32,
    /// Expected keys that are missing.
    pub missing: u32,
    /// Keys in the list that are present but must be absent.
    pub unexpected: u32,
    /// Keys that are present with wrong data.
    pub wrong: u32,
    /// Number of receptions of keys since the beginning.
    pub received: u64,
    /// Receptions of a key that was already present.
    pub repeated: u64,
    /// Number of withdrawals of keys since the beginning, including keys that a refresh left out.
    pub withdrawn: u64,
    /// Withdrawals of a key that must be present.
    pub withdrawn_in_error: u64,
    /// Time of the first reception or withdrawal since the beginning or the last change.
    pub first_at: Option<Instant>,
    /// Time of the last reception or withdrawal.
    pub last_at: Option<Instant>,
}

impl Verification {
    /// True if exactly the expected keys are present, and all of them with the right data.
    pub fn is_right(&self) -> bool {
        self.missing == 0 && self.unexpected == 0 && self.wrong == 0
    }
}

/// Keys that must be received, and the keys that are present.
#[derive(Clone, Debug)]
pub struct Expectation<K> {
    keys: K,
    /// Keys that must be present.
    wanted: Bitmap,
    present: Bitmap,
    /// Keys that are present with wrong data.
    wrong: Bitmap,
    /// Keys that a refresh has not brought again yet; `None` without a refresh.
    stale: Option<Bitmap>,
    wanted_present: u32,
    /// Time when the expectation started or was last changed.
    epoch: Instant,
    times: Option<Vec<u32>>,
    counts: Verification,
}

impl<K: Keys> Expectation<K> {
    /// Expects all keys starting at `now`. If `times` is true, the time of each key is stored.
    pub fn new(now: Instant, keys: K, times: bool) -> Expectation<K> {
        let n = keys.len();
        let mut wanted = Bitmap::new(n);
        wanted.set_all(0..n, true);
        Expectation {
            keys,
            times: times.then(|| vec![NEVER; n as usize]),
            wanted,
            present: Bitmap::new(n),
            wrong: Bitmap::new(n),
            stale: None,
            wanted_present: 0,
            epoch: now,
            counts: Verification::default(),
        }
    }

    /// The keys of the expectation.
    #[inline]
    pub fn keys(&self) -> &K {
        &self.keys
    }

    /// Expects the keys with these numbers to be present, or absent, starting at `now`. Times count from `now`.
    pub fn change(&mut self, now: Instant, numbers: Range<u32>, present: bool) {
        self.change_parts(now, std::iter::once(numbers), present);
    }

    /// Like [`Expectation::change`], for several ranges of numbers.
    pub fn change_parts(&mut self, now: Instant, parts: impl Iterator<Item = Range<u32>>, present: bool) {
        for numbers in parts {
            self.wanted.set_all(numbers.start..numbers.end.min(self.keys.len()), present);
        }
        self.wanted_present = self.wanted.common(&self.present);
        self.epoch = now;
        (self.counts.first_at, self.counts.last_at) = (None, None);
        if let Some(times) = &mut self.times {
            times.fill(NEVER);
        }
    }

    fn moved(&mut self, now: Instant, i: u32) {
        self.counts.first_at.get_or_insert(now);
        self.counts.last_at = Some(now);
        if let Some(times) = &mut self.times {
            times[i as usize] = (now.since(self.epoch).as_micros()).min(u128::from(NEVER - 1)) as u32;
        }
    }

    /// Records that key `i` was received; `wrong` if its data is wrong. Returns true if the key was absent.
    #[inline]
    pub fn received(&mut self, now: Instant, i: u32, wrong: bool) -> bool {
        self.counts.received += 1;
        if wrong || self.wrong.ones() > 0 {
            self.wrong.set(i, wrong);
        }
        self.refreshed(i);
        let new = self.present.set(i, true);
        if new {
            self.wanted_present += u32::from(self.wanted.get(i));
            self.moved(now, i);
        } else {
            self.counts.repeated += 1;
        }
        new
    }

    /// Records that key `i` was withdrawn. Returns true if the key was present.
    #[inline]
    pub fn withdrawn(&mut self, now: Instant, i: u32) -> bool {
        self.counts.withdrawn += 1;
        self.refreshed(i);
        if !self.present.set(i, false) {
            return false;
        }
        self.wrong.set(i, false);
        if self.wanted.get(i) {
            self.wanted_present -= 1;
            self.counts.withdrawn_in_error += 1;
        }
        self.moved(now, i);
        true
    }

    /// Records that all present keys were lost with the session.
    pub fn lost(&mut self, now: Instant) {
        let gone: Vec<u32> = match self.times {
            Some(_) => self.present.without(&Bitmap::new(self.keys.len())).collect(),
            None => self.present.first().into_iter().collect(),
        };
        gone.into_iter().for_each(|i| self.moved(now, i));
        self.present.clear();
        self.wrong.clear();
        self.stale = None;
        self.wanted_present = 0;
    }

    /// A refresh begins: keys that are present must be received again before it ends.
    pub fn refresh_begins(&mut self) {
        self.stale = Some(self.present.clone());
    }

    /// A refresh ends: present keys that it has not brought again are withdrawn. Returns their number.
    pub fn refresh_ends(&mut self, now: Instant) -> u32 {
        let Some(stale) = self.stale.take() else { return 0 };
        stale.numbers().filter(|i| self.withdrawn(now, *i)).count() as u32
    }

    /// Keys that a refresh has not brought again yet; `None` without a refresh.
    pub(crate) fn stale(&self) -> Option<&Bitmap> {
        self.stale.as_ref()
    }

    /// Key `i` was received or withdrawn.
    #[inline]
    fn refreshed(&mut self, i: u32) {
        if let Some(stale) = &mut self.stale {
            stale.set(i, false);
        }
    }

    /// True if exactly the expected keys are present.
    #[inline]
    pub fn is_complete(&self) -> bool {
        self.wanted_present == self.wanted.ones() && self.present.ones() == self.wanted_present
    }

    /// True if this key is present, wanted or not; false for a number that does not exist.
    pub fn is_present(&self, i: u32) -> bool {
        i < self.keys.len() && self.present.get(i)
    }

    /// Number of keys that are present, whether expected or not.
    pub fn present(&self) -> u32 {
        self.present.ones()
    }

    /// The current state.
    pub fn verification(&self) -> Verification {
        Verification {
            expected: self.wanted.ones(),
            present: self.wanted_present,
            missing: self.wanted.ones() - self.wanted_present,
            unexpected: self.present.ones() - self.wanted_present,
            wrong: self.wrong.ones(),
            ..self.counts
        }
    }

    fn of<'a>(&'a self, bits: impl Iterator<Item = u32> + 'a) -> impl Iterator<Item = K::Key> + 'a {
        bits.map(|i| self.keys.key(i))
    }

    /// Keys that must be present but are missing.
    pub fn missing(&self) -> impl Iterator<Item = K::Key> + '_ {
        self.of(self.wanted.without(&self.present))
    }

    /// Keys that are present but must be absent.
    pub fn unexpected(&self) -> impl Iterator<Item = K::Key> + '_ {
        self.of(self.present.without(&self.wanted))
    }

    /// Keys that are present with wrong data.
    pub fn wrong(&self) -> impl Iterator<Item = K::Key> + '_ {
        self.of(self.wrong.numbers())
    }

    /// Keys that were received or withdrawn at `since` or later; none if times are not stored.
    pub fn moved_since(&self, since: Instant) -> impl Iterator<Item = K::Key> + '_ {
        let since = u32::try_from(since.since(self.epoch).as_micros()).unwrap_or(NEVER);
        let times = self.times.as_deref().unwrap_or_default();
        self.of((0..).zip(times).filter(move |(_, at)| **at != NEVER && **at >= since).map(|(i, _)| i))
    }

    /// Time of the last reception or withdrawal of each key, in µs since the expectation started or was last changed;
    /// [`NEVER`] if there was none since then. `None` if times are not stored.
    pub fn times(&self) -> Option<&[u32]> {
        self.times.as_deref()
    }
}
