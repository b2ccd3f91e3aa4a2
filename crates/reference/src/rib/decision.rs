//! Selection of the best of several paths: RFC 4271 section 9.1.2.2, with the additions of RFC 4456 section 9.

use super::attributes::Rank;
use std::net::IpAddr;

/// A path that can be selected.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// Rank of its attributes.
    pub rank: Rank,
    /// True if it was received from an internal peer.
    pub internal: bool,
    /// BGP identifier of the peer.
    pub router_id: u32,
    /// Address of the peer.
    pub address: IpAddr,
}

/// Index of the best path; `None` if there is none. The age of a path does not matter, and all next hops have the same
/// cost.
pub fn best(candidates: &[Candidate]) -> Option<usize> {
    if candidates.len() < 2 {
        return (!candidates.is_empty()).then_some(0);
    }
    let mut left: Vec<(usize, &Candidate)> = candidates.iter().enumerate().collect();
    keep_least(&mut left, |c| u32::MAX - c.rank.local_pref);
    keep_least(&mut left, |c| c.rank.length);
    keep_least(&mut left, |c| c.rank.origin);
    // MEDs are compared only among paths through the same neighbouring AS.
    let meds: Vec<(u32, u32)> = left.iter().map(|(_, c)| (c.rank.neighbour, c.rank.med)).collect();
    left.retain(|(_, c)| !meds.iter().any(|(neighbour, med)| *neighbour == c.rank.neighbour && *med < c.rank.med));
    keep_least(&mut left, |c| c.internal);
    // For reflected paths, compare the originator, then the number of reflectors.
    keep_least(&mut left, |c| c.rank.originator.unwrap_or(c.router_id));
    keep_least(&mut left, |c| c.rank.clusters);
    keep_least(&mut left, |c| c.address);
    left.first().map(|(i, _)| *i)
}

fn keep_least<K: Ord>(left: &mut Vec<(usize, &Candidate)>, key: impl Fn(&Candidate) -> K) {
    if let Some(least) = left.iter().map(|(_, c)| key(c)).min() {
        left.retain(|(_, c)| key(c) == least);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(n: u8) -> Candidate {
        let (originator, clusters) = (None, 1);
        let rank = Rank { local_pref: 100, length: 3, origin: 0, neighbour: 65_001, med: 10, originator, clusters };
        let address = IpAddr::from([198, 18, n, 2]);
        Candidate { rank, internal: false, router_id: 100, address }
    }

    /// Asserts that the second path wins after `change`, although later rules prefer the first.
    fn wins(change: impl Fn(&mut Candidate)) {
        let mut better = plain(9);
        change(&mut better);
        assert_eq!(best(&[plain(1), better]), Some(1));
        assert_eq!(best(&[better, plain(1)]), Some(0));
        assert_eq!(best(&[plain(1), plain(2), better, plain(3)]), Some(2));
    }

    #[test]
    fn each_rule_decides_over_those_after_it() {
        wins(|c| (c.rank.local_pref, c.rank.length) = (101, 50));
        wins(|c| (c.rank.length, c.rank.origin) = (2, 2));
        // MED 11 would lose against MED 10.
        let mut egp = plain(1);
        egp.rank.origin = 1;
        let mut igp = plain(9);
        igp.rank.med = 11;
        assert_eq!(best(&[egp, igp]), Some(1));
        wins(|c| (c.rank.med, c.internal) = (9, true));
        let mut internal = plain(1);
        (internal.internal, internal.router_id) = (true, 1);
        assert_eq!(best(&[internal, plain(9)]), Some(1));
        wins(|c| c.router_id = 99);
        wins(|c| (c.router_id, c.rank.originator) = (101, Some(99)));
        wins(|c| c.rank.clusters = 0);
        assert_eq!(best(&[plain(9), plain(2), plain(10)]), Some(1), "the lowest address");
        assert_eq!((best(&[]), best(&[plain(1)])), (None, Some(0)));
    }

    #[test]
    fn meds_of_different_neighbours_are_not_compared() {
        let with = |n: u8, neighbour, med, router_id| {
            let mut c = plain(n);
            (c.rank.neighbour, c.rank.med, c.router_id) = (neighbour, med, router_id);
            c
        };
        // The well-known case without a total order: 1 beats 2 by MED, 2 beats 3 and 3 beats 1 by router id.
        let (one, two, three) = (with(1, 65_001, 1, 30), with(2, 65_001, 2, 10), with(3, 65_002, 0, 20));
        assert_eq!(best(&[one, two]), Some(0));
        assert_eq!(best(&[two, three]), Some(0));
        assert_eq!(best(&[three, one]), Some(0));
        assert_eq!(best(&[one, two, three]), Some(2), "all at once: 2 is out by MED, then 3 by router id");
    }
}
