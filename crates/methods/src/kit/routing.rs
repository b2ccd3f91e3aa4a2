//! Interface of a route test to the emulated routers behind the tester's ports.
//!
//! # Routes, layer by layer
//!
//! In a route test some emulated routers advertise routes to the DUT, and others verify what the DUT advertises to
//! them. From bottom to top:
//!
//! - `model::routes`: a `RouteRange` computes prefix and attributes from a route's number, and the number from a
//!   prefix. `order.rs` arranges the same prefixes in the orders of the suite. `RouteTable` contains routes
//!   from a file (`testbed/src/mrt.rs`; the programs xz and zstd decompress it). Code passes `Arc<Routes>` and index
//!   ranges.
//! - `wire::bgp`: messages as bytes, with a packer and a walker for UPDATEs, and the error handling of RFC 7606.
//!   Neither allocates in the hot path.
//! - `emulation::bgp`: one router. `Session` is the state machine of RFC 4271. `AdjRibOut` queues jobs (advertise or
//!   withdraw this range, at this pace) and packs a message whenever the send buffer has room, so a million queued
//!   routes take a hundred bytes and a slow DUT slows the packing. `advertised.rs` remembers ranges for ROUTE-REFRESH.
//!   `AdjRibIn` verifies received routes: it computes each route's number, checks attributes once per group and
//!   message, and sets bits. `Routers` is the device's protocol that connects sessions to TCP; `routers/pressure.rs`
//!   measures how long the DUT's TCP or the tester delayed a session.
//! - `rig/src/hosts.rs`: the `Devices` of each port, polled by the packet loop during and between trials, also in
//!   virtual time. TCP segments may leave as one large frame that the kernel segments (`Port::send_stream`); test
//!   frames never do.
//! - `testbed/src/routers.rs`: `BgpRouting` implements `methods::Routing` and `ControlPlane` with the sessions of a
//!   rig. `routers/settling.rs` waits until all UPDATEs are acknowledged and every watch matches. It gives up if
//!   nothing changes for `patience`, if nothing improves for six times as long, or if a session ends.
//! - `methods`: `routing.rs` (trait `Routing`; `methods/tests/fake_testbed/routes.rs` has a fake), `route_tests.rs`
//!   (parameters, families, peers), `route_traffic.rs` (traffic to routes during changes), `route_outage.rs` (lost
//!   frames to outage times, RFC 6413 section 6.3), `route_forwarding.rs` (waits for the forwarding plane),
//!   `route_steps.rs` (growing tables), and one file per test.
//!
//! `report/examples/spread.rs` summarises several runs of a suite, such as those of `suites/differences`.
//! `testbed/examples/daemons` records sessions with real daemons; `emulation/tests/bgp_daemons` replays them.

use crate::testbed::TestError;
use drophammer_model::routes::{AfiSafi, GroupSizes, Order, Prefix, Routes};
pub use drophammer_model::routes::{Change, Packing, PeerIndex, RouteAction};
use drophammer_model::trial::{Family, PortIndex};
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// A watch of [`Routing::watch`].
pub type WatchIndex = usize;

/// A BGP session between an emulated router and the DUT, as tests see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerView {
    /// Name of its port; from the second router of a port on with a number: `p1`, `p1.2`.
    pub name: String,
    /// Port in front of the router.
    pub port: PortIndex,
    /// IP version of the session and of the routes in it.
    pub family: Family,
    /// AS of the emulated router.
    pub asn: u32,
    /// Address of the emulated router.
    pub address: IpAddr,
}

/// The routes that a test requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableChoice {
    /// `internet`, `uniform`, or the path of an MRT file.
    pub source: String,
    /// Order of the prefixes; a file has a fixed order.
    pub order: Order,
    /// Number of routes that share their attributes; fixed in a file.
    pub routes_per_set: GroupSizes,
}

impl TableChoice {
    /// A table in the clustered order, with the attribute sets of the Internet.
    pub fn named(source: impl Into<String>) -> TableChoice {
        TableChoice { source: source.into(), order: Order::Clustered, routes_per_set: GroupSizes::Internet }
    }

