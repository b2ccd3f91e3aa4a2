//! The emulated CE, P and PE routers around the VRFs of a DUT.
//!
//! A VRF is between a CE router on a VLAN of a customer port and a remote site behind a core port. The VRFs of one customer port have
//! consecutive numbers and their remote sites behind one core port: together they are a [`Block`], whose routes are computed.

mod flows;
mod sending;

use crate::bench::Bench;
use crate::core::prefix;
use crate::customer_bfd::CustomerBfd;
use crate::setup::TestSetup;
use drophammer_emulation::bgp::{
    BgpCommand, Distinguishers, ExpectationId, Expected, RouteSet, RouteSource, VpnFaultKind, VpnPart, VpnRouteSet,
};
use drophammer_methods::TestError;
use drophammer_methods::vpns::{VpnRoutesSeen, VpnUp, Vpns, VrfView, Way};
use drophammer_model::Instant;
use drophammer_model::label_edge::{self, CUSTOMER_AS, CoreProtocol, DUT_LOOPBACK, PROVIDER_AS};
use drophammer_model::role::VrfRole;
use drophammer_model::routes::{
    AttributePattern, Change, Counting, GroupSizes, LabelPer, Packing, Prefix, PrefixesPerVrf, RouteAction, RouteRange,
    Routes, VpnRoutes, VrfRange,
};
use drophammer_model::size::PacketSize;
use drophammer_model::suite::PortConfig;
use drophammer_model::trial::{FlowSpec, Misdelivered, PortIndex};
use drophammer_rig::ldp::{AdvertisedFecs, FecRange, LabelPattern, LdpCommand, Lsr, LsrConfig};
use drophammer_rig::{
    Act, Action, Command, ProtocolConfig, ProtocolPlace, RouterPlace, Select, SessionIndex, Until, bfd,
};
use drophammer_wire::ldp::Label;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Number of CE sessions that are started at the same time, so that the DUT's listening socket has room for their connections.
const AT_ONCE: usize = 16;
/// Label of the path to the PE router behind core port 0; the other ports follow.
const FIRST_TRANSPORT: u32 = 1_000;
/// Label of the first VRF at the remote PE routers; the others follow.
const FIRST_VPN: u32 = 10_000;
/// Maximum number of leaks that are told as text.
const MOST_LEAKS: usize = 20;
/// How often the routes are counted while a test waits for them. Times of changes are exact.
const LOOK: Duration = Duration::from_millis(20);
/// A DUT is idle if it uses less than a twentieth of a processor for this long.
const STILL: Duration = Duration::from_millis(500);
/// How long a DUT may take to become idle.
const IDLE_WITHIN: Duration = Duration::from_secs(30);
/// Maximum number of flows to VRFs. A router with a label for each route needs a flow for each.
const MOST_FLOWS: usize = 65_536;
/// How long sessions may take to end.
const IDLE: Duration = Duration::from_secs(10);

/// VRFs of one customer port that are in use, and their routes.
struct Block {
    /// Number of the first VRF.
    base: u32,
    /// Core port with the remote sites.
    core: PortIndex,
    /// The routes of the remote sites, as their PE router advertises them.
    remote: Arc<VpnRoutes>,
    /// The routes of the CE routers, as the DUT must advertise them to PE routers.
    customer: Arc<VpnRoutes>,
    /// What each PE router must receive of `customer`: session, expectation.
    at_pes: Vec<(SessionIndex, ExpectationId)>,
}

/// VRFs that are up.
struct InUse {
    vrfs: Vec<VrfView>,
    blocks: Vec<Block>,
    /// Prefixes behind the CE router of each VRF, and those of its remote site.
    customer: Arc<Routes>,
    remote: Arc<Routes>,
    /// What each CE router must receive, in the order of `vrfs`.
    at_ces: Vec<(SessionIndex, ExpectationId)>,
    /// Routes of CE routers that each CE router receives, in the same order. A router may advertise the routes of a neighbour back to it, and all CE
    /// routers have the same, so only frames show whether these are leaks.
    returned: Vec<(SessionIndex, ExpectationId)>,
    /// When all routes were last changed, and how late the tester had been until then in sending on each session.
    changed: Option<(Instant, Vec<(SessionIndex, Duration)>)>,
}

