//! Numbers with units, as people write them.

use serde_json::{Value, json};

/// A decimal number, digits grouped by commas or underscores.
pub(super) const NUMBER: &str = "[0-9]+([,_][0-9]{3})*(\\.[0-9]+)?";

/// A speed of a line.
pub(crate) fn speed(description: &str, example: &str) -> Value {
    json!({
        "description": description,
        "type": "string",
        "pattern": format!("^ *{NUMBER} *([kKmMgGtT] *((bits?/s|bps|b/s|bit|b|BPS))?|bits?/s|bps|b/s|bit) *$"),
        "examples": [example],
    })
}

/// A whole number, also as `1k` or `1,000`. Only digits are compared with the limits here.
pub(super) fn count(least: u64, most: Option<u64>) -> Value {
    let mut number =
        json!({ "type": ["integer", "string"], "minimum": least, "pattern": format!("^{NUMBER} *[kKmMgGtT]?$") });
    if let Some(most) = most {
        number["maximum"] = json!(most);
    }
    number
}

/// A percentage with or without its sign.
pub(super) fn percent(mut limits: Value) -> Value {
    limits["type"] = json!(["number", "string"]);
    limits["pattern"] = json!(format!("^ *{NUMBER} *%? *$"));
    limits
}
