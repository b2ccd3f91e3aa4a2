//! How a device with several routers changes a trial.

use super::Bench;
use drophammer_model::traffic::{Arriving, Header, HeaderKind};
use drophammer_model::trial::{FlowSpec, TrialSpec};
use std::borrow::Cow;
use std::time::Duration;

impl Bench<'_> {
    /// Adapts the trial to this device. The suite gives the expected TTL behind one router; each additional router
    /// lowers it by one. The wait for late frames is extended by the delay of the links between the routers.
    pub(super) fn through<'s>(&self, spec: &'s TrialSpec) -> Cow<'s, TrialSpec> {
        let mut spec = Cow::Borrowed(spec);
        for flow in 0..spec.flows.len() {
            let FlowSpec { from, to, headers, arrives, .. } = &spec.flows[flow];
            let further = self.device.hops(*from, *to).saturating_sub(1) as u8;
            let Some(behind) = arrives.as_ref().filter(|_| further > 0) else { continue };
            let mut behind = behind.clone();
            further_on(&mut behind, headers, further, self.device.labels_are_pipes());
            spec.to_mut().flows[flow].arrives = Some(behind);
        }
        let links = self.device.system().into_iter().flat_map(|system| &system.links);
        let delay: Duration = links.map(|link| link.delay).sum();
        // A trial without drain time counts frames at the routers, not at the tester.
        if !delay.is_zero() && spec.drain_s > 0.0 {
            spec.to_mut().drain_s += delay.as_secs_f64();
        }
        spec
    }
}

/// Adjusts the expected frame to `further` more routers. They decrement the TTL of the outermost header: of the labels
/// that the last router pushes, of the label that it exposes (uniform model, RFC 3443), or of the packet. The TTL
/// inside a tunnel or below a label does not change. In the pipe model, it does not change either if the last router
/// removes the label above it, and labels that the last router pushes on a packet without labels start with a TTL of
/// their own.
fn further_on(arrives: &mut Arriving, headers: &[Header], further: u8, pipe: bool) {
    let count_down = |ttl: &mut Option<u8>| *ttl = ttl.map(|ttl| ttl.saturating_sub(further));
    let of = |kinds: &[HeaderKind]| headers.iter().filter(|header| kinds.contains(&header.kind())).count();
    // If the packet was sent without labels, the last router pushed them with the packet's TTL.
    let sent = of(&[HeaderKind::Mpls]);
    if arrives.labels.is_empty() || sent == 0 {
        // An empty list means a plain frame.
        if of(&[HeaderKind::Ipv4, HeaderKind::Ipv6]) <= 1 {
            if !pipe || sent == 0 {
                count_down(&mut arrives.ttl);
            }
            if !pipe {
                arrives.labels.iter_mut().for_each(|label| count_down(&mut label.ttl));
            }
        }
        return;
    }
    let given = arrives.labels.len().saturating_sub(sent - 1);
    let given = if pipe { given } else { given.max(1) };
    arrives.labels.iter_mut().take(given).for_each(|label| count_down(&mut label.ttl));
}
