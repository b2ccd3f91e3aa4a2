//! Infers why frames were lost from other events at the same time.

use drophammer_model::trial::{Held, Load, LossEpisode, TrialResult, TrialSpec, total};
use std::collections::BTreeMap;

/// The likely cause of an episode, from the timelines of load, tester, host and events. A cause is only a coincidence
/// in time, not a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// The offered load exceeded what the DUT forwards.
    Overload,
    /// The tester's loop paused, so frames left in a burst after the gap, or were delayed in the receive path.
    Tester,
    /// The DUT's processor stalled or ran something else.
    Host,
    /// The test changed routes or links just before.
    Event,
    /// The test had not advertised the routes yet, or had withdrawn them.
    NoRoute,
    /// None of the above: the DUT is the cause.
    Unexplained,
}

impl Cause {
    /// All causes, in the order in which [`causes`] checks them.
    pub const ALL: [Cause; 6] =
        [Cause::NoRoute, Cause::Event, Cause::Overload, Cause::Host, Cause::Tester, Cause::Unexplained];

    fn words(self) -> [&'static str; 3] {
        match self {
            Cause::Overload => ["overload", "overload", "of overload"],
            Cause::Tester => ["tester", "gap of the tester", "near a gap of the tester"],
            Cause::Host => ["host", "stall of the DUT's processor", "near a stall of the DUT's processor"],
            Cause::Event => ["event", "event of the test", "after an event of the test"],
            Cause::NoRoute => ["no_route", "no route advertised", "while the test advertised no route"],
            Cause::Unexplained => ["unexplained"; 3],
        }
    }

    /// The name of the cause in JSON.
    pub fn key(self) -> &'static str {
        self.words()[0]
    }

    /// The name of the cause in a legend.
    pub fn name(self) -> &'static str {
        self.words()[1]
    }
}

/// If the load that the DUT forwards is not known, a trial counts as overloaded if it loses at least this share of its
/// frames, and loses them most of the time.
const OVERLOADED: f64 = 0.01;
/// Loss by overload lasts at least this share of the sending time.
const THROUGHOUT: f64 = 0.5;
/// A queue that filled during a stall can lose frames for this long after the stall, in ns.
const AFTER_HELD_NS: i64 = 5_000_000;
/// Tolerance before a gap of the loop, or before an event, in ns. Loss cannot precede its cause, but the tester reads
/// the clock for the two one after the other.
const BEFORE_HELD_NS: i64 = 1_000_000;
/// Wake-up interval of the sentinel, in ns. A stall may have begun this long before the sentinel noticed it.
const BEFORE_STALL_NS: i64 = 5_000_000;
/// Loss begins at most this long after the end of the event that caused it, in ns.
const AFTER_EVENT_NS: i64 = 50_000_000;

/// Returns the cause of each episode of a trial, in order. `known_pps` is the highest load per sending port that this
/// DUT forwarded without loss in trials with the same frames. Loss at or below this load is not overload.
pub fn causes(spec: &TrialSpec, result: &TrialResult, known_pps: Option<f64>) -> Vec<Cause> {
    let overload = Overload::new(spec, result, known_pps);
    let unrouted = unrouted(spec);
    let of = |episode: &LossEpisode| {
        let begins = i64::try_from(episode.from_ns).unwrap_or(i64::MAX);
        match unrouted.iter().any(|(from, to)| begins >= *from && begins < *to) {
            true => Cause::NoRoute,
            false => cause(result, episode, &overload),
        }
    };
    result.losses.episodes.iter().map(of).collect()
}

/// Periods of the trial, in ns, in which the test advertised no route to any destination.
fn unrouted(spec: &TrialSpec) -> Vec<(i64, i64)> {
    let mut periods = Vec::new();
    // If the first change advertises routes, there were none before it; if it withdraws routes, there were some.
    let first = spec.events.iter().find_map(|event| event.routed);
    let mut since = (first == Some(true)).then_some(0);
    for event in &spec.events {
        let at = (event.at_s * 1e9) as i64;
        match event.routed {
            Some(true) => periods.extend(since.take().map(|from| (from, at))),
            Some(false) => since = since.or(Some(at)),
            None => {}
        }
    }
    periods.extend(since.map(|from| (from, i64::MAX)));
    periods
}

