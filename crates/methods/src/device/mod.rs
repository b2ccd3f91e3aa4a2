//! Tests of the router itself: what it sends and answers, what it counts, wrong frames, resets, loops.

pub mod counter_accuracy;
pub mod error_frames;
pub mod flood;
pub mod idle_traffic;
pub mod ping_delay;
pub mod reset;
pub mod routing_loop;
