//! The command as its user sees it: exit codes, messages, the files that it writes, and that it leaves nothing else on the
//! machine.

use crate::common::{drophammer, good, kind_of, records, refused, run, run_suite, stored, suite, text, wait_until};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

/// Running processes of the lab of process `main`, recognized by the mark in their environment.
fn lab_processes(main: u32) -> Vec<u32> {
    let mark = format!("DROPHAMMER_LAB={main}:");
    std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse().ok())
        .filter(|pid| {
            std::fs::read(format!("/proc/{pid}/environ"))
                .is_ok_and(|env| env.split(|b| *b == 0).any(|v| v.starts_with(mark.as_bytes())))
        })
        .collect()
}

/// Starts a run on a Linux router and waits until its first trial is on disk.
fn start_and_wait(dir: &Path) -> (Child, PathBuf) {
    let path = suite(
        dir,
        "  - {name: box, kind: linux}\n",
        "  - forwarding_rate: {frame_sizes: [64], repeats: 40, trial_duration: 100 ms}\n",
    );
    let out = dir.join("out");
    let child = drophammer()
        .args(["run", path.to_str().unwrap(), "--busy-host", "--out", out.to_str().unwrap()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the run starts");
    let records = out.join("run.jsonl");
    let seen = || std::fs::read_to_string(&records).is_ok_and(|t| t.contains(r#""test":"forwarding_rate""#));
    wait_until("a trial of the test", seen);
    (child, out)
}

#[test]
fn a_run_in_virtual_time_ends_well_and_writes_every_file() {
    let dir = tempfile::tempdir().unwrap();
    let tests = "  - throughput: {expect: {throughput_64_pps: \">= 90 kfps\"}}\n  - latency\n";
    let path = suite(dir.path(), "  - {name: known, kind: reference, capacity: 100 kfps}\n", tests);
    let out = dir.path().join("out");
    let output = run_suite(&path, &out, &[]);
    let said = good(&output);
    for file in ["report.html", "report.txt", "report.md", "report.json", "junit.xml", "csv/trials.csv", "suite.yaml"] {
        assert!(out.join(file).exists(), "{file} is missing");
    }
    let records = records(&out);
    assert_eq!(kind_of(&records[0]), "started");
    assert_eq!(kind_of(records.last().unwrap()), "ended");
    assert!(said.contains("Throughput"), "{said}");

    // A second run into the same folder is refused, and changes nothing.
    refused(&run_suite(&path, &out, &[]), 4, "not empty");

    // The report can be written again from the folder alone.
    let elsewhere = dir.path().join("elsewhere");
    good(&run(&["report", out.to_str().unwrap(), "--out", elsewhere.to_str().unwrap()]));
    assert_eq!(std::fs::read(out.join("report.html")).unwrap(), std::fs::read(elsewhere.join("report.html")).unwrap());
}

#[test]
fn a_test_that_does_not_apply_is_no_failure_and_no_success_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let duts = "  - {name: known, kind: reference, capacity: 10 Mfps}\n";
    // With fully meshed traffic, every port sends.
    let test = "  - frame_loss_rate: {distribution: fully_meshed, direction: unidirectional}\n";
    for (name, tests, code) in [("beside", &*format!("{test}  - forwarding_rate\n"), 0), ("alone", test, 1)] {
        let path = suite(dir.path(), duts, tests);
        let out = dir.path().join(name);
        refused(&run_suite(&path, &out, &[]), code, "");
        let first = records(&out).into_iter().find(|record| record["record"] == "test").unwrap();
        assert_eq!(first["status"]["status"], "skipped", "{first}");
    }
}

#[test]
fn a_criterion_of_one_router_is_none_of_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let duts =
        "  - {name: fast, kind: reference, capacity: 100 kfps}\n  - {name: slow, kind: reference, capacity: 50 kfps}\n";
    for (name, code) in [("fast", 0), ("slow", 7)] {
        let tests = format!("  - throughput: {{expect: {{throughput_64_pps: {{{name}: \">= 90 kfps\"}}}}}}\n");
        let path = suite(dir.path(), duts, &tests);
        let out = dir.path().join(name);
        refused(&run_suite(&path, &out, &["--rounds", "1"]), code, "");
    }
}

#[test]
fn a_criterion_that_nothing_decides_has_an_exit_code_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let ended = |name: &str, criterion: &str| {
        // The search stops at 50 kfps, so the throughput is at least that.
        let tests = format!(
            "  - throughput: {{max_load: 50 kfps, pdr: false, expect: {{throughput_64_pps: \"{criterion}\"}}}}\n"
        );
        let path = suite(dir.path(), "  - {name: known, kind: reference, capacity: 100 kfps}\n", &tests);
        let out = dir.path().join(name);
        let output = run_suite(&path, &out, &[]);
        let junit = std::fs::read_to_string(out.join("junit.xml")).unwrap();
        (output.status.code(), text(&output.stdout), junit)
    };
    let (code, stdout, junit) = ended("undecided", "<= 80 kfps");
    assert_eq!(code, Some(5), "{stdout}");
    assert!(stdout.contains("UNDECIDED  Throughput on known"), "{stdout}");
    assert!(junit.contains("<error type=\"undecided\""), "{junit}");
    assert_eq!(ended("missed", "<= 40 kfps").0, Some(7));
    assert_eq!(ended("met", ">= 45 kfps").0, Some(0));
}

#[test]
fn a_criterion_that_is_not_met_fails_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let tests = "  - throughput: {expect: {throughput_64_pps: \">= 200 kfps\"}}\n";
    let path = suite(dir.path(), "  - {name: known, kind: reference, capacity: 100 kfps}\n", tests);
    let out = dir.path().join("out");
    refused(&run_suite(&path, &out, &[]), 7, "");
    assert!(std::fs::read_to_string(out.join("junit.xml")).unwrap().contains("<failure"));
}

