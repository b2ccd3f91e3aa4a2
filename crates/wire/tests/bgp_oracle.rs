//! netgauze-bgp-pkt parses our messages, and encodes the same bytes.

use drophammer_wire::bgp::message::{MAX_LEN, emit_keepalive};
use drophammer_wire::bgp::notification::Notification;
use drophammer_wire::bgp::{AfiSafi, Capability, GracefulRestart, Open, PathDirection, RouteRefresh};
use netgauze_bgp_pkt::BgpMessage;
use netgauze_bgp_pkt::capabilities::*;
use netgauze_bgp_pkt::iana::RouteRefreshSubcode;
use netgauze_bgp_pkt::wire::deserializer::BgpParsingContext;
use netgauze_iana::address_family::{AddressFamily, AddressType};
use netgauze_parse_utils::WritablePdu;
use netgauze_parse_utils::reader::SliceReader;
use netgauze_parse_utils::traits::ParseFromWithOneInput;
use proptest::collection::vec;
use proptest::prelude::*;
use std::net::Ipv4Addr;

const FAMILIES: [(AfiSafi, AddressType); 6] = [
    (AfiSafi::IPV4_UNICAST, AddressType::Ipv4Unicast),
    (AfiSafi::IPV6_UNICAST, AddressType::Ipv6Unicast),
    (AfiSafi::IPV4_LABELLED, AddressType::Ipv4NlriMplsLabels),
    (AfiSafi::IPV6_LABELLED, AddressType::Ipv6NlriMplsLabels),
    (AfiSafi::VPNV4, AddressType::Ipv4MplsLabeledVpn),
    (AfiSafi::VPNV6, AddressType::Ipv6MplsLabeledVpn),
];

type Family = (AfiSafi, AddressType);

fn any_family() -> impl Strategy<Value = Family> {
    proptest::sample::select(FAMILIES.to_vec())
}

/// A capability in our types and in theirs. Multiple Labels (RFC 8277) is left out: netgauze 0.13 omits its length byte (RFC 5492 section 4).
fn any_capability() -> impl Strategy<Value = (Capability, BgpCapability)> {
    let restart = (any::<bool>(), any::<bool>(), 0u16..4096, vec((any_family(), any::<bool>()), 0..4));
    let directions = (1u8..=3).prop_map(|way| PathDirection { receive: way & 1 != 0, send: way & 2 != 0 });
    prop_oneof![
        any_family().prop_map(|(ours, theirs)| {
            let theirs = MultiProtocolExtensionsCapability::new(theirs);
            (Capability::Multiprotocol(ours), BgpCapability::MultiProtocolExtensions(theirs))
        }),
        Just((Capability::RouteRefresh, BgpCapability::RouteRefresh)),
        Just((Capability::EnhancedRouteRefresh, BgpCapability::EnhancedRouteRefresh)),
        Just((Capability::ExtendedMessage, BgpCapability::ExtendedMessage)),
        any::<u32>().prop_map(|asn| {
            (Capability::FourOctetAs(asn), BgpCapability::FourOctetAs(FourOctetAsCapability::new(asn)))
        }),
        restart.prop_map(|(restarted, notification, seconds, families)| {
            let theirs: Vec<_> =
                families.iter().map(|((_, f), kept)| GracefulRestartAddressFamily::new(*kept, *f)).collect();
            let families = families.into_iter().map(|((f, _), kept)| (f, kept)).collect();
            let ours = GracefulRestart { restarted, notification, seconds, families };
            let theirs = GracefulRestartCapability::new(restarted, notification, seconds, theirs);
            (Capability::GracefulRestart(ours), BgpCapability::GracefulRestartCapability(theirs))
        }),
        vec((any_family(), directions), 1..4).prop_map(|entries| {
            let theirs: Vec<_> =
                entries.iter().map(|((_, f), way)| AddPathAddressFamily::new(*f, way.send, way.receive)).collect();
            let ours = entries.into_iter().map(|((f, _), way)| (f, way)).collect();
            (Capability::AddPath(ours), BgpCapability::AddPath(AddPathCapability::new(theirs)))
        }),
        vec(proptest::sample::select(vec![FAMILIES[0], FAMILIES[2], FAMILIES[4]]), 1..4).prop_map(|entries| {
            let theirs: Vec<_> =
                entries.iter().map(|(_, f)| ExtendedNextHopEncoding::new(*f, AddressFamily::IPv6)).collect();
            let ours = entries.into_iter().map(|(f, _)| (f, 2)).collect();
            let theirs = ExtendedNextHopEncodingCapability::new(theirs);
            (Capability::ExtendedNextHop(ours), BgpCapability::ExtendedNextHopEncoding(theirs))
        }),
    ]
}

