//! The routing table of BGP (RFC 4271 section 3.2): the routes received from each peer (Adj-RIBs-In), the best of them
//! (Loc-RIB), the routes advertised to each peer (Adj-RIBs-Out), and their way to the forwarding table. Instants in,
//! changes and deadlines out.
//!
//! # What is exact
//!
//! - A route takes effect when the segment with the last byte of its UPDATE has arrived. The best path is chosen at that instant.
//! - Prefixes are numbered from 1 in the order in which the device learned them, since its table was last empty; a
//!   prefix keeps its number when it is withdrawn and comes back.
//! - A change of the best path is advertised to the other peers `propagation_delay` later, whatever its first instant there.
//! - A change of the next hop enters the forwarding table as [`FibQueue`] specifies, in the order of the changes;
//!   changes of one instant in the order in which the UPDATE lists them, and those of a peer that went down in the
//!   order of their numbers.
//! - A path whose next hop is not on the link of its peer, or that has passed this AS, is kept and never used.

mod adjacent;
mod attributes;
mod decision;
mod entry;
mod queue;

pub use attributes::{Attributes, AttributesId, ExportId, prepended};
pub use entry::{FibChange, Net, Path, Peer, PeerId, Telling, Timing, net};
pub use queue::FibQueue;

use crate::faults::is_nth;
use adjacent::AdjRibOut;
use attributes::Interned;
use decision::Candidate;
use drophammer_model::Instant;
use entry::{Entry, Paths, wanted};
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

/// The routing table.
pub struct Rib {
    timing: Timing,
    limit: usize,
    withdraw_late: Duration,
    entries: Vec<Entry>,
    ipv4: HashMap<(u32, u8), u32>,
    ipv6: HashMap<(u128, u8), u32>,
    interned: Interned,
    peers: Vec<(Option<Peer>, AdjRibOut)>,
    paths: usize,
    best: usize,
    late: VecDeque<(Instant, u32)>,
    exports: VecDeque<(Instant, u32, Option<Path>)>,
    fib: FibQueue<(u32, Option<u32>)>,
    scratch: Vec<Candidate>,
    /// Peers that had nothing pending and have something now.
    awake: Vec<PeerId>,
    flap: Option<Flap>,
}

/// Prefixes that are withdrawn and advertised again.
#[derive(Clone, Copy, Debug)]
struct Flap {
    every: u64,
    interval: u64,
    /// The next change, once the first instant is known.
    next: Option<Instant>,
    /// True while they are withdrawn.
    away: bool,
}

impl Flap {
    /// The indices of these prefixes among `count`.
    fn all(&self, count: usize) -> impl Iterator<Item = u32> + use<> {
        let every = usize::try_from(self.every).unwrap_or(usize::MAX);
        (every - 1..count).step_by(every).map(|i| i as u32)
    }

    fn hides(&self, i: u32) -> bool {
        self.away && is_nth(u64::from(i) + 1, self.every)
    }
}

impl Rib {
    /// An empty table for `peers` peers, all of them down, that keeps `limit` paths.
    pub fn new(timing: Timing, peers: usize, limit: Option<usize>) -> Rib {
        Rib {
            timing,
            limit: limit.unwrap_or(usize::MAX),
            withdraw_late: Duration::ZERO,
            entries: Vec::new(),
            ipv4: HashMap::new(),
            ipv6: HashMap::new(),
            interned: Interned::default(),
            peers: (0..peers).map(|_| (None, AdjRibOut::default())).collect(),
            paths: 0,
            best: 0,
            late: VecDeque::new(),
            exports: VecDeque::new(),
            fib: FibQueue::new(timing.fib_delay, timing.fib_time_per_route),
            scratch: Vec::new(),
            awake: Vec::new(),
            flap: None,
        }
    }

    /// From now on the loss of a prefix's last path takes effect this much later. Withdrawals that are already delayed
    /// keep their instants.
    pub fn set_withdraw_late(&mut self, late: Duration) {
        self.withdraw_late = late;
    }

