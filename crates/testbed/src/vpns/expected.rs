//! The routes of VRFs, and what each emulated router must receive of them.

use super::{AtCe, Block, FIRST_VPN, InUse, Sites};
use crate::setup::TestSetup;
use drophammer_emulation::bgp::{Distinguishers, Expected, RouteSource, VpnPart};
use drophammer_methods::TestError;
use drophammer_methods::vpns::{VpnSize, VrfView};
use drophammer_model::label_edge::{self, CUSTOMER_AS, DUT_LOOPBACK, PROVIDER_AS};
use drophammer_model::routes::{
    AttributePattern, Counting, GroupSizes, LabelPer, Prefix, PrefixesPerVrf, RouteRange, Routes, VpnRoutes, VrfRange,
};
use drophammer_model::trial::Family;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// `count` prefixes from `first` on, in one group of attributes for each of the largest UPDATEs.
fn prefixes(first: Prefix, count: u32) -> Result<Arc<Routes>, TestError> {
    let refused = |e: &dyn std::fmt::Display| TestError::NotApplicable(format!("{count} routes of a site: {e}"));
    if count > label_edge::MOST_ROUTES {
        return Err(refused(&format!("write at most {}", label_edge::MOST_ROUTES)));
    }
    let attributes =
        AttributePattern { routes_per_group: GroupSizes::Fixed(count.max(1)), ..AttributePattern::default() };
    let range = RouteRange::uniform(first, count, 1, attributes).map_err(|e| refused(&e))?;
    Ok(Arc::new(Routes::from(range)))
}

/// The routes of consecutive VRFs, from number `base` on.
fn vpn_routes(pe: Ipv4Addr, base: u32, count: u32, routes: &Arc<Routes>) -> Result<Arc<VpnRoutes>, TestError> {
    let vrfs = VrfRange {
        count,
        distinguisher: Counting::from(label_edge::distinguisher(pe, base)),
        targets: vec![Counting::from(label_edge::target(base))],
        first_label: FIRST_VPN + base,
        label_per: LabelPer::Vrf,
    };
    let routes = VpnRoutes::new(vrfs, routes.clone(), PrefixesPerVrf::Same);
    routes.map(Arc::new).map_err(|e| TestError::NotApplicable(e.to_string()))
}

/// The VRFs that a test uses: as many on each customer port, the first ones.
fn choose(all: &[VrfView], count: u32) -> Vec<VrfView> {
    let mut chosen = all.to_vec();
    chosen.sort_by_key(|vrf| (vrf.vid, vrf.customer));
    chosen.truncate(count as usize);
    chosen.sort_by_key(|vrf| vrf.number);
    chosen
}

impl TestSetup<'_> {
    /// Computes the routes of the first VRFs, and lets all routers expect them. None of them is present yet.
    pub(super) fn expect(&mut self, size: &VpnSize) -> Result<InUse, TestError> {
        let vrfs = choose(&self.vpns.vrfs, size.vrfs);
        let mut used = InUse { vrfs, ..InUse::default() };
        for family in &size.families {
            let customer = prefixes(label_edge::customer_routes(*family), size.routes)?;
            let remote = prefixes(label_edge::remote_routes(*family), size.routes)?;
            used.sites.push(Sites { family: *family, customer, remote });
        }
        for sites in used.sites.clone() {
            for of_port in used.vrfs.chunk_by(|a, b| a.customer == b.customer) {
                let (first, count) = (of_port[0], of_port.len() as u32);
                let pe = label_edge::pe_router(first.core);
                used.blocks.push(Block {
                    family: sites.family,
                    base: first.number,
                    core: first.core,
                    remote: vpn_routes(pe, first.number, count, &sites.remote)?,
                    customer: vpn_routes(DUT_LOOPBACK, first.number, count, &sites.customer)?,
                    at_pes: Vec::new(),
                });
            }
        }
        self.expect_at_pes(&mut used);
        for sites in used.sites.clone() {
            self.expect_at_ces(&mut used, &sites)?;
        }
        Ok(used)
    }

    /// Lets each PE router expect the routes of all CE routers.
    fn expect_at_pes(&mut self, used: &mut InUse) {
        let now = self.rig().now();
        let pes = self.vpns.pes.clone();
        for block in &mut used.blocks {
            for (_, session) in &pes {
                let Some((routers, router)) = self.rig().session_mut(*session) else { continue };
                let part = VpnPart { routes: block.customer.clone(), distinguishers: Distinguishers::Configured };
                let (vrfs, per_vrf) = (block.customer.vrfs().count, block.customer.per_vrf());
                let adj_rib_in = routers.adj_rib_in_mut(router);
                let id = adj_rib_in.expect_vpn(now, part, at_pe(block.family));
                adj_rib_in.change_vpn(now, id, 0..vrfs, 0..per_vrf, false);
                block.at_pes.push((*session, id));
            }
        }
    }

    /// Lets each CE router expect the routes of its remote site in one family.
    fn expect_at_ces(&mut self, used: &mut InUse, sites: &Sites) -> Result<(), TestError> {
        let now = self.rig().now();
        let Sites { family, customer, remote } = sites;
        for vrf in used.vrfs.clone() {
            let link = self.vpns.roles[vrf.number as usize].link(*family);
            let session = self.vpns.session(vrf.number, *family);
            let Some((link, session)) = link.zip(session) else {
                let why = format!("the VRFs have no {family}: leave `{family}: off` out of the ports");
                return Err(TestError::NotApplicable(why.to_lowercase()));
            };
            let at_ce = Expected {
                source: RouteSource::Internal(label_edge::pe_router(vrf.core)),
                as_path_prefix: vec![PROVIDER_AS.into()],
                next_hop: Some(link.local),
                labels: false,
                ..at_pe(*family)
            };
            let Some((routers, router)) = self.rig().session_mut(session) else { continue };
            let adj_rib_in = routers.adj_rib_in_mut(router);
            let id = adj_rib_in.expect(now, remote.clone(), 0..remote.len(), at_ce);
            adj_rib_in.change(now, id, 0..remote.len(), false);
            used.at_ces.push(AtCe { vrf: vrf.number, family: *family, session, id });
            let id = adj_rib_in.expect(now, customer.clone(), 0..customer.len(), Expected::default());
            adj_rib_in.change(now, id, 0..customer.len(), false);
            used.returned.push((session, id));
        }
        Ok(())
    }
}

/// What a PE router must receive of the routes of a CE router. The core has IPv4, so next hops of IPv6 routes are IPv4-mapped addresses (RFC
/// 4659 section 3.2.1.2).
fn at_pe(family: Family) -> Expected {
    let next_hop = match family {
        Family::Ipv4 => IpAddr::V4(DUT_LOOPBACK),
        Family::Ipv6 => IpAddr::V6(DUT_LOOPBACK.to_ipv6_mapped()),
    };
    Expected {
        source: RouteSource::External,
        as_path_prefix: vec![CUSTOMER_AS],
        next_hop: Some(next_hop),
        check_attributes: true,
        times: false,
        labels: true,
    }
}
