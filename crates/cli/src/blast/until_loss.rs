//! `blast --until-loss`: the rate goes up step by step until frames are lost.
//!
//! If the tester itself falls short in a step, the step says nothing about the path between the interfaces, so it is
//! repeated. If that does not help, the result is a lower bound: the highest rate at which every frame arrived.

use super::job::Job;
use super::{ended, finish, reasons, timing};
use crate::clock::secret;
use crate::output::{cells, say};
use crate::{Ended, Exit, Failure};
use drophammer_model::quantity::{FrameRate, group_digits};
use drophammer_model::trial::TrialResult;
use drophammer_rig::{Rig, TrialKeys};
use serde_json::json;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Length of a step.
const STEP: Duration = Duration::from_secs(1);
/// Maximum number of attempts at a step that the tester spoils.
const TRIES: usize = 3;
/// Of this many frames in a step, one may stay unsent.
const UNSENT: u64 = 100;

/// Result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Every frame arrived.
    Passed,
    /// Frames that were sent did not arrive, or not unchanged.
    Lost,
    /// The tester sent too few frames, or lost frames itself.
    Spoilt,
}

/// The bounds found so far.
#[derive(Clone, Debug, Default, PartialEq)]
struct Found {
    /// Highest rate at which every frame arrived, below the first loss.
    passed: Option<FrameRate>,
    /// Rate of the first loss.
    lost: Option<FrameRate>,
    /// The first rate that the tester could not offer.
    spoilt: Option<FrameRate>,
    /// Reasons why frames did not count at the first loss, one line each.
    why: Vec<String>,
}

fn judge(result: &TrialResult) -> Verdict {
    let refused = result.sum(|g| g.refused);
    let damaged = result.lost() - refused.min(result.lost()) + result.sum(|g| g.corrupted) + result.sum(|g| g.stray);
    if result.health.unsent * UNSENT > result.intended() || result.health.receive_drops > 0 || refused > 0 {
        return Verdict::Spoilt;
    }
    if damaged > 0 { Verdict::Lost } else { Verdict::Passed }
}

/// Raises the rate, with a line for each step, until frames are lost, the tester reaches its limit, or the user stops it.
pub(super) fn find(rig: &mut Rig, job: &Job, step: f64, json: bool, stop: &AtomicBool) -> Ended {
    let mut keys = TrialKeys::new(secret());
    let mut found = Found::default();
    let mut rate = job.rate();
    let mut begun = json;
    'rates: loop {
        for attempt in 1..=TRIES {
            rig.start_traffic(&job.trial_at(rate, STEP), &timing(&mut keys), Vec::new())
                .map_err(Failure::environment)?;
            let (result, others) = finish(rig, &|| false);
            let result = result.map_err(ended)?;
            if stop.load(Ordering::Relaxed) {
                break 'rates;
            }
            // A step may send up to a hundredth less than requested.
            let sent = rate.scaled(result.offered() as f64 / result.intended().max(1) as f64);
            let verdict = found.verdict(&result, sent);
            // If nobody reads the output, the command ends.
            if show(job, rate, &result, verdict, json, !std::mem::replace(&mut begun, true)).is_err() {
                break 'rates;
            }
            if verdict == Verdict::Lost {
                found.why = result.groups.iter().flat_map(reasons::of_direction).collect();
                found.why.extend(reasons::of_others(job, &others));
            }
            match verdict {
                Verdict::Passed => {
                    found.pass(sent);
                    break;
                }
                Verdict::Lost => {
                    found.lost = Some(sent);
                    break 'rates;
                }
                Verdict::Spoilt if attempt == TRIES => {
                    found.spoilt = Some(rate);
                    break 'rates;
                }
                Verdict::Spoilt => {}
            }
        }
        rate = rate.scaled(1.0 + step);
    }
    let lines = || [format!("\n{}", found.text())].into_iter().chain(found.why.iter().cloned());
    let _ = say(if json { found.json().to_string() } else { lines().collect::<Vec<_>>().join("\n") });
    // After Ctrl-C, the result so far counts.
    Ok(if found == Found::default() && stop.load(Ordering::Relaxed) { Exit::Interrupted } else { found.exit() })
}

impl Found {
    /// The verdict on a step that sent at the rate `sent`. With a small `--step`, a step that left frames unsent may be
    /// slower than an earlier step in which every frame arrived. Its loss is then not an upper bound.
    fn verdict(&self, result: &TrialResult, sent: FrameRate) -> Verdict {
        match judge(result) {
            Verdict::Lost if self.passed.is_some_and(|passed| sent <= passed) => Verdict::Spoilt,
            other => other,
        }
    }

    /// Records that every frame arrived at the rate `sent`, which may be lower than the rate of an earlier step.
    fn pass(&mut self, sent: FrameRate) {
        if self.passed.is_none_or(|passed| sent > passed) {
            self.passed = Some(sent);
        }
    }

    fn text(&self) -> String {
        let spoilt = "could not be tested: the tester did not offer it, or lost frames itself; see docs/honesty.md";
        match *self {
            Found { passed: Some(passed), lost: Some(lost), .. } => {
                format!("Every frame arrived at {passed}; frames were lost at {lost}.")
            }
            Found { passed: None, lost: Some(lost), .. } => {
                format!("Frames were already lost at {lost}; start with a lower --rate.")
            }
            Found { passed: Some(passed), spoilt: Some(rate), .. } => {
                format!("Every frame arrived at {passed}; the limit is at least that high. {rate} {spoilt}.")
            }
            Found { passed: None, spoilt: Some(rate), .. } => format!("No answer: {rate} {spoilt}."),
            Found { passed: Some(passed), .. } => {
                format!("Stopped: every frame arrived at {passed}; the limit is at least that high.")
            }
            Found { passed: None, .. } => "Stopped before the first step was over.".into(),
        }
    }

