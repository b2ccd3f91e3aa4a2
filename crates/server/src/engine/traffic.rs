//! Traffic of the rig: starts, stops and counts of flows.
//!
//! Traffic of the rig begins when the first flow starts, and ends when no flow sends any more. It contains all flows of the
//! configuration; those that have not been started are stopped. So a client can start any flow at any time.

use super::windows::{LEAD, Order, Windows};
use crate::build::{Built, PlannedFlow};
use drophammer_model::Instant;
use drophammer_model::mac::MacAddr;
use drophammer_model::traffic::{Field, Header};
use drophammer_model::trial::{Family, FlowSpec, Load, PortIndex, TrialResult, TrialSpec};
use drophammer_rig::{
    CONTINUOUS, Event, FlowSelect, Live, Rig, RigError, Snapshot, Timing, TransmitAction, TrialKeys, Until,
};
use std::collections::HashMap;
use std::time::Duration;

/// Time to wait for frames that are still in the DUT after the last one left.
const DRAIN_S: f64 = 1.0;
/// A frame counts as late from this latency.
const LATE_NS: u64 = 1_000_000_000;
/// Frames of a flow with a number of frames leave late rather than never.
const MAX_BACKLOG_NS: u64 = 1_000_000_000_000_000;
/// How long frames that are due may take to leave, since the last one that left.
const STALLED: Duration = Duration::from_millis(200);
/// Time for a gateway to answer.
const ANSWER: Duration = Duration::from_secs(3);
/// Seed of the payload.
const SEED: u64 = 0;

/// What a client does with flows.
pub use drophammer_rig::TransmitAction as Action;

/// Counts of one row of flow metrics.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// Frames sent.
    pub frames_tx: u64,
    /// Their bytes, FCS included.
    pub bytes_tx: u64,
    /// Distinct intact frames received.
    pub frames_rx: u64,
    /// Their bytes, FCS included.
    pub bytes_rx: u64,
    /// Further arrivals of frames that were already received.
    pub duplicates: u64,
    /// Frames received out of order.
    pub reordered: u64,
    /// Frames that arrived damaged.
    pub corrupted: u64,
    /// Frames that arrived at a wrong port.
    pub stray: u64,
    /// Smallest, mean and largest latency in ns; `None` without frames.
    pub latency_ns: Option<[f64; 3]>,
    /// Latencies: lower end of the bucket in ns, and frames.
    latencies: Vec<(u64, u64)>,
}

/// Flows with the same name and the same ports, which have metrics together.
#[derive(Clone, Debug)]
pub struct Row {
    /// Index of the flow.
    pub flow: usize,
    /// Sending port.
    pub from: PortIndex,
    /// Receiving port.
    pub to: PortIndex,
    /// Its streams.
    streams: Vec<usize>,
    /// Name of its group in the traffic.
    group: String,
    /// True if it has started in the running or last traffic.
    current: bool,
    /// Counts of that traffic when the row started.
    base: Counts,
    /// Counts since then.
    pub counts: Counts,
}

struct Stream {
    windows: Windows,
    sizes: Vec<u64>,
    /// Its number in the traffic; `None` if its gateway was unknown when the traffic began.
    number: Option<usize>,
    /// Frames sent in the traffic, and how many of them before it started.
    offered: u64,
    base: u64,
    /// When a frame left for the last time, while it finishes.
    moved: Duration,
}

impl Stream {
    /// Bytes of the first `frames` frames of the traffic.
    fn bytes(&self, frames: u64) -> u64 {
        let (round, length) = (self.sizes.iter().sum::<u64>(), self.sizes.len() as u64);
        frames / length * round + self.sizes.iter().take((frames % length) as usize).sum::<u64>()
    }
}

/// All flows of a configuration.
pub struct Flows {
    streams: Vec<Stream>,
    pub rows: Vec<Row>,
    /// The running traffic.
    live: Option<Live>,
    /// Groups of the running traffic.
    groups: Vec<String>,
    /// True once nothing more is sent.
    draining: bool,
    /// Frames of finished traffic that the tester lost itself.
    pub tester_drops: u64,
    /// What ended the last traffic before its time.
    pub failure: Option<String>,
}

