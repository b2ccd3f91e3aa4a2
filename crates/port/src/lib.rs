//! Sends and receives frames: one trait, one file per backend.
//!
//! A port works in bursts: the generator fills slots that the port lends, [`Port::send`] hands them over in one call,
//! [`Port::receive`] lends received frames. So dynamic dispatch costs once per burst, and a backend with frames in
//! shared memory needs no copy. Between start and stop of a trial no port allocates or locks.
//!
//! # Time
//!
//! `model::Instant` is nanoseconds since the start of the run, from a `Clock` of `port`. On real interfaces the clock
//! is `CLOCK_MONOTONIC`. Arrivals have the kernel's receive timestamp, converted from the wall clock; a step of the
//! wall clock makes the trial invalid. With `af_xdp`, arrivals have the time at which their burst was read. So a loop
//! with such a port (`Port::stamps_arrivals`) does not sleep while frames are awaited, for 20 ms after the last
//! departure.
//!
//! In virtual time the clock jumps from event to event. The generator hands over bursts ahead of time, each frame with
//! its own departure time, and `Clock::pass` skips time in which nothing can respond. This is faster and gives the same
//! figures to the nanosecond (`testbed/tests/virtual_time/simulated/ahead.rs`). Frames are not copied:
//! `wire::frame::Frame` moves from generator to router to analyzer.
//!
//! `lab` reads the system clock only to wait for processes; `testbed` and `cli` only to estimate the remaining time and
//! to name files.

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
pub mod memory;
mod netlink;
pub mod priority;
pub mod simulated;
pub mod softirq_time;
mod spread;
pub mod tap;
pub mod wait;
pub mod xdp_router;

pub use batch::{Batch, Held, Received};
pub use clock::{Clock, SystemClock};
pub use kernel_generator::{KernelGenerator, LatenessBuckets};

use drophammer_model::quantity::Instant;
use drophammer_model::registry::BackendSpec;
use drophammer_wire::MacAddr;
use std::os::fd::BorrowedFd;

/// All backends, in the order in which `drophammer list backends` shows them.
pub static BACKENDS: &[&BackendSpec] =
    &[&af_packet::SPEC, &af_xdp::SPEC, &live_frames::SPEC, &memory::SPEC, &tap::SPEC, &simulated::SPEC];

/// Opens an interface by its name.
pub type Open = fn(&str, SystemClock) -> Result<Box<dyn Port + Send>, PortError>;

/// Opens several queues of an interface by its name and returns a port for each, in order.
pub type OpenQueues = fn(&str, u32, SystemClock) -> Result<Vec<Box<dyn Port + Send>>, PortError>;

/// A backend for interfaces.
pub struct Backend {
    /// Name and summary.
    pub spec: &'static BackendSpec,
    /// Whether this process may use it at all; the error gives the reason and the remedy.
    pub usable: fn() -> Result<(), String>,
    /// Opens an interface of the current network namespace as one port; fails with [`PortError::Open`].
    pub open: Open,
    /// Opens several queues of it. Each frame arrives at one of them, and all frames with the same addresses and ports at the same one, in
    /// order, if the device guarantees that (RSS). Fails with [`PortError::Open`] if there are fewer queues.
    pub open_queues: OpenQueues,
    /// Maximum number of queues of an interface, provided that the device has as many.
    pub most_queues: u32,
}

/// Boxes the ports of one backend.
fn boxed<P: Port + Send + 'static>(ports: Vec<P>) -> Vec<Box<dyn Port + Send>> {
    ports.into_iter().map(|port| Box::new(port) as Box<dyn Port + Send>).collect()
}

/// The backends for interfaces among [`BACKENDS`], the default first.
pub static INTERFACE_BACKENDS: &[Backend] = &[
    Backend {
        spec: &af_packet::SPEC,
        usable: || Ok(()),
        open: |interface, clock| Ok(Box::new(af_packet::AfPacket::open(interface, clock)?)),
        open_queues: |interface, queues, clock| Ok(boxed(af_packet::AfPacket::open_queues(interface, queues, clock)?)),
        most_queues: af_packet::MOST_QUEUES,
    },
    Backend {
        spec: &af_xdp::SPEC,
        usable: af_xdp::usable,
        open: |interface, clock| Ok(Box::new(af_xdp::AfXdp::open(interface, clock)?)),
        open_queues: |interface, queues, clock| Ok(boxed(af_xdp::AfXdp::open_queues(interface, queues, clock)?)),
        most_queues: af_packet::MOST_QUEUES,
    },
    Backend {
        spec: &live_frames::SPEC,
        usable: live_frames::usable,
        open: |interface, clock| Ok(Box::new(live_frames::LiveFrames::open(interface, clock)?)),
        open_queues: live_frames::open_queues,
        most_queues: 1,
    },
];

/// Maximum number of frames per call.
pub const BURST: usize = 64;

/// A queue of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Its index, from 0.
    pub index: u32,
    /// Number of opened queues.
    pub count: u32,
}

