use super::*;
use crate::device::{Address, Device};
use drophammer_wire::bfd::diagnostic;
use drophammer_wire::{MacAddr, ipv4, udp};
use std::collections::VecDeque;
use std::time::Duration;

/// Offset of the Control packet in an untagged IPv4 frame.
const AT: usize = 14 + ipv4::LEN + udp::LEN;

fn address(n: u8) -> IpAddr {
    [198, 18, 0, n].into()
}

fn device(n: u8, config: SessionConfig) -> Device {
    let [own, other] = [n, 3 - n].map(|n| [198, 18, 0, n].into());
    let config_of = DeviceConfig {
        ipv4: Some(Address { address: own, prefix_len: 24, gateway: other }),
        ..DeviceConfig::new(format!("d{n}"), MacAddr::local(n.into()), n.into())
    };
    let mut device = Device::new(config_of.clone());
    device.add_protocol(Box::new(Bfd::configured(&config_of, &[config]).unwrap()));
    device.fix_gateway(MacAddr::local(3 - u64::from(n)));
    device
}

/// Two devices on a wire in virtual time; every Control packet is stored.
struct Wire {
    now: Instant,
    devices: [Device; 2],
    packets: Vec<(Instant, usize, Vec<u8>)>,
    /// Frames that this device sends are lost.
    deaf: Option<usize>,
    /// Every n-th packet of device 1 is lost; 0 for none. `lost`: how many.
    every: u64,
    lost: u64,
}

impl Wire {
    fn new(configs: [SessionConfig; 2]) -> Wire {
        let [a, b] = configs;
        let devices = [device(1, a), device(2, b)];
        Wire { now: Instant(0), devices, packets: Vec::new(), deaf: None, every: 0, lost: 0 }
    }

    fn command(&mut self, which: usize, command: &Command) {
        self.devices[which].command(self.now, NAME, command).unwrap();
    }

    fn run(&mut self, until: Instant) {
        loop {
            let mut frames = VecDeque::new();
            for (i, device) in self.devices.iter_mut().enumerate() {
                device.poll(self.now, 1500, &mut |frame| frames.push_back((i, frame.to_vec())));
            }
            while let Some((from, frame)) = frames.pop_front() {
                let mut is_lost = false;
                if frame[12..14] == [8, 0] {
                    assert_eq!(frame[15], 0xc0, "CS6");
                    self.packets.push((self.now, from, frame[AT..AT + LEN].to_vec()));
                    let so_far = self.packets.iter().filter(|(_, sender, _)| *sender == from).count() as u64;
                    is_lost = from == 1 && self.every != 0 && so_far.is_multiple_of(self.every);
                }
                self.lost += u64::from(is_lost);
                if self.deaf != Some(from) && !is_lost {
                    let to = 1 - from;
                    self.devices[to].receive(self.now, &frame, &mut |answer| frames.push_back((to, answer.to_vec())));
                }
            }
            match self.devices.iter().filter_map(Device::next_deadline).min() {
                Some(next) if next <= until => self.now = self.now.max(next),
                _ => break,
            }
        }
        self.now = until;
    }

    fn report(&self, which: usize) -> Report {
        self.devices[which].protocol::<Bfd>().unwrap().sessions().next().unwrap()
    }

    fn states(&self) -> [State; 2] {
        [0, 1].map(|i| self.report(i).state)
    }
}

fn ms(ms: u64) -> Instant {
    Instant(ms * 1_000_000)
}

fn with(peer: u8, ms: u32, detect_mult: u8) -> SessionConfig {
    let interval = ms * 1000;
    SessionConfig {
        desired_min_tx: interval,
        required_min_rx: interval,
        detect_mult,
        ..SessionConfig::new(address(peer))
    }
}

