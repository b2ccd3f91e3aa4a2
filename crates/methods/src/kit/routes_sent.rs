//! Routes sent by a test: their order, UPDATEs and attribute sets.

use crate::columns;
use crate::report::note;
use crate::route_tests::{ORDER, PER_SET, PER_UPDATE, TABLE, thousands};
use crate::routing::{RoutesSent, TableChoice};
use crate::table::TableSpec;
use crate::testbed::Testbed;
use drophammer_model::outcome::Outcome;
use drophammer_model::param::OrFit;
use drophammer_model::registry::TableShape;
use drophammer_model::routes::{GroupSizes, Order};
use drophammer_model::suite::Params;
use drophammer_model::trial::Family;

columns! {
    /// The routes of a test and family. A route counts each time it is sent.
    pub struct SentRow {
        family: Family,
        table: String,
        order: String,
        advertised: u64 ["routes"],
        updates: u64 = "UPDATEs",
        sets: u64 = "Attribute sets",
        per_update: f64 = "Per UPDATE" ["routes"],
        per_set: f64 = "Per attribute set" ["routes"],
        withdrawn: u64 ["routes"],
    }
}

/// The table of every test with routes.
pub const SENT: TableSpec<SentRow> = TableSpec::new("routes_sent", "Routes sent by the tester");
/// Shape of this table.
pub(crate) const SHAPE: TableShape = SENT.shape();

/// A parameter counts as effective if the mean is at least this share of it.
const EFFECT: f64 = 0.9;

/// Routes sent by the emulated routers so far; zeros without emulated routers.
pub fn so_far(bed: &mut dyn Testbed) -> RoutesSent {
    bed.routing().map_or(RoutesSent::default(), |routing| routing.sent())
}

/// The table that the parameters of a test select.
pub fn choice(params: &Params) -> TableChoice {
    TableChoice { source: TABLE.get(params), order: ORDER.get(params), routes_per_set: PER_SET.get(params) }
}

/// Adds the routes that a test sent for a family, and a note for each parameter that had no effect.
pub fn report(outcome: &mut Outcome, family: Family, params: &Params, sent: RoutesSent) {
    if sent.advertised == 0 {
        return;
    }
    let choice = choice(params);
    let per = |n: u64| sent.advertised as f64 / n.max(1) as f64;
    let order = if choice.is_file() { "as in the file".into() } else { choice.order.to_string() };
    let row = SentRow {
        family,
        table: choice.source.clone(),
        order,
        advertised: sent.advertised,
        updates: sent.updates,
        sets: sent.sets,
        per_update: per(sent.updates),
        per_set: per(sent.sets),
        withdrawn: sent.withdrawn,
    };
    SENT.add(outcome, row, [], []);
    if choice.is_file() {
        for (key, given) in [
            ("order", choice.order != Order::Clustered),
            ("routes_per_set", choice.routes_per_set != GroupSizes::Internet),
        ] {
            if given {
                note(outcome, format!("`{key}` has no effect on the routes of a file, which have their own"));
            }
        }
    }
    if let Some(OrFit(Some(asked))) = PER_UPDATE.find(params)
        && let Some(why) = short_of(asked, sent)
    {
        note(outcome, format!("{family}: {why}"));
    }
}

/// Returns why UPDATEs carried fewer routes than requested; `None` if they did not.
fn short_of(asked: u16, sent: RoutesSent) -> Option<String> {
    let per = |n: u64| sent.advertised as f64 / n.max(1) as f64;
    let (per_update, per_set, least) = (per(sent.updates), per(sent.sets), EFFECT * f64::from(asked));
    if per_update >= least {
        return None;
    }
    let cause = if per_set < least {
        format!("{per_set:.1} share a set of attributes on average; give `routes_per_set`")
    } else {
        "a message or a change of the test holds no more".into()
    };
    let asked = thousands(asked.into());
    Some(format!(
        "`routes_per_update: {asked}` has no full effect: UPDATEs carry {per_update:.1} routes on average, because {cause}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(advertised: u64, updates: u64, sets: u64) -> RoutesSent {
        RoutesSent { advertised, updates, sets, withdrawn: 0 }
    }

    #[test]
    fn a_parameter_without_its_effect_is_named() {
        assert_eq!(short_of(500, sent(100_000, 200, 200)), None);
        assert_eq!(short_of(5, sent(100_000, 20_500, 200)), None);
        let few = short_of(500, sent(1_000_000, 157_741, 157_741)).unwrap();
        assert_eq!(
            few,
            "`routes_per_update: 500` has no full effect: UPDATEs carry 6.3 routes on average, because 6.3 share a set of attributes on \
             average; give `routes_per_set`"
        );
        let short = short_of(5_000, sent(100_000, 100, 20)).unwrap();
        assert!(short.ends_with("because a message or a change of the test holds no more"), "{short}");
    }
}
