//! The links between tester and DUT, and the settings of the kernel in the namespaces of DUTs.

use crate::confine::{self, Confinement};
use crate::dut::TesterInterface;
use crate::link_delay::LinkDelay;
use crate::netns::kernel_has_ipv6;
use crate::probe::ThreadTimes;
use crate::router::{Names, address_lines, dut_interface, policy_lines, tunnel_lines, tunnel_settings, vlan_lines};
use crate::{Lab, LabError, Netns, label_edge, probe, router, wait};
use drophammer_model::role::{Interface, Member, RouterRole};
use drophammer_model::suite::PortConfig;
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

/// Time limit for the links of a loop to come up.
const CARRIER: Duration = Duration::from_secs(5);
/// Frames that a tap queues for its reader: the kernel's default.
const TAP_QUEUE: u32 = 1000;

/// Settings of a router's namespace, as key below `/proc/sys` and value. The router then sends nothing on its own
/// beyond what routers are required to send.
pub(crate) const ROUTER: [(&str, &str); 4] = [
    ("net/ipv4/ip_forward", "1"),
    ("net/ipv4/conf/all/forwarding", "1"),
    // The kernel uses the larger of the values for `all` and for the interface.
    ("net/ipv4/conf/all/rp_filter", "0"),
    ("net/ipv4/conf/default/rp_filter", "0"),
];

/// Settings of IPv4 interfaces, with the kernel's own values for `all` and for `default`. A new namespace inherits the
/// host's settings, unless `net.core.devconf_inherit_init_net` says otherwise, so the same suite would test different
/// routers on different hosts.
const KERNEL_DEFAULTS: [(&str, &str, &str); 14] = [
    // The kernel sets these two when forwarding is switched on, but not if the host forwards already.
    ("forwarding", "1", "1"),
    ("accept_redirects", "0", "1"),
    ("send_redirects", "1", "1"),
    ("secure_redirects", "1", "1"),
    ("shared_media", "1", "1"),
    ("accept_source_route", "0", "1"),
    ("accept_local", "0", "0"),
    ("route_localnet", "0", "0"),
    ("ignore_routes_with_linkdown", "0", "0"),
    ("log_martians", "0", "0"),
    ("arp_announce", "0", "0"),
    ("arp_filter", "0", "0"),
    ("arp_ignore", "0", "0"),
    ("proxy_arp", "0", "0"),
];

/// Like [`ROUTER`], for IPv6, if the kernel has it.
pub(crate) const ROUTER_IPV6: [(&str, &str); 7] = [
    ("net/ipv6/conf/all/disable_ipv6", "0"),
    ("net/ipv6/conf/default/disable_ipv6", "0"),
    ("net/ipv6/conf/all/forwarding", "1"),
    ("net/ipv6/conf/default/accept_dad", "0"),
    ("net/ipv6/conf/default/accept_ra", "0"),
    ("net/ipv6/conf/default/autoconf", "0"),
    ("net/ipv6/conf/default/router_solicitations", "0"),
];

/// Settings that switch IPv6 off: with IPv6, the kernel would send packets on its own, and they would be counted.
pub(crate) const NO_IPV6: [(&str, &str); 2] =
    [("net/ipv6/conf/all/disable_ipv6", "1"), ("net/ipv6/conf/default/disable_ipv6", "1")];

/// All IPv4 settings of a router's namespace. Forwarding is switched on first, because that changes others.
fn router_settings() -> Vec<(String, &'static str)> {
    let router = ROUTER.iter().map(|(key, value)| ((*key).to_owned(), *value));
    let defaults = KERNEL_DEFAULTS.iter().flat_map(|(key, all, default)| {
        [("all", *all), ("default", *default)].map(|(of, value)| (format!("net/ipv4/conf/{of}/{key}"), value))
    });
    router.chain(defaults).collect()
}

