//! A server, agents in processes of their own, and a rig on their ports.

use crate::anew::Checked;
use drophammer_agent::agent::{self, Options};
use drophammer_agent::bed::{self, Bed as Server};
use drophammer_agent::clock::Domain;
use drophammer_agent::link::{Access, Link};
use drophammer_agent::{Controller, Settings};
use drophammer_lab::{Lab, LabOptions};
use drophammer_model::trial::{AddressRange, FlowSpec, Load, TrialResult, TrialSpec};
use drophammer_port::{SystemClock, af_packet, af_xdp};
use drophammer_rig::{Address, Config, Lender as _, Live, PortConfig, Ports, Rig, Timing, TrialKeys, Until, host_mac};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

pub const VERSION: &str = "1.2.3";
/// Longer than any step takes, however busy the machine is.
pub const LONG: Duration = Duration::from_secs(60);
/// How long agents go on sending after the last heartbeat of their controller.
pub const SILENCE: Duration = Duration::from_secs(2);
/// Length of each of the [`trials`], and its frames: intended, offered, received, lost.
pub const DURATION: Duration = Duration::from_millis(1_200);
pub const COUNTS: (u64, u64, u64, u64) = (4_800, 4_800, 4_800, 0);
/// The ports of the two hosts of [`rig`].
pub const PORTS: [&str; 2] = ["t0", "t1"];
const HOSTS: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 18, 0, 1), Ipv4Addr::new(198, 18, 0, 2)];
const ROLE: &str = "DROPHAMMER_TEST_ROLE";
/// Seconds by which the steady clock of a process is ahead: it runs in a time namespace.
pub const AHEAD: &str = "AHEAD";
/// Set for a process that may not raise its priority.
pub const ORDINARY: &str = "ORDINARY";

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
    pub lab: Lab,
}

impl Bed {
    pub fn up() -> Result<Bed, String> {
        Bed::up_with(|_, folder| local(folder))
    }

    /// Like [`Bed::up`], with the server that `prepare` makes of its folder.
    pub fn up_with(prepare: impl FnOnce(&Lab, &Path) -> Result<Server, String>) -> Result<Bed, String> {
        if Command::new("nats-server").arg("--version").stdout(Stdio::null()).status().is_err() {
            return Err("the program nats-server is missing; install it (Debian: apt install nats-server)".into());
        }
        let lab = Lab::enter(&LabOptions::default()).map_err(|e| e.to_string())?;
        let up = |name: &str| format!("link set {name} arp off multicast off addrgenmode none up");
        let lines = ["link set lo up".into(), "link add t0 type veth peer name t1".into(), up("t0"), up("t1")];
        lab.tester().and_then(|t| t.ip(&lines)).map_err(|e| e.to_string())?;
        let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
        let server = prepare(&lab, folder.path())?;
        server.up().map_err(|e| e.0)?;
        Ok(Bed { server, _folder: folder, lab })
    }

    /// Sends the server a signal.
    pub fn signal(&self, name: &str) -> Checked {
        signal(bed::running(&self.server.folder).ok_or("the server does not run")?, name)
    }

    /// Number of stored messages with reports.
    pub fn records(&self) -> Result<u64, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
        runtime.block_on(async {
            let link = Link::connect(&access(self, "controller"), "test").await.map_err(|e| e.0)?;
            let stream = link.records().await.map_err(|e| e.0)?;
            Ok(stream.cached_info().state.messages)
        })
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = self.signal("-CONT");
        let _ = bed::down(&self.server.folder);
        // A folder in which something is mounted could not be removed. Most have nothing there.
        let store = self.server.folder.join("store");
        let _ = Command::new("umount").arg("--lazy").arg(store).stderr(Stdio::null()).status();
    }
}

/// Sends a process a signal.
pub fn signal(process: u32, name: &str) -> Checked {
    let sent = Command::new("kill").args([name, &process.to_string()]).status();
    ensure(sent.is_ok_and(|status| status.success()), "no signal")
}

/// A server on loopback. The namespace is new, so every port is free.
pub fn local(folder: &Path) -> Result<Server, String> {
    let listen = bed::address("127.0.0.1:4222").map_err(|e| e.0)?;
    Ok(Server { folder: folder.to_owned(), listen, tls: None })
}

/// How a user reaches the server.
pub fn access(bed: &Bed, user: &str) -> Access {
    let open = Access { url: bed.server.url(), ..Access::default() };
    let Some((ca, _)) = bed.server.tls.clone() else { return open };
    let password = std::fs::read_to_string(bed.server.password_file(user)).ok();
    Access { user: Some(user.into()), password, ca: Some(ca), ..open }
}

/// Another process of this program.
pub struct Process(pub Child);

