//! Route tests on a router whose behaviour is known in closed form.

use crate::common::{Fake, as_fake, cell, params, rank, rows};
use drophammer_methods::routing::{TableChoice, WatchIndex};
use drophammer_methods::{
    Change, ControlPlane, PeerView, RouteAction, Routing, Seen, Sending, SessionView, Setting, Settled, TestError,
    Testbed, Trace, Trial, Verified, find,
};
use drophammer_model::figure::RoundFigure;
use drophammer_model::outcome::{Cell, Outcome, RankFigure};
use drophammer_model::quantity::FrameRate;
use drophammer_model::routes::{AfiSafi, PeerIndex, RouteRange, Routes};
use drophammer_model::suite::ParamValue;
use drophammer_model::trial::{Family, Validity};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Two ports with `peers_per_port` routers each, and a DUT that advertises routes to the other peers at a steady rate,
/// up to a limit.
struct Router {
    bed: Fake,
    peers: Vec<PeerView>,
    /// Maximum number of routes that the DUT keeps; it ignores others.
    limit: usize,
    /// Time that it needs to advertise a route, in seconds; for route i it is `1 + i % 2` times as long.
    route_s: f64,
    /// Maximum number of sessions that it accepts.
    sessions: usize,
    /// Resident memory in MiB per 1,000 routes.
    memory_mib: u64,
    /// Time in which UPDATEs are sent, in seconds, and the part of it in which the DUT held the session back.
    sending_s: f64,
    held_s: f64,
    /// Trials whose purpose contains this text are unfit.
    unfit: &'static str,
    /// Number of first attempts that the tester spoils; each takes four seconds.
    spoilt: u32,
    /// Number of changes of routes after which the user stops the test.
    stops_after: u32,
    /// A route that the DUT does not withdraw.
    keeps: Option<u32>,
    /// Time for which it refuses new sessions after a session has ended, in seconds.
    idle_s: f64,
    /// Time when a watch begins, and time when it changes, in seconds.
    watch_s: f64,
    /// True if sessions have ended and the DUT still refuses new ones.
    refuses: bool,
    /// Times when the watch began, when it changed, and when a new session had all routes.
    watched_at: f64,
    expected_at: f64,
    dumped_at: Option<f64>,
    up: BTreeSet<PeerIndex>,
    held: BTreeSet<u32>,
    expected: BTreeSet<u32>,
    pending_s: f64,
    now_s: f64,
    resets: u32,
    /// By how many seconds the host slows the router down in each watched period; 0 if the host is calm.
    busy: Vec<f64>,
}

impl Router {
    fn new(peers_per_port: usize) -> Self {
        let peer = |i: usize| PeerView {
            name: format!("p{}.{}", i / peers_per_port + 1, i % peers_per_port + 1),
            port: i / peers_per_port,
            family: Family::Ipv4,
            asn: 65_001 + (i / peers_per_port) as u32,
            address: std::net::Ipv4Addr::from_bits(0xC612_0000 + i as u32).into(),
        };
        Router {
            bed: Fake::new(),
            peers: (0..2 * peers_per_port).map(peer).collect(),
            limit: usize::MAX,
            route_s: 0.0,
            sessions: usize::MAX,
            memory_mib: 0,
            sending_s: 0.0,
            held_s: 0.0,
            unfit: "",
            spoilt: 0,
            stops_after: u32::MAX,
            keeps: None,
            idle_s: 0.0,
            watch_s: 0.0,
            refuses: false,
            watched_at: 0.0,
            expected_at: 0.0,
            dumped_at: None,
            up: BTreeSet::new(),
            held: BTreeSet::new(),
            expected: BTreeSet::new(),
            pending_s: 0.0,
            now_s: 0.0,
            resets: 0,
            busy: Vec::new(),
        }
    }

    fn time_of(&self, route: u32) -> f64 {
        self.route_s * f64::from(1 + route % 2)
    }

    fn missing(&self) -> usize {
        self.expected.difference(&self.held).count()
    }
}

