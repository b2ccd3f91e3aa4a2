//! Criteria over rounds, about cells, and against a baseline.

use super::*;
use drophammer_model::figure::Doubt;

fn rank(value: Option<f64>, limited: bool) -> RankFigure {
    RankFigure {
        higher_is_better: true,
        tester_limited: limited,
        resolution: 0.01,
        ..RankFigure::new("rate", "Rate", "fps", value)
    }
}

/// A table with rows of (size, load, loss).
fn table(rows: &[(&str, f64, Cell)]) -> Table {
    let row = |(size, load, loss): &(&str, f64, Cell)| Row {
        cells: vec![Cell::Text((*size).into()), Cell::Number(*load), loss.clone()],
        ..Row::default()
    };
    Table {
        key: "loss".into(),
        title: "Loss".into(),
        columns: ["frame_size", "load_percent", "loss_percent"].map(|key| Column::new(key, key, "")).into(),
        rows: rows.iter().map(row).collect(),
    }
}

/// Stored records of rounds with these rates, each with the verdict of its own round.
fn rounds(expected: &Expectation, rates: &[f64]) -> Vec<TestRecord> {
    let outcome = |rate: &f64| Outcome { ranks: vec![rank(Some(*rate), false)], ..Outcome::default() };
    stored(expected, rates.iter().map(outcome))
}

fn stored(expected: &Expectation, outcomes: impl Iterator<Item = Outcome>) -> Vec<TestRecord> {
    let judged = |outcome: Outcome| {
        let verdicts = vec![verdict(expected, &[in_round(expected, &outcome, &TestStatus::Completed)])];
        Outcome { verdicts, ..outcome }
    };
    outcomes.zip(1..).map(|(outcome, round)| crate::made::test(round, judged(outcome))).collect()
}

/// The single verdict over all rounds.
fn over(records: &[TestRecord]) -> Verdict {
    let mut all = verdicts(&records.iter().collect::<Vec<_>>());
    assert_eq!(all.len(), 1);
    all.remove(0)
}

#[test]
fn figures_in_words_have_six_digits() {
    let words = [214_670.406, 99.999_97, 99.9, 7.0, 0.0, 0.000_123_456_789].map(shown);
    assert_eq!(words, ["214670", "100", "99.9", "7", "0", "0.000123457"]);
}

#[test]
fn criteria_are_judged_by_the_interval_of_all_rounds() {
    let with = |at_least, bound| {
        let expected = Expectation::new("rate", at_least, bound);
        over(&rounds(&expected, &[104.0, 99.0, 101.0, 106.0, 103.0, 102.0]))
    };
    let straddling = with(true, 100.0);
    assert_eq!(straddling.decision(), Decision::Undecided);
    assert_eq!(straddling.criterion, "rate >= 100");
    assert_eq!(straddling.found, "median 102.5, 99 to 106 in 6 rounds");
    assert_eq!(with(true, 99.0).decision(), Decision::Met);
    assert_eq!(with(true, 107.0).decision(), Decision::Missed);
    assert_eq!(with(false, 106.0).decision(), Decision::Met);
}

