//! Adds up the drops of a DUT. Several counters may count the same drop, so this module defines which counters count
//! drops, and which of them overlap.
//!
//! Some counters are ignored, because others count the same drops. `softnet` covers the whole machine, and interfaces
//! also count its drops. `ip.InHdrErrors` includes `ip.InCsumErrors`. A lower layer drops the packets that a tunnel
//! counts as `tx_dropped`. Packets that an `xdp` program passes to the kernel are dropped, if at all, by the kernel.

use drophammer_model::counters::{Counts, DENIED, tester_port};
use drophammer_model::trial::{Family, TrialResult, total};
use std::collections::BTreeMap;

/// Name for frames that the DUT's receive ring refused. The tester counts them
/// ([`GroupCounts::refused`](drophammer_model::trial::GroupCounts::refused)).
pub const REFUSED: &str = "refused";

/// Prefix of a simulated router's exact counters. Its other counters repeat them.
const TRUTH: &str = "truth.";
/// Counter of a link between routers that delays or loses frames. Simulated routers do not count its drops.
const DELAYED: &str = "delay_dropped";
/// Part of the names of counters outside a guest, for links of a guest that also counts frames itself.
const OUTSIDE: &str = "outside.";
/// Counter of frames that did not fit into a packet socket.
const SOCKET: &str = "socket_dropped";
/// Frames that the kernel dropped at an interface: on arrival, and on departure.
const RX_DROPPED: &str = "rx_dropped";
const TX_DROPPED: &str = "tx_dropped";
/// IP drop counters of the kernel that [`Counts`] does not know.
const MORE_OF_IP: [&str; 3] = ["ip.InNoRoutes", "ip.InTruncatedPkts", "ip6.InTruncatedPkts"];

/// Order of the counters at one place, from the innermost. Each also counts the drops of the ones before it, except
/// [`KERNEL`].
type Rank = u8;
/// The queue of a class of service.
const CLASS: Rank = 0;
/// The queueing discipline with all classes.
const QUEUE: Rank = 1;
/// The interface, or the IP layer, which does not count drops of its queueing discipline.
const KERNEL: Rank = 2;
/// VLAN interfaces on the interface.
const VLAN: Rank = 3;
/// A switch in user space, which includes the interface's count.
const SWITCH: Rank = 4;
/// The agent of a MIB.
const MIB: Rank = 5;

/// A counter of drops.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    /// Where it counts. Counters at different places never count the same drop.
    place: String,
    rank: Rank,
    /// Its name without numbers of routers, ports and VLANs: `rN.dN.rx_dropped`.
    label: String,
}

/// The kind of the counter with this name; `None` if it counts no drops, or if other counters count all of its drops.
fn kind(name: &str) -> Option<Kind> {
    let (router, own) = match name.split_once('.') {
        Some((router, own)) if is_numbered(router, "r") => (router, own),
        _ => ("", name),
    };
    let of = |place: String, rank: Rank, label: String| {
        let label = if router.is_empty() { label } else { format!("rN.{label}") };
        Some(Kind { place: format!("{router} {place}"), rank, label })
    };
    let alone = |label: String| of(own.to_owned(), KERNEL, label);
    let at = |interface: &str, counts: Counts, rank: Rank, label: String| {
        if counts.is_drop() { of(format!("{interface} {counts:?}"), rank, label) } else { None }
    };
    let parts: Vec<&str> = own.split('.').collect();
    match parts[..] {
        ["truth", "dropped", _] | ["truth", "ignored" | "receive_overflow" | "transmit_refused"] => {
            // `truth` is the sum of all routers.
            if router.is_empty() { alone(own.to_owned()) } else { None }
        }
        _ if own == DENIED => alone(own.to_owned()),
        _ if MORE_OF_IP.contains(&own) => {
            let family = if own.starts_with("ip6") { Family::Ipv6 } else { Family::Ipv4 };
            at("", Counts::IpDiscards(Some(family)), KERNEL, own.to_owned())
        }
        ["ip" | "ip6", _] => at("", Counts::of_device(own)?, KERNEL, own.to_owned()),
        [_, "ipv4" | "ipv6"] => at("", Counts::of_device(own)?, MIB, own.to_owned()),
        ["ovs", "lookups_lost"] => alone(own.to_owned()),
        ["ovs", port, SOCKET] if is_numbered(port, "d") => alone(format!("ovs.dN.{SOCKET}")),
        ["ovs", port, counter] => {
            let kernel = match counter {
                "rx_drop" => RX_DROPPED,
                "rx_errs" => "rx_errors",
                "tx_drop" => TX_DROPPED,
                "tx_errs" => "tx_errors",
                _ => return None,
            };
            // The switch numbers its ports from 1.
            let interface = format!("d{}", port.parse::<u64>().ok()?.checked_sub(1)?);
            at(&interface, Counts::at_port(kernel)?, SWITCH, format!("ovs.N.{counter}"))
        }
        ["outside", port, counter] if is_numbered(port, "d") => {
            let drops = counter == SOCKET || Counts::at_port(counter)?.is_drop();
            if drops { alone(format!("outside.dN.{counter}")) } else { None }
        }
        [port, DELAYED] if is_numbered(port, "d") => alone(format!("dN.{DELAYED}")),
        [port, "queue_dropped"] if is_numbered(port, "d") => {
            at(port, Counts::OutDiscards, QUEUE, "dN.queue_dropped".to_owned())
        }
        [port, class, "dropped"] if is_numbered(port, "d") => {
            at(port, Counts::OutDiscards, CLASS, format!("dN.{class}.dropped"))
        }
        [port, counter] if is_numbered(port, "d") => {
            let rank = if counter.starts_with("if") { MIB } else { KERNEL };
            at(port, Counts::at_port(counter)?, rank, format!("dN.{counter}"))
        }
        [port, .., counter] if is_numbered(port, "d") => match Counts::at_port(counter)? {
            counts @ Counts::OutDiscards => at(port, counts, VLAN, format!("dN.vlan.{counter}")),
            counts if counts.is_drop() => alone(format!("dN.vlan.{counter}")),
            _ => None,
        },
        [tunnel, counter] if is_numbered(tunnel, "gre") && counter != TX_DROPPED => {
            if Counts::at_port(counter)?.is_drop() { alone(format!("greN.{counter}")) } else { None }
        }
        _ => None,
    }
}

