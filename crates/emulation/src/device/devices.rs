//! The devices of one port.

use super::dispatch::Arrived;
use super::registry::{Collision, Registry, last_of};
use super::{Device, MOST_ADDRESSES, Out};
use crate::protocol::{Command, Protocol, Refused};
use drophammer_model::Instant;
use drophammer_wire::MacAddr;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::IpAddr;

/// Identifies a device in one collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(u32);

/// A poll ends when devices have sent this many times the budget. The next poll continues with the other devices.
const BUDGETS: usize = 16;

struct Entry {
    device: Device,
    /// True if the device is in the queue of due devices.
    due: bool,
    /// Earliest entry of the device in the heap.
    scheduled: Option<Instant>,
}

/// The devices of one port. A frame finds its device by tags and address, and idle devices cost nothing.
#[derive(Default)]
pub struct Devices {
    entries: Vec<Entry>,
    registry: Registry,
    due: VecDeque<u32>,
    /// Deadlines of devices; some entries are outdated.
    deadlines: BinaryHeap<Reverse<(Instant, u32)>>,
    /// Reused memory.
    found: Vec<u32>,
    unclaimed: u64,
}

impl Devices {
    /// An empty collection.
    pub fn new() -> Devices {
        Devices::default()
    }

    /// Adds a device.
    ///
    /// # Errors
    /// If a device with the same tags has its MAC address or one of its addresses.
    pub fn add(&mut self, device: Device) -> Result<DeviceId, Collision> {
        let index = self.entries.len() as u32;
        if let Err((first, what)) = self.registry.add(index, &device) {
            return Err(self.collision(first, &device, what));
        }
        self.entries.push(Entry { device, due: false, scheduled: None });
        self.schedule(index, Instant(0));
        Ok(DeviceId(index))
    }

    fn collision(&self, first: u32, second: &Device, what: String) -> Collision {
        let first = self.entries[first as usize].device.config().name.clone();
        Collision { first, second: second.config().name.clone(), what, tags: second.config().tags }
    }

    /// Adds `count` addresses starting with `first` to a device; see [`Device::add_addresses`]. False if these
    /// addresses are not possible.
    ///
    /// # Errors
    /// If another device with the same tags has one of the addresses.
    pub fn add_addresses(&mut self, id: DeviceId, first: IpAddr, count: u32) -> Result<bool, Collision> {
        let device = &self.entries[id.0 as usize].device;
        let Some(last) = last_of(first, count).filter(|_| count <= MOST_ADDRESSES) else { return Ok(false) };
        let tags = device.config().tags.vlans();
        if let Err((owner, what)) = self.registry.check(tags, id.0, first, last) {
            return Err(self.collision(owner, device, what));
        }
        self.registry.insert(tags, id.0, first, last);
        Ok(self.entries[id.0 as usize].device.add_addresses(first, count))
    }

    /// Adds a protocol to a device; see [`Device::add_protocol`].
    pub fn add_protocol(&mut self, id: DeviceId, protocol: Box<dyn Protocol>) {
        let device = &mut self.entries[id.0 as usize].device;
        self.registry.join(device.config().tags.vlans(), id.0, protocol.matches());
        device.add_protocol(protocol);
        self.mark(id.0);
    }

    /// Number of devices.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there is no device.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All devices, in order of addition.
    pub fn iter(&self) -> impl Iterator<Item = (DeviceId, &Device)> {
        (0..).map(DeviceId).zip(self.entries.iter().map(|entry| &entry.device))
    }

    /// A device.
    ///
    /// # Panics
    /// If `id` is from another collection.
    pub fn get(&self, id: DeviceId) -> &Device {
        &self.entries[id.0 as usize].device
    }

    /// The protocol of this type on a device, mutable.
    pub fn protocol_mut<P: Protocol>(&mut self, id: DeviceId) -> Option<&mut P> {
        self.mark(id.0);
        self.entries[id.0 as usize].device.protocol_mut()
    }

    /// Passes a command to a protocol of a device.
    ///
    /// # Errors
    /// See [`Device::command`].
    pub fn command(&mut self, now: Instant, id: DeviceId, name: &str, command: &Command) -> Result<(), Refused> {
        self.mark(id.0);
        self.entries[id.0 as usize].device.command(now, name, command)
    }

    /// See [`Device::fix_gateway`].
    pub fn fix_gateway(&mut self, id: DeviceId, mac: MacAddr) {
        self.entries[id.0 as usize].device.fix_gateway(mac);
        self.mark(id.0);
    }

    /// Number of frames that were for no device.
    pub fn unclaimed(&self) -> u64 {
        self.unclaimed
    }

    /// Handles a frame that arrived at `now`, and sends immediate answers. False if the frame is for no device.
    pub fn receive(&mut self, now: Instant, frame: &[u8], out: Out<'_>) -> bool {
        let mut found = std::mem::take(&mut self.found);
        found.clear();
        let arrived = Arrived::read(frame);
        if let Some(arrived) = &arrived {
            self.registry.find(arrived, &mut found);
            for index in &found {
                self.entries[*index as usize].device.take(now, arrived, out);
                self.schedule(*index, now);
            }
        }
        let claimed = !found.is_empty();
        self.unclaimed += u64::from(!claimed);
        self.found = found;
        claimed
    }

    /// Polls the due devices, each with `budget` (see [`Device::poll`]). The call stops after a limited number of
    /// bytes. The next call is then due immediately, and continues with the other devices.
    pub fn poll(&mut self, now: Instant, budget: usize, out: Out<'_>) {
        while let Some(Reverse((at, index))) = self.deadlines.peek().copied().filter(|Reverse((at, _))| *at <= now) {
            self.deadlines.pop();
            let entry = &mut self.entries[index as usize];
            if entry.scheduled == Some(at) {
                entry.scheduled = None;
                self.mark(index);
            }
        }
        let mut sent = 0;
        for _ in 0..self.due.len() {
            let Some(index) = self.due.pop_front() else { break };
            let entry = &mut self.entries[index as usize];
            entry.due = false;
            entry.device.poll(now, budget, &mut |frame| {
                sent += frame.len();
                out(frame);
            });
            self.schedule(index, now);
            if sent / BUDGETS > budget {
                break;
            }
        }
    }

    /// The time when [`Devices::poll`] must be called again; `Instant(0)` for now. `None` if only a received frame or a
    /// command can cause work.
    pub fn next_deadline(&self) -> Option<Instant> {
        if !self.due.is_empty() {
            return Some(Instant(0));
        }
        self.deadlines.peek().map(|Reverse((at, _))| *at)
    }

    fn mark(&mut self, index: u32) {
        if !std::mem::replace(&mut self.entries[index as usize].due, true) {
            self.due.push_back(index);
        }
    }

    /// Schedules the next poll of a device.
    fn schedule(&mut self, index: u32, now: Instant) {
        let entry = &mut self.entries[index as usize];
        match entry.device.next_deadline() {
            Some(at) if at <= now => self.mark(index),
            Some(at) if entry.scheduled.is_none_or(|scheduled| at < scheduled) => {
                entry.scheduled = Some(at);
                self.deadlines.push(Reverse((at, index)));
            }
            _ => {}
        }
    }
}
