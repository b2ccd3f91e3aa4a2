//! What a reference device does wrong, each exactly and all at the same time if asked.

use drophammer_model::Instant;
use drophammer_model::traffic::Deviation;
use drophammer_wire::MacAddr;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A reordered frame departs at the latest this long after its turn, if too few others follow.
pub const REORDER_LIMIT: Duration = Duration::from_millis(100);

/// Faults of a device; the default has none.
///
/// Those of the filter act where it decides, and count its decisions. The others act on frames whose innermost header is UDP, TCP or ICMP echo (unfragmented, in a tunnel or not) after the server has
/// taken them, so that a frame lost to a fault has taken capacity. Frames are numbered over the whole box from 1, and "every n" means the numbers
/// n, 2n, 3n and so on; 0 means never. One frame goes through the faults in the order of the fields: what is dropped is
/// spared the rest; a copy is made after corruption, misrouting, TTL and encapsulation and is itself neither held nor reordered; a frame that
/// is to be held is not also reordered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// Drop every n-th.
    pub drop_every: u64,
    /// Drop each with this probability, 0 to 1, drawn from the seed.
    pub drop_share: f64,
    /// Drop all that arrive from the first instant until before the second.
    pub drop_window: Option<(Instant, Instant)>,
    /// Drop while the load is low.
    pub drop_at_low_load: Option<DropAtLowLoad>,
    /// Corrupt payload.
    pub corrupt: Option<Corrupt>,
    /// Send to a wrong port.
    pub misroute: Option<Misroute>,
    /// Send by the right port to a wrong neighbour.
    pub wrong_next_hop: Option<WrongNextHop>,
    /// Send every n-th with the TTL or hop limit with which it came: that of its outermost label or IP header.
    pub ttl_kept_every: u64,
    /// Send in another encapsulation.
    pub encapsulation: Option<Encapsulation>,
    /// Send every n-th twice, one copy directly behind the other.
    pub duplicate_every: u64,
    /// Send late.
    pub hold: Option<Hold>,
    /// Send behind its followers.
    pub reorder: Option<Reorder>,
    /// Become slow.
    pub sag: Option<Sag>,
    /// Become slower and larger all the time.
    pub ageing: Option<Ageing>,
    /// Have a queue of so many frames at the way in of each port, out of which a frame goes when the line to which it is bound has room in its buffer,
    /// rather than be dropped there: those behind it wait, whatever line they are bound to, and those that find the queue full are dropped. Lines with a
    /// speed and without classes alone, which take frames in their order of arrival; 0 for none.
    pub input_queue: usize,
    /// Serve each broadcast frame of a type that it does not know, before it ignores it, as long as so many frames.
    pub broadcast_services: u64,
    /// Send such frames out of the next port, the first being next to the last.
    pub broadcast_flooded: bool,
    /// Speak unasked.
    pub own_frames: Option<OwnFrames>,
    /// Forward every n-th frame that its filter denies.
    pub filter_leak_every: u64,
    /// Drop every n-th frame that its filter permits.
    pub filter_deny_every: u64,
    /// Drop every n-th IPv6 packet with extension headers.
    pub extension_drop_every: u64,
    /// What it does wrong with classes of service, from the next [`crate::Router::set_classes`] on.
    pub classes: ClassFaults,
    /// Forward what it must drop. It is no test frame to the other faults unless its contents are.
    pub forwards: Option<WrongFrame>,
    /// Send every n-th ICMP error twice.
    pub icmp_twice_every: u64,
    /// Lose every n-th packet that it sends into a tunnel, behind the tunnel's counter.
    pub tunnel_drop_every: u64,
    /// Lose all that it sends into a tunnel once it has sent so many packets there; 0 for never.
    pub tunnel_sticks_after: u64,
    /// Do not count down the TTL of what it sends into a tunnel.
    pub tunnel_keeps_ttl: bool,
    /// Send everything by the routes, whatever its policies say.
    pub policy_ignored: bool,
    /// Added to what the counters for unicast frames in and out of each port tell.
    pub counter_error: i64,
    /// Each of them is wrong only once it has counted so many; 0 for always.
    pub counter_error_after: u64,
    /// Answer its operator badly while it is overloaded.
    pub management: Option<ManagementFault>,
    /// What it does wrong with routes.
    pub bgp: BgpFaults,
}

