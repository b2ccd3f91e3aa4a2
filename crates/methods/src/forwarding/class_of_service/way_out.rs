//! The test at one output port, the last port of the suite.

use super::congestion::Congestion;
use super::rows::{EXCESS, FULL, Fare, Steady, Trial, figures, group, off};
use super::{CLASSES, PAUSE, QUEUE, SCHEDULING, Series, Sharing, TOLERANCE, loads};
use crate::kit::prelude::*;
use drophammer_model::classes::{EgressClasses, ServiceClass, WayOut};

/// What is overloaded, as named in the figures.
pub(super) const OF: &str = "an overloaded output port";
/// Verdict on a class at an output port that was not overloaded.
const NOT_OVERLOADED: &str = "not known: more frames left than the output port carries, so it was not overloaded";

/// One frame size: a trial without overload, then one at each overload.
pub(super) fn measure(
    bed: &mut dyn Testbed,
    pattern: &Pattern,
    params: &Params,
    outcome: &mut Outcome,
) -> Result<(), TestError> {
    let classes = CLASSES.get(params);
    let most = loads(params).into_iter().fold(0.0, f64::max);
    let congestion = Congestion::new(bed.ports(), pattern, params, most)?;
    let flows = congestion.flows(bed.ports(), pattern, &classes)?;
    let (queue, scheduling) = (QUEUE.get(params), SCHEDULING.get(params));
    let (port, rate) = (congestion.to, congestion.rate);
    let list = EgressClasses { at: WayOut::Port(port), rate, queue, scheduling, classes: classes.clone() };
    bed.set(Setting::Classes(&[list]))?;
    bed.settle(PAUSE.get(params))?;
    note_of(
        outcome,
        pattern,
        format!(
            "{} port{} send to port {}, whose output rate is {rate}: {:.0} frames per second",
            congestion.from.len(),
            if congestion.from.len() == 1 { "" } else { "s" },
            bed.ports()[port].name,
            congestion.pps
        ),
    );
    let series = Series {
        pattern,
        params,
        flows,
        full: (congestion.pps, congestion.from.len() as f64),
        // Full queues at the end drain at the rate of the output port.
        emptied_s: f64::from(queue) * classes.len() as f64 / congestion.pps,
    };
    let rules = Rules { sharing: Sharing::of(&classes, scheduling), tolerance: TOLERANCE.get(params).0 };
    series.run(bed, outcome, |outcome, trial| write(outcome, pattern, &classes, &congestion, &rules, trial))?;
    bed.set(Setting::Classes(&[]))
}

/// Expected result of a trial.
struct Rules {
    sharing: Sharing,
    /// In percentage points.
    tolerance: f64,
}

fn write(
    outcome: &mut Outcome,
    pattern: &Pattern,
    classes: &[ServiceClass],
    congestion: &Congestion,
    rules: &Rules,
    trial: &Trial,
) {
    let (result, Rules { sharing, tolerance }) = (&trial.result, rules);
    let steady = Steady::of(trial, classes);
    let rate = steady.rate();
    // Shares of the total that the router forwarded; the total itself is another figure.
    let shares = steady.shares(&sharing.shares(rate, &steady.offered));
    let overloaded = trial.percent > 100.0;
    // A port that was not overloaded shows nothing about classes: a loss of 0 would prove nothing.
    let more_left = rate > congestion.pps * (1.0 + EXCESS);
    let free = overloaded && more_left;
    let mut errors: Vec<f64> = Vec::new();
    for (i, class) in classes.iter().enumerate() {
        let Some(counts) = group(result, &class.name) else { continue };
        // True if the class wants less than its guaranteed share.
        let content = steady.offered[i] < sharing.guaranteed(i, congestion.pps, &steady.offered);
        let share = shares.as_ref().map(|shares| shares[i]);
        let mut fare =
            Fare::new(class, counts, (steady.offered[i], steady.arrived[i]), share, free.then_some(NOT_OVERLOADED));
        if counts.lost > 0 && !overloaded {
            fare.faults.push(format!("lost {} frames without overload", counts.lost));
        } else if counts.lost > 0 && content {
            fare.faults.push(format!("lost {} frames, although it offers less than its share", counts.lost));
        }
        fare.faults.extend(off(fare.error(), *tolerance).filter(|_| !free));
        if shares.is_none() {
            fare.faults.push("nothing arrived".into());
        }
        if i == 0 && overloaded && rate < congestion.pps * FULL {
            fare.marks.push(format!("the output port carried only {:.1} % of its rate", rate / congestion.pps * 100.0));
        }
        if i == 0 && more_left {
            fare.marks.push("more frames left than the output port carries: it was not overloaded".into());
        }
        errors.extend(fare.error().map(f64::abs));
        fare.write(outcome, pattern, trial, (i, classes.len()));
    }
    if trial.first && more_left {
        let why = "more frames left than the output port carries, so it was not overloaded";
        note_of(outcome, pattern, format!("no figures: {why}"));
        let missing = figures(pattern, classes, None, (None, None), OF);
        outcome.ranks.extend(missing.into_iter().map(|figure| figure.beyond(why)));
    } else if trial.first {
        let measured = (Some(rate), errors.into_iter().max_by(f64::total_cmp));
        outcome.ranks.extend(figures(pattern, classes, Some(result), measured, OF));
    }
}

