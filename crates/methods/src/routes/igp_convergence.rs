//! Convergence of OSPF and LDP (RFC 4061 and 4062: terms of OSPF; RFC 6413: method): prefixes appear behind a P router and disappear
//! again, under traffic to every one of them, and the time until the DUT forwards by each change is measured.

use crate::igp_traffic::{IgpCase, Ran, Timed};
use crate::kit::prelude::*;
use crate::route_outage::{Event, Outage, UnreachableRow, list_unreachable};
use crate::route_tests::{self, ESTABLISH, PATIENCE, TESTER_LIMITED, thousands};
use crate::routing::Change;
use drophammer_model::label_edge::CoreProtocol;
use drophammer_model::trial::DestinationCounts;

/// The test.
pub struct IgpConvergence;

drophammer_model::choice! {
    /// What advertises the prefixes.
    enum Protocol {
        /// AS-external-LSAs.
        Ospf = "ospf",
        /// Labels.
        Ldp = "ldp",
    }
}

const PROTOCOL: Param<Protocol> = Param::fixed(
    "protocol",
    "ospf",
    "`ospf`: the P router advertises and withdraws prefixes, and IP packets go to them; `ldp`: it advertises and withdraws labels for known \
     prefixes, and packets with the router's labels go to them",
);
const PREFIXES: Param<u32> =
    Param::new("prefixes", "200", "5000", "prefixes that are advertised, and later withdrawn, at the same time");
const RATE: Param<FrameRate> =
    Param::new("rate", "20 kfps", "100 kfps", "load of the sending port, below the router's throughput");
const WINDOW: Param<Duration> =
    Param::new("window", "4 s", "60 s", "how long traffic continues after the advertisement, and after the withdrawal");

/// Times are equal if they differ by at most the time between two frames to a prefix.
const UP: [FigureSpec; 2] = [
    FigureSpec::lower_by_difference(
        "igp_up_{protocol}_median_ms",
        "ms",
        "median time until the router forwards to an advertised prefix, in ms",
    ),
    FigureSpec::lower_by_difference(
        "igp_up_{protocol}_max_ms",
        "ms",
        "time until the router forwards to all advertised prefixes, in ms",
    ),
];
const DOWN: [FigureSpec; 2] = [
    FigureSpec::lower_by_difference(
        "igp_down_{protocol}_median_ms",
        "ms",
        "median time until the router no longer forwards a withdrawn prefix to its P router, in ms",
    ),
    FigureSpec::lower_by_difference(
        "igp_down_{protocol}_max_ms",
        "ms",
        "time until the router forwards no withdrawn prefix to its P router, in ms",
    ),
];

static SPEC: TestSpec = TestSpec {
    name: "igp_convergence",
    title: "OSPF and LDP convergence",
    summary: "time until the router follows the advertisement and the withdrawal of each prefix in OSPF, or of each label in LDP",
    source: "RFC 4061 and RFC 4062 (OSPF); route-specific method of RFC 6413 section 6.3",
    needs: &[Need::Ospf],
    params: params![
        &[PROTOCOL.spec(), PREFIXES.spec(), RATE.spec(), WINDOW.spec(), DRAIN.spec()],
        &[PATIENCE.spec(), ESTABLISH.spec()],
    ],
    figures: &[UP[0].shape(), UP[1].shape(), DOWN[0].shape(), DOWN[1].shape()],
    tables: &[TABLE.shape(), SLOWEST.shape(), WRONG.shape()],
};

columns! {
    /// The times of one change.
    struct ChangeRow {
        change: String,
        prefixes: u64,
        not_followed: u64,
        unclear: u64 = "Without a time",
        min_ms: Option<f64> = "Minimum" ["ms"],
        median_ms: Option<f64> ["ms"],
        p99_ms: Option<f64> = "99 %" ["ms"],
        max_ms: Option<f64> = "Maximum" ["ms"],
        resolution_ms: f64 ["ms"],
        rate_pps: f64 = "Load" ["fps"],
        lost: u64 ["frames"],
        moved: u64 = "By the second port" ["frames"],
        stray: u64 = "Arrived at a wrong port" ["frames"],
        duplicated: u64 = "Duplicates" ["frames"],
    }
}

