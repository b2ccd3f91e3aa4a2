//! The reference device: a simulated router whose exact behaviour is known. It tests the tester.
//!
//! It does no I/O and reads no clock: frames and instants go in, frames and instants come out. [`Truth`] reports
//! exactly what the device did, so a test of the tester compares two sets of figures that must be equal.
//!
//! # What is exact
//!
//! - **Time order.** Call [`Router::receive`] with instants that never go back; an earlier instant is replaced by the
//!   latest one seen. The instant of a frame is the time when its last bit arrived.
//! - **Immediate drops.** A frame that no router may forward (wrong address, malformed, wrong IPv4 header checksum, TTL
//!   or hop limit 1 or 0, no route, larger than the MTU of the output port) is dropped when it arrives and uses none of
//!   the capacity. Nothing is fragmented.
//! - **Filter.** The first matching rule of a list decides, and a denied frame is dropped immediately and uses none of
//!   the capacity. Lists on ingress act after the checks of the header, those on egress when the output port is known.
//!   Each rule evaluated for a frame adds [`Config::filter_time_per_rule`] to its service, except for frames that had
//!   to wait for a neighbour.
//! - **One server for the device.** With a capacity of `c` frames per second, the service of a frame that arrives at
//!   `a` starts at `max(a, end of service of the frame before it)` and ends `10^9 / c` ns later. Times are exact
//!   fractions; only the end is rounded, up to a whole ns. An evenly spaced load up to `c` loses nothing if the buffer
//!   is 2 or more.
//! - **Buffer.** A frame that finds `buffer` frames waiting or in service at `a` is dropped (tail drop). A frame whose
//!   service ends at or before `a` has left. So exactly `buffer` frames survive of a burst that arrives in one instant.
//! - **Classes** replace the single buffer if the configuration has any: see [`Class`].
//! - **Delay.** `end of service + delay + v`, `v` uniform in `[0, jitter]`, drawn from the seed. Frames to one port
//!   never overtake each other.
//! - **Line.** With a speed, a frame of `n` bytes (FCS included) then takes `8 (n + 20) / speed` on the wire of its
//!   port. Frames follow one after the other, and at most `egress_buffer` frames wait or are on the wire. A frame
//!   departs when its last bit is out.
//! - **Classes of a line** ([`Router::set_classes`]) replace the line's speed and buffer: each class has a queue, and
//!   the line serves up to `weight` frames of each in turn (all weights divided by their greatest common divisor),
//!   skipping empty queues. With strict priority it serves the class with the highest weight among those with a frame
//!   waiting.
//! - **Control.** ARP, Neighbor Discovery, ICMP and the device's own frames take a separate path: they neither wait nor
//!   delay other frames, and depart at the instant that caused them.
//! - **Routes** are connected, static, from OSPF ([`CoreConfig`]) and from BGP ([`BgpConfig`]), in this order of preference for one prefix. `rib`
//!   documents the timing of BGP: a route that arrives at `t` is re-advertised at `t + propagation_delay` and forwards
//!   from `t + fib_delay` on, or later if `fib_time_per_route` requires a longer time since the previous change.
//! - **Core links** ([`CoreConfig`]) have OSPF, LDP and BFD. The routes of OSPF are computed [`SPF_DELAY`] after the first change of the
//!   database since the last computation, and enter the forwarding table with the labels of LDP after
//!   [`CoreConfig::fib_delay`]; `igp/mod.rs` documents how. [`Router::route_to`] tells the interface, next hop and labels of an address.
//! - **Links** that are down ([`Router::set_link`]) carry nothing in either direction, and end the BGP sessions over them.
//! - **Several devices** ([`Network`]) are separate routers, connected by links. A link adds its delay to the time on
//!   the line.
//! - **Sub-interfaces** ([`SubInterface`]) are separate links behind VLAN tags. A frame whose tags match no
//!   sub-interface of its port is ignored and counted. The device removes tags on arrival and adds the tags of the
//!   output interface before the line.
//! - **Labels.** A packet with MPLS labels is forwarded by the entry of its outermost label ([`LabelRoute`]); a device
//!   without entries ignores frames with labels. Filters do not look behind labels, and the device sends no ICMP errors
//!   about labelled packets.
//! - **VRFs** ([`Config::vrfs`]) have a sub-interface and a table each. A packet from a sub-interface or with the label of a
//!   VRF follows the routes of this VRF alone; `rib` documents them. With a route to a PE router, the label of the route
//!   is pushed below the labels of the device's own route to this router. A neighbour in a VRF may have a BFD session ([`Vrf::bfd`]): when
//!   it goes down, the BGP sessions on its link end with the Cease "BFD Down".
//! - **LSPs** ([`RsvpConfig`]) through the device add label entries while they are reserved.
//! - **Tunnels** ([`Config::tunnels`]) carry IPv4 in GRE. The TTL of a packet is decremented when it enters a tunnel,
//!   like that of any packet, and again by the router at the other end; routers in between see only the outer header.
//!   The outer packet may not be fragmented. A packet larger than the tunnel's MTU is dropped and reported, as if it
//!   exceeded the MTU of a link. Egress filters ignore packets that enter a tunnel, and ingress filters ignore packets
//!   that leave one.
//! - **Policies** ([`Config::policies`]) replace the routes for IPv4 packets that arrive at an interface or from a tunnel,
//!   except for packets to the device itself.
//! - **ICMP errors** of IPv4 follow the routes if the MAC address of the next hop is known; otherwise they return
//!   through the interface on which the packet arrived.
//! - **Faults** act on UDP, TCP and ICMP echo frames (also inside tunnels) that the server accepted, numbered from 1
//!   over the whole device; see [`Faults`].
//!
//! # What it shares with the tester
//!
//! The reference device shares BGP sessions and TCP with `emulation`, and no other part of routing protocols: OSPF, LDP and BFD are its own. For BGP, it has its own RIB
//! (`reference/src/rib`, RFC 4271 section 9.1), FIB (`fib.rs`), and reader and writer of UPDATEs
//! (`reference/src/speaker/`). So a mistake in the tester is not repeated here. `reference/tests/device/bgp_routes.rs`
//! compares the two implementations, and `reference/tests/speakers` compares the device's reader and writer with
//! netgauze-bgp-pkt. (netgauze cannot replace the reader: after some malformed attributes it loses the routes that RFC
//! 7606 treats as withdrawn, and it takes twice as long.)
//!
//! It shares the bytes of RSVP-TE messages (`wire`) with the tester; states, timers and neighbours (`reference/src/rsvp`) are its own.
//!
//! With VLAN tags, frames belong to sub-interfaces (`interfaces.rs`); `router/forward.rs` removes tags on arrival and
//! adds them on departure. Packets with MPLS labels follow the static entries of the role (`labels.rs`), or lose the label of
//! a VRF (`router/vpn.rs`). `speaker/import.rs` decides which VRFs import a route. `tunnels.rs`
//! reads and writes the GRE headers; `router/tunnelling.rs` moves packets into and out of tunnels, and applies the
//! policies. `encapsulation.rs` changes headers on purpose; each change has the name of the `Deviation` that the
//! analyzer must report. All faults start when the bench has verified that the device forwards (`Dut::forwards`).
//!
//! With `links: veth` or `tap` the device runs in a separate process, which also tests the tester's sockets, timestamps
//! and loops:
//!
//! - `lab::Program` starts any executable on the DUT's processor and exchanges lines with it over a socket.
//! - `testbed/src/device/mod.rs` writes the configuration and starts this program with the hidden subcommand
//!   `reference-device`. `process.rs` is its loop: it passes frames to the router with the kernel's arrival timestamp,
//!   so decisions do not depend on scheduling. Its own losses are counted as `receive_overflow` and `transmit_refused`.

