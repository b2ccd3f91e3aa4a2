//! Interface between a test and the testbed.

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
use drophammer_model::outcome::{CAPPED, TESTER_LIMITED};
use drophammer_model::pattern::PatternKey;
use drophammer_model::quantity::{Bandwidth, FrameRate};
use drophammer_model::reset::{Reset, ResetSeen};
use drophammer_model::router_interfaces::RouterInterface;
use drophammer_model::suite::{Addressing, FecConfig, FlowConfig, LabelConfig};
use drophammer_model::topology::{CoreLinkName, System};
use drophammer_model::trial::{Family, PortIndex, Targets, TrialResult, TrialSpec};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

/// A tester port as a test sees it.
#[derive(Clone, Debug)]
pub struct PortView {
    /// Name in the suite.
    pub name: String,
    /// Line speed, gross.
    pub speed: Bandwidth,
    /// Medium, which determines the overhead of each frame on the line.
    pub medium: Medium,
    /// MTU in bytes.
    pub mtu: u32,
    /// IPv4 addressing, if used.
    pub ipv4: Option<Addressing>,
    /// IPv6 addressing, if used.
    pub ipv6: Option<Addressing>,
    /// VLAN identifiers of each sub-interface, the outermost first.
    pub vlans: Vec<Vec<u16>>,
    /// Actions of the DUT on labels of frames that leave by this port.
    pub labels: Vec<LabelConfig>,
    /// Networks behind it to which the DUT pushes labels.
    pub pushed: Vec<FecConfig>,
    /// Destinations of frames to this port instead of the hosts of the network behind it; see [`Testbed::aim`].
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

/// Highest loads per sending port that the tester could offer validly, by pattern, if it could not offer more. They
/// apply to every DUT of the run, so that all are measured at the same load.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HighestLoads {
    /// For a constant load.
    pub constant: BTreeMap<PatternKey, FrameRate>,
    /// For a load that requests as much as the tester can offer.
    pub maximum: BTreeMap<PatternKey, FrameRate>,
}

/// Why a throughput is only a lower bound: the router may forward more without loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LowerBound {
    /// The suite allows no higher load (`max_load`).
    MaxLoad,
    /// The tester cannot offer much more.
    Tester,
    /// The search ended before its goal, because the tester was unfit or the time was over.
    Unfinished,
}

impl std::fmt::Display for LowerBound {
    /// The mark of a row whose figures it limits.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LowerBound::MaxLoad => f.write_str(CAPPED),
            LowerBound::Tester => f.write_str(TESTER_LIMITED),
            LowerBound::Unfinished => write!(f, "{TESTER_LIMITED}: the search for the throughput ended early"),
        }
    }
}

/// Facts that one test found on this DUT and later ones use.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Throughput per sending port, by pattern; `None` if the search found none.
    pub throughput: BTreeMap<PatternKey, Option<FrameRate>>,
    /// The throughputs among them that are only lower bounds.
    pub bounds: BTreeMap<PatternKey, LowerBound>,
    /// Why a throughput search failed, by pattern: it is not repeated.
    pub failed: BTreeMap<PatternKey, String>,
    /// What the tester can offer.
    pub highest: HighestLoads,
    /// Tables of routes that the DUT still holds.
    pub tables: Option<Kept>,
}

/// One of several DUTs that are up at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contestant {
    /// Its name.
    pub name: String,
    /// Its ports among [`Testbed::ports`].
    pub ports: Range<PortIndex>,
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
    /// Frames other than test frames that each port of the tester sent between the two readings.
    pub sent: Vec<OtherFrames>,
    /// The same for received frames.
    pub received: Vec<OtherFrames>,
    /// Frames that passed, at all ports, while the counters were read: each may be counted or not yet.
    pub unsure: OtherFrames,
}

/// How to detect that no packet of a trial is under way any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stillness {
    /// Counters that have not grown for this long stand still. It must be longer than a packet may be invisible to all
    /// counters.
    pub quiet: Duration,
    /// Time between two readings.
    pub step: Duration,
    /// Maximum waiting time.
    pub patience: Duration,
}

