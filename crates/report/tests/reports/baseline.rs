//! Bounds that are shares of an earlier run's figures: which figure is used, which suites are refused, and what verdicts say.

use crate::synthetic::{in_rounds, report};
use drophammer_judge::criteria::{in_round, verdict};
use drophammer_model::capabilities::Capabilities;
use drophammer_model::figure::Decision;
use drophammer_model::outcome::Verdict;
use drophammer_model::record::TestStatus;
use drophammer_model::registry::{FigureShape, KindSpec, ParamKind, ParamSpec, Registry, TestSpec};
use drophammer_model::suite::{Expectation, Suite};
use drophammer_report::baseline::resolve;
use drophammer_report::{Criteria, criteria};
use drophammer_store::Run;
use drophammer_suite::read::{Overrides, read};

const NONE: TestSpec = TestSpec {
    name: "",
    title: "",
    summary: "A test.",
    source: "RFC 2544",
    params: &[ParamSpec::new("trial_duration", ParamKind::Duration, "1 s", "60 s", "length of a trial")],
    figures: &[],
    tables: &[],
    needs: &[],
};
static THROUGHPUT: TestSpec = TestSpec {
    name: "throughput",
    figures: &[
        FigureShape { key: "throughput_64_pps", help: "A figure." },
        FigureShape { key: "throughput_128_pps", help: "A figure." },
    ],
    ..NONE
};
static LATENCY: TestSpec =
    TestSpec { name: "latency", figures: &[FigureShape { key: "latency_64_p99_us", help: "A figure." }], ..NONE };
static RESET: TestSpec =
    TestSpec { name: "reset", figures: &[FigureShape { key: "reset_s", help: "A figure." }], ..NONE };
static KIND: KindSpec =
    KindSpec { name: "frr", summary: "A router.", capabilities: Capabilities::ROUTER, needs: &[], params: &[] };

/// A suite of DUTs with these names.
fn suite(duts: &[&str], tests: &str) -> Suite {
    let duts: Vec<String> = duts.iter().map(|name| format!("{{name: {name}, kind: frr}}")).collect();
    let text = format!(
        "suite: s\nduts: [{}]\nports: [{{name: p1, speed: 1 Gbit/s}}, {{name: p2, speed: 1 Gbit/s}}]\ntests:\n{tests}",
        duts.join(", ")
    );
    let registry = Registry { tests: &[&THROUGHPUT, &LATENCY, &RESET], kinds: &[&KIND] };
    read(&text, "s.yaml", &registry, &Overrides::default()).unwrap_or_else(|e| panic!("{e}"))
}

fn old() -> Run {
    in_rounds(&crate::synthetic::run(2), 6)
}

/// A later run with figures `factor` times as high, and the verdicts that the run itself stores.
fn later(suite: &Suite, factor: f64) -> Run {
    let mut run = old();
    run.started.baseline = suite.baseline.clone();
    for record in &mut run.tests {
        record.outcome.ranks.iter_mut().for_each(|rank| rank.value = rank.value.map(|value| value * factor));
        let test = suite.tests.iter().find(|test| test.test == record.test);
        let of_dut = |expected: &&Expectation| expected.dut.as_ref().is_none_or(|dut| *dut == record.dut);
        let own = test.iter().flat_map(|test| &test.expect).filter(of_dut);
        let verdicts = own.map(|expected| verdict(expected, &[in_round(expected, &record.outcome, &record.status)]));
        record.outcome.verdicts = verdicts.collect();
    }
    run
}

/// The verdicts in the report of a run.
fn verdicts(run: &Run) -> Vec<Verdict> {
    drophammer_report::combined(run).tests.into_iter().flat_map(|test| test.outcome.verdicts).collect()
}

const SHARE: &str = "  - throughput: {expect: {throughput_64_pps: \">= 95 % of baseline\"}}\n";

