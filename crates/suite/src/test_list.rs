//! The `tests:` and `defaults:` sections, and checks that tests fit the rest of the suite.

use super::errors::{Problems, did_you_mean, list, quote};
use super::expect;
use super::fields::{Fields, items, refuse_repeated, such_as, text};
use super::raw::{Entry, Node, Value};
use super::values::{Given, Resolved, params, resolve};
use drophammer_model::capabilities::{INSTALL_ROUTES, Need};
use drophammer_model::registry::{ParamKind, Registry, TestSpec};
use drophammer_model::routes::RouteKind;
use drophammer_model::suite::{DutConfig, ParamValue, PortConfig, Profile, TestConfig};
use drophammer_model::trial::Family;
use std::ops::Range;

const EXAMPLE: &str = "- throughput: {frame_sizes: [64, 1518]}";

/// Key that distinguishes tests of the same name. It is not a parameter, so `defaults` cannot have it.
pub(crate) const ID: &str = "id";
/// Key that restricts a test to some DUTs. It is not a parameter either.
pub(crate) const DUTS: &str = "duts";
/// Longest id.
pub(crate) const LONGEST_ID: usize = 32;

/// A test as written: its name and, if given, its parameters.
struct Written<'n> {
    spec: &'n TestSpec,
    name_span: &'n Range<usize>,
    fields: Option<Fields<'n>>,
    id: Option<(&'n str, &'n Range<usize>)>,
    /// Names of the only DUTs that it runs on; all if empty.
    duts: Vec<&'n str>,
}

impl Written<'_> {
    /// True if `only` contains its name or id, or is empty.
    fn runs(&self, only: &[String]) -> bool {
        let is_meant = |word: &String| word == self.spec.name || self.id.is_some_and(|(id, _)| word == id);
        only.is_empty() || only.iter().any(is_meant)
    }
}

/// The parts of the suite that must agree with tests.
pub(crate) struct Around<'a> {
    pub profile: Profile,
    /// Ports, if they could be read.
    pub ports: Option<&'a [PortConfig]>,
    /// DUTs that will run, if they could be read.
    pub duts: Vec<&'a DutConfig>,
    /// Names of all DUTs of the suite, if they could be read.
    pub names: Option<Vec<&'a str>>,
    /// What routes have in addition to prefixes, if the suite has a section `bgp`.
    pub bgp: Option<RouteKind>,
    /// Names of the flows, if the suite has a section `flows`.
    pub flows: Option<Vec<&'a str>>,
    /// Tests that will run, by name or id; empty for all.
    pub only: &'a [String],
}

/// Reads the tests.
pub(crate) fn read(
    node: &Node,
    defaults: Option<&Entry>,
    registry: &Registry,
    around: &Around,
    problems: &mut Problems,
) -> Option<Vec<TestConfig>> {
    let nodes = items(node, "`tests`", EXAMPLE, problems)?;
    let written: Vec<_> = nodes.iter().filter_map(|n| one(n, registry, around.names.as_deref(), problems)).collect();
    let defaults = match defaults.map(|e| &e.value) {
        Some(node) if !matches!(node.value, Value::Null) => {
            Some(Fields::of(node, "`defaults`", "{frame_sizes: [64, 1518]}", problems)?)
        }
        _ => None,
    };
    if let Some(defaults) = defaults {
        refuse_unused(defaults, &written, written.len() == nodes.len(), registry, problems);
    }
    for spec in registry.tests {
        let ids = written.iter().filter(|test| test.spec.name == spec.name).filter_map(|test| test.id);
        refuse_repeated(&format!("tests {}", quote(spec.name)), ids, problems);
    }
    for test in written.iter().filter(|test| test.runs(around.only)) {
        check_needs(test, test.spec.needs, registry, around, problems);
        if around.ports.is_some_and(|ports| ports.len() == 1) && test.spec.name != ON_ONE_PORT {
            let message = format!("the suite has 1 port, and {} sends from port to port", quote(test.spec.name));
            let help = format!(
                "write 2 ports; with one, only {} runs, with `flows:` between its sub-interfaces",
                quote(ON_ONE_PORT)
            );
            problems.add(test.name_span, message, help);
        }
    }
    let tests: Vec<_> = written.iter().filter_map(|t| configure(t, defaults, registry, around, problems)).collect();
    (tests.len() == nodes.len()).then_some(tests)
}

/// The only test that needs no second port, because it sends the flows of the suite.
const ON_ONE_PORT: &str = "fixed_rate";