columns! {
    /// A prefix that took long.
    struct SlowestRow {
        change: String,
        prefix: String,
        time_ms: f64 ["ms"],
    }
}

const TABLE: TableSpec<ChangeRow> = TableSpec::new("igp_convergence", "OSPF and LDP convergence");
const SLOWEST: TableSpec<SlowestRow> = TableSpec::new("igp_convergence_slowest", "Slowest prefixes");
const WRONG: TableSpec<UnreachableRow> = TableSpec::new("igp_convergence_wrong", "Prefixes that did not follow");
const PLOT: PlotSpec<'static> = PlotSpec::new(
    "igp_convergence",
    "Time until the router follows a change, over all prefixes",
    PlotKind::Sorted,
    "share of the prefixes, %",
    "time, ms",
)
.logarithmic();
/// Maximum number of prefixes that are named as the slowest ones of a change.
const NAMED: usize = 5;
/// Maximum number of points of a curve.
const POINTS: usize = 500;
/// Why there is no time of a withdrawal.
const FEW: &str =
    "some prefixes got fewer than two frames after the withdrawal: raise `rate` or `window`, or lower `prefixes`";
/// Traffic runs for this long before a change, in seconds: longer than MinLSArrival (RFC 2328 appendix B), during which the router may
/// ignore a new instance of an LSA.
const BEFORE_S: f64 = 1.5;
/// Time before a trial is repeated: longer than MinLSInterval, before which an LSA is not originated again.
const AGAIN: Duration = Duration::from_secs(6);

impl Method for IgpConvergence {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn plan(&self, params: &Params) -> Plan {
        let trial_s = BEFORE_S + WINDOW.seconds(params) + DRAIN.seconds(params);
        let few = fewer(params, &PREFIXES, "prefixes", 5_000, route_tests::CONFORMANT);
        Plan::times(params, 1)
            .counting(TrialCount::exactly(4).or_more())
            .taking(2.0 * trial_s + 20.0)
            .deviating(few)
            .deviating(shorter(params, &WINDOW, "traffic after the change", 60.0, route_tests::CONFORMANT))
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        TABLE.begin(outcome);
        PLOT.begin(outcome);
        let protocol = match PROTOCOL.get(params) {
            Protocol::Ospf => CoreProtocol::Ospf,
            Protocol::Ldp => CoreProtocol::Ldp,
        };
        let case = IgpCase::new(bed, protocol, PREFIXES.get(params), RATE.get(params))?;
        note(
            outcome,
            "The time of an advertised prefix is the number of lost frames to it, divided by the rate of frames to it, less the time before \
             the advertisement (RFC 6413 section 6.3.3). The time of a withdrawn prefix is the number of frames that arrived at the port of \
             its P router, divided by this rate, less the time before the withdrawal, if all frames after the first lost one were lost, too.",
        );
        bed.progress(&format!("{protocol} convergence: sessions"));
        bed.igp()?.start(&case.plan, ESTABLISH.get(params))?;
        case.await_links(bed, params, PATIENCE.get(params))?;
        if protocol == CoreProtocol::Ldp {
            await_labels(bed, params, &case)?;
        }
        appear(bed, params, outcome, &case)?;
        disappear(bed, params, outcome, &case)
    }
}

/// Advertises the prefixes of LDP by OSPF, and waits until the DUT has a label for each.
fn await_labels(bed: &mut dyn Testbed, params: &Params, case: &IgpCase) -> Result<(), TestError> {
    let patience = PATIENCE.get(params);
    bed.igp()?.act(&case.action(case.to(), CoreProtocol::Ospf, Change::Advertise, case.whole()))?;
    case.settle(bed, patience)?;
    // Without labels, the first trial says which prefix has none.
    bed.igp()?.await_labels(case.sender, case.whole(), patience)?;
    Ok(())
}

