//! Overload and flood: the router's forwarding rate at its throughput, at 25 % more and at the highest load, and
//! whether it still answers its operator during these loads.
//!
//! Bradner's table of 1989 has the columns "theor", "hammer", "max", "+25%" and "flood", and also shows whether the
//! processor is "ok" or "dead". Its "max" is the rate at which the output seemed to match the input; here it is the
//! throughput of RFC 1242, without loss.

use crate::kit::prelude::*;
use crate::maximum_load::at_maximum;
use crate::pattern::TESTER_LIMITED_SHARE;
use crate::routed;
use drophammer_model::management::{Answered, Answers, Inquiry, Question};
use drophammer_model::outcome::{Blame, FPS_PER_PORT, Missing};

/// The test.
pub struct Overload;

const EXCESS: Param<Percent> =
    Param::fixed("excess", "25", "load above the throughput in % of it (Bradner 1989: 25 %)");
const TRIAL_DURATION: Param<Duration> = trial_of_60_s("1 s");
pub(crate) const MANAGEMENT: Param<Vec<Question>> = Param::fixed(
    "management",
    "[ping]",
    "how the tester checks whether the router still answers: ICMP echo to its own address, the banner of its SSH server, GET of sysUpTime",
);
pub(crate) const INTERVAL: Param<Duration> =
    Param::new("ask_every", "50 ms", "200 ms", "time between two queries of the same kind");
pub(crate) const AFTERWARDS: Param<Duration> =
    Param::new("ask_after", "500 ms", "5 s", "how long the queries continue after a trial");

const EXCESS_RATE: FigureSpec = FigureSpec::higher(
    "overload_{size}_pps",
    FPS_PER_PORT,
    "forwarding rate per sending port at the throughput plus `excess`, in fps",
);
const FLOOD_RATE: FigureSpec = FigureSpec::higher(
    "flood_{size}_pps",
    FPS_PER_PORT,
    "forwarding rate per sending port at the highest load that the tester can offer (FRMOL), in fps",
);
const ANSWERED: FigureSpec = FigureSpec::higher(
    "flood_{size}_answered_percent",
    "%",
    "share of the queries that the router answered during the flood, in %, for the kind answered least",
);

static SPEC: TestSpec = TestSpec {
    name: "overload",
    title: "Overload and flood",
    summary: "forwarding rate at the throughput, at 25 % more and at the highest load, and whether the router still answers then",
    source: "Bradner 1989; RFC 2544 section 26.1, RFC 2285 section 3.6.2",
    params: params![
        &TRAFFIC,
        &LABELLED,
        &[EXCESS.spec(), TRIAL_DURATION.spec(), MANAGEMENT.spec(), INTERVAL.spec(), AFTERWARDS.spec()],
        &SEARCH,
    ],
    figures: &[EXCESS_RATE.shape(), FLOOD_RATE.shape(), ANSWERED.shape()],
    tables: &[TABLE.shape(), ANSWERS.shape(), routed::SHAPE],
    needs: &[],
};

columns! {
    /// One frame size. Rates are per sending port.
    struct OverloadRow {
        frame_size: PacketSize,
        protocol: String,
        line_pps: f64 = "Maximum frame rate" ["fps"],
        ceiling_pps: Option<f64> = "Tester's ceiling" ["fps"],
        throughput_pps: Option<f64> ["fps"],
        overload_offered_pps: Option<f64> = "Overload, offered" ["fps"],
        overload_pps: Option<f64> = "Overload, forwarding rate" ["fps"],
        overload_loss_percent: Option<f64> = "Overload, loss" ["%"],
        flood_offered_pps: Option<f64> = "Flood, offered" ["fps"],
        flood_pps: Option<f64> = "Flood, FRMOL" ["fps"],
        flood_loss_percent: Option<f64> = "Flood, loss" ["%"],
        at_least: Option<String>,
    }
}

