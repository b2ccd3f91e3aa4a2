//! Operations of a test on the routers of a bed while the device fails.

use super::*;
use drophammer_methods::routing::{TableChoice, WatchIndex};
use drophammer_methods::{Change, Packing, RouteAction, Sending, Settled, Testbed};
use drophammer_model::routes::AfiSafi;
use drophammer_reference::{BgpFaults, Faults};
use drophammer_testbed::setup::TestSetup;
use drophammer_testbed::simulated::Reference;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

pub const PATIENCE: Duration = Duration::from_secs(3);

/// A bed on which the first sessions of two ports are up. A watch on the second port waits for the first port's `count`
/// routes.
pub fn with<T>(
    bgp: &str,
    count: u32,
    use_it: impl FnOnce(&mut TestSetup<'_>, &Reference, Arc<Routes>, WatchIndex) -> T,
) -> T {
    let suite = suite(", propagation_delay: 10 ms", 2, bgp, "  - bgp_table_capacity\n");
    let delay = |config: &mut drophammer_reference::Config| {
        config.bgp.as_mut().unwrap().propagation_delay = Duration::from_millis(10);
    };
    crate::common::with_bed(&suite, &[Family::Ipv4], delay, |bed, device| {
        let routing = bed.routing().unwrap();
        let peers: Vec<_> = routing.peers().iter().map(|p| (p.name.clone(), p.family)).collect();
        assert_eq!((peers[0].0.as_str(), peers[2].0.as_str(), peers[2].1), ("p1", "p2", Family::Ipv4));
        let times = routing.establish(&[0, 2], Duration::from_secs(5)).unwrap();
        assert!(times.iter().all(|t| *t < Duration::from_secs(2)));
        let all = routing.table(&TableChoice::named("internet"), AfiSafi::IPV4_UNICAST, count).unwrap();
        let watch = routing.watch(2, 0, &all);
        use_it(bed, device, all, watch)
    })
}

pub fn say(bed: &mut TestSetup<'_>, all: &Arc<Routes>, watch: WatchIndex, part: Range<u32>, present: bool) -> Settled {
    let (peer, routes, packing) = (0, all.clone(), Packing::default());
    let routing = bed.routing().unwrap();
    routing.expect(watch, part.clone(), present);
    let change = if present { Change::Advertise } else { Change::Withdraw };
    let action = RouteAction::Routes { peer, change, routes, part, packing };
    routing.act(&action).unwrap();
    routing.await_settled(&[watch], PATIENCE).unwrap()
}

pub fn faults(device: &Reference, bgp: BgpFaults) {
    device.set_faults(Faults { bgp, ..Faults::default() }).unwrap();
}

#[test]
fn what_has_settled_is_not_waited_for() {
    with("{}", 1_000, |bed, device, all, watch| {
        let routing = bed.routing().unwrap();
        let begun = routing.now_s();
        let at_once = Settled {
            complete: true,
            last_change_s: 0.0,
            first_change_s: None,
            sent_s: Some(0.0),
            sending: Sending::default(),
            cause: String::new(),
        };
        assert_eq!(routing.await_settled(&[watch], PATIENCE).unwrap(), at_once, "nothing is expected");
        assert_eq!(routing.now_s(), begun);
        let settled = say(bed, &all, watch, 0..1_000, true);
        let (first, sent) = (settled.first_change_s.unwrap(), settled.sent_s.unwrap());
        assert!(settled.complete && 0.01 <= first && first <= settled.last_change_s && sent < first, "{settled:?}");
        about(settled.last_change_s, 0.01, TICK_S * 2.0);
        let routing = bed.routing().unwrap();
        assert_eq!(routing.await_settled(&[watch], PATIENCE).unwrap(), at_once, "and nothing has changed");
        let verified = routing.verified(watch);
        assert_eq!((verified.present, verified.announcements, verified.withdrawals), (1_000, 1_000, 0));
        assert_eq!(routing.trace(watch).skyline.last().unwrap().1, 1_000);
        assert!(routing.trace(watch).times.iter().all(|t| t.is_some_and(|t| (0.01..0.0102).contains(&t))));
        // When some routes are withdrawn, the others have no times.
        assert!(say(bed, &all, watch, 300..500, false).complete);
        let times = bed.routing().unwrap().trace(watch).times;
        assert!((0..1_000).all(|i| times[i].is_some() == (300..500).contains(&i)));
        assert_eq!((device.truth().bgp.routes, bed.routing().unwrap().verified(watch).withdrawals), (800, 200));
    });
}

#[test]
fn what_does_not_come_is_given_up_after_the_patience() {
    with("{}", 1_000, |bed, _, all, watch| {
        assert!(say(bed, &all, watch, 0..500, true).complete);
        let routing = bed.routing().unwrap();
        routing.expect(watch, 500..1_000, true);
        let begun = routing.now_s();
        let settled = routing.await_settled(&[watch], PATIENCE).unwrap();
        assert_eq!((settled.complete, settled.cause.as_str()), (false, "nothing more came for 3 s"));
        assert_eq!((settled.last_change_s, settled.first_change_s), (0.0, None));
        about(routing.now_s() - begun, 3.0, 0.06);
        assert_eq!(
            (routing.verified(watch).missing, routing.missing(watch, 2)),
            (500, vec![all.prefix(500), all.prefix(501)])
        );
    });
}

#[test]
fn routes_that_come_and_go_for_ever_are_given_up_and_named() {
    with("{}", 1_000, |bed, device, all, watch| {
        assert!(say(bed, &all, watch, 0..500, true).complete);
        let flap_interval = Duration::from_millis(100);
        faults(device, BgpFaults { flap_every: 10, flap_interval, ..BgpFaults::default() });
        let routing = bed.routing().unwrap();
        // These routes are never advertised: without the flaps, the wait would end after the patience.
        routing.expect(watch, 500..1_000, true);
        let begun = routing.now_s();
        let settled = routing.await_settled(&[watch], PATIENCE).unwrap();
        assert!(!settled.complete);
        about(routing.now_s() - begun, 18.0, 0.06);
        let said = format!(
            "no progress for 18 s: the router keeps changing routes; in the last second 50 of these routes, such as {}, came or went",
            all.prefix(9)
        );
        assert!(settled.cause.starts_with(&said), "{}", settled.cause);
        // Every second change withdraws 50 routes: earlier counts stay.
        let verified = routing.verified(watch);
        assert!([90 * 50, 91 * 50].contains(&verified.withdrawn_in_error), "{verified:?}");
        assert!([500, 550].contains(&verified.missing), "{verified:?}");
        faults(device, BgpFaults::default());
        bed.routing().unwrap().reset(PATIENCE).unwrap();
        works_again(bed, &all);
    });
}

#[test]
fn a_router_that_is_not_known_yet_has_its_session_at_once() {
    let suite = suite("", 2, "{peers_per_port: 3}", "  - bgp_table_capacity\n");
    crate::common::with_bed(
        &suite,
        &[Family::Ipv4],
        |_| {},
        |bed, _| {
            // The device knows the stations that have asked for its address: the first station of each port.
            let routing = bed.routing().unwrap();
            let times = routing.establish(&[1, 7], Duration::from_secs(5)).unwrap();
            assert!(times.iter().all(|time| *time < Duration::from_millis(20)), "{times:?}");
        },
    );
}

#[test]
fn a_device_that_reads_no_more_takes_no_more() {
    with("{}", 60_000, |bed, device, all, watch| {
        assert!(say(bed, &all, watch, 0..1_000, true).complete);
        faults(device, BgpFaults { never_reads: true, ..BgpFaults::default() });
        let settled = say(bed, &all, watch, 1_000..60_000, true);
        assert_eq!((settled.complete, settled.cause.as_str()), (false, "the router takes no more for 3 s"));
        assert_eq!((settled.sent_s, settled.last_change_s), (None, 0.0));
        let verified = bed.routing().unwrap().verified(watch);
        assert_eq!((verified.present, verified.missing), (1_000, 59_000));
        // The device does not read the NOTIFICATION either: the session ends without an answer when the time for the
        // answer is over.
        let begun = bed.routing().unwrap().now_s();
        bed.routing().unwrap().reset(Duration::from_secs(20)).unwrap();
        assert!(bed.routing().unwrap().now_s() - begun < 20.0);
        faults(device, BgpFaults::default());
        works_again(bed, &all);
    });
}

/// Checks that sessions come up, and that a whole table is advertised and withdrawn.
fn works_again(bed: &mut TestSetup<'_>, all: &Arc<Routes>) {
    let routing = bed.routing().unwrap();
    routing.establish(&[0, 2], Duration::from_secs(10)).unwrap();
    let watch = routing.watch(2, 0, all);
    let settled = say(bed, all, watch, 0..all.len(), true);
    assert!(settled.complete, "{settled:?}");
    assert_eq!(bed.routing().unwrap().verified(watch).present, u64::from(all.len()));
    assert!(say(bed, all, watch, 0..all.len(), false).complete);
    assert_eq!((bed.routing().unwrap().session(0).losses, bed.routing().unwrap().session(2).losses), (0, 0));
    bed.routing().unwrap().reset(PATIENCE).unwrap();
}

#[test]
fn a_session_that_falls_silent_in_the_middle_is_told_by_its_timer() {
    with("{hold_time: 9 s}", 2_000, |bed, device, all, watch| {
        assert!(say(bed, &all, watch, 0..1_000, true).complete);
        faults(device, BgpFaults { hold_silence: true, lost_route_every: 1, ..BgpFaults::default() });
        let routing = bed.routing().unwrap();
        let begun = routing.now_s();
        routing.expect(watch, 1_000..2_000, true);
        let (change, packing) = (Change::Advertise, Packing::default());
        let announce = RouteAction::Routes { peer: 0, change, routes: all.clone(), part: 1_000..2_000, packing };
        routing.act(&announce).unwrap();
        let settled = routing.await_settled(&[watch], Duration::from_secs(30)).unwrap();
        assert!(
            settled.cause.contains("hold time of 9 s") && settled.cause.contains("the session of p"),
            "{settled:?}"
        );
        about(routing.now_s() - begun, 6.0, 3.06);
        bed.routing().unwrap().reset(PATIENCE).unwrap();
        faults(device, BgpFaults::default());
        works_again(bed, &all);
    });
}

#[test]
fn a_reset_leaves_nothing_behind() {
    with("{}", 3_000, |bed, device, all, watch| {
        for _ in 0..5 {
            assert!(say(bed, &all, watch, 0..3_000, true).complete);
            bed.routing().unwrap().reset(PATIENCE).unwrap();
            bed.settle(Duration::from_millis(100)).unwrap();
            let bgp = device.truth().bgp;
            assert_eq!((bgp.sessions, bgp.paths, bgp.routes, bgp.fib_backlog), (0, 0, 0, 0));
            let routing = bed.routing().unwrap();
            let notified = bgp.notifications_received;
            routing.establish(&[0, 2], Duration::from_secs(5)).unwrap();
            // The same watch on a bed that has none yet.
            assert_eq!((routing.watch(2, 0, &all), notified % 2), (watch, 0), "each session was ended in order");
        }
    });
}

#[test]
fn each_test_leaves_the_bed_as_it_was() {
    // All tests of routes, twice, in both families, on a single device that is slow in every way.
    let traffic = "rate: 100 kfps, drain: 100 ms";
    let tests = [
        "bgp_table_capacity: {families: [ipv4, ipv6], step: 500, max_routes: 1500, hold: 100 ms}".to_owned(),
        "bgp_table_dump: {families: [ipv4, ipv6], routes: 1000, repeats: 2}".into(),
        "bgp_pass_through: {families: [ipv4, ipv6], samples: 5}".into(),
        "bgp_update_rate: {families: [ipv4, ipv6], routes: 500, first_rate: 1000, max_rate: 2000}".into(),
        "bgp_session_capacity: {step: 3, hold: 1 s}".into(),
        format!("rib_fib_capacity: {{families: [ipv4, ipv6], step: 500, max_routes: 1000, {traffic}}}"),
        format!("longest_match: {{families: [ipv4, ipv6], routes: 1000, covering: 100, pause: 1 ms, {traffic}}}"),
        format!("fib_convergence: {{families: [ipv4, ipv6], routes: 500, window: 500 ms, {traffic}}}"),
        format!("convergence_skyline: {{families: [ipv4, ipv6], routes: 500, interval: 500 ms, cycles: 2, {traffic}}}"),
        format!(
            "route_flap: {{families: [ipv4, ipv6], routes: 800, flapped: 200, interval: 500 ms, cycles: 1, pause: 1 s, {traffic}}}"
        ),
        format!("link_failover: {{families: [ipv4, ipv6], routes: 500, window: 1 s, {traffic}}}"),
        format!("link_failover: {{families: [ipv4, ipv6], routes: 500, window: 1 s, failure: session, {traffic}}}"),
    ];
    let list: String = tests.iter().chain(&tests).map(|test| format!("  - {test}\n")).collect();
    let device = ", propagation_delay: 20 ms, fib_delay: 30 ms, fib_time_per_route: 20 us, withdraw_late: 40 ms";
    let memory = run_all(device, 4, "{peers_per_port: 3}", &list);
    let records = memory.tests();
    for record in &records[..tests.len()] {
        let read = |page: &str| {
            let page = format!("{}/../../docs/{page}.md", env!("CARGO_MANIFEST_DIR"));
            std::fs::read_to_string(&page).unwrap_or_else(|e| panic!("{page}: {e}"))
        };
        let page = read(&format!("tests/{}", record.test));
        // All tests share this table, so it is described only once.
        let (shared, own): (Vec<_>, Vec<_>) =
            record.outcome.tables.iter().partition(|table| table.key == "routes_sent");
        let routes = read("routes");
        for column in shared.iter().flat_map(|table| &table.columns) {
            assert!(routes.contains(&format!("`{}`", column.key)), "`{}` is not in docs/routes.md", column.key);
        }
        for column in own.iter().flat_map(|table| &table.columns) {
            assert!(
                page.contains(&format!("`{}`", column.key)),
                "{}: `{}` is not on its page",
                record.test,
                column.key
            );
        }
        let spec = drophammer_methods::find(&record.test).unwrap().spec();
        // Figures at lower loads belong to a router that forwards almost nothing, or does not converge in time.
        for figure in spec.figures.iter().filter(|figure| !figure.key.contains("_at_{load}_")) {
            // `longest_match_{family}_{size}_percent`
            let ends = figure.key.find('{').zip(figure.key.rfind('}'));
            let (begins, ends) = ends.map_or((figure.key, ""), |(a, b)| (&figure.key[..a], &figure.key[b + 1..]));
            let found = record.outcome.ranks.iter().any(|r| r.key.starts_with(begins) && r.key.ends_with(ends));
            assert!(found, "{}: {}", record.test, figure.key);
        }
    }
    for (a, b) in records.iter().zip(&records[tests.len()..]) {
        assert_eq!((&a.status, &b.status), (&TestStatus::Completed, &TestStatus::Completed), "{}", a.test);
        assert!(
            !noted(&a.outcome, &["went down"]) && !noted(&a.outcome, &["stopped"]),
            "{}: {:?}",
            a.test,
            a.outcome.notes
        );
        assert_eq!(a.outcome.ranks.len(), b.outcome.ranks.len());
        assert!(!a.outcome.ranks.is_empty());
        for (a, b) in a.outcome.ranks.iter().zip(&b.outcome.ranks) {
            let (x, y) = (a.value.unwrap_or_else(|| panic!("{a:?}")), b.value.unwrap());
            assert!((x - y).abs() <= 0.02 * x.abs().max(0.01), "{}: {x} then {y}", a.key);
        }
    }
}

#[test]
fn a_session_that_came_back_is_named_when_its_routes_are_missed() {
    with("{}", 1_000, |bed, device, all, watch| {
        assert!(say(bed, &all, watch, 0..500, true).complete);
        faults(device, BgpFaults { reset_after: 1, ..BgpFaults::default() });
        let (change, packing) = (Change::Advertise, Packing::default());
        let announce = RouteAction::Routes { peer: 0, change, routes: all.clone(), part: 500..501, packing };
        bed.routing().unwrap().act(&announce).unwrap();
        bed.settle(Duration::from_secs(3)).unwrap();
        let session = bed.routing().unwrap().session(0);
        assert_eq!((session.established, session.losses), (true, 1));
        let settled = say(bed, &all, watch, 500..1_000, true);
        let said = "nothing more came for 3 s; the session of p1 had ended: the peer ended the session: Cease";
        assert!(!settled.complete && settled.cause.starts_with(said), "{settled:?}");
        let verified = bed.routing().unwrap().verified(watch);
        assert_eq!((verified.missing, verified.withdrawn_in_error), (500, 500));
    });
}

#[test]
fn a_device_that_connects_itself_has_one_session_with_each() {
    let suite = suite("", 2, "{peers_per_port: 10}", "  - bgp_table_capacity\n");
    let connects = |config: &mut drophammer_reference::Config| {
        config.bgp.as_mut().unwrap().peers.iter_mut().for_each(|peer| peer.connect = true);
    };
    crate::common::with_bed(&suite, &[Family::Ipv4], connects, |bed, device| {
        let peers: Vec<usize> = (0..10).chain(20..30).collect();
        for round in 1..=3 {
            let routing = bed.routing().unwrap();
            routing.establish(&peers, Duration::from_secs(20)).unwrap();
            bed.settle(Duration::from_secs(100)).unwrap();
            let routing = bed.routing().unwrap();
            for peer in &peers {
                let session = routing.session(*peer);
                assert_eq!((session.established, session.losses), (true, 0), "{peer}: {}", session.cause);
            }
            assert_eq!((device.truth().bgp.sessions, device.truth().bgp.established), (20, 20 * round));
            routing.reset(PATIENCE).unwrap();
        }
    });
}
