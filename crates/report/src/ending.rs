//! How a run ended, how reliable it is, and what to do next: the first lines of a report, and the exit code.

use crate::format::several;
use crate::rank::Ranked;
use crate::view::{DutResult, Section, Standing, View};
use crate::{grid, grouped};
use drophammer_judge::held_up::{HELD_OFF, HOST_BUSY, HeldUp, cause, causes, reasons};
use drophammer_model::figure::Decision;
use drophammer_model::outcome::Blame;
use drophammer_model::quantity::group_digits;
use drophammer_model::record::{SELF_TEST, TestStatus, TrialRecord, resumed};
use drophammer_store::RunState;

/// How a run ended. If several variants apply, the first of them counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The run is still in progress, or was interrupted or cut off.
    Open,
    /// A router failed tests, or no test applied.
    Failed(usize),
    /// Criteria of the suite were missed.
    Missed(usize),
    /// The tester or its machine spoilt tests or single figures in every round, so their results are unknown.
    Unmeasured(usize),
    /// Criteria of the suite are undecided.
    Undecided(usize),
    /// None of the above: the run ended well.
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
            // If a router does not come up, its tests fail, so they have a record.
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

    /// Describes the ending in words, and returns true if it is good.
    pub fn text(&self, view: &View) -> (String, bool) {
        let criteria = |n: usize| several(n, "criterion").replace("criterions", "criteria");
        let text = match *self {
            Ending::Open | Ending::Good => format!("Run {}", view.state_text()),
            Ending::Failed(n) => format!("{} failed", several(n, "test")),
            Ending::Missed(n) => format!("{} missed", criteria(n)),
            Ending::Undecided(n) => format!("{} undecided", criteria(n)),
            Ending::Unmeasured(n) => {
                let figures = unmeasured(view);
                let what: Vec<String> = [(n - figures, "test"), (figures, "figure")]
                    .into_iter()
                    .filter(|(n, _)| *n > 0)
                    .map(|(n, what)| several(n, what))
                    .collect();
                format!("{} could not be measured", what.join(" and "))
            }
        };
        (text, *self == Ending::Good)
    }
}

/// True if the tester spoilt the test in every round.
fn is_spoilt(standing: &Standing) -> bool {
    matches!(standing, Standing::Ended(TestStatus::Unfit(_)))
}

/// Number of figures, over all DUTs, that the tester or its host spoilt in completed tests.
fn unmeasured(view: &View) -> usize {
    spoilt_figures(view).len()
}

/// The figures, over all DUTs, that the tester or its host spoilt in completed tests: each with its reason and its test.
fn spoilt_figures<'v>(view: &'v View<'_>) -> Vec<(&'v str, &'v DutResult<'v>)> {
    let mut all = Vec::new();
    for figure in &view.ranking.figures {
        for result in view.sections[figure.section].results.iter().filter(|result| !is_spoilt(&result.standing)) {
            let missing = figure.entries[result.dut].missing().filter(|missing| missing.by == Blame::Spoilt);
            all.extend(missing.map(|missing| (missing.why.as_str(), result)));
        }
    }
    all
}

/// What to do about the tests and figures that could not be measured.
fn remedies(view: &View) -> Vec<String> {
    let results = view.sections.iter().flat_map(|section| &section.results);
    let tests = results.filter_map(|result| match &result.standing {
        Standing::Ended(TestStatus::Unfit(why)) => Some((why.as_str(), result)),
        _ => None,
    });
    let is_of_host = |why: &str| why.contains(HOST_BUSY) || why.contains(HELD_OFF);
    let (of_host, own): (Vec<_>, Vec<_>) = tests.chain(spoilt_figures(view)).partition(|(why, _)| is_of_host(why));
    let mut out: Vec<String> = Vec::new();
    if !of_host.is_empty() {
        let trials = of_host.iter().flat_map(|(_, result)| &result.trials);
        let causes = grouped(trials.filter_map(|trial| Some((cause(reasons(trial))?, ()))));
        let top = causes.into_iter().max_by_key(|(_, trials)| trials.len()).map(|(cause, _)| cause);
        out.push(match top.as_deref() {
            Some("hypervisor") => "Use a machine whose processors no other guest shares.".into(),
            Some("unknown") | None => "Use a quieter machine; `drophammer doctor` shows what disturbs it.".into(),
            Some(program) => format!("Stop `{program}` first, or use a machine with more processors."),
        });
    }
    if !own.is_empty() {
        let step = "Where the tester was too slow, lower `max_load`, or use a faster backend or more `--threads`.";
        out.push(step.into());
    }
    out
}

