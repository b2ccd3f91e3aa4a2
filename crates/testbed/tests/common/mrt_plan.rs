//! The routes that the emulated routers advertised to the daemons that wrote the recorded MRT files.

use drophammer_model::routes::{RouteRange, Routes};
use drophammer_model::trial::Family;

/// ASes of the routers on the two links of the daemon. The first router advertises all routes, over one session per
/// family. The second router advertises the first [`SECOND`] IPv4 routes.
pub const ROUTERS: [u32; 2] = [65001, 4_200_000_002];
/// Number of routes of the second router.
pub const SECOND: u32 = 60;

/// The routes of a family.
pub fn routes(family: Family) -> Routes {
    let count = if family == Family::Ipv4 { 300 } else { 150 };
    RouteRange::internet(family, count, 5).expect("so many there are").into()
}
