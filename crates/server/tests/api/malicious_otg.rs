//! Malicious configurations: replays the corpus of the fuzz target `otg` (see `fuzz/`), and tries random changes.

#[path = "../../../../fuzz/src/otg.rs"]
mod otg;

use crate::corpus::{inputs, replay};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Replaces one value of a document: the `n`-th that a traversal finds.
fn replace(document: &mut Value, n: &mut usize, by: &Value) {
    if *n == 0 {
        document.clone_from(by);
        return;
    }
    *n -= 1;
    let inner: Vec<&mut Value> = match document {
        Value::Object(fields) => fields.values_mut().collect(),
        Value::Array(list) => list.iter_mut().collect(),
        _ => return,
    };
    for value in inner {
        let before = *n;
        replace(value, n, by);
        if before == 0 {
            return;
        }
    }
}

#[test]
fn every_input_of_the_corpus() {
    replay("otg", otg::run);
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<u64>().prop_map(|number| Value::from(number.to_string())),
        "[a-z0-9.:]{0,20}".prop_map(Value::from),
        Just(json!({})),
        Just(json!([])),
        Just(json!([{}, 1, "x"])),
        Just(json!({"choice": "increment", "increment": {"start": 1, "step": 0, "count": 4_294_967_295_u32}})),
        Just(json!({"choice": "values", "values": ["255.255.255.255", "::", 0]})),
    ]
}

proptest! {
    #[test]
    fn changed_configurations(file in any::<prop::sample::Index>(), changes in prop::collection::vec((0usize..400, value()), 1..6)) {
        let all: Vec<Value> = inputs("otg").iter().filter_map(|(_, data)| serde_json::from_slice(data).ok()).collect();
        let mut document = file.get(&all).clone();
        for (mut at, by) in changes {
            replace(&mut document, &mut at, &by);
        }
        otg::run(document.to_string().as_bytes());
    }
}
