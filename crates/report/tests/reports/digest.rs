//! Tables with cells from the tables of several tests, as a suite asks for them.

use crate::synthetic::{in_rounds, report};
use drophammer_model::environment::{Digest, DigestColumn};
use drophammer_model::outcome::{Cell, Column, Outcome, Row, Table};
use drophammer_model::record::{TestRecord, TestStatus};
use drophammer_store::Run;
use serde_json::{Value, json};

const TITLE: &str = "Frames per second";

fn text(text: &str) -> Cell {
    Cell::from(text)
}

fn table(key: &str, columns: &[(&str, &str, &str)], rows: Vec<Vec<Cell>>) -> Table {
    Table {
        key: key.into(),
        title: key.into(),
        columns: columns.iter().map(|(key, title, unit)| Column::new(key, title, unit)).collect(),
        rows: rows.into_iter().map(|cells| Row { cells, ..Row::default() }).collect(),
    }
}

/// A table by frame size: size, frames per second, µs.
fn rates(rows: &[(&str, f64, f64)]) -> Table {
    let columns =
        [("frame_size", "Frame size", ""), ("throughput_pps", "Throughput", "fps"), ("delay_us", "Delay", "µs")];
    table(
        "rates",
        &columns,
        rows.iter().map(|(size, rate, us)| vec![text(size), (*rate).into(), (*us).into()]).collect(),
    )
}

/// A table by frame size and conditions. With 25 conditions there are two rows of the same size.
fn filters() -> Table {
    let columns = [
        ("frame_size", "Frame size", ""),
        ("conditions", "Conditions", ""),
        ("permit", "Permit", ""),
        ("throughput_pps", "Throughput", "fps"),
    ];
    let row = |size: &str, conditions: u64, permit: Option<&str>, rate: f64| {
        vec![text(size), conditions.into(), permit.into(), rate.into()]
    };
    let rows = vec![
        row("64", 0, None, 600_000.0),
        row("64", 10, Some("last"), 500_000.0),
        row("64", 10, Some("first"), 550_000.0),
        row("64", 25, Some("last"), 300_000.0),
        row("64", 25, Some("last"), 310_000.0),
        row("1518", 10, Some("last"), 400_000.0),
    ];
    table("filters", &columns, rows)
}

fn column(title: &str, test: &str, key: &str) -> DigestColumn {
    DigestColumn { title: title.into(), test: test.into(), id: None, key: key.into() }
}

/// Two DUTs, of which the second has no filters, and a digest by frame size.
fn run() -> Run {
    let mut run = crate::synthetic::run(2);
    for record in &mut run.tests {
        let is_first = record.dut == "linux";
        match record.test.as_str() {
            "throughput" if is_first => {
                let mut table =
                    rates(&[("64", 1_234_567.4, 12.345), ("512", 1_000_000.0, 20.0), ("1518", 812_744.0, 30.0)]);
                table.rows[1].marks.push("tester-limited".into());
                record.outcome.tables = vec![table];
            }
            "throughput" => {
                let rows = [("64", 2_000_000.0, 9.0), ("128", 1_500_000.0, 10.0), ("1518", 812_743.9, 30.0)];
                record.outcome.tables = vec![rates(&rows)];
            }
            "latency" if is_first => record.outcome.tables = vec![filters()],
            "latency" => {
                record.status = TestStatus::Skipped("it has no filters".into());
                record.outcome = Outcome::default();
            }
            _ => {}
        }
    }
    run.started.about.digests = vec![Digest {
        title: TITLE.into(),
        by: Some("frame_size".into()),
        columns: vec![
            column("max", "throughput", "rates.throughput_pps"),
            column("f10", "latency", "filters[conditions=10, permit=last].throughput_pps"),
            column("f25", "latency", "filters[conditions=25, permit=last].throughput_pps"),
        ],
    }];
    run
}

/// The cells of the table below the heading `title`, its head first; empty if there is no such heading.
fn rows(run: &Run, title: &str) -> Vec<Vec<String>> {
    let markdown = report(run)["report.md"].replace('\\', "");
    let Some((_, rest)) = markdown.split_once(&format!("\n## {title}\n")) else { return Vec::new() };
    let section = rest.split("\n## ").next().unwrap();
    let lines = section.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| --"));
    let cells = |line: &str| line.trim_matches(['|', ' ']).split(" | ").map(|cell| cell.trim().to_owned()).collect();
    lines.map(cells).collect()
}

