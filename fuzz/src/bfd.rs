//! BFD: any bytes are a Control packet or refused, what was read means the same when it is written again, and a session takes
//! whatever comes at whatever time.

use super::input::Input;
use drophammer_emulation::bfd::{Bfd, SessionConfig};
use drophammer_emulation::protocol::{Command, Protocol};
use drophammer_emulation::{Address, Device, DeviceConfig};
use drophammer_model::Instant;
use drophammer_wire::bfd::{Control, HOP_LIMIT, PORT, State};
use drophammer_wire::{MacAddr, ipv4, udp};
use std::time::Duration;

/// A packet, or the life of a session.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    if input.flag() { packet(input.0) } else { session(&mut input) }
}

fn packet(bytes: &[u8]) {
    let Ok(control) = Control::parse(bytes) else { return };
    let mut again = vec![0; control.packet_len()];
    control.emit(&mut again);
    assert_eq!(Control::parse(&again), Ok(control));
}

/// What it sends is a Control packet of a single hop.
fn assert_sound(frame: &[u8]) {
    let (ip, payload) = ipv4::Repr::parse(&frame[14..]).unwrap();
    let (header, payload) = udp::Repr::parse(payload, ip.pseudo_header_sum()).unwrap();
    assert_eq!((ip.ttl, header.destination), (HOP_LIMIT, PORT));
    let control = Control::parse(payload).unwrap();
    assert!(!(control.poll && control.is_final));
}

fn session(input: &mut Input) {
    let own = Address { address: [198, 18, 0, 1].into(), prefix_len: 24, gateway: [198, 18, 0, 2].into() };
    let config = DeviceConfig { ipv4: Some(own), ..DeviceConfig::new("d", MacAddr::local(1), 1) };
    let session = SessionConfig {
        desired_min_tx: u32::from(input.u16()) + 1000,
        required_min_rx: u32::from(input.u16()) + 1,
        detect_mult: input.u8().max(1),
        passive: input.flag(),
        ..SessionConfig::new(own.gateway.into())
    };
    let mut device = Device::new(config.clone());
    device.fix_gateway(MacAddr::local(2));
    device.add_protocol(Box::new(Bfd::configured(&config, &[session]).unwrap()));
    let (mut now, mut received) = (Instant(1), 0);
    while !input.is_empty() {
        match input.below(4) {
            0 => {
                let command = if input.flag() { Command::Start } else { Command::Stop };
                device.command(now, "bfd", &command).unwrap();
            }
            1 => now = now + Duration::from_micros(input.u32().into()),
            _ => {
                let state = [State::AdminDown, State::Down, State::Init, State::Up][input.below(4)];
                let flags = input.u8();
                let control = Control {
                    state,
                    poll: flags & 1 != 0,
                    is_final: flags & 2 != 0,
                    demand: flags & 4 != 0,
                    diagnostic: flags >> 3,
                    detect_mult: input.u8(),
                    my_discriminator: u32::from(input.u8()),
                    your_discriminator: if input.flag() { 1 << 20 | 1 } else { u32::from(input.u8()) },
                    desired_min_tx: input.u32(),
                    required_min_rx: input.u32(),
                    ..Control::default()
                };
                let ip = ipv4::Repr {
                    tos: 0,
                    identification: 0,
                    dont_fragment: true,
                    ttl: HOP_LIMIT,
                    protocol: ipv4::protocol::UDP,
                    source: own.gateway,
                    destination: own.address,
                    payload_len: udp::LEN + control.packet_len(),
                };
                let mut frame = vec![0; 34 + ip.payload_len];
                frame[..6].copy_from_slice(&MacAddr::local(1).0);
                frame[12..14].copy_from_slice(&[8, 0]);
                ip.emit(&mut frame[14..]);
                control.emit(&mut frame[34 + udp::LEN..]);
                udp::Repr { source: 50_000, destination: PORT }.emit(&mut frame[34..], ip.pseudo_header_sum());
                received += 1;
                let mut answers = 0;
                device.receive(now, &frame, &mut |frame| {
                    assert_sound(frame);
                    answers += 1;
                });
                assert!(answers <= 2, "{answers} packets for one: the answer, and a change");
            }
        }
        let mut sent = 0;
        device.poll(now, 1500, &mut |frame| {
            assert_sound(frame);
            sent += 1;
        });
        assert!(sent <= 3, "{sent} packets at once");
        assert!(device.next_deadline().is_none_or(|next| next > now), "it would be polled for ever");
        let bfd = device.protocol::<Bfd>().unwrap();
        let report = bfd.sessions().next().unwrap();
        assert!(report.times_down <= report.times_up && report.times_up <= received);
        assert_eq!(bfd.state().up == 1, report.state == State::Up);
    }
}
