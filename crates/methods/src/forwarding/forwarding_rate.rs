//! Forwarding rate at maximum offered load, FRMOL (RFC 2285 section 3.6.2, RFC 2889 section 5.6; the maximum receive rate
//! of FD.io CSIT).

mod processor_time;

use crate::kit::prelude::*;
use crate::pattern::{RETREAT, RETREATS, TESTER_LIMITED_SHARE, load_was_too_high};
use crate::route_tests::CONFORMANT;
use crate::{modifiers, routed};
use drophammer_model::outcome::FPS_PER_PORT;

/// The test.
pub struct ForwardingRate;

const TRIAL_DURATION: Param<Duration> =
    Param::new("trial_duration", "500 ms", "30 s", "length of a trial (RFC 2889 section 5.6.3: 30 s)");
const REPEATS: Param<u32> = Param::new("repeats", "3", "10", "trials per frame size");
const PROCESSOR_TIME_AT: Param<Option<FrameRate>> = Param::optional(
    "processor_time_at",
    "a load, in fps per sending port, at which routers are also ranked by the frames that they forward per second of processor time; \
     choose one that every router carries",
);

const RATE: FigureSpec = FigureSpec::higher(
    "forwarding_rate_{size}_pps",
    FPS_PER_PORT,
    "forwarding rate per sending port at maximum offered load in fps, mean",
);
const FRAME_NS: FigureSpec = FigureSpec::lower(
    "forwarding_rate_{size}_frame_ns",
    "ns",
    "the router's processor time for each frame that it forwards at maximum offered load in ns",
);
const FRAMES_PER_CPU_S: FigureSpec = FigureSpec::higher(
    "forwarding_rate_{size}_frames_per_cpu_s",
    "frames/s",
    "frames forwarded per second of the router's processor time at `processor_time_at`",
);

static SPEC: TestSpec = TestSpec {
    name: "forwarding_rate",
    title: "Forwarding rate at maximum load",
    summary: "what the router still forwards at the highest load that the line or the tester can offer",
    source: "RFC 2285 section 3.6.2, RFC 2889 section 5.6",
    params: params![
        &TRAFFIC,
        &LABELLED,
        &MODIFIED,
        &[TRIAL_DURATION.spec(), REPEATS.spec(), PROCESSOR_TIME_AT.spec()],
        &AFTER_TRIAL
    ],
    figures: &[RATE.shape(), FRAME_NS.shape(), FRAMES_PER_CPU_S.shape()],
    tables: &[TABLE.shape(), processor_time::TABLE.shape(), routed::SHAPE, modifiers::SHAPE],
    needs: &[],
};

columns! {
    /// One frame size, over all its trials. Rates are per sending port.
    struct ForwardingRow {
        frame_size: PacketSize,
        protocol: String,
        intended_load_pps: f64 ["fps"],
        offered_load_pps: f64 ["fps"],
        forwarding_rate_pps: f64 = "FRMOL, mean" ["fps"],
        stdev_pps: Option<f64> = "Standard deviation" ["fps"],
        min_pps: f64 = "Minimum" ["fps"],
        max_pps: f64 = "Maximum" ["fps"],
        loss_percent: Option<f64> ["%"],
        frame_ns: Option<f64> = "Processor time" ["ns per frame"],
        trials: u64,
    }
}

const TABLE: TableSpec<ForwardingRow> = TableSpec::new("forwarding_rate", "Forwarding rate at maximum offered load");
const BARS: PlotSpec =
    PlotSpec::new("forwarding_rate", "Forwarding rate at maximum load", PlotKind::Bars, "frame size", "fps per port");

/// The forwarding rate of a pattern, without a value yet.
fn figure(pattern: &Pattern) -> RankFigure {
    let title = format!("Forwarding rate at maximum load, {}", pattern.size_text());
    RATE.of(&[("size", &pattern.size)], title, None)
}

