//! Whatever the reference device does to frames, the analyzer counts what the device reports.

use crate::common::*;
use drophammer_methods::Testbed;
use drophammer_methods::pattern::Pattern;
use drophammer_model::pattern::Direction;
use drophammer_model::quantity::Instant;
use drophammer_model::trial::{Family, GroupCounts, Load, TrialResult, TrialSpec};
use drophammer_reference::{
    Config, Corrupt, DropAtLowLoad, Faults, FilterRule, Hold, Misroute, NOBODY, OwnFrames, Reorder, Sag, Truth,
    WrongNextHop,
};
use drophammer_testbed::setup::TestSetup;
use proptest::prelude::*;
use std::time::Duration;

const BOTH: [Family; 2] = [Family::Ipv4, Family::Ipv6];

/// The events of one trial.
struct Story {
    result: TrialResult,
    truth: Truth,
}

impl Story {
    fn sum(&self, count: impl Fn(&GroupCounts) -> u64) -> u64 {
        self.result.sum(count)
    }
}

/// Counts of a device between two readings.
fn since(now: Truth, before: Truth) -> Truth {
    let mut d = now;
    d.received -= before.received;
    d.transit -= before.transit;
    d.forwarded -= before.forwarded;
    d.test_frames -= before.test_frames;
    d.duplicated -= before.duplicated;
    d.corrupted -= before.corrupted;
    d.misrouted -= before.misrouted;
    d.wrong_next_hop -= before.wrong_next_hop;
    d.held -= before.held;
    d.reordered -= before.reordered;
    d.reorder_expired -= before.reorder_expired;
    d.own_frames -= before.own_frames;
    d.dropped.buffer -= before.dropped.buffer;
    d.dropped.fault_every -= before.dropped.fault_every;
    d.dropped.fault_share -= before.dropped.fault_share;
    d.dropped.fault_window -= before.dropped.fault_window;
    d.dropped.fault_low_load -= before.dropped.fault_low_load;
    d.dropped.fault_growth -= before.dropped.fault_growth;
    d.dropped.filtered -= before.dropped.filtered;
    d.dropped.fib_full -= before.dropped.fib_full;
    d.dropped.unresolved -= before.dropped.unresolved;
    d
}

fn trial(bed: &TestSetup<'_>, size: &str, load: Load, duration_s: f64) -> TrialSpec {
    let size = size.parse().unwrap();
    let pattern = Pattern { direction: Direction::Bidirectional, ..Pattern::one_way(size, BOTH.to_vec(), 2.0) };
    let mut spec = pattern.trial(bed.ports(), "known".into(), load, duration_s).unwrap();
    spec.bin_s = Some(duration_s / 5.0);
    spec
}

/// Runs a trial with these faults at `rate` on both ports for 0.2 s.
fn story(change: impl FnOnce(&mut Config), faults: Faults, rate_pps: f64) -> Story {
    with_bed(&suite("", "tests: [throughput]\n"), &BOTH, change, |bed, reference| {
        // The device learns its neighbours before it has faults.
        let quiet = trial(bed, "64", Load::Constant { rate_pps: 1_000.0 }, 0.1);
        bed.trial(&quiet).unwrap();
        reference.set_faults(faults).unwrap();
        let before = reference.truth();
        let spec = trial(bed, "128", Load::Constant { rate_pps }, 0.2);
        let result = bed.trial(&spec).unwrap();
        assert!(result.validity.is_valid(), "{:?}", result.validity);
        let truth = since(reference.truth(), before);
        let story = Story { result, truth };
        conserved(&story);
        story
    })
}

