//! Error frames (Bradner 1989, "errors"; RFC 2889 section 5.9 for frames, RFC 1812, 8200 and 4443 for packets): what a
//! router does with frames that it must not forward, which of its counters shows them, and whether good frames sent at
//! the same time suffer.

mod kinds;
mod verdict;

use crate::kit::prelude::*;
use crate::trial::not_seen;
use drophammer_model::size::FrameSize;
use drophammer_model::trial::AddressRange;
use kinds::{Ends, Fault, KINDS, Kind};
use std::collections::BTreeMap;
use std::net::IpAddr;
use verdict::{Tally, counters, loses_more};

/// The test.
pub struct ErrorFrames;

const FAMILIES: Param<Vec<Family>> =
    Param::fixed("families", "[ipv4, ipv6]", "IP versions of the good and of the wrong frames");
const FRAMES: Param<u32> =
    Param::new("frames", "20", "300", "wrong frames of each kind, 1 to 10,000").at_most(MOST_FRAMES as u64);
const RATE: Param<FrameRate> =
    Param::fixed("rate", "1 kfps", "good frames per second sent at the same time, from the first port to the second");
const TRIAL_DURATION: Param<Duration> = Param::new(
    "trial_duration",
    "500 ms",
    "30 s",
    "length of the trial of each kind (RFC 2889 section 5.9: 30 s); the wrong frames are spread over it",
);

const WRONG: FigureSpec = FigureSpec::lower_by_difference(
    "error_kinds_wrong",
    "kinds",
    "kinds of wrong frames that the router does not handle as the RFCs require, among those that could be sent",
)
.by(1.0);

static SPEC: TestSpec = TestSpec {
    name: "error_frames",
    title: "Error frames",
    summary: "wrong frames of 30 kinds among good ones: forwarded, dropped, answered by ICMP, counted, and what the RFCs require",
    source: "Bradner 1989, errors; RFC 2889 section 5.9; RFC 1812, RFC 8200, RFC 4443",
    params: params![&[FAMILIES.spec(), FRAMES.spec(), RATE.spec(), TRIAL_DURATION.spec()], &AFTER_TRIAL],
    figures: &[WRONG.shape()],
    tables: &[TABLE.shape()],
    needs: &[],
};

columns! {
    /// One kind of wrong frame.
    struct ErrorRow {
        kind: String,
        family: Family = "IP version",
        expected: String,
        verdict: String,
        sent: u64 ["frames"],
        forwarded: Option<u64> ["frames"],
        altered: Option<u64> = "Forwarded, altered" ["frames"],
        dropped: Option<u64> ["frames"],
        answered: Option<u64> = "ICMP errors" ["packets"],
        answers: Option<String>,
        counted: Option<u64> = "Counted, probably" ["frames"],
        counters: Option<String> = "Probable counters",
        good_lost: Option<u64> = "Good frames lost" ["frames"],
        source: String,
    }
}

const TABLE: TableSpec<ErrorRow> = TableSpec::new("error_frames", "Error frames");

/// Verdict on a router that behaved correctly.
const AS_WANTED: &str = "as required";
/// Verdict on a kind that was not sent.
const NOT_SENT: &str = "not sent";
/// Verdict on a kind without a valid trial.
const NOT_MEASURED: &str = "not measured";
/// Size of the good frames.
const GOOD_SIZE: u16 = 128;
/// The sending port, and the receiving one.
const FROM: usize = 0;
const TO: usize = 1;
/// Maximum number of counters named in a row.
const COUNTERS: usize = 3;
/// Maximum number of wrong frames of a kind.
const MOST_FRAMES: u32 = 10_000;
/// Trial duration that the source of the test requires, in seconds.
const SOURCE_S: f64 = 30.0;

/// Address number `index` of a range, wrapping around after the last one.
fn address(range: &AddressRange, index: u64) -> IpAddr {
    let offset = u128::from(index % u64::from(range.count.max(1))) * u128::from(range.step);
    match range.first {
        IpAddr::V4(first) => IpAddr::V4(first.to_bits().wrapping_add(offset as u32).into()),
        IpAddr::V6(first) => IpAddr::V6(first.to_bits().wrapping_add(offset).into()),
    }
}

/// The ports and settings for sending wrong frames among good ones.
struct Bed {
    ports: Vec<PortView>,
    pattern: Pattern,
    rate: FrameRate,
    frames: u32,
    duration_s: f64,
}

