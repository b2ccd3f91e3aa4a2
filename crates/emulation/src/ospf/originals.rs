//! LSAs that the device originates for itself and for the emulated routers: their instances, without their bodies.

use super::emulated::Emulated;
use drophammer_model::Instant;
use drophammer_wire::ospf::lsa::{self, INITIAL_SEQUENCE, MAX_AGE, MAX_SEQUENCE};
use drophammer_wire::ospf::{LsaHeader, LsaKey, lsa_type, option};
use std::net::Ipv4Addr;

/// Number of the device's Router-LSA.
pub(super) const DEVICE_ROUTER: u32 = 0;
/// Number of the Network-LSA of the device's network.
pub(super) const DEVICE_NETWORK: u32 = 1;
/// Number of the first emulated LSA.
pub(super) const EMULATED: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    /// In no database.
    Absent,
    Present,
    /// It has MaxAge until all neighbours have acknowledged it.
    Flushing,
}

#[derive(Clone, Copy, Debug)]
struct Original {
    originated: Instant,
    sequence: i32,
    metric: u32,
    /// Metric of the next instance.
    next_metric: u32,
    checksum: u16,
    length: u16,
    presence: Presence,
    /// The configuration or a command wants it to be advertised.
    wanted: bool,
}

/// What [`Originals::originate`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Originated {
    /// There is a new instance.
    New,
    /// The last sequence number was used; the LSA is being flushed before it starts again with the first.
    Wrapped,
    /// The LSA is not wanted, or being flushed.
    Nothing,
}

/// All LSAs that the device originates.
#[derive(Clone, Debug)]
pub(super) struct Originals {
    device: Ipv4Addr,
    address: Ipv4Addr,
    options: u8,
    pub emulated: Emulated,
    /// Bodies of the device's own two LSAs.
    own: [Vec<u8>; 2],
    /// Bodies of these LSAs in the next instance.
    next_own: [Vec<u8>; 2],
    all: Vec<Original>,
    present: u32,
}

impl Originals {
    /// Starts with no LSA in the database. `mask` is the mask of the device's network; emulated LSAs are advertised if `wanted`.
    pub fn new(
        device: Ipv4Addr,
        (address, mask): (Ipv4Addr, Ipv4Addr),
        stub: bool,
        wanted: bool,
        emulated: Emulated,
    ) -> Originals {
        let metric = |number: u32| number.checked_sub(EMULATED).map_or(0, |n| emulated.metric(n));
        let one = |number: u32| Original {
            originated: Instant(0),
            sequence: INITIAL_SEQUENCE - 1,
            metric: metric(number),
            next_metric: metric(number),
            checksum: 0,
            length: 0,
            presence: Presence::Absent,
            wanted: number == DEVICE_ROUTER || number >= EMULATED && wanted,
        };
        Originals {
            device,
            address,
            options: if stub { 0 } else { option::EXTERNAL },
            all: (0..EMULATED + emulated.len()).map(one).collect(),
            // A Network-LSA from an earlier run is flushed with this body.
            own: [Vec::new(), [mask.octets(), device.octets()].concat()],
            next_own: Default::default(),
            emulated,
            present: 0,
        }
    }

    /// Number of LSAs, advertised or not.
    pub fn len(&self) -> u32 {
        self.all.len() as u32
    }

    /// Number of LSAs that are advertised.
    pub fn present(&self) -> u32 {
        self.present
    }

    pub fn key(&self, number: u32) -> LsaKey {
        match number {
            DEVICE_ROUTER => LsaKey { kind: lsa_type::ROUTER, id: self.device, router: self.device },
            DEVICE_NETWORK => LsaKey { kind: lsa_type::NETWORK, id: self.address, router: self.device },
            number => self.emulated.key(number - EMULATED),
        }
    }

    pub fn number_of(&self, key: &LsaKey) -> Option<u32> {
        if key.router == self.device {
            match key.kind {
                lsa_type::ROUTER if key.id == self.device => return Some(DEVICE_ROUTER),
                lsa_type::NETWORK if key.id == self.address => return Some(DEVICE_NETWORK),
                _ => {}
            }
        }
        self.emulated.number_of(key).map(|n| n + EMULATED)
    }

    /// True if the device or one of its emulated routers originates LSAs with this name (section 13.4).
    pub fn owns(&self, key: &LsaKey) -> bool {
        key.router == self.device
            || self.emulated.router(key.router).is_some()
            || key.kind == lsa_type::NETWORK && key.id == self.address
    }

    fn at(&mut self, number: u32) -> &mut Original {
        &mut self.all[number as usize]
    }

    pub fn is_wanted(&self, number: u32) -> bool {
        self.all[number as usize].wanted
    }

