//! Sends the flows of one port that share a schedule, each frame on time. If flows have their own schedules, the port
//! has several generators, which [`merge`] combines.

mod aims;
pub(crate) mod controlled;
mod kernel;
pub(crate) mod merge;
mod stream;

pub(crate) use aims::destination_orders;
use aims::{Addresses, Aim};
pub(crate) use stream::Stream;

use crate::headers;
use crate::lane_report::{GroupSentReport, SenderReport};
use crate::layout::QueueIndex;
use crate::payload::Pattern;
use crate::permutation::Permutation;
use crate::plan::{Neighbour, PlanError, Timing, spaced};
use crate::schedule::Schedule;
use crate::template::Template;
use crate::transmit::FlowNames;
use drophammer_model::quantity::Instant;
use drophammer_model::trial::{FlowSpec, Load, PortIndex, Targets, TrialSpec};
use drophammer_port::{BURST, Held, Port, PortError, Sent};
use drophammer_wire::signature::{Signature, TrialKey};
use drophammer_wire::stack::StackError;

/// Sender state of a flow.
#[repr(align(64))] // see `plan::spaced`
struct SendFlow {
    id: u32,
    /// Place of its group among the groups of the generator.
    group: usize,
    next: u64,
    sources: Addresses,
    destinations: Aim,
    /// One template per distinct size. `sizes` contains their order in one round of the mix.
    templates: Vec<Template>,
    sizes: Vec<u8>,
    size_at: usize,
    /// Tag of the flow's first template.
    tag: u32,
}

/// Counts of a group at its senders.
#[derive(Clone, Debug, Default)]
#[repr(align(64))]
pub struct GroupSent {
    /// Number of the group in the trial.
    pub group: usize,
    /// Frames handed over, including refused frames.
    pub offered: u64,
    /// Frames refused by the device's ring.
    pub refused: u64,
    /// Offered frames by time bin.
    pub bins: Vec<u64>,
}

impl GroupSent {
    fn report(&self) -> GroupSentReport {
        let GroupSent { group, offered, refused, bins } = self.clone();
        GroupSentReport { group, intended: 0, offered, refused, bins }
    }
}

/// A part of the schedule that was skipped because its time had passed.
#[derive(Clone, Copy, Debug)]
struct Skip {
    /// Number of frames sent before this part.
    sent: u64,
    /// Number of frames skipped so far, including this part.
    total: u64,
}

/// Maximum number of skips, and of runs of refusals, that the generators of a queue store together. Later departures
/// are computed from the last stored skip.
const SKIPS: usize = 65_536;
/// Minimum number that each of many generators stores.
const FEW_SKIPS: usize = 256;

pub use drophammer_port::LatenessBuckets;

/// Generator for the flows of a port that share a schedule.
#[repr(align(128))]
pub struct PortGenerator {
    port: PortIndex,
    queue: QueueIndex,
    schedule: Schedule,
    flows: Vec<SendFlow>,
    /// Flows in the order of one round of their weights.
    round: Vec<u32>,
    round_at: usize,
    key: TrialKey,
    start: Instant,
    /// Next index in the schedule: number of frames sent or skipped so far.
    index: u64,
    sent: u64,
    skipped: u64,
    skips: Vec<Skip>,
    max_backlog: u64,
    /// How far a late generator can catch up at this moment.
    catch_up: CatchUp,
    /// True if all due frames are sent, however late (burst, maximum).
    never_skip: bool,
    /// True if sending stops when the schedule's time is over, whatever was sent by then (maximum).
    stop_on_time: bool,
    /// The groups of its flows, in order. A trial may have thousands of generators and of groups.
    groups: Vec<GroupSent>,
    slot_groups: [u32; BURST],
    /// Place of the flow, and sequence number, for each slot.
    slot_frames: [(u32, u64); BURST],
    bin_ns: Option<u64>,
    lateness: LatenessBuckets,
    refused_by_tester: u64,
    /// The frames of `refused_by_tester`, by flow.
    refusals: Refusals,
    /// Length of the cycle of each flow, 0 for none; empty if no flow has one.
    cycles: Vec<u32>,
    last_departure: Instant,
    /// True if the kernel could generate these frames.
    fits_kernel: bool,
    /// State of the kernel's generator, if it generates the frames.
    kernel: Option<kernel::Following>,
    /// `Some` once flows were started or stopped. In that case `schedule`, `round` and `index` belong to the current stretch.
    control: Option<Box<controlled::Controlled>>,
}

