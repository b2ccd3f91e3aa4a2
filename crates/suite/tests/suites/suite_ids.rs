//! Ids of tests that occur more than once in a suite, and their use on the command line.
use crate::common::REGISTRY;
use drophammer_model::suite::Suite;
use drophammer_suite::SuiteErrors;
use drophammer_suite::read::{Overrides, read};

const TWICE: &str = "\
suite: twice
duts: [{name: a, kind: bird}, {name: b, kind: frr}]
ports: [{name: p1, speed: 1 Gbit/s}, {name: p2, speed: 1 Gbit/s}]
tests:
  - throughput: {id: small, frame_sizes: [64]}
  - latency
  - throughput: {id: 9000, frame_sizes: [1518]}
  - throughput
";

fn with(tests: &[&str], set: &[&str]) -> Result<Suite, SuiteErrors> {
    let overrides = Overrides {
        tests: tests.iter().map(ToString::to_string).collect(),
        set: set.iter().map(|text| text.parse().unwrap()).collect(),
        ..Overrides::default()
    };
    read(TWICE, "twice.yaml", &REGISTRY, &overrides)
}

fn sizes(suite: &Suite) -> Vec<String> {
    let of_test = |params: &drophammer_model::suite::Params| {
        let sizes = params.sizes("frame_sizes").unwrap();
        sizes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    suite.tests.iter().map(|test| format!("{}: {}", test.label(), of_test(&test.params))).collect()
}

#[test]
fn ids_are_read_and_tests_without_one_have_none() {
    let suite = with(&[], &[]).unwrap_or_else(|e| panic!("{e}"));
    let ids: Vec<_> = suite.tests.iter().map(|test| test.id.as_deref()).collect();
    assert_eq!(ids, [Some("small"), None, Some("9000"), None]);
    assert!(suite.tests.iter().all(|test| !test.params.0.contains_key("id")), "an id is not a parameter");
}

#[test]
fn the_command_line_selects_by_id_and_by_name() {
    let labels = |tests: &[&str]| {
        let suite = with(tests, &[]).unwrap_or_else(|e| panic!("{e}"));
        suite.tests.iter().map(|test| test.label()).collect::<Vec<_>>()
    };
    assert_eq!(labels(&["9000"]), ["throughput (9000)"]);
    assert_eq!(labels(&["throughput"]), ["throughput (small)", "throughput (9000)", "throughput"]);
    assert_eq!(labels(&["latency", "small"]), ["throughput (small)", "latency"]);
    let errors = with(&["smal"], &[]).unwrap_err();
    assert_eq!((errors.errors.len(), errors.errors[0].line), (1, 4), "{errors}");
    assert!(errors.errors[0].message.contains("`--test smal`: this suite has no such test"), "{errors}");
    let help = "did you mean `small`? known: `throughput`, `small`, `latency` and `9000`";
    assert_eq!(errors.errors[0].help, help);
}

#[test]
fn what_a_test_needs_is_asked_only_where_it_runs() {
    let text = TWICE.replace("  - latency\n", "  - routes: {id: table}\n");
    let read = |tests: &[&str]| {
        let tests = tests.iter().map(ToString::to_string).collect();
        read(&text, "twice.yaml", &REGISTRY, &Overrides { tests, ..Overrides::default() })
    };
    assert!(read(&["table"]).unwrap_err().to_string().contains("the suite has no `bgp:`"));
    assert_eq!(read(&["small", "throughput"]).unwrap_or_else(|e| panic!("{e}")).tests.len(), 3);
}

#[test]
fn a_selection_that_runs_nothing_is_refused() {
    let text = TWICE.replace("{id: small, ", "{id: small, duts: [b], ");
    let read = |dut: &str, tests: &[&str]| {
        let tests = tests.iter().map(ToString::to_string).collect();
        read(&text, "twice.yaml", &REGISTRY, &Overrides { duts: vec![dut.into()], tests, ..Overrides::default() })
    };
    let errors = read("a", &["small"]).unwrap_err();
    let [error] = &errors.errors[..] else { panic!("{errors}") };
    assert_eq!((error.line, error.message.as_str()), (4, "no test of this selection runs on `a`"));
    assert_eq!(error.help, "select a DUT that these tests have in `duts`: `b`");
    let good: [(&str, &[&str]); 3] = [("b", &["small"]), ("a", &["small", "latency"]), ("a", &[])];
    for (dut, tests) in good {
        assert!(read(dut, tests).is_ok(), "{dut} {tests:?}");
    }
}

#[test]
fn settings_of_an_id_change_one_test_and_those_of_a_name_all() {
    let suite = with(&[], &["9000.frame_sizes=[256]"]).unwrap_or_else(|e| panic!("{e}"));
    let expected =
        ["throughput (small): 64", "latency: 64 512 1518", "throughput (9000): 256", "throughput: 64 512 1518"];
    assert_eq!(sizes(&suite), expected);
    let suite =
        with(&[], &["throughput.frame_sizes=[128]", "small.frame_sizes=[70]"]).unwrap_or_else(|e| panic!("{e}"));
    let expected = ["throughput (small): 70", "latency: 64 512 1518", "throughput (9000): 128", "throughput: 128"];
    assert_eq!(sizes(&suite), expected);
    let errors = with(&[], &["smal.frame_sizes=[70]"]).unwrap_err();
    assert!(errors.errors[0].help.contains("did you mean `small`?"), "{errors}");
    // An id that the command line sets obeys the same rules as one in the suite.
    let errors = with(&[], &["throughput.id=x"]).unwrap_err();
    assert!(errors.errors[0].message.contains("two tests `throughput` are called `x`"), "{errors}");
    assert_eq!(with(&["x"], &["latency.id=x"]).unwrap_or_else(|e| panic!("{e}")).tests[0].test, "latency");
}
