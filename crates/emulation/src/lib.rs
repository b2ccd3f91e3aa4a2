//! Emulated devices, without I/O: the input is bytes and an instant, the output is bytes and the next deadline.
//!
//! The DUT sees a [`device::Device`] on one of its links: a MAC address, up to two VLAN tags, addresses and address
//! ranges, a gateway, one TCP stack ([`tcp`]), and protocols. [`device::Devices`] contains all devices of one port. All
//! protocols implement [`protocol::Protocol`]: [`arp`], [`nd`], [`ping`], [`banner`], [`bfd`], [`bgp`], [`ldp`], [`ospf`] and [`rsvp`];
//! [`protocol::ProtocolConfig`] lists all of them. An [`expectation`] compares received keys of any type with the
//! expected keys.
//!
//! # Emulated devices
//!
//! - **Dispatch** (`registry.rs`). A hash map finds the device by tags and MAC address. ARP requests, neighbor
//!   solicitations and announcements go to the devices whose address or gateway they contain, multicast frames to
//!   members, and broadcast frames to all devices with the same tags. Two devices with the same tags must not have a
//!   MAC or IP address in common.
//! - **Idle devices cost nothing.** `Devices` keeps a heap of deadlines and a queue of devices with work. A poll sends
//!   a limited number of bytes; the remaining devices go first at the next poll.
//! - **Headers.** Devices read packets with the `Repr` types of `wire`, not with `wire::stack::locate`: a `Repr` also
//!   verifies lengths and checksums and returns values, while `locate` only returns the positions of up to 16 headers.
//! - **Protocols.** `trait Protocol` (`protocol.rs`) defines match rules, input, poll, next deadline, command and
//!   state. The device parses Ethernet, tags, IP and UDP. A protocol sends through `Output`. `tests/exchanges/new_protocol.rs` is
//!   a complete example.
//! - **TCP** (`emulation/src/tcp`, smoltcp inside) is part of the device. Protocols add addresses and listeners, and
//!   receive connections as input. `tcp/protection.rs` implements TCP MD5 and GTSM.
//! - **Address resolution** (`device/resolution.rs`) asks for the gateway continuously and for other neighbours on
//!   demand. A packet to an unresolved neighbour is dropped; TCP retransmits it.
//! - **Expected state** (`expectation/`). An `Expectation` compares received keys with expected keys: which are
//!   present, missing, wrong or unexpected, and when they arrived. BGP's keys are parts of `model::routes`
//!   (`RoutePart`); `KeyList` is for other protocols.
//! - **Devices of a port** (`rig/src/config.rs`) each have tags, addresses, a gateway and BGP routers.
//!   `testbed/src/config.rs` makes one device for each port of a suite and one for each VLAN sub-interface. All use the
//!   MAC address of the port, and so do test frames. A flow gets the MAC address of the gateway for its tags; learning
//!   frames (`testbed/src/learning.rs`) also pass through sub-interfaces.

mod agenda;
pub mod arp;
pub mod banner;
pub mod bfd;
pub mod bgp;
pub mod compose;
pub mod device;
pub mod expectation;
pub mod ldp;
pub mod nd;
pub mod ospf;
pub mod ping;
pub mod protocol;
pub mod reasons;
pub mod rsvp;
pub mod tcp;

pub use device::{Address, Device, DeviceConfig, Devices};
