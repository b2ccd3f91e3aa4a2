//! Summarizes a run in a few sentences.

use crate::format::several;
use crate::grid::{self, distinct_title, marked_value};
use crate::rank::{Duet, Ranked};
use crate::view::{DutResult, DutView, Section, Standing, View};
use crate::{ending, grouped};
use drophammer_judge::statistics::PairedRatio;

/// Maximum number of figures that a sentence names.
const NAMED: usize = 5;
/// Maximum number of sentences about leading DUTs.
const SENTENCES: usize = 5;

/// The sentences, with the most important first. If the run has only one DUT, or no figures, all sentences are about
/// refuted and doubtful figures.
pub fn conclusion(view: &View) -> Vec<String> {
    let mut out = compared(view);
    out.extend(refuted(view));
    out.extend(doubtful(view));
    out
}

/// Figures that depend on frames lost while the processor was idle, grouped by the reason for doubt.
fn doubtful(view: &View) -> Vec<String> {
    let entries = view
        .ranking
        .figures
        .iter()
        .flat_map(|figure| view.duts.iter().zip(&figure.entries).map(move |(dut, entry)| (figure, dut, entry)));
    let all = grouped(entries.filter_map(|(figure, dut, entry)| {
        let doubt = entry.figure.as_ref()?.doubts.first()?;
        Some(((dut.label(), doubt.text.as_str()), distinct_title(view, figure)))
    }));
    let named = all.iter().take(NAMED).map(|((dut, text), titles)| match titles.as_slice() {
        [title] => format!("{title} of {dut} is doubtful and has no rank: {text}."),
        [first, rest @ ..] => {
            let more = if rest.len() == 1 { "one more figure".into() } else { format!("{} more figures", rest.len()) };
            format!("{first} and {more} of {dut} are doubtful and have no rank: {text}.")
        }
        [] => String::new(),
    });
    let mut out: Vec<String> = named.collect();
    let more: usize = all.iter().skip(NAMED).map(|(_, titles)| titles.len()).sum();
    out.extend((more > 0).then(|| format!("{more} more figures are doubtful; their rows are marked.")));
    out
}

/// Figures that other trials contradict.
fn refuted(view: &View) -> Vec<String> {
    let mut all = Vec::new();
    for figure in &view.ranking.figures {
        for (dut, entry) in view.duts.iter().zip(&figure.entries).filter(|(_, entry)| entry.refuted()) {
            all.extend(entry.figure.iter().flat_map(|f| f.refuted.first()).map(|r| (figure, dut.label(), r)));
        }
    }
    let named = all.iter().take(NAMED).map(|(figure, dut, refutation)| {
        format!("{} of {dut} is refuted by {} and has no rank.", distinct_title(view, figure), refutation.text)
    });
    let mut out: Vec<String> = named.collect();
    let more = all.len().saturating_sub(NAMED);
    out.extend((more > 0).then(|| format!("{more} more figures are refuted; their rows are marked.")));
    out
}

fn compared(view: &View) -> Vec<String> {
    let figures = &view.ranking.figures;
    if figures.is_empty() || (0..view.duts.len()).all(|dut| !grid::ranked_kind(view, dut)) {
        return Vec::new();
    }
    let rounds = view.run.started.rounds;
    let is_ranked = |figure: &&Ranked| figure.entries.iter().any(|entry| entry.rank.is_some());
    let duets = duets(view);
    // Trials at the same time need no second round.
    let ranked = figures.iter().filter(is_ranked).count();
    if rounds < 2 && ranked == 0 {
        return vec![
            "One round cannot tell a difference from noise, so there are no ranks; `--rounds 6` runs six.".into(),
        ];
    }
    // A stopped run has completed fewer rounds than planned.
    let rounds_of = |result: &DutResult<'_>| match result.standing {
        // The test has not ended in any round.
        Standing::CutOff | Standing::NotReached => 0,
        Standing::Ended(_) | Standing::NotRun => result.rounds,
    };
    let begun = |section: &Section<'_>| section.results.iter().map(rounds_of).min();
    let rounds = view.sections.iter().filter_map(begun).max().unwrap_or(0).min(rounds as usize);
    if rounds < 2 && ranked == 0 {
        return vec![
            "The run was stopped before a second round of every DUT. One round cannot tell a difference from noise, so there are no ranks; \
             `--resume` continues the run."
                .into(),
        ];
    }
    let busy = ending::host_busy(view).map(|why| format!("{}{}.", why[..1].to_uppercase(), &why[1..]));
    let apart = figures.iter().filter(|figure| (0..view.duts.len()).any(|dut| grid::is_best(figure, dut))).count();
    if alike(&view.duts) {
        return [of_alike(apart, figures.len())].into_iter().chain(duets).chain(busy).collect();
    }
    let mut out = leaders(view);
    out.extend(duets);
    out.extend(busy);
    let open = ranked - apart;
    out.extend(tied(apart, open, rounds));
    out.extend(uncompared(view));
    out.extend(different_loads(view));
    out.extend(mixed_installation(&view.duts));
    out
}

