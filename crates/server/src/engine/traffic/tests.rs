//! Flows in virtual time, on two joined ports that need some time for each frame, like a machine that is too slow.

use super::super::wire::{self, LINK};
use super::*;
use crate::build::build;
use crate::model::Config;
use serde_json::{Value, json};

const MS: Duration = Duration::from_millis(1);
/// Longest time that a stop may take: for frames that are due, and for those in the DUT.
const SOON: Duration = Duration::from_millis(200);

struct Bench {
    rig: Rig,
    built: Built,
    flows: Flows,
    keys: TrialKeys,
}

impl Bench {
    fn new(cost: Duration, flows: &[Value]) -> Bench {
        Bench::rated(cost, flows, wire::at_once, None)
    }

    fn rated(cost: Duration, flows: &[Value], fate: wire::Fate, threshold: Option<f64>) -> Bench {
        let ports = json!([{"name": "p1", "location": "a"}, {"name": "p2", "location": "b"}]);
        let config = Config::read(json!({"ports": ports, "flows": flows})).unwrap();
        let built = build(&config, &[LINK; 2], 5).unwrap();
        let ports = wire::ports(5, cost, fate);
        let flows = Flows::new(&built.flows, 2, threshold);
        Bench { rig: Rig::new(ports, &built.rig), built, flows, keys: TrialKeys::new(5) }
    }

    fn start(&mut self, flows: &[usize]) {
        self.flows.start(&mut self.rig, &self.built, &mut self.keys, flows).unwrap();
    }

    /// Stops, pauses or resumes flows; returns how long that takes.
    fn change(&mut self, action: Action, flows: &[usize]) -> Duration {
        let before = self.rig.now();
        self.flows.change(&mut self.rig, action, flows).unwrap();
        self.rig.now().since(before)
    }

    /// Drives the traffic until this is true; returns how long that takes.
    fn until(&mut self, done: impl Fn(&Flows) -> bool) -> Duration {
        let begin = self.rig.now();
        while !done(&self.flows) {
            assert!(self.rig.now().since(begin) < Duration::from_secs(60), "it takes too long");
            self.flows.turn(&mut self.rig, 10 * MS).unwrap();
        }
        self.rig.now().since(begin)
    }

    fn wait(&mut self, time: Duration) {
        let end = self.rig.now() + time;
        while self.rig.now() < end {
            self.flows.turn(&mut self.rig, 10 * MS).unwrap();
        }
    }

    /// Frames of a flow: sent, received, and due but not sent.
    fn counts(&mut self, flow: usize) -> (u64, u64, u64) {
        self.flows.refresh(&mut self.rig);
        let row = &self.flows.rows[flow];
        (row.counts.frames_tx, row.counts.frames_rx, self.flows.unsent(row))
    }
}

fn flow(name: usize, rate: f64, frames: Option<u64>) -> Value {
    let duration = match frames {
        Some(frames) => json!({"fixed_packets": {"packets": frames}}),
        None => json!({"continuous": {}}),
    };
    json!({
        "name": format!("f{name}"), "tx_rx": {"port": {"tx_name": "p1", "rx_name": "p2"}},
        "packet": [{"ethernet": {}}, {"ipv4": {}}, {"udp": {}}], "rate": {"pps": rate}, "duration": duration,
        "metrics": {"enable": true, "latency": {"enable": true}},
    })
}

fn is(state: &'static str, row: usize) -> impl Fn(&Flows) -> bool {
    move |flows| flows.state(&flows.rows[row]) == state
}

/// The ports send 10,000 frames per second.
const TOO_SLOW: Duration = Duration::from_micros(100);

#[test]
fn a_slow_flow_beside_too_much_load_sends_all_its_frames_and_a_stop_is_quick() {
    let others = [1, 2, 3, 4];
    let mut flows = vec![flow(0, 5.0, Some(10))];
    flows.extend(others.map(|i| flow(i, 5_000.0, None)));
    let mut bench = Bench::new(TOO_SLOW, &flows);
    bench.start(&[0, 1, 2, 3, 4]);
    // They are due within 1.8 s, and later ones leave more than 0.2 s after one another.
    let took = bench.until(is("stopped", 0));
    assert_eq!(bench.counts(0), (10, 10, 0), "when it says that it has stopped");
    assert!(took > Duration::from_millis(2_500), "{took:?}: the load is not too much");
    let took = bench.change(Action::Stop, &others);
    assert!(took < SOON && !bench.flows.are_running(), "{took:?}");
    let mut left_out = 0;
    for i in others {
        let (sent, received, unsent) = bench.counts(i);
        assert!(
            sent == received && sent > 5_000 && unsent > 5_000,
            "{sent} sent, {received} received, {unsent} unsent"
        );
        left_out += unsent;
    }
    assert_eq!(bench.flows.left_out, left_out);
    // They are forgotten when the flow starts again.
    bench.start(&[1]);
    bench.wait(50 * MS);
    let (sent, _, unsent) = bench.counts(1);
    assert!(sent > 0 && sent < 1_000 && unsent == 0, "{sent} sent, {unsent} unsent");
}

