//! Writes and parses messages: recorded messages of freeRtr, examples of every type, and random messages.

use super::*;
use crate::checksum;
use proptest::prelude::*;
use std::net::Ipv4Addr;

fn bytes(hex: &str) -> Vec<u8> {
    hex.as_bytes().chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn ip(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}

fn parse(packet: &[u8]) -> (Message<'_>, Body<'_>) {
    let message = Message::parse(packet).unwrap();
    let (body, unknown) = Body::parse(&message).unwrap();
    assert_eq!(unknown, None);
    (message, body)
}

fn emit(body: &Body<'_>, flags: u8, ttl: u8, ids: &[Object<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    body.emit(flags, ttl, ids, &mut out);
    out
}

const SESSION: Session =
    Session { destination: Ipv4Addr::new(10, 2, 0, 1), tunnel_id: 1, extended_tunnel_id: Ipv4Addr::new(10, 1, 0, 1) };
const SENDER: Sender = Sender { address: Ipv4Addr::new(10, 1, 0, 1), lsp_id: 100 };

/// freeRtr, recorded.
const PATH: &str = concat!(
    "100148e0fe0000d4001001070a020001000000010a010001000c0301c61202010000000000080501000007d0001414010108c61202022000",
    "81080a020001200000081301000008000010cf07070700046c73703000000000000c0b070a0100010000006400240c020000000701000006",
    "7f00000549742400497424004974240000000014000005dc00300d020000000a010000080400000100000002060000014e9502f908000001",
    "000000000a000001000005dc05000000001c15010108c612020120000108c612010120000108c61201022000",
);
/// freeRtr, recorded.
const RESV: &str = concat!(
    "1002cce5fe000088001001070a020001000000010a010001000c0301c61201010000000000080501000007d0000808010000000a00240902",
    "00000007050000067f00000549742400497424004974240000000014000005dc000c0a070a0100010000006400081001000f60dc001c1501",
    "0108c612010120000108c612020120000108c61202022000",
);
/// freeRtr, recorded.
const PATH_TEAR: &str = concat!(
    "10059a84fe000084001001070a020001000000010a010001000c0301c612020100000000000c0b070a0100010000006400240c0200000007",
    "010000067f00000549742400497424004974240000000014000005dc00300d020000000a010000080400000100000002060000014e9502f9",
    "08000001000000000a000001000005dc05000000",
);

const TSPEC: Tspec = Tspec { rate: 1e6, bucket: 1e6, peak: 1e6, min_policed: 20, max_packet: 1500 };
const ADSPEC: Adspec =
    Adspec { broken: false, hops: 2, bandwidth: 1.25e9, latency: 0, mtu: 1500, controlled_load: true };

#[test]
fn a_path_of_freertr() {
    let packet = bytes(PATH);
    let (message, body) = parse(&packet);
    assert_eq!((message.flags, message.kind, message.ttl), (0, kind::PATH, 254));
    let Body::Path(path) = body else { panic!("{body:?}") };
    assert_eq!((path.session, path.sender, path.refresh), (SESSION, SENDER, 2000));
    assert_eq!(path.hop, Hop { address: ip("198.18.2.1"), interface: 0 });
    assert_eq!((path.label_request, path.tspec, path.adspec), (Some(0x800), TSPEC, Some(ADSPEC)));
    let attribute = SessionAttribute { affinities: None, setup: 7, holding: 7, flags: 0, name: b"lsp0" };
    assert_eq!(path.attribute, Some(attribute));
    let hop = |loose, address| ExplicitHop::Ipv4 { loose, address: ip(address), prefix_len: 32 };
    let hops: Vec<_> = path.explicit_route.unwrap().hops().collect();
    assert_eq!(hops, [hop(false, "198.18.2.2"), hop(true, "10.2.0.1")]);
    let passed = |address| RecordedHop::Ipv4 { address: ip(address), prefix_len: 32, flags: 0 };
    let recorded: Vec<_> = path.record_route.unwrap().hops().collect();
    assert_eq!(recorded, ["198.18.2.1", "198.18.1.1", "198.18.1.2"].map(passed));
    assert_eq!(emit(&body, 0, 254, &[]), packet);
}

#[test]
fn a_resv_of_freertr() {
    let packet = bytes(RESV);
    let (_, body) = parse(&packet);
    let Body::Resv(resv) = body else { panic!("{body:?}") };
    assert_eq!((resv.session, resv.refresh, resv.confirm), (SESSION, 2000, None));
    assert_eq!(resv.hop, Hop { address: ip("198.18.1.1"), interface: 0 });
    assert!(resv.style.is(Style::FF) && !resv.style.is(Style::SE));
    let flows: Vec<_> = resv.flows.iter().collect();
    assert_eq!((flows[0].flowspec, flows[0].filter, flows[0].label), (Some(TSPEC), SENDER, Some(0xf60dc)));
    assert_eq!((flows.len(), flows[0].record_route.unwrap().hops().count()), (1, 3));
    assert_eq!(emit(&body, 0, 254, &[]), packet);
}

#[test]
fn a_path_tear_of_freertr() {
    let packet = bytes(PATH_TEAR);
    let (_, body) = parse(&packet);
    let hop = Hop { address: ip("198.18.2.1"), interface: 0 };
    let tear = PathTear { session: SESSION, hop, sender: SENDER, tspec: Some(TSPEC), adspec: Some(ADSPEC) };
    assert_eq!(body, Body::PathTear(tear));
    assert_eq!(emit(&body, 0, 254, &[]), packet);
}

#[test]
fn shared_reservations_name_all_senders() {
    let mut list = Vec::new();
    let flow = |lsp_id, flowspec| Flow {
        flowspec,
        filter: Sender { lsp_id, ..SENDER },
        label: Some(u32::from(lsp_id)),
        record_route: None,
    };
    for flow in [flow(1, Some(TSPEC)), flow(2, None)] {
        flow.emit(&mut list);
    }
    let hop = Hop { address: ip("192.0.2.1"), interface: 7 };
    let flows = Flows::new(&list).unwrap();
    let resv = Resv { session: SESSION, hop, refresh: 30_000, confirm: Some(ip("192.0.2.9")), style: Style::SE, flows };
    let packet = emit(&Body::Resv(resv), 1, 255, &[]);
    let (message, body) = parse(&packet);
    assert_eq!((message.flags, body), (flag::REFRESH_REDUCTION_CAPABLE, Body::Resv(resv)));
    // The FLOWSPEC applies to both.
    let Body::Resv(resv) = body else { panic!() };
    assert!(resv.flows.iter().eq([flow(1, Some(TSPEC)), flow(2, Some(TSPEC))]));
}

#[test]
fn bundles_and_identifiers() {
    let own = MessageId { flags: MessageId::ACK_DESIRED, epoch: 0xabcdef, id: 9 };
    let ack = |known| MessageIdAck { known, flags: 0, epoch: 0x123456, id: 77 };
    let ids = [Object::MessageIdAck(ack(true)), Object::MessageIdAck(ack(false)), Object::MessageId(own)];
    let hello = Body::Hello(Hello { hello: HelloObject { request: true, source: 5, destination: 0 } });
    let (ack_only, numbers) = (emit(&Body::Ack, 1, 255, &ids[..1]), [1u32.to_be_bytes(), 5u32.to_be_bytes()]);
    let list = Object::MessageIdList(MessageIdList::new(0xfedcba, &numbers));
    let srefresh = emit(&Body::Srefresh, 1, 255, &[ids[0], list]);
    let mut packet = Vec::new();
    let mut writer = Writer::new(&mut packet, kind::BUNDLE, 1, 255);
    let inner = [emit(&hello, 1, 255, &ids), ack_only, srefresh];
    inner.iter().for_each(|message| writer.bytes(message));
    writer.finish();
    let bundle = Message::parse(&packet).unwrap();
    assert_eq!(bundle.objects().count(), 0);
    let messages: Vec<_> = bundle.submessages().map(Result::unwrap).collect();
    assert_eq!(messages.iter().map(|m| m.kind).collect::<Vec<_>>(), [kind::HELLO, kind::ACK, kind::SREFRESH]);
    assert_eq!(Body::parse(&messages[0]), Ok((hello, None)));
    let found: Vec<_> = messages[0].ids().map(Result::unwrap).collect();
    assert_eq!(found, [Ids::Ack(ack(true)), Ids::Ack(ack(false)), Ids::Own(own)]);
    let found: Vec<_> = messages[2].ids().map(Result::unwrap).collect();
    let Ids::List(list) = found[1] else { panic!("{found:?}") };
    assert_eq!((list.epoch, list.ids().collect::<Vec<_>>()), (0xfedcba, vec![1, 5]));
    // A Bundle must not contain another one.
    let mut nested = Vec::new();
    let mut writer = Writer::new(&mut nested, kind::BUNDLE, 1, 255);
    writer.bytes(&packet);
    writer.finish();
    let nested = Message::parse(&nested).unwrap();
    assert_eq!(nested.submessages().map(|sub| sub.is_ok()).collect::<Vec<_>>(), [false]);
}

#[test]
fn wrong_headers_are_refused() {
    let packet = bytes(PATH);
    let reason = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut changed = packet.clone();
        change(&mut changed);
        Message::parse(&changed).map_or_else(|e| e.reason, |_| "fine")
    };
    assert_eq!(reason(&|p| p.truncate(7)), "fewer than 8 bytes");
    assert_eq!(reason(&|p| p[0] = 0x20), "version is not 1");
    assert_eq!(reason(&|p| p[7] -= 1), "length does not fit");
    assert_eq!(reason(&|p| p.truncate(100)), "length does not fit");
    assert_eq!(reason(&|p| p.extend([0; 4])), "bytes after the message");
    assert_eq!(reason(&|p| p[20] ^= 1), "wrong checksum");
    assert_eq!(reason(&|p| (p[2], p[3], p[20]) = (0, 0, 9)), "fine", "no checksum");
    assert_eq!(reason(&|p| (p[2], p[3], p[9]) = (0, 0, 13)), "length of an object does not fit");
    assert_eq!(reason(&|p| (p[2], p[3], p[9]) = (0, 0, 0)), "length of an object does not fit");
}

