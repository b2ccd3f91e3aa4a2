//! GoBGP: only a control plane. Without FRR's zebra it puts no routes into the kernel, which forwards by static routes.

use crate::environment::kernel_release;
use crate::namespace_dut::NamespaceDut;
use crate::{Dut, DutKind, LabError, Start, bgp, configuration, kinds, process, router};
use drophammer_model::capabilities::Capabilities;
use drophammer_model::registry::KindSpec;
use drophammer_model::role::{BgpRole, RouterRole};
use drophammer_model::suite::DutConfig;
use serde_json::Value;
use std::net::IpAddr;

static SPEC: KindSpec = KindSpec {
    name: "gobgp",
    summary: "GoBGP in a network namespace, control plane only: its BGP routes do not reach the kernel, which forwards by \
              static routes",
    capabilities: Capabilities { bgp: true, bgp_protection: true, label_reflection: true, ..kinds::IN_NAMESPACE },
    needs: &[("gobgpd", "gobgpd"), ("gobgp", "gobgpd"), ("ip", "iproute2"), ("ethtool", "ethtool")],
    params: kinds::CONTROL_PLANE_PARAMS,
};

const TEMPLATE: &str = include_str!("../../templates/gobgpd.conf.j2");
const FILE: &str = "gobgpd.conf";

/// Kind `gobgp`.
pub struct GoBgp;

impl DutKind for GoBgp {
    fn spec(&self) -> &'static KindSpec {
        &SPEC
    }

    fn configuration(&self, dut: &DutConfig, role: &RouterRole) -> Result<Vec<(String, String)>, LabError> {
        let text = kinds::of_bgp_alone(TEMPLATE, dut, role)?;
        Ok(vec![router::routes_file(role), (FILE.into(), text)])
    }

    fn start(&self, start: Start<'_>) -> Result<Box<dyn Dut>, LabError> {
        let Start { lab, dut, role, work_dir, stop } = start;
        let program = process::find("gobgpd", "gobgpd")?;
        let control = process::find("gobgp", "gobgpd")?;
        let mark = lab.shared().mark.clone();
        let told = process::version(process::command(&program, &mark), "--version")?;
        let version = format!("{}, Linux {}", told.replace("gobgpd version", "GoBGP"), kernel_release());
        let state = lab.shared().fresh_state(&dut.name)?;

        let mut router = NamespaceDut::with_links(lab, dut, &SPEC, role, version)?;
        // Static routes to the networks behind the ports, as with all other kinds.
        router.add_routes()?;
        let configs = router.keep(work_dir, &state, role, &|role| self.configuration(dut, role))?;
        let socket = format!("unix://{}", state.join("gobgpd.sock").display());
        let mut command = router.netns().command(&program);
        command.arg("-f").arg(configs.join(FILE)).args(["-p", "--pprof-disable", "--api-hosts", &socket]);
        router.daemon("gobgpd", command, work_dir)?;
        // The socket is a file, so the client needs no namespace.
        let ask = move || {
            let mut command = process::command(&control, &mark);
            command.args(["--target", &socket, "--json", "neighbor"]);
            process::output(command, None).map_or_else(|e| Err(e.to_string()), |told| neighbours_in(&told))
        };
        if let Some(bgp) = &role.bgp {
            // It listens before it has read the neighbours, and closes the connections of those that it does not know yet.
            let own = configuration::is_own(dut);
            router.wait(stop, |_| Ok(ask().map_or_else(Some, |all| unknown(&all, bgp, own).or_else(|| idle(&all)))))?;
        }
        let session = ask.clone();
        router.idle = Some(Box::new(move || ask().map_or_else(Some, |all| idle(&all))));
        router.session = Some(Box::new(move |_, peer| match session() {
            Ok(all) => {
                let it = all.iter().find(|neighbour| neighbour.address == peer.peer);
                bgp::session_down(peer, it.map(|neighbour| neighbour.state))
            }
            Err(e) => Some(e),
        }));
        router.with_agent(lab, dut, work_dir, stop)?;
        router.ready(stop)
    }
}

