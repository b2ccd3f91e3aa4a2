//! Links of a guest that are veth pairs of this machine: packet sockets that the guest is given, and a look at whether it reads them.
//!
//! Where the guest's kernel takes an interrupt while it handles another one it can forget a descriptor that became readable. It learns that a socket is readable when
//! the next frame comes, and none comes into a socket that is full: such a link would be deaf for ever. So who started the guest keeps the sockets too, and tells
//! the guest once more where the first frame of a socket has been waiting.

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

/// How often it is looked at whether the guest reads.
const LOOK: Duration = Duration::from_millis(10);
/// After so many looks the guest is told in any case: it can forget as well that a socket takes frames again. Its driver resets a queue that stands still for
/// half a second, and then the kernel panics.
const IN_ANY_CASE: u32 = 10;
/// Frames that a socket holds: as many as the input queue of other links.
const FRAMES: usize = 2048;
/// What the kernel reckons for a frame of 1,500 bytes in a socket.
const FRAME: usize = 2304;
/// Bytes that wait to be sent: the kernel's default.
const SEND: usize = 212_992;
/// Bytes by which frames are told apart. Those of a flow differ in what the tester signs them with.
const HEAD: usize = 128;
/// Lines about a link in the log of the guest at most.
const LINES: u64 = 20;

/// The socket of a link.
pub(super) struct Link {
    name: String,
    socket: OwnedFd,
    /// The guest reads it.
    taken: bool,
    /// The frame that is the next to be read, with its length, as it was when it was looked at.
    first: Option<([u8; HEAD], usize)>,
    /// How often the guest was told once more.
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
        // The guest inherits it.
        let socket = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_NONBLOCK, SockProtocol::EthAll)
            .map_err(failed)?;
        fcntl(&socket, FcntlArg::F_SETFD(FdFlag::empty())).map_err(failed)?;
        // Only root may; others have the kernel's default. The kernel doubles what it is told.
        let _ = setsockopt(&socket, sockopt::RcvBufForce, &(FRAMES * FRAME / 2));
        bind(socket.as_raw_fd(), &address).map_err(failed)?;
        Ok(Link { name, socket, taken: false, first: None, told: 0 })
    }

    /// `vec0:transport=fd,fd=5,mtu=1500`: the words by which the guest's kernel takes it.
    pub(super) fn words(&self, index: usize, mtu: u32) -> String {
        format!("vec{index}:transport=fd,fd={},mtu={mtu}", self.socket.as_raw_fd())
    }

    /// Has the guest taken the socket? It asks for signals then. What came before is for nobody, and is dropped.
    fn is_taken(&mut self) -> bool {
        if !self.taken {
            let flags = fcntl(&self.socket, FcntlArg::F_GETFL).unwrap_or_default();
            self.taken = OFlag::from_bits_retain(flags).contains(OFlag::O_ASYNC);
            let mut head = [0; HEAD];
            while !self.taken && recv(self.socket.as_raw_fd(), &mut head, MsgFlags::empty()).is_ok() {}
        }
        self.taken
    }

    /// Is the next frame the one that it was at the last look?
    fn is_unread(&mut self) -> bool {
        let mut head = [0; HEAD];
        let seen = recv(self.socket.as_raw_fd(), &mut head, MsgFlags::MSG_PEEK | MsgFlags::MSG_TRUNC);
        let first = seen.ok().map(|length| (head, length));
        let unread = first.is_some() && first == self.first;
        self.first = first;
        unread
    }

    /// Makes the socket ready once more in the eyes of epoll(7): the kernel wakes who sends when it is told how much may wait to be sent.
    fn make_ready(&self) {
        let _ = setsockopt(&self.socket, sockopt::SndBuf, &(SEND / 2));
    }

    /// A line in the log of the guest.
    fn note(&mut self) {
        self.told += 1;
        if self.told <= LINES {
            println!("{}: a frame was not read for {} ms; the guest is told once more", self.name, LOOK.as_millis());
        }
    }
}

/// Waits until the guest's kernel ends, and tells it once more of frames that it does not read.
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