fn cause(result: &TrialResult, episode: &LossEpisode, overload: &Overload) -> Cause {
    let from_ns = i64::try_from(episode.from_ns).unwrap_or(i64::MAX);
    let to_ns = i64::try_from(episode.to_ns).unwrap_or(i64::MAX);
    let ns = |s: f64| (s * 1e9) as i64;
    let by_event = result.events.iter().any(|event| {
        let (at_ns, done_ns) = (ns(event.at_s), ns(event.at_s + event.took_s));
        from_ns >= at_ns - BEFORE_HELD_NS && from_ns <= done_ns + AFTER_EVENT_NS
    });
    let by = |held: &[Held], before_ns: i64| {
        let near = |held: &Held| {
            to_ns >= held.from_ns.saturating_sub(before_ns) && from_ns <= held.to_ns().saturating_add(AFTER_HELD_NS)
        };
        held.iter().any(near)
    };
    if by_event {
        Cause::Event
    } else if overload.holds(from_ns, to_ns) {
        Cause::Overload
    } else if result.health.dut_processor.as_ref().is_some_and(|processor| by(&processor.stall_times, BEFORE_STALL_NS))
    {
        Cause::Host
    } else if by(&result.health.gap_times, BEFORE_HELD_NS) {
        Cause::Tester
    } else {
        Cause::Unexplained
    }
}

/// Periods in which a trial offered more than the DUT forwards.
struct Overload(Vec<(i64, i64)>);

impl Overload {
    fn new(spec: &TrialSpec, result: &TrialResult, known_pps: Option<f64>) -> Overload {
        let above = |pps: f64| known_pps.is_none_or(|known| pps > known * (1.0 + 1e-6));
        let all = (0, i64::MAX);
        Overload(match &spec.load {
            // A burst loses the frames that do not fit into a buffer.
            Load::Maximum { .. } | Load::Burst { .. } => vec![all],
            Load::Steps { steps } => {
                // Without a known load, takes the steps above the lowest one, because recovery is measured after them.
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
                let lossy_ns = total(result.losses.episodes.iter().map(|e| e.to_ns - e.from_ns.min(e.to_ns)));
                let lossy = known_pps.is_some() || result.loss_ratio() >= OVERLOADED;
                let throughout = lossy_ns as f64 / load_ns >= THROUGHOUT && lossy;
                let higher = match &spec.load {
                    Load::Constant { rate_pps } => above(*rate_pps),
                    _ => true,
                };
                if throughout && higher { vec![all] } else { vec![] }
            }
        })
    }

    /// True if the episode overlaps a period of overload.
    fn holds(&self, from_ns: i64, to_ns: i64) -> bool {
        self.0.iter().any(|(start, end)| to_ns >= *start && from_ns <= *end)
    }
}

/// Number of trials that lost frames without overload, and the causes of their episodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LossSummary {
    /// Valid trials with traffic.
    pub trials: usize,
    /// Trials that lost frames for a cause other than overload.
    pub lossy: usize,
    /// Episodes by cause, without overload, in the order of [`Cause`].
    pub episodes: BTreeMap<Cause, usize>,
}

impl LossSummary {
    /// Adds a trial whose episodes have these causes.
    pub fn add(&mut self, causes: &[Cause]) {
        self.trials += 1;
        let other = || causes.iter().filter(|cause| **cause != Cause::Overload);
        self.lossy += usize::from(other().next().is_some());
        other().for_each(|cause| *self.episodes.entry(*cause).or_default() += 1);
    }

