//! RSVP-TE between two P routers behind core ports and the DUT, and RSVP-TE of the reference device.

use crate::bench::Bench;
use crate::setup::TestSetup;
use drophammer_methods::{LspPlan, Lsps, Signalling, TestError, UpLsp};
use drophammer_model::Instant;
use drophammer_model::label_edge::{CoreProtocol, pe_router};
use drophammer_model::role::CoreRole;
use drophammer_model::suite::Params;
use drophammer_model::trial::PortIndex;
use drophammer_reference::RsvpConfig as DeviceConfig;
use drophammer_rig::rsvp::{
    EgressRange, ErrorKind, IngressRange, LabelPolicy, LspRange, Pace, RefreshReduction, RouteHop, Rsvp, RsvpCommand,
    RsvpConfig,
};
use drophammer_rig::{Command, ProtocolConfig, ProtocolPlace, State, Until};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::time::Duration;

/// First label of the egress. It differs from the labels that routers assign first.
const FIRST_LABEL: u32 = 400_000;
/// Maximum number of tunnels to each endpoint, so that two plans, one after the other, can have different tunnel IDs.
const MOST_TUNNELS: u16 = 30_000;
/// Types of messages whose state is set up, refreshed or acknowledged.
const COUNTED: [&str; 4] = ["path", "resv", "srefresh", "ack"];

/// RSVP-TE on two P routers.
pub(crate) struct LspEnds {
    range: LspRange,
    ingress: ProtocolPlace,
    egress: ProtocolPlace,
}

/// RSVP-TE of a reference device with these parameters, if a core link uses it.
pub(crate) fn config(params: &Params, core: &CoreRole) -> Option<DeviceConfig> {
    let links = core.links.iter().filter(|link| link.has(CoreProtocol::Rsvp));
    let interfaces: Vec<usize> = links.map(|link| link.port).collect();
    let standard = DeviceConfig::default();
    (!interfaces.is_empty()).then(|| DeviceConfig {
        interfaces,
        refresh: params.duration("rsvp_refresh").unwrap_or(standard.refresh),
        lsp_limit: params.count("lsp_limit").map(|limit| u32::try_from(limit).unwrap_or(u32::MAX)),
        refresh_reduction: params.flag("rsvp_refresh_reduction").unwrap_or(standard.refresh_reduction),
    })
}

impl Bench<'_> {
    /// The core ports with RSVP-TE.
    fn rsvp_ports(&self) -> Vec<PortIndex> {
        let ports = self.facts.ports.iter().enumerate();
        ports.filter(|(_, port)| port.core.contains(&CoreProtocol::Rsvp)).map(|(index, _)| index).collect()
    }

    /// Addresses of the DUT and of the P router on the link of a core port.
    fn link(&self, port: PortIndex) -> Option<(Ipv4Addr, Ipv4Addr)> {
        let addressing = self.facts.ports[port].ipv4.as_ref()?;
        match (addressing.dut, addressing.host) {
            (IpAddr::V4(dut), IpAddr::V4(host)) => Some((dut, host)),
            _ => None,
        }
    }
}

/// Describes an error of the DUT in words (RFC 2205 appendix B, RFC 3209 section 7.3).
fn reason(kind: ErrorKind) -> String {
    let message = if kind.resv { "ResvErr" } else { "PathErr" };
    let words = match (kind.code, kind.value) {
        (1, _) => "admission control failure",
        (2, _) => "policy control failure",
        (3, _) => "no path information",
        (4, _) => "no sender information",
        (24, 1) => "bad explicit route",
        (24, 2) => "bad strict node",
        (24, 3) => "bad loose node",
        (24, 4) => "bad initial subobject",
        (24, 5) => "no route to the destination",
        (24, 6) => "unacceptable label value",
        (24, 7) => "routing loop",
        (24, 9) => "MPLS label allocation failure",
        (24, 10) => "unsupported protocol of the label request",
        (24, _) => "routing problem",
        (25, _) => "notification",
        _ => "error",
    };
    format!("{message}, {words} (code {}, value {})", kind.code, kind.value)
}