/// One change under traffic: returns the trial and the time of the change.
fn change(
    bed: &mut dyn Testbed,
    params: &Params,
    case: &IgpCase,
    change: Change,
    prepare: impl FnMut(&mut dyn Testbed, u32) -> Result<(), TestError>,
) -> Result<(Ran, f64), TestError> {
    let label = if change == Change::Advertise { "advertised" } else { "withdrawn" };
    let purpose = format!("{} convergence: {} prefixes {label}", case.protocol, thousands(case.plan.prefixes.into()));
    bed.progress(&purpose);
    let duration_s = BEFORE_S + WINDOW.seconds(params);
    let ran = case.run(bed, prepare, |bed| {
        let flows = case.flows(bed, case.whole())?;
        let timed: Timed = (BEFORE_S, label, case.action(case.to(), case.protocol, change, case.whole()));
        case.trial(bed, params, purpose.clone(), flows, duration_s, &[timed])
    })?;
    let at_s = ran.result.events.first().map_or(BEFORE_S, |event| event.at_s);
    Ok((ran, at_s))
}

fn appear(bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome, case: &IgpCase) -> Result<(), TestError> {
    let patience = PATIENCE.get(params);
    let (ran, at_s) = change(bed, params, case, Change::Advertise, |bed, attempt| {
        if attempt == 1 {
            return Ok(());
        }
        bed.igp()?.act(&case.action(case.to(), case.protocol, Change::Withdraw, case.whole()))?;
        case.settle(bed, patience)?;
        bed.settle(AGAIN)?;
        case.await_silence(bed, params, patience)
    })?;
    let outage = Outage::of(&ran.result, case.rate.pps(), Event::Advertised(at_s)).ok_or_else(uncounted)?;
    let whole = outage.is_whole();
    let followed = Followed {
        sorted_s: outage.sorted_s,
        order: outage.order,
        wrong: outage.unreachable,
        unclear: outage.early.len() + outage.unsent,
        few: false,
        whole,
    };
    followed.report(outcome, case, "advertised", &ran);
    followed.rank(outcome, case, &UP, "Time until forwarding", &ran);
    Ok(())
}

fn disappear(bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome, case: &IgpCase) -> Result<(), TestError> {
    let patience = PATIENCE.get(params);
    let (ran, at_s) = change(bed, params, case, Change::Withdraw, |bed, attempt| {
        if attempt > 1 {
            bed.settle(AGAIN)?;
            bed.igp()?.act(&case.action(case.to(), case.protocol, Change::Advertise, case.whole()))?;
        }
        for second in case.plan.behind.iter().skip(1) {
            bed.igp()?.act(&case.action(*second, CoreProtocol::Ospf, Change::Advertise, case.whole()))?;
        }
        case.settle(bed, patience)?;
        case.await_prefixes(bed, params, case.whole(), patience)
    })?;
    let counts = ran.result.destinations.first().ok_or_else(uncounted)?;
    let followed = Followed::withdrawn(counts, case.rate.pps() / f64::from(case.plan.prefixes), at_s);
    followed.report(outcome, case, "withdrawn", &ran);
    followed.rank(outcome, case, &DOWN, "Time until withdrawn", &ran);
    Ok(())
}

fn uncounted() -> TestError {
    TestError::Failed("nothing was counted per prefix".into())
}

/// How the prefixes followed a change.
#[derive(Default)]
struct Followed {
    /// Times of the prefixes that followed, in seconds, ascending.
    sorted_s: Vec<f64>,
    /// These prefixes in the same order.
    order: Vec<u32>,
    /// Prefixes that did not follow.
    wrong: Vec<u32>,
    /// Number of other prefixes, whose frames show no time.
    unclear: usize,
    /// True if some of these got too few frames after the change.
    few: bool,
    /// True if every prefix has a time.
    whole: bool,
}

/// What the frames to a prefix show about its withdrawal.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    /// Its last frame arrived.
    Stays,
    /// All frames from one on were lost: this time after the withdrawal, in seconds.
    Gone(f64),
    /// Frames were lost before others arrived, or before the withdrawal, or only the last one was lost, or it is not known which ones
    /// were lost.
    Unclear,
    /// It may have got fewer than two frames after the withdrawal.
    Few,
}

