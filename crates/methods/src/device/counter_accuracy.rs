//! Counter accuracy: every counter of the router, compared with the frames actually sent and received.
//!
//! Bradner passed "a known number of packets through the router" and compared the counters before and after. This test
//! also counts frames other than test frames, so the comparison is exact to the frame.

mod judge;
mod octets;

use crate::kit::prelude::*;
use crate::maximum_load::at_maximum;
use crate::trial::{CountersSeen, not_seen};
use crate::{modifiers, routed};
use drophammer_model::outcome::Verdict;
use drophammer_model::traffic::{Header, Ipv4, Ipv6, Udp};
use drophammer_model::trial::FlowSpec;
use judge::{Facts, Finding};
use octets::Conventions;
use std::collections::{BTreeMap, BTreeSet};

/// The test.
pub struct CounterAccuracy;

const FRAMES: Param<u64> = Param::new("frames", "10000", "1000000", "frames per sending port and trial");
const LOAD: Param<FrameRate> = Param::fixed(
    "load",
    "20 kfps",
    "moderate load per sending port, at which the router should lose nothing; if it loses frames, a note says so",
);
const OVERLOAD: Param<bool> =
    Param::fixed("overload", "true", "one more trial per frame size at the highest load that the tester can offer");
const DISCARD: Param<bool> = Param::fixed(
    "discard",
    "true",
    "one more trial per frame size in which half of the frames have a TTL or hop limit of 1, so that the router must discard them",
);
const SETTLE: Param<Duration> = Param::new(
    "counter_settle",
    "1500 ms",
    "5 s",
    "delay before the counters are read; an agent may report old values for some seconds",
);

const OFF: FigureSpec =
    FigureSpec::lower_by_difference("counters_off", "", "counters of the router that were wrong in at least one trial")
        .by(0.5);

static SPEC: TestSpec = TestSpec {
    name: "counter_accuracy",
    title: "Counter accuracy",
    summary: "each counter of the router before and after a known number of frames: which counters are off, and by how much",
    source: "Bradner 1989, RFC 2863, RFC 4293",
    params: params![
        &TRAFFIC,
        &[FRAMES.spec(), LOAD.spec(), OVERLOAD.spec(), DISCARD.spec(), SETTLE.spec()],
        &AFTER_TRIAL
    ],
    figures: &[OFF.shape()],
    tables: &[TABLE.shape(), routed::SHAPE],
    needs: &[],
};

columns! {
    /// One counter in one trial.
    struct CounterRow {
        frame_size: PacketSize,
        traffic: String,
        source: String,
        counter: String,
        port: Option<String>,
        expected: Option<u64>,
        expected_most: Option<u64> = "Expected, at most",
        counted: Option<u64>,
        difference: Option<f64>,
        verdict: String,
    }
}

const TABLE: TableSpec<CounterRow> =
    TableSpec::new("counter_accuracy", "Counters compared with the frames sent and received");

/// Kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Traffic {
    /// A load at which the router should lose nothing.
    Moderate,
    /// The highest load that the tester can offer.
    Overload,
    /// Like the moderate load, with half of the frames at TTL 1.
    Expiring,
}

impl Traffic {
    fn text(self) -> &'static str {
        match self {
            Traffic::Moderate => "moderate load",
            Traffic::Overload => "highest load",
            Traffic::Expiring => "half with TTL 1",
        }
    }
}

fn traffics(params: &Params) -> Vec<Traffic> {
    let overload = OVERLOAD.get(params).then_some(Traffic::Overload);
    let discard = DISCARD.get(params).then_some(Traffic::Expiring);
    [Some(Traffic::Moderate), overload, discard].into_iter().flatten().collect()
}

/// The flows, each in a separate group, so that the number of frames at each port is known. With `expiring`, each flow
/// has a twin whose packets the router must not forward.
fn flows(pattern: &Pattern, bed: &dyn Testbed, expiring: bool) -> Result<Vec<FlowSpec>, TestError> {
    let mut flows = Vec::new();
    for mut flow in pattern.flows(bed.ports())? {
        flow.group = format!("{} {} to {}", flow.family, bed.ports()[flow.from].name, bed.ports()[flow.to].name);
        if expiring {
            let header = match flow.family {
                Family::Ipv4 => Header::Ipv4(Ipv4 { ttl: 1.into(), ..Ipv4::default() }),
                Family::Ipv6 => Header::Ipv6(Ipv6 { hop_limit: 1.into(), ..Ipv6::default() }),
            };
            let group = format!("{}, TTL 1", flow.group);
            flows.push(FlowSpec { group, headers: vec![header, Header::Udp(Udp::default())], ..flow.clone() });
        }
        flows.push(flow);
    }
    Ok(flows)
}

