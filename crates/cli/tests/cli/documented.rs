//! Runs the documented command lines of each page in order, in a folder of its own, with simulated routers in place of the reader's.

use crate::common::pages::{example, examples, pages, root, suites};
use crate::common::{commands, drophammer, for_each, good, run, text};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Mutex;

/// Command lines that are not run here: a word, or the beginning of a word, and the reason.
const NOT_RUN: [(&str, &str); 16] = [
    ("blast", "needs root and interfaces; blast.rs"),
    ("listen", "needs root and an interface; listen.rs"),
    ("bgp", "needs root, an interface and a router; bgp.rs"),
    ("ospf", "needs root, an interface and a router; neighbour.rs"),
    ("ldp", "needs root, an interface and a router; neighbour.rs"),
    ("rsvp", "needs root, an interface and a router; neighbour.rs"),
    ("bfd", "needs root, an interface and a router; neighbour.rs"),
    ("serve", "needs root and interfaces, and does not end; serve.rs"),
    ("selftest", "takes minutes; command.rs and the tests of testbed"),
    ("clean", "would end what other tests have started; command.rs"),
    ("agent", "needs root, an interface and a server; hosts.rs and the tests of agent"),
    ("bed", "takes a port of the machine, and leaves a server; hosts.rs"),
    ("--nats", "needs agents on other hosts; the tests of agent"),
    ("--live", "takes a port of the machine, and waits for a browser; live.rs"),
    ("--pdf", "needs a browser; command.rs"),
    ("suites/differences/", "its links are of the kernel, which needs root; the tests of testbed"),
];

/// Documented exit codes other than 0 that a command may have here: on some machines, or because the runs of these
/// tests have only one round.
const CODES: [(&str, &[i32]); 3] = [("doctor", &[0, 3]), ("compare", &[0, 5]), ("history", &[0, 5])];

/// The reader's suite, on simulated routers with slow ports. It has the tests that examples name.
const STAND_IN: &str = "
rounds: 1
duts:
  - {name: frr, kind: reference, capacity: 5 kfps, buffer: 200}
  - {name: bird, kind: reference, capacity: 4 kfps, buffer: 200}
ports:
  - {name: p1, speed: 10 Mbit/s}
  - {name: p2, speed: 10 Mbit/s}
bgp: {}
defaults: {frame_sizes: [64], families: [ipv4], direction: unidirectional}
tests:
  - throughput: {pdr: false}
  - latency: {loads: [50]}
  - fib_convergence: {routes: 100, rate: 1 kfps}
";

/// The folder in which the command lines of a page are run.
struct Place<'p> {
    folder: &'p Path,
    /// The suites that the page shows.
    shown: Vec<&'p str>,
}

