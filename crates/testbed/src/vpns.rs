//! The emulated CE, P and PE routers around the VRFs of a DUT.
//!
//! A VRF connects CE routers on VLANs of customer ports (usually one) with a remote site behind a core port. The VRFs of one customer port have
//! consecutive numbers, and all their remote sites are behind one core port. In each family they form a [`Block`], whose routes are computed.

mod expected;
mod flows;
mod sending;

use crate::bench::Bench;
use crate::core::prefix;
use crate::customer_bfd::{self, CustomerBfd};
use crate::patience::Patience;
use crate::setup::TestSetup;
use drophammer_emulation::bgp::{BgpCommand, ExpectationId, RouteSet, VpnFaultKind, VpnRouteSet};
use drophammer_methods::TestError;
use drophammer_methods::vpns::{Place, VpnRoutesSeen, VpnSize, VpnUp, Vpns, VrfView, Way, vrfs_of};
use drophammer_model::Instant;
use drophammer_model::label_edge::{self, CoreProtocol, DUT_LOOPBACK};
use drophammer_model::role::VrfRole;
use drophammer_model::routes::{AfiSafi, Change, Packing, Prefix, RouteAction, Routes, VpnRoutes};
use drophammer_model::size::PacketSize;
use drophammer_model::suite::PortConfig;
use drophammer_model::trial::{Family, FlowSpec, Misdelivered, PortIndex};
use drophammer_rig::ldp::{AdvertisedFecs, FecRange, LabelPattern, LdpCommand, LsrConfig};
use drophammer_rig::{
    Act, Action, Command, ProtocolConfig, ProtocolPlace, RouterPlace, Select, SessionIndex, Until, bfd,
};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Number of CE sessions that are started at the same time, so that the DUT's listening socket has room for their connections.
const AT_ONCE: usize = 16;
/// Label of the path to the PE router behind core port 0; the labels for the other ports follow.
const FIRST_TRANSPORT: u32 = 1_000;
/// Label of the first VRF at the remote PE routers; the labels of the other VRFs follow.
const FIRST_VPN: u32 = 10_000;
/// Maximum number of leaks that are described in words.
const MOST_LEAKS: usize = 20;
/// How often the routes are counted while a test waits for them. Times of changes are exact.
const LOOK: Duration = Duration::from_millis(20);
/// A DUT is idle if it uses less than a twentieth of a processor for this long.
const STILL: Duration = Duration::from_millis(500);
/// How long a DUT may take to become idle.
const IDLE_WITHIN: Duration = Duration::from_secs(30);
/// How long sessions may take to end.
const IDLE: Duration = Duration::from_secs(10);

/// VRFs of one customer port that are in use, and their routes in one family.
struct Block {
    family: Family,
    /// Number of the first VRF.
    base: u32,
    /// Number of their site at the port.
    site: u32,
    /// Core port that leads to the remote sites.
    core: PortIndex,
    /// The routes of the remote sites, as their PE router advertises them; `None` at a port that has additional sites
    /// of these VRFs.
    remote: Option<Arc<VpnRoutes>>,
    /// The routes of the CE routers, as the DUT must advertise them to PE routers.
    customer: Arc<VpnRoutes>,
    /// For each PE router, its session and its expectation: the part of `customer` that it must receive.
    at_pes: Vec<(SessionIndex, ExpectationId)>,
}

/// Prefixes of the sites of each VRF in one family.
#[derive(Clone)]
struct Sites {
    family: Family,
    /// Prefixes behind the CE router of each site.
    customers: Vec<Arc<Routes>>,
    /// Prefixes of the remote site.
    remote: Arc<Routes>,
}

/// The routes of another site of its VRF that a CE router must receive in one family.
#[derive(Clone, Copy)]
struct AtCe {
    /// Number of the VRF.
    vrf: u32,
    /// The other site; `None` for the remote site.
    from: Option<u32>,
    family: Family,
    session: SessionIndex,
    id: ExpectationId,
}

/// The session of a CE router in one family.
#[derive(Clone, Copy)]
struct Ce {
    site: VrfView,
    family: Family,
    session: SessionIndex,
    /// Its own routes, which it may receive. A router may advertise the routes of a neighbour back to it. All CE routers of a site have the
    /// same routes, so only frames show whether these are leaks.
    returned: ExpectationId,
}

