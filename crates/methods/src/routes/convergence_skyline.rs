//! Convergence skyline: a full table is advertised and withdrawn, three times, under load, and the forwarding rate over
//! time has the outline of a skyline (core router test of 2001; terms of RFC 6413). With fully meshed traffic, every
//! port has a part of the table, and all parts are advertised and withdrawn at the same time.

mod edge;

use crate::figure::of_family;
use crate::kit::prelude::*;
use crate::route_spread::Spread;
use crate::route_tests::{self, Case, PATIENCE, for_each_family, thousands};
use crate::route_traffic::{self, RouteTrial};
use crate::routes_sent;
use crate::routing::Change;
use edge::{SUSTAINED, edge, last_bins};

/// The test.
pub struct ConvergenceSkyline;

const ROUTES: Param<u32> = Param::new("routes", "50000", "200000", "routes of the table");
const INTERVAL: Param<Duration> = Param::new("interval", "3 s", "60 s", "time between two changes");
const CYCLES: Param<u32> = Param::fixed("cycles", "3", "how often the table is advertised and withdrawn");
const BIN: Param<Duration> = Param::new(
    "bin",
    "20 ms",
    "100 ms",
    "width of time bins; no time is more exact than a bin, or than the time between two frames to a route",
);
const LOWER_LOADS: Param<Option<Vec<Percent>>> = Param::optional(
    "lower_loads",
    "lower loads to try in turn, in per cent of the same throughput or of `rate`, if the router does not complete each change before the next one \
     (withdrawals only, if all advertisements completed), or forwards less than 10 % of the frames at the end of the time that the table is present",
);

/// Figures of each family. Means that differ by less than the resolution of the times are equal.
const UP: [FigureSpec; 2] = [
    FigureSpec::lower_by_difference(
        "convergence_up_ipv4_s",
        "s",
        "mean time until traffic to all IPv4 routes arrives, in seconds",
    ),
    FigureSpec::lower_by_difference(
        "convergence_up_ipv6_s",
        "s",
        "mean time until traffic to all IPv6 routes arrives, in seconds",
    ),
];
const DOWN: [FigureSpec; 2] = [
    FigureSpec::lower_by_difference(
        "convergence_down_ipv4_s",
        "s",
        "mean time until traffic to every IPv4 route has stopped, in seconds",
    ),
    FigureSpec::lower_by_difference(
        "convergence_down_ipv6_s",
        "s",
        "mean time until traffic to every IPv6 route has stopped, in seconds",
    ),
];
const LOWERED: FigureSpec = FigureSpec::lower_by_difference(
    "convergence_{event}_{family}_at_{load}_percent_s",
    "s",
    "mean time at a lower load, in seconds, for a router that forwards next to nothing at the common load, or does not complete each such change \
     before the next one",
);

static SPEC: TestSpec = TestSpec {
    name: "convergence_skyline",
    title: "Convergence skyline",
    summary: "how fast forwarding follows a full table that is repeatedly advertised and withdrawn under load",
    source: "core router test of 2001: 0, 200,000 and 0 routes, 60 s each; terms of RFC 6413",
    needs: route_traffic::NEEDS,
    params: params![
        &route_tests::TABLES,
        &[ROUTES.spec(), INTERVAL.spec(), CYCLES.spec(), BIN.spec(), LOWER_LOADS.spec()],
        &route_traffic::SPREAD_ONE,
        &route_traffic::LOADED,
        &route_tests::SESSIONS,
    ],
    figures: &[UP[0].shape(), UP[1].shape(), DOWN[0].shape(), DOWN[1].shape(), LOWERED.shape()],
    tables: &[TABLE.shape(), routes_sent::SHAPE],
};

columns! {
    /// One advertisement or withdrawal of the table.
    struct EventRow {
        family: Family,
        event: String,
        routes: u64,
        first_s: Option<f64> = "First route after" ["s"],
        last_s: Option<f64> = "Last route after" ["s"],
        rate_rps: Option<f64> ["routes/s"],
        after_frames: Option<u64> = "Wrong frames after the last route" ["frames"],
        rate_pps: Option<f64> = "Forwarding rate at the end" ["fps"],
        of_throughput_percent: Option<f64> = "Share of throughput" ["%"],
        resolution_s: f64 ["s"],
    }
}

