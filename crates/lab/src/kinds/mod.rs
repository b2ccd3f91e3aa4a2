//! The kinds of DUT, each in its own file.
//!
//! # Forwarding outside the kernel's network stack
//!
//! Kind `xdp` is configured like `linux`; its fast path is a program in the kernel, assembled in `port/src/xdp_router.rs`
//! and kept loaded by a process. That process is this program (`testbed/src/xdp_router.rs`, hidden subcommand
//! `xdp-router`); the kind starts it as a daemon. Kind `ovs` renders the role as OpenFlow flows
//! (`lab/src/kinds/ovs/flows.rs`). The switch learns neighbours from their packets, so it does not need to know a
//! neighbour before the tester answers. A kind that forwards outside the kernel's network stack adds its counters by
//! `VethLinks::also_counts`. Some kernel counters then miss the fast path, so the kind renames them
//! (`probe::rename_slow_path`).

pub mod bird;
pub mod external;
pub mod frr;
pub mod gobgp;
pub mod linux;
pub mod openbgpd;
pub mod ovs;
pub mod uml;
pub mod xdp;

use crate::{DutKind, LabError, configuration, management, packet_filter, process, snmp, ssh, traffic_classes};
use drophammer_model::capabilities::{Capabilities, Counters, INSTALL_ROUTES, Need, Vlans};
use drophammer_model::registry::{KindSpec, ParamKind, ParamSpec};
use drophammer_model::role::{RouterRole, Tunnel};
use drophammer_model::suite::{DutConfig, Params, Suite};
use std::net::Ipv4Addr;

/// All kinds that the lab can bring up, in the order in which `drophammer list duts` shows them.
pub static KINDS: &[&dyn DutKind] = &[
    &linux::Linux,
    &frr::Frr,
    &bird::Bird,
    &openbgpd::OpenBgpd,
    &gobgp::GoBgp,
    &xdp::Xdp,
    &ovs::Ovs,
    &uml::Uml,
    &external::External,
];

/// The kind of this name.
pub fn find(name: &str) -> Option<&'static dyn DutKind> {
    KINDS.iter().copied().find(|k| k.spec().name == name)
}

/// Programs that a DUT needs for tests with these needs, but that this machine lacks; empty for an unknown kind.
pub fn missing(dut: &DutConfig, tests: &[Need]) -> Vec<LabError> {
    let Some(kind) = find(&dut.kind) else { return Vec::new() };
    let filters = tests.contains(&Need::Filters) && kind.capabilities().filters;
    let server = ssh::SSH.find(&dut.params) == Some(true);
    let agent = snmp::SNMP.find(&dut.params) == Some(true);
    let classes = tests.contains(&Need::Classes) && kind.capabilities().classes;
    let of_tests = filters.then_some(packet_filter::NEED).into_iter().chain(classes.then_some(traffic_classes::NEED));
    let needs = kind.needs(dut).into_iter().chain(of_tests).chain(agent.then_some(snmp::NEED));
    let needs = needs.chain(server.then_some(ssh::NEED));
    needs.filter_map(|(program, package)| process::find(program, package).err()).collect()
}

/// Calls [`DutKind::refuse_host`] for each DUT until the first refusal. Call it in the host's namespaces.
pub fn refuse_host(suite: &Suite) -> Result<(), LabError> {
    let role = RouterRole::of(&suite.ports);
    suite.duts.iter().try_for_each(|dut| find(&dut.kind).map_or(Ok(()), |kind| kind.refuse_host(dut, &role)))
}

/// Parameters of routing daemons that install routes in the kernel.
pub(crate) const ROUTING_PARAMS: &[ParamSpec] = &[
    configuration::CONFIG,
    configuration::TEMPLATE,
    INSTALL_ROUTES.spec(),
    packet_filter::FILTERS.spec(),
    snmp::SNMP.spec(),
    ssh::SSH.spec(),
    management::MANAGEMENT.spec(),
];

/// Parameters of routing daemons that do not.
pub(crate) const CONTROL_PLANE_PARAMS: &[ParamSpec] = &[
    configuration::CONFIG,
    configuration::TEMPLATE,
    packet_filter::FILTERS.spec(),
    snmp::SNMP.spec(),
    ssh::SSH.spec(),
    management::MANAGEMENT.spec(),
];

/// Parameter `ttl_model` of the kinds that forward by labels (RFC 3443).
pub const TTL_MODEL: ParamSpec = ParamSpec::fixed(
    "ttl_model",
    ParamKind::Choice(&["uniform", "pipe"]),
    "uniform",
    "whether labels copy the TTL of the packet and pass it back (uniform), or have their own TTL, 255 when pushed (pipe; RFC 3443)",
);

/// True if labels have their own TTL.
pub fn is_pipe(params: &Params) -> bool {
    params.text(TTL_MODEL.key).as_deref() == Some("pipe")
}

