//! Independent programs and libraries read what we write, and write what we read.

mod bgp_oracle;
mod header_stacks;
mod rsvp_tshark;
mod stack_tshark;
#[path = "../tshark/mod.rs"]
mod tshark;
