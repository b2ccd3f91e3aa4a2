//! Frames per second of processor time, on a testbed with a known processor time.

use crate::common::{Fake, rank, run, size};
use drophammer_model::figure::RoundFigure;
use drophammer_model::outcome::Outcome;
use drophammer_model::quantity::FrameRate;
use drophammer_model::suite::ParamValue;
use drophammer_model::trial::Load;

#[test]
fn frames_per_processor_second_are_compared_at_one_load_without_loss() {
    let at = |pps| ("processor_time_at", ParamValue::Rate(FrameRate(pps)));
    let processor_ns = Some((2_000, Some(750)));
    let mut bed = Fake { capacity_pps: 250_000.0, tester_pps: 1_000_000.0, processor_ns, ..Fake::new() };
    let (outcome, end) = run("forwarding_rate", &mut bed, &[size("64"), at(100_000.0)]);
    end.unwrap();
    assert_eq!(bed.trials.len(), 6);
    assert!(bed.trials[3..].iter().all(|(spec, _)| spec.load == Load::Constant { rate_pps: 100_000.0 }));
    let row = &outcome.tables.iter().find(|table| table.key == "processor_time").unwrap().rows[0];
    assert_eq!(row.trials, [4, 5, 6]);
    let key = "forwarding_rate_64_frames_per_cpu_s";
    let figure = outcome.ranks.iter().find(|rank| rank.key == key).unwrap();
    assert_eq!((figure.value, figure.load_pps), (Some(800_000.0), Some(100_000.0)), "1,250 ns per frame");
    // A router that loses part of this load has no figure.
    let mut bed = Fake { capacity_pps: 90_000.0, processor_ns, ..Fake::new() };
    let (outcome, end) = run("forwarding_rate", &mut bed, &[size("64"), at(100_000.0)]);
    end.unwrap();
    assert_eq!(rank(&outcome, key), None);
    assert!(outcome.notes.iter().any(|note| note.contains("lost 10.0 %")), "{:?}", outcome.notes);
}

/// Otherwise the router would be ranked behind routers that have the figure.
#[test]
fn a_figure_that_cannot_be_known_is_not_a_failure() {
    let figure = |outcome: &Outcome| outcome.ranks.iter().find(|rank| rank.key.ends_with("_frames_per_cpu_s")).cloned();
    let at = ("processor_time_at", ParamValue::Rate(FrameRate(100_000.0)));
    let measured = |mut bed: Fake, said: &str| {
        let (outcome, end) = run("forwarding_rate", &mut bed, &[size("64"), at.clone()]);
        end.unwrap();
        assert!(rank(&outcome, "forwarding_rate_64_pps").is_some());
        let figure = figure(&outcome).unwrap();
        assert_eq!((figure.value, figure.round()), (None, RoundFigure::NotMeasured));
        assert!(outcome.notes.iter().any(|note| note.contains(said)), "{:?}", outcome.notes);
    };
    measured(Fake { processor_ns: Some((2_000, None)), ..Fake::new() }, "is not known");
    // If the tester cannot offer a load, only this figure is missing.
    let unfit_band_pps = (99_000.0, 101_000.0);
    measured(Fake { unfit_band_pps, processor_ns: Some((2_000, Some(0))), ..Fake::new() }, "processor time left out");
    // Virtual links carry more than the line rate of their ports.
    let mut bed = Fake { processor_ns: Some((2_000, Some(0))), ..Fake::new() };
    let beyond = ("processor_time_at", ParamValue::Rate(FrameRate(20_000_000.0)));
    let (outcome, end) = run("forwarding_rate", &mut bed, &[size("64"), beyond]);
    end.unwrap();
    assert!(figure(&outcome).is_none() && bed.trials.len() == 3, "{} trials", bed.trials.len());
    assert!(outcome.notes.iter().any(|note| note.contains("line rate is")), "{:?}", outcome.notes);
}
