//! Progress: a live line on a terminal, plain lines elsewhere.

use crate::output::{err, is_colored};
use drophammer_judge::held_up::{by_host_alone, cause};
use drophammer_model::quantity::{FrameRate, show_duration};
use drophammer_model::trial::{Load, TrialResult, TrialSpec, Validity};
use drophammer_model::visible::{one_line, visible};
use drophammer_testbed::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// The display.
pub struct Display {
    /// The live line, if standard error is a terminal.
    live: Option<ProgressBar>,
    color: bool,
    /// DUT of the last trial.
    dut: String,
    step: String,
    left: Duration,
    /// Number of trials that have ended, and number of those that the host disturbed.
    trials: (u64, u64),
}

/// Formats the time left, rounded because it is an estimate.
fn about(left: Duration) -> String {
    let seconds = left.as_secs();
    let rounded = if seconds >= 600 { seconds / 60 * 60 } else { seconds / 5 * 5 };
    if rounded < 5 {
        "seconds left".into()
    } else {
        format!("about {} left", show_duration(Duration::from_secs(rounded)))
    }
}

fn load(spec: &TrialSpec) -> String {
    match &spec.load {
        Load::Constant { rate_pps } => FrameRate(*rate_pps).to_string(),
        Load::Maximum { .. } => "maximum".into(),
        Load::Steps { steps } => {
            steps.iter().map(|s| FrameRate(s.rate_pps).to_string()).collect::<Vec<_>>().join(" then ")
        }
        Load::Burst { frames, .. } => format!("burst of {frames}"),
        Load::Flows => "rates of the flows".into(),
    }
}

/// Frames of a trial, with separate counts for frames that the DUT must drop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Offered frames that must arrive.
    pub offered: u64,
    /// Lost frames that must arrive.
    pub lost: u64,
    /// Offered frames that must not arrive.
    pub denied: u64,
    /// Frames that arrived although they must not.
    pub leaked: u64,
}

impl Counts {
    pub fn of(spec: &TrialSpec, result: &TrialResult) -> Counts {
        let mut counts = Counts::default();
        for group in &result.groups {
            if spec.flows.iter().any(|flow| flow.denied && flow.group == group.group) {
                (counts.denied, counts.leaked) = (counts.denied + group.offered, counts.leaked + group.received);
            } else {
                (counts.offered, counts.lost) = (counts.offered + group.offered, counts.lost + group.lost);
            }
        }
        counts
    }

    /// Loss of the frames that must arrive, in %.
    pub fn loss_percent(self) -> f64 {
        self.lost as f64 / self.offered.max(1) as f64 * 100.0
    }

    /// Formats the counts: `lost 3 (0.0120 %)`; `arrived 0 of 100 that must not`.
    fn text(self) -> String {
        let lost = (self.offered > 0 || self.denied == 0)
            .then(|| format!("lost {} ({:.4} %)", self.lost, self.loss_percent()));
        let denied = (self.denied > 0).then(|| format!("arrived {} of {} that must not", self.leaked, self.denied));
        lost.into_iter().chain(denied).collect::<Vec<_>>().join("  ")
    }
}

fn outcome(spec: &TrialSpec, result: &TrialResult) -> String {
    let verdict = match &result.validity {
        Validity::Valid => String::new(),
        Validity::Invalid(reasons) => format!("  INVALID: {}", reasons.join("; ")),
    };
    format!(
        "{:<8} {:>22}  offered {}  {}{verdict}",
        spec.size.to_string(),
        load(spec),
        FrameRate(result.offered_load().pps()),
        Counts::of(spec, result).text()
    )
}

