//! The first record of a run.

use super::method;
use drophammer_model::environment::Environment;
use drophammer_model::record::{FORMAT, Started};
use drophammer_model::suite::{Profile, Suite, TestConfig};

pub(super) fn started(
    suite: &Suite,
    command: &[String],
    digest: String,
    environment: Environment,
    unwatched: bool,
) -> Started {
    let of_test = |t: &TestConfig| (method(t).spec().title, method(t).plan(&t.params).deviations);
    let mut deviations = crate::deviations::summary(&suite.tests.iter().map(of_test).collect::<Vec<_>>());
    if unwatched {
        deviations.push("trials are kept although the host was busy (--busy-host)".into());
    }
    Started {
        format: FORMAT,
        time: String::new(),
        suite: suite.name.clone(),
        title: suite.title.clone(),
        about: suite.about.clone(),
        profile: suite.profile.to_string(),
        conformant: suite.profile == Profile::Conformant && deviations.is_empty(),
        deviations,
        seed: suite.seed,
        duts: suite.duts.iter().map(|d| d.name.clone()).collect(),
        tests: suite.tests.iter().map(|t| (t.test.clone(), method(t).spec().title.to_owned())).collect(),
        rounds: suite.rounds,
        command: command.to_vec(),
        digest,
        environment,
        // If the baseline was not read, it is not a condition of the run.
        baseline: suite.baseline.clone().filter(|baseline| !baseline.started.is_empty()),
    }
}
