//! CSV files with raw figures (RFC 4180): one per table, one per plot, one of all trials, one of the ranks.

use crate::digest::{self, Filled};
use crate::drops;
use crate::published;
use crate::rates::{self, Added};
use crate::view::{MergedPlot, MergedTable, Section, View};
use drophammer_model::outcome::Cell;
use drophammer_model::trial::Validity;
use drophammer_model::visible::{is_hidden, visible};
use std::collections::{HashMap, HashSet};

/// The names of the files that belong to tables and plots, in the order of [`View::all_sections`] and within each section.
#[derive(Debug, Default)]
pub struct Names {
    /// Per section, per table.
    pub tables: Vec<Vec<String>>,
    /// Per section, per plot.
    pub plots: Vec<Vec<String>>,
}

impl Names {
    /// The names for this view: by key, with the section before it when the key alone is taken.
    pub fn new(view: &View) -> Names {
        let mut taken: HashSet<String> = ["summary", "trials", "published"].map(str::to_owned).into();
        taken.extend((1..=view.run.started.about.digests.len()).map(|number| format!("digest-{number}")));
        let mut names = Names::default();
        for section in view.all_sections() {
            let id = &section.id;
            let table = |t: &MergedTable| name(&[t.key, &format!("{id}-{}", t.key)], &mut taken);
            names.tables.push(section.tables.iter().map(table).collect());
            let mut plot = |key: &str| name(&[&format!("plot-{key}"), &format!("plot-{id}-{key}")], &mut taken);
            names.plots.push(section.plots.iter().map(|p| plot(&p.plot.key)).collect());
        }
        names
    }
}

/// `(file name, content)`.
pub fn files(view: &View) -> Vec<(String, String)> {
    let names = Names::new(view);
    let mut out = vec![("summary.csv".to_owned(), ranks(view)), ("trials.csv".to_owned(), trials(view))];
    out.extend(published(view).map(|text| ("published.csv".to_owned(), text)));
    out.extend(digest::all(view).iter().enumerate().map(|(at, digest)| (digest::file(at), digested(view, digest))));
    for (n, section) in view.all_sections().enumerate() {
        let tables = section.tables.iter().map(|t| table(view, section, t));
        out.extend(names.tables[n].iter().cloned().zip(tables));
        let plots = section.plots.iter().map(|p| plot(view, p));
        out.extend(names.plots[n].iter().cloned().zip(plots));
    }
    out
}

/// The figures of tests that others have published too; `None` if there are none.
fn published(view: &View) -> Option<String> {
    let head = ["test", "figure", "title", "router", "value", "unit", "heading", "source", "meaning"];
    let mut csv = Csv::new(&head.map(str::to_owned));
    let empty = csv.0.len();
    for (n, section) in view.sections.iter().enumerate() {
        let beside = published::in_section(view, n);
        for row in &beside.rows {
            for (router, value) in beside.routers.iter().zip(&row.values) {
                let Some(value) = value else { continue };
                let entry = value.entry;
                let unit = entry.unit.as_deref().or(row.unit);
                let texts = [&section.id, row.key, &row.title, router, value.raw, unit.unwrap_or_default()];
                let told = [&entry.title, &entry.source, entry.meaning.as_deref().unwrap_or_default()];
                csv.row(&texts.into_iter().chain(told).map(str::to_owned).collect::<Vec<_>>());
            }
        }
    }
    (csv.0.len() > empty).then_some(csv.0)
}

fn digested(view: &View, digest: &Filled) -> String {
    let (head, rows) = digest.csv(view);
    let mut csv = Csv::new(&head);
    rows.iter().for_each(|row| csv.row(row));
    csv.0
}

fn table(view: &View, section: &Section, table: &MergedTable) -> String {
    let added = Added::new(view, section, table);
    let mut head = vec!["dut".to_owned()];
    head.extend(table.columns.iter().copied().chain(&added.columns).map(|c| c.key.clone()));
    head.extend(["marks".into(), "trials".into()]);
    let mut csv = Csv::new(&head);
    for (r, more) in table.rows.iter().zip(&added.rows) {
        let mut row = vec![view.dut(r.dut).name.to_owned()];
        row.extend(r.cells.iter().copied().chain(more).map(raw));
        row.push(r.marks.join("; "));
        row.push(r.row.trials.iter().map(u64::to_string).collect::<Vec<_>>().join(" "));
        csv.row(&row);
    }
    csv.0
}

