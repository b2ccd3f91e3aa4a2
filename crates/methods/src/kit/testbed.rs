//! Interface between a test and the testbed.

use crate::attempts::Attempts;
use crate::igp::Igp;
use crate::lsps::Lsps;
use crate::modifiers::Applied;
use crate::pattern::arrivals::Arrivals;
use crate::ping_delay::OwnDelays;
use crate::routed::Kept;
use crate::routing::Routing;
use crate::tester_ceiling::LoopOrder;
use crate::trial::{Seen, Trial};
use crate::vpns::Vpns;
use drophammer_model::Medium;
use drophammer_model::beside::OtherTraffic;
use drophammer_model::classes::EgressClasses;
use drophammer_model::filter::FilterList;
use drophammer_model::label_edge::CoreProtocol;
use drophammer_model::outcome::{CAPPED, TESTER_LIMITED};
use drophammer_model::pattern::PatternKey;
use drophammer_model::quantity::{Bandwidth, FrameRate};
use drophammer_model::router_interfaces::RouterInterface;
use drophammer_model::suite::{Addressing, FecConfig, FlowConfig, LabelConfig};
use drophammer_model::topology::{CoreLinkName, System};
use drophammer_model::trial::{Family, PortIndex, Targets, TrialResult, TrialSpec};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

/// A port of the tester, as tests see it.
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
    /// Networks behind the port for which the DUT pushes labels.
    pub pushed: Vec<FecConfig>,
    /// Protocols with the emulated P router behind the port; empty if the port does not face the core.
    pub core: Vec<CoreProtocol>,
    /// VRFs of the DUT's port, each with an emulated CE router.
    pub customers: u32,
    /// Bytes of the largest frame that the port can send, FCS included.
    pub largest_frame: usize,
    /// Destinations of frames to this port instead of the hosts of the network behind it; see [`Setting::Aim`].
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

/// Highest loads per sending port that the tester could offer validly, by pattern. They contain only patterns for which
/// there is such a limit, and apply to every DUT of the run, so that all are measured at the same load.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HighestLoads {
    /// For a constant load.
    pub constant: BTreeMap<PatternKey, FrameRate>,
    /// For a load that requests the maximum that the tester can offer.
    pub maximum: BTreeMap<PatternKey, FrameRate>,
}

/// Why a throughput is only a lower bound: the router may forward more without loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LowerBound {
    /// The suite allows no higher load (`max_load`).
    MaxLoad,
    /// The tester cannot offer much more.
    Tester,
    /// The search ended before its goal, because the tester was unfit or its time ran out.
    Unfinished,
}

impl std::fmt::Display for LowerBound {
    /// The mark of a row whose figures are lower bounds.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LowerBound::MaxLoad => f.write_str(CAPPED),
            LowerBound::Tester => f.write_str(TESTER_LIMITED),
            LowerBound::Unfinished => write!(f, "{TESTER_LIMITED}: the search for the throughput ended early"),
        }
    }
}

/// Facts that one test found on this DUT, for use by later tests.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Throughput per sending port, by pattern; `None` if the search found none.
    pub throughput: BTreeMap<PatternKey, Option<FrameRate>>,
    /// Why these throughputs are only lower bounds.
    pub bounds: BTreeMap<PatternKey, LowerBound>,
    /// Why a throughput search failed, by pattern. Such a search is not repeated.
    pub failed: BTreeMap<PatternKey, String>,
    /// The highest loads that the tester can offer.
    pub highest: HighestLoads,
    /// Tables of routes that the DUT still has.
    pub tables: Option<Kept>,
    /// State of the pattern that is being measured.
    pub ongoing: Ongoing,
}

/// State of the trials of one pattern.
#[derive(Clone, Debug, Default)]
pub struct Ongoing {
    /// Its modifier.
    pub(crate) modifier: Option<Applied>,
    /// How its frames arrived.
    pub(crate) arrivals: Option<Arrivals>,
    /// True during a trial whose latency is read ([`Testbed::latency_trial`]).
    pub reads_latency: bool,
}

/// One of several DUTs that are up at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contestant {
    /// Its name.
    pub name: String,
    /// Its ports among [`Testbed::ports`].
    pub ports: Range<PortIndex>,
}

/// Facts about the testbed that are known before a test runs.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Ports of the tester, in order; at least two.
    pub ports: Vec<PortView>,
    /// The backend that moves frames through the ports.
    pub backend: &'static str,
    /// Flows that the suite describes.
    pub flows: Vec<FlowConfig>,
    /// The DUTs that are up, if there are several, in the order of the suite.
    pub contestants: Vec<Contestant>,
    /// The routers of the DUT if it consists of several: the ports of each, and the links between them.
    pub system: Option<System>,
    /// The tester's own ceilings by pattern, per sending port: the rate that it sends *and* receives through a loop
    /// without DUT. A pattern without a measured ceiling is left out.
    pub ceilings: BTreeMap<PatternKey, FrameRate>,
    /// Order of frames on a loop without DUT in this run, by pattern.
    pub orders: BTreeMap<PatternKey, LoopOrder>,
    /// The tester's own delay of pings and of test frames at a low load.
    pub own_delays: OwnDelays,
}

