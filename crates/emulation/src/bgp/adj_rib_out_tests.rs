//! Every route is sent once, in its group, at its time.

use super::*;
use crate::bgp::{Negotiated, SessionConfig};
use drophammer_model::routes::{Amount, AttributePattern, GroupSizes, Prefix, RouteRange, RouteTable};
use drophammer_wire::bgp::PathDirection;
use drophammer_wire::bgp::update::{Context, FamilySet, Treatment, Update, as_path};
use proptest::prelude::*;

fn agreed(add_path: bool, extended: bool) -> Negotiated {
    let both = PathDirection { receive: true, send: true };
    let config = |local, peer, id| SessionConfig {
        families: AfiSafi::ALL.to_vec(),
        add_path: if add_path { AfiSafi::ALL.map(|family| (family, both)).to_vec() } else { vec![] },
        extended_messages: extended,
        ..SessionConfig::new(local, peer, Ipv4Addr::from(id))
    };
    Negotiated::from_opens(&config(65_001, 65_000, 1), config(65_000, 65_001, 2).open()).unwrap()
}

fn next_hops() -> NextHops {
    NextHops { ipv4: Some([198, 18, 1, 2].into()), ipv6: Some("2001:2::2".parse().unwrap()), link_local: None }
}

/// All messages, through a buffer of `room` bytes.
fn drain(adj_rib_out: &mut AdjRibOut, agreed: &Negotiated, room: usize) -> Vec<Vec<u8>> {
    let mut messages = Vec::new();
    let mut buffer = vec![0; room];
    while !adj_rib_out.is_empty() {
        let bytes = adj_rib_out.write(Instant(5), agreed, next_hops(), &mut buffer);
        let mut rest = &buffer[..bytes];
        assert!(bytes > 0 || adj_rib_out.is_empty(), "stuck");
        while let Some(message) = drophammer_wire::bgp::frame(rest, agreed.max_send).unwrap() {
            messages.push(rest[..message.message_len()].to_vec());
            rest = &rest[message.message_len()..];
        }
        assert!(rest.is_empty(), "messages are whole");
    }
    messages
}

