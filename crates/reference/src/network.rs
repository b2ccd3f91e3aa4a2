//! A system of routers in virtual time: several devices, connected by links, that act as one.
//!
//! A frame that leaves a core port at instant t reaches the router at the other end at t plus the delay of the link.
//! Events are processed in chronological order. At the same instant, link changes come first, then frames that arrive
//! after a delay, then the routers in order. So figures do not depend on how often the network is polled.
//!
//! # Systems of simulated routers
//!
//! `reference::Network` keeps frames that leave through edge ports until they are fetched, so figures do not depend on
//! how far ahead the clock runs (`testbed/tests/virtual_time/simulated/simulated_systems.rs`, also frame by frame). The
//! clock stops for each frame on its way to another router, because that router may send a frame that needs an answer.
//! Two routers pass about 400,000 frames per second of real time. `testbed/src/simulated/system.rs` makes the network
//! from `model::topology::System`. Sessions between routers use the addresses of their link; a chain of more than two
//! routers has no BGP.

use crate::config::{Config, ConfigError, Route};
use crate::moment::earlier;
use crate::router::Router;
use drophammer_model::Instant;
use drophammer_wire::frame::Frame;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

/// Routers and the links between them. A port that is not listed is open: it receives and sends nothing.
#[derive(Clone, Debug, Default)]
pub struct NetworkConfig {
    /// The routers.
    pub routers: Vec<Config>,
    /// Edge ports, in order, as router and port.
    pub edges: Vec<(usize, usize)>,
    /// Links between two routers, as router and port at both ends.
    pub links: Vec<[(usize, usize); 2]>,
    /// Delay of each link, in both directions; links beyond the end of this list have none.
    pub delays: Vec<Duration>,
    /// Share of the frames that each link loses in each direction, in millionths; links beyond the end of this list
    /// lose none. After [`Network::lose`], exactly this share of N frames is lost, rounded down.
    pub losses: Vec<u32>,
    /// Static routes of each router in addition to its configuration; the router uses the best one whose link is up.
    pub routes: Vec<Vec<RankedRoute>>,
    /// Time from a link change to the change of the routes at both ends.
    pub detection: Duration,
}

/// The destination of a router's port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Nowhere.
    Open,
    /// The edge port with this number.
    Edge(usize),
    /// A port of another router.
    Core { router: usize, port: usize, delay: Duration },
}

/// Losses of a link in one direction.
#[derive(Clone, Copy, Debug, Default)]
struct Loss {
    /// Share of the frames lost, in millionths.
    millionths: u32,
    /// Millionths of a frame that are still to be lost.
    owed: u32,
    /// Frames lost so far.
    lost: u64,
}

/// Millionths of a frame.
const WHOLE: u32 = 1_000_000;

impl Loss {
    /// Returns true if the next frame is lost.
    fn next(&mut self) -> bool {
        self.owed += self.millionths;
        let lost = self.owed >= WHOLE;
        if lost {
            self.owed -= WHOLE;
            self.lost += 1;
        }
        lost
    }
}

/// A scheduled change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    /// A link goes down or comes up.
    Link { link: usize, up: bool },
    /// The routers at its ends detect the change.
    Routes { link: usize, up: bool },
}

/// A frame on a link with a delay.
struct Flying {
    router: usize,
    port: usize,
    frame: Frame,
}

/// The routers.
pub struct Network {
    routers: Vec<Router>,
    /// Next deadline and next notice of each router, cached because every frame uses them.
    deadlines: Vec<(Option<Instant>, Option<Instant>)>,
    edges: Vec<(usize, usize)>,
    links: Vec<[(usize, usize); 2]>,
    /// Where each port leads, by router and port.
    places: Vec<Vec<Place>>,
    /// True for core ports, by router and port.
    core: Vec<Vec<bool>>,
    routes: Vec<Routes>,
    detection: Duration,
    /// Sorted by time; at the same instant, in the order of the requests.
    changes: BinaryHeap<Reverse<(Instant, u64, Change)>>,
    asked: u64,
    /// Sorted by arrival; at the same instant, in the order in which they were sent.
    flying: BTreeMap<(Instant, u64), Flying>,
    flown: u64,
    /// For each link, the losses at both of its ends; empty until links lose frames.
    losses: Vec<[Loss; 2]>,
    /// The share of lost frames of each link.
    lossy: Vec<u32>,
    /// Frames that left through edge ports and have not been fetched, in chronological order.
    out: VecDeque<(Instant, usize, Frame)>,
    /// Instants of the frames that another station may answer, in order.
    notices: VecDeque<Instant>,
    /// Buffer for the frames that a router sends.
    moving: Vec<(Instant, usize, Frame)>,
    now: Instant,
}

