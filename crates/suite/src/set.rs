//! Parameters of tests that the command line sets: `--set throughput.frame_sizes=[64]` or, with the id of one test,
//! `--set small.frame_sizes=[64]`.

use super::errors::{Problems, did_you_mean, quote};
use super::raw::{self, Entry, Node, Value};
use super::test_list::ID;
use std::str::FromStr;

/// One parameter of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Id of the test, or the name of all tests to change.
    pub test: String,
    /// The parameter.
    pub key: String,
    /// The value, written as in a suite.
    pub value: String,
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Setting, String> {
        let parts = text.split_once('=').and_then(|(place, value)| Some((place.split_once('.')?, value.trim())));
        match parts {
            Some(((test, key), value)) if ![test, key, value].iter().any(|part| part.trim().is_empty()) => {
                Ok(Setting { test: test.trim().into(), key: key.trim().into(), value: value.into() })
            }
            _ => Err("write test.key=value, for instance throughput.frame_sizes=[64,1518]".into()),
        }
    }
}

impl Setting {
    /// The option as written.
    fn text(&self) -> String {
        format!("--set {}.{}={}", self.test, self.key, self.value)
    }
}

/// Applies settings as if they were written in the suite. Errors are reported at the test that they change.
pub(crate) fn apply(root: &mut Node, settings: &[Setting], problems: &mut Problems) {
    let Value::Map(entries) = &mut root.value else { return };
    // The reader of the section reports errors in it.
    let Some(tests) = entries.iter_mut().find(|entry| entry.key == "tests") else { return };
    let Value::List(nodes) = &mut tests.value.value else { return };
    for setting in settings {
        let label = quote(&setting.text());
        let Some(value) = raw::parse_given(&setting.value, &label, &tests.key_span, problems) else { continue };
        let mut found = false;
        for node in nodes.iter_mut().filter(|node| [name(node), id(node)].contains(&Some(setting.test.as_str()))) {
            set(node, &setting.key, value.clone());
            found = true;
        }
        if !found {
            let known = nodes.iter().filter_map(name).chain(nodes.iter().filter_map(id));
            let help = did_you_mean(&setting.test, known);
            problems.add(&tests.key_span, format!("{label}: this suite has no such test"), help);
        }
    }
}

/// Name of a test in the list.
fn name(node: &Node) -> Option<&str> {
    match &node.value {
        Value::Scalar { text, .. } => Some(text),
        Value::Map(entries) => entries.first().map(|entry| entry.key.as_str()),
        _ => None,
    }
}

/// Id of a test in the list. The reader of the list reports errors in it.
fn id(node: &Node) -> Option<&str> {
    let Value::Map(entries) = &node.value else { return None };
    let Value::Map(parameters) = &entries.first()?.value.value else { return None };
    match &parameters.iter().find(|parameter| parameter.key == ID)?.value.value {
        Value::Scalar { text, .. } => Some(text),
        _ => None,
    }
}

/// Sets a parameter of a test.
fn set(test: &mut Node, key: &str, mut value: Node) {
    if let Value::Scalar { text, .. } = &test.value {
        let parameters = Node { span: test.span.clone(), value: Value::Map(Vec::new()) };
        let entry = Entry { key: text.clone(), key_span: test.span.clone(), value: parameters };
        test.value = Value::Map(vec![entry]);
    }
    let Value::Map(entries) = &mut test.value else { return };
    let Some(entry) = entries.first_mut() else { return };
    let place = entry.key_span.clone();
    if matches!(entry.value.value, Value::Null) {
        entry.value.value = Value::Map(Vec::new());
    }
    // The reader reports any other value.
    let Value::Map(parameters) = &mut entry.value.value else { return };
    value.each_span(&|span| *span = place.clone());
    parameters.retain(|parameter| parameter.key != key);
    parameters.push(Entry { key: key.to_owned(), key_span: place, value });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_from_words() {
        let setting = "throughput.expect={throughput_64_pps: \">= 1 kfps\"}".parse::<Setting>().unwrap();
        assert_eq!((setting.test.as_str(), setting.key.as_str()), ("throughput", "expect"));
        assert_eq!(setting.value, "{throughput_64_pps: \">= 1 kfps\"}");
        for wrong in ["", "throughput", "throughput=1", "throughput.x", "throughput.x=", ".x=1", "throughput.=1"] {
            assert!(wrong.parse::<Setting>().unwrap_err().contains("test.key=value"), "{wrong}");
        }
    }
}