/// DUTs are called equal only if they differ by at most this percentage.
const EQUAL: f64 = 10.0;

/// Sentences about DUTs that were measured at the same time: which DUT has more, by how much, and how certain the
/// difference is.
fn duets(view: &View) -> Vec<String> {
    let all = view.ranking.figures.iter().flat_map(|figure| figure.duets.iter().map(move |duet| (figure, duet)));
    let text = |(figure, duet): (&Ranked, &Duet)| {
        let PairedRatio { ratio, low, high, .. } = duet.ratio;
        let (a, b) = (view.duts[duet.a].label(), view.duts[duet.b].label());
        // Name the DUT with the higher value first.
        let (more, less, ratio, low, high) = match ratio >= 1.0 {
            true => (a, b, ratio, low, high),
            false => (b, a, 1.0 / ratio, 1.0 / high, 1.0 / low),
        };
        let [by, least, most] = [ratio, low, high].map(|ratio| (ratio - 1.0) * 100.0);
        let title = distinct_title(view, figure);
        let apart = figure.entries[duet.a].better_than.contains(&duet.b);
        if apart || figure.entries[duet.b].better_than.contains(&duet.a) {
            return format!(
                "{title}: {more} has {by:.1} % more than {less} (99 % interval: {least:.1} to {most:.1} %)."
            );
        }
        let within = most.max(-least);
        let found = match within {
            // On its own this comparison would prove the difference, but not together with all comparisons of the
            // report.
            _ if least > 0.0 => format!("it is not proven that {more} has more than {less}"),
            _ if within <= EQUAL => format!("{more} and {less} are equal within {within:.1} %"),
            _ => format!("{more} and {less} cannot be told apart"),
        };
        format!("{title}: {found} (99 % interval: {least:.1} to {most:.1} %).")
    };
    all.take(NAMED).map(text).collect()
}

/// States in how many of the compared figures no difference was proven.
fn tied(apart: usize, open: usize, rounds: usize) -> Option<String> {
    Some(match (apart, open) {
        (0, 0) => return None,
        (0, 1) => format!("In {rounds} rounds no difference was proven in the one figure that could be compared."),
        (0, _) => format!("In {rounds} rounds no difference was proven in any of {open} figures."),
        (1, 0) => "The one figure that could be compared tells DUTs apart.".into(),
        (_, 0) => format!("All {apart} figures that could be compared tell DUTs apart."),
        (_, 1) => "In one figure no difference was proven.".into(),
        _ => format!("In {open} of {} figures no difference was proven.", apart + open),
    })
}

/// The figures for which DUTs could not be compared, grouped by reason.
fn uncompared(view: &View) -> Option<String> {
    let unranked = view.ranking.figures.iter().filter(|figure| figure.entries.iter().all(|e| e.rank.is_none()));
    let why = |figure| (0..view.duts.len()).find_map(|dut| grid::not_compared(view, figure, dut));
    let rules = grouped(unranked.filter_map(|figure| Some((why(figure)?, ()))));
    let all: usize = rules.iter().map(|(_, figures)| figures.len()).sum();
    let each: Vec<String> = rules.iter().map(|(why, figures)| format!("{why} {}", figures.len())).collect();
    (all > 0).then(|| format!("Not compared: {} ({}).", several(all, "figure"), each.join(", ")))
}

/// Names the figures in which DUTs were measured at different loads.
fn different_loads(view: &View) -> Option<String> {
    let figures = view.ranking.figures.iter().filter(|f| f.different_loads);
    let named: Vec<String> = figures.map(|figure| distinct_title(view, figure)).collect();
    let (first, more) = named.split_first()?;
    let more = match more.len() {
        0 => String::new(),
        1 => " and one more figure".into(),
        n => format!(" and {n} more figures"),
    };
    Some(format!(
        "{first}{more}: DUTs that were measured at different loads are not compared. A test of latency with `compare_at` measures all \
         DUTs at one load."
    ))
}

/// Warns if only some DUTs install BGP routes in their forwarding plane.
fn mixed_installation(duts: &[DutView]) -> Option<String> {
    let of = |wanted: bool| {
        let installs = |dut: &&DutView| dut.records.first().and_then(|r| r.installs_routes) == Some(wanted);
        duts.iter().filter(installs).map(DutView::label).collect::<Vec<_>>().join(", ")
    };
    let (with, without) = (of(true), of(false));
    (!with.is_empty() && !without.is_empty()).then(|| {
        format!("Figures of routes compare different work: only {with} put BGP routes into the forwarding plane, {without} did not.")
    })
}

/// The kind of routers about which the tester knows nothing but their interfaces.
const EXTERNAL: &str = "external";

