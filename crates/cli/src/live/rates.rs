//! Rates of the current trial: an event per second, from a separate thread.
//!
//! Only this thread waits for the lanes' answers. The thread that runs the trial announces it before it starts, and
//! stops its events when the trial is recorded. The thread that runs the trial never waits during a trial.

use drophammer_model::trial::TrialSpec;
use drophammer_rig::{Live, Totals};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time between two events.
const PERIOD: Duration = Duration::from_secs(1);
/// Time limit for the lanes to answer. They answer within microseconds, unless they lose their processor or the trial
/// has not started.
const PATIENCE: Duration = Duration::from_secs(1);
/// After this time a frame is no longer in flight, unless its trial waits longer for late frames.
const IN_FLIGHT: Duration = Duration::from_millis(500);

/// The current trial.
pub struct Trial {
    // Fields that its events contain in addition to the counts.
    dut: String,
    test: String,
    purpose: String,
    size: String,
    /// Time from the first to the last departure.
    sending: Duration,
    /// False if some frames must not arrive, or do not need to because they are background traffic. Missing frames are
    /// then not a loss.
    all_arrive: bool,
    /// How long a frame may be in flight.
    in_flight: Duration,
    /// The sums at earlier events, the oldest first: all events since which frames may still be in flight, and the
    /// event before them.
    past: VecDeque<Totals>,
    /// Returns the current sums; `None` if they are unknown.
    look: Look,
}

type Look = Box<dyn Fn() -> Option<Totals> + Send>;

impl Trial {
    /// The trial `spec` of `test` on `dut`; `live` has its counts.
    pub fn new(dut: &str, test: &str, spec: &TrialSpec, live: &Live) -> Trial {
        let live = live.clone();
        Trial::of(dut, test, spec, Box::new(move || live.totals(PATIENCE)))
    }

    fn of(dut: &str, test: &str, spec: &TrialSpec, look: Look) -> Trial {
        // The wait for late frames covers the delay of links between routers.
        let drain = Duration::try_from_secs_f64(spec.drain_s).unwrap_or_default();
        Trial {
            dut: dut.to_owned(),
            test: test.to_owned(),
            purpose: spec.purpose.clone(),
            size: spec.size.to_string(),
            sending: spec.sending_time(),
            all_arrive: !spec.flows.iter().any(|flow| flow.denied || flow.background),
            in_flight: drain.max(IN_FLIGHT),
            past: VecDeque::new(),
            look,
        }
    }

    /// The sums at the last event; zero before the first.
    fn before(&self) -> Totals {
        self.past.back().copied().unwrap_or_default()
    }

    /// The event for `now`, which follows the previous event.
    fn event(&mut self, now: Totals) -> Value {
        let before = self.before();
        let since = now.elapsed.saturating_sub(before.elapsed);
        let rate = |before: u64, now: u64| now.saturating_sub(before) as f64 / since.as_secs_f64().max(1e-9);
        // A frame is lost if later frames of its flow have arrived, or if it is missing and can no longer be in flight.
        let in_flight = self.in_flight;
        let long_ago = |past: &Totals| now.elapsed.saturating_sub(past.elapsed) >= in_flight;
        while self.past.get(1).is_some_and(long_ago) {
            self.past.pop_front();
        }
        let not_there = match self.past.front() {
            Some(past) if self.all_arrive && long_ago(past) => past.offered.saturating_sub(now.received),
            _ => 0,
        };
        self.past.push_back(now);
        json!({
            "event": "rates", "dut": self.dut, "test": self.test, "purpose": self.purpose, "size": self.size,
            "elapsed_s": now.elapsed.as_secs_f64(), "left_s": self.sending.saturating_sub(now.elapsed).as_secs_f64(),
            "offered_fps": rate(before.offered, now.offered), "received_fps": rate(before.received, now.received),
            "offered": now.offered, "received": now.received, "lost": now.missing.map(|missing| missing.max(not_there)),
        })
    }
}

/// The thread that reports the rates.
pub struct Rates {
    trials: Sender<Option<(u64, Trial)>>,
    /// Number of the current trial. Locked while an event is reported, so that no event follows the end of its trial.
    current: Arc<Mutex<Option<u64>>>,
    last: u64,
}

