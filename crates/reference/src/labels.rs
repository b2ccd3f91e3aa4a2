//! Label entries, static, from protocols, or of a VRF: how to forward packets with MPLS labels (RFC 3031, RFC 3032).

use crate::config::ConfigError;
use crate::vpn::FIRST_VRF_LABEL;
use drophammer_model::role::PushedRoute;
use drophammer_model::routes::Prefix;
use drophammer_wire::ethernet::{self, ethertype};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::net::IpAddr;

/// The first label that is not reserved (RFC 3032 section 2.1).
const FIRST: u32 = 16;
/// Label that means: pop the label (RFC 3032 section 2.1).
const IMPLICIT_NULL: u32 = 3;
/// The first number that does not fit into the 20 bits of a label.
const END: u32 = 1 << 20;
/// Where the label stack is in a frame without tags.
const STACK: usize = ethernet::LEN;
/// Bytes of an entry of the label stack.
pub(crate) const ENTRY: usize = 4;

/// How to forward packets whose outermost label is `label`, from any interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabelRoute {
    /// The label, 16 to 1,048,575.
    pub label: u32,
    /// Labels that replace it, the outermost first: an empty list pops the label, one label swaps it, several swap and
    /// push.
    pub out: Vec<u32>,
    /// Output port, or interface number (see [`crate::Config::sub_interfaces`]).
    pub port: usize,
    /// Neighbour on that link.
    pub next_hop: IpAddr,
}

/// Routes on which packets get labels, the longest prefix first. They take precedence over the forwarding table.
#[derive(Default)]
pub(crate) struct Pushed(Vec<(Prefix, Entry)>);

impl Pushed {
    /// Adds a route; `next_hop` is the number of its next hop.
    pub fn add(&mut self, route: &PushedRoute, next_hop: usize) -> Result<(), ConfigError> {
        if let Some(label) = route.out.iter().find(|label| !(FIRST..END).contains(*label)) {
            return Err(ConfigError::Label(*label, "labels are 16 to 1048575"));
        }
        let prefix = Prefix::masked(route.prefix.0, route.prefix.1).filter(|_| !route.out.is_empty());
        let prefix = prefix.ok_or(ConfigError::Limit("a route with labels"))?;
        self.0.push((prefix, Entry { out: route.out.clone().into(), next_hop }));
        self.0.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.length()));
        Ok(())
    }

    pub fn find(&self, destination: IpAddr) -> Option<&Entry> {
        self.0.iter().find(|(prefix, _)| prefix.contains(destination)).map(|(_, entry)| entry)
    }
}

/// Inserts labels before the packet of an untagged frame, each with this TTL and traffic class 0. The frame then ends
/// with the packet, without padding.
pub(crate) fn push(frame: &mut Vec<u8>, out: &[u32], ttl: u8, total: usize) {
    frame.truncate(STACK + total);
    frame.splice(STACK..STACK, entries(out, 0, true, ttl));
    frame[STACK - 2..STACK].copy_from_slice(&ethertype::MPLS.to_be_bytes());
}

/// The bytes of a label stack. Its last entry is marked as the bottom of the stack if `bottom`.
fn entries(labels: &[u32], tc: u8, bottom: bool, ttl: u8) -> Vec<u8> {
    let entry = |(i, label): (usize, &u32)| {
        let last = u32::from(bottom && i + 1 == labels.len());
        (label << 12 | u32::from(tc) << 9 | last << 8 | u32::from(ttl)).to_be_bytes()
    };
    labels.iter().enumerate().flat_map(entry).collect()
}

/// All entries, by label.
pub(crate) struct Labels {
    entries: HashMap<u32, Entry>,
    vrfs: usize,
}

/// An entry.
#[derive(Clone)]
pub(crate) struct Entry {
    pub out: Box<[u32]>,
    pub next_hop: usize,
}

impl Entry {
    /// The entry that swaps a label for `label`. Implicit null removes it (RFC 3032 section 2.1).
    pub fn swap(label: u32, next_hop: usize) -> Entry {
        let out = if label == IMPLICIT_NULL { Box::default() } else { Box::from([label]) };
        Entry { out, next_hop }
    }
}

impl Labels {
    /// The labels of `vrfs` VRFs.
    pub fn new(vrfs: usize) -> Labels {
        Labels { entries: HashMap::new(), vrfs }
    }

