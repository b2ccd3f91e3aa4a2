//! Traffic of the rig: starts, stops and counts of flows.
//!
//! Traffic of the rig begins when the first flow starts, and ends when no flow sends any more. It contains all flows of the
//! configuration; flows that have not been started yet count as stopped. So a client can start any flow at any time.

use super::counts::Counts;
use super::rates::{BIN, PATIENCE, Rates};
use super::windows::{LEAD, Order, Windows};
use crate::build::{Built, LspPlace, PlannedFlow};
use drophammer_emulation::rsvp::Rsvp;
use drophammer_model::Instant;
use drophammer_model::latency::IpdvSummary;
use drophammer_model::mac::MacAddr;
use drophammer_model::traffic::{Bits, Field, Header};
use drophammer_model::trial::{Family, FlowSpec, Load, PortIndex, TrialResult, TrialSpec};
use drophammer_rig::{
    CONTINUOUS, CONTINUOUS_BINS, Event, FlowSelect, Live, Rig, RigError, Snapshot, Timing, TransmitAction, TrialKeys,
    Until,
};
use drophammer_wire::rsvp::IMPLICIT_NULL;
use std::collections::HashMap;
use std::time::Duration;

/// Time to wait, after the last frame left, for frames that are still in the DUT.
const DRAIN_S: f64 = 1.0;
/// From this lateness on, a frame counts as late.
const LATE_NS: u64 = 1_000_000_000;
/// A flow with a fixed number of frames sends them late rather than never.
const MAX_BACKLOG_NS: u64 = 1_000_000_000_000_000;
/// How long frames that are due may take to leave after the last frame that left.
const STALLED: Duration = Duration::from_millis(200);
/// Time for a gateway to answer.
const ANSWER: Duration = Duration::from_secs(3);
/// Seed of the payload.
const SEED: u64 = 0;

/// What a client does with flows.
pub use drophammer_rig::TransmitAction as Action;

/// Disturbances of a port's frames by the tester itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Disturbance {
    /// Received frames that it lost.
    pub drops: u64,
    /// Frames that left more than 1 ms late.
    pub late: u64,
    /// All frames that left.
    pub departures: u64,
}

/// Flows with the same name and the same ports. They share one row of metrics.
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
    /// Ports at which its frames may arrive.
    receivers: Vec<PortIndex>,
    /// Time that a frame takes on the line, in ns, if latency does not contain it.
    pub line_ns: f64,
    /// True if it has ever started.
    pub started: bool,
    /// True if it has started in the running or last traffic.
    current: bool,
    /// Counts of that traffic: now, and when the row started.
    whole: Counts,
    base: Counts,
    /// Counts since then.
    pub counts: Counts,
    /// Disturbances when the row started, and those since then.
    undisturbed: Disturbance,
    pub disturbance: Disturbance,
    /// Variation of latency in the last traffic, if the row started only once in it.
    pub variation: Option<IpdvSummary>,
    /// How its rate compares with the threshold.
    pub rates: Rates,
    /// When it started.
    pub since: Instant,
}

struct Stream {
    windows: Windows,
    sizes: Vec<u64>,
    /// Its number in the traffic; `None` if its gateway was unknown when the traffic began.
    number: Option<usize>,
    /// Frames sent in the traffic, and how many of them before it started.
    offered: u64,
    base: u64,
    /// While it finishes: when the last frame left so far.
    moved: Duration,
}

impl Stream {
    /// Bytes of the first `frames` frames of the traffic.
    fn bytes(&self, frames: u64) -> u64 {
        let (round, length) = (self.sizes.iter().sum::<u64>(), self.sizes.len() as u64);
        frames / length * round + self.sizes.iter().take((frames % length) as usize).sum::<u64>()
    }
}

/// The label that a neighbour has assigned to an LSP; `None` while the LSP is not up.
fn learned_label(rig: &Rig, lsp: LspPlace) -> Option<u32> {
    let rsvp: &Rsvp = rig.hosts().device(lsp.place.port, lsp.place.device)?.protocol()?;
    rsvp.label_of(lsp.lsp)
}

/// Name of the flow of a stream.
fn name_of(built: &Built, stream: usize) -> &str {
    let streams = built.flows.iter().flat_map(|flow| flow.streams.iter().map(|_| flow.name.as_str()));
    streams.into_iter().nth(stream).unwrap_or_default()
}

