//! A permutation of `0..n` and its inverse, both computed with multiplications.

/// A constant divisor. A division by it is exact and takes two multiplications, which is much faster than a division
/// instruction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Divisor {
    n: u32,
    /// 2^64 / n, or 1 less.
    reciprocal: u64,
}

impl Divisor {
    /// `n`, at least 1.
    pub fn new(n: u32) -> Divisor {
        let n = n.max(1);
        Divisor { n, reciprocal: u64::MAX / u64::from(n) }
    }

    /// The divisor.
    #[inline]
    pub fn get(&self) -> u32 {
        self.n
    }

    /// Quotient and remainder.
    #[inline]
    pub fn div_rem(&self, x: u64) -> (u64, u32) {
        // The reciprocal's error changes the quotient by less than 1, so the estimate is right or too small by 1.
        let estimate = ((u128::from(x) * u128::from(self.reciprocal)) >> 64) as u64;
        let rest = x - estimate * u64::from(self.n);
        let more = rest >= u64::from(self.n);
        let excess = if more { u64::from(self.n) } else { 0 };
        (estimate + u64::from(more), (rest - excess) as u32)
    }

    /// Quotient of a 32-bit number with one multiplication: it is exact with 2^64 / n rounded up.
    #[inline]
    pub fn quotient(&self, x: u32) -> u32 {
        ((u128::from(x) * u128::from(self.reciprocal) + u128::from(x)) >> 64) as u32
    }

    /// Remainder.
    #[inline]
    pub fn rem(&self, x: u64) -> u32 {
        self.div_rem(x).1
    }
}

/// Member `i` is `(i * factor + offset) mod n`. The factor is near the golden section of n, so neighbours in order are
/// far apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Affine {
    n: Divisor,
    factor: u32,
    inverse: u32,
    offset: u32,
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The inverse of `a` modulo `n` (extended Euclid); both must be coprime.
fn invert(a: u32, n: u32) -> u32 {
    let (mut r, mut next_r) = (i64::from(n), i64::from(a));
    let (mut t, mut next_t) = (0i64, 1i64);
    while next_r != 0 {
        let q = r / next_r;
        (t, next_t) = (next_t, t - q * next_t);
        (r, next_r) = (next_r, r - q * next_r);
    }
    t.rem_euclid(i64::from(n)) as u32
}

impl Affine {
    /// A permutation of `0..n`, `n` at least 1, whose member 0 is `offset` modulo `n`.
    pub fn new(n: u32, offset: u64) -> Affine {
        let n = n.max(1);
        let golden = (f64::from(n) * 0.618_033_988_749_895) as u32;
        // n - 1 and 1 are coprime to n, so the search ends.
        let factor = (golden.max(1)..n).find(|f| gcd(*f, n) == 1).unwrap_or(1);
        Affine {
            n: Divisor::new(n),
            factor,
            inverse: if n == 1 { 0 } else { invert(factor, n) },
            offset: (offset % u64::from(n)) as u32,
        }
    }

    /// Member at position `i`, which must be below n.
    #[inline]
    pub fn at(&self, i: u32) -> u32 {
        self.n.rem(u64::from(i) * u64::from(self.factor) + u64::from(self.offset))
    }

    /// The next member after `member`.
    #[inline]
    pub fn after(&self, member: u32) -> u32 {
        // Neither the sum nor the difference overflows 32 bits: both are below n in the branch that computes them.
        let room = self.n.get() - self.factor;
        if member >= room { member - room } else { member + self.factor }
    }

    /// Position of `member`, which must be below n.
    #[inline]
    pub fn place(&self, member: u32) -> u32 {
        let distance = match member.checked_sub(self.offset) {
            Some(distance) => distance,
            None => member + (self.n.get() - self.offset),
        };
        self.n.rem(u64::from(distance) * u64::from(self.inverse))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn division_at_the_edges() {
        for n in [1, 2, 3, 5, 7, 641, 65_536, 65_537, 6_700_417, 1 << 31, u32::MAX - 1, u32::MAX] {
            let wide = u64::from(n);
            let most = u64::MAX / wide * wide;
            for x in [0, 1, wide - 1, wide, wide + 1, wide * wide - 1, most - 1, most, u64::MAX - 1, u64::MAX] {
                assert_eq!(Divisor::new(n).div_rem(x), (x / wide, (x % wide) as u32), "{x} / {n}");
                let x = (x % (1 << 32)) as u32;
                assert_eq!(Divisor::new(n).quotient(x), x / n, "{x} / {n}");
            }
        }
    }

    proptest! {
        #[test]
        fn divides_like_a_division(n in 1u32.., small in 1u32..10_000, x: u64, few in 0u32..64, delta in 0u64..3) {
            for n in [n, small] {
                let wide = u64::from(n);
                // An estimate would be wrong at multiples and next to them.
                let near = ((x >> few) / wide * wide).wrapping_add(delta).wrapping_sub(1);
                for x in [x, x >> few, near] {
                    prop_assert_eq!(Divisor::new(n).div_rem(x), (x / wide, (x % wide) as u32));
                    let x = x as u32;
                    for x in [x, x / n * n, (x / n * n).wrapping_sub(1)] {
                        prop_assert_eq!(Divisor::new(n).quotient(x), x / n);
                    }
                }
            }
        }

        #[test]
        fn the_same_as_by_division(n in 1u32.., i: u32, offset: u64) {
            let (p, wide) = (Affine::new(n, offset), u64::from(n));
            let i = u64::from(i) % wide;
            let member = (i * u64::from(p.factor) + u64::from(p.offset)) % wide;
            prop_assert_eq!(u64::from(p.at(i as u32)), member);
            let distance = (member + wide - u64::from(p.offset)) % wide;
            prop_assert_eq!(u64::from(p.place(member as u32)), distance * u64::from(p.inverse) % wide);
        }

        #[test]
        fn there_and_back(n in 1u32.., i: u32, offset: u64) {
            let p = Affine::new(n, offset);
            let i = i % n;
            prop_assert!(p.at(i) < n);
            prop_assert_eq!(p.place(p.at(i)), i);
            prop_assert_eq!(p.after(p.at(i)), p.at(((u64::from(i) + 1) % u64::from(n)) as u32));
        }
    }

    #[test]
    fn every_member_once() {
        for n in (1..60).chain([97, 1000, 4096]) {
            let mut all: Vec<u32> = (0..n).map(|i| Affine::new(n, 5).at(i)).collect();
            all.sort_unstable();
            assert_eq!(all, (0..n).collect::<Vec<_>>());
        }
    }
}
