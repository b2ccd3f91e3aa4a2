//! Variables of a suite: `${rate}` stands for the value in `variables: {rate: 100 kfps}` or `--var rate=200kfps`.
//!
//! Without the section `variables`, nothing is replaced, so that a shell's `${name}` in `setup` stays as it is. With
//! the section, `$${` stands for a literal `${`.

use super::errors::{Problems, did_you_mean, quote};
use super::raw::{self, Entry, MAX_WEIGHT, Node, Value};
use std::collections::BTreeMap;
use std::ops::Range;
use std::str::FromStr;

pub(super) const KEY: &str = "variables";
/// Maximum number of variables.
const MOST: usize = 1_000;

/// A variable set on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its value, written as in a suite.
    pub value: String,
}

impl Variable {
    /// Converts the variable to a `variables` section of a suite.
    pub(super) fn as_section(&self) -> String {
        format!("{KEY}: {{{}: {}}}\n", self.name, self.value)
    }
}

impl FromStr for Variable {
    type Err = String;

    fn from_str(text: &str) -> Result<Variable, String> {
        match text.split_once('=') {
            Some((name, value)) if is_name(name.trim()) && !value.trim().is_empty() => {
                Ok(Variable { name: name.trim().into(), value: value.trim().into() })
            }
            _ => Err("write name=value, for instance rate=100kfps".into()),
        }
    }
}

/// Letters, digits, `_` and `-`.
fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
}

/// Names of the variables that a text uses.
pub(super) fn names(text: &str) -> Vec<&str> {
    let behind = text.split("${").skip(1);
    behind.filter_map(|rest| rest.split_once('}')).map(|(name, _)| name).filter(|name| is_name(name)).collect()
}

/// Replaces all variables by their values.
pub(super) fn apply(root: &mut Node, given: &[Variable], problems: &mut Problems) {
    let Value::Map(entries) = &mut root.value else { return };
    let Some(at) = entries.iter().position(|entry| entry.key == KEY) else {
        for variable in given {
            let message = format!("--var {}: this suite has no variables", quote(&variable.name));
            problems.add(&(0..0), message, "add `variables: {name: value}`, and `${name}` where the value belongs");
        }
        return;
    };
    let section = entries.remove(at);
    let Some(mut values) = values(&section, problems) else { return };
    for Variable { name, value } in given {
        let label = format!("--var {}", quote(name));
        if !values.contains_key(name) {
            let help = did_you_mean(name, values.keys().map(String::as_str));
            problems.add(&section.key_span, format!("{label}: this suite has no such variable"), help);
        } else if let Some(node) = raw::parse_given(value, &label, &section.key_span, problems) {
            values.insert(name.clone(), node);
        }
    }
    let mut filler = Filler { values: &values, room: MAX_WEIGHT, problems };
    entries.iter_mut().for_each(|entry| filler.fill(&mut entry.value));
}

/// The variables with their values; `None` if the section is invalid.
fn values(section: &Entry, problems: &mut Problems) -> Option<BTreeMap<String, Node>> {
    let Value::Map(entries) = &section.value.value else {
        let message = format!("`{KEY}` is a map, not {}", section.value.what());
        return problems.refuse(
            &section.value.span,
            message,
            "write a map, for instance `variables: {rate: 100 kfps}`",
        );
    };
    if entries.len() > MOST {
        return problems.refuse(
            &section.key_span,
            format!("{} variables", entries.len()),
            format!("a suite has at most {MOST}"),
        );
    }
    for entry in entries.iter().filter(|entry| !is_name(&entry.key)) {
        let message = format!("{} is not a variable name", quote(&entry.key));
        problems.add(&entry.key_span, message, "write letters, digits, `_` and `-`, at most 64");
    }
    Some(entries.iter().map(|entry| (entry.key.clone(), entry.value.clone())).collect())
}

struct Filler<'a> {
    values: &'a BTreeMap<String, Node>,
    /// Weight ([`Node::weight`]) that can still be inserted.
    room: usize,
    problems: &'a mut Problems,
}

impl<'a> Filler<'a> {
    fn fill(&mut self, node: &mut Node) {
        match &mut node.value {
            Value::Null => {}
            Value::List(items) => items.iter_mut().for_each(|item| self.fill(item)),
            Value::Map(entries) => entries.iter_mut().for_each(|entry| self.fill(&mut entry.value)),
            Value::Scalar { text, .. } if text.contains("${") => self.scalar(node),
            Value::Scalar { .. } => {}
        }
    }

