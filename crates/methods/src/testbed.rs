//! What a test may ask of the testbed.

use crate::ping_delay::OwnDelay;
use crate::routed::Kept;
use crate::routing::{RouteAction, Routing};
use crate::tester_ceiling::LoopOrder;
use drophammer_model::Medium;
use drophammer_model::beside::{ExtraFrame, OtherTraffic};
use drophammer_model::classes::EgressClasses;
use drophammer_model::counters::{DutCounter, OtherFrames};
use drophammer_model::echo::{EchoRequest, EchoTimes};
use drophammer_model::filter::FilterList;
use drophammer_model::management::{Answered, Inquiry};
use drophammer_model::pattern::PatternKey;
use drophammer_model::quantity::{Bandwidth, FrameRate};
use drophammer_model::reset::{Reset, ResetSeen};
use drophammer_model::router_interfaces::RouterInterface;
use drophammer_model::suite::{Addressing, FecConfig, FlowConfig, LabelConfig};
use drophammer_model::topology::{CoreLinkName, System};
use drophammer_model::trial::{Family, PortIndex, Targets, TrialResult, TrialSpec};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A tester port as a test sees it.
#[derive(Clone, Debug)]
pub struct PortView {
    /// Name in the suite.
    pub name: String,
    /// Line speed, gross.
    pub speed: Bandwidth,
    /// What the line carries beside frames.
    pub medium: Medium,
    /// MTU in bytes.
    pub mtu: u32,
    /// IPv4 addressing, if used.
    pub ipv4: Option<Addressing>,
    /// IPv6 addressing, if used.
    pub ipv6: Option<Addressing>,
    /// VLAN identifiers of each sub-interface, the outermost first.
    pub vlans: Vec<Vec<u16>>,
    /// What the DUT does with labels of frames that leave by this port.
    pub labels: Vec<LabelConfig>,
    /// Networks behind it to which the DUT sends packets with labels.
    pub pushed: Vec<FecConfig>,
    /// What frames to this port aim at in place of the hosts of the network behind it; see [`Testbed::aim`].
    pub routed: BTreeMap<Family, Targets>,
}

impl PortView {
    /// Addressing of `family`.
    pub fn addressing(&self, family: Family) -> Option<&Addressing> {
        match family {
            Family::Ipv4 => self.ipv4.as_ref(),
            Family::Ipv6 => self.ipv6.as_ref(),
        }
    }
}

/// Highest loads per sending port that the tester could offer validly, by pattern, where it could not offer more. They hold for
/// every DUT of the run, so that all are measured at one load.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HighestLoads {
    /// Of a constant load.
    pub constant: BTreeMap<PatternKey, FrameRate>,
    /// Of a load that asks for as much as the tester can offer.
    pub maximum: BTreeMap<PatternKey, FrameRate>,
}

/// Facts that one test found on this DUT and later ones build on.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Throughput per sending port, by pattern; `None` when the search found none.
    pub throughput: BTreeMap<PatternKey, Option<FrameRate>>,
    /// Why a search for the throughput of a pattern came to nothing, by pattern: it is not tried again.
    pub failed: BTreeMap<PatternKey, String>,
    /// What the tester can offer.
    pub highest: HighestLoads,
    /// Tables of routes that the DUT still holds.
    pub tables: Option<Kept>,
}

/// A trial with the counters of the DUT before and after it.
#[derive(Clone, Debug)]
pub struct CountedTrial {
    /// The trial.
    pub result: TrialResult,
    /// Counters whose meaning is known, before it.
    pub before: Vec<DutCounter>,
    /// The same after it.
    pub after: Vec<DutCounter>,
    /// What each port of the tester sent between the two beside test frames.
    pub sent: Vec<OtherFrames>,
    /// What it received.
    pub received: Vec<OtherFrames>,
    /// Frames that came and went, at all ports, while the counters were read: each may be in a counter or not yet.
    pub unsure: OtherFrames,
}

/// How it is found out that no packet of a trial is on its way any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stillness {
    /// Counters that have not grown for so long stand still: longer than a packet may be out of sight of all counters.
    pub quiet: Duration,
    /// Time between two readings.
    pub step: Duration,
    /// How long that is waited for.
    pub patience: Duration,
}

