//! Destinations in BGP routes, for tests by frame size: the routers behind all ports advertise a table together, and the frames of a test go
//! to nearly every route of it (core router test of 2001: more than 200,000).
//!
//! Every port advertises as many routes as the others. What the DUT advertises of them to every other port is verified before the first
//! trial and after the last one: a rate over a table that is not whole would be of another table.

use crate::columns;
use crate::parameters::FAMILIES;
use crate::report::{note, percent_of};
use crate::route_spread::{Changed, PROBE, Spread};
use crate::route_tests::{Case, losses, one_per_port, patience, thousands};
use crate::routing::{Change, Packing, TableChoice, WatchIndex};
use crate::table::TableSpec;
use crate::testbed::{TestError, Testbed};
use drophammer_model::outcome::Outcome;
use drophammer_model::param::Param;
use drophammer_model::routes::Routes;
use drophammer_model::suite::Params;
use drophammer_model::trial::Family;
use std::sync::Arc;
use std::time::Duration;

/// `routes`
pub const ROUTES: Param<Option<u32>> = Param::optional(
    "routes",
    "BGP routes that the destinations of a family are in, as many behind each port, in place of hosts of the networks behind the ports",
);

/// Number of these routes; 0 for hosts.
pub fn routes(params: &Params) -> u32 {
    ROUTES.find(params).flatten().unwrap_or(0)
}

/// Time for the sessions to come up.
const ESTABLISH: Duration = Duration::from_secs(60);
/// Routes per second that a DUT takes, for estimates.
const TAKES_PER_S: f64 = 15_000.0;

columns! {
    /// The table of one family.
    struct RoutedRow {
        family: Family = "Family",
        routes: u64 = "Routes",
        ports: u64 = "Ports",
        load_s: f64 = "Time to load" ["s"],
        verified: u64 = "To verify, over all ports" ["routes"],
        before_percent: Option<f64> = "Right before the test" ["%"],
        after_percent: Option<f64> = "Right after it" ["%"],
        sessions_lost: u64 = "Sessions lost",
    }
}

const TABLE: TableSpec<RoutedRow> = TableSpec::new("routed", "Routes behind the ports");

/// A table that is advertised.
struct Advertised {
    spread: Spread,
    watches: Vec<WatchIndex>,
    load_s: f64,
    before: (u64, u64),
}

/// Routes that are right, and routes that should be, over all watches.
fn right(bed: &mut dyn Testbed, watches: &[WatchIndex]) -> Result<(u64, u64), TestError> {
    let routing = bed.routing()?;
    let all = watches.iter().map(|watch| routing.verified(*watch));
    Ok(all.fold((0, 0), |(right, expected), v| (right + v.present, expected + v.expected)))
}

/// Seconds that this takes beside the trials of a test.
pub fn estimate_s(params: &Params) -> f64 {
    let count = routes(params);
    if count == 0 {
        return 0.0;
    }
    let families = FAMILIES.find(params).map_or(1, |families| families.len());
    families as f64 * (f64::from(count) / TAKES_PER_S + 5.0)
}

/// Runs `each` while the routes of the parameter `routes` are behind the ports, or at once where there are none.
///
/// # Errors
/// Those of `each`. [`TestError::Failed`] where the DUT does not pass the whole table on, [`TestError::NotApplicable`] for ports without
/// sessions.
pub fn with_routes(
    bed: &mut dyn Testbed,
    params: &Params,
    outcome: &mut Outcome,
    each: impl FnOnce(&mut dyn Testbed, &mut Outcome) -> Result<(), TestError>,
) -> Result<(), TestError> {
    let count = routes(params);
    if count == 0 {
        return each(bed, outcome);
    }
    TABLE.begin(outcome);
    let mut advertised = Vec::new();
    let mut ended = Ok(());
    for family in FAMILIES.get(params) {
        match advertise(bed, family, params, count, outcome) {
            Ok(one) => advertised.push(one),
            Err(error) => {
                ended = Err(error);
                break;
            }
        }
    }
    if ended.is_ok() {
        ended = each(bed, outcome);
    }
    for one in &advertised {
        finish(bed, one, outcome)?;
    }
    match ended {
        Err(TestError::DutDied(_) | TestError::Interrupted | TestError::Store(_)) => ended,
        _ => {
            advertised.iter().try_for_each(|one| one.spread.aim(bed, false))?;
            bed.routing()?.reset(patience(params))?;
            ended
        }
    }
}

/// Lets every port advertise its routes, waits until the others have them and the DUT forwards to them, and aims frames there.
fn advertise(
    bed: &mut dyn Testbed,
    family: Family,
    params: &Params,
    count: u32,
    outcome: &mut Outcome,
) -> Result<Advertised, TestError> {
    let ports = bed.ports().len();
    let peers = one_per_port(bed, family, ports)?;
    let routing = bed.routing()?;
    let all: Arc<Routes> = routing.table(&TableChoice::named("internet"), family, count)?;
    let ports = routing.peers().iter().map(|peer| peer.port).collect();
    let spread = Spread::meshed(Case { family, peers, ports, packing: Packing::default(), all })?;
    routing.establish(&spread.peers(), ESTABLISH)?;
    let failure = "the router did not pass the table on to every port";
    let Changed { watches, took_s: load_s } = spread.change(bed, params, Change::Advertise, failure)?;
    let before = right(bed, &watches)?;
    spread.await_installed(bed, params, outcome, PROBE, count.into())?;
    spread.aim(bed, true)?;
    Ok(Advertised { spread, watches, load_s, before })
}

/// Verifies the table once more and writes its row.
fn finish(bed: &mut dyn Testbed, one: &Advertised, outcome: &mut Outcome) -> Result<(), TestError> {
    let family = one.spread.case.family;
    let after = right(bed, &one.watches)?;
    let lost = losses(bed.routing()?, &one.spread.peers());
    let mut marks = Vec::new();
    if after.0 < after.1 {
        marks.push("the table was not whole after the test".to_owned());
        let (wrong, of) = (thousands(after.1 - after.0), thousands(after.1));
        note(outcome, format!("{}: {wrong} of {of} routes were missing or wrong after the test.", family));
    }
    for session in &lost {
        note(outcome, format!("{}: {session}", family));
    }
    let row = RoutedRow {
        family,
        routes: one.spread.case.all.len().into(),
        ports: one.spread.behind.len() as u64,
        load_s: one.load_s,
        verified: one.before.1,
        before_percent: percent_of(one.before.0, one.before.1),
        after_percent: percent_of(after.0, after.1),
        sessions_lost: lost.len() as u64,
    };
    TABLE.add(outcome, row, [], marks);
    Ok(())
}
