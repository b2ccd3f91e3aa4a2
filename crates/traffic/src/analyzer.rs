//! Frames to loss, order and latency. Fed with everything that comes in at test ports; what is not test traffic is handed
//! back to the caller.

use crate::flow_state::{Arrival as Verdict, FlowState};
use crate::histogram::Latencies;
use crate::payload::Pattern;
use crate::plan::Timing;
use drophammer_model::latency::LatencySummary;
use drophammer_model::quantity::Instant;
use drophammer_model::size::MIN_FRAME;
use drophammer_model::trial::{PortIndex, TrialSpec};
use drophammer_port::Arrival;
use drophammer_wire::signature::{self, Signature, TEST_PORT, TrialKey, unwrap_sequence, unwrap_time};
use drophammer_wire::{checksum, ethernet, ipv4, udp};

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

/// A flow as its receiver sees it: all that a frame in order needs, in one line of the cache.
#[repr(align(64))]
struct ReceiveFlow {
    to: u32,
    group: u32,
    frames: u64,
    state: FlowState,
}

/// States of fewer flows fit a first-level cache with room to spare.
const MANY_FLOWS: usize = 256;

const _: () = assert!(size_of::<ReceiveFlow>() == 64);

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
    /// Intact at the wrong port, or at the right one with the MAC address of somebody else.
    pub stray: u64,
    /// Not intact.
    pub corrupted: u64,
    /// Later than the threshold.
    pub late: u64,
    /// Bytes of distinct intact frames with FCS.
    pub bytes: u64,
    /// Time bins.
    pub bins: ReceiveBins,
    latencies: Latencies,
    latency_sum: u128,
    latency_min: u64,
    latency_max: u64,
}

impl GroupReceived {
    fn new(bins: usize) -> GroupReceived {
        GroupReceived {
            stray: 0,
            corrupted: 0,
            late: 0,
            bytes: 0,
            bins: ReceiveBins { delivered: vec![0; bins], arrived: vec![0; bins] },
            latencies: Latencies::new(),
            latency_sum: 0,
            latency_min: u64::MAX,
            latency_max: 0,
        }
    }

    #[inline]
    fn latency(&mut self, ns: u64) {
        self.latencies.record(ns);
        self.latency_sum += u128::from(ns);
        self.latency_min = self.latency_min.min(ns);
        self.latency_max = self.latency_max.max(ns);
    }

