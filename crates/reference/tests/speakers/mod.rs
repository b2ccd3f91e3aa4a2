//! A reference device with an emulated BGP speaker on each port, in virtual time, on links without delay.

use crate::common::{self, host, net4, net6};
use drophammer_emulation::Device;
use drophammer_emulation::bgp::session::{Session, State, TcpAction};
use drophammer_emulation::bgp::{AdjRibIn, AdjRibOut, Closed, NextHops, SessionConfig};
use drophammer_emulation::compose::Link;
use drophammer_emulation::tcp::{CloseReason, ConnState, ConnectionId, TcpConfig, TcpStack, link};
use drophammer_model::Instant;
use drophammer_reference::{BgpConfig, BgpPeer, Config, Router};
use drophammer_wire::bgp::AfiSafi;
use drophammer_wire::bgp::message::{HEADER_LEN, emit_header, kind};
use drophammer_wire::{MacAddr, bgp};
use netgauze_bgp_pkt::path_attribute::{MpReach, MpUnreach, PathAttributeValue};
use netgauze_bgp_pkt::update::BgpUpdateMessage;
use netgauze_bgp_pkt::wire::deserializer::BgpParsingContext;
use netgauze_parse_utils::reader::SliceReader;
use netgauze_parse_utils::traits::ParseFromWithOneInput;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// AS of the device.
pub const DUT: u32 = 65_000;

/// AS of the speaker on a port.
pub fn asn(port: usize) -> u32 {
    65_001 + port as u32
}

/// The content of an UPDATE received at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    pub at: Instant,
    /// `10.0.0.0/8`; an End-of-RIB has no prefix at all.
    pub withdrawn: Vec<String>,
    pub announced: Vec<String>,
    /// All attributes that do not contain routes, as in the message.
    pub attributes: Vec<u8>,
    /// Next hop of MP_REACH_NLRI.
    pub next_hop: Option<IpAddr>,
    pub bytes: usize,
}

fn nets(ipv6: bool, mut bytes: &[u8]) -> Vec<String> {
    let mut all = Vec::new();
    while let Some((&len, rest)) = bytes.split_first() {
        let (own, rest) = rest.split_at(usize::from(len.div_ceil(8)));
        let mut whole = [0; 16];
        whole[..own.len()].copy_from_slice(own);
        let four = [whole[0], whole[1], whole[2], whole[3]];
        let address = if ipv6 { IpAddr::from(whole) } else { IpAddr::from(four) };
        all.push(format!("{address}/{len}"));
        bytes = rest;
    }
    all
}

/// Withdrawn and announced routes and the next hop of MP_REACH_NLRI as netgauze-bgp-pkt reads them: it shares no code with the device
/// or the tester.
fn heard_by_netgauze(body: &[u8]) -> (Vec<String>, Vec<String>, Option<IpAddr>) {
    macro_rules! nets {
        ($routes:expr) => {
            $routes.iter().map(|route| route.network().address().to_string())
        };
    }
    let mut context = BgpParsingContext::new(true, HashMap::new(), HashMap::new(), true, true, true, true);
    let update = BgpUpdateMessage::parse(&mut SliceReader::new(body), &mut context)
        .unwrap_or_else(|e| panic!("netgauze cannot read it: {e}: {body:02x?}"));
    let mut withdrawn: Vec<_> = nets!(update.withdraw_routes()).collect();
    let mut announced: Vec<_> = nets!(update.nlri()).collect();
    let mut next_hop = None;
    for attribute in update.path_attributes() {
        match attribute.value() {
            PathAttributeValue::MpReach(MpReach::Ipv6Unicast { next_hop_global, nlri, .. }) => {
                next_hop = Some((*next_hop_global).into());
                announced.extend(nets!(nlri));
            }
            PathAttributeValue::MpUnreach(MpUnreach::Ipv6Unicast { nlri, .. }) => withdrawn.extend(nets!(nlri)),
            _ => {}
        }
    }
    (withdrawn, announced, next_hop)
}