#[cfg(test)]
mod tests {
    use super::super::SPEC;
    use super::super::rows::{AS_WANTED, BINS, TABLE};
    use super::*;
    use drophammer_model::Bandwidth;
    use drophammer_model::suite::Profile;
    use drophammer_model::trial::{Bin, GroupCounts, TrialResult};

    /// A trial of one second at 150 % of 1,000 frames per second; `arrived` frames of each class arrive in each bin of
    /// 25 offered ones.
    fn written(arrived: u64) -> Outcome {
        written_by_class([arrived; 3].map(|arrived| [arrived; BINS]))
    }

    /// A trial as in [`written`], with the frames of each class in each bin.
    fn written_by_class(arrived: [[u64; BINS]; 3]) -> Outcome {
        let params = drophammer_suite::defaults(SPEC.params, Profile::Quick);
        let classes = CLASSES.get(&params);
        let group = |(class, arrived): (&ServiceClass, [u64; BINS])| GroupCounts {
            group: class.name.clone(),
            offered: 500,
            received: arrived.iter().sum(),
            lost: 500 - arrived.iter().sum::<u64>(),
            bins: arrived.map(|arrived| Bin { offered: 25, delivered: arrived, arrived }).to_vec(),
            ..GroupCounts::default()
        };
        let result = TrialResult {
            trial: 1,
            sending_s: 1.0,
            receiving_s: 1.0,
            elapsed_s: 1.0,
            groups: classes.iter().zip(arrived).map(group).collect(),
            senders: 1,
            ..TrialResult::default()
        };
        let pattern = Pattern::one_way("64".parse().unwrap(), vec![drophammer_model::trial::Family::Ipv4], 0.1);
        let congestion = Congestion { from: vec![0], to: 1, rate: Bandwidth(672_000), pps: 1_000.0 };
        let mut outcome = Outcome::default();
        let trial = Trial { percent: 150.0, first: true, result, bin_s: 1.0 / BINS as f64 };
        let tolerance = TOLERANCE.get(&params).0;
        let rules = Rules { sharing: Sharing::of(&classes, SCHEDULING.get(&params)), tolerance };
        write(&mut outcome, &pattern, &classes, &congestion, &rules, &trial);
        outcome
    }

    fn verdicts(outcome: &Outcome) -> Vec<String> {
        TABLE.rows(&outcome.tables).into_iter().map(|row| row.verdict).collect()
    }

    /// In the settled time, gold has 50 % (the frames that it offers), silver 40 % and bronze 10 %.
    #[test]
    fn a_share_that_is_off_by_exactly_a_point_is_found_and_named() {
        let shifted = |frames: u64| {
            let mut arrived = [25, 20, 5].map(|arrived| [arrived; BINS]);
            arrived[1][BINS - 1] -= frames;
            arrived[2][BINS - 1] += frames;
            verdicts(&written_by_class(arrived))
        };
        // 900 frames arrive in the settled 18 bins, so nine frames are one percentage point.
        assert_eq!(shifted(9), [AS_WANTED, "its share is 1.00 points too low", "its share is 1.00 points too high"]);
        assert_eq!(shifted(8), [AS_WANTED; 3]);
        assert_eq!(shifted(0), [AS_WANTED; 3]);
    }

    /// An output port that was never too narrow gets no figures: a loss of 0 would prove nothing.
    #[test]
    fn a_way_out_that_was_not_overloaded_has_no_figures() {
        let all = written(25);
        assert_eq!(verdicts(&all), [NOT_OVERLOADED; 3]);
        assert!(all.ranks.iter().all(|rank| rank.value.is_none() && rank.missing.is_some()), "{:?}", all.ranks);
        assert!(
            all.notes.iter().any(|note| note.contains("more frames left than the output port carries")),
            "{:?}",
            all.notes
        );
        let held_back = written(16);
        assert_eq!(held_back.ranks.len(), 3, "{:?}", held_back.ranks);
        assert!(verdicts(&held_back).iter().all(|verdict| !verdict.starts_with("not known")));
        // A lost frame counts as lost, whatever the port carries. Shares are not judged there.
        let lossy = verdicts(&written(24));
        assert_eq!(lossy, ["lost 20 frames, although it offers less than its share", NOT_OVERLOADED, NOT_OVERLOADED]);
    }
}
