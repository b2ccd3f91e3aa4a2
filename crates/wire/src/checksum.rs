//! The Internet checksum (RFC 1071), in a form that lets constant parts be summed once.

/// Ones' complement sum of `data` taken as big-endian 16-bit words, an odd last byte padded with zero. Not folded: add
/// sums of several parts, then [`fold`]. Parts before the last must have even length.
#[inline]
pub fn sum(data: &[u8]) -> u64 {
    // Native-endian 32-bit words in a 64-bit accumulator vectorise well; the sum is byte-order independent up to one
    // swap at the end (RFC 1071 section 2 B).
    let mut acc = 0u64;
    let mut chunks = data.chunks_exact(4);
    for c in &mut chunks {
        acc += u64::from(u32::from_ne_bytes([c[0], c[1], c[2], c[3]]));
    }
    let rest = chunks.remainder();
    let mut tail = [0u8; 4];
    tail[..rest.len()].copy_from_slice(rest);
    acc += u64::from(u32::from_ne_bytes(tail));
    u64::from(u16::from_be(fold_native(acc)))
}

#[inline]
fn fold_native(mut acc: u64) -> u16 {
    acc = (acc & 0xffff_ffff) + (acc >> 32);
    acc = (acc & 0xffff_ffff) + (acc >> 32);
    acc = (acc & 0xffff) + (acc >> 16);
    acc = (acc & 0xffff) + (acc >> 16);
    acc = (acc & 0xffff) + (acc >> 16);
    acc as u16
}

/// Folds a sum of 16-bit words to 16 bits, carries added back.
#[inline]
pub fn fold(acc: u64) -> u16 {
    fold_native(acc)
}

/// The checksum field for a sum: its folded complement.
#[inline]
pub fn finish(acc: u64) -> u16 {
    !fold(acc)
}

/// Sum of a part that starts at an odd offset: its bytes are swapped (RFC 1071 section 2 B).
#[inline]
pub fn swap(acc: u64) -> u64 {
    u64::from(fold(acc).swap_bytes())
}

/// Updates a checksum field when one 16-bit word changes (RFC 1624 equation 3).
#[inline]
pub fn update(field: u16, old: u16, new: u16) -> u16 {
    finish(u64::from(!field) + u64::from(!old) + u64::from(new))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn naive(data: &[u8]) -> u16 {
        let mut acc = 0u32;
        for c in data.chunks(2) {
            acc += u32::from(u16::from_be_bytes([c[0], *c.get(1).unwrap_or(&0)]));
            acc = (acc & 0xffff) + (acc >> 16);
        }
        acc as u16
    }

    #[test]
    fn example_of_rfc_1071() {
        assert_eq!(fold(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7])), 0xddf2);
    }

    proptest! {
        #[test]
        fn equals_the_naive_sum(data in proptest::collection::vec(any::<u8>(), 0..200)) {
            // Ones' complement has two zeros; both finish to a valid checksum.
            let (a, b) = (fold(sum(&data)), naive(&data));
            prop_assert!(a == b || (a % 0xffff == 0 && b % 0xffff == 0));
        }

        #[test]
        fn update_equals_recomputing(mut data in proptest::collection::vec(any::<u8>(), 20), new: u16) {
            let before = finish(sum(&data));
            let old = u16::from_be_bytes([data[8], data[9]]);
            data[8..10].copy_from_slice(&new.to_be_bytes());
            let (a, b) = (update(before, old, new), finish(sum(&data)));
            prop_assert!(a == b || (a % 0xffff == 0 && b % 0xffff == 0));
        }

        #[test]
        fn odd_offsets_swap(a in proptest::collection::vec(any::<u8>(), 1..40), b in proptest::collection::vec(any::<u8>(), 0..40)) {
            let whole: Vec<u8> = a.iter().chain(&b).copied().collect();
            let second = if a.len() % 2 == 1 { swap(sum(&b)) } else { sum(&b) };
            let parts = fold(sum(&a) + second);
            prop_assert_eq!(parts % 0xffff, fold(sum(&whole)) % 0xffff);
        }
    }
}
