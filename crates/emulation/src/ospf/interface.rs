//! The interface (RFC 2328 section 9) and the states of its neighbours (section 10): Hellos, the election of the Designated Router,
//! adjacencies.

use super::neighbour::{Neighbour, NeighbourState};
use super::{Ospf, Timer, To};
use crate::protocol::Output;
use drophammer_model::Instant;
use drophammer_wire::MacAddr;
use drophammer_wire::ospf::{Hello, Opened, kind, option};
use std::net::Ipv4Addr;
use std::time::Duration;

/// Maximum number of neighbours.
const MOST_NEIGHBOURS: usize = 64;

/// State of the interface (section 9.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterfaceState {
    /// Not started, or stopped.
    Down,
    /// Listens for a Designated Router before the first election.
    Waiting,
    /// On a point-to-point network.
    PointToPoint,
    /// Another router is the Designated Router, and another one the Backup.
    DrOther,
    /// Backup Designated Router.
    Backup,
    /// Designated Router.
    Dr,
}

/// A router that takes part in an election.
#[derive(Clone, Copy)]
struct Candidate {
    priority: u8,
    router_id: Ipv4Addr,
    address: Ipv4Addr,
    designated: Ipv4Addr,
    backup: Ipv4Addr,
}

/// Computes Backup Designated Router and Designated Router from the claims of the candidates (section 9.4, steps 2 and
/// 3).
fn choose(candidates: &[Candidate]) -> (Ipv4Addr, Ipv4Addr) {
    let best = |which: &dyn Fn(&&Candidate) -> bool| {
        let chosen = candidates.iter().filter(which).max_by_key(|c| (c.priority, c.router_id));
        chosen.map(|c| c.address)
    };
    let says_designated = |c: &Candidate| c.designated == c.address;
    let says_backup = |c: &Candidate| c.backup == c.address;
    let backup = best(&|c| !says_designated(c) && says_backup(c)).or_else(|| best(&|c| !says_designated(c)));
    let designated = best(&|c| says_designated(c)).or(backup);
    let or_none = |address: Option<Ipv4Addr>| address.unwrap_or(Ipv4Addr::UNSPECIFIED);
    (or_none(backup), or_none(designated))
}

impl Ospf {
    /// InterfaceUp.
    pub(super) fn start(&mut self, now: Instant) {
        if self.state != InterfaceState::Down {
            return;
        }
        self.farewell = false;
        self.timers.set(Timer::Hello, now);
        self.state = if !self.is_broadcast() {
            InterfaceState::PointToPoint
        } else if self.config.priority == 0 {
            InterfaceState::DrOther
        } else {
            self.timers.set(Timer::Wait, now + self.dead_interval());
            InterfaceState::Waiting
        };
        self.changed = true;
        self.originate_all(now);
        self.describe(now);
    }

    /// InterfaceDown. The last Hello lists no neighbour, so that neighbours end the adjacency immediately.
    pub(super) fn stop(&mut self, now: Instant) {
        if self.state == InterfaceState::Down {
            return;
        }
        self.counters.lost += self.neighbours.values().filter(|n| n.state == NeighbourState::Full).count() as u64;
        self.state = InterfaceState::Down;
        (self.designated, self.backup) = (Ipv4Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED);
        self.neighbours.clear();
        self.forget_database(now);
        self.timers.clear();
        self.farewell = true;
        self.timers.set(Timer::Hello, now);
    }

    fn dead_interval(&self) -> Duration {
        Duration::from_secs(self.config.dead_interval.into())
    }

    pub(super) fn options(&self) -> u8 {
        if self.config.stub { 0 } else { option::EXTERNAL }
    }

    pub(super) fn send_hello(&mut self, now: Instant, out: &mut Output<'_>) {
        if self.state == InterfaceState::Down && !self.farewell {
            return;
        }
        let neighbours: Vec<[u8; 4]> = self.neighbours.values().map(|n| n.router_id.octets()).collect();
        let hello = Hello {
            mask: self.mask,
            hello_interval: self.config.hello_interval,
            options: self.options(),
            priority: self.config.priority,
            dead_interval: self.config.dead_interval,
            designated: self.designated,
            backup: self.backup,
            neighbours: &neighbours,
        };
        let mut packet = Self::blank();
        hello.emit(&mut packet);
        self.send(now, kind::HELLO, To::All, packet, out);
        if !std::mem::take(&mut self.farewell) {
            self.timers.set(Timer::Hello, now + Duration::from_secs(self.config.hello_interval.into()));
        }
    }