/// MTU of the tester's interface at a port: room for the tags of a frame of full size.
fn tester_mtu(mtu: u32, tags: impl Iterator<Item = usize>) -> u32 {
    mtu + tags.max().unwrap_or(0) as u32 * 4
}

fn mtu_at(interface: &Interface) -> u32 {
    tester_mtu(interface.mtu, interface.vlans.iter().map(|v| v.tags.len()))
}

pub(crate) fn tester_interface(i: usize) -> String {
    format!("t{i}")
}

/// True if the interface is up and has carrier.
pub(crate) fn operational(netns: &Netns, name: &str) -> bool {
    fs::read_to_string(netns.sys(&format!("class/net/{name}/operstate"))).is_ok_and(|s| s.trim() == "up")
}

/// True if the interface is administratively up, given the folder of all interfaces; `None` if it does not exist.
pub(crate) fn is_set_up(interfaces: &Path, name: &str) -> Option<bool> {
    const IFF_UP: u32 = 1;
    let flags = fs::read_to_string(interfaces.join(name).join("flags")).ok()?;
    u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16).ok().map(|flags| flags & IFF_UP != 0)
}

/// Keeps TCP segments separate at these interfaces. The confinement of the receive work at both ends also merges
/// segments (GRO). A merged segment is longer than the link's frames, and a port or a device that reads frames does not
/// accept it.
pub(crate) fn keep_segments_apart(netns: &Netns, interfaces: &[String]) -> Result<(), LabError> {
    let apart: Vec<_> = interfaces.iter().map(|name| format!("link set {name} gro_max_size 1")).collect();
    if netns.ip(&apart).is_ok() {
        return Ok(());
    }
    // On an older kernel or iproute2, turn GRO off. The receive work then runs in the sender's context.
    interfaces
        .iter()
        .try_for_each(|name| netns.output("ethtool", "ethtool", &["-K", name, "gro", "off"], None).map(drop))
}

/// The role for the links of a DUT that handles all packets itself: it contains nothing that would involve the kernel.
pub(crate) fn links_only(role: &RouterRole) -> RouterRole {
    let bare = |interface: &Interface| Interface { addresses: Vec::new(), ..interface.clone() };
    let (interfaces, routes, bgp) = (role.interfaces.iter().map(bare).collect(), Vec::new(), None);
    let (tunnels, policies, core, vrfs) = (Vec::new(), Vec::new(), None, Vec::new());
    let member = role.member.clone().map(|member| Member { loopbacks: Vec::new(), ..member });
    RouterRole { interfaces, routes, tunnels, policies, bgp, core, vrfs, member, ..role.clone() }
}

/// Keeps the kernel out of the first `count` links of a namespace. The kernel receives each frame, like the reader of
/// the links, and must not forward or answer it a second time.
pub(crate) fn silence(netns: &Netns, count: usize) -> Result<(), LabError> {
    let links: Vec<_> = (0..count).map(dut_interface).collect();
    let lines: Vec<_> = links.iter().map(|d| format!("link set {d} arp off multicast off")).collect();
    netns.ip(&lines)?;
    let mut settings: Vec<_> = links.iter().map(|d| (format!("net/ipv4/conf/{d}/forwarding"), "0")).collect();
    if kernel_has_ipv6() {
        settings.extend(links.iter().map(|d| (format!("net/ipv6/conf/{d}/disable_ipv6"), "1")));
    }
    netns.sysctl(&settings)?;
    keep_segments_apart(netns, &links)
}

/// The text in the record about the neighbours of a router in a loop. The kernel hides their settings in the namespaces
/// of ordinary users.
fn neighbours_text(kept: &Result<(), LabError>) -> &'static str {
    match kept {
        Ok(()) => "",
        Err(_) => "; the kernel checks its neighbours every half minute, because only root can change that",
    }
}

type AddCounters = dyn Fn(&Netns, &mut BTreeMap<String, u64>) -> Result<(), LabError> + Send + Sync;

