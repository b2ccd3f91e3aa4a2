//! Interface for ports that can generate the frames of a trial in the kernel.

use crate::PortError;
use drophammer_model::quantity::Instant;

/// Addresses of a range in pseudo-random order: a Feistel network of three rounds over `2 * half_bits` bits, repeated
/// until the result is below `count`. The order is the same as in `drophammer_traffic::permutation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamAddresses {
    /// First address; an IPv4 address is in the low 32 bits.
    pub first: u128,
    /// Difference between neighbouring addresses.
    pub step: u64,
    /// Number of addresses, at least 1.
    pub count: u32,
    /// Half of the network's width in bits, 1 to 16.
    pub half_bits: u32,
    /// Keys of the rounds.
    pub keys: [u32; 3],
}

/// Length of the start of a test frame that is the same in all frames of a flow; enough for Ethernet, IPv6 and UDP.
pub const HEAD: usize = 64;

/// What distinguishes the frames of a flow from the frames of other flows.
#[derive(Clone, Copy, Debug)]
pub struct StreamFlow {
    /// Flow number in the signature.
    pub id: u32,
    /// First bytes of the flow's frames, with addresses and checksums zero.
    pub head: [u8; HEAD],
    /// Sum (of little-endian words) over the IPv4 header, with addresses and checksum zero.
    pub ip_sum: u64,
    /// Sum over pseudo-header and datagram, with addresses, signature and checksum zero.
    pub udp_sum: u64,
    /// Source addresses.
    pub sources: StreamAddresses,
    /// Destination addresses.
    pub destinations: StreamAddresses,
}

/// Evenly spaced frames of one length and IP version that a port sends in one trial.
#[derive(Clone, Debug)]
pub struct Stream {
    /// True for IPv6, false for IPv4.
    pub ipv6: bool,
    /// A frame without FCS. The bytes between its first [`HEAD`] bytes and the signature are the same in all frames.
    pub frame: Vec<u8>,
    /// Offset of the signature.
    pub signature_at: usize,
    /// The flows.
    pub flows: Vec<StreamFlow>,
    /// The order of flows, by index. It repeats endlessly.
    pub round: Vec<u32>,
    /// Key of the trial's signatures.
    pub key: u64,
    /// Number of frames.
    pub total: u64,
    /// Interval between departures in 2^-32 ns.
    pub interval: u128,
    /// Nominal departure of the last frame, in ns after the start.
    pub last_departure_ns: u64,
    /// Time in ns after the start from which no frame leaves.
    pub end_ns: Option<u64>,
    /// How a late generator catches up. If `None`, all due frames leave immediately.
    pub lag: Option<Lag>,
    /// Width of the time bins in ns, and their number.
    pub bins: Option<(u64, usize)>,
}

/// Limits of a late generator.
#[derive(Clone, Copy, Debug)]
pub struct Lag {
    /// Backlog in ns above which frames are skipped.
    pub max_backlog_ns: u64,
    /// Load that can leave in one burst, in ns.
    pub burst_ns: u64,
    /// Maximum speed of catching up, in 256ths of the load.
    pub speed_256: u32,
}

/// Departure errors by power of two of nanoseconds: `[i]` counts those below `2^i` that no earlier entry counts.
pub type LatenessBuckets = [u64; 40];

/// Progress of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamProgress {
    /// Frames handed to the interface.
    pub sent: u64,
    /// Position in the schedule: frames sent or skipped.
    pub index: u64,
    /// True if nothing more will be sent and the numbers are final.
    pub finished: bool,
}

/// Result of a stream.
#[derive(Clone, Debug)]
pub struct StreamReport {
    /// Frames handed to the interface.
    pub sent: u64,
    /// Position in the schedule: frames sent or skipped.
    pub index: u64,
    /// Skipped parts of the schedule: frames sent before each skip, and frames skipped up to and including it. If there
    /// are too many skips, only the first ones are listed.
    pub skips: Vec<(u64, u64)>,
    /// Departure errors.
    pub lateness: LatenessBuckets,
    /// When the last frame left, in ns after the start.
    pub last_departure_ns: u64,
    /// Frames by time bin.
    pub bins: Vec<u64>,
}

/// Generates frames in the kernel and sends them through the port's interface while the process does other work.
pub trait KernelGenerator {
    /// Sets the processor that generates frames from now on. `None`, the initial value, means the processor of the
    /// thread that starts a stream. This thread then yields to the generator with [`KernelGenerator::give_way`]. Loads
    /// below `slowest_pps` frames per second are not generated in the kernel: if both share a processor, user space
    /// sends loads that it can handle more evenly.
    fn place(&mut self, processor: Option<usize>, slowest_pps: f64);

    /// Returns the slowest load that is generated in the kernel, as set by [`KernelGenerator::place`]; initially 0.
    fn slowest_pps(&self) -> f64;

    /// Returns the length in bytes of the longest frame without FCS that it can generate.
    fn longest(&self) -> usize;

    /// Returns the maximum number of flows in a stream.
    fn most_flows(&self) -> usize;

    /// Prepares `stream` and ends an earlier one. Returns `Ok(false)` if the kernel cannot send it at the moment,
    /// because the other end of the link does not accept frames generated in the kernel.
    ///
    /// # Errors
    /// [`PortError::Lost`].
    fn prepare(&mut self, stream: &Stream) -> Result<bool, PortError>;

    /// Starts the prepared stream, with the first frame at `start`.
    fn start(&mut self, start: Instant);

    /// Returns the progress of the stream. Do not call it in every pass of a loop: reading takes the cache lines with
    /// the counts away from the processor that writes them.
    ///
    /// # Errors
    /// [`PortError::Lost`] if the kernel refuses to continue.
    fn progress(&self) -> Result<StreamProgress, PortError>;

    /// Yields the processor to the generator for a moment if both share a processor; otherwise returns immediately.
    fn give_way(&mut self);

    /// Stops the stream and waits until it has ended.
    ///
    /// # Errors
    /// [`PortError::Lost`].
    fn stop(&mut self) -> Result<StreamReport, PortError>;
}
