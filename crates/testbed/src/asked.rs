//! Trials that check whether the DUT still answers its operator.

use crate::bench::failed;
use crate::setup::{Planned, TestSetup};
use drophammer_lab::Asking;
use drophammer_methods::{TestError, Testbed};
use drophammer_model::Instant;
use drophammer_model::management::{Answered, Answers, Inquiry, Question};
use drophammer_model::trial::{Family, PortIndex, TimedEvent, TrialSpec};
use drophammer_rig::{Act, AskBanner, Echo, Hosts};
use std::time::Duration;

/// The port whose emulated device asks the router.
const PORT: PortIndex = 0;
/// Time limit for an answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Maximum number of questions of one kind during a trial. More of them would be a load of their own.
const MOST: usize = 10_000;

/// A question that the emulated device of [`PORT`] asks over its link when the trial reaches an event.
#[derive(Clone, Copy)]
struct OverLink {
    question: Question,
    family: Family,
}

impl OverLink {
    fn act(self) -> Act {
        match self.question {
            Question::Ssh => Act::banner(AskBanner(self.family)),
            _ => Act::ping(Echo::gateway(self.family)),
        }
    }

    /// Offset of the question within each interval, as a fraction. It differs between kinds so that questions do not
    /// coincide.
    fn place(self) -> f64 {
        if self.question == Question::Ssh { 0.75 } else { 0.5 }
    }

    fn label(self) -> &'static str {
        if self.question == Question::Ssh { "ask the router for its SSH banner" } else { "ping the router" }
    }

    /// Number of questions asked so far.
    fn asked(self, hosts: &Hosts) -> u64 {
        match self.question {
            Question::Ssh => hosts.banner(PORT).map_or(0, |banner| banner.stats().asked),
            _ => hosts.ping(PORT).and_then(|ping| ping.stats(self.family)).map_or(0, |stats| stats.asked),
        }
    }

    /// Questions answered in time, oldest first: when each was asked, and how long the answer took.
    fn answered(self, hosts: &Hosts) -> Vec<(Instant, Duration)> {
        let mut times: Vec<_> = match self.question {
            Question::Ssh => {
                let greetings = hosts.banner(PORT).map_or(&[][..], |banner| banner.greetings());
                greetings.iter().map(|greeting| (greeting.asked, greeting.took)).collect()
            }
            _ => {
                let trips = hosts.ping(PORT).map_or(&[][..], |ping| ping.trips(self.family));
                trips.iter().map(|trip| (trip.departed, trip.took)).collect()
            }
        };
        times.retain(|(_, took)| *took <= PATIENCE);
        times.sort_unstable();
        times
    }
}

/// The questions asked during a trial.
pub(crate) struct Questions {
    over_link: Vec<OverLink>,
    /// When the trial began.
    begin: Mark,
    /// Questions that do not use the tester's ports.
    beside: Vec<Asking>,
}

/// Number of questions asked up to an instant.
#[derive(Clone)]
struct Mark {
    at: Instant,
    asked: Vec<u64>,
}

