//! Maps with known keys, and the scalars that every part of a suite needs.

use super::errors::{Problems, did_you_mean, quote};
use super::raw::{Entry, Node, Value};
use drophammer_model::quantity::parse_count;
use std::collections::HashSet;
use std::ops::Range;

/// Longest text that is read as a number, in bytes.
const LONGEST_NUMBER: usize = 100;

/// The entries of a map.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'n> {
    /// Place for errors about missing keys.
    pub span: &'n Range<usize>,
    entries: &'n [Entry],
}

impl<'n> Fields<'n> {
    /// The map in `node`; an error if it is not a map. `example` shows one.
    pub fn of(node: &'n Node, what: &str, example: &str, problems: &mut Problems) -> Option<Self> {
        match &node.value {
            Value::Map(entries) => Some(Fields { span: &node.span, entries }),
            _ => {
                problems.add(
                    &node.span,
                    format!("{what} is a map of keys and values, not {}", node.what()),
                    format!("write for instance `{example}`"),
                );
                None
            }
        }
    }

    /// The same map, with another place for missing keys.
    pub fn pointing_at(self, span: &'n Range<usize>) -> Self {
        Fields { span, ..self }
    }

    /// The entries, in order.
    pub fn entries(&self) -> &'n [Entry] {
        self.entries
    }

    /// The entry with this key.
    pub fn get(&self, key: &str) -> Option<&'n Entry> {
        self.entries.iter().find(|e| e.key == key)
    }

    /// The value of this key; an error if it is missing or empty.
    pub fn required(&self, key: &str, what: &str, example: &str, problems: &mut Problems) -> Option<&'n Node> {
        match self.get(key) {
            Some(entry) if !matches!(entry.value.value, Value::Null) => Some(&entry.value),
            Some(entry) => {
                problems.add(
                    &entry.key_span,
                    format!("`{key}` has no value"),
                    format!("write for instance `{example}`"),
                );
                None
            }
            None => {
                problems.add(self.span, format!("{what} needs `{key}`"), format!("add for instance `{example}`"));
                None
            }
        }
    }

    /// Reports every key that is not in `known`.
    pub fn refuse_unknown(&self, what: &str, known: &[&str], problems: &mut Problems) {
        for entry in self.entries.iter().filter(|e| !known.contains(&e.key.as_str())) {
            let help = if entry.key == "<<" {
                "merge keys are not read; give the whole map an anchor (`&name`) and repeat it with `*name`".to_owned()
            } else if known.is_empty() {
                format!("{what} has no keys")
            } else {
                did_you_mean(&entry.key, known.iter().copied())
            };
            problems.add(&entry.key_span, format!("{what} has no key {}", quote(&entry.key)), help);
        }
    }
}

/// The items of a list; an error if it is not a list or empty.
pub(crate) fn items<'n>(node: &'n Node, what: &str, example: &str, problems: &mut Problems) -> Option<&'n [Node]> {
    match &node.value {
        Value::List(items) if !items.is_empty() => Some(items),
        Value::List(_) => {
            problems.add(&node.span, format!("{what} is empty"), format!("write for instance `{example}`"));
            None
        }
        _ => {
            problems.add(
                &node.span,
                format!("{what} is a list, not {}", node.what()),
                format!("write for instance `{example}`"),
            );
            None
        }
    }
}

/// A scalar as text, quoted or not; an error if it is not a scalar or blank.
pub(crate) fn text<'n>(node: &'n Node, what: &str, example: &str, problems: &mut Problems) -> Option<&'n str> {
    match &node.value {
        Value::Scalar { text, .. } if !text.trim().is_empty() => Some(text),
        _ => {
            problems.add(
                &node.span,
                format!("{what} is a text, not {}", node.what()),
                format!("write for instance `{example}`"),
            );
            None
        }
    }
}

