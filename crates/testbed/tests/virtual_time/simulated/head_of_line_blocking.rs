//! The test `head_of_line_blocking` on reference devices in virtual time: loss of the congested and of the uncongested port to the frame.

use crate::common::*;
use drophammer_model::outcome::Cell;
use drophammer_model::record::TestStatus;

const TEST: &str = "head_of_line_blocking";
/// Time of 64 bytes on a line of 100 Mbit/s, in ns.
const SLOT: u64 = 6_720;
/// Frames that may wait for a line or be on it.
const BUFFER: usize = 50;

/// The test with these parameters on a device whose ports are lines of 100 Mbit/s (148,809 frames per second).
fn congested(device: &str, ports: usize, params: &str) -> Memory {
    let params =
        if params.contains("trial_duration") { params.to_owned() } else { format!("trial_duration: 200 ms, {params}") };
    let ports: String = (1..=ports).map(|n| format!("  - {{name: p{n}, speed: 100 Mbit/s}}\n")).collect();
    let text = format!(
        "suite: congestion\nprofile: quick\nseed: 11\nduts:\n  - {{name: box, kind: reference, delay: 10 us{device}}}\nports:\n{ports}tests:\n  \
         - {TEST}: {{frame_sizes: [64], pause: 1 ms, {params}}}\n"
    );
    let mut memory = Memory::default();
    run(&read_suite(&text), &mut memory).unwrap();
    memory
}

