//! Path attributes; each distinct set is stored once.

use std::collections::HashMap;
use std::net::IpAddr;

/// Segment types of an AS path (RFC 4271 section 4.3, RFC 5065 section 3).
mod segment {
    pub const SET: u8 = 1;
    pub const SEQUENCE: u8 = 2;
}

/// Default LOCAL_PREF.
const LOCAL_PREF: u32 = 100;

/// The path attributes of a route as it was received.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Attributes {
    /// ORIGIN: 0 IGP, 1 EGP, 2 INCOMPLETE.
    pub origin: u8,
    /// AS_PATH: its well-formed segments with 4-octet AS numbers, as on the wire.
    pub as_path: Vec<u8>,
    /// NEXT_HOP, or the first address of the next hop in MP_REACH_NLRI.
    pub next_hop: IpAddr,
    /// MULTI_EXIT_DISC.
    pub med: Option<u32>,
    /// LOCAL_PREF; from internal peers only.
    pub local_pref: Option<u32>,
    /// ORIGINATOR_ID, or the identifier of the internal peer if it sent none. `None` for external paths.
    pub originator: Option<u32>,
    /// CLUSTER_LIST: 4 bytes each, as on the wire; from internal peers only.
    pub clusters: Vec<u8>,
    /// All other attributes, encoded as they are re-advertised.
    pub others: Vec<u8>,
}

/// The properties of a set of attributes that the decision process compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    /// LOCAL_PREF, or the default.
    pub local_pref: u32,
    /// Number of ASes in the path; a set counts as one.
    pub length: u32,
    pub origin: u8,
    /// First AS of the path; 0 if there is none.
    pub neighbour: u32,
    /// MULTI_EXIT_DISC; if it is missing, 0, which is the best.
    pub med: u32,
    /// Originator of the route in this AS.
    pub originator: Option<u32>,
    /// Number of reflectors that the route has passed.
    pub clusters: u32,
}

/// Returns type and ASes of each segment.
fn segments(path: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let mut rest = path;
    std::iter::from_fn(move || {
        let (&[kind, count], after) = rest.split_first_chunk()?;
        let (ases, after) = after.split_at_checked(usize::from(count) * 4)?;
        rest = after;
        Some((kind, ases))
    })
}

/// The path with `asn` prepended `times` times (RFC 4271 section 5.1.2).
pub fn prepended(path: &[u8], asn: u32, times: u8) -> Vec<u8> {
    let own = asn.to_be_bytes().repeat(times.into());
    let mut out = Vec::with_capacity(path.len() + own.len() + 2);
    match path {
        [segment::SEQUENCE, count, rest @ ..] if count.checked_add(times).is_some() => {
            out.extend([segment::SEQUENCE, count + times]);
            out.extend(own);
            out.extend(rest);
        }
        _ => {
            out.extend([segment::SEQUENCE, times]);
            out.extend(own);
            out.extend(path);
        }
    }
    out
}

impl Attributes {
    /// True if `asn` is in the path.
    pub fn passed(&self, asn: u32) -> bool {
        segments(&self.as_path).any(|(_, ases)| ases.chunks_exact(4).any(|a| a == asn.to_be_bytes()))
    }

    /// True if this device has reflected the route before (RFC 4456 section 8).
    pub fn reflected_by(&self, router_id: u32) -> bool {
        self.originator == Some(router_id) || self.clusters.chunks_exact(4).any(|id| id == router_id.to_be_bytes())
    }

    /// The properties that the decision process compares.
    pub fn rank(&self) -> Rank {
        let mut length = 0;
        for (kind, ases) in segments(&self.as_path) {
            length += match kind {
                segment::SET => 1,
                segment::SEQUENCE => ases.len() as u32 / 4,
                _ => 0,
            };
        }
        let neighbour = match segments(&self.as_path).next() {
            Some((segment::SEQUENCE, [a, b, c, d, ..])) => u32::from_be_bytes([*a, *b, *c, *d]),
            _ => 0,
        };
        Rank {
            local_pref: self.local_pref.unwrap_or(LOCAL_PREF),
            length,
            origin: self.origin,
            neighbour,
            med: self.med.unwrap_or(0),
            originator: self.originator,
            clusters: self.clusters.len() as u32 / 4,
        }
    }
}

/// Identifies the attributes that an external peer receives, except the next hop: equal sets share one number.
pub type ExportId = u32;
pub type AttributesId = u32;