/// A setting of the DUT or the testbed. It replaces the setting of the same kind from an earlier call. All settings are
/// undone at the end of the test.
#[derive(Clone, Copy, Debug)]
pub enum Setting<'a> {
    /// Packet filters of the DUT; they are recorded. An empty list removes them.
    Filters(&'a [FilterList]),
    /// Classes of service of the DUT, one list for each output port that needs classes; they are recorded. An empty
    /// list removes them.
    Classes(&'a [EgressClasses]),
    /// Takes these links between routers of the DUT down, brings all others up, and records this. Returns when frames
    /// of `families` from each port to each other port arrive by the paths of [`System::route`] (at least 99 of 100
    /// frames).
    CoreLinks {
        /// The links.
        down: &'a BTreeSet<CoreLinkName>,
        /// Families of the test.
        families: &'a [Family],
    },
    /// Directs frames of a family to this port to these routes behind it; `None`: to the hosts of the network behind
    /// it.
    Aim {
        /// The port.
        port: PortIndex,
        /// The family.
        family: Family,
        /// The routes.
        at: Option<&'a Targets>,
    },
}

/// The interface of tests to the testbed.
pub trait Testbed {
    /// Facts about the testbed.
    fn facts(&self) -> &Facts;

    /// Ports of the tester, in order.
    fn ports(&self) -> &[PortView] {
        &self.facts().ports
    }

    /// Runs attempt number `number`, from 1, at the trial, and stores it with its verdict. Does not repeat a spoilt
    /// attempt, so that a test can undo its effect on the routing first. A DUT that does not recover is not an error.
    ///
    /// # Errors
    /// An error if the run cannot continue; [`TestError::NotApplicable`] for anything that this testbed or DUT does not
    /// support.
    fn attempt(&mut self, trial: &Trial, number: u32) -> Result<Seen, TestError>;

    /// Runs the trial, and repeats it while it is spoilt ([`Attempts`](crate::attempts::Attempts)). The result is
    /// valid.
    ///
    /// # Errors
    /// [`TestError::Unfit`] if every attempt was invalid; errors of [`Testbed::attempt`].
    fn run(&mut self, trial: &Trial) -> Result<Seen, TestError> {
        let mut attempts = Attempts::begin(self);
        loop {
            let seen = self.attempt(trial, attempts.number())?;
            if attempts.passed(self, &seen.result)? {
                return Ok(seen);
            }
        }
    }

    /// Like [`Testbed::trial`], for a trial whose latency is read. Its limits for a router that waits for its processor
    /// are stricter.
    ///
    /// # Errors
    /// Errors of [`Testbed::run`].
    fn latency_trial(&mut self, spec: &TrialSpec) -> Result<TrialResult, TestError> {
        self.known().ongoing.reads_latency = true;
        let result = self.trial(spec);
        self.known().ongoing.reads_latency = false;
        result
    }

    /// Runs a load as a trial ([`Testbed::run`]), with the modifier of the running pattern if it has one.
    ///
    /// # Errors
    /// Errors of [`Testbed::run`].
    fn trial(&mut self, spec: &TrialSpec) -> Result<TrialResult, TestError> {
        let result = match self.known().ongoing.modifier.take() {
            None => self.run(&Trial::new(spec.clone()))?.result,
            Some(mut modifier) => {
                let result = modifier.trial(self, spec);
                self.known().ongoing.modifier = Some(modifier);
                result?
            }
        };
        if let Some(arrivals) = &mut self.known().ongoing.arrivals {
            arrivals.saw(spec, &result);
        }
        Ok(result)
    }

    /// Changes a setting.
    ///
    /// # Errors
    /// [`TestError::NotApplicable`] if the testbed or the DUT does not support it, or has no links of these names;
    /// [`TestError::Failed`] with the message of the DUT if the DUT rejects it, or if the DUT does not use the
    /// remaining links in time.
    fn set(&mut self, setting: Setting<'_>) -> Result<(), TestError> {
        match setting {
            Setting::Filters([]) | Setting::Classes([]) => Ok(()),
            Setting::CoreLinks { down, .. } if down.is_empty() => Ok(()),
            _ => Err(TestError::NotApplicable("this testbed has no DUT with settings".into())),
        }
    }

    /// Counts received frames for `time`, during which no test frame is sent and the emulated devices answer as usual.
    /// Also returns the kernel's count for the same time if the ports are interfaces.
    ///
    /// # Errors
    /// Errors of [`Testbed::settle`]; a port that failed; [`TestError::NotApplicable`] if the testbed does not support
    /// this.
    fn observe(&mut self, time: Duration) -> Result<OtherTraffic, TestError> {
        let _ = time;
        Err(TestError::NotApplicable("this testbed sees only test frames".into()))
    }

    /// Counters of the interfaces and tunnels of each router of a multi-router DUT since it came up (RFC 2863); `None`
    /// if the routers do not report them.
    ///
    /// # Errors
    /// [`TestError::Failed`] if the counters cannot be read.
    fn router_interfaces(&mut self) -> Result<Option<Vec<RouterInterface>>, TestError> {
        Ok(None)
    }

    /// Processor time of each router of a multi-router DUT since it came up, in order; `None` if not known.
    fn router_cpu(&mut self) -> Option<Vec<Duration>> {
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
        Err(TestError::NotApplicable("this testbed has no emulated routers; add `bgp: {}` to the suite".into()))
    }

    /// The emulated P routers as OSPF and LDP neighbours.
    ///
    /// # Errors
    /// [`TestError::NotApplicable`] if the suite has no core ports.
    fn igp(&mut self) -> Result<&mut dyn Igp, TestError> {
        Err(no_core("ospf, ldp"))
    }

    /// Label-switched paths through the DUT by RSVP-TE.
    ///
    /// # Errors
    /// [`TestError::NotApplicable`] if the suite has no core ports with RSVP-TE.
    fn lsps(&mut self) -> Result<&mut dyn Lsps, TestError> {
        Err(no_core("rsvp"))
    }

    /// The VRFs of the DUT, and the emulated CE and PE routers around it.
    ///
    /// # Errors
    /// [`TestError::NotApplicable`] if the suite has no VRFs.
    fn vpns(&mut self) -> Result<&mut dyn Vpns, TestError> {
        let why = "the DUT has no VRFs; add `customers: 10` to a port, and `core: [ospf, ldp]` to another one";
        Err(TestError::NotApplicable(why.into()))
    }

    /// Seconds since the testbed came up, on the tester's clock; `None` if there is no clock.
    fn now_s(&mut self) -> Option<f64> {
        None
    }

    /// Resident memory of each of the DUT's daemons in bytes, by name; empty if the DUT has no daemons, or if they are
    /// not visible.
    fn memory(&mut self) -> Vec<(String, u64)> {
        Vec::new()
    }

    /// Records an attempt that the host spoilt and that `took` this long. Returns true if the run has time to repeat
    /// it.
    fn may_repeat(&mut self, took: Duration) -> bool {
        let _ = took;
        true
    }

    /// Results of earlier tests on this DUT.
    fn known(&mut self) -> &mut Known;

    /// The tester's own ceiling for this pattern, from [`Facts::ceilings`].
    fn ceiling(&self, pattern: &PatternKey) -> Option<FrameRate> {
        self.facts().ceilings.get(pattern).copied()
    }

    /// Begins a step: shows the user what the test does, and how many of its planned trials are done. Call it only
    /// while nothing is being timed: if several DUTs are up, the others may be measured before this returns, unless the
    /// test forbids it ([`Plan::may_pause`](crate::Plan::may_pause)).
    fn progress(&mut self, what: &str);

    /// Adds a remark to the run.
    fn note(&mut self, text: &str);
}

/// The error for a test that needs core ports.
fn no_core(protocols: &str) -> TestError {
    TestError::NotApplicable(format!("this testbed has no core ports; add `core: [{protocols}]` to ports of the suite"))
}

/// Reason why a test stopped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TestError {
    /// The user asked to stop.
    #[error("stopped by the user")]
    Interrupted,
    /// The DUT died. Contains the cause and the path of its log.
    #[error("the device under test died: {0}")]
    DutDied(String),
    /// The tester spoilt every attempt at a trial, or one of its ports failed outside trials, for these reasons.
    #[error("the tester could not measure validly: {}", .0.join("; "))]
    Unfit(Vec<String>),
    /// The test cannot be done on this DUT or with these parameters.
    #[error("not applicable: {0}")]
    NotApplicable(String),
    /// Results could not be stored.
    #[error("cannot store results: {0}")]
    Store(String),
    /// The testbed failed.
    #[error("{0}")]
    Failed(String),
}

impl TestError {
    /// What was wrong, for a sentence that already says what could not be done.
    pub fn reason(&self) -> String {
        match self {
            TestError::Unfit(reasons) => reasons.join("; "),
            other => other.to_string(),
        }
    }
}