/// VRFs that are up.
#[derive(Default)]
struct InUse {
    vrfs: Vec<VrfView>,
    blocks: Vec<Block>,
    /// The families in use.
    sites: Vec<Sites>,
    /// The sessions of CE routers, in the order of families and `vrfs`.
    ces: Vec<Ce>,
    /// The routes that these sessions must receive.
    at_ces: Vec<AtCe>,
    /// When routes of all sites were last changed, and for how long the tester had delayed sending on each session until then.
    changed: Option<(Instant, Vec<(SessionIndex, Duration)>)>,
}

impl InUse {
    /// The routes behind the CE router of a site in one family.
    fn behind(&self, site: &VrfView, family: Family) -> Option<&Arc<Routes>> {
        let sites = self.sites.iter().find(|sites| sites.family == family)?;
        sites.customers.get(site.site as usize)
    }

    /// True if some site has this prefix.
    fn has(&self, prefix: &Prefix) -> bool {
        let all = self.sites.iter().flat_map(|sites| sites.customers.iter().chain([&sites.remote]));
        all.into_iter().any(|routes| routes.index_of(prefix).is_some())
    }
}

/// The VRFs of a suite.
pub(crate) struct VpnState {
    /// The sites of the VRFs, in the order of `roles`.
    vrfs: Vec<VrfView>,
    roles: Vec<VrfRole>,
    /// First session of each CE router, in the order of `roles`; it has one for each family, IPv4 first.
    ces: Vec<SessionIndex>,
    /// Port and session of each PE router.
    pes: Vec<(PortIndex, SessionIndex)>,
    /// BFD of the CE routers in use.
    pub(crate) bfd: CustomerBfd,
    in_use: Option<InUse>,
}

impl VpnState {
    /// The VRFs of `ports`, whose sessions [`crate::config::hosts_and_routers`] configures in the rig of `bench`.
    pub(crate) fn new(ports: &[PortConfig], bench: &Bench<'_>) -> VpnState {
        let roles = label_edge::vrfs(ports);
        let hosts = bench.rig.hosts();
        let is_at = |session: &SessionIndex, (port, device)| {
            let place = hosts.place(*session);
            (place.port, place.device) == (port, device)
        };
        let of_place = |port, device| (0..hosts.sessions()).find(|session| is_at(session, (port, device)));
        // The PE router is the last speaker of its device: the peers of `bgp:` come before it.
        let of_pe = |port| (0..hosts.sessions()).rev().find(|session| is_at(session, (port, crate::core::P_ROUTER)));
        let core = if roles.is_empty() { Vec::new() } else { label_edge::core_ports(ports) };
        let pes = core.into_iter().filter_map(|port| Some((port, of_pe(port)?))).collect();
        let first = |vrf: &VrfRole| of_place(vrf.port, customer_bfd::ce_device(vrf));
        // Sessions are numbered in the order of ports and devices. On each port, this is the order of the VRFs.
        let mut ces = Vec::with_capacity(roles.len());
        for vrf in &roles {
            let sessions = vrf.links().count();
            let next = ces.last().filter(|_| vrf.vid > label_edge::FIRST_VLAN).map(|last| last + sessions);
            ces.extend(next.or_else(|| first(vrf)));
        }
        let view = |vrf: &VrfRole| {
            let core = label_edge::remote_port(ports, vrf)?;
            Some(VrfView { number: vrf.number, site: vrf.site, customer: vrf.port, vid: vrf.vid, core })
        };
        VpnState {
            vrfs: roles.iter().filter_map(view).collect(),
            roles,
            ces,
            pes,
            bfd: CustomerBfd::default(),
            in_use: None,
        }
    }

    /// True if there are VRFs, and the rig has their sessions.
    pub(crate) fn exists(&self) -> bool {
        !self.vrfs.is_empty() && self.ces.len() == self.vrfs.len()
    }

    /// True if sessions are up, or may be.
    pub(crate) fn is_in_use(&self) -> bool {
        self.in_use.is_some()
    }

