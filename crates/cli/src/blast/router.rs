//! A router of this machine, in namespaces, between the two interfaces.

use super::Failure;
use super::links::Link;
use crate::Exit;
use crate::args::BlastArgs;
use crate::output::err;
use crate::run::fail;
use crate::suite_file::with_registry;
use drophammer_lab::{Dut, Lab, LabOptions};
use drophammer_model::suite::{Addressing, Suite};
use drophammer_model::trial::Family;
use drophammer_suite::read::{self, Overrides};
use drophammer_testbed::real;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Folder of its logs, which the lab covers for this process.
const LOGS: &str = "/run/drophammer-blast";

/// The suite of one router of this kind with two ports.
fn suite(kind: &str) -> Result<Suite, String> {
    let text = format!(
        "suite: blast\nduts: [{{name: {kind}, kind: {kind}}}]\nports: [{{name: p1, speed: 10 Gbit/s}}, {{name: p2, speed: 10 Gbit/s}}]\ntests: [throughput]\n"
    );
    with_registry(|registry| read::read(&text, "--dut", registry, &Overrides::default()))
        .map_err(|errors| errors.errors.first().map_or(String::new(), |e| format!("--dut: {}; {}", e.message, e.help)))
}

/// The hosts behind the two interfaces of a router of this kind.
pub fn links(kind: &str, ipv6: bool) -> Result<[Link; 2], String> {
    let suite = suite(kind)?;
    let family = if ipv6 { Family::Ipv6 } else { Family::Ipv4 };
    let of = |port: usize| suite.ports.get(port)?.addressing(family).map(Link::of);
    of(0).zip(of(1)).map(|(a, b)| [a, b]).ok_or_else(|| "--dut: the router has no addresses".into())
}

/// A router that is up.
pub struct Router {
    device: Option<Box<dyn Dut>>,
    /// Dropped last: the namespaces end with it.
    lab: Lab,
}

impl Router {
    /// Moves the process into separate namespaces, and brings the router up there. Call before any other thread exists.
    ///
    /// # Errors
    /// What is missing or forbidden, or that the user stopped it.
    pub fn bring_up(kind: &str, args: &BlastArgs, stop: &AtomicBool) -> Result<Router, Failure> {
        let suite = suite(kind).map_err(|text| Failure { exit: Exit::Usage, text })?;
        let Some(dut) = suite.duts.first() else {
            return Err(Failure { exit: Exit::Usage, text: "--dut names no router".into() });
        };
        let missing: Vec<String> = drophammer_lab::missing(dut, &[]).iter().map(ToString::to_string).collect();
        if !missing.is_empty() {
            return Err(Failure::environment(missing.join("\nerror: ")));
        }
        for left in drophammer_lab::sweep() {
            err!("left by an earlier run: {left}");
        }
        let options = LabOptions { queues: args.queues.into(), ..LabOptions::default() };
        let mut lab = Lab::enter(&options).map_err(Failure::environment)?;
        lab.pin_current_thread(lab.cpus().tester).map_err(Failure::environment)?;
        let logs = Path::new(LOGS);
        fs::create_dir_all(logs).map_err(|e| Failure::environment(format!("cannot create {LOGS}: {e}")))?;
        let stopped = || stop.load(Ordering::Relaxed);
        match real::bring_up(&mut lab, dut, &suite, logs, &stopped) {
            Ok(device) => Ok(Router { device: Some(device), lab }),
            Err(_) if stopped() => Err(Failure { exit: Exit::Interrupted, text: "stopped by the user".into() }),
            Err(e) => Err(Failure::environment(e)),
        }
    }

    /// The tester's interfaces.
    pub fn interfaces(&self) -> [String; 2] {
        let name = |port: usize| self.device.as_ref()?.interfaces().get(port).map(|at| at.name.clone());
        [0, 1].map(|port| name(port).unwrap_or_default())
    }

    /// Processors for `threads` threads of the tester.
    ///
    /// # Errors
    /// There are fewer.
    pub fn processors(&self, threads: usize) -> Result<Vec<usize>, String> {
        self.lab.cpus().for_threads(threads).map(<[usize]>::to_vec).map_err(|e| e.to_string())
    }

    /// Takes the router down. Returns the exit code of the program, which is `exit` if there was no error.
    pub fn take_down(mut self, exit: Exit) -> Exit {
        let taken = self.device.take().map(|device| real::take_down(device, Path::new(LOGS)));
        match taken {
            Some(Err(e)) => fail(Exit::Environment, e),
            _ => exit,
        }
    }
}

impl Link {
    fn of(addressing: &Addressing) -> Link {
        Link { address: addressing.host, prefix_len: addressing.prefix_len, gateway: addressing.dut }
    }
}
