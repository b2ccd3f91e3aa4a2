//! The emulated BGP routers of a test setup, and the operations that tests perform on them.

mod actions;
pub(crate) mod carried;
mod settling;
mod standing;
mod tables;

use crate::bench::{Bench, Failure, failed};
use crate::config::device_of;
use crate::host::HostSince;
use drophammer_emulation::bgp::{ExpectationId, Expected, RouteSource, Routers};
use drophammer_methods::routing::{PeerIndex, RoutesSent, TableChoice, WatchIndex};
use drophammer_methods::{
    ControlPlane, Packing, PeerView, RouteAction, Routing, SessionView, Settled, TestError, Trace, Verified,
};
use drophammer_model::Instant;
use drophammer_model::routes::{AfiSafi, Prefix, RouteKind, Routes};
use drophammer_model::suite::{PortBgp, PortConfig};
use drophammer_model::trial::{Family, PortIndex};
use drophammer_rig::{Act, Action, Hosts, RouterPlace, Select, SessionIndex, Until};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
pub(crate) use tables::routes as table_of;

/// Time that the tester itself needs: seconds per route, by family and routes per UPDATE.
pub type RouteCeilings = BTreeMap<(AfiSafi, u16), f64>;

/// A comparison of the routes that one router receives from the DUT with those that another router advertised.
struct Watch {
    observer: PeerIndex,
    origin: PeerIndex,
    routes: Arc<Routes>,
    part: Range<u32>,
    id: ExpectationId,
    begun: Instant,
}

/// The emulated routers and their state in a test.
pub struct RoutingState {
    peers: Vec<PeerView>,
    /// The rig's session of each peer. The sessions of VPN routers follow; only actions refer to these by their index here.
    sessions: Vec<SessionIndex>,
    /// The DUT's address for each peer.
    duts: Vec<IpAddr>,
    dut_as: u32,
    /// True if the DUT uses itself as next hop of external routes for internal peers.
    next_hop_self: bool,
    /// What routes have in addition to prefixes.
    kind: RouteKind,
    /// True if sessions are signed with a key (RFC 2385).
    md5: bool,
    /// Sessions that must be up.
    wanted: BTreeSet<PeerIndex>,
    /// Sessions that may have UPDATEs to send.
    advertising: BTreeSet<PeerIndex>,
    watches: Vec<Watch>,
    /// Number of routes in the forwarding plane before the first session, by family.
    fib_before: BTreeMap<Family, u64>,
    tables: Vec<((TableChoice, AfiSafi, u32), Arc<Routes>)>,
    seed: u64,
    /// Time that the tester itself needs for routes.
    pub ceilings: RouteCeilings,
    /// True if a session was ended. The DUT may refuse a new one for a while.
    pub(crate) ended_some: bool,
    /// Readings at the time since which the host is watched.
    watched: Option<HostSince>,
}

impl RoutingState {
    /// The routers of `ports`, which [`crate::config::hosts_and_routers`] configures in the rig.
    fn new(ports: &[PortConfig], hosts: &Hosts, seed: u64) -> RoutingState {
        let bgp = ports.iter().find_map(|port| port.bgp.as_ref());
        let (mut peers, mut duts, mut places) = (Vec::new(), Vec::new(), Vec::new());
        for (port, config) in ports.iter().enumerate() {
            let Some(PortBgp { asn, .. }) = config.bgp else { continue };
            let mut routers = BTreeMap::new();
            for link in config.peer_links() {
                let device = device_of(&link);
                let vlan = link.vlan.map_or(String::new(), |i| format!(" {}", config.vlans[i]));
                for (index, address) in link.peers.into_iter().enumerate() {
                    let number = if index == 0 { String::new() } else { format!(".{}", index + 1) };
                    let name = format!("{}{vlan}{number}", config.name);
                    peers.push(PeerView { name, port, family: link.family, asn, address });
                    duts.push(link.addressing.dut);
                    let router = routers.entry(device).or_default();
                    places.push(RouterPlace { port, device, router: *router });
                    *router += 1;
                }
            }
        }
        let session_at: HashMap<RouterPlace, SessionIndex> =
            (0..hosts.sessions()).map(|session| (hosts.place(session), session)).collect();
        let mut sessions: Vec<SessionIndex> = places.iter().map(|place| session_at[place]).collect();
        let of_peers: HashSet<SessionIndex> = sessions.iter().copied().collect();
        sessions.extend((0..hosts.sessions()).filter(|session| !of_peers.contains(session)));
        RoutingState {
            peers,
            sessions,
            duts,
            dut_as: bgp.map_or(0, |bgp| bgp.dut_as),
            next_hop_self: bgp.is_some_and(|bgp| bgp.next_hop_self),
            kind: bgp.map_or(RouteKind::Unicast, |bgp| bgp.routes),
            md5: bgp.is_some_and(|bgp| bgp.protection.md5.is_some()),
            wanted: BTreeSet::new(),
            advertising: BTreeSet::new(),
            watches: Vec::new(),
            fib_before: BTreeMap::new(),
            tables: Vec::new(),
            seed,
            ceilings: RouteCeilings::new(),
            ended_some: false,
            watched: None,
        }
    }

