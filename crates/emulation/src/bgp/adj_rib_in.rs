//! Compares the routes that a peer advertises with the expected routes: prefix by prefix, attribute by attribute. A route costs
//! three bits, and a fourth one during a refresh.

mod labels;
mod learned;
mod skyline;
mod verdict;
mod vpn;
mod watched;

use super::{Heard, Negotiated};
use crate::expectation::Verification;
use drophammer_model::Instant;
use drophammer_model::routes::{Prefix, RouteAttributes, Routes};
use drophammer_wire::bgp::update::{Context, FamilySet, Fault, LabelStacks, Nlri, Treatment, Update, nlri, walker};
use drophammer_wire::bgp::{AfiSafi, Notification};
use learned::Learned;
pub use learned::{LearnedAttributes, LearnedRoute};
use skyline::Skyline;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::sync::Arc;
use verdict::{Verdict, judge};
pub use vpn::{Distinguishers, VpnFault, VpnFaultKind, VpnPart};
use watched::{Found, RouteKeys, Watched};
pub use watched::{RouteKey, RoutePart};

/// Maximum number of stored unexpected routes; more are only counted.
const MOST_UNEXPECTED: usize = 1_000;

/// Origin of the routes that the session's peer advertises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RouteSource {
    /// Routes of the peer itself: it sends their MED, and to an internal peer their LOCAL_PREF.
    #[default]
    Peer,
    /// Routes of an external neighbour of the peer.
    External,
    /// Routes of an internal neighbour of the peer with this BGP identifier. The peer reflects them to internal sessions (RFC
    /// 4456).
    Internal(Ipv4Addr),
}

/// Expected properties of the routes of an expectation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// Their origin, which determines the expected MED, LOCAL_PREF, ORIGINATOR_ID and CLUSTER_LIST.
    pub source: RouteSource,
    /// ASes that routers on the way have prepended to the path of [`drophammer_model::routes::RouteAttributes`].
    pub as_path_prefix: Vec<u32>,
    /// Next hop, the global one for IPv6; `None` accepts any.
    pub next_hop: Option<IpAddr>,
    /// True to compare AS path, origin, MED, communities and the attributes of internal BGP with the sent ones.
    pub check_attributes: bool,
    /// True to store the time of each route (4 bytes per route).
    pub times: bool,
    /// True to store the labels of each route: 4 bytes per VRF if all its routes have the same label, otherwise 4 bytes per route.
    pub labels: bool,
    /// The only label of each route, which a route reflector does not change; `None` accepts any.
    pub label: Option<u32>,
}

/// Identifies an expectation of one Adj-RIB-In.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExpectationId(usize);

/// State of an expectation of routes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Counts of present, missing, wrong and unexpected routes.
    pub routes: Verification,
    /// Advertisements with a wrong next hop since the beginning.
    pub wrong_next_hop: u64,
    /// Advertisements with a wrong AS path since the beginning.
    pub wrong_as_path: u64,
    /// Advertisements with another wrong attribute since the beginning.
    pub wrong_attributes: u64,
    /// Advertisements of VPN routes whose route targets do not match their VRF, since the beginning.
    pub wrong_target: u64,
    /// Advertisements of VPN routes with the route target or the prefix of another VRF, since the beginning.
    pub wrong_vrf: u64,
}

impl std::ops::Deref for Verified {
    type Target = Verification;

    fn deref(&self) -> &Verification {
        &self.routes
    }
}

/// Counts of everything received since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// UPDATEs.
    pub updates: u64,
    /// Bytes of UPDATE bodies.
    pub bytes: u64,
    /// Announced routes.
    pub announcements: u64,
    /// Withdrawn routes, including those treated as withdrawn.
    pub withdrawals: u64,
    /// Announced routes outside all expectations.
    pub unexpected: u64,
    /// UPDATEs whose routes were treated as withdrawn because of an error (RFC 7606).
    pub treated_as_withdraw: u64,
    /// UPDATEs whose attributes were partly discarded because of an error (RFC 7606).
    pub attributes_discarded: u64,
    /// The error in the first UPDATE with an error.
    pub fault: Option<Fault>,
    /// Lost sessions.
    pub sessions_lost: u64,
}

