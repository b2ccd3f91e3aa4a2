//! The tests on reference devices of several capacities, buffers, delays and seeds of random loss. Expectations follow
//! from the device's configuration. Where chance matters, they allow for five standard deviations, which chance exceeds
//! once in a million times. Each device is faster than the learning frames of both directions, and has room for two
//! frames that arrive at the same time: otherwise no test would begin.

use crate::common::*;
use drophammer_methods::{Method, Testbed};
use drophammer_model::outcome::Outcome;
use drophammer_model::quantity::FrameRate;
use drophammer_model::trial::{Family, Load};
use drophammer_reference::Faults;
use std::time::Duration;

/// Line rate of 64-byte frames at 100 Mbit/s.
const LINE: f64 = 1e8 / (84.0 * 8.0);

fn measured(device: &str, test: &str) -> Memory {
    let suite = suite(
        device,
        &format!("defaults: {{frame_sizes: [64], direction: unidirectional, pause: 1 ms}}\ntests:\n  - {test}\n"),
    );
    let mut memory = Memory::default();
    let tally = run(&suite, &mut memory).unwrap();
    assert_eq!((tally.completed, tally.failed), (1, 0), "{device}: {:?}", memory.tests().last().map(|t| &t.status));
    assert!(memory.trials().iter().all(|t| t.result.validity.is_valid() && t.attempt == 1));
    memory
}

#[test]
fn throughput_is_the_capacity_and_what_a_buffer_adds() {
    for (capacity, buffer) in [(4_100, 2), (12_345, 7), (50_000, 512), (99_991, 2), (140_000, 3_000)] {
        let memory =
            measured(&format!(", capacity: {capacity} fps, buffer: {buffer}"), "throughput: {width: 1, pdr: false}");
        let get = |column| cell(memory.outcome("throughput"), "throughput", 0, column);
        let capacity = f64::from(capacity);
        // In d seconds the device serves c * d frames and one that is in service, and keeps the frames that fit into
        // its buffer.
        let highest = |duration_s: f64| capacity + (f64::from(buffer) + 1.0) / duration_s;
        let final_s = memory.trials().iter().map(|t| t.spec.duration_s).fold(0.0, f64::max);
        let lower = get("intended_load_pps").unwrap();
        assert!(lower <= highest(final_s), "{capacity}, {buffer}: lower bound {lower}");
        // Frames above the capacity leave the buffer after the load ends. If they exceed the width of the search, the
        // row reports that.
        let share = (lower - capacity) / capacity;
        let marks = &rows(memory.outcome("throughput"), "throughput")[0].marks;
        let is_marked = marks.iter().any(|mark| mark.starts_with("NDR(0) with buffers that took"));
        if (share - 0.01).abs() > 0.002 {
            assert_eq!(is_marked, share > 0.01, "{capacity}, {buffer}: {lower}: {marks:?}");
        }
        match get("upper_bound_pps") {
            Some(upper) => {
                assert!(upper >= capacity && upper - lower <= 0.01 * upper, "{capacity}, {buffer}: {lower} to {upper}");
            }
            None => assert!(lower >= LINE * 0.999 && highest(final_s) >= LINE, "{capacity}, {buffer}: {lower}"),
        }
    }
}

#[test]
fn loss_is_what_exceeds_capacity_and_buffer_to_the_frame() {
    for (capacity, buffer) in [(4_500u32, 2u32), (10_000, 64), (64_000, 700), (125_000, 5)] {
        let memory = measured(
            &format!(", capacity: {capacity} fps, buffer: {buffer}"),
            "frame_loss_rate: {trial_duration: 250 ms, step: 20}",
        );
        let outcome = memory.outcome("frame_loss_rate");
        let mut lossy = 0;
        for row in 0..rows(outcome, "frame_loss_rate").len() {
            let get = |column| cell(outcome, "frame_loss_rate", row, column).unwrap();
            let (offered, lost) = (get("offered"), get("lost"));
            assert_eq!(offered, get("received") + lost);
            // Frames that are served until the last one arrives, and frames in the buffer at that time.
            let kept = f64::from(capacity) * 0.25 + f64::from(buffer);
            let least = (offered - kept - 1.0).max(0.0);
            let most = (offered - kept + 2.0).max(0.0);
            let over = offered > f64::from(capacity) * 0.25;
            assert!(lost >= least, "{capacity}, {buffer}: {lost} of {offered}");
            assert!(lost <= if over { most } else { 0.0 }, "{capacity}, {buffer}: {lost} of {offered}, not {most}");
            lossy += u32::from(lost > 0.0);
        }
        assert!(lossy > 0);
    }
}

