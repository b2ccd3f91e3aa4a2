//! Builds, locates and decodes frames.

use super::*;
use crate::{MacAddr, signature};
use drophammer_model::size::FrameSize;
use drophammer_model::traffic::*;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Returns the headers with these short names.
fn stack(names: &str) -> Vec<Header> {
    names.split_whitespace().map(header).collect()
}

fn header(kind: &str) -> Header {
    match kind {
        "eth" => Header::Ethernet(Ethernet {
            destination: Some(MacAddr::local(2).into()),
            source: Some(MacAddr::local(1).into()),
            ethertype: None,
        }),
        "vlan" => Header::Vlan(Vlan { vid: Bits::new(100).into(), pcp: Bits::new(5).into(), ..Vlan::default() }),
        "mpls" => Header::Mpls(Mpls { label: Bits::new(16).into(), ..Mpls::default() }),
        "ipv4" => Header::Ipv4(Ipv4 {
            source: Some(Ipv4Addr::new(192, 0, 2, 1).into()),
            destination: Some(Ipv4Addr::new(198, 51, 100, 1).into()),
            ..Ipv4::default()
        }),
        "ipv6" => Header::Ipv6(Ipv6 {
            source: Some(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into()),
            destination: Some(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2).into()),
            ..Ipv6::default()
        }),
        "gre" => Header::Gre(Gre::default()),
        "gre+" => Header::Gre(Gre {
            checksum_present: true,
            key: Some(7.into()),
            sequence_number: Some(8.into()),
            ..Gre::default()
        }),
        "vxlan" => Header::Vxlan(Vxlan { vni: Bits::new(7).into() }),
        "udp" => Header::Udp(Udp::default()),
        "udp4789" => Header::Udp(Udp { destination_port: 4_789.into(), ..Udp::default() }),
        "tcp" => Header::Tcp(Tcp::default()),
        "echo" => Header::IcmpEcho(IcmpEcho { identifier: 3.into(), ..IcmpEcho::default() }),
        "raw" => Header::Raw(Raw { bytes: Octets(vec![1, 2, 3]) }),
        other => panic!("{other}"),
    }
}

const PATTERN: Payload = Payload::Signed(&|bytes| bytes.fill(0x5a));

fn kinds(layers: &Layers) -> String {
    layers.iter().map(|l| l.kind.to_string()).collect::<Vec<_>>().join(" ")
}

#[test]
fn sizes_are_those_of_rfc_2544_and_of_the_ip_packet() {
    for (headers, size, length, signature_at) in [
        ("eth ipv4 udp", FrameSize::Frame(64), 60, 48),
        ("eth ipv4 udp", FrameSize::Ip(40), 60, 42),
        ("eth ipv4 udp", FrameSize::Ip(1500), 1514, 1502),
        // A tag counts as part of a frame size, but is added to a packet size.
        ("eth vlan ipv4 udp", FrameSize::Frame(64), 60, 48),
        ("eth vlan vlan ipv4 udp", FrameSize::Frame(68), 64, 52),
        ("eth vlan mpls ipv4 udp", FrameSize::Ip(1500), 1522, 1510),
        ("eth ipv6 udp", FrameSize::Ip(60), 74, 62),
        ("eth ipv4 gre ipv4 udp", FrameSize::Ip(100), 114, 102),
        ("eth ipv6 udp4789 vxlan eth vlan ipv4 tcp", FrameSize::Frame(200), 196, 184),
    ] {
        let compiled = compile(&stack(headers), size, PATTERN).unwrap();
        assert_eq!((compiled.bytes.len(), compiled.signature_at), (length, Some(signature_at)), "{headers} {size}");
        assert_eq!(compiled.layers.payload().end, signature_at + signature::LEN);
        let pattern = &compiled.bytes[compiled.payload_at..signature_at];
        assert!(pattern.iter().all(|b| *b == 0x5a));
        assert_eq!(locate(&compiled.bytes), compiled.layers, "{headers} {size}");
        assert!(is_intact(&compiled.bytes));
    }
}

#[test]
fn a_size_that_is_too_small_grows() {
    for (headers, size, fitting) in [
        ("eth ipv4 udp", FrameSize::Frame(64), FrameSize::Frame(64)),
        ("eth vlan ipv6 udp", FrameSize::Frame(64), FrameSize::Frame(82)),
        ("eth ipv6 udp", FrameSize::Ip(40), FrameSize::Ip(60)),
        ("eth mpls ipv4 tcp", FrameSize::Ip(40), FrameSize::Ip(52)),
    ] {
        let headers = stack(headers);
        let fits = fit(&headers, size, PATTERN).unwrap();
        assert_eq!(fits, fitting);
        assert!(compile(&headers, fits, PATTERN).is_ok());
        let smaller = match fits {
            FrameSize::Frame(n) => FrameSize::Frame(n - 20),
            FrameSize::Ip(n) => FrameSize::Ip(n - 20),
        };
        let error = compile(&headers, smaller, PATTERN).unwrap_err().to_string();
        let needed = fit(&headers, smaller, PATTERN).unwrap();
        assert!(error.contains(&format!("a size of at least {needed},")), "{error}");
    }
}

