//! A router in namespaces of this machine, between the two interfaces.

use super::links::Link;
use crate::args::BlastArgs;
use crate::run::{refuse_missing, sweep};
use crate::suite_file::read_own;
use crate::{Ended, Exit, Failure};
use drophammer_lab::{Dut, Lab, LabOptions};
use drophammer_model::suite::{Addressing, Suite};
use drophammer_model::trial::Family;
use drophammer_testbed::real;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Folder of its logs. For this process, the lab hides it.
const LOGS: &str = "/run/drophammer-blast";

/// The suite of one router of this kind with two ports.
fn suite(kind: &str) -> Result<Suite, String> {
    let text = format!(
        "suite: blast\nduts: [{{name: {kind}, kind: {kind}}}]\nports: [{{name: p1, speed: 10 Gbit/s}}, {{name: p2, speed: 10 Gbit/s}}]\ntests: [throughput]\n"
    );
    let first = |errors: drophammer_suite::SuiteErrors| {
        errors.errors.first().map_or(String::new(), |e| format!("--dut: {}; {}", e.message, e.help))
    };
    read_own(&text, "--dut").map_err(first)
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
    /// Must be dropped last, because the namespaces end with it.
    lab: Lab,
}

impl Router {
    /// Moves the process into its own namespaces, and brings the router up there. Call it before any other thread
    /// exists.
    pub fn bring_up(kind: &str, args: &BlastArgs, stop: &AtomicBool) -> Result<Router, Failure> {
        let suite = suite(kind).map_err(Failure::usage)?;
        let dut = suite.duts.first().ok_or_else(|| Failure::usage("--dut names no router"))?;
        refuse_missing([dut], &[])?;
        sweep();
        let options = LabOptions { queues: args.queues.into(), ..LabOptions::default() };
        let mut lab = Lab::enter(&options).map_err(Failure::environment)?;
        lab.pin_current_thread(lab.cpus().tester).map_err(Failure::environment)?;
        let logs = Path::new(LOGS);
        fs::create_dir_all(logs).map_err(|e| Failure::environment(format!("cannot create {LOGS}: {e}")))?;
        let stopped = || stop.load(Ordering::Relaxed);
        match real::bring_up(&mut lab, dut, &suite, logs, &stopped) {
            Ok(device) => Ok(Router { device: Some(device), lab }),
            Err(_) if stopped() => Err(Failure::new(Exit::Interrupted, "stopped by the user")),
            Err(e) => Err(Failure::environment(e)),
        }
    }

    /// The tester's interfaces.
    pub fn interfaces(&self) -> [String; 2] {
        let name = |port: usize| self.device.as_ref()?.interfaces().get(port).map(|at| at.name.clone());
        [0, 1].map(|port| name(port).unwrap_or_default())
    }

    /// Processors for `threads` threads of the tester. Fails if there are too few.
    pub fn processors(&self, threads: usize) -> Result<Vec<usize>, String> {
        self.lab.cpus().for_threads(threads).map(<[usize]>::to_vec).map_err(|e| e.to_string())
    }

    /// Takes the router down. Returns `exit` if that works.
    pub fn take_down(mut self, exit: Exit) -> Ended {
        let taken = self.device.take().map(|device| real::take_down(device, Path::new(LOGS)));
        taken.transpose().map(|_| exit).map_err(Failure::environment)
    }
}

impl Link {
    fn of(addressing: &Addressing) -> Link {
        Link { address: addressing.host, prefix_len: addressing.prefix_len, gateway: addressing.dut }
    }
}
