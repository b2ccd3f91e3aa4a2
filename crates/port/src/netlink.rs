//! Requests to the kernel over netlink, with one message in each direction.

use crate::af_packet::sys::check;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};

/// A netlink socket of one protocol (`NETLINK_ROUTE`, `NETLINK_GENERIC`).
pub(crate) struct Netlink(File);

impl Netlink {
    /// # Errors
    /// The operating system's error.
    pub(crate) fn open(protocol: libc::c_int) -> io::Result<Netlink> {
        // SAFETY: plain call; the descriptor is owned from here on.
        Ok(Netlink(unsafe {
            let fd = check(libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, protocol))?;
            File::from(OwnedFd::from_raw_fd(fd))
        }))
    }

    /// Sends a request of type `kind` with this body, and returns the body of the reply.
    ///
    /// # Errors
    /// The error in the kernel's reply, or the operating system's error.
    pub(crate) fn ask(&mut self, kind: u16, body: &[u8]) -> io::Result<Vec<u8>> {
        self.exchange(kind, libc::NLM_F_REQUEST, body)
    }

    /// Sends a request for a change of type `kind` with this body, and waits until the change is made.
    ///
    /// # Errors
    /// The error in the kernel's reply, or the operating system's error.
    fn change(&mut self, kind: u16, body: &[u8]) -> io::Result<()> {
        self.exchange(kind, libc::NLM_F_REQUEST | libc::NLM_F_ACK, body).map(drop)
    }

    fn exchange(&mut self, kind: u16, flags: libc::c_int, body: &[u8]) -> io::Result<Vec<u8>> {
        const HEADER: usize = 16;
        let len = HEADER + body.len();
        let mut message = Vec::with_capacity(len);
        message.extend_from_slice(&(len as u32).to_ne_bytes());
        message.extend_from_slice(&kind.to_ne_bytes());
        message.extend_from_slice(&(flags as u16).to_ne_bytes());
        message.extend_from_slice(&[0; 8]);
        message.extend_from_slice(body);
        self.0.write_all(&message)?;
        let mut answer = vec![0; 32_768];
        let n = self.0.read(&mut answer)?;
        answer.truncate(n);
        let error = answer.get(4..6) == Some(&(libc::NLMSG_ERROR as u16).to_ne_bytes());
        match answer.get(HEADER..HEADER + 4).and_then(|b| b.try_into().ok()).map(i32::from_ne_bytes) {
            // The answer to a change that was made.
            Some(0) if error => Ok(Vec::new()),
            Some(code) if error => Err(io::Error::from_raw_os_error(code.wrapping_neg())),
            Some(_) => Ok(answer.split_off(HEADER)),
            None => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
        }
    }
}

/// Iterates over attributes, each with its kind and value, up to the first one that is longer than the rest.
fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (head, _) = rest.split_first_chunk::<4>()?;
        let len = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let value = rest.get(4..len)?;
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([head[2], head[3]]) & 0x3fff, value))
    })
}

/// Returns the value of the attribute of `kind` among `all`.
pub(crate) fn attribute(all: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(all).find(|(found, _)| *found == kind).map(|(_, value)| value)
}

// From linux/rtnetlink.h and linux/if_link.h.
const GETLINK: u16 = 18;
const NEWLINKPROP: u16 = 108;
const DELLINKPROP: u16 = 109;
const PROP_LIST: u16 = 52;
const ALT_IFNAME: u16 = 53;
/// Length of `struct ifinfomsg`. The index starts at offset 4.
const INFO: usize = 16;

/// Returns a `struct ifinfomsg` for the interface with this index.
fn info(index: i32) -> [u8; INFO] {
    let mut body = [0; INFO];
    body[4..8].copy_from_slice(&index.to_ne_bytes());
    body
}

/// Gives the interface with this index another name in addition to its own, or removes it.
///
/// # Errors
/// The operating system's error, or the kernel is older than 5.5.
pub(crate) fn set_other_name(netlink: &mut Netlink, index: i32, name: &str, has: bool) -> io::Result<()> {
    const NESTED: u16 = 1 << 15;
    // Each attribute starts with its length and kind. The name ends with a zero byte.
    let len = 4 + name.len() + 1;
    let mut body = info(index).to_vec();
    for (len, kind) in [(4 + len.next_multiple_of(4), NESTED | PROP_LIST), (len, ALT_IFNAME)] {
        body.extend_from_slice(&(len as u16).to_ne_bytes());
        body.extend_from_slice(&kind.to_ne_bytes());
    }
    body.extend_from_slice(name.as_bytes());
    body.resize(INFO + 4 + len.next_multiple_of(4), 0);
    netlink.change(if has { NEWLINKPROP } else { DELLINKPROP }, &body)
}

/// True if the interface with this index has `name` in addition to its own.
///
/// # Errors
/// The operating system's error if the interface does not exist.
pub(crate) fn has_other_name(index: i32, name: &str) -> io::Result<bool> {
    let answer = Netlink::open(libc::NETLINK_ROUTE)?.ask(GETLINK, &info(index))?;
    let all = attribute(answer.get(INFO..).unwrap_or_default(), PROP_LIST).unwrap_or_default();
    Ok(attributes(all).any(|(kind, value)| kind == ALT_IFNAME && value.strip_suffix(b"\0") == Some(name.as_bytes())))
}

/// True if the interface with this index has a queueing discipline before its ring.
///
/// # Errors
/// The operating system's error if the interface does not exist.
pub(crate) fn has_discipline(index: i32) -> io::Result<bool> {
    // From linux/if_link.h.
    const QDISC: u16 = 6;
    let answer = Netlink::open(libc::NETLINK_ROUTE)?.ask(GETLINK, &info(index))?;
    let name = attribute(answer.get(INFO..).unwrap_or_default(), QDISC);
    Ok(name.is_some_and(|name| name != b"noqueue\0" && name != b"noop\0"))
}

/// True if the interface accepts frames that a program redirects to it. On veth this requires that the *other* end
/// receives by NAPI (`gro on`, or an XDP program), because only then is there a ring for them.
///
/// # Errors
/// The operating system's error, or the kernel is older than 6.3.
pub(crate) fn takes_redirected(interface: i32) -> io::Result<bool> {
    const CONTROL: u16 = 0x10;
    const GET_FAMILY: u8 = 3;
    const FAMILY_ID: u16 = 1;
    const FAMILY_NAME: u16 = 2;
    const DEVICE_GET: u8 = 1;
    const INTERFACE: u16 = 1;
    const XDP_FEATURES: u16 = 3;
    const TRANSMIT: u64 = 1 << 2;
    // `struct genlmsghdr`: the attributes follow the command, the version and two zero bytes.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_end_where_the_answer_ends() {
        let three = [8, 0, 1, 0, 1, 2, 3, 4, 5, 0, 2, 0, 9, 0, 0, 0, 9, 0, 3, 0, 1];
        assert_eq!(attribute(&three, 1), Some(&[1, 2, 3, 4][..]));
        assert_eq!(attribute(&three, 2), Some(&[9][..]));
        assert_eq!((attribute(&three, 3), attribute(&three, 4)), (None, None), "longer than the answer; not there");
        assert_eq!(attribute(&[0, 0, 0, 0, 1], 7), None, "an attribute is never shorter than its header");
        assert_eq!(attribute(&[3, 0, 7, 0, 1], 7), None);
    }

    #[test]
    fn the_loopback_interface_has_no_discipline() {
        let index = crate::af_packet::sys::interface_index("lo").expect("every system has it");
        assert!(!has_discipline(index).expect("an answer"));
        assert!(has_discipline(i32::MAX).is_err());
    }
}
