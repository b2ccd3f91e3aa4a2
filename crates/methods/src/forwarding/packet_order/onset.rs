//! Verdict on the order of frames: whether the router reorders them, and the load at which this begins.

use crate::tester_ceiling::LoopOrder;
use drophammer_judge::statistics::chance_of_more;

/// The router causes the reordering if the probability that the loop shows this much less by chance is at most this.
const CHANCE: f64 = 0.001;

/// Order of frames at a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// No frame was reordered.
    Kept,
    /// Some frames were reordered, but the tester's own loop reorders just as many.
    Doubtful,
    /// The router reorders.
    Changed,
    /// Frames arrived at several queues, or nothing was measured.
    Unknown,
}

impl Order {
    /// The verdict as text.
    pub(super) fn text(self) -> &'static str {
        match self {
            Order::Kept => "kept",
            Order::Doubtful => "not told apart from the tester",
            Order::Changed => "changed",
            Order::Unknown => "not known",
        }
    }
}

/// The verdict for `reordered` frames among `received`, given the result of the loop `without` router. If the share is
/// no larger than in the loop's worst trial, the tester may be the cause.
pub(super) fn judge(reordered: Option<u64>, received: u64, without: Option<LoopOrder>) -> Order {
    let Some(reordered) = reordered else { return Order::Unknown };
    if reordered == 0 {
        return if received > 0 { Order::Kept } else { Order::Unknown };
    }
    let Some(without) = without else { return Order::Changed };
    let share = reordered as f64 / received.max(1) as f64;
    if share * 100.0 <= without.worst_percent {
        return Order::Doubtful;
    }
    let (router, alone) = ((reordered, received), (without.reordered, without.received));
    if chance_of_more(router, alone) < CHANCE { Order::Changed } else { Order::Doubtful }
}

/// A load that was tried.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct At {
    /// In % of line rate.
    pub(super) load: f64,
    /// Load per sending port, in frames per second.
    pub(super) rate_pps: f64,
    /// Verdict on the order.
    pub(super) order: Order,
    /// Number of trials with reordered frames, and number of all trials.
    pub(super) disagree: (u64, u64),
}

/// The load at which reordering begins.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Onset {
    /// The lowest load for which it and all higher loads reorder, in % of line rate; `None` if the highest load does
    /// not reorder.
    pub(super) begins: Option<f64>,
    /// This load per sending port, in frames per second.
    pub(super) begins_pps: Option<f64>,
    /// The next lower load of the test.
    pub(super) below: Option<f64>,
    /// The loads, the highest first.
    all: Vec<At>,
}

/// The onset among `loads`, the highest first.
pub(super) fn onset(loads: &[At]) -> Onset {
    let reordering = loads.iter().take_while(|at| at.order == Order::Changed).count();
    Onset {
        begins: reordering.checked_sub(1).map(|last| loads[last].load),
        begins_pps: reordering.checked_sub(1).map(|last| loads[last].rate_pps),
        below: if reordering == 0 { None } else { loads.get(reordering).map(|at| at.load) },
        all: loads.to_vec(),
    }
}

impl Onset {
    /// The load below the onset.
    fn next_lower(&self) -> Option<&At> {
        let below = self.below?;
        self.all.iter().find(|at| at.load == below)
    }

    /// The onset as text.
    pub(super) fn text(&self) -> String {
        let Some(highest) = self.all.first() else { return "nothing was measured".into() };
        let lower: Vec<String> =
            self.all.iter().filter(|at| at.order == Order::Changed).map(|at| format!("{:.1} %", at.load)).collect();
        match (self.begins, self.below) {
            (Some(begins), Some(below)) => {
                let next = self.next_lower().map_or(Order::Unknown, |at| at.order);
                let isolated = self.all.iter().filter(|at| at.order == Order::Changed && at.load < below).count();
                let also = if isolated > 0 { format!(", and at {isolated} lower loads") } else { String::new() };
                let at_below =
                    if next == Order::Kept { String::new() } else { format!(" (order {} there)", next.text()) };
                format!("above {below:.1} %{at_below}, at most at {begins:.1} % of line rate{also}")
            }
            (Some(begins), None) => format!("at {begins:.1} % of line rate or below: at all loads tried"),
            (None, _) if !lower.is_empty() => {
                format!("order {} at {:.1} %, but changed at {}", highest.order.text(), highest.load, lower.join(", "))
            }
            (None, _) if self.all.iter().all(|at| at.order == Order::Kept) => {
                format!("not up to {:.1} % of line rate", highest.load)
            }
            (None, _) => {
                let open = self.all.iter().filter(|at| at.order != Order::Kept);
                let loads: Vec<String> = open.map(|at| format!("{} at {:.1} %", at.order.text(), at.load)).collect();
                format!("not known: order {} of line rate", loads.join(", "))
            }
        }
    }

