//! Reads JSON objects strictly: each field is taken by its name, and a field that nobody took is reported with its path.

use super::tag::Tag;
use serde_json::{Map, Value};
use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::str::FromStr;

/// Maximum number of errors that are reported together.
const MOST_ERRORS: usize = 50;

/// Maximum number of routes of all ranges together.
const MOST_ROUTES: u64 = 8_000_000;

/// Maximum number of values of all tags, and of their combinations, together.
const MOST_TAGGED: u64 = 65_536;

/// All errors of a document, and what concerns several of its parts.
#[derive(Debug, Default)]
pub struct Errors {
    list: RefCell<Vec<String>>,
    routes: Cell<u64>,
    tags: RefCell<Vec<Tag>>,
    tagged: Cell<u64>,
}

impl Errors {
    /// Adds an error at `path`.
    pub fn add(&self, path: &str, reason: impl Display) {
        let mut errors = self.list.borrow_mut();
        if errors.len() < MOST_ERRORS {
            let path = if path.is_empty() { String::new() } else { format!("{path}: ") };
            errors.push(format!("{path}{reason}"));
        }
    }

    /// Takes this many routes out of what a document may have.
    ///
    /// # Errors
    /// There are too many.
    pub fn spend_routes(&self, routes: u64) -> Result<(), String> {
        self.routes.set(self.routes.get().saturating_add(routes));
        let fit = self.routes.get() <= MOST_ROUTES;
        fit.then_some(()).ok_or_else(|| format!("all ranges together have at most {MOST_ROUTES} routes"))
    }

    /// Takes this many values out of what the tags of a document may have.
    ///
    /// # Errors
    /// There are too many.
    pub fn spend_tagged(&self, values: u64) -> Result<(), String> {
        self.tagged.set(self.tagged.get().saturating_add(values));
        let fit = self.tagged.get() <= MOST_TAGGED;
        fit.then_some(()).ok_or_else(|| format!("all tags together have at most {MOST_TAGGED} values"))
    }

    /// Adds a tag of a header field.
    pub fn add_tag(&self, tag: Tag) {
        self.tags.borrow_mut().push(tag);
    }

    /// Takes the tags since the last call.
    pub fn take_tags(&self) -> Vec<Tag> {
        self.tags.take()
    }

    /// `value`, unless there are errors.
    ///
    /// # Errors
    /// All errors so far.
    pub fn or<T>(self, value: T) -> Result<T, Vec<String>> {
        let errors = self.list.into_inner();
        if errors.is_empty() { Ok(value) } else { Err(errors) }
    }
}

/// A JSON object, with its path in the document. When it is dropped, fields that were not taken are reported.
pub struct Object<'a> {
    path: String,
    fields: Map<String, Value>,
    errors: &'a Errors,
}

/// Absent fields, `null` and empty lists have no effect.
fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

impl<'a> Object<'a> {
    /// The document itself; `null` is an empty object.
    pub fn document(value: Value, errors: &'a Errors) -> Object<'a> {
        Object::new(String::new(), value, errors)
    }

    fn new(path: String, value: Value, errors: &'a Errors) -> Object<'a> {
        let fields = match value {
            Value::Object(fields) => fields,
            Value::Null => Map::new(),
            _ => {
                errors.add(&path, "this must be an object");
                Map::new()
            }
        };
        Object { path, fields, errors }
    }

    /// Path of a field.
    pub fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Path of the object.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Where errors go.
    pub fn errors(&self) -> &'a Errors {
        self.errors
    }

    /// Adds an error about a field.
    pub fn wrong(&self, key: &str, reason: impl Display) {
        self.errors.add(&self.path_of(key), reason);
    }

    /// True if the object has the field.
    pub fn has(&self, key: &str) -> bool {
        self.fields.get(key).is_some_and(|value| !value.is_null())
    }

    /// Takes a field as it is.
    pub fn take(&mut self, key: &str) -> Option<Value> {
        self.fields.remove(key).filter(|value| !value.is_null())
    }

    /// Accepts any value of a field, because it has no effect here.
    pub fn ignore(&mut self, key: &str) {
        self.fields.remove(key);
    }

    /// Accepts all remaining fields that are false, because they request nothing.
    pub fn drop_false(&mut self) {
        self.fields.retain(|_, value| !matches!(value, Value::Bool(false)));
    }

    /// Takes an object.
    pub fn object(&mut self, key: &str) -> Option<Object<'a>> {
        let value = self.take(key)?;
        Some(Object::new(self.path_of(key), value, self.errors))
    }