impl Flows {
    /// Flows that have not been started.
    pub fn new(flows: &[PlannedFlow]) -> Flows {
        let (mut streams, mut rows): (Vec<Stream>, Vec<Row>) = Default::default();
        for (index, flow) in flows.iter().enumerate() {
            for stream in &flow.streams {
                let spec = &stream.spec;
                let number = streams.len();
                match rows.last_mut().filter(|row| row.group == spec.group) {
                    Some(row) => row.streams.push(number),
                    None => rows.push(Row {
                        flow: index,
                        from: spec.from,
                        to: spec.to,
                        streams: vec![number],
                        group: spec.group.clone(),
                        current: false,
                        base: Counts::default(),
                        counts: Counts::default(),
                    }),
                }
                streams.push(Stream {
                    windows: Windows::new(stream.program),
                    sizes: stream.sizes.clone(),
                    number: None,
                    offered: 0,
                    base: 0,
                    moved: Duration::ZERO,
                });
            }
        }
        let (live, groups) = (None, Vec::new());
        Flows { streams, rows, live, groups, draining: false, tester_drops: 0, failure: None }
    }

    /// True while there is traffic in the rig.
    pub fn are_running(&self) -> bool {
        self.live.is_some()
    }

    /// True if a flow sends, will send or is paused.
    pub fn are_active(&self) -> bool {
        self.streams.iter().any(|stream| stream.windows.is_active() || stream.windows.is_paused())
    }

