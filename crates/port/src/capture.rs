//! What passes a port, but for test frames, in a file that tcpdump, tshark and Wireshark read: [`Capture`] is a port around
//! another one.
//!
//! The capture gives way to the measurement in everything. What passes is the inner port's, unchanged. Frames to be kept are
//! copied into buffers that exist from the start, and a thread of its own writes them; when the disk is slower than they come, frames are
//! missing from the file and counted. An error of the disk, or the limit of the file, ends the capture and nothing else.
//!
//! The file is pcap with times in nanoseconds (magic 0xa1b23c4d, link type 1: Ethernet without FCS), both directions in one.

use crate::{BURST, Batch, KernelGenerator, Port, PortCounters, PortError, PortInfo, Received, Sent};
use drophammer_model::quantity::Instant;
use std::fs::File;
use std::io::{self, Write};
use std::ops::DerefMut;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Magic number of pcap files with times in nanoseconds.
const MAGIC: u32 = 0xa1b2_3c4d;
/// Link type Ethernet.
const ETHERNET: u32 = 1;
/// Bytes before the first frame.
const FILE_HEADER: usize = 24;
/// Bytes before each frame.
const FRAME_HEADER: usize = 16;
/// Buffers that go round between port and writer.
const BUFFERS: usize = 32;
/// Size of a buffer.
const BUFFER: usize = 128 << 10;

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptureLimits {
    /// Bytes of a frame that are kept at most, 1 to 65,535; its true length is told in any case.
    pub snap_length: u32,
    /// Size of the file at most, in bytes; with the frame that would exceed it the capture ends.
    pub file_bytes: u64,
}

impl Default for CaptureLimits {
    fn default() -> Self {
        CaptureLimits { snap_length: 65_535, file_bytes: 64 << 20 }
    }
}

#[derive(Default)]
struct Shared {
    frames: AtomicU64,
    missed: AtomicU64,
    ended: Mutex<Option<String>>,
}

impl Shared {
    /// The first reason stays.
    fn end(&self, why: String) {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
    }
}

/// What can be known of a capture from outside, during it and after.
#[derive(Clone)]
pub struct CaptureStatus(Arc<Shared>);

impl CaptureStatus {
    /// Frames handed to the writer so far.
    pub fn frames(&self) -> u64 {
        self.0.frames.load(Ordering::Relaxed)
    }

    /// Frames that are missing between others because the disk was slow.
    pub fn missed(&self) -> u64 {
        self.0.missed.load(Ordering::Relaxed)
    }

    /// Why the file is not all that passed, in a sentence; `None` while it is.
    pub fn note(&self) -> Option<String> {
        let ended = self.0.ended.lock().unwrap_or_else(PoisonError::into_inner).clone();
        ended.or_else(|| match self.missed() {
            0 => None,
            n => Some(format!("{n} frames are missing from the capture: the disk was slower than they came")),
        })
    }
}

/// The side of the port: frames into buffers, buffers to the writer.
struct Recorder {
    interface: String,
    snap: usize,
    /// Bytes that the file may still take.
    left: u64,
    /// Wall clock in ns since 1970 at instant 0.
    origin_ns: u64,
    current: Vec<u8>,
    /// Absent when the capture has ended.
    full: Option<SyncSender<Vec<u8>>>,
    empty: Receiver<Vec<u8>>,
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
}

impl Recorder {
    fn is_on(&self) -> bool {
        self.full.is_some()
    }

