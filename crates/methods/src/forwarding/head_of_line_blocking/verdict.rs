//! Verdicts from counts: is there head-of-line blocking, and backpressure?

use crate::kit::prelude::*;
use drophammer_judge::statistics::chance_of_more;

/// Congestion caused the additional loss if its probability by chance is at most this.
const CHANCE: f64 = 0.001;
/// If more frames leave than the rate of the output port plus this share, the port did not limit them.
const EXCESS: f64 = 0.01;
/// Sources are held back if congestion lowers their load by more than this share.
const HELD_BACK: f64 = 0.01;

/// Frames to the uncongested port in one trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Uncongested {
    pub offered: u64,
    pub lost: u64,
    /// Median latency; none if nothing arrived.
    pub median_ns: Option<u64>,
}

/// Measurements from the two trials of a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Seen {
    /// Without congestion.
    pub calm: Uncongested,
    /// With congestion.
    pub loaded: Uncongested,
    /// Frames that the congested port lost.
    pub congested_lost: u64,
    /// Frames per second that arrived at the congested port.
    pub congested_pps: f64,
    /// Rate that the line of the congested port carries.
    pub line_pps: f64,
    /// Load offered to the congested port, in frames per second.
    pub offered_pps: f64,
    /// Load of each of the two sources of the block, without and with congestion, in frames per second.
    pub sources_pps: (f64, f64),
}

/// Verdict on a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// True if the output port was overloaded.
    pub congested: bool,
    /// True if congestion made the uncongested port lose more frames than chance explains.
    pub lost_more: bool,
    /// `yes: 12 frames were lost`, `no`, or `not known` and why.
    pub blocking: String,
    /// Like `blocking`, for backpressure.
    pub backpressure: String,
}

impl Verdict {
    /// Returns true if the loss to the uncongested port counts, because congestion caused it. Added delay does not
    /// prove this: the router may lose just as many frames without congestion.
    pub fn counts_loss(&self, seen: &Seen) -> bool {
        let none_without = seen.calm.lost == 0 || seen.loaded.lost == 0;
        self.congested && (self.lost_more || none_without) && !self.blocking.starts_with("not known")
    }
}

/// Judges a block. Frames are held up if they wait at least `least` longer than without congestion.
pub(super) fn judge(seen: &Seen, least: Duration) -> Verdict {
    if seen.congested_pps > seen.line_pps * (1.0 + EXCESS) {
        return not_congested(
            "not known: the port that should be congested sent more than its line carries, so it was not congested",
        );
    }
    if seen.offered_pps <= seen.line_pps {
        return not_congested("not known: the tester offered no more than the line carries");
    }
    let Seen { calm, loaded, .. } = seen;
    let lost_more = chance_of_more((loaded.lost, loaded.offered), (calm.lost, calm.offered)) < CHANCE;
    let blocking = blocking(seen, lost_more, least);
    Verdict { congested: true, lost_more, blocking, backpressure: backpressure(seen) }
}

fn not_congested(why: &str) -> Verdict {
    Verdict { congested: false, lost_more: false, blocking: why.to_owned(), backpressure: why.to_owned() }
}

fn blocking(seen: &Seen, lost_more: bool, least: Duration) -> String {
    let Seen { calm, loaded, .. } = seen;
    let delay = loaded.median_ns.zip(calm.median_ns).map(|(with, without)| with.saturating_sub(without));
    let held_up = delay.filter(|ns| u128::from(*ns) >= least.as_nanos().max(1));
    let held_up = held_up.map(|ns| format!("{:.0} µs of added delay", ns as f64 / 1e3));
    if loaded.lost == 0 {
        return held_up.map_or("no".into(), |delay| format!("yes: {delay}"));
    }
    if !lost_more {
        let lost = "not known: the router loses as many of these frames without congestion";
        return held_up.map_or(lost.into(), |delay| format!("yes: {delay}"));
    }
    let delay = held_up.map_or(String::new(), |delay| format!(", {delay}"));
    format!("yes: {} frames lost{delay}", loaded.lost)
}

