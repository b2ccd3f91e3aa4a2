//! The shared types of Drophammer: quantities, suite and testbed configuration, trials, results.
//!
//! Nothing here does I/O, reads a clock or depends on frame formats: [`traffic`] names headers and their fields, and
//! crate `wire` defines their positions. Units are in the types ([`FrameRate`], [`Bandwidth`], [`std::time::Duration`])
//! and, in serialised fields, in the field names (`rate_pps`, `duration_s`, `latency_ns`).

pub mod beside;
pub mod capabilities;
pub mod classes;
pub mod counters;
pub mod echo;
pub mod environment;
pub mod figure;
pub mod filter;
pub mod label_edge;
pub mod label_work;
pub mod latency;
pub mod mac;
pub mod management;
pub mod medium;
pub mod modifier;
pub mod outcome;
pub mod param;
pub mod pattern;
pub mod quantity;
pub mod record;
pub mod registry;
pub mod reset;
pub mod role;
pub mod router_interfaces;
pub mod routes;
pub mod size;
pub mod suite;
pub mod topology;
pub mod traffic;
pub mod trial;
pub mod visible;

pub use latency::LatencySummary;
pub use mac::MacAddr;
pub use medium::Medium;
pub use param::Param;
pub use pattern::{Direction, PatternKey};
pub use quantity::{Bandwidth, FrameRate, Instant};
pub use size::{FrameSize, PacketSize};

/// For serde: true for a default value, which records leave out.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// For serde: the default of a count that is at least 1.
fn one() -> u32 {
    1
}

/// For serde: true if a count of at least 1 has its default.
#[allow(clippy::trivially_copy_pass_by_ref)] // serde hands over a reference
fn is_one(count: &u32) -> bool {
    *count == 1
}