/// Expectations, and the received routes.
#[derive(Default)]
pub struct AdjRibIn {
    expectations: Vec<Watched>,
    /// Where the last route was found.
    near: Option<Near>,
    /// Unexpected routes, each with the number of its last UPDATE.
    unexpected: BTreeMap<RouteKey, u64>,
    totals: Totals,
    ends_of_rib: Vec<(AfiSafi, Instant)>,
    /// Families of which the peer is advertising all routes again, each with the number of the last UPDATE before.
    refreshes: Vec<(AfiSafi, u64)>,
    /// Number of routes that are present, in all expectations.
    present: u32,
    skyline: Skyline,
    judged: Judged,
    /// BGP identifier of the peer; none before the first UPDATE.
    peer_id: Option<Ipv4Addr>,
    /// All routes with their attributes, if they are kept.
    learned: Option<Box<Learned>>,
}

/// Routes of one expectation that are in none before it. Neighbours in an UPDATE are often neighbours in the routes, and
/// there may be an expectation for each other port of a DUT.
struct Near {
    expectation: usize,
    keys: RoutePart,
    within: Range<u32>,
}

/// The last attributes and the verdict on them.
#[derive(Default)]
struct Judged {
    raw: [Vec<u8>; 2],
    next_hop: Vec<u8>,
    context: Option<Context>,
    /// True if the UPDATE announced routes, withdrew none outside IPv4 unicast, and had no error.
    whole: bool,
    /// True if it had MP_REACH_NLRI.
    reach: bool,
    /// Expectation, VRF, group and verdict.
    of: Option<(usize, u32, u32, Verdict)>,
    /// The extended communities.
    communities: Vec<u8>,
    /// The sent attributes of a group; the memory is reused.
    sent: RouteAttributes,
}

impl Judged {
    /// Forgets the verdict if `update` has other attributes than the last one.
    #[inline]
    fn look(&mut self, update: &Update<'_>, context: Context) {
        let next_hop = update.reach.as_ref().map_or(&[][..], |reach| reach.next_hop);
        let same = self.context == Some(context) && self.raw == update.raw && self.next_hop == next_hop;
        if !same {
            for (kept, raw) in self.raw.iter_mut().zip(update.raw) {
                kept.clear();
                kept.extend_from_slice(raw);
            }
            self.next_hop.clear();
            self.next_hop.extend_from_slice(next_hop);
            self.communities.clear();
            self.communities.extend_from_slice(update.attributes.extended_communities);
            self.context = Some(context);
            self.of = None;
        }
        self.reach = update.reach.is_some();
        // Without a route, mandatory attributes were not checked.
        let announces = update.reach.is_some() || update.announces();
        self.whole = update.treatment == Treatment::Whole && update.unreach.is_none() && announces;
    }

    /// The routes of an UPDATE that only announces routes of one family and has the attributes of the last UPDATE, which then
    /// need no parsing; `None` for any other UPDATE.
    #[inline]
    fn again<'a>(&self, body: &'a [u8], context: &Context) -> Option<nlri::Routes<'a>> {
        if !self.whole || self.context.as_ref() != Some(context) {
            return None;
        }
        if let Some((attributes, announced)) = walker::announced_alone(body) {
            let ids = context.path_ids.has(AfiSafi::IPV4_UNICAST);
            let routes = nlri::Routes::new(AfiSafi::IPV4_UNICAST, ids, announced)?;
            return (!self.reach && attributes == self.raw[0] && routes.are_readable()).then_some(routes);
        }
        if !self.reach {
            return None;
        }
        let reach = walker::reach_between(body, context, [&self.raw[0], &self.raw[1]])?;
        if reach.next_hop == self.next_hop { reach.routes } else { None }
    }
}

impl AdjRibIn {
    /// An Adj-RIB-In without expectations.
    pub fn new() -> AdjRibIn {
        AdjRibIn::default()
    }

    /// Expects the routes `part`, as far as they exist, from `now` on, in the family of `routes`.
    pub fn expect(&mut self, now: Instant, routes: Arc<Routes>, part: Range<u32>, expected: Expected) -> ExpectationId {
        let afi_safi = routes.afi_safi();
        self.expect_in(now, RoutePart { afi_safi, distinguisher: None, routes, part }, expected)
    }

    /// Expects the routes of `keys`, as far as they exist, from `now` on.
    pub fn expect_in(&mut self, now: Instant, mut keys: RoutePart, expected: Expected) -> ExpectationId {
        keys.part.end = keys.part.end.min(keys.routes.len());
        keys.part.start = keys.part.start.min(keys.part.end);
        self.watch(now, RouteKeys::Part(keys), expected)
    }

