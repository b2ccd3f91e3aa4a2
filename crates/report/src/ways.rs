//! How evenly fully meshed load is spread: frames offered from each port to each other port, over the trials of a test.

use crate::format::{number, several};
use drophammer_model::record::TrialRecord;
use drophammer_model::trial::WayCounts;
use std::collections::BTreeSet;

/// Number of ports of a trial in which each port sends to every other port; `None` for other trials. Evenness between two
/// ports has no meaning.
fn meshed(ways: &[WayCounts]) -> Option<usize> {
    let ports: BTreeSet<usize> = ways.iter().flat_map(|way| [way.from, way.to]).collect();
    (ports.len() > 2 && ways.len() == ports.len() * (ports.len() - 1)).then_some(ports.len())
}

/// By how many per cent the lowest count is below the highest.
fn apart(counts: impl Iterator<Item = u64> + Clone) -> f64 {
    let (least, most) = (counts.clone().min().unwrap_or(0), counts.max().unwrap_or(0));
    if most == 0 { 0.0 } else { (most - least) as f64 / most as f64 * 100.0 }
}

/// One sentence about the load of the valid trials; `None` without fully meshed trials.
pub fn text(trials: &[&TrialRecord]) -> Option<String> {
    let valid = trials.iter().filter(|trial| trial.result.validity.is_valid());
    let of: Vec<(&TrialRecord, usize)> = valid.filter_map(|t| Some((*t, meshed(&t.result.ways)?))).collect();
    let most_ports = of.iter().map(|(_, ports)| *ports).max()?;
    let uneven = |trial: &TrialRecord| {
        let ways = &trial.result.ways;
        let of_port = |from: usize| ways.iter().filter(move |way| way.from == from).map(|way| way.offered).sum::<u64>();
        let ports: BTreeSet<usize> = ways.iter().map(|way| way.from).collect();
        let by_port: Vec<u64> = ports.into_iter().map(of_port).collect();
        (apart(ways.iter().map(|way| way.offered)), apart(by_port.into_iter()))
    };
    let all: Vec<(u64, (f64, f64))> = of.iter().map(|(trial, _)| (trial.result.trial, uneven(trial))).collect();
    let by_way = all.iter().max_by(|a, b| a.1.0.total_cmp(&b.1.0))?;
    let by_port = all.iter().max_by(|a, b| a.1.1.total_cmp(&b.1.1))?;
    let trials = several(of.len(), "trial");
    Some(format!(
        "fully meshed load in {trials}, {most_ports} ports: frames offered per port differ by at most {} % (trial {}), frames offered from one \
         port to another by at most {} % (trial {})",
        number(by_port.1.1, ""),
        by_port.0,
        number(by_way.1.0, ""),
        by_way.0
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ways(ports: usize, offered: impl Fn(usize, usize) -> u64) -> Vec<WayCounts> {
        let pairs = (0..ports).flat_map(|a| (0..ports).filter(move |b| *b != a).map(move |b| (a, b)));
        pairs.map(|(from, to)| WayCounts { from, to, offered: offered(from, to), received: 0 }).collect()
    }

    #[test]
    fn a_full_mesh_has_every_way() {
        let mut some = ways(4, |_, _| 10);
        assert_eq!(meshed(&some), Some(4));
        some.pop();
        assert_eq!((meshed(&some), meshed(&ways(2, |_, _| 10)), meshed(&[])), (None, None, None));
    }

    #[test]
    fn unevenness_is_a_share_of_the_greatest() {
        assert_eq!(apart([100, 90, 95].into_iter()), 10.0);
        assert_eq!((apart([0, 0].into_iter()), apart(std::iter::empty())), (0.0, 0.0));
    }
}