fn heard(at: Instant, body: &[u8]) -> Heard {
    let count = |at: usize| usize::from(u16::from_be_bytes([body[at], body[at + 1]]));
    let withdrawn = count(0);
    let end = 4 + withdrawn + count(2 + withdrawn);
    let mut told = Heard {
        at,
        withdrawn: nets(false, &body[2..2 + withdrawn]),
        announced: nets(false, &body[end..]),
        attributes: Vec::new(),
        next_hop: None,
        bytes: HEADER_LEN + body.len(),
    };
    let mut rest = &body[4 + withdrawn..end];
    while let [flags, code, ..] = *rest {
        let (head, len) = if flags & 0x10 == 0 {
            (3, usize::from(rest[2]))
        } else {
            (4, usize::from(u16::from_be_bytes([rest[2], rest[3]])))
        };
        let value = &rest[head..head + len];
        match code {
            14 => {
                assert_eq!(value[..4], [0, 2, 1, 16]);
                told.next_hop = Some(<[u8; 16]>::try_from(&value[4..20]).unwrap().into());
                told.announced.extend(nets(true, &value[21..]));
            }
            15 => told.withdrawn.extend(nets(true, &value[3..])),
            _ => told.attributes.extend(&rest[..head + len]),
        }
        rest = &rest[head + len..];
    }
    let ours = (told.withdrawn.clone(), told.announced.clone(), told.next_hop);
    assert_eq!(ours, heard_by_netgauze(body), "{body:02x?}");
    told
}

/// A speaker with one session.
pub struct Speaker {
    pub session: Session,
    mac: MacAddr,
    address: IpAddr,
    stack: TcpStack,
    connection: Option<ConnectionId>,
    /// Data that waits for room.
    out: Vec<u8>,
    pub heard: Vec<Heard>,
    /// Check received messages without keeping them.
    pub forgetful: bool,
    pub adj_rib_out: AdjRibOut,
    pub adj_rib_in: AdjRibIn,
    /// Neither accepts nor opens connections.
    pub quiet: bool,
    /// Validate UPDATEs, and end the session after a malformed one.
    pub strict: bool,
}

impl Speaker {
    fn new(port: usize, ipv6: bool, hold: Duration) -> Speaker {
        let mut config = SessionConfig::new(asn(port), DUT, Ipv4Addr::new(192, 0, 2, 10 + port as u8));
        config.families = vec![if ipv6 { AfiSafi::IPV6_UNICAST } else { AfiSafi::IPV4_UNICAST }];
        config.hold_time = hold;
        let address: IpAddr = if ipv6 { net6(port, 2).into() } else { net4(port, 2).into() };
        let mut stack = TcpStack::new(TcpConfig::new(1500, 3));
        stack.add_host(address);
        Speaker {
            session: Session::new(config),
            mac: MacAddr::local(0x200 + port as u64),
            address,
            stack,
            connection: None,
            out: Vec::new(),
            heard: Vec::new(),
            forgetful: false,
            adj_rib_out: AdjRibOut::new(),
            adj_rib_in: AdjRibIn::new(),
            quiet: false,
            strict: false,
        }
    }

