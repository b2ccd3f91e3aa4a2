//! The bytes before the signature: a fixed pseudo-random pattern, so that a changed byte anywhere is seen even where a
//! device repairs the checksum behind it.

/// Longest payload that a test frame can have.
const LEN: usize = 9_216;

/// The pattern; the same for all frames of a run.
#[derive(Clone, Debug)]
pub struct Pattern(Box<[u8]>);

impl Pattern {
    /// From the seed of the run.
    pub fn new(seed: u64) -> Pattern {
        let mut state = seed | 1;
        let bytes = (0..LEN)
            .map(|_| {
                // xorshift64*: cheap and without visible period here.
                state ^= state >> 12;
                state ^= state << 25;
                state ^= state >> 27;
                (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 56) as u8
            })
            .collect();
        Pattern(bytes)
    }

    /// The first `len` bytes, at most 9,216.
    #[inline]
    pub fn bytes(&self, len: usize) -> &[u8] {
        &self.0[..len.min(LEN)]
    }
}
