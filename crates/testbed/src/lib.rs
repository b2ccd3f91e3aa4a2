//! The facade that tests use: brings up topology, ports, flows, emulated hosts and DUT, and runs a suite.
//!
//! [`runner::run_suite`] iterates over DUTs and tests. A [`setup::TestSetup`] is what one test sees: a rig next to a
//! DUT. It is the same for a router in a namespace, a router on real interfaces, and the reference device in virtual
//! time: only ports and clock differ.
//!
//! # From suite to report
//!
//! 1. `model::suite` reads the YAML file, checks it against the lists of tests and kinds, and reports all errors with
//!    their lines. `drophammer check` ends here.
//! 2. `lab::Lab::enter` moves the process into its own namespaces, unless all routers are simulated.
//! 3. `testbed::run_suite` measures the tester's ceiling for each traffic pattern of the suite, on a loop without a router.
//! 4. Each round (`rounds:`) brings up all routers and measures them in turns, step by step (`runner/abreast.rs`).
//!    Head-to-head tests follow. With one round, or with routers on the user's interfaces, routers come up one after
//!    another (`runner/plan.rs`, `Turn`). The order changes from round to round. `DutKind::bring_up` receives the role
//!    (`model::role`, computed from the ports), and refuses a role that the kind does not support
//!    (`model::capabilities`). It starts and configures the router, and waits until the router reports ready. Then the
//!    bench waits until the router answers ARP and Neighbor Discovery and forwards learning frames without loss (RFC
//!    2544 section 23 b).
//! 5. For each test, `Method::run` runs trials. `traffic::Plan` prepares a trial (templates, schedules, all memory),
//!    `rig::Rig` runs it, and `testbed::validity` judges it. The observer stores it as one line of `run.jsonl` before
//!    the test continues.
//! 6. Figures are compared with `expect` in the suite, and the router is stopped. (Step 7 compares them again over all
//!    rounds, which decides the exit code.) A router that does not start, or dies, fails only its own tests.
//! 7. `report::write_all` reads the run folder and writes the report, as `drophammer report` does.

mod asked;
pub mod bench;
mod circling;
pub mod config;
mod core;
mod counted;
mod customer_bfd;
pub mod deviations;
pub mod device;
mod echoed;
mod extra;
mod host;
mod igp;
pub mod kinds;
mod learning;
pub mod listen;
mod lsps;
pub mod mrt;
pub mod neighbour;
pub mod observer;
mod patience;
pub mod real;
mod records;
mod reset;
pub mod route_ceiling;
pub mod routers;
mod routing;
pub mod runner;
pub mod selftest;
pub mod session;
pub mod setup;
pub mod simulated;
pub mod speaker;
mod together;
mod turnstile;
pub mod validity;
mod vpns;
pub mod xdp_router;

pub use observer::{Observer, Progress};
pub use runner::{Earlier, Refusal, Run, RunError, estimate, estimates, rounds_within, run_suite};
pub use session::Session;
