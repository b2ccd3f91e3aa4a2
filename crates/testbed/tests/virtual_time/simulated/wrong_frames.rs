//! Idle traffic and error frames on reference devices with known answers: one that follows the RFCs, and ones with a
//! single fault, which the test must name.

use crate::common::*;
use drophammer_model::outcome::{Cell, Outcome};

fn outcome(device: &str, test: &str) -> (Outcome, Memory) {
    let suite = suite(device, &format!("tests:\n  - {test}\n"));
    let mut memory = Memory::default();
    let tally = run(&suite, &mut memory).unwrap();
    assert_eq!((tally.completed, tally.failed), (1, 0), "{device}: {:?}", memory.tests().last().map(|t| &t.status));
    let name = test.split(':').next().unwrap();
    (memory.outcome(name).clone(), memory)
}

/// A column as text, by the cell of another column.
fn column(outcome: &Outcome, table: &str, key: &str, of: &str) -> Vec<(String, String)> {
    let t = outcome.tables.iter().find(|t| t.key == table).unwrap();
    let at = |key| t.columns.iter().position(|c| c.key == key).unwrap_or_else(|| panic!("no column {key}"));
    let text = |cell: &Cell| match cell {
        Cell::Count(n) => n.to_string(),
        Cell::Number(x) => x.to_string(),
        Cell::Text(text) => text.clone(),
        Cell::None => String::new(),
    };
    t.rows.iter().map(|row| (text(&row.cells[at(key)]), text(&row.cells[at(of)]))).collect()
}

fn of(outcome: &Outcome, kind: &str, what: &str) -> String {
    let all = column(outcome, "error_frames", "kind", what);
    all.into_iter().find(|(name, _)| name == kind).unwrap_or_else(|| panic!("no {kind}")).1
}

fn rank(outcome: &Outcome, key: &str) -> f64 {
    outcome.ranks.iter().find(|r| r.key == key).unwrap().value.unwrap()
}

/// Kinds that were sent and have a verdict other than "as wanted".
fn wrong(outcome: &Outcome) -> Vec<(String, String)> {
    let all = column(outcome, "error_frames", "kind", "verdict");
    all.into_iter().filter(|(_, verdict)| verdict != "as wanted" && !verdict.starts_with("not sent")).collect()
}

const ERRORS: &str = "error_frames: {frames: 7, trial_duration: 100 ms, drain: 10 ms, pause: 1 ms}";

#[test]
fn a_device_that_does_as_it_must_is_right_in_every_kind() {
    let (outcome, memory) = outcome("", ERRORS);
    assert_eq!(wrong(&outcome), []);
    assert_eq!(rank(&outcome, "error_kinds_wrong"), 0.0);
    assert_eq!(column(&outcome, "error_frames", "kind", "sent").len(), 30);
    // A trial without wrong frames, and one for each kind except the FCS.
    assert_eq!(memory.trials().len(), 30);
    assert!(memory.trials().iter().all(|t| t.result.lost() == 0 && t.result.validity.is_valid()));
    assert_eq!(of(&outcome, "bad FCS", "sent"), "0");
    assert!(of(&outcome, "bad FCS", "verdict").contains("no backend of the tester"));
    // Frame by frame, with the counter that shows it.
    for (kind, counter, answers) in [
        ("runt", "truth.ignored +7, truth.runts +7", ""),
        ("giant", "truth.giants +7, truth.ignored +7", ""),
        ("header checksum", "truth.dropped.checksum +7", ""),
        ("version 6", "truth.dropped.malformed +7", ""),
        ("header length 16", "truth.dropped.malformed +7", ""),
        ("header longer than the packet", "truth.dropped.malformed +7", ""),
        ("total length beyond the frame", "truth.dropped.malformed +7", ""),
        ("total length below the header", "truth.dropped.malformed +7", ""),
        ("TTL 1", "truth.dropped.ttl +7", "7 time exceeded (11/0)"),
        ("TTL 0", "truth.dropped.ttl +7", "7 time exceeded (11/0)"),
        ("loose source route", "truth.dropped.source_route +7", ""),
        ("strict source route", "truth.dropped.source_route +7", ""),
        ("source 240.0.0.1", "truth.ignored +7, truth.martians +7", ""),
        ("destination broadcast", "truth.ignored +7, truth.martians +7", ""),
        ("version 4", "truth.dropped.malformed +7", ""),
        ("payload length beyond the frame", "truth.dropped.malformed +7", ""),
        ("hop limit 1", "truth.dropped.ttl +7", "7 time exceeded (3/0)"),
        ("unknown header in transit", "", ""),
        ("unknown header for the router", "truth.control +7", "7 parameter problem (4/1)"),
        ("routing type 0", "truth.control +7", "7 parameter problem (4/0)"),
        ("hop-by-hop not first", "truth.control +7", "7 parameter problem (4/1)"),
    ] {
        assert_eq!(of(&outcome, kind, "sent"), "7", "{kind}");
        assert_eq!(
            (of(&outcome, kind, "counters"), of(&outcome, kind, "answers")),
            (counter.into(), answers.into()),
            "{kind}"
        );
        let forwarded = if kind == "unknown header in transit" { 7 } else { 0 };
        assert_eq!(of(&outcome, kind, "forwarded"), forwarded.to_string(), "{kind}");
        assert_eq!(of(&outcome, kind, "dropped"), (7 - forwarded).to_string(), "{kind}");
        assert_eq!(
            (of(&outcome, kind, "good_lost"), of(&outcome, kind, "altered")),
            ("0".into(), "0".into()),
            "{kind}"
        );
    }
}

