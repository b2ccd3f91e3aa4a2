//! A server, agents in processes of their own, and a rig on their ports.

use crate::anew::Checked;
use drophammer_agent::agent::{self, Options};
use drophammer_agent::bed::{self, Bed as Server};
use drophammer_agent::clock::Domain;
use drophammer_agent::link::{Access, Link};
use drophammer_agent::{Controller, Settings};
use drophammer_lab::{Lab, LabOptions};
use drophammer_model::trial::{AddressRange, FlowSpec, Load, TrialResult, TrialSpec};
use drophammer_port::{SystemClock, af_packet};
use drophammer_rig::{Address, Config, Lender as _, Live, PortConfig, Ports, Rig, Timing, TrialKeys, Until, host_mac};
use std::net::Ipv4Addr;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

pub const VERSION: &str = "1.2.3";
/// Longer than any step takes, however busy the machine is.
pub const LONG: Duration = Duration::from_secs(60);
/// How long agents go on sending after the last heartbeat of their controller.
pub const SILENCE: Duration = Duration::from_secs(2);
const HOSTS: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 18, 0, 1), Ipv4Addr::new(198, 18, 0, 2)];
const ROLE: &str = "DROPHAMMER_TEST_ROLE";

pub fn ensure(holds: bool, why: impl Into<String>) -> Checked {
    if holds { Ok(()) } else { Err(why.into()) }
}

