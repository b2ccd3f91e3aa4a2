//! Tests of a device that requests banners from a TCP stack that answers.

use super::*;
use crate::device::{Address, Device};
use crate::tcp::{ConnState, ListenerId, TcpConfig, TcpStack};
use drophammer_wire::MacAddr;
use drophammer_wire::ethernet;
use std::time::Duration;

const OWN: [u8; 4] = [198, 18, 0, 2];
const GATEWAY: [u8; 4] = [198, 18, 0, 1];

/// A device whose gateway is a server that sends `text` on each connection.
struct Bed {
    device: Device,
    server: TcpStack,
    listener: Option<ListenerId>,
    text: &'static [u8],
}

impl Bed {
    fn new(text: &'static [u8], listens: bool) -> Bed {
        let ipv4 = Some(Address { address: OWN.into(), prefix_len: 24, gateway: GATEWAY.into() });
        let mut device = Device::new(DeviceConfig { ipv4, ..DeviceConfig::new("d", MacAddr::local(1), 7) });
        device.fix_gateway(MacAddr::local(2));
        let mut server = TcpStack::new(TcpConfig { verify_checksums: false, ..TcpConfig::new(1500, 9) });
        server.add_host(GATEWAY.into());
        let listener = listens.then(|| server.listen(GATEWAY.into(), SSH_PORT));
        Bed { device, server, listener, text }
    }

    fn ask(&mut self, now: Instant) {
        self.device.command(now, NAME, &Command::Banner(AskBanner(Family::Ipv4))).unwrap();
    }

    /// Exchanges all packets at `now`; the server processes received packets `late` after they arrive.
    fn exchange(&mut self, now: Instant, late: Duration) {
        for _ in 0..16 {
            let mut out = Vec::new();
            self.device.poll(now, 1 << 16, &mut |frame| out.push(frame[ethernet::LEN..].to_vec()));
            out.iter().for_each(|packet| {
                self.server.receive(now + late, packet);
            });
            while let Some(connection) = self.listener.and_then(|listener| self.server.accept(listener)) {
                let text = self.text;
                self.server.send_with(connection, &mut |room| {
                    room[..text.len()].copy_from_slice(text);
                    text.len()
                });
            }
            for id in self.server.ready() {
                if matches!(self.server.state(id), ConnState::Closed(_)) {
                    self.server.remove(id);
                }
            }
            let mut back = Vec::new();
            self.server.poll(now + late, &mut |packet| back.push(packet.to_vec()));
            if out.is_empty() && back.is_empty() {
                return;
            }
            for packet in back {
                let mut frame = vec![0; ethernet::LEN];
                frame[..6].copy_from_slice(&MacAddr::local(1).0);
                frame[6..12].copy_from_slice(&MacAddr::local(2).0);
                frame[12..14].copy_from_slice(&[8, 0]);
                frame.extend_from_slice(&packet);
                self.device.receive(now + late, &frame, &mut |_| {});
            }
        }
    }

    fn banner(&self) -> &Banner {
        self.device.protocol().unwrap()
    }
}

const MS: Duration = Duration::from_millis(1);

#[test]
fn the_line_of_an_ssh_server_answers_and_nothing_else_does() {
    for (text, banner) in [
        (&b"SSH-2.0-dropbear_2022.83\r\n"[..], Some("SSH-2.0-dropbear_2022.83")),
        (b"welcome\r\nSSH-2.0-x\nmore\n", Some("SSH-2.0-x")),
        (b"220 mail\r\n", None),
        (b"SSH-2.0-without end", None),
    ] {
        let mut bed = Bed::new(text, true);
        bed.ask(Instant(1_000));
        assert_eq!(bed.device.next_deadline(), Some(Instant(0)));
        bed.exchange(Instant(1_000), MS);
        let stats = bed.banner().stats().clone();
        assert_eq!((stats.asked, stats.answered), (1, u64::from(banner.is_some())), "{text:?}");
        assert_eq!(stats.last.as_deref(), banner);
        let took: Vec<_> = bed.banner().greetings().iter().map(|g| (g.asked, g.took)).collect();
        assert_eq!(took, banner.map(|_| (Instant(1_000), MS)).into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn an_answered_question_leaves_no_connection() {
    let mut bed = Bed::new(b"SSH-2.0-x\r\n", true);
    for round in 0..200 {
        let now = Instant(1_000_000 * (round + 1));
        bed.ask(now);
        bed.exchange(now, Duration::ZERO);
    }
    assert_eq!((bed.banner().stats().answered, bed.device.tcp().connections(), bed.server.connections()), (200, 0, 0));
}

#[test]
fn a_refusal_is_no_answer_and_silence_is_none() {
    let mut bed = Bed::new(b"", false);
    bed.ask(Instant(5));
    bed.exchange(Instant(5), MS);
    assert_eq!((bed.banner().stats().answered, bed.banner().stats().refused), (0, 1));
    assert_eq!(bed.device.tcp().connections(), 0);
    // A server that accepts and sends nothing. The number of waiting requests is limited, and `forget` ends them.
    let mut bed = Bed::new(b"", true);
    for round in 0..100u64 {
        bed.ask(Instant(1_000_000 * (round + 1)));
        bed.exchange(Instant(1_000_000 * (round + 1)), Duration::ZERO);
    }
    assert_eq!((bed.banner().stats().answered, bed.device.tcp().connections()), (0, MOST_OPEN));
    bed.device.protocol_mut::<Banner>().unwrap().forget();
    bed.exchange(Instant(200_000_000), Duration::ZERO);
    assert_eq!(bed.device.tcp().connections(), 0);
}

#[test]
fn a_device_without_the_family_refuses() {
    let mut bed = Bed::new(b"", true);
    let refused = bed.device.command(Instant(0), NAME, &Command::Banner(AskBanner(Family::Ipv6))).unwrap_err();
    assert!(refused.reason.contains("no IPv6 address"), "{refused}");
    bed.exchange(Instant(0), Duration::ZERO);
    assert_eq!(bed.banner().stats().asked, 0);
}