    /// State of a row: `started`, `paused` or `stopped`.
    pub fn state(&self, row: &Row) -> &'static str {
        let any = |is: fn(&Windows) -> bool| row.streams.iter().any(|stream| is(&self.streams[*stream].windows));
        if any(Windows::is_active) {
            "started"
        } else if any(Windows::is_paused) {
            "paused"
        } else {
            "stopped"
        }
    }

    /// True if a flow from this port sends.
    pub fn port_sends(&self, port: PortIndex) -> bool {
        self.rows.iter().any(|row| row.from == port && self.state(row) == "started")
    }

    /// Streams of these flows.
    fn of(&self, flows: &[usize]) -> Vec<usize> {
        let named = self.rows.iter().filter(|row| flows.contains(&row.flow));
        named.flat_map(|row| row.streams.iter().copied()).collect()
    }

    /// Time of the traffic.
    fn elapsed(rig: &Rig) -> Duration {
        rig.traffic_start().map_or(Duration::ZERO, |start| rig.now().since(start))
    }

    /// Starts flows from their beginning, and their counts from 0.
    ///
    /// # Errors
    /// Why they cannot be sent.
    pub fn start(&mut self, rig: &mut Rig, built: &Built, keys: &mut TrialKeys, flows: &[usize]) -> Result<(), String> {
        let named = self.of(flows);
        let others = |this: &Flows| {
            (0..this.streams.len()).any(|i| {
                !named.contains(&i) && {
                    let windows = &this.streams[i].windows;
                    windows.is_active() || windows.is_paused()
                }
            })
        };
        if self.live.is_some() && (self.draining || !others(self)) {
            let now = Flows::elapsed(rig);
            self.stop_streams(rig, &named, now)?;
            self.end(rig)?;
        }
        self.failure = None;
        if self.live.is_none() {
            self.begin(rig, built, keys, &named)?;
        }
        if let Some(unknown) = named.iter().find(|i| self.streams[**i].number.is_none()) {
            let row = self.rows.iter().find(|row| row.streams.contains(unknown));
            let name = row.map_or("", |row| built.flows[row.flow].name.as_str());
            return Err(format!(
                "flow `{name}` cannot be added to running traffic, because its gateway was unknown when that began; stop all flows and start again"
            ));
        }
        let now = Flows::elapsed(rig);
        self.stop_streams(rig, &named, now)?;
        self.refresh(rig);
        for i in &named {
            let stream = &mut self.streams[*i];
            stream.base = stream.offered;
            stream.windows.start(now);
        }
        for row in self.rows.iter_mut().filter(|row| flows.contains(&row.flow)) {
            row.base = if row.current { add(&row.base, &row.counts) } else { Counts::default() };
            (row.current, row.counts) = (true, Counts::default());
        }
        self.orders(rig)
    }

    fn stop_streams(&mut self, rig: &mut Rig, which: &[usize], now: Duration) -> Result<(), String> {
        for i in which {
            let stream = &mut self.streams[*i];
            let (order, number) = (stream.windows.stop(now), stream.number);
            give(rig, number, order)?;
        }
        Ok(())
    }

    /// Stops, pauses or resumes flows.
    ///
    /// # Errors
    /// The rig's.
    pub fn change(&mut self, rig: &mut Rig, action: Action, flows: &[usize]) -> Result<(), String> {
        if self.live.is_none() {
            return Ok(());
        }
        let now = Flows::elapsed(rig);
        for i in self.of(flows) {
            let stream = &mut self.streams[i];
            let order = match action {
                TransmitAction::Stop => stream.windows.stop(now),
                TransmitAction::Pause => stream.windows.pause(now),
                TransmitAction::Resume => stream.windows.resume(now),
                TransmitAction::Start => None,
            };
            give(rig, stream.number, order)?;
        }
        self.orders(rig)?;
        if matches!(action, TransmitAction::Stop | TransmitAction::Pause) {
            self.settle(rig, &self.of(flows))?;
        }
        // Stopped flows have their final counts when the client hears that they are stopped.
        if !self.are_active() { self.end(rig) } else { Ok(()) }
    }

    /// Begins traffic with all flows whose destination is known; those of `named` must be known.
    fn begin(&mut self, rig: &mut Rig, built: &Built, keys: &mut TrialKeys, named: &[usize]) -> Result<(), String> {
        let wanted = built.flows.iter().flat_map(|flow| &flow.streams).enumerate().filter(|(i, _)| named.contains(i));
        let gateways: Vec<_> =
            wanted.filter_map(|(_, stream)| Some(gateway_of(built, &stream.spec, stream.gateway?))).collect();
        resolve(rig, built, &gateways)?;
        let mut specs = Vec::new();
        self.groups.clear();
        for (i, stream) in built.flows.iter().flat_map(|flow| &flow.streams).enumerate() {
            let mut spec = stream.spec.clone();
            let state = &mut self.streams[i];
            (state.number, state.offered, state.base, state.moved) = (None, 0, 0, Duration::ZERO);
            state.windows = Windows::new(stream.program);
            if let (Some(device), Some(Header::Ethernet(ethernet))) = (stream.gateway, spec.headers.first_mut()) {
                let (port, device, family) = gateway_of(built, &stream.spec, device);
                let mac = rig.hosts().device(port, device).and_then(|device| device.gateway_mac(family));
                let Some(mac) = mac else { continue };
                ethernet.destination = Some(Field::Value(MacAddr(mac.0)));
            }
            if self.groups.last() != Some(&spec.group) {
                self.groups.push(spec.group.clone());
            }
            self.streams[i].number = Some(specs.len());
            specs.push(spec);
        }
        let Some(size) = specs.first().and_then(|spec| spec.size.clone()) else {
            return Err("there is no flow to start".into());
        };
        let spec = TrialSpec {
            purpose: "api".into(),
            size,
            flows: specs,
            load: Load::Flows,
            duration_s: CONTINUOUS.as_secs_f64(),
            bin_s: None,
            drain_s: DRAIN_S,
            events: Vec::new(),
        };
        let (_, key, earlier) = keys.next_trial();
        let timing = Timing { seed: SEED, key, earlier, max_backlog_ns: MAX_BACKLOG_NS, late_ns: LATE_NS };
        let live = rig.start_traffic(&spec, &timing, Vec::new()).map_err(|e| e.to_string())?;
        rig.transmit(FlowSelect::All, TransmitAction::Stop, Some(Duration::ZERO)).map_err(|e| e.to_string())?;
        (self.live, self.draining) = (Some(live), false);
        // Rows that do not start keep the counts of earlier traffic.
        self.rows.iter_mut().for_each(|row| row.current = false);
        Ok(())
    }

    /// Drives traffic until all frames that were due before these streams stopped have left, or do not leave.
    fn settle(&mut self, rig: &mut Rig, which: &[usize]) -> Result<(), String> {
        let (mut moved, mut last) = (rig.now(), None);
        while self.live.is_some() && rig.now().since(moved) < STALLED {
            let late = |this: &Flows| {
                let late = |i: &usize| {
                    let stream = &this.streams[*i];
                    (stream.base + stream.windows.planned()).saturating_sub(stream.offered)
                };
                which.iter().map(late).sum::<u64>()
            };
            self.refresh(rig);
            match late(self) {
                0 => break,
                now if last != Some(now) => (moved, last) = (rig.now(), Some(now)),
                _ => {}
            }
            self.drive(rig, rig.now() + LEAD)?;
            self.orders(rig)?;
        }
        Ok(())
    }

    /// Gives the orders that are due to the rig.
    fn orders(&mut self, rig: &mut Rig) -> Result<(), String> {
        let (now, mut orders) = (Flows::elapsed(rig), Vec::new());
        for stream in &mut self.streams {
            stream.windows.due(now, &mut orders);
            for order in orders.drain(..) {
                give(rig, stream.number, Some(order))?;
            }
        }
        Ok(())
    }

    /// Drives the traffic for at most `time`, and does what is due.
    ///
    /// # Errors
    /// What ended the traffic.
    pub fn turn(&mut self, rig: &mut Rig, time: Duration) -> Result<(), String> {
        let next = self.streams.iter().filter_map(|stream| stream.windows.next()).min();
        let until = match (next, rig.traffic_start()) {
            (Some(next), Some(start)) => (start + next).min(rig.now() + time),
            // The first call starts the traffic.
            (Some(_), None) => rig.now() + Duration::from_micros(1),
            _ => rig.now() + time,
        };
        self.drive(rig, until)?;
        if self.live.is_none() {
            return Ok(());
        }
        self.orders(rig)?;
        if self.streams.iter().any(|stream| stream.windows.finishing().is_some()) {
            self.finish_streams(rig);
        }
        if !self.draining && !self.are_active() {
            self.end_sending(rig);
        }
        Ok(())
    }

    fn drive(&mut self, rig: &mut Rig, until: Instant) -> Result<(), String> {
        let events = match rig.drive(until, &|| false) {
            Ok(events) => events,
            Err(e) => return Err(self.fail(rig, &e)),
        };
        for event in events {
            if let Event::TrafficEnded(result) = event {
                self.conclude(&result);
            }
        }
        Ok(())
    }

    /// The traffic has ended before its time.
    fn fail(&mut self, rig: &mut Rig, error: &RigError) -> String {
        if let Some(counted) = rig.cut_off() {
            self.conclude(&counted);
        }
        self.live = None;
        self.streams.iter_mut().for_each(|stream| stream.windows.finish());
        let text = error.to_string();
        self.failure = Some(text.clone());
        text
    }

    /// Stops streams whose frames have all left, or do not leave.
    fn finish_streams(&mut self, rig: &mut Rig) {
        let before: Vec<u64> = self.streams.iter().map(|stream| stream.offered).collect();
        self.refresh(rig);
        let now = Flows::elapsed(rig);
        for (stream, before) in self.streams.iter_mut().zip(before) {
            let Some(planned) = stream.windows.finishing() else { continue };
            if stream.offered > before || stream.moved.is_zero() {
                stream.moved = now;
            }
            if stream.offered - stream.base >= planned || now > stream.moved + STALLED {
                stream.windows.finish();
                stream.moved = Duration::ZERO;
            }
        }
    }

    fn end_sending(&mut self, rig: &mut Rig) {
        self.refresh(rig);
        self.draining = true;
        self.live.iter().for_each(Live::end_sending);
    }

    /// Ends sending, and drives the traffic until frames in the DUT have arrived.
    fn end(&mut self, rig: &mut Rig) -> Result<(), String> {
        if !self.draining {
            self.end_sending(rig);
        }
        while self.live.is_some() {
            self.drive(rig, Instant(u64::MAX))?;
        }
        Ok(())
    }

    /// Ends all traffic without waiting.
    pub fn abort(&mut self, rig: &mut Rig) {
        if let Some(live) = self.live.take() {
            live.end();
            // The error of a port that fails now changes nothing.
            let _ = rig.finish(&|| true);
        }
        self.streams.iter_mut().for_each(|stream| stream.windows.finish());
    }

    /// Updates the counts of running traffic.
    pub fn refresh(&mut self, rig: &mut Rig) {
        if self.live.is_none() {
            return;
        }
        let Some(snapshot) = rig.metrics().traffic else { return };
        for stream in &mut self.streams {
            let counts = stream.number.and_then(|number| snapshot.flows.get(&number));
            stream.offered = counts.map_or(stream.offered, |counts| counts.offered);
        }
        let groups: HashMap<&str, usize> =
            self.groups.iter().enumerate().map(|(i, group)| (group.as_str(), i)).collect();
        for row in self.rows.iter_mut().filter(|row| row.current) {
            let Some(group) = groups.get(row.group.as_str()) else { continue };
            let whole = live_counts(row, &self.streams, &snapshot, *group);
            row.counts = since(&whole, &row.base);
        }
    }

    /// Takes the final counts of the traffic.
    fn conclude(&mut self, result: &TrialResult) {
        self.live = None;
        self.tester_drops = result.health.receive_drops;
        for row in self.rows.iter_mut().filter(|row| row.current) {
            let Some(group) = result.groups.iter().find(|group| group.group == row.group) else { continue };
            if let [stream] = row.streams[..] {
                self.streams[stream].offered = group.offered;
            }
            let latency = &group.latency;
            let whole = Counts {
                frames_tx: group.offered,
                bytes_tx: row.streams.iter().map(|i| self.streams[*i].bytes(self.streams[*i].offered)).sum(),
                frames_rx: group.received,
                bytes_rx: group.received_bytes,
                duplicates: group.duplicated,
                reordered: group.reordered,
                corrupted: group.corrupted,
                stray: group.stray,
                latency_ns: (latency.frames > 0).then_some([
                    latency.min_ns as f64,
                    latency.mean_ns,
                    latency.max_ns as f64,
                ]),
                latencies: Vec::new(),
            };
            let only_once = row.base == Counts::default();
            let known = row.counts.latency_ns;
            row.counts = since(&whole, &row.base);
            row.counts.latency_ns = if only_once { whole.latency_ns } else { known };
        }
    }
}

