//! An LSR with a live `ldpd` of FRR, in network namespaces of its own: `cargo test -p drophammer-emulation --test ldp_frr -- --ignored` as root, with the
//! packages frr, iproute2 and ethtool. The kernel needs no MPLS: `zebra` then manages labels without installing them, and `ldpd` exchanges them all the
//! same.

use drophammer_emulation::ldp::{AdvertisedFecs, FecRange, LabelPattern, LdpCommand, Lsr, LsrConfig, NAME};
use drophammer_emulation::protocol::{Command as Do, Protocol};
use drophammer_emulation::{Address, Device, DeviceConfig};
use drophammer_port::af_packet::AfPacket;
use drophammer_port::{BURST, Clock, Port, SystemClock, wait};
use drophammer_wire::MacAddr;
use drophammer_wire::ldp::{Label, Message, PrefixFec};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Environment variable of the process in the tester's namespace: the name of the namespace of FRR.
const INSIDE: &str = "DROPHAMMER_LDP_FRR";
const FRR: Ipv4Addr = Ipv4Addr::new(198, 18, 1, 1);
const OWN: Ipv4Addr = Ipv4Addr::new(198, 18, 1, 2);
/// LSR-ID and transport address of FRR.
const FRR_LSR: Ipv4Addr = Ipv4Addr::new(100, 64, 0, 1);
/// Static routes of FRR, and our FECs to which FRR has no route.
const ROUTES: u32 = 300;
const OTHERS: u32 = 500;