/// A neighbour, as gobgpd reports it.
#[derive(Debug)]
struct Neighbour {
    address: IpAddr,
    /// Its state (RFC 4271 section 8.2.2).
    state: &'static str,
    /// True if the user's configuration keeps it down.
    is_shut: bool,
}

/// The states in the order of their numbers in GoBGP's API, where 0 is unknown.
const STATES: [&str; 7] = ["unknown", IDLE, "Connect", "Active", "OpenSent", "OpenConfirm", "Established"];
const IDLE: &str = "Idle";

/// The neighbours in the answer to `gobgp --json neighbor`. Fields that are 0 are missing there.
fn neighbours_in(told: &str) -> Result<Vec<Neighbour>, String> {
    let all: Vec<Value> =
        serde_json::from_str(told).map_err(|e| format!("gobgp answers no list of neighbours: {e}"))?;
    let neighbour = |it: &Value| {
        let number = |key: &str| it["state"][key].as_u64().unwrap_or_default();
        Some(Neighbour {
            address: it["state"]["neighbor_address"].as_str()?.parse().ok()?,
            state: STATES.get(number("session_state") as usize).copied().unwrap_or(STATES[0]),
            is_shut: number("admin_state") > 0,
        })
    };
    Ok(all.iter().filter_map(neighbour).collect())
}

/// Returns a message while gobgpd does not know all neighbours of the role. Only the user knows those of an own configuration.
fn unknown(all: &[Neighbour], bgp: &BgpRole, own: bool) -> Option<String> {
    let wanted = bgp::neighbours(bgp) + bgp.core.len();
    (!own && all.len() < wanted).then(|| format!("gobgpd knows {} of {wanted} neighbours", all.len()))
}

