//! Traffic of the rig: starts, stops and counts of flows.
//!
//! Traffic of the rig begins when the first flow starts, and ends when no flow sends any more. It contains all flows of the
//! configuration; flows that have not been started yet count as stopped. So a client can start any flow at any time.

use super::counts::{Counts, Disturbance, Latencies};
use super::gateways::{gateway_of, learned_label, resolve};
use super::orders::Orders;
use super::rates::{BIN, PATIENCE, Rates};
use super::row::{Faults, Row};
use super::stream::Stream;
use super::tagged::Places;
use super::windows::{LEAD, Windows};
use crate::build::{Built, PlannedFlow};
use drophammer_model::Instant;
use drophammer_model::mac::MacAddr;
use drophammer_model::traffic::{Bits, Field, Header};
use drophammer_model::trial::{FlowSpec, GroupCounts, Load, PortIndex, TrialResult, TrialSpec};
use drophammer_rig::{
    CONTINUOUS, CONTINUOUS_BINS, Event, FlowSelect, Live, Rig, RigError, Snapshot, Timing, TransmitAction, TrialKeys,
};
use drophammer_wire::rsvp::IMPLICIT_NULL;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// From this lateness on, a frame counts as late.
const LATE_NS: u64 = 1_000_000_000;
/// A flow with a fixed number of frames sends them late rather than never.
const MAX_BACKLOG_NS: u64 = 1_000_000_000_000_000;
/// How long frames that were due before a stop or a pause may still leave.
const GRACE: Duration = Duration::from_millis(100);
/// Frames that are due never leave once their port has sent nothing for this time, and for an interval of their flow, while it was
/// driven. A port with too much to send serves the earliest frame first, so frames wait, but they leave.
const STALLED: Duration = Duration::from_millis(200);
/// How much earlier than its effect an order is given to other hosts: it must reach all of them before.
const FAR_LEAD: Duration = Duration::from_millis(500);
/// How long other hosts have sent before their traffic has begun: one that was not ready in time has told so.
const BEGUN: Duration = Duration::from_millis(100);
/// How long other hosts may take to tell their counts.
const TO_COUNT: Duration = Duration::from_secs(2);
/// Seed of the payload.
const SEED: u64 = 0;

/// What a client does with flows.
pub use drophammer_rig::TransmitAction as Action;

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
    /// Time for which traffic was driven.
    driven: Duration,
    /// For each port, the frames that it has taken over in the traffic, and when the last ones, in time that it was driven.
    moved: Vec<(u64, Duration)>,
    /// True once nothing is sent any more.
    draining: bool,
    /// Frames and bytes of the running or last traffic that arrived at each port where their flow may arrive, copies included.
    pub arrived: Vec<(u64, u64)>,
    /// Disturbances by port: losses since the port was opened, and departures in the running traffic.
    disturbances: Vec<Disturbance>,
    /// Threshold below which a rate counts as fallen, in per cent of the full rate, if rates are recorded.
    threshold: Option<f64>,
    /// True if the traffic lasts longer than its time bins.
    pub outlasts_bins: bool,
    /// Frames of finished traffic that the tester lost itself.
    pub tester_drops: u64,
    /// Frames that were due and never left, because a port could not send them in time, since somebody last looked.
    pub left_out: u64,
    /// True if other hosts have taken the order to start.
    begun: bool,
    /// What ended the last traffic prematurely.
    pub failure: Option<String>,
    /// Largest step of the wall clock during the last traffic, in ns, once it has ended.
    clock_step_ns: i64,
}

