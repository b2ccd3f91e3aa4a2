//! Commands around a run: `plan`, `init`, `compare`, and `--set`.

use crate::common::{good, kind_of, records, refused, run, run_suite, stored, suite, text};
use std::path::Path;

#[test]
fn runs_are_held_against_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let made = |name: &str, capacity: &str| {
        let dut = format!("  - {{name: known, kind: reference, capacity: {capacity}}}\n");
        let path = suite(dir.path(), &dut, "  - throughput: {pdr: false, max_load: 200 kfps}\n");
        let out = dir.path().join(name);
        good(&run_suite(&path, &out, &["--rounds", "4"]));
        out.to_str().unwrap().to_owned()
    };
    let (old, slow) = (made("old", "100 kfps"), made("slow", "80 kfps"));
    let worse = run(&["compare", &old, &slow]);
    let said = text(&worse.stdout);
    assert_eq!(worse.status.code(), Some(1), "{said}{}", text(&worse.stderr));
    assert!(
        said.contains("WORSE") && said.contains("Different conditions") && said.contains("known: configuration"),
        "{said}"
    );
    let better = good(&run(&["compare", &slow, &old, "--json"]));
    let json: serde_json::Value = serde_json::from_str(&better).unwrap();
    assert_eq!(json["figures"][0]["against"][0]["verdict"], "better");

    // Wrong arguments, and folders without a run.
    assert_eq!(run(&["compare", &old]).status.code(), Some(2));
    let refused = |folder: &str, word: &str| {
        let errors = refused(&run(&["compare", &old, folder]), 2, word);
        assert!(errors.contains(folder) && !errors.contains("panicked"), "{errors}");
    };
    refused(&old, "are the same run");
    let bad = dir.path().join("bad");
    refused(bad.to_str().unwrap(), "run.jsonl");
    std::fs::create_dir(&bad).unwrap();
    for content in
        [&b"\xff\xfe\x00\n\n"[..], b"{\"record\":\"ended\",\"time\":\"\",\"interrupted\":false}\n", b"[[[[\n{}\n"]
    {
        std::fs::write(bad.join("run.jsonl"), content).unwrap();
        refused(bad.to_str().unwrap(), "line 1");
    }

    // Runs without any figure.
    let records = std::fs::read_to_string(Path::new(&old).join("run.jsonl")).unwrap();
    let begun = ["begun", "begun-too"].map(|name| {
        let folder = dir.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("run.jsonl"), records.split_inclusive('\n').next().unwrap()).unwrap();
        folder.to_str().unwrap().to_owned()
    });
    crate::common::refused(&run(&["compare", &begun[0], &begun[1]]), 5, "name runs whose tests produce figures");
}

