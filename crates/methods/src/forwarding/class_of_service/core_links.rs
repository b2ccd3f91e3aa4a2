//! The test at the links between the routers of a system (core router test of 2001): some links are down, so the
//! traffic from every port to every other port overloads the remaining ones.

mod fluid;
mod plan;
mod queues;

pub(super) use plan::CorePlan;
pub(super) use queues::{SHAPES, begin};

use super::rows::{FULL, Fare, Steady, Trial, figures, group, off};
use super::{CLASSES, FAMILIES, PAUSE, QUEUE, SCHEDULING, Series, Sharing, TOLERANCE, headers, loads};
use crate::kit::prelude::*;
use drophammer_model::classes::{EgressClasses, ServiceClass, WayOut};
use drophammer_model::trial::FlowSpec;
use queues::Queues;

/// What is overloaded, as named in the figures.
pub(super) const OF: &str = "overloaded links between routers";
/// Verdict on a class if no link was overloaded.
const NOT_OVERLOADED: &str = "not known: no link between routers dropped a frame, so none was overloaded";

/// Group of the frames of this class between ports of one router, which cross no link.
fn beside(class: &ServiceClass) -> String {
    format!("{} at one router", class.name)
}

/// Settings that are the same for all trials of one frame size.
struct Case<'a> {
    pattern: &'a Pattern,
    plan: &'a CorePlan,
    classes: &'a [ServiceClass],
    sharing: Sharing,
    /// Frames per second that each link carries.
    pps: f64,
    /// Queue size of each class, in frames.
    queue: u32,
    /// In percentage points.
    tolerance: f64,
}

impl Case<'_> {
    /// Frames per second of each port at this load.
    fn port_pps(&self, percent: f64) -> f64 {
        self.pps * percent / 100.0 / self.plan.loads.most()
    }

    /// Returns true if the class wants less than its guaranteed share of every link.
    fn content(&self, class: usize, percent: f64) -> bool {
        let wanted = self.pps * percent / 100.0 / self.classes.len() as f64;
        wanted < self.sharing.guaranteed(class, self.pps, &vec![wanted; self.classes.len()])
    }
}

/// One frame size: a trial without overload, then one at each overload.
pub(super) fn measure(
    bed: &mut dyn Testbed,
    pattern: &Pattern,
    plan: &CorePlan,
    params: &Params,
    outcome: &mut Outcome,
) -> Result<(), TestError> {
    let (classes, queue, scheduling) = (CLASSES.get(params), QUEUE.get(params), SCHEDULING.get(params));
    let case = Case {
        pattern,
        plan,
        classes: &classes,
        sharing: Sharing::of(&classes, scheduling),
        pps: plan.link_pps(pattern),
        queue,
        tolerance: TOLERANCE.get(params).0,
    };
    let most = loads(params).into_iter().fold(0.0, f64::max);
    fits_into_ports(bed.ports(), &case, most)?;
    let flows = flows(bed.ports(), &case)?;
    bed.set(Setting::CoreLinks { down: &plan.down, families: &FAMILIES.get(params) })?;
    let list = |at| {
        let (at, classes) = (WayOut::Core(at), classes.clone());
        EgressClasses { at, rate: plan.rate, queue, scheduling, classes }
    };
    let lists: Vec<EgressClasses> = plan.loads.0.keys().map(|way| list(*way)).collect();
    bed.set(Setting::Classes(&lists))?;
    bed.settle(PAUSE.get(params))?;
    note(outcome, plan.text());
    note_of(
        outcome,
        pattern,
        format!("each link carries {} in each direction: {:.0} frames per second", plan.rate, case.pps),
    );
    let series = Series {
        pattern,
        params,
        flows,
        full: (case.pps, plan.loads.most()),
        // Full queues at the end drain at the rate of their link, one after the other if a path has several links.
        emptied_s: f64::from(queue) * classes.len() as f64 / case.pps * plan.longest() as f64,
    };
    series.run(bed, outcome, |outcome, trial| write(outcome, &case, trial))?;
    bed.set(Setting::Classes(&[]))
}

/// Returns flows from every port to every other port, with the same load in each class.
fn flows(ports: &[PortView], case: &Case<'_>) -> Result<Vec<FlowSpec>, TestError> {
    let mut flows = Vec::new();
    for flow in case.pattern.flows(ports)? {
        for class in case.classes {
            let crosses = case.plan.crosses(flow.from, flow.to);
            let group = if crosses { class.name.clone() } else { beside(class) };
            flows.push(FlowSpec { group, headers: headers(flow.family, class), ..flow.clone() });
        }
    }
    Ok(flows)
}

