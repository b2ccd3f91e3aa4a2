//! Deadlines of many things, each thing with at most one.

use drophammer_model::Instant;
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

/// Deadlines by key. Setting, cancelling and taking cost the logarithm of their number.
#[derive(Clone, Debug)]
pub(crate) struct Agenda<K> {
    at: HashMap<K, Instant>,
    order: BTreeSet<(Instant, K)>,
}

impl<K> Default for Agenda<K> {
    fn default() -> Self {
        Agenda { at: HashMap::new(), order: BTreeSet::new() }
    }
}

impl<K: Copy + Ord + Hash> Agenda<K> {
    /// Sets the deadline of `key`, in place of an earlier one.
    pub fn set(&mut self, key: K, at: Instant) {
        if let Some(before) = self.at.insert(key, at) {
            self.order.remove(&(before, key));
        }
        self.order.insert((at, key));
    }

    /// Removes the deadline of `key`. True if it had one.
    pub fn cancel(&mut self, key: &K) -> bool {
        let before = self.at.remove(key);
        before.is_some_and(|at| self.order.remove(&(at, *key)))
    }

    /// The deadline of `key`.
    pub fn get(&self, key: &K) -> Option<Instant> {
        self.at.get(key).copied()
    }

    /// The first deadline.
    pub fn next(&self) -> Option<Instant> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Takes the first key whose deadline is `now` or earlier.
    pub fn take_due(&mut self, now: Instant) -> Option<K> {
        let (at, key) = *self.order.first()?;
        if at > now {
            return None;
        }
        self.order.pop_first();
        self.at.remove(&key);
        Some(key)
    }

    /// Number of deadlines.
    pub fn len(&self) -> usize {
        self.at.len()
    }

    /// Removes all deadlines.
    pub fn clear(&mut self) {
        self.at.clear();
        self.order.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_one_deadline_and_the_first_is_taken_first() {
        let mut agenda = Agenda::default();
        agenda.set('a', Instant(5));
        agenda.set('b', Instant(3));
        agenda.set('c', Instant(4));
        agenda.set('b', Instant(9));
        assert_eq!((agenda.next(), agenda.get(&'b'), agenda.len()), (Some(Instant(4)), Some(Instant(9)), 3));
        assert!(agenda.cancel(&'a') && !agenda.cancel(&'a'));
        assert_eq!((agenda.take_due(Instant(3)), agenda.take_due(Instant(20))), (None, Some('c')));
        assert_eq!((agenda.take_due(Instant(20)), agenda.take_due(Instant(20))), (Some('b'), None));
        assert_eq!((agenda.len(), agenda.next()), (0, None));
    }
}
