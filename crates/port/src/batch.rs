//! Slots for a burst of frames to send, and a view of received frames.
//!
//! Neither depends on a backend. A backend chooses where its frames are: in its own memory ([`Batch::new`]), in memory
//! that it shares with a device ([`Batch::within`]), or each in an owned [`Frame`] ([`Batch::of_frames`]).

use drophammer_model::quantity::Instant;
use drophammer_wire::frame::Frame;
use std::ptr::NonNull;

/// Slots of equal size. A slot contains one frame without FCS.
pub struct Batch {
    memory: Memory,
    slot_size: usize,
    /// Content of each piece of memory, as numbered by the sender; `u32::MAX` if unknown.
    tags: Vec<u32>,
    /// Number of times that the tags were forgotten.
    generation: u64,
}

/// Which parts of the frame to be written a slot already contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// Unknown content.
    Nothing,
    /// Everything but the head ([`drophammer_wire::frame::HEAD`]).
    Body,
    /// A whole frame of the same kind.
    Frame,
}

enum Memory {
    /// Each slot has a piece of a [`SlotMemory`].
    Pieces(Pieces),
    /// Each slot owns a frame of exactly the right length, which can change hands without a copy.
    Frames(Vec<Frame>),
}

/// Memory of equal pieces, each with room for one frame. A batch looks up the address of every piece once, when it is created.
///
/// # Safety
/// [`SlotMemory::piece`] returns the start of [`SlotMemory::size`] initialized bytes. They do not move during the
/// memory's lifetime, and pieces do not overlap. Only the batch reads and writes a piece. The exception is the time
/// between [`Batch::hand_over`] and [`Batch::take_back`], when only the backend and its device do.
pub unsafe trait SlotMemory: Send {
    /// Number of pieces, at least one per slot. With spare pieces, a slot can get another piece while a device uses the slot's own.
    fn pieces(&self) -> usize;

    /// Size of a piece in bytes.
    fn size(&self) -> usize;

    /// Returns the first byte of piece `n`.
    fn piece(&self, n: usize) -> NonNull<u8>;
}

/// Memory of our own with consecutive pieces.
struct Row {
    memory: NonNull<[u8]>,
    size: usize,
}

// SAFETY: the pieces are parts of one allocation of zeros, which only `drop` releases. Nobody else has its address.
unsafe impl SlotMemory for Row {
    fn pieces(&self) -> usize {
        self.memory.len() / self.size.max(1)
    }

    fn size(&self) -> usize {
        self.size
    }

    fn piece(&self, n: usize) -> NonNull<u8> {
        assert!((n + 1) * self.size <= self.memory.len());
        // SAFETY: as just checked, the piece is within the allocation.
        unsafe { self.memory.cast::<u8>().add(n * self.size) }
    }
}

// SAFETY: this value owns the memory, as a box would.
unsafe impl Send for Row {}

impl Drop for Row {
    fn drop(&mut self) {
        // SAFETY: the pointer came from a box in `Batch::new`. The batch with all addresses is dropped too.
        drop(unsafe { Box::from_raw(self.memory.as_ptr()) });
    }
}

/// The piece in a slot, and the length of its frame.
#[derive(Clone, Copy)]
struct Slot {
    at: NonNull<u8>,
    piece: u32,
    len: u32,
}

struct Pieces {
    slots: Vec<Slot>,
    /// Address of each piece.
    at: Vec<NonNull<u8>>,
    /// Pieces that are in no slot. The last returned piece is used first, because it is most likely in the cache.
    free: Vec<u32>,
    _memory: Box<dyn SlotMemory>,
}

// SAFETY: the addresses point into `_memory`, which can be sent to another thread.
unsafe impl Send for Pieces {}

/// Creates a vector with unused room at its end: the memory after it may belong to another thread and must not share a cache line.
fn padded<T: Clone>(len: usize, value: T) -> Vec<T> {
    let mut all = Vec::with_capacity(len + 128 / size_of::<T>());
    all.resize(len, value);
    all
}

impl Batch {
    /// Creates `slots` slots of `slot_size` bytes in memory of their own.
    pub fn new(slots: usize, slot_size: usize) -> Batch {
        let memory = NonNull::from(Box::leak(vec![0; slots * slot_size].into_boxed_slice()));
        Batch::within(Row { memory, size: slot_size }, slots)
    }