/// When a counter grew last: two times after the end of the load, between which it did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastGrowth {
    /// The last reading without its final value began here; 0 if the first reading after the load had the final value.
    pub at_least: Duration,
    /// The first reading with its final value ended here.
    pub at_most: Duration,
}

/// A trial with the counters of each router of the DUT before it, and after the last packet has ended.
#[derive(Clone, Debug)]
pub struct CirclingTrial {
    /// The trial.
    pub result: TrialResult,
    /// Before it.
    pub before: Vec<RouterInterface>,
    /// After it, when the counters stood still, in the same order.
    pub after: Vec<RouterInterface>,
    /// Processor time of each router between the two, less what it uses while idle; `None` if not known.
    pub cpu: Option<Vec<Duration>>,
    /// When each counter grew last, in the order of `after`: that of arrived packets and that of sent ones. `None` if
    /// counters still grew when the patience was over.
    pub grew: Option<Vec<[LastGrowth; 2]>>,
    /// Received frames other than test frames.
    pub other: OtherTraffic,
}

/// The interface of tests to the testbed.
pub trait Testbed {
    /// Ports of the tester, in order; at least two.
    fn ports(&self) -> &[PortView];

    /// The backend that moves frames through the ports.
    fn backend(&self) -> &str {
        "simulated"
    }

    /// Flows that the suite describes; empty if it describes none.
    fn flows(&self) -> &[FlowConfig] {
        &[]
    }

    /// Runs one trial, repeats it while it is spoilt ([`Attempts`](crate::attempts::Attempts)) and stores every attempt. The
    /// result is valid.
    ///
    /// # Errors
    /// [`TestError::Unfit`] if every attempt was invalid; the others if the run cannot continue.
    fn trial(&mut self, spec: &TrialSpec) -> Result<TrialResult, TestError>;

    /// The DUTs that are up, if there are several, in the order of the suite.
    fn contestants(&self) -> &[Contestant] {
        &[]
    }

    /// [`Testbed::trial`] with all [`Testbed::contestants`]: returns a result for each, with the groups of flows at its
    /// ports. The host may disturb such a trial as it likes, because it disturbs all DUTs alike.
    ///
    /// # Errors
    /// Those of [`Testbed::trial`]; [`TestError::NotApplicable`] if one DUT is up.
    fn joint_trial(&mut self, spec: &TrialSpec) -> Result<Vec<TrialResult>, TestError> {
        let _ = spec;
        Err(TestError::NotApplicable("one router is up".into()))
    }

    /// Configures the DUT with these packet filters instead of those of an earlier call, and records them; an empty
    /// list removes them. They are always removed at the end of the test.
    ///
    /// # Errors
    /// [`TestError::NotApplicable`] if the DUT supports none, [`TestError::Failed`] with the message of the DUT if it
    /// rejects them.
    fn filter(&mut self, lists: &[FilterList]) -> Result<(), TestError> {
        if lists.is_empty() {
            return Ok(());
        }
        Err(TestError::NotApplicable("this testbed has no DUT that takes filters".into()))
    }

    /// From now on, frames of a family to this port aim at these routes behind it; `None`: at the hosts of the network
    /// behind it. At the end of the test they always aim at the hosts again.
    ///
    /// # Errors
    /// [`TestError::NotApplicable`] if the testbed has no emulated routers.
    fn aim(&mut self, port: PortIndex, family: Family, at: Option<Targets>) -> Result<(), TestError> {
        let _ = (port, family, at);
        Err(TestError::NotApplicable("this testbed has no routers".into()))
    }

    /// Configures the DUT with these classes of service, one list for each output port that needs classes, instead of
    /// those of an earlier call, and records them; an empty list removes them. They are always removed at the end of
    /// the test.
    ///
    /// # Errors
    /// [`TestError::NotApplicable`] if the DUT supports none, [`TestError::Failed`] with the message of the DUT if it
    /// rejects them.
    fn set_classes(&mut self, lists: &[EgressClasses]) -> Result<(), TestError> {
        if lists.is_empty() {
            return Ok(());
        }
        Err(TestError::NotApplicable("this testbed has no DUT that takes classes of service".into()))
    }

    /// The routers of the DUT if it consists of several: the ports of each, and the links between them.
    fn system(&self) -> Option<&System> {
        None
    }

