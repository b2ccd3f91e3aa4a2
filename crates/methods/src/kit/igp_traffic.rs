//! Traffic to prefixes behind P routers: IP packets for routes of OSPF, packets with the DUT's labels for LDP.

use crate::attempts::Attempts;
use crate::igp::{FIRST_LABEL, IgpCounts, IgpPlan, core_ports};
use crate::parameters::DRAIN;
use crate::route_tests::thousands;
use crate::route_traffic::{must_fit, smallest};
use crate::routing::{Change, RouteAction};
use crate::testbed::{TestError, Testbed};
use crate::trial::{TimedActions, Trial};
use drophammer_model::label_edge::{CoreProtocol, pe_router};
use drophammer_model::quantity::FrameRate;
use drophammer_model::routes::Routes;
use drophammer_model::size::PacketSize;
use drophammer_model::suite::Params;
use drophammer_model::traffic::{Arriving, ArrivingLabel, Bits, Field, HOP_LIMIT, Header, Ipv4, Mpls, Udp};
use drophammer_model::trial::{
    AddressRange, DestinationCounts, Family, FlowSpec, Load, PortIndex, Targets, TrialResult, TrialSpec,
};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// The first label that stands for a FEC; the lower ones are reserved, among them implicit null (RFC 3032 section 2.1).
const FIRST_UNRESERVED: u32 = 16;
/// The label that asks the neighbour to remove the label of a packet, which the last router before a FEC advertises (RFC 3032 section 2.1).
const IMPLICIT_NULL: u32 = 3;

/// Ports and prefixes of a test.
#[derive(Clone, Debug)]
pub struct IgpCase {
    /// What the frames follow: routes of OSPF, or labels of LDP.
    pub protocol: CoreProtocol,
    /// Port that sends.
    pub sender: PortIndex,
    /// What the P routers have.
    pub plan: IgpPlan,
    /// The prefixes.
    pub routes: Arc<Routes>,
    /// Load of the sending port.
    pub rate: FrameRate,
}

