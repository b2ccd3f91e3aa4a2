//! Distribution of the routes of a table over the ports, and which port sends to which routes.

use crate::parameters::DISTRIBUTION;
use crate::report::note;
use crate::route_forwarding::{Way, await_installed};
use crate::route_probe::Probe;
use crate::route_tests::{self, Case, complaint, patience, thousands};
use crate::route_traffic::{self, Stream};
use crate::routing::{Change, Packing, PeerIndex, RouteAction, WatchIndex};
use crate::testbed::{Setting, TestError, Testbed};
use drophammer_model::outcome::Outcome;
use drophammer_model::pattern::Distribution;
use drophammer_model::quantity::FrameRate;
use drophammer_model::size::PacketSize;
use drophammer_model::suite::Params;
use drophammer_model::trial::Targets;
use std::ops::Range;

/// Load of the probes that check whether a DUT forwards to every route, for a DUT that does not report its number of
/// routes and a test whose load is unknown. Any router sustains this load.
pub const PROBE: FrameRate = FrameRate(20_000.0);

/// The routes behind one port.
#[derive(Clone, Debug)]
pub struct Behind {
    /// The peer that advertises the routes.
    pub peer: PeerIndex,
    /// Range of its routes in the table.
    pub part: Range<u32>,
}

/// A table and the distribution of its routes over the ports.
#[derive(Clone, Debug)]
pub struct Spread {
    /// The table.
    pub case: Case,
    /// The routes of the table by port.
    pub behind: Vec<Behind>,
    /// The peers of the sending ports.
    pub senders: Vec<PeerIndex>,
}

/// Result of a change of routes.
pub struct Changed {
    /// The watches of the other peers: one for each peer and each port with routes.
    pub watches: Vec<WatchIndex>,
    /// Seconds until all watches were complete.
    pub took_s: f64,
}

impl Spread {
    /// Distributes the table by the parameter `distribution`. With `non_meshed`, all routes are behind the second port
    /// and the first one sends. With `fully_meshed`, each port has the same number of routes and sends to the routes of
    /// all other ports.
    ///
    /// # Errors
    /// [`TestError::NotApplicable`] for crossed pairs; errors of [`Spread::meshed`].
    pub fn new(case: Case, params: &Params) -> Result<Spread, TestError> {
        match DISTRIBUTION.get(params) {
            Distribution::NonMeshed => {
                let behind = vec![Behind { peer: case.peers[1], part: case.whole() }];
                Ok(Spread { senders: vec![case.peers[0]], behind, case })
            }
            Distribution::Crossed => {
                let why = "crossed pairs need a test that sends between pairs of ports; here `distribution` must be `non_meshed` or `fully_meshed`";
                Err(TestError::NotApplicable(why.into()))
            }
            Distribution::FullyMeshed => Spread::meshed(case),
        }
    }

    /// Puts the same number of routes behind each port, and sends from each port to the routes of all others.
    ///
    /// # Errors
    /// [`TestError::NotApplicable`] for fewer routes than ports.
    pub fn meshed(case: Case) -> Result<Spread, TestError> {
        let (ports, count) = (case.peers.len() as u64, u64::from(case.all.len()));
        if count < ports {
            let why = format!("{count} routes are too few for {ports} ports; give at least one for each port");
            return Err(TestError::NotApplicable(why));
        }
        let start = |i: u64| (count * i / ports) as u32;
        let at = |(i, peer): (u64, &PeerIndex)| Behind { peer: *peer, part: start(i)..start(i + 1) };
        let behind = (0..).zip(&case.peers).map(at).collect();
        Ok(Spread { senders: case.peers.clone(), behind, case })
    }

    /// Returns true if more than one port sends.
    pub fn is_meshed(&self) -> bool {
        self.senders.len() > 1
    }

    /// The peers of all ports that send or have routes.
    pub fn peers(&self) -> Vec<PeerIndex> {
        let mut peers: Vec<PeerIndex> =
            self.senders.iter().copied().chain(self.behind.iter().map(|behind| behind.peer)).collect();
        peers.sort_unstable();
        peers.dedup();
        peers
    }

    /// Returns pairs of a sender and a port with routes, except the sender's own port.
    pub fn ways(&self) -> impl Iterator<Item = (PeerIndex, &Behind)> {
        let aimed = |from: PeerIndex| self.behind.iter().filter(move |b| b.peer != from && !b.part.is_empty());
        self.senders.iter().flat_map(move |from| aimed(*from).map(|behind| (*from, behind)))
    }

    /// Frames to all routes.
    pub fn streams(&self) -> Vec<Stream> {
        self.ways().map(|(from, to)| self.case.stream(from, to.peer, to.part.clone())).collect()
    }

