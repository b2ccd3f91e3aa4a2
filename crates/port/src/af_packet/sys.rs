//! The system calls of this backend. All its `unsafe` code is here.

use crate::Filled;
use drophammer_model::quantity::Instant;
use std::ffi::{CStr, CString};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Room for the control messages of a frame: its timestamp (32 bytes) and packet metadata such as the VLAN tag (40 bytes).
const CONTROL: usize = 80;
/// Bytes reserved before each receive slot to put a VLAN tag back ([`whole`]).
pub(crate) const ROOM: usize = 4;
/// Length of the destination and source addresses, which precede a tag.
const ADDRESSES: usize = 12;

pub(crate) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Message headers for a burst, with their vectors and control buffers. They point into their port's slot memory, which
/// is boxed, so the addresses stay valid when the port moves.
pub struct Headers {
    messages: Box<[libc::mmsghdr]>,
    vectors: Box<[libc::iovec]>,
    control: Box<[[u64; CONTROL / 8]]>,
}

/// Metadata of a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Length of the data in the slot.
    pub len: usize,
    /// Wall-clock time of arrival in ns since 1970.
    pub wall: Option<i128>,
    /// The outermost VLAN tag, if the kernel removed it from the frame.
    pub tag: Option<[u8; 4]>,
}

/// Restores a frame in `slot`, where it starts after [`ROOM`]. A tag that the kernel removed is put back after the
/// addresses, which move to the start of the slot.
#[inline]
pub fn whole(arrived: &Arrived, slot: &mut [u8], at: Instant) -> Filled {
    let len = arrived.len.min(slot.len() - ROOM);
    match arrived.tag {
        Some(tag) if len >= ADDRESSES => {
            slot.copy_within(ROOM..ROOM + ADDRESSES, 0);
            slot[ADDRESSES..ADDRESSES + ROOM].copy_from_slice(&tag);
            Filled::new(len + ROOM, at)
        }
        _ => Filled { offset: ROOM as u32, ..Filled::new(len, at) },
    }
}

impl Headers {
    /// Creates headers to send from [`crate::BURST`] slots of `slot` bytes, starting at `base`.
    pub fn to_send(base: *mut u8, slot: usize) -> Headers {
        Headers::new(base, slot, 0)
    }

    /// Creates headers to receive into the same slots, [`ROOM`] bytes after the start of each, with control messages.
    pub fn to_receive(base: *mut u8, slot: usize) -> Headers {
        let mut headers = Headers::new(base.wrapping_add(ROOM), slot, ROOM);
        for (message, control) in headers.messages.iter_mut().zip(&mut headers.control) {
            message.msg_hdr.msg_control = control.as_mut_ptr().cast();
            message.msg_hdr.msg_controllen = CONTROL as _;
        }
        headers
    }

    /// Creates vectors of `slot - less` bytes every `slot` bytes, starting at `base`.
    fn new(base: *mut u8, slot: usize, less: usize) -> Headers {
        let n = crate::BURST;
        let vector = |i: usize| libc::iovec { iov_base: base.wrapping_add(i * slot).cast(), iov_len: slot - less };
        let mut vectors: Box<[libc::iovec]> = (0..n).map(vector).collect();
        let messages = (0..n)
            .map(|i| {
                // SAFETY: an all-zero `mmsghdr` is valid (null pointers, zero lengths).
                let mut message: libc::mmsghdr = unsafe { mem::zeroed() };
                message.msg_hdr.msg_iov = &mut vectors[i];
                message.msg_hdr.msg_iovlen = 1;
                message
            })
            .collect();
        Headers { messages, vectors, control: vec![[0u64; CONTROL / 8]; n].into_boxed_slice() }
    }

    /// Returns the start of the slots.
    #[inline]
    pub fn base(&self) -> *const u8 {
        self.vectors[0].iov_base.cast()
    }

    /// Sets the length of the frame in slot `i`.
    #[inline]
    pub fn set_len(&mut self, i: usize, len: usize) {
        self.vectors[i].iov_len = len;
    }

    /// Sends slots `from..to`. Returns how many of them the kernel accepted.
    pub fn send(&mut self, socket: &OwnedFd, from: usize, to: usize) -> io::Result<usize> {
        let pointer = self.messages[from..to].as_mut_ptr();
        // SAFETY: the headers of `from..to` point to live slots of the owning port during the call.
        let n = unsafe { libc::sendmmsg(socket.as_raw_fd(), pointer, (to - from) as u32, 0) };
        Ok(check(n)? as usize)
    }

