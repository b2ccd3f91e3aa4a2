//! Suites on the command line: reading them, their baselines, and `drophammer check`.

use crate::args::SuiteArgs;
use crate::output::{err, out};
use crate::served::Order;
use crate::{Ended, Exit, Failure, diagnostics, key_file};
use drophammer_methods::METHODS;
use drophammer_model::quantity::show_duration;
use drophammer_model::record::Baseline;
use drophammer_model::registry::{KindSpec, Registry, TestSpec};
use drophammer_model::suite::{Mask, Secret, Suite, TestConfig};
use drophammer_model::visible::{one_line, visible};
use drophammer_report::baseline::resolve;
use drophammer_store::RunReader;
use drophammer_suite::SuiteErrors;
use drophammer_suite::include::{MAX_BYTES, Refusal};
use drophammer_suite::keys::{KeyPlace, OpenKey};
use drophammer_suite::read::{self, Outside, Overrides, default_rounds};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;
use std::time::Duration;

/// Calls `work` with the registry of all tests and kinds.
pub fn with_registry<T>(work: impl FnOnce(&Registry<'_>) -> T) -> T {
    let tests: Vec<&TestSpec> = METHODS.iter().map(|m| m.spec()).collect();
    let kinds: Vec<&KindSpec> = drophammer_testbed::kinds::specs();
    work(&Registry { tests: &tests, kinds: &kinds })
}

/// Reads a suite that this program has written.
pub fn read_own(text: &str, name: &str) -> Result<Suite, SuiteErrors> {
    with_registry(|registry| read::read(text, name, registry, &Overrides::default()))
}

/// Reads the text of a file that a suite in `folder` includes. The file must be in or below the folder, even after
/// links are followed.
fn included(folder: &Path, path: &Path) -> Result<String, Refusal> {
    let name = path.display();
    let failed = |e: io::Error| {
        let help = "the path is relative to the folder of the file that includes it";
        Refusal::new(format!("cannot read `{name}`: {e}"), help)
    };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let file = folder.join(path).canonicalize().map_err(failed)?;
    if !file.starts_with(folder.canonicalize().map_err(failed)?) {
        let help = "copy the file into that folder, or a folder below it";
        return Err(Refusal::new(format!("`{name}` is a link that points outside the folder of the suite"), help));
    }
    let metadata = fs::metadata(&file).map_err(failed)?;
    // Other kinds of file might never end, or block the reader.
    if !metadata.is_file() {
        return Err(Refusal::new(format!("`{name}` is not a regular file"), "name a file with keys of a suite"));
    }
    if metadata.len() > MAX_BYTES as u64 {
        let help = format!("an included file has at most {MAX_BYTES} bytes; is this the right file?");
        return Err(Refusal::new(format!("`{name}` has {} bytes", metadata.len()), help));
    }
    let mut bytes = Vec::new();
    // If the file grows in the meantime, the reader of the suite refuses its text as too long.
    File::open(&file).and_then(|file| file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)).map_err(failed)?;
    String::from_utf8(bytes).map_err(|_| Refusal::new(format!("`{name}` is not text in UTF-8"), "save it as UTF-8"))
}

