//! LSP capacity on a router of known limits.

use crate::common::{Fake, cell, method, params, rank, rows};
use drophammer_methods::{Facts, Known, LspPlan, Lsps, Seen, Signalling, TestError, Testbed, Trial, UpLsp};
use drophammer_model::label_edge::CoreProtocol;
use drophammer_model::outcome::Outcome;
use drophammer_model::suite::ParamValue;
use drophammer_model::traffic::{Bits, Header};
use drophammer_model::trial::{DestinationCounts, FlowSpec, GroupCounts, TrialResult};
use std::ops::Range;
use std::time::Duration;

/// Labels of LSP 0 at the router and at the egress.
const LABEL: u32 = 1_000;
const ARRIVING: u32 = 50_000;

/// A router with room for `limit` LSPs.
struct LspBed {
    fake: Fake,
    limit: u32,
    /// It loses every second frame over this LSP.
    lossy: Option<u32>,
    /// It loses frames only in the first of these trials.
    lossy_until: u64,
    /// The router dies in the trial with this number.
    dies: Option<u64>,
    /// It ignores a teardown.
    keeps: bool,
    /// It gives this LSP a new label during the trial with this number (from 1).
    relabelled: Option<(u32, u64)>,
    /// The tester is unfit for the trial with this number.
    unfit: Option<u64>,
    asked: u64,
    clock_s: f64,
    up: Vec<Option<UpLsp>>,
    plans: Vec<LspPlan>,
    flows: Vec<Vec<FlowSpec>>,
}

impl LspBed {
    fn new(limit: u32) -> LspBed {
        let mut fake = Fake::new();
        fake.facts.ports.iter_mut().for_each(|port| port.core = vec![CoreProtocol::Rsvp]);
        LspBed {
            fake,
            limit,
            lossy: None,
            lossy_until: u64::MAX,
            dies: None,
            keeps: false,
            relabelled: None,
            unfit: None,
            asked: 0,
            clock_s: 10.0,
            up: Vec::new(),
            plans: Vec::new(),
            flows: Vec::new(),
        }
    }

    fn run(&mut self, over: &[(&str, ParamValue)]) -> (Outcome, Result<(), TestError>) {
        let method = method("lsp_capacity");
        let mut outcome = Outcome::default();
        let end = method.run(self, &params(method, false, over), &mut outcome);
        (outcome, end)
    }
}

impl Testbed for LspBed {
    fn facts(&self) -> &Facts {
        &self.fake.facts
    }

    fn attempt(&mut self, trial: &Trial, _: u32) -> Result<Seen, TestError> {
        self.asked += 1;
        if self.unfit == Some(self.asked) {
            return Err(TestError::Unfit(vec!["receive ring overflowed".into()]));
        }
        if self.dies == Some(self.asked) {
            return Err(TestError::DutDied("signal 11".into()));
        }
        if let Some((lsp, _)) = self.relabelled.filter(|(_, at)| *at == self.asked) {
            self.up[lsp as usize].as_mut().unwrap().label += 100_000;
        }
        self.clock_s += trial.spec.duration_s;
        let flows = &trial.spec.flows;
        let each = (trial.spec.intended_per_port() / flows.len() as u64) as u32;
        let destinations = flows.iter().enumerate().map(|(flow, spec)| {
            let Header::Mpls(mpls) = &spec.headers[0] else { panic!("no label") };
            let lossy = self.asked <= self.lossy_until
                && self.lossy.is_some_and(|lsp| mpls.label == Bits::new(LABEL + lsp).into());
            let received = vec![if lossy { each / 2 } else { each }];
            DestinationCounts { flow, offered: vec![each], received, ..DestinationCounts::default() }
        });
        let destinations: Vec<_> = destinations.collect();
        let sum = |of: fn(&DestinationCounts) -> u32| destinations.iter().map(|counts| u64::from(of(counts))).sum();
        let (offered, lost): (u64, u64) = (sum(|counts| counts.offered[0]), sum(|counts| counts.lost(0)));
        let group = GroupCounts { offered, lost, received: offered - lost, ..GroupCounts::default() };
        self.flows.push(flows.clone());
        let dut_cpu = Some(0.25);
        Ok(TrialResult { trial: self.asked, groups: vec![group], destinations, dut_cpu, ..TrialResult::default() }
            .into())
    }

