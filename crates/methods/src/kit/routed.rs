//! Destinations in BGP routes, for tests by frame size: the emulated routers behind all ports advertise a table
//! together, and the frames of a test go to nearly every route of it (core router test of 2001: more than 200,000).
//!
//! Every port advertises the same number of routes. Before the first trial and after the last one, every other port
//! verifies what the DUT re-advertises: if the table is incomplete, the rate is not a rate over this table.
//!
//! The table stays after a test ([`Kept`]), because the next test often needs the same table, and a router takes
//! minutes to load and to withdraw a full table. [`release`] withdraws it before a test that needs a different table or
//! none.

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
use drophammer_model::registry::{TableShape, TestSpec};
use drophammer_model::routes::{AfiSafi, Routes};
use drophammer_model::suite::Params;
use drophammer_model::trial::{Family, PortIndex};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// `routes`
pub const ROUTES: Param<Option<u32>> = Param::optional(
    "routes",
    "number of BGP routes that contain the destinations of a family, spread evenly over the ports; replaces the hosts behind the ports",
);

/// Number of these routes; 0 if frames go to hosts.
pub fn routes(params: &Params) -> u32 {
    ROUTES.find(params).flatten().unwrap_or(0)
}

/// Maximum time for the sessions to come up.
const ESTABLISH: Duration = Duration::from_secs(60);
/// Rate at which a DUT loads routes, in routes per second, for estimates.
const TAKES_PER_S: f64 = 15_000.0;

columns! {
    /// The table of one family.
    pub(crate) struct RoutedRow {
        family: Family,
        routes: u64,
        ports: u64,
        load_s: Option<f64> = "Time to load" ["s"],
        verified: u64 = "To verify, over all ports" ["routes"],
        before_percent: Option<f64> = "Right before the test" ["%"],
        after_percent: Option<f64> = "Right after it" ["%"],
        sessions_lost: u64,
    }
}

pub(crate) const TABLE: TableSpec<RoutedRow> = TableSpec::new("routed", "Routes behind the ports");
/// The table of tests that have the parameter [`ROUTES`].
pub(crate) const SHAPE: TableShape = TABLE.shape();

/// A table that is advertised.
#[derive(Clone, Debug)]
pub(crate) struct Advertised {
    pub(crate) spread: Spread,
    watches: Vec<WatchIndex>,
    /// Time to load in seconds; `None` if an earlier test loaded the table.
    pub(crate) load_s: Option<f64>,
    before: (u64, u64),
}

/// The tables that a test left behind the ports, and that the DUT still has.
#[derive(Clone, Debug)]
pub struct Kept {
    families: Vec<Family>,
    routes: u32,
    tables: Vec<Advertised>,
}

impl Kept {
    /// Returns true if these are the tables of a test with these parameters.
    fn is_for(&self, params: &Params) -> bool {
        self.routes == routes(params) && FAMILIES.find(params).as_ref() == Some(&self.families)
    }
}

/// Withdraws the tables that earlier tests left behind the ports, unless `test` with these parameters reuses them.
///
/// # Errors
/// Errors of [`Routing::reset`](crate::Routing::reset).
pub fn release(bed: &mut dyn Testbed, test: &TestSpec, params: &Params) -> Result<(), TestError> {
    // Route tests have a parameter of the same name, but advertise their own tables.
    let goes_on = test.tables.iter().any(|table| table.key == SHAPE.key);
    match &bed.known().tables {
        None => Ok(()),
        Some(kept) if goes_on && kept.is_for(params) => Ok(()),
        Some(_) => {
            bed.known().tables = None;
            bed.routing()?.reset(patience(params))
        }
    }
}

/// Reuses the tables that an earlier test left, if they are the right ones for this test and still complete; otherwise
/// withdraws them.
fn take_kept(bed: &mut dyn Testbed, params: &Params) -> Result<Option<Vec<Advertised>>, TestError> {
    let Some(kept) = bed.known().tables.take() else { return Ok(None) };
    let (mut whole, mut tables) = (kept.is_for(params), kept.tables);
    for one in &mut tables {
        (one.load_s, one.before) = (None, right(bed, &one.watches)?);
        whole &= is_whole(bed, one, one.before)?;
    }
    if !whole {
        bed.routing()?.reset(patience(params))?;
        return Ok(None);
    }
    tables.iter().try_for_each(|one| one.spread.aim(bed, true))?;
    Ok(Some(tables))
}

/// Returns true if every route is right, given `(right, of)`, and no session was lost.
fn is_whole(bed: &mut dyn Testbed, one: &Advertised, (right, of): (u64, u64)) -> Result<bool, TestError> {
    Ok(right == of && losses(bed.routing()?, &one.spread.peers()).is_empty())
}

