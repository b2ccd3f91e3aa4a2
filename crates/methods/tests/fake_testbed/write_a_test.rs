//! The test of the guide `docs/guides/write-a-test.md`. It compiles and runs, and the guide shows exactly this code.

use crate::common::{Fake, cell, params, rank, size, unmeasured};
use drophammer_methods::Method;
use drophammer_model::outcome::Outcome;
use half_load::HalfLoad;

mod half_load {
    // guide: begin
    use drophammer_methods::kit::prelude::*;

    /// The test.
    pub struct HalfLoad;

    const LOAD: Param<Percent> = Param::fixed("load", "50", "load in % of line rate");
    const TRIAL_DURATION: Param<Duration> = Param::new("trial_duration", "500 ms", "60 s", "length of a trial");

    const LOSS: FigureSpec =
        FigureSpec::lower_by_difference("half_load_{size}_loss_percent", "%", "share of frames lost in %")
            .by(LEAST_LOSS_PERCENT);

    static SPEC: TestSpec = TestSpec {
        name: "half_load",
        title: "Loss at half the line rate",
        summary: "share of frames lost at a fixed share of line rate",
        source: "RFC 1242 section 3.6",
        params: params![&TRAFFIC, &[LOAD.spec(), TRIAL_DURATION.spec()], &AFTER_TRIAL],
        figures: &[LOSS.shape()],
        tables: &[TABLE.shape()],
        needs: &[],
    };

    columns! {
        /// One frame size.
        struct LoadRow {
            frame_size: PacketSize,
            offered: u64 ["frames"],
            lost: u64 ["frames"],
        }
    }

    const TABLE: TableSpec<LoadRow> = TableSpec::new("half_load", "Loss at half the line rate");

    fn figure(pattern: &Pattern, loss_percent: Option<f64>) -> RankFigure {
        LOSS.of(&[("size", &pattern.size)], format!("Loss, {}", pattern.size_text()), loss_percent)
    }

    impl Method for HalfLoad {
        fn spec(&self) -> &'static TestSpec {
            &SPEC
        }

        fn plan(&self, params: &Params) -> Plan {
            Plan::by_size(params).trials(1, TRIAL_DURATION.seconds(params), 0.5).deviating(common_deviations(params))
        }

        fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
            TABLE.begin(outcome);
            let each = |bed: &mut dyn Testbed, pattern: &Pattern, outcome: &mut Outcome, _: u32| {
                bed.progress(&format!("half load, {}", pattern.size_text()));
                let rate_pps = pattern.limits(bed).line.pps() * LOAD.get(params).0 / 100.0;
                let (purpose, load) = (format!("half load {}", pattern.size), Load::Constant { rate_pps });
                let spec = pattern.trial(bed.ports(), purpose, load, TRIAL_DURATION.seconds(params))?;
                let result = bed.trial(&spec)?;
                let (frame_size, offered, lost) = (pattern.size.clone(), result.offered(), result.lost());
                TABLE.add(outcome, LoadRow { frame_size, offered, lost }, [result.trial], []);
                outcome.ranks.push(figure(pattern, percent_of(lost, offered)));
                bed.settle(PAUSE.get(params))
            };
            for_each_size(bed, params, outcome, or_spoilt(|pattern| vec![figure(pattern, None)], each))
        }
    }
    // guide: end
}

#[test]
fn the_test_of_the_guide_measures() {
    // Line rate of 64 bytes at 1 Gbit/s is 1,488,095 fps; the device forwards 300,000.
    let (mut bed, params) = (Fake::new(), params(&HalfLoad, false, &[size("64 1518")]));
    let mut outcome = Outcome::default();
    HalfLoad.run(&mut bed, &params, &mut outcome).unwrap();
    let plan = HalfLoad.plan(&params);
    assert_eq!((plan.trial_count(0).to_string(), bed.trials.len()), ("2 trials".to_owned(), 2));
    let lost_percent = 100.0 * (1.0 - 300_000.0 / (1_488_095.0 / 2.0));
    assert!((rank(&outcome, "half_load_64_loss_percent").unwrap() - lost_percent).abs() < 0.01);
    assert_eq!((rank(&outcome, "half_load_1518_loss_percent"), cell(&outcome, 1, "lost")), (Some(0.0), Some(0.0)));
}

#[test]
fn the_test_of_the_guide_says_what_it_did_not_measure() {
    let mut bed = Fake { unfit_above_pps: 100_000.0, ..Fake::new() };
    let mut outcome = Outcome::default();
    HalfLoad.run(&mut bed, &params(&HalfLoad, false, &[size("64")]), &mut outcome).unwrap_err();
    assert_eq!(unmeasured(&outcome)[0].0, "half_load_64_loss_percent");
}

#[test]
fn the_guide_shows_this_test() {
    let (guide, own) = (include_str!("../../../../docs/guides/write-a-test.md"), include_str!("write_a_test.rs"));
    let (_, shown) = own.split_once("// guide: begin\n").unwrap();
    let (shown, _) = shown.split_once("    // guide: end").unwrap();
    let shown: String = shown.lines().map(|line| format!("{}\n", line.strip_prefix("    ").unwrap_or(line))).collect();
    assert!(guide.contains(&format!("```rust\n{shown}```")), "docs/guides/write-a-test.md must contain:\n{shown}");
}
