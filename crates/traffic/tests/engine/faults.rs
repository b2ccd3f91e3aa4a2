//! Exact counts of the analyzer for each fault of a device.

use crate::common::*;
use drophammer_model::quantity::Instant;
use drophammer_model::trial::{Family, GroupCounts, Load, LossEpisode, Losses, TrialResult};
use std::time::Duration;

/// Checks that all received frames had this latency.
fn all_took(result: &TrialResult, ns: u64) {
    let l = &result.groups[0].latency;
    assert_eq!((l.min_ns, l.mean_ns, l.max_ns, l.percentile(50.0)), (ns, ns as f64, ns, Some(ns)));
}

/// A wire that loses these frames.
fn losing(
    lost: impl Fn(&Offered<'_>) -> bool + Clone + 'static,
) -> impl FnMut(&Offered<'_>, &mut Vec<Out>) + Clone + 'static {
    move |f, out| {
        if !lost(f) {
            out.push(f.on(DELAY));
        }
    }
}

#[test]
fn a_wire_loses_nothing_and_takes_its_delay() {
    run_both(
        |f, out| out.push(f.on(DELAY)),
        |result, expected, bench| {
            assert_eq!(result.groups, [expected]);
            all_took(result, DELAY);
            assert_eq!((result.health.stale, result.health.other_received, result.health.unsent), (0, 0, 0));
            assert!(bench.control.handed.is_empty());
        },
    );
}

#[test]
fn dropped_frames_are_lost_and_the_last_of_them_is_known() {
    run_both(losing(|f| f.nth(7)), |result, mut expected, _| {
        let lost = N / 7;
        expected.received -= lost;
        expected.lost = lost;
        expected.received_bytes -= lost * 128;
        // After each gap, one frame does not follow its predecessor.
        expected.in_sequence = N - 2 * lost;
        expected.last_loss_ns = Some((lost * 7 - 1) * SECOND / N);
        assert_eq!(result.groups, [expected]);
        all_took(result, DELAY);
    });
}

#[test]
fn lost_frames_are_episodes_of_their_departures() {
    // Every other frame from 500 to 999; frames 1,500, 1,510 and 1,521 (frames leave every 0.2 ms); and the last.
    let lost = |n: u64| (500..1_000).contains(&n) && n.is_multiple_of(2) || [1_500, 1_510, 1_521, N - 1].contains(&n);
    run_both(losing(move |f| lost(f.number - 1)), |result, _, _| {
        let at = |n: u64| n * SECOND / N;
        let episode =
            |from, to, lost| LossEpisode { from_ns: at(from), to_ns: at(to), lost, flows: 1, groups: vec![0] };
        let episodes =
            vec![episode(500, 998, 250), episode(1_500, 1_510, 2), episode(1_521, 1_521, 1), episode(N - 1, N - 1, 1)];
        assert_eq!(result.losses, Losses { within_ns: 2 * MS, episodes });
    });
}

#[test]
fn more_episodes_than_are_kept_are_joined() {
    // 250 losses, one every 4 ms: at double the distance they are one episode.
    run_both(losing(|f| f.nth(20)), |result, _, _| {
        let [only] = &result.losses.episodes[..] else { panic!("{:?}", result.losses) };
        assert_eq!((only.from_ns, only.to_ns, only.lost), (19 * SECOND / N, (N - 1) * SECOND / N, 250));
        assert_eq!(result.losses.within_ns, 4 * MS);
    });
}

#[test]
fn slow_frames_lost_one_after_the_other_are_one_episode() {
    let lost = Duration::from_millis(300)..Duration::from_millis(500);
    let mut bench = Bench::new(2, losing(move |f| lost.contains(&Duration::from_nanos(f.at.0))));
    let result = bench.run(&one("128", Family::Ipv4, 100.0));
    let [only] = &result.losses.episodes[..] else { panic!("{:?}", result.losses) };
    assert_eq!((only.to_ns - only.from_ns, only.lost), (190 * MS, 20));
}

#[test]
fn everything_lost_is_everything_lost() {
    run_both(
        |_, _| {},
        |result, expected, _| {
            let last_loss_ns = Some((N - 1) * SECOND / N);
            let lost =
                GroupCounts { received: 0, lost: N, in_sequence: 0, received_bytes: 0, last_loss_ns, ..expected };
            assert_eq!(result.groups, [lost]);
            assert_eq!((result.receiving_s, result.forwarding_rate().pps()), (0.0, 0.0));
        },
    );
}

#[test]
fn copies_are_counted_beside_the_received() {
    run_both(
        |f, out| {
            out.push(f.on(DELAY));
            if f.nth(10) {
                // One copy immediately, and one after many other frames.
                out.extend([f.on(DELAY), f.on(DELAY + 30 * MS)]);
            }
        },
        |result, expected, _| {
            // The trial ends 2 ms after the last frame, so copies of the last 140 frames (28 ms) arrive too late.
            assert_eq!(result.groups, [GroupCounts { duplicated: 2 * (N / 10) - 140 / 10, ..expected }]);
            all_took(result, DELAY);
        },
    );
}

#[test]
fn swapped_neighbours_are_reordered_by_one() {
    let mut held: Option<Vec<u8>> = None;
    run_both(
        move |f, out| {
            if f.nth(10) && f.number != N {
                held = Some(f.frame.to_vec());
                return;
            }
            out.push(f.on(DELAY));
            if let Some(frame) = held.take() {
                out.push(Out { frame, ..f.on(DELAY) });
            }
        },
        |result, expected, _| {
            let swaps = N / 10 - 1;
            let g = GroupCounts {
                reordered: swaps,
                max_reordering_extent: 1,
                // 8 10 9 11: three frames do not follow their predecessor.
                in_sequence: N - 3 * swaps,
                ..expected
            };
            assert_eq!(result.groups, [g]);
        },
    );
}

#[test]
fn a_frame_that_four_others_pass_has_extent_four() {
    run_both(
        |f, out| {
            // Frames are 200 µs apart, so the delayed one arrives just after the fourth next one.
            out.push(f.on(DELAY + if f.nth(100) && f.number != N { 4 * 200 * US + 1 } else { 0 }));
        },
        |result, expected, _| {
            let n = N / 100 - 1;
            let mean_ns = DELAY as f64 + (n * (4 * 200 * US + 1)) as f64 / N as f64;
            let g = &result.groups[0];
            let expected = GroupCounts {
                reordered: n,
                reordered_3: n,
                max_reordering_extent: 4,
                in_sequence: N - 3 * n,
                ..expected
            };
            assert_eq!(*g, expected);
            assert!((g.latency.mean_ns - mean_ns).abs() < 1e-6, "{} {mean_ns}", g.latency.mean_ns);
            assert_eq!((g.latency.min_ns, g.latency.max_ns), (DELAY, DELAY + 4 * 200 * US + 1));
        },
    );
}

#[test]
fn frames_at_the_wrong_port_are_strays_and_lost() {
    for wrong in [0, 2, 3] {
        run_both(
            move |f, out| {
                let port = if f.nth(50) { wrong } else { f.other() };
                out.push(Out { port, ..f.on(DELAY) });
            },
            |result, expected, _| {
                let mut arrived_at = vec![0; 4];
                (arrived_at[1], arrived_at[wrong]) = (N - N / 50, N / 50);
                let stray = GroupCounts { stray: N / 50, arrived_at, ..every_50th_gone(expected) };
                assert_eq!(result.groups, [stray], "port {wrong}");
            },
        );
    }
}

#[test]
fn a_stray_copy_beside_the_right_one_is_a_stray_and_no_loss() {
    run_both(
        |f, out| {
            out.push(f.on(DELAY));
            if f.nth(25) {
                out.push(Out { port: 2, ..f.on(DELAY) });
            }
        },
        |result, expected, _| {
            let arrived_at = vec![0, N, N / 25, 0];
            assert_eq!(result.groups, [GroupCounts { stray: N / 25, arrived_at, ..expected }]);
        },
    );
}

#[test]
fn late_frames_are_received_and_late() {
    let late = 1_500 * MS;
    run_both(
        move |f, out| out.push(f.on(if f.nth(100) { DELAY + late } else { DELAY })),
        |result, expected, _| {
            let g = &result.groups[0];
            let n = N / 100;
            assert_eq!((g.received, g.lost, g.late, g.duplicated), (N, 0, n, 0));
            // Other frames overtook all but the very last.
            assert_eq!((g.reordered, g.received_bytes), (n - 1, expected.received_bytes));
            // All frames without the delay arrived first; from the 100th on they overtook frame 100.
            assert_eq!(g.max_reordering_extent, N - n - 99);
            assert_eq!(g.latency.max_ns, DELAY + late);
            assert_eq!(g.latency.mean_ns, (N * DELAY + n * late) as f64 / N as f64);
            assert!(result.receiving_s > 2.49, "{}", result.receiving_s);
        },
    );
}

#[test]
fn a_frame_right_at_the_threshold_is_not_late() {
    for (delay, late) in [(SECOND, 0), (SECOND + 1, N)] {
        run_both(
            move |f, out| out.push(f.on(delay)),
            |result, _, _| assert_eq!((result.groups[0].late, result.groups[0].received), (late, N)),
        );
    }
}

#[test]
fn frames_that_outlive_their_trial_are_stale_in_the_next_and_counted_nowhere_else() {
    for family in FAMILIES {
        let mut bench = Bench::new(2, |f, out| {
            out.push(f.on(if f.number <= 1_000 && f.nth(10) { 3 * SECOND } else { DELAY }));
        });
        let mut first = one("64", family, 1_000.0);
        first.drain_s = 0.1;
        let bytes = if family == Family::Ipv4 { 64 } else { 78 };
        let result = bench.run(&first);
        let g = &result.groups[0];
        assert_eq!((g.offered, g.received, g.lost, g.late), (1_000, 900, 100, 0));
        assert_eq!(result.health.stale, 0);
        // 1.1 s have passed; the delayed frames arrive from 3 s to 4 s on.
        let long = spec("64", first.flows, Load::Constant { rate_pps: 500.0 }, 4.0);
        let result = bench.run(&long);
        assert_eq!(result.groups, [all_well(&result, 0, 2_000, bytes)]);
        assert_eq!(result.health.stale, 100);
        assert_eq!(result.health.other_received, 0);
        all_took(&result, DELAY);
    }
}

/// Late frames wait in the same queue of the device as the frames before them.
#[test]
fn a_short_drain_goes_on_while_frames_arrive_but_not_for_ever() {
    for (delay, seconds, received) in [(400 * MS, 1.0, 1_000..=1_000), (2_500 * MS, 4.0, 3_499..=3_501)] {
        let mut bench = Bench::new(2, move |f, out| out.push(f.on(delay)));
        let flows = one("64", Family::Ipv4, 1.0).flows;
        let mut trial = spec("64", flows, Load::Constant { rate_pps: 1_000.0 }, seconds);
        trial.drain_s = 0.1;
        let result = bench.run(&trial);
        assert!(received.contains(&result.received()), "{delay} ns: {}", result.received());
    }
}

#[test]
fn a_frame_that_waited_in_the_port_since_the_last_trial_is_stale() {
    let mut bench = Bench::new(2, |f, out| out.push(f.on(if f.number == 100 { 300 * MS } else { DELAY })));
    let mut short = spec("64", one("64", Family::Ipv4, 1.0).flows, Load::Constant { rate_pps: 1_000.0 }, 0.1);
    short.drain_s = 0.01;
    assert_eq!(bench.run(&short).lost(), 1);
    bench.wait(Duration::from_secs(1));
    let result = bench.run(&short);
    assert_eq!((result.health.stale, result.received(), result.lost()), (1, 100, 0));
}

#[test]
fn frames_of_others_go_to_their_owners() {
    run_both(
        |f, out| {
            out.push(f.on(DELAY));
            if f.nth(20) {
                let mut lldp = vec![0x01, 0x80, 0xc2, 0, 0, 0x0e, 2, 0, 0, 0, 0, 9, 0x88, 0xcc];
                lldp.resize(60, 0x55);
                // A frame to another UDP port, and one that is not UDP.
                let mut other = f.frame.to_vec();
                let at = udp_at(&other);
                other[at + 3] = 10;
                other[at + 8..].fill(0x55);
                let mut tcp = f.frame.to_vec();
                tcp[if at == 34 { 23 } else { 20 }] = 6;
                tcp[at..].fill(0x55);
                for frame in [lldp, other, tcp, vec![1, 2, 3], f.frame[..40].to_vec()] {
                    out.push(Out { frame, ..f.on(DELAY) });
                }
            }
        },
        |result, expected, bench| {
            assert_eq!(result.groups, [expected]);
            assert_eq!(result.health.other_received, 5 * (N / 20));
            assert_eq!(bench.control.handed.len() as u64, 5 * (N / 20));
        },
    );
}

#[test]
fn a_frame_with_our_signature_is_ours_at_any_port() {
    run_both(
        |f, out| {
            out.push(f.on(DELAY));
            if f.nth(20) {
                // A copy with another port, but the old checksum.
                let mut copy = f.on(DELAY);
                let at = udp_at(&copy.frame);
                copy.frame[at + 3] = 10;
                out.push(copy);
            }
        },
        |result, expected, _| {
            let corrupted = N / 20;
            assert_eq!(result.groups, [GroupCounts { corrupted, ..expected }]);
            assert_eq!(result.health.other_received, 0);
        },
    );
}

#[test]
fn a_device_with_several_faults_at_once_is_told_apart() {
    let mut bench = Bench::new(4, |f, out| {
        let n = f.number;
        if n.is_multiple_of(11) {
            return;
        }
        let mut copy = f.on(DELAY);
        if n.is_multiple_of(13) {
            let at = udp_at(&copy.frame) + 8;
            copy.frame[at] ^= 1;
        } else if n.is_multiple_of(17) {
            copy.port = 3;
        } else if n.is_multiple_of(19) {
            out.push(copy.clone());
        }
        out.push(copy);
    });
    let result = bench.run(&one("256", Family::Ipv4, N as f64));
    let count = |hit: fn(u64) -> bool| (1..=N).filter(|n| hit(*n)).count() as u64;
    let g = &result.groups[0];
    let dropped = count(|n| n % 11 == 0);
    let corrupted = count(|n| n % 11 != 0 && n % 13 == 0);
    let stray = count(|n| n % 11 != 0 && n % 13 != 0 && n % 17 == 0);
    let duplicated = count(|n| n % 11 != 0 && n % 13 != 0 && n % 17 != 0 && n % 19 == 0);
    assert_eq!((g.corrupted, g.stray, g.duplicated), (corrupted, stray, duplicated));
    assert_eq!((g.lost, g.received), (dropped + corrupted + stray, N - dropped - corrupted - stray));
}

#[test]
fn latencies_of_two_kinds_are_summed_exactly() {
    let mut bench = Bench::new(2, |f, out| out.push(f.on(if f.nth(2) { 30_001 } else { 10_000 })));
    let result = bench.run(&one("64", Family::Ipv4, N as f64));
    let l = &result.groups[0].latency;
    assert_eq!((l.frames, l.min_ns, l.max_ns, l.mean_ns), (N, 10_000, 30_001, 20_000.5));
    // Percentiles come from a histogram with three digits.
    let near = |p, ns: f64| (l.percentile(p).unwrap() as f64 / ns - 1.0).abs() < 1e-3;
    assert!(near(50.0, 10_000.0) && near(75.0, 30_001.0), "{l:?}");
}

#[test]
fn a_device_that_is_faster_than_light_takes_no_time() {
    // Two readings of a clock may be slightly reversed; the latency is then zero, not 4.29 s.
    let mut bench = Bench::new(2, |f, out| out.push(Out { at: Instant(f.at.0 - 50), ..f.on(0) }));
    let result = bench.run(&one("64", Family::Ipv4, N as f64));
    all_took(&result, 0);
    assert_eq!(result.received(), N);
}
