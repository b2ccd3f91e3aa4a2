//! What a run says, in a few sentences made from its data.

use crate::grid::{self, figure_value};
use crate::rank::Ranked;
use crate::view::{DutView, Section, View};

/// Figures named in one sentence at most.
const NAMED: usize = 5;

/// The sentences, the most important first. A run of one DUT, or without figures, has those about refuted and doubtful figures only.
pub fn conclusion(view: &View) -> Vec<String> {
    let mut out = compared(view);
    out.extend(refuted(view));
    out.extend(doubtful(view));
    out
}

/// Figures that rest on frames lost beside an idle processor, by what casts the doubt on them.
fn doubtful(view: &View) -> Vec<String> {
    let mut all: Vec<(String, &str, Vec<&str>)> = Vec::new();
    for figure in &view.ranking.figures {
        for (dut, entry) in view.duts.iter().zip(&figure.entries).filter(|(_, entry)| entry.doubtful()) {
            let Some(doubt) = entry.figure.iter().flat_map(|f| f.doubts.first()).next() else { continue };
            let (dut, text) = (dut.label(), doubt.text.as_str());
            match all.iter_mut().find(|(of, known, _)| *of == dut && *known == text) {
                Some((_, _, titles)) => titles.push(&figure.title),
                None => all.push((dut, text, vec![&figure.title])),
            }
        }
    }
    let named = all.iter().take(NAMED).map(|(dut, text, titles)| match titles.as_slice() {
        [title] => format!("{title} of {dut} is doubtful and has no rank: {text}."),
        [first, rest @ ..] => {
            let more = if rest.len() == 1 { "one more figure".into() } else { format!("{} more figures", rest.len()) };
            format!("{first} and {more} of {dut} are doubtful and have no rank: {text}.")
        }
        [] => String::new(),
    });
    let mut out: Vec<String> = named.collect();
    match all.iter().skip(NAMED).map(|(_, _, titles)| titles.len()).sum::<usize>() {
        0 => {}
        more => out.push(format!("{more} more figures are doubtful; their rows are marked.")),
    }
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
        format!("{} of {dut} is refuted by {} and has no rank.", figure.title, refutation.text)
    });
    let mut out: Vec<String> = named.collect();
    match all.len().saturating_sub(NAMED) {
        0 => {}
        more => out.push(format!("{more} more figures are refuted; their rows are marked.")),
    }
    out
}

fn compared(view: &View) -> Vec<String> {
    let figures = &view.ranking.figures;
    if figures.is_empty() || (0..view.duts.len()).all(|dut| !grid::ranked_kind(view, dut)) {
        return Vec::new();
    }
    let rounds = view.run.started.rounds;
    if rounds < 2 {
        return vec![
            "One round cannot tell a difference from noise, so nothing is ranked; `--rounds 6` runs six.".into(),
        ];
    }
    // A run that was stopped has fewer than it was to have.
    let begun = |section: &Section<'_>| section.results.iter().map(|result| result.rounds).min();
    let rounds = view.sections.iter().filter_map(begun).max().unwrap_or(0).min(rounds as usize);
    if rounds < 2 {
        return vec![
            "The run was stopped before a second round of every DUT. One round cannot tell a difference from noise, so nothing is ranked; \
             `--resume` goes on with it."
                .into(),
        ];
    }
    if let Some(why) = &view.no_ranks {
        let remedy = "Stop other programs on this machine, or use one with more processors.";
        return vec![format!("{}{}. {remedy}", why[..1].to_uppercase(), &why[1..])];
    }
    let apart = figures.iter().filter(|figure| (0..view.duts.len()).any(|dut| grid::is_best(figure, dut))).count();
    if alike(&view.duts) {
        return vec![of_alike(apart, figures.len())];
    }
    let mut out: Vec<String> = view.ranking.order.iter().filter_map(|dut| leads(view, *dut)).collect();
    let open = figures.len() - apart;
    out.push(match (apart, open) {
        (0, _) => format!("In {rounds} rounds no difference was proven in any of the {open} figures."),
        (1, 0) => "The one figure tells DUTs apart.".into(),
        (_, 0) => format!("All {apart} figures tell DUTs apart."),
        (_, 1) => "In one figure no difference was proven.".into(),
        _ => format!("In {open} of {} figures no difference was proven.", figures.len()),
    });
    out.extend(different_loads(figures));
    out.extend(mixed_installation(&view.duts));
    let limited = figures.iter().filter(|figure| figure.entries.iter().any(|entry| entry.tester_limited())).count();
    if limited > 0 {
        out.push(format!(
            "In {limited} of {} figures the tester or the end of the test was the limit of at least one DUT.",
            figures.len()
        ));
    }
    out
}

/// Names the figures in which DUTs were measured at different loads.
fn different_loads(figures: &[Ranked]) -> Option<String> {
    let named: Vec<&str> = figures.iter().filter(|f| f.different_loads).map(|f| f.title.as_str()).collect();
    let (first, more) = named.split_first()?;
    let more = match more.len() {
        0 => String::new(),
        1 => " and one more figure".into(),
        n => format!(" and {n} more figures"),
    };
    Some(format!(
        "{first}{more}: DUTs that were measured at different loads are not compared. A test of latency with `compare_at` measures all of \
         them at one load."
    ))
}

/// Says where some DUTs put BGP routes into their forwarding plane and others do not.
fn mixed_installation(duts: &[DutView]) -> Option<String> {
    let of = |wanted: bool| {
        let installs = |dut: &&DutView| dut.records.first().and_then(|r| r.installs_routes) == Some(wanted);
        duts.iter().filter(installs).map(DutView::label).collect::<Vec<_>>().join(", ")
    };
    let (with, without) = (of(true), of(false));
    (!with.is_empty() && !without.is_empty()).then(|| {
        format!("Figures of routes are not of the same work: only {with} put BGP routes into the forwarding plane, {without} not.")
    })
}

/// Are all DUTs real, and the same router under several names?
fn alike(duts: &[DutView]) -> bool {
    let what = |dut: &DutView| dut.records.first().map(|r| (r.kind.clone(), r.version.clone(), r.config.clone()));
    let first = duts.first().and_then(what);
    first.is_some() && duts.iter().all(|dut| !dut.simulated && what(dut) == first)
}

fn of_alike(apart: usize, of: usize) -> String {
    match apart {
        0 => format!(
            "The DUTs are one router under several names, and none of {of} figures ranks them apart. Differences smaller than those \
             given with each figure cannot be told here."
        ),
        _ => format!(
            "The DUTs are one router under several names, yet {apart} of {of} figures rank them apart. By chance this happens in one run \
             of twenty; more often, something disturbs measurements on this machine."
        ),
    }
}

/// In which figures `dut` is better than another one, and none better than it.
fn leads(view: &View, dut: usize) -> Option<String> {
    let best: Vec<&Ranked> = view.ranking.figures.iter().filter(|figure| grid::is_best(figure, dut)).collect();
    if best.is_empty() {
        return None;
    }
    let named = best.iter().take(NAMED).map(|figure| {
        let unit = if figure.unit.is_empty() { String::new() } else { format!(" {}", figure.unit) };
        let behind = figure.entries[dut].better_than.iter();
        let others: Vec<String> =
            behind.map(|other| format!("{} of {}", figure_value(figure, *other), view.duts[*other].label())).collect();
        format!("{} ({}{unit} against {})", figure.title, figure_value(figure, dut), others.join(", "))
    });
    let more = match best.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let list: Vec<String> = named.collect();
    Some(format!("{} leads in {}{more}.", view.duts[dut].label(), list.join(", ")))
}