#[test]
fn a_row_has_the_cells_of_its_dut_and_value_and_a_dash_where_none_or_several_rows_match() {
    let expected = [
        ["DUT", "Frame size", "max [fps]", "f10 [fps]", "f25"],
        ["linux", "64", "1,234,567", "500,000", "–"],
        ["linux", "128", "–", "–", "–"],
        ["linux", "512", "1,000,000 *", "–", "–"],
        ["linux", "1518", "812,744", "400,000", "–"],
        ["frr", "64", "2,000,000", "–", "–"],
        ["frr", "128", "1,500,000", "–", "–"],
        ["frr", "512", "–", "–", "–"],
        ["frr", "1518", "812,744", "–", "–"],
    ];
    assert_eq!(rows(&run(), TITLE), expected);
}

#[test]
fn several_rounds_give_the_median_of_the_table_over_all_rounds() {
    let mut run = in_rounds(&run(), 3);
    for record in run.tests.iter_mut().filter(|record| record.test == "throughput" && record.dut == "linux") {
        let value = [100.0, 300.0, 200.0][record.round as usize - 1];
        record.outcome.tables[0].rows[0].cells[1] = Cell::from(value);
    }
    let rows = rows(&run, TITLE);
    assert_eq!(rows.len(), 9, "a row is there once, whatever the number of rounds: {rows:?}");
    assert_eq!(rows[1], ["linux", "64", "200", "500,000", "–"]);
    assert_eq!(rows[5], ["frr", "64", "2,000,000", "–", "–"]);
}

#[test]
fn without_a_column_for_the_rows_each_dut_has_one() {
    let mut run = run();
    let digest = &mut run.started.about.digests[0];
    digest.by = None;
    digest.columns = vec![
        column("512", "throughput", "rates[frame_size=512].throughput_pps"),
        column("delay", "throughput", "rates[frame_size=64].delay_us"),
        column("all", "throughput", "rates.delay_us"),
    ];
    let expected =
        [["DUT", "512 [fps]", "delay [µs]", "all"], ["linux", "1,000,000 *", "12.35", "–"], ["frr", "–", "9", "–"]];
    assert_eq!(rows(&run, TITLE), expected);
    // Units that differ are shown with the values.
    let of_frr = run.tests.iter_mut().find(|record| record.dut == "frr" && record.test == "throughput").unwrap();
    of_frr.outcome.tables[0].columns[2].unit = "ms".into();
    let rows = rows(&run, TITLE);
    assert_eq!(rows[0][2], "delay");
    assert_eq!((rows[1][2].as_str(), rows[2][2].as_str()), ("12.35 µs", "9 ms"));
}

#[test]
fn columns_of_tests_that_were_not_run_are_left_out() {
    let mut run = run();
    let without = |run: &mut Run, test: &str| {
        run.started.tests.retain(|(name, _)| name != test);
        run.tests.retain(|record| record.test != test);
        run.trials.retain(|trial| trial.test != test);
    };
    without(&mut run, "latency");
    let found = rows(&run, TITLE);
    assert_eq!((found.len(), &found[0]), (9, &["DUT", "Frame size", "max [fps]"].map(str::to_owned).to_vec()));
    assert_eq!(found[1], ["linux", "64", "1,234,567"]);
    without(&mut run, "throughput");
    let files = report(&run);
    assert!(!files["report.md"].contains(TITLE) && !files["report.txt"].contains(TITLE));
    assert!(!files.contains_key("csv/digest-1.csv") && !files["report.html"].contains("digest-1"));
    let json: Value = serde_json::from_str(&files["report.json"]).unwrap();
    assert_eq!(json["digests"], json!([]));
}

#[test]
fn an_id_means_one_of_several_tests_of_a_name() {
    let mut run = run();
    run.started.tests.insert(1, ("throughput".into(), "Throughput".into()));
    let again = |record: &TestRecord| {
        let mut second = TestRecord { id: Some("swap".into()), ..record.clone() };
        if let Some(row) = second.outcome.tables.first_mut().and_then(|table| table.rows.first_mut()) {
            row.cells[1] = Cell::from(42.0);
        }
        let is_throughput = record.test == "throughput";
        [Some(record.clone()), is_throughput.then_some(second)].into_iter().flatten().collect::<Vec<_>>()
    };
    run.tests = run.tests.iter().flat_map(again).collect();
    let key = "rates[frame_size=64].throughput_pps";
    let swap = DigestColumn { id: Some("swap".into()), ..column("swap", "throughput", key) };
    let other = DigestColumn { id: Some("none".into()), ..column("none", "throughput", key) };
    let columns = vec![swap, other, column("both", "throughput", key)];
    run.started.about.digests = vec![Digest { title: TITLE.into(), by: None, columns }];
    // The rows of both tests match the last column.
    let expected = [["DUT", "swap [fps]", "both"], ["linux", "42", "–"], ["frr", "42", "–"]];
    assert_eq!(rows(&run, TITLE), expected);
}

