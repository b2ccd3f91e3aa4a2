//! A paragraph about one test, made from its data.

use crate::conclusion::list;
use crate::format::several;
use crate::grid::{self, figure_value};
use crate::grouped;
use crate::rank::Ranked;
use crate::view::{Section, View};
use drophammer_model::figure::Decision;
use drophammer_model::record::TestStatus;

/// Maximum number of figures that get their own sentences.
const FIGURES: usize = 4;
/// Maximum number of DUTs whose values a sentence contains.
const VALUES: usize = 6;

/// States how much was measured, what the figures are and prove, and how many criteria are met. `None` if the test has
/// not ended on any DUT, and for tests of the tester alone.
pub fn of_test(view: &View, section: &Section) -> Option<String> {
    let at = view.sections.iter().position(|known| known.id == section.id)?;
    let mut sentences = vec![extent(view, section)?];
    let figures: Vec<&Ranked> = view.ranking.figures.iter().filter(|figure| figure.section == at).collect();
    let (told, rest) = figures.split_at(figures.len().min(FIGURES));
    sentences.extend(told.iter().filter_map(|figure| of_figure(view, figure)));
    match rest.len() {
        0 => {}
        1 => sentences.push("One more figure is in the summary.".into()),
        more => sentences.push(format!("{more} more figures are in the summary.")),
    }
    sentences.extend(criteria(section));
    Some(sentences.join(" "))
}

/// `Tested: frr and bird, in 4 rounds with 96 trials, of which 2 were invalid.`
fn extent(view: &View, section: &Section) -> Option<String> {
    let has_run = |status: &TestStatus| {
        matches!(status, TestStatus::Completed | TestStatus::Partly(_) | TestStatus::FewerRounds(_))
    };
    let tested = || section.results.iter().filter(|result| result.record.is_some_and(|test| has_run(&test.status)));
    let names: Vec<String> = tested().map(|result| view.dut(result.dut).label()).collect();
    if names.is_empty() {
        return None;
    }
    let rounds = match tested().map(|result| result.rounds).max().unwrap_or(1) {
        0 | 1 => "one round".into(),
        rounds => several(rounds, "round"),
    };
    let trials = || section.results.iter().flat_map(|result| &result.trials);
    let invalid = match trials().filter(|trial| !trial.result.validity.is_valid()).count() {
        0 => String::new(),
        1 => ", of which one was invalid".into(),
        invalid => format!(", of which {invalid} were invalid"),
    };
    let trials = match trials().count() {
        0 => String::new(),
        1 => " with one trial".into(),
        trials => format!(" with {trials} trials"),
    };
    Some(format!("Tested: {}, in {rounds}{trials}{invalid}.", list(&names)))
}

/// The values of a figure, then what they prove.
fn of_figure(view: &View, figure: &Ranked) -> Option<String> {
    let unit = if figure.unit.is_empty() { String::new() } else { format!(" {}", figure.unit) };
    let known: Vec<usize> = (0..view.duts.len()).filter(|dut| figure.entries[*dut].value().is_some()).collect();
    let values: Vec<String> = known
        .iter()
        .take(VALUES)
        .map(|dut| {
            let (value, mark) = (figure_value(figure, *dut), grid::limit_mark(figure, *dut));
            format!("{value}{unit}{mark} on {}", view.duts[*dut].label())
        })
        .collect();
    if values.is_empty() {
        return None;
    }
    let more = match known.len() - values.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let values = format!("{}: {}{more}.", figure.title, list(&values));
    Some([Some(values), proof(view, figure)].into_iter().flatten().collect::<Vec<_>>().join(" "))
}

/// What the figure proves about the DUTs; `None` if there is nothing to compare.
fn proof(view: &View, figure: &Ranked) -> Option<String> {
    let duts = 0..view.duts.len();
    let ranked = duts.clone().filter(|dut| figure.entries[*dut].rank.is_some()).count();
    let unsound: Vec<String> = duts
        .clone()
        .filter(|dut| figure.entries[*dut].refuted() || figure.entries[*dut].doubtful())
        .map(|dut| view.duts[dut].label())
        .collect();
    let doubt = (!unsound.is_empty()).then(|| {
        format!("Other trials contradict or cast doubt on the value of {}, so it has no rank.", list(&unsound))
    });
    let best = duts.clone().filter(|dut| grid::is_best(figure, *dut));
    let groups = grouped(best.map(|dut| (figure.entries[dut].better_than.as_slice(), view.duts[dut].label())));
    let better = groups.iter().map(|(behind, names)| {
        let others: Vec<String> = behind.iter().map(|dut| view.duts[*dut].label()).collect();
        let verb = if names.len() == 1 { "is" } else { "are" };
        format!("{} {verb} better than {}.", list(names), list(&others))
    });
    let none = || {
        if ranked < 2 {
            return None;
        }
        if let Some(dut) = duts.clone().find(|dut| grid::all_limited(view, figure, *dut)) {
            let limit = if figure.entries[dut].suite_limited() { "suite" } else { "tester" };
            return Some(format!("The {limit} was the limit for all."));
        }
        let found = grid::detectable(figure).map(|least| format!("; the run would have found a difference of {least}"));
        Some(format!("No difference is proven{}.", found.unwrap_or_default()))
    };
    let proven: Vec<String> = better.collect();
    let proven = if proven.is_empty() { none() } else { Some(proven.join(" ")) };
    let both: Vec<String> = [proven, doubt].into_iter().flatten().collect();
    (!both.is_empty()).then(|| both.join(" "))
}

/// `2 of 3 criteria are met, 1 is undecided.`
fn criteria(section: &Section) -> Option<String> {
    let records = section.results.iter().filter_map(|result| result.record);
    let all: Vec<Decision> =
        records.flat_map(|test| &test.outcome.verdicts).map(|verdict| verdict.decision()).collect();
    let count = |decision| all.iter().filter(|own| **own == decision).count();
    let (met, missed, open) = (count(Decision::Met), count(Decision::Missed), count(Decision::Undecided));
    match (all.len(), met) {
        (0, _) => None,
        (1, 1) => Some("The criterion is met.".into()),
        (all, met) if met == all => Some(format!("All {all} criteria are met.")),
        (all, met) => {
            let rest = [(missed, "missed"), (open, "undecided")].into_iter().filter(|(count, _)| *count > 0);
            let rest = rest.map(|(count, how)| format!(", {count} {} {how}", if count == 1 { "is" } else { "are" }));
            let are = if met == 1 { "is" } else { "are" };
            Some(format!("{met} of {all} criteria {are} met{}.", rest.collect::<String>()))
        }
    }
}
