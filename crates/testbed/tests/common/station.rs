//! An emulated host with TCP on a real interface, and a kernel on the other end of a veth pair.

use drophammer_emulation::compose::Link;
use drophammer_emulation::device::{Address, Device, DeviceConfig};
use drophammer_emulation::tcp::{ConnState, TcpConfig, TcpStack, link};
use drophammer_lab::{Lab, LabOptions, Netns};
use drophammer_model::quantity::Instant;
use drophammer_model::trial::Family;
use drophammer_port::af_packet::AfPacket;
use drophammer_port::{BURST, Clock, Port, SystemClock, wait};
use drophammer_wire::MacAddr;
use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

/// Addresses of the kernel and of the emulated host, per family.
pub fn addresses(v6: bool) -> [IpAddr; 2] {
    let text = if v6 { ["2001:2:0:1::1", "2001:2:0:1::2"] } else { ["198.18.1.1", "198.18.1.2"] };
    text.map(|t| t.parse().expect("an address"))
}

/// Makes the interface `t0` here, and `d0` with the kernel's addresses in a separate namespace. Leaves segmentation
/// offload on.
pub fn links() -> Result<(Lab, Netns), String> {
    let lab = Lab::enter(&LabOptions::default()).map_err(|e| e.to_string())?;
    let peer = lab.namespace("peer").map_err(|e| e.to_string())?;
    let make = [
        format!("link add t0 type veth peer name d0 netns {}", peer.path()),
        "link set t0 mtu 65535 addrgenmode none up".to_owned(),
    ];
    let theirs = ["link set d0 up", "addr add 198.18.1.1/24 dev d0", "addr add 2001:2:0:1::1/64 dev d0 nodad"];
    // The interface here accepts segments of any length that the kernel makes, but sends only segments that its peer
    // accepts.
    lab.tester().and_then(|t| t.ip(&make)).map_err(|e| e.to_string())?;
    peer.ip(&theirs.map(str::to_owned)).map_err(|e| e.to_string())?;
    Ok((lab, peer))
}

/// Runs `ethtool -K` with these arguments on an interface of this namespace.
#[allow(dead_code)]
pub fn ethtool(arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("ethtool").arg("-K").args(arguments).output().map_err(|e| e.to_string())?;
    output.status.success().then_some(()).ok_or_else(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

/// A port with the hosts behind it.
pub struct Station {
    pub tcp: TcpStack,
    pub host: Device,
    clock: SystemClock,
    port: AfPacket,
    queue: Vec<Vec<u8>>,
    /// Number of frames that the interface refused.
    pub refused: u32,
    /// Length of the longest frame received, in bytes.
    pub longest: usize,
}

impl Station {
    pub fn open(config: TcpConfig) -> Result<Station, String> {
        let clock = SystemClock::start();
        let port = AfPacket::open("t0", clock).map_err(|e| e.to_string())?;
        let ([IpAddr::V4(gateway4), IpAddr::V4(own4)], [IpAddr::V6(gateway6), IpAddr::V6(own6)]) =
            (addresses(false), addresses(true))
        else {
            return Err("families".into());
        };
        let host = Device::new(DeviceConfig {
            ipv4: Some(Address { address: own4, prefix_len: 24, gateway: gateway4 }),
            ipv6: Some(Address { address: own6, prefix_len: 64, gateway: gateway6 }),
            ..DeviceConfig::new("station", MacAddr::local(77), 1)
        });
        let mut tcp = TcpStack::new(config);
        tcp.add_host(own4.into());
        tcp.add_host(own6.into());
        let mut station = Station { tcp, host, clock, port, queue: Vec::new(), refused: 0, longest: 0 };
        station.run(Duration::from_secs(5), |s| s.host.is_ready())?;
        Ok(station)
    }

    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Receives a burst; returns true if any frame arrived.
    fn receive(&mut self) -> Result<bool, String> {
        let received = self.port.receive().map_err(|e| e.to_string())?;
        let mac = self.host.mac();
        for arrival in received.iter() {
            self.longest = self.longest.max(arrival.frame.len());
            let taken = link::packet(arrival.frame, mac).is_some_and(|p| self.tcp.receive(arrival.at, p));
            if !taken {
                self.host.receive(arrival.at, arrival.frame, &mut |f| self.queue.push(f.to_vec()));
            }
        }
        Ok(!received.is_empty())
    }

    /// Sends everything that is due.
    fn send(&mut self) -> Result<(), String> {
        let now = self.clock.now();
        self.host.poll(now, 64 << 10, &mut |f| self.queue.push(f.to_vec()));
        let gateways = [Family::Ipv4, Family::Ipv6].map(|f| self.host.gateway_mac(f).unwrap_or(MacAddr::BROADCAST));
        let links = gateways.map(|destination| Link { source: self.host.mac(), destination });
        let (mut filled, mut lost, refused, port) = (0, None, &mut self.refused, &mut self.port);
        let mut flush = |port: &mut AfPacket, filled: &mut usize| {
            match port.send(*filled) {
                Ok(sent) => *refused += sent.refused,
                Err(e) => lost = Some(e.to_string()),
            }
            *filled = 0;
        };
        for frame in self.queue.drain(..) {
            port.slots().put(filled, &frame);
            filled += 1;
            if filled == BURST {
                flush(port, &mut filled);
            }
        }
        self.tcp.poll(now, &mut |packet| {
            let (slot, _) = port.slots().slot(filled, u32::MAX, link::frame_len(packet));
            link::write_frame(slot, links[usize::from(packet[0] >> 4 == 6)], packet);
            filled += 1;
            if filled == BURST {
                flush(port, &mut filled);
            }
        });
        flush(port, &mut filled);
        lost.map_or(Ok(()), Err)
    }

    /// Runs until `done`, but at most for `limit`. `done` is called after every burst and handles the connections.
    pub fn run(&mut self, limit: Duration, mut done: impl FnMut(&mut Station) -> bool) -> Result<(), String> {
        let end = self.clock.now() + limit;
        loop {
            let came = self.receive()?;
            let over = done(self);
            self.send()?;
            let now = self.clock.now();
            if over {
                return Ok(());
            }
            if now > end {
                return Err(format!("not within {limit:?}"));
            }
            if !came {
                let next = [self.host.next_deadline(), self.tcp.next_deadline()].into_iter().flatten().min();
                let sleep = next.map_or(Duration::from_millis(10), |at| at.since(now)).min(Duration::from_millis(10));
                let readable: Vec<_> = self.port.readable().into_iter().collect();
                wait::until_readable(&readable, sleep).map_err(|e| e.to_string())?;
            }
        }
    }

    /// Connects to `port` of the kernel.
    pub fn connect(&mut self, v6: bool, port: u16) -> Result<drophammer_emulation::tcp::ConnectionId, String> {
        let [kernel, own] = addresses(v6);
        let id = self.tcp.connect(self.now(), own, (kernel, port).into());
        self.run(Duration::from_secs(5), |s| s.tcp.state(id) != ConnState::Connecting)?;
        match self.tcp.state(id) {
            ConnState::Established => Ok(id),
            other => Err(format!("{other:?}")),
        }
    }
}
