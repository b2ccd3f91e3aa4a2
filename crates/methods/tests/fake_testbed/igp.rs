//! Tests of OSPF and LDP on a router whose behaviour is known in closed form.

use crate::common::{Fake, cell, params, rank, rows};
use drophammer_methods::igp::{Igp, IgpCounts, IgpPlan};
use drophammer_methods::{Change, Facts, Known, RouteAction, Seen, Setting, TestError, Testbed, Trial, find};
use drophammer_model::figure::RoundFigure;
use drophammer_model::label_edge::CoreProtocol;
use drophammer_model::outcome::{Cell, Outcome};
use drophammer_model::suite::ParamValue;
use drophammer_model::traffic::{Header, HeaderKind};
use drophammer_model::trial::{DestinationCounts, GroupCounts, Load, PortIndex, Targets, TrialResult, Validity};
use std::ops::Range;
use std::time::Duration;

/// Two core ports, and a router that applies a change of prefix i after `base_s` + i times `each_s`.
struct Router {
    bed: Fake,
    base_s: f64,
    each_s: f64,
    /// Number of prefixes for which it has labels, and number of prefixes to which it forwards.
    labels: u32,
    forwards: u32,
    plan: Option<IgpPlan>,
    actions: Vec<String>,
    faults: Faults,
    clock_s: f64,
    attempts: u32,
    /// Number of trials with a change.
    changes: u32,
}

/// What goes wrong.
#[derive(Clone, Copy, Default)]
struct Faults {
    /// The first frame of a trial to this prefix is lost by chance.
    chance: Option<u32>,
    /// This prefix is never withdrawn, but four frames to it are lost.
    stays: Option<u32>,
    /// It forwards to this prefix before the advertisement.
    early: Option<u32>,
    /// It changes its labels in each trial with a change.
    relabels: bool,
    /// An adjacency goes down in each trial with a change.
    loses: bool,
    /// The P router takes this long to flood a change.
    flooding: Duration,
    /// Number of first attempts that the tester spoils, and of following attempts without probes that lose frames.
    spoilt: u32,
    lossy: u32,
    /// From this attempt on, the tester is unfit.
    unfit_from: Option<u32>,
    /// From this prefix on, its labels are implicit null.
    implicit_null: Option<u32>,
    /// From this prefix on, the router at the other end tells implicit null.
    implicit_null_there: Option<u32>,
}

impl Router {
    fn new(base_s: f64, each_s: f64) -> Router {
        let mut bed = Fake::new();
        bed.facts.ports.iter_mut().for_each(|port| port.core = vec![CoreProtocol::Ospf, CoreProtocol::Ldp]);
        Router {
            bed,
            base_s,
            each_s,
            labels: u32::MAX,
            forwards: u32::MAX,
            plan: None,
            actions: Vec::new(),
            faults: Faults::default(),
            clock_s: 0.0,
            attempts: 0,
            changes: 0,
        }
    }

    fn run(&mut self, test: &str, own: &[(&str, ParamValue)]) -> Result<Outcome, TestError> {
        let mut outcome = Outcome::default();
        let method = find(test).unwrap();
        method.run(self, &params(method, false, own), &mut outcome).map(|()| outcome)
    }
}

impl Testbed for Router {
    fn facts(&self) -> &Facts {
        self.bed.facts()
    }

