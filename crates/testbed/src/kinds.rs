//! All DUT kinds: the kinds of the lab, and the reference device.
//!
//! # Roles that a test needs
//!
//! `TestSpec::needs_of` lists these roles. A suite is refused if no DUT supports such a role. If only some DUTs support
//! it, the test does not apply to the others. BGP roles are an exception: all DUTs must support them.

use drophammer_model::capabilities::{Capabilities, Counters, Placement};
use drophammer_model::label_edge::CoreProtocol;
use drophammer_model::registry::{KindSpec, ParamKind, ParamSpec, TestSpec};
use drophammer_model::role::RouterRole;
use drophammer_model::suite::{DutConfig, PortConfig, Suite, TestConfig};
use drophammer_model::topology::System;
use drophammer_model::traffic::Deviation;
use drophammer_reference::WrongFrame;

/// True if the links of a DUT can be taps, which only one backend can use.
pub(crate) fn may_have_taps(dut: &DutConfig) -> bool {
    dut.params.text("links").map_or(dut.kind == "uml", |links| links == "tap")
}

/// Name of the reference kind.
pub const REFERENCE: &str = "reference";

/// The reference device: a router of known behaviour, in virtual time or in a separate process.
pub static REFERENCE_SPEC: KindSpec = KindSpec {
    name: REFERENCE,
    summary: "simulated router of known behaviour, in virtual time or on virtual links; tests the tester",
    capabilities: Capabilities {
        mpls: true,
        tunnels: true,
        policy_routing: true,
        vrfs: true,
        filters: true,
        classes: true,
        core: &[CoreProtocol::Ospf, CoreProtocol::Ldp, CoreProtocol::Rsvp, CoreProtocol::Bfd],
        core_of_chain: &[CoreProtocol::Ospf, CoreProtocol::Ldp, CoreProtocol::Bfd],
        systems: true,
        placement: Placement::Virtual,
        counters: &[Counters::Truth],
        simulated: true,
        ..Capabilities::BGP_ROUTER
    },
    needs: &[],
    params: &[
        ParamSpec::fixed(
            "links",
            ParamKind::Choice(&["virtual", "veth", "tap"]),
            "virtual",
            "virtual time, or a process of its own behind veth or tap interfaces",
        ),
        ParamSpec::optional("capacity", ParamKind::Rate, "frames per second that it forwards; default: no limit"),
        ParamSpec::fixed("buffer", ParamKind::Count, "1024", "frames that may wait or be in service"),
        ParamSpec::fixed("delay", ParamKind::Duration, "10 us", "from end of service to the line"),
        ParamSpec::fixed("jitter", ParamKind::Duration, "0 s", "width of a uniform random delay on top"),
        ParamSpec::optional(
            "line_speed",
            ParamKind::Speed,
            "speed of the outgoing lines; without it, frames take no time on them",
        ),
        ParamSpec::fixed(
            "line_buffer",
            ParamKind::Count,
            "1024",
            "frames that can be on, or wait for, a line with `line_speed` or a link between routers",
        ),
        ParamSpec::fixed(
            "core_detection",
            ParamKind::Duration,
            "0 s",
            "time from the loss or return of a link between routers of a `topology` until their routes change",
        ),
        ParamSpec::optional(
            "fib_limit",
            ParamKind::Count,
            "size of its forwarding table in routes; packets to routes beyond it are dropped",
        ),
        ParamSpec::optional("fib_limit_ipv4", ParamKind::Count, "like `fib_limit`, but for IPv4 routes only"),
        ParamSpec::optional("fib_limit_ipv6", ParamKind::Count, "like `fib_limit`, but for IPv6 routes only"),
        ParamSpec::optional(
            "label_limit",
            ParamKind::Count,
            "size of its table of labels with core ports; packets with labels beyond it are dropped",
        ),
        ParamSpec::optional("rib_limit", ParamKind::Count, "maximum number of BGP paths that it keeps"),
        ParamSpec::fixed(
            "rib_beyond",
            ParamKind::Choice(&["ignore", "reset"]),
            "ignore",
            "what it does with a path beyond `rib_limit`: ignore it, or end the session",
        ),
        ParamSpec::fixed(
            "propagation_delay",
            ParamKind::Duration,
            "0 s",
            "time from receiving a route to advertising it",
        ),
        ParamSpec::fixed("fib_delay", ParamKind::Duration, "0 s", "time from receiving a route to forwarding by it"),
        ParamSpec::fixed(
            "fib_time_per_route",
            ParamKind::Duration,
            "0 s",
            "additional delay of each route after the first",
        ),
        ParamSpec::fixed("ack_delay", ParamKind::Duration, "0 s", "delay of its TCP acknowledgements"),
        ParamSpec::fixed(
            "filter_time_per_rule",
            ParamKind::Duration,
            "0 s",
            "service time that each evaluated filter rule adds to a frame",
        ),
        ParamSpec::fixed(
            "extension_time",
            ParamKind::Duration,
            "0 s",
            "service time that extension headers add to an IPv6 packet",
        ),
        ParamSpec::optional(
            "extension_drop_every",
            ParamKind::Count,
            "drops every n-th IPv6 packet with extension headers",
        ),
        ParamSpec::optional("filter_leak_every", ParamKind::Count, "forwards every n-th frame that its filter denies"),
        ParamSpec::optional("filter_deny_every", ParamKind::Count, "drops every n-th frame that its filter permits"),
        ParamSpec::fixed(
            "classes_ignored",
            ParamKind::Flag,
            "false",
            "has one queue, even if it is given classes of service",
        ),
        ParamSpec::optional(
            "class_last_weight",
            ParamKind::Count,
            "gives the last class this weight instead of its own",
        ),
        ParamSpec::optional("class_drop_every", ParamKind::Count, "drops every n-th frame of the first class"),
        ParamSpec::optional(
            "faults_by_port",
            ParamKind::Flag,
            "numbers frames separately for each port of arrival, for faults of every n-th frame",
        ),
        ParamSpec::optional("drop_every", ParamKind::Count, "drops every n-th frame"),
        ParamSpec::optional("drop_share", ParamKind::Percent, "drops this share of the frames, drawn from the seed"),
        ParamSpec::optional(
            "drop_after",
            ParamKind::Duration,
            "starts dropping all frames this long after it was found to forward",
        ),
        ParamSpec::fixed("drop_for", ParamKind::Duration, "1 s", "how long `drop_after` lasts"),
        ParamSpec::optional("low_load_drop_every", ParamKind::Count, "drops every n-th frame while the load is low"),
        ParamSpec::fixed(
            "low_load",
            ParamKind::Rate,
            "10 kfps",
            "the load is low if fewer frames than this arrived in the last 10 ms",
        ),
        ParamSpec::optional("drop_growth", ParamKind::Percent, "drops a share that grows by this much every second"),
        ParamSpec::optional("corrupt_every", ParamKind::Count, "changes a payload byte of every n-th frame"),
        ParamSpec::fixed("corrupt_hidden", ParamKind::Flag, "false", "corrects the checksums after the change"),
        ParamSpec::optional("misroute_every", ParamKind::Count, "sends every n-th frame back out of the first port"),
        ParamSpec::optional(
            "wrong_next_hop_every",
            ParamKind::Count,
            "sends every n-th frame out of the right port to an unknown MAC address",
        ),
        ParamSpec::optional(
            "ttl_kept_every",
            ParamKind::Count,
            "forwards every n-th frame without decrementing its TTL or hop limit",
        ),
        ParamSpec::optional(
            "encapsulation_every",
            ParamKind::Count,
            "sends every n-th frame in another encapsulation; see `encapsulation_change`",
        ),
        ParamSpec::fixed(
            "encapsulation_change",
            ParamKind::Choice(Deviation::NAMES),
            "dscp",
            "the deviation that `encapsulation_every` causes",
        ),
        ParamSpec::optional("priority_tags", ParamKind::Flag, "tags all frames that it sends with VLAN 0"),
        ParamSpec::optional("duplicate_every", ParamKind::Count, "sends every n-th frame twice"),
        ParamSpec::optional("hold_every", ParamKind::Count, "sends every n-th frame late, without stopping the others"),
        ParamSpec::fixed("hold_time", ParamKind::Duration, "1.1 s", "how late `hold_every` sends"),
        ParamSpec::optional("reorder_every", ParamKind::Count, "sends every n-th frame after later frames of its port"),
        ParamSpec::fixed(
            "reorder_by",
            ParamKind::Count,
            "3",
            "number of later frames that `reorder_every` sends first",
        ),
        ParamSpec::optional("sag_after", ParamKind::Duration, "becomes slower this long after it was found to forward"),
        ParamSpec::fixed("sag_to", ParamKind::Rate, "10 kfps", "frames per second that it forwards from then on"),
        ParamSpec::optional(
            "ageing_delay",
            ParamKind::Duration,
            "its delay grows by this much every second after it was found to forward",
        ),
        ParamSpec::optional("ageing_memory", ParamKind::Count, "its memory grows by this many bytes every second"),
        ParamSpec::optional(
            "input_queue",
            ParamKind::Count,
            "each port has one input queue of this many frames; the first frame blocks the others until its line has room",
        ),
        ParamSpec::optional(
            "broadcast_services",
            ParamKind::Count,
            "a broadcast frame of an unknown type takes as much service as this many frames",
        ),
        ParamSpec::fixed(
            "broadcast_flooded",
            ParamKind::Flag,
            "false",
            "sends such broadcast frames out of the next port",
        ),
        ParamSpec::fixed(
            "boot_time",
            ParamKind::Duration,
            "500 ms",
            "time after a reset during which it does nothing; a reset erases its state",
        ),
        ParamSpec::fixed("reset_unaffected", ParamKind::Flag, "false", "a reset has no effect on it"),
        ParamSpec::fixed("reset_never_back", ParamKind::Flag, "false", "it does not come back after a reset"),
        ParamSpec::optional(
            "own_frames",
            ParamKind::Duration,
            "sends an LLDP frame out of the first port at this interval",
        ),
        ParamSpec::fixed("no_icmp", ParamKind::Flag, "false", "sends no ICMP errors"),
        ParamSpec::fixed(
            "icmp_errors",
            ParamKind::Count,
            "100",
            "maximum number of ICMP errors that it sends per second",
        ),
        ParamSpec::optional(
            "forwards_wrong",
            ParamKind::Choice(WrongFrame::NAMES),
            "forwards invalid frames of this kind, which it must drop",
        ),
        ParamSpec::optional("icmp_twice_every", ParamKind::Count, "sends every n-th ICMP error twice"),
        ParamSpec::optional(
            "tunnel_drop_every",
            ParamKind::Count,
            "drops every n-th packet sent into a tunnel, after counting it",
        ),
        ParamSpec::optional(
            "tunnel_sticks_after",
            ParamKind::Count,
            "loses everything that it sends into a tunnel after this many packets",
        ),
        ParamSpec::fixed(
            "tunnel_keeps_ttl",
            ParamKind::Flag,
            "false",
            "does not decrement the TTL of packets that it sends into a tunnel",
        ),
        ParamSpec::fixed(
            "policy_ignored",
            ParamKind::Flag,
            "false",
            "sends all packets by its routes and ignores its policies",
        ),
        ParamSpec::optional("counter_error", ParamKind::Count, "its unicast counters are this many frames too high"),
        ParamSpec::optional(
            "counter_error_after",
            ParamKind::Count,
            "applies `counter_error` to a counter only after this many frames; default: from the first frame",
        ),
        ParamSpec::optional(
            "management_waiting",
            ParamKind::Count,
            "it answers its operator badly while this many frames wait in its buffer or are in service",
        ),
        ParamSpec::optional(
            "management_drop_every",
            ParamKind::Count,
            "during this time it does not answer every n-th question (echo request or SSH connection)",
        ),
        ParamSpec::fixed(
            "management_delay",
            ParamKind::Duration,
            "0 s",
            "during this time it answers the other questions this much later",
        ),
        ParamSpec::fixed(
            "management_dies",
            ParamKind::Flag,
            "false",
            "after this time it answers no questions at all, at any load",
        ),
        drophammer_lab::TTL_MODEL,
        ParamSpec::fixed("ssh", ParamKind::Flag, "false", "runs an SSH server that sends its banner to every client"),
        ParamSpec::optional(
            "blackhole_every",
            ParamKind::Count,
            "advertises every n-th prefix but does not forward to it",
        ),
        ParamSpec::optional(
            "withdraw_late",
            ParamKind::Duration,
            "processes and advertises withdrawals this much later",
        ),
        ParamSpec::optional(
            "route_wrong_next_hop_every",
            ParamKind::Count,
            "advertises every n-th prefix with the next hop that it received",
        ),
        ParamSpec::optional(
            "route_wrong_as_path_every",
            ParamKind::Count,
            "advertises every n-th prefix with its own AS prepended twice",
        ),
        ParamSpec::optional("route_lost_every", ParamKind::Count, "does not advertise every n-th prefix"),
        ParamSpec::optional(
            "route_flap_every",
            ParamKind::Count,
            "withdraws and re-advertises every n-th prefix alternately, forever",
        ),
        ParamSpec::fixed("route_flap_interval", ParamKind::Duration, "100 ms", "time between two of these changes"),
        ParamSpec::fixed("bgp_never_reads", ParamKind::Flag, "false", "stops reading from TCP"),
        ParamSpec::optional(
            "bgp_reads_per_second",
            ParamKind::Count,
            "reads at most this many bytes per second from a session",
        ),
        ParamSpec::optional(
            "bgp_reset_after",
            ParamKind::Count,
            "ends the session after the n-th received route, once",
        ),
        ParamSpec::optional(
            "bgp_malformed_after",
            ParamKind::Count,
            "sends a malformed UPDATE after the n-th advertised route, once",
        ),
        ParamSpec::fixed("bgp_hold_silence", ParamKind::Flag, "false", "sends no more KEEPALIVEs"),
        ParamSpec::optional(
            "late_lsa_flooding",
            ParamKind::Duration,
            "installs and floods some LSAs this much later; see `late_lsa_every`",
        ),
        ParamSpec::fixed(
            "late_lsa_every",
            ParamKind::Count,
            "100",
            "`late_lsa_flooding` affects every n-th new LSA of a full neighbour",
        ),
        ParamSpec::optional("bfd_packet_missing", ParamKind::Count, "does not send every n-th BFD packet"),
        ParamSpec::fixed(
            "leak_vpn_route",
            ParamKind::Flag,
            "false",
            "imports one VPN route into the VRF after its own too, where it replaces any other route",
        ),
        ParamSpec::fixed(
            "swap_vpn_labels",
            ParamKind::Flag,
            "false",
            "forwards packets with the label of the first VRF by the routes of the second one, and the other way round",
        ),
        ParamSpec::optional(
            "label_pop_every",
            ParamKind::Count,
            "removes the label of every n-th packet whose label it should swap",
        ),
        ParamSpec::optional(
            "implicit_null_every",
            ParamKind::Count,
            "advertises implicit null instead of a label for every n-th prefix of LDP",
        ),
        ParamSpec::fixed(
            "rsvp_refresh",
            ParamKind::Duration,
            "30 s",
            "refresh period of its RSVP-TE (RFC 2205 section 3.7)",
        ),
        ParamSpec::fixed("rsvp_refresh_reduction", ParamKind::Flag, "true", "supports refresh reduction (RFC 2961)"),
        ParamSpec::optional("lsp_limit", ParamKind::Count, "maximum number of RSVP-TE LSPs; it refuses more"),
        ParamSpec::optional(
            "forget_lsp_on_refresh",
            ParamKind::Count,
            "forgets the LSP of the n-th refresh of a path, once, and tells nobody",
        ),
    ],
};

