//! The emulated hosts behind the tester's ports, as the packet loop meets them.

use crate::config::{Config, PortConfig};
use drophammer_emulation::bgp::Routers;
use drophammer_emulation::device::{Device, DeviceConfig, DeviceId, Devices};
use drophammer_emulation::tcp::TcpConfig;
use drophammer_model::quantity::Instant;
use drophammer_model::routes::{Packing, Routes};
use drophammer_model::trial::{Family, PortIndex};
use drophammer_port::{Arrival, PortError};
use drophammer_traffic::{Control, Layout, Neighbour, SendFrame};
use drophammer_wire::MacAddr;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// The emulated devices on one port, and the frames that they want to send.
struct Host {
    devices: Devices,
    /// The host that the DUT forwards to; the BGP routers are at its addresses.
    id: DeviceId,
    queue: VecDeque<Vec<u8>>,
    /// Frames that have left.
    sent: u64,
    spare: Vec<Vec<u8>>,
    /// Address of the DUT where it needs no asking.
    fixed: Option<MacAddr>,
}

/// Index of a BGP session among all of a rig.
pub type SessionIndex = usize;

/// Hosts of all ports.
pub struct Hosts {
    hosts: Vec<Host>,
    /// Port of each session, and its number there.
    sessions: Vec<(PortIndex, usize)>,
}

/// Frames of a host that wait at most; a flood of requests must not eat the tester's memory.
const QUEUE: usize = 1024;
/// Bytes of UPDATEs that a router packs at a time, so that frames of the trial are not kept waiting: some 50 µs of work.
const QUOTA: usize = 64 << 10;
/// How long a port whose queue is full is left alone: half of the 256 frames of a virtual link are gone by then.
pub(crate) const FULL: Duration = Duration::from_micros(100);
/// The longest that hosts are left alone.
const IDLE: Duration = Duration::from_millis(500);

impl Hosts {
    /// A host per port of `config`.
    pub fn new(config: &Config) -> Hosts {
        let mut sessions = Vec::new();
        let host = |(index, port): (usize, &PortConfig)| {
            let seed = config.seed.wrapping_add(index as u64);
            let device = DeviceConfig {
                ipv4: port.ipv4,
                ipv6: port.ipv6,
                tcp: TcpConfig { verify_checksums: false, ..TcpConfig::new(port.mtu as usize, seed) },
                ..DeviceConfig::new(format!("port {index}"), port.mac, seed)
            };
            let mut devices = Devices::new();
            let id = devices.add(Device::new(device)).expect("the first device collides with none");
            let mut host = Host { devices, id, queue: VecDeque::new(), sent: 0, spare: Vec::new(), fixed: port.device };
            port.device.iter().for_each(|mac| host.devices.fix_gateway(id, *mac));
            if !port.routers.is_empty() {
                sessions.extend((0..port.routers.len()).map(|router| (index, router)));
                host.set_routers(Routers::new(seed, port.routers.clone()));
            }
            host.add_addresses(&port.also);
            host
        };
        let hosts = config.ports.iter().enumerate().map(host).collect();
        Hosts { hosts, sessions }
    }

    /// BGP sessions of the configuration, those of a port one after the other, in the order of the ports.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Port of a session, and its number among those of the port.
    pub fn place(&self, session: SessionIndex) -> (PortIndex, usize) {
        self.sessions[session]
    }

    /// The routers that a session is one of, and its number among them.
    pub fn session(&self, session: SessionIndex) -> Option<(&Routers, usize)> {
        let (port, router) = self.sessions[session];
        self.routers(port).map(|routers| (routers, router))
    }

    /// The same, to be told what to do.
    pub fn session_mut(&mut self, session: SessionIndex) -> Option<(&mut Routers, usize)> {
        let (port, router) = self.sessions[session];
        self.routers_mut(port).map(|routers| (routers, router))
    }

    /// Puts `routers` behind a port, whose host answers for the addresses of `also`: first and count.
    pub fn set_routers(&mut self, port: PortIndex, routers: Routers, also: &[(IpAddr, u32)]) {
        let host = &mut self.hosts[port];
        host.add_addresses(also);
        host.set_routers(routers);
    }

