//! Faults of a reference device. Each fault is exact, and any number may be active together.

use drophammer_model::Instant;
use drophammer_model::traffic::Deviation;
use drophammer_wire::MacAddr;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A reordered frame departs this long after its turn at the latest, if too few frames follow.
pub const REORDER_LIMIT: Duration = Duration::from_millis(100);

/// Faults of a device; the default has none.
///
/// Filter faults act on the filter's decisions and count them. The other faults act on frames whose innermost header is
/// UDP, TCP or ICMP echo (unfragmented, in a tunnel or not) after the server has accepted them, so a frame lost to a
/// fault has used capacity. Frames are numbered over the whole box from 1; "every n" means the numbers n, 2n,
/// 3n and so on, and 0 means never. A frame passes the faults in the order of the fields: a dropped frame skips
/// the rest; a copy is made after corruption, misrouting, TTL and encapsulation, and is neither held nor reordered; a
/// held frame is not also reordered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// Drop every n-th frame.
    pub drop_every: u64,
    /// Drop each frame with this probability, 0 to 1, drawn from the seed.
    pub drop_share: f64,
    /// Drop all frames that arrive at or after the first instant and before the second.
    pub drop_window: Option<(Instant, Instant)>,
    /// Drop while the load is low.
    pub drop_at_low_load: Option<DropAtLowLoad>,
    /// Drop a growing share.
    pub drop_growth: Option<DropGrowth>,
    /// Corrupt payload.
    pub corrupt: Option<Corrupt>,
    /// Send to a wrong port.
    pub misroute: Option<Misroute>,
    /// Send by the right port to a wrong neighbour.
    pub wrong_next_hop: Option<WrongNextHop>,
    /// Send every n-th frame with the TTL or hop limit that it arrived with, in its outermost label or IP header.
    pub ttl_kept_every: u64,
    /// Send in another encapsulation.
    pub encapsulation: Option<Encapsulation>,
    /// Send all frames, also the device's own, with a priority tag: an 802.1Q tag of VLAN 0, outside all other tags. Octet
    /// counters do not include the tag. A tester counts such frames as untagged.
    pub priority_tags: bool,
    /// Send every n-th frame twice, one copy directly behind the other.
    pub duplicate_every: u64,
    /// Send late.
    pub hold: Option<Hold>,
    /// Send after later frames.
    pub reorder: Option<Reorder>,
    /// Become slow.
    pub sag: Option<Sag>,
    /// Become steadily slower and use more memory.
    pub ageing: Option<Ageing>,
    /// Have an input queue of this many frames at each port; 0 for none. A frame leaves the queue when its output line has
    /// room in its buffer, instead of being dropped there. The frames behind it wait, whatever their output line, and
    /// frames that find the queue full are dropped. Acts only for lines with a speed and without classes, which take
    /// frames in order of arrival.
    pub input_queue: usize,
    /// Before ignoring a broadcast frame of an unknown type, serve it as long as this many frames.
    pub broadcast_services: u64,
    /// Send such frames out of the next port; after the last port comes the first.
    pub broadcast_flooded: bool,
    /// Send unsolicited frames.
    pub own_frames: Option<OwnFrames>,
    /// Forward every n-th frame that its filter denies.
    pub filter_leak_every: u64,
    /// Drop every n-th frame that its filter permits.
    pub filter_deny_every: u64,
    /// Drop every n-th IPv6 packet with extension headers.
    pub extension_drop_every: u64,
    /// Faults with classes of service, from the next [`crate::Router::set_classes`] on.
    pub classes: ClassFaults,
    /// Forward frames that a router must drop. The other faults treat them as test frames only if their contents are.
    pub forwards: Option<WrongFrame>,
    /// Send every n-th ICMP error twice.
    pub icmp_twice_every: u64,
    /// Drop every n-th packet sent into a tunnel, after counting it.
    pub tunnel_drop_every: u64,
    /// Lose all packets sent into tunnels after this many; 0 for never.
    pub tunnel_sticks_after: u64,
    /// Do not decrement the TTL of packets sent into a tunnel.
    pub tunnel_keeps_ttl: bool,
    /// Ignore the policies and send everything by the routes.
    pub policy_ignored: bool,
    /// Added to the reported counters for unicast frames in and out of each port.
    pub counter_error: i64,
    /// Each of these counters is wrong only after it has counted this many; 0 for always.
    pub counter_error_after: u64,
    /// Answer its operator badly while overloaded.
    pub management: Option<ManagementFault>,
    /// Faults with routes.
    pub bgp: BgpFaults,
}

