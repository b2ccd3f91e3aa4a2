//! Tests by frame size over BGP routes, fully meshed: the rates of the device, over a table that is verified before and after.

use super::*;

/// Capacity of the device, for all four ports together.
const CAPACITY: f64 = 40_000.0;

fn over_routes(device: &str, bgp: &str, more: &str) -> Memory {
    let params = format!(", capacity: {CAPACITY} fps, buffer: 20, delay: 10 us{device}");
    let test = format!(
        "  - throughput: {{frame_sizes: [128], distribution: fully_meshed, routes: 402, pause: 1 ms, width: 0.5{more}}}\n"
    );
    run_all(&params, 4, &format!("{{families: [ipv4, ipv6]{bgp}}}"), &test)
}

fn table(outcome: &Outcome) -> Vec<Vec<f64>> {
    let table = outcome.tables.iter().find(|t| t.key == "routed").unwrap();
    let number = |cell: &Cell| match cell {
        Cell::Count(n) => *n as f64,
        Cell::Number(x) => *x,
        _ => f64::NAN,
    };
    // Routes, ports, routes to verify, per cent right before, right after, sessions lost.
    let row = |row: &Row| [1, 2, 4, 5, 6, 7].map(|at| number(&row.cells[at])).to_vec();
    table.rows.iter().map(row).collect()
}

#[test]
fn every_port_sends_to_the_routes_behind_every_other_one() {
    let memory = over_routes("", "", "");
    let record = memory.tests()[0];
    assert_eq!(record.status, TestStatus::Completed, "{:?}", record.outcome.notes);
    // Each of four ports sends a quarter of what the box forwards.
    let found = record.outcome.ranks.iter().find(|r| r.key == "throughput_128_pps").unwrap().value.unwrap();
    assert!((found * 4.0 / CAPACITY - 1.0).abs() < 0.01, "{found}");
    // The three other ports receive each route.
    assert_eq!(table(&record.outcome), [[402.0, 4.0, 1_206.0, 100.0, 100.0, 0.0]]);
    // Every one of them also gets a frame.
    let notes = &record.outcome.notes;
    assert!(notes.iter().any(|note| note.ends_with("at the throughput: frames to 402 of 402 routes.")), "{notes:?}");
    let searched: Vec<_> =
        memory.trials().into_iter().filter(|t| t.test == "throughput" && t.spec.flows.len() == 12).collect();
    assert!(!searched.is_empty());
    for trial in searched {
        let to_first: Vec<u64> =
            trial.spec.flows.iter().filter(|f| f.to == 0).map(|f| f.destinations.count().into()).collect();
        assert_eq!(to_first, [100; 3]);
        assert_eq!((trial.result.sum(|g| g.stray), trial.result.senders), (0, 4));
        let ways = &trial.result.ways;
        assert_eq!(ways.iter().map(|way| way.offered).sum::<u64>(), trial.result.offered());
        assert_eq!(ways.iter().map(|way| way.received).sum::<u64>(), trial.result.received());
        let offered = || ways.iter().map(|way| way.offered);
        assert!(ways.len() == 12 && offered().max() <= offered().min().map(|least| least + 1), "{ways:?}");
    }
}

#[test]
fn both_families_have_a_table_of_their_own() {
    let memory = over_routes("", "", ", families: [ipv4, ipv6]");
    let record = memory.tests()[0];
    assert_eq!(record.status, TestStatus::Completed, "{:?}", record.outcome.notes);
    assert_eq!(table(&record.outcome), [[402.0, 4.0, 1_206.0, 100.0, 100.0, 0.0]; 2]);
}

/// A router that does not pass on every route has no rate over routes.
#[test]
fn a_table_that_is_not_whole_is_no_base_of_a_rate() {
    let memory = over_routes(", route_lost_every: 400", "", "");
    let TestStatus::Failed(why) = &memory.tests()[0].status else { panic!("{:?}", memory.tests()[0].status) };
    assert!(why.starts_with("the router did not pass the table on to every port: 1 missing"), "{why}");
    assert!(memory.tests()[0].outcome.ranks.is_empty());
}

/// A router that loses its sessions during the test is reported.
#[test]
fn a_session_that_ends_during_the_test_is_told() {
    let memory =
        over_routes(", bgp_hold_silence: true", ", hold_time: 3 s", ", max_load: 5 kfps, final_trial_duration: 5 s");
    let record = memory.tests()[0];
    let row = &table(&record.outcome)[0];
    assert!(row[4] < 100.0 && row[5] > 0.0, "{row:?}, {:?}", record.outcome.notes);
    assert!(record.outcome.notes.iter().any(|note| note.contains("went down")), "{:?}", record.outcome.notes);
}

