//! The `about:` section: facts that a program cannot determine, for the reader of a report.

use super::errors::{Problems, did_you_mean, quote};
use super::fields::{Fields, SHORTEN, is_line, text};
use super::raw::{Entry, Node, Value};
use drophammer_model::environment::About;
use drophammer_model::suite::DutConfig;

const EXAMPLE: &str = "about: {by: Jane Doe, place: lab 3, my-router: {serial number: A1234}}";
/// Maximum number of facts of the suite or of one DUT.
pub(crate) const MOST_FACTS: usize = 20;
/// Longest name of a fact, in characters.
pub(crate) const LONGEST_KEY: usize = 40;
/// Longest fact, in characters.
pub(crate) const LONGEST_VALUE: usize = 200;

/// Reads the section. `duts` are the DUTs of the suite, if they could be read.
pub(crate) fn read(node: &Node, duts: Option<&[DutConfig]>, problems: &mut Problems) -> Option<About> {
    let fields = Fields::of(node, "`about`", EXAMPLE, problems)?;
    let of_dut = |e: &&Entry| matches!(e.value.value, Value::Map(_));
    let own: Vec<&Entry> = fields.entries.iter().filter(|e| !of_dut(e)).collect();
    let mut about = About { facts: facts(&own, node, problems)?, ..About::default() };
    for entry in fields.entries.iter().filter(of_dut) {
        if let Some(duts) = duts
            && !duts.iter().any(|dut| dut.name == entry.key)
        {
            let message = format!("`about` has a map for {}, which is not a DUT of this suite", quote(&entry.key));
            return problems.refuse(
                &entry.key_span,
                message,
                did_you_mean(&entry.key, duts.iter().map(|d| d.name.as_str())),
            );
        }
        let own = Fields::of(&entry.value, "the facts about a DUT", "{serial number: A1234}", problems)?;
        let own: Vec<&Entry> = own.entries.iter().collect();
        about.duts.push((entry.key.clone(), facts(&own, &entry.value, problems)?));
    }
    Some(about)
}

fn facts(entries: &[&Entry], around: &Node, problems: &mut Problems) -> Option<Vec<(String, String)>> {
    if entries.len() > MOST_FACTS {
        let message = format!("{} facts are too many for the head of a report", entries.len());
        return problems.refuse(&around.span, message, format!("give {MOST_FACTS} at most"));
    }
    let mut out = Vec::new();
    for entry in entries {
        let what = quote(&entry.key);
        let value = text(&entry.value, &what, "Jane Doe", problems)?.trim();
        for (text, longest, span) in
            [(entry.key.as_str(), LONGEST_KEY, &entry.key_span), (value, LONGEST_VALUE, &entry.value.span)]
        {
            if !is_line(text, longest) {
                let message = format!("{} is not one line of 1 to {longest} characters", quote(text));
                return problems.refuse(span, message, SHORTEN);
            }
        }
        out.push((entry.key.clone(), value.to_owned()));
    }
    Some(out)
}
