//! A bed on two threads and a real router: the hosts of each thread answer for its ports, and every frame is counted,
//! even if the threads share the queues of each port.

use crate::anew::Case;
use crate::common::{Memory, read_suite};
use drophammer_lab::{Lab, LabOptions};
use drophammer_methods::{TestError, Testbed};
use drophammer_model::trial::{AddressRange, Family, FlowSpec, Load, TrialSpec};
use drophammer_port::{Backend, INTERFACE_BACKENDS, SystemClock};
use drophammer_rig::{Ports, Rig};
use drophammer_testbed::setup::TestSetup;
use drophammer_testbed::validity::HostTolerance;
use drophammer_testbed::{Session, config, real};

const SUITE: &str = "suite: lanes\nprofile: quick\nseed: 11\nduts:\n  - {name: box, kind: linux}\n\
                     ports:\n  - {name: p1, speed: 100 Mbit/s}\n  - {name: p2, speed: 100 Mbit/s}\n\
                     tests:\n  - throughput: {families: [ipv4, ipv6]}\n";
const FAMILIES: [Family; 2] = [Family::Ipv4, Family::Ipv6];
const PER_FLOW: u64 = 300;

/// A slow trial of both families in both directions, with `hosts` source addresses.
fn trial(bed: &TestSetup<'_>, hosts: u32) -> TrialSpec {
    let mut flows = Vec::new();
    for (from, to) in [(0, 1), (1, 0)] {
        for family in FAMILIES {
            let addresses = |port: usize| bed.ports()[port].addressing(family).expect("addresses").destinations;
            let (sources, destinations) = (AddressRange { count: hosts, ..addresses(from) }, addresses(to));
            let group = format!("{family} from {from}");
            flows.push(FlowSpec::new(group, from, to, sources, destinations));
        }
    }
    TrialSpec {
        purpose: "two threads".into(),
        size: "128".parse().expect("a size"),
        flows,
        load: Load::Burst { frames: 2 * PER_FLOW, rate_pps: 1_000.0 },
        duration_s: 0.0,
        bin_s: None,
        drain_s: 2.0,
        events: vec![],
    }
}

/// Runs the trial on links with two queues, but uses only `queues` of them.
fn checked(lab: &mut Lab, backend: &Backend, queues: u32) -> Result<(), String> {
    let suite = read_suite(SUITE);
    let cpus = lab.cpus().clone();
    lab.pin_current_thread(cpus.tester).map_err(|e| e.to_string())?;
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let kind = drophammer_lab::find("linux").ok_or("no such kind")?;
    let mut device = kind
        .bring_up(lab, &suite.duts[0], &drophammer_model::role::RouterRole::of(&suite.ports), folder.path(), &|| false)
        .map_err(|e| e.to_string())?;
    let clock = SystemClock::start();
    let ports = real::open(lab, device.interfaces(), backend, queues, clock)?;
    // At this load the second thread may share a processor with the router.
    let ports = Ports::real(ports, clock, &[cpus.tester, *cpus.testers.get(1).unwrap_or(&cpus.dut)]);
    if (ports.layout().lanes(), ports.len(), ports.queues()) != (2, 2, 2 * queues as usize) {
        return Err(format!("{:?}", ports.layout()));
    }
    let rig = Rig::new(ports, &config::hosts(&suite.ports, &FAMILIES, suite.seed));
    let mut session = Session::new(suite.seed, suite.profile, 5);
    session.tolerance.host = HostTolerance::ANY;
    let mut memory = Memory::default();
    let mut bed = TestSetup::new("box", &suite.ports, rig, device.as_mut(), &mut session, &mut memory);
    // This needs ARP and Neighbor Discovery on both ports, and runs the first trials on two threads.
    bed.await_forwarding(&FAMILIES).map_err(|e| e.to_string())?;
    let spec = trial(&bed, 50);
    match bed.trial(&spec) {
        // On a busy machine the tester may be delayed; its counts must still be right.
        Ok(_) | Err(TestError::Unfit(_)) => {}
        Err(e) => return Err(e.to_string()),
    }
    drop(bed);
    let result = &memory.trials().last().ok_or("no trial was kept")?.result;
    for g in &result.groups {
        // The kernel spreads the hosts of a flow over the queues of `af_packet`. The router chooses the queue on which
        // it sends, and so the queue on which `af_xdp` receives.
        let unknown = match backend.spec.name {
            _ if queues == 1 => 0,
            "af_packet" => PER_FLOW,
            _ => g.order_unknown.div_ceil(PER_FLOW) * PER_FLOW,
        };
        let found = (g.intended, g.offered, g.received, g.lost, g.order_unknown, g.in_sequence);
        if found != (PER_FLOW, PER_FLOW, PER_FLOW, 0, unknown, PER_FLOW - unknown)
            || g.duplicated + g.corrupted + g.stray > 0
        {
            return Err(format!("{g:#?}"));
        }
    }
    if result.groups.len() != 4 || result.health.receive_drops + result.health.copies_apart > 0 {
        return Err(format!("{result:#?}"));
    }
    if std::path::Path::new("/proc/stat").exists() && result.health.tester_stolen_ns.is_none() {
        return Err("nothing is known of stolen time".into());
    }
    device.take_down().map_err(|e| e.to_string())
}

/// Name, backend, and number of queues of each port for each test.
const TESTS: [(&str, &str, u32); 3] = [
    ("two_threads_in_front_of_a_router", "af_packet", 1),
    ("two_threads_share_the_queues_of_each_port_in_front_of_a_router", "af_packet", 2),
    ("two_threads_share_the_queues_of_the_device_in_front_of_a_router", "af_xdp", 2),
];

/// A case for each backend and number of queues.
pub fn cases() -> Vec<Case> {
    let case = |(name, backend, queues): (&'static str, &'static str, u32)| {
        let backend = INTERFACE_BACKENDS.iter().find(|b| b.spec.name == backend).expect("a backend");
        let run = move || {
            let options = LabOptions { queues: 2, ..LabOptions::default() };
            checked(&mut Lab::enter(&options).map_err(|e| e.to_string())?, backend, queues)
        };
        Case::alone(name, run).unless((backend.usable)().err())
    };
    TESTS.into_iter().map(case).collect()
}
