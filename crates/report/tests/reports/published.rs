//! Figures that others have published, next to the figures of a run.

use crate::synthetic::{files, report};
use drophammer_model::environment::Published;
use drophammer_model::record::TestRecord;
use drophammer_store::Run;
use serde_json::Value;

const CELL: &str = "throughput[frame_bytes=1518].of_line_percent";
/// A router with markup in its name.
const OLD: &str = "old <one> (1989)";
const CORE: &str = "core (2001)";

fn entry(test: &str, unit: Option<&str>, routers: &[&str], figures: &[(&str, &[&str])]) -> Published {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    Published {
        test: test.into(),
        title: format!("Published {test}"),
        source: "a document".into(),
        meaning: Some("With 0.1 % loss.".into()),
        unit: unit.map(str::to_owned),
        routers: texts(routers),
        figures: figures.iter().map(|(key, values)| ((*key).to_owned(), texts(values))).collect(),
        ..Default::default()
    }
}

/// A run of two DUTs with published figures: numbers, words, another unit, a cell, and one that the run lacks.
fn run() -> Run {
    let mut run = crate::synthetic::in_rounds(&crate::synthetic::run(2), 6);
    run.started.about.published = vec![
        entry(
            "throughput",
            None,
            &[OLD, CORE],
            &[("throughput_64_pps", &["5782", "faster"]), ("throughput_128_pps", &["1234567", "-"])],
        ),
        entry("throughput", Some("% of line rate"), &[CORE], &[("throughput_1518_pps", &["99.8"]), (CELL, &["50"])]),
    ];
    run
}

/// The texts of the cells of the row that begins with `title`, in a table of `|` or `┆`.
fn row(text: &str, title: &str) -> Vec<String> {
    let text = text.replace('\\', "");
    let line = text.lines().find(|line| line.trim_matches(['|', '│', ' ']).starts_with(title));
    let line = line.unwrap_or_else(|| panic!("no row {title}: {text}"));
    line.trim_matches(['|', '│', ' ']).split(['|', '┆']).map(|cell| cell.trim().to_owned()).collect()
}

#[test]
fn published_figures_stand_in_columns_beside_those_of_the_run() {
    let [markdown, text] = files(&run(), ["report.md", "report.txt"]);
    let summary = &markdown[..markdown.find("## Ranks by test").unwrap()];
    let head = row(summary, "Figure");
    assert_eq!(head[3..], ["old &lt;one&gt; (1989), published [1]", "core (2001), published"]);
    assert_eq!(row(summary, "Overall rank")[3..], ["–", "–"]);
    assert_eq!(row(summary, "Throughput, 64 bytes")[3..], ["5,782", "faster [1]"]);
    // The unit of the document differs from the unit of the figure, and its values have another note than the other
    // values of the column.
    assert_eq!(row(summary, "Throughput, 1518 bytes")[3..], ["–", "99.8 % of line rate [2]"]);
    for note in ["[1] Published throughput (published: a document). With 0.1 % loss.", "[2] Published throughput"] {
        assert!(summary.replace('\\', "").contains(note), "{note}");
        assert!(text.contains(note), "{note}");
    }
    // The text report has the values of the DUTs and the published ones in one table.
    let table = &text[text.find("== Beside published figures ==").unwrap()..];
    let own: f64 = row(table, "Throughput, 64 bytes")[1].replace(',', "").parse().unwrap();
    assert!(own > 1_000.0, "{own}");
    assert_eq!(row(table, "Throughput, 64 bytes")[3..], ["5,782", "faster [1]"]);
}

#[test]
fn the_section_of_the_test_has_cells_of_tables_and_what_was_not_measured() {
    let [markdown] = files(&run(), ["report.md"]);
    let section = markdown.split("### Beside published figures").nth(1).unwrap();
    let cell = row(section, "Of line rate, Frame size 1518 bytes [%]");
    assert!(cell[1].parse::<f64>().is_ok(), "{cell:?}");
    assert_eq!(cell[3..], ["–", "50 % of line rate [2]"]);
    assert_eq!(row(section, "throughput_128_pps")[1..], ["–", "–", "1,234,567", "–"]);
    assert_eq!(markdown.matches("### Beside published figures").count(), 1, "other tests have none");
}

