//! The test `class_of_service` on the links between reference devices in virtual time: shares and drops of each link to
//! the frame, and routers that apply wrong classes there.

use crate::common::*;
use drophammer_methods::{METHODS, Setting, TestError, Testbed};
use drophammer_model::classes::WayOut;
use drophammer_model::outcome::{Cell, Outcome};
use drophammer_model::record::{ClassRecord, CoreLinkRecord, Record, TestStatus};
use drophammer_model::suite::Suite;
use drophammer_model::topology::{CoreLinkName, CoreWay};
use drophammer_model::trial::Family;
use drophammer_port::Port;
use drophammer_reference::{ClassFaults, Faults};
use drophammer_rig::{Ports, Rig};
use drophammer_testbed::Session;
use drophammer_testbed::config::hosts_and_routers;
use drophammer_testbed::setup::TestSetup;
use drophammer_testbed::simulated;

const TEST: &str = "class_of_service";
const LINKS: &str = "class_of_service_links";
const LOSSES: &str = "class_of_service_losses";
/// Frames of 84 bytes of line that a link of 20 Mbit/s carries in half a second.
const HALF_A_SECOND: f64 = 20e6 / 672.0 / 2.0;
const AS_IT_MUST: &str = "as it must";

/// The test with these parameters on routers with a port of 100 Mbit/s each, and links of 20 Mbit/s between them.
fn suite(topology: &str, ports: usize, device: &str, params: &str) -> Suite {
    let ports: String = (1..=ports).map(|n| format!("  - {{name: p{n}, speed: 100 Mbit/s}}\n")).collect();
    read_suite(&format!(
        "suite: classes\nprofile: quick\nseed: 11\nduts:\n  - {{name: box, kind: reference, delay: 10 us{topology}{device}}}\nports:\n{ports}tests:\n  \
         - {TEST}: {{trial_duration: 500 ms, pause: 1 ms, {params}}}\n"
    ))
}

const MESH: &str = ", topology: {mesh: 4, core_speed: 20 Mbit/s}";

fn classes(device: &str, params: &str) -> Memory {
    let mut memory = Memory::default();
    run(&suite(MESH, 4, device, params), &mut memory).unwrap();
    memory
}

fn get(outcome: &Outcome, table: &str, row: usize, column: &str) -> f64 {
    cell(outcome, table, row, column).unwrap_or_else(|| panic!("row {row} of {table} has no {column}"))
}

fn text(outcome: &Outcome, table: &str, row: usize, at: usize) -> String {
    match &rows(outcome, table)[row].cells[at] {
        Cell::Text(text) => text.clone(),
        other => panic!("{other:?}"),
    }
}

fn verdicts(outcome: &Outcome, table: &str) -> Vec<String> {
    let rows = rows(outcome, table);
    (0..rows.len()).map(|row| text(outcome, table, row, rows[row].cells.len() - 1)).collect()
}

/// The row of a class on the way from one router to another at a load.
fn link_row(outcome: &Outcome, percent: f64, way: &str, class: &str) -> usize {
    let found = (0..rows(outcome, LINKS).len()).find(|row| {
        get(outcome, LINKS, *row, "load_percent") == percent
            && text(outcome, LINKS, *row, 2) == way
            && text(outcome, LINKS, *row, 4) == class
    });
    found.unwrap_or_else(|| panic!("no row of {class} on {way} at {percent} %"))
}

fn rank(outcome: &Outcome, key: &str) -> f64 {
    outcome.ranks.iter().find(|r| r.key == key).and_then(|r| r.value).unwrap_or_else(|| panic!("no {key}"))
}

fn links_down(memory: &Memory) -> Vec<&CoreLinkRecord> {
    memory.records.iter().filter_map(|r| if let Record::CoreLinks(links) = r { Some(links) } else { None }).collect()
}

fn classed(memory: &Memory) -> Vec<&ClassRecord> {
    memory.records.iter().filter_map(|r| if let Record::Classes(classes) = r { Some(classes) } else { None }).collect()
}

