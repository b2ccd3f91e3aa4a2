//! Slots for a burst of frames, and the view of received frames.

use crate::Arrival;
use crate::af_packet::sys::ROOM;
use crate::af_xdp::umem::{SendFrames, Umem};
use drophammer_model::quantity::Instant;
use drophammer_wire::frame::Frame;
use std::ptr::NonNull;
use std::sync::Arc;

/// Slots of equal size. A slot holds one frame without FCS.
pub struct Batch {
    memory: Memory,
    slot_size: usize,
    lengths: Vec<usize>,
    /// What each slot (of shared memory: each frame) contains, as numbered by the sender; `u32::MAX` when unknown.
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

/// Where the frames are.
enum Memory {
    /// Adjacent slots.
    Row(Box<[u8]>),
    /// Each frame separately and with its exact length, so that it can change hands without a copy.
    Apart(Vec<Frame>),
    /// In memory shared with the kernel. The kernel owns a frame until it has left, so a slot gets another one with each sending.
    Shared(SendFrames),
}

impl Batch {
    /// `slots` slots of `slot_size` bytes in one piece of memory.
    pub fn new(slots: usize, slot_size: usize) -> Batch {
        Batch::of(Memory::Row(vec![0; slots * slot_size].into_boxed_slice()), slots, slots, slot_size)
    }

    /// Like [`Batch::new`], with separate memory for each slot, which [`Batch::fill`] provides.
    pub(crate) fn apart(slots: usize, slot_size: usize) -> Batch {
        Batch::of(Memory::Apart(vec![Frame::default(); slots]), slots, slots, slot_size)
    }

    /// `slots` slots, each with one of `frames`.
    pub(crate) fn shared(frames: SendFrames, slots: usize) -> Batch {
        let (count, slot_size) = (frames.frames(), frames.room());
        Batch::of(Memory::Shared(frames), slots, count, slot_size)
    }

    fn of(memory: Memory, slots: usize, frames: usize, slot_size: usize) -> Batch {
        // Unused room at the end: the following memory may belong to another thread and must not share a cache line.
        let (mut lengths, mut tags) = (Vec::with_capacity(slots + 8), Vec::with_capacity(frames + 16));
        lengths.resize(slots, 0);
        tags.resize(frames, u32::MAX);
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

    /// Slot `i` for a frame of kind `tag` with `len` bytes: its memory, and whether it already contains a frame of that
    /// kind (then only the fields that change from frame to frame need writing).
    #[inline]
    pub fn slot(&mut self, i: usize, tag: u32, len: usize) -> (&mut [u8], bool) {
        self.lengths[i] = len;
        let held = |place: &mut u32| std::mem::replace(place, tag) == tag;
        match &mut self.memory {
            Memory::Row(memory) => (&mut memory[i * self.slot_size..][..len], held(&mut self.tags[i])),
            Memory::Apart(frames) => {
                let frame = frames[i].bytes_mut();
                if frame.len() != len {
                    frame.resize(len, 0);
                }
                (frame.as_mut_slice(), held(&mut self.tags[i]))
            }
            Memory::Shared(frames) => {
                let same = held(&mut self.tags[frames.frame_of(i)]);
                (frames.get_mut(i, len), same)
            }
        }
    }

    /// Like [`Batch::slot`], for a frame with the body `body` (see [`Frame::hold`]); returns how much of such a frame
    /// the slot already contains.
    #[inline]
    pub fn slot_of(&mut self, i: usize, tag: u32, body: u64, len: usize) -> (&mut [u8], Held) {
        self.lengths[i] = len;
        let held = |place: &mut u32| match std::mem::replace(place, tag) == tag {
            true => Held::Frame,
            false => Held::Nothing,
        };
        match &mut self.memory {
            Memory::Row(memory) => (&mut memory[i * self.slot_size..][..len], held(&mut self.tags[i])),
            Memory::Apart(frames) => {
                let (memory, has_body) = frames[i].hold(body, len);
                let held = match (held(&mut self.tags[i]), has_body) {
                    (_, false) => Held::Nothing,
                    (Held::Frame, true) => Held::Frame,
                    (_, true) => Held::Body,
                };
                (memory, held)
            }
            Memory::Shared(frames) => {
                let held = held(&mut self.tags[frames.frame_of(i)]);
                (frames.get_mut(i, len), held)
            }
        }
    }

    /// Puts a copy of `frame` into slot `i`, cut off at the slot's size.
    pub fn put(&mut self, i: usize, frame: &[u8]) {
        let len = frame.len().min(self.slot_size);
        self.slot(i, u32::MAX, len).0.copy_from_slice(&frame[..len]);
    }

    /// Frame in slot `i`. After sending, the slot may contain another one.
    #[inline]
    pub fn frame(&self, i: usize) -> &[u8] {
        match &self.memory {
            Memory::Row(memory) => {
                let start = i * self.slot_size;
                &memory[start..start + self.lengths[i]]
            }
            Memory::Apart(frames) => &frames[i],
            Memory::Shared(frames) => frames.get(i, self.lengths[i]),
        }
    }

    /// The memory of slot `i`, which the caller may take ([`Batch::fill`] replaces it); `None` if all slots are in one piece
    /// of memory. The content of the slot is unknown afterwards.
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

    /// Address and length of the frame in slot `i`, which the kernel owns from now on; `None` if no free frame is left for the
    /// slot, which then keeps its own.
    #[inline]
    pub(crate) fn hand_over(&mut self, i: usize) -> Option<(u64, usize)> {
        let Memory::Shared(frames) = &mut self.memory else { return None };
        frames.hand_over(i).map(|address| (address, self.lengths[i]))
    }

    /// Takes back the frame at `address`, which the kernel has finished with.
    #[inline]
    pub(crate) fn take_back(&mut self, address: u64) {
        if let Memory::Shared(frames) = &mut self.memory {
            frames.take_back(address);
        }
    }

    /// True if the frames are in `umem`.
    pub(crate) fn is_in(&self, umem: &Arc<Umem>) -> bool {
        matches!(&self.memory, Memory::Shared(frames) if frames.is_in(umem))
    }

    /// Forgets the content of the slots, before a new trial numbers its frames anew.
    pub fn forget(&mut self) {
        self.tags.fill(u32::MAX);
        self.generation += 1;
    }

    /// Takes the place of `other`; also forgets its tags if `other` has done so in the meantime.
    pub(crate) fn follow(&mut self, other: &Batch) {
        if self.generation != other.generation {
            self.tags.fill(u32::MAX);
            self.generation = other.generation;
        }
    }

    /// Address of the first slot; the others follow it.
    ///
    /// # Panics
    /// If the slots are separate.
    pub(crate) fn base(&mut self) -> *mut u8 {
        match &mut self.memory {
            Memory::Row(memory) => memory.as_mut_ptr(),
            _ => panic!("slots that are apart have no common beginning"),
        }
    }
}

/// Received frames, borrowed from the port.
#[derive(Clone, Copy)]
pub struct Received<'a> {
    frames: Frames<'a>,
    /// `(length, arrival)` per slot.
    slots: &'a [(usize, Instant)],
}

#[derive(Clone, Copy)]
enum Frames<'a> {
    /// Adjacent slots of this many bytes each.
    Row(&'a [u8], usize),
    /// Slots filled by packet sockets.
    OfSockets(SocketSlots<'a>),
    /// Separate frames.
    Apart(&'a [Frame]),
    /// The first ones where the kernel has put them, the others in slots filled by packet sockets.
    Shared(&'a [NonNull<[u8]>], SocketSlots<'a>),
}

/// Adjacent slots of equal size with frames from packet sockets. Each frame begins [`ROOM`] bytes after the start of its slot, or at the
/// start if a VLAN tag was put back.
#[derive(Clone, Copy)]
pub(crate) struct SocketSlots<'a> {
    memory: &'a [u8],
    slot_size: usize,
    moved: u64,
}

impl<'a> SocketSlots<'a> {
    /// Slots of `slot_size` bytes in `memory`; bit i of `moved` means that frame i begins at the start of its slot.
    pub fn new(memory: &'a [u8], slot_size: usize, moved: u64) -> Self {
        SocketSlots { memory, slot_size, moved }
    }

    #[inline]
    fn get(self, i: usize, len: usize) -> &'a [u8] {
        let room = if self.moved >> i & 1 == 0 { ROOM } else { 0 };
        &self.memory[i * self.slot_size + room..][..len]
    }
}

impl<'a> Received<'a> {
    pub(crate) fn new(memory: &'a [u8], slot_size: usize, slots: &'a [(usize, Instant)]) -> Self {
        Received { frames: Frames::Row(memory, slot_size), slots }
    }

