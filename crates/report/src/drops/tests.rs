//! Sums over trials for which it is known where frames were dropped.

use super::*;
use crate::synthetic;
use drophammer_model::trial::{TrialResult, Validity};

/// A valid trial with these lost and refused frames in two groups, and these counters.
fn trial(number: u64, lost: [u64; 2], refused: u64, counters: &[(&str, u64)]) -> TrialRecord {
    let group = |lost: u64, refused: u64| GroupCounts { offered: 9_000, lost, refused, ..GroupCounts::default() };
    let result = TrialResult {
        trial: number,
        groups: vec![group(lost[0], refused), group(lost[1], 0)],
        dut_counters: counters.iter().map(|(name, frames)| ((*name).to_owned(), *frames)).collect(),
        ..TrialResult::default()
    };
    TrialRecord { result, ..synthetic::trial(number, "router", "throughput", 64, 9_000.0, 0) }
}

/// The account that a report makes of these trials.
fn account(trials: &[TrialRecord]) -> Account {
    Account::of(&trials.iter().collect::<Vec<_>>(), &counted_on(trials))
}

fn invalid(mut trial: TrialRecord) -> TrialRecord {
    trial.result.validity = Validity::Invalid(vec!["the host was busy".into()]);
    trial
}

#[test]
fn drops_of_all_counters_are_compared_with_the_loss() {
    let queues = [("r1.d0.gold.dropped", 60), ("r1.d0.queue_dropped", 60), ("r2.d1.rx_dropped", 25)];
    let trials = [
        trial(1, [100, 20], 35, &queues),
        trial(2, [10, 0], 10, &[("r1.d0.rx_packets", 9_000), ("r1.d0.rx_dropped", 4)]),
        trial(3, [300, 0], 0, &[("r1.d0.rx_dropped", 100), ("t0.tx_bytes", 9)]),
        trial(4, [500, 0], 0, &[("softnet.cpu1.dropped", 500), ("ip.InHdrErrors", 500)]),
        // The first trial lost nothing, and the tester spoilt the second.
        trial(5, [0, 0], 0, &[("r1.d0.rx_dropped", 9)]),
        invalid(trial(6, [1_000, 0], 0, &[("r1.d0.rx_dropped", 7)])),
    ];
    let found = account(&trials);
    let shares = found.shares();
    let frames: Vec<(&str, u64)> = shares.iter().map(|(counter, frames, _)| (*counter, *frames)).collect();
    let expected = [("ip.InHdrErrors", 500), ("rN.dN.rx_dropped", 129), ("rN.dN.gold.dropped", 60), ("refused", 45)];
    assert_eq!(frames, expected);
    assert!((shares.iter().map(|(.., share)| share).sum::<f64>() - 100.0).abs() < 1e-9);
    // Drops and lost frames: trial 1: 120 of 120. Trial 2: 14 of 10. Trial 3: 100 of 300. Trial 4: all.
    assert_eq!(
        found.text().unwrap(),
        "4 lossy trials lost 930 frames; all counters add up to 734 drops (ip.InHdrErrors 68.12 %, rN.dN.rx_dropped 17.57 %, \
         rN.dN.gold.dropped 8.17 %, refused 6.13 %), equal to the loss in 2 of 4 trials; lost frames in no counter: 200; \
         drops beyond the loss: 4; largest difference in trial 3 (300 lost, 100 dropped)"
    );
    assert_eq!(found.sums().map(|(_, frames)| frames), [734, 930, 200, 4]);
    let json = found.json();
    let numbers = ["trials", "lost", "dropped", "exact", "missing", "beyond"].map(|key| json[key].as_u64().unwrap());
    assert_eq!(numbers, [4, 930, 734, 2, 200, 4]);
    assert_eq!(json["worst"], json!({ "trial": 3, "lost": 300, "dropped": 100 }));
    assert_eq!(
        (&json["counters"][0]["counter"], &json["counters"][0]["dropped"]),
        (&json!("ip.InHdrErrors"), &json!(500))
    );
    assert_eq!(json["unknown"], json!({ "trials": 0, "lost": 0 }));
}

