//! Tests each error of RFC 7606, and that the parser never panics.

use super::super::attributes::append;
use super::super::nlri::{Frame, LONGEST};
use super::super::{Attributes, Packer, packer};
use super::*;
use proptest::prelude::*;

const PLAIN: Context =
    Context { four_octet_as: true, ibgp: false, path_ids: FamilySet::NONE, label_stacks: LabelStacks::NONE };

fn body(withdrawn: &[u8], attributes: &[u8], nlri: &[u8]) -> Vec<u8> {
    let mut out = (withdrawn.len() as u16).to_be_bytes().to_vec();
    out.extend_from_slice(withdrawn);
    out.extend((attributes.len() as u16).to_be_bytes());
    out.extend_from_slice(attributes);
    out.extend_from_slice(nlri);
    out
}

const ORIGIN: &[u8] = &[0x40, 1, 1, 0];
const PATH: &[u8] = &[0x40, 2, 6, 2, 1, 0, 0, 0xfd, 0xe9];
const NEXT_HOP: &[u8] = &[0x40, 3, 4, 198, 18, 1, 2];
const ROUTE: &[u8] = &[24, 1, 2, 3];

/// Returns the three mandatory attributes, followed by `other`. If `other` has the type of one of them, it replaces that one.
fn with(other: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    for one in [ORIGIN, PATH, NEXT_HOP] {
        if other.get(1) != Some(&one[1]) {
            all.extend_from_slice(one);
        }
    }
    all.extend_from_slice(other);
    body(&[], &all, ROUTE)
}

fn judged(body: &[u8], context: &Context) -> Result<(Treatment, Option<u8>), (u8, u8)> {
    let update = Update::parse(body, context).map_err(|n| (n.code, n.subcode))?;
    let routes = (update.announced().count(), update.withdrawn().count());
    assert_eq!((update.announces(), update.withdraws()), (routes.0 > 0, routes.1 > 0));
    match update.treatment {
        Treatment::TreatAsWithdraw => assert_eq!(routes.0, 0),
        _ => assert_eq!(routes, (1, 0)),
    }
    assert_eq!(update.fault.is_some(), update.treatment != Treatment::Whole);
    Ok((update.treatment, update.fault.map(|f| f.kind)))
}

#[test]
fn a_whole_one() {
    let bytes = body(&[16, 9, 9], &[ORIGIN, PATH, NEXT_HOP, &[0x80, 4, 4, 0, 0, 0, 7]].concat(), ROUTE);
    let update = Update::parse(&bytes, &PLAIN).unwrap();
    let announced: Vec<_> = update.announced().map(|r| (r.address().to_string(), r.length)).collect();
    assert_eq!(announced, [("1.2.3.0".to_owned(), 24)]);
    let withdrawn: Vec<_> = update.withdrawn().map(|r| (r.address().to_string(), r.length)).collect();
    assert_eq!(withdrawn, [("9.9.0.0".to_owned(), 16)]);
    assert_eq!((update.treatment, update.fault), (Treatment::Whole, None));
    let a = update.attributes;
    assert_eq!((a.origin, a.med, a.as_path.unwrap().ases().collect()), (Some(0), Some(7), vec![65_001]));
    assert_eq!(update.next_hop(AfiSafi::IPV4_UNICAST), Some("198.18.1.2".parse().unwrap()));
}