/// A trial with what each router of the DUT counted before it and when all packets had come to an end.
#[derive(Clone, Debug)]
pub struct CirclingTrial {
    /// The trial.
    pub result: TrialResult,
    /// Before it.
    pub before: Vec<RouterInterface>,
    /// When the counters stood still after it, in the same order.
    pub after: Vec<RouterInterface>,
    /// Processor time of each router from one to the other; `None` where not known.
    pub cpu: Option<Vec<Duration>>,
    /// From the end of the trial to the last reading at which a counter had grown, so up to [`Stillness::step`] too much; `None` where they still grew
    /// when the patience was over.
    pub still_after: Option<Duration>,
    /// What came in meanwhile and is no test frame.
    pub other: OtherTraffic,
}

/// The facade that tests speak to.
pub trait Testbed {
    /// Ports of the tester, in order; at least two.
    fn ports(&self) -> &[PortView];

    /// Flows that the suite describes; none unless it does.
    fn flows(&self) -> &[FlowConfig] {
        &[]
    }

    /// Runs one trial, repeats it while the tester spoils it (three attempts in all) and stores every attempt. The result
    /// is valid.
    ///
    /// # Errors
    /// [`TestError::Unfit`] when every attempt was invalid; the others when the run cannot go on.
    fn trial(&mut self, spec: &TrialSpec) -> Result<TrialResult, TestError>;

    /// Gives the DUT these packet filters in place of those of an earlier call, and records them; none takes them back. At the end of the
    /// test they are taken back in any case.
    ///
    /// # Errors
    /// [`TestError::NotApplicable`] where a DUT cannot be given any, [`TestError::Failed`] with what it says against them.
    fn filter(&mut self, lists: &[FilterList]) -> Result<(), TestError> {
        if lists.is_empty() {
            return Ok(());
        }
        Err(TestError::NotApplicable("this testbed has no DUT that takes filters".into()))
    }

    /// From now on frames of a family to this port aim at these routes behind it; `None`: at the hosts of the network behind it. At the end
    /// of the test it is the hosts in any case.
    ///
    /// # Errors
    /// [`TestError::NotApplicable`] where the testbed has no routers.
    fn aim(&mut self, port: PortIndex, family: Family, at: Option<Targets>) -> Result<(), TestError> {
        let _ = (port, family, at);
        Err(TestError::NotApplicable("this testbed has no routers".into()))
    }

    /// Gives the DUT these classes of service, one list for each output port that is to have some, in place of those of an earlier call, and
    /// records them; none takes them back. At the end of the test they are taken back in any case.
    ///
    /// # Errors
    /// [`TestError::NotApplicable`] where a DUT cannot be given any, [`TestError::Failed`] with what it says against them.
    fn set_classes(&mut self, lists: &[EgressClasses]) -> Result<(), TestError> {
        if lists.is_empty() {
            return Ok(());
        }
        Err(TestError::NotApplicable("this testbed has no DUT that takes classes of service".into()))
    }

    /// The routers of the DUT, where it is several: which ports each has, and the links between them.
    fn system(&self) -> Option<&System> {
        None
    }

    /// Takes these links between routers of the DUT down, brings all others up, and records that. Returns when frames of `families` from each port to
    /// each other one arrive by the ways that [`System::route`] says (of 100 frames 99 at least). At the end of the test all links come up again in any case.
    ///
    /// # Errors
    /// [`TestError::NotApplicable`] where the DUT has no such links, [`TestError::Failed`] with what it says against it, or where it does not forward
    /// by these ways in time.
    fn set_core_links(&mut self, down: &BTreeSet<CoreLinkName>, families: &[Family]) -> Result<(), TestError> {
        let _ = families;
        if down.is_empty() {
            return Ok(());
        }
        Err(TestError::NotApplicable("this testbed has no DUT of several routers".into()))
    }

