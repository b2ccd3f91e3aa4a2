//! Memory of the routers of a DUT when its tests have ended.

use crate::setup::TestSetup;
use drophammer_methods::Testbed;

/// Stores a remark about the memory of each router, if it is known.
pub(super) fn note(setup: &mut TestSetup<'_>) {
    if let Some(memory) = setup.bench().device.router_memory() {
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

    #[test]
    fn each_router_and_all() {
        assert_eq!(text(&[3 << 19]), "memory at the end of the tests, PSS of all processes: 1.5 MiB");
        let two = text(&[41 << 20, (1 << 20) + (1 << 19)]);
        assert!(two.ends_with(": r1 41.0 MiB, r2 1.5 MiB; 2 routers have 42.5 MiB"), "{two}");
    }
}
