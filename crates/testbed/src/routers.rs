//! Emulated routers on a bed: which there are, and what a test asks of them.

mod actions;
mod sessions;
mod settling;
mod standing;
mod tables;

pub(crate) use sessions::peer_config;

use crate::bed::{Bed, Failure};
use crate::hosts::{Act, Hosts};
use drophammer_emulation::bgp::{ExpectationId, Expected, RouteSource, Routers};
use drophammer_methods::routing::{PeerIndex, WatchIndex};
use drophammer_methods::{Packing, PeerView, RouteAction, Routing, SessionView, Settled, TestError, Verified};
use drophammer_model::Instant;
use drophammer_model::routes::{Prefix, Routes};
use drophammer_model::suite::{PortBgp, PortConfig};
use drophammer_model::trial::{Family, PortIndex};
use sessions::router_id;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// What the tester needs alone: seconds per route, by family and routes per UPDATE.
pub type RouteCeilings = BTreeMap<(Family, u16), f64>;

/// A session of a router.
#[derive(Clone, Debug)]
struct Place {
    port: PortIndex,
    /// Among the routers of the port.
    router: usize,
    /// The DUT's address.
    dut: IpAddr,
}

/// A comparison of what the DUT tells one router with what another one said.
struct Watch {
    observer: PeerIndex,
    origin: PeerIndex,
    routes: Arc<Routes>,
    id: ExpectationId,
    begun: Instant,
}

/// The routers of a bed, and what they are asked for.
pub struct RoutingState {
    peers: Vec<PeerView>,
    places: Vec<Place>,
    dut_as: u32,
    /// The DUT is the next hop of external routes for internal peers.
    next_hop_self: bool,
    /// Sessions that must be up.
    wanted: BTreeSet<PeerIndex>,
    /// Those that may have something to say.
    speaking: BTreeSet<PeerIndex>,
    watches: Vec<Watch>,
    /// Routes of the forwarding plane before the first session, by family.
    fib_before: BTreeMap<Family, u64>,
    tables: Vec<((String, Family, u32), Arc<Routes>)>,
    seed: u64,
    /// What the tester needs alone.
    pub ceilings: RouteCeilings,
    /// What a port of the tester failed with last.
    port_failure: Option<String>,
    /// Was a session ended that the DUT may keep from coming back for a while?
    ended_some: bool,
}

impl RoutingState {
    /// Puts routers behind the ports that have BGP; none of them is started. `None` where no port has.
    pub fn new(hosts: &mut Hosts, ports: &[PortConfig], seed: u64) -> Option<RoutingState> {
        let PortBgp { dut_as, next_hop_self, .. } = *ports.iter().find_map(|port| port.bgp.as_ref())?;
        let (mut peers, mut places) = (Vec::new(), Vec::new());
        for (port, config) in ports.iter().enumerate() {
            let Some(bgp) = &config.bgp else { continue };
            let (mut configs, mut also) = (Vec::new(), Vec::new());
            for family in [Family::Ipv4, Family::Ipv6] {
                let Some(addressing) = config.addressing(family) else { continue };
                let addresses = config.peers(family);
                if let Some(second) = addresses.get(1) {
                    also.push((*second, addresses.len() as u32 - 1));
                }
                for (index, address) in (0..).zip(addresses) {
                    let name = if index == 0 { config.name.clone() } else { format!("{}.{}", config.name, index + 1) };
                    peers.push(PeerView { name, port, family, asn: bgp.asn, address });
                    places.push(Place { port, router: configs.len(), dut: addressing.dut });
                    configs.push(peer_config(address, addressing.dut, bgp, router_id(port, index)));
                }
            }
            hosts.set_routers(port, Routers::new(seed.wrapping_add(port as u64), configs), &also);
        }
        Some(RoutingState {
            peers,
            places,
            dut_as,
            next_hop_self,
            wanted: BTreeSet::new(),
            speaking: BTreeSet::new(),
            watches: Vec::new(),
            fib_before: BTreeMap::new(),
            tables: Vec::new(),
            seed,
            ceilings: RouteCeilings::new(),
            port_failure: None,
            ended_some: false,
        })
    }