/// Every point of every series, then the events: rows of the series `event` with x and label alone.
fn plot(view: &View, plot: &MergedPlot) -> String {
    let head = ["dut", "series", "reference", "dots", "label", "x", "y", "low", "high", "trial"];
    let mut csv = Csv::new(&head.map(str::to_owned));
    for (series, dut) in plot.plot.series.iter().zip(&plot.dut_of) {
        let dut = dut.map_or("", |d| view.dut(d).name);
        for p in &series.points {
            csv.row(&[
                dut.to_owned(),
                series.name.clone(),
                series.reference.to_string(),
                series.dots.to_string(),
                p.label.clone().unwrap_or_default(),
                p.x.to_string(),
                p.y.to_string(),
                p.range.map(|r| r.0.to_string()).unwrap_or_default(),
                p.range.map(|r| r.1.to_string()).unwrap_or_default(),
                p.trial.map(|t| t.to_string()).unwrap_or_default(),
            ]);
        }
    }
    for event in &plot.events {
        for (dut, x) in &event.at {
            let mut row = [const { String::new() }; 10];
            row[0] = view.dut(*dut).name.to_owned();
            row[1] = "event".to_owned();
            row[4] = event.label.clone();
            row[5] = x.to_string();
            csv.row(&row);
        }
    }
    csv.0
}

struct Csv(String);

impl Csv {
    fn new(head: &[String]) -> Csv {
        let mut csv = Csv(String::new());
        csv.row(head);
        csv
    }

    fn row(&mut self, fields: &[String]) {
        let quoted: Vec<String> = fields.iter().map(|field| quoted(&inert(field))).collect();
        self.0 += &quoted.join(",");
        self.0 += "\r\n";
    }
}

/// Quotes a field by RFC 4180. Semicolons and tabs are quoted too, because some spreadsheets separate by them.
fn quoted(field: &str) -> String {
    match field.contains(['"', ',', ';', '\t', '\n', '\r']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field.to_owned(),
    }
}

/// Changes a field so that no spreadsheet takes it for a formula: numbers stay as they are. In texts, an apostrophe
/// goes before `=`, `+`, `-` and `@` at the start and after every character that a spreadsheet may take for a
/// separator; hidden characters become visible.
fn inert(field: &str) -> String {
    if field.parse::<f64>().is_ok() {
        return field.to_owned();
    }
    let mut out = String::with_capacity(field.len());
    let mut starts = true;
    for c in field.chars() {
        let formula = matches!(c, '=' | '+' | '-' | '@' | '\u{ff1d}' | '\u{ff0b}' | '\u{ff0d}' | '\u{ff20}');
        if starts && (formula || matches!(c, '\t' | '\r')) {
            out.push('\'');
        }
        out.push(c);
        starts = matches!(c, ',' | ';' | '|' | '\t' | '\n' | '\r' | '"') || (starts && is_blank(c));
    }
    visible(&out, &['\n', '\t', '\r'])
}

/// Whether a spreadsheet skips this character when it looks for the start of a formula.
fn is_blank(c: char) -> bool {
    c.is_whitespace() || is_hidden(c)
}

/// A cell for machines: a missing value is an empty field, numbers are as stored.
fn raw(cell: &Cell) -> String {
    match cell {
        Cell::None => String::new(),
        Cell::Count(n) => n.to_string(),
        Cell::Number(x) => x.to_string(),
        Cell::Text(t) => t.clone(),
    }
}

/// The first of `names` that is free, as a file name of letters, digits, `-`, `_`, `.`; with a number when all are taken.
fn name(names: &[&str], taken: &mut HashSet<String>) -> String {
    let plain = |name: &str| -> String {
        let keep = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '-' };
        let text: String = name.chars().take(100).map(keep).collect();
        text.trim_start_matches('.').to_owned()
    };
    let last = plain(names.last().copied().unwrap_or("table"));
    let numbered = (2..).map(|n| format!("{last}-{n}"));
    let mut candidates = names.iter().map(|w| plain(w)).chain(numbered).filter(|n| !n.is_empty());
    // Lower case, because some file systems do not distinguish `A` from `a`.
    let found = candidates.find(|n| taken.insert(n.to_lowercase())).unwrap_or_default();
    format!("{found}.csv")
}

