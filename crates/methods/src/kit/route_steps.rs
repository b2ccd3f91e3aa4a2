//! Common parts of capacity tests: a table that grows in steps. One peer advertises each step, and another one verifies
//! it.

use crate::report::{PlotSpec, note, xy};
use crate::route_tests::{self, Case, follow, memory_mib, thousands};
use crate::routing::{PeerIndex, Settled, WatchIndex};
use crate::testbed::{TestError, Testbed};
use drophammer_model::outcome::{Outcome, PlotKind};
use drophammer_model::suite::Params;
use drophammer_model::trial::Family;
use std::fmt::Display;
use std::ops::Range;

/// The table, its steps, and the peers that advertise and check it.
pub struct Steps {
    /// Peers and routes.
    pub case: Case,
    /// The advertising peer.
    pub origin: PeerIndex,
    /// Watch of the verifying peer.
    pub watch: WatchIndex,
    /// Number of routes per step.
    pub step: u32,
    /// Maximum number of routes.
    pub most: u32,
}

impl Steps {
    /// Prepares the steps of a test with two peers and brings both sessions up.
    ///
    /// # Errors
    /// A session that does not come up.
    pub fn begin(
        bed: &mut dyn Testbed,
        params: &Params,
        case: Case,
        (origin, observer): (PeerIndex, PeerIndex),
        step: u32,
    ) -> Result<Steps, TestError> {
        route_tests::establish(bed, &[origin, observer], params)?;
        let watch = bed.routing()?.watch(observer, origin, &case.all);
        Ok(Steps { origin, watch, most: case.all.len(), step, case })
    }

    /// The routes of the step after the first `capacity` routes. Shows the step to the user as `what`.
    pub fn part(&self, bed: &mut dyn Testbed, what: &str, capacity: u32) -> Range<u32> {
        let part = capacity..(capacity + self.step).min(self.most);
        bed.progress(&self.title(what, &part));
        part
    }

    /// Title of a step.
    pub fn title(&self, what: &str, part: &Range<u32>) -> String {
        format!("{what}, {}: {} routes", self.case.family, thousands(part.end.into()))
    }

    /// Advertises a step and waits until it is verified or the patience of the test ends.
    ///
    /// # Errors
    /// Errors of [`crate::Routing::await_settled`].
    pub fn advertise(&self, bed: &mut dyn Testbed, params: &Params, part: &Range<u32>) -> Result<Settled, TestError> {
        follow(bed, params, &self.case.advertise(self.origin, part.clone()), self.watch)
    }
}

/// Plots of time and memory over the steps.
#[derive(Clone, Copy)]
pub struct StepPlots {
    /// Key of the plot of times.
    pub times: &'static str,
    /// Label of its y axis.
    pub time_of: &'static str,
    /// Key of the plot of memory.
    pub memory: &'static str,
}

impl StepPlots {
    fn plots(&self) -> [PlotSpec<'static>; 2] {
        let plot = |key, title, y| PlotSpec::new(key, title, PlotKind::Steps, "routes", y);
        [
            plot(self.times, "Time for each step", self.time_of),
            plot(self.memory, "Memory of the control plane", "resident memory, MiB"),
        ]
    }

    /// Adds both plots.
    pub fn begin(&self, outcome: &mut Outcome) {
        self.plots().iter().for_each(|plot| plot.begin(outcome));
    }

    /// Adds a point to each plot, in the series `of`: the time of a completed step in seconds, and the memory in MiB if known.
    pub fn add(
        &self,
        outcome: &mut Outcome,
        of: impl Display,
        routes: impl Into<f64>,
        time_s: Option<f64>,
        memory: Option<f64>,
    ) {
        let (series, routes): (String, f64) = (of.to_string(), routes.into());
        for (plot, y) in self.plots().iter().zip([time_s, memory]) {
            if let Some(y) = y {
                plot.curve(outcome, &series, xy(routes, y));
            }
        }
    }
}

/// Memory of the DUT in MiB.
///
/// # Errors
/// Errors of a bed without emulated routers.
pub fn memory(bed: &mut dyn Testbed) -> Result<Option<f64>, TestError> {
    Ok(memory_mib(&bed.routing()?.dut().memory()))
}

/// Notes that the router completed all steps.
pub fn note_all_done(outcome: &mut Outcome, family: Family, most: u32) {
    note(outcome, format!("{family}: at least {} routes; higher numbers were not tried", thousands(most.into())));
}
