//! `topology:` of a DUT: how it is several routers.

use super::errors::{Problems, list};
use super::fields::{Fields, add_quantity, text, whole};
use super::raw::Node;
use super::schema;
use crate::quantity::Bandwidth;
use crate::topology::{MOST_ROUTERS, Shape, Topology};
use serde_json::{Map, Value, json};

const EXAMPLE: &str = "{mesh: 4}";
/// The shapes, by key.
pub(super) const SHAPES: [(&str, Shape); 2] = [("mesh", Shape::Mesh), ("chain", Shape::Chain)];
/// Key of the speed of links between routers.
pub(super) const CORE_SPEED: &str = "core_speed";
/// Slowest link between routers: a token bucket needs whole frames.
const SLOWEST: Bandwidth = Bandwidth(10_000);

/// Reads it.
pub(super) fn read(node: &Node, problems: &mut Problems) -> Option<Topology> {
    let fields = Fields::of(node, "`topology`", EXAMPLE, problems)?;
    let keys: Vec<_> = SHAPES.iter().map(|(key, _)| *key).chain([CORE_SPEED]).collect();
    fields.refuse_unknown("`topology`", &keys, problems);
    let given: Vec<_> = SHAPES.iter().filter_map(|(key, shape)| Some((key, *shape, fields.get(key)?))).collect();
    let [(key, shape, entry)] = given[..] else {
        let message = format!("`topology` has {} of {}", given.len(), list(SHAPES.iter().map(|(key, _)| *key)));
        problems.add(&node.span, message, format!("write one of them, for instance `topology: {EXAMPLE}`"));
        return None;
    };
    let routers = whole(&entry.value, &format!("`{key}`"), 2, MOST_ROUTERS as u64, problems);
    let core_speed = match fields.get(CORE_SPEED) {
        Some(entry) => Some(speed(&entry.value, problems)?),
        None => None,
    };
    Some(Topology { shape, routers: routers? as usize, core_speed })
}

/// Its schema.
pub(super) fn schema() -> Value {
    let number = json!({ "type": "integer", "minimum": 2, "maximum": MOST_ROUTERS });
    let mut properties = Map::new();
    for ((key, _), help) in SHAPES.iter().zip(["Routers that are fully meshed.", "Routers in a row."]) {
        let mut shape = number.clone();
        shape["description"] = json!(help);
        properties.insert((*key).into(), shape);
    }
    let help = "Speed of each link between two routers, in each direction; default: as fast as it goes.";
    properties.insert(CORE_SPEED.into(), schema::speed(help, "100 Mbit/s"));
    let one_of: Vec<_> = SHAPES.iter().map(|(key, _)| json!({ "required": [key] })).collect();
    json!({
        "description": "The DUT is several routers of its kind, with links among themselves.",
        "type": "object", "additionalProperties": false, "properties": properties, "oneOf": one_of,
    })
}

fn speed(node: &Node, problems: &mut Problems) -> Option<Bandwidth> {
    let text = text(node, "`core_speed`", "100 Mbit/s", problems)?;
    let read: Result<Bandwidth, crate::quantity::QuantityError> = text.parse();
    match read {
        Ok(speed) if speed < SLOWEST => {
            problems.add(
                &node.span,
                format!("`core_speed` of {speed} is too slow"),
                format!("write {SLOWEST} or more"),
            );
            None
        }
        Ok(speed) => Some(speed),
        Err(error) => {
            add_quantity(&node.span, &error.0, problems);
            None
        }
    }
}