/// The namespace of a DUT and its veth links: `t0 t1 ...` in the tester's namespace, `d0 d1 ...` in the DUT's, confined
/// to the DUT's processor.
pub(crate) struct VethLinks {
    tester: Netns,
    dut: Netns,
    interfaces: Vec<TesterInterface>,
    /// Number of the DUT's interfaces, including those to other routers of its system.
    count: usize,
    cpu: usize,
    confinement: Confinement,
    more_counters: Option<Box<AddCounters>>,
    /// Delays of packets from other routers of its system.
    delays: Vec<LinkDelay>,
    up: bool,
}

impl VethLinks {
    /// Makes the namespace `name` and its links with MTU, VLAN sub-interfaces and addresses of `role`, and confines
    /// them.
    pub(crate) fn make(lab: &Lab, name: &str, role: &RouterRole) -> Result<VethLinks, LabError> {
        let mut links = VethLinks::begin(lab, name, &label_edge::with_room(role), 0)?;
        links.finish(lab, role)?;
        Ok(links)
    }

    /// The first half of [`VethLinks::make`]: a router's namespace, with links to the tester's ports starting at
    /// `first`.
    pub(crate) fn begin(lab: &Lab, name: &str, ports: &[Interface], first: usize) -> Result<VethLinks, LabError> {
        VethLinks::joined(lab, name, ports, first, router_settings(), &ROUTER_IPV6)
    }

    /// The second half of [`VethLinks::make`], after all interfaces of the role exist.
    pub(crate) fn finish(&mut self, lab: &Lab, role: &RouterRole) -> Result<(), LabError> {
        let lines = [vlan_lines(role, Names::Lab), address_lines(role, Names::Lab), tunnel_lines(role)].concat();
        self.set_up(lab, role.interfaces.len(), "", &lines)?;
        if kernel_has_ipv6() {
            self.dut.sysctl(&tunnel_settings(role))?;
        }
        if router::in_a_loop(role) {
            self.dut.sysctl(&router::LOOP.map(|(key, value)| (key.to_owned(), value)))?;
            let kept = self.dut.sysctl(&router::neighbour_settings(role));
            self.confinement.text += neighbours_text(&kept);
        }
        self.dut.ip(&policy_lines(role))?;
        // Linux before 6.3 by default forwards IPv6 to only 4,096 destinations at a time. An ordinary user's namespace
        // does not show the file, and newer kernels do not need it.
        let _ = self.dut.run(|| fs::write("/proc/sys/net/ipv6/route/max_size", i32::MAX.to_string()))?;
        Ok(())
    }

    /// Like [`VethLinks::make`], for a DUT that uses only the links: they have no addresses, and the kernel neither
    /// sends nor forwards.
    pub(crate) fn bare(lab: &Lab, name: &str, role: &RouterRole) -> Result<VethLinks, LabError> {
        let mut links = VethLinks::joined(lab, name, &label_edge::with_room(role), 0, Vec::new(), &NO_IPV6)?;
        links.set_up(lab, role.interfaces.len(), " arp off multicast off", &[])?;
        let names: Vec<_> = (0..role.interfaces.len()).map(dut_interface).collect();
        keep_segments_apart(&links.dut, &names)?;
        Ok(links)
    }

