//! Classes of service of a test in the words of tc(8): a hierarchical token bucket (HTB) at the output port, with a class and a queue each.
//!
//! A class has its share of the rate by weight, and borrows what the others leave. Packets of the router itself (ARP, ICMPv6, codepoint CS6 of routing
//! protocols) go out beside the classes, unless a class names their codepoint: an overload of test frames must not end its sessions.

use crate::router::interface_at;
use crate::{LabError, Netns};
use drophammer_model::classes::{EgressClasses, by_port, counter_name};
use drophammer_model::role::{Place, RouterRole};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The program, and the Debian package that has it.
pub(crate) const NEED: (&str, &str) = ("tc", "iproute2");
/// Handle of the buckets, by which they are known again.
const HANDLE: &str = "d0c5:";
/// Minor number of the first class; that of all together is 1.
const FIRST: usize = 0x11;
/// What a frame takes of an Ethernet line beside the bytes that the kernel counts: FCS, preamble and gap.
const OVERHEAD: u32 = 24;
/// The least that a frame takes of it.
const LEAST: u32 = 84;
/// Bytes that a turn of the class with the least weight has, at least: a frame of an Ethernet line.
const TURN: u64 = 1_600;
/// Time of the rate that a bucket holds. A processor that is held up for longer leaves the line idle.
const BURST_PER_SECOND: u64 = 250;
/// Codepoint of routing protocols (CS6).
const ROUTING: u8 = 48;

/// The classes that a router has: device, interface of its role, classes.
#[derive(Debug, Default)]
pub(crate) struct Given(Vec<(String, usize, EgressClasses)>);

impl Given {
    /// Puts these classes in place of those that are there, and of any other queue of their devices; none takes them back.
    ///
    /// # Errors
    /// [`LabError::Unusable`] for classes that no router of this role can have, [`LabError::Command`] with the words of tc,
    /// [`LabError::MissingProgram`].
    pub(crate) fn set(&mut self, netns: &Netns, role: &RouterRole, lists: &[EgressClasses]) -> Result<(), LabError> {
        let lists = by_port(lists, role.interfaces.len()).map_err(|what| LabError::Unusable {
            what,
            remedy: "change the classes of the test in the suite".into(),
        })?;
        self.0.clear();
        let mut text = String::new();
        for device in own_roots(&listed(netns, &[])?) {
            let _ = writeln!(text, "qdisc del dev {device} root");
        }
        let device = |port: usize| interface_at(role, Place { port, vlan: None });
        let all: Vec<_> = lists.into_iter().map(|(port, list)| (device(port), port, list.clone())).collect();
        for (device, _, list) in &all {
            text.push_str(&commands(device, list));
        }
        if !text.is_empty() {
            netns.output(NEED.0, NEED.1, &["-batch", "-"], Some(&text))?;
        }
        self.0 = all;
        Ok(())
    }

