//! The configuration that the user's own router needs for a role. The user loads it by hand before a run with kind
//! `external`.
//!
//! For FRR and BIRD it is the configuration of the lab's own kinds, plus the interface addresses, which the lab otherwise
//! sets. The configurations for other vendors come from the same role, but cannot be tested here.

use crate::configuration::render_for;
use crate::kinds::{bird, frr};
use crate::router::{Names, address_lines, label_lines, pushed_lines, vlan_lines};
use crate::{LabError, label_edge};
use drophammer_model::capabilities::Need;
use drophammer_model::role::RouterRole;
use drophammer_model::trial::Family;

/// The language of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// FRRouting.
    Frr,
    /// BIRD 2.
    Bird,
    /// Cisco IOS XR.
    IosXr,
    /// Juniper Junos.
    Junos,
    /// Nokia SR OS, MD-CLI.
    SrOs,
    /// Commands of ip(8) and sysctl(8).
    Linux,
    /// VyOS.
    VyOs,
    /// Arista EOS.
    Eos,
    /// Cisco IOS XE.
    IosXe,
    /// MikroTik RouterOS 7.
    RouterOs,
}

/// Number of neighbours that the kernel keeps by default, per family (`gc_thresh3`, ip-sysctl of Linux).
const NEIGHBOURS: usize = 1024;

const FRR_INTERFACES: &str = include_str!("../templates/frr-interfaces.conf.j2");
const IOS_XR: &str = include_str!("../templates/iosxr.conf.j2");
const JUNOS: &str = include_str!("../templates/junos.conf.j2");
const SR_OS: &str = include_str!("../templates/sros.conf.j2");
const VY_OS: &str = include_str!("../templates/vyos.conf.j2");
const EOS: &str = include_str!("../templates/eos.conf.j2");
const IOS_XE: &str = include_str!("../templates/iosxe.conf.j2");
const ROUTER_OS: &str = include_str!("../templates/routeros.conf.j2");

/// Placeholder for the interface of port `port` (from 0) if the user gave none. It is short enough for a Linux interface
/// name with a VLAN tag.
pub fn placeholder(port: usize) -> String {
    format!("FILL-IN-{}", port + 1)
}

/// Writes the configuration of router `name` for `role`. The interface to port i is `interfaces[i]`, or [`placeholder`]
/// if `interfaces` is empty. Session keys appear as `<secret>`.
///
/// # Errors
/// [`LabError::Unusable`] if the number of interfaces differs from the number of ports, a name is invalid, or we cannot write the
/// protocols of the role in this language.
pub fn write(language: Language, name: &str, role: &RouterRole, interfaces: &[String]) -> Result<String, LabError> {
    let ports = role.interfaces.len();
    let given: Vec<String> = match interfaces {
        [] => (0..ports).map(placeholder).collect(),
        given => given.to_vec(),
    };
    if given.len() != ports {
        return Err(LabError::unusable(
            format!("{} interfaces for {ports} ports", given.len()),
            "name one interface of the router for each port, in the order of the ports",
        ));
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-_./:".contains(c);
    if let Some(wrong) = given.iter().find(|name| name.is_empty() || !name.chars().all(is_name)) {
        return Err(LabError::unusable(
            format!("`{wrong}` is not a valid interface name"),
            "use only letters, digits and -_./:",
        ));
    }
    refuse_unwritten(language, role)?;
    let role = &role.without_secrets();
    let names = Names::Given(&given);
    let rendered = |template: &str| render_for(template, name, role, names);
    let mut text = match language {
        Language::Frr => {
            let head = in_the_shell("!", &shell_lines(role, names, false), &loading_frr(role));
            head + &rendered(FRR_INTERFACES)? + &rendered(frr::TEMPLATE)?
        }
        Language::Bird => in_the_shell("#", &shell_lines(role, names, true), LOADING_BIRD) + &rendered(bird::TEMPLATE)?,
        Language::IosXr => rendered(IOS_XR)?,
        Language::Junos => rendered(JUNOS)?,
        Language::SrOs => rendered(SR_OS)?,
        Language::Linux => linux(name, role, names),
        Language::VyOs => rendered(VY_OS)?,
        Language::Eos => rendered(EOS)?,
        Language::IosXe => rendered(IOS_XE)?,
        Language::RouterOs => rendered(ROUTER_OS)?,
    };
    if language == Language::Frr {
        for (_, template) in frr::templates(role) {
            text += &rendered(template)?;
        }
    }
    Ok(text)
}

/// Needs of core ports and customers that we can write in a language.
fn written(language: Language) -> &'static [Need] {
    match language {
        Language::IosXr | Language::Junos | Language::SrOs => {
            &[Need::Ospf, Need::Ldp, Need::Rsvp, Need::Bfd, Need::Vrfs]
        }
        Language::Frr => &[Need::Ospf, Need::Ldp, Need::Bfd, Need::Vrfs],
        Language::Bird => &[Need::Ospf, Need::Bfd],
        Language::Linux | Language::VyOs | Language::Eos | Language::IosXe | Language::RouterOs => &[],
    }
}