    /// Makes the namespace, and its links to the tester's ports starting at `first`.
    fn joined(
        lab: &Lab,
        name: &str,
        ports: &[Interface],
        first: usize,
        mut settings: Vec<(String, &'static str)>,
        settings_ipv6: &[(&str, &'static str)],
    ) -> Result<VethLinks, LabError> {
        let shared = lab.shared();
        let mut made = VethLinks {
            tester: Netns::tester(shared)?,
            dut: Netns::create(shared, name)?,
            interfaces: Vec::new(),
            count: 0,
            cpu: shared.cpus.dut,
            confinement: Confinement::none(),
            more_counters: None,
            delays: Vec::new(),
            up: true,
        };
        let ipv6 = if kernel_has_ipv6() { settings_ipv6 } else { &[] };
        settings.extend(ipv6.iter().map(|(key, value)| ((*key).to_owned(), *value)));
        made.dut.sysctl(&settings)?;

        let mut lines = Vec::new();
        let (netns, queues) = (made.dut.path(), shared.queues());
        for (i, port) in ports.iter().enumerate() {
            let (t, d, mtu, wide) = (shared.tester_interface(first + i), dut_interface(i), port.mtu, mtu_at(port));
            lines.push(format!(
                "link add {t} mtu {wide}{queues} type veth peer name {d} mtu {mtu}{queues} netns {netns}"
            ));
            lines.push(format!("link set {t} arp off multicast off up"));
            made.interfaces.push(TesterInterface::here(t));
        }
        made.tester.ip(&lines)?;
        for interface in &made.interfaces {
            // A sender with segmentation offload makes veth bypass the receiver's NAPI: the DUT's work would run on the
            // sender's processor, even with a receive thread.
            made.tester.output("ethtool", "ethtool", &["-K", &interface.name, "tx", "off"], None)?;
            shared.add_input_queue(&made.tester, &interface.name)?;
        }
        Ok(made)
    }

    /// Sets its first `count` interfaces up with their addresses, and confines them.
    fn set_up(&mut self, lab: &Lab, count: usize, flags: &str, addresses: &[String]) -> Result<(), LabError> {
        let shared = lab.shared();
        let names: Vec<_> = (0..count).map(dut_interface).collect();
        let mut lines = vec!["link set lo up".to_owned()];
        lines.extend(names.iter().map(|d| format!("link set {d}{flags} up")));
        lines.extend_from_slice(addresses);
        self.dut.ip(&lines)?;
        self.count = count;
        self.confinement = confine::confine(&self.dut, &names, shared.root, shared.lock.as_ref(), &shared.cpus)?;
        self.confinement.text += &shared.input_queue.text();
        Ok(())
    }

    /// The DUT's namespace.
    pub(crate) fn netns(&self) -> &Netns {
        &self.dut
    }

    pub(crate) fn interfaces(&self) -> &[TesterInterface] {
        &self.interfaces
    }

    /// Delays of packets from other routers of its system; the router itself delays them.
    pub(crate) fn delays(&self) -> &[LinkDelay] {
        &self.delays
    }

    pub(crate) fn set_delays(&mut self, delays: Vec<LinkDelay>) {
        self.delays = delays;
    }

    pub(crate) fn confinement(&self) -> &str {
        &self.confinement.text
    }

    /// The DUT's processor.
    pub(crate) fn cpu(&self) -> usize {
        self.cpu
    }

    /// The DUT's processor if its forwarding is bound to it and the tester does not share it.
    pub(crate) fn processor(&self) -> Option<usize> {
        self.confinement.alone.then_some(self.cpu)
    }

    /// Processor time spent on forwarding.
    pub(crate) fn cpu_time(&self) -> Option<Duration> {
        self.confinement.cpu_time()
    }

    /// Times of the threads that forward.
    pub(crate) fn threads(&self) -> Option<Vec<ThreadTimes>> {
        self.confinement.threads()
    }

    /// Call it before the link of interface `index` goes down.
    pub(crate) fn link_leaves(&mut self, index: usize) {
        self.confinement.link_leaves(&dut_interface(index));
    }

    /// Call it when the link of interface `index` is up again, with these kernel threads: (process id, name).
    pub(crate) fn link_returned(&mut self, index: usize, threads: Vec<(u32, String)>) {
        self.confinement.link_returned(&dut_interface(index), threads, self.cpu);
    }

    /// The first interface of the DUT that is down or has no carrier, except those whose other end the tester has
    /// switched off.
    pub(crate) fn link_not_up(&self) -> Option<String> {
        let on = |tester: &TesterInterface| is_set_up(&self.tester.interfaces(), &tester.name) != Some(false);
        let mut ends = self.interfaces.iter().enumerate().map(|(i, tester)| (tester, dut_interface(i)));
        ends.find(|(tester, d)| !operational(&self.dut, d) && on(tester)).map(|(_, d)| d)
    }

    /// Number of frames per port that the DUT sent but that did not fit into the tester's end of the link (its receive
    /// ring or backlog, or it was switched off): veth counts them at the sender. The tester lost them, not the DUT.
    pub(crate) fn lost_by_tester(&self) -> Result<Vec<u64>, LabError> {
        let interfaces = self.dut.interfaces();
        let lost = |port| probe::interface_counter(&interfaces, &dut_interface(port), "tx_dropped");
        (0..self.interfaces.len()).map(lost).collect()
    }

    /// Counters of the DUT and of the tester's interfaces. The latter count the drops at the DUT's receive ring.
    pub(crate) fn counters(&self) -> Result<BTreeMap<String, u64>, LabError> {
        let mut counters = BTreeMap::new();
        for i in 0..self.count {
            probe::interface(&self.dut.interfaces(), &dut_interface(i), &mut counters)?;
        }
        for interface in &self.interfaces {
            probe::interface(&self.tester.interfaces(), &interface.name, &mut counters)?;
        }
        counters.append(&mut self.dut.run(probe::ip)??);
        probe::softnet(self.cpu, &mut counters);
        if let Some(add) = &self.more_counters {
            add(&self.dut, &mut counters)?;
        }
        Ok(counters)
    }

    /// For a DUT that forwards outside the kernel's network stack: from now on `add`, which runs in the DUT's
    /// namespace, adds counters to the kernel's, or renames those that have another meaning for this DUT.
    pub(crate) fn also_counts(&mut self, add: Box<AddCounters>) {
        self.more_counters = Some(add);
    }

    /// Removes the links, then the namespace.
    pub(crate) fn take_down(mut self) -> Result<(), LabError> {
        self.remove()
    }

    fn remove(&mut self) -> Result<(), LabError> {
        if std::mem::take(&mut self.up) { remove_links(&self.tester, &self.interfaces) } else { Ok(()) }
    }
}

impl Drop for VethLinks {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}

/// Deletes the tester's ends that still exist, and with them the other ends. This takes effect immediately, unlike the
/// end of a namespace.
fn remove_links<'a>(tester: &Netns, interfaces: impl IntoIterator<Item = &'a TesterInterface>) -> Result<(), LabError> {
    let there = |i: &&TesterInterface| tester.interfaces().join(&i.name).exists();
    let lines: Vec<_> = interfaces.into_iter().filter(there).map(|i| format!("link del {}", i.name)).collect();
    if lines.is_empty() { Ok(()) } else { tester.ip(&lines) }
}

/// Kind of the links between the tester and a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// veth pairs, as for any DUT in a namespace: the program opens `d0 d1 ...` in its own namespace.
    Veth,
    /// The program makes taps `t0 t1 ...` in the tester's namespace and reads their far ends. The taps end with the
    /// program.
    Tap,
}

/// The links between the tester and a process that handles their frames itself.
pub(crate) enum Ends {
    /// See [`Links::Veth`].
    Veth(VethLinks),
    /// See [`Links::Tap`].
    Tap {
        tester: Netns,
        interfaces: Vec<TesterInterface>,
        /// The DUT's processor if the tester does not share it.
        cpu: Option<usize>,
    },
}

impl Ends {
    /// Makes veth links, or names the taps that the process will make.
    pub fn make(lab: &Lab, name: &str, role: &RouterRole, links: Links) -> Result<Ends, LabError> {
        let shared = lab.shared();
        match links {
            Links::Veth => VethLinks::bare(lab, name, role).map(Ends::Veth),
            Links::Tap => Ok(Ends::Tap {
                tester: Netns::tester(shared)?,
                interfaces: (0..role.interfaces.len())
                    .map(|i| TesterInterface::here(shared.tester_interface(i)))
                    .collect(),
                cpu: shared.cpus.separate().then_some(shared.cpus.dut),
            }),
        }
    }