#[test]
fn threads_that_cannot_be_had_are_refused_with_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let refused = |dut: &str, threads: &str, exit: i32, words: [&str; 2]| {
        let path = suite(dir.path(), dut, "  - throughput\n");
        let errors = refused(&run_suite(&path, &out, &["--threads", threads]), exit, words[0]);
        assert!(errors.contains(words[1]), "{errors}");
        assert!(!out.join("run.jsonl").exists());
    };
    let linux = "  - {name: box, kind: linux}\n";
    refused(linux, "0", 2, ["--threads", "0"]);
    refused(linux, "3", 2, ["2 ports", "--threads 2"]);
    refused("  - {name: known, kind: reference}\n", "2", 2, ["virtual time", "--threads"]);
    // With two processors, the router has one of them.
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let allowed = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed:")).unwrap();
    let processors: u32 = allowed.chars().filter_map(|c| c.to_digit(16)).map(u32::count_ones).sum();
    if processors <= 2 {
        refused(linux, "2", 3, ["--threads 1", "at least 3 processors"]);
    }
}

#[test]
fn a_wrong_suite_starts_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = suite(dir.path(), "  - {name: box, kind: linnux}\n", "  - throughput\n");
    let out = dir.path().join("out");
    for verb in ["check", "run"] {
        let mut command = drophammer();
        command.args([verb, path.to_str().unwrap()]);
        if verb == "run" {
            command.args(["--out", out.to_str().unwrap()]);
        }
        let errors = refused(&command.output().unwrap(), 2, "suite.yaml:4:");
        assert!(errors.contains("linux"), "the remedy: {errors}");
    }
    assert!(!out.exists());
    refused(&run(&["check", "no-such-file.yaml"]), 2, "no-such-file.yaml");
}

#[test]
fn a_self_test_is_told_what_it_can_be_run_on() {
    let cases: [(&[&str], i32, &str); 5] = [
        (&["--interfaces", "eth1"], 2, "takes two"),
        (&["--interfaces", "eth1,eth2,eth3"], 2, "takes two"),
        (&["--frame-sizes", "63"], 2, "--frame-sizes"),
        (&["--speed", "fast"], 2, "speed"),
        (&["--backend", "none-such"], 2, "none-such"),
    ];
    for (arguments, code, word) in cases {
        refused(&run(&[&["selftest"], arguments].concat()), code, word);
    }
}

#[test]
fn a_folder_without_a_run_is_no_report() {
    let dir = tempfile::tempdir().unwrap();
    refused(&run(&["report", dir.path().to_str().unwrap()]), 2, "run.jsonl");
}