impl Testbed for Router {
    as_fake!(bed);

    /// Drops all frames of the group `denied`.
    fn attempt(&mut self, trial: &Trial, number: u32) -> Result<Seen, TestError> {
        if !self.unfit.is_empty() && trial.spec.purpose.contains(self.unfit) {
            return Err(TestError::Unfit(vec!["host busy".into()]));
        }
        let mut seen = self.bed.attempt(trial, number)?;
        seen.result.groups.iter_mut().filter(|group| group.group == "denied").for_each(|group| group.received = 0);
        if self.spoilt > 0 {
            self.spoilt -= 1;
            self.now_s += 4.0;
            seen.result.validity = Validity::Invalid(vec!["receive ring overflowed".into()]);
        }
        Ok(seen)
    }
    fn set(&mut self, _: Setting<'_>) -> Result<(), TestError> {
        Ok(())
    }
    fn settle(&mut self, time: Duration) -> Result<(), TestError> {
        self.now_s += time.as_secs_f64();
        self.bed.settle(time)
    }
    fn routing(&mut self) -> Result<&mut dyn Routing, TestError> {
        Ok(self)
    }
}

impl Routing for Router {
    fn peers(&self) -> &[PeerView] {
        &self.peers
    }

    fn table(&mut self, _: &TableChoice, afi_safi: AfiSafi, count: u32) -> Result<Arc<Routes>, TestError> {
        let family = afi_safi.ip_version().unwrap();
        Ok(Arc::new(RouteRange::internet(family, count, 1).unwrap().into()))
    }

    fn ready_for_sessions(&mut self) -> Result<(), TestError> {
        if std::mem::take(&mut self.refuses) {
            self.now_s += self.idle_s;
        }
        Ok(())
    }

    fn establish(&mut self, peers: &[PeerIndex], within: Duration) -> Result<Vec<Duration>, TestError> {
        self.ready_for_sessions()?;
        for peer in peers {
            if self.up.len() == self.sessions {
                self.now_s += within.as_secs_f64();
                return Err(TestError::Failed(format!("the BGP session of {} is not up", self.peers[*peer].name)));
            }
            self.up.insert(*peer);
        }
        self.now_s += 0.5;
        if !self.held.is_empty() {
            self.pending_s = self.held.iter().map(|route| self.time_of(*route)).sum();
            self.dumped_at = Some(self.now_s + self.pending_s);
        }
        Ok(vec![Duration::from_millis(500); peers.len()])
    }

    fn session(&self, peer: PeerIndex) -> SessionView {
        SessionView { established: self.up.contains(&peer), cause: String::new(), losses: 0 }
    }

    fn watch_part(&mut self, _: PeerIndex, _: PeerIndex, _: &Arc<Routes>, _: Range<u32>) -> WatchIndex {
        self.expected.clear();
        self.watched_at = self.now_s;
        self.now_s += self.watch_s;
        0
    }

    fn expect(&mut self, _: WatchIndex, part: Range<u32>, present: bool) {
        self.expected_at = self.now_s;
        self.now_s += self.watch_s;
        if present {
            self.expected.extend(part);
        } else {
            self.expected.retain(|route| !part.contains(route));
        }
    }

    fn act(&mut self, action: &RouteAction) -> Result<(), TestError> {
        let (change, part) = match action {
            RouteAction::Routes { change, part, .. } => (change, part),
            RouteAction::Close { peer } => {
                self.up.remove(peer);
                self.refuses = true;
                return Ok(());
            }
            RouteAction::Link { .. } | RouteAction::Igp { .. } => panic!("{action:?}"),
        };
        if self.stops_after == 0 {
            return Err(TestError::Interrupted);
        }
        self.stops_after -= 1;
        for route in part.clone() {
            self.pending_s += self.time_of(route);
            match change {
                Change::Advertise if self.held.len() < self.limit => drop(self.held.insert(route)),
                Change::Advertise => {}
                Change::Withdraw if self.keeps == Some(route) => {}
                Change::Withdraw => drop(self.held.remove(&route)),
            }
        }
        Ok(())
    }

