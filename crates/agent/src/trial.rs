//! Where a host stands in the trials of a lease. Requests can come twice, late, or in another order than they were made;
//! each names its attempt, and these rules decide whether it still counts.

use crate::message::Over;

/// The trial of a loan. `L` is a handle to its traffic.
pub(crate) struct Trial<L> {
    /// The attempt that was started; 0 if there is none.
    attempt: u64,
    /// The newest attempt that may be planned and started.
    newest: u64,
    live: Option<L>,
    over: Option<Over>,
    /// The newest switching of a link.
    link: u64,
}

impl<L> Default for Trial<L> {
    fn default() -> Trial<L> {
        Trial { attempt: 0, newest: 0, live: None, over: None, link: 0 }
    }
}

/// Traffic that the caller must end, if there is any.
pub(crate) type Ending<L> = Option<L>;

impl<L> Trial<L> {
    /// Returns the attempt that was started, or 0, and how it ended, if it has.
    pub(crate) fn state(&self) -> (u64, Option<&Over>) {
        (self.attempt, self.over.as_ref())
    }

    /// Returns the traffic, if there is any.
    pub(crate) fn live(&self) -> Option<&L> {
        self.live.as_ref()
    }

    /// Returns the traffic of this attempt.
    pub(crate) fn live_of(&self, attempt: u64) -> Option<&L> {
        self.live.as_ref().filter(|_| self.attempt == attempt)
    }

    /// Ends the trial, and forgets how it ended.
    pub(crate) fn end(&mut self) -> Ending<L> {
        (self.attempt, self.over) = (0, None);
        self.live.take()
    }

    /// Takes a request to plan.
    ///
    /// # Errors
    /// The request is late.
    pub(crate) fn plan(&mut self, attempt: u64) -> Result<Ending<L>, String> {
        if attempt < self.newest || attempt == self.attempt {
            return Err(format!("a late plan of attempt {attempt}"));
        }
        self.newest = attempt;
        Ok(self.end())
    }

    /// Takes a request to start. Returns false if it came twice.
    ///
    /// # Errors
    /// The request is late.
    pub(crate) fn start(&mut self, attempt: u64) -> Result<bool, String> {
        if self.attempt == attempt {
            return Ok(false);
        }
        if self.newest != attempt {
            return Err(format!("a late start of attempt {attempt}"));
        }
        self.attempt = attempt;
        Ok(true)
    }

    /// Takes the traffic of a start. It must end if the attempt was abandoned in the meantime.
    pub(crate) fn started(&mut self, attempt: u64, live: L) -> Ending<L> {
        if self.attempt != attempt {
            return Some(live);
        }
        self.live.replace(live)
    }

    /// Takes how an attempt ended; attempt 0 if the ports failed between trials.
    pub(crate) fn ended(&mut self, attempt: u64, over: Over) {
        if attempt == self.attempt || attempt == 0 {
            self.over = Some(over);
        }
    }

    /// Takes a request to abandon.
    pub(crate) fn abandon(&mut self, attempt: u64) -> Ending<L> {
        if attempt < self.newest {
            return None;
        }
        // Its plan and start may still be under way.
        self.newest = attempt + 1;
        self.end()
    }

    /// Returns the number of the newest request to switch a link.
    pub(crate) fn newest_link(&self) -> u64 {
        self.link
    }