/// The VRFs of a suite.
pub(crate) struct VpnState {
    vrfs: Vec<VrfView>,
    roles: Vec<VrfRole>,
    /// Session of the CE router of each VRF.
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
        let first = |vrf: &VrfRole| of_place(vrf.port, crate::customer_bfd::ce_device(vrf));
        // Sessions are numbered in the order of ports and devices, which is that of the VRFs on each port.
        let mut ces = Vec::with_capacity(roles.len());
        for vrf in &roles {
            let next = ces.last().filter(|_| vrf.vid > label_edge::FIRST_VLAN).map(|last| last + 1);
            ces.extend(next.or_else(|| first(vrf)));
        }
        let view = |vrf: &VrfRole| {
            let core = label_edge::remote_port(ports, vrf)?;
            Some(VrfView { number: vrf.number, customer: vrf.port, vid: vrf.vid, core })
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

    /// The VRFs that are in use.
    fn used_roles(&self) -> Vec<VrfRole> {
        let used = self.in_use.iter().flat_map(|used| &used.vrfs);
        used.map(|vrf| self.roles[vrf.number as usize]).collect()
    }

    fn in_use(&self) -> Result<&InUse, TestError> {
        self.in_use.as_ref().ok_or_else(|| TestError::Failed("no VRF has been brought up".into()))
    }
}

/// `count` /24 prefixes from `first` on, in one group of attributes for each of the largest UPDATEs.
fn prefixes(first: Ipv4Addr, count: u32) -> Result<Arc<Routes>, TestError> {
    let refused = |e: &dyn std::fmt::Display| TestError::NotApplicable(format!("{count} routes of a site: {e}"));
    if count > label_edge::MOST_ROUTES {
        return Err(refused(&format!("write at most {}", label_edge::MOST_ROUTES)));
    }
    let attributes =
        AttributePattern { routes_per_group: GroupSizes::Fixed(count.max(1)), ..AttributePattern::default() };
    let first = prefix(first, 24)?;
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

/// The VRFs that a test uses: as many on each customer port, the first ones.
fn choose(all: &[VrfView], count: u32) -> Vec<VrfView> {
    let mut chosen = all.to_vec();
    chosen.sort_by_key(|vrf| (vrf.vid, vrf.customer));
    chosen.truncate(count as usize);
    chosen.sort_by_key(|vrf| vrf.number);
    chosen
}

/// The protocols of the P router behind a core port, and the commands that follow their start.
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
    /// Starts OSPF, LDP and BFD on all P routers that the suite gives them, and waits until all sessions are up.
    ///
    /// # Errors
    /// [`TestError::Failed`] with the protocols that are not up `within` this time.
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
        match self.await_core(&up, within)? {
            Some(took) => Ok(took),
            None => Err(TestError::Failed(format!(
                "not up after {} s: {}; see the DUT's log, and its configuration in the run",
                within.as_secs_f64(),
                self.not_up(&places).join(", ")
            ))),
        }
    }

    /// The protocols whose sessions are not all up, as text: `ldp at p2`.
    fn not_up(&self, places: &[ProtocolPlace]) -> Vec<String> {
        let down = |place: &&ProtocolPlace| !Until::Up(**place).holds(self.rig.now(), self.rig.hosts());
        let text = |place: &ProtocolPlace| format!("{} at {}", place.protocol, self.facts.ports[place.port].name);
        places.iter().filter(down).map(text).collect()
    }
}

/// The block of a VRF that is in use.
fn block_of<'a>(used: &'a InUse, vrf: &VrfView) -> Option<&'a Block> {
    used.blocks.iter().find(|block| (block.base..block.base + block.customer.vrfs().count).contains(&vrf.number))
}