    /// Adds an entry; `next_hop` is the number of its next hop.
    pub fn add(&mut self, route: &LabelRoute, next_hop: usize) -> Result<(), ConfigError> {
        let reserved = |label: &u32| !(FIRST..END).contains(label);
        if let Some(label) = std::iter::once(&route.label).chain(&route.out).find(|label| reserved(label)) {
            return Err(ConfigError::Label(*label, "labels are 16 to 1048575"));
        }
        if self.vrf(route.label).is_some() {
            return Err(ConfigError::Label(route.label, "a VRF has it"));
        }
        let entry = Entry { out: route.out.clone().into(), next_hop };
        match self.entries.insert(route.label, entry) {
            None => Ok(()),
            Some(_) => Err(ConfigError::Label(route.label, "another entry has it")),
        }
    }

    /// Adds, replaces or removes the entry of a protocol.
    pub fn set(&mut self, label: u32, entry: Option<Entry>) {
        match entry {
            Some(entry) => self.entries.insert(label, entry),
            None => self.entries.remove(&label),
        };
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.vrfs == 0
    }

    /// The VRF with this label.
    pub fn vrf(&self, label: u32) -> Option<usize> {
        let vrf = label.checked_sub(FIRST_VRF_LABEL)? as usize;
        (vrf < self.vrfs).then_some(vrf)
    }

    pub fn find(&self, label: u32) -> Option<&Entry> {
        self.entries.get(&label)
    }
}

/// The outermost entry of a label stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outermost {
    pub label: u32,
    pub tc: u8,
    pub bottom: bool,
    pub ttl: u8,
    /// Bytes from the label stack to the end of the packet, without padding.
    pub length: usize,
}

/// Reads the label stack of an untagged frame. `None` if the stack does not end, or no IP packet follows it.
pub(crate) fn outermost(frame: &[u8]) -> Option<Outermost> {
    let word = |at: usize| Some(u32::from_be_bytes(*frame.get(at..)?.first_chunk()?));
    let first = word(STACK)?;
    let mut at = STACK;
    while word(at)? >> 8 & 1 == 0 {
        at += ENTRY;
    }
    let packet = frame.get(at + ENTRY..)?;
    let length = |at: usize| Some(usize::from(u16::from_be_bytes(*packet.get(at..)?.first_chunk()?)));
    let total = match packet.first()? >> 4 {
        4 => length(2).filter(|total| *total >= drophammer_wire::ipv4::LEN)?,
        6 => drophammer_wire::ipv6::LEN + length(4)?,
        _ => return None,
    };
    (packet.len() >= total).then_some(Outermost {
        label: first >> 12,
        tc: (first >> 9 & 7) as u8,
        bottom: at == STACK,
        ttl: first as u8,
        length: at + ENTRY + total - STACK,
    })
}

/// Replaces the outermost label with the labels `out`, which copy its traffic class and its decremented TTL (uniform
/// model, RFC 3443). If no label is left, the packet gets this TTL. With `pipe`, the exposed header keeps its own TTL,
/// and the TTL of an exposed packet is decremented. The frame then ends with the packet, without padding.
pub(crate) fn exchange(frame: &mut Vec<u8>, outermost: Outermost, out: &[u32], pipe: bool) {
    let ttl = outermost.ttl - 1;
    frame.truncate(STACK + outermost.length);
    frame.splice(STACK..STACK + ENTRY, entries(out, outermost.tc, outermost.bottom, ttl));
    if !out.is_empty() {
        return;
    }
    if !outermost.bottom {
        if !pipe {
            frame[STACK + 3] = ttl;
        }
        return;
    }
    let (kind, ttl_at) =
        if frame[STACK] >> 4 == 4 { (ethertype::IPV4, STACK + 8) } else { (ethertype::IPV6, STACK + 7) };
    frame[STACK - 2..STACK].copy_from_slice(&kind.to_be_bytes());
    let word = |frame: &[u8], at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let before = word(frame, STACK + 8);
    frame[ttl_at] = if pipe { frame[ttl_at].saturating_sub(1) } else { ttl };
    if kind == ethertype::IPV4 {
        let sum = drophammer_wire::checksum::update(word(frame, STACK + 10), before, word(frame, STACK + 8));
        frame[STACK + 10..STACK + 12].copy_from_slice(&sum.to_be_bytes());
    }
}
