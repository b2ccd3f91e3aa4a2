//! tshark decodes every RSVP message without complaint, with right checksums.

mod tshark;

use drophammer_wire::ethernet::{self, ethertype};
use drophammer_wire::rsvp::*;
use drophammer_wire::{MacAddr, ipv4};
use std::net::Ipv4Addr;

const A: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
const B: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 1);

/// An Ethernet frame with a message.
fn frame(message: &[u8], router_alert: bool) -> Vec<u8> {
    let header = if router_alert { ipv4::LEN_ROUTER_ALERT } else { ipv4::LEN };
    let mut frame = vec![0; ethernet::LEN + header];
    let [destination, source] = [1, 2].map(MacAddr::local);
    ethernet::Repr { destination, source, ethertype: ethertype::IPV4 }.emit(&mut frame);
    let ip = ipv4::Repr {
        tos: 0xc0,
        identification: 1,
        dont_fragment: false,
        ttl: 255,
        protocol: ipv4::protocol::RSVP,
        source: A,
        destination: B,
        payload_len: message.len(),
    };
    match router_alert {
        true => ip.emit_with_router_alert(&mut frame[ethernet::LEN..]),
        false => ip.emit(&mut frame[ethernet::LEN..]),
    }
    frame.extend_from_slice(message);
    frame
}

/// One message of each type, with every object.
fn messages() -> Vec<Vec<u8>> {
    let session = Session { destination: B, tunnel_id: 7, extended_tunnel_id: A };
    let (sender, hop) = (Sender { address: A, lsp_id: 9 }, Hop { address: A, interface: 1 });
    let tspec = Tspec::constant(1e6, 1500);
    let adspec = Adspec { broken: false, hops: 1, bandwidth: 1e9, latency: 5, mtu: 1500, controlled_load: true };
    let (mut route, mut record, mut list) = (Vec::new(), Vec::new(), Vec::new());
    ExplicitHop::Ipv4 { loose: false, address: A, prefix_len: 32 }.emit(&mut route);
    ExplicitHop::Ipv4 { loose: true, address: B, prefix_len: 24 }.emit(&mut route);
    ExplicitHop::AsNumber { loose: true, number: 65000 }.emit(&mut route);
    RecordedHop::Ipv4 { address: A, prefix_len: 32, flags: 1 }.emit(&mut record);
    RecordedHop::Label { flags: 1, label: 1000 }.emit(&mut record);
    let record_route = RecordRoute::new(&record).ok();
    Flow { flowspec: Some(tspec), filter: sender, label: Some(1000), record_route }.emit(&mut list);
    let flows = Flows::new(&list).unwrap();
    let error = ErrorSpec { node: B, flags: 0, code: error::ROUTING_PROBLEM, value: routing::NO_ROUTE };
    let style = Style::SE;
    let attribute =
        |affinities| SessionAttribute { affinities, setup: 7, holding: 0, flags: 4, name: b"to the egress" };
    let path = |affinities| {
        Body::Path(Path {
            session,
            hop,
            refresh: 30_000,
            explicit_route: ExplicitRoute::new(&route).ok(),
            label_request: Some(0x800),
            attribute: Some(attribute(affinities)),
            sender,
            tspec,
            adspec: Some(adspec),
            record_route,
        })
    };
    let conf = ErrorSpec { code: error::CONFIRMATION, value: 0, ..error };
    let bodies = [
        path(None),
        path(Some([1, 2, 3])),
        Body::Resv(Resv { session, hop, refresh: 30_000, confirm: Some(B), style, flows }),
        Body::Resv(Resv { session, hop, refresh: 30_000, confirm: None, style: Style::FF, flows }),
        Body::PathErr(PathErr { session, error, sender, tspec: Some(tspec) }),
        Body::ResvErr(ResvErr { session, hop, error, style, flows }),
        Body::PathTear(PathTear { session, hop, sender, tspec: Some(tspec), adspec: Some(adspec) }),
        Body::ResvTear(ResvTear { session, hop, style, flows }),
        Body::ResvConf(ResvConf { session, error: conf, confirm: B, style, flows }),
        Body::Hello(Hello { hello: HelloObject { request: true, source: 1, destination: 0 } }),
        Body::Hello(Hello { hello: HelloObject { request: false, source: 2, destination: 1 } }),
    ];
    let id = Object::MessageId(MessageId { flags: 1, epoch: 0x123456, id: 5 });
    let ack = |known| Object::MessageIdAck(MessageIdAck { known, flags: 0, epoch: 0x123456, id: 5 });
    let mut all: Vec<Vec<u8>> = Vec::new();
    let mut add = |body: &Body<'_>, ids: &[Object<'_>]| {
        let mut message = Vec::new();
        body.emit(1, 255, ids, &mut message);
        all.push(message);
    };
    bodies.iter().for_each(|body| add(body, &[]));
    add(&bodies[0], &[ack(true), id]);
    add(&bodies[2], &[id]);
    add(&Body::Ack, &[ack(true), ack(false)]);
    let ids = [1u32, 2, 3].map(u32::to_be_bytes);
    add(&Body::Srefresh, &[Object::MessageIdList(MessageIdList::new(0x123456, &ids))]);
    let mut bundle = Vec::new();
    let mut writer = Writer::new(&mut bundle, kind::BUNDLE, 1, 255);
    all[11..].iter().for_each(|message| writer.bytes(message));
    writer.finish();
    all.push(bundle);
    all
}