impl Queue {
    /// An interface that is opened as a single port.
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
    /// True if a frame that the port refuses was refused by the device's receive ring (veth, or a tap that the device reads): it counts as
    /// offered, and as lost in the device. False if a refusal means that the tester's own ring is full: such a frame was not offered.
    pub refusal_is_device_loss: bool,
    /// True if frames of several receive queues of a network card come together here. They may change places on the way, so the order
    /// in which the device sent them is not known.
    pub merges_queues: bool,
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

/// Counters of the tester's own receive path since the port was opened; each queue has its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Frames that the tester lost after the device had delivered them (its network card, ring or socket overflowed).
    pub receive_drops: u64,
}

/// Why a port failed.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// The interface cannot be opened.
    #[error("cannot open interface `{interface}`: {reason}")]
    Open {
        /// Interface.
        interface: String,
        /// Reason and remedy.
        reason: String,
    },
    /// The interface was removed or went down during the run.
    #[error("interface `{interface}` stopped working: {source}")]
    Lost {
        /// Interface.
        interface: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The link cannot be taken down or up.
    #[error("the link of interface `{interface}` cannot be switched: {reason}")]
    Link {
        /// Interface.
        interface: String,
        /// Reason.
        reason: String,
    },
}

/// A tester port: an interface, or one queue of it.
pub trait Port {
    /// Its properties.
    fn info(&self) -> &PortInfo;

    /// Slots to fill before [`Port::send`]. They report which parts of earlier frames they contain ([`Batch::slot_of`]), so a
    /// sender may patch rather than rewrite; after sending, a slot may contain another frame.
    fn slots(&mut self) -> &mut Batch;

    /// Hands over slots 0 to `frames`, at most [`BURST`], in order. The port never retries a refused frame: retries
    /// would make the load closed-loop and hide loss.
    ///
    /// # Errors
    /// [`PortError::Lost`].
    fn send(&mut self, frames: usize) -> Result<Sent, PortError>;

    /// Like [`Port::send`], for frames that are not a measured load: if the port supports it, consecutive segments of a TCP connection
    /// leave with one call. A refused segment may have left all the same.
    ///
    /// # Errors
    /// [`PortError::Lost`].
    fn send_stream(&mut self, frames: usize) -> Result<Sent, PortError> {
        self.send(frames)
    }

    /// True if [`Port::send_at`] sends ahead of time; only in virtual time.
    fn sends_ahead(&self) -> bool {
        false
    }

    /// Hands over slots 0 to `at.len()`, at most [`BURST`]. Slot i leaves at `at[i]`; the times are ascending and not in the
    /// past. A port that does not send ahead sends them at once.
    ///
    /// # Errors
    /// [`PortError::Lost`].
    fn send_at(&mut self, at: &[Instant]) -> Result<Sent, PortError> {
        self.send(at.len())
    }

    /// Takes received frames, at most [`BURST`], without waiting; they are valid until the next call.
    ///
    /// # Errors
    /// [`PortError::Lost`].
    fn receive(&mut self) -> Result<Received<'_>, PortError>;

    /// True if frames carry the time at which they arrived, however long they wait for [`Port::receive`]. Otherwise they
    /// carry the time of that call, so a receiver that sleeps while frames arrive makes their latency too large.
    fn stamps_arrivals(&self) -> bool {
        true
    }

    /// Counters since the port was opened. A trial reads them before it starts: a port whose times need a sample of another
    /// clock takes a new one.
    ///
    /// # Errors
    /// [`PortError::Lost`].
    fn counters(&mut self) -> Result<PortCounters, PortError>;

    /// A descriptor that becomes readable when frames have arrived, for [`wait::until_readable`]; `None` if the port has
    /// none.
    fn readable(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Takes the link down, like a pulled cable, or up again, at once. While it is down, sent frames are lost and none arrive; neither
    /// is an error.
    ///
    /// # Errors
    /// [`PortError::Link`] if this port cannot do that.
    fn set_link(&mut self, up: bool) -> Result<(), PortError> {
        let _ = up;
        let reason = format!("the backend {} cannot take a link down", self.info().backend);
        Err(PortError::Link { interface: self.info().interface.clone(), reason })
    }

    /// True if the other end of the link is connected, or if the backend cannot know.
    ///
    /// # Errors
    /// If the interface is gone.
    fn has_carrier(&mut self) -> Result<bool, PortError> {
        Ok(true)
    }

    /// Length of the largest frame without FCS that it can send, in bytes. The default follows from the MTU.
    fn largest_frame(&self) -> usize {
        self.info().mtu as usize + drophammer_wire::ethernet::LEN
    }

    /// The generator in the kernel for this port, if there is one.
    fn kernel_generator(&mut self) -> Option<&mut dyn KernelGenerator> {
        None
    }
}

/// An arrived frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival<'a> {
    /// The frame without FCS.
    pub frame: &'a [u8],
    /// Time of arrival, on the run's clock.
    pub at: Instant,
}