/// Reads a test, given as its bare name, or as a map of its name to its parameters.
fn one<'n>(
    node: &'n Node,
    registry: &Registry<'n>,
    names: Option<&[&str]>,
    problems: &mut Problems,
) -> Option<Written<'n>> {
    let (name, name_span, value) = match &node.value {
        Value::Scalar { text, .. } => (text.as_str(), &node.span, None),
        Value::Map(entries) => match entries.as_slice() {
            [] => {
                return problems.refuse(&node.span, "this entry names no test", such_as(EXAMPLE));
            }
            [only] => (only.key.as_str(), &only.key_span, Some(&only.value)),
            [first, second, ..] => {
                let (first, key) = (quote(&first.key), quote(&second.key));
                let message = format!("one entry of `tests` has the keys {first} and {key}");
                let help = match registry.test(&second.key) {
                    Some(_) => "begin each test with a separate dash".to_owned(),
                    None => format!("indent the parameters of {first} by two more spaces, so that they belong to it"),
                };
                return problems.refuse(&second.key_span, message, help);
            }
        },
        _ => {
            let message = format!("a test is a name or a map, not {}", node.what());
            return problems.refuse(&node.span, message, such_as(EXAMPLE));
        }
    };
    let Some(spec) = registry.test(name) else {
        let help = did_you_mean(name, registry.tests.iter().map(|t| t.name));
        return problems.refuse(name_span, format!("there is no test {}", quote(name)), help);
    };
    let fields = match value {
        Some(node) if !matches!(node.value, Value::Null) => {
            let fields = Fields::of(node, &format!("the content of the test `{name}`"), EXAMPLE, problems)?;
            let keys: Vec<_> = spec.params.iter().map(|p| p.key).chain(["expect", ID, DUTS]).collect();
            fields.refuse_unknown(&format!("the test `{name}`"), &keys, problems);
            Some(fields)
        }
        _ => None,
    };
    let id = fields.and_then(|fields| fields.get(ID)).and_then(|entry| id(entry, registry, problems));
    let duts = fields.and_then(|fields| fields.value(DUTS)).map_or(Vec::new(), |node| duts(node, names, problems));
    Some(Written { spec, name_span, fields, id, duts })
}

/// The only DUTs of a test. `names` are the names of all DUTs of the suite, if they could be read.
fn duts<'n>(node: &'n Node, names: Option<&[&str]>, problems: &mut Problems) -> Vec<&'n str> {
    let mut duts = Vec::new();
    for node in items(node, "`duts` of a test", "duts: [frr, bird]", problems).unwrap_or_default() {
        let Some(name) = text(node, "the name of a DUT", "frr", problems) else { continue };
        if let Some(names) = names.filter(|names| !names.contains(&name)) {
            let message = format!("there is no DUT {}", quote(name));
            problems.add(&node.span, message, did_you_mean(name, names.iter().copied()));
        }
        duts.push((name, &node.span));
    }
    refuse_repeated("DUTs", duts.iter().copied(), problems);
    duts.into_iter().map(|(name, _)| name).collect()
}

/// The id of a test. It must not be the name of a test, or `--test` would be ambiguous.
fn id<'n>(entry: &'n Entry, registry: &Registry, problems: &mut Problems) -> Option<(&'n str, &'n Range<usize>)> {
    let id = text(&entry.value, "`id`", "id: small", problems)?;
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte);
    if id.len() > LONGEST_ID || !id.bytes().all(allowed) {
        let help = format!("write lower-case letters, digits, `_` and `-`, at most {LONGEST_ID}");
        return problems.refuse(&entry.value.span, format!("{} cannot be the id of a test", quote(id)), help);
    }
    if registry.test(id).is_some() {
        let message = format!("the id {} is the name of a test", quote(id));
        return problems.refuse(
            &entry.value.span,
            message,
            "write an id that is not a name in `drophammer list tests`",
        );
    }
    Some((id, &entry.value.span))
}

/// Reports entries of `defaults` that no test of the suite accepts, because a typo would silently have no effect.
fn refuse_unused(defaults: Fields, written: &[Written], all_known: bool, registry: &Registry, problems: &mut Problems) {
    let takes = |test: &TestSpec, key: &str| test.params.iter().any(|p| p.key == key);
    for entry in defaults.entries {
        if written.iter().any(|t| takes(t.spec, &entry.key)) {
            continue;
        }
        let takers: Vec<_> = registry.tests.iter().filter(|t| takes(t, &entry.key)).map(|t| t.name).collect();
        if takers.is_empty() {
            let mut keys: Vec<_> = registry.tests.iter().flat_map(|t| t.params).map(|p| p.key).collect();
            keys.sort_unstable();
            keys.dedup();
            let message = format!("no test has a parameter {}", quote(&entry.key));
            problems.add(&entry.key_span, message, did_you_mean(&entry.key, keys));
        } else if all_known {
            let message = format!("no test of this suite has a parameter {}", quote(&entry.key));
            let help = format!("leave it out, or add one of the tests that have it: {}", list(takers));
            problems.add(&entry.key_span, message, help);
        }
    }
}