#[test]
fn types_follow_from_the_stack_unless_they_are_given() {
    let frame = |headers: &[Header]| compile(headers, FrameSize::Frame(200), PATTERN).unwrap().bytes;
    let bytes = frame(&stack("eth vlan vlan mpls mpls ipv4 gre ipv6 tcp"));
    assert_eq!(bytes[12..14], [0x88, 0xa8]);
    assert_eq!(bytes[14..18], [0xa0, 100, 0x81, 0x00]);
    assert_eq!(bytes[20..22], [0x88, 0x47]);
    assert_eq!((bytes[24] & 1, bytes[28] & 1), (0, 1), "bottom of stack");
    assert_eq!((bytes[30], bytes[39]), (0x45, 47));
    assert_eq!(bytes[52..54], [0x86, 0xdd]);
    assert_eq!(bytes[60], 6);

    let mut headers = stack("eth vlan ipv4 udp");
    headers[0].set(FieldName::Ethertype, 0x9100);
    headers[2].set(FieldName::TotalLength, 1_000);
    headers[3].set(FieldName::Checksum, 0x1234);
    let compiled = compile(&headers, FrameSize::Frame(100), PATTERN).unwrap();
    assert_eq!(compiled.bytes[12..14], [0x91, 0x00]);
    assert_eq!(compiled.bytes[20..22], 1_000u16.to_be_bytes());
    assert_eq!(compiled.bytes[44..46], [0x12, 0x34]);
    assert_eq!(compiled.checksums.iter().map(|c| c.kind).collect::<Vec<_>>(), [ChecksumKind::Ipv4Header]);
    assert_eq!(locate(&compiled.bytes).stop(), Stop::Length);
    assert!(!is_intact(&compiled.bytes));
}

#[test]
fn stacks_that_cannot_be_are_refused_with_cause_and_remedy() {
    let edit = |headers: &str, index: usize, name, bits| {
        let mut headers = stack(headers);
        headers[index].set(name, bits);
        headers
    };
    let with = |headers: &str, last: Header| [stack(headers), vec![last]].concat();
    let extensions = |list: Vec<Extension>| with("eth", Header::Ipv6(Ipv6 { extensions: list, ..ipv6() }));
    let options = || Extension::DestinationOptions { options: Octets::default() };
    let fragment = || Extension::Fragment { offset: Bits::new(0), more: false, identification: 0 };
    let frame = FrameSize::Frame(200);
    for (headers, size, parts) in [
        (vec![], frame, "begin with `ethernet`"),
        (stack("ipv4 udp"), frame, "header 1 (`ipv4`): a frame begins with `ethernet`"),
        (stack("eth ipv4 vlan udp"), frame, "header 3 (`vlan`): `vlan` cannot follow `ipv4`; a tag needs `ethernet`"),
        (
            stack("eth eth ipv4"),
            frame,
            "header 2 (`ethernet`): `ethernet` cannot follow `ethernet`; a second Ethernet header needs `gre`",
        ),
        (stack("eth mpls"), frame, "header 2 (`mpls`): no header follows the last label; add"),
        (edit("eth mpls ipv4 udp", 1, FieldName::BottomOfStack, 0), frame, "the label stack has no end"),
        (stack("eth mpls udp"), frame, "it needs `ipv4` or `ipv6` before it"),
        (stack("eth udp"), frame, "header 2 (`udp`): `udp` cannot follow `ethernet`; it needs `ipv4` or `ipv6`"),
        (stack("eth gre ipv4"), frame, "GRE needs `ipv4` or `ipv6` before it"),
        (stack("eth ipv4 udp tcp"), frame, "leave one of them out"),
        (stack("eth ipv4 udp vxlan eth"), frame, "header 3 (`udp`): `vxlan` follows, whose port is 4789; write"),
        (stack("eth ipv4 vxlan eth"), frame, "`vxlan` cannot follow `ipv4`; VXLAN needs `udp` before it"),
        (stack("eth raw ipv4"), frame, "header 2 (`raw`): `raw` must be the last header"),
        (stack("eth raw"), frame, "header 1 (`ethernet`): no header follows that determines its `ethertype`"),
        (
            stack("eth ipv4"),
            frame,
            "header 2 (`ipv4`): no header follows that determines its `protocol`; write `protocol`",
        ),
        (stack("eth ipv6 raw"), frame, "determines its `next_header`"),
        (
            with("eth", Header::Ipv4(Ipv4 { protocol: Some(99.into()), ..Ipv4::default() })),
            frame,
            "it has no `source` address; write",
        ),
        (
            edit("eth vlan raw", 1, FieldName::Ethertype, 9),
            FrameSize::Ip(100),
            "the stack has none; write the size of the frame",
        ),
        (stack("eth ipv4 gre ipv6 tcp"), FrameSize::Frame(64), "header 5 (`tcp`): a frame of 64 bytes has no room"),
        (vec![header("eth"); 20], frame, "at most 16"),
        (
            with("eth", Header::Vlan(Vlan { vid: Field::Values(vec![]), ..Vlan::default() })),
            frame,
            "header 2 (`vlan`): `vid`: the list of values is empty",
        ),
        (
            with("eth", Header::Ipv4(Ipv4 { options: Octets(vec![0; 41]), ..Ipv4::default() })),
            frame,
            "41 bytes; write at most 40",
        ),
        (extensions(vec![fragment(), fragment()]), frame, "not in the order of RFC 8200"),
        (extensions(vec![options(), options()]), frame, "not in the order of RFC 8200"),
        (
            extensions(vec![Extension::Routing { routing_type: 4, segments_left: 0, data: Octets(vec![0; 5]) }]),
            frame,
            "write 4, 12, 20",
        ),
        (with("eth ipv4 udp", Header::Raw(Raw { bytes: Octets(vec![0; 70_000]) })), frame, "the maximum is 65535"),
    ] {
        let error = compile(&headers, size, PATTERN).unwrap_err().to_string();
        assert!(error.contains(parts), "{error}\nnot: {parts}");
    }
}

