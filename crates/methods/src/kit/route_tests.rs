//! Common parts of route tests: parameters, the peers and routes of a family, and reports of sessions that ended.

use crate::report::note;
use crate::route_traffic::Stream;
use crate::routes_sent;
use crate::routing::{Change, Packing, PeerIndex, RouteAction, Routing, Settled, WatchIndex};
use crate::testbed::{TestError, Testbed};
use drophammer_model::capabilities::Need;
use drophammer_model::outcome::Outcome;
use drophammer_model::param::{OrFit, Param};
use drophammer_model::registry::ParamSpec;
use drophammer_model::routes::{AfiSafi, GroupSizes, Order, Routes};
use drophammer_model::suite::Params;
use drophammer_model::trial::{Family, PortIndex};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Roles that a route test without traffic requires of a DUT; with traffic see [`crate::route_traffic::NEEDS`].
pub const NEEDS: &[Need] = &[Need::Bgp];

/// Source named in a deviation if no RFC defines the value.
pub const CONFORMANT: &str = "default of the profile conformant";

/// `families`
pub const FAMILIES: Param<Vec<Family>> =
    Param::new("families", "[ipv4]", "[ipv4, ipv6]", "IP versions, one after the other");
/// `table`
pub const TABLE: Param<String> = Param::fixed(
    "table",
    "internet",
    "routes: `internet` (prefix lengths and attributes distributed as in the Internet), `uniform` (one length), or an MRT file (RFC 6396)",
);
/// `order`
pub const ORDER: Param<Order> = Param::fixed(
    "order",
    "clustered",
    "order of the prefixes: ascending, grouped by attribute set, or each far from the previous one; a file keeps its own order",
);
/// `routes_per_set`
pub const PER_SET: Param<GroupSizes> = Param::fixed(
    "routes_per_set",
    "internet",
    "routes that share an attribute set: a number, or `internet` for sizes as in the Internet, 6.3 on average; a file keeps its own",
);
/// `routes_per_update`
pub const PER_UPDATE: Param<OrFit> = Param::fixed(
    "routes_per_update",
    "fit",
    "maximum number of routes in one UPDATE message: a number, or `fit` for all routes that share attributes and fit into it",
);
/// `patience`
pub const PATIENCE: Param<Duration> =
    Param::new("patience", "10 s", "60 s", "the test stops waiting for routes when nothing has changed for this long");
/// `establish`
pub const ESTABLISH: Param<Duration> = Param::new("establish", "20 s", "120 s", "time for the sessions to come up");

/// First parameters of all tests that advertise a table.
pub const TABLES: [ParamSpec; 4] = [FAMILIES.spec(), TABLE.spec(), ORDER.spec(), PER_SET.spec()];
/// Last parameters of all tests that advertise a table.
pub const SESSIONS: [ParamSpec; 3] = [PER_UPDATE.spec(), PATIENCE.spec(), ESTABLISH.spec()];

/// The parameter `patience`; half a minute if the test does not have it.
pub fn patience(params: &Params) -> Duration {
    PATIENCE.find(params).unwrap_or(Duration::from_secs(30))
}

/// Number of IP versions, for estimates.
pub fn families(params: &Params) -> f64 {
    FAMILIES.get(params).len() as f64
}

/// How routes are packed according to the parameter `routes_per_update`; full messages if the test does not have it.
pub fn packing(params: &Params) -> Packing {
    let asked = PER_UPDATE.find(params).and_then(|OrFit(asked)| asked);
    Packing { routes_per_update: asked.unwrap_or(0), ..Packing::default() }
}

/// Reason why a test cannot continue if the router did not re-advertise its routes.
pub const REFUSED: &str = "the router did not accept the table";

/// Peers and routes of a route test for one family.
#[derive(Clone, Debug)]
pub struct Case {
    /// IP version of sessions and routes.
    pub family: Family,
    /// One session per port, in the order of the ports.
    pub peers: Vec<PeerIndex>,
    /// Port of each peer, by peer index.
    pub ports: Vec<PortIndex>,
    /// Packing of routes in UPDATEs.
    pub packing: Packing,
    /// The routes.
    pub all: Arc<Routes>,
}

impl Case {
    /// `count` routes according to the parameters `table`, `order`, `routes_per_set` and `routes_per_update`, on at
    /// least `least` ports.
    ///
    /// # Errors
    /// If fewer ports have a session, or if a file cannot be read or has too few routes.
    pub fn new(
        bed: &mut dyn Testbed,
        family: Family,
        params: &Params,
        least: usize,
        count: u32,
    ) -> Result<Case, TestError> {
        let peers = one_per_port(bed, family, least)?;
        let packing = packing(params);
        let routing = bed.routing()?;
        let all = routing.table(&routes_sent::choice(params), AfiSafi::unicast(family), count)?;
        let ports = routing.peers().iter().map(|peer| peer.port).collect();
        Ok(Case { family, peers, ports, packing, all })
    }

