//! Converts IP packets to Ethernet frames and back, between a [`super::TcpStack`] and a port.

use crate::compose::Link;
use drophammer_wire::MacAddr;
use drophammer_wire::ethernet::{self, ethertype};

/// Bytes of the frame (without FCS) that carries `packet`; short frames are padded.
#[inline]
pub fn frame_len(packet: &[u8]) -> usize {
    (ethernet::LEN + packet.len()).max(ethernet::MIN_WITHOUT_FCS)
}

/// Writes the frame that carries `packet` into `frame`, which must have [`frame_len`] bytes. It can be a slot of a
/// port. The destination is the MAC address of the next hop, for example [`crate::device::Device::gateway_mac`].
///
/// # Panics
/// If `frame` is shorter.
#[inline]
pub fn write_frame(frame: &mut [u8], link: Link, packet: &[u8]) {
    let ethertype = if packet.first().is_some_and(|b| b >> 4 == 6) { ethertype::IPV6 } else { ethertype::IPV4 };
    ethernet::Repr { destination: link.destination, source: link.source, ethertype }.emit(frame);
    let end = ethernet::LEN + packet.len();
    frame[ethernet::LEN..end].copy_from_slice(packet);
    frame[end..].fill(0);
}

/// The IP packet, followed by padding, in a frame to `mac`; `None` for frames with another address or type.
#[inline]
pub fn packet(frame: &[u8], mac: MacAddr) -> Option<&[u8]> {
    let (header, packet) = ethernet::Repr::parse(frame).ok()?;
    let ip = matches!(header.ethertype, ethertype::IPV4 | ethertype::IPV6);
    (ip && header.destination == mac).then_some(packet)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back_with_padding() {
        let link = Link { source: MacAddr::local(1), destination: MacAddr::local(2) };
        for (version, expected, len) in [(0x45, ethertype::IPV4, 40), (0x60, ethertype::IPV6, 100)] {
            let mut sent = vec![7; len];
            sent[0] = version;
            let mut frame = vec![0xee; frame_len(&sent)];
            write_frame(&mut frame, link, &sent);
            assert_eq!(frame.len(), (len + 14).max(60));
            assert_eq!(ethernet::Repr::parse(&frame).unwrap().0.ethertype, expected);
            let received = packet(&frame, MacAddr::local(2)).unwrap();
            assert_eq!(&received[..len], &sent[..]);
            assert!(received[len..].iter().all(|b| *b == 0));
            assert_eq!(packet(&frame, MacAddr::local(1)), None);
        }
        assert_eq!(packet(&[0; 13], MacAddr::default()), None);
        assert_eq!(packet(&[0; 60], MacAddr::default()), None, "no EtherType of IP");
    }
}
