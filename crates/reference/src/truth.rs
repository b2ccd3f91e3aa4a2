//! Counts of what a reference device did.

use crate::rsvp::RsvpTruth;
use serde::{Deserialize, Serialize};

/// Exact counts, in frames, since the device started.
///
/// Two sums always hold: `received = control + ignored + transit`, and
/// `transit + duplicated = forwarded + dropped.total() + queued`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Truth {
    /// Frames received.
    pub received: u64,
    /// Received frames with ARP, Neighbor Discovery, or packets for the device's own addresses.
    pub control: u64,
    /// Received frames that the device ignores: to another MAC address, multicast and broadcast, of unknown types, with
    /// unknown tags, too short for Ethernet.
    pub ignored: u64,
    /// Ignored frames with VLAN tags that no sub-interface of the port has.
    pub unknown_vlan: u64,
    /// Ignored frames shorter than 64 bytes, with FCS.
    pub runts: u64,
    /// Ignored frames whose packet exceeds the MTU of the port.
    pub giants: u64,
    /// Ignored frames with IPv4 packets from or to addresses that no router forwards (RFC 1812 section 5.3.7).
    pub martians: u64,
    /// Received frames that are to be forwarded.
    pub transit: u64,
    /// Transit frames that have departed, including copies and misrouted frames.
    pub forwarded: u64,
    /// Transit frames that are still in the device.
    pub queued: u64,
    /// Transit frames that were dropped.
    pub dropped: Drops,
    /// Frames on which faults could act.
    pub test_frames: u64,
    /// Copies that a fault made.
    pub duplicated: u64,
    /// Frames with a wrong byte.
    pub corrupted: u64,
    /// Frames sent to the wrong port.
    pub misrouted: u64,
    /// Frames sent to a wrong neighbour.
    pub wrong_next_hop: u64,
    /// Frames whose TTL was not decremented, including those in tunnels.
    pub ttl_kept: u64,
    /// Packets sent into tunnels.
    pub tunnelled: u64,
    /// Packets that arrived with the label of one VRF and were forwarded by the routes of another; see
    /// [`crate::Faults::swap_vpn_labels`].
    pub vpn_swapped: u64,
    /// Packets whose label was removed instead of swapped; see [`crate::Faults::label_pop_every`].
    pub label_popped: u64,
    /// Frames sent with another encapsulation.
    pub encapsulation: u64,
    /// Frames sent late.
    pub held: u64,
    /// Frames that were overtaken by the configured number of other frames.
    pub reordered: u64,
    /// Frames that a fault held back but released early, because too few frames followed in time.
    pub reorder_expired: u64,
    /// Unsolicited frames sent.
    pub own_frames: u64,
    /// Frames that the filter denied but the device forwarded; see [`crate::Faults::filter_leak_every`].
    pub leaked: u64,
    /// Counters of BGP.
    pub bgp: BgpTruth,
    /// BGP routes in the forwarding table.
    pub fib: FibTruth,
    /// OSPF, LDP and BFD.
    pub igp: IgpTruth,
    /// BFD with the neighbours of VRFs.
    #[serde(default)]
    pub vrf_bfd: BfdTruth,
    /// Counters of RSVP-TE.
    pub rsvp: RsvpTruth,
    /// ICMP errors sent.
    pub icmp_errors: u64,
    /// ICMP errors sent a second time; see [`crate::Faults::icmp_twice_every`].
    pub icmp_repeated: u64,
    /// ICMP errors that the rate limit suppressed.
    pub icmp_suppressed: u64,
    /// Echo replies sent.
    pub echo_replies: u64,
    /// ARP replies and neighbor advertisements sent.
    pub resolution_replies: u64,
    /// ARP requests and neighbor solicitations sent.
    pub resolution_requests: u64,
    /// Frames of any kind that were lost between the device's links and the device, and so are not in `received`: see
    /// [`crate::Router::note_receive_overflow`]. 0 in virtual time.
    pub receive_overflow: u64,
    /// Frames of any kind that a link of the device refused; refused transit frames are also in `forwarded`. See
    /// [`crate::Router::note_transmit_refused`]. 0 in virtual time.
    pub transmit_refused: u64,
}

