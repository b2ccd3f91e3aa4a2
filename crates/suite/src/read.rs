//! Converts the text of a suite file to a [`Suite`], or reports all of its errors.

use super::errors::{Problems, Sources, SuiteErrors, did_you_mean, list, quote};
use super::fields::{Fields, flag, name, text, whole, word};
use super::include::{self, Includer, Open, Refusal};
use super::keys::{self, KeyPlace, OpenKey, without_secrets};
use super::raw::{self, Node};
use super::set::Setting;
use super::variables::{self, Variable};
use super::{about, bgp, digest, dut_list, flow_list, port_list, published, set, test_list};
use drophammer_model::environment::About;
use drophammer_model::record::Baseline;
use drophammer_model::registry::Registry;
use drophammer_model::routes::RouteKind;
use drophammer_model::suite::{DEFAULT_INPUT_QUEUE, DEFAULT_SEED, MAX_INPUT_QUEUE, MAX_ROUNDS};
use drophammer_model::suite::{DutConfig, Profile, Suite, TestConfig};
use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;

/// Longest title, in characters.
pub(crate) const MAX_TITLE: usize = 200;

/// Keys of a suite.
#[rustfmt::skip]
pub(crate) const KEYS: [&str; 19] = [
    include::KEY, variables::KEY, "suite", "title", "about", "profile", "rounds", "input_queue", "seed", "duts", "ports", "bgp", "flows",
    "defaults", "tests", "published", "digest", "baseline", "allow_public_addresses",
];

/// Changes to a suite from the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Profile that overrides the suite's profile.
    pub profile: Option<Profile>,
    /// Names of the DUTs to run; all if empty.
    pub duts: Vec<String>,
    /// Names or ids of the tests to run; all if empty.
    pub tests: Vec<String>,
    /// Seed that overrides the suite's seed.
    pub seed: Option<u64>,
    /// Number of rounds that overrides the suite's number.
    pub rounds: Option<u32>,
    /// Values of variables, instead of the suite's. If a variable has several, the last one applies.
    pub variables: Vec<Variable>,
    /// Parameters of tests, instead of the suite's. If a parameter has several, the last one applies.
    pub set: Vec<Setting>,
}

/// A suite and the texts from which it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The suite.
    pub suite: Suite,
    /// Its text as stored in a run, without keys of BGP sessions.
    pub text: String,
    /// Included files: path relative to the suite's folder, and the text, also without keys.
    pub included: Vec<(String, String)>,
    /// Variables set on the command line that contain such a key or a part of it.
    pub secret_variables: Vec<String>,
}

/// Access to files and keys that a suite names but does not contain.
#[derive(Clone, Copy)]
pub struct Outside<'a> {
    /// Returns the text of an included file.
    pub include: Open<'a>,
    /// Returns a key of a BGP session.
    pub key: OpenKey<'a>,
}

impl std::fmt::Debug for Outside<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outside").finish_non_exhaustive()
    }
}

/// Reads a suite that includes no other file and contains its keys. Errors name the file `file_name`; paths in the
/// suite are relative to the folder of that file.
///
/// DUTs and tests keep the order of the file, even if `overrides` name them in another order.
///
/// # Errors
/// All independent errors, in order of position. Text that is not YAML, is larger than 1 MiB or nested too deep gives
/// one error.
pub fn read(text: &str, file_name: &str, registry: &Registry, overrides: &Overrides) -> Result<Suite, SuiteErrors> {
    let none = |_: &Path| -> Result<String, Refusal> {
        Err(Refusal::new("no file can be included here", "write its keys into the suite"))
    };
    let no_key = |_: &KeyPlace| -> Result<String, Refusal> {
        Err(Refusal::new("no key can be read here", "write it into the suite, as `md5`"))
    };
    read_with(text, file_name, Outside { include: &none, key: &no_key }, registry, overrides).map(|loaded| loaded.suite)
}

