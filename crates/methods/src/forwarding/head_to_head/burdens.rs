//! What all routers carry in addition to the flood: filters, and tables that they learn first.

use super::turns::by_turns;
use super::{FILTER_CONDITIONS, Size, TABLE_CPU};
use crate::filter_lists::{Case, Position};
use crate::kit::prelude::*;
use crate::route_spread::PROBE;
use crate::route_tests::patience;
use crate::routed::{self, Advertised, finish};
use crate::testbed::Contestant;
use drophammer_model::filter::{FilterDirection, FilterList};

columns! {
    /// A table that one router has learned.
    pub(super) struct LearnedRow {
        family: Family,
        routes: u64,
        load_s: Option<f64> = "Time to learn and re-advertise" ["s"],
        cpu_s: Option<f64> = "Processor time" ["s"],
    }
}

pub(super) const LEARNED: TableSpec<LearnedRow> =
    TableSpec::new("head_to_head_table", "Time to learn and re-advertise the table");

/// A router has learned a table when it uses less than this share of its processor for [`STILL`].
const IDLE: f64 = 0.02;
const STILL: Duration = Duration::from_millis(500);

/// The filter of `conditions` conditions on each router, which permits the frames of `size`.
pub(super) fn set_filters(bed: &mut dyn Testbed, size: &Size<'_>) -> Result<(), TestError> {
    let Some(conditions) = FILTER_CONDITIONS.get(size.params) else { return Ok(()) };
    if size.pattern.routes > 0 {
        let why =
            "its filters match only packets to the networks behind the ports; remove `routes` or `filter_conditions`";
        return Err(TestError::NotApplicable(why.into()));
    }
    let case =
        Case { conditions, permit: (conditions > 1).then_some(Position::Last), direction: FilterDirection::Ingress };
    let mut lists: Vec<FilterList> = Vec::new();
    for Contestant { ports, .. } in bed.facts().contestants.clone() {
        let own = &bed.ports()[ports.clone()];
        lists.extend(case.lists(&size.pattern.flows(own)?, own).into_iter().map(|list| FilterList {
            interfaces: list.interfaces.iter().map(|port| port + ports.start).collect(),
            ..list
        }));
    }
    bed.set(Setting::Filters(&lists))
}

/// Runs `each` while every router has the table of the parameter `routes`, or immediately if there is none.
pub(super) fn with_tables(
    bed: &mut dyn Testbed,
    params: &Params,
    outcomes: &mut [Outcome],
    each: impl FnOnce(&mut dyn Testbed, &mut [Outcome]) -> Result<(), TestError>,
) -> Result<(), TestError> {
    let count = routed::routes(params);
    if count == 0 {
        return each(bed, outcomes);
    }
    outcomes.iter_mut().for_each(|outcome| {
        routed::TABLE.begin(outcome);
        LEARNED.begin(outcome);
    });
    let mut tables = Vec::new();
    let mut ended = learn_all(bed, params, count, outcomes, &mut tables);
    if ended.is_ok() {
        ended = each(bed, outcomes);
    }
    for (dut, table) in &tables {
        finish(bed, table, &mut outcomes[*dut])?;
    }
    if let Err(TestError::DutDied(_) | TestError::Interrupted | TestError::Store(_)) = ended {
        return ended;
    }
    tables.iter().try_for_each(|(_, table)| table.spread.aim(bed, false))?;
    bed.routing()?.reset(patience(params))?;
    // A router that is still removing routes would be slower in the next duet.
    for (dut, outcome) in outcomes.iter_mut().enumerate() {
        if !await_idle(bed, dut, patience(params))? {
            note(outcome, "The router was still removing the table when the next test began.");
        }
    }
    ended
}

/// Lets one router after the other learn the table, and directs frames to its routes.
fn learn_all(
    bed: &mut dyn Testbed,
    params: &Params,
    count: u32,
    outcomes: &mut [Outcome],
    tables: &mut Vec<(usize, Advertised)>,
) -> Result<(), TestError> {
    for family in FAMILIES.get(params) {
        for (dut, Contestant { name, ports }) in bed.facts().contestants.clone().into_iter().enumerate() {
            let before = cpu(bed, dut);
            let table = routed::load(bed, family, params, count, ports).map_err(|e| match e {
                TestError::Failed(why) => TestError::Failed(format!("{name}: {why}")),
                e => e,
            })?;
            let rested = await_idle(bed, dut, patience(params))?;
            let cpu_s = before.zip(cpu(bed, dut)).map(|(then, now)| now.saturating_sub(then).as_secs_f64());
            let routes = u64::from(table.spread.case.all.len());
            let outcome = &mut outcomes[dut];
            let busy = (!rested).then(|| "still busy when the flood began".to_owned());
            LEARNED.add(outcome, LearnedRow { family, routes, load_s: table.load_s, cpu_s }, [], busy);
            match cpu_s {
                Some(_) if !rested => {}
                Some(_) => {
                    let title = format!("Processor time to learn and re-advertise the table, {family}");
                    outcome.ranks.push(TABLE_CPU.of(&[("family", &family)], title, cpu_s));
                }
                None => note(outcome, "The processor time for the table is not known."),
            }
            table.spread.aim(bed, true)?;
            tables.push((dut, table));
        }
    }
    Ok(())
}

fn cpu(bed: &mut dyn Testbed, dut: usize) -> Option<Duration> {
    bed.router_cpu()?.get(dut).copied()
}

/// Waits until a router rests: it may install or remove routes long after its peers are done. Returns false if it does not rest within
/// `limit`. Does not wait for a router whose processor time is unknown.
fn await_idle(bed: &mut dyn Testbed, dut: usize, limit: Duration) -> Result<bool, TestError> {
    let mut waited = Duration::ZERO;
    let mut last = cpu(bed, dut);
    while let (Some(then), true) = (last, waited < limit) {
        bed.settle(STILL)?;
        waited += STILL;
        last = cpu(bed, dut);
        if last.is_some_and(|now| now.saturating_sub(then) < STILL.mul_f64(IDLE)) {
            return Ok(true);
        }
    }
    Ok(last.is_none())
}

/// Waits until every router forwards to every route.
pub(super) fn await_installed(bed: &mut dyn Testbed, size: &Size<'_>) -> Result<(), TestError> {
    if size.pattern.routes == 0 {
        return Ok(());
    }
    let mut waited = Duration::ZERO;
    loop {
        let mut spec: TrialSpec = size.trial(bed, format!("head to head {}: every route", size.pattern.size))?;
        by_turns(&mut spec.flows, PROBE);
        // Each port sends to all routes behind the other one.
        spec.duration_s = spec.duration_s.max(f64::from(size.pattern.routes) / PROBE.pps());
        let results = bed.run(&Trial { joint: true, ..Trial::new(spec.clone()) })?.each;
        let Some(lossy) = results.iter().position(|result| result.lost() > 0) else { return Ok(()) };
        waited += Duration::from_secs_f64(spec.duration_s);
        if waited > patience(size.params) {
            let (name, lost) = (&bed.facts().contestants[lossy].name, results[lossy].lost());
            let why = format!("{name} loses {lost} frames to the routes that it has learned, at {PROBE} per port");
            return Err(TestError::Failed(why));
        }
    }
}