fn ipv6() -> Ipv6 {
    let Header::Ipv6(ipv6) = header("ipv6") else { unreachable!() };
    ipv6
}

#[test]
fn every_field_of_the_model_has_its_place_and_width() {
    for kind in ["eth", "vlan", "mpls", "ipv4", "ipv6", "gre+", "udp", "tcp", "echo"] {
        let mut header = header(kind);
        let names: Vec<_> = header.fields().into_iter().map(|(name, _)| name).collect();
        let table: Vec<_> = place::entries(header.kind()).iter().map(|entry| entry.name).collect();
        assert_eq!(table, names, "{kind}");
        for entry in place::entries(header.kind()) {
            assert!(header.set(entry.name, 0));
            assert_eq!(header.field(entry.name).unwrap().width(), entry.width, "{kind} {}", entry.name);
        }
    }
}

#[test]
fn a_place_is_written_alone() {
    for (bit, width, value) in
        [(3, 1, 1), (4, 12, 0xabc), (5, 20, 0xfedcb), (0, 48, 0x1234_5678_9abc), (8, 128, u128::MAX - 5)]
    {
        let place = Place { header: 0, field: FieldName::Key, bit, width };
        for fill in [0x00, 0xff, 0x5a] {
            let mut frame = [fill; 20];
            let before = frame;
            place.write(&mut frame, value | if width < 128 { 1 << width } else { 0 });
            assert_eq!(place.read(&frame), Some(value));
            place.write(&mut frame, Place { ..place }.read(&before).unwrap());
            assert_eq!(frame, before);
        }
        assert_eq!(
            place.read(&[0; 1][..(bit / 8).min(1)]),
            (bit + width as usize <= 8 * (bit / 8).min(1)).then_some(0)
        );
    }
}

#[test]
fn a_segment_route_sums_its_final_destination() {
    let segments: Vec<u8> = [vec![1, 0, 0, 0], vec![0xaa; 16], vec![0xbb; 16]].concat();
    let routing = Extension::Routing { routing_type: 4, segments_left: 1, data: Octets(segments) };
    let headers = [header("eth"), Header::Ipv6(Ipv6 { extensions: vec![routing], ..ipv6() }), header("udp")];
    let compiled = compile(&headers, FrameSize::Frame(200), PATTERN).unwrap();
    assert_eq!(compiled.checksums[0].covers[1].range(), 62..78);
    assert_eq!(compiled.bytes[62..78], [0xaa; 16]);
    assert!(is_intact(&compiled.bytes));
}

#[test]
fn wrong_bytes_are_seen_by_the_checksums_that_cover_them() {
    let compiled = compile(&stack("eth vlan ipv4 gre+ ipv6 tcp"), FrameSize::Frame(200), PATTERN).unwrap();
    assert_eq!(
        compiled.checksums.iter().map(|c| c.kind).collect::<Vec<_>>(),
        [ChecksumKind::Tcp, ChecksumKind::Gre, ChecksumKind::Ipv4Header]
    );
    for (at, wrong) in [
        (26, &[ChecksumKind::Ipv4Header][..]),
        (46, &[ChecksumKind::Gre]),
        (70, &[ChecksumKind::Tcp, ChecksumKind::Gre]),
        (150, &[ChecksumKind::Tcp, ChecksumKind::Gre]),
        (3, &[]),
    ] {
        let mut frame = compiled.bytes.clone();
        frame[at] ^= 0x10;
        let layers = locate(&frame);
        assert_eq!(layers.wrong_checksums(&frame).map(|c| c.kind).collect::<Vec<_>>(), wrong, "byte {at}");
        assert_eq!(is_intact(&frame), wrong.is_empty());
    }
}

