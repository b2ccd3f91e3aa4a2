//! The Open Traffic Generator API over a rig.

pub mod api;
pub mod grpc;
