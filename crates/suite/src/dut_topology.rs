//! `topology:` of a DUT: the system of routers that make up the DUT.

use super::errors::{Problems, list};
use super::fields::{Fields, quantity, whole};
use super::raw::Node;
use super::schema;
use drophammer_model::quantity::{Bandwidth, parse_duration};
use drophammer_model::topology::{LOOP_ROUTERS, LinkLoss, MOST_ROUTERS, Shape, Topology, Wan};
use serde_json::{Map, Value, json};
use std::time::Duration;

const EXAMPLE: &str = "{mesh: 4}";
/// Key, shape, and description.
const SHAPES: [(&str, Shape, &str); 3] = [
    ("mesh", Shape::Mesh, "Routers that are fully meshed."),
    ("chain", Shape::Chain, "Routers in a row."),
    ("loop", Shape::Loop, "Four routers with a routing loop that leads through a GRE tunnel."),
];
/// Keys of the links, examples, and descriptions: the speed of all links between routers, then the properties of the
/// link in the middle of a loop.
const LINKS: [(&str, &str, &str); 4] = [
    ("core_speed", "100 Mbit/s", "Speed of each link between two routers, in each direction; default: unlimited."),
    (
        "wan_speed",
        "44.21 Mbit/s",
        "Speed of the link in the middle of a loop, in each direction; default: like the other links.",
    ),
    ("wan_delay", "277 ms", "Delay of the link in the middle of a loop, in each direction; default: none."),
    (
        "wan_loss",
        "0.1 %",
        "Share of frames that the link in the middle of a loop loses, in each direction; default: none.",
    ),
];
/// Longest delay of a link.
const LONGEST: Duration = Duration::from_secs(10);
/// Highest loss of a link.
const MOST_LOSS: LinkLoss = LinkLoss(LinkLoss::WHOLE / 2);
/// Slowest link between routers, because a token bucket needs whole frames.
const SLOWEST: Bandwidth = Bandwidth(10_000);

/// Reads the key.
pub(super) fn read(node: &Node, problems: &mut Problems) -> Option<Topology> {
    let shapes = || SHAPES.iter().map(|(key, ..)| *key);
    let keys: Vec<_> = shapes().chain(LINKS.iter().map(|(key, ..)| *key)).collect();
    let fields = Fields::with_keys(node, "`topology`", &keys, EXAMPLE, problems)?;
    let given: Vec<_> = SHAPES.iter().filter_map(|(key, shape, _)| Some((key, *shape, fields.value(key)?))).collect();
    let [(key, shape, value)] = given[..] else {
        let message = format!("`topology` has {} of the keys {}", given.len(), list(shapes()));
        return problems.refuse(
            &node.span,
            message,
            format!("write exactly one of them, for instance `topology: {EXAMPLE}`"),
        );
    };
    let routers = whole(value, &format!("`{key}`"), 2, MOST_ROUTERS as u64, problems);
    if shape == Shape::Loop && routers.is_some_and(|routers| routers != LOOP_ROUTERS as u64) {
        let message = format!("a loop has {LOOP_ROUTERS} routers");
        return problems.refuse(&value.span, message, format!("write `loop: {LOOP_ROUTERS}`"));
    }
    let of_loop = LINKS[1..].iter().find_map(|(key, ..)| Some((key, fields.value(key)?)));
    if let Some((key, value)) = of_loop.filter(|_| shape != Shape::Loop) {
        let message = format!("`{key}` belongs to the link in the middle of a loop");
        return problems.refuse(&value.span, message, "leave it out, or write `loop: 4`");
    }
    let [core_speed, wan_speed, wan_delay, wan_loss] =
        LINKS.map(|(key, example, _)| (key, format!("`{key}`"), example));
    let mut speed = |(key, what, example): (&str, String, &str)| {
        fields.optional(key, |node| {
            let speed: Bandwidth = quantity(node, &what, example, str::parse, problems)?;
            match speed < SLOWEST {
                true => problems.refuse(
                    &node.span,
                    format!("{what} of {speed} is too slow"),
                    format!("write {SLOWEST} or more"),
                ),
                false => Some(speed),
            }
        })
    };
    let (core_speed, wan_speed) = (speed(core_speed)?, speed(wan_speed)?);
    let (key, what, example) = wan_delay;
    let delay = fields.optional(key, |node| {
        let delay = quantity(node, &what, example, parse_duration, problems)?;
        match delay > LONGEST {
            true => problems.refuse(
                &node.span,
                format!("{what} is too long"),
                format!("write at most {} s", LONGEST.as_secs()),
            ),
            false => Some(delay),
        }
    })?;
    let (key, what, example) = wan_loss;
    let loss = fields.optional(key, |node| {
        let loss: LinkLoss = quantity(node, &what, example, str::parse, problems)?;
        match loss > MOST_LOSS {
            true => {
                let message = format!("{what} of {loss} leaves no link to test over");
                problems.refuse(&node.span, message, format!("write at most {MOST_LOSS}"))
            }
            false => Some(loss),
        }
    })?;
    let wan = Wan { speed: wan_speed, delay, loss };
    Some(Topology { shape, routers: routers? as usize, core_speed, wan: (!wan.is_plain()).then_some(wan) })
}

/// The schema of the key.
pub(super) fn schema() -> Value {
    let number = |help: &str| json!({ "type": "integer", "minimum": 2, "maximum": MOST_ROUTERS, "description": help });
    let link = |key: &str, example: &str, help: &str| match key.ends_with("speed") {
        true => schema::speed(help, example),
        false => json!({ "description": help, "type": "string", "examples": [example] }),
    };
    let shapes = SHAPES.iter().map(|(key, _, help)| ((*key).to_owned(), number(help)));
    let links = LINKS.iter().map(|(key, example, help)| ((*key).to_owned(), link(key, example, help)));
    let properties: Map<String, Value> = shapes.chain(links).collect();
    let one_of: Vec<_> = SHAPES.iter().map(|(key, ..)| json!({ "required": [key] })).collect();
    json!({
        "description": "The DUT consists of several routers of its kind, with links between them.",
        "type": "object", "additionalProperties": false, "properties": properties, "oneOf": one_of,
    })
}
