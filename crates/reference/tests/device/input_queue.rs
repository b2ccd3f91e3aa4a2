//! An input queue with head-of-line blocking ([`Faults::input_queue`]), to the nanosecond.

use crate::common::*;
use drophammer_model::Instant;
use drophammer_model::quantity::Bandwidth;
use drophammer_model::trial::Family;
use drophammer_reference::{Faults, Truth};

/// Time of 64 bytes on the line.
const SLOT: u64 = 67_200;

/// Six frames of port 0 at one instant, numbered from 0, alternately to port 2 (which has two frames already) and port
/// 1; then one of port 1 to port 0, number 6. Returns number, port and time of the frames that left, the device's
/// truth, and the discards of its port 0.
fn run(input_queue: usize) -> (Vec<(u32, usize, u64)>, Truth, u64) {
    let mut config = config(3);
    config.faults = Faults { input_queue, ..Faults::default() };
    for port in &mut config.ports {
        (port.speed, port.egress_buffer) = (Some(Bandwidth(10_000_000)), 2);
    }
    let mut bench = Bench::new(config);
    for (number, (from, to)) in [(0, 2), (0, 2), (0, 2), (0, 1), (0, 2), (0, 1), (1, 0)].into_iter().enumerate() {
        bench.offer(Instant(SECOND), from, &Test::new(from, to, Family::Ipv4).frame(number as u32));
    }
    let sent = bench.finish();
    bench.check_sums();
    let mut left: Vec<_> =
        sent.iter().filter_map(|(at, port, frame)| Some((read(frame)?.number, *port, at.0 - SECOND))).collect();
    left.sort_unstable();
    (left, *bench.router.truth(), bench.router.counters(0).unwrap().in_discards)
}

#[test]
fn without_it_a_full_line_drops_and_delays_nothing_else() {
    let (left, truth, discards) = run(0);
    let expected = [(0, 2, SLOT), (1, 2, 2 * SLOT), (3, 1, SLOT), (5, 1, 2 * SLOT), (6, 0, SLOT)];
    assert_eq!((left, truth.dropped.egress, truth.dropped.total(), discards), (expected.to_vec(), 2, 2, 0));
}

#[test]
fn the_head_of_the_line_holds_up_what_is_bound_elsewhere() {
    // Frame 2 waits for the end of frame 0, and frame 3 behind it although its line is idle. Frame 5 finds 2, 3 and 4 waiting.
    let (left, truth, discards) = run(3);
    let expected = [(0, 2, SLOT), (1, 2, 2 * SLOT), (2, 2, 3 * SLOT), (3, 1, 2 * SLOT), (4, 2, 4 * SLOT), (6, 0, SLOT)];
    assert_eq!((left, truth.dropped.fault_input_queue, discards), (expected.to_vec(), 1, 1));
    assert_eq!((truth.dropped.total(), truth.dropped.faults()), (1, 1));
    // With room for all frames nothing is lost.
    let (left, truth, _) = run(4);
    assert_eq!((left.len(), truth.dropped.total()), (7, 0));
    assert!(left.contains(&(5, 1, 3 * SLOT)), "{left:?}");
}
