//! The socket and its four rings. All their `unsafe` code is here.

use super::umem::Umem;
use crate::af_packet::sys::{check, get_option, set_option};
use crate::mapping::Mapping;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// One end of a ring. The kernel uses the other end. `T` is `u64` (an address) or `xdp_desc`.
pub struct Ring<T> {
    mapping: Mapping,
    offsets: libc::xdp_ring_offset,
    mask: u32,
    /// Our own index: the producer's index in rings that we fill, the consumer's index in the others.
    own: u32,
    /// The kernel's index when it was last read.
    theirs: u32,
    entry: std::marker::PhantomData<T>,
}

impl<T: Copy> Ring<T> {
    fn new(socket: &OwnedFd, offsets: libc::xdp_ring_offset, size: u32, page: libc::off_t) -> io::Result<Ring<T>> {
        let len = offsets.desc as usize + size as usize * mem::size_of::<T>();
        let mapping = Mapping::shared(len, socket.as_raw_fd(), page)?;
        Ok(Ring { mapping, offsets, mask: size - 1, own: 0, theirs: 0, entry: std::marker::PhantomData })
    }

    #[inline]
    fn index(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: the kernel gave the offset of an aligned 32-bit index within this mapping, which lives as long as `self`.
        unsafe { self.mapping.start().add(offset as usize).cast::<AtomicU32>().as_ref() }
    }

    #[inline]
    fn slot(&self, index: u32) -> NonNull<T> {
        // SAFETY: the mask keeps the entry within the array whose offset the kernel gave.
        unsafe { self.mapping.start().add(self.offsets.desc as usize).cast::<T>().add((index & self.mask) as usize) }
    }

    /// Returns the number of free entries. For rings that we fill.
    #[inline]
    pub fn room(&mut self) -> u32 {
        self.theirs = self.index(self.offsets.consumer).load(Ordering::Acquire);
        self.mask + 1 - self.own.wrapping_sub(self.theirs)
    }

    /// Writes an entry. The kernel sees it after [`Ring::publish`]. There must be room for it.
    #[inline]
    pub fn push(&mut self, entry: T) {
        // SAFETY: the slot is within the ring, and it is ours because there is room.
        unsafe { self.slot(self.own).write(entry) };
        self.own = self.own.wrapping_add(1);
    }

    /// Makes the pushed entries visible to the kernel.
    #[inline]
    pub fn publish(&self) {
        self.index(self.offsets.producer).store(self.own, Ordering::Release);
    }

    /// Takes the kernel's next entry. For rings that the kernel fills.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.own == self.theirs {
            self.theirs = self.index(self.offsets.producer).load(Ordering::Acquire);
            if self.own == self.theirs {
                return None;
            }
        }
        // SAFETY: the kernel has published this slot and does not touch it until we release it.
        let entry = unsafe { self.slot(self.own).read() };
        self.own = self.own.wrapping_add(1);
        Some(entry)
    }

    /// Returns popped entries to the kernel.
    #[inline]
    pub fn release(&self) {
        self.index(self.offsets.consumer).store(self.own, Ordering::Release);
    }
}

/// The four rings of a socket.
pub struct Rings {
    /// Chunks for the kernel to receive into.
    pub fill: Ring<u64>,
    /// Received frames.
    pub receive: Ring<libc::xdp_desc>,
    /// Frames to send.
    pub send: Ring<libc::xdp_desc>,
    /// Chunks of frames that were sent.
    pub completion: Ring<u64>,
}

/// Opens a socket that is not yet bound.
pub fn socket() -> io::Result<OwnedFd> {
    // SAFETY: plain call; the descriptor is owned from here on.
    unsafe {
        let fd = check(libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Registers `umem` and creates the rings: `receive` entries for fill and receive, `send` entries for send and
/// completion. Both are powers of two.
pub fn configure(socket: &OwnedFd, umem: &Umem, receive: u32, send: u32) -> io::Result<Rings> {
    let (addr, len, chunk_size) = umem.place();
    let registration = libc::xdp_umem_reg { addr, len, chunk_size, headroom: 0, flags: 0, tx_metadata_len: 0 };
    set_option(socket, libc::SOL_XDP, libc::XDP_UMEM_REG, &registration)?;
    set_option(socket, libc::SOL_XDP, libc::XDP_UMEM_FILL_RING, &receive)?;
    set_option(socket, libc::SOL_XDP, libc::XDP_UMEM_COMPLETION_RING, &send)?;
    set_option(socket, libc::SOL_XDP, libc::XDP_RX_RING, &receive)?;
    set_option(socket, libc::SOL_XDP, libc::XDP_TX_RING, &send)?;
    // In copy mode a call sends 32 frames. Kernels since 6.17 can send a whole burst; older kernels need two calls.
    const XDP_MAX_TX_SKB_BUDGET: i32 = 9;
    let _ = set_option(socket, libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &(crate::BURST as u32));
    let offsets: libc::xdp_mmap_offsets = get_option(socket, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS)?;
    Ok(Rings {
        fill: Ring::new(socket, offsets.fr, receive, libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t)?,
        receive: Ring::new(socket, offsets.rx, receive, libc::XDP_PGOFF_RX_RING)?,
        send: Ring::new(socket, offsets.tx, send, libc::XDP_PGOFF_TX_RING)?,
        completion: Ring::new(socket, offsets.cr, send, libc::XDP_UMEM_PGOFF_COMPLETION_RING as libc::off_t)?,
    })
}

/// Binds to queue `queue` of an interface, in zero-copy mode if the driver supports it, otherwise in copy mode. Returns
/// true for zero-copy mode.
pub fn bind(socket: &OwnedFd, interface: i32, queue: u32) -> io::Result<bool> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: 0,
        sxdp_ifindex: interface as u32,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    let size = mem::size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
    // SAFETY: `address` lives through the call; its size is passed.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size) })?;
    let options: libc::xdp_options = get_option(socket, libc::SOL_XDP, libc::XDP_OPTIONS)?;
    Ok(options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
}

/// Asks the kernel to send the frames in the ring.
pub fn kick(socket: &OwnedFd) -> io::Result<()> {
    // SAFETY: only the descriptor is passed.
    let sent =
        unsafe { libc::sendto(socket.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0) };
    check(sent as libc::c_int).map(drop)
}

/// Returns the counters of the socket since its creation.
pub fn statistics(socket: &OwnedFd) -> io::Result<libc::xdp_statistics> {
    get_option(socket, libc::SOL_XDP, libc::XDP_STATISTICS)
}