    /// Takes a request to switch a link, by its number. Returns false if it came twice.
    ///
    /// # Errors
    /// The request is late.
    pub(crate) fn link(&mut self, number: u64) -> Result<bool, String> {
        if number < self.link {
            return Err(format!("a late request {number} to switch a link"));
        }
        let is_new = number > self.link;
        self.link = number;
        Ok(is_new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_rig::Refusals;
    use proptest::prelude::*;
    use std::collections::{BTreeSet, VecDeque};

    #[derive(Clone, Copy, Debug)]
    enum Event {
        Plan(u64),
        Start(u64),
        Abandon(u64),
        /// The thread of the ports takes its next order, or ends what it runs.
        Thread,
    }

    /// Requests of a controller in their order, some of them once more at any later place.
    fn requests() -> impl Strategy<Value = Vec<Event>> {
        let attempts = proptest::collection::vec(0u8..3, 1..6);
        let copies = proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..12);
        let turns = proptest::collection::vec(any::<prop::sample::Index>(), 0..40);
        (attempts, copies, turns).prop_map(|(attempts, copies, turns)| {
            let mut made = Vec::new();
            for (n, kind) in attempts.iter().enumerate() {
                let attempt = 1 + n as u64;
                made.push(Event::Plan(attempt));
                made.extend((*kind > 0).then_some(Event::Start(attempt)));
                made.extend((*kind != 1).then_some(Event::Abandon(attempt)));
            }
            for (which, place) in copies {
                let from = which.index(made.len());
                let to = from + 1 + place.index(made.len() - from);
                made.insert(to, made[from]);
            }
            turns.iter().for_each(|place| made.insert(place.index(made.len() + 1), Event::Thread));
            made
        })
    }

    enum Order {
        Plan(u64),
        Start(u64),
    }

    /// The thread of the ports: what is planned, and which attempts it ran.
    #[derive(Default)]
    struct Thread {
        orders: VecDeque<Order>,
        planned: Option<u64>,
        runs: Option<u64>,
        ran: Vec<u64>,
    }

    proptest! {
        #[test]
        fn requests_that_come_twice_or_late_have_no_effect(events in requests()) {
            let good = || Over::Good { refusals: Refusals::default(), waited_ns: None, stolen_ns: None, lost: 0 };
            let (mut trial, mut thread) = (Trial::<u64>::default(), Thread::default());
            let (mut ended, mut abandoned) = (BTreeSet::new(), 0);
            for event in events.into_iter().chain([Event::Thread; 40]) {
                match event {
                    Event::Plan(attempt) => if let Ok(ending) = trial.plan(attempt) {
                        prop_assert!(attempt > abandoned, "a plan of an abandoned attempt");
                        ended.extend(ending);
                        thread.orders.push_back(Order::Plan(attempt));
                    },
                    Event::Start(attempt) => if trial.start(attempt) == Ok(true) {
                        prop_assert!(attempt > abandoned, "a start of an abandoned attempt");
                        thread.orders.push_back(Order::Start(attempt));
                    },
                    Event::Abandon(attempt) => {
                        let before = trial.state().0;
                        ended.extend(trial.abandon(attempt));
                        abandoned = abandoned.max(attempt);
                        // The end of an attempt does not end a later one.
                        prop_assert!(before <= attempt || trial.state().0 == before);
                    }
                    Event::Thread => match (thread.runs.take(), thread.orders.pop_front()) {
                        (Some(attempt), order) => {
                            order.into_iter().for_each(|order| thread.orders.push_front(order));
                            trial.ended(attempt, good());
                        }
                        (None, Some(Order::Plan(attempt))) => thread.planned = Some(attempt),
                        (None, Some(Order::Start(attempt))) => {
                            prop_assert_eq!(thread.planned.take(), Some(attempt), "it starts what was planned for it");
                            (thread.runs, thread.ran) = (Some(attempt), [thread.ran, vec![attempt]].concat());
                            ended.extend(trial.started(attempt, attempt));
                        }
                        (None, None) => {}
                    }
                }
                // Nobody hears of an end of another attempt than the one that was started.
                let (attempt, over) = trial.state();
                prop_assert!(over.is_none() || thread.ran.contains(&attempt));
                prop_assert!(trial.live().is_none_or(|live| *live == attempt));
                prop_assert!(attempt == 0 || attempt > abandoned);
            }
            prop_assert!(thread.ran.is_sorted_by(|a, b| a < b), "no attempt runs twice: {:?}", thread.ran);
            // Whatever ran is the present trial, or was ended.
            let present = trial.live().copied();
            prop_assert!(thread.ran.iter().all(|attempt| Some(*attempt) == present || ended.contains(attempt)));
        }

        #[test]
        fn a_link_is_switched_by_the_newest_request_only(numbers in proptest::collection::vec(1u64..20, 1..40)) {
            let mut trial = Trial::<()>::default();
            let mut newest = 0;
            for number in numbers {
                prop_assert_eq!(trial.link(number).unwrap_or(false), number > newest);
                newest = newest.max(number);
            }
        }
    }
}
