//! Trials during which the DUT is asked whether it still answers its operator.

use crate::bench::failed;
use crate::setup::TestSetup;
use drophammer_methods::{TestError, Testbed};
use drophammer_model::Instant;
use drophammer_model::management::{Answered, Answers, Inquiry, Question};
use drophammer_model::trial::{Family, PortIndex, TimedEvent, TrialResult, TrialSpec};
use drophammer_rig::{Act, Echo};
use std::time::Duration;

/// The port whose device pings the router.
const PORT: PortIndex = 0;
/// The last questions are given so long for an answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Questions of one kind during a trial; more would be a load of their own.
const MOST: usize = 10_000;

/// Requests until now, and when that is.
#[derive(Clone, Copy)]
struct Mark {
    at: Instant,
    asked: u64,
}

impl TestSetup<'_> {
    /// An attempt at a trial with questions to the DUT; says with the result whether a port failed.
    pub(crate) fn asked_attempt(
        &mut self,
        spec: &TrialSpec,
        inquiry: &Inquiry,
        attempt: u32,
    ) -> Result<((TrialResult, Vec<Answered>), bool), TestError> {
        let family = spec.flows.first().map_or(Family::Ipv4, |flow| flow.family);
        let pings = inquiry.questions.contains(&Question::Ping);
        let acts = vec![vec![(PORT, Act::Ping(Echo::gateway(family)))]];
        let mut spec = spec.clone();
        if pings {
            spec.events.extend(questions(&spec, inquiry.interval));
        }
        let snmp = match inquiry.questions.contains(&Question::Snmp) {
            true => self.routing.bench.device.ask_snmp(inquiry.interval).map_err(failed)?,
            false => None,
        };
        let begin = self.mark(family);
        let (result, port_failed) = self.routing.bench.attempt(&spec, &acts, attempt)?;
        let (end, over) = (self.mark(family), std::time::Instant::now());
        let mut asked = Duration::ZERO;
        while asked < inquiry.afterwards {
            if pings {
                let now = self.rig().now();
                self.rig().hosts.run(now, PORT, &Act::Ping(Echo::gateway(family)));
            }
            self.settle(inquiry.interval)?;
            asked += inquiry.interval;
        }
        let last = self.mark(family);
        if pings {
            self.await_answers(family, PATIENCE)?;
        }
        let answered = pings.then(|| Answered {
            question: Question::Ping,
            over: format!("port {}", self.routing.bench.views[PORT].name),
            during: self.answers(family, begin, end),
            afterwards: self.answers(family, end, last),
        });
        let by_snmp = snmp.map(|questions| by_snmp(&questions.end(), over));
        Ok(((result, answered.into_iter().chain(by_snmp).collect()), port_failed))
    }

    fn mark(&mut self, family: Family) -> Mark {
        let rig = self.rig();
        let asked = rig.hosts.ping(PORT).and_then(|ping| ping.stats(family)).map_or(0, |stats| stats.asked);
        Mark { at: rig.now(), asked }
    }

    /// Waits until all requests are answered, or `patience` is over.
    fn await_answers(&mut self, family: Family, patience: Duration) -> Result<(), TestError> {
        let waits = |setup: &mut Self| {
            let stats = setup.rig().hosts.ping(PORT).and_then(|ping| ping.stats(family));
            stats.is_some_and(|stats| stats.received < stats.asked)
        };
        let deadline = self.rig().now() + patience;
        while waits(self) && self.rig().now() < deadline {
            self.settle(Duration::from_millis(20))?;
        }
        Ok(())
    }

    fn answers(&mut self, family: Family, from: Mark, to: Mark) -> Answers {
        let trips = self.rig().hosts.ping(PORT).map_or(&[][..], |ping| ping.trips(family));
        let mut trips: Vec<_> = trips.iter().filter(|trip| from.at <= trip.departed && trip.departed < to.at).collect();
        trips.sort_unstable_by_key(|trip| trip.number);
        Answers { asked: to.asked - from.asked, times: trips.into_iter().map(|trip| trip.took).collect() }
    }
}

/// Questions to the agent, those before and those after the trial was `over`.
fn by_snmp(asked: &[(std::time::Instant, Option<Duration>)], over: std::time::Instant) -> Answered {
    let of = |during: bool| {
        let phase: Vec<_> = asked.iter().filter(|(sent, _)| (*sent < over) == during).collect();
        Answers { asked: phase.len() as u64, times: phase.iter().filter_map(|(_, time)| *time).collect() }
    };
    Answered { question: Question::Snmp, over: "loopback".into(), during: of(true), afterwards: of(false) }
}

/// The instants of a trial at which the router is asked: in the middle of each interval.
fn questions(spec: &TrialSpec, interval: Duration) -> Vec<TimedEvent> {
    let (interval_s, sending_s) = (interval.as_secs_f64().max(1e-3), spec.sending_time().as_secs_f64());
    let at = (0..MOST).map(|n| (n as f64 + 0.5) * interval_s).take_while(|at_s| *at_s < sending_s);
    at.map(|at_s| TimedEvent { at_s, event: 0, label: "ping the router".into() }).collect()
}