/// An action during a trial, in seconds after the first departure, with its name.
pub type Timed = (f64, &'static str, RouteAction);

/// A valid trial.
#[derive(Clone, Debug)]
pub struct Ran {
    /// The result, with the counts of all prefixes in one list.
    pub result: TrialResult,
    /// When this attempt began, in seconds on the tester's clock; `None` if there is no clock.
    pub begun_s: Option<f64>,
    /// Messages of the P routers during this attempt, summed.
    pub counts: IgpCounts,
    /// BFD packets of the DUT that were missing during this attempt, with the name of the port; without ports where none was.
    pub bfd_missing: Vec<(String, u64)>,
}

impl Ran {
    /// What to say if adjacencies or sessions went down during the trial.
    pub fn lost_sessions(&self) -> Option<String> {
        let lost = self.counts.lost;
        (lost > 0).then(|| format!("adjacencies and sessions that went down during the trial: {}", thousands(lost)))
    }

    /// What to say if BFD packets were missing, although no session has to go down for that.
    pub fn missing_bfd(&self) -> Option<String> {
        let sum: u64 = self.bfd_missing.iter().map(|(_, packets)| packets).sum();
        let of_port = |(port, packets): &(String, u64)| format!("{port}: {}", thousands(*packets));
        let by_port: Vec<_> = self.bfd_missing.iter().map(of_port).collect();
        let text = || format!("BFD packets of the router were missing: {} ({})", thousands(sum), by_port.join(", "));
        (sum > 0).then(text)
    }
}

/// True if a label of the DUT stands for a FEC.
pub fn is_own_label(label: Option<u32>) -> bool {
    label.is_some_and(|label| label >= FIRST_UNRESERVED)
}

/// Number of FECs for which the DUT has advertised implicit null.
pub fn nulls(labels: &[Option<u32>]) -> u64 {
    labels.iter().filter(|label| **label == Some(IMPLICIT_NULL)).count() as u64
}

impl IgpCase {
    /// `prefixes` prefixes behind the second core port and, for OSPF with three core ports, behind the third one with a higher metric. The
    /// first core port sends; if only one port has OSPF, the prefixes are behind it, and another port sends.
    ///
    /// # Errors
    /// [`TestError::NotApplicable`] if the suite has too few core ports or the prefixes do not fit.
    pub fn new(
        bed: &dyn Testbed,
        protocol: CoreProtocol,
        prefixes: u32,
        rate: FrameRate,
    ) -> Result<IgpCase, TestError> {
        let ldp = protocol == CoreProtocol::Ldp;
        let ports = match ldp {
            true => core_ports(bed, &[CoreProtocol::Ospf, CoreProtocol::Ldp], 2)?,
            false => core_ports(bed, &[CoreProtocol::Ospf], 1)?,
        };
        let labels = bed.ports().iter().any(|port| port.core.contains(&CoreProtocol::Ldp));
        if !ldp && labels && bed.facts().system.is_some() {
            return Err(TestError::NotApplicable(
                "routers of a chain with LDP push labels for each other, and the P routers of OSPF alone have none to replace them: \
                 write `core: [ospf]` at the ports, or `protocol: ldp`"
                    .into(),
            ));
        }
        let other = (0..bed.ports().len()).find(|port| !ports.contains(port));
        let (sender, behind) = match (&ports[..], other) {
            ([only], Some(other)) => (other, vec![*only]),
            ([sender, first, second, ..], _) if !ldp => (*sender, vec![*first, *second]),
            ([sender, first, ..], _) => (*sender, vec![*first]),
            _ => {
                return Err(TestError::NotApplicable(
                    "it needs a port that sends, in addition to the core port".into(),
                ));
            }
        };
        let plan = IgpPlan { prefixes, behind, ldp };
        let routes = plan.routes()?;
        Ok(IgpCase { protocol, sender, plan, routes, rate })
    }

    /// The port behind which the prefixes are.
    pub fn to(&self) -> PortIndex {
        self.plan.behind[0]
    }

    /// The ports with prefixes behind them, and the one that sends.
    fn ports(&self) -> impl Iterator<Item = PortIndex> {
        self.plan.behind.iter().copied().chain([self.sender])
    }

    /// Indices of all prefixes.
    pub fn whole(&self) -> Range<u32> {
        0..self.plan.prefixes
    }

    /// An action of the P router behind a port.
    pub fn action(&self, port: PortIndex, protocol: CoreProtocol, change: Change, part: Range<u32>) -> RouteAction {
        RouteAction::Igp { port, protocol, change, part }
    }

    /// Waits until all LSAs and labels have been sent.
    ///
    /// # Errors
    /// [`TestError::Failed`] if the DUT did not acknowledge them in time.
    pub fn settle(&self, bed: &mut dyn Testbed, within: Duration) -> Result<(), TestError> {
        if bed.igp()?.await_settled(within)? {
            return Ok(());
        }
        let counts = bed.igp()?.counts(self.to());
        Err(TestError::Failed(format!(
            "the router did not acknowledge all LSAs within {} s ({} Link State Updates sent, {} LSAs repeated)",
            within.as_secs_f64(),
            counts.updates[0],
            counts.lsas_retransmitted
        )))
    }

    /// Frames to these prefixes, with the DUT's labels if the protocol is LDP. Group: `prefixes`.
    ///
    /// # Errors
    /// [`TestError::NotApplicable`] if the DUT has not advertised a label for a prefix.
    pub fn flows(&self, bed: &mut dyn Testbed, part: Range<u32>) -> Result<Vec<FlowSpec>, TestError> {
        let port = &bed.ports()[self.sender];
        let sources = port.addressing(Family::Ipv4).map(|a| a.destinations);
        let sources =
            sources.ok_or_else(|| TestError::NotApplicable(format!("port {} has no IPv4 addresses", port.name)))?;
        let flow = |part: Range<u32>| {
            let routes = Targets::Routes { routes: self.routes.clone(), first: part.start, count: part.len() as u32 };
            let flow = FlowSpec::new("prefixes", self.sender, self.to(), sources, routes);
            FlowSpec { per_destination: true, weight: part.len() as f64, ..flow }
        };
        if self.protocol != CoreProtocol::Ldp {
            return Ok(vec![flow(part)]);
        }
        let labels = bed.igp()?.labels(self.sender, part.clone());
        let size = smallest(Family::Ipv4).with_tags(LABEL_BYTES);
        let labelled = |(index, label): (u32, Option<u32>)| match label {
            Some(label) if is_own_label(Some(label)) => {
                let flow = flow(index..index + 1);
                let arrives = Some(swapped(FIRST_LABEL + index));
                Ok(FlowSpec { headers: headers(label), arrives, size: Some(size.clone()), ..flow })
            }
            _ => Err(TestError::NotApplicable(format!(
                "the router has no label of its own for {}: it advertises labels in ordered control, or not at all for such prefixes",
                self.routes.prefix(index)
            ))),
        };
        part.zip(labels).map(labelled).collect()
    }

    /// A trial of these flows, with changes during it.
    ///
    /// # Errors
    /// [`TestError::NotApplicable`] if the frames are too long for a port.
    pub fn trial(
        &self,
        bed: &dyn Testbed,
        params: &Params,
        purpose: String,
        flows: Vec<FlowSpec>,
        duration_s: f64,
        changes: &[Timed],
    ) -> Result<Trial, TestError> {
        let size: PacketSize = smallest(Family::Ipv4);
        must_fit(&size, Family::Ipv4, [self.sender, self.to()].map(|port| &bed.ports()[port]))?;
        let spec = TrialSpec {
            purpose,
            size,
            flows,
            load: Load::Constant { rate_pps: self.rate.pps() },
            duration_s,
            bin_s: None,
            drain_s: DRAIN.seconds(params),
            events: vec![],
        };
        let change = |(at_s, label, action): &Timed| TimedActions {
            at_s: *at_s,
            label: (*label).into(),
            routed: match action {
                RouteAction::Igp { change, .. } => Some(*change == Change::Advertise),
                _ => None,
            },
            actions: vec![action.clone()],
        };
        Ok(Trial { changes: changes.iter().map(change).collect(), ..Trial::new(spec) })
    }

    /// Message counts, summed over all P routers. The flooding time is for the router behind [`IgpCase::to`] only.
    ///
    /// # Errors
    /// The testbed has no P routers.
    pub fn counts(&self, bed: &mut dyn Testbed) -> Result<IgpCounts, TestError> {
        let igp = bed.igp()?;
        let sum = self.ports().map(|port| igp.counts(port)).fold(IgpCounts::default(), |sum, counts| sum + counts);
        Ok(IgpCounts { flooding: igp.counts(self.to()).flooding, ..sum })
    }

    /// Runs the trial that `trial` makes from the state that `prepare` sets up; `prepare` gets the number of the attempt. If the trial is
    /// spoilt, repeats all three.
    ///
    /// # Errors
    /// [`TestError::Unfit`] if too many attempts were invalid; [`TestError::Failed`] if the DUT's labels changed during the trial; errors of
    /// `prepare`, of `trial` and of the trial.
    pub fn run(
        &self,
        bed: &mut dyn Testbed,
        mut prepare: impl FnMut(&mut dyn Testbed, u32) -> Result<(), TestError>,
        mut trial: impl FnMut(&mut dyn Testbed) -> Result<Trial, TestError>,
    ) -> Result<Ran, TestError> {
        let mut attempts = Attempts::begin(bed);
        loop {
            prepare(bed, attempts.number())?;
            let trial = trial(bed)?;
            let (counts, labels, bfd) = (self.counts(bed)?, self.labels(bed)?, self.bfd_missing(bed)?);
            let begun_s = bed.now_s();
            let mut result = bed.attempt(&trial, attempts.number())?.result;
            if attempts.passed(bed, &result)? {
                self.same_labels(&labels, &self.labels(bed)?)?;
                result.destinations = vec![joined(&result.destinations)];
                let counts = self.counts(bed)? - counts;
                let both = self.ports().zip(self.bfd_missing(bed)?.into_iter().zip(bfd));
                let missing =
                    both.map(|(port, (now, before))| (bed.ports()[port].name.clone(), now.saturating_sub(before)));
                let bfd_missing = missing.filter(|(_, packets)| *packets > 0).collect();
                return Ok(Ran { result, begun_s, counts, bfd_missing });
            }
        }
    }

    /// BFD packets of the DUT that have been missing so far, by port.
    fn bfd_missing(&self, bed: &mut dyn Testbed) -> Result<Vec<u64>, TestError> {
        let igp = bed.igp()?;
        Ok(self.ports().map(|port| igp.counts(port).bfd_missing).collect())
    }

    /// The DUT's labels for all prefixes, if the protocol is LDP.
    fn labels(&self, bed: &mut dyn Testbed) -> Result<Vec<Option<u32>>, TestError> {
        match self.protocol == CoreProtocol::Ldp {
            true => Ok(bed.igp()?.labels(self.sender, self.whole())),
            false => Ok(Vec::new()),
        }
    }

    /// An error if a label changed. A label that is new or withdrawn is none: the DUT may follow a change like that.
    fn same_labels(&self, before: &[Option<u32>], after: &[Option<u32>]) -> Result<(), TestError> {
        let other = |(index, (old, new)): (u32, (&Option<u32>, &Option<u32>))| {
            old.zip(*new).filter(|(old, new)| old != new).map(|(old, new)| (index, old, new))
        };
        let changed: Vec<_> = (0..).zip(before.iter().zip(after)).filter_map(other).collect();
        let Some((index, old, new)) = changed.first() else { return Ok(()) };
        Err(TestError::Failed(format!(
            "the router changed its labels during the trial, so that frames had old ones: {} prefixes, for {} from {old} to {new}",
            thousands(changed.len() as u64),
            self.routes.prefix(*index)
        )))
    }

    /// Waits until frames to the PE routers behind these ports arrive: then the DUT uses the links for its routes. With LDP and a DUT of several
    /// routers, the frames have the DUT's labels: then its routers have told each other theirs.
    ///
    /// # Errors
    /// [`TestError::Failed`] if frames are still lost after `within`; errors of a trial.
    pub fn await_links(&self, bed: &mut dyn Testbed, params: &Params, within: Duration) -> Result<(), TestError> {
        let port = &bed.ports()[self.sender];
        let sources = port.addressing(Family::Ipv4).map(|a| a.destinations);
        let sources =
            sources.ok_or_else(|| TestError::NotApplicable(format!("port {} has no IPv4 addresses", port.name)))?;
        let labelled = self.protocol == CoreProtocol::Ldp && bed.facts().system.is_some();
        let mut flows = Vec::new();
        for to in &self.plan.behind {
            let pe = AddressRange { first: pe_router(*to).into(), count: 1, step: 1 };
            let mut flow = FlowSpec::new("links", self.sender, *to, sources, pe);
            let label = if labelled { bed.igp()?.await_pe_label(self.sender, *to, within)? } else { None };
            if let Some(label) = label.filter(|label| is_own_label(Some(*label))) {
                (flow.headers, flow.size) = (headers(label), Some(smallest(Family::Ipv4).with_tags(LABEL_BYTES)));
            }
            flows.push(flow);
        }
        self.await_frames(bed, params, "probe of the core links", flows, true, within)
    }

    /// Waits until frames to all of these prefixes arrive.
    ///
    /// # Errors
    /// Errors of [`IgpCase::await_links`].
    pub fn await_prefixes(
        &self,
        bed: &mut dyn Testbed,
        params: &Params,
        part: Range<u32>,
        within: Duration,
    ) -> Result<(), TestError> {
        let purpose = format!("probe of {} prefixes", thousands(part.len() as u64));
        let flows = self.flows(bed, part)?;
        self.await_frames(bed, params, &purpose, flows, true, within)
    }

    /// Waits until no frame to any prefix arrives any more.
    ///
    /// # Errors
    /// Errors of [`IgpCase::await_links`].
    pub fn await_silence(&self, bed: &mut dyn Testbed, params: &Params, within: Duration) -> Result<(), TestError> {
        let flows = self.flows(bed, self.whole())?;
        self.await_frames(bed, params, "probe of withdrawn prefixes", flows, false, within)
    }

    /// Repeats a trial with two frames to each destination until no frame is lost or, without `arrive`, until none arrives.
    fn await_frames(
        &self,
        bed: &mut dyn Testbed,
        params: &Params,
        purpose: &str,
        flows: Vec<FlowSpec>,
        arrive: bool,
        within: Duration,
    ) -> Result<(), TestError> {
        let destinations: f64 = flows.iter().map(|flow| f64::from(flow.destinations.count())).sum();
        let duration_s = (2.0 * destinations + 0.5) / self.rate.pps();
        let trial = self.trial(bed, params, purpose.to_owned(), flows, duration_s, &[])?;
        let mut waited_s = 0.0;
        let mut begun_s = bed.now_s();
        loop {
            let result = bed.run(&trial)?.result;
            let wrong = if arrive { result.lost() } else { result.offered() - result.lost() };
            if wrong == 0 {
                return Ok(());
            }
            waited_s += bed.now_s().zip(begun_s).map_or(result.elapsed_s, |(now, then)| now - then);
            begun_s = bed.now_s();
            if waited_s > within.as_secs_f64() {
                let why = format!(
                    "{purpose}: {wrong} of {} frames still {} at the right port after {} s",
                    result.offered(),
                    if arrive { "did not arrive" } else { "arrived" },
                    within.as_secs_f64()
                );
                return Err(TestError::Failed(why));
            }
        }
    }
}

/// Bytes of a label.
const LABEL_BYTES: u16 = 4;

/// One label, then the packet.
fn headers(label: u32) -> Vec<Header> {
    let label = Header::Mpls(Mpls { label: Field::from(Bits::new(label)), ..Mpls::default() });
    vec![label, Header::Ipv4(Ipv4::default()), Header::Udp(Udp::default())]
}

/// The label of the P router, with a TTL one lower, before the packet as it was sent. If a router of a chain removes its label too early, the
/// next one pushes the right label again; only the packet's TTL shows it.
fn swapped(label: u32) -> Arriving {
    let label = ArrivingLabel { label: Bits::new(label), tc: None, ttl: Some(HOP_LIMIT - 1) };
    Arriving { labels: vec![label], ttl: Some(HOP_LIMIT), ..Arriving::default() }
}

/// The counts of all flows in one list.
fn joined(all: &[DestinationCounts]) -> DestinationCounts {
    let mut joined = DestinationCounts::default();
    for counts in all {
        joined.offered.extend(&counts.offered);
        joined.received.extend(&counts.received);
        joined.first_lost_us.extend(&counts.first_lost_us);
        joined.last_lost_us.extend(&counts.last_lost_us);
    }
    joined
}
