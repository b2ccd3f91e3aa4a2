//! Convergence skyline: a full table is advertised and withdrawn, three times, under load, and the forwarding rate
//! draws its outline (core router test of 2001; terms of RFC 6413). With fully meshed traffic every port has a part of
//! the table, and all parts come and go at once.

use crate::Method;
use crate::columns;
use crate::parameters::{fewer, params};
use crate::report::{PlotSpec, extremes, lower_by_difference, mean, note, percent_ratio, xy_of};
use crate::route_spread::Spread;
use crate::route_tests::{self, Case, PATIENCE, for_each_family, thousands};
use crate::route_traffic::{self, RouteTrial};
use crate::routes_sent;
use crate::routing::Change;
use crate::table::TableSpec;
use crate::testbed::{TestError, Testbed};
use crate::throughput_search::known_trials;
use crate::trial_count::TrialCount;
use drophammer_model::outcome::{Outcome, PlotKind};
use drophammer_model::param::{Param, Percent};
use drophammer_model::quantity::FrameRate;
use drophammer_model::registry::{FigureSpec, TestSpec};
use drophammer_model::size::PacketSize;
use drophammer_model::suite::Params;
use drophammer_model::trial::{Bin, EventRecord, Family, TrialResult};
use std::time::Duration;

/// The test.
pub struct ConvergenceSkyline;

const ROUTES: Param<u32> = Param::new("routes", "50000", "200000", "routes of the table");
const INTERVAL: Param<Duration> = Param::new("interval", "3 s", "60 s", "time between two changes");
const CYCLES: Param<u32> = Param::new("cycles", "3", "3", "times that the table comes and goes");
const BIN: Param<Duration> = Param::new(
    "bin",
    "20 ms",
    "100 ms",
    "width of time bins; times are no finer than a bin, nor than the time between two frames to a route",
);
const LOWER_LOADS: Param<Option<Vec<Percent>>> = Param::optional(
    "lower_loads",
    "loads to try in turn, in per cent of the same throughput or of `rate`, while the router does not complete a change before the next one, or forwards less than 10 % of the frames to the table at the end of its time",
);

static SPEC: TestSpec = TestSpec {
    name: "convergence_skyline",
    title: "Convergence skyline",
    summary: "how fast the router forwards to a full table that appears and vanishes again and again, under load",
    source: "core router test of 2001: 0, 200,000 and 0 routes, 60 s each; terms of RFC 6413",
    needs: route_traffic::NEEDS,
    params: params![
        &route_tests::TABLES,
        &[ROUTES.spec(), INTERVAL.spec(), CYCLES.spec(), BIN.spec(), LOWER_LOADS.spec()],
        &route_traffic::SPREAD_ONE,
        &route_traffic::LOADED,
        &route_tests::SESSIONS,
    ],
    figures: &[
        FigureSpec { key: "convergence_up_ipv4_s", help: "mean seconds until traffic to all IPv4 routes arrives" },
        FigureSpec { key: "convergence_up_ipv6_s", help: "the same for IPv6" },
        FigureSpec { key: "convergence_down_ipv4_s", help: "mean seconds until traffic to no IPv4 route arrives" },
        FigureSpec { key: "convergence_down_ipv6_s", help: "the same for IPv6" },
        FigureSpec {
            key: "convergence_{event}_{family}_at_{load}_percent_s",
            help: "the same at a lower load, for a router that forwards next to nothing at the load of the others",
        },
    ],
    tables: &[TABLE.shape(), routes_sent::SHAPE],
};

columns! {
    /// One advertisement or withdrawal of the table.
    struct EventRow {
        family: Family = "Family",
        event: String = "Event",
        routes: u64 = "Routes",
        first_s: Option<f64> = "First route after" ["s"],
        last_s: Option<f64> = "Last route after" ["s"],
        rate_rps: Option<f64> = "Rate" ["routes/s"],
        after_frames: Option<u64> = "Wrong frames after that" ["frames"],
        rate_pps: Option<f64> = "Forwarding rate at the end" ["fps"],
        of_throughput_percent: Option<f64> = "Of the throughput" ["%"],
        resolution_s: f64 = "Resolution" ["s"],
    }
}