fn ranks(view: &View) -> String {
    let head = [
        "test",
        "figure",
        "unit",
        "higher_is_better",
        "dut",
        "simulated",
        "value",
        "tester_limited",
        "rounds",
        "interval_low",
        "interval_high",
        "confidence",
        "detectable",
        "resolution",
        "rank",
        "tied",
        "l2_mbps",
        "line_percent",
        "load_pps",
        "refuted",
        "doubtful",
        "all_ports_pps",
    ];
    let mut csv = Csv::new(&head.map(str::to_owned));
    let text = |n: Option<u32>| n.map(|n| n.to_string()).unwrap_or_default();
    // An unknown end is an empty cell.
    let end = |value: Option<f64>| value.filter(|v| v.is_finite()).map(|v| v.to_string()).unwrap_or_default();
    for f in &view.ranking.figures {
        for (index, (dut, e)) in view.duts.iter().zip(&f.entries).enumerate() {
            let rate = rates::of_figure(view, f, index);
            csv.row(&[
                view.sections[f.section].id.clone(),
                f.key.clone(),
                f.unit.clone(),
                f.higher_is_better.to_string(),
                dut.name.to_owned(),
                dut.simulated.to_string(),
                e.value().map(|v| v.to_string()).unwrap_or_default(),
                e.tester_limited().to_string(),
                e.summary.map(|s| s.rounds.to_string()).unwrap_or_default(),
                end(e.summary.map(|s| s.interval.low)),
                end(e.summary.map(|s| s.interval.high)),
                end(e.summary.map(|s| s.confidence)),
                end(f.detectable),
                e.figure.as_ref().map(|f| f.resolution.to_string()).unwrap_or_default(),
                text(e.rank),
                e.tied.to_string(),
                end(rate.and_then(|r| r.l2_mbps)),
                end(rate.and_then(|r| r.line_percent)),
                end(e.figure.as_ref().and_then(|f| f.load_pps)),
                e.refuted().to_string(),
                e.doubtful().to_string(),
                end(rate.map(|r| r.all_ports_pps)),
            ]);
        }
    }
    for (dut, o) in view.duts.iter().zip(&view.ranking.overall) {
        csv.row(&[
            // It is that of all tests.
            String::new(),
            "overall_mean_rank".into(),
            String::new(),
            "false".into(),
            dut.name.to_owned(),
            dut.simulated.to_string(),
            o.mean.map(|m| m.to_string()).unwrap_or_default(),
            "false".into(),
            String::new(),
            String::new(),
            String::new(),
            String::new(),
            String::new(),
            String::new(),
            text(o.rank),
            o.tied.to_string(),
            String::new(),
            String::new(),
            String::new(),
            String::new(),
            String::new(),
            String::new(),
        ]);
    }
    csv.0
}

const TRIAL_HEAD: [&str; 40] = [
    "trial",
    "dut",
    "test",
    "attempt",
    "time",
    "purpose",
    "size",
    "valid",
    "invalid_reasons",
    "duration_s",
    "sending_s",
    "senders",
    "intended_load_pps",
    "offered_load_pps",
    "forwarding_rate_pps",
    "group",
    "intended",
    "offered",
    "refused",
    "received",
    "lost",
    "duplicated",
    "reordered",
    "late",
    "corrupted",
    "stray",
    "latency_min_ns",
    "latency_mean_ns",
    "latency_p99_ns",
    "latency_max_ns",
    "unsent",
    "receive_drops",
    "max_gap_ns",
    "dut_cpu",
    "kernel_generators",
    "dut_used_ns",
    "tester_on_dut_ns",
    "drops",
    "round",
    "section",
];

/// Offered rate per sending port that a trial intended, averaged over its sending time; absent if it had none.
pub fn intended_load(t: &drophammer_model::record::TrialRecord) -> Option<f64> {
    let seconds = t.spec.sending_time().as_secs_f64();
    match &t.spec.load {
        drophammer_model::trial::Load::Constant { rate_pps } => Some(*rate_pps),
        drophammer_model::trial::Load::Maximum { limit_pps } => Some(*limit_pps),
        drophammer_model::trial::Load::Burst { rate_pps, .. } => Some(*rate_pps),
        drophammer_model::trial::Load::Steps { .. } if seconds > 0.0 => {
            Some(t.spec.intended_per_port() as f64 / seconds)
        }
        drophammer_model::trial::Load::Steps { .. } | drophammer_model::trial::Load::Flows => None,
    }
}