    /// Seconds in which each route receives this many frames, from all senders together.
    pub fn duration_s(&self, frames_per_route: u32, rate: FrameRate) -> f64 {
        let frames = f64::from(self.case.all.len()) * f64::from(frames_per_route);
        frames / (rate.pps() * self.senders.len() as f64)
    }

    /// The same change at every port that has routes, as the actions of one event.
    pub fn actions(&self, change: Change) -> Vec<RouteAction> {
        self.behind.iter().map(|behind| self.case.change(change, behind.peer, behind.part.clone())).collect()
    }

    /// Seconds between two frames to a route, from all senders together.
    pub fn every_s(&self, rate: FrameRate) -> f64 {
        self.duration_s(1, rate)
    }

    /// Advertises or withdraws all routes, and waits until every other sending port has received the change.
    ///
    /// # Errors
    /// [`TestError::Failed`] with `failure` and the cause if a port did not receive it; errors of
    /// [`Routing::await_settled`](crate::Routing::await_settled).
    pub fn change(
        &self,
        bed: &mut dyn Testbed,
        params: &Params,
        change: Change,
        failure: &str,
    ) -> Result<Changed, TestError> {
        let routing = bed.routing()?;
        let begun = routing.now_s();
        let mut watches = Vec::new();
        for Behind { peer, part } in &self.behind {
            for observer in self.senders.iter().filter(|observer| *observer != peer) {
                let watch = routing.watch_part(*observer, *peer, &self.case.all, part.clone());
                routing.expect(watch, part.clone(), change == Change::Advertise);
                watches.push(watch);
            }
        }
        self.actions(change).iter().try_for_each(|action| routing.act(action))?;
        let settled = routing.await_settled(&watches, patience(params))?;
        let took_s = routing.now_s() - begun;
        if settled.complete {
            return Ok(Changed { watches, took_s });
        }
        let wrong = |watch: &&WatchIndex| {
            let v = routing.verified(**watch);
            v.present < v.expected || v.lingering > 0
        };
        let why = watches.iter().find(wrong).or(watches.first());
        let why = why.map_or(settled.cause.clone(), |watch| complaint(routing, *watch, &settled));
        Err(TestError::Failed(format!("{failure}: {why}")))
    }

    /// Waits until the DUT forwards to all routes. It then has `count` routes in total.
    ///
    /// # Errors
    /// Errors of a trial.
    pub fn await_installed(
        &self,
        bed: &mut dyn Testbed,
        params: &Params,
        outcome: &mut Outcome,
        rate: FrameRate,
        count: u64,
    ) -> Result<(), TestError> {
        for behind in &self.behind {
            let Some((from, _)) = self.ways().find(|(_, to)| to.peer == behind.peer) else { continue };
            let way = Way { stream: self.case.stream(from, behind.peer, behind.part.clone()), rate };
            await_installed(bed, params, outcome, &way, count)?;
        }
        Ok(())
    }

    /// Directs the frames of tests by frame size to the routes, or back to the hosts of the networks behind the ports.
    ///
    /// # Errors
    /// Errors of [`Testbed::set`].
    pub fn aim(&self, bed: &mut dyn Testbed, at_routes: bool) -> Result<(), TestError> {
        self.behind.iter().try_for_each(|Behind { peer, part }| {
            let (routes, first, count) = (self.case.all.clone(), part.start, part.len() as u32);
            let targets = at_routes.then_some(Targets::Routes { routes, first, count });
            let (port, family) = (self.case.port(*peer), self.case.family);
            bed.set(Setting::Aim { port, family, at: targets.as_ref() })
        })
    }

    /// The load for each frame size: the parameter `rate`, or a share of the throughput of this traffic, which is
    /// searched if no earlier test found it. The throughput of meshed traffic is measured over the routes, so during
    /// the search the DUT has only these routes.
    ///
    /// # Errors
    /// Errors of [`route_traffic::load`] and of the search.
    pub fn loads(
        &self,
        bed: &mut dyn Testbed,
        params: &Params,
        outcome: &mut Outcome,
    ) -> Result<Vec<(PacketSize, FrameRate)>, TestError> {
        let patterns = route_traffic::load_patterns_of(self.case.family, params);
        let known = route_traffic::RATE.get(params).is_some()
            || patterns.iter().all(|pattern| bed.known().throughput.contains_key(&pattern.key()));
        let mut each = |bed: &mut dyn Testbed| {
            patterns.iter().map(|p| Ok((p.size.clone(), route_traffic::load_of(bed, p, params, outcome)?))).collect()
        };
        if known || !self.is_meshed() {
            return each(bed);
        }
        route_tests::establish(bed, &self.peers(), params)?;
        self.change(bed, params, Change::Advertise, route_tests::REFUSED)?;
        self.await_installed(bed, params, &mut Outcome::default(), PROBE, self.case.all.len().into())?;
        self.aim(bed, true)?;
        let loads = each(bed);
        if !matches!(loads, Err(TestError::DutDied(_) | TestError::Interrupted | TestError::Store(_))) {
            self.aim(bed, false)?;
            bed.routing()?.reset(patience(params))?;
        }
        loads
    }