impl Flows {
    /// Flows that have not been started.
    pub fn new(flows: &[PlannedFlow], ports: usize, threshold: Option<f64>) -> Flows {
        let (mut streams, mut rows): (Vec<Stream>, Vec<Row>) = Default::default();
        for (index, flow) in flows.iter().enumerate() {
            let first = rows.len();
            for stream in &flow.streams {
                let spec = &stream.spec;
                let number = streams.len();
                let known = rows[first..].iter().position(|row| row.group == spec.group);
                let row = known.map_or(rows.len(), |known| first + known);
                match rows.get_mut(row) {
                    Some(row) => row.streams.push(number),
                    None => rows.push(Row::new(index, flow, stream, number)),
                }
                streams.push(Stream {
                    windows: Windows::new(stream.program),
                    row,
                    from: spec.from,
                    sizes: stream.sizes.clone(),
                    turn: stream.turn,
                    number: None,
                    offered: 0,
                    base: 0,
                    handed: 0,
                    base_handed: 0,
                    dropped: 0,
                    finishes: None,
                });
            }
        }
        let disturbances = vec![Disturbance::default(); ports];
        Flows {
            streams,
            rows,
            live: None,
            driven: Duration::ZERO,
            moved: vec![(0, Duration::ZERO); ports],
            draining: false,
            arrived: vec![(0, 0); ports],
            disturbances,
            threshold,
            outlasts_bins: false,
            tester_drops: 0,
            left_out: 0,
            begun: false,
            failure: None,
            clock_step_ns: 0,
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

    /// Those of these flows that neither send nor are paused.
    pub fn stopped(&self, flows: &[usize]) -> Vec<usize> {
        let others: HashSet<usize> =
            self.rows.iter().filter(|row| self.state(row) != "stopped").map(|row| row.flow).collect();
        flows.iter().copied().filter(|flow| !others.contains(flow)).collect()
    }

    /// True if a flow from this port sends.
    pub fn port_sends(&self, port: PortIndex) -> bool {
        self.rows.iter().any(|row| row.from == port && self.state(row) == "started")
    }

    /// Streams of these flows.
    fn of(&self, flows: &[usize]) -> Vec<usize> {
        let flows: HashSet<usize> = flows.iter().copied().collect();
        let named = self.rows.iter().filter(|row| flows.contains(&row.flow));
        named.flat_map(|row| row.streams.iter().copied()).collect()
    }

    /// Time of the traffic.
    fn elapsed(rig: &Rig) -> Duration {
        rig.traffic_start().map_or(Duration::ZERO, |start| rig.now().since(start))
    }

    /// How much earlier than its effect an order is given.
    fn lead(rig: &Rig) -> Duration {
        if rig.is_far() { FAR_LEAD } else { Duration::ZERO }
    }

    /// The earliest time of the traffic at which an order has effect.
    fn earliest(rig: &Rig) -> Duration {
        // What is ordered before the start is known there.
        rig.traffic_start().map_or(Duration::ZERO, |_| Flows::elapsed(rig) + Flows::lead(rig))
    }

    /// True if other hosts started the last traffic, and it ended at once.
    pub fn were_cut_off(&self) -> bool {
        self.begun && self.live.is_none() && self.failure.is_some()
    }

    /// Starts flows from their beginning, and their counts from 0. Returns true if traffic began with them.
    ///
    /// # Errors
    /// Why they cannot be sent.
    pub fn start(
        &mut self,
        rig: &mut Rig,
        built: &Built,
        keys: &mut TrialKeys,
        flows: &[usize],
    ) -> Result<bool, String> {
        let named = self.of(flows);
        let all: HashSet<usize> = named.iter().copied().collect();
        let others = |this: &Flows| {
            let mut others = this.streams.iter().enumerate().filter(|(i, _)| !all.contains(i));
            others.any(|(_, stream)| stream.windows.is_active() || stream.windows.is_paused())
        };
        if self.live.is_some() && (self.draining || !others(self)) {
            self.stop_streams(rig, &named)?;
            self.end(rig)?;
        }
        let begins = self.live.is_none();
        if begins {
            self.begin(rig, built, keys, &all)?;
        }
        if let Some(unknown) = named.iter().find(|i| self.streams[**i].number.is_none()) {
            let row = self.rows.iter().find(|row| row.streams.contains(unknown));
            let name = row.map_or("", |row| built.flows[row.flow].name.as_str());
            return Err(format!(
                "flow `{name}` cannot be added to running traffic, because its gateway or the label of its LSP was unknown when that began; stop all flows and start again"
            ));
        }
        self.stop_streams(rig, &named)?;
        if begins {
            self.refresh(rig)
        } else {
            self.update(rig)?
        }
        let now = Flows::earliest(rig);
        for i in &named {
            let stream = &mut self.streams[*i];
            (stream.base, stream.base_handed) = (stream.offered, stream.handed);
            (stream.dropped, stream.finishes) = (0, None);
            stream.windows.start(now);
        }
        let named: HashSet<usize> = flows.iter().copied().collect();
        let places = rig.places();
        for row in self.rows.iter_mut().filter(|row| named.contains(&row.flow)) {
            row.base = if row.current { row.whole } else { Counts::default() };
            row.base_latencies = if row.base.frames_rx > 0 { latencies(rig, row) } else { Latencies::default() };
            row.last_latencies = Latencies::default();
            let before = row.base.frames_tx > 0;
            let base = if before { by_combination(&self.streams, row, &places) } else { Vec::new() };
            row.tagged.start(base);
            (row.started, row.current, row.counts) = (true, true, Counts::default());
            (row.undisturbed, row.disturbance) = (disturbance(row, &self.disturbances), Disturbance::default());
            (row.variation, row.since, row.ended, row.closed) = (None, rig.now(), None, false);
            row.rates = Rates::from((now.as_nanos() / BIN.as_nanos()) as usize);
        }
        self.orders(rig)?;
        self.begun = false;
        if !begins || !rig.is_far() {
            return Ok(begins);
        }
        // What is due soon after the start is known there before.
        let mut at = Duration::ZERO;
        while at < FAR_LEAD {
            at += LEAD;
            self.orders_at(rig, at)?;
        }
        while Flows::elapsed(rig) < BEGUN {
            self.drive(rig, rig.now() + LEAD)?;
            self.begun = true;
            self.orders(rig)?;
        }
        Ok(true)
    }

    fn stop_streams(&mut self, rig: &mut Rig, which: &[usize]) -> Result<(), String> {
        let (now, mut orders) = (Flows::earliest(rig), Orders::default());
        for i in which {
            let stream = &mut self.streams[*i];
            orders.add(stream.number, stream.windows.stop(now));
        }
        orders.give(rig)?;
        self.settle(rig, which)
    }

    /// Stops, pauses or resumes flows.
    ///
    /// # Errors
    /// The errors of the rig.
    pub fn change(&mut self, rig: &mut Rig, action: Action, flows: &[usize]) -> Result<(), String> {
        if self.live.is_none() {
            return Ok(());
        }
        let (now, mut orders) = (Flows::earliest(rig), Orders::default());
        for i in self.of(flows) {
            let stream = &mut self.streams[i];
            let order = match action {
                TransmitAction::Stop => stream.windows.stop(now),
                TransmitAction::Pause => stream.windows.pause(now),
                TransmitAction::Resume => stream.windows.resume(now),
                TransmitAction::Start | TransmitAction::DropBacklog => None,
            };
            orders.add(stream.number, order);
        }
        orders.give(rig)?;
        self.orders(rig)?;
        if matches!(action, TransmitAction::Stop | TransmitAction::Pause) {
            self.settle(rig, &self.of(flows))?;
        }
        // Stopped flows have their final counts when the client hears that they are stopped.
        if !self.are_active() { self.end(rig) } else { Ok(()) }
    }

    /// Begins traffic with all flows whose destination is known. The destinations of the flows `named` must be known.
    fn begin(
        &mut self,
        rig: &mut Rig,
        built: &Built,
        keys: &mut TrialKeys,
        named: &HashSet<usize>,
    ) -> Result<(), String> {
        let wanted = built.flows.iter().flat_map(|flow| &flow.streams).enumerate().filter(|(i, _)| named.contains(i));
        let gateways: Vec<_> =
            wanted.filter_map(|(_, stream)| Some(gateway_of(built, &stream.spec, stream.gateway?))).collect();
        resolve(rig, built, &gateways)?;
        // Rows that do not start keep what they have of earlier traffic.
        for i in (0..self.rows.len()).filter(|i| self.rows[*i].current).collect::<Vec<_>>() {
            let faults = self.faults(&self.rows[i]);
            let row = &mut self.rows[i];
            (row.faults, row.current, row.whole) = (faults, false, Counts::default());
        }
        (self.failure, self.clock_step_ns) = (None, 0);
        self.arrived.fill((0, 0));
        let mut specs: Vec<FlowSpec> = Vec::new();
        let mut groups: HashMap<String, usize> = HashMap::new();
        self.rows.iter_mut().for_each(|row| row.group_at = None);
        self.moved.fill((0, self.driven));
        for (i, stream) in built.flows.iter().flat_map(|flow| &flow.streams).enumerate() {
            let mut spec = stream.spec.clone();
            let state = &mut self.streams[i];
            (state.number, state.dropped, state.finishes) = (None, 0, None);
            (state.offered, state.base, state.handed, state.base_handed) = (0, 0, 0, 0);
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
            let next = groups.len();
            self.rows[self.streams[i].row].group_at = Some(*groups.entry(spec.group.clone()).or_insert(next));
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
            drain_s: PATIENCE.as_secs_f64(),
            events: Vec::new(),
        };
        let (_, key, earlier) = keys.next_trial();
        let timing = Timing { seed: SEED, key, earlier, max_backlog_ns: MAX_BACKLOG_NS, late_ns: LATE_NS };
        rig.keep_last_counts();
        let live = rig.start_traffic(&spec, &timing, Vec::new()).map_err(|e| e.to_string())?;
        rig.transmit(FlowSelect::All, TransmitAction::Stop, Some(Duration::ZERO)).map_err(|e| e.to_string())?;
        (self.live, self.draining, self.outlasts_bins) = (Some(live), false, false);
        if rig.is_far() {
            // Other hosts count from the start of the traffic on.
            self.disturbances.fill(Disturbance::default());
        }
        self.disturb(rig);
        Ok(())
    }

    /// After these streams stopped or paused: drives traffic until the frames that were due before have left, for [`GRACE`] at most.
    /// What has not left then does not leave now.
    fn settle(&mut self, rig: &mut Rig, which: &[usize]) -> Result<(), String> {
        let end = self.driven + GRACE + Flows::lead(rig) * 2;
        while self.live.is_some() {
            self.follow(rig);
            let late: Vec<usize> = which.iter().copied().filter(|i| self.streams[*i].late() > 0).collect();
            if late.is_empty() {
                break;
            }
            if self.driven >= end {
                self.drop_backlog(rig, &late)?;
                break;
            }
            self.drive(rig, rig.now() + LEAD)?;
            self.orders(rig)?;
            rig.ask_counts();
        }
        which.iter().for_each(|i| self.streams[*i].windows.rest());
        Ok(())
    }

    /// Frames of these streams that are due and have not left never leave, except that paused streams send them later.
    fn drop_backlog(&mut self, rig: &mut Rig, which: &[usize]) -> Result<(), String> {
        let numbers: Vec<usize> = which.iter().filter_map(|i| self.streams[*i].number).collect();
        rig.transmit(FlowSelect::Flows(&numbers), TransmitAction::DropBacklog, None).map_err(|e| e.to_string())?;
        // Until other hosts know it, frames leave.
        let end = self.driven + Flows::lead(rig);
        while self.live.is_some() && self.driven < end {
            self.drive(rig, rig.now() + LEAD)?;
            self.orders(rig)?;
        }
        self.update(rig)?;
        for i in which {
            let stream = &mut self.streams[*i];
            let dropped = stream.windows.postpone(stream.late());
            stream.dropped += dropped;
            self.left_out += dropped;
        }
        Ok(())
    }

    /// Looks at what has left.
    fn follow(&mut self, rig: &Rig) {
        let handed = rig.handed_over();
        let mut ports = vec![0; self.moved.len()];
        for stream in &mut self.streams {
            stream.handed = stream.number.and_then(|number| handed.get(number)).copied().unwrap_or(stream.handed);
            ports[stream.from] += stream.handed;
        }
        for (moved, frames) in self.moved.iter_mut().zip(ports) {
            if moved.0 != frames {
                *moved = (frames, self.driven);
            }
        }
    }

    /// Passes the orders that are due to the rig.
    fn orders(&mut self, rig: &mut Rig) -> Result<(), String> {
        self.orders_at(rig, Flows::earliest(rig))
    }

    fn orders_at(&mut self, rig: &Rig, now: Duration) -> Result<(), String> {
        let (mut due, mut orders) = (Vec::new(), Orders::default());
        for stream in &mut self.streams {
            stream.windows.due(now, &mut due);
            orders.add(stream.number, due.drain(..));
        }
        orders.give(rig)
    }

    /// Drives the traffic for at most `time`, and does what is due.
    ///
    /// # Errors
    /// What ended the traffic.
    pub fn turn(&mut self, rig: &mut Rig, time: Duration) -> Result<(), String> {
        let next = self.streams.iter().filter_map(|stream| stream.windows.next()).min();
        let until = match (next, rig.traffic_start()) {
            (Some(next), Some(start)) => (start + next.saturating_sub(Flows::lead(rig))).min(rig.now() + time),
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
            self.finish_streams(rig)?;
        }
        if !self.draining && !self.are_active() {
            self.end_sending(rig);
        }
        Ok(())
    }

    fn drive(&mut self, rig: &mut Rig, until: Instant) -> Result<(), String> {
        let before = rig.now();
        let driven = rig.drive(until, &|| false);
        // If the machine takes the processor away in the meantime, the ports were not driven for longer.
        self.driven += rig.now().min(until).since(before);
        let events = match driven {
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

    /// Stops streams whose frames have all left, or whose port is [`STALLED`].
    fn finish_streams(&mut self, rig: &mut Rig) -> Result<(), String> {
        rig.ask_counts();
        self.follow(rig);
        // Other hosts act later, and tell it later.
        let (slack, mut stalled) = (Flows::lead(rig) * 4, Vec::new());
        for (i, stream) in self.streams.iter_mut().enumerate() {
            if stream.windows.finishing().is_none() {
                continue;
            }
            let since = *stream.finishes.get_or_insert(self.driven);
            let patience = STALLED.saturating_add(stream.windows.interval()) + slack;
            let is_stalled = self.driven > self.moved[stream.from].1.max(since).saturating_add(patience);
            if stream.late() == 0 || is_stalled {
                stalled.extend((stream.late() > 0).then_some(i));
                stream.windows.finish();
                stream.finishes = None;
            }
        }
        if stalled.is_empty() { Ok(()) } else { self.drop_backlog(rig, &stalled) }
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

    /// Updates the counts of running traffic to those of now. Other hosts are asked for theirs; when nothing is sent any more, their
    /// final ones are awaited.
    ///
    /// # Errors
    /// What ended the traffic, or that a host does not answer.
    pub fn update(&mut self, rig: &mut Rig) -> Result<(), String> {
        let asked = rig.now();
        let old = |rig: &Rig| rig.counted_at().is_none_or(|at| at < asked);
        while rig.is_far() && self.live.is_some() && (self.draining || old(rig)) {
            if !self.draining && rig.now().since(asked) > TO_COUNT {
                return Err(format!("the hosts of the ports have not told their counts within {TO_COUNT:?}"));
            }
            rig.ask_counts();
            self.drive(rig, rig.now() + Duration::from_millis(2))?;
            if self.live.is_some() {
                self.orders(rig)?;
            }
        }
        self.refresh(rig);
        Ok(())
    }

    /// Updates the counts of running traffic, as far as they are known here.
    pub fn refresh(&mut self, rig: &mut Rig) {
        if self.live.is_none() {
            return;
        }
        self.disturb(rig);
        self.follow(rig);
        if let Some(snapshot) = rig.counts() {
            self.take(&snapshot);
        }
    }

    /// Takes the counts of the traffic.
    fn take(&mut self, snapshot: &Snapshot) {
        // Lanes of this host do not tell them in this way.
        for (port, drops) in &snapshot.drops {
            let (late, departures) = snapshot.departures.get(port).copied().unwrap_or_default();
            self.disturbances[*port] = Disturbance { drops: *drops, late, departures };
        }
        if !snapshot.drops.is_empty() {
            self.disturb_rows();
        }
        self.arrived.iter_mut().zip(snapshot.arrived.values()).for_each(|(known, arrived)| *known = *arrived);
        for stream in &mut self.streams {
            let counts = stream.number.and_then(|number| snapshot.flows.get(&number));
            stream.offered = counts.map_or(stream.offered, |counts| counts.offered);
        }
        for row in self.rows.iter_mut().filter(|row| row.current) {
            let Some(group) = row.group_at else { continue };
            row.whole = Counts::default();
            for stream in row.streams.iter().map(|i| &self.streams[*i]) {
                row.whole.add_stream(snapshot, stream.number, stream.offered, stream.bytes(stream.offered));
            }
            row.whole.add_group(snapshot, group);
            if !row.receives {
                row.whole.forget_arrivals();
            }
            row.counts = row.whole.since(&row.base);
        }
    }

    /// Updates the disturbances. While other flows send, rows that ended some time ago are closed, and nothing more spoils them.
    fn disturb(&mut self, rig: &mut Rig) {
        let own = self.disturbances.iter_mut().enumerate().filter(|_| !rig.is_far());
        for (port, known) in own.collect::<Vec<_>>() {
            // The next call that drives a failed port reports it.
            known.drops = rig.receive_drops(port).unwrap_or(known.drops);
            if let Some((late, departures)) = rig.late_departures(port) {
                (known.late, known.departures) = (late, departures);
            }
        }
        self.disturb_rows();
        if self.live.is_some() && !self.draining {
            self.close_rows(rig);
        }
    }

    /// Closes rows whose last frames have had time to arrive.
    fn close_rows(&mut self, rig: &Rig) {
        // Counts of other hosts are a little older.
        let (now, patience) = (rig.now(), PATIENCE + Flows::lead(rig) * 2);
        for i in 0..self.rows.len() {
            let row = &self.rows[i];
            if !row.current || row.closed {
                continue;
            }
            let sends = self.state(row) != "stopped";
            let row = &mut self.rows[i];
            let ended = row.ended.unwrap_or(now);
            row.ended = (!sends).then_some(ended);
            row.closed = !sends && now >= ended + patience;
            if row.closed {
                row.faults = Faults { clock_step_ns: rig.clock_step_ns().unwrap_or(0), ..Faults::default() };
            }
        }
    }

    fn disturb_rows(&mut self) {
        for row in self.rows.iter_mut().filter(|row| row.current && !row.closed) {
            let now = disturbance(row, &self.disturbances);
            row.disturbance = Disturbance {
                drops: now.drops.saturating_sub(row.undisturbed.drops),
                late: now.late.saturating_sub(row.undisturbed.late),
                departures: now.departures.saturating_sub(row.undisturbed.departures),
            };
        }
    }

    /// Once a row no longer sends: its frames that were due and have not left.
    fn unsent(&self, row: &Row) -> u64 {
        let stopped = row.streams.iter().map(|i| &self.streams[*i]).filter(|stream| !stream.windows.is_active());
        stopped.map(|stream| (stream.base + stream.windows.planned()).saturating_sub(stream.offered)).sum()
    }

    /// What spoilt the traffic in which a row last sent.
    pub fn faults(&self, row: &Row) -> Faults {
        if !row.current {
            return row.faults.clone();
        }
        let unsent = self.unsent(row);
        if row.closed {
            return Faults { unsent, ..row.faults.clone() };
        }
        Faults { unsent, failure: self.failure.clone(), clock_step_ns: self.clock_step_ns }
    }

    /// Latencies of a row since it started. They are many numbers, so ask only for what somebody wants to know.
    pub fn latencies(&self, rig: &Rig, row: &Row) -> Latencies {
        latencies(rig, row).since(&row.base_latencies)
    }

    /// Counts of a row since it started, by combination of its tagged values. `places` are the counts of the running traffic.
    pub fn by_combination(&self, rig: &Rig, row: &Row, places: &Places) -> Vec<Counts> {
        let runs = row.current && rig.has_traffic();
        row.tagged.since_start(runs.then(|| by_combination(&self.streams, row, places)))
    }

    /// The same for `places` of an earlier time of the running traffic, counted from its beginning.
    pub fn by_combination_before(&self, row: &Row, places: &Places) -> Vec<Counts> {
        by_combination(&self.streams, row, places)
    }

    /// Judges the rates of running traffic, as far as frames have had time to arrive.
    pub fn judge_rates(&mut self, rig: &Rig) {
        let Some((start, threshold)) = rig.traffic_start().zip(self.threshold) else { return };
        let elapsed = Flows::elapsed(rig);
        let sends =
            self.streams.iter().any(|stream| stream.windows.is_active() && stream.windows.finishing().is_none());
        self.outlasts_bins |= sends && elapsed > BIN * CONTINUOUS_BINS as u32;
        let ready = (elapsed.saturating_sub(PATIENCE).as_nanos() / BIN.as_nanos()) as usize;
        let ready = ready.min(CONTINUOUS_BINS);
        for row in self.rows.iter_mut().filter(|row| row.current && row.receives && row.rates.next < ready) {
            let Some(group) = row.group_at else { continue };
            row.rates.judge(&rig.bins(group, row.rates.next..ready), start, threshold);
        }
    }

    /// Takes the final counts of the traffic.
    fn conclude(&mut self, rig: &mut Rig, result: &TrialResult) {
        self.live = None;
        (self.tester_drops, self.clock_step_ns) = (result.health.receive_drops, result.health.clock_step_ns);
        if rig.is_far() {
            // Nobody knows when the clock of another host was set.
            let closed = self.rows.iter_mut().filter(|row| row.current && row.closed);
            closed.for_each(|row| row.faults.clock_step_ns = self.clock_step_ns);
        }
        self.disturb(rig);
        if let Some(mut snapshot) = rig.take_last_counts() {
            self.take(&snapshot);
            for row in self.rows.iter_mut().filter(|row| row.current) {
                let last = by_combination(&self.streams, row, &snapshot.places);
                row.tagged.end(last);
            }
            for row in self.rows.iter_mut().filter(|row| row.current && row.measures) {
                let group = row.group_at.and_then(|group| snapshot.groups.get_mut(group));
                row.last_latencies = Latencies(group.map_or(Vec::new(), |group| std::mem::take(&mut group.latencies)));
            }
        }
        let start = rig.started();
        let groups: HashMap<&str, &GroupCounts> =
            result.groups.iter().map(|group| (group.group.as_str(), group)).collect();
        for row in self.rows.iter_mut().filter(|row| row.current) {
            let Some(group) = groups.get(row.group.as_str()) else { continue };
            row.variation = group.ipdv.filter(|_| row.base == Counts::default());
            if let (Some((start, threshold)), Some(rest)) =
                (start.zip(self.threshold).filter(|_| row.receives), group.bins.get(row.rates.next..))
            {
                row.rates.judge(rest, start, threshold);
            }
        }
    }
}

/// Counts of a row by combination of its tagged values.
fn by_combination(streams: &[Stream], row: &Row, places: &Places) -> Vec<Counts> {
    let own = row.streams.iter().map(|i| &streams[*i]);
    let mut counts = row.tagged.whole(places, own.map(|stream| (stream.number, stream.sizes.as_slice(), stream.turn)));
    if !row.receives {
        counts.iter_mut().for_each(Counts::forget_arrivals);
    }
    counts
}

/// Latencies of the running traffic at a row, or of the last one.
fn latencies(rig: &Rig, row: &Row) -> Latencies {
    match row.group_at.filter(|_| row.current && row.measures && rig.has_traffic()) {
        Some(group) => Latencies(rig.latencies(group)),
        None => row.last_latencies.clone(),
    }
}

/// Disturbances at the ports of a row.
fn disturbance(row: &Row, ports: &[Disturbance]) -> Disturbance {
    let drops = row.receivers.iter().map(|port| ports[*port].drops).sum();
    Disturbance { drops, ..ports[row.from] }
}

#[cfg(test)]
mod tests;