const TABLE: TableSpec<EventRow> = TableSpec::new("convergence_skyline", "Convergence of a full table");
const PLOT: PlotSpec = PlotSpec {
    key: "convergence_skyline",
    title: "Forwarding rate while a table comes and goes",
    kind: PlotKind::Area,
    x: "time, s",
    y: "arrivals per sending port, fps",
    log_y: false,
};
/// Up to this share of delivered frames in a bin the table counts as gone. It counts as present if no more than this
/// share is missing: the load may exceed what the router forwards while it works.
const EDGE: f64 = 0.01;
/// Bins in a row (or all bins to the next change if those are fewer) in which the frames must arrive. Convergence must
/// be sustained (RFC 6413 section 3.3.2): if a router loses frames later, that is loss, not slow convergence.
const SUSTAINED: usize = 10;

/// If no more than this share of the frames arrives at the end of the time that the table is present, the router forwards
/// next to nothing.
const NEXT_TO_NOTHING: f64 = 0.1;
/// What a note says of such a change.
const UNFINISHED: &str = ", and a change was not complete before the next one";
/// The last part of the time between two changes, in which a router must have converged at least in part to count as
/// one that forwards.
const LAST_PART: f64 = 0.1;

/// Share of a trial for which the DUT's processor may stand still at once. Over minutes at a high load, a shared machine has such
/// stalls; no time is then more exact than the longest of them.
const STALL_SHARE: f64 = 0.001;

/// When the first and the last route changed, in seconds after the change.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Edge {
    first: Option<f64>,
    last: Option<f64>,
    /// Wrong frames after the last route changed: lost ones if the table is present, received ones if it is gone.
    after: u64,
}

/// Reads an edge from the bins between a change at `at_s` and the next one.
fn edge(bins: &[Bin], bin_s: f64, at_s: f64, until_s: f64, up: bool) -> Edge {
    let share = |bin: &Bin| if bin.offered == 0 { None } else { Some(bin.delivered as f64 / bin.offered as f64) };
    // The bin that contains the next change belongs to that change.
    let range = (at_s / bin_s).floor() as usize..((until_s / bin_s + 1e-9).floor() as usize).min(bins.len());
    let after = |bin: usize| ((bin as f64 + 1.0) * bin_s - at_s).max(0.0);
    let shares: Vec<(usize, f64)> = range.filter_map(|i| Some((i, share(&bins[i])?))).collect();
    let began = |s: f64| if up { s > EDGE } else { s < 1.0 - EDGE };
    let ended = |s: f64| if up { s >= 1.0 - EDGE } else { s <= EDGE };
    let first = shares.iter().find(|(_, s)| began(*s)).map(|(i, _)| after(*i));
    let lasts = |from: &usize| shares[*from..].iter().take(SUSTAINED).all(|(_, s)| ended(*s));
    let place = (0..shares.len()).find(lasts);
    let wrong = |(i, _): &(usize, f64)| match up {
        true => bins[*i].offered.saturating_sub(bins[*i].delivered),
        false => bins[*i].delivered,
    };
    let last = place.map(|place| after(shares[place].0));
    Edge { first, last, after: place.map_or(0, |place| shares[place + 1..].iter().map(wrong).sum()) }
}

/// The bins in the last part of the time between a change at `at_s` and the next one, at least one if there are any.
fn last_bins(bins: &[Bin], bin_s: f64, at_s: f64, until_s: f64) -> &[Bin] {
    let bin = |s: f64| ((s / bin_s + 1e-9).floor() as usize).min(bins.len());
    // The bin that contains the next change belongs to that change.
    let (begin, end) = (bin(at_s), bin(until_s));
    let from = bin(until_s - (until_s - at_s) * LAST_PART).min(end.saturating_sub(1)).max(begin);
    bins.get(from..end).unwrap_or_default()
}

impl Method for ConvergenceSkyline {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        TABLE.begin(outcome);
        PLOT.begin(outcome);
        note(outcome, EXPLANATION);
        for_each_family(bed, params, outcome, |bed, family, outcome| skyline(bed, family, params, outcome))
    }

    fn estimate(&self, params: &Params) -> Duration {
        route_traffic::estimate_search(params) + self.estimate_known(params)
    }

    fn estimate_known(&self, params: &Params) -> Duration {
        let trial = INTERVAL.seconds(params) * f64::from(2 * CYCLES.get(params) + 1);
        Duration::from_secs_f64((trial + 3.0) * route_tests::families(params))
    }

    fn trials(&self, params: &Params, searches: usize) -> Option<TrialCount> {
        let lower = LOWER_LOADS.get(params).map_or(0, |loads| loads.len());
        let families = route_tests::FAMILIES.get(params).len();
        Some(TrialCount::between(families, families * (1 + lower)) + known_trials(params, searches))
    }

    fn tolerated_stall(&self, trial_s: f64) -> Duration {
        Duration::from_secs_f64(trial_s * STALL_SHARE)
    }

    fn deviations(&self, params: &Params) -> Vec<String> {
        let interval = INTERVAL.seconds(params);
        let short = (interval < 60.0).then(|| format!("{interval} s between changes instead of 60 s"));
        let few = fewer(params, &CYCLES, "cycles", 3, route_tests::CONFORMANT);
        short.into_iter().chain(few).collect()
    }
}

