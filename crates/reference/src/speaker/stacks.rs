//! The TCP stacks of the speaker. A PE router has thousands of interfaces, so a segment or a timer costs its own stack only.

use drophammer_emulation::tcp::TcpStack;
use drophammer_model::Instant;
use std::collections::BTreeSet;

/// Stacks by number. Those that may have something to do are listed.
pub(super) struct Stacks {
    all: Vec<TcpStack>,
    /// Stacks that were used since the last [`Stacks::settle`], each once, and a mark for each stack in this list.
    used: Vec<usize>,
    marks: Vec<bool>,
    /// The deadline of each stack, and all deadlines in order.
    due: Vec<Option<Instant>>,
    order: BTreeSet<(Instant, usize)>,
}

impl Stacks {
    pub fn new(all: Vec<TcpStack>) -> Stacks {
        let count = all.len();
        Stacks {
            all,
            used: (0..count).collect(),
            marks: vec![true; count],
            due: vec![None; count],
            order: BTreeSet::new(),
        }
    }

    pub fn get(&self, number: usize) -> &TcpStack {
        &self.all[number]
    }

    /// A stack to use, which is listed from now on.
    pub fn get_mut(&mut self, number: usize) -> &mut TcpStack {
        self.list(number);
        &mut self.all[number]
    }

    fn list(&mut self, number: usize) {
        if !std::mem::replace(&mut self.marks[number], true) {
            self.used.push(number);
        }
    }

    /// Lists the stacks whose deadline is `now` or earlier.
    pub fn list_due(&mut self, now: Instant) {
        while let Some((_, number)) = self.order.first().copied().filter(|(at, _)| *at <= now) {
            self.order.pop_first();
            self.due[number] = None;
            self.list(number);
        }
    }

    /// The listed stacks in ascending order.
    pub fn listed(&mut self) -> Vec<usize> {
        self.used.sort_unstable();
        self.used.clone()
    }

    /// Notes the deadlines of the listed stacks, and empties the list.
    pub fn settle(&mut self) {
        for number in self.used.drain(..) {
            self.marks[number] = false;
            let due = self.all[number].next_deadline();
            if due != self.due[number] {
                if let Some(before) = std::mem::replace(&mut self.due[number], due) {
                    self.order.remove(&(before, number));
                }
                self.order.extend(due.map(|at| (at, number)));
            }
        }
    }

    /// The first deadline at the last [`Stacks::settle`].
    pub fn next_deadline(&self) -> Option<Instant> {
        self.order.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_emulation::tcp::TcpConfig;
    use std::net::{IpAddr, SocketAddr};

    #[test]
    fn only_stacks_with_something_to_do_are_listed() {
        let (own, peer) = (IpAddr::from([192, 0, 2, 1]), SocketAddr::from(([192, 0, 2, 2], 179)));
        let stack = |_| {
            let mut stack = TcpStack::new(TcpConfig::new(1500, 1));
            stack.add_host(own);
            stack
        };
        let mut stacks = Stacks::new((0..1000).map(stack).collect());
        assert_eq!(stacks.listed().len(), 1000, "each has to say when it is due");
        stacks.settle();
        assert_eq!((stacks.listed().len(), stacks.next_deadline()), (0, None));
        for number in [700, 3, 700] {
            stacks.get_mut(number).connect(Instant(1), own, peer);
        }
        assert_eq!(stacks.listed(), [3, 700]);
        stacks.settle();
        assert_eq!((stacks.listed().len(), stacks.next_deadline()), (0, Some(Instant(0))), "two SYNs wait");
        stacks.list_due(Instant(1));
        let mut sent = Vec::new();
        for number in stacks.listed() {
            stacks.get_mut(number).poll(Instant(1), &mut |_| sent.push(number));
        }
        assert_eq!(sent, [3, 700, 700]);
        stacks.settle();
        // Nobody answers, so the SYNs are repeated when they are due, and not before.
        let repeat = stacks.next_deadline().unwrap();
        stacks.list_due(Instant(repeat.0 - 1));
        assert!(stacks.listed().is_empty());
        stacks.list_due(repeat);
        assert!(!stacks.listed().is_empty());
    }
}
