//! tshark finds the headers, the values and the right checksums in frames of every combination of headers.

use crate::tshark;
use drophammer_model::size::FrameSize;
use drophammer_model::traffic::{Bits, Extension, FieldName, Header, HeaderKind, Octets};
use drophammer_wire::stack::{Payload, compile, fit};
use std::net::{Ipv4Addr, Ipv6Addr};

use HeaderKind::*;

/// The fields of each frame; `None` if tshark is not installed.
fn decode(name: &str, frames: &[Vec<u8>], fields: &[&str]) -> Option<Vec<Vec<String>>> {
    let frames: Vec<_> = (0..).map(|i| i * 1_000_000_000).zip(frames.iter().map(Vec::as_slice)).collect();
    tshark::decode(name, &frames, fields)
}

/// Fields that tshark shows, with their tshark names; 802.1ad has its own.
const VALUES: &[(HeaderKind, FieldName, &[&str])] = &[
    (Vlan, FieldName::Pcp, &["ieee8021ad.priority", "vlan.priority"]),
    (Vlan, FieldName::Dei, &["ieee8021ad.dei", "vlan.dei"]),
    (Vlan, FieldName::Vid, &["ieee8021ad.id", "vlan.id"]),
    (Mpls, FieldName::Label, &["mpls.label"]),
    (Mpls, FieldName::Tc, &["mpls.exp"]),
    (Mpls, FieldName::Ttl, &["mpls.ttl"]),
    (Ipv4, FieldName::Dscp, &["ip.dsfield.dscp"]),
    (Ipv4, FieldName::Ecn, &["ip.dsfield.ecn"]),
    (Ipv4, FieldName::Identification, &["ip.id"]),
    (Ipv4, FieldName::DontFragment, &["ip.flags.df"]),
    (Ipv4, FieldName::Ttl, &["ip.ttl"]),
    (Ipv4, FieldName::Source, &["ip.src"]),
    (Ipv4, FieldName::Destination, &["ip.dst"]),
    (Ipv6, FieldName::Dscp, &["ipv6.tclass.dscp"]),
    (Ipv6, FieldName::Ecn, &["ipv6.tclass.ecn"]),
    (Ipv6, FieldName::FlowLabel, &["ipv6.flow"]),
    (Ipv6, FieldName::HopLimit, &["ipv6.hlim"]),
    (Ipv6, FieldName::Source, &["ipv6.src"]),
    (Ipv6, FieldName::Destination, &["ipv6.dst"]),
    (Gre, FieldName::Key, &["gre.key"]),
    (Gre, FieldName::SequenceNumber, &["gre.sequence_number"]),
    (Vxlan, FieldName::Vni, &["vxlan.vni"]),
    (Tcp, FieldName::SequenceNumber, &["tcp.seq_raw"]),
    (Tcp, FieldName::AcknowledgmentNumber, &["tcp.ack_raw"]),
    (Tcp, FieldName::Window, &["tcp.window_size_value"]),
];

const CHECKSUMS: [&str; 6] = [
    "ip.checksum.status",
    "udp.checksum.status",
    "tcp.checksum.status",
    "icmp.checksum.status",
    "icmpv6.checksum.status",
    "gre.checksum.status",
];

/// A value as tshark writes it.
fn number(text: &str) -> u128 {
    if let Some(hex) = text.strip_prefix("0x") {
        return u128::from_str_radix(hex, 16).unwrap();
    }
    match (text.parse::<Ipv4Addr>(), text.parse::<Ipv6Addr>()) {
        (Ok(v4), _) => u32::from(v4).into(),
        (_, Ok(v6)) => v6.into(),
        _ => text.parse().unwrap_or_else(|_| u128::from(text == "True")),
    }
}

