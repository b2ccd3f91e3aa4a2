//! Metrics and states. Without a list of columns, every scalar is present, because clients read them without looking.

use super::bench::{Bench, Sums};
use super::counts::{Counts, Disturbance, Latencies};
use super::prefixes;
use super::row::{Faults, Row};
use super::tagged::Wanted;
use crate::api::Failure;
use crate::model::read::{Errors, Object};
use drophammer_emulation::bgp;
use drophammer_model::Instant;
use drophammer_model::routes::AfiSafi;
use drophammer_model::trial::Family;
use serde_json::{Map, Value, json};
use std::collections::{BTreeSet, HashSet};

/// Preamble and gap of a frame in bytes; the rate of layer 1 includes them.
const GAP: f64 = 20.0;

/// Key of the values that the API does not define.
const EXTENSION: &str = "x-drophammer";
/// Key that asks for the histogram of latencies among these values.
const HISTOGRAM: &str = "x-drophammer-histogram";
/// Maximum number of steps of all histograms in an answer, and of one of them.
const MOST_STEPS: usize = 64_000;
const MOST_STEPS_EACH: usize = 1_000;
/// Share of late frames above which counts are not valid.
const MOST_LATE: f64 = 0.1;
/// A larger step of the wall clock, in ns, spoils counts and latencies, because arrivals carry its time.
const CLOCK_STEP_NS: u64 = 50_000;

/// Names that a request selects; empty for all.
pub(super) struct Selection {
    names: BTreeSet<String>,
    columns: Vec<String>,
}

impl Selection {
    fn read(o: &mut Object<'_>, names: &str, columns: &str) -> Selection {
        Selection { names: o.texts(names).into_iter().collect(), columns: o.texts(columns) }
    }

    pub fn has(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.contains(name)
    }

    /// `row` with its selected columns. The names of a row are always present.
    fn cut(&self, row: Value) -> Value {
        const KEYS: [&str; 5] = ["name", "port_tx", "port_rx", "tagged_metrics", EXTENSION];
        let Value::Object(mut row) = row else { return row };
        if !self.columns.is_empty() {
            row.retain(|key, _| KEYS.contains(&key.as_str()) || self.columns.contains(key));
        }
        Value::Object(row)
    }

    /// Adds an error for each name that does not exist.
    fn check<'a>(&self, o: &Object<'_>, key: &str, known: impl Iterator<Item = &'a str>) {
        if self.names.is_empty() {
            return;
        }
        let known: HashSet<&str> = known.collect();
        for name in self.names.iter().filter(|name| !known.contains(name.as_str())) {
            o.wrong(key, format_args!("there is no `{name}`"));
        }
    }
}

/// Which values that the API does not define are in flow metrics.
#[derive(Clone, Copy, PartialEq)]
enum Extension {
    None,
    Plain,
    WithHistogram,
}

/// A request for metrics.
pub(super) struct AskedMetrics {
    kind: &'static str,
    extension: Extension,
    selection: Selection,
    tagged: Option<Wanted>,
}

/// A request for states.
pub(super) struct AskedStates {
    kind: &'static str,
    selection: Selection,
    /// For BGP.
    prefixes: Option<prefixes::Wanted>,
}

/// Rates of one direction: frames, bytes and bits per second.
fn rates(out: &mut Map<String, Value>, way: &str, frames: f64, bytes: f64) {
    let bits = bytes * 8.0;
    for (key, value) in [
        (format!("frames_{way}_rate"), frames),
        (format!("{way}_l1_rate_bps"), bits + frames * GAP * 8.0),
        (format!("{way}_rate_bytes"), bytes),
        (format!("{way}_rate_bps"), bits),
        (format!("{way}_rate_kbps"), bits / 1e3),
        (format!("{way}_rate_mbps"), bits / 1e6),
    ] {
        out.insert(key, json!(value));
    }
}