    fn await_settled(&mut self, _: &[WatchIndex], patience: Duration) -> Result<Settled, TestError> {
        let complete = self.held == self.expected;
        let last_change_s = std::mem::take(&mut self.pending_s);
        self.now_s += last_change_s + if complete { 0.0 } else { patience.as_secs_f64() };
        Ok(Settled {
            complete,
            last_change_s,
            first_change_s: None,
            sent_s: (self.sending_s > 0.0).then_some(self.sending_s),
            sending: Sending { held_s: self.held_s, ..Sending::default() },
            cause: if complete { String::new() } else { format!("nothing changed for {} s", patience.as_secs()) },
        })
    }

    /// Makes the router slower while the host is busy.
    fn watch_host(&mut self) {
        self.pending_s += self.busy.first().copied().unwrap_or_default();
    }

    fn disturbed(&mut self) -> Vec<String> {
        let busy = !self.busy.is_empty() && self.busy.remove(0) > 0.0;
        if busy { vec!["host busy: the DUT waited".into()] } else { Vec::new() }
    }

    fn verified(&self, _: WatchIndex) -> Verified {
        let (expected, missing) = (self.expected.len() as u64, self.missing() as u64);
        let last_change_s = self.dumped_at;
        Verified { expected, present: expected - missing, missing, last_change_s, ..Verified::default() }
    }

    /// All routes of a new session arrive at the same time.
    fn trace(&self, _: WatchIndex) -> Trace {
        let Some(at) = self.dumped_at else { return Trace::default() };
        let routes = self.held.len() as u32;
        Trace { skyline: vec![(at - self.watched_at, routes)], times: vec![Some(at - self.expected_at)] }
    }

    fn reset(&mut self, _: Duration) -> Result<(), TestError> {
        self.resets += 1;
        self.refuses |= !self.up.is_empty();
        self.up.clear();
        self.held.clear();
        self.expected.clear();
        Ok(())
    }

    fn dut(&mut self) -> &mut dyn ControlPlane {
        self
    }

    fn now_s(&self) -> f64 {
        self.now_s
    }
}

impl ControlPlane for Router {
    fn memory(&mut self) -> Vec<(String, u64)> {
        vec![("bgpd".into(), self.held.len() as u64 * self.memory_mib * 1_048_576 / 1_000)]
    }
}

fn run(name: &str, bed: &mut Router, over: &[(&str, u64)]) -> (Outcome, Result<(), TestError>) {
    let over: Vec<_> = over.iter().map(|(key, count)| (*key, ParamValue::Count(*count))).collect();
    let (method, mut outcome) = (find(name).unwrap(), Outcome::default());
    let end = method.run(bed, &params(method, false, &over), &mut outcome);
    (outcome, end)
}

#[test]
fn the_capacity_is_that_of_the_last_whole_step() {
    let mut bed = Router { limit: 2_500, route_s: 1e-3, memory_mib: 2, ..Router::new(1) };
    let (outcome, end) = run("bgp_table_capacity", &mut bed, &[("step", 1_000), ("max_routes", 5_000)]);
    assert_eq!(end, Ok(()));
    assert_eq!(rank(&outcome, "bgp_capacity_ipv4_routes"), Some(2_000.0));
    assert_eq!(rank(&outcome, "bgp_load_ipv4_s"), None);
    assert_eq!(rows(&outcome).len(), 3);
    // Half of the routes take 1 ms, the other half 2 ms.
    assert!((cell(&outcome, 1, "step_s").unwrap() - 1.5).abs() < 1e-9);
    assert!((cell(&outcome, 1, "rate_rps").unwrap() - 1_000.0 / 1.5).abs() < 1e-6);
    assert_eq!(cell(&outcome, 1, "memory_mib"), Some(4.0));
    assert_eq!(cell(&outcome, 2, "missing"), Some(500.0));
    assert_eq!(cell(&outcome, 2, "rate_rps"), None);
    assert_eq!(rows(&outcome)[2].marks, ["500 missing, nothing changed for 10 s"]);
    assert!(outcome.notes.iter().any(|n| n.starts_with("IPv4: stopped at 3,000 routes: 500 missing")));
    assert_eq!(bed.resets, 1);
}

