//! RIBs of real daemons as MRT files: emulated routers advertise routes to them, and they write their tables.

use crate::daemon::{self, LINKS};
use crate::plan;
use crate::speaker::{Speaker, until};
use drophammer_emulation::bgp::{NextHops, Packing, SessionConfig};
use drophammer_lab::Netns;
use drophammer_model::trial::Family;
use drophammer_testbed::mrt;
use drophammer_wire::bgp::AfiSafi;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Daemon, whether it is configured to write path identifiers, name of the file that is kept.
const FILES: [(&str, bool, &str); 4] = [
    ("bird", false, "bird.mrt"),
    ("bird", true, "bird-paths.mrt"),
    ("frr", false, "frr.mrt.gz"),
    ("openbgpd", false, "openbgpd.mrt.bz2"),
];

/// AS of the daemon.
const DAEMON: u32 = 65000;
/// Port and family of each session.
const SESSIONS: [(usize, Family); 3] = [(0, Family::Ipv4), (0, Family::Ipv6), (1, Family::Ipv4)];

fn addresses(port: usize, family: Family) -> Result<[IpAddr; 2], String> {
    let [daemon, router] = LINKS[port][family as usize];
    Ok([daemon.parse::<IpAddr>().map_err(|e| e.to_string())?, router.parse().map_err(|_| "an address")?])
}

fn config(kind: &str, paths: bool, file: &str, socket: &str) -> String {
    let mut text = String::new();
    let asn = DAEMON;
    let _ = match kind {
        "bird" => {
            let paths = if paths { "always add path;" } else { "" };
            writeln!(
                text,
                "router id 198.18.0.1;\nprotocol device {{}}\n\
                 protocol mrt {{ table \"master*\"; filename \"{file}\"; period 1; {paths} }}"
            )
        }
        "frr" => writeln!(
            text,
            "dump bgp routes-mrt {file} 1\nrouter bgp {asn}\n bgp router-id 198.18.0.1\n no bgp ebgp-requires-policy\n \
             no bgp default ipv4-unicast"
        ),
        _ => writeln!(
            text,
            "AS {asn}\nrouter-id 198.18.0.1\nfib-update no\nsocket \"{socket}\"\ndump table-v2 \"{file}\" 1\n\
             allow from any\nallow to any"
        ),
    };
    for (port, family) in SESSIONS {
        let ([daemon, router], peer) = (LINKS[port][family as usize], plan::ROUTERS[port]);
        let word = if family == Family::Ipv4 { "ipv4" } else { "ipv6" };
        let _ = match kind {
            "bird" => writeln!(
                text,
                "protocol bgp {{ local {daemon} as {asn}; neighbor {router} as {peer}; passive; \
                 {word} {{ import all; export none; }}; }}"
            ),
            "frr" => writeln!(
                text,
                " neighbor {router} remote-as {peer}\n neighbor {router} passive\n address-family {word} unicast\n  \
                 neighbor {router} activate\n exit-address-family"
            ),
            _ => {
                let announce = if family == Family::Ipv4 { ["unicast", "none"] } else { ["none", "unicast"] };
                writeln!(
                    text,
                    "neighbor {router} {{\n remote-as {peer}\n local-address {daemon}\n passive\n announce IPv4 {}\n \
                     announce IPv6 {}\n}}",
                    announce[0], announce[1]
                )
            }
        };
    }
    text
}

/// Writes all files into `folder`.
pub fn record([netns, routers]: &[Netns; 2], folder: &Path) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|e| e.to_string())?;
    for (kind, paths, name) in FILES {
        let work = tempfile::tempdir().map_err(|e| e.to_string())?;
        let [dump, socket] = ["rib.mrt", "bgpd.sock"].map(|name| work.path().join(name));
        let text = config(kind, paths, &dump.display().to_string(), &socket.display().to_string());
        let daemon = daemon::start(netns, kind, work.path(), &text)?;
        let begun = Instant::now();
        let mut speakers = Vec::new();
        for (port, family) in SESSIONS {
            let id = Ipv4Addr::new(100, 64, port as u8, 1 + family as u8);
            let mut config = SessionConfig::new(plan::ROUTERS[port], DAEMON, id);
            config.families = vec![if family == Family::Ipv4 { AfiSafi::IPV4_UNICAST } else { AfiSafi::IPV6_UNICAST }];
            config.connect_retry = Duration::from_millis(200);
            config.idle_hold = Duration::from_millis(200);
            let [there, own] = addresses(port, family)?;
            let hops = match own {
                IpAddr::V4(own) => NextHops { ipv4: Some(own), ..NextHops::default() },
                IpAddr::V6(own) => NextHops { ipv6: Some(own), ..NextHops::default() },
            };
            speakers.push(Speaker::start(routers, config, there, hops, begun));
        }
        let limit = Duration::from_secs(60);
        until(&mut speakers, &format!("sessions with {kind}"), limit, |all| all.iter().all(Speaker::established))?;
        for (speaker, (port, family)) in speakers.iter_mut().zip(SESSIONS) {
            let routes = Arc::new(plan::routes(family));
            let count = if port == 0 { routes.len() } else { plan::SECOND };
            speaker.adj_rib_out.advertise(routes, 0..count, Packing::default());
        }
        // A file is complete when every route is in it; before that it may be partly written.
        let wanted = SESSIONS.map(|(port, family)| if port == 0 { plan::routes(family).len() } else { plan::SECOND });
        let (mut whole, copy) = (Vec::new(), work.path().join("copy.mrt"));
        until(&mut speakers, &format!("a file of {kind} with {wanted:?} routes"), limit, |_| {
            let Ok(bytes) = fs::read(&dump) else { return false };
            let found = |(port, family): (usize, Family)| {
                mrt::read(&copy, family, mrt::PeerChoice::As(plan::ROUTERS[port])).map_or(0, |(table, _)| table.len())
            };
            let right = fs::write(&copy, &bytes).is_ok() && SESSIONS.map(found) == wanted;
            if right {
                whole = bytes;
            }
            right
        })
        .map_err(|e| format!("{e}; {:?}", mrt::peers(&dump)))?;
        let packed = match name.rsplit('.').next() {
            Some("gz") => {
                let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
                out.write_all(&whole).and_then(|()| out.finish())
            }
            Some("bz2") => {
                let mut out = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::best());
                out.write_all(&whole).and_then(|()| out.finish())
            }
            _ => Ok(whole),
        };
        let packed = packed.map_err(|e| e.to_string())?;
        fs::write(folder.join(name), &packed).map_err(|e| e.to_string())?;
        println!("{name}: {} bytes, by {}", packed.len(), daemon.version);
    }
    Ok(())
}
