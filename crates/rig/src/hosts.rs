//! The emulated hosts behind the tester's ports, driven by the packet loop.

use crate::act::{Act, Acts, protocol_of};
use crate::config::{Config, PortConfig};
use crate::metrics::{SessionMetrics, SessionWatch};
use crate::other::{Extra, Observation};
use drophammer_emulation::banner::Banner;
use drophammer_emulation::bgp::Routers;
use drophammer_emulation::device::{Device, DeviceId, Devices, Tags};
use drophammer_emulation::ping::Ping;
use drophammer_emulation::protocol::{Command, Protocol, ProtocolConfig, Refused, State};
use drophammer_model::beside::OtherTraffic;
use drophammer_model::counters::OtherFrames;
use drophammer_model::quantity::Instant;
use drophammer_model::trial::{Family, PortIndex};
use drophammer_port::{Arrival, PortError};
use drophammer_traffic::{Control, Layout, Neighbour, SendFrame, TestTraffic, VlanNeighbour};
use drophammer_wire::MacAddr;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The emulated devices on one port, and the frames that they want to send.
struct Host {
    devices: Devices,
    /// The devices' IDs, in the order of the configuration; at least one.
    ids: Vec<DeviceId>,
    queue: VecDeque<Vec<u8>>,
    /// Frames that were sent, and frames that were received for the devices.
    sent: OtherFrames,
    received: OtherFrames,
    spare: Vec<Vec<u8>>,
    /// MAC address of the DUT if it is configured, so that no device has to resolve it.
    fixed: Option<MacAddr>,
    passed: Arc<Passed>,
    /// Counts of frames other than test frames, during an observation.
    other: Option<Box<Observation>>,
    /// The first command at an event that a protocol refused.
    refused: Option<Refused>,
    /// When the devices had to be polled next after the last poll, and by how much the latest poll was late.
    due: Option<Instant>,
    late: Duration,
}

/// Index of a BGP session among all sessions of a rig.
pub type SessionIndex = usize;

/// Location of the router of a BGP session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RouterPlace {
    /// The router's port.
    pub port: PortIndex,
    /// Index of the router's device on the port.
    pub device: usize,
    /// Index of the router within the device.
    pub router: usize,
}

/// A protocol of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtocolPlace {
    /// Port of the device.
    pub port: PortIndex,
    /// Index of the device on the port.
    pub device: usize,
    /// Name of the protocol ([`Protocol::name`]).
    pub protocol: &'static str,
}

/// A device that has not resolved the MAC address of the DUT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unresolved {
    /// The device's port.
    pub port: PortIndex,
    /// The device's tags.
    pub tags: Tags,
}

/// The emulated devices of all ports.
pub struct Hosts {
    hosts: Vec<Host>,
    /// Location of each session.
    sessions: Vec<RouterPlace>,
    watch: SessionWatch,
}

/// Maximum number of frames that wait for one host. It limits the tester's memory in a flood of requests.
const QUEUE: usize = 1024;
/// Bytes of UPDATE messages that a router packs at a time. This takes about 50 µs, which is the longest delay of test frames.
const QUOTA: usize = 64 << 10;
/// How long a port with a full queue is not polled. In this time, about half of the 256 frames in a virtual link's queue are sent.
pub(crate) const FULL: Duration = Duration::from_micros(100);
/// How often a lane checks for frames that other lanes pass to its devices.
const PASSED: Duration = Duration::from_micros(100);
/// The longest time between two polls of the hosts.
const IDLE: Duration = Duration::from_millis(500);

