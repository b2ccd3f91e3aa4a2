//! Protection of TCP against segments that do not come from the peer: signatures (TCP MD5, RFC 2385) and the generalised TTL security
//! mechanism (GTSM, RFC 5082). Segments are signed and verified outside smoltcp, on the packets that it receives and sends.

use super::TcpStack;
use super::host::{Host, Link};
use drophammer_model::suite::BgpProtection;
use md5::{Digest, Md5};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::net::IpAddr;

/// Kind and length of the option of TCP MD5 (RFC 2385 section 2).
const KIND: u8 = 19;
const LEN: usize = 18;
/// Length of the option in the header; two NOPs align it.
pub(super) const SPACE: usize = 20;
/// Longest key, as in Linux.
const LONGEST_KEY: usize = 80;
/// TTL or hop limit of sent packets with GTSM.
const SENT_TTL: u8 = 255;

/// Protection of connections between a local address and a peer. The serialised form contains the key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Protection {
    /// Key of TCP MD5, 1 to 80 bytes. It signs all segments; received segments without a valid signature are dropped.
    pub md5_key: Option<Vec<u8>>,
    /// GTSM: maximum number of hops to the peer, 1 for a peer on the link. Segments are sent with TTL 255; received
    /// segments with a TTL below 256 minus this number are dropped.
    pub ttl_security_hops: Option<u8>,
}

impl Protection {
    /// Checks the values.
    ///
    /// # Errors
    /// A description of the problem: an empty key, a key of more than 80 bytes, or hops outside 1 to 254.
    pub fn check(&self) -> Result<(), String> {
        match (&self.md5_key, self.ttl_security_hops) {
            (Some(key), _) if !(1..=LONGEST_KEY).contains(&key.len()) => {
                Err(format!("a TCP MD5 key of {} bytes: use 1 to {LONGEST_KEY}", key.len()))
            }
            (_, Some(hops @ (0 | 255))) => Err(format!("{hops} hops are out of range: use 1 to 254")),
            _ => Ok(()),
        }
    }

    fn is_none(&self) -> bool {
        *self == Protection::default()
    }
}

impl From<&BgpProtection> for Protection {
    /// Protection of connections to a peer on the link.
    fn from(bgp: &BgpProtection) -> Protection {
        Protection {
            md5_key: bgp.md5.as_ref().map(|key| key.expose().as_bytes().to_vec()),
            ttl_security_hops: bgp.gtsm.then_some(1),
        }
    }
}

/// Counts of dropped segments, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// Segments without a signature.
    pub md5_missing: u64,
    /// Segments with a wrong signature: the peer has another key, or the segment was changed in transit.
    pub md5_wrong: u64,
    /// Segments from too many hops away.
    pub ttl_low: u64,
}

/// Protections of a stack, by local and remote address.
#[derive(Default)]
pub(super) struct Protections {
    by_ends: HashMap<(IpAddr, IpAddr), Protection>,
    refusals: Refusals,
    /// Reused memory of one packet.
    scratch: Vec<u8>,
}

impl TcpStack {
    /// Protects all connections between `local`, a host of this stack without connections, and `remote`. With a key,
    /// the MTU of all connections of the host is reduced by 20 bytes. An empty `protection` removes the protection.
    pub fn protect(&mut self, local: IpAddr, remote: IpAddr, protection: Protection) {
        let signs = protection.md5_key.is_some();
        if protection.is_none() {
            self.protections.by_ends.remove(&(local, remote));
        } else {
            self.protections.by_ends.insert((local, remote), protection);
        }
        if let Some(&host) = self.by_address.get(&local).filter(|_| signs) {
            // smoltcp derives the segment size from the MTU of the interface.
            let link = Link { mtu: self.link.mtu - SPACE, ..self.link };
            self.hosts[host] = Host::new(local, self.config.seed, link);
        }
    }

    /// Numbers of segments that were dropped because of a protection.
    pub fn refusals(&self) -> Refusals {
        self.protections.refusals
    }
}

