//! Interface of a test to the VRFs of a DUT (RFC 4364, RFC 4659), and to the emulated CE and PE routers around it.

use crate::testbed::TestError;
use drophammer_model::routes::{Change, RouteAction};
use drophammer_model::size::PacketSize;
use drophammer_model::trial::{Family, FlowSpec, Misdelivered, PortIndex};
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

/// Maximum number of leaks that are described in words.
const MOST_LEAKS: usize = 20;

/// A site of a VRF of the DUT, with a CE router. Most VRFs have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VrfView {
    /// Number of the VRF, from 0. Its name is `v1` for number 0.
    pub number: u32,
    /// Index of the site within its VRF, from 0.
    pub site: u32,
    /// Port with the CE router.
    pub customer: PortIndex,
    /// VLAN of the CE router.
    pub vid: u16,
    /// Core port with the remote site of the VRF.
    pub core: PortIndex,
}

impl VrfView {
    /// Name of the VRF: `v1`.
    pub fn name(&self) -> String {
        format!("v{}", self.number + 1)
    }

    /// Name of the site: `v1`, or `v1, site 2` for the second one.
    pub fn site_name(&self) -> String {
        if self.site == 0 { self.name() } else { format!("{}, site {}", self.name(), self.site + 1) }
    }
}

/// Number of VRFs with these sites.
pub fn vrfs_of(sites: &[VrfView]) -> u32 {
    sites.iter().filter(|site| site.site == 0).count() as u32
}

/// VRFs and routes that a test uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VpnSize {
    /// Number of VRFs, divided equally among the customer ports that have VRFs of their own. They are used with all their sites.
    pub vrfs: u32,
    /// Routes of each VRF at each of its sites, in each family.
    pub routes: u32,
    /// Families of the routes, at least one.
    pub families: Vec<Family>,
}

/// Where a route arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// At CE routers.
    Ce,
    /// At PE routers.
    Pe,
}

/// Direction of traffic through the DUT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// From CE routers to remote sites: the DUT pushes labels.
    ToCore,
    /// From remote sites to CE routers: the DUT removes labels.
    ToCustomers,
    /// From CE routers to the other CE routers of their VRF, without labels.
    BetweenCustomers,
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
    /// Number of expected routes, and of expected routes that are present, by family and place.
    pub by_place: BTreeMap<(Family, Place), [u64; 2]>,
    /// Routes with the prefixes of CE routers that CE routers received. Most routers advertise routes of a neighbour back to it; frames
    /// show whether they are of another VRF.
    pub returned: u64,
    /// Advertisements that a router received of routes that belong to another VRF, or to none. A route that is advertised again, or to
    /// another router, counts again.
    pub leaked: u64,
    /// The first of these, as text.
    pub leaks: Vec<String>,
    /// From the last [`Vpns::change_part`] until the last change, in seconds.
    pub last_change_s: f64,
    /// Longest time in that period, in seconds, for which the tester itself delayed sending to a router.
    pub tester_late_s: f64,
    /// How often sessions with PE and CE routers ended since they were brought up.
    pub sessions_lost: u64,
    /// How often BFD sessions with CE routers went down since they were brought up.
    pub bfd_lost: u64,
    /// The first of these sessions, with the reason: `v3 (packets of the DUT were missing for the detection time)`.
    pub bfd_lost_at: Vec<String>,
    /// How often BFD sessions went down after the tester had sent their packets late. These times are not in `bfd_lost`, and the BGP sessions of
    /// these CE routers are not in `sessions_lost`.
    pub bfd_not_judged: u64,
    /// By how much these packets were late at most, in seconds.
    pub bfd_late_s: f64,
    /// Packets of the DUT that were missing between others of BFD sessions with CE routers, at least, since these were brought up.
    pub bfd_missing: u64,
    /// The first of these sessions, with the number of packets: `v3: 8`.
    pub bfd_missing_at: Vec<String>,
    /// Number of the other ones.
    pub bfd_missing_elsewhere: u64,
    /// Why routes are missing, as text; empty if all are present.
    pub cause: String,
}

