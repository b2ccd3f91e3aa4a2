//! What follows from the steps, in one line per port: good for loss up to so many frames per second, for latency down to so
//! many microseconds.

use drophammer_methods::report::{note, row, table};
use drophammer_methods::selftest::{counter_proof, latency_floor, loss_floor};
use drophammer_model::environment::PortRecord;
use drophammer_model::outcome::{Cell, Outcome, Row, Table, Verdict};
use drophammer_model::quantity::FrameRate;

pub(super) const NAME: &str = "verdict";
pub(super) const TITLE: &str = "Verdict";

/// What the steps of one backend have found.
#[derive(Default)]
pub(super) struct Found {
    /// The ports.
    pub(super) ports: Vec<PortRecord>,
    tables: Vec<Table>,
    counters: Vec<Verdict>,
}

/// Cells of two columns of the table `key`: the first and the named one.
fn column<'a>(tables: &'a [Table], key: &str, name: &str) -> Vec<(&'a Cell, f64)> {
    let Some(table) = tables.iter().find(|t| t.key == key) else { return Vec::new() };
    let Some(at) = table.columns.iter().position(|c| c.key == name) else { return Vec::new() };
    let number = |row: &'a Row| match row.cells[at] {
        Cell::Number(x) => Some((&row.cells[0], x)),
        Cell::Count(n) => Some((&row.cells[0], n as f64)),
        _ => None,
    };
    table.rows.iter().filter_map(number).collect()
}

impl Found {
    /// Takes what a step has found.
    pub(super) fn take(&mut self, outcome: &Outcome) {
        self.tables.extend(outcome.tables.iter().cloned());
        self.counters.extend(outcome.verdicts.iter().cloned());
    }

    /// The verdict.
    pub(super) fn outcome(&self) -> Outcome {
        let mut outcome = Outcome::default();
        let floors = column(&self.tables, loss_floor::TABLE, loss_floor::FLOOR);
        // Of this size, at the first load: one frame at a time.
        let latency = |size: &Cell, name| {
            let all = column(&self.tables, latency_floor::TABLE, name);
            all.into_iter().find(|(of, _)| *of == size).map(|(_, us)| us)
        };
        let equal = self.counters.iter().filter(|v| v.pass).count();
        let proven = (!self.counters.is_empty()).then(|| format!("{equal} of {}", self.counters.len()));
        table(
            &mut outcome,
            NAME,
            "What each port is good for",
            &[
                ("port", "Port", ""),
                ("interface", "Interface", ""),
                ("driver", "Driver", ""),
                ("frame_size", "Frame size", ""),
                ("loss_up_to_pps", "Loss up to", "fps"),
                ("latency_floor_us", "Latency from", "µs"),
                ("latency_resolution_us", "told apart by", "µs"),
                ("counters", "Counters proven", ""),
            ],
        );
        note(
            &mut outcome,
            "Loss: up to this load per port, in both directions at once, whatever is lost is lost by the router. Latency: the \
             tester itself adds the first figure; routers closer together than the second are not told apart.",
        );
        for port in &self.ports {
            for (size, pps) in &floors {
                let cells = vec![
                    port.name.as_str().into(),
                    port.interface.as_str().into(),
                    port.driver.as_str().into(),
                    (*size).clone(),
                    (*pps).into(),
                    latency(size, latency_floor::FLOOR).into(),
                    latency(size, latency_floor::RESOLUTION).into(),
                    proven.clone().into(),
                ];
                row(&mut outcome, NAME, Row { cells, ..Row::default() });
            }
        }
        let first = |name| column(&self.tables, latency_floor::TABLE, name).into_iter().map(|(_, us)| us).next();
        self.say(&mut outcome, &floors, first(latency_floor::FLOOR).zip(first(latency_floor::RESOLUTION)));
        outcome
    }

    /// Verdicts in words.
    fn say(&self, outcome: &mut Outcome, floors: &[(&Cell, f64)], latency: Option<(f64, f64)>) {
        let loads: Vec<String> = floors
            .iter()
            .map(|(size, pps)| match size {
                Cell::Text(size) => format!("{} at {size}", FrameRate(*pps)),
                _ => FrameRate(*pps).to_string(),
            })
            .collect();
        outcome.verdicts.push(Verdict {
            criterion: "good for loss".into(),
            pass: !loads.is_empty(),
            found: if loads.is_empty() { "no load without loss".into() } else { format!("up to {}", loads.join(", ")) },
        });
        outcome.verdicts.push(Verdict {
            criterion: "good for latency".into(),
            pass: latency.is_some(),
            found: latency.map_or("not measured".into(), |(floor, resolution)| {
                format!("down to {floor:.1} µs, told apart by {resolution:.1} µs")
            }),
        });
        let wrong: Vec<&Verdict> = self.counters.iter().filter(|v| !v.pass).collect();
        let all = self.counters.len();
        let mut found = format!("every counter equal on {} of {all} devices", all - wrong.len());
        for verdict in &wrong {
            found += &format!("; {}: {}", verdict.criterion, verdict.found);
        }
        outcome.verdicts.push(Verdict {
            criterion: format!("counts {} as the reference device does", counter_proof::WHAT),
            pass: wrong.is_empty() && all > 0,
            found: if all == 0 { "not proven".into() } else { found },
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_frame_size_has_its_own_figures() {
        let mut steps = Outcome::default();
        table(&mut steps, loss_floor::TABLE, "", &[("frame_size", "", ""), (loss_floor::FLOOR, "", "")]);
        let columns = [("frame_size", "", ""), (latency_floor::FLOOR, "", ""), (latency_floor::RESOLUTION, "", "")];
        table(&mut steps, latency_floor::TABLE, "", &columns);
        let mut add = |key: &str, cells: Vec<Cell>| row(&mut steps, key, Row { cells, ..Row::default() });
        for (size, load, floors) in [("64", 9e4, [3.0, 4.0]), ("1518", 8e4, [5.0, 6.0])] {
            add(loss_floor::TABLE, vec![size.into(), load.into()]);
            // At two loads, of which the first counts.
            for us in floors {
                add(latency_floor::TABLE, vec![size.into(), us.into(), (us / 10.0).into()]);
            }
        }
        let mut found = Found { ports: vec![PortRecord::default()], ..Found::default() };
        found.take(&steps);
        let rows = &found.outcome().tables[0].rows;
        let figures = |i: usize| rows[i].cells[3..7].to_vec();
        assert_eq!(figures(0), ["64".into(), 9e4.into(), 3.0.into(), Cell::from(0.3)]);
        assert_eq!(figures(1), ["1518".into(), 8e4.into(), 5.0.into(), Cell::from(0.5)]);
    }

    #[test]
    fn what_was_not_proven_fails() {
        let verdicts = Found::default().outcome().verdicts;
        assert!(verdicts.len() == 3 && verdicts.iter().all(|v| !v.pass), "{verdicts:?}");
    }
}
