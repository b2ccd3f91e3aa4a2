//! The records of a run folder that somebody made to harm: they are read or refused, and a report of what was read is no
//! larger than its records allow.

use drophammer_report::{criteria, rendered, summary_text};
use drophammer_store::RunReader;
use serde_json::{Value, json};
use std::path::Path;

/// A stored run with records of every kind of test.
const STORED: &str = include_str!("../../crates/report/tests/stored_run/format-1/run.jsonl");
/// Most changes of one input.
const MOST: usize = 32;
/// Bytes of a report for each byte of its records.
const GROWTH: usize = 64;

/// The byte that begins an input that is the whole file.
pub const WHOLE: u8 = 0xff;

/// Records of any bytes: after [`WHOLE`] those of the input, else a stored run with changes that the input chooses.
pub fn run(data: &[u8]) {
    let bytes = match data.split_first() {
        Some((&WHOLE, rest)) => rest.to_vec(),
        _ => changed(data),
    };
    match RunReader::of_bytes(Path::new("fuzz"), &bytes) {
        Ok(run) => {
            let files = rendered(&run);
            let size: usize = files.iter().map(|(_, text)| text.len()).sum();
            assert!(size <= bytes.len() * GROWTH + (1 << 20), "{} bytes of records, {size} of the report", bytes.len());
            assert!(!summary_text(&run, false).is_empty());
            let counted = criteria(&run);
            let verdicts: usize = run.tests.iter().map(|test| test.outcome.verdicts.len()).sum();
            assert!(counted.met + counted.missed + counted.undecided <= verdicts);
        }
        Err(e) => assert!(!e.to_string().is_empty()),
    }
}

/// The stored run with changes, each of five bytes: what is done, in which line (two bytes for the place in it), with what.
fn changed(data: &[u8]) -> Vec<u8> {
    let mut lines: Vec<Value> = STORED.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut cut = None;
    for change in data.chunks(5).take(MOST) {
        let byte = |at: usize| usize::from(change.get(at).copied().unwrap_or(0));
        let (at, place) = (byte(1) % lines.len(), byte(2) << 8 | byte(3));
        match byte(0) % 8 {
            0..=4 => {
                let leaves = count(&lines[at]);
                replace(&mut lines[at], &mut (place % leaves), &hostile(byte(4)));
            }
            5 => lines.insert(at, lines[at].clone()),
            6 if lines.len() > 1 => drop(lines.remove(at)),
            _ => cut = Some(place),
        }
    }
    let mut text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    if let Some(cut) = cut {
        text.truncate(text.floor_char_boundary(text.len().saturating_sub(cut)));
    }
    text.into_bytes()
}

/// Number of values in a tree that are no list or map, or an empty one.
fn count(value: &Value) -> usize {
    match value {
        Value::Array(items) if !items.is_empty() => items.iter().map(count).sum(),
        Value::Object(entries) if !entries.is_empty() => entries.values().map(count).sum(),
        _ => 1,
    }
}

/// Puts `by` in the place of the value of this number.
fn replace(value: &mut Value, number: &mut usize, by: &Value) -> bool {
    match value {
        Value::Array(items) if !items.is_empty() => items.iter_mut().any(|item| replace(item, number, by)),
        Value::Object(entries) if !entries.is_empty() => entries.values_mut().any(|item| replace(item, number, by)),
        leaf if *number == 0 => {
            *leaf = by.clone();
            true
        }
        _ => {
            *number -= 1;
            false
        }
    }
}

/// A value that a program may not have thought of.
fn hostile(choice: usize) -> Value {
    let nested = (0..100).fold(json!([]), |inside, _| json!([inside]));
    let values = [
        Value::Null,
        json!(true),
        json!(0),
        json!(1),
        json!(-1),
        json!(u32::MAX),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(0.1),
        json!(1e308),
        json!(-1e308),
        json!(5e-324),
        json!(""),
        json!("x".repeat(1000)),
        json!("\u{202e}\u{1b}[2J<script>\"'\n|,="),
        json!([]),
        json!({}),
        json!([1, 2]),
        json!({"a": 1}),
        nested,
    ];
    values[choice % values.len()].clone()
}