/// LSPs with new tunnel IDs and LSP IDs: the DUT may still have state for the LSPs of the last plan.
fn range_after(last: Option<&LspRange>, plan: &LspPlan) -> LspRange {
    let range = LspRange::new(plan.count, pe_router(plan.ingress), pe_router(plan.egress));
    let per = range.tunnels_per_endpoint.min(MOST_TUNNELS);
    let next = last.and_then(|last| last.tunnel_id.checked_add(last.tunnels_per_endpoint));
    let first = next.filter(|first| first.checked_add(per).is_some()).unwrap_or(1);
    LspRange { tunnels_per_endpoint: per, lsps_per_sender: per, tunnel_id: first, lsp_id: first, ..range }
}

impl TestSetup<'_> {
    /// The interface for tests with LSPs.
    ///
    /// # Errors
    /// [`TestError::NotApplicable`] if fewer than two ports have RSVP-TE.
    pub(crate) fn with_lsps(&mut self) -> Result<&mut dyn Lsps, TestError> {
        let bench = &self.routing.bench;
        let usable = bench.rsvp_ports();
        if usable.len() < 2 || usable.iter().any(|port| bench.link(*port).is_none()) {
            let why = "LSPs need an ingress and an egress; add `core: [rsvp]` to two ports of the suite";
            return Err(TestError::NotApplicable(why.into()));
        }
        Ok(self)
    }

    fn rsvp(&self, place: ProtocolPlace) -> Option<&Rsvp> {
        self.routing.bench.rig.hosts().device(place.port, place.device)?.protocol()
    }

    fn command(&mut self, command: RsvpCommand) -> Result<(), TestError> {
        let Some(place) = self.lsps.as_ref().map(|ends| ends.ingress) else {
            return Err(TestError::Failed("RSVP-TE was not started, a bug in Drophammer".into()));
        };
        let failed = |e: drophammer_rig::RigError| TestError::Failed(e.to_string());
        self.rig().command_to(place, &Command::Rsvp(command)).map_err(failed)
    }
}