/// Rejects a load that exceeds a port's line rate.
fn fits_into_ports(ports: &[PortView], case: &Case<'_>, percent: f64) -> Result<(), TestError> {
    let needed = case.port_pps(percent);
    for port in ports {
        let line = port.medium.payload_rate(port.speed)
            / case.pattern.l1_bps(drophammer_model::quantity::FrameRate(1.0), port.medium);
        if needed > line * (1.0 + 1e-9) {
            return Err(TestError::NotApplicable(format!(
                "for {percent} % of {} on the most loaded link, each port has to send {:.1} % of its line, which port \
                 {} cannot; give a lower `bottleneck`, or more links in `core_links_down`",
                case.plan.rate,
                needed / line * 100.0,
                port.name
            )));
        }
    }
    Ok(())
}

fn write(outcome: &mut Outcome, case: &Case<'_>, trial: &Trial) {
    let (classes, result) = (case.classes, &trial.result);
    let steady = Steady::of(trial, classes);
    let queues = Queues::read(case, trial);
    let of_links = queues.as_ref().map(|queues| queues.write(outcome, case, trial));
    let each = case.port_pps(trial.percent) / classes.len() as f64;
    let expected = fluid::delivered(&case.plan.demands(each), case.pps, &case.sharing);
    let shares = steady.shares(&expected);
    let overloaded = trial.percent > 100.0;
    let free = overloaded && of_links.as_ref().is_some_and(|found| !found.overloaded);
    let mut ends = Vec::new();
    for (i, class) in classes.iter().enumerate() {
        let Some(counts) = group(result, &class.name) else { continue };
        let share = shares.as_ref().map(|shares| shares[i]);
        let mut fare =
            Fare::new(class, counts, (steady.offered[i], steady.arrived[i]), share, free.then_some(NOT_OVERLOADED));
        if counts.lost > 0 && !overloaded {
            fare.faults.push(format!("lost {} frames without overload", counts.lost));
        } else if counts.lost > 0 && case.content(i, trial.percent) {
            fare.faults
                .push(format!("lost {} frames, although it offers less than its share of every link", counts.lost));
        }
        match &of_links {
            // Within a class a router may prefer some flows, which shifts the end-to-end shares. So this judges each
            // link, not the sum.
            Some(found) if found.wrong[i] > 0 => {
                fare.faults.push(format!("wrong on {} of {} paths between routers", found.wrong[i], found.ways));
            }
            Some(_) => {}
            None => fare.faults.extend(off(fare.error(), case.tolerance)),
        }
        if shares.is_none() {
            fare.faults.push("nothing arrived".into());
        }
        if let Some(lost) = group(result, &beside(class)).map(|counts| counts.lost).filter(|lost| *lost > 0) {
            fare.marks.push(format!("{lost} frames between ports of one router were lost too"));
        }
        ends.extend(fare.error().map(f64::abs));
        fare.write(outcome, case.pattern, trial, (i, classes.len()));
    }
    if overloaded {
        note_of(outcome, case.pattern, ratio(classes, &steady, trial.percent));
    }
    if !trial.first {
        return;
    }
    match of_links {
        // A link that was not overloaded shows nothing about classes: a loss of 0 would prove nothing.
        Some(found) if !found.overloaded => {
            let why = "no link between routers dropped a frame, so none was overloaded";
            note_of(outcome, case.pattern, format!("no figures: {why}"));
            let missing = figures(case.pattern, classes, None, (None, None), OF);
            outcome.ranks.extend(missing.into_iter().map(|figure| figure.beyond(why)));
        }
        Some(found) => {
            let measured = (Some(steady.rate()), found.error);
            outcome.ranks.extend(figures(case.pattern, classes, Some(result), measured, OF));
        }
        None => {
            note_of(
                outcome,
                case.pattern,
                "the routers do not count drops of the queues between them: shares refer to all frames that arrived",
            );
            let measured = (Some(steady.rate()), ends.into_iter().max_by(f64::total_cmp));
            outcome.ranks.extend(figures(case.pattern, classes, Some(result), measured, OF));
        }
    }
}

/// Received rates of the classes relative to each other, scaled so that the heaviest class equals its weight: `gold :
/// silver : bronze as 70 : 20.1 : 5.0`.
fn ratio(classes: &[ServiceClass], steady: &Steady, percent: f64) -> String {
    let heaviest = (0..classes.len()).rev().max_by_key(|i| classes[*i].weight).unwrap_or(0);
    let unit = steady.arrived[heaviest] / f64::from(classes[heaviest].weight);
    let names: Vec<&str> = classes.iter().map(|class| class.name.as_str()).collect();
    let parts: Vec<String> = steady.arrived.iter().map(|arrived| format!("{:.1}", arrived / unit)).collect();
    if unit > 0.0 {
        format!("at {percent} % {} arrived as {}", names.join(" : "), parts.join(" : "))
    } else {
        format!("at {percent} % no frame of {} arrived", classes[heaviest].name)
    }
}

/// Returns true if a link carried less than it could although more frames arrived.
fn starved(carried_pps: f64, pps: f64) -> bool {
    carried_pps < pps * FULL
}
