//! OSPF and BFD of an emulated device with FRR and BIRD, in namespaces of the lab. With DROPHAMMER_RECORD set, packets of the small
//! scenes go to `tests/recorded`, which `tests/recorded.rs` replays.

#[path = "../../../lab/tests/anew/mod.rs"]
mod anew;
mod daemon;
mod station;

use anew::{Case, Checked};
use daemon::{link, routes, start};
use drophammer_emulation::bfd::{self, Bfd, SessionConfig};
use drophammer_emulation::ospf::{
    Expected, Externals, InterfaceState, NeighbourState, NetworkType, Networks, Ospf, OspfCommand, OspfConfig, Part,
    Secret, Shape, Topology,
};
use drophammer_emulation::protocol::{Command, Protocol, ProtocolConfig};
use drophammer_emulation::{Device, ospf};
use drophammer_lab::Lab;
use drophammer_port::Clock;
use drophammer_wire::bfd::{State, diagnostic};
use std::net::{IpAddr, Ipv4Addr};
use std::process::ExitCode;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const KEY: &str = "secret-key";

fn temporary() -> Result<tempfile::TempDir, String> {
    tempfile::tempdir().map_err(|e| e.to_string())
}

/// The device at the daemon's link.
fn router(network: NetworkType, priority: u8, md5: bool) -> OspfConfig {
    OspfConfig {
        network,
        priority,
        hello_interval: 1,
        dead_interval: 4,
        retransmit_interval: 2,
        secret: if md5 { Secret::Md5 { key_id: 7, key: KEY.into() } } else { Secret::None },
        ..OspfConfig::new(Ipv4Addr::new(100, 64, 0, 2))
    }
}

/// The daemon's configuration for [`router`].
fn configuration(daemon: &str, network: NetworkType, priority: u8, md5: bool) -> String {
    let broadcast = network == NetworkType::Broadcast;
    if daemon == "frr" {
        let network = if broadcast { "broadcast" } else { "point-to-point" };
        let authentication = match md5 {
            true => format!(" ip ospf authentication message-digest\n ip ospf message-digest-key 7 md5 {KEY}\n"),
            false => String::new(),
        };
        return format!(
            "interface d0\n ip ospf network {network}\n ip ospf hello-interval 1\n ip ospf dead-interval 4\n \
             ip ospf retransmit-interval 2\n ip ospf priority {priority}\n ip ospf area 0\n{authentication}\
             interface lo\n ip ospf area 0\nrouter ospf\n ospf router-id 198.18.0.1\n capability opaque\n"
        );
    }
    let network = if broadcast { "broadcast" } else { "ptp" };
    let authentication = match md5 {
        true => {
            format!("authentication cryptographic; password \"{KEY}\" {{ id 7; algorithm keyed md5; }};")
        }
        false => String::new(),
    };
    format!(
        "router id 198.18.0.1;\nprotocol device {{}}\nprotocol kernel {{ ipv4 {{ import none; export all; }}; }}\n\
         protocol ospf v2 {{ ipv4 {{ import all; export none; }}; area 0 {{ interface \"d0\" {{ type {network}; hello 1; \
         dead 4; retransmit 2; priority {priority}; {authentication} }}; interface \"lo\" {{ stub; }}; }}; }}\n"
    )
}

fn ospf(device: &Device) -> &Ospf {
    device.protocol().expect("the device speaks OSPF")
}

fn is_settled(device: &Device) -> bool {
    let ospf = ospf(device);
    ospf.neighbours().any(|n| n.state == NeighbourState::Full) && ospf.progress().is_settled()
}

fn check(what: &str, right: bool, ospf: &Ospf) -> Checked {
    if right { Ok(()) } else { Err(format!("{what}: {:?}", ospf.state())) }
}