#[test]
fn each_kind_that_a_device_forwards_wrongly_is_named_and_no_other() {
    let forwarded = "forwarded 7 of 7".to_owned();
    let all = |kinds: &[&str]| kinds.iter().map(|kind| ((*kind).to_owned(), forwarded.clone())).collect::<Vec<_>>();
    for (fault, kinds) in [
        ("runt", all(&["runt"])),
        ("giant", all(&["giant"])),
        ("checksum", all(&["header checksum"])),
        ("source_route", all(&["loose source route", "strict source route"])),
        ("ttl", all(&["TTL 1", "TTL 0", "hop limit 1", "hop limit 0"])),
    ] {
        let (outcome, _) = outcome(&format!(", forwards_wrong: {fault}"), ERRORS);
        assert_eq!(wrong(&outcome), kinds, "{fault}");
        assert_eq!(rank(&outcome, "error_kinds_wrong"), kinds.len() as f64);
        // Still with the same error.
        assert_eq!(of(&outcome, &kinds[0].0, "altered"), "0", "{fault}");
    }
    // Frames to an address that no host has find no route.
    let (outcome, _) = outcome(", forwards_wrong: martian", ERRORS);
    let sources = ["0.0.0.0", "127.0.0.1", "240.0.0.1", "multicast", "broadcast"].map(|of| format!("source {of}"));
    let found = wrong(&outcome);
    assert_eq!(found[..5], all(&sources.each_ref().map(String::as_str)));
    assert_eq!(
        found[5..],
        [("destination broadcast".into(), "answered 7 times with destination unreachable (3/0)".into())]
    );
    assert_eq!(of(&outcome, "destination 240.0.0.1", "answers"), "7 destination unreachable (3/0)");
}

#[test]
fn one_icmp_error_too_many_is_counted() {
    // The errors are numbered over the run: TTL 1 has 1 to 7, TTL 0 8 to 14, hop limit 1 15 to 21.
    let (outcome, _) = outcome(", icmp_twice_every: 9", ERRORS);
    let one = "1 ICMP errors too many".to_owned();
    let kinds = ["TTL 0", "hop limit 1", "hop limit 0", "unknown header for the router"];
    let found = wrong(&outcome);
    assert_eq!(found[..3], kinds[..3].iter().map(|kind| ((*kind).to_owned(), one.clone())).collect::<Vec<_>>());
    assert_eq!(of(&outcome, "TTL 0", "answered"), "8");
    assert_eq!(of(&outcome, "TTL 1", "answered"), "7");
}

