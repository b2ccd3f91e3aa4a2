//! A trial in a loop: what its packets added to every counter, and how long they circulated.

use super::Circle;
use super::counted::{self, Compared, Counter, Ended, Grown, told};
use crate::kit::prelude::*;
use crate::trial::{LastGrowth, RoutersSeen, Stillness, not_seen};
use drophammer_model::beside::OtherTraffic;

/// Maximum number of counters and places named in one sentence.
const NAMED: usize = 6;

/// A trial and the result of its packets.
pub(super) struct Circled {
    pub result: TrialResult,
    pub routers: RoutersSeen,
    /// Received frames other than test frames.
    pub other: OtherTraffic,
    /// Growth of all counters.
    pub grown: Grown,
    /// Growth without frames that the routers sent on their own, as far as known: [`counted::Expected::without_own`].
    pub of_packets: Grown,
    pub compared: Vec<Compared>,
    pub ended: Vec<Ended>,
    /// When the last packet passed a counter that ICMP errors do not pass. ARP of a router can be later.
    pub went_on: LastGrowth,
    /// When the last packet passed the tunnel, which carries nothing else; same as `went_on` if no packet passes it.
    pub in_tunnel: LastGrowth,
}

impl Circled {
    pub fn injected(&self) -> u64 {
        self.result.offered()
    }

    /// ICMP errors that came back.
    pub fn errors(&self) -> u64 {
        self.other.unmatched_errors
    }

    /// Packets injected per second.
    pub fn rate(&self) -> FrameRate {
        self.result.offered_load()
    }

    /// Time during which packets were injected, in seconds.
    pub fn seconds(&self) -> f64 {
        self.injected() as f64 / self.rate().pps().max(f64::MIN_POSITIVE)
    }

    /// Minimum time by which packets circulated longer than in the trial without queueing, whose last packet was in the
    /// tunnel at `alone` or earlier.
    pub fn longer_than(&self, alone: Duration) -> Duration {
        self.in_tunnel.at_least.saturating_sub(alone)
    }

    /// Returns true if every counter has at least its expected value.
    pub fn is_lossless(&self) -> bool {
        self.injected() > 0 && self.compared.iter().all(|compared| compared.difference() >= 0)
    }

    /// Packets that all routers forwarded, without ICMP errors and frames that the routers sent on their own.
    pub fn sent_on(&self, circle: &Circle) -> u64 {
        circle.expected.sent_on(&self.of_packets, self.errors())
    }

    /// Forwarded packets per injected packet.
    pub fn amplification(&self, circle: &Circle) -> f64 {
        self.sent_on(circle) as f64 / self.injected().max(1) as f64
    }
}

/// Runs a trial and compares all counters.
pub(super) fn circled(
    bed: &mut dyn Testbed,
    circle: &Circle,
    spec: &TrialSpec,
    stillness: Stillness,
) -> Result<Circled, TestError> {
    let seen = bed.run(&Trial { routers: Some(stillness), ..Trial::new(spec.clone()) })?;
    let Seen { result, routers: Some(routers), other: Some(other), .. } = seen else {
        return Err(not_seen("the counters of routers inside a DUT"));
    };
    let Some(grew) = &routers.grew else {
        return Err(TestError::Failed(format!(
            "packets circulate endlessly: counters of the routers still grow {:.1} s after the trial, although its packets have a TTL of {}",
            stillness.patience.as_secs_f64(),
            circle.ttl
        )));
    };
    let (injected, errors) = (result.offered(), other.unmatched_errors);
    let grown = counted::grown(&routers);
    let unread = |counter: Counter| {
        let place = counted::counter_place(&circle.system, counter.router, counter.at, &circle.ports);
        TestError::Failed(format!("{} shows no counters for its {place}", counted::router_name(counter.router)))
    };
    let compared = circle.expected.compare(&grown, injected, errors).map_err(unread)?;
    let of_packets = counted::without_own(&grown, &compared, circle.own_frames);
    let ended = circle.expected.ended(&of_packets, injected, errors);
    let last = |counters: &[Counter]| latest(&routers, grew, counters);
    let (went_on, in_tunnel) = (last(&circle.expected.without_errors()), last(&circle.expected.in_tunnel()));
    Ok(Circled { grown, of_packets, compared, ended, went_on, in_tunnel, result, routers, other })
}

/// The last time at which any of these counters grew.
fn latest(routers: &RoutersSeen, grew: &[[LastGrowth; 2]], counters: &[Counter]) -> LastGrowth {
    let of = |(after, grew): (&drophammer_model::router_interfaces::RouterInterface, &[LastGrowth; 2])| {
        let one = |out: bool| Counter { router: after.router, at: after.at, out };
        [false, true].map(|out| counters.contains(&one(out)).then_some(grew[usize::from(out)]))
    };
    let all = routers.after.iter().zip(grew).flat_map(of).flatten();
    all.fold(LastGrowth::default(), |a, b| LastGrowth {
        at_least: a.at_least.max(b.at_least),
        at_most: a.at_most.max(b.at_most),
    })
}

/// The first few of these texts, and how many others there are.
pub(super) fn first_of(texts: &[String]) -> String {
    let named = texts.iter().take(NAMED).cloned().collect::<Vec<_>>().join("; ");
    match texts.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named}; and {more} more"),
    }
}

/// The faults of the counters, in words; `None` if there are none.
pub(super) fn wrong(circle: &Circle, of: &Circled) -> Option<String> {
    let off = of.compared.iter().filter(|compared| !compared.is_right(circle.own_frames));
    let off: Vec<String> = off.map(|compared| told(&circle.system, &circle.ports, compared)).collect();
    if off.is_empty() {
        return None;
    }
    let ended: Vec<String> = of.ended.iter().map(Ended::text).collect();
    let mut text = format!("{} of {} counters are off: {}", off.len(), of.compared.len(), first_of(&off));
    if !ended.is_empty() {
        text = format!("{text}. {}", first_of(&ended));
    }
    Some(text)
}
