//! Properties of ranges of every kind.

use super::*;
use proptest::prelude::*;

fn any_range() -> impl Strategy<Value = Routes> {
    let first4 = prop_oneof![9 => 1u32..0xe000_0000, 1 => 0x0a00_0000u32..0x0b00_0000];
    let uniform4 = (first4, 4u8..=32, 1u32..3000, 1u32..500, 1u32..20).prop_filter_map(
        "no space",
        |(bits, length, count, step, group)| {
            let first = Prefix::masked(IpAddr::V4(bits.into()), length)?;
            let routes_per_group = GroupSizes::Fixed(group);
            let count = count.min(1 << length.min(20));
            RouteRange::uniform(first, count, step, AttributePattern { routes_per_group, ..Default::default() }).ok()
        },
    );
    let uniform6 =
        (any::<u128>(), 8u8..=128, 1u32..3000, 1u32..500).prop_filter_map("no space", |(bits, length, count, step)| {
            let bits = bits >> 3 | 1 << 125;
            let first = Prefix::masked(IpAddr::V6(bits.into()), length)?;
            RouteRange::uniform(first, count, step, AttributePattern::internet(1)).ok()
        });
    let internet = (any::<bool>(), 1u32..5000, any::<u64>())
        .prop_map(|(v6, count, seed)| RouteRange::internet(if v6 { Family::Ipv6 } else { Family::Ipv4 }, count, seed));
    let orders = prop::sample::select(vec![Order::Sorted, Order::Clustered, Order::Scattered]);
    (prop_oneof![uniform4, uniform6, internet.prop_map(Result::unwrap)], orders)
        .prop_map(|(range, order)| Routes::Range(range.in_order(order)))
}

/// Ranges of each kind, large enough to show their order.
fn large() -> Vec<RouteRange> {
    let uniform = RouteRange::uniform("20.0.0.0/24".parse().unwrap(), 100_000, 1, AttributePattern::internet(1));
    let grouped = RouteRange::internet(Family::Ipv4, 200_000, 3).unwrap().in_groups(GroupSizes::Fixed(500));
    let families = [Family::Ipv4, Family::Ipv6].map(|family| RouteRange::internet(family, 200_000, 1).unwrap());
    families.into_iter().chain([uniform.unwrap(), grouped]).collect()
}

#[test]
fn all_orders_have_the_same_prefixes_and_groups() {
    for range in large() {
        let scattered = Routes::from(range.clone());
        let mut expected: Vec<Prefix> = scattered.iter(0..u32::MAX).collect();
        expected.sort_unstable();
        for order in [Order::Sorted, Order::Clustered] {
            let routes = Routes::from(range.clone().in_order(order));
            let mut found: Vec<Prefix> = routes.iter(0..u32::MAX).collect();
            assert!(order != Order::Sorted || found.is_sorted(), "{}", routes.name());
            for i in (0..routes.len()).step_by(7) {
                assert_eq!((routes.prefix(i), routes.index_of(&routes.prefix(i))), (found[i as usize], Some(i)));
            }
            found.sort_unstable();
            assert_eq!(found, expected, "{}", routes.name());
            assert_eq!(routes.groups(), scattered.groups());
        }
    }
}

/// Share of near neighbours within groups, and across the border of two groups. Neighbours are near if their distance
/// is less than 64 times the size of the larger one.
fn near(routes: &Routes) -> [f64; 2] {
    let near = |i: u32, j: u32| {
        let [a, b] = [i, j].map(|i| routes.prefix(i));
        let size = prefix::width(routes.family()) - a.length().min(b.length());
        let distance = prefix::number(a.address()).abs_diff(prefix::number(b.address()));
        u32::from(distance >> (size + 6) == 0)
    };
    let (mut within, mut all, mut between) = (0, 0, 0);
    for group in 0..routes.groups() - 1 {
        let part = routes.group(group);
        within += (part.start + 1..part.end).map(|i| near(i - 1, i)).sum::<u32>();
        all += part.len() as u32 - 1;
        between += near(part.end - 1, part.end);
    }
    [f64::from(within) / f64::from(all), f64::from(between) / f64::from(routes.groups() - 1)]
}

