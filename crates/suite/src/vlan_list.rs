//! `vlans:` of a port: sub-interfaces of the DUT.

use super::addresses::{self, Owner, Placed};
use super::errors::{Problems, quote};
use super::fields::{Fields, items, text, whole};
use super::raw::{Node, Value};
use drophammer_model::suite::{VlanConfig, VlanTag};
use drophammer_model::trial::Family;
use std::ops::Range;

const EXAMPLE: &str = "{id: 100}";
/// EtherType of a C-TAG (IEEE 802.1Q).
const C_TAG: u16 = 0x8100;
/// EtherType of an S-TAG (IEEE 802.1ad).
const S_TAG: u16 = 0x88a8;
/// The EtherTypes that a tag may have, as written.
pub(crate) const TPIDS: [(&str, u16); 2] = [("0x8100", C_TAG), ("0x88a8", S_TAG)];
/// Highest VLAN identifier; 0 and 4095 have meanings of their own (IEEE 802.1Q table 9-2).
pub(crate) const MAX_ID: u64 = 4094;
/// Most sub-interfaces of a port.
pub(crate) const MAX_VLANS: usize = 4094;

/// A sub-interface, with the places of its addresses.
pub(crate) struct Vlan<'n> {
    pub tags: Vec<VlanTag>,
    pub ipv4: Option<Placed<'n>>,
    pub ipv6: Option<Placed<'n>>,
    /// Place of its identifier.
    pub span: &'n Range<usize>,
}

impl Vlan<'_> {
    /// `VLAN 100`, `VLAN 100.200`
    pub fn show(&self) -> String {
        let ids: Vec<String> = self.tags.iter().map(|t| t.vid.to_string()).collect();
        format!("VLAN {}", ids.join("."))
    }

    pub fn finish(self) -> VlanConfig {
        let of = |placed: Option<Placed>| placed.map(|p| p.addressing);
        VlanConfig { tags: self.tags, ipv4: of(self.ipv4), ipv6: of(self.ipv6) }
    }
}

/// Reads the sub-interfaces of port `port`, which has these families, IPv4 and IPv6.
pub(crate) fn read<'n>(
    node: &'n Node,
    port: usize,
    has: [bool; 2],
    public: bool,
    problems: &mut Problems,
) -> Option<Vec<Vlan<'n>>> {
    if matches!(&node.value, Value::List(items) if items.is_empty()) {
        return Some(Vec::new());
    }
    let nodes = items(node, "`vlans`", &format!("- {EXAMPLE}"), problems)?;
    if nodes.len() > MAX_VLANS {
        problems.add(
            &node.span,
            format!("a port of {} sub-interfaces", nodes.len()),
            format!("write {MAX_VLANS} at most"),
        );
        return None;
    }
    let vlans: Vec<_> =
        nodes.iter().enumerate().filter_map(|(i, n)| one(n, Owner::Vlan(port, i), has, public, problems)).collect();
    let mut seen = std::collections::HashSet::new();
    for vlan in &vlans {
        if !seen.insert(&vlan.tags) {
            problems.add(
                vlan.span,
                format!("two sub-interfaces of this port are {}", vlan.show()),
                "give each one an identifier of its own; the first tag may differ in `tpid` instead",
            );
        }
    }
    (vlans.len() == nodes.len()).then_some(vlans)
}

fn one<'n>(node: &'n Node, owner: Owner, has: [bool; 2], public: bool, problems: &mut Problems) -> Option<Vlan<'n>> {
    let fields = Fields::of(node, "a sub-interface", EXAMPLE, problems)?;
    fields.refuse_unknown("a sub-interface", &["id", "tpid", "ipv4", "ipv6"], problems);
    let id = fields.required("id", "a sub-interface", "id: 100", problems)?;
    let tags = tags(id, fields.get("tpid").map(|e| &e.value), problems);
    let mut placed = |key: &str, family: Family, has: bool| {
        let node = fields.get(key).map(|e| &e.value);
        match node {
            None if !has => Some(None),
            Some(node) if !has && !matches!(&node.value, Value::Scalar { text, .. } if text == "off") => {
                problems.add(
                    &node.span,
                    format!("the port has `{key}: off`, so its sub-interfaces have none either"),
                    format!("remove `{key}: off` from the ports, or `{key}` from this sub-interface"),
                );
                None
            }
            node => addresses::read(node, family, owner, &id.span, public, problems),
        }
    };
    let ipv4 = placed("ipv4", Family::Ipv4, has[0]);
    let ipv6 = placed("ipv6", Family::Ipv6, has[1]);
    let (tags, ipv4, ipv6) = (tags?, ipv4?, ipv6?);
    if ipv4.is_none() && ipv6.is_none() {
        problems.add(&id.span, "this sub-interface has neither IPv4 nor IPv6", "remove `ipv4: off` or `ipv6: off`");
        return None;
    }
    Some(Vlan { tags, ipv4, ipv6, span: &id.span })
}

/// The tags of `id: 100` or `id: [100, 200]`; the outer tag may have a `tpid`.
fn tags(id: &Node, tpid: Option<&Node>, problems: &mut Problems) -> Option<Vec<VlanTag>> {
    let nodes = match &id.value {
        Value::List(nodes) => &nodes[..],
        _ => std::slice::from_ref(id),
    };
    if !(1..=2).contains(&nodes.len()) {
        problems.add(
            &id.span,
            format!("a sub-interface has one tag or two, not {}", nodes.len()),
            "write `id: 100`, or the outer and the inner one, `id: [100, 200]`",
        );
        return None;
    }
    let outer = match tpid {
        None if nodes.len() == 2 => S_TAG,
        None => C_TAG,
        Some(node) => {
            let written = text(node, "`tpid`", "0x88a8", problems)?.to_lowercase();
            match TPIDS.iter().find(|(text, _)| *text == written) {
                Some((_, tpid)) => *tpid,
                None => {
                    let help = "write `0x8100` (IEEE 802.1Q) or `0x88a8` (IEEE 802.1ad)";
                    problems.add(&node.span, format!("{} is no `tpid` of a VLAN tag", quote(&written)), help);
                    return None;
                }
            }
        }
    };
    let tag = |(i, node)| {
        let vid = whole(node, "a VLAN identifier", 1, MAX_ID, problems)? as u16;
        Some(VlanTag { tpid: if i == 0 { outer } else { C_TAG }, vid })
    };
    // All wrong identifiers are reported, not just the first.
    let tags: Vec<Option<VlanTag>> = nodes.iter().enumerate().map(tag).collect();
    tags.into_iter().collect()
}