fn locked(current: &Mutex<Option<u64>>) -> MutexGuard<'_, Option<u64>> {
    current.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Rates {
    /// Starts the thread, which passes events to `tell`. It may run on any processor that the calling thread may use.
    pub fn start(tell: impl Fn(Value) + Send + 'static) -> io::Result<Rates> {
        Rates::every(PERIOD, tell)
    }

    fn every(period: Duration, tell: impl Fn(Value) + Send + 'static) -> io::Result<Rates> {
        let (trials, begun) = channel();
        let current = Arc::new(Mutex::new(None));
        let shared = current.clone();
        std::thread::Builder::new().name("rates".into()).spawn(move || follow(period, &begun, &shared, &tell))?;
        Ok(Rates { trials, current, last: 0 })
    }

    /// Call it when a trial begins.
    pub fn begin(&mut self, trial: Trial) {
        self.last += 1;
        *locked(&self.current) = Some(self.last);
        // The thread does not end before this sender is dropped.
        let _ = self.trials.send(Some((self.last, trial)));
    }

    /// The trial has ended; no more events are sent for it.
    pub fn end(&mut self) {
        if locked(&self.current).take().is_some() {
            let _ = self.trials.send(None);
        }
    }
}

/// Reports the rates of each trial, until the sender is gone.
fn follow(
    period: Duration,
    begun: &Receiver<Option<(u64, Trial)>>,
    current: &Mutex<Option<u64>>,
    tell: &impl Fn(Value),
) {
    let mut running = None;
    loop {
        let received = match &running {
            None => begun.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some((_, _, due)) => begun.recv_timeout(Instant::saturating_duration_since(due, Instant::now())),
        };
        match received {
            Ok(next) => running = next.map(|(n, trial)| (n, trial, Instant::now() + period)),
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                let Some((number, trial, due)) = &mut running else { continue };
                // Count from now, so that a delayed thread does not ask several times in a row.
                *due = Instant::now() + period;
                let Some(now) = (trial.look)() else { continue };
                let current = locked(current);
                if *current == Some(*number) && now.elapsed > trial.before().elapsed {
                    tell(trial.event(now));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::trial::{AddressRange, FlowSpec, Load};
    use std::sync::atomic::{AtomicU64, Ordering};

    /// 20 s at 1,000 frames per second, and then a wait of `drain_s` for late frames.
    fn spec(drain_s: f64) -> TrialSpec {
        let range = |first: &str| AddressRange { first: first.parse().unwrap(), step: 1, count: 1 };
        TrialSpec {
            purpose: "p".into(),
            size: "64".parse().unwrap(),
            flows: vec![FlowSpec::new("all", 0, 1, range("198.18.0.1"), range("198.19.0.1"))],
            load: Load::Constant { rate_pps: 1_000.0 },
            duration_s: 20.0,
            bin_s: None,
            drain_s,
            events: vec![],
        }
    }

    /// A trial of `spec` that loses the last 10 frames of each second. Each look comes one second later.
    fn trial_of(dut: &str, spec: &TrialSpec) -> Trial {
        let looks = AtomicU64::new(0);
        let look = move || {
            let n = looks.fetch_add(1, Ordering::Relaxed) + 1;
            Some(Totals {
                elapsed: Duration::from_secs(n),
                offered: 1_000 * n,
                received: 990 * n,
                missing: Some(10 * (n - 1)),
            })
        };
        Trial::of(dut, "t", spec, Box::new(look))
    }

    fn trial(dut: &str) -> Trial {
        trial_of(dut, &spec(0.2))
    }

    fn at(ms: u64, offered: u64, received: u64, missing: Option<u64>) -> Totals {
        Totals { elapsed: Duration::from_millis(ms), offered, received, missing }
    }

    #[test]
    fn an_event_has_the_rates_since_the_last() {
        let mut trial = trial("box");
        trial.event(at(1_000, 1_000, 990, Some(5)));
        assert_eq!(
            trial.event(at(3_000, 3_000, 1_980, Some(15))),
            json!({
                "event": "rates", "dut": "box", "test": "t", "purpose": "p", "size": "64", "elapsed_s": 3.0, "left_s": 17.0,
                "offered_fps": 1_000.0, "received_fps": 495.0, "offered": 3_000, "received": 1_980, "lost": 15,
            })
        );
        assert_eq!(trial.event(at(60_000, 1, 1, None))["left_s"], json!(0.0));
    }

    /// The loss in the last of these events.
    fn lost(spec: &TrialSpec, events: &[Totals]) -> Value {
        let mut trial = trial_of("box", spec);
        let mut lost = Value::Null;
        for now in events {
            lost = trial.event(*now)["lost"].clone();
        }
        lost
    }

    #[test]
    fn what_was_sent_long_ago_and_is_not_there_is_lost() {
        let (before, silent) = (at(1_000, 1_000, 600, Some(0)), at(2_000, 2_000, 600, Some(0)));
        assert_eq!(lost(&spec(0.2), &[before, silent]), json!(400));
        let between = at(1_400, 2_000, 600, Some(0));
        assert_eq!(lost(&spec(0.2), &[before, between]), json!(0), "frames may still be in flight");
        assert_eq!(lost(&spec(0.0), &[before, between]), json!(0), "however short the trial waits for late frames");
        assert_eq!(lost(&spec(0.2), &[before, between, silent]), json!(1_400));
        assert_eq!(lost(&spec(0.2), &[before, at(2_000, 2_000, 600, None)]), Value::Null);
    }

    #[test]
    fn frames_that_need_not_arrive_are_no_loss() {
        let events = [at(1_000, 1_000, 600, Some(0)), at(2_000, 2_000, 600, Some(3))];
        assert_eq!(lost(&spec(0.2), &events), json!(400));
        let mut denied = spec(0.2);
        denied.flows[0].denied = true;
        assert_eq!(lost(&denied, &events), json!(3));
        // One frame in a hundred is a broadcast, which routers do not forward. After 100 s there are more of them than
        // frames in a second.
        let mut beside = spec(0.2);
        beside.flows.push(FlowSpec { background: true, ..beside.flows[0].clone() });
        let events: Vec<Totals> = (1..=200).map(|n| at(1_000 * n, 1_000 * n, 990 * n, Some(0))).collect();
        assert_eq!(lost(&beside, &events), json!(0));
    }

    #[test]
    fn frames_on_a_long_line_are_not_lost_before_their_time() {
        // A link with a delay of 3 s, which the wait for late frames includes. The link goes down after 10 s.
        let events: Vec<Totals> =
            (1..=14).map(|n: u64| at(1_000 * n, 1_000 * n, 1_000 * n.saturating_sub(3).min(7), Some(0))).collect();
        for n in 1..=11 {
            assert_eq!(lost(&spec(3.2), &events[..n]), json!(0), "after {n} s");
        }
        assert_eq!(lost(&spec(3.2), &events), json!(3_000));
        let mut trial = trial_of("box", &spec(3.2));
        events.iter().for_each(|now| drop(trial.event(*now)));
        assert_eq!(trial.past.len(), 5, "only what is needed is kept");
    }

    #[test]
    fn events_stop_with_their_trial() {
        let (told, events) = channel();
        let mut rates = Rates::every(Duration::from_millis(1), move |event| drop(told.send(event))).unwrap();
        for dut in ["one", "two", "three"] {
            rates.begin(trial(dut));
            let first = events.recv().unwrap();
            assert_eq!(
                (&first["dut"], &first["elapsed_s"], &first["offered_fps"]),
                (&json!(dut), &json!(1.0), &json!(1_000.0))
            );
            assert_eq!(events.recv().unwrap()["elapsed_s"], json!(2.0), "they go on");
            rates.end();
            // The first event of the next trial shows that this trial sends no more events.
            assert!(events.try_iter().all(|event| event["dut"] == dut));
        }
        drop(rates);
        assert!(events.recv().is_err(), "the thread ends");
    }

    #[test]
    fn a_trial_that_does_not_answer_has_no_events() {
        let (told, events) = channel();
        let mut rates = Rates::every(Duration::from_millis(1), move |event| drop(told.send(event))).unwrap();
        let (asked, looked) = channel();
        let silent = Trial { look: Box::new(move || asked.send(()).ok().and(None)), ..trial("silent") };
        rates.begin(silent);
        looked.recv().unwrap();
        looked.recv().unwrap();
        rates.begin(trial("box"));
        assert_eq!(events.recv().unwrap()["dut"], json!("box"));
    }
}
