//! The links between tester and DUT.

mod settings;

pub(crate) use settings::{ROUTER, ROUTER_IPV6};

use crate::confine::{self, Confinement};
use crate::dut::{TesterInterface, Where};
use crate::link_delay::LinkDelay;
use crate::probe::ThreadTimes;
use crate::router::{Names, address_lines, dut_interface, policy_lines, tunnel_lines, tunnel_settings, vlan_lines};
use crate::wait::{self, Look};
use crate::{Lab, LabError, Netns, probe, router};
use drophammer_model::role::{Interface, Member, RouterRole};
use drophammer_model::suite::PortConfig;
use settings::{BARE_IPV6, router_settings};
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// How long the links of a loop may take to come up.
const CARRIER: Duration = Duration::from_secs(5);

/// Bytes by which the MTU of a tester's interface exceeds that of its port: room for the tags of a frame of full size.
pub(crate) fn room_for_tags(stacks: impl Iterator<Item = usize>) -> u32 {
    stacks.max().unwrap_or(0) as u32 * 4
}

pub(crate) fn tester_interface(i: usize) -> String {
    format!("t{i}")
}

/// veth pairs: `t0 t1 ...` in the tester's namespace, `d0 d1 ...` in the DUT's, confined to the DUT's processor.
#[derive(Debug)]
pub(crate) struct Topology {
    tester: Netns,
    dut: Netns,
    interfaces: Vec<TesterInterface>,
    /// Interfaces of the DUT, those to other routers of its system included.
    count: usize,
    cpu: usize,
    confinement: Confinement,
    more_counters: Option<MoreCounters>,
    /// Delays of what arrives from other routers of its system.
    delays: Vec<LinkDelay>,
    up: bool,
}

/// Adds counters to those of the kernel, or renames those with another meaning for this DUT; runs in the DUT's
/// namespace.
pub(crate) struct MoreCounters(Box<Count>);

type Count = dyn Fn(&Netns, &mut BTreeMap<String, u64>) -> Result<(), LabError> + Send + Sync;

impl fmt::Debug for MoreCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MoreCounters")
    }
}

/// Keeps TCP segments separate at these interfaces. What confines the receive work of both ends to processors also
/// merges segments (GRO), and a merged segment is longer than the link's frames: a port or a device that reads frames
/// does not accept it.
pub(crate) fn keep_segments_apart(netns: &Netns, interfaces: &[String]) -> Result<(), LabError> {
    let apart: Vec<_> = interfaces.iter().map(|name| format!("link set {name} gro_max_size 1")).collect();
    if netns.ip(&apart).is_ok() {
        return Ok(());
    }
    // An older kernel or iproute2: turn GRO off. The receive work then runs at the sender.
    interfaces
        .iter()
        .try_for_each(|name| netns.output("ethtool", "ethtool", &["-K", name, "gro", "off"], None).map(drop))
}

/// The role for the links of a DUT that handles all packets itself, without what would involve the kernel.
pub(crate) fn links_only(role: &RouterRole) -> RouterRole {
    let bare = |interface: &Interface| Interface { addresses: Vec::new(), ..interface.clone() };
    let (interfaces, routes, bgp) = (role.interfaces.iter().map(bare).collect(), Vec::new(), None);
    let (tunnels, policies) = (Vec::new(), Vec::new());
    let member = role.member.clone().map(|member| Member { loopbacks: Vec::new(), ..member });
    RouterRole { interfaces, routes, tunnels, policies, bgp, member, ..role.clone() }
}

/// Keeps the kernel out of the first `count` links of a namespace: it receives a copy of each frame besides the reader
/// of the links, and must not forward or answer a second time.
pub(crate) fn silence(netns: &Netns, count: usize) -> Result<(), LabError> {
    let links: Vec<_> = (0..count).map(dut_interface).collect();
    let lines: Vec<_> = links.iter().map(|d| format!("link set {d} arp off multicast off")).collect();
    netns.ip(&lines)?;
    let mut settings: Vec<_> = links.iter().map(|d| (format!("net/ipv4/conf/{d}/forwarding"), "0")).collect();
    if Path::new("/proc/sys/net/ipv6").exists() {
        settings.extend(links.iter().map(|d| (format!("net/ipv6/conf/{d}/disable_ipv6"), "1")));
    }
    netns.sysctl(&settings)?;
    keep_segments_apart(netns, &links)
}