/// Explains why a DUT has no value for a figure: `not measured: the host was busy`.
pub fn why_missing(figure: &Ranked, dut: usize) -> Option<String> {
    let missing = figure.entries[dut].missing()?;
    let what = match missing.by {
        Blame::Dut => "no value",
        Blame::Spoilt | Blame::Beyond => "not measured",
        Blame::Nothing => "nothing to measure",
    };
    Some(format!("{what}: {}", missing.why))
}

/// The figures for which a DUT offered nothing to measure, with the reasons. This is not a problem.
pub fn nothing_to_measure(view: &View) -> Vec<String> {
    without_value(view, |by| by == Blame::Nothing)
}

/// The figures for which a DUT has no value, with the reasons.
pub fn missing(view: &View) -> Vec<String> {
    without_value(view, |by| by != Blame::Nothing)
}

fn without_value(view: &View, wanted: impl Fn(Blame) -> bool) -> Vec<String> {
    let mut lines = Vec::new();
    for figure in &view.ranking.figures {
        for (dut, entry) in figure.entries.iter().enumerate() {
            let why = why_missing(figure, dut).filter(|_| entry.missing().is_some_and(|missing| wanted(missing.by)));
            let (title, name) = (grid::distinct_title(view, figure), view.dut(dut).name);
            lines.extend(why.map(|why| format!("{title} of {name}: {why}")));
        }
    }
    lines
}

/// Starts of the reason of a trial during which a router died.
const DIED: [&str; 2] = ["the device under test died", "a device under test died"];
/// Start of the reason of a trial that the user stopped.
const STOPPED: [&str; 1] = ["stopped by the user"];

fn begins_with(trial: &TrialRecord, starts: &[&str]) -> bool {
    reasons(trial).iter().any(|reason| starts.iter().any(|start| reason.starts_with(start)))
}

/// One sentence on how many trials were disturbed; `None` without trials.
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
        let by = match (programs, has("hypervisor"), has("unknown")) {
            (true, true, false) => "other programs or a hypervisor",
            (true, false, false) => "other programs",
            (false, true, false) => "a hypervisor",
            _ => "the host",
        };
        parts.push(format!("{} {} disturbed by {by} and repeated", n(disturbed), was(disturbed)));
    }
    let others = view.invalid_trials().into_iter().filter(|trial| cause(reasons(trial)).is_none());
    let (died, others): (Vec<&TrialRecord>, Vec<&TrialRecord>) = others.partition(|trial| begins_with(trial, &DIED));
    let (stopped, own): (Vec<&TrialRecord>, Vec<&TrialRecord>) =
        others.into_iter().partition(|trial| begins_with(trial, &STOPPED));
    let (died, stopped, own) = (died.len(), stopped.len(), own.len());
    if own > 0 {
        parts.push(format!("{} {} spoilt by the tester itself", n(own), was(own)));
    }
    if died > 0 {
        parts.push(format!("{} ended when a router died", n(died)));
    }
    if stopped > 0 {
        parts.push(format!("{} {} stopped by the user", n(stopped), was(stopped)));
    }
    let last = parts.pop()?;
    let parts = if parts.is_empty() { last } else { format!("{} and {last}", parts.join(", ")) };
    Some(format!("Of {} trials, {parts}. No figure uses them.", n(all)))
}

