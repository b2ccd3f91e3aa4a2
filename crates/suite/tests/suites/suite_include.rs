//! Suites that include files: which key wins, where errors are reported, what is refused.
use crate::common::REGISTRY;
use drophammer_suite::SuiteErrors;
use drophammer_suite::include::Refusal;
use drophammer_suite::keys::KeyPlace;
use drophammer_suite::read::{Loaded, Outside, Overrides, read_with};
use std::path::Path;

/// Reads `lab/suite.yaml` of a folder with these files.
fn load_with(files: &[(&str, &str)], overrides: &Overrides) -> Result<Loaded, SuiteErrors> {
    let open = |path: &Path| -> Result<String, Refusal> {
        let found = files.iter().find(|(name, _)| path == Path::new(name));
        let text = found.map(|(_, text)| (*text).to_owned());
        text.ok_or_else(|| Refusal::new(format!("`{}` is not there", path.display()), "name a file that is"))
    };
    let suite = open(Path::new("suite.yaml")).expect("the suite is among the files");
    let key = |_: &KeyPlace| Err(Refusal::new("there is no key", "write one"));
    read_with(&suite, "lab/suite.yaml", Outside { include: &open, key: &key }, &REGISTRY, overrides)
}

fn load(files: &[(&str, &str)]) -> Result<Loaded, SuiteErrors> {
    load_with(files, &Overrides::default())
}

fn good(files: &[(&str, &str)]) -> Loaded {
    load(files).unwrap_or_else(|e| panic!("{e}"))
}

/// `(file, line, column, message)` of all errors.
fn places(errors: &SuiteErrors) -> Vec<(&str, usize, usize, &str)> {
    errors.errors.iter().map(|e| (e.file.as_str(), e.line, e.column, e.message.as_str())).collect()
}

const BENCH: &str = "\
ports:
  - {name: p1, speed: 1 Gbit/s}
  - {name: p2, speed: 1 Gbit/s}
duts:
  - {name: box, kind: frr}
defaults: {frame_sizes: [64], duration: 5 s}
seed: 7
";

#[test]
fn keys_of_the_suite_win_over_those_that_it_includes() {
    let suite = "include: bench.yaml\nsuite: s\nseed: 9\ndefaults: {duration: 1 s}\ntests: [throughput]\n";
    let loaded = good(&[("suite.yaml", suite), ("bench.yaml", BENCH)]);
    assert_eq!((loaded.suite.seed, loaded.suite.ports.len(), loaded.suite.duts[0].name.as_str()), (9, 2, "box"));
    // In `defaults` keys are replaced individually.
    let params = &loaded.suite.tests[0].params;
    assert_eq!(params.duration("duration"), Some(std::time::Duration::from_secs(1)));
    assert_eq!(params.sizes("frame_sizes").unwrap().len(), 1);
    assert_eq!(loaded.text, suite);
    assert_eq!(loaded.included, [("bench.yaml".to_owned(), BENCH.to_owned())]);
    // A section without entries changes nothing.
    let empty = suite.replace("{duration: 1 s}", "");
    let loaded = good(&[("suite.yaml", empty.as_str()), ("bench.yaml", BENCH)]);
    assert_eq!(loaded.suite.tests[0].params.duration("duration"), Some(std::time::Duration::from_secs(5)));
    // Lists are not merged: only the suite's tests remain.
    let with_tests = format!("{BENCH}tests: [latency, back_to_back]\n");
    let loaded = good(&[("suite.yaml", suite), ("bench.yaml", with_tests.as_str())]);
    assert_eq!(loaded.suite.tests.iter().map(|t| t.test.as_str()).collect::<Vec<_>>(), ["throughput"]);
    let without = "include: bench.yaml\nsuite: s\n";
    let loaded = good(&[("suite.yaml", without), ("bench.yaml", with_tests.as_str())]);
    assert_eq!(loaded.suite.tests.len(), 2);
}

#[test]
fn published_entries_of_all_files_count() {
    let entry = |title: &str| {
        format!("published: [{{test: throughput, title: {title}, source: s, columns: [router], rows: [[A]]}}]\n")
    };
    let suite = format!("include: [one.yaml, bench.yaml, two.yaml]\nsuite: s\ntests: [throughput]\n{}", entry("own"));
    let files =
        [("suite.yaml", &*suite), ("bench.yaml", BENCH), ("one.yaml", &entry("one")), ("two.yaml", &entry("two"))];
    let titles: Vec<_> = good(&files).suite.about.published.into_iter().map(|published| published.title).collect();
    assert_eq!(titles, ["one", "two", "own"]);
    // An error has the place in its own file.
    let wrong = entry("two").replace("throughput", "thruput");
    let errors = load(&[files[0], files[1], files[2], ("two.yaml", &wrong)]).unwrap_err();
    assert_eq!(places(&errors).into_iter().map(|at| (at.0, at.1)).collect::<Vec<_>>(), [("lab/two.yaml", 1)]);
}

