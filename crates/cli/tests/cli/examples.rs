//! Runs every suite of the manual once, on simulated routers with slow ports.

use crate::common::{drophammer, for_each, pages};

/// Suites with parameters that would take hours even in virtual time, and the values for `--set` that replace them.
const SHORTER: [(&str, &[&str]); 1] = [("overnight", &["soak.duration=5 s", "soak.interval=1 s"])];
/// Keys of `topology` that the simulated router supports.
const TOPOLOGY: [&str; 7] = ["mesh", "chain", "loop", "core_speed", "wan_speed", "wan_delay", "wan_loss"];

/// The value of `key` in the text of a DUT, as written.
fn value<'a>(dut: &'a str, key: &str) -> Option<&'a str> {
    let starts = dut.match_indices(key).filter(|(i, _)| dut[..*i].ends_with([' ', '{']));
    let rest = starts.filter_map(|(i, _)| dut[i + key.len()..].strip_prefix(": ")).next()?;
    Some(rest.split([',', '}', '#', '\n']).next()?.trim())
}

/// Replaces a DUT of a suite by the simulated router.
fn simulated(dut: &str) -> String {
    let topology = TOPOLOGY.iter().filter_map(|key| Some(format!("{key}: {}", value(dut, key)?)));
    let topology = topology.collect::<Vec<_>>().join(", ");
    let system = if topology.is_empty() { String::new() } else { format!(", topology: {{{topology}}}") };
    format!("  - {{name: {}, kind: reference, capacity: 20 kfps, buffer: 200{system}}}\n", value(dut, "name").unwrap())
}

/// The suite with simulated DUTs, which reflect only unicast routes, and no port faster than 100 Mbit/s.
fn on_simulated_routers(suite: &str) -> String {
    let suite = suite.replace("routes: vpn", "routes: unicast");
    let mut lines = suite.lines().peekable();
    let mut out = String::new();
    while let Some(line) = lines.next() {
        out += line;
        out.push('\n');
        if !line.starts_with("duts:") {
            continue;
        }
        let mut duts: Vec<String> = Vec::new();
        while let Some(line) = lines.next_if(|line| line.starts_with(' ') || line.starts_with('#')) {
            match (line.trim_start().strip_prefix("- "), duts.last_mut()) {
                (Some(first), _) => duts.push(format!(" {first}\n")),
                (None, Some(dut)) => *dut += &format!("{line}\n"),
                (None, None) => {}
            }
        }
        out.extend(duts.iter().map(|dut| simulated(dut)));
    }
    let mut words: Vec<String> = out.split(' ').map(str::to_owned).collect();
    for i in 1..words.len() {
        if words[i].starts_with("Gbit/s") {
            words[i] = words[i].replacen("Gbit/s", "Mbit/s", 1);
            words[i - 1] = "100".into();
        }
    }
    words.join(" ")
}

#[test]
#[ignore = "long: `make test-all` runs it"]
fn suites_of_the_manual_run() {
    let folder = tempfile::tempdir().unwrap();
    let pages = pages::pages();
    let all: Vec<_> =
        pages.iter().flat_map(|(page, text)| pages::suites(text).into_iter().map(move |suite| (page, suite))).collect();
    assert!(all.len() > 15, "{} suites", all.len());
    // A run in virtual time does not depend on how busy the processors are.
    for_each(&all, |number, (page, suite)| {
        let (file, results) = (folder.path().join(format!("{number}.yaml")), folder.path().join(number.to_string()));
        let text = on_simulated_routers(suite);
        let baseline = folder.path().join(format!("{number}-baseline"));
        let is_compared = text.contains("% of baseline");
        if is_compared {
            let before = folder.path().join(format!("{number}-before.yaml"));
            std::fs::write(&before, text.replace("% of baseline", "")).unwrap();
            let mut command = drophammer();
            let output = command.args(["run", "--rounds", "1", "--out"]).arg(&baseline).arg(&before).output().unwrap();
            assert_eq!(output.status.code(), Some(0), "{page}: {}", String::from_utf8_lossy(&output.stderr));
        }
        std::fs::write(&file, &text).unwrap();
        let name = suite.lines().next().and_then(|line| line.split_whitespace().nth(1)).unwrap();
        let shorter = SHORTER.iter().filter(|(of, _)| *of == name).flat_map(|(_, set)| *set);
        let mut command = drophammer();
        command.args(["run", "--rounds", "1", "--profile", "quick"]).args(shorter.flat_map(|set| ["--set", set]));
        if is_compared {
            command.arg("--baseline").arg(&baseline);
        }
        command.arg("--out").arg(&results).arg(&file);
        let begun = std::time::Instant::now();
        let output = command.output().unwrap();
        println!("{page}: {name}: {:.1} s, {}", begun.elapsed().as_secs_f64(), output.status);
        let said = String::from_utf8_lossy(&output.stderr);
        // The simulated router may miss a criterion that is meant for another router, but no test may fail.
        assert!(
            matches!(output.status.code(), Some(0 | 1 | 5 | 7)),
            "{page}: {name}: {}: {said}\n{text}",
            output.status
        );
        let report = std::fs::read_to_string(results.join("report.json")).unwrap();
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        let tests = report["tests"].as_array().unwrap();
        assert!(!tests.is_empty(), "{page}: {name}");
        for result in tests.iter().flat_map(|test| test["results"].as_array().unwrap()) {
            let standing = result["standing"].as_str().unwrap();
            let fine = result["completed"] == true || standing.starts_with("not applicable");
            assert!(fine, "{page}: {name}: {standing}\n{text}");
        }
    });
}