/// An adjacency with nothing behind it; all packets of both sides are recorded.
fn small(lab: &Lab, daemon: &str, network: NetworkType, name: &str) -> Checked {
    let (netns, folder) = (link(lab)?, temporary()?);
    let program = if daemon == "frr" { "ospfd" } else { "bird" };
    let external = Externals {
        networks: Networks { first: [30, 0, 0, 0].into(), length: 24, count: 5, metric: 20 },
        type_2: true,
        tag: 0,
        forwarding: Ipv4Addr::UNSPECIFIED,
    };
    let config = OspfConfig { external: Some(external), ..router(network, 0, false) };
    let mut daemons = start(&netns, program, folder.path(), &configuration(daemon, network, 1, false))?;
    let mut station = station::Station::open(&ProtocolConfig::Ospf(Box::new(config)))?;
    let now = station.now();
    let loopback = Expected::Prefix("203.0.113.1/32".parse().map_err(|_| "a prefix")?);
    let expecting: &mut Ospf = station.device.protocol_mut().ok_or("no OSPF")?;
    expecting.expect(now, [loopback], true);
    station.run("adjacency and its prefix", 40 * SECOND, |device| {
        Ok(is_settled(device) && ospf(device).verification().is_right() && routes(&netns, daemon)? >= 5)
    })?;
    station.command(ospf::NAME, &Command::Ospf(OspfCommand::Withdraw(Part::External(0..5))))?;
    station.run("withdrawn", 20 * SECOND, |device| Ok(is_settled(device) && routes(&netns, daemon)? == 0))?;
    station.keep(name)?;
    let state = ospf(&station.device);
    check("rejected packets", state.rejected().sum() == 0, state)?;
    check("counters", state.state().counter("adjacencies_full") == 1, state)?;
    // A killed daemon counts as down after the dead interval.
    daemons.kill_last()?;
    station.run("down", 12 * SECOND, |device| Ok(ospf(device).neighbours().next().is_none()))
}

/// 600 routers, 400 networks of other areas, 9,000 external routes: the kernel gets them, loses a part of them, and gets
/// them back.
fn large(lab: &Lab, daemon: &str, network: NetworkType, priorities: [u8; 2], md5: bool) -> Checked {
    let (netns, folder) = (link(lab)?, temporary()?);
    let program = if daemon == "frr" { "ospfd" } else { "bird" };
    let networks = |first: [u8; 4], count| Networks { first: first.into(), length: 24, count, metric: 20 };
    let config = OspfConfig {
        topology: Some(Topology {
            routers: 600,
            shape: Shape::Grid { columns: 20 },
            first_router_id: [10, 0, 0, 0].into(),
            link_cost: 10,
            stubs: 1,
            first_stub: [20, 0, 0, 0].into(),
            stub_length: 24,
            stub_cost: 1,
        }),
        inter_area: Some(networks([40, 0, 0, 0], 400)),
        external: Some(Externals {
            networks: networks([30, 0, 0, 0], 9000),
            type_2: true,
            tag: 7,
            forwarding: Ipv4Addr::UNSPECIFIED,
        }),
        advertise_at_start: false,
        ..router(network, priorities[0], md5)
    };
    let _daemons = start(&netns, program, folder.path(), &configuration(daemon, network, priorities[1], md5))?;
    let mut station = station::Station::open(&ProtocolConfig::Ospf(Box::new(config)))?;
    station.run("adjacency", 40 * SECOND, |device| Ok(is_settled(device)))?;
    if network == NetworkType::Broadcast {
        let expected = if priorities[0] > 0 { InterfaceState::Dr } else { InterfaceState::DrOther };
        check("role", ospf(&station.device).interface() == expected, ospf(&station.device))?;
    }
    let parts = || [Part::Routers(0..600), Part::InterArea(0..400), Part::External(0..9000)];
    let kernel = |station: &mut station::Station, count: usize| {
        let (mut seen, mut next) = (0, station.now());
        let begun = next;
        let clock = station.clock;
        let result = station.run(&format!("{count} routes in the kernel"), 60 * SECOND, |device| {
            // Counting takes longer than a poll.
            if is_settled(device) && next <= clock.now() {
                seen = routes(&netns, daemon)?;
                next = clock.now() + SECOND / 4;
                return Ok(seen == count);
            }
            Ok(false)
        });
        println!("{daemon}: {count} routes in the kernel after {:.2} s", clock.now().since(begun).as_secs_f64());
        result.map_err(|e| format!("{seen} routes: {e}"))
    };
    for part in parts() {
        station.command(ospf::NAME, &Command::Ospf(OspfCommand::Advertise(part)))?;
    }
    kernel(&mut station, 10_000)?;
    station.command(ospf::NAME, &Command::Ospf(OspfCommand::Withdraw(Part::External(1000..9000))))?;
    kernel(&mut station, 2000)?;
    station.command(ospf::NAME, &Command::Ospf(OspfCommand::Metric(Part::Routers(0..600), 5)))?;
    // The far half of the grid: nothing behind row 15 is reachable without it.
    station.command(ospf::NAME, &Command::Ospf(OspfCommand::Withdraw(Part::Routers(300..320))))?;
    kernel(&mut station, 1700)?;
    for part in parts() {
        station.command(ospf::NAME, &Command::Ospf(OspfCommand::Withdraw(part)))?;
    }
    kernel(&mut station, 0)?;
    let state = ospf(&station.device);
    check("rejected packets", state.rejected().sum() == 0 && state.state().counter("malformed") == 0, state)?;
    check("one adjacency", state.state().counter("adjacencies_lost") == 0, state)?;
    check("only its own Router-LSA is left", state.progress().advertised <= 2, state)
}