/// Smallest, mean and largest latency, of which the line took a part.
pub(super) fn latency(figures: [f64; 3], line_ns: f64) -> Value {
    let [min, mean, max] = figures.map(|ns| (ns - line_ns).max(0.0));
    json!({"minimum_ns": min, "average_ns": mean, "maximum_ns": max})
}

/// Name of a session's state.
fn fsm(state: bgp::State) -> &'static str {
    match state {
        bgp::State::Idle => "idle",
        bgp::State::Connect => "connect",
        bgp::State::Active => "active",
        bgp::State::OpenSent => "opensent",
        bgp::State::OpenConfirm => "openconfirm",
        bgp::State::Established => "established",
    }
}

impl Bench {
    /// Answers a request for metrics.
    ///
    /// # Errors
    /// Unknown names, and metrics that are not supported.
    pub fn metrics(&mut self, body: Value) -> Result<Value, Failure> {
        let errors = Errors::default();
        let asked = self.read_metrics(Object::document(body, &errors));
        let AskedMetrics { kind, extension, selection, tagged } = errors.or(asked).map_err(Failure::validation)?;
        self.flows.update(&mut self.rig).map_err(Failure::internal)?;
        let rows: Vec<Value> = match kind {
            "port" => self.port_metrics(&selection)?,
            "flow" => self.flow_metrics(&selection, tagged.as_ref(), extension),
            "convergence" => self.convergence(|name| selection.has(name))?,
            "ospfv2" => self.ospf_metrics(&selection),
            "rsvp" => self.rsvp_metrics(&selection),
            _ => self.bgp_metrics(&selection, kind == "bgpv6"),
        };
        let rows: Vec<Value> = rows.into_iter().map(|row| selection.cut(row)).collect();
        let key = format!("{kind}_metrics");
        Ok(json!({"choice": key.clone(), key: rows}))
    }

    /// Reads a request for metrics.
    pub(super) fn read_metrics(&self, mut o: Object<'_>) -> AskedMetrics {
        let kind = o.choice(&["port", "flow", "bgpv4", "bgpv6", "ospfv2", "rsvp", "convergence"], "port");
        // gosnappi refuses an answer with a field that it does not know.
        let extension = match (o.flag(EXTENSION, false), o.flag(HISTOGRAM, false)) {
            (_, true) => Extension::WithHistogram,
            (true, false) => Extension::Plain,
            (false, false) => Extension::None,
        };
        let mut request = o.object_or_empty(kind);
        let (names, columns) = match kind {
            "port" => ("port_names", "column_names"),
            "flow" => ("flow_names", "metric_names"),
            "convergence" => ("flow_names", ""),
            "ospfv2" | "rsvp" => ("router_names", "column_names"),
            _ => ("peer_names", "column_names"),
        };
        let selection = Selection::read(&mut request, names, columns);
        match kind {
            "port" => selection.check(&request, names, self.config.ports.iter().map(|port| port.name.as_str())),
            "flow" | "convergence" => {
                selection.check(&request, names, self.built.flows.iter().map(|flow| flow.name.as_str()))
            }
            "ospfv2" | "rsvp" => selection.check(&request, names, self.router_names(kind == "ospfv2")),
            _ => selection.check(&request, names, self.built.sessions.iter().map(|session| session.name.as_str())),
        }
        let tagged = (kind == "flow").then(|| Wanted::read(&mut request, &self.tag_names()));
        AskedMetrics { kind, extension, selection, tagged }
    }

