//! Whole tables through the device: what the emulated speakers' Adj-RIB-Out sends and their Adj-RIB-In expects,
//! compared with the device's own counts. Device and speakers share no code to read and write UPDATEs.

use crate::common::{MS, SECOND, Test, net4, net6};
use crate::speakers::{DUT, World, asn, config};
use drophammer_emulation::bgp::{ExpectationId, Expected, Packing, RouteSource, Verified};
use drophammer_model::Instant;
use drophammer_model::routes::{RouteRange, Routes};
use drophammer_model::trial::Family;
use drophammer_reference::{BgpConfig, BgpFaults, Config, Faults};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Delay until the device re-advertises.
const DELAY: Duration = Duration::from_micros(2_500);

fn times() -> BgpConfig {
    BgpConfig { propagation_delay: DELAY, ..BgpConfig::default() }
}

fn internet(family: Family, routes: u32) -> Arc<Routes> {
    Arc::new(Routes::Range(RouteRange::internet(family, routes, 7).unwrap()))
}

fn world(config: Config) -> World {
    let mut world = World::new(config);
    world.speakers.iter_mut().for_each(|s| s.forgetful = true);
    world.run_until(Instant(SECOND));
    world
}

/// The speaker on port 0 advertises all routes; the speakers on the other ports expect them.
fn announce(world: &mut World, routes: &Arc<Routes>) -> Vec<ExpectationId> {
    let (now, all) = (world.now, 0..routes.len());
    let ids = (1..world.speakers.len()).map(|port| {
        let own: IpAddr = if routes.family() == Family::Ipv4 { net4(port, 1).into() } else { net6(port, 1).into() };
        let expected = Expected {
            source: RouteSource::External,
            as_path_prefix: vec![DUT, asn(0)],
            next_hop: Some(own),
            check_attributes: true,
            times: true,
            labels: false,
            label: None,
        };
        world.speakers[port].adj_rib_in.expect(now, routes.clone(), all.clone(), expected)
    });
    let ids = ids.collect();
    world.speakers[0].adj_rib_out.advertise(routes.clone(), all, Packing::default());
    ids
}

fn report(world: &World, port: usize, ids: &[ExpectationId]) -> Verified {
    world.speakers[port].adj_rib_in.report(ids[port - 1])
}

/// The environment variable `DROPHAMMER_ROUTES` sets another number.
#[test]
fn two_hundred_thousand_routes_of_a_real_mix_come_out_right_and_on_time() {
    let count: u32 = std::env::var("DROPHAMMER_ROUTES").map_or(200_000, |n| n.parse().unwrap());
    let mut world = world(config(3, false, times()));
    let routes = internet(Family::Ipv4, count);
    let start = world.now;
    let ids = announce(&mut world, &routes);
    let began = std::time::Instant::now();
    world.run_until(start + DELAY);
    println!("{count} routes, told to two peers: {:?}", began.elapsed());
    for port in [1, 2] {
        let told = report(&world, port, &ids);
        assert!(told.is_right(), "{told:?} {:?}", world.speakers[port].adj_rib_in.totals());
        assert_eq!((told.present, told.received, told.repeated), (count, count.into(), 0));
        assert_eq!((told.first_at, told.last_at), (Some(start + DELAY), Some(start + DELAY)));
        let times = world.speakers[port].adj_rib_in.times(ids[port - 1]).unwrap();
        assert!(times.iter().all(|us| *us == 2_500), "every single one");
    }
    let truth = *world.router.truth();
    assert_eq!((truth.bgp.routes_received, truth.bgp.routes), (count.into(), count.into()));
    assert_eq!((truth.fib.ipv4, truth.bgp.fib_changes), (count.into(), count.into()));
    // The device forwards to a sample of the routes.
    let step = (count / 1_000).max(1) as usize;
    let sample: Vec<u32> = (0..count).step_by(step).collect();
    for i in &sample {
        let test = Test {
            source: net4(1, 2).into(),
            destination: routes.address(*i, 3),
            size: 128,
            ..Test::new(1, 0, Family::Ipv4)
        };
        world.offer(1, &test.frame(*i));
    }
    world.settle();
    let seen: Vec<u32> = world.frames[0].iter().filter_map(|f| crate::common::read(&f.1)).map(|s| s.number).collect();
    assert_eq!(seen, sample);

    // Withdrawn again.
    world.speakers[0].adj_rib_out.withdraw(routes.clone(), 0..count, Packing::default());
    let gone = world.now;
    for port in [1, 2] {
        world.speakers[port].adj_rib_in.change(gone, ids[port - 1], 0..count, false);
    }
    let began = std::time::Instant::now();
    world.run_until(gone + DELAY);
    println!("withdrawn: {:?}", began.elapsed());
    for port in [1, 2] {
        let told = report(&world, port, &ids);
        assert_eq!((told.present, told.unexpected, told.withdrawn), (0, 0, count.into()), "{told:?}");
        assert!(world.speakers[port].adj_rib_in.is_complete(ids[port - 1]));
    }
    assert_eq!((world.router.truth().bgp.paths, world.router.truth().fib.ipv4), (0, 0));
}

