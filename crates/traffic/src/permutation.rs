//! Pseudo-random order without a table: a computed permutation of `0..n`. RFC 4814 requires random addresses; this way
//! a million of them need no memory.

use serde::{Deserialize, Serialize};

/// A seeded permutation of `0..n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permutation {
    n: u32,
    half_bits: u32,
    keys: [u32; 3],
    /// Place at which the order starts.
    #[serde(default)]
    first: u32,
}

impl Permutation {
    /// Creates a permutation of `0..n`, with `n` at least 1. The same seed gives the same order.
    pub fn new(n: u32, seed: u64) -> Permutation {
        let n = n.max(1);
        // A Feistel network works on an even number of bits; this is the smallest block with at least n members.
        let bits = (u32::BITS - (n - 1).leading_zeros()).max(2);
        let half_bits = bits.div_ceil(2);
        let mut state = seed;
        let keys = std::array::from_fn(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 32) as u32
        });
        Permutation { n, half_bits, keys, first: 0 }
    }

    /// Returns the same order, rotated to start at place `first`.
    #[must_use]
    pub fn beginning_at(self, first: u32) -> Permutation {
        Permutation { first: first % self.n, ..self }
    }

    /// Returns the number of members.
    pub fn len(&self) -> u32 {
        self.n
    }

    /// Never true, because a permutation has members.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Returns half of the width in bits, and the round keys, for an order that is not rotated.
    pub(crate) fn network(&self) -> (u32, [u32; 3]) {
        (self.half_bits, self.keys)
    }

    /// Returns the member at place `i`, which must be below `n`.
    #[inline]
    pub fn at(&self, i: u32) -> u32 {
        if self.n == 1 {
            return 0;
        }
        // Cycle walking: the block is less than four times as large as n, so a few steps always lead back below n.
        let mut x = if i < self.n - self.first { i + self.first } else { i - (self.n - self.first) };
        loop {
            x = self.encrypt(x);
            if x < self.n {
                return x;
            }
        }
    }

    #[inline]
    fn encrypt(&self, x: u32) -> u32 {
        let mask = (1u32 << self.half_bits) - 1;
        let (mut left, mut right) = (x >> self.half_bits, x & mask);
        for key in self.keys {
            let mixed = (right ^ key).wrapping_mul(0x9e37_79b1);
            let round = (mixed >> (32 - self.half_bits)) & mask;
            (left, right) = (right, left ^ round);
        }
        left << self.half_bits | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_member_comes_exactly_once(n in 1u32..5000, seed: u64) {
            let p = Permutation::new(n, seed);
            let mut seen = vec![false; n as usize];
            for i in 0..n {
                let x = p.at(i) as usize;
                prop_assert!(!seen[x]);
                seen[x] = true;
            }
        }
    }

    proptest! {
        #[test]
        fn one_that_begins_elsewhere_goes_round(n in 1u32..5000, first: u32, seed: u64) {
            let whole = Permutation::new(n, seed);
            let turned = whole.beginning_at(first);
            for i in 0..n {
                let place = (u64::from(i) + u64::from(first)) % u64::from(n);
                prop_assert_eq!(turned.at(i), whole.at(place as u32));
            }
        }
    }

    #[test]
    fn a_million_members_in_no_visible_order() {
        let p = Permutation::new(1_000_000, 7);
        let ascending = (1..1_000_000).filter(|i| p.at(*i) > p.at(i - 1)).count();
        assert!((450_000..550_000).contains(&ascending), "{ascending} ascents");
        let neighbours = (1..1_000_000).filter(|i| p.at(*i) == p.at(i - 1).wrapping_add(1)).count();
        assert!(neighbours < 2_000, "{neighbours} neighbours");
    }
}
