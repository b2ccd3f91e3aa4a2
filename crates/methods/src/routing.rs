//! What a route test may ask of the emulated routers behind the tester's ports.

use crate::testbed::TestError;
pub use drophammer_model::routes::{Change, Packing, PeerIndex, RouteAction};
use drophammer_model::routes::{Prefix, Routes};
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

/// Who kept those who had something to say from being done with it, in seconds, summed up over them. What a pace puts off is
/// nobody's.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sending {
    /// The DUT: its TCP window was closed, or what fills the send buffer was not acknowledged.
    pub held_s: f64,
    /// The DUT: all was sent and not acknowledged yet.
    pub unanswered_s: f64,
    /// The tester: there was room, and what was due was not sent.
    pub late_s: f64,
}

/// How waiting for routes ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Settled {
    /// Everything that must be there is, and everything that must be gone is gone.
    pub complete: bool,
    /// From the call until the last change that came, in seconds.
    pub last_change_s: f64,
    /// From the call until the first change, in seconds; `None` if nothing came.
    pub first_change_s: Option<f64>,
    /// From the call until the last byte of what had to be said was taken by the session, in seconds; `None` if there was nothing to say
    /// or not all of it was taken.
    pub sent_s: Option<f64>,
    /// Who kept that from being sooner.
    pub sending: Sending,
    /// Why it is not complete, for people; empty when it is.
    pub cause: String,
}

/// What a DUT re-advertised, held against what it must have, over one watch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Verified {
    /// Routes that must be there.
    pub expected: u64,
    /// Of these, those that are, with the right attributes.
    pub present: u64,
    /// Of these, those that are not there.
    pub missing: u64,
    /// Of these, those that are there with another next hop, AS path or attribute.
    pub wrong: u64,
    /// Routes that must be gone and are still there.
    pub lingering: u64,
    /// Routes that nobody advertised.
    pub unexpected: u64,
    /// Times that a route was withdrawn although it must be there.
    pub withdrawn_in_error: u64,
    /// Announcements received.
    pub announcements: u64,
    /// Withdrawals received.
    pub withdrawals: u64,
    /// When the last of these came, on the clock of [`Routing::now_s`].
    pub last_change_s: Option<f64>,
}

/// What a session is at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionView {
    /// Is it established?
    pub established: bool,
    /// Why it ended last, for people; empty if it never did.
    pub cause: String,
    /// Times that it went down without being asked to.
    pub losses: u32,
}

/// Routes that come and go without more of them being as they must be are given up after so many times the patience of the test: a
/// router may be whole rounds of a train of changes behind.
pub const RESTLESS: u32 = 6;

/// Emulated routers on a bed. Everything here goes on while the bed waits or a trial runs.
pub trait Routing {
    /// Sessions, those of a port one after the other, in the order of the ports; IPv4 before IPv6.
    fn peers(&self) -> &[PeerView];

    /// AS of the DUT.
    fn dut_as(&self) -> u32;

    /// Routes for a test: `internet`, `uniform`, or the path of an MRT file, `count` of them.
    ///
    /// # Errors
    /// [`TestError::NotApplicable`] for a file that cannot be read or has fewer.
    fn table(&mut self, source: &str, family: Family, count: u32) -> Result<Arc<Routes>, TestError>;

    /// Brings the sessions of `peers` up and waits until they are. Returns how long that took per session, in order.
    ///
    /// # Errors
    /// [`TestError::Failed`] with the session and its cause when one is not up after `within`.
    fn establish(&mut self, peers: &[PeerIndex], within: Duration) -> Result<Vec<Duration>, TestError>;

    /// State of a session.
    fn session(&self, peer: PeerIndex) -> SessionView;

    /// From now on compares what the DUT advertises to `observer` with `routes` of `origin`. At first none of them must be
    /// there; see [`Routing::expect`].
    fn watch(&mut self, observer: PeerIndex, origin: PeerIndex, routes: &Arc<Routes>) -> WatchIndex;

    /// From now on a part of the routes of a watch must be there, or must be gone.
    fn expect(&mut self, watch: WatchIndex, part: Range<u32>, present: bool);

    /// Does something, as far as the DUT takes it while one waits.
    ///
    /// # Errors
    /// [`TestError::NotApplicable`] for a link that cannot be taken down.
    fn act(&mut self, action: &RouteAction) -> Result<(), TestError>;

    /// Waits until all is said and every watch is as it must be; at most until nothing changed for `patience`, or until what changed has
    /// brought nothing nearer to what it must be for [`RESTLESS`] times as long.
    ///
    /// # Errors
    /// [`TestError::Interrupted`], [`TestError::DutDied`]. A session that ends is not an error: the answer is not complete then.
    fn await_settled(&mut self, watches: &[WatchIndex], patience: Duration) -> Result<Settled, TestError>;

    /// How a watch stands.
    fn verified(&self, watch: WatchIndex) -> Verified;

    /// Routes of a watch that must be there and are not, `limit` at most.
    fn missing(&self, watch: WatchIndex, limit: usize) -> Vec<Prefix>;

    /// Routes present over time of a watch: (seconds since the watch began, routes), in order of time.
    fn skyline(&self, watch: WatchIndex) -> Vec<(f64, u32)>;

    /// Time of the last change of each route of a watch in seconds after the last [`Routing::expect`]; `None` for a route that
    /// has not changed since.
    fn times(&self, watch: WatchIndex) -> Vec<Option<f64>>;

    /// Ends all sessions, drops all watches and waits until the DUT holds no more routes than before the first session, so
    /// that the next test begins where this one did; `patience` as for [`Routing::await_settled`].
    ///
    /// # Errors
    /// [`TestError::Interrupted`], [`TestError::DutDied`], [`TestError::Failed`] if routes stay.
    fn reset(&mut self, patience: Duration) -> Result<(), TestError>;

    /// Resident memory of the DUT's control plane in bytes, per daemon; empty where it is not known.
    fn dut_memory(&mut self) -> Vec<(String, u64)>;

    /// Routes in the DUT's forwarding plane; `None` where that is not known.
    fn dut_fib_routes(&mut self, family: Family) -> Option<u64>;

    /// Processor time of the DUT since it came up; `None` where that is not known.
    fn dut_cpu_time(&mut self) -> Option<Duration>;

    /// Time that the tester itself needs to send and verify `count` routes so packed, through a loop without DUT; `None` where
    /// it has not been measured.
    fn ceiling(&self, family: Family, count: u32, packing: Packing) -> Option<Duration>;

    /// Seconds since the bed came up, for figures of a test's own.
    fn now_s(&self) -> f64;
}