/// Capabilities of a router in a network namespace that forwards with this machine's kernel.
const IN_NAMESPACE: Capabilities = Capabilities {
    vlans: Vlans::HostKernel,
    vlan_tags: 2,
    counters: &[Counters::Interfaces, Counters::Ip, Counters::Backlog],
    tunnels: true,
    policy_routing: true,
    filters: true,
    classes: true,
    systems: true,
    ..Capabilities::ROUTER
};

/// The configuration of a daemon that speaks only BGP: the user's own, or `template` for the role.
pub(crate) fn of_bgp_alone(template: &str, dut: &DutConfig, role: &RouterRole) -> Result<String, LabError> {
    match (configuration::own(dut, role)?, &role.bgp) {
        (Some(text), _) => Ok(text),
        (None, Some(_)) => configuration::render(template, &dut.name, role),
        (None, None) => Err(LabError::unusable(
            format!("{} speaks only BGP, but the suite has no `bgp:`", dut.kind),
            "add `bgp: {}` to the suite",
        )),
    }
}

/// Names of the kinds that make VLAN sub-interfaces themselves.
pub(crate) fn with_own_vlans() -> String {
    let own = KINDS.iter().map(|k| k.spec()).filter(|k| k.capabilities.vlans == Vlans::Own);
    own.map(|k| k.name).collect::<Vec<_>>().join(", ")
}

/// Names of the kinds that make tunnels without this machine's kernel.
pub(crate) fn with_own_tunnels() -> String {
    let end = Ipv4Addr::UNSPECIFIED;
    let role = RouterRole { tunnels: vec![Tunnel { local: end, remote: end, mtu: 0 }], ..RouterRole::default() };
    let own = KINDS.iter().filter(|k| k.capabilities().tunnels && k.of_kernel(&role).tunnels.is_empty());
    own.map(|k| k.spec().name).collect::<Vec<_>>().join(", ")
}