fn configure(
    test: &Written,
    defaults: Option<Fields>,
    registry: &Registry,
    around: &Around,
    problems: &mut Problems,
) -> Option<TestConfig> {
    let (spec, profile) = (test.spec, around.profile);
    let find = |key: &str| {
        let own = test.fields.and_then(|fields| fields.value(key));
        own.or_else(|| defaults.and_then(|defaults| defaults.value(key)))
    };
    let what = format!("the test `{}`", spec.name);
    let resolved = resolve(spec.params, profile, find, (test.name_span, &what), problems)?;
    if let Some(ports) = around.ports {
        check_families(test, &resolved, ports, problems);
        check_mtu(test, &resolved, ports, problems);
    }
    check_mix(test, &resolved, problems);
    check_flows(test, &resolved, around.flows.as_deref(), problems);
    let params = params(&resolved);
    if test.runs(around.only) {
        let more: Vec<Need> = spec.needs_of(&params).into_iter().filter(|need| !spec.needs.contains(need)).collect();
        check_needs(test, &more, registry, around, problems);
    }
    let expect = match test.fields.and_then(|f| f.get("expect")) {
        Some(entry) if !matches!(entry.value.value, Value::Null) => {
            expect::read(&entry.value, spec, &params, around.names.as_deref(), problems)?
        }
        _ => Vec::new(),
    };
    let id = test.id.map(|(id, _)| id.to_owned());
    let duts = test.duts.iter().map(|name| (*name).to_owned()).collect();
    Some(TestConfig { test: spec.name.to_owned(), id, duts, params, expect })
}

/// Checks that the section exists for a test of flows, and that the flows that the test names exist.
fn check_flows(test: &Written, resolved: &Resolved, flows: Option<&[&str]>, problems: &mut Problems) {
    let Some(param) = test.spec.params.iter().find(|param| param.kind == ParamKind::Flows) else { return };
    let Some(flows) = flows else {
        let message = format!("the test `{}` needs flows, but the suite has no `flows:`", test.spec.name);
        let help = "add for instance `flows: [{name: voice, from: p1, to: p2, rate: 10 kfps, size: 128}]`";
        return problems.add(test.name_span, message, help);
    };
    let Some(given) = resolved.get(param.key) else { return };
    let ParamValue::Texts(names) = &given.value else { return };
    for (i, name) in names.iter().enumerate().filter(|(_, name)| !flows.contains(&name.as_str())) {
        let message = format!("there is no flow {}", quote(name));
        problems.add(item_span(given, i, test.name_span), message, did_you_mean(name, flows.iter().copied()));
    }
}

/// Checks that routers can play the roles that a test needs: all of its DUTs the roles of BGP, and at least one of them every
/// other role. A test of BGP also needs the section `bgp`.
fn check_needs(test: &Written, needs: &[Need], registry: &Registry, around: &Around, problems: &mut Problems) {
    let spec = test.spec;
    for role in needs {
        let able = |dut: &DutConfig| registry.kind(&dut.kind).map(|kind| (kind, kind.capabilities_of(dut).has(*role)));
        let of_test = |dut: &&&DutConfig| test.duts.is_empty() || test.duts.contains(&dut.name.as_str());
        for dut in around.duts.iter().filter(of_test) {
            let Some((kind, false)) = able(dut) else { continue };
            let (test_name, name) = (spec.name, &dut.name);
            let (message, help) = if *role == Need::BgpForwarding && kind.capabilities.has(*role) {
                let key = INSTALL_ROUTES.spec().key;
                let why = format!("which `{name}` does not install: it has `{key}: false`");
                let help =
                    "leave that parameter out, or put the DUT into a suite with tests of the control plane alone";
                (format!("the test `{test_name}` sends traffic along BGP routes, {why}"), help.to_owned())
            } else if !matches!(role, Need::Bgp | Need::BgpForwarding)
                && around.duts.iter().filter(of_test).any(|other| matches!(able(other), Some((_, true))))
            {
                // Another DUT has the role. The report notes that the test does not apply to this one.
                continue;
            } else {
                let of = if dut.topology.is_some() { ", several routers" } else { "" };
                let message = format!(
                    "the test `{test_name}` needs the role `{role}`, which `{name}` of kind `{}`{of} does not have",
                    kind.name
                );
                let kinds = list(registry.able(&[*role]));
                (
                    message,
                    format!(
                        "put the test or the DUT into a suite of its own, or name in `{DUTS}` of the test those that can; kinds that can: {kinds}"
                    ),
                )
            };
            problems.add(test.name_span, message, help);
        }
    }
    if needs.contains(&Need::Bgp) && around.bgp.is_none() {
        let what = if spec.needs.contains(&Need::Bgp) { "needs BGP" } else { "needs BGP for its `routes`" };
        let message = format!("the test `{}` {what}, but the suite has no `bgp:`", spec.name);
        problems.add(test.name_span, message, "add `bgp: {}` at the top of the suite; all its keys have defaults");
    }
    let labelled = around.bgp.filter(|routes| needs.contains(&Need::BgpForwarding) && *routes != RouteKind::Unicast);
    if let Some(routes) = labelled {
        let message = format!(
            "the test `{}` sends traffic along BGP routes, but with `bgp: {{routes: {routes}}}` a router only passes them on",
            spec.name
        );
        problems.add(test.name_span, message, "put the test into a suite without `routes` in `bgp:`");
    }
}

