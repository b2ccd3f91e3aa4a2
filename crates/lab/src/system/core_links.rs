//! Links between the routers of a system.
//!
//! A link is a veth pair between the namespaces of two routers. Each end receives in its own kernel thread on the DUT's
//! processor, like a link to the tester ([`crate::confine`]). Each end also has the suite's input queue, because it sends
//! into the other end's ring. On a link with a speed, each end has a token bucket instead.

use crate::confine;
use crate::enter::Shared;
use crate::input_queue::add_qdisc;
use crate::kinds::KINDS;
use crate::link_delay::LinkDelay;
use crate::links::{VethLinks, operational};
use crate::router::dut_interface;
use crate::traffic_classes::{OVERHEAD, SHORTEST};
use crate::{DutKind, Lab, LabError, Netns, label_edge, wait};
use drophammer_model::quantity::Bandwidth;
use drophammer_model::suite::DutConfig;
use drophammer_model::topology::{CoreEnd, CoreLink, CoreLinkName, System};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// A token bucket lets through a burst of this number of largest frames, or the bytes that the link carries in this
/// time, whichever is more: the kernel's timers are not exact.
const BURST_FRAMES: u64 = 2;
const BURST: Duration = Duration::from_millis(1);
/// Time limit for a link to come up after both ends were set up.
const CARRIER: Duration = Duration::from_secs(5);

/// The links between the routers of a system. Dropping it removes them.
pub(super) struct RouterLinks {
    links: Vec<CoreLink>,
    /// MTU of each link.
    mtus: Vec<u32>,
    shared: Arc<Shared>,
    /// Links that have been taken down.
    down: BTreeSet<CoreLinkName>,
    /// True if the routers have their own kernels: links go down and have queues of classes there, and the ends in this
    /// machine's kernel stay unchanged.
    inside: bool,
    /// Namespaces of the routers.
    netns: Vec<Netns>,
}

/// Name of router `index` of a system, for its namespace and folder.
pub(super) fn router_name(dut: &DutConfig, index: usize) -> String {
    format!("{}-r{}", dut.name, index + 1)
}

impl RouterLinks {
    /// Makes the namespaces of all routers, with their links to the tester and to each other, so that the routers can start.
    pub(super) fn make(
        kind: &dyn DutKind,
        lab: &mut Lab,
        dut: &DutConfig,
        system: &System,
    ) -> Result<RouterLinks, LabError> {
        let mut sites = Vec::new();
        for (index, router) in system.routers.iter().enumerate() {
            let edges = &label_edge::with_room(&router.role)[..router.ports.len()];
            sites.push(VethLinks::begin(lab, &router_name(dut, index), edges, router.ports.start)?);
        }
        let netns: Vec<Netns> = sites.iter().map(|site| site.netns().again()).collect::<Result<_, _>>()?;
        let mtu =
            |link: &CoreLink| label_edge::link_mtu(&system.routers[link.ends[0].router].role, link.ends[0].interface);
        let made = RouterLinks {
            links: system.links.clone(),
            mtus: system.links.iter().map(mtu).collect(),
            shared: lab.shared().clone(),
            down: BTreeSet::new(),
            inside: kind.has_own_kernel(),
            netns,
        };
        for (link, mtu) in system.links.iter().zip(&made.mtus) {
            made.join(link, *mtu)?;
        }
        for (site, router) in sites.iter_mut().zip(&system.routers) {
            site.finish(lab, &kind.of_kernel(&router.role))?;
        }
        for link in &system.links {
            link.ends.into_iter().try_for_each(|end| made.add_queue_at(end.router, end.interface))?;
        }
        for (router, site) in sites.iter_mut().enumerate() {
            let delay = |link: &CoreLink| LinkDelay::of(link, link.end_at(router)?.interface);
            site.set_delays(system.links.iter().filter_map(delay).collect());
        }
        let named = (0..).map(|index| router_name(dut, index)).zip(sites);
        lab.set_sites(named.collect::<BTreeMap<_, _>>());
        Ok(made)
    }

    fn join(&self, link: &CoreLink, mtu: u32) -> Result<(), LabError> {
        let [a, b] = link.ends;
        let queues = self.shared.queues();
        let (here, there) = (dut_interface(a.interface), dut_interface(b.interface));
        let path = self.netns[b.router].path();
        let add =
            format!("link add {here} mtu {mtu}{queues} type veth peer name {there} mtu {mtu}{queues} netns {path}");
        self.netns[a.router].ip(&[add])
    }