    /// Expects all routes of VRFs from `now` on.
    pub fn expect_vpn(&mut self, now: Instant, keys: VpnPart, expected: Expected) -> ExpectationId {
        self.watch(now, RouteKeys::Vpn(keys), expected)
    }

    fn watch(&mut self, now: Instant, keys: RouteKeys, expected: Expected) -> ExpectationId {
        self.expectations.push(Watched::new(now, keys, expected));
        ExpectationId(self.expectations.len() - 1)
    }

    /// Expects the routes `part` of an expectation to be present, or absent, from `now` on. Routes of VRFs are numbered over all VRFs.
    pub fn change(&mut self, now: Instant, id: ExpectationId, part: Range<u32>, present: bool) {
        self.expectations[id.0].change(now, part, present);
    }

    /// Expects the routes `part` of each of the VRFs `vrfs` to be present, or absent, from `now` on.
    pub fn change_vpn(&mut self, now: Instant, id: ExpectationId, vrfs: Range<u32>, part: Range<u32>, present: bool) {
        self.expectations[id.0].change_vpn(now, vrfs, part, present);
    }

    /// Handles what a session has received.
    ///
    /// # Errors
    /// Like [`AdjRibIn::update`].
    pub fn receive(&mut self, now: Instant, heard: Heard<'_>, agreed: &Negotiated) -> Result<(), Notification> {
        match heard {
            Heard::Update(body) => return self.update(now, body, agreed),
            Heard::RefreshBegins(family) => self.refresh_begins(family),
            Heard::RefreshEnds(family) => self.refresh_ends(now, family),
        }
        Ok(())
    }

    /// The routes of `family` are stale until the peer advertises them again (RFC 7313 section 4).
    fn refresh_begins(&mut self, family: AfiSafi) {
        self.refreshes.retain(|(of, _)| *of != family);
        self.refreshes.push((family, self.totals.updates));
        let same_family = |one: &&mut Watched| one.attributes().1 == family;
        self.expectations.iter_mut().filter(same_family).for_each(Watched::refresh_begins);
    }

    /// Removes the routes of `family` that are still stale.
    fn refresh_ends(&mut self, now: Instant, family: AfiSafi) {
        let Some(at) = self.refreshes.iter().position(|(of, _)| *of == family) else { return };
        let (_, last) = self.refreshes.swap_remove(at);
        let same_family = |one: &&mut Watched| one.attributes().1 == family;
        let gone: u32 = self.expectations.iter_mut().filter(same_family).map(|one| one.refresh_ends(now)).sum();
        self.unexpected.retain(|key, update| key.afi_safi != family || *update > last);
        self.learned.iter_mut().for_each(|learned| learned.remove_old(family, last));
        if gone > 0 {
            self.present -= gone;
            self.skyline.record(now, self.present);
        }
    }

    /// Handles the body of an UPDATE.
    ///
    /// # Errors
    /// The NOTIFICATION that must end the session (see [`Update::parse`]).
    pub fn update(&mut self, now: Instant, body: &[u8], agreed: &Negotiated) -> Result<(), Notification> {
        let context = Context {
            label_stacks: LabelStacks::of(agreed.label_stacks.iter().copied()),
            four_octet_as: agreed.four_octet_as,
            ibgp: agreed.ibgp,
            path_ids: FamilySet::of(agreed.add_path.iter().filter(|(_, way)| way.receive).map(|(family, _)| *family)),
        };
        if self.peer_id != Some(agreed.peer_id) {
            // Verdicts depend on the peer.
            (self.peer_id, self.judged) = (Some(agreed.peer_id), Judged::default());
        }
        let before = self.present;
        if let Some(routes) = self.judged.again(body, &context) {
            self.totals.updates += 1;
            self.totals.bytes += body.len() as u64;
            let mut update = None;
            for route in routes.flatten() {
                self.announced(now, &route, body, &mut update, &context);
            }
            if self.present != before {
                self.skyline.record(now, self.present);
            }
            return Ok(());
        }
        let update = Update::parse(body, &context)?;
        self.totals.updates += 1;
        self.totals.bytes += body.len() as u64;
        if update.treatment != Treatment::Whole {
            self.totals.fault = self.totals.fault.or(update.fault);
            self.totals.attributes_discarded += u64::from(update.discarded > 0);
            self.totals.treated_as_withdraw += u64::from(update.treatment == Treatment::TreatAsWithdraw);
        }
        if let Some(family) = update.end_of_rib() {
            if !self.ends_of_rib.iter().any(|(known, _)| *known == family) && agreed.has(family) {
                self.ends_of_rib.push((family, now));
            }
            return Ok(());
        }
        // If a message both withdraws and announces a route, the announcement counts (RFC 4271 section 4.3).
        if update.withdraws() {
            update.withdrawn().for_each(|route| self.withdrawn(now, &route));
        }
        self.judged.look(&update, context);
        let announced = update.announced();
        let mut update = Some(update);
        for route in announced {
            self.announced(now, &route, body, &mut update, &context);
        }
        if self.present != before {
            self.skyline.record(now, self.present);
        }
        Ok(())
    }

