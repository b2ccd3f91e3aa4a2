//! Runs that continue without a terminal: `run --detach`, `watch`, `stop`.

use crate::common::{drophammer, good, kind_of, records, refused, run, run_suite, suite, text, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs::{self, File, TryLockError};
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

const DUT: &str = "  - {name: known, kind: reference, capacity: 100 kfps}\n";
/// Takes far longer than the test that stops it.
const LONG: &str = "  - forwarding_rate: {repeats: 200, trial_duration: 5 s}\n";

/// Starts a run in the background; returns the output, and the folder of the run.
fn detached(dir: &Path, tests: &str, more: &[&str]) -> (Output, PathBuf) {
    let out = dir.join("out");
    let output = run_suite(&suite(dir, DUT, tests), &out, &[&["--detach"], more].concat());
    good(&output);
    (output, out)
}

/// The process that is recorded in the folder.
fn process(out: &Path) -> u32 {
    let lines = fs::read_to_string(out.join("process.jsonl")).unwrap();
    let first: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    first["process"]["pid"].as_u64().unwrap().try_into().unwrap()
}

fn goes_on(out: &Path) -> bool {
    matches!(File::open(out.join("process.jsonl")).unwrap().try_lock_shared(), Err(TryLockError::WouldBlock))
}

/// Fields of `/proc/PID/stat` after the name; empty if there is no such process.
fn stat(pid: u32) -> Vec<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    text.rsplit(") ").next().unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}

/// True if the process has ended, even if nobody has read its exit code.
fn is_gone(pid: u32) -> bool {
    stat(pid).first().is_none_or(|state| state == "Z" || state == "X")
}

#[test]
fn a_run_in_the_background_is_watched_to_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let tests = "  - forwarding_rate: {repeats: 2, expect: {forwarding_rate_64_pps: \">= 200 kfps\"}}\n";
    let (started, out) = detached(dir.path(), tests, &[]);
    let said = text(&started.stdout);
    let (shown, pid) = (out.canonicalize().unwrap(), process(&out));
    for words in
        [format!("process {pid}\n"), format!("drophammer watch {}", shown.display()), "drophammer stop ".into()]
    {
        assert!(said.contains(&words), "{words}: {said}");
    }
    let folder = out.to_str().unwrap();
    let watched = run(&["watch", folder, "--lines", "1000"]);
    let said = text(&watched.stdout);
    // The criterion is missed, and `watch` reports this as `run` would.
    assert_eq!(watched.status.code(), Some(7), "{said}{}", text(&watched.stderr));
    assert!(text(&watched.stderr).contains("ended with exit code 7"), "{}", text(&watched.stderr));
    assert!(said.contains("[1/1] known") && said.contains("offered") && said.contains("Report: "), "{said}");
    assert_eq!(said, fs::read_to_string(out.join("console.log")).unwrap());
    let records = records(&out);
    assert_eq!(kind_of(records.last().unwrap()), "ended");
    let command: Vec<&str> = records[0]["command"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(command.contains(&"--detach") && !command.contains(&"--detached"), "{command:?}");
    wait_until("the end of the process", || is_gone(pid));

    let last = run(&["watch", folder, "--lines", "1"]);
    assert_eq!((last.status.code(), text(&last.stdout).lines().count()), (Some(7), 1), "{}", text(&last.stdout));
    let stopped = good(&run(&["stop", folder]));
    assert!(stopped.contains("nothing to stop"), "{stopped}");
}

#[test]
#[ignore = "long: `make test-all` runs it"]
fn a_run_is_stopped_and_nothing_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let (started, out) = detached(dir.path(), LONG, &["--live"]);
    let errors = text(&started.stderr);
    let (folder, pid) = (out.to_str().unwrap(), process(&out));
    // A separate session, and no terminal.
    let stat = stat(pid);
    assert_eq!((stat[3].as_str(), stat[4].as_str()), (pid.to_string().as_str(), "0"), "{stat:?}");
    assert_eq!(fs::read_link(format!("/proc/{pid}/fd/0")).unwrap(), Path::new("/dev/null"));
    let address = errors.lines().find_map(|line| line.strip_prefix("live page: http://")).unwrap();
    assert!(TcpStream::connect(address.trim_end_matches('/')).is_ok(), "{address}");

    // Ctrl-C ends only `watch`. This test may run in the background of a shell, which lets its programs ignore Ctrl-C.
    let mut watch = Command::new("env");
    watch.arg("--default-signal=INT").arg(drophammer().get_program()).args(["watch", folder]);
    let mut watch = watch.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    // `watch` would end once nobody reads its output.
    let mut shown = BufReader::new(watch.stdout.take().unwrap()).lines();
    assert!(shown.by_ref().map_while(Result::ok).any(|line| line.contains("offered")), "a trial is shown");
    kill(Pid::from_raw(watch.id().cast_signed()), Signal::SIGINT).unwrap();
    assert_eq!(watch.wait().unwrap().signal(), Some(Signal::SIGINT as i32));
    assert!(goes_on(&out) && !is_gone(pid));

    let stopped = good(&run(&["stop", folder]));
    assert!(stopped.contains("ended with exit code 130"), "{stopped}");
    assert!(!goes_on(&out) && out.join("report.html").exists());
    let records = records(&out);
    let last = records.last().unwrap();
    assert_eq!((kind_of(last), last["interrupted"].as_bool()), ("ended", Some(true)));
    wait_until("the end of the process", || is_gone(pid));
    assert_eq!(run(&["watch", folder]).status.code(), Some(130));
    let console = fs::read_to_string(out.join("console.log")).unwrap();
    assert!(console.contains("live page: http://") && !console.contains('#'), "{console}");
}

