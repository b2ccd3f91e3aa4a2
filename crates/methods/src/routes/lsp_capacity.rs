//! LSP capacity: a growing number of RSVP-TE LSPs through the DUT, which must stay up and forward (no RFC defines this test; RFC 3209,
//! RFC 2961).

use crate::kit::lsps::{self, LspPlan, MOST_FLOWS, Signalling, UpLsp};
use crate::kit::prelude::*;
use crate::route_tests::{self, thousands};
use std::ops::Range;

/// The test.
pub struct LspCapacity;

drophammer_model::choice! {
    /// Whether the ends support refresh reduction (RFC 2961).
    enum Reduction {
        /// Every state is refreshed by a message of its own.
        Off = "off",
        /// Acknowledged state is refreshed by lists of identifiers.
        On = "on",
    }
}

const STEP: Param<u32> = Param::new("step", "200", "1000", "LSPs added per step");
const MAX_LSPS: Param<u32> =
    Param::new("max_lsps", "2000", "100000", "number of LSPs at which the test ends in any case").at_most(500_000);
const RATE: Param<u32> = Param::new("rate", "1000", "200", "LSPs that the ingress sets up per second");
const REFRESH: Param<Duration> = Param::new(
    "refresh",
    "2 s",
    "30 s",
    "refresh period of both ends (RFC 2205 section 3.7); each step is held for 3.5 periods",
);
const REFRESH_REDUCTION: Param<Vec<Reduction>> = Param::fixed(
    "refresh_reduction",
    "[off, on]",
    "whether the ends support refresh reduction (RFC 2961); the test runs once for each",
);
const FRAMES: Param<u32> = Param::fixed("frames_per_lsp", "7", "frames over each LSP while a step is held");
const TRIED: Param<u32> = Param::new(
    "tried_lsps",
    "2000",
    "4096",
    "maximum number of LSPs with frames, at most 16384; of more LSPs, as many are chosen evenly. Each adds 0.5 KB to the record of a step",
)
.at_most(MOST_FLOWS as u64);
const FRAME_SIZE: Param<PacketSize> =
    Param::fixed("frame_size", "128", "frame size with FCS; the label is added to it");
const PATIENCE: Param<Duration> =
    Param::new("patience", "5 s", "60 s", "wait for the LSPs of a step after the last one was requested");

/// Refresh periods for which a step is held.
const PERIODS: f64 = 3.5;
/// Refresh periods after which state of a neighbour that is silent has expired at the latest (RFC 2205 section 3.7, K = 3).
const EXPIRY: f64 = 5.25;
/// Minimum number of trials before lost frames fail a step.
const TRIES: u64 = 3;
/// LSPs that are named after a failure.
const NAMED: usize = 5;
const GROUP: &str = "LSPs";

const CAPACITY: FigureSpec = FigureSpec::higher(
    "lsp_capacity_{reduction}_lsps",
    "LSPs",
    "LSPs of the last step in which all stayed up and forwarded, by refresh reduction (off, on)",
);

static SPEC: TestSpec = TestSpec {
    name: "lsp_capacity",
    title: "LSP capacity",
    summary: "how many RSVP-TE LSPs the router sets up, refreshes and forwards to as a transit router",
    source: "RFC 3209, RFC 2961; steps as in the core router test of 2001",
    needs: &[Need::Rsvp],
    params: params![
        &[STEP.spec(), MAX_LSPS.spec(), RATE.spec(), REFRESH.spec(), REFRESH_REDUCTION.spec(), FRAMES.spec()],
        &[TRIED.spec(), FRAME_SIZE.spec(), PATIENCE.spec(), DRAIN.spec()],
    ],
    figures: &[CAPACITY.shape()],
    tables: &[TABLE.shape()],
};

columns! {
    /// One step.
    struct StepRow {
        reduction: String = "Refresh reduction",
        requested: u64,
        up: u64,
        lost_lsps: u64 = "Went down",
        tried: u64,
        forwarding: u64,
        frames: u64 = "Offered" ["frames"],
        lost: u64 ["frames"],
        tries: u64,
        set_up_rate: Option<f64> = "Set-up rate" ["LSPs/s"],
        refreshes_mps: Option<f64> = "Refresh messages" ["messages/s"],
        refreshes_bps: Option<f64> = "Refresh bytes" ["bytes/s"],
        cpu_percent: Option<f64> = "DUT processor" ["%"],
    }
}

