//! Why frames were lost: what else happened when they were.

use crate::trial::{Held, Load, LossEpisode, TrialResult, TrialSpec};

/// The cause of an episode, as far as the timelines of load, tester, host and events show it. Each is a coincidence in time, no proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// More was offered than the DUT forwards.
    Overload,
    /// The tester's loop did not run, so that frames left in a burst behind the gap or waited in its receive path.
    Tester,
    /// The DUT's processor did not run the DUT.
    Host,
    /// The test changed routes or links just before.
    Event,
    /// None of these: it is the DUT's.
    Unexplained,
}

impl Cause {
    /// All, in the order in which they are looked for.
    pub const ALL: [Cause; 5] = [Cause::Event, Cause::Overload, Cause::Host, Cause::Tester, Cause::Unexplained];

    /// Its name in JSON.
    pub fn key(self) -> &'static str {
        match self {
            Cause::Overload => "overload",
            Cause::Tester => "tester",
            Cause::Host => "host",
            Cause::Event => "event",
            Cause::Unexplained => "unexplained",
        }
    }
}

/// Shares of lost frames from which on a trial is one of overload, where it lost frames most of the time.
const OVERLOADED: f64 = 0.01;
/// The loss of an overload lasts for so much of the time of load.
const THROUGHOUT: f64 = 0.5;
/// A queue that filled while something was held up loses frames for so long behind it, in ns.
const AFTER_HELD_NS: i64 = 5_000_000;
/// Clocks of loop and sentinel are read so much apart, in ns.
const BEFORE_HELD_NS: i64 = 1_000_000;
/// Loss begins at most so long after the event that caused it, in ns, and as long before it is done.
const AFTER_EVENT_NS: i64 = 50_000_000;

/// The cause of each episode of a trial, in their order. `known_pps` is the highest load per sending port, of trials with the same frames,
/// that this DUT has forwarded without loss; what is lost at no more than this load is no overload.
pub fn causes(spec: &TrialSpec, result: &TrialResult, known_pps: Option<f64>) -> Vec<Cause> {
    let overload = Overload::new(spec, result, known_pps);
    result.losses.episodes.iter().map(|episode| cause(result, episode, &overload)).collect()
}

fn cause(result: &TrialResult, episode: &LossEpisode, overload: &Overload) -> Cause {
    let from_ns = i64::try_from(episode.from_ns).unwrap_or(i64::MAX);
    let to_ns = i64::try_from(episode.to_ns).unwrap_or(i64::MAX);
    let ns = |s: f64| (s * 1e9) as i64;
    let by_event = result.events.iter().any(|event| {
        let (at_ns, done_ns) = (ns(event.at_s), ns(event.at_s + event.took_s));
        from_ns >= at_ns - BEFORE_HELD_NS && from_ns <= done_ns + AFTER_EVENT_NS
    });
    let by = |held: &[Held]| {
        held.iter().any(|held| to_ns >= held.from_ns - BEFORE_HELD_NS && from_ns <= held.to_ns() + AFTER_HELD_NS)
    };
    if by_event {
        Cause::Event
    } else if overload.holds(from_ns, to_ns) {
        Cause::Overload
    } else if result.health.dut_processor.as_ref().is_some_and(|processor| by(&processor.stall_times)) {
        Cause::Host
    } else if by(&result.health.gap_times) {
        Cause::Tester
    } else {
        Cause::Unexplained
    }
}

/// When a trial offered more than the DUT forwards.
struct Overload(Vec<(i64, i64)>);

impl Overload {
    fn new(spec: &TrialSpec, result: &TrialResult, known_pps: Option<f64>) -> Overload {
        let above = |pps: f64| known_pps.is_none_or(|known| pps > known * (1.0 + 1e-6));
        let all = (0, i64::MAX);
        Overload(match &spec.load {
            // What is lost of a burst is what a buffer does not hold.
            Load::Maximum { .. } | Load::Burst { .. } => vec![all],
            Load::Steps { steps } => {
                // Those above the lowest that stands in the spec: recovery is judged behind them.
                let least = steps.iter().map(|step| step.rate_pps).fold(f64::INFINITY, f64::min);
                let mut at_s = 0.0;
                let mut times = Vec::new();
                for step in steps {
                    let end_s = at_s + step.duration_s;
                    let high = if known_pps.is_some() { above(step.rate_pps) } else { step.rate_pps > least };
                    if high {
                        times.push(((at_s * 1e9) as i64, (end_s * 1e9) as i64));
                    }
                    at_s = end_s;
                }
                times
            }
            Load::Constant { .. } | Load::Flows => {
                let load_ns = (result.sending_s * 1e9).max(1.0);
                let lossy_ns: u64 =
                    result.losses.episodes.iter().map(|e| e.to_ns - e.from_ns.min(e.to_ns)).sum();
                let throughout =
                    lossy_ns as f64 / load_ns >= THROUGHOUT && result.loss_ratio() >= OVERLOADED;
                let higher = match &spec.load {
                    Load::Constant { rate_pps } => above(*rate_pps),
                    _ => true,
                };
                if throughout && higher { vec![all] } else { vec![] }
            }
        })
    }

    /// Does an episode begin within such a time, or go on from it?
    fn holds(&self, from_ns: i64, to_ns: i64) -> bool {
        self.0.iter().any(|(start, end)| to_ns >= *start && from_ns <= end.saturating_add(AFTER_HELD_NS))
    }
}
