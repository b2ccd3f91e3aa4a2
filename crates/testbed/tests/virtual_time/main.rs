//! Whole runs on reference devices in virtual time, and tests that need no device: files of routes, and the corpus of
//! the fuzz targets.

#![allow(missing_docs)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/shared_clock.rs"]
mod shared_clock;

mod customer_bfd;
mod figures;
mod fuzz_corpora;
mod mrt;
mod mrt_recorded;
mod routes;
mod simulated;
