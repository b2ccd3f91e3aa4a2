//! Ethernet II (IEEE 802.3).
//!
//! ```text
//! +-----------------------+-----------------------+-----------+
//! | destination (6)       | source (6)            | type (2)  |
//! +-----------------------+-----------------------+-----------+
//! ```

use crate::{MacAddr, Malformed, mac_at};

/// Header length in bytes.
pub const LEN: usize = 14;
/// Length of the shortest frame without FCS.
pub const MIN_WITHOUT_FCS: usize = 60;

pub use crate::numbers::ethertype;

/// An Ethernet header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Destination address.
    pub destination: MacAddr,
    /// Source address.
    pub source: MacAddr,
    /// EtherType.
    pub ethertype: u16,
}

impl Repr {
    /// Parses the header at the front of a frame: `(header, payload)`.
    ///
    /// # Errors
    /// The frame has fewer than 14 bytes.
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<(Repr, &[u8]), Malformed> {
        if frame.len() < LEN {
            return Err(Malformed::new("ethernet", "fewer than 14 bytes"));
        }
        let repr = Repr {
            destination: mac_at(frame, 0),
            source: mac_at(frame, 6),
            ethertype: u16::from_be_bytes([frame[12], frame[13]]),
        };
        Ok((repr, &frame[LEN..]))
    }

    /// Writes the header to the front of `frame`, which has at least 14 bytes.
    pub fn emit(&self, frame: &mut [u8]) {
        frame[0..6].copy_from_slice(&self.destination.0);
        frame[6..12].copy_from_slice(&self.source.0);
        frame[12..14].copy_from_slice(&self.ethertype.to_be_bytes());
    }
}
