//! The reference device, frame by frame.

#![allow(missing_docs)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../speakers/mod.rs"]
mod speakers;
#[path = "../../../wire/tests/tshark/mod.rs"]
mod tshark;

mod bgp;
mod bgp_routes;
mod conservation;
mod data_plane;
mod decoded;
mod faults;
mod igp;
mod input_queue;
mod lsps;
mod neighbours;
mod tunnels;
mod vlans;
mod vpn;
