//! Frames in memory shared with the kernel ("UMEM"), the ownership of its chunks, and views of our own chunks.

use crate::SlotMemory;
use crate::mapping::Mapping;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

/// Memory in chunks of equal size, a power of two. Each chunk contains one frame.
pub(super) struct Umem {
    memory: Mapping,
    /// Binary logarithm of the chunk size in bytes.
    shift: u32,
}

// SAFETY: a shared `Umem` returns only raw pointers. Only the owner of a chunk creates references: the batch for frames
// to send that the kernel does not have, and the port for received frames that it has not yet returned to the fill
// ring.
unsafe impl Sync for Umem {}

impl Umem {
    /// Creates `count` chunks of `chunk` bytes, all zero.
    ///
    /// # Errors
    /// The operating system's error if there is no memory.
    pub(super) fn new(count: usize, chunk: usize) -> io::Result<Umem> {
        assert!(chunk.is_power_of_two(), "chunks of {chunk} bytes");
        Ok(Umem { memory: Mapping::own(count * chunk)?, shift: chunk.trailing_zeros() })
    }

    /// Returns the size of a chunk in bytes.
    #[inline]
    fn chunk(&self) -> usize {
        1 << self.shift
    }

    /// Returns the address of the memory in this process, its size, and the size of a chunk, for registration.
    pub(super) fn place(&self) -> (u64, u64, u32) {
        (self.memory.start().as_ptr() as u64, self.memory.len() as u64, self.chunk() as u32)
    }

    /// Returns the `len` bytes at `address` if they lie within one chunk. Only the owner of the chunk may read or write them.
    #[inline]
    pub(super) fn at(&self, address: u64, len: usize) -> Option<NonNull<[u8]>> {
        let address = usize::try_from(address).ok()?;
        let fits = address < self.memory.len() && (address & (self.chunk() - 1)) + len <= self.chunk();
        // SAFETY: the length of the mapping is a multiple of the chunk size, so all `len` bytes lie within it, as just checked.
        fits.then(|| NonNull::slice_from_raw_parts(unsafe { self.memory.start().add(address) }, len))
    }
}

/// Frames to send from: the memory of a batch, addressed as by the kernel.
#[derive(Clone)]
pub(super) struct SendFrames {
    umem: Arc<Umem>,
    /// The chunks, one per frame.
    chunks: Range<u32>,
    /// Size of a frame in bytes.
    room: usize,
    /// Number of cache lines at which a frame can start in its chunk (a power of two), minus one.
    lines: usize,
}

impl SendFrames {
    /// Creates frames of `room` bytes in `chunks`.
    pub(super) fn new(umem: Arc<Umem>, chunks: Range<u32>, room: usize) -> SendFrames {
        let spare = umem.chunk().checked_sub(room).expect("a frame fits into its chunk");
        assert!((chunks.end as usize) << umem.shift <= umem.memory.len());
        // The largest power of two that is not above the number of lines with room for a frame after them.
        let lines = (1 << (spare / 64 + 1).ilog2()) - 1;
        SendFrames { umem, chunks, room, lines }
    }

    /// Returns the first byte of the first frame.
    #[inline]
    pub(super) fn start(&self) -> *const u8 {
        self.piece(0).as_ptr()
    }

    /// Returns the address of frame `n`. Frames start at different offsets in their chunks, because the same lines of
    /// neighbouring chunks share few sets of a cache.
    #[inline]
    pub(super) fn address(&self, n: usize) -> u64 {
        (((self.chunks.start as usize + n) << self.umem.shift) + (n & self.lines) * 64) as u64
    }

    /// Returns the frame at `address`. Only a kernel bug could return an address outside the frames; in that case, no
    /// frame has the result.
    #[inline]
    pub(super) fn at(&self, address: u64) -> usize {
        ((address >> self.umem.shift) as usize).wrapping_sub(self.chunks.start as usize)
    }
}

// SAFETY: each frame is in its own chunk of `umem`, which does not move, and is zero at first. The kernel never writes
// to these chunks, and reads a frame only between the send ring and the completion ring.
unsafe impl SlotMemory for SendFrames {
    fn pieces(&self) -> usize {
        self.chunks.len()
    }

    fn size(&self) -> usize {
        self.room
    }

    #[inline]
    fn piece(&self, n: usize) -> NonNull<u8> {
        self.umem.at(self.address(n), self.room).expect("a frame lies within its chunk").cast()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_lie_within_their_chunks() {
        let (count, chunk) = (1_025, 2_048);
        let umem = Umem::new(count, chunk).unwrap();
        let last = ((count - 1) * chunk) as u64;
        for address in [0, last] {
            assert_eq!(umem.at(address + 2_048 - 60, 60).unwrap().len(), 60);
            assert!(umem.at(address + 2_048 - 59, 60).is_none(), "it would reach into the next chunk");
        }
        assert!(umem.at(last + 2_048, 1).is_none() && umem.at(u64::MAX, 0).is_none(), "there is no such chunk");
    }

    #[test]
    fn every_frame_has_its_address() {
        let umem = Arc::new(Umem::new(16, 2_048).unwrap());
        let frames = SendFrames::new(umem, 6..16, 1_536);
        assert_eq!((frames.pieces(), frames.size()), (10, 1_536));
        for n in 0..10 {
            let address = frames.address(n);
            assert!((6 * 2_048..16 * 2_048 - 1_535).contains(&address) && address.is_multiple_of(64));
            let offset = frames.piece(n).as_ptr() as usize - frames.start() as usize;
            assert_eq!((frames.at(address), offset as u64), (n, address - frames.address(0)));
        }
        assert!([0, 16 * 2_048].iter().all(|address| frames.at(*address) >= 10), "no frame to send from");
    }
}