    /// Creates `slots` slots with the first pieces of `memory`.
    ///
    /// # Panics
    /// If there are fewer pieces.
    pub fn within(memory: impl SlotMemory + 'static, slots: usize) -> Batch {
        let (count, slot_size) = (memory.pieces(), memory.size());
        assert!(slots <= count, "{slots} slots, but {count} pieces of memory");
        let at: Vec<_> = (0..count).map(|n| memory.piece(n)).collect();
        let mut all = padded(slots, Slot { at: NonNull::dangling(), piece: 0, len: 0 });
        all.iter_mut().zip(&at).zip(0..).for_each(|((slot, at), piece)| *slot = Slot { at: *at, piece, len: 0 });
        let free = (slots as u32..count as u32).collect();
        let memory = Memory::Pieces(Pieces { slots: all, at, free, _memory: Box::new(memory) });
        Batch { memory, slot_size, tags: padded(count, u32::MAX), generation: 0 }
    }

    /// Creates `slots` slots for frames of up to `slot_size` bytes that change hands: [`Batch::fill`] gives each slot
    /// its memory, and [`Batch::give_away`] takes it.
    pub fn of_frames(slots: usize, slot_size: usize) -> Batch {
        let memory = Memory::Frames(vec![Frame::default(); slots]);
        Batch { memory, slot_size, tags: padded(slots, u32::MAX), generation: 0 }
    }

    /// Returns the number of slots.
    pub fn len(&self) -> usize {
        match &self.memory {
            Memory::Pieces(pieces) => pieces.slots.len(),
            Memory::Frames(frames) => frames.len(),
        }
    }

    /// Never true, because a batch always has slots.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the size of a slot in bytes.
    pub fn slot_size(&self) -> usize {
        self.slot_size
    }

    /// Prepares slot `i` for a frame of kind `tag` with `len` bytes. Returns its memory, and true if it already
    /// contains a frame of that kind (then only the fields that change from frame to frame need writing).
    #[inline]
    pub fn slot(&mut self, i: usize, tag: u32, len: usize) -> (&mut [u8], bool) {
        let (memory, held) = self.slot_of(i, tag, 0, len);
        (memory, held == Held::Frame)
    }

    /// Like [`Batch::slot`], but for a frame with the body `body` (see [`Frame::hold`]). Returns which parts of such a
    /// frame the slot already contains.
    #[inline]
    pub fn slot_of(&mut self, i: usize, tag: u32, body: u64, len: usize) -> (&mut [u8], Held) {
        let known = |place: &mut u32| match std::mem::replace(place, tag) == tag {
            true => Held::Frame,
            false => Held::Nothing,
        };
        match &mut self.memory {
            Memory::Pieces(pieces) => {
                assert!(len <= self.slot_size, "a frame of {len} bytes in a slot of {}", self.slot_size);
                let slot = &mut pieces.slots[i];
                slot.len = len as u32;
                // SAFETY: the slot's piece has room for the frame, as just checked. No other slot has the piece, and it
                // is borrowed as long as the batch.
                let memory = unsafe { std::slice::from_raw_parts_mut(slot.at.as_ptr(), len) };
                (memory, known(&mut self.tags[slot.piece as usize]))
            }
            Memory::Frames(frames) => {
                let (memory, has_body) = frames[i].hold(body, len);
                let held = match (known(&mut self.tags[i]), has_body) {
                    (_, false) => Held::Nothing,
                    (Held::Frame, true) => Held::Frame,
                    (_, true) => Held::Body,
                };
                (memory, held)
            }
        }
    }

    /// Copies `frame` into slot `i`, truncated to the slot's size.
    pub fn put(&mut self, i: usize, frame: &[u8]) {
        let len = frame.len().min(self.slot_size);
        self.slot(i, u32::MAX, len).0.copy_from_slice(&frame[..len]);
    }

    /// Returns the frame in slot `i`. After sending, the slot may contain a different frame.
    #[inline]
    pub fn frame(&self, i: usize) -> &[u8] {
        match &self.memory {
            Memory::Pieces(pieces) => {
                let slot = &pieces.slots[i];
                // SAFETY: the piece is at least as long as its frame, and written only through `&mut self`.
                unsafe { std::slice::from_raw_parts(slot.at.as_ptr(), slot.len as usize) }
            }
            Memory::Frames(frames) => &frames[i],
        }
    }

