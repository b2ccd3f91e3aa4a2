//! Performance of RSVP without a peer: refreshes sent by an ingress and received by an egress of 100000 LSPs, and their ratio to the bare
//! codec.
//!
//! Prints the median of several rounds in thousands of messages (or LSPs in summaries) per second of processor time.
//! `cargo bench -p drophammer-emulation --bench rsvp`.

mod rounds;

use drophammer_emulation::device::{Address, Device, DeviceConfig};
use drophammer_emulation::protocol::{Command, ProtocolConfig};
use drophammer_emulation::rsvp::{
    EgressRange, IngressRange, LabelPolicy, LspRange, NAME, Pace, RefreshReduction, RsvpCommand, RsvpConfig,
};
use drophammer_model::Instant;
use drophammer_wire::MacAddr;
use drophammer_wire::rsvp::{Body, Message, kind};
use std::hint::black_box;
use std::time::Duration;

const LSPS: u32 = 100_000;
const BUDGET: usize = 64 << 10;
const R: Duration = Duration::from_secs(30);

/// Runs `part` several times; thousands of `count` per second.
fn measure(name: &str, count: u64, part: impl FnMut()) -> f64 {
    let rate = rounds::per_second(count, part) / 1e3;
    println!("{name:<58} {rate:>9.0} k/s");
    rate
}

fn device(own: u8, other: u8, config: RsvpConfig) -> Device {
    let ipv4 = Some(Address { address: [198, 18, 1, own].into(), prefix_len: 24, gateway: [198, 18, 1, other].into() });
    let base = DeviceConfig { ipv4, ..DeviceConfig::new(format!("d{own}"), MacAddr::local(own.into()), own.into()) };
    let mut device = Device::new(base.clone());
    let rsvp = ProtocolConfig::Rsvp(Box::new(config)).create(&base).unwrap_or_else(|e| panic!("{e}"));
    device.add_protocol(rsvp);
    device.fix_gateway(MacAddr::local(other.into()));
    device.command(Instant(0), NAME, &Command::Start).unwrap_or_else(|e| panic!("{e}"));
    device
}

/// Polls everything that is due up to `end`; the frames go to `each`.
fn poll(device: &mut Device, end: Instant, each: &mut dyn FnMut(Instant, &[u8])) {
    let mut now = Instant(0);
    while let Some(due) = device.next_deadline().filter(|due| *due <= end) {
        now = due.max(now);
        device.poll(now, BUDGET, &mut |frame| each(now, frame));
    }
}

/// An ingress and an egress with all LSPs up, at time 1 ns.
fn pair(refresh_reduction: Option<RefreshReduction>) -> [Device; 2] {
    let lsps = LspRange::new(LSPS, [10, 1, 0, 1].into(), [10, 2, 0, 1].into());
    let base = RsvpConfig { refresh: R, refresh_reduction, ..RsvpConfig::default() };
    let ingress = RsvpConfig { ingress: vec![IngressRange::new(lsps.clone())], ..base.clone() };
    let egress = RsvpConfig { egress: vec![EgressRange { lsps, labels: LabelPolicy::From(100_000) }], ..base };
    let mut devices = [device(1, 2, ingress), device(2, 1, egress)];
    let set_up = RsvpCommand::SetUp(Pace { lsps: 0..LSPS, per_second: 0 });
    devices[0].command(Instant(1), NAME, &Command::Rsvp(set_up)).unwrap_or_else(|e| panic!("{e}"));
    // Until nothing is due any more.
    let mut wire = Vec::new();
    loop {
        for (at, device) in devices.iter_mut().enumerate() {
            if device.next_deadline().is_some_and(|due| due <= Instant(1)) {
                device.poll(Instant(1), BUDGET, &mut |frame| wire.push((at, frame.to_vec())));
            }
        }
        if wire.is_empty() {
            return devices;
        }
        while let Some((from, frame)) = wire.pop() {
            devices[1 - from].receive(Instant(1), &frame, &mut |out| wire.push((1 - from, out.to_vec())));
        }
    }
}

fn main() {
    let [mut ingress, mut egress] = pair(None);
    // One refresh of each LSP: all are due within 1.5 periods, some twice.
    let (mut frames, mut end) = (Vec::new(), Instant(1));
    let mut next = |ingress: &mut Device, each: &mut dyn FnMut(Instant, &[u8])| {
        end = end + R;
        poll(ingress, end, each);
    };
    next(&mut ingress, &mut |now, frame| frames.push((now, frame.to_vec())));
    let mut count = 0u64;
    next(&mut ingress, &mut |_, _| count += 1);
    let sending =
        measure("ingress: Path refreshes of 100000 LSPs", count, || next(&mut ingress, &mut |_, f| _ = black_box(f)));
    let received = frames.len() as u64;
    let receiving = measure("egress: Path refreshes of 100000 LSPs", received, || {
        for (now, frame) in &frames {
            egress.receive(*now, frame, &mut |f| panic!("an answer: {f:?}"));
        }
    });
    let message = |frame: &[u8]| frame[14 + 24..].to_vec();
    let messages: Vec<_> = frames.iter().map(|(_, frame)| message(frame)).collect();
    let parsing = measure("codec: parse these Paths", received, || {
        for bytes in &messages {
            let parsed = Message::parse(bytes).and_then(|message| Body::parse(&message));
            black_box(parsed.unwrap_or_else(|e| panic!("{e}")));
        }
    });
    let first =
        Message::parse(&messages[0]).and_then(|message| Body::parse(&message)).unwrap_or_else(|e| panic!("{e}"));
    let mut buffer = Vec::with_capacity(2048);
    let emitting = measure("codec: write a Path", received, || {
        for _ in 0..received {
            buffer.clear();
            black_box(first.0).emit(0, 255, &[], &mut buffer);
            black_box(&buffer);
        }
    });
    println!(
        "sending takes {:.1} times as long as the codec, receiving {:.1} times",
        emitting / sending,
        parsing / receiving
    );
    let [mut ingress, mut egress] = pair(Some(RefreshReduction::default()));
    let mut summaries = Vec::new();
    // LSPs that were set up before the neighbour was known still send Paths.
    poll(&mut ingress, Instant(1) + R, &mut |now, frame| {
        if frame[14 + 20 + 1] == kind::SREFRESH {
            summaries.push((now, frame.to_vec()));
        }
    });
    let ids: u64 = summaries.iter().map(|(_, frame)| (frame.len() as u64 - 14 - 20 - 8 - 8) / 4).sum();
    measure("egress: LSPs in Srefreshes", ids, || {
        for (now, frame) in &summaries {
            egress.receive(*now, frame, &mut |f| panic!("an answer: {f:?}"));
        }
    });
}
