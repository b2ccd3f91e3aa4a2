//! The engine on 1, 2, 4 ... threads, each with its own ports, flows and processor.

use crate::{FRAMES, Nobody, analyzer, flow, generator, median, plan_of, received_rate};
use drophammer_port::priority::{HighPriority, pin};
use drophammer_port::{Port, SystemClock, memory};
use drophammer_traffic::{Layout, run_lanes};
use drophammer_wire::MacAddr;
use std::sync::Barrier;
use std::time::Duration;

/// More rounds than for one thread, because a disturbance of one thread affects all.
const ROUNDS: usize = 15;
const DESTINATIONS: u32 = 1_000_000;
/// Length of a trial.
const SECONDS: f64 = 0.1;

type Part = (&'static str, fn(&[usize]) -> f64);

const PARTS: &[Part] = &[
    ("generator, 1,000,000 destinations", |on| at_once(on, || generator(1, DESTINATIONS))),
    ("analyzer, 1 flow", |on| at_once(on, || analyzer(1))),
    ("both in memory, flows stay on their thread", |on| trial(on, false)),
    ("both in memory, flows go to the next thread", |on| trial(on, true)),
];

/// Frames per second of all threads together, one per processor; each runs `work` on [`FRAMES`] frames.
fn at_once(processors: &[usize], work: fn() -> Duration) -> f64 {
    let start = Barrier::new(processors.len());
    std::thread::scope(|scope| {
        let thread = |processor: usize| {
            let start = &start;
            scope.spawn(move || {
                pin(processor).expect("a processor that we may use");
                let _priority = HighPriority::new();
                start.wait();
                FRAMES as f64 / work().as_secs_f64()
            })
        };
        let threads: Vec<_> = processors.iter().map(|p| thread(*p)).collect();
        threads.into_iter().map(|t| t.join().expect("a thread that counts")).sum()
    })
}

/// Frames per second of all lanes together, through the loop of a trial. Each lane has two memory ports and sends by
/// the first; its far end belongs to the same lane, or to the next one.
fn trial(processors: &[usize], crossing: bool) -> f64 {
    let lanes = processors.len();
    let clock = SystemClock::start();
    pin(processors[0]).expect("a processor that we may use");
    // Port i and port lanes + i are on lane i.
    let layout = Layout::round_robin(2 * lanes, lanes);
    let partner = |i: usize| lanes + (i + usize::from(crossing)) % lanes;
    let mut ports: Vec<Option<Box<dyn Port + Send>>> = (0..2 * lanes).map(|_| None).collect();
    for i in 0..lanes {
        let [a, b] = memory::pair([MacAddr::local(0), MacAddr::local(1)], 1_500, clock);
        ports[i] = Some(Box::new(a));
        ports[partner(i)] = Some(Box::new(b));
    }
    let mut ports: Vec<_> = ports.into_iter().map(|port| port.expect("every port has its partner")).collect();
    let flows = (0..lanes).map(|i| flow(i, partner(i), DESTINATIONS)).collect();
    let plan = plan_of(flows, layout, SECONDS);
    let mut others: Vec<Nobody> = (1..lanes).map(|_| Nobody).collect();
    let result = run_lanes(plan, &mut ports, clock, &processors[1..], &mut Nobody, &mut others).expect("a trial");
    received_rate(&result)
}

/// Prints the table: every part on 1, 2, 4 ... and all `processors`.
pub fn run(processors: &[usize]) {
    let mut counts: Vec<usize> =
        std::iter::successors(Some(1), |n| Some(n * 2)).take_while(|n| *n < processors.len()).collect();
    counts.push(processors.len());
    let mut rates = vec![vec![Vec::new(); counts.len()]; PARTS.len()];
    for _ in 0..ROUNDS {
        for ((_, part), rates) in PARTS.iter().zip(&mut rates) {
            counts.iter().zip(rates).for_each(|(n, rates)| rates.push(part(&processors[..*n])));
        }
    }
    println!(
        "64-byte IPv4 frames on several threads, each on its processor, {ROUNDS} alternating rounds; M frames/s of all"
    );
    println!(
        "threads together and efficiency (rate over threads times the rate of one), of the median and of the best round:"
    );
    println!("  {:<44} {:>7}  {:>7} {:>6}  {:>7} {:>6}", "", "threads", "median", "", "best", "");
    for ((name, _), rates) in PARTS.iter().zip(&mut rates) {
        let medians: Vec<f64> = rates.iter_mut().map(|rates| median(rates)).collect();
        let bests: Vec<f64> = rates.iter().map(|rates| rates.iter().copied().fold(0.0, f64::max)).collect();
        for ((n, median), best) in counts.iter().zip(&medians).zip(&bests) {
            let efficiency = |rate: f64, one: f64| rate / (*n as f64 * one);
            println!(
                "  {name:<44} {n:>7}  {:>7.1} {:>6.2}  {:>7.1} {:>6.2}",
                median / 1e6,
                efficiency(*median, medians[0]),
                best / 1e6,
                efficiency(*best, bests[0])
            );
        }
    }
}
