//! What a reader takes: it reads an empty document again and again, and tells of each field what that may be. So what clients are told
//! is what the reader does, not a second list of it.

use super::read::{Errors, Object};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};

/// Maximum number of reads. All choices of a configuration take some hundred.
const MOST_READS: usize = 10_000;

/// What a reader has told so far.
#[derive(Debug)]
pub struct Probe {
    /// In the words of JSON Schema.
    schema: Value,
    /// Fields that are known, by their paths.
    known: HashSet<String>,
    /// For each object with a choice: the number of its words, and how often a reader has chosen.
    choices: HashMap<String, (usize, usize)>,
}

impl Default for Probe {
    fn default() -> Probe {
        Probe { schema: json!({"type": "object"}), known: HashSet::new(), choices: HashMap::new() }
    }
}

impl Probe {
    /// Learns what the field `key` of an object may be, unless it is known.
    pub fn note(&mut self, object: &str, key: &str, what: impl FnOnce() -> Value) {
        if !key.is_empty() && self.known.insert(format!("{object}.{key}")) {
            self.at(object)["properties"][key] = what();
        }
    }

    /// Learns that an object may have any other field while that is false.
    pub fn others_are_false(&mut self, object: &str) {
        self.at(object)["additionalProperties"] = json!({"const": false});
    }

    /// The object with this path.
    fn at(&mut self, path: &str) -> &mut Value {
        let mut found = &mut self.schema;
        for part in path.split('.').filter(|part| !part.is_empty()) {
            let key = part.strip_suffix("[0]");
            found = &mut found["properties"][key.unwrap_or(part)];
            if key.is_some() {
                found = &mut found["items"];
            }
        }
        found
    }

    /// The place of the word that a reader is to follow at this object: by turns, each of them.
    pub fn choose(&mut self, object: &str, words: usize) -> usize {
        let (_, chosen) = self.choices.entry(object.to_owned()).or_insert((words, 0));
        *chosen += 1;
        (*chosen - 1) % words
    }

    /// True once every word of every choice has been followed.
    fn is_complete(&self) -> bool {
        self.choices.values().all(|(words, chosen)| chosen >= words)
    }
}

/// What `read` takes, in the words of JSON Schema, such as `properties`, `items`, `enum`, `const`, `minimum`, `maximum`, `default`.
pub fn accepted(read: impl for<'a> Fn(Object<'a>)) -> Value {
    let mut probe = Probe::default();
    for _ in 0..MOST_READS {
        let errors = Errors::probing(probe);
        read(Object::document(Value::Null, &errors));
        probe = errors.into_probe();
        if probe.is_complete() {
            break;
        }
    }
    probe.schema
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_tells_all_its_fields_and_choices() {
        let schema = accepted(|mut o| {
            o.name("name");
            for mut each in o.objects("list") {
                if each.choice(&["one", "two"], "two") == "one" {
                    let mut one = each.object_or_empty("one");
                    match one.choice(&["a", "b", "c"], "a") {
                        "c" => _ = one.number("c", 7),
                        _ => _ = one.flag("others", true),
                    }
                    one.ignore("any");
                    one.drop_false();
                } else if let Some(mut two) = each.object("two") {
                    two.word("word", &["x", "y"], 1);
                    two.only("only", 3);
                    two.within("within", [2, 9], 5);
                    two.number_or("number", 8, 4);
                    two.float_or("float", 0.5);
                    two.words("words", &["v", "w"]);
                }
            }
        });
        let one = json!({"type": "object", "additionalProperties": {"const": false}, "properties": {
            "choice": {"enum": ["a", "b", "c"], "default": "a"},
            "others": {"type": "boolean", "default": true},
            "c": {"type": "integer", "minimum": 0, "maximum": 7},
            "any": {},
        }});
        let two = json!({"type": "object", "properties": {
            "word": {"enum": ["x", "y"], "default": "y"},
            "only": {"const": 3},
            "within": {"type": "integer", "minimum": 2, "maximum": 9, "default": 5},
            "number": {"type": "integer", "minimum": 0, "maximum": 8, "default": 4},
            "float": {"type": "number", "minimum": 0, "default": 0.5},
            "words": {"type": "array", "items": {"enum": ["v", "w"]}},
        }});
        let each = json!({"choice": {"enum": ["one", "two"], "default": "two"}, "one": one, "two": two});
        let list = json!({"type": "array", "items": {"type": "object", "properties": each}});
        let fields = json!({"name": {"type": "string", "minLength": 1}, "list": list});
        assert_eq!(schema, json!({"type": "object", "properties": fields}));
    }
}
