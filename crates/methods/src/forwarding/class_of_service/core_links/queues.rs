//! Counters of the queues at the links between routers, by link and class, compared with the weights.

use super::{Case, Trial, beside, starved};
use crate::class_of_service::rows::{AS_WANTED, EXCESS, FULL, group, off, verdict};
use crate::kit::prelude::*;
use drophammer_model::registry::TableShape;
use drophammer_model::topology::CoreWay;

columns! {
    /// One class on the path from one router to another.
    struct LinkRow {
        frame_size: PacketSize,
        load_percent: f64 = "Load of the most loaded path" ["%"],
        way: String = "From router to router",
        way_percent: f64 = "Load of this path, by the routes" ["%"],
        class: String,
        came: u64 = "Arrived at the queue" ["frames"],
        left: u64 = "Left the queue" ["frames"],
        dropped: u64 ["frames"],
        share_percent: Option<f64> = "Share of frames that left" ["%"],
        expected_percent: Option<f64> = "Expected share" ["%"],
        error_points: Option<f64> = "Difference" ["points"],
        verdict: String,
    }
}

columns! {
    /// Loss of one class, and where it occurred.
    struct LossRow {
        frame_size: PacketSize,
        load_percent: f64 = "Load of the most loaded path" ["%"],
        class: String,
        lost: u64 ["frames"],
        dropped: u64 = "Dropped by queues between routers" ["frames"],
        difference: f64 ["frames"],
        verdict: String,
    }
}

const LINKS: TableSpec<LinkRow> = TableSpec::new("class_of_service_links", "Classes on each path between routers");
const LOSSES: TableSpec<LossRow> =
    TableSpec::new("class_of_service_losses", "Lost frames, and drops of all queues between routers");
/// Both tables.
pub(in crate::forwarding::class_of_service) const SHAPES: [TableShape; 2] = [LINKS.shape(), LOSSES.shape()];

/// Allowed deviation of the frames that arrive at a queue: a share of the expected frames, plus a number of frames (at
/// least one per flow), because flows begin and end within a trial.
const STRAYING: f64 = 0.01;
const FEW: f64 = 20.0;

/// Begins the tables.
pub(in crate::forwarding::class_of_service) fn begin(outcome: &mut Outcome) {
    LINKS.begin(outcome);
    LOSSES.begin(outcome);
}

/// Frames of one class at one queue.
#[derive(Clone, Copy, Default)]
struct Count {
    left: u64,
    dropped: u64,
}

/// The counters of all queues.
pub(super) struct Queues(Vec<(CoreWay, Vec<Count>)>);

/// Summary over all links.
pub(super) struct Found {
    /// Number of paths that are up.
    pub ways: usize,
    /// For each class, the number of paths on which the router treated it wrongly.
    pub wrong: Vec<usize>,
    /// Largest difference between a share and the expected one on an overloaded path, in percentage points.
    pub error: Option<f64>,
    /// True if any queue dropped a frame.
    pub overloaded: bool,
}

/// Result of the classes on one path.
struct Judged {
    /// `(share, expected share)` in %; none if nothing left the queue, or if nothing was dropped and so nothing had to
    /// be shared.
    shares: Option<Vec<(f64, f64)>>,
    faults: Vec<Vec<String>>,
    marks: Vec<String>,
}

impl Queues {
    /// The counters of a trial; `None` if the routers report none.
    pub fn read(case: &Case<'_>, trial: &Trial) -> Option<Queues> {
        let counters = &trial.result.dut_counters;
        let count = |way: CoreWay, class: &str, what: &str| {
            let name = case.plan.system.class_counter(way, class)?;
            counters.get(&format!("{name}.{what}")).copied()
        };
        let of = |way: &CoreWay| {
            let each = case.classes.iter().map(|class| {
                let found = |what| count(*way, &class.name, what).unwrap_or(0);
                Count { left: found("served"), dropped: found("dropped") }
            });
            (*way, each.collect())
        };
        let all: Vec<(CoreWay, Vec<Count>)> = case.plan.loads.0.keys().map(of).collect();
        all.iter().flat_map(|(_, counts)| counts).any(|count| count.left > 0).then_some(Queues(all))
    }

    /// Writes both tables.
    pub fn write(&self, outcome: &mut Outcome, case: &Case<'_>, trial: &Trial) -> Found {
        let mut found =
            Found { ways: self.0.len(), wrong: vec![0; case.classes.len()], error: None, overloaded: false };
        for (way, counts) in &self.0 {
            let judged = judge(case, trial, *way, counts);
            for (i, class) in case.classes.iter().enumerate() {
                let share = judged.shares.as_ref().map(|shares| shares[i]);
                let error = share.map(|(share, expected)| share - expected);
                found.error = found.error.into_iter().chain(error.map(f64::abs)).max_by(f64::total_cmp);
                found.overloaded |= counts[i].dropped > 0;
                found.wrong[i] += usize::from(!judged.faults[i].is_empty());
                let row = LinkRow {
                    frame_size: case.pattern.size.clone(),
                    load_percent: trial.percent,
                    way: way.to_string(),
                    way_percent: way_percent(case, trial, *way),
                    class: class.name.clone(),
                    came: counts[i].left + counts[i].dropped,
                    left: counts[i].left,
                    dropped: counts[i].dropped,
                    share_percent: share.map(|(share, _)| share),
                    expected_percent: share.map(|(_, expected)| expected),
                    error_points: error,
                    verdict: verdict(&judged.faults[i]),
                };
                let marks = if i == 0 { judged.marks.as_slice() } else { &[] };
                LINKS.add(outcome, row, [trial.result.trial], judged.faults[i].iter().chain(marks).cloned());
            }
        }
        self.write_losses(outcome, case, trial);
        found
    }

