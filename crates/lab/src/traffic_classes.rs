//! Classes of service of a test with tc(8): a hierarchical token bucket (HTB) at the output port, with an HTB class and
//! a queue for each.
//!
//! Each class has a share of the rate by weight, and borrows what the others do not use. With strict priority it has
//! almost no share of its own, and spare rate goes to the first class. The scheduler `prio` has one HTB class with the
//! full rate, and below it a band for each class of service. Packets of the router itself (ARP, ICMPv6, codepoint CS6
//! of routing protocols) bypass the classes, unless a class names their codepoint: an overload of test frames must not
//! end the router's sessions.

use crate::router::interface_at;
use crate::{LabError, Netns};
use drophammer_model::Param;
use drophammer_model::classes::{EgressClasses, Scheduling, by_port, by_priority, counter_name};
use drophammer_model::role::{Place, RouterRole};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;

drophammer_model::choice! {
    /// Queueing disciplines that serve the classes.
    #[derive(Default, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub(crate) enum Scheduler {
        /// HTB alone, by weight or by priority as the test requests.
        #[default]
        Htb = "htb",
        /// Strict priority (`prio`) in the order of the weights, below HTB, regardless of what the test requests.
        Prio = "prio",
    }
}

/// Parameter of the kinds whose kernel supports both schedulers.
pub(crate) const SCHEDULER: Param<Scheduler> = Param::fixed(
    "scheduler",
    "htb",
    "scheduler for the classes of a test: HTB, by weight or by priority, or `prio` below HTB, which is always strict priority in the order of the weights",
);

/// The program, and the Debian package that contains it.
pub(crate) const NEED: (&str, &str) = ("tc", "iproute2");
/// Kernel modules that this needs.
pub(crate) const MODULES: [&str; 3] = ["sch_htb", "sch_prio", "cls_u32"];
/// Handle of the HTB queueing disciplines, which identifies them as ours.
const HANDLE: &str = "d0c5:";
/// Handle of the `prio` queueing discipline.
const BANDS: &str = "d0c6:";
/// Minor number of the first class; the parent of all classes is 1.
const FIRST: usize = 0x11;
/// Bytes of a frame on an Ethernet line that the kernel does not count: FCS, preamble and gap.
pub(crate) const OVERHEAD: u32 = 24;
/// The shortest frame on the line, including these bytes.
pub(crate) const SHORTEST: u32 = 84;
/// Bytes per turn of the class with the least weight: one frame of an Ethernet line.
const TURN: u64 = 1_600;
/// A bucket contains the bytes of 1/250 s at its rate. If the processor is delayed for longer, the line is idle.
const BURST_PER_SECOND: u64 = 250;
/// Guaranteed bits per second of each class under strict priority: one or two frames. HTB requires a share for each
/// class.
const LITTLE: u64 = 1_000;
/// Packet priorities of the kernel; each needs a band.
const PRIORITIES: usize = 16;
/// Codepoint of routing protocols (CS6).
const ROUTING: u8 = 48;

/// Runs tc(8) with these arguments and input in the router's namespace, and returns its output.
pub(crate) type Tc<'a> = &'a dyn Fn(&[&str], Option<&str>) -> Result<String, LabError>;

/// tc(8) of a router in a namespace.
pub(crate) fn within(netns: &Netns) -> impl Fn(&[&str], Option<&str>) -> Result<String, LabError> {
    move |arguments, input| netns.output(NEED.0, NEED.1, arguments, input)
}

/// The classes of a router: device, interface of its role, classes.
#[derive(Debug, Default)]
pub(crate) struct Given {
    scheduler: Scheduler,
    lists: Vec<(String, usize, EgressClasses)>,
}

impl Given {
    /// No classes yet; `scheduler` will serve the classes that are set later.
    pub(crate) fn by(scheduler: Scheduler) -> Given {
        Given { scheduler, lists: Vec::new() }
    }

