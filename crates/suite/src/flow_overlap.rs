//! Finds flows whose demands no DUT can meet: they send the same frames, but these must arrive in different
//! encapsulations.

use super::addresses::to_number;
use super::errors::{Problems, quote};
use super::fields::Fields;
use super::flow_list::fill;
use super::raw::Node;
use drophammer_model::suite::{Endpoint, FlowConfig};
use drophammer_model::traffic::{Arriving, Header, HeaderKind};
use drophammer_model::trial::{AddressRange, Family};
use std::collections::HashMap;

/// Refuses flows that leave through the same interface with the same headers and common addresses, have the same
/// destination port, and must arrive in contradictory encapsulations. Accepts flows whose headers differ in any field,
/// although some of their frames may be the same.
pub(super) fn refuse(flows: &[(&Node, FlowConfig)], example: &str, problems: &mut Problems) {
    let mut alike: HashMap<Key, Vec<&FlowConfig>> = HashMap::new();
    for (node, flow) in flows {
        let others = alike.entry(key(flow)).or_default();
        let contrary = others.iter().find_map(|other| {
            let common = meet(flow.source, other.source) && meet(flow.destination, other.destination);
            Some((*other, contradiction(flow, other)?)).filter(|_| common)
        });
        if let Some((other, what)) = contrary {
            let fields = Fields::of(node, "a flow", example, problems);
            let at = fields.as_ref().and_then(|f| f.get("arrives")).map_or(&node.span, |entry| &entry.value.span);
            let message = format!(
                "the flows {} and {} send the same headers and addresses, but must arrive with different {what}",
                quote(&other.name),
                quote(&flow.name)
            );
            let help = "give them different addresses or header fields (a DSCP, a port), or the same `arrives`";
            problems.add(at, message, help);
        }
        others.push(flow);
    }
}

/// Common properties of flows with the same frames, in addition to their addresses.
type Key = ((usize, Option<usize>), (usize, Option<usize>), Family, Vec<Header>);

fn key(flow: &FlowConfig) -> Key {
    let place = |end: &Endpoint| (end.port, end.vlan);
    let mut headers = flow.headers.clone();
    if headers.first() == Some(&Header::Ethernet(Default::default())) {
        headers.remove(0);
    }
    fill(&mut headers, flow.family);
    (place(&flow.from), place(&flow.to), flow.family, headers)
}

/// The part of the encapsulation in which frames of the two flows must differ on arrival, although they are sent alike.
fn contradiction(a: &FlowConfig, b: &FlowConfig) -> Option<&'static str> {
    let plain = Arriving::default();
    let [one, other] = [a, b].map(|flow| flow.arrives.as_ref().unwrap_or(&plain));
    let is_ip = |header: &&Header| matches!(header.kind(), HeaderKind::Ipv4 | HeaderKind::Ipv6);
    // Without `arrives`, frames must arrive in the tunnel in which they were sent.
    let tunnel_known =
        [a, b].iter().all(|flow| flow.arrives.is_some() || flow.headers.iter().filter(is_ip).count() < 2);
    one.contradicts(other).filter(|what| tunnel_known || *what != Arriving::TUNNEL)
}

/// True if the ranges have a common address.
fn meet(a: AddressRange, b: AddressRange) -> bool {
    let bits = |range: &AddressRange| to_number(range.first);
    if a.family() != b.family() {
        return false;
    }
    let step = |range: &AddressRange| u128::from(range.step.max(1));
    let last = |range: &AddressRange| bits(range) + u128::from(range.step) * u128::from(range.count.saturating_sub(1));
    if bits(&a) > last(&b) || bits(&b) > last(&a) {
        return false;
    }
    let holds = |range: &AddressRange, address: u128| {
        address >= bits(range) && address <= last(range) && (address - bits(range)).is_multiple_of(step(range))
    };
    if a.step == b.step {
        return bits(&a).abs_diff(bits(&b)).is_multiple_of(step(&a));
    }
    let (few, many) = if a.count <= b.count { (a, b) } else { (b, a) };
    (0..u128::from(few.count)).any(|i| holds(&many, bits(&few) + i * u128::from(few.step)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn ranges_meet_where_they_have_an_address_in_common(
            ranges in [(0u32..60, 0u64..8, 1u32..12), (0u32..60, 0u64..8, 1u32..12)]
        ) {
            let [a, b] = ranges.map(|(first, step, count)| {
                AddressRange { first: std::net::Ipv4Addr::from(0x0a00_0000 + first).into(), step, count }
            });
            let all = |(first, step, count): (u32, u64, u32)| {
                (0..u64::from(count)).map(|i| u64::from(first) + i * step).collect::<BTreeSet<_>>()
            };
            prop_assert_eq!(meet(a, b), !all(ranges[0]).is_disjoint(&all(ranges[1])));
        }
    }
}
