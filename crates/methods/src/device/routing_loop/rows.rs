//! The tables: counters against their expected values, the load of the loop, and the rates of every interface.

use super::Circle;
use super::circled::Circled;
use super::counted::{Compared, Counter, Grown, counter_place, router_name};
use crate::kit::prelude::*;
use drophammer_model::registry::TableShape;
use drophammer_model::router_interfaces::InterfaceOf;
use drophammer_model::topology::WAN_HOPS;
use std::collections::{BTreeMap, BTreeSet};

columns! {
    /// One interface, or tunnel, of one router.
    struct AccountingRow {
        frame_size: PacketSize,
        router: String,
        interface: String,
        in_expected: Option<u64> = "In, expected" ["packets"],
        in_counted: Option<u64> = "In, counted" ["packets"],
        in_difference: Option<f64> = "In, difference" ["packets"],
        out_expected: Option<u64> = "Out, expected" ["packets"],
        out_counted: Option<u64> = "Out, counted" ["packets"],
        out_difference: Option<f64> = "Out, difference" ["packets"],
        verdict: String,
    }
}

columns! {
    /// One load.
    struct LoadRow {
        frame_size: PacketSize,
        load: String,
        injected: u64 ["packets"],
        injected_pps: f64 ["pps"],
        ended_early: u64 ["packets"],
        there_pps: f64 = "r2 to r3" ["pps"],
        back_pps: f64 = "r3 to r2" ["pps"],
        middle_pps: f64 = "r2, total in and out" ["pps"],
        system_pps: f64 = "Forwarded by all routers" ["pps"],
        amplification: f64,
        wan_ip_percent: Option<f64> = "r2-r3 link, IP" ["%"],
        wan_ethernet_percent: Option<f64> = "r2-r3 link, with 14 bytes of Ethernet" ["%"],
        wan_hdlc_percent: Option<f64> = "r2-r3 link, with 8 bytes of HDLC" ["%"],
        wan_line_percent: Option<f64> = "r2-r3 link, with 38 bytes of an Ethernet line" ["%"],
        icmp_errors: u64 = "ICMP errors",
        circling_at_least_ms: f64 = "Circulated after the load, at least" ["ms"],
        circling_ms: f64 = "Circulated after the load, at most" ["ms"],
    }
}

columns! {
    /// One interface, or tunnel, of one router at one load.
    struct RateRow {
        frame_size: PacketSize,
        load: String,
        router: String,
        interface: String,
        in_pps: f64 ["pps"],
        in_bps: f64 ["bit/s"],
        out_pps: f64 ["pps"],
        out_bps: f64 ["bit/s"],
        cpu_percent: Option<f64> = "CPU of the router" ["%"],
    }
}

const LOADS: TableSpec<LoadRow> = TableSpec::new("routing_loop", "Load of the loop");
const RATES: TableSpec<RateRow> = TableSpec::new("routing_loop_rates", "Rates of all interfaces");
const ACCOUNTING: TableSpec<AccountingRow> =
    TableSpec::new("routing_loop_accounting", "Counters of every interface, expected and counted");
/// All tables.
pub(super) const SHAPES: [TableShape; 3] = [LOADS.shape(), RATES.shape(), ACCOUNTING.shape()];

/// Bytes before an IP packet that the source of the test counts on Ethernet, and assumes on an HDLC line.
const ETHERNET_BYTES: f64 = 14.0;
const HDLC_BYTES: f64 = 8.0;
/// Bytes that a frame takes on an Ethernet line in addition to its packet: header, FCS, preamble and gap.
const LINE_BYTES: f64 = 38.0;
/// Shorter packets are padded to this length.
const SHORTEST: f64 = 46.0;

/// Begins all tables.
pub(super) fn begin(outcome: &mut Outcome) {
    LOADS.begin(outcome);
    RATES.begin(outcome);
    ACCOUNTING.begin(outcome);
}

/// Interfaces and tunnels that packets pass, by router.
fn places(of: &Circled) -> BTreeSet<(usize, InterfaceOf)> {
    of.compared.iter().map(|compared| (compared.counter.router, compared.counter.at)).collect()
}