#[test]
fn lists_and_schema_come_from_the_registries() {
    let tests = text(&run(&["list", "tests"]).stdout);
    for method in drophammer_methods::METHODS {
        assert!(tests.lines().any(|l| l == method.spec().name), "{} is not listed", method.spec().name);
        for figure in method.spec().figures {
            let listed = tests.lines().any(|l| l.trim_start().starts_with(figure.key) && l.ends_with(figure.help));
            assert!(listed, "{} is not listed", figure.key);
        }
    }
    let duts = text(&run(&["list", "duts"]).stdout);
    for kind in ["linux", "frr", "bird", "openbgpd", "gobgp", "xdp", "ovs", "uml", "external", "reference"] {
        assert!(duts.lines().any(|l| l == kind), "{kind} is not listed");
    }
    let backends = text(&run(&["list", "backends"]).stdout);
    assert!(["af_packet\n", "af_xdp\n", "live_frames\n"].iter().all(|name| backends.contains(name)), "{backends}");
    let schema: serde_json::Value = serde_json::from_slice(&run(&["schema"]).stdout).unwrap();
    assert!(schema["properties"]["duts"].is_object());
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../../suites/quick-look.yaml");
    assert!(run(&["check", shipped]).status.success());
    let rounds = |time: &str| {
        let output = run(&["check", shipped, "--time", time]);
        let line = good(&output).lines().find_map(|line| Some(line.trim().strip_prefix("rounds")?.to_owned()));
        let rounds: u32 = line.as_ref().unwrap().split(',').next().unwrap().trim().parse().unwrap();
        (rounds, text(&output.stderr).contains("is too short"))
    };
    let ((least, warned), (more, content)) = (rounds("1 s"), rounds("2 h"));
    assert!(least == 6 && warned && more > 20 && !content, "{least} {warned} {more} {content}");
    assert_eq!(run(&["check", shipped, "--time", "1 h", "--rounds", "6"]).status.code(), Some(2));
}

#[test]
fn a_router_in_a_namespace_is_measured() {
    for backend in drophammer_port::INTERFACE_BACKENDS {
        // A lack of permission is reported before anything is started.
        match (backend.usable)() {
            Ok(()) => measured_with(backend.spec.name),
            Err(reason) => refused_with(backend.spec.name, &reason),
        }
    }
}

fn refused_with(backend: &str, reason: &str) {
    let dir = tempfile::tempdir().unwrap();
    let path = suite(dir.path(), "  - {name: box, kind: linux}\n", "  - forwarding_rate\n");
    refused(&run(&["run", path.to_str().unwrap(), "--backend", backend]), 3, reason);
}

fn measured_with(backend: &str) {
    let dir = tempfile::tempdir().unwrap();
    let tests = "  - forwarding_rate: {repeats: 1, trial_duration: 200 ms}\n";
    let path = suite(dir.path(), "  - {name: box, kind: linux}\n", tests);
    let out = dir.path().join("out");
    let output = run_suite(&path, &out, &["--backend", backend]);
    assert!(matches!(output.status.code(), Some(0 | 6)), "{}", text(&output.stderr));
    let ports: Vec<_> = records(&out).iter().flat_map(|r| r["ports"].as_array().cloned().unwrap_or_default()).collect();
    assert!(ports.len() >= 2 && ports.iter().all(|p| p["backend"] == backend), "{ports:?}");
    let trials: Vec<_> =
        records(&out).into_iter().filter(|r| r["test"] == "forwarding_rate" && r["record"] == "trial").collect();
    assert!(!trials.is_empty(), "{}", text(&output.stderr));
    for trial in &trials {
        let group = &trial["result"]["groups"][0];
        let count = |key: &str| group[key].as_u64().unwrap();
        assert!(count("received") > 1000, "{group}");
        assert_eq!(count("offered"), count("received") + count("lost"));
        // Every lost frame was refused by the router's receive ring: no frame is unaccounted for.
        assert_eq!(count("corrupted") + count("stray") + count("duplicated"), 0, "{group}");
        assert!(group["latency"]["min_ns"].as_u64().unwrap() > 0);
    }
    // This backend learns of every frame that the router's ring refused; af_xdp does not.
    if backend == "af_packet" {
        crate::common::assert_the_kernel_agrees(&out, "forwarding_rate");
    }
}

#[test]
#[ignore = "long: `make test-all` runs it"]
fn the_simulated_router_in_its_own_process_is_measured_and_marked() {
    let links: &[&str] = if drophammer_port::tap::usable().is_ok() { &["veth", "tap"] } else { &["veth"] };
    for links in links {
        let dir = tempfile::tempdir().unwrap();
        let dut = format!("  - {{name: known, kind: reference, links: {links}, wrong_next_hop_every: 10}}\n");
        let path = suite(dir.path(), &dut, "  - throughput: {max_load: 5 kfps, search_duration_max: 1 s}\n");
        let out = dir.path().join("out");
        let output = run_suite(&path, &out, &[]);
        assert!(matches!(output.status.code(), Some(0 | 6)), "{}", text(&output.stderr));
        let records = records(&out);
        let known = records.iter().find(|r| kind_of(r) == "dut" && r["name"] == "known").unwrap();
        assert_eq!(known["simulated"], true, "it must never pass for a router");
        assert!(std::fs::read_to_string(out.join("report.txt")).unwrap().contains("(simulated)"));
        // All attempts of its trials, and the device's own counts of the same frames. At this low load no frame of a
        // trial arrives after its end.
        let trials =
            records.iter().filter(|r| kind_of(r) == "trial" && r["dut"] == "known" && r["test"] == "throughput");
        let stray: u64 = trials.map(|t| t["result"]["groups"][0]["stray"].as_u64().unwrap()).sum();
        // The kernel counts these frames too.
        crate::common::assert_the_kernel_agrees(&out, "throughput");
        let truth = std::fs::read_to_string(out.join("duts/known/truth.json")).unwrap();
        let truth: serde_json::Value = serde_json::from_str(&truth).unwrap();
        assert!(stray > 0);
        assert_eq!(truth["truth.wrong_next_hop"].as_u64(), Some(stray), "{truth}");
        assert!(truth["d0.in_unicast"].as_u64() > Some(stray));
    }
}