/// Returns a message about a neighbour in state Idle: gobgpd closes its connections. A session that ended is in this state for 5 s.
fn idle(all: &[Neighbour]) -> Option<String> {
    let idle = all.iter().find(|neighbour| neighbour.state == IDLE && !neighbour.is_shut)?;
    Some(format!("gobgpd keeps its neighbour {} in state Idle", idle.address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::tests_support::{
        dut, first_of_mesh, one_internal_port, reflector, three_ports, two_ports, two_ports_with_bgp,
        two_protected_ports,
    };

    use drophammer_model::routes::RouteKind;

    fn render(role: &RouterRole) -> String {
        configuration::render(TEMPLATE, "gobgp", role).unwrap()
    }

    fn count(text: &str, line: &str) -> usize {
        text.lines().filter(|l| *l == line).count()
    }

    #[test]
    fn the_configuration_holds_every_peer() {
        let text = render(&RouterRole::of(&two_ports_with_bgp(1000)));
        assert_eq!((count(&text, "[[neighbors]]"), count(&text, "passive-mode = true")), (4000, 4000));
        assert_eq!(count(&text, "afi-safi-name = \"ipv6-unicast\""), 2000);
        for line in [
            "as = 65000",
            "local-address = \"2001:2:0:1::1\"",
            "neighbor-address = \"198.19.1.2\"",
            "hold-time = 90",
            "keepalive-interval = 30",
        ] {
            assert!(count(&text, line) > 0, "{line}");
        }
        assert!(!text.contains("route-reflector") && !text.contains("policy"), "all are external");
    }

    #[test]
    fn it_needs_bgp() {
        let error = GoBgp.configuration(&dut("g", "gobgp", Default::default()), &RouterRole::of(&two_ports()));
        let error = error.unwrap_err().to_string();
        assert!(error.contains("no `bgp:`") && error.contains("add `bgp: {}`"), "{error}");
    }

    #[test]
    fn internal_peers_are_clients() {
        for own in [false, true] {
            let text = render(&RouterRole::of(&one_internal_port(own)));
            assert_eq!(count(&text, "route-reflector-client = true"), 4);
            let inside = text.split_once("neighbor-info-list = [\n").and_then(|(_, rest)| rest.split_once("\n]\n"));
            let inside: Vec<_> = inside.map_or(Vec::new(), |(list, _)| list.lines().map(str::trim).collect());
            let clients = ["\"198.18.1.2\",", "\"198.18.1.3\",", "\"2001:2::2\",", "\"2001:2::3\","];
            assert_eq!(inside, if own { &clients[..] } else { &[] });
            assert_eq!(count(&text, "set-next-hop = \"self\""), usize::from(own));
        }
    }

    #[test]
    fn sessions_carry_the_routes_of_the_suite() {
        for (routes, ipv4, ipv6) in [
            (RouteKind::Unicast, "ipv4-unicast", "ipv6-unicast"),
            (RouteKind::Labelled, "ipv4-labelled-unicast", "ipv6-labelled-unicast"),
            (RouteKind::Vpn, "l3vpn-ipv4-unicast", "l3vpn-ipv6-unicast"),
        ] {
            let text = render(&reflector(routes));
            let names = [ipv4, ipv6].map(|name| count(&text, &format!("afi-safi-name = \"{name}\"")));
            assert_eq!((names, count(&text, "[[neighbors.afi-safis]]")), ([2, 2], 4), "{routes}");
        }
    }

    #[test]
    fn routers_of_a_system_are_no_clients_of_each_other() {
        let text = render(&first_of_mesh(&three_ports(two_ports_with_bgp(1))));
        assert_eq!((count(&text, "[[neighbors]]"), count(&text, "passive-mode = true")), (2 + 4, 2));
        assert_eq!(count(&text, "neighbor-address = \"100.127.255.3\""), 1);
        assert_eq!((text.matches("route-reflector").count(), count(&text, "\t\"100.127.255.3\",")), (0, 1));
    }

    #[test]
    fn sessions_are_protected_and_kept_files_do_not_show_the_key() {
        let role = RouterRole::of(&two_protected_ports());
        let text = render(&role);
        assert_eq!(count(&text, "auth-password = \"sesame\""), 4);
        assert_eq!(count(&text, "[neighbors.ttl-security.config]"), 4);
        let kept = render(&role.without_secrets());
        assert!(!kept.contains("sesame") && kept.contains("auth-password = \"<secret>\"\n"), "{kept}");
    }

    #[test]
    fn neighbours_are_known_and_not_idle() {
        let told = |states: [&str; 3]| {
            let all: Vec<_> = ["192.0.2.1", "192.0.2.2", "2001:db8::1"]
                .iter()
                .zip(states)
                .map(|(address, state)| {
                    format!("{{\"conf\": {{}}, \"state\": {{\"neighbor_address\": \"{address}\"{state}}}}}")
                })
                .collect();
            neighbours_in(&format!("[{}]", all.join(", "))).unwrap()
        };
        let (up, shut) = (", \"session_state\": 6", ", \"session_state\": 1, \"admin_state\": 1");
        let all = told([up, ", \"session_state\": 1", ""]);
        assert_eq!(all.iter().map(|n| n.state).collect::<Vec<_>>(), ["Established", "Idle", "unknown"]);
        assert_eq!(idle(&all).as_deref(), Some("gobgpd keeps its neighbour 192.0.2.2 in state Idle"));
        let all = told([shut, up, ", \"session_state\": 99"]);
        assert_eq!((idle(&all), all[2].state), (None, "unknown"));
        let bgp = RouterRole::of(&two_ports_with_bgp(1)).bgp.unwrap();
        assert_eq!(unknown(&all, &bgp, false).as_deref(), Some("gobgpd knows 3 of 4 neighbours"));
        assert_eq!((unknown(&all, &bgp, true), neighbours_in("[]").unwrap().len()), (None, 0));
        assert!(neighbours_in("context deadline exceeded").is_err());
    }
}
