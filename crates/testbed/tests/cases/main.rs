//! Suites on reference devices in virtual time, with the expected results as data: each YAML file in this folder
//! contains a group of cases.
//!
//! ```yaml
//! suite: |                        # `$word` stands for the text that a case gives for `word`, or for nothing
//!   duts: [{name: box, kind: reference, $device}]
//!   ports: 2 of speed: 100 Mbit/s # p1 and p2
//!   tests: [{soak: {duration: 20 s, $more}}]
//! words: {more: "families: [ipv4]"}   # optional: the words of cases that do not give their own
//! cases:
//!   a_name:                       # a test of its own: FILE::a_name
//!     device: "drop_every: 10"
//!     runs: [ipv4, ipv6]          # optional: several runs, each with its word for `$run`, or a map of words
//!     more: "families: [$run]"
//!     soak_intervals: |           # a table of the outcome: the columns of the first line, as they must be
//!       run   at_s  lost
//!       ipv4  0     12
//! ```
//!
//! A list of rows has the name of a table of the outcome, or one of these names: `tests`, `trials` (counts of a trial
//! are sums over its groups; a name with a dot is a counter of the device; `GROUP/column` is a column of one group),
//! `groups`, `figures`, `verdicts`, `notes`, `records`, `plot KEY` (the points of a plot). ` (REMARK)` after the name
//! allows a second list of the same kind.
//!
//! The first line of a list names its columns. It may also select rows: `column=text`, `column~text` and `column!text`
//! keep the rows whose cell equals, contains or does not contain the text (`_` stands for a space); `first:N`, `last:N`
//! and `every:N` keep some rows; `sum` adds all rows up. Adjacent equal rows are written once, with their count: `x3`.
//! With `distinct`, this also applies to equal rows that are not adjacent. Numbers have seven digits.
//!
//! Other keys of a case: `said` and `unsaid` list texts that some, or no, message of the run contains (` ... ` stands
//! for any text); `refused` is a part of the error that refuses the suite, and `ends` a part of the error that ends the
//! run; `rounds`, `queues`, `stop_after` and `full_after` (trials) determine how the suite is run. All tests must
//! complete, unless the case lists `tests`.
//!
//! `DROPHAMMER_WRITE_FIGURES=1` rewrites the rows. Review the difference before you commit it.

#[path = "../common/mod.rs"]
mod common;
mod rows;

use common::{Memory, run_on_queues};
use drophammer_methods::METHODS;
use drophammer_model::record::{Record, TestStatus};
use drophammer_model::registry::Registry;
use drophammer_suite::{Overrides, read};
use drophammer_testbed::kinds;
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

type Words = BTreeMap<String, Value>;

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    suite: String,
    /// Words for all cases that do not give their own.
    #[serde(default)]
    words: Words,
    cases: BTreeMap<String, Words>,
}

/// Keys of a case that are neither words of the suite nor lists of rows.
const OPTIONS: [&str; 9] =
    ["runs", "said", "unsaid", "refused", "ends", "rounds", "queues", "stop_after", "full_after"];
/// Locked while a file is rewritten.
static WRITING: Mutex<()> = Mutex::new(());

fn main() -> ExitCode {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|ending| ending == "yaml"));
    files.sort();
    let mut trials = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let group: Group = serde_saphyr::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let (suite, file) = (Arc::new(group.suite), Arc::new(file));
        for (name, own) in group.cases {
            let case = group.words.clone().into_iter().chain(own).collect();
            let (suite, file) = (suite.clone(), file.clone());
            let title = format!("{}::{name}", file.file_stem().unwrap().to_string_lossy());
            trials.push(Trial::test(title, move || check(&file, &name, &suite, &case).map_err(Failed::from)));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// A value as a suite writes it.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Replaces the words in `text` by the words of a run, which may themselves contain words.
fn filled(text: &str, words: &Words) -> String {
    let mut parts = text.split('$');
    let mut full = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap_or(part.len());
        full += &words.get(&part[..end]).map_or_else(String::new, |word| filled(&self::text(word), words));
        full += &part[end..];
    }
    full
}

/// Replaces `ports: N of PARAMETERS` in a suite by the list of ports.
fn with_ports(suite: &str) -> String {
    let line = |line: &str| {
        let Some((count, port)) = line.strip_prefix("ports: ").and_then(|ports| ports.split_once(" of ")) else {
            return format!("{line}\n");
        };
        let ports = 1..=count.parse::<u32>().unwrap_or_else(|e| panic!("{line}: {e}"));
        format!("ports: [{}]\n", ports.map(|n| format!("{{name: p{n}, {port}}}, ")).collect::<String>())
    };
    suite.lines().map(line).collect()
}

/// The words of each run of a case.
fn runs(case: &Words) -> Vec<Words> {
    let Some(list) = case.get("runs") else { return vec![case.clone()] };
    let with = |own: &Value| {
        let mut words = case.clone();
        match own {
            Value::Object(map) => words.extend(map.clone()),
            word => _ = words.insert("run".into(), word.clone()),
        }
        words
    };
    list.as_array().expect("`runs` is a list").iter().map(with).collect()
}