#[test]
fn an_entry_with_an_id_belongs_to_that_test_alone() {
    let mut run = crate::synthetic::in_rounds(&crate::synthetic::run(2), 6);
    let second = ("throughput".to_owned(), "Throughput".to_owned());
    run.started.tests.insert(1, second);
    let again = |record: &TestRecord| {
        let is_throughput = record.test == "throughput";
        let mut records = vec![record.clone()];
        records.extend(is_throughput.then(|| TestRecord { id: Some("swap".into()), ..record.clone() }));
        records
    };
    run.tests = run.tests.iter().flat_map(again).collect();
    let by_id = |key: &str, value: &str| Published {
        id: Some("swap".into()),
        ..entry("throughput", None, &[CORE], &[(key, &[value])])
    };
    run.started.about.published = vec![
        entry("throughput", None, &[OLD], &[("throughput_64_pps", &["5782"])]),
        by_id("throughput_64_pps", "42"),
        by_id("throughput_128_pps", "43"),
    ];
    let [markdown] = files(&run, ["report.md"]);
    let mut sections = markdown.split("### Beside published figures").skip(1);
    let (plain, swap) = (sections.next().unwrap(), sections.next().unwrap());
    assert_eq!(row(plain, "Throughput, 64 bytes")[3..], ["5,782"], "{plain}");
    assert_eq!(row(swap, "Throughput, 64 bytes – Throughput (swap)")[3..], ["5,782", "42 [2]"], "{swap}");
    assert_eq!(row(swap, "throughput_128_pps")[3..], ["–", "43 [3]"]);
    assert!(!plain.split("\n## ").next().unwrap().contains("128"), "{plain}");
}

#[test]
fn the_page_sets_them_apart_and_names_their_source_and_meaning() {
    let [html] = files(&run(), ["report.html"]);
    let summary = &html[html.find("<section id=\"summary\"").unwrap()..html.find("<section id=\"test-").unwrap()];
    assert!(summary.contains("published by others, not ranked") && !summary.contains("<one>"));
    assert!(summary.contains("old &lt;one&gt; (1989) <sup>1</sup>"), "{summary}");
    assert!(summary.contains("99.8 <small>% of line rate</small> <sup>2</sup>"), "{summary}");
    assert!(summary.contains("<sup>2</sup> Published throughput (published: a document). With 0.1 % loss."));
    // Every row has as many cells as the head, counting cells that span several columns.
    let table = summary.split("</table>").next().unwrap();
    let width = |row: &str| -> usize {
        let cells = row.split("<t").skip(1).filter(|part| part.starts_with(['h', 'd']));
        let span = |cell: &str| cell.split('>').next()?.split("colspan=\"").nth(1)?.split('"').next()?.parse().ok();
        cells.map(|cell| span(cell).unwrap_or(1)).sum()
    };
    let widths: Vec<usize> = table.split("<tr").skip(1).map(width).collect();
    assert!(widths.len() > 6 && widths.iter().all(|width| *width == 5), "{widths:?}");
}

#[test]
fn machines_get_them_and_ranks_do_not_change() {
    let [json, csv] = files(&run(), ["report.json", "csv/published.csv"]);
    let with: Value = serde_json::from_str(&json).unwrap();
    let figure =
        |key: &str| with["ranking"]["figures"].as_array().unwrap().iter().find(|f| f["key"] == key).unwrap().clone();
    let published = &figure("throughput_64_pps")["published"];
    assert_eq!(published[0]["router"], OLD);
    assert_eq!((&published[0]["value"], &published[0]["unit"]), (&Value::from(5782.0), &Value::from("fps")));
    assert_eq!(published[1]["value"], "faster");
    assert_eq!(figure("throughput_1518_pps")["published"][0]["unit"], "% of line rate");
    let throughput = with["tests"].as_array().unwrap().iter().find(|test| test["id"] == "throughput").unwrap();
    let keys: Vec<_> =
        throughput["published"].as_array().unwrap().iter().map(|row| row["key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["throughput_64_pps", "throughput_128_pps", "throughput_1518_pps", CELL]);
    assert!(csv.contains(&format!("throughput,throughput_64_pps,\"Throughput, 64 bytes [fps]\",{OLD},5782,fps,Published throughput,a document,With 0.1 % loss.\r\n")), "{csv}");
    // Ranks, places and the text about them are the same without published figures.
    let mut bare = run();
    bare.started.about.published.clear();
    let bare = report(&bare);
    assert!(!bare.contains_key("csv/published.csv"));
    let mut without: Value = serde_json::from_str(&bare["report.json"]).unwrap();
    let mut with = with;
    for value in [&mut with, &mut without] {
        for figure in value["ranking"]["figures"].as_array_mut().unwrap() {
            figure.as_object_mut().unwrap().remove("published");
        }
    }
    assert_eq!(with["ranking"], without["ranking"]);
    let words = |report: &Value| -> Vec<Value> {
        report["tests"].as_array().unwrap().iter().map(|t| t["paragraph"].clone()).collect()
    };
    assert_eq!(words(&with), words(&without));
}
