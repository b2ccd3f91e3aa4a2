//! The system calls of this backend; every `unsafe` of it is here.

use std::ffi::CString;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Room for one timestamp control message, rounded up.
const CONTROL: usize = 64;

pub(crate) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Message headers for a burst, with their vectors and control buffers. Points into the slot memory of its port, which
/// is boxed, so the addresses stay when the port moves.
pub struct Headers {
    messages: Box<[libc::mmsghdr]>,
    vectors: Box<[libc::iovec]>,
    control: Box<[[u64; CONTROL / 8]]>,
}

impl Headers {
    /// Headers over [`crate::BURST`] slots of `slot` bytes from `base`; with room for timestamps when `timestamps`.
    pub fn new(base: *mut u8, slot: usize, timestamps: bool) -> Headers {
        let n = crate::BURST;
        let mut vectors: Box<[libc::iovec]> =
            (0..n).map(|i| libc::iovec { iov_base: base.wrapping_add(i * slot).cast(), iov_len: slot }).collect();
        let mut control = vec![[0u64; CONTROL / 8]; n].into_boxed_slice();
        let messages = (0..n)
            .map(|i| {
                // SAFETY: all-zero is a valid `mmsghdr` (null pointers, zero lengths).
                let mut message: libc::mmsghdr = unsafe { mem::zeroed() };
                message.msg_hdr.msg_iov = &mut vectors[i];
                message.msg_hdr.msg_iovlen = 1;
                if timestamps {
                    message.msg_hdr.msg_control = control[i].as_mut_ptr().cast();
                    message.msg_hdr.msg_controllen = CONTROL as _;
                }
                message
            })
            .collect();
        Headers { messages, vectors, control }
    }

    /// Do the slots begin at `base`?
    #[inline]
    pub fn are_over(&self, base: *const u8) -> bool {
        std::ptr::eq(self.vectors[0].iov_base.cast(), base)
    }

    /// Length of the frame in slot `i`.
    #[inline]
    pub fn set_len(&mut self, i: usize, len: usize) {
        self.vectors[i].iov_len = len;
    }

    /// Sends slots `from..to`; returns how many the kernel took.
    pub fn send(&mut self, socket: &OwnedFd, from: usize, to: usize) -> io::Result<usize> {
        let pointer = self.messages[from..to].as_mut_ptr();
        // SAFETY: the headers of `from..to` point at live slots of the owning port for the length of the call.
        let n = unsafe { libc::sendmmsg(socket.as_raw_fd(), pointer, (to - from) as u32, 0) };
        Ok(check(n)? as usize)
    }

    /// Receives into slots `from` to the end of the burst without waiting; returns how many frames came.
    pub fn receive(&mut self, socket: &OwnedFd, from: usize) -> io::Result<usize> {
        let free = &mut self.messages[from..];
        // SAFETY: every header points at a live slot and control buffer of the owning port, with their true sizes.
        let n = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                free.as_mut_ptr(),
                free.len() as u32,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        Ok(check(n)? as usize)
    }

    /// Length of received frame `i` and the kernel's wall-clock time of its arrival, in ns since 1970. Makes the header
    /// ready for the next call.
    #[inline]
    pub fn received(&mut self, i: usize) -> (usize, Option<i128>) {
        let message = &mut self.messages[i];
        let len = message.msg_len as usize;
        let header = &mut message.msg_hdr;
        let stamp = (header.msg_controllen >= 32).then(|| {
            // One control message is asked for, so it comes first: cmsghdr (16 bytes: length, level, type), timespec.
            let words = &self.control[i];
            let level_and_type = (words[1] as u32 as i32, (words[1] >> 32) as i32);
            (level_and_type == (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS))
                .then(|| i128::from(words[2] as i64) * 1_000_000_000 + i128::from(words[3] as i64))
        });
        header.msg_controllen = CONTROL as _;
        (len, stamp.flatten())
    }
}

/// A raw packet socket for `protocol` (host order; 0 receives nothing).
pub fn packet_socket(protocol: u16) -> io::Result<OwnedFd> {
    // SAFETY: plain call; the descriptor is owned from here on.
    unsafe {
        let fd =
            check(libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, i32::from(protocol.to_be())))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Sets a socket option to a plain struct.
pub(crate) fn set_option<T: Copy>(socket: &OwnedFd, level: i32, name: i32, value: &T) -> io::Result<()> {
    // SAFETY: `value` is a plain struct that lives through the call; its size is told.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (value as *const T).cast(),
            mem::size_of::<T>() as libc::socklen_t,
        )
    })?;
    Ok(())
}

