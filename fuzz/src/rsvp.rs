//! RSVP: what was read means the same when it is written again, and a device takes whatever comes at whatever time.

use super::input::Input;
use drophammer_emulation::protocol::{Command, ProtocolConfig};
use drophammer_emulation::rsvp::{
    EgressRange, HelloConfig, IngressRange, LabelPolicy, LspRange, MOST_FOREIGN, NAME, Pace, RefreshReduction, Rsvp,
    RsvpCommand, RsvpConfig,
};
use drophammer_emulation::{Address, Device, DeviceConfig};
use drophammer_model::Instant;
use drophammer_wire::ethernet::{self, ethertype};
use drophammer_wire::rsvp::{
    Body, ErrorSpec, Flow, Flows, Hello, HelloObject, Hop, Message, MessageId, MessageIdAck, MessageIdList, Object,
    Path, PathErr, PathTear, Resv, ResvConf, ResvErr, ResvTear, Sender, Session, Style, Tspec, Writer, kind,
};
use drophammer_wire::{MacAddr, ipv4};
use std::net::Ipv4Addr;
use std::time::Duration;

const OWN: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
const GATEWAY: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const INGRESS: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
const EGRESS: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 1);

/// A message, or the life of a device.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    if input.flag() { message(&mut input) } else { life(&mut input) }
}

/// Objects as they come behind a sound header, with lengths that fit.
fn raw(input: &mut Input, kind: u8) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out, kind, input.u8(), input.u8());
    while !input.is_empty() && writer.message_len() < 2_000 {
        let (class, ctype) = (input.u8(), input.below(9) as u8);
        let length = usize::from(input.u8() / 4 * 4);
        let mut body = input.bytes(length).to_vec();
        body.resize(length, 0);
        writer.object(&Object::Other { class, ctype, body: &body });
    }
    writer.finish();
    out
}

fn message(input: &mut Input) {
    let bytes = match input.below(3) {
        0 => input.bytes(4_000).to_vec(),
        _ => {
            let kind = input.below(22) as u8;
            raw(input, kind)
        }
    };
    let Ok(message) = Message::parse(&bytes) else { return };
    for raw in message.objects() {
        let Ok(object) = Object::parse(raw) else { continue };
        let mut again = Vec::new();
        let mut writer = Writer::new(&mut again, kind::ACK, 0, 0);
        writer.object(&object);
        writer.finish();
        let found = Message::parse(&again).unwrap().objects().next().unwrap();
        assert_eq!(Object::parse(found), Ok(object));
    }
    message.ids().for_each(drop);
    for sub in message.submessages() {
        assert!(sub.is_err() || sub.unwrap().kind != kind::BUNDLE);
    }
    if let Ok((body, _)) = Body::parse(&message) {
        let mut again = Vec::new();
        body.emit(message.flags, message.ttl, &[], &mut again);
        let written = Message::parse(&again).unwrap();
        let (read, _) = Body::parse(&written).unwrap();
        assert_eq!((read.kind(), written.flags, written.ttl), (body.kind(), message.flags, message.ttl));
        assert!(
            read == body || matches!(body, Body::Resv(_) | Body::ResvErr(_) | Body::ResvTear(_) | Body::ResvConf(_))
        );
    }
}

/// A message about an LSP of the device or another one.
fn composed(input: &mut Input) -> Vec<u8> {
    let which = input.below(12);
    let n = input.below(6) as u16;
    let (destination, address) = match input.below(4) {
        0 => (EGRESS, INGRESS),
        1 => (INGRESS, EGRESS),
        2 => (OWN, GATEWAY),
        _ => (Ipv4Addr::from_bits(input.u32()), INGRESS),
    };
    let session = Session { destination, tunnel_id: n, extended_tunnel_id: address };
    let sender = Sender { address, lsp_id: n };
    let hop = Hop { address: if input.flag() { GATEWAY } else { Ipv4Addr::from_bits(input.u32()) }, interface: 3 };
    let tspec = Tspec::constant(f32::from(input.u8()), 1500);
    let error = ErrorSpec { node: GATEWAY, flags: 0, code: input.u8(), value: 1 };
    let (style, refresh) = ([Style::FF, Style::SE, Style { flags: 0, options: 0 }][input.below(3)], input.u16().into());
    let (mut list, epoch, id) = (Vec::new(), u32::from(input.u8() & 1), u32::from(input.u8()));
    let label = Some(u32::from(input.u8()) << 13);
    Flow { flowspec: Some(tspec), filter: sender, label, record_route: None }.emit(&mut list);
    let flows = Flows::new(&list).unwrap();
    let body = match which {
        0..=2 => Body::Path(Path {
            session,
            hop,
            refresh,
            explicit_route: None,
            label_request: Some(0x800),
            attribute: None,
            sender,
            tspec,
            adspec: None,
            record_route: None,
        }),
        3..=4 => Body::Resv(Resv { session, hop, refresh, confirm: input.flag().then_some(GATEWAY), style, flows }),
        5 => Body::PathTear(PathTear { session, hop, sender, tspec: None, adspec: None }),
        6 => Body::ResvTear(ResvTear { session, hop, style, flows }),
        7 => Body::PathErr(PathErr { session, error, sender, tspec: None }),
        8 => Body::ResvErr(ResvErr { session, hop, error, style, flows }),
        9 => Body::ResvConf(ResvConf { session, error, confirm: OWN, style, flows }),
        10 => Body::Hello(Hello { hello: HelloObject { request: input.flag(), source: id, destination: refresh } }),
        _ => Body::Srefresh,
    };
    let numbers = [id.to_be_bytes(), (id + 1).to_be_bytes()];
    let ids = match input.below(4) {
        0 => Object::MessageId(MessageId { flags: input.u8(), epoch, id }),
        1 => Object::MessageIdAck(MessageIdAck { known: input.flag(), flags: 0, epoch, id }),
        _ => Object::MessageIdList(MessageIdList::new(epoch, &numbers)),
    };
    let mut out = Vec::new();
    body.emit(input.u8(), 255, if input.flag() { std::slice::from_ref(&ids) } else { &[] }, &mut out);
    out
}