/// Dropped transit frames by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drops {
    /// The lengths or the version in the IP header are wrong.
    pub malformed: u64,
    /// Wrong IPv4 header checksum.
    pub checksum: u64,
    /// The IPv4 options contain a source route (RFC 7126 section 4.3).
    pub source_route: u64,
    /// Denied by the filter; see [`crate::Config::filter`].
    pub filtered: u64,
    /// TTL or hop limit expired.
    pub ttl: u64,
    /// No route.
    pub no_route: u64,
    /// The forwarding table has no room for the route; see [`crate::Config::fib_limit`].
    pub fib_full: u64,
    /// No entry for the outermost label.
    pub no_label: u64,
    /// The packet is larger than the MTU.
    pub mtu: u64,
    /// The next hop did not answer, or too many frames waited for it.
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
    /// [`crate::Faults::drop_growth`].
    pub fault_growth: u64,
    /// [`crate::BgpFaults::blackhole_every`].
    pub fault_blackhole: u64,
    /// [`crate::Faults::filter_deny_every`].
    pub fault_filter: u64,
    /// [`crate::Faults::extension_drop_every`].
    pub fault_extension: u64,
    /// [`crate::ClassFaults::drop_every`].
    pub fault_class: u64,
    /// [`crate::Faults::input_queue`].
    pub fault_input_queue: u64,
    /// [`crate::Faults::tunnel_drop_every`].
    pub fault_tunnel: u64,
    /// The link of the output port is down; see [`crate::Router::set_link`].
    pub link_down: u64,
}

impl Drops {
    /// The sum of all drops.
    pub fn total(&self) -> u64 {
        let Drops { malformed, checksum, filtered, ttl, no_route, no_label, mtu, unresolved, .. } = *self;
        let Drops { fib_full, buffer, egress, .. } = *self;
        let errors = malformed + checksum + filtered + ttl + no_route + no_label + mtu + unresolved;
        errors + self.source_route + fib_full + buffer + egress + self.link_down + self.faults()
    }

    /// The drops that faults caused.
    pub fn faults(&self) -> u64 {
        self.fault_every
            + self.fault_share
            + self.fault_window
            + self.fault_low_load
            + self.fault_growth
            + self.fault_blackhole
            + self.fault_filter
            + self.fault_extension
            + self.fault_class
            + self.fault_input_queue
            + self.fault_tunnel
    }
}

/// Counters of BGP since the device started. "Routes" are prefixes in UPDATEs; a prefix counts every time it appears.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BgpTruth {
    /// Sessions that are established now.
    pub sessions: u64,
    /// Sessions established so far.
    pub established: u64,
    /// NOTIFICATIONs sent.
    pub notifications_sent: u64,
    /// NOTIFICATIONs received.
    pub notifications_received: u64,
    /// UPDATEs received.
    pub updates_received: u64,
    /// Routes announced to the device.
    pub routes_received: u64,
    /// Routes withdrawn from the device.
    pub withdrawals_received: u64,
    /// Received routes that are not used because their path contains this device's AS.
    pub looped: u64,
    /// Received routes that are not used because their next hop is not on the link of the peer, or because their label
    /// is reserved.
    pub unreachable: u64,
    /// Received VPN routes that no VRF imports.
    pub not_imported: u64,
    /// Received routes that were not kept because there was no room ([`crate::BgpConfig::rib_limit`]).
    pub over_limit: u64,
    /// Received routes that were treated as withdrawn because their attributes were malformed (RFC 7606).
    pub treated_as_withdrawn: u64,
    /// Paths in all Adj-RIBs-In now.
    pub paths: u64,
    /// Prefixes with a best path now.
    pub routes: u64,
    /// Changes made to the forwarding table.
    pub fib_changes: u64,
    /// Pending changes of the forwarding table.
    pub fib_backlog: u64,
    /// Time of the last change, in ns of the device's clock.
    pub fib_changed_at: u64,
    /// UPDATEs passed to TCP.
    pub updates_sent: u64,
    /// Routes announced in these UPDATEs.
    pub routes_sent: u64,
    /// Routes withdrawn in these UPDATEs.
    pub withdrawals_sent: u64,
    /// Time when the last UPDATE was passed to TCP, in ns of the device's clock.
    pub sent_at: u64,
    /// Sent routes with a wrong next hop.
    pub wrong_next_hop: u64,
    /// Sent routes with a wrong AS path.
    pub wrong_as_path: u64,
    /// Routes that should have been advertised to a peer but were not.
    pub lost: u64,
    /// Imports into a wrong VRF; see [`crate::BgpFaults::leak_vpn_route`].
    pub leaked: u64,
    /// Malformed UPDATEs sent.
    pub malformed_sent: u64,
    /// KEEPALIVEs that a fault suppressed.
    pub silenced: u64,
}

