//! How a run ended, how far it may be trusted, and what to do next: the first lines of a report, and the exit code.

use crate::grid;
use crate::view::{Standing, View};
use drophammer_judge::held_up::{HOST_BUSY, causes};
use drophammer_model::figure::Decision;
use drophammer_model::outcome::Blame;
use drophammer_model::quantity::group_digits;
use drophammer_model::record::{TestStatus, resumed};
use drophammer_store::RunState;

/// How a run ended. The first variant that applies, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It has no end yet, or was interrupted or cut off.
    Open,
    /// A router failed tests, or no test applied.
    Failed(usize),
    /// Criteria of the suite were missed.
    Missed(usize),
    /// The tester or its machine spoilt tests, or single figures, in every round, so these figures are unknown.
    Unmeasured(usize),
    /// Criteria of the suite are undecided.
    Undecided(usize),
    /// None of these.
    Good,
}

impl Ending {
    /// How the run of `view` ended.
    pub fn of(view: &View) -> Ending {
        if view.run.state() != RunState::Complete {
            return Ending::Open;
        }
        let count = |of: &dyn Fn(&Standing) -> bool| {
            let results = view.sections.iter().flat_map(|section| &section.results);
            results.filter(|result| of(&result.standing)).count()
        };
        let has_failed = |standing: &Standing| match standing {
            Standing::Ended(status) => {
                matches!(status, TestStatus::Failed(_) | TestStatus::Partly(_) | TestStatus::Interrupted)
            }
            // A router that does not come up fails its tests, so these have a record.
            Standing::CutOff | Standing::NotReached | Standing::NotRun => false,
        };
        let criteria = |wanted| view.verdicts().iter().filter(|(.., verdict)| verdict.decision() == wanted).count();
        let is_skipped = |standing: &Standing| matches!(standing, Standing::Ended(TestStatus::Skipped(_)));
        let nothing_applied = count(&is_skipped) > 0 && count(&|standing| !is_skipped(standing)) == 0;
        let all = [
            Ending::Failed(count(&has_failed) + usize::from(nothing_applied)),
            Ending::Missed(criteria(Decision::Missed)),
            Ending::Unmeasured(count(&is_spoilt) + unmeasured(view)),
            Ending::Undecided(criteria(Decision::Undecided)),
        ];
        let applies = |ending: &Ending| match ending {
            Ending::Failed(n) | Ending::Missed(n) | Ending::Unmeasured(n) | Ending::Undecided(n) => *n > 0,
            Ending::Open | Ending::Good => true,
        };
        all.into_iter().find(applies).unwrap_or(Ending::Good)
    }

    /// In words, and whether that is good.
    pub fn text(&self, view: &View) -> (String, bool) {
        let of = |n: &usize, one: &str| format!("{n} {one}{}", if *n == 1 { "" } else { "s" });
        let text = match self {
            Ending::Open => format!("Run {}", view.state_text()),
            Ending::Failed(n) => format!("{} failed", of(n, "test")),
            Ending::Missed(n) => format!("{} missed", of(n, "criterion").replace("criterions", "criteria")),
            Ending::Unmeasured(n) => {
                let tests = *n - unmeasured(view);
                let figures = of(&unmeasured(view), "figure");
                match (tests, tests < *n) {
                    (0, _) => format!("{figures} could not be measured"),
                    (_, false) => format!("{} could not be measured", of(n, "test")),
                    (_, true) => format!("{} and {figures} could not be measured", of(&tests, "test")),
                }
            }
            Ending::Undecided(n) => format!("{} undecided", of(n, "criterion").replace("criterions", "criteria")),
            Ending::Good => format!("Run {}", view.state_text()),
        };
        (text, *self == Ending::Good)
    }
}

/// Whether the tester spoilt the test in every round.
fn is_spoilt(standing: &Standing) -> bool {
    matches!(standing, Standing::Ended(TestStatus::Unfit(_)))
}

/// Number of figures of completed tests that the tester or its host kept from being measured, over all DUTs.
fn unmeasured(view: &View) -> usize {
    let of = |figure: &crate::rank::Ranked| {
        let is_missing = |entry: &&crate::rank::Entry| entry.missing().is_some_and(|m| m.by == Blame::Spoilt);
        let section = &view.sections[figure.section];
        let entries = figure.entries.iter().zip(&section.results);
        entries.filter(|(entry, result)| is_missing(entry) && !is_spoilt(&result.standing)).count()
    };
    view.ranking.figures.iter().map(of).sum()
}

