//! freeRtr between two emulated routers: transit for LSPs from one to the other, egress of LSPs from router a, ingress of an LSP to
//! router b. A live run (ignored by default) makes the recording. The replay checks that our routers still behave in the same way.
//!
//! Live: build freeRtr (github.com/mc36/freeRtr) with `javac -d CLASSES`, then
//! `FREERTR=CLASSES cargo test -p drophammer-emulation --test protocols rsvp_freertr -- --ignored`, as root.

mod live;

use drophammer_emulation::device::{Address, Device, DeviceConfig};
use drophammer_emulation::protocol::{Command, ProtocolConfig};
use drophammer_emulation::rsvp::{
    EgressRange, IngressRange, LabelPolicy, LspRange, NAME, Pace, Phase, Rsvp, RsvpCommand, RsvpConfig,
};
use drophammer_model::Instant;
use drophammer_wire::{MacAddr, ipv4};
use std::time::Duration;

/// LSPs from router a to router b, and from router a to freeRtr.
const THROUGH: u32 = 3;
const TO_FREERTR: u32 = 2;
/// Router b ends the reservation of the first LSP at this time. The next Path brings it back.
const RELEASE: Instant = Instant(4_500_000_000);
/// Router a tears down its LSPs at this time.
const TEAR: Instant = Instant(9_000_000_000);
const END: Instant = Instant(12_000_000_000);
const BUDGET: usize = 64 << 10;

/// MAC addresses of the interfaces of freeRtr.
const FREERTR: [MacAddr; 2] = [MacAddr([0, 0, 0, 0, 0x22, 0x22]), MacAddr([0, 0, 0, 0, 0x33, 0x33])];

/// Routers a and b: 198.18.1.2 and 198.18.2.2. Refreshes come every 2 s.
fn routers() -> [Device; 2] {
    let range = |count, endpoint| LspRange::new(count, [10, 1, 0, 1].into(), endpoint);
    let through = LspRange { lsp_id: 100, ..range(THROUGH, [10, 2, 0, 1].into()) };
    let egress = vec![EgressRange { lsps: through.clone(), labels: LabelPolicy::From(5000) }];
    let through = IngressRange { record_route: true, bandwidth: 8_000_000, ..IngressRange::new(through) };
    let ingress = vec![through, IngressRange::new(range(TO_FREERTR, [198, 18, 1, 1].into()))];
    let base = RsvpConfig { refresh: Duration::from_secs(2), jitter_percent: 0, ..RsvpConfig::default() };
    let configs =
        [RsvpConfig { ingress, ..base.clone() }, RsvpConfig { egress, foreign: LabelPolicy::From(6000), ..base }];
    let mut net = 0;
    configs.map(|config| {
        net += 1;
        let address = |host| [198, 18, net, host].into();
        let device = DeviceConfig {
            ipv4: Some(Address { address: address(2), prefix_len: 24, gateway: address(1) }),
            ..DeviceConfig::new(format!("router {net}"), MacAddr::local(net.into()), net.into())
        };
        let rsvp = ProtocolConfig::Rsvp(Box::new(config)).create(&device).unwrap();
        let mut device = Device::new(device);
        device.add_protocol(rsvp);
        device.command(Instant(0), NAME, &Command::Start).unwrap();
        device
    })
}

fn rsvp(device: &Device) -> &Rsvp {
    device.protocol().unwrap()
}

fn counter(device: &Device, name: &str) -> u64 {
    device.protocols().find(|p| p.name() == NAME).unwrap().state().counter(name)
}

fn command(router: &mut Device, now: Instant, command: fn(Pace) -> RsvpCommand) {
    let pace = Pace { lsps: 0..THROUGH + TO_FREERTR, per_second: 0 };
    router.command(now, NAME, &Command::Rsvp(command(pace))).unwrap();
}

fn release(routers: &mut [Device; 2], now: Instant) {
    assert_eq!(rsvp(&routers[0]).ingress_phase(0), Phase::Up);
    let first = Pace { lsps: 0..1, per_second: 0 };
    routers[1].command(now, NAME, &Command::Rsvp(RsvpCommand::Release(first))).unwrap();
}

