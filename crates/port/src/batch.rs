//! Slots for a burst of frames, and the view of frames that came in.

use crate::Arrival;
use drophammer_model::quantity::Instant;

/// A row of equal slots in one piece of memory. A slot holds one frame without FCS.
pub struct Batch {
    memory: Box<[u8]>,
    slot_size: usize,
    lengths: Vec<usize>,
    /// What each slot holds, by the sender's own numbering; `u32::MAX` when nothing yet.
    tags: Vec<u32>,
    /// How often the tags were forgotten.
    generation: u64,
}

impl Batch {
    /// `slots` slots of `slot_size` bytes.
    pub fn new(slots: usize, slot_size: usize) -> Batch {
        // Room at the end that nobody uses: what lies behind may be another thread's and is not in the same cache line.
        let (mut lengths, mut tags) = (Vec::with_capacity(slots + 8), Vec::with_capacity(slots + 16));
        lengths.resize(slots, 0);
        tags.resize(slots, u32::MAX);
        Batch { memory: vec![0; slots * slot_size].into_boxed_slice(), slot_size, lengths, tags, generation: 0 }
    }

    /// Number of slots.
    pub fn len(&self) -> usize {
        self.lengths.len()
    }

    /// Never true; a batch has slots.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// Bytes of one slot.
    pub fn slot_size(&self) -> usize {
        self.slot_size
    }

    /// Slot `i` for a frame of kind `tag` with `len` bytes: its memory, and whether it holds a frame of that kind already
    /// (then only what changes from frame to frame needs writing).
    #[inline]
    pub fn slot(&mut self, i: usize, tag: u32, len: usize) -> (&mut [u8], bool) {
        let same = self.tags[i] == tag;
        self.tags[i] = tag;
        self.lengths[i] = len;
        let start = i * self.slot_size;
        (&mut self.memory[start..start + len], same)
    }

    /// Puts a copy of `frame` into slot `i`, cut off at the slot's size.
    pub fn put(&mut self, i: usize, frame: &[u8]) {
        let len = frame.len().min(self.slot_size);
        self.slot(i, u32::MAX, len).0.copy_from_slice(&frame[..len]);
    }

    /// Frame in slot `i`.
    #[inline]
    pub fn frame(&self, i: usize) -> &[u8] {
        let start = i * self.slot_size;
        &self.memory[start..start + self.lengths[i]]
    }

    /// Forgets what the slots hold, before a new trial numbers its frames anew.
    pub fn forget(&mut self) {
        self.tags.fill(u32::MAX);
        self.generation += 1;
    }

    /// Takes the place of `other`, and forgets what `other` has forgotten meanwhile.
    pub(crate) fn follow(&mut self, other: &Batch) {
        if self.generation != other.generation {
            self.tags.fill(u32::MAX);
            self.generation = other.generation;
        }
    }

    pub(crate) fn base(&mut self) -> *mut u8 {
        self.memory.as_mut_ptr()
    }
}

/// Frames that came in, borrowed from the port.
#[derive(Clone, Copy)]
pub struct Received<'a> {
    memory: &'a [u8],
    slot_size: usize,
    /// `(length, arrival)` per slot.
    slots: &'a [(usize, Instant)],
}

impl<'a> Received<'a> {
    pub(crate) fn new(memory: &'a [u8], slot_size: usize, slots: &'a [(usize, Instant)]) -> Self {
        Received { memory, slot_size, slots }
    }

    /// Nothing.
    pub fn none() -> Received<'static> {
        Received { memory: &[], slot_size: 0, slots: &[] }
    }

    /// Number of frames.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Did nothing come in?
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Frame `i`.
    #[inline]
    pub fn get(&self, i: usize) -> Arrival<'a> {
        let (len, at) = self.slots[i];
        let start = i * self.slot_size;
        Arrival { frame: &self.memory[start..start + len], at }
    }

    /// All frames in order of arrival.
    pub fn iter(&self) -> impl Iterator<Item = Arrival<'a>> + '_ {
        (0..self.len()).map(|i| self.get(i))
    }
}
