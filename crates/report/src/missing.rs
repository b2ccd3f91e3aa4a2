//! Figures without a value, and why.

use crate::grid::distinct_title;
use crate::rank::{Entry, Ranked};
use crate::view::View;
use drophammer_model::outcome::{Blame, Missing};

impl Entry {
    /// Why it has no value, as far as the test said so.
    pub fn missing(&self) -> Option<&Missing> {
        self.figure.as_ref()?.missing.as_ref().filter(|_| self.value().is_none())
    }
}

/// Why a DUT has no value of a figure: `not measured: the host was busy`.
pub fn why_missing(figure: &Ranked, dut: usize) -> Option<String> {
    let missing = figure.entries[dut].missing()?;
    Some(format!("{}: {}", if missing.by == Blame::Dut { "no value" } else { "not measured" }, missing.why))
}

/// The figures that DUTs have no value of, with the reasons.
pub fn missing(view: &View) -> Vec<String> {
    let of = |figure| {
        let one = move |dut: usize| {
            let (title, dut_name) = (distinct_title(view, figure), view.dut(dut).name);
            Some(format!("{title} of {dut_name}: {}", why_missing(figure, dut)?))
        };
        (0..view.duts.len()).filter_map(one)
    };
    view.ranking.figures.iter().flat_map(of).collect()
}
