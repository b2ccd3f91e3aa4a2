//! Counters of Open vSwitch and of the sockets of its links.

use crate::{LabError, Netns, packet_sockets, process, slow_path};
use std::collections::BTreeMap;
use std::path::Path;

/// Reads all counters, given the folder with the switch's sockets in its namespace.
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
    to.extend(packet_sockets::dropped(netns)?.into_iter().map(|(link, n)| (format!("ovs.{link}.socket_dropped"), n)));
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
        // A question mark stands for an unknown value.
        let known =
            counters.split(", ").filter_map(|c| c.split_once('=')).filter_map(|(k, v)| Some((k, v.parse().ok()?)));
        to.extend(known.map(|(key, value): (_, u64)| (format!("ovs.{port}.{way}_{key}"), value)));
    }
}

/// The line `lookups: hit:1 missed:2 lost:3` of `dpctl/show`: packets with a known flow in the datapath, packets that
/// needed a lookup in the flow tables, and packets lost in that lookup.
fn lookups(text: &str, to: &mut BTreeMap<String, u64>) {
    let line = text.lines().find_map(|line| line.trim().strip_prefix("lookups: "));
    let words = line.unwrap_or_default().split_whitespace().filter_map(|word| word.split_once(':'));
    to.extend(words.filter_map(|(key, value)| Some((format!("ovs.lookups_{key}"), value.parse().ok()?))));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(read: fn(&str, &mut BTreeMap<String, u64>), text: &str) -> Vec<(String, u64)> {
        let mut to = BTreeMap::new();
        read(text, &mut to);
        to.into_iter().collect()
    }

    #[test]
    fn ports_are_named_by_their_numbers() {
        let text = "OFPST_PORT reply (OF1.3) (xid=0x2): 2 ports\n  \
                    port 1001: rx pkts=6, bytes=708, drop=?, errs=0\n           tx pkts=2, bytes=146, drop=3\n           duration=2.2s\n  \
                    port  2: rx pkts=9\n";
        let expected = [
            ("ovs.1001.rx_bytes", 708),
            ("ovs.1001.rx_errs", 0),
            ("ovs.1001.rx_pkts", 6),
            ("ovs.1001.tx_bytes", 146),
            ("ovs.1001.tx_drop", 3),
            ("ovs.1001.tx_pkts", 2),
            ("ovs.2.rx_pkts", 9),
        ];
        assert_eq!(of(ports, text), expected.map(|(name, n)| (name.to_owned(), n)));
    }

    #[test]
    fn lookups_are_found() {
        let text = "netdev@ovs-netdev:\n  lookups: hit:2806 missed:410 lost:7\n  flows: 410\n  port 1: d0\n";
        let expected = [("ovs.lookups_hit", 2806), ("ovs.lookups_lost", 7), ("ovs.lookups_missed", 410)];
        assert_eq!(of(lookups, text), expected.map(|(name, n)| (name.to_owned(), n)));
    }
}