    /// Replaces the variables in a text.
    fn scalar(&mut self, node: &mut Node) {
        let place = node.span.clone();
        let Value::Scalar { text, .. } = &mut node.value else { return };
        // A variable that is the whole text can be a list or a map.
        let whole = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}')).filter(|name| is_name(name));
        if let Some(name) = whole {
            let Some(value) = self.value(name, &place) else { return };
            let mut value = value.clone();
            value.each_span(&|span| *span = place.clone());
            *node = value;
            return;
        }
        let mut out = String::new();
        let mut rest = text.as_str();
        while let Some(at) = rest.find("${") {
            let (before, behind) = (&rest[..at], &rest[at + 2..]);
            if let Some(literal) = before.strip_suffix('$') {
                out += literal;
                out += "${";
                rest = behind;
                continue;
            }
            out += before;
            let Some((name, behind)) = behind.split_once('}') else {
                let message = format!("{} has `${{` without `}}`", quote(text));
                return self.problems.add(&place, message, "close it, or write `$${` for a literal `${`");
            };
            let (name, shown) = (name.to_owned(), quote(text));
            match self.value(&name, &place).map(|node| &node.value) {
                Some(Value::Scalar { text, .. }) => out += text,
                Some(_) => {
                    let message = format!("the variable {} in {shown} is not a single value", quote(&name));
                    return self.problems.add(
                        &place,
                        message,
                        "a list or a map cannot be part of a text; write only `${name}`",
                    );
                }
                None => return,
            }
            rest = behind;
        }
        out += rest;
        *text = out;
    }

    /// The value of a variable, if the limit permits.
    fn value(&mut self, name: &str, place: &Range<usize>) -> Option<&'a Node> {
        let values = self.values;
        let Some(value) = values.get(name) else {
            let message = format!("there is no variable {}", quote(name));
            let known = did_you_mean(name, values.keys().map(String::as_str));
            return self.problems.refuse(place, message, format!("{known}; `$${{` stands for a literal `${{`"));
        };
        let Some(room) = self.room.checked_sub(value.weight()) else {
            return self.problems.refuse(
                place,
                "with its variables replaced, this suite is too large",
                "repeat shorter values",
            );
        };
        self.room = room;
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the suite's tree as text, and the first problem.
    fn filled(suite: &str, given: &[&str]) -> (String, Option<String>) {
        let mut problems = Problems::default();
        let mut root = raw::parse(suite, &mut problems).unwrap();
        let given: Vec<Variable> = given.iter().map(|text| text.parse().unwrap()).collect();
        apply(&mut root, &given, &mut problems);
        (show(&root), problems.first())
    }

    fn show(node: &Node) -> String {
        match &node.value {
            Value::Null => "~".into(),
            Value::Scalar { text, .. } => text.clone(),
            Value::List(items) => format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(",")),
            Value::Map(entries) => {
                let all: Vec<_> = entries.iter().map(|e| format!("{}:{}", e.key, show(&e.value))).collect();
                format!("{{{}}}", all.join(","))
            }
        }
    }

    const SUITE: &str = "variables: {rate: 100 kfps, sizes: [64, imix], n: 2}\na: ${rate}\nb: [\"${sizes}\", \"x${n}y${n}\"]\nc: cost $${n}\n";

    #[test]
    fn variables_stand_for_values_lists_and_parts_of_texts() {
        assert_eq!(filled(SUITE, &[]), ("{a:100 kfps,b:[[64,imix],x2y2],c:cost ${n}}".into(), None));
        let (text, problem) = filled(SUITE, &["rate=5 Mfps", "sizes=[128]"]);
        assert_eq!((text.as_str(), problem), ("{a:5 Mfps,b:[[128],x2y2],c:cost ${n}}", None));
    }

    #[test]
    fn without_the_section_nothing_is_replaced() {
        assert_eq!(filled("a: echo ${HOME}\n", &[]), ("{a:echo ${HOME}}".into(), None));
        assert!(filled("a: 1\n", &["rate=1"]).1.unwrap().contains("has no variables"));
    }

    #[test]
    fn mistakes_are_named() {
        for (suite, given, word) in [
            ("variables: {rate: 1}\na: ${rat}\n", &[][..], "did you mean `rate`"),
            ("variables: {rate: 1}\na: x${rate\n", &[], "without `}`"),
            ("variables: {rate: [1]}\na: x${rate}\n", &[], "not a single value"),
            ("variables: [1]\n", &[], "is a map, not a list"),
            ("variables: {a b: 1}\n", &[], "not a variable name"),
            ("variables: {rate: 1}\n", &["speed=1"], "no such variable"),
            ("variables: {rate: 1}\n", &["rate=[1"], "rate"),
        ] {
            let problem = filled(suite, given).1.unwrap_or_default();
            assert!(problem.contains(word), "{suite}: {problem}");
        }
        for wrong in ["", "rate", "=1", "rate=", "a b=1"] {
            assert!(wrong.parse::<Variable>().unwrap_err().contains("name=value"), "{wrong}");
        }
    }

    #[test]
    fn what_variables_repeat_is_bounded() {
        let list = vec!["x"; 1_000].join(",");
        let uses = vec!["\"${v}\""; 1_000].join(",");
        let problem = filled(&format!("variables: {{v: [{list}]}}\na: [{uses}]\n"), &[]).1;
        assert!(problem.unwrap().contains("too large"));
    }
}
