//! If nobody reads the output of a command, the command ends quietly, with its usual exit code.

use crate::common::{commands, drophammer, good, suite, text};
use std::path::Path;
use std::process::{Output, Stdio};

/// A pipe that nobody reads.
fn closed() -> std::io::PipeWriter {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer
}

/// Runs the command in `folder` without a reader of its standard output, and with `both` also of its standard error.
fn unread(folder: &Path, args: &[&str], both: bool) -> Output {
    let mut command = drophammer();
    command.args(args).current_dir(folder).stdout(closed());
    if both {
        command.stderr(closed())
    } else {
        command.stderr(Stdio::piped())
    };
    command.output().expect("the command starts")
}

/// Commands that this file does not run, and why.
const NOT_RUN: [(&str, &str); 12] = [
    ("selftest", "takes minutes"),
    ("agent", "serves until it is stopped; the tests of agent"),
    ("bed", "needs a server; hosts.rs"),
    ("serve", "serves until it is stopped; serve.rs"),
    ("listen", "needs an interface; it prints as blast does"),
    ("bgp", "needs a router; it prints as blast does"),
    ("ospf", "needs a router; it prints as bgp does"),
    ("ldp", "needs a router; it prints as bgp does"),
    ("rsvp", "needs a router; it prints as bgp does"),
    ("bfd", "needs a router; it prints as bgp does"),
    ("watch", "needs a run of its own; detach.rs closes its pipe"),
    ("help", "is --help of the other commands"),
];

/// Exit codes and arguments of commands. `OUT` stands for a new folder each time.
const COMMANDS: [(i32, &[&str]); 32] = [
    (0, &["list", "tests"]),
    (0, &["list", "duts"]),
    (0, &["list", "backends"]),
    (0, &["schema"]),
    (0, &["check", "suite.yaml"]),
    (2, &["check", "missing.yaml"]),
    (2, &["check", "wrong.yaml"]),
    (0, &["plan", "suite.yaml"]),
    (0, &["plan", "suite.yaml", "--config", "frr"]),
    (0, &["plan", "suite.yaml", "--config", "bird"]),
    (0, &["plan", "suite.yaml", "--config", "junos"]),
    (0, &["run", "suite.yaml", "--out", "OUT"]),
    (0, &["run", "suite.yaml", "--json", "--out", "OUT"]),
    (7, &["run", "missed.yaml", "--plain", "--out", "OUT"]),
    (0, &["run", "suite.yaml", "--detach", "--out", "OUT"]),
    (0, &["report", "a"]),
    (0, &["report", "a", "--out", "OUT"]),
    (2, &["report", "nothing"]),
    (5, &["compare", "a", "b"]),
    (5, &["compare", "a", "b", "--json"]),
    (2, &["compare", "a"]),
    (5, &["history", "a", "b"]),
    (5, &["history", "a", "b", "--figure", "rate"]),
    (5, &["history", "a", "b", "--json"]),
    (2, &["history", "nothing"]),
    (0, &["stop", "a"]),
    (0, &["completions", "bash"]),
    (0, &["man", "--out", "OUT"]),
    (0, &["init", "--ports", "eth1,eth2", "--out", "OUT.yaml"]),
    (0, &["clean"]),
    (0, &["--help"]),
    (0, &["--version"]),
];

#[test]
fn output_into_a_closed_pipe_ends_quietly() {
    let folder = tempfile::tempdir().expect("a folder");
    let router = "  - {name: box, kind: reference, capacity: 100 kfps}\n";
    let suite = suite(folder.path(), router, "  - forwarding_rate: {trial_duration: 1 ms}\n");
    let met = std::fs::read_to_string(&suite).unwrap();
    let missed = met.replace("{trial_duration", "{expect: {forwarding_rate_64_pps: \">= 900 kfps\"}, trial_duration");
    std::fs::write(folder.path().join("missed.yaml"), missed).unwrap();
    std::fs::write(folder.path().join("wrong.yaml"), "suite: x\nduts: [{name: a, kind: no-such}]\n").unwrap();
    for name in ["a", "b"] {
        good(&drophammer().args(["run", "suite.yaml", "--out", name]).current_dir(folder.path()).output().unwrap());
    }
    let mut number = 0;
    let mut check = |code: &[i32], args: &[&str]| {
        for both in [false, true] {
            number += 1;
            let args: Vec<String> = args.iter().map(|arg| arg.replace("OUT", &format!("out{number}"))).collect();
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let output = unread(folder.path(), &args, both);
            let said = text(&output.stderr);
            assert!(
                output.status.code().is_some_and(|found| code.contains(&found)),
                "{args:?}: {}: {said}",
                output.status
            );
            for word in ["panicked", "Broken pipe", "os error 32"] {
                assert!(!said.contains(word), "{args:?}: {said}");
            }
            if let ["run", .., out] = args[..]
                && !args.contains(&"--detach")
            {
                assert!(folder.path().join(out).join("report.html").is_file(), "{args:?}: the run was not completed");
            }
        }
    };
    COMMANDS.iter().for_each(|(code, args)| check(&[*code], args));
    // 3 if no router can be brought up on this machine; then blast fails too.
    check(&[0, 3], &["doctor"]);
    check(&[0, 3], &["doctor", "--json"]);
    check(&[0, 3], &["blast", "--dut", "linux", "--rate", "1kfps", "--for", "100ms"]);
}

#[test]
fn every_command_is_run_into_a_closed_pipe() {
    let also = ["doctor", "blast"];
    for command in commands() {
        let runs = COMMANDS.iter().any(|(_, args)| args[0] == command) || also.contains(&command.as_str());
        let left = NOT_RUN.iter().any(|(name, _)| *name == command);
        assert!(runs != left, "run `{command}` into a closed pipe, or give a reason not to");
    }
}