/// Three senders to each port: 10 frames of each go to 30 of its routes, and not to the same 10.
#[test]
fn routes_that_get_no_frame_are_told() {
    let test = "  - latency: {frame_sizes: [128], distribution: fully_meshed, routes: 402, pause: 1 ms, max_load: 1 kfps, \
                loads: [100], compare_at: 100 fps, trial_duration: 300 ms}\n";
    let memory = run_all("", 4, "{families: [ipv4]}", test);
    let outcome = &memory.tests()[0].outcome;
    assert_eq!(memory.tests()[0].status, TestStatus::Completed, "{:?}", outcome.notes);
    // 300 frames from each port at 1,000 fps, 30 at 100 fps.
    let of = |at: &str, routes: u32| {
        let text = format!("128 bytes: at {at}: frames to {routes} of 402 routes.");
        assert!(outcome.notes.contains(&text), "{text} {:?}", outcome.notes);
    };
    of("100 %", 402);
    of("100 fps", 120);
    let rows = &outcome.tables.iter().find(|table| table.key == "latency").unwrap().rows;
    let marks: Vec<_> = rows.iter().map(|row| row.marks.clone()).collect();
    assert_eq!(marks, [vec![], vec!["frames to 120 of 402 routes".to_owned()]]);
}

/// A test with its own frame sizes uses the same routes.
#[test]
fn order_is_looked_at_over_the_same_routes() {
    let test = "  - packet_order: {frame_sizes: [128], distribution: fully_meshed, routes: 402, loads: [10], repeats: 1, pause: 1 ms}\n";
    let memory = run_all("", 4, "{families: [ipv4]}", test);
    let record = memory.tests()[0];
    assert_eq!(record.status, TestStatus::Completed, "{:?}", record.outcome.notes);
    assert_eq!(table(&record.outcome), [[402.0, 4.0, 1_206.0, 100.0, 100.0, 0.0]]);
    let trial = memory.trials().into_iter().rfind(|t| t.test == "packet_order").unwrap();
    assert_eq!((trial.spec.flows.len(), trial.result.ways.len()), (12, 12));
    let aimed: u64 = trial.spec.flows.iter().map(|flow| u64::from(flow.destinations.count())).sum();
    assert_eq!(aimed, 3 * 402);
}

/// The frames of the next test are addressed to hosts again.
#[test]
fn routes_are_gone_after_the_test() {
    let tests = "  - throughput: {frame_sizes: [64], routes: 40, pause: 1 ms, max_load: 1 kfps}\n  \
                 - forwarding_rate: {frame_sizes: [64], pause: 1 ms, repeats: 1}\n";
    let memory = run_all("", 2, "{}", tests);
    assert!(memory.tests().iter().all(|test| test.status == TestStatus::Completed));
    let aimed = |test: &str| {
        let trial = memory.trials().into_iter().rfind(|t| t.test == test).unwrap();
        serde_json::to_value(&trial.spec.flows[0].destinations).unwrap().to_string()
    };
    assert!(aimed("throughput").contains("routes"), "{}", aimed("throughput"));
    assert!(!aimed("forwarding_rate").contains("routes"), "{}", aimed("forwarding_rate"));
}

/// Consecutive tests with the same table load it once. A test with other routes has the DUT for itself.
#[test]
fn a_table_stays_for_the_next_test_that_wants_it() {
    let of = "frame_sizes: [128], distribution: fully_meshed, routes: 402, pause: 1 ms";
    let tests = format!(
        "  - throughput: {{{of}, width: 0.5, max_load: 1 kfps}}\n  \
           - forwarding_rate: {{{of}, repeats: 1}}\n  \
           - bgp_table_capacity: {{step: 100, max_routes: 200}}\n  \
           - forwarding_rate: {{{of}, repeats: 1}}\n"
    );
    let memory = run_all("", 4, "{families: [ipv4]}", &tests);
    let records = memory.tests();
    for record in &records {
        assert_eq!(record.status, TestStatus::Completed, "{}: {:?}", record.test, record.outcome.notes);
    }
    for (at, kept) in [(0, false), (1, true), (3, false)] {
        let outcome = &records[at].outcome;
        assert_eq!(table(outcome), [[402.0, 4.0, 1_206.0, 100.0, 100.0, 0.0]], "{at}");
        let row = &outcome.tables.iter().find(|t| t.key == "routed").unwrap().rows[0];
        let is_kept = row.marks.iter().any(|mark| mark == "kept from the test before");
        assert_eq!((is_kept, row.cells[3] == Cell::None), (kept, kept), "{at}: {row:?}");
    }
    // While the device is filled with other routes it holds no other table.
    let capacity = records[2].outcome.ranks.iter().find(|r| r.key == "bgp_capacity_ipv4_routes").unwrap();
    assert_eq!(capacity.value, Some(200.0));
}
