//! Error frames when the tester cannot measure some kinds, and idle traffic when the tester cannot listen.

use crate::common::{Fake, any_cell, as_fake, params, rows};
use drophammer_methods::{Seen, TestError, Testbed, Trial, find};
use drophammer_model::beside::{ExtraFate, ExtraFrame, OtherTraffic, ProtocolCount};
use drophammer_model::figure::RoundFigure;
use drophammer_model::outcome::{Cell, Outcome};
use drophammer_model::quantity::FrameRate;
use drophammer_model::suite::ParamValue;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

/// A router that silently drops every wrong frame, with a tester that cannot measure the kinds whose name contains
/// `unfit`.
struct Bed {
    inner: Fake,
    unfit: &'static str,
    /// Wrong frames that were sent.
    sent: Vec<ExtraFrame>,
    /// The frames that it receives while no test frame is sent.
    seen: OtherTraffic,
}

impl Testbed for Bed {
    as_fake!(inner);

    fn attempt(&mut self, trial: &Trial, number: u32) -> Result<Seen, TestError> {
        let Some(extra) = &trial.extra else { return self.inner.attempt(trial, number) };
        if trial.spec.purpose.contains(self.unfit) {
            return Err(TestError::Unfit(vec!["host busy".into()]));
        }
        self.sent.extend_from_slice(extra);
        let fate = ExtraFate { sent: true, ..ExtraFate::default() };
        let other = OtherTraffic { extra: vec![fate; extra.len()], ..OtherTraffic::default() };
        let seen = self.inner.attempt(&Trial { extra: None, ..trial.clone() }, number)?;
        Ok(Seen { other: Some(other), ..seen })
    }

    fn observe(&mut self, time: Duration) -> Result<OtherTraffic, TestError> {
        Ok(OtherTraffic { time, ..self.seen.clone() })
    }

    fn settle(&mut self, time: Duration) -> Result<(), TestError> {
        self.inner.settle(time)
    }
}

fn errors(unfit: &'static str) -> (Outcome, Result<(), TestError>, Vec<ExtraFrame>) {
    errors_of(Fake::new(), unfit, &[])
}

/// Runs the test with these parameters, on a bed that handles test frames like `inner`.
fn errors_of(
    inner: Fake,
    unfit: &'static str,
    over: &[(&str, ParamValue)],
) -> (Outcome, Result<(), TestError>, Vec<ExtraFrame>) {
    let method = find("error_frames").unwrap();
    let mut bed = Bed { inner, unfit, sent: Vec::new(), seen: OtherTraffic::default() };
    let mut outcome = Outcome::default();
    let end = method.run(&mut bed, &params(method, false, over), &mut outcome);
    (outcome, end, bed.sent)
}

/// The verdict of each row.
fn verdicts(outcome: &Outcome) -> Vec<String> {
    let text = |cell: &Cell| if let Cell::Text(text) = cell { text.clone() } else { panic!("{cell:?}") };
    (0..rows(outcome).len()).map(|row| text(any_cell(outcome, row, "verdict"))).collect()
}

#[test]
fn a_kind_that_cannot_be_measured_leaves_the_others_but_no_figure() {
    // A silent router is wrong for the kinds that it should answer or forward.
    let (outcome, end, _) = errors("nothing has this name");
    end.unwrap();
    let wrong =
        verdicts(&outcome).iter().filter(|v| v.starts_with("no ICMP") || v.starts_with("dropped 20 of 20")).count();
    assert_eq!((wrong, outcome.ranks[0].value), (8, Some(8.0)));
    let (outcome, end, _) = errors("hop limit");
    end.unwrap();
    let verdicts = verdicts(&outcome);
    assert_eq!(verdicts.len(), 30);
    assert_eq!(verdicts.iter().filter(|v| v.starts_with("not measured")).count(), 2);
    assert_eq!(outcome.ranks[0].round(), RoundFigure::NotMeasured, "{:?}", outcome.ranks);
    assert_eq!(outcome.deviations.len(), 2);
    // If no kind can be measured, there is no result.
    let (outcome, end, sent) = errors("with");
    assert!(matches!(end, Err(TestError::Unfit(_))) && outcome.ranks.is_empty() && sent.is_empty());
}