impl Process {
    /// True if it has not ended.
    pub fn runs(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns what starts this program in a role.
pub fn command(role: &str, bed: &Bed, variables: &[(&str, &str)]) -> Result<Command, String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut words: Vec<&str> = Vec::new();
    if let Some((_, ahead)) = variables.iter().find(|(name, _)| *name == AHEAD) {
        words.extend(["unshare", "--time", "--fork", "--kill-child", "--monotonic", *ahead]);
    }
    // All hosts share the processors of one machine: ports that came before everything else would keep the others from their heartbeats.
    if role == "agent" || variables.iter().any(|(name, _)| *name == ORDINARY) {
        words.extend(["setpriv", "--bounding-set", "-sys_nice", "--inh-caps", "-sys_nice"]);
    }
    let mut command = match words.split_first() {
        Some((first, rest)) => {
            let mut command = Command::new(first);
            command.args(rest).arg(&program);
            command
        }
        None => Command::new(&program),
    };
    let Access { url, user, password, ca, .. } = access(bed, if role == "agent" { role } else { "controller" });
    command.env_remove("DROPHAMMER_TEST_CASE").env(ROLE, role).env("URL", url);
    let ca = ca.map(|ca| ca.display().to_string());
    let identity = [("AS", user), ("PASSWORD", password), ("CA", ca)];
    command.envs(identity.into_iter().filter_map(|(name, value)| Some((name, value?))));
    command.envs(variables.iter().copied()).stdin(Stdio::null());
    Ok(command)
}

fn process(role: &str, bed: &Bed, variables: &[(&str, &str)]) -> Result<Process, String> {
    command(role, bed, variables)?.spawn().map(Process).map_err(|e| e.to_string())
}

/// Starts an agent, and waits until it is announced.
pub fn agent(bed: &Bed, name: &str, port: &str, more: &[(&str, &str)]) -> Result<Process, String> {
    let process = process("agent", bed, &[&[("NAME", name), ("PORT", port)], more].concat())?;
    let asking = controller(bed, "waiting")?;
    let there = || asking.inventory().is_ok_and(|(agents, _)| agents.iter().any(|(known, _)| known == name));
    until(&format!("agent {name}"), there)?;
    Ok(process)
}

/// Agents on two hosts, with one port each.
pub fn agents(bed: &Bed) -> Result<[Process; 2], String> {
    Ok([agent(bed, "host1", "t0", &[])?, agent(bed, "host2", "t1", &[])?])
}

/// Starts another process that drives endless traffic.
pub fn driver(bed: &Bed, silence: Duration) -> Result<Process, String> {
    process("driver", bed, &[("SILENCE_MS", &silence.as_millis().to_string())])
}

/// Starts another process that runs trials until its standard input ends, and fails unless all are whole.
pub fn trials(bed: &Bed, variables: &[(&str, &str)]) -> Result<Process, String> {
    command("trials", bed, variables)?.stdin(Stdio::piped()).spawn().map(Process).map_err(|e| e.to_string())
}

fn run_trials(mut bench: Bench) -> Checked {
    let enough = std::thread::spawn(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
    let mut trials = 0;
    while !enough.is_finished() {
        trials += 1;
        let result = bench.when_ready(|bench| bench.run(&spec(DURATION)))?;
        let counts = (result.intended(), result.offered(), result.received(), result.lost());
        ensure(counts == COUNTS, format!("trial {trials}: {counts:?} {:?}", result.health))?;
    }
    eprintln!("{trials} trials, all whole");
    Ok(())
}

/// Runs the helper that this process was started as, unless it runs a case.
pub fn as_other_process() -> Option<ExitCode> {
    let role = std::env::var(ROLE).ok()?;
    let word = |name: &str| std::env::var(name).unwrap_or_default();
    let given = |name: &str| std::env::var(name).ok();
    let (url, ca) = (word("URL"), given("CA").map(Into::into));
    let access = Access { url, user: given("AS"), password: given("PASSWORD"), ca, nkey: None };
    let ended = match role.as_str() {
        "agent" => {
            let options = Options {
                access,
                name: word("NAME"),
                ports: vec![word("PORT")],
                backend: if given("STEADY_STAMPS").is_some() { &af_xdp::BACKEND } else { &af_packet::BACKEND },
                queues: 1,
                processors: Vec::new(),
                version: std::env::var("VERSION").unwrap_or_else(|_| VERSION.into()),
                clock: std::env::var("CLOCK").map_or_else(|_| Domain::own(), Domain),
            };
            agent::run(options, &|| false, &|text| eprintln!("agent: {text}")).map_err(|e| e.0)
        }
        "trials" => connect(access, "trials").and_then(Bench::new).and_then(run_trials),
        _ => Controller::connect(Settings {
            silence: word("SILENCE_MS").parse().map_or(SILENCE, Duration::from_millis),
            ..settings(access, "driver")
        })
        .map_err(|e| e.0)
        .and_then(|controller| {
            let mut bench = Bench::new(controller)?;
            loop {
                match bench.run(&spec(Duration::from_secs(600))) {
                    // On a busy machine, a host may not be ready in time.
                    Err(why) => eprintln!("driver repeats: {why}"),
                    Ok(_) => break Ok(()),
                }
            }
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
    let (version, clock) = (VERSION.into(), Domain::own());
    Settings { access, holder: holder.into(), version, silence: SILENCE, clock, captures: true }
}

pub fn controller(bed: &Bed, holder: &str) -> Result<Controller, String> {
    connect(access(bed, "controller"), holder)
}

pub fn connect(access: Access, holder: &str) -> Result<Controller, String> {
    Controller::connect(settings(access, holder)).map_err(|e| e.0)
}

/// A rig, by default on t0 of host1 and t1 of host2.
pub struct Bench {
    pub rig: Rig,
    keys: TrialKeys,
    /// Traffic with 4,000 frames per second.
    pub spec: fn(Duration) -> TrialSpec,
    // Dropped after the rig, because it ends the rig's leases.
    pub controller: Controller,
}

pub fn rig(bed: &Bed, holder: &str) -> Result<Bench, String> {
    Bench::new(controller(bed, holder)?)
}

impl Bench {
    fn new(controller: Controller) -> Result<Bench, String> {
        let names = ["host1/t0", "host2/t1"].map(str::to_owned);
        let address = |i: usize| Address { address: HOSTS[i], prefix_len: 24, gateway: HOSTS[i ^ 1] };
        Bench::on(controller, &names, address, spec)
    }

    /// A rig on the ports with these names.
    pub fn on(
        controller: Controller,
        names: &[String],
        address: impl Fn(usize) -> Address<Ipv4Addr>,
        spec: fn(Duration) -> TrialSpec,
    ) -> Result<Bench, String> {
        let ports = Ports::Far(controller.open(names, SystemClock::start())?);
        let port = |i: usize| {
            let mut port = PortConfig::new(&format!("port {i}"), host_mac(5, i), 1_500);
            port.devices[0].ipv4 = Some(address(i));
            port
        };
        let mut rig = Rig::new(ports, &Config { seed: 5, ports: (0..names.len()).map(port).collect() });
        let end = rig.now() + LONG;
        rig.serve(&Until::Resolved.or_at(end), &|| false).map_err(|e| e.to_string())?;
        ensure(rig.unresolved().is_none(), "ARP through the agents has no answer")?;
        Ok(Bench { rig, keys: TrialKeys::new(std::process::id().into()), spec, controller })
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

    /// Returns what `run` returns, and runs it again while `spoilt` says that its error is the machine's. Prints how often it was repeated.
    fn repeated<T>(
        &mut self,
        run: impl Fn(&mut Bench) -> Result<T, String>,
        spoilt: impl Fn(&str) -> bool,
    ) -> Result<T, String> {
        let (begun, mut times) = (Instant::now(), 0);
        loop {
            match run(self) {
                Err(why) if spoilt(&why) && begun.elapsed() < LONG => {
                    times += 1;
                    eprintln!("repeated, {times}: {why}");
                }
                other => return other,
            }
        }
    }

    /// Runs a trial by `run`, again if a host was not ready in time or was not heard, which happens on a busy machine. No other
    /// reason is good.
    pub fn when_ready<T>(&mut self, run: impl Fn(&mut Bench) -> Result<T, String>) -> Result<T, String> {
        self.repeated(run, |why| {
            ["later than agreed", "was not heard for", "does not answer"].iter().any(|busy| why.contains(busy))
        })
    }

    /// Starts a trial, and drives it until both ports have sent 400 frames.
    pub fn under_way(&mut self, spec: &TrialSpec) -> Checked {
        self.when_ready(|bench| {
            let before = PORTS.map(sent);
            bench.start(spec)?;
            let begun = Instant::now();
            while PORTS.iter().zip(before).any(|(port, before)| sent(port) < before + 400) {
                ensure(begun.elapsed() < LONG, "the ports send nothing")?;
                let end = bench.rig.now() + Duration::from_millis(20);
                bench.rig.drive(end, &|| false).map_err(|e| e.to_string())?;
            }
            Ok(())
        })
    }

    /// Runs a trial. As in a test, it is repeated if it is void: the server may be gone while it starts, or a host may not be
    /// ready in time on a busy machine.
    pub fn complete(&mut self, spec: &TrialSpec) -> Result<TrialResult, String> {
        self.repeated(|bench| bench.run(spec), |_| true)
    }
}

/// The trial after a fault.
pub fn whole(bench: &mut Bench) -> Checked {
    let result = bench.complete(&(bench.spec)(Duration::from_millis(200)))?;
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
