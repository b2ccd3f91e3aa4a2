//! Systems of several real routers: four of them fully meshed, and two in a row. No frames are lost between any of
//! their ports, and routes of one port reach all other ports. Frames and routes take a detour around a link that is
//! down.

use crate::anew::{Case, Checked};
use crate::common::{Memory, cell, read_suite, rows};
use drophammer_lab::{Dut, Lab};
use drophammer_methods::routing::TableChoice;
use drophammer_methods::{Change, METHODS, Packing, RouteAction, Testbed};
use drophammer_model::outcome::Outcome;
use drophammer_model::routes::AfiSafi;
use drophammer_model::suite::Suite;
use drophammer_model::topology::CoreLinkName;
use drophammer_model::trial::Family;
use drophammer_port::{INTERFACE_BACKENDS, SystemClock};
use drophammer_rig::{Ports, Rig};
use drophammer_testbed::setup::TestSetup;
use drophammer_testbed::validity::HostTolerance;
use drophammer_testbed::{Session, config, real};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

const PORTS: usize = 4;
/// Number of routes that one port advertises.
const ROUTES: u32 = 1_000;
/// Number of frames of each flow.
const FRAMES: f64 = 100.0;
/// Maximum number of attempts: the machine may delay tester and routers, and a check that it spoilt is repeated.
const ATTEMPTS: u32 = 4;
const PATIENCE: Duration = Duration::from_secs(15);
/// How long routers may take to forward again. When a link goes down, the kernel removes routes at the same time as the daemon, and BIRD finds
/// only with its next comparison, every 10 s, that the kernel lacks the new one.
const LATEST: Duration = Duration::from_secs(30);

/// The cases: kind, topology, and the system's BGP.
const CASES: [(&str, &str, Bgp); 7] = [
    ("linux", "{mesh: 4}", Bgp::None),
    ("frr", "{mesh: 4}", Bgp::Forwards),
    ("bird", "{mesh: 4}", Bgp::Forwards),
    ("openbgpd", "{mesh: 4, core_speed: 100 Mbit/s}", Bgp::Speaks),
    ("gobgp", "{chain: 2}", Bgp::Speaks),
    ("linux", "{chain: 2}", Bgp::None),
    ("bird", "{chain: 3}", Bgp::Forwards),
];

#[derive(Clone, Copy, PartialEq)]
enum Bgp {
    None,
    /// BGP whose routes do not reach the kernel.
    Speaks,
    Forwards,
}

fn text<E: ToString>(e: E) -> String {
    e.to_string()
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(what()) }
}

/// A flow from each port to each other port, alternating between both IP versions. `ttl` is the TTL after one router.
fn suite(kind: &str, topology: &str) -> Suite {
    let mut flows = String::new();
    for (from, to) in (0..PORTS).flat_map(|a| (0..PORTS).map(move |b| (a, b))).filter(|(a, b)| a != b) {
        let family = if (from + to) % 2 == 0 { "ipv4" } else { "ipv6" };
        flows += &format!(
            "  - {{name: f{from}{to}, from: p{}, to: p{}, family: {family}, size: 128, rate: 200 fps, arrives: {{ttl: 63}}}}\n",
            from + 1,
            to + 1
        );
    }
    let ports: String = (1..=PORTS).map(|i| format!("  - {{name: p{i}, speed: 100 Mbit/s}}\n")).collect();
    read_suite(&format!(
        "suite: systems\nseed: 11\nduts:\n  - {{name: sut, kind: {kind}, topology: {topology}}}\nports:\n{ports}\
         bgp: {{families: [ipv4, ipv6]}}\nflows:\n{flows}tests:\n  \
         - fixed_rate: {{trial_duration: 500 ms, drain: 500 ms, pause: 1 ms}}\n  \
         - class_of_service: {{core_links_down: 2, bottleneck: 1 Mbit/s, queue: 16, trial_duration: 1 s, pause: 1 ms}}\n"
    ))
}

fn run(setup: &mut TestSetup<'_>, test: &str, suite: &Suite) -> Result<Outcome, String> {
    let config = suite.tests.iter().find(|config| config.test == test).ok_or("no such test")?;
    let method = METHODS.iter().find(|method| method.spec().name == test).ok_or("no such method")?;
    let mut outcome = Outcome::default();
    method.run(setup, &config.params, &mut outcome).map(|()| outcome).map_err(text)
}