const TABLE: TableSpec<StepRow> = TableSpec::new("lsp_capacity", "LSP capacity");
const PLOT: PlotSpec = PlotSpec::new("lsp_capacity", "Messages to keep LSPs up", PlotKind::Steps, "LSPs", "messages/s");

impl Method for LspCapacity {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn plan(&self, params: &Params) -> Plan {
        let steps = MAX_LSPS.get(params).div_ceil(STEP.get(params).max(1)) as usize;
        let hold_s = PERIODS * REFRESH.seconds(params);
        let signalling_s = f64::from(MAX_LSPS.get(params)) / f64::from(RATE.get(params).max(1));
        let few = fewer(params, &MAX_LSPS, "LSPs at most", 100_000, route_tests::CONFORMANT);
        let short = shorter(params, &REFRESH, "refresh period", 30.0, "RFC 2205 section 3.7");
        Plan::times(params, REFRESH_REDUCTION.get(params).len())
            .counting(TrialCount::about(steps))
            .taking(signalling_s + steps as f64 * hold_s + unpaused_s(params, steps as f64, 0.0))
            .counts_alone()
            .deviating(few)
            .deviating(short)
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        TABLE.begin(outcome);
        PLOT.begin(outcome);
        let mut unfit = None;
        for reduction in REFRESH_REDUCTION.get(params) {
            match climb(bed, params, reduction, outcome) {
                Err(TestError::Unfit(why)) => unfit = unfit.or(Some(why)),
                other => other?,
            }
        }
        unfit.map_or(Ok(()), |why| Err(TestError::Unfit(why)))
    }
}

/// Runs all steps until one fails.
fn climb(bed: &mut dyn Testbed, params: &Params, reduction: Reduction, outcome: &mut Outcome) -> Result<(), TestError> {
    let lsps = bed.lsps()?;
    let ports = lsps.ports();
    let plan = LspPlan {
        ingress: ports[0],
        egress: ports[1],
        count: MAX_LSPS.get(params),
        refresh: REFRESH.get(params),
        refresh_reduction: reduction == Reduction::On,
    };
    lsps.begin(&plan)?;
    let (step, mut capacity, mut failure) = (STEP.get(params).max(1), 0, None);
    while capacity < plan.count && failure.is_none() {
        let part = capacity..capacity.saturating_add(step).min(plan.count);
        bed.progress(&format!("LSP capacity, refresh reduction {reduction}: {} LSPs", thousands(part.end.into())));
        match attempt(bed, params, &plan, part.clone(), reduction, outcome) {
            Ok(None) => capacity = part.end,
            Ok(Some(why)) => failure = Some(why),
            Err(e) => {
                let so_far = format!("after {} LSPs: {e}", thousands(capacity.into()));
                match e {
                    TestError::Unfit(_) if capacity == 0 => {
                        outcome.ranks.push(figure(reduction, None).spoilt(e.to_string()));
                    }
                    // The steps so far are a lower bound.
                    TestError::Unfit(_) => {
                        let bound = figure(reduction, Some(capacity));
                        outcome.ranks.push(RankFigure { tester_limited: true, ..bound });
                    }
                    // Nobody is to blame for an end that was wanted.
                    TestError::Interrupted | TestError::Store(_) => {
                        note(outcome, format!("refresh reduction {reduction}: ended {so_far}"));
                    }
                    _ => outcome.ranks.push(figure(reduction, None).because(so_far)),
                }
                if matches!(e, TestError::Unfit(_)) {
                    tear_down(bed, params, &plan, reduction, outcome)?;
                }
                return Err(e);
            }
        }
    }
    let named = |text: String| format!("refresh reduction {reduction}: {text}");
    note(
        outcome,
        named(match &failure {
            Some(why) => format!("stopped after {} LSPs: {why}", thousands(capacity.into())),
            None => format!("at least {} LSPs; higher numbers were not tried (`max_lsps`)", thousands(capacity.into())),
        }),
    );
    let errors = bed.lsps()?.errors();
    if !errors.is_empty() {
        let all: Vec<_> = errors.iter().map(|(why, count)| format!("{why}: {}", thousands(*count))).collect();
        note(outcome, named(format!("errors from the router: {}", all.join("; "))));
    }
    outcome.ranks.push(RankFigure { capped: failure.is_none(), ..figure(reduction, Some(capacity)) });
    tear_down(bed, params, &plan, reduction, outcome)
}