#[test]
fn good_frames_that_are_lost_by_chance_spoil_no_verdict() {
    // The second trial, which sends runts, loses one good frame in a hundred; the trial without wrong frames loses
    // none.
    let runts = |rate: f64| {
        let inner = Fake { disturbed: 2..3, ..Fake::new() };
        let rate = ("rate", ParamValue::Rate(FrameRate(rate)));
        let (outcome, end, _) = errors_of(inner, "nothing has this name", &[rate]);
        end.unwrap();
        // The first kind is never sent.
        let lost = any_cell(&outcome, 1, "good_lost").clone();
        (lost, verdicts(&outcome)[1].clone(), outcome.ranks[0].value)
    };
    assert_eq!(runts(1e3), (Cell::Count(5), "as required".into(), Some(8.0)));
    assert_eq!(runts(10e3), (Cell::Count(50), "50 good frames lost".into(), Some(9.0)));
}

#[test]
fn every_wrong_frame_has_a_source_of_its_own() {
    use drophammer_model::traffic::Header;
    let (_, end, sent) = errors("nothing has this name");
    end.unwrap();
    let ttl: Vec<Ipv4Addr> = sent
        .iter()
        .filter_map(|frame| match &frame.headers[1] {
            Header::Ipv4(ip) if ip.ttl.first() == 1 => ip.source.as_ref().map(|source| source.first()),
            _ => None,
        })
        .collect();
    assert_eq!((ttl.len(), ttl.iter().collect::<BTreeSet<_>>().len()), (20, 20));
    // The frames are evenly spread over the trial.
    let at: Vec<Duration> = sent[..20].iter().map(|frame| frame.at).collect();
    assert_eq!((at[0], at[19]), (Duration::from_micros(12_500), Duration::from_micros(487_500)));
}

#[test]
fn the_count_of_the_kernel_stands_beside_the_frames_of_each_port() {
    let method = find("idle_traffic").unwrap();
    let count = |protocol: &str, frames| ProtocolCount {
        port: 0,
        protocol: protocol.into(),
        frames,
        answers: 0,
        bytes: 64 * frames,
        most_per_second: 1,
    };
    // The kernel received one frame more than the tester at the second port.
    for by_kernel in [Some(vec![5, 1]), None] {
        let protocols = vec![count("LLDP", 3), count("STP", 2)];
        let seen = OtherTraffic { protocols, received_by_kernel: by_kernel.clone(), ..OtherTraffic::default() };
        let mut bed = Bed { inner: Fake::new(), unfit: "nothing has this name", sent: Vec::new(), seen };
        let mut outcome = Outcome::default();
        method.run(&mut bed, &params(method, false, &[]), &mut outcome).unwrap();
        let row = |row: usize| ["protocol", "frames", "kernel_frames"].map(|key| any_cell(&outcome, row, key).clone());
        let kernel = |port: usize| by_kernel.as_ref().map_or(Cell::None, |ports| Cell::Count(ports[port]));
        assert_eq!(row(0), ["LLDP".into(), Cell::Count(3), kernel(0)]);
        assert_eq!(row(1), ["STP".into(), Cell::Count(2), kernel(0)]);
        assert_eq!(row(2), ["none".into(), Cell::Count(0), kernel(1)]);
        assert_eq!(rows(&outcome).len(), 3);
        let explained = outcome.notes.iter().any(|note| note.contains("that the kernel received"));
        assert_eq!(explained, by_kernel.is_some(), "{:?}", outcome.notes);
    }
}

#[test]
fn a_testbed_that_sees_test_frames_only_says_so() {
    for name in ["idle_traffic", "error_frames"] {
        let method = find(name).unwrap();
        let end = method.run(&mut Fake::new(), &params(method, false, &[]), &mut Outcome::default());
        assert!(matches!(end, Err(TestError::NotApplicable(_))), "{name}: {end:?}");
    }
}