    /// Replaces the current classes, and any other queue of their devices, by the given ones; an empty slice removes
    /// the classes.
    pub(crate) fn set(&mut self, tc: Tc<'_>, role: &RouterRole, lists: &[EgressClasses]) -> Result<(), LabError> {
        let lists = by_port(lists, role.interfaces.len())
            .map_err(|what| LabError::unusable(what, "change the classes of the test in the suite"))?;
        self.lists.clear();
        let mut text = String::new();
        for device in own_roots(&listed(tc, &[])?) {
            let _ = writeln!(text, "qdisc del dev {device} root");
        }
        let device = |port: usize| interface_at(role, Place { port, vlan: None });
        let all: Vec<_> = lists.into_iter().map(|(port, list)| (device(port), port, list.clone())).collect();
        for (device, _, list) in &all {
            text.push_str(&commands(device, list, self.scheduler));
        }
        if !text.is_empty() {
            tc(&["-batch", "-"], Some(&text))?;
        }
        self.lists = all;
        Ok(())
    }

    /// Adds the packets that each class has sent and dropped.
    pub(crate) fn counters(&self, tc: Tc<'_>, counters: &mut BTreeMap<String, u64>) -> Result<(), LabError> {
        for (device, port, list) in &self.lists {
            let listed = listed(tc, &["dev", device])?;
            for (class, parent) in list.classes.iter().zip(parents(list, self.scheduler)) {
                let queue = listed.as_array().into_iter().flatten().find(|q| q["parent"] == parent.as_str());
                let count = |what: &str| queue.and_then(|q| q[what].as_u64());
                let name = counter_name(*port, &class.name);
                counters.extend(count("packets").map(|n| (format!("{name}.served"), n)));
                counters.extend(count("drops").map(|n| (format!("{name}.dropped"), n)));
            }
        }
        Ok(())
    }
}

/// Queueing disciplines with their counters: of all devices, or only of one with `of`.
pub(crate) fn listed(tc: Tc<'_>, of: &[&str]) -> Result<Value, LabError> {
    let text = tc(&[&["-j", "-s", "qdisc", "show"], of].concat(), None)?;
    serde_json::from_str(&text).map_err(LabError::io("cannot read the JSON of tc(8)"))
}

/// Devices with our classes.
fn own_roots(listed: &Value) -> Vec<String> {
    let own = |q: &&Value| q["root"] == true && q["handle"] == HANDLE;
    let all = listed.as_array().into_iter().flatten().filter(own);
    all.filter_map(|q| Some(q["dev"].as_str()?.to_owned())).collect()
}

/// The rank of each class by priority, from 0.
fn ranks(list: &EgressClasses) -> Vec<usize> {
    let order = by_priority(&list.classes.iter().map(|class| class.weight).collect::<Vec<_>>());
    let rank = |class: usize| order.iter().position(|at| *at == class).unwrap_or_default();
    (0..order.len()).map(rank).collect()
}

/// The parent of the queue of each class: its HTB class, or its band.
fn parents(list: &EgressClasses, scheduler: Scheduler) -> Vec<String> {
    match scheduler {
        Scheduler::Htb => (0..list.classes.len()).map(|class| format!("{HANDLE}{:x}", FIRST + class)).collect(),
        Scheduler::Prio => ranks(list).into_iter().map(|rank| format!("{BANDS}{:x}", rank + 1)).collect(),
    }
}