    /// Receives into the slots from `from` to the end of the burst without waiting. Returns the number of frames.
    pub fn receive(&mut self, socket: &OwnedFd, from: usize) -> io::Result<usize> {
        let free = &mut self.messages[from..];
        // SAFETY: every header points to a live slot and control buffer of the owning port, with their true sizes.
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

    /// Returns the metadata of received frame `i`, and prepares the header for the next call.
    #[inline]
    pub fn received(&mut self, i: usize) -> Arrived {
        let message = &mut self.messages[i];
        #[allow(clippy::unnecessary_cast)] // it is a `u32` with other C libraries
        let told = (message.msg_hdr.msg_controllen as usize / 8).min(CONTROL / 8);
        message.msg_hdr.msg_controllen = CONTROL as _;
        let (wall, tag) = read_control(&self.control[i][..told]);
        Arrived { len: message.msg_len as usize, wall, tag }
    }
}

/// Extracts timestamp and VLAN tag from the control messages of a frame.
#[inline]
fn read_control(mut words: &[u64]) -> (Option<i128>, Option<[u8; 4]>) {
    // From `struct tpacket_auxdata` (linux/if_packet.h).
    const VLAN_VALID: u32 = 1 << 4;
    const VLAN_TPID_VALID: u32 = 1 << 6;
    let (mut wall, mut tag) = (None, None);
    // Each message starts with `cmsghdr` (16 bytes: length, level, type) and ends at a multiple of 8 bytes.
    while let [length, kind, data @ ..] = words {
        match ((*kind as u32).cast_signed(), ((kind >> 32) as u32).cast_signed()) {
            (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS) if data.len() >= 2 => {
                wall = Some(i128::from(data[0].cast_signed()) * 1_000_000_000 + i128::from(data[1].cast_signed()));
            }
            (libc::SOL_PACKET, libc::PACKET_AUXDATA) if data.len() >= 3 => {
                let (status, tci, tpid) = (data[0] as u32, data[2] as u16, (data[2] >> 16) as u16);
                let tpid =
                    if status & VLAN_TPID_VALID != 0 { tpid } else { drophammer_wire::ethernet::ethertype::VLAN };
                let ([a, b], [c, d]) = (tpid.to_be_bytes(), tci.to_be_bytes());
                tag = (status & VLAN_VALID != 0).then_some([a, b, c, d]);
            }
            _ => {}
        }
        words = words.get((*length as usize).div_ceil(8).max(2)..).unwrap_or_default();
    }
    (wall, tag)
}

/// Opens a raw packet socket for `protocol` (host order; 0 receives nothing).
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
    // SAFETY: `value` is a plain struct that lives through the call, and its size is passed.
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

/// Configures a sending socket: it bypasses the queueing discipline if `bypass`, and has a large buffer and a time-out
/// of 100 ms in case the receiver accepts nothing.
pub fn configure_sender(socket: &OwnedFd, bypass: bool, buffer: usize) -> io::Result<()> {
    set_option(socket, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &i32::from(bypass))?;
    configure_buffer(socket, buffer)
}

/// Configures a socket for runs of segments: each frame is preceded by instructions and passes through the queueing
/// discipline. Buffer and time-out are the same.
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

/// Configures a receiving socket: it ignores sent frames, receives frames for any address, has a large buffer, and gets
/// kernel timestamps and the VLAN tags that the kernel removes.
pub fn configure_receiver(socket: &OwnedFd, index: i32, buffer: usize) -> io::Result<()> {
    set_option(socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1i32)?;
    if set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &(buffer as i32)).is_err() {
        set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &(buffer as i32))?;
    }
    set_option(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1i32)?;
    set_option(socket, libc::SOL_PACKET, libc::PACKET_AUXDATA, &1i32)?;
    let membership = libc::packet_mreq {
        mr_ifindex: index,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set_option(socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership)
}

/// Binds the socket to an interface.
pub fn bind(socket: &OwnedFd, index: i32, protocol: u16) -> io::Result<()> {
    // SAFETY: an all-zero address is valid, and the fields that matter are set.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = index;
    // SAFETY: `address` lives through the call; its size is passed.
    check(unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            mem::size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    })?;
    Ok(())
}

/// Spreads the frames received at an interface over `sockets`, which are bound to it. All frames of a flow (addresses
/// and ports) arrive at the same socket; frames without addresses can arrive at any socket. The sockets still ignore
/// sent frames.
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
                // The kernel chooses a number that is unique in the network namespace.
                join(0, UNIQUE_ID)?;
                group = Some(get_option::<i32>(socket, libc::SOL_PACKET, libc::PACKET_FANOUT)? & 0xffff);
            }
        }
    }
    Ok(())
}

/// Reads a socket option.
pub(crate) fn get_option<T: Copy>(socket: &OwnedFd, level: i32, name: i32) -> io::Result<T> {
    let mut value = mem::MaybeUninit::<T>::zeroed();
    let mut len = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes. The rest stays zero, which is valid for the integers in `T`.
    unsafe {
        check(libc::getsockopt(socket.as_raw_fd(), level, name, value.as_mut_ptr().cast(), &mut len))?;
        Ok(value.assume_init())
    }
}

/// Returns the number of frames that arrived at this socket since the last call, including those for which it had no
/// room (`tp_drops`).
pub fn take_statistics(socket: &OwnedFd) -> io::Result<libc::tpacket_stats> {
    get_option(socket, libc::SOL_PACKET, libc::PACKET_STATISTICS)
}

