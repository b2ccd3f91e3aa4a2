//! Drophammer's own rows: a trial with all its work in a run.

use crate::links::{FROM, MACS, Sample, TO, counter, cpu_seconds};
use crate::setting::{self, Nobody};
use drophammer_model::trial::{AddressRange, FlowSpec, Load, TrialResult, TrialSpec};
use drophammer_port::discard::Discard;
use drophammer_port::live_frames;
use drophammer_port::{Backend, Clock, Port, SystemClock};
use drophammer_traffic::Plan;
use drophammer_wire::MacAddr;

/// One flow from port 0 to port `to`, at maximum rate.
fn plan(to: usize, destinations: u32, seconds: f64, trial: u64) -> Plan {
    let range = |first: [u8; 4], count| AddressRange { first: first.into(), step: 1, count };
    let spec = TrialSpec {
        purpose: "bench".into(),
        size: "64".parse().expect("a size"),
        flows: vec![FlowSpec::new("all", 0, to, range([10, 200, 0, 2], 1), range([10, 0, 0, 0], destinations))],
        load: Load::Maximum { limit_pps: 14_880_952.0 },
        duration_s: seconds,
        bin_s: None,
        drain_s: if to == 0 { 0.0 } else { 0.2 },
        events: vec![],
    };
    setting::plan(&spec, MACS.map(MacAddr), trial, 200_000).expect("a plan")
}

fn open(backend: &Backend, interface: &str, clock: SystemClock) -> Result<Box<dyn Port>, String> {
    Ok(backend.open(interface, clock).map_err(|e| e.to_string())?)
}

/// Runs a trial; also returns the processor time that it took.
fn run(plan: Plan, ports: &mut [Box<dyn Port>], clock: SystemClock) -> Result<(TrialResult, f64), String> {
    let cpu = cpu_seconds("thread-self");
    let result = drophammer_traffic::run(plan, ports, &mut { clock }, &mut Nobody(None)).map_err(|e| e.to_string())?;
    Ok((result, cpu_seconds("thread-self") - cpu))
}

/// Processor time of all threads of this process, in seconds.
fn all_threads() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    tasks.map(|task| cpu_seconds(&format!("self/task/{}", task.file_name().to_string_lossy()))).sum()
}

/// Sends frames that the kernel generates, in a thread of the port. Only a far end with NAPI accepts such frames: here one
/// with an XDP program and a ring without a reader, so that they end there, on the sender's processor. Sent frames are
/// those counted by the receive work of the far end.
fn send_from_kernel(backend: &Backend, destinations: u32, seconds: f64) -> Result<Sample, String> {
    let clock = SystemClock::start();
    let far = Discard::attach(TO).map_err(|e| e.to_string())?;
    let mut ports = [open(backend, FROM, clock)?];
    let count = || counter(TO, "rx_packets");
    let (before, cpu) = (count(), all_threads());
    let plan = plan(0, destinations, seconds, clock.now().0);
    let (result, _) = run(plan, &mut ports, clock)?;
    let cpu = all_threads() - cpu;
    drop(ports);
    let sent = count() - before;
    drop(far);
    if result.health.kernel_generators != 1 {
        return Err("the kernel did not generate the frames".into());
    }
    if sent > result.offered() {
        return Err(format!("{} frames offered, but the far end has seen {sent}", result.offered()));
    }
    Ok(Sample { rate: sent as f64 / result.sending_s, per_cpu: sent as f64 / cpu, lost: 0.0 })
}

/// Sends only, without a receiver. The port is still polled for received frames after every burst, as in any trial.
pub fn send(backend: &Backend, destinations: u32, seconds: f64) -> Result<Sample, String> {
    if backend.spec.name == live_frames::SPEC.name {
        return send_from_kernel(backend, destinations, seconds);
    }
    let clock = SystemClock::start();
    let mut ports = [open(backend, FROM, clock)?];
    let count = || ["tx_packets", "tx_dropped"].map(|name| counter(FROM, name));
    let before = count();
    let plan = plan(0, destinations, seconds, clock.now().0);
    let (result, cpu) = run(plan, &mut ports, clock)?;
    drop(ports);
    let [sent, dropped] = count();
    let (sent, dropped) = (sent - before[0], dropped - before[1]);
    // The trial and the interface must count the same.
    if sent + dropped != result.offered() {
        return Err(format!(
            "{} frames offered, but the interface counts {sent} and {dropped} dropped",
            result.offered()
        ));
    }
    Ok(Sample { rate: sent as f64 / result.sending_s, per_cpu: sent as f64 / cpu, lost: 0.0 })
}

/// Makes the kernel collect received frames at the far end for up to this many µs before it processes them, like network
/// cards with interrupt moderation; 0: it processes each frame immediately.
fn gather(us: u32) -> Result<(), String> {
    let files = [("gro_flush_timeout", us * 1_000), ("napi_defer_hard_irqs", us.min(1) * 100)];
    let put = |(name, value): (&str, u32)| {
        let path = format!("/sys/class/net/{TO}/{name}");
        std::fs::write(&path, value.to_string()).map_err(|e| format!("{path}: {e}"))
    };
    files.into_iter().try_for_each(put)
}

/// [`both`] with a receiving end that collects frames for up to 100 µs.
pub fn both_gathered(backend: &Backend, destinations: u32, seconds: f64) -> Result<Sample, String> {
    // Its ring has 256 entries: more than a hundred frames arrive in this time, and there is room for twice as many.
    gather(100)?;
    let sample = both(backend, destinations, seconds);
    gather(0)?;
    sample
}

/// Sends and receives on one thread, with full accounting of received frames.
pub fn both(backend: &Backend, destinations: u32, seconds: f64) -> Result<Sample, String> {
    if backend.spec.name == live_frames::SPEC.name {
        return Err("it sends from a thread of its own, and receives as af_packet does".into());
    }
    let clock = SystemClock::start();
    let mut ports = [open(backend, FROM, clock)?, open(backend, TO, clock)?];
    let plan = plan(1, destinations, seconds, clock.now().0);
    let (result, cpu) = run(plan, &mut ports, clock)?;
    let wrong = result.sum(|g| g.corrupted + g.stray + g.duplicated + g.reordered);
    if wrong > 0 || result.received() == 0 {
        return Err(format!(
            "{wrong} frames arrived damaged, astray, twice or out of order; {} arrived",
            result.received()
        ));
    }
    if result.health.receive_drops > 0 {
        return Err(format!("the tester lost {} frames", result.health.receive_drops));
    }
    let lost = result.lost() as f64 / result.offered() as f64;
    let (received, seconds) = (result.received() as f64, result.sending_s.max(result.receiving_s));
    Ok(Sample { rate: received / seconds, per_cpu: received / cpu, lost })
}