/// Lines for `tc -batch` that give a device its classes.
fn commands(device: &str, list: &EgressClasses, scheduler: Scheduler) -> String {
    let rate = list.rate.0;
    let burst = (rate / 8 / BURST_PER_SECOND).max(2 * TURN);
    let ceiling = format!("ceil {rate}bit cburst {burst}b mpu {SHORTEST} overhead {OVERHEAD}");
    let parents = parents(list, scheduler);
    let default = match scheduler {
        Scheduler::Htb => FIRST + list.classes.len() - 1,
        Scheduler::Prio => 1,
    };
    let mut text = String::new();
    let _ = writeln!(text, "qdisc replace dev {device} root handle {HANDLE} htb default {default:x}");
    let _ = writeln!(
        text,
        "class add dev {device} parent {HANDLE} classid {HANDLE}1 htb rate {rate}bit burst {burst}b {ceiling} quantum {TURN}"
    );
    match scheduler {
        Scheduler::Htb => {
            for (own, parent) in shares(list, burst).iter().zip(&parents) {
                let _ = writeln!(text, "class add dev {device} parent {HANDLE}1 classid {parent} htb {own} {ceiling}");
            }
        }
        Scheduler::Prio => {
            let ranks = ranks(list);
            // Packets that match no class go to the band of the last rank.
            let last = ranks.last().copied().unwrap_or_default().to_string();
            let (bands, map) = (ranks.len(), vec![last; PRIORITIES].join(" "));
            let _ = writeln!(
                text,
                "qdisc add dev {device} parent {HANDLE}1 handle {BANDS} prio bands {bands} priomap {map}"
            );
        }
    }
    for parent in &parents {
        let _ = writeln!(text, "qdisc add dev {device} parent {parent} pfifo limit {}", list.queue);
    }
    text.push_str(&filters(device, list, scheduler, &parents));
    text
}

/// Parameters of the HTB class of each class of service: its guaranteed rate, and how it borrows.
fn shares(list: &EgressClasses, burst: u64) -> Vec<String> {
    let (rate, weights) = (list.rate.0, list.classes.iter().map(|class| u64::from(class.weight)));
    if list.scheduling == Scheduling::Priority {
        let own = LITTLE.min(rate);
        let words = |rank: usize| format!("rate {own}bit burst {TURN}b prio {rank} quantum {TURN}");
        return ranks(list).into_iter().map(words).collect();
    }
    let (sum, least) = (weights.clone().sum::<u64>(), weights.clone().min().unwrap_or(1).max(1));
    let words = |weight: u64| {
        // Classes that borrow take turns; the quantum is the number of bytes per turn.
        let (own, quantum) = ((u128::from(rate) * u128::from(weight) / u128::from(sum)).max(1), TURN * weight / least);
        format!("rate {own}bit burst {burst}b quantum {quantum}")
    };
    weights.map(words).collect()
}

