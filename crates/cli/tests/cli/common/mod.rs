//! What the tests of the program share.

pub mod devtools;
pub mod pages;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const PORTS: &str = "ports:\n  - {name: p1, speed: 1 Gbit/s}\n  - {name: p2, speed: 1 Gbit/s}\n";

pub fn drophammer() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_drophammer"));
    command.stdin(Stdio::null()).env("NO_COLOR", "1");
    command
}

pub fn run(args: &[&str]) -> Output {
    drophammer().args(args).output().expect("the command starts")
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a suite, with its results in `out`.
pub fn run_suite(suite: &Path, out: &Path, more: &[&str]) -> Output {
    run(&[&["run", suite.to_str().unwrap(), "--out", out.to_str().unwrap()], more].concat())
}

/// Asserts that the command succeeded, and returns its standard output.
#[track_caller]
pub fn good(output: &Output) -> String {
    assert!(output.status.success(), "{}: {}{}", output.status, text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// Asserts that the command ended with this exit code and wrote `word` to standard error. Returns its standard error.
#[track_caller]
pub fn refused(output: &Output, code: i32, word: &str) -> String {
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), said.contains(word)), (Some(code), true), "{word}: {said}");
    said
}

/// A text as one line: errors are wrapped and framed for people.
pub fn unwrapped(text: &str) -> String {
    text.replace('\u{2502}', " ").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// All files in a folder and below.
pub fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// The files of a run that contain this text.
pub fn files_with(dir: &Path, text: &str) -> Vec<PathBuf> {
    let mut files = files(dir);
    files.retain(|file| String::from_utf8_lossy(&std::fs::read(file).unwrap()).contains(text));
    files
}

/// Waits for a condition, long enough for a machine that runs all tests in parallel.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !condition() {
        assert!(Instant::now() < deadline, "{what} did not happen");
        std::thread::yield_now();
    }
}

/// A network namespace in which the test is root.
pub const NETWORK: &[&str] = &["--user", "--map-root-user", "--net"];
/// Namespaces of network, mounts and processes, which need root. When their first process ends, the kernel kills all others.
pub const MACHINE: &[&str] = &["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];

/// A shell script in new namespaces, which end with it. `$D` is the program. A script may wait for ever, so it is ended after five
/// minutes, with the exit code 124 and a message that names the command.
pub fn shell(namespaces: &[&str], folder: &Path, body: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=10", "300", "unshare"]).args(namespaces).current_dir(folder);
    let told = r#"trap 'echo "ended after 300 s, at: $BASH_COMMAND" >&2; exit 124' TERM; "#;
    command.args(["bash", "-c", &format!("{told}{body}")]);
    command.env("D", drophammer().get_program()).env("NO_COLOR", "1");
    command
}

/// A shell script that has succeeded, and the files that it left in its folder.
pub struct Ran {
    pub folder: TempDir,
    /// Its standard output.
    pub printed: String,
}

impl Ran {
    pub fn script(namespaces: &[&str], body: &str) -> Ran {
        Ran::script_in(namespaces, tempfile::tempdir().unwrap(), body)
    }

    pub fn script_in(namespaces: &[&str], folder: TempDir, body: &str) -> Ran {
        let printed = good(&shell(namespaces, folder.path(), body).output().unwrap());
        Ran { folder, printed }
    }

    /// The text of a file; empty if it is missing.
    pub fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(file)).unwrap_or_default()
    }
}

/// Runs a command on a terminal of its own, by script(1); `None`, with a message, if that is not installed.
pub fn on_terminal(command: &str) -> Option<Command> {
    if Command::new("script").arg("--version").output().is_err() {
        println!("NOT CHECKED: script is not installed; remedy: apt-get install bsdutils");
        return None;
    }
    let mut script = Command::new("script");
    script.args(["-qec", command, "/dev/null"]).stdin(Stdio::null());
    Some(script)
}

/// The commands that `drophammer --help` lists.
pub fn commands() -> Vec<String> {
    let help = text(&run(&["--help"]).stdout);
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // The description of a command may continue on a second line.
    let first = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let commands: Vec<String> = first.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect();
    assert!(commands.len() > 15, "{commands:?}");
    commands
}

/// Calls `work` with each of `all` and its index, on one thread per processor. Only for tests that do not measure time.
///
/// # Panics
/// If a call panics, but only after the other threads have finished.
pub fn for_each<T: Sync>(all: &[T], work: impl Fn(usize, &T) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(one) = all.get(index) else { return };
                    work(index, one);
                }
            });
        }
    });
}

/// Writes a suite with these routers and tests into `dir`.
pub fn suite(dir: &Path, duts: &str, tests: &str) -> PathBuf {
    let path = dir.join("suite.yaml");
    let defaults = "defaults: {frame_sizes: [64], direction: unidirectional}\n";
    let content = format!("suite: small\ntitle: A small one\nduts:\n{duts}{PORTS}{defaults}tests:\n{tests}");
    std::fs::write(&path, content).expect("the suite is written");
    path
}

pub fn records(dir: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(dir.join("run.jsonl")).expect("records");
    text.lines().filter_map(|l| serde_json::from_str(l).ok()).collect()
}

pub fn kind_of(record: &serde_json::Value) -> &str {
    record["record"].as_str().unwrap_or("")
}

/// Maximum difference in frames between the kernel's count of a trial and ours: between the reading of the counters and the trial, the router may
/// send frames of its own, such as ARP requests.
const MOST_OFF: i64 = 5;

/// Checks that the kernel's counters of the tester's interfaces agree with the tester's own counts, as `report.json` of the run in `dir` states for a
/// test: exactly, except for single frames in a few trials. The run must have compared all valid trials. Returns the number of these trials.
pub fn assert_the_kernel_agrees(dir: &Path, test: &str) -> usize {
    let report = std::fs::read_to_string(dir.join("report.json")).expect("the report");
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    let tests = report["tests"].as_array().expect("tests").iter().filter(|of| of["test"] == test);
    let results = tests.flat_map(|of| of["results"].as_array().expect("results"));
    let all: Vec<&serde_json::Value> = results.map(|of| &of["kernel_counts"]).filter(|of| !of.is_null()).collect();
    let number = |value: &serde_json::Value| value.as_i64().expect("a number");
    for counts in &all {
        for way in ["sent", "received"] {
            let (agree, most_off) = (number(&counts[way]["agree"]), number(&counts[way]["most_off"]));
            // Only the tester sends from its own interfaces, but the router's kernel may send from the router's
            // interfaces.
            let trials = number(&counts["trials"]);
            let least = if way == "sent" { trials - 1 } else { (trials - 1) / 2 };
            assert!(most_off.abs() <= MOST_OFF && agree >= least, "{test}, {way}: {counts}");
        }
    }
    let is_valid = |r: &&serde_json::Value| {
        kind_of(r) == "trial" && r["test"] == test && r["result"]["validity"]["verdict"] == "valid"
    };
    let valid = records(dir).iter().filter(is_valid).count();
    assert_eq!(all.iter().map(|counts| number(&counts["trials"])).sum::<i64>(), valid as i64, "{test}: {all:?}");
    valid
}

/// The folder of a stored run.
pub fn stored() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../report/tests/stored_run/format-1")
}