    /// Each site in use whose CE router has BFD: its name, and the place of its BFD in the rig.
    fn with_bfd(&self) -> Vec<(String, ProtocolPlace)> {
        let used = self.in_use.iter().flat_map(|used| &used.vrfs);
        let roles = used.filter_map(|site| Some((site, self.ce(site, Family::Ipv4)?.0)));
        roles.filter(|(_, role)| role.bfd).map(|(site, role)| (site.site_name(), customer_bfd::place(role))).collect()
    }

    /// Role of a site, and the session of its CE router in a family, if there is one.
    fn ce(&self, site: &VrfView, family: Family) -> Option<(&VrfRole, SessionIndex)> {
        // The sites of a port are consecutive, in order of their VLANs.
        let first = self.roles.partition_point(|role| role.port < site.customer);
        let at = first + usize::from(site.vid - label_edge::FIRST_VLAN);
        let role = self.roles.get(at)?;
        role.link(family)?;
        Some((role, self.ces.get(at)? + usize::from(family == Family::Ipv6)))
    }

    /// All sessions of CE and PE routers.
    fn sessions(&self) -> Vec<SessionIndex> {
        let of_ce = |(first, vrf): (&SessionIndex, &VrfRole)| *first..*first + vrf.links().count();
        let ces = self.ces.iter().zip(&self.roles).flat_map(of_ce);
        ces.chain(self.pes.iter().map(|(_, pe)| *pe)).collect()
    }

    fn in_use(&self) -> Result<&InUse, TestError> {
        self.in_use.as_ref().ok_or_else(|| TestError::Failed("no VRF has been brought up".into()))
    }
}

/// The protocols of the P router behind a core port, and the commands to give after they have started.
pub(crate) fn p_router(
    port: PortIndex,
    config: &PortConfig,
) -> Result<Vec<(ProtocolConfig, Option<Command>)>, TestError> {
    let Some(addressing) = &config.ipv4 else { return Ok(Vec::new()) };
    let (own, dut) = (addressing.host, addressing.dut);
    let std::net::IpAddr::V4(address) = own else { return Ok(Vec::new()) };
    let (id, pe) = (label_edge::p_router(port), label_edge::pe_router(port));
    let mut all = Vec::new();
    for protocol in &config.core {
        match protocol {
            CoreProtocol::Ospf => {
                let ospf = crate::core::ospf_to(port, config.mtu);
                all.push((ProtocolConfig::Ospf(Box::new(ospf)), None));
            }
            CoreProtocol::Ldp => {
                let labels = LabelPattern::Counting { first: FIRST_TRANSPORT + port as u32, step: 0 };
                let advertised = vec![AdvertisedFecs { fecs: FecRange::new(prefix(pe, 32)?, 1), labels }];
                let expected = vec![FecRange::new(prefix(DUT_LOOPBACK, 32)?, 1)];
                let lsr = LsrConfig { advertised, expected, ..LsrConfig::new(id, address) };
                let advertise = Command::Ldp(LdpCommand::Advertise { range: 0, part: 0..1 });
                all.push((ProtocolConfig::Ldp(lsr), Some(advertise)));
            }
            CoreProtocol::Bfd => all.push((ProtocolConfig::Bfd(vec![bfd::SessionConfig::new(dut)]), None)),
            CoreProtocol::Rsvp => {}
        }
    }
    Ok(all)
}

impl Bench<'_> {
    /// Starts OSPF, LDP and BFD on all P routers for which the suite configures them, and waits until all sessions are
    /// up.
    ///
    /// # Errors
    /// [`TestError::Failed`] with the protocols that are not up after `within`.
    pub(crate) fn bring_core_up(&mut self, within: Duration) -> Result<Duration, TestError> {
        let of_port = |(port, config): (PortIndex, &PortConfig)| p_router(port, config);
        let ports: Vec<_> = self.ports().iter().enumerate().map(of_port).collect::<Result<_, _>>()?;
        let mut places = Vec::new();
        for (port, protocols) in ports.iter().enumerate() {
            for (config, then) in protocols {
                let place = self.start_core(port, config)?;
                if let Some(command) = then {
                    self.rig.command_to(place, command).map_err(|e| TestError::Failed(e.to_string()))?;
                }
                places.push(place);
            }
        }
        let up = Until::All(places.iter().copied().map(Until::Up).collect());
        if let Some(took) = self.await_core(&up, within)? {
            return Ok(took);
        }
        self.port_works()?;
        Err(TestError::Failed(format!(
            "not up after {} s: {}; see the DUT's log, and its configuration in the run",
            within.as_secs_f64(),
            self.not_up(&places).join(", ")
        )))
    }

    /// The protocols whose sessions are not all up, as text: `ldp at p2`.
    fn not_up(&self, places: &[ProtocolPlace]) -> Vec<String> {
        let down = |place: &&ProtocolPlace| !Until::Up(**place).holds(self.rig.now(), self.rig.hosts());
        let text = |place: &ProtocolPlace| format!("{} at {}", place.protocol, self.facts.ports[place.port].name);
        places.iter().filter(down).map(text).collect()
    }
}