/// Ways on which detours around a link begin, and ways on which they end: 1-2 and 3-4 are down.
const FIRST: [&str; 4] = ["r1 to r4", "r2 to r3", "r3 to r2", "r4 to r1"];
const SECOND: [&str; 4] = ["r4 to r2", "r3 to r1", "r2 to r4", "r1 to r3"];
const NAMES: [&str; 3] = ["gold", "silver", "bronze"];

#[test]
fn each_overloaded_link_is_shared_by_weight_and_its_drops_are_what_was_lost() {
    let memory = classes("", "core_links_down: 2, overload: [150, 300]");
    let outcome = memory.outcome(TEST);
    assert_eq!(memory.tests()[0].status, TestStatus::Completed);
    for table in [TEST, LINKS, LOSSES] {
        assert!(verdicts(outcome, table).iter().all(|v| v == AS_IT_MUST), "{table}: {:?}", verdicts(outcome, table));
    }
    assert!(
        outcome.notes.iter().any(|note| note.starts_with("Links between routers that are down: 1-2, 3-4.")),
        "{:?}",
        outcome.notes
    );
    // Three loads, eight ways, three classes. By the routes all ways carry the same load.
    assert_eq!(rows(outcome, LINKS).len(), 3 * 8 * 3);
    for row in 0..rows(outcome, LINKS).len() {
        let percents = ["load_percent", "way_percent"].map(|column| get(outcome, LINKS, row, column));
        assert!((percents[0] - percents[1]).abs() < 1e-9, "row {row}: {percents:?}");
    }
    // Without overload nothing is dropped, and the frames of each class that arrive are those of 80 % of a link.
    for way in FIRST.iter().chain(&SECOND) {
        for class in NAMES {
            let row = link_row(outcome, 80.0, way, class);
            assert_eq!(get(outcome, LINKS, row, "dropped"), 0.0);
            let came = get(outcome, LINKS, row, "came");
            assert!((came - 0.8 * HALF_A_SECOND / 3.0).abs() < 4.0, "{came}");
        }
    }
    // At 150 % half of each link is gold, and all of it passes. Silver and bronze get the rest, four to one. Full
    // queues are empty at the end.
    let column = |way: &str, class: &str, column: &str| {
        get(outcome, LINKS, link_row(outcome, 150.0, way, class), column) / HALF_A_SECOND
    };
    let queue = 256.0 / HALF_A_SECOND;
    for way in FIRST.iter().chain(&SECOND) {
        for (class, expected) in NAMES.into_iter().zip([0.5, 0.4 + queue, 0.1 + queue]) {
            let left = column(way, class, "left");
            // The frames that leave the first links after the end of the load come to the second.
            assert!((left - expected).abs() < 0.008 + queue / 2.0, "{way}, {class}: {left}");
            let error = get(outcome, LINKS, link_row(outcome, 150.0, way, class), "error_points");
            assert!(error.abs() < 0.6, "{way}, {class}: {error}");
        }
    }
    for way in FIRST {
        NAMES.iter().for_each(|class| assert!((column(way, class, "came") - 0.5).abs() < 0.001, "{way}, {class}"));
    }
    // The losses of the first links do not reach the second: half a link of gold arrives, and less than that of silver
    // and bronze. Which of the frames of a class a router drops is not specified.
    for way in SECOND {
        let came = NAMES.map(|class| column(way, class, "came"));
        assert!(
            (came[0] - 0.5).abs() < 0.001 && came[1] < 0.499 && came[2] < 0.37 && came[2] > 0.25,
            "{way}: {came:?}"
        );
    }
    // All three classes offer a whole link: by their weights.
    for way in FIRST {
        for (class, expected) in NAMES.into_iter().zip([70.0, 20.0, 5.0]) {
            let share = get(outcome, LINKS, link_row(outcome, 300.0, way, class), "share_percent");
            assert!((share - expected / 0.95).abs() < 0.6, "{way}, {class}: {share}");
        }
    }
    // In total about as many frames arrive as one link lets pass.
    for (row, share) in (3..6).zip([50.0, 40.0, 10.0]) {
        assert!((get(outcome, TEST, row, "share_percent") - share).abs() < 3.0);
        assert!((get(outcome, TEST, row, "expected_percent") - share).abs() < 1e-6);
    }
    assert_eq!(get(outcome, TEST, 3, "lost"), 0.0);
    assert!(
        outcome.notes.iter().any(|note| note.contains("at 150 % gold : silver : bronze arrived as 70.0 : ")),
        "{:?}",
        outcome.notes
    );
    // The queues dropped the lost frames of each class, and the routers report them at all of their ports.
    for row in 0..9 {
        assert_eq!(get(outcome, LOSSES, row, "lost"), get(outcome, LOSSES, row, "dropped"));
    }
    assert!(get(outcome, LOSSES, 4, "lost") > 5_000.0 && get(outcome, LOSSES, 5, "lost") > 9_000.0);
    for trial in memory.trials() {
        let dropped = trial.result.dut_counters.get("truth.dropped.egress").copied().unwrap_or(0);
        assert_eq!(dropped, trial.result.lost());
        assert!(trial.classed && trial.links_down);
    }
    assert_eq!(rank(outcome, "class_of_service_ip40_loss_percent"), 0.0);
    assert!(rank(outcome, "class_of_service_ip40_error_points") < 0.6);
    // All traffic between routers except between those without a link: four of twelve pairs go over two links.
    let pps = rank(outcome, "class_of_service_ip40_pps");
    assert!((pps / (2.0 * HALF_A_SECOND) - 6.0).abs() < 0.3, "{pps}");

    // Set on each way that is up, and removed; then all links come up.
    let lists: Vec<usize> = classed(&memory).iter().map(|record| record.lists.len()).collect();
    assert_eq!(lists, [8, 0]);
    assert!(classed(&memory)[0].lists.iter().any(|list| list.at == WayOut::Core(CoreWay { from: 4, to: 1 })));
    let down: Vec<usize> = links_down(&memory).iter().map(|record| record.down.len()).collect();
    assert_eq!((down, &links_down(&memory)[0].down), (vec![2, 0], &vec![CoreLinkName(1, 2), CoreLinkName(3, 4)]));
}

