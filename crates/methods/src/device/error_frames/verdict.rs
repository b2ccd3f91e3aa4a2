//! The result of the wrong frames of one kind, and whether it conforms to the RFCs.

use super::kinds::{Action, Answer, Kind};
use drophammer_judge::statistics::chance_of_more;
use drophammer_model::beside::{Alteration, ExtraFate, IcmpError};
use std::collections::{BTreeMap, BTreeSet};

/// Result of the frames of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub sent: u64,
    /// Sent frames that came back at some port.
    pub forwarded: u64,
    /// Forwarded frames with changes that forwarding does not explain.
    pub altered: u64,
    pub alterations: BTreeSet<Alteration>,
    /// Extra copies of frames that arrived.
    pub copies: u64,
    /// ICMP errors about the frames.
    pub errors: BTreeMap<IcmpError, u64>,
    /// Additional ICMP errors about a frame that already had one.
    pub repeated: u64,
}

impl Tally {
    pub(super) fn of(fates: &[ExtraFate]) -> Tally {
        let mut tally = Tally::default();
        for fate in fates {
            tally.sent += u64::from(fate.sent);
            tally.forwarded += u64::from(fate.arrived > 0);
            tally.copies += u64::from(fate.arrived.saturating_sub(1));
            tally.altered += u64::from(!fate.altered.is_empty());
            tally.alterations.extend(&fate.altered);
            fate.errors.iter().for_each(|(error, n)| *tally.errors.entry(*error).or_default() += u64::from(*n));
            tally.repeated += fate.answers().saturating_sub(1);
        }
        tally
    }

    pub(super) fn dropped(&self) -> u64 {
        self.sent.saturating_sub(self.forwarded)
    }

    pub(super) fn answers(&self) -> u64 {
        self.errors.values().sum()
    }

    /// The answers as text: `20 time exceeded (11/0)`.
    pub(super) fn answers_text(&self) -> Option<String> {
        let one = |(error, n): (&IcmpError, &u64)| format!("{n} {error}");
        let all: Vec<String> = self.errors.iter().map(one).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }

    pub(super) fn alterations_text(&self) -> Option<String> {
        let all: Vec<String> = self.alterations.iter().map(ToString::to_string).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }

    /// Violations by a router that handled `kind`; empty if it behaved correctly.
    pub(super) fn faults(&self, kind: &Kind) -> Vec<String> {
        let mut faults = Vec::new();
        match kind.expected {
            Action::Forward => {
                if self.dropped() > 0 {
                    faults.push(format!("dropped {} of {}", self.dropped(), self.sent));
                }
                if self.altered > 0 {
                    let how = self.alterations_text().unwrap_or_default();
                    faults.push(format!("altered {} of {} ({how})", self.altered, self.sent));
                }
            }
            Action::Drop(_) if self.forwarded > 0 => {
                faults.push(format!("forwarded {} of {}", self.forwarded, self.sent));
            }
            Action::Drop(_) => {}
        }
        if self.copies > 0 {
            faults.push(format!("forwarded {} twice or more", self.copies));
        }
        for (error, n) in self.errors.iter().filter(|(error, _)| !kind.allows(error)) {
            faults.push(format!("answered {n} times with {error}"));
        }
        if self.repeated > 0 {
            faults.push(format!("{} ICMP errors too many", self.repeated));
        }
        // A forwarded frame gets no answer; its forwarding is already reported.
        if let Action::Drop(Answer::Must(kind, code)) = kind.expected
            && self.dropped() > 0
            && !self.errors.keys().any(|error| (error.kind, error.code) == (kind, code))
        {
            faults.push(format!("no ICMP {kind}/{code}"));
        }
        faults
    }

    /// Returns true if a kind that requires answers got some, but fewer than there were dropped frames.
    pub(super) fn limited(&self, kind: &Kind) -> bool {
        matches!(kind.expected, Action::Drop(Answer::Must(..))) && (1..self.dropped()).contains(&self.answers())
    }
}

/// The wrong frames caused the additional loss of good frames if its probability by chance is at most this.
const CHANCE: f64 = 0.001;

/// Returns true if a router lost more good frames among wrong ones than chance explains: a router that occasionally
/// loses a frame at any load loses more in about half of such trials. Each argument is `(lost, offered)`.
pub(super) fn loses_more(beside: (u64, u64), alone: (u64, u64)) -> bool {
    chance_of_more(beside, alone) < CHANCE
}

/// Suffixes of traffic counters, which also grow with the answers to wrong frames.
const TRAFFIC: [&str; 6] = ["_packets", "_bytes", "OutRequests", "OutMsgs", "icmp_errors", "icmp_repeated"];

