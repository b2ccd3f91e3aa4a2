//! Two emulated routers that exchange packets within the process, so that only their own work and memory count.

#![allow(dead_code)] // each user needs only a part

use drophammer_emulation::bgp::{ExpectationId, Expected, Packing, PeerConfig, RouteSource, Routers};
use drophammer_emulation::{Address, Device, DeviceConfig};
use drophammer_model::Instant;
use drophammer_model::routes::Routes;
use drophammer_model::trial::Family;
use drophammer_wire::MacAddr;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

const AS: [u32; 2] = [65_001, 65_000];

/// One side: a device with direct access to its routers.
pub struct Side(Device);

impl Deref for Side {
    type Target = Routers;

    fn deref(&self) -> &Routers {
        self.0.protocol().expect("it speaks BGP")
    }
}

impl DerefMut for Side {
    fn deref_mut(&mut self) -> &mut Routers {
        self.0.protocol_mut().expect("it speaks BGP")
    }
}

/// Sender and verifier with an established session.
pub struct Pair {
    pub routers: [Side; 2],
    now: Instant,
    /// Frames in flight, one after the other, and where each of them ends. The window bounds them, as it bounds frames
    /// of a burst.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    addresses: [IpAddr; 2],
}

fn config(side: usize, addresses: [IpAddr; 2]) -> PeerConfig {
    let router_id = Ipv4Addr::from_bits(0x6440_0001 + side as u32);
    let peer = PeerConfig::new(addresses[side], addresses[1 - side], AS[side], AS[1 - side], router_id);
    PeerConfig { passive: side == 1, ..peer }
}

impl Pair {
    pub fn new(family: Family) -> Result<Pair, String> {
        let texts =
            if family == Family::Ipv4 { ["198.18.1.2", "198.18.1.1"] } else { ["2001:2:0:1::2", "2001:2:0:1::1"] };
        let addresses = texts.map(|t| t.parse().expect("an address"));
        let routers = [0, 1].map(|side| {
            let macs = [MacAddr::local(side as u64), MacAddr::local(1 - side as u64)];
            let mut device = DeviceConfig::new(format!("side{side}"), macs[0], side as u64);
            match (addresses[side], addresses[1 - side]) {
                (IpAddr::V4(address), IpAddr::V4(gateway)) => {
                    device.ipv4 = Some(Address { address, prefix_len: 24, gateway });
                }
                (IpAddr::V6(address), IpAddr::V6(gateway)) => {
                    device.ipv6 = Some(Address { address, prefix_len: 64, gateway });
                }
                _ => unreachable!("one family"),
            }
            let mut device = Device::new(device);
            device.fix_gateway(macs[1]);
            device.add_protocol(Box::new(Routers::new(side as u64, vec![config(side, addresses)])));
            Side(device)
        });
        let mut pair = Pair { routers, now: Instant(1), bytes: Vec::new(), ends: Vec::new(), addresses };
        pair.routers.iter_mut().for_each(|r| r.start(Instant(1), 0));
        pair.run_until(|pair| pair.routers.iter().all(|r| r.established(0)))?;
        Ok(pair)
    }

    /// Lets both routers work alternately, for 10 µs of their time each, until `done`. Fails if that takes longer than
    /// a session without messages lasts.
    pub fn run_until(&mut self, mut done: impl FnMut(&Pair) -> bool) -> Result<(), String> {
        let mut quiet = 0;
        while !done(self) {
            self.now = self.now + Duration::from_micros(10);
            quiet += 1;
            for from in 0..2 {
                let (bytes, ends) = (&mut self.bytes, &mut self.ends);
                self.routers[from].0.poll(self.now, 64 << 10, &mut |frame| {
                    bytes.extend_from_slice(frame);
                    ends.push(bytes.len());
                });
                let mut start = 0;
                for end in self.ends.drain(..) {
                    self.routers[1 - from].0.receive(self.now, &self.bytes[start..end], &mut |_| {});
                    (start, quiet) = (end, 0);
                }
                self.bytes.clear();
            }
            if quiet > 0 {
                // No frame is in flight: continue at the earliest deadline.
                let next = self.routers.iter().filter_map(|side| side.0.next_deadline()).min().unwrap_or(self.now);
                self.now = self.now.max(next);
            }
            if quiet > 100_000 {
                return Err("nothing goes on any more".into());
            }
        }
        Ok(())
    }

    /// Announces all routes at the sender. The verifier expects them from now on.
    pub fn announce(&mut self, routes: &Arc<Routes>) -> ExpectationId {
        let expected = Expected {
            source: RouteSource::Peer,
            as_path_prefix: vec![AS[0]],
            next_hop: Some(self.addresses[0]),
            check_attributes: true,
            times: true,
            labels: false,
            label: None,
        };
        let id = self.routers[1].adj_rib_in_mut(0).expect(self.now, routes.clone(), 0..routes.len(), expected);
        self.routers[0].adj_rib_out(0).advertise(routes.clone(), 0..routes.len(), Packing::default());
        id
    }

    pub fn messages(&self) -> u64 {
        self.routers[0].advertised(0).messages
    }
}

/// Sends `routes` and verifies each of them. The routers still exist afterwards.
pub fn verify(routes: &Arc<Routes>) -> Result<Pair, String> {
    let mut pair = Pair::new(routes.family())?;
    let id = pair.announce(routes);
    pair.run_until(|pair| pair.routers[1].adj_rib_in(0).is_complete(id))?;
    let (report, totals) = (pair.routers[1].adj_rib_in(0).report(id), pair.routers[1].adj_rib_in(0).totals());
    let right = report.is_right() && report.present == routes.len() && totals.unexpected == 0;
    if right { Ok(pair) } else { Err(format!("{report:?}, {totals:?}")) }
}

/// A line of `/proc/self/status` in KiB: `VmRSS` for the memory in RAM now, `VmHWM` for the maximum since
/// [`forget_peak`].
pub fn resident_kib(name: &str) -> Result<f64, String> {
    let text = std::fs::read_to_string("/proc/self/status").map_err(|e| e.to_string())?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.ok_or_else(|| format!("no {name} in /proc/self/status"))
}

/// Makes the kernel restart its measurement of the maximum use of RAM (proc(5), `clear_refs`).
pub fn forget_peak() -> Result<(), String> {
    std::fs::write("/proc/self/clear_refs", "5").map_err(|e| e.to_string())
}