/// What the record says of the neighbours of a router in a loop. The kernel hides their settings in the namespaces of
/// ordinary users.
fn neighbours_text(kept: &Result<(), LabError>) -> &'static str {
    match kept {
        Ok(()) => "",
        Err(_) => "; neighbours are asked for every half minute: only root may change that",
    }
}

impl Topology {
    /// Makes the namespace `name`, and its links with MTU, VLAN sub-interfaces and addresses of `role`, and confines
    /// them.
    pub(crate) fn make(lab: &Lab, name: &str, role: &RouterRole) -> Result<Topology, LabError> {
        let mut topology = Topology::begin(lab, name, &role.interfaces, 0)?;
        topology.finish(lab, role)?;
        Ok(topology)
    }

    /// The first half of [`Topology::make`]: a router's namespace, with links to the tester's ports from `first` on.
    pub(crate) fn begin(lab: &Lab, name: &str, ports: &[Interface], first: usize) -> Result<Topology, LabError> {
        Topology::joined(lab, name, ports, first, router_settings(), &ROUTER_IPV6)
    }

    /// The second half, once all interfaces of the role exist.
    pub(crate) fn finish(&mut self, lab: &Lab, role: &RouterRole) -> Result<(), LabError> {
        let lines = [vlan_lines(role, Names::Lab), address_lines(role, Names::Lab), tunnel_lines(role)].concat();
        self.set_up(lab, role.interfaces.len(), "", &lines)?;
        if Path::new("/proc/sys/net/ipv6").exists() {
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

    /// As [`Topology::make`], for a DUT that uses the links alone: no addresses, and a kernel that neither sends nor
    /// forwards.
    pub(crate) fn bare(lab: &Lab, name: &str, role: &RouterRole) -> Result<Topology, LabError> {
        let mut topology = Topology::joined(lab, name, &role.interfaces, 0, Vec::new(), &BARE_IPV6)?;
        topology.set_up(lab, role.interfaces.len(), " arp off multicast off", &[])?;
        let names: Vec<_> = (0..role.interfaces.len()).map(dut_interface).collect();
        keep_segments_apart(&topology.dut, &names)?;
        Ok(topology)
    }

    /// Makes the namespace, and its links to the tester's ports from `first` on.
    fn joined(
        lab: &Lab,
        name: &str,
        ports: &[Interface],
        first: usize,
        mut settings: Vec<(String, &'static str)>,
        settings_ipv6: &[(&str, &'static str)],
    ) -> Result<Topology, LabError> {
        let shared = lab.shared();
        let confinement = Confinement::none();
        let mut topology = Topology {
            tester: Netns::tester(shared)?,
            dut: Netns::create(shared, name)?,
            interfaces: Vec::new(),
            count: 0,
            cpu: shared.cpus.dut,
            confinement,
            more_counters: None,
            delays: Vec::new(),
            up: true,
        };
        let ipv6 = if Path::new("/proc/sys/net/ipv6").exists() { settings_ipv6 } else { &[] };
        settings.extend(ipv6.iter().map(|(key, value)| ((*key).to_owned(), *value)));
        topology.dut.sysctl(&settings)?;

        let mut lines = Vec::new();
        for (i, port) in ports.iter().enumerate() {
            let (t, d, mtu) = (shared.tester_interface(first + i), dut_interface(i), port.mtu);
            let wide = mtu + room_for_tags(port.vlans.iter().map(|v| v.tags.len()));
            let netns = topology.dut.path();
            let queues = shared.queues();
            lines.push(format!(
                "link add {t} mtu {wide}{queues} type veth peer name {d} mtu {mtu}{queues} netns {netns}"
            ));
            lines.push(format!("link set {t} arp off multicast off up"));
            topology.interfaces.push(TesterInterface { name: t, netns: Where::Tester, dut_mac: None });
        }
        topology.tester.ip(&lines)?;
        for interface in &topology.interfaces {
            // A sender with segmentation offload makes veth bypass the receiver's NAPI: the DUT's work would run on the
            // sender's processor, thread or not.
            topology.tester.output("ethtool", "ethtool", &["-K", &interface.name, "tx", "off"], None)?;
            shared.add_input_queue(&topology.tester, &interface.name)?;
        }
        Ok(topology)
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

    pub(crate) fn netns(&self) -> &Netns {
        &self.dut
    }

    pub(crate) fn interfaces(&self) -> &[TesterInterface] {
        &self.interfaces
    }

    /// Delays of what arrives from other routers of its system, which the router makes itself.
    pub(crate) fn delays(&self) -> &[LinkDelay] {
        &self.delays
    }

    /// Sets the delays that the router makes.
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

    /// Processor time of the forwarding.
    pub(crate) fn cpu_time(&self) -> Option<Duration> {
        self.confinement.cpu_time()
    }

    /// Times of the threads that forward.
    pub(crate) fn threads(&self) -> Option<Vec<ThreadTimes>> {
        self.confinement.threads()
    }

    /// The link of interface `index` is about to go down.
    pub(crate) fn link_leaves(&mut self, index: usize) {
        self.confinement.link_leaves(&dut_interface(index));
    }

    /// The link of interface `index` is up again, with these kernel threads: (process id, name).
    pub(crate) fn link_returned(&mut self, index: usize, threads: Vec<(u32, String)>) {
        self.confinement.link_returned(&dut_interface(index), threads, self.cpu);
    }

    /// The first interface of the DUT that is not up with carrier. An interface whose other end the tester has switched
    /// off does not count.
    pub(crate) fn link_not_up(&self) -> Option<String> {
        let ends = self.interfaces.iter().enumerate().map(|(i, tester)| (tester, dut_interface(i)));
        let mut down =
            ends.filter(|(tester, d)| !operational(&self.dut, d) && !switched_off(&self.tester, &tester.name));
        down.next().map(|(_, d)| d)
    }

    /// Frames that the DUT sent and the tester's end of the link had no room for (its receive ring or backlog, or it
    /// was switched off), by port: veth counts them at the sender. They are loss of the tester, not of the DUT.
    ///
    /// # Errors
    /// Those of reading the counters.
    pub(crate) fn lost_by_tester(&self) -> Result<Vec<u64>, LabError> {
        let lost = |port| probe::interface_counter(&self.dut, &dut_interface(port), "tx_dropped");
        (0..self.interfaces.len()).map(lost).collect()
    }

    /// Counters of the DUT, and of the tester's interfaces, since these count the drops at the DUT's receive ring.
    pub(crate) fn counters(&self) -> Result<BTreeMap<String, u64>, LabError> {
        let mut counters = BTreeMap::new();
        for i in 0..self.count {
            probe::interface(&self.dut, &dut_interface(i), &mut counters)?;
        }
        for interface in &self.interfaces {
            probe::interface(&self.tester, &interface.name, &mut counters)?;
        }
        probe::ip(&self.dut, &mut counters)?;
        probe::softnet(self.cpu, &mut counters);
        if let Some(MoreCounters(count)) = &self.more_counters {
            count(&self.dut, &mut counters)?;
        }
        Ok(counters)
    }

    /// Includes the counters of `count` from now on, for a DUT that forwards outside of the kernel's network stack.
    pub(crate) fn also_counts(&mut self, count: Box<Count>) {
        self.more_counters = Some(MoreCounters(count));
    }

    /// Removes the links, then the namespace.
    pub(crate) fn take_down(mut self) -> Result<(), LabError> {
        self.remove()
    }

    fn remove(&mut self) -> Result<(), LabError> {
        if !std::mem::take(&mut self.up) {
            return Ok(());
        }
        remove_links(&self.tester, &self.interfaces)
    }
}

impl Drop for Topology {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}

/// True if the interface is up, with carrier.
pub(crate) fn operational(netns: &Netns, name: &str) -> bool {
    fs::read_to_string(netns.sys(&format!("class/net/{name}/operstate"))).is_ok_and(|s| s.trim() == "up")
}

/// True if the interface exists, but is administratively down.
fn switched_off(netns: &Netns, name: &str) -> bool {
    const IFF_UP: u32 = 1;
    let flags = fs::read_to_string(netns.sys(&format!("class/net/{name}/flags")));
    let flags = flags.ok().and_then(|f| u32::from_str_radix(f.trim().trim_start_matches("0x"), 16).ok());
    flags.is_some_and(|f| f & IFF_UP == 0)
}

/// Deletes the existing ends of the tester, and with them the other ends. This takes effect at once; with the end of a
/// namespace it would take time.
fn remove_links(tester: &Netns, interfaces: &[TesterInterface]) -> Result<(), LabError> {
    let there = |i: &&TesterInterface| tester.sys(&format!("class/net/{}", i.name)).exists();
    let lines: Vec<_> = interfaces.iter().filter(there).map(|i| format!("link del {}", i.name)).collect();
    if lines.is_empty() { Ok(()) } else { tester.ip(&lines) }
}

/// The tester's ports joined in pairs without a DUT: port 0 with 1, 2 with 3. Open ports receive as they do in front of
/// a DUT ([`Lab::receive_on_tester`]), so the tester's ceiling is measured under the same conditions.
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
            return Err(LabError::Unusable {
                what: "a loop needs two ports".into(),
                remedy: "give the suite at least two ports".into(),
            });
        }
        let shared = lab.shared();
        let tester = Netns::tester(shared)?;
        let mut made = Loop { tester, interfaces: Vec::new(), confinement: Confinement::none(), up: true };
        let mut lines = Vec::new();
        let mut names = Vec::new();
        for (i, pair) in ports.as_chunks::<2>().0.iter().enumerate() {
            let (a, b) = (tester_interface(2 * i), tester_interface(2 * i + 1));
            let mtu = |port: &PortConfig| port.mtu + room_for_tags(port.vlans.iter().map(|v| v.tags.len()));
            let (mtu_a, mtu_b) = (mtu(&pair[0]), mtu(&pair[1]));
            let queues = shared.queues();
            lines.push(format!("link add {a} mtu {mtu_a}{queues} type veth peer name {b} mtu {mtu_b}{queues}"));
            for name in [a, b] {
                lines.push(format!("link set {name} arp off multicast off up"));
                made.interfaces.push(TesterInterface { name: name.clone(), netns: Where::Tester, dut_mac: None });
                names.push(name);
            }
        }
        made.tester.ip(&lines)?;
        names.iter().try_for_each(|name| shared.add_input_queue(&made.tester, name))?;
        made.confinement = confine::confine(&made.tester, &names, shared.root, shared.lock.as_ref(), &shared.cpus)?;
        if !shared.receivers().is_empty() {
            made.confinement.text = "ports joined in pairs".into();
        }
        made.confinement.text += &shared.input_queue.text();
        // The kernel tells the state of a link a moment after it has changed.
        wait::until(CARRIER, &|| false, || {
            Ok(match names.iter().find(|n| !operational(&made.tester, n)) {
                None => Look::Ready(()),
                Some(name) => Look::NotYet(format!("{name} of the loop has no carrier")),
            })
        })?;
        Ok(made)
    }

    /// The tester's interfaces; as many as ports, or one less if their number is odd.
    pub fn interfaces(&self) -> &[TesterInterface] {
        &self.interfaces
    }

    /// Keeps TCP segments separate, as at a tester's port in front of a DUT.
    ///
    /// # Errors
    /// Those of ethtool(8).
    pub fn keep_segments_apart(&self) -> Result<(), LabError> {
        let names: Vec<_> = self.interfaces.iter().map(|interface| interface.name.clone()).collect();
        keep_segments_apart(&self.tester, &names)
    }

    /// Description of how the receive work is confined.
    pub fn confinement(&self) -> &str {
        &self.confinement.text
    }

    /// Removes the links.
    ///
    /// # Errors
    /// [`LabError::Command`].
    pub fn take_down(mut self) -> Result<(), LabError> {
        self.remove()
    }

    fn remove(&mut self) -> Result<(), LabError> {
        if !std::mem::take(&mut self.up) {
            return Ok(());
        }
        // The second end of each pair is deleted with the first.
        let firsts: Vec<_> = self.interfaces.iter().step_by(2).cloned().collect();
        remove_links(&self.tester, &firsts)
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
        assert!(neighbours_text(&Err(refused)).starts_with("; neighbours are asked for"));
        assert_eq!(neighbours_text(&Ok(())), "");
    }
}