#[test]
fn a_device_that_says_nothing_and_one_that_says_less_are_not_the_same() {
    let (silent, _) = outcome(", no_icmp: true", ERRORS);
    let kinds: Vec<String> = wrong(&silent).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(
        kinds,
        [
            "TTL 1",
            "TTL 0",
            "hop limit 1",
            "hop limit 0",
            "unknown header for the router",
            "routing type 0",
            "hop-by-hop not first"
        ]
    );
    assert_eq!(of(&silent, "TTL 1", "verdict"), "no ICMP 11/0");
    // The RFCs require a rate limit.
    let (limited, _) =
        outcome(", icmp_errors: 20", "error_frames: {frames: 50, trial_duration: 1 s, families: [ipv4], pause: 1 s}");
    assert_eq!(wrong(&limited), []);
    let answered: u64 = of(&limited, "TTL 1", "answered").parse().unwrap();
    assert!((20..50).contains(&answered), "{answered}");
    let table = &limited.tables[0];
    let row = table.rows.iter().find(|row| row.cells[0] == "TTL 1".into()).unwrap();
    assert!(row.marks.iter().any(|mark| mark.contains("rate limit")), "{:?}", row.marks);
}

#[test]
fn good_frames_that_are_lost_beside_wrong_ones_spoil_the_verdict() {
    let (outcome, _) = outcome(", drop_after: 400 ms, drop_for: 100 ms", ERRORS);
    let found = wrong(&outcome);
    assert!(!found.is_empty() && found.len() <= 2, "{found:?}");
    assert!(found.iter().all(|(_, verdict)| verdict.ends_with("good frames lost")), "{found:?}");
}

#[test]
fn idle_traffic_is_counted_to_the_frame() {
    let (outcome, memory) = outcome(", own_frames: 400 ms", "idle_traffic: {duration: 10 s}");
    assert!(memory.trials().is_empty());
    let frames = column(&outcome, "idle_traffic", "protocol", "frames");
    let lldp: Vec<_> = frames.iter().filter(|(name, _)| name == "LLDP").collect();
    assert_eq!(lldp, [&("LLDP".to_owned(), "25".to_owned())], "{frames:?}");
    assert_eq!(rank(&outcome, "idle_frames_per_minute"), 150.0);
    let row = outcome.tables[0].rows.iter().find(|row| row.cells[1] == "LLDP".into()).unwrap();
    let line = 25.0 * 84.0 * 8.0 / (1e8 * 10.0) * 100.0;
    assert_eq!(row.cells[..5], ["p1".into(), "LLDP".into(), Cell::Count(25), Cell::Count(0), Cell::Count(25 * 64)]);
    assert_eq!(row.cells[5], Cell::Number(150.0));
    assert_eq!(row.cells[6], Cell::Count(3), "at 0.4 s from each other");
    assert_eq!(row.cells[7], Cell::Number(line));
    // There is no kernel between the device and the tester.
    assert_eq!(row.cells[8..], [Cell::None]);
    // All other frames answer the tester.
    let answers = column(&outcome, "idle_traffic", "frames", "answers");
    let unasked: u64 = answers.iter().map(|(n, a)| n.parse::<u64>().unwrap() - a.parse::<u64>().unwrap()).sum();
    assert_eq!(unasked, 25);
}

#[test]
fn what_the_tester_asked_for_is_no_idle_traffic() {
    // The tester asks for the MAC address of the device every 20 s, which also keeps the device's neighbours alive.
    let (outcome, _) = outcome("", "idle_traffic: {duration: 100 s, families: [ipv4]}");
    let replies = vec![("ARP reply".to_owned(), "5".to_owned()); 2];
    assert_eq!(column(&outcome, "idle_traffic", "protocol", "frames"), replies);
    assert_eq!(column(&outcome, "idle_traffic", "protocol", "answers"), replies);
    assert_eq!(rank(&outcome, "idle_frames_per_minute"), 0.0);
    // No frames in a time without requests.
    let (outcome, _) = outcome_of_a_second();
    assert_eq!(column(&outcome, "idle_traffic", "port", "protocol"), ["p1", "p2"].map(|p| (p.into(), "none".into())));
}

fn outcome_of_a_second() -> (Outcome, Memory) {
    outcome("", "idle_traffic: {duration: 1 s, families: [ipv4]}")
}
