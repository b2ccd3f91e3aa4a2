//! What differs if a run is resumed with another suite or other options, and the command that resumes it.

use crate::detach::command_line;
use crate::suite_file::Kept;
use drophammer_model::record::{Record, Started, resumed};
use std::path::Path;

/// What differs from the start of the run in `dir`, and the command that resumes it, as lines below an error message.
/// `kept` is what a run with the current suite would store.
pub fn how(dir: &Path, records: &[Record], kept: &Kept) -> String {
    let Some(Record::Started(started)) = records.first() else { return String::new() };
    let files = kept.texts.iter().filter_map(|(name, now)| {
        let then = std::fs::read_to_string(dir.join(name)).ok()?;
        Some(format!("{name}, {}", changed_line(&then, now)?))
    });
    let mut all: Vec<String> = files.collect();
    all.extend(changed_options(started, &command_line(&kept.secret_variables)));
    let mut out = String::new();
    if !all.is_empty() {
        out += &format!("\n  differs: {}", all.join("\n  differs: "));
    }
    out + &format!("\n  help: {}", resumed(&started.command, &dir.display().to_string()))
}

/// The first line that differs: "line 12: now `rounds: 2`; the run had `rounds: 6`".
fn changed_line(then: &str, now: &str) -> Option<String> {
    let (mut then, mut now) = (then.lines(), now.lines());
    let mut number = 0;
    loop {
        number += 1;
        match (then.next(), now.next()) {
            (None, None) => return None,
            (a, b) if a == b => {}
            (a, b) => {
                let text =
                    |line: Option<&str>| line.map_or("no such line".to_owned(), |line| format!("`{}`", line.trim()));
                return Some(format!("line {number}: now {}; the run had {}", text(b), text(a)));
            }
        }
    }
}

/// Options that only one of the two command lines has.
fn changed_options(started: &Started, now: &[String]) -> Vec<String> {
    // Compare both command lines without the options that may differ, and with the other words at the same positions.
    let (then, now) = (resumed(&started.command, ""), resumed(now, ""));
    let options = |text: &str| {
        let mut options: Vec<String> = Vec::new();
        for word in text.split(' ').skip(1) {
            match options.last_mut() {
                Some(last) if !word.trim_start_matches('\'').starts_with("--") => *last = format!("{last} {word}"),
                _ => options.push(word.to_owned()),
            }
        }
        options
    };
    let (then, now) = (options(&then), options(&now));
    let lacks = then.iter().filter(|option| !now.contains(option)).map(|option| format!("the run had `{option}`"));
    let has = now.iter().filter(|option| !then.contains(option)).map(|option| format!("the run had no `{option}`"));
    lacks.chain(has).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_differs_is_named() {
        let (then, now) = ("a: 1\nrounds: 6\n", "a: 1\nrounds: 2\n");
        assert_eq!(changed_line(then, now).unwrap(), "line 2: now `rounds: 2`; the run had `rounds: 6`");
        assert_eq!(changed_line("a: 1\n", now).unwrap(), "line 2: now `rounds: 2`; the run had no such line");
        assert_eq!(changed_line(now, now), None);
    }
}