    /// [`Testbed::trial`], with frames that are sent beside the flows; says with the result what became of them, and what else came in that
    /// is no test frame, until the drain time after the trial is over.
    ///
    /// # Errors
    /// As for [`Testbed::trial`]; [`TestError::NotApplicable`] for frames that cannot be made, or larger than
    /// [`Testbed::largest_frame`], and where the testbed cannot do that.
    fn trial_beside(
        &mut self,
        spec: &TrialSpec,
        extra: &[ExtraFrame],
    ) -> Result<(TrialResult, OtherTraffic), TestError> {
        let _ = (spec, extra);
        Err(TestError::NotApplicable("this testbed sends test frames only".into()))
    }

    /// Counts for `time` what comes in; no test frame is sent meanwhile, and the emulated devices answer as always.
    ///
    /// # Errors
    /// As for [`Testbed::settle`], a port that failed; [`TestError::NotApplicable`] where the testbed cannot do that.
    fn observe(&mut self, time: Duration) -> Result<OtherTraffic, TestError> {
        let _ = time;
        Err(TestError::NotApplicable("this testbed sees test frames only".into()))
    }

    /// Bytes of the largest frame, FCS included, that a port can send; 0 for a port that there is not.
    fn largest_frame(&mut self, port: PortIndex) -> usize {
        self.ports().get(port).map_or(0, |port| port.mtu as usize + 18)
    }

    /// The same with the counters of the DUT, read while the network has been silent for `settle`, before and after each attempt.
    ///
    /// # Errors
    /// Those of [`Testbed::trial`]; [`TestError::NotApplicable`] where the DUT has no counters.
    fn counted_trial(&mut self, spec: &TrialSpec, settle: Duration) -> Result<CountedTrial, TestError> {
        let _ = (spec, settle);
        Err(TestError::NotApplicable("this testbed reads no counters of a DUT".into()))
    }

    /// What the routers of a DUT of several count at their interfaces and tunnels since it was brought up (RFC 2863); `None` where they show nothing.
    ///
    /// # Errors
    /// [`TestError::Failed`] where it cannot be read.
    fn router_interfaces(&mut self) -> Result<Option<Vec<RouterInterface>>, TestError> {
        Ok(None)
    }

    /// Processor time of each router of a DUT of several since it was brought up, in order; `None` where it is not known.
    fn router_cpu(&mut self) -> Option<Vec<Duration>> {
        None
    }

    /// [`Testbed::trial`] with what the routers of the DUT counted before each attempt, and after it when their counters stand still.
    ///
    /// # Errors
    /// Those of [`Testbed::trial`] and [`Testbed::router_interfaces`]; [`TestError::NotApplicable`] where the routers show no counters.
    fn circling_trial(&mut self, spec: &TrialSpec, stillness: Stillness) -> Result<CirclingTrial, TestError> {
        let _ = (spec, stillness);
        Err(TestError::NotApplicable("this testbed reads no counters of routers inside a DUT".into()))
    }

    /// The same while the DUT is asked for answers, also after the trial. Questions that cannot be asked of this DUT are left out.
    ///
    /// # Errors
    /// Those of [`Testbed::trial`]; [`TestError::NotApplicable`] where none can be asked.
    fn asked_trial(&mut self, spec: &TrialSpec, inquiry: &Inquiry) -> Result<(TrialResult, Vec<Answered>), TestError> {
        let _ = (spec, inquiry);
        Err(TestError::NotApplicable("this testbed asks a DUT nothing".into()))
    }

    /// [`Testbed::trial`] with echo requests; says with the result what came of each, `None` of those without a reply within a second.
    ///
    /// # Errors
    /// Those of [`Testbed::trial`]; [`TestError::NotApplicable`] for a port without addresses of the family, a frame that is too small or too
    /// large, and where the testbed cannot do that.
    fn echo_trial(
        &mut self,
        spec: &TrialSpec,
        requests: &[EchoRequest],
    ) -> Result<(TrialResult, Vec<Option<EchoTimes>>), TestError> {
        let _ = (spec, requests);
        Err(TestError::NotApplicable("this testbed sends no echo requests".into()))
    }

    /// What the tester needs by itself for frames of this size in bytes, FCS included; `None` where that was not or cannot be measured.
    fn own_delay(&self, family: Family, frame_bytes: u16) -> Option<OwnDelay> {
        let _ = (family, frame_bytes);
        None
    }