    fn port_metrics(&mut self, selection: &Selection) -> Result<Vec<Value>, Failure> {
        let (_, rates) = self.rates();
        let mut out = Vec::new();
        for (i, [tx, rx, tx_bytes, rx_bytes]) in rates.into_iter().enumerate() {
            let (up, changed) = self.carrier(i).map_err(Failure::internal)?;
            let port = &self.config.ports[i];
            if !selection.has(&port.name) {
                continue;
            }
            let [frames_tx, frames_rx, bytes_tx, bytes_rx]: Sums = self.port_sums(i);
            let speed = self.links[i].speed.or(self.links[i].reported);
            out.push(json!({
                "name": port.name, "location": port.location, "link": if up { "up" } else { "down" },
                "capture": if self.captures.is_running(i) { "started" } else { "stopped" },
                "frames_tx": frames_tx, "frames_rx": frames_rx, "bytes_tx": bytes_tx, "bytes_rx": bytes_rx,
                "frames_tx_rate": tx, "frames_rx_rate": rx, "bytes_tx_rate": tx_bytes, "bytes_rx_rate": rx_bytes,
                "transmit": if self.flows.port_sends(i) { "started" } else { "stopped" },
                "last_change": self.origin_ns.saturating_add(changed.0),
                // The unit of the model is 1,000 bytes per second.
                "speed": speed.map_or(0, |speed| speed.0 / 8_000),
            }));
        }
        Ok(out)
    }

    fn flow_metrics(&mut self, selection: &Selection, tagged: Option<&Wanted>, extension: Extension) -> Vec<Value> {
        let (rates_of, _) = self.rates();
        let steps = (MOST_STEPS / self.flows.rows.len().max(1)).clamp(1, MOST_STEPS_EACH);
        let steps = (extension == Extension::WithHistogram).then_some(steps);
        let places = self.rig.places();
        let mut out = Vec::new();
        for (row, rates) in self.flows.rows.iter().zip(rates_of) {
            let flow = &self.built.flows[row.flow];
            if !flow.metrics.enable || !selection.has(&flow.name) {
                continue;
            }
            let mut metric = self.measured(row, &row.counts, rates);
            let mut put = |key: &str, value: Value| _ = metric.insert(key.to_owned(), value);
            put("name", json!(flow.name));
            put("port_tx", json!(self.config.ports[row.from].name));
            put("port_rx", json!(if row.receives { self.config.ports[row.to].name.as_str() } else { "" }));
            put("transmit", json!(self.flows.state(row)));
            if flow.metrics.latency {
                let figures = row.counts.latency_ns(|| self.flows.latencies(&self.rig, row));
                put("latency", latency(figures.unwrap_or_default(), row.line_ns));
            }
            if let Some(tagged) = tagged.and_then(|tagged| self.tagged_metrics(row, &places, tagged)) {
                put("tagged_metrics", tagged);
            }
            if extension != Extension::None {
                put(EXTENSION, self.extension(row, flow.metrics.latency, steps));
            }
            out.push(Value::Object(metric));
        }
        out
    }

    /// What flow metrics and tagged metrics have in common, except latency: `counts` of a row, and its rates.
    pub(super) fn measured(&self, row: &Row, counts: &Counts, rates_now: [f64; 4]) -> Map<String, Value> {
        let metrics = &self.built.flows[row.flow].metrics;
        let mut metric = Map::new();
        let mut put = |key: &str, value: Value| _ = metric.insert(key.to_owned(), value);
        put("frames_tx", json!(counts.frames_tx));
        put("frames_rx", json!(counts.frames_rx));
        put("bytes_tx", json!(counts.bytes_tx));
        put("bytes_rx", json!(counts.bytes_rx));
        // Clients read it even if the flow does not ask for it.
        let lost = if row.receives { counts.frames_tx.saturating_sub(counts.frames_rx) } else { 0 };
        put("loss", json!(lost as f64 * 100.0 / counts.frames_tx.max(1) as f64));
        if metrics.timestamps {
            let wall = |at: Option<Instant>| at.map(|at| self.origin_ns.saturating_add(at.0));
            let mut times = Map::new();
            for (key, at) in [("first_timestamp_ns", counts.first), ("last_timestamp_ns", counts.last)] {
                if let Some(at) = wall(at).or((counts.frames_rx == 0).then_some(0)) {
                    times.insert(key.to_owned(), json!(at));
                }
            }
            put("timestamps", Value::Object(times));
        }
        let sends = if self.flows.state(row) == "started" { 1.0 } else { 0.0 };
        let [tx, rx, tx_bytes, rx_bytes] = rates_now;
        rates(&mut metric, "tx", tx * sends, tx_bytes * sends);
        rates(&mut metric, "rx", rx, rx_bytes);
        metric
    }

