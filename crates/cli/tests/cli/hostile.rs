//! Malicious run folders and files: links to the user's files, files that never end, pipes that block.

use crate::common::{good, refused, run, stored, text};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

/// A copy of a stored run.
fn copy_of_run(folder: &Path) -> PathBuf {
    let run = folder.join("run");
    fs::create_dir(&run).unwrap();
    fs::copy(stored().join("run.jsonl"), run.join("run.jsonl")).unwrap();
    run
}

/// Runs the command for at most 20 s, with at most 2 GiB of memory.
fn limited(args: &[&str]) -> Output {
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "ulimit -v 2097152; exec timeout 20 \"$@\"", "sh", env!("CARGO_BIN_EXE_drophammer")]).args(args);
    shell.stdin(Stdio::null()).env("NO_COLOR", "1").output().unwrap()
}

fn fifo(path: &Path) {
    mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
}

#[test]
fn a_report_overwrites_nothing_outside_of_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let dir = copy_of_run(folder.path());
    let mine = folder.path().join("mine");
    fs::write(&mine, "mine").unwrap();
    for link in ["report.part", "junit.part", "report.html", "report.txt"] {
        symlink(&mine, dir.join(link)).unwrap();
    }
    fs::create_dir(dir.join("csv")).unwrap();
    symlink(&mine, dir.join("csv/trials.part")).unwrap();
    good(&run(&["report", dir.to_str().unwrap()]));
    assert!(fs::symlink_metadata(dir.join("report.html")).unwrap().is_file() && dir.join("csv/trials.csv").is_file());
    fs::remove_dir_all(dir.join("csv")).unwrap();
    fs::create_dir(folder.path().join("others")).unwrap();
    symlink(folder.path().join("others"), dir.join("csv")).unwrap();
    refused(&run(&["report", dir.to_str().unwrap()]), 4, "it is a link");
    assert_eq!(fs::read_dir(folder.path().join("others")).unwrap().count(), 0);
    assert_eq!(fs::read_to_string(&mine).unwrap(), "mine");
}

#[test]
fn records_that_never_end_or_never_come_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().to_str().unwrap();
    let path = folder.path().join("run.jsonl");
    let refused = |args: &[&str], words: &str| {
        let output = limited(args);
        let said = text(&output.stderr);
        assert!(
            matches!(output.status.code(), Some(2 | 3)) && said.contains(words),
            "{args:?}: {:?} {said}",
            output.status
        );
    };
    symlink("/dev/zero", &path).unwrap();
    refused(&["report", name], "not a regular file");
    refused(&["compare", name, name], "not a regular file");
    fs::remove_file(&path).unwrap();
    fifo(&path);
    fifo(&folder.path().join("run.lock"));
    refused(&["report", name], "not a regular file");
    // A sparse file costs no disk space.
    fs::remove_file(&path).unwrap();
    fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
    refused(&["report", name], "larger than");
    for command in ["watch", "stop"] {
        for make in [
            |path: &Path| fifo(path),
            |path: &Path| symlink("/dev/zero", path).unwrap(),
            |path: &Path| {
                fs::File::create(path).unwrap().set_len(1 << 40).unwrap();
            },
        ] {
            let process = folder.path().join("process.jsonl");
            make(&process);
            refused(&[command, name], "cannot be watched");
            fs::remove_file(&process).unwrap();
        }
    }
    fs::write(folder.path().join("process.jsonl"), "{\"process\":null,\"console\":true}\n{\"exit\":0}\n").unwrap();
    fifo(&folder.path().join("console.log"));
    refused(&["watch", name], "not a regular file");
}

#[test]
fn files_that_a_suite_names_are_refused_if_they_never_end_or_never_come() {
    let folder = tempfile::tempdir().unwrap();
    fifo(&folder.path().join("pipe"));
    symlink("/dev/zero", folder.path().join("zero")).unwrap();
    fs::File::create(folder.path().join("hole")).unwrap().set_len(1 << 40).unwrap();
    for (dut, words) in [
        ("{name: a, kind: frr, config: pipe}", "not a regular file"),
        ("{name: a, kind: frr, template: zero}", "not a regular file"),
        ("{name: a, kind: frr, config: hole}", "larger than 16 MiB"),
        (
            "{name: a, kind: external, interfaces: [a, b], management: 192.0.2.9, snmp_community_file: pipe}",
            "not a regular file",
        ),
    ] {
        let suite = crate::common::suite(folder.path(), &format!("  - {dut}\n"), "  - throughput\n");
        for command in ["check", "plan"] {
            refused(&limited(&[command, suite.to_str().unwrap()]), 2, words);
        }
    }
}
