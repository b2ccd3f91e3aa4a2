//! Suites that include files: which files the command reads, refuses and stores.

use crate::common::{files_with, run, text, unwrapped};
use std::path::{Path, PathBuf};

const SUITE: &str = "include: [bench.yaml, lab/keys.yaml]\nsuite: small\ntests:\n  - forwarding_rate: {id: short, repeats: 1, trial_duration: 50 ms}\n";
const BENCH: &str = "seed: 7\nduts:\n  - {name: known, kind: reference, capacity: 50 kfps}\nports:\n  - {name: p1, speed: 1 Gbit/s}\n  - {name: p2, speed: 1 Gbit/s}\ndefaults: {frame_sizes: [64], direction: unidirectional}\n";
const KEYS: &str = "variables: {key: sesame4711}\nbgp: {md5: \"${key}\"}\n";

/// The suite and its files in a folder.
fn bench(dir: &Path) -> PathBuf {
    std::fs::create_dir(dir.join("lab")).unwrap();
    for (name, text) in [("my.yaml", SUITE), ("bench.yaml", BENCH), ("lab/keys.yaml", KEYS)] {
        std::fs::write(dir.join(name), text).unwrap();
    }
    dir.join("my.yaml")
}

/// The error output of a command as one line: it is wrapped for people.
fn said(bytes: &[u8]) -> String {
    unwrapped(&text(bytes))
}

#[test]
fn a_run_keeps_what_its_suite_includes_without_keys_and_goes_on_with_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let path = bench(dir.path());
    let path = path.to_str().unwrap();
    let output = run(&["check", path]);
    assert!(output.status.success(), "{}", said(&output.stderr));
    assert!(text(&output.stdout).contains("forwarding_rate (short)"), "{}", text(&output.stdout));
    let out = dir.path().join("out");
    let output = run(&["run", path, "--test", "short", "--out", out.to_str().unwrap()]);
    assert!(output.status.success(), "{}", said(&output.stderr));
    let kept = |name: &str| std::fs::read_to_string(out.join(name)).unwrap();
    assert_eq!((kept("suite.yaml").as_str(), kept("included/bench.yaml").as_str()), (SUITE, BENCH));
    assert_eq!(kept("included/lab/keys.yaml"), "variables: {key: <secret>}\nbgp: {md5: <secret>}\n");
    assert_eq!(files_with(&out, "sesame4711"), Vec::<PathBuf>::new());
    // A key from the command line is not stored either.
    let given = dir.path().join("given");
    let words = ["run", path, "--test", "short", "--var", "key=sesame4711", "--out", given.to_str().unwrap()];
    assert!(run(&words).status.success());
    assert!(std::fs::read_to_string(given.join("run.jsonl")).unwrap().contains("\"key=<secret>\""));
    assert_eq!(files_with(&given, "sesame4711"), Vec::<PathBuf>::new());
    // A run is resumed only if the suite, with its included files, is unchanged.
    let resume = || {
        let output = run(&["run", path, "--test", "short", "--resume", out.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2));
        said(&output.stderr)
    };
    assert!(resume().contains("the run is complete"), "{}", resume());
    std::fs::write(dir.path().join("bench.yaml"), BENCH.replace("seed: 7", "seed: 8")).unwrap();
    assert!(
        resume().contains("differs: included/bench.yaml, line 1: now `seed: 8`; the run had `seed: 7`"),
        "{}",
        resume()
    );
}

#[test]
fn mistakes_in_included_files_are_shown_in_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = bench(dir.path());
    std::fs::write(dir.path().join("lab/keys.yaml"), "# ours\nrounds: many\n").unwrap();
    let output = run(&["check", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    let errors = said(&output.stderr);
    assert!(errors.contains("lab/keys.yaml:2:9:") && errors.contains("rounds: many"), "{errors}");
}

#[test]
fn only_files_of_the_folder_can_be_included() {
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("far.yaml"), "seed: 1\n").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = bench(dir.path());
    let here = dir.path();
    std::os::unix::fs::symlink(outside.path().join("far.yaml"), here.join("link.yaml")).unwrap();
    std::os::unix::fs::symlink(outside.path(), here.join("away")).unwrap();
    std::os::unix::fs::symlink("bench.yaml", here.join("near.yaml")).unwrap();
    std::fs::write(here.join("large.yaml"), "#".repeat((1 << 20) + 5)).unwrap();
    std::fs::write(here.join("latin.yaml"), b"title: \xe9\n").unwrap();
    let check = |include: &str| {
        std::fs::write(&path, SUITE.replace("bench.yaml", include)).unwrap();
        run(&["check", path.to_str().unwrap()])
    };
    for (include, message) in [
        ("link.yaml", "is a link that points outside the folder of the suite"),
        ("away/far.yaml", "is a link that points outside the folder of the suite"),
        ("../far.yaml", "is outside of the folder of the suite"),
        ("/etc/hostname", "is an absolute path"),
        ("missing.yaml", "cannot read `missing.yaml`"),
        ("lab", "is not a regular file"),
        (".", "is not a regular file"),
        ("large.yaml", "has 1048581 bytes"),
        ("latin.yaml", "is not text in UTF-8"),
        ("my.yaml", "includes itself"),
    ] {
        let output = check(include);
        let errors = said(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{include}: {errors}");
        assert!(errors.contains("my.yaml:1:11:") && errors.contains(message), "{include}: {errors}");
        assert!(errors.contains("help:"), "{include}: {errors}");
    }
    // A link within the folder is equivalent to the file.
    let output = check("near.yaml");
    assert!(output.status.success(), "{}", said(&output.stderr));
    // The name of the suite without a folder.
    let output = crate::common::drophammer().args(["check", "my.yaml"]).current_dir(here).output().unwrap();
    assert!(output.status.success(), "{}", said(&output.stderr));
}
