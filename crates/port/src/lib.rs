//! Moves frames: one trait, one file per backend.
//!
//! A port works in bursts: the generator fills slots that the port lends, [`Port::send`] hands them over in one go,
//! [`Port::receive`] lends what came in. So dynamic dispatch costs once per burst, and a backend with frames in shared
//! memory needs no copy. Between start and stop of a trial nothing here allocates or locks.

pub mod af_packet;
pub mod af_xdp;
pub mod auto;
pub mod batch;
mod bpf;
pub mod capture;
pub mod clock;
pub mod discard;
pub mod kernel_generator;
pub mod live_frames;
pub mod memory;
mod netlink;
pub mod priority;
pub mod simulated;
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

/// Opens so many queues of an interface by its name, a port for each, in their order.
pub type OpenQueues = fn(&str, u32, SystemClock) -> Result<Vec<Box<dyn Port + Send>>, PortError>;

/// A backend for interfaces.
pub struct Backend {
    /// Name and summary.
    pub spec: &'static BackendSpec,
    /// May this process use it at all? Says why not, with the remedy.
    pub usable: fn() -> Result<(), String>,
    /// Opens an interface of the current network namespace as one port; fails with [`PortError::Open`].
    pub open: Open,
    /// Opens several queues of it. Each frame arrives at one of them, and all frames with the same addresses and ports at the same one, in
    /// order, where the device keeps to that (RSS). Fails with [`PortError::Open`] where there are not as many.
    pub open_queues: OpenQueues,
    /// Queues of an interface that it opens at most, where the device has as many.
    pub most_queues: u32,
}

/// Ports of one backend as ports of any.
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

/// Frames that one call moves at most.
pub const BURST: usize = 64;

/// One of the queues of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Which, from 0.
    pub index: u32,
    /// How many of them were opened.
    pub count: u32,
}

impl Queue {
    /// All of an interface that is opened as one port.
    pub const ONLY: Queue = Queue { index: 0, count: 1 };
}

/// What a port is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortInfo {
    /// Interface: `t0`.
    pub interface: String,
    /// Queue of the interface.
    pub queue: Queue,
    /// Backend: `af_packet`.
    pub backend: &'static str,
    /// Driver: `veth`.
    pub driver: String,
    /// Address of the interface.
    pub mac: MacAddr,
    /// MTU in bytes.
    pub mtu: u32,
    /// True when a frame that the port refuses was refused by the device's receive ring (veth, or a tap that the device
    /// reads): it is then offered, and lost in the device. False when a refusal is the tester's own full ring: such a frame was not offered.
    pub refusal_is_device_loss: bool,
}

/// What became of a burst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Frames that left.
    pub accepted: u32,
    /// Frames that were refused; bit i of `refused_mask` is slot i.
    pub refused: u32,
    /// Which.
    pub refused_mask: u64,
}

/// Counters of the tester's own receive path since the port was opened; of several queues each has its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Frames that the tester lost after the device had delivered them (socket or ring overflow).
    pub receive_drops: u64,
}

/// Why a port stopped working.
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
    /// The interface went away or down in mid-run.
    #[error("interface `{interface}` stopped working: {source}")]
    Lost {
        /// Interface.
        interface: String,
        /// The system's word.
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
    /// What it is.
    fn info(&self) -> &PortInfo;

    /// Slots to fill before [`Port::send`]. They say what they hold of earlier frames ([`Batch::slot_of`]), so a sender may patch
    /// instead of rewrite; a slot whose frame has left may hold another one.
    fn slots(&mut self) -> &mut Batch;

    /// Hands over slots 0 to `frames`, at most [`BURST`], in order. A refused frame is never tried again by the port:
    /// trying again would make the load closed-loop and hide loss.
    ///
    /// # Errors
    /// [`PortError::Lost`].
    fn send(&mut self, frames: usize) -> Result<Sent, PortError>;

    /// The same for frames that are no load to be measured: where this port can do that, segments of a TCP connection that follow each
    /// other leave by one call. One that is refused may have left all the same.
    ///
    /// # Errors
    /// [`PortError::Lost`].
    fn send_stream(&mut self, frames: usize) -> Result<Sent, PortError> {
        self.send(frames)
    }

    /// Does [`Port::send_at`] work here? Only in virtual time.
    fn sends_ahead(&self) -> bool {
        false
    }

    /// Hands over slots 0 to `at.len()`, at most [`BURST`]; slot i leaves at `at[i]`, which is ascending and not before now.
    /// A port that does not send ahead sends them at once.
    ///
    /// # Errors
    /// [`PortError::Lost`].
    fn send_at(&mut self, at: &[Instant]) -> Result<Sent, PortError> {
        self.send(at.len())
    }

    /// Takes what has come in, at most [`BURST`] frames, without waiting; valid until the next call.
    ///
    /// # Errors
    /// [`PortError::Lost`].
    fn receive(&mut self) -> Result<Received<'_>, PortError>;

    /// Counters since the port was opened.
    ///
    /// # Errors
    /// [`PortError::Lost`].
    fn counters(&mut self) -> Result<PortCounters, PortError>;

    /// What can be read when frames have come in, to sleep on with [`wait::until_readable`]; `None` where the port has no
    /// such descriptor.
    fn readable(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Takes the link down, as a pulled cable would, or up again, at once. While it is down what is sent is lost, nothing comes in, and
    /// neither is an error.
    ///
    /// # Errors
    /// [`PortError::Link`] where this port cannot do that.
    fn set_link(&mut self, up: bool) -> Result<(), PortError> {
        let _ = up;
        let reason = format!("the backend {} cannot take a link down", self.info().backend);
        Err(PortError::Link { interface: self.info().interface.clone(), reason })
    }

    /// Is somebody at the other end of the link? True where the backend cannot know.
    ///
    /// # Errors
    /// The interface is gone.
    fn has_carrier(&mut self) -> Result<bool, PortError> {
        Ok(true)
    }

    /// Bytes of the largest frame, without FCS, that it can send: what its MTU allows, unless it says otherwise.
    fn largest_frame(&self) -> usize {
        self.info().mtu as usize + drophammer_wire::ethernet::LEN
    }

    /// What makes frames in the kernel for this port, where it has that.
    fn kernel_generator(&mut self) -> Option<&mut dyn KernelGenerator> {
        None
    }
}

/// An arrived frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival<'a> {
    /// The frame without FCS.
    pub frame: &'a [u8],
    /// When it arrived, by the run's clock.
    pub at: Instant,
}