    fn attempt(&mut self, trial: &Trial, _: u32) -> Result<Seen, TestError> {
        let spec = &trial.spec;
        let Load::Constant { rate_pps } = spec.load else { panic!("{:?}", spec.load) };
        let weights: f64 = spec.flows.iter().map(|flow| flow.weight).sum();
        let change = trial.changes.first().map(|change| {
            let RouteAction::Igp { change: kind, .. } = &change.actions[0] else { panic!("{change:?}") };
            (change.at_s, *kind)
        });
        let probe = spec.purpose.starts_with("probe");
        self.attempts += u32::from(!probe);
        self.clock_s += spec.duration_s;
        self.changes += u32::from(change.is_some());
        let faults = self.faults;
        if !probe && faults.unfit_from.is_some_and(|first| self.attempts >= first) {
            return Err(TestError::Unfit(vec!["host busy".into()]));
        }
        let lossy = !probe && self.attempts > faults.spoilt && self.attempts <= faults.spoilt + faults.lossy;
        let mut group = GroupCounts { group: "prefixes".into(), ..GroupCounts::default() };
        let mut destinations = Vec::new();
        for (number, flow) in spec.flows.iter().enumerate() {
            let first = if let Targets::Routes { first, .. } = flow.destinations { first } else { 0 };
            let count = flow.destinations.count();
            let each = (rate_pps * flow.weight / weights / f64::from(count) * spec.duration_s).round() as u32;
            let mut counts = DestinationCounts { flow: number, ..DestinationCounts::default() };
            for prefix in first..first + count {
                let share = |s: f64| (f64::from(each) * (s / spec.duration_s).min(1.0)).round() as u32;
                let delay_s = self.base_s + f64::from(prefix) * self.each_s;
                // The first lost frame, and the first frame after the last lost one.
                let [from, to] = match change {
                    _ if prefix >= self.forwards => [0, each],
                    None => [0, u32::from(lossy)],
                    Some((_, Change::Advertise)) if faults.early == Some(prefix) => [0, 0],
                    Some((_, Change::Withdraw)) if faults.stays == Some(prefix) => [each / 2, each / 2 + 4],
                    Some((at_s, Change::Advertise)) => [0, share(at_s + delay_s)],
                    Some((at_s, Change::Withdraw)) => [share(at_s + delay_s), each],
                };
                let chance = change.is_some_and(|(_, kind)| kind == Change::Withdraw) && faults.chance == Some(prefix);
                let received = each - (to - from) - u32::from(chance);
                let us = |frame: u32| (f64::from(frame) / f64::from(each) * spec.duration_s * 1e6) as u32;
                let lost = |frame: u32| if to > from { us(frame) } else { DestinationCounts::NEVER };
                counts.offered.push(each);
                counts.received.push(received);
                counts.first_lost_us.push(if chance { 0 } else { lost(from) });
                counts.last_lost_us.push(lost(to.saturating_sub(1)));
                group.offered += u64::from(each);
                group.received += u64::from(received);
            }
            destinations.push(counts);
        }
        group.intended = group.offered;
        group.lost = group.offered - group.received;
        let (groups, elapsed_s) = (vec![group], spec.duration_s);
        let validity = match !probe && self.attempts <= faults.spoilt {
            true => Validity::Invalid(vec!["receive ring overflowed".into()]),
            false => Validity::Valid,
        };
        Ok(TrialResult { trial: 1, groups, validity, destinations, elapsed_s, ..TrialResult::default() }.into())
    }

    fn set(&mut self, _: Setting<'_>) -> Result<(), TestError> {
        Ok(())
    }

    fn settle(&mut self, _: Duration) -> Result<(), TestError> {
        Ok(())
    }

    fn igp(&mut self) -> Result<&mut dyn Igp, TestError> {
        Ok(self)
    }

    fn now_s(&mut self) -> Option<f64> {
        Some(self.clock_s)
    }

    fn known(&mut self) -> &mut Known {
        self.bed.known()
    }

    fn progress(&mut self, _: &str) {}

    fn note(&mut self, _: &str) {}
}

impl Igp for Router {
    fn start(&mut self, plan: &IgpPlan, _: Duration) -> Result<Duration, TestError> {
        self.plan = Some(plan.clone());
        Ok(Duration::ZERO)
    }

    fn act(&mut self, action: &RouteAction) -> Result<(), TestError> {
        let RouteAction::Igp { port, protocol, change, part } = action else { panic!("{action:?}") };
        self.actions.push(format!("{port} {protocol} {change:?} {part:?}"));
        Ok(())
    }

    fn await_settled(&mut self, _: Duration) -> Result<bool, TestError> {
        Ok(true)
    }

    fn await_labels(&mut self, port: PortIndex, part: Range<u32>, _: Duration) -> Result<Option<Duration>, TestError> {
        self.clock_s += 0.003;
        Ok(self.labels(port, part).iter().all(Option::is_some).then_some(Duration::from_millis(3)))
    }

