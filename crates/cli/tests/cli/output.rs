//! Reports whose output nobody reads, and reports that cannot be written.

use crate::common::{drophammer, on_terminal, refused, run, stored, wait_until};
use std::process::Stdio;

#[test]
fn a_report_is_complete_before_its_summary_is_printed() {
    let out = tempfile::tempdir().unwrap();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
    let mut report = drophammer();
    report.arg("report").arg(stored()).arg("--out").arg(out.path()).stdout(full);
    assert_eq!(report.status().unwrap().code(), Some(4));
    assert!(out.path().join("report.html").is_file() && out.path().join("junit.xml").is_file());
}

#[test]
fn a_terminal_that_hangs_up_is_no_error() {
    let out = tempfile::tempdir().unwrap();
    // script(1) gives the command a terminal, and ends before the command writes to it: the command waits for this
    // file.
    let go = out.path().join("go");
    let (exit, program) = (out.path().join("exit"), env!("CARGO_BIN_EXE_drophammer"));
    let command = format!(
        "trap '' HUP; (until [ -e '{}' ]; do sleep 0.02; done; '{program}' report '{}' --out '{}' 2> '{}'; echo $? > '{}') & sleep 0.1",
        go.display(),
        stored().display(),
        out.path().display(),
        out.path().join("said").display(),
        exit.display()
    );
    let Some(mut script) = on_terminal(&command) else { return };
    script.stdout(Stdio::null()).status().unwrap();
    std::fs::write(&go, "").unwrap();
    wait_until("the end", || std::fs::read_to_string(&exit).is_ok_and(|code| code.ends_with('\n')));
    let said = std::fs::read_to_string(out.path().join("said")).unwrap();
    assert_eq!((std::fs::read_to_string(&exit).unwrap().as_str(), said.as_str()), ("0\n", ""));
    assert!(out.path().join("report.html").is_file());
}

#[test]
fn a_report_that_cannot_be_written_has_the_exit_code_of_results_that_cannot_be_stored() {
    let out = tempfile::tempdir().unwrap();
    let file = out.path().join("file");
    std::fs::write(&file, "").unwrap();
    let report = run(&["report", stored().to_str().unwrap(), "--out", file.to_str().unwrap()]);
    refused(&report, 4, "cannot write");
}
