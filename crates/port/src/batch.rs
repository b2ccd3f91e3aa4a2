//! Slots for a burst of frames, and the view of frames that came in.

use crate::Arrival;
use crate::af_packet::sys::ROOM;
use drophammer_model::quantity::Instant;
use drophammer_wire::frame::Frame;

/// Slots of equal size. A slot holds one frame without FCS.
pub struct Batch {
    memory: Memory,
    slot_size: usize,
    lengths: Vec<usize>,
    /// What each slot holds, by the sender's own numbering; `u32::MAX` when nothing yet.
    tags: Vec<u32>,
    /// How often the tags were forgotten.
    generation: u64,
}

/// What a slot holds of a frame that is to be written there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// Nothing that is known.
    Nothing,
    /// All but its head ([`drophammer_wire::frame::HEAD`]).
    Body,
    /// All of one of the same kind.
    Frame,
}

/// Where the frames are.
enum Memory {
    /// One slot behind the other.
    Row(Box<[u8]>),
    /// Each by itself and as long as its frame, so that it can change hands without a copy.
    Apart(Vec<Frame>),
}

impl Batch {
    /// `slots` slots of `slot_size` bytes in one piece of memory.
    pub fn new(slots: usize, slot_size: usize) -> Batch {
        Batch::of(Memory::Row(vec![0; slots * slot_size].into_boxed_slice()), slots, slot_size)
    }

    /// The same with each slot in memory of its own, of which there is none yet ([`Batch::fill`]).
    pub(crate) fn apart(slots: usize, slot_size: usize) -> Batch {
        Batch::of(Memory::Apart(vec![Frame::default(); slots]), slots, slot_size)
    }

    fn of(memory: Memory, slots: usize, slot_size: usize) -> Batch {
        // Room at the end that nobody uses: what lies behind may be another thread's and is not in the same cache line.
        let (mut lengths, mut tags) = (Vec::with_capacity(slots + 8), Vec::with_capacity(slots + 16));
        lengths.resize(slots, 0);
        tags.resize(slots, u32::MAX);
        Batch { memory, slot_size, lengths, tags, generation: 0 }
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
        let memory = match &mut self.memory {
            Memory::Row(memory) => {
                let start = i * self.slot_size;
                &mut memory[start..start + len]
            }
            Memory::Apart(frames) => {
                let frame = frames[i].bytes_mut();
                if frame.len() != len {
                    frame.resize(len, 0);
                }
                frame.as_mut_slice()
            }
        };
        (memory, same)
    }

    /// The same of a frame with the body `body` (see [`Frame::hold`]), and how much of such a frame it holds.
    #[inline]
    pub fn slot_of(&mut self, i: usize, tag: u32, body: u64, len: usize) -> (&mut [u8], Held) {
        let same = self.tags[i] == tag;
        self.tags[i] = tag;
        self.lengths[i] = len;
        let (memory, body) = match &mut self.memory {
            Memory::Row(memory) => (&mut memory[i * self.slot_size..][..len], same),
            Memory::Apart(frames) => frames[i].hold(body, len),
        };
        let held = match (same, body) {
            (true, true) => Held::Frame,
            (false, true) => Held::Body,
            _ => Held::Nothing,
        };
        (memory, held)
    }

    /// Puts a copy of `frame` into slot `i`, cut off at the slot's size.
    pub fn put(&mut self, i: usize, frame: &[u8]) {
        let len = frame.len().min(self.slot_size);
        self.slot(i, u32::MAX, len).0.copy_from_slice(&frame[..len]);
    }

    /// Frame in slot `i`.
    #[inline]
    pub fn frame(&self, i: usize) -> &[u8] {
        match &self.memory {
            Memory::Row(memory) => {
                let start = i * self.slot_size;
                &memory[start..start + self.lengths[i]]
            }
            Memory::Apart(frames) => &frames[i],
        }
    }

    /// The memory of slot `i` for whoever wants to take it ([`Batch::fill`] puts other memory there); `None` where all slots
    /// are in one piece. What the slot holds is not known any more.
    #[inline]
    pub(crate) fn give_away(&mut self, i: usize) -> Option<&mut Frame> {
        let Memory::Apart(frames) = &mut self.memory else { return None };
        self.tags[i] = u32::MAX;
        Some(&mut frames[i])
    }

    /// Puts memory from `spare` into the slots that have none.
    pub(crate) fn fill(&mut self, mut spare: impl FnMut() -> Frame) {
        if let Memory::Apart(frames) = &mut self.memory {
            frames.iter_mut().filter(|f| !f.has_room()).for_each(|f| *f = spare());
        }
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

    /// Where the first slot begins; the others follow on it.
    ///
    /// # Panics
    /// When the slots are apart.
    pub(crate) fn base(&mut self) -> *mut u8 {
        match &mut self.memory {
            Memory::Row(memory) => memory.as_mut_ptr(),
            Memory::Apart(_) => panic!("slots that are apart have no common beginning"),
        }
    }
}

/// Frames that came in, borrowed from the port.
#[derive(Clone, Copy)]
pub struct Received<'a> {
    frames: Frames<'a>,
    /// `(length, arrival)` per slot.
    slots: &'a [(usize, Instant)],
}

#[derive(Clone, Copy)]
enum Frames<'a> {
    /// One slot behind the other, each of so many bytes.
    Row(&'a [u8], usize),
    /// The same, but the frame begins behind [`ROOM`], where the bit of its slot is not set.
    BehindRoom(&'a [u8], usize, u64),
    /// Each by itself.
    Apart(&'a [Frame]),
}

impl<'a> Received<'a> {
    pub(crate) fn new(memory: &'a [u8], slot_size: usize, slots: &'a [(usize, Instant)]) -> Self {
        Received { frames: Frames::Row(memory, slot_size), slots }
    }

    /// The same of frames that begin [`ROOM`] bytes behind the start of their slots, but for those whose bits are set in `moved`.
    pub(crate) fn behind_room(memory: &'a [u8], slot_size: usize, moved: u64, slots: &'a [(usize, Instant)]) -> Self {
        Received { frames: Frames::BehindRoom(memory, slot_size, moved), slots }
    }

    /// The same of frames that are each in memory of their own; there may be more of them than `slots`.
    pub(crate) fn apart(frames: &'a [Frame], slots: &'a [(usize, Instant)]) -> Self {
        Received { frames: Frames::Apart(frames), slots }
    }

    /// Nothing.
    pub fn none() -> Received<'static> {
        Received::new(&[], 0, &[])
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
        let frame = match self.frames {
            Frames::Row(memory, slot_size) => &memory[i * slot_size..][..len],
            Frames::BehindRoom(memory, slot_size, moved) => {
                let room = if moved >> i & 1 == 0 { ROOM } else { 0 };
                &memory[i * slot_size + room..][..len]
            }
            Frames::Apart(frames) => &frames[i],
        };
        Arrival { frame, at }
    }

    /// All frames in order of arrival.
    pub fn iter(&self) -> impl Iterator<Item = Arrival<'a>> + '_ {
        (0..self.len()).map(|i| self.get(i))
    }
}
