//! IPv4 and IPv6 in one stream (RFC 5180 section 5.3, and a core router test of 2004): rates, loss, order and latency
//! of each family at several shares of IPv6, compared with pure IPv4.

use crate::kit::prelude::*;
use drophammer_model::outcome::FPS_PER_PORT;
use drophammer_model::trial::GroupCounts;

/// The test.
pub struct MixedFamilies;

const FRAME_SIZES: Param<Vec<PacketSize>> =
    Param::fixed("frame_sizes", "[imix]", "sizes of IPv4 frames with FCS, or mixes");
const IPV6_FRAME_SIZE: Param<PacketSize> = Param::fixed(
    "ipv6_frame_size",
    "imix:7x84,4x532,1x1518",
    "size or mix of IPv6 frames; defaults to the IPv4 size plus 20 bytes, if there is room",
);
const IPV6_SHARES: Param<Vec<Percent>> = Param::new(
    "ipv6_shares",
    "[15]",
    "[15, 10, 50, 90, 100]",
    "shares of the frames that are IPv6, in %; pure IPv4 is always measured as well",
);
const LATENCY_LOAD: Param<Percent> =
    Param::fixed("latency_load", "98", "load of the trials for latency and order, in % of the throughput");
const TRIAL_DURATION: Param<Duration> = trial_of_60_s("1 s");

const THROUGHPUT: FigureSpec = FigureSpec::higher(
    "mixed_{size}_{share}_throughput_pps",
    FPS_PER_PORT,
    "throughput with this share of IPv6, per sending port in fps",
);
const LOSS: FigureSpec = FigureSpec::lower_by_difference(
    "mixed_{size}_{share}_loss_percent",
    "%",
    "loss at the highest load with this share of IPv6, in %",
)
.by(LEAST_LOSS_PERCENT);
const MEAN_LATENCY: FigureSpec = FigureSpec::lower(
    "mixed_{size}_{share}_latency_us",
    "µs",
    "mean latency of the slower family at `latency_load` with this share of IPv6, in µs",
);

static SPEC: TestSpec = TestSpec {
    name: "mixed_families",
    title: "IPv4 and IPv6 mixed",
    summary: "rates, loss, order and latency of each IP version in one stream, compared with pure IPv4",
    source: "RFC 5180 section 5.3; core router test of 2004 (85 % IPv4, 15 % IPv6)",
    params: params![
        &[
            FRAME_SIZES.spec(),
            IPV6_FRAME_SIZE.spec(),
            IPV6_SHARES.spec(),
            DIRECTION.spec(),
            LATENCY_LOAD.spec(),
            TRIAL_DURATION.spec(),
        ],
        &SEARCH,
    ],
    figures: &[THROUGHPUT.shape(), LOSS.shape(), MEAN_LATENCY.shape()],
    tables: &[RATES.shape(), FAMILIES.shape()],
    needs: &[],
};

columns! {
    /// One share of IPv6 at the highest load; rates are the sum over all ports.
    struct RateRow {
        frame_size: PacketSize = "IPv4 frame size",
        ipv6_percent: f64 = "IPv6 share" ["%"],
        throughput_pps: Option<f64> = "Throughput per port" ["fps"],
        sent_pps: f64 = "Transmitted" ["fps"],
        received_pps: f64 ["fps"],
        ipv6_sent_pps: f64 = "IPv6 transmitted" ["fps"],
        ipv6_received_pps: f64 = "IPv6 received" ["fps"],
        lost_pps: f64 ["fps"],
        loss_percent: Option<f64> ["%"],
        ipv4_loss_percent: Option<f64> = "IPv4 loss" ["%"],
        ipv6_loss_percent: Option<f64> = "IPv6 loss" ["%"],
        l2_percent: Option<f64> = "Received, layer 2" ["%"],
        out_of_order: Option<u64>,
        stray: u64,
    }
}

columns! {
    /// One family at one share of IPv6, at the load for latency.
    struct FamilyRow {
        frame_size: PacketSize = "IPv4 frame size",
        ipv6_percent: f64 = "IPv6 share" ["%"],
        family: String,
        load_pps: f64 = "Load per port" ["fps"],
        received: u64,
        lost: u64,
        out_of_order: Option<u64>,
        stray: u64,
        corrupted: u64,
        duplicated: u64,
        min_us: Option<f64> = "Minimum" ["µs"],
        mean_us: Option<f64> ["µs"],
        p99_9_us: Option<f64> = "99.9 %" ["µs"],
        max_us: Option<f64> = "Maximum" ["µs"],
        mean_of_ipv4_percent: Option<f64> = "Mean, relative to pure IPv4" ["%"],
    }
}