/// True if the kernel can generate the frames of `flow`. It only generates addresses of a range, and does not report
/// which frames its ring refused.
fn fits_kernel(flow: &FlowSpec) -> bool {
    matches!(flow.destinations, Targets::Addresses(_)) && !flow.per_destination && flow.cycle == 0
}

/// Adds the frames with these sequence numbers to the counts of their places in a cycle.
fn add_by_place(sequences: std::ops::Range<u64>, places: &mut [u64]) {
    let cycle = places.len() as u64;
    for (place, frames) in (0..cycle).zip(places) {
        // Frames at this place among the first n.
        let of = |n: u64| n / cycle + u64::from(place < n % cycle);
        *frames += of(sequences.end) - of(sequences.start);
    }
}

fn flow_seed(id: usize, seed: u64) -> u64 {
    seed ^ ((id as u64 + 1) << 32)
}

impl PortGenerator {
    #[allow(clippy::too_many_arguments)] // one caller, which lays out a trial
    pub(crate) fn new(
        spec: &TrialSpec,
        stream: Stream,
        link: &Neighbour,
        names: &FlowNames,
        timing: &Timing,
        pattern: &Pattern,
        orders: &[Permutation],
        bin_ns: Option<u64>,
        bins: usize,
    ) -> Result<PortGenerator, PlanError> {
        let Stream { port, queue, flows: own, round, schedule, shared, beside, mut tag } = stream;
        let group_of = |id: usize| names.group_of(id).unwrap_or(0);
        let mut groups: Vec<usize> = own.iter().map(|id| group_of(*id)).collect();
        groups.sort_unstable();
        groups.dedup();
        let mut flows = Vec::new();
        for (id, flow) in own.iter().map(|id| (*id, &spec.flows[*id])) {
            let size_round = flow.size.as_ref().unwrap_or(&spec.size).round();
            let mut distinct = size_round.clone();
            distinct.sort_unstable();
            distinct.dedup();
            let seed = flow_seed(id, timing.seed);
            let headers = headers::complete(flow, id, timing.seed, link);
            let templates: Vec<_> = distinct
                .iter()
                .map(|size| Template::new(&headers, flow.family, *size, pattern))
                .collect::<Result<_, _>>()
                .map_err(|e| {
                    // The index counts only headers that the flow has; the Ethernet header may have been added.
                    let header = (e.header + flow.headers.len()).saturating_sub(headers.len());
                    let reason = StackError { header, ..e }.to_string();
                    PlanError::Headers { flow: id, group: flow.group.clone(), reason }
                })?;
            let sizes = size_round.iter().map(|s| distinct.binary_search(s).unwrap_or(0) as u8).collect();
            flows.push(SendFlow {
                id: id as u32,
                group: groups.binary_search(&group_of(id)).unwrap_or(0),
                next: 0,
                sources: Addresses::new(&flow.sources, Permutation::new(flow.sources.count, seed)),
                destinations: Aim::new(&flow.destinations, orders[id]),
                sizes,
                size_at: 0,
                tag,
                templates,
            });
            tag += distinct.len() as u32;
        }
        let peak = schedule.peak_pps();
        // Many generators share the memory that a single generator may use.
        let remembered = (SKIPS / (beside + 1)).max(FEW_SKIPS);
        let max_backlog = ((peak * timing.max_backlog_ns as f64 / 1e9) as u64).max(32);
        let kernel = beside == 0 && schedule.is_whole() && spec.events.is_empty();
        Ok(PortGenerator {
            port,
            queue,
            round_at: 0,
            key: timing.key,
            start: Instant(0),
            index: 0,
            sent: 0,
            skipped: 0,
            skips: Vec::with_capacity(remembered),
            max_backlog,
            catch_up: CatchUp::new(peak),
            never_skip: shared && matches!(spec.load, Load::Burst { .. } | Load::Maximum { .. }),
            stop_on_time: shared && matches!(spec.load, Load::Maximum { .. }),
            groups: groups
                .into_iter()
                .map(|group| GroupSent { group, bins: spaced(bins), ..GroupSent::default() })
                .collect(),
            slot_groups: [0; BURST],
            slot_frames: [(0, 0); BURST],
            bin_ns,
            lateness: [0; 40],
            refused_by_tester: 0,
            refusals: Refusals::new(flows.len(), remembered),
            cycles: if own.iter().any(|id| spec.flows[*id].cycle > 0) {
                own.iter().map(|id| spec.flows[*id].cycle).collect()
            } else {
                Vec::new()
            },
            last_departure: Instant(0),
            fits_kernel: kernel && own.iter().all(|id| fits_kernel(&spec.flows[*id])),
            kernel: None,
            control: None,
            schedule,
            flows,
            round,
        })
    }

