//! Delay by ping (Bradner 1989, "delay through router"): round trips of ICMP echo requests through the router and to
//! it, less the tester's own share, compared with the latency of test frames in the same trial.
//!
//! Bradner timed pings with an oscilloscope. Here the tester is at both ends: it knows when a request arrived behind the
//! router and when the reply left, and it knows the delay of its own ports on a loop without router.

mod compared;

use crate::kit::prelude::*;
use compared::{Compared, Delay};
use drophammer_model::echo::{EchoRequest, EchoTarget, EchoTimes};
use std::collections::{BTreeMap, BTreeSet};

/// The test.
pub struct PingDelay;

/// Name of the test.
pub const NAME: &str = "ping_delay";

drophammer_model::choice! {
    /// Destination of an echo request.
    pub enum Way {
        /// Through the router, to the tester's device behind the other port of the pair.
        Through = "through",
        /// To the router's own address.
        To = "to",
    }
}

impl Way {
    fn text(self) -> &'static str {
        match self {
            Way::Through => "through the router",
            Way::To => "to the router",
        }
    }
}

const FRAME_SIZES: Param<Vec<PacketSize>> = Param::new(
    "frame_sizes",
    "[64, 512, 1518]",
    "[64, 128, 256, 512, 1024, 1518]",
    "frame sizes, with FCS, of requests, replies and test frames; IPv6 frames have at least 78 bytes",
);
const WAYS: Param<Vec<Way>> = Param::fixed(
    "ways",
    "[through, to]",
    "where echo requests go: through the router to the tester's other port, to the router's own address",
);
const PINGS: Param<u32> = Param::new(
    "pings",
    "20",
    "100",
    "echo requests for each size, IP version and destination, from each pair of ports",
);
const INTERVAL: Param<Duration> = Param::new("ping_every", "20 ms", "100 ms", "time between two echo requests");
const LOAD: Param<FrameRate> = Param::fixed(
    "load",
    "100 fps",
    "test frames per second and port during the pings, from both ports of a pair; requests leave midway between two test frames",
);

/// The emulated devices are part of the run, so a ping takes far longer to them than through a router.
const BETWEEN_HOSTS: &str = "the delay of pings is not measurable with ports of other hosts: pings travel between these hosts and the run; \
     use ports of this machine, or the test latency";
/// Number of sizes that the source of the test uses.
const SOURCE_SIZES: usize = 6;
/// Maximum number of requests in a trial.
const MOST: usize = 10_000;
/// Times are whole nanoseconds, so a value that is below 0 by less than this counts as 0.
const ROUNDING_US: f64 = 0.001;

const DELAY: FigureSpec =
    FigureSpec::lower("ping_delay_{size}_us", "µs", "median delay through the router in one direction, by ping, in µs");
const ANSWER: FigureSpec =
    FigureSpec::lower("ping_answer_{size}_us", "µs", "median time that the router itself takes to answer, in µs");
const ANSWERED: FigureSpec = FigureSpec::higher(
    "ping_answered_{size}_percent",
    "%",
    "share of answered requests in %, for the destination with the lowest share",
);

static SPEC: TestSpec = TestSpec {
    name: NAME,
    title: "Delay by ping",
    summary: "round trips of ICMP echo through the router and to it, without the tester's own share, compared with the latency of test frames",
    source: "Bradner 1989, delay through router",
    params: params![
        &[FRAME_SIZES.spec(), FAMILIES.spec(), WAYS.spec(), PINGS.spec(), INTERVAL.spec(), LOAD.spec()],
        &AFTER_TRIAL
    ],
    figures: &[DELAY.shape(), ANSWER.shape(), ANSWERED.shape()],
    tables: &[TABLE.shape()],
    needs: &[],
};

