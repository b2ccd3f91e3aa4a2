//! Classes of service as data: the packets of each class, and the share of a congested output port that it gets.
//!
//! # Classes of service
//!
//! A test sets classes with `methods::Setting::Classes`, and a DUT applies them in `Classes::set_classes`. The bench
//! records them (`Record::Classes`) and marks trials with classes (`TrialRecord::classed`). Loss in these trials raises
//! no doubt, because a narrow output drops frames while the processor is idle. `System::classes_of` selects the classes
//! of each router of a system, numbered by its interfaces. `lab/src/traffic_classes.rs` turns them into HTB classes of
//! `tc`, or prio in guests with `scheduler: prio` (`lab/src/system/core_links.rs` restores the queue of a link
//! afterwards); `reference/src/class_line.rs` implements them on the line of a port.

use crate::quantity::Bandwidth;
use crate::topology::CoreWay;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;

/// Maximum number of classes of an output port.
pub const MOST_CLASSES: usize = 8;
/// Largest weight of a class.
pub const MOST_WEIGHT: u32 = 10_000;
/// Largest codepoint (RFC 2474: six bits).
const MOST_DSCP: u8 = 63;

/// A class of service: its packets have one codepoint, and its weight is relative to the other classes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceClass {
    /// Name, such as `gold`.
    pub name: String,
    /// Codepoint of its packets, 0 to 63 (RFC 2474). IP precedence p is codepoint 8 p.
    pub dscp: u8,
    /// Share of a congested output port, relative to the other classes.
    pub weight: u32,
}

/// Where frames leave a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum WayOut {
    /// The port with this number; for a router of a system, its interface with this number.
    Port(usize),
    /// The link from one router of a system to another.
    Core(CoreWay),
}

impl WayOut {
    /// The port, if it is one.
    pub fn port(self) -> Option<usize> {
        match self {
            WayOut::Port(port) => Some(port),
            WayOut::Core(_) => None,
        }
    }
}

crate::choice! {
    /// The class that is served if several have waiting packets.
    #[derive(Default, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Scheduling {
        /// All in turn: they share the rate by weight.
        #[default]
        Weights = "weights",
        /// Only the class that is first in the order of [`by_priority`]: strict priority.
        Priority = "priority",
    }
}

/// Indices of classes with these weights in order of priority: the highest weight first; among equal weights, the class
/// listed first.
pub fn by_priority(weights: &[u32]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by_key(|class| Reverse(weights[*class]));
    order
}

/// The classes of one output port of a router. A packet that matches no class belongs to the last one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EgressClasses {
    /// The output port. Records of earlier versions call it `port`.
    #[serde(alias = "port")]
    pub at: WayOut,
    /// Rate of the port. A frame counts with its size including FCS plus 20 bytes, as on an Ethernet line.
    pub rate: Bandwidth,
    /// Queue length of each class, in frames.
    pub queue: u32,
    /// Which class is served. Earlier versions support only weights and do not record it.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub scheduling: Scheduling,
    /// The classes.
    pub classes: Vec<ServiceClass>,
}

/// Returns why these classes cannot be combined; `None` if they can.
pub fn refuse_classes(classes: &[ServiceClass]) -> Option<String> {
    if classes.len() < 2 || classes.len() > MOST_CLASSES {
        return Some(format!("write 2 to {MOST_CLASSES} classes, not {}", classes.len()));
    }
    for (i, class) in classes.iter().enumerate() {
        let ServiceClass { name, dscp, weight } = class;
        let usable = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if name.is_empty() || name.len() > 32 || !name.chars().all(usable) {
            return Some(format!("`{name}` cannot be the name of a class; write at most 32 letters, digits and `-`"));
        }
        if *dscp > MOST_DSCP {
            return Some(format!("class `{name}` has codepoint {dscp}, but the highest is {MOST_DSCP}"));
        }
        if *weight == 0 || *weight > MOST_WEIGHT {
            return Some(format!("class `{name}` has weight {weight}; weights are 1 to {MOST_WEIGHT}"));
        }
        if let Some(other) = classes[..i].iter().find(|other| other.name == *name || other.dscp == *dscp) {
            return Some(format!("classes `{}` and `{name}` have the same name or the same codepoint", other.name));
        }
    }
    None
}