/// What disturbed trials, and how many: `rustc 31, cc1 12, hypervisor 18`; `None` if nothing did.
pub fn causes_text(view: &View) -> Option<String> {
    let causes: Vec<String> =
        causes(&view.run.trials).into_iter().map(|(cause, trials)| format!("{cause} {trials}")).collect();
    (!causes.is_empty()).then(|| causes.join(", "))
}

/// Returns [`causes_text`], and the number of disturbed trials of each router.
pub fn disturbed_by(view: &View) -> Option<String> {
    causes_text(view).map(|causes| format!("Disturbed by: {causes}. By router: {}.", view.held_up_text()))
}

/// Names the DUTs with tests that could not be measured because the host was busy, although trials were repeated;
/// `None` if there are none.
pub fn host_busy(view: &View) -> Option<String> {
    let one = |(dut, held): (usize, &HeldUp)| {
        let of_host = |standing: &Standing| matches!(standing, Standing::Ended(TestStatus::Unfit(why)) if why.contains(HOST_BUSY));
        let own = |section: &&Section| section.results.iter().any(|r| r.dut == dut && of_host(&r.standing));
        let tests: Vec<&str> = view.sections.iter().filter(own).map(|section| section.title.as_str()).collect();
        (held.share() > 0.5 && !tests.is_empty()).then(|| {
            let (invalid, trials, dut) = (held.invalid, held.trials, view.duts[dut].label());
            format!("{} of {dut} could not be measured: {invalid} of {trials} trials were disturbed", tests.join(", "))
        })
    };
    let all: Vec<String> = view.held_up.iter().enumerate().filter_map(one).collect();
    (!all.is_empty()).then(|| format!("host busy: {}", all.join("; ")))
}

/// The command that continues the run of `view`.
fn resume(view: &View) -> String {
    resumed(&view.run.started.command, &view.run.dir.display().to_string())
}

/// Maximum number of steps that a report names.
const STEPS: usize = 3;

/// What to do next, with the most important step first.
pub fn next_steps(view: &View) -> Vec<String> {
    let ending = Ending::of(view);
    let started = &view.run.started;
    let mut out = Vec::new();
    match ending {
        // A self-test cannot be resumed.
        Ending::Open if !view.run.running && started.profile != SELF_TEST => {
            out.push(format!("Continue this run: `{}`.", resume(view)));
        }
        Ending::Failed(_) => out.push("Read the problems below; each names the cause and the log.".into()),
        Ending::Unmeasured(_) => {
            if started.profile != SELF_TEST {
                out.push(format!("Measure the spoilt rounds again: `{}`.", resume(view)));
            }
            out.extend(remedies(view));
        }
        Ending::Undecided(_) => out.push("Run more rounds (`--rounds`, `--time`) to decide the open criteria.".into()),
        Ending::Open | Ending::Missed(_) | Ending::Good => {}
    }
    let is_compared = (0..view.duts.len()).any(|dut| grid::ranked_kind(view, dut));
    let figures = &view.ranking.figures;
    let has_rank = |figure: &&Ranked| figure.entries.iter().any(|entry| entry.rank.is_some());
    let apart = |figure: &&Ranked| (0..view.duts.len()).any(|dut| grid::is_best(figure, dut));
    if is_compared && started.rounds < 2 {
        out.push("Run six rounds (`--rounds 6`) to rank the routers.".into());
    } else if is_compared && figures.iter().filter(has_rank).any(|figure| !apart(&figure)) {
        out.push("To find smaller differences, run longer: `--time 1h`.".into());
    }
    let bound = |by_suite: bool| {
        let is_one = |figure: &Ranked, dut: usize| {
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
        out.push("Keep this folder: `drophammer compare` compares later runs with it.".into());
    }
    out.truncate(STEPS);
    out
}
