//! tshark decodes everything that emulated routers send.

#[path = "../../../wire/tests/tshark/mod.rs"]
mod decoder;

use super::lan::{Lan, config, externals, topology};
use drophammer_emulation::ospf::{NetworkType, Networks, OspfCommand, OspfConfig, Part, Secret, Shape};
use drophammer_emulation::protocol::Command;
use std::collections::BTreeSet;

const ERROR: u32 = 0x0080_0000;

#[test]
fn tshark_finds_no_error_in_any_packet() {
    let secrets = [Secret::None, Secret::Simple("secret".into()), Secret::Md5 { key_id: 1, key: "key".into() }];
    for (name, secret) in ["null", "simple", "md5"].into_iter().zip(secrets) {
        let of = |n| OspfConfig { secret: secret.clone(), ..config(n, NetworkType::Broadcast) };
        let rich = OspfConfig {
            topology: Some(topology(100, Shape::Grid { columns: 10 })),
            inter_area: Some(Networks { first: [40, 0, 0, 0].into(), length: 16, count: 20, metric: 5 }),
            external: Some(externals(100)),
            ..of(1)
        };
        let mut lan = Lan::started(vec![rich, of(2), of(3)]);
        lan.lose_every = 9;
        lan.run(40);
        lan.order(0, OspfCommand::Withdraw(Part::External(0..50)));
        lan.run(20);
        lan.command(0, &Command::Stop);
        lan.run(1);
        let frames: Vec<_> = lan.frames.iter().map(|(at, frame)| (at.0, frame.as_slice())).collect();
        let fields = [
            "_ws.malformed",
            "_ws.expert.severity",
            "ip.checksum.status",
            "ospf.msg",
            "ospf.lsa",
            "_ws.expert.message",
        ];
        let Some(lines) = decoder::decode(name, &frames, &fields) else { return };
        let (mut messages, mut lsas) = (BTreeSet::new(), BTreeSet::new());
        for line in &lines {
            let worst = line[1].split(',').filter_map(|s| s.parse::<u32>().ok()).max().unwrap_or(0);
            assert!(line[0].is_empty() && worst < ERROR && line[2] == "1", "{name}: {line:?}");
            messages.insert(line[3].clone());
            lsas.extend(line[4].split(',').map(str::to_owned));
        }
        assert_eq!(messages, ["1", "2", "3", "4", "5"].map(str::to_owned).into(), "{name}");
        for kind in ["1", "2", "3", "5"] {
            assert!(lsas.contains(kind), "{name}: {kind} of {lsas:?}");
        }
    }
}