#[test]
fn several_ports_at_a_router_and_both_families_cross_the_links_too() {
    let mut memory = Memory::default();
    let params = "core_links_down: [2-3], families: [ipv4, ipv6], frame_sizes: [78, 512], overload: [160], queue: 40";
    run(&suite(", topology: {mesh: 4, core_speed: 20 Mbit/s}, core_detection: 30 ms", 8, "", params), &mut memory)
        .unwrap();
    let outcome = memory.outcome(TEST);
    assert_eq!(memory.tests()[0].status, TestStatus::Completed);
    for table in [TEST, LINKS, LOSSES] {
        assert!(verdicts(outcome, table).iter().all(|v| v == AS_IT_MUST), "{table}: {:?}", verdicts(outcome, table));
    }
    // To r3 up the ring through r4, to r2 down through r1. These ways carry twice the load of the others.
    let twice = ["r2 to r4", "r4 to r3", "r3 to r1", "r1 to r2"];
    for way in ["r1 to r3", "r1 to r4", "r2 to r1", "r3 to r4", "r4 to r1", "r4 to r2"].iter().chain(&twice) {
        let row = link_row(outcome, 160.0, way, "gold");
        let expected = if twice.contains(way) { 160.0 } else { 80.0 };
        assert!((get(outcome, LINKS, row, "way_percent") - expected).abs() < 1e-9, "{way}");
        let dropped = get(outcome, LINKS, row + 2, "dropped");
        assert_eq!(dropped > 0.0, twice.contains(way), "{way}: {dropped}");
    }
    // Frames between the two ports of a router are not subject to the classes.
    let groups: Vec<&str> = memory.trials()[0].result.groups.iter().map(|group| group.group.as_str()).collect();
    assert!(groups.contains(&"gold") && groups.contains(&"gold at one router"), "{groups:?}");
}

