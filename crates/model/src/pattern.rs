//! What a traffic pattern is known by: frame size, IP versions and direction.

use crate::size::PacketSize;
use crate::trial::{Family, FlowSpec, TrialSpec};
use std::fmt;

crate::choice! {
    /// Who sends.
    pub enum Direction {
        /// Both ports of each pair, at the same rate (RFC 2544 section 14).
        Bidirectional = "bidirectional",
        /// The first port of each pair.
        Unidirectional = "unidirectional",
    }
}

/// Identity of a traffic pattern: what is measured with one pattern holds for every trial of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PatternKey {
    /// Size or mix.
    pub size: PacketSize,
    /// IP versions, in the order of the suite.
    pub families: Vec<Family>,
    /// Direction.
    pub direction: Direction,
}

impl PatternKey {
    /// The pattern that a trial offers.
    pub fn of(spec: &TrialSpec) -> PatternKey {
        let mut families: Vec<Family> = Vec::new();
        for flow in &spec.flows {
            if !families.contains(&flow.family) {
                families.push(flow.family);
            }
        }
        let answered = |flow: &FlowSpec| spec.flows.iter().any(|other| (other.from, other.to) == (flow.to, flow.from));
        let both = spec.flows.iter().all(answered);
        let direction = if both { Direction::Bidirectional } else { Direction::Unidirectional };
        PatternKey { size: spec.size.clone(), families, direction }
    }
}

/// For people: `64/ipv4+ipv6/bidirectional`.
impl fmt::Display for PatternKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let families: Vec<_> = self.families.iter().map(|f| f.to_string().to_lowercase()).collect();
        write!(f, "{}/{}/{}", self.size, families.join("+"), self.direction)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_for_people() {
        let families = vec![Family::Ipv4, Family::Ipv6];
        let key = PatternKey { size: "imix".parse().unwrap(), families, direction: Direction::Unidirectional };
        assert_eq!(key.to_string(), "imix/ipv4+ipv6/unidirectional");
    }
}