    /// Returns the frame of slot `i`, which the caller can take ([`Batch::fill`] replaces it); `None` if slots do not
    /// own frames. Afterwards the content of the slot is unknown.
    #[inline]
    pub fn give_away(&mut self, i: usize) -> Option<&mut Frame> {
        let Memory::Frames(frames) = &mut self.memory else { return None };
        self.tags[i] = u32::MAX;
        Some(&mut frames[i])
    }

    /// Puts memory from `spare` into the slots without memory.
    pub fn fill(&mut self, mut spare: impl FnMut() -> Frame) {
        if let Memory::Frames(frames) = &mut self.memory {
            frames.iter_mut().filter(|f| !f.has_room()).for_each(|f| *f = spare());
        }
    }

    /// Gives the piece in slot `i` to the device, and a free piece to the slot. Returns the number of the piece and the
    /// length of its frame. If no piece is free, returns `None` and the slot keeps its own.
    #[inline]
    pub fn hand_over(&mut self, i: usize) -> Option<(usize, usize)> {
        let Memory::Pieces(pieces) = &mut self.memory else { return None };
        let piece = pieces.free.pop()?;
        let fresh = Slot { at: pieces.at[piece as usize], piece, len: 0 };
        let gone = std::mem::replace(&mut pieces.slots[i], fresh);
        Some((gone.piece as usize, gone.len as usize))
    }

    /// Takes back a piece that the device has finished with. Ignores numbers that are not pieces.
    #[inline]
    pub fn take_back(&mut self, piece: usize) {
        if let Memory::Pieces(pieces) = &mut self.memory
            && piece < pieces.at.len()
        {
            pieces.free.push(piece as u32);
        }
    }

    /// Forgets the content of the slots before a new trial, which numbers its frames from the start.
    pub fn forget(&mut self) {
        self.tags.fill(u32::MAX);
        self.generation += 1;
    }

    /// Replaces `other`. Forgets the tags if `other` has forgotten its own since.
    pub fn follow(&mut self, other: &Batch) {
        if self.generation != other.generation {
            self.tags.fill(u32::MAX);
            self.generation = other.generation;
        }
    }

    /// Returns the address of the first piece of the memory; null if slots own frames.
    #[inline]
    pub fn start(&self) -> *mut u8 {
        match &self.memory {
            Memory::Pieces(pieces) => pieces.at[0].as_ptr(),
            Memory::Frames(_) => std::ptr::null_mut(),
        }
    }

    /// Checks that these are the slots of `interface`, whose memory starts at `start`. A port that passes addresses to
    /// a device calls this before each burst, because somebody may have swapped its batch with the batch of another
    /// port.
    ///
    /// # Panics
    /// If these are not the slots of `interface`.
    #[inline]
    pub fn expect_own(&self, start: *const u8, interface: &str) {
        assert!(std::ptr::eq(self.start(), start), "the slots of {interface} are another port's");
    }
}

/// A received frame in its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filled {
    /// First byte of the frame in the slot.
    pub offset: u32,
    /// Bytes of the frame, without FCS.
    pub len: u32,
    /// Time of arrival, on the run's clock.
    pub at: Instant,
}

impl Filled {
    /// Creates the entry for a frame of `len` bytes at the start of its slot.
    pub fn new(len: usize, at: Instant) -> Filled {
        Filled { offset: 0, len: len as u32, at }
    }
}

/// An arrived frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival<'a> {
    /// The frame without FCS.
    pub frame: &'a [u8],
    /// Time of arrival, on the run's clock.
    pub at: Instant,
}

/// Received frames, borrowed from the port.
#[derive(Clone, Copy)]
pub struct Received<'a> {
    frames: Frames<'a>,
    filled: &'a [Filled],
}