/// True if all DUTs are the same real router with several names.
fn alike(duts: &[DutView]) -> bool {
    let what = |dut: &DutView| {
        let record = dut.records.first()?;
        // In the lab, every router has interfaces with names of its own.
        let ports = record.ports.iter().filter(|_| record.kind == EXTERNAL);
        let interfaces: Vec<String> = ports.map(|port| port.interface.clone()).collect();
        Some((record.kind.clone(), record.version.clone(), record.config.clone(), interfaces))
    };
    let first = duts.first().and_then(what);
    first.is_some() && duts.iter().all(|dut| !dut.simulated && what(dut) == first)
}

fn of_alike(apart: usize, of: usize) -> String {
    match apart {
        0 => format!(
            "The DUTs are one router under several names, and none of {of} figures ranks them apart. This run cannot detect differences \
             smaller than the one given with each figure."
        ),
        _ => format!(
            "The DUTs are one router under several names, yet {apart} of {of} figures rank them apart. By chance this happens in one run \
             of twenty; more likely, something disturbs measurements on this machine."
        ),
    }
}

/// DUTs that lead together in some figures: they are better than the same DUTs, and no DUT is better than any of them.
struct Leaders<'a> {
    duts: Vec<usize>,
    figures: Vec<&'a Ranked>,
}

/// Sentences about the figures in which DUTs lead. DUTs that lead together share a sentence.
fn leaders(view: &View) -> Vec<String> {
    let of_figure = |figure: &'_ Ranked| {
        let best = view.ranking.order.iter().copied().filter(|dut| grid::is_best(figure, *dut));
        grouped(best.map(|dut| (figure.entries[dut].better_than.clone(), dut))).into_iter().map(|(_, duts)| duts)
    };
    let led = view.ranking.figures.iter().flat_map(|figure| of_figure(figure).map(move |duts| (duts, figure)));
    let mut all: Vec<Leaders> = grouped(led).into_iter().map(|(duts, figures)| Leaders { duts, figures }).collect();
    let place = |dut: &usize| view.ranking.order.iter().position(|other| other == dut);
    all.sort_by_key(|leaders| leaders.duts.iter().map(place).collect::<Vec<_>>());
    let mut out: Vec<String> = all.iter().take(SENTENCES).map(|leaders| leaders.text(view)).collect();
    match all.iter().skip(SENTENCES).map(|leaders| leaders.figures.len()).sum::<usize>() {
        0 => {}
        1 => out.push("Others lead in one more figure.".into()),
        more => out.push(format!("Others lead in {more} more figures.")),
    }
    out
}

/// States by how much `own` leads `other`: `25 % more`, `2.8 times as much`; `None` for bounds and differences.
fn by_how_much(figure: &Ranked, own: usize, other: usize) -> Option<String> {
    let value = |dut: usize| {
        let median = figure.entries[dut].summary?.median;
        median.is_exact().then_some(median.low).filter(|value| *value > 0.0)
    };
    let ratio = value(own)? / value(other)?;
    if figure.by_difference {
        return None;
    }
    Some(match ratio {
        2.0.. => format!("{ratio:.1} times as much"),
        1.1.. => format!("{:.0} % more", (ratio - 1.0) * 100.0),
        1.0.. => format!("{:.1} % more", (ratio - 1.0) * 100.0),
        0.9.. => format!("{:.1} % less", (1.0 - ratio) * 100.0),
        _ => format!("{:.0} % less", (1.0 - ratio) * 100.0),
    })
}

impl Leaders<'_> {
    fn text(&self, view: &View) -> String {
        let unit = |figure: &Ranked| if figure.unit.is_empty() { String::new() } else { format!(" {}", figure.unit) };
        let named = self.figures.iter().take(NAMED).map(|figure| {
            let values: Vec<String> = self.duts.iter().map(|dut| marked_value(figure, *dut)).collect();
            let same = values.iter().all(|value| *value == values[0]);
            let own = if same { values[0].clone() } else { list(&values) };
            let behind = figure.entries[self.duts[0]].better_than.iter();
            let by = match (self.duts.as_slice(), behind.as_slice()) {
                ([own], [other]) => by_how_much(figure, *own, *other).map_or(String::new(), |by| format!(": {by}")),
                _ => String::new(),
            };
            let others: Vec<String> = behind
                .map(|other| format!("{} of {}", marked_value(figure, *other), view.duts[*other].label()))
                .collect();
            let (title, unit, others) = (distinct_title(view, figure), unit(figure), others.join(", "));
            format!("{title} ({own}{unit} against {others}{by})")
        });
        let more = match self.figures.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        let names: Vec<String> = self.duts.iter().map(|dut| view.duts[*dut].label()).collect();
        let lead = if names.len() == 1 { "leads" } else { "lead" };
        format!("{} {lead} in {}{more}.", list(&names), named.collect::<Vec<_>>().join(", "))
    }
}

/// `a, b and c`
pub fn list(words: &[String]) -> String {
    match words.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}
