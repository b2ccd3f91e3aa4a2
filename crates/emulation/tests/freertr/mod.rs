//! LDP, OSPF and BFD with freeRtr. RSVP-TE is in `rsvp_freertr`, BGP among the daemons of `bgp_daemons`.
//!
//! Build freeRtr (github.com/mc36/freeRtr) with `javac -d CLASSES`, then
//! `FREERTR=CLASSES cargo test -p drophammer-emulation --test protocols freertr:: -- --ignored --test-threads 1`, as root. With DROPHAMMER_RECORD set, the exchanges
//! go to `tests/recorded`, which `routing_recorded.rs` and `ldp` replay.

mod router;

use drophammer_emulation::bfd::{self, Bfd, SessionConfig};
use drophammer_emulation::ldp::{self, AdvertisedFecs, FecRange, LabelPattern, LdpCommand, Lsr, LsrConfig};
use drophammer_emulation::ospf::{
    self, Expected, Externals, NeighbourState, NetworkType, Networks, Ospf, OspfCommand, OspfConfig, Part,
};
use drophammer_emulation::protocol::{Command, Protocol, ProtocolConfig};
use drophammer_emulation::{Address, Device, DeviceConfig};
use drophammer_wire::MacAddr;
use drophammer_wire::bfd::State;
use drophammer_wire::ldp::{Message, PORT, PrefixFec};
use router::{Lab, in_namespace};
use std::cell::RefCell;
use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::time::Duration;

/// A device at 198.18.`net`.2 whose gateway is freeRtr.
fn device(net: u8, protocols: &[ProtocolConfig]) -> Device {
    let address = |host| Ipv4Addr::new(198, 18, net, host);
    let config = DeviceConfig {
        ipv4: Some(Address { address: address(2), prefix_len: 24, gateway: address(1) }),
        ..DeviceConfig::new("station", MacAddr::local(2), 1)
    };
    let mut device = Device::new(config.clone());
    device.fix_gateway(MacAddr::local(1));
    protocols.iter().for_each(|protocol| device.add_protocol(protocol.create(&config).unwrap()));
    device
}

fn counter(device: &Device, protocol: &str, name: &str) -> u64 {
    device.protocols().find(|p| p.name() == protocol).unwrap().state().counter(name)
}

/// The LDP content of a frame: a hello, or a piece of the session.
fn ldp_payload(frame: &[u8]) -> Option<&[u8]> {
    let (udp, tcp) = (frame.get(23)? == &17, frame.get(23)? == &6);
    let ports = frame.get(34..38)?;
    let length = 14 + usize::from(u16::from_be_bytes([frame[16], frame[17]]));
    let start = if udp { 42 } else { 34 + 4 * usize::from(*frame.get(46)? >> 4) };
    let is_ldp =
        frame[12..15] == [8, 0, 0x45] && (udp || tcp) && ports.chunks(2).any(|port| port == PORT.to_be_bytes());
    frame.get(start..length).filter(|payload| is_ldp && !payload.is_empty())
}

