//! Links of a guest that are veth pairs: packet sockets that the guest inherits, and a check that it reads them.
//!
//! If the guest's kernel takes an interrupt while it handles another one, it can forget a descriptor that became
//! readable. It would notice when the next frame arrives, but none arrives at a full socket, so such a link would stay
//! deaf. So the process that starts the guest also keeps the sockets open, and signals the guest again if the first
//! frame of a socket stays unread.

use crate::LabError;
use crate::router::dut_interface;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::ifaddrs::getifaddrs;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, bind, recv, setsockopt, socket, sockopt,
};
use nix::unistd::Pid;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::Duration;

/// Interval of the checks whether the guest reads.
const LOOK: Duration = Duration::from_millis(10);
/// After this number of checks we signal the guest even if it reads: it can also forget that a socket accepts frames
/// again. Its driver resets a queue that makes no progress for half a second, and then the kernel panics.
const IN_ANY_CASE: u32 = 10;
/// Frames that fit into a socket, as in the input queue of other links.
const FRAMES: usize = 2048;
/// Bytes that the kernel charges for a frame of 1,500 bytes in a socket.
const FRAME: usize = 2304;
/// Send buffer in bytes: the kernel's default.
const SEND: usize = 212_992;
/// Number of bytes to compare to tell frames apart. Frames of a flow differ in the tester's signature.
const HEAD: usize = 128;
/// Maximum number of lines about a link in the log of the guest.
const LINES: u64 = 20;

/// The socket of a link.
pub(super) struct Link {
    name: String,
    socket: OwnedFd,
    /// True if the guest reads it.
    taken: bool,
    /// The next unread frame at the last check, with its length.
    first: Option<([u8; HEAD], usize)>,
    /// Number of repeated signals to the guest.
    told: u64,
}

impl Link {
    /// Opens the link with this index in the current namespace.
    pub(super) fn open(index: usize) -> Result<Link, LabError> {
        let name = dut_interface(index);
        let failed = |e: Errno| LabError::io(format!("cannot open a packet socket on {name}"))(e);
        let address = getifaddrs().map_err(failed)?.filter(|i| i.interface_name == name).find_map(|i| i.address);
        let address =
            address.filter(|address| address.as_link_addr().is_some()).ok_or_else(|| failed(Errno::ENODEV))?;
        // The guest inherits this socket.
        let socket = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_NONBLOCK, SockProtocol::EthAll)
            .map_err(failed)?;
        fcntl(&socket, FcntlArg::F_SETFD(FdFlag::empty())).map_err(failed)?;
        // Only root may set this; other users get the kernel's default. The kernel doubles the value.
        let _ = setsockopt(&socket, sockopt::RcvBufForce, &(FRAMES * FRAME / 2));
        bind(socket.as_raw_fd(), &address).map_err(failed)?;
        Ok(Link { name, socket, taken: false, first: None, told: 0 })
    }

    /// The argument that makes the guest's kernel open this link: `vec0:transport=fd,fd=5,mtu=1500`.
    pub(super) fn words(&self, index: usize, mtu: u32) -> String {
        format!("vec{index}:transport=fd,fd={},mtu={mtu}", self.socket.as_raw_fd())
    }

    /// True if the guest has opened the socket: it then asks for signals from it. Until then, drops the frames that
    /// arrive.
    fn is_taken(&mut self) -> bool {
        if !self.taken {
            let flags = fcntl(&self.socket, FcntlArg::F_GETFL).unwrap_or_default();
            self.taken = OFlag::from_bits_retain(flags).contains(OFlag::O_ASYNC);
            let mut head = [0; HEAD];
            while !self.taken && recv(self.socket.as_raw_fd(), &mut head, MsgFlags::empty()).is_ok() {}
        }
        self.taken
    }

    /// True if the next frame is the same as at the last check.
    fn is_unread(&mut self) -> bool {
        let mut head = [0; HEAD];
        let seen = recv(self.socket.as_raw_fd(), &mut head, MsgFlags::MSG_PEEK | MsgFlags::MSG_TRUNC);
        let first = seen.ok().map(|length| (head, length));
        let unread = first.is_some() && first == self.first;
        self.first = first;
        unread
    }

    /// Makes the socket ready again for epoll(7): setting its send buffer size wakes up waiting senders.
    fn make_ready(&self) {
        let _ = setsockopt(&self.socket, sockopt::SndBuf, &(SEND / 2));
    }

    /// Writes a line to the log of the guest.
    fn note(&mut self) {
        self.told += 1;
        if self.told <= LINES {
            println!("{}: a frame was not read for {} ms; the guest gets another signal", self.name, LOOK.as_millis());
        }
    }
}

/// Waits until the guest's kernel ends. Meanwhile signals it again whenever it does not read frames.
pub(super) fn attend(kernel: &mut Child, links: &mut [Link]) -> std::io::Result<ExitStatus> {
    if links.is_empty() {
        return kernel.wait();
    }
    let pid = Pid::from_raw(kernel.id().cast_signed());
    for look in (1..=IN_ANY_CASE).cycle() {
        if let Some(status) = kernel.try_wait()? {
            return Ok(status);
        }
        let mut tell = false;
        for link in links.iter_mut() {
            let taken = link.is_taken();
            let unread = taken && link.is_unread();
            if unread {
                link.note();
            }
            if unread || (taken && look == IN_ANY_CASE) {
                link.make_ready();
                tell = true;
            }
        }
        if tell {
            let _ = kill(pid, Signal::SIGIO);
        }
        thread::sleep(LOOK);
    }
    kernel.wait()
}