    fn labels(&self, port: PortIndex, part: Range<u32>) -> Vec<Option<u32>> {
        let first = if self.faults.relabels { 100_000 * (1 + self.changes) } else { 100_000 };
        let null = if port == 0 { self.faults.implicit_null } else { self.faults.implicit_null_there };
        let own = |prefix| if null.is_some_and(|null| prefix >= null) { 3 } else { first + prefix };
        part.map(|prefix| (prefix < self.labels).then(|| own(prefix))).collect()
    }

    fn await_pe_label(&mut self, _: PortIndex, _: PortIndex, _: Duration) -> Result<Option<u32>, TestError> {
        Ok(None)
    }

    fn counts(&self, _: PortIndex) -> IgpCounts {
        let lost = if self.faults.loses { self.changes.into() } else { 0 };
        IgpCounts { lost, flooding: self.faults.flooding * self.changes, ..IgpCounts::default() }
    }
}

fn count(n: u64) -> ParamValue {
    ParamValue::Count(n)
}

#[test]
fn times_are_those_of_the_router() {
    let mut router = Router::new(0.050, 0.002);
    let outcome = router.run("igp_convergence", &[("prefixes", count(100))]).unwrap();
    // 200 frames per second go to each of 100 prefixes, so times are exact to 5 ms.
    for (key, ms) in [("igp_up_ospf_median_ms", 148.0), ("igp_up_ospf_max_ms", 248.0)] {
        let up = rank(&outcome, key).unwrap();
        let down = rank(&outcome, &key.replace("up", "down")).unwrap();
        assert!((up - ms).abs() <= 5.0 && (down - ms).abs() <= 5.0, "{key}: {up}, {down}");
        assert!(outcome.ranks.iter().all(|figure| figure.least == 5.0));
    }
    let slowest = outcome.tables.iter().find(|table| table.key == "igp_convergence_slowest").unwrap();
    let named = slowest.rows.iter().map(|row| row.cells[..2].to_vec());
    let expected = ["advertised", "withdrawn"].into_iter().flat_map(|change| {
        [99, 98, 97, 96, 95].map(|n| vec![Cell::from(change.to_owned()), Cell::from(format!("20.0.{n}.0/24"))])
    });
    assert!(named.eq(expected), "{slowest:?}");
    assert_eq!(router.plan, Some(IgpPlan { prefixes: 100, behind: vec![1], ldp: false }));
    assert_eq!(router.actions, Vec::<String>::new(), "the trials did everything");
}

#[test]
fn prefixes_that_do_not_follow_are_listed_and_leave_no_figure() {
    let mut router = Router { forwards: 98, ..Router::new(0.050, 0.0) };
    let error = router.run("igp_convergence", &[("prefixes", count(100))]).unwrap_err();
    assert!(error.to_string().contains("probe of 100 prefixes"), "{error}");
}

#[test]
fn labels_of_the_router_are_sent_and_those_of_the_p_router_expected() {
    let mut router = Router::new(0.030, 0.0);
    let own = [("prefixes", count(10)), ("protocol", ParamValue::Text("ldp".into()))];
    let outcome = router.run("igp_convergence", &own).unwrap();
    assert!((rank(&outcome, "igp_up_ldp_max_ms").unwrap() - 30.0).abs() < 1.0);
    assert_eq!(router.actions, ["1 ospf Advertise 0..10"], "the routes are there before the labels");
    let case = drophammer_methods::igp_traffic::IgpCase::new(
        &router,
        CoreProtocol::Ldp,
        10,
        drophammer_model::quantity::FrameRate(1_000.0),
    );
    let flows = case.unwrap().flows(&mut router, 3..5).unwrap();
    let label = |header: &Header| header.kind() == HeaderKind::Mpls;
    assert!(flows.iter().all(|flow| flow.headers.len() == 3 && label(&flow.headers[0])));
    let arrives: Vec<_> = flows.iter().map(|flow| flow.arrives.as_ref().unwrap().labels[0]).collect();
    assert_eq!(
        arrives.iter().map(|l| (l.label.get(), l.ttl)).collect::<Vec<_>>(),
        [(1_003, Some(63)), (1_004, Some(63))]
    );

    let error = Router { labels: 9, ..Router::new(0.0, 0.0) }.run("igp_convergence", &own).unwrap_err();
    assert!(matches!(&error, TestError::NotApplicable(why) if why.contains("20.0.9.0/24")), "{error}");
}