    /// The peers that have a path to the routes behind a port, at most `paths`: first the peer with the best path, then
    /// the peers of the next ports, except a port that only sends.
    pub fn holders(&self, behind: &Behind, paths: usize) -> Vec<PeerIndex> {
        let peers = &self.case.peers;
        let at = peers.iter().position(|peer| *peer == behind.peer).unwrap_or(0);
        let next = (0..peers.len()).map(|place| peers[(at + place) % peers.len()]);
        let holds = |peer: &PeerIndex| self.is_meshed() || !self.senders.contains(peer);
        next.filter(holds).take(paths).collect()
    }

    /// [`load_paths`](crate::route_forwarding::load_paths) for meshed traffic: `paths` paths to every route, each
    /// behind a different port ([`Spread::holders`]). The worst paths of all ports are advertised first.
    ///
    /// # Errors
    /// Errors of [`Spread::change`] and of a trial.
    pub fn load_paths(
        &self,
        bed: &mut dyn Testbed,
        params: &Params,
        outcome: &mut Outcome,
        paths: usize,
        rate: FrameRate,
    ) -> Result<(), TestError> {
        bed.routing()?.reset(patience(params))?;
        route_tests::establish(bed, &self.peers(), params)?;
        for place in (0..paths).rev() {
            let packing = Packing { prepend: 2 * place as u8, ..self.case.packing };
            let held = |behind: &Behind| {
                Some(Behind { peer: *self.holders(behind, paths).get(place)?, part: behind.part.clone() })
            };
            let behind = self.behind.iter().filter_map(held).collect();
            let on = Spread { case: Case { packing, ..self.case.clone() }, behind, senders: self.senders.clone() };
            if place == 0 {
                on.change(bed, params, Change::Advertise, route_tests::REFUSED)?;
            } else {
                let routing = bed.routing()?;
                on.actions(Change::Advertise).iter().try_for_each(|action| routing.act(action))?;
                let settled = routing.await_settled(&[], patience(params))?;
                if !settled.complete {
                    return Err(TestError::Failed(format!("{}: {}", route_tests::REFUSED, settled.cause)));
                }
            }
            // The number of routes does not show where they lead.
            on.await_ways(bed, params, outcome, rate)?;
        }
        Ok(())
    }

    /// Waits until frames to every route arrive at its port, as [`await_way`](crate::route_forwarding::await_way) does
    /// for one port: a probe sends one frame to each route, to all ports at the same time.
    fn await_ways(
        &self,
        bed: &mut dyn Testbed,
        params: &Params,
        outcome: &mut Outcome,
        rate: FrameRate,
    ) -> Result<(), TestError> {
        let Case { all, peers, family, .. } = &self.case;
        let from = |to: PeerIndex| {
            let at = peers.iter().position(|peer| *peer == to).unwrap_or(0);
            peers[(at + 1) % peers.len()]
        };
        let stream = |behind: &Behind| self.case.stream(from(behind.peer), behind.peer, behind.part.clone());
        let streams = self.behind.iter().filter(|behind| !behind.part.is_empty()).map(stream).collect();
        let probe = Probe { family: *family, streams, rate, per_route: false };
        let Some(left) = probe.comes_through(bed, params)? else { return Ok(()) };
        let why = format!(
            "frames to {} of {} routes did not arrive at the right port, and the loss did not shrink for {} s",
            thousands(left.lost()),
            thousands(all.len().into()),
            patience(params).as_secs_f64()
        );
        note(outcome, format!("{family}: the forwarding plane was not ready: {why}; measured nevertheless."));
        Ok(())
    }

    /// Describes the spread: `2,000 routes behind each of 12 ports`.
    pub fn text(&self) -> String {
        let count = self.behind.iter().map(|behind| behind.part.len() as u64).min().unwrap_or(0);
        match self.behind.len() {
            1 => format!("{} routes behind one port", thousands(count)),
            ports => format!("{} routes behind each of {ports} ports", thousands(count)),
        }
    }
}
