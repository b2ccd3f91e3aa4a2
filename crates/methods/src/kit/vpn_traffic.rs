//! Traffic to every route of VRFs in both directions, and frames that arrive in another VRF.

use crate::attempts::Attempts;
use crate::columns;
use crate::parameters::DRAIN;
use crate::report::note;
use crate::routing::Change;
use crate::table::TableSpec;
use crate::testbed::{TestError, Testbed};
use crate::trial::Trial;
use crate::vpns::{VpnRoutesSeen, VpnSize, VpnUp, VrfView, Way, vrfs_of};
use drophammer_model::capabilities::Need;
use drophammer_model::outcome::Outcome;
use drophammer_model::param::Param;
use drophammer_model::quantity::FrameRate;
use drophammer_model::size::PacketSize;
use drophammer_model::suite::Params;
use drophammer_model::trial::{Family, FlowSpec, GroupCounts, Load, Misdelivered, TrialResult, TrialSpec};
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

/// Roles that a test of VPNs requires of a DUT.
pub const NEEDS: &[Need] = &[Need::Vrfs, Need::Ospf, Need::Ldp];
/// `vrfs`
pub const VRFS: Param<Option<u32>> =
    Param::optional("vrfs", "number of VRFs, divided among the customer ports; default: all");
/// `routes`
pub const ROUTES: Param<u32> = Param::fixed("routes", "100", ROUTES_HELP);
/// Help of `routes`.
pub const ROUTES_HELP: &str = "routes of each VRF: half of them behind its CE router, half at its remote site; further sites have as many as each of these";
/// `families`
pub const FAMILIES: Param<Vec<Family>> = Param::fixed(
    "families",
    "[ipv4]",
    "families of the routes of VRFs, VPN-IPv4 and VPN-IPv6 (RFC 4659); `routes` are those of each family",
);
drophammer_model::choice! {
    /// Between which sites of a VRF frames go.
    pub enum Mesh {
        /// Between each CE router and the remote site.
        Pairs = "pairs",
        /// Also between the CE routers of a VRF.
        Partial = "partial",
    }
}

/// `mesh`
pub const MESH: Param<Mesh> = Param::fixed(
    "mesh",
    "pairs",
    "sites between which frames go: each CE router and the remote site of its VRF (`pairs`), or also the CE routers of a VRF, which \
     are behind ports with `sites_of` (`partial`)",
);
/// `frame_size`
pub const SIZE: Param<PacketSize> = Param::fixed(
    "frame_size",
    "64",
    "frame size with FCS, or a mix, without the VLAN tag and the labels, which are added; IPv6 frames have at least 78 bytes",
);
/// `establish`
pub const ESTABLISH: Param<Duration> =
    Param::new("establish", "2 min", "10 min", "time limit for OSPF and LDP, and for all BGP sessions");
/// `patience`
pub const PATIENCE: Param<Duration> =
    Param::new("patience", "20 s", "60 s", "time without any change after which missing routes are given up");
/// `install`
pub const INSTALL: Param<Duration> = Param::new(
    "install",
    "30 s",
    "5 min",
    "time for the forwarding plane to follow the routing table; until then, traffic with loss is repeated",
);
/// `check_rate`
pub const CHECK_RATE: Param<FrameRate> = Param::fixed(
    "check_rate",
    "5 kfps",
    "load of each port for the check of every route, below the router's throughput",
);

/// Minimum number of times that traffic to every route has loss before the test gives up.
const TRIES: u32 = 3;
/// Maximum number of trials that are named for a leak.
const MOST_TRIALS: usize = 10;

columns! {
    /// Frames of one VRF that arrived in another place.
    pub struct LeakRow {
        vrf: String = "VRF",
        way: String = "Direction",
        arrived: String = "Arrived at",
        is: String,
        frames: u64,
    }
}

/// Frames in a wrong place, over all trials of a test.
pub const LEAKS: TableSpec<LeakRow> = TableSpec::new("vpn_leaks", "Frames in a wrong place");