fn range(v6: bool, count: u32, pattern: AttributePattern) -> Arc<Routes> {
    let first: Prefix = if v6 { "2a00::/40" } else { "20.0.0.0/22" }.parse().unwrap();
    Arc::new(RouteRange::uniform(first, count, 3, pattern).unwrap().into())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn each_route_once_in_any_buffer(
        v6: bool, internet: bool, count in 1u32..800, skip in 0u32..300, routes_per_update in 0u16..600, kind in 0usize..3,
        announce: bool, add_path: bool, room in 4096usize..20_000, seed: u64,
    ) {
        let routes = match internet {
            true => {
                let family = if v6 { Family::Ipv6 } else { Family::Ipv4 };
                Arc::new(RouteRange::internet(family, count, seed).unwrap().into())
            }
            false => range(v6, count, AttributePattern { routes_per_group: GroupSizes::Fixed(90), ..Default::default() }),
        };
        let labels = Labels::Counting(100);
        let kind = [
            EncapsulationKind::Unicast,
            EncapsulationKind::Labelled(labels),
            EncapsulationKind::Vpn { labels, distinguisher: [0, 0, 0, 1, 0, 0, 0, 2], communities: [0, 2, 0, 1, 0, 0, 0, 2] },
        ][kind];
        let agreed = agreed(add_path, false);
        let packing = Packing { routes_per_update, pace: None, prepend: 0 };
        let part = skip..count + 7;
        let fill = || {
            let mut adj_rib_out = AdjRibOut::new();
            let set = RouteSet::unicast(routes.clone(), part.clone(), packing);
            let change = if announce { Change::Advertise } else { Change::Withdraw };
            adj_rib_out.push(change, RouteSet { encapsulation: Encapsulation { kind, path_id: 9 }, ..set });
            adj_rib_out
        };
        let mut adj_rib_out = fill();
        let messages = drain(&mut adj_rib_out, &agreed, room);
        prop_assert_eq!(&messages, &drain(&mut fill(), &agreed, 4096), "the buffer leaves no trace");
        let family = kind.afi_safi(routes.family());
        let context = Context {
            four_octet_as: true, ibgp: false, path_ids: if add_path { FamilySet::of(AfiSafi::ALL) } else { FamilySet::NONE },
            ..Context::default()
        };
        let mut next = skip;
        for message in &messages {
            let update = Update::parse(&message[19..], &context).unwrap();
            prop_assert_eq!((update.treatment, update.discarded), (Treatment::Whole, 0));
            let (come, gone): (Vec<_>, Vec<_>) = (update.announced().collect(), update.withdrawn().collect());
            let (some, none) = if announce { (come, gone) } else { (gone, come) };
            prop_assert!(none.is_empty() && !some.is_empty());
            prop_assert!(routes_per_update == 0 || some.len() <= usize::from(routes_per_update));
            let group = routes.group_of(next);
            for route in &some {
                prop_assert_eq!(Prefix::new(route.address(), route.length), Some(routes.prefix(next)));
                prop_assert_eq!((route.family, route.path_id), (family, add_path.then_some(9)));
                if announce {
                    prop_assert_eq!(routes.group_of(next), group, "one group in a message");
                    prop_assert_eq!(route.label(0), (kind != EncapsulationKind::Unicast).then_some(100 + next));
                }
                next += 1;
            }
            if announce {
                let sent = routes.attributes(group);
                let a = &update.attributes;
                let path: Vec<u32> = as_path::merged(a.as_path.unwrap(), None).collect();
                prop_assert_eq!(path, [&[65_001], &sent.as_path[..]].concat());
                prop_assert_eq!((a.origin, a.med, a.local_pref), (Some(sent.origin.code()), sent.med, None));
                prop_assert_eq!(a.communities.len(), 4 * sent.communities.len());
                prop_assert_eq!(a.extended_communities.len(), if family.is_vpn() { 8 } else { 0 });
                let expected: IpAddr = if v6 { next_hops().ipv6.unwrap().into() } else { next_hops().ipv4.unwrap().into() };
                prop_assert_eq!(update.next_hop(family), Some(expected));
            }
        }
        prop_assert_eq!(next, count.max(skip));
        let sent = adj_rib_out.progress();
        let n = u64::from(count.saturating_sub(skip));
        prop_assert_eq!((sent.advertised, sent.withdrawn), if announce { (n, 0) } else { (0, n) });
        prop_assert_eq!((sent.messages, sent.skipped), (messages.len() as u64, 0));
        let sets = if n > 0 { u64::from(routes.group_of(count - 1) - routes.group_of(skip) + 1) } else { 0 };
        prop_assert_eq!((sent.updates, sent.sets), if announce { (sent.messages, sets) } else { (0, 0) });
        prop_assert_eq!(sent.bytes, messages.iter().map(|m| m.len() as u64).sum::<u64>());
    }
}

#[test]
fn messages_are_as_full_as_they_can_be() {
    let one_group = AttributePattern { routes_per_group: GroupSizes::Fixed(u32::MAX), ..Default::default() };
    let mut adj_rib_out = AdjRibOut::new();
    adj_rib_out.advertise(range(false, 5000, one_group), 0..5000, Packing::default());
    let sizes: Vec<_> = drain(&mut adj_rib_out, &agreed(false, true), 4096).iter().map(Vec::len).collect();
    assert_eq!(sizes.len(), 5);
    assert!(sizes[..4].iter().all(|size| *size > 4090), "{sizes:?}");
    adj_rib_out.advertise(
        range(false, 5000, one_group),
        0..5000,
        Packing { routes_per_update: 5000, pace: None, prepend: 0 },
    );
    assert_eq!(
        adj_rib_out.write(Instant(1), &agreed(false, true), next_hops(), &mut [0; 4096]),
        0,
        "it waits for room"
    );
    assert_eq!(
        drain(&mut adj_rib_out, &agreed(false, true), 65_535).len(),
        1,
        "extended messages where they are asked for"
    );
}

#[test]
fn a_pace_is_kept() {
    let mut adj_rib_out = AdjRibOut::new();
    let agreed = agreed(false, false);
    adj_rib_out.advertise(
        range(true, 10, Default::default()),
        0..10,
        Packing { routes_per_update: 2, pace: Some(1000.0), prepend: 0 },
    );
    let start = Instant(7_000_000);
    assert_eq!(adj_rib_out.next_deadline(start), Some(start));
    let mut buffer = [0; 4096];
    for n in 0..5 {
        let due = adj_rib_out.next_deadline(start).unwrap();
        assert_eq!(due, start + Duration::from_millis(2 * n));
        if n > 0 {
            assert_eq!(adj_rib_out.write(Instant(due.0 - 1), &agreed, next_hops(), &mut buffer), 0);
        }
        assert!(adj_rib_out.write(due, &agreed, next_hops(), &mut buffer) > 0);
        assert_eq!(adj_rib_out.progress().advertised, 2 * (n + 1));
    }
    assert_eq!(adj_rib_out.next_deadline(start), None);
}

