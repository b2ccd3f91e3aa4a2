//! A pseudo-random order of a range, computed instead of stored as a table.

/// A seeded permutation of `0..n`: a Feistel network on the smallest even number of bits that holds `n` members.
#[derive(Clone, Copy, Debug)]
pub(super) struct Permutation {
    n: u128,
    half_bits: u32,
    keys: [u64; 4],
}

/// Finaliser of SplitMix64: every input bit reaches every output bit.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Permutation {
    /// A permutation of `0..n`; 0 stands for two to the power of 128.
    pub(super) fn new(n: u128, seed: u64) -> Permutation {
        let bits = (u128::BITS - n.wrapping_sub(1).leading_zeros()).max(2);
        let key = |round: u64| mix(seed.wrapping_add(round.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        Permutation { n, half_bits: bits.div_ceil(2), keys: std::array::from_fn(|round| key(round as u64 + 1)) }
    }

    /// Member at place `i`, which must be below `n`.
    pub(super) fn at(&self, i: u128) -> u128 {
        // Cycle walking: the block is less than four times n, so a few steps always return a member below n.
        let mut x = i;
        loop {
            x = self.encrypt(x);
            if self.n == 0 || x < self.n {
                return x;
            }
        }
    }

    fn encrypt(&self, x: u128) -> u128 {
        let mask = (1u128 << self.half_bits) - 1;
        let (mut left, mut right) = (x >> self.half_bits, x & mask);
        for key in self.keys {
            (left, right) = (right, left ^ (u128::from(mix(right as u64 ^ key)) & mask));
        }
        left << self.half_bits | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_member_once() {
        for n in [1u128, 2, 3, 5, 16, 17, 1_000] {
            let mut members: Vec<_> = (0..n).map(|i| Permutation::new(n, 7).at(i)).collect();
            members.sort_unstable();
            assert!(members.into_iter().eq(0..n), "{n}");
        }
    }

    #[test]
    fn the_whole_of_128_bits_has_an_order() {
        let all = Permutation::new(0, 7);
        assert_ne!(all.at(0), all.at(u128::MAX));
        assert_eq!(all.half_bits, 64);
    }
}
