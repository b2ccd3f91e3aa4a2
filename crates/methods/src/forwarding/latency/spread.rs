//! Spread of the trials at a load (RFC 8219 sections 7.2 and 7.3.1): the 1st and the 99th percentile over the trials.
//! The latency table has the medians.

use super::groups_named;
use crate::kit::prelude::*;
use drophammer_model::latency::LatencySummary;

columns! {
    /// One load and flow group with several trials.
    pub(super) struct SpreadRow {
        frame_size: PacketSize,
        flows: String,
        load_percent: Option<f64> = "Share of throughput" ["%"],
        load_pps: f64 ["fps"],
        trials: u64,
        p50_p1_us: Option<f64> = "Median, 1st percentile" ["µs"],
        p50_p99_us: Option<f64> = "Median, 99th percentile" ["µs"],
        p99_9_p1_us: Option<f64> = "99.9 %, 1st percentile" ["µs"],
        p99_9_p99_us: Option<f64> = "99.9 %, 99th percentile" ["µs"],
        pdv_p1_us: Option<f64> = "Delay variation, 1st percentile" ["µs"],
        pdv_p99_us: Option<f64> = "Delay variation, 99th percentile" ["µs"],
    }
}

pub(super) const TABLE: TableSpec<SpreadRow> = TableSpec::new("latency_spread", "Latency: spread of the trials");

/// The smallest of the sorted values that at least this share of them, in %, does not exceed (RFC 2330 section 11.3).
fn percentile(sorted: &[f64], percent: usize) -> Option<f64> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

/// Adds the row of a group at a load, if frames arrived in several trials.
pub(super) fn write(
    outcome: &mut Outcome,
    size: &PacketSize,
    group: &str,
    (load_percent, load_pps): (Option<f64>, f64),
    results: &[TrialResult],
) {
    let all = groups_named(results, group).map(|g| &g.latency);
    let all: Vec<&LatencySummary> = all.filter(|latency| latency.frames > 0).collect();
    if all.len() < 2 {
        return;
    }
    let spread = |of: fn(&LatencySummary) -> Option<u64>| {
        let mut us: Vec<f64> = all.iter().filter_map(|latency| of(latency)).map(|ns| ns as f64 / 1e3).collect();
        us.sort_by(f64::total_cmp);
        [1, 99].map(|percent| percentile(&us, percent))
    };
    let [p50_p1_us, p50_p99_us] = spread(|latency| latency.percentile(50.0));
    let [p99_9_p1_us, p99_9_p99_us] = spread(|latency| latency.percentile(99.9));
    let [pdv_p1_us, pdv_p99_us] = spread(|latency| Some(latency.percentile(99.9)?.saturating_sub(latency.min_ns)));
    TABLE.add(
        outcome,
        SpreadRow {
            frame_size: size.clone(),
            flows: group.to_owned(),
            load_percent,
            load_pps,
            trials: all.len() as u64,
            p50_p1_us,
            p50_p99_us,
            p99_9_p1_us,
            p99_9_p99_us,
            pdv_p1_us,
            pdv_p99_us,
        },
        trials(results),
        None,
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::trial::GroupCounts;

    #[test]
    fn percentiles_are_values_of_the_sample() {
        let first = |count: u32| (1..=count).map(f64::from).collect::<Vec<_>>();
        let of = |count: u32| [1, 99].map(|percent| percentile(&first(count), percent));
        // Of the twenty trials of RFC 8219, these are the smallest and the largest.
        assert_eq!(of(20), [Some(1.0), Some(20.0)]);
        assert_eq!(of(100), [Some(1.0), Some(99.0)]);
        assert_eq!(of(200), [Some(2.0), Some(198.0)]);
        assert_eq!((of(1), of(0)), ([Some(1.0); 2], [None; 2]));
    }

    #[test]
    fn a_row_has_the_spread_of_each_figure_over_the_trials() {
        let trial = |(trial, p50, p99_9): (u64, u64, u64)| TrialResult {
            trial,
            groups: vec![GroupCounts {
                group: "IPv4".into(),
                latency: LatencySummary {
                    frames: 1_000,
                    min_ns: 500,
                    percentiles: vec![(50.0, p50), (99.9, p99_9)],
                    ..LatencySummary::default()
                },
                ..GroupCounts::default()
            }],
            ..TrialResult::default()
        };
        let results = [(1, 3_000, 7_000), (2, 1_000, 9_000), (3, 2_000, 5_000)].map(trial);
        let (size, mut outcome) = ("64".parse().unwrap(), Outcome::default());
        // A single trial has no spread.
        write(&mut outcome, &size, "IPv4", (Some(50.0), 1e5), &results[..1]);
        assert!(outcome.tables.is_empty());
        write(&mut outcome, &size, "IPv4", (Some(50.0), 1e5), &results);
        let row = SpreadRow {
            frame_size: size,
            flows: "IPv4".into(),
            load_percent: Some(50.0),
            load_pps: 1e5,
            trials: 3,
            p50_p1_us: Some(1.0),
            p50_p99_us: Some(3.0),
            p99_9_p1_us: Some(5.0),
            p99_9_p99_us: Some(9.0),
            pdv_p1_us: Some(4.5),
            pdv_p99_us: Some(8.5),
        };
        assert_eq!(TABLE.rows(&outcome.tables), [row]);
        assert_eq!(outcome.tables[0].rows[0].trials, [1, 2, 3]);
    }
}