/// The block of a site that is in use, in one family.
fn block_of<'a>(used: &'a InUse, vrf: &VrfView, family: Family) -> Option<&'a Block> {
    let of = |block: &&Block| (block.base..block.base + block.customer.vrfs().count).contains(&vrf.number);
    used.blocks.iter().filter(|block| (block.family, block.site) == (family, vrf.site)).find(of)
}

impl TestSetup<'_> {
    /// All sessions of the VRFs that are in use, with their expectations.
    fn expectations(&self) -> impl Iterator<Item = (SessionIndex, ExpectationId)> + '_ {
        self.vpns.in_use.iter().flat_map(|used| {
            let at_pes = used.blocks.iter().flat_map(|block| &block.at_pes);
            used.at_ces.iter().map(|at| (at.session, at.id)).chain(at_pes.copied())
        })
    }

    /// A number that grows with every route that arrives or leaves.
    fn movement(&self) -> u64 {
        let rig = &self.routing.bench.rig;
        let moved = |(session, id): (SessionIndex, ExpectationId)| {
            let (routers, router) = rig.session(session)?;
            let report = routers.adj_rib_in(router).report(id);
            Some(report.received + report.withdrawn)
        };
        self.expectations().filter_map(moved).sum()
    }

    /// The sessions of the VRFs that are in use.
    fn sessions_in_use(&self) -> Vec<SessionIndex> {
        let mut sessions: Vec<_> = self.expectations().map(|(session, _)| session).collect();
        sessions.sort_unstable();
        sessions.dedup();
        sessions
    }

    /// For how long the tester delayed sending, by session.
    fn lateness(&self) -> Vec<(SessionIndex, Duration)> {
        let rig = &self.routing.bench.rig;
        let now = rig.now();
        let late = |session: SessionIndex| {
            let (routers, router) = rig.session(session)?;
            Some((session, routers.pressure(router, now).late))
        };
        self.sessions_in_use().into_iter().filter_map(late).collect()
    }

    /// The longest such delay since routes of all sites were changed.
    fn late_since_the_change(&self) -> Duration {
        let changed = self.vpns.in_use.as_ref().and_then(|used| used.changed.as_ref());
        let Some((_, before)) = changed else { return Duration::ZERO };
        let pairs = self.lateness().into_iter().zip(before);
        pairs.map(|((_, late), (_, before))| late.saturating_sub(*before)).max().unwrap_or_default()
    }

    /// Waits until the DUT's processor is idle. Does nothing if its use is unknown.
    fn await_idle(&mut self) -> Result<(), TestError> {
        let used = |bench: &mut Bench<'_>| bench.device.usage().and_then(|usage| usage.cpu_time());
        let deadline = self.rig().now() + IDLE_WITHIN;
        let Some(mut before) = used(self.bench()) else { return Ok(()) };
        while self.rig().now() < deadline {
            let end = self.rig().now() + STILL;
            self.bench().await_core(&Until::At(end), STILL)?;
            let Some(now) = used(self.bench()) else { return Ok(()) };
            if now.saturating_sub(before) < STILL / 20 {
                return Ok(());
            }
            before = now;
        }
        Ok(())
    }

    /// Number of routes advertised so far, and of sessions on which the DUT has not acknowledged all of its routes.
    fn sent(&self) -> (u64, usize) {
        let rig = &self.routing.bench.rig;
        let all = self.sessions_in_use().into_iter().filter_map(|session| rig.session(session));
        all.fold((0, 0), |(sent, waiting), (routers, router)| {
            (sent + routers.advertised(router).advertised, waiting + usize::from(!routers.all_acknowledged(router)))
        })
    }

    /// When the last expected route arrived or left.
    fn last_change(&self) -> Option<Instant> {
        let rig = &self.routing.bench.rig;
        let last = |(session, id): (SessionIndex, ExpectationId)| {
            let (routers, router) = rig.session(session)?;
            routers.adj_rib_in(router).report(id).last_at
        };
        self.expectations().filter_map(last).max()
    }

    /// A session that is down, as text.
    fn lost_session(&self) -> Option<String> {
        self.expectations().map(|(session, _)| session).find_map(|session| {
            let (routers, router) = self.routing.bench.rig.session(session)?;
            let down = !routers.established(router);
            let ended = || routers.session(router).ended().map_or("no cause".into(), ToString::to_string);
            down.then(|| format!("the session of {} ended: {}", self.speaker(session), ended()))
        })
    }

    /// The emulated router of a session, as text: `the CE router of v3`.
    fn speaker(&self, session: SessionIndex) -> String {
        let at = self.vpns.ces.partition_point(|first| *first <= session).checked_sub(1);
        let is_pe = self.vpns.pes.iter().any(|(_, pe)| *pe == session);
        match at.and_then(|at| self.vpns.vrfs.get(at)).filter(|_| !is_pe) {
            Some(vrf) => format!("the CE router of {}", vrf.site_name()),
            None => {
                let port = self.vpns.pes.iter().find(|(_, pe)| *pe == session).map_or(0, |(port, _)| *port);
                format!("the PE router behind {}", self.routing.bench.facts.ports[port].name)
            }
        }
    }

    /// Returns an error if a session is up but does not carry the routes of a family in use.
    fn check_families(&self) -> Result<(), TestError> {
        let rig = &self.routing.bench.rig;
        let lacks = |session: SessionIndex, family: AfiSafi| {
            let negotiated = rig.session(session).and_then(|(routers, router)| routers.session(router).negotiated());
            negotiated.is_some_and(|with| !with.has(family))
        };
        let used = self.vpns.in_use()?;
        let at_pes = used.sites.iter().flat_map(|sites| self.vpns.pes.iter().map(move |(_, pe)| (*pe, sites.family)));
        let of_vpn = |family| if family == Family::Ipv4 { AfiSafi::VPNV4 } else { AfiSafi::VPNV6 };
        let at_pes = at_pes.map(|(session, family)| (session, of_vpn(family)));
        let at_ces = used.ces.iter().map(|ce| (ce.session, AfiSafi::unicast(ce.family)));
        match at_pes.chain(at_ces).find(|(session, family)| lacks(*session, *family)) {
            Some((session, family)) => Err(TestError::NotApplicable(format!(
                "the DUT does not offer {family} routes in its OPEN to {} (RFC 4760 section 8)",
                self.speaker(session)
            ))),
            None => Ok(()),
        }
    }

    /// Describes why not all `wanted` sessions are up.
    fn sessions_down(&self, wanted: &[SessionIndex], within: Duration) -> String {
        let rig = &self.routing.bench.rig;
        let up =
            |session: &SessionIndex| rig.session(*session).is_some_and(|(routers, router)| routers.established(router));
        let down: Vec<_> = wanted.iter().copied().filter(|session| !up(session)).collect();
        let Some(first) = down.first() else { return "a session is not up".into() };
        let cause = rig.session(*first).and_then(|(routers, router)| {
            let cause = routers.explain(router, routers.session(router).ended());
            cause.map(|cause| format!("; it last ended because {cause}"))
        });
        format!(
            "{} of {} BGP sessions are not up after {} s, the first of them with {}{}",
            down.len(),
            wanted.len(),
            within.as_secs_f64(),
            self.speaker(*first),
            cause.unwrap_or_default()
        )
    }
}