    /// Lets the DUT restabilise (RFC 2544 section 23 e).
    ///
    /// # Errors
    /// [`TestError::Interrupted`], [`TestError::DutDied`].
    fn settle(&mut self, time: Duration) -> Result<(), TestError>;

    /// The emulated routers.
    ///
    /// # Errors
    /// [`TestError::NotApplicable`] where there are none.
    fn routing(&mut self) -> Result<&mut dyn Routing, TestError> {
        Err(TestError::NotApplicable("this testbed has no emulated routers; a suite gets them by `bgp: {}`".into()))
    }

    /// Runs one attempt at a trial in which emulated routers act: event i of [`TrialSpec::events`] stands for `actions[i]`. Stored with
    /// its verdict as attempt number `attempt`, and not repeated: what it did to the routing has to be undone first.
    ///
    /// # Errors
    /// As for [`Testbed::trial`]; an invalid trial is none.
    fn routed_trial(
        &mut self,
        spec: &TrialSpec,
        actions: &[Vec<RouteAction>],
        attempt: u32,
    ) -> Result<TrialResult, TestError> {
        let _ = (spec, actions, attempt);
        Err(TestError::NotApplicable("this testbed has no emulated routers".into()))
    }

    /// Runs one attempt at a trial during which the DUT is reset, and waits until it is whole again or the limit of the reset is over. Stored as
    /// attempt number `attempt`, and not repeated. `port` is that whose link a [`ResetKind::Link`](drophammer_model::reset::ResetKind) takes down.
    /// Emulated routers advertise their routes again when their sessions are back.
    ///
    /// # Errors
    /// As for [`Testbed::trial`]; [`TestError::NotApplicable`] for a DUT that cannot be reset so. An invalid trial is none, nor a DUT that does
    /// not come back.
    fn reset_trial(
        &mut self,
        spec: &TrialSpec,
        reset: &Reset,
        port: PortIndex,
        attempt: u32,
    ) -> Result<(TrialResult, ResetSeen), TestError> {
        let _ = (spec, reset, port, attempt);
        Err(TestError::NotApplicable("this testbed has no DUT that can be reset".into()))
    }

    /// Seconds since the testbed came up, on the tester's clock; `None` where there is none.
    fn now_s(&mut self) -> Option<f64> {
        None
    }

    /// Memory in RAM of each of the DUT's daemons in bytes, by name; empty where it has none, or none that can be seen.
    fn memory(&mut self) -> Vec<(String, u64)> {
        Vec::new()
    }

    /// What earlier tests found on this DUT.
    fn known(&mut self) -> &mut Known;

    /// The tester's own ceiling for this pattern per sending port (what it sends *and* receives through a loop without
    /// DUT); `None` where it was not or cannot be measured.
    fn ceiling(&self, pattern: &PatternKey) -> Option<FrameRate>;

    /// What a loop without DUT did in this run to the order of frames of this pattern; `None` where that was not measured.
    fn loop_order(&self, pattern: &PatternKey) -> Option<LoopOrder> {
        let _ = pattern;
        None
    }

    /// Shows the user what the test is doing: `done` of about `of` steps.
    fn progress(&mut self, what: &str, done: u32, of: u32);

    /// Writes a remark into the run.
    fn note(&mut self, text: &str);
}

/// What stopped a test.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TestError {
    /// The user asked to stop.
    #[error("stopped by the user")]
    Interrupted,
    /// The DUT is gone; why, and where its log is.
    #[error("the device under test died: {0}")]
    DutDied(String),
    /// The tester spoilt every attempt at a trial, for these reasons.
    #[error("the tester could not run this trial validly: {}", .0.join("; "))]
    Unfit(Vec<String>),
    /// The test cannot be done on this DUT or with these parameters.
    #[error("not applicable: {0}")]
    NotApplicable(String),
    /// What was measured could not be stored.
    #[error("cannot store results: {0}")]
    Store(String),
    /// The testbed failed.
    #[error("{0}")]
    Failed(String),
}
