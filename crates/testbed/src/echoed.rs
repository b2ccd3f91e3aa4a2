//! Trials with echo requests, and their round-trip times.

use crate::setup::{Planned, TestSetup};
use drophammer_methods::{TestError, Testbed};
use drophammer_model::echo::{EchoRequest, EchoTarget, EchoTimes, smallest};
use drophammer_model::trial::{Family, PortIndex, TimedEvent};
use drophammer_rig::{Act, Echo};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// Time limit for replies to the last requests.
const PATIENCE: Duration = Duration::from_secs(1);

/// Target of a request, and its number among the requests with the same port and family.
#[derive(Clone, Copy)]
pub(crate) struct Numbered {
    to: Option<IpAddr>,
    number: u64,
}

impl TestSetup<'_> {
    /// Adds echo requests to the trial, and returns their numbers.
    pub(crate) fn begin_echo(
        &mut self,
        requests: &[EchoRequest],
        planned: &mut Planned,
    ) -> Result<Vec<Numbered>, TestError> {
        let numbered = self.number(requests)?;
        for (request, Numbered { to, .. }) in requests.iter().zip(&numbered) {
            let label = match request.to {
                EchoTarget::Router => "ping the router".to_owned(),
                EchoTarget::Port(port) => format!("ping port {}", self.routing.bench.facts.ports[port].name),
            };
            let echo = Echo { family: request.family, to: *to, data: request.data() };
            planned.at(TimedEvent::new(request.at.as_secs_f64(), 0, label), vec![(request.from, Act::ping(echo))]);
        }
        if !requests.is_empty() {
            self.rig().forget_answers();
        }
        Ok(numbered)
    }

    /// Returns the times of the requests, once the replies to the last request have arrived.
    pub(crate) fn echo_times(
        &mut self,
        requests: &[EchoRequest],
        numbered: &[Numbered],
    ) -> Result<Vec<Option<EchoTimes>>, TestError> {
        let deadline = self.rig().now() + PATIENCE;
        loop {
            let of = |(request, numbered)| self.times(request, numbered);
            let times: Vec<_> = requests.iter().zip(numbered.iter().copied()).map(of).collect();
            if times.iter().all(Option::is_some) || self.rig().now() >= deadline {
                return Ok(times);
            }
            self.settle(Duration::from_millis(20))?;
        }
    }

    /// Returns the target and number of each request. Requests of one port and family leave in order of their times;
    /// requests with the same time leave in the order of the list.
    fn number(&mut self, requests: &[EchoRequest]) -> Result<Vec<Numbered>, TestError> {
        let mut numbered = vec![Numbered { to: None, number: 0 }; requests.len()];
        let mut order: Vec<usize> = (0..requests.len()).collect();
        order.sort_by_key(|at| requests[*at].at);
        let mut next: BTreeMap<(PortIndex, Family), u64> = BTreeMap::new();
        for at in order {
            let EchoRequest { from, to, family, frame_bytes, .. } = requests[at];
            let to = match to {
                EchoTarget::Router => None,
                EchoTarget::Port(port) => Some(self.echo_address(port, family)?),
            };
            self.echo_address(from, family)?;
            let largest = self.ports().get(from).map_or(0, |port| port.largest_frame);
            if frame_bytes < smallest(family) || usize::from(frame_bytes) > largest {
                let why = format!(
                    "the frame of an {family} echo request has {} to {largest} bytes, not {frame_bytes}",
                    smallest(family)
                );
                return Err(TestError::NotApplicable(why));
            }
            let asked = self.rig().hosts().ping(from).and_then(|ping| ping.stats(family)).map(|stats| stats.asked);
            let first = asked.ok_or_else(|| self.no_address(from, family))?;
            let number = next.entry((from, family)).or_insert(first);
            numbered[at] = Numbered { to, number: *number };
            *number += 1;
        }
        Ok(numbered)
    }

    /// Returns the address of a port's emulated device.
    fn echo_address(&self, port: PortIndex, family: Family) -> Result<IpAddr, TestError> {
        let view = self.routing.bench.facts.ports.get(port);
        view.and_then(|view| view.addressing(family)).map(|a| a.host).ok_or_else(|| self.no_address(port, family))
    }

    fn no_address(&self, port: PortIndex, family: Family) -> TestError {
        let name = self.routing.bench.facts.ports.get(port).map_or_else(|| port.to_string(), |view| view.name.clone());
        TestError::NotApplicable(format!("port {name} has no {family} address to ping from or to"))
    }

    /// Returns the times of a request if its reply has arrived.
    fn times(&self, request: &EchoRequest, Numbered { number, .. }: Numbered) -> Option<EchoTimes> {
        let EchoRequest { from, to, family, .. } = *request;
        let hosts = self.routing.bench.rig.hosts();
        let trip = hosts.ping(from)?.trips(family).iter().find(|trip| trip.number == number)?;
        let own = match to {
            EchoTarget::Router => Duration::ZERO,
            EchoTarget::Port(port) => {
                let source = self.echo_address(from, family).ok()?;
                let back = trip.departed + trip.took;
                // If a router duplicates a request, it is answered twice; the first reply ends the round trip.
                let served = hosts.ping(port)?.served().iter().find(|served| {
                    let same = served.source == source && served.sequence == number as u16;
                    same && served.arrived >= trip.departed && served.arrived <= back
                })?;
                served.departed.since(served.arrived)
            }
        };
        Some(EchoTimes { round_trip: trip.took, own })
    }
}
