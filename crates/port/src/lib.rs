//! Sends and receives frames: one trait, one file per backend.
//!
//! A port works in bursts: the generator fills slots that the port lends, [`Port::send`] hands them over in one call,
//! and [`Port::receive`] lends received frames. So dynamic dispatch costs only once per burst, and a backend with
//! frames in shared memory needs no copy. Between start and stop of a trial, no port allocates or locks.
//!
//! # Write a backend
//!
//! A backend is one file and one line in [`INTERFACE_BACKENDS`]; `tests/one_file.rs` is a small complete example. It needs:
//!
//! - A type with the five required methods of [`Port`]. Its slots are a [`Batch`], with frames in the batch's own memory, in a
//!   memory that the backend shares with a device ([`SlotMemory`]), or in owned frames that change hands. [`PortInfo::new`]
//!   describes a plain port; the backend changes what differs, above all whether arrivals carry their own time.
//! - A [`Backend`] with a function that opens all interfaces of a namespace in one call. Most backends open them
//!   [`one_by_one`]. A backend that starts once per process, or whose ports share memory (DPDK, memif, AF_XDP with one UMEM),
//!   does that work here, before it returns the ports.
//! - The capabilities that the device has, and no others: a link to switch ([`LinkControl`]), virtual time ([`SendAhead`]), a
//!   generator in the kernel ([`KernelGenerator`]), a descriptor to sleep on ([`Port::readable`]).
//!
//! Three rules keep measurements honest. A port never retries a refused frame. It counts every frame that the tester
//! loses after the device has delivered it ([`Port::counters`]). It declares which time arrivals carry
//! ([`PortInfo::stamps_arrivals`]). `tests/contract.rs` runs the same cases with every backend in the list.
//!
//! # Time
//!
//! `model::Instant` is nanoseconds since the start of the run, from a `Clock` of `port`. On real interfaces the clock
//! is `CLOCK_MONOTONIC`. Arrivals carry the kernel's receive timestamp, converted from the wall clock; a step of the
//! wall clock invalidates the trial. With `af_xdp`, arrivals carry the time at which their burst was read. So a loop
//! with such a port (`PortInfo::stamps_arrivals`) does not sleep while it expects frames, until 20 ms after the last
//! departure.
//!
//! In virtual time the clock jumps from event to event. The generator hands over bursts ahead of time, each frame with
//! its own departure time, and `Clock::pass` skips time in which nothing can respond. This is faster and gives the same
//! figures to the nanosecond (`testbed/tests/virtual_time/simulated/ahead.rs`). Frames are not copied:
//! `wire::frame::Frame` moves from generator to router to analyzer.
//!
//! `lab` reads the system clock only to wait for processes; `testbed` and `cli` only to estimate the remaining time and
//! to name files.

/// Implements [`Port::info`] and [`Port::slots`] for a port with fields of these names.
#[macro_export]
macro_rules! info_and_slots {
    () => {
        fn info(&self) -> &$crate::PortInfo {
            &self.info
        }

        fn slots(&mut self) -> &mut $crate::Batch {
            &mut self.slots
        }
    };
}

pub mod af_packet;
pub mod af_xdp;
pub mod auto;
pub mod batch;
mod bpf;
pub mod capture;
pub mod clock;
mod device;
pub mod discard;
pub mod kernel_generator;
pub mod live_frames;
mod mapping;
pub mod memory;
mod netlink;
mod pass_on;
pub mod priority;
pub mod simulated;
pub mod softirq_time;
mod spread;
pub mod tap;
pub mod unplugged;
pub mod wait;
pub mod xdp_router;

pub use batch::{Arrival, Batch, Filled, Held, Received, SlotMemory};
pub use clock::{Clock, SystemClock};
pub use kernel_generator::{KernelGenerator, LatenessBuckets};

use drophammer_model::quantity::Instant;
use drophammer_model::registry::BackendSpec;
use drophammer_wire::{MacAddr, ethernet};
use std::os::fd::BorrowedFd;

/// The backends for interfaces. The first one is the default.
pub static INTERFACE_BACKENDS: &[Backend] = &[af_packet::BACKEND, af_xdp::BACKEND, live_frames::BACKEND];

/// Returns all backends, in the order that `drophammer list backends` prints.
pub fn backends() -> impl Iterator<Item = &'static BackendSpec> {
    INTERFACE_BACKENDS.iter().map(|backend| backend.spec).chain([&memory::SPEC, &tap::SPEC, &simulated::SPEC])
}

/// The opened ports, or [`PortError::Open`] with the remedy.
pub type Opened = Result<Vec<Box<dyn Port + Send>>, PortError>;