#[test]
fn a_share_that_is_off_by_a_point_on_a_link_is_found() {
    let weights = "core_links_down: 2, classes: [{name: gold, precedence: 5, weight: 700}, {name: silver, dscp: 24, weight: 200}, {name: bronze, precedence: 0, weight: 50}]";
    // Half of a link is shared 200 to 60, not to 50.
    let memory = classes(", class_last_weight: 60", weights);
    let outcome = memory.outcome(TEST);
    for way in FIRST {
        let error = |class| get(outcome, LINKS, link_row(outcome, 150.0, way, class), "error_points");
        assert!(
            (error("silver") + 1.54).abs() < 0.35 && (error("bronze") - 1.54).abs() < 0.35,
            "{way}: {}",
            error("silver")
        );
        let verdict = text(outcome, LINKS, link_row(outcome, 150.0, way, "silver"), 11);
        assert!(verdict.ends_with("points too low"), "{verdict}");
    }
    assert!(verdicts(outcome, TEST)[4].starts_with("not as it must on "), "{:?}", verdicts(outcome, TEST));
    assert_eq!(verdicts(outcome, TEST)[3], AS_IT_MUST);
    assert!(rank(outcome, "class_of_service_ip40_error_points") > 1.2);
}

#[test]
fn links_without_classes_are_found() {
    let memory = classes(", classes_ignored: true", "core_links_down: 2, overload: [170]");
    let outcome = memory.outcome(TEST);
    assert!(rank(outcome, "class_of_service_ip40_loss_percent") > 10.0, "gold is no better than the others");
    assert!(verdicts(outcome, TEST)[3].contains("though it offers less than its share of every link"));
    let row = link_row(outcome, 170.0, "r1 to r4", "silver");
    assert_eq!(text(outcome, LINKS, row, 11), "no frame came to its queue");
    // All of them are in the only queue left, which has the name of the first class.
    assert!(text(outcome, LINKS, row - 1, 11).contains("frames came to its queue, by the routes"));
}

/// Each queue has room for all frames that its link cannot carry: links drop nothing at 150 %.
#[test]
fn links_that_drop_nothing_were_not_overloaded() {
    const NOT_OVERLOADED: &str = "not known: no link between routers dropped a frame, so none was overloaded";
    let params = "core_links_down: 2, queue: 8000";
    let memory = classes("", params);
    let outcome = memory.outcome(TEST);
    assert_eq!(memory.tests()[0].status, TestStatus::Completed);
    let found = verdicts(outcome, TEST);
    // Without overload nothing is to be dropped, and the classes are judged.
    assert_eq!(found[..3], [AS_IT_MUST; 3]);
    assert_eq!(found[3..], [NOT_OVERLOADED; 3]);
    for row in 0..rows(outcome, LINKS).len() {
        assert_eq!(get(outcome, LINKS, row, "dropped"), 0.0, "row {row}");
    }
    let has_no_figures = |outcome: &Outcome| {
        let why = "no link between routers dropped a frame, so none was overloaded";
        assert!(outcome.notes.iter().any(|note| note.contains(&format!("no figures: {why}"))), "{:?}", outcome.notes);
        let reasons = outcome.ranks.iter().map(|rank| rank.missing.as_ref().map(|missing| missing.why.as_str()));
        assert_eq!(reasons.collect::<Vec<_>>(), [Some(why); 3]);
    };
    has_no_figures(outcome);
    // A frame that is lost is lost, whatever the links carry. Each way loses its 8,000th frame of gold, which comes with
    // the overload.
    let lossy = classes(", class_drop_every: 8000", params);
    let outcome = lossy.outcome(TEST);
    let found = verdicts(outcome, TEST);
    assert_eq!(found[0], AS_IT_MUST);
    let less = "though it offers less than its share of every link";
    assert!(found[3].starts_with("lost ") && found[3].ends_with(less), "{found:?}");
    assert_eq!(found[4..], [NOT_OVERLOADED; 2]);
    has_no_figures(outcome);
}

