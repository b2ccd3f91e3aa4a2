//! Counters of a DUT with a known meaning: from the Linux kernel, IF-MIB (RFC 2863) and IP-MIB (RFC 4293).

use crate::trial::{Family, PortIndex};
use std::collections::BTreeMap;

/// Counter of packets dropped by the filters of a test, if this machine's kernel does the filtering.
pub const DENIED: &str = "filter.denied";

/// What a counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counts {
    /// Frames that a port received.
    InFrames,
    /// Received unicast frames; part of [`Counts::InFrames`].
    InUnicast,
    /// Received multicast frames; part of [`Counts::InFrames`].
    InMulticast,
    /// Received broadcast frames; part of [`Counts::InFrames`].
    InBroadcast,
    /// Bytes of the received frames.
    InOctets,
    /// Received frames dropped without an error.
    InDiscards,
    /// Received frames with an error.
    InErrors,
    /// Frames that a port sent.
    OutFrames,
    /// Sent unicast frames; part of [`Counts::OutFrames`].
    OutUnicast,
    /// Sent multicast frames; part of [`Counts::OutFrames`].
    OutMulticast,
    /// Sent broadcast frames; part of [`Counts::OutFrames`].
    OutBroadcast,
    /// Bytes of the sent frames.
    OutOctets,
    /// Outgoing frames dropped without an error.
    OutDiscards,
    /// Outgoing frames not sent because of an error.
    OutErrors,
    /// Received IP packets, of one IP version or of both.
    IpReceived(Option<Family>),
    /// Forwarded IP packets.
    IpForwarded(Option<Family>),
    /// IP packets that the DUT originated.
    IpOriginated(Option<Family>),
    /// IP packets dropped because of an error in their header, such as an expired TTL or hop limit.
    IpHeaderErrors(Option<Family>),
    /// IP packets dropped for other reasons.
    IpDiscards(Option<Family>),
    /// IPv4 packets in the DUT's IP counters that passed no port: from the DUT to itself, and queries over a management
    /// link with their answers.
    Loopback,
}

use Counts::*;

const V4: Option<Family> = Some(Family::Ipv4);
const V6: Option<Family> = Some(Family::Ipv6);

/// Counters of a port by name: first the kernel's, then those of IF-MIB.
const OF_A_PORT: &[(&str, Counts)] = &[
    ("rx_packets", InFrames),
    ("rx_bytes", InOctets),
    ("rx_dropped", InDiscards),
    ("rx_errors", InErrors),
    ("tx_packets", OutFrames),
    ("tx_bytes", OutOctets),
    ("tx_dropped", OutDiscards),
    ("tx_errors", OutErrors),
    ("ifInOctets", InOctets),
    ("ifInUcastPkts", InUnicast),
    ("ifInMulticastPkts", InMulticast),
    ("ifInBroadcastPkts", InBroadcast),
    ("ifInDiscards", InDiscards),
    ("ifInErrors", InErrors),
    ("ifOutOctets", OutOctets),
    ("ifOutUcastPkts", OutUnicast),
    ("ifOutMulticastPkts", OutMulticast),
    ("ifOutBroadcastPkts", OutBroadcast),
    ("ifOutDiscards", OutDiscards),
    ("ifOutErrors", OutErrors),
    ("ifHCInOctets", InOctets),
    ("ifHCInUcastPkts", InUnicast),
    ("ifHCInMulticastPkts", InMulticast),
    ("ifHCInBroadcastPkts", InBroadcast),
    ("ifHCOutOctets", OutOctets),
    ("ifHCOutUcastPkts", OutUnicast),
    ("ifHCOutMulticastPkts", OutMulticast),
    ("ifHCOutBroadcastPkts", OutBroadcast),
];