impl TestSetup<'_> {
    /// Computes the routes of the first `vrfs` VRFs, and lets all routers expect them. None of them is present yet.
    fn expect(&mut self, vrfs: u32, routes: u32) -> Result<InUse, TestError> {
        let customer = prefixes(label_edge::CUSTOMER_ROUTES, routes)?;
        let remote = prefixes(label_edge::REMOTE_ROUTES, routes)?;
        let chosen = choose(&self.vpns.vrfs, vrfs);
        let mut blocks: Vec<Block> = Vec::new();
        for of_port in chosen.chunk_by(|a, b| a.customer == b.customer) {
            let (first, count) = (of_port[0], of_port.len() as u32);
            let pe = label_edge::pe_router(first.core);
            blocks.push(Block {
                base: first.number,
                core: first.core,
                remote: vpn_routes(pe, first.number, count, &remote)?,
                customer: vpn_routes(DUT_LOOPBACK, first.number, count, &customer)?,
                at_pes: Vec::new(),
            });
        }
        let now = self.rig().now();
        let pes = self.vpns.pes.clone();
        let at_pe = Expected {
            source: RouteSource::External,
            as_path_prefix: vec![CUSTOMER_AS],
            next_hop: Some(DUT_LOOPBACK.into()),
            check_attributes: true,
            times: false,
            labels: true,
        };
        for block in &mut blocks {
            for (_, session) in &pes {
                let Some((routers, router)) = self.rig().session_mut(*session) else { continue };
                let part = VpnPart { routes: block.customer.clone(), distinguishers: Distinguishers::Configured };
                let (vrfs, per_vrf) = (block.customer.vrfs().count, block.customer.per_vrf());
                let adj_rib_in = routers.adj_rib_in_mut(router);
                let id = adj_rib_in.expect_vpn(now, part, at_pe.clone());
                adj_rib_in.change_vpn(now, id, 0..vrfs, 0..per_vrf, false);
                block.at_pes.push((*session, id));
            }
        }
        let (mut at_ces, mut returned) = (Vec::new(), Vec::new());
        for vrf in &chosen {
            let role = self.vpns.roles[vrf.number as usize];
            let session = self.vpns.ces[vrf.number as usize];
            let at_ce = Expected {
                source: RouteSource::Internal(label_edge::pe_router(vrf.core)),
                as_path_prefix: vec![PROVIDER_AS.into()],
                next_hop: Some(role.local.into()),
                labels: false,
                ..at_pe.clone()
            };
            let Some((routers, router)) = self.rig().session_mut(session) else { continue };
            let adj_rib_in = routers.adj_rib_in_mut(router);
            let id = adj_rib_in.expect(now, remote.clone(), 0..remote.len(), at_ce);
            adj_rib_in.change(now, id, 0..remote.len(), false);
            at_ces.push((session, id));
            let back = Expected::default();
            let id = adj_rib_in.expect(now, customer.clone(), 0..customer.len(), back);
            adj_rib_in.change(now, id, 0..customer.len(), false);
            returned.push((session, id));
        }
        Ok(InUse { vrfs: chosen, blocks, customer, remote, at_ces, returned, changed: None })
    }

    /// All sessions of the VRFs that are in use, with their expectations.
    fn expectations(&self) -> impl Iterator<Item = (SessionIndex, ExpectationId)> + '_ {
        self.vpns.in_use.iter().flat_map(|used| {
            let at_pes = used.blocks.iter().flat_map(|block| &block.at_pes);
            used.at_ces.iter().chain(at_pes).copied()
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

    /// For how long the tester was late in sending, by session.
    fn lateness(&self) -> Vec<(SessionIndex, Duration)> {
        let rig = &self.routing.bench.rig;
        let now = rig.now();
        let late = |session: SessionIndex| {
            let (routers, router) = rig.session(session)?;
            Some((session, routers.pressure(router, now).late))
        };
        self.sessions_in_use().into_iter().filter_map(late).collect()
    }

    /// The longest of these times since all routes were changed.
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

    /// Routes advertised so far, and the number of sessions on which the DUT has not acknowledged all of them.
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
        match self.vpns.ces.iter().position(|ce| *ce == session) {
            Some(vrf) => format!("the CE router of v{}", vrf + 1),
            None => {
                let port = self.vpns.pes.iter().find(|(_, pe)| *pe == session).map_or(0, |(port, _)| *port);
                format!("the PE router behind {}", self.routing.bench.facts.ports[port].name)
            }
        }
    }

    /// Why `wanted` sessions are not all up.
    fn sessions_down(&self, wanted: &[SessionIndex], within: Duration) -> String {
        let rig = &self.routing.bench.rig;
        let up =
            |session: &SessionIndex| rig.session(*session).is_some_and(|(routers, router)| routers.established(router));
        let down: Vec<_> = wanted.iter().copied().filter(|session| !up(session)).collect();
        let Some(first) = down.first() else { return "a session is not up".into() };
        let cause = rig.session(*first).and_then(|(routers, router)| {
            routers.session(router).ended().map(|cause| format!("; it last ended because {cause}"))
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

    /// The flows to the CE router of a VRF: one for each stretch of routes with the same labels.
    fn to_customers(
        &self,
        used: &InUse,
        vrf: &VrfView,
        part: Range<u32>,
        size: &PacketSize,
        group: &str,
    ) -> Result<Vec<FlowSpec>, TestError> {
        let rig = &self.routing.bench.rig;
        let transport = self.transport_label(vrf.core)?;
        let no_label = |route: u32| {
            let prefix = used.customer.prefix(route);
            TestError::Failed(format!("the DUT has advertised no label for {prefix} of {}", vrf.name()))
        };
        let pe = self.vpns.pes.iter().find(|(port, _)| *port == vrf.core).map(|(_, session)| *session);
        let found = block_of(used, vrf).zip(pe).and_then(|(block, pe)| {
            let (_, id) = block.at_pes.iter().find(|(session, _)| *session == pe)?;
            Some((rig.session(pe)?, *id, vrf.number - block.base))
        });
        let Some(((routers, router), id, index)) = found else { return Err(no_label(part.start)) };
        let adj_rib_in = routers.adj_rib_in(router);
        let mut flows = Vec::new();
        let mut begin = part.start;
        while begin < part.end {
            let labels = adj_rib_in.label_of(id, index, begin).ok_or_else(|| no_label(begin))?;
            let same = |route: &u32| adj_rib_in.label_of(id, index, *route) == Some(labels);
            let end = (begin + 1..part.end).find(|route| !same(route)).unwrap_or(part.end);
            let stack: Vec<u32> = transport.into_iter().chain(labels.iter().copied()).collect();
            flows.push(flows::to_customer(used, vrf, begin..end, &stack, size, group));
            if flows.len() * used.vrfs.len() > MOST_FLOWS {
                let why =
                    "the DUT gives each route a label of its own, so these routes need too many flows: ask for fewer";
                return Err(TestError::NotApplicable(why.into()));
            }
            begin = end;
        }
        Ok(flows)
    }

    /// The label that the DUT has advertised for its loopback address at a core port; `None` if the P router is to remove the label.
    fn transport_label(&self, core: PortIndex) -> Result<Option<u32>, TestError> {
        let device = self.routing.bench.rig.hosts().device(core, crate::core::P_ROUTER);
        let lsr = device.and_then(|device| device.protocol::<Lsr>());
        let loopback = prefix(DUT_LOOPBACK, 32)?;
        let name = &self.routing.bench.facts.ports[core].name;
        match lsr.and_then(|lsr| lsr.label_for(loopback)) {
            Some(Label::IMPLICIT_NULL) => Ok(None),
            Some(label) => Ok(Some(label.value())),
            None => Err(TestError::Failed(format!("the DUT has advertised no label for {loopback} by LDP at {name}"))),
        }
    }
}

impl Vpns for TestSetup<'_> {
    fn vrfs(&self) -> &[VrfView] {
        &self.vpns.vrfs
    }

    fn used(&self) -> &[VrfView] {
        self.vpns.in_use.as_ref().map_or(&[], |used| &used.vrfs)
    }

    fn bring_up(&mut self, vrfs: u32, routes: u32, within: Duration) -> Result<VpnUp, TestError> {
        Vpns::take_down(self)?;
        self.routing.end_sessions()?;
        let all = self.vpns.vrfs.len();
        if vrfs == 0 || vrfs as usize > all {
            let why = format!(
                "the DUT has {all} VRFs, the test asks for {vrfs}: change `customers` of the ports, or the test"
            );
            return Err(TestError::NotApplicable(why));
        }
        let used = self.expect(vrfs, routes)?;
        self.vpns.in_use = Some(used);
        let core_s = self.bench().bring_core_up(within)?.as_secs_f64();
        let pes: Vec<_> = self.vpns.pes.iter().map(|(_, session)| *session).collect();
        let ces: Vec<_> = self.vpns.in_use()?.at_ces.iter().map(|(session, _)| *session).collect();
        let begun = self.rig().now();
        let deadline = begun + within;
        let mut wanted = Vec::new();
        for chunk in std::iter::once(&pes[..]).chain(ces.chunks(AT_ONCE)) {
            self.rig().protocols(Select::These(chunk), Action::Start);
            wanted.extend_from_slice(chunk);
            let left = deadline.since(self.rig().now());
            // Earlier sessions may have ended in the meantime.
            if self.bench().await_core(&Until::Established(wanted.clone()), left)?.is_none() {
                return Err(TestError::Failed(self.sessions_down(&wanted, within)));
            }
        }
        let roles = self.vpns.used_roles();
        self.vpns.bfd = self.bench().start_customer_bfd(&roles, deadline, within)?;
        let sessions_s = self.rig().now().since(begun).as_secs_f64();
        Ok(VpnUp { core_s, sessions_s, sessions: wanted.len() as u32 })
    }

    fn change_all(&mut self, change: Change) -> Result<(), TestError> {
        let late = self.lateness();
        let now = self.rig().now();
        if let Some(used) = &mut self.vpns.in_use {
            used.changed = Some((now, late));
        }
        let used = self.vpns.in_use()?;
        let (packing, present) = (Packing::default(), change == Change::Advertise);
        let place = |bench: &Bench<'_>, session| bench.rig.hosts().place(session);
        let mut acts = Vec::new();
        let bench = &self.routing.bench;
        for (session, _) in &used.at_ces {
            let RouterPlace { port, device, router } = place(bench, *session);
            let set = RouteSet::unicast(used.customer.clone(), 0..used.customer.len(), packing);
            acts.push((port, Act::bgp(device, BgpCommand::Routes { peer: router, change, set })));
        }
        for block in &used.blocks {
            let Some((_, session)) = self.vpns.pes.iter().find(|(port, _)| *port == block.core) else { continue };
            let RouterPlace { port, device, router } = place(bench, *session);
            let set = VpnRouteSet::all(block.remote.clone(), packing);
            acts.push((port, Act::bgp(device, BgpCommand::VpnRoutes { peer: router, change, set })));
        }
        for (port, act) in &acts {
            self.rig().command(*port, act).map_err(|e| TestError::Failed(e.to_string()))?;
        }
        let per_site = self.vpns.in_use()?.customer.len();
        let (mut at_ces, mut at_pes) = (Vec::new(), Vec::new());
        if let Some(used) = &self.vpns.in_use {
            at_ces.extend_from_slice(&used.at_ces);
            let of_block =
                |block: &Block| block.at_pes.iter().map(|at| (*at, block.customer.vrfs().count)).collect::<Vec<_>>();
            at_pes.extend(used.blocks.iter().flat_map(of_block));
        }
        let now = self.rig().now();
        for (session, id) in at_ces {
            if let Some((routers, router)) = self.rig().session_mut(session) {
                routers.adj_rib_in_mut(router).change(now, id, 0..per_site, present);
            }
        }
        for ((session, id), vrfs) in at_pes {
            if let Some((routers, router)) = self.rig().session_mut(session) {
                routers.adj_rib_in_mut(router).change_vpn(now, id, 0..vrfs, 0..per_site, present);
            }
        }
        Ok(())
    }

    fn at_customer(&mut self, vrf: &VrfView, change: Change, part: Range<u32>) -> Result<RouteAction, TestError> {
        let now = self.rig().now();
        let used = self.vpns.in_use()?;
        let routes = used.customer.clone();
        let at_pes = |block: &Block| (block.at_pes.clone(), vrf.number - block.base);
        let (at_pes, index) = block_of(used, vrf).map(at_pes).unwrap_or_default();
        for (session, id) in at_pes {
            if let Some((routers, router)) = self.rig().session_mut(session) {
                let present = change == Change::Advertise;
                routers.adj_rib_in_mut(router).change_vpn(now, id, index..index + 1, part.clone(), present);
            }
        }
        let session = self.vpns.ces.get(vrf.number as usize);
        let peer = session.and_then(|session| self.routing.state.index_of(*session));
        let peer =
            peer.ok_or_else(|| TestError::Failed(format!("the CE router of {} has no BGP session", vrf.name())))?;
        Ok(RouteAction::Routes { peer, change, routes, part, packing: Packing::default() })
    }

    fn await_routes(&mut self, patience: Duration) -> Result<VpnRoutesSeen, TestError> {
        let begun = self.rig().now();
        let (mut progress, mut at) = (self.movement(), begun);
        loop {
            let mut seen = Vpns::seen(self);
            let now = self.rig().now();
            let moved = self.movement();
            if moved != progress {
                (progress, at) = (moved, now);
            }
            let down = || self.vpns.bfd.down(&self.routing.bench.rig);
            let ended = if let Some(lost) = self.lost_session().or_else(down) {
                lost
            } else if now.since(at) > patience {
                let (sent, unacknowledged) = self.sent();
                let held = match unacknowledged {
                    0 => String::new(),
                    some => format!(", {some} of them have not acknowledged everything"),
                };
                let sessions = self.expectations().count();
                format!(
                    "{}; nothing more came for {} s ({sent} routes were advertised to {sessions} sessions{held})",
                    seen.cause,
                    patience.as_secs_f64()
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
        for (vrf, (session, id)) in used.vrfs.iter().zip(&used.at_ces) {
            let Some((routers, router)) = self.routing.bench.rig.session(*session) else { continue };
            let adj_rib_in = routers.adj_rib_in(router);
            let report = adj_rib_in.report(*id);
            seen.add(report.expected, report.present, report.wrong, report.unexpected);
            let foreign = adj_rib_in.unexpected(MOST_LEAKS);
            seen.leaked += adj_rib_in.totals().unexpected;
            let own =
                |prefix: &Prefix| [&used.customer, &used.remote].iter().any(|routes| routes.index_of(prefix).is_some());
            let foreign = foreign.iter().filter(|key| !own(&key.prefix));
            seen.tell(foreign.map(|key| format!("the CE router of {} has {}", vrf.name(), key.prefix)));
        }
        for (session, id) in &used.returned {
            let Some((routers, router)) = self.routing.bench.rig.session(*session) else { continue };
            seen.returned += u64::from(routers.adj_rib_in(router).report(*id).unexpected);
        }
        for block in &used.blocks {
            for (session, id) in &block.at_pes {
                let Some((routers, router)) = self.routing.bench.rig.session(*session) else { continue };
                let adj_rib_in = routers.adj_rib_in(router);
                let report = adj_rib_in.report(*id);
                seen.add(report.expected, report.present, report.wrong, report.unexpected);
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
        let lost = |session: SessionIndex| {
            let (routers, router) = self.routing.bench.rig.session(session)?;
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
        part: Range<u32>,
        size: &PacketSize,
        group: &str,
    ) -> Result<Vec<FlowSpec>, TestError> {
        let used = self.vpns.in_use()?;
        match way {
            Way::ToCore => Ok(vec![flows::to_core(used, vrf, part, size, group)]),
            Way::ToCustomers => self.to_customers(used, vrf, part, size, group),
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
        let sessions: Vec<_> = self.vpns.ces.iter().copied().chain(self.vpns.pes.iter().map(|(_, pe)| *pe)).collect();
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