fn lines(more: &str) -> String {
    format!(", line_speed: 100 Mbit/s, line_buffer: {BUFFER}{more}")
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

/// Frames of the trial with congestion that the device reports as dropped for a cause.
fn dropped(memory: &Memory, cause: &str) -> u64 {
    let counters = &memory.trials()[1].result.dut_counters;
    counters.get(&format!("truth.dropped.{cause}")).copied().unwrap_or(0)
}

/// Losses of a device with an input queue of `room`, of `frames` of each source, to the uncongested and to the
/// congested port. The k-th frames of both sources arrive at one instant, a slot after the previous ones; that of the
/// first source is first, and goes to the uncongested port if k is even.
fn lost(frames: u64, room: usize) -> (u64, u64) {
    let mut queues = [vec![], vec![]];
    // Instants at which each frame that the congested line accepted was out, and at which it accepted the last one.
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
                // Its line has half of its capacity: there is room.
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
fn a_device_that_drops_at_the_line_blocks_nobody() {
    let memory = congested(&lines(""), 4, "");
    assert_eq!(verdicts(&memory, 0), ["no", "no"]);
    assert_eq!((get(&memory, 0, "uncongested_lost"), get(&memory, 0, "calm_lost")), (0.0, 0.0));
    assert_eq!(figure(&memory), Some(0.0));
    // One and a half times the capacity of the line: a third is lost, except for the frames that fill the buffer.
    let (frames, lost) = (get(&memory, 0, "uncongested_offered"), get(&memory, 0, "congested_lost"));
    assert!((lost - frames + BUFFER as f64).abs() <= 2.0, "{lost} of {frames}");
    assert_eq!(dropped(&memory, "egress") as f64, lost);
    assert!((get(&memory, 0, "expected_percent") - 100.0 / 3.0).abs() < 0.01);
    assert!((get(&memory, 0, "congested_percent") - 150.0).abs() < 0.05);
    assert!((get(&memory, 0, "uncongested_pps") / (0.5e8 / 672.0) - 1.0).abs() < 3e-4);
    assert_eq!(get(&memory, 0, "latency_us"), get(&memory, 0, "calm_latency_us"));
}

#[test]
fn a_queue_that_blocks_at_its_head_is_found_and_its_loss_counted() {
    for room in [16, 200] {
        let memory = congested(&lines(&format!(", input_queue: {room}")), 4, "");
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
        // The line is full nevertheless.
        assert!((get(&memory, 0, "congested_pps") / 148_809.0 - 1.0).abs() < 0.01);
    }
}

#[test]
fn frames_that_are_only_held_up_are_blocked_too() {
    // Room for the whole excess of 20 ms, and a device that lets it wait.
    let device = lines(", input_queue: 20000");
    let memory = congested(&device, 4, "trial_duration: 20 ms");
    let [blocking, backpressure] = verdicts(&memory, 0);
    assert_eq!((get(&memory, 0, "uncongested_lost"), get(&memory, 0, "congested_lost")), (0.0, 0.0));
    assert!(blocking.starts_with("yes: ") && blocking.ends_with(" µs of added delay"), "{blocking}");
    assert!(backpressure.starts_with("no: no frame was lost, because buffers held them all"), "{backpressure}");
    let added = get(&memory, 0, "latency_us") - get(&memory, 0, "calm_latency_us");
    assert!((1_000.0..20_000.0).contains(&added), "{added}");
    let patient = congested(&device, 4, "trial_duration: 20 ms, least_delay: 1 s");
    assert_eq!(verdicts(&patient, 0)[0], "no");
}

#[test]
fn loss_without_congestion_is_not_that_of_blocking() {
    // It loses one frame in twenty, whatever its line.
    let memory = congested(&lines(", drop_share: 5"), 4, "");
    assert!(get(&memory, 0, "calm_lost") > 500.0);
    assert_eq!(verdicts(&memory, 0)[0], "not known: the router loses as many of these frames without congestion");
    assert_eq!(figure(&memory), None);
    let marks = &rows(memory.outcome(TEST), TEST)[0].marks;
    assert!(marks.iter().any(|mark| mark.contains("to the uncongested port without congestion")), "{marks:?}");
}

#[test]
fn loss_without_congestion_is_no_figure_of_frames_that_are_only_held_up() {
    // As above, with room for the whole excess of 20 ms.
    let memory = congested(&lines(", drop_share: 5, input_queue: 20000"), 4, "trial_duration: 20 ms");
    assert!(get(&memory, 0, "calm_lost") > 30.0 && get(&memory, 0, "uncongested_lost") > 30.0);
    let [blocking, _] = verdicts(&memory, 0);
    assert!(blocking.starts_with("yes: ") && blocking.ends_with(" µs of added delay"), "{blocking}");
    assert!(!blocking.contains("frames lost"), "{blocking}");
    assert_eq!(figure(&memory), None);
    let missing = memory.outcome(TEST).ranks[0].missing.clone().unwrap();
    assert_eq!(missing.why, "the router loses as many of these frames without congestion");
}

#[test]
fn a_way_out_without_a_speed_is_not_congested_and_a_bottleneck_makes_one() {
    let memory = congested("", 4, "");
    assert!(verdicts(&memory, 0).iter().all(|text| text.starts_with("not known: more left by the congested port")));
    assert_eq!(figure(&memory), None);

    let memory = congested("", 4, "bottleneck: 20 Mbit/s, queue: 30");
    assert_eq!(verdicts(&memory, 0), ["no", "no"]);
    assert_eq!(figure(&memory), Some(0.0));
    assert!((get(&memory, 0, "intended_load_pps") - 2e7 / 672.0).abs() < 0.01);
    let lost = memory.trials()[1].result.dut_counters.get("d3.all.dropped").copied().unwrap();
    assert_eq!(lost as f64, get(&memory, 0, "congested_lost"));
    assert!(memory.trials().iter().all(|trial| trial.classed));
}

#[test]
fn eight_ports_are_two_blocks_and_three_are_none() {
    let memory = congested(&lines(", input_queue: 16"), 10, "");
    let free = |row| get(&memory, row, "uncongested_lost");
    assert_eq!(rows(memory.outcome(TEST), TEST).len(), 2);
    assert_eq!((free(0), free(0) > 0.0), (free(1), true));
    assert!(memory.outcome(TEST).notes.iter().any(|note| note.contains("The last 2 of the ports")));

    let memory = congested("", 2, "");
    let TestStatus::Skipped(why) = &memory.tests()[0].status else { panic!("{:?}", memory.tests()[0].status) };
    assert!(why.contains("needs four ports") && why.contains("the suite has 2"), "{why}");
}