fn device(input: &mut Input) -> Device {
    let choice = input.u8();
    let bit = |n: u8| choice >> n & 1 == 1;
    let range = |sender, endpoint| LspRange { tunnels_per_endpoint: 3, ..LspRange::new(5, sender, endpoint) };
    let reduction = RefreshReduction { summary_refresh: bit(1), bundle: bit(2), ..RefreshReduction::default() };
    let config = RsvpConfig {
        ingress: vec![IngressRange { record_route: bit(3), ..IngressRange::new(range(INGRESS, EGRESS)) }],
        egress: vec![EgressRange { lsps: range(EGRESS, INGRESS), labels: LabelPolicy::From(16) }],
        refresh_reduction: bit(0).then_some(reduction),
        hello: bit(4).then_some(HelloConfig { interval: Duration::from_secs(1) }),
        confirm: bit(5),
        ..RsvpConfig::default()
    };
    let base = DeviceConfig {
        ipv4: Some(Address { address: OWN, prefix_len: 24, gateway: GATEWAY }),
        ..DeviceConfig::new("router", MacAddr::local(1), 1)
    };
    let rsvp = ProtocolConfig::Rsvp(Box::new(config)).create(&base).unwrap();
    let mut device = Device::new(base);
    device.add_protocol(rsvp);
    device.fix_gateway(MacAddr::local(2));
    device
}

/// A frame with RSVP from the gateway.
fn frame(message: &[u8], source: Ipv4Addr, destination: Ipv4Addr) -> Vec<u8> {
    let mut frame = vec![0; ethernet::LEN + ipv4::LEN_ROUTER_ALERT];
    let [own, gateway] = [1, 2].map(MacAddr::local);
    ethernet::Repr { destination: own, source: gateway, ethertype: ethertype::IPV4 }.emit(&mut frame);
    let ip = ipv4::Repr {
        tos: 0,
        identification: 0,
        dont_fragment: false,
        ttl: 255,
        protocol: ipv4::protocol::RSVP,
        source,
        destination,
        payload_len: message.len(),
    };
    ip.emit_with_router_alert(&mut frame[ethernet::LEN..]);
    frame.extend_from_slice(message);
    frame
}

fn life(input: &mut Input) {
    let mut device = device(input);
    let mut now = Instant(1);
    device.command(now, NAME, &Command::Start).unwrap();
    for _ in 0..500 {
        if input.is_empty() {
            break;
        }
        let mut sent = 0;
        let mut out = |frame: &[u8]| {
            sent += 1;
            let (ip, payload) = ipv4::Repr::parse(&frame[ethernet::LEN..]).unwrap();
            assert_eq!(ip.protocol, ipv4::protocol::RSVP);
            let message = Message::parse(payload).unwrap();
            for sub in
                message.submessages().map(Result::unwrap).chain((message.kind != kind::BUNDLE).then_some(message))
            {
                assert_eq!(Body::parse(&sub).unwrap().1, None, "only known objects");
            }
        };
        match input.below(6) {
            0 => {
                now = now + Duration::from_millis(u64::from(input.u16()) * 4);
                while device.next_deadline().is_some_and(|due| due <= now) {
                    device.poll(now, 64 << 10, &mut out);
                }
                assert!(sent < 10_000, "{sent} frames in one poll");
            }
            1 => {
                let (first, per_second) = (input.below(5) as u32, input.u8().into());
                let pace = Pace { lsps: first..5, per_second };
                let own = |command| Command::Rsvp(command);
                let command = match input.below(5) {
                    0 => own(RsvpCommand::TearDown(pace)),
                    1 => own(RsvpCommand::Release(pace)),
                    2 => [Command::Start, Command::Stop][input.below(2)].clone(),
                    _ => own(RsvpCommand::SetUp(pace)),
                };
                let _ = device.command(now, NAME, &command);
            }
            choice => {
                let length = usize::from(input.u8());
                let message = match choice {
                    2 => input.bytes(length).to_vec(),
                    3 => {
                        let kind = input.below(22) as u8;
                        raw(&mut Input(input.bytes(length)), kind)
                    }
                    _ => composed(input),
                };
                let destination = if input.flag() { OWN } else { INGRESS };
                device.receive(now, &frame(&message, GATEWAY, destination), &mut out);
                // An answer, and a confirmation, for each of the messages and flows.
                assert!(sent <= 2 + message.len() / 8, "{sent} frames for {} bytes", message.len());
            }
        }
        let rsvp = device.protocol::<Rsvp>().unwrap();
        assert!(rsvp.foreign_len() <= MOST_FOREIGN && rsvp.errors().count() <= 64);
        let up = (0..5).filter(|lsp| rsvp.label_of(*lsp).is_some()).count()
            + (0..5 + 1_000).filter(|lsp| rsvp.egress_of(*lsp).is_some()).count();
        let state = device.protocols().find(|p| p.name() == NAME).unwrap().state();
        assert_eq!((state.sessions, state.up), (10, up as u32));
    }
}
