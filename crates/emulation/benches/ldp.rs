//! Performance of LDP: mappings written and read by the codec alone, and sent by one device and held by another one, TCP included.
//!
//! Prints the median of several rounds in million FECs per second of processor time, and the ratio to the codec. `cargo bench -p drophammer-emulation --bench ldp`.

#[path = "../tests/ldp/common.rs"]
mod common;
mod rounds;

use common::{LSR, World, config, fecs};
use drophammer_emulation::ldp::{AdvertisedFecs, LabelPattern, LdpCommand};
use drophammer_wire::ldp::{LdpId, Message, PduWriter, PrefixFec, frame};
use std::hint::black_box;
use std::time::Duration;

const FECS: u32 = 500_000;

/// Million FECs per second of a part that handles all of them: the median of several rounds.
fn measure(name: &str, part: impl FnMut()) -> f64 {
    let rate = rounds::per_second(FECS.into(), part) / 1e6;
    println!("{name}: {rate:.2} M FECs/s");
    rate
}

/// All mappings as PDUs of at most 4096 bytes, in buffers of 64 KiB that `take` gets.
fn write(advertised: &AdvertisedFecs, mut take: impl FnMut(&[u8])) {
    let mut room = vec![0; 64 << 10];
    let mut next = 0;
    while next < FECS {
        let mut pdus = PduWriter::new(&mut room, LdpId::platform(LSR[0]), 4096);
        while next < FECS {
            let fec = PrefixFec::new(advertised.fecs.prefix(next));
            let mapping = Message::LabelMapping { fecs: fec.fecs(), label: advertised.label(next), request: None };
            if !pdus.push(next, &mapping) {
                break;
            }
            next += 1;
        }
        let length = pdus.written();
        take(&room[..length]);
    }
}

fn main() {
    let advertised = AdvertisedFecs { fecs: fecs(0, FECS), labels: LabelPattern::Counting { first: 16, step: 1 } };
    let writing = measure("codec: write", || write(&advertised, |bytes| _ = black_box(bytes)));
    let mut stream = Vec::new();
    write(&advertised, |bytes| stream.extend_from_slice(bytes));
    let reading = measure("codec: read", || {
        let (mut rest, mut found) = (&stream[..], 0);
        while let Ok(Some(pdu)) = frame(rest, 4096) {
            for raw in pdu.messages() {
                if let Ok(Some(Message::LabelMapping { fecs, label, .. })) = raw.and_then(|raw| raw.parse()) {
                    found += black_box(fecs.prefixes().count());
                    black_box(label);
                }
            }
            rest = &rest[pdu.pdu_len()..];
        }
        assert_eq!(found as u32, FECS);
    });
    let both = measure("two devices: one sends, one holds", || {
        let mut world = World::new([0, 1].map(|side| config(side, FECS)));
        world.start();
        world.run_for(Duration::from_secs(1));
        world.ldp(0, LdpCommand::Advertise { range: 0, part: 0..FECS });
        world.run_for(Duration::from_secs(4));
        assert_eq!(world.peer(1).bindings().len() as u32, FECS);
    });
    let codec = 1.0 / (1.0 / writing + 1.0 / reading);
    println!("ratio of two devices to the codec's writing and reading: {:.2}", both / codec);
}
