//! What tester and host did to a trial.

use super::{Held, is_zero};
use serde::{Deserialize, Serialize};

/// How the tester fared during a trial. A trial that the tester spoilt is invalid, not lossy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Health {
    /// Frames that the tester failed to offer in time: intended - offered.
    pub unsent: u64,
    /// Test frames lost in the tester's own receive path (ring or socket overflow).
    pub receive_drops: u64,
    /// Longest time between two looks of the packet loop, in ns.
    pub max_gap_ns: u64,
    /// Sum of all gaps above 1 ms, in ns.
    pub gaps_over_1ms_ns: u64,
    /// The longest of these gaps, at most 16 of each thread, in order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gap_times: Vec<Held>,
    /// How late frames were handed to the port: `(percentile, ns)`.
    pub departure_error: Vec<(f64, u64)>,
    /// The same as a histogram: `(up to this many ns, frames)`, by powers of two.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub departure_errors: Vec<(u64, u64)>,
    /// Step of the wall clock against the steady clock during the trial, in ns.
    pub clock_step_ns: i64,
    /// Time that the hypervisor took from the tester's processor, in ns; absent where it cannot be read.
    pub tester_stolen_ns: Option<u64>,
    /// Time that the tester's first thread could have run while programs of others had its processor, in ns; absent where the kernel
    /// does not count it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tester_waited_ns: Option<u64>,
    /// Processor time that the DUT's forwarding and daemons took over the trial, its drain included, in ns; absent where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dut_used_ns: Option<u64>,
    /// Of this: work of the kernel for the tester's ends of the links, which is done on the processor that sends to them: what receives the
    /// frames that the DUT sent, and moves frames from its input queue to the ring. In ns, by samples of the kernel: 10 ms more or less.
    /// Absent where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tester_on_dut_ns: Option<u64>,
    /// What the machine did to the DUT's processor; absent where the DUT has none of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dut_processor: Option<ProcessorRecord>,
    /// Frames of an earlier trial or run that still came in; they are counted here and nowhere else.
    pub stale: u64,
    /// Frames that are not test traffic (ARP, ND, routing protocols, whatever the DUT says by itself).
    pub other_received: u64,
    /// Frames that the emulated devices sent meanwhile, extra frames included; absent in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_sent: Option<u64>,
    /// Sending ports whose frames were made in the kernel; those of the others were made by the packet loop.
    #[serde(default)]
    pub kernel_generators: u32,
    /// Frames of which copies came to queues of several threads. Latency, bytes and time bins count each of these copies. They
    /// are looked for among the last frames of each flow, as many as the receiver remembers.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub copies_apart: u64,
}

/// What a machine did to the DUT's processor during a trial. Times in ns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessorRecord {
    /// Time that it was watched: the trial with its drain.
    pub elapsed_ns: u64,
    /// Of this: neither idle nor at work for the DUT, the watch or another machine. Absent where the kernel does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreign_ns: Option<u64>,
    /// Time that the DUT can have waited for it because of these. Absent where that time is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited_ns: Option<u64>,
    /// Time that one of its threads has certainly waited because of these: longer than all others of the DUT together ran. Absent where that
    /// is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited_least_ns: Option<u64>,
    /// The other program that ran there the longest, where one is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_foreign: Option<String>,
    /// Of this: a hypervisor had taken it, in steps of 10 ms. Absent where the kernel does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stolen_ns: Option<u64>,
    /// Times of 1 ms and more in which it ran nothing that it should have. Absent where only root may look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalls: Option<u64>,
    /// These times together.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub stalled_ns: u64,
    /// The longest of them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub longest_stall_ns: u64,
    /// The longest of them, at most 64, in order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stall_times: Vec<Held>,
    /// What the watch itself took.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub watch_ns: u64,
}
