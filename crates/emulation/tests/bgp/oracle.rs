//! netgauze-bgp-pkt reads every kind of UPDATE correctly.

use super::common::*;
use drophammer_emulation::bgp::Packing;
use drophammer_model::routes::Routes;
use drophammer_wire::bgp::AfiSafi;
use netgauze_bgp_pkt::BgpMessage;
use netgauze_bgp_pkt::nlri::MplsLabel;
use netgauze_bgp_pkt::path_attribute::{AsPath, AsPathSegmentType, MpReach, MpUnreach, PathAttributeValue};
use netgauze_bgp_pkt::update::BgpUpdateMessage;
use netgauze_bgp_pkt::wire::deserializer::BgpParsingContext;
use netgauze_iana::address_family::AddressType;
use netgauze_parse_utils::reader::SliceReader;
use netgauze_parse_utils::traits::ParseFromWithOneInput;
use proptest::prelude::*;
use std::collections::HashMap;
use std::net::IpAddr;

/// Path identifier, labels, distinguisher, prefix.
pub type Route = (Option<u32>, Vec<u32>, Option<String>, String);

fn labels(stack: &[MplsLabel]) -> Vec<u32> {
    stack
        .iter()
        .map(|label| u32::from_be_bytes([0, label.value()[0], label.value()[1], label.value()[2]]) >> 4)
        .collect()
}

/// Routes of one of netgauze's lists.
macro_rules! routes {
    (plain $nlri:expr) => {
        $nlri.iter().map(|r| (r.path_id(), vec![], None, r.network().address().to_string())).collect::<Vec<Route>>()
    };
    (labelled $nlri:expr) => {
        $nlri.iter().map(|r| (r.path_id(), labels(r.labels()), None, r.prefix().to_string())).collect::<Vec<Route>>()
    };
    (vpn $nlri:expr) => {
        $nlri
            .iter()
            .map(|r| {
                let rd = Some(format!("{:?}", r.rd()));
                (r.path_id(), labels(r.label_stack()), rd, r.network().address().to_string())
            })
            .collect::<Vec<Route>>()
    };
}

/// The contents of one message, as netgauze reads it.
#[derive(Default, Debug)]
pub struct Theirs {
    pub announced: Vec<Route>,
    pub withdrawn: Vec<Route>,
    pub next_hop: Option<IpAddr>,
    pub origin: Option<u8>,
    pub path: Vec<u32>,
    pub path4: Option<Vec<u32>>,
    pub med: Option<u32>,
    pub local_pref: Option<u32>,
    pub communities: Vec<u32>,
    pub large: Vec<[u32; 3]>,
    pub extended: Vec<String>,
}

pub fn read(message: &[u8], add_path: bool, four_octet_as: bool) -> BgpUpdateMessage {
    let types = [
        AddressType::Ipv4Unicast,
        AddressType::Ipv6Unicast,
        AddressType::Ipv4NlriMplsLabels,
        AddressType::Ipv6NlriMplsLabels,
        AddressType::Ipv4MplsLabeledVpn,
        AddressType::Ipv6MplsLabeledVpn,
    ];
    let ids = types.into_iter().map(|family| (family, add_path)).collect();
    let mut context = BgpParsingContext::new(four_octet_as, HashMap::new(), ids, true, true, true, true);
    let mut reader = SliceReader::new(message);
    match BgpMessage::parse(&mut reader, &mut context) {
        Ok(BgpMessage::Update(update)) => update,
        other => panic!("{other:?}: {message:02x?}"),
    }
}

