//! Inter-packet delay variation (RFC 8219 section 7.3.2) at the loads of the latency test.

use super::groups_named;
use crate::kit::prelude::*;
use drophammer_model::latency::IpdvSummary;
use drophammer_model::trial::FlowSpec;

/// `ipdv`
pub(super) const IPDV: Param<bool> = Param::fixed(
    "ipdv",
    "false",
    "also measure inter-packet delay variation: the difference in latency between a frame and the previous frame of its flow \
     (RFC 8219 section 7.3.2)",
);

columns! {
    /// One load and flow group: medians over its trials.
    pub(super) struct IpdvRow {
        frame_size: PacketSize,
        flows: String,
        load_percent: Option<f64> = "Share of throughput" ["%"],
        load_pps: f64 ["fps"],
        pairs: u64 ["frames"],
        ipdv_min_us: Option<f64> = "Minimum" ["µs"],
        ipdv_median_us: Option<f64> = "Median" ["µs"],
        ipdv_max_us: Option<f64> = "Maximum" ["µs"],
    }
}

pub(super) const TABLE: TableSpec<IpdvRow> = TableSpec::new("latency_ipdv", "Inter-packet delay variation");

/// Requests the measurement from the flows under test.
pub(super) fn request(flows: &mut [FlowSpec]) {
    flows.iter_mut().filter(|flow| !flow.background).for_each(|flow| flow.ipdv = true);
}

/// Adds the row of a group at a load, if its trials measured the variation.
pub(super) fn write(
    outcome: &mut Outcome,
    size: &PacketSize,
    group: &str,
    (load_percent, load_pps): (Option<f64>, f64),
    results: &[TrialResult],
) {
    let all: Vec<IpdvSummary> = groups_named(results, group).filter_map(|g| g.ipdv).collect();
    if all.is_empty() {
        return;
    }
    let measured = || all.iter().filter(|ipdv| ipdv.pairs > 0);
    let us = |of: fn(&IpdvSummary) -> i64| median(&measured().map(|ipdv| of(ipdv) as f64 / 1e3).collect::<Vec<_>>());
    TABLE.add(
        outcome,
        IpdvRow {
            frame_size: size.clone(),
            flows: group.to_owned(),
            load_percent,
            load_pps,
            pairs: all.iter().map(|ipdv| ipdv.pairs).sum(),
            ipdv_min_us: us(|ipdv| ipdv.min_ns),
            ipdv_median_us: us(|ipdv| ipdv.median_ns),
            ipdv_max_us: us(|ipdv| ipdv.max_ns),
        },
        trials(results),
        None,
    );
}
