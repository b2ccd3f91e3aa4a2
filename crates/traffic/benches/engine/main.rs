//! Benchmark of the engine alone: generator, analyzer, and both over ports in memory; on one thread, and on several.
//!
//! In one run, it alternates between a bare copy of the same 60-byte frames (64 with FCS) from a batch of templates
//! into slots (the limit), and each part with all its work in a trial. Prints the median of each, and its ratio to the
//! limit.
//!
//! `cargo bench -p drophammer-traffic --bench engine`; with privilege it runs at high priority. A word after `--` selects the parts with that word in
//! their names; `scaling` selects the ones on several threads.

mod scaling;

use drophammer_model::quantity::Instant;
use drophammer_model::routes::{AttributePattern, RouteRange, Routes};
use drophammer_model::traffic::{
    Arriving, ArrivingLabel, ArrivingTag, Bits, Ethernet, Field, Header, Ipv4, Mpls, Udp, Vlan,
};
use drophammer_model::trial::{AddressRange, Family, FlowSpec, Load, Targets, TrialResult, TrialSpec};
use drophammer_port::priority::{HighPriority, pin, usable};
use drophammer_port::{
    Arrival, BURST, Batch, Port, PortCounters, PortError, PortInfo, Received, Sent, SystemClock, info_and_slots, memory,
};
use drophammer_traffic::generator::PortGenerator;
use drophammer_traffic::permutation::Permutation;
use drophammer_traffic::{Control, Layout, Neighbour, Plan, SendFrame, Timing};
use drophammer_wire::MacAddr;
use drophammer_wire::signature::TrialKey;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant as Stopwatch};

const ROUNDS: usize = 9;
/// Frames per part and round.
const FRAMES: usize = 1 << 22;
/// Frames generated at a time for the analyzer, before any of them is timed.
const STOCK: usize = 1 << 18;
/// Frames shuffled together; fewer than there are flows, so that no flow is reordered.
const CHUNK: usize = 8_192;
/// Frames timed together. They are adjacent in the cache, like frames that a port has just received.
const LENT: usize = 1_024;
/// Length of a 64-byte frame without FCS.
const LEN: usize = 60;
/// Length of the shortest frame with two tags, and with three labels: Ethernet, 4 bytes each, IPv4, UDP, signature.
const TAGGED: usize = 14 + 8 + 40;
const LABELLED: usize = 14 + 12 + 40;
/// A rate that is never reached, so that a frame is always due.
const LIMIT_PPS: f64 = 1e9;

/// A port that accepts every frame, and keeps only the last burst.
struct Sink {
    info: PortInfo,
    slots: Batch,
}

impl Sink {
    fn new() -> Sink {
        let info = PortInfo::new("sink", &drophammer_port::memory::SPEC, "none", MacAddr::local(0), 1_500);
        Sink { info, slots: Batch::new(BURST, 25 * 64) }
    }
}

impl Port for Sink {
    info_and_slots!();
    fn send(&mut self, frames: usize) -> Result<Sent, PortError> {
        black_box(&self.slots);
        Ok(Sent { accepted: frames as u32, ..Sent::default() })
    }
    fn receive(&mut self) -> Result<Received<'_>, PortError> {
        unreachable!("nothing is received here")
    }
    fn counters(&mut self) -> Result<PortCounters, PortError> {
        Ok(PortCounters::default())
    }
}

struct Nobody;

impl Control for Nobody {
    fn receive(&mut self, _: usize, _: Arrival<'_>) -> Result<(), PortError> {
        Ok(())
    }
    fn poll(&mut self, now: Instant, _: &mut SendFrame<'_>) -> Result<Instant, PortError> {
        Ok(Instant(now.0 + 1_000_000_000))
    }
    fn stop(&self) -> bool {
        false
    }
}

fn flow(from: usize, to: usize, destinations: u32) -> FlowSpec {
    let range = |first: [u8; 4], count| AddressRange { first: first.into(), step: 1, count };
    FlowSpec::new("all", from, to, range([10, 200, 0, 2], 1), range([10, 0, 0, 0], destinations))
}

