//! The routing table of BGP (RFC 4271 section 3.2): the routes received from each peer (Adj-RIBs-In), the best of them
//! (Loc-RIB), the routes advertised to each peer (Adj-RIBs-Out), and pending changes of the forwarding table. It
//! receives instants, and returns changes and deadlines.
//!
//! # What is exact
//!
//! - A route takes effect, and the best path is chosen, when the segment with the last byte of its UPDATE arrives.
//! - Prefixes are numbered from 1, in the order in which the device learned them since its table was last empty. A
//!   prefix keeps its number when it is withdrawn and announced again.
//! - A change of the best path is advertised to the other peers `propagation_delay` later.
//! - Changes of the next hop enter the forwarding table in order, at the times that [`FibQueue`] computes. Changes at
//!   the same instant are in the order of the UPDATE; changes due to a peer that went down are in the order of their
//!   prefix numbers.
//! - A path whose next hop is not on the link of its peer, or whose AS path contains this AS, is kept but never used.
//!
//! # VRFs
//!
//! Each VRF has a table of its own (RFC 4364 section 3.2); all tables share the numbers of prefixes and the delays. A
//! session with a CE router belongs to one VRF, a session with a PE router to all of them. In a VRF, the path of the CE
//! router is better than imported ones, and among these the lowest next hop is best, then the route distinguisher that
//! came first. An imported path is used only while the device has a route to its next hop.

mod attributes;
mod decision;
mod queue;

pub use attributes::{Attributes, AttributesId, prepended};
pub use queue::FibQueue;

use crate::faults::is_nth;
use attributes::Interned;
use decision::Candidate;
use drophammer_model::Instant;
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// A prefix: its first address and its length.
pub type Net = (IpAddr, u8);

pub type PeerId = u16;

/// A table: [`GLOBAL`], or `n + 1` for VRF `n`.
pub type TableId = u32;

/// The device's own table.
pub const GLOBAL: TableId = 0;

/// The tables that a session belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Table(TableId),
    /// All VRFs.
    Vrfs,
}

/// A next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hop {
    /// A neighbour, by a number that the caller chose.
    Neighbour(u32),
    /// A PE router, by a number that the caller chose, and the label that it assigned to the route.
    Pe { pe: u32, label: u32 },
}

/// Where a path came from; there is at most one path from each source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source {
    /// Number of the route distinguisher of an imported path, [`LEAKED`] included; 0 for all other paths.
    pub distinguisher: u32,
    /// The peer that advertised it.
    pub peer: PeerId,
}

/// Added to the distinguisher of a path that a fault imported into a wrong VRF. Such a path is the best one.
pub const LEAKED: u32 = 1 << 31;

impl Source {
    /// A peer that advertises routes of one table.
    pub fn peer(peer: PeerId) -> Source {
        Source { distinguisher: 0, peer }
    }

    fn is_leaked(self) -> bool {
        self.distinguisher & LEAKED != 0
    }
}

/// Delays of a routing table.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timing {
    /// Time from reception to re-advertisement.
    pub propagation_delay: Duration,
    /// Time from a change of the best path to the forwarding table.
    pub fib_delay: Duration,
    /// Shortest time between two changes of the forwarding table.
    pub fib_time_per_route: Duration,
}

/// A session that is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// True if the peer is in the same AS.
    pub internal: bool,
    /// True if routes are reflected for the peer.
    pub client: bool,
    pub router_id: u32,
    pub address: IpAddr,
    pub scope: Scope,
    /// True if IPv4 routes are advertised.
    pub ipv4: bool,
    /// True if IPv6 routes are advertised.
    pub ipv6: bool,
}

/// A path received from a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    pub attributes: AttributesId,
    /// A path with `None` is never used.
    pub hop: Option<Hop>,
    pub source: Source,
    /// True if that peer is internal.
    pub internal: bool,
    /// True if routes are reflected for that peer.
    pub client: bool,
}

/// The message to a peer about a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Telling {
    /// Announces a route with this set of attributes. For external peers, it is the first set that is equal for them.
    Announce(AttributesId),
    Withdraw,
}

/// A change of the forwarding table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FibChange {
    pub table: TableId,
    pub net: Net,
    /// Number of the prefix, from 1.
    pub number: u32,
    /// The next hop; `None` if the route is removed.
    pub hop: Option<Hop>,
}