/// Checks that every frame of every flow arrives, with the TTL that the routers on its way leave.
fn forwards(setup: &mut TestSetup<'_>, suite: &Suite) -> Checked {
    let begun = Instant::now();
    loop {
        let last = run(setup, "fixed_rate", suite).and_then(|outcome| {
            let flows = rows(&outcome, "fixed_rate").len();
            ensure(flows == PORTS * (PORTS - 1), || format!("{flows} flows"))?;
            (0..flows).try_for_each(|row| {
                let counts = ["offered", "received", "lost", "deviating", "duplicated", "corrupted", "stray"];
                let found = counts.map(|column| cell(&outcome, "fixed_rate", row, column).unwrap_or(-1.0));
                ensure(found == [FRAMES, FRAMES, 0.0, 0.0, 0.0, 0.0, 0.0], || {
                    format!("flow {row}: {:?}", counts.into_iter().zip(found).collect::<Vec<_>>())
                })
            })
        });
        if last.is_ok() || begun.elapsed() > LATEST {
            return last;
        }
    }
}

/// Checks that gold loses nothing while two links are down and the others are too slow, and that the queues between the
/// routers dropped all lost frames.
fn shares_links_by_class(setup: &mut TestSetup<'_>, suite: &Suite) -> Checked {
    let mut last = Ok(());
    for _ in 0..ATTEMPTS {
        last = run(setup, "class_of_service", suite).and_then(|outcome| {
            setup.end_test().map_err(text)?;
            let cell = |table: &str, row, column| cell(&outcome, table, row, column).unwrap_or(-1.0);
            let links = rows(&outcome, "class_of_service_links").len();
            ensure(links == 2 * 8 * 3, || format!("{links} rows of links"))?;
            ensure(cell("class_of_service", 3, "lost") == 0.0, || "gold lost frames".into())?;
            for row in 0..6 {
                let [lost, dropped] = ["lost", "dropped"].map(|column| cell("class_of_service_losses", row, column));
                // Gold loses nothing, and no class loses frames without overload; silver and bronze lose much under
                // overload.
                let much = row > 3;
                ensure(lost == dropped && (lost > 100.0) == much && (much || lost == 0.0), || {
                    format!("class {row}: {lost} lost, {dropped} dropped")
                })?;
            }
            Ok(())
        });
        if last.is_ok() {
            break;
        }
    }
    last
}

/// Checks that all routes that the first port advertises arrive at all other ports, as a single router would advertise
/// them. If routes are installed, each router must have them.
fn passes_routes_on(setup: &mut TestSetup<'_>, installs: bool) -> Checked {
    let families = [Family::Ipv4, Family::Ipv6];
    let installed = |setup: &mut TestSetup<'_>| families.map(|f| setup.bench().device.fib_routes(f).ok().flatten());
    let before = installed(setup);
    ensure(before.iter().all(Option::is_some), || "no count of routes".into())?;
    let routing = setup.routing().map_err(text)?;
    let all: Vec<usize> = (0..routing.peers().len()).collect();
    ensure(all.len() == 2 * PORTS, || format!("{} sessions", all.len()))?;
    routing.establish(&all, Duration::from_secs(20)).map_err(text)?;
    let mut watches = Vec::new();
    for (origin, family) in families.into_iter().enumerate() {
        let routes = routing.table(&TableChoice::named("internet"), AfiSafi::unicast(family), ROUTES).map_err(text)?;
        for observer in (1..PORTS).map(|port| 2 * port + origin) {
            let watch = routing.watch(observer, origin, &routes);
            routing.expect(watch, 0..ROUTES, true);
            watches.push(watch);
        }
        let (part, packing) = (0..ROUTES, Packing::default());
        let action = RouteAction::Routes { peer: origin, change: Change::Advertise, routes, part, packing };
        routing.act(&action).map_err(text)?;
    }
    let settled = routing.await_settled(&watches, PATIENCE).map_err(text)?;
    for watch in watches {
        let found = routing.verified(watch);
        ensure(settled.complete && (found.present, found.wrong) == (u64::from(ROUTES), 0), || {
            format!("watch {watch}: {} routes present, {} wrong: {}", found.present, found.wrong, settled.cause)
        })?;
    }
    // The kernel has the routes slightly later than the neighbours.
    let wanted = before.map(|held| held.map(|held| held + if installs { u64::from(ROUTES) } else { 0 }));
    let deadline = Instant::now() + PATIENCE;
    loop {
        let held = installed(setup);
        if held == wanted {
            break;
        }
        ensure(Instant::now() < deadline, || format!("{held:?} routes in each router, not {wanted:?}"))?;
        setup.settle(Duration::from_millis(20)).map_err(text)?;
    }
    let routing = setup.routing().map_err(text)?;
    routing.reset(PATIENCE).map_err(text)
}

