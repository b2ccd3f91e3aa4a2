//! `drophammer plan`: shows what a suite would do, and the configuration that its router needs. It starts nothing.

use crate::args::PlanArgs;
use crate::output::{err, out};
use crate::suite_file::{load_without_keys, refuse_impossible, show_about};
use crate::{Ended, Exit, Failure};
use drophammer_lab::{Language, kinds, write_configuration};
use drophammer_model::label_edge::{OSPF_DEAD_S, OSPF_HELLO_S, PROVIDER_AS};
use drophammer_model::label_work::label_work;
use drophammer_model::role::{Place, RouterRole, VrfRole};
use drophammer_model::routes::RouteKind;
use drophammer_model::suite::{DutConfig, Suite, VlanTag};
use drophammer_model::visible::one_line;
use drophammer_testbed::kinds::ports_of;

/// `drophammer plan`.
pub fn plan(args: &PlanArgs) -> Ended {
    // A placeholder is printed for the key.
    let (suite, _) = load_without_keys(&args.suite)?;
    refuse_impossible(&suite)?;
    let role = RouterRole::of(&suite.ports);
    match args.config {
        Some(language) => configuration(&suite, &role, language, &args.interfaces)?,
        None => {
            what_is_done(&suite);
            what_is_needed(&suite, &role);
        }
    }
    Ok(Exit::Good)
}

fn configuration(suite: &Suite, role: &RouterRole, language: Language, interfaces: &[String]) -> Result<(), Failure> {
    let name = suite.duts.first().map_or("router", |dut| dut.name.as_str());
    let text = write_configuration(language, name, role, interfaces).map_err(Failure::usage)?;
    out!("{}", text.trim_end());
    if interfaces.is_empty() {
        err!(
            "FILL-IN-1 and so on stand for the router's interfaces, in the order of the ports; --interfaces names them"
        );
    }
    if role.bgp.as_ref().is_some_and(|bgp| bgp.protection.md5.is_some()) {
        err!("<secret> stands for the key of `md5`");
    }
    Ok(())
}