impl VpnRoutesSeen {
    /// True if exactly the expected routes are present.
    pub fn complete(&self) -> bool {
        self.cause.is_empty()
    }

    /// Adds the counts of one router: expected, present and wrong routes, and routes that are present but must be absent.
    pub fn add(&mut self, at: (Family, Place), counts: [u32; 4]) {
        let [expected, present, wrong, lingering] = counts.map(u64::from);
        self.expected += expected;
        self.present += present;
        self.wrong += wrong;
        self.lingering += lingering;
        let of_place = self.by_place.entry(at).or_default();
        of_place[0] += expected;
        of_place[1] += present;
    }

    /// Where routes are missing, as text.
    fn missing(&self) -> String {
        let short = self.by_place.iter().filter(|(_, [expected, present])| present < expected);
        let text = |((family, place), [expected, present]): (&(Family, Place), &[u64; 2])| {
            let routers = if *place == Place::Ce { "CE" } else { "PE" };
            format!("{present} of {expected} {family} routes are at {routers} routers")
        };
        short.map(text).collect::<Vec<_>>().join(", ")
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

    /// Counts packets that were missing in a BFD session, and names it if few were named before.
    pub fn miss_bfd(&mut self, packets: u64, name: &str) {
        self.bfd_missing += packets;
        if self.bfd_missing_at.len() < MOST_LEAKS {
            self.bfd_missing_at.push(format!("{name}: {packets}"));
        } else {
            self.bfd_missing_elsewhere += 1;
        }
    }

    /// Sessions that ended since `before`, and packets of other ones that were missing, as text.
    pub fn lost_since(&self, before: &VpnRoutesSeen) -> Vec<String> {
        let mut texts = self.ended_since(before);
        texts.extend(self.not_judged_since(before));
        texts.extend(self.missing_since(before));
        texts
    }

    /// Sessions that the DUT ended since `before`, as text.
    pub fn ended_since(&self, before: &VpnRoutesSeen) -> Vec<String> {
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

    /// Packets of BFD sessions that were missing since `before`, as text; `None` for none.
    pub fn missing_since(&self, before: &VpnRoutesSeen) -> Option<String> {
        let packets = self.bfd_missing - before.bfd_missing;
        let others = match self.bfd_missing_elsewhere {
            0 => String::new(),
            some => format!(", and {some} more sessions"),
        };
        (packets > 0).then(|| {
            format!("BFD packets of the DUT were missing: {packets} ({}{others})", self.bfd_missing_at.join(", "))
        })
    }

    /// Why sessions that ended since `before` say nothing about the DUT; `None` if all of them do.
    pub fn not_judged_since(&self, before: &VpnRoutesSeen) -> Option<String> {
        let times = self.bfd_not_judged - before.bfd_not_judged;
        (times > 0).then(|| {
            format!(
                "BFD sessions went down {times} times after the tester had sent their packets up to {:.1} s late: they are not judged, and \
                 neither are the BGP sessions of their CE routers; use fewer of them, or a host with less other load",
                self.bfd_late_s
            )
        })
    }

    /// Sets the cause from the counts.
    pub fn judge(&mut self) {
        let parts = [
            (self.expected - self.present.min(self.expected), "missing"),
            (self.wrong, "with a wrong attribute"),
            (self.lingering, "not withdrawn"),
        ];
        let parts: Vec<_> = parts.into_iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
        let missing = Some(self.missing()).filter(|text| !text.is_empty());
        let missing = missing.map_or(String::new(), |text| format!(" ({text})"));
        self.cause = match parts.is_empty() {
            true => String::new(),
            false => format!("of {} routes {}{missing}", self.expected, parts.join(", ")),
        };
    }
}

/// The VRFs of the DUT.
///
/// A test uses some of them with equal numbers of routes behind each CE router and at each remote site. All VRFs have the same prefixes.
pub trait Vpns {
    /// All VRFs, site by site, in order of ports and VLANs.
    fn vrfs(&self) -> &[VrfView];

    /// Brings VRFs up: OSPF and LDP with the P routers, and the sessions of their CE and PE routers, BFD included. No route is advertised yet.
    ///
    /// # Errors
    /// [`TestError::NotApplicable`] if there are fewer VRFs or routes, or if the DUT does not offer a family;
    /// [`TestError::Failed`] if a session is not up after `within`.
    fn bring_up(&mut self, size: &VpnSize, within: Duration) -> Result<VpnUp, TestError>;

    /// The VRFs that are in use, site by site in the same order.
    fn used(&self) -> &[VrfView];

    /// Advertises routes `part` of each site of each VRF in each family, as far as they exist, or withdraws them. A route that is
    /// advertised already is advertised again.
    ///
    /// # Errors
    /// Errors of the emulated routers.
    fn change_part(&mut self, change: Change, part: Range<u32>) -> Result<(), TestError>;

    /// Like [`Vpns::change_part`], for all routes.
    ///
    /// # Errors
    /// Errors of [`Vpns::change_part`].
    fn change_all(&mut self, change: Change) -> Result<(), TestError> {
        self.change_part(change, 0..u32::MAX)
    }

    /// Advertises or withdraws routes `part` behind the CE router of a site in each family, at an event of a trial. From now on, these routes are
    /// expected to be present or absent.
    ///
    /// # Errors
    /// [`TestError::Failed`] if no VRF is up.
    fn at_customer(&mut self, vrf: &VrfView, change: Change, part: Range<u32>) -> Result<Vec<RouteAction>, TestError>;

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

    /// Flows of `group` from or to a site of a VRF in one family, to the routes `part`, with the labels that the DUT has advertised, and with the encapsulation in which they must arrive. Tags and labels are added to `size`.
    /// Their weight is their number of routes.
    ///
    /// # Errors
    /// [`TestError::Failed`] if the DUT has advertised no label for one of the routes.
    fn flows(
        &self,
        vrf: &VrfView,
        way: Way,
        family: Family,
        part: Range<u32>,
        size: &PacketSize,
        group: &str,
    ) -> Result<Vec<FlowSpec>, TestError>;

    /// The site at which a frame arrived, or the first one of the VRF for its remote site; `None` for no site.
    fn site_of(&self, arrived: &Misdelivered) -> Option<VrfView>;

    /// Ends all sessions, and waits until the DUT's processor is idle, if that is known: it then has no more routes of VPNs to remove.
    ///
    /// # Errors
    /// [`TestError::Interrupted`], [`TestError::DutDied`].
    fn take_down(&mut self) -> Result<(), TestError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_sessions_with_missing_packets_are_named_and_the_others_counted() {
        let mut seen = VpnRoutesSeen::default();
        assert_eq!(seen.lost_since(&VpnRoutesSeen::default()), [""; 0]);
        seen.miss_bfd(8, "v1");
        let before = seen.clone();
        assert_eq!(seen.missing_since(&before), None);
        seen.miss_bfd(2, "v1, site 2");
        let text = "BFD packets of the DUT were missing: 10 (v1: 8, v1, site 2: 2)";
        assert_eq!(seen.lost_since(&VpnRoutesSeen::default()), [text]);
        assert_eq!(seen.ended_since(&VpnRoutesSeen::default()), [""; 0], "no session has ended");
        (0..30).for_each(|_| seen.miss_bfd(1, "v9"));
        let text = seen.missing_since(&before).unwrap();
        assert!(text.starts_with("BFD packets of the DUT were missing: 32 (v1: 8,"), "{text}");
        assert!(text.ends_with("v9: 1, and 12 more sessions)"), "{text}");
        assert_eq!(seen.bfd_missing_at.len(), MOST_LEAKS);
    }
}