/// Checks that no frame appears or disappears between device and analyzer.
fn conserved(s: &Story) {
    let (r, t) = (&s.result, &s.truth);
    for g in &r.groups {
        assert_eq!(g.offered, g.received + g.lost);
        assert_eq!(g.bins.iter().map(|b| b.offered).sum::<u64>(), g.offered);
        assert_eq!(g.bins.iter().map(|b| b.delivered).sum::<u64>(), g.received);
        assert_eq!(g.latency.frames, g.received);
        assert_eq!(g.last_loss_ns.is_some(), g.lost > 0);
    }
    assert_eq!(r.losses.lost(), r.lost());
    assert_eq!(r.offered(), r.intended());
    assert_eq!(r.offered(), t.transit);
    assert_eq!(t.transit + t.duplicated, t.forwarded + t.dropped.total() + t.queued, "{t:?}");
    // Every frame that left the device was counted exactly once.
    if t.queued == 0 {
        let seen = r.received() + s.sum(|g| g.duplicated + g.corrupted + g.stray) + r.health.stale;
        assert_eq!(seen, t.forwarded, "{t:?} {r:?}");
    }
}

#[test]
fn without_faults_nothing_is_lost_and_latency_is_the_delay() {
    let delay = Duration::from_nanos(34_567);
    let s = story(|c| c.delay = delay, Faults::default(), 5_000.0);
    assert_eq!((s.result.lost(), s.result.received(), s.truth.forwarded), (0, 2_000, 2_000));
    for g in &s.result.groups {
        let l = &g.latency;
        assert_eq!((l.min_ns, l.mean_ns, l.max_ns, l.percentile(50.0)), (34_567, 34_567.0, 34_567, Some(34_567)));
        assert_eq!((g.in_sequence > 0, g.reordered, g.duplicated, g.corrupted, g.stray), (true, 0, 0, 0, 0));
    }
}

#[test]
fn drops_are_lost() {
    for every in [1, 2, 3, 7, 100, 1_999] {
        let s = story(|_| {}, Faults { drop_every: every, ..Faults::default() }, 5_000.0);
        // The device has already counted 200 frames.
        let due = 2_200 / every - 200 / every;
        assert_eq!((s.result.lost(), s.truth.dropped.fault_every), (due, due), "every {every}");
    }
    let s = story(|_| {}, Faults { drop_share: 0.3, ..Faults::default() }, 5_000.0);
    assert_eq!(s.result.lost(), s.truth.dropped.fault_share);
    assert!(s.result.loss_ratio() > 0.2 && s.result.loss_ratio() < 0.4);
}

#[test]
fn copies_are_duplicates() {
    for every in [1, 2, 9] {
        let s = story(|_| {}, Faults { duplicate_every: every, ..Faults::default() }, 5_000.0);
        assert_eq!(s.truth.duplicated, 2_200 / every - 200 / every);
        assert_eq!((s.sum(|g| g.duplicated), s.result.lost(), s.result.received()), (s.truth.duplicated, 0, 2_000));
    }
}

#[test]
fn changed_bytes_are_corrupted_mended_or_not() {
    for (offset, fix_checksum) in [(None, false), (None, true), (Some(0), true), (Some(1_000_003), true)] {
        let corrupt = Some(Corrupt { every: 5, offset, fix_checksum });
        let s = story(|_| {}, Faults { corrupt, ..Faults::default() }, 5_000.0);
        assert_eq!(s.truth.corrupted, 400);
        assert_eq!((s.sum(|g| g.corrupted), s.result.lost()), (400, 400), "{offset:?} {fix_checksum}");
    }
}

#[test]
fn misrouted_frames_are_strays() {
    for to_port in [0, 1] {
        let misroute = Some(Misroute { every: 3, to_port });
        let s = story(|_| {}, Faults { misroute, ..Faults::default() }, 5_000.0);
        assert!(s.truth.misrouted > 0);
        assert_eq!((s.sum(|g| g.stray), s.result.lost()), (s.truth.misrouted, s.truth.misrouted));
    }
}

#[test]
fn frames_to_a_wrong_next_hop_are_strays() {
    // An address that no station has, and the host on the other port. In the latter case the frame is intact and at the
    // right port, but not addressed to the expected host.
    let other_host = drophammer_rig::host_mac(11, 0);
    for mac in [NOBODY, other_host] {
        let wrong_next_hop = Some(WrongNextHop { every: 7, mac });
        let s = story(|_| {}, Faults { wrong_next_hop, ..Faults::default() }, 5_000.0);
        assert_eq!(s.truth.wrong_next_hop, 2_200 / 7 - 200 / 7);
        // Half of the frames are for the host on the first port, so the address is right for them.
        let wrong = s.sum(|g| g.stray);
        let expected = s.truth.wrong_next_hop;
        assert!(if mac == NOBODY { wrong == expected } else { 0 < wrong && wrong < expected }, "{wrong} of {expected}");
        assert_eq!((s.result.lost(), s.result.received() + wrong), (wrong, 2_000));
    }
}

