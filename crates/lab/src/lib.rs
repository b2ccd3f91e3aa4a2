//! Real routers as devices under test: namespaces, links, daemons, probes.
//!
//! [`Lab::enter`] moves the (still single-threaded) process into its own namespaces: from then on the process's network
//! namespace *is* the tester's. A [`DutKind`] brings a router up in another namespace, and veth pairs connect the two:
//! `t0 t1 ...` at the tester, `d0 d1 ...` at the DUT. Everything that the lab makes ends with the process: its daemons,
//! links, routes and mounts disappear even after SIGKILL.
//!
//! A new kind of DUT is one file in `kinds/` and one line in [`KINDS`].
//!
//! # Namespaces, guests and links
//!
//! The process unshares its network and mount namespaces, as an ordinary user through a user namespace. Its network
//! namespace is the tester's; each router gets another, connected by veth pairs. The kind `external` uses real
//! interfaces instead, and `uml` runs a User Mode Linux guest behind taps: `lab/src/kinds/uml/guest.rs` is its first
//! process, `dut.rs` controls it from outside, and `agent.rs` is their protocol. If its links are veth pairs,
//! `links.rs` opens the packet sockets, hands them to the guest's kernel, and signals it again if it misses frames. The
//! guest's kernel is itself the first process of a PID namespace (`guest::hold`): it traces the guest's processes,
//! which would otherwise continue with system calls of the host.
//!
//! `DutKind` (`lab/src/kind.rs`) starts a DUT. `Dut` (`lab/src/dut.rs`) is the whole interface of a running DUT to a
//! bench: record, liveness, counters, routes, and its capabilities. Each capability is a trait with a method in `Dut`
//! that returns `None` if the DUT lacks it: `usage`, `filters`, `classes`, `core_links`, `management`, `member`,
//! `resets`. Every kind of the lab implements `Dut`. So do the reference device in virtual time and the loop without a
//! DUT (`testbed/src/simulated.rs`).
//!
//! A veth pair's ring holds 256 frames. On Linux 6.16 and later, `input_queue.rs` puts a queue of known length in front
//! of it (2,048 frames, suite key `input_queue`), so that a router kept off its processor for half a millisecond loses
//! nothing. `af_packet` sends through this queue; for `af_xdp` the send ring is the queue. Frames that do not fit are
//! refused and count as lost by the DUT.
//!
//! No clean-up code is needed. Daemons run in a PID namespace whose first process (the holder) reads a pipe from the
//! tester. When the tester ends, for whatever reason, the pipe closes, the holder ends, and the kernel kills the
//! namespace. Links, routes and mounts disappear with their namespaces. Empty folders cover `/run` and `/var/tmp`, so
//! the host's daemons are neither used nor disturbed. Only the user's commands of kind `external` can survive a
//! SIGKILL; they are marked, and the next run or `drophammer clean` ends them. No kind changes a setting of the host.
//! The run itself stays in the host's PID namespace, because it must see the kernel threads that forward for the
//! router.

mod autogroup;
mod bgp;
mod by_hand;
mod configuration;
mod confine;
mod cpu;
mod dut;
mod enter;
mod environment;
mod error;
mod input_queue;
mod kind;
pub mod kinds;
mod label_edge;
mod link_delay;
mod links;
mod management;
mod mounts;
mod namespace_dut;
mod neighbours;
mod netns;
mod packet_filter;
mod probe;
mod process;
mod program;
mod receiving;
mod router;
mod snmp;
mod ssh;
mod sweep;
mod system;
mod traffic_classes;
mod wait;

pub use by_hand::{Language, write as write_configuration};
pub use configuration::is_own as has_own_configuration;
pub use cpu::CpuPlan;
pub use dut::{Classes, CoreLinks, Dut, Filters, Management, Resets, SystemMember, TesterInterface, Usage, Where};
pub use dut::{no_classes, no_core_link, no_filters};
pub use enter::{Lab, LabOptions};
pub use error::LabError;
pub use input_queue::here as input_queue_here;
pub use kind::{DutKind, Start};
pub use kinds::{KINDS, TTL_MODEL, find, is_pipe, missing, refuse_host};
pub use links::{Links, Loop};
pub use management::Asking;
pub use netns::Netns;
pub use packet_filter::{MOST_COUNTED as MOST_FILTER_COUNTERS, counter_name as filter_counter};
pub use probe::ThreadTimes;
pub use program::{Program, ProgramDut, flatten};
pub use receiving::{receive_at_sender, receive_time, receiving};
pub use sweep::sweep;
pub use system::{bring_up as bring_up_system, check as check_system, filters_of};