const TABLE: TableSpec<EventRow> = TableSpec::new("convergence_skyline", "Convergence of a full table");
const PLOT: PlotSpec = PlotSpec::new(
    "convergence_skyline",
    "Forwarding rate while a table comes and goes",
    PlotKind::Area,
    "time, s",
    "arrivals per sending port, fps",
);
/// If at most this share of the frames arrives at the end of the time in which the table is present, the router
/// forwards next to nothing.
const NEXT_TO_NOTHING: f64 = 0.1;
/// Text added to the note if a change was not complete.
const UNFINISHED: &str = ", and a change was not complete before the next one";
/// Share of a trial for which the DUT's processor may stall. In minutes at a high load, a shared machine has such
/// stalls; no time is then more exact than the longest stall.
const STALL_SHARE: f64 = 0.001;

impl Method for ConvergenceSkyline {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn plan(&self, params: &Params) -> Plan {
        let lower = LOWER_LOADS.get(params).map_or(0, |loads| loads.len());
        let interval = INTERVAL.seconds(params);
        let mut plan = Plan::by_family(&SPEC, params)
            .counting(TrialCount::between(1, 1 + lower))
            .taking(interval * f64::from(2 * CYCLES.get(params) + 1) + 3.0)
            .deviating((interval < 60.0).then(|| format!("{interval} s between changes instead of 60 s")))
            .deviating(fewer(params, &ROUTES, "routes", 200_000, route_tests::CONFORMANT))
            .deviating(fewer(params, &CYCLES, "cycles", 3, route_tests::CONFORMANT));
        plan.tolerated_stall = STALL_SHARE;
        plan
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        TABLE.begin(outcome);
        PLOT.begin(outcome);
        note(outcome, EXPLANATION);
        for_each_family(bed, params, outcome, |bed, family, outcome| skyline(bed, family, params, outcome))
    }
}

const EXPLANATION: &str = "The traffic aims at every route in turn. First and last route are the ends of the first time bin with more than 1 % of its \
     frames delivered and of the first of ten bins in a row (or of all bins up to the next event) with at least 99 %; the opposite when \
     the table is withdrawn. 'Wrong frames after the last route' were lost while the table was present, or delivered while it was gone.";

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
        bed.progress(&trial.purpose);
        route_traffic::run(bed, params, &trial, |bed| {
            bed.routing()?.reset(PATIENCE.get(params))?;
            route_tests::establish(bed, &spread.peers(), params).map(drop)
        })
    }

    /// For each direction, true if a change was not complete before the next one. Routes can only go after all routes
    /// have come.
    fn unfinished(&self, result: &TrialResult) -> [bool; 2] {
        let mut unfinished = [false; 2];
        let Some(group) = result.groups.first() else { return unfinished };
        for (index, event) in result.events.iter().enumerate() {
            let until_s = result.events.get(index + 1).map_or(self.duration_s(), |next| next.at_s);
            let found = edge(&group.bins, self.bin_s, event.at_s, until_s, index % 2 == 0);
            unfinished[index % 2] |= found.last.is_none();
        }
        // If only a part of the table came, the withdrawal has less to do.
        unfinished[1] |= unfinished[0];
        unfinished
    }

    /// Share of the sent frames that arrived, over the last part of each period in which the table was present, so that
    /// a router that converges slowly does not count as one that forwards next to nothing. `None` if no frames were
    /// sent then.
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
    let throughput = route_traffic::baseline_of(bed, size.clone(), family, params);
    let cycles = Cycles { spread, size, interval_s, bin_s, count };
    let (spread, duration_s) = (&cycles.spread, cycles.duration_s());
    let (mut rate, mut tried, mut lowered) = (asked, lower.iter(), None);
    let mut measured = Measured { runs: Vec::new(), of: [None; 2] };
    // The directions that no trial has measured yet.
    let mut open = [true; 2];
    let ended = loop {
        let result = match cycles.run(bed, params, rate) {
            Ok(result) => result,
            Err(error) => break Err(error),
        };
        let (unfinished, forwarded) = (cycles.unfinished(&result), cycles.forwarded(&result));
        // If the router forwards next to nothing, withdrawing a table shows as little as advertising it.
        let nothing = forwarded.is_some_and(|share| share < NEXT_TO_NOTHING);
        let again = [0, 1].map(|way| open[way] && (nothing || unfinished[way]));
        let next = forwarded.filter(|_| again.contains(&true)).zip(tried.next());
        for (way, run) in measured.of.iter_mut().enumerate() {
            if open[way] && (next.is_none() || !again[way]) {
                *run = Some(measured.runs.len());
            }
        }
        let processor = result.health.dut_processor.as_ref();
        let stall_s = processor.map_or(0.0, |dut| Duration::from_nanos(dut.standstill_ns()).as_secs_f64());
        let stalled = processor.is_some_and(|dut| dut.stall_tolerated);
        let times = Times { bin_s, every_s: spread.every_s(rate), stall_s, stalled, duration_s, lowered, throughput };
        measured.runs.push(Run { result, times });
        let Some((share, next)) = next else { break Ok(()) };
        let incomplete = [0, 1].map(|way| open[way] && unfinished[way]).contains(&true);
        let (percent, unfinished) = (share * 100.0, if incomplete { UNFINISHED } else { "" });
        let which = if again == [false, true] { "withdrawals are " } else { "" };
        note(
            outcome,
            format!(
                "{family}: at {rate} the router forwarded {percent:.1} % of the frames at the end of the time that the table was \
                 present{unfinished}; {which}measured again at {} %.",
                next.0
            ),
        );
        open = again;
        (rate, lowered) = (whole.scaled(next.0 / 100.0), Some(*next));
    };
    // Writes the results so far even if a later trial failed.
    let ended = ended.and_then(|()| route_tests::note_losses(bed, family, &spread.peers(), outcome));
    if spread.is_meshed() {
        note(outcome, format!("{family}: {}, advertised and withdrawn at all ports at the same time.", spread.text()));
    }
    measured.write(outcome, family, spread.case.all.len());
    ended
}