    /// The loads at which some trials have reordered frames and others have none.
    pub(super) fn doubt(&self) -> Option<String> {
        let split = self.all.iter().filter(|at| at.disagree.0 > 0 && at.disagree.0 < at.disagree.1);
        let text = |at: &At| format!("{:.1} %: {} of {} trials", at.load, at.disagree.0, at.disagree.1);
        let all: Vec<String> = split.map(text).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// Figure to compare: the load, its step, and whether it is a lower bound. `None` if there is no certain figure. If
    /// all loads reorder, the figure is the lowest load, and its step reaches down to 0: a figure for which higher is
    /// better cannot be an upper bound.
    pub(super) fn figure(&self) -> Option<(f64, f64, bool)> {
        match self.begins {
            // Reordering may begin at the next lower load or below it.
            Some(_) if self.next_lower().is_some_and(|at| at.order != Order::Kept) => None,
            Some(begins) => Some((begins, begins - self.below.unwrap_or(0.0), false)),
            None => {
                let kept = self.all.iter().all(|at| at.order == Order::Kept);
                let highest = self.all.first().filter(|_| kept)?.load;
                let step = self.all.get(1).map_or(highest, |next| highest - next.load);
                Some((highest, step, true))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loop_of(reordered: u64, received: u64, worst_percent: f64) -> Option<LoopOrder> {
        Some(LoopOrder { trials: 3, received, reordered, worst_percent })
    }

    #[test]
    fn a_share_of_the_loop_is_not_the_routers() {
        let m = 1_000_000;
        assert_eq!(judge(Some(0), m, loop_of(5, m, 0.001)), Order::Kept);
        assert_eq!(judge(Some(0), 0, None), Order::Unknown, "nothing arrived");
        assert_eq!(judge(None, m, None), Order::Unknown);
        assert_eq!(judge(Some(1), m, None), Order::Changed, "the loop is unknown");
        // The same share as the loop in one trial, and a lower one.
        assert_eq!(judge(Some(10), m, loop_of(10, m, 0.001)), Order::Doubtful);
        assert_eq!(judge(Some(9), m, loop_of(10, m, 0.001)), Order::Doubtful);
        // If the loop reorders none of a million frames, it may still reorder a few of the next million.
        assert_eq!(judge(Some(5), m, loop_of(0, m, 0.0)), Order::Doubtful);
        assert_eq!(judge(Some(30), m, loop_of(0, m, 0.0)), Order::Changed);
        // The fewer frames the loop has sent, the less certain its rate is.
        assert_eq!(judge(Some(30), m, loop_of(0, m / 100, 0.0)), Order::Doubtful);
        assert_eq!(judge(Some(500_000), m, loop_of(10, m, 0.001)), Order::Changed);
    }

    fn at(load: f64, order: Order) -> At {
        At { load, rate_pps: load * 10.0, order, disagree: (if order == Order::Changed { 3 } else { 0 }, 3) }
    }

    #[test]
    fn reordering_begins_where_all_higher_loads_have_it() {
        use Order::{Changed, Doubtful, Kept, Unknown};
        let of = |orders: [Order; 4]| {
            let loads = [100.0, 75.0, 50.0, 25.0];
            onset(&loads.into_iter().zip(orders).map(|(load, order)| at(load, order)).collect::<Vec<_>>())
        };
        let clear = of([Changed, Changed, Kept, Kept]);
        assert_eq!((clear.begins, clear.below, clear.figure()), (Some(75.0), Some(50.0), Some((75.0, 25.0, false))));
        assert_eq!(clear.begins_pps, Some(750.0));
        assert_eq!(clear.text(), "above 50.0 %, at most at 75.0 % of line rate");
        let never = of([Kept; 4]);
        assert_eq!((never.begins, never.figure()), (None, Some((100.0, 25.0, true))));
        assert_eq!(never.text(), "not up to 100.0 % of line rate");
        let always = of([Changed; 4]);
        assert_eq!((always.begins, always.below, always.figure()), (Some(25.0), None, Some((25.0, 25.0, false))));
        assert!(always.text().contains("or below"));
        // One load in between keeps the order, so the lower one does not count.
        let gap = of([Changed, Kept, Changed, Kept]);
        assert_eq!((gap.begins, gap.below), (Some(100.0), Some(75.0)));
        assert!(gap.text().ends_with("and at 1 lower loads"), "{}", gap.text());
        // The order is kept at the highest load, so there is no figure.
        let odd = of([Kept, Changed, Kept, Kept]);
        assert_eq!((odd.begins, odd.figure()), (None, None));
        assert_eq!(odd.text(), "order kept at 100.0 %, but changed at 75.0 %");
        let doubtful = of([Kept, Doubtful, Kept, Kept]);
        assert_eq!(doubtful.figure(), None);
        assert_eq!(doubtful.text(), "not known: order not told apart from the tester at 75.0 % of line rate");
        let edge = of([Changed, Doubtful, Kept, Kept]);
        assert!(edge.text().contains("(order not told apart from the tester there)"), "{}", edge.text());
        // Reordering may begin at 75 % as well.
        assert_eq!((edge.begins, edge.figure()), (Some(100.0), None));
        assert_eq!(of([Changed, Unknown, Kept, Kept]).figure(), None);
        assert_eq!(of([Changed, Kept, Doubtful, Kept]).figure(), Some((100.0, 25.0, false)));
        assert_eq!(onset(&[]).figure(), None);
    }

    #[test]
    fn trials_that_disagree_are_named() {
        let split = At { load: 60.0, rate_pps: 600.0, order: Order::Changed, disagree: (1, 3) };
        let found = onset(&[at(80.0, Order::Changed), split, at(40.0, Order::Kept)]);
        assert_eq!(found.doubt().as_deref(), Some("60.0 %: 1 of 3 trials"));
        assert_eq!(onset(&[at(80.0, Order::Changed)]).doubt(), None);
    }
}