/// Past the queueing discipline, large buffer, time-out of 100 ms for a receiver that takes nothing.
pub fn configure_sender(socket: &OwnedFd, buffer: usize) -> io::Result<()> {
    set_option(socket, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &1i32)?;
    configure_buffer(socket, buffer)
}

/// Through the queueing discipline, each frame behind directions for it; the same buffer and time-out.
pub fn configure_stream(socket: &OwnedFd, buffer: usize) -> io::Result<()> {
    const PACKET_VNET_HDR: libc::c_int = 15;
    set_option(socket, libc::SOL_PACKET, PACKET_VNET_HDR, &1i32)?;
    configure_buffer(socket, buffer)
}

fn configure_buffer(socket: &OwnedFd, buffer: usize) -> io::Result<()> {
    if set_option(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &(buffer as i32)).is_err() {
        set_option(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, &(buffer as i32))?;
    }
    let timeout = libc::timeval { tv_sec: 0, tv_usec: 100_000 };
    set_option(socket, libc::SOL_SOCKET, libc::SO_SNDTIMEO, &timeout)
}

/// Ignores what we send, sees frames for any address, large buffer, kernel timestamps.
pub fn configure_receiver(socket: &OwnedFd, index: i32, buffer: usize) -> io::Result<()> {
    set_option(socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1i32)?;
    if set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &(buffer as i32)).is_err() {
        set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &(buffer as i32))?;
    }
    set_option(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1i32)?;
    let membership = libc::packet_mreq {
        mr_ifindex: index,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set_option(socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership)
}

/// Binds to an interface.
pub fn bind(socket: &OwnedFd, index: i32, protocol: u16) -> io::Result<()> {
    // SAFETY: all-zero is a valid address; the fields that matter are set.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = index;
    // SAFETY: `address` lives through the call; its size is told.
    check(unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            mem::size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    })?;
    Ok(())
}

/// Spreads what comes in at an interface over `sockets`, which are bound to it: all frames of one flow (addresses and ports) to the
/// same one, and frames without addresses to any one. They go on to ignore what we send.
pub fn spread<'a>(sockets: impl IntoIterator<Item = &'a OwnedFd>) -> io::Result<()> {
    const BY_HASH: i32 = 0;
    const UNIQUE_ID: i32 = 0x2000;
    const IGNORE_OUTGOING: i32 = 0x4000;
    let mut group: Option<i32> = None;
    for socket in sockets {
        let join = |id: i32, flags: i32| {
            let value = id | (BY_HASH | IGNORE_OUTGOING | flags) << 16;
            set_option(socket, libc::SOL_PACKET, libc::PACKET_FANOUT, &value)
        };
        match group {
            Some(id) => join(id, 0)?,
            None => {
                // The kernel chooses a number that no other group of the network namespace has.
                join(0, UNIQUE_ID)?;
                group = Some(fanout(socket)? & 0xffff);
            }
        }
    }
    Ok(())
}

/// Number of the group of the socket, and its flags above.
fn fanout(socket: &OwnedFd) -> io::Result<i32> {
    let mut value: libc::c_int = 0;
    let mut len = mem::size_of::<libc::c_int>() as libc::socklen_t;
    let pointer = (&raw mut value).cast();
    // SAFETY: `value` is what the option fills; its size is told.
    check(unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_FANOUT, pointer, &mut len) })?;
    Ok(value)
}

/// Frames dropped at this socket since the last call.
pub fn take_drops(socket: &OwnedFd) -> io::Result<u32> {
    let mut stats = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut len = mem::size_of::<libc::tpacket_stats>() as libc::socklen_t;
    // SAFETY: `stats` is what the option fills; its size is told.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut stats).cast(),
            &mut len,
        )
    })?;
    Ok(stats.tp_drops)
}

/// The error that waits at a socket, if one does; it is told once.
pub fn take_error(socket: &OwnedFd) -> io::Result<Option<io::Error>> {
    let mut error: libc::c_int = 0;
    let mut len = mem::size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: `error` is what the option fills; its size is told.
    check(unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ERROR, (&raw mut error).cast(), &mut len)
    })?;
    Ok((error != 0).then(|| io::Error::from_raw_os_error(error)))
}

