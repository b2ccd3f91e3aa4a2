//! Independent programs and libraries read what we write, and write what we read.

mod bgp_oracle;
mod rsvp_tshark;
mod stack;
mod stack_tshark;
#[path = "../tshark/mod.rs"]
mod tshark;
