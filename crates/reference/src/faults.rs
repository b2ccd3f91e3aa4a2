//! Faults of a reference device. Each fault is exact, and any number of them can be active at the same time.

use drophammer_model::Instant;
use drophammer_model::traffic::Deviation;
use drophammer_wire::MacAddr;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Maximum delay of the departure of a reordered frame after its turn, if too few frames follow.
pub const REORDER_LIMIT: Duration = Duration::from_millis(100);

/// Faults of a device; the default has none.
///
/// Filter faults act on the filter's decisions and count them. The other faults act on frames whose innermost header is
/// UDP, TCP or ICMP echo (unfragmented, in a tunnel or not) after the server has accepted them, so a frame lost to a
/// fault has used capacity. Frames are numbered over the whole box from 1, unless `by_port` is set; "every n" means the
/// numbers n, 2n, 3n and so on, and 0 means never. A frame passes the faults in the order of the fields: a dropped frame skips the rest; a copy
/// is made after the faults for corruption, misrouting, TTL and encapsulation, and is neither held nor reordered; a
/// held frame is not also reordered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// Number frames separately for each port of arrival, from 1 when the faults were set. Then the fate of a port's frames does
    /// not depend on when frames arrive at other ports.
    pub by_port: bool,
    /// Drop every n-th frame.
    pub drop_every: u64,
    /// Drop each frame with this probability, 0 to 1, drawn from the seed.
    pub drop_share: f64,
    /// Drop all frames that arrive at or after the first instant and before the second.
    pub drop_window: Option<(Instant, Instant)>,
    /// Drop while the load is low.
    pub drop_at_low_load: Option<DropAtLowLoad>,
    /// Drop a share that grows.
    pub drop_growth: Option<DropGrowth>,
    /// Corrupt the payload.
    pub corrupt: Option<Corrupt>,
    /// Send to a wrong port.
    pub misroute: Option<Misroute>,
    /// Send through the right port, but to a wrong neighbour.
    pub wrong_next_hop: Option<WrongNextHop>,
    /// Send every n-th frame with the TTL or hop limit that it arrived with, in its outermost label or IP header.
    pub ttl_kept_every: u64,
    /// Send with another encapsulation.
    pub encapsulation: Option<Encapsulation>,
    /// Send all frames, including the device's own, with a priority tag: an 802.1Q tag of VLAN 0, outside all other
    /// tags. Octet counters do not include the tag. A tester counts such frames as untagged.
    pub priority_tags: bool,
    /// Send every n-th frame twice, one copy directly behind the other.
    pub duplicate_every: u64,
    /// Send frames late.
    pub hold: Option<Hold>,
    /// Send frames after later frames.
    pub reorder: Option<Reorder>,
    /// Reduce the capacity.
    pub sag: Option<Sag>,
    /// Become steadily slower and use more and more memory.
    pub ageing: Option<Ageing>,
    /// Use an input queue of this many frames at each port; 0 for none. A frame leaves the queue when the buffer of its
    /// output line has room, instead of being dropped there. The frames behind it wait, whatever their output line, and
    /// frames that find the queue full are dropped. Acts only for lines with a speed and without classes, which take
    /// frames in order of arrival.
    pub input_queue: usize,
    /// Before ignoring a broadcast frame of an unknown type, spend the service time of this many frames on it.
    pub broadcast_services: u64,
    /// Send such frames out of the next port; after the last port, continue with the first.
    pub broadcast_flooded: bool,
    /// Send unsolicited frames.
    pub own_frames: Option<OwnFrames>,
    /// Forward every n-th frame that its filter denies.
    pub filter_leak_every: u64,
    /// Drop every n-th frame that its filter permits.
    pub filter_deny_every: u64,
    /// Drop every n-th IPv6 packet with extension headers.
    pub extension_drop_every: u64,
    /// Faults with classes of service. They take effect with the next [`crate::Router::set_classes`].
    pub classes: ClassFaults,
    /// Forward frames that a router must drop. The other faults act on them only if they contain test traffic.
    pub forwards: Option<WrongFrame>,
    /// Send every n-th ICMP error twice.
    pub icmp_twice_every: u64,
    /// Drop every n-th packet sent into a tunnel, after counting it.
    pub tunnel_drop_every: u64,
    /// After this many packets sent into tunnels, lose all later packets; 0 for never.
    pub tunnel_sticks_after: u64,
    /// Do not decrement the TTL of packets sent into a tunnel.
    pub tunnel_keeps_ttl: bool,
    /// Ignore the policies, and forward everything by the routes.
    pub policy_ignored: bool,
    /// Forward packets that arrive with the label of the first VRF by the routes of the second one, and the other way
    /// round.
    pub swap_vpn_labels: bool,
    /// Remove the label of every n-th packet whose label the device should swap. The packet goes to the same next hop.
    pub label_pop_every: u64,
    /// Error that is added to the reported counters of unicast frames in and out of each port.
    pub counter_error: i64,
    /// The error appears in a counter only after it has counted this many frames; 0 for always.
    pub counter_error_after: u64,
    /// Answer the operator badly under overload.
    pub management: Option<ManagementFault>,
    /// At the n-th refresh of path state since the faults were set, once, forget that LSP with its label, and tell nobody; 0 for
    /// never.
    pub forget_lsp_on_refresh: u64,
    /// Faults with routes.
    pub bgp: BgpFaults,
    /// Faults with OSPF, LDP and BFD.
    pub igp: IgpFaults,
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

    /// The same faults with the times of drop window, growing loss, sag and ageing counted from `start`.
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
    /// Use one queue for all classes, with the total size of their queues.
    pub ignored: bool,
    /// Give the last class this weight instead of its configured weight; 0 for the configured weight.
    pub last_weight: u32,
    /// Drop every n-th frame of the first class that arrives at a line; 0 for none.
    pub drop_every: u64,
}

