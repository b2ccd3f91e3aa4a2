//! A session between two LSRs of FRR, recorded on the wire. Our session takes the place of either.

use drophammer_emulation::ldp::session::Event;
use drophammer_emulation::ldp::{Bindings, Cause, LsrConfig, Session, State};
use drophammer_model::Instant;
use drophammer_wire::ldp::status::code;
use drophammer_wire::ldp::{FecElement, Label, LdpId, Message, PduWriter, Status, frame};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

const RECORDING: &str = include_str!("frr.txt");
const A: LdpId = LdpId::platform(Ipv4Addr::new(1, 1, 1, 1));
const B: LdpId = LdpId::platform(Ipv4Addr::new(2, 2, 2, 2));

/// Time, sender and bytes.
fn lines() -> Vec<(Instant, LdpId, Vec<u8>)> {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    let line = |line: &str| {
        let [at, sender, hex] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let bytes = hex.as_bytes().chunks(2).map(byte).collect();
        (Instant((at.parse::<f64>().unwrap() * 1e9) as u64), if sender == "a" { A } else { B }, bytes)
    };
    RECORDING.lines().filter(|line| !line.starts_with('#')).map(line).collect()
}

#[test]
fn every_message_is_understood_and_written_back() {
    let mut kinds = BTreeMap::new();
    for (_, sender, bytes) in lines() {
        let mut rest = &bytes[..];
        while let Some(pdu) = frame(rest, 4096).unwrap() {
            assert_eq!(pdu.id, sender);
            let mut again = vec![0; pdu.pdu_len()];
            let mut pdus = PduWriter::new(&mut again, sender, 4096);
            for raw in pdu.messages() {
                let raw = raw.unwrap();
                *kinds.entry(raw.kind).or_insert(0) += 1;
                assert!(pdus.push(raw.id, &raw.parse().unwrap().unwrap()));
            }
            assert_eq!(again, rest[..pdu.pdu_len()]);
            rest = &rest[pdu.pdu_len()..];
        }
        assert!(rest.is_empty());
    }
    let count = |kind: u16| kinds.get(&kind).copied().unwrap_or(0);
    assert_eq!([0x001, 0x200, 0x300, 0x301, 0x402, 0x403].map(count), [2, 4, 5, 1, 5, 5], "{kinds:?}");
}

/// Replays recorded session number `which` with our session in the place of `me`. Returns the labels that it has then, and
/// why the session ended.
fn replay(me: LdpId, which: usize, chunk: usize) -> (Session, Bindings, Bindings) {
    let peer = if me == A { B } else { A };
    let all = lines();
    let is_init = |bytes: &[u8]| bytes[10..12] == [2, 0];
    let starts: Vec<_> = (0..all.len()).filter(|at| all[*at].1 == B && is_init(&all[*at].2)).collect();
    let end = starts.get(which + 1).copied().unwrap_or(all.len());
    let begun = all[starts[which]].0;
    let config = LsrConfig::new(me.lsr, me.lsr);
    let mut session = Session::new(begun, &config, peer, me == B);
    let (mut held, mut room) = (Vec::new(), vec![0; 5000]);
    let (mut bindings, mut most) = (Bindings::new(begun, &[]), Bindings::new(begun, &[]));
    for (at, sender, bytes) in &all[starts[which]..end] {
        if *sender == peer {
            for piece in bytes.chunks(chunk) {
                held.extend_from_slice(piece);
                let consumed = session.receive(*at, &held, &mut |event, _| match event {
                    Event::Message(_, Message::LabelMapping { fecs, label, .. }) => {
                        fecs.prefixes().for_each(|prefix| _ = bindings.mapped(*at, prefix, label));
                        most = bindings.clone();
                    }
                    Event::Message(_, Message::LabelWithdraw { fecs, label }) => {
                        fecs.iter().for_each(|fec| match fec {
                            FecElement::Prefix(prefix) => _ = bindings.removed(*at, prefix, label),
                            _ => bindings.all_removed(*at, label, None),
                        })
                    }
                    Event::Message(..) => {}
                    Event::Notified(status) => panic!("{status}"),
                });
                held.drain(..consumed);
            }
        }
        session.run_timers(*at);
        session.write(*at, &mut room, &mut |_, _| {});
    }
    assert!(held.is_empty());
    (session, bindings, most)
}

#[test]
fn our_session_in_the_place_of_either() {
    let labels = |bindings: &Bindings| {
        bindings.others().map(|(prefix, label)| (prefix.to_string(), label.value())).collect::<BTreeMap<_, _>>()
    };
    let map = |all: &[(&str, u32)]| all.iter().map(|(prefix, label)| (prefix.to_string(), *label)).collect();
    for chunk in [1, 7, 10_000] {
        let (session, left, most) = replay(A, 0, chunk);
        assert_eq!(session.ended(), Some(Cause::Received(Status::new(code::SHUTDOWN))), "b clears the session");
        assert_eq!(
            (session.state(), session.keepalive().as_secs(), session.max_pdu()),
            (State::Operational, 180, 4096)
        );
        let stays: &[_] =
            &[("1.1.1.1/32", 16), ("2.2.2.2/32", 3), ("10.0.0.0/24", 3), ("10.2.1.0/24", 17), ("10.2.2.0/24", 18)];
        assert_eq!(labels(&left), map(stays));
        assert_eq!(labels(&most), map(&[stays, &[("10.9.9.0/24", 3)]].concat()));

        let (session, left, _) = replay(B, 0, chunk);
        assert_eq!((session.state(), session.ended()), (State::Operational, None));
        assert_eq!(
            labels(&left),
            map(&[("1.1.1.1/32", 3), ("2.2.2.2/32", 16), ("10.0.0.0/24", 3), ("10.1.2.0/24", 18)])
        );

        let (session, left, _) = replay(B, 1, chunk);
        assert_eq!(session.ended(), Some(Cause::Received(Status::new(code::SHUTDOWN))), "a turns LDP off");
        let nulls: Vec<_> =
            labels(&left).into_iter().filter(|(_, label)| *label == Label::EXPLICIT_NULL.value()).collect();
        assert_eq!(nulls, [("1.1.1.1/32".into(), 0), ("10.0.0.0/24".into(), 0)]);
    }
}
