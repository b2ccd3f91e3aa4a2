//! Maps with known keys, lists, and scalars, for all parts of a suite.

use super::errors::{Problems, did_you_mean, quote};
use super::raw::{Entry, Node, Value};
use drophammer_model::quantity::parse_count;
use drophammer_model::visible::is_hidden;
use std::collections::HashSet;
use std::fmt::Display;
use std::ops::Range;

/// Longest text that is read as a number, in bytes.
const LONGEST_NUMBER: usize = 100;
/// Longest text that is read as a quantity, in bytes.
const LONGEST_QUANTITY: usize = 1_000;
/// Longest text of one line, in characters.
pub(crate) const LONGEST_LINE: usize = 200;

/// Returns the help that shows an example.
pub(crate) fn such_as(example: impl Display) -> String {
    format!("write for instance `{example}`")
}

/// The entries of a map.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'n> {
    /// Position for errors about missing keys.
    pub span: &'n Range<usize>,
    /// The entries, in order.
    pub entries: &'n [Entry],
}

impl<'n> Fields<'n> {
    /// The map in `node`; an error if it is not a map. `example` is an example of such a map.
    pub fn of(node: &'n Node, what: &str, example: &str, problems: &mut Problems) -> Option<Self> {
        match &node.value {
            Value::Map(entries) => Some(Fields { span: &node.span, entries }),
            _ => {
                let message = format!("{what} is a map of keys and values, not {}", node.what());
                problems.refuse(&node.span, message, such_as(example))
            }
        }
    }

    /// Like [`Fields::of`], but also reports every key that is not in `known`.
    pub fn with_keys(
        node: &'n Node,
        what: &str,
        known: &[&str],
        example: &str,
        problems: &mut Problems,
    ) -> Option<Self> {
        let fields = Fields::of(node, what, example, problems)?;
        fields.refuse_unknown(what, known, problems);
        Some(fields)
    }

    /// The entry with this key.
    pub fn get(&self, key: &str) -> Option<&'n Entry> {
        self.entries.iter().find(|e| e.key == key)
    }

    /// The value of this key.
    pub fn value(&self, key: &str) -> Option<&'n Node> {
        self.get(key).map(|entry| &entry.value)
    }

    /// Reads the value of an optional key: `Some(None)` if the key is absent, `None` after an error.
    pub fn optional<T>(&self, key: &str, read: impl FnOnce(&'n Node) -> Option<T>) -> Option<Option<T>> {
        self.value(key).map_or(Some(None), |node| read(node).map(Some))
    }

    /// Reads the value of this key, or returns `default` if the key is absent; `None` after an error.
    pub fn or<T>(&self, key: &str, default: T, read: impl FnOnce(&'n Node) -> Option<T>) -> Option<T> {
        self.value(key).map_or(Some(default), read)
    }

    /// The value of this key; an error if it is missing or empty.
    pub fn required(&self, key: &str, what: &str, example: &str, problems: &mut Problems) -> Option<&'n Node> {
        match self.get(key) {
            Some(entry) if !matches!(entry.value.value, Value::Null) => Some(&entry.value),
            Some(entry) => problems.refuse(&entry.key_span, format!("`{key}` has no value"), such_as(example)),
            None => {
                let help = format!("add for instance `{example}`");
                problems.refuse(self.span, format!("{what} needs `{key}`"), help)
            }
        }
    }

    /// Reports every key that is not in `known`.
    pub fn refuse_unknown(&self, what: &str, known: &[&str], problems: &mut Problems) {
        for entry in self.entries.iter().filter(|e| !known.contains(&e.key.as_str())) {
            let help = if entry.key == "<<" {
                "merge keys are not read; give the whole map an anchor (`&name`) and repeat it with `*name`".to_owned()
            } else {
                did_you_mean(&entry.key, known.iter().copied())
            };
            problems.add(&entry.key_span, format!("{what} has no key {}", quote(&entry.key)), help);
        }
    }
}

/// The items of a list; an error if it is not a list, or if it is empty.
pub(crate) fn items<'n>(node: &'n Node, what: &str, example: &str, problems: &mut Problems) -> Option<&'n [Node]> {
    match &node.value {
        Value::List(items) if !items.is_empty() => Some(items),
        Value::List(_) => problems.refuse(&node.span, format!("{what} is empty"), such_as(example)),
        _ => problems.refuse(&node.span, format!("{what} is a list, not {}", node.what()), such_as(example)),
    }
}

/// The items of a list; an error if there are more than `most`.
pub(crate) fn few<'n>(
    node: &'n Node,
    what: &str,
    example: &str,
    most: usize,
    problems: &mut Problems,
) -> Option<&'n [Node]> {
    let items = items(node, what, example, problems)?;
    within(node, what, items.len(), most, problems)?;
    Some(items)
}

/// An error if there are more than `most` items.
pub(crate) fn within(node: &Node, what: &str, items: usize, most: usize, problems: &mut Problems) -> Option<()> {
    if items <= most {
        return Some(());
    }
    problems.refuse(&node.span, format!("{what} has {items} items"), format!("give {most} at most"))
}

/// A scalar as text, quoted or not; an error if it is not a scalar, or if it is blank.
pub(crate) fn text<'n>(node: &'n Node, what: &str, example: &str, problems: &mut Problems) -> Option<&'n str> {
    match &node.value {
        Value::Scalar { text, .. } if !text.trim().is_empty() => Some(text),
        _ => problems.refuse(&node.span, format!("{what} is a text, not {}", node.what()), such_as(example)),
    }
}

