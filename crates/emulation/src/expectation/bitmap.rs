//! One bit per key.

use std::ops::Range;

/// A fixed number of bits, and the number of bits that are set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bitmap {
    words: Vec<u64>,
    ones: u32,
}

impl Bitmap {
    /// `len` bits, none set.
    pub fn new(len: u32) -> Bitmap {
        Bitmap { words: vec![0; len.div_ceil(64) as usize], ones: 0 }
    }

    /// Number of set bits.
    pub fn ones(&self) -> u32 {
        self.ones
    }

    #[inline]
    pub fn get(&self, i: u32) -> bool {
        self.words[(i / 64) as usize] >> (i % 64) & 1 == 1
    }

    /// Sets or clears a bit. Returns true if that changed the bit.
    #[inline]
    pub fn set(&mut self, i: u32, to: bool) -> bool {
        let (word, bit) = (&mut self.words[(i / 64) as usize], 1 << (i % 64));
        if (*word & bit != 0) == to {
            return false;
        }
        *word ^= bit;
        if to {
            self.ones += 1
        } else {
            self.ones -= 1
        }
        true
    }

    pub fn set_all(&mut self, part: Range<u32>, to: bool) {
        part.for_each(|i| _ = self.set(i, to));
    }

    /// The first bit that is set.
    pub fn first(&self) -> Option<u32> {
        let at = self.words.iter().position(|word| *word != 0)?;
        Some(at as u32 * 64 + self.words[at].trailing_zeros())
    }

    pub fn clear(&mut self) {
        self.words.fill(0);
        self.ones = 0;
    }

    /// Number of bits that are set in both bitmaps.
    pub fn common(&self, other: &Bitmap) -> u32 {
        self.words.iter().zip(&other.words).map(|(a, b)| (a & b).count_ones()).sum()
    }

    /// Numbers of the bits that are set, in order.
    pub fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        self.words.iter().zip((0..).step_by(64)).flat_map(|(word, base)| ones(*word, base))
    }

    /// Numbers of the bits that are set in this bitmap but not in `other`, in order.
    pub fn without<'a>(&'a self, other: &'a Bitmap) -> impl Iterator<Item = u32> + 'a {
        self.words.iter().zip(&other.words).zip((0..).step_by(64)).flat_map(|((a, b), base)| ones(a & !b, base))
    }
}

/// Numbers of the set bits in a word whose first bit is `base`.
fn ones(mut word: u64, base: u32) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        (word != 0).then(|| {
            let bit = word.trailing_zeros();
            word &= word - 1;
            base + bit
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn a_set_of_numbers(n in 1u32..300, steps in prop::collection::vec((any::<u32>(), any::<bool>()), 0..200)) {
            let (mut bits, mut set, other) = (Bitmap::new(n), BTreeSet::new(), {
                let mut other = Bitmap::new(n);
                other.set_all(0..n / 2, true);
                other
            });
            for (i, to) in steps {
                let i = i % n;
                let changed = if to { set.insert(i) } else { set.remove(&i) };
                prop_assert_eq!(bits.set(i, to), changed);
                prop_assert_eq!((bits.get(i), bits.ones() as usize), (to, set.len()));
            }
            let expected: Vec<u32> = set.iter().copied().filter(|i| *i >= n / 2).collect();
            prop_assert_eq!(bits.without(&other).collect::<Vec<_>>(), expected.clone());
            prop_assert_eq!(bits.numbers().collect::<Vec<_>>(), set.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(bits.first(), set.first().copied());
            prop_assert_eq!(bits.common(&other) as usize, set.len() - expected.len());
        }
    }
}
