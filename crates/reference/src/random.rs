//! Pseudo-random numbers that are the same for the same seed (SplitMix64, Steele et al. 2014).

#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator with this seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below `bound`, or 0 if `bound` is 0. The bias of at most `bound / 2^64` is negligible here.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// True with probability `share`.
    pub fn chance(&mut self, share: f64) -> bool {
        // 53 bits give a float in [0, 1) that is never rounded up to 1.
        ((self.bits() >> 11) as f64) < share * (1u64 << 53) as f64
    }
}
