//! User Mode Linux: a complete kernel as a process of this machine, with its own VLAN devices and FRR inside.
//!
//! Its ports are taps in the tester's namespace. This program is also the guest's first process ([`guest`]): there it
//! configures the kernel, starts the daemons and answers questions over a separate tap, `m0`.

mod agent;
mod dut;
pub mod guest;
mod link_end;
mod links;

use super::{TTL_MODEL, frr, is_pipe};
use crate::link_delay::LinkDelay;
use crate::links::{Links, links_only};
use crate::traffic_classes::{SCHEDULER, Scheduler};
use crate::{Dut, DutKind, LabError, Start, configuration, label_edge, process, router};
use drophammer_model::capabilities::{Capabilities, Counters};
use drophammer_model::label_edge::CoreProtocol;
use drophammer_model::registry::{KindSpec, ParamKind, ParamSpec};
use drophammer_model::role::RouterRole;
use drophammer_model::suite::DutConfig;
use dut::{Boot, UmlDut};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;
use std::process::Command;

static SPEC: KindSpec = KindSpec {
    name: "uml",
    summary: "User Mode Linux: its own kernel in a process, with VLAN sub-interfaces, MPLS and VRFs, and FRR inside",
    capabilities: Capabilities {
        mpls: true,
        tunnels: true,
        policy_routing: true,
        core: &[CoreProtocol::Ospf, CoreProtocol::Ldp, CoreProtocol::Bfd],
        core_of_chain: &[CoreProtocol::Ospf, CoreProtocol::Ldp, CoreProtocol::Bfd],
        vrfs: true,
        classes: true,
        systems: true,
        counters: &[Counters::Interfaces, Counters::Ip],
        ..Capabilities::BGP_ROUTER
    },
    needs: &[
        ("linux.uml", "user-mode-linux"),
        ("modprobe", "kmod"),
        ("ip", "iproute2"),
        ("ethtool", "ethtool"),
        ("ss", "iproute2"),
        ("tc", "iproute2"),
        ("zebra", "frr"),
        ("staticd", "frr"),
    ],
    params: &[
        ParamSpec::optional(
            "memory",
            ParamKind::Count,
            "memory of the guest in MiB, at least 64, with VRFs 128 and 2 for each; default: 512, or 256 and 4 for each VRF if that is more",
        ),
        ParamSpec::fixed(
            "routing",
            ParamKind::Choice(&["frr", "static"]),
            "frr",
            "what puts routes into the kernel: FRR (zebra, staticd, bgpd, ospfd, ldpd), or ip(8), without BGP, OSPF and LDP",
        ),
        ParamSpec::fixed(
            "links",
            ParamKind::Choice(&["tap", "veth"]),
            "tap",
            "links to the tester: taps, or veth pairs, which the guest reads through packet sockets and which have no VLANs; routers of a `topology` always use veth pairs",
        ),
        TTL_MODEL,
        SCHEDULER.spec(),
        configuration::CONFIG,
        configuration::TEMPLATE,
    ],
};

/// The program that is the guest's kernel.
const KERNEL: &str = "linux.uml";
/// Minimum memory of a guest, in MiB.
const LEAST_MEMORY: u64 = 64;
/// Minimum memory of a guest with this role, in MiB. FRR takes 1.4 for each VRF with its session, and more with routes; its
/// daemons for labels and VPNs take 60 without any.
fn least_memory(role: &RouterRole) -> u64 {
    match role.vrfs.len() as u64 {
        0 => LEAST_MEMORY,
        vrfs => 2 * LEAST_MEMORY + 2 * vrfs,
    }
}