/// OSPF, LDP and BFD: state now, and counts since the device started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IgpTruth {
    /// Neighbours in state Full now.
    pub ospf_full: u64,
    /// LSAs in the database now.
    pub lsas: u64,
    /// LSAs that a fault held back ([`crate::IgpFaults::late_lsa_flooding`]).
    pub lsas_late: u64,
    /// LSAs for which there was no room.
    pub lsas_not_stored: u64,
    /// Computations of the routes.
    pub spf_runs: u64,
    /// Routes of OSPF now.
    pub routes: u64,
    /// Changes made to the forwarding table.
    pub fib_changes: u64,
    /// Pending changes of the forwarding table.
    pub fib_backlog: u64,
    /// Time of the last change, in ns of the device's clock.
    pub fib_changed_at: u64,
    /// Operational LDP sessions now.
    pub ldp_sessions: u64,
    /// LDP sessions established so far.
    pub ldp_established: u64,
    /// Labels that LDP peers advertise now.
    pub labels_received: u64,
    /// Labels that the device advertises to every LDP peer now, without implicit null.
    pub labels_sent: u64,
    /// Prefixes for which a fault makes the device advertise implicit null now; see [`crate::IgpFaults::implicit_null_every`].
    #[serde(default)]
    pub labels_null: u64,
    /// BFD sessions in state Up now.
    pub bfd_up: u64,
    /// BFD packets that a fault suppressed.
    pub bfd_missing: u64,
}

/// BFD sessions outside the core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BfdTruth {
    /// Sessions in state Up now.
    pub up: u64,
    /// How often a session left Up.
    pub downs: u64,
    /// Packets that a fault suppressed.
    pub missing: u64,
}

/// BGP routes in the forwarding table now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FibTruth {
    /// IPv4 routes that forward.
    pub ipv4: u64,
    /// IPv6 routes that forward.
    pub ipv6: u64,
    /// Routes of all VRFs that forward.
    pub vpn: u64,
    /// Routes for which there is no room; packets to them are dropped.
    pub without_room: u64,
    /// Routes that have room but do not forward ([`crate::BgpFaults::blackhole_every`]).
    pub sunk: u64,
}

/// Counters of one port, named as in RFC 2863. Octets include the FCS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortCounters {
    /// ifHCInOctets.
    pub in_octets: u64,
    /// ifHCInUcastPkts.
    pub in_unicast: u64,
    /// ifHCInMulticastPkts and ifHCInBroadcastPkts together.
    pub in_group: u64,
    /// ifInDiscards: the buffer had no room.
    pub in_discards: u64,
    /// ifInErrors: not an Ethernet frame.
    pub in_errors: u64,
    /// ifHCOutOctets.
    pub out_octets: u64,
    /// ifHCOutUcastPkts.
    pub out_unicast: u64,
    /// ifHCOutMulticastPkts and ifHCOutBroadcastPkts together.
    pub out_group: u64,
    /// ifOutDiscards: the buffer of the line had no room.
    pub out_discards: u64,
}
