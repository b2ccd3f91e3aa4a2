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
mod tests;
