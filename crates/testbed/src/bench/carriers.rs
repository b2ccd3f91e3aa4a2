//! Links of ports on other hosts. The lab checks those of this host.

use super::{Bench, Failure};
use drophammer_methods::TestError;
use drophammer_model::trial::{PortIndex, TrialResult, TrialSpec};
use drophammer_port::PortError;
use drophammer_rig::{Act, Acts};
use std::collections::BTreeSet;

impl Bench<'_> {
    /// Returns the outcome of a trial, or that the device died if a link without carrier may have lost frames.
    pub(super) fn with_carriers(
        &mut self,
        spec: &TrialSpec,
        outcome: Result<TrialResult, Failure>,
        acts: Acts<'_>,
    ) -> Result<TrialResult, Failure> {
        let result = outcome?;
        let Some(name) = self.without_carrier(spec, &result, acts).map_err(Failure::Port)? else { return Ok(result) };
        // If the device is gone, its own check says more.
        Err(Failure::Test(match self.check_device() {
            Err(died @ TestError::DutDied(_)) => died,
            _ => TestError::DutDied(format!("{name} lost its carrier\n  help: check the cable and the router")),
        }))
    }

    /// Returns the port on another host that may have lost frames in a trial because its link has no carrier.
    fn without_carrier(
        &mut self,
        spec: &TrialSpec,
        result: &TrialResult,
        acts: Acts<'_>,
    ) -> Result<Option<String>, PortError> {
        if self.rig.is_far() {
            // Each check takes a message and an answer, so only ports with loss are checked.
            for port in with_loss(spec, result, acts) {
                if !self.rig.has_carrier(port)? {
                    return Ok(Some(self.rig.port(port).interface.clone()));
                }
            }
        }
        Ok(None)
    }
}

/// Returns the ports of flows that lost frames, without those whose links `acts` switched.
fn with_loss(spec: &TrialSpec, result: &TrialResult, acts: Acts<'_>) -> BTreeSet<PortIndex> {
    let lossy: BTreeSet<&str> = result.groups.iter().filter(|g| g.lost > 0).map(|g| g.group.as_str()).collect();
    let flows = spec.flows.iter().filter(|flow| lossy.contains(flow.group.as_str()));
    let mut ports: BTreeSet<PortIndex> = flows.flat_map(|flow| [flow.from, flow.to]).collect();
    let switched = acts.iter().flatten().filter(|(_, act)| matches!(act, Act::Link(_)));
    switched.for_each(|(port, _)| _ = ports.remove(port));
    ports
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::trial::{AddressRange, FlowSpec, GroupCounts, Load};

    #[test]
    fn ports_without_loss_and_links_that_the_tester_switched_are_not_in_doubt() {
        let range = AddressRange { first: "198.18.0.1".parse().unwrap(), step: 1, count: 1 };
        let flow = |group: &str, from, to| FlowSpec::new(group, from, to, range, range);
        let spec = TrialSpec {
            purpose: String::new(),
            size: "64".parse().unwrap(),
            flows: vec![flow("a", 0, 1), flow("b", 2, 3)],
            load: Load::Burst { frames: 1, rate_pps: 1.0 },
            duration_s: 0.0,
            bin_s: None,
            drain_s: 0.0,
            events: Vec::new(),
        };
        let group = |name: &str, lost| GroupCounts { group: name.into(), lost, ..GroupCounts::default() };
        let of = |lost_a, lost_b, acts: Acts<'_>| {
            let result = TrialResult { groups: vec![group("a", lost_a), group("b", lost_b)], ..TrialResult::default() };
            with_loss(&spec, &result, acts).into_iter().collect::<Vec<_>>()
        };
        assert!(of(0, 0, &[]).is_empty());
        assert_eq!(of(5, 0, &[]), [0, 1]);
        assert_eq!(of(5, 5, &[vec![(1, Act::Link(false))], vec![(1, Act::Link(true))]]), [0, 2, 3]);
    }
}