/// Reads the text of a suite file. Of an endless file, reads only slightly more than the parser accepts.
fn text_of(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(MAX_BYTES as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}

/// What a run stores of its suite; it contains no secrets.
pub struct Kept {
    /// Texts by their names in the folder of the run.
    pub texts: Vec<(String, String)>,
    /// Variables whose values on the command line are secret.
    pub secret_variables: Vec<String>,
}

/// Reads the suite, and what a run stores of it. Prints its errors.
pub fn load(args: &SuiteArgs) -> Result<(Suite, Kept), Failure> {
    load_with(args, &key_file::of_suite)
}

/// Like [`load`], but with placeholders for keys of BGP sessions that are in files or the environment.
pub fn load_without_keys(args: &SuiteArgs) -> Result<(Suite, Kept), Failure> {
    load_with(args, &|_| Ok(Secret::HIDDEN.to_owned()))
}

/// Reads the suite of a client of the API, and refuses what it must not name. `tell` takes the errors of the suite.
pub fn load_order(args: &SuiteArgs, order: &Order, tell: Tell<'_>) -> Result<(Suite, Kept), Failure> {
    let folder = args.suite.parent().unwrap_or(Path::new(""));
    let Some(confined) = &order.confined else {
        let include = |path: &Path| included(folder, path);
        return load_text(args, &order.suite, Outside { include: &include, key: &key_file::of_suite }, tell);
    };
    let include = |path: &Path| match &confined.folder {
        Some(_) => included(folder, path),
        None => {
            Err(Refusal::new("the server was started without --suites", "write the keys of the file into the suite"))
        }
    };
    let key = |place: &KeyPlace| confined.key(place);
    let (suite, kept) = load_text(args, &order.suite, Outside { include: &include, key: &key }, tell)?;
    confined.refuse(&suite).map_err(|wrong| {
        wrong.iter().for_each(|why| err!("error: {}", diagnostics::with_help(&visible(why, &[]))));
        Failure::told()
    })?;
    Ok((suite, kept))
}

fn load_with(args: &SuiteArgs, key: OpenKey<'_>) -> Result<(Suite, Kept), Failure> {
    let text = text_of(&args.suite).map_err(|e| {
        let name = args.suite.display();
        Failure::usage(format!(
            "cannot read suite `{name}`: {e}; name a suite file, for instance suites/quick-look.yaml"
        ))
    })?;
    let folder = args.suite.parent().unwrap_or(Path::new(""));
    let include = |path: &Path| included(folder, path);
    load_text(args, &text, Outside { include: &include, key }, &diagnostics::print)
}

/// Takes the errors of a suite.
type Tell<'a> = &'a dyn Fn(&SuiteErrors);

fn load_text(args: &SuiteArgs, text: &str, outside: Outside<'_>, tell: Tell<'_>) -> Result<(Suite, Kept), Failure> {
    let name = args.suite.display().to_string();
    let overrides = Overrides {
        profile: args.profile,
        duts: args.duts.clone(),
        tests: args.tests.clone(),
        seed: args.seed,
        rounds: args.rounds,
        variables: args.variables.clone(),
        set: args.set.clone(),
    };
    let read = with_registry(|registry| read::read_with(text, &name, outside, registry, &overrides));
    let loaded = read.map_err(|errors| {
        tell(&errors);
        Failure::told()
    })?;
    let mut suite = loaded.suite;
    let mut texts = vec![("suite.yaml".to_owned(), loaded.text)];
    // Put these in a separate folder, because the run may have files with the same names.
    texts.extend(loaded.included.into_iter().map(|(path, text)| (format!("included/{path}"), text)));
    if let Some(time) = args.time {
        let least = default_rounds(suite.profile, suite.duts.len());
        suite.rounds = drophammer_testbed::rounds_within(&suite, time, least);
        suite.time = Some(time);
        let needs = drophammer_testbed::estimate(&suite);
        if needs > time {
            let (rounds, needs, time) = (suite.rounds, show_about(needs), show_duration(time));
            err!(
                "warning: --time {time} is too short: the default number of rounds, {rounds}, takes about {needs}; use \
                 --rounds for fewer"
            );
        }
    }
    Ok((suite, Kept { texts, secret_variables: loaded.secret_variables }))
}

/// An estimated time, in whole seconds or minutes.
pub fn show_about(time: Duration) -> String {
    match time.as_secs() {
        0..=99 => format!("{} s", time.as_secs().max(1)),
        seconds => format!("{} min", (seconds + 30) / 60),
    }
}

/// A mask that hides the secrets of the suite in other texts.
pub fn mask(suite: &Suite) -> Mask {
    suite.bgp.as_ref().map(|bgp| bgp.protection.mask()).unwrap_or_default()
}

/// Prints what the routers of the suite cannot do: a role that a router cannot play, or a configuration of the user
/// that it cannot use.
pub fn refuse_impossible(suite: &Suite) -> Result<(), Failure> {
    drophammer_testbed::kinds::check(suite).map_err(|refused| {
        let mask = mask(suite);
        refused.iter().for_each(|why| err!("error: {}", mask.text(&why.to_string())));
        Failure::told()
    })
}

/// Reads the figures that bounds of the suite refer to. A folder on the command line takes precedence over the baseline
/// of the suite.
pub fn read_baseline(suite: &mut Suite, named: Option<&Path>) -> Result<(), Failure> {
    if let Some(dir) = named {
        suite.baseline = Some(Baseline { folder: dir.display().to_string(), ..Baseline::default() });
    }
    if !suite.needs_baseline() {
        if let Some(dir) = named {
            let dir = one_line(&dir.display().to_string());
            err!(
                "warning: --baseline {dir}: no criterion is a share of a baseline, such as `\">= 95 % of baseline\"`; nothing is compared"
            );
        }
        return Ok(());
    }
    let Some(folder) = suite.baseline.as_ref().map(|baseline| baseline.folder.clone()) else {
        return Err(Failure::usage(
            "criteria are shares of a baseline, but no run is named; use --baseline FOLDER, or write `baseline: FOLDER` into the suite",
        ));
    };
    let run = RunReader::open(Path::new(&folder)).map_err(|e| Failure::usage(format!("baseline: {e}")))?;
    if run.running {
        let text = format!("baseline: the run in `{folder}` has not ended; wait until it has, or name another run");
        return Err(Failure::usage(text));
    }
    for warning in &run.warnings {
        err!("warning: {}: {}", one_line(&folder), one_line(warning));
    }
    resolve(suite, &run).map_err(|wrong| {
        wrong.iter().for_each(|why| err!("error: {}", visible(why, &[])));
        err!("  help: the baseline is the run in `{}`", one_line(&folder));
        Failure::told()
    })
}

/// `drophammer check`.
pub fn check(args: &SuiteArgs) -> Ended {
    let (mut suite, _) = load(args)?;
    refuse_impossible(&suite)?;
    // If the suite names no baseline, the user can give one to `run`.
    if suite.baseline.is_some() {
        read_baseline(&mut suite, None)?;
    }
    let list = |names: Vec<&str>| names.join(", ");
    out!("{}: good", args.suite.display());
    out!("  profile  {}", suite.profile);
    out!("  routers  {}", list(suite.duts.iter().map(|d| d.name.as_str()).collect()));
    out!("  ports    {}", list(suite.ports.iter().map(|p| p.name.as_str()).collect()));
    let tests: Vec<String> = suite.tests.iter().map(TestConfig::label).collect();
    out!("  tests    {}", tests.join(", "));
    out!("  rounds   {}, about {}", suite.rounds, show_about(drophammer_testbed::estimate(&suite)));
    match &suite.baseline {
        Some(run) if suite.needs_baseline() => out!("  baseline {} of {}", one_line(&run.folder), run.started),
        None if suite.needs_baseline() => out!("  baseline none; `drophammer run` needs --baseline FOLDER"),
        _ => {}
    }
    Ok(Exit::Good)
}
