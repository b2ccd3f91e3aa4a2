//! The list of trials with their conditions, so that a reader finds the conditions of every result.

use crate::csv::intended_load;
use crate::drops;
use crate::format::{DASH, nanoseconds, number};
use drophammer_judge::held_up::reasons;
use drophammer_model::quantity::group_digits;
use drophammer_model::record::TrialRecord;
use drophammer_model::trial::{GroupCounts, Load, TrialResult};
use maud::{Markup, html};
use std::collections::HashSet;

const HEAD: [(&str, &str); 31] = [
    ("#", "number of the trial within the run"),
    ("DUT", ""),
    ("Round", "round of the run"),
    ("Att.", "attempt; above 1 because an earlier attempt was invalid"),
    ("Purpose", ""),
    ("Size", "frame size with FCS, IP packet size or mix"),
    ("Time", "sending time, from first to last departure"),
    ("Intended load", "intended frames per second per sending port"),
    ("Offered load", "measured frames per second per sending port (RFC 2285)"),
    ("Group", "flow group"),
    ("Intended", "frames in the schedule of the trial"),
    ("Offered", "frames handed to the port"),
    ("Received", "distinct frames that arrived intact at the right port"),
    ("Lost", "offered - received"),
    ("Loss", "lost / offered"),
    ("Refused", "offered frames that the DUT's receive ring refused"),
    ("Dup.", "repeated arrivals of a frame"),
    (
        "Reord.",
        "RFC 4737 reordered; unknown if frames arrive at several queues of a port, or if its card has more receive queues than the port \
         reads (ethtool -L IF combined 1 leaves one)",
    ),
    ("Corr.", "corrupted"),
    ("Stray", "arrived at a wrong port"),
    ("Late", "received after the late threshold"),
    ("Lat. min", "smallest latency"),
    ("Lat. mean", "mean latency"),
    ("Lat. p99", "99th percentile"),
    ("Lat. max", "largest latency"),
    ("Unsent", "frames that the tester failed to offer in time"),
    ("Recv. drops", "test frames lost in the tester's own receive path"),
    ("Max gap", "longest time between two polls of the tester's packet loop"),
    ("Dep. error", "how late the tester handed frames to the port: p50 / p99"),
    (
        "DUT CPU",
        "processor time of the DUT's forwarding and daemons, in cores; in parentheses, the share that was work for the tester's ends of the links",
    ),
    (
        "DUT counters",
        "increase of the DUT's own counters during the trial, and the sum of all drops and refused frames, with each drop counted once",
    ),
];

/// Maximum number of trials in one table; each table opens with a click.
const PART: usize = 250;

/// All trials, folded. A browser with scripts treats the content of `noscript` as text, so that thousands of trials
/// cost nothing until a reader opens the list. A browser without scripts shows them immediately.
pub fn list(trials: &[&TrialRecord], drops_counted: &HashSet<&str>) -> Markup {
    let parts: Vec<_> = trials.chunks(PART).collect();
    let number = |t: Option<&&TrialRecord>| t.map_or(0, |t| t.result.trial);
    html! {
        details.all {
            summary { "All " (group_digits(trials.len() as u64)) " trials of this test" }
            @if let [part] = &parts[..] { noscript { (table(part, drops_counted)) } }
            @else { @for part in parts {
                details {
                    summary { "Trials " (number(part.first())) " to " (number(part.last())) }
                    noscript { (table(part, drops_counted)) }
                }
            } }
        }
    }
}

/// A table with one line per trial and flow group.
fn table(trials: &[&TrialRecord], drops_counted: &HashSet<&str>) -> Markup {
    html! {
        div.scroll { table.trials {
            thead { tr {
                @for (name, help) in HEAD { th scope="col" title=[(!help.is_empty()).then_some(help)] { (name) } }
                th scope="col" { "Validity" }
            } }
            @for t in trials { (trial(t, drops::of_trial(t, drops_counted))) }
        } }
    }
}

/// Links to trials in [`list`].
pub fn links(trials: &[&TrialRecord]) -> Markup {
    html! { @for t in trials { a href={ "#t" (t.result.trial) } { (t.result.trial) } " " } }
}

/// Describes the load in words, for the tooltip.
fn load_text(t: &TrialRecord) -> String {
    let load = match &t.spec.load {
        Load::Constant { .. } => "constant".into(),
        Load::Maximum { .. } => "as much as the port accepts, up to this rate".into(),
        Load::Steps { steps } => {
            let each: Vec<_> =
                steps.iter().map(|s| format!("{} s at {} fps", s.duration_s, number(s.rate_pps, "fps"))).collect();
            format!("mean of: {}", each.join(", "))
        }
        Load::Burst { frames, .. } => format!("burst of {} frames", group_digits(*frames)),
        Load::Flows => "each flow at its own rate".into(),
    };
    match t.result.health.kernel_generators {
        0 => load,
        ports => format!("{load}; made in the kernel at {ports} of {} sending ports", t.result.senders),
    }
}