    /// The routers behind a port, if there are any.
    pub fn routers(&self, port: PortIndex) -> Option<&Routers> {
        self.hosts.get(port).and_then(Host::routers)
    }

    /// The same, to be told what to do.
    pub fn routers_mut(&mut self, port: PortIndex) -> Option<&mut Routers> {
        self.hosts.get_mut(port).and_then(Host::routers_mut)
    }

    /// The DUT has this address on `port`; it is not asked for it.
    pub fn fix(&mut self, port: PortIndex, mac: MacAddr) {
        let host = &mut self.hosts[port];
        host.fixed = Some(mac);
        host.devices.fix_gateway(host.id, mac);
    }

    /// What each port knows of its link.
    pub fn neighbours(&self) -> Vec<Neighbour> {
        self.hosts
            .iter()
            .map(|Host { devices, id, fixed, .. }| {
                let device = devices.get(*id);
                Neighbour {
                    mac: device.mac(),
                    device_ipv4: fixed.or_else(|| device.gateway_mac(Family::Ipv4)),
                    device_ipv6: fixed.or_else(|| device.gateway_mac(Family::Ipv6)),
                    vlans: Vec::new(),
                }
            })
            .collect()
    }

    /// The first port on which the device has not told its address.
    pub fn unresolved(&self) -> Option<PortIndex> {
        self.hosts.iter().position(|host| !host.devices.get(host.id).is_ready())
    }

    /// A frame for the host on `port`.
    pub fn receive(&mut self, port: PortIndex, arrival: Arrival<'_>) {
        self.hosts[port].receive(arrival);
    }

    /// Does what is due and sends what waits; returns when there is something to do next.
    ///
    /// # Errors
    /// The port's.
    pub fn poll(&mut self, now: Instant, send: &mut SendFrame<'_>) -> Result<Instant, PortError> {
        poll(self.hosts.iter_mut().enumerate(), now, send)
    }

    /// A frame that [`Hosts::poll`] gave away and the port refused: it is sent again first of all at the next poll. Several are in their
    /// order.
    pub fn refused(&mut self, port: PortIndex, frame: &[u8]) {
        let Host { queue, sent, spare, .. } = &mut self.hosts[port];
        *sent -= 1;
        enqueue(queue, spare, frame);
    }

    /// Frames that the host and the routers on `port` have sent.
    pub fn sent(&self, port: PortIndex) -> u64 {
        self.hosts[port].sent
    }

    /// The hosts of each lane of `layout`, which is of as many ports as there are hosts.
    pub fn by_lane(&mut self, layout: &Layout) -> Vec<LaneHosts<'_>> {
        let mut lanes: Vec<LaneHosts<'_>> = (0..layout.lanes()).map(|_| LaneHosts(Vec::new())).collect();
        for (port, host) in self.hosts.iter_mut().enumerate() {
            lanes[layout.lane_of(port)].0.push((port, host));
        }
        lanes
    }
}

impl Host {
    fn receive(&mut self, arrival: Arrival<'_>) {
        let Host { devices, queue, spare, .. } = self;
        devices.receive(arrival.at, arrival.frame, &mut |frame| enqueue(queue, spare, frame));
    }

    fn add_addresses(&mut self, ranges: &[(IpAddr, u32)]) {
        for (first, count) in ranges {
            self.devices.add_addresses(self.id, *first, *count).expect("a single device collides with none");
        }
    }

    fn set_routers(&mut self, routers: Routers) {
        self.devices.add_protocol(self.id, Box::new(routers));
    }

    fn routers(&self) -> Option<&Routers> {
        self.devices.get(self.id).protocol()
    }

