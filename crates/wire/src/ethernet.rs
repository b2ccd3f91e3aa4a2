//! Ethernet II (IEEE 802.3).
//!
//! ```text
//! +-----------------------+-----------------------+-----------+
//! | destination (6)       | source (6)            | type (2)  |
//! +-----------------------+-----------------------+-----------+
//! ```

use crate::{MacAddr, Malformed};

/// Header length in bytes.
pub const LEN: usize = 14;
/// Smallest frame without its FCS.
pub const MIN_WITHOUT_FCS: usize = 60;

/// EtherType values.
pub mod ethertype {
    /// IPv4.
    pub const IPV4: u16 = 0x0800;
    /// ARP.
    pub const ARP: u16 = 0x0806;
    /// 802.1Q VLAN tag.
    pub const VLAN: u16 = 0x8100;
    /// IPv6.
    pub const IPV6: u16 = 0x86dd;
    /// 802.1ad service tag.
    pub const SERVICE_VLAN: u16 = 0x88a8;
    /// TPID of a second tag before 802.1ad.
    pub const OLD_SERVICE_VLAN: u16 = 0x9100;
    /// MPLS unicast.
    pub const MPLS: u16 = 0x8847;
    /// LLDP.
    pub const LLDP: u16 = 0x88cc;
}

/// The header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Destination.
    pub destination: MacAddr,
    /// Source.
    pub source: MacAddr,
    /// EtherType.
    pub ethertype: u16,
}

#[inline]
fn mac_at(bytes: &[u8], at: usize) -> MacAddr {
    let mut mac = [0; 6];
    mac.copy_from_slice(&bytes[at..at + 6]);
    MacAddr(mac)
}

impl Repr {
    /// Reads the header off the front of a frame: `(header, payload)`.
    ///
    /// # Errors
    /// Fewer than 14 bytes.
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

    /// Writes the header to the front of `frame`, at least 14 bytes.
    pub fn emit(&self, frame: &mut [u8]) {
        frame[0..6].copy_from_slice(&self.destination.0);
        frame[6..12].copy_from_slice(&self.source.0);
        frame[12..14].copy_from_slice(&self.ethertype.to_be_bytes());
    }
}
