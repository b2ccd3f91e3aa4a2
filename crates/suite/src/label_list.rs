//! `labels:` of a port: static label entries of the DUT.

use super::errors::{Problems, quote};
use super::fields::items;
use super::raw::Node;
use super::typed;
use drophammer_model::routes::Prefix;
use drophammer_model::suite::{FecConfig, LabelConfig};
use drophammer_model::traffic::Bits;
use serde::Deserialize;
use std::collections::HashSet;
use std::ops::Range;

const EXAMPLE: &str = "{label: 100, out: [200]}";
const FEC_EXAMPLE: &str = "{to: 10.99.0.0/24, out: [200]}";
/// Labels below this are reserved (RFC 3032 section 2.1).
pub(crate) const FIRST: u32 = 16;
/// Most entries of a port.
pub(crate) const MOST: usize = 65_536;
/// Most labels that replace one.
pub(crate) const MOST_OUT: usize = 4;

/// An entry as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    label: Option<Bits<20>>,
    to: Option<String>,
    #[serde(default)]
    out: Vec<Bits<20>>,
}

/// The handling of packets with a label, or of packets to a network.
pub(super) enum Read {
    Label(LabelConfig),
    Fec(FecConfig),
}

/// An entry with its place.
pub(super) type Entry<'n> = (Read, &'n Range<usize>);

/// Reads the entries of a port.
pub(super) fn read<'n>(node: &'n Node, problems: &mut Problems) -> Option<Vec<Entry<'n>>> {
    let nodes = items(node, "`labels`", &format!("- {EXAMPLE}"), problems)?;
    if nodes.len() > MOST {
        problems.add(&node.span, format!("a port of {} label entries", nodes.len()), format!("write {MOST} at most"));
        return None;
    }
    let entries: Vec<_> = nodes.iter().filter_map(|n| Some((one(n, problems)?, &n.span))).collect();
    (entries.len() == nodes.len()).then_some(entries)
}

fn one(node: &Node, problems: &mut Problems) -> Option<Read> {
    let written: Written = typed::read(node, &format!("write for instance `{EXAMPLE}`"), problems)?;
    let out: Vec<u32> = written.out.iter().map(|label| label.get()).collect();
    if out.len() > MOST_OUT {
        let message = format!("`out` has {} labels", out.len());
        problems.add(&node.span, message, format!("write {MOST_OUT} at most, the outermost first"));
        return None;
    }
    let label = written.label.map(|label| label.get());
    if let Some(reserved) = label.iter().chain(&out).find(|label| **label < FIRST) {
        let help = format!("write {FIRST} to 1048575; to take a label off, leave `out` out");
        problems.add(&node.span, format!("label {reserved} is reserved (RFC 3032 section 2.1)"), help);
        return None;
    }
    match (label, written.to) {
        (Some(label), None) => Some(Read::Label(LabelConfig { label, out })),
        (None, Some(to)) => fec(node, &to, out, problems).map(Read::Fec),
        _ => {
            let message = "an entry is either for a `label` or for packets `to` a network";
            problems.add(&node.span, message, format!("write for instance `{EXAMPLE}` or `{FEC_EXAMPLE}`"));
            None
        }
    }
}

fn fec(node: &Node, to: &str, out: Vec<u32>, problems: &mut Problems) -> Option<FecConfig> {
    let Ok(to) = to.parse::<Prefix>() else {
        problems.add(
            &node.span,
            format!("{} is not a network", quote(to)),
            format!("write for instance `{FEC_EXAMPLE}`"),
        );
        return None;
    };
    if out.is_empty() {
        problems.add(&node.span, "packets to this network get no label", format!("write for instance `{FEC_EXAMPLE}`"));
        return None;
    }
    Some(FecConfig { to, out })
}

/// A label must be unique over all ports.
pub(super) fn refuse_repeated<'n>(entries: impl Iterator<Item = &'n Entry<'n>>, problems: &mut Problems) {
    let mut seen = HashSet::new();
    for (entry, span) in entries {
        let Read::Label(entry) = entry else { continue };
        if !seen.insert(entry.label) {
            let message = format!("two entries are for label {}", entry.label);
            problems.add(span, message, "give each entry of the suite a label of its own; the DUT has one label space");
        }
    }
}
