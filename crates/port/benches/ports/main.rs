//! Compares Drophammer's backends with bare loops of system calls and with other generators: one veth pair, one
//! processor, one frame size, alternately.
//!
//! `cargo bench -p drophammer-port --bench ports` (or `make bench-ports`, which installs the peers first). Needs no privilege if
//! user namespaces are allowed; backends that need root are then left out with a message. Arguments after `--`: `--rounds N`,
//! `--seconds S` per row and round, `--json FILE`, and words: only rows whose title and name contain all of them are measured.
//!
//! The sending end has no address; the receiving end is up with ARP off, and the frames have a MAC address of no
//! interface, so that the receiving kernel drops them immediately. In rows that receive, a socket of the row takes them
//! before that.

mod bare;
mod links;
mod peers;
#[path = "../../tests/trial/mod.rs"]
mod setting;
mod table;
mod trial;

use drophammer_lab::{Lab, LabOptions};
use drophammer_port::priority::HighPriority;
use drophammer_port::{INTERFACE_BACKENDS, af_xdp};
use links::{FROM, Sample, TO};
use table::{BARE, Kind, Line, TRAFGEN};

type Run = Box<dyn Fn(&Lab, f64) -> Result<Sample, String>>;

/// All rows. Each backend of [`INTERFACE_BACKENDS`] has its rows.
fn rows() -> Vec<(Kind, String, Run)> {
    let mut rows: Vec<(Kind, String, Run)> = vec![
        (Kind::Send, BARE.into(), Box::new(|_, s| Ok(bare::send(s)))),
        (Kind::Send, TRAFGEN.into(), Box::new(peers::trafgen)),
        (Kind::Send, "pktgen (kernel), constant frame".into(), Box::new(peers::pktgen)),
        (Kind::Both, BARE.into(), Box::new(|_, s| Ok(bare::both(s)))),
    ];
    for (kind, run) in [(Kind::Send, trial::send as fn(_, _, _) -> _), (Kind::Both, trial::both)] {
        for backend in INTERFACE_BACKENDS {
            for (destinations, text) in [(1, "1 destination"), (1_000_000, "1,000,000 destinations")] {
                let name = format!("drophammer {}, {text}", backend.spec.name);
                rows.push((kind, name, Box::new(move |_, seconds| run(backend, destinations, seconds))));
            }
        }
    }
    // One thread that sends without a pause does the receive work of each frame immediately, between two frames that
    // it sends. Behind a router, which sends many at a time, the receive work is batched.
    for backend in INTERFACE_BACKENDS.iter().filter(|backend| backend.spec.name == af_xdp::SPEC.name) {
        let name = format!("drophammer {}, far end collects frames", backend.spec.name);
        rows.push((Kind::Both, name, Box::new(move |_, seconds| trial::both_gathered(backend, 1_000_000, seconds))));
    }
    rows
}

struct Arguments {
    rounds: usize,
    seconds: f64,
    json: Option<String>,
    only: Vec<String>,
}

fn arguments() -> Arguments {
    let mut arguments = Arguments { rounds: 9, seconds: 1.0, json: None, only: vec![] };
    let mut given = std::env::args().skip(1);
    while let Some(argument) = given.next() {
        let mut value = || given.next().unwrap_or_else(|| panic!("{argument} wants a value"));
        match argument.as_str() {
            "--rounds" => arguments.rounds = value().parse().expect("--rounds wants a number"),
            "--seconds" => arguments.seconds = value().parse().expect("--seconds wants a number"),
            "--json" => arguments.json = Some(value()),
            // cargo passes this to every benchmark.
            "--bench" => {}
            word if !word.starts_with('-') => arguments.only.push(argument),
            other => panic!("unknown argument {other}"),
        }
    }
    assert!(arguments.rounds > 0 && arguments.seconds > 0.0, "there is nothing to measure");
    arguments
}

fn main() {
    let arguments = arguments();
    // Opened before entering the lab, where relative paths may differ.
    let json =
        arguments.json.as_ref().map(|path| std::fs::File::create(path).unwrap_or_else(|e| panic!("{path}: {e}")));
    let lab = Lab::enter(&LabOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    let cpu = lab.cpus().tester;
    lab.pin_current_thread(cpu).unwrap_or_else(|e| panic!("{e}"));
    let priority = HighPriority::new();
    let up = |name: &str| format!("link set {name} arp off multicast off up");
    let lines = [format!("link add {FROM} type veth peer name {TO}"), up(FROM), up(TO)];
    lab.tester().and_then(|t| t.ip(&lines)).unwrap_or_else(|e| panic!("{e}"));

    let wanted = |(kind, name, _): &(Kind, String, Run)| {
        arguments.only.iter().all(|word| kind.title().contains(word.as_str()) || name.contains(word.as_str()))
    };
    let rows: Vec<_> = rows().into_iter().filter(wanted).collect();
    let mut lines: Vec<Line> =
        rows.iter().map(|(kind, name, _)| Line { name: name.clone(), kind: *kind, samples: vec![] }).collect();
    for _ in 0..arguments.rounds {
        for ((_, _, run), line) in rows.iter().zip(&mut lines) {
            line.samples.push(run(&lab, arguments.seconds));
        }
    }

    println!(
        "64-byte frames (60 and FCS) over one veth pair, all on processor {cpu}{}, {} rounds of {} s in turns.",
        if priority.is_granted() { " before other work (nice -20)" } else { "" },
        arguments.rounds,
        arguments.seconds
    );
    println!(
        "k/s: thousand frames per second; k/cpu-s: per second of processor time that the sender got, with least and most.\n\
         Ratios compare k/cpu-s within a round. All numbers are medians. The interface counts the sent frames.\n"
    );
    print!("{}", table::text(&lines));
    if let Some(file) = json {
        let value = table::json(&lines, arguments.rounds, arguments.seconds);
        serde_json::to_writer_pretty(file, &value).unwrap_or_else(|e| panic!("JSON: {e}"));
    }
}