impl Faults {
    /// True if any fault acts on single test frames.
    pub(crate) fn act_on_frames(&self) -> bool {
        let Faults { drop_every, drop_share, duplicate_every, ttl_kept_every, .. } = *self;
        let Faults { drop_window, drop_at_low_load, drop_growth, corrupt, misroute, .. } = self;
        let Faults { wrong_next_hop, encapsulation, hold, reorder, .. } = self;
        let often = drop_every != 0 || drop_share > 0.0 || duplicate_every != 0 || ttl_kept_every != 0;
        let dropped = drop_window.is_some() || drop_at_low_load.is_some() || drop_growth.is_some();
        let changed = corrupt.is_some() || misroute.is_some() || wrong_next_hop.is_some() || encapsulation.is_some();
        often || dropped || changed || hold.is_some() || reorder.is_some()
    }

    /// The same faults with the instants of drop window, growing loss, sag and ageing counted from `start`.
    pub fn from_instant(mut self, start: Instant) -> Faults {
        let moved = |at: Instant| Instant(at.0.saturating_add(start.0));
        self.drop_window = self.drop_window.map(|(from, to)| (moved(from), moved(to)));
        self.drop_growth = self.drop_growth.map(|growth| DropGrowth { from: moved(growth.from), ..growth });
        self.sag = self.sag.map(|sag| Sag { from: moved(sag.from), ..sag });
        self.ageing = self.ageing.map(|ageing| Ageing { from: moved(ageing.from), ..ageing });
        self
    }
}

/// Faults at lines with classes of service; the default has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClassFaults {
    /// Have one queue for all classes, as large as all their queues together.
    pub ignored: bool,
    /// Give the last class this weight instead of its own; 0 for its own.
    pub last_weight: u32,
    /// Drop every n-th frame of the first class that arrives at a line; 0 for none.
    pub drop_every: u64,
}

/// Faults with the routes of BGP; the default has none.
///
/// "Every n" means the prefixes with the numbers n, 2n, 3n and so on, in the order in which the device learned
/// them; 0 means never. A route is advertised, or installed, with the faults of that instant; setting faults does not
/// change earlier actions. A lost route is not also wrong; a route may have both a wrong next hop and a wrong AS path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BgpFaults {
    /// Advertise every n-th prefix, and silently drop packets to it.
    pub blackhole_every: u64,
    /// When a prefix loses its last path, delay the withdrawal and the end of forwarding by this time.
    pub withdraw_late: Duration,
    /// Advertise every n-th prefix with the next hop that the device received, instead of its own address.
    pub wrong_next_hop_every: u64,
    /// Advertise every n-th prefix with the device's own AS twice in front of the path.
    pub wrong_as_path_every: u64,
    /// Do not advertise every n-th prefix.
    pub lost_route_every: u64,
    /// Stop reading from TCP.
    pub never_reads: bool,
    /// Read at most this many bytes per second of each session from TCP: one share at every multiple of 10 ms, in whole
    /// messages. A rest that is too small for the next message is added to the next share. 0 for no limit.
    pub reads_per_second: u64,
    /// Withdraw and re-advertise every n-th prefix, alternately, at every multiple of `flap_interval` without end.
    /// Forwarding does not change.
    pub flap_every: u64,
    /// See `flap_every`; at least 1 ms.
    pub flap_interval: Duration,
    /// End the session of the n-th route received since the faults were set with a NOTIFICATION (Cease, Administrative
    /// Reset), once. 0 for never.
    pub reset_after: u64,
    /// After the n-th route advertised since the faults were set, send a malformed UPDATE to the same peer, once. 0 for never.
    pub malformed_after: u64,
    /// Send no KEEPALIVEs on established sessions.
    pub hold_silence: bool,
}