#[test]
fn mandatory_objects_are_missed_and_unknown_ones_treated_by_their_class() {
    let with = |kind, objects: &[Object<'_>]| {
        let mut packet = Vec::new();
        let mut writer = Writer::new(&mut packet, kind, 0, 255);
        objects.iter().for_each(|object| writer.object(object));
        writer.finish();
        Body::parse(&Message::parse(&packet).unwrap()).map(|(_, unknown)| unknown)
    };
    let hop = Object::Hop(Hop { address: ip("192.0.2.1"), interface: 0 });
    let (session, template) = (Object::Session(SESSION), Object::SenderTemplate(SENDER));
    let tear = |other| with(kind::PATH_TEAR, &[session, hop, template, other]);
    assert_eq!(with(kind::PATH_TEAR, &[hop, template]).unwrap_err().reason, "no SESSION of an IPv4 tunnel");
    assert_eq!(with(kind::PATH_TEAR, &[session, template]).unwrap_err().reason, "no RSVP_HOP");
    assert_eq!(with(kind::PATH, &[session, hop, template]).unwrap_err().reason, "no TIME_VALUES");
    assert_eq!(with(kind::RESV, &[session, hop]).unwrap_err().reason, "no STYLE");
    assert_eq!(with(kind::RESV, &[session, hop, Object::Style(Style::FF)]).unwrap_err().reason, "no FILTER_SPEC");
    assert_eq!(with(99, &[]).unwrap_err().reason, "unknown type of message");
    let other = |class, ctype| Object::Other { class, ctype, body: &[1, 2, 3, 4] };
    let refused = |code, class: u8, ctype: u8| Some(UnknownObject { code, value: u16::from_be_bytes([class, ctype]) });
    assert_eq!(tear(other(100, 1)), Ok(refused(error::UNKNOWN_CLASS, 100, 1)));
    assert_eq!(tear(other(class::SESSION, 8)), Ok(refused(error::UNKNOWN_CTYPE, 1, 8)), "IPv6");
    assert_eq!(tear(other(class::LABEL, 2)), Ok(refused(error::UNKNOWN_CTYPE, 16, 2)));
    for ignored in [0, class::POLICY_DATA, 128, 191, 192, 255] {
        assert_eq!(tear(other(ignored, 1)), Ok(None), "class {ignored}");
    }
    use UnknownClass::*;
    assert_eq!([0, 127, 128, 191, 192, 255].map(UnknownClass::of), [Reject, Reject, Ignore, Ignore, Forward, Forward]);
}