const RATES: TableSpec<RateRow> = TableSpec::new("mixed_families", "Rates of mixed traffic at the highest load");
const FAMILIES: TableSpec<FamilyRow> = TableSpec::new("mixed_families_latency", "Latency and order by family");
const LATENCY: PlotSpec = PlotSpec::new(
    "mixed_families_latency",
    "Mean latency by share of IPv6",
    PlotKind::Line,
    "share of IPv6, %",
    "latency, µs",
);

/// Loads are comparable if they differ by at most this share.
const SAME_LOAD: f64 = 0.05;

/// For each size, pure IPv4 first, then each share.
fn patterns(params: &Params) -> Vec<(f64, Pattern)> {
    let shares: Vec<f64> =
        std::iter::once(0.0).chain(IPV6_SHARES.get(params).into_iter().map(|share| share.0)).collect();
    let ipv6_size = IPV6_FRAME_SIZE.get(params);
    let of_size = |size: PacketSize| {
        shares.clone().into_iter().map({
            let ipv6_size = ipv6_size.clone();
            move |share| {
                let pattern = Pattern {
                    direction: DIRECTION.get(params),
                    ..Pattern::one_way(size.clone(), vec![Family::Ipv4], DRAIN.seconds(params))
                };
                (share, pattern.mixed(share, Some(ipv6_size.clone())))
            }
        })
    };
    FRAME_SIZES.get(params).into_iter().flat_map(of_size).collect()
}

impl Method for MixedFamilies {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn plan(&self, params: &Params) -> Plan {
        Plan::of(params, patterns(params).into_iter().map(|(_, pattern)| pattern).collect())
            .searching()
            .trials(2, TRIAL_DURATION.seconds(params), 0.5)
            .deviating(shorter(params, &TRIAL_DURATION, "trials", 60.0, "RFC 2544 section 24"))
            .deviating(goal_deviations(params))
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        RATES.begin(outcome);
        FAMILIES.begin(outcome);
        LATENCY.begin(outcome);
        note(
            outcome,
            format!(
                "IPv6 frames have sizes of their own ({}). \"Received, layer 2\" is the share of the transmitted octets, FCS included, \
                 that arrived. Frames are out of order within their flow (RFC 4737).",
                IPV6_FRAME_SIZE.get(params)
            ),
        );
        let (shares, patterns): (Vec<f64>, Vec<Pattern>) = patterns(params).into_iter().unzip();
        let sizes = FRAME_SIZES.get(params);
        let each = patterns.len() / sizes.len().max(1);
        let mut pure = None;
        for_each_pattern(bed, patterns, outcome, |bed, pattern, outcome, index| {
            let (share, size) = (shares[index as usize], &sizes[index as usize / each.max(1)]);
            if share == 0.0 {
                pure = None;
            }
            let (throughput, missing) = match known_throughput(bed, pattern, params, outcome) {
                Ok(found) => (found, None),
                // The trial at the highest load needs no throughput.
                Err(error @ (TestError::NotApplicable(_) | TestError::Unfit(_))) => (None, Some(error)),
                Err(other) => return Err(other),
            };
            let bound = throughput.and_then(|_| known_bound(bed, pattern));
            // The next trial may end the test, so record the throughput now.
            rank_throughput(outcome, (size, share), throughput, bound, missing.as_ref());
            bed.progress(&format!("highest load, {}", pattern.size_text()));
            let limits = pattern.limits(bed);
            let by_suite = MAX_LOAD.get(params).filter(|max| max.pps() < limits.max.pps());
            let highest = by_suite.unwrap_or(limits.max);
            let spec = trial(bed, pattern, params, "highest load", highest)?;
            let result = bed.trial(&spec)?;
            rates(outcome, pattern, (size, share), (throughput, bound), &result, missing.as_ref());
            // At a higher load, a router without loss may lose frames.
            let limit = if by_suite.is_some() { Some(LowerBound::MaxLoad) } else { None };
            let limit = limit.or_else(|| limits.below_line().then_some(LowerBound::Tester));
            rank_loss(outcome, (size, share), &result, (highest, limit.filter(|_| result.lost() == 0)));
            bed.settle(PAUSE.get(params))?;
            let Some(throughput) = throughput else {
                return match missing {
                    // If the tester spoilt any result of a share, the share is not finished.
                    Some(unfit @ TestError::Unfit(_)) => Err(unfit),
                    Some(why) => {
                        note_of(outcome, pattern, format!("no throughput and no latency: {why}"));
                        Ok(())
                    }
                    None => {
                        note_of(outcome, pattern, "no latency, because the router loses frames at every load");
                        Ok(())
                    }
                };
            };
            bed.progress(&format!("latency, {}", pattern.size_text()));
            let load = throughput.scaled(LATENCY_LOAD.get(params).0 / 100.0);
            let spec = trial(bed, pattern, params, "latency", load)?;
            let result = bed.latency_trial(&spec)?;
            let mean = latency(outcome, (size, share), load, &result, pure);
            if share == 0.0 {
                pure = mean.map(|us| (load, us));
            }
            bed.settle(PAUSE.get(params))
        })
    }
}

