//! Reads JSON objects strictly: each field is taken by its name, and a field that nobody took is reported with its path. Readers
//! that take a field also tell a [`Probe`] what it may be.

use super::probe::Probe;
use super::tag::Tag;
use serde_json::{Map, Value, json};
use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::str::FromStr;

/// Maximum number of errors that are reported together.
const MOST_ERRORS: usize = 50;

/// Maximum number of warnings that are given together.
const MOST_WARNINGS: usize = 50;

/// Maximum number of bytes of a value in a message.
const MOST_SHOWN: usize = 100;

/// Maximum number of routes of all ranges together.
const MOST_ROUTES: u64 = 8_000_000;

/// Maximum number of values of all tags, and of their combinations, together.
const MOST_TAGGED: u64 = 65_536;

/// All errors of a document, and what concerns several of its parts.
#[derive(Debug, Default)]
pub struct Errors {
    list: RefCell<Vec<String>>,
    warnings: RefCell<Vec<String>>,
    /// Warnings that are not given, because there are so many.
    more_warnings: Cell<usize>,
    probe: Option<RefCell<Probe>>,
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

    /// Adds a warning at `path`.
    pub fn warn(&self, path: &str, text: impl Display) {
        let mut warnings = self.warnings.borrow_mut();
        match warnings.len() < MOST_WARNINGS {
            true => warnings.push(format!("{path}: {text}")),
            false => self.more_warnings.set(self.more_warnings.get() + 1),
        }
    }

    /// Takes the warnings.
    pub fn take_warnings(&self) -> Vec<String> {
        let (mut warnings, more) = (self.warnings.take(), self.more_warnings.take());
        warnings.extend((more > 0).then(|| format!("{more} more fields have no effect")));
        warnings
    }

    /// Errors of a document that a reader reads only to tell `probe` what it takes.
    pub fn probing(probe: Probe) -> Errors {
        Errors { probe: Some(RefCell::new(probe)), ..Errors::default() }
    }

    /// What readers have told.
    pub fn into_probe(self) -> Probe {
        self.probe.map(RefCell::into_inner).unwrap_or_default()
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

/// A value for a message, which shows the beginning of a long one.
fn shown(value: &Value) -> String {
    let mut text = value.to_string();
    if text.len() > MOST_SHOWN {
        text.truncate(text.floor_char_boundary(MOST_SHOWN));
        text.push_str("...");
    }
    text
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

    /// Tells a probe what a field may be, unless that knows it.
    pub fn note(&self, key: &str, what: impl FnOnce() -> Value) {
        if let Some(probe) = &self.errors.probe {
            probe.borrow_mut().note(&self.path, key, what);
        }
    }

    /// True if the object has the field, or if a probe asks what that may be.
    pub fn has(&self, key: &str) -> bool {
        self.errors.probe.is_some() || self.fields.get(key).is_some_and(|value| !value.is_null())
    }

    fn get(&mut self, key: &str) -> Option<Value> {
        self.fields.remove(key).filter(|value| !value.is_null())
    }

    /// Takes a field as it is. `what` is the JSON Schema of what it may be.
    pub fn take(&mut self, key: &str, what: impl FnOnce() -> Value) -> Option<Value> {
        self.note(key, what);
        self.get(key)
    }

    /// Accepts any value of a field, because it requests nothing.
    pub fn ignore(&mut self, key: &str) {
        self.note(key, || json!({}));
        self.fields.remove(key);
    }

    /// Takes a field that has no effect, and adds a warning with `reason` if its value is not the `default` of the API's model.
    /// A `default` of `null` means that the model has none.
    pub fn without_effect(&mut self, key: &str, default: impl Into<Value>, reason: &str) {
        let default = default.into();
        let Some(value) = self.take(key, || json!({"default": default})) else { return };
        let is_number = whole(&value).is_some_and(|number| whole(&default) == Some(number));
        if value != default && !is_number {
            self.errors.warn(&self.path_of(key), format_args!("{} has no effect: {reason}", shown(&value)));
        }
    }

    /// Accepts all remaining fields that are false, because they request nothing.
    pub fn drop_false(&mut self) {
        if let Some(probe) = &self.errors.probe {
            probe.borrow_mut().others_are_false(&self.path);
        }
        self.fields.retain(|_, value| !matches!(value, Value::Bool(false)));
    }

    /// Takes an object.
    pub fn object(&mut self, key: &str) -> Option<Object<'a>> {
        self.has(key).then(|| self.object_or_empty(key))
    }

    /// Takes an object, which is empty if the field is absent.
    pub fn object_or_empty(&mut self, key: &str) -> Object<'a> {
        let value = self.take(key, || json!({"type": "object"})).unwrap_or(Value::Null);
        Object::new(self.path_of(key), value, self.errors)
    }

