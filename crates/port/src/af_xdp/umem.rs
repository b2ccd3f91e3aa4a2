//! Frames in memory shared with the kernel ("UMEM"), the ownership of its chunks, and views of our own chunks.

use super::sys::Mapping;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

/// Memory in chunks of equal size, a power of two; a chunk holds one frame.
pub(crate) struct Umem {
    memory: Mapping,
    /// Binary logarithm of the bytes of a chunk.
    shift: u32,
}

// SAFETY: a shared `Umem` gives raw pointers only. Whoever makes references of them owns the chunk: `SendFrames` its frames that
// are not with the kernel, the port what came in and was not yet put into the fill ring.
unsafe impl Sync for Umem {}

impl Umem {
    /// `count` chunks of `chunk` bytes, all zero.
    ///
    /// # Errors
    /// The system's error if there is no memory.
    pub(super) fn new(count: usize, chunk: usize) -> io::Result<Umem> {
        assert!(chunk.is_power_of_two(), "chunks of {chunk} bytes");
        Ok(Umem { memory: Mapping::own(count * chunk)?, shift: chunk.trailing_zeros() })
    }

    /// Bytes of a chunk.
    #[inline]
    fn chunk(&self) -> usize {
        1 << self.shift
    }

    /// Address of the memory in this process, its bytes, and the bytes of a chunk; for the registration.
    pub(super) fn place(&self) -> (u64, u64, u32) {
        (self.memory.start().as_ptr() as u64, self.memory.len() as u64, self.chunk() as u32)
    }

    /// The `len` bytes at `address`, if they lie within one chunk. Only the owner of the chunk may read or write them.
    #[inline]
    pub(super) fn at(&self, address: u64, len: usize) -> Option<NonNull<[u8]>> {
        let address = usize::try_from(address).ok()?;
        let fits = address < self.memory.len() && (address & (self.chunk() - 1)) + len <= self.chunk();
        // SAFETY: the mapping is a multiple of the chunk long, so all `len` bytes lie within it, as just checked.
        fits.then(|| NonNull::slice_from_raw_parts(unsafe { self.memory.start().add(address) }, len))
    }
}

/// Frames to send from. Each slot of a batch has one of them; the others are free or with the kernel.
pub(crate) struct SendFrames {
    umem: Arc<Umem>,
    /// The chunks, one for each frame.
    chunks: Range<u32>,
    /// Bytes of a frame.
    room: usize,
    /// Number of cache lines at which a frame may begin in its chunk, a power of two, minus one.
    lines: u32,
    /// Frame of each slot.
    of_slot: Vec<u32>,
    /// Free frames. The last one returned is taken first, because it is most likely in the cache.
    free: Vec<u32>,
}

impl SendFrames {
    /// `slots` slots with frames of `room` bytes in `chunks`; there must be more chunks than slots.
    pub(super) fn new(umem: Arc<Umem>, chunks: Range<u32>, slots: usize, room: usize) -> SendFrames {
        let frames = chunks.end - chunks.start;
        let spare = umem.chunk().checked_sub(room).expect("a frame fits into its chunk");
        assert!(slots as u32 <= frames && (chunks.end as usize) << umem.shift <= umem.memory.len());
        // The greatest power of two that is not above the number of lines with room for a frame after them.
        let lines = (1 << (spare / 64 + 1).ilog2()) - 1;
        let (of_slot, free) = ((0..slots as u32).collect(), (slots as u32..frames).collect());
        SendFrames { umem, chunks, room, lines, of_slot, free }
    }

    /// Number of frames, including those owned by the kernel.
    pub(crate) fn frames(&self) -> usize {
        (self.chunks.end - self.chunks.start) as usize
    }

    /// Bytes of a frame.
    pub(crate) fn room(&self) -> usize {
        self.room
    }

    /// True if these frames are in `umem`.
    pub(crate) fn is_in(&self, umem: &Arc<Umem>) -> bool {
        Arc::ptr_eq(&self.umem, umem)
    }

    /// Frame of slot `i`, from 0.
    #[inline]
    pub(crate) fn frame_of(&self, i: usize) -> usize {
        self.of_slot[i] as usize
    }