    /// The router of a peer, and its number on its device.
    fn router<'h>(&self, hosts: &'h Hosts, peer: PeerIndex) -> Option<(&'h Routers, usize)> {
        hosts.session(self.sessions[peer])
    }

    /// The rig's sessions of these peers.
    fn sessions_of<'p>(&self, peers: impl IntoIterator<Item = &'p PeerIndex>) -> Vec<SessionIndex> {
        peers.into_iter().map(|peer| self.sessions[*peer]).collect()
    }

    /// The index by which actions name the router of a session.
    pub(crate) fn index_of(&self, session: SessionIndex) -> Option<PeerIndex> {
        self.sessions.iter().position(|known| *known == session)
    }

    /// Returns the origin's routes as the observer must receive them. `id` is the origin's BGP identifier.
    fn expected(&self, observer: PeerIndex, origin: PeerIndex, id: Option<Ipv4Addr>) -> Expected {
        let (from, dut) = (&self.peers[origin], self.duts[observer]);
        let internal = |peer: &PeerView| peer.asn == self.dut_as;
        let inside = internal(&self.peers[observer]);
        // RFC 4271 section 5.1.2: each AS prepends itself when it advertises to another one.
        let added = [(!inside).then_some(self.dut_as), (!internal(from)).then_some(from.asn)];
        // Section 5.1.3. For reflected routes, RFC 4456 section 10 requires it whatever is configured.
        let unchanged = inside && (internal(from) || !self.next_hop_self);
        Expected {
            source: id.filter(|_| internal(from)).map_or(RouteSource::External, RouteSource::Internal),
            as_path_prefix: added.into_iter().flatten().collect(),
            next_hop: Some(if unchanged { from.address } else { dut }),
            check_attributes: true,
            times: true,
            labels: false,
            label: None,
        }
    }
}

/// Number of sessions that are started at the same time. A router queues only a few connections that it has not yet
/// accepted (OpenBGPD: 5), and TCP retries a dropped connection only after a second.
const AT_ONCE: usize = 4;
/// How often to check that the DUT is alive.
const LOOK: Duration = Duration::from_millis(50);
/// How long sessions that an earlier test left may take to end.
const SESSIONS_END: Duration = Duration::from_secs(10);
/// How long withdrawn routes may stay in the forwarding plane without any change. Four routers that shared a processor
/// paused for more than ten seconds between two batches.
const LEAVING: Duration = Duration::from_secs(60);

/// A test's view of the emulated routers on their bench. There are no peers without BGP.
pub struct BgpRouting<'a> {
    /// Rig and DUT.
    pub bench: Bench<'a>,
    /// The routers.
    pub state: RoutingState,
}

