//! Are the attributes of a group of routes those that must come?

use super::Expected;
use drophammer_model::routes::RouteAttributes;
use drophammer_wire::bgp::AfiSafi;
use drophammer_wire::bgp::update::{Update, as_path};

/// What is wrong with a group's attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    pub next_hop: bool,
    pub as_path: bool,
    pub attributes: bool,
}

impl Verdict {
    pub fn is_wrong(self) -> bool {
        self != Verdict::default()
    }
}

/// Holds `update` against the attributes that its routes were sent with.
pub(super) fn judge(
    update: &Update<'_>,
    family: AfiSafi,
    sent: &RouteAttributes,
    expected: &Expected,
    ibgp: bool,
) -> Verdict {
    let next_hop = expected.next_hop.is_some() && update.next_hop(family) != expected.next_hop;
    if !expected.check_attributes {
        return Verdict { next_hop, ..Verdict::default() };
    }
    let received = &update.attributes;
    let as_path = !received.as_path.is_some_and(|path| {
        let ases = expected.as_path_prefix.iter().chain(&sent.as_path).copied();
        path.is_sequence() && as_path::merged(path, received.as4_path).eq(ases)
    });
    // With one AS before the path the routes come from the speaker itself, whose MED they have.
    let told = ibgp || expected.as_path_prefix.len() == 1;
    let med = match (told, received.med, sent.med) {
        (true, received, sent) => received != sent,
        // RFC 4271 section 5.1.4: the MED of one AS is not told to another. One of the router's own may be.
        (false, Some(received), Some(sent)) => received == sent && sent != 0,
        (false, ..) => false,
    };
    let attributes = med
        || received.origin != Some(sent.origin.code())
        || !same::<4, u32>(received.communities, &sent.communities, u32::from_be_bytes)
        || !same::<12, [u32; 3]>(received.large_communities, &sent.large_communities, |bytes| {
            let part = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
            [part(0), part(4), part(8)]
        });
    Verdict { next_hop, as_path, attributes }
}

/// Are these the members of `expected`, which ascends, in any order and number?
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
