//! Emulated devices, without I/O: bytes and an instant go in, bytes and the next deadline come out.
//!
//! A [`device::Device`] is what a DUT sees on one of its links: a link layer with MAC address and VLAN tags, addresses, a gateway, TCP
//! and a list of protocols. [`device::Devices`] are those of one port. A [`protocol::Protocol`] has one face, whatever it does:
//! [`arp`], [`nd`], [`ping`], [`banner`] and [`bgp`] are the first; [`protocol::PROTOCOLS`] names all. [`expectation`] is what a protocol must have received, whatever its keys are. [`tcp`] is TCP for any number of addresses.

pub mod arp;
pub mod banner;
pub mod bgp;
pub mod compose;
pub mod device;
pub mod expectation;
pub mod nd;
pub mod ping;
pub mod protocol;
pub mod tcp;

pub use device::{Address, Device, DeviceConfig, Devices};
