//! The parts of `bpf()` that backends and counters need: maps, programs, links and test runs. Every program is
//! assembled here and attached by a link, so that the kernel removes it with the process, however the process ends.

pub(crate) mod assembler;
pub(crate) mod plain;

use crate::af_packet::sys::check;
use crate::mapping::Mapping;
use assembler::Instruction;
use std::ffi::CStr;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

const MAP_CREATE: libc::c_long = 0;
const MAP_UPDATE: libc::c_long = 2;
const PROG_LOAD: libc::c_long = 5;
const PROG_TEST_RUN: libc::c_long = 10;
const RAW_TRACEPOINT_OPEN: libc::c_long = 17;
const LINK_CREATE: libc::c_long = 28;
const PROG_TYPE_XDP: u32 = 6;
const PROG_TYPE_RAW_TRACEPOINT: u32 = 17;
const ATTACH_XDP: u32 = 37;

/// Kinds of maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapKind {
    Array = 2,
    Devices = 14,
    Sockets = 17,
}

/// Verdicts of XDP programs.
pub mod verdict {
    /// The kernel drops the frame.
    pub const DROP: i32 = 1;
    /// The frame continues into the kernel's network stack.
    pub const PASS: i32 = 2;
}

/// Where the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the driver, before the kernel allocates a packet for the frame.
    Native,
    /// In the kernel's generic receive path; works with every driver.
    Generic,
}

/// Calls `bpf()` with the attributes of a command: its part of `union bpf_attr` (linux/bpf.h), up to the last field that is used.
fn bpf<T>(command: libc::c_long, attributes: &mut T) -> io::Result<i32> {
    let pointer: *mut T = attributes;
    // SAFETY: `T` has the layout of the attributes of `command`, and the kernel treats missing attributes as zero. Its
    // size is passed, and the pointers in it live through the call.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, pointer, mem::size_of::<T>()) };
    check(result as libc::c_int)
}

fn owned(fd: i32) -> OwnedFd {
    // SAFETY: `bpf()` has just returned this descriptor, and nobody else owns it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Returns the 32 bits of a descriptor, and the 32 bits of padding after them.
fn padded(descriptor: &OwnedFd) -> u64 {
    let [a, b, c, d] = descriptor.as_raw_fd().to_ne_bytes();
    u64::from_ne_bytes([a, b, c, d, 0, 0, 0, 0])
}

fn create(kind: MapKind, value_size: u32, entries: u32, flags: u32) -> io::Result<OwnedFd> {
    let key_size = 4;
    bpf(MAP_CREATE, &mut [kind as u32, key_size, value_size, entries, flags]).map(owned)
}

/// Creates a map from `queues` receive queues to sockets.
///
/// # Errors
/// The operating system's error; `EPERM` without `CAP_BPF`.
pub fn socket_map(queues: u32) -> io::Result<OwnedFd> {
    create(MapKind::Sockets, 4, queues, 0)
}

/// Creates a map with one interface to redirect to, so that the kernel need not look it up for each frame.
///
/// # Errors
/// The operating system's error; `EPERM` without `CAP_BPF`.
pub fn device_map(interface: i32) -> io::Result<OwnedFd> {
    let map = create(MapKind::Devices, 4, 1, 0)?;
    put(&map, 0, interface)?;
    Ok(map)
}

/// Puts `socket` into the map at `queue`.
///
/// # Errors
/// The operating system's error.
pub fn insert(map: &OwnedFd, queue: u32, socket: &OwnedFd) -> io::Result<()> {
    put(map, queue, socket.as_raw_fd())
}

fn put(map: &OwnedFd, key: u32, value: i32) -> io::Result<()> {
    let flags = 0;
    bpf(MAP_UPDATE, &mut [padded(map), (&raw const key) as u64, (&raw const value) as u64, flags]).map(drop)
}

/// An array of 64-bit words that programs and this process share: `entries` values of `words` words each.
#[derive(Debug)]
pub struct SharedArray {
    map: OwnedFd,
    memory: Mapping,
    words: usize,
    entries: usize,
}

// SAFETY: the memory is shared with the kernel anyway, and accessed only through atomics.
unsafe impl Sync for SharedArray {}

impl SharedArray {
    /// Creates an array of zeros.
    ///
    /// # Errors
    /// The operating system's error; `EPERM` without `CAP_BPF`.
    pub fn new(entries: usize, words: usize) -> io::Result<SharedArray> {
        const MMAPABLE: u32 = 1 << 10;
        let too_large = |_| io::Error::from(io::ErrorKind::InvalidInput);
        let (entries, words) = (entries.max(1), words.max(1));
        let map = create(
            MapKind::Array,
            (words * 8).try_into().map_err(too_large)?,
            entries.try_into().map_err(too_large)?,
            MMAPABLE,
        )?;
        let memory = Mapping::shared(entries * words * 8, map.as_raw_fd(), 0)?;
        Ok(SharedArray { map, memory, words, entries })
    }

    /// Returns the array's descriptor, for the assembler.
    pub fn descriptor(&self) -> i32 {
        self.map.as_raw_fd()
    }

    /// Returns the number of values.
    pub fn entries(&self) -> usize {
        self.entries
    }

    fn word(&self, entry: usize, word: usize) -> &AtomicU64 {
        assert!(entry < self.entries && word < self.words, "outside of the map");
        // SAFETY: the word is within the mapping, as just checked. The mapping lives as long as `self`, and aligned
        // words of shared memory can be used as atomics.
        unsafe { self.memory.start().cast::<AtomicU64>().add(entry * self.words + word).as_ref() }
    }

    /// Reads one word.
    #[inline]
    pub fn get(&self, entry: usize, word: usize) -> u64 {
        self.word(entry, word).load(Ordering::Acquire)
    }

    /// Writes one word.
    #[inline]
    pub fn put(&self, entry: usize, word: usize, value: u64) {
        self.word(entry, word).store(value, Ordering::Release);
    }
}

#[repr(C)]
struct ProgLoad {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
}

/// Kind, licence and properties of a program.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Where the program may be attached.
    pub kind: ProgramKind,
    /// Licence reported to the kernel. Some helper functions require a licence that is compatible with the kernel's.
    pub licence: &'static CStr,
    /// True if the program accepts frames of several pages.
    pub fragments: bool,
}

