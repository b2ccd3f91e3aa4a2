//! Counts of trials for which the kernel's counts are known.

use super::*;
use drophammer_model::traffic::Deviation;
use drophammer_model::trial::Health;

fn off(trial: u64, sent: i64, received: i64) -> Counts {
    Counts { trial, sent, received }
}

fn grow(result: &mut TrialResult, counter: &str, frames: i64) {
    let value = result.dut_counters.get_mut(counter).unwrap();
    *value = value.checked_add_signed(frames).unwrap();
}

/// A trial in which every count is a different number, including the kernel's counts.
fn trial() -> TrialResult {
    let first = GroupCounts {
        group: "IPv4".into(),
        intended: 1_100,
        offered: 1_000,
        refused: 7,
        received: 950,
        lost: 50,
        duplicated: 3,
        reordered: 13,
        late: 11,
        corrupted: 4,
        deviations: [(Deviation::Ttl, 5), (Deviation::Dscp, 14)].into(),
        deviating_copies: 6,
        stray: 2,
        ..GroupCounts::default()
    };
    let second = GroupCounts { group: "IPv6".into(), offered: 500, received: 480, lost: 20, ..GroupCounts::default() };
    let beside = GroupCounts {
        group: "broadcast".into(),
        offered: 40,
        refused: 1,
        stray: 8,
        lost: 40,
        ..GroupCounts::default()
    };
    let health = Health {
        unsent: 100,
        refused_by_tester: 60,
        stale: 1,
        other_received: 9,
        other_sent: Some(12),
        ..Health::default()
    };
    // Sent frames: 1,000 - 7 + 500 + 40 - 1 + 12. Received frames: 950 + 3 + 4 + 5 + 14 + 6 + 2, 480, 8, 1 and 9.
    let counters = [
        ("t0.tx_packets", 1_000),
        ("t11.tx_packets", 544),
        ("t0.rx_packets", 482),
        ("t11.rx_packets", 1_000),
        // Counters of the router, and counters of something other than frames.
        ("d0.tx_packets", 77),
        ("d0.rx_packets", 78),
        ("r1.d0.rx_packets", 79),
        ("t0.tx_bytes", 80),
        ("t0.rx_dropped", 81),
    ];
    TrialResult {
        trial: 3,
        groups: vec![first, second],
        background: vec![beside],
        health,
        dut_counters: counters.map(|(name, frames)| (name.to_owned(), frames)).into(),
        ..TrialResult::default()
    }
}

#[test]
fn each_frame_that_passes_an_interface_counts_once() {
    assert_eq!(Counts::of(&trial()), Some(off(3, 0, 0)));
}

#[test]
fn one_frame_more_or_less_in_the_kernel_is_a_difference() {
    for frames in [1, -1] {
        let mut result = trial();
        grow(&mut result, "t11.tx_packets", frames);
        assert_eq!(Counts::of(&result), Some(off(3, frames, 0)));
        let mut result = trial();
        grow(&mut result, "t0.rx_packets", frames);
        assert_eq!(Counts::of(&result), Some(off(3, 0, frames)));
        // A counter of the router.
        let mut result = trial();
        grow(&mut result, "d0.rx_packets", frames);
        assert_eq!(Counts::of(&result), Some(off(3, 0, 0)));
    }
}

