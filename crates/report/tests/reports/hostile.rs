//! Names and texts from suites, DUTs and kernels that contain markup, formulas or terminal commands.

use crate::synthetic::report;
use drophammer_model::environment::DutRecord;
use drophammer_model::outcome::{Cell, Outcome, Span};
use drophammer_model::record::{Note, TestStatus};
use drophammer_model::trial::Validity;
use drophammer_model::visible::is_hidden;
use drophammer_report::summary_text;
use drophammer_store::Run;
use roxmltree::Document;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// One text of every kind of attack, including its length.
const TEXTS: [&str; 8] = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "' onmouseover='alert(1)",
    "=HYPERLINK(\"http://evil.example\",\"x\")",
    "@SUM(1+1)*cmd|' /C calc'!A0",
    "\u{1b}[2J\u{1b}]0;title\u{7}\u{9b}31m",
    "\u{202e}txt.exe\u{2066}\u{200b}",
    "two\nlines\r\n=1+1\t| a `b` [c](javascript:x) </pre></style>--></svg>",
];

/// Supplies hostile texts in turn.
struct Source(usize);

impl Source {
    fn next(&mut self) -> String {
        self.0 += 1;
        match self.0 % (TEXTS.len() + 1) {
            0 => "x".repeat(2_000),
            n => TEXTS[n - 1].to_owned(),
        }
    }
}

/// A run in which every text except our own keys is hostile, starting with text `first`.
fn hostile_run(first: usize) -> Run {
    let mut run = crate::synthetic::run(3);
    let mut source = Source(first);
    let names: Vec<(String, String)> = run.started.duts.iter().map(|d| (d.clone(), source.next() + d)).collect();
    let renamed =
        |name: &str| names.iter().find(|(old, _)| old == name).map_or(name.to_owned(), |(_, new)| new.clone());
    let started = &mut run.started;
    for text in [&mut started.suite, &mut started.title, &mut started.profile, &mut started.time] {
        *text = source.next();
    }
    started.deviations.push(source.next());
    started.command.push(source.next());
    started.about.published.push(drophammer_model::environment::Published {
        test: "throughput".into(),
        title: source.next(),
        source: source.next(),
        meaning: Some(source.next()),
        columns: vec![source.next(), source.next()],
        rows: vec![vec![source.next(), source.next()]],
        ..Default::default()
    });
    started.about.published.push(drophammer_model::environment::Published {
        test: "throughput".into(),
        title: source.next(),
        source: source.next(),
        meaning: Some(source.next()),
        unit: Some(source.next()),
        routers: vec![source.next(), source.next()],
        figures: vec![
            ("throughput_64_pps".into(), vec![source.next(), source.next()]),
            (source.next(), vec![source.next(), source.next()]),
        ],
        ..Default::default()
    });
    started.about.facts.push((source.next(), source.next()));
    started.about.duts.push((renamed("frr"), vec![(source.next(), source.next())]));
    started.duts.iter_mut().for_each(|d| *d = renamed(d));
    started.tests.iter_mut().for_each(|(_, title)| *title = source.next());
    let e = &mut started.environment;
    for text in [&mut e.kernel, &mut e.cpu_model, &mut e.cpus, &mut e.virtualization, &mut e.distribution] {
        *text = source.next();
    }
    e.more.insert(source.next(), source.next());
    for dut in &mut run.duts {
        device(dut, &mut source);
        dut.name = renamed(&dut.name);
    }
    for t in &mut run.trials {
        t.dut = renamed(&t.dut);
        (t.spec.purpose, t.time) = (source.next(), source.next());
        t.result.groups[0].group = source.next();
        t.result.dut_counters.insert(source.next(), 3);
        t.result.validity = Validity::Invalid(vec![source.next()]);
    }
    for t in &mut run.tests {
        t.dut = renamed(&t.dut);
        t.title = source.next();
        if let TestStatus::Failed(cause) = &mut t.status {
            *cause = source.next();
        }
        outcome(&mut t.outcome, &mut source);
    }
    run.tests[0].status = TestStatus::Skipped(source.next());
    let dut = Some(source.next());
    run.notes.push(Note { time: source.next(), dut, text: source.next(), problem: true });
    run.warnings.push(source.next());
    let column = |title: String, key: &str| drophammer_model::environment::DigestColumn {
        title,
        test: "throughput".into(),
        id: None,
        key: key.into(),
    };
    let columns = vec![column(source.next(), "throughput.throughput_pps"), column(source.next(), "no cells")];
    let digest = drophammer_model::environment::Digest { title: source.next(), by: None, columns };
    run.started.about.digests.push(digest);
    run
}

