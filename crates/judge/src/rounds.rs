//! Combines the records of a test from all rounds into one record, so that a report shows each test once.

mod plots;
mod tables;

use crate::criteria::{absent, verdicts};
use crate::statistics::{median, summarize};
use crate::{distinct, doubt};
use drophammer_model::figure::{Figure, RoundFigure};
use drophammer_model::outcome::{Blame, Missing, Outcome, Plot, RankFigure, Table};
use drophammer_model::record::{TestRecord, TestStatus};

/// Combines the records of one test on one DUT, one per round, in order; `None` if there are no records.
///
/// In tables, numbers become medians over the completed rounds. Rows belong together by their keys, such as frame size
/// and load. A row that is missing from some rounds has a mark. If the rounds have hardly a row in common, the table
/// contains the rows of all rounds, with a note. Figures for ranks keep the value of each round in addition to the
/// median. Points of curves become medians with minimum and maximum, but all single dots stay. A note names curves that
/// are missing from some rounds, and curves that show one round because the rounds have no x in common. `round` is the
/// number of rounds.
pub fn combine(rounds: &[&TestRecord]) -> Option<TestRecord> {
    let (first, rest) = rounds.split_first()?;
    if rest.is_empty() {
        let mut only = TestRecord { round: 1, ..(*first).clone() };
        for rank in &mut only.outcome.ranks {
            rank.rounds = vec![rank.round()];
            rank.round_samples = vec![rank.samples.clone()];
        }
        only.outcome.verdicts = verdicts(rounds);
        only.outcome.without_figure = without_figure(rounds);
        return Some(only);
    }
    let completed: Vec<&TestRecord> =
        rounds.iter().copied().filter(|record| record.status == TestStatus::Completed).collect();
    // Partial results are better than no results, but must not be mixed with complete ones.
    let used = if completed.is_empty() { rounds.to_vec() } else { completed };
    let mut outcome = Outcome {
        ranks: ranks(rounds),
        verdicts: verdicts(rounds),
        notes: notes(rounds),
        deviations: distinct(rounds.iter().flat_map(|record| record.outcome.deviations.iter().cloned())),
        without_figure: without_figure(rounds),
        ..Outcome::default()
    };
    for key in distinct(used.iter().flat_map(|record| &record.outcome.tables).map(|table| &table.key)) {
        let found = used.iter().filter_map(|record| {
            let own = record.outcome.tables.iter().find(|table| table.key == *key);
            own.map(|table| (table, record.round))
        });
        let (tables, numbers): (Vec<&Table>, Vec<u32>) = found.unzip();
        let (table, note) = tables::combine(&tables, &numbers);
        outcome.notes.extend(note.map(|note| format!("{}: {note}", table.title)));
        outcome.tables.push(table);
    }
    for key in distinct(used.iter().flat_map(|record| &record.outcome.plots).map(|plot| &plot.key)) {
        let own = |record: &&'_ TestRecord| record.outcome.plots.iter().position(|plot| plot.key == *key);
        let plots: Vec<&Plot> = used.iter().filter_map(|record| Some(&record.outcome.plots[own(record)?])).collect();
        let (plot, remarks) = plots::combine(&plots);
        outcome.plots.push(plot);
        outcome.notes.extend(remarks);
    }
    Some(TestRecord {
        round: u32::try_from(rounds.len()).unwrap_or(u32::MAX),
        elapsed_s: rounds.iter().map(|record| record.elapsed_s).sum(),
        status: status(rounds),
        outcome,
        ..(*first).clone()
    })
}

/// The result of each round for a figure that no round has.
fn without_figure(rounds: &[&TestRecord]) -> Vec<RoundFigure> {
    rounds.iter().map(|record| absent(&record.status)).collect()
}

/// A test is completed only if every round completed it, so that a report shows every round that did not.
fn status(rounds: &[&TestRecord]) -> TestStatus {
    let open: Vec<&TestRecord> =
        rounds.iter().copied().filter(|record| record.status != TestStatus::Completed).collect();
    let Some(first) = open.first() else { return TestStatus::Completed };
    if open.len() == rounds.len() {
        // A round that was skipped or not measured must not hide what happened in the others.
        let (failed, other): (Vec<&TestRecord>, Vec<&TestRecord>) = open
            .iter()
            .copied()
            .filter(|record| !matches!(record.status, TestStatus::Skipped(_)))
            .partition(|record| matches!(record.status, TestStatus::Failed(_)));
        return failed.first().or(other.first()).unwrap_or(first).status.clone();
    }
    let why = |record: &&TestRecord| match &record.status {
        TestStatus::Failed(why)
        | TestStatus::Unfit(why)
        | TestStatus::Skipped(why)
        | TestStatus::Partly(why)
        | TestStatus::FewerRounds(why) => {
            format!("round {}: {why}", record.round)
        }
        TestStatus::Completed | TestStatus::Interrupted | TestStatus::NotAsked => {
            format!("round {}: stopped by the user", record.round)
        }
    };
    let causes: Vec<String> = open.iter().map(why).collect();
    let text = format!("in {} of {} rounds ({})", rounds.len() - open.len(), rounds.len(), causes.join("; "));
    // If the tester spoilt a round, the DUT is not to blame.
    let is_blameless = |record: &&TestRecord| matches!(record.status, TestStatus::Unfit(_) | TestStatus::Skipped(_));
    if open.iter().all(is_blameless) { TestStatus::FewerRounds(text) } else { TestStatus::Partly(text) }
}

