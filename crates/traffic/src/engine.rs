//! Runs a planned trial: one loop that sends what is due, takes what came, and keeps watch over itself.

use crate::analyzer::Class;
use crate::generator::{GroupSent, LatenessBuckets};
use crate::plan::Plan;
use drophammer_model::quantity::Instant;
use drophammer_model::trial::{Bin, GroupCounts, Health, PortIndex, TrialResult, Validity};
use drophammer_port::{Arrival, Clock, Port, PortError};
use std::time::Duration;

/// Whoever owns the frames that are not test traffic: the emulated hosts and routers.
pub trait Control {
    /// A frame that is not test traffic came in at `port`; answers are sent through `ports`.
    ///
    /// # Errors
    /// The port's.
    fn receive(&mut self, port: PortIndex, arrival: Arrival<'_>) -> Result<(), PortError>;

    /// Does what is due at `now` (requests, answers that wait) and returns when it wants to be called again.
    ///
    /// # Errors
    /// The port's.
    fn poll(&mut self, now: Instant, ports: &mut [Box<dyn Port>]) -> Result<Instant, PortError>;

    /// True when the trial is to stop early: the user asked for it.
    fn stop(&self) -> bool;
}

/// A gap of the loop that is worth noting.
const LONG_GAP_NS: u64 = 1_000_000;
/// After the last frame is accounted for, duplicates may still come for this long.
const QUIET_NS: u64 = 2_000_000;
/// Bursts taken from one port before the others have their turn.
const RECEIVE_ROUNDS: usize = 4;

/// Watches the loop itself.
#[derive(Default)]
struct Watch {
    last: Option<Instant>,
    max_gap_ns: u64,
    long_gaps_ns: u64,
    other: u64,
}

impl Watch {
    #[inline]
    fn look(&mut self, now: Instant) {
        if let Some(last) = self.last {
            let gap = now.0 - last.0.min(now.0);
            self.max_gap_ns = self.max_gap_ns.max(gap);
            if gap > LONG_GAP_NS {
                self.long_gaps_ns += gap;
            }
        }
        self.last = Some(now);
    }
}

/// Runs `plan` over `ports`; `ports[i]` is port i of the plan. Returns the counts with everything measured filled in
/// except trial number, elapsed time, validity and DUT load, which are the caller's.
///
/// # Errors
/// A port that stopped working.
pub fn run(
    mut plan: Plan,
    ports: &mut [Box<dyn Port>],
    clock: &mut dyn Clock,
    control: &mut dyn Control,
) -> Result<TrialResult, PortError> {
    for port in ports.iter_mut() {
        port.slots().forget();
    }
    let drops_before = receive_drops(ports)?;
    let wall_before = clock.wall_offset();
    // Frames that wait from before the trial are taken before its first departure.
    let start = clock.now() + Duration::from_micros(if clock.is_virtual() { 1 } else { 200 });
    plan.begin(start);
    let mut watch = Watch::default();
    let mut control_due = Instant(0);
    let mut done_at: Option<Instant> = None;
    let mut quiet_since: Option<Instant> = None;
    let virtual_time = clock.is_virtual();
    // Then a burst is handed over at once, each frame with its own instant, and time passes in one go.
    let ahead = clock.passes() && ports.iter().all(|p| p.sends_ahead());
    // What came in by an instant of virtual time is taken at that instant, however much it is.
    let rounds = if virtual_time { usize::MAX } else { RECEIVE_ROUNDS };

    loop {
        let now = clock.now();
        if now >= start && done_at.is_none() && !virtual_time {
            watch.look(now);
        }
        let mut busy = 0;
        let mut next = Instant(u64::MAX);
        let mut sending = false;
        for generator in &mut plan.generators {
            if generator.done(now) {
                continue;
            }
            let port = ports[generator.port()].as_mut();
            busy += if ahead { generator.send_ahead(port, now)? } else { generator.send_due(port, now)? };
            if !generator.done(now) {
                sending = true;
                if virtual_time {
                    next = next.min(generator.next_event());
                }
            }
        }
        for (index, port) in ports.iter_mut().enumerate() {
            for _ in 0..rounds {
                let frames = port.receive()?;
                let count = frames.len();
                plan.analyzer.look_ahead(frames.iter().map(|a| a.frame));
                for arrival in frames.iter() {
                    if plan.analyzer.take(index, arrival) == Class::Other {
                        watch.other += 1;
                        control.receive(index, arrival)?;
                        control_due = Instant(0);
                    }
                }
                busy += count;
                if count < drophammer_port::BURST {
                    break;
                }
            }
        }
        if now >= control_due {
            control_due = control.poll(now, ports)?;
        }
        if !sending {
            let done = *done_at.get_or_insert(now);
            let accounted = plan.generators.iter().map(sent_minus_refused).sum::<u64>() <= plan.analyzer.distinct();
            if accounted {
                if now.since(*quiet_since.get_or_insert(now)).as_nanos() as u64 >= QUIET_NS {
                    break;
                }
            } else if now.0 - done.0 >= plan.drain_ns {
                break;
            }
            next = next.min(if accounted {
                now + Duration::from_nanos(QUIET_NS)
            } else {
                done + Duration::from_nanos(plan.drain_ns)
            });
        }
        if control.stop() {
            break;
        }
        if busy == 0 || virtual_time {
            if sending && !virtual_time {
                // A departure may be due within a microsecond: look again at once.
                std::hint::spin_loop();
            } else {
                let next = next.min(control_due.max(now + Duration::from_nanos(1)));
                if sending && ahead { clock.pass(next) } else { clock.wait(next) }
            }
        }
    }

    let step = clock.wall_offset() - wall_before;
    let drops = receive_drops(ports)? - drops_before;
    Ok(result(&plan, &watch, drops, i64::try_from(step).unwrap_or(i64::MAX)))
}

fn sent_minus_refused(generator: &crate::generator::PortGenerator) -> u64 {
    generator.groups().iter().map(|g| g.offered - g.refused).sum()
}

fn receive_drops(ports: &mut [Box<dyn Port>]) -> Result<u64, PortError> {
    ports.iter_mut().try_fold(0, |sum, port| Ok(sum + port.counters()?.receive_drops))
}

fn result(plan: &Plan, watch: &Watch, receive_drops: u64, clock_step_ns: i64) -> TrialResult {
    let mut groups: Vec<GroupCounts> =
        plan.groups.iter().enumerate().map(|(i, name)| group_counts(plan, i, name)).collect();
    for (flow, group, state) in plan.analyzer.flows() {
        let counts = &mut groups[group];
        counts.received += state.received();
        counts.duplicated += state.duplicated();
        counts.reordered += state.reordered();
        counts.reordered_3 += state.reordered_3();
        counts.in_sequence += state.in_sequence();
        counts.max_reordering_extent = counts.max_reordering_extent.max(state.max_extent());
        let sender = plan.generators.iter().find_map(|g| {
            let (_, sent) = g.sent_by_flow().find(|(id, _)| *id as usize == flow)?;
            Some((g, sent))
        });
        if let Some((generator, sent)) = sender
            && state.received() < sent
            && let Some(missing) = state.last_missing(sent, &generator.never_left(flow as u32))
        {
            counts.last_loss_ns = counts.last_loss_ns.max(generator.departure_of(flow as u32, missing));
        }
    }
    for counts in &mut groups {
        counts.lost = counts.offered - counts.received;
    }
    let unsent =
        if plan.maximum { 0 } else { plan.generators.iter().map(|g| g.unsent() + g.refused_by_tester()).sum() };
    let sending_ns = plan.generators.iter().map(|g| g.sending_ns()).max().unwrap_or(0);
    TrialResult {
        trial: 0,
        sending_s: sending_ns as f64 / 1e9,
        receiving_s: plan.analyzer.receiving_ns() as f64 / 1e9,
        elapsed_s: 0.0,
        groups,
        health: Health {
            unsent,
            receive_drops,
            max_gap_ns: watch.max_gap_ns,
            gaps_over_1ms_ns: watch.long_gaps_ns,
            departure_error: departure_error(&lateness(plan)),
            departure_errors: departure_errors(&lateness(plan)),
            clock_step_ns,
            tester_stolen_ns: None,
            stale: plan.analyzer.stale(),
            other_received: watch.other,
        },
        validity: Validity::Valid,
        dut_cpu: None,
        dut_counters: Default::default(),
        senders: plan.generators.len() as u32,
    }
}

fn group_counts(plan: &Plan, index: usize, name: &str) -> GroupCounts {
    let sent = plan.generators.iter().map(|g| &g.groups()[index]);
    let sum = |count: fn(&GroupSent) -> u64| sent.clone().map(count).sum::<u64>();
    let received = &plan.analyzer.groups()[index];
    let bins =
        received.bins.delivered.iter().zip(&received.bins.arrived).enumerate().map(|(b, (delivered, arrived))| Bin {
            offered: sent.clone().map(|g| g.bins.get(b).copied().unwrap_or(0)).sum(),
            delivered: *delivered,
            arrived: *arrived,
        });
    GroupCounts {
        group: name.to_owned(),
        intended: sum(|g| g.intended),
        offered: sum(|g| g.offered),
        refused: sum(|g| g.refused),
        corrupted: received.corrupted,
        stray: received.stray,
        late: received.late,
        received_bytes: received.bytes,
        latency: received.latency_summary(),
        bins: bins.collect(),
        ..GroupCounts::default()
    }
}

/// How late frames were handed to the port, all senders together.
fn lateness(plan: &Plan) -> LatenessBuckets {
    let mut buckets: LatenessBuckets = [0; 40];
    for generator in &plan.generators {
        buckets.iter_mut().zip(generator.lateness()).for_each(|(sum, n)| *sum += n);
    }
    buckets
}

/// The histogram of them, from the first to the last bucket that holds a frame.
fn departure_errors(buckets: &LatenessBuckets) -> Vec<(u64, u64)> {
    let last = buckets.iter().rposition(|n| *n > 0).map_or(0, |last| last + 1);
    let first = buckets.iter().position(|n| *n > 0).unwrap_or(0);
    (first..last).map(|b| ((1u64 << b) - 1, buckets[b])).collect()
}

/// Percentiles of them, as upper ends of powers of two.
fn departure_error(buckets: &LatenessBuckets) -> Vec<(f64, u64)> {
    let total: u64 = buckets.iter().sum();
    if total == 0 {
        return Vec::new();
    }
    [50.0, 99.0, 99.9, 100.0]
        .iter()
        .map(|percentile| {
            let rank = (total as f64 * percentile / 100.0).ceil() as u64;
            let mut seen = 0;
            let bucket = buckets.iter().position(|n| {
                seen += n;
                seen >= rank
            });
            (*percentile, bucket.map_or(0, |b| (1u64 << b) - 1))
        })
        .collect()
}