/// Sessions over both families come up, and go down with diagnostic 1 when the daemon is killed.
fn detection(lab: &Lab, daemon: &str) -> Checked {
    let (netns, folder) = (link(lab)?, temporary()?);
    let frr = |peer: &str, own: &str| {
        format!(
            " peer {peer} local-address {own} interface d0\n  detect-multiplier 3\n  receive-interval 100\n  \
             transmit-interval 100\n  no shutdown\n"
        )
    };
    let (program, text) = match daemon {
        "frr" => {
            ("bfdd", format!("bfd\n{}{}", frr("198.18.0.2", "198.18.0.1"), frr("2001:2::2", "2001:2::1")))
        }
        _ => (
            "bird",
            "router id 198.18.0.1;\nprotocol device {}\nprotocol bfd { interface \"d0\" { min rx interval 100 ms; \
             min tx interval 100 ms; multiplier 3; }; neighbor 198.18.0.2 dev \"d0\"; neighbor 2001:2::2 dev \"d0\"; }\n"
                .to_owned(),
        ),
    };
    let mut daemons = start(&netns, program, folder.path(), &text)?;
    let session = |peer: IpAddr| SessionConfig {
        desired_min_tx: 50_000,
        required_min_rx: 50_000,
        detect_mult: 5,
        ..SessionConfig::new(peer)
    };
    let peers: [IpAddr; 2] = [[198, 18, 0, 1].into(), [0x2001, 2, 0, 0, 0, 0, 0, 1].into()];
    let mut station = station::Station::open(&ProtocolConfig::Bfd(peers.map(session).to_vec()))?;
    let reports = |device: &Device| -> Vec<bfd::Report> {
        device.protocol::<Bfd>().map(|bfd| bfd.sessions().collect()).unwrap_or_default()
    };
    let both_up =
        |device: &Device| Ok(reports(device).iter().all(|r| (r.state, r.remote_state) == (State::Up, State::Up)));
    station.run("sessions", 20 * SECOND, both_up)?;
    station.pass(2 * SECOND)?;
    for report in reports(&station.device) {
        let right = report.transmit_interval == SECOND / 10 && report.detection_time == SECOND * 3 / 10;
        if !right || report.times_down > 0 {
            return Err(format!("{report:?}"));
        }
    }
    // Each side is stopped and started again.
    station.command(bfd::NAME, &Command::Stop)?;
    station.pass(SECOND)?;
    station.command(bfd::NAME, &Command::Start)?;
    station.run("sessions again", 20 * SECOND, both_up)?;
    station.pass(SECOND)?;
    daemons.kill_last()?;
    station.run("down", 2 * SECOND, |device| Ok(reports(device).iter().all(|r| r.state == State::Down)))?;
    station.keep(&format!("bfd-{daemon}"))?;
    for report in reports(&station.device) {
        let took = report.down_at.zip(report.heard_at).map(|(down, heard)| down.since(heard));
        println!("{daemon}: {} down after {took:?}", report.peer);
        let in_time = took.is_some_and(|took| took >= SECOND * 3 / 10 && took < SECOND * 4 / 10);
        if report.diagnostic != diagnostic::DETECTION_TIME_EXPIRED || !in_time || report.detections != 1 {
            return Err(format!("{report:?}"));
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    use NetworkType::{Broadcast, PointToPoint};
    let missing = ["/usr/lib/frr/ospfd", "/usr/sbin/bird"].into_iter().find(|p| !std::path::Path::new(p).exists());
    let case = |name: &str, body: fn(&mut Lab) -> Checked| {
        Case::in_lab(name, body).long().waits().unless(missing.map(|p| format!("{p} is not installed")))
    };
    anew::run(vec![
        case("ospf_frr_small", |lab| small(lab, "frr", PointToPoint, "ospf-frr")),
        case("ospf_bird_small", |lab| small(lab, "bird", Broadcast, "ospf-bird")),
        case("ospf_frr_point_to_point", |lab| large(lab, "frr", PointToPoint, [1, 1], false)),
        case("ospf_frr_broadcast_md5", |lab| large(lab, "frr", Broadcast, [0, 1], true)),
        case("ospf_bird_point_to_point_md5", |lab| large(lab, "bird", PointToPoint, [1, 1], true)),
        case("ospf_bird_broadcast", |lab| large(lab, "bird", Broadcast, [9, 0], false)),
        case("bfd_frr", |lab| detection(lab, "frr")),
        case("bfd_bird", |lab| detection(lab, "bird")),
    ])
}