    /// Returns the number of frames in the schedule, whether or not their flows send.
    pub fn total(&self) -> u64 {
        self.base().total()
    }

    /// Adds the number of planned frames per flow to `frames`, indexed by flow.
    pub(crate) fn planned(&self, frames: &mut [u64]) {
        self.flows.iter().zip(self.intended()).for_each(|(flow, planned)| frames[flow.id as usize] += planned);
    }

    pub(crate) fn begin(&mut self, start: Instant) {
        self.start = start;
        self.last_departure = start;
    }

    /// Returns the port from which it sends.
    pub fn port(&self) -> PortIndex {
        self.port
    }

    /// Returns the queue through which it sends.
    pub(crate) fn queue(&self) -> QueueIndex {
        self.queue
    }

    /// True if at `now` nothing is left to send and all sent frames have left.
    #[inline]
    pub fn done(&self, now: Instant) -> bool {
        if let Some(following) = &self.kernel {
            return following.finished;
        }
        ((self.index >= self.schedule.total() && now >= self.last_departure)
            || (self.stop_on_time && now.0.saturating_sub(self.start.0) >= self.schedule.end_ns()))
            && self.is_last_stretch(now)
    }

    /// Returns when the next frame is due, or flows next start or stop; `None` when all are finished.
    pub fn next_departure(&self) -> Option<Instant> {
        if self.index < self.schedule.total() {
            Some(Instant(self.start.0 + self.schedule.departure(self.index)))
        } else {
            self.next_change()
        }
    }

    /// Sends the frames due at `now`, at most one burst. Returns their number.
    ///
    /// # Errors
    /// Errors of the port.
    #[inline]
    pub fn send_due(&mut self, port: &mut dyn Port, now: Instant) -> Result<usize, PortError> {
        if self.kernel.is_some() {
            return self.follow(port, now);
        }
        let frames = self.due(now).min(BURST);
        if frames == 0 {
            return Ok(0);
        }
        self.catch_up.take(frames);
        self.fill(port, 0, &[now; BURST][..frames]);
        let sent = port.send(frames)?;
        self.account(frames, sent, port.info().refusal_is_device_loss, now);
        Ok(frames)
    }

    /// Returns the number of frames that can leave at `now`. Skips frames that are too late to be sent at all.
    #[inline]
    fn due(&mut self, now: Instant) -> usize {
        let Some(elapsed) = now.0.checked_sub(self.start.0) else { return 0 };
        if self.stop_on_time && elapsed >= self.schedule.end_ns() && !self.next_stretch(elapsed) {
            return 0;
        }
        let mut backlog = self.schedule.due(elapsed).saturating_sub(self.index);
        if backlog == 0 {
            if self.control.is_none() || !self.next_stretch(elapsed) {
                return 0;
            }
            backlog = self.schedule.due(elapsed).saturating_sub(self.index);
            if backlog == 0 {
                return 0;
            }
        }
        if backlog > self.max_backlog && !self.never_skip {
            self.skip(backlog - self.max_backlog);
            backlog = self.max_backlog;
        }
        if !self.never_skip {
            let rate = self.schedule.rate_of(self.index);
            backlog = backlog.min(self.catch_up.allow(rate, elapsed));
        }
        usize::try_from(backlog).unwrap_or(usize::MAX)
    }

    #[cold]
    fn skip(&mut self, frames: u64) {
        self.index += frames;
        self.skipped += frames;
        if self.skips.len() < self.skips.capacity() {
            self.skips.push(Skip { sent: self.sent, total: self.skipped });
        }
    }