fn run(program: &str, arguments: &str) -> String {
    let output = Command::new(program).args(arguments.split(' ')).output().unwrap_or_else(|e| panic!("{program}: {e}"));
    assert!(output.status.success(), "{program} {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// FRR in a namespace. Dropping this value ends everything.
struct Lab {
    name: String,
    folder: PathBuf,
    daemons: Vec<Child>,
}

impl Lab {
    fn begin(own_lsr: Ipv4Addr) -> Lab {
        let name = format!("ldpfrr{}-{}", std::process::id(), own_lsr.octets()[0]);
        let folder = std::env::temp_dir().join(&name);
        std::fs::create_dir_all(&folder).unwrap();
        let lab = Lab { name, folder, daemons: Vec::new() };
        let Lab { name, folder, .. } = &lab;
        for side in ["t", "d"] {
            run("ip", &format!("netns add {name}{side}"));
            run("ip", &format!("-n {name}{side} link set lo up"));
        }
        run("ip", &format!("link add t0 netns {name}t type veth peer name d0 netns {name}d"));
        // Without offload, hellos leave with complete checksums.
        run("ip", &format!("netns exec {name}d ethtool -K d0 tx off"));
        run("ip", &format!("-n {name}d addr add {FRR}/24 dev d0"));
        run("ip", &format!("-n {name}d addr add {FRR_LSR}/32 dev lo"));
        for (side, link) in [("t", "t0"), ("d", "d0")] {
            run("ip", &format!("-n {name}{side} link set {link} up"));
        }
        let mut routes = format!("ip route {own_lsr}/32 {OWN}\n");
        (0..ROUTES).for_each(|i| routes += &format!("ip route {} {OWN}\n", routed().prefix(i)));
        let ldp = format!(
            "mpls ldp\n router-id {FRR_LSR}\n address-family ipv4\n  discovery transport-address {FRR_LSR}\n  interface d0\n"
        );
        for (file, text) in [("zebra", "".into()), ("staticd", "".into()), ("routes", routes), ("ldpd", ldp)] {
            std::fs::write(folder.join(file), text).unwrap();
        }
        let sockets = PathBuf::from("/var/run/frr").join(name);
        std::fs::create_dir_all(&sockets).unwrap();
        run("chown", &format!("frr {}", sockets.display()));
        lab
    }

    fn start(&mut self, daemon: &str) {
        let Lab { name, folder, .. } = self;
        let log = std::fs::File::create(folder.join(format!("{daemon}.log"))).unwrap();
        let arguments = format!(
            "netns exec {name}d /usr/lib/frr/{daemon} -N {name} -f {0}/{daemon} -i /var/run/frr/{name}/{daemon}.pid --log stdout",
            folder.display()
        );
        let started =
            Command::new("ip").args(arguments.split(' ')).stdout(log.try_clone().unwrap()).stderr(log).spawn();
        self.daemons.push(started.unwrap());
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        for side in ["t", "d"] {
            let _ = Command::new("ip").args(["netns", "del", &format!("{}{side}", self.name)]).status();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
        let _ = std::fs::remove_dir_all(PathBuf::from("/var/run/frr").join(&self.name));
    }
}

fn routed() -> FecRange {
    FecRange::new("172.16.0.0/24".parse().unwrap(), ROUTES)
}

/// Runs this test again in the tester's namespace, next to FRR. `own` is the LSR-ID and transport address of our LSR.
fn beside_frr(test: &str, own: Ipv4Addr) {
    if let Ok(name) = std::env::var(INSIDE) {
        return Tester::begin(name, own).session();
    }
    let mut lab = Lab::begin(own);
    for daemon in ["zebra", "staticd", "ldpd"] {
        lab.start(daemon);
        until(|| PathBuf::from(format!("/var/run/frr/{}/{daemon}.vty", lab.name)).exists(), daemon);
    }
    run("vtysh", &format!("-N {} -f {}/routes", lab.name, lab.folder.display()));
    let installed = || run("ip", &format!("-n {}d route show via {OWN}", lab.name)).lines().count();
    until(|| installed() == ROUTES as usize + 1, "the installation of all static routes");
    let program = std::env::current_exe().unwrap();
    let status = Command::new("ip")
        .args(["netns", "exec", &format!("{}t", lab.name)])
        .arg(program)
        .args(["--ignored", "--exact", "--nocapture", test])
        .env(INSIDE, &lab.name)
        .stdin(Stdio::null())
        .status()
        .unwrap();
    let log = std::fs::read_to_string(lab.folder.join("ldpd.log")).unwrap_or_default();
    assert!(status.success(), "see above; ldpd says: {log}");
}

/// Waits until a condition is true that another process changes.
fn until(mut done: impl FnMut() -> bool, what: &str) {
    let begun = std::time::Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{what} has not happened in 30 s");
        wait::until_readable(&[], Duration::from_millis(20)).unwrap();
    }
}

/// Our LSR on the interface `t0`.
struct Tester {
    name: String,
    clock: SystemClock,
    port: AfPacket,
    device: Device,
}

impl Tester {
    fn begin(name: String, own: Ipv4Addr) -> Tester {
        let clock = SystemClock::start();
        let port = AfPacket::open("t0", clock).unwrap();
        let address = Address { address: OWN, prefix_len: 24, gateway: FRR };
        let config = DeviceConfig { ipv4: Some(address), ..DeviceConfig::new("lsr", MacAddr::local(7), 7) };
        let labels = LabelPattern::Counting { first: 1000, step: 1 };
        let others = FecRange::new("10.64.0.0/24".parse().unwrap(), OTHERS);
        let own_fec = FecRange::new(format!("{own}/32").parse().unwrap(), 1);
        let lsr = LsrConfig {
            advertised: vec![
                AdvertisedFecs { fecs: routed(), labels },
                AdvertisedFecs { fecs: others, labels: LabelPattern::Counting { first: 500_000, step: 3 } },
                AdvertisedFecs { fecs: own_fec, labels: LabelPattern::ImplicitNull },
            ],
            expected: vec![routed()],
            hello_interval: 1,
            ..LsrConfig::new(own, own)
        };
        let lsr = Lsr::new(&config, lsr).unwrap();
        let mut device = Device::new(config);
        assert!(device.add_addresses(own.into(), 1));
        device.add_protocol(Box::new(lsr));
        Tester { name, clock, port, device }
    }

    fn lsr(&self) -> &Lsr {
        self.device.protocol().unwrap()
    }

    fn command(&mut self, command: Do) {
        self.device.command(self.clock.now(), NAME, &command).unwrap();
    }

    fn ldp(&mut self, command: LdpCommand) {
        self.command(Do::Ldp(command));
    }

    fn counter(&self, name: &str) -> u64 {
        self.lsr().state().counter(name)
    }

    /// Labels that FRR holds, as lines of `show mpls ldp binding` with a label of ours.
    fn held_by_frr(&self) -> usize {
        let text = vtysh(&self.name, "show mpls ldp binding");
        let ours = |line: &&str| line.split_whitespace().nth(4).is_some_and(|label| label != "-");
        text.lines().filter(|line| line.starts_with("ipv4")).filter(ours).count()
    }

    fn send(port: &mut AfPacket, frames: &[Vec<u8>]) {
        for burst in frames.chunks(BURST) {
            burst.iter().enumerate().for_each(|(i, frame)| port.slots().put(i, frame));
            port.send(burst.len()).unwrap();
        }
    }

    /// Runs the device until a condition is true.
    fn run(&mut self, what: &str, mut done: impl FnMut(&Tester) -> bool) {
        let begun = self.clock.now();
        while !done(self) {
            let now = self.clock.now();
            assert!(now.since(begun) < Duration::from_secs(60), "{what}: not in 60 s; {:?}", self.lsr().state());
            let Tester { port, device, .. } = self;
            let mut frames = Vec::new();
            for arrival in port.receive().unwrap().iter() {
                device.receive(now, arrival.frame, &mut |frame| frames.push(frame.to_vec()));
            }
            device.poll(now, 64 << 10, &mut |frame| frames.push(frame.to_vec()));
            Tester::send(port, &frames);
            let due = device.next_deadline().map_or(Duration::from_millis(100), |at| at.since(now));
            wait::until_readable(&[port.readable().unwrap()], due.min(Duration::from_millis(100))).unwrap();
        }
    }

    /// Runs until FRR holds this number of our labels. The device keeps running while FRR is asked.
    fn run_until_frr_holds(&mut self, count: usize) {
        let mut last = self.clock.now();
        self.run(&format!("FRR holds {count} labels"), |tester| {
            let now = tester.clock.now();
            let ask = now.since(last) > Duration::from_millis(500);
            last = if ask { now } else { last };
            ask && tester.held_by_frr() == count
        });
    }

    fn session(mut self) {
        self.command(Do::Start);
        for (range, count) in [(0, ROUTES), (1, OTHERS), (2, 1)] {
            self.ldp(LdpCommand::Advertise { range, part: 0..count });
        }
        self.run("a session with all labels of FRR", |tester| {
            tester.lsr().peers().first().is_some_and(|peer| peer.bindings().verification(0).unwrap().missing == 0)
        });
        // FRR also advertises its own prefixes, and the route to our LSR.
        self.run("the connected prefixes", |tester| tester.lsr().peers()[0].bindings().others().len() == 3);
        let peer = &self.lsr().peers()[0];
        assert_eq!(peer.transport(), FRR_LSR);
        assert_eq!(peer.addresses(), [FRR.into(), FRR_LSR.into()] as [std::net::IpAddr; 2]);
        for connected in ["198.18.1.0/24".to_string(), format!("{FRR_LSR}/32")] {
            assert_eq!(self.lsr().label_for(connected.parse().unwrap()), Some(Label::IMPLICIT_NULL), "{connected}");
        }
        let labels: std::collections::BTreeSet<_> =
            (0..ROUTES).map(|i| self.lsr().label_for(routed().prefix(i)).unwrap()).collect();
        assert_eq!(labels.len(), ROUTES as usize, "a label of its own for each route");

        self.run_until_frr_holds((ROUTES + OTHERS + 1) as usize);
        let text = vtysh(&self.name, "show mpls ldp binding");
        let line = text.lines().find(|line| line.contains("172.16.7.0/24")).unwrap();
        let words: Vec<_> = line.split_whitespace().collect();
        assert_eq!((words[4], words[5]), ("1007", "yes"), "it uses the label of its next hop: {line}");

        self.ldp(LdpCommand::Withdraw { range: 1, part: 100..350 });
        self.run("releases", |tester| tester.counter("releases_received") == 250);
        self.run_until_frr_holds((ROUTES + OTHERS + 1 - 250) as usize);

        let gone: Vec<String> = (0..10).map(|i| format!("no ip route {} {OWN}", routed().prefix(i))).collect();
        vtysh(&self.name, &["conf t", &gone.join("\n")].join("\n"));
        self.run("withdraws", |tester| {
            tester.lsr().peers()[0].bindings().verification(0).unwrap().present == ROUTES - 10
        });
        assert_eq!((self.counter("withdraws_received"), self.counter("releases_sent")), (10, 10));
        // FRR answers for its own prefix, does not know the second one, and sees that this LSR is the next hop of the
        // third.
        let requested =
            ["198.18.1.0/24", "9.9.9.0/24", "172.16.20.0/24"].map(|fec| PrefixFec::new(fec.parse().unwrap()));
        let requests = requested.each_ref().map(|fec| Message::LabelRequest { fecs: fec.fecs() });
        let before = self.counter("mappings_received");
        let lsr: &mut Lsr = self.device.protocol_mut().unwrap();
        lsr.say(&requests);
        self.run("answers to requests", |tester| {
            let answered = tester.counter("mappings_received") == before + 1;
            answered
                && ["no_route", "loop_detected"]
                    .iter()
                    .all(|status| tester.counter(&format!("notifications_received_{status}")) == 1)
        });

        vtysh(&self.name, &format!("clear mpls ldp neighbor {}", self.lsr().config().lsr_id));
        self.run("the next session", |tester| tester.counter("sessions_established") == 2);
        assert_eq!(self.counter("notifications_received_shutdown"), 1);
        self.run_until_frr_holds((ROUTES + OTHERS + 1 - 250) as usize);
        assert_eq!(
            (self.counter("malformed"), self.counter("sessions_rejected"), self.device.oddities().malformed),
            (0, 0, 0)
        );
        self.command(Do::Stop);
        self.run("the end", |tester| tester.lsr().state().up == 0);
        self.run_until_frr_holds(0);
        println!("{:?}", self.lsr().state());
    }
}

fn vtysh(name: &str, commands: &str) -> String {
    let arguments = commands.lines().flat_map(|line| ["-c", line]);
    let output = Command::new("vtysh").args(["-N", name]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{commands}: {}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
#[ignore = "needs root and FRR"]
fn we_open_the_session() {
    beside_frr("we_open_the_session", Ipv4Addr::new(192, 0, 2, 2));
}

#[test]
#[ignore = "needs root and FRR"]
fn frr_opens_the_session() {
    beside_frr("frr_opens_the_session", Ipv4Addr::new(10, 255, 0, 2));
}
