//! Measures the time that the tester itself needs to send and verify routes. An emulated router at one port of the loop
//! without a DUT advertises them to a sink at the other port, which has the DUT's address and AS.

use crate::bench::Bench;
use crate::config::{joined_in_pairs, peer};
use crate::observer::Progress;
use crate::routers::{RouteCeilings, carried};
use crate::setup::{Left, TestSetup};
use drophammer_emulation::bgp::{Expected, Packing, PeerConfig, RouteSource};
use drophammer_methods::ping_delay::OwnDelays;
use drophammer_methods::table::TableSpec;
use drophammer_methods::tester_ceiling::LoopOrder;
use drophammer_methods::{TestError, columns, route_tests};
use drophammer_model::capabilities::Need;
use drophammer_model::environment::TESTER;
use drophammer_model::outcome::Outcome;
use drophammer_model::pattern::PatternKey;
use drophammer_model::quantity::FrameRate;
use drophammer_model::record::{Record, TestRecord};
use drophammer_model::routes::{AfiSafi, Change, RouteRange, Routes};
use drophammer_model::suite::{PortBgp, PortConfig, Profile, Suite};
use drophammer_model::trial::Family;
use drophammer_rig::{Action, Rig, Select, Until};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

/// Name of the test in the records.
pub const NAME: &str = "route_ceiling";
const TITLE: &str = "Tester ceiling, routes";
/// Number of measurements from which each median is taken.
const REPEATS: usize = 3;
/// The measurement fails if nothing comes through the loop for this long.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often the user's stop request is checked.
const LOOK: Duration = Duration::from_millis(50);