#[test]
fn attributes_that_withdraw() {
    let rows: &[(&str, &[u8])] = &[
        ("ORIGIN of 2 bytes", &[0x40, 1, 2, 0, 0]),
        ("ORIGIN 3", &[0x40, 1, 1, 3]),
        ("ORIGIN that is optional", &[0xc0, 1, 1, 0]),
        ("AS_PATH that is not transitive", &[0, 2, 0]),
        ("AS_PATH cut off", &[0x40, 2, 3, 2, 1, 0]),
        ("AS_PATH with an empty segment", &[0x40, 2, 2, 2, 0]),
        ("AS_PATH of a confederation", &[0x40, 2, 6, 3, 1, 0, 0, 0, 1]),
        ("AS_PATH with AS 0", &[0x40, 2, 6, 2, 1, 0, 0, 0, 0]),
        ("NEXT_HOP of 5 bytes", &[0x40, 3, 5, 1, 2, 3, 4, 5]),
        ("NEXT_HOP 0.0.0.0", &[0x40, 3, 4, 0, 0, 0, 0]),
        ("NEXT_HOP multicast", &[0x40, 3, 4, 224, 0, 0, 5]),
        ("MED of no byte", &[0x80, 4, 0]),
        ("MED that is transitive", &[0xc0, 4, 4, 0, 0, 0, 1]),
        ("communities of 5 bytes", &[0xc0, 8, 5, 1, 2, 3, 4, 5]),
        ("no communities", &[0xc0, 8, 0]),
        ("extended communities of 4 bytes", &[0xc0, 16, 4, 1, 2, 3, 4]),
        ("large communities of 8 bytes", &[0xc0, 32, 8, 1, 2, 3, 4, 5, 6, 7, 8]),
        ("IPv6 extended communities of 8 bytes", &[0xc0, 25, 8, 1, 2, 3, 4, 5, 6, 7, 8]),
    ];
    for (what, attribute) in rows {
        let expected = Ok((Treatment::TreatAsWithdraw, Some(attribute[1])));
        assert_eq!(judged(&with(attribute), &PLAIN), expected, "{what}");
    }
    let ibgp = Context { ibgp: true, ..PLAIN };
    assert_eq!(judged(&with(&[0x40, 5, 2, 0, 1]), &ibgp), Ok((Treatment::TreatAsWithdraw, Some(5))));
    let preferred = &[0x40, 5, 4, 0, 0, 0, 1];
    for internal in [&[0x80, 9, 5, 1, 2, 3, 4, 5][..], &[0x80, 10, 0]] {
        let all = [internal, preferred].concat();
        assert_eq!(judged(&with(&all), &ibgp), Ok((Treatment::TreatAsWithdraw, Some(internal[1]))));
    }
    // Attributes are missing.
    for (attributes, kind) in
        [([PATH, NEXT_HOP].concat(), 1), ([ORIGIN, NEXT_HOP].concat(), 2), ([ORIGIN, PATH].concat(), 3)]
    {
        assert_eq!(judged(&body(&[], &attributes, ROUTE), &PLAIN), Ok((Treatment::TreatAsWithdraw, Some(kind))));
    }
    assert_eq!(judged(&with(&[]), &ibgp), Ok((Treatment::TreatAsWithdraw, Some(5))));
    // Lengths of attributes are wrong (section 4).
    assert_eq!(judged(&with(&[0xc0, 8, 4, 1]), &PLAIN), Ok((Treatment::TreatAsWithdraw, Some(0))));
    assert_eq!(judged(&with(&[0xc0, 8]), &PLAIN), Ok((Treatment::TreatAsWithdraw, Some(0))));
    assert_eq!(judged(&with(&[0xd0, 8, 0]), &PLAIN), Ok((Treatment::TreatAsWithdraw, Some(0))));
}

#[test]
fn attributes_that_are_discarded() {
    let rows: &[(&str, &[u8])] = &[
        ("LOCAL_PREF from outside", &[0x40, 5, 4, 0, 0, 0, 100]),
        ("ATOMIC_AGGREGATE with a value", &[0x40, 6, 1, 0]),
        ("AGGREGATOR of 2 octets", &[0xc0, 7, 6, 0, 1, 1, 2, 3, 4]),
        ("AGGREGATOR 0", &[0xc0, 7, 8, 0, 0, 0, 0, 1, 2, 3, 4]),
        ("ORIGINATOR_ID from outside", &[0x80, 9, 4, 1, 2, 3, 4]),
        ("CLUSTER_LIST from outside", &[0x80, 10, 4, 1, 2, 3, 4]),
        ("AS4_PATH from a speaker of 4 octets", &[0xc0, 17, 6, 2, 1, 0, 0, 0, 1]),
        ("AS4_AGGREGATOR from one", &[0xc0, 18, 8, 0, 0, 0, 1, 1, 2, 3, 4]),
        ("ORIGIN twice", &[0x40, 6, 0, 0x40, 6, 0]),
    ];
    for (what, attribute) in rows {
        let expected = Ok((Treatment::AttributeDiscard, Some(attribute[1])));
        assert_eq!(judged(&with(attribute), &PLAIN), expected, "{what}");
    }
    let two = Context { four_octet_as: false, ..PLAIN };
    let all = |other: &[u8]| body(&[], &[ORIGIN, &[0x40, 2, 4, 2, 1, 0xfd, 0xe9], NEXT_HOP, other].concat(), ROUTE);
    for bad in [&[0xc0, 17, 4, 2, 1, 0, 0][..], &[0xc0, 17, 0], &[0xc0, 18, 6, 0, 1, 1, 2, 3, 4]] {
        assert_eq!(judged(&all(bad), &two), Ok((Treatment::AttributeDiscard, Some(bad[1]))), "{bad:?}");
    }
    assert_eq!(judged(&all(&[0xc0, 17, 6, 2, 1, 0, 1, 0, 0]), &two), Ok((Treatment::Whole, None)));
    // The more severe treatment applies.
    let both = [&[0x40, 6, 1, 0][..], &[0x80, 4, 1, 0]].concat();
    assert_eq!(judged(&with(&both), &PLAIN), Ok((Treatment::TreatAsWithdraw, Some(4))));
    // None of these is an error.
    assert_eq!(judged(&with(&[0xe0, 99, 1, 0]), &PLAIN), Ok((Treatment::Whole, None)));
    assert_eq!(judged(&with(&[0x40, 2, 0]), &PLAIN), Ok((Treatment::Whole, None)));
}