    /// Takes an object, which is empty if the field is absent.
    pub fn object_or_empty(&mut self, key: &str) -> Object<'a> {
        let value = self.take(key).unwrap_or(Value::Null);
        Object::new(self.path_of(key), value, self.errors)
    }

    /// Takes a list of objects.
    pub fn objects(&mut self, key: &str) -> Vec<Object<'a>> {
        let errors = self.errors;
        let list = self.list(key);
        let each = |(i, value)| Object::new(format!("{}[{i}]", self.path_of(key)), value, errors);
        list.into_iter().enumerate().map(each).collect()
    }

    fn list(&mut self, key: &str) -> Vec<Value> {
        match self.take(key) {
            None => Vec::new(),
            Some(Value::Array(list)) => list,
            Some(_) => {
                self.wrong(key, "this must be a list");
                Vec::new()
            }
        }
    }

    /// Takes a list of texts.
    pub fn texts(&mut self, key: &str) -> Vec<String> {
        let list = self.list(key);
        let text = |(i, value): (usize, Value)| match value {
            Value::String(text) => Some(text),
            _ => {
                self.errors.add(&format!("{}[{i}]", self.path_of(key)), "this must be a text");
                None
            }
        };
        list.into_iter().enumerate().filter_map(text).collect()
    }

    /// Takes a text.
    pub fn text(&mut self, key: &str) -> Option<String> {
        match self.take(key)? {
            Value::String(text) => Some(text),
            _ => {
                self.wrong(key, "this must be a text");
                None
            }
        }
    }

    /// Takes a text that must be there; empty after an error.
    pub fn name(&mut self, key: &str) -> String {
        let text = self.text(key).unwrap_or_default();
        if text.is_empty() {
            self.wrong(key, "this is required");
        }
        text
    }

    /// Takes a text and reads it: an address.
    pub fn parsed<T: FromStr<Err: Display>>(&mut self, key: &str) -> Option<T> {
        let text = self.text(key)?;
        text.parse().map_err(|e| self.wrong(key, format_args!("`{text}`: {e}"))).ok()
    }

    /// Takes a whole number of at most `most`, given as a number or, as in protobuf, as a text.
    pub fn number(&mut self, key: &str, most: u64) -> Option<u64> {
        let value = self.take(key)?;
        let number = whole(&value).filter(|number| *number <= most);
        if number.is_none() {
            self.wrong(key, format_args!("{value} is not a whole number from 0 to {most}"));
        }
        number
    }

    /// Takes a whole number from `least` to `most`, otherwise `default`.
    pub fn within(&mut self, key: &str, [least, most]: [u64; 2], default: u64) -> u64 {
        let number = self.number(key, most).unwrap_or(default);
        if number < least {
            self.wrong(key, format_args!("the smallest value is {least}"));
        }
        number
    }

    /// Takes a whole number of which only one value is supported, the default.
    pub fn only(&mut self, key: &str, value: u64) {
        if self.number(key, u64::MAX).is_some_and(|number| number != value) {
            self.wrong(key, format_args!("only {value} is supported"));
        }
    }

    /// Takes a number that is not negative.
    pub fn float(&mut self, key: &str) -> Option<f64> {
        let value = self.take(key)?;
        let number = match &value {
            Value::Number(number) => number.as_f64(),
            Value::String(text) => text.parse().ok(),
            _ => None,
        };
        let number = number.filter(|number| number.is_finite() && *number >= 0.0);
        if number.is_none() {
            self.wrong(key, format_args!("{value} is not a number from 0 on"));
        }
        number
    }

    /// Takes a truth value.
    pub fn flag(&mut self, key: &str, default: bool) -> bool {
        match self.take(key) {
            None => default,
            Some(Value::Bool(flag)) => flag,
            Some(value) => {
                self.wrong(key, format_args!("{value} is not true or false"));
                default
            }
        }
    }

    /// Takes a word, one of `words`. Returns its place.
    pub fn word(&mut self, key: &str, words: &[&str], default: usize) -> usize {
        let Some(text) = self.text(key) else { return default };
        words.iter().position(|word| *word == text).unwrap_or_else(|| {
            self.wrong(key, format_args!("`{text}` is not supported; supported: {}", words.join(", ")));
            default
        })
    }

    /// Takes `choice`, one of `words`; without it, the first of them that is present, otherwise `default`.
    pub fn choice<'w>(&mut self, words: &[&'w str], default: &'w str) -> &'w str {
        let Some(text) = self.text("choice") else {
            return words.iter().find(|word| self.has(word)).copied().unwrap_or(default);
        };
        words.iter().find(|word| **word == text).copied().unwrap_or_else(|| {
            self.fields.remove(&text);
            let path = self.path_of(&text);
            self.errors.add(&path, "not supported");
            default
        })
    }
}

