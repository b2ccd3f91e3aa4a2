//! Stacks of headers of any kind and value: the properties of the fuzz target of the same name hold for random inputs,
//! and etherparse parses the same headers.

#[path = "../../../../fuzz/src/input.rs"]
#[allow(dead_code, reason = "other fuzz targets use all of it")]
mod input;
#[path = "../../../../fuzz/src/stack.rs"]
mod stack;

use drophammer_model::traffic::{FieldName, Header, HeaderKind};
use etherparse::{IpNumber, LinkExtHeader, NetHeaders, PacketHeaders, TransportHeader};
use input::Input;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn what_is_made_is_found_and_read_again(data in proptest::collection::vec(any::<u8>(), 0..600)) {
        stack::run(&data);
    }

    #[test]
    fn any_bytes_are_read(data in proptest::collection::vec(any::<u8>(), 0..200), start in 0usize..4) {
        // Bytes that begin like a frame.
        let types = [&[][..], &[0x08, 0x00, 0x45], &[0x86, 0xdd, 0x60], &[0x88, 0x47]][start];
        stack::sound(&data);
        stack::sound(&[&[0; 12], types, &data].concat());
    }

    #[test]
    fn etherparse_reads_the_same(
        tags in 0usize..=3, v6: bool, transport in 0usize..4, data in proptest::collection::vec(any::<u8>(), 200..600),
    ) {
        let mut input = Input(&data);
        let ip = if v6 { HeaderKind::Ipv6 } else { HeaderKind::Ipv4 };
        let transport = [HeaderKind::Udp, HeaderKind::Tcp, HeaderKind::IcmpEcho, HeaderKind::Raw][transport];
        let kinds = [&[HeaderKind::Ethernet][..], &vec![HeaderKind::Vlan; tags], &[ip, transport]].concat();
        let mut headers: Vec<Header> = kinds.iter().map(|kind| stack::header(*kind, &mut input)).collect();
        if transport == HeaderKind::Raw {
            headers[tags + 1].set(if v6 { FieldName::NextHeader } else { FieldName::Protocol }, 253);
        }
        // etherparse drops this flag, and computes its checksum without it.
        headers[tags + 1].set(FieldName::Reserved, 0);
        let made = stack::made(&headers, &mut input);
        let read = PacketHeaders::from_ethernet_slice(&made.bytes).unwrap();
        let bits = |header: usize, name| headers[header].field(name).unwrap().bits(0);

        let link = read.link.unwrap().ethernet2().unwrap();
        let mac = |mac: [u8; 6]| mac.iter().fold(0, |all, byte| all << 8 | u128::from(*byte));
        prop_assert_eq!((mac(link.destination), mac(link.source)), (bits(0, FieldName::Destination), bits(0, FieldName::Source)));
        prop_assert_eq!(read.link_exts.len(), tags);
        for (i, tag) in read.link_exts.iter().enumerate() {
            let LinkExtHeader::Vlan(tag) = tag else { panic!("{tag:?}") };
            prop_assert_eq!(u128::from(tag.vlan_id.value()), bits(i + 1, FieldName::Vid));
            prop_assert_eq!(u128::from(tag.pcp.value()), bits(i + 1, FieldName::Pcp));
            prop_assert_eq!(u128::from(tag.drop_eligible_indicator), bits(i + 1, FieldName::Dei));
        }
        let ip = tags + 1;
        let last = match read.net.unwrap() {
            NetHeaders::Ipv4(header, _) => {
                prop_assert_eq!(header.header_checksum, header.calc_header_checksum());
                prop_assert_eq!(u128::from(u32::from_be_bytes(header.source)), bits(ip, FieldName::Source));
                prop_assert_eq!(u128::from(u32::from_be_bytes(header.destination)), bits(ip, FieldName::Destination));
                prop_assert_eq!(u128::from(header.dscp.value()), bits(ip, FieldName::Dscp));
                prop_assert_eq!(u128::from(header.ecn.value()), bits(ip, FieldName::Ecn));
                prop_assert_eq!(u128::from(header.time_to_live), bits(ip, FieldName::Ttl));
                prop_assert_eq!(u128::from(header.identification), bits(ip, FieldName::Identification));
                prop_assert_eq!(u128::from(header.dont_fragment), bits(ip, FieldName::DontFragment));
                header.protocol
            }
            NetHeaders::Ipv6(header, extensions) => {
                prop_assert_eq!(u128::from_be_bytes(header.source), bits(ip, FieldName::Source));
                prop_assert_eq!(u128::from_be_bytes(header.destination), bits(ip, FieldName::Destination));
                prop_assert_eq!(u128::from(header.flow_label.value()), bits(ip, FieldName::FlowLabel));
                prop_assert_eq!(u128::from(header.hop_limit), bits(ip, FieldName::HopLimit));
                let class = bits(ip, FieldName::Dscp) << 2 | bits(ip, FieldName::Ecn);
                prop_assert_eq!(u128::from(header.traffic_class), class);
                let Header::Ipv6(ours) = &headers[ip] else { unreachable!() };
                prop_assert_eq!(extensions.fragment.is_some(), format!("{:?}", ours.extensions).contains("Fragment"));
                extensions.next_header(header.next_header).unwrap()
            }
            other => panic!("{other:?}"),
        };
        let bits = |name| headers[ip + 1].field(name).unwrap().bits(0);
        match read.transport {
            None => prop_assert_eq!((transport, last), (HeaderKind::Raw, IpNumber(253))),
            Some(TransportHeader::Udp(udp)) => {
                prop_assert_eq!(u128::from(udp.source_port), bits(FieldName::SourcePort));
                prop_assert_eq!(u128::from(udp.destination_port), bits(FieldName::DestinationPort));
            }
            Some(TransportHeader::Tcp(tcp)) => {
                prop_assert_eq!(u128::from(tcp.source_port), bits(FieldName::SourcePort));
                prop_assert_eq!(u128::from(tcp.destination_port), bits(FieldName::DestinationPort));
                prop_assert_eq!(u128::from(tcp.sequence_number), bits(FieldName::SequenceNumber));
                prop_assert_eq!(u128::from(tcp.acknowledgment_number), bits(FieldName::AcknowledgmentNumber));
                prop_assert_eq!(u128::from(tcp.window_size), bits(FieldName::Window));
                prop_assert_eq!(u128::from(tcp.urgent_pointer), bits(FieldName::UrgentPointer));
                let flags = [tcp.fin, tcp.syn, tcp.rst, tcp.psh, tcp.ack, tcp.urg, tcp.ece, tcp.cwr, tcp.ns];
                let flags = flags.iter().rev().fold(0, |all, flag| all << 1 | u128::from(*flag));
                prop_assert_eq!(flags, bits(FieldName::Flags) & 0x1ff);
            }
            Some(TransportHeader::Icmpv4(_)) => prop_assert!(!v6 && transport == HeaderKind::IcmpEcho),
            Some(TransportHeader::Icmpv6(_)) => prop_assert!(v6 && transport == HeaderKind::IcmpEcho),
            Some(other) => panic!("{other:?}"),
        }
    }
}
