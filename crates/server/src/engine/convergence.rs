//! Convergence: what changed in the control plane, and how long the rates of flows took to return.

use super::bench::Bench;
use super::rates::{self, BIN, Rates, Times};
use super::row::Row;
use crate::api::Failure;
use drophammer_model::Instant;
use drophammer_rig::{CONTINUOUS_BINS, Rig, SessionIndex, Until};
use serde_json::{Value, json};
use std::collections::VecDeque;

/// Maximum number of changes that are kept; the oldest are dropped first.
const MOST: usize = 1_000;

/// A change that can make rates fall.
#[derive(Clone, Debug)]
struct Cause {
    kind: &'static str,
    source: String,
    begin: Instant,
    /// Session that sends it.
    session: Option<SessionIndex>,
    /// When it was complete.
    end: Option<Instant>,
}

/// Changes that a client made.
#[derive(Clone, Debug, Default)]
pub struct Causes {
    enabled: bool,
    list: VecDeque<Cause>,
}

impl Causes {
    /// No changes yet. Changes are only kept if `enabled`.
    pub fn new(enabled: bool) -> Causes {
        Causes { enabled, list: VecDeque::new() }
    }

    /// Begins a change. It ends once `session` has acknowledged it, or at the next turn if there is no session.
    pub fn begin(&mut self, kind: &'static str, source: &str, begin: Instant, session: Option<SessionIndex>) {
        if !self.enabled {
            return;
        }
        if self.list.len() == MOST {
            self.list.pop_front();
        }
        self.list.push_back(Cause { kind, source: source.to_owned(), begin, session, end: None });
    }

    /// Ends the changes that are complete: the DUT has acknowledged the UPDATEs.
    pub fn turn(&mut self, rig: &Rig) {
        for cause in self.list.iter_mut().filter(|cause| cause.end.is_none()) {
            if cause.session.is_none_or(|session| rig.holds(&Until::Acknowledged(vec![session]))) {
                cause.end = Some(rig.now());
            }
        }
    }

    fn since(&self, start: Instant) -> impl Iterator<Item = &Cause> {
        self.list.iter().filter(move |cause| cause.begin >= start)
    }
}

impl Bench {
    /// Rows of the metric `convergence`: one per selected flow.
    ///
    /// # Errors
    /// The configuration does not ask for rates, or they are not known.
    pub fn convergence(&mut self, has: impl Fn(&str) -> bool) -> Result<Vec<Value>, Failure> {
        if self.config.events.rate_threshold.is_none() {
            let text = "convergence: the configuration must enable `events.dp_events`";
            return Err(Failure::validation(vec![text.into()]));
        }
        self.flows.judge_rates(&self.rig);
        let named = |flow: usize| self.flows.rows.iter().filter(move |row| row.flow == flow);
        let metric = |(i, flow): (usize, &crate::build::PlannedFlow)| {
            let rows: Vec<&Row> = named(i).collect();
            if self.flows.outlasts_bins {
                let text = format!(
                    "convergence of `{}` is not known: traffic has lasted longer than {} s; stop all flows and start them again",
                    flow.name,
                    (BIN * CONTINUOUS_BINS as u32).as_secs()
                );
                return Err(Failure::internal(text));
            }
            if rows.iter().any(|row| row.rates.overflowed) {
                let text = format!(
                    "convergence of `{}` is not known: its rate has crossed the threshold more than {} times; lower the threshold, or start the flow again",
                    flow.name,
                    rates::MOST
                );
                return Err(Failure::internal(text));
            }
            Ok(self.convergence_of(&flow.name, &rows))
        };
        let flows = self.built.flows.iter().enumerate();
        flows.filter(|(_, flow)| flow.metrics.enable && has(&flow.name)).map(metric).collect()
    }

    fn convergence_of(&self, name: &str, rows: &[&Row]) -> Value {
        let start = rows.iter().map(|row| row.since).min().unwrap_or(Instant(0));
        let wall = |at: Instant| json!(self.origin_ns.saturating_add(at.0));
        let falls = rows.iter().flat_map(|row| row.rates.crossings()).filter(|crossing| !crossing.rose);
        let last_fall = falls.map(|fall| fall.at).max().unwrap_or(Instant(0));
        // A change after the last fall did not cause it.
        let causes = self.causes.since(start).filter(|cause| cause.begin <= last_fall + BIN);
        let cause = causes.last().map(|cause| cause.begin);
        let times = Times::of(rows.iter().filter_map(|row| row.rates.gap(cause)), cause);
        let causes = self.causes.since(start).map(|cause| {
            let mut event =
                json!({"type": cause.kind, "source": cause.source, "begin_timestamp_ns": wall(cause.begin)});
            if let Some(end) = cause.end {
                event["end_timestamp_ns"] = wall(end);
            }
            (cause.begin, event)
        });
        let crossings = rows.iter().flat_map(|row| Rates::crossings(&row.rates)).map(|crossing| {
            let kind = if crossing.rose { "flow_rx_rate_above_threshold" } else { "flow_rx_rate_below_threshold" };
            let (begin, end) = (wall(crossing.at), wall(crossing.at + BIN));
            (crossing.at, json!({"type": kind, "source": name, "begin_timestamp_ns": begin, "end_timestamp_ns": end}))
        });
        let mut events: Vec<(Instant, Value)> = causes.chain(crossings).collect();
        events.sort_by_key(|(at, _)| *at);
        let events: Vec<Value> = events.into_iter().map(|(_, event)| event).collect();
        let micros = |time: std::time::Duration| json!(time.as_nanos() as f64 / 1e3);
        json!({
            "name": name, "data_plane_convergence_us": micros(times.data_plane),
            "control_plane_data_plane_convergence_us": micros(times.from_cause), "events": events,
        })
    }
}