    /// Fills the slots from `first` on with frames that leave at the times `at`.
    #[inline]
    fn fill(&mut self, port: &mut dyn Port, first: usize, at: &[Instant]) {
        let slots = port.slots();
        for (i, at) in at.iter().enumerate() {
            let place = self.round[self.round_at];
            let flow = &mut self.flows[place as usize];
            self.round_at += 1;
            if self.round_at == self.round.len() {
                self.round_at = 0;
            }
            let size = flow.sizes[flow.size_at];
            flow.size_at += 1;
            if flow.size_at == flow.sizes.len() {
                flow.size_at = 0;
            }
            let template = &flow.templates[usize::from(size)];
            let (slot, held) = slots.slot_of(first + i, flow.tag + u32::from(size), template.body(), template.len());
            match held {
                Held::Frame => {}
                Held::Body => template.write_head(slot),
                Held::Nothing => template.write(slot),
            }
            let signature = Signature { flow: flow.id, sequence: flow.next as u32 & 0xfff_ffff, time: at.0 as u32 };
            self.slot_frames[i] = (place, flow.next);
            let (source, destination) = (flow.sources.take(), flow.destinations.take());
            template.patch(slot, flow.next, source, destination, &signature.emit(self.key));
            flow.next += 1;
            self.slot_groups[i] = flow.group as u32;
        }
    }

    #[inline]
    fn account(&mut self, frames: usize, sent: Sent, refusal_is_device_loss: bool, now: Instant) {
        let elapsed = now.0 - self.start.0;
        let late = elapsed.saturating_sub(self.schedule.departure(self.index));
        self.lateness[(64 - late.leading_zeros()).min(39) as usize] += frames as u64;
        self.index += frames as u64;
        self.sent += frames as u64;
        self.last_departure = now;
        let bin = self.bin_ns.map(|ns| (elapsed / ns) as usize);
        if let [group] = self.groups.as_mut_slice() {
            group.offered += frames as u64;
            if let Some(count) = bin.and_then(|b| group.bins.get_mut(b)) {
                *count += frames as u64;
            }
        } else {
            self.account_by_group(frames, bin);
        }
        if sent.refused > 0 {
            self.account_refused(frames, sent, refusal_is_device_loss, bin);
        }
    }

    fn account_by_group(&mut self, frames: usize, bin: Option<usize>) {
        for group in &self.slot_groups[..frames] {
            let group = &mut self.groups[*group as usize];
            group.offered += 1;
            if let Some(count) = bin.and_then(|b| group.bins.get_mut(b)) {
                *count += 1;
            }
        }
    }

    fn account_refused(&mut self, frames: usize, sent: Sent, refusal_is_device_loss: bool, bin: Option<usize>) {
        for i in (0..frames).filter(|i| sent.refused_mask & (1 << i) != 0) {
            let group = &mut self.groups[self.slot_groups[i] as usize];
            if refusal_is_device_loss {
                group.refused += 1;
            } else {
                // The tester's own ring was full. The frame counts as not offered, so it cannot count as lost.
                self.refused_by_tester += 1;
                let (place, sequence) = self.slot_frames[i];
                self.refusals.add(place as usize, sequence);
                group.offered -= 1;
                if let Some(count) = bin.and_then(|b| group.bins.get_mut(b)) {
                    *count -= 1;
                }
            }
        }
    }

    /// Ends sending: frames due after `now` do not leave. If the time of the schedule is over, no frames leave at all.
    /// A generator in the kernel stops immediately.
    ///
    /// # Errors
    /// Errors of the port.
    pub(crate) fn end_sending(&mut self, port: &mut dyn Port, now: Instant) -> Result<(), PortError> {
        let in_kernel = self.is_in_kernel();
        self.stop_in_kernel(port)?;
        let elapsed = if in_kernel { 0 } else { now.0.saturating_sub(self.start.0) };
        if elapsed > self.schedule.end_ns() {
            self.skip(self.schedule.total().saturating_sub(self.index));
        }
        self.end_schedule(elapsed);
        Ok(())
    }