    /// What this tester knows about a row, but the API has no field for. With the histogram of latencies, if it may have so many
    /// steps.
    fn extension(&self, row: &Row, latency: bool, steps: Option<usize>) -> Value {
        let counts = &row.counts;
        // Ports are read one after the other, so the order of frames at different ports is not known.
        let one_port = row.receivers.len() <= 1;
        let known = |frames: u64| if one_port && counts.order_unknown == 0 { json!(frames) } else { Value::Null };
        let reasons = self.doubts(row);
        let mut out = json!({
            "valid": reasons.is_empty(), "reasons": reasons, "frames_out_of_order": known(counts.reordered),
            "frames_duplicated": counts.duplicates, "frames_stray": counts.stray, "frames_corrupted": counts.corrupted,
        });
        let latencies = if latency { self.flows.latencies(&self.rig, row) } else { Latencies::default() };
        if let Some([_, _, max]) = counts.latency_ns(|| latencies.clone()).filter(|_| latency) {
            let cut = |ns: f64| json!((ns - row.line_ns).max(0.0));
            let mut figures = json!({"maximum_ns": cut(max)});
            for (key, percent) in [("p50_ns", 50.0), ("p90_ns", 90.0), ("p99_ns", 99.0), ("p99_9_ns", 99.9)] {
                figures[key] = latencies.percentile_ns(percent).map_or(Value::Null, |ns| cut(ns as f64));
            }
            if let Some(most) = steps {
                let step = |(ns, frames): (u64, u64)| json!({"up_to_ns": cut(ns as f64), "frames": frames});
                figures["histogram"] = latencies.steps(most).into_iter().map(step).collect();
            }
            out["latency"] = figures;
        }
        if let Some(variation) = row.variation {
            out["delay_variation"] = json!({
                "pairs": variation.pairs, "minimum_ns": variation.min_ns, "median_ns": variation.median_ns,
                "maximum_ns": variation.max_ns,
            });
        }
        out
    }

    /// Why the counts of a row do not show what the DUT did.
    fn doubts(&self, row: &Row) -> Vec<String> {
        let Disturbance { drops, late, departures } = row.disturbance;
        let Faults { unsent, failure, clock_step_ns } = self.flows.faults(row);
        let mut reasons = Vec::new();
        if !row.started {
            reasons.push("the flow has not been started".to_owned());
        }
        if drops > 0 {
            reasons.push(format!("the tester lost {drops} received frames at the receiving port; they count as lost"));
        }
        if late as f64 > departures as f64 * MOST_LATE {
            reasons.push(format!(
                "the tester sent {:.0} % of the frames of the port more than 1 ms late, so they came in bunches",
                late as f64 * 100.0 / departures as f64
            ));
        }
        if unsent > 0 {
            reasons.push(format!("{unsent} frames that were due did not leave"));
        }
        if clock_step_ns.unsigned_abs() > CLOCK_STEP_NS {
            reasons.push(format!("the wall clock was set by {} µs", clock_step_ns / 1_000));
        }
        reasons.extend(failure.map(|why| format!("the traffic ended before its time: {why}")));
        reasons
    }