impl<'a> BgpRouting<'a> {
    /// Returns the routers of the rig on `bench`. `ports` are its ports as the suite configures them.
    pub(crate) fn new(bench: Bench<'a>, ports: &[PortConfig], seed: u64) -> BgpRouting<'a> {
        let ports = if bench.rig.sessions() == 0 { &[] } else { ports };
        let state = RoutingState::new(ports, bench.rig.hosts(), seed);
        BgpRouting { bench, state }
    }

    /// The router of a peer, and its number on its device.
    pub(crate) fn router(&self, peer: PeerIndex) -> Option<(&Routers, usize)> {
        self.state.router(self.bench.rig.hosts(), peer)
    }

    /// Like [`BgpRouting::router`], but mutable.
    pub(crate) fn router_mut(&mut self, peer: PeerIndex) -> Option<(&mut Routers, usize)> {
        self.bench.rig.session_mut(self.state.sessions[peer])
    }

    /// Ends the sessions that an earlier test left up, before the protocols of their devices change.
    ///
    /// # Errors
    /// As for [`Routing::reset`].
    pub(crate) fn end_sessions(&mut self) -> Result<(), TestError> {
        if self.state.wanted.is_empty() { Ok(()) } else { Routing::reset(self, SESSIONS_END) }
    }

    fn instant(&self) -> Instant {
        self.bench.rig.now()
    }

    /// Serves the routers until `until` is true, for at most [`LOOK`], and checks that the DUT is alive.
    fn look(&mut self, until: Until) -> Result<(), TestError> {
        let end = self.instant() + LOOK;
        self.look_until(until, end).map(|_| ())
    }

    /// Like `look`, but no longer than until `end`. Returns the time at which the wait ended.
    fn look_until(&mut self, until: Until, end: Instant) -> Result<Instant, TestError> {
        let bench = &mut self.bench;
        let ended = match bench.serve_until(&until.or_at(end)) {
            Ok(at) => at,
            // The port may recover. A wait that fails reports the problem.
            Err(Failure::Port(_)) => bench.rig.now(),
            Err(Failure::Test(e)) => return Err(e),
        };
        bench.check_device()?;
        Ok(ended)
    }

    /// Translates actions into acts at ports and marks them as done.
    ///
    /// # Errors
    /// [`TestError::NotApplicable`] for a link that cannot be switched.
    pub(crate) fn acts(&mut self, actions: &[Vec<RouteAction>]) -> Result<Vec<Vec<(PortIndex, Act)>>, TestError> {
        let mut acts = Vec::new();
        for at_once in actions {
            for action in at_once {
                // Fails immediately if the link cannot be switched.
                if let RouteAction::Link { port, .. } = action {
                    let up = self.bench.rig.command(*port, &Act::Link(true));
                    up.map_err(|e| TestError::NotApplicable(e.to_string()))?;
                }
                self.state.note(action);
            }
            acts.push(at_once.iter().map(|action| self.state.act(self.bench.rig.hosts(), action)).collect());
        }
        Ok(acts)
    }
}

impl Routing for BgpRouting<'_> {
    fn peers(&self) -> &[PeerView] {
        &self.state.peers
    }

    fn sent(&self) -> RoutesSent {
        let hosts = self.bench.rig.hosts();
        let of = (0..self.state.peers.len()).filter_map(|peer| {
            let (routers, router) = self.state.router(hosts, peer)?;
            Some(routers.advertised(router))
        });
        of.fold(RoutesSent::default(), |sum, sent| RoutesSent {
            advertised: sum.advertised + sent.advertised,
            withdrawn: sum.withdrawn + sent.withdrawn,
            updates: sum.updates + sent.updates,
            sets: sum.sets + sent.sets,
        })
    }

    fn table(&mut self, choice: &TableChoice, afi_safi: AfiSafi, count: u32) -> Result<Arc<Routes>, TestError> {
        let key = (choice.clone(), afi_safi, count);
        if let Some((_, routes)) = self.state.tables.iter().find(|(known, _)| *known == key) {
            return Ok(routes.clone());
        }
        let seed = self.state.seed;
        let routes = tables::routes(choice, afi_safi, Some(count), seed)?;
        let routes = Arc::new(routes);
        self.state.tables.push((key, routes.clone()));
        Ok(routes)
    }

    fn ready_for_sessions(&mut self) -> Result<(), TestError> {
        for family in [Family::Ipv4, Family::Ipv6] {
            // Do not read a known count again: a caller may measure the time from here.
            if self.state.wanted.is_empty()
                && !self.state.fib_before.contains_key(&family)
                && let Some(routes) = self.bench.fib_routes(family)
            {
                self.state.fib_before.entry(family).or_insert(routes);
            }
        }
        if std::mem::take(&mut self.state.ended_some) {
            self.bench.device.sessions_ended().map_err(failed)?;
        }
        Ok(())
    }