#[test]
fn impossible_traffic_is_refused() {
    let mut packet = bytes(PATH);
    let tspec = packet.windows(4).position(|w| w == [0, 0x24, 12, 2]).unwrap() + 4;
    let mut reason = |at: usize, value: &[u8]| {
        let old = packet.clone();
        packet[tspec + at..][..value.len()].copy_from_slice(value);
        packet[2..4].fill(0);
        let refused = Body::parse(&Message::parse(&packet).unwrap()).map_or_else(|e| e.reason, |_| "fine");
        packet = old;
        refused
    };
    assert_eq!(reason(12, &f32::NAN.to_be_bytes()), "a negative rate or size");
    assert_eq!(reason(16, &(-1f32).to_be_bytes()), "a negative rate or size");
    assert_eq!(reason(20, &f32::INFINITY.to_be_bytes()), "fine", "an unknown peak rate");
    assert_eq!(reason(4, &[5]), "an unknown service in a traffic specification");
    assert_eq!(reason(8, &[126]), "a traffic specification without token bucket");
}

/// RFC 2205 sections 3.1.5 and 3.1.6.
#[test]
fn traffic_in_tear_messages_is_ignored() {
    let hop = Object::Hop(Hop { address: ip("192.0.2.1"), interface: 0 });
    let (session, template, filter) =
        (Object::Session(SESSION), Object::SenderTemplate(SENDER), Object::FilterSpec(SENDER));
    let parsed = |kind, objects: &[Object<'_>]| {
        let mut packet = Vec::new();
        let mut writer = Writer::new(&mut packet, kind, 0, 255);
        objects.iter().for_each(|object| writer.object(object));
        writer.finish();
        Body::parse(&Message::parse(&packet).unwrap()).map(|(body, unknown)| {
            let flows = if let Body::ResvTear(tear) = body { tear.flows.iter().count() } else { 0 };
            (flows, unknown.is_some())
        })
    };
    for ctype in [2, 99] {
        let odd = |class| Object::Other { class, ctype, body: &[9; 8] };
        let style = Object::Style(Style::SE);
        let tear = [session, hop, template, odd(class::SENDER_TSPEC), odd(class::ADSPEC)];
        assert_eq!(parsed(kind::PATH_TEAR, &tear), Ok((0, false)));
        let tear = [session, hop, style, odd(class::FLOWSPEC), filter, odd(class::FLOWSPEC), filter];
        assert_eq!(parsed(kind::RESV_TEAR, &tear), Ok((2, false)));
        let time = Object::TimeValues(1);
        let resv = [session, hop, time, style, odd(class::FLOWSPEC), filter];
        assert_ne!(parsed(kind::RESV, &resv), Ok((0, false)), "but not in others");
    }
}