/// Counters of the whole device by name.
const OF_ALL: &[(&str, Counts)] = &[
    ("ip.InReceives", IpReceived(V4)),
    ("ip.ForwDatagrams", IpForwarded(V4)),
    ("ip.OutRequests", IpOriginated(V4)),
    ("ip.InHdrErrors", IpHeaderErrors(V4)),
    ("ip.InAddrErrors", IpDiscards(V4)),
    ("ip.InDiscards", IpDiscards(V4)),
    ("ip.OutDiscards", IpDiscards(V4)),
    ("ip.OutNoRoutes", IpDiscards(V4)),
    ("ip.FragFails", IpDiscards(V4)),
    ("ip6.InReceives", IpReceived(V6)),
    ("ip6.OutForwDatagrams", IpForwarded(V6)),
    ("ip6.OutRequests", IpOriginated(V6)),
    ("ip6.InHdrErrors", IpHeaderErrors(V6)),
    ("ip6.InAddrErrors", IpDiscards(V6)),
    ("ip6.InDiscards", IpDiscards(V6)),
    ("ip6.OutDiscards", IpDiscards(V6)),
    ("ip6.InNoRoutes", IpDiscards(V6)),
    ("ip6.InTooBigErrors", IpDiscards(V6)),
    ("lo.rx_packets", Loopback),
    ("management.questions", Loopback),
    ("ipSystemStatsInReceives.ipv4", IpReceived(V4)),
    ("ipSystemStatsInHdrErrors.ipv4", IpHeaderErrors(V4)),
    ("ipSystemStatsInNoRoutes.ipv4", IpDiscards(V4)),
    ("ipSystemStatsInAddrErrors.ipv4", IpDiscards(V4)),
    ("ipSystemStatsInDiscards.ipv4", IpDiscards(V4)),
    ("ipSystemStatsOutNoRoutes.ipv4", IpDiscards(V4)),
    ("ipSystemStatsOutForwDatagrams.ipv4", IpForwarded(V4)),
    ("ipSystemStatsOutDiscards.ipv4", IpDiscards(V4)),
    ("ipSystemStatsInReceives.ipv6", IpReceived(V6)),
    ("ipSystemStatsInHdrErrors.ipv6", IpHeaderErrors(V6)),
    ("ipSystemStatsInNoRoutes.ipv6", IpDiscards(V6)),
    ("ipSystemStatsInAddrErrors.ipv6", IpDiscards(V6)),
    ("ipSystemStatsInDiscards.ipv6", IpDiscards(V6)),
    ("ipSystemStatsOutNoRoutes.ipv6", IpDiscards(V6)),
    ("ipSystemStatsOutForwDatagrams.ipv6", IpForwarded(V6)),
    ("ipSystemStatsOutDiscards.ipv6", IpDiscards(V6)),
];

impl Counts {
    /// What a port's counter with this name counts; `None` if unknown.
    pub fn at_port(name: &str) -> Option<Counts> {
        OF_A_PORT.iter().find(|(known, _)| *known == name).map(|(_, counts)| *counts)
    }

    /// What the device's counter with this name counts; `None` if unknown.
    pub fn of_device(name: &str) -> Option<Counts> {
        OF_ALL.iter().find(|(known, _)| *known == name).map(|(_, counts)| *counts)
    }

    /// True for a counter of dropped packets, except packets that an interface dropped because of an error.
    pub fn is_discard(self) -> bool {
        matches!(self, InDiscards | OutDiscards | IpHeaderErrors(_) | IpDiscards(_))
    }

    /// True for a counter of dropped packets.
    pub fn is_drop(self) -> bool {
        self.is_discard() || matches!(self, InErrors | OutErrors)
    }
}

/// Name of the kernel's counter `counter` for the tester's interface at `port`, among the counters of a DUT:
/// `t0.rx_packets`.
pub fn tester_counter(port: PortIndex, counter: &str) -> String {
    format!("t{port}.{counter}")
}

/// The port if `name` is a [`tester_counter`] of `counter`.
pub fn tester_port(name: &str, counter: &str) -> Option<PortIndex> {
    let port = name.strip_prefix('t')?.strip_suffix(counter)?.strip_suffix('.')?;
    // `parse` would accept a sign.
    if port.bytes().all(|byte| byte.is_ascii_digit()) { port.parse().ok() } else { None }
}

