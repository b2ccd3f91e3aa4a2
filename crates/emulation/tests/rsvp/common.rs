//! An ingress and an egress on one link, in virtual time.

use drophammer_emulation::device::{Address, Device, DeviceConfig};
use drophammer_emulation::protocol::{Command, ProtocolConfig, State};
use drophammer_emulation::rsvp::{
    EgressRange, IngressRange, LabelPolicy, LspRange, NAME, Pace, Rsvp, RsvpCommand, RsvpConfig,
};
use drophammer_model::Instant;
use drophammer_wire::MacAddr;
use std::ops::Range;

pub const BUDGET: usize = 64 << 10;
pub const INGRESS: usize = 0;
pub const EGRESS: usize = 1;
/// Label of LSP 0.
pub const FIRST_LABEL: u32 = 100_000;

pub fn seconds(seconds: f64) -> Instant {
    Instant((seconds * 1e9) as u64)
}

pub fn device(own: u8, other: u8, config: RsvpConfig) -> Device {
    let mut device = unresolved(own, other, config);
    device.fix_gateway(MacAddr::local(other.into()));
    device
}

/// A device that asks for the address of its gateway.
pub fn unresolved(own: u8, other: u8, config: RsvpConfig) -> Device {
    let mac = MacAddr::local(own.into());
    let ipv4 = Some(Address { address: [198, 18, 1, own].into(), prefix_len: 24, gateway: [198, 18, 1, other].into() });
    let config_of_device = DeviceConfig { ipv4, ..DeviceConfig::new(format!("d{own}"), mac, own.into()) };
    let mut device = Device::new(config_of_device.clone());
    device.add_protocol(ProtocolConfig::Rsvp(Box::new(config)).create(&config_of_device).unwrap());
    device
}

/// Decides the fate of a frame, from its sender, number and bytes: false to lose it.
pub type Fate = fn(usize, u64, &[u8]) -> bool;

/// Two devices whose frames arrive at the same instant.
pub struct World {
    pub devices: [Device; 2],
    pub now: Instant,
    pub fate: Fate,
    /// Frames that were sent.
    pub frames: u64,
    /// Bytes that were sent, without Ethernet.
    pub bytes: u64,
    /// All frames with their time, if wanted.
    pub log: Option<Vec<(u64, Vec<u8>)>>,
}

impl World {
    /// An ingress and an egress of `count` LSPs. Otherwise both have this configuration.
    pub fn new(count: u32, config: RsvpConfig) -> World {
        let lsps = LspRange::new(count, [10, 1, 0, 1].into(), [10, 2, 0, 1].into());
        let ingress = RsvpConfig { ingress: vec![IngressRange::new(lsps.clone())], ..config.clone() };
        let egress = vec![EgressRange { lsps, labels: LabelPolicy::From(FIRST_LABEL) }];
        World::of([ingress, RsvpConfig { egress, ..config }])
    }

    pub fn of([ingress, egress]: [RsvpConfig; 2]) -> World {
        let devices = [device(1, 2, ingress), device(2, 1, egress)];
        let mut world = World { devices, now: Instant(0), fate: |_, _, _| true, frames: 0, bytes: 0, log: None };
        world.each(&Command::Start);
        world
    }

    pub fn each(&mut self, command: &Command) {
        self.devices.iter_mut().for_each(|device| device.command(self.now, NAME, command).unwrap());
    }

    pub fn command(&mut self, at: usize, command: RsvpCommand) {
        self.devices[at].command(self.now, NAME, &Command::Rsvp(command)).unwrap();
    }

    pub fn set_up(&mut self, lsps: Range<u32>, per_second: u32) {
        self.command(INGRESS, RsvpCommand::SetUp(Pace { lsps, per_second }));
    }

    pub fn tear_down(&mut self, lsps: Range<u32>, per_second: u32) {
        self.command(INGRESS, RsvpCommand::TearDown(Pace { lsps, per_second }));
    }

    /// Runs until `end`, including everything that is due then.
    pub fn run_to(&mut self, end: Instant) {
        let mut wire = Vec::new();
        loop {
            let due = self.devices.iter().filter_map(Device::next_deadline).min();
            match due.map(|at| at.max(self.now)).filter(|at| *at <= end) {
                Some(at) => self.now = at,
                None => break,
            }
            for at in 0..2 {
                if self.devices[at].next_deadline().is_some_and(|due| due <= self.now) {
                    self.devices[at].poll(self.now, BUDGET, &mut |frame| wire.push((at, frame.to_vec())));
                }
            }
            let mut next = 0;
            while let Some((from, frame)) = wire.get_mut(next).map(|(from, frame)| (*from, std::mem::take(frame))) {
                next += 1;
                self.frames += 1;
                self.bytes += frame.len() as u64 - 14;
                if let Some(log) = &mut self.log {
                    log.push((self.now.0, frame.clone()));
                }
                if (self.fate)(from, self.frames, &frame) {
                    let answers = &mut |answer: &[u8]| wire.push((1 - from, answer.to_vec()));
                    self.devices[1 - from].receive(self.now, &frame, answers);
                }
            }
            wire.clear();
        }
        self.now = end;
    }

    pub fn rsvp(&self, at: usize) -> &Rsvp {
        self.devices[at].protocol().unwrap()
    }

    pub fn state(&self, at: usize) -> State {
        self.devices[at].protocols().find(|p| p.name() == NAME).unwrap().state()
    }

    pub fn counter(&self, at: usize, name: &str) -> u64 {
        let state = self.state(at);
        assert!(state.counters.iter().any(|(known, _)| *known == name), "no counter {name}");
        state.counter(name)
    }

    /// LSPs that are up at ingress and egress.
    pub fn up(&self) -> [u32; 2] {
        [INGRESS, EGRESS].map(|at| self.state(at).up)
    }

    /// Asserts that every message that one side sent has arrived at the other side.
    pub fn assert_conserved(&self) {
        for (from, to) in [(INGRESS, EGRESS), (EGRESS, INGRESS)] {
            for kind in
                ["path", "resv", "path_tear", "resv_tear", "path_err", "resv_err", "ack", "srefresh", "bundle", "hello"]
            {
                let sent = self.counter(from, &format!("{kind}_sent"));
                assert_eq!(sent, self.counter(to, &format!("{kind}_received")), "{kind} from {from}");
            }
            assert_eq!(self.devices[from].oddities(), Default::default());
            assert_eq!(self.counter(from, "malformed"), 0);
        }
    }
}