/// Number of right routes and number of expected routes, over all watches.
fn right(bed: &mut dyn Testbed, watches: &[WatchIndex]) -> Result<(u64, u64), TestError> {
    let routing = bed.routing()?;
    let all = watches.iter().map(|watch| routing.verified(*watch));
    Ok(all.fold((0, 0), |(right, expected), v| (right + v.present, expected + v.expected)))
}

/// Seconds that loading the tables takes in addition to the trials of a test.
pub fn estimate_s(params: &Params) -> f64 {
    let count = routes(params);
    if count == 0 {
        return 0.0;
    }
    let families = FAMILIES.find(params).map_or(1, |families| families.len());
    families as f64 * (f64::from(count) / TAKES_PER_S + 5.0)
}

/// Runs `each` while the routes of the parameter `routes` are behind the ports, or immediately if there are none.
///
/// # Errors
/// Errors of `each`. [`TestError::Failed`] if the DUT does not re-advertise the whole table,
/// [`TestError::NotApplicable`] if a port has no session.
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
    let kept = take_kept(bed, params)?;
    let mut ended = Ok(());
    let mut tables = Vec::new();
    match kept {
        Some(kept) => tables = kept,
        None => {
            for family in FAMILIES.get(params) {
                match advertise(bed, family, params, count, outcome) {
                    Ok(one) => tables.push(one),
                    Err(error) => {
                        ended = Err(error);
                        break;
                    }
                }
            }
        }
    }
    if ended.is_ok() {
        ended = each(bed, outcome);
    }
    let mut whole = true;
    for one in &tables {
        whole &= finish(bed, one, outcome)?;
    }
    if let Err(TestError::DutDied(_) | TestError::Interrupted | TestError::Store(_)) = ended {
        return ended;
    }
    tables.iter().try_for_each(|one| one.spread.aim(bed, false))?;
    // A failed test may have left the DUT in any state.
    if ended.is_ok() && whole {
        bed.known().tables = Some(Kept { families: FAMILIES.get(params), routes: count, tables });
    } else {
        bed.routing()?.reset(patience(params))?;
    }
    ended
}

/// Advertises `count` routes, an equal part from each of these ports, and waits until every port has received the parts
/// of the others.
///
/// # Errors
/// [`TestError::NotApplicable`] if a port has no session; [`TestError::Failed`] if the DUT does not re-advertise the
/// whole table.
pub(crate) fn load(
    bed: &mut dyn Testbed,
    family: Family,
    params: &Params,
    count: u32,
    ports: Range<PortIndex>,
) -> Result<Advertised, TestError> {
    let all_ports = bed.ports().len();
    let mut peers = one_per_port(bed, family, all_ports)?;
    let routing = bed.routing()?;
    peers.retain(|peer| ports.contains(&routing.peers()[*peer].port));
    let all: Arc<Routes> = routing.table(&TableChoice::named("internet"), AfiSafi::unicast(family), count)?;
    let ports = routing.peers().iter().map(|peer| peer.port).collect();
    let spread = Spread::meshed(Case { family, peers, ports, packing: Packing::default(), all })?;
    routing.establish(&spread.peers(), ESTABLISH)?;
    let failure = "the router did not pass the table on to every port";
    let Changed { watches, took_s: load_s } = spread.change(bed, params, Change::Advertise, failure)?;
    let before = right(bed, &watches)?;
    Ok(Advertised { spread, watches, load_s: Some(load_s), before })
}

/// Advertises the routes from every port, waits until the other ports have received them and the DUT forwards to them,
/// and directs frames to them.
fn advertise(
    bed: &mut dyn Testbed,
    family: Family,
    params: &Params,
    count: u32,
    outcome: &mut Outcome,
) -> Result<Advertised, TestError> {
    let ports = 0..bed.ports().len();
    let loaded = load(bed, family, params, count, ports)?;
    loaded.spread.await_installed(bed, params, outcome, PROBE, count.into())?;
    loaded.spread.aim(bed, true)?;
    Ok(loaded)
}

/// Verifies the table once more and writes its row. Returns true if it was complete.
pub(crate) fn finish(bed: &mut dyn Testbed, one: &Advertised, outcome: &mut Outcome) -> Result<bool, TestError> {
    let family = one.spread.case.family;
    let after = right(bed, &one.watches)?;
    let lost = losses(bed.routing()?, &one.spread.peers());
    let mut marks = Vec::new();
    if one.load_s.is_none() {
        marks.push("kept from the test before".to_owned());
    }
    if after.0 < after.1 {
        marks.push("the table was incomplete after the test".to_owned());
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
    Ok(after.0 == after.1 && lost.is_empty())
}