/// The distinct notes of all rounds. If only some rounds have a note, their numbers follow it.
fn notes(rounds: &[&TestRecord]) -> Vec<String> {
    let texts = distinct(rounds.iter().flat_map(|record| &record.outcome.notes));
    let with_rounds = texts.into_iter().map(|text| {
        let has = |record: &&&TestRecord| record.outcome.notes.contains(text);
        let in_rounds: Vec<String> = rounds.iter().filter(has).map(|record| record.round.to_string()).collect();
        match in_rounds.len() == rounds.len() {
            true => text.clone(),
            false => format!("{text} (round {})", in_rounds.join(", ")),
        }
    });
    with_rounds.collect()
}

fn ranks(rounds: &[&TestRecord]) -> Vec<RankFigure> {
    let all = || rounds.iter().flat_map(|record| &record.outcome.ranks);
    let combined = distinct(all().map(|rank| rank.key.as_str())).into_iter().filter_map(|key| {
        let found: Vec<Option<&RankFigure>> =
            rounds.iter().map(|record| record.outcome.ranks.iter().find(|rank| rank.key == key)).collect();
        let known: Vec<&RankFigure> = found.iter().flatten().copied().collect();
        let figures: Vec<Figure> = known.iter().filter_map(|rank| rank.figure()).collect();
        let middle = summarize(&figures).map(|summary| summary.median);
        let bounded = middle.is_some_and(|middle| !middle.is_exact());
        Some(RankFigure {
            value: middle.map(Figure::bound),
            // A failure of the router is more important than a failure to measure.
            missing: middle.is_none().then(|| missing(&known)).flatten(),
            // If an end of the median is unknown, it is a bound, however few rounds were limited.
            tester_limited: bounded && known.iter().any(|rank| rank.tester_limited),
            capped: bounded && known.iter().any(|rank| rank.capped),
            resolution: known.iter().map(|rank| rank.resolution).fold(0.0, f64::max),
            least: known.iter().map(|rank| rank.least).fold(0.0, f64::max),
            load_pps: median(&mut known.iter().filter_map(|rank| rank.load_pps).collect::<Vec<_>>()),
            refuted: known.iter().flat_map(|rank| rank.refuted.iter().cloned()).collect(),
            doubts: doubt::together(&known),
            rounds: found
                .iter()
                .zip(rounds)
                .map(|(rank, record)| rank.map_or_else(|| absent(&record.status), RankFigure::round))
                .collect(),
            round_samples: found.iter().map(|rank| rank.map_or(Vec::new(), |rank| rank.samples.clone())).collect(),
            round_loads: found.iter().map(|rank| rank.and_then(|rank| rank.load_pps)).collect(),
            ..(*known.first()?).clone()
        })
    });
    combined.collect()
}