#[test]
fn orders_differ_in_what_is_near() {
    for range in large() {
        let of = |order| near(&Routes::from(range.clone().in_order(order)));
        let [sorted, clustered, scattered] = [Order::Sorted, Order::Clustered, Order::Scattered].map(of);
        let name = format!("{:?}: {sorted:?}, {clustered:?}, {scattered:?}", range.description());
        assert!(sorted[0] > 0.97 && sorted[1] > 0.97, "{name}");
        assert!(clustered[0] > 0.97 && clustered[1] < 0.1, "{name}");
        assert!(scattered[0] < 0.1 && scattered[1] < 0.1, "{name}");
    }
}

#[test]
fn groups_of_one_size_have_the_lengths_of_all() {
    let range = RouteRange::internet(Family::Ipv4, 1_000_000, 1).unwrap().in_order(Order::Clustered);
    let routes = Routes::from(range);
    let (mut of_24, mut all) = ([0u32; 2], [0u32; 2]);
    for group in 0..routes.groups() {
        let part = routes.group(group);
        let large = usize::from(part.len() > 20);
        let here = routes.iter(part.clone()).filter(|p| p.length() == 24).count() as u32;
        of_24[large] += here;
        all[large] += part.len() as u32;
    }
    for size in 0..2 {
        let share = f64::from(of_24[size]) / f64::from(all[size]);
        assert!((0.55..0.69).contains(&share), "{share} of the routes, large groups: {size}");
    }
}

#[test]
fn a_record_without_order_is_scattered() {
    let old = r#"{"range":{"internet":{"family":"ipv4","count":5,"seed":1}}}"#;
    let Routes::Range(range) = serde_json::from_str(old).unwrap() else { panic!("{old}") };
    assert_eq!(range, RouteRange::internet(Family::Ipv4, 5, 1).unwrap());
    assert_eq!(range.order(), Order::Scattered);
}

/// Checks that no prefix is nested or forbidden, that all are recognised, and that no other prefix is. A range that
/// begins in a private block is for VPNs and stays there.
fn check(routes: &Routes) {
    let mut all: Vec<Prefix> = routes.iter(0..routes.len()).collect();
    assert_eq!(all.len(), routes.len() as usize);
    let block = super::space::private(&all[0]);
    let expected = reserved(&all[0]).filter(|_| block.is_some());
    for (i, prefix) in all.iter().enumerate() {
        assert_eq!(routes.index_of(prefix), Some(i as u32), "{prefix}");
        assert_eq!((super::space::private(prefix), reserved(prefix)), (block, expected), "{prefix}");
    }
    all.sort_unstable();
    for pair in all.windows(2) {
        assert!(pair[0].bounds().1 < pair[1].bounds().0, "{pair:?}");
        // Parents and children of a route are not in the range.
        for length in [pair[0].length() - 1, pair[0].length() + 1] {
            if let Some(other) = Prefix::masked(pair[0].address(), length) {
                assert_eq!(routes.index_of(&other), None, "{other}");
            }
        }
    }
}