/// All sets of attributes.
#[derive(Clone, Debug, Default)]
pub struct Interned {
    all: Vec<(Attributes, Rank, ExportId)>,
    ids: HashMap<Attributes, AttributesId>,
    /// For each set of attributes that an external peer receives, the first set that results in it.
    exports: HashMap<(u8, Vec<u8>, Vec<u8>), ExportId>,
}

impl Interned {
    /// Number of this set; equal sets have equal numbers.
    pub fn intern(&mut self, attributes: &Attributes) -> AttributesId {
        if let Some(id) = self.ids.get(attributes) {
            return *id;
        }
        let id = self.all.len() as AttributesId;
        let told = (attributes.origin, attributes.as_path.clone(), attributes.others.clone());
        let export = *self.exports.entry(told).or_insert(id);
        self.all.push((attributes.clone(), attributes.rank(), export));
        self.ids.insert(attributes.clone(), id);
        id
    }

    pub fn get(&self, id: AttributesId) -> &Attributes {
        &self.all[id as usize].0
    }

    /// The properties that the decision process compares.
    pub fn rank(&self, id: AttributesId) -> Rank {
        self.all[id as usize].1
    }

    /// The first set that is equal for an external peer.
    pub fn export(&self, id: AttributesId) -> ExportId {
        self.all[id as usize].2
    }

    pub fn clear(&mut self) {
        *self = Interned::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(segments: &[(u8, &[u32])]) -> Vec<u8> {
        let mut out = Vec::new();
        for (kind, ases) in segments {
            out.extend([*kind, ases.len() as u8]);
            out.extend(ases.iter().flat_map(|a| a.to_be_bytes()));
        }
        out
    }

    fn with_path(as_path: Vec<u8>) -> Attributes {
        let next_hop = "192.0.2.1".parse().unwrap();
        let (originator, clusters) = (None, Vec::new());
        Attributes {
            origin: 0,
            as_path,
            next_hop,
            med: None,
            local_pref: None,
            originator,
            clusters,
            others: Vec::new(),
        }
    }

    #[test]
    fn a_set_counts_as_one_and_a_confederation_as_none() {
        let rank = |p: &[(u8, &[u32])]| with_path(path(p)).rank();
        let all = rank(&[(3, &[9, 9]), (2, &[1, 2, 3]), (1, &[4, 5, 6]), (2, &[7])]);
        assert_eq!((all.length, all.neighbour, all.local_pref, all.med), (5, 0, 100, 0));
        assert_eq!(rank(&[(2, &[70_000, 2])]).neighbour, 70_000);
        assert_eq!((rank(&[]).length, rank(&[]).neighbour), (0, 0));
    }

    #[test]
    fn the_own_as_comes_in_front() {
        assert_eq!(prepended(&path(&[(2, &[2, 3])]), 1, 1), path(&[(2, &[1, 2, 3])]));
        assert_eq!(prepended(&path(&[(2, &[2])]), 1, 2), path(&[(2, &[1, 1, 2])]));
        assert_eq!(prepended(&[], 1, 1), path(&[(2, &[1])]));
        assert_eq!(prepended(&path(&[(1, &[2])]), 1, 1), path(&[(2, &[1]), (1, &[2])]));
        // A full segment gets a new segment before it.
        let full = vec![7; 255];
        assert_eq!(prepended(&path(&[(2, &full)]), 1, 1), path(&[(2, &[1]), (2, &full)]));
    }

    #[test]
    fn a_loop_is_found_in_any_segment() {
        let attributes = with_path(path(&[(2, &[2, 3]), (1, &[4, 65_000])]));
        assert!(attributes.passed(65_000) && attributes.passed(2) && !attributes.passed(5));
    }

    #[test]
    fn equal_sets_are_one_and_what_stays_here_does_not_count_for_others() {
        let mut all = Interned::default();
        let one = with_path(path(&[(2, &[2])]));
        let with_med = Attributes { med: Some(5), ..one.clone() };
        let elsewhere = Attributes { next_hop: "192.0.2.9".parse().unwrap(), ..one.clone() };
        let tagged = Attributes { others: vec![0xc0, 8, 4, 0, 1, 0, 2], ..one.clone() };
        let ids = [&one, &with_med, &elsewhere, &tagged, &one].map(|a| all.intern(a));
        assert_eq!(ids, [0, 1, 2, 3, 0]);
        assert_eq!(ids.map(|i| all.export(i)), [0, 0, 0, 3, 0]);
    }
}
