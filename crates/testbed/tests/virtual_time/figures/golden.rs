//! Writes, reads and compares golden files.

use super::collect::Figures;
use crate::common::Memory;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Maximum number of differing figures that a message names.
const NAMED: usize = 6;

/// Folder of the golden files.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/virtual_time/figures/golden")
}

/// True if the golden files are being rewritten.
pub fn rewriting() -> bool {
    std::env::var_os("DROPHAMMER_WRITE_FIGURES").is_some_and(|v| v == "1")
}

/// The lines of runs, one JSON object each.
pub fn lines(runs: &[Memory], full: bool) -> Vec<String> {
    let figures = Figures { full };
    let records = runs.iter().flat_map(|memory| &memory.records);
    records.flat_map(|record| figures.of(record)).map(sorted).map(|line| line.to_string()).collect()
}

/// The value with the keys of every object in order, regardless of the features that `serde_json` is built with.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let ordered: BTreeMap<String, Value> = map.into_iter().map(|(key, v)| (key, sorted(v))).collect();
            Value::Object(ordered.into_iter().collect())
        }
        Value::Array(list) => Value::Array(list.into_iter().map(sorted).collect()),
        other => other,
    }
}

/// Compares a case with its golden file, or rewrites the file.
pub fn hold(name: &str, runs: &[Memory]) {
    let file = format!("{name}.jsonl");
    if let Some(dir) = std::env::var_os("DROPHAMMER_FIGURES").map(PathBuf::from) {
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join(&file), lines(runs, true).join("\n") + "\n").unwrap();
    }
    let (now, path) = (lines(runs, false), folder().join(&file));
    if rewriting() {
        std::fs::write(&path, now.join("\n") + "\n").unwrap();
        return;
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    if let Err(difference) = compare(name, &golden, &now) {
        panic!("{difference}");
    }
}

/// Compares lines with the text of the golden file `golden/NAME.jsonl`.
///
/// The error names the file, the first record that differs, and the first differing figures in it.
pub fn compare(name: &str, golden: &str, now: &[String]) -> Result<(), String> {
    let golden: Vec<&str> = golden.lines().collect();
    let differing = golden.iter().zip(now).filter(|(a, b)| *a != b).count() + golden.len().abs_diff(now.len());
    if differing == 0 {
        return Ok(());
    }
    let file = format!("tests/virtual_time/figures/golden/{name}.jsonl");
    let mut text = format!("{file}: {differing} of {} records differ", golden.len().max(now.len()));
    if golden.len() != now.len() {
        text += &format!("\n  records: golden {}, now {}", golden.len(), now.len());
    }
    if let Some(at) = golden.iter().zip(now).position(|(a, b)| a != b) {
        text += &format!("\n  first at line {}", at + 1);
        let (a, b) = (parse(golden[at]), parse(&now[at]));
        text += &format!(", {}", title(&a));
        if title(&a) != title(&b) {
            text += &format!("; now {}", title(&b));
        }
        let (a, b) = (flat(&a), flat(&b));
        let names: Vec<&String> = a.keys().chain(b.keys().filter(|k| !a.contains_key(*k))).collect();
        let other = names.into_iter().filter(|k| a.get(*k) != b.get(*k));
        let shown = |map: &BTreeMap<String, String>, key: &str| map.get(key).map_or("none".into(), String::clone);
        for key in other.take(NAMED) {
            text += &format!("\n    {key}: golden {}, now {}", shown(&a, key), shown(&b, key));
        }
    }
    text += "\n  DROPHAMMER_WRITE_FIGURES=1 rewrites the file; DROPHAMMER_FIGURES=DIR writes what is behind a digest";
    Err(text)
}

fn parse(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))
}

/// Describes a record in words.
fn title(record: &Value) -> String {
    let text = |key: &str| record[key].as_str().unwrap_or_default();
    match text("record") {
        "trial" => format!("trial {} of {} (\"{}\")", record["trial"], text("test"), text("purpose")),
        "row" => format!("row {} of table {} of {}", record["row"], text("table"), text("test")),
        "series" => format!("series \"{}\" of plot {} of {}", text("series"), text("plot"), text("test")),
        "figure" => format!("figure {} of {}", text("figure"), text("test")),
        kind => format!("{kind} of {}", text("test")),
    }
}

/// Every figure of a record by its path: `groups/0/received`.
fn flat(value: &Value) -> BTreeMap<String, String> {
    fn walk(path: String, value: &Value, into: &mut BTreeMap<String, String>) {
        let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}/{key}") };
        match value {
            Value::Object(map) => map.iter().for_each(|(key, v)| walk(below(key), v, into)),
            Value::Array(list) => list.iter().enumerate().for_each(|(i, v)| walk(below(&i.to_string()), v, into)),
            other => {
                into.insert(path, other.to_string());
            }
        }
    }
    let mut all = BTreeMap::new();
    walk(String::new(), value, &mut all);
    all
}