impl TestSetup<'_> {
    /// Starts asking the DUT, and adds the questions over the link to the trial.
    pub(crate) fn begin_asking(&mut self, inquiry: &Inquiry, planned: &mut Planned) -> Result<Questions, TestError> {
        let over_link = self.over_link(&planned.spec, inquiry);
        for asked in &over_link {
            let events = questions(&planned.spec, *asked, planned.acts.len(), inquiry.interval);
            planned.spec.events.extend(events);
            planned.acts.push(vec![(PORT, asked.act())]);
        }
        let asked = match self.routing.bench.device.management() {
            Some(device) => device.ask(&inquiry.questions, inquiry.interval),
            None => Ok(Vec::new()),
        };
        let beside = asked.map_err(failed)?;
        self.rig().forget_answers();
        let begin = self.mark(&over_link);
        Ok(Questions { over_link, begin, beside })
    }

    /// Asks for some more time after the trial, waits for the last answers, and returns all of them.
    pub(crate) fn answers_to(&mut self, asked: Questions, inquiry: &Inquiry) -> Result<Vec<Answered>, TestError> {
        let Questions { over_link, begin, beside } = asked;
        let (end, over) = (self.mark(&over_link), std::time::Instant::now());
        let mut asked = Duration::ZERO;
        while asked < inquiry.afterwards {
            for question in &over_link {
                self.rig().command(PORT, &question.act()).map_err(|e| TestError::Failed(e.to_string()))?;
            }
            self.settle(inquiry.interval)?;
            asked += inquiry.interval;
        }
        let last = self.mark(&over_link);
        self.await_answers(&over_link, &begin, &last)?;
        let name = self.routing.bench.facts.ports[PORT].name.clone();
        let answered = over_link.iter().enumerate().map(|(index, asked)| Answered {
            question: asked.question,
            over: format!("port {name}"),
            during: self.answers(*asked, index, &begin, &end),
            afterwards: self.answers(*asked, index, &end, &last),
        });
        let mut answered: Vec<Answered> = answered.collect();
        // Late answers to these questions must not count for the next trial.
        self.rig().forget_answers();
        answered.extend(beside.into_iter().map(|asking| beside_ports(asking, over)));
        Ok(answered)
    }

    /// Returns the requested questions that can be asked over the link.
    fn over_link(&mut self, spec: &TrialSpec, inquiry: &Inquiry) -> Vec<OverLink> {
        // Questions and answers would travel between hosts, so a late or missing answer would not be the router's.
        if self.routing.bench.rig.is_far() {
            return Vec::new();
        }
        let family = spec.flows.first().map_or(Family::Ipv4, |flow| flow.family);
        let has_address = self.routing.bench.facts.ports[PORT].addressing(family).is_some();
        let has_ssh = self.routing.bench.device.management().is_some_and(|device| device.has_ssh());
        let possible = |question: &Question| match question {
            Question::Ping => has_address,
            Question::Ssh => has_address && has_ssh,
            Question::Snmp => false,
        };
        let mut questions: Vec<Question> = inquiry.questions.iter().copied().filter(possible).collect();
        questions.sort_unstable();
        questions.dedup();
        questions.into_iter().map(|question| OverLink { question, family }).collect()
    }

    fn mark(&mut self, over_link: &[OverLink]) -> Mark {
        let rig = self.rig();
        Mark { at: rig.now(), asked: over_link.iter().map(|asked| asked.asked(rig.hosts())).collect() }
    }

    /// Waits until all questions from `begin` to `last` are answered or have timed out.
    fn await_answers(&mut self, over_link: &[OverLink], begin: &Mark, last: &Mark) -> Result<(), TestError> {
        let deadline = self.rig().now() + PATIENCE;
        loop {
            let hosts = self.rig().hosts();
            let waits = over_link.iter().enumerate().any(|(index, asked)| {
                let since = asked.answered(hosts).into_iter().filter(|(at, _)| *at >= begin.at).count() as u64;
                since < last.asked[index] - begin.asked[index]
            });
            if !waits || self.rig().now() >= deadline {
                return Ok(());
            }
            self.settle(Duration::from_millis(20))?;
        }
    }

    /// Returns the answers to the questions of kind `index` (in the marks) that were asked between two marks.
    fn answers(&self, asked: OverLink, index: usize, from: &Mark, to: &Mark) -> Answers {
        let times = asked.answered(self.routing.bench.rig.hosts()).into_iter();
        let times = times.filter(|(at, _)| from.at <= *at && *at < to.at).map(|(_, took)| took).collect();
        Answers { asked: to.asked[index] - from.asked[index], times }
    }
}

/// Returns the answers to questions that did not use the tester's ports, before and after the trial ended at `over`.
fn beside_ports(asking: Asking, over: std::time::Instant) -> Answered {
    let (question, way) = (asking.question, asking.over.clone());
    let asked = asking.end();
    let of = |during: bool| {
        let phase: Vec<_> = asked.iter().filter(|(sent, _)| (*sent < over) == during).collect();
        Answers { asked: phase.len() as u64, times: phase.iter().filter_map(|(_, time)| *time).collect() }
    };
    Answered { question, over: way, during: of(true), afterwards: of(false) }
}

/// Returns the instants of a trial at which the router is asked: one in each interval.
fn questions(spec: &TrialSpec, asked: OverLink, event: usize, interval: Duration) -> Vec<TimedEvent> {
    let (interval_s, sending_s) = (interval.as_secs_f64().max(1e-3), spec.sending_time().as_secs_f64());
    let at = (0..MOST).map(|n| (n as f64 + asked.place()) * interval_s).take_while(|at_s| *at_s < sending_s);
    at.map(|at_s| TimedEvent::new(at_s, event, asked.label())).collect()
}