#[test]
fn the_later_of_two_files_wins_and_files_include_files_beside_them() {
    let loaded = good(&[
        ("suite.yaml", "suite: s\ninclude: [a.yaml, sub/b.yaml]\ntests: [throughput]\n"),
        ("a.yaml", "seed: 1\nrounds: 3\nsuite: other\n"),
        ("sub/b.yaml", "include: [c.yaml, ../bench.yaml]\nseed: 2\n"),
        ("sub/c.yaml", "title: From c\nseed: 3\n"),
        ("bench.yaml", BENCH),
    ]);
    let suite = loaded.suite;
    assert_eq!((suite.name.as_str(), suite.title.as_str(), suite.seed, suite.rounds), ("s", "From c", 2, 3));
    let paths: Vec<&str> = loaded.included.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths, ["a.yaml", "sub/b.yaml", "sub/c.yaml", "bench.yaml"]);
    // A file that is included by two files is not a cycle.
    good(&[
        ("suite.yaml", "suite: s\ninclude: [a.yaml, b.yaml]\ntests: [throughput]\n"),
        ("a.yaml", "include: bench.yaml\n"),
        ("b.yaml", "include: bench.yaml\n"),
        ("bench.yaml", BENCH),
    ]);
}

#[test]
fn variables_are_merged_and_stand_for_values_in_all_files() {
    let bench = BENCH.replace("5 s", "\"${time}\"");
    let bench = bench.replace("seed: 7", "variables: {time: 4 s, seed: 8}\nseed: ${seed}");
    let files = [
        ("suite.yaml", "suite: s\ninclude: bench.yaml\nvariables: {time: 3 s}\ntests: [throughput]\n"),
        ("bench.yaml", bench.as_str()),
    ];
    let suite = good(&files).suite;
    assert_eq!(suite.tests[0].params.duration("duration"), Some(std::time::Duration::from_secs(3)));
    assert_eq!(suite.seed, 8);
    let overrides = Overrides { variables: vec!["seed=11".parse().unwrap()], ..Overrides::default() };
    assert_eq!(load_with(&files, &overrides).unwrap().suite.seed, 11);
}

#[test]
fn a_mistake_is_told_in_the_file_that_has_it() {
    let suite = "suite: s\ninclude: [bench.yaml, more/defaults.yaml]\nprofile: fast\ntests: [throughput]\n";
    let bench = BENCH.replace("seed: 7", "seed: -7\nroundz: 2");
    let errors = load(&[
        ("suite.yaml", suite),
        ("bench.yaml", bench.as_str()),
        ("more/defaults.yaml", "# ours\ndefaults:\n  frame_sizes: [64, 10]\n"),
    ])
    .unwrap_err();
    let found = places(&errors);
    assert_eq!(found.len(), 4, "{errors}");
    assert_eq!((found[0].0, found[0].1, found[0].2), ("lab/suite.yaml", 3, 10));
    assert_eq!((found[1].0, found[1].1, found[1].2), ("lab/bench.yaml", 7, 7));
    assert_eq!((found[2].0, found[2].1, found[2].2), ("lab/bench.yaml", 8, 1));
    assert_eq!((found[3].0, found[3].1, found[3].2), ("lab/more/defaults.yaml", 3, 21));
    for error in &errors.errors {
        assert!(errors.source_of(error).get(error.span.clone()).is_some() && !error.help.is_empty(), "{error:?}");
    }
    assert_eq!(errors.source_of(&errors.errors[2]), bench);
    let shown = errors.to_string();
    assert!(shown.contains("lab/bench.yaml:8:1: a suite has no key `roundz`\n  8 | roundz: 2\n"), "{shown}");
    // Text that is not YAML, and duplicate keys.
    let more = ("more/defaults.yaml", "seed: 1\n");
    let broken = load(&[("suite.yaml", suite), ("bench.yaml", "seed: 1\nports: [\n"), more]).unwrap_err();
    assert_eq!(broken.errors[0].file, "lab/bench.yaml", "{broken}");
    assert!(broken.errors[0].message.contains("not YAML"), "{broken}");
    let twice = BENCH.replace("seed: 7", "seed: 7\nseed: 8");
    let suite = "suite: s\ninclude: b.yaml\ntests: [throughput]\n";
    let errors = load(&[("suite.yaml", suite), ("b.yaml", twice.as_str())]).unwrap_err();
    assert_eq!(places(&errors), [("lab/b.yaml", 8, 1, "the key `seed` is given twice")]);
    assert!(errors.errors[0].help.contains("already on line 7"), "{errors}");
}