    fn settle(&mut self, _: Duration) -> Result<(), TestError> {
        Ok(())
    }

    fn known(&mut self) -> &mut Known {
        &mut self.fake.known
    }

    fn lsps(&mut self) -> Result<&mut dyn Lsps, TestError> {
        Ok(self)
    }

    fn progress(&mut self, _: &str) {}

    fn note(&mut self, _: &str) {}
}

impl Lsps for LspBed {
    fn ports(&self) -> Vec<usize> {
        vec![0, 1]
    }

    fn begin(&mut self, plan: &LspPlan) -> Result<(), TestError> {
        self.plans.push(plan.clone());
        self.up = vec![None; plan.count as usize];
        Ok(())
    }

    /// 500 LSPs come up per second.
    fn set_up(&mut self, lsps: Range<u32>, per_second: u32) -> Result<(), TestError> {
        assert_eq!(per_second, 1_000);
        for lsp in lsps.start..lsps.end.min(self.limit) {
            self.clock_s += 0.002;
            let since_s = [self.clock_s; 2];
            self.up[lsp as usize] = Some(UpLsp { label: LABEL + lsp, arriving: ARRIVING + lsp, since_s });
        }
        Ok(())
    }

    fn tear_down(&mut self, lsps: Range<u32>, _: u32) -> Result<(), TestError> {
        lsps.filter(|_| !self.keeps).for_each(|lsp| self.up[lsp as usize] = None);
        Ok(())
    }

    fn await_down(&mut self, within: Duration) -> Result<bool, TestError> {
        assert!(within >= Duration::from_millis(15_500), "patience and 5.25 periods of 2 s: {within:?}");
        Ok(self.up.iter().all(Option::is_none))
    }

    fn await_up(&mut self, lsps: u32, within: Duration) -> Result<bool, TestError> {
        assert_eq!(within, Duration::from_millis(5_200), "200 LSPs at 1,000 each second, and the patience");
        Ok(lsps <= self.limit)
    }

    fn up(&self, lsp: u32) -> Option<UpLsp> {
        self.up[lsp as usize]
    }

    fn name(&self, lsp: u32) -> String {
        format!("tunnel {}", lsp + 1)
    }

    /// 10 messages in each direction per second, of 100 bytes.
    fn signalling(&mut self) -> Signalling {
        let each = (self.clock_s * 10.0) as u64;
        Signalling { at_s: self.clock_s, messages: [each; 2], bytes: [each * 100; 2] }
    }

    fn errors(&self) -> Vec<(String, u64)> {
        let refused = self.plans[0].count.saturating_sub(self.limit);
        if refused == 0 { Vec::new() } else { vec![("PathErr, no room".into(), 1_234)] }
    }
}

fn reduction(words: &[&str]) -> (&'static str, ParamValue) {
    ("refresh_reduction", ParamValue::Texts(words.iter().map(|word| (*word).to_owned()).collect()))
}