#[test]
fn a_router_that_takes_all_routes_has_at_least_these() {
    let mut bed = Router { route_s: 1e-3, ..Router::new(1) };
    let (outcome, end) = run("bgp_table_capacity", &mut bed, &[("step", 1_000), ("max_routes", 2_500)]);
    assert_eq!(end, Ok(()));
    assert_eq!(rank(&outcome, "bgp_capacity_ipv4_routes"), Some(2_500.0));
    assert!((rank(&outcome, "bgp_load_ipv4_s").unwrap() - 2_500.0 * 1.5e-3).abs() < 1e-9);
    assert_eq!(cell(&outcome, 2, "routes"), Some(2_500.0));
    assert!(outcome.notes.contains(&"IPv4: at least 2,500 routes; higher numbers were not tried".to_owned()));
    // The full table was kept for this time.
    assert_eq!(bed.bed.settled, Duration::from_secs(1));
}

#[test]
fn a_time_that_the_host_disturbed_is_measured_again() {
    let load = |busy: &[f64], limit| {
        let mut bed = Router { route_s: 1e-3, busy: busy.to_vec(), limit, ..Router::new(1) };
        let (outcome, end) = run("bgp_table_capacity", &mut bed, &[("step", 1_000), ("max_routes", 1_000)]);
        assert_eq!((end, rows(&outcome).len()), (Ok(()), 1));
        let again = outcome.notes.iter().filter(|note| note.contains("disturbed, so measured again")).count();
        let rank = outcome.ranks.iter().find(|rank| rank.key == "bgp_load_ipv4_s").unwrap();
        (rank.value.map(|s| (s * 1e3).round()), rank.tester_limited, rows(&outcome)[0].marks.len(), again)
    };
    assert_eq!(load(&[], usize::MAX), (Some(1_500.0), false, 0, 0));
    assert_eq!(load(&[0.5, 0.7], usize::MAX), (Some(1_500.0), false, 0, 2), "the third attempt counts");
    let always = [0.5, 0.7, 0.3, 0.6, 0.4, 0.2];
    assert_eq!(load(&always, usize::MAX), (Some(1_800.0), true, 1, 4), "the fastest of five is a bound");
    assert_eq!(load(&always, 900), (None, false, 1, 0), "a busy host makes no route missing");
    // A second attempt does not hide a failure of the router either, regardless of earlier steps.
    let mut bed = Router { route_s: 1e-3, busy: vec![0.5, 0.5], limit: 1_500, ..Router::new(1) };
    let (outcome, _) = run("bgp_table_capacity", &mut bed, &[("step", 1_000), ("max_routes", 2_000)]);
    assert_eq!((rank(&outcome, "bgp_capacity_ipv4_routes"), bed.resets), (Some(1_000.0), 1));
    // Dumps are timed one by one. The second of two is disturbed once.
    let mut bed = Router { route_s: 1e-3, busy: vec![0.0, 0.5, 0.0], ..Router::new(1) };
    let (outcome, end) = run("bgp_table_dump", &mut bed, &[("routes", 100), ("repeats", 2)]);
    assert_eq!((end, rows(&outcome).len(), bed.busy.len()), (Ok(()), 2, 0));
    assert!(outcome.notes.iter().any(|note| note.contains("disturbed, so dumped again")), "{:?}", outcome.notes);
    assert!(outcome.ranks.iter().all(|rank| !rank.tester_limited));
}