impl Hosts {
    /// Creates the devices of `config`.
    ///
    /// # Panics
    /// If [`Config::check`] refuses `config`.
    pub fn new(config: &Config) -> Hosts {
        let mut sessions = Vec::new();
        let host = |(index, port): (usize, &PortConfig)| {
            let (devices, ids) = config.devices(index).unwrap_or_else(|e| panic!("{e}"));
            for (device, config) in port.devices.iter().enumerate() {
                let routers = 0..config.bgp().len();
                sessions.extend(routers.map(|router| RouterPlace { port: index, device, router }));
            }
            let (queue, spare, passed) = (VecDeque::new(), Vec::new(), Arc::default());
            let (sent, received) = Default::default();
            let (fixed, other, refused, due, late) = (port.dut, None, None, None, Duration::ZERO);
            Host { devices, ids, queue, sent, received, spare, fixed, passed, other, refused, due, late }
        };
        let hosts = config.ports.iter().enumerate().map(host).collect();
        let watch = SessionWatch::new(sessions.len());
        Hosts { hosts, sessions, watch }
    }

    /// Number of BGP sessions in the configuration. They are numbered in the order of the ports, of the devices of a port,
    /// and of the routers of a device.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Returns the location of the router of a session.
    pub fn place(&self, session: SessionIndex) -> RouterPlace {
        self.sessions[session]
    }

    /// Returns a view of the sessions for other threads, for use while this thread serves the hosts.
    pub fn watch(&self) -> SessionWatch {
        self.watch.clone()
    }

    /// Returns state and counters of a session.
    pub fn session_metrics(&self, session: SessionIndex) -> SessionMetrics {
        let place = self.sessions[session];
        self.hosts.get(place.port).map_or_else(SessionMetrics::default, |host| host.session_metrics(place))
    }

    /// Returns the routers that the session belongs to, and its index among them.
    pub fn session(&self, session: SessionIndex) -> Option<(&Routers, usize)> {
        let RouterPlace { port, device, router } = self.sessions[session];
        self.hosts.get(port)?.routers(device).map(|routers| (routers, router))
    }

    /// Like [`Hosts::session`], but mutable.
    pub fn session_mut(&mut self, session: SessionIndex) -> Option<(&mut Routers, usize)> {
        let RouterPlace { port, device, router } = self.sessions[session];
        self.hosts.get_mut(port)?.routers_mut(device).map(|routers| (routers, router))
    }

    /// Iterates over all sessions: true for each session that is up.
    pub(crate) fn up(&self) -> impl Iterator<Item = bool> {
        let up = |session| self.session(session).is_some_and(|(routers, router)| routers.established(router));
        (0..self.sessions()).map(up)
    }

    /// Performs `act` at `port`. An [`Act::Link`] is ignored, because the port switches its own link.
    ///
    /// # Errors
    /// The protocol refuses the command.
    pub fn run(&mut self, now: Instant, port: PortIndex, act: &Act) -> Result<(), Refused> {
        self.hosts.get_mut(port).map_or(Ok(()), |host| host.run(now, act))
    }

    /// Like [`Hosts::run`], but stores a refusal for [`Hosts::take_refused`].
    pub(crate) fn run_at_event(&mut self, now: Instant, port: PortIndex, act: &Act) {
        if let Some(host) = self.hosts.get_mut(port)
            && let Err(refused) = host.run(now, act)
        {
            host.refused.get_or_insert(refused);
        }
    }

    /// Gives a command to one protocol.
    ///
    /// # Errors
    /// If there is no such device or protocol, or the protocol refuses the command.
    pub(crate) fn command(&mut self, now: Instant, place: ProtocolPlace, command: &Command) -> Result<(), Refused> {
        let ProtocolPlace { port, device, protocol } = place;
        let missing = || Refused::new(protocol, format!("port {port} has no device {device}"));
        let host = self.hosts.get_mut(port).ok_or_else(missing)?;
        let id = *host.ids.get(device).ok_or_else(missing)?;
        host.devices.command(now, id, protocol, command)
    }

