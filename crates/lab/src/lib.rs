//! Real routers as devices under test: namespaces, links, daemons, probes.
//!
//! [`Lab::enter`] moves the (still single-threaded) process into its own namespaces: from then on the process's network
//! namespace *is* the tester's. A [`DutKind`] brings a router up in a further namespace, veth pairs join the two:
//! tester `t0 t1 ...`, DUT `d0 d1 ...`. Everything that the lab makes depends on the life of the process: however it
//! ends, even by SIGKILL, its daemons, links, routes and mounts end with it.
//!
//! A new kind of DUT is one file in `kinds/` and one line in [`KINDS`].

mod autogroup;
mod bgp;
mod by_hand;
mod configuration;
mod confine;
mod cpu;
mod dut;
mod ends;
mod enter;
mod environment;
mod error;
mod input_queue;
mod kind;
pub mod kinds;
mod link_delay;
mod management;
mod mounts;
mod neighbours;
mod netns;
mod nftables;
mod packet_filter;
mod packet_sockets;
mod probe;
mod process;
mod program;
mod receiving;
mod router;
mod slow_path;
mod snmp;
mod ssh;
mod sweep;
mod system;
mod topology;
mod traffic_classes;
mod ttl_model;
mod wait;

pub use by_hand::{Language, write as write_configuration};
pub use configuration::is_own as has_own_configuration;
pub use cpu::CpuPlan;
pub use dut::{Dut, Resets, TesterInterface, Where};
pub use enter::{Lab, LabOptions};
pub use error::LabError;
pub use input_queue::here as input_queue_here;
pub use kind::DutKind;
pub use kinds::{KINDS, find, missing, refuse_host};
pub use management::Asking;
pub use netns::Netns;
pub use packet_filter::{MOST_COUNTED as MOST_FILTER_COUNTERS, counter_name as filter_counter};
pub use probe::ThreadTimes;
pub use program::{Links, Program, ProgramDut, flatten};
pub use receiving::{receive_at_sender, receive_time, receiving};
pub use sweep::sweep;
pub use system::{bring_up as bring_up_system, check as check_system, filters_of};
pub use topology::Loop;
pub use ttl_model::{TTL_MODEL, is_pipe};