const EXPLANATION: &str = "The traffic aims at every route in turn. First and last route are the ends of the first time bin with more than 1 % of its \
     frames delivered and of the first of ten bins in a row (or of all to the next event) with at least 99 %; the other way round when \
     the table goes. 'Wrong frames after that' are those that were lost while the table was there, or delivered while it was gone.";

/// The cycles of advertisement and withdrawal.
struct Cycles {
    spread: Spread,
    size: PacketSize,
    interval_s: f64,
    bin_s: f64,
    count: u32,
}

impl Cycles {
    fn duration_s(&self) -> f64 {
        f64::from(2 * self.count) * self.interval_s + self.interval_s.min(1.0)
    }

    /// One trial of all cycles.
    fn run(&self, bed: &mut dyn Testbed, params: &Params, rate: FrameRate) -> Result<TrialResult, TestError> {
        let Cycles { spread, interval_s, bin_s, count, .. } = self;
        let case = &spread.case;
        let mut changes = Vec::new();
        for cycle in 0..*count {
            let at = f64::from(2 * cycle) * interval_s + interval_s.min(1.0);
            changes.push((at, "routes up".to_owned(), spread.actions(Change::Advertise)));
            changes.push((at + interval_s, "routes down".to_owned(), spread.actions(Change::Withdraw)));
        }
        let routes = thousands(case.all.len().into());
        let trial = RouteTrial {
            purpose: format!("convergence skyline {}: {routes} routes, {count} times", case.family),
            size: self.size.clone(),
            streams: spread.streams(),
            rate,
            duration_s: self.duration_s(),
            bin_s: Some(*bin_s),
            per_route: false,
            changes,
        };
        bed.progress(&trial.purpose, 0, 1);
        route_traffic::run(bed, params, &trial, |bed| {
            bed.routing()?.reset(PATIENCE.get(params))?;
            route_tests::establish(bed, &spread.peers(), params).map(drop)
        })
    }

    /// True if a change was not complete before the next one.
    fn is_unfinished(&self, result: &TrialResult) -> bool {
        let Some(group) = result.groups.first() else { return false };
        let unfinished = |(index, event): (usize, &EventRecord)| {
            let until_s = result.events.get(index + 1).map_or(self.duration_s(), |next| next.at_s);
            edge(&group.bins, self.bin_s, event.at_s, until_s, index % 2 == 0).last.is_none()
        };
        result.events.iter().enumerate().any(unfinished)
    }

    /// Share of the frames that arrived in the last part of the time that the table was present; `None` if none were
    /// sent then. A router that converges slowly is not one that forwards next to nothing.
    fn forwarded(&self, result: &TrialResult) -> Option<f64> {
        let bins = &result.groups.first()?.bins;
        let (mut offered, mut delivered) = (0, 0);
        for (index, event) in result.events.iter().enumerate().step_by(2) {
            let until_s = result.events.get(index + 1).map_or(self.duration_s(), |next| next.at_s);
            for bin in last_bins(bins, self.bin_s, event.at_s, until_s) {
                offered += bin.offered;
                delivered += bin.delivered;
            }
        }
        (offered > 0).then(|| delivered as f64 / offered as f64)
    }
}

