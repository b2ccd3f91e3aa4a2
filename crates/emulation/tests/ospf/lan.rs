//! Emulated routers on one Ethernet in virtual time.

use drophammer_emulation::ospf::{
    Externals, NeighbourState, NetworkType, Networks, Ospf, OspfCommand, OspfConfig, Progress, Shape, Topology,
};
use drophammer_emulation::protocol::{Command, Protocol};
use drophammer_emulation::{Address, Device, DeviceConfig};
use drophammer_model::Instant;
use drophammer_wire::ospf::{Authentication, Header, packet};
use drophammer_wire::{MacAddr, checksum, ipv4};
use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Time that a frame needs.
const DELAY: Duration = Duration::from_micros(50);

/// A time at which no frame is in flight.
pub const HALF_PAST_TEN: Instant = Instant(10_500_000_000);

pub fn secs(s: u64) -> Instant {
    Instant(s * 1_000_000_000)
}

pub fn router_id(n: u8) -> Ipv4Addr {
    Ipv4Addr::new(n, n, n, n)
}

pub fn address(n: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, 0, n)
}

/// Router `n` with short timers.
pub fn config(n: u8, network: NetworkType) -> OspfConfig {
    OspfConfig { network, hello_interval: 1, dead_interval: 4, retransmit_interval: 2, ..OspfConfig::new(router_id(n)) }
}

pub fn topology(routers: u32, shape: Shape) -> Topology {
    Topology {
        routers,
        shape,
        first_router_id: [10, 0, 0, 0].into(),
        link_cost: 10,
        stubs: 1,
        first_stub: [20, 0, 0, 0].into(),
        stub_length: 24,
        stub_cost: 1,
    }
}

pub fn externals(count: u32) -> Externals {
    let networks = Networks { first: [30, 0, 0, 0].into(), length: 24, count, metric: 20 };
    Externals { networks, type_2: true, tag: 0, forwarding: Ipv4Addr::UNSPECIFIED }
}

/// A frame with an OSPF packet from device 2 to device 1, whether or not there is a device 2.
pub fn from_second(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = [&[0; packet::LEN], body].concat();
    let header = Header { kind, router_id: router_id(2), area_id: Ipv4Addr::UNSPECIFIED };
    header.seal(&mut bytes, &Authentication::Null, 0);
    let ip = ipv4::Repr {
        tos: 0xc0,
        identification: 0,
        dont_fragment: false,
        ttl: 1,
        protocol: ipv4::protocol::OSPF,
        source: address(2),
        destination: address(1),
        payload_len: bytes.len(),
    };
    let mut frame = vec![0; 14 + ipv4::LEN];
    frame[..6].copy_from_slice(&MacAddr::local(1).0);
    frame[6..12].copy_from_slice(&MacAddr::local(2).0);
    frame[12..14].copy_from_slice(&[8, 0]);
    ip.emit(&mut frame[14..]);
    frame.extend(bytes);
    frame
}

/// A frame with an IPv4 packet without options, whole or in fragments.
fn fragments(frame: Vec<u8>, most: usize) -> Vec<Vec<u8>> {
    let (header, data) = frame.split_at(14 + ipv4::LEN);
    if most == 0 || data.len() <= most {
        return vec![frame];
    }
    let last = data.len().div_ceil(most) - 1;
    let part = |(n, part): (usize, &[u8])| {
        let mut fragment = [header, part].concat();
        let ip = &mut fragment[14..];
        ip[2..4].copy_from_slice(&((ipv4::LEN + part.len()) as u16).to_be_bytes());
        let word = (n * most / 8) as u16 | if n < last { 0x2000 } else { 0 };
        ip[6..8].copy_from_slice(&word.to_be_bytes());
        ip[10..12].fill(0);
        let sum = checksum::finish(checksum::sum(&ip[..ipv4::LEN]));
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        fragment
    };
    data.chunks(most).enumerate().map(part).collect()
}

/// A link with devices 1, 2, ...
pub struct Lan {
    pub now: Instant,
    pub devices: Vec<Device>,
    /// Frames in flight: arrival, sender, frame.
    flight: VecDeque<(Instant, usize, Vec<u8>)>,
    /// All OSPF frames sent since the last clearing.
    pub frames: Vec<(Instant, Vec<u8>)>,
    /// Every n-th OSPF frame is lost; 0 for none.
    pub lose_every: u64,
    sent: u64,
    /// Longer OSPF packets arrive in fragments with this many bytes after the header, a multiple of 8; 0 for none.
    pub fragment: usize,
    /// Devices that are cut off.
    pub cut: Vec<usize>,
}