#[test]
fn random_loss_is_found_as_often_as_it_happens() {
    let suite = suite(
        "",
        "tests:\n  - frame_loss_rate: {frame_sizes: [64], direction: unidirectional, trial_duration: 300 ms, step: 50, pause: 1 ms}\n",
    );
    for (seed, share) in [(1, 0.5), (2, 0.02), (3, 0.002), (4, 0.02), (5, 0.000_5)] {
        with_bed(
            &suite,
            &[Family::Ipv4],
            |config| config.seed = seed,
            |bed, device| {
                device.set_faults(Faults { drop_share: share, ..Faults::default() }).unwrap();
                let before = device.truth();
                let mut outcome = Outcome::default();
                drophammer_methods::frame_loss_rate::FrameLossRate
                    .run(bed, &suite.tests[0].params, &mut outcome)
                    .unwrap();
                let mut all_lost = 0.0;
                for row in 0..rows(&outcome, "frame_loss_rate").len() {
                    let get = |column| cell(&outcome, "frame_loss_rate", row, column).unwrap();
                    let (offered, lost) = (get("offered"), get("lost"));
                    let (mean, spread) = (offered * share, (offered * share * (1.0 - share)).sqrt());
                    assert!((lost - mean).abs() <= 5.0 * spread + 1.0, "seed {seed}: {lost}, not {mean} ± {spread}");
                    assert!((get("loss_percent") - lost / offered * 100.0).abs() < 1e-9);
                    all_lost += lost;
                }
                // Nothing else sends UDP, so the device dropped exactly the frames that the test reports as lost.
                let dropped = device.truth().dropped.fault_share - before.dropped.fault_share;
                assert_eq!((all_lost, device.truth().dropped.buffer), (dropped as f64, 0));
            },
        );
    }
}

#[test]
fn latency_is_service_delay_and_jitter() {
    for (capacity, delay_us, jitter_us) in [(5_000, 1, 0), (20_000, 250, 0), (100_000, 3, 40), (50_000, 1_000, 7)] {
        let jitter = if jitter_us > 0 { format!(", jitter: {jitter_us} us") } else { String::new() };
        // The loads are shares of the throughput. A larger buffer would raise the throughput of short trials above the
        // capacity.
        let device = format!(", capacity: {capacity} fps, buffer: 2, delay: {delay_us} us{jitter}");
        let memory =
            measured(&device, "latency: {loads: [10, 50, 90], trial_duration: 300 ms, repeats: 2, ipdv: true}");
        let shortest = 1_000_000_000 / capacity + delay_us * 1_000;
        let longest = shortest + jitter_us * 1_000;
        let trials: Vec<_> = memory.trials().into_iter().filter(|t| t.spec.purpose.starts_with("latency")).collect();
        assert_eq!(trials.len(), 6);
        for trial in trials {
            let l = &trial.result.groups[0].latency;
            assert_eq!(l.frames, trial.result.offered());
            let ipdv = trial.result.groups[0].ipdv.unwrap();
            assert_eq!(ipdv.pairs, l.frames - 1);
            let most = jitter_us as i64 * 1_000;
            assert!(ipdv.min_ns >= -most && ipdv.max_ns <= most, "{device}: {ipdv:?}");
            // The differences of independent uniform delays are symmetric about 0, with most of them near 0.
            assert!(
                most == 0 || ipdv.min_ns < 0 && ipdv.max_ns > 0 && ipdv.median_ns.abs() < most / 4,
                "{device}: {ipdv:?}"
            );
            assert!(l.min_ns >= shortest, "{device}: {} below {shortest}", l.min_ns);
            let width = (longest - shortest) as f64;
            let spacing = trial.spec.duration_s * 1e9 / l.frames as f64;
            if width < spacing {
                // The frames are too far apart to wait for each other, so delays are uniform from shortest to longest.
                let spread = width / (12.0 * l.frames as f64).sqrt();
                let mean = shortest as f64 + width / 2.0;
                assert!((l.mean_ns - mean).abs() <= 5.0 * spread + 1e-6, "{device}: {} instead of {mean}", l.mean_ns);
                assert!(l.max_ns <= longest, "{device}: {} above {longest}", l.max_ns);
            } else {
                // A frame waits for its predecessor, which left at most the longest delay after its own arrival.
                assert!(l.max_ns <= longest, "{device}: {} above {longest}", l.max_ns);
                assert!(l.mean_ns >= shortest as f64 + width / 2.0 - 5.0 * width / (12.0 * l.frames as f64).sqrt());
            }
        }
    }
}

