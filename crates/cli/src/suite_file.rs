//! Reading a suite for the command line.

use crate::args::{ProfileArg, SuiteArgs};
use crate::output::{err, out};
use crate::{Exit, diagnostics};
use drophammer_methods::METHODS;
use drophammer_model::quantity::show_duration;
use drophammer_model::registry::{KindSpec, Registry, TestSpec};
use drophammer_model::suite::read::{self, Overrides, default_rounds};
use drophammer_model::suite::{Profile, Suite};
use std::time::Duration;

/// Calls `work` with the registry of all tests and kinds.
pub fn with_registry<T>(work: impl FnOnce(&Registry<'_>) -> T) -> T {
    let tests: Vec<&TestSpec> = METHODS.iter().map(|m| m.spec()).collect();
    let kinds: Vec<&KindSpec> = drophammer_testbed::kinds::specs();
    work(&Registry { tests: &tests, kinds: &kinds })
}

/// Reads the suite and its text; prints what is wrong with it.
pub fn load(args: &SuiteArgs) -> Result<(Suite, String), Exit> {
    let name = args.suite.display().to_string();
    let text = std::fs::read_to_string(&args.suite).map_err(|e| {
        err!("cannot read suite `{name}`: {e}\n  help: name a suite file, for instance suites/quick-look.yaml");
        Exit::Usage
    })?;
    let profile = args.profile.map(|p| match p {
        ProfileArg::Quick => Profile::Quick,
        ProfileArg::Conformant => Profile::Conformant,
    });
    let overrides = Overrides {
        profile,
        duts: args.duts.clone(),
        tests: args.tests.clone(),
        seed: args.seed,
        rounds: args.rounds,
        variables: args.variables.clone(),
        set: args.set.clone(),
    };
    let suite = with_registry(|registry| read::read(&text, &name, registry, &overrides)).map_err(|errors| {
        diagnostics::print(&errors);
        Exit::Usage
    })?;
    let mut suite = suite;
    if let Some(time) = args.time {
        let least = default_rounds(suite.profile, suite.duts.len());
        suite.rounds = drophammer_testbed::rounds_within(&suite, time, least);
        let needs = drophammer_testbed::estimate(&suite);
        if needs > time {
            let (rounds, needs, time) = (suite.rounds, show_about(needs), show_duration(time));
            err!(
                "{rounds} rounds are the fewest that tell routers apart; they take about {needs}, which is longer than {time}"
            );
        }
    }
    Ok((suite, text))
}

/// A time that is an estimate: whole seconds, or minutes.
pub fn show_about(time: Duration) -> String {
    match time.as_secs() {
        0..=99 => format!("{} s", time.as_secs().max(1)),
        seconds => format!("{} min", (seconds + 30) / 60),
    }
}

/// Prints what is known beforehand to stand in the way of a router of the suite: a role that it cannot play, a configuration of
/// the user's that cannot be used.
pub fn refuse_impossible(suite: &Suite) -> Result<(), Exit> {
    drophammer_testbed::kinds::check(suite).map_err(|refused| {
        refused.iter().for_each(|why| err!("error: {why}"));
        Exit::Usage
    })
}

/// `drophammer check`.
pub fn check(args: &SuiteArgs) -> Exit {
    match load(args) {
        Ok((suite, _)) => {
            if let Err(exit) = refuse_impossible(&suite) {
                return exit;
            }
            let list = |names: Vec<&str>| names.join(", ");
            out!("{}: good", args.suite.display());
            out!("  profile  {}", suite.profile);
            out!("  routers  {}", list(suite.duts.iter().map(|d| d.name.as_str()).collect()));
            out!("  ports    {}", list(suite.ports.iter().map(|p| p.name.as_str()).collect()));
            out!("  tests    {}", list(suite.tests.iter().map(|t| t.test.as_str()).collect()));
            out!("  rounds   {}, about {}", suite.rounds, show_about(drophammer_testbed::estimate(&suite)));
            Exit::Good
        }
        Err(exit) => exit,
    }
}