    /// Queues bytes; they go out as soon as the session is established.
    pub fn say(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Bytes that wait for room.
    pub fn waiting(&self) -> usize {
        self.out.len()
    }

    fn work(&mut self, now: Instant, dut: IpAddr, out: &mut dyn FnMut(&[u8])) {
        for _ in 0..20 {
            loop {
                match self.session.poll(now) {
                    TcpAction::None => break,
                    TcpAction::Listen => {}
                    TcpAction::Connect => {
                        self.connection = Some(self.stack.connect(now, self.address, SocketAddr::new(dut, bgp::PORT)));
                    }
                    TcpAction::Close => self.connection.take().into_iter().for_each(|c| self.stack.close(c)),
                    TcpAction::Abort => self.connection.take().into_iter().for_each(|c| self.stack.abort(c)),
                }
            }
            if let Some(c) = self.connection {
                let Speaker {
                    session,
                    stack,
                    heard: all,
                    out,
                    strict,
                    forgetful,
                    adj_rib_out,
                    adj_rib_in,
                    address,
                    ..
                } = self;
                let was = session.state();
                if stack.state(c) == ConnState::Established && session.state() == State::Connect {
                    session.connected(now);
                }
                stack.receive_with(c, &mut |bytes| {
                    session.receive(now, bytes, &mut |body, agreed| {
                        if *strict || *forgetful {
                            adj_rib_in.update(now, body, agreed)?;
                        }
                        if !*forgetful {
                            all.push(heard(now, body));
                        }
                        Ok(())
                    })
                });
                match stack.state(c) {
                    ConnState::Closed(reason) => {
                        let how = if reason == CloseReason::Peer { Closed::ByPeer } else { Closed::Reset };
                        session.closed(now, how);
                        self.connection = None;
                    }
                    ConnState::PeerClosed => {
                        session.closed(now, Closed::ByPeer);
                        stack.close(c);
                        self.connection = None;
                    }
                    _ => {
                        stack.send_with(c, &mut |room| session.write(now, room));
                        if session.state() == State::Established && !out.is_empty() {
                            let sent = stack.send_with(c, &mut |room| {
                                let some = room.len().min(out.len());
                                room[..some].copy_from_slice(&out[..some]);
                                some
                            });
                            out.drain(..sent);
                        }
                        if let Some(agreed) = session.negotiated().cloned().filter(|_| !adj_rib_out.is_empty())
                            && session.state() == State::Established
                        {
                            let next_hops = match *address {
                                IpAddr::V4(own) => NextHops { ipv4: Some(own), ..NextHops::default() },
                                IpAddr::V6(own) => NextHops { ipv6: Some(own), ..NextHops::default() },
                            };
                            stack.send_with(c, &mut |room| adj_rib_out.write(now, &agreed, next_hops, room));
                        }
                    }
                }
                if was == State::Established && session.state() != was {
                    adj_rib_in.session_lost(now);
                }
            }
            self.stack.poll(now, out);
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        [self.session.next_deadline(), self.stack.next_deadline()].into_iter().flatten().min()
    }
}

pub struct World {
    pub now: Instant,
    pub router: Router,
    pub hosts: Vec<Device>,
    pub speakers: Vec<Speaker>,
    ipv6: bool,
    /// Test frames received on each port.
    pub frames: Vec<Vec<(Instant, Vec<u8>)>>,
}

pub fn config(ports: usize, ipv6: bool, bgp: BgpConfig) -> Config {
    let mut config = common::config(ports);
    config.routes.clear();
    let address = |port| if ipv6 { net6(port, 2).into() } else { net4(port, 2).into() };
    let peers =
        (0..ports).map(|port| BgpPeer { port, address: address(port), asn: asn(port), connect: false, client: false });
    config.bgp = Some(BgpConfig { asn: DUT, peers: peers.collect(), ..bgp });
    config
}

impl World {
    /// All sessions are up.
    pub fn new(config: Config) -> World {
        let mut world = World::idle(config);
        world.run_until(Instant(20 * common::MS));
        assert!(world.speakers.iter().all(|s| s.session.state() == State::Established));
        // Only an End-of-RIB was received.
        assert!(world.speakers.iter().all(|s| s.forgetful || s.heard.len() == 1 && s.heard[0].announced.is_empty()));
        world.speakers.iter_mut().for_each(|s| s.heard.clear());
        world
    }

    /// Hosts have resolved the router, and sessions have been started.
    pub fn idle(config: Config) -> World {
        let ports = config.ports.len();
        let bgp = config.bgp.clone().unwrap();
        let ipv6 = bgp.peers[0].address.is_ipv6();
        let mut world = World {
            now: Instant(0),
            router: Router::new(config).unwrap(),
            hosts: (0..ports).map(host).collect(),
            speakers: (0..ports).map(|port| Speaker::new(port, ipv6, bgp.hold_time)).collect(),
            ipv6,
            frames: vec![Vec::new(); ports],
        };
        world.run_until(Instant(common::MS));
        for speaker in &mut world.speakers {
            speaker.session.start(Instant(common::MS));
        }
        world
    }

    fn dut(&self, port: usize) -> IpAddr {
        if self.ipv6 { net6(port, 1).into() } else { net4(port, 1).into() }
    }

    pub fn offer(&mut self, port: usize, frame: &[u8]) {
        self.router.receive(self.now, port, frame);
    }

    /// Processes everything at this instant.
    pub fn settle(&mut self) {
        let now = self.now;
        loop {
            let mut moved = false;
            let mut sent = Vec::new();
            self.router.poll(now, &mut |at, port, frame| sent.push((at, port, frame.to_vec())));
            for (at, port, frame) in sent {
                moved = true;
                let speaker = &mut self.speakers[port];
                if link::packet(&frame, speaker.mac).is_some_and(|p| speaker.stack.receive(now, p)) {
                    assert_eq!(at, now, "control leaves when it is caused");
                    continue;
                }
                let mut answers = Vec::new();
                self.hosts[port].receive(now, &frame, &mut |answer| answers.push(answer.to_vec()));
                answers.iter().for_each(|answer| self.router.receive(now, port, answer));
                self.frames[port].push((at, frame));
            }
            for port in 0..self.hosts.len() {
                let dut = self.dut(port);
                let mut outgoing = Vec::new();
                self.hosts[port].poll(now, common::BUDGET, &mut |frame| outgoing.push(frame.to_vec()));
                let speaker = &mut self.speakers[port];
                if !speaker.quiet {
                    let addresses = Link { source: speaker.mac, destination: MacAddr::local(0x100 + port as u64) };
                    speaker.work(now, dut, &mut |packet| {
                        let mut frame = vec![0; link::frame_len(packet)];
                        link::write_frame(&mut frame, addresses, packet);
                        outgoing.push(frame);
                    });
                }
                moved |= !outgoing.is_empty();
                outgoing.iter().for_each(|frame| self.router.receive(now, port, frame));
            }
            if !moved {
                return;
            }
        }
    }

    /// Runs from event to event, and settles at `end`.
    pub fn run_until(&mut self, end: Instant) {
        loop {
            self.settle();
            let mine = self.speakers.iter().filter(|s| !s.quiet).filter_map(Speaker::next_deadline);
            let all =
                mine.chain(self.router.next_deadline()).chain(self.hosts.iter().filter_map(|h| h.next_deadline()));
            match all.min().filter(|at| *at < end) {
                Some(at) => self.now = at.max(Instant(self.now.0 + 1)),
                None => break,
            }
        }
        self.now = self.now.max(end);
        self.settle();
    }

    /// What was received on a port since the last call.
    pub fn heard(&mut self, port: usize) -> Vec<Heard> {
        std::mem::take(&mut self.speakers[port].heard)
    }
}

/// An UPDATE with these parts.
pub fn update(withdrawn: &[u8], attributes: &[u8], announced: &[u8]) -> Vec<u8> {
    let mut out = vec![0; HEADER_LEN];
    out.extend((withdrawn.len() as u16).to_be_bytes());
    out.extend(withdrawn);
    out.extend((attributes.len() as u16).to_be_bytes());
    out.extend(attributes);
    out.extend(announced);
    let len = out.len();
    emit_header(&mut out, kind::UPDATE, len);
    out
}

/// ORIGIN IGP and a path.
pub fn attributes(path: &[u32]) -> Vec<u8> {
    let mut out = vec![0x40, 1, 1, 0, 0x40, 2, (2 + 4 * path.len()) as u8, 2, path.len() as u8];
    out.extend(path.iter().flat_map(|a| a.to_be_bytes()));
    out
}

/// NEXT_HOP.
pub fn next_hop(address: Ipv4Addr) -> Vec<u8> {
    let mut out = vec![0x40, 3, 4];
    out.extend(address.octets());
    out
}

/// Route number `n` of 10.0.0.0/8, 11.0.0.0/8 and so on in 24s.
pub fn net24(n: u32) -> [u8; 4] {
    let [_, a, b, c] = n.to_be_bytes();
    [24, 10 + a, b, c]
}

/// UPDATEs that announce routes `from..to` through the speaker on `port`, 100 in each.
pub fn announce(port: usize, from: u32, to: u32) -> Vec<u8> {
    let with = [attributes(&[asn(port), 64_999]), next_hop(net4(port, 2))].concat();
    let all: Vec<u32> = (from..to).collect();
    all.chunks(100)
        .flat_map(|some| update(&[], &with, &some.iter().flat_map(|n| net24(*n)).collect::<Vec<u8>>()))
        .collect()
}

/// UPDATEs that withdraw these routes.
pub fn withdraw(from: u32, to: u32) -> Vec<u8> {
    let all: Vec<u32> = (from..to).collect();
    all.chunks(100)
        .flat_map(|some| update(&some.iter().flat_map(|n| net24(*n)).collect::<Vec<u8>>(), &[], &[]))
        .collect()
}
