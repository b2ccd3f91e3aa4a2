//! Flows with MPLS labels (RFC 3032), chosen by the action of the DUT on the outermost label.

use crate::testbed::{PortView, TestError};
use drophammer_model::pattern::{LabelOperation, Labels};
use drophammer_model::size::PacketSize;
use drophammer_model::suite::{FecConfig, LabelConfig};
use drophammer_model::traffic::{Arriving, ArrivingLabel, Bits, Field, HOP_LIMIT, Header, Ipv4, Ipv6, Mpls, Udp};
use drophammer_model::trial::{Family, FlowSpec};

/// Inner labels, which the DUT ignores: the bottom label, and those above it in order. RFC 3032 section 2.1 reserves
/// labels below 16.
const INNER: u32 = 1_000;
/// The outermost label if the DUT has no label entries.
const KEPT: u32 = 16;

/// `flow` with labels, once for each entry of the port `to` that performs `labels.operation`, with equal shares. The
/// labels are added to the size of the packets.
///
/// # Errors
/// [`TestError::NotApplicable`] if the port has no matching entry.
pub(crate) fn flows(
    flow: &FlowSpec,
    size: &PacketSize,
    labels: Labels,
    to: &PortView,
) -> Result<Vec<FlowSpec>, TestError> {
    let one = |outermost: u32, out: Option<&[u32]>| FlowSpec {
        headers: headers(flow.family, outermost, labels.sent),
        arrives: Some(arriving(outermost, out, labels.sent)),
        size: Some(size.with_tags(labels.bytes())),
        ..flow.clone()
    };
    match labels.operation {
        LabelOperation::Keep => return Ok(vec![one(KEPT, None)]),
        LabelOperation::Push => return pushed(flow, to),
        LabelOperation::Swap | LabelOperation::Pop => {}
    }
    let entries = entries(labels.operation, to);
    if entries.is_empty() {
        let example = if labels.operation == LabelOperation::Pop { "{label: 101}" } else { "{label: 100, out: [200]}" };
        let why = format!(
            "port {} has no label entry for `labels: {}`; give it one: `labels: [{example}]`",
            to.name, labels.operation
        );
        return Err(TestError::NotApplicable(why));
    }
    let share = flow.weight / entries.len() as f64;
    Ok(entries.iter().map(|entry| FlowSpec { weight: share, ..one(entry.label, Some(&entry.out)) }).collect())
}

/// `flow` with this label, which the DUT replaces by the label `out`. The label is added to the size of the packets.
pub(crate) fn swapped(flow: &FlowSpec, size: &PacketSize, label: u32, out: u32) -> FlowSpec {
    let labels = Labels { operation: LabelOperation::Swap, sent: 1 };
    FlowSpec {
        headers: headers(flow.family, label, labels.sent),
        arrives: Some(arriving(label, Some(&[out]), labels.sent)),
        size: Some(size.with_tags(labels.bytes())),
        ..flow.clone()
    }
}

/// The entries that perform exactly this operation. A swap replaces one label by one label, so all its frames keep
/// their size; an entry with more labels in `out` performs a swap and a push.
fn entries(operation: LabelOperation, to: &PortView) -> Vec<&LabelConfig> {
    let labels = if operation == LabelOperation::Pop { 0 } else { 1 };
    to.labels.iter().filter(|entry| entry.out.len() == labels).collect()
}

/// Change in the number of labels of a family's frames behind the DUT, for each flow to the port `to`; -1 is one label
/// less.
pub(crate) fn added(labels: Labels, family: Family, to: &PortView) -> Vec<i32> {
    match labels.operation {
        LabelOperation::Keep => vec![0],
        LabelOperation::Push => networks(family, to).map(|fec| fec.out.len() as i32).collect(),
        LabelOperation::Swap | LabelOperation::Pop => {
            entries(labels.operation, to).iter().map(|entry| entry.out.len() as i32 - 1).collect()
        }
    }
}

/// Networks of a family for which the DUT pushes labels.
fn networks(family: Family, to: &PortView) -> impl Iterator<Item = &FecConfig> {
    to.pushed.iter().filter(move |fec| fec.to.family() == family)
}

/// `flow` without labels to each network of the family behind `to` for which the DUT pushes labels, with equal shares.
/// The TTL of the labels depends on the model that the DUT follows (RFC 3443), so it is not compared. The TTL of the
/// packet must be one lower.
fn pushed(flow: &FlowSpec, to: &PortView) -> Result<Vec<FlowSpec>, TestError> {
    let networks: Vec<&FecConfig> = networks(flow.family, to).collect();
    if networks.is_empty() {
        let family = flow.family;
        let why = format!(
            "port {} has no {family} network to which packets leave with labels; give it one: `labels: [{{to: 10.99.0.0/24, out: [200]}}]`",
            to.name
        );
        return Err(TestError::NotApplicable(why));
    }
    let share = flow.weight / networks.len() as f64;
    let one = |fec: &&FecConfig| {
        let label = |label: &u32| ArrivingLabel { label: Bits::new(*label), tc: None, ttl: None };
        let labels = fec.out.iter().map(label).collect();
        FlowSpec {
            weight: share,
            destinations: fec.to.hosts(ADDRESSES).into(),
            arrives: Some(Arriving { labels, ttl: Some(HOP_LIMIT - 1), ..Arriving::default() }),
            ..flow.clone()
        }
    };
    Ok(networks.iter().map(one).collect())
}

/// Maximum number of destinations in each network.
const ADDRESSES: u32 = 256;

/// The outermost label, then the labels below it, then the packet.
fn headers(family: Family, outermost: u32, sent: u8) -> Vec<Header> {
    let label = |label: u32| Header::Mpls(Mpls { label: Field::from(Bits::new(label)), ..Mpls::default() });
    let packet = match family {
        Family::Ipv4 => Header::Ipv4(Ipv4::default()),
        Family::Ipv6 => Header::Ipv6(Ipv6::default()),
    };
    let labels = std::iter::once(outermost).chain(inner(sent));
    labels.map(label).chain([packet, Header::Udp(Udp::default())]).collect()
}

/// Labels below the outermost one, the bottom one last.
fn inner(sent: u8) -> impl Iterator<Item = u32> {
    (0..u32::from(sent) - 1).rev().map(|place| INNER + place)
}

/// The labels that must arrive. The labels of `out` replace the outermost one, with a TTL decremented by one router;
/// the others arrive as sent. Without `out`, all arrive as sent. If the DUT pops the only label, the packet has one hop
/// less whichever TTL model the DUT follows (RFC 3443), because label and packet were sent with the same TTL. If the
/// DUT exposes a label below, the TTL of that label depends on the model, so it is not compared.
fn arriving(outermost: u32, out: Option<&[u32]>, sent: u8) -> Arriving {
    let label = |label: u32, ttl: Option<u8>| ArrivingLabel { label: Bits::new(label), tc: None, ttl };
    let (instead, ttl, below) = match out {
        None => (&[outermost][..], Some(HOP_LIMIT), Some(HOP_LIMIT)),
        Some([]) => (&[][..], None, None),
        Some(out) => (out, Some(HOP_LIMIT - 1), Some(HOP_LIMIT)),
    };
    let labels = instead.iter().map(|new| label(*new, ttl));
    let exposed = (out == Some(&[]) && sent == 1).then_some(HOP_LIMIT - 1);
    Arriving {
        labels: labels.chain(inner(sent).map(|old| label(old, below))).collect(),
        ttl: exposed,
        ..Arriving::default()
    }
}