#[test]
fn files_that_cannot_be_included_are_told_where_they_are_named() {
    let suite = "suite: s\ninclude: [a.yaml, sub/b.yaml]\n";
    let errors = load(&[("suite.yaml", suite), ("sub/b.yaml", "seed: 1\ninclude: c.yaml\n")]).unwrap_err();
    let expected =
        [("lab/suite.yaml", 2, 11, "`a.yaml` is not there"), ("lab/sub/b.yaml", 2, 10, "`sub/c.yaml` is not there")];
    assert_eq!(places(&errors), expected, "all of them, and nothing of what is missing therefore");
    for (text, place, message) in [
        ("- 1\n", ("lab/a.yaml", 1, 1), "an included file is a map of keys and values, not a list"),
        ("just text\n", ("lab/a.yaml", 1, 1), "an included file is a map of keys and values, not `just text`"),
        (" \n", ("lab/suite.yaml", 2, 10), "the file `a.yaml` is empty"),
        ("# nothing\n", ("lab/a.yaml", 1, 1), "the file is empty"),
        ("seed: 1\ninclude: ../a.yaml\n", ("lab/a.yaml", 2, 10), "`../a.yaml` is outside of the folder of the suite"),
        ("include: /a.yaml\n", ("lab/a.yaml", 1, 10), "`/a.yaml` is an absolute path"),
    ] {
        let errors = load(&[("suite.yaml", "suite: s\ninclude: a.yaml\n"), ("a.yaml", text)]).unwrap_err();
        let (file, line, column) = place;
        assert_eq!(places(&errors), [(file, line, column, message)], "{text}");
        assert!(!errors.errors[0].help.is_empty());
    }
}

#[test]
fn cycles_are_told_with_the_files_that_make_them() {
    let errors = load(&[
        ("suite.yaml", "suite: s\ninclude: a.yaml\n"),
        ("a.yaml", "seed: 1\ninclude: sub/b.yaml\n"),
        ("sub/b.yaml", "include: ../sub/../a.yaml\n"),
    ])
    .unwrap_err();
    let message = "`a.yaml` includes itself: `suite.yaml` \u{2192} `a.yaml` \u{2192} `sub/b.yaml` \u{2192} `a.yaml`";
    assert_eq!(places(&errors), [("lab/sub/b.yaml", 1, 10, message)]);
    let suite = ("suite.yaml", "suite: s\ninclude: a.yaml\n");
    let errors = load(&[suite, ("a.yaml", "include: suite.yaml\n")]).unwrap_err();
    let message = "`suite.yaml` includes itself: `suite.yaml` \u{2192} `a.yaml` \u{2192} `suite.yaml`";
    assert_eq!(places(&errors), [("lab/a.yaml", 1, 10, message)]);
}

#[test]
fn the_number_of_files_and_their_depth_are_bounded() {
    // Nested includes: at most eight levels.
    let chain = |length: usize| {
        let file = |n: usize| {
            let next = if n < length { format!("include: f{}.yaml\n", n + 1) } else { "seed: 5\n".into() };
            (format!("f{n}.yaml"), next)
        };
        let mut files: Vec<(String, String)> = (1..=length).map(file).collect();
        let rest = BENCH.replace("seed: 7\n", "");
        files.push(("suite.yaml".into(), format!("include: f1.yaml\nsuite: s\ntests: [throughput]\n{rest}")));
        files
    };
    let borrowed = |files: &[(String, String)]| -> Result<Loaded, SuiteErrors> {
        load(&files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect::<Vec<_>>())
    };
    assert_eq!(borrowed(&chain(8)).unwrap_or_else(|e| panic!("{e}")).suite.seed, 5);
    let errors = borrowed(&chain(9)).unwrap_err();
    assert_eq!((errors.errors.len(), errors.errors[0].file.as_str(), errors.errors[0].line), (1, "lab/f8.yaml", 1));
    assert!(errors.errors[0].message.contains("more than 8 deep"), "{errors}");
    // A file that is included repeatedly counts each time.
    let many = |n: usize| format!("suite: s\ninclude: [{}]\ntests: [throughput]\n", vec!["bench.yaml"; n].join(", "));
    good(&[("suite.yaml", many(16).as_str()), ("bench.yaml", BENCH)]);
    let errors = load(&[("suite.yaml", many(17).as_str()), ("bench.yaml", BENCH)]).unwrap_err();
    assert_eq!((errors.errors.len(), errors.errors[0].line), (1, 2), "{errors}");
    assert!(errors.errors[0].message.contains("more than 16 files"), "{errors}");
}

