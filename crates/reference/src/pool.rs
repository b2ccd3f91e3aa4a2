//! Buffers for frames, used again and again.

/// Index of a frame in the pool.
pub type Slot = u32;

/// All frames that are in the box.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    frames: Vec<Vec<u8>>,
    free: Vec<Slot>,
}

impl Pool {
    /// A buffer with unspecified content.
    pub fn take(&mut self) -> Slot {
        if let Some(slot) = self.free.pop() {
            return slot;
        }
        self.frames.push(Vec::with_capacity(1536));
        (self.frames.len() - 1) as Slot
    }

    /// A buffer with a copy of the frame in `slot`.
    pub fn duplicate(&mut self, slot: Slot) -> Slot {
        let copy = self.take();
        let mut frame = std::mem::take(&mut self.frames[copy as usize]);
        frame.clear();
        frame.extend_from_slice(&self.frames[slot as usize]);
        self.frames[copy as usize] = frame;
        copy
    }

    /// Gives a buffer back.
    pub fn release(&mut self, slot: Slot) {
        self.free.push(slot);
    }

    /// The frame in `slot`.
    pub fn get(&self, slot: Slot) -> &[u8] {
        &self.frames[slot as usize]
    }

    /// The buffer of `slot`.
    pub fn get_mut(&mut self, slot: Slot) -> &mut Vec<u8> {
        &mut self.frames[slot as usize]
    }
}