    fn routers_mut(&mut self) -> Option<&mut Routers> {
        self.devices.protocol_mut(self.id)
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
    for (port, Host { devices, queue, sent: left, spare, .. }) in hosts {
        // What the port has no room for waits, and what comes after it: these frames are no load that is measured, and a lost segment
        // costs TCP a second.
        let mut full = false;
        while let Some(frame) = queue.pop_front() {
            if !send(port, &frame)? {
                queue.push_front(frame);
                full = true;
                break;
            }
            *left += 1;
            spare.push(frame);
        }
        let mut sent = Ok(());
        devices.poll(now, QUOTA, &mut |frame| {
            if sent.is_err() {
                return;
            }
            if !full {
                sent = send(port, frame).map(|taken| full = !taken);
                *left += u64::from(!full);
            }
            if full {
                enqueue(queue, spare, frame);
            }
        });
        sent?;
        next = next.min(devices.next_deadline().unwrap_or(next));
        if full {
            next = next.min(now + FULL);
        }
    }
    Ok(next.max(now + Duration::from_micros(50)))
}

/// Hosts of the ports of one lane.
pub struct LaneHosts<'a>(Vec<(PortIndex, &'a mut Host)>);

/// What routers do at the events of a trial: `(port, what)`.
pub type Acts<'a> = &'a [Vec<(PortIndex, Act)>];

/// Something that a router or the link of its port does.
#[derive(Clone, Debug)]
pub enum Act {
    /// Router `router` of the port advertises routes, or withdraws them.
    Advertise {
        /// Which.
        router: usize,
        /// Advertises, or withdraws?
        advertise: bool,
        /// What.
        routes: Arc<Routes>,
        /// Which of these.
        part: Range<u32>,
        /// How.
        packing: Packing,
    },
    /// Router ends its session.
    Stop(usize),
    /// The link goes down or up.
    Link(bool),
}

impl Act {
    /// Does it, unless it is the link's, which is the port's to switch.
    pub fn run(&self, now: Instant, routers: &mut Routers) {
        match self {
            Act::Advertise { router, advertise, routes, part, packing } => {
                let adj_rib_out = routers.adj_rib_out(*router);
                if *advertise {
                    adj_rib_out.advertise(routes.clone(), part.clone(), *packing);
                } else {
                    adj_rib_out.withdraw(routes.clone(), part.clone(), *packing);
                }
            }
            Act::Stop(router) => routers.stop(now, *router),
            Act::Link(_) => {}
        }
    }
}

/// Hosts of a lane in its packet loop, with the user's wish to stop.
pub struct HostControl<'a, S> {
    /// The hosts.
    pub hosts: LaneHosts<'a>,
    /// What they do at events.
    pub acts: Acts<'a>,
    /// Links of this lane that wait to be switched.
    pub links: Vec<(PortIndex, bool)>,
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

    fn event(&mut self, now: Instant, event: usize, _: &mut SendFrame<'_>) -> Result<bool, PortError> {
        let mut own = false;
        for (port, act) in self.acts.get(event).into_iter().flatten() {
            let Some((_, host)) = self.hosts.0.iter_mut().find(|(at, _)| at == port) else { continue };
            own = true;
            match (act, host.routers_mut()) {
                (Act::Link(up), _) => self.links.push((*port, *up)),
                (act, Some(routers)) => act.run(now, routers),
                (_, None) => {}
            }
        }
        Ok(own)
    }

    fn link(&mut self) -> Option<(PortIndex, bool)> {
        self.links.pop()
    }

    fn stop(&self) -> bool {
        (self.stopped)()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::host_mac;
    use drophammer_emulation::device::Address;

    #[test]
    fn what_a_full_port_refuses_waits_for_room() {
        let mut port = PortConfig::new(host_mac(1, 0), 1500);
        let (address, gateway) = ([198, 18, 1, 2].into(), [198, 18, 1, 1].into());
        port.ipv4 = Some(Address { address, prefix_len: 24, gateway });
        let mut hosts = Hosts::new(&Config { seed: 1, ports: vec![port] });
        let mut poll = |now: u64, room: bool| {
            let mut offered = Vec::new();
            let next = hosts.poll(Instant(now), &mut |_, frame| {
                offered.push(frame.to_vec());
                Ok(room)
            });
            (offered, next.unwrap())
        };
        let (asked, next) = poll(1, false);
        assert_eq!((asked.len(), next), (1, Instant(1) + FULL), "who has the gateway's address?");
        assert_eq!(poll(next.0, false).0, asked);
        assert_eq!(poll(next.0 + 1, true).0, asked);
        assert!(poll(next.0 + 2, true).0.is_empty());
    }
}