impl Method for ForwardingRate {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn plan(&self, params: &Params) -> Plan {
        let repeats = REPEATS.get(params) as usize;
        // Trials for the processor time are left out at a load above line rate.
        let trials = TrialCount::between(repeats, loads(params) as usize * repeats);
        Plan::by_size(params)
            .trials(trials, TRIAL_DURATION.seconds(params), 1.0)
            .counts_alone()
            .deviating(common_deviations(params))
            .deviating(shorter(params, &TRIAL_DURATION, "trials", 30.0, "RFC 2889 section 5.6.3"))
            .deviating(fewer(params, &REPEATS, "trials per frame size", 10, CONFORMANT))
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        TABLE.begin(outcome);
        BARS.begin(outcome);
        note(
            outcome,
            "Rates are frames per second per sending port. The intended load is line rate, or less if the tester cannot send \
             that much; the offered load is what it sent. Frames that left a buffer after the last departure count as received, but not in the rate.",
        );
        let repeats = REPEATS.get(params);
        let each = watched(|bed, pattern, outcome, index| {
            let limits = pattern.limits(bed);
            let mut limit = bed.known().highest.maximum.get(&pattern.key()).copied().unwrap_or(limits.line);
            let mut retreats = 0;
            let mut results: Vec<TrialResult> = Vec::new();
            let mut stopped = Ok(());
            while results.len() < repeats as usize {
                bed.progress(&format!("forwarding rate, {}", pattern.size_text()));
                let load = Load::Maximum { limit_pps: limit.pps() };
                let purpose = format!("forwarding rate {}: trial {}", pattern.size, results.len() + 1);
                let spec = pattern.trial(bed.ports(), purpose, load, TRIAL_DURATION.seconds(params))?;
                match bed.trial(&spec) {
                    Ok(result) => results.push(result),
                    Err(TestError::Unfit(why)) if retreats < RETREATS => {
                        retreats += 1;
                        // The line rate may be far beyond what the tester can offer.
                        let highest = limits.ceiling.map_or(limit, |c| FrameRate(c.pps().min(limit.pps())));
                        limit = highest.scaled(RETREAT);
                        if load_was_too_high(&why) {
                            bed.known().highest.maximum.insert(pattern.key(), limit);
                        }
                        // Trials at another load are not repetitions of the same trial.
                        results.clear();
                        continue;
                    }
                    Err(error) => {
                        stopped = Err(error);
                        break;
                    }
                }
                if let Err(error) = bed.settle(PAUSE.get(params)) {
                    stopped = Err(error);
                    break;
                }
            }
            let retreated = limit.pps() < limits.line.pps();
            if retreated {
                note_of(outcome, pattern, format!("the tester cannot offer more than {limit} per port validly"));
            }
            let rates: Vec<f64> = results.iter().map(|r| r.forwarding_rate().pps()).collect();
            let Some((least, most)) = extremes(&rates) else { return stopped };
            let average = mean(&rates);
            let offered_loads: Vec<f64> = results.iter().map(|r| r.offered_load().pps()).collect();
            let near_limit = retreated && average >= TESTER_LIMITED_SHARE * limit.pps();
            // The router had no more frames to forward.
            let lossless = results.iter().all(|result| result.lost() == 0 && !limits.line_is_full(result));
            let tester_limited = near_limit || lossless || limits.tester_limited(FrameRate(average));
            let unreached = note_reached(bed, outcome, pattern, "at maximum load", &trials(&results));
            let mut marks: Vec<String> = unreached.into_iter().collect();
            if retreated {
                marks.push("the tester could not offer line rate validly".to_owned());
            }
            if tester_limited {
                marks.push("tester-limited".to_owned());
            }
            if rates.len() < repeats as usize {
                marks.push(format!("{} of {repeats} trials", rates.len()));
            }
            let frame_ns = processor_time::frame_ns(&results);
            TABLE.add(
                outcome,
                ForwardingRow {
                    frame_size: pattern.size.clone(),
                    protocol: pattern.protocol(),
                    intended_load_pps: limit.pps(),
                    offered_load_pps: mean(&offered_loads),
                    forwarding_rate_pps: average,
                    stdev_pps: stdev(&rates),
                    min_pps: least,
                    max_pps: most,
                    loss_percent: loss_percent(&results),
                    frame_ns,
                    trials: results.len() as u64,
                },
                trials(&results),
                marks,
            );
            let bar = |y, range| Point { x: f64::from(index), y, label: Some(pattern.label()), range, trial: None };
            BARS.reference(outcome, "theoretical line rate", bar(limits.line.pps(), None));
            BARS.curve(outcome, "offered", bar(mean(&offered_loads), None));
            BARS.curve(outcome, "forwarded", bar(average, Some((least, most))));
            let (load_pps, value) = (Some(limit.pps()), Some(average));
            outcome.ranks.push(RankFigure { value, tester_limited, load_pps, ..figure(pattern) });
            if frame_ns.is_some() {
                outcome.ranks.push(processor_time::at_maximum_load(pattern, limit, frame_ns));
            }
            stopped?;
            let Some(rate) = PROCESSOR_TIME_AT.get(params) else { return Ok(()) };
            processor_time::measure(bed, pattern, outcome, params, rate)
        });
        for_each_size(bed, params, outcome, or_spoilt(|pattern| vec![figure(pattern)], each))
    }
}

/// Number of loads for each frame size.
fn loads(params: &Params) -> u32 {
    1 + u32::from(PROCESSOR_TIME_AT.get(params).is_some())
}
