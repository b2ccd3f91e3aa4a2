//! The emulated hosts behind the tester's ports, as the packet loop meets them.

use drophammer_emulation::hosts::{HostAddress, HostConfig, HostStack};
use drophammer_model::quantity::Instant;
use drophammer_model::suite::PortConfig;
use drophammer_model::trial::{Family, PortIndex};
use drophammer_port::{Arrival, Port, PortError};
use drophammer_traffic::{Control, Neighbour};
use drophammer_wire::MacAddr;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

/// Hosts of all ports, and the frames they want to send.
pub struct Hosts {
    stacks: Vec<HostStack>,
    queue: VecDeque<(PortIndex, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
    /// Addresses of the devices where they need no asking.
    fixed: Vec<Option<MacAddr>>,
}

/// Frames of hosts that wait at most; a flood of requests must not eat the tester's memory.
const QUEUE: usize = 4096;
/// The longest that hosts are left alone.
const IDLE: Duration = Duration::from_millis(500);

/// MAC address of the emulated router on port `index`. It differs from the interface's own, so that the kernel under the
/// port lets go of test frames at once instead of routing them.
pub fn host_mac(seed: u64, index: usize) -> MacAddr {
    MacAddr::local((seed & 0xff_ffff) << 16 | (index as u64 + 1))
}

impl Hosts {
    /// A host per port that uses `families`.
    pub fn new(ports: &[PortConfig], families: &[Family], seed: u64) -> Hosts {
        let stacks = ports
            .iter()
            .enumerate()
            .map(|(index, port)| {
                let mut config = HostConfig {
                    mac: host_mac(seed, index),
                    ipv4: None,
                    ipv6: None,
                    seed: seed.wrapping_add(index as u64),
                };
                for family in families {
                    let Some(a) = port.addressing(*family) else { continue };
                    match (a.host, a.dut) {
                        (IpAddr::V4(address), IpAddr::V4(gateway)) => {
                            config.ipv4 = Some(HostAddress { address, prefix_len: a.prefix_len, gateway });
                        }
                        (IpAddr::V6(address), IpAddr::V6(gateway)) => {
                            config.ipv6 = Some(HostAddress { address, prefix_len: a.prefix_len, gateway });
                        }
                        _ => {}
                    }
                }
                HostStack::new(config)
            })
            .collect();
        Hosts { stacks, queue: VecDeque::new(), spare: Vec::new(), fixed: vec![None; ports.len()] }
    }

    /// The device on `port` has this address; nobody is asked.
    pub fn fix(&mut self, port: PortIndex, mac: MacAddr) {
        self.fixed[port] = Some(mac);
    }

    /// What each port knows of its link.
    pub fn neighbours(&self) -> Vec<Neighbour> {
        self.stacks
            .iter()
            .zip(&self.fixed)
            .map(|(stack, fixed)| Neighbour {
                mac: stack.mac(),
                device_ipv4: fixed.or_else(|| stack.gateway_mac(Family::Ipv4)),
                device_ipv6: fixed.or_else(|| stack.gateway_mac(Family::Ipv6)),
            })
            .collect()
    }

    /// The first port on which the device has not told its address.
    pub fn unresolved(&self) -> Option<PortIndex> {
        (0..self.stacks.len()).find(|i| self.fixed[*i].is_none() && !self.stacks[*i].is_ready())
    }

    fn enqueue(queue: &mut VecDeque<(PortIndex, Vec<u8>)>, spare: &mut Vec<Vec<u8>>, port: PortIndex, frame: &[u8]) {
        if queue.len() < QUEUE {
            let mut copy = spare.pop().unwrap_or_default();
            copy.clear();
            copy.extend_from_slice(frame);
            queue.push_back((port, copy));
        }
    }

    /// A frame for the host on `port`.
    pub fn receive(&mut self, port: PortIndex, arrival: Arrival<'_>) {
        let Hosts { stacks, queue, spare, .. } = self;
        stacks[port].receive(arrival.at, arrival.frame, &mut |frame| Hosts::enqueue(queue, spare, port, frame));
    }

    /// Does what is due and sends what waits; returns when there is something to do next.
    ///
    /// # Errors
    /// The port's.
    pub fn poll(&mut self, now: Instant, ports: &mut [Box<dyn Port>]) -> Result<Instant, PortError> {
        let Hosts { stacks, queue, spare, fixed } = self;
        let mut next = now + IDLE;
        for (index, stack) in stacks.iter_mut().enumerate().filter(|(i, _)| fixed[*i].is_none()) {
            stack.poll(now, &mut |frame| Hosts::enqueue(queue, spare, index, frame));
            next = next.min(stack.next_deadline().unwrap_or(next));
        }
        while let Some((port, frame)) = queue.pop_front() {
            ports[port].slots().put(0, &frame);
            ports[port].send(1)?;
            spare.push(frame);
        }
        Ok(next.max(now + Duration::from_micros(50)))
    }
}

/// Hosts in the packet loop, with the user's wish to stop.
pub struct HostControl<'a> {
    /// The hosts.
    pub hosts: &'a mut Hosts,
    /// The user's wish.
    pub stopped: &'a dyn Fn() -> bool,
}

impl Control for HostControl<'_> {
    fn receive(&mut self, port: PortIndex, arrival: Arrival<'_>) -> Result<(), PortError> {
        self.hosts.receive(port, arrival);
        Ok(())
    }

    fn poll(&mut self, now: Instant, ports: &mut [Box<dyn Port>]) -> Result<Instant, PortError> {
        self.hosts.poll(now, ports)
    }

    fn stop(&self) -> bool {
        (self.stopped)()
    }
}
