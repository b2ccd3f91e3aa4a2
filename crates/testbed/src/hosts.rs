//! The emulated hosts behind the tester's ports, as the packet loop meets them.

use drophammer_emulation::hosts::{HostAddress, HostConfig, HostStack};
use drophammer_model::quantity::Instant;
use drophammer_model::suite::PortConfig;
use drophammer_model::trial::{Family, PortIndex};
use drophammer_port::{Arrival, PortError};
use drophammer_traffic::{Control, Layout, Neighbour, SendFrame};
use drophammer_wire::MacAddr;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

/// The host on one port, and the frames that it wants to send.
struct Host {
    stack: HostStack,
    queue: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    /// Address of the device where it needs no asking.
    fixed: Option<MacAddr>,
}

/// Hosts of all ports.
pub struct Hosts(Vec<Host>);

/// Frames of a host that wait at most; a flood of requests must not eat the tester's memory.
const QUEUE: usize = 1024;
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
        let hosts = ports
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
                Host { stack: HostStack::new(config), queue: VecDeque::new(), spare: Vec::new(), fixed: None }
            })
            .collect();
        Hosts(hosts)
    }

    /// The device on `port` has this address; nobody is asked.
    pub fn fix(&mut self, port: PortIndex, mac: MacAddr) {
        self.0[port].fixed = Some(mac);
    }

    /// What each port knows of its link.
    pub fn neighbours(&self) -> Vec<Neighbour> {
        self.0
            .iter()
            .map(|Host { stack, fixed, .. }| Neighbour {
                mac: stack.mac(),
                device_ipv4: fixed.or_else(|| stack.gateway_mac(Family::Ipv4)),
                device_ipv6: fixed.or_else(|| stack.gateway_mac(Family::Ipv6)),
            })
            .collect()
    }

    /// The first port on which the device has not told its address.
    pub fn unresolved(&self) -> Option<PortIndex> {
        self.0.iter().position(|host| host.fixed.is_none() && !host.stack.is_ready())
    }

    /// A frame for the host on `port`.
    pub fn receive(&mut self, port: PortIndex, arrival: Arrival<'_>) {
        self.0[port].receive(arrival);
    }

    /// Does what is due and sends what waits; returns when there is something to do next.
    ///
    /// # Errors
    /// The port's.
    pub fn poll(&mut self, now: Instant, send: &mut SendFrame<'_>) -> Result<Instant, PortError> {
        poll(self.0.iter_mut().enumerate(), now, send)
    }

    /// The hosts of each lane of `layout`, which is of as many ports as there are hosts.
    pub fn by_lane(&mut self, layout: &Layout) -> Vec<LaneHosts<'_>> {
        let mut lanes: Vec<LaneHosts<'_>> = (0..layout.lanes()).map(|_| LaneHosts(Vec::new())).collect();
        for (port, host) in self.0.iter_mut().enumerate() {
            lanes[layout.lane_of(port)].0.push((port, host));
        }
        lanes
    }
}

impl Host {
    fn receive(&mut self, arrival: Arrival<'_>) {
        let Host { stack, queue, spare, .. } = self;
        stack.receive(arrival.at, arrival.frame, &mut |frame| enqueue(queue, spare, frame));
    }
}

fn enqueue(queue: &mut VecDeque<Vec<u8>>, spare: &mut Vec<Vec<u8>>, frame: &[u8]) {
    if queue.len() < QUEUE {
        let mut copy = spare.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(frame);
        queue.push_back(copy);
    }
}

fn poll<'a>(
    hosts: impl Iterator<Item = (PortIndex, &'a mut Host)>,
    now: Instant,
    send: &mut SendFrame<'_>,
) -> Result<Instant, PortError> {
    let mut next = now + IDLE;
    for (port, Host { stack, queue, spare, fixed }) in hosts {
        if fixed.is_none() {
            stack.poll(now, &mut |frame| enqueue(queue, spare, frame));
            next = next.min(stack.next_deadline().unwrap_or(next));
        }
        while let Some(frame) = queue.pop_front() {
            send(port, &frame)?;
            spare.push(frame);
        }
    }
    Ok(next.max(now + Duration::from_micros(50)))
}

/// Hosts of the ports of one lane.
pub struct LaneHosts<'a>(Vec<(PortIndex, &'a mut Host)>);

/// Hosts of a lane in its packet loop, with the user's wish to stop.
pub struct HostControl<'a, S> {
    /// The hosts.
    pub hosts: LaneHosts<'a>,
    /// The user's wish.
    pub stopped: S,
}

impl<S: Fn() -> bool> Control for HostControl<'_, S> {
    fn receive(&mut self, port: PortIndex, arrival: Arrival<'_>) -> Result<(), PortError> {
        if let Some((_, host)) = self.hosts.0.iter_mut().find(|(at, _)| *at == port) {
            host.receive(arrival);
        }
        Ok(())
    }

    fn poll(&mut self, now: Instant, send: &mut SendFrame<'_>) -> Result<Instant, PortError> {
        poll(self.hosts.0.iter_mut().map(|(port, host)| (*port, &mut **host)), now, send)
    }

    fn stop(&self) -> bool {
        (self.stopped)()
    }
}