#[test]
fn each_dut_is_held_against_itself_with_the_interval_of_both_runs() {
    let mut suite = suite(&["linux", "frr"], SHARE);
    resolve(&mut suite, &old()).unwrap();
    let duts: Vec<_> = suite.tests[0].expect.iter().map(|expected| expected.dut.as_deref().unwrap()).collect();
    assert_eq!(duts, ["linux", "frr"]);
    let medians: Vec<f64> =
        suite.tests[0].expect.iter().map(|expected| expected.baseline.as_ref().unwrap().median().low).collect();
    for (dut, median) in medians.iter().enumerate() {
        let rate = crate::synthetic::rate(dut, 64);
        assert!((median / rate - 1.0).abs() < 0.005, "{median} {rate}");
    }
    let decided =
        |factor| -> Vec<Decision> { verdicts(&later(&suite, factor)).iter().map(Verdict::decision).collect() };
    assert_eq!(decided(1.0), [Decision::Met; 2]);
    // The rounds of each run differ by up to 1 %.
    assert_eq!(decided(0.952), [Decision::Undecided; 2]);
    assert_eq!(decided(0.9), [Decision::Missed; 2]);
    assert_eq!(criteria(&later(&suite, 0.9)), Criteria { met: 0, missed: 2, undecided: 0 });
}