    /// Sets whether the LSA is to be advertised. Returns the former value.
    pub fn want(&mut self, number: u32, wanted: bool) -> bool {
        std::mem::replace(&mut self.at(number).wanted, wanted)
    }

    /// Changes the metric of the next instance. True if it differs from the former one.
    pub fn set_metric(&mut self, number: u32, metric: u32) -> bool {
        std::mem::replace(&mut self.at(number).next_metric, metric) != metric
    }

    /// Changes the body of one of the device's own LSAs in the next instance. True if it differs from the former one.
    pub fn set_body(&mut self, number: u32, body: Vec<u8>) -> bool {
        let own = &mut self.next_own[number as usize];
        let changed = *own != body;
        *own = body;
        changed
    }

    /// When the LSA was last originated; `None` if never.
    pub fn originated_at(&self, number: u32) -> Option<Instant> {
        let original = &self.all[number as usize];
        (original.sequence >= INITIAL_SEQUENCE && original.length > 0).then_some(original.originated)
    }

    fn write_instance(&self, number: u32, age: u16, out: &mut Vec<u8>) {
        let original = &self.all[number as usize];
        let Original { sequence, checksum, length, .. } = *original;
        LsaHeader { age, options: self.options, key: self.key(number), sequence, checksum, length }.emit(out);
        match number.checked_sub(EMULATED) {
            Some(n) => self.emulated.write(n, original.metric, out),
            None => out.extend_from_slice(&self.own[number as usize]),
        }
    }

    /// Originates a new instance with the current contents.
    pub fn originate(&mut self, now: Instant, number: u32) -> Originated {
        let original = self.at(number);
        if !original.wanted || original.presence == Presence::Flushing {
            return Originated::Nothing;
        }
        if original.sequence == MAX_SEQUENCE {
            self.flush(number);
            return Originated::Wrapped;
        }
        original.sequence += 1;
        original.originated = now;
        original.metric = original.next_metric;
        if original.presence == Presence::Absent {
            original.presence = Presence::Present;
            self.present += 1;
        }
        if number < EMULATED {
            self.own[number as usize].clone_from(&self.next_own[number as usize]);
        }
        self.reseal(number);
        Originated::New
    }

    /// Computes length and checksum of the current contents.
    fn reseal(&mut self, number: u32) {
        let mut bytes = Vec::with_capacity(64);
        self.write_instance(number, 0, &mut bytes);
        let (checksum, length) = (lsa::seal(&mut bytes), bytes.len() as u16);
        let original = self.at(number);
        (original.checksum, original.length) = (checksum, length);
    }

    /// Begins to flush an LSA. False if it is not in the database.
    pub fn flush(&mut self, number: u32) -> bool {
        let original = self.at(number);
        if original.presence != Presence::Present {
            return false;
        }
        original.presence = Presence::Flushing;
        self.present -= 1;
        true
    }

    /// The neighbours still have a newer instance of an LSA (section 13.4), so the next instance must be newer still. An LSA that is
    /// not wanted is flushed with the next number, because its contents may differ. If that instance has the last number, it is
    /// flushed.
    pub fn overtake(&mut self, number: u32, sequence: i32) {
        let original = self.at(number);
        original.sequence = sequence;
        if !original.wanted || sequence == MAX_SEQUENCE {
            original.sequence = sequence.saturating_add(1);
            if original.presence == Presence::Present {
                self.present -= 1;
            }
            self.at(number).presence = Presence::Flushing;
        }
        self.reseal(number);
    }

    /// Records that a flushed LSA has left all databases.
    pub fn flushed(&mut self, number: u32) {
        let original = self.at(number);
        if original.presence == Presence::Flushing {
            original.presence = Presence::Absent;
            if original.sequence == MAX_SEQUENCE {
                original.sequence = INITIAL_SEQUENCE - 1;
            }
        }
    }

    fn age(&self, now: Instant, original: &Original) -> u16 {
        match original.presence {
            Presence::Flushing => MAX_AGE,
            _ => now.since(original.originated).as_secs().min(u64::from(MAX_AGE) - 1) as u16,
        }
    }

    /// The current instance; `None` if the LSA is not in the database.
    pub fn header(&self, now: Instant, number: u32) -> Option<LsaHeader> {
        let original = &self.all[number as usize];
        let Original { sequence, checksum, length, presence, .. } = *original;
        let age = self.age(now, original);
        let key = self.key(number);
        (presence != Presence::Absent).then_some(LsaHeader {
            age,
            options: self.options,
            key,
            sequence,
            checksum,
            length,
        })
    }

    /// Appends the current instance to `out`.
    pub fn write(&self, now: Instant, number: u32, out: &mut Vec<u8>) {
        self.write_instance(number, self.age(now, &self.all[number as usize]), out);
    }
}
