//! Memory of routers: an estimate before the tests, and the memory in use when the tests ended.

use crate::kinds::is_virtual;
use crate::setup::TestSetup;
use drophammer_methods::Testbed;
use drophammer_model::suite::{DutConfig, Params, Suite};

/// Memory of a router without routes, in MiB, unless its kind specifies it.
const IDLE_MIB: u64 = 128;
/// Memory per route in router and tester together, in bytes. A router that has the route from one peer needs 0.5 to 1.5 KiB for it.
const ROUTE: u64 = 2048;

/// Estimates the bytes that a DUT needs for `routes` routes.
fn need(dut: &DutConfig, routes: u64) -> u64 {
    let routers = dut.topology.as_ref().map_or(1, |topology| topology.routers as u64);
    let idle = dut.params.count("memory").map_or(IDLE_MIB, |mib| mib + IDLE_MIB / 2);
    routers * ((idle << 20) + routes * ROUTE)
}

/// Returns the number of routes in the largest table that a test of the suite can load.
fn most_routes(suite: &Suite) -> u64 {
    let of_test = |params: &Params| ["routes", "max_routes"].iter().filter_map(|key| params.count(key)).max();
    suite.tests.iter().filter_map(|test| of_test(&test.params)).max().unwrap_or(0)
}

/// Returns why the machine has too little memory for all DUTs of the suite at the same time. `None` if it has enough,
/// or if that is unknown.
pub(super) fn short(suite: &Suite) -> Option<String> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let free =
        text.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.split_whitespace().next()?.parse().ok());
    too_little(suite, free.map(|kib: u64| kib << 10)?)
}

fn too_little(suite: &Suite, free: u64) -> Option<String> {
    let routes = most_routes(suite);
    let all: u64 = suite.duts.iter().filter(|dut| !is_virtual(dut)).map(|dut| need(dut, routes)).sum();
    let gib = |bytes: u64| format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30));
    (all > free).then(|| format!("together they may need {} of memory, but only {} are free", gib(all), gib(free)))
}

/// Stores a note about the memory of each router, if known.
pub(super) fn note(setup: &mut TestSetup<'_>) {
    if let Some(memory) = setup.bench().device.usage().and_then(|usage| usage.router_memory()) {
        setup.note(&text(&memory));
    }
}

/// `memory at the end of the tests: r1 41.2 MiB, r2 40.9 MiB; 2 routers have 82.1 MiB`
fn text(memory: &[u64]) -> String {
    let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    let said = "memory at the end of the tests, PSS of all processes";
    match memory {
        [one] => format!("{said}: {}", mib(*one)),
        all => {
            let each = all.iter().enumerate().map(|(index, bytes)| format!("r{} {}", index + 1, mib(*bytes)));
            let each: Vec<String> = each.collect();
            format!("{said}: {}; {} routers have {}", each.join(", "), all.len(), mib(all.iter().sum()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_methods::METHODS;
    use drophammer_model::registry::Registry;
    use drophammer_suite::Overrides;
    use drophammer_suite::read::read;

    #[test]
    fn each_router_and_all() {
        assert_eq!(text(&[3 << 19]), "memory at the end of the tests, PSS of all processes: 1.5 MiB");
        let two = text(&[41 << 20, (1 << 20) + (1 << 19)]);
        assert!(two.ends_with(": r1 41.0 MiB, r2 1.5 MiB; 2 routers have 42.5 MiB"), "{two}");
    }

    #[test]
    fn large_tables_do_not_fit_several_times() {
        let suite = |routes: u32| {
            let text = format!(
                "suite: memory\nduts: [{{name: a, kind: frr}}, {{name: b, kind: bird}}]\nbgp: {{}}\n\
                 ports: [{{name: p1, speed: 1 Gbit/s}}, {{name: p2, speed: 1 Gbit/s}}]\n\
                 tests:\n  - bgp_table_capacity: {{max_routes: {routes}}}\n  - throughput\n"
            );
            let (tests, kinds) = (METHODS.iter().map(|m| m.spec()).collect::<Vec<_>>(), crate::kinds::specs());
            let registry = Registry { tests: &tests, kinds: &kinds };
            read(&text, "memory.yaml", &registry, &Overrides::default()).unwrap()
        };
        assert_eq!(too_little(&suite(100_000), 1 << 30), None);
        let why = too_little(&suite(1_000_000), 1 << 30).unwrap();
        assert_eq!(why, "together they may need 4.1 GiB of memory, but only 1.0 GiB are free");
    }
}