/// Returns the descriptions of all kinds, in the order that `drophammer list duts` prints.
pub fn specs() -> Vec<&'static KindSpec> {
    drophammer_lab::KINDS.iter().map(|k| k.spec()).chain([&REFERENCE_SPEC]).collect()
}

/// Returns where the tester's interfaces to this DUT are, or `None` for an unknown kind.
pub fn placement(dut: &DutConfig) -> Option<Placement> {
    let spec = specs().into_iter().find(|spec| spec.name == dut.kind)?;
    Some(match spec.capabilities.placement {
        Placement::Virtual if crate::device::links(dut).is_some() => Placement::Lab,
        placement => placement,
    })
}

/// Returns the ports of a suite in front of this DUT, without the features that its kind does not have. For an unknown
/// kind, returns them unchanged.
pub fn ports_of(dut: &DutConfig, ports: &[PortConfig]) -> Vec<PortConfig> {
    let kind = specs().into_iter().find(|spec| spec.name == dut.kind);
    kind.map_or_else(|| ports.to_vec(), |kind| kind.ports_of(dut, ports))
}

/// Returns why a test does not apply to this DUT: the suite runs it on other DUTs only, or it needs a role that the DUT does not support.
/// `None` if it applies.
pub fn not_applicable(dut: &DutConfig, spec: &TestSpec, test: &TestConfig) -> Option<String> {
    if !test.is_for(&dut.name) {
        return Some(format!("the suite runs it on {} only", test.duts.join(", ")));
    }
    let kind = specs().into_iter().find(|spec| spec.name == dut.kind)?;
    let need = kind.capabilities_of(dut).lacks(&spec.needs_of(&test.params))?;
    let of = if dut.topology.is_some() { "a system of kind" } else { "kind" };
    Some(format!("it needs a router of role `{need}`, which {of} `{}` does not have", dut.kind))
}

