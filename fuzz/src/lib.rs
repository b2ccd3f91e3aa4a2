//! What the fuzz targets do with their input. A panic is a bug.
//!
//! The bodies are compiled twice: here, for cargo-fuzz, and as part of a test of crate `testbed`, which replays the corpus in
//! every `cargo test`. They read their input byte by byte, so that a corpus keeps its meaning.

pub mod analyzer;
pub mod bfd;
pub mod bgp;
pub mod bgp_update;
pub mod frames;
pub mod hosts;
pub mod input;
pub mod ldp;
pub mod ospf;
pub mod pcap;
pub mod provider;
pub mod router;
pub mod rsvp;
pub mod stack;
pub mod suite;
pub mod wire;