proptest! {
    #[test]
    fn indices_and_prefixes(routes in any_range(), start: u32, salt: u32) {
        check(&routes);
        let start = start % routes.len();
        for (n, prefix) in routes.iter(start..u32::MAX).enumerate() {
            let i = start + n as u32;
            prop_assert_eq!(prefix, routes.prefix(i));
            prop_assert_eq!(prefix.family(), routes.family());
            prop_assert!(prefix.contains(routes.address(i, salt)));
        }
    }

    #[test]
    fn what_is_recognised_is_in_the_range(routes in any_range(), bits: u128, length in 0u8..=128) {
        let length = length.min(prefix::width(routes.family()));
        let prefix = Prefix::masked(prefix::address(routes.family(), bits), length).unwrap();
        if let Some(i) = routes.index_of(&prefix) {
            prop_assert!(i < routes.len());
            prop_assert_eq!(routes.prefix(i), prefix);
        }
    }

    #[test]
    fn neighbours_of_a_route(routes in any_range(), i: u32, flip in 0u8..128, length in 0u8..=128) {
        let prefix = routes.prefix(i % routes.len());
        let family = routes.family();
        let bits = prefix::number(prefix.address()) ^ 1 << (flip % prefix::width(family));
        for length in [length.min(prefix::width(family)), prefix.length()] {
            let other = Prefix::masked(prefix::address(family, bits), length).unwrap();
            if let Some(j) = routes.index_of(&other) {
                prop_assert_eq!(routes.prefix(j), other);
            }
        }
    }

    #[test]
    fn groups(routes in any_range()) {
        let mut next = 0;
        for g in 0..routes.groups() {
            let group = routes.group(g);
            prop_assert_eq!(group.start, next);
            prop_assert!(group.end > group.start);
            prop_assert!(routes.group_of(group.start) == g && routes.group_of(group.end - 1) == g);
            next = group.end;
        }
        prop_assert_eq!(next, routes.len());
    }

    #[test]
    fn records(routes in any_range()) {
        let text = serde_json::to_string(&routes).unwrap();
        prop_assert!(text.len() < 400);
        let again: Routes = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(&again, &routes);
        prop_assert_eq!(again.prefix(routes.len() - 1), routes.prefix(routes.len() - 1));
    }
}

fn lengths(routes: &Routes) -> [u32; 129] {
    let mut lengths = [0; 129];
    routes.iter(0..routes.len()).for_each(|p| lengths[usize::from(p.length())] += 1);
    lengths
}

#[test]
fn a_full_table_of_ipv4() {
    let routes = Routes::from(RouteRange::internet(Family::Ipv4, 1_000_000, 1).unwrap());
    check(&routes);
    let lengths = lengths(&routes);
    for (length, share) in
        [(24, 0.60..0.64), (23, 0.09..0.11), (22, 0.11..0.125), (21, 0.045..0.055), (20, 0.04..0.046)]
    {
        assert!(share.contains(&(f64::from(lengths[length]) / 1e6)), "/{length}: {}", lengths[length]);
    }
    assert!((8..=24).all(|l| lengths[l] > 0) && lengths[8] <= 16, "{lengths:?}");
    let mean = f64::from(routes.len()) / f64::from(routes.groups());
    assert!((5.0..8.0).contains(&mean), "{mean} routes per group");
    // Lengths are mixed within groups, and addresses spread over the space.
    let first: Vec<Prefix> = routes.iter(0..1000).collect();
    let of_24 = first.iter().filter(|p| p.length() == 24).count();
    assert!((500..750).contains(&of_24), "{of_24} of 1000");
    let blocks: std::collections::HashSet<_> = first.iter().map(|p| prefix::number(p.address()) >> 24).collect();
    assert!(blocks.len() > 100, "{} blocks", blocks.len());
}

#[test]
fn a_full_table_of_ipv6() {
    let routes = Routes::from(RouteRange::internet(Family::Ipv6, 200_000, 1).unwrap());
    check(&routes);
    let lengths = lengths(&routes);
    for (length, share) in [(48, 0.44..0.48), (32, 0.11..0.14), (44, 0.08..0.1), (40, 0.07..0.09), (29, 0.04..0.05)] {
        assert!(share.contains(&(f64::from(lengths[length]) / 2e5)), "/{length}: {}", lengths[length]);
    }
}

#[test]
fn ten_million() {
    let uniform = |first: &str, step| {
        RouteRange::uniform(first.parse().unwrap(), 10_000_000, step, AttributePattern::default()).unwrap()
    };
    let ranges = [
        RouteRange::internet(Family::Ipv4, 10_000_000, 7).unwrap(),
        RouteRange::internet(Family::Ipv6, 10_000_000, 7).unwrap(),
        uniform("1.0.0.0/24", 1),
        uniform("1.0.0.0/32", 300),
        uniform("2a00::/48", 70_000),
    ];
    let ranges = ranges.into_iter().flat_map(|range| {
        [Order::Sorted, Order::Clustered, Order::Scattered].map(|order| range.clone().in_order(order))
    });
    for range in ranges {
        let heap = range.heap();
        assert!(std::mem::size_of_val(&range) + heap < 3000, "{} + {heap} bytes", std::mem::size_of_val(&range));
        let routes = Routes::from(range);
        for i in (0..10_000_000).step_by(997) {
            let prefix = routes.prefix(i);
            assert_eq!((routes.index_of(&prefix), reserved(&prefix)), (Some(i), None), "{prefix}");
        }
    }
}