    /// See [`crate::Rig::set_protocol`].
    pub(crate) fn set_protocol(
        &mut self,
        port: PortIndex,
        device: usize,
        config: &ProtocolConfig,
    ) -> Result<ProtocolPlace, Refused> {
        let missing = || Refused::new("rig", format!("port {port} has no device {device}"));
        let host = self.hosts.get_mut(port).ok_or_else(missing)?;
        let id = *host.ids.get(device).ok_or_else(missing)?;
        let protocol = config.create(host.devices.get(id).config())?;
        let place = ProtocolPlace { port, device, protocol: protocol.name() };
        host.devices.add_protocol(id, protocol);
        Ok(place)
    }

    /// Returns a device, for what its protocols have learned; `None` if there is none.
    pub fn device(&self, port: PortIndex, device: usize) -> Option<&Device> {
        let host = self.hosts.get(port)?;
        Some(host.devices.get(*host.ids.get(device)?))
    }

    /// Returns the state of a protocol; `None` if there is no such device or protocol.
    pub fn state(&self, place: ProtocolPlace) -> Option<State> {
        self.protocol(place).map(Protocol::state)
    }

    pub(crate) fn protocol(&self, place: ProtocolPlace) -> Option<&dyn Protocol> {
        let host = self.hosts.get(place.port)?;
        let device = host.devices.get(*host.ids.get(place.device)?);
        device.protocols().find(|protocol| protocol.name() == place.protocol)
    }

    /// Returns the first command at an event so far that a protocol refused.
    pub(crate) fn take_refused(&mut self) -> Option<Refused> {
        self.hosts.iter_mut().filter_map(|host| host.refused.take()).next()
    }

    /// Sets the MAC address of the DUT on `port`, so that no device has to resolve it.
    pub fn fix(&mut self, port: PortIndex, mac: MacAddr) {
        let Host { devices, ids, fixed, .. } = &mut self.hosts[port];
        *fixed = Some(mac);
        ids.iter().for_each(|id| devices.fix_gateway(*id, mac));
    }

    /// Returns the neighbour of each port. If several devices have the same tags, the first one with a resolved gateway counts.
    pub fn neighbours(&self) -> Vec<Neighbour> {
        self.hosts.iter().map(Host::neighbour).collect()
    }

    /// Returns the first device that has not resolved the DUT's address.
    pub fn unresolved(&self) -> Option<Unresolved> {
        self.hosts.iter().enumerate().find_map(|(port, host)| {
            let waits = |(_, device): &(DeviceId, &Device)| !device.is_ready();
            host.devices.iter().find(waits).map(|(_, device)| Unresolved { port, tags: device.config().tags })
        })
    }

    /// From `now` on, counts received frames other than test frames of `test`, and sends `extra`, whose marks contain `key`.
    pub fn observe(&mut self, now: Instant, test: &TestTraffic, key: u64, extra: Vec<Extra>) {
        let observations = Observation::of_ports(self.hosts.len(), now, test, key, extra);
        for (host, observation) in self.hosts.iter_mut().zip(observations) {
            host.other = Some(Box::new(observation));
        }
    }

    /// Ends [`Hosts::observe`] and returns its counts until `now`.
    pub fn observed(&mut self, now: Instant) -> OtherTraffic {
        let observations = self.hosts.iter_mut().filter_map(|host| host.other.take().map(|other| *other));
        Observation::conclude(observations.collect(), now)
    }

    /// Passes a received frame to the host on `port`.
    pub fn receive(&mut self, port: PortIndex, arrival: Arrival<'_>) {
        self.hosts[port].receive(arrival);
    }

    /// Does all work that is due and sends waiting frames. Returns when it must be called again.
    ///
    /// # Errors
    /// Errors of the port.
    pub fn poll(&mut self, now: Instant, send: &mut SendFrame<'_>) -> Result<Instant, PortError> {
        let Hosts { hosts, sessions, watch } = self;
        let next = poll(hosts.iter_mut().enumerate(), now, send)?;
        watch.answer(sessions, |place| Some(hosts[place.port].session_metrics(place)));
        Ok(next)
    }

