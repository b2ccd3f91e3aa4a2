//! The reference device, frame by frame.

#![allow(missing_docs)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../speakers/mod.rs"]
mod speakers;

mod bgp;
mod bgp_routes;
mod conservation;
mod data_plane;
mod faults;
mod input_queue;
mod neighbours;
mod tshark;
mod tunnels;
mod vlans;