/// Clears the pending error of a socket, which the kernel reports only once.
pub fn clear_error(socket: &OwnedFd) -> io::Result<()> {
    get_option::<libc::c_int>(socket, libc::SOL_SOCKET, libc::SO_ERROR).map(drop)
}

/// Returns the index of an interface in the current namespace.
pub fn interface_index(name: &str) -> io::Result<i32> {
    let name = CString::new(name).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: `name` is a valid C string.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index as i32),
    }
}

fn request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: an all-zero request is valid.
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

/// Makes the opened /dev/net/tun a tap interface whose frames have no additional header, and returns its name: `%d` in
/// `name` is replaced by a free number. The interface disappears when `device` is closed.
pub fn make_tap(device: &OwnedFd, name: &str) -> io::Result<String> {
    let mut request = request(name)?;
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
    ioctl(device, libc::TUNSETIFF as libc::Ioctl, &mut request)?;
    // SAFETY: the kernel has written the name with its terminator into the request.
    Ok(unsafe { CStr::from_ptr(request.ifr_name.as_ptr()) }.to_string_lossy().into_owned())
}

/// Returns the hardware address.
pub fn interface_mac(socket: &OwnedFd, name: &str) -> io::Result<[u8; 6]> {
    let mut request = request(name)?;
    ioctl(socket, libc::SIOCGIFHWADDR, &mut request)?;
    // SAFETY: the call filled this variant of the union.
    let data = unsafe { request.ifr_ifru.ifru_hwaddr.sa_data };
    Ok(std::array::from_fn(|i| data[i] as u8))
}

/// Returns the MTU in bytes.
pub fn interface_mtu(socket: &OwnedFd, name: &str) -> io::Result<u32> {
    let mut request = request(name)?;
    ioctl(socket, libc::SIOCGIFMTU, &mut request)?;
    // SAFETY: the call filled this variant of the union.
    Ok(unsafe { request.ifr_ifru.ifru_mtu } as u32)
}

/// True if the interface has all of these flags (`IFF_UP`, `IFF_RUNNING`).
pub fn has_flags(socket: &OwnedFd, name: &str, flags: i32) -> io::Result<bool> {
    let mut request = request(name)?;
    ioctl(socket, libc::SIOCGIFFLAGS, &mut request)?;
    // SAFETY: the call filled this variant of the union.
    Ok(i32::from(unsafe { request.ifr_ifru.ifru_flags }) & flags == flags)
}

/// Sets the interface administratively up or down. On a veth pair, the other end sees it immediately.
pub fn set_interface_up(socket: &OwnedFd, name: &str, up: bool) -> io::Result<()> {
    let mut request = request(name)?;
    ioctl(socket, libc::SIOCGIFFLAGS, &mut request)?;
    // SAFETY: the call filled this variant of the union.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    let flag = libc::IFF_UP as libc::c_short;
    request.ifr_ifru.ifru_flags = if up { flags | flag } else { flags & !flag };
    ioctl(socket, libc::SIOCSIFFLAGS, &mut request)
}

/// Queries the driver of an interface. `question` is the struct of an `ETHTOOL_` command, and its first word is the command.
fn ethtool<T>(interface: &str, question: &mut T) -> io::Result<()> {
    let socket = packet_socket(0)?;
    let mut request = request(interface)?;
    request.ifr_ifru.ifru_data = (&raw mut *question).cast();
    ioctl(&socket, libc::SIOCETHTOOL as libc::Ioctl, &mut request)
}

/// True if the device itself cuts TCP into segments (`tcp-segmentation-offload` of `ethtool -k`). A virtual device
/// would forward the uncut frame.
pub fn cuts_segments(interface: &str) -> io::Result<bool> {
    const ETHTOOL_GTSO: u32 = 0x1e;
    let mut command_and_value = [ETHTOOL_GTSO, 0];
    ethtool(interface, &mut command_and_value)?;
    Ok(command_and_value[1] != 0)
}

/// Returns the number of the device's send queues (`ethtool -l`), at least one. A device that does not report it counts
/// as having one.
pub fn transmit_queues(interface: &str) -> u32 {
    const ETHTOOL_GCHANNELS: u32 = 0x3c;
    // `struct ethtool_channels`: the command; the maximum numbers of receive, transmit, other and combined channels;
    // the four current numbers.
    let mut channels = [0u32; 9];
    channels[0] = ETHTOOL_GCHANNELS;
    ethtool(interface, &mut channels).map_or(1, |()| (channels[6] + channels[8]).max(1))
}

/// Returns the name of the driver, as reported by `ethtool -i`.
pub fn driver_name(interface: &str) -> io::Result<String> {
    const ETHTOOL_GDRVINFO: u32 = 3;
    /// Words in `struct ethtool_drvinfo`; 32 bytes of name follow the command.
    const WORDS: usize = 49;
    let mut info = [0u32; WORDS];
    info[0] = ETHTOOL_GDRVINFO;
    ethtool(interface, &mut info)?;
    let name: Vec<u8> = info[1..9].iter().flat_map(|word| word.to_ne_bytes()).take_while(|byte| *byte != 0).collect();
    Ok(String::from_utf8_lossy(&name).into_owned())
}
