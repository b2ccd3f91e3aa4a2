//! Several User Mode Linux guests as one DUT. Four are fully meshed: packets take a detour around a link that is down,
//! routed by the guests' own kernels or by FRR in them, and return to the old paths when the link is up again.
//! Label-switched paths lead through the guests. While two links are down, the queues between the guests drop exactly
//! the lost frames. Two guests in a row decrement the TTL of labels according to the pipe model.

use crate::anew::{Case, Checked};
use crate::common::program::run_in_lab;
use crate::common::{Memory, cell, read_suite, rows};
use crate::systems::set_core_link;
use drophammer_lab::Lab;
use drophammer_lab::kinds::uml;
use drophammer_methods::METHODS;
use drophammer_model::outcome::Outcome;
use drophammer_model::suite::Suite;
use drophammer_model::topology::CoreLinkName;
use drophammer_model::trial::Family;
use drophammer_port::{INTERFACE_BACKENDS, SystemClock};
use drophammer_rig::{Ports, Rig};
use drophammer_testbed::setup::TestSetup;
use drophammer_testbed::validity::HostTolerance;
use drophammer_testbed::{Session, config, real};

const PORTS: usize = 4;
/// Number of frames of each flow.
const FRAMES: u64 = 50;
/// Maximum number of attempts: the machine may delay tester and guests for a while, and a check that fails because of
/// that is repeated.
const ATTEMPTS: u32 = 4;

fn text<E: ToString>(e: E) -> String {
    e.to_string()
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(what()) }
}

/// Two flows from each port to each other port: one without labels, alternating between both IP versions, and one with
/// a label. Their `arrives` is the one for a single router.
fn suite(dut: &str, rest: &str) -> Suite {
    let mut flows = String::new();
    for (from, to) in (0..PORTS).flat_map(|a| (0..PORTS).map(move |b| (a, b))).filter(|(a, b)| a != b) {
        let family = if (from + to).is_multiple_of(2) { "ipv4" } else { "ipv6" };
        let ends = format!("from: p{}, to: p{}, size: 128, rate: 100 fps", from + 1, to + 1);
        flows += &format!("  - {{name: f{from}{to}, {ends}, family: {family}, arrives: {{ttl: 63}}}}\n");
        flows += &format!(
            "  - {{name: l{from}{to}, {ends}, headers: [{{mpls: {{label: {}, ttl: 40}}}}, ipv4, udp], \
             arrives: {{labels: [{{label: {}, ttl: 39}}], ttl: 64}}}}\n",
            101 + to,
            201 + to
        );
    }
    let port = |i: usize| {
        format!("  - {{name: p{}, speed: 100 Mbit/s, labels: [{{label: {}, out: [{}]}}]}}\n", i + 1, 101 + i, 201 + i)
    };
    let ports: String = (0..PORTS).map(port).collect();
    read_suite(&format!(
        "suite: guests\nseed: 11\nduts: [{{name: sut, kind: uml, {dut}, topology: {{mesh: 4}}}}]\nports:\n{ports}{rest}flows:\n{flows}tests:\n  \
         - fixed_rate: {{trial_duration: 500 ms, drain: 500 ms, pause: 1 ms}}\n  \
         - class_of_service: {{core_links_down: 2, bottleneck: 500 kbit/s, queue: 64, trial_duration: 2 s, pause: 1 ms}}\n"
    ))
}

fn run(setup: &mut TestSetup<'_>, test: &str, suite: &Suite) -> Result<Outcome, String> {
    let config = suite.tests.iter().find(|config| config.test == test).ok_or("no such test")?;
    let method = METHODS.iter().find(|method| method.spec().name == test).ok_or("no such method")?;
    let mut outcome = Outcome::default();
    method.run(setup, &config.params, &mut outcome).map(|()| outcome).map_err(text)
}

/// Repeats `once` until it succeeds, at most [`ATTEMPTS`] times.
fn tried(mut once: impl FnMut() -> Checked) -> Checked {
    let mut last = Ok(());
    for _ in 0..ATTEMPTS {
        last = once();
        if last.is_ok() {
            break;
        }
    }
    last
}