/// Tears all LSPs down, and notes if the router did not follow: it may still have state when the next test begins.
fn tear_down(
    bed: &mut dyn Testbed,
    params: &Params,
    plan: &LspPlan,
    reduction: Reduction,
    outcome: &mut Outcome,
) -> Result<(), TestError> {
    let rate = RATE.get(params).max(1);
    bed.lsps()?.tear_down(0..plan.count, rate)?;
    let seconds = f64::from(plan.count) / f64::from(rate) + EXPIRY * plan.refresh.as_secs_f64();
    let within = Duration::from_secs_f64(seconds) + PATIENCE.get(params);
    if !bed.lsps()?.await_down(within)? {
        let s = within.as_secs_f64();
        let why = format!("refresh reduction {reduction}: LSPs were still up {s} s after their teardown began");
        note(outcome, format!("{why}; they may take capacity of what follows"));
    }
    Ok(())
}

fn figure(reduction: Reduction, capacity: Option<u32>) -> RankFigure {
    let title = format!("LSPs held and forwarded to, refresh reduction {reduction}");
    CAPACITY.of(&[("reduction", &reduction)], title, capacity.map(f64::from))
}

/// The LSPs of a range that are up.
fn states(bed: &mut dyn Testbed, end: u32) -> Result<Vec<Option<UpLsp>>, TestError> {
    let lsps = bed.lsps()?;
    Ok((0..end).map(|lsp| lsps.up(lsp)).collect())
}

/// Sets up one more step, and holds all LSPs under a low load, again if nothing but frames is lost. Returns the reason if the router failed.
fn attempt(
    bed: &mut dyn Testbed,
    params: &Params,
    plan: &LspPlan,
    part: Range<u32>,
    reduction: Reduction,
    outcome: &mut Outcome,
) -> Result<Option<String>, TestError> {
    let rate = RATE.get(params);
    let within = Duration::from_secs_f64(part.len() as f64 / f64::from(rate.max(1))) + PATIENCE.get(params);
    bed.lsps()?.set_up(part.clone(), rate)?;
    bed.lsps()?.await_up(part.end, within)?;
    let before = states(bed, part.end)?;
    let up: Vec<u32> = (0..).zip(&before).filter_map(|(lsp, state)| state.map(|_| lsp)).collect();
    let set_up_rate = set_up_rate(&before[part.start as usize..]);
    let tried = lsps::tried(&up, TRIED.get(params).max(1));
    let mut row = StepRow {
        reduction: reduction.to_string(),
        requested: part.end.into(),
        up: up.len() as u64,
        lost_lsps: 0,
        tried: tried.len() as u64,
        forwarding: 0,
        frames: 0,
        lost: 0,
        tries: 0,
        set_up_rate,
        refreshes_mps: None,
        refreshes_bps: None,
        cpu_percent: None,
    };
    let (mut failures, mut marks) = (Vec::new(), Vec::new());
    if up.len() < before.len() {
        let missing: Vec<u32> = (0..).zip(&before).filter(|(_, state)| state.is_none()).map(|(lsp, _)| lsp).collect();
        failures.push(format!("{} did not come up{}", count(missing.len()), named(bed, &missing)?));
    }
    let mut trial = None;
    if !tried.is_empty() {
        let spec = load(bed, params, plan, &before, &tried, reduction)?;
        // LSPs that lost frames in every try.
        let mut always = tried.clone();
        let mut earlier = 0;
        loop {
            let signalled = bed.lsps()?.signalling();
            let result = bed.trial(&spec)?;
            let held = Held { signalled, now: bed.lsps()?.signalling() };
            let after = states(bed, part.end)?;
            let changed: Vec<u32> =
                up.iter().copied().filter(|lsp| before[*lsp as usize] != after[*lsp as usize]).collect();
            let lossy = lossy(&result, &tried);
            always.retain(|lsp| lossy.binary_search(lsp).is_ok());
            row.tries += 1;
            (row.frames, row.lost, row.lost_lsps) = (result.offered(), result.lost(), changed.len() as u64);
            row.forwarding = (tried.len() - lossy.len()) as u64;
            (row.refreshes_mps, row.refreshes_bps) = (held.messages_per_second(), held.bytes_per_second());
            row.cpu_percent = result.dut_cpu.map(|cores| cores * 100.0);
            trial = Some(result.trial);
            if !changed.is_empty() {
                failures.push(format!("{} went down or changed{}", count(changed.len()), named(bed, &changed)?));
            }
            let over = lossy.is_empty() || !failures.is_empty() || row.tries >= TRIES;
            if over && !lossy.is_empty() {
                let frames = thousands(row.lost);
                let tries = if row.tries > 1 { format!(" in the last of {} tries", row.tries) } else { String::new() };
                let mut text = format!("{} lost {frames} frames{tries}{}", count(lossy.len()), named(bed, &lossy)?);
                if always.is_empty() {
                    text += ", none of them in every try";
                }
                failures.push(text);
            }
            if over {
                break;
            }
            earlier += row.lost;
        }
        if earlier > 0 {
            marks.push(format!("{} frames were lost in earlier tries", thousands(earlier)));
        }
    }
    if let Some(rate) = row.refreshes_mps {
        PLOT.curve(outcome, &format!("refresh reduction {reduction}"), xy(f64::from(part.end), rate));
    }
    if tried.len() < up.len() {
        let most = thousands(TRIED.get(params).into());
        let text = format!("with more than {most} LSPs, frames go over {most} of them, spread evenly (`tried_lsps`)");
        note(outcome, text);
    }
    let failure = (!failures.is_empty()).then(|| failures.join("; "));
    TABLE.add(outcome, row, trial, failure.clone().into_iter().chain(marks));
    Ok(failure)
}