    /// Gives an interface without a queue the queue of its link. Interfaces to the tester stay unchanged.
    fn add_queue_at(&self, router: usize, interface: usize) -> Result<(), LabError> {
        let end = CoreEnd { router, interface };
        let at = self.links.iter().position(|link| link.ends.contains(&end));
        let Some((link, mtu)) = at.map(|at| (&self.links[at], self.mtus[at])) else { return Ok(()) };
        let (netns, name, shared) = (&self.netns[router], dut_interface(interface), &self.shared);
        let Some(speed) = link.speed else { return shared.add_input_queue(netns, &name) };
        let tc = |args: &str| add_qdisc(netns, &name, &args.split(' ').collect::<Vec<_>>());
        let (burst, frames) = (burst(speed, mtu), shared.input_queue.length());
        tc(&format!(
            "root handle 1: tbf rate {}bit burst {burst} limit {burst} overhead {OVERHEAD} mpu {SHORTEST}",
            speed.0
        ))?;
        tc(&format!("parent 1:1 handle 2: pfifo limit {frames}"))
    }

    /// Like [`RouterLinks::add_queue_at`], for an interface that may have another queue.
    pub(super) fn restore_queue_at(&self, router: usize, interface: usize) -> Result<(), LabError> {
        if self.inside {
            return Ok(());
        }
        let name = dut_interface(interface);
        // Fails if there is no queue to delete.
        let _ = self.netns[router].output("tc", "iproute2", &["qdisc", "del", "dev", &name, "root"], None);
        self.add_queue_at(router, interface)
    }

    pub(super) fn down(&self) -> &BTreeSet<CoreLinkName> {
        &self.down
    }

    /// The ends of all links of this name; an error if there are none.
    pub(super) fn ends(&self, name: CoreLinkName) -> Result<Vec<CoreEnd>, LabError> {
        let ends: Vec<_> = self.links.iter().filter(|link| link.name == name).flat_map(|link| link.ends).collect();
        if !ends.is_empty() {
            return Ok(ends);
        }
        let all: BTreeSet<_> = self.links.iter().map(|link| link.name).collect();
        let all: Vec<_> = all.iter().map(ToString::to_string).collect();
        Err(LabError::unusable(
            format!("this system has no link {name} between routers"),
            format!("its links are {}", all.join(", ")),
        ))
    }

    /// Takes all links of this name down at both ends, or up, and then waits for carrier. Routers with their own kernels do
    /// that themselves. Calls `returned` for each end that is up, with the kernel threads that now receive there.
    pub(super) fn set(
        &mut self,
        name: CoreLinkName,
        up: bool,
        mut returned: impl FnMut(CoreEnd, Vec<(u32, String)>),
    ) -> Result<(), LabError> {
        let ends = if self.inside { Vec::new() } else { self.ends(name)? };
        for end in ends {
            let (netns, interface) = (&self.netns[end.router], dut_interface(end.interface));
            if up {
                returned(end, confine::set_up_again(netns, &interface, self.shared.lock.as_ref())?);
            } else {
                netns.ip(&[format!("link set {interface} down")])?;
            }
        }
        if up {
            self.down.remove(&name);
            return wait::while_missing(CARRIER, &|| false, || {
                Ok(self.not_up().map(|link| format!("link {link} has no carrier")))
            });
        }
        self.down.insert(name);
        Ok(())
    }

    /// The first link that is not up, other than those taken down.
    pub(super) fn not_up(&self) -> Option<CoreLinkName> {
        let up = |end: &CoreEnd| operational(&self.netns[end.router], &dut_interface(end.interface));
        let mut wanted = self.links.iter().filter(|link| !self.down.contains(&link.name));
        wanted.find(|link| !link.ends.iter().all(up)).map(|link| link.name)
    }

    /// Removes the links. This takes effect immediately, unlike the end of a namespace.
    pub(super) fn remove(&mut self) -> Result<(), LabError> {
        let mut result = Ok(());
        for link in std::mem::take(&mut self.links) {
            let (netns, name) = (&self.netns[link.ends[0].router], dut_interface(link.ends[0].interface));
            if netns.sys(&format!("class/net/{name}")).exists() {
                result = result.and(netns.ip_unheld(&[format!("link del {name}")]));
            }
        }
        result
    }
}

impl Drop for RouterLinks {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}

/// Refuses a system whose links delay or lose frames if routers of this kind do not support that.
pub(super) fn refuse_unless_made(kind: &dyn DutKind, system: &System) -> Result<(), LabError> {
    let mut special = system.links.iter().filter(|link| !link.delay.is_zero() || !link.loss.is_none());
    let Some(link) = special.next().filter(|_| !kind.delays_links()) else { return Ok(()) };
    let (verb, key) = if link.delay.is_zero() { ("lose frames on", "wan_loss") } else { ("delay", "wan_delay") };
    let able: Vec<_> = KINDS.iter().filter(|kind| kind.delays_links()).map(|kind| kind.spec().name).collect();
    Err(LabError::unusable(
        format!("routers of kind `{}` cannot {verb} link {} between them", kind.spec().name, link.name),
        format!("leave `{key}` out, or use kind {}", able.join(", ")),
    ))
}