/// Refuses a role that we cannot write in this language: needs of core ports and customers, and routes with labels.
fn refuse_unwritten(language: Language, role: &RouterRole) -> Result<(), LabError> {
    if role.needs().contains(&Need::LabelReflection) && language != Language::Bird {
        return Err(LabError::unusable(
            "the sessions carry routes with labels, for which there is no configuration in this language",
            "choose bird, or configure the router by hand from that",
        ));
    }
    let all = written(Language::Junos);
    let unwritten = role.needs().into_iter().find(|need| all.contains(need) && !written(language).contains(need));
    let Some(need) = unwritten else { return Ok(()) };
    let frr = if need == Need::Rsvp { "" } else { ", frr" };
    Err(LabError::unusable(
        format!("the ports need `{need}`, for which there is no configuration in this language"),
        format!("choose iosxr, junos, sros{frr}, or configure the router by hand from one of these"),
    ))
}

/// A script for the router's shell. The kernel speaks no BGP.
fn linux(name: &str, role: &RouterRole, names: Names<'_>) -> String {
    let mut text =
        format!("#!/bin/sh\n# Configuration of {name} for Linux, from the suite. Run it as root: sh FILE\nset -eu\n");
    for line in shell_lines(role, names, true) {
        text += &format!("{line}\n");
    }
    for route in &role.routes {
        let (network, length) = route.prefix;
        let rank = if route.rank > 0 { format!(" metric {}", route.rank) } else { String::new() };
        text +=
            &format!("ip route replace {network}/{length} via {} dev {}{rank}\n", route.via, names.at(role, route.at));
    }
    if let Some(bgp) = &role.bgp {
        text += &format!(
            "# By hand: BGP in AS {}, by a program such as FRR or BIRD (--config frr or bird prints its configuration):\n",
            bgp.asn
        );
        for group in &bgp.groups {
            let peers: Vec<String> = group.peers.iter().map(ToString::to_string).collect();
            text += &format!("#   AS {}: {}\n", group.asn, peers.join(", "));
        }
    }
    text
}

/// How to load the configuration into FRR: `vtysh -f` adds it to the running configuration.
fn loading_frr(role: &RouterRole) -> String {
    let mut more = frr::daemons(role, &[]);
    let daemons = match more.pop() {
        Some(last) => {
            let yes: String = more.iter().chain([&last]).map(|daemon| format!(" {daemon}=yes")).collect();
            let first: String = more.iter().map(|daemon| format!(", {daemon}")).collect();
            format!("zebra, staticd{first} and {last} run ({} in /etc/frr/daemons)", yes.trim_start())
        }
        None => "zebra and staticd run".to_owned(),
    };
    format!("vtysh -f FILE    where {daemons}")
}

/// Command that loads the configuration into BIRD. It replaces the current configuration.
const LOADING_BIRD: &str = "birdc 'configure \"FILE\"'";

