//! The test `head_of_line_blocking` on reference devices in virtual time: the losses of the congested and of the
//! uncongested port must be exact to the frame.

use crate::common::*;
use drophammer_model::outcome::Cell;

const TEST: &str = "head_of_line_blocking";
/// Time that a frame of 64 bytes takes on a line of 100 Mbit/s, in ns.
const SLOT: u64 = 6_720;
/// Maximum number of frames that wait for a line or are on it.
const BUFFER: usize = 50;

/// Runs the test on a device with an input queue of `room` frames, whose ports are lines of 100 Mbit/s (148,809 frames
/// per second).
fn congested(room: usize) -> Memory {
    let ports: String = (1..=4).map(|n| format!("  - {{name: p{n}, speed: 100 Mbit/s}}\n")).collect();
    let line = format!("line_speed: 100 Mbit/s, line_buffer: {BUFFER}, input_queue: {room}");
    let text = format!(
        "suite: congestion\nprofile: quick\nseed: 11\nduts:\n  - {{name: box, kind: reference, delay: 10 us, {line}}}\nports:\n{ports}\
         tests:\n  - {TEST}: {{frame_sizes: [64], pause: 1 ms, trial_duration: 200 ms}}\n"
    );
    let mut memory = Memory::default();
    run(&read_suite(&text), &mut memory).unwrap();
    memory
}

fn get(memory: &Memory, row: usize, column: &str) -> f64 {
    let value = cell(memory.outcome(TEST), TEST, row, column);
    value.unwrap_or_else(|| panic!("row {row} has no {column}: {:?}", memory.tests()[0].status))
}

/// Head-of-line blocking and backpressure of a row.
fn verdicts(memory: &Memory, row: usize) -> [String; 2] {
    let cells = &rows(memory.outcome(TEST), TEST)[row].cells;
    let text = |cell: &Cell| if let Cell::Text(text) = cell { text.clone() } else { panic!("{cell:?}") };
    [text(&cells[cells.len() - 2]), text(&cells[cells.len() - 1])]
}

fn figure(memory: &Memory) -> Option<f64> {
    memory.outcome(TEST).ranks.iter().find(|rank| rank.key == format!("{TEST}_64_loss_percent"))?.value
}

/// Number of frames that, according to the device, were dropped for a cause in the trial with congestion.
fn dropped(memory: &Memory, cause: &str) -> u64 {
    let counters = &memory.trials()[1].result.dut_counters;
    counters.get(&format!("truth.dropped.{cause}")).copied().unwrap_or(0)
}

/// Frames to the uncongested and to the congested port that a device with an input queue of `room` frames loses, if
/// each source sends `frames` frames. The k-th frames of both sources arrive at the same instant, one slot after the
/// previous frames. The frame of the first source comes first, and goes to the uncongested port if k is even.
fn lost(frames: u64, room: usize) -> (u64, u64) {
    let mut queues = [vec![], vec![]];
    // Instants when each frame that the congested line accepted was out, and when the line accepted the last one.
    let (mut out, mut taken): (Vec<u64>, u64) = (vec![], 0);
    let (mut free, mut full) = (0, 0);
    for k in 0..frames {
        let now = k * SLOT;
        for (source, queue) in queues.iter_mut().enumerate() {
            let congested = source == 1 || k % 2 == 1;
            let waiting = queue.iter().rev().take_while(|leaves| **leaves > now).count();
            if waiting >= room {
                *(if congested { &mut full } else { &mut free }) += 1;
                continue;
            }
            let first = queue.last().copied().unwrap_or(0).max(now);
            if !congested {
                // This line uses half of its capacity, so there is room.
                queue.push(first);
                continue;
            }
            let room_at = if out.len() >= BUFFER { out[out.len() - BUFFER] } else { 0 };
            taken = first.max(taken).max(room_at);
            queue.push(taken);
            out.push(out.last().copied().unwrap_or(0).max(taken) + SLOT);
        }
    }
    (free, full)
}

#[test]
fn a_queue_that_blocks_at_its_head_is_found_and_its_loss_counted() {
    for room in [16, 200] {
        let memory = congested(room);
        let (frames, free, full) = (
            get(&memory, 0, "uncongested_offered"),
            get(&memory, 0, "uncongested_lost"),
            get(&memory, 0, "congested_lost"),
        );
        let offered = memory.trials()[1].result.offered() / 2;
        assert_eq!((free as u64, full as u64), lost(offered, room), "{room}");
        assert_eq!(dropped(&memory, "fault_input_queue") as f64, free + full);
        assert!(free > 1_000.0, "{free}");
        let [blocking, backpressure] = verdicts(&memory, 0);
        assert!(blocking.starts_with(&format!("yes: {free} frames lost")), "{blocking}");
        assert_eq!((backpressure.as_str(), get(&memory, 0, "calm_lost")), ("no", 0.0));
        assert!((figure(&memory).unwrap() - free / frames * 100.0).abs() < 1e-9);
        // The congested line is full nevertheless.
        assert!((get(&memory, 0, "congested_pps") / 148_809.0 - 1.0).abs() < 0.01);
    }
}