impl Place<'_> {
    fn run(&self, words: &[String]) -> Output {
        // `~` must not be the home of this user.
        let home = self.folder.display().to_string();
        let words = words.iter().map(|word| word.replacen("~/", &format!("{home}/"), 1));
        drophammer().args(words).current_dir(self.folder).output().unwrap()
    }

    /// The suite `file` of the command `name`: one that the page shows, or a replacement with simulated routers if the
    /// command runs routers.
    fn suite(&self, name: &str, file: &Path) {
        let path = self.folder.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let external = self.shown.iter().find(|suite| suite.contains("kind: external"));
        let stem = file.file_stem().unwrap().to_str().unwrap();
        let text = match external {
            Some(suite) if name != "run" => (*suite).to_owned(),
            _ => format!("suite: {stem}{STAND_IN}"),
        };
        std::fs::write(path, text).unwrap();
    }

    /// Creates what a reader would have: suites, and the runs that a command reads. Returns the words of the command line, with an existing run in place
    /// of a run of another day.
    fn prepare(&self, words: &[String]) -> Vec<String> {
        let name = words[0].as_str();
        let out = words.iter().position(|word| word == "--out").and_then(|at| words.get(at + 1));
        if let (Some(out), "run") = (out, name) {
            let _ = std::fs::remove_dir_all(self.folder.join(out));
        }
        if name == "init" {
            let _ = std::fs::remove_file(self.folder.join(out.map_or("my-router.yaml", String::as_str)));
        }
        let dated = |word: &String| word.starts_with("drophammer-runs/").then(|| "drophammer-runs/latest".to_owned());
        let words: Vec<String> = words.iter().map(|word| dated(word).unwrap_or_else(|| word.clone())).collect();
        for word in words.iter().skip(1).filter(|word| Some(*word) != out) {
            let file = Path::new(word);
            if name != "init" && file.extension().is_some_and(|e| e == "yaml") {
                self.suite(name, file);
            }
            if ["results", "base"].contains(&word.split('/').next().unwrap()) {
                self.results(file);
            }
        }
        // Without a folder these read the newest run.
        let newest = matches!(name, "watch" | "stop" | "report" | "history");
        if newest && !words.iter().any(|word| word.starts_with("results")) {
            self.results(Path::new("drophammer-runs/latest"));
        }
        words
    }

    /// Makes sure that there is a run in this folder, or below it if its name is not the name of a run.
    fn results(&self, folder: &Path) {
        let run = if folder == Path::new("results") { folder.join("first") } else { folder.to_owned() };
        if self.folder.join(&run).exists() || (run != folder && self.folder.join(folder).exists()) {
            return;
        }
        let suite = PathBuf::from("prepared/my-router.yaml");
        self.suite("run", &suite);
        let out = run.display().to_string();
        good(&self.run(&["run", "prepared/my-router.yaml", "--out", &out].map(str::to_owned)));
    }
}

/// Why a command line is not run.
fn not_run(words: &[String]) -> Option<usize> {
    NOT_RUN.iter().position(|(word, _)| match *word {
        option if option.starts_with('-') || option.contains('/') => words.iter().any(|w| w.starts_with(option)),
        command => words[0] == command,
    })
}

/// The pages of the manual and the help of each command, as (name, command lines, suites).
fn all() -> Vec<(String, Vec<Vec<String>>, String)> {
    let mut all: Vec<_> = pages().into_iter().map(|(page, text)| (page, examples(&text), text)).collect();
    for command in commands() {
        let text = text(&run(&[&command, "--help"]).stdout);
        all.push((format!("{command} --help"), text.lines().filter_map(example).collect(), String::new()));
    }
    all.retain(|(_, lines, _)| !lines.is_empty());
    all
}

#[test]
#[ignore = "long: `make test-all` runs it"]
fn documented_commands_do_what_is_documented() {
    let counts = Mutex::new((0, vec![0; NOT_RUN.len()]));
    // Each page has a folder of its own, and its routers are in virtual time.
    for_each(&all(), |_, (page, lines, text)| {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(root().join("docs"), folder.path().join("docs")).unwrap();
        let place = Place { folder: folder.path(), shown: suites(text) };
        for words in lines {
            if let Some(reason) = not_run(words) {
                counts.lock().unwrap().1[reason] += 1;
                continue;
            }
            let begun = std::time::Instant::now();
            let words = place.prepare(words);
            let output = place.run(&words);
            let line = format!("{page}: drophammer {}", words.join(" "));
            println!("{line}: {:.1} s", begun.elapsed().as_secs_f64());
            let code = output.status.code().unwrap_or(-1);
            let codes = CODES.iter().find(|(name, _)| *name == words[0]).map_or(&[0][..], |(_, codes)| codes);
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(codes.contains(&code), "{line}: exit code {code}: {said}");
            assert!(!said.contains("panicked"), "{line}: {said}");
            // These only write files.
            let printed = !output.stdout.is_empty() || !said.is_empty();
            assert_eq!(printed, words[0] != "man", "{line}: {said}");
            counts.lock().unwrap().0 += 1;
        }
    });
    let (ran, left) = counts.into_inner().unwrap();
    assert!(ran > 40, "{ran} command lines were run");
    for ((word, why), left) in NOT_RUN.iter().zip(left) {
        println!("{left} with `{word}` not run: {why}");
        assert!(left > 0, "no example has `{word}` any more");
    }
}
