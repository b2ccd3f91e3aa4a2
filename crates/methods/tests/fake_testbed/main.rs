//! Tests of the methods on a testbed with prepared answers.

#![allow(missing_docs)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../recorded/mod.rs"]
mod recorded;
#[path = "../repeatability/mod.rs"]
mod repeatability;

mod deviations;
mod head_of_line_blocking;
mod igp;
mod lower_bounds;
mod lsps;
mod methods;
mod mlrsearch;
mod patterns;
mod processor_time;
mod recorded_devices;
mod routes;
mod trial_counts;
mod under_load;
mod unfinished;
mod unfit;
mod unmeasured;
mod write_a_test;
mod wrong_frames;
