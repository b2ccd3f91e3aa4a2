//! What the routes of the sessions have in addition to prefixes (`bgp: {routes: vpn}` of a suite). All labelled routes have one label, and
//! all VPN routes belong to one VRF.

use drophammer_emulation::bgp::{
    AdjRibIn, Distinguishers, Encapsulation, EncapsulationKind, ExpectationId, Expected, Packing, RoutePart, RouteSet,
    VpnPart,
};
use drophammer_model::Instant;
use drophammer_model::label_edge::{DUT_LOOPBACK, distinguisher, target};
use drophammer_model::routes::{
    Counting, FIRST_LABEL, LabelPer, PrefixesPerVrf, RouteKind, Routes, VpnId, VpnRoutes, VrfRange,
};
use drophammer_model::suite::PortConfig;
use drophammer_wire::bgp::update::Labels;
use std::ops::Range;
use std::sync::Arc;

/// Label of all routes.
const LABEL: u32 = FIRST_LABEL;

/// Route distinguisher and route target of all VPN routes.
fn vrf() -> (VpnId, VpnId) {
    (distinguisher(DUT_LOOPBACK, 0), target(0))
}

/// Returns a note for readers of route figures if the routes are not unicast routes.
pub(crate) fn note(ports: &[PortConfig]) -> Option<String> {
    let what = match ports.iter().find_map(|port| port.bgp.as_ref())?.routes {
        RouteKind::Unicast => return None,
        RouteKind::Labelled => "labelled unicast routes (RFC 8277)",
        RouteKind::Vpn => "VPN routes (RFC 4364, RFC 4659) of one VRF",
    };
    Some(format!(
        "All routes are {what}, which the router reflects: do not compare the figures with those of unicast routes."
    ))
}

/// A part of `routes`, as a router sends it.
pub(crate) fn set(kind: RouteKind, routes: Arc<Routes>, part: Range<u32>, packing: Packing) -> RouteSet {
    let labels = Labels::Same(LABEL);
    let kind = match kind {
        RouteKind::Unicast => EncapsulationKind::Unicast,
        RouteKind::Labelled => EncapsulationKind::Labelled(labels),
        RouteKind::Vpn => {
            let (distinguisher, target) = vrf();
            let (distinguisher, communities) = (distinguisher.distinguisher(), target.route_target());
            EncapsulationKind::Vpn { labels, distinguisher, communities }
        }
    };
    RouteSet { routes, part, packing, encapsulation: Encapsulation { kind, path_id: 0 } }
}

/// Expects a part of `routes` as [`set`] makes them: a route reflector changes neither labels nor distinguishers nor targets.
pub(crate) fn expect(
    adj_rib_in: &mut AdjRibIn,
    now: Instant,
    kind: RouteKind,
    (routes, part): (&Arc<Routes>, Range<u32>),
    expected: Expected,
) -> ExpectationId {
    let expected = Expected { label: (kind != RouteKind::Unicast).then_some(LABEL), ..expected };
    let (distinguisher, target) = vrf();
    // Tests that expect a part only send traffic along the routes, which nobody sends along VPN routes here.
    if kind == RouteKind::Vpn && part == (0..routes.len()) {
        let vrfs = VrfRange {
            count: 1,
            distinguisher: Counting::from(distinguisher),
            targets: vec![Counting::from(target)],
            first_label: LABEL,
            label_per: LabelPer::Vrf,
        };
        // Only an empty table is refused, and it has nothing to expect.
        if let Ok(vpn) = VpnRoutes::new(vrfs, routes.clone(), PrefixesPerVrf::Own) {
            let keys = VpnPart { routes: Arc::new(vpn), distinguishers: Distinguishers::Configured };
            return adj_rib_in.expect_vpn(now, keys, expected);
        }
    }
    let distinguisher = (kind == RouteKind::Vpn).then(|| distinguisher.distinguisher());
    let keys = RoutePart { afi_safi: kind.afi_safi(routes.family()), distinguisher, routes: routes.clone(), part };
    adj_rib_in.expect_in(now, keys, expected)
}