    /// Adds what each class has sent and dropped.
    ///
    /// # Errors
    /// Those of tc.
    pub(crate) fn counters(&self, netns: &Netns, counters: &mut BTreeMap<String, u64>) -> Result<(), LabError> {
        for (device, port, list) in &self.0 {
            let listed = listed(netns, &["dev", device])?;
            for (i, class) in list.classes.iter().enumerate() {
                let parent = format!("{HANDLE}{:x}", FIRST + i);
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

/// Queueing disciplines with their counters.
fn listed(netns: &Netns, of: &[&str]) -> Result<Value, LabError> {
    let arguments = [&["-j", "-s", "qdisc", "show"], of].concat();
    let text = netns.output(NEED.0, NEED.1, &arguments, None)?;
    serde_json::from_str(&text).map_err(|e| LabError::io("cannot read the JSON of tc(8)")(std::io::Error::from(e)))
}

/// Devices whose output ports have classes of ours.
fn own_roots(listed: &Value) -> Vec<String> {
    let own = |q: &&Value| q["root"] == true && q["handle"] == HANDLE;
    let all = listed.as_array().into_iter().flatten().filter(own);
    all.filter_map(|q| Some(q["dev"].as_str()?.to_owned())).collect()
}

/// Lines for `tc -batch` that give a device its classes.
fn commands(device: &str, list: &EgressClasses) -> String {
    let rate = list.rate.0;
    let burst = (rate / 8 / BURST_PER_SECOND).max(2 * TURN);
    let sum: u64 = list.classes.iter().map(|class| u64::from(class.weight)).sum();
    let least = list.classes.iter().map(|class| u64::from(class.weight)).min().unwrap_or(1).max(1);
    let (mut text, minor) = (String::new(), |i: usize| format!("{HANDLE}{:x}", FIRST + i));
    let bucket = format!("ceil {rate}bit burst {burst}b cburst {burst}b mpu {LEAST} overhead {OVERHEAD}");
    let last = FIRST + list.classes.len() - 1;
    let _ = writeln!(text, "qdisc replace dev {device} root handle {HANDLE} htb default {last:x}");
    let _ = writeln!(
        text,
        "class add dev {device} parent {HANDLE} classid {HANDLE}1 htb rate {rate}bit {bucket} quantum {TURN}"
    );
    for (i, class) in list.classes.iter().enumerate() {
        let weight = u64::from(class.weight);
        // Of what others leave, classes take turns of these bytes.
        let (own, quantum) = ((u128::from(rate) * u128::from(weight) / u128::from(sum)).max(1), TURN * weight / least);
        let _ = writeln!(
            text,
            "class add dev {device} parent {HANDLE}1 classid {} htb rate {own}bit {bucket} quantum {quantum}",
            minor(i)
        );
        let _ = writeln!(text, "qdisc add dev {device} parent {} pfifo limit {}", minor(i), list.queue);
    }
    let mut filter = |protocol: &str, priority: u32, condition: String, to: &str| {
        let _ = writeln!(
            text,
            "filter add dev {device} parent {HANDLE} protocol {protocol} prio {priority} u32 match {condition} flowid {to}"
        );
    };
    for (i, class) in list.classes.iter().enumerate() {
        let bits = u32::from(class.dscp) << 2;
        filter("ip", 1, format!("ip dsfield {bits:#04x} 0xfc"), &minor(i));
        filter("ipv6", 2, format!("ip6 priority {bits:#04x} 0xfc"), &minor(i));
    }
    let beside = format!("{HANDLE}0");
    filter("arp", 3, "u32 0 0".into(), &beside);
    filter("ipv6", 2, "ip6 protocol 58 0xff".into(), &beside);
    filter("ip", 1, format!("ip dsfield {:#04x} 0xfc", ROUTING << 2), &beside);
    filter("ipv6", 2, format!("ip6 priority {:#04x} 0xfc", ROUTING << 2), &beside);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::Bandwidth;
    use drophammer_model::classes::{ServiceClass, WayOut};

    #[test]
    fn classes_have_their_rates_turns_and_codepoints() {
        let class = |name: &str, dscp, weight| ServiceClass { name: name.into(), dscp, weight };
        let list = EgressClasses {
            at: WayOut::Port(1),
            rate: Bandwidth(95_000_000),
            queue: 256,
            classes: vec![class("gold", 40, 70), class("silver", 24, 20), class("bronze", 0, 5)],
        };
        let text = commands("d1", &list);
        let has = |line: &str| assert!(text.lines().any(|l| l.starts_with(line)), "no `{line}` in {text}");
        has("qdisc replace dev d1 root handle d0c5: htb default 13");
        has("class add dev d1 parent d0c5: classid d0c5:1 htb rate 95000000bit ceil 95000000bit burst 47500b");
        has("class add dev d1 parent d0c5:1 classid d0c5:11 htb rate 70000000bit ceil 95000000bit");
        has("class add dev d1 parent d0c5:1 classid d0c5:13 htb rate 5000000bit ceil 95000000bit");
        has("qdisc add dev d1 parent d0c5:12 pfifo limit 256");
        has("filter add dev d1 parent d0c5: protocol ip prio 1 u32 match ip dsfield 0xa0 0xfc flowid d0c5:11");
        has("filter add dev d1 parent d0c5: protocol ipv6 prio 2 u32 match ip6 priority 0x60 0xfc flowid d0c5:12");
        let quantum = |i: usize| {
            let line = text.lines().find(|l| l.contains(&format!("classid d0c5:1{i}"))).unwrap();
            line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
        };
        assert_eq!([quantum(1), quantum(2), quantum(3)], [22_400, 6_400, 1_600]);
        // A class that names a codepoint of routing protocols has it: its filter stands first.
        assert!(text.find("dsfield 0xa0").unwrap() < text.find("dsfield 0xc0").unwrap());
    }

    #[test]
    fn only_classes_of_ours_are_taken_back() {
        let listed = serde_json::json!([
            {"kind": "htb", "handle": "d0c5:", "dev": "d1", "root": true},
            {"kind": "pfifo", "handle": "8001:", "dev": "d1", "parent": "d0c5:11"},
            {"kind": "htb", "handle": "1:", "dev": "d2", "root": true},
        ]);
        assert_eq!(own_roots(&listed), ["d1"]);
        assert_eq!(counter_name(1, "gold"), "d1.gold");
    }
}
