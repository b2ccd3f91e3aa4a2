//! Live frames: the kernel itself generates the frames of a trial (`BPF_PROG_TEST_RUN` with
//! `BPF_F_TEST_XDP_LIVE_FRAMES`), millions per second, each with sequence number, departure time, check, checksums and
//! pseudo-random addresses. All other frames pass through packet sockets, as with `af_packet`. Works on veth and needs
//! root (`bpf()`).
//!
//! A program checks if a frame is due, writes it and redirects it to the interface. It runs in system calls of a
//! separate thread. It is attached to an unused tap interface, because otherwise every call would cost 25 ms. The
//! kernel removes program, thread and tap with the port, and with the process, however the process ends.

mod layout;
mod program;
mod thread;

use crate::af_packet::{AfPacket, explained, sys as packet};
use crate::bpf;
use crate::clock::{SystemClock, monotonic_ns};
use crate::kernel_generator::{KernelGenerator, Stream, StreamProgress, StreamReport};
use crate::netlink::takes_redirected;
use crate::priority::{self, take_turns};
use crate::wait::timer_slack;
use crate::{BURST, Backend, Batch, Port, PortCounters, PortError, PortInfo, Received, Sent, one_by_one};
use drophammer_model::quantity::Instant;
use drophammer_model::registry::BackendSpec;
use layout::{Maps, SKIPS, state};
use program::Shape;
use std::cell::Cell;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use thread::{Loaded, Place, Runner};

/// Name and summary of this backend.
pub static SPEC: BackendSpec = BackendSpec {
    name: "live_frames",
    summary: "like af_packet, but the kernel generates the test frames, millions per second; veth only; needs root",
};

/// This backend.
pub const BACKEND: Backend = Backend {
    spec: &SPEC,
    usable,
    begin: |interfaces, queues, clock| one_by_one(interfaces, |name| LiveFrames::open_queues(name, queues, clock)),
    most_queues: 1,
};

/// Longest frame in bytes: what fits into a page together with the kernel's own data.
const LONGEST: usize = 3_072;
/// Maximum number of flows; their state is 256 bytes each.
const MOST_FLOWS: usize = 65_536;
/// An interface that every network namespace has.
const LOOPBACK: i32 = 1;
/// Number of time bins that are allocated at the start.
const BINS: usize = 4_096;
/// How long a packet loop that shares its processor sleeps in each pass, so that the generator can run. The sleep is
/// longer if the generator is behind: the time needed to generate the due frames at this rate, up to a limit.
const NAP: Duration = Duration::from_micros(20);
const LONGEST_NAP_NS: u64 = 300_000;
const NAP_NS_PER_FRAME: u64 = 300;

/// Time slice of a packet loop that shares its processor, in ns.
const TURN_NS: u64 = 100_000;

thread_local! {
    /// Number of this thread's ports that had more frames to receive than their last call returned.
    static BEHIND: Cell<u32> = const { Cell::new(0) };
}

/// Updates [`BEHIND`] for a port that was behind before (`before`) and is behind now (`is`).
fn note_behind(before: &mut bool, is: bool) {
    if std::mem::replace(before, is) != is {
        BEHIND.set(if is { BEHIND.get() + 1 } else { BEHIND.get().saturating_sub(1) });
    }
}

/// Error message for an unprivileged user.
fn forbidden(what: &str) -> String {
    format!(
        "{what} is not permitted; the backend live_frames needs root (CAP_BPF and CAP_NET_ADMIN outside of user \
         namespaces); as an ordinary user, use the backend af_packet"
    )
}

/// Creates a tap interface that is down and disappears when the returned descriptor is closed. A program that is
/// attached anywhere is ready to run; one that is not attached costs the kernel 25 ms per run.
fn tap() -> io::Result<(OwnedFd, i32)> {
    let device = OwnedFd::from(OpenOptions::new().read(true).write(true).open("/dev/net/tun")?);
    let name = packet::make_tap(&device, "dhlive%d")?;
    Ok((device, packet::interface_index(&name)?))
}

/// Checks whether this process may use the backend, not whether an interface supports it.
///
/// # Errors
/// The reason and the remedy.
pub fn usable() -> Result<(), String> {
    let shape = Shape { ipv6: false, frame_len: 60, signature_at: 48 };
    let loaded = Maps::new(LOOPBACK, 1, 1, 1).and_then(|maps| bpf::load(&program::assemble(shape, &maps)));
    loaded.map(drop).map_err(|e| explained("bpf()", &e, forbidden))
}