/// The test on a bed in which only one router has faults.
fn with_faults_of(params: &str, router: usize, faults: Faults) -> (Outcome, Memory) {
    let suite = suite(MESH, 4, "", params);
    let dut = &suite.duts[0];
    let mut parts = simulated::build_system(dut, dut.topology.as_ref().unwrap(), &suite.ports, 1, suite.seed).unwrap();
    let ports = parts.ports.into_iter().map(|port| Box::new(port) as Box<dyn Port>).collect();
    let ports = Ports::One { ports, clock: Box::new(parts.clock) };
    let rig = Rig::new(ports, &hosts_and_routers(&suite.ports, &[Family::Ipv4], suite.seed));
    let mut session = Session::new(suite.seed, suite.profile, 5);
    let mut memory = Memory::default();
    let mut outcome = Outcome::default();
    let mut bed = TestSetup::new(&dut.name, &suite.ports, rig, &mut parts.device, &mut session, &mut memory);
    bed.await_forwarding(&[Family::Ipv4]).unwrap();
    parts.reference.change(|network| network.change(router, |one| one.set_faults(faults))).unwrap();
    let method = METHODS.iter().find(|method| method.spec().name == TEST).unwrap();
    method.run(&mut bed, &suite.tests[0].params, &mut outcome).unwrap();
    bed.end_test().unwrap();
    drop(bed);
    (outcome, memory)
}

#[test]
fn one_frame_of_gold_that_a_link_loses_is_found() {
    // r1 to r4 has 3,968 frames of gold without overload and 7,440 with; r1 to r3 half of that, because 3-4 is up.
    let faults = Faults { classes: ClassFaults { drop_every: 8_000, ..ClassFaults::default() }, ..Faults::default() };
    let (outcome, _) = with_faults_of("core_links_down: [1-2]", 0, faults);
    assert_eq!((get(&outcome, TEST, 0, "lost"), get(&outcome, TEST, 3, "lost")), (0.0, 1.0));
    assert_eq!(verdicts(&outcome, TEST)[3], "lost 1 frames, though it offers less than its share of every link");
    assert_eq!(verdicts(&outcome, LOSSES)[3], "1 lost frames are among no queue's drops");
    assert_eq!((get(&outcome, LOSSES, 3, "difference"), get(&outcome, LOSSES, 4, "difference")), (1.0, 0.0));
    assert!(rank(&outcome, "class_of_service_ip40_loss_percent") > 0.0);
    let (whole, _) = with_faults_of("core_links_down: [1-2]", 0, Faults::default());
    assert!(verdicts(&whole, TEST).iter().chain(&verdicts(&whole, LOSSES)).all(|verdict| verdict == AS_IT_MUST));
}

