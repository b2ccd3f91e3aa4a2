//! Finds tables of routes by name.

use crate::mrt::{self, PeerChoice};
use drophammer_methods::TestError;
use drophammer_methods::routing::TableChoice;
use drophammer_model::routes::{AfiSafi, AttributePattern, Prefix, RouteRange, Routes};
use drophammer_model::trial::Family;
use std::path::Path;

/// Returns `count` routes of a table; all routes of a file if `count` is not given. The table's name lists what was
/// left out of a file.
///
/// # Errors
/// [`TestError::NotApplicable`] if the table has fewer routes, or the file cannot be read.
pub(crate) fn routes(
    choice: &TableChoice,
    afi_safi: AfiSafi,
    count: Option<u32>,
    seed: u64,
) -> Result<Routes, TestError> {
    let TableChoice { source, order, routes_per_set } = choice;
    let arranged = |range: RouteRange| Routes::Range(range.in_groups(*routes_per_set).in_order(*order));
    let refused = |e: String| TestError::NotApplicable(format!("table `{source}`: {e}"));
    let unicast = |family: &Family| AfiSafi::unicast(*family) == afi_safi;
    let family =
        afi_safi.ip_version().filter(unicast).ok_or_else(|| refused(format!("it has no {afi_safi} routes")))?;
    let made_up = count.unwrap_or(0);
    Ok(match source.as_str() {
        "internet" => arranged(RouteRange::internet(family, made_up, seed).map_err(|e| refused(e.to_string()))?),
        "uniform" => {
            let first = if family == Family::Ipv4 { "20.0.0.0/24" } else { "2400::/48" };
            let first: Prefix = first.parse().map_err(|_| refused("no first prefix".into()))?;
            let range = RouteRange::uniform(first, made_up, 1, AttributePattern::internet(seed));
            arranged(range.map_err(|e| refused(e.to_string()))?)
        }
        path => {
            let (table, left_out) =
                mrt::read(Path::new(path), family, PeerChoice::MostRoutes).map_err(|e| refused(e.to_string()))?;
            let words = left_out.words();
            let table =
                if words.is_empty() { table } else { table.called(|name| format!("{name}; {}", words.join("; "))) };
            let count = count.unwrap_or(table.len());
            if table.len() < count {
                return Err(refused(format!("it has {} {family} routes, the test asks for {count}", table.len())));
            }
            Routes::from(table.first(count))
        }
    })
}