#[test]
fn both_come_up_with_the_slower_interval_and_detect_a_silent_peer() {
    let mut wire = Wire::new([with(2, 100, 3), with(1, 50, 5)]);
    wire.command(0, &Command::Start);
    wire.run(ms(5000));
    assert_eq!(wire.states(), [State::Down, State::AdminDown]);
    let bfd = wire.devices[1].protocol::<Bfd>().unwrap();
    assert!(bfd.discarded().get("session is AdminDown") >= 4);
    wire.command(1, &Command::Start);
    wire.run(ms(8000));
    assert_eq!(wire.states(), [State::Up, State::Up]);
    let [a, b] = [0, 1].map(|i| wire.report(i));
    let millis = Duration::from_millis;
    assert_eq!((a.transmit_interval, b.transmit_interval), (millis(100), millis(100)));
    assert_eq!((a.detection_time, b.detection_time), (millis(5 * 100), millis(3 * 100)));
    assert_eq!((a.diagnostic, b.diagnostic, a.times_up, b.times_up), (0, 0, 1, 1));

    // Packets leave after 75 to 100 % of the interval, and one Poll with its Final has confirmed the fast interval.
    wire.packets.clear();
    wire.run(ms(18_000));
    let of = |which| wire.packets.iter().filter(move |(_, from, _)| *from == which).map(|(at, ..)| *at);
    for which in [0, 1] {
        let gaps: Vec<_> = of(which).zip(of(which).skip(1)).map(|(a, b)| b.since(a)).collect();
        assert!(gaps.len() > 100 && gaps.iter().all(|gap| (millis(75)..=millis(100)).contains(gap)), "{gaps:?}");
        assert!(gaps.iter().any(|gap| *gap < millis(80)) && gaps.iter().any(|gap| *gap > millis(95)));
    }
    assert!(wire.packets.iter().all(|(.., bytes)| bytes[1] & 0x30 == 0), "no poll in a settled session");

    wire.deaf = Some(1);
    let heard = wire.report(0).heard_at.unwrap();
    wire.run(heard + millis(501));
    let a = wire.report(0);
    assert_eq!((a.state, a.diagnostic, a.detections), (State::Down, diagnostic::DETECTION_TIME_EXPIRED, 1));
    assert_eq!((a.own_fault, wire.report(1).own_fault), (0, 0), "all own packets left in time");
    assert_eq!(a.down_at, Some(heard + millis(500)), "to the nanosecond");
    let b = wire.report(1);
    assert_eq!((b.state, b.diagnostic, b.signaled), (State::Down, diagnostic::NEIGHBOR_SIGNALED_DOWN, 1));
    assert_eq!(b.remote_diagnostic, diagnostic::DETECTION_TIME_EXPIRED);
    wire.deaf = None;
    wire.run(ms(25_000));
    assert_eq!((wire.states(), wire.report(0).times_up), ([State::Up, State::Up], 2));
}

#[test]
fn the_interval_changes_with_a_poll_sequence() {
    let mut wire = Wire::new([with(2, 20, 3), with(1, 20, 3)]);
    [0, 1].into_iter().for_each(|i| wire.command(i, &Command::Start));
    wire.run(ms(6000));
    for which in [0, 1] {
        let of: Vec<_> = wire.packets.iter().filter(|(_, from, _)| *from == which).collect();
        let polls = of.iter().filter(|(.., bytes)| bytes[1] & 0x20 != 0).count();
        let finals = of.iter().filter(|(.., bytes)| bytes[1] & 0x10 != 0).count();
        assert!((1..=2).contains(&polls) && (1..=2).contains(&finals), "{polls} polls, {finals} finals");
        assert!(of.iter().all(|(.., bytes)| bytes[1] & 0x30 != 0x30));
        // 1 s until it is Up, and the configured interval from then on.
        for (.., bytes) in of {
            let interval = u32::from_be_bytes(bytes[12..16].try_into().unwrap());
            assert_eq!(interval, if bytes[1] >> 6 == 3 { 20_000 } else { 1_000_000 });
        }
    }
}