/// All flows of a configuration.
pub struct Flows {
    streams: Vec<Stream>,
    pub rows: Vec<Row>,
    /// The running traffic.
    live: Option<Live>,
    /// Groups of the running traffic.
    groups: Vec<String>,
    /// True once nothing is sent any more.
    draining: bool,
    /// Disturbances by port: losses since the port was opened, and departures in the running traffic.
    disturbances: Vec<Disturbance>,
    /// Threshold below which a rate counts as fallen, in per cent of the full rate, if rates are recorded.
    threshold: Option<f64>,
    /// True if the traffic lasts longer than its time bins.
    pub outlasts_bins: bool,
    /// Frames of finished traffic that the tester lost itself.
    pub tester_drops: u64,
    /// What ended the last traffic prematurely.
    pub failure: Option<String>,
}

impl Flows {
    /// Flows that have not been started.
    pub fn new(flows: &[PlannedFlow], ports: usize, threshold: Option<f64>) -> Flows {
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
                        receivers: [spec.to].iter().chain(&spec.also).copied().collect(),
                        line_ns: stream.line_ns,
                        started: false,
                        current: false,
                        whole: Counts::default(),
                        base: Counts::default(),
                        counts: Counts::default(),
                        undisturbed: Disturbance::default(),
                        disturbance: Disturbance::default(),
                        variation: None,
                        rates: Rates::default(),
                        since: Instant(0),
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
        let disturbances = vec![Disturbance::default(); ports];
        let (live, groups) = (None, Vec::new());
        Flows {
            streams,
            rows,
            live,
            groups,
            draining: false,
            disturbances,
            threshold,
            outlasts_bins: false,
            tester_drops: 0,
            failure: None,
        }
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
                "flow `{name}` cannot be added to running traffic, because its gateway or the label of its LSP was unknown when that began; stop all flows and start again"
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
            row.base = if row.current { row.whole.clone() } else { Counts::default() };
            (row.started, row.current, row.counts) = (true, true, Counts::default());
            (row.undisturbed, row.disturbance) = (disturbance(row, &self.disturbances), Disturbance::default());
            (row.variation, row.since) = (None, rig.now());
            row.rates = Rates::from((now.as_nanos() / BIN.as_nanos()) as usize);
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
    /// The errors of the rig.
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

    /// Begins traffic with all flows whose destination is known. The destinations of the flows `named` must be known.
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
            if let Some((at, lsp)) = stream.label {
                match learned_label(rig, lsp) {
                    None if named.contains(&i) => {
                        return Err(format!(
                            "the LSP of flow `{}` is not up: there is no label for its frames",
                            name_of(built, i)
                        ));
                    }
                    None => continue,
                    // The neighbour wants packets without this label (RFC 3032 section 2.1).
                    Some(IMPLICIT_NULL) => {
                        spec.headers.remove(at);
                    }
                    Some(label) => {
                        if let Some(Header::Mpls(mpls)) = spec.headers.get_mut(at) {
                            mpls.label = Field::Value(Bits::new(label));
                        }
                    }
                }
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
            bin_s: self.threshold.map(|_| BIN.as_secs_f64()),
            drain_s: DRAIN_S,
            events: Vec::new(),
        };
        let (_, key, earlier) = keys.next_trial();
        let timing = Timing { seed: SEED, key, earlier, max_backlog_ns: MAX_BACKLOG_NS, late_ns: LATE_NS };
        let live = rig.start_traffic(&spec, &timing, Vec::new()).map_err(|e| e.to_string())?;
        rig.transmit(FlowSelect::All, TransmitAction::Stop, Some(Duration::ZERO)).map_err(|e| e.to_string())?;
        (self.live, self.draining, self.outlasts_bins) = (Some(live), false, false);
        rig.keep_last_counts();
        self.disturb(rig);
        // Rows that do not start keep the counts of earlier traffic.
        self.rows.iter_mut().for_each(|row| row.current = false);
        Ok(())
    }

    /// Drives traffic until all frames that were due before these streams stopped have left, or none has left for
    /// [`STALLED`].
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