/// Lines for the router's shell: everything that the routing daemons do not configure, and the kernel settings that the
/// lab's own routers have.
fn shell_lines(role: &RouterRole, names: Names<'_>, addresses: bool) -> Vec<String> {
    let ip = |line: String| format!("ip {line}");
    let mut lines: Vec<String> = Vec::new();
    for port in 0..role.interfaces.len() {
        lines.push(format!("ip link set {} mtu {} up", names.port(port), label_edge::link_mtu(role, port)));
    }
    lines.extend(vlan_lines(role, names).into_iter().map(ip));
    if addresses {
        lines.extend(address_lines(role, names).into_iter().map(ip));
        lines.push("sysctl -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1".into());
    }
    // With slashes as separators, an interface name can contain dots.
    let interfaces: Vec<String> = role.places().map(|(at, ..)| names.at(role, at)).collect();
    // The kernel uses the larger of the values for `all` and for the interface.
    let unfiltered = interfaces.iter().map(|name| format!(" net/ipv4/conf/{name}/rp_filter=0")).collect::<String>();
    lines.push(format!("sysctl -w net/ipv4/conf/all/rp_filter=0{unfiltered}"));
    lines.extend(neighbour_lines(role));
    if label_edge::switches_labels(role) {
        lines.push("modprobe -a vrf mpls_router mpls_iptunnel".into());
        let settings = label_edge::settings(role, names).into_iter();
        lines.extend(settings.map(|(key, value)| format!("sysctl -w {key}={value}")));
        lines.extend(label_edge::vrf_lines(role, names).into_iter().map(ip));
    }
    if !role.labels.is_empty() || !role.pushed.is_empty() {
        lines.push("modprobe mpls_iptunnel && sysctl -w net.mpls.platform_labels=1048575".into());
        lines.extend(interfaces.iter().map(|name| format!("sysctl -w net/mpls/conf/{name}/input=1")));
        lines.extend(label_lines(role, names).into_iter().map(|line| format!("ip -f mpls {line}")));
        lines.extend(pushed_lines(role, names).into_iter().map(ip));
    }
    lines
}

/// Raises the kernel's neighbour limit if there are more emulated routers than the default allows.
fn neighbour_lines(role: &RouterRole) -> Vec<String> {
    let count = |family| {
        let groups = role.bgp.iter().flat_map(|bgp| &bgp.groups).filter(|group| group.family == family);
        groups.map(|group| group.peers.len()).sum::<usize>()
    };
    let line = |(family, word)| {
        let room = (2 * count(family)).next_power_of_two();
        (count(family) > NEIGHBOURS).then(|| format!("sysctl -w net.{word}.neigh.default.gc_thresh3={room}"))
    };
    [(Family::Ipv4, "ipv4"), (Family::Ipv6, "ipv6")].into_iter().filter_map(line).collect()
}

