//! What a route test may ask of the emulated routers behind the tester's ports.

use crate::testbed::TestError;
pub use drophammer_model::routes::{Change, Packing, PeerIndex, RouteAction};
use drophammer_model::routes::{GroupSizes, Order, Prefix, Routes};
use drophammer_model::trial::{Family, PortIndex};
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// A watch of [`Routing::watch`].
pub type WatchIndex = usize;

/// A BGP session between an emulated router and the DUT, as a test sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerView {
    /// Name: that of the port, and the number of the router on it from the second on: `p1`, `p1.2`.
    pub name: String,
    /// Port that the router is behind.
    pub port: PortIndex,
    /// IP version of the session and of the routes in it.
    pub family: Family,
    /// AS of the emulated router.
    pub asn: u32,
    /// Address of the emulated router.
    pub address: IpAddr,
}

/// The routes that a test asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableChoice {
    /// `internet`, `uniform`, or the path of an MRT file.
    pub source: String,
    /// Order of the prefixes; a file has its own.
    pub order: Order,
    /// Routes that share their attributes; a file has its own.
    pub routes_per_set: GroupSizes,
}

impl TableChoice {
    /// A table in the clustered order, with the attribute sets of the Internet.
    pub fn named(source: impl Into<String>) -> TableChoice {
        TableChoice { source: source.into(), order: Order::Clustered, routes_per_set: GroupSizes::Internet }
    }

    /// Are the routes those of a file?
    pub fn is_file(&self) -> bool {
        !["internet", "uniform"].contains(&self.source.as_str())
    }
}

/// What the emulated routers have sent since the bed came up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoutesSent {
    /// Advertised routes, each as often as it was sent.
    pub advertised: u64,
    /// Withdrawn routes.
    pub withdrawn: u64,
    /// UPDATE messages that advertise routes.
    pub updates: u64,
    /// Attribute sets of the advertised routes.
    pub sets: u64,
}

impl std::ops::Sub for RoutesSent {
    type Output = RoutesSent;
    fn sub(self, before: RoutesSent) -> RoutesSent {
        RoutesSent {
            advertised: self.advertised.saturating_sub(before.advertised),
            withdrawn: self.withdrawn.saturating_sub(before.withdrawn),
            updates: self.updates.saturating_sub(before.updates),
            sets: self.sets.saturating_sub(before.sets),
        }
    }
}

/// Which side delayed sending, in seconds, summed over the sessions. The time that a pace asks for is in none of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sending {
    /// The DUT: its TCP window was closed, or what fills the send buffer was not acknowledged.
    pub held_s: f64,
    /// The DUT: everything was sent and not acknowledged yet.
    pub unanswered_s: f64,
    /// The tester: there was room, and what was due was not sent.
    pub late_s: f64,
}

/// How waiting for routes ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Settled {
    /// Every expected route is present, and every withdrawn one is gone.
    pub complete: bool,
    /// From the call until the last change that came, in seconds.
    pub last_change_s: f64,
    /// From the call until the first change, in seconds; `None` if nothing came.
    pub first_change_s: Option<f64>,
    /// From the call until the DUT acknowledged the last byte of the UPDATEs, in seconds; `None` if there were none or not all were
    /// acknowledged.
    pub sent_s: Option<f64>,
    /// Which side delayed that.
    pub sending: Sending,
    /// Why it is not complete, for people; empty when it is.
    pub cause: String,
}

/// What a DUT advertised to one peer, compared with what is expected of it, over one watch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Verified {
    /// Routes that are expected.
    pub expected: u64,
    /// Of these, routes that are present with the right attributes.
    pub present: u64,
    /// Of these, routes that are absent.
    pub missing: u64,
    /// Of these, routes that are present with another next hop, AS path or attribute.
    pub wrong: u64,
    /// Routes that were withdrawn and are still present.
    pub lingering: u64,
    /// Routes that no peer advertised.
    pub unexpected: u64,
    /// Withdrawals of routes that are expected.
    pub withdrawn_in_error: u64,
    /// Advertisements received.
    pub announcements: u64,
    /// Withdrawals received.
    pub withdrawals: u64,
    /// When the last of these came, on the clock of [`Routing::now_s`].
    pub last_change_s: Option<f64>,
}

/// When the routes of a watch came.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// Routes present over time: (seconds since the watch began, routes), in order of time.
    pub skyline: Vec<(f64, u32)>,
    /// Last change of each route, in seconds after the last [`Routing::expect`]; `None` for a route that has not changed since.
    pub times: Vec<Option<f64>>,
}

/// State of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionView {
    /// True while it is established.
    pub established: bool,
    /// Why it ended last, for people; empty if it never did.
    pub cause: String,
    /// Times that it went down although the test had not closed it.
    pub losses: u32,
}

