//! Causes of frame loss, inferred from what else happened at the time.

use drophammer_model::trial::{Held, Load, LossEpisode, TrialResult, TrialSpec, total};

/// The cause of an episode, as far as the timelines of load, tester, host and events show it. All are coincidences in
/// time, not proofs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// The offered load exceeded what the DUT forwards.
    Overload,
    /// The tester's loop did not run: frames left in a burst after the gap, or waited in the receive path.
    Tester,
    /// The DUT's processor did not run the DUT.
    Host,
    /// The test changed routes or links just before.
    Event,
    /// The test had not advertised the routes yet, or had withdrawn them.
    NoRoute,
    /// None of the above: the DUT is the cause.
    Unexplained,
}

impl Cause {
    /// All causes, in the order in which they are checked.
    pub const ALL: [Cause; 6] =
        [Cause::NoRoute, Cause::Event, Cause::Overload, Cause::Host, Cause::Tester, Cause::Unexplained];

    /// Its name in JSON.
    pub fn key(self) -> &'static str {
        match self {
            Cause::Overload => "overload",
            Cause::Tester => "tester",
            Cause::Host => "host",
            Cause::Event => "event",
            Cause::NoRoute => "no_route",
            Cause::Unexplained => "unexplained",
        }
    }
}

/// If no load without loss is known, a trial is overloaded when it loses at least this share of its frames, and loses
/// them most of the time.
const OVERLOADED: f64 = 0.01;
/// The loss of an overload lasts at least this share of the time of load.
const THROUGHOUT: f64 = 0.5;
/// A queue that filled during a stall can lose frames for this long after it, in ns.
const AFTER_HELD_NS: i64 = 5_000_000;
/// Tolerance before a stop of the loop, or before an event, in ns. Loss cannot precede its cause, but the times are
/// read one after the other.
const BEFORE_HELD_NS: i64 = 1_000_000;
/// Wake-up interval of the sentinel, in ns. A stall may have begun this long before the sentinel noticed it.
const BEFORE_STALL_NS: i64 = 5_000_000;
/// Loss begins at most this long after the end of the event that caused it, in ns.
const AFTER_EVENT_NS: i64 = 50_000_000;

/// The cause of each episode of a trial, in order. `known_pps` is the highest load per sending port that this DUT has
/// forwarded without loss, in trials with the same frames. Loss at this load or less is no overload.
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

/// Periods of the trial, in ns, for which the test advertised no route to any destination.
fn unrouted(spec: &TrialSpec) -> Vec<(i64, i64)> {
    let mut periods = Vec::new();
    // Before the first change, the routes are as they were not after it.
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
            // A burst loses the frames that exceed a buffer.
            Load::Maximum { .. } | Load::Burst { .. } => vec![all],
            Load::Steps { steps } => {
                // Without a known load, the steps above the lowest one: recovery is measured after them.
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

    /// True if the episode overlaps one of the periods.
    fn holds(&self, from_ns: i64, to_ns: i64) -> bool {
        self.0.iter().any(|(start, end)| to_ns >= *start && from_ns <= *end)
    }
}

/// Summary of the trials with loss below the overload, and of the causes of their episodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Valid trials with traffic.
    pub trials: usize,
    /// Trials among them that lost frames for a cause other than overload.
    pub lossy: usize,
    /// Episodes by cause, without overload, in the order of [`Cause`].
    pub episodes: std::collections::BTreeMap<Cause, usize>,
}

impl Told {
    /// Adds a trial whose episodes have these causes.
    pub fn add(&mut self, causes: &[Cause]) {
        self.trials += 1;
        let other = || causes.iter().filter(|cause| **cause != Cause::Overload);
        self.lossy += usize::from(other().next().is_some());
        other().for_each(|cause| *self.episodes.entry(*cause).or_default() += 1);
    }

