//! Figures without a value, and why.

use crate::grid::distinct_title;
use crate::rank::{Entry, Ranked};
use crate::view::View;
use drophammer_model::outcome::{Blame, Missing};

impl Ranked {
    /// Who is to blame that a DUT has no value, as far as the test said so.
    fn blame(&self, dut: usize) -> Option<Blame> {
        Some(self.entries[dut].missing()?.by)
    }
}

impl Entry {
    /// Why it has no value, as far as the test said so.
    pub fn missing(&self) -> Option<&Missing> {
        self.figure.as_ref()?.missing.as_ref().filter(|_| self.value().is_none())
    }
}

/// Why a DUT has no value of a figure: `not measured: the host was busy`.
pub fn why_missing(figure: &Ranked, dut: usize) -> Option<String> {
    let missing = figure.entries[dut].missing()?;
    let what = match missing.by {
        Blame::Dut => "no value",
        Blame::Spoilt | Blame::Beyond => "not measured",
        Blame::Nothing => "nothing to measure",
    };
    Some(format!("{what}: {}", missing.why))
}

/// The figures that DUTs have no value of, with the reasons. Those with nothing to measure are no problem.
pub fn missing(view: &View) -> Vec<String> {
    told(view, |by| by != Blame::Nothing)
}

/// The figures of DUTs for which there was nothing to measure, with the reasons.
pub fn nothing(view: &View) -> Vec<String> {
    told(view, |by| by == Blame::Nothing)
}

fn told(view: &View, of_blame: impl Fn(Blame) -> bool) -> Vec<String> {
    let mut lines = Vec::new();
    for figure in &view.ranking.figures {
        for dut in (0..view.duts.len()).filter(|dut| figure.blame(*dut).is_some_and(&of_blame)) {
            let (title, name) = (distinct_title(view, figure), view.dut(dut).name);
            lines.extend(why_missing(figure, dut).map(|why| format!("{title} of {name}: {why}")));
        }
    }
    lines
}