/// Index of an interface of the current namespace.
pub fn interface_index(name: &str) -> io::Result<i32> {
    let name = CString::new(name).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: a valid C string.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index as i32),
    }
}

fn request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: all-zero is a valid request.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

fn ioctl(socket: &OwnedFd, code: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: all codes used here read or write one `ifreq`.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), code, request) })?;
    Ok(())
}

/// Makes a tap interface, frames without a header of its own, of the opened /dev/net/tun.
pub fn make_tap(device: &OwnedFd, name: &str) -> io::Result<()> {
    let mut request = request(name)?;
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
    ioctl(device, libc::TUNSETIFF, &mut request)
}

/// Hardware address.
pub fn interface_mac(socket: &OwnedFd, name: &str) -> io::Result<[u8; 6]> {
    let mut request = request(name)?;
    ioctl(socket, libc::SIOCGIFHWADDR, &mut request)?;
    let mut mac = [0; 6];
    // SAFETY: the call filled this variant of the union.
    let data = unsafe { request.ifr_ifru.ifru_hwaddr.sa_data };
    for (to, from) in mac.iter_mut().zip(data) {
        *to = from as u8;
    }
    Ok(mac)
}

/// MTU in bytes.
pub fn interface_mtu(socket: &OwnedFd, name: &str) -> io::Result<u32> {
    let mut request = request(name)?;
    ioctl(socket, libc::SIOCGIFMTU, &mut request)?;
    // SAFETY: the call filled this variant of the union.
    Ok(unsafe { request.ifr_ifru.ifru_mtu } as u32)
}

/// Is it administratively up?
pub fn interface_is_up(socket: &OwnedFd, name: &str) -> io::Result<bool> {
    let mut request = request(name)?;
    ioctl(socket, libc::SIOCGIFFLAGS, &mut request)?;
    // SAFETY: the call filled this variant of the union.
    Ok(i32::from(unsafe { request.ifr_ifru.ifru_flags }) & libc::IFF_UP != 0)
}

/// Takes it administratively up or down; at once, also for whoever is at the other end of a veth pair.
pub fn set_interface_up(socket: &OwnedFd, name: &str, up: bool) -> io::Result<()> {
    let mut request = request(name)?;
    ioctl(socket, libc::SIOCGIFFLAGS, &mut request)?;
    // SAFETY: the call filled this variant of the union.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    let flag = libc::IFF_UP as libc::c_short;
    request.ifr_ifru.ifru_flags = if up { flags | flag } else { flags & !flag };
    ioctl(socket, libc::SIOCSIFFLAGS, &mut request)
}

/// Is the interface up, with carrier?
pub fn is_running(socket: &OwnedFd, name: &str) -> io::Result<bool> {
    let mut request = request(name)?;
    ioctl(socket, libc::SIOCGIFFLAGS, &mut request)?;
    // SAFETY: the call filled this variant of the union.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    let both = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    Ok(flags & both == both)
}

/// Does the device itself cut TCP into segments (`tcp-segmentation-offload` of `ethtool -k`)? A virtual one hands it on in one piece.
pub fn cuts_segments(interface: &str) -> io::Result<bool> {
    const ETHTOOL_GTSO: u32 = 0x1e;
    let socket = packet_socket(0)?;
    let mut command_and_value = [ETHTOOL_GTSO, 0];
    let mut request = request(interface)?;
    request.ifr_ifru.ifru_data = (&raw mut command_and_value).cast();
    ioctl(&socket, libc::SIOCETHTOOL as libc::Ioctl, &mut request)?;
    Ok(command_and_value[1] != 0)
}

#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    rest: [u8; 160],
}

/// Name of the driver as `ethtool -i` tells it.
pub fn driver_name(interface: &str) -> io::Result<String> {
    const ETHTOOL_GDRVINFO: u32 = 3;
    let socket = packet_socket(0)?;
    let mut info = DriverInfo { command: ETHTOOL_GDRVINFO, driver: [0; 32], rest: [0; 160] };
    let mut request = request(interface)?;
    request.ifr_ifru.ifru_data = (&raw mut info).cast();
    ioctl(&socket, libc::SIOCETHTOOL as libc::Ioctl, &mut request)?;
    let _ = info.rest;
    let end = info.driver.iter().position(|b| *b == 0).unwrap_or(info.driver.len());
    Ok(String::from_utf8_lossy(&info.driver[..end]).into_owned())
}