impl Lsps for TestSetup<'_> {
    fn ports(&self) -> Vec<PortIndex> {
        self.routing.bench.rsvp_ports()
    }

    fn begin(&mut self, plan: &LspPlan) -> Result<(), TestError> {
        self.routing.end_sessions()?;
        let bench = &mut self.routing.bench;
        bench.stop_core()?;
        let last = self.lsps.take().map(|ends| ends.range);
        let (Some((dut, _)), Some((_, egress))) = (bench.link(plan.ingress), bench.link(plan.egress)) else {
            return Err(TestError::NotApplicable("a port with RSVP-TE has no IPv4".into()));
        };
        let range = range_after(last.as_ref(), plan);
        let common = RsvpConfig {
            refresh: plan.refresh,
            refresh_reduction: plan.refresh_reduction.then(RefreshReduction::default),
            ..RsvpConfig::default()
        };
        let strict = |address| RouteHop { address, prefix_len: 32, loose: false };
        let explicit_route = vec![strict(dut), strict(egress)];
        let ingress = vec![IngressRange { explicit_route, ..IngressRange::new(range.clone()) }];
        let labels = LabelPolicy::From(FIRST_LABEL);
        let ends = vec![EgressRange { lsps: range.clone(), labels }];
        let rsvp = |config| ProtocolConfig::Rsvp(Box::new(config));
        let egress = bench.start_core(plan.egress, &rsvp(RsvpConfig { egress: ends, ..common.clone() }))?;
        let ingress = bench.start_core(plan.ingress, &rsvp(RsvpConfig { ingress, ..common }))?;
        self.lsps = Some(LspEnds { range, ingress, egress });
        Ok(())
    }

    fn set_up(&mut self, lsps: Range<u32>, per_second: u32) -> Result<(), TestError> {
        self.command(RsvpCommand::SetUp(Pace { lsps, per_second }))
    }

    fn tear_down(&mut self, lsps: Range<u32>, per_second: u32) -> Result<(), TestError> {
        self.command(RsvpCommand::TearDown(Pace { lsps, per_second }))
    }

    fn await_up(&mut self, lsps: u32, within: Duration) -> Result<bool, TestError> {
        let Some(ends) = &self.lsps else { return Ok(false) };
        let both = [ends.ingress, ends.egress].map(|place| Until::AtLeast(place, lsps));
        let bench = &mut self.routing.bench;
        let up = bench.await_core(&Until::All(both.into()), within)?.is_some();
        if !up {
            bench.port_works()?;
        }
        Ok(up)
    }

    fn await_down(&mut self, within: Duration) -> Result<bool, TestError> {
        let Some(ends) = &self.lsps else { return Ok(true) };
        let places = [ends.ingress, ends.egress];
        let up = |bench: &Bench<'_>, place| bench.rig.hosts().state(place).is_some_and(|state| state.up > 0);
        let down = |bench: &Bench<'_>| !places.iter().any(|place| up(bench, *place));
        Ok(self.routing.bench.await_state(within, &down)?.is_some())
    }

    fn up(&self, lsp: u32) -> Option<UpLsp> {
        let ends = self.lsps.as_ref()?;
        let ingress = self.rsvp(ends.ingress)?;
        let (label, since) = (ingress.label_of(lsp)?, ingress.up_since(lsp)?);
        let (_, arriving, at_egress) = self.rsvp(ends.egress)?.egress_of(lsp)?;
        let seconds = |at: Instant| at.since(Instant(0)).as_secs_f64();
        Some(UpLsp { label, arriving, since_s: [since, at_egress].map(seconds) })
    }

    fn name(&self, lsp: u32) -> String {
        let Some(ends) = &self.lsps else { return format!("LSP {lsp}") };
        let session = ends.range.key(lsp).session;
        format!("tunnel {} to {}", session.tunnel_id, session.destination)
    }

    fn signalling(&mut self) -> Signalling {
        let at_s = self.rig().now().since(Instant(0)).as_secs_f64();
        let places = self.lsps.iter().flat_map(|ends| [ends.ingress, ends.egress]);
        let states: Vec<State> = places.filter_map(|place| self.routing.bench.rig.hosts().state(place)).collect();
        let sum = |name: String| states.iter().map(|state| state.counter(&name)).sum::<u64>();
        let messages = ["sent", "received"].map(|way| COUNTED.iter().map(|kind| sum(format!("{kind}_{way}"))).sum());
        Signalling { at_s, messages, bytes: ["bytes_sent", "bytes_received"].map(|name| sum(name.into())) }
    }

    fn errors(&self) -> Vec<(String, u64)> {
        let mut all: BTreeMap<String, u64> = BTreeMap::new();
        for place in self.lsps.iter().flat_map(|ends| [ends.ingress, ends.egress]) {
            for (kind, count) in self.rsvp(place).into_iter().flat_map(Rsvp::errors) {
                *all.entry(reason(kind)).or_default() += count;
            }
        }
        all.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_plans_one_after_the_other_share_no_tunnel() {
        for count in [1, 2_000, 30_000, 500_000] {
            let refresh = Duration::from_secs(30);
            let plan = LspPlan { ingress: 0, egress: 1, count, refresh, refresh_reduction: false };
            let mut last = range_after(None, &plan);
            for _ in 0..100 {
                let next = range_after(Some(&last), &plan);
                assert!((0..count).step_by(97).all(|lsp| last.index(&next.key(lsp)).is_none()), "{last:?}, {next:?}");
                assert_eq!(next.index(&next.key(count - 1)), Some(count - 1));
                last = next;
            }
        }
    }

    #[test]
    fn reasons_have_words_and_numbers() {
        let kind = ErrorKind { resv: false, code: 24, value: 9 };
        assert_eq!(reason(kind), "PathErr, MPLS label allocation failure (code 24, value 9)");
        assert_eq!(reason(ErrorKind { resv: true, code: 99, value: 1 }), "ResvErr, error (code 99, value 1)");
    }
}
