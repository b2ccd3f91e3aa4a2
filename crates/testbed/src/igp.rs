//! The emulated P routers as OSPF and LDP neighbours of the DUT ([`Igp`]).

use crate::bench::Bench;
use crate::core::{P_ROUTER, ospf_to, prefix};
use crate::setup::TestSetup;
use drophammer_emulation::ldp::{AdvertisedFecs, FecRange, LabelPattern, LdpCommand, Lsr, LsrConfig};
use drophammer_emulation::ospf::{Externals, Networks, Ospf, OspfCommand, OspfConfig, Part};
use drophammer_emulation::protocol::State;
use drophammer_emulation::{bfd, ospf};
use drophammer_methods::igp::{FIRST, FIRST_LABEL, Igp, IgpCounts, IgpPlan, LENGTH};
use drophammer_methods::{Change, RouteAction, TestError};
use drophammer_model::label_edge::{CoreProtocol, DUT_LOOPBACK, p_router, pe_router};
use drophammer_model::routes::Prefix;
use drophammer_model::trial::PortIndex;
use drophammer_rig::{Act, Command, ProtocolConfig, ProtocolPlace, Until};
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::time::Duration;

/// How often to check a state for which the rig has no condition.
const LOOK: Duration = Duration::from_millis(10);
/// Indices of the FEC ranges that a P router advertises: the PE router's loopback address, and the prefixes.
const PE_FEC: usize = 0;
const FECS: usize = 1;

/// Translates an action of a test into the act of a P router.
pub(crate) fn act(protocol: CoreProtocol, change: Change, part: Range<u32>) -> Act {
    let command = match (protocol, change) {
        (CoreProtocol::Ldp, Change::Advertise) => Command::Ldp(LdpCommand::Advertise { range: FECS, part }),
        (CoreProtocol::Ldp, Change::Withdraw) => Command::Ldp(LdpCommand::Withdraw { range: FECS, part }),
        (_, Change::Advertise) => Command::Ospf(OspfCommand::Advertise(Part::External(part))),
        (_, Change::Withdraw) => Command::Ospf(OspfCommand::Withdraw(Part::External(part))),
    };
    Act::Device { device: P_ROUTER, command }
}

/// OSPF of the P router behind `port`, with a PE router behind it, and with the prefixes of `plan` if they are behind
/// this port.
fn ospf_of(plan: &IgpPlan, port: PortIndex, mtu: u32) -> OspfConfig {
    let external = |metric| Externals {
        networks: Networks { first: FIRST, length: LENGTH, count: plan.prefixes, metric },
        type_2: false,
        tag: 0,
        forwarding: Ipv4Addr::UNSPECIFIED,
    };
    OspfConfig { external: plan.metric(port).map(external), advertise_at_start: false, ..ospf_to(port, mtu) }
}

/// LDP of the P router behind `port`, whose own address is `host`.
fn ldp_of(plan: &IgpPlan, port: PortIndex, host: Ipv4Addr) -> Result<LsrConfig, TestError> {
    let pe = FecRange::new(prefix(pe_router(port), 32)?, 1);
    let all = FecRange::new(prefix(FIRST, LENGTH)?, plan.prefixes);
    let labels = LabelPattern::Counting { first: FIRST_LABEL, step: 1 };
    let mut advertised = vec![AdvertisedFecs { fecs: pe, labels: LabelPattern::ImplicitNull }];
    if plan.metric(port).is_some() {
        advertised.push(AdvertisedFecs { fecs: all.clone(), labels });
    }
    let expected = vec![FecRange::new(prefix(DUT_LOOPBACK, 32)?, 1), all];
    Ok(LsrConfig { advertised, expected, ..LsrConfig::new(p_router(port), host) })
}