    /// Takes back a frame that [`Hosts::poll`] sent and the port refused. The next poll sends it first. Pass several frames in reverse
    /// order: the last one becomes the first.
    pub fn refused(&mut self, port: PortIndex, frame: &[u8]) {
        let Host { queue, sent, spare, .. } = &mut self.hosts[port];
        *sent = sent.since(OtherFrames::of(frame));
        // Regardless of the limit: there was room for it before.
        let mut copy = spare.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(frame);
        queue.push_front(copy);
    }

    /// Returns by how much the latest poll of the devices on `port` came after their deadline: as long, the rig sent nothing from this port.
    pub fn late(&self, port: PortIndex) -> Duration {
        self.hosts[port].late
    }

    /// Forgets late polls.
    pub fn forget_late(&mut self) {
        self.hosts.iter_mut().for_each(|host| host.late = Duration::ZERO);
    }

    /// Returns the number of frames that the host and the routers on `port` have sent.
    pub fn sent(&self, port: PortIndex) -> OtherFrames {
        self.hosts[port].sent
    }

    /// Returns the pings of the first device on `port`.
    pub fn ping(&self, port: PortIndex) -> Option<&Ping> {
        let host = self.hosts.get(port)?;
        host.devices.get(host.ids[0]).protocol()
    }

    /// Returns the banner requests of the first device on `port`.
    pub fn banner(&self, port: PortIndex) -> Option<&Banner> {
        let host = self.hosts.get(port)?;
        host.devices.get(host.ids[0]).protocol()
    }

    /// Forgets the results of banner requests. The next poll gives up open requests.
    pub fn forget_banners(&mut self, port: PortIndex) {
        let Some(Host { devices, ids, .. }) = self.hosts.get_mut(port) else { return };
        devices.protocol_mut::<Banner>(ids[0]).into_iter().for_each(Banner::forget);
    }

    /// Forgets the results of the pings of the first device on each port, and the requests that it answered.
    pub fn forget_pings(&mut self) {
        for Host { devices, ids, .. } in &mut self.hosts {
            devices.protocol_mut::<Ping>(ids[0]).into_iter().for_each(Ping::forget);
        }
    }

    /// Returns the number of frames received on `port`, except test frames of the current traffic.
    pub fn received(&self, port: PortIndex) -> OtherFrames {
        self.hosts[port].received
    }

    /// Splits the hosts among the lanes of `layout`, which has one port per host. The lane of a port's first queue gets
    /// the port's hosts; the lanes of its other queues pass their frames to that lane.
    pub fn by_lane(&mut self, layout: &Layout) -> Vec<LaneHosts<'_>> {
        let Hosts { hosts, sessions, watch } = self;
        let lane = |_| LaneHosts { own: Vec::new(), others: Vec::new(), shares: false, sessions, watch };
        let mut lanes: Vec<LaneHosts<'_>> = (0..layout.lanes()).map(lane).collect();
        for (port, host) in hosts.iter_mut().enumerate() {
            let home = layout.lane_of(port);
            for lane in layout.queues_of(port).map(|queue| layout.lane_of_queue(queue)) {
                if lane != home && lanes[lane].others.iter().all(|(other, _)| *other != port) {
                    lanes[lane].others.push((port, host.passed.clone()));
                }
            }
            lanes[home].shares |= layout.is_split(port);
            lanes[home].own.push((port, host));
        }
        lanes
    }

    /// Delivers frames to the devices that one lane has passed to another, and that the other lane has not yet taken.
    pub(crate) fn take_passed(&mut self) {
        self.hosts.iter_mut().for_each(Host::take_passed);
    }
}

impl Host {
    fn receive(&mut self, arrival: Arrival<'_>) {
        let Host { devices, queue, received, spare, other, .. } = self;
        *received = received.plus(OtherFrames::of(arrival.frame));
        if let Some(other) = other {
            other.take(arrival);
        }
        devices.receive(arrival.at, arrival.frame, &mut |frame| enqueue(queue, spare, frame));
    }

    fn take_passed(&mut self) {
        for (at, frame) in self.passed.take() {
            self.receive(Arrival { frame: &frame, at });
        }
    }