fn ldp_session(classes: &str) {
    let fecs = |first: &str, count| FecRange::new(first.parse().unwrap(), count);
    let (own, address) = (fecs("10.0.0.0/32", 20), Ipv4Addr::new(198, 18, 1, 2));
    let labels = LabelPattern::Counting { first: 1000, step: 1 };
    let config = LsrConfig {
        advertised: vec![AdvertisedFecs { fecs: own.clone(), labels }],
        expected: vec![fecs("172.16.0.0/24", 4)],
        ..LsrConfig::new(address, address)
    };
    let mut software =
        "int eth1\n vrf for v1\n ipv4 addr 198.18.1.1 255.255.255.0\n mpls enable\n mpls ldp4\n exit\n".to_owned();
    software += "ipv4 route v1 10.0.0.0 255.255.255.255 198.18.1.2\n";
    (0..4).for_each(|i| software += &format!("ipv4 route v1 172.16.{i}.0 255.255.255.0 198.18.1.2\n"));
    let mut lab = Lab::begin(classes, &software, device(1, &[ProtocolConfig::Ldp(config)]));
    lab.command(ldp::NAME, &Command::Start);
    lab.command(ldp::NAME, &Command::Ldp(LdpCommand::Advertise { range: 0, part: 0..20 }));
    let verified = |device: &Device| {
        let lsr: &Lsr = device.protocol().unwrap();
        lsr.peers().first().map(|peer| peer.bindings().verification(0).unwrap())
    };
    lab.run("its labels", |device| verified(device).is_some_and(|v| v.missing == 0));
    lab.command(ldp::NAME, &Command::Ldp(LdpCommand::Withdraw { range: 0, part: 5..15 }));
    lab.run("releases", |device| counter(device, ldp::NAME, "releases_received") == 10);
    lab.console(&["configure terminal", "no ipv4 route v1 172.16.1.0 255.255.255.0 198.18.1.2", "end"]).unwrap();
    lab.run("a withdraw", |device| verified(device).is_some_and(|v| v.present == 3));
    assert_eq!(["withdraws_received", "releases_sent"].map(|name| counter(&lab.device, ldp::NAME, name)), [1, 1]);
    let before = counter(&lab.device, ldp::NAME, "mappings_received");
    let fec = PrefixFec::new("172.16.2.0/24".parse().unwrap());
    let lsr: &mut Lsr = lab.device.protocol_mut().unwrap();
    lsr.say(&[Message::LabelRequest { fecs: fec.fecs() }]);
    lab.run("an answer", |device| counter(device, ldp::NAME, "mappings_received") > before);
    lab.command(ldp::NAME, &Command::Stop);
    lab.run("the end", |device| device.protocol::<Lsr>().unwrap().state().up == 0);
    lab.pass(Duration::from_secs(1));
    assert_eq!(["malformed", "sessions_rejected"].map(|name| counter(&lab.device, ldp::NAME, name)), [0, 0]);
    let seen = RefCell::new(HashSet::new());
    lab.keep("ldp-freertr", |frame| {
        let payload = ldp_payload(frame)?;
        // Segments that were sent again have the same sequence number.
        let fresh = frame[23] == 17 || seen.borrow_mut().insert(frame[26..42].to_vec());
        fresh.then(|| payload.to_vec())
    });
}

/// The daemon's side of the recordings of OSPF and BFD: 198.18.0.1, with a loopback address.
const IGP: &str = "router ospf4 1
 vrf v1
 router 198.18.0.1
 area 0 ena
 exit
int lo0
 vrf for v1
 ipv4 addr 203.0.113.1 255.255.255.255
 router ospf4 1 ena
 router ospf4 1 passive
 exit
int eth1
 vrf for v1
 ipv4 addr 198.18.0.1 255.255.255.0
 ipv4 bfd 100 100 3
 router ospf4 1 ena
 router ospf4 1 hello-time 1000
 router ospf4 1 dead-time 4000
 router ospf4 1 retransmit-time 2000
";

fn ospf_config() -> OspfConfig {
    let networks = Networks { first: [30, 0, 0, 0].into(), length: 24, count: 5, metric: 20 };
    OspfConfig {
        network: NetworkType::PointToPoint,
        priority: 0,
        hello_interval: 1,
        dead_interval: 4,
        retransmit_interval: 2,
        external: Some(Externals { networks, type_2: true, tag: 0, forwarding: Ipv4Addr::UNSPECIFIED }),
        ..OspfConfig::new(Ipv4Addr::new(100, 64, 0, 2))
    }
}

fn is_full(device: &Device) -> bool {
    let ospf: &Ospf = device.protocol().unwrap();
    ospf.neighbours().any(|n| n.state == NeighbourState::Full) && ospf.progress().is_settled()
}