columns! {
    /// One size, IP version and way.
    struct DelayRow {
        frame_size: PacketSize,
        family: Family = "Protocol",
        way: String = "Ping",
        asked: u64 = "Requests",
        answered: u64,
        round_trip_us: Option<f64> = "Round trip, median" ["µs"],
        round_trip_max_us: Option<f64> = "Round trip, longest" ["µs"],
        tester_us: Option<f64> = "Tester's share" ["µs"],
        delay_min_us: Option<f64> = "Delay, minimum" ["µs"],
        delay_us: Option<f64> = "Delay, median" ["µs"],
        delay_max_us: Option<f64> = "Delay, maximum" ["µs"],
        frames_us: Option<f64> = "Latency of test frames, median" ["µs"],
    }
}

columns! {
    /// One size and IP version on a loop without router.
    struct OwnRow {
        frame_size: PacketSize,
        family: Family = "Protocol",
        echo_us: f64 = "Ping, one direction, minimum" ["µs"],
        frames_us: f64 = "Test frames, minimum" ["µs"],
    }
}

const TABLE: TableSpec<DelayRow> = TableSpec::new(NAME, "Delay by ping and by test frames");
/// Key of the table of [`own_delays`].
pub const OWN: &str = "ping_delay_own";
const OWN_TABLE: TableSpec<OwnRow> = TableSpec::new(OWN, "Delay of the tester itself");
const BARS: PlotSpec = PlotSpec::new(NAME, "Delay through the router", PlotKind::Bars, "frame size", "median, µs");

/// The minimum delay of the tester itself for a frame in one direction: from handing it to a port until another port
/// sees it. Any additional delay differs from frame to frame and stays in the figures of a router.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OwnDelay {
    /// Echo requests and replies.
    pub echo: Duration,
    /// Test frames.
    pub frames: Duration,
}

/// [`OwnDelay`] by IP version and frame size in bytes, FCS included.
pub type OwnDelays = BTreeMap<(Family, u16), OwnDelay>;

/// A pattern of one size and family: both ports of a pair send.
fn patterns(params: &Params) -> Vec<Pattern> {
    let of_size = |size: PacketSize| {
        FAMILIES.get(params).into_iter().map(move |family| Pattern {
            direction: Direction::Bidirectional,
            ..Pattern::one_way(size.clone(), vec![family], DRAIN.seconds(params))
        })
    };
    FRAME_SIZES.get(params).into_iter().flat_map(of_size).collect()
}

fn of_pattern(pattern: &Pattern) -> Result<(Family, u16), TestError> {
    let family = pattern.families[0];
    match &pattern.size {
        PacketSize::Fixed(size) => Ok((family, size.frame_bytes(family == Family::Ipv6))),
        PacketSize::Mix { name, .. } => {
            Err(TestError::NotApplicable(format!("an echo request has one size; give sizes instead of {name}")))
        }
    }
}

/// Departure time of request `number` (from 0) in seconds: midway between two test frames.
fn leaves_s(number: usize, interval_s: f64, load: FrameRate) -> f64 {
    let at_s = (number as f64 + 0.5) * interval_s;
    let gap_s = 1.0 / load.pps();
    if gap_s > interval_s { at_s } else { ((at_s / gap_s).floor() + 0.5) * gap_s }
}

/// Replies to the pings of one way, with the number of requests.
#[derive(Clone, Debug, Default)]
struct Answered {
    asked: u64,
    times: Vec<EchoTimes>,
}