fn count(lsps: usize) -> String {
    format!("{} {}", thousands(lsps as u64), if lsps == 1 { "LSP" } else { "LSPs" })
}

/// The first of these LSPs by name, in brackets.
fn named(bed: &mut dyn Testbed, of: &[u32]) -> Result<String, TestError> {
    let lsps = bed.lsps()?;
    let names: Vec<String> = of.iter().take(NAMED).map(|lsp| lsps.name(*lsp)).collect();
    Ok(format!(" ({}{})", names.join(", "), if of.len() > NAMED { ", ..." } else { "" }))
}

/// LSPs per second between the first and the last of these that came up at the ingress.
fn set_up_rate(step: &[Option<UpLsp>]) -> Option<f64> {
    let times = || step.iter().flatten().map(|lsp| lsp.since_s[0]);
    let (first, last) = (times().reduce(f64::min)?, times().reduce(f64::max)?);
    (last > first).then(|| (times().count() - 1) as f64 / (last - first))
}

/// Frames over each of the `tried` LSPs while the step is held, evenly spaced.
fn load(
    bed: &mut dyn Testbed,
    params: &Params,
    plan: &LspPlan,
    states: &[Option<UpLsp>],
    tried: &[u32],
    reduction: Reduction,
) -> Result<TrialSpec, TestError> {
    let size = FRAME_SIZE.get(params);
    let up = tried.iter().filter_map(|lsp| states[*lsp as usize]);
    let flows = up.map(|lsp| lsps::flow(bed.ports(), plan, &lsp, GROUP, &size)).collect::<Result<Vec<_>, _>>()?;
    let duration_s = PERIODS * REFRESH.seconds(params);
    let rate_pps = tried.len() as f64 * f64::from(FRAMES.get(params).max(1)) / duration_s;
    Ok(TrialSpec {
        purpose: format!("{} LSPs, refresh reduction {reduction}", thousands(states.len() as u64)),
        size,
        flows,
        load: Load::Constant { rate_pps },
        duration_s,
        bin_s: None,
        drain_s: DRAIN.seconds(params),
        events: Vec::new(),
    })
}

/// The tried LSPs that lost frames, or that no frame was sent over.
fn lossy(result: &TrialResult, tried: &[u32]) -> Vec<u32> {
    // All flows are counted by destination, of which each has one.
    let whole = |flow: usize| {
        let counts = result.destinations.get(flow).filter(|counts| counts.flow == flow);
        counts.is_some_and(|counts| counts.offered[0] > 0 && counts.received == counts.offered)
    };
    tried.iter().enumerate().filter(|(flow, _)| !whole(*flow)).map(|(_, lsp)| *lsp).collect()
}

/// Messages while a step is held: nothing but refreshes.
struct Held {
    signalled: Signalling,
    now: Signalling,
}

impl Held {
    fn rate(&self, of: impl Fn(&Signalling) -> [u64; 2]) -> Option<f64> {
        let (before, after) = (of(&self.signalled), of(&self.now));
        let grown: u64 = before.iter().zip(after).map(|(before, after)| after - before).sum();
        let seconds = self.now.at_s - self.signalled.at_s;
        (seconds > 0.0).then(|| grown as f64 / seconds)
    }

    fn messages_per_second(&self) -> Option<f64> {
        self.rate(|signalling| signalling.messages)
    }

    fn bytes_per_second(&self) -> Option<f64> {
        self.rate(|signalling| signalling.bytes)
    }
}
