//! The bytes before the signature: a fixed pseudo-random pattern. It reveals a changed byte anywhere, even if a device
//! corrects the checksum.

/// Longest payload of a test frame.
const LEN: usize = 9_216;

/// The pattern, the same for all frames of a run.
#[derive(Clone, Debug)]
pub struct Pattern {
    bytes: Box<[u8]>,
    /// The first eight bytes as a little-endian word.
    head: u64,
    /// Sums of the first 0, 1, 2 ... bytes, in the form of [`drophammer_wire::checksum::sum_le`].
    sums: Box<[u32]>,
}

impl Pattern {
    /// Creates the pattern from the seed of the run.
    pub fn new(seed: u64) -> Pattern {
        let mut state = seed | 1;
        let bytes: Box<[u8]> = (0..LEN)
            .map(|_| {
                // xorshift64*: cheap, and no visible period here.
                state ^= state >> 12;
                state ^= state << 25;
                state ^= state >> 27;
                (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 56) as u8
            })
            .collect();
        let mut sum = 0;
        let sums = bytes.iter().enumerate().map(|(at, byte)| {
            sum += u32::from(*byte) << (8 * (at % 2));
            sum
        });
        let sums = std::iter::once(0).chain(sums).collect();
        let head = u64::from_le_bytes(*bytes.first_chunk().expect("a pattern is longer than a word"));
        Pattern { bytes, head, sums }
    }

    /// Returns the first `len` bytes, at most 9,216.
    #[inline]
    pub fn bytes(&self, len: usize) -> &[u8] {
        &self.bytes[..len.min(LEN)]
    }

    /// Returns the first eight bytes as a little-endian word.
    #[inline]
    pub(crate) fn head(&self) -> u64 {
        self.head
    }

    /// Returns the sum of the first `len` bytes (at most 9,216) as little-endian words. An odd last byte is the low
    /// byte of its word.
    #[inline]
    pub(crate) fn sum(&self, len: usize) -> u64 {
        u64::from(self.sums[len.min(LEN)])
    }

    /// True if `bytes` start like the pattern, with enough bytes to rule out chance.
    pub(crate) fn begins(&self, bytes: &[u8]) -> bool {
        bytes.first_chunk::<4>().is_some_and(|first| *first == self.bytes[..4])
    }

    /// True if `bytes` are the first bytes of the pattern.
    #[inline]
    pub fn starts_with(&self, bytes: &[u8]) -> bool {
        let own = self.bytes(bytes.len());
        // For the few bytes of a short frame: two overlapping words cover 4 to 8 bytes.
        match (own.first_chunk::<4>(), own.last_chunk::<4>(), bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
            (Some(a), Some(b), Some(c), Some(d)) if bytes.len() <= 8 => a == c && b == d,
            _ => own == bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_compared() {
        let pattern = Pattern::new(5);
        for len in (0..40).chain([LEN - 1, LEN]) {
            let mut bytes = pattern.bytes(len).to_vec();
            assert!(pattern.starts_with(&bytes), "{len}");
            for at in 0..len {
                bytes[at] ^= 0x10;
                assert!(!pattern.starts_with(&bytes), "{len} {at}");
                bytes[at] ^= 0x10;
            }
        }
        assert!(!pattern.starts_with(&[pattern.bytes(LEN), &[0]].concat()));
    }
}