/// A kind of wrong frame that a router must drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WrongFrame {
    /// Frames below 64 bytes.
    Runt,
    /// Frames beyond the MTU.
    Giant,
    /// IPv4 packets with a wrong header checksum, which is forwarded as wrong as before.
    Checksum,
    /// Packets with a TTL or hop limit of 1 or 0; it is decremented and wraps.
    Ttl,
    /// IPv4 packets with a source route; forwarded to their current destination.
    SourceRoute,
    /// IPv4 packets from an address that no host has.
    Martian,
}

impl WrongFrame {
    /// Names, as in a suite.
    pub const NAMES: &'static [&'static str] = &["runt", "giant", "checksum", "ttl", "source_route", "martian"];

    /// The values named by [`WrongFrame::NAMES`], in that order.
    pub const ALL: &'static [WrongFrame] = &[
        WrongFrame::Runt,
        WrongFrame::Giant,
        WrongFrame::Checksum,
        WrongFrame::Ttl,
        WrongFrame::SourceRoute,
        WrongFrame::Martian,
    ];
}

/// Inverts bits of one payload byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Corrupt {
    /// Every n-th frame.
    pub every: u64,
    /// Which byte of the payload, modulo its length; `None`: drawn from the seed.
    pub offset: Option<usize>,
    /// Update the checksums that were right, so only the content shows the change.
    pub fix_checksum: bool,
}

/// Sends frames to another port, to a neighbour known there if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Misroute {
    /// Every n-th frame; frames that belong to `to_port` anyway do not count as misrouted.
    pub every: u64,
    /// The wrong port.
    pub to_port: usize,
}

/// Drops frames while the load is low. Time is divided into intervals that begin at every multiple of `interval` since
/// instant 0; the load of an interval is the number of test frames that arrived in the interval before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DropAtLowLoad {
    /// Every n-th frame.
    pub every: u64,
    /// Length of an interval, at least 1 ns.
    pub interval: Duration,
    /// The load is low if fewer frames arrived in the interval before.
    pub below_frames: u64,
}

/// Drops a share of the frames that grows evenly from 0 at an instant up to 1. The dropped frames are evenly spaced: the
/// device adds up the shares of the frames, and drops each frame with which the sum reaches 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DropGrowth {
    /// When it begins.
    pub from: Instant,
    /// By how many millionths of the frames the share grows in each second.
    pub millionths_per_second: u64,
}

/// A share of all frames, in billionths.
const WHOLE: u64 = 1_000_000_000;

impl DropGrowth {
    /// Adds the share of a frame that arrives at `at` to `sum`, in billionths. True if the frame is dropped.
    pub(crate) fn drops(&self, at: Instant, sum: &mut u64) -> bool {
        let passed = at.0.saturating_sub(self.from.0);
        let share = u128::from(self.millionths_per_second) * u128::from(passed) / 1_000_000;
        *sum += u64::try_from(share).unwrap_or(WHOLE).min(WHOLE);
        let reached = *sum >= WHOLE;
        *sum -= if reached { WHOLE } else { 0 };
        reached
    }
}

/// Addresses frames to a station that is not their next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WrongNextHop {
    /// Every n-th frame; a frame that was also misrouted counts as both.
    pub every: u64,
    /// Address of that station; no station has [`NOBODY`].
    #[serde(with = "crate::config::mac")]
    pub mac: MacAddr,
}