#[test]
fn hostile_files_are_refused_quickly() {
    let begun = std::time::Instant::now();
    // Each file includes all later ones: without limits that would be more files than there are atoms.
    let names: Vec<String> = (0..20).map(|n| format!("f{n}.yaml")).collect();
    let mut files: Vec<(String, String)> =
        (0..20).map(|n| (names[n].clone(), format!("seed: {n}\ninclude: [{}]\n", names[n + 1..].join(", ")))).collect();
    files[19].1 = "seed: 1\n".into();
    files.push(("suite.yaml".into(), "suite: s\ninclude: f0.yaml\n".into()));
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let errors = load(&files).unwrap_err();
    assert!(errors.errors.len() <= 100, "{}", errors.errors.len());
    // Many keys, different in each file.
    let keys = |name: &str| (0..40_000).map(|n| format!("{name}{n}: 1\n")).collect::<String>();
    let (a, b) = (keys("a"), keys("b"));
    let suite = ("suite.yaml", "suite: s\ninclude: [a.yaml, b.yaml]\n");
    let errors = load(&[suite, ("a.yaml", a.as_str()), ("b.yaml", b.as_str())]).unwrap_err();
    assert!(errors.errors[0].message.contains("more than 100000 values"), "{}", errors.errors[0].message);
    assert_eq!((errors.errors.len(), errors.errors[0].line, errors.errors[0].column), (1, 2, 1));
    let large = "x".repeat((1 << 20) + 1);
    let suite = ("suite.yaml", "suite: s\ninclude: a.yaml\n");
    let errors = load(&[suite, ("a.yaml", large.as_str())]).unwrap_err();
    assert_eq!(places(&errors), [("lab/a.yaml", 1, 1, "the file has 1048577 bytes")]);
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
}

#[test]
fn keys_of_sessions_are_in_no_text_that_is_kept() {
    let loaded = good(&[
        ("suite.yaml", "suite: s\ninclude: [bench.yaml, keys.yaml]\ntests: [throughput]\nbgp: {md5: \"${key}\"}\n"),
        ("bench.yaml", BENCH),
        ("keys.yaml", "# Not in the repository.\nvariables: {key: sesame}\n"),
    ]);
    let protection = &loaded.suite.ports[0].bgp.as_ref().unwrap().protection;
    assert_eq!(protection.md5.as_ref().map(|key| key.expose()), Some("sesame"));
    assert!(loaded.text.ends_with("bgp: {md5: <secret>}\n"), "{}", loaded.text);
    assert_eq!(loaded.included[1].1, "# Not in the repository.\nvariables: {key: <secret>}\n");
    assert_eq!(loaded.included[0].1, BENCH);
    assert!(!format!("{loaded:?}").contains("sesame"));
}

#[test]
fn variables_of_the_command_line_that_hold_keys_are_named() {
    let suite =
        "suite: s\ninclude: bench.yaml\ntests: [throughput]\nvariables: {key: x, part: y, n: 1, all: 2}\nseed: ${n}\n";
    let cases = [("{md5: \"${key}-${part}\"}", &["key", "part", "all"][..]), ("${all}", &["all"])];
    for (bgp, secret) in cases {
        let text = format!("{suite}bgp: {bgp}\n");
        let given = ["key=sesame", "part=5", "n=7", "all={md5: other}"];
        let overrides =
            Overrides { variables: given.iter().map(|v| v.parse().unwrap()).collect(), ..Overrides::default() };
        let loaded = load_with(&[("suite.yaml", &text), ("bench.yaml", BENCH)], &overrides);
        assert_eq!(loaded.unwrap_or_else(|e| panic!("{e}")).secret_variables, secret, "{bgp}");
    }
}

#[test]
fn files_that_an_included_file_names_are_relative_to_the_suite() {
    let duts = "duts: [{name: a, kind: frr, config: my/f.conf}]\n";
    let loaded = good(&[
        ("suite.yaml", "suite: s\ninclude: [bench.yaml, sub/duts.yaml]\ntests: [throughput]\n"),
        ("bench.yaml", BENCH),
        ("sub/duts.yaml", duts),
    ]);
    assert_eq!(loaded.suite.duts[0].params.text("config").as_deref(), Some("lab/my/f.conf"));
}