#[test]
fn verdicts_name_the_baseline_and_what_was_not_the_same_there() {
    let mut first = old();
    first.started.environment.kernel = "6.6.0".into();
    first.duts[1].version = "frr 9.1".into();
    first.duts[1].ports[0].backend = "af_xdp".into();
    first.ended = None;
    let mut suite = suite(&["linux", "frr"], SHARE);
    resolve(&mut suite, &first).unwrap();
    let found: Vec<String> = verdicts(&later(&suite, 1.0)).into_iter().map(|verdict| verdict.found).collect();
    for text in &found {
        for part in [
            " % of median ",
            "in 6 rounds in the baseline (baseline: quick-look-20261121-034455 of 2026-11-21T03:44:55Z, cut off; ",
            "other conditions: sizes: [64,128,256,512,1024,1280,1518] there, nothing here, Kernel: 6.6.0 there, 6.12.0 here",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
    assert!(!found[0].contains("version"), "{}", found[0]);
    assert!(found[1].contains("version: frr 9.1 there, frr 10.3 here, port p1: veth-p1, af_xdp, "), "{}", found[1]);
    // All formats show the verdict's text, and the record of the start contains the rest.
    let files = report(&later(&suite, 0.9));
    assert!(
        files["junit.xml"].contains("throughput_64_pps &gt;= 95 % of baseline; found median"),
        "{}",
        files["junit.xml"]
    );
    for name in ["report.html", "report.md", "report.json"] {
        assert!(files[name].contains("6.6.0 there, 6.12.0 here"), "{name}");
    }
    let json: serde_json::Value = serde_json::from_str(&files["report.json"]).unwrap();
    assert_eq!(json["started"]["baseline"]["state"], "cut off");
}

#[test]
fn runs_alike_have_no_conditions_to_name() {
    let mut suite = suite(&["linux"], SHARE);
    let mut first = old();
    let parameters = suite.tests[0].params.to_json();
    first.tests.iter_mut().for_each(|test| test.parameters = parameters.clone());
    resolve(&mut suite, &first).unwrap();
    let found = verdicts(&later(&suite, 1.0))[0].found.clone();
    assert!(
        found.ends_with("in the baseline (baseline: quick-look-20261121-034455 of 2026-11-21T03:44:55Z)"),
        "{found}"
    );
}

#[test]
fn cells_and_bounds_for_one_dut_have_baselines_too() {
    let tests = "  - throughput:\n      expect:\n        \"throughput[frame_bytes=64].throughput_pps\": {frr: \">= 100 % of baseline\"}\n        \
                 throughput_64_pps: \">= 1\"\n  - latency: {expect: {latency_64_p99_us: {linux: \"<= 102 % of baseline\"}}}\n";
    let mut suite = suite(&["linux", "frr"], tests);
    resolve(&mut suite, &old()).unwrap();
    let run = later(&suite, 1.0);
    let all = verdicts(&run);
    assert!(all.iter().all(|verdict| verdict.pass), "{all:#?}");
    assert_eq!(all.len(), 4, "a bound in numbers is for both DUTs");
    // A DUT that does not run needs no figure.
    let mut one = suite.clone();
    one.duts.remove(0);
    one.tests[1].expect[0].baseline = Some(Default::default());
    resolve(&mut one, &old()).unwrap();
}

#[test]
fn the_only_dut_may_have_another_name() {
    let mut suite = suite(&["frr-10"], SHARE);
    let first = in_rounds(&crate::synthetic::run(1), 6);
    resolve(&mut suite, &first).unwrap();
    let expected = &suite.tests[0].expect[0];
    assert_eq!((expected.dut.as_deref(), expected.baseline.as_ref().unwrap().dut.as_str()), (Some("frr-10"), "linux"));
    let why = resolve(&mut self::suite(&["frr-10"], SHARE), &old()).unwrap_err();
    assert!(why[0].contains("no router `frr-10`; it has linux, frr; give it the same name"), "{why:?}");
}

#[test]
fn what_the_baseline_does_not_have_is_said_at_once() {
    let refused = |tests: &str, change: fn(&mut Run)| {
        let mut first = old();
        change(&mut first);
        let mut suite = suite(&["linux", "frr"], tests);
        let why = resolve(&mut suite, &first).unwrap_err();
        assert_eq!(suite.baseline, None);
        why
    };
    let none = refused("  - throughput: {expect: {throughput_128_pps: \">= 95 % of baseline\"}}\n", |_| {});
    assert_eq!(none.len(), 2, "one for each DUT");
    assert!(none[0].contains("no `throughput_128_pps` of the test `throughput` on `linux`"), "{none:?}");
    assert!(
        none[0].contains("the test has the figures throughput_64_pps, throughput_1518_pps; choose another run"),
        "{none:?}"
    );
    let test = refused("  - reset: {expect: {reset_s: \"<= 105 % of baseline\"}}\n", |_| {});
    assert!(test[0].contains("it does not have this test; it has throughput, latency, frame_loss_rate"), "{test:?}");
    let twice = refused(&format!("  - throughput\n{SHARE}"), |_| {});
    assert!(twice[0].contains("contains it fewer times than the suite"), "{twice:?}");
    let cells = "  - throughput: {expect: {\"throughput[frame_bytes=65].throughput_pps\": \">= 95 % of baseline\"}}\n";
    let row = refused(cells, |_| {});
    assert!(row[0].contains("no row has frame_bytes=65, only 64, 128"), "{row:?}");
    let failed = refused(SHARE, |run| {
        for test in &mut run.tests {
            test.status = TestStatus::Failed("it died".into());
            test.outcome.ranks.clear();
        }
    });
    assert!(failed[0].contains("no round measured it; the test has the figures none"), "{failed:?}");
    let negative = refused(SHARE, |run| {
        run.tests.iter_mut().flat_map(|test| &mut test.outcome.ranks).for_each(|rank| rank.value = Some(-1.0));
    });
    assert!(negative[0].contains("is negative in the baseline"), "{negative:?}");
}

#[test]
fn rounds_that_failed_leave_the_baseline_open() {
    let mut first = old();
    let failing = first.tests.iter_mut().filter(|test| test.dut == "linux" && test.round == 2);
    for test in failing {
        test.status = TestStatus::Failed("it died".into());
        test.outcome.ranks.clear();
    }
    let mut suite = suite(&["linux"], SHARE);
    resolve(&mut suite, &first).unwrap();
    assert_eq!(suite.tests[0].expect[0].baseline.as_ref().unwrap().interval, (None, None));
    assert_eq!(verdicts(&later(&suite, 1.0))[0].decision(), Decision::Undecided);
}