    /// Takes these links between routers of the DUT down, brings all others up, and records that. Returns when frames
    /// of `families` from each port to each other one arrive by the ways of [`System::route`] (at least 99 of 100
    /// frames). At the end of the test all links come up again.
    ///
    /// # Errors
    /// [`TestError::NotApplicable`] if the DUT has no links of these names, [`TestError::Failed`] with the message of
    /// the DUT if it rejects the change, or if it does not forward by these ways in time.
    fn set_core_links(&mut self, down: &BTreeSet<CoreLinkName>, families: &[Family]) -> Result<(), TestError> {
        let _ = families;
        if down.is_empty() {
            return Ok(());
        }
        Err(TestError::NotApplicable("this testbed has no DUT of several routers".into()))
    }

    /// [`Testbed::trial`] with additional frames beside the flows. Also returns the result of these frames, and all
    /// received frames other than test frames, until the drain time after the trial is over.
    ///
    /// # Errors
    /// As for [`Testbed::trial`]; [`TestError::NotApplicable`] for frames that cannot be built or are larger than
    /// [`Testbed::largest_frame`], and if the testbed does not support this.
    fn trial_beside(
        &mut self,
        spec: &TrialSpec,
        extra: &[ExtraFrame],
    ) -> Result<(TrialResult, OtherTraffic), TestError> {
        let _ = (spec, extra);
        Err(TestError::NotApplicable("this testbed sends test frames only".into()))
    }

    /// Counts received frames for `time`. Meanwhile no test frame is sent, and the emulated devices answer as always.
    /// The kernel's count of the same time is returned as well where the ports are interfaces.
    ///
    /// # Errors
    /// As for [`Testbed::settle`], a port that failed; [`TestError::NotApplicable`] if the testbed does not support
    /// this.
    fn observe(&mut self, time: Duration) -> Result<OtherTraffic, TestError> {
        let _ = time;
        Err(TestError::NotApplicable("this testbed sees test frames only".into()))
    }

    /// Bytes of the largest frame, FCS included, that a port can send; 0 for a port that does not exist.
    fn largest_frame(&mut self, port: PortIndex) -> usize {
        self.ports().get(port).map_or(0, |port| port.mtu as usize + 18)
    }

    /// [`Testbed::trial`] with the counters of the DUT, read after the network has been silent for `settle`, before and
    /// after each attempt.
    ///
    /// # Errors
    /// Those of [`Testbed::trial`]; [`TestError::NotApplicable`] if the DUT has no counters.
    fn counted_trial(&mut self, spec: &TrialSpec, settle: Duration) -> Result<CountedTrial, TestError> {
        let _ = (spec, settle);
        Err(TestError::NotApplicable("this testbed reads no counters of a DUT".into()))
    }

    /// Counters of the interfaces and tunnels of each router of a multi-router DUT since it was brought up (RFC 2863);
    /// `None` if the routers do not show them.
    ///
    /// # Errors
    /// [`TestError::Failed`] if they cannot be read.
    fn router_interfaces(&mut self) -> Result<Option<Vec<RouterInterface>>, TestError> {
        Ok(None)
    }

    /// Processor time of each router of a multi-router DUT since it was brought up, in order; `None` if not known.
    fn router_cpu(&mut self) -> Option<Vec<Duration>> {
        None
    }

    /// [`Testbed::trial`] with the counters of the routers of the DUT before each attempt, and after it when they stand
    /// still.
    ///
    /// # Errors
    /// Those of [`Testbed::trial`] and [`Testbed::router_interfaces`]; [`TestError::NotApplicable`] if the routers show
    /// no counters.
    fn circling_trial(&mut self, spec: &TrialSpec, stillness: Stillness) -> Result<CirclingTrial, TestError> {
        let _ = (spec, stillness);
        Err(TestError::NotApplicable("this testbed reads no counters of routers inside a DUT".into()))
    }

    /// [`Testbed::trial`] while questions are sent to the DUT, also after the trial. Questions that cannot be asked of
    /// this DUT are omitted.
    ///
    /// # Errors
    /// Those of [`Testbed::trial`]; [`TestError::NotApplicable`] if no question can be asked.
    fn asked_trial(&mut self, spec: &TrialSpec, inquiry: &Inquiry) -> Result<(TrialResult, Vec<Answered>), TestError> {
        let _ = (spec, inquiry);
        Err(TestError::NotApplicable("this testbed asks a DUT nothing".into()))
    }