/// A flow to a million routes, counted by route.
fn to_routes(routes: Routes) -> FlowSpec {
    let destinations = Targets::Routes { count: routes.len(), routes: Arc::new(routes), first: 0 };
    FlowSpec { destinations, per_destination: true, ..flow(0, 1, 1) }
}

/// A flow to `destinations` behind the tags or labels of `front`.
fn behind(front: Vec<Header>, arrives: Arriving, destinations: u32) -> FlowSpec {
    let destination = Some(Field::Value(MacAddr::local(1)));
    let ethernet = Header::Ethernet(Ethernet { destination, ..Ethernet::default() });
    let inner = [Header::Ipv4(Ipv4::default()), Header::Udp(Udp::default())];
    FlowSpec {
        headers: [ethernet].into_iter().chain(front).chain(inner).collect(),
        arrives: Some(arrives),
        ..flow(0, 1, destinations)
    }
}

fn two_tags(destinations: u32) -> FlowSpec {
    let vids = [Bits::new(100), Bits::new(200)];
    let tag = |vid| Header::Vlan(Vlan { vid: Field::Value(vid), ..Vlan::default() });
    let vlans = vids.map(|vid| ArrivingTag { vid, pcp: None }).to_vec();
    behind(vids.map(tag).to_vec(), Arriving { vlans, ..Arriving::default() }, destinations)
}

fn three_labels(destinations: u32) -> FlowSpec {
    let labels = [Bits::new(16), Bits::new(17), Bits::new(18)];
    let header = |label| Header::Mpls(Mpls { label: Field::Value(label), ..Mpls::default() });
    let arriving = labels.map(|label| ArrivingLabel { label, tc: None, ttl: None }).to_vec();
    behind(labels.map(header).to_vec(), Arriving { labels: arriving, ..Arriving::default() }, destinations)
}

fn plan(flows: u32, destinations: u32, seconds: f64) -> Plan {
    plan_of(vec![flow(0, 1, destinations); flows as usize], Layout::one(2), seconds)
}

fn one_flow(flow: FlowSpec) -> Plan {
    plan_of(vec![flow], Layout::one(2), 2.0)
}

fn plan_of(flows: Vec<FlowSpec>, layout: Layout, seconds: f64) -> Plan {
    let spec = TrialSpec {
        purpose: "bench".into(),
        size: "64".parse().expect("a size"),
        flows,
        load: Load::Maximum { limit_pps: LIMIT_PPS },
        duration_s: seconds,
        bin_s: Some(0.1),
        drain_s: 0.2,
        events: vec![],
    };
    let mac = |port: usize| MacAddr::local(port as u64);
    // Frames are addressed to the far end; a port that only receives has none.
    let far = |port| spec.flows.iter().find(|f| f.from == port).map_or(port, |f| f.to);
    let neighbour = |i| Neighbour { mac: mac(i), device_ipv4: Some(mac(far(i))), device_ipv6: None, vlans: Vec::new() };
    let neighbours: Vec<_> = (0..layout.ports()).map(neighbour).collect();
    let (key, late_ns) = (TrialKey::new(7, 1), 1_000_000_000);
    let timing = Timing { seed: 1, key, earlier: vec![], max_backlog_ns: 200_000, late_ns };
    Plan::on_lanes(&spec, &neighbours, &timing, layout).expect("a plan")
}

/// A time at which all frames of this benchmark are due.
const NOW: Instant = Instant(1_000_000_000);

fn copy() -> Duration {
    let (mut templates, mut slots) = (Batch::new(BURST, 25 * 64), Batch::new(BURST, 25 * 64));
    (0..BURST).for_each(|i| templates.put(i, &[i as u8; LEN]));
    let watch = Stopwatch::now();
    for _ in 0..FRAMES / BURST {
        for i in 0..BURST {
            let frame = black_box(&templates).frame(i);
            slots.slot(i, u32::MAX, frame.len()).0.copy_from_slice(frame);
        }
        black_box(&slots);
    }
    watch.elapsed()
}