#[test]
fn capacity_ends_where_labels_or_traffic_do() {
    let own = [("step", count(100)), ("max_fecs", count(400)), ("install", ParamValue::Duration(Duration::ZERO))];
    let capacity = |router: &mut Router| {
        let outcome = router.run("ldp_capacity", &own).unwrap();
        (rank(&outcome, "ldp_capacity_fecs"), outcome.ranks[0].capped, outcome)
    };
    let (value, capped, outcome) = capacity(&mut Router::new(0.0, 0.0));
    assert_eq!((value, capped, rows(&outcome).len()), (Some(400.0), true, 4));
    let (value, capped, outcome) = capacity(&mut Router { labels: 250, ..Router::new(0.0, 0.0) });
    assert_eq!((value, capped), (Some(200.0), false));
    assert!(outcome.notes.iter().any(|note| note.contains("labels for 250 of 300 FECs")), "{:?}", outcome.notes);
    let (value, _, outcome) = capacity(&mut Router { forwards: 350, ..Router::new(0.0, 0.0) });
    assert_eq!((value, rows(&outcome).len(), outcome.tables[1].rows.len()), (Some(300.0), 4, 50));
    assert_eq!((cell(&outcome, 3, "unreachable"), cell(&outcome, 3, "labels")), (Some(50.0), Some(400.0)));
}

/// Convergence of 100 prefixes on a router that follows after 50 ms.
fn with(faults: Faults, own: &[(&str, ParamValue)]) -> Result<Outcome, TestError> {
    let own: Vec<_> = [("prefixes", count(100))].into_iter().chain(own.iter().cloned()).collect();
    Router { faults, ..Router::new(0.050, 0.0) }.run("igp_convergence", &own)
}

/// The cause of a figure that is missing.
fn missing(outcome: &Outcome, key: &str) -> Option<String> {
    let figure = outcome.ranks.iter().find(|figure| figure.key == key).unwrap();
    figure.missing.as_ref().map(|missing| missing.why.clone())
}

#[test]
fn a_frame_lost_by_chance_does_not_make_a_withdrawal_faster() {
    let outcome = with(Faults { chance: Some(7), ..Faults::default() }, &[]).unwrap();
    assert_eq!((cell(&outcome, 1, "unclear"), cell(&outcome, 1, "not_followed")), (Some(1.0), Some(0.0)));
    assert!(missing(&outcome, "igp_down_ospf_max_ms").unwrap().contains("by chance"));
    assert!(missing(&outcome, "igp_up_ospf_max_ms").is_none());
}

#[test]
fn a_prefix_that_only_loses_some_frames_was_not_withdrawn() {
    let outcome = with(Faults { stays: Some(7), ..Faults::default() }, &[]).unwrap();
    assert_eq!((cell(&outcome, 1, "not_followed"), outcome.tables[1].rows.len()), (Some(1.0), 1));
    assert_eq!(outcome.tables.len(), 2, "no prefix was slower than the others");
    assert!(missing(&outcome, "igp_down_ospf_max_ms").unwrap().contains("did not follow"));
}

#[test]
fn a_prefix_that_is_forwarded_to_before_the_advertisement_has_no_time() {
    let outcome = with(Faults { early: Some(7), ..Faults::default() }, &[]).unwrap();
    let near = |cell: Option<f64>| (cell.unwrap() - 50.0).abs() <= 5.0;
    assert!(cell(&outcome, 0, "unclear") == Some(1.0) && near(cell(&outcome, 0, "min_ms")), "{outcome:?}");
    assert!(missing(&outcome, "igp_up_ospf_median_ms").unwrap().contains("before the change"));
}

#[test]
fn a_change_during_which_an_adjacency_goes_down_has_no_figure() {
    let outcome = with(Faults { loses: true, ..Faults::default() }, &[]).unwrap();
    let said = "adjacencies and sessions that went down during the trial: 2";
    assert!(outcome.notes.contains(&format!("ospf, withdrawn: {said}")), "{:?}", outcome.notes);
    assert!(outcome.ranks.iter().all(|figure| figure.value.is_none()));
    assert_eq!(missing(&outcome, "igp_down_ospf_max_ms").as_deref(), Some(said));
}

