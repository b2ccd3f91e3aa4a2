//! The limit of system calls: `sendmmsg` and `recvmmsg` with constant frames and nothing else. No timestamps, and received
//! frames are not read.

use crate::links::{FROM, LEN, Sample, TO, constant_frame, counted, cpu_seconds};
use std::ffi::CString;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Instant;

const BURST: usize = 64;
const SLOT: usize = 2_048;

fn socket(interface: &str, protocol: u16) -> OwnedFd {
    let name = CString::new(interface).expect("a name");
    // SAFETY: plain calls over memory that lives until they return; a zeroed address is valid; the descriptor is ours.
    unsafe {
        let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, i32::from(protocol.to_be()));
        assert!(fd >= 0, "socket: {}", std::io::Error::last_os_error());
        let fd = OwnedFd::from_raw_fd(fd);
        let mut address: libc::sockaddr_ll = mem::zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol.to_be();
        address.sll_ifindex = libc::if_nametoindex(name.as_ptr()) as i32;
        let size = mem::size_of_val(&address) as u32;
        assert_eq!(libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size), 0);
        fd
    }
}

fn option(socket: &OwnedFd, level: i32, name: i32, value: i32) {
    // SAFETY: a plain call over a value that lives until it returns.
    unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), 4) };
}

fn sender() -> OwnedFd {
    let socket = socket(FROM, 0);
    option(&socket, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1);
    option(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, 8 << 20);
    socket
}

/// Message headers, and the memory that they point to.
struct Messages {
    headers: Vec<libc::mmsghdr>,
    _vectors: Vec<libc::iovec>,
    _memory: Vec<u8>,
}

impl Messages {
    /// `len` bytes of every slot, filled with `frame`.
    fn new(frame: &[u8], len: usize) -> Messages {
        let mut memory = vec![0u8; BURST * SLOT];
        memory.chunks_mut(SLOT).for_each(|slot| slot[..frame.len()].copy_from_slice(frame));
        let mut vectors: Vec<libc::iovec> = memory
            .chunks_mut(SLOT)
            .map(|slot| libc::iovec { iov_base: slot.as_mut_ptr().cast(), iov_len: len })
            .collect();
        let headers = vectors
            .iter_mut()
            .map(|vector| {
                // SAFETY: all-zero is a valid header.
                let mut header: libc::mmsghdr = unsafe { mem::zeroed() };
                header.msg_hdr.msg_iov = vector;
                header.msg_hdr.msg_iovlen = 1;
                header
            })
            .collect();
        Messages { headers, _vectors: vectors, _memory: memory }
    }

    fn send(&mut self, socket: &OwnedFd) {
        // SAFETY: every header points at memory of `self`, with its true size.
        unsafe { libc::sendmmsg(socket.as_raw_fd(), self.headers.as_mut_ptr(), BURST as u32, 0) };
    }

    fn receive(&mut self, socket: &OwnedFd) -> usize {
        let (headers, none) = (self.headers.as_mut_ptr(), std::ptr::null_mut());
        // SAFETY: every header points at memory of `self`, with its true size.
        let n = unsafe { libc::recvmmsg(socket.as_raw_fd(), headers, BURST as u32, libc::MSG_DONTWAIT, none) };
        n.max(0) as usize
    }
}

/// Sends without a receiver.
pub fn send(seconds: f64) -> Sample {
    let socket = sender();
    let mut messages = Messages::new(&constant_frame(), LEN);
    counted("thread-self", || {
        let start = Instant::now();
        while start.elapsed().as_secs_f64() < seconds {
            messages.send(&socket);
        }
        start.elapsed().as_secs_f64()
    })
}

/// Sends and receives on one thread.
pub fn both(seconds: f64) -> Sample {
    let (from, to) = (sender(), socket(TO, libc::ETH_P_ALL as u16));
    option(&to, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1);
    option(&to, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 64 << 20);
    let (mut send, mut take) = (Messages::new(&constant_frame(), LEN), Messages::new(&[], SLOT));
    let mut received = 0;
    let cpu = cpu_seconds("thread-self");
    let start = Instant::now();
    while start.elapsed().as_secs_f64() < seconds {
        send.send(&from);
        for _ in 0..4 {
            let n = take.receive(&to);
            received += n;
            if n < BURST {
                break;
            }
        }
    }
    let (seconds, cpu) = (start.elapsed().as_secs_f64(), cpu_seconds("thread-self") - cpu);
    Sample { rate: received as f64 / seconds, per_cpu: received as f64 / cpu, lost: 0.0 }
}
