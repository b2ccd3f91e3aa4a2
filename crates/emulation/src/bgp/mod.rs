//! Emulated BGP speakers.

pub mod cause;
pub mod config;
pub mod negotiated;

pub use cause::{Cause, Closed};
pub use config::{GracefulRestartConfig, SessionConfig};
pub use negotiated::Negotiated;