    /// Address of the frame of slot `i`. Frames begin at different offsets in their chunks, because the same lines of
    /// neighbouring chunks share few sets of a cache.
    #[inline]
    fn address(&self, i: usize) -> u64 {
        let frame = self.of_slot[i];
        (u64::from(self.chunks.start + frame) << self.umem.shift) + u64::from((frame & self.lines) * 64)
    }

    #[inline]
    fn memory(&self, i: usize, len: usize) -> NonNull<[u8]> {
        assert!(len <= self.room, "a frame of {len} bytes in a slot of {}", self.room);
        self.umem.at(self.address(i), len).expect("a frame lies within its chunk")
    }

    /// The first `len` bytes of the frame of slot `i`.
    ///
    /// # Panics
    /// If the frame is shorter.
    #[inline]
    pub(crate) fn get(&self, i: usize, len: usize) -> &[u8] {
        // SAFETY: a slot's frame is not in a ring, so the kernel leaves it alone; it is one of these frames alone, and they are
        // written through `&mut self` only. The memory was written as zeros at first, and lives as long as `self.umem`.
        unsafe { self.memory(i, len).as_ref() }
    }

    /// The same, mutable.
    ///
    /// # Panics
    /// If the frame is shorter.
    #[inline]
    pub(crate) fn get_mut(&mut self, i: usize, len: usize) -> &mut [u8] {
        // SAFETY: as above; `&mut self` lives as long as the reference, so there is no other one.
        unsafe { self.memory(i, len).as_mut() }
    }

    /// The address of the frame of slot `i`, which the kernel owns until [`SendFrames::take_back`]. The slot gets a free frame;
    /// `None` if there is none, and the slot keeps its own.
    #[inline]
    pub(crate) fn hand_over(&mut self, i: usize) -> Option<u64> {
        let fresh = self.free.pop()?;
        let address = self.address(i);
        self.of_slot[i] = fresh;
        Some(address)
    }

    /// Takes back the frame at `address`, which the kernel has finished with.
    #[inline]
    pub(crate) fn take_back(&mut self, address: u64) {
        let chunk = u32::try_from(address >> self.umem.shift).unwrap_or(u32::MAX);
        // Only a bug in the kernel could return an address outside the frames.
        if self.chunks.contains(&chunk) {
            self.free.push(chunk - self.chunks.start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

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
    fn a_frame_is_with_the_kernel_or_in_one_slot_or_free() {
        let (slots, frames) = (4, 10);
        let umem = Arc::new(Umem::new(16, 2_048).unwrap());
        let mut send = SendFrames::new(umem.clone(), 6..16, slots, 1_536);
        assert!(send.is_in(&umem) && send.frames() == frames && send.room() == 1_536);
        let mut kernel = Vec::new();
        for round in 0..100 {
            let slot = round % slots;
            send.get_mut(slot, 1_536).fill(round as u8);
            let before = send.address(slot);
            match send.hand_over(slot) {
                Some(address) => {
                    assert!(address == before && send.address(slot) != before);
                    assert!((6 * 2_048..16 * 2_048 - 1_535).contains(&address) && address % 64 == 0);
                    kernel.push((address, round as u8));
                }
                None => {
                    assert!(kernel.len() == frames - slots && send.address(slot) == before);
                    assert_eq!(send.get(slot, 1_536), [round as u8; 1_536], "a frame that is refused stays");
                    kernel.drain(..3).for_each(|(address, _)| send.take_back(address));
                }
            }
            let own: BTreeSet<_> = (0..slots).map(|i| send.frame_of(i)).collect();
            assert!(own.len() == slots && send.free.iter().all(|f| !own.contains(&(*f as usize))));
            assert_eq!(own.len() + send.free.len() + kernel.len(), frames);
            for (address, content) in &kernel {
                // SAFETY: the test is the kernel, which owns these frames.
                let frame = unsafe { umem.at(*address, 1_536).unwrap().as_ref() };
                assert!(frame.iter().all(|b| b == content), "what the kernel has is not written to");
            }
        }
        send.take_back(0);
        send.take_back(16 * 2_048);
        assert!(send.free.len() <= frames - slots, "these are no frames to send from");
    }

    #[test]
    #[should_panic(expected = "a frame of 1537 bytes")]
    fn a_frame_does_not_reach_into_the_next() {
        let umem = Arc::new(Umem::new(2, 2_048).unwrap());
        SendFrames::new(umem, 0..2, 1, 1_536).get_mut(0, 1_537);
    }
}
