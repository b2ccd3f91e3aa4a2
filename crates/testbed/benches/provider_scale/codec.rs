//! What the codec alone takes for the messages of the cases, in s for each message, route or LSA.

use crate::on_processor_s;
use drophammer_emulation::device::{Address, Device, DeviceConfig};
use drophammer_emulation::protocol::{Command, ProtocolConfig};
use drophammer_emulation::rsvp::{
    EgressRange, IngressRange, LabelPolicy, LspRange, NAME, Pace, RsvpCommand, RsvpConfig,
};
use drophammer_model::Instant;
use drophammer_wire::bgp::AfiSafi;
use drophammer_wire::bgp::message::HEADER_LEN;
use drophammer_wire::bgp::update::nlri::Frame;
use drophammer_wire::bgp::update::{Attributes, Context, Labels, Packer, Update};
use drophammer_wire::ospf::{Body, External, LinkStateUpdate, LsaHeader, LsaKey, lsa, lsa_type};
use drophammer_wire::rsvp::{self, Message, kind};
use drophammer_wire::{MacAddr, bfd};
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};

/// Seconds to write one thing, and to parse one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Codec {
    pub write_s: f64,
    pub parse_s: f64,
}

const ROUNDS: usize = 5;

/// Median time of `part` for each of `count` things, in s.
fn each(count: usize, mut part: impl FnMut()) -> f64 {
    let mut all: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let begun = on_processor_s();
            part();
            (on_processor_s() - begun) / count as f64
        })
        .collect();
    all.sort_by(f64::total_cmp);
    all[ROUNDS / 2]
}

/// A BFD packet.
pub fn bfd() -> Codec {
    const COUNT: usize = 1_000_000;
    let control = bfd::Control {
        state: bfd::State::Up,
        detect_mult: 3,
        my_discriminator: 1,
        your_discriminator: 2,
        desired_min_tx: 300_000,
        required_min_rx: 300_000,
        ..bfd::Control::default()
    };
    let mut bytes = [0; bfd::LEN];
    let write_s = each(COUNT, || (0..COUNT).for_each(|_| black_box(&control).emit(black_box(&mut bytes))));
    let parse_s = each(COUNT, || {
        (0..COUNT).for_each(|_| {
            let _ = black_box(bfd::Control::parse(black_box(&bytes)));
        });
    });
    Codec { write_s, parse_s }
}

/// A route of this family, in the fullest UPDATEs.
pub fn route(family: AfiSafi) -> Codec {
    const COUNT: u32 = 400_000;
    let mut attributes = Vec::new();
    let target = [[0, 2, 0xfd, 0xe8, 0, 0, 0, 1]];
    let vpn = family == AfiSafi::VPNV4;
    let set = Attributes {
        as_path: &[65_100],
        next_hop: (!vpn).then_some(Ipv4Addr::new(192, 168, 0, 2)),
        local_pref: vpn.then_some(100),
        extended_communities: if vpn { &target } else { &[] },
        ..Attributes::default()
    };
    set.append(true, &mut attributes);
    let frame =
        Frame { labels: Labels::Same(10_000), distinguisher: [0, 1, 100, 127, 0, 2, 0, 1], ..Frame::plain(family) };
    let next_hop = [0, 0, 0, 0, 0, 0, 0, 0, 100, 127, 0, 2];
    let packer = Packer { frame, attributes: &attributes, next_hop: &next_hop, max_len: 4096 };
    let prefix = |n: u32| (IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + (n << 8 & 0x00ff_ff00))), 24);
    let mut buffer = vec![0; 4096];
    let mut messages = Vec::new();
    let mut pack = |keep: bool| {
        let mut routes = (0..COUNT).map(prefix).peekable();
        while routes.peek().is_some() {
            let packed = packer.announce(&mut buffer, u32::MAX, &mut routes);
            if keep {
                messages.push(buffer[..packed.bytes].to_vec());
            }
            black_box(&buffer);
        }
    };
    pack(true);
    let write_s = each(COUNT as usize, || pack(false));
    let context = Context { four_octet_as: true, ibgp: vpn, ..Context::default() };
    let parse_s = each(COUNT as usize, || {
        let mut found = 0;
        for message in &messages {
            let update = Update::parse(&message[HEADER_LEN..], &context).unwrap_or_else(|e| panic!("{e:?}"));
            update.announced().for_each(|route| {
                black_box(route);
                found += 1;
            });
        }
        assert_eq!(found, COUNT);
    });
    Codec { write_s, parse_s }
}