#[test]
fn loss_at_low_load_vanishes_at_high_load() {
    // At 1,000 fps, 20 frames arrive in 10 ms on both ports together, at 5,000 fps 100 frames.
    let fault = DropAtLowLoad { every: 4, interval: Duration::from_millis(10), below_frames: 50 };
    let faults = || Faults { drop_at_low_load: Some(fault), ..Faults::default() };
    let low = story(|_| {}, faults(), 1_000.0);
    assert_eq!(low.result.lost(), low.truth.dropped.fault_low_load);
    assert_eq!(low.result.lost(), 400 / 4);
    let high = story(|_| {}, faults(), 5_000.0);
    assert_eq!(high.result.lost(), high.truth.dropped.fault_low_load);
    // There is no load before the first interval, and before the second there may be only a part of an interval.
    assert!(high.result.lost() > 0 && high.result.lost() <= 50, "{}", high.result.lost());
}

#[test]
fn routes_without_room_attract_what_vanishes() {
    with_bed(
        &suite("", "tests: [throughput]\n"),
        &BOTH,
        // Each family has two routes, in the order of the ports.
        |c| c.fib_limit = Some(3),
        |bed, reference| {
            let spec = trial(bed, "64", Load::Constant { rate_pps: 1_000.0 }, 0.5);
            let before = reference.truth();
            let result = bed.trial(&spec).unwrap();
            let truth = since(reference.truth(), before);
            assert_eq!(
                (result.lost(), truth.dropped.fib_full),
                (250, 250),
                "IPv6 to the second port, and nothing else"
            );
            assert_eq!(truth.icmp_errors, before.icmp_errors, "nobody is told");
        },
    );
}

#[test]
fn filtered_frames_are_lost_and_counted_by_their_rule() {
    with_bed(
        &suite("", "tests: [throughput]\n"),
        &BOTH,
        |c| {
            // Rules for the networks behind the second port: UDP to another port, one family denied, the other
            // permitted.
            let to = |prefix: &str, len| Some((prefix.parse().unwrap(), len));
            c.filter = vec![
                FilterRule { deny: true, destination_ports: Some((10, 65_535)), ..FilterRule::default() },
                FilterRule {
                    deny: true,
                    destination: to("198.19.0.0", 16),
                    protocol: Some(17),
                    ..FilterRule::default()
                },
                FilterRule { destination: to("2001:2::", 48), ..FilterRule::default() },
            ];
        },
        |bed, reference| {
            let spec = trial(bed, "64", Load::Constant { rate_pps: 1_000.0 }, 0.5);
            let (before, counted) = (reference.truth(), reference.filter_matches());
            let result = bed.trial(&spec).unwrap();
            let truth = since(reference.truth(), before);
            assert_eq!((result.lost(), truth.dropped.filtered), (250, 250));
            let grown: Vec<u64> = reference.filter_matches().iter().zip(counted).map(|(a, b)| a - b).collect();
            assert_eq!(grown, [0, 250, 500]);
        },
    );
}

#[test]
fn held_frames_are_received_late_or_not() {
    for (time_ms, late) in [(40, false), (1_200, true)] {
        let hold = Some(Hold { every: 10, time: Duration::from_millis(time_ms) });
        let s = story(|_| {}, Faults { hold, ..Faults::default() }, 5_000.0);
        assert_eq!((s.truth.held, s.result.lost()), (200, 0));
        assert_eq!(s.sum(|g| g.late), if late { 200 } else { 0 });
        assert!(s.result.groups.iter().any(|g| g.latency.max_ns >= time_ms * 1_000_000));
    }
}

