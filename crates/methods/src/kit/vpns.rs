//! Interface of a test to the VRFs of a DUT (RFC 4364), and to the emulated CE and PE routers around it.

use crate::testbed::TestError;
use drophammer_model::routes::{Change, RouteAction};
use drophammer_model::size::PacketSize;
use drophammer_model::trial::{FlowSpec, Misdelivered, PortIndex};
use std::ops::Range;
use std::time::Duration;

/// Maximum number of leaks that are told as text.
const MOST_LEAKS: usize = 20;

/// A VRF of the DUT, as tests see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VrfView {
    /// Its number, from 0. Its name is `v1` for number 0.
    pub number: u32,
    /// Port with its CE router.
    pub customer: PortIndex,
    /// VLAN of the CE router.
    pub vid: u16,
    /// Core port with its remote site.
    pub core: PortIndex,
}

impl VrfView {
    /// Its name.
    pub fn name(&self) -> String {
        format!("v{}", self.number + 1)
    }
}

/// Direction of traffic through the DUT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// From CE routers to remote sites: the DUT pushes labels.
    ToCore,
    /// From remote sites to CE routers: the DUT removes labels.
    ToCustomers,
}

/// Time that the steps to a working VPN took, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct VpnUp {
    /// OSPF and LDP with all P routers.
    pub core_s: f64,
    /// BGP with all PE and CE routers and BFD with the CE routers that have it, counted from the start of their sessions.
    pub sessions_s: f64,
    /// Number of BGP sessions.
    pub sessions: u32,
}

/// Routes of VPNs that a DUT advertised, compared with the expected ones.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VpnRoutesSeen {
    /// Expected routes, summed over all PE and CE routers.
    pub expected: u64,
    /// Routes that are present with the right attributes.
    pub present: u64,
    /// Routes that are present with a wrong attribute.
    pub wrong: u64,
    /// Routes that are present but must be absent.
    pub lingering: u64,
    /// Routes with the prefixes of CE routers that CE routers received. Most routers advertise routes of a neighbour back to it; frames
    /// show whether they are of another VRF.
    pub returned: u64,
    /// Routes that a router received although they belong to another VRF, or to none.
    pub leaked: u64,
    /// The first of these, as text.
    pub leaks: Vec<String>,
    /// From the last [`Vpns::change_all`] until the last change, in seconds.
    pub last_change_s: f64,
    /// Time in that period for which the tester itself was late in sending to one router, in seconds: the longest.
    pub tester_late_s: f64,
    /// How often sessions with PE and CE routers ended since they were brought up.
    pub sessions_lost: u64,
    /// How often BFD sessions with CE routers went down since they were brought up.
    pub bfd_lost: u64,
    /// The first of these sessions, with the reason: `v3 (packets of the DUT were missing for the detection time)`.
    pub bfd_lost_at: Vec<String>,
    /// Why routes are missing, as text; empty if all are present.
    pub cause: String,
}

impl VpnRoutesSeen {
    /// True if exactly the expected routes are present.
    pub fn complete(&self) -> bool {
        self.cause.is_empty()
    }

    /// Adds the counts of one router: expected, present and wrong routes, and routes that are present but must be absent.
    pub fn add(&mut self, expected: u32, present: u32, wrong: u32, lingering: u32) {
        self.expected += u64::from(expected);
        self.present += u64::from(present);
        self.wrong += u64::from(wrong);
        self.lingering += u64::from(lingering);
    }

    /// Adds texts about leaks, a few of them.
    pub fn tell(&mut self, leaks: impl Iterator<Item = String>) {
        let room = MOST_LEAKS.saturating_sub(self.leaks.len());
        self.leaks.extend(leaks.take(room));
    }

    /// Counts a BFD session that went down `times` times, and names it if few were named before.
    pub fn lose_bfd(&mut self, times: u64, name: String) {
        self.bfd_lost += times;
        if self.bfd_lost_at.len() < MOST_LEAKS {
            self.bfd_lost_at.push(name);
        }
    }

