//! A permutation of `0..n` and its inverse, both by one multiplication.

/// Member `i` is `(i * factor + offset) mod n`. Neighbours in order are far apart: the factor is near the golden section of n.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Affine {
    n: u32,
    factor: u32,
    inverse: u32,
    offset: u32,
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// `a` to the power of -1 modulo `n`, to which it is coprime (extended Euclid).
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
            n,
            factor,
            inverse: if n == 1 { 0 } else { invert(factor, n) },
            offset: (offset % u64::from(n)) as u32,
        }
    }

    /// Member at place `i`, which is below n.
    #[inline]
    pub fn at(&self, i: u32) -> u32 {
        ((u64::from(i) * u64::from(self.factor) + u64::from(self.offset)) % u64::from(self.n)) as u32
    }

    /// The member that follows `member` in order.
    #[inline]
    pub fn after(&self, member: u32) -> u32 {
        // Neither sum nor difference leaves 32 bits: both are below n where it counts.
        let room = self.n - self.factor;
        if member >= room { member - room } else { member + self.factor }
    }

    /// Place of `member`, which is below n.
    #[inline]
    pub fn place(&self, member: u32) -> u32 {
        let distance = u64::from(member) + u64::from(self.n - self.offset);
        ((distance % u64::from(self.n)) * u64::from(self.inverse) % u64::from(self.n)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
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
