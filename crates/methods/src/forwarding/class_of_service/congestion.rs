//! The traffic of the test: which ports send how much, and to which output port.

use crate::kit::prelude::*;
use drophammer_model::Medium;
use drophammer_model::classes::ServiceClass;
use drophammer_model::quantity::Bandwidth;
use drophammer_model::trial::FlowSpec;

/// The overloaded port, and the ports that overload it.
pub(super) struct Congestion {
    /// Sending ports.
    pub from: Vec<usize>,
    /// The output port of all frames.
    pub to: usize,
    /// Rate of the output port.
    pub rate: Bandwidth,
    /// Rate of the output port in frames per second.
    pub pps: f64,
}

impl Congestion {
    /// Two ports send to the last port, or more if the load requires it; only one if the tester has two ports.
    pub fn new(
        ports: &[PortView],
        pattern: &Pattern,
        params: &Params,
        most_percent: f64,
    ) -> Result<Congestion, TestError> {
        let to = ports.len() - 1;
        let rate = super::BOTTLENECK.get(params).unwrap_or(ports[to].speed);
        let bits = |port: &PortView| pattern.l1_bps(FrameRate(1.0), port.medium);
        let pps = rate.0 as f64 / pattern.l1_bps(FrameRate(1.0), Medium::Ethernet);
        let line = |i: usize| ports[i].medium.payload_rate(ports[i].speed) / bits(&ports[i]);
        let needed = pps * most_percent / 100.0;
        let fits = |count: usize| (0..count).all(|i| needed / count as f64 <= line(i) * (1.0 + 1e-9));
        let from = (to.min(2)..=to).find(|count| fits(*count)).map(|count| (0..count).collect());
        let from: Vec<usize> = from.ok_or_else(|| {
            TestError::NotApplicable(format!(
                "{most_percent} % of {rate} is more than the other {} can send to port {}; give a lower `bottleneck`, or more ports",
                if to == 1 { "port".to_owned() } else { format!("{to} ports") },
                ports[to].name
            ))
        })?;
        Ok(Congestion { from, to, rate, pps })
    }

    pub fn flows(
        &self,
        ports: &[PortView],
        pattern: &Pattern,
        classes: &[ServiceClass],
    ) -> Result<Vec<FlowSpec>, TestError> {
        let mut flows = Vec::new();
        for from in &self.from {
            for (class, family) in classes.iter().flat_map(|c| pattern.families.iter().map(move |f| (c, *f))) {
                let addresses = |port: &PortView| {
                    let missing = || TestError::NotApplicable(format!("port {} has no {family} addresses", port.name));
                    port.addressing(family).map(|a| a.destinations).ok_or_else(missing)
                };
                let (source, destination) = (addresses(&ports[*from])?, addresses(&ports[self.to])?);
                let flow = FlowSpec::new(class.name.clone(), *from, self.to, source, destination);
                flows.push(pattern.weighed(FlowSpec { headers: super::headers(family, class), ..flow }));
            }
        }
        Ok(flows)
    }
}
