//! DUTs on interfaces: brings them up, takes them down, and opens, captures and records their ports.

use crate::device;
use crate::kinds::ports_of;
use drophammer_lab::{Dut, Lab, LabError, TesterInterface, Where};
use drophammer_model::environment::PortRecord;
use drophammer_model::role::RouterRole;
use drophammer_model::suite::{DutConfig, PortConfig, Suite};
use drophammer_model::topology::{System, Unsuited};
use drophammer_port::capture::{Capture, CaptureLimits, CaptureStatus};
use drophammer_port::{Backend, Clock, Port, SystemClock};
use drophammer_rig::{Config, Lender, Ports};
use drophammer_traffic::TestTraffic;
use std::path::Path;

/// Brings up a DUT of the suite, with its logs and configuration in the existing folder `work_dir`.
///
/// # Errors
/// The errors of the DUT's kind.
pub fn bring_up(
    lab: &mut Lab,
    dut: &DutConfig,
    suite: &Suite,
    work_dir: &Path,
    stop: &dyn Fn() -> bool,
) -> Result<Box<dyn Dut>, LabError> {
    let ports = ports_of(dut, &suite.ports);
    match (drophammer_lab::find(&dut.kind), &dut.topology) {
        (Some(kind), Some(topology)) => {
            let unusable = |e: Unsuited| LabError::Unusable { what: e.what, remedy: e.remedy };
            let system = System::of(&ports, topology).map_err(unusable)?;
            drophammer_lab::bring_up_system(kind, lab, dut, system, work_dir, stop)
        }
        (Some(kind), None) => kind.bring_up(lab, dut, &RouterRole::of(&ports), work_dir, stop),
        // The reference device belongs to the tester; the lab does not know it.
        (None, _) => Ok(Box::new(device::bring_up(lab, dut, &ports, suite.seed, work_dir, stop)?)),
    }
}

/// Takes a DUT down. The true counts that a simulated DUT reports are stored in `work_dir` as `truth.json`.
///
/// # Errors
/// The error of a step that failed. All steps are tried.
pub fn take_down(mut device: Box<dyn Dut>, work_dir: &Path) -> Result<(), String> {
    let mut kept = Ok(());
    // A dead device no longer answers, and the cause of its death is already known.
    if device.record().simulated && device.check().is_ok() {
        let path = work_dir.join("truth.json");
        kept = device.counters().map_err(|e| e.to_string()).and_then(|counters| {
            let text = serde_json::to_string_pretty(&counters).map_err(|e| e.to_string())?;
            std::fs::write(&path, text + "\n").map_err(|e| format!("cannot write {}: {e}", path.display()))
        });
    }
    device.take_down().map_err(|e| e.to_string()).and(kept)
}

/// Opens `queues` queues of each of the tester's interfaces as ports of `backend`: first all queues of the first
/// interface, then all queues of the second, and so on.
///
/// # Errors
/// An interface that cannot be opened, with the remedy.
pub fn open(
    lab: &Lab,
    interfaces: &[TesterInterface],
    backend: &Backend,
    queues: u32,
    clock: SystemClock,
) -> Result<Vec<Box<dyn Port + Send>>, String> {
    drophammer_lab::receive_at_sender();
    let mut ports = Vec::new();
    for place in interfaces.chunk_by(|a, b| a.netns == b.netns) {
        let names: Vec<_> = place.iter().map(|interface| interface.name.as_str()).collect();
        let open = || drophammer_rig::open(&names, backend, queues, clock, lab.cpus().spare);
        let opened = match place[0].netns {
            Where::Tester => open(),
            Where::Host => lab.in_host_netns(open).map_err(|e| e.to_string())?,
            Where::Agent => {
                let why = "is on another host, which is only possible for a router that is tested alone";
                return Err(format!("{} {why}; use --dut for one router, or an interface of this machine", names[0]));
            }
        };
        ports.extend(opened.map_err(|e| e.to_string())?);
    }
    Ok(ports)
}

