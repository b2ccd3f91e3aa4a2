//! CSV files with raw figures (RFC 4180): one for each table and plot, one for all trials, and one for the ranks.

use crate::digest::{self, Filled};
use crate::rates::{self, Added};
use crate::view::{MergedPlot, MergedTable, Section, View};
use crate::{drops, published};
use drophammer_judge::held_up::reasons;
use drophammer_model::outcome::Cell;
use drophammer_model::record::TrialRecord;
use drophammer_model::trial::Load;
use drophammer_model::visible::{is_hidden, visible};
use std::collections::{HashMap, HashSet};
use std::fmt::Display;

/// File names of tables and plots, in the order of [`View::all_sections`] and within each section.
#[derive(Debug, Default)]
pub struct Names {
    /// File names per section and table.
    pub tables: Vec<Vec<String>>,
    /// File names per section and plot.
    pub plots: Vec<Vec<String>>,
}

impl Names {
    /// Names a file after the key of its table or plot, with the section in front if that name is taken.
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

/// Returns `(file name, content)` for each file.
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

/// Figures that others have published; `None` if there are none.
fn published(view: &View) -> Option<String> {
    let mut csv = Csv::new("test,figure,title,router,value,unit,heading,source,meaning");
    for (n, section) in view.sections.iter().enumerate() {
        let beside = published::in_section(view, n);
        for row in &beside.rows {
            for (router, value) in beside.routers.iter().zip(&row.values) {
                let Some(value) = value else { continue };
                let entry = value.entry;
                let unit = entry.unit.as_deref().or(row.unit);
                let texts = [&section.id, row.key, &row.title, router, value.raw, unit.unwrap_or_default()];
                let told = [&entry.title, &entry.source, entry.meaning.as_deref().unwrap_or_default()];
                csv.row(texts.into_iter().chain(told).map(str::to_owned).collect());
            }
        }
    }
    (csv.rows > 1).then_some(csv.text)
}

fn digested(view: &View, digest: &Filled) -> String {
    let (head, rows) = digest.csv(view);
    let mut csv = Csv::default();
    std::iter::once(head).chain(rows).for_each(|row| csv.row(row));
    csv.text
}

fn table(view: &View, section: &Section, table: &MergedTable) -> String {
    let added = Added::new(view, section, table);
    let mut head = vec!["dut".to_owned()];
    head.extend(table.columns.iter().copied().chain(&added.columns).map(|c| c.key.clone()));
    head.extend(["marks".into(), "trials".into()]);
    let mut csv = Csv::default();
    csv.row(head);
    for (r, more) in table.rows.iter().zip(&added.rows) {
        let mut row = vec![view.dut(r.dut).name.to_owned()];
        row.extend(r.cells.iter().copied().chain(more).map(raw));
        row.push(r.marks.join("; "));
        row.push(r.row.trials.iter().map(u64::to_string).collect::<Vec<_>>().join(" "));
        csv.row(row);
    }
    csv.text
}

/// All points of all series, followed by the events as rows of the series `event` with x and label, and by shaded ranges as rows of the
/// series `span` with x, its low and high end, and label.
fn plot(view: &View, plot: &MergedPlot) -> String {
    let mut csv = Csv::new("dut,series,reference,dots,label,x,y,low,high,trial");
    for (series, dut) in plot.plot.series.iter().zip(&plot.dut_of) {
        let dut = dut.map_or("", |d| view.dut(d).name);
        for p in &series.points {
            let mut row = Row::default();
            row.add([&dut, &series.name, &series.reference, &series.dots, &some(p.label.as_ref()), &p.x, &p.y]);
            row.add([&some(p.range.map(|r| r.0)), &some(p.range.map(|r| r.1)), &some(p.trial)]);
            csv.row(row.0);
        }
    }
    for event in &plot.events {
        for (dut, x) in &event.at {
            let mut row = Row::default();
            row.add([&view.dut(*dut).name, &"event", &"", &"", &event.label, x, &"", &"", &"", &""]);
            csv.row(row.0);
        }
    }
    for (span, dut) in plot.plot.spans.iter().zip(&plot.span_of) {
        let (from, to) = span.x;
        let mut row = Row::default();
        row.add([&view.dut(*dut).name, &"span", &"", &"", &span.text, &from, &"", &from, &to, &""]);
        csv.row(row.0);
    }
    csv.text
}

/// The value as text; empty if there is none.
fn some<T: ToString>(value: Option<T>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// The fields of a row.
#[derive(Default)]
struct Row(Vec<String>);

impl Row {
    fn add<const N: usize>(&mut self, fields: [&dyn Display; N]) {
        self.0.extend(fields.map(|field| field.to_string()));
    }
}

#[derive(Default)]
struct Csv {
    text: String,
    rows: usize,
}

impl Csv {
    /// Starts a file with these column names, which are separated by commas.
    fn new(head: &str) -> Csv {
        let mut csv = Csv::default();
        csv.row(head.split(',').map(str::to_owned).collect());
        csv
    }

    fn row(&mut self, fields: Vec<String>) {
        let quoted: Vec<String> = fields.iter().map(|field| quoted(&inert(field))).collect();
        self.text += &(quoted.join(",") + "\r\n");
        self.rows += 1;
    }
}

/// Quotes a field as in RFC 4180. Semicolons and tabs are also quoted, because some spreadsheets use them as
/// separators.
fn quoted(field: &str) -> String {
    match field.contains(['"', ',', ';', '\t', '\n', '\r']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field.to_owned(),
    }
}

/// Changes a text so that no spreadsheet interprets it as a formula. Adds an apostrophe before `=`, `+`, `-` and `@` at
/// the start and after every character that may separate fields in a spreadsheet. Makes hidden characters visible.
/// Leaves numbers unchanged.
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

/// True if a spreadsheet may skip this character in front of a formula.
fn is_blank(c: char) -> bool {
    c.is_whitespace() || is_hidden(c)
}

/// Formats a cell for machines: a number as stored, or an empty text for a missing value.
pub fn raw(cell: &Cell) -> String {
    match cell {
        Cell::None => String::new(),
        Cell::Count(n) => n.to_string(),
        Cell::Number(x) => x.to_string(),
        Cell::Text(t) => t.clone(),
    }
}

/// The first of `names` that is free, reduced to letters, digits, `-`, `_` and `.`; with a number if all are taken.
fn name(names: &[&str], taken: &mut HashSet<String>) -> String {
    let plain = |name: &str| -> String {
        let keep = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '-' };
        let text: String = name.chars().take(100).map(keep).collect();
        text.trim_start_matches('.').to_owned()
    };
    let last = plain(names.last().copied().unwrap_or("table"));
    let numbered = (2..).map(|n| format!("{last}-{n}"));
    let mut candidates = names.iter().map(|w| plain(w)).chain(numbered).filter(|n| !n.is_empty());
    // Compare in lower case, because some file systems do not distinguish `A` from `a`.
    let found = candidates.find(|n| taken.insert(n.to_lowercase())).unwrap_or_default();
    format!("{found}.csv")
}

/// The file with all ranks, followed by the overall ranks, which belong to no test.
fn ranks(view: &View) -> String {
    let mut csv = Csv::new(
        "test,figure,unit,higher_is_better,dut,simulated,value,tester_limited,rounds,interval_low,interval_high,\
         confidence,detectable,resolution,rank,tied,l2_mbps,line_percent,load_pps,refuted,doubtful,all_ports_pps,\
         suite_limited",
    );
    // An unknown end is an empty cell.
    let end = |value: Option<f64>| some(value.filter(|value| value.is_finite()));
    for f in &view.ranking.figures {
        for (index, (dut, e)) in view.duts.iter().zip(&f.entries).enumerate() {
            let (rate, own, summary) = (rates::of_figure(view, f, index), e.figure.as_ref(), e.summary);
            let mut row = Row::default();
            row.add([&view.sections[f.section].id, &f.key, &f.unit, &f.higher_is_better, &dut.name, &dut.simulated]);
            row.add([&some(e.value()), &e.limited_by_tester(), &some(summary.map(|s| s.rounds))]);
            row.add([&end(summary.map(|s| s.interval.low)), &end(summary.map(|s| s.interval.high))]);
            row.add([&end(summary.map(|s| s.confidence)), &end(f.detectable), &some(own.map(|f| f.resolution))]);
            row.add([&some(e.rank), &e.tied]);
            row.add([&end(rate.and_then(|r| r.l2_mbps)), &end(rate.and_then(|r| r.line_percent))]);
            row.add([&end(own.and_then(|f| f.load_pps)), &e.refuted(), &e.doubtful()]);
            row.add([&end(rate.map(|r| r.all_ports_pps)), &e.suite_limited()]);
            csv.row(row.0);
        }
    }
    for (dut, o) in view.duts.iter().zip(&view.ranking.overall) {
        let mut row = Row::default();
        row.add([&"", &"overall_mean_rank", &"", &false, &dut.name, &dut.simulated, &some(o.mean), &false]);
        row.add([&""; 6]);
        row.add([&some(o.rank), &o.tied]);
        row.add([&""; 7]);
        csv.row(row.0);
    }
    csv.text
}

/// Intended rate per sending port, averaged over the sending time of the trial; absent if the trial intended none.
pub fn intended_load(t: &TrialRecord) -> Option<f64> {
    let seconds = t.spec.sending_time().as_secs_f64();
    match &t.spec.load {
        Load::Constant { rate_pps: pps } | Load::Maximum { limit_pps: pps } | Load::Burst { rate_pps: pps, .. } => {
            Some(*pps)
        }
        Load::Steps { .. } if seconds > 0.0 => Some(t.spec.intended_per_port() as f64 / seconds),
        Load::Steps { .. } | Load::Flows => None,
    }
}

fn trials(view: &View) -> String {
    let mut csv = Csv::new(
        "trial,dut,test,attempt,time,purpose,size,valid,invalid_reasons,duration_s,sending_s,senders,intended_load_pps,\
         offered_load_pps,forwarding_rate_pps,group,intended,offered,refused,received,lost,duplicated,reordered,late,\
         corrupted,stray,latency_min_ns,latency_mean_ns,latency_p99_ns,latency_max_ns,unsent,receive_drops,max_gap_ns,\
         dut_cpu,kernel_generators,dut_used_ns,tester_on_dut_ns,drops,round,section",
    );
    // If the suite contains a test twice, the name of the test is ambiguous.
    let mut sections: HashMap<u64, &str> = HashMap::new();
    for section in view.all_sections() {
        let own = section.results.iter().flat_map(|result| &result.trials);
        sections.extend(own.map(|trial| (trial.result.trial, section.id.as_str())));
    }
    for t in &view.run.trials {
        let (r, h) = (&t.result, &t.result.health);
        let dropped = some(drops::of_trial(t, &view.drops_counted));
        let section = sections.get(&r.trial).copied().unwrap_or_default();
        for g in &r.groups {
            // The latency of no frames is unknown, not 0.
            let latency = Some(&g.latency).filter(|latency| latency.frames > 0);
            let mut row = Row::default();
            row.add([&r.trial, &t.dut, &t.test, &t.attempt, &t.time, &t.spec.purpose, &t.spec.size]);
            row.add([&r.validity.is_valid(), &reasons(t).join("; "), &t.spec.duration_s, &r.sending_s, &r.senders]);
            row.add([&some(intended_load(t)), &r.offered_load().pps(), &r.forwarding_rate().pps()]);
            row.add([&g.group, &g.intended, &g.offered, &g.refused, &g.received, &g.lost, &g.duplicated]);
            row.add([&some(g.known_reordered()), &g.late, &g.corrupted, &g.stray]);
            row.add([&some(latency.map(|l| l.min_ns)), &some(latency.map(|l| l.mean_ns))]);
            row.add([&some(g.latency.percentile(99.0)), &some(latency.map(|l| l.max_ns))]);
            row.add([&h.unsent, &h.receive_drops, &h.max_gap_ns, &some(r.dut_cpu), &h.kernel_generators]);
            row.add([&some(h.dut_used_ns), &some(h.tester_on_dut_ns), &dropped, &t.round, &section]);
            csv.row(row.0);
        }
    }
    csv.text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_when_they_must_be() {
        let mut csv = Csv::new("a");
        csv.row(vec!["x,\"y\"\nz".into(), String::new()]);
        assert_eq!(csv.text, "a\r\n\"x,\"\"y\"\"\nz\",\r\n");
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
