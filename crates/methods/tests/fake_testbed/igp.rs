//! Tests of OSPF and LDP on a router whose behaviour is known in closed form.

use crate::common::{Fake, cell, params, rank, rows};
use drophammer_methods::igp::{Igp, IgpCounts, IgpPlan};
use drophammer_methods::{Change, Facts, Known, RouteAction, Seen, Setting, TestError, Testbed, Trial, find};
use drophammer_model::label_edge::CoreProtocol;
use drophammer_model::outcome::Outcome;
use drophammer_model::suite::ParamValue;
use drophammer_model::traffic::{Header, HeaderKind};
use drophammer_model::trial::{DestinationCounts, GroupCounts, Load, PortIndex, Targets, TrialResult};
use std::ops::Range;
use std::time::Duration;

/// Two core ports, and a router that follows prefix i `base_s` + i times `each_s` after the change.
struct Router {
    bed: Fake,
    base_s: f64,
    each_s: f64,
    /// Numbers of prefixes for which it has labels, and to which it forwards.
    labels: u32,
    forwards: u32,
    plan: Option<IgpPlan>,
    actions: Vec<String>,
}

impl Router {
    fn new(base_s: f64, each_s: f64) -> Router {
        let mut bed = Fake::new();
        bed.facts.ports.iter_mut().for_each(|port| port.core = vec![CoreProtocol::Ospf, CoreProtocol::Ldp]);
        Router { bed, base_s, each_s, labels: u32::MAX, forwards: u32::MAX, plan: None, actions: Vec::new() }
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
                let received = match change {
                    _ if prefix >= self.forwards => 0,
                    None => each,
                    Some((at_s, Change::Advertise)) => each - share(at_s + delay_s),
                    Some((at_s, Change::Withdraw)) => share(at_s + delay_s),
                };
                counts.offered.push(each);
                counts.received.push(received);
                group.offered += u64::from(each);
                group.received += u64::from(received);
            }
            destinations.push(counts);
        }
        group.intended = group.offered;
        group.lost = group.offered - group.received;
        let (groups, elapsed_s) = (vec![group], spec.duration_s);
        Ok(TrialResult { trial: 1, groups, destinations, elapsed_s, ..TrialResult::default() }.into())
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
        Ok(self.labels(port, part).iter().all(Option::is_some).then_some(Duration::from_millis(3)))
    }

    fn labels(&self, _: PortIndex, part: Range<u32>) -> Vec<Option<u32>> {
        part.map(|prefix| (prefix < self.labels).then_some(100_000 + prefix)).collect()
    }

    fn counts(&self, _: PortIndex) -> IgpCounts {
        IgpCounts::default()
    }
}

fn count(n: u64) -> ParamValue {
    ParamValue::Count(n)
}

#[test]
fn times_are_those_of_the_router() {
    let mut router = Router::new(0.050, 0.002);
    let outcome = router.run("igp_convergence", &[("prefixes", count(100))]).unwrap();
    // 200 frames per second to each of 100 prefixes: times are exact to 5 ms.
    for (key, ms) in [("igp_up_ospf_median_ms", 148.0), ("igp_up_ospf_max_ms", 248.0)] {
        let up = rank(&outcome, key).unwrap();
        let down = rank(&outcome, &key.replace("up", "down")).unwrap();
        assert!((up - ms).abs() <= 5.0 && (down - ms).abs() <= 5.0, "{key}: {up}, {down}");
        assert!(outcome.ranks.iter().all(|figure| figure.least == 5.0));
    }
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