/// Gives an order to the flow with this number.
fn give(rig: &Rig, number: Option<usize>, order: Option<Order>) -> Result<(), String> {
    let (Some(number), Some(Order { action, at })) = (number, order) else { return Ok(()) };
    rig.transmit(FlowSelect::Flows(&[number]), action, Some(at)).map_err(|e| e.to_string())
}

/// The gateway to which a flow goes: port, device and family. The DUT has one MAC address on a link, so a device with addresses of one
/// family sends packets of both there: routes of one family can come from a session over the other.
fn gateway_of(built: &Built, spec: &FlowSpec, device: usize) -> (PortIndex, usize, Family) {
    let config = &built.rig.ports[spec.from].devices[device];
    let family = match (spec.family, config.ipv4, config.ipv6) {
        (Family::Ipv6, Some(_), None) => Family::Ipv4,
        (Family::Ipv4, None, Some(_)) => Family::Ipv6,
        (family, ..) => family,
    };
    (spec.from, device, family)
}

/// Waits until these gateways have answered.
fn resolve(rig: &mut Rig, built: &Built, gateways: &[(PortIndex, usize, Family)]) -> Result<(), String> {
    let end = rig.now() + ANSWER;
    loop {
        let unknown = gateways.iter().find(|(port, device, family)| {
            rig.hosts().device(*port, *device).is_none_or(|device| device.gateway_mac(*family).is_none())
        });
        let Some((port, device, family)) = unknown else { return Ok(()) };
        if rig.now() >= end {
            let device = &built.rig.ports[*port].devices[*device];
            let (gateway, how) = match family {
                Family::Ipv4 => (device.ipv4.map(|a| a.gateway.to_string()), "ARP"),
                Family::Ipv6 => (device.ipv6.map(|a| a.gateway.to_string()), "Neighbor Discovery"),
            };
            let name = &device.name;
            return Err(match gateway {
                Some(gateway) => {
                    format!("the gateway {gateway} of `{name}` does not answer {how}; check its address, and the cable")
                }
                None => format!("`{name}` has no {family} address, so the flow needs an ethernet destination"),
            });
        }
        let wait = rig.now() + Duration::from_millis(20);
        rig.serve(&Until::Resolved.or_at(wait), &|| false).map_err(|e| e.to_string())?;
    }
}

