//! Overhead of a line in addition to frames (layer 1).

use crate::quantity::{Bandwidth, FrameRate};
use serde::{Deserialize, Serialize};

/// The kind of a line. The speed of a line is its gross bit rate: 2,488,320,000 bit/s for OC-48.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Medium {
    /// Ethernet: preamble (8) and inter-frame gap (12) around each frame (RFC 2544 Appendix B).
    #[default]
    Ethernet,
    /// PPP in HDLC-like framing (RFC 1662) over SONET or SDH (RFC 2615), as in core routers of 2001. Consecutive frames
    /// share a flag (1). Ignores escaped bytes, which lengthen random payload by 1/128.
    PppOverSonet {
        /// True if the FCS has 32 bits, as RFC 2615 recommends; false for 16.
        fcs32: bool,
    },
}

impl Medium {
    /// Bytes of a frame around its packet. Ethernet: addresses and EtherType (14), FCS (4). PPP: address, control and
    /// protocol (4), FCS (2 or 4).
    pub const fn encapsulation(self) -> u32 {
        match self {
            Medium::Ethernet => 18,
            Medium::PppOverSonet { fcs32: true } => 8,
            Medium::PppOverSonet { fcs32: false } => 6,
        }
    }

    /// Bytes on the line for each frame in addition to its size, which includes the FCS.
    pub const fn overhead(self) -> u32 {
        match self {
            Medium::Ethernet => 20,
            Medium::PppOverSonet { .. } => 1,
        }
    }

    /// Bytes on the line, overhead included, for an IP packet of `packet_bytes` whose Ethernet frame has `frame_bytes`
    /// with FCS. Ethernet pads short packets; PPP does not.
    pub fn line_bytes(self, packet_bytes: f64, frame_bytes: f64) -> f64 {
        match self {
            Medium::Ethernet => frame_bytes + f64::from(self.overhead()),
            Medium::PppOverSonet { .. } => packet_bytes + f64::from(self.encapsulation() + self.overhead()),
        }
    }

    /// Bit rate available for frames and their overhead on a line of this gross speed. SONET: 260 of 270 columns
    /// (STS-3c and its multiples: 149.76 of 155.52 Mbit/s, RFC 2615 section 1).
    pub fn payload_rate(self, speed: Bandwidth) -> f64 {
        match self {
            Medium::Ethernet => speed.0 as f64,
            Medium::PppOverSonet { .. } => speed.0 as f64 * 260.0 / 270.0,
        }
    }

    /// The highest rate of frames of `frame_bytes` (FCS included) on a line of this gross speed.
    pub fn line_rate(self, speed: Bandwidth, frame_bytes: f64) -> FrameRate {
        FrameRate(self.payload_rate(speed) / (8.0 * (frame_bytes + f64::from(self.overhead()))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OC3: Bandwidth = Bandwidth(155_520_000);
    const OC48: Bandwidth = Bandwidth(2_488_320_000);

    #[test]
    fn ethernet_is_that_of_rfc_2544() {
        for (frame, rate) in [(64.0, 148_809.0), (128.0, 84_459.0), (512.0, 23_496.0), (1518.0, 8_127.0)] {
            assert_eq!(Medium::Ethernet.line_rate(Bandwidth(100_000_000), frame).pps().trunc(), rate);
        }
    }

    #[test]
    fn sonet_leaves_out_its_own_columns() {
        let pos = Medium::PppOverSonet { fcs32: true };
        assert_eq!(pos.payload_rate(OC3).round(), 149_760_000.0);
        assert_eq!(pos.payload_rate(OC48).round(), 2_396_160_000.0);
    }

    #[test]
    fn a_packet_over_sonet_takes_nine_bytes_more() {
        let pos = Medium::PppOverSonet { fcs32: true };
        let rate = pos.line_rate(OC48, f64::from(40 + pos.encapsulation())).pps();
        // 2,396.16 Mbit/s in packets of 40 + 9 bytes.
        assert_eq!(rate.trunc(), 6_112_653.0);
        let short = Medium::PppOverSonet { fcs32: false };
        assert!(short.line_rate(OC48, f64::from(40 + short.encapsulation())).pps() > rate);
        assert_eq!(Medium::Ethernet.encapsulation(), u32::from(crate::size::ETHERNET_OVERHEAD));
    }

    #[test]
    fn a_short_packet_is_padded_by_ethernet_alone() {
        assert_eq!(Medium::Ethernet.line_bytes(40.0, 64.0), 84.0);
        assert_eq!(Medium::PppOverSonet { fcs32: true }.line_bytes(40.0, 64.0), 49.0);
        assert_eq!(Medium::PppOverSonet { fcs32: false }.line_bytes(1500.0, 1518.0), 1507.0);
    }

    #[test]
    fn names() {
        assert_eq!(serde_json::to_string(&Medium::default()).unwrap(), r#""ethernet""#);
        let pos: Medium = serde_json::from_str(r#"{"ppp_over_sonet": {"fcs32": true}}"#).unwrap();
        assert_eq!(pos, Medium::PppOverSonet { fcs32: true });
    }
}