/// The node of the `i`-th value of a list, or the name of the test if the list is a default of the profile.
fn item_span<'n>(given: &Given<'n>, i: usize, name: &'n Range<usize>) -> &'n Range<usize> {
    match given.node.map(|n| &n.value) {
        Some(Value::List(items)) => items.get(i).map_or(name, |n| &n.span),
        _ => name,
    }
}

/// Checks that the ports have addresses of every family that a test uses.
fn check_families(test: &Written, resolved: &Resolved, ports: &[PortConfig], problems: &mut Problems) {
    for (key, given) in resolved {
        let ParamValue::Families(families) = &given.value else { continue };
        for (i, family) in families.iter().enumerate() {
            let Some(port) = ports.iter().find(|p| p.addressing(*family).is_none()) else { continue };
            let word = family.to_string().to_lowercase();
            let other = if *family == Family::Ipv4 { "ipv6" } else { "ipv4" };
            let message =
                format!("the test `{}` uses {family}, but port `{}` has `{word}: off`", test.spec.name, port.name);
            let help = format!("remove `{word}: off` from the ports, or write `{key}: [{other}]` for this test");
            problems.add(item_span(given, i, test.name_span), message, help);
        }
    }
}

/// Checks that tests with parameters of IPv6 frames in a mix send frames of both families.
fn check_mix(test: &Written, resolved: &Resolved, problems: &mut Problems) {
    let one = |given: &Given<'_>| matches!(&given.value, ParamValue::Families(families) if families.len() < 2);
    if !resolved.values().any(one) {
        return;
    }
    for key in ["ipv6_share", "ipv6_frame_size"] {
        let Some(given) = resolved.get(key) else { continue };
        let message = format!("`{key}` of the test `{}` is for traffic of both families", test.spec.name);
        let help = "write `families: [ipv4, ipv6]` as well, or leave it out";
        problems.add(given.node.map_or(test.name_span, |node| &node.span), message, help);
    }
}

/// Checks that every size of a test fits the MTU of every port.
fn check_mtu(test: &Written, resolved: &Resolved, ports: &[PortConfig], problems: &mut Problems) {
    let Some(port) = ports.iter().min_by_key(|p| p.mtu) else { return };
    let chosen = resolved.values().find_map(|g| match &g.value {
        ParamValue::Families(families) => Some(families.clone()),
        _ => None,
    });
    let families = chosen.unwrap_or_else(|| {
        [Family::Ipv4, Family::Ipv6].into_iter().filter(|f| ports.iter().any(|p| p.addressing(*f).is_some())).collect()
    });
    for (key, given) in resolved {
        let ParamValue::Sizes(sizes) = &given.value else { continue };
        for (i, size) in sizes.iter().enumerate() {
            let largest = families.iter().map(|f| size.largest_ip_bytes(*f == Family::Ipv6)).max().unwrap_or(0);
            if u32::from(largest) <= port.mtu {
                continue;
            }
            let origin = match given.node {
                None => format!("by default the test `{}` sends ", test.spec.name),
                Some(_) => String::new(),
            };
            let more = format!("more than the MTU {} of port `{}`", port.mtu, port.name);
            let message = format!("{origin}`{size}`, which needs packets of {largest} bytes, {more}");
            let help = format!("set `mtu: {largest}` or more on every port, or leave `{size}` out of `{key}`");
            problems.add(item_span(given, i, test.name_span), message, help);
        }
    }
}