fn trial(t: &TrialRecord, drops: Option<u64>) -> Markup {
    let r = &t.result;
    let h = &r.health;
    let span = (r.groups.len() > 1).then_some(r.groups.len());
    let intended = intended_load(t).map_or(DASH.to_owned(), |l| number(l, "fps"));
    let offered = if r.sending_s > 0.0 { number(r.offered_load().pps(), "fps") } else { DASH.into() };
    let error = |p: f64| {
        h.departure_error
            .iter()
            .find(|(q, _)| (q - p).abs() < 1e-9)
            .map_or(DASH.to_owned(), |(_, ns)| nanoseconds(*ns as f64))
    };
    let (verdict, class) = match r.validity.is_valid() {
        true => ("valid".to_owned(), None),
        false => (format!("invalid: {}", reasons(t).join("; ")), Some("bad")),
    };
    html! {
        tbody id={ "t" (r.trial) } class=[class] {
            @for (i, g) in r.groups.iter().enumerate() { tr {
                @if i == 0 {
                    th rowspan=[span] { (r.trial) }
                    td rowspan=[span] { (t.dut) }
                    td rowspan=[span] { (t.round) }
                    td rowspan=[span] { (t.attempt) }
                    td.l rowspan=[span] title=(t.time) { (t.spec.purpose) }
                    td rowspan=[span] { (t.spec.size) }
                    td rowspan=[span] { (number(r.sending_s, "s")) " s" }
                    td rowspan=[span] title=(load_text(t)) { (intended) }
                    td rowspan=[span] { (offered) }
                }
                (group(g))
                @if i == 0 {
                    td rowspan=[span] { (group_digits(h.unsent)) }
                    td rowspan=[span] { (group_digits(h.receive_drops)) }
                    td rowspan=[span] { (nanoseconds(h.max_gap_ns as f64)) }
                    td rowspan=[span] { (error(50.0)) " / " (error(99.0)) }
                    td rowspan=[span] { (r.dut_cpu.map_or(DASH.to_owned(), |c| number(c, ""))) (tester_part(r)) }
                    td.l rowspan=[span] { (counters(r, drops)) }
                    td.l rowspan=[span] { (verdict) }
                }
            } }
            @if r.groups.is_empty() { tr { td { (r.trial) } td.l colspan=(HEAD.len()) { (t.spec.purpose) ": no flow was counted; " (verdict) } } }
        }
    }
}

/// The tester's share of the DUT's processor time, such as ` (31 %)`.
fn tester_part(r: &TrialResult) -> String {
    match (r.health.tester_on_dut_ns, r.health.dut_used_ns) {
        (Some(tester), Some(all)) if all > 0 => format!(" ({:.0}\u{a0}%)", tester as f64 / all as f64 * 100.0),
        _ => String::new(),
    }
}

/// The DUT's counters, folded, with the sum of its drops if frames were dropped or lost.
fn counters(r: &TrialResult, drops: Option<u64>) -> Markup {
    let lossy = r.groups.iter().any(|group| group.lost > 0);
    let drops = drops.filter(|frames| lossy || *frames > 0);
    html! {
        @if r.dut_counters.is_empty() { (DASH) } @else {
            details {
                summary {
                    (r.dut_counters.len())
                    @if let Some(frames) = drops { "; drops: " (group_digits(frames)) }
                }
                @for (name, n) in &r.dut_counters { (name) " " (group_digits(*n)) br; }
            }
        }
    }
}

fn group(g: &GroupCounts) -> Markup {
    let loss =
        if g.offered == 0 { DASH.to_owned() } else { number(g.lost as f64 * 100.0 / g.offered as f64, "%") + " %" };
    // The latency of no frames is unknown, not 0.
    let latency = |ns: Option<f64>| ns.filter(|_| g.latency.frames > 0).map_or(DASH.to_owned(), nanoseconds);
    html! {
        td.l { (g.group) }
        @for n in [g.intended, g.offered, g.received, g.lost] { td { (group_digits(n)) } }
        td { (loss) }
        @for n in [g.refused, g.duplicated] { td { (group_digits(n)) } }
        td { (g.known_reordered().map_or("unknown".to_owned(), group_digits)) }
        @for n in [g.corrupted, g.stray, g.late] { td { (group_digits(n)) } }
        td { (latency(Some(g.latency.min_ns as f64))) }
        td { (latency(Some(g.latency.mean_ns))) }
        td { (latency(g.latency.percentile(99.0).map(|p| p as f64))) }
        td { (latency(Some(g.latency.max_ns as f64))) }
    }
}
