//! What tests of capacity share: a table that grows in steps, each of them told by one peer and verified at another.

use crate::report::{SeriesKind, note, plot, point};
use crate::route_tests::{self, memory_mib, patience, routes, thousands};
use crate::routing::{Packing, PeerIndex, RouteAction, Settled, WatchIndex};
use crate::testbed::{TestError, Testbed};
use drophammer_model::outcome::{Outcome, PlotKind, Point};
use drophammer_model::routes::Routes;
use drophammer_model::suite::Params;
use drophammer_model::trial::Family;
use std::ops::Range;
use std::sync::Arc;

/// The table, its steps, and who tells and is told of them.
pub struct Steps {
    /// Of the routes.
    pub family: Family,
    /// Who advertises.
    pub origin: PeerIndex,
    /// The watch of the other peer.
    pub watch: WatchIndex,
    /// All routes.
    pub all: Arc<Routes>,
    /// How they go into UPDATEs.
    pub packing: Packing,
    /// Routes of a step.
    pub step: u32,
    /// Routes at which it ends in any case.
    pub most: u32,
}

impl Steps {
    /// By the parameters `table`, `step`, `max_routes` and `routes_per_update`; the sessions of both come up.
    ///
    /// # Errors
    /// A table that cannot be had, or a session that does not come up.
    pub fn begin(
        bed: &mut dyn Testbed,
        params: &Params,
        family: Family,
        origin: PeerIndex,
        observer: PeerIndex,
    ) -> Result<Steps, TestError> {
        let (step, most) = (routes(params, "step"), routes(params, "max_routes"));
        let packing = route_tests::packing(params)?;
        let all = route_tests::table(bed, params, family, most)?;
        route_tests::establish(bed, &[origin, observer], params)?;
        let watch = bed.routing()?.watch(observer, origin, &all);
        Ok(Steps { family, origin, watch, most: most.min(all.len()), all, packing, step })
    }

    /// The routes of the step that begins behind `capacity` routes; told to the user as `what`.
    pub fn part(&self, bed: &mut dyn Testbed, what: &str, capacity: u32) -> Range<u32> {
        let part = capacity..(capacity + self.step).min(self.most);
        bed.progress(&self.title(what, &part), capacity / self.step, self.most.div_ceil(self.step));
        part
    }

    /// What a step is called.
    pub fn title(&self, what: &str, part: &Range<u32>) -> String {
        format!("{what}, {}: {} routes", self.family, thousands(part.end.into()))
    }

    /// Advertises a step and waits until it is verified or given up.
    ///
    /// # Errors
    /// Those of [`crate::Routing::await_settled`].
    pub fn tell(&self, bed: &mut dyn Testbed, params: &Params, part: &Range<u32>) -> Result<Settled, TestError> {
        let (peer, routes, packing) = (self.origin, self.all.clone(), self.packing);
        let routing = bed.routing()?;
        routing.expect(self.watch, part.clone(), true);
        routing.act(&RouteAction::Announce { peer, routes, part: part.clone(), packing })?;
        routing.await_settled(&[self.watch], patience(params))
    }
}

/// Plots of time and memory over the steps.
#[derive(Clone, Copy)]
pub struct StepPlots {
    /// Key of the plot of times.
    pub times: &'static str,
    /// What its axis says.
    pub time_of: &'static str,
    /// Key of the plot of memory.
    pub memory: &'static str,
}

impl StepPlots {
    /// Adds both.
    pub fn prepare(&self, outcome: &mut Outcome) {
        plot(outcome, self.times, "Time for each step", PlotKind::Steps, "routes", self.time_of, false);
        let axis = "resident memory, MiB";
        plot(outcome, self.memory, "Memory of the control plane", PlotKind::Steps, "routes", axis, false);
    }

    /// Adds a point to each: the time in seconds of a step that was done, and the memory in MiB where it is known.
    pub fn add(&self, outcome: &mut Outcome, family: Family, routes: u32, time_s: Option<f64>, memory: Option<f64>) {
        for (plot, y) in [(self.times, time_s), (self.memory, memory)] {
            if let Some(y) = y {
                let dot = Point { x: f64::from(routes), y, ..Point::default() };
                point(outcome, plot, &family.to_string(), SeriesKind::Curve, dot);
            }
        }
    }
}

/// Memory of the DUT in MiB.
///
/// # Errors
/// A bed without routers.
pub fn memory(bed: &mut dyn Testbed) -> Result<Option<f64>, TestError> {
    Ok(memory_mib(&bed.routing()?.dut_memory()))
}

/// Notes that all steps were done.
pub fn note_all_done(outcome: &mut Outcome, family: Family, most: u32) {
    note(outcome, format!("{family}: at least {} routes; more were not tried", thousands(most.into())));
}