/// Returns the lines as comments, followed by instructions for loading the rest of the file.
fn in_the_shell(comment: &str, lines: &[String], loading: &str) -> String {
    let block = |title: &str, lines: &[String]| {
        let lines: String = lines.iter().map(|line| format!("{comment}   {line}\n")).collect();
        format!("{comment} {title}\n{lines}{comment}\n")
    };
    block("First, in the shell of the router:", lines) + &block("Then load this file:", &[loading.to_owned()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::tests_support::{
        edge_ports, one_internal_port, reflector, two_ports, two_ports_with_bgp, two_protected_ports, with_vlans,
    };
    use drophammer_model::label_edge::CoreProtocol;
    use drophammer_model::routes::RouteKind;
    use drophammer_model::suite::{LabelConfig, PortConfig};
    use std::path::{Path, PathBuf};
    use std::process::Command;

    const ALL: [Language; 10] = [
        Language::Frr,
        Language::Bird,
        Language::IosXr,
        Language::Junos,
        Language::SrOs,
        Language::Linux,
        Language::VyOs,
        Language::Eos,
        Language::IosXe,
        Language::RouterOs,
    ];

    fn labelled() -> Vec<PortConfig> {
        let mut ports = two_ports();
        ports[1].labels = vec![LabelConfig { label: 100, out: vec![200] }, LabelConfig { label: 101, out: vec![] }];
        ports
    }

    fn roles() -> Vec<RouterRole> {
        let all = [
            two_ports(),
            with_vlans(two_ports()),
            two_ports_with_bgp(3),
            with_vlans(two_ports_with_bgp(1)),
            two_protected_ports(),
            one_internal_port(false),
            one_internal_port(true),
            labelled(),
        ];
        all.iter().map(|ports| RouterRole::of(ports)).collect()
    }

    fn named(language: Language, role: &RouterRole) -> String {
        write(language, "box", role, &["eth1".into(), "eth2".into()]).unwrap()
    }

    #[test]
    fn every_address_route_peer_and_tag_is_in_every_language() {
        for role in roles() {
            for language in ALL {
                let text = named(language, &role);
                let has = |what: &str| assert!(text.contains(what), "{language:?} lacks {what}:\n{text}");
                for (_, tags, addresses) in role.places() {
                    addresses.iter().for_each(|a| has(&a.address.to_string()));
                    tags.iter().for_each(|tag| has(&tag.vid.to_string()));
                }
                for route in &role.routes {
                    has(&format!("{}/{}", route.prefix.0, route.prefix.1));
                    has(&route.via.to_string());
                }
                role.peers().for_each(|peer| has(&peer.to_string()));
                role.labels.iter().for_each(|entry| has(&entry.label.to_string()));
                if let Some(bgp) = &role.bgp {
                    has(&bgp.asn.to_string());
                    bgp.groups.iter().for_each(|group| has(&group.asn.to_string()));
                }
                assert!(text.contains("eth1") && text.contains("eth2") && !text.contains("FILL-IN"), "{text}");
                assert!(!text.contains("sesame") && !text.contains(" d0"), "{language:?}:\n{text}");
                let tried = matches!(language, Language::Frr | Language::Bird | Language::Linux);
                assert_eq!(text.contains("not loaded on a device"), !tried, "{text}");
            }
        }
    }

    /// Roles with core ports and customers, and the languages in which they are written.
    fn edges() -> Vec<(RouterRole, Vec<Language>)> {
        use CoreProtocol::{Bfd, Ldp, Ospf, Rsvp};
        let of = |core: &[CoreProtocol], customers, languages: &[Language]| {
            (RouterRole::of(&edge_ports(core, customers)), languages.to_vec())
        };
        let vendors = [Language::IosXr, Language::Junos, Language::SrOs];
        let (frr, all) =
            ([&vendors[..], &[Language::Frr]].concat(), [&vendors[..], &[Language::Frr, Language::Bird]].concat());
        vec![
            of(&[Ospf, Ldp, Bfd], 2, &frr),
            of(&[Ospf, Ldp, Rsvp], 0, &vendors),
            of(&[Ospf], 0, &all),
            of(&[Ospf, Bfd], 0, &all),
        ]
    }

    #[test]
    fn core_links_and_vrfs_are_written_or_refused() {
        for (role, languages) in edges() {
            for language in ALL {
                if !languages.contains(&language) {
                    let names = ["eth1".to_owned(), "eth2".to_owned()];
                    let error = write(language, "box", &role, &names).unwrap_err().to_string();
                    assert!(error.contains("no configuration in this language") && error.contains("junos"), "{error}");
                    continue;
                }
                let text = named(language, &role);
                let has = |what: &str| assert!(text.contains(what), "{language:?} lacks {what}:\n{text}");
                let core = role.core.as_ref().unwrap();
                has(&core.loopback.to_string());
                for word in core.links.iter().flat_map(|link| &link.protocols) {
                    has(word.word());
                }
                for vrf in &role.vrfs {
                    has(&core.links[0].pe.unwrap().to_string());
                    for part in [vrf.name(), vrf.vid.to_string(), vrf.distinguisher.to_string(), vrf.target.to_string()]
                    {
                        has(&part);
                    }
                    has(&vrf.ce_as.to_string());
                    for link in vrf.links() {
                        has(&link.local.to_string());
                        has(&link.ce.to_string());
                    }
                }
                let count = |c: char| text.matches(c).count();
                assert_eq!(count('{'), count('}'), "{language:?}:\n{text}");
            }
        }
        let (pe, _) = edges().remove(0);
        let text = named(Language::Frr, &pe);
        for line in [
            "!   ip link set eth1 mtu 1508 up",
            "!   sysctl -w net/mpls/conf/eth1/input=1",
            "!   ip link set eth2.102 master v2 up",
            "!   vtysh -f FILE    where zebra, staticd, bfdd, ospfd, ldpd and bgpd run (bfdd=yes ospfd=yes ldpd=yes bgpd=yes in /etc/frr/daemons)",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}:\n{text}");
        }
    }

    #[test]
    fn each_site_has_bfd_over_ipv4_alone() {
        let mut ports = edge_ports(&[CoreProtocol::Ospf, CoreProtocol::Ldp], 2);
        ports[1].customer_bfd = true;
        ports.push(PortConfig { sites_of: Some(1), customers: 1, ..ports[1].clone() });
        let role = RouterRole::of(&ports);
        let names = ["eth1", "eth2", "eth3"].map(str::to_owned);
        for (language, words) in [
            (Language::Frr, &[" bfd\n"][..]),
            (Language::IosXr, &["   bfd fast-detect\n"]),
            (Language::Junos, &["bfd-liveness-detection {"]),
            (Language::SrOs, &["bfd-liveness true\n", " bfd {\n"]),
        ] {
            let text = write(language, "box", &role, &names).unwrap();
            for word in words {
                assert_eq!(text.matches(word).count(), 3, "{language:?}, {word}:\n{text}");
            }
        }
    }

    #[test]
    fn routes_with_labels_are_written_or_refused() {
        let role = reflector(RouteKind::Labelled);
        for language in ALL.into_iter().filter(|language| *language != Language::Bird) {
            let error = write(language, "box", &role, &[]).unwrap_err().to_string();
            assert!(error.contains("no configuration in this language") && error.contains("choose bird"), "{error}");
        }
        assert!(named(Language::Bird, &role).contains("ipv6 mpls {"));
    }

    #[test]
    fn without_names_there_are_placeholders_and_wrong_names_are_refused() {
        let role = RouterRole::of(&two_ports());
        for language in ALL {
            let text = write(language, "box", &role, &[]).unwrap();
            assert!(text.contains("FILL-IN-1") && text.contains("FILL-IN-2"), "{text}");
        }
        let refused = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            write(Language::Frr, "box", &role, &names).unwrap_err().to_string()
        };
        assert!(refused(&["eth1"]).contains("1 interfaces for 2 ports"), "{}", refused(&["eth1"]));
        assert!(refused(&["eth1", "eth2\nip route 0.0.0.0/0 Null0"]).contains("not a valid interface name"));
    }

    #[test]
    fn the_kernel_is_set_for_sub_interfaces_labels_and_many_neighbours() {
        let role = RouterRole::of(&with_vlans(labelled()));
        for language in [Language::Frr, Language::Bird] {
            let text = named(language, &role);
            for setting in [
                "net/ipv4/conf/eth1.s100.200/rp_filter=0",
                "net/mpls/conf/eth1.s100.200/input=1",
                "net/mpls/conf/eth2/input=1",
            ] {
                assert!(text.contains(setting), "{language:?} lacks {setting}:\n{text}");
            }
            assert!(!text.contains("gc_thresh3"), "{text}");
            let many = named(language, &RouterRole::of(&two_ports_with_bgp(600)));
            for family in ["ipv4", "ipv6"] {
                let room = format!("sysctl -w net.{family}.neigh.default.gc_thresh3=4096");
                assert!(many.contains(&room), "{language:?} lacks {room}");
            }
        }
    }

    /// Path of an FRR or BIRD program; `None` if it is not installed.
    fn program(names: &[&str]) -> Option<PathBuf> {
        names.iter().map(Path::new).find(|path| path.exists()).map(Path::to_path_buf)
    }

    /// The parsers of FRR and BIRD accept the generated configurations; skipped where they are not installed.
    #[test]
    fn real_parsers_take_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("router.conf");
        let vtysh = program(&["/usr/bin/vtysh", "/usr/local/bin/vtysh"]);
        let bird = program(&["/usr/sbin/bird", "/usr/local/sbin/bird"]);
        let check = |program: &Path, options: &[&str], text: &str| {
            std::fs::write(&file, text).unwrap();
            let output = Command::new(program).args(options).arg(&file).output().unwrap();
            (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
        };
        for (role, languages) in edges() {
            for (program, options, language) in
                [(&vtysh, &["-C", "-f"], Language::Frr), (&bird, &["-p", "-c"], Language::Bird)]
            {
                let Some(program) = program.as_ref().filter(|_| languages.contains(&language)) else { continue };
                let text = named(language, &role);
                let (good, said) = check(program, options, &text);
                assert!(good && !said.contains("Unknown command"), "{said}\n{text}");
                let wrong = if language == Language::Frr { "ospf area" } else { "ospf v2" };
                let (good, said) = check(program, options, &text.replacen(wrong, "opsf", 1));
                assert!(!good, "a wrong line is found: {said}");
            }
        }
        for role in roles() {
            if let Some(vtysh) = &vtysh {
                let text = named(Language::Frr, &role);
                let (good, said) = check(vtysh, &["-C", "-f"], &text);
                assert!(good && !said.contains("Unknown command"), "{said}\n{text}");
                let (good, said) = check(vtysh, &["-C", "-f"], &text.replacen("ip route", "ip ruote", 1));
                assert!(!good, "a wrong line is found: {said}");
            }
            if let Some(bird) = &bird {
                let text = named(Language::Bird, &role);
                let (good, said) = check(bird, &["-p", "-c"], &text);
                assert!(good, "{said}\n{text}");
                assert!(
                    !check(bird, &["-p", "-c"], &text.replacen("\troute ", "\truote ", 1)).0,
                    "a wrong line is found"
                );
            }
        }
    }
}