fn device(dut: &mut DutRecord, source: &mut Source) {
    for text in [&mut dut.kind, &mut dut.version, &mut dut.confinement] {
        *text = source.next();
    }
    dut.config.insert(source.next(), source.next());
    for port in &mut dut.ports {
        for text in [&mut port.name, &mut port.interface, &mut port.backend, &mut port.driver, &mut port.mac] {
            *text = source.next();
        }
        port.addresses.push(source.next());
    }
}

fn outcome(outcome: &mut Outcome, source: &mut Source) {
    outcome.notes.push(source.next());
    for v in &mut outcome.verdicts {
        (v.criterion, v.found) = (source.next(), source.next());
    }
    for figure in &mut outcome.ranks {
        (figure.title, figure.unit) = (source.next(), source.next());
    }
    for table in &mut outcome.tables {
        (table.key, table.title) = (source.next(), source.next());
        table.columns.iter_mut().for_each(|c| (c.title, c.unit) = (source.next(), source.next()));
        table.columns[1].key = source.next();
        for row in &mut table.rows {
            row.cells[0] = Cell::from(source.next().as_str());
            row.cells[2] = Cell::from(-1.5);
            row.marks.push(source.next());
        }
    }
    for plot in &mut outcome.plots {
        (plot.key, plot.title, plot.x, plot.y) = (source.next(), source.next(), source.next(), source.next());
        plot.events.push((1.0, source.next()));
        plot.spans.push(Span { x: (0.5, 1.5), text: source.next() });
        for s in &mut plot.series {
            s.name = source.next();
            s.points.iter_mut().filter(|p| p.label.is_some()).for_each(|p| p.label = Some(source.next()));
        }
    }
}

type Files = BTreeMap<String, String>;

/// One run and its report for each first text, so that every text gets to most places. Made once for all tests.
fn all() -> &'static [(Run, Files)] {
    static ALL: OnceLock<Vec<(Run, Files)>> = OnceLock::new();
    let make = |first| {
        let run = hostile_run(first);
        let files = report(&run);
        (run, files)
    };
    ALL.get_or_init(|| (0..=TEXTS.len()).map(make).collect())
}

/// Every tag of a page: `<name attributes>` outside of our own script and style.
fn tags(html: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut rest = html;
    while let Some(start) = rest.find('<') {
        let tag = &rest[start..];
        // Quoted values may hold `>`.
        let mut quoted = false;
        let end = tag.find(|c: char| {
            quoted ^= c == '"';
            c == '>' && !quoted
        });
        let end = end.expect("every tag ends") + 1;
        out.push(tag[..end].to_owned());
        rest = &tag[end..];
        for (open, close) in [("<script", "</script>"), ("<style", "</style>")] {
            if tag.starts_with(open) {
                rest = &rest[rest.find(close).unwrap()..];
            }
        }
    }
    out
}

/// The elements of a page and the names of their attributes, each pair once.
fn shapes(html: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for tag in tags(html) {
        let mut shape = String::new();
        let mut quoted = false;
        for c in tag.chars() {
            quoted ^= c == '"';
            if !quoted && c != '"' {
                shape.push(c);
            }
        }
        if !out.contains(&shape) {
            out.push(shape);
        }
    }
    out
}

/// The fields of a CSV file, rows of rows (RFC 4180).
fn fields(csv: &str) -> Vec<Vec<String>> {
    let (mut rows, mut row, mut field, mut quoted) = (Vec::new(), Vec::new(), String::new(), false);
    let mut chars = csv.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => field.extend(chars.next()),
            '"' => quoted = !quoted,
            ',' if !quoted => row.push(std::mem::take(&mut field)),
            '\n' if !quoted => {
                row.push(std::mem::take(&mut field));
                rows.push(std::mem::take(&mut row));
            }
            '\r' if !quoted => {}
            c => field.push(c),
        }
    }
    assert!(!quoted && field.is_empty() && row.is_empty(), "the last row is whole");
    rows
}