/// Resolution of the times of a trial.
struct Times {
    bin_s: f64,
    /// Time between two frames to a route.
    every_s: f64,
    /// The longest stall of the DUT's processor.
    stall_s: f64,
    /// True if that stall was longer than the limit of other tests, so that it may have lost frames.
    stalled: bool,
    duration_s: f64,
    /// The lower load, if the requested load was lowered.
    lowered: Option<Percent>,
    /// Throughput of the same traffic, if known.
    throughput: Option<FrameRate>,
}

impl Times {
    /// A route gets only one frame per round of the traffic, so one bin may contain no frame for most routes. Frames
    /// lost in a stall just after convergence interrupt the sequence of complete bins, which then starts again after
    /// the loss.
    fn resolution_s(&self) -> f64 {
        let broken_s = if self.stalled { SUSTAINED as f64 * self.bin_s } else { 0.0 };
        self.bin_s.max(self.every_s).max(self.stall_s + broken_s)
    }

    /// Notes why times are less exact than a bin.
    fn note(&self, outcome: &mut Outcome, family: Family) {
        let (bin_ms, stall_ms, every_ms) = (self.bin_s * 1e3, self.stall_s * 1e3, self.every_s * 1e3);
        if self.stalled {
            let resolution_ms = self.resolution_s() * 1e3;
            note(
                outcome,
                format!(
                    "{family}: the DUT's processor once stalled for {stall_ms:.0} ms, longer than other tests permit. \
                     Frames lost during that time may break the sequence of bins, so a time is no more exact than {resolution_ms:.0} ms; \
                     frames lost after the last route are not reported, because they may not be the router's."
                ),
            );
        } else if self.stall_s > self.bin_s {
            note(
                outcome,
                format!(
                    "{family}: a bin is {bin_ms:.0} ms wide, but the DUT's processor once stalled for {stall_ms:.0} ms, so no time is \
                     more exact than that."
                ),
            );
        }
        if self.every_s > self.bin_s {
            note(
                outcome,
                format!(
                    "{family}: a bin is {bin_ms:.0} ms wide, but frames go to each route every {every_ms:.0} ms, so no time is more exact \
                     than that; a higher load or fewer routes would help."
                ),
            );
        }
    }
}

/// A trial of all cycles.
struct Run {
    result: TrialResult,
    times: Times,
}

impl Run {
    /// The row of an event.
    fn row(&self, index: usize, family: Family, routes: u32) -> Option<EventRow> {
        let Run { result, times } = self;
        let (group, event) = (result.groups.first()?, result.events.get(index)?);
        let (up, bin_s, resolution_s) = (index.is_multiple_of(2), times.bin_s, times.resolution_s());
        let until_s = result.events.get(index + 1).map_or(times.duration_s, |next| next.at_s);
        let found = edge(&group.bins, bin_s, event.at_s, until_s, up);
        let bins = last_bins(&group.bins, bin_s, event.at_s, until_s);
        let arrived: u64 = bins.iter().map(|bin| bin.arrived).sum();
        let senders = f64::from(result.senders.max(1));
        let rate_pps = (up && !bins.is_empty()).then(|| arrived as f64 / (bins.len() as f64 * bin_s) / senders);
        Some(EventRow {
            family,
            event: event.label.clone(),
            routes: routes.into(),
            first_s: found.first,
            last_s: found.last,
            rate_rps: found.last.map(|s| f64::from(routes) / s.max(resolution_s)),
            // A stall of the host can lose frames, but cannot deliver any.
            after_frames: found.last.filter(|_| !(up && times.stalled)).map(|_| found.after),
            rate_pps,
            of_throughput_percent: percent_ratio(rate_pps, times.throughput.map(|rate| rate.pps())),
            resolution_s,
        })
    }
}