    /// Returns the counts and the schedule as data.
    pub(crate) fn report(&self) -> SenderReport {
        let mut groups: Vec<_> = self.groups.iter().map(GroupSent::report).collect();
        self.flows.iter().zip(self.intended()).for_each(|(flow, frames)| groups[flow.group].intended += frames);
        SenderReport {
            port: self.port,
            schedule: self.base().clone(),
            round: self.base_round().iter().map(|flow| self.flows[*flow as usize].id).collect(),
            skips: self.skips.iter().map(|skip| (skip.sent, skip.total)).collect(),
            flows: self.flows.iter().map(|f| (f.id, f.next)).collect(),
            refused: self.refused_by_flow().collect(),
            own_refusals: self.refusals.runs().iter().map(|r| (self.flows[r.flow].id, r.first, r.frames)).collect(),
            groups,
            stretches: self.stretches(),
            stopped: self.stopped(),
            unsent: self.unsent() + self.refused_by_tester,
            sending_ns: self.sending_ns(),
            lateness: self.lateness.to_vec(),
            in_kernel: self.is_in_kernel(),
        }
    }

    /// Iterates over the frames that the tester's own ring refused: `(flow, frames)`, only for flows that have any.
    pub(crate) fn refused_by_flow(&self) -> impl Iterator<Item = (u32, u64)> {
        let counts = self.flows.iter().zip(self.refusals.frames()).filter(|(_, frames)| **frames > 0);
        counts.map(|(flow, frames)| (flow.id, *frames))
    }

    /// Returns the number of offered frames so far: `(flow, group, frames)`, including frames that the tester's own
    /// ring refused. While the kernel generates the frames, the counts are computed from the round.
    pub(crate) fn offered(&self) -> Vec<(u32, usize, u64)> {
        let following = self.kernel.is_some_and(|k| !k.finished).then(|| self.shares(self.sent));
        let next = |i: usize, flow: &SendFlow| following.as_ref().map_or(flow.next, |shares| shares[i]);
        self.flows.iter().enumerate().map(|(i, flow)| (flow.id, self.groups[flow.group].group, next(i, flow))).collect()
    }

    /// Returns the offered frames of the flows that have a cycle, by place: `(flow, frames)`. They contain refused frames that
    /// [`Refusals`] had no room for.
    pub(crate) fn offered_by_place(&self) -> impl Iterator<Item = (u32, Vec<u64>)> {
        let with_cycle = self.flows.iter().zip(&self.cycles).enumerate().filter(|(_, (_, cycle))| **cycle > 0);
        with_cycle.map(|(place, (flow, cycle))| {
            let (mut frames, mut refused) = (vec![0; *cycle as usize], vec![0; *cycle as usize]);
            add_by_place(0..flow.next, &mut frames);
            let runs = self.refusals.runs().iter().filter(|run| run.flow == place);
            runs.for_each(|run| add_by_place(run.first..run.first + run.frames, &mut refused));
            frames.iter_mut().zip(refused).for_each(|(frames, refused)| *frames -= refused);
            (flow.id, frames)
        })
    }

    /// Adds [`PortGenerator::offered`] to `frames`, indexed by flow.
    pub(crate) fn add_offered(&self, frames: &mut [u64]) {
        if self.kernel.is_some() {
            self.offered().into_iter().for_each(|(flow, _, offered)| frames[flow as usize] += offered);
        } else {
            self.flows.iter().for_each(|flow| frames[flow.id as usize] += flow.next);
        }
    }

    /// Returns the numbers of its flows.
    pub(crate) fn flow_ids(&self) -> Vec<u32> {
        self.flows.iter().map(|flow| flow.id).collect()
    }

    /// Returns the counts of the groups of its flows.
    pub fn groups(&self) -> &[GroupSent] {
        &self.groups
    }

    /// Number of frames of the schedule that were not offered while their flows were sending.
    pub fn unsent(&self) -> u64 {
        self.intended().iter().sum::<u64>() - self.sent
    }

    /// Number of frames that the tester's own ring refused.
    pub fn refused_by_tester(&self) -> u64 {
        self.refused_by_tester
    }

    /// Returns how many frames left more than 1 ms (2^20 ns) late, and how many left in all.
    pub fn departures(&self) -> (u64, u64) {
        (self.lateness[21..].iter().sum(), self.lateness.iter().sum())
    }

    /// Returns the histogram of departure errors by power of two.
    pub fn lateness(&self) -> &LatenessBuckets {
        &self.lateness
    }

    /// Returns the time from the start to the end of the schedule or the last departure, whichever is later, in ns.
    pub fn sending_ns(&self) -> u64 {
        self.base().end_ns().max(self.last_departure.0 - self.start.0)
    }
}