impl Faults {
    /// Does any act on single frames?
    pub(crate) fn act_on_frames(&self) -> bool {
        let Faults {
            drop_every,
            drop_share,
            drop_window,
            drop_at_low_load,
            corrupt,
            misroute,
            wrong_next_hop,
            ttl_kept_every,
            encapsulation,
            duplicate_every,
            hold,
            reorder,
            sag: _,
            ageing: _,
            input_queue: _,
            broadcast_services: _,
            broadcast_flooded: _,
            own_frames: _,
            filter_leak_every: _,
            filter_deny_every: _,
            extension_drop_every: _,
            classes: _,
            forwards: _,
            icmp_twice_every: _,
            tunnel_drop_every: _,
            tunnel_sticks_after: _,
            tunnel_keeps_ttl: _,
            policy_ignored: _,
            counter_error: _,
            counter_error_after: _,
            management: _,
            bgp: _,
        } = self;
        let often = *drop_every != 0 || *drop_share > 0.0 || *duplicate_every != 0 || *ttl_kept_every != 0;
        let dropped = drop_window.is_some() || drop_at_low_load.is_some();
        let changed = corrupt.is_some() || misroute.is_some() || wrong_next_hop.is_some() || encapsulation.is_some();
        often || dropped || changed || hold.is_some() || reorder.is_some()
    }

    /// The same with the instants of drop window, sag and ageing counted from `start`.
    pub fn from_instant(mut self, start: Instant) -> Faults {
        let moved = |at: Instant| Instant(at.0.saturating_add(start.0));
        self.drop_window = self.drop_window.map(|(from, to)| (moved(from), moved(to)));
        self.sag = self.sag.map(|sag| Sag { from: moved(sag.from), ..sag });
        self.ageing = self.ageing.map(|ageing| Ageing { from: moved(ageing.from), ..ageing });
        self
    }
}

/// What a device does wrong at lines with classes of service; the default is nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClassFaults {
    /// Have one queue for all classes, as large as theirs together.
    pub ignored: bool,
    /// Give the last class this weight instead of its own; 0 for its own.
    pub last_weight: u32,
    /// Drop every n-th frame of the first class that comes to a line; 0 for none.
    pub drop_every: u64,
}

/// What a device does wrong with the routes of BGP; the default is nothing.
///
/// "Every n" means the prefixes with the numbers n, 2n, 3n and so on, as [`crate::rib`] numbers them; 0 means never. A route
/// is told, or installed, wrong as the faults are in that instant: what was done before they were set stays. A route that
/// is lost is not also wrong, and of a wrong next hop and a wrong AS path it may have both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BgpFaults {
    /// Tell of every n-th prefix, and drop without a word what it attracts.
    pub blackhole_every: u64,
    /// When the last path of a prefix goes, tell so and stop forwarding so much later.
    pub withdraw_late: Duration,
    /// Tell every n-th prefix with the next hop that it was learned with, instead of the device's own address.
    pub wrong_next_hop_every: u64,
    /// Tell every n-th prefix with the device's own AS twice in front of the path.
    pub wrong_as_path_every: u64,
    /// Do not tell of every n-th prefix.
    pub lost_route_every: u64,
    /// Take nothing more out of the buffers of TCP.
    pub never_reads: bool,
    /// Take so many bytes per second of each session out of the buffers of TCP at most: at every multiple of 10 ms its share, in
    /// whole messages; what a message leaves of a share is added to the next one. 0 for no limit.
    pub reads_per_second: u64,
    /// Take every n-th prefix back from those who were told of it, and tell it again, in turn, at every multiple of
    /// `flap_interval` for ever. What is forwarded stays as it is.
    pub flap_every: u64,
    /// See `flap_every`; below 1 ms is taken for 1 ms.
    pub flap_interval: Duration,
    /// End the session of the n-th route received since the faults were set by a NOTIFICATION (Cease, Administrative
    /// Reset) behind that route; once. 0 for never.
    pub reset_after: u64,
    /// Send a malformed UPDATE behind the n-th route told since the faults were set, to the peer that was told it; once.
    /// 0 for never.
    pub malformed_after: u64,
    /// Send no KEEPALIVEs on sessions that are established.
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
    /// IPv4 packets with a wrong header checksum; it stays as wrong.
    Checksum,
    /// Packets with a TTL or hop limit of 1 or 0; it is counted down and wraps.
    Ttl,
    /// IPv4 packets with a source route. They go to their present destination.
    SourceRoute,
    /// IPv4 packets from an address that nobody has.
    Martian,
}