fn generator(flows: u32, destinations: u32) -> Duration {
    generator_of(plan(flows, destinations, 2.0))
}

/// A table like the Internet's.
fn internet() -> Routes {
    RouteRange::internet(Family::Ipv4, 1_000_000, 1).expect("routes").into()
}

/// Prefixes of one length.
fn uniform() -> Routes {
    let first = "16.0.0.0/24".parse().expect("a prefix");
    RouteRange::uniform(first, 1_000_000, 1, AttributePattern::default()).expect("routes").into()
}

fn generator_of(plan: Plan) -> Duration {
    let (mut generators, _) = plan.into_parts(Instant(1));
    let mut sink = Sink::new();
    let watch = Stopwatch::now();
    for _ in 0..FRAMES / BURST {
        assert_eq!(generators[0].send_due(&mut sink, NOW).expect("a burst"), BURST);
    }
    watch.elapsed()
}

/// Fills `frames` with the next frames of the generator.
fn make<const N: usize>(generator: &mut PortGenerator, sink: &mut Sink, frames: &mut [[u8; N]]) {
    for burst in frames.chunks_mut(BURST) {
        assert_eq!(generator.send_due(sink, NOW).expect("a burst"), BURST);
        burst.iter_mut().enumerate().for_each(|(i, f)| f.copy_from_slice(sink.slots.frame(i)));
    }
}

/// Indices of a chunk in the order of arrival: as sent with one flow, shuffled with many. One frame in 1,000 is lost, one is duplicated, and one
/// arrives two places late.
fn order(flows: u32, chunk: u64) -> Vec<u32> {
    let mut order: Vec<u32> = (0..CHUNK as u32).collect();
    if flows > 1 {
        let shuffled = Permutation::new(CHUNK as u32, chunk);
        order.iter_mut().for_each(|place| *place = shuffled.at(*place));
    }
    for at in (500..CHUNK - 500).step_by(1_000) {
        order[at] = order[at - 1];
        order.swap(at + 200, at + 202);
    }
    order
}

fn analyzer(flows: u32) -> Duration {
    analyzer_of::<LEN>(plan(flows, 1_000_000, 2.0), flows)
}

/// Analyzer time for frames of `N` bytes without FCS.
fn analyzer_of<const N: usize>(plan: Plan, flows: u32) -> Duration {
    let (mut generators, mut analyzer) = plan.into_parts(Instant(1));
    let mut sink = Sink::new();
    let mut stock = vec![[0u8; N]; STOCK];
    let mut lent = vec![([0u8; N], NOW); LENT];
    let mut time = Duration::ZERO;
    let mut distinct = 0;
    for chunk in 0..(FRAMES / CHUNK) as u64 {
        let at = chunk as usize * CHUNK % STOCK;
        if at == 0 {
            make(&mut generators[0], &mut sink, &mut stock);
        }
        let mut order = order(flows, chunk);
        for places in order.chunks(LENT) {
            for (i, (place, (frame, arrival))) in places.iter().zip(&mut lent).enumerate() {
                *frame = stock[at + *place as usize];
                // Between 10 and 70 µs after departure.
                *arrival = Instant(NOW.0 + 10_000 + i as u64 * 7_919 % 60_000);
            }
            let watch = Stopwatch::now();
            for burst in lent.chunks(BURST) {
                let get = |i: usize| Arrival { frame: black_box(&burst[i].0), at: burst[i].1 };
                analyzer.take_burst(1, burst.len(), get, |_| Err("not test traffic")).expect("test traffic");
            }
            time += watch.elapsed();
        }
        order.sort_unstable();
        order.dedup();
        distinct += order.len() as u64;
    }
    assert_eq!(analyzer.distinct(), distinct, "a frame was counted wrongly");
    time
}