    /// Writes the drops of all queues next to the lost frames, class by class.
    fn write_losses(&self, outcome: &mut Outcome, case: &Case<'_>, trial: &Trial) {
        for (i, class) in case.classes.iter().enumerate() {
            let of_group = |name: &str| group(&trial.result, name).map_or(0, |counts| counts.lost);
            let lost = of_group(&class.name) + of_group(&beside(class));
            let dropped: u64 = self.0.iter().map(|(_, counts)| counts[i].dropped).sum();
            let fault = match (lost.checked_sub(dropped), dropped.checked_sub(lost)) {
                (Some(0), _) => None,
                (Some(more), _) => Some(format!("no queue counts {more} of the lost frames as dropped")),
                (None, more) => Some(format!("{} more frames dropped than lost", more.unwrap_or(0))),
            };
            let row = LossRow {
                frame_size: case.pattern.size.clone(),
                load_percent: trial.percent,
                class: class.name.clone(),
                lost,
                dropped,
                difference: lost as f64 - dropped as f64,
                verdict: fault.clone().unwrap_or_else(|| AS_WANTED.into()),
            };
            LOSSES.add(outcome, row, [trial.result.trial], fault);
        }
    }
}

/// Load of a path according to the routes, in % of what a link carries.
fn way_percent(case: &Case<'_>, trial: &Trial, way: CoreWay) -> f64 {
    trial.percent * case.plan.loads.0.get(&way).copied().unwrap_or(0.0) / case.plan.loads.most()
}

/// Number of flows of a class that take this path.
fn flows_of_class(case: &Case<'_>, way: CoreWay) -> f64 {
    let ports: usize = case.plan.system.routers.iter().map(|router| router.ports.len()).sum();
    // The load is in units of the load that one port sends, which its flows to all other ports share.
    let load = case.plan.loads.0.get(&way).copied().unwrap_or(0.0);
    load * ports.saturating_sub(1) as f64 * case.pattern.families.len() as f64
}

/// Compares what left one queue with the weights. If frames of a class were dropped, its queue was full at the end. The
/// frames in it left after the last departure, so they took no part in the sharing.
fn judge(case: &Case<'_>, trial: &Trial, way: CoreWay, counts: &[Count]) -> Judged {
    let seconds = trial.result.sending_s.max(f64::MIN_POSITIVE);
    let percent = way_percent(case, trial, way);
    let late = |count: &Count| if count.dropped > 0 { f64::from(case.queue).min(count.left as f64) } else { 0.0 };
    let left: Vec<f64> = counts.iter().map(|count| count.left as f64 - late(count)).collect();
    let wanted: Vec<f64> = counts.iter().map(|count| (count.left + count.dropped) as f64 - late(count)).collect();
    let sum: f64 = left.iter().sum();
    let expected = case.sharing.shares(sum, &wanted);
    let whole: f64 = expected.iter().sum();
    let full = counts.iter().any(|count| count.dropped > 0);
    let shares: Option<Vec<(f64, f64)>> = (full && sum > 0.0 && whole > 0.0).then(|| {
        left.iter().zip(&expected).map(|(left, expected)| (left / sum * 100.0, expected / whole * 100.0)).collect()
    });
    let few = FEW.max(flows_of_class(case, way));
    let by_routes = case.pps * percent / 100.0 * seconds / counts.len() as f64;
    let came_pps: Vec<f64> = counts.iter().map(|count| (count.left + count.dropped) as f64 / seconds).collect();
    let mut faults = Vec::new();
    for (i, count) in counts.iter().enumerate() {
        let came = (count.left + count.dropped) as f64;
        let mut own = Vec::new();
        if count.dropped > 0 && percent <= 100.0 * FULL {
            own.push(format!("dropped {} frames without overload", count.dropped));
        } else if count.dropped > 0 && came_pps[i] < case.sharing.guaranteed(i, case.pps, &came_pps) {
            own.push(format!("dropped {} frames, although fewer than its share arrived", count.dropped));
        }
        own.extend(off(shares.as_ref().map(|shares| shares[i].0 - shares[i].1), case.tolerance));
        // If a class loses nothing on its path, all frames predicted by the routes arrive.
        let all_come = case.content(i, trial.percent) || trial.percent <= 100.0 * FULL;
        if all_come && (came - by_routes).abs() > by_routes * STRAYING + few {
            own.push(format!("{came} frames arrived at its queue, but {by_routes:.0} follow from the routes"));
        } else if came == 0.0 && by_routes > few {
            own.push("no frame arrived at its queue".into());
        }
        faults.push(own);
    }
    let mut marks = Vec::new();
    if full && starved(sum / seconds, case.pps) {
        marks.push(format!("the link carried only {:.1} % of its rate", sum / seconds / case.pps * 100.0));
    }
    if sum / seconds > case.pps * (1.0 + EXCESS) {
        marks.push("more frames left than the link carries".into());
    }
    Judged { shares, faults, marks }
}
