//! Sessions and devices that talk with each other in virtual time, with the recorded messages of real routers, or for tshark.

mod bfd_tshark;
mod bgp_recorded;
mod bgp_sessions;
mod bgp_vpn;
mod many_devices;
mod new_protocol;
mod routing_recorded;