/// Frames per second through the loop of a trial and a pair of memory ports.
fn both(destinations: u32) -> f64 {
    let clock = SystemClock::start();
    let mut ports =
        memory::pair([MacAddr::local(0), MacAddr::local(1)], 1_500, clock).map(|p| Box::new(p) as Box<dyn Port>);
    let plan = plan(1, destinations, 0.1);
    received_rate(&drophammer_traffic::run(plan, &mut ports, &mut { clock }, &mut Nobody).expect("a trial"))
}

/// Frames per second of all ports together. Checks that every sent frame has arrived.
fn received_rate(result: &TrialResult) -> f64 {
    assert_eq!(result.lost() + result.sum(|g| g.corrupted + g.stray + g.duplicated + g.reordered), 0, "{result:#?}");
    assert!(result.received() > 0);
    result.received() as f64 / result.sending_s.max(result.receiving_s)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

type Part = (&'static str, fn() -> f64);

fn rate(time: Duration) -> f64 {
    FRAMES as f64 / time.as_secs_f64()
}

const PARTS: &[Part] = &[
    ("bare copy of 60 bytes per frame", || rate(copy())),
    ("generator, 1 destination", || rate(generator(1, 1))),
    ("generator, 1,000,000 destinations", || rate(generator(1, 1_000_000))),
    ("generator, 1,000,000 routes like the Internet's", || rate(generator_of(one_flow(to_routes(internet()))))),
    ("generator, 1,000,000 uniform routes", || rate(generator_of(one_flow(to_routes(uniform()))))),
    ("generator, two VLAN tags", || rate(generator_of(one_flow(two_tags(1))))),
    ("generator, three labels", || rate(generator_of(one_flow(three_labels(1))))),
    ("analyzer, 1 flow", || rate(analyzer(1))),
    ("analyzer, 1 flow, two VLAN tags", || rate(analyzer_of::<TAGGED>(one_flow(two_tags(1_000_000)), 1))),
    ("analyzer, 1 flow, three labels", || rate(analyzer_of::<LABELLED>(one_flow(three_labels(1_000_000)), 1))),
    ("analyzer, 1 flow by destination", || {
        rate(analyzer_of::<LEN>(one_flow(FlowSpec { per_destination: true, ..flow(0, 1, 1_000_000) }), 1))
    }),
    ("analyzer, 10,000 flows at random", || rate(analyzer(10_000))),
    ("both in memory, 1 destination", || both(1)),
    ("both in memory, 1,000,000 destinations", || both(1_000_000)),
];

fn main() {
    let only = std::env::args().skip(1).find(|a| !a.starts_with('-')).unwrap_or_default();
    let processors = usable();
    let _priority = HighPriority::new();
    if only != "scaling" {
        // The first processor serves more interrupts than others.
        pin(*processors.last().expect("a processor")).expect("a processor that we may use");
        one_thread(&only);
    }
    if only.is_empty() || only == "scaling" {
        scaling::run(&processors);
    }
}

fn one_thread(only: &str) {
    let parts: Vec<&Part> =
        PARTS.iter().enumerate().filter(|(i, p)| *i == 0 || p.0.contains(only)).map(|p| p.1).collect();
    let mut rates = vec![Vec::new(); parts.len()];
    for _ in 0..ROUNDS {
        parts.iter().zip(&mut rates).for_each(|((_, part), rates)| rates.push(part()));
    }
    let limit = median(&mut rates[0]);
    println!("64-byte IPv4 frames on one thread, medians of {ROUNDS} alternating rounds, and the best one:");
    for ((name, _), rates) in parts.iter().zip(&mut rates) {
        let rate = median(rates);
        let best = rates.last().copied().unwrap_or(rate);
        println!(
            "  {name:<48} {:>7.1} M frames/s  {:>6.2} ns  {:.3} of the copy, best {:>5.1}",
            rate / 1e6,
            1e9 / rate,
            rate / limit,
            best / 1e6
        );
    }
}