/// Writes every counter of the accounting trial.
pub(super) fn accounting(outcome: &mut Outcome, circle: &Circle, pattern: &Pattern, of: &Circled) {
    for (router, at) in places(of) {
        let find = |out| of.compared.iter().find(|c| c.counter == Counter { router, at, out });
        let [came, went] = [find(false), find(true)];
        let off: Vec<String> = [(came, "in"), (went, "out")]
            .into_iter()
            .filter_map(|(compared, way)| verdict(compared?, way, circle.own_frames))
            .collect();
        let row = AccountingRow {
            frame_size: pattern.size.clone(),
            router: router_name(router),
            interface: counter_place(&circle.system, router, at, &circle.ports),
            in_expected: came.map(|c| c.expected),
            in_counted: came.map(|c| c.counted),
            in_difference: came.map(|c| c.difference() as f64),
            out_expected: went.map(|c| c.expected),
            out_counted: went.map(|c| c.counted),
            out_difference: went.map(|c| c.difference() as f64),
            verdict: if off.is_empty() { "right".into() } else { off.join("; ") },
        };
        ACCOUNTING.add(outcome, row, [of.result.trial], (!off.is_empty()).then(|| "off".into()));
    }
}

fn verdict(compared: &Compared, way: &str, own_frames: u64) -> Option<String> {
    let difference = compared.difference();
    let what = if difference < 0 { "missing" } else { "too many" };
    (!compared.is_right(own_frames)).then(|| format!("{way}: {} {what}", difference.unsigned_abs()))
}

/// Packets and bytes by counter.
type Growth = BTreeMap<Counter, (f64, f64)>;

/// Growth of the counters: over one trial, or the amount by which a second trial exceeds the first.
struct Measured {
    seconds: f64,
    grown: Growth,
    /// Without frames that the routers sent on their own, as far as known.
    of_packets: Growth,
    errors: f64,
    sent_on: f64,
    injected: f64,
    cpu: Option<Vec<f64>>,
}

impl Measured {
    fn of(circle: &Circle, of: &Circled) -> Measured {
        let numbers = |grown: &Grown| -> Growth {
            grown.iter().map(|(at, (packets, bytes))| (*at, (*packets as f64, *bytes as f64))).collect()
        };
        Measured {
            seconds: of.seconds(),
            errors: of.errors() as f64,
            sent_on: of.sent_on(circle) as f64,
            injected: of.injected() as f64,
            grown: numbers(&of.grown),
            of_packets: numbers(&of.of_packets),
            cpu: of.routers.cpu.as_ref().map(|cpu| cpu.iter().map(std::time::Duration::as_secs_f64).collect()),
        }
    }

    /// The amount by which `self` exceeds `short`. A difference that is negative because of noise becomes 0.
    fn beyond(self, short: &Measured) -> Measured {
        let less = |long: f64, short: f64| (long - short).max(0.0);
        let growth = |long: &Growth, short: &Growth| -> Growth {
            let of_counter = |(at, (packets, bytes)): (&Counter, &(f64, f64))| {
                let before = short.get(at).copied().unwrap_or_default();
                (*at, (less(*packets, before.0), less(*bytes, before.1)))
            };
            long.iter().map(of_counter).collect()
        };
        let cpu = self.cpu.zip(short.cpu.as_ref());
        Measured {
            seconds: less(self.seconds, short.seconds).max(f64::MIN_POSITIVE),
            errors: less(self.errors, short.errors),
            sent_on: less(self.sent_on, short.sent_on),
            injected: less(self.injected, short.injected),
            grown: growth(&self.grown, &short.grown),
            of_packets: growth(&self.of_packets, &short.of_packets),
            cpu: cpu.map(|(long, short)| long.iter().zip(short).map(|(long, short)| less(*long, *short)).collect()),
        }
    }

    /// Growth over the only trial, or the amount by which the second trial exceeds the first.
    fn of_all(circle: &Circle, trials: &[&Circled]) -> Option<Measured> {
        let (last, before) = trials.split_last()?;
        let last = Measured::of(circle, last);
        Some(match before.first() {
            None => last,
            Some(short) => last.beyond(&Measured::of(circle, short)),
        })
    }

    /// Packets and bits per second.
    fn rate(&self, counter: Counter) -> (f64, f64) {
        let (packets, bytes) = self.grown.get(&counter).copied().unwrap_or_default();
        (packets / self.seconds, bytes * 8.0 / self.seconds)
    }
}

