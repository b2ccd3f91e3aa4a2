//! Stacks of headers: what is made is found again, field by field; any bytes are read without a panic and mean the same when
//! they are written again.

use super::input::Input;
use drophammer_model::size::FrameSize;
use drophammer_model::traffic::*;
use drophammer_wire::stack::{Compiled, Payload, Stop, compile, decode, fit, is_intact, locate};
use drophammer_wire::{ethernet, signature};

/// A frame of any bytes, one that is made, or one that is made and then damaged.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    match input.below(4) {
        0 => sound(input.0),
        way => {
            let kinds = kinds(&mut input);
            let mut headers: Vec<Header> = kinds.iter().map(|kind| header(*kind, &mut input)).collect();
            end(&mut headers, &mut input);
            let mut made = made(&headers, &mut input);
            if way > 1 {
                for _ in 0..=input.below(4) {
                    let at = usize::from(input.u16()) % made.bytes.len();
                    made.bytes[at] = input.u8();
                }
                let cut = usize::from(input.u8()) % 16;
                made.bytes.truncate(made.bytes.len() - if input.flag() { cut } else { 0 });
                sound(&made.bytes);
            }
        }
    }
}

/// Headers in an order that can be.
pub fn kinds(input: &mut Input) -> Vec<HeaderKind> {
    use HeaderKind::*;
    let mut kinds = vec![Ethernet];
    kinds.extend(std::iter::repeat_n(Vlan, input.below(4)));
    if input.below(8) == 0 {
        return kinds;
    }
    kinds.extend(std::iter::repeat_n(Mpls, input.below(3)));
    kinds.push(if input.flag() { Ipv6 } else { Ipv4 });
    for _ in 0..input.below(3) {
        match input.below(4) {
            0 => {}
            1 => kinds.push(Gre),
            2 => kinds.extend([Gre, Mpls]),
            _ => kinds.extend([Gre, Ethernet, Vlan]),
        }
        kinds.push(if input.flag() { Ipv6 } else { Ipv4 });
    }
    kinds.extend([None, Some(Gre), Some(Udp), Some(Udp), Some(Tcp), Some(IcmpEcho)][input.below(6)]);
    kinds
}

fn octets(input: &mut Input, most: usize) -> Octets {
    let length = input.below(most + 1);
    Octets(input.bytes(length).to_vec())
}

/// A header with values from the input, all lengths, types and checksums automatic.
pub fn header(kind: HeaderKind, input: &mut Input) -> Header {
    let mut header = match kind {
        HeaderKind::Ethernet => Header::Ethernet(Ethernet::default()),
        HeaderKind::Vlan => Header::Vlan(Vlan::default()),
        HeaderKind::Mpls => Header::Mpls(Mpls::default()),
        HeaderKind::Ipv4 => {
            // Whole words: what is filled up is not told apart from what was asked for.
            let mut options = octets(input, 40);
            options.0.truncate(options.0.len() / 4 * 4);
            Header::Ipv4(Ipv4 { options, ..Ipv4::default() })
        }
        HeaderKind::Ipv6 => Header::Ipv6(Ipv6 { extensions: extensions(input), ..Ipv6::default() }),
        HeaderKind::Gre => {
            let mut there = || input.flag().then_some(Field::Value(0));
            Header::Gre(Gre {
                key: there(),
                sequence_number: there(),
                checksum_present: input.flag(),
                ..Gre::default()
            })
        }
        HeaderKind::Udp => Header::Udp(Udp::default()),
        HeaderKind::Tcp => {
            let mut options = octets(input, 40);
            options.0.truncate(options.0.len() / 4 * 4);
            Header::Tcp(Tcp { options, ..Tcp::default() })
        }
        HeaderKind::IcmpEcho => Header::IcmpEcho(IcmpEcho { reply: input.flag(), ..IcmpEcho::default() }),
        HeaderKind::Vxlan => Header::Vxlan(Vxlan::default()),
        HeaderKind::Raw => Header::Raw(Raw { bytes: octets(input, 40) }),
    };
    let given = |name: FieldName, field: &Option<&dyn AnyField>| {
        let address = matches!(name, FieldName::Source | FieldName::Destination);
        // A fragment has no headers behind that of IP.
        (address || field.is_some()) && !matches!(name, FieldName::MoreFragments | FieldName::FragmentOffset)
    };
    let names: Vec<_> = header.fields().into_iter().filter(|(n, f)| given(*n, f)).map(|(n, _)| n).collect();
    for name in names {
        header.set(name, u128::from(input.u64()) << 64 | u128::from(input.u64()));
    }
    header
}

