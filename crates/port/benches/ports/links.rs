//! The two interfaces that all rows use, their counters, and the results of a row.

use std::fs;

/// The sending interface.
pub const FROM: &str = "t0";
/// The receiving interface, if there is a receiver.
pub const TO: &str = "t1";
/// Length of a 64-byte frame without FCS.
pub const LEN: usize = 60;
/// Addresses of no interface: the receiving kernel drops such a frame immediately.
pub const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

/// Result of one run of a row.
#[derive(Clone, Copy)]
pub struct Sample {
    /// Frames per second: sent, as counted by the interface, or received.
    pub rate: f64,
    /// Frames per second of processor time of the sender.
    pub per_cpu: f64,
    /// Share of the offered frames that was not received, in rows that receive.
    pub lost: f64,
}

/// The IPv4 frame that peers and bare loops send.
pub fn constant_frame() -> [u8; LEN] {
    let mut frame = [0; LEN];
    frame[..6].copy_from_slice(&MACS[1]);
    frame[6..12].copy_from_slice(&MACS[0]);
    frame[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
    frame
}

/// A counter of an interface.
pub fn counter(interface: &str, name: &str) -> u64 {
    let path = format!("/sys/class/net/{interface}/statistics/{name}");
    fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or_else(|| panic!("no {path}"))
}

/// Processor time of a process or thread so far, in seconds; `thread-self` is the calling thread.
pub fn cpu_seconds(pid: &str) -> f64 {
    let path = format!("/proc/{pid}/schedstat");
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let ns = text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok());
    ns.unwrap_or_else(|| panic!("{path} says {text}")) as f64 / 1e9
}

/// The rate at which the sending interface counts frames while `work` runs, over the seconds that it returns; `pid` is the
/// sender.
pub fn counted(pid: &str, work: impl FnOnce() -> f64) -> Sample {
    let (before, cpu) = (counter(FROM, "tx_packets"), cpu_seconds(pid));
    let seconds = work();
    let (frames, cpu) = ((counter(FROM, "tx_packets") - before) as f64, cpu_seconds(pid) - cpu);
    Sample { rate: frames / seconds, per_cpu: frames / cpu, lost: 0.0 }
}