fn live_counts(row: &Row, streams: &[Stream], snapshot: &Snapshot, group: usize) -> Counts {
    let mut counts = Counts::default();
    for stream in row.streams.iter().map(|i| &streams[*i]) {
        counts.frames_tx += stream.offered;
        counts.bytes_tx += stream.bytes(stream.offered);
        if let Some(flow) = stream.number.and_then(|number| snapshot.flows.get(&number)) {
            counts.frames_rx += flow.received.frames;
            counts.duplicates += flow.received.duplicated;
            counts.reordered += flow.received.reordered;
        }
    }
    if let Some(group) = snapshot.groups.get(group) {
        counts.bytes_rx = group.bytes;
        counts.corrupted = group.corrupted;
        counts.stray = group.stray;
        counts.latencies = group.latencies.clone();
        counts.latency_ns = figures(&group.latencies, Some(group.latency_max_ns));
    }
    counts
}

/// Smallest, mean and largest of these latencies; the mean is that of the lower ends of the buckets.
fn figures(latencies: &[(u64, u64)], max: Option<u64>) -> Option<[f64; 3]> {
    let frames: u64 = latencies.iter().map(|(_, frames)| frames).sum();
    let (first, last) = (latencies.first()?, latencies.last()?);
    let sum: f64 = latencies.iter().map(|(ns, frames)| *ns as f64 * *frames as f64).sum();
    Some([first.0 as f64, sum / frames.max(1) as f64, max.unwrap_or(last.0) as f64])
}