#[test]
fn links_come_up_again_whatever_becomes_of_the_test() {
    // The user stops the run while they are down.
    let suite = suite(MESH, 4, "", "core_links_down: 2");
    let mut stopped = Memory { stop_after: Some(1), ..Memory::default() };
    assert!(run(&suite, &mut stopped).is_err());
    assert_eq!(links_down(&stopped).iter().map(|record| record.down.len()).collect::<Vec<_>>(), [2, 0]);
    assert_eq!(classed(&stopped).iter().map(|record| record.lists.len()).collect::<Vec<_>>(), [8, 0]);

    // A test that fails also leaves them down until the end of the test.
    let dut = &suite.duts[0];
    let mut parts = simulated::build_system(dut, dut.topology.as_ref().unwrap(), &suite.ports, 1, suite.seed).unwrap();
    let ports = parts.ports.into_iter().map(|port| Box::new(port) as Box<dyn Port>).collect();
    let ports = Ports::One { ports, clock: Box::new(parts.clock) };
    let rig = Rig::new(ports, &hosts_and_routers(&suite.ports, &[Family::Ipv4], suite.seed));
    let (mut session, mut memory) = (Session::new(suite.seed, suite.profile, 5), Memory::default());
    let mut bed = TestSetup::new(&dut.name, &suite.ports, rig, &mut parts.device, &mut session, &mut memory);
    bed.await_forwarding(&[Family::Ipv4]).unwrap();
    let names = |names: &[(usize, usize)]| names.iter().map(|(a, b)| CoreLinkName(*a, *b)).collect();
    bed.set(Setting::CoreLinks { down: &names(&[(1, 2)]), families: &[Family::Ipv4] }).unwrap();
    let hops = |bed: &mut TestSetup<'_>| [(0, 1), (0, 2), (2, 3)].map(|(from, to)| bed.bench().device.hops(from, to));
    assert_eq!(hops(&mut bed), [3, 2, 2]);
    bed.set(Setting::CoreLinks { down: &names(&[(3, 4)]), families: &[Family::Ipv4] }).unwrap();
    assert_eq!(hops(&mut bed), [2, 2, 3]);
    let cut_off =
        bed.set(Setting::CoreLinks { down: &names(&[(1, 2), (1, 3), (1, 4)]), families: &[Family::Ipv4] }).unwrap_err();
    assert!(matches!(&cut_off, TestError::Failed(why) if why.contains("ways that are left")), "{cut_off}");
    let unknown = bed.set(Setting::CoreLinks { down: &names(&[(1, 5)]), families: &[Family::Ipv4] }).unwrap_err();
    assert!(matches!(&unknown, TestError::NotApplicable(why) if why.contains("no link 1-5")), "{unknown}");
    bed.end_test().unwrap();
    assert_eq!(hops(&mut bed), [2, 2, 2]);
}

#[test]
fn what_cannot_be_overloaded_so_is_left_out_with_the_reason() {
    let skipped = |topology: &str, ports: usize, params: &str| {
        let mut memory = Memory::default();
        run(&suite(topology, ports, "", params), &mut memory).unwrap();
        assert!(classed(&memory).is_empty() && links_down(&memory).is_empty());
        match &memory.tests()[0].status {
            TestStatus::Skipped(why) => why.clone(),
            other => panic!("{topology}, {params}: {other:?}"),
        }
    };
    for (topology, ports, params, why) in [
        ("", 4, "core_links_down: 2", "`core_links_down` is for a DUT of several routers"),
        (MESH, 4, "core_links_down: [1-2, 1-5]", "no link 1-5 between routers; it has 1-2, 1-3"),
        (MESH, 4, "core_links_down: [1-2, 1-3, 1-4]", "without 1-2, 1-3, 1-4 some port does not reach another"),
        (MESH, 4, "core_links_down: 9", "there are 6 links between routers, not 9"),
        (MESH, 4, "core_links_down: 5", "without 5 of its 6 links, some port does not reach another"),
        (", topology: {mesh: 2, core_speed: 1 Mbit/s}", 4, "core_links_down: 1", "without 1 of its 1 links"),
        (", topology: {mesh: 4}", 4, "core_links_down: 2", "have no speed; give `bottleneck`"),
        (MESH, 4, "core_links_down: 2, bottleneck: 1 Gbit/s", "more than a link between routers has (20 Mbit/s)"),
        (
            ", topology: {mesh: 4}",
            4,
            "core_links_down: 2, bottleneck: 80 Mbit/s",
            "each port has to send 180.0 % of its line",
        ),
    ] {
        let said = skipped(topology, ports, params);
        assert!(said.contains(why), "{said}");
    }
    // A rate below that of the links is the rate of the queues, not of the links.
    let mut memory = Memory::default();
    run(&suite(MESH, 4, "", "core_links_down: 0, bottleneck: 10 Mbit/s"), &mut memory).unwrap();
    assert_eq!(memory.tests()[0].status, TestStatus::Completed);
    assert!(verdicts(memory.outcome(TEST), TEST).iter().all(|verdict| verdict == AS_IT_MUST));
    assert_eq!(rows(memory.outcome(TEST), LINKS).len(), 2 * 12 * 3);
}
