//! `fixed_rate` on real links: VLAN sub-interfaces, QinQ, labels, IPv6 and TCP through the reference device, with every
//! backend, over veth and tap, twice each. Nothing is lost, so all counts are the same as in virtual time.

use crate::anew::Case;
use crate::common::{Memory, cell, read_suite, rows};
use drophammer_lab::Lab;
use drophammer_methods::METHODS;
use drophammer_model::outcome::Outcome;
use drophammer_model::trial::Family;
use drophammer_port::{Backend, INTERFACE_BACKENDS, SystemClock, tap};
use drophammer_rig::{Ports, Rig};
use drophammer_testbed::real;
use drophammer_testbed::setup::TestSetup;
use drophammer_testbed::validity::HostTolerance;
use drophammer_testbed::{Session, config};

/// Number of frames of each flow.
const FRAMES: f64 = 200.0;
/// Maximum number of attempts: the machine may delay tester and device, and a run that it spoilt is repeated.
const ATTEMPTS: u32 = 4;
/// Delay of each frame in the device.
const DELAY_NS: f64 = 200_000.0;
/// Half of the frames take at most this long in total, even on a busy machine.
const LONGEST_NS: f64 = 20_000_000.0;

/// A suite with five flows between interfaces of all kinds, and a device on links of this kind.
fn suite(links: &str) -> String {
    format!(
        "suite: links\nseed: 11\nduts:\n  - {{name: box, kind: reference, links: {links}, delay: 200 us}}\nports:\n  \
         - {{name: p1, speed: 100 Mbit/s, vlans: [{{id: 100}}, {{id: [100, 200]}}]}}\n  \
         - {{name: p2, speed: 100 Mbit/s, vlans: [{{id: 300}}, {{id: [7, 8]}}], labels: [{{label: 100, out: [200, 201]}}]}}\n\
         flows:\n  - {{name: plain, from: p1, to: p2, size: 64, rate: 400 fps, arrives: {{ttl: 63}}}}\n  \
         - {{name: vlan, from: p1.100, to: p2.300, size: 128, rate: 400 fps}}\n  \
         - {{name: qinq, from: p2.7.8, to: p1.100.200, size: imix, rate: 400 fps, headers: [ipv6, tcp]}}\n  \
         - {{name: untag, from: p1.100.200, to: p2, size: 1518, rate: 400 fps, headers: [{{ipv4: {{dscp: 46}}}}, udp], arrives: {{dscp: 46}}}}\n  \
         - {{name: label, from: p1, to: p2, size: 200, rate: 400 fps, headers: [{{mpls: {{label: 100, tc: 3}}}}, ipv4, udp], \
         arrives: {{labels: [{{label: 200, tc: 3, ttl: 63}}, {{label: 201}}]}}}}\n\
         tests: [{{fixed_rate: {{trial_duration: 500 ms, drain: 300 ms, pause: 1 ms, interval: 50 ms}}}}]\n"
    )
}

/// Runs the test twice on a separate device, and prints the counts.
fn twice(lab: &mut Lab, links: &str, backend: &Backend) -> Result<[Outcome; 2], String> {
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let suite = read_suite(&suite(links));
    let mut dut = real::bring_up(lab, &suite.duts[0], &suite, folder.path(), &|| false).map_err(|e| e.to_string())?;
    let families = [Family::Ipv4, Family::Ipv6];
    let interfaces = dut.interfaces().to_vec();
    let clock = SystemClock::start();
    let open = real::open(lab, &interfaces, backend, 1, clock)?;
    let rig = Rig::new(Ports::real(open, clock, &[]), &config::hosts(&suite.ports, &families, suite.seed));
    let mut session = Session::new(suite.seed, suite.profile, u64::from(std::process::id()));
    session.tolerance.host = HostTolerance::ANY;
    let mut memory = Memory::default();
    let mut setup = TestSetup::new("box", &suite.ports, rig, &mut *dut, &mut session, &mut memory);
    setup.facts_mut().flows = suite.flows.clone();
    setup.await_forwarding(&families).map_err(|e| e.to_string())?;
    let test = &suite.tests[0];
    let method = METHODS.iter().find(|m| m.spec().name == test.test).ok_or("no fixed_rate")?;
    let mut once = || {
        let mut outcome = Outcome::default();
        method.run(&mut setup, &test.params, &mut outcome).map(|()| outcome).map_err(|e| e.to_string())
    };
    let found = [once(), once()];
    drop(setup);
    dut.take_down().map_err(|e| e.to_string())?;
    let [first, second] = found;
    Ok([first?, second?])
}

/// Checks the counts of each flow, without times.
fn judge(outcome: &Outcome) -> Result<(), String> {
    let flows = rows(outcome, "fixed_rate").len();
    if flows != 5 {
        return Err(format!("{flows} flows"));
    }
    for row in 0..flows {
        let of = |column| cell(outcome, "fixed_rate", row, column).unwrap_or(-1.0);
        let counts = ["offered", "received", "lost", "deviating", "reordered", "duplicated", "corrupted", "stray"];
        let found = counts.map(of);
        if found != [FRAMES, FRAMES, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0] {
            return Err(format!("flow {row}: {:?}", counts.into_iter().zip(found).collect::<Vec<_>>()));
        }
        let [least, median] = ["latency_min_ns", "latency_p50_ns"].map(of);
        if least < DELAY_NS || median > LONGEST_NS {
            return Err(format!("flow {row}: latency from {least} ns, median {median} ns"));
        }
    }
    Ok(())
}

fn case(lab: &mut Lab, links: &str, backend: &Backend) -> Result<(), String> {
    let mut last = String::new();
    for _ in 0..ATTEMPTS {
        let run = twice(lab, links, backend).and_then(|outcomes| outcomes.iter().try_for_each(judge));
        match run {
            Ok(()) => return Ok(()),
            Err(why) => last = why,
        }
    }
    Err(last)
}

/// A case for each backend and kind of links.
pub fn cases() -> Vec<Case> {
    let all = INTERFACE_BACKENDS.iter().flat_map(|b| [(b, "veth"), (b, "tap")]);
    all.map(|(backend, links)| {
        let run = move |lab: &mut Lab| {
            if links == "tap" && backend.spec.name == "live_frames" {
                // Only on veth links does the tester know the device's drops.
                return match twice(lab, links, backend) {
                    Err(why) if why.contains("use the backend af_xdp or af_packet") => Ok(()),
                    other => Err(format!("not refused: {other:?}")),
                };
            }
            case(lab, links, backend)
        };
        let possible = (backend.usable)().and_then(|()| if links == "veth" { Ok(()) } else { tap::usable() });
        Case::in_lab(format!("fixed_rate by {} over {links}", backend.spec.name), run).long().unless(possible.err())
    })
    .collect()
}