#[test]
fn a_pace_goes_on_from_job_to_job() {
    let (mut adj_rib_out, agreed) = (AdjRibOut::new(), agreed(false, false));
    let paced = Packing { pace: Some(1000.0), ..Packing::default() };
    for _ in 0..2 {
        // Each withdrawal is one message.
        adj_rib_out.withdraw(range(true, 100, Default::default()), 0..100, paced);
    }
    adj_rib_out.withdraw(range(true, 100, Default::default()), 0..10, Packing::default());
    adj_rib_out.withdraw(range(true, 100, Default::default()), 0..7, paced);
    let (start, mut buffer) = (Instant(7_000_000), [0; 4096]);
    let ms = |n| start + Duration::from_millis(n);
    assert!(adj_rib_out.write(start, &agreed, next_hops(), &mut buffer) > 0);
    assert_eq!((adj_rib_out.progress().withdrawn, adj_rib_out.next_deadline(start)), (100, Some(ms(100))));
    assert_eq!(adj_rib_out.write(ms(99), &agreed, next_hops(), &mut buffer), 0);
    // The job without a pace leaves after the one before it.
    assert!(adj_rib_out.write(ms(100), &agreed, next_hops(), &mut buffer) > 0);
    assert_eq!((adj_rib_out.progress().withdrawn, adj_rib_out.next_deadline(ms(100))), (210, Some(ms(200))));
    // A job that begins late is not sped up.
    assert!(adj_rib_out.write(ms(900), &agreed, next_hops(), &mut buffer) > 0);
    adj_rib_out.withdraw(range(true, 100, Default::default()), 0..1, paced);
    assert_eq!(adj_rib_out.next_deadline(ms(900)), Some(ms(907)));
    adj_rib_out.clear();
    adj_rib_out.withdraw(range(true, 100, Default::default()), 0..1, paced);
    assert_eq!(adj_rib_out.next_deadline(ms(900)), Some(ms(900)), "earlier jobs are forgotten");
}

#[test]
fn what_cannot_be_sent_is_counted() {
    let only_v4 = {
        let config = SessionConfig { families: vec![AfiSafi::ALL[0]], ..SessionConfig::new(1, 2, [1; 4].into()) };
        let theirs = SessionConfig { families: vec![AfiSafi::ALL[0]], ..SessionConfig::new(2, 1, [2; 4].into()) };
        Negotiated::from_opens(&config, theirs.open()).unwrap()
    };
    let mut adj_rib_out = AdjRibOut::new();
    adj_rib_out.advertise(range(true, 10, Default::default()), 0..10, Packing::default());
    adj_rib_out.end_of_rib(AfiSafi::IPV6_UNICAST);
    assert!(drain(&mut adj_rib_out, &only_v4, 4096).is_empty());
    assert_eq!(adj_rib_out.progress().skipped, 10);
    adj_rib_out.advertise(range(true, 10, Default::default()), 0..10, Packing::default());
    let v4_alone = NextHops { ipv6: None, ..next_hops() };
    assert_eq!(adj_rib_out.write(Instant(1), &agreed(false, false), v4_alone, &mut [0; 4096]), 0);
    assert_eq!((adj_rib_out.progress().skipped, adj_rib_out.is_empty()), (20, true));
    let long = RouteAttributes { as_path: vec![70_000; 1200], ..Default::default() };
    let routes = [("1.0.0.0/8", long), ("2.0.0.0/8", RouteAttributes::default())];
    let table = RouteTable::new("t", Family::Ipv4, routes.map(|(p, a)| (p.parse().unwrap(), a)));
    adj_rib_out.advertise(Arc::new(table.into()), 0..2, Packing::default());
    assert_eq!(drain(&mut adj_rib_out, &agreed(false, false), 4096).len(), 1);
    assert_eq!((adj_rib_out.progress().skipped, adj_rib_out.progress().advertised), (21, 1));
}

