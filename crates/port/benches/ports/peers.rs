//! Other generators on the same interface, each as a separate process or kernel thread on the same processor. Their rate
//! is the one counted by the interface, never the one they print.

use crate::links::{FROM, LEN, MACS, Sample, constant_frame, counted, counter};
use drophammer_lab::Lab;
use std::fs;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Time within which a generator must send.
const START: Duration = Duration::from_secs(10);
/// How often this is checked.
const LOOK: Duration = Duration::from_millis(1);
/// Frames after which it counts as started.
const STARTED: u64 = 1_000;

/// Waits until the interface has sent some frames, gets the sender from `settle`, then counts over `seconds`. `alive`
/// returns an error if no more frames will be sent.
fn measured(
    seconds: f64,
    mut alive: impl FnMut() -> Result<(), String>,
    settle: impl FnOnce() -> Result<String, String>,
) -> Result<Sample, String> {
    let (begun, from) = (Instant::now(), counter(FROM, "tx_packets"));
    while counter(FROM, "tx_packets") < from + STARTED {
        alive()?;
        if begun.elapsed() > START {
            return Err("it sends nothing".into());
        }
        thread::sleep(LOOK);
    }
    let pid = settle()?;
    let sample = counted(&pid, || {
        let start = Instant::now();
        thread::sleep(Duration::from_secs_f64(seconds));
        start.elapsed().as_secs_f64()
    });
    alive().map(|()| sample)
}

/// trafgen, with all its child processes.
struct Trafgen(Child);

impl Drop for Trafgen {
    fn drop(&mut self) {
        let group = -(self.0.id() as libc::pid_t);
        // SAFETY: plain call; the group was made for this child, which has not been waited for.
        unsafe { libc::kill(group, libc::SIGKILL) };
        let _ = self.0.wait();
    }
}

/// The child processes of `pid`.
fn workers(pid: u32) -> Vec<libc::pid_t> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Pins `pid` to `cpu`: trafgen pins its worker by itself, to the first processor.
fn pin(pid: libc::pid_t, cpu: usize) -> io::Result<()> {
    // SAFETY: an all-zero set is valid; the call reads it.
    let result = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(pid, size_of_val(&set), &set)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// trafgen with one worker and a constant frame.
pub fn trafgen(lab: &Lab, seconds: f64) -> Result<Sample, String> {
    let bytes: Vec<String> = constant_frame().iter().map(|byte| format!("{byte:#04x}")).collect();
    let cpu = lab.cpus().tester;
    let start = || {
        // It does not change the host's settings and interrupts, and its file is in a folder that is removed with the
        // lab.
        Command::new("trafgen")
            .args(["--dev", FROM, "--cpus", "1", "--no-sock-mem", "--notouch-irq"])
            .arg(format!("{{ {} }}", bytes.join(", ")))
            .current_dir("/run")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
    };
    // It runs among the processes of the lab, which end with the lab.
    let child = lab.tester().and_then(|netns| netns.run(start)).map_err(|e| e.to_string())?;
    let mut trafgen = Trafgen(child.map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => "not installed; Debian package netsniff-ng".to_owned(),
        _ => e.to_string(),
    })?);
    let pid = trafgen.0.id();
    let alive = || match trafgen.0.try_wait() {
        Ok(Some(status)) => {
            let mut errors = String::new();
            let _ = trafgen.0.stderr.take().map(|mut pipe| pipe.read_to_string(&mut errors));
            Err(format!("it ended by itself, {status}: {}", errors.trim()))
        }
        _ => Ok(()),
    };
    measured(seconds, alive, || {
        let workers = workers(pid);
        workers.iter().try_for_each(|pid| pin(*pid, cpu)).map_err(|e| e.to_string())?;
        match workers[..] {
            [pid] => Ok(pid.to_string()),
            _ => Err(format!("{} workers instead of one", workers.len())),
        }
    })
}

/// The process with this name.
fn process(name: &str) -> Result<String, String> {
    let pids = fs::read_dir("/proc").map_err(|e| e.to_string())?;
    let named = |pid: &String| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name);
    let mut pids = pids.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    pids.find(named).ok_or_else(|| format!("there is no process {name}"))
}

/// The kernel's own generator, with the same frame, allocated anew each time.
pub fn pktgen(lab: &Lab, seconds: f64) -> Result<Sample, String> {
    const FOLDER: &str = "/proc/net/pktgen";
    if fs::metadata(FOLDER).is_err() {
        return Err("not available; needs a kernel with CONFIG_NET_PKTGEN, and `modprobe pktgen`".into());
    }
    let write = |file: &str, line: &str| {
        let path = format!("{FOLDER}/{file}");
        fs::write(&path, line).map_err(|e| format!("{path}: {line}: {e}"))
    };
    let mac = |mac: [u8; 6]| mac.map(|byte| format!("{byte:02x}")).join(":");
    let thread = format!("kpktgend_{}", lab.cpus().tester);
    write(&thread, "rem_device_all")?;
    write(&thread, &format!("add_device {FROM}"))?;
    let (destination, source) = (format!("dst_mac {}", mac(MACS[1])), format!("src_mac {}", mac(MACS[0])));
    for line in ["count 0", "delay 0", "clone_skb 0", "dst 10.0.0.1", &format!("pkt_size {LEN}"), &destination, &source]
    {
        write(FROM, line)?;
    }
    let sample = thread::scope(|scope| {
        // This call returns when the generator has stopped.
        let run = scope.spawn(|| write("pgctrl", "start"));
        let alive = || if run.is_finished() { Err("it ended by itself".into()) } else { Ok(()) };
        let sample = measured(seconds, alive, || process(&thread));
        let stopped = write("pgctrl", "stop");
        sample.and_then(|sample| stopped.map(|()| sample))
    });
    write(&thread, "rem_device_all")?;
    sample
}