#[test]
fn udp_over_ipv4_may_leave_its_checksum_out() {
    for (ip, intact) in [("ipv4", true), ("ipv6", false)] {
        let mut headers = stack(&format!("eth {ip} udp"));
        headers[2].set(FieldName::Checksum, 0);
        let compiled = compile(&headers, FrameSize::Frame(100), PATTERN).unwrap();
        assert_eq!(is_intact(&compiled.bytes), intact);
    }
}

#[test]
fn locate_says_why_it_stopped() {
    let whole = compile(&stack("eth vlan ipv4 udp"), FrameSize::Frame(100), PATTERN).unwrap().bytes;
    let with = |at: usize, value: u8| {
        let mut frame = whole.clone();
        frame[at] = value;
        frame
    };
    let labels: Vec<u8> = [&whole[..12], &[0x88, 0x47], &[0; 80][..]].concat();
    for (frame, headers, stop) in [
        (whole.clone(), "ethernet vlan ipv4 udp", Stop::Transport),
        (whole[..13].to_vec(), "", Stop::Cut),
        (whole[..17].to_vec(), "ethernet", Stop::Cut),
        (whole[..40].to_vec(), "ethernet vlan ipv4", Stop::Length),
        (with(16, 0x12), "ethernet vlan", Stop::Unknown),
        (with(18, 0x55), "ethernet vlan", Stop::Malformed),
        (with(18, 0x44), "ethernet vlan", Stop::Malformed),
        (with(24, 0x20), "ethernet vlan ipv4", Stop::Fragment),
        (with(25, 0x01), "ethernet vlan ipv4", Stop::Fragment),
        (with(27, 89), "ethernet vlan ipv4", Stop::Unknown),
        (with(42, 0xff), "ethernet vlan ipv4 udp", Stop::Length),
        (labels, &format!("ethernet{}", " mpls".repeat(15)), Stop::Depth),
    ] {
        let layers = locate(&frame);
        assert_eq!((kinds(&layers), layers.stop()), (headers.to_owned(), stop));
    }
}

#[test]
fn the_signature_is_found_wherever_it_lies() {
    for headers in
        ["eth ipv4 udp", "eth vlan vlan ipv6 tcp", "eth mpls mpls mpls ipv4 echo", "eth ipv4 gre eth vlan ipv6 udp raw"]
    {
        for size in [FrameSize::Frame(200), fit(&stack(headers), FrameSize::Ip(40), PATTERN).unwrap()] {
            let mut compiled = compile(&stack(headers), size, PATTERN).unwrap();
            let at = compiled.signature_at.unwrap();
            compiled.bytes[at..at + signature::LEN].copy_from_slice(b"a signature!");
            let payload = &compiled.bytes[locate(&compiled.bytes).payload()];
            assert!(payload.ends_with(b"a signature!"), "{headers} {size}");
        }
    }
    assert!(locate(&[0; 20]).payload().len() < signature::LEN);
}

#[test]
fn decoding_says_only_what_does_not_follow() {
    for headers in ["eth ipv4 udp", "eth vlan vlan mpls ipv6 tcp", "eth ipv4 gre+ ipv6 echo", "eth ipv4 ipv6 ipv4 udp"]
    {
        for size in [FrameSize::Ip(200), FrameSize::Frame(300)] {
            let headers = stack(headers);
            let compiled = compile(&headers, size, PATTERN).unwrap();
            let decoded = decode(&compiled.bytes);
            let (payload, read) = decoded.headers.split_last().unwrap();
            assert_eq!(read, headers);
            let bytes = compiled.bytes[compiled.payload_at..].to_vec();
            assert_eq!(payload, &Header::Raw(Raw { bytes: Octets(bytes) }));
        }
    }
    // A trailer after the packet: the lengths can no longer be derived from the frame.
    let mut frame = compile(&stack("eth ipv4 udp"), FrameSize::Ip(40), PATTERN).unwrap().bytes;
    frame[59] = 1;
    let Decoded { headers, size } = decode(&frame);
    assert_eq!(size, FrameSize::Frame(64));
    assert_eq!(headers[1].field(FieldName::TotalLength).unwrap().bits(0), 40);
    assert_eq!(compile(&headers, size, Payload::Plain(&|_| {})).unwrap().bytes, frame);
}