impl Bed {
    fn new(bed: &dyn Testbed, params: &Params) -> Result<Bed, TestError> {
        let pattern = Pattern::one_way(
            PacketSize::Fixed(FrameSize::Frame(GOOD_SIZE)),
            FAMILIES.get(params),
            DRAIN.seconds(params),
        );
        let found = Bed {
            ports: bed.ports().to_vec(),
            pattern,
            rate: RATE.get(params),
            frames: FRAMES.get(params),
            duration_s: TRIAL_DURATION.seconds(params),
        };
        // The first pair of ports is enough for all kinds.
        found.pattern.flows(&found.ports)?;
        Ok(found)
    }

    fn trial(&self, what: &str) -> Result<TrialSpec, TestError> {
        let purpose = format!("error frames: {what}, with {}", self.rate);
        let ports = &self.ports[..2];
        self.pattern.trial(ports, purpose, Load::Constant { rate_pps: self.rate.pps() }, self.duration_s)
    }

    /// Source addresses rotate from frame to frame and from kind to kind, because routers limit ICMP errors by
    /// destination. If there are more frames than addresses, some frames share a source.
    fn wrong(&self, kind: &Kind, place: usize) -> Vec<drophammer_model::beside::ExtraFrame> {
        let of = |port: usize| self.ports[port].addressing(kind.family);
        let (Some(from), Some(to)) = (of(FROM), of(TO)) else { return Vec::new() };
        let one = |number: u32| {
            let index = u64::from(number) + place as u64 * u64::from(self.frames);
            let ends = Ends {
                source: address(&from.destinations, index),
                destination: address(&to.destinations, index),
                dut: from.dut,
                mtu: self.ports[FROM].mtu,
            };
            // Sends each frame in the middle of its share of the time.
            let at = self.duration_s * (f64::from(number) + 0.5) / f64::from(self.frames);
            kind.frame(ends, FROM, Duration::from_secs_f64(at))
        };
        (0..self.frames).map(one).collect()
    }
}

/// Returns why frames of this kind cannot be sent; `None` if they can.
fn impossible(bed: &mut dyn Testbed, kind: &Kind, mtu: u32) -> Option<String> {
    if matches!(kind.fault, Fault::Fcs) {
        return Some("no backend of the tester can send a frame with a wrong FCS".into());
    }
    let (bytes, most) = (kind.frame_bytes(mtu) as usize, bed.ports().get(FROM).map_or(0, |port| port.largest_frame));
    (bytes > most).then(|| format!("the tester's port cannot send a frame of {bytes} bytes, only up to {most}"))
}

fn row(kind: &Kind, tally: Option<&Tally>, verdict: String) -> ErrorRow {
    let count = |of: fn(&Tally) -> u64| tally.map(of);
    ErrorRow {
        kind: kind.name.into(),
        family: kind.family,
        sent: count(|t| t.sent).unwrap_or(0),
        forwarded: count(|t| t.forwarded),
        altered: count(|t| t.altered),
        dropped: count(Tally::dropped),
        answered: count(Tally::answers),
        answers: tally.and_then(Tally::answers_text),
        counted: None,
        counters: None,
        good_lost: None,
        expected: kind.expected.to_string(),
        source: kind.source.into(),
        verdict,
    }
}

