//! Generates a port's frames in the kernel, if the port supports it (`Port::kernel_generator`; only `live_frames`) and
//! the plan fits. The loop then only receives. All counts are the same as for frames from user space.
//! `Health::kernel_generators` counts these ports.
//!
//! A plan fits if all flows of the port have one frame size and one IP version, the load is constant, a burst or the
//! maximum, destinations are address ranges and not counted separately, and there are no events. Order of flows,
//! addresses, sequence numbers and the rules for a late generator are the same as in user space, so the number of sent
//! frames determines which frames were offered.

use super::{Addresses, Aim, PortGenerator, SendFlow, Skip};
use super::{CATCH_UP_BURST_NS, CATCH_UP_FRAMES, CATCH_UP_SPEED};
use drophammer_model::quantity::Instant;
use drophammer_model::trial::Family;
use drophammer_port::kernel_generator::{HEAD, Lag, Stream, StreamAddresses, StreamFlow, StreamReport};
use drophammer_port::{KernelGenerator, Port, PortError};

/// How often to read the kernel's progress.
const LOOK_NS: u64 = 50_000;
/// Lowest rate that the kernel can pace: its departures are less than 2^32 ns apart.
const SLOWEST_PPS: f64 = 0.25;
/// Highest rate that the kernel can pace.
const FASTEST_PPS: f64 = 500e6;

/// State of a generator in the kernel.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Following {
    last_look: Instant,
    /// True once no more frames will leave and all frames are counted.
    pub(super) finished: bool,
}

impl PortGenerator {
    /// True if these frames fit and `port` can generate frames in the kernel.
    pub(crate) fn may_be_in_kernel(&self, port: &mut dyn Port) -> bool {
        self.fits_kernel && port.kernel_generator().is_some()
    }

    /// Prepares the kernel's generator, if it supports these frames.
    ///
    /// # Errors
    /// Errors of the port.
    pub(crate) fn prepare_in_kernel(&mut self, port: &mut dyn Port) -> Result<(), PortError> {
        let Some(kernel) = port.kernel_generator() else { return Ok(()) };
        if let Some(stream) = self.stream(kernel)
            && kernel.prepare(&stream)?
        {
            self.kernel = Some(Following::default());
        }
        Ok(())
    }

    /// Passes the start of the trial to the kernel's generator.
    pub(crate) fn start_in_kernel(&self, port: &mut dyn Port) {
        if self.kernel.is_some()
            && let Some(kernel) = port.kernel_generator()
        {
            kernel.start(self.start);
        }
    }

    /// Stops the kernel's generator because the trial ends early.
    ///
    /// # Errors
    /// Errors of the port.
    pub(crate) fn stop_in_kernel(&mut self, port: &mut dyn Port) -> Result<(), PortError> {
        match (self.kernel, port.kernel_generator()) {
            (Some(Following { finished: false, .. }), Some(kernel)) => self.finish(kernel),
            _ => Ok(()),
        }
    }

    /// True if the kernel generates the frames.
    pub(crate) fn is_in_kernel(&self) -> bool {
        self.kernel.is_some()
    }
}

fn addresses(from: &Addresses) -> StreamAddresses {
    let (half_bits, keys) = from.order.network();
    StreamAddresses { first: from.first, step: from.step as u64, count: from.order.len(), half_bits, keys }
}

fn stream_flow(flow: &SendFlow) -> Option<StreamFlow> {
    let template = flow.templates.first()?;
    let Aim::Addresses(destinations) = &flow.destinations else { return None };
    let bytes = template.bytes();
    let mut head = [0; HEAD];
    let known = bytes.len().min(HEAD);
    head[..known].copy_from_slice(&bytes[..known]);
    let (ip_sum, udp_sum) = template.sums();
    Some(StreamFlow {
        id: flow.id,
        head,
        ip_sum,
        udp_sum,
        sources: addresses(&flow.sources),
        destinations: addresses(destinations),
    })
}