/// An AS-external-LSA.
pub fn external() -> Codec {
    const COUNT: usize = 100_000;
    const IN_ONE: usize = 40;
    let body = |n: usize| External {
        mask: Ipv4Addr::new(255, 255, 255, 0),
        type_2: false,
        metric: 10,
        forwarding: Ipv4Addr::UNSPECIFIED,
        tag: n as u32,
    };
    let header = |n: usize| LsaHeader {
        age: 1,
        options: 2,
        key: LsaKey {
            kind: lsa_type::EXTERNAL,
            id: Ipv4Addr::from_bits(0x1400_0000 + (n as u32) * 256),
            router: Ipv4Addr::new(100, 127, 0, 1),
        },
        sequence: lsa::INITIAL_SEQUENCE,
        checksum: 0,
        length: 36,
    };
    let write = |first: usize, out: &mut Vec<u8>| {
        out.clear();
        out.extend((IN_ONE as u32).to_be_bytes());
        for n in first..first + IN_ONE {
            let at = out.len();
            header(n).emit(out);
            body(n).emit(out);
            lsa::seal(&mut out[at..]);
        }
    };
    let mut buffer = Vec::new();
    let write_s = each(COUNT, || {
        (0..COUNT).step_by(IN_ONE).for_each(|first| {
            write(first, &mut buffer);
            black_box(&buffer);
        });
    });
    write(0, &mut buffer);
    let parse_s = each(COUNT, || {
        for _ in (0..COUNT).step_by(IN_ONE) {
            let update = LinkStateUpdate::parse(black_box(&buffer)).unwrap_or_else(|e| panic!("{e}"));
            for lsa in update.iter() {
                let lsa = lsa.unwrap_or_else(|e| panic!("{e}"));
                black_box(Body::parse(lsa.header.key.kind, lsa.body)).unwrap_or_else(|e| panic!("{e}"));
            }
        }
    });
    Codec { write_s, parse_s }
}

/// A Path and a Resv message of an LSP: the mean of both.
pub fn rsvp() -> Codec {
    const COUNT: usize = 100_000;
    let frames = signalled();
    let of = |wanted: u8| {
        let found = frames.iter().find(|frame| frame[0] >> 4 == 1 && frame[1] == wanted);
        found.unwrap_or_else(|| panic!("no message of type {wanted}")).clone()
    };
    let both = [of(kind::PATH), of(kind::RESV)];
    let parsed = both.each_ref().map(|bytes| {
        let message = Message::parse(bytes).and_then(|message| rsvp::Body::parse(&message));
        message.unwrap_or_else(|e| panic!("{e}")).0
    });
    let mut buffer = Vec::with_capacity(2048);
    let write_s = each(2 * COUNT, || {
        for body in (0..COUNT).flat_map(|_| &parsed) {
            buffer.clear();
            black_box(body).emit(0, 255, &[], &mut buffer);
            black_box(&buffer);
        }
    });
    let parse_s = each(2 * COUNT, || {
        for bytes in (0..COUNT).flat_map(|_| &both) {
            let message = Message::parse(black_box(bytes)).and_then(|message| rsvp::Body::parse(&message));
            black_box(message.unwrap_or_else(|e| panic!("{e}")));
        }
    });
    Codec { write_s, parse_s }
}

/// The messages with which an ingress and an egress set an LSP up between them.
fn signalled() -> Vec<Vec<u8>> {
    let lsps = LspRange::new(1, [10, 1, 0, 1].into(), [10, 2, 0, 1].into());
    let ingress = RsvpConfig { ingress: vec![IngressRange::new(lsps.clone())], ..RsvpConfig::default() };
    let labels = LabelPolicy::From(100_000);
    let egress = RsvpConfig { egress: vec![EgressRange { lsps, labels }], ..RsvpConfig::default() };
    let mut devices = [(1u8, 2u8, ingress), (2, 1, egress)].map(|(own, other, config)| {
        let ipv4 =
            Some(Address { address: [198, 18, 1, own].into(), prefix_len: 24, gateway: [198, 18, 1, other].into() });
        let base = DeviceConfig { ipv4, ..DeviceConfig::new("rsvp", MacAddr::local(own.into()), own.into()) };
        let mut device = Device::new(base.clone());
        let rsvp = ProtocolConfig::Rsvp(Box::new(config)).create(&base).unwrap_or_else(|e| panic!("{e}"));
        device.add_protocol(rsvp);
        device.fix_gateway(MacAddr::local(other.into()));
        device.command(Instant(0), NAME, &Command::Start).unwrap_or_else(|e| panic!("{e}"));
        device
    });
    let set_up = RsvpCommand::SetUp(Pace { lsps: 0..1, per_second: 0 });
    devices[0].command(Instant(1), NAME, &Command::Rsvp(set_up)).unwrap_or_else(|e| panic!("{e}"));
    let mut wire = Vec::new();
    let mut all = Vec::new();
    loop {
        for (at, device) in devices.iter_mut().enumerate() {
            if device.next_deadline().is_some_and(|due| due <= Instant(1)) {
                device.poll(Instant(1), 64 << 10, &mut |frame| wire.push((at, frame.to_vec())));
            }
        }
        let Some((from, frame)) = wire.pop() else { return all };
        // Ethernet, and an IPv4 header whose length tells whether it has options.
        let header = 14 + usize::from(frame[14] & 15) * 4;
        all.push(frame[header..].to_vec());
        devices[1 - from].receive(Instant(1), &frame, &mut |out| wire.push((1 - from, out.to_vec())));
    }
}
