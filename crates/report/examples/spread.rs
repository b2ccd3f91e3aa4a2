//! Summarizes runs of the same suite: `cargo run -p drophammer-report --example spread -- RUN-FOLDER...`.
//!
//! For each figure and run, it prints the median of each DUT, the ratio of the largest to the smallest median, and the
//! ranks if they differ. Then it prints the spread of the medians between runs. The last line counts the runs in which any
//! ranks differ.

use drophammer_model::figure::Figure;
use drophammer_report::combined;
use drophammer_report::rank::Ranked;
use drophammer_report::view::View;
use drophammer_store::{Run, RunReader};
use std::io::Write;
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folders: Vec<String> = std::env::args().skip(1).collect();
    if folders.is_empty() {
        return Err("name the folders of the runs".into());
    }
    let runs: Result<Vec<Run>, _> = folders.iter().map(|folder| RunReader::open(Path::new(folder))).collect();
    std::io::stdout().write_all(text(&runs?).as_bytes())?;
    Ok(())
}

/// One figure in one run.
struct Seen {
    /// Test and figure: `throughput / throughput-64`.
    name: String,
    unit: String,
    /// The median of each DUT, in the order of the suite.
    medians: Vec<(String, Option<Figure>)>,
    /// The rank of each DUT, if some were ranked apart.
    ranks: Vec<(String, u32)>,
    /// True if no two DUTs were compared in this figure.
    unranked: bool,
}

/// The complete text, with a line feed after each line.
fn text(runs: &[Run]) -> String {
    let combined: Vec<Run> = runs.iter().map(combined).collect();
    let views: Vec<View> = combined.iter().map(View::new).collect();
    let seen: Vec<Vec<Seen>> = views.iter().map(figures).collect();
    let mut lines = Vec::new();
    for (view, figures) in views.iter().zip(&seen) {
        lines.push(format!("{}: {}", view.run.dir.display(), view.state_text()));
        let invalid = view.held_up_text();
        lines.push(format!("  invalid because of the host: {}", if invalid.is_empty() { "none" } else { &invalid }));
        lines.extend(drophammer_report::ending::host_busy(view).map(|why| format!("  {why}")));
        lines.extend(figures.iter().map(|figure| format!("  {}", figure.line())));
    }
    lines.push("between the runs".into());
    let mut names: Vec<&str> = Vec::new();
    for figure in seen.iter().flatten() {
        if !names.contains(&figure.name.as_str()) {
            names.push(&figure.name);
        }
    }
    for name in names {
        let same: Vec<&Seen> = seen.iter().flatten().filter(|figure| figure.name == name).collect();
        lines.push(format!("  {}", between(name, &same)));
    }
    let apart = seen.iter().filter(|figures| figures.iter().any(Seen::apart)).count();
    lines.push(format!("ranked apart in {apart} of {} runs", runs.len()));
    lines.join("\n") + "\n"
}

fn figures(view: &View) -> Vec<Seen> {
    let seen = |ranked: &Ranked| {
        let of = || view.duts.iter().zip(&ranked.entries);
        let median = |entry: &drophammer_report::rank::Entry| entry.summary.as_ref().map(|summary| summary.median);
        let ranks: Vec<(String, u32)> =
            of().filter_map(|(dut, entry)| Some((dut.name.to_owned(), entry.rank?))).collect();
        Seen {
            name: format!("{} / {}", view.sections[ranked.section].id, ranked.key),
            unit: ranked.unit.clone(),
            medians: of().map(|(dut, entry)| (dut.name.to_owned(), median(entry))).collect(),
            unranked: ranks.is_empty(),
            ranks: if ranks.iter().any(|(_, rank)| *rank > 1) { ranks } else { Vec::new() },
        }
    };
    view.ranking.figures.iter().map(seen).collect()
}

impl Seen {
    fn apart(&self) -> bool {
        !self.ranks.is_empty()
    }

    fn line(&self) -> String {
        let medians: Vec<String> =
            self.medians.iter().map(|(dut, median)| format!("{dut} {}", shown(*median))).collect();
        let exact: Vec<f64> = self.medians.iter().filter_map(|(_, median)| exact(*median)).collect();
        let ranks: Vec<String> = self.ranks.iter().map(|(dut, rank)| format!("{dut} {rank}")).collect();
        let verdict = match (self.apart(), self.unranked) {
            (true, _) => format!("RANKED APART: {}", ranks.join(", ")),
            (false, true) => "not ranked".into(),
            (false, false) => "tied".into(),
        };
        format!("{} [{}]: {}; {}; {verdict}", self.name, self.unit, medians.join(", "), ratio(&exact))
    }
}

