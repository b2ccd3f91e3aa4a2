//! Writes all frames that pass through a port, except test frames, to a file for tcpdump, tshark and Wireshark.
//! [`Capture`] is a port that wraps another port.
//!
//! The measurement always has priority over the capture. Frames pass through the inner port unchanged. Frames to be
//! captured are copied into preallocated buffers, which a separate thread writes. If the disk is too slow, frames are
//! missing from the file and are counted. A disk error or the size limit of the file ends only the capture.
//!
//! The file format is pcap with timestamps in nanoseconds (magic 0xa1b23c4d, link type 1: Ethernet without FCS). One
//! file contains both directions.

use crate::{
    BURST, Batch, KernelGenerator, LinkControl, Port, PortCounters, PortError, PortInfo, Received, SendAhead, Sent,
};
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

/// Magic number of pcap files with timestamps in nanoseconds.
const MAGIC: u32 = 0xa1b2_3c4d;
/// Link type Ethernet.
const ETHERNET: u32 = 1;
/// Bytes before the first frame.
const FILE_HEADER: usize = 24;
/// Bytes before each frame.
const FRAME_HEADER: usize = 16;
/// Number of buffers that circulate between port and writer.
const BUFFERS: usize = 32;
/// Size of a buffer in bytes.
const BUFFER: usize = 128 << 10;

/// Limits of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptureLimits {
    /// Maximum number of bytes captured of each frame, 1 to 65,535. The true length is always recorded.
    pub snap_length: u32,
    /// Maximum size of the file in bytes. The capture ends with the frame that would exceed it.
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
    /// Ends the capture. Only the first reason is stored.
    fn end(&self, why: String) {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
    }
}

/// Status of a capture. Other threads can read it during the capture and afterwards.
#[derive(Clone)]
pub struct CaptureStatus(Arc<Shared>);

impl CaptureStatus {
    /// Returns the number of frames handed to the writer so far.
    pub fn frames(&self) -> u64 {
        self.0.frames.load(Ordering::Relaxed)
    }

    /// Returns the number of frames that are missing from the file because the disk was slow.
    pub fn missed(&self) -> u64 {
        self.0.missed.load(Ordering::Relaxed)
    }

    /// Returns a sentence on why the file does not contain all frames; `None` if it does.
    pub fn note(&self) -> Option<String> {
        let ended = self.0.ended.lock().unwrap_or_else(PoisonError::into_inner).clone();
        ended.or_else(|| match self.missed() {
            0 => None,
            n => Some(format!("{n} frames are missing from the capture, because the disk was too slow")),
        })
    }
}

/// Copies frames into buffers and passes the buffers to the writer.
struct Recorder {
    interface: String,
    snap: usize,
    /// Number of bytes that can still be written to the file.
    left: u64,
    /// Wall clock in ns since 1970 at instant 0.
    origin_ns: u64,
    current: Vec<u8>,
    /// `None` after the end of the capture.
    full: Option<SyncSender<Vec<u8>>>,
    empty: Receiver<Vec<u8>>,
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
}

impl Recorder {
    fn is_on(&self) -> bool {
        self.full.is_some()
    }

    /// Records `part`, the beginning of a frame of `len` bytes.
    fn record(&mut self, at: Instant, part: &[u8], len: usize) {
        let part = &part[..part.len().min(self.snap)];
        let size = FRAME_HEADER + part.len();
        if size as u64 > self.left {
            let frames = self.shared.frames.load(Ordering::Relaxed);
            self.shared.end(format!(
                "the capture of {} ended after {frames} frames, when its file reached the size limit",
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

    /// Passes the buffer to the writer if it gets an empty buffer in exchange. Never waits.
    fn hand_over(&mut self) {
        if self.current.is_empty() {
            return;
        }
        match self.empty.try_recv() {
            Ok(fresh) => {
                let full = std::mem::replace(&mut self.current, fresh);
                // The channel has room for all buffers, so it refuses a buffer only if the writer has ended.
                if self.full.as_ref().is_some_and(|f| f.try_send(full).is_err()) {
                    self.full = None;
                }
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => self.full = None,
        }
    }

    /// Stops recording. The buffered frames are still written to the file.
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

/// A port whose frames, except test frames, are also written to a file. `P` owns or borrows the inner port: a `Box<dyn
/// Port>`, a `Box<dyn Port + Send>`, or a `&mut MemoryPort`.
pub struct Capture<P, N, F> {
    port: P,
    now: N,
    is_test: F,
    recorder: Recorder,
    /// The starts of the frames in the burst being sent, one after the other.
    sending: Vec<u8>,
    /// For each frame start: `(slot, length of the frame, end in sending)`.
    spans: Vec<(usize, usize, usize)>,
}

impl<P, N, F> Capture<P, N, F>
where
    P: DerefMut,
    P::Target: Port,
    N: Fn() -> Instant,
    F: Fn(&[u8]) -> bool,
{
    /// Captures the frames that pass through `port` into the file `path`, which it creates or truncates. `now` returns
    /// the time at which a burst is sent. `origin_ns` is the wall clock at instant 0, in ns since 1970. Frames for
    /// which `is_test` returns true are left out; it is called once per frame.
    ///
    /// # Errors
    /// The operating system's error if the file or the thread cannot be created.
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
        // Version 2.4; zone and accuracy of the timestamps are 0 in all files.
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

    /// Returns the inner port. The file is complete when this returns.
    pub fn into_inner(self) -> P {
        self.port
    }

    /// Copies the frames to be captured among the first `frames` slots, because the slots may contain other frames after sending.
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

    /// Records the captured frames that have left. Slot i left at `at(i)`.
    fn left(&mut self, sent: &Sent, at: impl Fn(usize) -> Instant) {
        let mut start = 0;
        for (slot, len, end) in &self.spans {
            if sent.refused_mask >> slot & 1 == 0 {
                self.recorder.record(at(*slot), &self.sending[start..*end], *len);
            }
            start = *end;
        }
    }

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

    fn receive(&mut self) -> Result<Received<'_>, PortError> {
        let frames = self.port.receive()?;
        if self.recorder.is_on() {
            let mut kept = false;
            for arrival in frames.iter().filter(|a| !(self.is_test)(a.frame)) {
                self.recorder.record(arrival.at, arrival.frame, arrival.frame.len());
                kept = true;
            }
            // The file catches up while no frames are captured.
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

    fn link(&mut self) -> Option<&mut dyn LinkControl> {
        self.port.link()
    }

    fn ahead(&mut self) -> Option<&mut dyn SendAhead> {
        if self.port.ahead().is_some() { Some(self) } else { None }
    }

    fn kernel_generator(&mut self) -> Option<&mut dyn KernelGenerator> {
        self.port.kernel_generator()
    }
}

impl<P, N, F> SendAhead for Capture<P, N, F>
where
    P: DerefMut,
    P::Target: Port,
    N: Fn() -> Instant,
    F: Fn(&[u8]) -> bool,
{
    fn send_at(&mut self, at: &[Instant]) -> Result<Sent, PortError> {
        self.keep(at.len());
        let sent = match self.port.ahead() {
            Some(port) => port.send_at(at)?,
            None => self.port.send(at.len())?,
        };
        self.left(&sent, |slot| at[slot]);
        Ok(sent)
    }
}