    /// The first expectation that includes a route.
    #[inline]
    fn find(&mut self, route: &Nlri<'_>, prefix: &Prefix) -> Option<(usize, Found)> {
        if let Some(Near { expectation, keys, within }) = &self.near
            && (keys.afi_safi, keys.distinguisher) == (route.family, route.distinguisher)
            && let Some(index) = keys.routes.index_of(prefix).filter(|index| within.contains(index))
        {
            return Some((*expectation, Found::in_part(keys, index)));
        }
        let found = self.find_among_all(route, prefix)?;
        self.near = self.near(found.0, found.1.index);
        Some(found)
    }

    /// The routes around route `index` of an expectation that are in none before it. `None` if that depends on more than
    /// numbers of routes.
    fn near(&self, expectation: usize, index: u32) -> Option<Near> {
        let part = |at: usize| match self.expectations[at].routes.keys() {
            RouteKeys::Part(part) => Some(part),
            RouteKeys::Vpn(_) => None,
        };
        let keys = part(expectation)?;
        let mut within = keys.part.clone();
        for before in 0..expectation {
            let before = part(before)?;
            if (before.afi_safi, before.distinguisher) != (keys.afi_safi, keys.distinguisher) {
                continue;
            }
            if !Arc::ptr_eq(&before.routes, &keys.routes) {
                return None;
            }
            if before.part.end <= index {
                within.start = within.start.max(before.part.end);
            } else {
                within.end = within.end.min(before.part.start);
            }
        }
        Some(Near { expectation, keys: keys.clone(), within })
    }

    fn find_among_all(&self, route: &Nlri<'_>, prefix: &Prefix) -> Option<(usize, Found)> {
        let mut last: Option<(*const Routes, Option<u32>)> = None;
        self.expectations.iter().enumerate().find_map(|(at, one)| match one.routes.keys() {
            RouteKeys::Part(keys @ RoutePart { afi_safi, distinguisher, routes, part }) => {
                if *afi_safi != route.family || *distinguisher != route.distinguisher {
                    return None;
                }
                // Many expectations are parts of the same routes.
                let known = Arc::as_ptr(routes);
                let index = match last {
                    Some((same, index)) if same == known => index,
                    _ => routes.index_of(prefix),
                };
                last = Some((known, index));
                let index = index.filter(|i| part.contains(i))?;
                Some((at, Found::in_part(keys, index)))
            }
            RouteKeys::Vpn(VpnPart { routes, .. }) => {
                let distinguisher = route.distinguisher.filter(|_| routes.afi_safi() == route.family)?;
                let vrf = one.vpn.as_ref()?.vrf_of(distinguisher)?;
                let index = routes.index_of(vrf, prefix)?;
                let number = vrf * routes.per_vrf() + index;
                Some((at, Found { number, vrf, route: index, index: routes.slice(vrf).start + index }))
            }
        })
    }

    /// Learns the VRF of a route distinguisher; true if an expectation has learned it.
    #[cold]
    fn learn(&mut self, route: &Nlri<'_>, prefix: &Prefix) -> bool {
        let communities = &self.judged.communities;
        self.expectations.iter_mut().any(|one| one.learn(route, prefix, communities))
    }