#[test]
fn ctrl_c_keeps_what_was_measured_and_reports_it() {
    let dir = tempfile::tempdir().unwrap();
    let (mut child, out) = start_and_wait(dir.path());
    let pid = child.id();
    // Sent twice, as timeout(1) does: to the program, and to its process group.
    for _ in 0..2 {
        let to = nix::unistd::Pid::from_raw(pid.cast_signed());
        nix::sys::signal::kill(to, nix::sys::signal::Signal::SIGINT).unwrap();
    }
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let records = records(&out);
    let last = records.last().unwrap();
    assert_eq!((kind_of(last), last["interrupted"].as_bool()), ("ended", Some(true)));
    assert!(out.join("report.html").exists());
    wait_until("the end of the lab", || lab_processes(pid).is_empty());
}

#[test]
#[ignore = "long: `make test-all` runs it"]
fn kill_9_leaves_nothing_behind_but_the_measurements() {
    let dir = tempfile::tempdir().unwrap();
    let (mut child, out) = start_and_wait(dir.path());
    let pid = child.id();
    assert!(!lab_processes(pid).is_empty(), "the lab must have processes, or this test sees nothing");
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("the end of the lab", || lab_processes(pid).is_empty());
    let report = good(&run(&["report", out.to_str().unwrap()]));
    assert!(report.contains("cut off"), "{report}");
    assert!(records(&out).iter().any(|r| kind_of(r) == "trial" && r["test"] == "forwarding_rate"));
    // The run continues where it was killed, with the same ceilings.
    let path = dir.path().join("suite.yaml");
    good(&run(&["run", path.to_str().unwrap(), "--busy-host", "--resume", out.to_str().unwrap()]));
    let tests: Vec<_> = records(&out).into_iter().filter(|r| kind_of(r) == "test").collect();
    let of = |name: &str| tests.iter().filter(|test| test["test"] == name).count();
    assert_eq!((of("tester_ceiling"), of("forwarding_rate")), (1, 1), "{tests:?}");
    // At the load that this ceiling permits: the same as before.
    let first_load = |file: &str| {
        let text = std::fs::read_to_string(out.join(file)).unwrap();
        let records = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let mut trials = records.filter(|r| kind_of(r) == "trial" && r["test"] == "forwarding_rate");
        trials.next().unwrap()["spec"]["load"].clone()
    };
    assert_eq!(first_load("run.jsonl"), first_load("cut-off-1.jsonl"));
}

#[test]
fn a_missing_interface_is_told_before_anything_starts() {
    let dir = tempfile::tempdir().unwrap();
    let duts = "  - {name: mine, kind: external, interfaces: [nosuch0, nosuch1]}\n  - {name: known, kind: reference, capacity: 50 kfps}\n";
    let path = suite(dir.path(), duts, "  - forwarding_rate: {repeats: 1, trial_duration: 100 ms}\n");
    let out = dir.path().join("out");
    // An ordinary user may not use interfaces of the host at all, and gets an error about that.
    refused(&run_suite(&path, &out, &[]), 3, "nosuch0");
    assert!(!out.exists());
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
    let output = drophammer().args(["list", "tests"]).stdout(full).output().expect("the command starts");
    refused(&output, 4, "cannot write to standard output");
}

#[test]
fn errors_of_a_suite_show_no_key() {
    let dir = tempfile::tempdir().unwrap();
    let path = suite(dir.path(), "  - {kind: linux}\n", "  - throughput\nbgp: {md5: sesame4711, bad: 1}\n");
    let said = refused(&run(&["check", path.to_str().unwrap()]), 2, "{md5: **********, bad: 1}");
    assert!(!said.contains("sesame"), "{said}");
}

#[test]
fn a_pdf_needs_a_browser_and_says_so() {
    let out = tempfile::tempdir().expect("a folder");
    let output = drophammer()
        .args(["report", "--pdf", "--out"])
        .arg(out.path())
        .arg(stored())
        .env("PATH", out.path())
        .output()
        .expect("the command starts");
    refused(&output, 3, "no browser to print a PDF with: install Chromium");
    assert!(out.path().join("report.html").is_file() && !out.path().join("report.pdf").exists());
}
