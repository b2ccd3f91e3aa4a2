//! Changes of the flows of a configuration: update, append and delete. They work on the client's document, which is then read and
//! built again; ports and devices stay unchanged.

use crate::api::Call;
use crate::model::read::{Errors, Object};
use serde_json::{Value, json};

/// The document after a change.
///
/// # Errors
/// What is wrong with the request.
pub fn changed(document: &Value, call: Call, body: Value) -> Result<Value, Vec<String>> {
    let errors = Errors::default();
    let mut document = document.clone();
    let empty = Vec::new();
    let mut flows = document["flows"].as_array().unwrap_or(&empty).clone();
    change(Object::document(body, &errors), call, &mut flows);
    document["flows"] = json!(flows);
    errors.or(document)
}

/// Properties of a flow that can change.
const PROPERTIES: [&str; 2] = ["rate", "size"];

/// What a list of flows may be: the configuration is read again.
fn list() -> Value {
    json!({"type": "array", "items": {"type": "object"}})
}

/// Reads a change and makes it.
pub fn change(mut o: Object<'_>, call: Call, flows: &mut Vec<Value>) {
    match call {
        Call::AppendConfig => {
            for mut item in o.objects("config_append_list") {
                item.choice(&["flows"], "flows");
                flows.extend(item.take("flows", list).and_then(|list| list.as_array().cloned()).unwrap_or_default());
            }
        }
        Call::DeleteConfig => {
            for mut item in o.objects("config_delete_list") {
                item.choice(&["flows"], "flows");
                for name in item.texts("flows") {
                    match flows.iter().position(|flow| flow["name"] == *name) {
                        Some(at) => _ = flows.remove(at),
                        None => item.wrong("flows", format_args!("there is no flow `{name}`")),
                    }
                }
            }
        }
        _ => {
            o.choice(&["flows"], "flows");
            update(&mut o.object_or_empty("flows"), flows);
        }
    }
}

/// Replaces rate or size of flows.
fn update(o: &mut Object<'_>, flows: &mut [Value]) {
    let names = o.words("property_names", &PROPERTIES);
    let all = o.take("flows", list).unwrap_or_default();
    for new in all.as_array().into_iter().flatten() {
        match flows.iter_mut().find(|flow| flow["name"] == new["name"]) {
            Some(flow) => names.iter().for_each(|name| flow[name.as_str()] = new[name.as_str()].clone()),
            None => o.wrong("flows", format_args!("there is no flow {}", new["name"])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document() -> Value {
        json!({"ports": [], "flows": [{"name": "a", "rate": {"pps": 1}, "size": {"fixed": 64}}, {"name": "b"}]})
    }

    #[test]
    fn flows_come_go_and_change() {
        let more = json!({"config_append_list": [{"choice": "flows", "flows": [{"name": "c"}]}]});
        let after = changed(&document(), Call::AppendConfig, more).unwrap();
        assert_eq!(after["flows"].as_array().unwrap().len(), 3);
        let fewer = json!({"config_delete_list": [{"flows": ["a"]}]});
        assert_eq!(changed(&document(), Call::DeleteConfig, fewer).unwrap()["flows"], json!([{"name": "b"}]));
        let faster =
            json!({"flows": {"property_names": ["rate"], "flows": [{"name": "a", "rate": {"pps": 9}, "size": {}}]}});
        let after = changed(&document(), Call::UpdateConfig, faster).unwrap();
        assert_eq!(after["flows"][0], json!({"name": "a", "rate": {"pps": 9}, "size": {"fixed": 64}}));
    }

    #[test]
    fn unknown_flows_and_properties_are_named() {
        for (call, body, error) in [
            (
                Call::DeleteConfig,
                json!({"config_delete_list": [{"flows": ["x"]}]}),
                "config_delete_list[0].flows: there is no flow `x`",
            ),
            (
                Call::UpdateConfig,
                json!({"flows": {"property_names": ["name"], "flows": []}}),
                "flows.property_names: `name` is not supported; supported: rate, size",
            ),
            (Call::UpdateConfig, json!({"protocols": {"isis": {}}}), "protocols: not supported"),
        ] {
            assert_eq!(changed(&document(), call, body).unwrap_err(), [error]);
        }
    }
}
