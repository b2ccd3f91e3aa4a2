//! The Internet checksum (RFC 1071), computed in parts, so that constant parts are summed only once.

/// Returns the ones' complement sum of `data` as big-endian 16-bit words; an odd last byte is padded with zero. The sum
/// is not folded: add the sums of several parts, then call [`fold`]. All parts except the last must have even length.
#[inline]
pub fn sum(data: &[u8]) -> u64 {
    u64::from(fold(sum_le(data)).swap_bytes())
}

/// Returns the sum over little-endian words. Folded, it equals the folded [`sum`] with its two bytes swapped (RFC 1071
/// section 2 B). It is cheaper, and sufficient to verify a checksum, because 0xffff does not change when swapped.
#[inline]
pub fn sum_le(data: &[u8]) -> u64 {
    // Adds halves of 64-bit words in a 64-bit accumulator, with room for the carries of 2^32 words. Steps of a fixed
    // length need no preparation, which for a short frame would cost as much as the sum.
    let (blocks, rest) = data.as_chunks::<32>();
    let mut lanes = [0u64; 4];
    for block in blocks {
        for (lane, word) in lanes.iter_mut().zip(block.as_chunks::<8>().0) {
            *lane += halves(u64::from_le_bytes(*word));
        }
    }
    let mut acc = lanes.iter().sum();
    let (words, rest) = rest.as_chunks::<8>();
    for word in words {
        acc += halves(u64::from_le_bytes(*word));
    }
    if rest.is_empty() {
        return acc;
    }
    // The remaining bytes: the last eight bytes of the data, with the bytes that are already summed shifted out.
    let tail = match data.last_chunk::<8>() {
        Some(last) => u64::from_le_bytes(*last) >> (64 - 8 * rest.len()),
        None => rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    };
    acc + halves(tail)
}

/// Returns [`sum_le`] of eight bytes read as a little-endian word.
#[inline]
pub fn halves(word: u64) -> u64 {
    (word & 0xffff_ffff) + (word >> 32)
}

/// Folds a sum of 16-bit words to 16 bits and adds the carries back.
#[inline]
pub fn fold(acc: u64) -> u16 {
    // End-around carry: adding the carry back cannot overflow again.
    let (sum, carry) = (acc as u32).overflowing_add((acc >> 32) as u32);
    let sum = sum + u32::from(carry);
    let (sum, carry) = (sum as u16).overflowing_add((sum >> 16) as u16);
    sum + u16::from(carry)
}

/// Returns the checksum field for a sum: its folded complement.
#[inline]
pub fn finish(acc: u64) -> u16 {
    !fold(acc)
}

/// Returns the sum of a part that starts at an odd offset, where bytes are swapped (RFC 1071 section 2 B).
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
            // Ones' complement has two zeros. Both lead to a valid checksum.
            let (a, b) = (fold(sum(&data)), naive(&data));
            prop_assert!(a == b || (a % 0xffff == 0 && b % 0xffff == 0));
        }

        #[test]
        fn little_endian_words_give_the_same_sum_swapped(data in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(fold(sum_le(&data)).swap_bytes(), fold(sum(&data)));
        }

        #[test]
        fn folding_is_the_remainder(acc: u64) {
            // Only zeros have the sum zero.
            let folded = fold(acc);
            prop_assert_eq!(u64::from(folded) % 0xffff, acc % 0xffff);
            prop_assert_eq!(folded == 0, acc == 0);
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
