//! Labels that a peer has advertised, all of them retained (liberal retention, RFC 5036 section 2.6.2.2).

use super::fecs::FecRange;
use crate::expectation::{Expectation, Keys, Verification};
use drophammer_model::Instant;
use drophammer_model::routes::Prefix;
use drophammer_wire::ldp::Label;
use std::collections::HashMap;

/// Maximum number of labels that are held for FECs that were not expected; more mappings are only counted.
pub const MOST_OTHERS: usize = 1000;
/// Means "no label" in a list of labels.
const NONE: u32 = u32::MAX;

/// Expected FECs and their labels.
#[derive(Clone, Debug)]
struct Expected {
    expectation: Expectation<FecRange>,
    /// By number of the FEC; empty until the first mapping.
    labels: Vec<u32>,
}

/// Labels that a peer has advertised.
#[derive(Clone, Debug)]
pub struct Bindings {
    expected: Vec<Expected>,
    others: HashMap<Prefix, Label>,
    not_held: u64,
    first_at: Option<Instant>,
    last_at: Option<Instant>,
}

impl Bindings {
    /// Expects labels for these FECs from `now` on.
    pub fn new(now: Instant, expected: &[FecRange]) -> Bindings {
        let expect =
            |fecs: &FecRange| Expected { expectation: Expectation::new(now, fecs.clone(), false), labels: Vec::new() };
        Bindings {
            expected: expected.iter().map(expect).collect(),
            others: HashMap::new(),
            not_held: 0,
            first_at: None,
            last_at: None,
        }
    }

    /// Handles a mapping. Returns the label that it replaces, if the two differ.
    pub fn mapped(&mut self, now: Instant, prefix: Prefix, label: Label) -> Option<Label> {
        self.first_at.get_or_insert(now);
        self.last_at = Some(now);
        if let Some((expected, index)) = self.find(&prefix) {
            if expected.labels.is_empty() {
                expected.labels = vec![NONE; expected.expectation.keys().len() as usize];
            }
            expected.expectation.received(now, index, false);
            let before = std::mem::replace(&mut expected.labels[index as usize], label.value());
            return Label::new(before).filter(|before| *before != label);
        }
        if self.others.len() >= MOST_OTHERS && !self.others.contains_key(&prefix) {
            self.not_held += 1;
            return None;
        }
        self.others.insert(prefix, label).filter(|before| *before != label)
    }

    /// Removes the label of a FEC that was withdrawn or is released: `label`, or any. True if the label was held. A [`Verification`]
    /// counts both as withdrawn.
    pub fn removed(&mut self, now: Instant, prefix: Prefix, label: Option<Label>) -> bool {
        let held = self.label_for(&prefix);
        if held.is_none_or(|held| label.is_some_and(|label| label != held)) {
            return false;
        }
        match self.find(&prefix) {
            Some((expected, index)) => {
                expected.labels[index as usize] = NONE;
                expected.expectation.withdrawn(now, index)
            }
            None => self.others.remove(&prefix).is_some(),
        }
    }

    /// Removes the labels of all FECs, or only `label`; only for FECs of one family if `ipv4` selects one.
    pub fn all_removed(&mut self, now: Instant, label: Option<Label>, ipv4: Option<bool>) {
        let family = |prefix: &Prefix| ipv4.is_none_or(|ipv4| prefix.address().is_ipv4() == ipv4);
        for Expected { expectation, labels } in &mut self.expected {
            // Skip ranges without labels, because a peer may repeat this message any number of times.
            if family(&expectation.keys().first) && expectation.present() > 0 {
                for (index, held) in (0..).zip(labels.iter_mut()) {
                    if *held != NONE && label.is_none_or(|label| label.value() == *held) {
                        *held = NONE;
                        expectation.withdrawn(now, index);
                    }
                }
            }
        }
        self.others.retain(|prefix, held| !family(prefix) || label.is_some_and(|label| label != *held));
    }

    /// Removes all labels, because the session has ended.
    pub fn lost(&mut self, now: Instant) {
        for expected in &mut self.expected {
            expected.expectation.lost(now);
            expected.labels = Vec::new();
        }
        self.others.clear();
    }

    fn find(&mut self, prefix: &Prefix) -> Option<(&mut Expected, u32)> {
        self.expected.iter_mut().find_map(|expected| {
            let index = expected.expectation.keys().index_of(prefix)?;
            Some((expected, index))
        })
    }

    /// The peer's label for a FEC.
    pub fn label_for(&self, prefix: &Prefix) -> Option<Label> {
        let expected = self.expected.iter().find_map(|expected| {
            let index = expected.expectation.keys().index_of(prefix)?;
            Some(expected.labels.get(index as usize).copied().and_then(Label::new))
        });
        expected.unwrap_or_else(|| self.others.get(prefix).copied())
    }

    /// A FEC with this label; several FECs may have it. Searches all labels.
    pub fn fec_of_label(&self, label: Label) -> Option<Prefix> {
        let expected = self.expected.iter().find_map(|Expected { expectation, labels }| {
            let index = labels.iter().position(|held| *held == label.value())?;
            Some(expectation.keys().prefix(index as u32))
        });
        expected.or_else(|| self.others.iter().find(|(_, held)| **held == label).map(|(prefix, _)| *prefix))
    }