fn skyline(bed: &mut dyn Testbed, family: Family, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
    let spread = Spread::new(Case::new(bed, family, params, 2, ROUTES.get(params))?, params)?;
    let mut loads = spread.loads(bed, params, outcome)?;
    let Some((size, asked)) = loads.pop() else { return Err(TestError::NotApplicable("no frame size".into())) };
    let whole = match route_traffic::RATE.get(params) {
        Some(rate) => rate,
        None => asked.scaled(100.0 / route_traffic::LOAD.get(params).0),
    };
    let lower = LOWER_LOADS.get(params).unwrap_or_default();
    let (interval_s, bin_s, count) = (INTERVAL.seconds(params), BIN.seconds(params), CYCLES.get(params));
    let cycles = Cycles { spread, size, interval_s, bin_s, count };
    let (mut rate, mut tried, mut lowered) = (asked, lower.iter(), None);
    let result = loop {
        let result = cycles.run(bed, params, rate)?;
        let unfinished = cycles.is_unfinished(&result);
        let too_little = cycles.forwarded(&result).filter(|share| unfinished || *share < NEXT_TO_NOTHING);
        let (Some(share), Some(next)) = (too_little, tried.next()) else { break result };
        let (percent, unfinished) = (share * 100.0, if unfinished { UNFINISHED } else { "" });
        note(
            outcome,
            format!(
                "{family}: at {rate} the router forwarded {percent:.1} % of the frames at the end of the time that the table was \
                 there{unfinished}; measured again at {} %.",
                next.0
            ),
        );
        (rate, lowered) = (whole.scaled(next.0 / 100.0), Some(*next));
    };
    let spread = &cycles.spread;
    route_tests::note_losses(bed, family, &spread.peers(), outcome)?;
    if spread.is_meshed() {
        note(outcome, format!("{family}: {}, which come and go at all ports at once.", spread.text()));
    }
    let throughput = route_traffic::baseline_of(bed, cycles.size.clone(), family, params);
    let duration_s = cycles.duration_s();
    let stalled_ns = result.health.dut_processor.as_ref().map_or(0, |processor| processor.longest_stall_ns);
    let stall_s = Duration::from_nanos(stalled_ns).as_secs_f64();
    let times = Times { bin_s, every_s: spread.every_s(rate), stall_s, duration_s, lowered, throughput };
    if stall_s > bin_s {
        let (stall_ms, bin_ms) = (stall_s * 1e3, bin_s * 1e3);
        note(
            outcome,
            format!(
                "{family}: a bin has {bin_ms:.0} ms, but the DUT's processor once stood still for {stall_ms:.0} ms, so a time is no more \
                 exact than that."
            ),
        );
    }
    if times.every_s > bin_s {
        let (every_ms, bin_ms) = (times.every_s * 1e3, bin_s * 1e3);
        note(
            outcome,
            format!(
                "{family}: a bin has {bin_ms:.0} ms, but frames go to each route every {every_ms:.0} ms, so a time is no more exact than \
                 that; a higher load or fewer routes make it so."
            ),
        );
    }
    write(outcome, family, &result, spread.case.all.len(), &times);
    Ok(())
}

/// Resolution of the times of a trial.
struct Times {
    bin_s: f64,
    /// Time between two frames to a route.
    every_s: f64,
    /// The longest time for which the DUT's processor stood still.
    stall_s: f64,
    duration_s: f64,
    /// The last load that was tried after the router forwarded next to nothing at the requested one.
    lowered: Option<Percent>,
    /// Throughput of the same traffic, if known.
    throughput: Option<FrameRate>,
}

impl Times {
    /// The traffic aims at each route only once per round, so one bin may contain no frame for most routes.
    fn resolution_s(&self) -> f64 {
        self.bin_s.max(self.every_s).max(self.stall_s)
    }
}

