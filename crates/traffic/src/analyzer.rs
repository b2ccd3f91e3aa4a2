//! Frames to loss, order and latency. Fed with everything that comes in at test ports; what is not test traffic is handed
//! back to the caller.

use crate::flow_state::{Arrival as Verdict, FlowState};
use crate::payload::Pattern;
use crate::plan::Timing;
use drophammer_model::latency::LatencySummary;
use drophammer_model::quantity::Instant;
use drophammer_model::size::MIN_FRAME;
use drophammer_model::trial::{PortIndex, TrialSpec};
use drophammer_port::Arrival;
use drophammer_wire::signature::{self, Signature, TEST_PORT, TrialKey, unwrap_sequence, unwrap_time};
use drophammer_wire::{checksum, ethernet, ipv4, ipv6, udp};
use hdrhistogram::Histogram;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Test traffic of this trial, counted.
    Test,
    /// Test traffic of an earlier trial, counted as stale.
    Stale,
    /// Aimed at the test port, but neither intact nor of any known trial; counted as corrupted.
    Corrupted,
    /// Something else; the caller's.
    Other,
}

/// A flow as its receiver sees it.
struct ReceiveFlow {
    to: PortIndex,
    group: u32,
    frames: u64,
    state: FlowState,
}

/// Bins of a group at its receivers.
#[derive(Clone, Debug, Default)]
pub struct ReceiveBins {
    /// By departure.
    pub delivered: Vec<u64>,
    /// By arrival.
    pub arrived: Vec<u64>,
}

/// Counts of a group at its receivers.
pub struct GroupReceived {
    /// Intact at the wrong port.
    pub stray: u64,
    /// Not intact.
    pub corrupted: u64,
    /// Later than the threshold.
    pub late: u64,
    /// Bytes of distinct intact frames with FCS.
    pub bytes: u64,
    /// Time bins.
    pub bins: ReceiveBins,
    histogram: Histogram<u64>,
    latency_sum: u128,
    latency_min: u64,
    latency_max: u64,
}

/// Highest latency that the histogram resolves: 10 s. Longer ones are kept at that value, the maximum exactly.
const HISTOGRAM_MAX: u64 = 10_000_000_000;

impl GroupReceived {
    fn new(bins: usize) -> GroupReceived {
        GroupReceived {
            stray: 0,
            corrupted: 0,
            late: 0,
            bytes: 0,
            bins: ReceiveBins { delivered: vec![0; bins], arrived: vec![0; bins] },
            histogram: Histogram::new_with_bounds(1, HISTOGRAM_MAX, 3).expect("constant bounds are valid"),
            latency_sum: 0,
            latency_min: u64::MAX,
            latency_max: 0,
        }
    }

    #[inline]
    fn latency(&mut self, ns: u64) {
        self.histogram.saturating_record(ns);
        self.latency_sum += u128::from(ns);
        self.latency_min = self.latency_min.min(ns);
        self.latency_max = self.latency_max.max(ns);
    }

    /// Latency of the distinct intact frames.
    pub fn latency_summary(&self) -> LatencySummary {
        LatencySummary::from_histogram(&self.histogram, self.latency_min, self.latency_max, self.latency_sum)
    }
}

/// A datagram to the test port, taken apart.
struct TestDatagram<'a> {
    payload: &'a [u8],
    intact: bool,
}

/// The analyzer of one trial.
pub struct Analyzer {
    key: TrialKey,
    earlier: Vec<TrialKey>,
    pattern: Pattern,
    flows: Vec<ReceiveFlow>,
    groups: Vec<GroupReceived>,
    /// Group to blame for a corrupted frame whose flow cannot be read, by port.
    port_groups: Vec<usize>,
    start: Instant,
    bin_ns: Option<u64>,
    late_ns: u64,
    stale: u64,
    /// By port.
    arrivals: Vec<Arrivals>,
    distinct: u64,
}

/// Counted arrivals at one port.
#[derive(Clone, Copy, Default)]
struct Arrivals {
    frames: u64,
    first: Instant,
    last: Instant,
}

impl Arrivals {
    #[inline]
    fn take(&mut self, at: Instant) {
        if self.frames == 0 {
            self.first = at;
        }
        self.frames += 1;
        self.last = self.last.max(at);
    }

    /// Time that these frames stand for: n frames span n - 1 intervals from first to last, so one mean interval is
    /// added; else n frames over that time would be a rate above the one at which they came.
    fn ns(&self) -> u64 {
        let span = u128::from(self.last.0.saturating_sub(self.first.0));
        match u128::from(self.frames) {
            0 | 1 => 0,
            n => u64::try_from(span * n / (n - 1)).unwrap_or(u64::MAX),
        }
    }
}

