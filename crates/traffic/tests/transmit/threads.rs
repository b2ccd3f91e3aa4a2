//! Traffic on several threads, with commands from another one.

use super::*;
use drophammer_port::{SystemClock, memory};
use std::thread;

#[test]
fn lanes_stop_and_start_at_the_same_instant() {
    let range = |first: [u8; 4], count| AddressRange { first: std::net::Ipv4Addr::from(first).into(), step: 1, count };
    let flow = |group: &str, from: usize| {
        let ends = [range([198, 18, 0, 1], 4), range([198, 19, 0, 1], 4)];
        FlowSpec::new(group, from, 1 - from, ends[from], ends[1 - from])
    };
    let flows = vec![flow("a", 0), flow("b", 0), flow("b", 1), flow("a", 1)];
    let spec = TrialSpec { bin_s: None, ..spec("64", flows, Load::Constant { rate_pps: 20_000.0 }, 0.4) };
    let macs = [MacAddr::local(0), MacAddr::local(1)];
    for (queues, lanes) in [(1, 1), (1, 2), (2, 2), (2, 3)] {
        // Rings in memory are short, and may refuse frames while a thread waits for its processor.
        let whole = (0..50).find_map(|_| {
            let clock = SystemClock::start();
            let ends = memory::queues(macs, 1_500, clock, [queues; 2]);
            let mut ports: Vec<_> = ends.into_iter().flatten().map(|p| Box::new(p) as Box<dyn Port + Send>).collect();
            let layout = Layout::queues(&[queues as usize; 2], lanes);
            // A lane sends all frames, however late, because the machine may be busy.
            let mut traffic = traffic_of(&spec, layout, 60 * SECOND);
            let live = traffic.live();
            for (group, action, at) in [("a", Stop, 100), ("b", Pause, 150), ("b", Resume, 200), ("a", Start, 250)] {
                live.transmit(FlowSelect::Groups(&[group]), action, Some(ms(at))).unwrap();
            }
            let (mut first, mut others) = (Still::default(), Vec::new());
            others.resize_with(lanes - 1, Still::default);
            traffic.drive_lanes(&mut ports, clock, &[], &mut first, &mut others, Instant(u64::MAX)).unwrap();
            let result = merge(&traffic.reports());
            // 10,000 frames per second and flow: group a for 250 ms, group b for 350 ms.
            let intended: Vec<_> = result.groups.iter().map(|g| (g.intended, g.stopped.len())).collect();
            assert_eq!(intended, [(5_000, 2), (7_000, 2)], "{queues} queues, {lanes} lanes");
            assert_eq!((result.lost(), result.offered() + result.health.unsent), (0, 12_000));
            (result.health.unsent == 0).then_some(result)
        });
        let result = whole.expect("one of 50 trials has all its frames");
        for (group, frames) in result.groups.iter().zip([5_000, 7_000]) {
            assert_eq!((group.offered, group.received), (frames, frames), "{queues} queues, {lanes} lanes");
        }
    }
}

/// Ends the traffic even if the test fails.
struct Ending(Live);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end_sending();
    }
}

#[test]
fn another_thread_stops_and_starts_flows() {
    let mut spec = two(true);
    spec.duration_s = CONTINUOUS.as_secs_f64();
    spec.bin_s = None;
    spec.load = Load::Constant { rate_pps: 30_000.0 };
    let macs = [MacAddr::local(0), MacAddr::local(1)];
    let clock = SystemClock::start();
    let mut ports = memory::pair(macs, 1_500, clock).map(|port| Box::new(port) as Box<dyn Port + Send>);
    let mut traffic = traffic_of(&spec, Layout::round_robin(2, 2), 60 * SECOND);
    let live = traffic.live();
    thread::scope(|scope| {
        let user = scope.spawn(move || {
            let _ending = Ending(live.clone());
            let patience = Duration::from_secs(20);
            let counts = |flow: usize| {
                let snapshot = live.snapshot(patience).expect("the lanes answer");
                (snapshot.flows[&flow].offered, snapshot.flows[&flow].transmit)
            };
            let beyond = |flow: usize, frames: u64| while counts(flow).0 < frames {};
            beyond(0, 100);
            // Frames already due when the lane sees the command still leave.
            let reaches = |flow: usize, state: Transmit| while counts(flow).1 != state {};
            live.transmit(FlowSelect::Flows(&[0]), Stop, None).unwrap();
            reaches(0, Transmit::Stopped);
            let stopped_at = counts(0).0;
            // The other flow continues.
            beyond(1, counts(1).0 + 500);
            assert_eq!(counts(0).0, stopped_at);
            live.transmit(FlowSelect::All, Pause, None).unwrap();
            reaches(1, Transmit::Paused);
            let paused = [counts(0).0, counts(1).0];
            assert_eq!([counts(0), counts(1)], [(paused[0], Transmit::Stopped), (paused[1], Transmit::Paused)]);
            live.transmit(FlowSelect::All, Resume, None).unwrap();
            live.transmit(FlowSelect::Groups(&["a"]), Start, None).unwrap();
            beyond(0, stopped_at + 100);
            beyond(1, paused[1] + 100);
        });
        let mut others = [Still::default()];
        traffic.drive_lanes(&mut ports, clock, &[], &mut Still::default(), &mut others, Instant(u64::MAX)).unwrap();
        user.join().unwrap();
    });
    let result = merge(&traffic.reports());
    assert_eq!(
        result.intended(),
        result.offered() + result.health.unsent,
        "nothing is missing but what a full ring refused"
    );
    assert_eq!(result.lost(), result.sum(|g| g.refused), "the links lose nothing but what they refuse");
    assert_eq!(result.groups.iter().map(|g| g.stopped[0].stops).collect::<Vec<_>>(), [1, 1]);
}