    /// Returns true if the routes come from a file.
    pub fn is_file(&self) -> bool {
        !["internet", "uniform"].contains(&self.source.as_str())
    }
}

/// Routes sent by the emulated routers since the bed came up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoutesSent {
    /// Advertised routes, counted each time they are sent.
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

/// Seconds by which each side delayed sending, summed over the sessions, without the time that a pace requires.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sending {
    /// Delay by the DUT: its TCP window was closed, or the data in the full send buffer was not acknowledged.
    pub held_s: f64,
    /// Delay by the DUT: everything was sent but not yet acknowledged.
    pub unanswered_s: f64,
    /// Delay by the tester: there was room, and due data was not sent.
    pub late_s: f64,
}

/// Result of waiting for routes.
#[derive(Clone, Debug, PartialEq)]
pub struct Settled {
    /// Every expected route is present, and every withdrawn one is gone.
    pub complete: bool,
    /// From the call until the last received change, in seconds.
    pub last_change_s: f64,
    /// From the call until the first received change, in seconds; `None` if there was none.
    pub first_change_s: Option<f64>,
    /// From the call until the DUT acknowledged the last byte of the UPDATEs, in seconds; `None` if there were none, or
    /// if some were not acknowledged.
    pub sent_s: Option<f64>,
    /// Which side delayed sending.
    pub sending: Sending,
    /// Why the routes are not complete, as text; empty if they are.
    pub cause: String,
}

/// Routes that a DUT advertised to one peer, compared with the expected ones, over one watch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Verified {
    /// Expected routes.
    pub expected: u64,
    /// Expected routes that are present with the right attributes.
    pub present: u64,
    /// Expected routes that are absent.
    pub missing: u64,
    /// Expected routes that are present with a wrong next hop, AS path or attribute.
    pub wrong: u64,
    /// Withdrawn routes that are still present.
    pub lingering: u64,
    /// Routes that no peer advertised.
    pub unexpected: u64,
    /// Withdrawals of routes that are expected.
    pub withdrawn_in_error: u64,
    /// Advertisements received.
    pub announcements: u64,
    /// Withdrawals received.
    pub withdrawals: u64,
    /// Time of the last advertisement or withdrawal, on the clock of [`Routing::now_s`].
    pub last_change_s: Option<f64>,
}

/// Times at which the routes of a watch arrived.
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
    /// True while the session is established.
    pub established: bool,
    /// Cause of its last end, as text; empty if it never ended.
    pub cause: String,
    /// Number of times that it went down without being closed by the test.
    pub losses: u32,
}

/// Waiting ends after this many times the patience of the test if routes keep changing but get no closer to the
/// expected state. A router may be several rounds of a train of changes behind, so a few rounds are allowed.
pub const RESTLESS: u32 = 6;

/// The emulated routers of a bed. All of them keep running while the bed waits or runs a trial.
pub trait Routing {
    /// Sessions, grouped by port in the order of the ports; IPv4 before IPv6.
    fn peers(&self) -> &[PeerView];

    /// `count` routes for a test.
    ///
    /// # Errors
    /// [`TestError::NotApplicable`] if a file cannot be read or has too few routes.
    fn table(&mut self, choice: &TableChoice, afi_safi: AfiSafi, count: u32) -> Result<Arc<Routes>, TestError>;

    /// Routes sent so far, over all sessions.
    fn sent(&self) -> RoutesSent {
        RoutesSent::default()
    }

    /// Waits until the DUT accepts sessions again after earlier sessions have ended. [`Routing::establish`] does this
    /// too. A test that measures a time around it calls this first, so that the time does not include the wait.
    ///
    /// # Errors
    /// [`TestError::Failed`] if the control program of the DUT fails.
    fn ready_for_sessions(&mut self) -> Result<(), TestError>;

    /// Brings the sessions of `peers` up and waits until they are established. Returns the time this took per session,
    /// in order.
    ///
    /// # Errors
    /// [`TestError::Failed`] with the session and its cause if a session is not up after `within`.
    fn establish(&mut self, peers: &[PeerIndex], within: Duration) -> Result<Vec<Duration>, TestError>;