#[test]
fn a_lost_frame_is_in_no_pair_of_delay_variation() {
    // Each lost frame would be part of two pairs.
    let memory = measured(
        ", capacity: 50 kfps, buffer: 2, drop_every: 100",
        "latency: {compare_at: 10 kfps, loads: [100], trial_duration: 1 s, ipdv: true}",
    );
    let trials = memory.trials();
    let trial = trials.iter().find(|t| t.spec.purpose.starts_with("latency 64: 10,000 fps")).unwrap();
    let group = &trial.result.groups[0];
    let (lost, ipdv) = (group.lost, group.ipdv.unwrap());
    assert!(lost >= 99 && ipdv.pairs.abs_diff(group.received - 1 - lost) <= 1, "{lost}, {ipdv:?}");
    assert_eq!((ipdv.min_ns, ipdv.median_ns, ipdv.max_ns), (0, 0, 0));
    // The first row is the one at the throughput.
    let get = |column| cell(memory.outcome("latency"), "latency_ipdv", 1, column);
    assert_eq!((get("pairs"), get("ipdv_max_us")), (Some(ipdv.pairs as f64), Some(0.0)));
}

/// Longest burst at line rate that a server handles without loss, computed in whole nanoseconds.
fn longest_burst(capacity: u64, buffer: usize) -> u64 {
    let service = 1_000_000_000 / capacity;
    assert_eq!(service * capacity, 1_000_000_000);
    let mut ends = std::collections::VecDeque::new();
    for i in 0.. {
        let at = (i as f64 * 1e9 / LINE).ceil() as u64;
        while ends.front().is_some_and(|end| *end <= at) {
            ends.pop_front();
        }
        if ends.len() >= buffer {
            return i;
        }
        ends.push_back(ends.back().copied().unwrap_or(0).max(at) + service);
    }
    unreachable!("a server slower than the line loses something in the end")
}

#[test]
fn back_to_back_finds_the_buffer_whatever_comes_after_it() {
    for (capacity, buffer, device) in [
        (5_000, 2, ""),
        (8_000, 17, ", delay: 2 ms"),
        (40_000, 333, ", jitter: 300 us"),
        (80_000, 1_000, ", delay: 50 us, jitter: 1 ms"),
        (100_000, 9, ""),
    ] {
        let expected = longest_burst(capacity, buffer);
        let memory = measured(
            &format!(", capacity: {capacity} fps, buffer: {buffer}{device}"),
            "back_to_back: {step: 1, repeats: 1, pause: 1100 ms}",
        );
        let outcome = memory.outcome("back_to_back");
        let figure = outcome.ranks.iter().find(|r| r.key == "back_to_back_64_frames").unwrap();
        assert_eq!(figure.value, Some(expected as f64), "capacity {capacity}, buffer {buffer}{device}");
        let burst = |lossless: bool| {
            let bursts = memory.trials().into_iter().filter(move |t| (t.result.lost() == 0) == lossless);
            bursts.filter_map(|t| if let Load::Burst { frames, .. } = t.spec.load { Some(frames) } else { None })
        };
        assert_eq!((burst(true).max(), burst(false).min()), (Some(expected), Some(expected + 1)));
    }
}

#[test]
fn recovery_is_told_to_the_frame_however_long_it_takes() {
    let suite = suite(
        "",
        "tests:\n  - system_recovery: {frame_sizes: [64], direction: unidirectional, overload_duration: 200 ms, recovery_duration: 300 ms}\n",
    );
    for (throughput, after_us) in [(10_000.0, 1_000), (10_000.0, 77_777), (1_000.0, 250_000), (100_000.0, 15)] {
        with_bed(
            &suite,
            &[Family::Ipv4],
            |_| {},
            |bed, device| {
                let key = one_way("64");
                bed.known().throughput.insert(key, Some(FrameRate(throughput)));
                // All frames are lost from the start until this time after the load is halved.
                let start = bed.rig().now() + Duration::from_micros(1);
                let until = start + Duration::from_micros(200_000 + after_us);
                device.set_faults(Faults { drop_window: Some((start, until)), ..Faults::default() }).unwrap();
                let mut outcome = Outcome::default();
                drophammer_methods::system_recovery::SystemRecovery
                    .run(bed, &suite.tests[0].params, &mut outcome)
                    .unwrap();
                // The load is 110 % of the throughput, halved: frame i leaves i / rate after the load was halved, and
                // the last lost frame leaves before the window closes.
                let rate = throughput * 1.1 / 2.0;
                let last = ((after_us as f64 * 1e-6 * rate).ceil() - 1.0).max(0.0) / rate * 1e3;
                let ms = cell(&outcome, "system_recovery", 0, "recovery_ms").unwrap();
                assert!((ms - last).abs() < 1e-5, "{throughput} fps, {after_us} µs: {ms} ms instead of {last}");
            },
        );
    }
}