    /// Port of a peer.
    pub fn port(&self, peer: PeerIndex) -> PortIndex {
        self.ports[peer]
    }

    /// Indices of all routes.
    pub fn whole(&self) -> Range<u32> {
        0..self.all.len()
    }

    /// Advertises or withdraws a part of the routes.
    pub fn change(&self, change: Change, peer: PeerIndex, part: Range<u32>) -> RouteAction {
        RouteAction::Routes { peer, change, routes: self.all.clone(), part, packing: self.packing }
    }

    /// Advertises a part of the routes.
    pub fn advertise(&self, peer: PeerIndex, part: Range<u32>) -> RouteAction {
        self.change(Change::Advertise, peer, part)
    }

    /// Withdraws a part of the routes.
    pub fn withdraw(&self, peer: PeerIndex, part: Range<u32>) -> RouteAction {
        self.change(Change::Withdraw, peer, part)
    }

    /// Frames from the port of one peer to routes behind the port of another peer, counted by family.
    pub fn stream(&self, from: PeerIndex, to: PeerIndex, part: Range<u32>) -> Stream {
        Stream {
            group: self.family.to_string(),
            from: self.port(from),
            to: self.port(to),
            also: Vec::new(),
            routes: self.all.clone(),
            part,
        }
    }

    /// Brings two sessions up, advertises all routes from `origin` and waits until `observer` has them.
    ///
    /// # Errors
    /// If a session does not come up, or routes are not re-advertised.
    pub fn load(
        &self,
        bed: &mut dyn Testbed,
        params: &Params,
        origin: PeerIndex,
        observer: PeerIndex,
    ) -> Result<WatchIndex, TestError> {
        establish(bed, &[origin, observer], params)?;
        let watch = bed.routing()?.watch(observer, origin, &self.all);
        let settled = follow(bed, params, &self.advertise(origin, self.whole()), watch)?;
        must_be_complete(bed, watch, &settled, || REFUSED.into())?;
        Ok(watch)
    }
}

/// Changes routes and waits until the watch of another peer is complete, or the patience of the test ends.
///
/// # Errors
/// Errors of [`Routing::await_settled`].
pub fn follow(
    bed: &mut dyn Testbed,
    params: &Params,
    action: &RouteAction,
    watch: WatchIndex,
) -> Result<Settled, TestError> {
    let routing = bed.routing()?;
    if let RouteAction::Routes { change, part, .. } = action {
        routing.expect(watch, part.clone(), *change == Change::Advertise);
    }
    routing.act(action)?;
    routing.await_settled(&[watch], PATIENCE.get(params))
}

/// # Errors
/// [`TestError::Failed`] with `failure` and the complaint about the watch, if the watch is not complete.
pub fn must_be_complete(
    bed: &mut dyn Testbed,
    watch: WatchIndex,
    settled: &Settled,
    failure: impl FnOnce() -> String,
) -> Result<(), TestError> {
    if settled.complete {
        return Ok(());
    }
    Err(TestError::Failed(format!("{}: {}", failure(), complaint(bed.routing()?, watch, settled))))
}

/// The first session of each port in `family`, in the order of the ports.
///
/// # Errors
/// If fewer than `least` ports have a session.
pub fn one_per_port(bed: &mut dyn Testbed, family: Family, least: usize) -> Result<Vec<PeerIndex>, TestError> {
    let mut ports: Vec<PortIndex> = Vec::new();
    let mut found = Vec::new();
    for (index, peer) in bed.routing()?.peers().iter().enumerate() {
        if peer.family == family && !ports.contains(&peer.port) {
            ports.push(peer.port);
            found.push(index);
        }
    }
    if found.len() < least {
        return Err(TestError::NotApplicable(format!(
            "this test needs {least} ports with {family} sessions, but the suite has {}",
            found.len()
        )));
    }
    Ok(found)
}

/// Brings sessions up from scratch.
///
/// # Errors
/// Errors of [`Routing::establish`].
pub fn establish(bed: &mut dyn Testbed, peers: &[PeerIndex], params: &Params) -> Result<Vec<Duration>, TestError> {
    bed.routing()?.establish(peers, ESTABLISH.get(params))
}

/// The sessions of `peers` that went down since they were established, each with its cause.
pub fn losses(routing: &dyn Routing, peers: &[PeerIndex]) -> Vec<String> {
    let lost = |peer: &PeerIndex| {
        let session = routing.session(*peer);
        let name = &routing.peers()[*peer].name;
        (session.losses > 0).then(|| format!("the session of {name} went down: {}", session.cause))
    };
    peers.iter().filter_map(lost).collect()
}