    fn json(&self) -> serde_json::Value {
        let fps = |rate: Option<FrameRate>| rate.map(|rate| rate.pps());
        json!({
            "reasons": self.why, "no_loss_fps": fps(self.passed), "loss_fps": fps(self.lost), "tester_limit_fps": fps(self.spoilt),
        })
    }

    /// Good if the result says something about the path between the interfaces.
    fn exit(&self) -> Exit {
        if self.passed.is_some() || self.lost.is_some() { Exit::Good } else { Exit::Failed }
    }
}

fn show(job: &Job, rate: FrameRate, result: &TrialResult, verdict: Verdict, json: bool, first: bool) -> io::Result<()> {
    let (offered, lost) = (result.sum(|g| g.offered), result.lost());
    let latency = |percent: f64| result.groups.iter().filter_map(|g| g.latency.percentile(percent)).max();
    let word = match verdict {
        Verdict::Passed => "",
        Verdict::Lost => "lost",
        Verdict::Spoilt => "the tester fell short",
    };
    if json {
        let value = json!({
            "rate_fps": rate.pps(), "offered": offered, "lost": lost, "unsent": result.health.unsent,
            "tester_drops": result.health.receive_drops, "latency_p50_ns": latency(50.0), "latency_p99_ns": latency(99.0),
            "valid": verdict != Verdict::Spoilt,
        });
        return say(value);
    }
    if first {
        let columns = cells(&["frames sent", "lost", "p50 µs", "p99 µs"].map(str::to_owned), 14);
        say(format!("{}\n{:>16}{columns}", job.headline(), "rate"))?;
    }
    let us = |ns: Option<u64>| ns.map_or("-".to_owned(), |ns| format!("{:.1}", ns as f64 / 1e3));
    let row = [group_digits(offered), group_digits(lost), us(latency(50.0)), us(latency(99.0))];
    say(format!("{:>16}{}  {word}", rate.to_string(), cells(&row, 14)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::trial::GroupCounts;

    fn result(change: impl Fn(&mut TrialResult)) -> TrialResult {
        let group = GroupCounts { intended: 1_000, offered: 1_000, received: 1_000, ..GroupCounts::default() };
        let mut result = TrialResult { groups: vec![group], ..TrialResult::default() };
        change(&mut result);
        result
    }

    #[test]
    fn what_the_tester_spoilt_says_nothing() {
        assert_eq!(judge(&result(|_| {})), Verdict::Passed);
        assert_eq!(judge(&result(|r| r.groups[0].lost = 1)), Verdict::Lost);
        assert_eq!(judge(&result(|r| r.groups[0].corrupted = 1)), Verdict::Lost);
        for spoil in [
            (|r| r.health.unsent = 11) as fn(&mut TrialResult),
            |r| r.health.receive_drops = 1,
            |r| (r.groups[0].lost, r.groups[0].refused) = (1, 1),
        ] {
            let spoilt = result(|r| {
                r.groups[0].lost = 5;
                spoil(r);
            });
            assert_eq!(judge(&spoilt), Verdict::Spoilt);
        }
    }

    #[test]
    fn the_bounds_do_not_contradict_each_other() {
        let (whole, lossy) = (result(|_| {}), result(|r| r.groups[0].lost = 1));
        let mut found = Found::default();
        assert_eq!(found.verdict(&lossy, FrameRate(99_696.0)), Verdict::Lost);
        found.pass(FrameRate(100_000.0));
        found.pass(FrameRate(99_900.0));
        assert_eq!(found.passed, Some(FrameRate(100_000.0)));
        assert_eq!(found.verdict(&lossy, FrameRate(99_696.0)), Verdict::Spoilt);
        assert_eq!(found.verdict(&lossy, FrameRate(100_000.0)), Verdict::Spoilt);
        assert_eq!(found.verdict(&lossy, FrameRate(100_001.0)), Verdict::Lost);
        assert_eq!(found.verdict(&whole, FrameRate(99_696.0)), Verdict::Passed);
        found.pass(FrameRate(100_400.0));
        assert_eq!(found.passed, Some(FrameRate(100_400.0)));
    }

    #[test]
    fn both_bounds_are_told_or_why_there_is_one() {
        let at = |pps| Some(FrameRate(pps));
        let found = |passed, lost, spoilt| Found { passed, lost, spoilt, why: Vec::new() };
        let cases = [
            (found(at(1e3), at(1.1e3), None), "arrived at 1,000 fps; frames were lost at 1,100 fps", Exit::Good),
            (found(None, at(1e3), None), "start with a lower", Exit::Good),
            (found(at(1e3), None, at(1.1e3)), "at least that high. 1,100 fps could not be tested", Exit::Good),
            (found(None, None, at(1e3)), "No answer", Exit::Failed),
            (found(at(1e3), None, None), "Stopped: every frame arrived at 1,000 fps", Exit::Good),
        ];
        for (found, text, exit) in cases {
            assert!(found.text().contains(text), "{}", found.text());
            assert_eq!(found.exit(), exit);
        }
    }
}