/// Refuses a role that a kind cannot play; the remedy names the kinds that can.
pub(crate) fn refuse_unless_able(kind: &KindSpec, role: &RouterRole) -> Result<(), LabError> {
    let needs = role.needs();
    let Some(need) = kind.capabilities.lacks(&needs) else { return Ok(()) };
    let able = KINDS.iter().map(|k| k.spec()).filter(|k| needs.iter().all(|need| k.capabilities.has(*need)));
    Err(LabError::unusable(
        format!("the ports need `{need}`, which routers of kind `{}` do not support", kind.name),
        format!("use a kind that does: {}", able.map(|k| k.name).collect::<Vec<_>>().join(", ")),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::routes::RouteKind;

    #[test]
    fn names_are_unique_and_found() {
        for kind in KINDS {
            let name = kind.spec().name;
            assert_eq!(find(name).map(|k| k.spec().name), Some(name));
            assert_eq!(KINDS.iter().filter(|k| k.spec().name == name).count(), 1);
            assert!(!kind.capabilities().simulated && !kind.spec().summary.is_empty());
        }
        assert!(find("reference").is_none());
    }

    #[test]
    fn a_guest_has_tunnels_of_its_own() {
        assert_eq!(with_own_tunnels(), "uml");
    }

    #[test]
    fn a_role_that_a_kind_cannot_play_is_refused_with_those_that_can() {
        let role = RouterRole::of(&tests_support::with_vlans(tests_support::two_ports()));
        let weak = KindSpec { name: "weak", capabilities: Capabilities::ROUTER, ..*linux::Linux.spec() };
        let error = refuse_unless_able(&weak, &role).unwrap_err().to_string();
        assert!(error.contains("`vlan`") && error.contains("kind `weak`") && error.contains("external"), "{error}");
        let one_tag = KindSpec { capabilities: Capabilities { vlan_tags: 1, ..IN_NAMESPACE }, ..weak };
        let error = refuse_unless_able(&one_tag, &role).unwrap_err().to_string();
        assert!(error.contains("`qinq`"), "{error}");
        refuse_unless_able(&weak, &RouterRole::of(&tests_support::two_ports_with_bgp(1))).unwrap();
        refuse_unless_able(linux::Linux.spec(), &role).unwrap();
        // A kind without BGP plays the role without it; a kind with BGP must protect the sessions.
        let role = RouterRole::of(&tests_support::two_protected_ports());
        let unprotected =
            KindSpec { capabilities: Capabilities { bgp: true, ..Capabilities::ROUTER }, ..*linux::Linux.spec() };
        let error = refuse_unless_able(&unprotected, &role).unwrap_err().to_string();
        let able = "frr, bird, openbgpd, gobgp, uml, external";
        assert!(error.contains("`bgp-protection`") && error.contains(able), "{error}");
        refuse_unless_able(linux::Linux.spec(), &role).unwrap();
        refuse_unless_able(frr::Frr.spec(), &role).unwrap();
        let role = tests_support::reflector(RouteKind::Vpn);
        let error = refuse_unless_able(frr::Frr.spec(), &role).unwrap_err().to_string();
        assert!(error.contains("`label-reflection`") && error.contains("bird, gobgp"), "{error}");
        refuse_unless_able(linux::Linux.spec(), &role).unwrap();
        refuse_unless_able(gobgp::GoBgp.spec(), &role).unwrap();
    }
}

#[cfg(test)]
#[path = "../../../model/tests/ports/mod.rs"]
mod ports;
#[cfg(test)]
#[path = "../../tests/ports_with_bgp/mod.rs"]
mod ports_with_bgp;

/// Shared by the tests of the kinds.
#[cfg(test)]
pub(crate) mod tests_support {
    pub(crate) use super::ports::two_ports;
    pub(crate) use super::ports_with_bgp::with_bgp;
    use drophammer_model::label_edge::CoreProtocol;
    use drophammer_model::role::RouterRole;
    use drophammer_model::routes::RouteKind;
    use drophammer_model::suite::{
        Addressing, BgpProtection, DutConfig, Params, PortConfig, Secret, VlanConfig, VlanTag,
    };
    use drophammer_model::topology::{Shape, System, Topology};
    use drophammer_model::trial::AddressRange;

    pub(crate) fn dut(name: &str, kind: &str, params: Params) -> DutConfig {
        DutConfig { name: name.into(), kind: kind.into(), params, topology: None }
    }

    /// Two ports: the first one faces the core with these protocols, the second one has this number of customers.
    pub(crate) fn edge_ports(core: &[CoreProtocol], customers: u32) -> Vec<PortConfig> {
        let mut ports = two_ports();
        ports[0].core = core.to_vec();
        ports[1].customers = customers;
        ports
    }

    /// Adds a third port, with IPv4 only.
    pub(crate) fn three_ports(mut ports: Vec<PortConfig>) -> Vec<PortConfig> {
        let mut third = ports[1].clone();
        let ipv4 = third.ipv4.as_mut().unwrap();
        (ipv4.dut, ipv4.behind) = ("198.19.2.1".parse().unwrap(), ("198.19.128.0".parse().unwrap(), 18));
        third.ipv6 = None;
        ports.push(third);
        ports
    }

    /// The role of the first of three fully meshed routers, each with one port.
    pub(crate) fn first_of_mesh(ports: &[PortConfig]) -> RouterRole {
        let topology = Topology { shape: Shape::Mesh, routers: 3, core_speed: None, wan: None };
        System::of(ports, &topology).unwrap().routers.remove(0).role
    }

    /// Two ports, each with one BGP peer per family, whose sessions are protected.
    pub(crate) fn two_protected_ports() -> Vec<PortConfig> {
        let mut ports = two_ports_with_bgp(1);
        for bgp in ports.iter_mut().filter_map(|port| port.bgp.as_mut()) {
            bgp.protection = BgpProtection { md5: Some(Secret::new("sesame")), gtsm: true };
        }
        ports
    }

    /// Two ports, each with `peers` BGP peers per family.
    pub(crate) fn two_ports_with_bgp(peers: u32) -> Vec<PortConfig> {
        with_bgp(two_ports(), peers)
    }

    /// Two ports, each with two BGP peers per family. The peers of the first port are internal.
    pub(crate) fn one_internal_port(next_hop_self: bool) -> Vec<PortConfig> {
        let mut ports = two_ports_with_bgp(2);
        let bgp = ports.iter_mut().filter_map(|port| port.bgp.as_mut());
        bgp.zip([65000, 65002]).for_each(|(bgp, asn)| (bgp.asn, bgp.next_hop_self) = (asn, next_hop_self));
        ports
    }

    /// The role of a route reflector between two ports with one client per family each, for routes of this kind.
    pub(crate) fn reflector(routes: RouteKind) -> RouterRole {
        let mut ports = two_ports_with_bgp(1);
        ports.iter_mut().filter_map(|port| port.bgp.as_mut()).for_each(|bgp| (bgp.asn, bgp.routes) = (65000, routes));
        RouterRole::of(&ports)
    }

    /// Adds sub-interfaces to the first port: an 802.1Q tag, and two stacks below the same 802.1ad tag.
    pub(crate) fn with_vlans(mut ports: Vec<PortConfig>) -> Vec<PortConfig> {
        let c = |vid| VlanTag { tpid: 0x8100, vid };
        let s = |vid| VlanTag { tpid: 0x88a8, vid };
        let stacks = [vec![c(100)], vec![s(100), c(200)], vec![s(100), c(201)]];
        ports[0].vlans = (0..)
            .zip(stacks)
            .map(|(i, tags)| {
                let at = |c: u8, d: u8| std::net::IpAddr::from([198, 18, c, d]);
                let behind = at(48, 64 * i);
                let destinations = AddressRange { first: behind, step: 1, count: 16 };
                let (dut, host) = (at(32, 32 * i + 1), at(32, 32 * i + 2));
                let ipv4 = Some(Addressing { dut, host, prefix_len: 27, behind: (behind, 26), destinations });
                VlanConfig { tags, ipv4, ipv6: None }
            })
            .collect();
        ports
    }
}
