//! The blocks of four ports of RFC 2889 section 5.5.3, and their flows.

use crate::kit::prelude::*;
use drophammer_model::trial::FlowSpec;

/// Two ports that send and two that receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// Sends alternately to the uncongested and to the congested port.
    pub both: PortIndex,
    /// Sends to the congested port.
    pub one: PortIndex,
    /// Receives half of a line's load.
    pub uncongested: PortIndex,
    /// Receives one and a half times its line rate.
    pub congested: PortIndex,
}

/// Destination of the second source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aim {
    /// The first source: no output port is overloaded, and the router forwards the same number of frames.
    Elsewhere,
    /// The congested port.
    Congested,
}

/// Blocks of four ports in their order; the remaining ports stay silent.
///
/// # Errors
/// [`TestError::NotApplicable`] for fewer than four.
pub(super) fn blocks(ports: usize) -> Result<Vec<Block>, TestError> {
    if ports < 4 {
        return Err(TestError::NotApplicable(format!(
            "the test needs four ports, two that send and two that receive, or a multiple of four (RFC 2889 section 5.5.3); the suite \
             has {ports}"
        )));
    }
    let block = |first| Block { both: first, one: first + 1, uncongested: first + 2, congested: first + 3 };
    Ok((0..ports / 4).map(|number| block(number * 4)).collect())
}

impl Block {
    /// Group of the frames to port `to`.
    pub fn group(ports: &[PortView], to: PortIndex) -> String {
        format!("to {}", ports[to].name)
    }

    /// Mean load of the two sources in one of the trials, in frames per second.
    pub fn offered_pps(self, ports: &[PortView], result: &TrialResult) -> f64 {
        if result.sending_s <= 0.0 {
            return 0.0;
        }
        let groups = [self.both, self.uncongested, self.congested].map(|to| Block::group(ports, to));
        let own = result.groups.iter().filter(|counts| groups.contains(&counts.group));
        own.map(|counts| counts.offered).sum::<u64>() as f64 / result.sending_s / 2.0
    }

    /// The block as text: `p1, p2 to p3, p4`.
    pub fn text(self, ports: &[PortView]) -> String {
        let name = |port: PortIndex| &ports[port].name;
        format!("{}, {} to {}, {}", name(self.both), name(self.one), name(self.uncongested), name(self.congested))
    }

    /// The flows of the block. The first source sends alternately to the uncongested and the congested port, starting
    /// with the uncongested one.
    ///
    /// # Errors
    /// [`TestError::NotApplicable`] for a port without addresses of a family.
    pub fn flows(self, ports: &[PortView], pattern: &Pattern, aim: Aim) -> Result<Vec<FlowSpec>, TestError> {
        let second = if aim == Aim::Congested { self.congested } else { self.both };
        let ways = [(self.both, self.uncongested), (self.both, self.congested), (self.one, second)];
        let mut flows = Vec::new();
        for family in &pattern.families {
            let addresses = |port: PortIndex| {
                let missing =
                    || TestError::NotApplicable(format!("port {} has no {family} addresses", ports[port].name));
                ports[port].addressing(*family).map(|a| a.destinations).ok_or_else(missing)
            };
            for (from, to) in ways {
                flows.push(FlowSpec::new(Block::group(ports, to), from, to, addresses(from)?, addresses(to)?));
            }
        }
        Ok(flows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_ports_are_a_block_and_fewer_are_none() {
        assert!(blocks(3).unwrap_err().to_string().contains("needs four ports"));
        assert_eq!(blocks(4).unwrap(), [Block { both: 0, one: 1, uncongested: 2, congested: 3 }]);
        assert_eq!(blocks(11).unwrap().len(), 2);
        assert_eq!(blocks(8).unwrap()[1], Block { both: 4, one: 5, uncongested: 6, congested: 7 });
    }
}
