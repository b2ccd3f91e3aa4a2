//! What a device of several routers changes about a trial.

use super::Bench;
use drophammer_model::traffic::{Arriving, Header, HeaderKind};
use drophammer_model::trial::{FlowSpec, TrialSpec};
use std::borrow::Cow;
use std::time::Duration;

impl Bench<'_> {
    /// The trial through this device. A TTL that must arrive is that behind one router, and one less for each further one. Late frames have as
    /// much more time as the links between its routers delay them.
    pub(super) fn through<'s>(&self, spec: &'s TrialSpec) -> Cow<'s, TrialSpec> {
        let mut spec = Cow::Borrowed(spec);
        for flow in 0..spec.flows.len() {
            let FlowSpec { from, to, headers, arrives, .. } = &spec.flows[flow];
            let further = self.device.hops(*from, *to).saturating_sub(1) as u8;
            let Some(behind) = arrives.as_ref().filter(|_| further > 0) else { continue };
            let mut behind = behind.clone();
            further_on(&mut behind, headers, further);
            spec.to_mut().flows[flow].arrives = Some(behind);
        }
        let links = self.device.system().into_iter().flat_map(|system| &system.links);
        let delay: Duration = links.map(|link| link.delay).sum();
        // A trial that waits for nobody counts at the routers.
        if !delay.is_zero() && spec.drain_s > 0.0 {
            spec.to_mut().drain_s += delay.as_secs_f64();
        }
        spec
    }
}

/// What must arrive behind so many further routers. They count down the TTL of what is outermost: of the labels that the last of them gave, of
/// the one that it laid bare (uniform model, RFC 3443), or of the packet. What is in a tunnel or under a label keeps its TTL.
fn further_on(arrives: &mut Arriving, headers: &[Header], further: u8) {
    let count_down = |ttl: &mut Option<u8>| *ttl = ttl.map(|ttl| ttl.saturating_sub(further));
    let of = |kinds: &[HeaderKind]| headers.iter().filter(|header| kinds.contains(&header.kind())).count();
    // Labels that no packet had before are the last router's, with the packet's TTL.
    if arrives.labels.is_empty() || of(&[HeaderKind::Mpls]) == 0 {
        // None are the headers of a plain frame.
        if of(&[HeaderKind::Ipv4, HeaderKind::Ipv6]) <= 1 {
            count_down(&mut arrives.ttl);
            arrives.labels.iter_mut().for_each(|label| count_down(&mut label.ttl));
        }
        return;
    }
    let below = of(&[HeaderKind::Mpls]).saturating_sub(1);
    let given = arrives.labels.len().saturating_sub(below).max(1);
    arrives.labels.iter_mut().take(given).for_each(|label| count_down(&mut label.ttl));
}