    /// How the observer must be told what the origin said, which has this BGP identifier.
    fn expected(&self, observer: PeerIndex, origin: PeerIndex, id: Option<Ipv4Addr>) -> Expected {
        let (from, dut) = (&self.peers[origin], self.places[observer].dut);
        let internal = |peer: &PeerView| peer.asn == self.dut_as;
        let inside = internal(&self.peers[observer]);
        // RFC 4271 section 5.1.2: each AS adds itself when it tells another one.
        let added = [(!inside).then_some(self.dut_as), (!internal(from)).then_some(from.asn)];
        // Section 5.1.3; of what is reflected RFC 4456 section 10 says the same, whatever is configured.
        let unchanged = inside && (internal(from) || !self.next_hop_self);
        Expected {
            source: id.filter(|_| internal(from)).map_or(RouteSource::External, RouteSource::Internal),
            as_path_prefix: added.into_iter().flatten().collect(),
            next_hop: Some(if unchanged { from.address } else { dut }),
            check_attributes: true,
            times: true,
        }
    }

    fn at(&self, peer: PeerIndex) -> (PortIndex, usize) {
        (self.places[peer].port, self.places[peer].router)
    }
}

/// Sessions that come up at the same time. A router keeps only so many connections that it has not accepted yet (OpenBGPD: 5), and
/// one that it drops is tried again by TCP a second later.
const AT_ONCE: usize = 4;
/// How long a look lasts until the DUT is asked whether it lives.
const LOOK: Duration = Duration::from_millis(50);

impl Bed<'_> {
    fn state(&self) -> &RoutingState {
        self.routing.as_ref().expect("Testbed::routing hands this out only where there are routers")
    }

    fn state_mut(&mut self) -> &mut RoutingState {
        self.routing.as_mut().expect("Testbed::routing hands this out only where there are routers")
    }

    fn instant(&self) -> Instant {
        self.ports.clock().now()
    }

    /// Serves routers until `enough`, for [`LOOK`] at most, and looks after the DUT.
    fn look(&mut self, enough: &mut dyn FnMut(Instant, &Hosts, &RoutingState) -> bool) -> Result<(), TestError> {
        let Some(state) = self.routing.take() else { return Ok(()) };
        let served = self.serve_until(LOOK, &mut |now, hosts| enough(now, hosts, &state));
        self.routing = Some(state);
        match served {
            Ok(()) => {}
            // It may be switched on again; who waits in vain tells of it.
            Err(Failure::Port(e)) => self.state_mut().port_failure = Some(e.to_string()),
            Err(Failure::Test(e)) => return Err(e),
        }
        self.device.check().map_err(TestError::DutDied)
    }

    /// What actions are at the ports, noted as done.
    ///
    /// # Errors
    /// [`TestError::NotApplicable`] for a link that cannot be switched.
    pub(crate) fn acts(&mut self, actions: &[Vec<RouteAction>]) -> Result<Vec<Vec<(PortIndex, Act)>>, TestError> {
        let mut acts = Vec::new();
        for at_once in actions {
            for action in at_once {
                if let RouteAction::Link { port, .. } = action {
                    self.switch(*port, true)?;
                }
                self.state_mut().note(action);
            }
            acts.push(at_once.iter().map(|action| self.state().act(action)).collect());
        }
        Ok(acts)
    }

    fn switch(&mut self, port: PortIndex, up: bool) -> Result<(), TestError> {
        self.ports.get(port).set_link(up).map_err(|e| TestError::NotApplicable(e.to_string()))
    }

    fn routers_of(&self, peer: PeerIndex) -> Option<(&Routers, usize)> {
        let (port, router) = self.state().at(peer);
        self.hosts.routers(port).map(|routers| (routers, router))
    }
}

