//! What must have been received, held against what has been: present, missing, wrong, unexpected, and when.
//!
//! An [`Expectation`] is about keys that are numbered ([`Keys`]): prefixes today, labels, FECs, LSPs or LSAs for other protocols. A key costs
//! three bits, and 4 bytes more where times are kept. Its protocol finds the number of a key, says what was received, withdrawn or
//! lost, and whether what came with the key is wrong; all counting is here.

mod bitmap;
#[cfg(test)]
mod tests;

use bitmap::Bitmap;
use drophammer_model::Instant;
use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Range;

/// Never, in a list of times.
pub const NEVER: u32 = u32::MAX;

/// The keys of an expectation, numbered from 0. Numbering must not change.
pub trait Keys {
    /// A key: a prefix, a FEC, an LSA header.
    type Key;

    /// How many there are.
    fn len(&self) -> u32;

    /// Is there none?
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of a key; `None` for one that is not expected.
    fn index_of(&self, key: &Self::Key) -> Option<u32>;

    /// The key of this number, which is below [`Keys::len`].
    fn key(&self, index: u32) -> Self::Key;
}

/// Keys one by one, for protocols that have no arithmetic for theirs.
#[derive(Clone, Debug, Default)]
pub struct KeyList<T> {
    keys: Vec<T>,
    numbers: HashMap<T, u32>,
}

impl<T: Clone + Eq + Hash> KeyList<T> {
    /// These keys, in this order; one that comes twice counts once.
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

/// How an expectation stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verification {
    /// Keys that must be there.
    pub expected: u32,
    /// Of these, those that are.
    pub present: u32,
    /// Of these, those that are not.
    pub missing: u32,
    /// Keys of the expectation that are there and must be gone.
    pub unexpected: u32,
    /// Keys that are there with something wrong about them.
    pub wrong: u32,
    /// Times that a key was received, since the beginning.
    pub received: u64,
    /// Of these, those of keys that were there already.
    pub repeated: u64,
    /// Times that a key was withdrawn, since the beginning.
    pub withdrawn: u64,
    /// Of these, those of keys that must be there.
    pub withdrawn_in_error: u64,
    /// When a key came or went for the first time since the beginning or the last change.
    pub first_at: Option<Instant>,
    /// When one did for the last time.
    pub last_at: Option<Instant>,
}

impl Verification {
    /// All there, nothing else, nothing wrong with what is there?
    pub fn is_right(&self) -> bool {
        self.missing == 0 && self.unexpected == 0 && self.wrong == 0
    }
}

/// Keys that must be received, and which of them are there.
#[derive(Clone, Debug)]
pub struct Expectation<K> {
    keys: K,
    /// Those that must be there.
    wanted: Bitmap,
    present: Bitmap,
    /// Present, and something about them is wrong.
    wrong: Bitmap,
    wanted_present: u32,
    /// Beginning of the expectation or of its last change.
    epoch: Instant,
    times: Option<Vec<u32>>,
    counts: Verification,
}

impl<K: Keys> Expectation<K> {
    /// From `now` on all keys must come. `times`: is the time of each kept?
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
            wanted_present: 0,
            epoch: now,
            counts: Verification::default(),
        }
    }

    /// What it is about.
    #[inline]
    pub fn keys(&self) -> &K {
        &self.keys
    }

    /// From `now` on the keys of these numbers must be there, or gone. Times count from `now`.
    pub fn change(&mut self, now: Instant, numbers: Range<u32>, present: bool) {
        let numbers = numbers.start..numbers.end.min(self.keys.len());
        if !numbers.is_empty() {
            self.wanted.set_all(numbers, present);
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

    /// Key `i` was received; `wrong`: with something wrong about it. Was it absent?
    #[inline]
    pub fn received(&mut self, now: Instant, i: u32, wrong: bool) -> bool {
        self.counts.received += 1;
        if wrong || self.wrong.ones() > 0 {
            self.wrong.set(i, wrong);
        }
        let new = self.present.set(i, true);
        if new {
            self.wanted_present += u32::from(self.wanted.get(i));
            self.moved(now, i);
        } else {
            self.counts.repeated += 1;
        }
        new
    }

    /// Key `i` was withdrawn. Was it present?
    #[inline]
    pub fn withdrawn(&mut self, now: Instant, i: u32) -> bool {
        self.counts.withdrawn += 1;
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

    /// All that are present are gone with the session.
    pub fn lost(&mut self, now: Instant) {
        let gone: Vec<u32> = match self.times {
            Some(_) => self.present.without(&Bitmap::new(self.keys.len())).collect(),
            None => self.present.first().into_iter().collect(),
        };
        gone.into_iter().for_each(|i| self.moved(now, i));
        self.present.clear();
        self.wrong.clear();
        self.wanted_present = 0;
    }

    /// Are all there that must be, and no others?
    #[inline]
    pub fn is_complete(&self) -> bool {
        self.wanted_present == self.wanted.ones() && self.present.ones() == self.wanted_present
    }

    /// Keys that are present, wanted or not.
    pub fn present(&self) -> u32 {
        self.present.ones()
    }

    /// How it stands.
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

    /// Keys that must be there and are not.
    pub fn missing(&self) -> impl Iterator<Item = K::Key> + '_ {
        self.of(self.wanted.without(&self.present))
    }

    /// Keys that are there and must be gone.
    pub fn unexpected(&self) -> impl Iterator<Item = K::Key> + '_ {
        self.of(self.present.without(&self.wanted))
    }

    /// Keys that are there with something wrong about them.
    pub fn wrong(&self) -> impl Iterator<Item = K::Key> + '_ {
        self.of(self.wrong.numbers())
    }

    /// Keys that came or went at `since` or later; none where times are not kept.
    pub fn moved_since(&self, since: Instant) -> impl Iterator<Item = K::Key> + '_ {
        let since = u32::try_from(since.since(self.epoch).as_micros()).unwrap_or(NEVER);
        let times = self.times.as_deref().unwrap_or_default();
        self.of((0..).zip(times).filter(move |(_, at)| **at != NEVER && **at >= since).map(|(i, _)| i))
    }

    /// When each key came or went for the last time, in µs since the expectation or its last change began; [`NEVER`]: not since
    /// then. `None` where times are not kept.
    pub fn times(&self) -> Option<&[u32]> {
        self.times.as_deref()
    }
}