#[test]
fn a_test_that_is_stopped_keeps_its_steps_or_the_last_complete_attempt() {
    let mut bed = Router { route_s: 1e-3, stops_after: 2, ..Router::new(1) };
    let (outcome, end) = run("bgp_table_capacity", &mut bed, &[("step", 1_000), ("max_routes", 5_000)]);
    assert_eq!((end, rows(&outcome).len(), outcome.ranks.len()), (Err(TestError::Interrupted), 2, 0));
    // The first attempt is complete but disturbed, and the second one is stopped.
    let mut bed = Router { route_s: 1e-3, stops_after: 1, busy: vec![0.5, 0.0], ..Router::new(1) };
    let (outcome, end) = run("bgp_table_capacity", &mut bed, &[("step", 1_000), ("max_routes", 1_000)]);
    assert_eq!((end, rows(&outcome).len()), (Err(TestError::Interrupted), 1));
    assert!((rank(&outcome, "bgp_load_ipv4_s").unwrap() - 2.0).abs() < 1e-9, "{:?}", outcome.ranks);
}

#[test]
fn routes_so_far_are_kept_where_the_pass_through_of_one_ends_the_test() {
    let passed = |mut bed: Router| {
        let (outcome, end) = run("bgp_pass_through", &mut bed, &[("samples", 11)]);
        let samples = [0, 1].map(|row| cell(&outcome, row, "samples").unwrap());
        assert_eq!((samples, outcome.ranks.len()), ([3.0, 2.0], 0));
        end
    };
    assert_eq!(passed(Router { stops_after: 5, ..Router::new(1) }), Err(TestError::Interrupted));
    let end = passed(Router { keeps: Some(2), ..Router::new(1) });
    let Err(TestError::Failed(why)) = end else { panic!("{end:?}") };
    assert!(why.contains(" was not withdrawn: "), "{why}");
}

#[test]
fn a_spoilt_trial_is_not_the_start_of_the_first_clean_one() {
    let mut bed = Router { spoilt: 1, ..Router::new(1) };
    let over = [
        ("step", ParamValue::Count(100)),
        ("max_routes", ParamValue::Count(100)),
        ("rate", ParamValue::Rate(FrameRate(10_000.0))),
    ];
    let (method, mut outcome) = (find("rib_fib_capacity").unwrap(), Outcome::default());
    assert_eq!(method.run(&mut bed, &params(method, false, &over), &mut outcome), Ok(()));
    let times = ["forward_s", "exact_s"].map(|column| cell(&outcome, 0, column).unwrap());
    assert!(times.iter().all(|time| (time - 4.0).abs() < 1e-9), "{times:?}");
}

#[test]
fn routes_before_an_unfit_tester_are_a_lower_bound() {
    let held = |unfit| {
        let mut bed = Router { unfit, ..Router::new(1) };
        let over = [
            ("step", ParamValue::Count(100)),
            ("max_routes", ParamValue::Count(300)),
            ("rate", ParamValue::Rate(FrameRate(10_000.0))),
        ];
        let (method, mut outcome) = (find("rib_fib_capacity").unwrap(), Outcome::default());
        let end = method.run(&mut bed, &params(method, false, &over), &mut outcome);
        assert!(matches!(end, Err(TestError::Unfit(_))), "{end:?}");
        let [held] = &outcome.ranks[..] else { panic!("{:?}", outcome.ranks) };
        (held.value, held.tester_limited, held.round() == RoundFigure::Failed)
    };
    assert_eq!(held(": 300 routes"), (Some(200.0), true, false));
    assert_eq!(held(": 100 routes"), (None, false, false));
}

#[test]
fn each_route_has_its_own_pass_through_time() {
    let mut bed = Router { route_s: 3e-3, ..Router::new(1) };
    let (outcome, end) = run("bgp_pass_through", &mut bed, &[("samples", 11)]);
    assert_eq!(end, Ok(()));
    // Six of eleven routes take 3 ms, the other five 6 ms.
    for row in 0..2 {
        let at = |column| cell(&outcome, row, column).unwrap();
        assert!((at("min_ms") - 3.0).abs() < 1e-9 && (at("median_ms") - 3.0).abs() < 1e-9);
        assert!((at("max_ms") - 6.0).abs() < 1e-9 && (at("mean_ms") - 48.0 / 11.0).abs() < 1e-9);
    }
    assert_eq!(rows(&outcome)[1].cells[1], Cell::from("withdrawn"));
    let mut bed = Router { limit: 0, ..Router::new(1) };
    let (_, end) = run("bgp_pass_through", &mut bed, &[("samples", 11)]);
    let Err(TestError::Failed(why)) = end else { panic!("{end:?}") };
    assert!(why.ends_with("was not re-advertised: 1 missing, nothing changed for 10 s"), "{why}");
    assert_eq!(bed.resets, 1);
}

