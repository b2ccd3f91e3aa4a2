//! `drophammer agent`, `drophammer bed`, and the connection of a run to other hosts.

use crate::args::{AccessArgs, AgentArgs, BedCommand};
use crate::observer::stop_flag;
use crate::output::{err, out};
use crate::run::{VERSION, claim, queues_fit, usable_backend};
use crate::{Ended, Exit, Failure};
use drophammer_agent::agent::{self, Options};
use drophammer_agent::bed::{self, Bed};
use drophammer_agent::clock::Domain;
use drophammer_agent::link::Access;
use drophammer_agent::message::lease_key;
use drophammer_agent::{Controller, Settings};
use drophammer_lab::Lab;
use drophammer_model::suite::Suite;
use drophammer_store::read_regular;
use serde_json::json;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Address of the server that `drophammer bed up` starts.
const LOCAL: &str = "nats://127.0.0.1:4222";
/// Largest file with a secret, in bytes.
const MOST: u64 = 4096;

/// Reads a file with a secret.
fn secret(file: Option<&Path>) -> Result<Option<String>, Failure> {
    let Some(file) = file else { return Ok(None) };
    let failed = |e: &dyn std::fmt::Display| {
        Failure::usage(format!("cannot read `{}`: {e}; name a small text file that this user can read", file.display()))
    };
    let text = read_regular(file, MOST).map_err(|e| failed(&e))?;
    let text = String::from_utf8(text).map_err(|e| failed(&e))?;
    Ok(Some(text.trim().to_owned()))
}

fn access(args: &AccessArgs) -> Result<Access, Failure> {
    Ok(Access {
        url: args.nats.clone().unwrap_or_else(|| LOCAL.into()),
        user: args.user.clone(),
        password: secret(args.password_file.as_deref())?,
        nkey: secret(args.nkey_file.as_deref())?,
        ca: args.ca.as_ref().map(|ca| ca.canonicalize().unwrap_or_else(|_| ca.clone())),
    })
}

/// How a run or a server reaches other hosts, and whether it captures their frames; `None` if it was not asked to.
pub fn settings(args: &AccessArgs, silence: Duration, captures: bool) -> Result<Option<Settings>, Failure> {
    if args.nats.is_none() {
        return Ok(None);
    }
    if !(Duration::from_millis(100)..=Duration::from_secs(60)).contains(&silence) {
        return Err(Failure::usage("--silence is 100 ms to 60 s"));
    }
    let word = |name: &str| std::env::var(name).ok().filter(|word| !word.is_empty());
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let user = word("SUDO_USER").or_else(|| word("USER")).unwrap_or_else(|| "somebody".into());
    let holder = format!("{user} on {}, process {}", host.trim(), std::process::id());
    let access = access(args)?;
    Ok(Some(Settings { access, holder, version: VERSION.into(), silence, clock: Domain::own(), captures }))
}

/// Connects to other hosts, from the network namespace of this machine.
pub fn controller(settings: Option<Settings>, lab: Option<&Lab>) -> Result<Option<Controller>, Failure> {
    let Some(settings) = settings else { return Ok(None) };
    let connected = match lab {
        Some(lab) => lab.in_host_netns(|| Controller::connect(settings)).map_err(Failure::environment)?,
        None => Controller::connect(settings),
    };
    connected.map(Some).map_err(Failure::environment)
}

/// Refuses a suite that needs other hosts, if it is not said how to reach them.
pub fn refuse_unreachable(suite: &Suite, args: &AccessArgs) -> Result<(), Failure> {
    let names = suite.duts.iter().flat_map(|dut| dut.params.texts("interfaces").unwrap_or_default());
    match names.into_iter().find(|name| name.contains('/')) {
        Some(name) if args.nats.is_none() => Err(Failure::usage(format!(
            "{name} is on another host; give --nats with the server that joins the hosts (`drophammer bed up` starts one)"
        ))),
        _ => Ok(()),
    }
}