/// An interface as a tester port.
pub struct LiveFrames {
    info: PortInfo,
    packets: AfPacket,
    index: i32,
    clock: SystemClock,
    // The thread is dropped before the program that it runs.
    runner: Runner,
    loaded: Option<(Shape, Arc<Loaded>)>,
    _tap: OwnedFd,
    tap_index: i32,
    processor: Option<usize>,
    slowest_pps: f64,
    /// True if there may be more to receive.
    behind: bool,
    /// Number of time bins of the stream.
    bins: usize,
    /// Timer slack that the calling thread had before the stream, while both share a processor.
    slack: Option<u64>,
}

impl LiveFrames {
    /// Opens `interface` in the current network namespace.
    ///
    /// # Errors
    /// [`PortError::Open`] with the remedy: the interface does not exist, is down or is not veth, a privilege is
    /// missing, or the other end does not accept frames generated in the kernel.
    pub fn open(interface: &str, clock: SystemClock) -> Result<LiveFrames, PortError> {
        let fail = |reason: String| PortError::open(interface, reason);
        let packets = AfPacket::open(interface, clock)?;
        usable().map_err(fail)?;
        if packets.info().driver != "veth" {
            return Err(fail(format!(
                "its driver is {}; the backend live_frames works on veth only, because no other driver reports what it \
                 drops; use the backend af_xdp or af_packet",
                if packets.info().driver.is_empty() { "not known" } else { &packets.info().driver }
            )));
        }
        let index = packet::interface_index(interface).map_err(|e| fail(e.to_string()))?;
        match takes_redirected(index) {
            Ok(true) => {}
            Ok(false) => {
                return Err(fail(
                    "the other end of this veth pair accepts no frames generated in the kernel, because it receives \
                     without NAPI; `ethtool -K PEER gro on` at that end while it is up, or use the backend af_packet"
                        .into(),
                ));
            }
            Err(e) => {
                return Err(fail(format!(
                    "the kernel does not report whether the other end accepts frames generated in the kernel ({e}); the backend \
                     live_frames needs Linux 6.3 or newer; use the backend af_packet"
                )));
            }
        }
        let (tap, tap_index) = tap().map_err(|e| fail(explained("a tap interface (/dev/net/tun)", &e, forbidden)))?;
        let runner = Runner::new().map_err(|e| fail(format!("a thread: {e}")))?;
        Ok(LiveFrames {
            info: PortInfo { backend: SPEC.name, ..packets.info().clone() },
            packets,
            index,
            clock,
            runner,
            loaded: None,
            _tap: tap,
            tap_index,
            processor: None,
            slowest_pps: 0.0,
            behind: false,
            bins: 0,
            slack: None,
        })
    }

    /// Opens an interface, which has a single queue.
    fn open_queues(interface: &str, queues: u32, clock: SystemClock) -> Result<Vec<LiveFrames>, PortError> {
        if queues > 1 {
            let reason =
                format!("{queues} queues; the backend live_frames opens one, af_packet and af_xdp open several");
            return Err(PortError::open(interface, reason));
        }
        Ok(vec![LiveFrames::open(interface, clock)?])
    }

    fn lost(&self, source: io::Error) -> PortError {
        PortError::lost(&self.info, source)
    }

    /// Loads a program for the stream into `self.loaded`.
    fn load(&mut self, stream: &Stream) -> io::Result<()> {
        let shape = Shape { ipv6: stream.ipv6, frame_len: stream.frame.len(), signature_at: stream.signature_at };
        let bins = stream.bins.map_or(0, |(_, bins)| bins);
        let fits = |(of, loaded): &(Shape, Arc<Loaded>)| {
            let maps = &loaded.maps;
            *of == shape
                && loaded.frame == stream.frame
                && maps.flows.entries() >= stream.flows.len()
                && maps.round.entries() >= stream.round.len()
                && maps.bins.entries() >= bins
        };
        if self.loaded.as_ref().is_none_or(|l| !fits(l)) {
            // Only one program can be attached to the tap at a time.
            self.loaded = None;
            let maps = Maps::new(self.index, stream.flows.len(), stream.round.len(), bins.max(BINS))?;
            let program = bpf::load(&program::assemble(shape, &maps))?;
            let (link, _) = bpf::attach(&program, self.tap_index)?;
            self.loaded = Some((shape, Arc::new(Loaded { _link: link, program, maps, frame: stream.frame.clone() })));
        }
        Ok(())
    }

    fn maps(&self) -> Option<&Maps> {
        self.loaded.as_ref().map(|(_, loaded)| &loaded.maps)
    }

    fn count(&self, word: usize) -> u64 {
        self.maps().map_or(0, |maps| maps.state.get(0, word))
    }