/// False if tests cannot give a router of this kind packet filters.
pub fn takes_filters(kind: &str) -> bool {
    specs().into_iter().find(|spec| spec.name == kind).is_none_or(|spec| spec.capabilities.filters)
}

/// True if this DUT installs BGP routes in its forwarding plane. `None` if the user provides the router or its
/// configuration, so that it is unknown.
pub fn installs_routes(dut: &DutConfig) -> Option<bool> {
    let spec = specs().into_iter().find(|spec| spec.name == dut.kind)?;
    let of_the_user = spec.capabilities.placement == Placement::Host || drophammer_lab::has_own_configuration(dut);
    let capabilities = spec.capabilities_of(dut);
    // A parameter that keeps routes out of the forwarding plane works with any configuration.
    let known = !of_the_user || spec.capabilities.bgp_forwarding != capabilities.bgp_forwarding;
    (known && capabilities.bgp).then_some(capabilities.bgp_forwarding)
}

/// Returns a note for readers of route times if some DUTs of the suite install their BGP routes and others do not;
/// `None` if all of them do the same.
pub fn mixed_installation(suite: &Suite) -> Option<String> {
    let of = |installs: bool| {
        let duts = suite.duts.iter().filter(|dut| installs_routes(dut) == Some(installs));
        duts.map(|dut| dut.name.as_str()).collect::<Vec<_>>()
    };
    let (with, without) = (of(true), of(false));
    if with.is_empty() || without.is_empty() {
        return None;
    }
    Some(format!(
        "not the same work: {} put BGP routes into the forwarding plane, {} not; `install_routes: false` measures the control plane \
         alone, where a kind has it",
        say(&with, "does", "do"),
        say(&without, "does", "do"),
    ))
}

