//! An independent check: compares the kernel's counters of the tester's interfaces with the tester's counts in each trial.

use crate::format::number;
use crate::view::{DutResult, View};
use drophammer_model::counters::tester_port;
use drophammer_model::environment::{DutRecord, PortRecord};
use drophammer_model::record::TrialRecord;
use drophammer_model::trial::{GroupCounts, TrialResult};
use serde_json::{Value, json};

/// By how many frames the kernel counted more than the tester in a trial, summed over all ports; negative if it counted
/// fewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts {
    trial: u64,
    sent: i64,
    received: i64,
}

impl Counts {
    /// `None` if the kernel's counters were not read, or the frames of the emulated devices were not counted.
    fn of(result: &TrialResult) -> Option<Counts> {
        let health = &result.health;
        // A run folder may contain any numbers, so a sum may exceed 64 bits.
        let kernel = |counter: &str| {
            let own = result.dut_counters.iter().filter(|(name, _)| tester_port(name, counter).is_some());
            let mut values = own.map(|(_, frames)| i128::from(*frames)).peekable();
            values.peek().is_some().then(|| values.sum::<i128>())
        };
        let sum = |of: fn(&GroupCounts) -> i128| result.groups.iter().chain(&result.background).map(of).sum::<i128>();
        let sent = sum(|g| i128::from(g.offered) - i128::from(g.refused)) + i128::from(health.other_sent?);
        let received = sum(|g| {
            let arrived = [g.received, g.duplicated, g.corrupted, g.deviating_copies, g.stray];
            arrived.iter().chain(g.deviations.values()).map(|frames| i128::from(*frames)).sum()
        }) + i128::from(health.stale)
            + i128::from(health.other_received);
        // A counter that did not increase is not stored.
        let off = |kernel: Option<i128>, own: i128| {
            let more = kernel.unwrap_or(0) - own;
            i64::try_from(more).unwrap_or(if more < 0 { i64::MIN } else { i64::MAX })
        };
        let (kernel_sent, kernel_received) = (kernel("tx_packets"), kernel("rx_packets"));
        kernel_sent.or(kernel_received)?;
        Some(Counts { trial: result.trial, sent: off(kernel_sent, sent), received: off(kernel_received, received) })
    }
}

/// A port whose frames the kernel may not count. If `af_xdp` uses the driver of a network card, this depends on the
/// driver.
fn uncounted<'a>(records: &[&'a DutRecord]) -> Option<&'a PortRecord> {
    let may_be = |port: &&PortRecord| {
        let driver = port.driver.split(',').next().unwrap_or_default();
        port.backend == "af_xdp" && port.driver.contains("native") && !["veth", "tun"].contains(&driver)
    };
    records.iter().copied().flat_map(|record| &record.ports).find(may_be)
}

/// The results of valid trials. An invalid trial may have ended while frames were in flight.
fn valid<'a>(trials: &[&'a TrialRecord]) -> impl Iterator<Item = &'a TrialResult> {
    trials.iter().copied().map(|trial| &trial.result).filter(|result| result.validity.is_valid())
}

/// Number of trials in which a count agrees exactly, and the trial with the largest difference.
fn agreement(all: &[Counts], of: fn(&Counts) -> i64) -> (usize, Option<Counts>) {
    let agree = all.iter().filter(|counts| of(counts) == 0).count();
    let worst = all.iter().copied().filter(|counts| of(counts) != 0).max_by_key(|counts| of(counts).unsigned_abs());
    (agree, worst)
}

/// A sentence on how well the counts agree; `None` if the kernel does not count the tester's frames.
pub fn text(view: &View, result: &DutResult) -> Option<String> {
    let mut valid = valid(&result.trials);
    match uncounted(&view.dut(result.dut).records) {
        Some(port) => valid.next().map(|_| {
            format!(
                "it is unknown whether the kernel's counters of the tester's interfaces agree: the driver of {} may not count the frames \
                 of {}",
                port.interface, port.backend
            )
        }),
        None => sentence(&valid.filter_map(Counts::of).collect::<Vec<_>>()),
    }
}

fn sentence(all: &[Counts]) -> Option<String> {
    if all.is_empty() {
        return None;
    }
    let part = |word: &str, of: fn(&Counts) -> i64| {
        let (agree, worst) = agreement(all, of);
        let off = worst.map_or(String::new(), |worst| {
            let frames = of(&worst);
            let by = number(frames.unsigned_abs() as f64, "");
            let which = if frames > 0 { "more" } else { "fewer" };
            format!(", the kernel counted up to {by} {which} (trial {})", worst.trial)
        });
        format!("{agree} of {} {word}{off}", all.len())
    };
    Some(format!(
        "the kernel's counters of the tester's interfaces agree exactly in {}; in {}",
        part("valid trials for frames sent", |counts| counts.sent),
        part("for frames received", |counts| counts.received),
    ))
}

/// The comparison as JSON; null if the kernel does not count the tester's frames, or if that is unknown.
pub fn json(view: &View, result: &DutResult) -> Value {
    if uncounted(&view.dut(result.dut).records).is_some() {
        return Value::Null;
    }
    value(&valid(&result.trials).filter_map(Counts::of).collect::<Vec<_>>())
}

fn value(all: &[Counts]) -> Value {
    let part = |of: fn(&Counts) -> i64| {
        let (agree, worst) = agreement(all, of);
        json!({ "agree": agree, "most_off": worst.map_or(0, |worst| of(&worst)), "most_off_trial": worst.map(|worst| worst.trial) })
    };
    match all.len() {
        0 => Value::Null,
        trials => {
            json!({ "trials": trials, "sent": part(|counts| counts.sent), "received": part(|counts| counts.received) })
        }
    }
}

#[cfg(test)]
mod tests;