/// Filters that lead packets to their classes, but let packets of the router itself bypass them.
fn filters(device: &str, list: &EgressClasses, scheduler: Scheduler, parents: &[String]) -> String {
    let mut text = String::new();
    let mut filter = |at: &str, protocol: &str, priority: u32, condition: &str, to: &str| {
        let _ = writeln!(
            text,
            "filter add dev {device} parent {at} protocol {protocol} prio {priority} u32 match {condition} flowid {to}"
        );
    };
    let codepoint = |dscp: u8| {
        let bits = u32::from(dscp) << 2;
        (format!("ip dsfield {bits:#04x} 0xfc"), format!("ip6 priority {bits:#04x} 0xfc"))
    };
    let bypass = format!("{HANDLE}0");
    // With strict priority a class can wait forever. Neighbor Discovery must not wait, or the router loses all
    // neighbours.
    let strict = scheduler == Scheduler::Prio || list.scheduling == Scheduling::Priority;
    if strict {
        filter(HANDLE, "ipv6", 2, "ip6 protocol 58 0xff", &bypass);
    }
    let at = match scheduler {
        Scheduler::Htb => HANDLE,
        Scheduler::Prio => BANDS,
    };
    for (class, parent) in list.classes.iter().zip(parents) {
        let (ipv4, ipv6) = codepoint(class.dscp);
        filter(at, "ip", 1, &ipv4, parent);
        filter(at, "ipv6", 2, &ipv6, parent);
    }
    filter(HANDLE, "arp", 3, "u32 0 0", &bypass);
    if !strict {
        filter(HANDLE, "ipv6", 2, "ip6 protocol 58 0xff", &bypass);
    }
    // At the same parent, the filters of the classes come before this one.
    if scheduler == Scheduler::Htb || list.classes.iter().all(|class| class.dscp != ROUTING) {
        let (ipv4, ipv6) = codepoint(ROUTING);
        filter(HANDLE, "ip", 1, &ipv4, &bypass);
        filter(HANDLE, "ipv6", 2, &ipv6, &bypass);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::Bandwidth;
    use drophammer_model::classes::{ServiceClass, WayOut};
    use serde_json::json;

    fn list(scheduling: Scheduling) -> EgressClasses {
        let class = |name: &str, dscp, weight| ServiceClass { name: name.into(), dscp, weight };
        EgressClasses {
            at: WayOut::Port(1),
            rate: Bandwidth(95_000_000),
            queue: 256,
            scheduling,
            classes: vec![class("gold", 40, 70), class("silver", 24, 20), class("bronze", 0, 5)],
        }
    }

    fn has(text: &str, line: &str) {
        assert!(text.lines().any(|l| l.starts_with(line)), "no `{line}` in {text}");
    }

    #[test]
    fn classes_have_their_rates_turns_and_codepoints() {
        let text = commands("d1", &list(Scheduling::Weights), Scheduler::Htb);
        for line in [
            "qdisc replace dev d1 root handle d0c5: htb default 13",
            "class add dev d1 parent d0c5: classid d0c5:1 htb rate 95000000bit burst 47500b ceil 95000000bit cburst 47500b",
            "class add dev d1 parent d0c5:1 classid d0c5:11 htb rate 70000000bit burst 47500b quantum 22400 ceil 95000000bit",
            "class add dev d1 parent d0c5:1 classid d0c5:12 htb rate 20000000bit burst 47500b quantum 6400 ceil 95000000bit",
            "class add dev d1 parent d0c5:1 classid d0c5:13 htb rate 5000000bit burst 47500b quantum 1600 ceil 95000000bit",
            "qdisc add dev d1 parent d0c5:12 pfifo limit 256",
            "filter add dev d1 parent d0c5: protocol ip prio 1 u32 match ip dsfield 0xa0 0xfc flowid d0c5:11",
            "filter add dev d1 parent d0c5: protocol ipv6 prio 2 u32 match ip6 priority 0x60 0xfc flowid d0c5:12",
        ] {
            has(&text, line);
        }
        // A class that names the codepoint of routing protocols gets these packets: its filter comes first.
        assert!(text.find("dsfield 0xa0").unwrap() < text.find("dsfield 0xc0").unwrap());
    }

    #[test]
    fn with_priority_classes_have_next_to_nothing_of_their_own() {
        let mut list = list(Scheduling::Priority);
        list.classes.swap(0, 2);
        let text = commands("d1", &list, Scheduler::Htb);
        for line in [
            "class add dev d1 parent d0c5:1 classid d0c5:11 htb rate 1000bit burst 1600b prio 2 quantum 1600 ceil 95000000bit",
            "class add dev d1 parent d0c5:1 classid d0c5:12 htb rate 1000bit burst 1600b prio 1 quantum 1600 ceil 95000000bit",
            "class add dev d1 parent d0c5:1 classid d0c5:13 htb rate 1000bit burst 1600b prio 0 quantum 1600 ceil 95000000bit",
        ] {
            has(&text, line);
        }
        // Neighbor Discovery has its filter, whatever the codepoint.
        assert!(text.find("ip6 protocol 58").unwrap() < text.find("ip6 priority").unwrap());
    }

    #[test]
    fn bands_stand_in_the_order_of_the_weights() {
        let mut list = list(Scheduling::Weights);
        list.classes.rotate_left(1);
        let text = commands("d1", &list, Scheduler::Prio);
        for line in [
            "qdisc replace dev d1 root handle d0c5: htb default 1",
            "class add dev d1 parent d0c5: classid d0c5:1 htb rate 95000000bit burst 47500b ceil 95000000bit",
            // The last class is gold, the first in order.
            "qdisc add dev d1 parent d0c5:1 handle d0c6: prio bands 3 priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0",
            "qdisc add dev d1 parent d0c6:2 pfifo limit 256",
            "filter add dev d1 parent d0c6: protocol ip prio 1 u32 match ip dsfield 0x60 0xfc flowid d0c6:2",
            "filter add dev d1 parent d0c6: protocol ip prio 1 u32 match ip dsfield 0x00 0xfc flowid d0c6:3",
            "filter add dev d1 parent d0c6: protocol ipv6 prio 2 u32 match ip6 priority 0xa0 0xfc flowid d0c6:1",
            "filter add dev d1 parent d0c5: protocol arp prio 3 u32 match u32 0 0 flowid d0c5:0",
            "filter add dev d1 parent d0c5: protocol ip prio 1 u32 match ip dsfield 0xc0 0xfc flowid d0c5:0",
        ] {
            has(&text, line);
        }
        assert_eq!(text.matches("class add").count(), 1);
        // A class that names the codepoint of routing protocols gets these packets.
        list.classes[1].dscp = ROUTING;
        let text = commands("d1", &list, Scheduler::Prio);
        has(&text, "filter add dev d1 parent d0c6: protocol ip prio 1 u32 match ip dsfield 0xc0 0xfc flowid d0c6:3");
        assert!(!text.contains("dsfield 0xc0 0xfc flowid d0c5:0"), "{text}");
    }

    #[test]
    fn classes_are_counted_at_their_queues() {
        let listed = json!([
            {"kind": "htb", "handle": "d0c5:", "dev": "d1", "root": true, "packets": 60, "drops": 9},
            {"kind": "prio", "handle": "d0c6:", "dev": "d1", "parent": "d0c5:1", "packets": 60, "drops": 9},
            {"kind": "pfifo", "handle": "8001:", "dev": "d1", "parent": "d0c6:1", "packets": 30, "drops": 0},
            {"kind": "pfifo", "handle": "8002:", "dev": "d1", "parent": "d0c6:2", "packets": 20, "drops": 2},
            {"kind": "pfifo", "handle": "8003:", "dev": "d1", "parent": "d0c6:3", "packets": 10, "drops": 7},
        ]);
        let role = RouterRole::of(&crate::kinds::tests_support::two_ports());
        let said: Tc<'_> =
            &|arguments, _| Ok(if arguments.contains(&"-batch") { String::new() } else { listed.to_string() });
        let mut given = Given::by(Scheduler::Prio);
        let mut counters = BTreeMap::new();
        given.counters(said, &mut counters).unwrap();
        assert!(counters.is_empty());
        given.set(said, &role, &[list(Scheduling::Priority)]).unwrap();
        given.counters(said, &mut counters).unwrap();
        let expected = [
            ("d1.bronze.dropped", 7),
            ("d1.bronze.served", 10),
            ("d1.gold.dropped", 0),
            ("d1.gold.served", 30),
            ("d1.silver.dropped", 2),
            ("d1.silver.served", 20),
        ];
        assert_eq!(counters, expected.map(|(name, n)| (name.to_owned(), n)).into());
    }

    #[test]
    fn only_our_own_classes_are_removed() {
        let listed = json!([
            {"kind": "htb", "handle": "d0c5:", "dev": "d1", "root": true},
            {"kind": "pfifo", "handle": "8001:", "dev": "d1", "parent": "d0c5:11"},
            {"kind": "htb", "handle": "1:", "dev": "d2", "root": true},
        ]);
        assert_eq!(own_roots(&listed), ["d1"]);
        assert_eq!(counter_name(1, "gold"), "d1.gold");
    }
}