mod bfd;
mod class_line;
mod classes;
mod config;
mod egress;
mod encapsulation;
mod faults;
mod fib;
mod filter;
mod greeter;
mod igp;
mod interfaces;
mod labels;
mod ldp;
mod moment;
mod neighbours;
mod network;
mod ospf;
mod pool;
mod random;
mod rib;
mod router;
mod rsvp;
mod server;
mod speaker;
mod table;
mod truth;
mod tunnels;
mod vpn;
mod vrf_bfd;

pub use classes::{Class, ClassCounters};
pub use config::{Beyond, BgpConfig, BgpPeer, Config, ConfigError, PortConfig, RibLimit, Route, Vrf};
pub use drophammer_model::filter::{FilterDirection, FilterList, FilterRule};
pub use faults::{
    Ageing, BgpFaults, ClassFaults, Corrupt, DropAtLowLoad, DropGrowth, Encapsulation, Faults, Hold, IgpFaults,
    ManagementFault, Misroute, NOBODY, OwnFrames, REORDER_LIMIT, Reorder, Sag, WrongFrame, WrongNextHop,
};
pub use igp::CoreConfig;
pub use interfaces::SubInterface;
pub use labels::LabelRoute;
pub use ldp::LABELS as LDP_LABELS;
pub use network::{Network, NetworkConfig, RankedRoute};
pub use ospf::SPF_DELAY;
pub use router::{Resolved, Router};
pub use rsvp::{RsvpConfig, RsvpTruth};
pub use truth::{BfdTruth, BgpTruth, Drops, FibTruth, IgpTruth, PortCounters, Truth};
pub use tunnels::TunnelCounters;
pub use vpn::FIRST_VRF_LABEL;