impl Bench<'_> {
    fn ospf(&self, port: PortIndex) -> Option<&Ospf> {
        self.rig.hosts().device(port, P_ROUTER)?.protocol()
    }

    fn lsr(&self, port: PortIndex) -> Option<&Lsr> {
        self.rig.hosts().device(port, P_ROUTER)?.protocol()
    }

    /// Serves the devices until `holds`, for at most `within`. Returns the time that this took.
    pub(crate) fn await_state(
        &mut self,
        within: Duration,
        holds: &dyn Fn(&Bench<'_>) -> bool,
    ) -> Result<Option<Duration>, TestError> {
        let begun = self.rig.now();
        loop {
            let now = self.rig.now();
            if holds(self) {
                return Ok(Some(now.since(begun)));
            }
            if now.since(begun) >= within {
                return Ok(None);
            }
            self.await_core(&Until::At(now + LOOK), LOOK)?;
        }
    }

    /// Starts a protocol, and carries out its first command.
    fn start_with(
        &mut self,
        port: PortIndex,
        config: &ProtocolConfig,
        first: Option<&Command>,
    ) -> Result<ProtocolPlace, TestError> {
        let place = self.start_core(port, config)?;
        if let Some(command) = first {
            self.rig.command_to(place, command).map_err(|e| TestError::Failed(e.to_string()))?;
        }
        Ok(place)
    }
}