/// A backend for interfaces.
pub struct Backend {
    /// Name and summary.
    pub spec: &'static BackendSpec,
    /// Checks if this process can use the backend at all. The error contains the reason and the remedy.
    pub usable: fn() -> Result<(), String>,
    /// Opens the named interfaces in the current network namespace together, each with this number of queues, at least
    /// one. Returns one port per queue: all queues of the first interface, then all of the second, and so on. Each
    /// frame arrives at one queue. If the device guarantees it (RSS), all frames with the same addresses and ports
    /// arrive at the same queue, in order. Fails if there are fewer queues.
    pub begin: fn(&[&str], u32, SystemClock) -> Opened,
    /// Maximum number of queues per interface, if the device has that many.
    pub most_queues: u32,
}

impl Backend {
    /// Opens an interface in the current network namespace as one port.
    ///
    /// # Errors
    /// [`PortError::Open`].
    pub fn open(&self, interface: &str, clock: SystemClock) -> Result<Box<dyn Port + Send>, PortError> {
        (self.begin)(&[interface], 1, clock).map(|mut ports| ports.remove(0))
    }
}

/// Opens interfaces one after the other, for backends whose ports do not need each other.
///
/// # Errors
/// The first error of `open`.
pub fn one_by_one<P: Port + Send + 'static>(
    interfaces: &[&str],
    open: impl Fn(&str) -> Result<Vec<P>, PortError>,
) -> Opened {
    let mut all = Vec::new();
    for interface in interfaces {
        all.extend(boxed(open(interface)?));
    }
    Ok(all)
}

fn boxed<P: Port + Send + 'static>(ports: Vec<P>) -> Vec<Box<dyn Port + Send>> {
    ports.into_iter().map(|port| Box::new(port) as Box<dyn Port + Send>).collect()
}

/// Maximum number of frames per call.
pub const BURST: usize = 64;

/// A queue of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// The queue's index, from 0.
    pub index: u32,
    /// Number of open queues.
    pub count: u32,
}

impl Queue {
    /// The queue of an interface that is opened as a single port.
    pub const ONLY: Queue = Queue { index: 0, count: 1 };
}

/// Properties of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortInfo {
    /// Name of the interface, for example `t0`.
    pub interface: String,
    /// Queue of the interface.
    pub queue: Queue,
    /// Name of the backend, for example `af_packet`.
    pub backend: &'static str,
    /// Name of the driver, for example `veth`.
    pub driver: String,
    /// MAC address of the interface.
    pub mac: MacAddr,
    /// MTU in bytes.
    pub mtu: u32,
    /// Length of the largest frame without FCS that the port can send, in bytes.
    pub largest_frame: usize,
    /// True if a frame that the port refuses was refused by the device's receive ring (veth, or a tap that the device
    /// reads): it counts as offered, and as lost in the device. False if it was refused by the tester's own ring: it
    /// was not offered.
    pub refusal_is_device_loss: bool,
    /// True if frames of several receive queues of a network card meet here. They may have overtaken each other, so the
    /// order in which the device sent them is unknown.
    pub merges_queues: bool,
    /// True if frames carry the time at which they arrived, however long they wait for [`Port::receive`]. Otherwise
    /// they carry the time of that call, so a receiver that sleeps while frames arrive measures a latency that is too
    /// high.
    pub stamps_arrivals: bool,
}

impl PortInfo {
    /// Describes a port with one queue that stamps arrivals, sends frames of up to `mtu` bytes after the Ethernet
    /// header, and refuses frames only if its own ring is full.
    pub fn new(interface: &str, backend: &BackendSpec, driver: &str, mac: MacAddr, mtu: u32) -> PortInfo {
        PortInfo {
            interface: interface.to_owned(),
            queue: Queue::ONLY,
            backend: backend.name,
            driver: driver.to_owned(),
            mac,
            mtu,
            largest_frame: mtu as usize + ethernet::LEN,
            refusal_is_device_loss: false,
            merges_queues: false,
            stamps_arrivals: true,
        }
    }
}

/// Result of sending a burst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Frames that left.
    pub accepted: u32,
    /// Number of refused frames.
    pub refused: u32,
    /// The refused frames: bit i is slot i.
    pub refused_mask: u64,
}

impl Sent {
    /// Counts the frame in slot `i` as refused.
    #[inline]
    pub fn refuse(&mut self, i: usize) {
        self.refused += 1;
        self.refused_mask |= 1 << i;
    }
}

/// Counters of the tester's own receive path since the port was opened. Each queue has its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Frames that the tester lost after the device had delivered them, because its network card, ring or socket overflowed.
    pub receive_drops: u64,
}