#[test]
fn labels_that_change_during_a_trial_end_the_test() {
    let ldp = [("protocol", ParamValue::Text("ldp".into()))];
    let error = with(Faults { relabels: true, ..Faults::default() }, &ldp).unwrap_err().to_string();
    assert!(error.contains("100 prefixes, for 20.0.0.0/24 from 100000 to 200000"), "{error}");
}

#[test]
fn a_p_router_that_floods_for_most_of_a_time_limits_it() {
    // The median prefix was sent after half of the time, which must exceed half of 50 ms.
    for (ms, limited) in [(20, [false, false]), (40, [false, true]), (60, [true, true])] {
        let outcome = with(Faults { flooding: Duration::from_millis(ms), ..Faults::default() }, &[]).unwrap();
        let marked: Vec<_> = outcome.ranks.iter().map(|figure| figure.tester_limited).collect();
        assert_eq!(marked, [limited, limited].concat(), "{ms} ms");
        assert_eq!(rows(&outcome)[1].marks.contains(&"tester-limited".into()), limited[1]);
    }
}

#[test]
fn fecs_before_an_unfit_tester_are_a_lower_bound() {
    let own = [("step", count(100)), ("max_fecs", count(400))];
    for (first, fecs) in [(3, Some(200.0)), (1, None)] {
        let faults = Faults { unfit_from: Some(first), ..Faults::default() };
        let (method, mut outcome) = (find("ldp_capacity").unwrap(), Outcome::default());
        let mut router = Router { faults, ..Router::new(0.0, 0.0) };
        let end = method.run(&mut router, &params(method, false, &own), &mut outcome);
        assert!(matches!(end, Err(TestError::Unfit(_))), "{end:?}");
        let [held] = &outcome.ranks[..] else { panic!("{:?}", outcome.ranks) };
        assert_eq!((held.value, held.tester_limited), (fecs, fecs.is_some()));
        assert_ne!(held.round(), RoundFigure::Failed);
    }
}

#[test]
fn the_time_of_labels_is_that_of_the_attempt_that_counted() {
    let own = [("step", count(100)), ("max_fecs", count(100))];
    let time = |faults| {
        let outcome = Router { faults, ..Router::new(0.0, 0.0) }.run("ldp_capacity", &own).unwrap();
        (rank(&outcome, "ldp_capacity_s").unwrap(), outcome.ranks[1].resolution)
    };
    let (whole, exact) = time(Faults::default());
    assert!((whole - 0.003).abs() < 1e-9 && exact.abs() < 1e-9, "{whole}, {exact}");
    for faults in [Faults { lossy: 4, ..Faults::default() }, Faults { spoilt: 2, ..Faults::default() }] {
        let (late, unsure) = time(faults);
        assert!(late > whole && (late * (1.0 - unsure) - whole).abs() < 1e-9, "{late}, {unsure}");
    }
}

#[test]
fn implicit_null_is_no_label_of_the_router() {
    let own = [("step", count(100)), ("max_fecs", count(400))];
    let faults = Faults { implicit_null: Some(250), ..Faults::default() };
    let outcome = Router { faults, ..Router::new(0.0, 0.0) }.run("ldp_capacity", &own).unwrap();
    assert_eq!((rank(&outcome, "ldp_capacity_fecs"), cell(&outcome, 2, "labels")), (Some(200.0), Some(250.0)));
    let said = "the router has labels for 250 of 300 FECs, and implicit null for 50, as if it were the last router before them";
    assert_eq!(rows(&outcome)[2].marks, [said]);
    // In a row of routers, the last one tells it to the one before, and to the tester.
    let faults = Faults { implicit_null_there: Some(290), ..Faults::default() };
    let own = [own[0].clone(), own[1].clone(), ("install", ParamValue::Duration(Duration::ZERO))];
    let outcome = Router { faults, forwards: 290, ..Router::new(0.0, 0.0) }.run("ldp_capacity", &own).unwrap();
    let said = "frames are lost, to some FECs always; the router at port p2 advertises implicit null for 10 FECs, as if it were the last \
                router before them";
    assert_eq!(
        (rank(&outcome, "ldp_capacity_fecs"), &rows(&outcome)[2].marks[..]),
        (Some(200.0), &[said.to_owned()][..])
    );
}
