//! Captured frames as templates of test frames.

use drophammer_model::size::FrameSize;
use drophammer_model::traffic::{Field, Header, HeaderKind, Octets};
use drophammer_wire::pcap::{self, PcapError};
use drophammer_wire::stack::decode;
use std::collections::HashMap;

/// Headers and size of a kind of test frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// Headers after the Ethernet header, without the addresses of the outermost IP header. Test frames use the
    /// addresses of the sending and receiving hosts.
    pub headers: Vec<Header>,
    /// Size with FCS. Test frames are larger if a frame of this size has no room for a signature.
    pub size: FrameSize,
    /// Number of captured frames with this template.
    pub frames: u32,
}

/// Templates from a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Templates {
    /// The templates, ordered by the first frame of each.
    pub list: Vec<Template>,
    /// Reasons why frames were left out, each with the number of frames.
    pub left_out: Vec<(&'static str, u32)>,
}

/// Extracts templates from the frames of a capture (pcap or pcapng) that contain UDP, TCP or ICMP echo over this IP
/// version, at most `most`. Frames share a template if they differ only in addresses, payload and fields that change
/// from packet to packet (identification, checksums, sequence numbers).
///
/// # Errors
/// [`PcapError`].
pub fn templates(file: &[u8], ipv6: bool, most: usize) -> Result<Templates, PcapError> {
    let mut found = Templates::default();
    let mut known: HashMap<(Vec<Header>, FrameSize), usize> = HashMap::new();
    let mut tags: Option<Vec<Header>> = None;
    for frame in pcap::frames(file)? {
        let made = pcap::ethernet(&frame).and_then(|(bytes, length)| template(&bytes, length, ipv6));
        match made {
            Ok((headers, size)) => {
                let own: Vec<Header> = headers.iter().filter(|h| h.kind() == HeaderKind::Vlan).cloned().collect();
                if *tags.get_or_insert_with(|| own.clone()) != own {
                    found.leave_out("VLAN tags other than in the first frame");
                    continue;
                }
                let next = found.list.len();
                match known.get(&(headers.clone(), size)) {
                    Some(at) => found.list[*at].frames += 1,
                    None if next == most => found.leave_out("more kinds of frames than there can be flows"),
                    None => {
                        known.insert((headers.clone(), size), next);
                        found.list.push(Template { headers, size, frames: 1 });
                    }
                }
            }
            Err(why) => found.leave_out(why),
        }
    }
    Ok(found)
}

impl Templates {
    fn leave_out(&mut self, why: &'static str) {
        match self.left_out.iter_mut().find(|(known, _)| *known == why) {
            Some((_, frames)) => *frames += 1,
            None => self.left_out.push((why, 1)),
        }
    }
}

/// Returns headers and size of a frame of `length` bytes without FCS. The capture contains its first `bytes`.
fn template(bytes: &[u8], length: usize, ipv6: bool) -> Result<(Vec<Header>, FrameSize), &'static str> {
    // A capture may contain only the headers; zeros replace the missing payload.
    let mut whole = bytes.to_vec();
    if length > usize::from(u16::MAX) - 4 {
        return Err("longer than 65,535 bytes");
    }
    whole.resize(length, 0);
    let decoded = decode(&whole);
    let ip = if ipv6 { HeaderKind::Ipv6 } else { HeaderKind::Ipv4 };
    let outermost = decoded.headers.iter().position(|h| matches!(h.kind(), HeaderKind::Ipv4 | HeaderKind::Ipv6));
    let Some(outermost) = outermost else { return Err("no IP packet") };
    if decoded.headers[outermost].kind() != ip {
        return Err(if ipv6 { "IPv4, not IPv6" } else { "IPv6, not IPv4" });
    }
    let mut headers: Vec<Header> = decoded.headers.into_iter().skip(1).collect();
    while headers.last().is_some_and(|h| h.kind() == HeaderKind::Raw) {
        headers.pop();
    }
    let transport = headers.last().map(Header::kind);
    if !matches!(transport, Some(HeaderKind::Udp | HeaderKind::Tcp | HeaderKind::IcmpEcho)) {
        return Err("neither UDP nor TCP nor ICMP echo, or a fragment");
    }
    for (index, header) in headers.iter_mut().enumerate() {
        same_in_each(header, index + 1 == outermost)?;
    }
    Ok((headers, FrameSize::Frame((length + 4) as u16)))
}