impl Vpns for TestSetup<'_> {
    fn vrfs(&self) -> &[VrfView] {
        &self.vpns.vrfs
    }

    fn used(&self) -> &[VrfView] {
        self.vpns.in_use.as_ref().map_or(&[], |used| &used.vrfs)
    }

    fn bring_up(&mut self, size: &VpnSize, within: Duration) -> Result<VpnUp, TestError> {
        Vpns::take_down(self)?;
        self.routing.end_sessions()?;
        let (vrfs, all) = (size.vrfs, vrfs_of(&self.vpns.vrfs));
        if vrfs == 0 || vrfs > all {
            let why = format!(
                "the DUT has {all} VRFs, the test asks for {vrfs}: change `customers` of the ports, or the test"
            );
            return Err(TestError::NotApplicable(why));
        }
        let used = self.expect(size)?;
        self.vpns.in_use = Some(used);
        let core_s = self.bench().bring_core_up(within)?.as_secs_f64();
        let pes: Vec<_> = self.vpns.pes.iter().map(|(_, session)| *session).collect();
        let ces: Vec<_> = self.vpns.in_use()?.ces.iter().map(|ce| ce.session).collect();
        let begun = self.rig().now();
        let deadline = begun + within;
        let mut wanted = Vec::new();
        for chunk in std::iter::once(&pes[..]).chain(ces.chunks(AT_ONCE)) {
            self.rig().protocols(Select::These(chunk), Action::Start);
            wanted.extend_from_slice(chunk);
            let left = deadline.since(self.rig().now());
            // Sessions that were up may have ended in the meantime.
            if self.bench().await_core(&Until::Established(wanted.clone()), left)?.is_none() {
                self.bench().port_works()?;
                return Err(TestError::Failed(self.sessions_down(&wanted, within)));
            }
        }
        let with_bfd = self.vpns.with_bfd();
        self.vpns.bfd = self.bench().start_customer_bfd(with_bfd, deadline, within)?;
        let sessions_s = self.rig().now().since(begun).as_secs_f64();
        self.check_families()?;
        Ok(VpnUp { core_s, sessions_s, sessions: wanted.len() as u32 })
    }

    fn change_part(&mut self, change: Change, part: Range<u32>) -> Result<(), TestError> {
        let late = self.lateness();
        let now = self.rig().now();
        if let Some(used) = &mut self.vpns.in_use {
            used.changed = Some((now, late));
        }
        let used = self.vpns.in_use()?;
        let (packing, present) = (Packing::default(), change == Change::Advertise);
        let per_site = used.sites.first().map_or(0, |sites| sites.remote.len());
        let part = part.start.min(per_site)..part.end.min(per_site);
        let place = |bench: &Bench<'_>, session| bench.rig.hosts().place(session);
        let mut acts = Vec::new();
        let bench = &self.routing.bench;
        for ce in &used.ces {
            let Some(own) = used.behind(&ce.site, ce.family) else { continue };
            let RouterPlace { port, device, router } = place(bench, ce.session);
            let set = RouteSet::unicast(own.clone(), part.clone(), packing);
            acts.push((port, Act::bgp(device, BgpCommand::Routes { peer: router, change, set })));
        }
        for block in &used.blocks {
            let Some((_, session)) = self.vpns.pes.iter().find(|(port, _)| *port == block.core) else { continue };
            let RouterPlace { port, device, router } = place(bench, *session);
            let Some(remote) = &block.remote else { continue };
            let set = VpnRouteSet { part: part.clone(), ..VpnRouteSet::all(remote.clone(), packing) };
            acts.push((port, Act::bgp(device, BgpCommand::VpnRoutes { peer: router, change, set })));
        }
        for (port, act) in &acts {
            self.rig().command(*port, act).map_err(|e| TestError::Failed(e.to_string()))?;
        }
        let (mut at_ces, mut at_pes) = (Vec::new(), Vec::new());
        if let Some(used) = &self.vpns.in_use {
            at_ces.extend_from_slice(&used.at_ces);
            let of_block =
                |block: &Block| block.at_pes.iter().map(|at| (*at, block.customer.vrfs().count)).collect::<Vec<_>>();
            at_pes.extend(used.blocks.iter().flat_map(of_block));
        }
        let now = self.rig().now();
        for AtCe { session, id, .. } in at_ces {
            if let Some((routers, router)) = self.rig().session_mut(session) {
                routers.adj_rib_in_mut(router).change(now, id, part.clone(), present);
            }
        }
        for ((session, id), vrfs) in at_pes {
            if let Some((routers, router)) = self.rig().session_mut(session) {
                routers.adj_rib_in_mut(router).change_vpn(now, id, 0..vrfs, part.clone(), present);
            }
        }
        Ok(())
    }

    fn at_customer(&mut self, vrf: &VrfView, change: Change, part: Range<u32>) -> Result<Vec<RouteAction>, TestError> {
        let now = self.rig().now();
        let mut actions = Vec::new();
        let present = change == Change::Advertise;
        for family in self.vpns.in_use()?.sites.iter().map(|sites| sites.family).collect::<Vec<_>>() {
            let at_pes = |block: &Block| (block.at_pes.clone(), vrf.number - block.base);
            let (at_pes, index) = block_of(self.vpns.in_use()?, vrf, family).map(at_pes).unwrap_or_default();
            for (session, id) in at_pes {
                if let Some((routers, router)) = self.rig().session_mut(session) {
                    routers.adj_rib_in_mut(router).change_vpn(now, id, index..index + 1, part.clone(), present);
                }
            }
            let concerned = |at: &AtCe| (at.vrf, at.from, at.family) == (vrf.number, Some(vrf.site), family);
            let others: Vec<_> = self.vpns.in_use()?.at_ces.iter().copied().filter(concerned).collect();
            for AtCe { session, id, .. } in others {
                if let Some((routers, router)) = self.rig().session_mut(session) {
                    routers.adj_rib_in_mut(router).change(now, id, part.clone(), present);
                }
            }
            let peer = self.vpns.ce(vrf, family).and_then(|(_, session)| self.routing.state.index_of(session));
            let own = self.vpns.in_use()?.behind(vrf, family).cloned();
            let no_session = || TestError::Failed(format!("the CE router of {} has no BGP session", vrf.site_name()));
            let (peer, routes) = peer.zip(own).ok_or_else(no_session)?;
            let (part, packing) = (part.clone(), Packing::default());
            actions.push(RouteAction::Routes { peer, change, routes, part, packing });
        }
        Ok(actions)
    }

    fn await_routes(&mut self, patience: Duration) -> Result<VpnRoutesSeen, TestError> {
        let begun = self.rig().now();
        let (mut progress, mut patience) = (self.movement(), Patience::new(begun, patience));
        loop {
            let mut seen = Vpns::seen(self);
            let now = self.rig().now();
            let moved = self.movement();
            if moved != progress {
                progress = moved;
                patience.moved(now);
            }
            let down = || self.vpns.bfd.down(&self.routing.bench.rig);
            let ended = if let Some(lost) = self.lost_session().or_else(down) {
                if let Some(why) = seen.not_judged_since(&VpnRoutesSeen::default()) {
                    return Err(TestError::Failed(why));
                }
                lost
            } else if patience.is_over(now, || self.routing.bench.device.usage()?.cpu_time()) {
                let (sent, unacknowledged) = self.sent();
                let held = match unacknowledged {
                    0 => String::new(),
                    some => format!(", {some} of them have not acknowledged everything"),
                };
                let sessions = self.expectations().count();
                format!(
                    "{}; nothing more came for {} s ({sent} routes were advertised to {sessions} sessions{held})",
                    seen.cause,
                    patience.waited(now).as_secs_f64().round()
                )
            } else if !seen.complete() {
                self.bench().await_core(&Until::At(now + LOOK), LOOK)?;
                continue;
            } else {
                String::new()
            };
            seen.cause = ended;
            let since = self.vpns.in_use.as_ref().and_then(|used| used.changed.as_ref()).map_or(begun, |(at, _)| *at);
            seen.last_change_s = self.last_change().map_or(0.0, |last| last.since(since).as_secs_f64());
            seen.tester_late_s = self.late_since_the_change().as_secs_f64();
            return Ok(seen);
        }
    }

    fn seen(&self) -> VpnRoutesSeen {
        let mut seen = VpnRoutesSeen::default();
        let Some(used) = &self.vpns.in_use else { return seen };
        for AtCe { family, session, id, .. } in &used.at_ces {
            let Some((routers, router)) = self.routing.bench.rig.session(*session) else { continue };
            let report = routers.adj_rib_in(router).report(*id);
            seen.add((*family, Place::Ce), [report.expected, report.present, report.wrong, report.unexpected]);
        }
        for Ce { site, session, returned, .. } in &used.ces {
            let Some((routers, router)) = self.routing.bench.rig.session(*session) else { continue };
            let adj_rib_in = routers.adj_rib_in(router);
            seen.returned += u64::from(adj_rib_in.report(*returned).unexpected);
            seen.leaked += adj_rib_in.totals().unexpected;
            let foreign = adj_rib_in.unexpected(MOST_LEAKS);
            let foreign = foreign.iter().filter(|key| !used.has(&key.prefix));
            seen.tell(foreign.map(|key| format!("the CE router of {} has {}", site.site_name(), key.prefix)));
        }
        for block in &used.blocks {
            for (session, id) in &block.at_pes {
                let Some((routers, router)) = self.routing.bench.rig.session(*session) else { continue };
                let adj_rib_in = routers.adj_rib_in(router);
                let report = adj_rib_in.report(*id);
                seen.add((block.family, Place::Pe), [report.expected, report.present, report.wrong, report.unexpected]);
                seen.leaked += report.wrong_vrf + report.wrong_target;
                let vrf = |index: u32| format!("v{}", block.base + index + 1);
                seen.tell(adj_rib_in.vpn_faults(*id).iter().map(|fault| match fault.kind {
                    VpnFaultKind::WrongTarget => {
                        format!("{} of {} has a wrong route target", fault.key.prefix, vrf(fault.vrf))
                    }
                    VpnFaultKind::WrongVrf(other) => {
                        format!("{} of {} has the route target of {}", fault.key.prefix, vrf(fault.vrf), vrf(other))
                    }
                }));
            }
        }
        let rig = &self.routing.bench.rig;
        let late = self.vpns.bfd.late(rig);
        let lost = |session: SessionIndex| {
            let RouterPlace { port, device, .. } = rig.hosts().place(session);
            let (routers, router) = rig.session(session).filter(|_| !late.contains(&(port, device)))?;
            Some(u64::from(routers.losses(router).0))
        };
        seen.sessions_lost = self.sessions_in_use().into_iter().filter_map(lost).sum();
        self.vpns.bfd.count(&self.routing.bench.rig, &mut seen);
        seen.judge();
        seen
    }

    fn sent(&self, port: PortIndex, changes: usize) -> Vec<f64> {
        self.sent_behind(port, changes)
    }

    fn flows(
        &self,
        vrf: &VrfView,
        way: Way,
        family: Family,
        part: Range<u32>,
        size: &PacketSize,
        group: &str,
    ) -> Result<Vec<FlowSpec>, TestError> {
        let used = self.vpns.in_use()?;
        let sites = used.sites.iter().find(|sites| sites.family == family);
        let sites = sites.ok_or_else(|| TestError::Failed(format!("no {family} route has been advertised")))?;
        match way {
            Way::ToCore => Ok(vec![flows::to_core(sites, vrf, part, size, group)]),
            Way::BetweenCustomers => {
                let others = used.vrfs.iter().filter(|other| other.number == vrf.number && other.site != vrf.site);
                Ok(others.map(|other| flows::to_other(sites, vrf, other, part.clone(), size, group)).collect())
            }
            Way::ToCustomers => self.to_customers(used, sites, vrf, part, size, group),
        }
    }

    fn site_of(&self, arrived: &Misdelivered) -> Option<VrfView> {
        let is_site = |vrf: &&VrfView| match (arrived.vlan, arrived.label) {
            (Some(vid), None) => vrf.customer == arrived.port && vrf.vid == vid,
            (None, Some(label)) => vrf.core == arrived.port && FIRST_VPN + vrf.number == label,
            _ => false,
        };
        self.vpns.vrfs.iter().find(is_site).copied()
    }

    fn take_down(&mut self) -> Result<(), TestError> {
        if self.vpns.in_use.take().is_none() {
            return Ok(());
        }
        let sessions = self.vpns.sessions();
        self.rig().protocols(Select::These(&sessions), Action::Stop);
        self.bench().await_core(&Until::Idle(sessions.clone()), IDLE)?;
        let bfd = std::mem::take(&mut self.vpns.bfd);
        self.bench().stop_customer_bfd(&bfd)?;
        for session in sessions {
            if let Some((routers, router)) = self.rig().session_mut(session) {
                routers.clear_tables(router);
            }
        }
        self.bench().stop_core()?;
        self.await_idle()
    }
}