/// Group of frames from CE routers.
pub const TO_CORE: &str = "to the core";
/// Group of frames to CE routers.
pub const TO_CUSTOMERS: &str = "to customers";
/// Group of frames between CE routers.
pub const BETWEEN_CUSTOMERS: &str = "between customers";

/// VRFs that are up, with all their routes.
pub struct Vpn {
    /// The VRFs, site by site.
    pub vrfs: Vec<VrfView>,
    /// Sites between which frames go.
    pub mesh: Mesh,
    /// Routes of each of the two sites of a VRF in each family to which frames go.
    pub per_site: u32,
    /// Families of the routes.
    pub families: Vec<Family>,
    /// Frame size without tags and labels.
    pub size: PacketSize,
    leaks: BTreeMap<(u32, Way, Misdelivered), Leak>,
    /// Frames in a wrong place of which the place is not known.
    elsewhere: u64,
}

/// Frames of one VRF in one wrong place.
#[derive(Default)]
struct Leak {
    frames: u64,
    /// The first trials with such frames.
    trials: Vec<u64>,
}

/// Time until the VRFs worked.
pub struct Ready {
    /// Time until the sessions were up.
    pub up: VpnUp,
    /// The routes that the DUT passed on.
    pub seen: VpnRoutesSeen,
    /// Seconds from the change of the routes to the first traffic to every route without loss; `None` if there was always loss.
    pub forwarded_s: Option<f64>,
    /// Uncertainty of this time in both directions: the time from the start of the first traffic to the end of the last, in seconds.
    pub unsure_s: f64,
    /// The last of this traffic.
    pub check: Option<TrialResult>,
}

impl Ready {
    /// Why the DUT does not forward to every route; `None` if it does.
    pub fn complaint(&self) -> Option<String> {
        if !self.seen.complete() {
            return Some(format!("routes are not passed on: {}", self.seen.cause));
        }
        let lost = self.check.as_ref().map_or(0, TrialResult::lost);
        let groups = self.check.as_ref().map(arrived).unwrap_or_default();
        self.forwarded_s.is_none().then(|| {
            format!("{lost} frames of the last traffic to every route are lost or arrived in a wrong place ({groups})")
        })
    }
}

impl Vpn {
    /// Brings the VRFs of a test up, advertises all routes, and waits until the DUT forwards to every route in both directions. Asks `fits` before the
    /// routes, which take longest.
    ///
    /// # Errors
    /// Errors of [`Vpn::sessions`] and of [`Vpn::change`].
    pub fn bring_up(
        bed: &mut dyn Testbed,
        params: &Params,
        fits: impl FnOnce(&Vpn) -> Result<(), TestError>,
    ) -> Result<(Vpn, Ready), TestError> {
        let (mut vpn, up) = Vpn::sessions(bed, params, fits)?;
        let all = 0..vpn.per_site;
        let ready = vpn.change(bed, params, up, Change::Advertise, all)?;
        Ok((vpn, ready))
    }

    /// Brings the VRFs of a test up, without a route, and asks `fits`.
    ///
    /// # Errors
    /// [`TestError::NotApplicable`] if there are fewer VRFs; what `fits` returns; errors of the sessions.
    pub fn sessions(
        bed: &mut dyn Testbed,
        params: &Params,
        fits: impl FnOnce(&Vpn) -> Result<(), TestError>,
    ) -> Result<(Vpn, VpnUp), TestError> {
        let size = SIZE.get(params);
        let vpns = bed.vpns()?;
        let count = VRFS.get(params).unwrap_or(vrfs_of(vpns.vrfs()));
        let per_site = ROUTES.get(params).div_ceil(2);
        let families = FAMILIES.get(params);
        let asked = VpnSize { vrfs: count, routes: per_site, families: families.clone() };
        let up = vpns.bring_up(&asked, ESTABLISH.get(params))?;
        let vrfs = vpns.used().to_vec();
        let mesh = MESH.find(params).unwrap_or(Mesh::Pairs);
        let vpn = Vpn { vrfs, mesh, per_site, families, size, leaks: BTreeMap::new(), elsewhere: 0 };
        if let Err(unfit) = vpn.check_sites().and_then(|()| fits(&vpn)) {
            vpns.take_down()?;
            return Err(unfit);
        }
        Ok((vpn, up))
    }