/// Faults with BGP routes; the default has none.
///
/// "Every n" means the prefixes with the numbers n, 2n, 3n and so on, in the order in which the device learned them; 0
/// means never. A route is advertised or installed with the faults that are set at that instant; setting faults does
/// not change earlier actions. A lost route is not also wrong; a route may have both a wrong next hop and a wrong AS
/// path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BgpFaults {
    /// Advertise every n-th prefix, and silently drop packets to it.
    pub blackhole_every: u64,
    /// When a prefix loses its last path, delay the withdrawal by this time, and forward until then.
    pub withdraw_late: Duration,
    /// Advertise every n-th prefix with the next hop that the device received, instead of its own address.
    pub wrong_next_hop_every: u64,
    /// Advertise every n-th prefix with the device's own AS twice at the front of the path.
    pub wrong_as_path_every: u64,
    /// Do not advertise every n-th prefix.
    pub lost_route_every: u64,
    /// Stop reading from TCP.
    pub never_reads: bool,
    /// Read at most this many bytes per second of each session from TCP: one share at every multiple of 10 ms, in whole
    /// messages. If the rest of a share is too small for the next message, it is added to the next share. 0 for no
    /// limit.
    pub reads_per_second: u64,
    /// Withdraw and re-advertise every n-th prefix, alternately, at every multiple of `flap_interval`, indefinitely.
    /// Forwarding does not change.
    pub flap_every: u64,
    /// Interval for `flap_every`; at least 1 ms.
    pub flap_interval: Duration,
    /// Once, end the session that received the n-th route since the faults were set, with a NOTIFICATION (Cease,
    /// Administrative Reset). 0 for never.
    pub reset_after: u64,
    /// Once, after the n-th route advertised since the faults were set, send a malformed UPDATE to the same peer. 0 for
    /// never.
    pub malformed_after: u64,
    /// Send no KEEPALIVEs on established sessions.
    pub hold_silence: bool,
    /// Import one VPN route into the VRF after its own as well (after the last VRF follows the first), where it is better
    /// than any other path to its prefix. So packets from that VRF to the prefix reach a site of the wrong VRF, and its CE
    /// router receives the route. The route is the imported one with the lowest prefix number, or if there is none, the
    /// first one that is imported. It stays the same when it is withdrawn and advertised again.
    pub leak_vpn_route: bool,
}

/// Faults with OSPF, LDP and BFD; the default has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IgpFaults {
    /// Acknowledge every n-th new instance of an LSA that a fully adjacent neighbour floods, but install and flood it only this time
    /// later. Zero for no delay.
    pub late_lsa_flooding: Duration,
    /// n for `late_lsa_flooding`; 0 for never.
    pub late_lsa_every: u64,
    /// Do not send every n-th BFD packet of a session; 0 for never.
    pub bfd_packet_missing: u64,
    /// Advertise implicit null instead of a label for every n-th prefix that gets one while this fault is set, as if the device were the last
    /// router before it; 0 for never. So the LDP neighbours pop a label that they should swap. The prefix keeps implicit null while it has a
    /// route.
    pub implicit_null_every: u64,
}

/// A kind of wrong frame that a router must drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WrongFrame {
    /// Frames shorter than 64 bytes.
    Runt,
    /// Frames whose packet exceeds the MTU.
    Giant,
    /// IPv4 packets with a wrong header checksum; it is still wrong after forwarding.
    Checksum,
    /// Packets with a TTL or hop limit of 1 or 0; it is decremented and wraps around.
    Ttl,
    /// IPv4 packets with a source route; forwarded to their current destination.
    SourceRoute,
    /// IPv4 packets from an address that no host can have.
    Martian,
}

impl WrongFrame {
    /// Names of the kinds, as in a suite.
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
    /// Corrupts every n-th frame.
    pub every: u64,
    /// Which byte of the payload to change, modulo its length; `None`: drawn from the seed.
    pub offset: Option<usize>,
    /// Updates the checksums that were right, so that only the content reveals the change.
    pub fix_checksum: bool,
}

