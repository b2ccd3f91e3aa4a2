//! The device's counters before and after a trial.

use std::collections::BTreeMap;

/// Returns the increases of the counters that grew. A new counter started at 0 if `from_zero`; otherwise its increase
/// is unknown and left out.
pub(super) fn grown(
    before: &BTreeMap<String, u64>,
    now: BTreeMap<String, u64>,
    from_zero: bool,
) -> BTreeMap<String, u64> {
    let by = |(name, now): (String, u64)| {
        let before = before.get(&name).copied().or(from_zero.then_some(0))?;
        (now > before).then(|| (name, now - before))
    };
    now.into_iter().filter_map(by).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_grow_from_what_they_were() {
        let of = |all: &[(&str, u64)]| all.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect::<BTreeMap<_, _>>();
        let before = of(&[("rx", 14_711), ("same", 5), ("reset", 9)]);
        let now = || of(&[("rx", 15_000), ("same", 5), ("reset", 2), ("new", 7)]);
        assert_eq!(grown(&before, now(), true), of(&[("rx", 289), ("new", 7)]));
        assert_eq!(grown(&before, now(), false), of(&[("rx", 289)]));
    }
}