    /// The label of a FEC of an expected range.
    pub fn expected_label(&self, range: usize, index: u32) -> Option<Label> {
        self.expected.get(range)?.labels.get(index as usize).copied().and_then(Label::new)
    }

    /// FECs of an expected range: which have labels, and when the labels arrived.
    pub fn verification(&self, range: usize) -> Option<Verification> {
        Some(self.expected.get(range)?.expectation.verification())
    }

    /// FECs of an expected range without a label.
    pub fn missing(&self, range: usize) -> impl Iterator<Item = Prefix> + '_ {
        self.expected.get(range).into_iter().flat_map(|expected| expected.expectation.missing())
    }

    /// Number of FECs with a label.
    pub fn len(&self) -> usize {
        self.expected.iter().map(|expected| expected.expectation.present() as usize).sum::<usize>() + self.others.len()
    }

    /// True if no FEC has a label.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// FECs that were not expected, with their labels; at most [`MOST_OTHERS`].
    pub fn others(&self) -> impl ExactSizeIterator<Item = (Prefix, Label)> + '_ {
        self.others.iter().map(|(prefix, label)| (*prefix, *label))
    }

    /// Number of mappings whose labels are not held, because there are too many.
    pub fn not_held(&self) -> u64 {
        self.not_held
    }

    /// When the first and the last mapping arrived.
    pub fn arrivals(&self) -> Option<(Instant, Instant)> {
        self.first_at.zip(self.last_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    fn label(value: u32) -> Label {
        Label::new(value).unwrap()
    }

    fn bindings() -> Bindings {
        Bindings::new(
            Instant(0),
            &[FecRange::new(prefix("10.0.0.0/24"), 100), FecRange::new(prefix("2001:db8::/48"), 5)],
        )
    }

    #[test]
    fn labels_come_change_and_go() {
        let mut held = bindings();
        let (a, b, other) = (prefix("10.0.7.0/24"), prefix("2001:db8:4::/48"), prefix("192.0.2.0/24"));
        for (at, fec, value) in [(5, a, 100), (6, b, 101), (7, other, 102)] {
            assert_eq!(held.mapped(Instant(at), fec, label(value)), None);
        }
        assert_eq!(held.mapped(Instant(8), a, label(100)), None, "the same again");
        assert_eq!(held.mapped(Instant(9), a, label(200)), Some(label(100)));
        assert_eq!(held.mapped(Instant(9), other, label(202)), Some(label(102)));
        assert_eq!([a, b, other].map(|fec| held.label_for(&fec)), [200, 101, 202].map(Label::new));
        assert_eq!(
            [200, 101, 202, 100].map(|value| held.fec_of_label(label(value))),
            [Some(a), Some(b), Some(other), None]
        );
        assert_eq!((held.len(), held.arrivals()), (3, Some((Instant(5), Instant(9)))));
        assert_eq!(
            (held.expected_label(0, 7), held.expected_label(0, 8), held.expected_label(9, 0)),
            (Some(label(200)), None, None)
        );
        let seen = held.verification(0).unwrap();
        assert_eq!((seen.present, seen.missing, seen.received, seen.repeated), (1, 99, 3, 2));
        assert_eq!((held.missing(1).count(), held.others().next()), (4, Some((other, label(202)))));

        assert!(!held.removed(Instant(10), a, Some(label(100))), "an old label");
        assert!(held.removed(Instant(10), a, Some(label(200))) && !held.removed(Instant(10), a, None));
        assert!(held.removed(Instant(10), other, None) && held.label_for(&other).is_none());
        held.lost(Instant(11));
        assert!(held.is_empty() && held.label_for(&b).is_none() && held.fec_of_label(label(101)).is_none());
    }

    #[test]
    fn wildcards() {
        let fecs = ["10.0.7.0/24", "2001:db8:4::/48", "192.0.2.0/24", "10.0.8.0/24"].map(prefix);
        let full = || {
            let mut held = bindings();
            (100..).zip(fecs).for_each(|(value, fec)| _ = held.mapped(Instant(1), fec, label(value)));
            held
        };
        for (only, ipv4, left) in [
            (None, None, vec![]),
            (None, Some(true), vec![1]),
            (None, Some(false), vec![0, 2, 3]),
            (Some(100), None, vec![1, 2, 3]),
            (Some(102), Some(true), vec![0, 1, 3]),
        ] {
            let mut held = full();
            held.all_removed(Instant(2), only.map(label), ipv4);
            let has: Vec<_> = (0..4).filter(|i| held.label_for(&fecs[*i]).is_some()).collect();
            assert_eq!((&has, held.len()), (&left, left.len()), "{only:?} {ipv4:?}");
        }
    }

    #[test]
    fn a_flood_is_counted() {
        let mut held = bindings();
        let flood = FecRange::new(prefix("172.16.0.0/32"), 100_000);
        (0..flood.count).for_each(|i| _ = held.mapped(Instant(1), flood.prefix(i), label(16 + i)));
        assert_eq!((held.others().len(), held.len(), held.not_held()), (1000, 1000, 99_000));
        assert_eq!(held.mapped(Instant(1), flood.prefix(0), label(17)), Some(label(16)), "held ones still change");
    }
}