    /// Passes the orders that are due to the rig.
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
        self.judge_rates(rig);
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
                self.conclude(rig, &result);
            }
        }
        Ok(())
    }

    /// Records that the traffic has ended prematurely.
    fn fail(&mut self, rig: &mut Rig, error: &RigError) -> String {
        if let Some(counted) = rig.cut_off() {
            self.conclude(rig, &counted);
        }
        self.live = None;
        self.streams.iter_mut().for_each(|stream| stream.windows.finish());
        let text = error.to_string();
        self.failure = Some(text.clone());
        text
    }

    /// Stops streams whose frames have all left, or that have sent nothing for [`STALLED`].
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
            // If a port fails now, that changes nothing.
            let _ = rig.finish(&|| true);
        }
        self.streams.iter_mut().for_each(|stream| stream.windows.finish());
    }

    /// Updates the counts of running traffic.
    pub fn refresh(&mut self, rig: &mut Rig) {
        if self.live.is_none() {
            return;
        }
        self.disturb(rig);
        if let Some(snapshot) = rig.metrics().traffic {
            self.take(&snapshot);
        }
    }

    /// Takes the counts of the traffic.
    fn take(&mut self, snapshot: &Snapshot) {
        for stream in &mut self.streams {
            let counts = stream.number.and_then(|number| snapshot.flows.get(&number));
            stream.offered = counts.map_or(stream.offered, |counts| counts.offered);
        }
        let groups: HashMap<&str, usize> =
            self.groups.iter().enumerate().map(|(i, group)| (group.as_str(), i)).collect();
        for row in self.rows.iter_mut().filter(|row| row.current) {
            let Some(group) = groups.get(row.group.as_str()) else { continue };
            row.whole = Counts::default();
            for stream in row.streams.iter().map(|i| &self.streams[*i]) {
                row.whole.add_stream(snapshot, stream.number, stream.offered, stream.bytes(stream.offered));
            }
            row.whole.add_group(snapshot, *group);
            row.counts = row.whole.since(&row.base);
        }
    }

    /// Updates the disturbances.
    fn disturb(&mut self, rig: &mut Rig) {
        for (port, known) in self.disturbances.iter_mut().enumerate() {
            // The next call that drives a failed port reports it.
            known.drops = rig.receive_drops(port).unwrap_or(known.drops);
            if let Some((late, departures)) = rig.late_departures(port) {
                (known.late, known.departures) = (late, departures);
            }
        }
        for row in self.rows.iter_mut().filter(|row| row.current) {
            let now = disturbance(row, &self.disturbances);
            row.disturbance = Disturbance {
                drops: now.drops.saturating_sub(row.undisturbed.drops),
                late: now.late.saturating_sub(row.undisturbed.late),
                departures: now.departures.saturating_sub(row.undisturbed.departures),
            };
        }
    }

    /// Once a row no longer sends: its frames that were due and have not left.
    pub fn unsent(&self, row: &Row) -> u64 {
        let stopped = row.streams.iter().map(|i| &self.streams[*i]).filter(|stream| !stream.windows.is_active());
        stopped.map(|stream| (stream.base + stream.windows.planned()).saturating_sub(stream.offered)).sum()
    }

    /// Judges the rates of running traffic, as far as frames have had time to arrive.
    pub fn judge_rates(&mut self, rig: &Rig) {
        let Some((start, threshold)) = rig.traffic_start().zip(self.threshold) else { return };
        let ready = Flows::elapsed(rig).saturating_sub(PATIENCE).as_nanos() / BIN.as_nanos();
        let ready = ready as usize;
        self.outlasts_bins |= ready > CONTINUOUS_BINS;
        let ready = ready.min(CONTINUOUS_BINS);
        for row in self.rows.iter_mut().filter(|row| row.current && row.rates.next < ready) {
            let Some(group) = self.groups.iter().position(|group| *group == row.group) else { continue };
            row.rates.judge(&rig.bins(group, row.rates.next..ready), start, threshold);
        }
    }

    /// Takes the final counts of the traffic.
    fn conclude(&mut self, rig: &mut Rig, result: &TrialResult) {
        self.live = None;
        self.tester_drops = result.health.receive_drops;
        self.disturb(rig);
        if let Some(snapshot) = rig.take_last_counts() {
            self.take(&snapshot);
        }
        let start = rig.started();
        for row in self.rows.iter_mut().filter(|row| row.current) {
            let Some(group) = result.groups.iter().find(|group| group.group == row.group) else { continue };
            row.variation = group.ipdv.filter(|_| row.base == Counts::default());
            if let (Some((start, threshold)), Some(rest)) =
                (start.zip(self.threshold), group.bins.get(row.rates.next..))
            {
                row.rates.judge(rest, start, threshold);
            }
        }
    }
}

/// Disturbances at the ports of a row.
fn disturbance(row: &Row, ports: &[Disturbance]) -> Disturbance {
    let drops = row.receivers.iter().map(|port| ports[*port].drops).sum();
    Disturbance { drops, ..ports[row.from] }
}

/// Gives an order to the flow with this number.
fn give(rig: &Rig, number: Option<usize>, order: Option<Order>) -> Result<(), String> {
    let (Some(number), Some(Order { action, at })) = (number, order) else { return Ok(()) };
    rig.transmit(FlowSelect::Flows(&[number]), action, Some(at)).map_err(|e| e.to_string())
}

/// The gateway to which a flow goes: port, device and family. The DUT has one MAC address on a link, so a device with addresses of
/// only one family still sends packets of both families there. This matters because routes of one family can come from a session over
/// the other.
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
