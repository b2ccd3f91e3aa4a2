//! Expected routes of many VRFs: which VRF a received route belongs to, and whether its route targets are right.

use super::watched::RouteKey;
use crate::expectation::Keys;
use drophammer_model::routes::{Prefix, VpnId, VpnRoutes};
use std::cell::Cell;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// Maximum number of stored faults; more are only counted.
pub(super) const MOST_FAULTS: usize = 1_000;
/// Maximum number of learned route distinguishers for each VRF, on average.
const MOST_DISTINGUISHERS: usize = 4;

/// How the VRF of a received route is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Distinguishers {
    /// The peer keeps the route distinguishers of the expected routes, as a route reflector does.
    #[default]
    Configured,
    /// The peer chooses route distinguishers. The first route with a new one shows by its route targets which VRF has it.
    Learned,
}

/// Routes of all VRFs as the keys of an expectation: number `i` is route `i % per_vrf` of VRF `i / per_vrf`.
#[derive(Clone, Debug)]
pub struct VpnPart {
    /// The routes.
    pub routes: Arc<VpnRoutes>,
    /// How the VRF of a received route is found.
    pub distinguishers: Distinguishers,
}

impl Keys for VpnPart {
    type Key = RouteKey;

    fn len(&self) -> u32 {
        self.routes.len()
    }

    fn index_of(&self, key: &RouteKey) -> Option<u32> {
        let vrf =
            self.routes.vrf_of_distinguisher(key.distinguisher.filter(|_| key.afi_safi == self.routes.afi_safi())?)?;
        self.routes.index_of(vrf, &key.prefix).map(|route| vrf * self.routes.per_vrf() + route)
    }

    /// The key with the configured route distinguisher of its VRF.
    fn key(&self, index: u32) -> RouteKey {
        let (vrf, route) = (index / self.routes.per_vrf(), index % self.routes.per_vrf());
        RouteKey {
            afi_safi: self.routes.afi_safi(),
            distinguisher: Some(self.routes.distinguisher(vrf)),
            prefix: self.routes.prefix(vrf, route),
        }
    }
}

/// What is wrong with a VPN route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VpnFaultKind {
    /// It carries other route targets than its VRF should.
    WrongTarget,
    /// Its route target is that of another VRF, or its prefix belongs to another VRF; with the number of that VRF.
    WrongVrf(u32),
}

/// A wrong VPN route, as it was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VpnFault {
    /// The route, with the route distinguisher of the peer.
    pub key: RouteKey,
    /// The VRF with this route distinguisher.
    pub vrf: u32,
    /// What is wrong.
    pub kind: VpnFaultKind,
}

/// The state of an expectation that only routes of VRFs have.
pub(super) struct VpnWatched {
    pub part: VpnPart,
    /// VRFs by learned route distinguisher.
    learned: HashMap<[u8; 8], u32>,
    /// The last route distinguisher and its VRF: most routes have the same as the route before.
    last: Cell<Option<([u8; 8], Option<u32>)>>,
    pub wrong_target: u64,
    pub wrong_vrf: u64,
    /// The first faults.
    pub faults: Vec<VpnFault>,
}

impl VpnWatched {
    pub fn new(part: VpnPart) -> VpnWatched {
        VpnWatched {
            part,
            learned: HashMap::new(),
            last: Cell::new(None),
            wrong_target: 0,
            wrong_vrf: 0,
            faults: Vec::new(),
        }
    }

    /// The VRF with this route distinguisher.
    #[inline]
    pub fn vrf_of(&self, distinguisher: [u8; 8]) -> Option<u32> {
        if let Some((last, vrf)) = self.last.get()
            && last == distinguisher
        {
            return vrf;
        }
        let vrf = match self.part.distinguishers {
            Distinguishers::Configured => self.part.routes.vrf_of_distinguisher(distinguisher),
            Distinguishers::Learned => self.learned.get(&distinguisher).copied(),
        };
        self.last.set(Some((distinguisher, vrf)));
        vrf
    }

    /// Learns the VRF of a new route distinguisher from the extended communities of its first route.
    pub fn learn(&mut self, distinguisher: [u8; 8], communities: &[u8]) -> Option<u32> {
        let most = MOST_DISTINGUISHERS * self.part.routes.vrfs().count as usize;
        if self.part.distinguishers == Distinguishers::Configured || self.learned.len() >= most {
            return None;
        }
        let vrf = targets(communities).find_map(|target| self.part.routes.vrf_of_target(target))?;
        self.learned.insert(distinguisher, vrf);
        self.last.set(None);
        Some(vrf)
    }

    /// The learned route distinguishers.
    pub fn learned(&self) -> impl Iterator<Item = ([u8; 8], u32)> + '_ {
        self.learned.iter().map(|(distinguisher, vrf)| (*distinguisher, *vrf))
    }

    /// Returns what is wrong with the extended communities of a route of VRF `vrf`. `sent` lists the expected ones that its
    /// attributes contain.
    pub fn judge(&self, vrf: u32, communities: &[u8], sent: &[[u8; 8]]) -> Option<VpnFaultKind> {
        let routes = &self.part.routes;
        let sent = sent.iter().copied().filter(|community| VpnId::from_route_target(*community).is_some());
        let mut expected: Vec<_> = routes.targets(vrf).chain(sent).collect();
        let mut received: Vec<_> = targets(communities).collect();
        for list in [&mut expected, &mut received] {
            list.sort_unstable();
            list.dedup();
        }
        if received == expected {
            return None;
        }
        let mut of = received.iter().filter_map(|target| routes.vrf_of_target(*target));
        // A route that also carries a target of its own VRF is not in the wrong VRF: it only has wrong targets.
        let other = of.clone().next().filter(|_| of.all(|of| of != vrf));
        Some(other.map_or(VpnFaultKind::WrongTarget, VpnFaultKind::WrongVrf))
    }

    /// The VRF that has `prefix`, if each has prefixes of its own.
    pub fn vrf_of_prefix(&self, prefix: &Prefix) -> Option<u32> {
        let routes = &self.part.routes;
        let vrf = routes.routes().index_of(prefix)? / routes.per_vrf();
        routes.index_of(vrf, prefix).map(|_| vrf)
    }

    /// Counts a fault, and stores it if there is room.
    pub fn fault(&mut self, fault: VpnFault) {
        match fault.kind {
            VpnFaultKind::WrongTarget => self.wrong_target += 1,
            VpnFaultKind::WrongVrf(_) => self.wrong_vrf += 1,
        }
        if self.faults.len() < MOST_FAULTS {
            self.faults.push(fault);
        }
    }

    /// The session has ended: the next one may use other route distinguishers.
    pub fn lost(&mut self) {
        self.learned.clear();
        self.last.set(None);
    }
}

/// The ranges of numbers of the routes `part` of each of `vrfs`, as far as they exist.
pub(super) fn parts(
    routes: &VpnRoutes,
    vrfs: Range<u32>,
    part: Range<u32>,
) -> impl Iterator<Item = Range<u32>> + use<> {
    let per_vrf = routes.per_vrf();
    let (start, end) = (part.start.min(per_vrf), part.end.min(per_vrf));
    (vrfs.start..vrfs.end.min(routes.vrfs().count)).map(move |vrf| vrf * per_vrf + start..vrf * per_vrf + end)
}

/// The route targets among extended communities.
fn targets(communities: &[u8]) -> impl Iterator<Item = [u8; 8]> + '_ {
    communities
        .chunks_exact(8)
        .filter_map(|bytes| bytes.try_into().ok())
        .filter(|community| VpnId::from_route_target(*community).is_some())
}