columns! {
    /// One load and kind of query.
    struct AnswerRow {
        frame_size: PacketSize,
        load: String,
        offered_load_pps: f64 ["fps"],
        loss_percent: Option<f64> ["%"],
        cpu_percent: Option<f64> = "CPU of the router" ["%"],
        question: Option<String> = "Query",
        over: Option<String>,
        state: Option<String> = "Management",
        asked: Option<u64> = "Queries",
        answered: Option<u64>,
        median_ms: Option<f64> = "Answer, median" ["ms"],
        worst_ms: Option<f64> = "Answer, worst" ["ms"],
        state_after: Option<String> = "Management, afterwards",
        asked_after: Option<u64> = "Queries, afterwards",
        answered_after: Option<u64> = "Answered, afterwards",
        worst_after_ms: Option<f64> = "Answer, worst afterwards" ["ms"],
    }
}

const TABLE: TableSpec<OverloadRow> = TableSpec::new("overload", "Throughput, overload and flood");
const ANSWERS: TableSpec<AnswerRow> = TableSpec::new("overload_answers", "Does the router still answer?");
const BARS: PlotSpec = PlotSpec::new(
    "overload",
    "Forwarding rate at throughput, overload and flood",
    PlotKind::Bars,
    "frame size",
    "fps per port",
);

/// Load of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Throughput,
    Excess,
    Flood,
}

const STEPS: [Step; 3] = [Step::Throughput, Step::Excess, Step::Flood];

/// Result of a trial, and the answers to the queries.
type Asked = (TrialResult, Vec<Answered>);

/// Result of one step.
struct Found {
    step: Step,
    /// Requested load per sending port; for a flood, the limit of the load.
    asked: FrameRate,
    result: TrialResult,
    answered: Vec<Answered>,
}

impl Found {
    /// Returns true if the router may forward more than it did in this step: without loss, it was not overloaded.
    fn at_least(&self, bound: Option<LowerBound>, limits: &Limits) -> bool {
        let rate = self.result.forwarding_rate();
        let lossless = self.result.lost() == 0;
        limits.tester_limited(rate)
            || match self.step {
                Step::Throughput => bound.is_some(),
                Step::Excess => lossless,
                Step::Flood => {
                    // The tester may have sent less than the limit of its load.
                    let below = !limits.line_is_full(&self.result);
                    below && (lossless || rate.pps() >= TESTER_LIMITED_SHARE * self.asked.pps())
                }
            }
    }

    /// Returns true for the overload step if it has less excess than requested.
    fn cannot(&self, throughput: Option<FrameRate>, excess: f64) -> bool {
        let wanted = throughput.map_or(0.0, FrameRate::pps) * (1.0 + excess / 100.0);
        self.step == Step::Excess && self.result.offered_load().pps() < wanted * 0.999
    }
}

/// Runs one trial at `load`.
fn ask(
    bed: &mut dyn Testbed,
    pattern: &Pattern,
    params: &Params,
    (name, load): (&str, Load),
) -> Result<Asked, TestError> {
    let purpose = format!("overload {}: {name}", pattern.size);
    let spec = pattern.trial(bed.ports(), purpose, load, TRIAL_DURATION.seconds(params))?;
    let (interval, afterwards) = (INTERVAL.get(params), AFTERWARDS.get(params));
    let ask = Some(Inquiry { questions: MANAGEMENT.get(params), interval, afterwards });
    let seen = bed.run(&Trial { ask, ..Trial::new(spec) })?;
    Ok((seen.result, seen.answered))
}