/// Lists the names, followed by the verb in the singular or plural.
fn say(names: &[&str], one: &str, more: &str) -> String {
    format!("{} {}", names.join(", "), if names.len() == 1 { one } else { more })
}

/// True if this DUT runs in virtual time, without a lab and interfaces.
pub fn is_virtual(dut: &DutConfig) -> bool {
    placement(dut) == Some(Placement::Virtual)
}

/// Checks, as far as possible before the start, that every DUT of the suite can play its role.
///
/// # Errors
/// The problems of each DUT, each with a remedy.
pub fn check(suite: &Suite) -> Result<(), Vec<String>> {
    let refused = |dut: &DutConfig| {
        if dut.kind == REFERENCE && dut.topology.is_some() && crate::device::links(dut).is_some() {
            let remedy = "several simulated routers live in virtual time; leave `links` or `topology` out";
            return Some(format!("`{}` cannot be brought up: {remedy}", dut.name));
        }
        let kind = drophammer_lab::find(&dut.kind)?;
        let ports = ports_of(dut, &suite.ports);
        let checked = match &dut.topology {
            None => kind.check(dut, &RouterRole::of(&ports)).map_err(|e| e.to_string()),
            Some(topology) => System::of(&ports, topology)
                .map_err(|e| e.to_string())
                .and_then(|system| drophammer_lab::check_system(kind, dut, &system).map_err(|e| e.to_string())),
        };
        Some(format!("`{}` cannot be brought up: {}", dut.name, checked.err()?))
    };
    let refused: Vec<String> = suite.duts.iter().filter_map(refused).collect();
    if refused.is_empty() { Ok(()) } else { Err(refused) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::registry::Registry;
    use drophammer_suite::read::{Overrides, read};

    fn suite(duts: &[&str], test: &str) -> Result<Suite, String> {
        suite_of(duts, "bgp: {}\n", test)
    }

    fn suite_of(duts: &[&str], bgp: &str, test: &str) -> Result<Suite, String> {
        let tests: Vec<_> = drophammer_methods::METHODS.iter().map(|method| method.spec()).collect();
        let duts: String = duts.iter().map(|dut| format!("  - {{{dut}}}\n")).collect();
        let ports = "ports:\n  - {name: p1, speed: 1 Gbit/s}\n  - {name: p2, speed: 1 Gbit/s}\n";
        let text = format!("suite: s\nduts:\n{duts}{ports}{bgp}tests:\n  - {test}\n");
        read(&text, "s.yaml", &Registry { tests: &tests, kinds: &specs() }, &Overrides::default())
            .map_err(|e| e.to_string())
    }

    #[test]
    fn a_mixture_is_named_with_those_that_install_and_those_that_do_not() {
        let mixed = |duts: &[&str]| mixed_installation(&suite(duts, "bgp_table_capacity").unwrap());
        let (frr, bird) = ("name: f, kind: frr", "name: b, kind: bird");
        let [f0, b0] = ["name: f0, kind: frr, install_routes: false", "name: b0, kind: bird, install_routes: false"];
        let openbgpd = "name: o, kind: openbgpd";
        assert_eq!((mixed(&[frr, bird]), mixed(&[f0, b0, openbgpd])), (None, None));
        let said = mixed(&[frr, bird, openbgpd]).unwrap();
        assert!(said.contains("f, b do put BGP routes") && said.contains("o does not;"), "{said}");
        let said = mixed(&[frr, f0, openbgpd]).unwrap();
        assert!(said.contains("f does put BGP routes") && said.contains("f0, o do not;"), "{said}");
        // It is unknown which routes a user's configuration installs.
        assert_eq!(mixed(&["name: u, kind: frr, config: u.conf", openbgpd]), None);
        assert!(mixed(&["name: u, kind: frr, config: u.conf, install_routes: false", frr]).is_some());
    }

    #[test]
    fn a_test_is_not_applicable_to_a_dut_without_its_role_beside_one_that_has_it() {
        let (linux, xdp) = ("name: l, kind: linux", "name: x, kind: xdp");
        let alone = suite_of(&[xdp], "", "filters").unwrap_err();
        assert!(alone.contains("needs the role `filters`, which `x` of kind `xdp`"), "{alone}");
        let both = suite_of(&[linux, xdp], "", "filters").unwrap();
        let why = |dut: usize| {
            not_applicable(&both.duts[dut], drophammer_methods::find("filters").unwrap().spec(), &both.tests[0])
        };
        assert_eq!(why(0), None);
        assert!(why(1).is_some_and(|why| why.contains("role `filters`, which kind `xdp` does not have")));
    }

    #[test]
    fn a_dut_without_vrfs_or_a_protocol_plays_the_rest_of_its_role() {
        let edge = |duts: &[&str], test: &str| {
            let duts: String = duts.iter().map(|dut| format!("  - {{{dut}}}\n")).collect();
            let ports = "ports:\n  - {name: c, speed: 1 Gbit/s, customers: 2}\n  - {name: n, speed: 1 Gbit/s, core: [ospf, ldp]}\n";
            let tests: Vec<_> = drophammer_methods::METHODS.iter().map(|method| method.spec()).collect();
            let text = format!("suite: s\nbgp: {{}}\nduts:\n{duts}{ports}tests:\n  - {test}\n");
            read(&text, "s.yaml", &Registry { tests: &tests, kinds: &specs() }, &Overrides::default())
                .map_err(|e| e.to_string())
        };
        let duts = [
            "name: pe, kind: uml",
            "name: f, kind: frr",
            "name: l, kind: xdp",
            "name: four, kind: uml, topology: {mesh: 2}",
            "name: row, kind: uml, topology: {chain: 2}",
        ];
        let suite = edge(&duts, "vpn_scale").unwrap();
        check(&suite).unwrap();
        let played = |dut: usize| {
            let ports = ports_of(&suite.duts[dut], &suite.ports);
            (ports[0].customers, ports[1].core.clone())
        };
        let (ospf, ldp) = (CoreProtocol::Ospf, CoreProtocol::Ldp);
        let (p, none) = (vec![ospf, ldp], vec![]);
        assert_eq!(
            [0, 1, 2, 3, 4].map(played),
            [(2, p.clone()), (0, vec![ospf]), (0, none.clone()), (0, none), (0, p)]
        );
        let spec = drophammer_methods::find("vpn_scale").unwrap().spec();
        let why = |dut: usize| not_applicable(&suite.duts[dut], spec, &suite.tests[0]);
        assert_eq!(why(0), None);
        assert!(why(1).is_some_and(|why| why.contains("role `vrfs`, which kind `frr` does not have")));
        assert!(why(3).is_some_and(|why| why.contains("role `vrfs`, which a system of kind `uml` does not have")));
        let nobody = edge(&duts[1..], "vpn_scale").unwrap_err();
        assert!(nobody.contains("needs the role `vrfs`, which `f` of kind `frr` does not have"), "{nobody}");
        assert!(nobody.contains("which `four` of kind `uml`, several routers does not have"), "{nobody}");
    }

    #[test]
    fn routes_with_labels_need_a_reflector_that_has_them() {
        let bgp = "bgp: {internal: [p1, p2], routes: vpn}\n";
        let able = suite_of(&["name: g, kind: gobgp", "name: b, kind: bird"], bgp, "bgp_table_capacity").unwrap();
        check(&able).unwrap();
        let unable = ["name: f, kind: frr", "name: r, kind: reference"];
        let refused = suite_of(&unable, bgp, "bgp_table_capacity").unwrap_err();
        for kind in ["frr", "reference"] {
            let why = format!("the ports need `label-reflection`, which routers of kind `{kind}` do not support");
            assert!(refused.contains(&why) && refused.contains("`bird` and `gobgp`"), "{refused}");
        }
        let external =
            suite_of(&["name: g, kind: gobgp"], "bgp: {routes: labelled, internal: [p1]}\n", "bgp_table_dump");
        let external = external.unwrap_err();
        assert!(
            external.contains("the peers of port `p2` are external") && external.contains("[p1, p2]"),
            "{external}"
        );
        let traffic = suite_of(&["name: b, kind: bird"], bgp, "fib_convergence").unwrap_err();
        assert!(
            traffic.contains("`bgp: {routes: vpn}`") && traffic.contains("without `routes` in `bgp:`"),
            "{traffic}"
        );
    }

    #[test]
    fn a_test_that_forwards_refuses_a_dut_that_does_not_install() {
        let refused = suite(&["name: f0, kind: frr, install_routes: false"], "fib_convergence").unwrap_err();
        assert!(refused.contains("which `f0` does not install: it has `install_routes: false`"), "{refused}");
        assert!(refused.contains("s.yaml:") && refused.contains("leave that parameter out"), "{refused}");
        suite(&["name: f0, kind: frr, install_routes: false"], "bgp_table_dump").unwrap();
        suite(&["name: f1, kind: frr, install_routes: true"], "fib_convergence").unwrap();
        let refused = suite(&["name: o, kind: openbgpd"], "fib_convergence").unwrap_err();
        assert!(refused.contains("the role `bgp-forwarding`"), "{refused}");
    }
}
