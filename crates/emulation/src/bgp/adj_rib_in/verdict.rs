//! Compares the attributes of a group of routes with the expected ones.

use super::vpn::VpnFaultKind;
use super::{Expected, RouteSource};
use drophammer_model::routes::{PathSegment, RouteAttributes};
use drophammer_wire::bgp::AfiSafi;
use drophammer_wire::bgp::update::walker::Received;
use drophammer_wire::bgp::update::{Update, as_path};
use std::net::Ipv4Addr;

/// Which attributes of a group are wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    pub next_hop: bool,
    pub as_path: bool,
    pub attributes: bool,
    /// What is wrong with the route targets.
    pub vpn: Option<VpnFaultKind>,
}

impl Verdict {
    pub fn is_wrong(self) -> bool {
        self != Verdict::default()
    }
}

/// The session that received an UPDATE.
#[derive(Clone, Copy, Debug)]
pub(super) struct Of {
    /// True if both speakers are in one AS.
    pub ibgp: bool,
    /// BGP identifier of the peer.
    pub peer_id: Option<Ipv4Addr>,
}

/// LOCAL_PREF that the Adj-RIB-Out sends if the routes have none.
const LOCAL_PREF: u32 = 100;

/// Compares the attributes of `update` with those that its routes were sent with.
pub(super) fn judge(
    update: &Update<'_>,
    family: AfiSafi,
    sent: &RouteAttributes,
    expected: &Expected,
    session: Of,
) -> Verdict {
    let next_hop = expected.next_hop.is_some() && update.next_hop(family) != expected.next_hop;
    if !expected.check_attributes {
        return Verdict { next_hop, ..Verdict::default() };
    }
    let received = &update.attributes;
    let as_path = !received.as_path.is_some_and(|path| {
        if let Some(segments) = &sent.path {
            let same = |((kind, ases), sent): ((u8, _), &PathSegment)| {
                kind == sent.kind.code() && Iterator::eq(ases, sent.ases.iter().copied())
            };
            return path.segments().count() == segments.len() && path.segments().zip(segments).all(same);
        }
        let ases = expected.as_path_prefix.iter().chain(&sent.as_path).copied();
        path.is_sequence() && as_path::merged(path, received.as4_path).eq(ases)
    });
    let med = match (expected.source, session.ibgp, received.med, sent.med) {
        (RouteSource::Peer, ..) => received.med != sent.med,
        // A reflector does not change the MED (RFC 4456 section 10). No MED means the same as 0 (RFC 4271 section 9.1.2.2 c), which FRR
        // sends.
        (RouteSource::Internal(_), true, received, sent) => received.unwrap_or(0) != sent.unwrap_or(0),
        // RFC 4271 section 5.1.4: a router may pass the MED on within the AS, and may remove it.
        (RouteSource::External, true, received, sent) => received.is_some() && received != sent,
        // RFC 4271 section 5.1.4: a router does not pass the MED of one AS on to another. It may send a MED of its own.
        (_, false, Some(received), Some(sent)) => received == sent && sent != 0,
        (_, false, ..) => false,
    };
    let attributes = med
        || (session.ibgp && !internal(received, expected.source, sent, session.peer_id))
        || received.origin != Some(sent.origin.code())
        || !same::<4, u32>(received.communities, &sent.communities, u32::from_be_bytes)
        || !same::<12, [u32; 3]>(received.large_communities, &sent.large_communities, |bytes| {
            let part = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
            [part(0), part(4), part(8)]
        });
    Verdict { next_hop, as_path, attributes, vpn: None }
}

/// True if LOCAL_PREF, ORIGINATOR_ID and CLUSTER_LIST are as expected from an internal peer.
fn internal(received: &Received<'_>, source: RouteSource, sent: &RouteAttributes, peer_id: Option<Ipv4Addr>) -> bool {
    let own = sent.local_pref.unwrap_or(LOCAL_PREF);
    // The cluster of a single reflector has the reflector's identifier (RFC 4456 section 7).
    let cluster = peer_id.map(|id| id.octets());
    let through = cluster.as_ref().is_some_and(|id| received.cluster_list == id);
    let bare = (received.originator_id, received.cluster_list) == (None, &[]);
    match source {
        RouteSource::Peer => received.local_pref == Some(own) && bare,
        // RFC 4271 section 5.1.5: LOCAL_PREF is present, and the router chooses its value. The route was not reflected. If the router still
        // marks it as reflected, as OpenBGPD does for clients, the originator is the router itself, which brought it into the AS.
        RouteSource::External => {
            received.local_pref.is_some() && (bare || through && received.originator_id == peer_id)
        }
        // RFC 4456 sections 8 and 10.
        RouteSource::Internal(originator) => {
            received.local_pref == Some(own) && received.originator_id == Some(originator) && through
        }
    }
}

/// True if `received` has the members of `expected`, in any order and number. `expected` is ascending.
fn same<const N: usize, T: Ord + Copy>(received: &[u8], expected: &[T], read: impl Fn([u8; N]) -> T) -> bool {
    let members = || received.chunks_exact(N).filter_map(|bytes| Some(read(bytes.try_into().ok()?)));
    if members().eq(expected.iter().copied()) {
        return true;
    }
    let mut members: Vec<T> = members().collect();
    members.sort_unstable();
    members.dedup();
    members == expected
}

#[cfg(test)]
mod tests {

    #[test]
    fn sets_in_any_order() {
        let same = |received: &[u8], expected: &[u32]| super::same::<4, u32>(received, expected, u32::from_be_bytes);
        assert!(same(&[], &[]));
        assert!(same(&[0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2], &[1, 2]));
        assert!(!same(&[0, 0, 0, 2], &[1, 2]) && !same(&[0, 0, 0, 2], &[]) && !same(&[], &[2]));
    }
}