impl Network {
    /// Creates a network. All links are up.
    ///
    /// # Errors
    /// [`ConfigError`] if a router's configuration contradicts itself, or a port does not exist or is listed twice.
    pub fn new(config: NetworkConfig) -> Result<Network, ConfigError> {
        let NetworkConfig { routers, edges, links, delays, losses, routes, detection } = config;
        let mut places: Vec<Vec<Place>> = routers.iter().map(|router| vec![Place::Open; router.ports.len()]).collect();
        let mut join = |(router, port): (usize, usize), place: Place| {
            let ports: &mut Vec<Place> = places.get_mut(router).ok_or(ConfigError::NoSuchPort(port))?;
            let at = ports.get_mut(port).filter(|at| **at == Place::Open).ok_or(ConfigError::NoSuchPort(port))?;
            *at = place;
            Ok(())
        };
        for (number, edge) in edges.iter().enumerate() {
            join(*edge, Place::Edge(number))?;
        }
        for (number, [a, b]) in links.iter().enumerate() {
            let delay = delays.get(number).copied().unwrap_or_default();
            join(*a, Place::Core { router: b.0, port: b.1, delay })?;
            join(*b, Place::Core { router: a.0, port: a.1, delay })?;
        }
        let core = places.iter().map(|ports| ports.iter().map(|p| matches!(p, Place::Core { .. })).collect()).collect();
        let mut all = routers.into_iter().map(Router::new).collect::<Result<Vec<_>, _>>()?;
        let mut ranked = Vec::new();
        let none = Vec::new();
        for (i, router) in all.iter_mut().enumerate() {
            ranked.push(Routes::install(routes.get(i).unwrap_or(&none), router)?);
        }
        Ok(Network {
            deadlines: vec![(None, None); all.len()],
            routers: all,
            edges,
            links,
            places,
            core,
            routes: ranked,
            detection,
            changes: BinaryHeap::new(),
            asked: 0,
            flying: BTreeMap::new(),
            flown: 0,
            losses: Vec::new(),
            lossy: losses,
            out: VecDeque::new(),
            notices: VecDeque::new(),
            moving: Vec::new(),
            now: Instant(0),
        }
        .looked_at())
    }

    fn looked_at(mut self) -> Network {
        (0..self.routers.len()).for_each(|router| self.look(router));
        self
    }

    /// Updates the deadlines of a router that has done something.
    #[inline]
    fn look(&mut self, router: usize) {
        let one = &self.routers[router];
        self.deadlines[router] = (one.next_deadline(), one.next_notice_or_at(&self.core[router]));
    }

    /// The latest instant that was passed to the network.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The routers, in order.
    pub fn routers(&self) -> &[Router] {
        &self.routers
    }

    /// Router and port of an edge port.
    pub fn edge(&self, port: usize) -> Option<(usize, usize)> {
        self.edges.get(port).copied()
    }

    /// From now on, the links lose frames.
    pub fn lose(&mut self) {
        if self.losses.is_empty() && self.lossy.iter().any(|millionths| *millionths > 0) {
            let of = |millionths: &u32| [Loss { millionths: *millionths, ..Loss::default() }; 2];
            self.losses = self.lossy.iter().map(of).collect();
        }
    }

    /// Number of frames that the link to this port has lost; `None` if that link loses none.
    pub fn lost_before(&self, router: usize, port: usize) -> Option<u64> {
        let at = self.links.iter().position(|ends| ends.contains(&(router, port)))?;
        let loses = self.lossy.get(at).is_some_and(|millionths| *millionths > 0);
        let end = usize::from(self.links[at][1] == (router, port));
        loses.then(|| self.losses.get(at).map_or(0, |ends| ends[end].lost))
    }

    /// Returns true if the link loses the next frame to this port.
    fn loses(&mut self, router: usize, port: usize) -> bool {
        if self.losses.is_empty() {
            return false;
        }
        let Some(at) = self.links.iter().position(|ends| ends.contains(&(router, port))) else { return false };
        let end = usize::from(self.links[at][1] == (router, port));
        self.losses.get_mut(at).is_some_and(|ends| ends[end].next())
    }