/// Name of a count of the tester, a function that adds one frame to it, and by how many frames the kernel's counts of
/// sent and received frames then change.
type Change = (&'static str, fn(&mut TrialResult), [i64; 2]);

#[test]
fn one_frame_more_at_the_tester_is_a_difference_where_it_passed_an_interface() {
    let changes: [Change; 20] = [
        ("offered", |r| r.groups[1].offered += 1, [-1, 0]),
        ("refused by the router's ring", |r| r.groups[1].refused += 1, [1, 0]),
        ("other sent", |r| r.health.other_sent = Some(13), [-1, 0]),
        ("background offered", |r| r.background[0].offered += 1, [-1, 0]),
        ("background refused", |r| r.background[0].refused += 1, [1, 0]),
        ("received", |r| r.groups[1].received += 1, [0, -1]),
        ("duplicated", |r| r.groups[1].duplicated += 1, [0, -1]),
        ("corrupted", |r| r.groups[1].corrupted += 1, [0, -1]),
        ("deviating", |r| *r.groups[0].deviations.entry(Deviation::Ttl).or_default() += 1, [0, -1]),
        ("deviating copies", |r| r.groups[1].deviating_copies += 1, [0, -1]),
        ("stray", |r| r.groups[1].stray += 1, [0, -1]),
        ("background received", |r| r.background[0].received += 1, [0, -1]),
        ("stale", |r| r.health.stale += 1, [0, -1]),
        ("other received", |r| r.health.other_received += 1, [0, -1]),
        // Parts of other counts, and frames that did not pass through an interface.
        ("late", |r| r.groups[1].late += 1, [0, 0]),
        ("reordered", |r| r.groups[1].reordered += 1, [0, 0]),
        ("lost", |r| r.groups[1].lost += 1, [0, 0]),
        ("intended", |r| r.groups[1].intended += 1, [0, 0]),
        ("unsent", |r| r.health.unsent += 1, [0, 0]),
        ("refused by the tester's ring", |r| r.health.refused_by_tester += 1, [0, 0]),
    ];
    for (count, grow, [sent, received]) in changes {
        let mut result = trial();
        grow(&mut result);
        assert_eq!(Counts::of(&result), Some(off(3, sent, received)), "{count}");
    }
}

#[test]
fn uncounted_frames_are_not_compared() {
    // A result stored by an earlier version.
    let mut result = trial();
    result.health.other_sent = None;
    assert_eq!(Counts::of(&result), None);
    // A result with only counters of the router.
    let mut result = trial();
    result.dut_counters.retain(|name, _| !name.starts_with('t'));
    assert_eq!(Counts::of(&result), None);
    // A counter that did not increase is not stored.
    let mut result = trial();
    result.dut_counters.retain(|name, _| !name.ends_with("tx_packets"));
    assert_eq!(Counts::of(&result), Some(off(3, -1_544, 0)));
}

#[test]
fn numbers_of_a_damaged_record_fit() {
    let mut result = trial();
    (result.groups[0].refused, result.groups[0].received, result.groups[1].received) = (u64::MAX, u64::MAX, u64::MAX);
    assert_eq!(Counts::of(&result), Some(off(3, i64::MAX, i64::MIN)));
    result.dut_counters.values_mut().for_each(|frames| *frames = u64::MAX);
    assert!(Counts::of(&result).is_some() && sentence(&[off(1, i64::MAX, i64::MIN)]).is_some());
}

#[test]
fn the_trial_with_the_largest_difference_is_named() {
    let all = [off(1, 0, 0), off(2, 3, -1), off(3, -5, 0)];
    assert_eq!(agreement(&all, |counts| counts.sent), (1, Some(off(3, -5, 0))));
    assert_eq!(agreement(&all, |counts| counts.received), (2, Some(off(2, 3, -1))));
    assert_eq!(agreement(&all[..1], |counts| counts.sent), (1, None));
    let text = sentence(&all[..2]).unwrap();
    assert!(text.ends_with(
        "agree exactly in 1 of 2 valid trials for frames sent, the kernel counted up to 3 more (trial 2); in 1 of 2 for frames \
         received, the kernel counted up to 1 fewer (trial 2)"
    ));
    let expected = json!({
        "trials": 2,
        "sent": { "agree": 1, "most_off": 3, "most_off_trial": 2 },
        "received": { "agree": 1, "most_off": -1, "most_off_trial": 2 },
    });
    assert_eq!(value(&all[..2]), expected);
    assert_eq!((sentence(&[]), value(&[])), (None, Value::Null));
}

#[test]
fn frames_that_a_card_may_not_count_are_not_compared() {
    let record = |backend: &str, driver: &str| DutRecord {
        ports: vec![PortRecord { backend: backend.into(), driver: driver.into(), ..PortRecord::default() }],
        ..DutRecord::default()
    };
    for (backend, driver, counted) in [
        ("af_packet", "ixgbe", true),
        ("af_xdp", "ixgbe, native XDP, zero-copy", false),
        ("af_xdp", "ixgbe, native XDP, copy", false),
        ("af_xdp", "ixgbe, generic XDP, copy", true),
        ("af_xdp", "veth, native XDP, copy", true),
        ("live_frames", "veth", true),
    ] {
        // This also holds if it applies to only one configuration of the DUT.
        let records = [record("af_packet", "ixgbe"), record(backend, driver)];
        let expected = if counted { None } else { Some(&records[1].ports[0]) };
        assert_eq!(uncounted(&[&records[0], &records[1]]), expected, "{backend}, {driver}");
    }
}
