//! Captures of frames that arrive at a port, as a client of an API asks for them.
//!
//! A [`Tap`] is a port around another port. While a capture runs, it copies received frames that pass its filters into memory, up to a
//! limit. It changes nothing about the frames that go through it.

use crate::filters::CaptureSettings;
use drophammer_port::{
    Batch, KernelGenerator, LinkControl, Port, PortCounters, PortError, PortInfo, Received, SendAhead, Sent,
};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of captured frames per port.
pub const ROOM: usize = 64 << 20;
/// Bytes of memory that a captured frame takes in addition to its own bytes.
const EACH: usize = 48;
/// Length of the frame check sequence.
const FCS: usize = 4;

/// A captured frame without FCS.
struct Frame {
    /// Arrival in ns since 1970.
    at_ns: u64,
    bytes: Box<[u8]>,
}

#[derive(Default)]
struct Frames {
    settings: CaptureSettings,
    /// Wall clock in ns since 1970 at instant 0.
    origin_ns: u64,
    frames: VecDeque<Frame>,
    used: usize,
    /// True once a frame did not fit. From then on no frame is taken: a smaller one that fits would hide the gap.
    full: bool,
}

impl Frames {
    fn add(&mut self, frame: Frame) {
        let size = frame.bytes.len() + EACH;
        self.full |= !self.settings.overwrite && self.used + size > ROOM;
        if self.full {
            return;
        }
        self.used += size;
        self.frames.push_back(frame);
        while self.used > ROOM
            && let Some(oldest) = self.frames.pop_front()
        {
            self.used -= oldest.bytes.len() + EACH;
        }
    }
}

/// The capture of a port, for the thread that is asked for it.
#[derive(Default)]
pub struct Capture {
    running: AtomicBool,
    frames: Mutex<Frames>,
}

impl Capture {
    fn frames(&self) -> MutexGuard<'_, Frames> {
        self.frames.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a new capture. `origin_ns` is the wall clock in ns since 1970 at instant 0.
    pub fn start(&self, settings: CaptureSettings, origin_ns: u64) {
        *self.frames() = Frames { settings, origin_ns, ..Frames::default() };
        self.running.store(true, Ordering::Relaxed);
    }

    /// Ends the capture. Its frames are kept.
    pub fn stop(&self) {
        self.running.store(false, Ordering::Relaxed);
    }

    /// True while frames are captured.
    pub fn is_running(&self) -> bool {
        self.running.load(Ordering::Relaxed)
    }

    /// The captured frames as a file, each with its FCS.
    pub fn file(&self) -> Vec<u8> {
        let frames = self.frames();
        if frames.settings.next_generation { pcapng(&frames) } else { pcap(&frames) }
    }
}

/// A port whose received frames can be captured.
pub struct Tap {
    port: Box<dyn Port + Send>,
    capture: Arc<Capture>,
}

impl Tap {
    /// Wraps `port`. Frames are captured while `capture` runs.
    pub fn new(port: Box<dyn Port + Send>, capture: Arc<Capture>) -> Tap {
        Tap { port, capture }
    }
}

impl Port for Tap {
    fn info(&self) -> &PortInfo {
        self.port.info()
    }

    fn slots(&mut self) -> &mut Batch {
        self.port.slots()
    }

    fn send(&mut self, frames: usize) -> Result<Sent, PortError> {
        self.port.send(frames)
    }

    fn receive(&mut self) -> Result<Received<'_>, PortError> {
        let Tap { port, capture } = self;
        let received = port.receive()?;
        if capture.is_running() && !received.is_empty() {
            let mut frames = capture.frames();
            let (filters, origin_ns) = (frames.settings.filters.clone(), frames.origin_ns);
            for arrival in received.iter().filter(|arrival| filters.pass(arrival.frame)) {
                frames.add(Frame { at_ns: origin_ns.saturating_add(arrival.at.0), bytes: arrival.frame.into() });
            }
        }
        Ok(received)
    }

    fn counters(&mut self) -> Result<PortCounters, PortError> {
        self.port.counters()
    }

    fn send_stream(&mut self, frames: usize) -> Result<Sent, PortError> {
        self.port.send_stream(frames)
    }

    fn readable(&self) -> Option<BorrowedFd<'_>> {
        self.port.readable()
    }

    fn link(&mut self) -> Option<&mut dyn LinkControl> {
        self.port.link()
    }

    fn ahead(&mut self) -> Option<&mut dyn SendAhead> {
        self.port.ahead()
    }

    fn kernel_generator(&mut self) -> Option<&mut dyn KernelGenerator> {
        self.port.kernel_generator()
    }
}

