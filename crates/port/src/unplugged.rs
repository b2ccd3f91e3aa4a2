//! Links that a killed process left down.
//!
//! A process that takes the link of an interface down first gives the interface one more name (as `ip link property add` does),
//! and removes this name once the link is up again. Both belong to the interface, so the name lasts exactly as long as the state
//! of the link: until somebody changes it, or the machine restarts. It needs no file, which a process in a lab could not reach.
//!
//! As long as a process has the interface open, it also holds an abstract Unix socket with a name of its own, which the kernel
//! removes with the process. So a link with the mark and without the socket was left down, and [`restore`] brings it up.

use crate::af_packet::sys;
use crate::netlink::{self, Netlink};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Mutex, PoisonError};

/// Returns the further name of an interface whose link a process has taken down.
fn mark(interface: &str) -> String {
    format!("drophammer-down-{interface}")
}

/// Holds the socket that shows that a process has the interface open.
fn hold(interface: &str) -> io::Result<UnixDatagram> {
    UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(format!("drophammer/link/{interface}"))?)
}

/// Marks the interface of an open port. Belongs to the network namespace of the thread that opened it.
pub(crate) struct Mark {
    netlink: Mutex<Netlink>,
    index: i32,
    name: String,
    /// `None` if another port has the same interface open.
    _held: Option<UnixDatagram>,
}

impl Mark {
    /// # Errors
    /// The operating system's error.
    pub(crate) fn open(interface: &str, index: i32) -> io::Result<Mark> {
        let netlink = Mutex::new(Netlink::open(libc::NETLINK_ROUTE)?);
        Ok(Mark { netlink, index, name: mark(interface), _held: hold(interface).ok() })
    }

    /// Records that the link is about to go down, or that it is up again. A kernel before 5.5 has no such record, and an interface
    /// that is gone needs none.
    pub(crate) fn set(&self, down: bool) {
        let mut netlink = self.netlink.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = netlink::set_other_name(&mut netlink, self.index, &self.name, down);
    }
}

/// Brings up the link of an interface of this thread's network namespace if a process that has ended left it down. Returns true
/// if it did.
///
/// # Errors
/// The operating system's error: there is no such interface, or a privilege is missing.
pub fn restore(interface: &str) -> io::Result<bool> {
    let (index, mark) = (sys::interface_index(interface)?, mark(interface));
    if !netlink::has_other_name(index, &mark)? {
        return Ok(false);
    }
    // While this process holds the socket, no other one restores the link.
    let Ok(_held) = hold(interface) else { return Ok(false) };
    let socket = sys::packet_socket(0)?;
    let was_down = !sys::has_flags(&socket, interface, libc::IFF_UP)?;
    sys::set_interface_up(&socket, interface, true)?;
    netlink::set_other_name(&mut Netlink::open(libc::NETLINK_ROUTE)?, index, &mark, false)?;
    Ok(was_down)
}

/// Brings up all links that processes which have ended left down, and returns one line about each.
pub fn sweep() -> Vec<String> {
    let entries = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let swept = names.filter_map(|name| match restore(&name) {
        Ok(true) => Some(format!("the link of {name} was down: it is up again")),
        Ok(false) => None,
        // What vanished in the meantime is not down.
        Err(e) if e.raw_os_error() == Some(libc::ENODEV) => None,
        Err(e) => Some(format!("the link of {name} may be down, and cannot be brought up: {e}")),
    });
    swept.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_without_the_mark_is_left_alone() {
        assert!(!restore("lo").unwrap());
        assert!(restore("no such one").is_err());
    }
}