/// The job file of a guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Job {
    /// What puts routes into the kernel.
    routing: Routing,
    /// The role to play.
    role: RouterRole,
    /// Configuration files, `(name, text)`.
    files: Vec<(String, String)>,
    /// True if these are the user's files.
    own: bool,
    /// Folder of the modules of the guest's kernel.
    modules: String,
    /// True if labels have their own TTL.
    pipe: bool,
    /// True if its ports are packet sockets, which accept only complete frames: checksums and segmentation cannot be
    /// offloaded.
    raw: bool,
    /// Delays of packets that arrive from other routers of its system.
    delays: Vec<LinkDelay>,
    /// The scheduler of classes of service.
    scheduler: Scheduler,
}

impl Job {
    /// True if the kernel needs the setting that gives labels their own TTL. Without labels, the module that has this
    /// setting is not loaded.
    fn label_ttl_is_own(&self) -> bool {
        let fixed = !(self.role.labels.is_empty() && self.role.pushed.is_empty());
        self.pipe && (fixed || label_edge::switches_labels(&self.role))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Routing {
    Frr,
    Static,
}

/// Flag in /proc/cpuinfo of processors with AMX, whose registers are larger than the guest's buffer.
const LARGE: &str = "amx_tile";
/// The first version of User Mode Linux that saves these registers.
const SAVES: (u32, u32) = (6, 13);

/// Refuses a guest kernel that cannot save the registers of this machine's processor. User Mode Linux before 6.13 saves the
/// extended registers of a process in a buffer of fixed size and restores them by ptrace(2), which requires all of them.
/// With AMX the registers are larger than the buffer: the first process of the guest ends in a kernel panic ("ptrace set
/// fp regs failed").
fn refuse_unsaved_registers(kernel: &Path) -> Result<(), LabError> {
    if !has_large_registers(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()) {
        return Ok(());
    }
    let mut ask = Command::new(kernel);
    ask.arg("--version");
    let told = process::output(ask, None)?;
    match version(&told) {
        Some(version) if version < SAVES => Err(LabError::unusable(
            format!("User Mode Linux {} cannot save the registers of this machine's processor (AMX)", told.trim()),
            format!("use a machine without AMX, or User Mode Linux {}.{} or newer", SAVES.0, SAVES.1),
        )),
        _ => Ok(()),
    }
}

fn has_large_registers(cpuinfo: &str) -> bool {
    let mut flags = cpuinfo.lines().filter(|line| line.starts_with("flags"));
    flags.next().is_some_and(|line| line.split_whitespace().any(|flag| flag == LARGE))
}

/// Parses a version such as `6.1.176`, followed by any text.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.trim().split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The reason why guests cannot run on this machine's processor, if any; `None` also without a guest kernel.
pub fn unfit_processor() -> Option<String> {
    let kernel = process::find(KERNEL, "user-mode-linux").ok()?;
    refuse_unsaved_registers(&kernel).err().map(|e| e.to_string())
}

/// Kind `uml`.
pub struct Uml;

fn routing(dut: &DutConfig) -> Routing {
    match dut.params.text("routing").as_deref() {
        Some("static") => Routing::Static,
        _ => Routing::Frr,
    }
}

/// The kind of links between a guest and the tester.
fn links(dut: &DutConfig, role: &RouterRole) -> Links {
    let veth = role.member.is_some() || dut.params.text("links").as_deref() == Some("veth");
    if veth { Links::Veth } else { Links::Tap }
}

impl DutKind for Uml {
    fn spec(&self) -> &'static KindSpec {
        &SPEC
    }

    fn of_kernel(&self, role: &RouterRole) -> RouterRole {
        links_only(role)
    }

    fn delays_links(&self) -> bool {
        true
    }

    fn has_own_kernel(&self) -> bool {
        true
    }

    fn memory_mib(&self, dut: &DutConfig, role: &RouterRole) -> Option<u64> {
        Some(memory(dut, role))
    }

    fn configuration(&self, dut: &DutConfig, role: &RouterRole) -> Result<Vec<(String, String)>, LabError> {
        let unusable = |what: String, remedy: &str| Err(LabError::unusable(what, remedy));
        let (memory, least) = (memory(dut, role), least_memory(role));
        if memory < least {
            let vrfs = if role.vrfs.is_empty() { "" } else { " and its VRFs" };
            let what = format!("`{}` has {memory} MiB of memory, too little for its kernel{vrfs} to start", dut.name);
            return unusable(what, &format!("write `memory: {least}` or more"));
        }
        let tagged = !role.vrfs.is_empty() || role.places().any(|(_, tags, _)| !tags.is_empty());
        if links(dut, role) == Links::Veth && tagged {
            let what = format!(
                "`{}` has VLANs, but on veth links the kernel removes the tags before the router reads the frames",
                dut.name
            );
            return unusable(what, "leave `vlans` and `customers` out, or `links: veth` and `topology`");
        }
        let mut files = match routing(dut) {
            Routing::Frr => frr::files(dut, role)?,
            Routing::Static if configuration::is_own(dut) => {
                return unusable(
                    format!("`{}` has a configuration file, but no daemon reads it with `routing: static`", dut.name),
                    "remove `routing: static`",
                );
            }
            Routing::Static if role.bgp.is_some() => {
                return unusable(
                    format!("`{}` with `routing: static` speaks no BGP, but the suite has `bgp:`", dut.name),
                    "remove `routing: static`",
                );
            }
            Routing::Static if role.core.is_some() || !role.vrfs.is_empty() => {
                return unusable(
                    format!(
                        "`{}` with `routing: static` speaks no routing protocol, but the suite has core ports",
                        dut.name
                    ),
                    "remove `routing: static`",
                );
            }
            Routing::Static => vec![router::routes_file(role)],
        };
        files.extend(label_edge::vrfs_file(role));
        files.extend(router::labels_file(role));
        files.extend(router::policies_file(role));
        Ok(files)
    }

    fn start(&self, start: Start<'_>) -> Result<Box<dyn Dut>, LabError> {
        let Start { lab, dut, role, work_dir, stop } = start;
        let kernel = process::find(KERNEL, "user-mode-linux")?;
        refuse_unsaved_registers(&kernel)?;
        dut::refuse_without_taps()?;
        let job = Job {
            routing: routing(dut),
            role: role.clone(),
            files: self.configuration(dut, role)?,
            own: configuration::is_own(dut),
            modules: dut::modules()?,
            pipe: is_pipe(&dut.params),
            raw: links(dut, role) == Links::Veth,
            delays: Vec::new(),
            scheduler: SCHEDULER.find(&dut.params).unwrap_or_default(),
        };
        let mut kept = self.configuration(dut, &role.without_secrets())?;
        // The user's file may itself contain a secret.
        let mask = role.mask();
        kept.iter_mut().for_each(|(_, text)| *text = mask.text(text).into_owned());
        let boot = Boot { kernel: &kernel, memory: memory(dut, role), job, links: links(dut, role), kept };
        UmlDut::bring_up(lab, dut, boot, work_dir, stop).map(|dut| Box::new(dut) as Box<dyn Dut>)
    }
}

/// Memory of the guest, in MiB.
fn memory(dut: &DutConfig, role: &RouterRole) -> u64 {
    dut.params.count("memory").unwrap_or_else(|| (256 + 4 * role.vrfs.len() as u64).max(512))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::tests_support::{self, edge_ports, two_ports, two_ports_with_bgp, with_vlans};
    use drophammer_model::role::{LabelRoute, Place, PushedRoute};
    use drophammer_model::suite::{ParamValue, Params};
    use drophammer_model::topology::{Shape, System, Topology, Wan};
    use std::time::Duration;

    fn dut(params: &[(&str, ParamValue)]) -> DutConfig {
        let params = params.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
        tests_support::dut("guest", SPEC.name, Params(params))
    }

    pub(super) fn job(role: RouterRole) -> Job {
        Job {
            routing: Routing::Frr,
            role,
            files: Vec::new(),
            own: false,
            modules: "/usr/lib/uml/modules".into(),
            pipe: false,
            raw: false,
            delays: Vec::new(),
            scheduler: Scheduler::Prio,
        }
    }

    #[test]
    fn routes_name_the_sub_interfaces() {
        let role = RouterRole::of(&with_vlans(two_ports()));
        let files = Uml.configuration(&dut(&[]), &role).unwrap();
        assert_eq!(files.len(), 1);
        assert!(files[0].1.lines().any(|l| l == "ip route 198.18.48.64/26 198.18.32.34 d0.s100.200"), "{}", files[0].1);
        let by_ip = Uml.configuration(&dut(&[("routing", ParamValue::Text("static".into()))]), &role).unwrap();
        assert!(by_ip[0].1.contains("route add 198.18.48.0/26 via 198.18.32.2 dev d0.100"), "{}", by_ip[0].1);
        let role = RouterRole::of(&two_ports_with_bgp(1));
        assert_eq!(Uml.configuration(&dut(&[]), &role).unwrap().len(), 2);
    }

    #[test]
    fn label_entries_come_after_the_routes() {
        let mut role = RouterRole::of(&two_ports());
        let at = Place { port: 1, vlan: None };
        role.labels = vec![LabelRoute { label: 100, out: vec![200], via: "198.19.1.2".parse().unwrap(), at }];
        for fixed in [&[][..], &[("routing", ParamValue::Text("static".into()))]] {
            let files = Uml.configuration(&dut(fixed), &role).unwrap();
            let wanted = ("labels.ip".to_owned(), "route add 100 as 200 via inet 198.19.1.2 dev d1\n".to_owned());
            assert_eq!(files.last(), Some(&wanted));
        }
    }

    #[test]
    fn labels_have_their_own_ttl_only_if_there_are_labels() {
        let (at, via): (_, std::net::IpAddr) = (Place { port: 1, vlan: None }, "198.19.1.2".parse().unwrap());
        let none = Job { pipe: true, ..job(RouterRole::of(&two_ports())) };
        let mut swapped = none.clone();
        swapped.role.labels = vec![LabelRoute { label: 100, out: vec![200], via, at }];
        let mut pushed = none.clone();
        pushed.role.pushed = vec![PushedRoute { prefix: ("10.99.0.0".parse().unwrap(), 24), out: vec![400], via, at }];
        let uniform = Job { pipe: false, ..pushed.clone() };
        let jobs = [none, swapped, pushed, uniform];
        assert_eq!(jobs.map(|job| job.label_ttl_is_own()), [false, true, true, false]);
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_remedy() {
        let refused = |params: &[(&str, ParamValue)]| {
            Uml.check(&dut(params), &RouterRole::of(&two_ports_with_bgp(1))).unwrap_err().to_string()
        };
        let fixed = ("routing", ParamValue::Text("static".into()));
        let error = refused(&[("memory", ParamValue::Count(8))]);
        assert!(error.contains("8 MiB") && error.contains("`memory: 64`"), "{error}");
        let error = refused(std::slice::from_ref(&fixed));
        assert!(error.contains("speaks no BGP") && error.contains("remove `routing: static`"), "{error}");
        let error = refused(&[fixed, ("config", ParamValue::Text("/dev/null".into()))]);
        assert!(error.contains("but no daemon reads it"), "{error}");
    }

    #[test]
    fn a_guest_with_vrfs_has_the_memory_and_the_links_for_them() {
        let core = [CoreProtocol::Ospf, CoreProtocol::Ldp];
        let role = |customers| RouterRole::of(&edge_ports(&core, customers));
        let given = |memory| dut(&[("memory", ParamValue::Count(memory))]);
        assert_eq!([3, 64, 1_504].map(|vrfs| memory(&dut(&[]), &role(vrfs))), [512, 512, 6_272]);
        assert_eq!(memory(&given(100), &role(3)), 100);
        Uml.check(&given(328), &role(100)).unwrap();
        let error = Uml.check(&given(327), &role(100)).unwrap_err().to_string();
        assert!(error.contains("kernel and its VRFs") && error.contains("`memory: 328`"), "{error}");
        for (key, value) in [("links", "veth"), ("routing", "static")] {
            let error = Uml.check(&dut(&[(key, ParamValue::Text(value.into()))]), &role(3)).unwrap_err().to_string();
            assert!(error.contains(&format!("`{key}: {value}`")), "{error}");
        }
        let files = Uml.configuration(&dut(&[]), &role(2)).unwrap();
        let (name, lines) = files.last().unwrap();
        assert_eq!((name.as_str(), lines.lines().count()), ("vrfs.ip", 16));
        let second = "link add name v2 type vrf table 10002\nlink set v2 up\n\
                      route add unreachable default table 10002 metric 4278198272\n\
                      route add unreachable ::/0 table 10002 metric 4278198272\n\
                      link add link d1 name d1.102 mtu 1500 type vlan protocol 802.1Q id 102\nlink set d1.102 master v2 up\n\
                      address add 192.168.0.1/30 dev d1.102\naddress add fd00:0:1::1/64 dev d1.102 nodad\n";
        assert!(lines.ends_with(second), "{lines}");
        assert_eq!([0, 1].map(|port| label_edge::link_mtu(&role(2), port)), [1_508, 1_500]);
        assert_eq!([0, 1].map(|port| label_edge::extra(&role(2), port)), [8, 4]);
    }

    #[test]
    fn a_guest_is_ready_when_each_vrf_has_a_label() {
        let role = RouterRole::of(&edge_ports(&[CoreProtocol::Ospf, CoreProtocol::Ldp], 2));
        let one: Vec<serde_json::Value> =
            serde_json::from_str(r#"[{"dst":80,"dev":"v1","protocol":"bgp"}, {"dst":81,"dev":"v1"}, {"dst":16}]"#)
                .unwrap();
        assert_eq!(label_edge::missing(&role, &one).as_deref(), Some("the kernel has no label for packets of v2"));
        let ipv4 = [one, serde_json::from_str(r#"[{"dst":82,"dev":"v2"}]"#).unwrap()].concat();
        assert!(label_edge::missing(&role, &ipv4).is_some(), "v2 has no label for IPv6");
        let both = [ipv4, serde_json::from_str(r#"[{"dst":83,"dev":"v2"}]"#).unwrap()].concat();
        assert_eq!(label_edge::missing(&role, &both), None);
    }

    #[test]
    fn the_guest_is_told_everything_by_its_file() {
        let role = RouterRole::of(&with_vlans(two_ports_with_bgp(2)));
        let files = vec![("frr.conf".into(), "hostname x\n".into())];
        let ports = two_ports();
        let wan = Some(Wan { speed: None, delay: Some(Duration::from_millis(277)), loss: None });
        let topology = Topology { shape: Shape::Loop, routers: 4, core_speed: None, wan };
        let link = System::of(&ports, &topology).unwrap().links[2];
        let delays = vec![LinkDelay::of(&link, 2).unwrap()];
        let job = Job { files, delays, ..job(role) };
        let text = serde_json::to_string(&job).unwrap();
        assert_eq!(serde_json::from_str::<Job>(&text).unwrap(), job);
    }

    #[test]
    fn large_registers_are_a_flag_of_their_own() {
        assert!(has_large_registers("processor: 0\nflags\t\t: fpu avx512f amx_tile amx_int8\n"));
        assert!(!has_large_registers("flags\t\t: fpu avx512f amx_tiles\nbugs: amx_tile\n"));
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!([version("6.1.176\n"), version("6.13"), version("x")], [Some((6, 1)), Some((6, 13)), None]);
        assert!(version("6.9.1") < Some(SAVES) && version("7.0") > Some(SAVES));
    }
}
