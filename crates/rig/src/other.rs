//! Observes received frames other than test frames. It counts them by protocol, and records what happens to the extra
//! frames that it sends in the meantime. Test frames do not pass through here, so the observation costs them nothing.
//!
//! # Other frames
//!
//! The rig passes frames other than test frames to the emulated devices. During an observation (`Hosts::observe`) it
//! also counts them by protocol, with the table in `frame_kinds.rs`, and sends extra frames at given times. Without an
//! observation, each of these frames costs only one more comparison. `testbed/src/extra.rs` compiles an extra frame
//! (`model::beside::ExtraFrame`) from its headers, including wrong values. The payload repeats a mark of 12 bytes (key
//! of the run, number of the frame). The identification or flow label also contains the number. `rig/src/extra.rs`
//! recognises the frame by either of them, whatever the DUT has changed, and matches ICMP errors by the packet that
//! they quote. `methods::Trial::extra` observes during a trial and its drain time, `Testbed::observe` without a trial.

use crate::extra::{Found, Sent, alterations};
use crate::frame_kinds::protocol;
use drophammer_model::beside::{ErrorCount, ExtraFate, IcmpError, OtherTraffic, ProtocolCount};
use drophammer_model::quantity::Instant;
use drophammer_model::trial::PortIndex;
use drophammer_port::{Arrival, PortError};
use drophammer_traffic::TestTraffic;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

pub use crate::extra::{MARK, identification, mark};

/// Maximum number of protocol names with their own count at a port. All other protocols count as [`REST`].
const NAMES: usize = 64;
/// Name for all other protocols.
const REST: &str = "others";
/// Maximum number of kinds of ICMP errors with their own count, for one extra frame and at one port.
const KINDS: usize = 16;
/// Length of the shortest frame in bytes, with FCS.
const SHORTEST: u64 = 64;
/// Length of an FCS in bytes.
const FCS: u64 = 4;

/// A frame without FCS, to be sent at a given time.
#[derive(Clone, Debug)]
pub struct Extra {
    /// The port that sends it.
    pub port: PortIndex,
    /// When to send it.
    pub at: Instant,
    /// The frame. Its index in the list is its number, which identifies it.
    pub bytes: Vec<u8>,
    /// Number of routers that it passes on its way to each port; one for ports without an entry.
    pub hops: Vec<u8>,
}

/// Counts of one protocol.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    frames: u64,
    answers: u64,
    bytes: u64,
    most: u64,
    /// The current second, and the number of frames in it.
    second: (u64, u64),
}

/// The observation of one port.
pub(crate) struct Observation {
    start: Instant,
    test: TestTraffic,
    /// Index of the port.
    port: PortIndex,
    sent: Arc<Sent>,
    /// Send times and numbers of the extra frames that this port still has to send, earliest first.
    due: VecDeque<(Instant, usize)>,
    fates: BTreeMap<usize, ExtraFate>,
    protocols: BTreeMap<String, Count>,
    unmatched_errors: u64,
    /// Number of ICMP errors by kind and reported MTU.
    errors: BTreeMap<(IcmpError, Option<u32>), u64>,
}

impl Observation {
    /// Creates one observation per port. Late test frames of `test` are not counted. `key` is the key in the marks of `extra`.
    pub(crate) fn of_ports(
        ports: usize,
        start: Instant,
        test: &TestTraffic,
        key: u64,
        extra: Vec<Extra>,
    ) -> Vec<Observation> {
        let mut due = vec![VecDeque::new(); ports];
        for (number, frame) in extra.iter().enumerate() {
            due[frame.port].push_back((frame.at, number));
        }
        let sent = Arc::new(Sent::new(key, extra.into_iter().map(|frame| (frame.bytes, frame.hops)).collect()));
        let of_port = |(port, mut due): (PortIndex, VecDeque<(Instant, usize)>)| {
            due.make_contiguous().sort_unstable();
            let (fates, protocols, errors) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
            let (test, sent) = (test.clone(), sent.clone());
            Observation { start, test, port, sent, due, fates, protocols, unmatched_errors: 0, errors }
        };
        due.into_iter().enumerate().map(of_port).collect()
    }

    /// Counts a received frame.
    pub(crate) fn take(&mut self, arrival: Arrival<'_>) {
        let Arrival { frame, at } = arrival;
        match self.sent.find(frame) {
            Found::Frame(number) => {
                let altered = alterations(self.sent.frame(number), frame, self.sent.hops(number, self.port));
                let fate = self.fates.entry(number).or_default();
                fate.arrived += 1;
                fate.altered.extend(altered);
                return;
            }
            Found::Error(error, _, Some(number)) => {
                let errors = &mut self.fates.entry(number).or_default().errors;
                if errors.len() < KINDS || errors.contains_key(&error) {
                    *errors.entry(error).or_default() += 1;
                }
            }
            Found::Error(error, mtu, None) => {
                self.unmatched_errors += 1;
                if self.errors.len() < KINDS || self.errors.contains_key(&(error, mtu)) {
                    *self.errors.entry((error, mtu)).or_default() += 1;
                }
            }
            Found::Other if self.test.has(frame) => return,
            Found::Other => {}
        }
        let (name, answer) = protocol(frame);
        let known = self.protocols.len() < NAMES || self.protocols.contains_key(&name);
        let count = self.protocols.entry(if known { name } else { REST.to_owned() }).or_default();
        count.frames += 1;
        count.answers += u64::from(answer);
        count.bytes += (frame.len() as u64 + FCS).max(SHORTEST);
        let second = at.0.saturating_sub(self.start.0) / 1_000_000_000;
        if count.second.0 != second {
            count.second = (second, 0);
        }
        count.second.1 += 1;
        count.most = count.most.max(count.second.1);
    }

    /// Sends the frames that are due. Returns false if the port is full.
    ///
    /// # Errors
    /// Errors of the port.
    pub(crate) fn send(
        &mut self,
        now: Instant,
        send: &mut dyn FnMut(&[u8]) -> Result<bool, PortError>,
    ) -> Result<bool, PortError> {
        while let Some((at, number)) = self.due.front().copied() {
            if at > now {
                break;
            }
            if !send(self.sent.frame(number))? {
                return Ok(false);
            }
            self.due.pop_front();
            self.fates.entry(number).or_default().sent = true;
        }
        Ok(true)
    }

    /// Returns when the next frame is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.due.front().map(|(at, _)| *at)
    }

    /// Returns the sum of the observations of all ports until `end`.
    pub(crate) fn conclude(observations: Vec<Observation>, end: Instant) -> OtherTraffic {
        let mut all = OtherTraffic::default();
        for (port, observation) in observations.into_iter().enumerate() {
            all.time = end.since(observation.start);
            all.extra.resize(observation.sent.len(), ExtraFate::default());
            for (number, fate) in observation.fates {
                let sum = &mut all.extra[number];
                sum.sent |= fate.sent;
                sum.arrived += fate.arrived;
                sum.altered.extend(fate.altered);
                fate.errors.into_iter().for_each(|(error, n)| *sum.errors.entry(error).or_default() += n);
            }
            all.protocols.extend(observation.protocols.into_iter().map(|(protocol, count)| ProtocolCount {
                port,
                protocol,
                frames: count.frames,
                answers: count.answers,
                bytes: count.bytes,
                most_per_second: count.most,
            }));
            all.unmatched_errors += observation.unmatched_errors;
            let counted = observation.errors.into_iter();
            all.errors.extend(counted.map(|((error, mtu), frames)| ErrorCount { port, error, mtu, frames }));
        }
        all
    }
}