#[test]
fn what_there_is_no_space_for() {
    let uniform = |first: &str, count, step| {
        RouteRange::uniform(first.parse().unwrap(), count, step, AttributePattern::default())
    };
    assert_eq!(uniform("1.0.0.0/24", 0, 1), Err(RouteError::Empty));
    assert_eq!(uniform("1.0.0.0/24", 1, 0), Err(RouteError::Step));
    assert_eq!(uniform("223.255.254.0/24", 3, 1), Err(RouteError::TooMany { asked: 3, fit: 2 }));
    for first in ["172.16.0.0/16", "198.19.0.0/24", "8.0.0.0/5", "240.0.0.0/8", "2001:2::/48", "fc00::/32", "::/0"] {
        assert!(matches!(uniform(first, 1, 1), Err(RouteError::Forbidden { .. })), "{first}");
    }
    assert!(matches!(RouteRange::internet(Family::Ipv4, 15_000_000, 1), Err(RouteError::TooMany { .. })));
    assert_eq!(uniform("10.255.255.0/24", 2, 1), Err(RouteError::TooMany { asked: 2, fit: 1 }), "it stays private");
    assert_eq!(uniform("fdff:ffff:ffff:ffff::/64", 2, 1), Err(RouteError::TooMany { asked: 2, fit: 1 }), "in IPv6 too");
    let private = Routes::from(uniform("10.128.0.0/24", 3, 1).unwrap());
    assert_eq!([0, 2].map(|i| private.prefix(i).to_string()), ["10.128.0.0/24", "10.128.2.0/24"]);
    let around = Routes::from(uniform("9.255.255.0/24", 2, 1).unwrap());
    assert_eq!([0, 1].map(|i| around.prefix(i).to_string()), ["9.255.255.0/24", "11.0.0.0/24"]);
}

#[test]
fn route_0_of_a_uniform_range_is_its_first() {
    let first: Prefix = "20.0.0.0/24".parse().unwrap();
    let routes = Routes::from(RouteRange::uniform(first, 1000, 4, AttributePattern::default()).unwrap());
    assert_eq!(
        (routes.prefix(0), routes.name()),
        (first, "1000 × /24 from 20.0.0.0/24, every 4th, scattered".to_owned())
    );
    let mut all: Vec<_> = routes.iter(0..1000).collect();
    assert!(!all.is_sorted());
    all.sort_unstable();
    assert_eq!((all[1].to_string(), all[999].to_string()), ("20.0.4.0/24".into(), "20.15.156.0/24".into()));
}

#[test]
fn a_table_is_recorded_by_its_description() {
    let routes = [("1.0.0.0/8", 5), ("1.2.0.0/16", 5), ("3.0.0.0/8", 6)].map(|(text, asn)| {
        (text.parse().unwrap(), RouteAttributes { as_path: vec![asn], ..RouteAttributes::default() })
    });
    let table = Routes::from(RouteTable::new("routes.csv", Family::Ipv4, routes));
    assert_eq!((table.len(), table.groups(), table.group(0)), (3, 2, 0..2));
    assert_eq!(table.iter(1..9).map(|p| p.to_string()).collect::<Vec<_>>(), ["1.2.0.0/16", "3.0.0.0/8"]);
    assert_eq!(table.attributes(1).as_path, [6]);
    for salt in 0..200 {
        assert!(!"1.2.0.0/16".parse::<Prefix>().unwrap().contains(table.address(0, salt)));
    }
    let text = serde_json::to_string(&table).unwrap();
    assert_eq!(text, r#"{"table":{"name":"routes.csv","family":"ipv4","count":3}}"#);
    let Routes::Table(again) = serde_json::from_str(&text).unwrap() else { panic!("{text}") };
    assert_eq!((again.len(), again.name(), again.is_loaded()), (3, "routes.csv", false));
}