fn extensions(input: &mut Input) -> Vec<Extension> {
    let padded = |input: &mut Input| {
        let mut options = octets(input, 22);
        options.0.resize((options.0.len() + 2).next_multiple_of(8) - 2, 0);
        options
    };
    let which = input.u8();
    let mut list = Vec::new();
    if which & 1 != 0 {
        list.push(Extension::HopByHop { options: padded(input) });
    }
    // Before a routing header.
    if which & 2 != 0 {
        list.push(Extension::DestinationOptions { options: padded(input) });
    }
    if which & 6 != 0 {
        let (routing_type, segments_left) = (input.below(5) as u8, input.below(3) as u8);
        let mut data = octets(input, 44);
        data.0.resize(data.0.len() / 8 * 8 + 4, 0);
        list.push(Extension::Routing { routing_type, segments_left, data });
    }
    if which & 8 != 0 {
        list.push(Extension::Fragment { offset: Bits::default(), more: false, identification: input.u32() });
    }
    if which & 16 != 0 {
        list.push(Extension::DestinationOptions { options: padded(input) });
    }
    list
}

/// A type for the last header where nothing gives it, and perhaps raw bytes.
fn end(headers: &mut Vec<Header>, input: &mut Input) {
    let last = headers.last_mut().unwrap();
    match last.kind() {
        // For experiments: IEEE 802 local experimental, RFC 3692.
        HeaderKind::Ethernet | HeaderKind::Vlan => drop(last.set(FieldName::Ethertype, 0x88b5)),
        HeaderKind::Gre => drop(last.set(FieldName::Protocol, 0x88b5)),
        HeaderKind::Ipv4 => drop(last.set(FieldName::Protocol, 253)),
        HeaderKind::Ipv6 => drop(last.set(FieldName::NextHeader, 253)),
        _ => {}
    }
    if input.flag() {
        headers.push(header(HeaderKind::Raw, input));
    }
}

/// Makes the frame and asks of it what holds for every frame that is made.
pub fn made(headers: &[Header], input: &mut Input) -> Compiled {
    let size = if input.flag() { FrameSize::Frame(input.u16() % 400) } else { FrameSize::Ip(input.u16() % 400) };
    let has_ip = headers.iter().any(|h| matches!(h.kind(), HeaderKind::Ipv4 | HeaderKind::Ipv6));
    let size = if has_ip { size } else { FrameSize::Frame(64) };
    let fill = input.u8();
    let payload = Payload::Signed(&|bytes| bytes.fill(fill));
    let size = fit(headers, size, payload).unwrap();
    let mut compiled = compile(headers, size, payload).unwrap();
    let frame = &compiled.bytes;

    assert_eq!(locate(frame), compiled.layers);
    assert!(is_intact(frame), "{headers:?} {frame:02x?}");
    assert!(frame[locate(frame).payload()].ends_with(&[0; signature::LEN]));
    for (i, header) in headers.iter().enumerate() {
        for (name, field) in header.fields() {
            let place = compiled.layers.place(frame, i, name);
            let Some(field) = field else { continue };
            assert_eq!(place.unwrap().read(frame), Some(field.bits(0)), "{name} of {header:?}");
            assert_eq!(compiled.place(i, name), place.as_ref());
        }
    }
    let decoded = decode(frame);
    let stack = headers.iter().filter(|header| header.kind() != HeaderKind::Raw);
    for (header, read) in stack.zip(&decoded.headers) {
        assert_eq!(read, header, "{:?}", decoded.headers);
    }
    assert!(decoded.headers.len() > compiled.layers.len());
    sound(frame);

    // Other values, and the checksums that are known made right again.
    let mut changed = frame.clone();
    for place in &compiled.fields {
        let structure = matches!(
            place.field,
            FieldName::MoreFragments
                | FieldName::FragmentOffset
                | FieldName::Ethertype
                | FieldName::Protocol
                | FieldName::NextHeader
        );
        if !structure && headers[place.header].field(place.field).is_some() {
            place.write(&mut changed, u128::from(input.u64()) << 64 | u128::from(input.u64()));
        }
    }
    for checksum in &compiled.checksums {
        checksum.write(&mut changed);
    }
    assert_eq!(locate(&changed), compiled.layers);
    assert!(is_intact(&changed), "{headers:?} {changed:02x?}");
    let at = compiled.signature_at.unwrap();
    compiled.bytes[at..at + signature::LEN].copy_from_slice(&[1; signature::LEN]);
    compiled
}

/// What holds for any bytes.
pub fn sound(frame: &[u8]) {
    let layers = locate(frame);
    let mut at = 0;
    let mut end = frame.len();
    for layer in layers.iter() {
        assert!(layer.offset() == at && layer.length() > 0 && layer.end() <= end, "{layers:?}");
        (at, end) = (at + layer.length(), layer.end());
    }
    assert_eq!(layers.payload(), at..end);
    assert!(end <= frame.len());
    assert!(layers.stop() != Stop::Transport || layers.len() > 1);
    for checksum in layers.wrong_checksums(frame) {
        let mut right = frame.to_vec();
        checksum.write(&mut right);
        assert!(checksum.holds(&right));
    }
    assert!(!is_intact(frame) || layers.wrong_checksums(frame).next().is_none());
    let decoded = decode(frame);
    if frame.len() >= ethernet::MIN_WITHOUT_FCS && frame.len() + 4 <= usize::from(u16::MAX) {
        let again = compile(&decoded.headers, decoded.size, Payload::Plain(&|_| {})).unwrap();
        assert_eq!(again.bytes, frame);
    }
}