impl Display {
    /// A display on standard error; live on a terminal, unless the user wants plain lines.
    pub fn new(plain: bool) -> Display {
        let stderr = std::io::stderr();
        let live = (stderr.is_terminal() && !plain).then(|| {
            let bar = ProgressBar::with_draw_target(Some(1), ProgressDrawTarget::stderr_with_hz(10));
            if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
                bar.set_style(style);
            }
            bar
        });
        let color = !plain && is_colored(&stderr);
        Display { live, color, dut: String::new(), step: String::new(), left: Duration::ZERO, trials: (0, 0) }
    }

    fn line(&self, text: &str) {
        match &self.live {
            Some(bar) => bar.println(text),
            None => err!("{text}"),
        }
    }

    /// The line about a trial that only the host disturbed; `None` for other trials.
    fn disturbed(&mut self, result: &TrialResult) -> Option<String> {
        let Validity::Invalid(reasons) = &result.validity else { return None };
        let cause = cause(reasons).filter(|_| by_host_alone(reasons))?;
        self.trials.1 += 1;
        let (all, disturbed) = self.trials;
        Some(format!("  disturbed ({cause}), so repeated; {disturbed} of {all} trials so far"))
    }

    /// Shows a text that is soon outdated, as the live line if there is one.
    fn passing(&self, text: String) {
        match &self.live {
            Some(bar) => bar.set_message(text),
            None => self.line(&text),
        }
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.color { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    /// Shows one event.
    pub fn show(&mut self, progress: &Progress<'_>) {
        match progress {
            Progress::BringUp { dut, kind } => {
                self.passing(format!("{dut} ({kind}) is being brought up"));
            }
            Progress::Test { dut, title, number, of, left } => {
                let place = if *number == 0 { "first".to_owned() } else { format!("{number}/{of}") };
                self.left = *left;
                (*dut).clone_into(&mut self.dut);
                self.line(&format!("[{place}] {}  {title}  ({})", self.paint("1", dut), about(*left)));
            }
            Progress::GoesOn { dut } => (*dut).clone_into(&mut self.dut),
            Progress::Step { what, done, of, left } => {
                self.left = *left;
                self.step = match *of {
                    0 => (*what).to_owned(),
                    of => format!("{what} (trial {} of about {})", done + 1, of.max(done + 1)),
                };
            }
            Progress::TrialStarted { spec } => {
                if let Some(bar) = &self.live {
                    let (length, load) = (show_duration(spec.sending_time()), load(spec));
                    let (dut, step, left) = (&self.dut, &self.step, about(self.left));
                    bar.set_message(format!("  {dut}: {step}: {load} for {length}  {left}"));
                }
            }
            // Only the live page shows rates during a trial; see `live/rates.rs`.
            Progress::Traffic { .. } => {}
            Progress::TrialEnded { spec, result, attempt } => {
                self.trials.0 += 1;
                if let Some(text) = self.disturbed(result) {
                    return self.passing(text);
                }
                let again = if *attempt > 1 { format!(" (attempt {attempt})") } else { String::new() };
                let text = format!("  {}  {}{again}", self.dut, outcome(spec, result));
                match (&self.live, result.validity.is_valid()) {
                    (Some(bar), true) => bar.set_message(format!("{text}  {}", about(self.left))),
                    (_, valid) => self.line(&if valid { text } else { self.paint("33", &text) }),
                }
            }
            Progress::TestEnded { dut, title, problem } => match problem {
                Some(problem) => {
                    self.line(&self.paint("31", &format!("  {dut}: {title} failed: {}", one_line(problem))))
                }
                None if self.live.is_some() => self.line(&format!("  {}", self.paint("32", "done"))),
                None => {}
            },
            Progress::Note { text, problem } => {
                let text = visible(text, &['\n']);
                self.line(&if *problem { self.paint("31", &text) } else { format!("  note: {text}") });
            }
        }
    }

    /// Removes the live line.
    pub fn finish(&self) {
        if let Some(bar) = &self.live {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disturbed_trial_is_told_in_one_short_line() {
        let mut display = Display::new(true);
        let mut told = |reason: &str| {
            display.trials.0 += 1;
            let validity = Validity::Invalid(vec![reason.to_owned()]);
            display.disturbed(&TrialResult { validity, ..TrialResult::default() })
        };
        assert_eq!(told("the tester lost 3 frames in its own receive path"), None);
        let line = told("host busy: other programs (mainly `cc1`) kept the DUT off its processor for 9 ms");
        assert_eq!(line.as_deref(), Some("  disturbed (cc1), so repeated; 1 of 2 trials so far"));
    }

    #[test]
    fn frames_that_must_be_dropped_are_not_lost() {
        let text = |offered, lost, denied, leaked| Counts { offered, lost, denied, leaked }.text();
        assert_eq!(text(1_000, 5, 0, 0), "lost 5 (0.5000 %)");
        assert_eq!(text(0, 0, 0, 0), "lost 0 (0.0000 %)");
        assert_eq!(text(500, 0, 500, 1), "lost 0 (0.0000 %)  arrived 1 of 500 that must not");
        assert_eq!(text(0, 0, 200, 0), "arrived 0 of 200 that must not");
    }
}
