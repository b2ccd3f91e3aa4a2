//! LDP: any bytes are split into the same PDUs wherever they are cut, what was read means the same when it is written again, and a session
//! takes whatever comes at whatever time.

use super::input::Input;
use drophammer_emulation::ldp::session::Event;
use drophammer_emulation::ldp::{Bindings, FecRange, LsrConfig, Session, State};
use drophammer_model::Instant;
use drophammer_wire::ldp::pdu::HEADER_LEN;
use drophammer_wire::ldp::{
    FecElement, Initialization, LdpId, Message, PduWriter, RawMessage, frame, kind, parse_hello,
};
use std::net::Ipv4Addr;
use std::time::Duration;

const OWN: LdpId = LdpId::platform(Ipv4Addr::new(192, 0, 2, 1));
const PEER: LdpId = LdpId::platform(Ipv4Addr::new(192, 0, 2, 9));

/// A stream, or the life of a session.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    if input.flag() { stream(&mut input) } else { session(&mut input) }
}

/// A PDU of the peer with one message of a known type and any body, or any bytes.
fn pdu(input: &mut Input) -> Vec<u8> {
    let kinds = [
        kind::NOTIFICATION,
        kind::HELLO,
        kind::INITIALIZATION,
        kind::KEEPALIVE,
        kind::ADDRESS,
        kind::ADDRESS_WITHDRAW,
        kind::LABEL_MAPPING,
        kind::LABEL_REQUEST,
        kind::LABEL_WITHDRAW,
        kind::LABEL_RELEASE,
        kind::LABEL_ABORT_REQUEST,
        0x8000 | kind::CAPABILITY,
    ];
    let (choice, length) = (input.below(kinds.len() + 2), usize::from(input.u8()));
    let body = input.bytes(length);
    if choice > kinds.len() {
        return body.to_vec();
    }
    let mut message = kinds.get(choice).copied().unwrap_or(0x0999).to_be_bytes().to_vec();
    message.extend((body.len() as u16 + 4).to_be_bytes());
    message.extend([0, 0, 0, 7]);
    message.extend(body);
    packed(|pdus| assert!(pdus.push_written(&message)))
}

/// What `fill` writes as the peer.
fn packed(fill: impl FnOnce(&mut PduWriter)) -> Vec<u8> {
    let mut room = vec![0; 600];
    let mut pdus = PduWriter::new(&mut room, PEER, 4096);
    fill(&mut pdus);
    let length = pdus.written();
    room.truncate(length);
    room
}

fn stream(input: &mut Input) {
    let cut = usize::from(input.u8()) + 1;
    let mut bytes = Vec::new();
    while !input.is_empty() && bytes.len() < 10_000 {
        bytes.extend(pdu(input));
    }
    let _ = parse_hello(&bytes);
    let (mut at, mut whole) = (0, Vec::new());
    let end = loop {
        match frame(&bytes[at..], 4096) {
            Ok(Some(pdu)) => {
                pdu.messages().map_while(Result::ok).for_each(read);
                at += pdu.pdu_len();
                whole.push(at);
            }
            Ok(None) => break None,
            Err(status) => break Some(status),
        }
    };
    // The same again, in pieces.
    let (mut from, mut to, mut pieces) = (0, 0, Vec::new());
    while to < bytes.len() {
        to = (to + cut).min(bytes.len());
        match frame(&bytes[from..to], 4096) {
            Ok(Some(pdu)) => {
                from += pdu.pdu_len();
                pieces.push(from);
                to = from;
            }
            Ok(None) => {}
            Err(status) => {
                assert_eq!(Some(status), end);
                break;
            }
        }
    }
    assert_eq!(pieces, whole);
}

fn read(raw: RawMessage) {
    match raw.parse() {
        Ok(Some(message)) => {
            let mut again = vec![0; message.message_len() + HEADER_LEN];
            let mut pdus = PduWriter::new(&mut again, PEER, u16::MAX);
            assert!(pdus.push(raw.id, &message));
            let pdu = frame(&again, u16::MAX).unwrap().unwrap();
            let written = pdu.messages().next().unwrap().unwrap();
            assert_eq!((written.id, written.parse()), (raw.id, Ok(Some(message))));
        }
        Ok(None) => assert!(raw.ignorable),
        Err(status) => assert!(status.message_id == raw.id && !status.to_string().is_empty()),
    }
}

fn session(input: &mut Input) {
    let config = LsrConfig {
        keepalive: u16::from(input.u8()) + 1,
        max_pdu: 256 + u16::from(input.u8()),
        ..LsrConfig::new(OWN.lsr, OWN.lsr)
    };
    let mut now = Instant(1);
    let mut bindings = Bindings::new(now, &[FecRange::new("10.0.0.0/8".parse().unwrap(), 4)]);
    let mut session = Session::new(now, &config, PEER, input.flag());
    let mut held = Vec::new();
    for _ in 0..500 {
        if input.is_empty() || session.ended().is_some() {
            break;
        }
        match input.below(6) {
            0 => now = now + Duration::from_millis(input.u16().into()),
            1 => {
                let mut room = vec![0; usize::from(input.u8()) * 8];
                let length = session.write(now, &mut room, &mut |_, _| {});
                let mut rest = &room[..length];
                while let Some(pdu) = frame(rest, config.max_pdu.max(4096)).unwrap() {
                    pdu.messages().for_each(|raw| assert!(raw.unwrap().parse().unwrap().is_some()));
                    rest = &rest[pdu.pdu_len()..];
                }
                assert!(rest.is_empty(), "whole PDUs only");
            }
            2 => {
                let init = Message::Initialization(Initialization::new(input.u16(), OWN));
                held.extend(packed(|pdus| assert!(pdus.push(1, &init) && pdus.push(2, &Message::KeepAlive))));
            }
            _ => held.extend(pdu(input)),
        }
        let consumed = session.receive(now, &held, &mut |event, outbox| match event {
            Event::Message(_, Message::LabelMapping { fecs, label, .. }) => {
                fecs.prefixes().for_each(|prefix| {
                    bindings.mapped(now, prefix, label);
                    assert_eq!(bindings.label_for(&prefix), Some(label));
                });
            }
            Event::Message(_, Message::LabelWithdraw { fecs, label }) => {
                fecs.iter().for_each(|fec| match fec {
                    FecElement::Prefix(prefix) => _ = bindings.removed(now, prefix, label),
                    _ => bindings.all_removed(now, label, None),
                });
                outbox.push(&Message::LabelRelease { fecs, label });
            }
            _ => {}
        });
        assert!(consumed <= held.len());
        held.drain(..consumed);
        session.run_timers(now);
        assert!(session.ended().is_some() || session.next_deadline() > now, "it would be polled for ever");
        assert!(bindings.is_empty() || session.state() == State::Operational);
    }
    let known = bindings.verification(0).unwrap().present as usize + bindings.others().len();
    assert_eq!(bindings.len(), known);
    bindings.lost(now);
    assert!(bindings.is_empty());
}