    /// In words: `3 of 41 trials lost frames below the overload, in 5 episodes: 4 with a stall of the host, 1
    /// unexplained`; `None` if none did.
    pub fn text(&self) -> Option<String> {
        let all: usize = self.episodes.values().sum();
        let each = self.episodes.iter().map(|(cause, n)| {
            let text = match cause {
                Cause::Overload => "of overload",
                Cause::Tester => "beside a gap of the tester",
                Cause::Host => "beside a stall of the DUT's processor",
                Cause::Event => "after an event of the test",
                Cause::NoRoute => "while the test advertised no route",
                Cause::Unexplained => "unexplained",
            };
            format!("{n} {text}")
        });
        let each = each.collect::<Vec<_>>().join(", ");
        let plural = if all == 1 { "episode" } else { "episodes" };
        (self.lossy > 0).then(|| {
            format!(
                "{} of {} trials lost frames below the overload, in {all} {plural}: {each}",
                self.lossy, self.trials
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::trial::{EventRecord, GroupCounts, LoadStep, Losses, ProcessorRecord, TimedEvent};

    const MS: u64 = 1_000_000;

    fn trial(load: Load, episodes: &[(u64, u64, u64)]) -> (TrialSpec, TrialResult) {
        let spec = TrialSpec {
            purpose: "test".into(),
            size: "64".parse().unwrap(),
            flows: vec![],
            load,
            duration_s: 1.0,
            bin_s: None,
            drain_s: 2.0,
            events: vec![],
        };
        let episode = |(from, to, lost): &(u64, u64, u64)| LossEpisode {
            from_ns: from * MS,
            to_ns: to * MS,
            lost: *lost,
            flows: 1,
            groups: vec![0],
        };
        let losses = Losses { within_ns: 2 * MS, episodes: episodes.iter().map(episode).collect() };
        let lost = losses.lost();
        let group = GroupCounts { offered: 10_000, received: 10_000 - lost, lost, ..GroupCounts::default() };
        let result = TrialResult {
            trial: 1,
            sending_s: 1.0,
            receiving_s: 1.0,
            elapsed_s: 3.0,
            groups: vec![group],
            senders: 1,
            losses,
            ..TrialResult::default()
        };
        (spec, result)
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
        // Occasional single frames are no overload, nor is a long outage of one flow in a thousand.
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
    fn loss_beside_a_gap_of_the_tester_is_the_testers() {
        let (spec, mut result) = constant(&[(97, 98, 1), (104, 106, 1), (125, 126, 1), (136, 137, 1)]);
        result.health.gap_times = vec![Held { from_ns: 100 * MS as i64, ns: 30 * MS }];
        assert_eq!(
            causes(&spec, &result, None),
            [Cause::Unexplained, Cause::Tester, Cause::Tester, Cause::Unexplained],
            "from its beginning until the queue that it filled is empty"
        );
    }

    #[test]
    fn loss_beside_a_stall_of_the_processor_is_the_hosts() {
        let (spec, mut result) = constant(&[(94, 94, 1), (96, 99, 1), (102, 104, 1), (120, 121, 1)]);
        let stall = Held { from_ns: 100 * MS as i64, ns: 3 * MS };
        result.health.dut_processor = Some(ProcessorRecord { stall_times: vec![stall], ..ProcessorRecord::default() });
        // A stall that stops both the tester and the DUT is attributed to the host.
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
    fn loss_while_no_route_is_advertised_is_nobodys() {
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
    fn the_summary_tells_lossy_trials_without_those_of_overload() {
        let mut told = Told::default();
        told.add(&[]);
        told.add(&[Cause::Overload]);
        assert_eq!(told.text(), None);
        told.add(&[Cause::Host, Cause::Host, Cause::Overload]);
        told.add(&[Cause::Unexplained]);
        let text = "2 of 4 trials lost frames below the overload, in 3 episodes: 2 beside a stall of the DUT's processor, 1 unexplained";
        assert_eq!(told.text().as_deref(), Some(text));
    }

    #[test]
    fn an_episode_is_stored_as_a_list() {
        let (_, result) = constant(&[(90, 98, 7)]);
        let stored = serde_json::to_string(&result.losses).unwrap();
        assert_eq!(stored, r#"{"within_ns":2000000,"episodes":[[90000000,98000000,7,1,[0]]]}"#);
        assert_eq!(serde_json::from_str::<Losses>(&stored).unwrap(), result.losses);
    }
}