    /// Advertises routes `part` of each site, which follow those that are advertised already, or withdraws them, which are the last ones. Waits until
    /// the DUT forwards to all routes that are advertised then, in both directions. Frames arrive only when it has installed the routes, so this does not
    /// depend on what the DUT advertises.
    ///
    /// # Errors
    /// Errors of the sessions and of the trials.
    pub fn change(
        &mut self,
        bed: &mut dyn Testbed,
        params: &Params,
        up: VpnUp,
        change: Change,
        part: Range<u32>,
    ) -> Result<Ready, TestError> {
        let advertises = change == Change::Advertise;
        self.per_site = if advertises { part.end } else { part.start };
        // No other DUT is measured between this and the check: the router works in the meantime.
        bed.progress(if advertises { "routes of VRFs are advertised" } else { "routes of VRFs are withdrawn" });
        let begun = bed.now_s().unwrap_or_default();
        let vpns = bed.vpns()?;
        vpns.change_part(change, part)?;
        let seen = vpns.await_routes(PATIENCE.get(params))?;
        let mut ready = Ready { up, seen, forwarded_s: None, unsure_s: 0.0, check: None };
        if ready.seen.complete() {
            self.await_forwarding(bed, params, begun, &mut ready)?;
        }
        Ok(ready)
    }

    fn check_sites(&self) -> Result<(), TestError> {
        if self.mesh == Mesh::Partial && self.vrfs.iter().all(|vrf| vrf.site == 0) {
            let why = "no VRF in use has two sites: write `sites_of: c1` for a port with `customers`, where `c1` is another one";
            return Err(TestError::NotApplicable(why.into()));
        }
        Ok(())
    }

