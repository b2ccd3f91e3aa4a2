//! Classes of service on the links between reference devices, and links that go down and come up again.

use crate::common::*;
use drophammer_methods::{Setting, TestError, Testbed};
use drophammer_model::outcome::{Cell, Outcome};
use drophammer_model::suite::Suite;
use drophammer_model::topology::CoreLinkName;
use drophammer_model::trial::Family;
use drophammer_reference::{ClassFaults, Faults};
use drophammer_testbed::setup::TestSetup;

const TEST: &str = "class_of_service";

const LOSSES: &str = "class_of_service_losses";

const AS_IT_MUST: &str = "as expected";

/// The test with these parameters on four routers that have a port of 100 Mbit/s each, and links of 20 Mbit/s between
/// them.
fn suite(params: &str) -> Suite {
    let ports: String = (1..=4).map(|n| format!("  - {{name: p{n}, speed: 100 Mbit/s}}\n")).collect();
    read_suite(&format!(
        "suite: classes\nprofile: quick\nseed: 11\n\
         duts:\n  - {{name: box, kind: reference, delay: 10 us, topology: {{mesh: 4, core_speed: 20 Mbit/s}}}}\nports:\n{ports}\
         tests:\n  - {TEST}: {{trial_duration: 500 ms, pause: 1 ms, {params}}}\n"
    ))
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

fn rank(outcome: &Outcome, key: &str) -> f64 {
    outcome.ranks.iter().find(|r| r.key == key).and_then(|r| r.value).unwrap_or_else(|| panic!("no {key}"))
}

#[test]
fn one_frame_of_gold_that_a_link_loses_is_found() {
    // The link from r1 to r4 carries 3,968 frames of gold without overload and 7,440 with overload; r1 to r3 carries
    // half of that, because 3-4 is up.
    let faults = Faults { classes: ClassFaults { drop_every: 8_000, ..ClassFaults::default() }, ..Faults::default() };
    let (outcome, _) = with_faults_of_the_first(&suite("core_links_down: [1-2]"), faults);
    assert_eq!((get(&outcome, TEST, 0, "lost"), get(&outcome, TEST, 3, "lost")), (0.0, 1.0));
    assert_eq!(verdicts(&outcome, TEST)[3], "lost 1 frames, although it offers less than its share of every link");
    assert_eq!(verdicts(&outcome, LOSSES)[3], "no queue counts 1 of the lost frames as dropped");
    assert_eq!((get(&outcome, LOSSES, 3, "difference"), get(&outcome, LOSSES, 4, "difference")), (1.0, 0.0));
    assert!(rank(&outcome, "class_of_service_ip40_loss_percent") > 0.0);
    let (whole, _) = with_faults_of_the_first(&suite("core_links_down: [1-2]"), Faults::default());
    assert!(verdicts(&whole, TEST).iter().chain(&verdicts(&whole, LOSSES)).all(|verdict| verdict == AS_IT_MUST));
}

#[test]
fn links_come_up_again_after_a_test_that_failed() {
    with_system(&suite("core_links_down: 2"), &[Family::Ipv4], &mut Memory::default(), |bed, _| {
        let names = |names: &[(usize, usize)]| names.iter().map(|(a, b)| CoreLinkName(*a, *b)).collect();
        bed.set(Setting::CoreLinks { down: &names(&[(1, 2)]), families: &[Family::Ipv4] }).unwrap();
        let hops =
            |bed: &mut TestSetup<'_>| [(0, 1), (0, 2), (2, 3)].map(|(from, to)| bed.bench().device.hops(from, to));
        assert_eq!(hops(bed), [3, 2, 2]);
        bed.set(Setting::CoreLinks { down: &names(&[(3, 4)]), families: &[Family::Ipv4] }).unwrap();
        assert_eq!(hops(bed), [2, 2, 3]);
        let cut_off = bed
            .set(Setting::CoreLinks { down: &names(&[(1, 2), (1, 3), (1, 4)]), families: &[Family::Ipv4] })
            .unwrap_err();
        assert!(matches!(&cut_off, TestError::Failed(why) if why.contains("remaining paths")), "{cut_off}");
        let unknown = bed.set(Setting::CoreLinks { down: &names(&[(1, 5)]), families: &[Family::Ipv4] }).unwrap_err();
        assert!(matches!(&unknown, TestError::NotApplicable(why) if why.contains("no link 1-5")), "{unknown}");
        bed.end_test().unwrap();
        assert_eq!(hops(bed), [2, 2, 2]);
    });
}