    /// Namespace of the process.
    pub fn netns(&self) -> &Netns {
        match self {
            Ends::Veth(links) => links.netns(),
            Ends::Tap { tester, .. } => tester,
        }
    }

    pub fn interfaces(&self) -> &[TesterInterface] {
        match self {
            Ends::Veth(links) => links.interfaces(),
            Ends::Tap { interfaces, .. } => interfaces,
        }
    }

    /// The first link without carrier, except links that the tester has switched off.
    pub fn link_not_up(&self) -> Option<String> {
        match self {
            Ends::Veth(links) => links.link_not_up(),
            Ends::Tap { tester, interfaces, .. } => {
                let down = |name: &String| match fs::read_to_string(tester.interfaces().join(name).join("carrier")) {
                    Ok(carrier) => carrier.trim() != "1",
                    // The carrier of an interface that is switched off cannot be read.
                    Err(e) => e.kind() == ErrorKind::NotFound,
                };
                interfaces.iter().map(|interface| interface.name.clone()).find(down)
            }
        }
    }

    /// The DUT's processor if the tester does not share it.
    pub fn processor(&self) -> Option<usize> {
        match self {
            Ends::Veth(links) => links.processor(),
            Ends::Tap { cpu, .. } => *cpu,
        }
    }

    /// Processor time that the kernel spends on the links of the process.
    pub fn cpu_time(&self) -> Option<Duration> {
        match self {
            Ends::Veth(links) => links.cpu_time(),
            Ends::Tap { .. } => Some(Duration::ZERO),
        }
    }