#[test]
fn what_a_pause_holds_back_leaves_later() {
    let mut bench = Bench::new(TOO_SLOW, &[flow(0, 20_000.0, Some(5_000))]);
    bench.start(&[0]);
    bench.wait(200 * MS);
    assert!(bench.change(Action::Pause, &[0]) < SOON);
    let (paused, ..) = bench.counts(0);
    bench.wait(500 * MS);
    assert_eq!(bench.counts(0), (paused, paused, 0));
    assert!(paused > 2_000 && paused < 4_000 && is("paused", 0)(&bench.flows), "{paused}");
    bench.change(Action::Resume, &[0]);
    bench.until(|flows| !flows.are_running());
    assert_eq!(bench.counts(0), (5_000, 5_000, 0));
}

#[test]
fn a_delay_is_no_fall_of_the_rate_and_a_gap_is() {
    let slow = |_: &[u8]| vec![150 * MS];
    let mut bench = Bench::rated(Duration::from_micros(1), &[flow(0, 1_000.0, Some(2_000))], slow, Some(95.0));
    bench.start(&[0]);
    bench.until(|flows| !flows.are_running());
    assert_eq!(bench.counts(0), (2_000, 2_000, 0));
    assert_eq!(bench.flows.rows[0].rates.crossings().count(), 0);
    let lost = |_: &[u8]| Vec::<Duration>::new();
    let mut bench = Bench::rated(Duration::from_micros(1), &[flow(0, 1_000.0, Some(2_000))], lost, Some(95.0));
    bench.start(&[0]);
    bench.until(|flows| !flows.are_running());
    assert_eq!(bench.flows.rows[0].rates.crossings().filter(|crossing| !crossing.rose).count(), 1);
}

#[test]
fn what_spoilt_a_row_stays_when_other_flows_start() {
    let mut bench = Bench::new(TOO_SLOW, &[flow(0, 20_000.0, None), flow(1, 100.0, Some(10))]);
    bench.start(&[0]);
    bench.wait(200 * MS);
    bench.change(Action::Stop, &[0]);
    let (.., unsent) = bench.counts(0);
    assert!(unsent > 0);
    (bench.flows.failure, bench.flows.clock_step_ns) = (Some("a port failed".into()), 60_000);
    bench.start(&[1]);
    let faults = |bench: &Bench, row: usize| {
        let Faults { unsent, failure, clock_step_ns } = bench.flows.faults(&bench.flows.rows[row]);
        (unsent, failure, clock_step_ns)
    };
    let earlier = (unsent, Some("a port failed".to_owned()), 60_000);
    assert_eq!((faults(&bench, 0), faults(&bench, 1)), (earlier.clone(), (0, None, 0)));
    bench.until(|flows| !flows.are_running());
    assert_eq!((faults(&bench, 0), faults(&bench, 1)), (earlier, (0, None, 0)));
    bench.start(&[0]);
    assert_eq!(faults(&bench, 0), (0, None, 0), "it starts anew");
}

#[test]
fn a_failure_long_after_a_row_has_ended_does_not_spoil_it() {
    let mut bench = Bench::new(Duration::from_micros(1), &[flow(0, 1_000.0, Some(10)), flow(1, 1_000.0, None)]);
    let failed = |bench: &mut Bench| {
        bench.flows.refresh(&mut bench.rig);
        bench.flows.failure = Some("a port failed".into());
        let found = [0, 1].map(|row| bench.flows.faults(&bench.flows.rows[row]).failure.is_some());
        bench.flows.failure = None;
        found
    };
    bench.start(&[0, 1]);
    bench.until(is("stopped", 0));
    assert_eq!(failed(&mut bench), [true, true], "frames may still be on their way");
    bench.wait(1_100 * MS);
    assert_eq!(failed(&mut bench), [false, true]);
    bench.start(&[0]);
    assert_eq!(failed(&mut bench), [true, true]);
}

#[test]
fn a_flow_that_starts_again_does_not_count_frames_of_before() {
    let mut bench = Bench::new(TOO_SLOW, &[flow(0, 20_000.0, Some(3_000)), flow(1, 5.0, None)]);
    bench.start(&[0, 1]);
    bench.wait(100 * MS);
    bench.start(&[0]);
    bench.until(is("stopped", 0));
    bench.change(Action::Stop, &[1]);
    assert_eq!(bench.counts(0), (3_000, 3_000, 0));
    let row = &bench.flows.rows[0];
    let latencies = bench.flows.latencies(&bench.rig, row);
    assert_eq!(latencies.0.iter().map(|(_, frames)| frames).sum::<u64>(), 3_000);
    // A frame takes as long as its port needs for it and for the frames before it in a burst.
    let [min, mean, max] = row.counts.latency_ns(|| latencies).unwrap();
    assert!(99_000.0 < min && min < mean && mean < max && max <= 64.0 * 100_000.0, "{min} {mean} {max}");
}

#[test]
fn four_thousand_flows_are_counted_exactly_while_they_are_read() {
    let flows: Vec<Value> = (0..4_096).map(|i| flow(i, 50.0, Some(10))).collect();
    let mut bench = Bench::new(Duration::from_micros(1), &flows);
    let all: Vec<usize> = (0..flows.len()).collect();
    bench.start(&all);
    while bench.flows.are_running() {
        bench.flows.turn(&mut bench.rig, 10 * MS).unwrap();
        bench.flows.refresh(&mut bench.rig);
    }
    let wrong: Vec<usize> = all.into_iter().filter(|flow| bench.counts(*flow) != (10, 10, 0)).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    let row = &bench.flows.rows[4_095];
    assert_eq!(bench.flows.latencies(&bench.rig, row).0.iter().map(|(_, frames)| frames).sum::<u64>(), 10);
}
