//! The routes that the emulated routers advertised to the daemons whose MRT files are kept.

use drophammer_model::routes::{RouteRange, Routes};
use drophammer_model::trial::Family;

/// ASes of the routers on the two links of the daemon. The first one advertises all routes over a session of each
/// family, the second one the first [`SECOND`] of IPv4.
pub const ROUTERS: [u32; 2] = [65001, 4_200_000_002];
/// Routes of the second router.
pub const SECOND: u32 = 60;

/// The routes of a family.
pub fn routes(family: Family) -> Routes {
    let count = if family == Family::Ipv4 { 300 } else { 150 };
    RouteRange::internet(family, count, 5).expect("so many there are").into()
}
