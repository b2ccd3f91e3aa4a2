//! The plain test frame (Ethernet, IP, UDP) for kernel programs: offsets and values from [`drophammer_wire::stack`].

use drophammer_model::size::FrameSize;
use drophammer_model::traffic::{Ethernet, FieldName, Header, Ipv4, Ipv6, Udp};
use drophammer_wire::stack::{Compiled, Payload, Place, compile, fit};
use drophammer_wire::{MacAddr, signature};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Index of a header in the stack.
pub const ETHERNET: usize = 0;
pub const IP: usize = 1;
pub const UDP: usize = 2;

/// A plain test frame of the minimum size.
pub struct Plain(Compiled);

impl Plain {
    /// Creates the frame with IPv6 if `ipv6`, otherwise with IPv4.
    pub fn new(ipv6: bool) -> Plain {
        // Automatic fields need addresses; no program reads their values.
        let mac = || Some(MacAddr([0; 6]).into());
        let ip = match ipv6 {
            true => Header::Ipv6(Ipv6 {
                source: Some(Ipv6Addr::UNSPECIFIED.into()),
                destination: Some(Ipv6Addr::UNSPECIFIED.into()),
                ..Ipv6::default()
            }),
            false => Header::Ipv4(Ipv4 {
                source: Some(Ipv4Addr::UNSPECIFIED.into()),
                destination: Some(Ipv4Addr::UNSPECIFIED.into()),
                ..Ipv4::default()
            }),
        };
        let ethernet = Ethernet { destination: mac(), source: mac(), ethertype: None };
        let udp = Udp { destination_port: signature::TEST_PORT.into(), ..Udp::default() };
        let headers = [Header::Ethernet(ethernet), ip, Header::Udp(udp)];
        let payload = Payload::Signed(&|_| ());
        let frame = fit(&headers, FrameSize::Frame(0), payload).and_then(|size| compile(&headers, size, payload));
        Plain(frame.expect("Ethernet, IP and UDP make a frame"))
    }

    fn place(&self, header: usize, field: FieldName) -> &Place {
        self.0.place(header, field).expect("the header has the field")
    }

    /// Returns the offset of a field's first byte from the start of the frame.
    pub fn at(&self, header: usize, field: FieldName) -> i16 {
        self.place(header, field).byte() as i16
    }

    /// Returns the value of a field, which has at most 16 bits.
    pub fn value(&self, header: usize, field: FieldName) -> u16 {
        self.place(header, field).read(&self.0.bytes).map_or(0, |value| value as u16)
    }

    /// Returns the byte that contains the first bit of a field.
    pub fn byte(&self, header: usize, field: FieldName) -> u8 {
        self.0.bytes[self.place(header, field).byte()]
    }

    /// Returns a mask of the bits from the start of a field to the end of the 16-bit word that starts at its byte.
    pub fn mask(&self, header: usize, field: FieldName) -> u16 {
        u16::MAX >> self.place(header, field).bit_in_byte()
    }

    /// Returns the length of all headers in bytes.
    pub fn headers(&self) -> usize {
        self.0.payload_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_values_are_those_of_the_standards() {
        let (four, six) = (Plain::new(false), Plain::new(true));
        assert_eq!((four.headers(), six.headers()), (14 + 20 + 8, 14 + 40 + 8));
        for (plain, expected) in [(&four, [12, 26, 30, 36, 40]), (&six, [12, 22, 38, 56, 60])] {
            let fields = [
                (ETHERNET, FieldName::Ethertype),
                (IP, FieldName::Source),
                (IP, FieldName::Destination),
                (UDP, FieldName::DestinationPort),
                (UDP, FieldName::Checksum),
            ];
            assert_eq!(fields.map(|(header, field)| plain.at(header, field)), expected);
            assert_eq!(plain.value(UDP, FieldName::DestinationPort), signature::TEST_PORT);
        }
        assert_eq!([&four, &six].map(|p| p.value(ETHERNET, FieldName::Ethertype)), [0x0800, 0x86dd]);
        assert_eq!((four.at(IP, FieldName::Protocol), four.value(IP, FieldName::Protocol)), (14 + 9, 17));
        assert_eq!((six.at(IP, FieldName::NextHeader), six.value(IP, FieldName::NextHeader)), (14 + 6, 17));
        assert_eq!((four.byte(IP, FieldName::Version), four.at(IP, FieldName::Version)), (0x45, 14));
        assert_eq!((four.at(IP, FieldName::MoreFragments), four.mask(IP, FieldName::MoreFragments)), (14 + 6, 0x3fff));
    }
}
