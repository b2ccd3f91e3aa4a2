//! Tables of routes by name.

use crate::mrt::{self, PeerChoice};
use drophammer_methods::TestError;
use drophammer_methods::routing::TableChoice;
use drophammer_model::routes::{AttributePattern, Prefix, RouteRange, Routes};
use drophammer_model::trial::Family;
use std::path::Path;

/// `count` routes of a table.
///
/// # Errors
/// [`TestError::NotApplicable`] if the table has fewer routes, and for a file that cannot be read.
pub(crate) fn routes(choice: &TableChoice, family: Family, count: u32, seed: u64) -> Result<Routes, TestError> {
    let TableChoice { source, order, routes_per_set } = choice;
    let arranged = |range: RouteRange| Routes::Range(range.in_groups(*routes_per_set).in_order(*order));
    let refused = |e: String| TestError::NotApplicable(format!("table `{source}`: {e}"));
    Ok(match source.as_str() {
        "internet" => arranged(RouteRange::internet(family, count, seed).map_err(|e| refused(e.to_string()))?),
        "uniform" => {
            let first = if family == Family::Ipv4 { "20.0.0.0/24" } else { "2400::/48" };
            let first: Prefix = first.parse().map_err(|_| refused("no first prefix".into()))?;
            let range = RouteRange::uniform(first, count, 1, AttributePattern::internet(seed));
            arranged(range.map_err(|e| refused(e.to_string()))?)
        }
        path => {
            let table =
                mrt::read(Path::new(path), family, PeerChoice::MostRoutes).map_err(|e| refused(e.to_string()))?;
            if table.len() < count {
                return Err(refused(format!("it has {} {family} routes, the test asks for {count}", table.len())));
            }
            Routes::from(table.first(count))
        }
    })
}
