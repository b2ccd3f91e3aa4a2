//! `labels:` of a port: static label entries of the DUT.

use super::LabelConfig;
use super::errors::Problems;
use super::fields::items;
use super::raw::Node;
use super::typed;
use crate::traffic::Bits;
use serde::Deserialize;
use std::collections::HashSet;
use std::ops::Range;

const EXAMPLE: &str = "{label: 100, out: [200]}";
/// Labels below are reserved (RFC 3032 section 2.1).
pub(crate) const FIRST: u32 = 16;
/// Most entries of a port.
pub(crate) const MOST: usize = 65_536;
/// Most labels in the place of one.
pub(crate) const MOST_OUT: usize = 4;

/// An entry as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    label: Bits<20>,
    #[serde(default)]
    out: Vec<Bits<20>>,
}

/// An entry, and where it is written.
pub(super) type Entry<'n> = (LabelConfig, &'n Range<usize>);

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

fn one(node: &Node, problems: &mut Problems) -> Option<LabelConfig> {
    let written: Written = typed::read(node, &format!("write for instance `{EXAMPLE}`"), problems)?;
    let entry = LabelConfig { label: written.label.get(), out: written.out.iter().map(|label| label.get()).collect() };
    if entry.out.len() > MOST_OUT {
        let message = format!("`out` has {} labels", entry.out.len());
        problems.add(&node.span, message, format!("write {MOST_OUT} at most, the outermost first"));
        return None;
    }
    if let Some(reserved) = std::iter::once(&entry.label).chain(&entry.out).find(|label| **label < FIRST) {
        let help = format!("write {FIRST} to 1048575; to take a label off, leave `out` out");
        problems.add(&node.span, format!("label {reserved} is reserved (RFC 3032 section 2.1)"), help);
        return None;
    }
    Some(entry)
}

/// A label means the same at all ports.
pub(super) fn refuse_repeated<'n>(entries: impl Iterator<Item = &'n Entry<'n>>, problems: &mut Problems) {
    let mut seen = HashSet::new();
    for (entry, span) in entries {
        if !seen.insert(entry.label) {
            let message = format!("two entries are for label {}", entry.label);
            problems.add(span, message, "give each entry of the suite a label of its own; the DUT has one label space");
        }
    }
}