impl PortGenerator {
    /// Returns when the next frame is due, or when the last frame has left.
    pub(crate) fn next_event(&self) -> Instant {
        self.next_departure().unwrap_or(self.last_departure)
    }

    /// Hands the next burst to a port that sends ahead, each frame with its departure time, all before `until`. Returns
    /// how many frames the port took.
    ///
    /// # Errors
    /// Errors of the port.
    pub(crate) fn send_ahead(&mut self, port: &mut dyn Port, now: Instant, until: Instant) -> Result<usize, PortError> {
        // The previous burst is still being sent, or the trial has not started.
        if now < self.last_departure.max(self.start) {
            return Ok(0);
        }
        if self.control.is_some() {
            self.next_stretch(now.0 - self.start.0);
        }
        let end = if self.stop_on_time { self.schedule.end_ns() } else { u64::MAX };
        let left = self.schedule.total() - self.index;
        let mut departures = [0; BURST];
        let departures = &mut departures[..BURST.min(usize::try_from(left).unwrap_or(usize::MAX))];
        self.schedule.departures(self.index, departures);
        let mut at = [now; BURST];
        let (mut frames, mut on_time) = (0, 0);
        for (at, departure) in at.iter_mut().zip(departures) {
            if *departure >= end {
                break;
            }
            let leaves = now.max(Instant(self.start.0 + *departure));
            if leaves >= until {
                break;
            }
            *at = leaves;
            match at.0 - self.start.0 - *departure {
                0 => on_time += 1,
                late => self.lateness[(64 - late.leading_zeros()).min(39) as usize] += 1,
            }
            frames += 1;
        }
        self.lateness[0] += on_time;
        if frames == 0 {
            return Ok(0);
        }
        self.fill(port, 0, &at[..frames]);
        let ahead = port.ahead().expect("the loop checks that every port sends ahead");
        let sent = ahead.send_at(&at[..frames])?;
        debug_assert_eq!(sent.refused, 0, "virtual time has no ring that could be full");
        self.account_ahead(&at[..frames]);
        Ok(frames)
    }

    /// Counts the frames in the first slots, whose departure times are `at`.
    fn account_ahead(&mut self, at: &[Instant]) {
        self.index += at.len() as u64;
        self.sent += at.len() as u64;
        self.last_departure = at.last().copied().unwrap_or(self.last_departure);
        if let ([group], None) = (self.groups.as_mut_slice(), self.bin_ns) {
            group.offered += at.len() as u64;
            return;
        }
        for (at, group) in at.iter().zip(&self.slot_groups) {
            let group = &mut self.groups[*group as usize];
            group.offered += 1;
            let elapsed = at.0 - self.start.0;
            if let Some(count) = self.bin_ns.and_then(|ns| group.bins.get_mut((elapsed / ns) as usize)) {
                *count += 1;
            }
        }
    }
}

/// A delayed generator sends at most this many times the requested rate, and no burst longer than [`CATCH_UP_BURST_NS`]
/// of load. A receive ring that can handle the load can handle this too.
const CATCH_UP_SPEED: f64 = 1.2;
/// Load that can leave in one burst, in ns.
const CATCH_UP_BURST_NS: f64 = 200_000.0;
/// Number of frames that can leave in one burst, whatever the load.
const CATCH_UP_FRAMES: f64 = 32.0;

/// A token bucket that fills at [`CATCH_UP_SPEED`] times the load. It is always full while the generator is on time.
struct CatchUp {
    tokens: f64,
    capacity: f64,
    last_ns: u64,
}

impl CatchUp {
    fn new(peak_pps: f64) -> CatchUp {
        let capacity = (peak_pps * CATCH_UP_BURST_NS / 1e9).max(CATCH_UP_FRAMES);
        CatchUp { tokens: capacity, capacity, last_ns: 0 }
    }

    /// Returns the number of frames that can leave at `now_ns` at a requested rate of `rate_pps`.
    #[inline]
    fn allow(&mut self, rate_pps: f64, now_ns: u64) -> u64 {
        let elapsed = now_ns.saturating_sub(self.last_ns) as f64;
        self.last_ns = now_ns;
        self.tokens = (self.tokens + elapsed * rate_pps * CATCH_UP_SPEED / 1e9).min(self.capacity);
        self.tokens as u64
    }

    #[inline]
    fn take(&mut self, frames: usize) {
        self.tokens -= frames as f64;
    }
}