/// Opens the tester's interfaces on other hosts.
///
/// # Errors
/// There is no connection to other hosts, or a port cannot be had, with the remedy.
pub fn open_far(
    lender: Option<&dyn Lender>,
    interfaces: &[TesterInterface],
    clock: SystemClock,
) -> Result<Ports, String> {
    let names: Vec<String> = interfaces.iter().map(|interface| interface.name.clone()).collect();
    let lender = lender
        .ok_or_else(|| format!("{} is on another host; give --nats with the server that joins the hosts", names[0]))?;
    lender.open(&names, clock).map(Ports::Far)
}

/// Like [`open`], but from now on the tester receives on its own processors. Waking a thread for each frame costs the
/// router's processor time, so this is for a router that has its processor alone. Routers that are flooded at the same
/// time are compared without this; the time of the tester's receive work is subtracted instead.
/// # Errors
/// The errors of [`open`], or the tester's namespace cannot be entered.
pub fn open_apart(
    lab: &Lab,
    interfaces: &[TesterInterface],
    backend: &Backend,
    queues: u32,
    clock: SystemClock,
) -> Result<Vec<Box<dyn Port + Send>>, String> {
    let ports = open(lab, interfaces, backend, queues, clock)?;
    lab.receive_on_tester(interfaces).map_err(|e| e.to_string())?;
    Ok(ports)
}

/// Queues of the ports, in the order of the suite.
type Open = Vec<Box<dyn Port + Send>>;
/// Maximum size of a capture in bytes.
const CAPTURE: u64 = 1 << 30;

/// Wraps each port in a capture that stores all frames except the test traffic of the run with `seed`. The file is
/// `NAME.pcap` in the existing folder `folder`, or `NAME.N.pcap` for queue N if there are several.
///
/// # Errors
/// A file that cannot be created.
pub fn capture(
    ports: Open,
    configs: &[PortConfig],
    folder: &Path,
    clock: SystemClock,
    seed: u64,
) -> Result<(Open, Vec<CaptureStatus>), String> {
    let test_traffic = TestTraffic::of_run(seed);
    let origin_ns = u64::try_from(clock.wall_offset()).unwrap_or(0);
    let limits = CaptureLimits { file_bytes: CAPTURE, ..CaptureLimits::default() };
    let mut captured: (Open, Vec<CaptureStatus>) = Default::default();
    let mut configs = configs.iter();
    let mut name = "";
    for port in ports {
        let queue = port.info().queue;
        if queue.index == 0 {
            name = configs.next().map_or("", |config| config.name.as_str());
        }
        let file = if queue.count > 1 { format!("{name}.{}.pcap", queue.index) } else { format!("{name}.pcap") };
        let path = folder.join(file);
        let of_run = test_traffic.clone();
        let is_test = move |frame: &[u8]| of_run.has(frame);
        let (port, status) = Capture::start(port, &path, limits, origin_ns, move || clock.now(), is_test)
            .map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        captured.0.push(Box::new(port));
        captured.1.push(status);
    }
    Ok(captured)
}

/// Returns the records of the ports for the run. The first one is port `first` of the tester.
pub fn port_records(configs: &[PortConfig], ports: &Ports, hosts: &Config, first: usize) -> Vec<PortRecord> {
    configs
        .iter()
        .zip(hosts.ports.iter().skip(first))
        .zip(first..ports.len())
        .map(|((config, host), index)| {
            let info = ports.info(index);
            let addresses = [&config.ipv4, &config.ipv6].into_iter().flatten();
            PortRecord {
                name: config.name.clone(),
                interface: info.interface.clone(),
                backend: info.backend.into(),
                driver: info.driver.clone(),
                queues: info.queue.count,
                mtu: info.mtu,
                speed_bps: config.speed.0,
                medium: config.medium,
                mac: host.mac().to_string(),
                addresses: addresses.map(|a| format!("{} -> {}", a.host, a.dut)).collect(),
            }
        })
        .collect()
}
