//! Expected routes of many VRFs: which VRF a received route belongs to, and whether its route targets are right.

use super::watched::{RouteKey, RouteKeys};
use crate::expectation::{Bitmap, Expectation, Keys};
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
    /// The peer chooses route distinguishers. The first route with a new one shows by its route targets and its prefix which VRF has it.
    /// A VRF may have several. A route then stays present until it is withdrawn with each of them, and the last advertisement decides its
    /// labels and faults.
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
    /// Its route target or its prefix belongs to another VRF, which has this number.
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

/// The routes of a VRF that are present with one of its route distinguishers.
struct Held {
    distinguisher: [u8; 8],
    present: Bitmap,
    /// Those that a refresh has not brought again yet; `None` without a refresh.
    stale: Option<Bitmap>,
}

/// The state of an expectation that only routes of VRFs have.
pub(super) struct VpnWatched {
    pub part: VpnPart,
    /// VRFs by learned route distinguisher.
    learned: HashMap<[u8; 8], u32>,
    /// For each VRF with several learned route distinguishers: the routes that are present with each of them.
    several: HashMap<u32, Vec<Held>>,
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
            several: HashMap::new(),
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

    /// Learns the VRF of a new route distinguisher from the extended communities and the prefix of its first route. `known` are the
    /// routes of all VRFs.
    pub fn learn(
        &mut self,
        distinguisher: [u8; 8],
        prefix: &Prefix,
        communities: &[u8],
        known: &Expectation<RouteKeys>,
    ) -> Option<u32> {
        let most = MOST_DISTINGUISHERS * self.part.routes.vrfs().count as usize;
        if self.part.distinguishers == Distinguishers::Configured || self.learned.len() >= most {
            return None;
        }
        let routes = &self.part.routes;
        let carried: Vec<_> = targets(communities).collect();
        let likely =
            |vrf| (routes.index_of(vrf, prefix).is_some(), routes.targets(vrf).all(|target| carried.contains(&target)));
        let vrfs = carried.iter().flat_map(|target| routes.vrfs_of_target(*target));
        let vrf = vrfs.reduce(|best, vrf| if likely(vrf) > likely(best) { vrf } else { best })?;
        let per_vrf = routes.per_vrf();
        if let Some((first, _)) = self.learned.iter().find(|(_, of)| **of == vrf) {
            let all = self.several.entry(vrf).or_insert_with(|| {
                let of_vrf = |is: &dyn Fn(u32) -> bool| {
                    let mut routes = Bitmap::new(per_vrf);
                    (0..per_vrf).for_each(|route| _ = routes.set(route, is(vrf * per_vrf + route)));
                    routes
                };
                let present = of_vrf(&|i| known.is_present(i));
                let stale = known.stale().map(|stale| of_vrf(&|i| stale.get(i)));
                vec![Held { distinguisher: *first, present, stale }]
            });
            all.push(Held { distinguisher, present: Bitmap::new(per_vrf), stale: None });
        }
        self.learned.insert(distinguisher, vrf);
        self.last.set(None);
        Some(vrf)
    }

    /// Route `route` of VRF `vrf` was advertised, or withdrawn, with this route distinguisher. Returns true if it is present with any
    /// distinguisher afterwards, as far as that is known: the VRF has several.
    #[inline]
    pub fn moved(&mut self, distinguisher: Option<[u8; 8]>, vrf: u32, route: u32, present: bool) -> bool {
        // Few VRFs have several.
        if self.several.is_empty() {
            return false;
        }
        let mut any = false;
        for held in self.several.get_mut(&vrf).into_iter().flatten() {
            if Some(held.distinguisher) == distinguisher {
                held.present.set(route, present);
                held.stale.iter_mut().for_each(|stale| _ = stale.set(route, false));
            }
            any |= held.present.get(route);
        }
        any
    }

    /// The peer begins to advertise all routes again.
    pub fn refresh_begins(&mut self) {
        self.several.values_mut().flatten().for_each(|held| held.stale = Some(held.present.clone()));
    }

    /// Removes the routes that the peer has not advertised again with a route distinguisher. Returns those that it advertises with no other
    /// one, numbered over all VRFs.
    pub fn refresh_ends(&mut self) -> Vec<u32> {
        let (per_vrf, mut gone) = (self.part.routes.per_vrf(), Vec::new());
        for (vrf, all) in &mut self.several {
            let mut old = Vec::new();
            for held in all.iter_mut() {
                if let Some(stale) = held.stale.take() {
                    stale.numbers().for_each(|route| _ = held.present.set(route, false));
                    old.extend(stale.numbers());
                }
            }
            old.retain(|route| !all.iter().any(|held| held.present.get(*route)));
            gone.extend(old.iter().map(|route| vrf * per_vrf + route));
        }
        gone
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
        self.several.clear();
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