impl WrongFrame {
    /// Names, as in a suite.
    pub const NAMES: &'static [&'static str] = &["runt", "giant", "checksum", "ttl", "source_route", "martian"];

    /// Those of [`WrongFrame::NAMES`], in their order.
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
    /// Mend the checksums that were right, so that nothing but the content tells.
    pub fix_checksum: bool,
}

/// Sends frames to another port, to a neighbour known there if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Misroute {
    /// Every n-th frame; one that belongs to `to_port` anyway is not counted as misrouted.
    pub every: u64,
    /// The wrong port.
    pub to_port: usize,
}

/// Drops frames that a busier device would forward. Time is divided into intervals, beginning at every multiple of
/// `interval` since instant 0; the load of one is judged by the number of such frames that arrived in the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DropAtLowLoad {
    /// Every n-th frame.
    pub every: u64,
    /// Length of an interval; below 1 ns is taken for 1 ns.
    pub interval: Duration,
    /// The load is low when fewer frames than these arrived in the interval before.
    pub below_frames: u64,
}

/// Addresses frames to a station that is not their next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WrongNextHop {
    /// Every n-th frame; one that was misrouted too counts as both.
    pub every: u64,
    /// Whose address they get; [`NOBODY`] is nobody's.
    #[serde(with = "crate::config::mac")]
    pub mac: MacAddr,
}

/// Changes the encapsulation of frames: tags, labels, tunnel, DSCP, ECN or TTL, whichever the change is called by. Checksums and
/// lengths fit what leaves. A frame that has nothing to be changed so (no tag whose identifier could be wrong) leaves as it is
/// and is not counted. The outermost tag or label gets a wrong value; the innermost one is missing or too many. A tunnel that
/// should not be there is GRE with the addresses of the packet. A TTL is one less than it should be, or one more where that is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Encapsulation {
    /// Every n-th frame.
    pub every: u64,
    /// As what a tester that knows how the frame must arrive finds it.
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
    /// k: how many others pass it. After [`REORDER_LIMIT`] it goes in any case.
    pub positions: u64,
}

/// Another capacity for every frame whose service starts at `from` or later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sag {
    /// When.
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
    /// By how many bytes its memory does.
    pub bytes_per_second: u64,
}

impl Ageing {
    /// `each` times the seconds that have passed at `now`.
    fn grown(&self, each: u64, now: Instant) -> u64 {
        let passed = now.0.saturating_sub(self.from.0);
        u64::try_from(u128::from(each) * u128::from(passed) / 1_000_000_000).unwrap_or(u64::MAX)
    }

    /// The delay in ns that is there at `now`.
    pub(crate) fn delay_ns(&self, now: Instant) -> u64 {
        self.grown(u64::try_from(self.delay_per_second.as_nanos()).unwrap_or(u64::MAX), now)
    }

    /// The bytes.
    pub fn bytes(&self, now: Instant) -> u64 {
        self.grown(self.bytes_per_second, now)
    }
}

/// What becomes of echo requests to its own addresses while many frames wait for service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManagementFault {
    /// From so many frames that wait or are in service on.
    pub waiting: usize,
    /// Every n-th such request is not answered; 1 for all of them, 0 for none.
    pub drop_every: u64,
    /// The others are answered so much later.
    pub delay: Duration,
    /// Once there were so many frames, no request is ever answered again.
    pub dies: bool,
}

/// An LLDP frame at every multiple of the interval, the first after one interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnFrames {
    /// Time between two; below 1 µs is taken for 1 µs.
    pub interval: Duration,
    /// By which port.
    pub port: usize,
}

/// The load over time, as [`DropAtLowLoad`] judges it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LoadMeter {
    interval: u64,
    frames: u64,
    before: u64,
}

impl LoadMeter {
    /// A frame arrives at `at`: is the load low?
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

/// Is it the turn of frame `number`, counted from 1?
pub(crate) fn is_nth(number: u64, every: u64) -> bool {
    every != 0 && number.is_multiple_of(every)
}
