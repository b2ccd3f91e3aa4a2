//! A trial as a test asks for it, and what was seen of it.
//!
//! A [`Trial`] is a load and what happens during it: routes change, the tester asks the router questions, reads its
//! counters or resets it. The [`Testbed`](crate::Testbed) does all of this in one trial and returns one [`Seen`]. It
//! refuses what it cannot do before it sends a frame.

use crate::routing::RouteAction;
use crate::testbed::TestError;
use drophammer_model::beside::{ExtraFrame, OtherTraffic};
use drophammer_model::counters::{DutCounter, OtherFrames};
use drophammer_model::echo::{EchoRequest, EchoTimes};
use drophammer_model::management::{Answered, Inquiry};
use drophammer_model::reset::{Reset, ResetSeen};
use drophammer_model::router_interfaces::RouterInterface;
use drophammer_model::trial::{PortIndex, TrialResult, TrialSpec};
use std::time::Duration;

/// A load, and what happens while it is offered.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The load. Its events are those of `changes`, and of what the testbed adds.
    pub spec: TrialSpec,
    /// What emulated routers and links do, in the order of time.
    pub changes: Vec<TimedActions>,
    /// Additional frames. If it is `Some`, even without a frame, [`Seen::other`] has all received frames that are not
    /// test frames, until the drain time is over.
    pub extra: Option<Vec<ExtraFrame>>,
    /// Questions to the DUT, during the load and after it. Those that this DUT cannot be asked are left out.
    pub ask: Option<Inquiry>,
    /// Echo requests.
    pub echo: Vec<EchoRequest>,
    /// Reads the counters of the DUT before and after the load, each time after the network has been silent for this
    /// long.
    pub counters: Option<Duration>,
    /// Reads the counters of each router of the DUT before the load, and after it when they stand still.
    pub routers: Option<Stillness>,
    /// Resets the DUT, or the link of this port, and waits until the DUT has recovered or the limit of the reset is over.
    /// Emulated routers advertise their routes again when their sessions are back.
    pub reset: Option<(Reset, PortIndex)>,
    /// All [`Facts::contestants`](crate::testbed::Facts::contestants) take part: [`Seen::each`] has a result for each,
    /// with the groups of flows at its ports. The host may disturb such a trial as it likes, because it disturbs all
    /// DUTs alike.
    pub joint: bool,
}

impl Trial {
    /// The load alone.
    pub fn new(spec: TrialSpec) -> Trial {
        Trial {
            spec,
            changes: Vec::new(),
            extra: None,
            ask: None,
            echo: Vec::new(),
            counters: None,
            routers: None,
            reset: None,
            joint: false,
        }
    }
}

/// What emulated routers and links do at one instant of a trial.
#[derive(Clone, Debug)]
pub struct TimedActions {
    /// Seconds after the first departure.
    pub at_s: f64,
    /// Name in records and plots ("withdraw 1,000 routes").
    pub label: String,
    /// [`TimedEvent::routed`](drophammer_model::trial::TimedEvent::routed).
    pub routed: Option<bool>,
    /// The actions, in order.
    pub actions: Vec<RouteAction>,
}

/// What was seen of a trial: the result, and what the test has asked for.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// What became of the test frames.
    pub result: TrialResult,
    /// Received frames other than test frames, for [`Trial::extra`] and [`Trial::routers`].
    pub other: Option<OtherTraffic>,
    /// Answers to the questions that could be asked.
    pub answered: Vec<Answered>,
    /// Times of each echo request; `None` for those without a reply within a second.
    pub echoes: Vec<Option<EchoTimes>>,
    /// For [`Trial::counters`].
    pub counters: Option<CountersSeen>,
    /// For [`Trial::routers`].
    pub routers: Option<RoutersSeen>,
    /// For [`Trial::reset`].
    pub reset: Option<ResetSeen>,
    /// For [`Trial::joint`]: the result of each DUT.
    pub each: Vec<TrialResult>,
}

impl From<TrialResult> for Seen {
    fn from(result: TrialResult) -> Seen {
        Seen { result, ..Seen::default() }
    }
}

/// The error for something that a test must see and this testbed does not show.
pub(crate) fn not_seen(what: &str) -> TestError {
    TestError::NotApplicable(format!("this testbed does not show {what}"))
}

/// The counters of the DUT before and after a trial.
#[derive(Clone, Debug)]
pub struct CountersSeen {
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

/// How to tell that no packet of a trial is still in flight.
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

/// The counters of each router of the DUT before a trial, and after its last packet has ended.
#[derive(Clone, Debug)]
pub struct RoutersSeen {
    /// Before it.
    pub before: Vec<RouterInterface>,
    /// After it, when the counters stood still, in the same order.
    pub after: Vec<RouterInterface>,
    /// Processor time of each router between the two, less what it uses while idle; `None` if not known.
    pub cpu: Option<Vec<Duration>>,
    /// When each counter grew last, in the order of `after`: that of arrived packets and that of sent ones. `None` if
    /// counters still grew when the patience was over.
    pub grew: Option<Vec<[LastGrowth; 2]>>,
}