/// Trials at decreasing loads, and for each direction the index of the trial that measured it.
struct Measured {
    runs: Vec<Run>,
    of: [Option<usize>; 2],
}

impl Measured {
    /// The trial that measured a direction.
    fn of(&self, way: usize) -> Option<&Run> {
        self.runs.get(self.of[way]?)
    }

    fn write(&self, outcome: &mut Outcome, family: Family, routes: u32) {
        let mut lasts: [Vec<f64>; 2] = [Vec::new(), Vec::new()];
        let mut never = [0; 2];
        let events = self.runs.iter().map(|run| run.result.events.len()).max().unwrap_or(0);
        for index in 0..events {
            let way = index % 2;
            let Some(run) = self.of(way) else { continue };
            let Some(row) = run.row(index, family, routes) else { continue };
            lasts[way].extend(row.last_s);
            let never_came = row.last_s.is_none();
            never[way] += u32::from(never_came);
            if let Some(event) = run.result.events.get(index) {
                PLOT.event(outcome, event.at_s, &event.label);
            }
            let mark = never_came.then(|| "not finished before the next event".to_owned());
            TABLE.add(outcome, row, [run.result.trial], mark);
        }
        self.draw(outcome, family);
        let name = family.to_string().to_lowercase();
        for (way, word) in ["up", "down"].into_iter().enumerate() {
            let Some(Run { times: of, .. }) = self.of(way) else { continue };
            let times = &lasts[way];
            if let Some((least, most)) = extremes(times).filter(|_| times.len() > 1) {
                note(outcome, format!("{family}, {word}: {least:.2} to {most:.2} s in {} events", times.len()));
            }
            // A mean over only the completed events would favour a router that sometimes does not complete.
            let value = (never[way] == 0 && !times.is_empty()).then(|| mean(times));
            let why = format!(
                "{} of {} changes were not finished before the next one (`interval`)",
                never[way],
                never[way] as usize + times.len()
            );
            let title = format!("Convergence of {} routes, {word}, {family}", thousands(routes.into()));
            let figure = of_family(if word == "up" { &UP } else { &DOWN }, family).by(of.resolution_s());
            match of.lowered {
                None => outcome.ranks.push(figure.of(&[], title, value).because(why)),
                // This router has no figure at the common load; its figure at the lower load is a separate one.
                Some(Percent(percent)) => {
                    let lossy =
                        format!("it lost frames at the load of all routers; see the figure at {percent} % of it");
                    outcome.ranks.push(figure.of(&[], title.clone(), None).because(lossy));
                    let (lowered, title) = (LOWERED.by(of.resolution_s()), format!("{title}, at {percent} % load"));
                    outcome.ranks.push(
                        lowered
                            .of(&[("event", &word), ("family", &name), ("load", &percent)], title, value)
                            .because(why),
                    );
                }
            }
        }
    }

    /// Draws the skyline of each trial that measured a direction, and notes the resolution of its times.
    fn draw(&self, outcome: &mut Outcome, family: Family) {
        let two = self.of[0] != self.of[1];
        for (_, run) in self.runs.iter().enumerate().filter(|(at, _)| self.of.contains(&Some(*at))) {
            let Run { result, times } = run;
            times.note(outcome, family);
            let name = match times.lowered.filter(|_| two) {
                Some(Percent(percent)) => format!("{family}, at {percent} % load"),
                None => family.to_string(),
            };
            let senders = f64::from(result.senders.max(1));
            for (at, bin) in result.groups.iter().take(1).flat_map(|group| &group.bins).enumerate() {
                let rate_pps = bin.arrived as f64 / times.bin_s / senders;
                PLOT.curve(outcome, &name, xy_of(at as f64 * times.bin_s, rate_pps, result.trial));
            }
        }
    }
}

#[cfg(test)]
mod tests;