/// The headers of these kinds, with values in all fields that tshark shows.
fn stack(kinds: &[HeaderKind], variant: u128) -> Vec<Header> {
    let mut state = variant;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 20
    };
    let options = |hex: &str| hex.parse::<Octets>().unwrap();
    let rich = variant % 2 == 1;
    let mut headers: Vec<Header> = kinds
        .iter()
        .enumerate()
        .map(|(at, kind)| match kind {
            Ethernet => Header::Ethernet(Default::default()),
            Vlan => Header::Vlan(Default::default()),
            Mpls => Header::Mpls(Default::default()),
            Ipv4 => Header::Ipv4(drophammer_model::traffic::Ipv4 {
                options: options(if rich { "94040000" } else { "" }),
                ..Default::default()
            }),
            Ipv6 => {
                let fragment = Extension::Fragment { offset: Bits::new(0), more: false, identification: 7 };
                let segment = format!("01000000{:032x}{:032x}", 0xaaaa, 0xbbbb);
                let all = vec![
                    Extension::HopByHop { options: options("05020000") },
                    Extension::Routing { routing_type: 4, segments_left: 1, data: options(&segment) },
                    fragment,
                    Extension::DestinationOptions { options: options("") },
                ];
                let extensions = if rich { all } else { Vec::new() };
                Header::Ipv6(drophammer_model::traffic::Ipv6 { extensions, ..Default::default() })
            }
            Gre => Header::Gre(drophammer_model::traffic::Gre {
                checksum_present: rich,
                key: rich.then_some(0.into()),
                sequence_number: rich.then_some(0.into()),
                ..Default::default()
            }),
            Vxlan => Header::Vxlan(Default::default()),
            Udp if kinds.get(at + 1) == Some(&Vxlan) => {
                Header::Udp(drophammer_model::traffic::Udp { destination_port: 4_789.into(), ..Default::default() })
            }
            Udp => Header::Udp(Default::default()),
            Tcp => Header::Tcp(drophammer_model::traffic::Tcp {
                options: options(if rich { "020405b4" } else { "" }),
                ..Default::default()
            }),
            IcmpEcho => Header::IcmpEcho(drophammer_model::traffic::IcmpEcho { reply: rich, ..Default::default() }),
            Raw => unreachable!(),
        })
        .collect();
    for header in &mut headers {
        let kind = header.kind();
        for (_, name, _) in VALUES.iter().filter(|(k, name, _)| *k == kind && (rich || *name != FieldName::Key)) {
            if kind != Gre || rich {
                header.set(*name, next());
            }
        }
        match kind {
            Ethernet => {
                header.set(FieldName::Source, 0x0200_0000_0001);
                header.set(FieldName::Destination, 0x0200_0000_0002);
            }
            // The first 16 labels are reserved.
            Mpls => drop(header.set(FieldName::Label, 16 + next() % 1_000_000)),
            _ => {}
        }
    }
    headers
}

/// All combinations of headers up to IP, with each transport after it.
fn combinations() -> Vec<Vec<HeaderKind>> {
    let below: [&[HeaderKind]; 7] =
        [&[], &[Vlan], &[Vlan, Vlan], &[Mpls], &[Mpls, Mpls, Mpls], &[Vlan, Mpls], &[Vlan, Vlan, Mpls, Mpls]];
    let ip: [&[HeaderKind]; 13] = [
        &[Ipv4],
        &[Ipv6],
        &[Ipv4, Ipv4],
        &[Ipv4, Ipv6],
        &[Ipv6, Ipv4],
        &[Ipv6, Ipv6],
        &[Ipv4, Gre, Ipv4],
        &[Ipv4, Gre, Ipv6],
        &[Ipv6, Gre, Ipv4],
        &[Ipv4, Gre, Mpls, Ipv4],
        &[Ipv4, Gre, Ethernet, Vlan, Ipv6],
        &[Ipv4, Udp, Vxlan, Ethernet, Ipv6],
        &[Ipv6, Udp, Vxlan, Ethernet, Vlan, Ipv4],
    ];
    let transport = [Udp, Tcp, IcmpEcho];
    let mut all = Vec::new();
    for below in below {
        for ip in ip {
            all.extend(transport.iter().map(|t| [&[Ethernet], below, ip, &[*t]].concat()));
        }
    }
    all
}