    /// Times of the threads that do this work.
    pub fn threads(&self) -> Option<Vec<ThreadTimes>> {
        match self {
            Ends::Veth(links) => links.threads(),
            Ends::Tap { .. } => Some(Vec::new()),
        }
    }

    /// The counters of this machine's kernel.
    pub fn counters(&self) -> Result<BTreeMap<String, u64>, LabError> {
        match self {
            Ends::Veth(links) => links.counters(),
            Ends::Tap { tester, interfaces, .. } => {
                let (all, mut counters) = (tester.interfaces(), BTreeMap::new());
                interfaces.iter().try_for_each(|i| probe::interface(&all, &i.name, &mut counters))?;
                Ok(counters)
            }
        }
    }

    /// Like [`VethLinks::lost_by_tester`].
    pub fn lost_by_tester(&self) -> Result<Option<Vec<u64>>, LabError> {
        match self {
            Ends::Veth(links) => links.lost_by_tester().map(Some),
            // The tester's port counts frames that the tap received and the port did not.
            Ends::Tap { .. } => Ok(None),
        }
    }
}

/// Lines of ip(8) that set the tester's ends of taps up, with room for the tags and labels of the role.
pub(crate) fn tap_lines(interfaces: &[TesterInterface], role: &RouterRole) -> Vec<String> {
    let up = |(port, (tester, interface)): (usize, (&TesterInterface, &Interface))| {
        let mtu = mtu_at(interface).max(interface.mtu + label_edge::extra(role, port));
        format!("link set {} mtu {mtu} txqueuelen {TAP_QUEUE} arp off multicast off up", tester.name)
    };
    interfaces.iter().zip(&role.interfaces).enumerate().map(up).collect()
}

/// The tester's ports, connected in pairs without a DUT: port 0 with 1, 2 with 3. Open ports receive as they do in
/// front of a DUT ([`Lab::receive_on_tester`]), so the tester's ceiling is measured under the same conditions.
#[derive(Debug)]
pub struct Loop {
    tester: Netns,
    interfaces: Vec<TesterInterface>,
    confinement: Confinement,
    up: bool,
}

impl Loop {
    pub(crate) fn make(lab: &Lab, ports: &[PortConfig]) -> Result<Loop, LabError> {
        if ports.len() < 2 {
            return Err(LabError::unusable("a loop needs two ports", "give the suite at least two ports"));
        }
        let shared = lab.shared();
        let tester = Netns::tester(shared)?;
        let mut made = Loop { tester, interfaces: Vec::new(), confinement: Confinement::none(), up: true };
        let queues = shared.queues();
        let mut lines = Vec::new();
        for (i, pair) in ports.as_chunks::<2>().0.iter().enumerate() {
            let (a, b) = (tester_interface(2 * i), tester_interface(2 * i + 1));
            let [mtu_a, mtu_b] =
                pair.each_ref().map(|port| tester_mtu(port.mtu, port.vlans.iter().map(|v| v.tags.len())));
            lines.push(format!("link add {a} mtu {mtu_a}{queues} type veth peer name {b} mtu {mtu_b}{queues}"));
            for name in [a, b] {
                lines.push(format!("link set {name} arp off multicast off up"));
                made.interfaces.push(TesterInterface::here(name));
            }
        }
        made.tester.ip(&lines)?;
        let names = made.names();
        names.iter().try_for_each(|name| shared.add_input_queue(&made.tester, name))?;
        made.confinement = confine::confine(&made.tester, &names, shared.root, shared.lock.as_ref(), &shared.cpus)?;
        if !shared.receivers().is_empty() {
            made.confinement.text = "ports connected in pairs".into();
        }
        made.confinement.text += &shared.input_queue.text();
        // The kernel reports the state of a link a moment after it has changed.
        wait::while_missing(CARRIER, &|| false, || {
            let down = names.iter().find(|n| !operational(&made.tester, n));
            Ok(down.map(|name| format!("{name} of the loop has no carrier")))
        })?;
        Ok(made)
    }