/// The fate of prefix `i`, which got `each_pps` frames per second and was withdrawn `at_s` after the first departure.
fn fate(counts: &DestinationCounts, i: usize, each_pps: f64, at_s: f64) -> Fate {
    const NEVER: u32 = DestinationCounts::NEVER;
    let (offered, received, lost) = (counts.offered[i], counts.received[i], counts.lost(i));
    if f64::from(offered) < (at_s * each_pps).ceil() + 2.0 {
        return Fate::Few;
    }
    let (first_us, last_us) = match (counts.first_lost_us.get(i), counts.last_lost_us.get(i)) {
        (Some(first), Some(last)) => (*first, *last),
        _ => return Fate::Unclear,
    };
    if lost == 0 {
        return Fate::Stays;
    }
    // The largest value also stands for all later times.
    if last_us >= NEVER - 1 {
        return Fate::Unclear;
    }
    // Frames go to all prefixes in rounds. Times are rounded down to a microsecond.
    let last = ((f64::from(last_us) + 1.0) * each_pps / 1e6) as u32;
    if last.saturating_add(1) < offered {
        return Fate::Stays;
    }
    // One frame may be lost by chance.
    if lost == 1 {
        return Fate::Unclear;
    }
    // All frames after the first lost frame were lost, and the first lost frame was sent after the withdrawal.
    let rounds = (f64::from(last_us.saturating_sub(first_us)) * each_pps / 1e6).round();
    let all_after = rounds < f64::from(lost);
    if all_after && f64::from(received) + 1.01 >= at_s * each_pps {
        Fate::Gone((f64::from(received) / each_pps - at_s).max(0.0))
    } else {
        Fate::Unclear
    }
}

impl Followed {
    fn withdrawn(counts: &DestinationCounts, each_pps: f64, at_s: f64) -> Followed {
        let mut followed = Followed::default();
        let mut timed = Vec::new();
        for index in 0..counts.offered.len() {
            match fate(counts, index, each_pps, at_s) {
                Fate::Stays => followed.wrong.push(index as u32),
                Fate::Gone(s) => timed.push((s, index as u32)),
                other @ (Fate::Unclear | Fate::Few) => {
                    followed.unclear += 1;
                    followed.few |= other == Fate::Few;
                }
            }
        }
        timed.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        (followed.sorted_s, followed.order) = timed.into_iter().unzip();
        followed.whole = followed.sorted_s.len() == counts.offered.len();
        followed
    }

    /// The time that this share of the prefixes does not exceed, in seconds.
    fn percentile_s(&self, share: f64) -> Option<f64> {
        let last = self.sorted_s.len().checked_sub(1)?;
        let rank = (share * self.sorted_s.len() as f64).ceil() as usize;
        Some(self.sorted_s[rank.saturating_sub(1).min(last)])
    }

    /// A few prefixes that took clearly longer than most, the slowest one first, with their times in seconds.
    fn slowest(&self, resolution_s: f64) -> Vec<(u32, f64)> {
        let longer_s = self.percentile_s(0.5).unwrap_or_default() + 2.0 * resolution_s;
        let longest_first = self.order.iter().copied().zip(self.sorted_s.iter().copied()).rev();
        longest_first.take(NAMED).filter(|(_, s)| *s > longer_s).collect()
    }

    /// True if the P router needed most of the time of this share of the prefixes to send the LSAs. Labels wait for the DUT alone: they
    /// are handed to TCP as fast as its window allows.
    fn tester_limited(&self, share: f64, ran: &Ran) -> bool {
        let late_s = share * ran.counts.flooding.as_secs_f64();
        self.percentile_s(share).is_some_and(|time_s| late_s > 0.0 && late_s > TESTER_LIMITED * time_s)
    }

    fn marks(&self, ran: &Ran) -> Vec<String> {
        let mut marks = Vec::new();
        if !self.whole {
            marks.push("times cover only the prefixes that followed".to_owned());
        }
        if [0.5, 1.0].iter().any(|share| self.tester_limited(*share, ran)) {
            marks.push("tester-limited".into());
        }
        marks.extend(ran.lost_sessions());
        marks.extend(ran.missing_bfd());
        marks
    }