/// Like [`read`], but for a suite that can include files and name keys of BGP sessions; `outside` returns them.
///
/// # Errors
/// Errors of [`read`]. Errors in an included file are reported at their positions in that file. A file that cannot be
/// included ends the reading. A key that cannot be read is reported where the suite names it.
pub fn read_with(
    text: &str,
    file_name: &str,
    outside: Outside<'_>,
    registry: &Registry,
    overrides: &Overrides,
) -> Result<Loaded, SuiteErrors> {
    let mut problems = Problems::default();
    let mut sources = Sources::of(file_name, text);
    let file = Path::new(file_name);
    let folder = file.parent().unwrap_or(Path::new(""));
    let mut root = raw::parse(text, &mut problems)
        .and_then(|root| Includer::new(file, outside.include, &mut sources, &mut problems).expand(root));
    if let Some(root) = &mut root {
        variables::apply(root, &overrides.variables, &mut problems);
        set::apply(root, &overrides.set, &mut problems);
        keys::apply(root, folder, outside.key, &mut problems);
        sources.secrets = keys::values(root);
    }
    let suite = root.and_then(|root| suite(&root, folder, registry, overrides, &mut problems));
    let (text, included) = sources.texts();
    let paths: Vec<String> = included.iter().map(|(path, _)| (*path).to_owned()).collect();
    let given: Vec<String> = overrides.variables.iter().map(Variable::as_section).collect();
    let texts: Vec<&str> = std::iter::once(text)
        .chain(included.iter().map(|(_, text)| *text))
        .chain(given.iter().map(String::as_str))
        .collect();
    let loaded = suite.map(|suite| {
        let mut kept = without_secrets(&texts, &sources.secrets).into_iter();
        let text = kept.next().unwrap_or_default();
        let included = paths.into_iter().zip(kept.by_ref()).collect();
        let changed = overrides.variables.iter().zip(&given).zip(kept).filter(|((_, given), kept)| *given != kept);
        let secret_variables = changed.map(|((variable, _), _)| variable.name.clone()).collect();
        Loaded { suite, text, included, secret_variables }
    });
    problems.finish(loaded, sources)
}

fn suite(
    root: &Node,
    folder: &Path,
    registry: &Registry,
    overrides: &Overrides,
    problems: &mut Problems,
) -> Option<Suite> {
    let fields = Fields::with_keys(root, "a suite", &KEYS, "suite: my-suite", problems)?;
    // Missing top-level keys are reported at the beginning of the file.
    let start = root.span.start..root.span.start;
    let top = Fields { span: &start, ..fields };

    let name = top
        .required("suite", "a suite", "suite: my-suite", problems)
        .and_then(|n| name(n, "the name of a suite", false, problems));
    let title = fields.value("title").map_or_else(|| name.clone(), |node| title(node, problems));
    let profile = fields.or("profile", Profile::Quick, |node| profile(node, problems));
    let seed = fields.or("seed", DEFAULT_SEED, |node| whole(node, "`seed`", 0, u64::MAX, problems));
    let rounds = fields.optional("rounds", |node| whole(node, "`rounds`", 1, MAX_ROUNDS, problems))?;
    let queue = |node| whole(node, "`input_queue`", 0, MAX_INPUT_QUEUE, problems);
    let input_queue = fields.or("input_queue", DEFAULT_INPUT_QUEUE.into(), queue)? as u32;
    let key = "allow_public_addresses";
    let public = fields.or(key, false, |node| flag(node, "`allow_public_addresses`", problems)).unwrap_or(true);

    let ports_node = top.required("ports", "a suite", "ports: [{name: p1, speed: 10 Gbit/s}, …]", problems);
    let duts_node = top.required("duts", "a suite", "duts: [{name: frr, kind: frr}]", problems);
    let tests_node = top.required("tests", "a suite", "tests: [throughput]", problems);
    // After an error in one section, the other sections are still read, with the most lenient assumption.
    let bgp_entry = fields.get("bgp");
    let mut ports = ports_node.and_then(|n| port_list::read(n, public, bgp_entry.is_some(), problems));
    let profile_used = overrides.profile.or(profile).unwrap_or(Profile::Quick);
    let bgp = bgp_entry.map(|e| bgp::read(e, profile_used, ports.as_mut(), problems));
    let flows = match (fields.value("flows"), &ports) {
        (Some(node), Some(ports)) => flow_list::read(node, ports, public, problems),
        _ => Some(Vec::new()),
    };
    let duts = duts_node.and_then(|n| {
        let around = dut_list::Around { profile: profile_used, folder, ports: ports.as_deref(), only: &overrides.duts };
        dut_list::read(n, registry, &around, problems)
    });
    // A DUT that does not run does not have to fit the rest.
    let runs = |d: &&DutConfig| overrides.duts.is_empty() || overrides.duts.contains(&d.name);
    let around = test_list::Around {
        profile: profile_used,
        ports: ports.as_deref(),
        duts: duts.iter().flatten().filter(runs).collect(),
        names: duts.as_ref().map(|duts| duts.iter().map(|dut| dut.name.as_str()).collect()),
        bgp: bgp.as_ref().map(|read| read.as_ref().map_or(RouteKind::Unicast, |bgp| bgp.routes)),
        flows: fields.value("flows").map(|_| flows.iter().flatten().map(|f| f.name.as_str()).collect()),
        only: &overrides.tests,
    };
    let tests = tests_node.and_then(|n| test_list::read(n, fields.get("defaults"), registry, &around, problems));

    let about = fields.or("about", About::default(), |node| about::read(node, duts.as_deref(), problems));
    let published = |node| published::read(node, tests.as_deref(), registry, problems);
    let published = fields.or("published", Vec::new(), published);
    let digests = fields.or("digest", Vec::new(), |node| digest::read(node, tests.as_deref(), registry, problems));
    let baseline = fields.optional("baseline", |node| text(node, "`baseline`", "results/last-release", problems))?;
    let mut duts = duts?;
    let mut tests = tests?;
    let span = |key: &str| fields.get(key).map_or(0..0, |e| e.key_span.clone());
    let of_dut = |dut: &DutConfig, word: &str| dut.name == word;
    let known: Vec<String> = duts.iter().map(|dut| dut.name.clone()).collect();
    select(("--dut", "DUT"), &overrides.duts, &mut duts, of_dut, &known, &span("duts"), problems);
    let mut known: Vec<String> =
        tests.iter().flat_map(|test| [Some(test.test.clone()), test.id.clone()]).flatten().collect();
    let mut seen = HashSet::new();
    known.retain(|word| seen.insert(word.clone()));
    select(("--test", "test"), &overrides.tests, &mut tests, TestConfig::is_called, &known, &span("tests"), problems);
    if !overrides.duts.is_empty() {
        refuse_idle(&duts, &tests, &span("tests"), problems);
    }
    Some(Suite {
        name: name?,
        title: title?,
        about: About { published: published?, digests: digests?, ..about? },
        profile: overrides.profile.or(profile)?,
        seed: overrides.seed.or(seed)?,
        input_queue,
        rounds: overrides
            .rounds
            .or(rounds.map(|n| n as u32))
            .unwrap_or_else(|| default_rounds(profile_used, duts.len())),
        time: None,
        duts,
        ports: ports?,
        bgp: match bgp {
            Some(bgp) => Some(bgp?),
            None => None,
        },
        flows: flows?,
        tests,
        baseline: baseline
            .map(|run| Baseline { folder: folder.join(run.trim()).display().to_string(), ..Baseline::default() }),
    })
}

