//! A trial as a test requests it, and its results.
//!
//! A [`Trial`] is a load and what happens during it: routes change, or the tester queries the router, reads its
//! counters or resets it. The [`Testbed`](crate::Testbed) does all of this in one trial and returns one [`Seen`]. If
//! something is not supported, it refuses before it sends a frame.

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

/// A load, and what happens during it.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The load. Its events come from `changes`, and from what the testbed adds.
    pub spec: TrialSpec,
    /// Actions of emulated routers and links, in order of time.
    pub changes: Vec<TimedActions>,
    /// Additional frames. If it is `Some`, even without a frame, [`Seen::other`] contains all received frames that are
    /// not test frames, until the drain time ends.
    pub extra: Option<Vec<ExtraFrame>>,
    /// Queries to the DUT, during the load and after it. Queries that this DUT does not support are left out.
    pub ask: Option<Inquiry>,
    /// Echo requests.
    pub echo: Vec<EchoRequest>,
    /// Reads the counters of the DUT before and after the load, each time after the network has been silent for this
    /// long.
    pub counters: Option<Duration>,
    /// Reads the counters of each router of the DUT before the load, and after it when they have settled.
    pub routers: Option<Stillness>,
    /// Resets the DUT, or the link of this port, and waits until the DUT has recovered or the time limit of the reset
    /// ends. Emulated routers advertise their routes again when their sessions are back.
    pub reset: Option<(Reset, PortIndex)>,
    /// All [`Facts::contestants`](crate::testbed::Facts::contestants) take part: [`Seen::each`] has a result for each,
    /// with the groups of flows at its ports. Disturbances by the host do not spoil such a trial, because they affect
    /// all DUTs alike.
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

/// Actions of emulated routers and links at one instant of a trial.
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

/// Results of a trial, as far as the test requested them.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Result of the test frames.
    pub result: TrialResult,
    /// Received frames other than test frames, for [`Trial::extra`] and [`Trial::routers`].
    pub other: Option<OtherTraffic>,
    /// Answers to the queries that the DUT supports.
    pub answered: Vec<Answered>,
    /// Times of each echo request; `None` for a request without a reply within a second.
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

/// The error for something that a test needs to see and this testbed does not show.
pub(crate) fn not_seen(what: &str) -> TestError {
    TestError::NotApplicable(format!("this testbed does not show {what}"))
}

/// The counters of the DUT before and after a trial.
#[derive(Clone, Debug)]
pub struct CountersSeen {
    /// Counters whose meaning is known, before the trial.
    pub before: Vec<DutCounter>,
    /// The same counters after the trial.
    pub after: Vec<DutCounter>,
    /// Frames other than test frames that each port of the tester sent between the two readings.
    pub sent: Vec<OtherFrames>,
    /// Like `sent`, for received frames.
    pub received: Vec<OtherFrames>,
    /// Frames that passed any port while the counters were read. It is unknown whether they are counted.
    pub unsure: OtherFrames,
}

/// How to tell that no packet of a trial is still in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stillness {
    /// Counters have settled if they have not grown for this long. It must be longer than the time for which a packet
    /// can be invisible to all counters.
    pub quiet: Duration,
    /// Time between two readings.
    pub step: Duration,
    /// Maximum waiting time.
    pub patience: Duration,
}

/// When a counter last grew: two times after the end of the load, between which it happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastGrowth {
    /// Start of the last reading without the final value; 0 if the first reading after the load had the final value.
    pub at_least: Duration,
    /// End of the first reading with the final value.
    pub at_most: Duration,
}

/// The counters of each router of the DUT before a trial, and after its last packet has ended.
#[derive(Clone, Debug)]
pub struct RoutersSeen {
    /// Before the trial.
    pub before: Vec<RouterInterface>,
    /// After the trial, when the counters had settled, in the same order.
    pub after: Vec<RouterInterface>,
    /// Processor time of each router between the two readings, less its idle use; `None` if not known.
    pub cpu: Option<Vec<Duration>>,
    /// When each counter last grew, in the order of `after`: for arrived packets and for sent packets. `None` if
    /// counters still grew when the patience ended.
    pub grew: Option<Vec<[LastGrowth; 2]>>,
}
