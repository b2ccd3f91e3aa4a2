//! `topology:` of a DUT: the system of routers that it consists of.

use super::errors::{Problems, list};
use super::fields::{Fields, add_quantity, text, whole};
use super::raw::Node;
use super::schema;
use drophammer_model::quantity::{Bandwidth, parse_duration};
use drophammer_model::topology::{LOOP_ROUTERS, LinkLoss, MOST_ROUTERS, Shape, Topology, Wan};
use serde_json::{Map, Value, json};
use std::time::Duration;

const EXAMPLE: &str = "{mesh: 4}";
const HELP: [&str; 3] = [
    "Routers that are fully meshed.",
    "Routers in a row.",
    "Four routers with a routing loop that leads through a GRE tunnel.",
];
/// The shapes, by key.
pub(super) const SHAPES: [(&str, Shape); 3] = [("mesh", Shape::Mesh), ("chain", Shape::Chain), ("loop", Shape::Loop)];
/// Key of the speed of links between routers.
pub(super) const CORE_SPEED: &str = "core_speed";
/// Keys of the speed, the delay and the loss of the link in the middle of a loop.
pub(super) const WAN_SPEED: &str = "wan_speed";
pub(super) const WAN_DELAY: &str = "wan_delay";
pub(super) const WAN_LOSS: &str = "wan_loss";
/// Longest delay of a link.
const LONGEST: Duration = Duration::from_secs(10);
/// Highest loss of a link.
const MOST_LOSS: LinkLoss = LinkLoss(LinkLoss::WHOLE / 2);
/// Slowest link between routers: a token bucket needs whole frames.
const SLOWEST: Bandwidth = Bandwidth(10_000);

/// Reads the key.
pub(super) fn read(node: &Node, problems: &mut Problems) -> Option<Topology> {
    let fields = Fields::of(node, "`topology`", EXAMPLE, problems)?;
    let keys: Vec<_> = SHAPES.iter().map(|(key, _)| *key).chain([CORE_SPEED, WAN_SPEED, WAN_DELAY, WAN_LOSS]).collect();
    fields.refuse_unknown("`topology`", &keys, problems);
    let given: Vec<_> = SHAPES.iter().filter_map(|(key, shape)| Some((key, *shape, fields.get(key)?))).collect();
    let [(key, shape, entry)] = given[..] else {
        let message =
            format!("`topology` has {} of the keys {}", given.len(), list(SHAPES.iter().map(|(key, _)| *key)));
        problems.add(&node.span, message, format!("write exactly one of them, for instance `topology: {EXAMPLE}`"));
        return None;
    };
    let routers = whole(&entry.value, &format!("`{key}`"), 2, MOST_ROUTERS as u64, problems);
    if shape == Shape::Loop && routers.is_some_and(|routers| routers != LOOP_ROUTERS as u64) {
        let message = format!("a loop has {LOOP_ROUTERS} routers");
        problems.add(&entry.value.span, message, format!("write `loop: {LOOP_ROUTERS}`"));
        return None;
    }
    if let Some((key, entry)) =
        [WAN_SPEED, WAN_DELAY, WAN_LOSS].into_iter().find_map(|key| Some((key, fields.get(key)?)))
        && shape != Shape::Loop
    {
        let message = format!("`{key}` belongs to the link in the middle of a loop");
        problems.add(&entry.value.span, message, "leave it out, or write `loop: 4`".to_owned());
        return None;
    }
    let speed_of = |key: &'static str, problems: &mut Problems| match fields.get(key) {
        Some(entry) => speed(&entry.value, key, problems).map(Some),
        None => Some(None),
    };
    let core_speed = speed_of(CORE_SPEED, problems)?;
    let wan_speed = speed_of(WAN_SPEED, problems)?;
    let wan_delay = match fields.get(WAN_DELAY) {
        Some(entry) => Some(delay(&entry.value, problems)?),
        None => None,
    };
    let wan_loss = match fields.get(WAN_LOSS) {
        Some(entry) => Some(loss(&entry.value, problems)?),
        None => None,
    };
    let wan = Wan { speed: wan_speed, delay: wan_delay, loss: wan_loss };
    Some(Topology { shape, routers: routers? as usize, core_speed, wan: (!wan.is_plain()).then_some(wan) })
}

/// The schema of the key.
pub(super) fn schema() -> Value {
    let number = json!({ "type": "integer", "minimum": 2, "maximum": MOST_ROUTERS });
    let mut properties = Map::new();
    for ((key, _), help) in SHAPES.iter().zip(HELP) {
        let mut shape = number.clone();
        shape["description"] = json!(help);
        properties.insert((*key).into(), shape);
    }
    let help = "Speed of each link between two routers, in each direction; default: as fast as it goes.";
    properties.insert(CORE_SPEED.into(), schema::speed(help, "100 Mbit/s"));
    let help = "Speed of the link in the middle of a loop, in each direction; default: as the other links.";
    properties.insert(WAN_SPEED.into(), schema::speed(help, "44.21 Mbit/s"));
    let help = "Delay of the link in the middle of a loop, in each direction; default: none.";
    properties.insert(WAN_DELAY.into(), json!({ "description": help, "type": "string", "examples": ["277 ms"] }));
    let help = "Share of the frames that the link in the middle of a loop loses in each direction; default: none.";
    properties.insert(WAN_LOSS.into(), json!({ "description": help, "type": "string", "examples": ["0.1 %"] }));
    let one_of: Vec<_> = SHAPES.iter().map(|(key, _)| json!({ "required": [key] })).collect();
    json!({
        "description": "The DUT is several routers of its kind, with links among themselves.",
        "type": "object", "additionalProperties": false, "properties": properties, "oneOf": one_of,
    })
}

fn speed(node: &Node, key: &str, problems: &mut Problems) -> Option<Bandwidth> {
    let text = text(node, &format!("`{key}`"), "100 Mbit/s", problems)?;
    let read: Result<Bandwidth, drophammer_model::quantity::QuantityError> = text.parse();
    match read {
        Ok(speed) if speed < SLOWEST => {
            problems.add(&node.span, format!("`{key}` of {speed} is too slow"), format!("write {SLOWEST} or more"));
            None
        }
        Ok(speed) => Some(speed),
        Err(error) => {
            add_quantity(&node.span, &error.0, problems);
            None
        }
    }
}

fn delay(node: &Node, problems: &mut Problems) -> Option<Duration> {
    match parse_duration(text(node, &format!("`{WAN_DELAY}`"), "277 ms", problems)?) {
        Ok(delay) if delay <= LONGEST => Some(delay),
        Ok(_) => {
            problems.add(
                &node.span,
                format!("`{WAN_DELAY}` is too long"),
                format!("write at most {} s", LONGEST.as_secs()),
            );
            None
        }
        Err(error) => {
            add_quantity(&node.span, &error.0, problems);
            None
        }
    }
}

fn loss(node: &Node, problems: &mut Problems) -> Option<LinkLoss> {
    let text = text(node, &format!("`{WAN_LOSS}`"), "0.1 %", problems)?;
    match text.parse::<LinkLoss>() {
        Ok(loss) if loss <= MOST_LOSS => Some(loss),
        Ok(loss) => {
            let message = format!("`{WAN_LOSS}` of {loss} leaves no link to test over");
            problems.add(&node.span, message, format!("write at most {MOST_LOSS}"));
            None
        }
        Err(error) => {
            add_quantity(&node.span, &error, problems);
            None
        }
    }
}