    /// Sessions that ended since `before`, as text.
    pub fn lost_since(&self, before: &VpnRoutesSeen) -> Vec<String> {
        let mut texts = Vec::new();
        let (bgp, bfd) = (self.sessions_lost - before.sessions_lost, self.bfd_lost - before.bfd_lost);
        if bgp > 0 {
            texts.push(format!("BGP sessions ended {bgp} times"));
        }
        if bfd > 0 {
            texts.push(format!("BFD sessions went down {bfd} times: {}", self.bfd_lost_at.join(", ")));
        }
        texts
    }

    /// Sets the cause from the counts.
    pub fn judge(&mut self) {
        let parts = [
            (self.expected - self.present.min(self.expected), "missing"),
            (self.wrong, "with a wrong attribute"),
            (self.lingering, "not withdrawn"),
        ];
        let parts: Vec<_> = parts.into_iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
        self.cause =
            if parts.is_empty() { String::new() } else { format!("of {} routes {}", self.expected, parts.join(", ")) };
    }
}

/// The VRFs of the DUT.
///
/// A test uses some of them with equal numbers of routes: half of the routes of each VRF are behind its CE router, the
/// other half at its remote site. All VRFs have the same prefixes.
pub trait Vpns {
    /// All VRFs, in order of their numbers.
    fn vrfs(&self) -> &[VrfView];

    /// Brings `vrfs` VRFs up, divided equally among the customer ports: OSPF and LDP with the P routers, and the sessions of their
    /// CE and PE routers, BFD included. `routes` is the number of routes of each VRF at each of its two sites. No route is advertised yet.
    ///
    /// # Errors
    /// [`TestError::NotApplicable`] if there are not so many VRFs or routes; [`TestError::Failed`] if a session is not up `within` this
    /// time.
    fn bring_up(&mut self, vrfs: u32, routes: u32, within: Duration) -> Result<VpnUp, TestError>;

    /// The VRFs that are in use.
    fn used(&self) -> &[VrfView];

    /// Advertises all routes, or withdraws them.
    ///
    /// # Errors
    /// Errors of the emulated routers.
    ///
    /// A route that is advertised already is advertised again.
    fn change_all(&mut self, change: Change) -> Result<(), TestError>;

    /// Advertises or withdraws routes `part` behind the CE router of a VRF, at an event of a trial. From now on, these routes are expected to be
    /// present or absent.
    ///
    /// # Errors
    /// [`TestError::Failed`] if no VRF is up.
    fn at_customer(&mut self, vrf: &VrfView, change: Change, part: Range<u32>) -> Result<RouteAction, TestError>;

    /// Waits until every PE and CE router has exactly the expected routes. Gives up if nothing changed for `patience`.
    ///
    /// # Errors
    /// [`TestError::Interrupted`], [`TestError::DutDied`].
    fn await_routes(&mut self, patience: Duration) -> Result<VpnRoutesSeen, TestError>;

    /// Routes that are present now.
    fn seen(&self) -> VpnRoutesSeen;

    /// How long the CE routers behind `port` took to send each of their last `changes` changes of routes, in seconds: until the DUT's TCP had
    /// acknowledged all of them. Empty if they have made fewer changes.
    fn sent(&self, port: PortIndex, changes: usize) -> Vec<f64>;

    /// Flows of `group` to routes `part` of a VRF, with the labels that the DUT has advertised, and with the encapsulation in which they must arrive. Tags and labels are added to `size`.
    /// Their weight is their number of routes.
    ///
    /// # Errors
    /// [`TestError::Failed`] if the DUT has advertised no label for one of the routes.
    fn flows(
        &self,
        vrf: &VrfView,
        way: Way,
        part: Range<u32>,
        size: &PacketSize,
        group: &str,
    ) -> Result<Vec<FlowSpec>, TestError>;

    /// The VRF at whose site a frame arrived; `None` for no site.
    fn site_of(&self, arrived: &Misdelivered) -> Option<VrfView>;

    /// Ends all sessions, and waits until the DUT's processor is idle, if that is known: it then has no more routes of VPNs to remove.
    ///
    /// # Errors
    /// [`TestError::Interrupted`], [`TestError::DutDied`].
    fn take_down(&mut self) -> Result<(), TestError>;
}