    /// Ends the stream.
    fn end(&mut self) -> io::Result<()> {
        if let Some(maps) = self.maps() {
            maps.state.put(0, state::TOTAL, 0);
        }
        if let Some(slack) = self.slack.take() {
            timer_slack(slack);
            take_turns(0, None);
        }
        self.runner.stop()
    }
}

impl Port for LiveFrames {
    fn info(&self) -> &PortInfo {
        &self.info
    }

    fn slots(&mut self) -> &mut Batch {
        self.packets.slots()
    }

    fn send(&mut self, frames: usize) -> Result<Sent, PortError> {
        self.packets.send(frames)
    }

    fn send_stream(&mut self, frames: usize) -> Result<Sent, PortError> {
        self.packets.send_stream(frames)
    }

    fn receive(&mut self) -> Result<Received<'_>, PortError> {
        let frames = self.packets.receive()?;
        note_behind(&mut self.behind, frames.len() == BURST);
        Ok(frames)
    }

    fn counters(&mut self) -> Result<PortCounters, PortError> {
        self.packets.counters()
    }

    fn kernel_generator(&mut self) -> Option<&mut dyn KernelGenerator> {
        Some(self)
    }
}

impl KernelGenerator for LiveFrames {
    fn place(&mut self, processor: Option<usize>, slowest_pps: f64) {
        self.processor = processor;
        self.slowest_pps = slowest_pps;
    }

    fn slowest_pps(&self) -> f64 {
        self.slowest_pps
    }

    fn longest(&self) -> usize {
        LONGEST
    }

    fn most_flows(&self) -> usize {
        MOST_FLOWS
    }

    fn prepare(&mut self, stream: &Stream) -> Result<bool, PortError> {
        self.end().map_err(|e| self.lost(e))?;
        if !takes_redirected(self.index).map_err(|e| self.lost(e))? {
            return Ok(false);
        }
        self.load(stream).map_err(|e| self.lost(e))?;
        if let Some(maps) = self.maps() {
            maps.fill(stream, self.clock.origin_ns());
        }
        self.bins = stream.bins.map_or(0, |(_, bins)| bins);
        Ok(true)
    }

    fn start(&mut self, start: Instant) {
        let Some((_, loaded)) = &self.loaded else { return };
        loaded.maps.state.put(0, state::START, self.clock.origin_ns() + start.0);
        let shared = self.processor.is_none();
        let processors = match self.processor {
            Some(processor) => vec![processor],
            None => {
                self.slack = Some(timer_slack(1));
                take_turns(TURN_NS, None);
                priority::usable()
            }
        };
        // If the kernel does not report the processors, use any.
        let processors = if processors.is_empty() { vec![0] } else { processors };
        self.runner.run(loaded.clone(), Place { processors, shared });
    }

    fn progress(&self) -> Result<StreamProgress, PortError> {
        // Read the state of the runner first: the counts of a finished run no longer change.
        let finished = !self.runner.is_running();
        self.runner.failure().map_err(|e| self.lost(e))?;
        Ok(StreamProgress { sent: self.count(state::SENT), index: self.count(state::INDEX), finished })
    }

    fn give_way(&mut self) {
        if self.processor.is_some() || !self.runner.is_running() {
            return;
        }
        // Take received frames first. Less is sent in the meantime, so fewer frames arrive.
        if BEHIND.get() > 0 {
            return;
        }
        let elapsed = monotonic_ns().saturating_sub(self.count(state::START));
        let late = elapsed.saturating_sub(self.count(state::DUE)).min(LONGEST_NAP_NS << 16);
        // In 2^-16 ns, so that the interval is not zero at any rate.
        let frames = (late << 16) / self.count(state::INTERVAL_16).max(1);
        let nap = Duration::from_nanos((frames * NAP_NS_PER_FRAME).min(LONGEST_NAP_NS)).max(NAP);
        std::thread::sleep(nap);
    }

    fn stop(&mut self) -> Result<StreamReport, PortError> {
        self.end().map_err(|e| self.lost(e))?;
        let maps = self.maps().ok_or_else(|| self.lost(io::ErrorKind::NotFound.into()))?;
        let skips = (self.count(state::SKIPS) as usize).min(SKIPS);
        Ok(StreamReport {
            sent: self.count(state::SENT),
            index: self.count(state::INDEX),
            skips: (0..skips).map(|i| (maps.skips.get(i, 0), maps.skips.get(i, 1))).collect(),
            lateness: maps.lateness(),
            last_departure_ns: self.count(state::LAST),
            bins: (0..self.bins).map(|bin| maps.bins.get(bin, 0)).collect(),
        })
    }
}

impl Drop for LiveFrames {
    fn drop(&mut self) {
        let _ = self.end();
        note_behind(&mut self.behind, false);
    }
}