#[test]
fn there_are_two_hundred_values_at_most_and_the_rest_is_counted() {
    let mut run = run();
    let sizes: Vec<String> = (1..=205).map(|size| size.to_string()).collect();
    let many: Vec<_> = sizes.iter().map(|size| (size.as_str(), 1_000.0, 1.0)).collect();
    for record in run.tests.iter_mut().filter(|record| record.test == "throughput") {
        record.outcome.tables = vec![rates(&many)];
    }
    run.started.about.digests[0].columns.truncate(1);
    assert_eq!(rows(&run, TITLE).len(), 1 + 2 * 200);
    let files = report(&run);
    assert!(files["report.txt"].contains("Frame size: 5 more values are left out."));
}

#[test]
fn every_report_has_it_between_the_summary_and_the_tests() {
    let files = report(&run());
    let in_order = |name: &str, parts: [&str; 3]| {
        let places = parts.map(|part| files[name].find(part).unwrap_or_else(|| panic!("{name}: no {part}")));
        assert!(places.is_sorted(), "{name}: {places:?}");
    };
    in_order("report.md", ["\n## Summary\n", "\n## Frames per second\n", "\n## Throughput\n"]);
    in_order("report.txt", ["Figure", "\n== Frames per second ==\n", "\n== Throughput ==\n"]);
    in_order("report.html", ["<section id=\"summary\"", "<section id=\"digest-1\"", "<section id=\"test-"]);
    let html = &files["report.html"];
    assert!(html.contains("title=\"tester-limited\">1,000,000 *</td>"), "the mark is there to be read");
    assert!(html.contains("href=\"#digest-1\"") && html.contains("download=\"digest-1.csv\""));
    for name in ["report.md", "report.txt", "report.html"] {
        let text = files[name].replace('\\', "").replace('\n', " ");
        assert!(text.contains("The values affect no rank."), "{name}");
        assert!(text.contains("* The row of this value has a mark in the table of the test: tester-limited"), "{name}");
    }
}

#[test]
fn machines_get_the_values_as_stored_and_no_rank_changes() {
    let files = report(&run());
    let csv = &files["csv/digest-1.csv"];
    let lines: Vec<&str> = csv.split("\r\n").collect();
    assert_eq!(lines[0], "dut,frame_size,max [fps],f10 [fps],f25,marks");
    assert_eq!(lines[1], "linux,64,1234567.4,500000,,");
    assert_eq!(lines[3], "linux,512,1000000,,,tester-limited");
    assert_eq!((lines[8], lines.len()), ("frr,1518,812743.9,,,", 10));
    let json: Value = serde_json::from_str(&files["report.json"]).unwrap();
    let digest = &json["digests"][0];
    assert_eq!(digest["by"], json!({ "key": "frame_size", "title": "Frame size", "unit": "" }));
    let f10 = json!({
        "title": "f10", "test": "latency", "id": null, "unit": "fps",
        "key": "filters[conditions=10, permit=last].throughput_pps",
    });
    assert_eq!(digest["columns"][1], f10);
    let cell = |value: Value, unit: Value| json!({ "value": value, "unit": unit, "marks": [] });
    let cells =
        [cell(json!(1_234_567.4), json!("fps")), cell(json!(500_000.0), json!("fps")), cell(json!(null), json!(null))];
    assert_eq!(digest["rows"][0], json!({ "dut": "linux", "by": "64", "cells": cells }));
    assert_eq!(digest["rows"][2]["cells"][0]["marks"], json!(["tester-limited"]));
    let mut bare = run();
    bare.started.about.digests.clear();
    let bare: Value = serde_json::from_str(&report(&bare)["report.json"]).unwrap();
    assert_eq!(json["ranking"], bare["ranking"]);
}