/// Notes the sessions of `peers` that went down since they were established.
///
/// # Errors
/// Errors of a bed without emulated routers.
pub fn note_losses(
    bed: &mut dyn Testbed,
    family: Family,
    peers: &[PeerIndex],
    outcome: &mut Outcome,
) -> Result<(), TestError> {
    for lost in losses(bed.routing()?, peers) {
        note(outcome, format!("{family}: {lost}"));
    }
    Ok(())
}

/// Describes what is missing from an incomplete watch.
pub fn complaint(routing: &dyn Routing, watch: WatchIndex, settled: &Settled) -> String {
    let v = routing.verified(watch);
    let mut found = Vec::new();
    let mut add = |count: u64, what: &str| {
        if count > 0 {
            found.push(format!("{count} {what}"));
        }
    };
    add(v.missing, "missing");
    add(v.wrong, "with wrong attributes");
    add(v.lingering, "not withdrawn");
    add(v.unexpected, "unexpected");
    add(v.withdrawn_in_error, "withdrawn in error");
    if !settled.cause.is_empty() {
        found.push(settled.cause.clone());
    }
    found.join(", ")
}

/// Total memory of all daemons of the DUT, in MiB; `None` if unknown.
pub fn memory_mib(memory: &[(String, u64)]) -> Option<f64> {
    (!memory.is_empty()).then(|| memory.iter().map(|(_, bytes)| *bytes).sum::<u64>() as f64 / 1_048_576.0)
}

/// If the tester alone needs this share of a time, the tester limits the time.
pub const TESTER_LIMITED: f64 = 0.5;

/// Returns true if the tester was late for so long that the time is the tester's, not the DUT's.
pub fn tester_late(settled: &Settled, time_s: f64) -> bool {
    settled.sending.late_s > TESTER_LIMITED * time_s
}

/// Routes per second; `None` for a time shorter than 1 µs, the resolution of the times of UPDATEs.
pub fn rate(routes: u64, time_s: f64) -> Option<f64> {
    (time_s > 1e-6).then(|| routes as f64 / time_s)
}

/// A number of routes with separators: `200,000`.
pub fn thousands(routes: u64) -> String {
    let digits = routes.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Ends the sessions and withdraws the routes after a test that ended with `ended`, so that the next test can start.
/// Does nothing for a DUT that has died.
///
/// # Errors
/// Errors of [`Routing::reset`].
pub fn clear(bed: &mut dyn Testbed, ended: &Result<(), TestError>, patience: Duration) -> Result<(), TestError> {
    match ended {
        Err(TestError::DutDied(_) | TestError::Interrupted | TestError::Store(_)) => Ok(()),
        _ => bed.routing()?.reset(patience),
    }
}

/// Runs `each` for every family of the test and reports the sent routes ([`routes_sent`]). After each family it ends
/// the sessions and withdraws the routes. If a family does not apply, it adds a note and still runs the others.
///
/// # Errors
/// The first error other than [`TestError::NotApplicable`]; that error if no family applied.
pub fn for_each_family(
    bed: &mut dyn Testbed,
    params: &Params,
    outcome: &mut Outcome,
    mut each: impl FnMut(&mut dyn Testbed, Family, &mut Outcome) -> Result<(), TestError>,
) -> Result<(), TestError> {
    let (mut skipped, mut done, mut ended) = (Vec::new(), 0, Ok(()));
    for family in FAMILIES.get(params) {
        let before = routes_sent::so_far(bed);
        let result = each(bed, family, outcome);
        routes_sent::report(outcome, family, params, routes_sent::so_far(bed) - before);
        let cleared = clear(bed, &result, PATIENCE.get(params));
        ended = match result {
            Ok(()) => {
                done += 1;
                cleared
            }
            Err(TestError::NotApplicable(why)) => {
                skipped.push((family, why));
                cleared
            }
            Err(other) => Err(other),
        };
        if ended.is_err() {
            break;
        }
    }
    for (family, why) in &skipped {
        note(outcome, format!("{family} not tested: {why}"));
    }
    ended?;
    match skipped.into_iter().next() {
        Some((_, why)) if done == 0 => Err(TestError::NotApplicable(why)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_takes_time() {
        assert_eq!((rate(500, 0.25), rate(500, 0.0), rate(500, 1e-9)), (Some(2_000.0), None, None));
    }

    #[test]
    fn numbers_for_people() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(40_000), "40,000");
        assert_eq!(thousands(2_400_000), "2,400,000");
    }
}