#[test]
fn no_text_becomes_markup() {
    let known = shapes(&report(&crate::synthetic::run(4))["report.html"]);
    for (_, files) in all() {
        let html = &files["report.html"];
        for shape in shapes(html) {
            let fresh = ["<img", "<iframe", "<object", "<embed", "<form", "<base", "<link", " on"];
            assert!(known.contains(&shape) || fresh.iter().all(|f| !shape.contains(f)), "{shape}");
        }
        assert_eq!(html.matches("<script").count(), 1, "our own and no other");
        assert_eq!(html.matches("</script").count(), 1);
        assert_eq!(html.matches("<style").count(), 1);
        for tag in tags(html).iter().filter(|t| t.contains("href=")) {
            let target = tag.split("href=\"").nth(1).unwrap();
            assert!(["#", "csv/", "data:text/csv;charset=utf-8,"].iter().any(|own| target.starts_with(own)), "{tag}");
        }
        assert!(html.contains("&lt;script&gt;alert(1)"), "the text is there to be read");
        assert!(!html.chars().any(|c| is_hidden(c) && c != '\n' && c != '\t'), "nothing hides or turns around");
    }
}

#[test]
fn no_text_becomes_a_formula() {
    for (_, files) in all() {
        for (name, csv) in files.iter().filter(|(name, _)| name.starts_with("csv/")) {
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
            assert!(name.chars().all(plain) && name.len() < 140, "{name}");
            let rows = fields(csv);
            for row in &rows {
                assert_eq!(row.len(), rows[0].len(), "{name}");
                for field in row.iter().filter(|f| f.parse::<f64>().is_err()) {
                    assert!(!field.trim_start().starts_with(['=', '+', '-', '@']), "{name}: {field}");
                    assert!(!field.starts_with(['\t', '\r']), "{name}: {field}");
                    assert!(!field.contains("\n=") && !field.contains(";="), "{name}: {field}");
                    assert!(!field.chars().any(|c| is_hidden(c) && !"\n\t\r".contains(c)), "{name}: {field}");
                }
            }
        }
    }
    let csv = &all()[0].1;
    let numbers = csv.iter().find(|(_, text)| text.contains("throughput_pps")).unwrap().1;
    assert!(fields(numbers)[1].contains(&"-1.5".to_owned()), "a negative number stays a number");
}

#[test]
fn no_text_reaches_the_terminal_as_a_command() {
    for (run, files) in all() {
        for text in [&files["report.txt"], &files["report.md"], &files["report.json"], &summary_text(run, false)] {
            if let Some(c) = text.chars().find(|c| is_hidden(*c) && *c != '\n') {
                panic!("{c:?}");
            }
            assert!(text.contains("\\u"), "what was hidden can be seen");
        }
        // Our own colours, and no other sequence.
        let coloured = summary_text(run, true);
        for sequence in coloured.split('\u{1b}').skip(1) {
            let end = sequence.find('m').expect("a colour ends with m");
            let code = sequence.strip_prefix('[').map(|s| &s[..end - 1]);
            assert!(code.is_some_and(|c| c.chars().all(|c| c.is_ascii_digit() || c == ';')), "{sequence:?}");
        }
        for text in [&files["report.txt"], &summary_text(run, false)] {
            let longest = text.lines().map(|l| l.chars().count()).max().unwrap();
            assert!(longest < 5_000, "{longest}");
        }
        let markdown = files["report.md"].replace("\\]", "");
        for text in ["<script", "<img", "](javascript"] {
            assert!(!markdown.contains(text), "{text}");
        }
    }
}

#[test]
fn machines_get_every_text_as_it_was() {
    for (run, files) in all() {
        let json: serde_json::Value = serde_json::from_str(&files["report.json"]).unwrap();
        assert_eq!(json["started"]["title"], run.started.title.as_str());
        assert_eq!(json["duts"][0]["records"][0]["version"], run.duts[0].version.as_str());
        assert_eq!(json["trials"][5]["spec"]["purpose"], run.trials[5].spec.purpose.as_str());
        let xml = Document::parse(&files["junit.xml"]).unwrap();
        assert_eq!(xml.descendants().filter(|n| n.has_tag_name("testcase")).count(), 12);
    }
}