/// Waits until `holds`.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) -> Checked {
    let begun = Instant::now();
    while !holds() {
        if begun.elapsed() > LONG {
            return Err(format!("{what}: not within {LONG:?}"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// A server in the network namespace of this process, and two interfaces.
pub struct Bed {
    pub server: Server,
    _folder: tempfile::TempDir,
    _lab: Lab,
}

impl Bed {
    pub fn up() -> Result<Bed, String> {
        if Command::new("nats-server").arg("--version").stdout(Stdio::null()).status().is_err() {
            return Err("the program nats-server is missing; install it (Debian: apt install nats-server)".into());
        }
        let lab = Lab::enter(&LabOptions::default()).map_err(|e| e.to_string())?;
        let up = |name: &str| format!("link set {name} arp off multicast off addrgenmode none up");
        let lines = ["link set lo up".into(), "link add t0 type veth peer name t1".into(), up("t0"), up("t1")];
        lab.tester().and_then(|t| t.ip(&lines)).map_err(|e| e.to_string())?;
        let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
        // The namespace is new, so every port is free.
        let listen = bed::address("127.0.0.1:4222").map_err(|e| e.0)?;
        let server = Server { folder: folder.path().to_owned(), listen, tls: None };
        server.up().map_err(|e| e.0)?;
        Ok(Bed { server, _folder: folder, _lab: lab })
    }

    /// Sends the server a signal.
    pub fn signal(&self, name: &str) -> Checked {
        let pid = bed::running(&self.server.folder).ok_or("the server does not run")?;
        let sent = Command::new("kill").args([name, &pid.to_string()]).status();
        ensure(sent.is_ok_and(|status| status.success()), "no signal")
    }

    /// Number of stored messages with reports.
    pub fn records(&self) -> Result<u64, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
        runtime.block_on(async {
            let link = Link::connect(&access(self), "test").await.map_err(|e| e.0)?;
            let stream = link.records().await.map_err(|e| e.0)?;
            Ok(stream.cached_info().state.messages)
        })
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = self.signal("-CONT");
        let _ = bed::down(&self.server.folder);
    }
}

fn access(bed: &Bed) -> Access {
    Access { url: bed.server.url(), ..Access::default() }
}

/// Another process of this program.
pub struct Process(pub Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn process(role: &str, bed: &Bed, variables: &[(&str, &str)]) -> Result<Process, String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut command = Command::new(program);
    command.env_remove("DROPHAMMER_TEST_CASE").env(ROLE, role).env("URL", bed.server.url());
    command.envs(variables.iter().copied()).stdin(Stdio::null());
    command.spawn().map(Process).map_err(|e| e.to_string())
}

/// Starts an agent, and waits until it is announced.
pub fn agent(bed: &Bed, name: &str, port: &str, more: &[(&str, &str)]) -> Result<Process, String> {
    let process = process("agent", bed, &[&[("NAME", name), ("PORT", port)], more].concat())?;
    let asking = controller(bed, "waiting")?;
    let there = || asking.inventory().is_ok_and(|(agents, _)| agents.iter().any(|(known, _)| known == name));
    until(&format!("agent {name}"), there)?;
    Ok(process)
}

/// Starts another process that drives endless traffic.
pub fn driver(bed: &Bed, silence: Duration) -> Result<Process, String> {
    process("driver", bed, &[("SILENCE_MS", &silence.as_millis().to_string())])
}

/// Runs the helper that this process was started as, unless it runs a case.
pub fn as_other_process() -> Option<ExitCode> {
    let role = std::env::var(ROLE).ok()?;
    let word = |name: &str| std::env::var(name).unwrap_or_default();
    let access = Access { url: word("URL"), ..Access::default() };
    let ended = match role.as_str() {
        "agent" => {
            let options = Options {
                access,
                name: word("NAME"),
                ports: vec![word("PORT")],
                backend: &af_packet::BACKEND,
                queues: 1,
                processors: Vec::new(),
                version: std::env::var("VERSION").unwrap_or_else(|_| VERSION.into()),
                clock: std::env::var("CLOCK").map_or_else(|_| Domain::own(), Domain),
            };
            agent::run(options, &|| false, &|text| eprintln!("agent: {text}")).map_err(|e| e.0)
        }
        _ => Controller::connect(Settings {
            silence: word("SILENCE_MS").parse().map_or(SILENCE, Duration::from_millis),
            ..settings(access, "driver")
        })
        .map_err(|e| e.0)
        .and_then(|controller| {
            let mut bench = Bench::new(controller)?;
            bench.run(&spec(Duration::from_secs(600))).map(drop)
        }),
    };
    Some(match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{role}: {why}");
            ExitCode::FAILURE
        }
    })
}

fn settings(access: Access, holder: &str) -> Settings {
    Settings { access, holder: holder.into(), version: VERSION.into(), silence: SILENCE, clock: Domain::own() }
}

pub fn controller(bed: &Bed, holder: &str) -> Result<Controller, String> {
    connect(access(bed), holder)
}

pub fn connect(access: Access, holder: &str) -> Result<Controller, String> {
    Controller::connect(settings(access, holder)).map_err(|e| e.0)
}

/// A rig on t0 of host1 and t1 of host2.
pub struct Bench {
    pub rig: Rig,
    keys: TrialKeys,
    // Dropped after the rig, because it ends the rig's leases.
    pub controller: Controller,
}

pub fn rig(bed: &Bed, holder: &str) -> Result<Bench, String> {
    Bench::new(controller(bed, holder)?)
}

impl Bench {
    fn new(controller: Controller) -> Result<Bench, String> {
        let names = ["host1/t0", "host2/t1"].map(str::to_owned);
        let ports = Ports::Far(controller.open(&names, SystemClock::start())?);
        let port = |i: usize| {
            let (address, gateway) = (HOSTS[i], HOSTS[i ^ 1]);
            let mut port = PortConfig::new(&format!("port {i}"), host_mac(5, i), 1_500);
            port.devices[0].ipv4 = Some(Address { address, prefix_len: 24, gateway });
            port
        };
        let mut rig = Rig::new(ports, &Config { seed: 5, ports: vec![port(0), port(1)] });
        let end = rig.now() + LONG;
        rig.serve(&Until::Resolved.or_at(end), &|| false).map_err(|e| e.to_string())?;
        ensure(rig.unresolved().is_none(), "ARP through the agents has no answer")?;
        Ok(Bench { rig, keys: TrialKeys::new(std::process::id().into()), controller })
    }

    pub fn start(&mut self, spec: &TrialSpec) -> Result<Live, String> {
        let (_, key, earlier) = self.keys.next_trial();
        // It sends all frames, however late.
        let forever = 600_000_000_000;
        let timing = Timing { seed: 1, key, earlier, max_backlog_ns: forever, late_ns: forever };
        self.rig.start_traffic(spec, &timing, vec![]).map_err(|e| e.to_string())
    }

    pub fn finish(&mut self) -> Result<TrialResult, String> {
        self.rig.finish(&|| false).map_err(|e| e.to_string())
    }

    pub fn run(&mut self, spec: &TrialSpec) -> Result<TrialResult, String> {
        self.start(spec)?;
        self.finish()
    }
}

/// Runs the trial after a fault. As in a test, a void trial is repeated, but only once: the server may be down when the
/// first attempt starts.
pub fn whole(bench: &mut Bench) -> Checked {
    let short = spec(Duration::from_millis(200));
    let result = bench.run(&short).or_else(|why| {
        eprintln!("repeated: {why}");
        bench.run(&short)
    })?;
    ensure((result.offered(), result.received()) == (800, 800), format!("{:?}", result.groups))
}

/// 2,000 frames per second in each direction.
pub fn spec(duration: Duration) -> TrialSpec {
    let host = |i: usize| AddressRange { first: HOSTS[i].into(), step: 1, count: 1 };
    TrialSpec {
        purpose: "test".into(),
        size: "64".parse().unwrap(),
        flows: [(0, 1), (1, 0)].map(|(a, b)| FlowSpec::new(format!("{a}{b}"), a, b, host(a), host(b))).into(),
        load: Load::Constant { rate_pps: 2_000.0 },
        duration_s: duration.as_secs_f64(),
        bin_s: None,
        drain_s: 2.0,
        events: vec![],
    }
}

/// Number of frames that an interface has sent.
pub fn sent(interface: &str) -> u64 {
    let path = format!("/sys/class/net/{interface}/statistics/tx_packets");
    std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}