    fn await_forwarding(
        &mut self,
        bed: &mut dyn Testbed,
        params: &Params,
        begun: f64,
        ready: &mut Ready,
    ) -> Result<(), TestError> {
        let first = bed.now_s().unwrap_or_default();
        let rate = CHECK_RATE.get(params);
        // Each flow sends one frame to each of its routes.
        let duration_s = self.round_s(rate) * 1.02 + 0.01;
        for tries in 1.. {
            // Labels may change until the DUT has installed everything.
            let traffic = self.traffic(bed)?;
            let purpose = "VPN: one frame to every route".to_owned();
            let trial = Trial::new(self.trial(params, &traffic, purpose, rate.pps(), duration_s));
            let mut attempts = Attempts::begin(bed);
            let (at, result) = loop {
                let at = bed.now_s().unwrap_or_default();
                let result = bed.attempt(&trial, attempts.number())?.result;
                self.count_leaks(&traffic, &result);
                if attempts.passed(bed, &result)? {
                    break (at, result);
                }
            };
            let clean = result.lost() == 0 && result.misdelivered.is_empty();
            ready.check = Some(result);
            if clean {
                ready.forwarded_s = Some(at - begun);
                // A route that was not ready at the start of the trial may have become so before its frame.
                ready.unsure_s = at - first + duration_s;
                return Ok(());
            }
            if tries >= TRIES && bed.now_s().unwrap_or_default() - first > INSTALL.seconds(params) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Time in which each route gets a frame at a rate per port, in seconds.
    pub fn round_s(&self, rate: FrameRate) -> f64 {
        f64::from(self.most_routes_of_a_port()) / rate.pps()
    }

    /// The largest number of routes to which one port sends.
    fn most_routes_of_a_port(&self) -> u32 {
        let mut sites: BTreeMap<usize, u32> = BTreeMap::new();
        for vrf in &self.vrfs {
            *sites.entry(vrf.core).or_default() += 1;
            let others = self.vrfs.iter().filter(|other| other.number == vrf.number).count() as u32 - 1;
            *sites.entry(vrf.customer).or_default() += 1 + if self.mesh == Mesh::Partial { others } else { 0 };
        }
        sites.values().max().copied().unwrap_or(0) * self.per_site * self.families.len() as u32
    }

    /// Traffic to every route in both directions.
    ///
    /// # Errors
    /// Errors of [`crate::Vpns::flows`].
    pub fn traffic(&self, bed: &mut dyn Testbed) -> Result<VpnTraffic, TestError> {
        let mut traffic = VpnTraffic::default();
        let group =
            |way: &str, family| if family == Family::Ipv4 { way.to_owned() } else { format!("{way}, {family}") };
        let pairs = [(Way::ToCore, TO_CORE), (Way::ToCustomers, TO_CUSTOMERS)];
        let between = (self.mesh == Mesh::Partial).then_some((Way::BetweenCustomers, BETWEEN_CUSTOMERS));
        for (way, name) in pairs.into_iter().chain(between) {
            traffic.add(bed, self, way, &(0..self.per_site), &|_, family| group(name, family))?;
        }
        Ok(traffic)
    }

    /// A trial of this traffic at a rate in fps per port.
    pub fn trial(
        &self,
        params: &Params,
        traffic: &VpnTraffic,
        purpose: String,
        rate_pps: f64,
        duration_s: f64,
    ) -> TrialSpec {
        TrialSpec {
            purpose,
            size: self.size.clone(),
            flows: traffic.flows.clone(),
            load: Load::Constant { rate_pps },
            duration_s,
            bin_s: None,
            drain_s: DRAIN.seconds(params),
            events: Vec::new(),
        }
    }

    /// Counts the frames of a trial that arrived in wrong places.
    pub fn count_leaks(&mut self, traffic: &VpnTraffic, result: &TrialResult) {
        for wrong in &result.misdelivered {
            let Some((vrf, way)) = traffic.owners.get(wrong.flow) else { continue };
            let place = Misdelivered { flow: 0, frames: 0, ..*wrong };
            let leak = self.leaks.entry((*vrf, *way, place)).or_default();
            leak.frames += wrong.frames;
            if leak.trials.len() < MOST_TRIALS && leak.trials.last() != Some(&result.trial) {
                leak.trials.push(result.trial);
            }
        }
        self.elsewhere += result.misdelivered_elsewhere;
    }

    /// Writes the table of frames in wrong places. Returns the number of frames that arrived in another VRF.
    ///
    /// # Errors
    /// [`TestError::NotApplicable`] without VRFs.
    pub fn write_leaks(&self, bed: &mut dyn Testbed, outcome: &mut Outcome) -> Result<u64, TestError> {
        let mut leaked = self.elsewhere;
        if self.elsewhere > 0 {
            let text = format!(
                "{} frames arrived in too many wrong places to name them; they count as leaks.",
                self.elsewhere
            );
            note(outcome, text);
        }
        for ((number, way, place), Leak { frames, trials }) in &self.leaks {
            let site = bed.vpns()?.site_of(place);
            let port = &bed.ports()[place.port].name;
            let behind = match (place.vlan, place.label) {
                (Some(vlan), Some(label)) => format!("{port}, VLAN {vlan}, label {label}"),
                (Some(vlan), None) => format!("{port}, VLAN {vlan}"),
                (None, Some(label)) => format!("{port}, label {label}"),
                (None, None) => format!("{port}, without VLAN and label"),
            };
            let arrived = site.map_or_else(|| behind.clone(), |vrf| format!("{} ({behind})", vrf.site_name()));
            let leak = site.is_some_and(|vrf| vrf.number != *number);
            leaked += if leak { *frames } else { 0 };
            let way = match way {
                Way::ToCore => TO_CORE,
                Way::ToCustomers => TO_CUSTOMERS,
                Way::BetweenCustomers => BETWEEN_CUSTOMERS,
            };
            let is = if leak { "a leak into another VRF" } else { "in no other VRF" }.to_owned();
            let row = LeakRow { vrf: format!("v{}", number + 1), way: way.into(), arrived, is, frames: *frames };
            LEAKS.add(outcome, row, trials.iter().copied(), []);
        }
        Ok(leaked)
    }

    /// Number of VRFs.
    pub fn count(&self) -> u32 {
        vrfs_of(&self.vrfs)
    }

    /// Number of routes of each VRF; on average, if not all have equally many sites.
    pub fn per_vrf(&self) -> u64 {
        self.all_routes() / u64::from(self.count().max(1))
    }

    /// Number of routes of all VRFs: behind all CE routers, and at the remote site of each VRF.
    pub fn all_routes(&self) -> u64 {
        let sites = self.vrfs.len() as u64 + u64::from(self.count());
        sites * u64::from(self.per_site) * self.families.len() as u64
    }

    /// Number of routes behind all CE routers that are in `part` of each of them.
    pub fn behind_customers(&self, part: &Range<u32>) -> u64 {
        part.len() as u64 * self.vrfs.len() as u64 * self.families.len() as u64
    }

    /// The families as text: `IPv4`, `IPv4, IPv6`.
    pub fn family_names(&self) -> String {
        self.families.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }
}

/// Flows between the sites of VRFs.
#[derive(Clone, Debug, Default)]
pub struct VpnTraffic {
    /// The flows.
    pub flows: Vec<FlowSpec>,
    /// VRF and direction of each flow.
    owners: Vec<(u32, Way)>,
}

impl VpnTraffic {
    /// True if the last flows equal the flows of `other`, including their labels.
    pub fn ends_with(&self, other: &VpnTraffic) -> bool {
        self.flows.ends_with(&other.flows)
    }

    /// Adds the flows of one direction to routes `part` of each VRF, in groups that `group` names.
    ///
    /// # Errors
    /// Errors of [`crate::Vpns::flows`].
    pub fn add(
        &mut self,
        bed: &mut dyn Testbed,
        vpn: &Vpn,
        way: Way,
        part: &Range<u32>,
        group: &dyn Fn(&VrfView, Family) -> String,
    ) -> Result<(), TestError> {
        let vpns = bed.vpns()?;
        for family in &vpn.families {
            for vrf in vpn.vrfs.iter().filter(|_| !part.is_empty()) {
                let flows = vpns.flows(vrf, way, *family, part.clone(), &vpn.size, &group(vrf, *family))?;
                self.owners.extend(flows.iter().map(|_| (vrf.number, way)));
                self.flows.extend(flows);
            }
        }
        Ok(())
    }
}

/// What became of the frames of a trial with loss, group by group: `to the core, IPv6: 0 of 100 arrived`.
pub fn arrived(result: &TrialResult) -> String {
    let text = |group: &GroupCounts| format!("{}: {} of {} arrived", group.group, group.received, group.offered);
    result.groups.iter().filter(|group| group.lost > 0).map(text).collect::<Vec<_>>().join("; ")
}

/// Notes routes in a wrong VRF, and returns the number of their advertisements.
pub fn note_leaked_routes(outcome: &mut Outcome, seen: &VpnRoutesSeen) -> u64 {
    if seen.leaked > 0 {
        let named = seen.leaks.join("; ");
        let text = format!("Advertisements of routes to a router of another VRF: {} ({named}).", seen.leaked);
        note(outcome, text);
    }
    seen.leaked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leaked_route_counts_at_each_advertisement() {
        let leaks = vec!["10.0.0.0/24 of v1 has the route target of v2".to_owned()];
        let (mut outcome, seen) = (Outcome::default(), VpnRoutesSeen { leaked: 3, leaks, ..VpnRoutesSeen::default() });
        assert_eq!(note_leaked_routes(&mut outcome, &seen), 3);
        let text =
            "Advertisements of routes to a router of another VRF: 3 (10.0.0.0/24 of v1 has the route target of v2).";
        assert_eq!(outcome.notes, [text]);
    }
}