/// Runs one trial; returns the replies of each way, and the result of the test frames.
fn measure(
    bed: &mut dyn Testbed,
    pattern: &Pattern,
    ways: &[Way],
    params: &Params,
) -> Result<(Vec<(Way, Answered)>, TrialResult), TestError> {
    let (family, frame_bytes) = of_pattern(pattern)?;
    let (load, interval_s) = (LOAD.get(params), INTERVAL.seconds(params));
    let pairs = bed.ports().len() / 2;
    let count = PINGS.get(params) as usize * ways.len() * pairs;
    if count > MOST {
        let why = format!(
            "{count} pings: a trial has at most {MOST}, over all destinations and pairs of ports; lower `pings`"
        );
        return Err(TestError::NotApplicable(why));
    }
    let request = |number: usize| {
        let (way, pair) = (ways[number % ways.len()], number / ways.len() % pairs);
        let to = match way {
            Way::Through => EchoTarget::Port(2 * pair + 1),
            Way::To => EchoTarget::Router,
        };
        let at = Duration::from_secs_f64(leaves_s(number, interval_s, load));
        (way, EchoRequest { at, from: 2 * pair, to, family, frame_bytes })
    };
    let (asked, requests): (Vec<Way>, Vec<EchoRequest>) = (0..count).map(request).unzip();
    let purpose = format!("delay by ping, {} {family}", pattern.size_text());
    let duration_s = count as f64 * interval_s;
    let spec = pattern.trial(bed.ports(), purpose, Load::Constant { rate_pps: load.pps() }, duration_s)?;
    let Seen { result, echoes: times, .. } = bed.run(&Trial { echo: requests, ..Trial::new(spec) })?;
    if result.health.between_hosts.is_some() {
        return Err(TestError::NotApplicable(BETWEEN_HOSTS.into()));
    }
    let of_way = |way: &Way| {
        let mine = asked.iter().zip(&times).filter(|(asked, _)| *asked == way);
        let answered = Answered { asked: mine.clone().count() as u64, times: mine.filter_map(|(_, t)| *t).collect() };
        (*way, answered)
    };
    Ok((ways.iter().map(of_way).collect(), result))
}

fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Median latency of the test frames in µs.
fn frames_us(result: &TrialResult) -> Option<f64> {
    let medians = result.groups.iter().filter(|g| g.latency.frames > 0).filter_map(|g| g.latency.percentile(50.0));
    median(&medians.map(|ns| ns as f64 / 1e3).collect::<Vec<_>>())
}