/// How many trials were disturbed, in one sentence; `None` without trials.
pub fn trust(view: &View) -> Option<String> {
    let all = view.run.trials.len();
    if all == 0 {
        return None;
    }
    let invalid = view.invalid_trials().len();
    let n = |n: usize| group_digits(n as u64);
    if invalid == 0 {
        return Some(format!("All {} trials are valid.", n(all)));
    }
    let causes = causes(&view.run.trials);
    let disturbed: usize = causes.iter().map(|(_, trials)| trials).sum();
    let was = |n: usize| if n == 1 { "was" } else { "were" };
    let mut parts = Vec::new();
    if disturbed > 0 {
        let has = |name: &str| causes.iter().any(|(cause, _)| cause == name);
        let programs = causes.iter().any(|(cause, _)| !matches!(cause.as_str(), "hypervisor" | "unknown"));
        let by = match (programs, has("hypervisor")) {
            (true, true) => "other programs or a hypervisor",
            (true, false) => "other programs",
            (false, true) => "a hypervisor",
            (false, false) => "the host",
        };
        parts.push(format!("{} {} disturbed by {by} and repeated", n(disturbed), was(disturbed)));
    }
    let own = invalid - disturbed;
    if own > 0 {
        parts.push(format!("{} {} spoilt by the tester itself", n(own), was(own)));
    }
    Some(format!("Of {} trials, {}. No figure uses them.", n(all), parts.join(" and ")))
}

/// What disturbed the trials: `rustc 31, cc1 12, hypervisor 18`; `None` if nothing did.
pub fn causes_text(view: &View) -> Option<String> {
    let causes: Vec<String> =
        causes(&view.run.trials).into_iter().map(|(cause, trials)| format!("{cause} {trials}")).collect();
    (!causes.is_empty()).then(|| causes.join(", "))
}

/// The DUTs of which the busy host left tests unmeasured although their trials were repeated; `None` without any.
pub fn host_busy(view: &View) -> Option<String> {
    let one = |(dut, held): (usize, &drophammer_judge::held_up::HeldUp)| {
        let of_host = |standing: &Standing| matches!(standing, Standing::Ended(TestStatus::Unfit(why)) if why.contains(HOST_BUSY));
        let results = || view.sections.iter().map(|section| (section, section.results.iter().find(|r| r.dut == dut)));
        let tests: Vec<&str> = results()
            .filter(|(_, result)| result.is_some_and(|result| of_host(&result.standing)))
            .map(|(section, _)| section.title.as_str())
            .collect();
        (held.share() > 0.5 && !tests.is_empty()).then(|| {
            let (invalid, trials, dut) = (held.invalid, held.trials, view.duts[dut].label());
            format!("{} of {dut} could not be measured: {invalid} of {trials} trials were disturbed", tests.join(", "))
        })
    };
    let all: Vec<String> = view.held_up.iter().enumerate().filter_map(one).collect();
    (!all.is_empty()).then(|| format!("host busy: {}", all.join("; ")))
}

/// The command that goes on with the run of `view`.
fn resume(view: &View) -> String {
    resumed(&view.run.started.command, &view.run.dir.display().to_string())
}

/// Most steps that are named.
const STEPS: usize = 3;

/// What to do next, the most important first.
pub fn next_steps(view: &View) -> Vec<String> {
    let ending = Ending::of(view);
    let started = &view.run.started;
    let mut out = Vec::new();
    match ending {
        Ending::Open if !view.run.running => {
            out.push(format!("Go on with this run: `{}`.", resume(view)));
        }
        Ending::Failed(_) => out.push("Read the problems below; each names the cause and the log.".into()),
        Ending::Unmeasured(_) => {
            out.push(format!("Measure the spoilt rounds again: `{}`.", resume(view)));
            let top = causes(&view.run.trials).into_iter().next().map(|(cause, _)| cause);
            out.push(match top.as_deref() {
                Some("hypervisor") => "Use a machine whose processors no other guest shares.".into(),
                Some("unknown") | None => "Use a quieter machine; `drophammer doctor` says what disturbs.".into(),
                Some(program) => format!("End `{program}` before that, or use a machine with more processors."),
            });
        }
        Ending::Undecided(_) => {
            out.push("Run more rounds (`--rounds`, `--time`), so that the open criteria are decided.".into())
        }
        Ending::Open | Ending::Missed(_) | Ending::Good => {}
    }
    let is_compared = (0..view.duts.len()).any(|dut| grid::ranked_kind(view, dut));
    let figures = &view.ranking.figures;
    let has_rank = |figure: &&crate::rank::Ranked| figure.entries.iter().any(|entry| entry.rank.is_some());
    let apart = |figure: &&crate::rank::Ranked| (0..view.duts.len()).any(|dut| grid::is_best(figure, dut));
    if is_compared && started.rounds < 2 {
        out.push("Run six rounds (`--rounds 6`) to rank the routers.".into());
    } else if is_compared && figures.iter().filter(has_rank).any(|figure| !apart(&figure)) {
        out.push("To find smaller differences, run longer: `--time 1h`.".into());
    }
    let bound = |by_suite: bool| {
        let is_one = |figure: &crate::rank::Ranked, dut: usize| {
            grid::all_limited(view, figure, dut) && figure.entries[dut].suite_limited() == by_suite
        };
        figures.iter().any(|figure| (0..view.duts.len()).any(|dut| is_one(figure, dut)))
    };
    if bound(false) {
        out.push(
            "Where only bounds are known, give the routers more work (filters, routes) or the tester a faster backend."
                .into(),
        );
    }
    if bound(true) {
        out.push("Where the suite was the limit, raise it (`max_routes`, `max_load`).".into());
    }
    if out.is_empty() && !view.run.running {
        out.push("Keep this folder: `drophammer compare` holds later runs against it.".into());
    }
    out.truncate(STEPS);
    out
}
