//! Every message is written and parsed; errors have their status; arbitrary bytes do not panic.

use super::*;
use crate::ldp::fec::PrefixFec;
use crate::ldp::pdu::{HEADER_LEN, PduWriter, frame, parse_hello};
use drophammer_model::routes::Prefix;
use proptest::prelude::*;

const OWN: LdpId = LdpId::platform(Ipv4Addr::new(2, 2, 2, 2));

fn bytes(hex: &str) -> Vec<u8> {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    hex.as_bytes().chunks(2).map(byte).collect()
}

fn messages(stream: &[u8]) -> Vec<(u32, Message<'_>)> {
    let pdu = frame(stream, DEFAULT_MAX).unwrap().unwrap();
    assert_eq!(pdu.pdu_len(), stream.len());
    pdu.messages().map(|raw| raw.unwrap()).map(|raw| (raw.id, raw.parse().unwrap().unwrap())).collect()
}

fn packed(messages: &[(u32, Message<'_>)]) -> Vec<u8> {
    let mut room = vec![0xee; 5000];
    let mut writer = PduWriter::new(&mut room, OWN, DEFAULT_MAX);
    messages.iter().for_each(|(id, message)| assert!(writer.push(*id, message)));
    let written = writer.written();
    room.truncate(written);
    room
}

fn prefix(text: &str) -> PrefixFec {
    PrefixFec::new(text.parse().unwrap())
}

/// PDUs of FRR 8.4.4's ldpd with router ID 2.2.2.2, and their contents.
#[test]
fn what_frr_sends() {
    let init =
        bytes("0001002f02020202000002000025000000030500000e000100b4000000000101010100008506000180850b0001808603000180");
    let capabilities = Capabilities { dynamic: true, typed_wildcard: true, unrecognized_notification: true };
    let receiver = LdpId::platform(Ipv4Addr::new(1, 1, 1, 1));
    // FRR sends 0 for the default.
    let said = Initialization { max_pdu: 0, capabilities, ..Initialization::new(180, receiver) };
    assert_eq!(messages(&init), [(3, Message::Initialization(said))]);

    let address = bytes("000100180202020200000300000e000000a50101000600010a090901");
    assert_eq!(messages(&address), [(0xa5, Message::Address(Addresses::ipv4(&[[10, 9, 9, 1]])))]);
    let gone = bytes("000100180202020200000301000e000000a70101000600010a090901");
    assert_eq!(messages(&gone), [(0xa7, Message::AddressWithdraw(Addresses::ipv4(&[[10, 9, 9, 1]])))]);

    let mapping = bytes("0001002102020202000004000017000000a601000007020001180a09090200000400000003");
    let fec = prefix("10.9.9.0/24");
    let (fecs, label) = (fec.fecs(), Label::IMPLICIT_NULL);
    assert_eq!(messages(&mapping), [(0xa6, Message::LabelMapping { fecs, label, request: None })]);
    let withdraw = bytes("0001002102020202000004020017000000a801000007020001180a09090200000400000003");
    assert_eq!(messages(&withdraw), [(0xa8, Message::LabelWithdraw { fecs, label: Some(label) })]);
    let release = bytes("0001002102020202000004030017000000a301000007020001180a09090200000400000003");
    assert_eq!(messages(&release), [(0xa3, Message::LabelRelease { fecs, label: Some(label) })]);
    let all = bytes("0001001b02020202000004020011000000b301000001010200000400000003");
    assert_eq!(messages(&all), [(0xb3, Message::LabelWithdraw { fecs: Fecs::WILDCARD, label: Some(label) })]);

    let shutdown = bytes("0001001c02020202000000010012000000ab0300000a8000000a000000000000");
    assert_eq!(messages(&shutdown), [(0xab, Message::Notification(Status::new(code::SHUTDOWN)))]);
    let alive = bytes("0001000e0202020200000201000400000004");
    assert_eq!(messages(&alive), [(4, Message::KeepAlive)]);
    for pdu in [init, address, gone, mapping, withdraw, release, all, shutdown, alive] {
        assert_eq!(packed(&messages(&pdu)), pdu);
    }
}

#[test]
fn a_hello_of_frr() {
    let datagram = bytes("000100260202020200000100001c0000000104000004000f200004010004020202020402000400000002");
    let hello = Hello { gtsm: true, sequence: Some(2), ..Hello::link(15, OWN.lsr) };
    assert_eq!(parse_hello(&datagram), Ok((OWN, hello)));
    assert_eq!(packed(&[(1, Message::Hello(hello))]), datagram);
    let six = Hello { targeted: true, request_targeted: true, ipv6_transport: "2001:db8::1".parse().ok(), ..hello };
    assert_eq!(parse_hello(&packed(&[(1, Message::Hello(six))])), Ok((OWN, six)));
    assert_eq!(parse_hello(&packed(&[(1, Message::KeepAlive)])).unwrap_err().code, code::UNKNOWN_MESSAGE_TYPE);
    assert_eq!(parse_hello(&datagram[..41]).unwrap_err().code, code::BAD_PDU_LENGTH);
}

#[test]
fn messages_that_frr_did_not_send() {
    let fec = prefix("2001:db8::/48");
    let fecs = fec.fecs();
    let label = Label::new(16).unwrap();
    for message in [
        Message::LabelMapping { fecs, label, request: Some(9) },
        Message::LabelRequest { fecs },
        Message::LabelWithdraw { fecs: Fecs::WILDCARD, label: None },
        Message::LabelRelease { fecs, label: None },
        Message::LabelAbortRequest { fecs, request: 77 },
        Message::Address(Addresses::ipv6(&[[1; 16], [2; 16]])),
        Message::Notification(Status::new(code::NO_ROUTE).about(5, kind::LABEL_REQUEST)),
        Message::Initialization(Initialization {
            on_demand: true,
            loop_detection: true,
            path_vector_limit: 32,
            ..Initialization::new(1, OWN)
        }),
    ] {
        assert_eq!(messages(&packed(&[(6, message)])), [(6, message)]);
    }
    let list = [[10, 0, 0, 1], [10, 0, 0, 2]];
    let expected: Vec<IpAddr> = list.iter().map(|a| IpAddr::from(*a)).collect();
    assert_eq!(Addresses::ipv4(&list).iter().collect::<Vec<_>>(), expected);
    assert_eq!(Addresses::ipv6(&[[7; 16]]).iter().collect::<Vec<_>>(), [IpAddr::from([7; 16])]);
}

/// The status of a message with this type, U bit included, and these parameters.
fn status(head: u16, body: &[u8]) -> Result<bool, (u32, bool)> {
    let raw = RawMessage { kind: head & 0x7fff, ignorable: head & 0x8000 != 0, id: 5, body };
    match raw.parse() {
        Ok(found) => Ok(found.is_some()),
        Err(status) => {
            assert_eq!((status.message_id, status.message_type), (5, head));
            Err((status.code, status.fatal))
        }
    }
}

#[test]
fn unknown_types_follow_their_bits() {
    assert_eq!(status(0x0777, &[]), Err((code::UNKNOWN_MESSAGE_TYPE, false)));
    assert_eq!(status(0x8777, &[]), Ok(false));
    assert_eq!(status(0x8202, &bytes("8506000180")), Ok(false), "Capability (RFC 5561)");
    assert_eq!(status(kind::KEEPALIVE, &bytes("0777000100")), Err((code::UNKNOWN_TLV, false)));
    assert_eq!(status(kind::KEEPALIVE, &bytes("8777000100")), Ok(true));
    assert_eq!(status(kind::KEEPALIVE, &bytes("c777000100")), Ok(true));
}

#[test]
fn what_is_wrong_has_its_status() {
    for (head, body, code, fatal) in [
        (kind::LABEL_MAPPING, "0100000402000100", code::MISSING_MESSAGE_PARAMETERS, false),
        (kind::LABEL_MAPPING, "0200000400000010", code::MISSING_MESSAGE_PARAMETERS, false),
        (kind::LABEL_MAPPING, "01000004020001000200000400000004", code::MALFORMED_TLV_VALUE, true),
        (kind::LABEL_MAPPING, "01000004020001000200000400100000", code::MALFORMED_TLV_VALUE, true),
        (kind::LABEL_MAPPING, "010000040200010002000002000a", code::MALFORMED_TLV_VALUE, true),
        (kind::LABEL_MAPPING, "01000001010200000400000010", code::UNKNOWN_FEC, false),
        (kind::LABEL_REQUEST, "010000050502020001", code::UNKNOWN_FEC, false),
        (kind::LABEL_MAPPING, "0100000402000300 0200000400000010", code::UNSUPPORTED_ADDRESS_FAMILY, false),
        (kind::ADDRESS, "010100030001ff", code::MALFORMED_TLV_VALUE, true),
        (kind::ADDRESS, "01010003000711", code::UNSUPPORTED_ADDRESS_FAMILY, false),
        (kind::ADDRESS, "0101ffff0001", code::BAD_TLV_LENGTH, true),
        (kind::ADDRESS, "0101", code::BAD_TLV_LENGTH, true),
        (kind::INITIALIZATION, "", code::MISSING_MESSAGE_PARAMETERS, false),
        (kind::INITIALIZATION, "0500000e000200b400000000010101010000", code::BAD_PROTOCOL_VERSION, true),
    ] {
        assert_eq!(status(head, &bytes(&body.replace(' ', ""))), Err((code, fatal)), "{head:#x} {body}");
    }
}

#[test]
fn headers_that_are_wrong() {
    let pdu = packed(&[(1, Message::KeepAlive)]);
    let with = |at: usize, byte: u8| {
        let mut changed = pdu.clone();
        changed[at] = byte;
        frame(&changed, DEFAULT_MAX).map(|_| ()).map_err(|status| (status.code, status.fatal))
    };
    assert_eq!((with(1, 1), with(1, 2)), (Ok(()), Err((code::BAD_PROTOCOL_VERSION, true))));
    assert_eq!((with(3, 13), with(2, 0x10)), (Err((code::BAD_PDU_LENGTH, true)), Err((code::BAD_PDU_LENGTH, true))));
    assert_eq!(frame(&pdu[..17], DEFAULT_MAX), Ok(None));
    for length in [3, 5] {
        let mut changed = pdu.clone();
        changed[HEADER_LEN + 3] = length;
        let wrong = frame(&changed, DEFAULT_MAX).unwrap().unwrap().messages().next().unwrap().unwrap_err();
        assert_eq!(wrong, Status::new(code::BAD_MESSAGE_LENGTH).about(1, kind::KEEPALIVE));
    }
}

#[test]
fn many_messages_fill_pdus_to_the_maximum() {
    let mut room = vec![0; 20_000];
    let mut writer = PduWriter::new(&mut room, OWN, 300);
    let fec = prefix("10.0.0.0/24");
    let mapping = Message::LabelMapping { fecs: fec.fecs(), label: Label::IMPLICIT_NULL, request: None };
    let mut written = vec![0; mapping.message_len()];
    for id in 0..100 {
        mapping.emit(id, &mut written);
        assert!(if id % 2 == 0 { writer.push(id, &mapping) } else { writer.push_written(&written) });
    }
    let end = writer.written();
    let (mut rest, mut ids, mut pdus) = (&room[..end], Vec::new(), 0);
    while let Some(pdu) = frame(rest, 296).unwrap() {
        ids.extend(pdu.messages().map(|raw| raw.unwrap().id));
        rest = &rest[pdu.pdu_len()..];
        pdus += 1;
    }
    // 27 bytes each: 10 + 10 * 27 = 280.
    assert_eq!((rest.len(), ids, pdus), (0, (0..100).collect(), 10));
    let mut small = [0; 36];
    assert!(!PduWriter::new(&mut small, OWN, 300).push(1, &mapping));
}

proptest! {
    #[test]
    fn what_is_read_means_the_same_when_it_is_written_again(
        head in prop_oneof![Just(1u16), Just(0x100), Just(0x200), Just(0x300), 0x400u16..=0x404, any::<u16>()],
        tlvs in proptest::collection::vec((
            prop_oneof![Just(0x100u16), Just(0x101), Just(0x200), Just(0x300), Just(0x400), Just(0x401), Just(0x500), Just(0x600), any::<u16>()],
            prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..20),
                Just(vec![0, 0, 0, 16]),
                Just(vec![2, 0, 1, 24, 10, 0, 1]),
                Just(vec![1]),
                Just(vec![0, 1, 9, 9, 9, 9]),
                Just(vec![0, 1, 0, 180, 0, 0, 0, 0, 1, 1, 1, 1, 0, 0]),
            ],
        ), 0..5),
        cut in 0usize..4,
    ) {
        let mut body = Vec::new();
        for (kind, value) in &tlvs {
            body.extend(kind.to_be_bytes());
            body.extend((value.len() as u16).to_be_bytes());
            body.extend(value);
        }
        body.truncate(body.len().saturating_sub(cut));
        let raw = RawMessage { kind: head & 0x7fff, ignorable: head & 0x8000 != 0, id: 5, body: &body };
        if let Ok(Some(message)) = raw.parse() {
            let again = packed(&[(5, message)]);
            prop_assert_eq!(messages(&again), [(5, message)]);
        }
    }

    #[test]
    fn any_prefix_and_label(bits: u128, v6: bool, length in 0u8..=128, label in 16u32..=Label::MAX, id: u32) {
        let (address, most): (IpAddr, u8) = if v6 { (Ipv6Addr::from(bits).into(), 128) } else { (Ipv4Addr::from(bits as u32).into(), 32) };
        let fec = PrefixFec::new(Prefix::masked(address, length.min(most)).unwrap());
        let message = Message::LabelMapping { fecs: fec.fecs(), label: Label::new(label).unwrap(), request: Some(id) };
        let written = packed(&[(id, message)]);
        prop_assert_eq!(messages(&written), [(id, message)]);
    }

    #[test]
    fn arbitrary_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..120), sound: bool) {
        if sound && bytes.len() > 18 {
            let length = bytes.len() as u16 - 4;
            bytes[..2].copy_from_slice(&[0, 1]);
            bytes[2..4].copy_from_slice(&length.to_be_bytes());
        }
        let _ = parse_hello(&bytes);
        if let Ok(Some(pdu)) = frame(&bytes, DEFAULT_MAX) {
            for raw in pdu.messages().flatten() {
                let _ = raw.parse();
            }
        }
    }
}
