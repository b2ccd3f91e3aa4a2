//! Reusable buffers for frames.

use drophammer_wire::frame::Frame;

/// Size of a new buffer; longer frames allocate their own memory.
const ROOM: usize = 1600;

/// Index of a frame in the pool.
pub type Slot = u32;

/// All frames in the device.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    frames: Vec<Frame>,
    free: Vec<Slot>,
}

impl Pool {
    /// A buffer with unspecified content.
    #[inline]
    pub fn take(&mut self) -> Slot {
        let slot = self.free.pop().unwrap_or_else(|| self.grow());
        let frame = &mut self.frames[slot as usize];
        if !frame.has_room() {
            *frame = Frame::with_room(ROOM);
        }
        slot
    }

    /// A slot without a buffer.
    #[cold]
    fn grow(&mut self) -> Slot {
        self.frames.push(Frame::default());
        (self.frames.len() - 1) as Slot
    }

    /// Takes the memory of `frame` and leaves other memory with arbitrary content, or none, in its place.
    #[inline]
    pub fn adopt(&mut self, frame: &mut Frame) -> Slot {
        let slot = self.free.pop().unwrap_or_else(|| self.grow());
        std::mem::swap(&mut self.frames[slot as usize], frame);
        slot
    }

    /// Returns a new buffer with a copy of the frame in `slot`.
    pub fn duplicate(&mut self, slot: Slot) -> Slot {
        let copy = self.take();
        let mut frame = std::mem::take(&mut self.frames[copy as usize]);
        let bytes = frame.bytes_mut();
        bytes.clear();
        bytes.extend_from_slice(&self.frames[slot as usize]);
        self.frames[copy as usize] = frame;
        copy
    }

    #[inline]
    pub fn release(&mut self, slot: Slot) {
        self.free.push(slot);
    }

    #[inline]
    pub fn get(&self, slot: Slot) -> &[u8] {
        &self.frames[slot as usize]
    }

    #[inline]
    pub fn get_mut(&mut self, slot: Slot) -> &mut Frame {
        &mut self.frames[slot as usize]
    }
}