#[test]
fn a_plan_starts_nothing_and_says_what_the_router_needs() {
    let dir = tempfile::tempdir().unwrap();
    let touched = dir.path().join("touched");
    let dut =
        format!("  - {{name: box, kind: external, interfaces: [eth1, eth2], setup: touch {}}}\n", touched.display());
    let path = suite(dir.path(), &dut, "  - throughput\n  - latency\nbgp: {peers_per_port: 3}\n");
    let path = path.to_str().unwrap();
    let said = good(&run(&["plan", path, "--rounds", "2"]));
    for expected in [
        "1.  throughput  about ",
        // One size at four loads, which are shares of a throughput that is known by then.
        "2.  latency     4 trials",
        "2 rounds of 1 DUT,",
        "198.18.1.1/24",
        "198.18.64.0/18 via 198.18.1.2",
        "AS 65001: 198.18.1.2 to 198.18.1.4 (3); IPv4",
        "eth1, eth2",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    let estimate = |args: &[&str]| {
        let said = text(&run(args).stdout);
        said.lines().find_map(|line| Some(line.strip_prefix("About ")?.split(" in all").next()?.to_owned())).unwrap()
    };
    let total = estimate(&["plan", path, "--rounds", "2"]);
    assert_ne!(total, estimate(&["plan", path, "--rounds", "2", "--profile", "conformant"]));
    let checked = text(&run(&["check", path, "--rounds", "2"]).stdout);
    assert!(checked.contains(&format!("2, about {total}")), "{checked}");

    let frr = run(&["plan", path, "--config", "frr", "--interfaces", "ens1,ens2"]);
    assert!(frr.status.success() && text(&frr.stdout).contains("interface ens2") && frr.stderr.is_empty());
    for language in ["frr", "bird", "iosxr", "junos", "sros", "linux", "vyos", "eos", "ios-xe", "routeros"] {
        let output = run(&["plan", path, "--config", language]);
        assert!(output.status.success() && text(&output.stdout).contains("FILL-IN-1"), "{language}");
        assert!(text(&output.stderr).contains("--interfaces"), "{language}");
    }
    let wrong = run(&["plan", path, "--config", "frr", "--interfaces", "ens1"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(!touched.exists(), "no command of the suite runs");
}

#[test]
fn a_plan_says_how_much_memory_guests_take() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("guests.yaml");
    let text_of_suite = "suite: guests\nduts:\n  - {name: row, kind: uml, memory: 256, topology: {chain: 3}}\n  - {name: one, kind: uml}\nports:\n  \
        - {name: p1, speed: 1 Gbit/s, ipv6: off, core: [ospf, ldp]}\n  - {name: p2, speed: 1 Gbit/s, ipv6: off, core: [ospf, ldp]}\ntests: [ldp_capacity]\n";
    std::fs::write(&path, text_of_suite).unwrap();
    let said = good(&run(&["plan", path.to_str().unwrap()]));
    for expected in [
        "row  uml  3 routers with up to 256 MiB of memory each, 768 MiB in all\n",
        "one  uml  up to 512 MiB of memory\n",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
}

#[test]
fn a_plan_says_which_labels_are_swapped_popped_and_pushed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("labels.yaml");
    let text_of_suite = "suite: labels\nduts: [{name: a, kind: reference}]\nports:\n  - {name: p1, speed: 1 Gbit/s}\n  - name: p2\n    speed: 1 Gbit/s\n    \
        labels: [{label: 100, out: [200]}, {label: 101}, {label: 102, out: [201, 301]}, {to: 10.99.0.0/24, out: [300]}]\n\
        tests: [throughput]\n";
    std::fs::write(&path, text_of_suite).unwrap();
    let said = good(&run(&["plan", path.to_str().unwrap()]));
    for expected in
        ["100: swap to 200, to ", "101: pop, to ", "102: swap to 301, push 201, to ", "10.99.0.0/24: push 300, to "]
    {
        assert!(said.contains(expected), "{expected}: {said}");
    }
}

#[test]
fn a_plan_says_which_vrfs_and_protocols_the_router_needs() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vpns.yaml");
    let text_of_suite = "suite: vpns\nduts: [{name: a, kind: reference}]\nports:\n  - {name: p1, speed: 1 Gbit/s, ipv6: off, customers: 3}\n  - \
        {name: p2, speed: 1 Gbit/s, ipv6: off, mtu: 1600, core: [ospf, ldp]}\ntests: [vpn_scale]\n";
    std::fs::write(&path, text_of_suite).unwrap();
    let path = path.to_str().unwrap();
    let said = good(&run(&["plan", path]));
    for expected in [
        "ospf, ldp with 198.19.1.2 (router 100.127.1.1)",
        "AS 65000: 100.127.1.2 behind it; VPN-IPv4 routes, internal",
        "v1 to v3 on VLAN 101 to 103: 192.168.0.1/30, CE router 192.168.0.2 (AS 65100), RD 100.127.255.1:1 to 100.127.255.1:3, route target 65000:1 to 65000:3",
        "100.127.255.1/32, router ID and LSR-ID",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    for language in ["frr", "iosxr", "junos", "sros"] {
        let said = good(&run(&["plan", path, "--config", language, "--interfaces", "eth1,eth2"]));
        assert!(said.contains("100.127.255.1") && said.contains("65000:3"), "{language}: {said}");
        assert!(!said.contains("bfd"), "{language}: {said}");
    }
    let with_bfd = text_of_suite.replace("customers: 3", "customers: {count: 3, bfd: true}");
    std::fs::write(path, with_bfd).unwrap();
    let said = good(&run(&["plan", path]));
    assert!(said.contains("CE router 192.168.0.2 (AS 65100, BFD)"), "{said}");
    let lines = [
        ("frr", " neighbor 192.168.0.2 bfd\n", 3),
        ("frr", "bfdd=yes", 1),
        ("iosxr", "   bfd fast-detect\n", 3),
        ("junos", "bfd-liveness-detection {", 3),
        ("sros", "bfd-liveness true", 3),
    ];
    for (language, line, times) in lines {
        let said = good(&run(&["plan", path, "--config", language, "--interfaces", "eth1,eth2"]));
        assert_eq!(said.matches(line).count(), times, "{language}: {said}");
    }
}

#[test]
fn a_report_runs_no_command_of_the_suite() {
    let dir = tempfile::tempdir().unwrap();
    let touched = dir.path().join("touched");
    let hook = format!("touch {}", touched.display());
    let dut = format!(
        "  - {{name: box, kind: external, interfaces: [eth1, eth2], setup: {hook}, teardown: {hook}, alive: {hook}, counters: {hook}}}\n"
    );
    let suite = suite(dir.path(), &dut, "  - throughput\n");
    // A run of a simulated router, with this suite in its folder and in the record of its DUT.
    let out = dir.path().join("out");
    std::fs::create_dir(&out).unwrap();
    std::fs::copy(&suite, out.join("suite.yaml")).unwrap();
    let lines = std::fs::read_to_string(stored().join("run.jsonl")).unwrap();
    let mut changed = 0;
    let lines = lines.lines().map(|line| {
        let mut record: serde_json::Value = serde_json::from_str(line).unwrap();
        if kind_of(&record) == "dut" {
            record["kind"] = "external".into();
            record["config"] = serde_json::json!({"setup": hook, "teardown": hook, "alive": hook, "counters": hook});
            changed += 1;
        }
        format!("{record}\n")
    });
    std::fs::write(out.join("run.jsonl"), lines.collect::<String>()).unwrap();
    assert!(changed > 0);
    good(&run(&["report", out.to_str().unwrap()]));
    assert!(std::fs::read_to_string(out.join("report.html")).unwrap().contains(&hook));
    assert!(!touched.exists(), "no command of the suite runs");
}

#[test]
fn a_parameter_can_be_set_on_the_command_line() {
    let dir = tempfile::tempdir().unwrap();
    let path =
        suite(dir.path(), "  - {name: known, kind: reference}\n", "  - forwarding_rate: {trial_duration: 1 ms}\n");
    let (path, out) = (path.to_str().unwrap(), dir.path().join("out"));
    let set = "forwarding_rate.frame_sizes=[128]";
    assert!(run(&["run", path, "--set", set, "--out", out.to_str().unwrap()]).status.success());
    let tests: Vec<_> = records(&out).into_iter().filter(|record| kind_of(record) == "test").collect();
    assert_eq!(tests[0]["parameters"]["frame_sizes"], serde_json::json!(["128"]), "{}", tests[0]["parameters"]);
    for (set, word) in [
        ("forwarding_rate.frame_size=[64]", "frame_sizes"),
        ("latency.loads=[1]", "no such test"),
        ("x", "test.key=value"),
    ] {
        refused(&run(&["check", path, "--set", set]), 2, word);
    }
}

#[test]
fn a_first_suite_is_written_once_and_is_good() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("mine.yaml");
    let file = file.to_str().unwrap();
    let init = |ports: &str| run(&["init", "--ports", ports, "--out", file]);
    let even = "\n  help: write 2, 4 or another even number; or 1 with `vlans: ";
    for (ports, word) in [("lo", even), ("a b,c", "not the name of an interface"), ("lo,lo", "lo")] {
        refused(&init(ports), 2, word);
        assert!(!Path::new(file).exists(), "{ports}");
    }
    assert_eq!(init("nosuch0,nosuch1").status.code(), Some(0));
    let written = std::fs::read_to_string(file).unwrap();
    assert!(written.contains("interfaces: [nosuch0, nosuch1]") && written.contains("assumed"), "{written}");
    assert!(run(&["check", file]).status.success());
    refused(&init("nosuch2,nosuch3"), 2, "exists");
    assert_eq!(std::fs::read_to_string(file).unwrap(), written);
    let nobody = run(&["init", "--out", dir.path().join("other.yaml").to_str().unwrap()]);
    assert_eq!(nobody.status.code(), Some(2), "nobody is there to ask");
}