    /// Takes a list of objects.
    pub fn objects(&mut self, key: &str) -> Vec<Object<'a>> {
        let errors = self.errors;
        self.note(key, || json!({"type": "array", "items": {"type": "object"}}));
        let list = if errors.probe.is_some() { vec![Value::Null] } else { self.list(key) };
        let each = |(i, value)| Object::new(format!("{}[{i}]", self.path_of(key)), value, errors);
        list.into_iter().enumerate().map(each).collect()
    }

    fn list(&mut self, key: &str) -> Vec<Value> {
        match self.get(key) {
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
        self.note(key, || json!({"type": "array", "items": {"type": "string"}}));
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

    /// Takes a list of texts, each one of `words`.
    pub fn words(&mut self, key: &str, words: &[&str]) -> Vec<String> {
        self.note(key, || json!({"type": "array", "items": {"enum": words}}));
        let list = self.texts(key);
        if let Some(other) = list.iter().find(|word| !words.contains(&word.as_str())) {
            self.wrong(key, format_args!("`{other}` is not supported; supported: {}", words.join(", ")));
        }
        list
    }

    /// Takes a text.
    pub fn text(&mut self, key: &str) -> Option<String> {
        match self.take(key, || json!({"type": "string"}))? {
            Value::String(text) => Some(text),
            _ => {
                self.wrong(key, "this must be a text");
                None
            }
        }
    }

    /// Takes a text that must be there; empty after an error.
    pub fn name(&mut self, key: &str) -> String {
        self.note(key, || json!({"type": "string", "minLength": 1}));
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
        let value = self.take(key, || json!({"type": "integer", "minimum": 0, "maximum": most}))?;
        let number = whole(&value).filter(|number| *number <= most);
        if number.is_none() {
            self.wrong(key, format_args!("{} is not a whole number from 0 to {most}", shown(&value)));
        }
        number
    }

    /// Takes a whole number of at most `most`, otherwise `default`.
    pub fn number_or(&mut self, key: &str, most: u64, default: u64) -> u64 {
        self.within(key, [0, most], default)
    }

    /// Takes a whole number from `least` to `most`, otherwise `default`.
    pub fn within(&mut self, key: &str, [least, most]: [u64; 2], default: u64) -> u64 {
        self.note(key, || json!({"type": "integer", "minimum": least, "maximum": most, "default": default}));
        let number = self.number(key, most).unwrap_or(default);
        if number < least {
            self.wrong(key, format_args!("the smallest value is {least}"));
        }
        number
    }

    /// Takes a whole number of which only one value is supported, the default.
    pub fn only(&mut self, key: &str, value: u64) {
        self.note(key, || json!({"const": value}));
        if self.number(key, u64::MAX).is_some_and(|number| number != value) {
            self.wrong(key, format_args!("only {value} is supported"));
        }
    }

    /// Takes a number that is not negative.
    pub fn float(&mut self, key: &str) -> Option<f64> {
        let value = self.take(key, || json!({"type": "number", "minimum": 0}))?;
        let number = match &value {
            Value::Number(number) => number.as_f64(),
            Value::String(text) => text.parse().ok(),
            _ => None,
        };
        let number = number.filter(|number| number.is_finite() && *number >= 0.0);
        if number.is_none() {
            self.wrong(key, format_args!("{} is not a number from 0 on", shown(&value)));
        }
        number
    }

    /// Takes a number that is not negative, otherwise `default`.
    pub fn float_or(&mut self, key: &str, default: f64) -> f64 {
        self.note(key, || json!({"type": "number", "minimum": 0, "default": default}));
        self.float(key).unwrap_or(default)
    }

    /// Takes a truth value.
    pub fn flag(&mut self, key: &str, default: bool) -> bool {
        match self.take(key, || json!({"type": "boolean", "default": default})) {
            None => default,
            Some(Value::Bool(flag)) => flag,
            Some(value) => {
                self.wrong(key, format_args!("{} is not true or false", shown(&value)));
                default
            }
        }
    }

    /// Takes a word, one of `words`. Returns its place.
    pub fn word(&mut self, key: &str, words: &[&str], default: usize) -> usize {
        self.note(key, || json!({"enum": words, "default": words[default]}));
        let Some(text) = self.text(key) else { return default };
        words.iter().position(|word| *word == text).unwrap_or_else(|| {
            self.wrong(key, format_args!("`{text}` is not supported; supported: {}", words.join(", ")));
            default
        })
    }

    /// Takes `choice`, one of `words`; without it, the first of them that is present, otherwise `default`.
    pub fn choice<'w>(&mut self, words: &[&'w str], default: &'w str) -> &'w str {
        self.note("choice", || json!({"enum": words, "default": default}));
        if let Some(probe) = &self.errors.probe {
            return words[probe.borrow_mut().choose(&self.path, words.len())];
        }
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
    fn what_has_no_effect_is_told_unless_it_is_the_default() {
        let errors = Errors::default();
        let text = json!({"a": true, "b": false, "c": "1500", "d": 9000, "e": "fiber", "f": null});
        let mut o = Object::document(text, &errors);
        o.without_effect("a", true, "x");
        o.without_effect("b", true, "x");
        ["c", "d"].iter().for_each(|key| o.without_effect(key, 1_500, "x"));
        ["e", "f", "g"].iter().for_each(|key| o.without_effect(key, Value::Null, "the link has one"));
        drop(o);
        let told =
            ["b: false has no effect: x", "d: 9000 has no effect: x", "e: \"fiber\" has no effect: the link has one"];
        assert_eq!(errors.take_warnings(), told);
        let mut long = Object::document(json!({"e": "\u{e4}".repeat(99)}), &errors);
        long.without_effect("e", Value::Null, "x");
        drop(long);
        // A quotation mark, and whole letters of two bytes.
        assert_eq!(errors.take_warnings(), [format!("e: \"{}... has no effect: x", "\u{e4}".repeat(49))]);
        (0..MOST_WARNINGS + 2).for_each(|_| errors.warn("a", "b"));
        let told = errors.take_warnings();
        assert_eq!((told.len(), told[MOST_WARNINGS].as_str()), (MOST_WARNINGS + 1, "2 more fields have no effect"));
        assert_eq!(errors.or(()), Ok(()));
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