#[test]
fn the_capacity_is_that_of_the_last_step_that_passed() {
    let mut bed = LspBed::new(500);
    let (outcome, end) = bed.run(&[]);
    end.unwrap();
    // Steps of 200 LSPs up to 600, with and without refresh reduction.
    assert_eq!(bed.plans.iter().map(|plan| plan.refresh_reduction).collect::<Vec<_>>(), [false, true]);
    assert_eq!((rows(&outcome).len(), bed.asked), (6, 6));
    for first in [0, 3] {
        for (row, expected) in [(0, [200.0; 4]), (1, [400.0; 4]), (2, [600.0, 500.0, 500.0, 500.0])] {
            let cells = ["requested", "up", "tried", "forwarding"].map(|key| cell(&outcome, first + row, key).unwrap());
            assert_eq!(cells, expected);
            assert_eq!(
                (cell(&outcome, first + row, "lost"), cell(&outcome, first + row, "lost_lsps")),
                (Some(0.0), Some(0.0))
            );
            assert_eq!(cell(&outcome, first + row, "frames"), Some(expected[2] * 7.0));
            assert_eq!(cell(&outcome, first + row, "cpu_percent"), Some(25.0));
        }
        let near = |key, expected: f64| (cell(&outcome, first, key).unwrap() / expected - 1.0).abs() < 0.02;
        assert!(near("set_up_rate", 500.0) && near("refreshes_mps", 20.0) && near("refreshes_bps", 2_000.0));
    }
    for key in ["lsp_capacity_off_lsps", "lsp_capacity_on_lsps"] {
        assert_eq!(rank(&outcome, key), Some(400.0));
    }
    assert!(outcome.ranks.iter().all(|figure| !figure.capped && !figure.tester_limited));
    let named = "stopped after 400 LSPs: 100 LSPs did not come up (tunnel 501, tunnel 502, tunnel 503, tunnel 504, tunnel 505, ...)";
    assert!(outcome.notes.contains(&format!("refresh reduction off: {named}")), "{:?}", outcome.notes);
    assert!(outcome.notes.contains(&"refresh reduction on: errors from the router: PathErr, no room: 1,234".into()));
}

#[test]
fn each_flow_has_the_label_of_its_lsp() {
    let mut bed = LspBed::new(2_000);
    bed.run(&[reduction(&["off"]), ("max_lsps", ParamValue::Count(200))]).1.unwrap();
    let flows = &bed.flows[0];
    assert_eq!(flows.len(), 200);
    let (flow, arrives) = (&flows[7], flows[7].arrives.as_ref().unwrap());
    assert_eq!((flow.from, flow.to, flow.size.clone().unwrap().to_string()), (0, 1, "132".into()));
    assert_eq!((arrives.labels[0].label, arrives.labels[0].ttl), (Bits::new(ARRIVING + 7), Some(63)));
}

#[test]
fn of_many_lsps_some_are_tried() {
    let mut bed = LspBed::new(2_000);
    let over = [reduction(&["off"]), ("max_lsps", ParamValue::Count(400)), ("tried_lsps", ParamValue::Count(100))];
    let (outcome, end) = bed.run(&over);
    end.unwrap();
    assert_eq!([0, 1].map(|row| cell(&outcome, row, "tried")), [Some(100.0); 2]);
    let labels = |flows: &[FlowSpec]| {
        flows.iter().map(|flow| flow.arrives.as_ref().unwrap().labels[0].label).collect::<Vec<_>>()
    };
    let expected: Vec<_> = (0..100).map(|i| Bits::new(ARRIVING + 4 * i)).collect();
    assert_eq!(labels(&bed.flows[1]), expected);
    let said = "with more than 100 LSPs, frames go over 100 of them, spread evenly (`tried_lsps`)";
    assert!(outcome.notes.contains(&said.into()), "{:?}", outcome.notes);
}

#[test]
fn a_router_without_an_end_is_a_lower_bound() {
    let (outcome, end) = LspBed::new(9_999).run(&[reduction(&["on"]), ("max_lsps", ParamValue::Count(400))]);
    end.unwrap();
    assert_eq!((rank(&outcome, "lsp_capacity_on_lsps"), outcome.ranks[0].capped), (Some(400.0), true));
    let said = "refresh reduction on: at least 400 LSPs; higher numbers were not tried (`max_lsps`)";
    assert_eq!(outcome.notes, [said]);
}

