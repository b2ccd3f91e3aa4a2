//! Lost packets: LSPs survive, or come back.

use super::common::*;
use drophammer_emulation::rsvp::{HelloConfig, RefreshReduction, RsvpConfig};
use std::time::Duration;

fn lossy(every: u64, config: RsvpConfig, fate: Fate) -> World {
    let mut world = World::new(500, config);
    world.fate = fate;
    world.set_up(0..500, 1_000);
    world.run_to(seconds(300.0));
    assert!(world.frames / every > 20, "frames were lost");
    assert_eq!(world.up(), [500; 2], "after ten periods, all LSPs exist");
    assert_eq!([INGRESS, EGRESS].map(|at| world.counter(at, "timeouts")), [0; 2], "and none has expired");
    world
}

#[test]
fn soft_state_survives_loss() {
    // State lives for about five refreshes.
    lossy(10, RsvpConfig::default(), |_, frame, _| !frame.is_multiple_of(10));
}

#[test]
fn lsps_that_expire_under_heavy_loss_come_back() {
    let mut world = World::new(500, RsvpConfig::default());
    world.fate = |_, frame, _| !frame.is_multiple_of(2);
    world.set_up(0..500, 1_000);
    world.run_to(seconds(600.0));
    assert!(world.counter(INGRESS, "timeouts") > 100, "five refreshes in a row are lost sometimes");
    world.fate = |_, _, _| true;
    world.run_to(seconds(646.0));
    assert_eq!(world.up(), [500; 2]);
}

#[test]
fn refresh_reduction_recovers_before_the_next_period() {
    let hello = Some(HelloConfig { interval: Duration::from_secs(5) });
    let config = RsvpConfig { refresh_reduction: Some(RefreshReduction::default()), hello, ..RsvpConfig::default() };
    let world = lossy(10, config.clone(), |_, frame, _| !frame.is_multiple_of(10));
    let again = world.counter(INGRESS, "retransmissions") + world.counter(EGRESS, "retransmissions");
    assert!((50..500).contains(&again), "{again}");
    // All LSPs are up 2 s after the last Path, although every tenth packet is lost.
    let mut world = World::new(500, config);
    world.run_to(seconds(1.0));
    world.fate = |_, frame, _| !frame.is_multiple_of(10);
    world.set_up(0..500, 0);
    world.run_to(seconds(3.0));
    assert_eq!(world.up(), [500; 2]);
}

#[test]
fn lost_summaries_and_answers_do_not_end_lsps() {
    let config = RsvpConfig { refresh_reduction: Some(RefreshReduction::default()), ..RsvpConfig::default() };
    // The egress does not hear every second frame.
    lossy(2, config, |from, frame, _| from == EGRESS || !frame.is_multiple_of(2));
}

#[test]
fn a_dead_link_ends_lsps_and_they_come_back() {
    let reduction = Some(RefreshReduction::default());
    for config in [RsvpConfig::default(), RsvpConfig { refresh_reduction: reduction, ..RsvpConfig::default() }] {
        let mut world = World::new(100, config);
        world.set_up(0..100, 0);
        world.run_to(seconds(100.0));
        world.fate = |_, _, _| false;
        world.run_to(seconds(100.0 + 157.5));
        assert_eq!(world.up(), [0; 2]);
        assert_eq!([INGRESS, EGRESS].map(|at| world.counter(at, "timeouts")), [100; 2]);
        world.fate = |_, _, _| true;
        // The longest time between two refreshes.
        world.run_to(seconds(100.0 + 157.5 + 45.1));
        assert_eq!(world.up(), [100; 2]);
    }
}