#[derive(Clone, Copy)]
enum Frames<'a> {
    /// In consecutive slots of this many bytes.
    Row(&'a [u8], usize),
    /// Each frame in its own memory.
    Owned(&'a [Frame]),
    /// Anywhere.
    Scattered(&'a [NonNull<[u8]>]),
}

impl<'a> Received<'a> {
    /// Frames in consecutive slots of `slot_size` bytes in `memory`.
    pub fn new(memory: &'a [u8], slot_size: usize, filled: &'a [Filled]) -> Self {
        Received { frames: Frames::Row(memory, slot_size), filled }
    }

    /// Frames that own their memory. Only the times in `filled` are used; there may be more frames than times.
    pub fn owned(frames: &'a [Frame], filled: &'a [Filled]) -> Self {
        Received { frames: Frames::Owned(frames), filled }
    }

    /// Frames wherever a device has put them. Only the times in `filled` are used.
    ///
    /// # Safety
    /// The frames are initialized, and nobody writes to them during `'a`.
    pub unsafe fn scattered(frames: &'a [NonNull<[u8]>], filled: &'a [Filled]) -> Self {
        Received { frames: Frames::Scattered(frames), filled }
    }

    /// Returns no frames.
    pub fn none() -> Received<'static> {
        Received::new(&[], 0, &[])
    }

    /// Returns the number of frames.
    pub fn len(&self) -> usize {
        self.filled.len()
    }

    /// True if no frame was received.
    pub fn is_empty(&self) -> bool {
        self.filled.is_empty()
    }

    /// Returns frame `i`.
    #[inline]
    pub fn get(&self, i: usize) -> Arrival<'a> {
        let Filled { offset, len, at } = self.filled[i];
        let frame = match self.frames {
            Frames::Row(memory, slot_size) => &memory[i * slot_size + offset as usize..][..len as usize],
            Frames::Owned(frames) => &frames[i],
            // SAFETY: the caller of `scattered` guarantees that the frame can be read during `'a`.
            Frames::Scattered(frames) => unsafe { frames[i].as_ref() },
        };
        Arrival { frame, at }
    }

    /// Iterates over all frames in order of arrival.
    pub fn iter(&self) -> impl Iterator<Item = Arrival<'a>> + '_ {
        (0..self.len()).map(|i| self.get(i))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The test plays the device and reads the pieces that were handed over to it.
    #[test]
    fn a_piece_is_with_the_device_or_in_one_slot_or_free() {
        let (slots, count, size) = (4, 10, 1_536);
        let memory = NonNull::from(Box::leak(vec![0; count * size].into_boxed_slice()));
        let mut batch = Batch::within(Row { memory, size }, slots);
        let mut device = Vec::new();
        for round in 0..100 {
            let slot = round % slots;
            batch.slot(slot, 7, size).0.fill(round as u8);
            let before = batch.frame(slot).as_ptr();
            match batch.hand_over(slot) {
                Some((piece, len)) => {
                    assert!(len == size && batch.frame(slot).is_empty());
                    device.push((piece, before, round as u8));
                }
                None => {
                    assert_eq!((device.len(), batch.frame(slot).as_ptr()), (count - slots, before));
                    assert_eq!(batch.frame(slot), [round as u8; 1_536], "a frame that is refused stays");
                    device.drain(..3).for_each(|(piece, ..)| batch.take_back(piece));
                }
            }
            let Memory::Pieces(pieces) = &batch.memory else { unreachable!() };
            let all = pieces.slots.iter().map(|s| s.piece).chain(pieces.free.iter().copied());
            let all: Vec<_> = all.chain(device.iter().map(|d| d.0 as u32)).collect();
            assert_eq!((all.len(), all.iter().collect::<BTreeSet<_>>().len()), (count, count));
            for (_, at, content) in &device {
                // SAFETY: the piece has this size, and the batch does not touch it.
                let frame = unsafe { std::slice::from_raw_parts(*at, size) };
                assert!(frame.iter().all(|b| b == content), "the batch does not write to what the device has");
            }
        }
        batch.take_back(count);
        assert!(batch.slot_of(0, 8, 0, 9).1 == Held::Nothing && batch.slot_of(0, 8, 0, 9).1 == Held::Frame);
        batch.forget();
        assert_eq!(batch.slot_of(0, 8, 0, 9).1, Held::Nothing);
    }

    #[test]
    #[should_panic(expected = "a frame of 1537 bytes")]
    fn a_frame_does_not_reach_into_the_next() {
        Batch::new(2, 1_536).slot(0, 1, 1_537);
    }
}