/// Packets per second of the loop at a hop, without ICMP errors and frames that the routers sent on their own.
fn at_hop(circle: &Circle, hop: usize, measured: &Measured) -> f64 {
    let Some((counter, per_error)) = circle.expected.hop(hop) else { return 0.0 };
    let packets = measured.of_packets.get(&counter).map_or(0.0, |packets| packets.0);
    (packets / measured.seconds - per_error as f64 * measured.errors / measured.seconds).max(0.0)
}

/// Everything that a router sent into a link: packets of the loop, ICMP errors, and its own frames.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sent {
    /// Per second.
    packets: f64,
    /// Packets of the loop, per second.
    looping: f64,
    /// Bytes per second, as the interface counts them.
    bytes: f64,
    /// Bytes of a packet of the loop.
    nominal: f64,
}

impl Sent {
    /// Bytes of the IP packets per second. An interface counts frames without FCS, padded or not; some interfaces leave
    /// out the 14 bytes of Ethernet, so they show fewer bytes than packets of this size have.
    fn ip_bytes(self) -> f64 {
        let more = self.bytes - self.looping * self.nominal;
        let header = if more < self.packets * ETHERNET_BYTES / 2.0 { 0.0 } else { ETHERNET_BYTES };
        let padding = (SHORTEST - self.nominal).max(0.0) * self.looping;
        let padded = more >= self.packets * header + padding / 2.0;
        self.bytes - self.packets * header - if padded { padding } else { 0.0 }
    }

    /// Bits per second, counting this many additional bytes for each packet.
    fn bits_with(self, each: f64) -> f64 {
        (self.ip_bytes() + self.packets * each) * 8.0
    }

    /// Bits on an Ethernet line, all overhead and padding included.
    fn line_bits(self) -> f64 {
        self.bits_with(LINE_BYTES) + (SHORTEST - self.nominal).max(0.0) * self.looping * 8.0
    }
}

/// Utilisation of the link between r2 and r3 in its busier direction, in %, given the bits per second of a direction.
fn share(circle: &Circle, ip_bytes: u16, measured: &Measured, bits: impl Fn(Sent) -> f64) -> Option<f64> {
    let of = |hop: usize| {
        let speed = circle.link_at(hop).0?;
        let (packets, bps) = measured.rate(circle.expected.hop(hop)?.0);
        let looping = at_hop(circle, hop, measured);
        let nominal = f64::from(circle.bytes_at(hop, ip_bytes));
        Some(bits(Sent { packets, looping, bytes: bps / 8.0, nominal }) / speed.0 as f64 * 100.0)
    };
    WAN_HOPS.into_iter().filter_map(of).max_by(f64::total_cmp)
}

/// The share of the WAN link's speed that a trial used, in per cent, counted in IP bytes; `None` if the link has no speed.
pub(super) fn wan_share(circle: &Circle, ip_bytes: u16, of: &Circled) -> Option<f64> {
    share(circle, ip_bytes, &Measured::of(circle, of), |sent| sent.bits_with(0.0))
}

fn add_load(
    outcome: &mut Outcome,
    circle: &Circle,
    pattern: &Pattern,
    load: &str,
    last: &Circled,
    measured: &Measured,
    trials: &[u64],
) {
    let PacketSize::Fixed(size) = &pattern.size else { return };
    let ip_bytes = size.ip_bytes(false);
    let middle = circle.system.cycle().map(|cycle| cycle[WAN_HOPS[0]].router);
    let of_middle = measured
        .grown
        .keys()
        .filter(|counter| Some(counter.router) == middle && matches!(counter.at, InterfaceOf::Interface(_)));
    let [there, back] = WAN_HOPS.map(|hop| at_hop(circle, hop, measured));
    let row = LoadRow {
        frame_size: pattern.size.clone(),
        load: load.into(),
        injected: last.injected(),
        injected_pps: last.rate().pps(),
        ended_early: last.ended.iter().map(|ended| ended.packets).sum(),
        there_pps: there,
        back_pps: back,
        middle_pps: of_middle.map(|counter| measured.rate(*counter).0).sum(),
        system_pps: measured.sent_on / measured.seconds,
        amplification: measured.sent_on / measured.injected.max(1.0),
        wan_ip_percent: share(circle, ip_bytes, measured, |sent| sent.bits_with(0.0)),
        wan_ethernet_percent: share(circle, ip_bytes, measured, |sent| sent.bits_with(ETHERNET_BYTES)),
        wan_hdlc_percent: share(circle, ip_bytes, measured, |sent| sent.bits_with(HDLC_BYTES)),
        wan_line_percent: share(circle, ip_bytes, measured, Sent::line_bits),
        icmp_errors: last.errors(),
        circling_at_least_ms: last.went_on.at_least.as_secs_f64() * 1e3,
        circling_ms: last.went_on.at_most.as_secs_f64() * 1e3,
    };
    let mut marks = Vec::new();
    if last.errors() == 0 {
        marks.push("no ICMP error came back".into());
    }
    if last.result.received() > 0 {
        marks.push(format!("{} packets came back to the tester", last.result.received()));
    }
    LOADS.add(outcome, row, trials.iter().copied(), marks);
}

