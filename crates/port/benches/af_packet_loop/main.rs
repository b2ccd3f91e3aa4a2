//! How much of the machine's limit the `af_packet` loop reaches.
//!
//! On one veth pair, in one run, alternating: a bare loop of `sendmmsg` and `recvmmsg` over constant frames (the limit),
//! and Drophammer's loop with sequence, departure time, check, checksums and pseudo-random addresses, to one destination
//! and to a million, with `af_packet` and, where `bpf()` is allowed, with `af_xdp`. Prints the median of each and the ratios.
//!
//! `cargo bench -p drophammer-port --bench af_packet_loop` (no privilege needed where user namespaces are allowed).

mod bare;

use drophammer_lab::{Lab, LabOptions};
use drophammer_model::quantity::Instant;
use drophammer_model::trial::{AddressRange, Family, FlowSpec, Load, TrialSpec};
use drophammer_port::af_packet::AfPacket;
use drophammer_port::af_xdp::AfXdp;
use drophammer_port::{Arrival, Clock, Port, PortError, SystemClock};
use drophammer_traffic::{Control, Neighbour, Plan, Timing};
use drophammer_wire::MacAddr;
use drophammer_wire::signature::TrialKey;

const ROUNDS: usize = 7;
const SECONDS: f64 = 1.0;

struct Nobody;

impl Control for Nobody {
    fn receive(&mut self, _: usize, _: Arrival<'_>) -> Result<(), PortError> {
        Ok(())
    }
    fn poll(&mut self, now: Instant, _: &mut [Box<dyn Port>]) -> Result<Instant, PortError> {
        Ok(Instant(now.0 + 1_000_000_000))
    }
    fn stop(&self) -> bool {
        false
    }
}

/// Frames per second sent and received with full accounting.
fn drophammer(ports: &mut [Box<dyn Port>], clock: SystemClock, destinations: u32, trial: u64) -> f64 {
    let range = |first: [u8; 4], count| AddressRange { first: first.into(), step: 1, count };
    let spec = TrialSpec {
        purpose: "bench".into(),
        size: "64".parse().expect("a size"),
        flows: vec![FlowSpec {
            group: "all".into(),
            from: 0,
            to: 1,
            family: Family::Ipv4,
            sources: range([10, 200, 0, 2], 1),
            destinations: range([10, 0, 0, 0], destinations),
            weight: 1.0,
        }],
        load: Load::Maximum { limit_pps: 14_880_952.0 },
        duration_s: SECONDS,
        bin_s: None,
        drain_s: 0.2,
    };
    // Addresses of emulated hosts, not of the interfaces: the kernel's own stack lets go of such frames at once.
    let mac = |port: u64| MacAddr::local(port);
    let neighbours = [0, 1].map(|i| Neighbour { mac: mac(i), device_ipv4: Some(mac(1 - i)), device_ipv6: None });
    let timing = Timing {
        seed: 1,
        key: TrialKey::new(7, trial),
        earlier: vec![],
        max_backlog_ns: 200_000,
        late_ns: 1_000_000_000,
    };
    let plan = Plan::new(&spec, &neighbours, &timing).expect("a plan");
    let result = drophammer_traffic::run(plan, ports, &mut { clock }, &mut Nobody).expect("a trial");
    assert_eq!(result.health.receive_drops, 0, "the tester lost frames");
    assert!(result.received() > 0, "nothing came back: {result:#?}");
    assert_eq!(result.sum(|g| g.corrupted + g.stray + g.duplicated), 0, "{result:#?}");
    result.received() as f64 / result.sending_s.max(result.receiving_s)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let lab = Lab::enter(&LabOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    lab.pin_current_thread(lab.cpus().tester).unwrap_or_else(|e| panic!("{e}"));
    let pair = ("t0".to_owned(), "t1".to_owned());
    let up = |name: &str| format!("link set {name} arp off multicast off up");
    let lines = ["link add t0 type veth peer name t1".to_owned(), up("t0"), up("t1")];
    lab.tester().and_then(|t| t.ip(&lines)).unwrap_or_else(|e| panic!("{e}"));
    let clock = SystemClock::start();
    let (mut limit, mut one, mut million) = (vec![], vec![], vec![]);
    let (mut xdp_one, mut xdp_million) = (vec![], vec![]);
    for round in 0..ROUNDS as u64 {
        limit.push(bare::run(&pair.0, &pair.1, SECONDS));
        let open =
            |name: &str| -> Box<dyn Port> { Box::new(AfPacket::open(name, clock).unwrap_or_else(|e| panic!("{e}"))) };
        let mut ports = [open(&pair.0), open(&pair.1)];
        one.push(drophammer(&mut ports, clock, 1, round * 2));
        million.push(drophammer(&mut ports, clock, 1_000_000, round * 2 + 1));
        drop(ports);
        match (AfXdp::open(&pair.0, clock), AfXdp::open(&pair.1, clock)) {
            (Ok(a), Ok(b)) => {
                let mut ports: [Box<dyn Port>; 2] = [Box::new(a), Box::new(b)];
                xdp_one.push(drophammer(&mut ports, clock, 1, round * 2));
                xdp_million.push(drophammer(&mut ports, clock, 1_000_000, round * 2 + 1));
            }
            (Err(e), _) | (_, Err(e)) if round == 0 => println!("af_xdp is left out: {e}"),
            _ => {}
        }
    }
    let _ = clock.now();
    let (limit, one, million) = (median(&mut limit), median(&mut one), median(&mut million));
    println!("64-byte frames, one thread sends and receives, medians of {ROUNDS} alternating rounds of {SECONDS} s:");
    println!("  bare sendmmsg/recvmmsg, constant frames {limit:>10.0} fps   1.00");
    println!("  af_packet, 1 destination                {one:>10.0} fps   {:.2} of the bare loop", one / limit);
    println!("  af_packet, 1,000,000 destinations       {million:>10.0} fps   {:.2} of the bare loop", million / limit);
    println!("  1,000,000 destinations against one                         {:.2}", million / one);
    if !xdp_one.is_empty() {
        let (xdp_one, xdp_million) = (median(&mut xdp_one), median(&mut xdp_million));
        println!("  af_xdp, 1 destination                   {xdp_one:>10.0} fps   {:.2} of af_packet", xdp_one / one);
        println!(
            "  af_xdp, 1,000,000 destinations          {xdp_million:>10.0} fps   {:.2} of af_packet",
            xdp_million / million
        );
    }
}