/// Measures the delay of the tester itself, on a loop without router whose devices have addresses.
///
/// # Errors
/// Errors of [`Testbed::run`]; [`TestError::Failed`] if pings or test frames do not pass the loop.
pub fn own_delays(bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<OwnDelays, TestError> {
    let mut found = OwnDelays::new();
    if !outcome.tables.iter().any(|table| table.key == OWN) {
        OWN_TABLE.begin(outcome);
    }
    for pattern in patterns(params) {
        let Ok((family, bytes)) = of_pattern(&pattern) else { continue };
        if found.contains_key(&(family, bytes)) {
            continue;
        }
        let (answered, result) = measure(bed, &pattern, &[Way::Through], params)?;
        let times = answered.iter().flat_map(|(_, answered)| &answered.times);
        let echo_us = times.map(|t| us(t.beside_own()) / 2.0).min_by(f64::total_cmp);
        let latencies = result.groups.iter().map(|group| &group.latency).filter(|latency| latency.frames > 0);
        let frames_us = latencies.map(|latency| latency.min_ns as f64 / 1e3).min_by(f64::total_cmp);
        let Some((echo_us, frames_us)) = echo_us.zip(frames_us) else {
            return Err(TestError::Failed(format!("{}: no ping passes the loop", pattern.size_text())));
        };
        let of = |us: f64| Duration::from_secs_f64(us / 1e6);
        found.insert((family, bytes), OwnDelay { echo: of(echo_us), frames: of(frames_us) });
        let row = OwnRow { frame_size: pattern.size.clone(), family, echo_us, frames_us };
        OWN_TABLE.add(outcome, row, [result.trial], []);
        bed.settle(PAUSE.get(params))?;
    }
    Ok(found)
}

/// Reads back the result of [`own_delays`] from the outcome that it wrote.
pub fn own_delays_of(outcome: &Outcome) -> OwnDelays {
    let of = |us: f64| Duration::from_secs_f64(us / 1e6);
    let each = |row: OwnRow| {
        let bytes = row.frame_size.round().first()?.frame_bytes(row.family == Family::Ipv6);
        Some(((row.family, bytes), OwnDelay { echo: of(row.echo_us), frames: of(row.frames_us) }))
    };
    OWN_TABLE.rows(&outcome.tables).into_iter().filter_map(each).collect()
}

/// Delays of one way in µs, without the tester's share: half of the round trip for the way through the router.
fn delays_us(way: Way, times: &[EchoTimes], own: Option<OwnDelay>) -> Vec<f64> {
    let of = |t: &EchoTimes| match way {
        Way::Through => us(t.beside_own()) / 2.0,
        Way::To => us(t.beside_own()),
    };
    times.iter().map(|t| of(t) - own.map_or(0.0, |own| us(own.echo))).collect()
}

fn write(
    outcome: &mut Outcome,
    pattern: &Pattern,
    (way, answered): &(Way, Answered),
    result: &TrialResult,
    own: Option<OwnDelay>,
) -> (Option<Delay>, Option<f64>) {
    let Answered { asked, times } = answered;
    let family = pattern.families[0];
    let trips: Vec<f64> = times.iter().map(|t| us(t.round_trip)).collect();
    let turned = median(&times.iter().map(|t| us(t.own)).collect::<Vec<_>>());
    let passes = if *way == Way::Through { 2.0 } else { 1.0 };
    let delays = delays_us(*way, times, own);
    let mut marks = Vec::new();
    // The tester's own share differs from ping to ping, which can make a delay negative.
    let above = |us: f64| us.max(0.0);
    if delays.iter().any(|delay| *delay <= -ROUNDING_US) {
        marks.push("some round trips are below the tester's own share".to_owned());
    }
    let missing = asked - times.len() as u64;
    if missing > 0 {
        marks.push(format!("{missing} without a reply"));
        let share = if times.is_empty() { format!("any of {asked}") } else { format!("{missing} of {asked}") };
        let what = format!("{share} echo requests {}", way.text());
        note_of(outcome, pattern, format!("{family}: no reply to {what}"));
    }
    // Delays that are negative only because of rounding become 0.
    let known = |delay: &f64| *delay > -ROUNDING_US;
    let whole = median(&delays_us(*way, times, None));
    let delay = median(&delays).zip(whole).map(|(delay, whole)| match delay {
        delay if known(&delay) => Delay::Measured(above(delay)),
        _ => Delay::AtMost(whole),
    });
    if let Some(Delay::AtMost(us)) = delay {
        marks.push(format!("median below the tester's own share: a delay of at most {us:.1} µs"));
        let what = format!(
            "{family}: round trips {} are below the tester's own share, so the delay is at most {us:.1} µs, including that share",
            way.text()
        );
        note_of(outcome, pattern, what);
    }
    let range = extremes(&delays);
    let frames = frames_us(result).map(|latency| latency - own.map_or(0.0, |own| us(own.frames)));
    let frames = frames.filter(known).map(above);
    let row = DelayRow {
        frame_size: pattern.size.clone(),
        family,
        way: way.text().into(),
        asked: *asked,
        answered: times.len() as u64,
        round_trip_us: median(&trips),
        round_trip_max_us: extremes(&trips).map(|(_, most)| most),
        tester_us: turned.map(|turned| turned + passes * own.map_or(0.0, |own| us(own.echo))),
        delay_min_us: range.map(|(least, _)| above(least)),
        delay_us: delay.and_then(Delay::measured),
        delay_max_us: range.map(|(_, most)| above(most)),
        frames_us: frames.filter(|_| *way == Way::Through),
    };
    TABLE.add(outcome, row, [result.trial], marks);
    if *way == Way::Through {
        let x = pattern.frame_bytes();
        let label = Some(format!("{} {family}", pattern.size));
        for (series, y) in [("ping", delay.and_then(Delay::measured)), ("test frames", frames)] {
            if let Some(y) = y {
                BARS.curve(outcome, series, Point { x, y, label: label.clone(), ..Point::default() });
            }
        }
    }
    (delay, percent_of(times.len() as u64, *asked))
}

/// Runs the trial of one size and IP version. Adds its rows, and merges its results into the results of its size.
fn ping(
    bed: &mut dyn Testbed,
    pattern: &Pattern,
    ways: &[Way],
    params: &Params,
    outcome: &mut Outcome,
    compared: &mut BTreeMap<PacketSize, Compared>,
) -> Result<(), TestError> {
    let (family, bytes) = of_pattern(pattern)?;
    let (answered, result) = measure(bed, pattern, ways, params)?;
    let own = bed.facts().own_delays.get(&(family, bytes)).copied();
    for way in &answered {
        let (delay, percent) = write(outcome, pattern, way, &result, own);
        compared.entry(pattern.size.clone()).or_default().take(way.0, delay, percent);
    }
    Ok(())
}

impl Method for PingDelay {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn plan(&self, params: &Params) -> Plan {
        let patterns = patterns(params);
        let each_s = f64::from(PINGS.get(params)) * WAYS.get(params).len() as f64 * INTERVAL.seconds(params);
        let few = FRAME_SIZES.get(params).len() < SOURCE_SIZES;
        // The loads are far below any tester's ceiling.
        Plan::times(params, 1)
            .counting(patterns.iter().filter(|pattern| of_pattern(pattern).is_ok()).count())
            .taking(each_s * patterns.len() as f64 + beside_s(params, patterns.len() as f64, 0.0))
            .deviating(few.then(|| "fewer than 6 frame sizes (Bradner 1989)".to_owned()))
            .deviating(pause_deviations(params))
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        TABLE.begin(outcome);
        BARS.begin(outcome);
        note(
            outcome,
            "Through the router: half of a round trip, without the time that the tester's device behind the router takes to \
             answer. To the router: the time from the request to the reply. Test frames leave at the same time at a low load; their latency is \
             defined by \
             RFC 1242 section 3.8.",
        );
        let patterns = patterns(params);
        let measured = |pattern: &Pattern| of_pattern(pattern).is_ok_and(|of| bed.facts().own_delays.contains_key(&of));
        note(
            outcome,
            if patterns.iter().all(measured) {
                "The minimum delay of the tester's own ports and links, measured in this run on a loop without router, is subtracted from all of \
                 them."
            } else {
                "The delay of the tester's own ports and links was not measured for all of them and remains in the other figures."
            },
        );
        let ways = WAYS.get(params);
        let mut compared: BTreeMap<PacketSize, Compared> = BTreeMap::new();
        let mut unfinished: BTreeSet<PacketSize> = BTreeSet::new();
        let result = for_each_at_low_load(bed, patterns, outcome, |bed, pattern, outcome, _| {
            bed.progress(&format!("delay by ping, {} {}", pattern.size_text(), pattern.families[0]));
            let pinged = ping(bed, pattern, &ways, params, outcome, &mut compared);
            let ended = pinged.and_then(|()| bed.settle(PAUSE.get(params)));
            if !matches!(ended, Ok(()) | Err(TestError::NotApplicable(_))) {
                unfinished.insert(pattern.size.clone());
            }
            ended
        });
        // The slowest IP version may be the one without a result.
        for (size, compared) in compared.into_iter().filter(|(size, _)| !unfinished.contains(size)) {
            compared.rank(outcome, &size, &ways);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_leave_between_test_frames() {
        let rate = FrameRate(100.0);
        for number in 0..500 {
            let at = leaves_s(number, 0.02, rate);
            assert!((at * 100.0).fract() > 0.49 && (at * 100.0).fract() < 0.51, "{number}: {at}");
            assert!(number == 0 || at - leaves_s(number - 1, 0.02, rate) > 0.009);
            assert!(at < (number + 1) as f64 * 0.02);
        }
        // If test frames are further apart than requests, they do not shift the requests.
        assert!((leaves_s(3, 0.02, FrameRate(1.0)) - 0.07).abs() < 1e-9);
    }

    #[test]
    fn delays_are_without_the_tester() {
        let us = Duration::from_micros;
        let times = [EchoTimes { round_trip: us(50), own: us(10) }];
        let own = Some(OwnDelay { echo: us(3), frames: us(2) });
        let close = |got: &[f64], wanted: f64| assert!((got[0] - wanted).abs() < 1e-6, "{got:?}");
        close(&delays_us(Way::Through, &times, None), 20.0);
        close(&delays_us(Way::Through, &times, own), 17.0);
        let times = [EchoTimes { round_trip: us(50), own: us(0) }];
        close(&delays_us(Way::To, &times, own), 47.0);
    }
}