#[test]
fn a_terminal_that_hangs_up_twice_ends_a_run_with_its_report() {
    let dir = tempfile::tempdir().unwrap();
    let (_, out) = detached(dir.path(), LONG, &[]);
    let pid = process(&out);
    // The shell passes the signal on, and the kernel sends it again when the shell ends.
    wait_until("the end of the process", || {
        is_gone(pid) || {
            let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGHUP);
            std::thread::sleep(Duration::from_millis(5));
            false
        }
    });
    let records = records(&out);
    let last = records.last().unwrap();
    assert_eq!((kind_of(last), last["interrupted"].as_bool()), ("ended", Some(true)));
    assert!(out.join("report.html").exists());
    assert_eq!(run(&["watch", out.to_str().unwrap()]).status.code(), Some(130));
}

#[test]
fn a_run_that_is_killed_is_told_and_goes_on_in_the_background() {
    let dir = tempfile::tempdir().unwrap();
    let (_, out) = detached(dir.path(), LONG, &[]);
    let (folder, pid) = (out.to_str().unwrap(), process(&out));
    wait_until("the first record", || out.join("run.jsonl").metadata().is_ok_and(|file| file.len() > 0));
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).unwrap();
    refused(&run(&["watch", folder]), 1, "was killed");
    let path = dir.path().join("suite.yaml");
    good(&run(&["run", path.to_str().unwrap(), "--detach", "--resume", folder]));
    assert!(goes_on(&out) && process(&out) != pid);
    // A second run in the same folder is refused.
    refused(&run(&["run", path.to_str().unwrap(), "--detach", "--resume", folder]), 4, "");
    assert!(goes_on(&out));
    assert_eq!(run(&["stop", folder]).status.code(), Some(0));
}

#[test]
fn what_is_refused_is_told_on_the_terminal_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("deep/out");
    let is_refused = |dut: &str, more: &[&str], code: i32, word: &str| {
        let path = suite(dir.path(), dut, "  - forwarding_rate\n");
        let output = run_suite(&path, &out, &[&["--detach"], more].concat());
        let said = refused(&output, code, word);
        assert!(output.stdout.is_empty() && !dir.path().join("deep").exists(), "{said}");
    };
    is_refused("  - {name: box, kind: linnux}\n", &[], 2, "suite.yaml:4:");
    is_refused(DUT, &["--threads", "2"], 2, "virtual time");
    for backend in drophammer_port::INTERFACE_BACKENDS {
        if let Err(reason) = (backend.usable)() {
            is_refused("  - {name: box, kind: linux}\n", &["--backend", backend.spec.name], 3, &reason);
        }
    }
    // A port of loopback that is in use.
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let live = format!("--live={}", taken.local_addr().unwrap().port());
    is_refused(DUT, &[&live], 3, "no page can be served");
    // A folder that existed before is left unchanged.
    fs::create_dir_all(&out).unwrap();
    fs::write(out.join("mine"), "").unwrap();
    let path = suite(dir.path(), DUT, "  - forwarding_rate\n");
    refused(&run_suite(&path, &out, &["--detach"]), 4, "");
    assert_eq!(fs::read_dir(&out).unwrap().count(), 1);
    // A folder without a run cannot be watched or stopped, and the background process does nothing without the process
    // that starts it.
    for command in ["watch", "stop"] {
        refused(&run(&[command, out.to_str().unwrap()]), 2, "process.jsonl");
    }
    refused(&run(&["run", path.to_str().unwrap(), "--detach", "--detached"]), 3, "");
}

#[test]
fn events_go_into_a_file_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let (started, out) = detached(dir.path(), "  - forwarding_rate: {repeats: 1}\n", &["--json"]);
    let told: Value = serde_json::from_slice(&started.stdout).unwrap();
    assert_eq!((told["event"].as_str(), told["process"].as_u64()), (Some("detached"), Some(process(&out).into())));
    let watched = good(&run(&["watch", told["folder"].as_str().unwrap()]));
    assert!(watched.contains("offered") && !watched.contains("{\""), "{watched}");
    let events = fs::read_to_string(out.join("events.jsonl")).unwrap();
    let events: Vec<Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&events[0]["event"], &events.last().unwrap()["event"]), (&"started".into(), &"report".into()));
}

#[test]
fn a_run_on_a_terminal_can_be_stopped_from_another() {
    let dir = tempfile::tempdir().unwrap();
    let path = suite(dir.path(), DUT, LONG);
    let out = dir.path().join("out");
    let folder = out.to_str().unwrap();
    let mut command = drophammer();
    command.args(["run", path.to_str().unwrap(), "--out", folder]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    wait_until("the start", || out.join("process.jsonl").metadata().is_ok_and(|file| file.len() > 0));
    assert_eq!(run(&["stop", folder]).status.code(), Some(0));
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(!out.join("console.log").exists());
    assert_eq!(run(&["watch", folder]).status.code(), Some(130));
}