    fn routers(&self, device: usize) -> Option<&Routers> {
        self.devices.get(*self.ids.get(device)?).protocol()
    }

    fn routers_mut(&mut self, device: usize) -> Option<&mut Routers> {
        self.devices.protocol_mut(*self.ids.get(device)?)
    }

    fn session_metrics(&self, place: RouterPlace) -> SessionMetrics {
        self.routers(place.device)
            .map_or_else(SessionMetrics::default, |routers| SessionMetrics::of(routers, place.router))
    }

    fn run(&mut self, now: Instant, act: &Act) -> Result<(), Refused> {
        let Act::Device { device, command } = act else { return Ok(()) };
        let missing =
            || Refused::new("device", format!("the port has {} devices, and no number {device}", self.ids.len()));
        let id = *self.ids.get(*device).ok_or_else(missing)?;
        match protocol_of(command) {
            Some(protocol) => self.devices.command(now, id, protocol, command),
            None => {
                let sessions = |protocol: &dyn Protocol| (protocol.state().sessions > 0).then_some(protocol.name());
                let names: Vec<&str> = self.devices.get(id).protocols().filter_map(sessions).collect();
                names.into_iter().try_for_each(|name| self.devices.command(now, id, name, command))
            }
        }
    }

    fn neighbour(&self) -> Neighbour {
        let Host { devices, ids, fixed, .. } = self;
        let mut neighbour = Neighbour { mac: devices.get(ids[0]).mac(), ..Neighbour::default() };
        let mut numbers: HashMap<Vec<u16>, usize> = HashMap::new();
        let port_mac = neighbour.mac;
        for (_, device) in devices.iter() {
            let gateway = |family| fixed.or_else(|| device.gateway_mac(family));
            let (ipv4, ipv6) = (gateway(Family::Ipv4), gateway(Family::Ipv6));
            let vids: Vec<u16> = device.config().tags.as_slice().iter().map(|tag| tag.vid).collect();
            let (known4, known6) = if vids.is_empty() {
                (&mut neighbour.device_ipv4, &mut neighbour.device_ipv6)
            } else {
                let vlans = &mut neighbour.vlans;
                let number = *numbers.entry(vids).or_insert_with_key(|vids| {
                    vlans.push(VlanNeighbour { vids: vids.clone(), mac: device.mac(), ..VlanNeighbour::default() });
                    vlans.len() - 1
                });
                let vlan = &mut vlans[number];
                // Test frames need a device with the MAC address of the port.
                if device.mac() == port_mac {
                    vlan.mac = port_mac;
                }
                (&mut vlan.device_ipv4, &mut vlan.device_ipv6)
            };
            *known4 = known4.or(ipv4);
            *known6 = known6.or(ipv6);
        }
        neighbour
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
    for (port, Host { devices, queue, sent: left, spare, other, due, late, .. }) in hosts {
        *late = due.map_or(*late, |due| now.since(due).max(*late));
        // If a frame does not fit, it waits, and so do all later frames. They are not part of a measured load, and a
        // lost segment delays TCP by a second.
        let mut full = false;
        while let Some(frame) = queue.pop_front() {
            if !send(port, &frame)? {
                queue.push_front(frame);
                full = true;
                break;
            }
            *left = left.plus(OtherFrames::of(&frame));
            spare.push(frame);
        }
        if let Some(other) = other {
            full |= !full && !other.send(now, &mut |frame| send(port, frame))?;
            next = next.min(other.next().unwrap_or(next));
        }
        let mut sent = Ok(());
        devices.poll(now, QUOTA, &mut |frame| {
            if sent.is_err() {
                return;
            }
            if !full {
                sent = send(port, frame).map(|taken| full = !taken);
            }
            if full {
                enqueue(queue, spare, frame);
            } else if sent.is_ok() {
                *left = left.plus(OtherFrames::of(frame));
            }
        });
        sent?;
        // Instant 0 stands for now.
        *due = devices.next_deadline().map(|due| due.max(now));
        next = next.min(due.unwrap_or(next));
        if full {
            next = next.min(now + FULL);
        }
    }
    Ok(next.max(now + Duration::from_micros(50)))
}

/// Maximum number of waiting frames. It limits the tester's memory in a flood of requests.
const MOST_PASSED: usize = 1024;

/// Frames for a port's devices that arrived at a queue of a lane other than the one that serves the devices.
#[derive(Default)]
struct Passed {
    any: AtomicBool,
    frames: Mutex<Vec<(Instant, Vec<u8>)>>,
}

impl Passed {
    /// Stores a frame for the other lane, unless too many frames are waiting.
    fn pass(&self, arrival: Arrival<'_>) {
        let mut frames = self.frames.lock().unwrap_or_else(PoisonError::into_inner);
        if frames.len() < MOST_PASSED {
            frames.push((arrival.at, arrival.frame.to_vec()));
        }
        self.any.store(true, Ordering::Release);
    }