/// Writes the load of the loop in a trial without loss, or in the accounting trial.
pub(super) fn load(outcome: &mut Outcome, circle: &Circle, pattern: &Pattern, load: &str, of: &Circled) {
    let measured = Measured::of(circle, of);
    add_load(outcome, circle, pattern, load, of, &measured, &[of.result.trial]);
}

/// Writes the amount by which an overload trial exceeds a shorter one.
pub(super) fn overloaded(outcome: &mut Outcome, circle: &Circle, pattern: &Pattern, short: &Circled, long: &Circled) {
    let measured = Measured::of(circle, long).beyond(&Measured::of(circle, short));
    let trials = [short, long].map(|of| of.result.trial);
    add_load(outcome, circle, pattern, "overload", long, &measured, &trials);
}

/// Rates of all interfaces, and processor time.
pub(super) fn rates(outcome: &mut Outcome, circle: &Circle, pattern: &Pattern, load: &str, trials: &[&Circled]) {
    let Some((measured, last)) = Measured::of_all(circle, trials).zip(trials.last()) else { return };
    let numbers: Vec<u64> = trials.iter().map(|of| of.result.trial).collect();
    for (router, at) in places(last) {
        let rate = |out| measured.rate(Counter { router, at, out });
        let [(in_pps, in_bps), (out_pps, out_bps)] = [rate(false), rate(true)];
        let cpu = measured.cpu.as_ref().and_then(|cpu| cpu.get(router));
        let row = RateRow {
            frame_size: pattern.size.clone(),
            load: load.into(),
            router: router_name(router),
            interface: counter_place(&circle.system, router, at, &circle.ports),
            in_pps,
            in_bps,
            out_pps,
            out_bps,
            cpu_percent: cpu.map(|seconds| seconds / measured.seconds * 100.0),
        };
        RATES.add(outcome, row, numbers.iter().copied(), []);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1,000 packets of the loop and 100 ICMP errors of 96 bytes, counted in the different ways of interfaces.
    #[test]
    fn bytes_of_packets_come_from_every_counter() {
        for nominal in [40.0, 64.0, 528.0, 1522.0] {
            for (errors, own) in [(0.0, 0.0), (100.0, 96.0), (20.0, 556.0)] {
                let packets = 1_000.0 + errors;
                let ip = 1_000.0 * nominal + errors * own;
                let padding = 1_000.0 * f64::max(46.0 - nominal, 0.0);
                for counted in [ip, ip + 14.0 * packets, ip + 14.0 * packets + padding] {
                    let sent = Sent { packets, looping: 1_000.0, bytes: counted, nominal };
                    // Many errors look like a header that is not counted. They come back through the tunnel, where no
                    // packet is short.
                    let like_header = counted == ip && errors * own >= 7.0 * packets;
                    if like_header || (errors > 0.0 && padding > 0.0) {
                        continue;
                    }
                    assert!((sent.ip_bytes() - ip).abs() < 1e-6, "{sent:?}: {} instead of {ip}", sent.ip_bytes());
                    assert!((sent.line_bits() - (ip + padding + 38.0 * packets) * 8.0).abs() < 1e-6, "{sent:?}");
                }
            }
        }
    }
}