    /// Returns `3 of 41 trials lost frames without overload, in 5 episodes: 4 near a stall of the DUT's processor, 1
    /// unexplained`; `None` if no trial did.
    pub fn text(&self) -> Option<String> {
        let (lossy, trials, all) = (self.lossy, self.trials, self.episodes.values().sum::<usize>());
        let each: Vec<_> = self.episodes.iter().map(|(cause, n)| format!("{n} {}", cause.words()[2])).collect();
        let s = if all == 1 { "" } else { "s" };
        let text = format!("{lossy} of {trials} trials lost frames without overload, in {all} episode{s}: ");
        (lossy > 0).then(|| text + &each.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::trial::{EventRecord, LoadStep, Losses, ProcessorRecord, TimedEvent};

    const MS: u64 = 1_000_000;

    fn trial(load: Load, episodes: &[(u64, u64, u64)]) -> (TrialSpec, TrialResult) {
        let episode = |(from, to, lost): &(u64, u64, u64)| LossEpisode {
            from_ns: from * MS,
            to_ns: to * MS,
            lost: *lost,
            flows: 1,
            groups: vec![0],
        };
        let losses = Losses { within_ns: 2 * MS, episodes: episodes.iter().map(episode).collect() };
        let made = crate::made::trial(1, load, 1.0, 10_000, losses.lost());
        (made.spec, TrialResult { losses, ..made.result })
    }

    fn constant(episodes: &[(u64, u64, u64)]) -> (TrialSpec, TrialResult) {
        trial(Load::Constant { rate_pps: 10_000.0 }, episodes)
    }

    #[test]
    fn loss_throughout_is_overload_unless_the_dut_forwards_as_much() {
        let (spec, result) = constant(&[(0, 300, 1_000), (400, 999, 2_000)]);
        assert_eq!(causes(&spec, &result, None), [Cause::Overload; 2]);
        assert_eq!(causes(&spec, &result, Some(9_000.0)), [Cause::Overload; 2]);
        assert_eq!(causes(&spec, &result, Some(10_000.0)), [Cause::Unexplained; 2]);
        // Neither occasional single frames nor a long outage of one flow in a thousand is overload.
        let (spec, result) = constant(&[(0, 999, 9)]);
        assert_eq!(causes(&spec, &result, None), [Cause::Unexplained]);
        let (spec, result) = trial(Load::Maximum { limit_pps: 1e6 }, &[(3, 3, 1)]);
        assert_eq!(causes(&spec, &result, None), [Cause::Overload]);
    }

    #[test]
    fn a_step_above_the_lowest_is_overload_until_it_ends() {
        let steps = [1_000.0, 2_000.0, 1_000.0].map(|rate_pps| LoadStep { duration_s: 0.1, rate_pps }).to_vec();
        let (spec, result) = trial(Load::Steps { steps }, &[(50, 60, 1), (110, 240, 1), (250, 251, 1)]);
        assert_eq!(causes(&spec, &result, None), [Cause::Unexplained, Cause::Overload, Cause::Unexplained]);
        assert_eq!(causes(&spec, &result, Some(2_000.0)), [Cause::Unexplained; 3]);
    }

    #[test]
    fn loss_near_a_gap_of_the_tester_is_the_testers() {
        let (spec, mut result) = constant(&[(97, 98, 1), (104, 106, 1), (125, 126, 1), (136, 137, 1)]);
        result.health.gap_times = vec![Held { from_ns: 100 * MS as i64, ns: 30 * MS }];
        assert_eq!(
            causes(&spec, &result, None),
            [Cause::Unexplained, Cause::Tester, Cause::Tester, Cause::Unexplained],
            "from its start until the queue that it filled is empty"
        );
    }

    #[test]
    fn loss_near_a_stall_of_the_processor_is_the_hosts() {
        let (spec, mut result) = constant(&[(94, 94, 1), (96, 99, 1), (102, 104, 1), (120, 121, 1)]);
        let stall = Held { from_ns: 100 * MS as i64, ns: 3 * MS };
        result.health.dut_processor = Some(ProcessorRecord { stall_times: vec![stall], ..ProcessorRecord::default() });
        // If a stall stops both the tester and the DUT, the host is the cause.
        result.health.gap_times = vec![stall];
        assert_eq!(causes(&spec, &result, None), [Cause::Unexplained, Cause::Host, Cause::Host, Cause::Unexplained]);
    }

    #[test]
    fn loss_that_begins_with_an_event_is_the_events() {
        let (spec, mut result) = constant(&[(90, 98, 1), (100, 400, 1), (460, 470, 1), (600, 601, 1)]);
        let event = |at_s, took_s| EventRecord { at_s, took_s, label: "withdraw".into() };
        result.events = vec![event(0.1, 0.0), event(0.4, 0.03)];
        assert_eq!(causes(&spec, &result, None), [Cause::Unexplained, Cause::Event, Cause::Event, Cause::Unexplained]);
    }

    #[test]
    fn loss_while_no_route_is_advertised_has_its_own_cause() {
        let (mut spec, mut result) =
            constant(&[(0, 305, 9), (400, 401, 1), (500, 720, 9), (640, 650, 1), (900, 901, 1)]);
        let event = |at_s, routed| TimedEvent { routed, ..TimedEvent::new(at_s, 0, "routes") };
        spec.events = vec![event(0.3, Some(true)), event(0.5, Some(false)), event(0.6, None), event(0.7, Some(true))];
        // One gap of the tester covers the whole trial.
        result.health.gap_times = vec![Held { from_ns: 0, ns: 1_000 * MS }];
        let [none, tester] = [Cause::NoRoute, Cause::Tester];
        assert_eq!(causes(&spec, &result, None), [none, tester, none, none, tester]);
        spec.events.remove(0);
        assert_eq!(causes(&spec, &result, None)[0], tester, "the routes were there before they were withdrawn");
        spec.events.pop();
        assert_eq!(causes(&spec, &result, None)[4], none, "they did not come again");
    }

    #[test]
    fn the_summary_counts_lossy_trials_without_overload() {
        let mut all = LossSummary::default();
        all.add(&[]);
        all.add(&[Cause::Overload]);
        assert_eq!(all.text(), None);
        all.add(&[Cause::Host, Cause::Host, Cause::Overload]);
        all.add(&[Cause::Unexplained]);
        let text = "2 of 4 trials lost frames without overload, in 3 episodes: 2 near a stall of the DUT's processor, 1 unexplained";
        assert_eq!(all.text().as_deref(), Some(text));
    }

    #[test]
    fn an_episode_is_stored_as_a_list() {
        let (_, result) = constant(&[(90, 98, 7)]);
        let stored = serde_json::to_string(&result.losses).unwrap();
        assert_eq!(stored, r#"{"within_ns":2000000,"episodes":[[90000000,98000000,7,1,[0]]]}"#);
        assert_eq!(serde_json::from_str::<Losses>(&stored).unwrap(), result.losses);
    }
}