#[test]
fn a_sum_that_is_the_loss_says_no_more() {
    let found = account(&[trial(8, [1, 0], 1, &[("t0.tx_bytes", 60)])]);
    let said = "1 lossy trial lost 1 frame; all counters add up to 1 drops (refused 100 %), equal to the loss in 1 of 1 trials";
    assert_eq!(found.text().unwrap(), said);
    assert_eq!((&found.json()["worst"], &found.json()["missing"]), (&Value::Null, &json!(0)));
    // All drop counters were read and none grew, so the sum is 0.
    let none = account(&[trial(9, [3, 0], 0, &[("t0.tx_bytes", 60)])]);
    let said = "1 lossy trial lost 3 frames; all counters add up to 0 drops, equal to the loss in 0 of 1 trials; \
                lost frames in no counter: 3; largest difference in trial 9 (3 lost, 0 dropped)";
    assert_eq!(none.text().unwrap(), said);
}

#[test]
fn drops_that_were_not_read_are_unknown() {
    let unread = [trial(1, [40, 0], 0, &[]), trial(2, [2, 0], 1, &[("t0.tx_packets", 99), ("d0.rx_packets", 97)])];
    let found = account(&unread);
    assert_eq!(found.text().unwrap(), "the drops in 2 lossy trials with 42 lost frames are unknown");
    let json = found.json();
    assert_eq!((&json["lost"], &json["dropped"], &json["counters"]), (&Value::Null, &Value::Null, &Value::Null));
    assert_eq!(json["unknown"], json!({ "trials": 2, "lost": 42 }));
    let counted = counted_on(&unread);
    assert_eq!(unread.each_ref().map(|trial| of_trial(trial, &counted)), [None, None]);
    // Frames that the tester counted as refused need no counter. A counter that increases in one trial was read in all
    // trials.
    let more = [
        trial(3, [40, 0], 0, &[]),
        trial(4, [7, 0], 7, &[]),
        trial(5, [8, 0], 0, &[("d0.ifHCInUcastPkts", 50)]),
        trial(6, [9, 0], 0, &[("d0.ifInDiscards", 9)]),
    ];
    let counted = counted_on(&more);
    assert_eq!(more.each_ref().map(|trial| of_trial(trial, &counted)), [None, Some(7), Some(0), Some(9)]);
    let text = account(&more).text().unwrap();
    assert!(text.starts_with("3 lossy trials lost 24 frames; all counters add up to 16 drops ("), "{text}");
    assert!(text.ends_with("; the drops in 1 lossy trial with 40 lost frames are unknown"), "{text}");
}

#[test]
fn trials_without_loss_or_with_background_traffic_do_not_count() {
    let mut beside = trial(1, [5, 0], 0, &[("d0.rx_dropped", 25)]);
    beside.result.background = vec![GroupCounts { offered: 20, lost: 20, ..GroupCounts::default() }];
    let none = account(&[beside, trial(2, [0, 0], 0, &[]), invalid(trial(3, [5, 0], 0, &[]))]);
    assert_eq!((none.text(), none.json(), none), (None, Value::Null, Account::default()));
}

#[test]
fn a_sentence_names_the_counters_with_the_most_drops() {
    let counters = [
        ("truth.dropped.a", 1),
        ("truth.dropped.b", 50),
        ("truth.dropped.c", 20),
        ("truth.dropped.d", 19),
        ("truth.dropped.e", 10),
    ];
    let found = account(&[trial(1, [100, 0], 0, &counters)]);
    let text = found.text().unwrap();
    let named =
        "(truth.dropped.b 50.00 %, truth.dropped.c 20.00 %, truth.dropped.d 19.00 %, truth.dropped.e 10.00 %, others)";
    assert!(text.contains(named), "{text}");
    assert_eq!(found.json()["counters"].as_array().unwrap().len(), 5);
}