#[test]
fn frames_held_beyond_the_trial_are_stale_in_the_next() {
    with_bed(
        &suite("", "tests: [throughput]\n"),
        &BOTH,
        |_| {},
        |bed, reference| {
            let hold = Some(Hold { every: 10, time: Duration::from_secs(3) });
            let mut short = trial(bed, "64", Load::Constant { rate_pps: 1_000.0 }, 0.2);
            short.drain_s = 0.1;
            bed.trial(&short).unwrap();
            reference.set_faults(Faults { hold, ..Faults::default() }).unwrap();
            let before = reference.truth();
            let first = bed.trial(&short).unwrap();
            let held = since(reference.truth(), before).held;
            assert_eq!((first.lost(), held, first.health.stale), (40, 40, 0));
            reference.set_faults(Faults::default()).unwrap();
            let long = trial(bed, "64", Load::Constant { rate_pps: 500.0 }, 4.0);
            let second = bed.trial(&long).unwrap();
            assert_eq!((second.lost(), second.received(), second.health.stale), (0, second.offered(), held));
            assert_eq!(second.sum(|g| g.duplicated + g.corrupted + g.stray + g.late), 0);
        },
    );
}

#[test]
fn reordered_frames_are_seen_as_such() {
    for positions in [1, 2, 5] {
        let reorder = Some(Reorder { every: 40, positions });
        let s = story(|_| {}, Faults { reorder, ..Faults::default() }, 5_000.0);
        assert_eq!(s.result.lost(), 0);
        assert!(s.truth.reordered > 0);
        // Families and ports are separate flows, so the frames that passed a frame may belong to another flow.
        assert!(s.sum(|g| g.reordered) <= s.truth.reordered);
        assert!(s.result.groups.iter().all(|g| g.max_reordering_extent <= positions));
        assert!(positions == 1 || s.sum(|g| g.reordered) > 0);
    }
}

#[test]
fn jitter_stays_within_its_bounds_and_reorders_nothing() {
    let change = |c: &mut Config| (c.delay, c.jitter) = (Duration::from_micros(20), Duration::from_micros(300));
    let s = story(change, Faults::default(), 5_000.0);
    assert_eq!((s.result.lost(), s.sum(|g| g.reordered)), (0, 0));
    for g in &s.result.groups {
        assert!(g.latency.min_ns >= 20_000 && g.latency.max_ns <= 320_000, "{:?}", g.latency);
        assert!(g.latency.max_ns - g.latency.min_ns > 200_000 && g.latency.mean_ns > 150_000.0, "{:?}", g.latency);
    }
}

#[test]
fn an_overloaded_server_loses_what_its_buffer_cannot_hold() {
    for (capacity, buffer) in [(4_000, 1), (4_000, 10), (9_999, 64)] {
        let change = |c: &mut Config| (c.capacity_pps, c.buffer) = (Some(capacity), buffer);
        let s = story(change, Faults::default(), 5_000.0);
        assert_eq!(s.result.lost(), s.truth.dropped.buffer);
        if buffer > 2 {
            // 2 x 5,000 fps for 0.2 s. In that time and while the buffer drains, the server accepts at most this number
            // of frames.
            let most = capacity / 5 + buffer as u64 + 1;
            assert!((capacity / 5..=most).contains(&s.result.received()), "{} of {most}", s.result.received());
        }
        // The longest wait is the wait for a full buffer.
        let longest = (buffer as u64 * 1_000_000_000).div_ceil(capacity) + 10_000;
        assert!(s.result.groups.iter().all(|g| g.latency.max_ns <= longest), "{:?} {longest}", s.result.groups);
        let rate = 2.0 * s.result.forwarding_rate().pps();
        assert!(buffer == 1 || (rate / capacity as f64 - 1.0).abs() < 0.002, "{rate} at capacity {capacity}");
    }
}

#[test]
fn what_the_device_says_by_itself_is_no_test_traffic() {
    let own_frames = Some(OwnFrames { interval: Duration::from_millis(1), port: 1 });
    let s = story(|_| {}, Faults { own_frames, ..Faults::default() }, 5_000.0);
    assert_eq!((s.result.lost(), s.sum(|g| g.corrupted)), (0, 0));
    // Some arrive between the trial and the readings of the device's counts.
    assert!(s.result.health.other_received > 190, "{}", s.result.health.other_received);
    assert!(s.result.health.other_received <= s.truth.own_frames);
}