/// Checks the system's counters and records.
fn tells(dut: &mut dyn Dut, suite: &Suite, routers: usize) -> Checked {
    let record = dut.record();
    let said = format!("{routers} routers, ");
    ensure(record.name == "sut" && record.confinement.starts_with(&said), || record.confinement.clone())?;
    let configured = |n: usize| record.config.keys().any(|name| name.starts_with(&format!("r{n}/")));
    ensure((1..=routers).all(configured), || format!("{:?}", record.config.keys()))?;
    let counters = dut.counters().map_err(text)?;
    let has = |name: &str| counters.contains_key(name);
    ensure(
        (1..=routers).all(|n| has(&format!("r{n}.d0.rx_packets")) && has(&format!("r{n}.ip.ForwDatagrams"))),
        || format!("{:?}", counters.keys()),
    )?;
    let once = counters.keys().filter(|name| name.ends_with(".squeezed") || name.contains("softnet")).count();
    ensure(once == counters.keys().filter(|name| name.starts_with("softnet.")).count(), || {
        "softnet counters of routers".into()
    })?;
    ensure(has("t3.tx_dropped") && !has("r1.t0.tx_dropped"), || format!("{:?}", counters.keys()))?;
    let known = dut.known_counters().map_err(text)?;
    for port in 0..suite.ports.len() {
        let of_port = known.iter().filter(|counter| counter.port == Some(port) && counter.name == "rx_packets").count();
        ensure(of_port == 1, || format!("{of_port} counters of packets received at port {port}"))?;
    }
    ensure(known.iter().filter(|counter| counter.name == "core.rx_dropped").count() == 1, || {
        "drops between routers".into()
    })?;
    let usage = dut.usage().ok_or("nothing is seen of its processes")?;
    ensure(usage.cpu_time().is_some() && usage.threads().is_some_and(|threads| threads.len() > 4), || {
        "times of threads".into()
    })
}

/// Checks that the processor time of all routers is known and did not decrease since `before`.
fn cpu_time(setup: &mut TestSetup<'_>, before: Duration) -> Result<Duration, String> {
    let time = setup.bench().device.usage().and_then(|usage| usage.cpu_time()).ok_or("no processor time")?;
    ensure(time >= before, || format!("processor time {time:?} after {before:?}")).map(|()| time)
}

/// Takes a link between two routers down or up.
pub fn set_core_link(setup: &mut TestSetup<'_>, link: CoreLinkName, up: bool) -> Checked {
    let links = setup.bench().device.core_links().ok_or("no links between routers")?;
    links.set_core_link(link, up).map_err(text)
}

/// Number of the kernel threads that receive at the links. All must have the same priority, and run only on
/// `processor`, if they are bound to one.
fn receiving(setup: &mut TestSetup<'_>, processor: Option<usize>) -> Result<usize, String> {
    let threads = setup.bench().device.usage().and_then(|usage| usage.threads()).ok_or("no times of threads")?;
    let read = |id: u32, file: &str| std::fs::read_to_string(format!("/proc/{id}/{file}")).unwrap_or_default();
    let ids = threads.iter().map(|thread| thread.id);
    let receiving: Vec<u32> = ids.filter(|id| read(*id, "comm").starts_with("napi/")).collect();
    let mut priorities = BTreeSet::new();
    for id in &receiving {
        let status = read(*id, "status");
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).map(str::trim);
        let bound = processor.is_none_or(|processor| allowed == Some(processor.to_string().as_str()));
        ensure(bound, || format!("thread {id} may run on {allowed:?}"))?;
        // The nice value is the 17th field after the name.
        let stat = read(*id, "stat");
        let nice = stat.rsplit(')').next().and_then(|fields| fields.split_whitespace().nth(16));
        priorities.extend(nice.map(str::to_owned));
    }
    ensure(priorities.len() == 1, || format!("threads with priorities {priorities:?}"))?;
    Ok(receiving.len())
}