fn check(file: &Path, name: &str, suite: &str, case: &Words) -> Result<(), String> {
    let number = |key: &str| case.get(key).map(|n| n.as_u64().unwrap_or_else(|| panic!("{key}: {n}")) as usize);
    let list = |key: &str| case.get(key).and_then(Value::as_array).into_iter().flatten().map(text).collect::<Vec<_>>();
    let template = case.get("suite").map_or_else(|| suite.to_owned(), text);
    let all: String = case.values().map(|value| format!("{value}\n")).chain([template]).collect();
    let is_word = |key: &str| key == "suite" || all.contains(&format!("${key}"));
    let must_complete = !case.contains_key("ends") && (!case.contains_key("tests") || is_word("tests"));
    let mut ran = Vec::new();
    for words in runs(case) {
        let suite = words.get("suite").map_or_else(|| suite.to_owned(), text);
        let suite = with_ports(&filled(&format!("suite: known\nprofile: quick\nseed: 11\n{suite}"), &words));
        let tests: Vec<_> = METHODS.iter().map(|m| m.spec()).collect();
        let kinds = kinds::specs();
        let rounds = number("rounds").map_or(1, |rounds| rounds as u32);
        let overrides = Overrides { rounds: (rounds > 0).then_some(rounds), ..Overrides::default() };
        let read = read::read(&suite, "known.yaml", &Registry { tests: &tests, kinds: &kinds }, &overrides);
        let suite = match (read, words.get("refused")) {
            (Ok(suite), None) => suite,
            (Err(e), Some(why)) if contains(&e.to_string(), &filled(&text(why), &words)) => continue,
            (Ok(_), Some(why)) => return Err(format!("the suite is not refused: {why}")),
            (Err(e), _) => return Err(format!("{e}\n{suite}")),
        };
        let mut memory =
            Memory { stop_after: number("stop_after"), full_after: number("full_after"), ..Memory::default() };
        match (run_on_queues(&suite, number("queues").unwrap_or(1) as u32, &mut memory), words.get("ends")) {
            (Ok(_), None) => {}
            (Err(e), Some(why)) if e.to_string().contains(&text(why)) => {}
            (end, _) => return Err(format!("the run ends with {:?}", end.map_err(|e| e.to_string()))),
        }
        let incomplete = memory.tests().into_iter().find(|test| test.status != TestStatus::Completed);
        if let Some(test) = incomplete.filter(|_| must_complete) {
            return Err(format!("{}: {:?}: {:#?}", test.test, test.status, test.outcome.notes));
        }
        for trial in memory.trials() {
            assert!(trial.result.validity.is_valid() && trial.attempt == 1, "{:?}", trial.result.validity);
        }
        let said = said(&memory);
        for part in list("said").iter().map(|part| filled(part, &words)) {
            if !said.iter().any(|text| contains(text, &part)) {
                return Err(format!("nothing says \"{part}\": {said:#?}"));
            }
        }
        for part in list("unsaid").iter().map(|part| filled(part, &words)) {
            if let Some(text) = said.iter().find(|text| contains(text, &part)) {
                return Err(format!("it says \"{text}\""));
            }
        }
        ran.push((words.get("run").map(|run| filled(&text(run), &words)), memory));
    }
    let mut differing = String::new();
    for (key, expected) in case.iter().filter(|(key, _)| !OPTIONS.contains(&key.as_str()) && !is_word(key)) {
        let source = key.split(" (").next().unwrap_or(key);
        let expected = text(expected);
        let mut lines = expected.lines();
        let columns = lines.next().ok_or_else(|| format!("{source} has no columns"))?;
        let found = rows::of(&ran, source, columns)?;
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let as_expected = found.iter().map(|row| words(&row.join(" "))).eq(lines.map(words));
        if !as_expected && std::env::var_os("DROPHAMMER_WRITE_FIGURES").is_some_and(|v| v == "1") {
            rewrite(file, name, key, columns, &found);
        } else if !as_expected {
            let found = rows::aligned(columns, &found).join("\n");
            differing += &format!("{key} differs. Expected:\n{expected}\nFound:\n{found}\n\n");
        }
    }
    if differing.is_empty() { Ok(()) } else { Err(differing) }
}

/// True if `text` has all parts between the ` ... ` of `wanted`.
fn contains(text: &str, wanted: &str) -> bool {
    wanted.split(" ... ").all(|part| text.contains(part))
}

/// All texts of a run: notes, causes, marks, findings, and reasons for missing figures.
fn said(memory: &Memory) -> Vec<String> {
    let mut said = Vec::new();
    for record in &memory.records {
        match record {
            Record::Note(note) => said.push(note.text.clone()),
            Record::Test(test) => {
                let outcome = &test.outcome;
                said.push(format!("{:?}", test.status));
                said.extend(outcome.notes.iter().cloned());
                said.extend(outcome.tables.iter().flat_map(|table| &table.rows).flat_map(|row| row.marks.clone()));
                said.extend(outcome.verdicts.iter().map(|verdict| verdict.found.clone()));
                said.extend(outcome.ranks.iter().filter_map(|rank| rank.missing.as_ref()).map(|m| m.why.clone()));
            }
            _ => {}
        }
    }
    said
}

/// Writes these rows into the file, in place of the rows that the case has for `key`.
fn rewrite(file: &Path, name: &str, key: &str, columns: &str, found: &[Vec<String>]) {
    let _one = WRITING.lock().unwrap();
    let old = std::fs::read_to_string(file).unwrap();
    let (mut new, mut in_case, mut in_rows) = (String::new(), false, false);
    for line in old.lines() {
        let indent = line.len() - line.trim_start().len();
        in_rows &= indent > 4 || line.trim().is_empty();
        in_case = if indent == 2 { line.trim_end() == format!("  {name}:") } else { in_case };
        if !in_rows {
            new += &format!("{line}\n");
        }
        if in_case && line == format!("    {key}: |") {
            in_rows = true;
            rows::aligned(columns, found).iter().for_each(|row| new += &format!("      {row}\n"));
        }
    }
    std::fs::write(file, new).unwrap();
}
