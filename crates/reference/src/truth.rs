//! What a reference device really did.

use serde::{Deserialize, Serialize};

/// Exact counts, in frames, since the device was made.
///
/// Two sums always hold: `received = control + ignored + transit`, and
/// `transit + duplicated = forwarded + dropped.total() + queued`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Truth {
    /// Frames that came in.
    pub received: u64,
    /// Of these: ARP, Neighbor Discovery and whatever is for the device's own addresses.
    pub control: u64,
    /// Of these: to another MAC address, multicast and broadcast, unknown types, too short for Ethernet.
    pub ignored: u64,
    /// Of these: to be forwarded.
    pub transit: u64,
    /// Transit frames that have departed, copies and misrouted ones included.
    pub forwarded: u64,
    /// Transit frames that are in the device.
    pub queued: u64,
    /// Transit frames that are no more.
    pub dropped: Drops,
    /// UDP frames that the faults have seen.
    pub test_frames: u64,
    /// Copies made.
    pub duplicated: u64,
    /// Frames with a wrong byte.
    pub corrupted: u64,
    /// Frames sent to the wrong port.
    pub misrouted: u64,
    /// Frames sent to a wrong neighbour.
    pub wrong_next_hop: u64,
    /// Frames sent late.
    pub held: u64,
    /// Frames overtaken by as many others as asked for.
    pub reordered: u64,
    /// Frames that were to be overtaken but went before, because too few others followed in time.
    pub reorder_expired: u64,
    /// Frames sent unasked.
    pub own_frames: u64,
    /// ICMP errors sent.
    pub icmp_errors: u64,
    /// ICMP errors that the rate limit held back.
    pub icmp_suppressed: u64,
    /// Echo replies sent.
    pub echo_replies: u64,
    /// ARP replies and neighbor advertisements sent.
    pub resolution_replies: u64,
    /// ARP requests and neighbor solicitations sent.
    pub resolution_requests: u64,
    /// Frames of any kind that came to the device's links and were lost before they reached it, so that they are not in
    /// `received`: see [`crate::Router::note_receive_overflow`]. 0 in virtual time.
    pub receive_overflow: u64,
    /// Frames of any kind, in `forwarded` where they are transit, that a link of the device refused: see
    /// [`crate::Router::note_transmit_refused`]. 0 in virtual time.
    pub transmit_refused: u64,
}

/// Dropped transit frames by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drops {
    /// Lengths or version of the IP header are wrong.
    pub malformed: u64,
    /// Wrong IPv4 header checksum.
    pub checksum: u64,
    /// Denied by the filter; see [`crate::Config::filter`].
    pub filtered: u64,
    /// TTL or hop limit used up.
    pub ttl: u64,
    /// No route.
    pub no_route: u64,
    /// A route that the forwarding table has no room for; see [`crate::Config::fib_limit`].
    pub fib_full: u64,
    /// Larger than the MTU.
    pub mtu: u64,
    /// The next hop did not answer, or too many waited for it.
    pub unresolved: u64,
    /// The buffer of the server was full.
    pub buffer: u64,
    /// The buffer of the line was full.
    pub egress: u64,
    /// [`crate::Faults::drop_every`].
    pub fault_every: u64,
    /// [`crate::Faults::drop_share`].
    pub fault_share: u64,
    /// [`crate::Faults::drop_window`].
    pub fault_window: u64,
    /// [`crate::Faults::drop_at_low_load`].
    pub fault_low_load: u64,
}

impl Drops {
    /// All of them.
    pub fn total(&self) -> u64 {
        let Drops { malformed, checksum, filtered, ttl, no_route, fib_full, mtu, unresolved, buffer, egress, .. } =
            *self;
        malformed + checksum + filtered + ttl + no_route + fib_full + mtu + unresolved + buffer + egress + self.faults()
    }

    /// Those that are faults.
    pub fn faults(&self) -> u64 {
        self.fault_every + self.fault_share + self.fault_window + self.fault_low_load
    }
}

/// Counters of one port, after the interfaces group of RFC 2863. Octets include the FCS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortCounters {
    /// ifHCInOctets.
    pub in_octets: u64,
    /// ifHCInUcastPkts.
    pub in_unicast: u64,
    /// ifHCInMulticastPkts and ifHCInBroadcastPkts together.
    pub in_group: u64,
    /// ifInDiscards: no room in the buffer.
    pub in_discards: u64,
    /// ifInErrors: no Ethernet frame.
    pub in_errors: u64,
    /// ifHCOutOctets.
    pub out_octets: u64,
    /// ifHCOutUcastPkts.
    pub out_unicast: u64,
    /// ifHCOutMulticastPkts and ifHCOutBroadcastPkts together.
    pub out_group: u64,
    /// ifOutDiscards: no room for the line.
    pub out_discards: u64,
}