/// Checks that every frame of every flow whose name begins with one of `first` arrives, with the TTL that the routers
/// on its path leave.
fn forwards(setup: &mut TestSetup<'_>, suite: &Suite, first: &[char]) -> Checked {
    setup.facts_mut().flows = suite.flows.iter().filter(|flow| flow.name.starts_with(first)).cloned().collect();
    let expected = setup.facts_mut().flows.len();
    tried(|| {
        let outcome = run(setup, "fixed_rate", suite)?;
        let flows = rows(&outcome, "fixed_rate").len();
        ensure(flows == expected && flows > 0, || format!("{flows} flows"))?;
        (0..flows).try_for_each(|row| {
            let counts = ["offered", "received", "lost", "deviating", "duplicated", "corrupted", "stray"];
            let found = counts.map(|column| cell(&outcome, "fixed_rate", row, column).unwrap_or(-1.0));
            ensure(found == [FRAMES as f64, FRAMES as f64, 0.0, 0.0, 0.0, 0.0, 0.0], || {
                format!("flow {row}: {:?}", counts.into_iter().zip(found).collect::<Vec<_>>())
            })
        })
    })
}

/// Checks that gold loses nothing while two links are down and the others are too slow, and that the queues between the
/// routers dropped exactly the lost frames.
fn shares_links_by_class(setup: &mut TestSetup<'_>, suite: &Suite) -> Checked {
    tried(|| {
        let outcome = run(setup, "class_of_service", suite)?;
        setup.end_test().map_err(text)?;
        let cell = |table: &str, row, column| cell(&outcome, table, row, column).unwrap_or(-1.0);
        let links = rows(&outcome, "class_of_service_links").len();
        ensure(links == 2 * 8 * 3, || format!("{links} rows of links"))?;
        ensure(cell("class_of_service", 3, "lost") == 0.0, || "gold lost frames".into())?;
        (0..6).try_for_each(|row| {
            let [lost, dropped] = ["lost", "dropped"].map(|column| cell("class_of_service_losses", row, column));
            // Nothing is lost without overload, and nothing of gold; much of silver and bronze is lost under overload.
            let much = row > 3;
            ensure(lost == dropped && (lost > 100.0) == much && (much || lost == 0.0), || {
                format!("class {row}: {lost} lost, {dropped} dropped")
            })
        })
    })
}

/// Four guests, fully meshed, with BGP between them if `rest` of the suite asks for it.
fn mesh(lab: &mut Lab, dut: &str, rest: &str) -> Checked {
    let folder = tempfile::tempdir().map_err(text)?;
    let suite = suite(dut, rest);
    let mut dut = real::bring_up(lab, &suite.duts[0], &suite, folder.path(), &|| false).map_err(text)?;
    let families = [Family::Ipv4, Family::Ipv6];
    let (clock, interfaces) = (SystemClock::start(), dut.interfaces().to_vec());
    let backend = INTERFACE_BACKENDS.iter().find(|backend| backend.spec.name == "af_packet").ok_or("no backend")?;
    let open = real::open(lab, &interfaces, backend, 1, clock)?;
    let hosts = config::hosts_and_routers(&suite.ports, &families, suite.seed);
    let rig = Rig::new(Ports::real(open, clock, &[]), &hosts);
    let mut session = Session::new(suite.seed, suite.profile, u64::from(std::process::id()));
    session.tolerance.host = HostTolerance::ANY;
    let mut memory = Memory::default();
    let mut setup = TestSetup::new("sut", &suite.ports, rig, &mut *dut, &mut session, &mut memory);
    setup.await_forwarding(&families).map_err(text)?;
    let checked = (|| {
        let hops = |setup: &mut TestSetup<'_>| [(0, 1), (1, 0), (0, 2)].map(|(a, b)| setup.bench().device.hops(a, b));
        forwards(&mut setup, &suite, &['f', 'l'])?;
        for link in [CoreLinkName(1, 2), CoreLinkName(3, 4)] {
            set_core_link(&mut setup, link, false)?;
            let expected = if link == CoreLinkName(1, 2) { [3, 3, 2] } else { [2; 3] };
            ensure(hops(&mut setup) == expected, || format!("with link {link} down: {:?}", hops(&mut setup)))?;
            // A packet with a label has only one path.
            forwards(&mut setup, &suite, &['f']).map_err(|e| format!("with link {link} down: {e}"))?;
            set_core_link(&mut setup, link, true)?;
            ensure(hops(&mut setup) == [2; 3], || "links are not up again".into())?;
            forwards(&mut setup, &suite, &['f', 'l']).map_err(|e| format!("with link {link} up again: {e}"))?;
        }
        if !rest.is_empty() {
            return Ok(());
        }
        shares_links_by_class(&mut setup, &suite).map_err(|e| format!("classes: {e}"))?;
        ensure(hops(&mut setup) == [2; 3], || "links are not up after the test".into())?;
        forwards(&mut setup, &suite, &['f', 'l']).map_err(|e| format!("after classes: {e}"))
    })();
    drop(setup);
    checked?;
    dut.check().map_err(text)?;
    dut.take_down().map_err(text)
}