/// A whole number between `least` and `most`; an error otherwise.
pub(crate) fn whole(node: &Node, what: &str, least: u64, most: u64, problems: &mut Problems) -> Option<u64> {
    let given = match &node.value {
        Value::Scalar { text, plain: true } if text.len() <= LONGEST_NUMBER => Some(text.as_str()),
        _ => None,
    };
    // No digits at all are no number.
    let all_digits = |text: &&str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let number = given.and_then(|text| match parse_count(text) {
        Ok(number) => Some(Ok(number)),
        Err(_) => Some(text).filter(all_digits).map(Err),
    });
    let range = match (least, most) {
        (0, u64::MAX) => "0 or more".to_owned(),
        (_, u64::MAX) => format!("{least} or more"),
        _ => format!("from {least} to {most}"),
    };
    // One with too many digits for any number is out of range, too.
    match number {
        Some(Ok(n)) if (least..=most).contains(&n) => Some(n),
        Some(n) => {
            let n = n.map_or_else(str::to_owned, |n| n.to_string());
            problems.add(
                &node.span,
                format!("{what} is {n}, which is out of range"),
                format!("write a number {range}"),
            );
            None
        }
        None => {
            let message = format!("{what} is a whole number, not {}", node.what());
            problems.add(&node.span, message, format!("write a whole number {range} without quotes"));
            None
        }
    }
}

/// `true` or `false`; an error otherwise.
pub(crate) fn flag(node: &Node, what: &str, problems: &mut Problems) -> Option<bool> {
    match &node.value {
        Value::Scalar { text, plain: true } if text == "true" => Some(true),
        Value::Scalar { text, plain: true } if text == "false" => Some(false),
        _ => {
            let message = format!("{what} must be `true` or `false`, not {}", node.what());
            problems.add(&node.span, message, "write `true` or `false` without quotes");
            None
        }
    }
}

/// One of some words; an error otherwise.
pub(crate) fn word(node: &Node, what: &str, words: &[&str], problems: &mut Problems) -> Option<String> {
    let example = words.first().copied().unwrap_or_default();
    let text = text(node, what, example, problems)?;
    if words.contains(&text) {
        return Some(text.to_owned());
    }
    let message = format!("{what} cannot be {}", quote(text));
    problems.add(&node.span, message, did_you_mean(text, words.iter().copied()));
    None
}

/// A name: a letter or digit, then letters, digits, dashes and, with `dots`, dots and underscores, 64 at most.
pub(crate) fn name(node: &Node, what: &str, dots: bool, problems: &mut Problems) -> Option<String> {
    let text = text(node, what, "my-router", problems)?;
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || (dots && (c == '.' || c == '_'));
    if text.len() <= 64 && text.chars().all(allowed) && text.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return Some(text.to_owned());
    }
    let extra = if dots { ", dashes, dots and underscores" } else { " and dashes" };
    problems.add(
        &node.span,
        format!("{} cannot be {what}", quote(text)),
        format!("use letters, digits{extra}, at most 64, the first a letter or digit; it names files and columns"),
    );
    None
}

/// Reports every repeated name.
pub(crate) fn refuse_repeated<'a>(
    what: &str,
    names: impl IntoIterator<Item = (&'a str, &'a Range<usize>)>,
    problems: &mut Problems,
) {
    let mut seen = HashSet::new();
    for (name, span) in names {
        if !seen.insert(name) {
            let help = "give each one a name of its own";
            problems.add(span, format!("two {what} are called {}", quote(name)), help);
        }
    }
}

/// Splits the text of a quantity's error into the error and the remedy, which follows the last `; ` or `: `.
pub(crate) fn add_quantity(span: &Range<usize>, error: &str, problems: &mut Problems) {
    match error.rfind("; ").max(error.rfind(": ")) {
        Some(at) => problems.add(span, &error[..at], &error[at + 2..]),
        None => problems.add(span, error, "the page on suites lists what each parameter takes"),
    }
}