impl Analyzer {
    #[allow(clippy::too_many_arguments)] // one caller, which lays out a trial
    pub(crate) fn new(
        spec: &TrialSpec,
        ports: usize,
        groups: &[String],
        frames: &[u64],
        window: u64,
        timing: &Timing,
        pattern: Pattern,
        bin_ns: Option<u64>,
        bins: usize,
    ) -> Analyzer {
        let group_of = |name: &str| groups.iter().position(|g| g == name).unwrap_or(0);
        let flows = spec
            .flows
            .iter()
            .zip(frames)
            .map(|(flow, frames)| ReceiveFlow {
                to: flow.to,
                group: group_of(&flow.group) as u32,
                frames: *frames,
                state: FlowState::new((*frames).max(1), window),
            })
            .collect();
        let port_groups =
            (0..ports).map(|port| spec.flows.iter().find(|f| f.to == port).map_or(0, |f| group_of(&f.group))).collect();
        Analyzer {
            key: timing.key,
            earlier: timing.earlier.clone(),
            pattern,
            flows,
            groups: groups.iter().map(|_| GroupReceived::new(bins)).collect(),
            port_groups,
            start: Instant(0),
            bin_ns,
            late_ns: timing.late_ns,
            stale: 0,
            arrivals: vec![Arrivals::default(); ports],
            distinct: 0,
        }
    }

    pub(crate) fn begin(&mut self, start: Instant) {
        self.start = start;
    }

    /// Takes a frame that arrived at `port`.
    #[inline]
    pub fn take(&mut self, port: PortIndex, arrival: Arrival<'_>) -> Class {
        let Some(datagram) = test_datagram(arrival.frame) else { return Class::Other };
        let at = datagram.payload.len() - signature::LEN;
        let Some(tail) = datagram.payload.last_chunk::<{ signature::LEN }>() else { return Class::Other };
        let (signature, check) = Signature::read(tail);
        if !signature.belongs_to(self.key, check) {
            return self.foreign(port, &signature, check);
        }
        let Some(flow) = self.flows.get_mut(signature.flow as usize) else {
            return self.corrupted(port, None);
        };
        let group_index = flow.group as usize;
        let sequence = unwrap_sequence(signature.sequence, flow.state.next_expected());
        if !datagram.intact || datagram.payload[..at] != *self.pattern.bytes(at) || sequence >= flow.frames {
            return self.corrupted(port, Some(group_index));
        }
        let group = &mut self.groups[group_index];
        if flow.to != port {
            group.stray += 1;
            return Class::Test;
        }
        match flow.state.arrive(sequence) {
            Verdict::New => {}
            Verdict::Duplicate => return Class::Test,
            Verdict::TooOld => {
                self.stale += 1;
                return Class::Stale;
            }
        }
        let departure = departure(signature.time, arrival.at);
        let latency = arrival.at.0.saturating_sub(departure);
        group.latency(latency);
        group.late += u64::from(latency > self.late_ns);
        // Padding that a router cut off is there on every line.
        group.bytes += (arrival.frame.len() as u64 + 4).max(u64::from(MIN_FRAME));
        self.distinct += 1;
        self.arrivals[port].take(arrival.at);
        if let Some(ns) = self.bin_ns {
            let bin = |t: u64| (t.saturating_sub(self.start.0) / ns) as usize;
            if let Some(count) = group.bins.delivered.get_mut(bin(departure)) {
                *count += 1;
            }
            if let Some(count) = group.bins.arrived.get_mut(bin(arrival.at.0)) {
                *count += 1;
            }
        }
        Class::Test
    }

    #[cold]
    fn foreign(&mut self, port: PortIndex, signature: &Signature, check: u16) -> Class {
        if self.earlier.iter().any(|key| signature.belongs_to(*key, check)) {
            self.stale += 1;
            return Class::Stale;
        }
        let group = self.flows.get(signature.flow as usize).filter(|f| f.to == port).map(|f| f.group as usize);
        self.corrupted(port, group)
    }

    #[cold]
    fn corrupted(&mut self, port: PortIndex, group: Option<usize>) -> Class {
        let group = group.unwrap_or_else(|| self.port_groups.get(port).copied().unwrap_or(0));
        self.groups[group].corrupted += 1;
        Class::Corrupted
    }

    /// Distinct intact frames at the right port so far.
    #[inline]
    pub fn distinct(&self) -> u64 {
        self.distinct
    }

    /// Frames of earlier trials so far.
    pub fn stale(&self) -> u64 {
        self.stale
    }

    /// Time from first to last counted arrival and one mean interval more in ns, of the port where that is longest.
    pub fn receiving_ns(&self) -> u64 {
        self.arrivals.iter().map(Arrivals::ns).max().unwrap_or(0)
    }

