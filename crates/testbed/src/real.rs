//! What a DUT on interfaces needs: it is brought up and taken down, ports are opened, captured and recorded.

use crate::device;
use drophammer_lab::{Dut, Lab, LabError, TesterInterface, Where};
use drophammer_model::environment::PortRecord;
use drophammer_model::role::RouterRole;
use drophammer_model::suite::{DutConfig, PortConfig, Suite};
use drophammer_model::topology::{System, Unsuited};
use drophammer_port::capture::{Capture, CaptureLimits, CaptureStatus};
use drophammer_port::{Backend, Clock, Port, SystemClock};
use drophammer_rig::{Config, Ports};
use drophammer_traffic::TestTraffic;
use std::path::Path;

/// Brings a DUT of the suite up, its logs and configuration in the existing folder `work_dir`.
///
/// # Errors
/// Those of its kind.
pub fn bring_up(
    lab: &mut Lab,
    dut: &DutConfig,
    suite: &Suite,
    work_dir: &Path,
    stop: &dyn Fn() -> bool,
) -> Result<Box<dyn Dut>, LabError> {
    match (drophammer_lab::find(&dut.kind), &dut.topology) {
        (Some(kind), Some(topology)) => {
            let unusable = |e: Unsuited| LabError::Unusable { what: e.what, remedy: e.remedy };
            let system = System::of(&suite.ports, topology).map_err(unusable)?;
            drophammer_lab::bring_up_system(kind, lab, dut, system, work_dir, stop)
        }
        (Some(kind), None) => kind.bring_up(lab, dut, &RouterRole::of(&suite.ports), work_dir, stop),
        // The reference device is the tester's own, unknown to the lab.
        (None, _) => Ok(Box::new(device::bring_up(lab, dut, &suite.ports, suite.seed, work_dir, stop)?)),
    }
}

/// Takes a DUT down. What a simulated one says that it did is kept in `work_dir` as `truth.json`.
///
/// # Errors
/// What could not be kept or removed; everything was tried.
pub fn take_down(mut device: Box<dyn Dut>, work_dir: &Path) -> Result<(), String> {
    let mut kept = Ok(());
    // One that died says nothing any more, and why it did is known.
    if device.record().simulated && device.check().is_ok() {
        let path = work_dir.join("truth.json");
        kept = device.counters().map_err(|e| e.to_string()).and_then(|counters| {
            let text = serde_json::to_string_pretty(&counters).map_err(|e| e.to_string())?;
            std::fs::write(&path, text + "\n").map_err(|e| format!("cannot write {}: {e}", path.display()))
        });
    }
    device.take_down().map_err(|e| e.to_string()).and(kept)
}

/// Opens so many queues of each of the tester's interfaces as ports of `backend`: those of the first interface, those of the
/// second, and so on.
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
    let mut ports = Vec::new();
    for interface in interfaces {
        let open = || drophammer_rig::open(&interface.name, backend, queues, clock, lab.cpus().spare);
        let opened = match interface.netns {
            Where::Tester => open(),
            Where::Host => lab.in_host_netns(open).map_err(|e| e.to_string())?,
        };
        ports.extend(opened.map_err(|e| e.to_string())?);
    }
    Ok(ports)
}

/// Queues of the ports in the order of the suite.
type Open = Vec<Box<dyn Port + Send>>;
/// Size of a capture at most, in bytes.
const CAPTURE: u64 = 1 << 30;

/// Puts a capture around each port that keeps what is no test traffic of the run with `seed` in `NAME.pcap` in the existing
/// folder `folder`; what comes and goes by queue N of several is in `NAME.N.pcap`.
///
/// # Errors
/// A file that cannot be made.
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

/// What the run records of the ports.
pub fn port_records(configs: &[PortConfig], ports: &Ports, hosts: &Config) -> Vec<PortRecord> {
    configs
        .iter()
        .zip(&hosts.ports)
        .take(ports.len())
        .enumerate()
        .map(|(index, (config, host))| {
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