/// A prefix with all its state.
#[derive(Clone, Debug)]
struct Entry {
    pub table: TableId,
    /// Its position among the prefixes of its table.
    pub place: u32,
    pub net: Net,
    pub paths: Paths,
    pub best: Option<Path>,
    /// The best path as it is advertised to peers.
    pub exported: Option<Path>,
    /// The next hop that is in the forwarding table or on its way there.
    pub hop: Option<Hop>,
    /// Delayed withdrawals of the prefix.
    pub late: u32,
}

/// Paths to a prefix; usually one or two.
#[derive(Clone, Debug)]
enum Paths {
    None,
    One(Path),
    Many(Vec<Path>),
}

impl Paths {
    pub fn all(&self) -> &[Path] {
        match self {
            Paths::None => &[],
            Paths::One(path) => std::slice::from_ref(path),
            Paths::Many(paths) => paths,
        }
    }

    pub fn put(&mut self, path: Path) {
        match self {
            Paths::None => *self = Paths::One(path),
            Paths::One(own) if own.source == path.source => *own = path,
            Paths::One(own) => *self = Paths::Many(vec![*own, path]),
            Paths::Many(paths) => match paths.iter_mut().find(|p| p.source == path.source) {
                Some(own) => *own = path,
                None => paths.push(path),
            },
        }
    }

    /// Removes the paths from these sources; returns their number.
    pub fn remove(&mut self, gone: impl Fn(Source) -> bool) -> usize {
        let before = self.all().len();
        match self {
            Paths::One(own) if gone(own.source) => *self = Paths::None,
            Paths::Many(paths) => {
                paths.retain(|p| !gone(p.source));
                match paths[..] {
                    [] => *self = Paths::None,
                    [only] => *self = Paths::One(only),
                    _ => {}
                }
            }
            _ => {}
        }
        before - self.all().len()
    }
}

/// The attributes to advertise to peer `id` for a prefix. A route is not sent back to the peer that sent it, nor from
/// one internal peer to another (RFC 4271 section 9.2), unless one of the two is a client (RFC 4456 section 6).
fn wanted(entry: &Entry, id: PeerId, peer: &Peer, interned: &Interned) -> Option<AttributesId> {
    let path = entry.exported.filter(|p| p.source.peer != id)?;
    let family = if entry.net.0.is_ipv4() { peer.ipv4 } else { peer.ipv6 };
    if !family || path.internal && peer.internal && !path.client && !peer.client {
        return None;
    }
    Some(if peer.internal { path.attributes } else { interned.export(path.attributes) })
}

/// A prefix without the bits beyond its length; `None` if its family has no such length.
pub fn net(address: IpAddr, len: u8) -> Option<Net> {
    let address = match address {
        IpAddr::V4(a) if len <= 32 => {
            Ipv4Addr::from_bits(a.to_bits() & u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0)).into()
        }
        IpAddr::V6(a) if len <= 128 => {
            Ipv6Addr::from_bits(a.to_bits() & u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)).into()
        }
        _ => return None,
    };
    Some((address, len))
}

pub struct Rib {
    timing: Timing,
    limit: usize,
    withdraw_late: Duration,
    entries: Vec<Entry>,
    tables: Vec<Members>,
    /// Peers of all VRFs that are up.
    pe_peers: Vec<PeerId>,
    /// True for each PE router to which the device has a route.
    reachable: Vec<bool>,
    ipv4: HashMap<(TableId, u32, u8), u32>,
    ipv6: HashMap<(TableId, u128, u8), u32>,
    interned: Interned,
    peers: Vec<(Option<Peer>, AdjRibOut)>,
    paths: usize,
    best: usize,
    late: VecDeque<(Instant, u32)>,
    exports: VecDeque<(Instant, u32, Option<Path>)>,
    fib: FibQueue<(u32, Option<Hop>)>,
    scratch: Vec<Candidate>,
    /// Peers that have pending messages since the last query.
    awake: Vec<PeerId>,
    flap: Option<Flap>,
}

/// What belongs to a table.
#[derive(Clone, Debug, Default)]
struct Members {
    /// Its prefixes, by their indices.
    entries: Vec<u32>,
    /// Peers that are up, ascending.
    peers: Vec<PeerId>,
}

