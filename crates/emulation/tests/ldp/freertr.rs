//! A session of our LSR with freeRtr, recorded by `tests/freertr`. In the replay, our LSR receives freeRtr's messages again,
//! and must send the same messages as before.

use super::common::*;
use drophammer_emulation::ldp::{AdvertisedFecs, FecRange, LabelPattern, LdpCommand, Lsr, LsrConfig};
use drophammer_emulation::protocol::{Command, Input, Match, Output, Protocol, Refused, State};
use drophammer_emulation::tcp::{ConnectionId, TcpStack};
use drophammer_emulation::{Address, Device, DeviceConfig};
use drophammer_model::Instant;
use drophammer_wire::MacAddr;
use drophammer_wire::ldp::{GROUP, Message, PORT, PrefixFec, frame, kind};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

const RECORDING: &str = include_str!("../recorded/ldp-freertr.txt");
const US: usize = 1;

/// Time, whether our LSR sent it, and the bytes: a hello, or a piece of the session.
fn lines() -> impl Iterator<Item = (Instant, bool, Vec<u8>)> {
    RECORDING.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let [at, sender, hex] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        let at = second(1) + Duration::from_secs_f64(at.parse().unwrap());
        (at, sender == "device", hex.as_bytes().chunks(2).map(byte).collect())
    })
}

fn is_hello(bytes: &[u8]) -> bool {
    bytes[10..12] == kind::HELLO.to_be_bytes()
}

/// Sends what freeRtr sent, at the same times.
#[derive(Default)]
struct Parrot {
    hellos: VecDeque<(Instant, Vec<u8>)>,
    session: VecDeque<(Instant, Vec<u8>)>,
    connection: Option<ConnectionId>,
    heard: Vec<u8>,
}

impl Protocol for Parrot {
    fn name(&self) -> &'static str {
        "parrot"
    }

    fn matches(&self) -> &[Match] {
        &[Match::TcpPort(PORT), Match::UdpPort(PORT), Match::Group(IpAddr::V4(GROUP))]
    }

    fn attach(&mut self, tcp: &mut TcpStack) {
        tcp.add_host(LINK[0].into());
        tcp.listen(LINK[0].into(), PORT);
    }

    fn receive(&mut self, _: Instant, input: Input<'_>, out: &mut Output<'_>) {
        match input {
            Input::Accepted { connection, .. } => self.connection = Some(connection),
            Input::Connections(_) => {
                let Some(connection) = self.connection else { return };
                out.tcp.receive_with(connection, &mut |bytes| {
                    self.heard.extend_from_slice(bytes);
                    bytes.len()
                });
            }
            _ => {}
        }
    }

    fn poll(&mut self, now: Instant, _: usize, out: &mut Output<'_>) {
        while self.hellos.front().is_some_and(|(at, _)| *at <= now) {
            let (_, hello) = self.hellos.pop_front().unwrap();
            assert!(out.udp([(LINK[0].into(), PORT), (GROUP.into(), PORT)], 1, &hello));
        }
        while let Some(connection) = self.connection
            && self.session.front().is_some_and(|(at, _)| *at <= now)
        {
            let (_, bytes) = self.session.pop_front().unwrap();
            let sent = out.tcp.send_with(connection, &mut |room| {
                room[..bytes.len()].copy_from_slice(&bytes);
                bytes.len()
            });
            assert_eq!(sent, bytes.len());
        }
        out.send_tcp(now);
    }

    fn next_deadline(&self) -> Option<Instant> {
        let session = self.session.front().filter(|_| self.connection.is_some());
        self.hellos.front().into_iter().chain(session).map(|(at, _)| *at).min()
    }

    fn command(&mut self, _: Instant, _: &Command) -> Result<(), Refused> {
        Err(Refused::unknown("parrot"))
    }

    fn state(&self) -> State {
        State::default()
    }
}

fn device(side: usize) -> DeviceConfig {
    let own = Address { address: LINK[side], prefix_len: 24, gateway: LINK[1 - side] };
    DeviceConfig { ipv4: Some(own), ..DeviceConfig::new("station", MACS[side], 1) }
}