    fn names(&self) -> Vec<String> {
        self.interfaces.iter().map(|interface| interface.name.clone()).collect()
    }

    /// The tester's interfaces: one per port, or one less if the number of ports is odd.
    pub fn interfaces(&self) -> &[TesterInterface] {
        &self.interfaces
    }

    /// Keeps TCP segments separate, as at a tester's port in front of a DUT.
    pub fn keep_segments_apart(&self) -> Result<(), LabError> {
        keep_segments_apart(&self.tester, &self.names())
    }

    /// Description of how the receive work is confined.
    pub fn confinement(&self) -> &str {
        &self.confinement.text
    }

    /// Removes the links.
    pub fn take_down(mut self) -> Result<(), LabError> {
        self.remove()
    }

    /// Deleting one end of each pair deletes the other.
    fn remove(&mut self) -> Result<(), LabError> {
        let firsts = self.interfaces.iter().step_by(2);
        if std::mem::take(&mut self.up) { remove_links(&self.tester, firsts) } else { Ok(()) }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_that_are_not_kept_are_told() {
        let refused = LabError::io("cannot write")(std::io::Error::from_raw_os_error(nix::libc::ENOENT));
        assert!(neighbours_text(&Err(refused)).starts_with("; the kernel checks"));
        assert_eq!(neighbours_text(&Ok(())), "");
    }

    #[test]
    fn a_router_has_no_interface_settings_of_the_host() {
        let settings = router_settings();
        let named: BTreeMap<&str, &str> = settings.iter().map(|(key, value)| (key.as_str(), *value)).collect();
        let keys = "accept_redirects accept_source_route arp_filter arp_ignore forwarding log_martians proxy_arp \
                    rp_filter send_redirects";
        for key in keys.split_whitespace() {
            for of in ["all", "default"] {
                let path = format!("net/ipv4/conf/{of}/{key}");
                assert!(named.contains_key(path.as_str()), "{path}");
            }
        }
        assert_eq!(settings.first().map(|(key, _)| key.as_str()), Some("net/ipv4/ip_forward"));
        assert_eq!(named.get("net/ipv4/conf/all/accept_redirects"), Some(&"0"));
        assert_eq!(named.get("net/ipv4/conf/all/send_redirects"), Some(&"1"));
    }
}