fn backpressure(seen: &Seen) -> String {
    let (without, with) = seen.sources_pps;
    if seen.congested_lost > 0 {
        return "no".into();
    }
    if with < without * (1.0 - HELD_BACK) {
        return format!("yes: the sources were held back to {:.1} % of their load", with / without * 100.0);
    }
    // RFC 2889 section 5.5.4 calls this backpressure, but the tester was not held back.
    "no: no frame was lost, because buffers held them all; a longer trial would fill them".into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: Duration = Duration::from_millis(1);

    fn seen() -> Seen {
        let quiet = Uncongested { offered: 1_000, lost: 0, median_ns: Some(10_000) };
        Seen {
            calm: quiet,
            loaded: quiet,
            congested_lost: 1_000,
            congested_pps: 2_000.0,
            line_pps: 2_000.0,
            offered_pps: 3_000.0,
            sources_pps: (4_000.0, 4_000.0),
        }
    }

    fn blocking_of(loaded: Uncongested, calm_lost: u64) -> String {
        let calm = Uncongested { lost: calm_lost, ..seen().calm };
        judge(&Seen { calm, loaded, ..seen() }, LEAST).blocking
    }

    #[test]
    fn frames_that_are_lost_or_late_are_blocked() {
        assert_eq!(judge(&seen(), LEAST).blocking, "no");
        let lossy = Uncongested { lost: 300, ..seen().loaded };
        assert_eq!(blocking_of(lossy, 0), "yes: 300 frames lost");
        let late = Uncongested { median_ns: Some(1_010_000), ..seen().loaded };
        assert_eq!(blocking_of(late, 0), "yes: 1000 µs of added delay");
        assert_eq!(blocking_of(Uncongested { median_ns: Some(1_009_999), ..late }, 0), "no");
        assert_eq!(blocking_of(Uncongested { lost: 300, ..late }, 0), "yes: 300 frames lost, 1000 µs of added delay");
    }

    #[test]
    fn frames_that_are_lost_without_congestion_too_say_nothing() {
        let lossy = Uncongested { lost: 300, ..seen().loaded };
        assert_eq!(blocking_of(lossy, 290), "not known: the router loses as many of these frames without congestion");
        assert_eq!(blocking_of(lossy, 100), "yes: 300 frames lost");
        // A single frame may be chance.
        assert!(blocking_of(Uncongested { lost: 1, ..lossy }, 0).starts_with("not known"));
    }

    #[test]
    fn loss_that_is_no_more_than_without_congestion_does_not_count() {
        let counts = |lost: u64, calm_lost: u64, median_ns: u64| {
            let calm = Uncongested { lost: calm_lost, ..seen().calm };
            let loaded = Uncongested { lost, median_ns: Some(median_ns), ..seen().loaded };
            let seen = Seen { calm, loaded, ..seen() };
            judge(&seen, LEAST).counts_loss(&seen)
        };
        let late = 1_010_000;
        // Congestion causes the delay, but not the loss.
        let both = Uncongested { lost: 300, median_ns: Some(late), ..seen().loaded };
        assert_eq!(blocking_of(both, 290), "yes: 1000 µs of added delay");
        assert!(!counts(300, 290, late) && !counts(300, 290, 10_000));
        assert!(counts(300, 100, late) && counts(300, 0, 10_000) && counts(1, 0, late));
        assert!(counts(0, 0, 10_000) && counts(0, 0, late) && counts(0, 290, 10_000));
        let free = Seen { offered_pps: 2_000.0, ..seen() };
        assert!(!judge(&free, LEAST).counts_loss(&free));
    }

    #[test]
    fn backpressure_holds_the_sources_back() {
        let of = |congested_lost, with| {
            judge(&Seen { congested_lost, sources_pps: (4_000.0, with), ..seen() }, LEAST).backpressure
        };
        assert_eq!(of(1, 3_000.0), "no");
        assert_eq!(of(0, 3_000.0), "yes: the sources were held back to 75.0 % of their load");
        assert!(of(0, 3_970.0).starts_with("no: no frame was lost, because buffers"));
    }

    #[test]
    fn a_way_out_that_was_not_overloaded_shows_nothing() {
        for free in [Seen { congested_pps: 2_030.0, ..seen() }, Seen { offered_pps: 2_000.0, ..seen() }] {
            let verdict = judge(&free, LEAST);
            assert!(!verdict.congested && verdict.blocking.starts_with("not known"), "{verdict:?}");
        }
    }
}