    /// A route was announced in `body`, which is parsed to `update` if necessary.
    #[inline]
    fn announced<'a>(
        &mut self,
        now: Instant,
        route: &Nlri<'_>,
        body: &'a [u8],
        update: &mut Option<Update<'a>>,
        context: &Context,
    ) {
        self.totals.announcements += 1;
        let Some(prefix) = Prefix::masked(route.address(), route.length) else { return };
        if let Some(learned) = &mut self.learned {
            // Parsing cannot fail: an UPDATE with the same attributes was parsed before.
            *update = update.take().or_else(|| Update::parse(body, context).ok());
            if let Some(update) = update {
                learned.announced(RouteKey::of(route, prefix), route, self.totals.updates, update);
            }
        }
        let mut found = self.find(route, &prefix);
        if found.is_none() && self.learn(route, &prefix) {
            found = self.find(route, &prefix);
        }
        let Some((at, found)) = found else {
            self.not_expected(route, prefix);
            return;
        };
        self.forget_unexpected(route, prefix);
        let one = &mut self.expectations[at];
        let (routes, afi_safi) = one.attributes();
        let group = routes.group_of(found.index);
        let verdict = match self.judged.of {
            Some((of, vrf, judged, verdict)) if (of, vrf, judged) == (at, found.vrf, group) => verdict,
            _ => {
                let session = verdict::Of { ibgp: context.ibgp, peer_id: self.peer_id };
                let sent = &mut self.judged.sent;
                routes.attributes_into(group, sent);
                if update.is_none() {
                    // Parsing cannot fail: an UPDATE with the same attributes was parsed before.
                    *update = Update::parse(body, context).ok();
                }
                let judge = |update: &Update<'_>| judge(update, afi_safi, sent, &one.expected, session);
                let mut verdict = update.as_ref().map_or(Verdict::default(), judge);
                if let Some(vpn) = &one.vpn {
                    verdict.vpn = vpn.judge(found.vrf, &self.judged.communities, &sent.extended_communities);
                }
                self.judged.of = Some((at, found.vrf, group, verdict));
                verdict
            }
        };
        self.present += u32::from(one.received(now, found, verdict, route));
    }

    /// A route outside all expectations was announced.
    #[cold]
    fn not_expected(&mut self, route: &Nlri<'_>, prefix: Prefix) {
        self.totals.unexpected += 1;
        let key = RouteKey::of(route, prefix);
        if self.unexpected.len() < MOST_UNEXPECTED || self.unexpected.contains_key(&key) {
            self.unexpected.insert(key, self.totals.updates);
        }
        let same_family = |one: &&mut Watched| one.attributes().1 == route.family;
        self.expectations.iter_mut().filter(same_family).for_each(|one| one.not_expected(route, &prefix));
    }

    #[inline]
    fn withdrawn(&mut self, now: Instant, route: &Nlri<'_>) {
        self.totals.withdrawals += 1;
        let Some(prefix) = Prefix::masked(route.address(), route.length) else { return };
        self.forget_unexpected(route, prefix);
        if let Some(learned) = &mut self.learned {
            learned.withdrawn(&RouteKey::of(route, prefix), route.path_id);
        }
        if let Some((at, found)) = self.find(route, &prefix) {
            self.present -= u32::from(self.expectations[at].withdrawn(now, found, route));
        }
    }

    /// A route is withdrawn or expected. It may have been unexpected, if its VRF was not known then.
    #[inline]
    fn forget_unexpected(&mut self, route: &Nlri<'_>, prefix: Prefix) {
        if !self.unexpected.is_empty() {
            self.unexpected.remove(&RouteKey::of(route, prefix));
        }
    }

    /// The session has ended, and all routes with it.
    pub fn session_lost(&mut self, now: Instant) {
        self.expectations.iter_mut().for_each(|one| one.lost(now));
        self.unexpected.clear();
        self.learned.iter_mut().for_each(|learned| learned.lost());
        self.ends_of_rib.clear();
        self.refreshes.clear();
        self.totals.sessions_lost += 1;
        if self.present > 0 {
            self.present = 0;
            self.skyline.record(now, 0);
        }
    }

    /// State of an expectation.
    pub fn report(&self, id: ExpectationId) -> Verified {
        self.expectations[id.0].report()
    }

    /// Some of the expected routes that are missing.
    pub fn missing(&self, id: ExpectationId, limit: usize) -> Vec<Prefix> {
        self.expectations[id.0].routes.missing().take(limit).map(|key| key.prefix).collect()
    }

    /// Some of the routes that are present but must not be: routes outside all expectations, of which 1,000 are stored, and
    /// routes that must be absent.
    pub fn unexpected(&self, limit: usize) -> Vec<RouteKey> {
        let gone = self.expectations.iter().flat_map(|one| one.routes.unexpected());
        self.unexpected.keys().copied().chain(gone).take(limit).collect()
    }

    /// Stores all routes with their attributes from now on, in at most 256 MiB.
    pub fn keep_learned(&mut self) {
        self.learned = Some(Box::default());
    }

    /// The routes that are present, in order, with their attributes; none unless [`AdjRibIn::keep_learned`] was called.
    pub fn learned(&self) -> impl Iterator<Item = (&RouteKey, &LearnedRoute)> {
        self.learned.iter().flat_map(|learned| learned.routes.iter().map(|((key, _), route)| (key, route)))
    }

    /// Announcements in this session that had no room among the stored routes.
    pub fn learned_refused(&self) -> u64 {
        self.learned.as_ref().map_or(0, |learned| learned.refused)
    }

    /// Some of the expected routes of VRFs that are missing: VRF and prefix.
    pub fn missing_vpn(&self, id: ExpectationId, limit: usize) -> Vec<(u32, Prefix)> {
        let one = &self.expectations[id.0];
        let Some(vpn) = &one.vpn else { return Vec::new() };
        let routes = &vpn.part.routes;
        let vrf = |key: &RouteKey| key.distinguisher.and_then(|of| routes.vrf_of_distinguisher(of));
        one.routes.missing().take(limit).filter_map(|key| Some((vrf(&key)?, key.prefix))).collect()
    }

    /// The first 1,000 advertisements of VPN routes with wrong route targets or in a wrong VRF since the beginning. [`Verified`] counts
    /// all of them.
    pub fn vpn_faults(&self, id: ExpectationId) -> &[VpnFault] {
        self.expectations[id.0].vpn.as_ref().map_or(&[], |vpn| &vpn.faults)
    }

    /// The route distinguishers that the peer has chosen ([`Distinguishers::Learned`]), each with its VRF, in ascending order.
    pub fn learned_distinguishers(&self, id: ExpectationId) -> Vec<([u8; 8], u32)> {
        let mut all: Vec<_> = self.expectations[id.0].vpn.iter().flat_map(vpn::VpnWatched::learned).collect();
        all.sort_unstable();
        all
    }

    /// The labels of route `route` of VRF `vrf`, from the top of the stack, for a sender of packets to this route. Other than VPN routes
    /// count as VRF 0, and `route` from the beginning of the expected part. `None` if the route is absent, has no label, or labels are
    /// not stored ([`Expected::labels`]). Reserved labels are returned as received; a packet carries no implicit null (3, RFC 3032 section
    /// 2.1).
    pub fn label_of(&self, id: ExpectationId, vrf: u32, route: u32) -> Option<&[u32]> {
        self.expectations[id.0].label_of(vrf, route)
    }

    /// True if all expected routes are present and all routes of the expectations that must be absent are absent.
    pub fn complete(&self) -> bool {
        self.expectations.iter().all(|one| one.routes.is_complete())
    }

    /// Like [`AdjRibIn::complete`], for one expectation.
    pub fn is_complete(&self, id: ExpectationId) -> bool {
        self.expectations[id.0].routes.is_complete()
    }

    /// Number of routes of an expectation that are present, wanted or not.
    pub fn present(&self, id: ExpectationId) -> u32 {
        self.expectations[id.0].routes.present()
    }

    /// Counts of everything received.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// When the End-of-RIB of a family arrived in this session.
    pub fn end_of_rib(&self, family: AfiSafi) -> Option<Instant> {
        self.ends_of_rib.iter().find(|(known, _)| *known == family).map(|(_, at)| *at)
    }

    /// Time of the last announcement or withdrawal of each route of an expectation, in µs since the expectation or its last
    /// change began; `u32::MAX` without one since then. `None` if times are not stored.
    pub fn times(&self, id: ExpectationId) -> Option<&[u32]> {
        self.expectations[id.0].routes.times()
    }

    /// Number of routes of an expectation that were announced or withdrawn at `since` or later, and the first of them. (0, `None`)
    /// if times are not stored.
    pub fn moved_since(&self, id: ExpectationId, since: Instant) -> (u32, Option<Prefix>) {
        let mut moved = self.expectations[id.0].routes.moved_since(since);
        let first = moved.next();
        (u32::from(first.is_some()) + moved.count() as u32, first.map(|key| key.prefix))
    }

    /// Number of present routes of all expectations over time: at most 4096 samples, the last of them with the current value.
    pub fn skyline(&self) -> &[(Instant, u32)] {
        self.skyline.samples()
    }

    /// Begins a new skyline.
    pub fn clear_skyline(&mut self) {
        self.skyline.clear();
    }
}

#[cfg(test)]
#[path = "adj_rib_in_tests.rs"]
mod tests;