/// The FCS of a frame: CRC-32 (IEEE 802.3 section 3.2.9), as it is sent.
fn fcs(frame: &[u8]) -> [u8; FCS] {
    let bit = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    let octet = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), |crc, _| bit(crc));
    (!frame.iter().fold(!0, octet)).to_le_bytes()
}

impl Frame {
    /// The first bytes of the frame with its FCS, and the length of the whole frame.
    fn cut(&self, settings: &CaptureSettings) -> (Vec<u8>, u32) {
        let mut bytes = self.bytes.to_vec();
        bytes.extend(fcs(&self.bytes));
        let length = bytes.len() as u32;
        bytes.truncate(settings.length.map_or(bytes.len(), |most| most as usize));
        (bytes, length)
    }
}

fn put(out: &mut Vec<u8>, words: &[u32]) {
    words.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
}

/// A file with times in nanoseconds (draft-ietf-opsawg-pcap).
fn pcap(frames: &Frames) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, &[0xa1b2_3c4d, 4 << 16 | 2, 0, 0, 65_535, 1]);
    for frame in &frames.frames {
        let (bytes, length) = frame.cut(&frames.settings);
        let (seconds, rest) = (frame.at_ns / 1_000_000_000, frame.at_ns % 1_000_000_000);
        put(&mut out, &[seconds as u32, rest as u32, bytes.len() as u32, length]);
        out.extend(bytes);
    }
    out
}

/// A file of one section and one interface, with times in nanoseconds (draft-ietf-opsawg-pcapng).
fn pcapng(frames: &Frames) -> Vec<u8> {
    const SECTION: u32 = 0x0a0d_0d0a;
    let mut out = Vec::new();
    put(&mut out, &[SECTION, 28, 0x1a2b_3c4d, 1, !0, !0, 28]);
    // Option 9 (if_tsresol), one byte: ten to the power of minus nine. Then the end of options.
    put(&mut out, &[1, 32, 1, 0, 1 << 16 | 9, 9, 0, 32]);
    for frame in &frames.frames {
        let (bytes, length) = frame.cut(&frames.settings);
        let block = 32 + bytes.len().next_multiple_of(4);
        let at = [(frame.at_ns >> 32) as u32, frame.at_ns as u32];
        put(&mut out, &[6, block as u32, 0, at[0], at[1], bytes.len() as u32, length]);
        out.extend(&bytes);
        out.resize(out.len() + bytes.len().next_multiple_of(4) - bytes.len(), 0);
        put(&mut out, &[block as u32]);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_wire::pcap::frames;

    fn captured(settings: CaptureSettings, sizes: &[usize]) -> Frames {
        let mut all = Frames { settings, ..Frames::default() };
        for (i, size) in sizes.iter().enumerate() {
            all.add(Frame { at_ns: 5_000_000_001 + i as u64, bytes: vec![i as u8; *size].into() });
        }
        all
    }

    #[test]
    fn both_formats_hold_whole_frames_with_fcs() {
        let all = captured(CaptureSettings { overwrite: true, ..CaptureSettings::default() }, &[60, 61, 1_514]);
        for file in [pcap(&all), pcapng(&all)] {
            let found = frames(&file).unwrap();
            assert_eq!(found.iter().map(|frame| frame.length).collect::<Vec<_>>(), [64, 65, 1_518]);
            assert_eq!(found[1].bytes[..61], [1; 61]);
            assert_eq!(found[1].bytes[61..], fcs(&[1; 61]));
        }
    }

    #[test]
    fn the_check_sequence_is_that_of_ethernet() {
        assert_eq!(u32::from_le_bytes(fcs(b"123456789")), 0xcbf4_3926);
    }

    #[test]
    fn a_full_capture_takes_no_smaller_frame_either() {
        let mut sizes = vec![9_000; ROOM / (9_000 + EACH) + 1];
        sizes.extend([60; 10]);
        let all = captured(CaptureSettings { overwrite: false, ..CaptureSettings::default() }, &sizes);
        assert!(all.full && all.used + 60 + EACH <= ROOM);
        assert_eq!(all.frames.len(), ROOM / (9_000 + EACH));
    }

    #[test]
    fn memory_is_bounded() {
        let sizes = vec![9_000; ROOM / 9_000 + 100];
        for overwrite in [true, false] {
            let all = captured(CaptureSettings { overwrite, length: Some(100), ..CaptureSettings::default() }, &sizes);
            assert!(all.used <= ROOM && all.frames.len() < sizes.len());
            assert_eq!(all.frames[0].bytes[0] == 0, !overwrite, "the oldest is replaced or kept");
            assert_eq!(frames(&pcap(&all)).unwrap()[0].bytes.len(), 100);
        }
    }
}
