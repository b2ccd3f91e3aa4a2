//! The JSON Schema accepts what the reader accepts, and rejects plain mistakes.
use crate::common::{FULL, QUICK_LOOK, REGISTRY};
use drophammer_suite::schema::schema;
use serde_json::{Value, json};

/// Validates the keywords that our schema uses, except `pattern`. `Err` names the first place that fails.
fn validate(schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    let fail = |why: &str| Err(format!("{at}: {why}: {value}"));
    for (keyword, rule) in schema.as_object().expect("a schema is an object") {
        let ok = match keyword.as_str() {
            "type" => {
                let types: Vec<_> = rule.as_array().cloned().unwrap_or_else(|| vec![rule.clone()]);
                types.iter().any(|t| match t.as_str().unwrap() {
                    "object" => value.is_object(),
                    "array" => value.is_array(),
                    "string" => value.is_string(),
                    "boolean" => value.is_boolean(),
                    "null" => value.is_null(),
                    "integer" => value.is_u64() || value.is_i64(),
                    "number" => value.is_number(),
                    other => panic!("type {other}"),
                })
            }
            "const" => value == rule,
            "enum" => rule.as_array().unwrap().contains(value),
            "minimum" => value.as_f64().is_none_or(|v| v >= rule.as_f64().unwrap()),
            "exclusiveMinimum" => value.as_f64().is_none_or(|v| v > rule.as_f64().unwrap()),
            "maximum" => value.as_f64().is_none_or(|v| v <= rule.as_f64().unwrap()),
            "minItems" => value.as_array().is_none_or(|v| v.len() as u64 >= rule.as_u64().unwrap()),
            "maxItems" => value.as_array().is_none_or(|v| v.len() as u64 <= rule.as_u64().unwrap()),
            "required" => value
                .as_object()
                .is_none_or(|v| rule.as_array().unwrap().iter().all(|k| v.contains_key(k.as_str().unwrap()))),
            "properties" => {
                for (key, item) in value.as_object().into_iter().flatten() {
                    if let Some(rule) = rule.get(key) {
                        validate(rule, item, &format!("{at}/{key}"))?;
                    }
                }
                true
            }
            "additionalProperties" => {
                assert_eq!(rule, &json!(false));
                let patterns = schema.get("patternProperties").is_some();
                patterns || value.as_object().is_none_or(|v| v.keys().all(|k| schema["properties"].get(k).is_some()))
            }
            "items" => {
                for (i, item) in value.as_array().into_iter().flatten().enumerate() {
                    validate(rule, item, &format!("{at}/{i}"))?;
                }
                true
            }
            "oneOf" => rule.as_array().unwrap().iter().filter(|r| validate(r, value, at).is_ok()).count() == 1,
            "anyOf" => rule.as_array().unwrap().iter().any(|r| validate(r, value, at).is_ok()),
            "uniqueItems" | "pattern" | "patternProperties" | "maxLength" | "minLength" => true,
            "$schema" | "title" | "description" | "default" | "examples" => true,
            other => panic!("the schema uses `{other}`, which this test does not know"),
        };
        if !ok {
            return fail(keyword);
        }
    }
    Ok(())
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

#[test]
fn good_suites_validate() {
    let schema = schema(&REGISTRY);
    for text in [QUICK_LOOK, FULL] {
        validate(&schema, &yaml(text), "").unwrap();
    }
    let about = "about: {by: Jane Doe, frr-1: {serial number: 1234}}\nprofile: conformant";
    validate(&schema, &yaml(&FULL.replacen("profile: conformant", about, 1)), "").unwrap();
    assert!(validate(&schema, &yaml(&FULL.replacen("profile: conformant", "about: [a]", 1)), "").is_err());
    let with = |vlans: &str| {
        let text = QUICK_LOOK.replacen(
            "- {name: p1, speed: 1 Gbit/s",
            &format!("- {{name: p1, speed: 1 Gbit/s, vlans: {vlans}"),
            1,
        );
        assert_ne!(text, QUICK_LOOK);
        validate(&schema, &yaml(&text), "")
    };
    for good in
        ["[]", "[{id: 100}]", "[{id: [100, 200], ipv6: \"off\", ipv4: {dut: 10.0.0.1/24, behind: 10.1.0.0/16}}]"]
    {
        with(good).unwrap();
    }
    for bad in ["5", "[{ipv4: off}]", "[{id: 4095}]", "[{id: [1, 2, 3]}]", "[{id: 1, tpid: 0x9100}]", "[{id: 1, x: 2}]"]
    {
        assert!(with(bad).is_err(), "{bad}");
    }
}

#[test]
fn what_a_suite_includes_it_may_leave_out() {
    let schema = schema(&REGISTRY);
    for good in ["include: a.yaml\n", "include: [a.yaml, b/c.yaml]\nsuite: s\ntests: [throughput: {id: small}]\n"] {
        validate(&schema, &yaml(good), "").unwrap();
    }
    for bad in ["suite: s\n", "include: []\n", "include: {a: b}\n", "include: a.yaml\ntests: [throughput: {id: [a]}]\n"]
    {
        assert!(validate(&schema, &yaml(bad), "").is_err(), "{bad}");
    }
}

#[test]
fn plain_mistakes_do_not() {
    let schema = schema(&REGISTRY);
    for (from, to) in [
        ("suite: full", "siute: full"),
        ("profile: conformant", "profile: fast"),
        ("kind: frr,", "kind: frrr,"),
        ("threads: 2", "thread: 2"),
        ("threads: 2", "threads: 0"),
        ("    interfaces: [eth1, eth2]\n", ""),
        ("mtu: 9000", "mtu: nine"),
        ("- throughput\n", "- throughptu\n"),
        ("loads: [10, 0.5, 100]", "loads: [10, 500]"),
        ("loads: [10, 0.5, 100]", "loads: 10"),
        ("families: [ipv6, ipv4]", "families: [ipv5]"),
        ("verify: false", "verify: 5"),
        ("dut_as: 65100", "dut_as: [1]"),
        ("hold_time: 30 s", "hold_time: 30"),
        ("tester_as", "test_as"),
        ("destinations: 1000", "destinations: 0"),
        ("reset_command: \"ssh router reload\"", "trials: 5"),
    ] {
        let text = FULL.replacen(from, to, 1);
        assert_ne!(text, FULL, "{from}");
        assert!(validate(&schema, &yaml(&text), "").is_err(), "{from} -> {to}");
    }
}

#[test]
fn every_parameter_and_kind_is_described() {
    let schema = schema(&REGISTRY);
    let tests = schema["properties"]["tests"]["items"]["oneOf"].as_array().unwrap();
    assert_eq!(tests.len(), REGISTRY.tests.len() + 1);
    for test in REGISTRY.tests {
        let found = tests.iter().find_map(|t| t["properties"].get(test.name)).unwrap();
        for param in test.params {
            let description = found["properties"][param.key]["description"].as_str().unwrap();
            assert!(description.starts_with(param.help), "{description}");
            assert!(!schema["properties"]["defaults"]["properties"][param.key].is_null());
        }
        let criteria = found["properties"]["expect"]["patternProperties"].as_object().unwrap();
        assert_eq!(criteria.len(), test.figures.len() + test.tables.len());
    }
    let throughput = &tests[1]["properties"]["throughput"]["properties"];
    assert!(throughput["expect"]["patternProperties"].get("^throughput_.+_pps$").is_some());
    let cells = "^ *frame_loss_rate *(\\[.+\\])? *\\. *(load_percent|loss_percent|latency_us) *$";
    let losses = &tests[3]["properties"]["frame_loss_rate"]["properties"];
    assert!(losses["expect"]["patternProperties"].get(cells).is_some(), "{losses}");
    assert!(
        throughput["duration"]["description"].as_str().unwrap().ends_with("; default: 2 s (quick), 60 s (conformant)")
    );
    assert_eq!(schema["properties"]["duts"]["items"]["oneOf"].as_array().unwrap().len(), REGISTRY.kinds.len());
}