/// Counters of the DUT that probably count the `dropped` frames, the closest first. They grew by at least half and at
/// most twice that number, do not grow with good frames alone, and are not traffic counters. One trial cannot prove it:
/// something else may have moved the counter at the same time.
pub(super) fn counters(
    grown: &BTreeMap<String, u64>,
    by_good_frames: &BTreeMap<String, u64>,
    dropped: u64,
) -> Vec<(String, u64)> {
    let speaks = |(name, by): &(&String, &u64)| {
        let of_traffic = by_good_frames.contains_key(*name) || TRAFFIC.iter().any(|end| name.ends_with(end));
        dropped > 0 && !of_traffic && 2 * **by >= dropped && **by <= 2 * dropped
    };
    let mut found: Vec<_> = grown.iter().filter(speaks).map(|(name, by)| (name.clone(), *by)).collect();
    found.sort_by_key(|(_, by)| by.abs_diff(dropped));
    found
}

#[cfg(test)]
mod tests {
    use super::super::kinds::KINDS;
    use super::*;
    use drophammer_model::trial::Family;

    fn kind(name: &str) -> &'static Kind {
        KINDS.iter().find(|kind| kind.name == name).unwrap()
    }

    fn fate(arrived: u32, errors: &[(u8, u8, u32)]) -> ExtraFate {
        let error =
            |(kind, code, n): &(u8, u8, u32)| (IcmpError { family: Family::Ipv4, kind: *kind, code: *code }, *n);
        ExtraFate { sent: true, arrived, altered: BTreeSet::new(), errors: errors.iter().map(error).collect() }
    }

    fn faults(name: &str, fates: &[ExtraFate]) -> Vec<String> {
        Tally::of(fates).faults(kind(name))
    }

    #[test]
    fn what_a_router_must_do_has_no_fault() {
        assert!(faults("header checksum", &[fate(0, &[]), fate(0, &[])]).is_empty());
        assert!(faults("TTL 1", &[fate(0, &[(11, 0, 1)]), fate(0, &[(11, 0, 1)])]).is_empty());
        // A rate limit.
        let limited = [fate(0, &[(11, 0, 1)]), fate(0, &[])];
        assert!(faults("TTL 1", &limited).is_empty() && Tally::of(&limited).limited(kind("TTL 1")));
        for answer in [&[][..], &[(12, 0, 1)]] {
            assert!(faults("total length beyond the frame", &[fate(0, answer)]).is_empty());
        }
        assert!(faults("unknown header in transit", &[fate(1, &[])]).is_empty());
    }

    #[test]
    fn what_it_must_not_do_is_named() {
        let cases: [(&str, Vec<ExtraFate>, &str); 9] = [
            ("header checksum", vec![fate(1, &[]), fate(0, &[])], "forwarded 1 of 2"),
            ("header checksum", vec![fate(0, &[(12, 0, 1)])], "answered 1 times with parameter problem (12/0)"),
            ("TTL 1", vec![fate(0, &[]), fate(0, &[])], "no ICMP 11/0"),
            ("TTL 1", vec![fate(0, &[(11, 0, 1)]), fate(0, &[(11, 0, 2)])], "1 ICMP errors too many"),
            ("TTL 1", vec![fate(0, &[(3, 1, 1)])], "answered 1 times with destination unreachable (3/1); no ICMP 11/0"),
            // A wrong code.
            ("TTL 1", vec![fate(0, &[(11, 1, 1)])], "answered 1 times with time exceeded (11/1); no ICMP 11/0"),
            ("TTL 0", vec![fate(2, &[])], "forwarded 1 of 1; forwarded 1 twice or more"),
            ("unknown header in transit", vec![fate(0, &[]), fate(1, &[])], "dropped 1 of 2"),
            (
                "unknown header in transit",
                vec![ExtraFate { altered: BTreeSet::from([Alteration::Cut]), ..fate(1, &[]) }],
                "altered 1 of 1 (cut short)",
            ),
        ];
        for (name, fates, expected) in cases {
            assert_eq!(faults(name, &fates).join("; "), expected, "{name}");
        }
        // ICMP of the other IP version is not an answer.
        let v4 = IcmpError { family: Family::Ipv4, kind: 3, code: 0 };
        assert!(
            !kind("hop limit 1").allows(&v4) && kind("hop limit 1").allows(&IcmpError { family: Family::Ipv6, ..v4 })
        );
    }

    #[test]
    fn a_router_that_loses_a_frame_now_and_then_is_not_blamed_for_chance() {
        let lost = |beside, alone| loses_more((beside, 30_000), (alone, 30_000));
        assert!(!lost(0, 0) && !lost(5, 3) && !lost(3, 5) && !lost(9, 0));
        assert!(lost(10, 0) && lost(30, 3));
        // The same rate, with ten times the frames.
        assert!(!loses_more((30, 30_000), (3, 3_000)));
    }

    #[test]
    fn the_counters_that_speak_of_drops_are_those_that_good_frames_do_not_move() {
        let grown = |list: &[(&str, u64)]| list.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
        let seen = grown(&[
            ("in", 1_020),
            ("errors", 20),
            ("arp", 2),
            ("bytes", 128_000),
            ("all errors", 21),
            ("d0.tx_packets", 20),
        ]);
        let found = counters(&seen, &grown(&[("in", 1_000)]), 20);
        assert_eq!(found, [("errors".to_owned(), 20), ("all errors".to_owned(), 21)]);
        assert!(counters(&seen, &grown(&[]), 0).is_empty());
    }
}