    /// Changes a router (its faults, its filter) now, after all events that are due.
    ///
    /// # Panics
    /// If there is no such router.
    pub fn change<T>(&mut self, router: usize, change: impl FnOnce(&mut Router) -> T) -> T {
        self.advance(self.now);
        // The clock of an idle router lags behind.
        self.work(router);
        let done = change(&mut self.routers[router]);
        self.look(router);
        done
    }

    /// Takes a frame (without FCS) whose last bit reaches an edge port at `now`. The network may keep the frame's
    /// memory, and leaves other memory, or none, in its place.
    ///
    /// # Panics
    /// If there is no such port.
    pub fn take(&mut self, now: Instant, port: usize, frame: &mut Frame) {
        self.advance(now);
        let (router, port) = self.edges[port];
        self.routers[router].take(self.now, port, frame);
        self.look(router);
    }

    /// Like [`Network::take`], but copies the frame.
    ///
    /// # Panics
    /// If there is no such port.
    pub fn receive(&mut self, now: Instant, port: usize, frame: &[u8]) {
        self.advance(now);
        let (router, port) = self.edges[port];
        self.routers[router].receive(self.now, port, frame);
        self.look(router);
    }

    /// Processes everything that is due until `now`, and passes each frame that leaves through an edge port to `out`,
    /// in chronological order. `out` may keep the memory of the frames.
    pub fn give(&mut self, now: Instant, mut out: impl FnMut(Instant, usize, &mut Frame)) {
        self.advance(now);
        while let Some((at, port, mut frame)) = self.out.pop_front() {
            out(at, port, &mut frame);
        }
        self.notices.clear();
    }

    /// The next time when [`Network::give`] has something to do; `None` if nothing is pending.
    pub fn next_deadline(&self) -> Option<Instant> {
        let routers = self.deadlines.iter().filter_map(|deadline| deadline.0).min();
        earlier(self.out.front().map(|frame| frame.0), earlier(routers, self.next_between()))
    }

    /// Like [`Network::next_deadline`], but ignores test frames that only need to leave through an edge port. A test
    /// frame on its way to another router counts, because it may make that router send a frame that another station
    /// answers.
    pub fn next_notice(&self) -> Option<Instant> {
        let routers = self.deadlines.iter().filter_map(|deadline| deadline.1).min();
        earlier(self.notices.front().copied(), earlier(routers, self.next_between()))
    }

    /// The next time when a link changes or a frame comes out of a link with a delay.
    fn next_between(&self) -> Option<Instant> {
        earlier(self.changes.peek().map(|change| change.0.0), self.flying.first_key_value().map(|(key, _)| key.0))
    }

    /// Takes the link of an edge port down or up at `now`.
    ///
    /// # Panics
    /// If there is no such port.
    pub fn set_link(&mut self, now: Instant, port: usize, up: bool) {
        self.advance(now);
        let (router, port) = self.edges[port];
        self.routers[router].set_link(self.now, port, up);
        self.look(router);
    }

    /// Takes a link between two routers down or up at `at`, or now if that is in the past. Both ends stop using a link
    /// at that instant, and change their routes when they have detected the change ([`NetworkConfig::detection`]).
    ///
    /// # Panics
    /// If there is no such link.
    pub fn set_core_link(&mut self, at: Instant, link: usize, up: bool) {
        assert!(link < self.links.len(), "the network has no link {link}");
        self.plan(at.max(self.now), Change::Link { link, up });
        if at <= self.now {
            self.advance(self.now);
        }
    }

    fn plan(&mut self, at: Instant, change: Change) {
        self.asked += 1;
        self.changes.push(Reverse((at, self.asked, change)));
    }

    /// Processes all events until `to`.
    fn advance(&mut self, to: Instant) {
        loop {
            let due = self.deadlines.iter().enumerate().filter_map(|(i, deadline)| Some((deadline.0?, i))).min();
            let due = due.filter(|(at, _)| *at <= to);
            let landing = self.flying.first_key_value().map(|(key, _)| key.0);
            let landing = landing.filter(|landing| *landing <= to && due.is_none_or(|(at, _)| *landing <= at));
            let first = landing.or(due.map(|(at, _)| at));
            let change =
                self.changes.peek().filter(|change| change.0.0 <= to && first.is_none_or(|at| change.0.0 <= at));
            if change.is_some() {
                if let Some(Reverse((at, _, change))) = self.changes.pop() {
                    self.now = self.now.max(at);
                    self.carry_out(change);
                }
            } else if landing.is_some() {
                if let Some(((at, _), Flying { router, port, mut frame })) = self.flying.pop_first() {
                    self.now = self.now.max(at);
                    self.routers[router].take(at, port, &mut frame);
                    self.look(router);
                }
            } else if let Some((at, router)) = due {
                self.now = self.now.max(at);
                self.work(router);
            } else {
                break;
            }
        }
        self.now = self.now.max(to);
    }

