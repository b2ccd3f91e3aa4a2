//! The routes of VRFs, and which of them each emulated router must receive.

use super::{AtCe, Block, Ce, FIRST_VPN, InUse, Sites};
use crate::setup::TestSetup;
use drophammer_emulation::bgp::{Distinguishers, Expected, RouteSource, VpnPart};
use drophammer_methods::TestError;
use drophammer_methods::vpns::{VpnSize, VrfView};
use drophammer_model::label_edge::{self, CUSTOMER_AS, DUT_LOOPBACK, PROVIDER_AS};
use drophammer_model::routes::{
    AttributePattern, Counting, GroupSizes, LabelPer, Prefix, PrefixesPerVrf, RouteRange, Routes, VpnRoutes, VrfRange,
};
use drophammer_model::trial::Family;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// `count` prefixes from `first` on, at most `most`. All are in one group of attributes, so that they need the fewest
/// UPDATEs.
fn prefixes(first: Prefix, count: u32, most: u32) -> Result<Arc<Routes>, TestError> {
    let refused = |e: &dyn std::fmt::Display| TestError::NotApplicable(format!("{count} routes of a site: {e}"));
    if count > most {
        return Err(refused(&format!("write at most {most}")));
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

/// The VRFs that a test uses, with all their sites: the first ones of each customer port, and equally many on each.
fn choose(all: &[VrfView], count: u32) -> Vec<VrfView> {
    let mut first: Vec<_> = all.iter().filter(|vrf| vrf.site == 0).collect();
    first.sort_by_key(|vrf| (vrf.vid, vrf.customer));
    let chosen: BTreeSet<u32> = first.iter().take(count as usize).map(|vrf| vrf.number).collect();
    all.iter().filter(|vrf| chosen.contains(&vrf.number)).copied().collect()
}

impl TestSetup<'_> {
    /// Computes the routes of the first VRFs, and lets all routers expect them. No route counts as present yet.
    pub(super) fn expect(&mut self, size: &VpnSize) -> Result<InUse, TestError> {
        let vrfs = choose(&self.vpns.vrfs, size.vrfs);
        let mut used = InUse { vrfs, ..InUse::default() };
        let count = used.vrfs.iter().map(|vrf| vrf.site + 1).max().unwrap_or(0);
        let (routes, most) = (size.routes, label_edge::most_routes(count));
        for family in size.families.iter().copied() {
            let of_site = |site| prefixes(label_edge::customer_routes(family, site), routes, most);
            let customers = (0..count).map(of_site).collect::<Result<_, _>>()?;
            let remote = prefixes(label_edge::remote_routes(family), routes, label_edge::MOST_ROUTES)?;
            used.sites.push(Sites { family, customers, remote });
        }
        for sites in used.sites.clone() {
            for of_port in used.vrfs.chunk_by(|a, b| a.customer == b.customer) {
                let (first, count) = (of_port[0], of_port.len() as u32);
                let pe = label_edge::pe_router(first.core);
                let remote = (first.site == 0).then(|| vpn_routes(pe, first.number, count, &sites.remote));
                let own = &sites.customers[first.site as usize];
                used.blocks.push(Block {
                    family: sites.family,
                    base: first.number,
                    site: first.site,
                    core: first.core,
                    remote: remote.transpose()?,
                    customer: vpn_routes(DUT_LOOPBACK, first.number, count, own)?,
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
                let id = adj_rib_in.expect_vpn(now, part, at_pe(block.family, block.site));
                adj_rib_in.change_vpn(now, id, 0..vrfs, 0..per_vrf, false);
                block.at_pes.push((*session, id));
            }
        }
    }

    /// Lets each CE router expect the routes of the other sites of its VRF in one family.
    fn expect_at_ces(&mut self, used: &mut InUse, sites: &Sites) -> Result<(), TestError> {
        let now = self.rig().now();
        let Sites { family, customers, remote } = sites;
        for vrf in used.vrfs.clone() {
            let found = self.vpns.ce(&vrf, *family).and_then(|(role, session)| Some((role.link(*family)?, session)));
            let Some((link, session)) = found else {
                let why = format!(
                    "the VRFs have no {family}: leave `ipv6: off` out of the ports, and `ipv6: false` out of `customers`"
                );
                return Err(TestError::NotApplicable(why));
            };
            let at_ce = |source, path: Vec<u32>| Expected {
                source,
                as_path_prefix: path,
                next_hop: Some(link.local),
                labels: false,
                label: None,
                ..at_pe(*family, 0)
            };
            let Some((routers, router)) = self.rig().session_mut(session) else { continue };
            let adj_rib_in = routers.adj_rib_in_mut(router);
            let mut expect = |routes: &Arc<Routes>, expected| {
                let id = adj_rib_in.expect(now, routes.clone(), 0..routes.len(), expected);
                adj_rib_in.change(now, id, 0..routes.len(), false);
                id
            };
            let from_pe = RouteSource::Internal(label_edge::pe_router(vrf.core));
            let of_remote = at_ce(from_pe, vec![PROVIDER_AS.into()]);
            let at = |from, id| AtCe { vrf: vrf.number, from, family: *family, session, id };
            used.at_ces.push(at(None, expect(remote, of_remote)));
            let others = used.vrfs.iter().filter(|other| other.number == vrf.number && other.site != vrf.site);
            for other in others {
                let path = vec![PROVIDER_AS.into(), CUSTOMER_AS + other.site];
                let id = expect(&customers[other.site as usize], at_ce(RouteSource::External, path));
                used.at_ces.push(at(Some(other.site), id));
            }
            let returned = expect(&customers[vrf.site as usize], Expected::default());
            used.ces.push(Ce { site: vrf, family: *family, session, returned });
        }
        Ok(())
    }
}

/// The routes of the CE router at `site`, as a PE router must receive them. The core has IPv4, so next hops of IPv6 routes are IPv4-mapped
/// addresses (RFC 4659 section 3.2.1.2).
fn at_pe(family: Family, site: u32) -> Expected {
    let next_hop = match family {
        Family::Ipv4 => IpAddr::V4(DUT_LOOPBACK),
        Family::Ipv6 => IpAddr::V6(DUT_LOOPBACK.to_ipv6_mapped()),
    };
    Expected {
        source: RouteSource::External,
        as_path_prefix: vec![CUSTOMER_AS + site],
        next_hop: Some(next_hop),
        check_attributes: true,
        times: false,
        labels: true,
        label: None,
    }
}