/// Our bytes, parsed by netgauze.
fn theirs(bytes: &[u8]) -> BgpMessage {
    let mut reader = SliceReader::new(bytes);
    BgpMessage::parse(&mut reader, &mut BgpParsingContext::default()).unwrap_or_else(|e| panic!("{e}: {bytes:02x?}"))
}

/// A message, encoded by netgauze.
fn rewritten(message: &BgpMessage) -> Vec<u8> {
    let mut out = Vec::new();
    message.write(&mut out).unwrap();
    out
}

proptest! {
    #[test]
    fn opens(
        my_as: u16, hold_time in prop_oneof![Just(0u16), 3u16..], first in 1u8..224, rest: [u8; 3],
        capabilities in vec(any_capability(), 0..8),
    ) {
        let identifier = Ipv4Addr::new(first, rest[0], rest[1], rest[2]);
        let (capabilities, expected): (Vec<_>, Vec<_>) = capabilities.into_iter().unzip();
        let open = Open { my_as, hold_time, identifier, capabilities };
        let bytes = open.message().unwrap();
        // netgauze does not support the extended parameters of RFC 9072.
        prop_assume!(bytes[28] != 255);
        let read = theirs(&bytes);
        let BgpMessage::Open(read_open) = &read else { panic!("{read:?}") };
        prop_assert_eq!((read_open.my_as(), read_open.hold_time(), read_open.bgp_id()), (my_as, hold_time, identifier));
        prop_assert_eq!(read_open.my_asn4(), open.speaker_as());
        prop_assert_eq!(read_open.capabilities(), expected.iter().collect::<Vec<_>>());
        prop_assert_eq!(rewritten(&read), bytes);
    }

    #[test]
    fn notifications(kind in 0usize..40, data in vec(any::<u8>(), 0..100)) {
        // All subcodes that have a name, and the nameless "not specified" ones.
        let mut named: Vec<_> = (1..=7u8)
            .flat_map(|code| (1..=11).map(move |subcode| Notification::bare(code, subcode)))
            .filter(|known| known.subcode_name().is_some())
            .collect();
        named.push(Notification::bare(4, 0));
        let Notification { code, subcode, .. } = named[kind % named.len()];
        let notification = Notification::new(code, subcode, data);
        let mut bytes = vec![0; MAX_LEN];
        let length = notification.emit(&mut bytes);
        bytes.truncate(length);
        let read = theirs(&bytes);
        prop_assert_eq!(rewritten(&read), bytes);
        // The netgauze name of a subcode has the same letters as ours: `AdministrativeShutdown`.
        let letters = |text: &str| text.chars().filter(char::is_ascii_alphabetic).collect::<String>().to_lowercase();
        let debug = letters(&format!("{read:?}"));
        if let Some(name) = notification.subcode_name() {
            let differ = ["wellknown", "unexpected", "invalidmessagelength", "identifier"];
            let name = letters(name);
            if !differ.iter().any(|word| name.contains(word)) {
                prop_assert!(debug.contains(&name), "{} is {} to them", name, debug);
            }
        }
    }

    #[test]
    fn route_refreshes((ours, family) in any_family(), subtype in 0u8..3) {
        let mut bytes = vec![0; drophammer_wire::bgp::route_refresh::LEN];
        RouteRefresh { family: ours, subtype }.emit(&mut bytes);
        let read = theirs(&bytes);
        let BgpMessage::RouteRefresh(refresh) = &read else { panic!("{read:?}") };
        let expected = [
            RouteRefreshSubcode::NormalRequest,
            RouteRefreshSubcode::BeginningOfRouteRefresh,
            RouteRefreshSubcode::EndOfRouteRefresh,
        ][usize::from(subtype)];
        prop_assert_eq!((refresh.address_type(), refresh.operation_type()), (family, expected));
        prop_assert_eq!(rewritten(&read), bytes);
    }
}

#[test]
fn keepalives() {
    let mut bytes = [0; 19];
    emit_keepalive(&mut bytes);
    assert!(matches!(theirs(&bytes), BgpMessage::KeepAlive));
}