impl Method for Overload {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn plan(&self, params: &Params) -> Plan {
        Plan::by_size(params)
            .searching()
            // A router without a throughput gets only the flood.
            .trials(
                TrialCount::between(1, STEPS.len()),
                TRIAL_DURATION.seconds(params) + AFTERWARDS.seconds(params),
                0.7,
            )
            .counts_alone()
            .deviating(common_deviations(params))
            .deviating(shorter(params, &TRIAL_DURATION, "trials", 60.0, "RFC 2544 section 24"))
            .deviating(goal_deviations(params))
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        let excess = EXCESS.get(params).0;
        TABLE.begin(outcome);
        ANSWERS.begin(outcome);
        BARS.begin(outcome);
        note(
            outcome,
            format!(
                "Rates are frames per second per sending port. In the words of Bradner's table of 1989: maximum frame rate \"theor\", \
                 tester's ceiling \"hammer\", throughput \"max\" (his may have lost some frames), overload by {excess} % \"+25%\", \
                 flood \"flood\". Columns named under \"At least\" are lower bounds: the router may have more (\"device is faster than the test \
                 setup\").",
            ),
        );
        for_each_size(bed, params, outcome, |bed, pattern, outcome, _| {
            let mut lacking: Vec<(Step, Missing)> = Vec::new();
            let (throughput, missing) = match known_throughput(bed, pattern, params, outcome) {
                Ok(found) => (found, None),
                // The flood needs no throughput.
                Err(error @ (TestError::NotApplicable(_) | TestError::Unfit(_))) => (None, Some(error)),
                Err(other) => return Err(other),
            };
            let missing_text = match (&throughput, &missing) {
                (Some(_), _) => None,
                (None, Some(error)) => Some(error.to_string()),
                (None, None) => Some("loses frames at every load".to_owned()),
            };
            if let Some(why) = &missing_text {
                note_of(outcome, pattern, format!("only the flood, as there is no throughput to overload: {why}"));
                let by = match &missing {
                    Some(TestError::Unfit(_)) => Blame::Spoilt,
                    Some(_) => Blame::Beyond,
                    None => Blame::Dut,
                };
                lacking.push((Step::Excess, Missing { why: format!("no throughput to overload: {why}"), by }));
            }
            let row = Size { pattern, excess, throughput, bound: known_bound(bed, pattern), missing: missing_text };
            let limits = pattern.limits(bed);
            let mut found: Vec<Found> = Vec::new();
            for step in STEPS {
                let rate = throughput.map(|throughput| overload(step, throughput, excess, &limits));
                bed.progress(&format!("overload, {}", pattern.size_text()));
                let name = name(step, excess);
                let asked = match (step, rate) {
                    (Step::Flood, _) => at_maximum(bed, pattern, |bed, limit| {
                        ask(bed, pattern, params, (&name, Load::Maximum { limit_pps: limit.pps() }))
                    }),
                    (_, Some(rate)) => ask(bed, pattern, params, (&name, Load::Constant { rate_pps: rate.pps() }))
                        .map(|asked| (asked, rate)),
                    (_, None) => continue,
                };
                match asked {
                    Ok(((result, answered), asked)) => {
                        note_unasked(outcome, params, &result, &answered);
                        found.push(Found { step, asked, result, answered });
                    }
                    Err(TestError::Unfit(why)) => {
                        note_unfit(outcome, pattern, &format!("{name} left out,"), limits.max, &why);
                        lacking.push((step, Missing { why: why.join("; "), by: Blame::Spoilt }));
                    }
                    Err(other) => {
                        row.write(outcome, &limits, &found);
                        return Err(other);
                    }
                }
                bed.settle(PAUSE.get(params))?;
            }
            row.write(outcome, &limits, &found);
            for (step, missing) in lacking.into_iter().filter(|(step, _)| *step != Step::Throughput) {
                if step == Step::Flood && !MANAGEMENT.get(params).is_empty() {
                    push_spoilt(outcome, answered_figure(pattern), std::slice::from_ref(&missing.why));
                }
                outcome.ranks.push(RankFigure { missing: Some(missing), ..row.figure(step) });
            }
            match missing {
                // If the tester spoilt any load of a size, the size is not finished.
                Some(unfit @ TestError::Unfit(_)) => Err(unfit),
                _ if found.is_empty() => Err(TestError::Unfit(vec!["no load could be offered".into()])),
                _ => Ok(()),
            }
        })
    }
}

/// Notes which queries were left out, and why.
pub(crate) fn note_unasked(outcome: &mut Outcome, params: &Params, result: &TrialResult, answered: &[Answered]) {
    let between_hosts = result.health.between_hosts.is_some();
    let questions = MANAGEMENT.get(params);
    if between_hosts && questions.iter().any(|question| *question != Question::Snmp) {
        note(outcome, ONE_HOST);
    }
    for question in questions {
        let over_ports = between_hosts && question != Question::Snmp;
        if !over_ports && answered.iter().all(|one| one.question != question) {
            note(outcome, format!("The router was not queried by {question}: {}.", question.lacks()));
        }
    }
}

