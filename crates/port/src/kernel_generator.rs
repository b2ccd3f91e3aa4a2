//! What a port offers that can make the frames of a trial in the kernel.

use crate::PortError;
use drophammer_model::quantity::Instant;

/// Members of a range of addresses in pseudo-random order: a Feistel network of three rounds over `2 * half_bits` bits,
/// walked until it gives a number below `count`. The order is `drophammer_traffic::permutation`'s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamAddresses {
    /// First address; IPv4 in the low 32 bits.
    pub first: u128,
    /// Distance between neighbours.
    pub step: u64,
    /// Number of addresses, at least 1.
    pub count: u32,
    /// Half of the network's width in bits, 1 to 16.
    pub half_bits: u32,
    /// Keys of the rounds.
    pub keys: [u32; 3],
}

/// Bytes of the headers of a test frame that are the same in all frames of a flow; enough for Ethernet, IPv6 and UDP.
pub const HEAD: usize = 64;

/// A flow, as far as its frames differ from those of other flows.
#[derive(Clone, Copy, Debug)]
pub struct StreamFlow {
    /// Number in the signature.
    pub id: u32,
    /// First bytes of its frames, with addresses and checksums zero.
    pub head: [u8; HEAD],
    /// Sum (of little-endian words) over the IPv4 header with addresses and checksum zero.
    pub ip_sum: u64,
    /// Sum over pseudo header and datagram with addresses, signature and checksum zero.
    pub udp_sum: u64,
    /// Source addresses.
    pub sources: StreamAddresses,
    /// Destination addresses.
    pub destinations: StreamAddresses,
}

/// What a port is to send in one trial: frames of one length and IP version, evenly spaced.
#[derive(Clone, Debug)]
pub struct Stream {
    /// IP version 6, otherwise 4.
    pub ipv6: bool,
    /// A frame without FCS; what is behind its first [`HEAD`] bytes is the same in all frames up to the signature.
    pub frame: Vec<u8>,
    /// Where the signature is.
    pub signature_at: usize,
    /// The flows.
    pub flows: Vec<StreamFlow>,
    /// The order of flows, by index, again and again.
    pub round: Vec<u32>,
    /// Key of the trial's signatures.
    pub key: u64,
    /// Frames in all.
    pub total: u64,
    /// Distance of departures in 2^-32 ns.
    pub interval: u128,
    /// Nominal departure of the last frame, in ns after the start.
    pub last_departure_ns: u64,
    /// Nothing is sent from this time after the start on, in ns.
    pub end_ns: Option<u64>,
    /// How a late generator goes on; without it, everything that is due is sent at once.
    pub lag: Option<Lag>,
    /// Time bins: width in ns and number.
    pub bins: Option<(u64, usize)>,
}

/// What a late generator may do.
#[derive(Clone, Copy, Debug)]
pub struct Lag {
    /// What is later than this is left out, in ns.
    pub max_backlog_ns: u64,
    /// Load that may leave in one go, in ns.
    pub burst_ns: u64,
    /// Catches up at most at so many 256ths of the load.
    pub speed_256: u32,
}

/// Departure errors by power of two of nanoseconds: `[i]` counts those below `2^i` that are in no place before.
pub type LatenessBuckets = [u64; 40];

/// How far a stream is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamProgress {
    /// Frames handed to the interface.
    pub sent: u64,
    /// Of the schedule: sent or left out.
    pub index: u64,
    /// True when nothing more will be sent: the numbers stay.
    pub finished: bool,
}

/// What became of a stream.
#[derive(Clone, Debug)]
pub struct StreamReport {
    /// Frames handed to the interface.
    pub sent: u64,
    /// Of the schedule: sent or left out.
    pub index: u64,
    /// Stretches that were left out: frames sent before each, and frames left out up to and including it; the first ones,
    /// as far as there is room.
    pub skips: Vec<(u64, u64)>,
    /// How late frames left.
    pub lateness: LatenessBuckets,
    /// When the last frame left, in ns after the start.
    pub last_departure_ns: u64,
    /// Frames by time bin.
    pub bins: Vec<u64>,
}

/// Makes frames in the kernel and hands them to the port's interface, while the process does other things.
pub trait KernelGenerator {
    /// Where frames are made from now on: on this processor, or (`None`, as after opening) on that of whoever starts a
    /// stream, who then lets it run by [`KernelGenerator::give_way`]. Loads below `slowest_pps` frames per second are not
    /// made in the kernel: where both share a processor, user space sends what it can more evenly.
    fn place(&mut self, processor: Option<usize>, slowest_pps: f64);

    /// The slowest load that is made in the kernel, as [`KernelGenerator::place`] was told; 0 after opening.
    fn slowest_pps(&self) -> f64;

    /// Longest frame without FCS that can be made, in bytes.
    fn longest(&self) -> usize;

    /// Largest number of flows of a stream.
    fn most_flows(&self) -> usize;

    /// Lays `stream` out; an earlier one ends. `Ok(false)` when the kernel cannot send it at this moment, because the
    /// other end of the link does not take frames that were made in the kernel.
    ///
    /// # Errors
    /// [`PortError::Lost`].
    fn prepare(&mut self, stream: &Stream) -> Result<bool, PortError>;

    /// Sends what was prepared, the first frame at `start`.
    fn start(&mut self, start: Instant);

    /// How far it is. Not for every turn of a loop: reading takes the numbers away from the processor that counts them.
    ///
    /// # Errors
    /// [`PortError::Lost`] when the kernel refuses to go on.
    fn progress(&self) -> Result<StreamProgress, PortError>;

    /// Lets the generator have the processor for a moment where it shares that of the caller; otherwise returns at once.
    fn give_way(&mut self);

    /// Ends the stream and waits until it has ended.
    ///
    /// # Errors
    /// [`PortError::Lost`].
    fn stop(&mut self) -> Result<StreamReport, PortError>;
}
