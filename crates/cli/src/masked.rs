//! Hides secrets in the texts of a record, but not in names.

use drophammer_model::record::Record;
use drophammer_model::suite::Mask;
use serde_json::Value;
use std::borrow::Cow;

/// Fields whose texts are names, or words of the program. A secret that is part of a name is not secret, because the
/// name appears throughout the suite. With a changed name, a run could be neither resumed nor compared.
#[rustfmt::skip]
const NAMES: &[&str] = &[
    "backend", "by", "cpu_model", "cpus", "digest", "drophammer", "dut", "duts", "figure", "group", "id", "interface", "kernel", "key", "kind", "label",
    "mac", "marks", "metric", "name", "port", "profile", "purpose", "record", "routers", "started", "state", "status", "suite", "test", "time", "unit",
    "verdict", "version",
];
/// Lists of pairs whose first part is a name.
const PAIRS: &[&str] = &["conditions", "duts", "facts", "figures", "tests"];
/// Fields that contain fields with any name.
const FREE: &[&str] = &["config", "more", "parameters"];

/// The record with its secrets hidden. Fails if the record does not survive a conversion to JSON and back.
pub fn without_secrets<'r>(mask: &Mask, record: &'r Record) -> Result<Cow<'r, Record>, String> {
    if mask.is_empty() {
        return Ok(Cow::Borrowed(record));
    }
    let failed = |e: serde_json::Error| format!("keys cannot be hidden in a record: {e}");
    let value = serde_json::to_value(record).map_err(failed)?;
    let mut places = Vec::new();
    find(mask, &value, "", "", &mut places);
    if places.is_empty() {
        return Ok(Cow::Borrowed(record));
    }
    let hidden = |value: &Value, places: &[String]| {
        let mut value = value.clone();
        for place in places {
            if let Some(Value::String(text)) = value.pointer_mut(place) {
                *text = mask.text(text).into_owned();
            }
        }
        value
    };
    if let Ok(masked) = serde_json::from_value::<Record>(hidden(&value, &places)) {
        return Ok(Cow::Owned(masked));
    }
    // One of the texts is a word of the format, and so not a secret. Hide only the others.
    let mut masked = serde_json::from_value::<Record>(value.clone()).map_err(failed)?;
    let mut value = value;
    for place in &places {
        let next = hidden(&value, std::slice::from_ref(place));
        if let Ok(record) = serde_json::from_value::<Record>(next.clone()) {
            (value, masked) = (next, record);
        }
    }
    Ok(Cow::Owned(masked))
}

/// Finds texts to hide in `value`, and adds their places (RFC 6901). `value` is at `place` and belongs to `field`.
fn find(mask: &Mask, value: &Value, field: &str, place: &str, places: &mut Vec<String>) {
    match value {
        Value::String(text) if !NAMES.contains(&field) && !mask.leaves(text) => places.push(place.to_owned()),
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                let place = format!("{place}/{i}");
                match item {
                    Value::Array(pair) if PAIRS.contains(&field) => {
                        for (i, part) in pair.iter().enumerate().skip(1) {
                            find(mask, part, "facts", &format!("{place}/{i}"), places);
                        }
                    }
                    item => find(mask, item, field, &place, places),
                }
            }
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                let of = if FREE.contains(&field) { field } else { name.as_str() };
                let name = name.replace('~', "~0").replace('/', "~1");
                find(mask, value, of, &format!("{place}/{name}"), places);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::environment::DutRecord;
    use drophammer_model::outcome::Outcome;
    use drophammer_model::record::{Note, TestRecord, TestStatus};
    use serde_json::json;

    fn note(text: &str) -> Record {
        let time = "2026-01-01T00:00:00Z".into();
        Record::Note(Note { time, dut: Some("cisco-a".into()), text: text.into(), problem: true })
    }

    fn test(title: &str, cause: &str, remark: &str) -> Record {
        Record::Test(Box::new(TestRecord {
            dut: "cisco-a".into(),
            test: "latency".into(),
            id: Some("the test".into()),
            round: 1,
            title: title.into(),
            parameters: json!({"text": [remark, 1]}),
            elapsed_s: 1.5,
            status: TestStatus::Failed(cause.into()),
            outcome: Outcome { notes: vec![remark.into()], ..Outcome::default() },
        }))
    }

    fn masked(secret: &str, record: &Record) -> Record {
        without_secrets(&Mask::of([secret]), record).unwrap().into_owned()
    }

    #[test]
    fn a_secret_in_a_text_of_others_is_not_recorded() {
        let said = note("% Unknown command: neighbor 198.18.1.2 password sesame");
        assert_eq!(masked("sesame", &said), note("% Unknown command: neighbor 198.18.1.2 password <secret>"));
        assert_eq!(*without_secrets(&Mask::default(), &said).unwrap(), said);
        // JSON escapes these characters.
        assert_eq!(masked("se\"sa\\me", &note("password se\"sa\\me")), note("password <secret>"));
    }

    #[test]
    fn names_tags_and_times_stay() {
        let record = test("A test", "password test", "it says test");
        assert_eq!(masked("test", &record), test("A <secret>", "password <secret>", "it says <secret>"));
        let record = test("cisco", "password cisco", "it says cisco");
        assert_eq!(masked("cisco", &record), test("<secret>", "password <secret>", "it says <secret>"));
        let record = test("latency", "it failed", "latency");
        assert_eq!(masked("latency", &record), test("<secret>", "it failed", "<secret>"));
        assert_eq!(masked("failed", &record), test("latency", "it <secret>", "latency"));
        assert_eq!(masked("note", &note("note")), note("<secret>"));
        assert_eq!(masked("2026-01-01T00:00:00Z", &note("x")), note("x"));
        let dut = |text: &str| {
            let config = [("cisco.conf".to_owned(), text.to_owned()), ("key".to_owned(), text.to_owned())].into();
            Record::Dut(DutRecord { name: "cisco-a".into(), version: "cisco 1".into(), config, ..DutRecord::default() })
        };
        assert_eq!(masked("cisco", &dut("password cisco")), dut("password <secret>"));
    }

    #[test]
    fn the_first_part_of_a_pair_is_a_name() {
        let value = json!({
            "duts": ["sesame-a"], "tests": [["sesame", "A sesame"]],
            "about": {"duts": [["sesame-a", [["sesame", "sesame"]]]], "facts": [["sesame", "x"]]},
            "command": ["run", "sesame"], "a/b": "sesame",
        });
        let mut places = Vec::new();
        find(&Mask::of(["sesame"]), &value, "", "", &mut places);
        assert_eq!(places, ["/tests/0/1", "/about/duts/0/1/0/1", "/command/1", "/a~1b"]);
    }

    #[test]
    fn a_word_of_the_format_stays_and_all_else_is_hidden() {
        // The scale of a figure is a word of the format.
        let with = |remark: &str| {
            let figure = json!({
                "key": "loss", "title": "Loss", "unit": "%", "value": 1.5, "higher_is_better": false,
                "tester_limited": false, "resolution": 0.5, "scale": "difference",
            });
            let Record::Test(mut record) = test("Loss", "it failed", remark) else { unreachable!() };
            record.outcome.ranks = vec![serde_json::from_value(figure).unwrap()];
            Record::Test(record)
        };
        assert_eq!(masked("difference", &with("password difference")), with("password <secret>"));
    }
}
