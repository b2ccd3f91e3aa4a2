//! Watching a run: its page on loopback, its metrics, its events as JSON.

use crate::common::{drophammer, good, kind_of, records, run_suite, suite};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

/// Requests a path of the page of a run.
fn get(port: u16, path: &str) -> std::io::Result<String> {
    let mut connection = TcpStream::connect(("127.0.0.1", port))?;
    write!(connection, "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n")?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
#[ignore = "long: `make test-all` runs it"]
fn the_page_of_a_run_in_namespaces_is_reached_from_outside() {
    let folder = tempfile::tempdir().unwrap();
    let path = suite(
        folder.path(),
        "  - {name: box, kind: linux}\n",
        "  - forwarding_rate: {frame_sizes: [64], repeats: 5, trial_duration: 100 ms}\n",
    );
    let out = folder.path().join("out");
    let mut child = drophammer()
        .args(["run", path.to_str().unwrap(), "--out", out.to_str().unwrap(), "--live", "--plain", "--busy-host"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the run starts");
    let mut told = BufReader::new(child.stderr.take().unwrap()).lines();
    let address = told.find_map(|line| line.unwrap().strip_prefix("live page: ").map(str::to_owned)).unwrap();
    assert!(!address.contains('#'), "no token where standard error is not a terminal: {address}");
    let port: u16 = address.trim_end_matches('/').rsplit(':').next().unwrap().parse().unwrap();
    assert!(get(port, "/").unwrap().contains("page.js"));
    // Until the first trial is reported.
    let mut after = 0;
    let mut seen: Vec<Value> = Vec::new();
    while !seen.iter().any(|event| event["event"] == "trial" && event["dut"] == "box") {
        let Ok(answer) = get(port, &format!("/events?after={after}")) else { break };
        let body: Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
        after = body["last"].as_u64().unwrap();
        seen.extend(body["events"].as_array().unwrap().iter().cloned());
        std::thread::yield_now();
    }
    assert_eq!(seen[0]["event"], "started");
    if !seen.iter().any(|event| event["event"] == "trial" && event["dut"] == "box") {
        let rest: Vec<String> = told.map_while(Result::ok).collect();
        panic!("the page ended after {seen:?}; the run says {rest:#?}");
    }
    // Read the rest, so that the run does not block.
    let rest = std::thread::spawn(move || told.count());
    assert!(child.wait().unwrap().success());
    rest.join().unwrap();
    assert!(get(port, "/").is_err(), "the page ends with the run");
}

#[test]
fn events_are_printed_as_json() {
    let folder = tempfile::tempdir().unwrap();
    let duts = "  - {name: known, kind: reference, capacity: 100 kfps}\n";
    let path = suite(folder.path(), duts, "  - forwarding_rate: {frame_sizes: [64], repeats: 2}\n");
    let out = folder.path().join("out");
    let events: Vec<Value> = good(&run_suite(&path, &out, &["--json"]))
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
        .collect();
    let of = |kind: &str| events.iter().filter(|event| event["event"] == kind).collect::<Vec<_>>();
    assert_eq!(events[0]["event"], "started");
    assert_eq!(events.last().unwrap()["event"], "report");
    assert_eq!(of("trial").len(), 2);
    let ended = of("test_ended");
    assert_eq!((ended.len(), &ended[0]["status"]), (1, &Value::from("completed")));
    assert_eq!(ended[0]["figures"][0]["unit"], "fps per port");
    assert_eq!(of("ended").len(), 1);
}

#[test]
#[ignore = "long: `make test-all` runs it"]
fn rates_of_a_trial_are_told_each_second_and_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let duts = "  - {name: known, kind: reference, capacity: 100 kfps}\n";
    let path = suite(folder.path(), duts, "  - forwarding_rate: {repeats: 1, trial_duration: 10 s}\n");
    let trial = |name: &str, more: &[&str]| {
        let out = folder.path().join(name);
        let told = good(&run_suite(&path, &out, more));
        let trial = records(&out).into_iter().find(|record| kind_of(record) == "trial").unwrap();
        (trial["result"].clone(), told)
    };
    let (watched, told) = trial("watched", &["--json"]);
    let (alone, _) = trial("alone", &[]);
    assert_eq!(watched, alone);
    let events: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let place = events.iter().position(|event| event["event"] == "trial").unwrap();
    let rates: Vec<&Value> = events.iter().filter(|event| event["event"] == "rates").collect();
    assert!(!rates.is_empty() && events[place..].iter().all(|event| event["event"] != "rates"), "{told}");
    let trial = &events[place];
    let mut before = 0.0;
    for event in rates {
        let of = |key: &str| event[key].as_f64().unwrap_or_else(|| panic!("{key}: {event}"));
        assert!(of("elapsed_s") > before && (of("left_s") - (10.0 - of("elapsed_s"))).abs() < 1e-6, "{event}");
        before = of("elapsed_s");
        assert!((of("offered_fps") / trial["offered_fps"].as_f64().unwrap() - 1.0).abs() < 0.01, "{event}");
        assert!((of("received_fps") - 100_000.0).abs() < 2_000.0, "{event}");
        assert!(of("offered") <= trial["offered"].as_f64().unwrap() && of("lost") <= trial["lost"].as_f64().unwrap());
        // Frames that are neither received nor lost yet wait in the router.
        assert!((of("offered") - of("received") - of("lost")).abs() < 20_000.0, "{event}");
        assert_eq!((&event["dut"], &event["test"]), (&"known".into(), &"forwarding_rate".into()));
    }
}