    fn bgp_metrics(&self, selection: &Selection, v6: bool) -> Vec<Value> {
        let mut out = Vec::new();
        for (i, name) in self.built.sessions.iter().enumerate() {
            if name.v6 != v6 || !selection.has(&name.name) {
                continue;
            }
            let Some((routers, router)) = self.rig.session(i) else { continue };
            let (session, adj_rib_in) = (routers.session(router), routers.adj_rib_in(router));
            let (sent, received, told, heard) =
                (session.sent(), session.received(), routers.advertised(router), adj_rib_in.totals());
            let family = if v6 { AfiSafi::IPV6_UNICAST } else { AfiSafi::IPV4_UNICAST };
            out.push(json!({
                "name": name.name, "session_state": if routers.established(router) { "up" } else { "down" },
                "session_flap_count": routers.losses(router).0, "fsm_state": fsm(session.state()),
                "routes_advertised": told.advertised, "route_withdraws_sent": told.withdrawn,
                "routes_received": heard.announcements, "route_withdraws_received": heard.withdrawals,
                "updates_sent": told.messages, "updates_received": received.updates,
                "opens_sent": sent.opens, "opens_received": received.opens,
                "keepalives_sent": sent.keepalives, "keepalives_received": received.keepalives,
                "notifications_sent": sent.notifications, "notifications_received": received.notifications,
                "end_of_rib_received": u64::from(adj_rib_in.end_of_rib(family).is_some()),
            }));
        }
        out
    }

    /// Answers a request for states.
    ///
    /// # Errors
    /// Unknown names, and states that are not supported.
    pub fn states(&self, body: Value) -> Result<Value, Failure> {
        let errors = Errors::default();
        let asked = self.read_states(Object::document(body, &errors));
        let AskedStates { kind, selection, prefixes } = errors.or(asked).map_err(Failure::validation)?;
        let rows = match (kind, prefixes) {
            (_, Some(wanted)) => self.bgp_prefixes(|name| selection.has(name), &wanted)?,
            ("ospfv2_lsas", _) => self.ospf_lsas(&selection),
            ("rsvp_lsps", _) => self.rsvp_lsps(&selection),
            _ => self.neighbours(kind, &selection),
        };
        Ok(json!({"choice": kind, kind: rows}))
    }

    /// Reads a request for states.
    pub(super) fn read_states(&self, mut o: Object<'_>) -> AskedStates {
        let kind = o.choice(
            &["ipv4_neighbors", "ipv6_neighbors", "bgp_prefixes", "ospfv2_lsas", "rsvp_lsps"],
            "ipv4_neighbors",
        );
        let mut request = o.object_or_empty(kind);
        let key = match kind {
            "bgp_prefixes" => "bgp_peer_names",
            "ospfv2_lsas" => "router_names",
            "rsvp_lsps" => "rsvp_router_names",
            _ => "ethernet_names",
        };
        let selection = Selection::read(&mut request, key, "");
        match kind {
            "bgp_prefixes" => {
                selection.check(&request, key, self.built.sessions.iter().map(|session| session.name.as_str()));
            }
            "ospfv2_lsas" | "rsvp_lsps" => selection.check(&request, key, self.router_names(kind == "ospfv2_lsas")),
            _ => {
                let names = self.built.neighbours.iter().map(|neighbour| neighbour.ethernet.as_str());
                selection.check(&request, key, names);
            }
        }
        let prefixes = (kind == "bgp_prefixes").then(|| prefixes::Wanted::read(&mut request));
        AskedStates { kind, selection, prefixes }
    }

    fn neighbours(&self, kind: &str, selection: &Selection) -> Vec<Value> {
        let family = if kind == "ipv4_neighbors" { Family::Ipv4 } else { Family::Ipv6 };
        let mut rows = Vec::new();
        for neighbour in &self.built.neighbours {
            if neighbour.gateway.is_ipv4() != (family == Family::Ipv4) || !selection.has(&neighbour.ethernet) {
                continue;
            }
            let device = self.rig.hosts().device(neighbour.port, neighbour.device);
            let address = if family == Family::Ipv4 { "ipv4_address" } else { "ipv6_address" };
            let mut row = json!({"ethernet_name": neighbour.ethernet, address: neighbour.gateway.to_string()});
            if let Some(mac) = device.and_then(|device| device.gateway_mac(family)) {
                row["link_layer_address"] = json!(mac.to_string());
            }
            rows.push(row);
        }
        rows
    }
}
