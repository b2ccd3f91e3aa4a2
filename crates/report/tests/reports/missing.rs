//! Figures without a value, and figures below their resolution, in the summary, the badge and the exit code.

use crate::synthetic::{in_rounds, report, run};
use drophammer_model::figure::Scale;
use drophammer_model::outcome::{Blame, Missing, RankFigure};
use drophammer_report::ending::Ending;
use drophammer_report::{ending, summary_text};
use drophammer_store::Run;

/// A run of six rounds without failures, with `change` applied to the first figure of the first DUT's first test in some
/// rounds.
fn changed(rounds: &[u32], change: impl Fn(&mut RankFigure)) -> Run {
    let mut run = in_rounds(&run(2), 6);
    run.tests.retain(|test| test.test != "route_flap");
    run.started.tests.retain(|(test, _)| test != "route_flap");
    run.tests.iter_mut().for_each(|test| test.outcome.verdicts.clear());
    let first = run.started.tests[0].0.clone();
    let name = run.started.duts[0].clone();
    for test in run.tests.iter_mut().filter(|t| t.dut == name && t.test == first && rounds.contains(&t.round)) {
        change(&mut test.outcome.ranks[0]);
    }
    run
}

fn without(by: Blame) -> impl Fn(&mut RankFigure) {
    move |figure| {
        figure.value = None;
        figure.missing = Some(Missing { why: "host busy: `cc1`".into(), by });
    }
}

#[test]
fn a_figure_that_no_round_has_is_in_the_summary_with_its_reason() {
    let all = [1, 2, 3, 4, 5, 6];
    let cases = [
        (Blame::Spoilt, Ending::Unmeasured(1), "not measured: host busy: `cc1`"),
        (Blame::Beyond, Ending::Good, "not measured: host busy: `cc1`"),
        (Blame::Dut, Ending::Good, "no value: host busy: `cc1`"),
        (Blame::Nothing, Ending::Good, "nothing to measure: host busy: `cc1`"),
    ];
    for (by, expected, said) in cases {
        let run = changed(&all, without(by));
        assert_eq!(ending(&run), expected, "{by:?}");
        let files = report(&run);
        let summary = summary_text(&run, false).replace('\n', " ");
        assert!(summary.split_whitespace().collect::<Vec<_>>().join(" ").contains(said), "{by:?}: {summary}");
        assert!(files["report.html"].contains(said) && files["report.md"].contains(&said.replace('`', "\\`")));
        let badge = files["report.html"].contains("1 figure could not be measured");
        assert_eq!(badge, by == Blame::Spoilt);
        let json: serde_json::Value = serde_json::from_str(&files["report.json"]).unwrap();
        assert_eq!(json["ranking"]["figures"][0]["duts"][0]["missing"], said);
        // A router that is as fast as the line is not a problem.
        let problems = json["problems"].as_array().unwrap().iter().filter(|line| line.to_string().contains("cc1"));
        assert_eq!(problems.count(), usize::from(by != Blame::Nothing));
    }
    // Other rounds have the value.
    let some = changed(&[2], without(Blame::Spoilt));
    assert_eq!(ending(&some), Ending::Good);
    assert!(!summary_text(&some, false).contains("not measured"));
}

#[test]
fn a_time_below_its_resolution_is_less_than_the_resolution() {
    let time = |figure: &mut RankFigure| {
        figure.value = Some(0.0);
        (figure.unit, figure.scale, figure.resolution) = ("ms".into(), Scale::Difference, 100.0);
    };
    let text = summary_text(&changed(&[1, 2, 3, 4, 5, 6], time), false);
    assert!(text.contains("< 100"), "{text}");
    let loss = |figure: &mut RankFigure| {
        time(figure);
        figure.unit = "%".into();
    };
    assert!(!summary_text(&changed(&[1, 2, 3, 4, 5, 6], loss), false).contains("< 100"), "no loss is no loss");
}