#[test]
fn ipv6_routes_of_a_real_mix() {
    let mut world = world(config(2, true, times()));
    let routes = internet(Family::Ipv6, 20_000);
    let ids = announce(&mut world, &routes);
    world.run_until(world.now + DELAY);
    let told = report(&world, 1, &ids);
    assert!(told.is_right() && told.present == 20_000, "{told:?}");
    assert_eq!(world.router.truth().fib.ipv6, 20_000);
}

#[test]
fn verification_finds_exactly_the_routes_that_are_advertised_wrong() {
    const COUNT: u32 = 30_000;
    let mut world = world(config(2, false, times()));
    let routes = internet(Family::Ipv4, COUNT);
    let bgp = BgpFaults {
        lost_route_every: 1_000,
        wrong_next_hop_every: 700,
        wrong_as_path_every: 300,
        ..BgpFaults::default()
    };
    world.router.set_faults(Faults { bgp, ..Faults::default() }).unwrap();
    let ids = announce(&mut world, &routes);
    world.run_until(world.now + DELAY);
    let told = report(&world, 1, &ids);
    // Routes are numbered in the order in which they were sent, which is the order of their index.
    let numbers = |every: u32| (1..=COUNT).filter(move |n| n % every == 0 && n % 1_000 != 0).count() as u64;
    assert_eq!((told.missing, told.wrong_next_hop, told.wrong_as_path), (30, numbers(700), numbers(300)));
    assert_eq!((told.wrong_attributes, told.present), (0, COUNT - 30));
    let truth = world.router.truth().bgp;
    assert_eq!((truth.lost, truth.wrong_next_hop, truth.wrong_as_path), (30, numbers(700), numbers(300)));
    let missing = world.speakers[1].adj_rib_in.missing(ids[0], 100);
    let expected: Vec<_> = (1..=30).map(|n| routes.prefix(n * 1_000 - 1)).collect();
    assert_eq!(missing, expected);
}

#[test]
fn a_flapping_session_leaves_no_route_behind() {
    const COUNT: u32 = 5_000;
    let mut world = world(config(2, false, times()));
    let routes = internet(Family::Ipv4, COUNT);
    let ids = announce(&mut world, &routes);
    world.run_until(world.now + Duration::from_secs(1));
    for _ in 0..3 {
        // While the speaker advertises, and once afterwards.
        world.speakers[0].adj_rib_out.withdraw(routes.clone(), 0..COUNT / 2, Packing::default());
        world.run_until(world.now + DELAY / 2);
        let now = world.now;
        world.speakers[0].session.abort(now);
        world.speakers[1].adj_rib_in.change(now, ids[0], 0..COUNT, false);
        world.run_until(Instant(now.0 + 100 * MS));
        assert!(world.speakers[1].adj_rib_in.is_complete(ids[0]), "{:?}", report(&world, 1, &ids));
        assert_eq!(world.router.truth().fib.ipv4, 0);
        world.run_until(world.now + Duration::from_secs(3));
        world.speakers[1].adj_rib_in.change(world.now, ids[0], 0..COUNT, true);
        world.speakers[0].adj_rib_out.advertise(routes.clone(), 0..COUNT, Packing::default());
        world.run_until(world.now + Duration::from_secs(1));
        assert!(world.speakers[1].adj_rib_in.is_complete(ids[0]), "{:?}", report(&world, 1, &ids));
        assert_eq!((world.router.truth().fib.ipv4, world.router.truth().bgp.sessions), (COUNT.into(), 2));
    }
}
