//! Conclusions from the steps, one line per port: the rate in frames per second up to which the port measures loss, and
//! the time in microseconds down to which it measures latency.

use drophammer_methods::columns;
use drophammer_methods::report::note;
use drophammer_methods::selftest::{counter_proof, latency_floor, loss_floor};
use drophammer_methods::table::TableSpec;
use drophammer_model::environment::PortRecord;
use drophammer_model::outcome::{Outcome, Table, Verdict};
use drophammer_model::quantity::FrameRate;
use drophammer_model::size::PacketSize;

pub(super) const NAME: &str = "verdict";
pub(super) const TITLE: &str = "Verdict";

/// Results of the steps of one backend.
#[derive(Default)]
pub(super) struct Found {
    /// The ports.
    pub(super) ports: Vec<PortRecord>,
    tables: Vec<Table>,
    counters: Vec<Verdict>,
}

columns! {
    /// Speed and accuracy of one port at one frame size.
    pub(super) struct PortRow {
        port: String,
        interface: String,
        driver: String,
        frame_size: PacketSize,
        loss_up_to_pps: f64 ["fps"],
        latency_floor_us: Option<f64> = "Latency from" ["µs"],
        latency_resolution_us: Option<f64> = "told apart by" ["µs"],
        counters: Option<String> = "Counters proven",
    }
}

pub(super) const TABLE: TableSpec<PortRow> = TableSpec::new(NAME, "What each port is good for");

impl Found {
    /// Adds the results of a step.
    pub(super) fn take(&mut self, outcome: &Outcome) {
        self.tables.extend(outcome.tables.iter().cloned());
        self.counters.extend(outcome.verdicts.iter().cloned());
    }

    /// Returns the verdict.
    pub(super) fn outcome(&self) -> Outcome {
        let mut outcome = Outcome::default();
        let floors: Vec<(PacketSize, FrameRate)> = loss_floor::TABLE
            .rows(&self.tables)
            .into_iter()
            .map(|row| (row.frame_size, FrameRate(row.loss_free_pps)))
            .collect();
        // Only the first load of each size counts: one frame at a time.
        let latencies = latency_floor::TABLE.rows(&self.tables);
        let equal = self.counters.iter().filter(|v| v.pass).count();
        let proven = (!self.counters.is_empty()).then(|| format!("{equal} of {}", self.counters.len()));
        TABLE.begin(&mut outcome);
        note(
            &mut outcome,
            "Loss: up to this load per port, in both directions at the same time, only the router can lose frames. Latency: the \
             tester itself adds the first figure; it cannot distinguish routers that differ by less than the second.",
        );
        for port in &self.ports {
            for (size, load) in &floors {
                let latency = latencies.iter().find(|row| row.frame_size == *size);
                let row = PortRow {
                    port: port.name.clone(),
                    interface: port.interface.clone(),
                    driver: port.driver.clone(),
                    frame_size: size.clone(),
                    loss_up_to_pps: load.pps(),
                    latency_floor_us: latency.and_then(|row| row.floor_us),
                    latency_resolution_us: latency.and_then(|row| row.resolution_us),
                    counters: proven.clone(),
                };
                TABLE.add(&mut outcome, row, [], []);
            }
        }
        let first = latencies.iter().find_map(|row| row.floor_us.zip(row.resolution_us));
        self.say(&mut outcome, &floors, first);
        outcome
    }

    /// Adds the verdicts as text.
    fn say(&self, outcome: &mut Outcome, floors: &[(PacketSize, FrameRate)], latency: Option<(f64, f64)>) {
        let loads: Vec<String> = floors.iter().map(|(size, load)| format!("{load} at {size}")).collect();
        let up_to =
            if loads.is_empty() { "no load without loss".into() } else { format!("up to {}", loads.join(", ")) };
        outcome.verdicts.push(Verdict::decided("good for loss", !loads.is_empty(), up_to));
        let down_to = latency.map_or("not measured".into(), |(floor, resolution)| {
            format!("down to {floor:.1} µs, told apart by {resolution:.1} µs")
        });
        outcome.verdicts.push(Verdict::decided("good for latency", latency.is_some(), down_to));
        let wrong: Vec<&Verdict> = self.counters.iter().filter(|v| !v.pass).collect();
        let all = self.counters.len();
        let mut found = format!("every counter equal on {} of {all} devices", all - wrong.len());
        for verdict in &wrong {
            found += &format!("; {}: {}", verdict.criterion, verdict.found);
        }
        let criterion = format!("counts {} as the reference device does", counter_proof::WHAT);
        let found = if all == 0 { "not proven".into() } else { found };
        outcome.verdicts.push(Verdict::decided(criterion, wrong.is_empty() && all > 0, found));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_frame_size_has_its_own_figures() {
        let mut steps = Outcome::default();
        for (size, load, floors) in [("64", 9e4, [3.0, 4.0]), ("1518", 8e4, [5.0, 6.0])] {
            let frame_size: PacketSize = size.parse().unwrap();
            let (ceiling_pps, ceiling_percent) = (None, None);
            let row = loss_floor::FloorRow {
                frame_size: frame_size.clone(),
                ceiling_pps,
                loss_free_pps: load,
                ceiling_percent,
                l2_mbps: 0.0,
                frames: 0,
            };
            loss_floor::TABLE.add(&mut steps, row, [], []);
            // There are two loads; only the first one counts.
            for (load_pps, us) in (1..).map(f64::from).zip(floors) {
                let row = latency_floor::FloorRow {
                    frame_size: frame_size.clone(),
                    load_pps,
                    min_us: None,
                    floor_us: Some(us),
                    p99_us: None,
                    p99_9_us: None,
                    max_us: None,
                    resolution_us: Some(us / 10.0),
                };
                latency_floor::TABLE.add(&mut steps, row, [], []);
            }
        }
        let mut found = Found { ports: vec![PortRecord::default()], ..Found::default() };
        found.take(&steps);
        let rows = TABLE.rows(&found.outcome().tables);
        let figures = |i: usize| {
            let row: &PortRow = &rows[i];
            (row.frame_size.to_string(), row.loss_up_to_pps, row.latency_floor_us, row.latency_resolution_us)
        };
        assert_eq!(figures(0), ("64".into(), 9e4, Some(3.0), Some(0.3)));
        assert_eq!(figures(1), ("1518".into(), 8e4, Some(5.0), Some(0.5)));
    }

    #[test]
    fn what_was_not_proven_fails() {
        let verdicts = Found::default().outcome().verdicts;
        assert!(verdicts.len() == 3 && verdicts.iter().all(|v| !v.pass), "{verdicts:?}");
    }
}