#[test]
fn what_ends_the_session() {
    let refused = |bytes: &[u8]| judged(bytes, &PLAIN).unwrap_err();
    assert_eq!(refused(&[]), (3, 1));
    assert_eq!(refused(&[0, 0, 0]), (3, 1));
    assert_eq!(refused(&[0, 9, 0, 0]), (3, 1));
    assert_eq!(refused(&[0, 0, 0, 9]), (3, 1));
    assert_eq!(refused(&body(&[33, 1, 2, 3, 4, 5], &[], &[])), (3, 10));
    assert_eq!(refused(&body(&[], &[ORIGIN, PATH, NEXT_HOP].concat(), &[24, 1, 2])), (3, 10));
    assert_eq!(refused(&with(&[0x40, 99, 1, 0])), (3, 2));
    let reach: &[u8] = &[0x80, 14, 23, 0, 2, 1, 16, 32, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 16, 0x2a];
    for (what, attribute) in [
        ("next hop of 15 bytes", [0x80, 14, 20, 0, 2, 1, 15].iter().chain(&[1; 16]).copied().collect::<Vec<_>>()),
        ("too short", vec![0x80, 14, 2, 0, 2]),
        ("next hop beyond the end", vec![0x80, 14, 5, 0, 2, 1, 16, 1]),
        ("route cut off", reach.to_vec()),
        ("unreach too short", vec![0x80, 15, 2, 0, 2]),
        ("unreach of /129", vec![0x80, 15, 4, 0, 2, 1, 129]),
    ] {
        assert_eq!(refused(&with(&attribute)), (3, 9), "{what}");
    }
    let unreach: &[u8] = &[0x80, 15, 3, 0, 2, 1];
    assert_eq!(refused(&body(&[], &[unreach, unreach].concat(), &[])), (3, 1));
    // There is no announced route but a severe error: the routes themselves may be lost.
    assert_eq!(refused(&body(&[16, 1, 2], &[0x40, 1, 1, 9], &[])), (3, 1));
    assert!(Update::parse(&body(&[16, 1, 2], &[0x40, 6, 1, 9], &[]), &PLAIN).is_ok());
}

#[test]
fn wrong_flags_of_routes_withdraw_them() {
    let mut reach = vec![0xc0, 14, 23];
    reach.extend_from_slice(&[0, 2, 1, 16]);
    reach.extend_from_slice(&"2001:2::1".parse::<Ipv6Addr>().unwrap().octets());
    reach.extend_from_slice(&[0, 8, 0x2a]);
    let bytes = body(&[], &[&reach, ORIGIN, PATH].concat(), &[]);
    let update = Update::parse(&bytes, &PLAIN).unwrap();
    assert_eq!((update.announced().count(), update.withdrawn().count()), (0, 1));
}