/// Consecutive frames of one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    /// Place of the flow in the generator.
    flow: usize,
    /// First sequence number.
    first: u64,
    /// Number of frames.
    frames: u64,
}

/// The refused frames of a generator.
struct Refusals {
    /// Frames of each flow, counted even if there is no room for another run.
    frames: Vec<u64>,
    /// Number of the last run of each flow, from 1; 0 before the first run.
    last: Vec<usize>,
    runs: Vec<Run>,
}

impl Refusals {
    /// Creates room for `most` runs of `flows` flows.
    fn new(flows: usize, most: usize) -> Refusals {
        Refusals { frames: spaced(flows), last: spaced(flows), runs: Vec::with_capacity(most) }
    }

    /// Adds a frame of the flow at this place. Frames of a flow must be added in order.
    fn add(&mut self, flow: usize, sequence: u64) {
        self.frames[flow] += 1;
        if let Some(last) = self.last[flow].checked_sub(1)
            && self.runs[last].first + self.runs[last].frames == sequence
        {
            self.runs[last].frames += 1;
        } else if self.runs.len() < self.runs.capacity() {
            self.runs.push(Run { flow, first: sequence, frames: 1 });
            self.last[flow] = self.runs.len();
        }
    }

    /// Returns the number of frames of each flow.
    fn frames(&self) -> &[u64] {
        &self.frames
    }

    /// Returns the stored runs, ascending within a flow.
    fn runs(&self) -> &[Run] {
        &self.runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_at_the_place_of_their_number() {
        for sequences in [0..0, 0..1, 0..7, 5..9, 6..6, 2..14] {
            let (mut places, mut expected) = (vec![0; 3], vec![0; 3]);
            add_by_place(sequences.clone(), &mut places);
            sequences.for_each(|n| expected[n as usize % 3] += 1);
            assert_eq!(places, expected);
        }
    }

    #[test]
    fn a_late_generator_catches_up_a_little_faster_than_asked_for() {
        // 1 Mfps: the bucket holds 200 frames. After a gap of 10 ms (10,000 frames late) the generator checks every 10 µs.
        let mut bucket = CatchUp::new(1e6);
        let mut sent = 0u64;
        let mut late = 10_000u64;
        let mut looks = 0;
        while late > 0 {
            let now = 10_000_000 + looks * 10_000;
            late += if looks == 0 { 0 } else { 10 };
            let frames = bucket.allow(1e6, now).min(late);
            assert!(frames <= 200);
            bucket.take(frames as usize);
            sent += frames;
            late -= frames;
            looks += 1;
        }
        // 200 frames immediately, then 12 per check where 10 are due: 9,800 / 2 checks, 49 ms.
        assert!((4_890..=4_910).contains(&looks), "{looks} looks");
        assert_eq!(sent, 10_000 + (looks - 1) * 10);
    }

    #[test]
    fn frames_that_follow_each_other_in_their_flow_are_one_run() {
        let mut refusals = Refusals::new(2, 8);
        // The frames of two flows alternate.
        for sequence in [5, 6, 7, 9] {
            refusals.add(0, sequence);
            refusals.add(1, 2 * sequence);
        }
        assert_eq!(refusals.frames(), [4, 4]);
        let of = |flow: usize| -> Vec<(u64, u64)> {
            refusals.runs().iter().filter(|run| run.flow == flow).map(|run| (run.first, run.frames)).collect()
        };
        assert_eq!(of(0), [(5, 3), (9, 1)]);
        assert_eq!(of(1), [(10, 1), (12, 1), (14, 1), (18, 1)]);
    }

    #[test]
    fn all_frames_count_even_without_room_for_them() {
        let mut refusals = Refusals::new(1, 4);
        let most = refusals.runs.capacity() as u64;
        // Every second frame: no frame follows another.
        (0..most + 100).for_each(|n| refusals.add(0, 2 * n));
        assert_eq!(refusals.frames(), [most + 100]);
        assert_eq!(refusals.runs().len() as u64, most);
        // A frame after an unstored frame does not extend the last run.
        refusals.add(0, 2 * (most + 99) + 1);
        assert_eq!(refusals.frames(), [most + 101]);
        assert_eq!(refusals.runs().last(), Some(&Run { flow: 0, first: 2 * (most - 1), frames: 1 }));
    }
}