const ONE_HOST: &str = "The router was not queried over a port, because queries and answers would travel between the hosts of the ports and the run: \
     a late or missing answer would not be the router's.";

fn name(step: Step, excess: f64) -> String {
    match step {
        Step::Throughput => "throughput".into(),
        Step::Excess => format!("+{excess} %"),
        Step::Flood => "flood".into(),
    }
}

/// Load of a step, limited to what the tester can offer.
fn overload(step: Step, throughput: FrameRate, excess: f64, limits: &Limits) -> FrameRate {
    let factor = if step == Step::Excess { 1.0 + excess / 100.0 } else { 1.0 };
    FrameRate((throughput.pps() * factor).min(limits.max.pps()).max(throughput.pps()))
}

/// The first columns of the row of a frame size.
struct Size<'a> {
    pattern: &'a Pattern,
    excess: f64,
    throughput: Option<FrameRate>,
    /// Why the throughput is only a lower bound.
    bound: Option<LowerBound>,
    /// Why there is no throughput.
    missing: Option<String>,
}

impl Size<'_> {
    fn write(&self, outcome: &mut Outcome, limits: &Limits, found: &[Found]) {
        let Size { pattern, excess, throughput, bound, .. } = *self;
        let of = |step: Step| found.iter().find(|one| one.step == step).map(|one| &one.result);
        let offered = |step| of(step).map(|result| result.offered_load().pps());
        let rate = |step| of(step).map(|result| result.forwarding_rate().pps());
        let loss = |step| of(step).map(|result| result.loss_ratio() * 100.0);
        let as_fast = |rate: FrameRate| limits.tester_limited(rate) || rate.pps() >= limits.line.pps() * 0.9999;
        let bounds = found.iter().filter(|one| one.at_least(bound, limits));
        let least: Vec<String> = bounds.map(|one| name(one.step, excess)).collect();
        let mut marks: Vec<String> = bound.iter().map(LowerBound::to_string).collect();
        if found.iter().any(|one| one.cannot(throughput, excess)) {
            marks.push(format!("+{excess} % cannot be offered"));
        }
        if throughput.is_some_and(as_fast) {
            marks.push("the router is as fast as line or tester".to_owned());
        }
        marks.extend(self.missing.clone());
        let row = OverloadRow {
            frame_size: pattern.size.clone(),
            protocol: pattern.protocol(),
            line_pps: limits.line.pps(),
            ceiling_pps: limits.ceiling.map(FrameRate::pps),
            throughput_pps: throughput.map(FrameRate::pps),
            overload_offered_pps: offered(Step::Excess),
            overload_pps: rate(Step::Excess),
            overload_loss_percent: loss(Step::Excess),
            flood_offered_pps: offered(Step::Flood),
            flood_pps: rate(Step::Flood),
            flood_loss_percent: loss(Step::Flood),
            at_least: (!least.is_empty()).then(|| least.join(", ")),
        };
        TABLE.add(outcome, row, found.iter().map(|one| one.result.trial), marks);
        for Found { step, result, answered, .. } in found {
            let text = name(*step, excess);
            let label = Some(pattern.size_text());
            let y = result.forwarding_rate().pps();
            BARS.curve(outcome, &text, Point { x: pattern.frame_bytes(), y, label, ..Point::default() });
            answer_rows(outcome, pattern, &text, result, answered);
        }
        self.figures(outcome, limits, found);
    }

    fn figures(&self, outcome: &mut Outcome, limits: &Limits, found: &[Found]) {
        let Size { pattern, bound, .. } = *self;
        for one in found.iter().filter(|one| one.step != Step::Throughput) {
            let Found { step, asked, result, answered } = one;
            let rate = result.forwarding_rate();
            let at_least = one.at_least(bound, limits);
            // The load followed from a throughput that the suite limited.
            let by_suite = *step == Step::Excess && bound == Some(LowerBound::MaxLoad);
            let capped = at_least && by_suite && !limits.tester_limited(rate);
            // Records the requested load, because the offered load of a flood differs from trial to trial.
            let (load_pps, value, tester_limited) = (Some(asked.pps()), Some(rate.pps()), at_least && !capped);
            outcome.ranks.push(RankFigure { value, tester_limited, capped, load_pps, ..self.figure(*step) });
            // Without any query there is no figure: a figure without a value would mean that the router failed.
            let shares = answered.iter().filter_map(|a| percent_of(a.during.times.len() as u64, a.during.asked));
            if let Some(least) = shares.min_by(f64::total_cmp).filter(|_| *step == Step::Flood) {
                outcome.ranks.push(RankFigure { value: Some(least), load_pps, ..answered_figure(pattern) });
            }
        }
    }

    /// The forwarding rate of a step, without a value yet.
    fn figure(&self, step: Step) -> RankFigure {
        let rate = if step == Step::Excess { EXCESS_RATE } else { FLOOD_RATE };
        let title = format!("Forwarding rate at {}, {}", name(step, self.excess), self.pattern.size_text());
        rate.of(&[("size", &self.pattern.size)], title, None)
    }
}