    /// Counts by group.
    pub fn groups(&self) -> &[GroupReceived] {
        &self.groups
    }

    /// `(flow, group, state)` of every flow.
    pub fn flows(&self) -> impl Iterator<Item = (usize, usize, &FlowState)> {
        self.flows.iter().enumerate().map(|(i, f)| (i, f.group as usize, &f.state))
    }
}

/// Full departure time. The stamps of sending and receiving come from two readings of one clock; where they cross by less
/// than a millisecond the departure is after the arrival and the frame took no time, rather than 4.29 s.
#[inline]
fn departure(time: u32, at: Instant) -> u64 {
    let departure = unwrap_time(time, at.0);
    if at.0.wrapping_sub(departure) > u64::from(u32::MAX) - 1_000_000 {
        departure.wrapping_add(1 << 32)
    } else {
        departure
    }
}

/// The UDP payload of a frame to the test port, if it is one, and whether all its checksums hold.
#[inline]
fn test_datagram(frame: &[u8]) -> Option<TestDatagram<'_>> {
    let ethertype = u16::from_be_bytes([*frame.get(12)?, *frame.get(13)?]);
    let packet = frame.get(ethernet::LEN..)?;
    let (header, pseudo, mut intact) = match ethertype {
        ethernet::ethertype::IPV4 => {
            let header = packet.get(..ipv4::LEN)?;
            if header[0] != 0x45 || header[9] != ipv4::protocol::UDP {
                return None;
            }
            let intact = checksum::fold(checksum::sum(header)) == 0xffff;
            (ipv4::LEN, checksum::sum(&header[12..20]), intact)
        }
        ethernet::ethertype::IPV6 => {
            let header = packet.get(..ipv6::LEN)?;
            if header[0] >> 4 != 6 || header[6] != ipv4::protocol::UDP {
                return None;
            }
            (ipv6::LEN, checksum::sum(&header[8..40]), true)
        }
        _ => return None,
    };
    let rest = &packet[header..];
    let head = rest.get(..udp::LEN)?;
    if u16::from_be_bytes([head[2], head[3]]) != TEST_PORT {
        return None;
    }
    let length = usize::from(u16::from_be_bytes([head[4], head[5]]));
    if length < udp::LEN + signature::LEN {
        return None;
    }
    let ip_length = if ethertype == ethernet::ethertype::IPV4 {
        usize::from(u16::from_be_bytes([packet[2], packet[3]])).wrapping_sub(header)
    } else {
        usize::from(u16::from_be_bytes([packet[4], packet[5]]))
    };
    intact &= ip_length == length;
    // A datagram that claims more than there is was cut off on its way: corrupted, read as far as it goes.
    let datagram = match rest.get(..length) {
        Some(datagram) => datagram,
        None => {
            intact = false;
            if rest.len() < udp::LEN + signature::LEN {
                return None;
            }
            rest
        }
    };
    if intact {
        let pseudo = pseudo + u64::from(ipv4::protocol::UDP) + length as u64;
        intact = checksum::fold(pseudo + checksum::sum(datagram)) == 0xffff;
    }
    Some(TestDatagram { payload: &datagram[udp::LEN..], intact })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Neighbour, Plan};
    use drophammer_model::trial::{AddressRange, Family, FlowSpec, Load};
    use drophammer_wire::MacAddr;
    use proptest::prelude::*;

    /// The analyzer of a trial of 1,000 IPv4 and 1,000 IPv6 frames of 128 bytes from port 0 to port 1.
    fn analyzer() -> Analyzer {
        let flow = |family, first: &str| {
            let range = AddressRange { first: first.parse().unwrap(), step: 1, count: 4 };
            let group = Family::to_string(&family);
            FlowSpec { group, from: 0, to: 1, family, sources: range, destinations: range, weight: 1.0 }
        };
        let spec = TrialSpec {
            purpose: String::new(),
            size: "128".parse().unwrap(),
            flows: vec![flow(Family::Ipv4, "198.18.0.1"), flow(Family::Ipv6, "2001:2::1")],
            load: Load::Burst { frames: 2_000, rate_pps: 1e6 },
            duration_s: 0.0,
            bin_s: Some(0.001),
            drain_s: 1.0,
        };
        let (key, earlier) = (TrialKey::new(1, 2), vec![TrialKey::new(1, 1)]);
        let timing = Timing { seed: 3, key, earlier, max_backlog_ns: 0, late_ns: 1_000_000_000 };
        let mac = MacAddr::local(1);
        let port = Neighbour { mac, device_ipv4: Some(mac), device_ipv6: Some(mac) };
        let mut plan = Plan::new(&spec, &[port, port], &timing).unwrap();
        plan.begin(Instant(1_000));
        plan.analyzer
    }

    /// A frame that looks like test traffic as far as its headers go.
    fn alike(v6: bool, mut payload: Vec<u8>, claims: u16) -> Vec<u8> {
        let mut frame = vec![2; 12];
        let length = (payload.len() as u16 + 8).wrapping_add(claims).to_be_bytes();
        if v6 {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, length[0], length[1], 17, 64]);
            frame.extend([7; 32]);
        } else {
            let total = (payload.len() as u16 + 28).wrapping_add(claims).to_be_bytes();
            frame.extend([0x08, 0x00, 0x45, 0, total[0], total[1], 0, 0, 0x40, 0, 64, 17, 0, 0]);
            frame.extend([7; 8]);
        }
        frame.extend([0xc0, 0, 0, 9, length[0], length[1], 0, 0]);
        frame.append(&mut payload);
        frame
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn arbitrary_bytes_never_panic_and_never_count(
            bytes in proptest::collection::vec(any::<u8>(), 0..200), at: u64, port in 0usize..2
        ) {
            let mut analyzer = analyzer();
            let class = analyzer.take(port, Arrival { frame: &bytes, at: Instant(at) });
            prop_assert!(class != Class::Test && class != Class::Stale, "{:?}", class);
            prop_assert_eq!(analyzer.distinct(), 0);
        }

        #[test]
        fn test_ports_without_signature_never_panic_and_never_count(
            v6: bool, payload in proptest::collection::vec(any::<u8>(), 0..120), claims in prop_oneof![Just(0u16), 0u16..40, any::<u16>()],
            cut in 0usize..200, at: u64, port in 0usize..2
        ) {
            let mut analyzer = analyzer();
            let mut frame = alike(v6, payload, claims);
            if cut < frame.len() {
                frame.truncate(frame.len() - cut);
            }
            let class = analyzer.take(port, Arrival { frame: &frame, at: Instant(at) });
            prop_assert!(class == Class::Other || class == Class::Corrupted || class == Class::Stale, "{:?}", class);
            prop_assert_eq!((analyzer.distinct(), analyzer.groups()[0].stray + analyzer.groups()[1].stray), (0, 0));
        }

        #[test]
        fn a_signature_alone_does_not_count(
            v6: bool, flow in 0u32..4, sequence in 0u32..1 << 28, time: u32, at: u64, port in 0usize..2,
            head in proptest::collection::vec(any::<u8>(), 0..100)
        ) {
            // The right key, but no checksum and no pattern.
            let mut analyzer = analyzer();
            let mut payload = head;
            payload.extend(Signature { flow, sequence, time }.emit(TrialKey::new(1, 2)));
            let class = analyzer.take(port, Arrival { frame: &alike(v6, payload, 0), at: Instant(at) });
            prop_assert_eq!((class, analyzer.distinct()), (Class::Corrupted, 0));
        }
    }

    #[test]
    fn whole_frames_count_once_each() {
        // What the other tests refuse is refused for what is wrong with it: the same way made right counts.
        let mut analyzer = analyzer();
        for (flow, v6) in [(0, false), (1, true)] {
            let at = if v6 { 128 - 4 - 14 - 40 - 8 } else { 128 - 4 - 14 - 20 - 8 } - signature::LEN;
            let mut payload = Pattern::new(3).bytes(at).to_vec();
            payload.extend(Signature { flow, sequence: 0, time: 1_000 }.emit(TrialKey::new(1, 2)));
            let mut frame = alike(v6, payload, 0);
            let udp = if v6 { 54 } else { 34 };
            if !v6 {
                let sum = checksum::finish(checksum::sum(&frame[14..34]));
                frame[24..26].copy_from_slice(&sum.to_be_bytes());
            }
            let addresses = if v6 { 22..54 } else { 26..34 };
            let pseudo = checksum::sum(&frame[addresses]) + 17 + (frame.len() - udp) as u64;
            let sum = udp::field(pseudo + checksum::sum(&frame[udp..]));
            frame[udp + 6..udp + 8].copy_from_slice(&sum.to_be_bytes());
            let mut take = |port| analyzer.take(port, Arrival { frame: &frame, at: Instant(1_500) });
            assert_eq!([take(1), take(1), take(0)], [Class::Test; 3]);
        }
        assert_eq!((analyzer.distinct(), analyzer.groups()[0].stray, analyzer.groups()[1].stray), (2, 1, 1));
        assert!(analyzer.flows().all(|(_, _, state)| (state.received(), state.duplicated()) == (1, 1)));
        assert_eq!(analyzer.groups()[1].latency_summary().mean_ns, 500.0);
    }
}