    /// From now on every `every`-th prefix is withdrawn and advertised again, alternately, at each multiple of
    /// `interval`; 0 for none.
    pub fn set_flap(&mut self, every: u64, interval: Duration) {
        let interval = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX).max(1_000_000);
        let new = (every > 0).then_some(Flap { every, interval, next: None, away: false });
        if let Some(old) = std::mem::replace(&mut self.flap, new).filter(|old| old.away) {
            old.all(self.entries.len()).for_each(|i| self.mark(i));
        }
    }

    fn flap(&mut self, now: Instant) {
        let Some(flap) = &mut self.flap else { return };
        if flap.next.is_none_or(|next| next <= now) {
            let due = flap.next.replace(Instant((now.0 / flap.interval + 1).saturating_mul(flap.interval)));
            flap.away ^= due.is_some();
            flap.all(self.entries.len()).for_each(|i| self.mark(i));
        }
    }

    /// The attributes that should be advertised to a peer for entry `i`.
    fn wanted(&self, i: u32, id: PeerId, peer: &Peer) -> Option<AttributesId> {
        if self.flap.is_some_and(|flap| flap.hides(i)) {
            return None;
        }
        wanted(&self.entries[i as usize], id, peer, &self.interned)
    }

    /// Paths in all Adj-RIBs-In.
    pub fn paths(&self) -> usize {
        self.paths
    }

    /// Prefixes with a best path.
    pub fn routes(&self) -> usize {
        self.best
    }

    /// Changes on their way to the forwarding table.
    pub fn fib_backlog(&self) -> usize {
        self.fib.backlog()
    }

    /// The best path of a prefix.
    pub fn best(&self, net: Net) -> Option<Path> {
        self.entries[self.find(net)? as usize].best
    }

    /// Number of a set of attributes.
    pub fn intern(&mut self, attributes: &Attributes) -> AttributesId {
        self.interned.intern(attributes)
    }

    /// A set of attributes.
    pub fn attributes(&self, id: AttributesId) -> &Attributes {
        self.interned.get(id)
    }

    /// A session came up: all routes will be advertised to its peer.
    pub fn peer_up(&mut self, now: Instant, id: PeerId, peer: Peer) {
        self.advance(now);
        let (state, out) = &mut self.peers[usize::from(id)];
        *state = Some(peer);
        out.clear();
        for i in 0..self.entries.len() as u32 {
            if self.wanted(i, id, &peer).is_some() {
                self.peers[usize::from(id)].1.mark(i);
            }
        }
        self.awake.extend(self.peers[usize::from(id)].1.first().map(|_| id));
    }

    /// A peer requests all routes of a family again (RFC 2918).
    pub fn refresh(&mut self, id: PeerId, ipv6: bool) {
        let Some((Some(peer), _)) = self.peers.get(usize::from(id)) else { return };
        let peer = *peer;
        for i in 0..self.entries.len() as u32 {
            if self.entries[i as usize].net.0.is_ipv6() == ipv6 && self.wanted(i, id, &peer).is_some() {
                let out = &mut self.peers[usize::from(id)].1;
                out.tell(i, None);
                out.mark(i);
            }
        }
    }

    /// A session ended: its paths are removed, in the order of the numbers of their prefixes.
    pub fn peer_down(&mut self, now: Instant, id: PeerId) {
        self.advance(now);
        let (state, out) = &mut self.peers[usize::from(id)];
        if state.take().is_none() {
            return;
        }
        out.clear();
        for i in 0..self.entries.len() {
            if self.entries[i].paths.remove(id) {
                self.paths -= 1;
                self.reselect(now, i as u32);
            }
        }
    }

    /// A peer that is up advertises a path, which replaces its former one; false if there is no room for another.
    pub fn announce(&mut self, now: Instant, net: Net, path: Path) -> bool {
        self.advance(now);
        let known = self.find(net);
        let replaces = known.is_some_and(|i| self.entries[i as usize].paths.all().iter().any(|p| p.peer == path.peer));
        if !replaces && self.paths >= self.limit {
            return false;
        }
        let i = known.unwrap_or_else(|| self.add(net));
        self.entries[i as usize].paths.put(path);
        self.paths += usize::from(!replaces);
        self.reselect(now, i);
        true
    }

    /// A peer withdraws its path; false if there was none.
    pub fn withdraw(&mut self, now: Instant, net: Net, peer: PeerId) -> bool {
        self.advance(now);
        let Some(i) = self.find(net).filter(|i| self.entries[*i as usize].paths.remove(peer)) else { return false };
        self.paths -= 1;
        self.reselect(now, i);
        true
    }

    /// Forgets numbers and attributes if nothing is left anywhere; true if it did. Attributes that were interned before
    /// are invalid then.
    pub fn forget(&mut self) -> bool {
        let idle = self.paths == 0
            && self.late.is_empty()
            && self.exports.is_empty()
            && self.fib.backlog() == 0
            && self.peers.iter().all(|(_, out)| out.is_empty());
        if idle && !self.entries.is_empty() {
            self.entries.clear();
            self.ipv4.clear();
            self.ipv6.clear();
            self.interned.clear();
            self.peers.iter_mut().for_each(|(_, out)| out.clear());
            return true;
        }
        false
    }

    fn find(&self, (address, len): Net) -> Option<u32> {
        match address {
            IpAddr::V4(a) => self.ipv4.get(&(a.to_bits(), len)),
            IpAddr::V6(a) => self.ipv6.get(&(a.to_bits(), len)),
        }
        .copied()
    }

    fn add(&mut self, net: Net) -> u32 {
        let i = self.entries.len() as u32;
        let entry = Entry { net, paths: Paths::None, best: None, exported: None, hop: None, late: 0 };
        self.entries.push(entry);
        match net.0 {
            IpAddr::V4(a) => self.ipv4.insert((a.to_bits(), net.1), i),
            IpAddr::V6(a) => self.ipv6.insert((a.to_bits(), net.1), i),
        };
        i
    }

    fn reselect(&mut self, now: Instant, i: u32) {
        let entry = &mut self.entries[i as usize];
        let new = match entry.paths.all() {
            [] => None,
            [only] => only.hop.is_some().then_some(*only),
            many => {
                self.scratch.clear();
                let usable: Vec<Path> = many.iter().copied().filter(|p| p.hop.is_some()).collect();
                self.scratch.extend(usable.iter().filter_map(|path| {
                    let peer = self.peers[usize::from(path.peer)].0?;
                    let Peer { internal, router_id, address, .. } = peer;
                    Some(Candidate { rank: self.interned.rank(path.attributes), internal, router_id, address })
                }));
                decision::best(&self.scratch).map(|at| usable[at])
            }
        };
        if new == entry.best {
            return;
        }
        self.best = self.best + usize::from(new.is_some()) - usize::from(entry.best.is_some());
        entry.best = new;
        if new.is_none() && !self.withdraw_late.is_zero() {
            entry.late += 1;
            let at = now + self.withdraw_late;
            let place = self.late.partition_point(|(before, _)| *before <= at);
            self.late.insert(place, (at, i));
        } else {
            self.changed(now, i);
        }
    }

    /// The best path of entry `i` takes effect.
    fn changed(&mut self, now: Instant, i: u32) {
        let entry = &mut self.entries[i as usize];
        self.exports.push_back((now + self.timing.propagation_delay, i, entry.best));
        let hop = entry.best.and_then(|p| p.hop);
        if hop != entry.hop {
            entry.hop = hop;
            self.fib.push(now, (i, hop));
        }
    }

    /// Does what is due until `now`.
    pub fn advance(&mut self, now: Instant) {
        loop {
            let late = self.late.front().filter(|l| l.0 <= now).copied();
            let export = self.exports.front().filter(|e| e.0 <= now).copied();
            match (late, export) {
                (Some((at, i)), export) if export.is_none_or(|e| at <= e.0) => {
                    self.late.pop_front();
                    let entry = &mut self.entries[i as usize];
                    entry.late -= 1;
                    // Otherwise it came back in the meantime, or a later withdrawal is still delayed.
                    if entry.late == 0 && entry.best.is_none() {
                        self.changed(at, i);
                    }
                }
                (_, Some((_, i, best))) => {
                    self.exports.pop_front();
                    self.entries[i as usize].exported = best;
                    self.mark(i);
                }
                _ => break,
            }
        }
        self.flap(now);
    }

    fn mark(&mut self, i: u32) {
        let entry = &self.entries[i as usize];
        let hidden = self.flap.is_some_and(|flap| flap.hides(i));
        for (id, (peer, out)) in self.peers.iter_mut().enumerate() {
            if let Some(peer) = peer
                && wanted(entry, id as PeerId, peer, &self.interned).filter(|_| !hidden) != out.told(i)
            {
                self.awake.extend(out.first().is_none().then_some(id as PeerId));
                out.mark(i);
            }
        }
    }

    /// The next peer for which something has become pending since the last call.
    pub fn take_awake(&mut self) -> Option<PeerId> {
        self.awake.pop()
    }

    /// When something is due that is to be advertised to peers.
    pub fn next_deadline(&self) -> Option<Instant> {
        let (late, export) = (self.late.front().map(|l| l.0), self.exports.front().map(|e| e.0));
        let flap = self.flap.filter(|_| !self.entries.is_empty()).map(|flap| flap.next.unwrap_or(Instant(0)));
        late.into_iter().chain(export).chain(flap).min()
    }

    /// When the last change on its way to the forwarding table is done.
    pub fn fib_end(&self) -> Option<Instant> {
        self.fib.end()
    }

    /// The next change of the forwarding table until `now`, with its instant. Changes that [`Rib::advance`] has not
    /// processed are not included.
    pub fn take_fib(&mut self, now: Instant) -> Option<(Instant, FibChange)> {
        let (at, (i, hop)) = self.fib.take(now)?;
        Some((at, FibChange { net: self.entries[i as usize].net, number: i + 1, hop }))
    }

    /// The next message to a peer: the prefix, its number, the path (none for a withdrawal), and the content.
    pub fn next_telling(&mut self, id: PeerId) -> Option<(Net, u32, Option<Path>, Telling)> {
        let peer = self.peers.get(usize::from(id))?.0?;
        loop {
            let i = self.peers[usize::from(id)].1.first()?;
            let (entry, wanted) = (&self.entries[i as usize], self.wanted(i, id, &peer));
            let out = &mut self.peers[usize::from(id)].1;
            if wanted == out.told(i) {
                // It changed and changed back before anything was sent to the peer.
                out.pop();
                continue;
            }
            let telling = wanted.map_or(Telling::Withdraw, Telling::Announce);
            return Some((entry.net, i + 1, entry.exported, telling));
        }
    }

    /// The message of [`Rib::next_telling`] has been sent to the peer.
    pub fn told(&mut self, id: PeerId) {
        let Some((Some(peer), out)) = self.peers.get(usize::from(id)) else { return };
        if let Some(i) = out.first() {
            let wanted = self.wanted(i, id, peer);
            let out = &mut self.peers[usize::from(id)].1;
            out.pop();
            out.tell(i, wanted);
        }
    }

    /// Whether something is pending for this peer.
    pub fn has_news(&self, id: PeerId) -> bool {
        self.peers.get(usize::from(id)).is_some_and(|(_, out)| out.first().is_some())
    }

    /// Prefixes that are advertised to this peer and not withdrawn.
    pub fn told_count(&self, id: PeerId) -> usize {
        self.peers.get(usize::from(id)).map_or(0, |(_, out)| out.count())
    }
}

#[cfg(test)]
mod tests;