#[test]
fn a_stopped_session_says_so_and_is_silent_then() {
    let mut wire = Wire::new([with(2, 100, 3), SessionConfig { passive: true, ..with(1, 100, 3) }]);
    wire.command(1, &Command::Start);
    wire.run(ms(3000));
    assert!(wire.packets.is_empty(), "passive");
    wire.command(0, &Command::Start);
    wire.run(ms(6000));
    assert_eq!(wire.states(), [State::Up, State::Up]);
    wire.command(0, &Command::Stop);
    wire.run(ms(6001));
    let b = wire.report(1);
    assert_eq!((b.state, b.remote_state), (State::Down, State::AdminDown));
    assert_eq!(b.remote_diagnostic, diagnostic::ADMINISTRATIVELY_DOWN);
    wire.run(ms(20_000));
    let last = wire.packets.iter().rfind(|(_, from, _)| *from == 0).unwrap();
    assert!(last.0 <= ms(9000) && last.2[1] >> 6 == 0, "AdminDown for one detection time");
    assert_eq!(wire.devices[0].protocol::<Bfd>().unwrap().next_deadline(), None);
    wire.command(0, &Command::Start);
    wire.run(ms(26_000));
    assert_eq!(wire.states(), [State::Up, State::Up]);
}

/// A frame to device 1 from the address with this number.
fn frame_from(source: u8, ttl: u8, control: &Control<'_>) -> Vec<u8> {
    let mut frame = vec![0; AT + control.packet_len()];
    frame[..6].copy_from_slice(&MacAddr::local(1).0);
    frame[12..14].copy_from_slice(&[8, 0]);
    let header = ipv4::Repr {
        tos: 0,
        identification: 0,
        dont_fragment: true,
        ttl,
        protocol: 17,
        source: [198, 18, 0, source].into(),
        destination: [198, 18, 0, 1].into(),
        payload_len: udp::LEN + control.packet_len(),
    };
    header.emit(&mut frame[14..]);
    control.emit(&mut frame[AT..]);
    udp::Repr { source: 50_000, destination: bfd::PORT }.emit(&mut frame[34..], header.pseudo_header_sum());
    frame
}

#[test]
fn packets_that_do_not_belong_to_a_session_are_counted_by_reason() {
    let mut wire = Wire::new([with(2, 100, 3), with(1, 100, 3)]);
    wire.command(0, &Command::Start);
    wire.run(ms(1));
    let control = Control { state: State::Down, detect_mult: 3, my_discriminator: 9, ..Control::default() };
    let mut send = |source: u8, ttl: u8, control: &Control<'_>| {
        wire.devices[0].receive(ms(2), &frame_from(source, ttl, control), &mut |_| {});
        let all = wire.devices[0].protocol::<Bfd>().unwrap().discarded().clone();
        all.iter().last().map(|(reason, _)| reason)
    };
    assert_eq!(send(2, 254, &control), Some("TTL is not 255"));
    assert_eq!(send(3, 255, &control), Some("unknown peer"));
    let of = |your_discriminator| Control { your_discriminator, ..control };
    assert_eq!(send(2, 255, &of(77)), Some("unknown discriminator"));
    let section = Control { authentication: Some(&[1, 3, 7]), ..control };
    assert_eq!(send(2, 255, &section), Some("authentication is not configured"));
    assert_eq!(send(2, 255, &Control { detect_mult: 0, ..control }), Some("Detect Mult is 0"));
    let before = wire.devices[0].protocol::<Bfd>().unwrap().state();
    assert_eq!((before.counter("packets_received"), before.counter("packets_discarded")), (5, 5));
    assert_eq!(wire.report(0).state, State::Down);
}

