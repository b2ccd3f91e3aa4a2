//! The reader of suites: any text is a suite or has mistakes at places of it; what it reads can be estimated and described.

use drophammer_methods::METHODS;
use drophammer_model::registry::Registry;
use drophammer_reference::Router;
use drophammer_suite::read::{Overrides, read};
use drophammer_testbed::{kinds, simulated};
use std::time::Duration;

/// Reads the input as `drophammer check` does.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let tests: Vec<_> = METHODS.iter().map(|m| m.spec()).collect();
    let kinds = kinds::specs();
    let registry = Registry { tests: &tests, kinds: &kinds };
    match read(text, "fuzz.yaml", &registry, &Overrides::default()) {
        Ok(suite) => {
            assert!(!suite.duts.is_empty() && suite.ports.len() >= 2 && !suite.tests.is_empty());
            for dut in suite.duts.iter().filter(|d| d.kind == kinds::REFERENCE) {
                drop(Router::new(simulated::config(dut, &suite.ports, suite.seed)));
            }
            for test in &suite.tests {
                let method = METHODS.iter().find(|m| m.spec().name == test.test).unwrap();
                let plan = method.plan(&test.params);
                assert!(plan.estimate(plan.searched.len()) >= Duration::ZERO);
                plan.trial_count(plan.searched.len());
                test.params.to_json();
            }
        }
        Err(errors) => {
            assert!(!errors.errors.is_empty());
            for e in &errors.errors {
                assert!(text.get(e.span.clone()).is_some(), "{e:?}");
                assert_eq!(e.line, text[..e.span.start].matches('\n').count() + 1);
                assert!(e.column >= 1 && !e.message.is_empty() && !e.help.is_empty(), "{e:?}");
            }
            assert!(!errors.to_string().is_empty());
        }
    }
}