/// Prints lines in aligned columns.
fn columns(rows: &[Vec<String>]) {
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    for row in rows {
        let cells = row.iter().enumerate().map(|(column, cell)| {
            let padding = width(column).unwrap_or(0).saturating_sub(cell.chars().count());
            cell.clone() + &" ".repeat(padding)
        });
        out!("  {}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(one_line).to_vec()
}

fn what_is_done(suite: &Suite) {
    out!("{}: profile {}, seed {}", one_line(&suite.title), suite.profile, suite.seed);
    out!("\nPorts");
    let ports = suite.ports.iter().map(|port| row([&port.name, &port.speed.to_string(), &format!("MTU {}", port.mtu)]));
    columns(&ports.collect::<Vec<_>>());
    out!("\nDUTs");
    let duts = suite.duts.iter().map(|dut| {
        let interfaces = dut.params.texts("interfaces").unwrap_or_default().join(", ");
        row([&dut.name, &dut.kind, &memory(suite, dut).unwrap_or(interfaces)])
    });
    columns(&duts.collect::<Vec<_>>());
    out!(
        "\nTests on each DUT, with trials and estimates of time (searches may need fewer or more; repeated invalid trials are not counted)"
    );
    let tests = suite.tests.iter().zip(drophammer_testbed::estimates(suite)).enumerate();
    let tests = tests.map(|(index, (test, (time, trials)))| {
        row([&format!("{}.", index + 1), &test.label(), &trials.to_string(), &show_about(time)])
    });
    columns(&tests.collect::<Vec<_>>());
    let (rounds, duts) = (suite.rounds, suite.duts.len());
    let plural = |count: usize| if count == 1 { "" } else { "s" };
    out!(
        "\nAbout {} in all: {rounds} round{} of {duts} DUT{}, without the tester's own ceiling, which is measured first",
        show_about(drophammer_testbed::estimate(suite)),
        plural(rounds as usize),
        plural(duts)
    );
}

/// How much memory the routers of a DUT can take, if their kind limits it.
fn memory(suite: &Suite, dut: &DutConfig) -> Option<String> {
    let role = RouterRole::of(&ports_of(dut, &suite.ports));
    let each = kinds::find(&dut.kind)?.memory_mib(dut, &role)?;
    Some(match dut.topology.as_ref().map_or(1, |topology| topology.routers as u64) {
        1 => format!("up to {each} MiB of memory"),
        routers => format!("{routers} routers with up to {each} MiB of memory each, {} MiB in all", routers * each),
    })
}

/// Formats a place of the role: `p1`, `p1, VLAN tag 0x8100:100`.
fn place_name(suite: &Suite, at: Place, tags: &[VlanTag]) -> String {
    let port = suite.ports.get(at.port).map_or("?", |port| port.name.as_str());
    let tags: Vec<String> = tags.iter().map(|tag| format!("{:#06x}:{}", tag.tpid, tag.vid)).collect();
    match tags.len() {
        0 => port.to_owned(),
        1 => format!("{port}, VLAN tag {}", tags[0]),
        _ => format!("{port}, VLAN tags {}", tags.join(", ")),
    }
}

/// Label switching with P routers, and VRFs.
fn core_rows(suite: &Suite, role: &RouterRole) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let name = |port: usize| suite.ports.get(port).map_or("?", |port| port.name.as_str());
    for link in role.core.iter().flat_map(|core| &core.links) {
        let words: Vec<&str> = link.protocols.iter().map(|protocol| protocol.word()).collect();
        let text = format!("{} with {} (router {})", words.join(", "), link.neighbour, link.neighbour_id);
        rows.push(row([name(link.port), "P router", &text]));
        if let Some(pe) = link.pe.filter(|_| !role.vrfs.is_empty()) {
            let ipv6 = if role.vrfs.iter().any(|vrf| vrf.ipv6.is_some()) { " and VPN-IPv6" } else { "" };
            let text = format!("AS {PROVIDER_AS}: {pe} behind it; VPN-IPv4{ipv6} routes, internal");
            rows.push(row([name(link.port), "BGP neighbour", &text]));
        }
    }
    for of_port in role.vrfs.chunk_by(|a, b| a.port == b.port) {
        let [first, .., last] = of_port else {
            let first = of_port[0];
            rows.push(row([name(first.port), "VRF", &vrf_text(&first, &first)]));
            continue;
        };
        rows.push(row([name(first.port), "VRFs", &vrf_text(first, last)]));
    }
    if let Some(core) = &role.core {
        let vpn = if role.vrfs.is_empty() { String::new() } else { format!(", BGP in AS {PROVIDER_AS}") };
        let timers =
            format!("OSPF point to point in area 0, Hellos every {OSPF_HELLO_S} s, dead after {OSPF_DEAD_S} s");
        rows.push(row([
            "the router",
            "loopback",
            &format!("{}/32, router ID and LSR-ID; {timers}{vpn}", core.loopback),
        ]));
    }
    rows
}

/// Consecutive VRFs on VLANs of one port.
fn vrf_text(first: &VrfRole, last: &VrfRole) -> String {
    let range = |a: String, b: String| if a == b { a } else { format!("{a} to {b}") };
    let links: Vec<_> =
        first.links().map(|link| format!("{}/{}, CE router {}", link.local, link.prefix_len, link.ce)).collect();
    format!(
        "{} on VLAN {}: {} (AS {}{}), RD {}, route target {}",
        range(first.name(), last.name()),
        range(first.vid.to_string(), last.vid.to_string()),
        links.join("; "),
        first.ce_as,
        if first.bfd { ", BFD" } else { "" },
        range(first.distinguisher.to_string(), last.distinguisher.to_string()),
        range(first.target.to_string(), last.target.to_string()),
    )
}

fn what_is_needed(suite: &Suite, role: &RouterRole) {
    out!(
        "\nHow to configure the router (--config frr, bird, linux, vyos, eos, ios-xe, iosxr, junos, sros or routeros prints a configuration)"
    );
    let mut rows = Vec::new();
    for (at, tags, addresses) in role.places() {
        let name = place_name(suite, at, tags);
        for address in addresses {
            rows.push(row([&name, "address", &format!("{}/{}", address.address, address.prefix_len)]));
        }
        for route in role.routes.iter().filter(|route| route.at == at) {
            let (network, length) = route.prefix;
            rows.push(row([&name, "static route", &format!("{network}/{length} via {}", route.via)]));
        }
        for group in role.bgp.iter().flat_map(|bgp| &bgp.groups).filter(|group| group.at == at) {
            let peers = match group.peers.as_slice() {
                [first, .., last] => format!("{first} to {last} ({})", group.peers.len()),
                [only] => only.to_string(),
                [] => continue,
            };
            let client = if group.internal { ", client of its route reflector" } else { "" };
            let text = format!("AS {}: {peers}; {}{client}", group.asn, group.family);
            rows.push(row([&name, "BGP neighbour", &text]));
        }
        for entry in role.labels.iter().filter(|entry| entry.at == at) {
            let text = format!("{}: {}, to {}", entry.label, label_work(true, &entry.out), entry.via);
            rows.push(row([&name, "label", &text]));
        }
        for route in role.pushed.iter().filter(|route| route.at == at) {
            let (network, length) = route.prefix;
            let text = format!("{network}/{length}: {}, to {}", label_work(false, &route.out), route.via);
            rows.push(row([&name, "label", &text]));
        }
    }
    rows.extend(core_rows(suite, role));
    if let Some(bgp) = &role.bgp {
        let mut text = format!(
            "AS {}, Hold Time {} s; advertise every route of every neighbour to all others",
            bgp.asn,
            bgp.hold.as_secs()
        );
        if bgp.next_hop_self {
            text += "; itself as next hop for internal neighbours";
        }
        match bgp.routes {
            RouteKind::Unicast => {}
            RouteKind::Labelled => text += "; labelled unicast routes (RFC 8277)",
            RouteKind::Vpn => text += "; VPN routes (RFC 4364)",
        }
        if bgp.protection.md5.is_some() {
            text += "; TCP MD5 with the key of the suite";
        }
        if bgp.protection.gtsm {
            text += "; GTSM";
        }
        rows.push(row(["the router", "BGP", &text]));
    }
    columns(&rows);
}
