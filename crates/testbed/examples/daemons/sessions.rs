//! Sessions of two emulated routers with a daemon between them, message by message.

use crate::daemon;
use crate::scenes::{self, DAEMON, DAEMON_AS, RECORDINGS, ROUTERS, Scene};
use crate::speaker::{Speaker, until};
use drophammer_lab::Netns;
use drophammer_model::routes::Change;
use drophammer_wire::bgp::AfiSafi;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// freeRtr starts in a virtual machine of Java, which takes half a minute on a busy machine.
const LIMIT: Duration = Duration::from_secs(90);

fn frr(scene: Scene) -> String {
    let mut text = format!(
        "router bgp {DAEMON_AS}\n bgp router-id 198.18.0.1\n no bgp ebgp-requires-policy\n no bgp default ipv4-unicast\n \
         bgp graceful-restart stalepath-time 60\n no bgp suppress-duplicates\n"
    );
    let families: &[&str] = match scene {
        Scene::Labelled => &["ipv4 labeled-unicast", "ipv6 labeled-unicast"],
        Scene::SixPe => &["ipv6 labeled-unicast"],
        Scene::Vpn | Scene::Vrfs => &["ipv4 vpn", "ipv6 vpn"],
        _ => &["ipv4 unicast"],
    };
    for (i, router) in ROUTERS.iter().enumerate() {
        let asn = scenes::asn(scene, i);
        let _ = writeln!(
            text,
            " neighbor {router} remote-as {asn}\n neighbor {router} passive\n neighbor {router} advertisement-interval 0"
        );
    }
    for family in families {
        let _ = writeln!(text, " address-family {family}");
        for (i, router) in ROUTERS.iter().enumerate() {
            let _ = writeln!(text, "  neighbor {router} activate");
            if scene.is_internal() {
                let _ = writeln!(text, "  neighbor {router} route-reflector-client");
            }
            if scene == Scene::Paths && i == 1 {
                let _ = writeln!(text, "  neighbor {router} addpath-tx-all-paths");
            }
        }
        let _ = writeln!(text, " exit-address-family");
    }
    text
}

fn bird(scene: Scene) -> String {
    let mut text =
        "log stderr all;\nrouter id 198.18.0.1;\nprotocol device {}\nvpn4 table vpn4s;\nvpn6 table vpn6s;\n".to_owned();
    for (i, (router, own)) in ROUTERS.iter().zip(DAEMON).enumerate() {
        let body = "import all; export all;";
        let channels = match scene {
            Scene::Labelled => format!("ipv4 mpls {{ {body} }}; ipv6 mpls {{ {body} }};"),
            // BIRD treats an IPv4-mapped next hop as IPv4, and accepts it for IPv6 routes only with this option.
            Scene::SixPe => format!("ipv6 mpls {{ {body} extended next hop on; }};"),
            Scene::Vpn | Scene::Vrfs => {
                format!(
                    "vpn4 mpls {{ table vpn4s; {body} }}; vpn6 mpls {{ table vpn6s; {body} extended next hop on; }};"
                )
            }
            Scene::Paths => format!("ipv4 {{ {body} add paths on; }};"),
            _ => format!("ipv4 {{ {body} }};"),
        };
        let reflect = if scene.is_internal() { "rr client; direct;" } else { "" };
        let asn = scenes::asn(scene, i);
        let _ = writeln!(
            text,
            "protocol bgp {{ local {own} as {DAEMON_AS}; neighbor {router} as {asn}; passive; {reflect} \
             enable extended messages on; graceful restart on; {channels} }}"
        );
    }
    text
}

fn openbgpd(scene: Scene, socket: &str) -> String {
    let mut text = format!(
        "AS {DAEMON_AS}\nrouter-id 198.18.0.1\nfib-update no\nsocket \"{socket}\"\nallow from any\nallow to any\n"
    );
    for (i, (router, own)) in ROUTERS.iter().zip(DAEMON).enumerate() {
        let asn = scenes::asn(scene, i);
        let _ = writeln!(text, "neighbor {router} {{\n remote-as {asn}\n local-address {own}\n passive");
        let _ = match scene {
            Scene::Vpn | Scene::Vrfs => {
                writeln!(text, " announce IPv4 vpn\n announce IPv6 vpn\n route-reflector")
            }
            Scene::Paths => writeln!(text, " announce add-path recv yes\n announce add-path send all"),
            _ => Ok(()),
        };
        let _ = writeln!(text, "}}");
    }
    text
}