/// Removes from a header the fields that change from packet to packet, and the addresses of the outermost IP header.
///
/// # Errors
/// The reason why no router forwards such a packet.
fn same_in_each(header: &mut Header, outermost: bool) -> Result<(), &'static str> {
    const DYING: &str = "TTL or hop limit below 2, which no router forwards";
    match header {
        Header::Ipv4(ip) => {
            (ip.total_length, ip.header_checksum, ip.identification) = (None, None, Field::default());
            if outermost {
                (ip.source, ip.destination) = (None, None);
                if [0, 1].map(Field::from).contains(&ip.ttl) {
                    return Err(DYING);
                }
            }
        }
        Header::Ipv6(ip) => {
            ip.payload_length = None;
            if outermost {
                (ip.source, ip.destination) = (None, None);
                if [0, 1].map(Field::from).contains(&ip.hop_limit) {
                    return Err(DYING);
                }
            }
        }
        Header::Udp(udp) => (udp.length, udp.checksum) = (None, None),
        Header::Tcp(tcp) => {
            (tcp.sequence_number, tcp.acknowledgment_number) = (Field::default(), Field::default());
            (tcp.data_offset, tcp.checksum) = (None, None);
            // Options contain timestamps.
            tcp.options = Octets::default();
        }
        Header::IcmpEcho(echo) => {
            (echo.checksum, echo.identifier, echo.sequence_number) = (None, Field::default(), Field::default());
        }
        Header::Gre(gre) => {
            gre.checksum = None;
            gre.sequence_number = gre.sequence_number.as_ref().map(|_| Field::default());
        }
        Header::Ethernet(_) | Header::Vlan(_) | Header::Mpls(_) | Header::Vxlan(_) | Header::Raw(_) => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::traffic::{Bits, Ethernet, Ipv4, Ipv6, Mpls, Tcp, Udp, Vlan};
    use drophammer_wire::MacAddr;
    use drophammer_wire::stack::{Payload, compile};
    use proptest::prelude::*;

    /// Builds a frame with these headers after the Ethernet header.
    fn frame(headers: &[Header], size: u16) -> Vec<u8> {
        let mac = Some(MacAddr::local(1).into());
        let ethernet = Header::Ethernet(Ethernet { source: mac.clone(), destination: mac, ..Ethernet::default() });
        let all: Vec<Header> = [&[ethernet], headers].concat();
        compile(&all, FrameSize::Frame(size), Payload::Plain(&|bytes| bytes.fill(0x5a))).unwrap().bytes
    }

    fn ipv4(host: u8) -> Ipv4 {
        let address = |last| Some(std::net::Ipv4Addr::new(192, 0, 2, last).into());
        Ipv4 {
            source: address(host),
            destination: address(1),
            identification: u16::from(host).into(),
            ..Ipv4::default()
        }
    }

    fn udp(port: u16) -> Header {
        Header::Udp(Udp { destination_port: port.into(), ..Udp::default() })
    }

    /// Builds a capture file with at most `snap` bytes of each frame.
    fn capture(frames: &[Vec<u8>], snap: usize) -> Vec<u8> {
        let word = |value: u32| value.to_le_bytes();
        let mut bytes: Vec<u8> = [0xa1b2_c3d4, 0, 0, 0, 65_535, 1].into_iter().flat_map(word).collect();
        for frame in frames {
            let kept = frame.len().min(snap);
            bytes.extend([0, 0, kept as u32, frame.len() as u32].into_iter().flat_map(word));
            bytes.extend_from_slice(&frame[..kept]);
        }
        bytes
    }

    #[test]
    fn frames_that_differ_in_what_changes_share_a_template() {
        let tag = || Header::Vlan(Vlan { vid: Bits::new(10).into(), ..Vlan::default() });
        let label = || Header::Mpls(Mpls { label: Bits::new(100).into(), ..Mpls::default() });
        let dscp = |host| Header::Ipv4(Ipv4 { dscp: Bits::new(46).into(), ..ipv4(host) });
        let tcp = |sequence: u32| {
            let options = Octets(sequence.to_be_bytes().repeat(3));
            Header::Tcp(Tcp { sequence_number: sequence.into(), options, ..Tcp::default() })
        };
        let frames = [
            frame(&[tag(), label(), dscp(2), udp(5_060)], 200),
            frame(&[tag(), label(), dscp(3), udp(5_060)], 200),
            frame(&[tag(), label(), dscp(3), udp(5_060)], 300),
            frame(&[tag(), Header::Ipv4(ipv4(2)), tcp(1)], 100),
            frame(&[tag(), Header::Ipv4(ipv4(9)), tcp(77)], 100),
            frame(&[Header::Ipv4(ipv4(2)), udp(9)], 100),
        ];
        for snap in [65_535, 96] {
            let found = templates(&capture(&frames, snap), false, 10).unwrap();
            let seen: Vec<_> = found.list.iter().map(|t| (t.headers.len(), t.size, t.frames)).collect();
            let size = FrameSize::Frame;
            assert_eq!(seen, [(4, size(200), 2), (4, size(300), 1), (3, size(100), 2)], "{snap}");
            assert_eq!(found.left_out, [("VLAN tags other than in the first frame", 1)]);
            let Header::Ipv4(ip) = &found.list[0].headers[2] else { panic!("{:?}", found.list[0]) };
            assert_eq!(
                (ip.dscp.clone(), ip.source.clone(), ip.destination.clone()),
                (Bits::new(46).into(), None, None)
            );
            assert_eq!(found.list[0].headers[3], udp(5_060));
        }
        let few = templates(&capture(&frames, 65_535), false, 1).unwrap();
        assert_eq!(few.left_out[0], ("more kinds of frames than there can be flows", 3));
    }

    #[test]
    fn what_no_template_can_be_made_of_is_counted() {
        let address = Some(std::net::Ipv6Addr::LOCALHOST.into());
        let v6 = Ipv6 { source: address.clone(), destination: address, ..Ipv6::default() };
        let frames = [
            vec![0xff; 60],
            frame(&[Header::Ipv6(v6), udp(9)], 100),
            frame(&[Header::Ipv4(Ipv4 { ttl: 1.into(), ..ipv4(2) }), udp(9)], 100),
            frame(&[Header::Ipv4(Ipv4 { fragment_offset: Bits::new(8).into(), ..ipv4(2) }), udp(9)], 100),
            frame(&[Header::Ipv4(ipv4(2)), udp(9)], 64),
        ];
        let found = templates(&capture(&frames, 65_535), false, 10).unwrap();
        assert_eq!(found.list.len(), 1);
        let why: Vec<_> =
            found.left_out.iter().map(|(why, frames)| (why.split(',').next().unwrap(), *frames)).collect();
        assert_eq!(
            why,
            [
                ("no IP packet", 1),
                ("IPv6", 1),
                ("TTL or hop limit below 2", 1),
                ("neither UDP nor TCP nor ICMP echo", 1)
            ]
        );
        assert_eq!(templates(&capture(&frames, 65_535), true, 10).unwrap().list.len(), 1);
    }

    proptest! {
        #[test]
        fn any_frames_are_templates_or_left_out(frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..5), ipv6 in any::<bool>()) {
            let found = templates(&capture(&frames, 100), ipv6, 3).unwrap();
            let left_out: u32 = found.left_out.iter().map(|(_, frames)| frames).sum();
            let used: u32 = found.list.iter().map(|template| template.frames).sum();
            prop_assert_eq!((left_out + used) as usize, frames.len());
        }
    }
}
