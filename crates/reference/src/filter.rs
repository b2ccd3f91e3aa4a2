//! Filters: a list of rules of which the first that matches decides.

use crate::config::ConfigError;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// A rule of the filter. What it leaves open matches everything. A packet that no rule matches is permitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FilterRule {
    /// Drop what matches, without a word; else let it pass.
    pub deny: bool,
    /// Prefix of the source address, with its length.
    pub source: Option<(IpAddr, u8)>,
    /// Prefix of the destination address, with its length.
    pub destination: Option<(IpAddr, u8)>,
    /// IPv4 protocol or IPv6 next header.
    pub protocol: Option<u8>,
    /// First and last destination port. Packets without ports (of other protocols than TCP and UDP, later fragments) do not
    /// match.
    pub destination_ports: Option<(u16, u16)>,
}

/// What rules look at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub protocol: u8,
    pub destination_port: Option<u16>,
}

/// The rules with their counters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    rules: Vec<FilterRule>,
    pub matches: Vec<u64>,
}

fn within(address: IpAddr, prefix: (IpAddr, u8)) -> bool {
    match (address, prefix.0) {
        (IpAddr::V4(a), IpAddr::V4(p)) => {
            (a.to_bits() ^ p.to_bits()).checked_shr(32 - u32::from(prefix.1)).unwrap_or(0) == 0
        }
        (IpAddr::V6(a), IpAddr::V6(p)) => {
            (a.to_bits() ^ p.to_bits()).checked_shr(128 - u32::from(prefix.1)).unwrap_or(0) == 0
        }
        _ => false,
    }
}

impl FilterRule {
    fn matches(&self, packet: &Packet) -> bool {
        let in_ports = |(first, last)| packet.destination_port.is_some_and(|p| (first..=last).contains(&p));
        self.source.is_none_or(|prefix| within(packet.source, prefix))
            && self.destination.is_none_or(|prefix| within(packet.destination, prefix))
            && self.protocol.is_none_or(|protocol| packet.protocol == protocol)
            && self.destination_ports.is_none_or(in_ports)
    }
}

impl Filter {
    /// Rules in their order.
    ///
    /// # Errors
    /// A length beyond its family's.
    pub fn new(rules: Vec<FilterRule>) -> Result<Filter, ConfigError> {
        let prefixes = rules.iter().flat_map(|r| [r.source, r.destination]).flatten();
        for (address, length) in prefixes {
            if length > if address.is_ipv4() { 32 } else { 128 } {
                return Err(ConfigError::PrefixLength(length));
            }
        }
        let matches = vec![0; rules.len()];
        Ok(Filter { rules, matches })
    }

    /// Is there no rule?
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// May the packet pass? The rule that decides counts it.
    pub fn permits(&mut self, packet: &Packet) -> bool {
        match self.rules.iter().position(|r| r.matches(packet)) {
            Some(rule) => {
                self.matches[rule] += 1;
                !self.rules[rule].deny
            }
            None => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(destination: &str, protocol: u8, destination_port: Option<u16>) -> Packet {
        let destination: IpAddr = destination.parse().unwrap();
        let source = if destination.is_ipv4() { "198.18.0.9" } else { "2001:2::9" };
        Packet { source: source.parse().unwrap(), destination, protocol, destination_port }
    }

    #[test]
    fn the_first_rule_that_matches_decides_and_counts() {
        let prefix = |text: &str, length| Some((text.parse().unwrap(), length));
        let rules = vec![
            FilterRule { destination: prefix("198.19.0.0", 24), protocol: Some(17), ..FilterRule::default() },
            FilterRule { deny: true, destination: prefix("198.19.0.0", 16), ..FilterRule::default() },
            FilterRule { deny: true, destination_ports: Some((9, 10)), ..FilterRule::default() },
            FilterRule { deny: true, source: prefix("2001:2::", 0), ..FilterRule::default() },
        ];
        let mut filter = Filter::new(rules).unwrap();
        for (destination, protocol, port, permitted) in [
            ("198.19.0.1", 17, Some(9), true),
            ("198.19.0.1", 6, Some(9), false),
            ("198.19.1.1", 17, Some(7), false),
            ("198.20.1.1", 17, Some(10), false),
            ("198.20.1.1", 17, Some(11), true),
            ("198.20.1.1", 17, None, true),
            ("2001:2::1", 17, Some(11), false),
        ] {
            let packet = packet(destination, protocol, port);
            assert_eq!(filter.permits(&packet), permitted, "{packet:?}");
        }
        assert_eq!(filter.matches, [1, 2, 1, 1]);
        let bad = FilterRule { source: prefix("198.18.0.0", 33), ..FilterRule::default() };
        assert!(matches!(Filter::new(vec![bad]), Err(ConfigError::PrefixLength(33))));
    }
}