/// Length of the IPv4 and the IPv6 frames, FCS included; 0 for a family without frames.
fn frame_bytes(pattern: &Pattern) -> Result<[u64; 2], TestError> {
    let mut bytes = [0; 2];
    for family in &pattern.families {
        let PacketSize::Fixed(size) = pattern.size_of(*family) else {
            return Err(TestError::NotApplicable("octets are only known for frames of one size".into()));
        };
        let v6 = *family == Family::Ipv6;
        bytes[usize::from(v6)] = u64::from(size.frame_bytes(v6));
    }
    Ok(bytes)
}

/// Runs one trial.
fn counted(
    bed: &mut dyn Testbed,
    pattern: &Pattern,
    traffic: Traffic,
    params: &Params,
) -> Result<(Vec<FlowSpec>, TrialResult, CountersSeen), TestError> {
    let flows = flows(pattern, bed, traffic == Traffic::Expiring)?;
    let limits = pattern.limits(bed);
    let run = |bed: &mut dyn Testbed, load: Load, rate: f64| {
        let purpose = format!("counter accuracy {}: {}", pattern.size, traffic.text());
        let duration_s = FRAMES.get(params) as f64 / rate;
        let spec = pattern.trial(bed.ports(), purpose, load, duration_s)?;
        let spec = TrialSpec { flows: flows.clone(), ..spec };
        let seen = bed.run(&Trial { counters: Some(SETTLE.get(params)), ..Trial::new(spec) })?;
        Ok((seen.result, seen.counters.ok_or_else(|| not_seen("the counters of a DUT"))?))
    };
    let (result, counters) = if traffic == Traffic::Overload {
        at_maximum(bed, pattern, |bed, limit| run(bed, Load::Maximum { limit_pps: limit.pps() }, limit.pps()))?.0
    } else {
        let rate_pps = LOAD.get(params).pps().min(limits.max.pps());
        run(bed, Load::Constant { rate_pps }, rate_pps)?
    };
    Ok((flows, result, counters))
}

impl Method for CounterAccuracy {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn plan(&self, params: &Params) -> Plan {
        let possible = modifiers::patterns(params).into_iter().filter(|pattern| frame_bytes(pattern).is_ok()).collect();
        let sending_s = FRAMES.get(params) as f64 / LOAD.get(params).pps().max(1.0);
        let reading_s = 2.0 * (SETTLE.seconds(params) + 0.03);
        Plan::of(params, possible)
            .trials(traffics(params).len(), sending_s + reading_s, 0.7)
            .deviating(common_deviations(params))
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        TABLE.begin(outcome);
        note(
            outcome,
            "The expected value is the number that the tester sent to the router's port or received from it between two readings, with ARP, \
             Neighbor Discovery, ICMP and routing protocols included. If frames were lost, it is not known which counter must include \
             them: a row with \"expected, at most\" may have any count between the two. Frames that a source counts as discarded \
             on arrival may be missing from its other counters of received frames and packets, and from its octets.",
        );
        let traffics = traffics(params);
        let mut readings: Vec<Reading> = Vec::new();
        let result = for_each_size(bed, params, outcome, |bed, pattern, outcome, _| {
            let bytes = frame_bytes(pattern)?;
            for traffic in &traffics {
                bed.progress(&format!("counter accuracy, {}", pattern.size_text()));
                let (flows, result, counters) = counted(bed, pattern, *traffic, params)?;
                if counters.unsure.frames > 0 {
                    note_of(
                        outcome,
                        pattern,
                        "frames passed while counters were read: a counter that is off by at most their number \
                         does not count as wrong",
                    );
                }
                let facts = Facts::of(&result, &counters, &flows, bytes, bed.ports().len());
                let lost = if *traffic == Traffic::Overload { 0 } else { facts.lost_wrongly() };
                if lost > 0 {
                    let what = traffic.text();
                    note_of(
                        outcome,
                        pattern,
                        format!("{what}: the router lost {lost} frames that it should have forwarded"),
                    );
                }
                readings.push(Reading {
                    pattern: pattern.clone(),
                    traffic: *traffic,
                    trial: result.trial,
                    counters,
                    facts,
                    lost,
                });
                bed.settle(PAUSE.get(params))?;
            }
            Ok(())
        });
        let ports: Vec<String> = bed.ports().iter().map(|port| port.name.clone()).collect();
        judge_all(outcome, &readings, &ports, result.is_ok());
        result
    }
}