#[test]
fn a_late_poll_loses_no_session_whose_packets_came_in_time() {
    let mut wire = Wire::new([with(2, 100, 3), with(1, 100, 3)]);
    [0, 1].into_iter().for_each(|i| wire.command(i, &Command::Start));
    wire.run(ms(6000));
    assert_eq!(wire.states(), [State::Up, State::Up]);
    let up = Control {
        state: State::Up,
        detect_mult: 3,
        my_discriminator: 2 << 20 | 1,
        your_discriminator: 1 << 20 | 1,
        desired_min_tx: 100_000,
        required_min_rx: 100_000,
        ..Control::default()
    };
    // Nobody polls the device for more than a second, and then ten packets are read.
    for at in (6100..=7000).step_by(100) {
        let frame = frame_from(2, 255, &up);
        wire.devices[0].receive(ms(at), &frame, &mut |_| panic!("a packet leaves before the poll"));
    }
    let poll = |wire: &mut Wire, at: u64| {
        let mut sent = 0;
        wire.devices[0].poll(ms(at), 1500, &mut |frame| sent += usize::from(frame[12..14] == [8, 0]));
        (sent, wire.report(0))
    };
    let (sent, report) = poll(&mut wire, 7150);
    assert_eq!((report.state, report.detections, report.heard_at), (State::Up, 0, Some(ms(7000))));
    assert_eq!(sent, 1, "it does not make up for the packets that it has not sent");
    let next = wire.devices[0].protocol::<Bfd>().unwrap().next_deadline().unwrap();
    assert!((ms(7225)..=ms(7250)).contains(&next), "{next:?}: 75 to 100 % of the interval after it left");
    // The detection time counts from the arrival of the last packet.
    assert_eq!(poll(&mut wire, 7299).1.state, State::Up);
    let down = poll(&mut wire, 7300).1;
    assert_eq!((down.state, down.detections, down.down_at), (State::Down, 1, Some(ms(7300))));
}

/// A session of device 0 that was up until 6 s, with device 1 at the other end. Both use 100 ms and a multiplier of 3.
fn settled() -> Wire {
    let mut wire = Wire::new([with(2, 100, 3), with(1, 100, 3)]);
    [0, 1].into_iter().for_each(|i| wire.command(i, &Command::Start));
    wire.run(ms(6000));
    assert_eq!(wire.states(), [State::Up, State::Up]);
    wire
}

/// A frame by which device 1 tells device 0 its state.
fn told(state: State) -> Vec<u8> {
    let control = Control {
        state,
        diagnostic: diagnostic::DETECTION_TIME_EXPIRED,
        detect_mult: 3,
        my_discriminator: 2 << 20 | 1,
        your_discriminator: 1 << 20 | 1,
        desired_min_tx: 1_000_000,
        required_min_rx: 100_000,
        ..Control::default()
    };
    frame_from(2, 255, &control)
}

#[test]
fn a_peer_that_missed_late_packets_is_not_to_blame() {
    // Nobody polls the device, and the peer goes down after its detection time.
    let mut wire = settled();
    wire.devices[0].receive(ms(6350), &told(State::Down), &mut |_| {});
    let report = wire.report(0);
    assert_eq!((report.state, report.times_down, report.own_fault), (State::Down, 1, 1));
    assert!((Duration::from_millis(250)..=Duration::from_millis(350)).contains(&report.late), "{:?}", report.late);
    // The peer speaks up after the device has been polled again, within the second between packets of a session that is down.
    for (after, own_fault) in [(1250, 1), (1350, 0)] {
        let mut wire = settled();
        wire.devices[0].receive(ms(6200), &told(State::Up), &mut |_| {});
        wire.devices[0].poll(ms(6400), 1500, &mut |_| {});
        for at in (6450..6400 + after).step_by(50) {
            wire.devices[0].receive(ms(at), &told(State::Up), &mut |_| {});
            wire.devices[0].poll(ms(at), 1500, &mut |_| {});
        }
        wire.devices[0].receive(ms(6400 + after), &told(State::Down), &mut |_| {});
        let report = wire.report(0);
        assert_eq!((report.state, report.signaled, report.own_fault), (State::Down, 1, own_fault), "{after} ms");
    }
    // Nobody reads the packets of the peer, which find no room any more.
    let mut wire = settled();
    wire.devices[0].poll(ms(11_000), 1500, &mut |_| {});
    let report = wire.report(0);
    assert_eq!((report.state, report.detections, report.own_fault), (State::Down, 1, 1));
    assert!(report.late >= Duration::from_millis(4_900), "{:?}", report.late);
    assert_eq!(wire.devices[0].protocol::<Bfd>().unwrap().state().counter("own_packets_late"), 1);
}

