//! Effects of tester and host on a trial.

use super::{Held, Silences};
use serde::{Deserialize, Serialize};

/// State of the tester during a trial. A trial that the tester spoilt is invalid, not lossy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Health {
    /// Frames that the tester did not offer in time: intended - offered.
    pub unsent: u64,
    /// Unsent frames that the tester's own ring refused. At the maximum load they also count here, although nothing is
    /// unsent there.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub refused_by_tester: u64,
    /// Test frames lost in the tester's own receive path (ring or socket overflow).
    pub receive_drops: u64,
    /// Longest time between two polls of the packet loop, in ns.
    pub max_gap_ns: u64,
    /// Sum of all gaps above 1 ms, in ns.
    pub gaps_over_1ms_ns: u64,
    /// The longest gaps above 1 ms, at most 16 per thread, in order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gap_times: Vec<Held>,
    /// Periods in which no thread had an arrival. `None` if nothing arrived, if the ports do not know when frames
    /// arrived, in virtual time, and in a stored record, where [`ProcessorRecord::stood_still_ns`] has the conclusion.
    #[serde(skip)]
    pub silences: Option<Silences>,
    /// Delay of frames when they were handed to the port: `(percentile, ns)`.
    pub departure_error: Vec<(f64, u64)>,
    /// The same delay as a histogram: `(up to this many ns, frames)`, by powers of two.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub departure_errors: Vec<(u64, u64)>,
    /// Largest step of the wall clock against the steady clock during the trial, in ns.
    pub clock_step_ns: i64,
    /// Time that the hypervisor took from the tester's processor, in ns; absent if it cannot be read.
    pub tester_stolen_ns: Option<u64>,
    /// Time that the tester's first thread was ready to run while other programs had its processor, in ns; absent if
    /// the kernel does not count it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tester_waited_ns: Option<u64>,
    /// Processor time of the DUT's forwarding and daemons over the trial with its drain, in ns; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dut_used_ns: Option<u64>,
    /// Part of `dut_used_ns` that the kernel spent on the tester's ends of the links, in ns; absent if it was not
    /// measured. The kernel does this work on the processor that sends to them: it receives the frames that the DUT
    /// sent, and moves frames from its input queue to the ring. Earlier versions sampled the kernel, so their records
    /// can be far off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tester_on_dut_ns: Option<u64>,
    /// Disturbance of the DUT's processor by the machine; absent if the DUT has no dedicated processor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dut_processor: Option<ProcessorRecord>,
    /// Late frames of an earlier trial or run, which count only here.
    pub stale: u64,
    /// Received frames that are not test traffic (ARP, ND, routing protocols, other traffic that the DUT originates).
    pub other_received: u64,
    /// Frames that the emulated devices sent during the trial, extra frames included; absent in records of earlier
    /// versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_sent: Option<u64>,
    /// Number of sending ports whose frames the kernel made. The packet loop made the frames of all other ports.
    #[serde(default)]
    pub kernel_generators: u32,
    /// Frames whose copies arrived at queues of several threads. Latency, bytes and time bins count each copy. The
    /// receiver detects them only among the last frames of each flow that it remembers.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub copies_apart: u64,
    /// Conditions of a trial whose ports are on other hosts; absent if all ports are on this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub between_hosts: Option<BetweenHosts>,
}

/// Conditions of a trial whose ports are on several hosts. Times are in ns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BetweenHosts {
    /// Number of hosts.
    pub hosts: u32,
    /// Upper bound of the time between the starts of the first and of the last host.
    pub start_skew_ns: u64,
    /// Largest uncertainty of the difference between the clocks of two hosts that a flow connects: half of the shortest
    /// round trip of the messages that compared them, and the change since the clocks were set. Latencies carry it.
    pub clock_uncertainty_ns: u64,
    /// Half of the median round trip of these messages on the slowest way. Messages of emulated devices leave about this
    /// much later.
    #[serde(default)]
    pub one_way_ns: u64,
    /// Groups whose latency is not measurable: the smallest one is below that uncertainty, or a frame between the same clocks
    /// arrived before it was sent by more than that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmeasurable: Vec<String>,
    /// True if a frame arrived before it was sent by more than the uncertainty of the two clocks, so that one of them says
    /// something wrong about itself, or took more than 3.3 s, which looks the same.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub clocks_refuted: bool,
    /// The hosts; empty in records of earlier versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub each: Vec<HostRecord>,
}

/// A host that lent ports to a trial. Times are in ns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRecord {
    /// Name of its agent.
    pub name: String,
    /// Its interfaces among the ports of the trial.
    pub ports: Vec<String>,
    /// Version of its agent.
    pub version: String,
    /// Uncertainty of its clock against the clock of the run.
    pub clock_uncertainty_ns: u64,
    /// Upper bound of the time between its start and that of any other host.
    pub start_skew_ns: u64,
    /// Half of the median round trip of messages between it and the run.
    pub one_way_ns: u64,
    /// What chrony said about the clock; absent if chrony does not synchronize it, or not the clock of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chrony: Option<ChronyRecord>,
}

/// The difference between two clocks that chrony synchronizes to the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChronyRecord {
    /// Largest error of the difference by chrony's own bounds for both clocks, in ns.
    pub bound_ns: u64,
    /// True if the comparison over the management network excludes this difference; then only the comparison counts.
    pub contradicted: bool,
}

/// Disturbance of the DUT's processor by the machine during a trial. Times are in ns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessorRecord {
    /// Time of observation: the trial, including its drain.
    pub elapsed_ns: u64,
    /// Part of `elapsed_ns` in which the processor was neither idle nor working for the DUT, the watch or another
    /// machine. Absent if the kernel does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreign_ns: Option<u64>,
    /// Upper bound of the time that the DUT waited for the processor because of other programs. Absent if
    /// `foreign_ns` is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited_ns: Option<u64>,
    /// Lower bound of the time that one of the DUT's threads waited because of other programs: its waiting time, less
    /// the running time of all other threads of the DUT. Absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited_least_ns: Option<u64>,
    /// The other program that ran there the longest, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_foreign: Option<String>,
    /// Part of the time that a hypervisor took, in steps of 10 ms. Absent if the kernel does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stolen_ns: Option<u64>,
    /// Number of stalls of 1 ms and more, in which the processor ran neither the DUT nor the watch. Absent if reading
    /// them requires root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalls: Option<u64>,
    /// Total time of all stalls.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub stalled_ns: u64,
    /// The longest stall.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub longest_stall_ns: u64,
    /// The longest part of a stall during which nothing arrived at the tester. While frames arrive, the DUT's own
    /// thread has the processor: a receive thread that always finds new frames lets nothing else run. Absent if
    /// unknown, for example if nothing arrived at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stood_still_ns: Option<u64>,
    /// True if the longest stall exceeds the limit of other tests, but this test tolerates it. It may have lost frames.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub stall_tolerated: bool,
    /// The longest stalls, at most 64, in order of time. If the arrivals are known, contains only the parts during
    /// which nothing arrived at the tester.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stall_times: Vec<Held>,
    /// Time that the watch itself used.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub watch_ns: u64,
}

impl ProcessorRecord {
    /// Longest time in ns for which the processor may have stalled.
    pub fn standstill_ns(&self) -> u64 {
        self.stood_still_ns.unwrap_or(self.longest_stall_ns)
    }
}