/// Assigns the lists to the ports of a router with this many ports.
///
/// # Errors
/// The reason why the router cannot have these classes.
pub fn by_port(lists: &[EgressClasses], ports: usize) -> Result<Vec<(usize, &EgressClasses)>, String> {
    let mut found: Vec<(usize, &EgressClasses)> = Vec::with_capacity(lists.len());
    for list in lists {
        let port = match list.at {
            WayOut::Port(port) if port < ports => port,
            WayOut::Port(port) => return Err(format!("there are classes for port {port}, but only {ports} ports")),
            WayOut::Core(way) => return Err(format!("there are classes for {way}, but this is a single router")),
        };
        if found.iter().any(|(other, _)| *other == port) {
            return Err(format!("port {port} has classes twice"));
        }
        if list.rate.0 == 0 || list.queue == 0 {
            return Err(format!("port {port}: classes need a rate and a queue of at least one frame"));
        }
        if let Some(why) = refuse_classes(&list.classes) {
            return Err(why);
        }
        found.push((port, list));
    }
    Ok(found)
}

/// Prefix of the counters of a class at output port `port`: `d1.gold`, followed by `.served` or `.dropped`.
pub fn counter_name(port: usize, class: &str) -> String {
    format!("d{port}.{class}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(name: &str, dscp: u8, weight: u32) -> ServiceClass {
        ServiceClass { name: name.into(), dscp, weight }
    }

    #[test]
    fn classes_differ_in_name_and_codepoint() {
        let (gold, silver) = (class("gold", 40, 70), class("silver", 24, 20));
        assert_eq!(refuse_classes(&[gold.clone(), silver.clone()]), None);
        let refused = |classes: &[ServiceClass], word: &str| {
            let why = refuse_classes(classes).unwrap();
            assert!(why.contains(word), "{why}");
        };
        refused(std::slice::from_ref(&gold), "2 to 8 classes, not 1");
        refused(&[gold.clone(), class("gold", 1, 1)], "same name");
        refused(&[gold.clone(), class("b", 40, 1)], "same codepoint");
        refused(&[gold.clone(), class("b", 64, 1)], "codepoint 64");
        refused(&[gold.clone(), class("b", 1, 0)], "weight 0");
        refused(&[gold.clone(), class("a b", 1, 1)], "cannot be the name");

        let list = |port, rate| EgressClasses {
            at: WayOut::Port(port),
            rate: Bandwidth(rate),
            queue: 9,
            scheduling: Scheduling::Weights,
            classes: vec![gold.clone(), silver.clone()],
        };
        let both = [list(0, 1), list(1, 1)];
        let ports: Vec<usize> = by_port(&both, 2).unwrap().into_iter().map(|(port, _)| port).collect();
        assert_eq!(ports, [0, 1]);
        let core = EgressClasses { at: WayOut::Core(CoreWay { from: 1, to: 2 }), ..list(0, 1) };
        for (lists, why) in [
            (vec![list(0, 1), list(0, 1)], "port 0 has classes twice"),
            (vec![list(2, 1)], "for port 2"),
            (vec![list(1, 0)], "need a rate"),
            (vec![core.clone()], "for r1 to r2, but this is a single router"),
        ] {
            assert!(by_port(&lists, 2).unwrap_err().contains(why), "{why}");
        }
        // Records of earlier versions can be read.
        let text = serde_json::to_string(&both[1]).unwrap();
        assert!(text.starts_with("{\"at\":1,"), "{text}");
        let old = text.replace("\"at\"", "\"port\"");
        assert_eq!(serde_json::from_str::<EgressClasses>(&old).unwrap(), both[1]);
        let text = serde_json::to_string(&core).unwrap();
        assert_eq!(serde_json::from_str::<EgressClasses>(&text).unwrap(), core);
    }

    #[test]
    fn priority_follows_the_weights_and_is_recorded() {
        assert_eq!(by_priority(&[70, 20, 5]), [0, 1, 2]);
        assert_eq!(by_priority(&[5, 20, 5, 70]), [3, 1, 0, 2]);
        let list = EgressClasses {
            at: WayOut::Port(1),
            rate: Bandwidth(1),
            queue: 9,
            scheduling: Scheduling::Priority,
            classes: vec![class("gold", 40, 70), class("silver", 24, 20)],
        };
        let text = serde_json::to_string(&list).unwrap();
        assert!(text.contains("\"scheduling\":\"priority\""), "{text}");
        assert_eq!(serde_json::from_str::<EgressClasses>(&text).unwrap(), list);
        let plain = EgressClasses { scheduling: Scheduling::Weights, ..list };
        let text = serde_json::to_string(&plain).unwrap();
        assert!(!text.contains("scheduling"), "{text}");
        assert_eq!(serde_json::from_str::<EgressClasses>(&text).unwrap(), plain);
    }
}
