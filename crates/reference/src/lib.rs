//! The reference device: a simulated router whose every answer is known, to test the tester with.
//!
//! It does no I/O and reads no clock: frames and instants go in, frames and instants come out. What it did is told
//! exactly by [`Truth`], so that a test of the tester compares two sets of figures that must be equal.
//!
//! # What is exact
//!
//! - **Order of time.** [`Router::receive`] must be called with instants that do not go back; an earlier one is taken for
//!   the latest seen. An instant is when the last bit of a frame is in.
//! - **What is judged at once.** A frame that no router may forward (wrong address, malformed, wrong IPv4 header
//!   checksum, TTL or hop limit 1 or 0, no route, larger than the MTU of the output port) is dropped when it arrives and
//!   takes nothing of the capacity. Nothing is fragmented.
//! - **Filter.** Of a list of rules the first one that matches decides, and what is denied is dropped at once and takes nothing of the
//!   capacity. Lists on ingress act behind the checks of the header, those on egress when the output port is known. Each rule that was looked at for a
//!   frame makes its service longer by [`Config::filter_time_per_rule`]; not for frames that had to wait for a neighbour.
//! - **One server for the box.** With a capacity of `c` frames per second, a frame that arrives at `a` starts at
//!   `max(a, end of service of the frame before it)` and ends `10^9 / c` ns later. This is kept as an exact fraction; only
//!   the end is rounded, up to a whole ns. At any load that is evenly spaced and not above `c`, with a buffer of 2 or more, nothing is ever lost.
//! - **Buffer.** If at `a` already `buffer` frames wait or are in service, the frame is dropped at the tail. A frame whose
//!   service ends at `a` or before is gone. So of a burst that arrives in one instant, exactly `buffer` frames survive.
//! - **Classes**, where there are any, stand in place of the one buffer: see [`Class`].
//! - **Delay.** `end of service + delay + v`, `v` uniform in `[0, jitter]` from the seed; frames to one port never
//!   overtake each other for it.
//! - **Line.** With a speed, a frame of `n` bytes (FCS included) then takes `8 (n + 20) / speed` on the wire of its port,
//!   one after the other, at most `egress_buffer` waiting or on the wire. It departs when its last bit is out.
//! - **Classes of a line** ([`Router::set_classes`]) stand in place of the line's speed and buffer: each class has a queue, and the line serves up
//!   to `weight` frames of each in turn (all weights divided by their greatest common divisor), passing over those that have none waiting. With
//!   strict priority it serves the class with the highest weight that has a frame waiting.
//! - **Control.** ARP, Neighbor Discovery, ICMP and frames of its own have a path of their own: they neither wait nor
//!   make others wait, and depart when their cause arrives.
//! - **Routes** are the device's own, static ones and those of BGP ([`BgpConfig`]), in this order for one prefix. What BGP does
//!   and when is told by [`rib`]: a route of instant `t` is re-advertised at `t + propagation_delay` and forwards from
//!   `t + fib_delay` on, or as long after the change before it as `fib_time_per_route` says.
//! - **Links** that are down ([`Router::set_link`]) carry nothing in either direction, and end the sessions over them.
//! - **Several devices** ([`Network`]) are routers of their own, joined by links on which a frame takes the link's delay beyond the time of the line.
//! - **Sub-interfaces** ([`SubInterface`]) are links of their own behind VLAN tags. A frame with tags that no sub-interface of its port
//!   has is ignored and counted. Tags are taken off when a frame arrives, and those of the output port put on before the line.
//! - **Labels.** A packet with MPLS labels goes where the entry of its outermost one leads ([`LabelRoute`]); without entries, frames with
//!   labels are ignored. Filters do not look behind labels, and nobody is told of labelled packets that are dropped.
//! - **Tunnels** ([`Config::tunnels`]) carry IPv4 in GRE. What is sent into one is counted down once, like any other packet, and again by the router at
//!   the other end; routers in between see the outer header only. The outer packet may not be fragmented; a packet beyond the tunnel's MTU is
//!   dropped, and reported as one beyond that of a link. Filters on egress do not look at what goes into a tunnel, those on ingress not at what comes out.
//! - **Policies** ([`Config::policies`]) decide in place of the routes, by the interface or tunnel that a packet of IPv4 came by; not on packets for the device
//!   itself.
//! - **ICMP errors** of IPv4 go to their destination by the routes where the neighbour is known, else back by the way that the packet came.
//! - **Faults** act on UDP, TCP and ICMP echo frames, in tunnels too, that the server has accepted, counted over the whole box from 1; see [`Faults`].

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
    Ageing, BgpFaults, ClassFaults, Corrupt, DropAtLowLoad, Encapsulation, Faults, Hold, ManagementFault, Misroute,
    NOBODY, OwnFrames, REORDER_LIMIT, Reorder, Sag, WrongFrame, WrongNextHop,
};
pub use interfaces::SubInterface;
pub use labels::LabelRoute;
pub use network::{Network, NetworkConfig, RankedRoute};
pub use router::Router;
pub use truth::{BgpTruth, Drops, FibTruth, PortCounters, Truth};
pub use tunnels::TunnelCounters;