    fn establish(&mut self, peers: &[PeerIndex], within: Duration) -> Result<Vec<Duration>, TestError> {
        self.ready_for_sessions()?;
        let deadline = self.instant() + within;
        let (mut some, mut begun) = (peers.chunks(AT_ONCE), Vec::with_capacity(peers.len()));
        loop {
            let Some((peer, cause)) = self.state.lost(self.bench.rig.hosts()) else {
                let Some(next) = some.next() else { break };
                for peer in next {
                    let now = self.instant();
                    let session = self.state.sessions[*peer];
                    self.bench.rig.protocols(Select::These(&[session]), Action::Start);
                    self.state.wanted.insert(*peer);
                    begun.push(now);
                }
                continue;
            };
            self.look(Until::Established(self.state.sessions_of(&self.state.wanted)))?;
            if self.instant() > deadline {
                self.bench.port_works()?;
                let waiting = peers.iter().filter(|p| !self.session(**p).established).count();
                let state = self.router(peer).map(|(routers, router)| routers.session(router).state());
                let peer = &self.state.peers[peer];
                // A segment with a wrong signature is dropped without an answer (RFC 2385 section 2.0). This looks like silence.
                let key = if self.state.md5 { "; with `bgp: {md5}` the keys of the two sides may differ" } else { "" };
                return Err(TestError::Failed(format!(
                    "the BGP session of {} ({}) is not up after {} s but in state {}; it last ended because {cause}; {waiting} of {} \
                     sessions are not up yet{key}",
                    peer.name,
                    peer.address,
                    within.as_secs_f64(),
                    state.map_or("none".to_owned(), |state| format!("{state:?}")),
                    peers.len()
                )));
            }
        }
        let since = |(peer, begun): (&PeerIndex, &Instant)| {
            let (routers, router) = self.router(*peer)?;
            routers.session(router).established_at().map(|at| at.since(*begun))
        };
        Ok(peers.iter().zip(&begun).map(|of| since(of).unwrap_or_default()).collect())
    }

    fn session(&self, peer: PeerIndex) -> SessionView {
        let Some((routers, router)) = self.router(peer) else {
            return SessionView { established: false, cause: String::new(), losses: 0 };
        };
        let (losses, cause) = routers.losses(router);
        let cause = routers.explain(router, cause.or(routers.session(router).ended())).unwrap_or_default();
        SessionView { established: routers.established(router), cause, losses }
    }

    fn watch_part(
        &mut self,
        observer: PeerIndex,
        origin: PeerIndex,
        routes: &Arc<Routes>,
        part: Range<u32>,
    ) -> WatchIndex {
        let now = self.instant();
        let originator = self.router(origin);
        let originator = originator.map(|(routers, router)| routers.session(router).config().router_id);
        let BgpRouting { bench, state } = self;
        let expected = state.expected(observer, origin, originator);
        let known = |w: &Watch| {
            (w.observer, w.origin) == (observer, origin) && Arc::ptr_eq(&w.routes, routes) && w.part == part
        };
        let Some((routers, router)) = bench.rig.session_mut(state.sessions[observer]) else { return 0 };
        let adj_rib_in = routers.adj_rib_in_mut(router);
        adj_rib_in.clear_skyline();
        let index = match state.watches.iter().position(known) {
            Some(index) => index,
            None => {
                let id = carried::expect(adj_rib_in, now, state.kind, (routes, part.clone()), expected);
                adj_rib_in.change(now, id, part.clone(), false);
                state.watches.push(Watch { observer, origin, routes: routes.clone(), part, id, begun: now });
                state.watches.len() - 1
            }
        };
        state.watches[index].begun = now;
        index
    }

    fn expect(&mut self, watch: WatchIndex, part: Range<u32>, present: bool) {
        let now = self.instant();
        let Watch { observer, id, .. } = self.state.watches[watch];
        if let Some((routers, router)) = self.router_mut(observer) {
            routers.adj_rib_in_mut(router).change(now, id, part, present);
        }
    }

