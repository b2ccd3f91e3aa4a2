//! A line per second, and the summary.

use super::job::Job;
use super::reasons;
use crate::output::{cells, milliseconds, say};
use drophammer_model::beside::OtherTraffic;
use drophammer_model::quantity::{Instant, group_digits};
use drophammer_model::trial::{GroupCounts, TrialResult};
use drophammer_rig::{FlowCounts, Snapshot};
use serde_json::json;
use std::collections::BTreeMap;
use std::io;

/// The state when the last line was printed.
#[derive(Default)]
struct Last {
    at: Option<Instant>,
    /// Frames offered, by flow.
    offered: BTreeMap<usize, u64>,
    received: u64,
    latencies: BTreeMap<u64, u64>,
}

impl Last {
    /// Frames lost so far. A frame is lost if later frames of its flow have arrived before it, or if it was sent before
    /// the last line and has not arrived yet. Counts each flow separately, because arrivals in one flow would hide the
    /// loss in another.
    fn lost(&self, now: &Snapshot) -> u64 {
        let of_flow = |(flow, counts): (&usize, &FlowCounts)| {
            let sent = self.offered.get(flow).copied().unwrap_or(0);
            counts.received.missing.max(sent.saturating_sub(counts.received.frames))
        };
        now.flows.iter().map(of_flow).sum()
    }
}

/// Shows traffic while it runs.
pub struct Display<'a> {
    job: &'a Job,
    json: bool,
    begun: bool,
    start: Instant,
    last: Last,
}

/// A line: rates, counts, and latencies in ns.
#[derive(Debug, PartialEq)]
struct Row {
    offered_fps: f64,
    received_fps: f64,
    lost: u64,
    /// `None` if frames arrived in several queues, because the order of frames in different queues is unknown.
    reordered: Option<u64>,
    /// Median, 99th percentile, largest; `None` if no frames arrived.
    latency_ns: Option<[u64; 3]>,
}

const WIDTH: usize = 14;

impl Row {
    fn text(&self, label: &str, widest: usize) -> String {
        let rate = |fps: f64| group_digits(fps.round() as u64);
        let mut row = vec![
            rate(self.offered_fps),
            rate(self.received_fps),
            group_digits(self.lost),
            self.reordered.map_or("-".to_owned(), group_digits),
        ];
        match self.latency_ns {
            Some(ns) => row.extend(ns.map(|ns| format!("{:.1}", ns as f64 / 1e3))),
            None => row.extend(["-"; 3].map(str::to_owned)),
        }
        format!("{label:<widest$}{}", cells(&row, WIDTH))
    }

    fn json(&self) -> serde_json::Value {
        let [p50, p99, max] = self.latency_ns.map_or([None; 3], |ns| ns.map(Some));
        json!({
            "offered_fps": self.offered_fps, "received_fps": self.received_fps, "lost": self.lost, "reordered": self.reordered,
            "latency_p50_ns": p50, "latency_p99_ns": p99, "latency_max_ns": max,
        })
    }
}

/// The smallest value that `percentile` per cent of the frames do not exceed.
fn percentile(steps: &BTreeMap<u64, u64>, percentile: f64) -> Option<u64> {
    let all: u64 = steps.values().sum();
    let rank = (all as f64 * percentile / 100.0).ceil().max(1.0) as u64;
    let mut seen = 0;
    steps.iter().find_map(|(ns, frames)| {
        seen += frames;
        (seen >= rank).then_some(*ns)
    })
}

impl<'a> Display<'a> {
    pub fn new(job: &'a Job, json: bool, start: Instant) -> Display<'a> {
        Display { job, json, begun: false, start, last: Last::default() }
    }

    /// Width of the first column.
    fn widest(&self) -> usize {
        self.job.ends().iter().map(|name| name.len()).sum::<usize>().max(6) + 4
    }

    fn begin(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.begun, true) || self.json {
            return Ok(());
        }
        let columns =
            ["offered fps", "received fps", "lost", "reordered", "p50 µs", "p99 µs", "max µs"].map(str::to_owned);
        let (headline, widest) = (self.job.headline(), self.widest());
        say(format!("{headline}\n{:<widest$}{}", "time", cells(&columns, WIDTH)))
    }

    /// The row for the time since the previous snapshot.
    fn row(&mut self, now: &Snapshot) -> Row {
        let seconds = now.at.since(self.last.at.unwrap_or(self.start)).as_secs_f64().max(1e-9);
        let (offered, received) = (now.sum(|f| f.offered), now.sum(|f| f.received.frames));
        let offered_before: u64 = self.last.offered.values().sum();
        let mut latencies: BTreeMap<u64, u64> = BTreeMap::new();
        for (ns, frames) in now.groups.iter().flat_map(|group| &group.latencies) {
            *latencies.entry(*ns).or_default() += frames;
        }
        let before = |ns: &u64| self.last.latencies.get(ns).copied().unwrap_or(0);
        let news: BTreeMap<u64, u64> =
            latencies.iter().map(|(ns, n)| (*ns, n - before(ns))).filter(|(_, n)| *n > 0).collect();
        let latency = [50.0, 99.0, 100.0].map(|p| percentile(&news, p));
        let row = Row {
            offered_fps: (offered - offered_before) as f64 / seconds,
            received_fps: (received - self.last.received) as f64 / seconds,
            lost: self.last.lost(now),
            reordered: (now.sum(|f| f.received.order_unknown) == 0).then(|| now.sum(|f| f.received.reordered)),
            latency_ns: match latency {
                [Some(p50), Some(p99), Some(max)] => Some([p50, p99, max]),
                _ => None,
            },
        };
        let by_flow = now.flows.iter().map(|(flow, counts)| (*flow, counts.offered)).collect();
        self.last = Last { at: Some(now.at), offered: by_flow, received, latencies };
        row
    }

