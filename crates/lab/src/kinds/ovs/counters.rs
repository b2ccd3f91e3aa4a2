//! What Open vSwitch and the sockets of its links count.

use crate::{LabError, Netns, process, slow_path};
use std::collections::BTreeMap;
use std::path::Path;

/// How it is asked: by the folder with its sockets, in its namespace.
pub(super) fn read(netns: &Netns, run: &Path, to: &mut BTreeMap<String, u64>) -> Result<(), LabError> {
    slow_path::rename(to);
    let ask = |program: &str, package: &str, args: &[&str]| -> Result<String, LabError> {
        let path = process::find(program, package)?;
        netns.run(|| {
            let mut command = netns.command(&path);
            command.env("OVS_RUNDIR", run).args(args);
            process::output(command, None)
        })?
    };
    let bridge = format!("unix:{}", run.join(super::BRIDGE.to_owned() + ".mgmt").display());
    ports(&ask("ovs-ofctl", super::COMMON, &["-O", super::OPENFLOW, "dump-ports", &bridge])?, to);
    let target = run.join(super::CONTROL).display().to_string();
    lookups(&ask("ovs-appctl", super::COMMON, &["--target", &target, "dpctl/show"])?, to);
    sockets(&ask("ss", "iproute2", &["--packet", "--all", "--numeric", "--memory", "--no-header"])?, to);
    Ok(())
}

/// The counters of `ovs-ofctl dump-ports`: `port "d0": rx pkts=1, bytes=60, drop=?, ...` and a line `tx pkts=...` after it.
fn ports(text: &str, to: &mut BTreeMap<String, u64>) {
    let mut port = String::new();
    for line in text.lines().map(str::trim) {
        let counters = match line.strip_prefix("port ").and_then(|rest| rest.split_once(": ")) {
            Some((name, counters)) => {
                port = name.trim().trim_matches('"').to_owned();
                counters
            }
            None => line,
        };
        let Some((way, counters)) = counters.split_once(' ').filter(|(way, _)| matches!(*way, "rx" | "tx")) else {
            continue;
        };
        // What it does not know is a question mark.
        let known =
            counters.split(", ").filter_map(|c| c.split_once('=')).filter_map(|(k, v)| Some((k, v.parse().ok()?)));
        to.extend(known.map(|(key, value): (_, u64)| (format!("ovs.{port}.{way}_{key}"), value)));
    }
}

/// The line `lookups: hit:1 missed:2 lost:3` of `dpctl/show`: packets that the datapath knew a flow for, that it asked its tables
/// about, and that were lost in asking.
fn lookups(text: &str, to: &mut BTreeMap<String, u64>) {
    let line = text.lines().find_map(|line| line.trim().strip_prefix("lookups: "));
    let words = line.unwrap_or_default().split_whitespace().filter_map(|word| word.split_once(':'));
    to.extend(words.filter_map(|(key, value)| Some((format!("ovs.lookups_{key}"), value.parse().ok()?))));
}

/// Frames for which the packet sockets of the links had no room, of ss(8): the last field of `skmem:(r0,...,d12)` at a line with `*:d0`.
fn sockets(text: &str, to: &mut BTreeMap<String, u64>) {
    let mut link = None;
    for word in text.split_whitespace() {
        if let Some(name) =
            word.strip_prefix("*:").filter(|name| name.strip_prefix('d').is_some_and(|n| n.parse::<u16>().is_ok()))
        {
            link = Some(name.to_owned());
        } else if word.starts_with("*:") || word.contains(":*") {
            // Another socket, or the peer that packet sockets do not have.
            link = link.filter(|_| word == "*" || word == "*:*");
        } else if let (Some(name), Some(memory)) = (&link, word.strip_prefix("skmem:(")) {
            let dropped = memory.trim_end_matches(')').split(',').find_map(|field| field.strip_prefix('d'));
            if let Some(dropped) = dropped.and_then(|n| n.parse::<u64>().ok()) {
                *to.entry(format!("ovs.{name}.socket_dropped")).or_default() += dropped;
            }
            link = None;
        }
    }
}