/// A counter at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DutCounter {
    /// Source: `kernel`, `SNMP`.
    pub source: String,
    /// Name at the source: `rx_packets`, `ifHCInOctets`.
    pub name: String,
    /// Port of the tester that faces the counter's interface; absent for the whole device.
    pub port: Option<PortIndex>,
    /// What it counts.
    pub counts: Counts,
    /// Width in bits: the counter wraps to 0 at 2 to this power.
    pub bits: u32,
    /// The count.
    pub value: u64,
}

impl DutCounter {
    /// A port's counter by name; `None` if its meaning is unknown.
    pub fn of_port(source: &str, name: &str, port: PortIndex, value: u64) -> Option<DutCounter> {
        let counts = Counts::at_port(name)?;
        // RFC 2863: 64-bit counters have `HC` in their names; all others are Counter32.
        let bits = if name.starts_with("if") && !name.starts_with("ifHC") { 32 } else { 64 };
        Some(DutCounter { source: source.into(), name: name.into(), port: Some(port), counts, bits, value })
    }

    /// A counter of the whole device by name; `None` if its meaning is unknown.
    pub fn of_device(source: &str, name: &str, value: u64) -> Option<DutCounter> {
        let counts = Counts::of_device(name)?;
        let bits = if name.starts_with("ipSystemStats") { 32 } else { 64 };
        Some(DutCounter { source: source.into(), name: name.into(), port: None, counts, bits, value })
    }

    /// The `counters` with a known meaning: `d0.rx_packets` belongs to port 0 of the DUT, `ip.InReceives` to the whole
    /// device.
    pub fn all_of(source: &str, counters: &BTreeMap<String, u64>) -> Vec<DutCounter> {
        let known = |(name, value): (&String, &u64)| {
            DutCounter::of_device(source, name, *value).or_else(|| {
                let (interface, counter) = name.split_once('.')?;
                let port = interface.strip_prefix('d')?.parse().ok()?;
                DutCounter::of_port(source, counter, port, *value)
            })
        };
        counters.iter().filter_map(known).collect()
    }

    /// True if both are readings of the same counter.
    pub fn is(&self, other: &DutCounter) -> bool {
        (&self.source, &self.name, self.port) == (&other.source, &other.name, other.port)
    }

    /// Growth since the count was `before`.
    pub fn grown(&self, before: u64) -> u64 {
        let by = self.value.wrapping_sub(before);
        if self.bits < 64 { by & ((1 << self.bits) - 1) } else { by }
    }
}

/// Frames at a port of the tester that are not test frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OtherFrames {
    /// Frames.
    pub frames: u64,
    /// Their bytes without FCS.
    pub octets: u64,
    /// Multicast frames among them, without broadcast.
    pub multicast: u64,
    /// Broadcast frames among them.
    pub broadcast: u64,
    /// Frames with an IPv4 packet among them.
    pub ipv4: u64,
    /// Frames with an IPv6 packet among them.
    pub ipv6: u64,
}

impl OtherFrames {
    /// The counts of a single frame without FCS.
    pub fn of(frame: &[u8]) -> OtherFrames {
        let broadcast = frame.get(..6) == Some(&[0xff; 6]);
        let group = frame.first().is_some_and(|byte| byte & 1 == 1);
        let carries = |ethertype: [u8; 2]| u64::from(frame.get(12..14) == Some(&ethertype));
        OtherFrames {
            frames: 1,
            octets: frame.len() as u64,
            multicast: u64::from(group && !broadcast),
            broadcast: u64::from(broadcast),
            ipv4: carries([0x08, 0x00]),
            ipv6: carries([0x86, 0xdd]),
        }
    }

    fn each(self, other: OtherFrames, of: impl Fn(u64, u64) -> u64) -> OtherFrames {
        OtherFrames {
            frames: of(self.frames, other.frames),
            octets: of(self.octets, other.octets),
            multicast: of(self.multicast, other.multicast),
            broadcast: of(self.broadcast, other.broadcast),
            ipv4: of(self.ipv4, other.ipv4),
            ipv6: of(self.ipv6, other.ipv6),
        }
    }

    /// Sum of both.
    #[must_use]
    pub fn plus(self, other: OtherFrames) -> OtherFrames {
        self.each(other, |a, b| a + b)
    }