/// True for `prefix` and a number.
fn is_numbered(text: &str, prefix: &str) -> bool {
    text.strip_prefix(prefix).is_some_and(|n| !n.is_empty() && n.bytes().all(|byte| byte.is_ascii_digit()))
}

/// True if these counters show that the DUT counts its drops: one of them counts drops, or comes from a source that
/// always has drop counters. Counters that did not grow are not stored.
pub fn are_counted(counters: &BTreeMap<String, u64>) -> bool {
    // For links that the lab made, the lab reads all counters; for other interfaces of the tester, only frame counters.
    let of_lab = |name: &str| ["rx_bytes", "tx_bytes"].iter().any(|counter| tester_port(name, counter).is_some());
    counters.keys().any(|name| name.starts_with(TRUTH) || of_lab(name) || kind(name).is_some())
}

/// The frames that a DUT dropped in a trial, by counter (name without numbers), each drop once. Leaves out counters
/// without drops. Frames other than test frames are included.
pub fn drops(result: &TrialResult) -> BTreeMap<String, u64> {
    let counters = &result.dut_counters;
    let simulated = counters.keys().any(|name| name.starts_with(TRUTH));
    let counts = |kind: &Kind| !simulated || kind.label.starts_with(TRUTH) || kind.label.ends_with(DELAYED);
    let known = counters.iter().filter_map(|(name, frames)| Some((kind(name)?, *frames)));
    let mut known: Vec<(Kind, u64)> = known.filter(|(kind, _)| counts(kind)).collect();
    known.sort();
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    for place in known.chunk_by(|(a, _), (b, _)| a.place == b.place) {
        let mut counted = 0_u64;
        for rank in place.chunk_by(|(a, _), (b, _)| a.rank == b.rank) {
            let mut again = if rank[0].0.rank == KERNEL { 0 } else { counted };
            for (kind, frames) in rank {
                let more = frames.saturating_sub(again);
                again = again.saturating_sub(*frames);
                counted = counted.saturating_add(more);
                add(&mut found, &kind.label, more);
            }
        }
    }
    // Both ends of a veth pair count a drop in the backlog of a processor, and the sender may count it as refused. Only
    // the count of the sending end is used.
    let backlog = |name: &str| name.starts_with("softnet.") && name.ends_with(".dropped");
    let mut twice = total(counters.iter().filter(|(name, _)| backlog(name)).map(|(_, frames)| *frames));
    let guest = counters.keys().any(|name| name.contains(OUTSIDE));
    let is_end = |label: &str| label.ends_with("dN.rx_dropped") && (!guest || label.contains(OUTSIDE));
    let mut arrived = 0_u64;
    for (_, frames) in found.iter_mut().filter(|(label, _)| is_end(label)) {
        let again = twice.min(*frames);
        twice -= again;
        *frames -= again;
        arrived = arrived.saturating_add(*frames);
    }
    found.retain(|_, frames| *frames > 0);
    let refused = total(result.groups.iter().map(|group| group.refused));
    add(&mut found, REFUSED, refused);
    // The tester's end of a veth pair counts a refusal. The sender may not notice it, and the other end may also count
    // it if the tester's kernel makes the frames.
    let ends = counters.iter().filter(|(name, _)| tester_port(name, TX_DROPPED).is_some());
    let at_ends = total(ends.map(|(_, frames)| *frames));
    add(&mut found, "tN.tx_dropped", at_ends.saturating_sub(refused.saturating_add(arrived)));
    found
}

fn add(found: &mut BTreeMap<String, u64>, label: &str, frames: u64) {
    if frames > 0 {
        let all = found.entry(label.to_owned()).or_default();
        *all = all.saturating_add(frames);
    }
}

#[cfg(test)]
mod tests;
