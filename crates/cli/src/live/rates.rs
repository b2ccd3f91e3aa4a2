//! Rates of the trial under way: an event per second, from a thread of its own.
//!
//! Only this thread waits for the lanes' answers. The thread that drives the trial hands over the trial before it starts and takes it back
//! when it is recorded; it never waits during a trial.

use drophammer_model::trial::TrialSpec;
use drophammer_rig::{Live, Totals};
use serde_json::{Value, json};
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time between two events.
const PERIOD: Duration = Duration::from_secs(1);
/// Lanes answer within microseconds, unless their processor is taken from them or the trial has not started.
const PATIENCE: Duration = Duration::from_secs(1);
/// A frame that was sent this long ago is no longer under way.
const UNDER_WAY: Duration = Duration::from_millis(500);

/// A trial under way.
pub struct Trial {
    /// What its events say besides the counts.
    dut: String,
    test: String,
    purpose: String,
    size: String,
    /// Time from the first to the last departure.
    sending: Duration,
    /// True if frames must not arrive, so that those that do not are no loss.
    denied: bool,
    /// Its sums so far; `None` if they are not known.
    look: Box<dyn Fn() -> Option<Totals> + Send>,
}

impl Trial {
    /// The trial `spec` of `test` on `dut`, whose counts are at `live`.
    pub fn new(dut: &str, test: &str, spec: &TrialSpec, live: &Live) -> Trial {
        let live = live.clone();
        Trial {
            dut: dut.to_owned(),
            test: test.to_owned(),
            purpose: spec.purpose.clone(),
            size: spec.size.to_string(),
            sending: spec.sending_time(),
            denied: spec.flows.iter().any(|flow| flow.denied),
            look: Box::new(move || live.totals(PATIENCE)),
        }
    }

    /// The event for `now`, after `before`.
    fn event(&self, before: Totals, now: Totals) -> Value {
        let since = now.elapsed.saturating_sub(before.elapsed);
        let rate = |before: u64, now: u64| now.saturating_sub(before) as f64 / since.as_secs_f64().max(1e-9);
        // A frame is lost if later ones of its flow have arrived, or if it was sent before the last event and is not there yet.
        let not_there = before.offered.saturating_sub(now.received);
        let not_there = if self.denied || since < UNDER_WAY { 0 } else { not_there };
        json!({
            "event": "rates", "dut": self.dut, "test": self.test, "purpose": self.purpose, "size": self.size,
            "elapsed_s": now.elapsed.as_secs_f64(), "left_s": self.sending.saturating_sub(now.elapsed).as_secs_f64(),
            "offered_fps": rate(before.offered, now.offered), "received_fps": rate(before.received, now.received),
            "offered": now.offered, "received": now.received, "lost": now.missing.map(|missing| missing.max(not_there)),
        })
    }
}

/// The thread that tells the rates.
pub struct Rates {
    trials: Sender<Option<(u64, Trial)>>,
    /// Number of the trial under way. Held while an event is told, so that none comes after its trial has ended.
    current: Arc<Mutex<Option<u64>>>,
    last: u64,
}

fn locked(current: &Mutex<Option<u64>>) -> MutexGuard<'_, Option<u64>> {
    current.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Rates {
    /// Starts the thread, which passes events to `tell`. It may run on any processor that the calling thread may use.
    ///
    /// # Errors
    /// No further thread can be started.
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

    /// A trial begins.
    pub fn begin(&mut self, trial: Trial) {
        self.last += 1;
        *locked(&self.current) = Some(self.last);
        // The thread ends only with this sender.
        let _ = self.trials.send(Some((self.last, trial)));
    }

    /// The trial has ended: no more of its events follow.
    pub fn end(&mut self) {
        if locked(&self.current).take().is_some() {
            let _ = self.trials.send(None);
        }
    }
}

/// Tells the rates of each trial, until the sender is gone.
fn follow(
    period: Duration,
    begun: &Receiver<Option<(u64, Trial)>>,
    current: &Mutex<Option<u64>>,
    tell: &impl Fn(Value),
) {
    let mut under_way = None;
    loop {
        let received = match &under_way {
            None => begun.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some((_, _, _, due)) => begun.recv_timeout(Instant::saturating_duration_since(due, Instant::now())),
        };
        match received {
            Ok(next) => under_way = next.map(|(n, trial)| (n, trial, Totals::default(), Instant::now() + period)),
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                let Some((number, trial, before, due)) = &mut under_way else { continue };
                // From now on, so that a thread that was held up does not ask several times at once.
                *due = Instant::now() + period;
                let Some(now) = (trial.look)() else { continue };
                let current = locked(current);
                if *current == Some(*number) && now.elapsed > before.elapsed {
                    tell(trial.event(*before, now));
                    *before = now;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// A trial of 20 s at 1,000 frames per second, of which the last 10 of each second are lost. Each look is a second later.
    fn trial(dut: &str, denied: bool) -> Trial {
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
        let (dut, size) = (dut.to_owned(), "64".to_owned());
        let sending = Duration::from_secs(20);
        Trial { dut, test: "t".into(), purpose: "p".into(), size, sending, denied, look: Box::new(look) }
    }

    #[test]
    fn an_event_has_the_rates_since_the_last() {
        let at =
            |ms, offered, received, missing| Totals { elapsed: Duration::from_millis(ms), offered, received, missing };
        let (before, now) = (at(1_000, 1_000, 990, Some(5)), at(3_000, 3_000, 1_980, Some(15)));
        let event = trial("box", false).event(before, now);
        assert_eq!(
            event,
            json!({
                "event": "rates", "dut": "box", "test": "t", "purpose": "p", "size": "64", "elapsed_s": 3.0, "left_s": 17.0,
                "offered_fps": 1_000.0, "received_fps": 495.0, "offered": 3_000, "received": 1_980, "lost": 15,
            })
        );
        let lost = |denied, before, now| trial("box", denied).event(before, now)["lost"].clone();
        // What was sent at the last event and has not arrived since is lost, unless it must not arrive or the last event was just now.
        let silent = at(2_000, 2_000, 600, Some(0));
        assert_eq!(lost(false, before, silent), json!(400));
        assert_eq!(lost(true, before, silent), json!(0));
        assert_eq!(lost(false, at(1_900, 1_000, 600, Some(0)), silent), json!(0));
        assert_eq!(lost(false, before, at(2_000, 2_000, 600, None)), Value::Null);
        assert_eq!(trial("box", false).event(before, at(60_000, 1, 1, None))["left_s"], json!(0.0));
    }

    #[test]
    fn events_stop_with_their_trial() {
        let (told, events) = channel();
        let mut rates = Rates::every(Duration::from_millis(1), move |event| drop(told.send(event))).unwrap();
        for dut in ["one", "two", "three"] {
            rates.begin(trial(dut, false));
            let first = events.recv().unwrap();
            assert_eq!(
                (&first["dut"], &first["elapsed_s"], &first["offered_fps"]),
                (&json!(dut), &json!(1.0), &json!(1_000.0))
            );
            assert_eq!(events.recv().unwrap()["elapsed_s"], json!(2.0), "they go on");
            rates.end();
            // Those that were told before the end are there; no more follow, which the next trial's first event shows.
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
        let silent = Trial { look: Box::new(move || asked.send(()).ok().and(None)), ..trial("silent", false) };
        rates.begin(silent);
        looked.recv().unwrap();
        looked.recv().unwrap();
        rates.begin(trial("box", false));
        assert_eq!(events.recv().unwrap()["dut"], json!("box"));
    }
}
