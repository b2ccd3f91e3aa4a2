//! The reference device: a simulated router whose behaviour is known exactly, for testing the tester.
//!
//! It does no I/O and reads no clock: frames and instants go in, frames and instants come out. [`Truth`] reports
//! exactly what it did, so that a test of the tester compares two sets of figures that must be equal.
//!
//! # What is exact
//!
//! - **Order of time.** [`Router::receive`] must be called with instants that do not go back; an earlier one is
//!   replaced by the latest seen. The instant of a frame is the time when its last bit has arrived.
//! - **Immediate drops.** A frame that no router may forward (wrong address, malformed, wrong IPv4 header checksum, TTL
//!   or hop limit 1 or 0, no route, larger than the MTU of the output port) is dropped when it arrives and uses none of
//!   the capacity. Nothing is fragmented.
//! - **Filter.** The first matching rule of a list decides, and a denied frame is dropped immediately and uses none of
//!   the capacity. Lists on ingress act after the checks of the header, those on egress when the output port is known.
//!   Each rule that was evaluated for a frame makes its service longer by [`Config::filter_time_per_rule`]; not for
//!   frames that had to wait for a neighbour.
//! - **One server for the box.** With a capacity of `c` frames per second, a frame that arrives at `a` starts at
//!   `max(a, end of service of the frame before it)` and ends `10^9 / c` ns later. This is kept as an exact fraction;
//!   only the end is rounded, up to a whole ns. At any evenly spaced load up to `c`, with a buffer of 2 or more,
//!   nothing is ever lost.
//! - **Buffer.** If `buffer` frames already wait or are in service at `a`, the frame is dropped at the tail. A frame
//!   whose service ends at `a` or before has left. So of a burst that arrives in one instant, exactly `buffer` frames
//!   survive.
//! - **Classes**, if there are any, replace the single buffer: see [`Class`].
//! - **Delay.** `end of service + delay + v`, `v` uniform in `[0, jitter]` from the seed; this never makes frames to
//!   one port overtake each other.
//! - **Line.** With a speed, a frame of `n` bytes (FCS included) then takes `8 (n + 20) / speed` on the wire of its port,
//!   one after the other, at most `egress_buffer` waiting or on the wire. It departs when its last bit is out.
//! - **Classes of a line** ([`Router::set_classes`]) replace the line's speed and buffer: each class has a queue, and
//!   the line serves up to `weight` frames of each in turn (all weights divided by their greatest common divisor),
//!   skipping those that have none waiting. With strict priority it serves the class with the highest weight that has a
//!   frame waiting.
//! - **Control.** ARP, Neighbor Discovery, ICMP and frames that the device originates have a separate path: they
//!   neither wait nor make others wait, and depart when their cause arrives.
//! - **Routes** are connected, static and from BGP ([`BgpConfig`]), in this order of preference for one prefix. [`rib`]
//!   documents what BGP does and when: a route of instant `t` is re-advertised at `t + propagation_delay` and forwards
//!   from `t + fib_delay` on, or later if `fib_time_per_route` requires a longer time since the previous change.
//! - **Links** that are down ([`Router::set_link`]) carry nothing in either direction, and end the sessions over them.
//! - **Several devices** ([`Network`]) are separate routers, joined by links on which a frame takes the link's delay in
//!   addition to the time of the line.
//! - **Sub-interfaces** ([`SubInterface`]) are separate links behind VLAN tags. A frame with tags that match no
//!   sub-interface of its port is ignored and counted. Tags are removed when a frame arrives, and those of the output
//!   port are added before the line.
//! - **Labels.** A packet with MPLS labels is forwarded by the entry of its outermost label ([`LabelRoute`]); without
//!   entries, frames with labels are ignored. Filters do not look behind labels, and dropped labelled packets are not
//!   reported by ICMP.
//! - **Tunnels** ([`Config::tunnels`]) carry IPv4 in GRE. The TTL of a packet is decremented once when it enters a
//!   tunnel, as for any other packet, and again by the router at the other end; routers in between see only the outer
//!   header. The outer packet may not be fragmented; a packet larger than the tunnel's MTU is dropped, and reported
//!   like one larger than that of a link. Filters on egress ignore packets that enter a tunnel, those on ingress
//!   packets that leave one.
//! - **Policies** ([`Config::policies`]) replace the routes, by the interface or tunnel at which an IPv4 packet
//!   arrived; they do not apply to packets for the device itself.
//! - **ICMP errors** of IPv4 are routed to their destination if the neighbour is known, otherwise they return by the
//!   way that the packet came.
//! - **Faults** act on UDP, TCP and ICMP echo frames, in tunnels too, that the server has accepted, counted over the whole box from 1; see [`Faults`].
//!
//! # What it shares with the tester, and what not
//!
//! The reference device shares sessions and TCP with `emulation`, but nothing else of BGP: it has its own RIB
//! (`reference/src/rib`, RFC 4271 section 9.1), FIB (`fib.rs`), and reader and writer of UPDATEs
//! (`reference/src/speaker/`). So it does not repeat mistakes of the tester. `reference/tests/device/bgp_routes.rs`
//! compares the two implementations, `reference/tests/speakers` compares the device's reader and writer with
//! netgauze-bgp-pkt. (netgauze cannot replace the reader: after some malformed attributes it loses the routes that RFC
//! 7606 treats as withdrawn, and it takes twice as long.)
//!
//! With VLAN tags, frames belong to sub-interfaces (`interfaces.rs`); `router/forward.rs` removes tags on arrival and
//! adds them on departure. Packets with MPLS labels follow the static entries of the role (`labels.rs`). `tunnels.rs`
//! has the headers of GRE, `router/tunnelling.rs` the way into tunnels and out of them, and policies.
//! `encapsulation.rs` changes headers on purpose; each change has the name of the `Deviation` that the analyzer must
//! report. All faults start when the bench has found the device forwarding (`Dut::forwards`).
//!
//! With `links: veth` or `tap` the device is a separate process, so that sockets, timestamps and loops of the tester
//! are tested as well:
//!
//! - `lab::Program` starts an executable on the DUT's processor and exchanges lines with it over a socket. It does not
//!   know what it is.
//! - `testbed/src/device/mod.rs` writes the configuration and starts this program with the hidden subcommand
//!   `reference-device`. `process.rs` is its loop: it passes frames to the router at the kernel's time of arrival, so
//!   decisions do not depend on scheduling. Its own losses are counted as `receive_overflow` and `transmit_refused`.

mod class_line;
mod classes;
mod config;
mod egress;
mod encapsulation;
mod faults;
mod fib;
mod filter;
mod greeter;
mod input_queue;
mod interfaces;
mod labels;
mod moment;
mod neighbours;
mod network;
mod pool;
mod random;
pub mod rib;
mod router;
mod server;
mod speaker;
mod table;
mod truth;
pub mod tunnels;

pub use classes::{Class, ClassCounters};
pub use config::{Beyond, BgpConfig, BgpPeer, Config, ConfigError, PortConfig, RibLimit, Route};
pub use drophammer_model::filter::{FilterDirection, FilterList, FilterRule};
pub use faults::{
    Ageing, BgpFaults, ClassFaults, Corrupt, DropAtLowLoad, DropGrowth, Encapsulation, Faults, Hold, ManagementFault,
    Misroute, NOBODY, OwnFrames, REORDER_LIMIT, Reorder, Sag, WrongFrame, WrongNextHop,
};
pub use interfaces::SubInterface;
pub use labels::LabelRoute;
pub use network::{Network, NetworkConfig, RankedRoute};
pub use router::Router;
pub use truth::{BgpTruth, Drops, FibTruth, PortCounters, Truth};
pub use tunnels::TunnelCounters;