#[test]
fn loss_in_a_window_is_placed_in_its_bins_and_its_last_frame_known() {
    with_bed(
        &suite("", "tests: [throughput]\n"),
        &BOTH,
        |_| {},
        |bed, reference| {
            let mut spec = trial(bed, "64", Load::Constant { rate_pps: 10_000.0 }, 0.5);
            spec.bin_s = Some(0.1);
            bed.trial(&spec).unwrap();
            // The trial starts a microsecond from now.
            let start = bed.rig().now() + Duration::from_micros(1);
            let window = (start + Duration::from_millis(120), start + Duration::from_millis(230));
            reference.set_faults(Faults { drop_window: Some(window), ..Faults::default() }).unwrap();
            let result = bed.trial(&spec).unwrap();
            let lost: Vec<u64> =
                (0..6).map(|i| result.groups.iter().map(|g| g.bins[i].offered - g.bins[i].delivered).sum()).collect();
            // There are two ports with 10 frames per ms each.
            assert_eq!(lost, [0, 1_600, 600, 0, 0, 0]);
            assert_eq!(result.groups.iter().filter_map(|g| g.last_loss_ns).max(), Some(229_900_000));
            let [episode] = &result.losses.episodes[..] else { panic!("{:?}", result.losses) };
            assert_eq!((episode.from_ns, episode.to_ns, episode.lost), (120_000_000, 229_900_000, 2_200));
            assert_eq!((episode.flows, episode.groups.len()), (spec.flows.len() as u64, result.groups.len()));
        },
    );
}

fn faults() -> impl Strategy<Value = Faults> {
    let every = || prop_oneof![Just(0u64), 1u64..30];
    (
        (every(), prop_oneof![Just(0.0), 0.0..0.5f64], proptest::option::of((0u64..100, 0u64..200))),
        (every(), proptest::option::of(0usize..100), any::<bool>(), every(), 0usize..2),
        (every(), every(), 0u64..1_500, every(), 0u64..6),
        (proptest::option::of((0u64..300, 500u64..50_000)), every(), every(), 0u64..100),
    )
        .prop_map(
            |(
                (drop_every, drop_share, window),
                (c, offset, fix_checksum, m, to_port),
                (d, h, ms, r, k),
                (sag, w, l, low),
            )| {
                let at = |ms: u64| Instant(100_000_000 + ms * 1_000_000);
                Faults {
                    drop_every,
                    drop_share,
                    drop_window: window.map(|(a, b)| (at(a), at(b))),
                    corrupt: Some(Corrupt { every: c, offset, fix_checksum }),
                    misroute: Some(Misroute { every: m, to_port }),
                    duplicate_every: d,
                    hold: Some(Hold { every: h, time: Duration::from_millis(ms) }),
                    reorder: Some(Reorder { every: r, positions: k }),
                    sag: sag.map(|(ms, capacity_pps)| Sag { from: at(ms), capacity_pps }),
                    wrong_next_hop: Some(WrongNextHop { every: w, mac: NOBODY }),
                    drop_at_low_load: Some(DropAtLowLoad {
                        every: l,
                        interval: Duration::from_millis(10),
                        below_frames: low,
                    }),
                    ..Faults::default()
                }
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn under_any_faults_nothing_appears_or_vanishes(
        faults in faults(), capacity in proptest::option::of(500u64..50_000), buffer in 1usize..100,
        delay in 0u64..100_000, jitter in 0u64..100_000, rate in 50.0f64..8_000.0,
    ) {
        let change = |c: &mut Config| {
            (c.capacity_pps, c.buffer) = (capacity, buffer);
            (c.delay, c.jitter) = (Duration::from_nanos(delay), Duration::from_nanos(jitter));
        };
        // `story` checks that no frame appears or disappears.
        let s = story(change, faults, rate);
        prop_assert!(s.result.lost() >= s.truth.dropped.total());
    }
}
