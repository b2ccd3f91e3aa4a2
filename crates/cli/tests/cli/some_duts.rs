//! Tests that the suite runs on some of its DUTs.

use crate::common::{kind_of, records, run_suite, suite, text};

#[test]
fn progress_and_report_leave_out_duts_on_which_a_test_is_not_run() {
    let dir = tempfile::tempdir().unwrap();
    let duts =
        ["a", "b", "c"].map(|name| format!("  - {{name: {name}, kind: reference, capacity: 5 kfps}}\n")).concat();
    let tests = "  - frame_loss_rate: {duts: [b]}\n  - throughput: {pdr: false}\n";
    let suite = suite(dir.path(), &duts, tests);
    let out = dir.path().join("out");
    let ran = run_suite(&suite, &out, &["--rounds", "1", "--plain"]);
    let (said, progress) = (text(&ran.stdout), text(&ran.stderr));
    assert_eq!(ran.status.code(), Some(0), "{said}{progress}");
    let steps: Vec<&str> =
        progress.lines().filter_map(|line| line.strip_prefix('[')?.split_once(']')).map(|(n, _)| n).collect();
    assert_eq!(steps, ["1/4", "2/4", "3/4", "4/4"], "{progress}");
    // There are no problems, and no column is about a DUT on which a test is not run.
    assert!(!said.contains('!') && !said.contains("not measured") && !said.contains("skipped"), "{said}");
    let records = records(&out);
    let status = |dut: &str, test: &str| {
        let of =
            |record: &&serde_json::Value| kind_of(record) == "test" && record["dut"] == dut && record["test"] == test;
        records.iter().find(of).map(|record| record["status"]["status"].as_str().unwrap().to_owned())
    };
    assert_eq!(
        ["a", "b", "c"].map(|dut| status(dut, "frame_loss_rate").unwrap()),
        ["not_asked", "completed", "not_asked"]
    );
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(out.join("report.json")).unwrap()).unwrap();
    let names =
        |list: &serde_json::Value| list.as_array().unwrap().iter().map(|one| one["dut"].clone()).collect::<Vec<_>>();
    assert_eq!(names(&json["tests"][0]["results"]), ["b"]);
    assert_eq!(names(&json["tests"][1]["results"]), ["a", "b", "c"]);
    let junit = std::fs::read_to_string(out.join("junit.xml")).unwrap();
    assert_eq!(junit.matches("<testcase").count(), 4, "{junit}");
}