impl Protections {
    /// True if no connection is protected.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.by_ends.is_empty()
    }

    /// Verifies an IP packet that carries a whole TCP segment. Counts a refused packet and returns `None`; otherwise
    /// returns the packet for TCP, with a reduced MSS, because the peer's MSS leaves no room for our signature.
    #[inline]
    pub fn verify<'a>(&'a mut self, ends: (IpAddr, IpAddr), packet: &'a [u8]) -> Option<&'a [u8]> {
        let Some(protection) = self.by_ends.get(&ends) else { return Some(packet) };
        let v4 = packet[0] >> 4 == 4;
        if let Some(hops) = protection.ttl_security_hops {
            let ttl = if v4 { packet[8] } else { packet[7] };
            if u16::from(ttl) + u16::from(hops) < 256 {
                self.refusals.ttl_low += 1;
                return None;
            }
        }
        let Some(key) = &protection.md5_key else { return Some(packet) };
        let at = header_len(packet);
        let Some(signature) = options(&packet[at..]).find(|o| o.len() == LEN && o[0] == KIND) else {
            self.refusals.md5_missing += 1;
            return None;
        };
        if signature[2..] != digest(packet, at, key) {
            self.refusals.md5_wrong += 1;
            return None;
        }
        let syn = packet[at + 13] & 2 != 0;
        if !syn {
            return Some(packet);
        }
        self.scratch.clear();
        self.scratch.extend_from_slice(packet);
        let mss = options(&packet[at..]).find(|o| o.len() == 4 && o[0] == 2);
        if let Some(mss) = mss {
            let place = mss.as_ptr() as usize - packet.as_ptr() as usize;
            let less = u16::from_be_bytes([mss[2], mss[3]]).saturating_sub(SPACE as u16);
            self.scratch[place + 2..place + 4].copy_from_slice(&less.to_be_bytes());
            fill_checksum(&mut self.scratch, at);
        }
        Some(&self.scratch)
    }

    /// Passes our own `packet` to `out`, after signing it or changing its TTL as required.
    #[inline]
    pub fn send(&mut self, packet: &[u8], out: &mut dyn FnMut(&[u8])) {
        let protection = match self.is_empty() {
            true => None,
            false => ends(packet).and_then(|ends| self.by_ends.get(&ends)),
        };
        let Some(protection) = protection else { return out(packet) };
        let at = header_len(packet);
        let scratch = &mut self.scratch;
        scratch.clear();
        scratch.extend_from_slice(packet);
        if let Some(key) = &protection.md5_key {
            sign(packet, at, key, scratch);
        }
        let v4 = scratch[0] >> 4 == 4;
        if protection.ttl_security_hops.is_some() {
            scratch[if v4 { 8 } else { 7 }] = SENT_TTL;
        }
        if v4 {
            scratch[10..12].fill(0);
            let sum = drophammer_wire::checksum::finish(drophammer_wire::checksum::sum(&scratch[..at]));
            scratch[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        out(scratch);
    }
}

/// Source and destination of an IP packet.
fn ends(packet: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let four = |at: usize| Some(IpAddr::from(*packet.get(at..)?.first_chunk::<4>()?));
    let sixteen = |at: usize| Some(IpAddr::from(*packet.get(at..)?.first_chunk::<16>()?));
    match packet.first()? >> 4 {
        4 => Some((four(12)?, four(16)?)),
        6 => Some((sixteen(8)?, sixteen(24)?)),
        _ => None,
    }
}

fn header_len(packet: &[u8]) -> usize {
    if packet[0] >> 4 == 4 { usize::from(packet[0] & 15) * 4 } else { 40 }
}

/// The options of a TCP segment that have kind and length, without padding and truncated options.
fn options(segment: &[u8]) -> impl Iterator<Item = &[u8]> {
    let end = (usize::from(segment[12] >> 4) * 4).clamp(20, segment.len());
    let mut rest = &segment[20..end];
    std::iter::from_fn(move || {
        while let [1, more @ ..] = rest {
            rest = more;
        }
        let len = usize::from(*rest.get(1)?);
        if rest[0] == 0 || len < 2 {
            return None;
        }
        let option = rest.get(..len)?;
        rest = &rest[len..];
        Some(option)
    })
}

/// MD5 over pseudo header, header without options and with a checksum of zero, data, and key (RFC 2385 section 2.0).
/// IPv6 uses the pseudo header of its checksum (RFC 8200 section 8.1), as in Linux and BSD.
fn digest(packet: &[u8], at: usize, key: &[u8]) -> [u8; 16] {
    let segment = &packet[at..];
    let mut md5 = Md5::new();
    if packet[0] >> 4 == 4 {
        md5.update(&packet[12..20]);
        md5.update([0, 6]);
        md5.update((segment.len() as u16).to_be_bytes());
    } else {
        md5.update(&packet[8..40]);
        md5.update((segment.len() as u32).to_be_bytes());
        md5.update([0, 0, 0, 6]);
    }
    md5.update(&segment[..16]);
    md5.update([0, 0]);
    md5.update(&segment[18..20]);
    let data = (usize::from(segment[12] >> 4) * 4).clamp(20, segment.len());
    md5.update(&segment[data..]);
    md5.update(key);
    md5.finalize().into()
}

/// Replaces the content of `out` with `packet`, with a signature added as its first option. The caller updates the
/// checksum of an IPv4 header.
fn sign(packet: &[u8], at: usize, key: &[u8], out: &mut Vec<u8>) {
    let segment = &packet[at..];
    let data = (usize::from(segment[12] >> 4) * 4).clamp(20, segment.len());
    out.clear();
    out.extend_from_slice(&packet[..at + 20]);
    out.extend_from_slice(&[1, 1, KIND, LEN as u8]);
    out.extend_from_slice(&[0; 16]);
    for option in options(segment) {
        // SACK blocks are dropped if necessary: the header has 40 bytes for options (RFC 2018 section 3).
        if out.len() - at + option.len() <= 60 && option[0] != 5 {
            out.extend_from_slice(option);
        }
    }
    while !(out.len() - at).is_multiple_of(4) {
        out.push(1);
    }
    out[at + 12] = ((out.len() - at) as u8 / 4) << 4 | segment[12] & 15;
    out.extend_from_slice(&segment[data..]);
    let (v4, len) = (out[0] >> 4 == 4, out.len());
    match v4 {
        true => out[2..4].copy_from_slice(&(len as u16).to_be_bytes()),
        false => out[4..6].copy_from_slice(&((len - 40) as u16).to_be_bytes()),
    }
    let digest = digest(out, at, key);
    out[at + 24..at + 40].copy_from_slice(&digest);
    fill_checksum(out, at);
}

/// Sets the TCP checksum.
fn fill_checksum(packet: &mut [u8], at: usize) {
    use drophammer_wire::checksum::{finish, sum};
    packet[at + 16..at + 18].fill(0);
    let addresses = if packet[0] >> 4 == 4 { sum(&packet[12..20]) } else { sum(&packet[8..40]) };
    let total = addresses + 6 + (packet.len() - at) as u64 + sum(&packet[at..]);
    packet[at + 16..at + 18].copy_from_slice(&finish(total).to_be_bytes());
}
