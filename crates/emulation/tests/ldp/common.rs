//! Two devices on one link in virtual time.

#![allow(dead_code)] // each program uses its part

use drophammer_emulation::ldp::{AdvertisedFecs, FecRange, LabelPattern, LdpCommand, Lsr, LsrConfig, NAME, Peer};
use drophammer_emulation::protocol::{Command, Protocol, State};
use drophammer_emulation::{Address, Device, DeviceConfig};
use drophammer_model::Instant;
use drophammer_wire::MacAddr;
use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::time::Duration;

pub const MACS: [MacAddr; 2] = [MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])];
pub const LINK: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 18, 1, 1), Ipv4Addr::new(198, 18, 1, 2)];
/// LSR-ID and transport address: an additional address of the device.
pub const LSR: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
pub const LATENCY: Duration = Duration::from_millis(1);
const BUDGET: usize = 64 << 10;

pub fn second(n: u64) -> Instant {
    Instant(n * 1_000_000_000)
}

pub fn fecs(side: usize, count: u32) -> FecRange {
    FecRange::new(["10.0.0.0/30", "20.0.0.0/30"][side].parse().unwrap(), count)
}

/// Configures the LSR of one side. It advertises `count` FECs, and expects the FECs that the other side advertises.
pub fn config(side: usize, count: u32) -> LsrConfig {
    let labels = LabelPattern::Counting { first: [100, 200_000][side], step: 1 };
    LsrConfig {
        advertised: vec![AdvertisedFecs { fecs: fecs(side, count), labels }],
        expected: vec![fecs(1 - side, count)],
        ..LsrConfig::new(LSR[side], LSR[side])
    }
}

pub fn device(side: usize, config: LsrConfig) -> Device {
    let own = Address { address: LINK[side], prefix_len: 24, gateway: LINK[1 - side] };
    let device = DeviceConfig { ipv4: Some(own), ..DeviceConfig::new("lsr", MACS[side], 7 + side as u64) };
    let lsr = Lsr::new(&device, config).unwrap();
    let mut device = Device::new(device);
    device.fix_gateway(MACS[1 - side]);
    assert!(device.add_addresses(LSR[side].into(), 1));
    device.add_protocol(Box::new(lsr));
    device
}

pub struct World {
    pub now: Instant,
    pub devices: [Device; 2],
    /// Frames in flight: arrival, receiver, frame.
    wire: VecDeque<(Instant, usize, Vec<u8>)>,
    /// True if this frame of a sender is lost.
    pub lost: fn(usize, &[u8]) -> bool,
    /// All frames with their times, if they are kept.
    pub capture: Option<Vec<(u64, Vec<u8>)>>,
    pub polls: u64,
}

impl World {
    pub fn new(configs: [LsrConfig; 2]) -> World {
        let [a, b] = configs;
        World::of([device(0, a), device(1, b)])
    }

    pub fn of(devices: [Device; 2]) -> World {
        World { now: second(1), devices, wire: VecDeque::new(), lost: |_, _| false, capture: None, polls: 0 }
    }

    pub fn lsr(&self, side: usize) -> &Lsr {
        self.devices[side].protocol().unwrap()
    }

    /// The peer that a side sees.
    pub fn peer(&self, side: usize) -> &Peer {
        &self.lsr(side).peers()[0]
    }

    pub fn state(&self, side: usize) -> State {
        self.lsr(side).state()
    }

    pub fn counter(&self, side: usize, name: &str) -> u64 {
        self.state(side).counter(name)
    }

    pub fn both(&self, name: &str) -> [u64; 2] {
        [0, 1].map(|side| self.counter(side, name))
    }

    pub fn command(&mut self, side: usize, command: Command) {
        self.devices[side].command(self.now, NAME, &command).unwrap();
    }

    pub fn ldp(&mut self, side: usize, command: LdpCommand) {
        self.command(side, Command::Ldp(command));
    }

    pub fn start(&mut self) {
        (0..2).for_each(|side| self.command(side, Command::Start));
    }

    /// Brings up the session of both sides, and waits until all FECs are advertised.
    pub fn up(count: u32) -> World {
        let mut world = World::new([0, 1].map(|side| config(side, count)));
        world.start();
        (0..2).for_each(|side| world.ldp(side, LdpCommand::Advertise { range: 0, part: 0..count }));
        world.run_for(Duration::from_secs(4));
        assert_eq!([0, 1].map(|side| world.state(side).up), [1, 1]);
        world
    }

    fn sent(&mut self, side: usize, frames: Vec<Vec<u8>>) {
        for frame in frames {
            if let Some(capture) = &mut self.capture {
                capture.push((self.now.0, frame.clone()));
            }
            if !(self.lost)(side, &frame) {
                self.wire.push_back((self.now + LATENCY, 1 - side, frame));
            }
        }
    }

    /// Runs until nothing happens before `end`.
    pub fn run_to(&mut self, end: Instant) {
        loop {
            let deadlines = self.devices.iter().filter_map(Device::next_deadline);
            let next = deadlines.chain(self.wire.front().map(|(at, ..)| *at)).min();
            let Some(next) = next.filter(|next| *next <= end) else { break };
            self.now = self.now.max(next);
            while self.wire.front().is_some_and(|(at, ..)| *at <= self.now) {
                let (_, side, frame) = self.wire.pop_front().unwrap();
                let mut answers = Vec::new();
                self.devices[side].receive(self.now, &frame, &mut |frame| answers.push(frame.to_vec()));
                self.sent(side, answers);
            }
            for side in 0..2 {
                if self.devices[side].next_deadline().is_some_and(|at| at <= self.now) {
                    let mut frames = Vec::new();
                    self.devices[side].poll(self.now, BUDGET, &mut |frame| frames.push(frame.to_vec()));
                    self.polls += 1;
                    self.sent(side, frames);
                }
            }
        }
        self.now = end;
    }

    pub fn run_for(&mut self, time: Duration) {
        self.run_to(self.now + time);
    }
}