    fn report(&self, outcome: &mut Outcome, case: &IgpCase, change: &str, ran: &Ran) {
        let result = &ran.result;
        let at_second = |port: &PortIndex| result.sum(|group| group.arrived_at.get(*port).copied().unwrap_or(0));
        let moved: u64 = case.plan.behind.iter().skip(1).map(at_second).sum();
        let stray = result.sum(|group| group.stray);
        let ms = |share| self.percentile_s(share).map(|s| s * 1e3);
        let row = ChangeRow {
            change: change.into(),
            prefixes: case.plan.prefixes.into(),
            not_followed: self.wrong.len() as u64,
            unclear: self.unclear as u64,
            min_ms: ms(0.0),
            median_ms: ms(0.5),
            p99_ms: ms(0.99),
            max_ms: ms(1.0),
            resolution_ms: resolution_ms(case),
            rate_pps: case.rate.pps(),
            lost: result.lost().saturating_sub(stray),
            moved,
            stray: stray.saturating_sub(moved),
            duplicated: result.sum(|group| group.duplicated),
        };
        TABLE.add(outcome, row, [result.trial], self.marks(ran));
        for (index, s) in self.slowest(resolution_ms(case) / 1e3) {
            let prefix = case.routes.prefix(index).to_string();
            SLOWEST.add(outcome, SlowestRow { change: change.into(), prefix, time_ms: s * 1e3 }, [result.trial], []);
        }
        list_unreachable(outcome, &WRONG, &case.routes, self.wrong.iter().copied());
        if let Some(lost) = ran.lost_sessions() {
            note(outcome, format!("{}, {change}: {lost}", case.protocol));
        }
        let (count, steps) = (self.sorted_s.len(), self.sorted_s.len().min(POINTS));
        for step in 0..steps {
            let index = if steps < 2 { 0 } else { step * (count - 1) / (steps - 1) };
            let share = (index + 1) as f64 / f64::from(case.plan.prefixes) * 100.0;
            let curve = format!("{}, {change}", case.protocol);
            PLOT.curve(outcome, &curve, xy_of(share, self.sorted_s[index] * 1e3, result.trial));
        }
    }

    fn rank(&self, outcome: &mut Outcome, case: &IgpCase, figures: &[FigureSpec; 2], title: &str, ran: &Ran) {
        let why = match (ran.lost_sessions(), self.wrong.is_empty()) {
            (Some(lost), _) => lost,
            (None, false) => "some prefixes did not follow the change in the end".into(),
            (None, true) => "frames to some prefixes show no time: they arrived or were lost before the change, or were lost by chance".into(),
        };
        let measured = self.whole && ran.lost_sessions().is_none();
        // As far as these frames show, the router did nothing wrong.
        let few = self.few && self.wrong.is_empty() && ran.lost_sessions().is_none();
        for (spec, word, share) in [(&figures[0], "median", 0.5), (&figures[1], "max", 1.0)] {
            let value = self.percentile_s(share).filter(|_| measured).map(|s| s * 1e3);
            let title =
                format!("{title}, {} prefixes, {word}, {}", thousands(case.plan.prefixes.into()), case.protocol);
            let figure = spec.by(resolution_ms(case)).of(&[("protocol", &case.protocol)], title, value);
            let tester_limited = value.is_some() && self.tester_limited(share, ran);
            let figure = RankFigure { tester_limited, ..figure };
            outcome.ranks.push(if few { figure.beyond(FEW) } else { figure.because(why.clone()) });
        }
    }
}

