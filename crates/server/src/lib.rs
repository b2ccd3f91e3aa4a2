//! The Open Traffic Generator API over a rig: any client of that API can configure ports, emulated devices and flows, start and
//! stop them, and read their counts.
//!
//! # The server
//!
//! `api` names the calls. `http` (REST) and `grpc` turn what clients send into calls, and their answers back; `listen` gives each an
//! address, and `token` refuses clients without the token. `model` reads
//! configurations strictly: it implements a part of the API's model and refuses the rest by path. `build` turns a configuration
//! into emulated devices and flows, with indices instead of names; it opens nothing. `engine` is the thread that owns the rig.
//! Calls reach it through a bounded queue, one after the other, so it needs no lock.
//!
//! `runs` lets clients run suites. The engine has no part in that: each run is a process of its own, which the program around this
//! server starts.

pub mod api;
mod build;
pub mod claims;
mod connection;
mod engine;
pub mod grpc;
pub mod http;
mod listen;
mod model;
pub mod runs;
pub mod server;
pub mod token;

pub use build::check;