#[test]
fn an_lsp_that_loses_frames_fails_its_step_and_is_named() {
    let mut bed = LspBed { lossy: Some(230), ..LspBed::new(2_000) };
    let (outcome, end) = bed.run(&[reduction(&["off"])]);
    end.unwrap();
    assert_eq!(rank(&outcome, "lsp_capacity_off_lsps"), Some(200.0));
    assert_eq!((cell(&outcome, 1, "forwarding"), cell(&outcome, 1, "lost")), (Some(399.0), Some(4.0)));
    let marks = ["1 LSP lost 4 frames in the last of 3 tries (tunnel 231)", "8 frames were lost in earlier tries"];
    assert_eq!((&*rows(&outcome)[1].marks, cell(&outcome, 1, "tries")), (&marks.map(String::from)[..], Some(3.0)));
}

#[test]
fn frames_lost_in_one_try_end_no_climb() {
    let mut bed = LspBed { lossy: Some(230), lossy_until: 2, ..LspBed::new(2_000) };
    let (outcome, end) = bed.run(&[reduction(&["off"]), ("max_lsps", ParamValue::Count(400))]);
    end.unwrap();
    assert_eq!((rank(&outcome, "lsp_capacity_off_lsps"), bed.asked), (Some(400.0), 3));
    assert_eq!(rows(&outcome)[1].marks, ["4 frames were lost in earlier tries"]);
}

#[test]
fn a_router_that_dies_has_no_figure() {
    let (outcome, end) = LspBed { dies: Some(3), ..LspBed::new(2_000) }.run(&[reduction(&["off"])]);
    assert!(matches!(end, Err(TestError::DutDied(_))));
    let missing = outcome.ranks[0].missing.as_ref().unwrap();
    assert_eq!(
        (outcome.ranks[0].value, &*missing.why),
        (None, "after 400 LSPs: the device under test died: signal 11")
    );
}

#[test]
fn lsps_that_stay_after_their_teardown_are_noted() {
    for keeps in [false, true] {
        let mut bed = LspBed { keeps, ..LspBed::new(2_000) };
        let (outcome, end) = bed.run(&[reduction(&["off"]), ("max_lsps", ParamValue::Count(200))]);
        end.unwrap();
        let noted = outcome.notes.iter().any(|note| note.contains("LSPs were still up 15.7 s after their teardown"));
        assert_eq!(noted, keeps, "{:?}", outcome.notes);
    }
}

#[test]
fn an_lsp_with_another_label_did_not_stay_up() {
    let mut bed = LspBed { relabelled: Some((3, 2)), ..LspBed::new(2_000) };
    let (outcome, end) = bed.run(&[reduction(&["off"])]);
    end.unwrap();
    assert_eq!((rank(&outcome, "lsp_capacity_off_lsps"), cell(&outcome, 1, "lost_lsps")), (Some(200.0), Some(1.0)));
    assert_eq!(rows(&outcome)[1].marks, ["1 LSP went down or changed (tunnel 4)"]);
}

#[test]
fn a_router_that_sets_up_nothing_holds_nothing() {
    let mut bed = LspBed::new(0);
    let (outcome, end) = bed.run(&[reduction(&["off"])]);
    end.unwrap();
    assert_eq!((rank(&outcome, "lsp_capacity_off_lsps"), bed.asked), (Some(0.0), 0));
    assert_eq!((cell(&outcome, 0, "up"), cell(&outcome, 0, "refreshes_mps")), (Some(0.0), None));
}

#[test]
fn an_unfit_tester_limits_one_run_and_not_the_other() {
    let mut bed = LspBed { unfit: Some(2), ..LspBed::new(400) };
    let (outcome, end) = bed.run(&[("max_lsps", ParamValue::Count(600))]);
    assert!(matches!(end, Err(TestError::Unfit(_))));
    assert_eq!((outcome.ranks[0].value, outcome.ranks[0].tester_limited), (Some(200.0), true));
    assert_eq!((outcome.ranks[1].value, outcome.ranks[1].tester_limited), (Some(400.0), false));
}