    /// View of frames from packet sockets.
    pub(crate) fn of_sockets(packets: SocketSlots<'a>, slots: &'a [(usize, Instant)]) -> Self {
        Received { frames: Frames::OfSockets(packets), slots }
    }

    /// View of separate frames; there may be more of them than `slots`.
    pub(crate) fn apart(frames: &'a [Frame], slots: &'a [(usize, Instant)]) -> Self {
        Received { frames: Frames::Apart(frames), slots }
    }

    /// View whose first frames are at `shared` and whose others are in their slots of `packets`.
    ///
    /// # Safety
    /// The frames in `shared` must be readable, and not written, for as long as `'a`.
    pub(crate) unsafe fn shared(
        shared: &'a [NonNull<[u8]>],
        packets: SocketSlots<'a>,
        slots: &'a [(usize, Instant)],
    ) -> Self {
        Received { frames: Frames::Shared(shared, packets), slots }
    }

    /// No frames.
    pub fn none() -> Received<'static> {
        Received::new(&[], 0, &[])
    }

    /// Number of frames.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// True if no frame was received.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Frame `i`.
    #[inline]
    pub fn get(&self, i: usize) -> Arrival<'a> {
        let (len, at) = self.slots[i];
        let frame = match self.frames {
            Frames::Row(memory, slot_size) => &memory[i * slot_size..][..len],
            Frames::OfSockets(packets) => packets.get(i, len),
            Frames::Apart(frames) => &frames[i],
            Frames::Shared(shared, packets) => match shared.get(i) {
                // SAFETY: the caller of [`Received::shared`] has promised that it may be read for as long as `'a`.
                Some(frame) => unsafe { frame.as_ref() },
                None => packets.get(i, len),
            },
        };
        Arrival { frame, at }
    }

    /// All frames in order of arrival.
    pub fn iter(&self) -> impl Iterator<Item = Arrival<'a>> + '_ {
        (0..self.len()).map(|i| self.get(i))
    }
}