#[test]
fn every_missing_packet_is_counted_once() {
    let mut wire = settled();
    assert_eq!([0, 1].map(|i| wire.report(i).missing), [0, 0], "on the way up, nothing is missing");
    wire.every = 3;
    wire.run(ms(36_000));
    wire.every = 0;
    wire.run(ms(37_000));
    let [a, b] = [0, 1].map(|i| wire.report(i));
    assert!(wire.lost > 100, "{}", wire.lost);
    assert_eq!((a.state, a.times_down, a.missing), (State::Up, 0, wire.lost));
    assert_eq!((b.state, b.missing), (State::Up, 0));
    assert_eq!(wire.devices[0].protocol::<Bfd>().unwrap().state().counter("packets_missing"), wire.lost);
}

/// How many packets device 0 misses if those of device 1, 75 to 100 ms apart, arrive at these times after 6 s. Device 0 is not polled in
/// `held_up`. The packets at `polls` have the P bit.
fn missing(arrivals: &[u64], held_up: std::ops::Range<u64>, polls: &[u64]) -> u64 {
    let mut wire = settled();
    for at in 1..=arrivals.last().copied().unwrap_or_default() {
        if arrivals.contains(&at) {
            let control = Control {
                state: State::Up,
                poll: polls.contains(&at),
                detect_mult: 3,
                my_discriminator: 2 << 20 | 1,
                your_discriminator: 1 << 20 | 1,
                desired_min_tx: 100_000,
                required_min_rx: 100_000,
                ..Control::default()
            };
            wire.devices[0].receive(ms(6000 + at), &frame_from(2, 255, &control), &mut |_| {});
        }
        if !held_up.contains(&at) {
            wire.devices[0].poll(ms(6000 + at), 1500, &mut |_| {});
        }
    }
    assert_eq!(wire.report(0).state, State::Up);
    wire.report(0).missing
}

#[test]
fn a_late_packet_is_not_a_missing_one() {
    let of = |arrivals: &[u64]| missing(arrivals, 0..0, &[]);
    assert_eq!(of(&[20, 110, 195, 290, 380]), 0);
    assert_eq!(of(&[20, 110, 270, 360]), 1);
    assert_eq!(of(&[20, 110, 370, 460]), 2);
    assert_eq!(of(&[20, 110, 270, 430, 520]), 2);
    // Too short a gap for a missing packet.
    assert_eq!(of(&[20, 110, 259, 350]), 0);
    // Nothing is said before the next packet, which shows that this one was late.
    assert_eq!(of(&[20, 110, 270]), 0);
    assert_eq!(of(&[20, 110, 270, 290, 380]), 0);
}

#[test]
fn the_tester_and_a_poll_sequence_make_no_packet_missing() {
    assert_eq!(missing(&[20, 110, 270, 360], 111..270, &[]), 0, "device 0 was not polled for 160 ms");
    assert_eq!(missing(&[20, 110, 270, 360], 0..0, &[110]), 0, "the interval may be another one until it is confirmed");
}

#[test]
fn a_peer_that_goes_down_after_slightly_late_packets_is_to_blame() {
    // Each packet leaves up to 60 ms late, so at most 160 ms after the last one.
    let mut wire = settled();
    for at in (6060..8000).step_by(60) {
        wire.devices[0].receive(ms(at), &told(State::Up), &mut |_| {});
        wire.devices[0].poll(ms(at), 1500, &mut |_| {});
    }
    wire.devices[0].receive(ms(8000), &told(State::Down), &mut |_| {});
    let report = wire.report(0);
    assert_eq!((report.state, report.signaled, report.own_fault), (State::Down, 1, 0));
}

#[test]
fn the_discriminator_alone_selects_a_session() {
    let mut device = device(1, with(2, 100, 3));
    device.command(ms(0), NAME, &Command::Start).unwrap();
    let control = Control {
        state: State::Down,
        detect_mult: 3,
        my_discriminator: 9,
        your_discriminator: 1 << 20 | 1,
        ..Control::default()
    };
    let mut frame = frame_from(3, 255, &control);
    // A datagram without a checksum, as some hardware sends.
    frame[AT - 2..AT].fill(0);
    device.receive(ms(2), &frame, &mut |_| {});
    let bfd = device.protocol::<Bfd>().unwrap();
    assert_eq!((bfd.sessions().next().unwrap().state, bfd.discarded().sum()), (State::Init, 0));
}