impl Lan {
    pub fn new(configs: Vec<OspfConfig>) -> Lan {
        let devices = (1..).zip(&configs).map(|(n, config)| {
            let own = Address { address: address(n), prefix_len: 24, gateway: address(254) };
            let of = DeviceConfig {
                ipv4: Some(own),
                ..DeviceConfig::new(format!("d{n}"), MacAddr::local(n.into()), u64::from(n))
            };
            let mut device = Device::new(of.clone());
            device.fix_gateway(MacAddr::local(254));
            device.add_protocol(Box::new(Ospf::configured(&of, config).unwrap()));
            device
        });
        Lan {
            now: Instant(0),
            devices: devices.collect(),
            flight: VecDeque::new(),
            frames: Vec::new(),
            lose_every: 0,
            sent: 0,
            fragment: 0,
            cut: Vec::new(),
        }
    }

    /// A link with these devices, all started.
    pub fn started(configs: Vec<OspfConfig>) -> Lan {
        let mut lan = Lan::new(configs);
        (0..lan.devices.len()).for_each(|which| lan.command(which, &Command::Start));
        lan
    }

    pub fn command(&mut self, which: usize, command: &Command) {
        self.devices[which].command(self.now, "ospf", command).unwrap();
    }

    pub fn order(&mut self, which: usize, command: OspfCommand) {
        self.command(which, &Command::Ospf(command));
    }

    pub fn ospf(&self, which: usize) -> &Ospf {
        self.devices[which].protocol().unwrap()
    }

    pub fn ospf_mut(&mut self, which: usize) -> &mut Ospf {
        self.devices[which].protocol_mut().unwrap()
    }

    pub fn counter(&self, which: usize, name: &str) -> u64 {
        self.ospf(which).state().counter(name)
    }

    /// Delivers a frame that no device has sent to `to`.
    pub fn inject(&mut self, to: usize, frame: &[u8]) {
        let mut answers = Vec::new();
        self.devices[to].receive(self.now, frame, &mut |frame| answers.push(frame.to_vec()));
        answers.into_iter().for_each(|frame| self.depart(to, frame));
    }

    fn depart(&mut self, from: usize, frame: Vec<u8>) {
        if frame[23] == ipv4::protocol::OSPF {
            self.sent += 1;
            self.frames.push((self.now, frame.clone()));
            if self.cut.contains(&from) || self.lose_every > 0 && self.sent.is_multiple_of(self.lose_every) {
                return;
            }
            for frame in fragments(frame, self.fragment) {
                self.flight.push_back((self.now + DELAY, from, frame));
            }
        }
    }

    /// Runs until `done` is true or until `until`. Returns true if `done` was.
    pub fn run_until(&mut self, until: Instant, done: impl Fn(&Lan) -> bool) -> bool {
        loop {
            let due = |lan: &Lan| lan.flight.front().is_some_and(|(at, ..)| *at <= lan.now);
            while due(self)
                && let Some((_, from, frame)) = self.flight.pop_front()
            {
                for to in 0..self.devices.len() {
                    if to != from && !self.cut.contains(&to) {
                        self.inject(to, &frame);
                    }
                }
            }
            for which in 0..self.devices.len() {
                if self.devices[which].next_deadline().is_some_and(|at| at <= self.now) {
                    let mut frames = Vec::new();
                    self.devices[which].poll(self.now, 1500, &mut |frame| frames.push(frame.to_vec()));
                    frames.into_iter().for_each(|frame| self.depart(which, frame));
                }
            }
            if done(self) {
                return true;
            }
            let arrival = self.flight.front().map(|(at, ..)| *at);
            let next = self.devices.iter().filter_map(Device::next_deadline).chain(arrival).min();
            match next {
                Some(next) if next <= until => self.now = self.now.max(next),
                _ => break,
            }
        }
        self.now = until;
        false
    }

    /// Runs for this many seconds.
    pub fn run(&mut self, seconds: u64) {
        self.run_until(self.now + Duration::from_secs(seconds), |_| false);
    }

    /// States of the neighbours of a device.
    pub fn states(&self, which: usize) -> Vec<NeighbourState> {
        self.ospf(which).neighbours().map(|n| n.state).collect()
    }

    pub fn is_full(&self) -> bool {
        (0..self.devices.len()).all(|which| self.states(which).contains(&NeighbourState::Full))
    }

    pub fn progress(&self, which: usize) -> Progress {
        self.ospf(which).progress()
    }

    pub fn is_settled(&self) -> bool {
        self.is_full() && (0..self.devices.len()).all(|which| self.progress(which).is_settled())
    }
}