    /// Keeps `part`, the beginning of a frame of `len` bytes.
    fn record(&mut self, at: Instant, part: &[u8], len: usize) {
        let part = &part[..part.len().min(self.snap)];
        let size = FRAME_HEADER + part.len();
        if size as u64 > self.left {
            let frames = self.shared.frames.load(Ordering::Relaxed);
            self.shared.end(format!(
                "the capture of {} ended after {frames} frames, when its file had reached its limit",
                self.interface
            ));
            return self.close();
        }
        if self.current.len() + size > BUFFER {
            self.hand_over();
        }
        if self.current.len() + size > BUFFER || !self.is_on() {
            self.shared.missed.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let ns = self.origin_ns.saturating_add(at.0);
        let words = [(ns / 1_000_000_000) as u32, (ns % 1_000_000_000) as u32, part.len() as u32, len as u32];
        words.iter().for_each(|w| self.current.extend_from_slice(&w.to_le_bytes()));
        self.current.extend_from_slice(part);
        self.left -= size as u64;
        self.shared.frames.fetch_add(1, Ordering::Relaxed);
    }

    /// Gives the buffer to the writer if there is an empty one in exchange; never waits.
    fn hand_over(&mut self) {
        if self.current.is_empty() {
            return;
        }
        match self.empty.try_recv() {
            Ok(fresh) => {
                let full = std::mem::replace(&mut self.current, fresh);
                // The channel holds all buffers that there are; it refuses only when the writer is gone.
                if self.full.as_ref().is_some_and(|f| f.try_send(full).is_err()) {
                    self.full = None;
                }
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => self.full = None,
        }
    }

    /// No more frames; what is in the buffer still goes to the file.
    fn close(&mut self) {
        if let Some(full) = self.full.take() {
            let _ = full.try_send(std::mem::take(&mut self.current));
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.close();
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

fn write(mut file: impl Write, full: &Receiver<Vec<u8>>, empty: &SyncSender<Vec<u8>>) -> io::Result<()> {
    while let Ok(mut buffer) = full.recv() {
        file.write_all(&buffer)?;
        buffer.clear();
        let _ = empty.try_send(buffer);
    }
    file.flush()
}

/// A port whose frames, but for those of the measurement, are also written to a file. `P` is what owns or borrows the inner port: a
/// `Box<dyn Port>`, a `Box<dyn Port + Send>`, a `&mut MemoryPort`.
pub struct Capture<P, N, F> {
    port: P,
    now: N,
    is_test: F,
    recorder: Recorder,
    /// Beginnings of the frames of a burst that is being sent, one after the other.
    sending: Vec<u8>,
    /// Their `(slot, length of the frame, end in sending)`.
    spans: Vec<(usize, usize, usize)>,
}

impl<P, N, F> Capture<P, N, F>
where
    P: DerefMut,
    P::Target: Port,
    N: Fn() -> Instant,
    F: Fn(&[u8]) -> bool,
{
    /// Captures what passes `port` into the file `path`, which is made anew. `now` tells the instant at which a burst is sent,
    /// `origin_ns` the wall clock at instant 0 in ns since 1970. Frames of which `is_test` says true are left out; it is asked once per frame.
    ///
    /// # Errors
    /// What the system says of a file or thread that cannot be made.
    pub fn start(
        port: P,
        path: &Path,
        limits: CaptureLimits,
        origin_ns: u64,
        now: N,
        is_test: F,
    ) -> io::Result<(Self, CaptureStatus)> {
        let snap = limits.snap_length.clamp(1, 65_535);
        let mut file = File::create(path)?;
        let mut header = Vec::with_capacity(FILE_HEADER);
        // Version 2.4; zone and accuracy of the times are 0 in all files.
        let words = [MAGIC, 4 << 16 | 2, 0, 0, snap, ETHERNET];
        words.iter().for_each(|w| header.extend_from_slice(&w.to_le_bytes()));
        file.write_all(&header)?;
        let interface = port.info().interface.clone();
        let shared = Arc::new(Shared::default());
        let (full, to_write) = sync_channel(BUFFERS + 1);
        let (spare, empty) = sync_channel(BUFFERS + 1);
        for _ in 1..BUFFERS {
            let _ = spare.try_send(Vec::with_capacity(BUFFER));
        }
        let (seen, name, place) = (shared.clone(), interface.clone(), path.display().to_string());
        let writer = std::thread::Builder::new().name(format!("capture {interface}")).spawn(move || {
            if let Err(e) = write(file, &to_write, &spare) {
                seen.end(format!("the capture of {name} ended: {place} cannot be written: {e}"));
            }
        })?;
        let recorder = Recorder {
            interface,
            snap: snap as usize,
            left: limits.file_bytes.saturating_sub(FILE_HEADER as u64),
            origin_ns,
            current: Vec::with_capacity(BUFFER),
            full: Some(full),
            empty,
            shared: shared.clone(),
            writer: Some(writer),
        };
        let sending = Vec::with_capacity(BURST * 2_048);
        let capture = Capture { port, now, is_test, recorder, sending, spans: Vec::with_capacity(BURST) };
        Ok((capture, CaptureStatus(shared)))
    }

    /// The inner port; the file is complete when this returns.
    pub fn into_inner(self) -> P {
        self.port
    }

    /// Copies what is to be kept of the first `frames` slots, because after sending they may be other slots.
    fn keep(&mut self, frames: usize) {
        self.sending.clear();
        self.spans.clear();
        if !self.recorder.is_on() {
            return;
        }
        let slots = self.port.slots();
        for slot in 0..frames.min(slots.len()) {
            let frame = slots.frame(slot);
            if !(self.is_test)(frame) {
                self.sending.extend_from_slice(&frame[..frame.len().min(self.recorder.snap)]);
                self.spans.push((slot, frame.len(), self.sending.len()));
            }
        }
    }

    /// Records what was kept and left; slot i at `at(i)`.
    fn left(&mut self, sent: &Sent, at: impl Fn(usize) -> Instant) {
        let mut start = 0;
        for (slot, len, end) in &self.spans {
            if sent.refused_mask >> slot & 1 == 0 {
                self.recorder.record(at(*slot), &self.sending[start..*end], *len);
            }
            start = *end;
        }
    }
}

impl<P, N, F> Capture<P, N, F>
where
    P: DerefMut,
    P::Target: Port,
    N: Fn() -> Instant,
    F: Fn(&[u8]) -> bool,
{
    fn sent(
        &mut self,
        frames: usize,
        send: impl FnOnce(&mut P::Target) -> Result<Sent, PortError>,
    ) -> Result<Sent, PortError> {
        self.keep(frames);
        let at = if self.spans.is_empty() { Instant(0) } else { (self.now)() };
        let sent = send(&mut *self.port)?;
        self.left(&sent, |_| at);
        Ok(sent)
    }
}

impl<P, N, F> Port for Capture<P, N, F>
where
    P: DerefMut,
    P::Target: Port,
    N: Fn() -> Instant,
    F: Fn(&[u8]) -> bool,
{
    fn info(&self) -> &PortInfo {
        self.port.info()
    }

    fn slots(&mut self) -> &mut Batch {
        self.port.slots()
    }

    fn send(&mut self, frames: usize) -> Result<Sent, PortError> {
        self.sent(frames, |port| port.send(frames))
    }

    fn send_stream(&mut self, frames: usize) -> Result<Sent, PortError> {
        self.sent(frames, |port| port.send_stream(frames))
    }

    fn sends_ahead(&self) -> bool {
        self.port.sends_ahead()
    }

    fn send_at(&mut self, at: &[Instant]) -> Result<Sent, PortError> {
        self.keep(at.len());
        let sent = self.port.send_at(at)?;
        self.left(&sent, |slot| at[slot]);
        Ok(sent)
    }

    fn receive(&mut self) -> Result<Received<'_>, PortError> {
        let frames = self.port.receive()?;
        if self.recorder.is_on() {
            let mut kept = false;
            for arrival in frames.iter().filter(|a| !(self.is_test)(a.frame)) {
                self.recorder.record(arrival.at, arrival.frame, arrival.frame.len());
                kept = true;
            }
            // In the pauses of what is captured the file catches up.
            if !kept {
                self.recorder.hand_over();
            }
        }
        Ok(frames)
    }

    fn counters(&mut self) -> Result<PortCounters, PortError> {
        self.port.counters()
    }

    fn readable(&self) -> Option<BorrowedFd<'_>> {
        self.port.readable()
    }

    fn set_link(&mut self, up: bool) -> Result<(), PortError> {
        self.port.set_link(up)
    }

    fn has_carrier(&mut self) -> Result<bool, PortError> {
        self.port.has_carrier()
    }

    fn largest_frame(&self) -> usize {
        self.port.largest_frame()
    }

    fn kernel_generator(&mut self) -> Option<&mut dyn KernelGenerator> {
        self.port.kernel_generator()
    }
}