    /// Difference to `before`.
    #[must_use]
    pub fn since(self, before: OtherFrames) -> OtherFrames {
        self.each(before, u64::saturating_sub)
    }

    /// Frames with packets of this IP version.
    pub fn ip(&self, family: Family) -> u64 {
        match family {
            Family::Ipv4 => self.ipv4,
            Family::Ipv6 => self.ipv6,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_kernel_and_of_the_mib_have_a_meaning() {
        let names =
            ["d0.rx_packets", "d11.tx_bytes", "t0.rx_packets", "ip.InHdrErrors", "softnet.cpu1.dropped", "d.rx_bytes"];
        let counters = names.iter().map(|name| ((*name).to_owned(), 7)).collect();
        let known: Vec<_> =
            DutCounter::all_of("kernel", &counters).into_iter().map(|c| (c.name, c.port, c.counts, c.bits)).collect();
        let expected = [
            ("rx_packets".to_owned(), Some(0), InFrames, 64),
            ("tx_bytes".to_owned(), Some(11), OutOctets, 64),
            ("ip.InHdrErrors".to_owned(), None, IpHeaderErrors(V4), 64),
        ];
        assert_eq!(known, expected);
        let wide = DutCounter::of_port("SNMP", "ifHCInUcastPkts", 1, 0).unwrap();
        let narrow = DutCounter::of_port("SNMP", "ifInUcastPkts", 1, 5).unwrap();
        assert_eq!((wide.bits, narrow.bits, narrow.grown(u64::from(u32::MAX))), (64, 32, 6));
        assert!(!wide.is(&narrow) && narrow.is(&DutCounter { value: 9, ..narrow.clone() }));
    }

    #[test]
    fn drops_are_discards_and_errors() {
        let told = |counts: Option<Counts>| counts.map(|counts| (counts.is_discard(), counts.is_drop()));
        for (name, expected) in [
            ("rx_dropped", Some((true, true))),
            ("ifOutDiscards", Some((true, true))),
            ("ifInErrors", Some((false, true))),
            ("tx_packets", Some((false, false))),
            ("ip.InHdrErrors", None),
        ] {
            assert_eq!(told(Counts::at_port(name)), expected, "{name}");
        }
        for (name, expected) in [
            ("ip.InHdrErrors", Some((true, true))),
            ("ipSystemStatsInNoRoutes.ipv6", Some((true, true))),
            ("ip6.InReceives", Some((false, false))),
            ("rx_dropped", None),
        ] {
            assert_eq!(told(Counts::of_device(name)), expected, "{name}");
        }
    }

    #[test]
    fn counters_of_the_tester_are_known_by_their_names() {
        for port in [0, 7, 63] {
            let name = tester_counter(port, "rx_packets");
            assert_eq!((tester_port(&name, "rx_packets"), tester_port(&name, "tx_packets")), (Some(port), None));
        }
        let others =
            ["t.rx_packets", "t+1.rx_packets", "t1.d0.rx_packets", "t1rx_packets", "r1.t0.rx_packets", "d0.rx_packets"];
        assert!(others.iter().all(|name| tester_port(name, "rx_packets").is_none()));
    }

    #[test]
    fn frames_are_told_apart() {
        let mut frame = vec![0; 60];
        frame[12..14].copy_from_slice(&[0x86, 0xdd]);
        let unicast = OtherFrames::of(&frame);
        assert_eq!(unicast, OtherFrames { frames: 1, octets: 60, ipv6: 1, ..OtherFrames::default() });
        frame[..6].fill(0xff);
        let broadcast = OtherFrames::of(&frame);
        assert_eq!((broadcast.broadcast, broadcast.multicast), (1, 0));
        frame[0] = 0x33;
        let both = unicast.plus(OtherFrames::of(&frame));
        assert_eq!((both.multicast, both.ip(Family::Ipv6), both.ip(Family::Ipv4)), (1, 2, 0));
        assert_eq!(both.since(unicast), OtherFrames::of(&frame));
        assert_eq!(OtherFrames::of(&[]).frames, 1);
    }
}