fn ospf_adjacency(classes: &str) {
    let software = format!("{IGP} exit\n");
    let mut lab = Lab::begin(classes, &software, device(0, &[ProtocolConfig::Ospf(Box::new(ospf_config()))]));
    lab.command(ospf::NAME, &Command::Start);
    let (now, loopback) = (lab.now(), Expected::Prefix("203.0.113.1/32".parse().unwrap()));
    lab.device.protocol_mut::<Ospf>().unwrap().expect(now, [loopback], true);
    lab.run("an adjacency and its prefix", |device| {
        is_full(device) && device.protocol::<Ospf>().unwrap().verification().is_right()
    });
    // freeRtr computes routes some time after the last change.
    let wait_for_routes = |lab: &mut Lab, count| {
        let mut told = String::new();
        for _ in 0..30 {
            lab.pass(Duration::from_secs(1));
            told = lab.console(&["show ipv4 route v1"]).unwrap();
            if told.matches("30.0.").count() == count {
                return;
            }
        }
        panic!("not {count} routes: {told}");
    };
    wait_for_routes(&mut lab, 5);
    lab.command(ospf::NAME, &Command::Ospf(OspfCommand::Withdraw(Part::External(0..5))));
    lab.run("withdrawn", is_full);
    wait_for_routes(&mut lab, 0);
    let ospf: &Ospf = lab.device.protocol().unwrap();
    assert_eq!((ospf.rejected().sum(), counter(&lab.device, ospf::NAME, "adjacencies_full")), (0, 1));
    lab.keep("ospf-freertr", |frame| (frame[12..14] == [8, 0] && frame[23] == 89).then(|| frame.to_vec()));
}

fn bfd_session(classes: &str) {
    let session = SessionConfig {
        desired_min_tx: 50_000,
        required_min_rx: 50_000,
        detect_mult: 5,
        ..SessionConfig::new([198, 18, 0, 1].into())
    };
    // freeRtr opens BFD sessions with its OSPF neighbours.
    let protocols = [ProtocolConfig::Ospf(Box::new(ospf_config())), ProtocolConfig::Bfd(vec![session])];
    let mut lab = Lab::begin(classes, &format!("{IGP} router ospf4 1 bfd\n exit\n"), device(0, &protocols));
    let report = |device: &Device| device.protocol::<Bfd>().unwrap().sessions().next().unwrap();
    let is_up = |device: &Device| (report(device).state, report(device).remote_state) == (State::Up, State::Up);
    lab.command(bfd::NAME, &Command::Start);
    lab.command(ospf::NAME, &Command::Start);
    lab.run("a session", is_up);
    lab.pass(Duration::from_secs(2));
    let agreed = report(&lab.device);
    assert_eq!((agreed.transmit_interval.as_millis(), agreed.detection_time.as_millis()), (100, 300));
    assert_eq!(agreed.times_down, 0);
    lab.command(bfd::NAME, &Command::Stop);
    lab.pass(Duration::from_secs(1));
    lab.command(bfd::NAME, &Command::Start);
    lab.run("a session again", is_up);
    lab.pass(Duration::from_secs(1));
    lab.kill();
    lab.run("down", |device| report(device).state == State::Down);
    lab.keep("bfd-freertr", |frame| {
        (frame[12..14] == [8, 0] && frame[23] == 17 && frame[36..38] == [0x0e, 0xc8]).then(|| frame.to_vec())
    });
    let last = report(&lab.device);
    assert_eq!(last.diagnostic, drophammer_wire::bfd::diagnostic::DETECTION_TIME_EXPIRED, "{last:?}");
}

#[test]
#[ignore = "needs root and freeRtr"]
fn ldp_mappings_both_ways() {
    in_namespace("freertr::ldp_mappings_both_ways", ldp_session);
}

#[test]
#[ignore = "needs root and freeRtr"]
fn ospf_lsas_both_ways() {
    in_namespace("freertr::ospf_lsas_both_ways", ospf_adjacency);
}

#[test]
#[ignore = "needs root and freeRtr"]
fn bfd_up_and_down() {
    in_namespace("freertr::bfd_up_and_down", bfd_session);
}