/// The headers that tshark reports.
fn protocols(text: &str) -> Vec<HeaderKind> {
    text.split(':')
        .filter_map(|protocol| match protocol {
            "eth" => Some(Ethernet),
            "vlan" | "ieee8021ad" => Some(Vlan),
            "mpls" => Some(Mpls),
            "ip" => Some(Ipv4),
            "ipv6" => Some(Ipv6),
            "gre" => Some(Gre),
            "vxlan" => Some(Vxlan),
            "udp" => Some(Udp),
            "tcp" => Some(Tcp),
            "icmp" | "icmpv6" => Some(IcmpEcho),
            _ => None,
        })
        .collect()
}

#[test]
fn tshark_reads_every_combination_as_it_was_meant() {
    let payload = Payload::Signed(&|bytes| bytes.fill(0x5a));
    let mut stacks = Vec::new();
    for (i, kinds) in combinations().iter().enumerate() {
        stacks.extend((0..2).map(|variant| stack(kinds, 2 * i as u128 + variant)));
    }
    let size = |i: usize| [FrameSize::Frame(64), FrameSize::Ip(41), FrameSize::Frame(1518)][i % 3];
    let frames: Vec<_> = stacks
        .iter()
        .enumerate()
        .map(|(i, headers)| compile(headers, fit(headers, size(i), payload).unwrap(), payload).unwrap().bytes)
        .collect();
    let mut fields = vec!["frame.protocols", "_ws.malformed", "_ws.expert.severity"];
    fields.extend(CHECKSUMS);
    fields.extend(VALUES.iter().flat_map(|(.., names)| *names));
    let Some(lines) = decode("stack", &frames, &fields) else { return };

    for ((line, headers), frame) in lines.iter().zip(&stacks).zip(&frames) {
        let kinds: Vec<_> = headers.iter().map(Header::kind).collect();
        let told = format!("{kinds:?}\n{line:?}\n{frame:02x?}");
        let column = |name: &str| {
            let text = &line[fields.iter().position(|f| *f == name).unwrap()];
            text.split(',').filter(|t| !t.is_empty()).collect::<Vec<_>>()
        };
        // tshark reports a whole label stack as one `mpls`.
        let mut named = kinds.clone();
        named.dedup_by(|a, b| *a == Mpls && *b == Mpls);
        assert_eq!(protocols(&line[0]), named, "{told}");
        assert!(line[1].is_empty(), "malformed: {told}");
        // tshark reports a good checksum as 1. IPv6 has no header checksum, and GRE has one only on request.
        let good: usize = CHECKSUMS
            .iter()
            .map(|name| column(name))
            .inspect(|c| assert!(c.iter().all(|s| *s == "1"), "{told}"))
            .map(|c| c.len())
            .sum();
        let summed = headers.iter().filter(|h| match h {
            Header::Gre(gre) => gre.checksum_present,
            other => matches!(other.kind(), Ipv4 | Udp | Tcp | IcmpEcho),
        });
        assert_eq!(good, summed.count(), "{told}");
        for (kind, name, names) in VALUES {
            let meant: Vec<_> = headers
                .iter()
                .filter(|h| h.kind() == *kind)
                .filter_map(|h| h.field(*name))
                .map(|f| f.bits(0))
                .collect();
            let read: Vec<_> = names.iter().flat_map(|n| column(n)).map(number).collect();
            assert_eq!(read, meant, "{kind} {name}: {told}");
        }
    }

    // Makes sure that tshark reports wrong checksums.
    let mut broken = frames[..2].to_vec();
    // Changes the TTL, and the source port after four bytes of options.
    broken[0][22] ^= 1;
    broken[1][39] ^= 1;
    let lines = decode("broken", &broken, &CHECKSUMS).unwrap();
    assert_eq!((lines[0][0].as_str(), lines[1][1].as_str()), ("0", "0"), "{lines:?}");
}