#[test]
fn a_next_hop_that_no_route_needs_is_ignored() {
    let reach = [&[0x80, 14, 23, 0, 2, 1, 16][..], &[0x20; 16], &[0, 8, 0x2a]].concat();
    for next_hop in [&[0x40, 3, 4, 0, 0, 0, 0][..], &[0x40, 3, 2, 1, 2], &[0xc0, 3, 4, 198, 18, 1, 2]] {
        for order in [[ORIGIN, PATH, next_hop, &reach], [&reach, next_hop, ORIGIN, PATH]] {
            let attributes = order.concat();
            assert_eq!(judged(&body(&[], &attributes, &[]), &PLAIN), Ok((Treatment::Whole, None)), "{next_hop:?}");
            // An IPv4 route needs it, and the whole message gets the treatment.
            let both = judged(&body(&[], &attributes, ROUTE), &PLAIN);
            assert_eq!(both, Ok((Treatment::TreatAsWithdraw, Some(3))), "{next_hop:?}");
        }
        // Without any route, the routes themselves may be lost.
        let none = body(&[], &[ORIGIN, PATH, next_hop].concat(), &[]);
        assert_eq!(judged(&none, &PLAIN), Err((3, 1)), "{next_hop:?}");
    }
}

#[test]
fn families_that_are_not_known_are_passed_over() {
    let bytes = body(&[], &[&[0x80, 14, 7, 0, 25, 70, 0, 0, 1, 2][..], ORIGIN, PATH].concat(), &[]);
    let update = Update::parse(&bytes, &PLAIN).unwrap();
    assert_eq!((update.announced().count(), update.treatment), (0, Treatment::Whole));
    assert_eq!(update.reach.unwrap().family, AfiSafi::new(25, 70));
}

#[test]
fn ends_of_rib() {
    for family in [AfiSafi::IPV4_UNICAST, AfiSafi::IPV6_UNICAST, AfiSafi::VPNV4] {
        let mut message = [0; packer::END_OF_RIB_MAX];
        let length = packer::end_of_rib(&mut message, family);
        let update = Update::parse(&message[19..length], &PLAIN).unwrap();
        assert_eq!((update.end_of_rib(), update.treatment), (Some(family), Treatment::Whole));
    }
    assert_eq!(packer::end_of_rib(&mut [0; 22], AfiSafi::IPV4_UNICAST), 0);
    let bytes = body(&[16, 1, 2], &[], &[]);
    assert_eq!(Update::parse(&bytes, &PLAIN).unwrap().end_of_rib(), None);
    let bytes = with(&[]);
    assert_eq!(Update::parse(&bytes, &PLAIN).unwrap().end_of_rib(), None);
}

#[test]
fn attributes_around_the_routes_are_the_same_in_any_place() {
    let reach = [&[0x80, 14, 23, 0, 2, 1, 16][..], &[0x20; 16], &[0, 8, 0x2a]].concat();
    for order in [[ORIGIN, &reach, PATH], [&reach, ORIGIN, PATH], [ORIGIN, PATH, &reach]] {
        let bytes = body(&[], &order.concat(), &[]);
        let update = Update::parse(&bytes, &PLAIN).unwrap();
        assert_eq!(update.raw.concat(), [ORIGIN, PATH].concat());
        assert_eq!(update.next_hop(AfiSafi::IPV6_UNICAST), Some(Ipv6Addr::from([0x20; 16]).into()));
    }
}