/// Time between two frames to a prefix, in ms.
fn resolution_ms(case: &IgpCase) -> f64 {
    f64::from(case.plan.prefixes) / case.rate.pps() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_of_prefixes() {
        let sorted_s: Vec<f64> = (1..=100).map(|n| f64::from(n) / 1e3).collect();
        let all = Followed { sorted_s, whole: true, ..Followed::default() };
        let of = |share| (all.percentile_s(share).unwrap() * 1e3).round();
        assert_eq!([0.0, 0.5, 0.99, 1.0].map(of), [1.0, 50.0, 99.0, 100.0]);
        let none = Followed { whole: true, ..Followed::default() };
        assert_eq!(none.percentile_s(0.5), None);
        assert!(none.slowest(0.001).is_empty());
    }

    #[test]
    fn only_prefixes_that_took_clearly_longer_are_named() {
        let of = |sorted_s: &[f64], order: &[u32]| {
            Followed { sorted_s: sorted_s.to_vec(), order: order.to_vec(), ..Followed::default() }.slowest(0.001)
        };
        assert_eq!(of(&[0.05, 0.05, 0.051, 0.45, 0.451], &[2, 4, 0, 3, 1]), [(1, 0.451), (3, 0.45)]);
        assert!(of(&[0.05, 0.05, 0.051], &[2, 1, 0]).is_empty());
        let rising: Vec<f64> = (0..100).map(|n| f64::from(n) / 10.0).collect();
        let named = of(&rising, &(0..100).collect::<Vec<_>>());
        assert_eq!(named.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [99, 98, 97, 96, 95]);
    }

    #[test]
    fn a_prefix_that_is_withdrawn_late_is_named() {
        let counts = counts_of(&format!("{}{}", ".".repeat(30), "x".repeat(10)));
        let followed = Followed::withdrawn(&counts, 10.0, 1.5);
        assert_eq!((followed.order.as_slice(), followed.wrong.as_slice()), (&[1][..], &[0][..]));
        assert!((followed.sorted_s[0] - 1.5).abs() < 1e-9, "{:?}", followed.sorted_s);
    }

    /// The counts of two prefixes, each with ten frames per second. All frames to the first prefix arrive. `frames` says
    /// what happens to each frame to the second: '.' arrives, 'x' is lost.
    fn counts_of(frames: &str) -> DestinationCounts {
        let lost = frames.bytes().enumerate().filter(|(_, frame)| *frame == b'x');
        let lost_us: Vec<u32> = lost.map(|(round, _)| round as u32 * 100_000 + 50_000).collect();
        let edge = |us: Option<&u32>| vec![DestinationCounts::NEVER, us.copied().unwrap_or(DestinationCounts::NEVER)];
        let all = frames.len() as u32;
        DestinationCounts {
            offered: vec![all; 2],
            received: vec![all, all - lost_us.len() as u32],
            first_lost_us: edge(lost_us.first()),
            last_lost_us: edge(lost_us.last()),
            ..DestinationCounts::default()
        }
    }

    /// The fate of the second prefix, which is withdrawn after 15 frames.
    fn fate_of(frames: &str) -> Fate {
        let counts = counts_of(frames);
        assert_eq!(fate(&counts, 0, 10.0, 1.5), Fate::Stays);
        fate(&counts, 1, 10.0, 1.5)
    }

    #[test]
    fn frames_lost_by_chance_make_no_prefix_look_withdrawn() {
        let runs = |runs: &[(&str, usize)]| runs.iter().map(|(frame, n)| frame.repeat(*n)).collect::<String>();
        let gone = fate_of(&runs(&[(".", 18), ("x", 22)]));
        assert!(matches!(gone, Fate::Gone(s) if (s - 0.3).abs() < 1e-9), "{gone:?}");
        // The withdrawal is between two frames.
        assert_eq!(fate_of(&runs(&[(".", 14), ("x", 26)])), Fate::Gone(0.0));
        // Never withdrawn.
        assert_eq!(fate_of(&runs(&[(".", 20), ("x", 4), (".", 16)])), Fate::Stays);
        assert_eq!(fate_of(&runs(&[(".", 20), ("x", 1), (".", 19)])), Fate::Stays);
        // The last frame was lost by chance, or the prefix was withdrawn just before.
        assert_eq!(fate_of(&runs(&[(".", 39), ("x", 1)])), Fate::Unclear);
        // A chance loss, then withdrawn: the number of frames that arrived would make the router faster.
        assert_eq!(fate_of(&runs(&[(".", 5), ("x", 1), (".", 12), ("x", 22)])), Fate::Unclear);
        assert_eq!(fate_of(&runs(&[(".", 16), ("x", 1), (".", 1), ("x", 22)])), Fate::Unclear);
        // Not forwarded to before the withdrawal.
        assert_eq!(fate_of(&runs(&[(".", 10), ("x", 30)])), Fate::Unclear);
        assert_eq!(fate_of(&runs(&[("x", 40)])), Fate::Unclear);
    }

    #[test]
    fn one_frame_after_the_withdrawal_shows_nothing() {
        let before = ".".repeat(15);
        let of = |after: &str| {
            let followed = Followed::withdrawn(&counts_of(&format!("{before}{after}")), 10.0, 1.5);
            (followed.wrong.len(), followed.sorted_s.len(), followed.unclear, followed.few)
        };
        for after in ["", ".", "x"] {
            assert_eq!(of(after), (0, 0, 2, true), "{after:?}");
        }
        assert_eq!(of("xx"), (1, 1, 0, false));
    }
}