/// One round for a single DUT, because it is not compared with another. Otherwise at least six: with fewer rounds, the
/// minimum and the maximum do not enclose the true median with more than 95 % confidence.
pub fn default_rounds(profile: Profile, duts: usize) -> u32 {
    match (duts, profile) {
        (..=1, _) => 1,
        (_, Profile::Quick) => 6,
        (_, Profile::Conformant) => 10,
    }
}

fn title(node: &Node, problems: &mut Problems) -> Option<String> {
    let title = text(node, "`title`", "Two routers side by side", problems)?.trim();
    if title.contains(char::is_control) || title.chars().count() > MAX_TITLE {
        let message = format!("the title {} has more than one line or {MAX_TITLE} characters", quote(title));
        return problems.refuse(&node.span, message, "write one line; write the rest as comments (`# …`)");
    }
    Some(title.to_owned())
}

fn profile(node: &Node, problems: &mut Problems) -> Option<Profile> {
    Some(match word(node, "`profile`", &["quick", "conformant"], problems)?.as_str() {
        "conformant" => Profile::Conformant,
        _ => Profile::Quick,
    })
}

/// Keeps the items that the command line names. If no item has a name, the error is reported at this section.
fn select<T>(
    (option, what): (&str, &str),
    wanted: &[String],
    items: &mut Vec<T>,
    is_called: impl Fn(&T, &str) -> bool,
    known: &[String],
    span: &Range<usize>,
    problems: &mut Problems,
) {
    if wanted.is_empty() {
        return;
    }
    for word in wanted.iter().filter(|word| !items.iter().any(|item| is_called(item, word))) {
        let message = format!("`{option} {}`: this suite has no such {what}", quote(word).trim_matches('`'));
        problems.add(span, message, did_you_mean(word, known.iter().map(String::as_str)));
    }
    items.retain(|item| wanted.iter().any(|word| is_called(item, word)));
}

/// Reports a selection in which no test runs on any DUT: it would measure nothing.
fn refuse_idle(duts: &[DutConfig], tests: &[TestConfig], span: &Range<usize>, problems: &mut Problems) {
    let runs = |test: &TestConfig| duts.iter().any(|dut| test.is_for(&dut.name));
    if duts.is_empty() || tests.is_empty() || tests.iter().any(runs) {
        return;
    }
    let message = format!("no test of this selection runs on {}", list(duts.iter().map(|dut| dut.name.as_str())));
    let mut able: Vec<&str> = tests.iter().flat_map(|test| &test.duts).map(String::as_str).collect();
    able.sort_unstable();
    able.dedup();
    problems.add(span, message, format!("select a DUT that these tests have in `duts`: {}", list(able)));
}