/// The reason why a port failed.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// The interface cannot be opened.
    #[error("cannot open interface `{interface}`: {reason}")]
    Open {
        /// Name of the interface.
        interface: String,
        /// Reason and remedy.
        reason: String,
    },
    /// The interface was removed or went down during the run.
    #[error("interface `{interface}` stopped working: {source}")]
    Lost {
        /// Name of the interface.
        interface: String,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The link cannot be taken down or up.
    #[error("the link of interface `{interface}` cannot be switched: {reason}")]
    Link {
        /// Name of the interface.
        interface: String,
        /// Reason.
        reason: String,
    },
}

impl PortError {
    /// Creates [`PortError::Open`].
    pub fn open(interface: &str, reason: impl Into<String>) -> PortError {
        PortError::Open { interface: interface.to_owned(), reason: reason.into() }
    }

    /// Creates [`PortError::Lost`].
    pub fn lost(port: &PortInfo, source: std::io::Error) -> PortError {
        PortError::Lost { interface: port.interface.clone(), source }
    }
}

/// A tester port: an interface, or one queue of it.
pub trait Port {
    /// Returns the port's properties.
    fn info(&self) -> &PortInfo;

    /// Returns the slots to fill before [`Port::send`]. They report which parts of earlier frames they contain
    /// ([`Batch::slot_of`]), so a sender can patch frames instead of rewriting them. After sending, a slot may contain
    /// another frame.
    fn slots(&mut self) -> &mut Batch;

    /// Hands over slots 0 to `frames`, at most [`BURST`], in order. The port never retries a refused frame: retries
    /// would turn the load into a closed loop and hide loss.
    ///
    /// # Errors
    /// [`PortError::Lost`].
    fn send(&mut self, frames: usize) -> Result<Sent, PortError>;

    /// Takes received frames, at most [`BURST`], without waiting. They are valid until the next call.
    ///
    /// # Errors
    /// [`PortError::Lost`].
    fn receive(&mut self) -> Result<Received<'_>, PortError>;

    /// Returns the counters since the port was opened. A trial reads them before it starts, and a port whose times
    /// depend on a sample of another clock then takes a new sample. There is no default implementation: a loss that no
    /// port counts would be blamed on the device.
    ///
    /// # Errors
    /// [`PortError::Lost`].
    fn counters(&mut self) -> Result<PortCounters, PortError>;

    /// Like [`Port::send`], but for frames that are not a measured load: if the port supports it, consecutive segments
    /// of a TCP connection leave with one call. A segment that is reported as refused may still have left.
    ///
    /// # Errors
    /// [`PortError::Lost`].
    fn send_stream(&mut self, frames: usize) -> Result<Sent, PortError> {
        self.send(frames)
    }

    /// Returns a descriptor that becomes readable when frames have arrived, for [`wait::until_readable`].
    fn readable(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Returns the link, if the port can switch it.
    fn link(&mut self) -> Option<&mut dyn LinkControl> {
        None
    }

    /// Returns the interface for sending ahead of time, in virtual time.
    fn ahead(&mut self) -> Option<&mut dyn SendAhead> {
        None
    }

    /// Returns this port's generator in the kernel.
    fn kernel_generator(&mut self) -> Option<&mut dyn KernelGenerator> {
        None
    }
}

/// A port that can switch its link and check the other end.
pub trait LinkControl {
    /// Takes the link down, like a pulled cable, or up again, immediately. While it is down, frames that are sent are
    /// lost and none arrive. Neither is an error.
    ///
    /// # Errors
    /// [`PortError::Link`].
    fn set_link(&mut self, up: bool) -> Result<(), PortError>;

    /// True if the other end of the link is connected.
    ///
    /// # Errors
    /// [`PortError::Link`] if the interface is gone.
    fn has_carrier(&mut self) -> Result<bool, PortError>;
}

/// A port in virtual time.
pub trait SendAhead {
    /// Hands over slots 0 to `at.len()`, at most [`BURST`]. Slot i leaves at `at[i]`. The times are ascending and not in the past.
    ///
    /// # Errors
    /// [`PortError::Lost`].
    fn send_at(&mut self, at: &[Instant]) -> Result<Sent, PortError>;
}

/// Takes the link of `port` down or up.
///
/// # Errors
/// [`PortError::Link`], also if the port has no [`LinkControl`].
pub fn set_link(port: &mut dyn Port, up: bool) -> Result<(), PortError> {
    if let Some(link) = port.link() {
        return link.set_link(up);
    }
    let reason = format!("the backend {} cannot take a link down", port.info().backend);
    Err(PortError::Link { interface: port.info().interface.clone(), reason })
}

/// True if the other end of the link of `port` is connected, or if the port cannot find out.
///
/// # Errors
/// [`PortError::Link`] if the interface is gone.
pub fn has_carrier(port: &mut dyn Port) -> Result<bool, PortError> {
    port.link().map_or(Ok(true), |link| link.has_carrier())
}