fn trial(
    bed: &mut dyn Testbed,
    pattern: &Pattern,
    params: &Params,
    what: &str,
    rate: FrameRate,
) -> Result<TrialSpec, TestError> {
    let purpose = format!("mixed families {}: {what}, {:.0} fps per port", pattern.size_text(), rate.pps());
    let load = Load::Constant { rate_pps: rate.pps() };
    pattern.trial(bed.ports(), purpose, load, TRIAL_DURATION.seconds(params))
}

fn of_family(result: &TrialResult, family: Family) -> Option<&GroupCounts> {
    result.groups.iter().find(|group| group.group == family.to_string())
}

fn loss_of(result: &TrialResult, family: Family) -> Option<f64> {
    of_family(result, family).and_then(|group| percent_of(group.lost, group.offered))
}

fn rates(
    outcome: &mut Outcome,
    pattern: &Pattern,
    (size, share): (&PacketSize, f64),
    (throughput, bound): (Option<FrameRate>, Option<LowerBound>),
    result: &TrialResult,
    missing: Option<&TestError>,
) {
    // All rates refer to the time during which frames were sent: a frame is lost if it was sent and not received.
    let per_second = |frames: u64| frames as f64 / result.sending_s;
    let count = |family: Family, of: fn(&GroupCounts) -> u64| of_family(result, family).map_or(0, of);
    let sent_bytes: f64 = [Family::Ipv4, Family::Ipv6]
        .into_iter()
        .map(|family| {
            let bytes = pattern.size_of(family).mean_frame_bytes(family == Family::Ipv6);
            count(family, |group| group.offered) as f64 * bytes
        })
        .sum();
    let received_bytes: u64 = result.groups.iter().map(|group| group.received_bytes).sum();
    let lossless = result.lost() == 0;
    let row = RateRow {
        frame_size: size.clone(),
        ipv6_percent: share,
        throughput_pps: throughput.map(FrameRate::pps),
        sent_pps: per_second(result.offered()),
        received_pps: per_second(result.received()),
        ipv6_sent_pps: per_second(count(Family::Ipv6, |group| group.offered)),
        ipv6_received_pps: per_second(count(Family::Ipv6, |group| group.received)),
        lost_pps: per_second(result.lost()),
        loss_percent: percent_of(result.lost(), result.offered()),
        ipv4_loss_percent: loss_of(result, Family::Ipv4),
        ipv6_loss_percent: loss_of(result, Family::Ipv6),
        // If the last round of a mix was cut off, the mean size of the sent frames is off by less than one round.
        l2_percent: if lossless {
            Some(100.0)
        } else {
            (sent_bytes > 0.0).then(|| received_bytes as f64 / sent_bytes * 100.0)
        },
        out_of_order: result.groups.iter().map(GroupCounts::known_reordered).sum(),
        stray: result.sum(|group| group.stray),
    };
    let unknown = missing.map(|why| format!("throughput unknown: {why}"));
    RATES.add(outcome, row, [result.trial], unknown.into_iter().chain(bound.map(|bound| bound.to_string())));
}

fn rank_throughput(
    outcome: &mut Outcome,
    (size, share): (&PacketSize, f64),
    throughput: Option<FrameRate>,
    bound: Option<LowerBound>,
    missing: Option<&TestError>,
) {
    let title = format!("Throughput with {share} % IPv6, {size}");
    let figure =
        THROUGHPUT.of(&[("size", size), ("share", &share)], title, Some(throughput.map_or(0.0, FrameRate::pps)));
    let capped = bound == Some(LowerBound::MaxLoad);
    outcome.ranks.push(match missing {
        None => RankFigure { tester_limited: bound.is_some() && !capped, capped, ..figure },
        Some(TestError::Unfit(why)) => figure.spoilt(why.join("; ")),
        Some(why) => figure.beyond(why.to_string()),
    });
}