    /// [`Testbed::trial`] with echo requests. Also returns the times of each, `None` for those without a reply within a
    /// second.
    ///
    /// # Errors
    /// Those of [`Testbed::trial`]; [`TestError::NotApplicable`] for a port without addresses of the family, for a
    /// frame that is too small or too large, and if the testbed does not support this.
    fn echo_trial(
        &mut self,
        spec: &TrialSpec,
        requests: &[EchoRequest],
    ) -> Result<(TrialResult, Vec<Option<EchoTimes>>), TestError> {
        let _ = (spec, requests);
        Err(TestError::NotApplicable("this testbed sends no echo requests".into()))
    }

    /// The tester's own delay for frames of this size in bytes, FCS included; `None` if it was not or cannot be
    /// measured.
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
    /// [`TestError::NotApplicable`] if there are none.
    fn routing(&mut self) -> Result<&mut dyn Routing, TestError> {
        Err(TestError::NotApplicable("this testbed has no emulated routers; a suite gets them by `bgp: {}`".into()))
    }

    /// Runs one attempt at a trial in which emulated routers act: event i of [`TrialSpec::events`] stands for
    /// `actions[i]`. It is stored with its verdict as attempt number `attempt`, and not repeated, because its effect on
    /// the routing must be undone first.
    ///
    /// # Errors
    /// As for [`Testbed::trial`]; an invalid trial is not an error.
    fn routed_trial(
        &mut self,
        spec: &TrialSpec,
        actions: &[Vec<RouteAction>],
        attempt: u32,
    ) -> Result<TrialResult, TestError> {
        let _ = (spec, actions, attempt);
        Err(TestError::NotApplicable("this testbed has no emulated routers".into()))
    }

    /// Runs one attempt at a trial during which the DUT is reset, and waits until it has recovered or the limit of the
    /// reset is over. It is stored as attempt number `attempt`, and not repeated. `port` is the port whose link a
    /// [`ResetKind::Link`](drophammer_model::reset::ResetKind) takes down. Emulated routers advertise their routes
    /// again when their sessions are back.
    ///
    /// # Errors
    /// As for [`Testbed::trial`]; [`TestError::NotApplicable`] if the DUT does not support this reset. An invalid trial
    /// is not an error, nor is a DUT that does not recover.
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

    /// Seconds since the testbed came up, on the tester's clock; `None` if there is no clock.
    fn now_s(&mut self) -> Option<f64> {
        None
    }

    /// Resident memory of each of the DUT's daemons in bytes, by name; empty if it has none, or if they are not
    /// visible.
    fn memory(&mut self) -> Vec<(String, u64)> {
        Vec::new()
    }

    /// Accounts for an attempt that the host spoilt and that `took` this long. Returns whether the run has time to repeat it.
    fn may_repeat(&mut self, took: Duration) -> bool {
        let _ = took;
        true
    }

    /// Results of earlier tests on this DUT.
    fn known(&mut self) -> &mut Known;

    /// The tester's own ceiling for this pattern per sending port (what it sends *and* receives through a loop without
    /// DUT); `None` if it was not or cannot be measured.
    fn ceiling(&self, pattern: &PatternKey) -> Option<FrameRate>;

    /// Order of frames of this pattern on a loop without DUT in this run; `None` if it was not measured.
    fn loop_order(&self, pattern: &PatternKey) -> Option<LoopOrder> {
        let _ = pattern;
        None
    }

    /// A step begins: shows the user the activity of the test, `done` of about `of` steps. Nothing that is timed may be under way: if
    /// several DUTs are up, the others may be measured before this returns, unless the test does not allow that
    /// ([`Method::may_pause`](crate::Method::may_pause)).
    fn progress(&mut self, what: &str, done: u32, of: u32);

    /// Writes a remark into the run.
    fn note(&mut self, text: &str);
}

/// Reason why a test stopped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TestError {
    /// The user asked to stop.
    #[error("stopped by the user")]
    Interrupted,
    /// The DUT died; with the cause, and the path of its log.
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