#[test]
fn packets_of_a_quick_peer_do_not_shorten_the_interval() {
    let quick = SessionConfig { desired_min_tx: 10_000, ..with(1, 10, 3) };
    let slow = SessionConfig { desired_min_tx: 300_000, required_min_rx: 10_000, ..with(2, 300, 3) };
    let mut wire = Wire::new([slow, quick]);
    [0, 1].into_iter().for_each(|i| wire.command(i, &Command::Start));
    wire.run(ms(5000));
    wire.packets.clear();
    wire.run(ms(65_000));
    let at: Vec<_> = wire.packets.iter().filter(|(_, from, _)| *from == 0).map(|(at, ..)| *at).collect();
    let gaps: Vec<_> = at.windows(2).map(|pair| pair[1].since(pair[0]).as_millis()).collect();
    assert!(gaps.iter().all(|gap| (225..=300).contains(gap)), "{gaps:?}");
    let mean = gaps.iter().sum::<u128>() / gaps.len() as u128;
    assert!((255..270).contains(&mean), "{mean} ms: 87.5 % of 300 ms");
}

#[test]
fn a_farewell_lasts_for_the_detection_time_of_the_peer() {
    let patient = SessionConfig { required_min_rx: 3_000_000, ..with(1, 100, 3) };
    let mut wire = Wire::new([with(2, 100, 3), patient]);
    [0, 1].into_iter().for_each(|i| wire.command(i, &Command::Start));
    wire.run(ms(20_000));
    assert_eq!(wire.states(), [State::Up, State::Up]);
    wire.command(0, &Command::Stop);
    wire.run(ms(60_000));
    let last = wire.packets.iter().rfind(|(_, from, _)| *from == 0).unwrap().0;
    assert!((ms(26_000)..=ms(29_000)).contains(&last), "{last:?}: one detection time is 9 s");
}

#[test]
fn what_cannot_be_a_session_is_refused() {
    let config = DeviceConfig::new("d", MacAddr::local(1), 1);
    let refused =
        |config: &DeviceConfig, all: &[SessionConfig]| Bfd::configured(config, all).err().unwrap().to_string();
    let one = with(2, 100, 3);
    assert!(refused(&config, &[one]).contains("no address of this family"));
    let own = Address { address: [198, 18, 0, 1].into(), prefix_len: 24, gateway: [198, 18, 0, 2].into() };
    let config = DeviceConfig { ipv4: Some(own), ..config };
    assert!(refused(&config, &[one, one]).contains("two sessions with this peer"));
    assert!(refused(&config, &[SessionConfig { detect_mult: 0, ..one }]).contains("must be 1 or more"));
}

#[test]
fn ten_thousand_sessions_cost_what_is_due() {
    let peers = (0..10_000u32).map(|i| IpAddr::from((0xc612_0000 + 2 + i).to_be_bytes()));
    let own = Address { address: [198, 18, 0, 1].into(), prefix_len: 16, gateway: [198, 18, 0, 2].into() };
    let config = DeviceConfig { ipv4: Some(own), ..DeviceConfig::new("d", MacAddr::local(1), 1) };
    let mut bfd = Bfd::configured(&config, &peers.map(SessionConfig::new).collect::<Vec<_>>()).unwrap();
    bfd.command(Instant(0), &Command::Start).unwrap();
    let mut device = Device::new(config);
    device.fix_gateway(MacAddr::local(2));
    device.add_protocol(Box::new(bfd));
    let mut sent = 0;
    device.poll(Instant(0), 1500, &mut |frame| sent += usize::from(frame[12..14] == [8, 0]));
    assert_eq!(sent, 10_000);
    let next = device.next_deadline().unwrap();
    let mut few = 0;
    device.poll(next, 1500, &mut |_| few += 1);
    assert!((1..100).contains(&few), "{few}: only those that are due");
}