/// Changes the encapsulation of frames: tags, labels, tunnel, DSCP, ECN or TTL, depending on the change. Checksums and
/// lengths fit the changed frame. A frame that cannot be changed in this way (for example a wrong tag in an untagged
/// frame) leaves unchanged and is not counted. A wrong value is in the outermost tag or label; a missing or surplus one
/// is the innermost. A surplus tunnel is GRE with the addresses of the packet. A wrong TTL is one less than it should
/// be, or one more where that is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Encapsulation {
    /// Every n-th frame.
    pub every: u64,
    /// The change, named by the deviation that a tester finds.
    pub change: Deviation,
}

/// An address that no station has.
pub const NOBODY: MacAddr = MacAddr([0x02, 0xff, 0xff, 0xff, 0xff, 0xfe]);

/// Keeps a frame back without stopping the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hold {
    /// Every n-th frame.
    pub every: u64,
    /// How much later than its turn it departs.
    pub time: Duration,
}

/// Lets a frame depart right behind the k-th frame after it on its port, in the same instant. Frames that are
/// themselves copies, held or to be reordered do not count among the k.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reorder {
    /// Every n-th frame.
    pub every: u64,
    /// k: how many others pass it. After [`REORDER_LIMIT`] it departs in any case.
    pub positions: u64,
}

/// Another capacity for every frame whose service starts at `from` or later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sag {
    /// Start of the sag.
    pub from: Instant,
    /// Frames per second, 1 to 10^9.
    pub capacity_pps: u64,
}

/// Delay and memory that grow evenly from an instant on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ageing {
    /// When it begins.
    pub from: Instant,
    /// By how much the delay of frames grows in each second.
    pub delay_per_second: Duration,
    /// Bytes by which its memory grows in each second.
    pub bytes_per_second: u64,
}

impl Ageing {
    /// `each` times the seconds that have passed at `now`.
    fn grown(&self, each: u64, now: Instant) -> u64 {
        let passed = now.0.saturating_sub(self.from.0);
        u64::try_from(u128::from(each) * u128::from(passed) / 1_000_000_000).unwrap_or(u64::MAX)
    }

    /// The additional delay at `now`, in ns.
    pub(crate) fn delay_ns(&self, now: Instant) -> u64 {
        self.grown(u64::try_from(self.delay_per_second.as_nanos()).unwrap_or(u64::MAX), now)
    }

    /// The additional memory at `now`, in bytes.
    pub fn bytes(&self, now: Instant) -> u64 {
        self.grown(self.bytes_per_second, now)
    }
}

/// How the device treats echo requests to its own addresses while many frames wait for service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManagementFault {
    /// Acts while at least this many frames wait or are in service.
    pub waiting: usize,
    /// Leave every n-th such request unanswered; 1 for all, 0 for none.
    pub drop_every: u64,
    /// Answer the others this much later.
    pub delay: Duration,
    /// Once that many frames have waited, never answer again.
    pub dies: bool,
}

/// An LLDP frame at every multiple of the interval, the first after one interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnFrames {
    /// Time between two frames, at least 1 µs.
    pub interval: Duration,
    /// Output port.
    pub port: usize,
}

/// The load over time, for [`DropAtLowLoad`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LoadMeter {
    interval: u64,
    frames: u64,
    before: u64,
}

impl LoadMeter {
    /// Counts a frame that arrives at `at`; returns whether the load is low.
    pub(crate) fn is_low(&mut self, fault: &DropAtLowLoad, at: Instant) -> bool {
        let interval = at.0 / u64::try_from(fault.interval.as_nanos()).unwrap_or(u64::MAX).max(1);
        if interval != self.interval {
            self.before = if interval == self.interval + 1 { self.frames } else { 0 };
            (self.interval, self.frames) = (interval, 0);
        }
        self.frames += 1;
        self.before < fault.below_frames
    }
}

/// True if `number`, counted from 1, is a multiple of `every`; never if `every` is 0.
pub(crate) fn is_nth(number: u64, every: u64) -> bool {
    every != 0 && number.is_multiple_of(every)
}