#[test]
fn jobs_keep_their_order() {
    let mut adj_rib_out = AdjRibOut::new();
    let routes = range(false, 10, Default::default());
    adj_rib_out.raw(vec![0xff; 5000]);
    adj_rib_out.advertise(routes.clone(), 0..10, Packing::default());
    adj_rib_out.withdraw(routes.clone(), 2..3, Packing::default());
    adj_rib_out.end_of_rib(AfiSafi::IPV4_UNICAST);
    let mut buffer = vec![0; 20_000];
    let bytes = adj_rib_out.write(Instant(1), &agreed(false, false), next_hops(), &mut buffer);
    assert!(adj_rib_out.is_empty());
    assert!(buffer[..5000].iter().all(|byte| *byte == 0xff));
    let mut kinds = Vec::new();
    let mut rest = &buffer[5000..bytes];
    while let Some(message) = drophammer_wire::bgp::frame(rest, 4096).unwrap() {
        let context = Context { four_octet_as: true, ..Default::default() };
        let update = Update::parse(message.body, &context).unwrap();
        kinds.push((update.announced().count(), update.withdrawn().count(), update.end_of_rib()));
        rest = &rest[message.message_len()..];
    }
    assert_eq!(kinds, [(10, 0, None), (0, 1, None), (0, 0, Some(AfiSafi::IPV4_UNICAST))]);
    adj_rib_out.advertise(routes, 0..10, Packing::default());
    adj_rib_out.clear();
    assert!(adj_rib_out.is_empty() && adj_rib_out.next_deadline(Instant(1)).is_none());
}

#[test]
fn requests_for_a_refresh_do_not_pile_up() {
    let (mut adj_rib_out, agreed) = (AdjRibOut::new(), agreed(false, false));
    let routes = range(false, 300, Default::default());
    adj_rib_out.advertise(routes.clone(), 0..200, Packing::default());
    adj_rib_out.advertise(range(true, 20, Default::default()), 0..20, Packing::default());
    drain(&mut adj_rib_out, &agreed, 4096);
    let refresh = |adj_rib_out: &mut AdjRibOut, requests: u32| {
        (0..requests).for_each(|_| adj_rib_out.refresh(AfiSafi::IPV4_UNICAST, true));
    };
    let mut before = adj_rib_out.progress().advertised;
    let mut sent = |adj_rib_out: &mut AdjRibOut| {
        drain(adj_rib_out, &agreed, 4096);
        let sent = adj_rib_out.progress().advertised - before;
        before += sent;
        sent
    };
    // The first one may have begun, and another one waits.
    refresh(&mut adj_rib_out, 1_000);
    adj_rib_out.refresh(AfiSafi::IPV6_UNICAST, true);
    assert_eq!(sent(&mut adj_rib_out), 200 + 200 + 20);
    // Requests after the beginning need one more, with the routes of that time.
    refresh(&mut adj_rib_out, 1);
    assert!(adj_rib_out.write(Instant(5), &agreed, next_hops(), &mut [0; 64]) > 0 && !adj_rib_out.is_empty());
    adj_rib_out.advertise(routes, 200..300, Packing::default());
    refresh(&mut adj_rib_out, 1_000);
    assert_eq!(sent(&mut adj_rib_out), 200 + 100 + 300);
    // What waited when a session ended does not answer the requests of the next one.
    refresh(&mut adj_rib_out, 9);
    adj_rib_out.say_again();
    assert_eq!(sent(&mut adj_rib_out), 320);
    refresh(&mut adj_rib_out, 1);
    assert_eq!(sent(&mut adj_rib_out), 300);
}

#[test]
fn an_internal_speaker_adds_no_as_and_a_preference() {
    let config = |id| SessionConfig::new(65_001, 65_001, Ipv4Addr::from(id));
    let internal = Negotiated::from_opens(&config(1), config(2).open()).unwrap();
    let mut adj_rib_out = AdjRibOut::new();
    let pattern = AttributePattern { as_path: Amount::Fixed(0), ..Default::default() };
    adj_rib_out.advertise(range(false, 1, pattern), 0..1, Packing::default());
    let messages = drain(&mut adj_rib_out, &internal, 4096);
    let context = Context { four_octet_as: true, ibgp: true, ..Context::default() };
    let update = Update::parse(&messages[0][19..], &context).unwrap();
    assert_eq!((update.attributes.as_path.unwrap().length(), update.attributes.local_pref), (0, Some(100)));
}