    fn act(&mut self, action: &RouteAction) -> Result<(), TestError> {
        let (port, act) = self.state.act(self.bench.rig.hosts(), action);
        self.state.note(action);
        self.bench.rig.command(port, &act).map_err(|e| TestError::NotApplicable(e.to_string()))
    }

    fn await_settled(&mut self, watches: &[WatchIndex], patience: Duration) -> Result<Settled, TestError> {
        self.settled(watches, patience)
    }

    fn watch_host(&mut self) {
        self.state.watched = Some(self.bench.watch_host());
    }

    fn disturbed(&mut self) -> Vec<String> {
        self.state.watched.take().map_or_else(Vec::new, |since| self.bench.disturbed(since))
    }

    fn verified(&self, watch: WatchIndex) -> Verified {
        let watch = &self.state.watches[watch];
        let Some((routers, router)) = self.router(watch.observer) else { return Verified::default() };
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
        let watch = &self.state.watches[watch];
        let session = self.router(watch.observer);
        session.map_or_else(Vec::new, |(r, i)| r.adj_rib_in(i).missing(watch.id, limit))
    }

    fn trace(&self, watch: WatchIndex) -> Trace {
        let watch = &self.state.watches[watch];
        let Some((routers, router)) = self.router(watch.observer) else { return Trace::default() };
        let adj_rib_in = routers.adj_rib_in(router);
        let samples = adj_rib_in.skyline().iter();
        let skyline = samples.map(|(at, routes)| (at.since(watch.begun).as_secs_f64(), *routes)).collect();
        let times = adj_rib_in.times(watch.id).unwrap_or_default();
        let times = times.iter().map(|us| (*us != u32::MAX).then(|| f64::from(*us) / 1e6)).collect();
        Trace { skyline, times }
    }

    fn reset(&mut self, patience: Duration) -> Result<(), TestError> {
        let now = self.instant();
        self.bench.rig.protocols(Select::All, Action::Stop);
        let state = &mut self.state;
        state.ended_some |= !state.wanted.is_empty();
        (state.wanted, state.advertising) = (BTreeSet::new(), BTreeSet::new());
        let deadline = now + patience;
        let ended = self.state.ended();
        while !self.bench.rig.holds(&ended) && self.instant() < deadline {
            self.look(ended.clone())?;
        }
        self.state.watches.clear();
        for peer in 0..self.state.peers.len() {
            if let Some((routers, router)) = self.router_mut(peer) {
                routers.clear_tables(router);
            }
        }
        let before = self.state.fib_before.clone();
        for (family, before) in before {
            let (mut least, mut moved_at) = (u64::MAX, self.instant());
            while let Some(left) = self.bench.fib_routes(family).filter(|left| *left > before) {
                let now = self.instant();
                if left < least {
                    (least, moved_at) = (left, now);
                } else if now.since(moved_at) > patience.max(LEAVING) {
                    let stay = left - before;
                    return Err(TestError::Failed(format!("{stay} {family} routes stay in the forwarding plane")));
                }
                self.look(Until::At(now + LOOK))?;
            }
        }
        Ok(())
    }

    fn dut(&mut self) -> &mut dyn ControlPlane {
        self
    }

    fn ceiling(&self, afi_safi: AfiSafi, count: u32, packing: Packing) -> Option<Duration> {
        let per_route = self.state.ceilings.get(&(afi_safi, packing.routes_per_update))?;
        Some(Duration::from_secs_f64(per_route * f64::from(count)))
    }

    fn now_s(&self) -> f64 {
        self.instant().0 as f64 / 1e9
    }
}

impl ControlPlane for BgpRouting<'_> {
    fn memory(&mut self) -> Vec<(String, u64)> {
        self.bench.device.usage().map(|usage| usage.memory()).unwrap_or_default()
    }

    fn fib_routes(&mut self, family: Family) -> Option<u64> {
        let before = self.state.fib_before.get(&family).copied().unwrap_or(0);
        self.bench.fib_routes(family).map(|routes| routes.saturating_sub(before))
    }

    fn cpu_time(&mut self) -> Option<Duration> {
        self.bench.device.usage()?.cpu_time()
    }
}