fn gobgp(scene: Scene) -> String {
    let mut text = format!("[global.config]\n as = {DAEMON_AS}\n router-id = \"198.18.0.1\"\n");
    let families: &[&str] = match scene {
        Scene::Labelled => &["ipv4-labelled-unicast", "ipv6-labelled-unicast"],
        Scene::SixPe => &["ipv6-labelled-unicast"],
        Scene::Vpn | Scene::Vrfs => &["l3vpn-ipv4-unicast", "l3vpn-ipv6-unicast"],
        _ => &["ipv4-unicast"],
    };
    for (i, (router, own)) in ROUTERS.iter().zip(DAEMON).enumerate() {
        let asn = scenes::asn(scene, i);
        let _ = writeln!(
            text,
            "[[neighbors]]\n [neighbors.config]\n  neighbor-address = \"{router}\"\n  peer-as = {asn}\n \
             [neighbors.transport.config]\n  local-address = \"{own}\"\n  passive-mode = true"
        );
        if scene.is_internal() {
            let _ = writeln!(
                text,
                " [neighbors.route-reflector.config]\n  route-reflector-client = true\n  \
                 route-reflector-cluster-id = \"198.18.0.1\""
            );
        }
        if scene == Scene::Restart {
            let _ = writeln!(text, " [neighbors.graceful-restart.config]\n  enabled = true\n  restart-time = 60");
        }
        for family in families {
            let _ = writeln!(
                text,
                " [[neighbors.afi-safis]]\n  [neighbors.afi-safis.config]\n   afi-safi-name = \"{family}\""
            );
            if scene == Scene::Paths {
                let _ = writeln!(text, "  [neighbors.afi-safis.add-paths.config]\n   receive = true\n   send-max = 8");
            }
            if scene == Scene::Restart {
                let _ = writeln!(text, "  [neighbors.afi-safis.mp-graceful-restart.config]\n   enabled = true");
            }
        }
    }
    text
}

fn freertr(scene: Scene) -> String {
    let families = match scene {
        Scene::Labelled => "lab olab",
        Scene::SixPe => "olab",
        Scene::Vpn | Scene::Vrfs => "vpnuni ovpnuni",
        _ => "uni",
    };
    let mut text =
        format!("router bgp4 1\n vrf v1\n address {families}\n local-as {DAEMON_AS}\n router-id 198.18.0.1\n");
    for (i, router) in ROUTERS.iter().enumerate() {
        let asn = scenes::asn(scene, i);
        for line in
            [&format!("remote-as {asn}"), "connection-mode passive", "send-comm all", "advertisement-interval-tx 0"]
        {
            let _ = writeln!(text, " neigh {router} {line}");
        }
        if scene.is_internal() {
            let _ = writeln!(text, " neigh {router} route-reflector-client");
        }
    }
    text + " exit\nend\n"
}