/// One line of text.
pub(crate) fn line(node: &Node, what: &str, problems: &mut Problems) -> Option<String> {
    one_line(text(node, what, "some text", problems)?, &node.span, what, problems)
}

/// The text, which must be one line and not blank.
pub(crate) fn one_line(text: &str, span: &Range<usize>, what: &str, problems: &mut Problems) -> Option<String> {
    let text = text.trim();
    if is_line(text, LONGEST_LINE) {
        return Some(text.to_owned());
    }
    let message = format!("{what} is not one line of 1 to {LONGEST_LINE} characters");
    problems.refuse(span, message, SHORTEN)
}

/// The help for a text that is not one line.
pub(crate) const SHORTEN: &str = "shorten it to one line without control characters";

/// True if a text is one line of 1 to `longest` characters.
pub(crate) fn is_line(text: &str, longest: usize) -> bool {
    !text.trim().is_empty() && !text.contains(is_hidden) && text.chars().count() <= longest
}

/// A quantity, read by `parse`; an error if that fails.
pub(crate) fn quantity<T, E: Display>(
    node: &Node,
    what: &str,
    example: &str,
    parse: impl FnOnce(&str) -> Result<T, E>,
    problems: &mut Problems,
) -> Option<T> {
    let text = text(node, what, example, problems)?;
    if text.len() > LONGEST_QUANTITY {
        return problems.refuse(&node.span, format!("{what} is a text of {} bytes", text.len()), such_as(example));
    }
    parse(text).map_err(|error| add_quantity(&node.span, &error.to_string(), problems)).ok()
}

/// A whole number between `least` and `most`; an error if it is something else.
pub(crate) fn whole(node: &Node, what: &str, least: u64, most: u64, problems: &mut Problems) -> Option<u64> {
    let given = match &node.value {
        Value::Scalar { text, plain: true } if text.len() <= LONGEST_NUMBER => Some(text.as_str()),
        _ => None,
    };
    let all_digits = |text: &&str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let number = given.and_then(|text| match parse_count(text) {
        Ok(number) => Some(Ok(number)),
        Err(_) => Some(text).filter(all_digits).map(Err),
    });
    let range = match (least, most) {
        (0, u64::MAX) => "of at least 0".to_owned(),
        (_, u64::MAX) => format!("of at least {least}"),
        _ => format!("from {least} to {most}"),
    };
    match number {
        Some(Ok(n)) if (least..=most).contains(&n) => Some(n),
        // A number that does not fit into 64 bits is out of range, too.
        Some(n) => {
            let n = n.map_or_else(str::to_owned, |n| n.to_string());
            let message = format!("{what} is {n}, which is out of range");
            problems.refuse(&node.span, message, format!("write a number {range}"))
        }
        None => {
            let message = format!("{what} is a whole number, not {}", node.what());
            problems.refuse(&node.span, message, format!("write a whole number {range} without quotes"))
        }
    }
}

/// `true` or `false`; an error if it is something else.
pub(crate) fn flag(node: &Node, what: &str, problems: &mut Problems) -> Option<bool> {
    match &node.value {
        Value::Scalar { text, plain: true } if text == "true" => Some(true),
        Value::Scalar { text, plain: true } if text == "false" => Some(false),
        _ => {
            let message = format!("{what} must be `true` or `false`, not {}", node.what());
            problems.refuse(&node.span, message, "write `true` or `false` without quotes")
        }
    }
}

/// One of `words`; an error if it is something else.
pub(crate) fn word(node: &Node, what: &str, words: &[&str], problems: &mut Problems) -> Option<String> {
    let text = text(node, what, words.first().copied().unwrap_or_default(), problems)?;
    if words.contains(&text) {
        return Some(text.to_owned());
    }
    let message = format!("{what} cannot be {}", quote(text));
    problems.refuse(&node.span, message, did_you_mean(text, words.iter().copied()))
}

/// A name: a letter or digit, then letters, digits, dashes and, with `dots`, dots and underscores; at most 64
/// characters.
pub(crate) fn name(node: &Node, what: &str, dots: bool, problems: &mut Problems) -> Option<String> {
    let text = text(node, what, "my-router", problems)?;
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || (dots && (c == '.' || c == '_'));
    if text.len() <= 64 && text.chars().all(allowed) && text.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return Some(text.to_owned());
    }
    let extra = if dots { ", dashes, dots and underscores" } else { " and dashes" };
    let help =
        format!("use letters, digits{extra}, at most 64, the first a letter or digit; it names files and columns");
    problems.refuse(&node.span, format!("{} cannot be {what}", quote(text)), help)
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
            problems.add(span, format!("two {what} are called {}", quote(name)), "give each one a different name");
        }
    }
}

/// Splits the text of a quantity's error at the last `; ` or `: ` into the error and the help.
pub(crate) fn add_quantity(span: &Range<usize>, error: &str, problems: &mut Problems) {
    match error.rfind("; ").max(error.rfind(": ")) {
        Some(at) => problems.add(span, &error[..at], &error[at + 2..]),
        None => problems.add(span, error, "the page on suites lists the values of each parameter"),
    }
}