    /// Returns the frames that were passed since the last call.
    fn take(&self) -> Vec<(Instant, Vec<u8>)> {
        if !self.any.swap(false, Ordering::Acquire) {
            return Vec::new();
        }
        std::mem::take(&mut *self.frames.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Hosts on the ports of one lane.
pub struct LaneHosts<'a> {
    own: Vec<(PortIndex, &'a mut Host)>,
    /// Ports whose hosts belong to another lane.
    others: Vec<(PortIndex, Arc<Passed>)>,
    /// True if other lanes may pass frames to `own`.
    shares: bool,
    /// Sessions of all lanes.
    sessions: &'a [RouterPlace],
    watch: &'a SessionWatch,
}

/// The hosts of a lane in its packet loop, and a check for the user's request to stop.
pub struct HostControl<'a, S> {
    /// The hosts.
    pub hosts: LaneHosts<'a>,
    /// The hosts' actions at events.
    pub acts: Acts<'a>,
    /// Links of this lane that are yet to be switched.
    pub links: Vec<(PortIndex, bool)>,
    /// Returns true when the user requests a stop.
    pub stopped: S,
}

impl<S: Fn() -> bool> Control for HostControl<'_, S> {
    fn receive(&mut self, port: PortIndex, arrival: Arrival<'_>) -> Result<(), PortError> {
        if let Some((_, host)) = self.hosts.own.iter_mut().find(|(at, _)| *at == port) {
            host.receive(arrival);
        } else if let Some((_, passed)) = self.hosts.others.iter().find(|(at, _)| *at == port) {
            passed.pass(arrival);
        }
        Ok(())
    }

    fn poll(&mut self, now: Instant, send: &mut SendFrame<'_>) -> Result<Instant, PortError> {
        if self.hosts.shares {
            self.hosts.own.iter_mut().for_each(|(_, host)| host.take_passed());
        }
        let next = poll(self.hosts.own.iter_mut().map(|(port, host)| (*port, &mut **host)), now, send)?;
        let LaneHosts { own, sessions, watch, .. } = &self.hosts;
        watch.answer(sessions, |place| {
            let (_, host) = own.iter().find(|(port, _)| *port == place.port)?;
            Some(host.session_metrics(place))
        });
        Ok(if self.hosts.shares { next.min(now + PASSED) } else { next })
    }

    fn event(&mut self, now: Instant, event: usize, _: &mut SendFrame<'_>) -> Result<bool, PortError> {
        let mut own = false;
        for (port, act) in self.acts.get(event).into_iter().flatten() {
            let Some((_, host)) = self.hosts.own.iter_mut().find(|(at, _)| at == port) else { continue };
            own = true;
            match act {
                Act::Link(up) => self.links.push((*port, *up)),
                act => {
                    if let Err(refused) = host.run(now, act) {
                        host.refused.get_or_insert(refused);
                    }
                }
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
mod tests;