    /// State of a session.
    fn session(&self, peer: PeerIndex) -> SessionView;

    /// From now on, compares the routes that the DUT advertises to `observer` with `routes` of `origin`. Initially no
    /// route is expected; see [`Routing::expect`].
    fn watch(&mut self, observer: PeerIndex, origin: PeerIndex, routes: &Arc<Routes>) -> WatchIndex {
        self.watch_part(observer, origin, routes, 0..routes.len())
    }

    /// Like [`Routing::watch`], but only for a part of the routes, if the others belong to another origin.
    /// [`Routing::expect`] takes indices of all routes here too.
    fn watch_part(
        &mut self,
        observer: PeerIndex,
        origin: PeerIndex,
        routes: &Arc<Routes>,
        part: Range<u32>,
    ) -> WatchIndex;

    /// From now on, expects a part of the routes of a watch to be present, or to be withdrawn.
    fn expect(&mut self, watch: WatchIndex, part: Range<u32>, present: bool);

    /// Begins an action. UPDATEs are sent while the bed waits, as fast as the DUT reads them.
    ///
    /// # Errors
    /// [`TestError::NotApplicable`] for a link that cannot be taken down.
    fn act(&mut self, action: &RouteAction) -> Result<(), TestError>;

    /// Waits until all UPDATEs are acknowledged and every watch is as expected. Gives up if nothing changed for
    /// `patience`, or if changes brought no watch closer to the expected state for [`RESTLESS`] times that long.
    ///
    /// # Errors
    /// [`TestError::Interrupted`], [`TestError::DutDied`]. The end of a session is not an error; the result is then
    /// incomplete.
    fn await_settled(&mut self, watches: &[WatchIndex], patience: Duration) -> Result<Settled, TestError>;

    /// Starts to record how the host disturbs tester and DUT, for a time that no trial measures.
    fn watch_host(&mut self) {}

    /// Disturbances by the host since [`Routing::watch_host`] that exceed the limits of a trial; empty if the time is
    /// usable.
    fn disturbed(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Result of a watch so far.
    fn verified(&self, watch: WatchIndex) -> Verified;

    /// Expected routes of a watch that are absent, `limit` at most.
    fn missing(&self, watch: WatchIndex, limit: usize) -> Vec<Prefix> {
        let _ = (watch, limit);
        Vec::new()
    }

    /// Times at which the routes of a watch arrived.
    fn trace(&self, watch: WatchIndex) -> Trace {
        let _ = watch;
        Trace::default()
    }

    /// Ends all sessions, drops all watches and waits until the DUT has only the routes that it had before the first
    /// session, so that the next test starts from the same state. `patience` is the same as in
    /// [`Routing::await_settled`].
    ///
    /// # Errors
    /// [`TestError::Interrupted`], [`TestError::DutDied`]; [`TestError::Failed`] if routes remain.
    fn reset(&mut self, patience: Duration) -> Result<(), TestError>;

    /// Reports of the DUT about itself.
    fn dut(&mut self) -> &mut dyn ControlPlane;

    /// Time that the tester itself needs to send and verify `count` routes with this packing, through a loop without
    /// DUT; `None` if it has not been measured.
    fn ceiling(&self, afi_safi: AfiSafi, count: u32, packing: Packing) -> Option<Duration> {
        let _ = (afi_safi, count, packing);
        None
    }

    /// Seconds since the bed came up, for the figures of a test.
    fn now_s(&self) -> f64;
}

/// Reports of a DUT about its control plane. The defaults are for a DUT that reports nothing.
pub trait ControlPlane {
    /// Resident memory in bytes, per daemon; empty if it is not known.
    fn memory(&mut self) -> Vec<(String, u64)> {
        Vec::new()
    }

    /// Routes in the forwarding plane that were not there before the first session; `None` if not known.
    fn fib_routes(&mut self, family: Family) -> Option<u64> {
        let _ = family;
        None
    }

    /// Processor time since the DUT came up; `None` if not known.
    fn cpu_time(&mut self) -> Option<Duration> {
        None
    }
}
