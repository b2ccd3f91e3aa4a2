//! The neighbours of the device on its links, and the frames that wait for them.

use crate::pool::Slot;
use drophammer_model::Instant;
use drophammer_wire::MacAddr;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

const ATTEMPTS: u32 = 3;
const RETRY: Duration = Duration::from_secs(1);
/// Maximum number of neighbours; more are not resolved.
const LIMIT: usize = 65_536;
/// Deadlines are rounded to this grid, so that many neighbours need few checks.
const GRID_NS: u64 = 10_000_000;

#[derive(Clone, Debug)]
pub struct Neighbour {
    /// Interface of the link of the neighbour.
    pub interface: usize,
    pub address: IpAddr,
    /// Its MAC address, if known.
    pub mac: Option<MacAddr>,
    attempts: u32,
    due: Option<Instant>,
    /// Transit frames that wait for the neighbour.
    pub pending: Vec<Pending>,
    /// The device's own frames that wait for the neighbour.
    pub own: Vec<Slot>,
}

/// A frame that waits for a neighbour.
#[derive(Clone, Copy, Debug)]
pub struct Pending {
    /// The frame, complete except for its destination MAC address.
    pub slot: Slot,
    /// Interface on which the frame arrived.
    pub ingress: usize,
}

/// The action that is due for a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Ask for the address: the neighbour itself if `Some`, otherwise all stations.
    Ask(Option<MacAddr>),
    /// The neighbour did not answer; its pending frames are lost.
    GiveUp,
}

impl Neighbour {
    /// Number of requests sent since the last answer.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }
}

#[derive(Clone, Debug, Default)]
pub struct Neighbours {
    all: Vec<Neighbour>,
    index: HashMap<(usize, IpAddr), usize>,
    lifetime: Option<Duration>,
    wake: Option<Instant>,
}

impl Neighbours {
    pub fn new(lifetime: Option<Duration>) -> Neighbours {
        Neighbours { lifetime, ..Neighbours::default() }
    }

    /// Index of a neighbour, created if necessary; `None` if there are too many.
    pub fn intern(&mut self, interface: usize, address: IpAddr) -> Option<usize> {
        if let Some(i) = self.index.get(&(interface, address)) {
            return Some(*i);
        }
        if self.all.len() >= LIMIT {
            return None;
        }
        self.all.push(Neighbour {
            interface,
            address,
            mac: None,
            attempts: 0,
            due: None,
            pending: Vec::new(),
            own: Vec::new(),
        });
        self.index.insert((interface, address), self.all.len() - 1);
        Some(self.all.len() - 1)
    }

    pub fn find(&self, interface: usize, address: IpAddr) -> Option<usize> {
        self.index.get(&(interface, address)).copied()
    }

    #[inline]
    pub fn get(&self, i: usize) -> &Neighbour {
        &self.all[i]
    }

    #[inline]
    pub fn get_mut(&mut self, i: usize) -> &mut Neighbour {
        &mut self.all[i]
    }

    /// MAC address of any known neighbour on `interface`.
    pub fn any_on(&self, interface: usize) -> Option<MacAddr> {
        self.all.iter().filter(|n| n.interface == interface).find_map(|n| n.mac)
    }

    /// Starts to ask for a neighbour; false if the device is already asking.
    pub fn start(&mut self, i: usize, now: Instant) -> bool {
        let neighbour = &mut self.all[i];
        if neighbour.due.is_some() && neighbour.attempts > 0 {
            return false;
        }
        neighbour.attempts = 1;
        self.schedule(i, now + RETRY);
        true
    }

    /// Records that the neighbour is at `mac`.
    pub fn confirm(&mut self, i: usize, now: Instant, mac: MacAddr) {
        let neighbour = &mut self.all[i];
        neighbour.mac = Some(mac);
        neighbour.attempts = 0;
        neighbour.due = None;
        if let Some(lifetime) = self.lifetime {
            self.schedule(i, now + lifetime);
        }
    }

    fn schedule(&mut self, i: usize, at: Instant) {
        let at = Instant(at.0.div_ceil(GRID_NS).saturating_mul(GRID_NS));
        self.all[i].due = Some(at);
        self.wake = Some(self.wake.map_or(at, |w| w.min(at)));
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        self.wake
    }

    /// Passes the actions that are due until `now` to `act`, one after the other.
    pub fn poll(&mut self, now: Instant, mut act: impl FnMut(usize, &mut Neighbour, Action)) {
        if self.wake.is_none_or(|w| w > now) {
            return;
        }
        for (i, neighbour) in self.all.iter_mut().enumerate() {
            if neighbour.due.is_none_or(|d| d > now) {
                continue;
            }
            if neighbour.attempts < ATTEMPTS {
                neighbour.attempts += 1;
                let next = now + RETRY;
                neighbour.due = Some(Instant(next.0.div_ceil(GRID_NS).saturating_mul(GRID_NS)));
                act(i, neighbour, Action::Ask(neighbour.mac));
            } else {
                (neighbour.mac, neighbour.attempts, neighbour.due) = (None, 0, None);
                act(i, neighbour, Action::GiveUp);
            }
        }
        self.wake = self.all.iter().filter_map(|n| n.due).min();
    }
}
