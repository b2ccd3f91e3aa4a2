//! Emulated devices, without I/O: the input is bytes and an instant, the output is bytes and the next deadline.
//!
//! A [`device::Device`] is what a DUT sees on one of its links: a link layer with MAC address and VLAN tags, addresses, a gateway, TCP and
//! a list of protocols. [`device::Devices`] are the devices of one port. All protocols implement [`protocol::Protocol`]: [`arp`], [`nd`],
//! [`ping`], [`banner`] and [`bgp`] are the first; [`protocol::PROTOCOLS`] lists all. An [`expectation`] is what a protocol must have
//! received, for keys of any type. [`tcp`] is TCP for any number of addresses.

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