/// Number of bytes in a burst that a token bucket lets through.
fn burst(speed: Bandwidth, mtu: u32) -> u64 {
    let frame = u64::from(mtu) + 14 + u64::from(OVERHEAD);
    let in_time = speed.0.saturating_mul(BURST.as_micros() as u64) / 8_000_000;
    in_time.max(BURST_FRAMES * frame)
}

/// Description of the links, for the record.
pub(super) fn text(system: &System) -> String {
    let mtu = system.routers[0].role.interfaces.last().map_or(0, |interface| interface.mtu);
    let speeds: BTreeSet<u64> = system.links.iter().filter_map(|link| link.speed).map(|speed| speed.0).collect();
    let buckets = match &speeds.into_iter().map(Bandwidth).collect::<Vec<_>>()[..] {
        [] => String::new(),
        [one] if system.links.iter().all(|link| link.speed.is_some()) => {
            format!(", each a token bucket at both ends that lets a burst of {} bytes through", burst(*one, mtu))
        }
        several => {
            let each = several.iter().map(|speed| format!("{} at {speed}", burst(*speed, mtu)));
            let each = each.collect::<Vec<_>>().join(", ");
            format!(
                "; a link with a speed is a token bucket at both ends that lets a burst of this many bytes through: {each}"
            )
        }
    };
    let delayed = system.links.iter().any(|link| !link.delay.is_zero());
    let lossy = system.links.iter().any(|link| !link.loss.is_none());
    let what = match (delayed, lossy) {
        (true, false) => "; the kernel of the receiving router delays packets",
        (false, true) => "; the kernel of the receiving router loses some packets",
        (true, true) => "; the kernel of the receiving router delays packets and loses some",
        (false, false) => "",
    };
    format!("{}{buckets}{what}", system.topology)
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::topology::{LinkLoss, Shape, Topology, Wan};

    fn system(topology: Topology) -> System {
        System::of(&crate::kinds::tests_support::two_ports(), &topology).unwrap()
    }

    #[test]
    fn the_record_says_what_the_links_are() {
        let chain = Topology { shape: Shape::Chain, routers: 3, core_speed: None, wan: None };
        assert_eq!(text(&system(chain)), chain.to_string());
        let fast = Some(Bandwidth(100_000_000));
        let same = text(&system(Topology { core_speed: fast, ..chain }));
        assert!(
            same.ends_with(", each a token bucket at both ends that lets a burst of 12500 bytes through"),
            "{same}"
        );
        let shape = Topology { shape: Shape::Loop, routers: 4, ..chain };
        let wan =
            |speed| Some(Wan { speed: Some(Bandwidth(speed)), delay: Some(Duration::from_millis(277)), loss: None });
        let both = text(&system(Topology { core_speed: fast, wan: wan(44_210_000), ..shape }));
        assert!(both.contains("5526 at 44.21 Mbit/s, 12500 at 100 Mbit/s; the kernel"), "{both}");
        let one = text(&system(Topology { wan: wan(1_000_000), ..shape }));
        assert!(one.contains("a link with a speed") && one.contains("3124 at 1 Mbit/s"), "{one}");
    }

    #[test]
    fn a_bucket_has_room_for_two_frames_and_a_millisecond() {
        assert_eq!(burst(Bandwidth(1_000_000), 1500), 2 * 1538);
        assert_eq!(burst(Bandwidth(1_000_000_000), 1500), 125_000);
    }

    #[test]
    fn a_delay_or_a_loss_needs_routers_that_make_it() {
        let refused = |kind: &str, wan: Wan| {
            let system = system(Topology { shape: Shape::Loop, routers: 4, core_speed: None, wan: Some(wan) });
            refuse_unless_made(crate::kinds::find(kind).unwrap(), &system).err().map(|e| e.to_string())
        };
        let wan = Wan { delay: Some(Duration::from_millis(277)), loss: Some(LinkLoss(1_000)), speed: None };
        let error = refused("linux", wan).unwrap();
        assert!(error.contains("kind `linux` cannot delay link 2-3") && error.contains("use kind uml"), "{error}");
        let error = refused("linux", Wan { delay: None, ..wan }).unwrap();
        assert!(error.contains("cannot lose frames on link 2-3") && error.contains("leave `wan_loss` out"), "{error}");
        assert_eq!((refused("uml", wan), refused("linux", Wan::default())), (None, None));
    }
}