/// Kinds of programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramKind {
    /// Runs for each frame that an interface receives.
    Xdp = PROG_TYPE_XDP as isize,
    /// Runs whenever the kernel passes a tracepoint, and gets the tracepoint's arguments.
    RawTracepoint = PROG_TYPE_RAW_TRACEPOINT as isize,
}

const LICENCE: &CStr = c"MIT OR Apache-2.0";

/// Loads an XDP program.
///
/// # Errors
/// The operating system's error, followed by the message of the verifier.
pub fn load(code: &[Instruction]) -> io::Result<OwnedFd> {
    load_on(code, Terms { kind: ProgramKind::Xdp, licence: LICENCE, fragments: false })
}

/// Loads a program for [`trace`].
///
/// # Errors
/// The errors of [`load`]; `EPERM` without `CAP_BPF` and `CAP_PERFMON`.
pub fn load_tracer(code: &[Instruction]) -> io::Result<OwnedFd> {
    load_on(code, Terms { kind: ProgramKind::RawTracepoint, licence: LICENCE, fragments: false })
}

/// Like [`load`], but with these terms.
///
/// # Errors
/// The errors of [`load`].
pub fn load_on(code: &[Instruction], terms: Terms) -> io::Result<OwnedFd> {
    const FRAGMENTS: u32 = 1 << 5;
    let attempt = |log: &mut [u8]| {
        let mut attributes = ProgLoad {
            kind: terms.kind as u32,
            count: code.len() as u32,
            instructions: code.as_ptr() as u64,
            license: terms.licence.as_ptr() as u64,
            log_level: u32::from(!log.is_empty()),
            log_size: log.len() as u32,
            log: if log.is_empty() { 0 } else { log.as_mut_ptr() as u64 },
            kernel_version: 0,
            flags: if terms.fragments { FRAGMENTS } else { 0 },
        };
        bpf(PROG_LOAD, &mut attributes).map(owned)
    };
    attempt(&mut []).or_else(|e| {
        if e.raw_os_error() == Some(libc::EPERM) {
            return Err(e);
        }
        let mut log = vec![0; 1 << 20];
        attempt(&mut log).map_err(|e| {
            let end = log.iter().position(|b| *b == 0).unwrap_or(log.len());
            // The error is at the end of the log.
            let from = end.saturating_sub(4_000);
            io::Error::new(e.kind(), format!("{e}; {}", String::from_utf8_lossy(&log[from..end]).trim()))
        })
    })
}

/// Attaches the program to the interface for the lifetime of the returned link. The kernel removes it with the process,
/// however the process ends. It runs in the driver if supported, otherwise in the generic path.
///
/// # Errors
/// The operating system's error; `EBUSY` if another program is attached.
pub fn attach(program: &OwnedFd, interface: i32) -> io::Result<(OwnedFd, Mode)> {
    const GENERIC: u32 = 1 << 1;
    const NATIVE: u32 = 1 << 2;
    let attempt = |flags: u32| {
        bpf(LINK_CREATE, &mut [program.as_raw_fd() as u32, interface as u32, ATTACH_XDP, flags]).map(owned)
    };
    match attempt(NATIVE) {
        Ok(link) => Ok((link, Mode::Native)),
        Err(e) if matches!(e.raw_os_error(), Some(libc::EBUSY | libc::EPERM)) => Err(e),
        Err(_) => attempt(GENERIC).map(|link| (link, Mode::Generic)),
    }
}

/// Runs the program at this tracepoint of the kernel, on all processors, for the lifetime of the returned link.
///
/// # Errors
/// The operating system's error; `ENOENT` if the kernel has no such tracepoint.
pub fn trace(program: &OwnedFd, tracepoint: &CStr) -> io::Result<OwnedFd> {
    let cookie = 0;
    bpf(RAW_TRACEPOINT_OPEN, &mut [tracepoint.as_ptr() as u64, padded(program), cookie]).map(owned)
}

#[repr(C)]
#[derive(Default)]
struct TestRun {
    program: u32,
    result: u32,
    data_in_len: u32,
    data_out_len: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    context_in_len: u32,
    context_out_len: u32,
    context_in: u64,
    context_out: u64,
    flags: u32,
    cpu: u32,
    batch: u32,
    pad: u32,
}

/// Runs `program` `repeat` times over live frames that start as copies of `frame`, in batches of `batch` frames. After
/// each batch, the kernel does other work. Redirected frames leave at the end of their batch.
///
/// # Errors
/// The operating system's error; `EINTR` if a signal arrived.
pub fn run_live(program: &OwnedFd, frame: &[u8], repeat: u32, batch: u32) -> io::Result<()> {
    const LIVE_FRAMES: u32 = 1 << 1;
    let mut attributes = TestRun {
        program: program.as_raw_fd() as u32,
        data_in_len: frame.len() as u32,
        data_in: frame.as_ptr() as u64,
        repeat,
        flags: LIVE_FRAMES,
        batch,
        ..TestRun::default()
    };
    bpf(PROG_TEST_RUN, &mut attributes).map(drop)
}