fn case(lab: &mut Lab, kind: &str, topology: &str, bgp: Bgp) -> Checked {
    let folder = tempfile::tempdir().map_err(text)?;
    // Only root can bind the threads.
    let processor = Some(lab.cpus().dut).filter(|_| lab.is_root());
    let suite = suite(kind, topology);
    let mut dut = real::bring_up(lab, &suite.duts[0], &suite, folder.path(), &|| false).map_err(text)?;
    let routers = suite.duts[0].topology.map_or(1, |topology| topology.routers);
    tells(&mut *dut, &suite, routers)?;
    let links: Vec<CoreLinkName> = dut.system().iter().flat_map(|system| &system.links).map(|link| link.name).collect();
    let families = [Family::Ipv4, Family::Ipv6];
    let (clock, interfaces) = (SystemClock::start(), dut.interfaces().to_vec());
    let backend = INTERFACE_BACKENDS.iter().find(|backend| backend.spec.name == "af_packet").ok_or("no backend")?;
    let open = real::open(lab, &interfaces, backend, 1, clock)?;
    let (hosts, sessions) = match bgp {
        Bgp::None => (config::hosts(&suite.ports, &families, suite.seed), false),
        _ => (config::hosts_and_routers(&suite.ports, &families, suite.seed), true),
    };
    let rig = Rig::new(Ports::real(open, clock, &[]), &hosts);
    let mut session = Session::new(suite.seed, suite.profile, u64::from(std::process::id()));
    session.tolerance.host = HostTolerance::ANY;
    let mut memory = Memory::default();
    let mut setup = TestSetup::new("sut", &suite.ports, rig, &mut *dut, &mut session, &mut memory);
    setup.facts_mut().flows = suite.flows.clone();
    setup.await_forwarding(&families).map_err(text)?;
    let checked = (|| {
        let all = |setup: &mut TestSetup<'_>| {
            forwards(setup, &suite)?;
            if sessions { passes_routes_on(setup, bgp == Bgp::Forwards) } else { Ok(()) }
        };
        all(&mut setup)?;
        if !topology.contains("mesh") {
            return Ok(());
        }
        ensure(links.first() == Some(&CoreLinkName(1, 2)) && links.len() == 6, || format!("{links:?}"))?;
        let none = set_core_link(&mut setup, CoreLinkName(2, 9), false);
        ensure(none.is_err_and(|e| e.contains("1-2, 1-3")), || "a link that there is not".into())?;
        let hops = |setup: &mut TestSetup<'_>| [(0, 1), (1, 0), (0, 2)].map(|(a, b)| setup.bench().device.hops(a, b));
        ensure(hops(&mut setup) == [2, 2, 2], || "two routers on the way".into())?;
        let (used, threads) = (cpu_time(&mut setup, Duration::ZERO)?, receiving(&mut setup, processor)?);
        set_core_link(&mut setup, links[0], false)?;
        // The processor time of daemons is exact only while none of their threads has ended.
        let floor = |used: Duration| if kind == "linux" { used } else { Duration::ZERO };
        let used = cpu_time(&mut setup, floor(used))?;
        let left = receiving(&mut setup, processor)?;
        ensure(left + 2 == threads, || format!("{left} of {threads} threads with a link down"))?;
        ensure(hops(&mut setup) == [3, 3, 2], || "one more around the link that is down".into())?;
        all(&mut setup).map_err(|e| format!("with link {} down: {e}", links[0]))?;
        set_core_link(&mut setup, links[0], true)?;
        cpu_time(&mut setup, floor(used))?;
        let back = receiving(&mut setup, processor)?;
        ensure(back == threads, || format!("{back} of {threads} threads with the link up again"))?;
        all(&mut setup).map_err(|e| format!("with link {} up again: {e}", links[0]))?;
        if kind != "linux" {
            return Ok(());
        }
        shares_links_by_class(&mut setup, &suite).map_err(|e| format!("classes: {e}"))?;
        ensure(hops(&mut setup) == [2, 2, 2], || "links are not up after the test".into())?;
        all(&mut setup).map_err(|e| format!("after classes: {e}"))
    })();
    drop(setup);
    dut.check().map_err(text)?;
    dut.take_down().map_err(text)?;
    let left = interfaces.iter().find(|i| std::path::Path::new(&format!("/sys/class/net/{}", i.name)).exists());
    checked.and(ensure(left.is_none(), || format!("{left:?} is left")))
}

/// A case for each system.
pub fn cases() -> Vec<Case> {
    let root = nix::unistd::geteuid().is_root();
    CASES
        .into_iter()
        .map(|(kind, topology, bgp)| {
            // OpenBGPD changes to another user, who exists only in root's lab.
            let why = (kind == "openbgpd" && !root).then_some("it needs root");
            Case::in_lab(format!("{kind} {topology}"), move |lab| case(lab, kind, topology, bgp)).long().unless(why)
        })
        .collect()
}