impl Method for ErrorFrames {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn plan(&self, params: &Params) -> Plan {
        let families = FAMILIES.get(params);
        let possible = KINDS.iter().filter(|kind| families.contains(&kind.family) && !matches!(kind.fault, Fault::Fcs));
        // Some ports cannot send a frame larger than their MTU.
        let large = possible.clone().filter(|kind| matches!(kind.fault, Fault::Giant)).count();
        let most = 1 + possible.count();
        // Every trial is followed by a wait for answers.
        let trials = (KINDS.len() + 1) as f64;
        let each_s = TRIAL_DURATION.seconds(params) + DRAIN.seconds(params);
        Plan::times(params, 1)
            .counting(TrialCount::between(most - large, most))
            .taking(trials * each_s + beside_s(params, trials, 0.0))
            .deviating(shorter(params, &PAUSE, "pause", 5.0, "RFC 2544 section 23 e"))
            .deviating(shorter(params, &TRIAL_DURATION, "trials", SOURCE_S, "RFC 2889 section 5.9"))
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        TABLE.begin(outcome);
        let own = Bed::new(bed, params)?;
        note(
            outcome,
            "A wrong frame that comes back is identified by a mark in its payload, or by its source and identification or flow label. ICMP \
             errors that a router sends to other addresses than the source of the frame do not reach the tester.",
        );
        let kinds: Vec<_> = KINDS.iter().filter(|kind| own.pattern.families.contains(&kind.family)).collect();
        bed.progress("good frames alone");
        let alone = bed.trial(&own.trial("good frames alone")?)?;
        if alone.lost() > 0 {
            note(outcome, format!("{} good frames were lost even without wrong frames.", alone.lost()));
        }
        bed.settle(PAUSE.get(params))?;
        let (mut wrong, mut sent, mut unfit) = (0u32, 0u32, Vec::new());
        for (place, kind) in kinds.into_iter().enumerate() {
            bed.progress(&format!("error frames: {}", kind.name));
            if let Some(why) = impossible(bed, kind, own.ports[FROM].mtu) {
                TABLE.add(outcome, row(kind, None, format!("{NOT_SENT}: {why}")), [], []);
                continue;
            }
            let spec = own.trial(&format!("{} with {}", own.frames, kind.name))?;
            let extra = Some(own.wrong(kind, place));
            let Seen { result, other, .. } = match bed.run(&Trial { extra, ..Trial::new(spec) }) {
                Err(TestError::Unfit(why)) => {
                    let why = why.join("; ");
                    TABLE.add(outcome, row(kind, None, format!("{NOT_MEASURED}: the tester was unfit")), [], []);
                    note(outcome, format!("{} not measured, the tester was unfit: {why}.", kind.name));
                    outcome.deviations.push(format!("{} not measured, the tester was unfit", kind.name));
                    unfit.push(why);
                    continue;
                }
                other => other?,
            };
            let other = other.ok_or_else(|| not_seen("frames other than test frames"))?;
            let tally = Tally::of(&other.extra);
            let mut faults = tally.faults(kind);
            let (beside, without) = ((result.lost(), result.offered()), (alone.lost(), alone.offered()));
            if loses_more(beside, without) {
                faults.push(format!("{} good frames lost", result.lost()));
            }
            sent += 1;
            wrong += u32::from(!faults.is_empty());
            let counted = counters(&result.dut_counters, &alone.dut_counters, tally.dropped());
            let named = |(name, by): &(String, u64)| format!("{name} +{by}");
            let names: Vec<String> = counted.iter().take(COUNTERS).map(named).collect();
            let verdict = if faults.is_empty() { AS_WANTED.to_owned() } else { faults.join("; ") };
            let mut marks: Vec<String> = tally.alterations_text().into_iter().collect();
            if tally.limited(kind) {
                marks.push("fewer ICMP errors than frames: a rate limit".into());
            }
            let row = ErrorRow {
                counted: counted.first().map(|(_, by)| *by),
                counters: (!names.is_empty()).then(|| names.join(", ")),
                good_lost: Some(result.lost()),
                ..row(kind, Some(&tally), verdict)
            };
            TABLE.add(outcome, row, [alone.trial, result.trial], marks);
            bed.settle(PAUSE.get(params))?;
        }
        note_uncounted(outcome);
        if sent == 0 && !unfit.is_empty() {
            return Err(TestError::Unfit(unfit));
        }
        note(outcome, format!("{sent} kinds were sent."));
        // If some kinds could not be measured, the number of wrong kinds is not comparable: a figure without a value
        // would mean that the router failed.
        let title = "Kinds of wrong frames not handled as the RFCs require";
        let figure = WRONG.of(&[], title, Some(f64::from(wrong)));
        match unfit.as_slice() {
            [] if sent > 0 => outcome.ranks.push(figure),
            [] => {}
            [why, ..] => outcome.ranks.push(figure.spoilt(format!("{} kinds were not measured: {why}", unfit.len()))),
        }
        Ok(())
    }
}

/// Notes the kinds that no counter reports.
fn note_uncounted(outcome: &mut Outcome) {
    let mut silent: BTreeMap<Family, Vec<String>> = BTreeMap::new();
    for row in TABLE.rows(&outcome.tables) {
        if row.counters.is_none() && row.dropped.is_some_and(|dropped| dropped > 0) {
            silent.entry(row.family).or_default().push(row.kind);
        }
    }
    for (family, kinds) in silent {
        note(
            outcome,
            format!(
                "None of the counters read from the router grew by about the number of dropped {family} frames of these kinds: {}.",
                kinds.join(", ")
            ),
        );
    }
}