#[test]
fn sessions_are_counted_up_to_the_first_that_does_not_come_up() {
    let mut bed = Router { sessions: 7, ..Router::new(5) };
    let (outcome, end) = run("bgp_session_capacity", &mut bed, &[("step", 3)]);
    assert_eq!(end, Ok(()));
    assert_eq!(rank(&outcome, "bgp_sessions"), Some(6.0));
    assert_eq!(rank(&outcome, "bgp_sessions_s"), None);
    // Peers are taken from the ports in rotation: the eighth session is the fourth of the second port.
    assert_eq!(rows(&outcome)[2].marks, ["the BGP session of p2.4 is not up"]);
    let mut bed = Router::new(5);
    let (outcome, _) = run("bgp_session_capacity", &mut bed, &[("step", 3)]);
    assert_eq!((rank(&outcome, "bgp_sessions"), rank(&outcome, "bgp_sessions_s")), (Some(10.0), Some(2.0)));
}

#[test]
fn the_wait_after_the_sessions_of_an_earlier_test_is_in_no_step() {
    let mut bed = Router { idle_s: 3.0, ..Router::new(5) };
    for _ in 0..2 {
        let (outcome, end) = run("bgp_session_capacity", &mut bed, &[("step", 3)]);
        assert_eq!(end, Ok(()));
        assert_eq!(rank(&outcome, "bgp_sessions_s"), Some(2.0));
        assert!((0..4).all(|row| cell(&outcome, row, "step_s") == Some(0.5)));
    }
    // The second run has waited before its start.
    assert!(bed.now_s > 2.0 * 2.0 + 3.0, "{}", bed.now_s);
}

#[test]
fn a_dump_is_timed_from_the_establishment_of_the_session() {
    let mut bed = Router { route_s: 1e-3, idle_s: 3.0, watch_s: 0.25, ..Router::new(1) };
    let (outcome, end) = run("bgp_table_dump", &mut bed, &[("routes", 100), ("repeats", 2)]);
    assert_eq!(end, Ok(()));
    let near = |found: Option<f64>| found.is_some_and(|found| (found - 0.15).abs() < 1e-9);
    // Half of the routes take 1 ms, the other half 2 ms. The wait for the session and the time of the watch do not
    // count.
    for row in 0..2 {
        let times = ["first_s", "last_s"].map(|column| cell(&outcome, row, column));
        assert!(times.into_iter().all(near), "{times:?}");
    }
    assert!(near(rank(&outcome, "bgp_dump_ipv4_s")), "{:?}", outcome.ranks);
    let points = &outcome.plots[0].series[0].points;
    assert!(points.len() == 1 && near(Some(points[0].x)) && points[0].y == 100.0, "{points:?}");
    assert!(bed.now_s > 2.0 * 3.0, "{}", bed.now_s);
}

#[test]
fn a_test_needs_a_session_on_each_of_its_ports() {
    let mut bed = Router::new(1);
    bed.peers.truncate(1);
    let (outcome, end) = run("bgp_table_capacity", &mut bed, &[]);
    let why = "this test needs 2 ports with IPv4 sessions, but the suite has 1";
    assert_eq!(end, Err(TestError::NotApplicable(why.into())));
    assert!(outcome.notes.contains(&format!("IPv4 not tested: {why}")));
}