/// Returns the measurements for the suite: each combination of family and routes per UPDATE (0: as many as fit) in its
/// tests of BGP routers, if the first two ports exchange routes of this family.
pub fn pairs(suite: &Suite) -> Vec<(Family, u16)> {
    let Some(ports) = suite.ports.first_chunk::<2>() else { return Vec::new() };
    let spoken = |family: &Family| ports.iter().all(|port| !port.peers(*family).is_empty());
    let mut found = Vec::new();
    for test in suite.tests.iter().filter(|test| crate::runner::method(test).spec().needs.contains(&Need::Bgp)) {
        // A test that only counts sessions exchanges no routes.
        let Some(families) = route_tests::FAMILIES.find(&test.params) else { continue };
        let packing = route_tests::packing(&test.params);
        let families = families.into_iter().filter(spoken);
        found.extend(families.map(|family| (family, packing.routes_per_update)));
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Routes per measurement: enough to make the time much longer than the clock's resolution and the delays of a busy machine.
pub fn routes_of(profile: Profile) -> u32 {
    match profile {
        Profile::Quick => 100_000,
        Profile::Conformant => 500_000,
    }
}

/// The reason why a loop has no result.
#[derive(Debug, thiserror::Error)]
pub enum LoopError {
    /// A port failed, the session did not come up, or routes are missing or wrong.
    #[error("{0}")]
    Failed(String),
    /// The user stopped the measurement.
    #[error("stopped by the user")]
    Interrupted,
}

/// Returns the emulated router behind port 0, as in tests, and the sink behind port 1.
fn routers(configs: &[PortConfig], family: Family) -> Option<[Vec<PeerConfig>; 2]> {
    let config = configs.first()?;
    let (bgp, a) = (config.bgp.as_ref()?, config.addressing(family)?);
    let id = |index: usize| Ipv4Addr::from_bits(0x6440_0001 + index as u32);
    // Includes sessions that are not started, so that buffers are split as in a test.
    let sources = config.peers(family).into_iter().enumerate();
    let sources = sources.map(|(index, address)| peer(address, a.dut, bgp, id(index))).collect();
    let turned = PortBgp { asn: bgp.dut_as, dut_as: bgp.asn, ..bgp.clone() };
    let mut sink = peer(a.dut, a.host, &turned, Ipv4Addr::from_bits(0x6440_ffff));
    sink.passive = true;
    Some([sources, vec![sink]])
}

/// Returns the seconds from the first byte of `routes` until the last route is verified, over ports 0 and 1 of `rig`.
/// The two ports are connected to each other. `configs` are the configurations of all ports of `rig`. `seed` must differ between
/// calls, so that segments of an earlier connection are not mistaken for segments of this one.
///
/// # Errors
/// [`LoopError`].
pub fn once(
    rig: &mut Rig,
    configs: &[PortConfig],
    seed: u64,
    routes: &Arc<Routes>,
    routes_per_update: u16,
    stopped: &dyn Fn() -> bool,
) -> Result<f64, LoopError> {
    let failed = |e: String| LoopError::Failed(e);
    let no_router = || failed("a port of the loop has lost its router".into());
    let port = |e: drophammer_port::PortError| failed(e.to_string());
    let (family, all) = (routes.family(), 0..routes.len());
    let no_address = || failed(format!("the first port has no {family} session"));
    let routers = routers(configs, family).ok_or_else(no_address)?;
    let (config, bgp) = (&configs[0], configs[0].bgp.as_ref().ok_or_else(no_address)?);
    let without = joined_in_pairs(configs, seed);
    let mut with = without.clone();
    for (port, peers) in with.ports.iter_mut().zip(routers) {
        port.devices[0].add_bgp(peers);
    }
    rig.apply(&with).map_err(|e| failed(e.to_string()))?;
    // The sink is the only router of the second port.
    let (source, sink) = (0, rig.sessions() - 1);
    let begun = rig.now();
    rig.protocols(Select::These(&[source, sink]), Action::Start);
    let up = Until::Established(vec![source, sink]);
    while !rig.holds(&up) {
        let now = rig.now();
        if now.since(begun) > PATIENCE {
            return Err(failed("the BGP session with the receiving router does not come up".into()));
        }
        rig.serve(&up.clone().or_at(now + LOOK), &|| false).map_err(port)?;
        if stopped() {
            return Err(LoopError::Interrupted);
        }
    }
    let expected = Expected {
        source: RouteSource::Peer,
        as_path_prefix: if bgp.is_internal() { vec![] } else { vec![bgp.asn] },
        next_hop: config.addressing(family).map(|a| a.host),
        check_attributes: true,
        times: true,
        labels: false,
        label: None,
    };
    let begun = rig.now();
    let (receiver, router) = rig.session_mut(sink).ok_or_else(no_router)?;
    let adj_rib_in = receiver.adj_rib_in_mut(router);
    let id = carried::expect(adj_rib_in, begun, bgp.routes, (routes, all.clone()), expected);
    let packing = Packing { routes_per_update, ..Packing::default() };
    let (sender, router) = rig.session_mut(source).ok_or_else(no_router)?;
    let set = carried::set(bgp.routes, routes.clone(), all, packing);
    sender.adj_rib_out(router).push(Change::Advertise, set);
    let complete = Until::Received(vec![(sink, id)]);
    let (mut done, mut moved_at, mut read) = (None, begun, 0);
    while done.is_none() {
        let end = rig.now() + LOOK;
        rig.serve(&complete.clone().or_at(end), &|| false).map_err(port)?;
        let now = rig.now();
        let (receiver, router) = rig.session(sink).ok_or_else(no_router)?;
        let adj_rib_in = receiver.adj_rib_in(router);
        done = adj_rib_in.is_complete(id).then_some(now);
        let bytes = adj_rib_in.totals().bytes;
        if bytes != read {
            (read, moved_at) = (bytes, now);
        } else if now.since(moved_at) > PATIENCE {
            return Err(failed(format!("{} routes do not pass the loop", adj_rib_in.report(id).missing)));
        }
        if stopped() {
            return Err(LoopError::Interrupted);
        }
    }
    let wrong = rig.session(sink).map_or(0, |(receiver, router)| receiver.adj_rib_in(router).report(id).wrong);
    if wrong > 0 {
        return Err(failed(format!("{wrong} routes pass the loop with other attributes")));
    }
    let seconds = done.map_or(0.0, |at| at.since(begun).as_secs_f64());
    rig.apply(&without).map_err(|e| failed(e.to_string()))?;
    Ok(seconds)
}

/// Median.
fn middle(mut seconds: Vec<f64>) -> Option<f64> {
    seconds.sort_by(f64::total_cmp);
    seconds.get(seconds.len() / 2).copied()
}

/// Estimates how long [`measure`] will take.
pub(crate) fn estimate(suite: &Suite) -> Duration {
    Duration::from_secs_f64(
        pairs(suite).len() as f64 * REPEATS as f64 * (0.1 + f64::from(routes_of(suite.profile)) / 1e6),
    )
}

/// Measures all pairs of the suite on a setup whose ports, `configs`, form the loop: whole pairs, so the last port of an
/// odd number is not there. Returns the ceilings, their record, and true if the user stopped the measurement.
pub(crate) fn measure(
    setup: &mut TestSetup<'_>,
    suite: &Suite,
    configs: &[PortConfig],
    after: Duration,
) -> (RouteCeilings, Option<Record>, bool) {
    let (pairs, count) = (pairs(suite), routes_of(suite.profile));
    let mut found = RouteCeilings::new();
    if pairs.is_empty() {
        return (found, None, false);
    }
    let begun = std::time::Instant::now();
    setup.begin_own(NAME, Left { since: begun, ..Left::new(after, estimate(suite)) });
    let (left, of) = (setup.left.now(), suite.duts.len() * suite.tests.len());
    setup.observer().progress(&Progress::Test { dut: TESTER, title: TITLE, number: 0, of, left });
    let mut outcome = Outcome::default();
    TABLE.begin(&mut outcome);
    outcome.notes.push(
        "Routes of an emulated router through the loop without DUT, each verified by another emulated router: medians of 3 times. *As many as \
         fit*: routes that share attributes, up to 4096 bytes."
            .to_owned(),
    );
    let mut result = Ok(());
    for (index, (family, routes_per_update)) in pairs.iter().enumerate() {
        let what = format!("tester ceiling, {count} {family} routes");
        let (done, of, left) = (index, pairs.len(), setup.left.now());
        setup.observer().progress(&Progress::Step { what: &what, done, of, left });
        let seed = suite.seed.wrapping_add((index as u64) << 32);
        match seconds(setup, configs, (*family, count, *routes_per_update), (suite.seed, seed)) {
            Ok(seconds) => {
                found.insert((AfiSafi::unicast(*family), *routes_per_update), seconds / f64::from(count));
                let packed = match routes_per_update {
                    0 => "as many as fit".to_owned(),
                    n => n.to_string(),
                };
                let rate = f64::from(count) / seconds;
                let row = CeilingRow {
                    family: *family,
                    routes_per_update: packed,
                    routes: count.into(),
                    time_s: seconds,
                    rate_rps: rate,
                };
                TABLE.add(&mut outcome, row, [], []);
            }
            Err(LoopError::Interrupted) => {
                result = Err(TestError::Interrupted);
                break;
            }
            Err(LoopError::Failed(e)) => {
                outcome.notes.push(format!("{family}: {e}"));
                result = Err(TestError::Failed(e));
            }
        }
    }
    let status = crate::records::status_of(&result);
    setup.observer().progress(&Progress::TestEnded {
        dut: TESTER,
        title: TITLE,
        problem: crate::records::problem_of(&status),
    });
    let record = Record::Test(Box::new(TestRecord {
        dut: TESTER.into(),
        round: 1,
        test: NAME.into(),
        id: None,
        title: TITLE.into(),
        parameters: serde_json::json!({"table": "internet", "routes": count, "repeats": REPEATS}),
        elapsed_s: begun.elapsed().as_secs_f64(),
        status,
        outcome,
    }));
    (found, Some(record), matches!(result, Err(TestError::Interrupted)))
}

columns! {
    /// Result for one IP version and packing.
    struct CeilingRow {
        family: Family = "Routes of",
        routes_per_update: String = "Routes per UPDATE",
        routes: u64,
        time_s: f64 ["s"],
        rate_rps: f64 = "Sent and verified" ["routes/s"],
    }
}

const TABLE: TableSpec<CeilingRow> = TableSpec::new(NAME, "What the tester needs alone");

/// Extracts the results of [`measure`] from its record.
pub(crate) fn of_record(outcome: &Outcome) -> RouteCeilings {
    let of = |row: CeilingRow| {
        // Text instead of a number means as many as fit.
        let routes_per_update = row.routes_per_update.parse().unwrap_or(0);
        ((AfiSafi::unicast(row.family), routes_per_update), row.time_s / row.routes as f64)
    };
    TABLE.rows(&outcome.tables).into_iter().map(of).collect()
}

/// Returns the median of [`REPEATS`] times for routes of a family, of which as many as given go into an UPDATE. The first
/// seed chooses the routes, the second the routers.
fn seconds(
    setup: &mut TestSetup<'_>,
    configs: &[PortConfig],
    (family, count, routes_per_update): (Family, u32, u16),
    (of_routes, of_routers): (u64, u64),
) -> Result<f64, LoopError> {
    let range = RouteRange::internet(family, count, of_routes).map_err(|e| LoopError::Failed(e.to_string()))?;
    let routes = Arc::new(Routes::Range(range));
    let Bench { rig, observer, .. } = setup.bench();
    let mut all = Vec::new();
    for repeat in 0..REPEATS as u64 {
        let seed = of_routers.wrapping_add(repeat << 16);
        all.push(once(rig, configs, seed, &routes, routes_per_update, &|| observer.stopped())?);
    }
    middle(all).ok_or(LoopError::Interrupted)
}

/// All ceilings of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ceilings {
    /// Frame ceilings, by backend and pattern.
    pub frames: BTreeMap<String, BTreeMap<PatternKey, FrameRate>>,
    /// Effect of the loop on the order of frames, by pattern.
    pub orders: BTreeMap<PatternKey, LoopOrder>,
    /// The tester's own delay of pings and test frames at a low load.
    pub own_delays: OwnDelays,
    /// Route ceilings.
    pub routes: RouteCeilings,
}

impl Ceilings {
    /// Adds the measurements with another backend. The order of frames is taken from the last backend.
    pub fn add(&mut self, other: Ceilings) {
        self.frames.extend(other.frames);
        self.orders.extend(other.orders);
        self.own_delays.extend(other.own_delays);
        self.routes.extend(other.routes);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::kinds;
    use drophammer_methods::METHODS;
    use drophammer_model::param::ChoiceWord;
    use drophammer_model::registry::Registry;
    use drophammer_model::routes::RouteKind;
    use drophammer_port::{Port, SystemClock, memory};
    use drophammer_rig::{Ports, host_mac};
    use drophammer_suite::{Overrides, read};

    pub(crate) fn suite(rest: &str) -> Suite {
        let text = format!(
            "suite: pairs\nprofile: quick\nduts:\n  - {{name: box, kind: bird}}\nports:\n  - {{name: p1, speed: 1 Gbit/s}}\n  \
             - {{name: p2, speed: 1 Gbit/s}}\n{rest}"
        );
        let tests: Vec<_> = METHODS.iter().map(|m| m.spec()).collect();
        let kinds = kinds::specs();
        let registry = Registry { tests: &tests, kinds: &kinds };
        read::read(&text, "pairs.yaml", &registry, &Overrides::default()).unwrap_or_else(|e| panic!("{e:?}"))
    }

    #[test]
    fn each_family_and_packing_of_route_tests_once() {
        let all = suite(
            "bgp: {}\ntests:\n  - throughput: {families: [ipv6]}\n  - bgp_table_capacity: {families: [ipv4, ipv6]}\n  \
             - bgp_update_rate: {families: [ipv6]}\n  - bgp_table_dump: {families: [ipv4], routes_per_update: \"5\"}\n",
        );
        assert_eq!(pairs(&all), [(Family::Ipv4, 0), (Family::Ipv4, 5), (Family::Ipv6, 0)]);
        let one = suite("bgp: {families: [ipv4]}\ntests:\n  - bgp_table_capacity: {families: [ipv4]}\n");
        assert_eq!(pairs(&one), [(Family::Ipv4, 0)]);
        assert_eq!(pairs(&suite("tests:\n  - throughput\n")), []);
    }

    #[test]
    fn routes_of_every_kind_pass_the_loop() {
        for kind in RouteKind::WORDS {
            let all = suite(&format!("bgp: {{internal: [p1, p2], routes: {kind}}}\ntests:\n  - bgp_table_capacity\n"));
            let clock = SystemClock::start();
            let ends = memory::pair([0, 1].map(|port| host_mac(1, port)), 1_500, clock);
            let ends = ends.map(|end| Box::new(end) as Box<dyn Port + Send>).into();
            let mut rig = Rig::new(Ports::real(ends, clock, &[]), &joined_in_pairs(&all.ports, 1));
            for (family, seed) in [(Family::Ipv4, 1), (Family::Ipv6, 2)] {
                let routes = Arc::new(Routes::Range(RouteRange::internet(family, 2_000, 5).unwrap()));
                let seconds = once(&mut rig, &all.ports, seed << 16, &routes, 0, &|| false);
                assert!(seconds.as_ref().is_ok_and(|s| *s > 0.0), "{family} {kind}: {seconds:?}");
            }
        }
    }

    #[test]
    fn the_middle_one() {
        assert_eq!(middle(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(middle(vec![]), None);
    }
}