/// How the medians spread over `runs`, for each DUT and for all DUTs together.
fn between(name: &str, runs: &[&Seen]) -> String {
    let mut duts: Vec<&str> = Vec::new();
    for (dut, _) in runs.iter().flat_map(|seen| &seen.medians) {
        if !duts.contains(&dut.as_str()) {
            duts.push(dut);
        }
    }
    let of = |dut: Option<&str>| -> Vec<f64> {
        let all = runs.iter().flat_map(|seen| &seen.medians);
        all.filter(|(own, _)| dut.is_none_or(|dut| dut == own)).filter_map(|(_, median)| exact(*median)).collect()
    };
    let each: Vec<String> = duts.iter().map(|dut| format!("{dut} {}", range(&of(Some(dut))))).collect();
    let apart = runs.iter().filter(|seen| seen.apart()).count();
    format!("{name}: {}; all {}; apart in {apart} of {}", each.join(", "), range(&of(None)), runs.len())
}

fn exact(median: Option<Figure>) -> Option<f64> {
    median.filter(|figure| figure.is_exact()).map(Figure::bound).filter(|value| value.is_finite())
}

fn shown(median: Option<Figure>) -> String {
    match median {
        None => "-".into(),
        Some(figure) if figure.is_exact() => number(figure.low),
        Some(figure) if figure.low.is_finite() && figure.high.is_finite() => {
            format!("{}..{}", number(figure.low), number(figure.high))
        }
        Some(figure) if figure.low.is_finite() => format!(">={}", number(figure.low)),
        Some(figure) if figure.high.is_finite() => format!("<={}", number(figure.high)),
        Some(_) => "-".into(),
    }
}

/// At least five significant digits, and all digits before the decimal point.
fn number(value: f64) -> String {
    let digits = if value == 0.0 { 0 } else { (4.0 - value.abs().log10().floor()).max(0.0) as usize };
    format!("{value:.digits$}")
}

fn ends(values: &[f64]) -> Option<(f64, f64)> {
    let least = values.iter().copied().reduce(f64::min)?;
    Some((least, values.iter().copied().fold(least, f64::max)))
}

/// `max/min 1.02`; for values that include zero the difference, and a dash for a single value.
fn ratio(values: &[f64]) -> String {
    match ends(values) {
        Some((least, most)) if values.len() > 1 && least > 0.0 => format!("max/min {:.3}", most / least),
        Some((least, most)) if values.len() > 1 => format!("max-min {}", number(most - least)),
        _ => "max/min -".into(),
    }
}

fn range(values: &[f64]) -> String {
    ends(values).map_or("-".into(), |(least, most)| format!("{}..{} ({})", number(least), number(most), ratio(values)))
}

#[cfg(test)]
#[path = "../tests/synthetic/mod.rs"]
mod synthetic;

#[cfg(test)]
mod tests {
    use super::*;

    /// Six rounds of `duts` DUTs.
    fn run(duts: usize) -> Run {
        synthetic::in_rounds(&synthetic::run(duts), 6)
    }

    #[test]
    fn every_figure_of_every_run_has_a_line_and_the_last_one_counts() {
        let runs = [run(3), run(3)];
        let text = text(&runs);
        let combined = combined(&runs[0]);
        let ranking = View::new(&combined).ranking;
        assert!(ranking.figures.len() > 3, "the made-up run has figures");
        for figure in &ranking.figures {
            let apart = figure.entries.iter().any(|entry| entry.rank > Some(1));
            let start = format!("/ {} [{}]: ", figure.key, figure.unit);
            let lines: Vec<&str> = text.lines().filter(|line| line.contains(&start)).collect();
            assert_eq!(lines.len() % 2, 0, "{start}: {lines:?}");
            assert!(lines.iter().any(|line| line.contains("RANKED APART") == apart), "{start}: {lines:?}");
        }
        let any = ranking.figures.iter().any(|figure| figure.entries.iter().any(|entry| entry.rank > Some(1)));
        assert!(any, "the made-up DUTs differ");
        assert_eq!(text.lines().last(), Some("ranked apart in 2 of 2 runs"));
    }

    #[test]
    fn a_single_dut_is_never_ranked_apart() {
        let text = text(&[run(1)]);
        assert!(!text.contains("RANKED APART") && text.contains("not ranked"), "{text}");
        assert_eq!(text.lines().last(), Some("ranked apart in 0 of 1 runs"));
    }

    #[test]
    fn spreads_and_bounds() {
        assert_eq!(ratio(&[100.0, 108.0, 104.0]), "max/min 1.080");
        assert_eq!(ratio(&[0.0, 0.5]), "max-min 0.50000");
        assert_eq!(ratio(&[5.0]), "max/min -");
        assert_eq!(range(&[2.0, 1.0]), "1.0000..2.0000 (max/min 2.000)");
        assert_eq!(shown(Some(Figure::at_least(1234567.0))), ">=1234567");
        assert_eq!(shown(Some(Figure::at_most(0.5))), "<=0.50000");
        assert_eq!((shown(None), shown(Some(Figure::exactly(0.0)))), ("-".into(), "0".into()));
        assert_eq!(exact(Some(Figure::at_least(3.0))), None, "a bound is not a median");
    }
}