#[test]
fn a_pace_that_the_tester_never_reached_says_nothing_about_the_router() {
    let tested = |held_s: f64| {
        let mut bed = Router { sending_s: 10.0, held_s, ..Router::new(1) };
        let (outcome, end) = run("bgp_update_rate", &mut bed, &[("routes", 1_000)]);
        assert_eq!(end, Ok(()));
        assert!(rows(&outcome).iter().all(|row| row.cells.last() == Some(&Cell::from("no"))));
        outcome
    };
    // Each train takes ten seconds instead of one, and the router had room.
    let outcome = tested(0.0);
    assert_eq!(outcome.ranks[0].round(), RoundFigure::NotMeasured, "{:?}", outcome.ranks);
    let said = "IPv4: no figure; the tester itself fell short of";
    assert!(outcome.notes.iter().any(|note| note.starts_with(said)), "{:?}", outcome.notes);
    // A router that holds the session back at every pace has failed.
    assert_eq!(rank(&tested(10.0), "bgp_update_rate_ipv4_rps"), None);
}

#[test]
fn filters_have_figures_only_of_all_cases() {
    let filtered = |unfit: &'static str, sizes: &str, actions: &[&str]| {
        let mut bed = Router { unfit, ..Router::new(1) };
        let actions = actions.iter().map(|action| (*action).to_owned()).collect();
        let over = [
            ("routes", ParamValue::Count(100)),
            ("rate", ParamValue::Rate(FrameRate(10_000.0))),
            ("actions", ParamValue::Texts(actions)),
            crate::common::size(sizes),
        ];
        let (method, mut outcome) = (find("route_filtering").unwrap(), Outcome::default());
        let end = method.run(&mut bed, &params(method, false, &over), &mut outcome);
        assert_eq!(end.is_err(), !unfit.is_empty(), "{end:?}");
        let failed = |rank: &RankFigure| if rank.value.is_some() { "" } else { " without a value" };
        outcome.ranks.iter().map(|rank| format!("{}{}", rank.key, failed(rank))).collect::<Vec<String>>()
    };
    let (of_64, of_128) = ("route_filtering_ipv4_64_percent", "route_filtering_ipv4_128_percent");
    let leaked = "route_filtering_ipv4_leaked";
    let both = ["allow", "deny"];
    assert_eq!(filtered("", "64", &both), [of_64, leaked]);
    // Where nothing is denied, nothing can leak.
    assert_eq!(filtered("", "64", &["allow"]), [of_64]);
    // The case without filters, the first case with a filter, and the case with a filter that denies.
    for unfit in [": none", ": allow", ": deny"] {
        assert_eq!(filtered(unfit, "64", &both), Vec::<String>::new(), "{unfit}");
    }
    assert_eq!(filtered("", "64 128", &both), [of_64, of_128, leaked]);
    assert_eq!(filtered(", 128: deny", "64 128", &both), [of_64]);
}

/// A test that does not apply has no verdicts, so this router would pass.
#[test]
fn a_router_that_loses_frames_at_every_load_fails_the_tests_with_traffic_to_routes() {
    let lossy = "no throughput was found: the router loses frames at every load";
    let why = format!("{lossy}; `rate` gives a load that is not a share of it");
    for name in [
        "fib_convergence",
        "link_failover",
        "longest_match",
        "route_flap",
        "route_filtering",
        "convergence_skyline",
        "reset",
    ] {
        // Some of these tests need a third port.
        let mut bed = Router::new(1);
        let (port, peer) = (bed.bed.facts.ports[1].clone(), bed.peers[1].clone());
        bed.bed.facts.ports.push(port);
        bed.peers.push(PeerView { port: 2, ..peer });
        bed.bed.floor = 0.5;
        let (outcome, end) = run(name, &mut bed, &[("routes", 100)]);
        assert_eq!(end, Err(TestError::Failed(why.clone())), "{name}");
        assert!(outcome.ranks.is_empty(), "{name}: {:?}", outcome.ranks);
        // The router was tried, and only the search has sent frames.
        let trials = &bed.bed.trials;
        assert!(!trials.is_empty(), "{name}");
        assert!(trials.iter().all(|(spec, _)| spec.purpose.starts_with("throughput 64: ")), "{name}");
    }
}
