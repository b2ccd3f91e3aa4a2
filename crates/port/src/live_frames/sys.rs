//! The system calls of this backend: an interface to attach the program to, processor and priority of a thread, features
//! of a driver.

use crate::af_packet::sys::{check, interface_index};
use crate::netlink::{Netlink, attribute};
use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::mem;
use std::os::fd::AsRawFd;

/// Creates a tap interface that is down and is removed when the returned file is closed. A program that is attached
/// anywhere is ready to run; one that is not attached costs the kernel 25 ms per run.
///
/// # Errors
/// The system's error.
pub fn tap() -> io::Result<(File, i32)> {
    let file = OpenOptions::new().read(true).write(true).open("/dev/net/tun")?;
    // SAFETY: all-zero is a valid request.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(c"dhlive%d".to_bytes()) {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the call reads and writes one `ifreq`.
    check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as libc::Ioctl, &mut request) })?;
    // SAFETY: the kernel has written the name with its end into the request.
    let name = unsafe { CStr::from_ptr(request.ifr_name.as_ptr()) };
    let index = interface_index(&name.to_string_lossy())?;
    Ok((file, index))
}

/// Clock of the packet loop and of the kernel's programs.
pub fn monotonic_ns() -> u64 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `ts` is a valid timespec for the call to fill.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut ts) };
    ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64
}

/// A set of processors that a thread may use.
#[derive(Clone, Copy)]
pub struct Processors(libc::cpu_set_t);

impl Processors {
    /// The processors of the calling thread.
    pub fn mine() -> io::Result<Processors> {
        // SAFETY: all-zero is a valid set.
        let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
        // SAFETY: the kernel fills the set, whose size is passed; 0 names the calling thread.
        check(unsafe { libc::sched_getaffinity(0, mem::size_of::<libc::cpu_set_t>(), &mut set) })?;
        Ok(Processors(set))
    }

    /// The set of this processor.
    pub fn one(processor: usize) -> Processors {
        // SAFETY: all-zero is a valid set, and `CPU_SET` ignores what is out of its range.
        let set = unsafe {
            let mut set: libc::cpu_set_t = mem::zeroed();
            libc::CPU_SET(processor, &mut set);
            set
        };
        Processors(set)
    }

    /// Restricts the calling thread to this set.
    pub fn take(&self) -> io::Result<()> {
        // SAFETY: the set is valid and its size is passed; 0 names the calling thread.
        check(unsafe { libc::sched_setaffinity(0, mem::size_of::<libc::cpu_set_t>(), &self.0) })?;
        Ok(())
    }
}

/// Sets how late the calling thread may be woken, in ns; returns the previous value.
pub fn timer_slack(ns: u64) -> u64 {
    // SAFETY: plain calls.
    unsafe {
        let before = libc::prctl(libc::PR_GET_TIMERSLACK);
        libc::prctl(libc::PR_SET_TIMERSLACK, ns as libc::c_ulong);
        u64::try_from(before).unwrap_or(50_000)
    }
}

#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Gives the calling thread time slices of this length (0: the default) and this priority (`None`: unchanged), as far as
/// permitted; the length requires Linux 6.12.
pub fn take_turns(turn_ns: u64, nice: Option<i32>) {
    let mut attributes = Attributes { size: mem::size_of::<Attributes>() as u32, ..Attributes::default() };
    // SAFETY: the kernel fills the struct, whose size is passed; 0 names the calling thread.
    if unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, attributes.size, 0) } != 0 {
        return;
    }
    attributes.runtime = turn_ns;
    attributes.nice = nice.unwrap_or(attributes.nice);
    // SAFETY: the kernel reads the struct, whose size is passed.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}

/// True if the interface accepts frames that a program redirects to it. On veth this requires that the *other* end
/// receives by NAPI (`gro on`, or an XDP program): only then is there a ring for them.
///
/// # Errors
/// The system's error; the kernel is older than 6.3.
pub fn takes_redirected(interface: i32) -> io::Result<bool> {
    const CONTROL: u16 = 0x10;
    const GET_FAMILY: u8 = 3;
    const FAMILY_ID: u16 = 1;
    const FAMILY_NAME: u16 = 2;
    const DEVICE_GET: u8 = 1;
    const INTERFACE: u16 = 1;
    const XDP_FEATURES: u16 = 3;
    const TRANSMIT: u64 = 1 << 2;
    // `struct genlmsghdr`: the attributes follow its command, its version and two zero bytes.
    let mut netlink = Netlink::open(libc::NETLINK_GENERIC)?;
    let mut ask = |family: u16, command: u8, kind: u16, value: &[u8]| {
        let len = 4 + value.len();
        let mut body = vec![command, 1, 0, 0];
        body.extend_from_slice(&(len as u16).to_ne_bytes());
        body.extend_from_slice(&kind.to_ne_bytes());
        body.extend_from_slice(value);
        body.resize(4 + len.next_multiple_of(4), 0);
        netlink.ask(family, &body).map(|answer| answer.get(4..).unwrap_or_default().to_vec())
    };
    let unexpected = || io::Error::from(io::ErrorKind::InvalidData);
    let family = ask(CONTROL, GET_FAMILY, FAMILY_NAME, b"netdev\0")?;
    let id = attribute(&family, FAMILY_ID).and_then(|v| v.try_into().ok()).map(u16::from_ne_bytes);
    let device = ask(id.ok_or_else(unexpected)?, DEVICE_GET, INTERFACE, &interface.to_ne_bytes())?;
    let features = attribute(&device, XDP_FEATURES).and_then(|v| v.try_into().ok()).map(u64::from_ne_bytes);
    Ok(features.ok_or_else(unexpected)? & TRANSMIT != 0)
}