#[test]
fn what_must_not_happen_must_not_happen_once() {
    let with = |bound, rates: &[f64]| over(&rounds(&Expectation::new("rate", false, bound), rates)).decision();
    let once = [0.0, 0.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
    assert_eq!(with(0.0, &once), Decision::Missed);
    assert_eq!(with(0.0, &[0.0; 10]), Decision::Met);
    // Other bounds apply to the median.
    assert_eq!(with(1.0, &once), Decision::Met);
}

#[test]
fn a_limit_of_the_tester_proves_no_maximum() {
    let limited = |at_least, bound| {
        let outcome = Outcome { ranks: vec![rank(Some(200.0), true)], ..Outcome::default() };
        over(&stored(&Expectation::new("rate", at_least, bound), [outcome].into_iter()))
    };
    let open = limited(false, 300.0);
    assert_eq!((open.decision(), open.found.as_str()), (Decision::Undecided, "at least 200"));
    assert_eq!(limited(true, 100.0).decision(), Decision::Met);
}

#[test]
fn a_round_without_the_figure_counts() {
    let mut records = rounds(&Expectation::new("rate", true, 5.0), &[7.0; 6]);
    assert_eq!(over(&records).decision(), Decision::Met);
    // The DUT did not come up: this record has neither figures nor verdicts.
    records[3].status = TestStatus::Failed("it died".into());
    records[3].outcome = Outcome::default();
    let verdict = over(&records);
    assert_eq!(verdict.decision(), Decision::Undecided);
    assert_eq!(verdict.found, "median 7, 7 to 7 in 5 rounds, failed in 1 of 6 rounds");
    records[3].status = TestStatus::Unfit("busy".into());
    assert_eq!(over(&records).decision(), Decision::Undecided);
}

fn cells(text: &str, at_least: bool, bound: f64) -> Expectation {
    let cells: Cells = text.parse().unwrap();
    Expectation { cells: Some(cells.clone()), ..Expectation::new(cells.to_string(), at_least, bound) }
}

fn losses() -> Table {
    let loss = Cell::Number;
    table(&[
        ("64", 50.0, loss(0.0)),
        ("64", 100.0 - 1e-9, loss(0.2)),
        ("128", 50.0, loss(0.0)),
        ("128", 100.0, loss(0.1)),
        ("256", 50.0, Cell::None),
        ("512", 50.0, Cell::Text("n/a".into())),
    ])
}

fn judged(text: &str, at_least: bool, bound: f64, table: Table) -> Verdict {
    let outcome = Outcome { tables: vec![table], ..Outcome::default() };
    over(&stored(&cells(text, at_least, bound), [outcome].into_iter()))
}

#[test]
fn every_selected_cell_must_meet_the_bound() {
    for (text, bound, decision, found) in [
        ("loss[frame_size=64, load_percent=100].loss_percent", 0.2, Decision::Met, "0.2"),
        ("loss[frame_size=64, load_percent=100].loss_percent", 0.1, Decision::Missed, "0.2"),
        ("loss[frame_size=64].loss_percent", 0.1, Decision::Missed, "0.2, the worst of 2 rows"),
        ("loss[load_percent=100].loss_percent", 0.2, Decision::Met, "0.2, the worst of 2 rows"),
        ("loss[load_percent=100 %].loss_percent", 0.15, Decision::Missed, "0.2, the worst of 2 rows"),
        ("loss[frame_size=256].loss_percent", 0.1, Decision::Undecided, "not known, a cell is empty"),
        ("loss[frame_size=512].loss_percent", 0.1, Decision::Missed, "`n/a` is not a number"),
    ] {
        let verdict = judged(text, false, bound, losses());
        assert_eq!((verdict.decision(), verdict.found.as_str()), (decision, found), "{text} <= {bound}");
        assert_eq!(verdict.criterion, format!("{} <= {bound}", text.parse::<Cells>().unwrap()));
    }
    // With a minimum the smallest cell is the worst.
    assert_eq!(judged("loss[load_percent=100].loss_percent", true, 0.15, losses()).found, "0.1, the worst of 2 rows");
    // A cell above the bound misses it, whatever the value of the empty cell.
    let mut table = losses();
    table.rows.truncate(5);
    let all = judged("loss.loss_percent", false, 0.1, table.clone());
    assert_eq!(
        (all.decision(), all.found.as_str()),
        (Decision::Missed, "at least 0.2, the worst of 5 rows, a cell is empty")
    );
    assert_eq!(judged("loss.loss_percent", false, 0.3, table).decision(), Decision::Undecided);
}

#[test]
fn a_selection_of_nothing_is_not_met_and_says_what_there_is() {
    for (text, found) in [
        ("lost.loss_percent", "there is no table `lost`; the test has loss"),
        ("loss.loss", "the table `loss` has no column `loss`; it has frame_size, load_percent, loss_percent"),
        ("loss[size=64].loss_percent", "the table `loss` has no column `size`; it has"),
        ("loss[frame_size=65].loss_percent", "no row has frame_size=65, only 64, 128, 256, 512"),
        ("loss[load_percent=100, frame_size=256].loss_percent", "no row has frame_size=256, only 64, 128"),
    ] {
        for at_least in [true, false] {
            let verdict = judged(text, at_least, 0.0, losses());
            assert_eq!(verdict.decision(), Decision::Missed, "{text}");
            assert!(verdict.found.starts_with(found), "{}", verdict.found);
        }
    }
    let empty = judged("loss.loss_percent", false, 5.0, table(&[]));
    assert_eq!((empty.decision(), empty.found.as_str()), (Decision::Missed, "the table `loss` has no rows"));
    let long: Vec<_> = (0..20).map(|load| ("64", f64::from(load), Cell::Count(0))).collect();
    let listed = judged("loss[load_percent=33].loss_percent", false, 5.0, table(&long));
    assert!(listed.found.ends_with("9, 10, 11 and 8 more"), "{}", listed.found);
}

#[test]
fn a_test_that_did_not_end_proves_nothing_about_missing_cells() {
    let expected = cells("loss[frame_size=64].loss_percent", false, 0.3);
    let decided = |tables: Vec<Table>, status: TestStatus, bound| {
        let outcome = Outcome { tables, ..Outcome::default() };
        let expected = Expectation { bound, ..expected.clone() };
        let verdict = verdict(&expected, &[in_round(&expected, &outcome, &status)]);
        (verdict.decision(), verdict.found)
    };
    assert_eq!(decided(vec![], TestStatus::Interrupted, 0.3), (Decision::Undecided, "not measured".into()));
    assert_eq!(decided(vec![], TestStatus::Unfit("busy".into()), 0.3).0, Decision::Undecided);
    assert_eq!(decided(vec![losses()], TestStatus::Interrupted, 0.3).0, Decision::Undecided);
    let missed = decided(vec![losses()], TestStatus::Interrupted, 0.1);
    assert_eq!(missed, (Decision::Missed, "at least 0.2, the worst of 2 rows, some rows are missing".into()));
    assert_eq!(decided(vec![losses()], TestStatus::Failed("it died".into()), 0.3), (Decision::Missed, "failed".into()));
}

#[test]
fn an_uncertain_row_proves_only_what_it_shows() {
    let marked = |mark: &str, at_least, bound| {
        let mut table = losses();
        table.rows[1].marks.push(mark.into());
        judged("loss[frame_size=64, load_percent=100].loss_percent", at_least, bound, table).decision()
    };
    assert_eq!(marked("tester-limited: 5 of 9", false, 0.3), Decision::Undecided);
    assert_eq!(marked("tester-limited", false, 0.1), Decision::Missed);
    assert_eq!(marked("tester-limited", true, 0.2), Decision::Met);
    assert_eq!(marked("NDR(0) refuted by trial 7", true, 0.1), Decision::Undecided);
    assert_eq!(marked("irregular", false, 0.3), Decision::Met);
    assert_eq!(marked("limited by max_load", false, 0.3), Decision::Undecided);
    // The DUT may have lost less.
    assert_eq!(marked("doubtful: bursts of the tester", false, 0.1), Decision::Undecided);
    assert_eq!(marked("doubtful: bursts of the tester", false, 0.3), Decision::Met);
}

#[test]
fn what_a_marked_cell_proves_depends_on_its_column() {
    let found = |column: &str, mark: &str| {
        let row = Row { cells: vec![Cell::Number(6.0)], marks: vec![mark.into()], ..Row::default() };
        of_cell(&row, 0, column).unwrap().0
    };
    // The tester took most of the time of a step, so the DUT takes at most this time.
    assert_eq!(found("step_s", "tester-limited: the tester alone took 4 s"), Figure::at_most(6.0));
    assert_eq!(found("throughput_pps", "tester-limited"), Figure::at_least(6.0));
    assert_eq!(found("implied_buffer_s", "tester-limited: the longest burst"), Figure::at_least(6.0));
    assert_eq!(found("circling_at_least_ms", "tester-limited"), Figure::at_least(6.0));
    assert_eq!(found("throughput_pps", "limited by max_load"), Figure::at_least(6.0));
    assert_eq!(found("throughput_pps", "doubtful: an idle processor"), Figure::at_least(6.0));
    assert_eq!(found("received", "doubtful: an idle processor"), Figure::unknown());
}

#[test]
fn a_doubtful_figure_proves_only_what_a_better_one_would_too() {
    let doubt = Doubt { round: 1, trial: 3, text: "41 % were lost while the processor was idle".into() };
    let judged = |value, bound| {
        let rank = RankFigure { doubts: vec![doubt.clone()], ..rank(value, false) };
        let found = of_rank(&rank);
        assert!(found.why.as_ref().is_some_and(|why| why.starts_with("doubtful: 41 %")), "{found:?}");
        judge_rounds(&[found.figure], true, bound)
    };
    assert_eq!(judged(Some(90.0), 100.0), Decision::Undecided);
    assert_eq!(judged(Some(110.0), 100.0), Decision::Met);
    assert_eq!(judged(None, 100.0), Decision::Undecided);
}

#[test]
fn cells_are_judged_by_the_worst_of_each_round() {
    let outcome = |worst: f64| {
        let rows = [("64", 50.0, Cell::Count(0)), ("64", 100.0, Cell::Number(worst))];
        Outcome { tables: vec![table(&rows)], ..Outcome::default() }
    };
    let losses = [0.1, 0.2, 0.1, 0.3, 0.1, 0.2];
    let with = |bound| over(&stored(&cells("loss.loss_percent", false, bound), losses.into_iter().map(outcome)));
    assert_eq!(with(0.3).decision(), Decision::Met);
    assert_eq!(with(0.2).decision(), Decision::Undecided);
    assert_eq!(with(0.05).decision(), Decision::Missed);
    assert_eq!(with(0.3).found, "median 0.15, 0.1 to 0.3 in 6 rounds, the worst of 2 rows");
    // A round without the selected rows counts as failed.
    let gone = |round: usize| if round == 2 { Outcome::default() } else { outcome(0.1) };
    let verdict = over(&stored(&cells("loss.loss_percent", false, 0.3), (0..6).map(gone)));
    assert_eq!(verdict.decision(), Decision::Undecided);
    let found = "failed in 1 of 6 rounds, there is no table `loss`; the test has none";
    assert!(verdict.found.ends_with(found), "{}", verdict.found);
}

fn share(at_least: bool, percent: f64, baseline: &[Figure]) -> Expectation {
    let summary = summarize(baseline).unwrap();
    let baseline = BaselineFigure::of(summary.rounds, summary.median, summary.interval);
    Expectation { baseline: Some(baseline), ..Expectation::new("rate", at_least, percent) }
}

fn exact(values: &[f64]) -> Vec<Figure> {
    values.iter().copied().map(Figure::exactly).collect()
}

#[test]
fn a_share_of_one_round_is_a_ratio_of_two_numbers() {
    let with = |at_least, percent, rate| over(&rounds(&share(at_least, percent, &exact(&[200.0])), &[rate]));
    let met = with(true, 95.0, 190.0);
    assert_eq!((met.decision(), met.criterion.as_str()), (Decision::Met, "rate >= 95 % of baseline"));
    assert_eq!(met.found, "190; 95 % of 200 in the baseline");
    assert_eq!(with(true, 95.0, 189.0).decision(), Decision::Missed);
    assert_eq!(with(false, 110.0, 220.0).decision(), Decision::Met);
    assert_eq!(with(false, 110.0, 221.0).decision(), Decision::Missed);
}

#[test]
fn a_share_must_hold_for_the_whole_interval_of_the_ratio() {
    let baseline = exact(&[100.0, 101.0, 99.0, 102.0, 98.0, 100.0]);
    let with = |percent, rates: &[f64]| over(&rounds(&share(true, percent, &baseline), rates));
    let alike = [100.0, 101.0, 99.0, 102.0, 98.0, 100.0];
    // 98 / 102 to 102 / 98.
    assert_eq!(with(96.0, &alike).decision(), Decision::Met);
    assert_eq!(with(97.0, &alike).decision(), Decision::Undecided);
    assert_eq!(with(105.0, &alike).decision(), Decision::Missed);
    assert_eq!(
        with(96.0, &alike).found,
        "median 100, 98 to 102 in 6 rounds; 96.0784 % to 104.082 % of median 100, 98 to 102 in 6 rounds in the baseline"
    );
    // If this run has only one round, the interval of the baseline still counts.
    assert_eq!(with(95.0, &[96.0]).decision(), Decision::Undecided);
    assert_eq!(with(95.0, &[97.0]).decision(), Decision::Met);
    assert_eq!(with(95.0, &[93.0]).decision(), Decision::Missed);
    // A round in which the DUT failed has the worst possible figure.
    let mut failed = rounds(&share(true, 90.0, &baseline), &alike);
    failed[0].status = TestStatus::Failed("it died".into());
    failed[0].outcome.ranks.clear();
    assert_eq!(over(&failed).decision(), Decision::Undecided);
}

#[test]
fn a_bound_in_the_baseline_decides_only_what_it_proves() {
    let with = |at_least, percent, baseline, rate| over(&rounds(&share(at_least, percent, &[baseline]), &[rate]));
    let limited = Figure::at_least(200.0);
    let open = with(true, 95.0, limited, 500.0);
    let found = "500; at most 250 % of at least 200 in the baseline";
    assert_eq!((open.decision(), open.found.as_str()), (Decision::Undecided, found));
    assert_eq!(with(true, 95.0, limited, 100.0).decision(), Decision::Missed);
    assert_eq!(with(false, 110.0, limited, 210.0).decision(), Decision::Met);
    assert_eq!(with(false, 110.0, limited, 300.0).decision(), Decision::Undecided);
    let short = Figure::at_most(10.0);
    assert_eq!(with(false, 110.0, short, 5.0).decision(), Decision::Undecided);
    assert_eq!(with(false, 110.0, short, 12.0).decision(), Decision::Missed);
    let unknown = with(true, 95.0, Figure::unknown(), 500.0);
    assert_eq!((unknown.decision(), unknown.found.as_str()), (Decision::Undecided, "500; not known in the baseline"));
}

#[test]
fn a_share_of_nothing_is_nothing() {
    let with = |at_least, rate| over(&rounds(&share(at_least, 110.0, &exact(&[0.0])), &[rate]));
    assert_eq!(with(false, 0.0).decision(), Decision::Met);
    let more = with(false, 0.001);
    assert_eq!((more.decision(), more.found.as_str()), (Decision::Missed, "0.001; 0 in the baseline"));
    assert_eq!(with(true, 0.0).decision(), Decision::Met);
}

#[test]
fn different_figures_are_not_compared() {
    let plain = share(true, 50.0, &exact(&[200.0]));
    let changed = |change: fn(&mut BaselineFigure)| {
        let mut expected = plain.clone();
        change(expected.baseline.as_mut().unwrap());
        let outcome = |rate: f64| Outcome {
            ranks: vec![RankFigure { load_pps: Some(1_000.0), ..rank(Some(rate), false) }],
            ..Outcome::default()
        };
        let verdict = over(&stored(&expected, [outcome(200.0)].into_iter()));
        (verdict.decision(), verdict.found)
    };
    assert_eq!(changed(|b| b.dut = "old".into()), (Decision::Met, "200; 100 % of 200 in the baseline on old".into()));
    assert_eq!(changed(|b| (b.title, b.load_pps) = ("Rate (fps)".into(), Some(1_040.0))).0, Decision::Met);
    let unread = changed(|b| *b = BaselineFigure::default());
    assert_eq!(unread, (Decision::Undecided, "200; no baseline was read".into()));
    let other = changed(|b| b.title = "Rate of 5 routes (fps)".into());
    assert_eq!(other.0, Decision::Undecided);
    assert!(other.1.contains("a different figure of this name: Rate of 5 routes"), "{}", other.1);
    let load = changed(|b| b.load_pps = Some(2_000.0));
    assert_eq!(load.0, Decision::Undecided);
    assert!(load.1.contains("at another load: 2,000 fps, not 1,000 fps"), "{}", load.1);
}

#[test]
fn a_stored_verdict_needs_no_baseline() {
    let expected = share(true, 96.0, &exact(&[100.0, 101.0, 99.0, 102.0, 98.0, 100.0]));
    let records = rounds(&expected, &[100.0, 101.0, 99.0, 102.0, 98.0, 100.0]);
    let again: Vec<TestRecord> =
        records.iter().map(|r| serde_json::from_str(&serde_json::to_string(r).unwrap()).unwrap()).collect();
    assert_eq!(over(&again), over(&records));
}