proptest! {
    #[test]
    fn read_what_is_packed(
        family in prop::sample::select(AfiSafi::ALL.to_vec()), path_id: Option<u32>, four_octet_as: bool,
        hosts in prop::collection::vec((any::<u128>(), 0u8..=128), 1..60), most in 1u32..70, room in 130usize..700,
        ases in prop::collection::vec(1u32.., 0..5), withdraw: bool,
    ) {
        let width = family.address_bits().unwrap();
        let routes: Vec<(IpAddr, u8)> = hosts.iter().map(|(bits, length)| {
            let length = *length.min(&width);
            let bits = bits & u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            (if width == 32 { Ipv4Addr::from((bits >> 96) as u32).into() } else { Ipv6Addr::from(bits).into() }, length)
        }).collect();
        let next_hop: &[u8] = match (family.afi, family.is_vpn()) {
            (1, false) => &[1; 4],
            (1, true) => &[1; 12],
            (_, false) => &[1; 16],
            (_, true) => &[1; 24],
        };
        let plain = family == AfiSafi::IPV4_UNICAST;
        let attributes = Attributes {
            as_path: &ases,
            next_hop: plain.then_some(Ipv4Addr::new(1, 1, 1, 1)),
            ..Attributes::default()
        };
        let mut encoded = Vec::new();
        attributes.append(four_octet_as, &mut encoded);
        let packer = Packer { frame: Frame { path_id, ..Frame::plain(family) }, attributes: &encoded, next_hop, max_len: room };
        let context = Context { four_octet_as, ibgp: false, path_ids: FamilySet::of(path_id.map(|_| family)), label_stacks: LabelStacks::NONE };
        let mut source = routes.iter().copied();
        let mut read = Vec::new();
        prop_assume!(packer.needs().is_ok());
        loop {
            let mut buffer = vec![0xee; room + 50];
            let packed = match withdraw {
                true => packer.withdraw(&mut buffer, most, &mut source),
                false => packer.announce(&mut buffer, most, &mut source),
            };
            if packed.bytes == 0 {
                break;
            }
            prop_assert!(packed.bytes <= room && packed.routes <= most);
            let message = super::super::super::frame(&buffer, room).unwrap().unwrap();
            prop_assert_eq!(message.message_len(), packed.bytes);
            let update = Update::parse(message.body, &context).unwrap();
            prop_assert_eq!(update.treatment, Treatment::Whole, "{:?}", update.fault);
            let (come, gone): (Vec<_>, Vec<_>) = (update.announced().collect(), update.withdrawn().collect());
            prop_assert_eq!((update.announces(), update.withdraws()), (!come.is_empty(), !gone.is_empty()));
            let (some, none) = if withdraw { (gone, come) } else { (come, gone) };
            prop_assert!(none.is_empty() && some.len() as u32 == packed.routes);
            prop_assert!(some.iter().all(|r| r.path_id == path_id && r.family == family));
            read.extend(some.iter().map(|r| (r.address(), r.length)));
            let between = |around| {
                let reach = reach_between(message.body, &context, around)?;
                Some((reach.next_hop.to_vec(), reach.routes?.flatten().map(|r| (r.address(), r.length)).collect::<Vec<_>>()))
            };
            let expected = (next_hop.to_vec(), some.iter().map(|r| (r.address(), r.length)).collect::<Vec<_>>());
            prop_assert_eq!(between(update.raw), (!plain && !withdraw).then_some(expected));
            prop_assert_eq!(between([&[], &[0x40, 1, 1, 0]]), None);
            prop_assert_eq!(between([&[0x40, 1, 1, 0], update.raw[1]]), None);
            if !withdraw {
                prop_assert_eq!(update.raw.concat(), encoded.clone());
                let path = super::super::as_path::merged(update.attributes.as_path.unwrap(), update.attributes.as4_path);
                prop_assert_eq!(path.collect::<Vec<_>>(), ases.clone());
                let expected: IpAddr = if family.afi == 1 { [1; 4].into() } else { [1; 16].into() };
                prop_assert_eq!(update.next_hop(family), Some(expected));
            }
        }
        prop_assert_eq!(read, routes);
        prop_assert!(packer.frame.longest() <= LONGEST);
    }

    #[test]
    fn any_bytes(
        attributes in prop::collection::vec((any::<u8>(), prop_oneof![0u8..36, any::<u8>()], prop::collection::vec(any::<u8>(), 0..30)), 0..6),
        withdrawn in prop::collection::vec(0u8..34, 0..8), nlri in prop::collection::vec(0u8..34, 0..8),
        four_octet_as: bool, ibgp: bool, cut in 0usize..20,
    ) {
        let mut encoded = Vec::new();
        attributes.iter().for_each(|(flags, kind, value)| append(&mut encoded, *flags, *kind, value));
        let mut bytes = body(&withdrawn, &encoded, &nlri);
        bytes.truncate(bytes.len().saturating_sub(cut.saturating_sub(10)));
        let context = Context { four_octet_as, ibgp, path_ids: FamilySet::of([AfiSafi::VPNV4]), label_stacks: LabelStacks::NONE };
        if let Ok(update) = Update::parse(&bytes, &context) {
            let (come, gone) = (update.announced().count(), update.withdrawn().count());
            prop_assert_eq!((update.announces(), update.withdraws()), (come > 0, gone > 0));
            prop_assert!(come == 0 || update.treatment != Treatment::TreatAsWithdraw);
            prop_assert!(update.end_of_rib().is_none() || come + gone == 0);
        }
    }
}