/// Two guests in a row whose labels have their own TTL.
fn pipe(lab: &mut Lab) -> Checked {
    let flows = [
        ("swap", "{mpls: {label: 100, ttl: 40}}, ", "labels: [{label: 200, ttl: 39}], ttl: 64", ""),
        ("pop", "{mpls: {label: 101, ttl: 30}}, ", "ttl: 63", ""),
        (
            "pop-one",
            "{mpls: {label: 101, ttl: 30}}, {mpls: {label: 55}}, ",
            "labels: [{label: 55, ttl: 64}], ttl: 64",
            "",
        ),
        ("fec", "", "labels: [{label: 400, ttl: 255}, {label: 401, ttl: 255}], ttl: 63", ", destination: 10.99.0.7"),
    ];
    let flow = |(name, headers, arrives, to): &(&str, &str, &str, &str)| {
        format!(
            "  - {{name: {name}, from: p1, to: p2, size: 128, rate: 200 fps, frames: {FRAMES}, headers: [{headers}ipv4, udp], \
             arrives: {{{arrives}}}{to}}}\n"
        )
    };
    let listed: String = flows.iter().map(flow).collect();
    let suite = format!(
        "suite: pipe\nprofile: quick\nrounds: 1\n\
         duts: [{{name: box, kind: uml, routing: static, memory: 128, ttl_model: pipe, topology: {{chain: 2}}}}]\n\
         ports:\n  - {{name: p1, speed: 100 Mbit/s, ipv6: off}}\n  - {{name: p2, speed: 100 Mbit/s, ipv6: off, \
         labels: [{{label: 100, out: [200]}}, {{label: 101}}, {{to: 10.99.0.0/24, out: [400, 401]}}]}}\nflows:\n{listed}\
         tests: [{{fixed_rate: {{trial_duration: 600 ms, drain: 500 ms, pause: 1 ms}}}}]\n"
    );
    let folder = tempfile::tempdir().map_err(text)?;
    let memory = run_in_lab(lab, &suite, folder.path())?;
    let trials = memory.trials();
    let trial = trials.iter().find(|trial| trial.result.groups.iter().any(|group| group.group == "fec"));
    let groups = trial.map(|trial| &trial.result.groups[..]).unwrap_or_default();
    ensure(groups.len() == flows.len(), || {
        format!("{:?}", memory.tests().iter().map(|t| &t.status).collect::<Vec<_>>())
    })?;
    let wrong = groups.iter().find(|group| group.received != FRAMES || !group.deviations.is_empty());
    ensure(wrong.is_none(), || format!("pipe: {wrong:?}"))
}

/// The test.
pub fn cases() -> Vec<Case> {
    let all = |lab: &mut Lab| {
        mesh(lab, "routing: static, memory: 128", "")?;
        mesh(lab, "memory: 192", "bgp: {families: [ipv4, ipv6]}\n")?;
        pipe(lab)
    };
    vec![Case::in_lab("guests_are_one_device_together", all).again().long().unless(uml::unfit_processor())]
}
