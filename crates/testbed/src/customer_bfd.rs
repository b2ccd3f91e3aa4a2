//! BFD of the emulated CE routers with the DUT (RFC 5881), for the BGP sessions between them.

use crate::bench::Bench;
use drophammer_emulation::bfd::{Bfd, NAME, Report};
use drophammer_methods::TestError;
use drophammer_methods::vpns::VpnRoutesSeen;
use drophammer_model::Instant;
use drophammer_model::label_edge::FIRST_VLAN;
use drophammer_model::role::VrfRole;
use drophammer_model::trial::PortIndex;
use drophammer_rig::{Command, ProtocolPlace, Rig, Until};
use drophammer_wire::bfd::{State, diagnostic};
use std::collections::HashSet;
use std::time::Duration;

/// How long sessions may take to end: longer than the detection time, during which they send AdminDown.
const ENDING: Duration = Duration::from_secs(5);

/// The CE routers with BFD that are in use.
#[derive(Default)]
pub(crate) struct CustomerBfd(Vec<Customer>);

struct Customer {
    /// Name of the site.
    site: String,
    place: ProtocolPlace,
    /// How often the session had gone down before.
    before: Downs,
}

/// How often a session has gone down: in total, because packets were missing, and after the tester had sent packets late. Packets that were
/// missing although the session stayed up.
#[derive(Clone, Copy, Default)]
struct Downs {
    all: u64,
    missing: u64,
    own_fault: u64,
    packets: u64,
}

impl Downs {
    fn of(report: &Report) -> Downs {
        let Report { times_down, detections, own_fault, missing, .. } = *report;
        Downs { all: times_down, missing: detections, own_fault, packets: missing }
    }
}

const MISSING: &str = "packets of the DUT were missing for the detection time";
const SIGNALED: &str = "the DUT said that it is down";

/// Index of a CE router among the devices of its port, the first of which belongs to the port itself.
pub(crate) fn ce_device(vrf: &VrfRole) -> usize {
    1 + usize::from(vrf.vid - FIRST_VLAN)
}

/// Where the BFD session of a CE router is in the rig.
pub(crate) fn place(vrf: &VrfRole) -> ProtocolPlace {
    ProtocolPlace { port: vrf.port, device: ce_device(vrf), protocol: NAME }
}

impl Customer {
    fn report(&self, rig: &Rig) -> Option<Report> {
        let bfd: &Bfd = rig.hosts().device(self.place.port, self.place.device)?.protocol()?;
        bfd.sessions().next()
    }

    /// True if the session has gone down after the tester had sent packets late.
    fn is_late(&self, rig: &Rig) -> bool {
        self.report(rig).is_some_and(|report| report.own_fault > self.before.own_fault)
    }
}

/// Why a session is not up, as text.
fn why(report: &Report) -> &'static str {
    match (report.heard_at, report.diagnostic) {
        (None, _) => "the DUT has sent no packet",
        (Some(_), diagnostic::DETECTION_TIME_EXPIRED) => MISSING,
        (Some(_), diagnostic::NEIGHBOR_SIGNALED_DOWN) => SIGNALED,
        (Some(_), _) => "the DUT has not confirmed it",
    }
}

impl CustomerBfd {
    /// A session that is down, as text.
    pub(crate) fn down(&self, rig: &Rig) -> Option<String> {
        let down = |customer: &Customer| customer.report(rig).filter(|report| report.state != State::Up);
        let (customer, report) = self.0.iter().find_map(|customer| Some((customer, down(customer)?)))?;
        Some(format!("the BFD session of the CE router of {} is down: {}", customer.site, why(&report)))
    }

    /// Adds the sessions that have gone down since they were brought up, and those with missing packets.
    pub(crate) fn count(&self, rig: &Rig, seen: &mut VpnRoutesSeen) {
        for customer in &self.0 {
            let Some(report) = customer.report(rig) else { continue };
            let (now, before) = (Downs::of(&report), customer.before);
            let not_judged = now.own_fault - before.own_fault;
            if not_judged > 0 {
                seen.bfd_not_judged += not_judged;
                seen.bfd_late_s = seen.bfd_late_s.max(report.late.as_secs_f64());
            }
            let packets = now.packets - before.packets;
            if packets > 0 {
                seen.miss_bfd(packets, &customer.site);
            }
            let times = now.all - before.all - not_judged;
            if times > 0 {
                let why = if now.missing > before.missing { MISSING } else { SIGNALED };
                seen.lose_bfd(times, format!("{} ({why})", customer.site));
            }
        }
    }

    /// Port and device of the CE routers whose sessions went down after the tester had sent packets late.
    pub(crate) fn late(&self, rig: &Rig) -> HashSet<(PortIndex, usize)> {
        let late = self.0.iter().filter(|customer| customer.is_late(rig));
        late.map(|customer| (customer.place.port, customer.place.device)).collect()
    }
}

impl Bench<'_> {
    /// Starts BFD on the CE routers of these sites, which come with their names, and waits until all sessions are up.
    ///
    /// # Errors
    /// [`TestError::Failed`] with the sessions that are not up at `deadline`, which is `within` after the start of all sessions.
    pub(crate) fn start_customer_bfd(
        &mut self,
        sites: Vec<(String, ProtocolPlace)>,
        deadline: Instant,
        within: Duration,
    ) -> Result<CustomerBfd, TestError> {
        let mut all = CustomerBfd::default();
        for (site, place) in sites {
            self.rig.command_to(place, &Command::Start).map_err(|e| TestError::Failed(e.to_string()))?;
            let mut customer = Customer { site, place, before: Downs::default() };
            customer.before = customer.report(&self.rig).map_or(customer.before, |report| Downs::of(&report));
            all.0.push(customer);
        }
        if self.await_each(&all, Until::Up, deadline)? {
            return Ok(all);
        }
        let port_works = self.port_works();
        let is_down = |customer: &&Customer| customer.report(&self.rig).is_none_or(|report| report.state != State::Up);
        let down = all.0.iter().filter(is_down).count();
        let first = all.down(&self.rig).unwrap_or_default();
        let (sessions, within) = (all.0.len(), within.as_secs_f64());
        self.stop_customer_bfd(&all)?;
        port_works?;
        Err(TestError::Failed(format!("{down} of {sessions} BFD sessions are not up after {within} s; {first}")))
    }

    /// Ends these sessions, and tells the DUT that they are AdminDown.
    ///
    /// # Errors
    /// [`TestError::Interrupted`] or [`TestError::DutDied`].
    pub(crate) fn stop_customer_bfd(&mut self, all: &CustomerBfd) -> Result<(), TestError> {
        for customer in &all.0 {
            self.rig.command_to(customer.place, &Command::Stop).map_err(|e| TestError::Failed(e.to_string()))?;
        }
        let deadline = self.rig.now() + ENDING;
        self.await_each(all, Until::Ended, deadline)?;
        Ok(())
    }

    /// Waits for one session after the other, so that checking many sessions takes time proportional to their number. False
    /// after `deadline`.
    fn await_each(
        &mut self,
        all: &CustomerBfd,
        until: fn(ProtocolPlace) -> Until,
        deadline: Instant,
    ) -> Result<bool, TestError> {
        for customer in &all.0 {
            let left = deadline.since(self.rig.now());
            if self.await_core(&until(customer.place), left)?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