/// Waiting ends after this many times the patience of the test when routes keep coming and going but no more of them are as
/// expected. A router may be several rounds of a train of changes behind, so that a few rounds are allowed.
pub const RESTLESS: u32 = 6;

/// The emulated routers of a bed. All of them keep running while the bed waits or a trial runs.
pub trait Routing {
    /// Sessions, those of a port one after the other, in the order of the ports; IPv4 before IPv6.
    fn peers(&self) -> &[PeerView];

    /// `count` routes for a test.
    ///
    /// # Errors
    /// [`TestError::NotApplicable`] for a file that cannot be read or has fewer.
    fn table(&mut self, choice: &TableChoice, family: Family, count: u32) -> Result<Arc<Routes>, TestError>;

    /// What has been sent so far, over all sessions.
    fn sent(&self) -> RoutesSent {
        RoutesSent::default()
    }

    /// Brings the sessions of `peers` up and waits until they are. Returns how long that took per session, in order.
    ///
    /// # Errors
    /// [`TestError::Failed`] with the session and its cause when one is not up after `within`.
    fn establish(&mut self, peers: &[PeerIndex], within: Duration) -> Result<Vec<Duration>, TestError>;

    /// State of a session.
    fn session(&self, peer: PeerIndex) -> SessionView;

    /// From now on compares what the DUT advertises to `observer` with `routes` of `origin`. At first none of them is
    /// expected; see [`Routing::expect`].
    fn watch(&mut self, observer: PeerIndex, origin: PeerIndex, routes: &Arc<Routes>) -> WatchIndex {
        self.watch_part(observer, origin, routes, 0..routes.len())
    }

    /// The same for a part of the routes, where others are those of another origin. [`Routing::expect`] takes indices of all routes here too.
    fn watch_part(
        &mut self,
        observer: PeerIndex,
        origin: PeerIndex,
        routes: &Arc<Routes>,
        part: Range<u32>,
    ) -> WatchIndex;

    /// From now on a part of the routes of a watch is expected to be present, or to be withdrawn.
    fn expect(&mut self, watch: WatchIndex, part: Range<u32>, present: bool);

    /// Begins an action. UPDATEs leave while the bed waits, as fast as the DUT takes them.
    ///
    /// # Errors
    /// [`TestError::NotApplicable`] for a link that cannot be taken down.
    fn act(&mut self, action: &RouteAction) -> Result<(), TestError>;

    /// Waits until all UPDATEs are acknowledged and every watch is as expected. Gives up when nothing changed for `patience`, or
    /// when changes brought no watch nearer to what is expected for [`RESTLESS`] times as long.
    ///
    /// # Errors
    /// [`TestError::Interrupted`], [`TestError::DutDied`]. A session that ends is not an error: the answer is not complete then.
    fn await_settled(&mut self, watches: &[WatchIndex], patience: Duration) -> Result<Settled, TestError>;

    /// What a watch has found so far.
    fn verified(&self, watch: WatchIndex) -> Verified;

    /// Expected routes of a watch that are absent, `limit` at most.
    fn missing(&self, watch: WatchIndex, limit: usize) -> Vec<Prefix> {
        let _ = (watch, limit);
        Vec::new()
    }

    /// When the routes of a watch came.
    fn trace(&self, watch: WatchIndex) -> Trace {
        let _ = watch;
        Trace::default()
    }

    /// Ends all sessions, drops all watches and waits until the DUT holds no more routes than before the first session, so
    /// that the next test begins where this one did; `patience` as for [`Routing::await_settled`].
    ///
    /// # Errors
    /// [`TestError::Interrupted`], [`TestError::DutDied`], [`TestError::Failed`] if routes stay.
    fn reset(&mut self, patience: Duration) -> Result<(), TestError>;

    /// What the DUT reports of itself.
    fn dut(&mut self) -> &mut dyn ControlPlane;

    /// Time that the tester itself needs to send and verify `count` routes so packed, through a loop without DUT; `None` where
    /// it has not been measured.
    fn ceiling(&self, family: Family, count: u32, packing: Packing) -> Option<Duration> {
        let _ = (family, count, packing);
        None
    }

    /// Seconds since the bed came up, for figures of a test's own.
    fn now_s(&self) -> f64;
}

/// What a DUT reports of its control plane. A DUT that reports nothing has the defaults.
pub trait ControlPlane {
    /// Resident memory in bytes, per daemon; empty where it is not known.
    fn memory(&mut self) -> Vec<(String, u64)> {
        Vec::new()
    }

    /// Routes in the forwarding plane that were not there before the first session; `None` where that is not known.
    fn fib_routes(&mut self, family: Family) -> Option<u64> {
        let _ = family;
        None
    }

    /// Processor time since the DUT came up; `None` where that is not known.
    fn cpu_time(&mut self) -> Option<Duration> {
        None
    }
}