/// A whole number from a number without fraction or a text.
pub fn whole(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64().or_else(|| {
            let float = number.as_f64().filter(|float| float.fract() == 0.0 && (0.0..9e15).contains(float))?;
            Some(float as u64)
        }),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

impl Drop for Object<'_> {
    fn drop(&mut self) {
        for (key, value) in &self.fields {
            if !says_nothing(value) {
                self.errors.add(&self.path_of(key), "not supported");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_nobody_takes_is_refused_with_its_path() {
        let errors = Errors::default();
        let text = json!({"flows": [{"name": "f", "packet": [{"gtpv1": {}}], "stateful": null, "lags": []}], "x": 1});
        {
            let mut config = Object::document(text, &errors);
            let mut flows = config.objects("flows");
            assert_eq!(flows[0].name("name"), "f");
            assert_eq!(flows[0].objects("packet").len(), 1);
        }
        assert_eq!(errors.or(()).unwrap_err(), ["flows[0].packet[0].gtpv1: not supported", "x: not supported"]);
    }

    #[test]
    fn routes_of_all_ranges_are_limited_together() {
        let errors = Errors::default();
        assert_eq!((errors.spend_routes(MOST_ROUTES - 1), errors.spend_routes(1)), (Ok(()), Ok(())));
        assert!(errors.spend_routes(u64::MAX).unwrap_err().contains("at most 8000000 routes"));
    }

    #[test]
    fn numbers_are_texts_or_numbers() {
        let errors = Errors::default();
        let mut o = Object::document(json!({"a": "1000", "b": 7, "c": 3.0, "d": 10, "e": 1.5, "f": -1}), &errors);
        assert_eq!(["a", "b", "c"].map(|key| o.number(key, 1_000)), [Some(1_000), Some(7), Some(3)]);
        assert_eq!(o.float("d"), Some(10.0));
        assert_eq!(["e", "f"].map(|key| o.number(key, 9)), [None, None]);
        drop(o);
        assert_eq!(errors.or(()).unwrap_err().len(), 2);
    }

    #[test]
    fn a_choice_may_be_left_out() {
        let errors = Errors::default();
        let mut o = Object::document(json!({"bps": 5}), &errors);
        assert_eq!((o.choice(&["pps", "bps"], "pps"), o.number("bps", 9)), ("bps", Some(5)));
        assert_eq!(Object::document(json!({}), &errors).choice(&["pps", "bps"], "pps"), "pps");
        let mut other = Object::document(json!({"choice": "lag", "lag": {}}), &errors);
        assert_eq!(other.choice(&["port"], "port"), "port");
        drop((o, other));
        assert_eq!(errors.or(()).unwrap_err(), ["lag: not supported"]);
    }
}