fn address() -> impl Strategy<Value = Ipv4Addr> {
    any::<u32>().prop_map(Ipv4Addr::from_bits)
}

fn tspec() -> impl Strategy<Value = Tspec> {
    let float = || any::<f32>().prop_map(|x| if x.is_nan() { 1.0 } else { x.abs() });
    (float(), float(), float(), any::<u32>(), any::<u32>())
        .prop_map(|(rate, bucket, peak, min_policed, max_packet)| Tspec { rate, bucket, peak, min_policed, max_packet })
}

/// Hops of explicit and recorded routes, as bytes.
fn route() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec((any::<bool>(), any::<u32>(), 0u8..3), 0..6).prop_map(|hops| {
        let mut out = Vec::new();
        for (loose, number, kind) in hops {
            match kind {
                0 => ExplicitHop::Ipv4 { loose, address: number.into(), prefix_len: number as u8 }.emit(&mut out),
                1 => ExplicitHop::AsNumber { loose, number: number as u16 }.emit(&mut out),
                _ => RecordedHop::Label { flags: loose.into(), label: number }.emit(&mut out),
            }
        }
        out
    })
}

/// Any object, with its variable parts from `body`, `route` and `ids`.
fn object<'a>(
    (class, a, b, c, d): (u8, u32, u32, u16, u8),
    tspec: Tspec,
    body: &'a [u8],
    route: &'a [u8],
    ids: &'a [[u8; 4]],
) -> Object<'a> {
    let (first, second) = (Ipv4Addr::from(a), Ipv4Addr::from(b));
    let sender = Sender { address: first, lsp_id: c };
    match class % 21 {
        0 => Object::Session(Session { destination: first, tunnel_id: c, extended_tunnel_id: second }),
        1 => Object::Hop(Hop { address: first, interface: b }),
        2 => Object::TimeValues(a),
        3 => Object::Error(ErrorSpec { node: first, flags: d, code: b as u8, value: c }),
        4 => Object::Style(Style { flags: d, options: a & 0xff_ffff }),
        5 => Object::Flowspec(tspec),
        6 => Object::FilterSpec(sender),
        7 => Object::SenderTemplate(sender),
        8 => Object::SenderTspec(tspec),
        9 => Object::Adspec(Adspec {
            broken: d & 1 == 0,
            hops: a,
            bandwidth: tspec.rate,
            latency: b,
            mtu: c.into(),
            controlled_load: d & 2 == 0,
        }),
        10 => Object::Confirm(first),
        11 => Object::Label(a),
        12 => Object::LabelRequest(c),
        13 => Object::ExplicitRoute(ExplicitRoute::new(route).unwrap()),
        14 => Object::RecordRoute(RecordRoute::new(route).unwrap()),
        15 => Object::Hello(HelloObject { request: d & 1 == 0, source: a, destination: b }),
        16 => Object::MessageId(MessageId { flags: d, epoch: a & 0xff_ffff, id: b }),
        17 => Object::MessageIdAck(MessageIdAck { known: d & 1 == 0, flags: d, epoch: a & 0xff_ffff, id: b }),
        18 => Object::MessageIdList(MessageIdList { flags: d, epoch: a & 0xff_ffff, ids }),
        19 => {
            let affinities = (d & 1 == 0).then_some([a, b, c.into()]);
            let (setup, holding) = (a as u8, b as u8);
            Object::Attribute(SessionAttribute { affinities, setup, holding, flags: d, name: body })
        }
        _ => Object::Other { class: 200 + d % 6, ctype: c as u8, body: &body[..body.len() / 4 * 4] },
    }
}