/// Sends frames to another port, and to a neighbour known on that port, if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Misroute {
    /// Misroutes every n-th frame; frames that belong to `to_port` anyway do not count as misrouted.
    pub every: u64,
    /// The wrong port.
    pub to_port: usize,
}

/// Drops frames while the load is low. Time is divided into intervals that begin at every multiple of `interval` since
/// instant 0; the load of an interval is the number of test frames that arrived in the previous interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DropAtLowLoad {
    /// Drops every n-th frame.
    pub every: u64,
    /// Length of an interval, at least 1 ns.
    pub interval: Duration,
    /// The load is low if fewer than this number of frames arrived in the previous interval.
    pub below_frames: u64,
}

/// Drops a share of the frames that starts at 0 at an instant and grows evenly up to 1. The dropped frames are evenly
/// spaced: the device adds up the shares of the frames, and drops each frame at which the sum reaches 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DropGrowth {
    /// Time when it begins.
    pub from: Instant,
    /// By how many millionths of the frames the share grows in each second.
    pub millionths_per_second: u64,
}

/// A share of all frames, in billionths.
const WHOLE: u64 = 1_000_000_000;

impl DropGrowth {
    /// Adds the share of a frame that arrives at `at` to `sum`, in billionths. Returns true if the frame is dropped.
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
    /// Changes every n-th frame; a frame that was also misrouted counts as both.
    pub every: u64,
    /// Address of that station; [`NOBODY`] belongs to no station.
    #[serde(with = "crate::config::mac")]
    pub mac: MacAddr,
}

/// Changes the encapsulation of frames: tags, labels, tunnel, DSCP, ECN or TTL, depending on the change. Checksums and
/// lengths fit the changed frame. A frame that cannot be changed in this way (for example a wrong tag in an untagged
/// frame) stays unchanged and is not counted. A wrong value is in the outermost tag or label; a missing or added one is
/// the innermost. An added tunnel is GRE with the addresses of the packet. A wrong TTL is one less than it should be,
/// or one more if that would be 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Encapsulation {
    /// Changes every n-th frame.
    pub every: u64,
    /// The change, named after the deviation that a tester reports.
    pub change: Deviation,
}

/// An address that no station has.
pub const NOBODY: MacAddr = MacAddr([0x02, 0xff, 0xff, 0xff, 0xff, 0xfe]);

/// Delays a frame without stopping the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hold {
    /// Delays every n-th frame.
    pub every: u64,
    /// By how much later than its turn the frame departs.
    pub time: Duration,
}

/// Lets a frame depart right behind the k-th frame after it on its port, in the same instant. Copies, held frames and
/// frames that are to be reordered do not count among the k.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reorder {
    /// Reorders every n-th frame.
    pub every: u64,
    /// k: the number of frames that pass it. After [`REORDER_LIMIT`] it departs in any case.
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

/// Delay and memory that grow evenly from an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ageing {
    /// Time when it begins.
    pub from: Instant,
    /// By how much the delay of frames grows in each second.
    pub delay_per_second: Duration,
    /// Number of bytes by which its memory grows in each second.
    pub bytes_per_second: u64,
}

impl Ageing {
    /// `each` times the seconds that have passed at `now`.
    fn grown(&self, each: u64, now: Instant) -> u64 {
        let passed = now.0.saturating_sub(self.from.0);
        u64::try_from(u128::from(each) * u128::from(passed) / 1_000_000_000).unwrap_or(u64::MAX)
    }

    /// The additional delay at `now`, in nanoseconds.
    pub(crate) fn delay_ns(&self, now: Instant) -> u64 {
        self.grown(u64::try_from(self.delay_per_second.as_nanos()).unwrap_or(u64::MAX), now)
    }

    /// The additional memory at `now`, in bytes.
    pub fn bytes(&self, now: Instant) -> u64 {
        self.grown(self.bytes_per_second, now)
    }
}

/// How the device answers echo requests to its own addresses while many frames wait for service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManagementFault {
    /// The fault acts while at least this many frames wait or are in service.
    pub waiting: usize,
    /// Leave every n-th such request unanswered; 1 for all, 0 for none.
    pub drop_every: u64,
    /// Delay of the answers to the other requests.
    pub delay: Duration,
    /// After `waiting` frames have waited once, never answer again.
    pub dies: bool,
}

/// Sends an LLDP frame at every multiple of the interval, the first after one interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnFrames {
    /// Time between two frames, at least 1 µs.
    pub interval: Duration,
    /// Output port.
    pub port: usize,
}

/// Measures the load over time, for [`DropAtLowLoad`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LoadMeter {
    interval: u64,
    frames: u64,
    before: u64,
}

impl LoadMeter {
    /// Counts a frame that arrives at `at`; returns true if the load is low.
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