/// `drophammer agent`.
pub fn agent(args: &AgentArgs) -> Ended {
    let backend = usable_backend(&args.backend)?;
    let queues = u32::from(args.queues);
    queues_fit(backend, queues).map_err(Failure::usage)?;
    if let Some(missing) = args.ports.iter().find(|port| !Path::new("/sys/class/net").join(port).exists()) {
        return Err(Failure::environment(format!("this machine has no interface {missing}; `ip link` lists them")));
    }
    for port in &args.ports {
        drophammer_lab::kinds::external::refuse_in_use(port).map_err(Failure::environment)?;
    }
    let _claims = claim(&format!("the agent {:.24}", args.name), &args.ports)?;
    let stop = stop_flag()?;
    let options = Options {
        access: access(&args.access)?,
        name: args.name.clone(),
        ports: args.ports.clone(),
        backend,
        queues,
        processors: args.processors.clone(),
        version: VERSION.into(),
        clock: args.clock.clone().map_or_else(Domain::own, Domain),
    };
    let ended = agent::run(options, &|| stop.load(Ordering::Relaxed), &|text| err!("{text}"));
    ended.map(|()| Exit::Good).map_err(Failure::environment)
}

/// `drophammer bed`.
pub fn bed(command: &BedCommand) -> Ended {
    match command {
        BedCommand::Up { bed, listen, cert, key } => {
            let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
            let tls = cert.as_deref().zip(key.as_deref()).map(|(cert, key)| (absolute(cert), absolute(key)));
            let listen = bed::address(listen).map_err(Failure::usage)?;
            let bed = Bed { folder: absolute(&bed.folder), listen, tls };
            bed.up().map_err(Failure::environment)?;
            out!("the server listens on {}", bed.url());
            let name = if bed.tls.is_some() {
                let file = bed.password_file("agent");
                format!(" --user agent --password-file {} --ca CERTIFICATE", file.display())
            } else {
                String::new()
            };
            out!("on each host: drophammer agent --nats {}{name} --name HOST --ports INTERFACES", bed.url());
            Ok(Exit::Good)
        }
        BedCommand::Down { bed } => {
            let folder = std::path::absolute(&bed.folder).unwrap_or_else(|_| bed.folder.clone());
            match bed::down(&folder).map_err(Failure::environment)? {
                true => out!("the server has ended"),
                false => out!("no server runs in {}", folder.display()),
            }
            Ok(Exit::Good)
        }
        BedCommand::Status { access, json } => status(access, *json),
    }
}

fn status(args: &AccessArgs, json: bool) -> Ended {
    let given = AccessArgs { nats: Some(args.nats.clone().unwrap_or_else(|| LOCAL.into())), ..args.clone() };
    let settings = settings(&given, Duration::from_secs(2), false)?;
    let Some(controller) = controller(settings, None)? else { return Ok(Exit::Good) };
    let (agents, leases) = controller.inventory().map_err(Failure::environment)?;
    let holder = |host: &str, port: &str| {
        let key = lease_key(host, port);
        leases.iter().find(|(leased, _)| *leased == key).map(|(_, lease)| lease.holder.as_str())
    };
    if json {
        let agents = agents.iter().map(|(name, agent)| {
            let ports = agent.ports.iter().map(|(port, speed)| {
                json!({ "port": format!("{name}/{port}"), "speed_mbps": speed, "holder": holder(name, port) })
            });
            json!({
                "host": name, "version": agent.version, "protocol": agent.protocol, "backend": agent.backend,
                "threads": agent.threads, "clock": agent.clock, "ports": ports.collect::<Vec<_>>(),
            })
        });
        out!("{}", json!({ "agents": agents.collect::<Vec<_>>() }));
        return Ok(Exit::Good);
    }
    if agents.is_empty() {
        out!("no agent is there");
    }
    for (name, agent) in &agents {
        out!("{name}: version {}, backend {}, threads: {}", agent.version, agent.backend, agent.threads);
        for (port, speed) in &agent.ports {
            let speed = speed.map_or("speed unknown".into(), |mbps| format!("{mbps} Mbit/s"));
            let held = holder(name, port).map_or("free".into(), |holder| format!("held by {holder}"));
            out!("  {name}/{port}: {speed}, {held}");
        }
    }
    Ok(Exit::Good)
}