/// The share of queries answered during the flood, without a value yet.
fn answered_figure(pattern: &Pattern) -> RankFigure {
    let title = format!("Queries answered during the flood, {}", pattern.size_text());
    ANSWERED.of(&[("size", &pattern.size)], title, None)
}

/// "ok" or "dead", or how many queries were answered; "not asked" if the time ended before the first query.
pub(crate) fn state(answers: &Answers) -> String {
    match (answers.times.len() as u64, answers.asked) {
        (_, 0) => "not asked".into(),
        (0, _) => "dead".into(),
        (answered, asked) if answered >= asked => "ok".into(),
        (answered, asked) => format!("{answered} of {asked}"),
    }
}

fn answer_rows(outcome: &mut Outcome, pattern: &Pattern, load: &str, result: &TrialResult, answered: &[Answered]) {
    let row = |answered: Option<&Answered>| {
        let times = |answers: &Answers| answers.times.iter().map(|t| t.as_secs_f64() * 1e3).collect::<Vec<f64>>();
        let worst = |answers: &Answers| times(answers).into_iter().max_by(f64::total_cmp);
        let after = answered.map(|a| &a.afterwards).filter(|a| a.asked > 0);
        AnswerRow {
            frame_size: pattern.size.clone(),
            load: load.to_owned(),
            offered_load_pps: result.offered_load().pps(),
            loss_percent: Some(result.loss_ratio() * 100.0),
            cpu_percent: result.dut_cpu.map(|share| share * 100.0),
            question: answered.map(|a| a.question.word().to_owned()),
            over: answered.map(|a| a.over.clone()),
            state: answered.map(|a| state(&a.during)),
            asked: answered.map(|a| a.during.asked),
            answered: answered.map(|a| a.during.times.len() as u64),
            median_ms: answered.and_then(|a| median(&times(&a.during))),
            worst_ms: answered.and_then(|a| worst(&a.during)),
            state_after: after.map(state),
            asked_after: after.map(|a| a.asked),
            answered_after: after.map(|a| a.times.len() as u64),
            worst_after_ms: after.and_then(worst),
        }
    };
    if answered.is_empty() {
        ANSWERS.add(outcome, row(None), [result.trial], []);
    }
    for answered in answered {
        let row = row(Some(answered));
        let dead = [("during", &row.state), ("after", &row.state_after)]
            .map(|(when, state)| (when, state.as_deref() == Some("dead")));
        let mut marks = Vec::new();
        for (when, _) in dead.into_iter().filter(|(_, dead)| *dead) {
            marks.push(format!("no answer {when} the load"));
            let (question, over) = (answered.question.word(), &answered.over);
            note_of(
                outcome,
                pattern,
                format!("the router did not answer {question} over {over} {when} the load \"{load}\""),
            );
        }
        ANSWERS.add(outcome, row, [result.trial], marks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_router_that_was_not_asked_is_not_dead() {
        let of = |answered: usize, asked| state(&Answers { asked, times: vec![Duration::from_millis(1); answered] });
        let states = [of(0, 0), of(0, 3), of(2, 3), of(3, 3)];
        assert_eq!(states, ["not asked", "dead", "2 of 3", "ok"]);
    }
}