    /// Lets a router do its due work now, and moves the frames that it sends.
    fn work(&mut self, router: usize) {
        let Network { routers, moving, .. } = self;
        let noticed = routers[router].next_notice().is_some_and(|at| at <= self.now);
        routers[router].give(self.now, |at, port, frame| moving.push((at, port, std::mem::take(frame))));
        self.look(router);
        let mut moving = std::mem::take(&mut self.moving);
        for (at, port, mut frame) in moving.drain(..) {
            let place = self.places[router][port];
            match place {
                Place::Open => {}
                Place::Edge(edge) => {
                    self.out.push_back((at, edge, frame));
                    if noticed {
                        self.notices.push_back(at);
                    }
                }
                Place::Core { router, port, .. } if self.loses(router, port) => {}
                Place::Core { router, port, delay } if !delay.is_zero() => {
                    self.flown += 1;
                    self.flying.insert((at + delay, self.flown), Flying { router, port, frame });
                }
                Place::Core { router, port, .. } => {
                    self.routers[router].take(at, port, &mut frame);
                    self.look(router);
                }
            }
        }
        self.moving = moving;
    }

    fn carry_out(&mut self, change: Change) {
        let (Change::Link { link, up } | Change::Routes { link, up }) = change;
        for (router, port) in self.links[link] {
            match change {
                Change::Link { .. } => self.routers[router].set_link(self.now, port, up),
                Change::Routes { .. } => self.routes[router].link(port, up, &mut self.routers[router]),
            }
            self.look(router);
        }
        if let Change::Link { .. } = change {
            self.plan(self.now + self.detection, Change::Routes { link, up });
        }
    }
}

/// A static route with its rank among the routes to the same prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankedRoute {
    /// The route; its port is a port, not a sub-interface.
    pub route: Route,
    /// The router uses the route with the lowest rank among those whose link is not known to be down.
    pub rank: u32,
}

/// The routes to one prefix.
struct Choice {
    /// The routes, in order of rank.
    routes: Vec<Route>,
    /// Index of the route in use.
    used: Option<usize>,
}

/// The routes of one router.
struct Routes {
    choices: BTreeMap<(IpAddr, u8), Choice>,
    /// Ports whose links are known to be down.
    down: BTreeSet<usize>,
}

impl Choice {
    /// Gives the router the best route whose link is not down.
    fn choose(&mut self, down: &BTreeSet<usize>, router: &mut Router) -> Result<(), ConfigError> {
        let best = self.routes.iter().position(|route| !down.contains(&route.port));
        if best == self.used {
            return Ok(());
        }
        match best.or(self.used).map(|i| (self.routes[i], best)) {
            Some((route, Some(_))) => router.add_route(route)?,
            Some((route, None)) => drop(router.remove_route(route.prefix, route.prefix_len)),
            None => {}
        }
        self.used = best;
        Ok(())
    }
}

impl Routes {
    /// Gives a router the best of `routes`, assuming that all links are up.
    ///
    /// # Errors
    /// A route that the router refuses. All routes are tried here, so none is refused later.
    fn install(routes: &[RankedRoute], router: &mut Router) -> Result<Routes, ConfigError> {
        let mut sorted = routes.to_vec();
        sorted.sort_by_key(|route| route.rank);
        let mut choices: BTreeMap<(IpAddr, u8), Choice> = BTreeMap::new();
        for RankedRoute { route, .. } in &sorted {
            router.add_route(*route)?;
            let of_prefix = choices.entry((route.prefix, route.prefix_len));
            of_prefix.or_insert(Choice { routes: Vec::new(), used: None }).routes.push(*route);
        }
        let mut routes = Routes { choices, down: BTreeSet::new() };
        routes.choose(router)?;
        Ok(routes)
    }

    fn choose(&mut self, router: &mut Router) -> Result<(), ConfigError> {
        self.choices.values_mut().try_for_each(|choice| choice.choose(&self.down, router))
    }

    /// Records that the link of a port is known to be down, or up again.
    fn link(&mut self, port: usize, up: bool, router: &mut Router) {
        let changed = if up { self.down.remove(&port) } else { self.down.insert(port) };
        if changed {
            // `install` has tried every route.
            let accepted = self.choose(router);
            debug_assert_eq!(accepted, Ok(()));
        }
    }
}
