//! The Open Traffic Generator API over a rig.

pub mod api;
mod build;
mod model;