/// Why none of these figures has a value.
fn missing(known: &[&RankFigure]) -> Option<Missing> {
    let all = || known.iter().filter_map(|rank| rank.missing.as_ref());
    all().find(|missing| missing.by == Blame::Dut).or_else(|| all().next()).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::outcome::{Cell, Column, PlotKind, Row};

    fn record(round: u32, value: Option<f64>, limited: bool, cells: &[Cell]) -> TestRecord {
        let rank = RankFigure {
            higher_is_better: true,
            tester_limited: limited,
            resolution: 0.01,
            ..RankFigure::new("rate", "Rate", "fps", value)
        };
        let row = Row { cells: cells.to_vec(), trials: vec![round.into()], marks: vec![] };
        let columns = (0..cells.len()).map(|i| Column::new(&i.to_string(), "", "")).collect();
        let table = Table { key: "t".into(), title: "T".into(), columns, rows: vec![row] };
        crate::made::test(round, Outcome { tables: vec![table], ranks: vec![rank], ..Outcome::default() })
    }

    fn all(records: &[TestRecord]) -> TestRecord {
        combine(&records.iter().collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn numbers_become_medians_and_keys_stay() {
        let row = |rate| [Cell::Count(64), Cell::Number(rate), Cell::Text("up".into()), Cell::None];
        let rates = [5.0, 1.0, 3.0].into_iter().zip(1..);
        let combined =
            all(&rates.map(|(rate, round)| record(round, Some(rate), false, &row(rate))).collect::<Vec<_>>());
        let outcome = &combined.outcome;
        assert_eq!(outcome.tables[0].rows[0].cells, row(3.0));
        assert_eq!(outcome.tables[0].rows[0].trials, [1, 2, 3]);
        assert_eq!((outcome.ranks[0].value, outcome.ranks[0].tester_limited), (Some(3.0), false));
        assert_eq!(outcome.ranks[0].rounds.len(), 3);
        assert_eq!((combined.status, combined.elapsed_s), (TestStatus::Completed, 3.0));
    }

    #[test]
    fn a_median_that_may_be_more_is_a_bound() {
        // Half of the rounds ended at the tester's limit, so the median is above 2 by an unknown amount.
        let records: Vec<_> = [(1.0, false), (2.0, false), (3.0, true), (4.0, true)]
            .into_iter()
            .zip(1..)
            .map(|((rate, limited), round)| record(round, Some(rate), limited, &[]))
            .collect();
        let rank = &all(&records).outcome.ranks[0];
        assert_eq!((rank.value, rank.tester_limited), (Some(2.5), true));
        assert!(!all(&records[..3]).outcome.ranks[0].tester_limited, "the one in the middle was measured");
    }

    #[test]
    fn a_round_that_failed_shows() {
        let mut records: Vec<_> = (1..=3).map(|round| record(round, Some(7.0), false, &[])).collect();
        records[1].status = TestStatus::Failed("the DUT died".into());
        records[1].outcome.ranks.clear();
        let combined = all(&records);
        assert_eq!(combined.status, TestStatus::Partly("in 2 of 3 rounds (round 2: the DUT died)".into()));
        assert_eq!(combined.outcome.ranks[0].rounds[1], RoundFigure::Failed);
        records[1].status = TestStatus::Unfit("the host was busy".into());
        let combined = all(&records);
        let text = "in 2 of 3 rounds (round 2: the host was busy)".to_owned();
        assert_eq!(combined.status, TestStatus::FewerRounds(text));
        assert_eq!(combined.outcome.ranks[0].rounds[1], RoundFigure::NotMeasured);
        records.iter_mut().for_each(|record| record.status = TestStatus::Failed("no".into()));
        assert_eq!(all(&records).status, TestStatus::Failed("no".into()));
        records.iter_mut().for_each(|record| record.outcome.ranks.clear());
        records[1].status = TestStatus::Unfit("the host was busy".into());
        let combined = all(&records);
        assert_eq!(combined.status, TestStatus::Failed("no".into()));
        let expected = [RoundFigure::Failed, RoundFigure::NotMeasured, RoundFigure::Failed];
        assert_eq!(combined.outcome.without_figure, expected);
    }

    #[test]
    fn rows_that_differ_are_not_mixed() {
        let records = [record(1, None, false, &[Cell::Count(64)]), record(2, None, false, &[Cell::Count(128)])];
        let combined = all(&records);
        assert_eq!(combined.outcome.tables[0].rows[0].cells, [Cell::Count(64)]);
        assert!(combined.outcome.notes[0].contains("different rows"));
    }

    #[test]
    fn a_round_that_was_skipped_or_not_measured_hides_no_failure() {
        let skipped = || TestStatus::Skipped("no throughput was found".into());
        let failed = || TestStatus::Failed("the DUT died".into());
        let unfit = || TestStatus::Unfit("the host was busy".into());
        let of = |all: &[TestStatus]| {
            let with = |(status, round): (&TestStatus, u32)| TestRecord {
                status: status.clone(),
                ..record(round, None, false, &[])
            };
            let records: Vec<TestRecord> = all.iter().zip(1..).map(with).collect();
            status(&records.iter().collect::<Vec<_>>())
        };
        assert_eq!(of(&[skipped(), skipped()]), skipped());
        assert_eq!(of(&[skipped(), failed(), failed()]), failed());
        assert_eq!(of(&[skipped(), unfit(), skipped()]), unfit());
        assert_eq!(of(&[unfit(), failed(), failed()]), failed());
        assert_eq!(of(&[unfit(), unfit(), failed()]), failed());
    }

    #[test]
    fn a_curve_that_shows_one_round_has_a_note() {
        let with = |round, x| {
            let mut record = record(round, None, false, &[]);
            record.outcome.plots.push(plots::tests::plot(PlotKind::Line, vec![plots::tests::series("s", &[(x, 9.0)])]));
            record
        };
        assert!(all(&[with(1, 1.0), with(2, 1.0)]).outcome.notes.is_empty());
        let notes = all(&[with(1, 1.0), with(2, 2.0)]).outcome.notes;
        assert_eq!(notes, ["Loss by load, s: the rounds have no x in common; the curve shows one round"]);
    }
}