/// Checks the routers before router a tears down its LSPs.
fn assert_up(routers: &[Device; 2]) {
    assert_eq!((counter(&routers[1], "resv_tear_sent"), counter(&routers[0], "resv_tear_received")), (1, 1));
    for lsp in 0..THROUGH + TO_FREERTR {
        let label = rsvp(&routers[0]).label_of(lsp);
        assert!(label.is_some_and(|label| label == 3 || label >= 16), "LSP {lsp}: {label:?}");
    }
    for lsp in 0..THROUGH {
        assert_eq!(rsvp(&routers[1]).egress_of(lsp).unwrap().1, 5000 + lsp);
    }
    // The LSP of freeRtr itself.
    let (key, label, _) = rsvp(&routers[1]).egress_of(THROUGH).unwrap();
    assert_eq!((key.session.destination.to_string(), label), ("198.18.2.2".into(), 6000));
    assert_sound(routers);
}

/// Checks the routers at the end.
fn assert_down(routers: &[Device; 2]) {
    assert!((0..THROUGH + TO_FREERTR).all(|lsp| rsvp(&routers[0]).ingress_phase(lsp) == Phase::Idle));
    assert!((0..THROUGH).all(|lsp| rsvp(&routers[1]).egress_of(lsp).is_none()));
    assert_sound(routers);
}

fn assert_sound(routers: &[Device; 2]) {
    for router in routers {
        assert_eq!(
            [counter(router, "malformed"), counter(router, "unknown_objects"), counter(router, "timeouts")],
            [0; 3]
        );
        assert_eq!(rsvp(router).errors().count(), 0);
    }
}

/// True for a frame with RSVP.
fn is_rsvp(frame: &[u8]) -> bool {
    frame[12..14] == [8, 0] && frame[23] == ipv4::protocol::RSVP
}

/// The recorded frames of freeRtr with their time and router, and our frames.
struct Recording {
    received: Vec<(Instant, usize, Vec<u8>)>,
    sent: Vec<(usize, Vec<u8>)>,
}

fn recording() -> Recording {
    let (mut received, mut sent) = (Vec::new(), Vec::new());
    for line in include_str!("recording.txt").lines().filter(|line| !line.starts_with('#')) {
        let [at, ends, hex] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        let frame: Vec<u8> = hex.as_bytes().chunks(2).map(byte).collect();
        match ends {
            "f>a" | "f>b" => received.push((Instant(at.parse().unwrap()), usize::from(ends == "f>b"), frame)),
            "a>f" | "b>f" => sent.push((usize::from(ends == "b>f"), frame)),
            _ => panic!("{line}"),
        }
    }
    Recording { received, sent }
}

#[test]
fn our_routers_do_the_same_with_the_recorded_frames() {
    let Recording { received, sent } = recording();
    let mut routers = routers();
    routers.iter_mut().zip(FREERTR).for_each(|(router, mac)| router.fix_gateway(mac));
    command(&mut routers[0], Instant(0), RsvpCommand::SetUp);
    let mut ours: Vec<(usize, Vec<u8>)> = Vec::new();
    let (mut released, mut torn, mut now) = (false, false, Instant(0));
    let mut received = received.into_iter().peekable();
    while now < END {
        for (at, router) in routers.iter_mut().enumerate() {
            router.poll(now, BUDGET, &mut |frame| ours.push((at, frame.to_vec())));
        }
        let due = routers.iter().filter_map(Device::next_deadline).min().unwrap_or(END);
        let planned = if torn { END } else { TEAR };
        let planned = if released { planned } else { RELEASE };
        now = received.peek().map_or(END, |(time, ..)| *time).min(due).min(planned).max(now);
        if !released && now >= RELEASE {
            released = true;
            release(&mut routers, now);
        }
        if !torn && now >= TEAR {
            torn = true;
            assert_up(&routers);
            command(&mut routers[0], now, RsvpCommand::TearDown);
        }
        while let Some((_, at, frame)) = received.next_if(|(time, ..)| *time <= now) {
            assert!(routers[at].receive(now, &frame, &mut |answer| ours.push((at, answer.to_vec()))));
        }
    }
    assert_down(&routers);
    for at in 0..2 {
        // Identifications of packets count up from the start of a router, whatever else it has sent.
        let of = |frames: &[(usize, Vec<u8>)]| -> Vec<Vec<u8>> {
            frames.iter().filter(|(router, frame)| *router == at && is_rsvp(frame)).map(|(_, f)| f.clone()).collect()
        };
        let (ours, recorded) = (of(&ours), of(&sent));
        assert!(ours.len().abs_diff(recorded.len()) <= 1, "a refresh may be due at the very end");
        for (n, (ours, recorded)) in ours.iter().zip(&recorded).enumerate() {
            assert_eq!(ours, recorded, "frame {n} of router {at}");
        }
    }
}