fn trials(view: &View) -> String {
    let mut csv = Csv::new(&TRIAL_HEAD.map(str::to_owned));
    // The name of a test does not say which one, if the suite has it twice.
    let mut sections: HashMap<u64, &str> = HashMap::new();
    for section in view.all_sections() {
        let own = section.results.iter().flat_map(|result| &result.trials);
        sections.extend(own.map(|trial| (trial.result.trial, section.id.as_str())));
    }
    for t in &view.run.trials {
        let r = &t.result;
        let reasons = match &r.validity {
            Validity::Invalid(reasons) => reasons.join("; "),
            Validity::Valid => String::new(),
        };
        let dropped = drops::of_trial(t, &view.drops_counted);
        for g in &r.groups {
            // The latency of no frames is unknown, not 0.
            let latency = |text: String| if g.latency.frames == 0 { String::new() } else { text };
            csv.row(&[
                r.trial.to_string(),
                t.dut.clone(),
                t.test.clone(),
                t.attempt.to_string(),
                t.time.clone(),
                t.spec.purpose.clone(),
                t.spec.size.to_string(),
                r.validity.is_valid().to_string(),
                reasons.clone(),
                t.spec.duration_s.to_string(),
                r.sending_s.to_string(),
                r.senders.to_string(),
                intended_load(t).map(|l| l.to_string()).unwrap_or_default(),
                r.offered_load().pps().to_string(),
                r.forwarding_rate().pps().to_string(),
                g.group.clone(),
                g.intended.to_string(),
                g.offered.to_string(),
                g.refused.to_string(),
                g.received.to_string(),
                g.lost.to_string(),
                g.duplicated.to_string(),
                g.known_reordered().map(|n| n.to_string()).unwrap_or_default(),
                g.late.to_string(),
                g.corrupted.to_string(),
                g.stray.to_string(),
                latency(g.latency.min_ns.to_string()),
                latency(g.latency.mean_ns.to_string()),
                g.latency.percentile(99.0).map(|p| p.to_string()).unwrap_or_default(),
                latency(g.latency.max_ns.to_string()),
                r.health.unsent.to_string(),
                r.health.receive_drops.to_string(),
                r.health.max_gap_ns.to_string(),
                r.dut_cpu.map(|c| c.to_string()).unwrap_or_default(),
                r.health.kernel_generators.to_string(),
                r.health.dut_used_ns.map(|ns| ns.to_string()).unwrap_or_default(),
                r.health.tester_on_dut_ns.map(|ns| ns.to_string()).unwrap_or_default(),
                dropped.map(|frames| frames.to_string()).unwrap_or_default(),
                t.round.to_string(),
                sections.get(&r.trial).copied().unwrap_or_default().to_owned(),
            ]);
        }
    }
    csv.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_when_they_must_be() {
        let mut csv = Csv::new(&["a".into()]);
        csv.row(&["x,\"y\"\nz".into(), String::new()]);
        assert_eq!(csv.0, "a\r\n\"x,\"\"y\"\"\nz\",\r\n");
    }

    #[test]
    fn no_field_is_a_formula_and_numbers_stay() {
        for (field, written) in [
            ("=HYPERLINK(\"http://x\")", "'=HYPERLINK(\"http://x\")"),
            (" +1+cmd|' /C calc'!A0", " '+1+cmd|' /C calc'!A0"),
            ("@SUM(1)", "'@SUM(1)"),
            ("-2+3", "'-2+3"),
            ("\t=1", "'\t'=1"),
            ("a;=1", "a;'=1"),
            ("a\n=1", "a\n'=1"),
            ("\u{202e}=1", "\\u{202e}'=1"),
            ("a\u{1b}[2J", "a\\u{1b}[2J"),
            ("-5.25", "-5.25"),
            ("+1e-9", "+1e-9"),
            ("throughput of 64 >= 700,000 fps", "throughput of 64 >= 700,000 fps"),
            ("a-b", "a-b"),
        ] {
            assert_eq!(inert(field), written, "{field:?}");
        }
        assert_eq!(quoted("a;b"), "\"a;b\"");
    }

    #[test]
    fn names_are_plain_and_different() {
        let mut taken = HashSet::new();
        assert_eq!(name(&["a/../b"], &mut taken), "a-..-b.csv");
        assert_eq!(name(&["trials"], &mut taken), "trials.csv");
        assert_eq!(name(&["trials", "t-trials"], &mut taken), "t-trials.csv");
        assert_eq!(name(&["Trials", "T-trials"], &mut taken), "T-trials-2.csv");
        assert_eq!(name(&[".."], &mut taken), "-2.csv");
    }
}