fn write(outcome: &mut Outcome, family: Family, result: &TrialResult, routes: u32, of: &Times) {
    let (bin_s, resolution_s) = (of.bin_s, of.resolution_s());
    let Some(group) = result.groups.first() else { return };
    let senders = f64::from(result.senders.max(1));
    let (mut ups, mut downs, mut never) = (Vec::new(), Vec::new(), [0; 2]);
    for (index, event) in result.events.iter().enumerate() {
        let up = index % 2 == 0;
        let until = result.events.get(index + 1).map_or(of.duration_s, |next| next.at_s);
        let found = edge(&group.bins, bin_s, event.at_s, until, up);
        let times = if up { &mut ups } else { &mut downs };
        times.extend(found.last);
        if found.last.is_none() {
            never[usize::from(!up)] += 1;
        }
        let last = last_bins(&group.bins, bin_s, event.at_s, until);
        let arrived: u64 = last.iter().map(|bin| bin.arrived).sum();
        let rate_pps = (up && !last.is_empty()).then(|| arrived as f64 / (last.len() as f64 * bin_s) / senders);
        TABLE.add(
            outcome,
            EventRow {
                family,
                event: event.label.clone(),
                routes: routes.into(),
                first_s: found.first,
                last_s: found.last,
                rate_rps: found.last.map(|s| f64::from(routes) / s.max(resolution_s)),
                after_frames: found.last.map(|_| found.after),
                rate_pps,
                of_throughput_percent: percent_ratio(rate_pps, of.throughput.map(|rate| rate.pps())),
                resolution_s,
            },
            [result.trial],
            found.last.is_none().then(|| "not before the next event".into()),
        );
        PLOT.event(outcome, event.at_s, &event.label);
    }
    for (at, bin) in group.bins.iter().enumerate() {
        let dot = xy_of(at as f64 * bin_s, bin.arrived as f64 / bin_s / senders, result.trial);
        PLOT.curve(outcome, &family.to_string(), dot);
    }
    let name = family.to_string().to_lowercase();
    for (word, times, never) in [("up", &ups, never[0]), ("down", &downs, never[1])] {
        if let Some((least, most)) = extremes(times).filter(|_| times.len() > 1) {
            note(outcome, format!("{family}, {word}: {least:.2} to {most:.2} s in {} events", times.len()));
        }
        // A mean over only the events that completed would favour a router that sometimes does not complete.
        let value = (never == 0 && !times.is_empty()).then(|| mean(times));
        let title = format!("Convergence of {} routes, {word}, {family}", thousands(routes.into()));
        let key = format!("convergence_{word}_{name}_s");
        // Means that differ by less than the resolution of the times are equal.
        let figure = |key, title, value| lower_by_difference(key, title, "s", value, resolution_s);
        match of.lowered {
            None => outcome.ranks.push(figure(key, title, value)),
            // This router has no figure at the common load, and a separate figure at the lower load.
            Some(Percent(percent)) => {
                let lower = format!("convergence_{word}_{name}_at_{percent}_percent_s");
                outcome.ranks.push(figure(key, title.clone(), None));
                outcome.ranks.push(figure(lower, format!("{title}, at {percent} % load"), value));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bins(shares: &[f64]) -> Vec<Bin> {
        let bin = |s: &f64| Bin { offered: 1000, delivered: (s * 1000.0) as u64, arrived: (s * 1000.0) as u64 };
        shares.iter().map(bin).collect()
    }

    #[test]
    fn edges_are_found_to_the_bin() {
        let all = bins(&[0.0, 0.0, 0.0, 0.3, 0.7, 1.0, 1.0, 1.0, 0.6, 0.0, 0.0]);
        // The change came at 0.2 s; 30 % were delivered of the bin that ends at 0.4 s, all from the one that ends at 0.6 s.
        let up = edge(&all, 0.1, 0.2, 0.75, true);
        assert!((up.first.unwrap() - 0.2).abs() < 1e-9 && (up.last.unwrap() - 0.4).abs() < 1e-9, "{up:?}");
        let down = edge(&all, 0.1, 0.8, 1.1, false);
        assert!((down.first.unwrap() - 0.1).abs() < 1e-9 && (down.last.unwrap() - 0.2).abs() < 1e-9, "{down:?}");
    }

    #[test]
    fn the_next_change_and_a_stumble_are_no_lack_of_convergence() {
        // All frames arrive from 0.3 s on; a dip at 1.5 s; the bin of the next change, at 1.95 s, is ignored.
        let mut shares = [0.0, 0.0, 0.4].to_vec();
        shares.extend([1.0; 12]);
        shares.extend([0.5, 1.0, 1.0, 1.0, 0.3, 0.0]);
        let up = edge(&bins(&shares), 0.1, 0.2, 1.95, true);
        assert!((up.last.unwrap() - 0.2).abs() < 1e-9, "{up:?}");
        assert_eq!(up.after, 500);
        let down = edge(&bins(&[1.0, 0.5, 0.0, 0.0, 0.02, 0.0]), 0.1, 0.1, 0.6, false);
        assert!((down.last.unwrap() - 0.5).abs() < 1e-9 && down.after == 0, "{down:?}");
    }

    #[test]
    fn a_table_that_never_comes_has_no_last_route() {
        let found = edge(&bins(&[0.0, 0.0, 0.5, 0.5, 0.5]), 0.1, 0.1, 0.5, true);
        assert!(found.first.is_some() && found.last.is_none());
        assert_eq!(edge(&bins(&[0.0; 5]), 0.1, 0.1, 0.5, true), Edge::default());
    }

    #[test]
    fn the_last_part_is_a_tenth_of_the_time_and_ends_before_the_next_change() {
        // Changes at 0.2 and 1.25 s: the tenth of that begins at 1.145 s, and the bin of the next change is left out.
        let mut shares = [0.0; 20];
        (shares[11], shares[12]) = (0.7, 0.9);
        let all = bins(&shares);
        assert_eq!(last_bins(&all, 0.1, 0.2, 1.25), &all[11..12]);
        // At least one bin, if there is one.
        assert_eq!(last_bins(&all, 0.1, 0.2, 0.4), &all[3..4]);
        assert_eq!((last_bins(&all, 0.1, 0.2, 0.25), last_bins(&[], 0.1, 0.2, 0.4)), (&[][..], &[][..]));
    }
}