/// One recording, as text.
///
/// # Errors
/// If the daemon does not pass on what it should within [`LIMIT`].
pub fn one([netns, routers]: &[Netns; 2], kind: &str, scene: Scene) -> Result<String, String> {
    let work = tempfile::tempdir().map_err(|e| e.to_string())?;
    let text = match kind {
        "frr" => frr(scene),
        "bird" => bird(scene),
        "gobgp" => gobgp(scene),
        "freertr" => freertr(scene),
        _ => openbgpd(scene, &work.path().join("bgpd.sock").display().to_string()),
    };
    let daemon = daemon::start(netns, kind, work.path(), &text)?;
    let begun = Instant::now();
    let speaker = |i: usize| {
        let config = scenes::config(scene, i, false);
        Speaker::start(routers, config, DAEMON[i].into(), scenes::next_hops(scene, i), begun)
    };
    let mut all = [speaker(0), speaker(1)];
    until(&mut all, "both sessions", LIMIT, |all| all.iter().all(Speaker::established))
        .map_err(|e| format!("{e}\n{}", logs(work.path())))?;
    let now = all[1].now();
    let ids = scenes::expect(scene, &mut all[1].adj_rib_in, now);
    scenes::say(scene, &mut all[0].adj_rib_out, false);
    let right =
        |s: &Speaker<'_>| ids.iter().all(|id| s.adj_rib_in.is_complete(*id) && s.adj_rib_in.report(*id).is_right());
    let told = |s: &Speaker<'_>| ids.iter().map(|id| s.adj_rib_in.report(*id)).collect::<Vec<_>>();
    let whole = |s: &Speaker<'_>| match scene {
        Scene::Paths => s.adj_rib_in.totals().announcements >= 40,
        _ => right(s),
    };
    let arrived = until(&mut all, "all routes at router 1", LIMIT, |all| whole(&all[1]));
    arrived.map_err(|e| format!("{e}: {:?} {:?}\n{}", told(&all[1]), all[1].adj_rib_in.totals(), logs(work.path())))?;
    match scene {
        Scene::Refresh => {
            let before = all[1].session.received().route_refreshes;
            if !all[1].session.request_refresh(AfiSafi::IPV4_UNICAST) {
                return Err("it takes no ROUTE-REFRESH".into());
            }
            let enhanced = all[1].session.negotiated().is_some_and(|n| n.enhanced_route_refresh);
            let marks = before + if enhanced { 2 } else { 0 };
            until(&mut all, "all routes again", LIMIT, |all| {
                let again = ids.iter().all(|id| all[1].adj_rib_in.report(*id).received >= 80);
                again && right(&all[1]) && all[1].session.received().route_refreshes >= marks
            })
            .map_err(|e| format!("{e}: {:?}\n{}", all[1].session.received(), logs(work.path())))?;
        }
        Scene::Restart => {
            all[0].crash(scenes::config(scene, 0, true));
            until(&mut all, "the session again", LIMIT, |all| all[0].established())?;
            if !right(&all[1]) || all[1].adj_rib_in.totals().withdrawals > 0 {
                return Err(format!("routes went during the restart: {:?}", told(&all[1])));
            }
            scenes::say(scene, &mut all[0].adj_rib_out, true);
            until(&mut all, "the other half gone", LIMIT, |all| all[1].adj_rib_in.totals().withdrawals >= 20)
                .map_err(|e| format!("{e}: {:?}", told(&all[1])))?;
        }
        Scene::Vrfs => {
            let (vrfs, part) = scenes::FLAPPING;
            for (change, present) in [(Change::Withdraw, false), (Change::Advertise, true)] {
                let now = all[1].now();
                for id in &ids {
                    all[1].adj_rib_in.change_vpn(now, *id, vrfs.clone(), part.clone(), present);
                }
                scenes::flap(&mut all[0].adj_rib_out, change);
                until(&mut all, "a part withdrawn or advertised again", LIMIT, |all| right(&all[1]))
                    .map_err(|e| format!("{e}: {change:?} {:?}\n{}", told(&all[1]), logs(work.path())))?;
            }
        }
        _ => {}
    }
    let mut lines = Vec::new();
    for (speaker, name) in all.iter().zip(["a", "b"]) {
        for (at, theirs, bytes) in &speaker.exchanged {
            let who = if *theirs { format!("daemon>{name}") } else { format!("{name}>daemon") };
            let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
            lines.push((*at, format!("{:.6} {who} {hex}", at.as_secs_f64())));
        }
    }
    lines.sort_by_key(|(at, _)| *at);
    let mut text =
        format!("# {} between two emulated routers, a and b: seconds, from>to, whole message.\n", daemon.version);
    lines.iter().for_each(|(_, line)| text.push_str(&format!("{line}\n")));
    Ok(text)
}

fn logs(folder: &Path) -> String {
    let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|f| f.path());
    let logs = files.filter(|p| p.extension().is_some_and(|e| e == "log"));
    logs.map(|p| fs::read_to_string(p).unwrap_or_default()).collect()
}

/// Makes the recordings whose name contains `filter`.
pub fn record(netns: &[Netns; 2], folder: &Path, filter: &str) -> Result<(), String> {
    let mut failed = Vec::new();
    for (name, kind, scene) in RECORDINGS.into_iter().filter(|(name, ..)| name.contains(filter)) {
        match one(netns, kind, scene) {
            Ok(text) => {
                fs::write(folder.join(format!("{name}.txt")), &text).map_err(|e| e.to_string())?;
                println!("{name}: {} bytes", text.len());
            }
            Err(e) => failed.push(format!("{name}: {e}")),
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}