/// Prefixes that are withdrawn and advertised alternately.
#[derive(Clone, Copy, Debug)]
struct Flap {
    every: u64,
    interval: u64,
    /// Time of the next change, after the first instant is known.
    next: Option<Instant>,
    /// True while the prefixes are withdrawn.
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
    /// Empty tables of the device and its `vrfs` VRFs for `peers` peers, which are all down. It keeps at most `limit`
    /// paths.
    pub fn new(timing: Timing, peers: usize, vrfs: usize, limit: Option<usize>) -> Rib {
        Rib {
            timing,
            limit: limit.unwrap_or(usize::MAX),
            withdraw_late: Duration::ZERO,
            entries: Vec::new(),
            tables: vec![Members::default(); 1 + vrfs],
            pe_peers: Vec::new(),
            reachable: Vec::new(),
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

    /// From now on, delays the loss of a prefix's last path by this time. Withdrawals that are already delayed keep
    /// their instants.
    pub fn set_withdraw_late(&mut self, late: Duration) {
        self.withdraw_late = late;
    }

    /// Alternately withdraws and advertises every `every`-th prefix, at each multiple of `interval`; 0 for none.
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

    /// The attributes to advertise to a peer for entry `i`.
    fn wanted(&self, i: u32, id: PeerId, peer: &Peer) -> Option<AttributesId> {
        if self.flap.is_some_and(|flap| flap.hides(i)) {
            return None;
        }
        wanted(&self.entries[i as usize], id, peer, &self.interned)
    }

    pub fn paths(&self) -> usize {
        self.paths
    }

    pub fn routes(&self) -> usize {
        self.best
    }

    pub fn fib_backlog(&self) -> usize {
        self.fib.backlog()
    }

    /// Number of a set of attributes.
    pub fn intern(&mut self, attributes: &Attributes) -> AttributesId {
        self.interned.intern(attributes)
    }

    pub fn attributes(&self, id: AttributesId) -> &Attributes {
        self.interned.get(id)
    }

    /// Number of prefixes that a session with this scope may concern.
    fn scope_len(&self, scope: Scope) -> usize {
        match scope {
            Scope::Table(table) => self.tables[table as usize].entries.len(),
            Scope::Vrfs => self.entries.len(),
        }
    }

    /// The index of one of these prefixes; `None` if it does not belong to the scope.
    fn in_scope(&self, scope: Scope, at: usize) -> Option<u32> {
        match scope {
            Scope::Table(table) => Some(self.tables[table as usize].entries[at]),
            Scope::Vrfs => (self.entries[at].table != GLOBAL).then_some(at as u32),
        }
    }

    /// The peers of a scope that are up.
    fn peers_in(&mut self, scope: Scope) -> &mut Vec<PeerId> {
        match scope {
            Scope::Table(table) => &mut self.tables[table as usize].peers,
            Scope::Vrfs => &mut self.pe_peers,
        }
    }

    /// Call it when a session came up: marks all routes for its peer.
    pub fn peer_up(&mut self, now: Instant, id: PeerId, peer: Peer) {
        self.advance(now);
        let (state, out) = &mut self.peers[usize::from(id)];
        *state = Some(peer);
        *out = AdjRibOut::new(peer.scope);
        let up = self.peers_in(peer.scope);
        if let Err(at) = up.binary_search(&id) {
            up.insert(at, id);
        }
        self.mark_all(id, &peer, |_| true);
        self.awake.extend(self.peers[usize::from(id)].1.first().map(|_| id));
    }

    /// Marks all routes of a peer that pass `which`, as if they had not been advertised.
    fn mark_all(&mut self, id: PeerId, peer: &Peer, which: impl Fn(&Entry) -> bool) {
        for at in 0..self.scope_len(peer.scope) {
            let Some(i) = self.in_scope(peer.scope, at) else { continue };
            let entry = &self.entries[i as usize];
            if which(entry) && self.wanted(i, id, peer).is_some() {
                let out = &mut self.peers[usize::from(id)].1;
                out.tell(i, entry, None);
                out.mark(i, entry);
            }
        }
    }

    /// Call it when a peer requests all routes of a family again (RFC 2918).
    pub fn refresh(&mut self, id: PeerId, ipv6: bool) {
        let Some((Some(peer), _)) = self.peers.get(usize::from(id)) else { return };
        let peer = *peer;
        self.mark_all(id, &peer, |entry| entry.net.0.is_ipv6() == ipv6);
    }

    /// Call it when a session ended: removes its paths, in the order of their prefix numbers.
    pub fn peer_down(&mut self, now: Instant, id: PeerId) {
        self.advance(now);
        let (state, out) = &mut self.peers[usize::from(id)];
        let Some(peer) = state.take() else { return };
        out.clear();
        self.peers_in(peer.scope).retain(|other| *other != id);
        for at in 0..self.scope_len(peer.scope) {
            let Some(i) = self.in_scope(peer.scope, at) else { continue };
            let gone = self.entries[i as usize].paths.remove(|source| source.peer == id);
            if gone > 0 {
                self.paths -= gone;
                self.reselect(now, i);
            }
        }
    }

    /// Records whether the device has a route to a PE router, and repeats the selection for prefixes with paths through
    /// it.
    pub fn set_reachable(&mut self, now: Instant, pe: u32, reachable: bool) {
        self.advance(now);
        let at = pe as usize;
        if self.reachable.len() <= at {
            self.reachable.resize(at + 1, false);
        }
        if std::mem::replace(&mut self.reachable[at], reachable) == reachable {
            return;
        }
        let through = |path: &Path| matches!(path.hop, Some(Hop::Pe { pe: own, .. }) if own == pe);
        for i in 0..self.entries.len() {
            if self.entries[i].paths.all().iter().any(through) {
                self.reselect(now, i as u32);
            }
        }
    }

    /// The imported path with the lowest prefix number.
    pub fn first_imported(&self) -> Option<(TableId, Net, Path)> {
        self.entries.iter().find_map(|entry| {
            let imported = entry.paths.all().iter().find(|path| path.source.distinguisher != 0)?;
            Some((entry.table, entry.net, *imported))
        })
    }

    /// Adds a path from a peer that is up; it replaces the earlier path from its source. False if there is no room.
    pub fn announce(&mut self, now: Instant, table: TableId, net: Net, path: Path) -> bool {
        self.advance(now);
        let known = self.find(table, net);
        let replaces =
            known.is_some_and(|i| self.entries[i as usize].paths.all().iter().any(|p| p.source == path.source));
        if !replaces && self.paths >= self.limit {
            return false;
        }
        let i = known.unwrap_or_else(|| self.add(table, net));
        self.entries[i as usize].paths.put(path);
        self.paths += usize::from(!replaces);
        self.reselect(now, i);
        true
    }

    /// Removes the path of a source; false if there was none.
    pub fn withdraw(&mut self, now: Instant, table: TableId, net: Net, source: Source) -> bool {
        self.advance(now);
        let Some(i) = self.find(table, net) else { return false };
        if self.entries[i as usize].paths.remove(|own| own == source) == 0 {
            return false;
        }
        self.paths -= 1;
        self.reselect(now, i);
        true
    }

    /// Forgets prefix numbers and attributes if no route is left and nothing is pending; returns true if it did. This
    /// invalidates all [`AttributesId`]s.
    pub fn forget(&mut self) -> bool {
        let idle = self.paths == 0
            && self.late.is_empty()
            && self.exports.is_empty()
            && self.fib.backlog() == 0
            && self.peers.iter().all(|(_, out)| out.is_empty());
        if idle && !self.entries.is_empty() {
            self.entries.clear();
            self.tables.iter_mut().for_each(|table| table.entries.clear());
            self.ipv4.clear();
            self.ipv6.clear();
            self.interned.clear();
            self.peers.iter_mut().for_each(|(_, out)| out.clear());
            return true;
        }
        false
    }

    fn find(&self, table: TableId, (address, len): Net) -> Option<u32> {
        match address {
            IpAddr::V4(a) => self.ipv4.get(&(table, a.to_bits(), len)),
            IpAddr::V6(a) => self.ipv6.get(&(table, a.to_bits(), len)),
        }
        .copied()
    }

    fn add(&mut self, table: TableId, net: Net) -> u32 {
        let i = self.entries.len() as u32;
        let members = &mut self.tables[table as usize].entries;
        let place = members.len() as u32;
        members.push(i);
        let entry = Entry { table, place, net, paths: Paths::None, best: None, exported: None, hop: None, late: 0 };
        self.entries.push(entry);
        match net.0 {
            IpAddr::V4(a) => self.ipv4.insert((table, a.to_bits(), net.1), i),
            IpAddr::V6(a) => self.ipv6.insert((table, a.to_bits(), net.1), i),
        };
        i
    }

    /// True if a path has a next hop to which the device has a route.
    fn is_usable(&self, path: &Path) -> bool {
        match path.hop {
            None => false,
            Some(Hop::Neighbour(_)) => true,
            Some(Hop::Pe { pe, .. }) => self.reachable.get(pe as usize) == Some(&true),
        }
    }

    /// The best path of entry `i`.
    fn select(&mut self, i: u32) -> Option<Path> {
        let entry = &self.entries[i as usize];
        match entry.paths.all() {
            [] => None,
            [only] => self.is_usable(only).then_some(*only),
            many if entry.table != GLOBAL => {
                let key = |path: &&Path| {
                    let next_hop = self.interned.get(path.attributes).next_hop;
                    (!path.source.is_leaked(), path.internal, next_hop, path.source)
                };
                many.iter().filter(|path| self.is_usable(path)).min_by_key(key).copied()
            }
            many => {
                self.scratch.clear();
                let usable: Vec<Path> = many.iter().copied().filter(|p| p.hop.is_some()).collect();
                self.scratch.extend(usable.iter().filter_map(|path| {
                    let peer = self.peers[usize::from(path.source.peer)].0?;
                    let Peer { internal, router_id, address, .. } = peer;
                    Some(Candidate { rank: self.interned.rank(path.attributes), internal, router_id, address })
                }));
                decision::best(&self.scratch).map(|at| usable[at])
            }
        }
    }

    fn reselect(&mut self, now: Instant, i: u32) {
        let new = self.select(i);
        let entry = &mut self.entries[i as usize];
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

    /// Exports the best path of entry `i` after a change.
    fn changed(&mut self, now: Instant, i: u32) {
        let entry = &mut self.entries[i as usize];
        self.exports.push_back((now + self.timing.propagation_delay, i, entry.best));
        let hop = entry.best.and_then(|p| p.hop);
        if hop != entry.hop {
            entry.hop = hop;
            self.fib.push(now, (i, hop));
        }
    }

    /// Does everything that is due until `now`.
    pub fn advance(&mut self, now: Instant) {
        loop {
            let late = self.late.front().filter(|l| l.0 <= now).copied();
            let export = self.exports.front().filter(|e| e.0 <= now).copied();
            match (late, export) {
                (Some((at, i)), export) if export.is_none_or(|e| at <= e.0) => {
                    self.late.pop_front();
                    let entry = &mut self.entries[i as usize];
                    entry.late -= 1;
                    // Otherwise the prefix has been announced again, or a later withdrawal is still delayed.
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
        let Rib { entries, tables, pe_peers, peers, interned, awake, .. } = self;
        let entry = &entries[i as usize];
        let hidden = self.flap.is_some_and(|flap| flap.hides(i));
        let of_vrfs = if entry.table == GLOBAL { &[][..] } else { &pe_peers[..] };
        for id in tables[entry.table as usize].peers.iter().chain(of_vrfs).copied() {
            let (peer, out) = &mut peers[usize::from(id)];
            if let Some(peer) = peer
                && wanted(entry, id, peer, interned).filter(|_| !hidden) != out.told(i, entry)
            {
                awake.extend(out.first().is_none().then_some(id));
                out.mark(i, entry);
            }
        }
    }

    /// Takes the next peer that has pending messages since the last query.
    pub fn take_awake(&mut self) -> Option<PeerId> {
        self.awake.pop()
    }

    /// The time when the next advertisement to peers is due.
    pub fn next_deadline(&self) -> Option<Instant> {
        let (late, export) = (self.late.front().map(|l| l.0), self.exports.front().map(|e| e.0));
        let flap = self.flap.filter(|_| !self.entries.is_empty()).map(|flap| flap.next.unwrap_or(Instant(0)));
        late.into_iter().chain(export).chain(flap).min()
    }

    /// The time when the last change reaches the forwarding table.
    pub fn fib_end(&self) -> Option<Instant> {
        self.fib.end()
    }

    /// The next change of the forwarding table until `now`, and its instant. Call [`Rib::advance`] first.
    pub fn take_fib(&mut self, now: Instant) -> Option<(Instant, FibChange)> {
        let (at, (i, hop)) = self.fib.take(now)?;
        let Entry { table, net, .. } = self.entries[i as usize];
        Some((at, FibChange { table, net, number: i + 1, hop }))
    }

    /// The next message to a peer: table, prefix, prefix number, path (`None` for a withdrawal), and content.
    pub fn next_telling(&mut self, id: PeerId) -> Option<(TableId, Net, u32, Option<Path>, Telling)> {
        let peer = self.peers.get(usize::from(id))?.0?;
        loop {
            let i = self.peers[usize::from(id)].1.first()?;
            let (entry, wanted) = (&self.entries[i as usize], self.wanted(i, id, &peer));
            let out = &mut self.peers[usize::from(id)].1;
            if wanted == out.told(i, entry) {
                // The route changed and changed back before the peer was informed.
                out.pop(entry);
                continue;
            }
            let telling = wanted.map_or(Telling::Withdraw, Telling::Announce);
            return Some((entry.table, entry.net, i + 1, entry.exported, telling));
        }
    }

    /// Records that the message of [`Rib::next_telling`] has been sent to the peer.
    pub fn told(&mut self, id: PeerId) {
        let Some((Some(peer), out)) = self.peers.get(usize::from(id)) else { return };
        if let Some(i) = out.first() {
            let wanted = self.wanted(i, id, peer);
            let (entry, out) = (&self.entries[i as usize], &mut self.peers[usize::from(id)].1);
            out.pop(entry);
            out.tell(i, entry, wanted);
        }
    }

    /// True if something is pending for this peer.
    pub fn has_news(&self, id: PeerId) -> bool {
        self.peers.get(usize::from(id)).is_some_and(|(_, out)| out.first().is_some())
    }
}

/// Nothing is advertised.
const NOTHING: u32 = u32::MAX;

/// An Adj-RIB-Out: what has been advertised to one peer, and what is still to be advertised.
#[derive(Clone, Debug, Default)]
struct AdjRibOut {
    /// True if prefixes are stored by their place in their table, false if by their index among the prefixes of all
    /// tables.
    by_place: bool,
    told: Vec<u32>,
    count: usize,
    /// Indices of prefixes that may have changed for this peer, each listed once, in the order of their changes.
    news: VecDeque<u32>,
    waits: Vec<bool>,
}

impl AdjRibOut {
    fn new(scope: Scope) -> AdjRibOut {
        AdjRibOut { by_place: matches!(scope, Scope::Table(_)), ..AdjRibOut::default() }
    }

    fn clear(&mut self) {
        *self = AdjRibOut { by_place: self.by_place, ..AdjRibOut::default() };
    }

    /// True if nothing has been advertised and nothing is pending.
    fn is_empty(&self) -> bool {
        self.count == 0 && self.news.is_empty()
    }

    fn at(&self, i: u32, entry: &Entry) -> usize {
        (if self.by_place { entry.place } else { i }) as usize
    }

    /// The attributes advertised for prefix `i`.
    fn told(&self, i: u32, entry: &Entry) -> Option<AttributesId> {
        self.told.get(self.at(i, entry)).copied().filter(|told| *told != NOTHING)
    }

    /// Records what has been advertised for a prefix.
    fn tell(&mut self, i: u32, entry: &Entry, attributes: Option<AttributesId>) {
        let at = self.at(i, entry);
        if self.told.len() <= at {
            self.told.resize(at + 1, NOTHING);
        }
        self.count = self.count + usize::from(attributes.is_some()) - usize::from(self.told[at] != NOTHING);
        self.told[at] = attributes.unwrap_or(NOTHING);
    }

    /// Marks a prefix as possibly changed.
    fn mark(&mut self, i: u32, entry: &Entry) {
        let at = self.at(i, entry);
        if self.waits.len() <= at {
            self.waits.resize(at + 1, false);
        }
        if !std::mem::replace(&mut self.waits[at], true) {
            self.news.push_back(i);
        }
    }

    /// Index of the next marked prefix.
    fn first(&self) -> Option<u32> {
        self.news.front().copied()
    }

    /// Unmarks the next prefix, which is `entry`.
    fn pop(&mut self, entry: &Entry) {
        if let Some(i) = self.news.pop_front() {
            let at = self.at(i, entry);
            self.waits[at] = false;
        }
    }
}

#[cfg(test)]
mod tests;