/// All messages except KeepAlives, without their message IDs, because KeepAlives use IDs too.
fn messages(mut bytes: &[u8]) -> Vec<(u16, String)> {
    let mut all = Vec::new();
    while let Some(pdu) = frame(bytes, 4096).unwrap() {
        let parsed = pdu.messages().map(|raw| raw.unwrap());
        all.extend(parsed.map(|raw| (raw.kind, format!("{:?}", raw.parse().unwrap().unwrap()))));
        bytes = &bytes[pdu.pdu_len()..];
    }
    assert!(bytes.is_empty());
    all.retain(|(of, _)| *of != kind::KEEPALIVE);
    all
}

#[test]
fn our_lsr_says_the_same_to_the_recorded_freertr() {
    let mut parrot = Parrot::default();
    let (mut said, mut theirs) = (Vec::new(), Vec::new());
    let mut when = Vec::new();
    for (at, own, bytes) in lines() {
        match (own, is_hello(&bytes)) {
            (true, true) => {}
            (true, false) => {
                when.push((at, said.len()));
                said.extend(bytes);
            }
            (false, true) => parrot.hellos.push_back((at, bytes)),
            (false, false) => {
                theirs.extend_from_slice(&bytes);
                parrot.session.push_back((at, bytes));
            }
        }
    }
    // When our LSR first sent a message of this type.
    let first = |of: u16| {
        let place = (0..)
            .zip(said.windows(12))
            .find(|(_, window)| window[..4] == [0, 1, window[2], window[3]] && window[10..] == of.to_be_bytes());
        let place: usize = place.unwrap().0;
        when.iter().rev().find(|(_, start)| *start <= place).unwrap().0
    };
    let config = LsrConfig {
        advertised: vec![AdvertisedFecs {
            fecs: FecRange::new("10.0.0.0/32".parse().unwrap(), 20),
            labels: LabelPattern::Counting { first: 1000, step: 1 },
        }],
        expected: vec![FecRange::new("172.16.0.0/24".parse().unwrap(), 4)],
        ..LsrConfig::new(LINK[US], LINK[US])
    };
    let [mut there, mut here] = [0, US].map(|side| Device::new(device(side)));
    there.add_protocol(Box::new(parrot));
    here.add_protocol(Box::new(Lsr::new(&device(US), config).unwrap()));
    there.fix_gateway(MacAddr::local(2));
    here.fix_gateway(MacAddr::local(1));
    let mut world = World::of([there, here]);
    world.command(US, Command::Start);
    world.ldp(US, LdpCommand::Advertise { range: 0, part: 0..20 });
    world.run_to(first(kind::LABEL_WITHDRAW));
    world.ldp(US, LdpCommand::Withdraw { range: 0, part: 5..15 });
    world.run_to(first(kind::LABEL_REQUEST));
    assert_eq!(world.peer(US).bindings().verification(0).unwrap().present, 3, "one was withdrawn");
    let fec = PrefixFec::new("172.16.2.0/24".parse().unwrap());
    world.devices[US].protocol_mut::<Lsr>().unwrap().say(&[Message::LabelRequest { fecs: fec.fecs() }]);
    world.run_to(first(kind::NOTIFICATION));
    // freeRtr advertises a real label for its connected prefix, not implicit null.
    let connected = world.lsr(US).label_for("198.18.1.0/24".parse().unwrap());
    assert!(connected.is_some_and(|label| label.value() >= 16), "{connected:?}");
    assert_eq!(
        ["releases_received", "withdraws_received", "releases_sent", "malformed", "sessions_rejected"]
            .map(|name| world.counter(US, name)),
        [10, 1, 1, 0, 0]
    );
    world.command(US, Command::Stop);
    world.run_for(Duration::from_secs(1));
    let heard = &world.devices[0].protocol::<Parrot>().unwrap().heard;
    assert_eq!(messages(heard), messages(&said));
    // Every withdrawn label is released, in both directions (RFC 5036 section 3.5.10).
    let count = |bytes: &[u8], of: u16| messages(bytes).iter().filter(|(kind, _)| *kind == of).count();
    assert_eq!(
        [kind::LABEL_WITHDRAW, kind::LABEL_RELEASE].map(|of| [count(&said, of), count(&theirs, of)]),
        [[10, 1], [1, 10]]
    );
}