/// The counts that were added to `base` to make `whole`.
fn since(whole: &Counts, base: &Counts) -> Counts {
    let before: HashMap<u64, u64> = base.latencies.iter().copied().collect();
    let fewer = |(ns, frames): &(u64, u64)| {
        let frames = frames.saturating_sub(before.get(ns).copied().unwrap_or(0));
        (frames > 0).then_some((*ns, frames))
    };
    let latencies: Vec<_> = whole.latencies.iter().filter_map(fewer).collect();
    let latency_ns = if base.latencies.is_empty() { whole.latency_ns } else { figures(&latencies, None) };
    Counts {
        frames_tx: whole.frames_tx.saturating_sub(base.frames_tx),
        bytes_tx: whole.bytes_tx.saturating_sub(base.bytes_tx),
        frames_rx: whole.frames_rx.saturating_sub(base.frames_rx),
        bytes_rx: whole.bytes_rx.saturating_sub(base.bytes_rx),
        duplicates: whole.duplicates.saturating_sub(base.duplicates),
        reordered: whole.reordered.saturating_sub(base.reordered),
        corrupted: whole.corrupted.saturating_sub(base.corrupted),
        stray: whole.stray.saturating_sub(base.stray),
        latency_ns,
        latencies,
    }
}

/// Both counts together.
fn add(a: &Counts, b: &Counts) -> Counts {
    let mut sum: std::collections::BTreeMap<u64, u64> = a.latencies.iter().copied().collect();
    b.latencies.iter().for_each(|(ns, frames)| *sum.entry(*ns).or_default() += frames);
    Counts {
        frames_tx: a.frames_tx + b.frames_tx,
        bytes_tx: a.bytes_tx + b.bytes_tx,
        frames_rx: a.frames_rx + b.frames_rx,
        bytes_rx: a.bytes_rx + b.bytes_rx,
        duplicates: a.duplicates + b.duplicates,
        reordered: a.reordered + b.reordered,
        corrupted: a.corrupted + b.corrupted,
        stray: a.stray + b.stray,
        latency_ns: None,
        latencies: sum.into_iter().collect(),
    }
}
