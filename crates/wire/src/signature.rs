//! The test signature: 12 bytes at the end of the UDP payload of every test frame.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +---------------------------------------+-----------------------+
//! |              Flow (20)                |  Sequence, high (12)  |
//! +-------------------------------+-------+-----------------------+
//! |      Sequence, low (16)       |           Check (16)          |
//! +-------------------------------+-------------------------------+
//! |                 Departure time, ns (32)                       |
//! +---------------------------------------------------------------+
//! ```
//!
//! It fits into a 40-byte IP packet (IPv4 20 + UDP 8 + 12). Sequence (28 bits) and time (32 bits of nanoseconds, 4.29
//! s) wrap. The analyzer unwraps them ([`unwrap_sequence`], [`unwrap_time`]), so a run can last for hours at 100
//! Gbit/s. The check is keyed with the secret of the run and the number of the trial, so frames of other runs and
//! earlier trials do not count.

/// Length of a signature in bytes.
pub const LEN: usize = 12;
/// Number of distinct flows.
pub const MAX_FLOWS: u32 = 1 << 20;
const SEQUENCE_BITS: u32 = 28;
/// Number of distinct sequence numbers.
pub const SEQUENCES: u64 = 1 << SEQUENCE_BITS;

/// UDP destination port of test traffic (discard, RFC 863). A host that receives such traffic by accident discards it.
pub const TEST_PORT: u16 = 9;

/// Key of one trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrialKey(u64);

impl TrialKey {
    /// Derives the key from the secret of the run and the number of the trial.
    pub fn new(run: u64, trial: u64) -> TrialKey {
        TrialKey(mix(run ^ trial.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    /// Returns the key as a number, for a sender outside this program (frames generated in the kernel, other hosts).
    pub fn word(self) -> u64 {
        self.0
    }

    /// Returns the key with this number, from [`TrialKey::word`].
    pub fn of_word(word: u64) -> TrialKey {
        TrialKey(word)
    }
}

#[inline]
fn mix(mut x: u64) -> u64 {
    // Finaliser of SplitMix64: every input bit reaches every output bit.
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Fields of a signature, before unwrapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Flow number, below [`MAX_FLOWS`].
    pub flow: u32,
    /// Sequence number within the flow, modulo 2^28.
    pub sequence: u32,
    /// Departure time in nanoseconds, modulo 2^32.
    pub time: u32,
}

impl Signature {
    #[inline]
    fn check(&self, key: TrialKey) -> u16 {
        let identity = u64::from(self.flow) << SEQUENCE_BITS | u64::from(self.sequence);
        (mix(identity ^ key.0 ^ (u64::from(self.time) << 24).rotate_left(17)) >> 48) as u16
    }

    /// Returns the signature as 12 bytes, with the check for `key`.
    #[inline]
    pub fn emit(&self, key: TrialKey) -> [u8; LEN] {
        let head = u64::from(self.flow) << 44
            | u64::from(self.sequence & ((1 << SEQUENCE_BITS) - 1)) << 16
            | u64::from(self.check(key));
        let mut out = [0; LEN];
        out[..8].copy_from_slice(&head.to_be_bytes());
        out[8..].copy_from_slice(&self.time.to_be_bytes());
        out
    }

    /// Reads 12 bytes without verifying them: `(signature, check in the frame)`.
    #[inline]
    pub fn read(bytes: &[u8; LEN]) -> (Signature, u16) {
        let head = u64::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]]);
        let signature = Signature {
            flow: (head >> 44) as u32,
            sequence: (head >> 16) as u32 & ((1 << SEQUENCE_BITS) - 1),
            time: u32::from_be_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]),
        };
        (signature, head as u16)
    }

    /// True if `check` is the correct check of this signature for `key`.
    #[inline]
    pub fn belongs_to(&self, key: TrialKey, check: u16) -> bool {
        self.check(key) == check
    }
}

/// Returns the full sequence number nearest to `near` that ends in the 28 bits of `wrapped`.
#[inline]
pub fn unwrap_sequence(wrapped: u32, near: u64) -> u64 {
    let candidate = (near & !(SEQUENCES - 1)) | u64::from(wrapped);
    if candidate > near + SEQUENCES / 2 && candidate >= SEQUENCES {
        candidate - SEQUENCES
    } else if candidate + SEQUENCES / 2 < near {
        candidate + SEQUENCES
    } else {
        candidate
    }
}

/// Returns the full departure time at or before `arrival` that ends in the 32 bits of `wrapped`. It is correct for
/// every frame that is in flight for less than 4.29 s.
#[inline]
pub fn unwrap_time(wrapped: u32, arrival: u64) -> u64 {
    let age = (arrival as u32).wrapping_sub(wrapped);
    arrival.wrapping_sub(u64::from(age))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bytes_and_back(flow in 0..MAX_FLOWS, sequence in 0u32..1 << 28, time: u32, run: u64, trial: u64) {
            let key = TrialKey::new(run, trial);
            let signature = Signature { flow, sequence, time };
            let (read, check) = Signature::read(&signature.emit(key));
            prop_assert_eq!(read, signature);
            prop_assert!(read.belongs_to(key, check));
        }

        #[test]
        fn sequences_unwrap_across_any_distance_below_half(true_seq in 0u64..1 << 40, drift in -(1i64 << 27) + 1..1i64 << 27) {
            let near = true_seq.saturating_add_signed(drift);
            prop_assert_eq!(unwrap_sequence((true_seq & 0xfff_ffff) as u32, near), true_seq);
        }

        #[test]
        fn times_unwrap_for_four_seconds(sent in 0u64..1 << 50, latency in 0u64..4_290_000_000) {
            prop_assert_eq!(unwrap_time(sent as u32, sent + latency), sent);
        }
    }

    #[test]
    fn another_trial_does_not_pass() {
        // A false pass has a probability of 2^-16, so over 2^20 signatures the count stays near 16.
        let (mine, other) = (TrialKey::new(1, 1), TrialKey::new(1, 2));
        let false_passes = (0..1u32 << 20)
            .filter(|i| {
                let (s, check) = Signature::read(&Signature { flow: i & 7, sequence: *i, time: i * 977 }.emit(other));
                s.belongs_to(mine, check)
            })
            .count();
        assert!((1..60).contains(&false_passes), "{false_passes} false passes");
    }

    #[test]
    fn every_single_bit_flip_is_seen() {
        let key = TrialKey::new(3, 4);
        let bytes = Signature { flow: 5, sequence: 123_456, time: 987_654_321 }.emit(key);
        let unseen = (0..96)
            .filter(|bit| {
                let mut flipped = bytes;
                flipped[bit / 8] ^= 1 << (bit % 8);
                let (s, check) = Signature::read(&flipped);
                s.belongs_to(key, check)
            })
            .count();
        assert_eq!(unseen, 0);
    }
}