proptest! {
    #[test]
    fn objects_are_read_as_they_were_written(
        fields: (u8, u32, u32, u16, u8), tspec in tspec(), body in proptest::collection::vec(any::<u8>(), 0..255),
        route in route(), ids in proptest::collection::vec(any::<[u8; 4]>(), 0..20),
    ) {
        let object = object(fields, tspec, &body, &route, &ids);
        let mut packet = Vec::new();
        let mut writer = Writer::new(&mut packet, kind::ACK, 1, 9);
        writer.object(&object);
        prop_assert_eq!(writer.message_len() % 4, 0);
        writer.finish();
        prop_assert_eq!(checksum::fold(checksum::sum(&packet)), 0xffff);
        let message = Message::parse(&packet).unwrap();
        let found: Vec<_> = message.objects().map(|raw| Object::parse(raw).unwrap()).collect();
        prop_assert_eq!(found, [object]);
    }

    #[test]
    fn messages_are_read_as_they_were_written(
        which in 0u8..7, tspec in tspec(), addresses in [address(), address(), address(), address()], numbers: [u16; 4],
        route in route(), name in proptest::collection::vec(any::<u8>(), 0..40), some: bool,
    ) {
        let session =
            Session { destination: addresses[0], tunnel_id: numbers[0], extended_tunnel_id: addresses[1] };
        let sender = Sender { address: addresses[1], lsp_id: numbers[1] };
        let hop = Hop { address: addresses[2], interface: numbers[2].into() };
        let error = ErrorSpec { node: addresses[3], flags: 1, code: numbers[3] as u8, value: numbers[2] };
        let record_route = some.then(|| RecordRoute::new(&route).unwrap());
        let (mut list, refresh) = (Vec::new(), numbers[3].into());
        let flow = Flow { flowspec: some.then_some(tspec), filter: sender, label: Some(refresh), record_route };
        flow.emit(&mut list);
        let flows = Flows::new(&list).unwrap();
        prop_assert!(flows.iter().eq([flow]));
        let (style, confirm) = (if some { Style::SE } else { Style::FF }, addresses[3]);
        let optional = some.then_some(tspec);
        let body = match which {
            0 => Body::Path(Path {
                session, hop, refresh,
                explicit_route: some.then(|| ExplicitRoute::new(&route).unwrap()),
                label_request: some.then_some(numbers[2]),
                attribute: some.then_some(SessionAttribute { affinities: None, setup: 1, holding: 2, flags: 3, name: &name }),
                sender, tspec,
                adspec: some.then_some(ADSPEC),
                record_route,
            }),
            1 => Body::Resv(Resv { session, hop, refresh, confirm: some.then_some(confirm), style, flows }),
            2 => Body::PathErr(PathErr { session, error, sender, tspec: optional }),
            3 => Body::ResvErr(ResvErr { session, hop, error, style, flows }),
            4 => Body::PathTear(PathTear { session, hop, sender, tspec: optional, adspec: some.then_some(ADSPEC) }),
            5 => Body::ResvTear(ResvTear { session, hop, style, flows }),
            _ => Body::ResvConf(ResvConf { session, error, confirm, style, flows }),
        };
        let packet = emit(&body, 1, 77, &[]);
        let (message, read) = parse(&packet);
        prop_assert_eq!((message.flags, message.ttl, message.kind), (1, 77, body.kind()));
        prop_assert_eq!(read, body);
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        mut packet in proptest::collection::vec(any::<u8>(), 0..120), kind in 0u8..22, class in 0u8..30, fix: bool,
    ) {
        if fix && packet.len() >= 12 {
            packet.truncate(packet.len() / 4 * 4);
            let length = packet.len() as u16;
            (packet[0], packet[1], packet[2], packet[3]) = (0x10, kind, 0, 0);
            packet[6..8].copy_from_slice(&length.to_be_bytes());
            packet[8..10].copy_from_slice(&(length - 8).to_be_bytes());
            packet[10] = class;
        }
        if let Ok(message) = Message::parse(&packet) {
            let _ = Body::parse(&message);
            message.ids().for_each(drop);
            message.submessages().for_each(drop);
        }
    }
}