/// Text and fields of each message; `None` without tshark.
fn decoded(name: &str, messages: &[Vec<u8>]) -> Option<(Vec<Vec<String>>, String)> {
    let frames: Vec<_> = messages.iter().enumerate().map(|(i, message)| frame(message, i % 2 == 0)).collect();
    let frames: Vec<_> = (0..).map(|i| i * 1_000_000_000).zip(frames.iter().map(Vec::as_slice)).collect();
    let fields = ["_ws.malformed", "_ws.expert.severity", "ip.checksum.status", "rsvp.msg", "ip.opt.type"];
    Some((tshark::decode(name, &frames, &fields)?, tshark::text(name, &frames)?))
}

#[test]
fn tshark_decodes_every_message() {
    const ERROR: u32 = 0x0060_0000;
    let messages = messages();
    let Some((lines, text)) = decoded("rsvp", &messages) else { return };
    let kinds: Vec<&str> = lines.iter().map(|line| line[3].split(',').next().unwrap()).collect();
    assert_eq!(kinds, ["1", "1", "2", "2", "3", "4", "5", "6", "7", "20", "20", "1", "2", "13", "15", "12"]);
    for (i, line) in lines.iter().enumerate() {
        assert!(line[0].is_empty(), "malformed: {line:?}");
        assert!(line[1].split(',').filter_map(|s| s.parse().ok()).all(|severity: u32| severity < ERROR), "{line:?}");
        assert_eq!((line[2].as_str(), !line[4].is_empty()), ("1", i % 2 == 0));
    }
    // tshark does not verify the checksum of the Bundle, but it verifies the checksums of its four messages.
    let right = text.lines().filter(|line| line.contains("Message Checksum") && line.contains("[correct]"));
    assert_eq!(right.count(), messages.len() - 1 + 4);
    // tshark has no name for the C-Type of a LABEL_REQUEST without label range.
    let strange = |line: &&str| ["incorrect", "alformed", "nknown"].iter().any(|word| line.contains(word));
    let strange: Vec<_> = text.lines().filter(strange).filter(|line| line.trim() != "C-Type: Unknown (1)").collect();
    assert!(strange.is_empty(), "{strange:?}");
    // Shows that the checks can fail.
    let mut broken = messages[..1].to_vec();
    broken[0][3] ^= 1;
    assert!(decoded("rsvp-broken", &broken).unwrap().1.contains("incorrect"));
}