impl Routing for Bed<'_> {
    fn peers(&self) -> &[PeerView] {
        &self.state().peers
    }

    fn dut_as(&self) -> u32 {
        self.state().dut_as
    }

    fn table(&mut self, source: &str, family: Family, count: u32) -> Result<Arc<Routes>, TestError> {
        let key = (source.to_owned(), family, count);
        if let Some((_, routes)) = self.state().tables.iter().find(|(known, _)| *known == key) {
            return Ok(routes.clone());
        }
        let seed = self.state().seed;
        let routes = tables::routes(source, family, count, seed)?;
        let routes = Arc::new(routes);
        self.state_mut().tables.push((key, routes.clone()));
        Ok(routes)
    }

    fn establish(&mut self, peers: &[PeerIndex], within: Duration) -> Result<Vec<Duration>, TestError> {
        for family in [Family::Ipv4, Family::Ipv6] {
            if self.state().wanted.is_empty()
                && let Some(routes) = self.device.fib_routes(family)
            {
                self.state_mut().fib_before.entry(family).or_insert(routes);
            }
        }
        if std::mem::take(&mut self.state_mut().ended_some) {
            self.device.sessions_ended().map_err(TestError::Failed)?;
        }
        let deadline = self.instant() + within;
        let (mut some, mut begun) = (peers.chunks(AT_ONCE), Vec::with_capacity(peers.len()));
        loop {
            let Some((peer, cause)) = self.state().lost(&self.hosts) else {
                let Some(next) = some.next() else { break };
                for peer in next {
                    let ((port, router), now) = (self.state().at(*peer), self.instant());
                    if let Some(routers) = self.hosts.routers_mut(port) {
                        routers.start(now, router);
                    }
                    self.state_mut().wanted.insert(*peer);
                    begun.push(now);
                }
                continue;
            };
            self.look(&mut |_, hosts, state| state.lost(hosts).is_none())?;
            if self.instant() > deadline {
                let waiting = peers.iter().filter(|p| !self.session(**p).established).count();
                let state = self.routers_of(peer).map(|(routers, router)| routers.session(router).state());
                let failure = self.state().port_failure.as_ref().map_or(String::new(), |e| format!(" ({e})"));
                let peer = &self.state().peers[peer];
                return Err(TestError::Failed(format!(
                    "the BGP session of {} ({}) is not up after {} s but in state {}{failure}; it last ended because {cause}; {waiting} of {} \
                     sessions are waited for",
                    peer.name,
                    peer.address,
                    within.as_secs_f64(),
                    state.map_or("none".to_owned(), |state| format!("{state:?}")),
                    peers.len()
                )));
            }
        }
        let since = |(peer, begun): (&PeerIndex, &Instant)| {
            let (routers, router) = self.routers_of(*peer)?;
            routers.session(router).established_at().map(|at| at.since(*begun))
        };
        Ok(peers.iter().zip(&begun).map(|of| since(of).unwrap_or_default()).collect())
    }

    fn session(&self, peer: PeerIndex) -> SessionView {
        let Some((routers, router)) = self.routers_of(peer) else {
            return SessionView { established: false, cause: String::new(), losses: 0 };
        };
        let (losses, cause) = routers.losses(router);
        let cause = cause.or(routers.session(router).ended()).map_or(String::new(), ToString::to_string);
        SessionView { established: routers.established(router), cause, losses }
    }

    fn watch(&mut self, observer: PeerIndex, origin: PeerIndex, routes: &Arc<Routes>) -> WatchIndex {
        let now = self.instant();
        let state = self.routing.as_mut().expect("as for the others");
        let (port, router) = state.at(observer);
        let originator = self.hosts.routers(state.places[origin].port);
        let originator = originator.map(|r| r.session(state.places[origin].router).config().router_id);
        let expected = state.expected(observer, origin, originator);
        let known = |w: &Watch| w.observer == observer && w.origin == origin && Arc::ptr_eq(&w.routes, routes);
        let Some(routers) = self.hosts.routers_mut(port) else { return 0 };
        let adj_rib_in = routers.adj_rib_in_mut(router);
        adj_rib_in.clear_skyline();
        let index = match state.watches.iter().position(known) {
            Some(index) => index,
            None => {
                let id = adj_rib_in.expect(now, routes.clone(), 0..routes.len(), expected);
                adj_rib_in.change(now, id, 0..routes.len(), false);
                state.watches.push(Watch { observer, origin, routes: routes.clone(), id, begun: now });
                state.watches.len() - 1
            }
        };
        state.watches[index].begun = now;
        index
    }

    fn expect(&mut self, watch: WatchIndex, part: Range<u32>, present: bool) {
        let now = self.instant();
        let watch = &self.state().watches[watch];
        let ((port, router), id) = (self.state().at(watch.observer), watch.id);
        if let Some(routers) = self.hosts.routers_mut(port) {
            routers.adj_rib_in_mut(router).change(now, id, part, present);
        }
    }

    fn act(&mut self, action: &RouteAction) -> Result<(), TestError> {
        let (port, act) = self.state().act(action);
        self.state_mut().note(action);
        if let Act::Link(up) = act {
            return self.switch(port, up);
        }
        let now = self.instant();
        if let Some(routers) = self.hosts.routers_mut(port) {
            act.run(now, routers);
        }
        Ok(())
    }

    fn await_settled(&mut self, watches: &[WatchIndex], patience: Duration) -> Result<Settled, TestError> {
        self.settled(watches, patience)
    }

    fn verified(&self, watch: WatchIndex) -> Verified {
        let watch = &self.state().watches[watch];
        let Some((routers, router)) = self.routers_of(watch.observer) else { return Verified::default() };
        let (adj_rib_in, r) = (routers.adj_rib_in(router), routers.adj_rib_in(router).report(watch.id));
        Verified {
            expected: r.expected.into(),
            present: u64::from(r.present) - u64::from(r.wrong.min(r.present)),
            missing: r.missing.into(),
            wrong: r.wrong.into(),
            lingering: r.unexpected.into(),
            unexpected: adj_rib_in.totals().unexpected,
            withdrawn_in_error: r.withdrawn_in_error,
            announcements: r.received,
            withdrawals: r.withdrawn,
            last_change_s: r.last_at.map(|at| at.0 as f64 / 1e9),
        }
    }

    fn missing(&self, watch: WatchIndex, limit: usize) -> Vec<Prefix> {
        let watch = &self.state().watches[watch];
        self.routers_of(watch.observer).map_or_else(Vec::new, |(r, i)| r.adj_rib_in(i).missing(watch.id, limit))
    }

    fn skyline(&self, watch: WatchIndex) -> Vec<(f64, u32)> {
        let watch = &self.state().watches[watch];
        let Some((routers, router)) = self.routers_of(watch.observer) else { return Vec::new() };
        let samples = routers.adj_rib_in(router).skyline().iter();
        samples.map(|(at, routes)| (at.since(watch.begun).as_secs_f64(), *routes)).collect()
    }

    fn times(&self, watch: WatchIndex) -> Vec<Option<f64>> {
        let watch = &self.state().watches[watch];
        let Some((routers, router)) = self.routers_of(watch.observer) else { return Vec::new() };
        let times = routers.adj_rib_in(router).times(watch.id).unwrap_or_default();
        times.iter().map(|us| (*us != u32::MAX).then(|| f64::from(*us) / 1e6)).collect()
    }

    fn reset(&mut self, patience: Duration) -> Result<(), TestError> {
        let now = self.instant();
        for place in &self.routing.as_ref().expect("as for the others").places {
            if let Some(routers) = self.hosts.routers_mut(place.port) {
                routers.stop(now, place.router);
            }
        }
        let state = self.state_mut();
        state.ended_some |= !state.wanted.is_empty();
        (state.wanted, state.speaking) = (BTreeSet::new(), BTreeSet::new());
        let deadline = now + patience;
        while !self.state().ended(&self.hosts) && self.instant() < deadline {
            self.look(&mut |_, hosts, state| state.ended(hosts))?;
        }
        self.state_mut().watches.clear();
        for place in &self.routing.as_ref().expect("as for the others").places {
            if let Some(routers) = self.hosts.routers_mut(place.port) {
                routers.clear_tables(place.router);
            }
        }
        let before = self.state().fib_before.clone();
        for (family, before) in before {
            let (mut least, mut moved_at) = (u64::MAX, self.instant());
            while let Some(left) = self.device.fib_routes(family).filter(|left| *left > before) {
                let now = self.instant();
                if left < least {
                    (least, moved_at) = (left, now);
                } else if now.since(moved_at) > patience {
                    let stay = left - before;
                    return Err(TestError::Failed(format!("{stay} {family} routes stay in the forwarding plane")));
                }
                self.look(&mut |_, _, _| false)?;
            }
        }
        Ok(())
    }

    fn dut_memory(&mut self) -> Vec<(String, u64)> {
        self.device.memory()
    }

    fn dut_fib_routes(&mut self, family: Family) -> Option<u64> {
        let before = self.state().fib_before.get(&family).copied().unwrap_or(0);
        self.device.fib_routes(family).map(|routes| routes.saturating_sub(before))
    }

    fn dut_cpu_time(&mut self) -> Option<Duration> {
        self.device.cpu_time()
    }

    fn ceiling(&self, family: Family, count: u32, packing: Packing) -> Option<Duration> {
        let per_route = self.state().ceilings.get(&(family, packing.routes_per_update))?;
        Some(Duration::from_secs_f64(per_route * f64::from(count)))
    }

    fn now_s(&self) -> f64 {
        self.instant().0 as f64 / 1e9
    }
}