pub fn theirs(update: &BgpUpdateMessage) -> Theirs {
    let mut all = Theirs {
        announced: routes!(plain update.nlri()),
        withdrawn: routes!(plain update.withdraw_routes()),
        ..Theirs::default()
    };
    let sequence = |kind: AsPathSegmentType| assert_eq!(kind, AsPathSegmentType::AsSequence);
    for attribute in update.path_attributes() {
        match attribute.value() {
            PathAttributeValue::Origin(origin) => all.origin = Some(*origin as u8),
            PathAttributeValue::AsPath(AsPath::As2PathSegments(segments)) => {
                segments.iter().for_each(|s| sequence(s.segment_type()));
                all.path = segments.iter().flat_map(|s| s.as_numbers()).map(|asn| u32::from(*asn)).collect();
            }
            PathAttributeValue::AsPath(AsPath::As4PathSegments(segments)) => {
                segments.iter().for_each(|s| sequence(s.segment_type()));
                all.path = segments.iter().flat_map(|s| s.as_numbers()).copied().collect();
            }
            PathAttributeValue::As4Path(path) => {
                all.path4 = Some(path.segments().iter().flat_map(|s| s.as_numbers()).copied().collect());
            }
            PathAttributeValue::NextHop(next_hop) => all.next_hop = Some(next_hop.next_hop().into()),
            PathAttributeValue::MultiExitDiscriminator(med) => all.med = Some(med.metric()),
            PathAttributeValue::LocalPreference(preference) => all.local_pref = Some(preference.metric()),
            PathAttributeValue::Communities(list) => {
                all.communities = list.communities().iter().map(|c| c.value()).collect();
            }
            PathAttributeValue::LargeCommunities(list) => {
                let parts = list.communities().iter();
                all.large = parts.map(|c| [c.global_admin(), c.local_data1(), c.local_data2()]).collect();
            }
            PathAttributeValue::ExtendedCommunities(list) => {
                all.extended = list.communities().iter().map(|c| c.to_string()).collect();
            }
            PathAttributeValue::MpReach(reach) => {
                let (next_hop, announced) = match reach {
                    MpReach::Ipv6Unicast { next_hop_global, next_hop_local, nlri } => {
                        assert_eq!(*next_hop_local, next_hops().link_local);
                        (IpAddr::V6(*next_hop_global), routes!(plain nlri))
                    }
                    MpReach::Ipv4NlriMplsLabels { next_hop, nlri, .. } => (*next_hop, routes!(labelled nlri)),
                    MpReach::Ipv6NlriMplsLabels { next_hop, nlri, .. } => (*next_hop, routes!(labelled nlri)),
                    MpReach::Ipv4MplsVpnUnicast { next_hop, nlri } => (next_hop.next_hop(), routes!(vpn nlri)),
                    MpReach::Ipv6MplsVpnUnicast { next_hop, nlri } => (next_hop.next_hop(), routes!(vpn nlri)),
                    other => panic!("{other:?}"),
                };
                (all.next_hop, all.announced) = (Some(next_hop), announced);
            }
            PathAttributeValue::MpUnreach(unreach) => {
                all.withdrawn = match unreach {
                    MpUnreach::Ipv6Unicast { nlri } => routes!(plain nlri),
                    MpUnreach::Ipv4NlriMplsLabels { nlri } => routes!(labelled nlri),
                    MpUnreach::Ipv6NlriMplsLabels { nlri } => routes!(labelled nlri),
                    MpUnreach::Ipv4MplsVpnUnicast { nlri } => routes!(vpn nlri),
                    MpUnreach::Ipv6MplsVpnUnicast { nlri } => routes!(vpn nlri),
                    other => panic!("{other:?}"),
                };
            }
            other => panic!("{other:?}"),
        }
    }
    all
}

fn expected(routes: &Routes, i: u32, family: AfiSafi, add_path: bool, announce: bool) -> Route {
    let label = if announce { FIRST_LABEL + i } else { 0x80_0000 >> 4 };
    let rd = family.is_vpn().then(|| "As2Administrator { asn2: 65001, number: 5 }".to_owned());
    let labels = if family.is_labelled() { vec![label] } else { vec![] };
    (add_path.then_some(PATH_ID), labels, rd, routes.prefix(i).to_string())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn they_read_what_was_written(
        family in prop::sample::select(AfiSafi::ALL.to_vec()), count in 1u32..500, seed: u64, internet: bool,
        announce: bool, add_path: bool, four_octet_as: bool, routes_per_update in 0u16..200,
    ) {
        let routes = routes(family, count, seed, internet);
        let packing = Packing { routes_per_update, pace: None, prepend: 0 };
        let agreed = agreed(add_path, four_octet_as);
        let mut all = messages(&routes, announce, packing, encapsulation(family), &agreed);
        let end = read(&all.pop().unwrap(), add_path, four_octet_as);
        prop_assert!(end.end_of_rib().is_some());
        let mut next = 0;
        for message in &all {
            let theirs = theirs(&read(message, add_path, four_octet_as));
            let (some, none) = match announce {
                true => (&theirs.announced, &theirs.withdrawn),
                false => (&theirs.withdrawn, &theirs.announced),
            };
            prop_assert!(none.is_empty() && !some.is_empty());
            let sent = routes.attributes(routes.group_of(next));
            for route in some {
                prop_assert_eq!(route, &expected(&routes, next, family, add_path, announce));
                next += 1;
            }
            if !announce {
                prop_assert_eq!(theirs.origin, None);
                continue;
            }
            let path: Vec<u32> = [&[65_001], &sent.as_path[..]].concat();
            let short = |asn: &u32| if four_octet_as || *asn < 65_536 { *asn } else { 23_456 };
            prop_assert_eq!(&theirs.path, &path.iter().map(short).collect::<Vec<_>>());
            let path4 = (!four_octet_as && path.iter().any(|asn| *asn > 65_535)).then_some(path);
            prop_assert_eq!(theirs.path4, path4);
            prop_assert_eq!((theirs.origin, theirs.med, theirs.local_pref), (Some(sent.origin.code()), sent.med, None));
            prop_assert_eq!((theirs.communities, theirs.large), (sent.communities, sent.large_communities));
            prop_assert_eq!(theirs.extended.len(), usize::from(family.is_vpn()));
            let next_hop: IpAddr = match family.afi {
                1 => NEXT_HOP.into(),
                _ => next_hops().ipv6.unwrap().into(),
            };
            prop_assert_eq!(theirs.next_hop, Some(next_hop));
        }
        prop_assert_eq!(next, count);
    }
}