    /// Section 10.5.
    pub(super) fn take_hello(
        &mut self,
        now: Instant,
        id: Ipv4Addr,
        source: Ipv4Addr,
        mac: MacAddr,
        opened: &Opened<'_>,
        out: &mut Output<'_>,
    ) -> Result<(), &'static str> {
        let hello = Hello::parse(opened.body).map_err(|e| {
            self.counters.malformed += 1;
            e.reason
        })?;
        if self.is_broadcast() && hello.mask != self.mask {
            return Err("different network mask");
        }
        if hello.hello_interval != self.config.hello_interval {
            return Err("different HelloInterval");
        }
        if hello.dead_interval != self.config.dead_interval {
            return Err("different RouterDeadInterval");
        }
        if (hello.options ^ self.options()) & option::EXTERNAL != 0 {
            return Err("different E-bit: only one of the routers treats the area as a stub area");
        }
        if !self.neighbours.contains_key(&id) {
            if self.neighbours.len() >= MOST_NEIGHBOURS {
                return Err("too many neighbours");
            }
            let mut fresh = Neighbour::new(opened.header.router_id, source, mac, self.dd_sequence);
            fresh.crypto_sequence = opened.sequence.unwrap_or(0);
            self.dd_sequence = self.dd_sequence.wrapping_add(0x1_0000);
            (fresh.priority, fresh.designated, fresh.backup) = (hello.priority, hello.designated, hello.backup);
            self.neighbours.insert(id, fresh);
        }
        let Some(neighbour) = self.neighbours.get_mut(&id) else { return Ok(()) };
        (neighbour.router_id, neighbour.address, neighbour.mac) = (opened.header.router_id, source, mac);
        let before = (neighbour.priority, neighbour.designated == source, neighbour.backup == source);
        (neighbour.priority, neighbour.designated, neighbour.backup) = (hello.priority, hello.designated, hello.backup);
        let after = (neighbour.priority, neighbour.designated == source, neighbour.backup == source);
        self.timers.set(Timer::Inactive(id), now + self.dead_interval());
        if !hello.neighbours.contains(&self.config.router_id.octets()) {
            self.one_way(now, id, out);
            return Ok(());
        }
        let is_new = self.two_way(now, id, out);
        if !self.is_broadcast() {
            return Ok(());
        }
        let has_backup = hello.designated == source && hello.backup.is_unspecified() || hello.backup == source;
        if self.state == InterfaceState::Waiting {
            if has_backup {
                self.elect(now, out); // BackupSeen
            }
        } else if is_new || before != after {
            self.elect(now, out); // NeighborChange
        }
        Ok(())
    }

    /// 2-WayReceived. True if the neighbour was not bidirectional before.
    pub(super) fn two_way(&mut self, now: Instant, id: Ipv4Addr, out: &mut Output<'_>) -> bool {
        let Some(neighbour) = self.neighbours.get_mut(&id) else { return false };
        if neighbour.state != NeighbourState::Init {
            return false;
        }
        neighbour.state = NeighbourState::TwoWay;
        if self.wants_adjacency(id) {
            self.negotiate(now, id, out);
        }
        true
    }

    /// 1-Way.
    fn one_way(&mut self, now: Instant, id: Ipv4Addr, out: &mut Output<'_>) {
        if self.neighbours.get(&id).is_some_and(|n| n.state > NeighbourState::Init) {
            self.leave(now, id, NeighbourState::Init);
            self.neighbour_change(now, out);
        }
    }

    /// KillNbr, InactivityTimer.
    pub(super) fn kill(&mut self, now: Instant, id: Ipv4Addr, out: &mut Output<'_>) {
        self.leave(now, id, NeighbourState::Init);
        self.timers.cancel(&Timer::Inactive(id));
        if self.neighbours.remove(&id).is_some() {
            self.neighbour_change(now, out);
        }
    }

    /// NeighborChange.
    pub(super) fn neighbour_change(&mut self, now: Instant, out: &mut Output<'_>) {
        if self.is_broadcast() && self.state != InterfaceState::Waiting {
            self.elect(now, out);
        }
    }

    /// Moves a neighbour back to a state below Exchange, and clears the state of the exchange.
    pub(super) fn leave(&mut self, now: Instant, id: Ipv4Addr, state: NeighbourState) {
        let Some(neighbour) = self.neighbours.get_mut(&id) else { return };
        if neighbour.state == NeighbourState::Full {
            self.counters.lost += 1;
            self.changed = true;
        }
        neighbour.state = state;
        neighbour.forget_lists();
        for timer in [Timer::Description(id), Timer::Request(id), Timer::Again(id)] {
            self.timers.cancel(&timer);
        }
        self.sweep(now);
    }

    /// The adjacency is complete.
    pub(super) fn become_full(&mut self, now: Instant, id: Ipv4Addr) {
        let Some(neighbour) = self.neighbours.get_mut(&id) else { return };
        (neighbour.state, neighbour.full_at) = (NeighbourState::Full, Some(now));
        self.timers.cancel(&Timer::Request(id));
        self.counters.full += 1;
        self.changed = true;
        self.sweep(now);
    }

    /// Section 10.4.
    fn wants_adjacency(&self, id: Ipv4Addr) -> bool {
        let own = matches!(self.state, InterfaceState::Dr | InterfaceState::Backup);
        let of = |address: Ipv4Addr| [self.designated, self.backup].contains(&address);
        !self.is_broadcast() || own || self.neighbours.get(&id).is_some_and(|n| of(n.address))
    }

    /// Elects the Designated Router and its Backup (section 9.4).
    pub(super) fn elect(&mut self, now: Instant, out: &mut Output<'_>) {
        let before = (self.designated, self.backup);
        let (address, priority) = (self.address, self.config.priority);
        let own =
            |designated, backup| Candidate { priority, router_id: self.config.router_id, address, designated, backup };
        let others = self.neighbours.values().filter(|n| n.state >= NeighbourState::TwoWay && n.priority > 0);
        let mut candidates: Vec<_> = others
            .map(|n| Candidate {
                priority: n.priority,
                router_id: n.router_id,
                address: n.address,
                designated: n.designated,
                backup: n.backup,
            })
            .collect();
        let eligible = priority > 0;
        candidates.extend(eligible.then(|| own(before.0, before.1)));
        let (mut backup, mut designated) = choose(&candidates);
        let roles = |designated, backup| (designated == address, backup == address);
        if eligible && roles(designated, backup) != roles(before.0, before.1) {
            // This router has a new role, or lost one: it must not count as both (step 4).
            candidates.pop();
            candidates.push(own(designated, backup));
            (backup, designated) = choose(&candidates);
        }
        (self.designated, self.backup) = (designated, backup);
        self.state = match roles(designated, backup) {
            (true, _) => InterfaceState::Dr,
            (_, true) => InterfaceState::Backup,
            _ => InterfaceState::DrOther,
        };
        self.timers.cancel(&Timer::Wait);
        self.changed = true;
        if before == (designated, backup) {
            return;
        }
        // AdjOK?
        let ids: Vec<_> = self.neighbours.keys().copied().collect();
        for id in ids {
            let Some(state) = self.neighbours.get(&id).map(|n| n.state) else { continue };
            match self.wants_adjacency(id) {
                true if state == NeighbourState::TwoWay => self.negotiate(now, id, out),
                false if state >= NeighbourState::ExStart => self.leave(now, id, NeighbourState::TwoWay),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_election_follows_section_9_4() {
        let none = Ipv4Addr::UNSPECIFIED;
        let address = |n: u8| Ipv4Addr::new(198, 18, 0, n);
        let one = |n: u8, priority, designated, backup| Candidate {
            priority,
            router_id: Ipv4Addr::new(n, n, n, n),
            address: address(n),
            designated,
            backup,
        };
        // No router claims a role: the best one is elected Backup, and then becomes the Designated Router.
        assert_eq!(choose(&[one(1, 1, none, none), one(2, 1, none, none)]), (address(2), address(2)));
        assert_eq!(choose(&[one(1, 9, none, none), one(2, 1, none, none)]), (address(1), address(1)));
        // A better router does not replace those already elected.
        let elected = [one(1, 1, address(1), none), one(2, 1, none, address(2)), one(9, 200, none, none)];
        assert_eq!(choose(&elected), (address(2), address(1)));
        // If the Designated Router is gone, its Backup takes over.
        assert_eq!(choose(&elected[1..]), (address(2), address(2)));
        // If two routers claim to be the Designated Router, the better one wins.
        let both = [one(1, 1, address(1), none), one(2, 1, address(2), none)];
        assert_eq!(choose(&both), (none, address(2)));
        assert_eq!(choose(&[]), (none, none));
    }
}