    /// Prints a line for the time since the previous line.
    pub fn line(&mut self, now: &Snapshot) -> io::Result<()> {
        self.begin()?;
        let row = self.row(now);
        let time = now.at.since(self.start);
        if self.json {
            let mut value = row.json();
            value["time_s"] = json!(milliseconds(time));
            return say(value);
        }
        say(row.text(&format!("{:.0} s", time.as_secs_f64()), self.widest()))
    }

    /// Shows the totals. `sent` and `others` are frames other than test frames (ARP, Neighbor Discovery): how many left
    /// each interface, and which of them arrived.
    pub fn summary(&mut self, result: &TrialResult, sent: &[u64], others: &OtherTraffic) -> io::Result<()> {
        self.begin()?;
        let seconds = [result.sending_s, result.sending_s.max(result.receiving_s)].map(|s| s.max(1e-9));
        let whole = |g: &GroupCounts| Row {
            offered_fps: g.offered as f64 / seconds[0],
            received_fps: g.received as f64 / seconds[1],
            lost: g.lost,
            reordered: g.known_reordered(),
            latency_ns: (g.latency.frames > 0)
                .then(|| [50.0, 99.0].map(|p| g.latency.percentile(p).unwrap_or(0)))
                .map(|[p50, p99]| [p50, p99, g.latency.max_ns]),
        };
        if self.json {
            let groups = result.groups.iter().map(|g| {
                let mut value = whole(g).json();
                value["direction"] = json!(g.group);
                for (key, count) in counts(g) {
                    value[key] = json!(count);
                }
                value["deviations"] = reasons::deviations(g);
                value
            });
            let health = &result.health;
            let names = self.job.ports.iter().zip(sent).enumerate();
            let interfaces = names.map(|(port, (name, sent))| {
                let (errors, protocols) = reasons::others(others, port);
                json!({"interface": name, "other_frames_sent": sent, "icmp_errors": errors, "other_frames_received": protocols})
            });
            let value = json!({
                "size": self.job.size_words(),
                "interfaces": interfaces.collect::<Vec<_>>(), "summary": groups.collect::<Vec<_>>(), "sending_s": result.sending_s,
                "unsent": health.unsent, "tester_drops": health.receive_drops, "tester_max_gap_ns": health.max_gap_ns,
            });
            return say(value);
        }
        let mut lines = vec![String::new()];
        lines.extend(result.groups.iter().map(|g| whole(g).text(&g.group, self.widest())));
        for g in &result.groups {
            let share = if g.offered == 0 { 0.0 } else { g.lost as f64 / g.offered as f64 * 100.0 };
            let counted =
                counts(g).into_iter().filter(|(key, n)| *n > 0 || ["offered", "received", "lost"].contains(key));
            let counted: Vec<_> = counted.map(|(key, n)| format!("{key} {}", group_digits(n))).collect();
            lines.push(format!("{}: {} frames ({share:.4} % lost)", g.group, counted.join(", ")));
        }
        lines.extend(result.groups.iter().flat_map(reasons::of_direction));
        lines.extend(reasons::of_others(self.job, others));
        let (unsent, drops) = (result.health.unsent, result.health.receive_drops);
        if unsent > 0 {
            let unsent = group_digits(unsent);
            lines.push(format!("warning: the tester sent {unsent} fewer frames than requested; lower --rate"));
        }
        if drops > 0 {
            let drops = group_digits(drops);
            lines.push(format!(
                "warning: {drops} frames were lost in the tester's own receive path, not by the network"
            ));
        }
        say(lines.join("\n"))
    }
}

/// Counts of a direction by name.
fn counts(g: &GroupCounts) -> [(&'static str, u64); 8] {
    [
        ("offered", g.offered),
        ("received", g.received),
        ("lost", g.lost),
        ("refused", g.refused),
        ("duplicated", g.duplicated),
        ("corrupted", g.corrupted),
        ("stray", g.stray),
        ("late", g.late),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::parsed;

    /// A snapshot. Each flow is given as frames offered, frames received, and frames missing below the highest number
    /// that arrived.
    fn snapshot(second: u64, flows: &[(u64, u64, u64)]) -> Snapshot {
        let counts = |(flow, &(offered, received, missing)): (usize, &(u64, u64, u64))| {
            let mut counts = FlowCounts { offered, ..FlowCounts::default() };
            (counts.received.frames, counts.received.missing) = (received, missing);
            (flow, counts)
        };
        let flows = flows.iter().enumerate().map(counts).collect();
        Snapshot { at: Instant(second * 1_000_000_000), flows, ..Snapshot::default() }
    }

    #[test]
    fn arrivals_of_a_flow_hide_no_loss_of_another() {
        let job = Job::read(&parsed("a b --flows 8").unwrap()).unwrap();
        let mut display = Display::new(&job, true, Instant(0));
        let mut lost = Vec::new();
        for second in 1..=3 {
            let sent = 100 * second;
            let mut flows = [(sent, sent, 0); 8];
            // In each second, the first flow loses one frame, and the last flow loses all frames.
            flows[0] = (sent, sent - second, second);
            flows[7] = (sent, 0, 0);
            lost.push(display.row(&snapshot(second, &flows)).lost);
        }
        assert_eq!(lost, [1, 102, 203]);
    }

    #[test]
    fn percentiles_are_those_of_the_frames() {
        let steps: BTreeMap<u64, u64> = [(10, 98), (20, 1), (30, 1)].into();
        assert_eq!([50.0, 98.0, 99.0, 100.0].map(|p| percentile(&steps, p)), [Some(10), Some(10), Some(20), Some(30)]);
        assert_eq!(percentile(&BTreeMap::new(), 50.0), None);
    }
}
