//! Memory shared by the kernel program and this process, in words of 64 bits.

use crate::bpf::{SharedArray, device_map};
use crate::kernel_generator::{HEAD, Lag, LatenessBuckets, Stream, StreamAddresses, StreamFlow};
use std::io;
use std::os::fd::OwnedFd;

/// Tables of words: name, position, and meaning if the name does not explain it.
macro_rules! words {
    ($($name:ident = $place:literal $(, $meaning:literal)?;)*) => {
        $($(#[doc = $meaning])? pub const $name: usize = $place;)*
    };
}

/// Words of the single value with settings and counts. The settings are first, in their own cache lines.
pub mod state {
    words! {
        START = 0, "Start of the trial by `CLOCK_MONOTONIC`, in ns; all other times count from here.";
        CLOCK = 1, "Start of the run's clock by `CLOCK_MONOTONIC`, in ns.";
        END = 2, "No frame leaves from this time on.";
        TOTAL = 3, "Number of frames in the schedule; lowered to stop.";
        INTERVAL = 4, "Interval between departures: ns, and units of 2^-32 ns.";
        INTERVAL_FRACTION = 5;
        KEY = 6;
        BOUNDED = 7, "Not zero: a late generator skips frames and catches up slowly.";
        MAX_BACKLOG = 8;
        BUCKET = 9, "Token bucket for catching up, in ns / 256: its size, the tokens per frame, the tokens per nanosecond.";
        COST = 10;
        SPEED = 11;
        LAST_DUE = 12, "Departure of the last frame of the schedule.";
        INTERVAL_16 = 13, "Interval between departures in 2^-16 ns, for divisions.";
        BIN = 14, "Width of a time bin; zero without bins.";
        ROUND = 15, "Number of places in the round.";

        INDEX = 16, "Next index in the schedule.";
        SENT = 17;
        SKIPPED = 18;
        SKIPS = 19;
        DUE = 20, "Departure of the next frame: ns, and units of 2^-32 ns.";
        DUE_FRACTION = 21;
        TOKENS = 22;
        FILLED = 23, "Time at which tokens were last added.";
        PLACE = 24, "Next place in the round.";
        LAST = 25, "Departure of the last frame that left.";
        BIN_AT = 26, "The current bin and its end.";
        BIN_END = 27;
        LATENESS = 32;
        WORDS = 72;
    }
}

/// Words of a flow.
pub mod flow {
    words! {
        HEAD = 0;
        IP_SUM = 8;
        UDP_SUM = 9;
        ID = 10;
        NEXT = 11;
        SOURCES = 12;
        DESTINATIONS = 22;
        WORDS = 32;
    }
}

/// Words of a range of addresses within a flow.
pub mod addresses {
    words! {
        FIRST_HIGH = 0;
        FIRST_LOW = 1;
        STEP = 2;
        COUNT = 3;
        NEXT = 4, "Next place in the order.";
        HALF_BITS = 5;
        MASK = 6;
        KEYS = 7;
    }
}

/// Number of skips that are stored.
pub const SKIPS: usize = 65_536;

/// The maps of a program.
pub struct Maps {
    pub state: SharedArray,
    pub flows: SharedArray,
    /// One word per position in the round: the number of the flow.
    pub round: SharedArray,
    /// Two words per skip: frames sent before it, and frames skipped up to and including it.
    pub skips: SharedArray,
    pub bins: SharedArray,
    /// The interface through which frames leave.
    pub interface: OwnedFd,
}

impl Maps {
    /// Creates maps with room for these numbers. Frames leave through `interface`.
    pub fn new(interface: i32, flows: usize, round: usize, bins: usize) -> io::Result<Maps> {
        Ok(Maps {
            state: SharedArray::new(1, state::WORDS)?,
            flows: SharedArray::new(flows, flow::WORDS)?,
            round: SharedArray::new(round, 1)?,
            skips: SharedArray::new(SKIPS, 2)?,
            bins: SharedArray::new(bins, 1)?,
            interface: device_map(interface)?,
        })
    }

    /// Writes a stream; `clock` is the start of the run's clock. No frame leaves before [`Maps::start`].
    pub fn fill(&self, stream: &Stream, clock: u64) {
        let put = |word, value| self.state.put(0, word, value);
        (0..state::WORDS).for_each(|word| put(word, 0));
        put(state::START, u64::MAX);
        put(state::CLOCK, clock);
        put(state::END, stream.end_ns.unwrap_or(u64::MAX));
        put(state::TOTAL, stream.total);
        put(state::INTERVAL, (stream.interval >> 32) as u64);
        put(state::INTERVAL_FRACTION, stream.interval as u32 as u64);
        put(state::KEY, stream.key);
        if let Some(Lag { max_backlog_ns, burst_ns, speed_256 }) = stream.lag {
            put(state::BOUNDED, 1);
            put(state::MAX_BACKLOG, max_backlog_ns);
            put(state::BUCKET, burst_ns << 8);
            put(state::TOKENS, burst_ns << 8);
            put(state::SPEED, u64::from(speed_256));
        }
        put(state::COST, (stream.interval >> 24) as u64);
        put(state::LAST_DUE, stream.last_departure_ns);
        put(state::INTERVAL_16, (stream.interval >> 16) as u64);
        if let Some((width, _)) = stream.bins {
            put(state::BIN, width);
            put(state::BIN_END, width);
        }
        put(state::ROUND, stream.round.len() as u64);
        for (i, f) in stream.flows.iter().enumerate() {
            self.fill_flow(i, f);
        }
        stream.round.iter().enumerate().for_each(|(place, flow)| self.round.put(place, 0, u64::from(*flow)));
        (0..self.bins.entries()).for_each(|bin| self.bins.put(bin, 0, 0));
    }

    fn fill_flow(&self, i: usize, f: &StreamFlow) {
        let put = |word, value| self.flows.put(i, word, value);
        for (word, bytes) in f.head.as_chunks::<8>().0.iter().enumerate().take(HEAD / 8) {
            put(flow::HEAD + word, u64::from_ne_bytes(*bytes));
        }
        put(flow::IP_SUM, f.ip_sum);
        put(flow::UDP_SUM, f.udp_sum);
        put(flow::ID, u64::from(f.id));
        put(flow::NEXT, 0);
        for (at, range) in [(flow::SOURCES, &f.sources), (flow::DESTINATIONS, &f.destinations)] {
            self.fill_addresses(i, at, range);
        }
    }

    fn fill_addresses(&self, i: usize, at: usize, range: &StreamAddresses) {
        let put = |word, value| self.flows.put(i, at + word, value);
        put(addresses::FIRST_HIGH, (range.first >> 64) as u64);
        put(addresses::FIRST_LOW, range.first as u64);
        put(addresses::STEP, range.step);
        put(addresses::COUNT, u64::from(range.count));
        put(addresses::NEXT, 0);
        put(addresses::HALF_BITS, u64::from(range.half_bits));
        put(addresses::MASK, (1 << range.half_bits) - 1);
        range.keys.iter().enumerate().for_each(|(k, key)| put(addresses::KEYS + k, u64::from(*key)));
    }

    /// Returns the departure errors.
    pub fn lateness(&self) -> LatenessBuckets {
        std::array::from_fn(|i| self.state.get(0, state::LATENESS + i))
    }
}