impl PortGenerator {
    /// Returns the parameters for the kernel's generator; `None` if it cannot generate these frames.
    fn stream(&self, kernel: &dyn KernelGenerator) -> Option<Stream> {
        let (longest, most_flows) = (kernel.longest(), kernel.most_flows());
        let rate = self.schedule.constant_rate()?;
        let first = self.flows.first()?.templates.first()?;
        let alike = |flow: &SendFlow| match flow.templates.as_slice() {
            [one] if one.is_plain() => (one.len(), one.family()) == (first.len(), first.family()),
            _ => false,
        };
        if !(SLOWEST_PPS.max(kernel.slowest_pps())..=FASTEST_PPS).contains(&rate)
            || first.len() > longest
            || self.flows.len() > most_flows
            || !self.flows.iter().all(alike)
        {
            return None;
        }
        let interval_ns = 1e9 / rate;
        let lag = Lag {
            max_backlog_ns: (self.max_backlog as f64 * interval_ns) as u64,
            burst_ns: CATCH_UP_BURST_NS.max(CATCH_UP_FRAMES * interval_ns) as u64,
            speed_256: (CATCH_UP_SPEED * 256.0) as u32,
        };
        Some(Stream {
            ipv6: first.family() == Family::Ipv6,
            frame: first.bytes().to_vec(),
            signature_at: first.signature_at(),
            flows: self.flows.iter().map(stream_flow).collect::<Option<_>>()?,
            round: self.round.clone(),
            key: self.key.word(),
            total: self.schedule.total(),
            interval: (interval_ns * f64::from(1u32 << 31) * 2.0) as u128,
            last_departure_ns: self.schedule.departure(self.schedule.total().saturating_sub(1)),
            end_ns: self.stop_on_time.then(|| self.schedule.end_ns()),
            lag: (!self.never_skip).then_some(lag),
            bins: self.bin_ns.map(|ns| (ns, self.groups.first().map_or(0, |g| g.bins.len()))),
        })
    }

    /// Reads the kernel's progress at intervals. Returns how many frames have left since the last reading.
    pub(super) fn follow(&mut self, port: &mut dyn Port, now: Instant) -> Result<usize, PortError> {
        let (Some(following), Some(kernel)) = (&mut self.kernel, port.kernel_generator()) else { return Ok(0) };
        if following.finished {
            return Ok(0);
        }
        kernel.give_way();
        if now.0 < following.last_look.0 + LOOK_NS {
            return Ok(0);
        }
        following.last_look = now;
        let progress = kernel.progress()?;
        let before = self.sent;
        self.sent = progress.sent;
        if progress.finished {
            self.finish(kernel)?;
        }
        Ok((self.sent - before) as usize)
    }

    /// Returns the number of frames handed to the port so far, as far as the kernel's progress is known, including
    /// refusals of the tester's own ring.
    pub(crate) fn handed_over(&self) -> u64 {
        self.sent
    }

    fn finish(&mut self, kernel: &mut dyn KernelGenerator) -> Result<(), PortError> {
        let report = kernel.stop()?;
        self.take_report(&report);
        self.kernel = Some(Following { finished: true, ..Following::default() });
        Ok(())
    }

    /// Counts sent frames by flow, group and bin. The round determines the flow of each frame.
    fn take_report(&mut self, report: &StreamReport) {
        self.sent = report.sent;
        self.index = report.index;
        self.skipped = report.skips.last().map_or(0, |(_, total)| *total);
        self.skips.extend(report.skips.iter().map(|(sent, total)| Skip { sent: *sent, total: *total }));
        self.lateness = report.lateness;
        self.last_departure = Instant(self.start.0 + report.last_departure_ns);
        let shares = self.shares(report.sent);
        for (flow, share) in self.flows.iter_mut().zip(shares) {
            flow.next = share;
            self.groups[flow.group].offered += flow.next;
        }
        let mut from = 0;
        for (bin, frames) in report.bins.iter().enumerate() {
            self.count_bin(bin, from, *frames);
            from += frames;
        }
    }

    /// Returns the number of frames of each flow among the first `sent`.
    pub(super) fn shares(&self, sent: u64) -> Vec<u64> {
        let per_round = self.by_flow(0, self.round.len() as u64);
        let (rounds, rest) = (sent / self.round.len() as u64, sent % self.round.len() as u64);
        per_round.iter().zip(self.by_flow(0, rest)).map(|(all, more)| rounds * all + more).collect()
    }

    /// Returns the number of frames of each flow at places `from..to` of the rounds. The range must be short.
    fn by_flow(&self, from: u64, to: u64) -> Vec<u64> {
        let mut frames = vec![0; self.flows.len()];
        for place in from..to {
            frames[self.round[(place % self.round.len() as u64) as usize] as usize] += 1;
        }
        frames
    }

    /// Counts frames `from..from + frames` in `bin`.
    fn count_bin(&mut self, bin: usize, from: u64, frames: u64) {
        if let [group] = self.groups.as_mut_slice() {
            group.bins[bin] += frames;
            return;
        }
        let len = self.round.len() as u64;
        if frames >= len {
            for place in 0..self.round.len() {
                let group = self.flows[self.round[place] as usize].group;
                self.groups[group].bins[bin] += frames / len;
            }
        }
        for place in from..from + frames % len {
            let group = self.flows[self.round[(place % len) as usize] as usize].group;
            self.groups[group].bins[bin] += 1;
        }
    }
}