fn rank_loss(
    outcome: &mut Outcome,
    (size, share): (&PacketSize, f64),
    result: &TrialResult,
    (highest, bound): (FrameRate, Option<LowerBound>),
) {
    let title = format!("Loss at the highest load with {share} % IPv6, {size}");
    let loss = loss_percent(std::slice::from_ref(result));
    let figure = LOSS.of(&[("size", size), ("share", &share)], title, loss);
    let capped = bound == Some(LowerBound::MaxLoad);
    let tester_limited = bound.is_some() && !capped;
    outcome.ranks.push(RankFigure { load_pps: Some(highest.pps()), tester_limited, capped, ..figure });
}

/// Returns the mean latency of the slower family in µs; `None` if too many frames were lost, or if clocks do not show it. `pure` is the latency of
/// pure IPv4 and its load.
fn latency(
    outcome: &mut Outcome,
    (size, share): (&PacketSize, f64),
    load: FrameRate,
    result: &TrialResult,
    pure: Option<(FrameRate, f64)>,
) -> Option<f64> {
    let us = |ns: u64| ns as f64 / 1e3;
    // Latency at a different load is not comparable.
    let pure_us = pure.filter(|(at, _)| (load.pps() / at.pps() - 1.0).abs() <= SAME_LOAD).map(|(_, us)| us);
    let overloaded = is_overloaded(std::slice::from_ref(result));
    let mut slowest: Option<f64> = None;
    for family in [Family::Ipv4, Family::Ipv6] {
        let Some(group) = of_family(result, family) else { continue };
        let times = Some(&group.latency).filter(|latency| latency.frames > 0);
        let mean = times.map(|latency| latency.mean_ns / 1e3);
        slowest = slowest.into_iter().chain(mean).max_by(f64::total_cmp);
        let row = FamilyRow {
            frame_size: size.clone(),
            ipv6_percent: share,
            family: family.to_string(),
            load_pps: load.pps(),
            received: group.received,
            lost: group.lost,
            out_of_order: group.known_reordered(),
            stray: group.stray,
            corrupted: group.corrupted,
            duplicated: group.duplicated,
            min_us: times.map(|latency| us(latency.min_ns)),
            mean_us: mean,
            p99_9_us: times.and_then(|latency| latency.percentile(99.9)).map(us),
            max_us: times.map(|latency| us(latency.max_ns)),
            mean_of_ipv4_percent: mean.filter(|_| !overloaded).zip(pure_us).map(|(mean, pure)| mean / pure * 100.0),
        };
        let lossy = (group.lost > 0).then(|| "frames were lost; the figures do not include them".into());
        FAMILIES.add(outcome, row, [result.trial], lossy);
        if let Some(y) = mean {
            let series = format!("{family}, {size}");
            LATENCY.curve(outcome, &series, Point { x: share, y, trial: Some(result.trial), ..Point::default() });
        }
    }
    let hidden = hidden_latency(result, None);
    let slowest = slowest.filter(|_| !overloaded && hidden.is_none());
    let title = format!("Mean latency with {share} % IPv6, {size}");
    let figure = MEAN_LATENCY.of(&[("size", size), ("share", &share)], title, slowest);
    let figure = match hidden.filter(|_| !overloaded) {
        Some(why) => figure.beyond(why),
        None => figure.because("frames were lost, so this is the latency of full queues"),
    };
    outcome.ranks.push(RankFigure { load_pps: Some(load.pps()), ..figure });
    slowest
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::suite::Profile;

    #[test]
    fn an_order_that_is_not_known_is_not_shown_as_kept() {
        let (_, pattern) = patterns(&drophammer_suite::defaults(SPEC.params, Profile::Quick)).remove(1);
        let of_order = |order_unknown: u64| {
            let group = |family: Family, order_unknown| GroupCounts {
                group: family.to_string(),
                offered: 1_000,
                received: 1_000,
                reordered: 3,
                order_unknown,
                ..GroupCounts::default()
            };
            let groups = vec![group(Family::Ipv4, 0), group(Family::Ipv6, order_unknown)];
            let result = TrialResult { trial: 1, sending_s: 1.0, groups, senders: 1, ..TrialResult::default() };
            let (mut outcome, rate) = (Outcome::default(), FrameRate(2_000.0));
            rates(&mut outcome, &pattern, (&pattern.size, 15.0), (Some(rate), None), &result, None);
            latency(&mut outcome, (&pattern.size, 15.0), rate, &result, None);
            let of_all = RATES.rows(&outcome.tables).remove(0).out_of_order;
            let of_families = FAMILIES.rows(&outcome.tables).into_iter().map(|row| row.out_of_order);
            (of_all, of_families.collect::<Vec<Option<u64>>>())
        };
        assert_eq!(of_order(0), (Some(6), vec![Some(3), Some(3)]));
        // The frames of a flow arrived at several queues of a port.
        assert_eq!(of_order(1_000), (None, vec![Some(3), None]));
    }
}