    /// Latency of the distinct intact frames.
    pub fn latency_summary(&self) -> LatencySummary {
        LatencySummary::from_histogram(
            &self.latencies.histogram(),
            self.latency_min,
            self.latency_max,
            self.latency_sum,
        )
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
    /// Of departures and of arrivals.
    bins: Option<[Bins; 2]>,
    late_ns: u64,
    stale: u64,
    /// Address of the host on each port, as [`destination`] reads it.
    hosts: Vec<u64>,
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

/// Finds the time bin of an instant; remembers the last one, because the next frame is mostly in the same.
#[derive(Clone, Copy)]
struct Bins {
    ns: u64,
    start: u64,
    from: u64,
    index: usize,
}

impl Bins {
    #[inline]
    fn of(&mut self, at: u64) -> usize {
        if at.wrapping_sub(self.from) >= self.ns {
            let index = at.saturating_sub(self.start) / self.ns;
            self.from = self.start.saturating_add(index * self.ns);
            self.index = index as usize;
        }
        self.index
    }
}

impl Analyzer {
    #[allow(clippy::too_many_arguments)] // one caller, which lays out a trial
    pub(crate) fn new(
        spec: &TrialSpec,
        hosts: Vec<u64>,
        groups: &[String],
        frames: &[u64],
        window: u64,
        timing: &Timing,
        pattern: Pattern,
        bin_ns: Option<u64>,
        bins: usize,
    ) -> Analyzer {
        let ports = hosts.len();
        let group_of = |name: &str| groups.iter().position(|g| g == name).unwrap_or(0);
        let flows = spec
            .flows
            .iter()
            .zip(frames)
            .map(|(flow, frames)| ReceiveFlow {
                to: flow.to as u32,
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
            bins: bin_ns.map(|ns| [Bins { ns, start: 0, from: 0, index: 0 }; 2]),
            late_ns: timing.late_ns,
            stale: 0,
            hosts,
            arrivals: vec![Arrivals::default(); ports],
            distinct: 0,
        }
    }

    pub(crate) fn begin(&mut self, start: Instant) {
        for bins in self.bins.iter_mut().flatten() {
            (bins.start, bins.from, bins.index) = (start.0, start.0, 0);
        }
    }

    /// Looks at the frames of a burst before they are taken one by one, so that the states of their flows come into the
    /// cache all at once instead of one after the other. Only a hint: it counts nothing and may look at the wrong flow.
    #[inline]
    pub fn look_ahead<'a>(&self, frames: impl Iterator<Item = &'a [u8]>) {
        if self.flows.len() < MANY_FLOWS {
            return;
        }
        for frame in frames {
            // Where the signature is unless the frame is padded.
            let Some(tail) = frame.last_chunk::<{ signature::LEN }>() else { continue };
            if let Some(flow) = self.flows.get(Signature::read(tail).0.flow as usize) {
                std::hint::black_box(flow.state.next_expected());
            }
        }
    }

    /// Takes a frame that arrived at `port`.
    #[inline]
    pub fn take(&mut self, port: PortIndex, arrival: Arrival<'_>) -> Class {
        let Some(datagram) = test_datagram(arrival.frame) else { return Class::Other };
        let at = datagram.payload.len() - signature::LEN;
        let Some(tail) = datagram.payload.last_chunk::<{ signature::LEN }>() else { return Class::Other };
        let (signature, check) = Signature::read(tail);
        if !signature.belongs_to(self.key, check) {
            return self.foreign(port, &signature, check, datagram.intact);
        }
        let Some(flow) = self.flows.get_mut(signature.flow as usize) else {
            return self.corrupted(port, None);
        };
        let group_index = flow.group as usize;
        let sequence = unwrap_sequence(signature.sequence, flow.state.next_expected());
        if !datagram.intact || !self.pattern.starts_with(&datagram.payload[..at]) || sequence >= flow.frames {
            return self.corrupted(port, Some(group_index));
        }
        let group = &mut self.groups[group_index];
        if flow.to as usize != port || destination(arrival.frame) != self.hosts[port] {
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
        if let Some([departures, arrivals]) = &mut self.bins {
            if let Some(count) = group.bins.delivered.get_mut(departures.of(departure)) {
                *count += 1;
            }
            if let Some(count) = group.bins.arrived.get_mut(arrivals.of(arrival.at.0)) {
                *count += 1;
            }
        }
        Class::Test
    }

    #[cold]
    fn foreign(&mut self, port: PortIndex, signature: &Signature, check: u16, intact: bool) -> Class {
        // A damaged signature may look like one of an earlier trial; its checksum tells.
        if intact && self.earlier.iter().any(|key| signature.belongs_to(*key, check)) {
            self.stale += 1;
            return Class::Stale;
        }
        let group = self.flows.get(signature.flow as usize).filter(|f| f.to as usize == port).map(|f| f.group as usize);
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

/// The destination address of an Ethernet frame in the lower 48 bits; 0 where there is no header.
#[inline]
pub(crate) fn destination(frame: &[u8]) -> u64 {
    const ADDRESS: u64 = u64::from_le_bytes([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0]);
    frame.first_chunk().map_or(0, |head| u64::from_le_bytes(*head) & ADDRESS)
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
    let head: &[u8; ethernet::LEN + ipv4::LEN + udp::LEN] = frame.first_chunk()?;
    let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    // Where addresses and datagram begin; they follow on each other.
    let (addresses, udp_at, ip_length, mut intact) = match word(12) {
        ethernet::ethertype::IPV4 => {
            if head[14] != 0x45 || head[23] != ipv4::protocol::UDP {
                return None;
            }
            let intact = checksum::fold(checksum::sum_le(&head[14..34])) == 0xffff;
            (26, 34, usize::from(word(16)).wrapping_sub(ipv4::LEN), intact)
        }
        ethernet::ethertype::IPV6 => {
            if head[14] >> 4 != 6 || head[20] != ipv4::protocol::UDP {
                return None;
            }
            (22, 54, usize::from(word(18)), true)
        }
        _ => return None,
    };
    let udp: &[u8; udp::LEN] = frame.get(udp_at..)?.first_chunk()?;
    if u16::from_be_bytes([udp[2], udp[3]]) != TEST_PORT {
        return None;
    }
    let length = u16::from_be_bytes([udp[4], udp[5]]);
    let mut end = udp_at + usize::from(length);
    if usize::from(length) < udp::LEN + signature::LEN {
        return None;
    }
    intact &= ip_length == usize::from(length);
    // A datagram that claims more than there is was cut off on its way: corrupted, read as far as it goes.
    if end > frame.len() {
        intact = false;
        end = frame.len();
        if end < udp_at + udp::LEN + signature::LEN {
            return None;
        }
    }
    if intact {
        // The rest of the pseudo header: protocol and length, as little-endian words like all in this sum.
        let pseudo = u64::from(ipv4::protocol::UDP) << 8 | u64::from(length.swap_bytes()) << 16;
        intact = checksum::fold(pseudo + checksum::sum_le(&frame[addresses..end])) == 0xffff;
    }
    Some(TestDatagram { payload: &frame[udp_at + udp::LEN..end], intact })
}

#[cfg(test)]
mod tests;