/// The counters before and after one trial.
struct Reading {
    pattern: Pattern,
    traffic: Traffic,
    trial: u64,
    counters: CountersSeen,
    facts: Facts,
    /// Frames lost at a load at which the router should lose nothing.
    lost: u64,
}

/// Adds the rows of all readings and the verdict. This happens at the end, because one octet convention must fit all
/// trials. `whole` is false if a trial is missing.
fn judge_all(outcome: &mut Outcome, readings: &[Reading], ports: &[String], whole: bool) {
    let conventions = Conventions::of(readings.iter().map(|reading| (&reading.counters, &reading.facts)));
    let mut off: BTreeMap<String, String> = BTreeMap::new();
    let mut exact: BTreeSet<String> = BTreeSet::new();
    for reading in readings {
        let Reading { pattern, traffic, counters, facts, lost, .. } = reading;
        for finding in judge::findings(counters, facts, &pattern.families, &conventions) {
            let name = finding.name(ports);
            if finding.off {
                let lossy = if *lost > 0 { format!(", {lost} frames lost") } else { String::new() };
                let text = format!("{} ({}, {}{lossy})", finding.verdict, pattern.size_text(), traffic.text());
                off.entry(name).or_insert(text);
            } else if finding.counted.is_some() {
                exact.insert(name);
            }
            add(outcome, reading, finding, ports);
        }
    }
    conclude(outcome, &off, exact.iter().filter(|name| !off.contains_key(*name)).count(), whole);
}

fn add(outcome: &mut Outcome, reading: &Reading, finding: Finding, ports: &[String]) {
    let row = CounterRow {
        frame_size: reading.pattern.size.clone(),
        traffic: reading.traffic.text().into(),
        port: finding.port.map(|port| ports[port].clone()),
        source: finding.source,
        counter: finding.counter,
        expected: finding.expected.map(|(least, _)| least),
        expected_most: finding.expected.filter(|(least, most)| least < most).map(|(_, most)| most),
        counted: finding.counted,
        difference: finding.difference.map(|by| by as f64),
        verdict: finding.verdict,
    };
    TABLE.add(outcome, row, [reading.trial], finding.off.then(|| "off".into()));
}

/// Reports the counters that are off, in the verdict and in notes. If trials are missing, more counters may be off.
fn conclude(outcome: &mut Outcome, off: &BTreeMap<String, String>, exact: usize, whole: bool) {
    // Counters that agree in some trials may be off in the missing ones. A figure without a value would mean that the
    // router failed.
    if exact + off.len() == 0 || (off.is_empty() && !whole) {
        return;
    }
    for (name, how) in off {
        note(outcome, format!("{name}: {how}."));
    }
    let found = if off.is_empty() {
        format!("{exact} counters agree")
    } else {
        let named: Vec<String> = off.iter().map(|(name, how)| format!("{name}: {how}")).collect();
        format!("{} of {} counters are off: {}", off.len(), off.len() + exact, named.join("; "))
    };
    outcome.verdicts.push(Verdict::decided("counters agree with the frames", off.is_empty(), found));
    let value = Some(off.len() as f64);
    let figure = OFF.of(&[], "Counters that are off", value);
    outcome.ranks.push(RankFigure { tester_limited: !whole, ..figure });
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::figure::{Figure, RoundFigure};

    #[test]
    fn a_part_of_the_trials_shows_only_what_is_off() {
        let concluded = |off: &[&str], whole: bool| {
            let named = |name: &&str| ((*name).to_owned(), "off by +1".to_owned());
            let off: BTreeMap<String, String> = off.iter().map(named).collect();
            let mut outcome = Outcome::default();
            conclude(&mut outcome, &off, 3, whole);
            let figures: Vec<RoundFigure> = outcome.ranks.iter().map(RankFigure::round).collect();
            (figures, outcome.verdicts.iter().map(|verdict| verdict.pass).collect::<Vec<_>>())
        };
        let measured = RoundFigure::Measured;
        assert_eq!(concluded(&[], true), (vec![measured(Figure::exactly(0.0))], vec![true]));
        assert_eq!(concluded(&["a", "b"], true), (vec![measured(Figure::exactly(2.0))], vec![false]));
        assert_eq!(concluded(&["a", "b"], false), (vec![measured(Figure::at_least(2.0))], vec![false]));
        assert_eq!(concluded(&[], false), (vec![], vec![]));
    }
}