impl Igp for TestSetup<'_> {
    fn start(&mut self, plan: &IgpPlan, within: Duration) -> Result<Duration, TestError> {
        self.routing.end_sessions()?;
        let bench = &mut self.routing.bench;
        bench.stop_core()?;
        let ports: Vec<_> = bench.facts.ports.iter().cloned().enumerate().collect();
        let mut places = Vec::new();
        for (port, view) in ports.iter().filter(|(_, view)| view.core.contains(&CoreProtocol::Ospf)) {
            let Some((IpAddr::V4(host), IpAddr::V4(dut))) = view.ipv4.as_ref().map(|a| (a.host, a.dut)) else {
                continue;
            };
            let config = ProtocolConfig::Ospf(Box::new(ospf_of(plan, *port, view.mtu)));
            let first = Command::Ospf(OspfCommand::Advertise(Part::Routers(0..1)));
            places.push((view.name.clone(), CoreProtocol::Ospf, bench.start_with(*port, &config, Some(&first))?));
            if view.core.contains(&CoreProtocol::Bfd) {
                let config = ProtocolConfig::Bfd(vec![bfd::SessionConfig::new(dut.into())]);
                places.push((view.name.clone(), CoreProtocol::Bfd, bench.start_with(*port, &config, None)?));
            }
            if plan.ldp && view.core.contains(&CoreProtocol::Ldp) {
                let config = ProtocolConfig::Ldp(ldp_of(plan, *port, host)?);
                let first = Command::Ldp(LdpCommand::Advertise { range: PE_FEC, part: 0..1 });
                places.push((view.name.clone(), CoreProtocol::Ldp, bench.start_with(*port, &config, Some(&first))?));
            }
        }
        let up = Until::All(places.iter().map(|(_, _, place)| Until::Up(*place)).collect());
        if let Some(took) = bench.await_core(&up, within)? {
            return Ok(took);
        }
        bench.port_works()?;
        let hosts = bench.rig.hosts();
        let down = places.iter().find(|(_, _, place)| !Until::Up(*place).holds(bench.rig.now(), hosts));
        let (name, protocol, place) = down.ok_or_else(|| TestError::Failed("no core port has OSPF".into()))?;
        let state = hosts.state(*place).unwrap_or_default();
        Err(TestError::Failed(format!(
            "{} at port {name} was not up after {} s ({}): check that the router has it on this link, with the timers of RFC 2328 and RFC 5036",
            protocol.word(),
            within.as_secs_f64(),
            seen(*protocol, &state),
        )))
    }

    fn act(&mut self, action: &RouteAction) -> Result<(), TestError> {
        let RouteAction::Igp { port, protocol, change, part } = action else {
            return Err(TestError::NotApplicable("this is not an action of a P router".into()));
        };
        let act = act(*protocol, *change, part.clone());
        self.routing.bench.rig.command(*port, &act).map_err(|e| TestError::NotApplicable(e.to_string()))
    }

    fn await_settled(&mut self, within: Duration) -> Result<bool, TestError> {
        let settled = |bench: &Bench<'_>| {
            (0..bench.facts.ports.len()).all(|port| {
                let flooded = bench.ospf(port).is_none_or(|ospf| {
                    let progress = ospf.progress();
                    progress.waiting == 0 && progress.unacknowledged == 0
                });
                flooded && bench.lsr(port).is_none_or(|lsr| lsr.peers().iter().all(|peer| peer.all_sent()))
            })
        };
        Ok(self.routing.bench.await_state(within, &settled)?.is_some())
    }

    fn await_labels(
        &mut self,
        port: PortIndex,
        part: Range<u32>,
        within: Duration,
    ) -> Result<Option<Duration>, TestError> {
        let known = |bench: &Bench<'_>| labels(bench, port, part.clone()).iter().all(Option::is_some);
        self.routing.bench.await_state(within, &known)
    }

    fn labels(&self, port: PortIndex, part: Range<u32>) -> Vec<Option<u32>> {
        labels(&self.routing.bench, port, part)
    }

    fn await_pe_label(&mut self, port: PortIndex, of: PortIndex, within: Duration) -> Result<Option<u32>, TestError> {
        let pe = prefix(pe_router(of), 32)?;
        let label = |bench: &Bench<'_>| bench.lsr(port)?.label_for(pe).map(|label| label.value());
        let bench = &mut self.routing.bench;
        bench.await_state(within, &|bench| label(bench).is_some())?;
        Ok(label(bench))
    }

    fn counts(&self, port: PortIndex) -> IgpCounts {
        let bench = &self.routing.bench;
        let ospf = bench.ospf(port).map(drophammer_emulation::protocol::Protocol::state).unwrap_or_default();
        let ldp = bench.lsr(port).map(drophammer_emulation::protocol::Protocol::state).unwrap_or_default();
        let bfd = ProtocolPlace { port, device: P_ROUTER, protocol: bfd::NAME };
        let bfd = bench.rig.hosts().state(bfd).unwrap_or_default();
        IgpCounts {
            updates: [ospf.counter("updates_sent"), ospf.counter("updates_received")],
            lsas_retransmitted: ospf.counter("lsas_retransmitted"),
            mappings: [ldp.counter("mappings_sent"), ldp.counter("mappings_received")],
            lost: ospf.counter("adjacencies_lost") + ldp.counter("sessions_lost"),
            bfd_missing: bfd.counter("packets_missing"),
            flooding: Duration::from_micros(ospf.counter("flooding_us")),
        }
    }
}

fn labels(bench: &Bench<'_>, port: PortIndex, part: Range<u32>) -> Vec<Option<u32>> {
    let Some(lsr) = bench.lsr(port) else { return vec![None; part.len()] };
    let address = |index: u32| Ipv4Addr::from_bits(FIRST.to_bits() + (index << (32 - LENGTH)));
    let label = |index| lsr.label_for(Prefix::masked(address(index).into(), LENGTH)?).map(|label| label.value());
    part.map(label).collect()
}

/// Describes what a protocol that is not up has received from the DUT.
fn seen(protocol: CoreProtocol, state: &State) -> String {
    match protocol {
        CoreProtocol::Ospf | CoreProtocol::Ldp => {
            let (name, hellos) =
                (if protocol == CoreProtocol::Ospf { ospf::NAME } else { "ldp" }, state.counter("hellos_received"));
            format!(
                "{hellos} hellos of {name} came from the router, {} of {} neighbours are up",
                state.up, state.sessions
            )
        }
        _ => format!("{} of {} sessions are up", state.up, state.sessions),
    }
}
