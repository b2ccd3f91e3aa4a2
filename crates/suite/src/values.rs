//! Values of parameters: converts a YAML node to a [`ParamValue`] of the kind that the registry states.

use super::errors::{Problems, quote};
use super::fields::{flag, items, quantity, such_as, text, whole, word};
use super::raw::{self, Node, Value};
use super::typed;
use drophammer_model::classes::{self, ServiceClass};
use drophammer_model::quantity::{parse_count, parse_duration, parse_frame_rate, parse_percent};
use drophammer_model::registry::{ParamKind, ParamSpec};
use drophammer_model::size::PacketSize;
use drophammer_model::suite::{ParamValue, Params, Profile};
use drophammer_model::topology::{CoreLinkName, CoreLinksDown, MOST_ROUTERS};
use drophammer_model::traffic::Bits;
use drophammer_model::trial::Family;
use serde::Deserialize;
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::time::Duration;

/// Longest text that is parsed as a percentage, in bytes.
const MAX_PERCENTAGE: usize = 1_000;
/// Maximum duration in a suite: 31 days.
const MAX_DURATION: Duration = Duration::from_secs(31 * 24 * 3600);
/// Maximum number of links between the routers of a system.
const MOST_LINKS: u64 = (MOST_ROUTERS * (MOST_ROUTERS - 1) / 2) as u64;
/// Longest name of a host with an agent.
const MAX_HOST: usize = 63;
/// Longest name of a Linux interface (IFNAMSIZ without its NUL), in bytes.
const MAX_INTERFACE: usize = 15;

/// The value of a parameter.
#[derive(Clone, Debug)]
pub(crate) struct Given<'n> {
    pub value: ParamValue,
    /// Its node in the suite; `None` for a default of the profile.
    pub node: Option<&'n Node>,
}

/// Parameters by key.
pub(crate) type Resolved<'n> = BTreeMap<&'static str, Given<'n>>;

/// The values without their nodes.
pub(crate) fn params(resolved: &Resolved) -> Params {
    Params(resolved.iter().map(|(k, g)| ((*k).to_owned(), g.value.clone())).collect())
}

/// The default of a parameter, as text.
pub(crate) fn default_of(spec: &ParamSpec, profile: Profile) -> Option<&'static str> {
    match profile {
        Profile::Quick => spec.quick,
        Profile::Conformant => spec.conformant,
    }
}

/// Fills in every parameter of `specs`: from the node that `find` returns, or else from the default of the profile.
/// `missing` is the position for errors about missing parameters, and what needs them. `None` after an error.
pub(crate) fn resolve<'n>(
    specs: &'static [ParamSpec],
    profile: Profile,
    find: impl Fn(&str) -> Option<&'n Node>,
    missing: (&Range<usize>, &str),
    problems: &mut Problems,
) -> Option<Resolved<'n>> {
    let mut resolved = Resolved::new();
    let mut complete = true;
    for spec in specs {
        let node = find(spec.key);
        let value = match (node, default_of(spec, profile)) {
            (Some(node), _) => value(node, spec, problems),
            (None, Some(text)) => parse_default(spec, text)
                .map_err(|why| {
                    let message = format!("the default `{text}` of `{}` is wrong: {why}", spec.key);
                    problems.add(
                        missing.0,
                        message,
                        "this is a bug in Drophammer; give the parameter yourself until then",
                    );
                })
                .ok(),
            (None, None) if spec.required => {
                let help = format!("add for instance `{}: {}` ({})", spec.key, example(spec.kind), spec.help);
                problems.refuse(missing.0, format!("{} needs `{}`", missing.1, spec.key), help)
            }
            (None, None) => continue,
        };
        complete &= value.is_some();
        resolved.extend(value.map(|value| (spec.key, Given { value, node })));
    }
    complete.then_some(resolved)
}

/// Reads the default of a parameter.
///
/// # Errors
/// A description of what is wrong with it.
pub(crate) fn parse_default(spec: &ParamSpec, text: &str) -> Result<ParamValue, String> {
    let mut problems = Problems::default();
    let value = raw::parse(text, &mut problems).and_then(|node| value_of(&node, spec, true, &mut problems));
    match (value, problems.first()) {
        (Some(value), None) => Ok(value),
        (_, why) => Err(why.unwrap_or_else(|| "it cannot be read".to_owned())),
    }
}

/// Reads a parameter.
pub(crate) fn value(node: &Node, spec: &ParamSpec, problems: &mut Problems) -> Option<ParamValue> {
    // A wait can be zero if a default of the test is zero.
    let zero = |text: Option<&str>| {
        text.and_then(|t| parse_default(spec, t).ok()) == Some(ParamValue::Duration(Duration::ZERO))
    };
    let zero_ok = spec.kind == ParamKind::Duration && (zero(spec.quick) || zero(spec.conformant));
    value_of(node, spec, zero_ok, problems)
}

fn value_of(node: &Node, spec: &ParamSpec, zero_ok: bool, problems: &mut Problems) -> Option<ParamValue> {
    let what = &format!("`{}`", spec.key);
    let example = example(spec.kind);
    if matches!(node.value, Value::Null) {
        let help = such_as(format!("{}: {example}", spec.key));
        return problems.refuse(&node.span, format!("{what} has no value"), help);
    }
    let texts = |read: fn(&Node, &mut Problems) -> Option<String>, problems: &mut Problems| {
        each(node, what, example, problems, read).map(ParamValue::Texts)
    };
    match spec.kind {
        ParamKind::Sizes => each(node, what, example, problems, size).map(ParamValue::Sizes),
        ParamKind::Size => size(node, problems).map(|size| ParamValue::Sizes(vec![size])),
        ParamKind::Percents => {
            let one = |item: &Node, problems: &mut Problems| percent(item, false, problems);
            each(node, what, example, problems, one).map(ParamValue::Numbers)
        }
        ParamKind::Percent => percent(node, true, problems).map(ParamValue::Number),
        ParamKind::Duration => {
            let time = quantity(node, what, example, parse_duration, problems)?;
            if time > MAX_DURATION {
                return problems.refuse(
                    &node.span,
                    format!("{what} of {} is too long", node.what()),
                    "write at most `744 h`",
                );
            }
            if time.is_zero() && !zero_ok {
                return problems.refuse(&node.span, format!("{what} cannot be zero"), such_as(example));
            }
            Some(ParamValue::Duration(time))
        }
        ParamKind::Count => whole(node, what, 1, spec.most, problems).map(ParamValue::Count),
        ParamKind::Counts => {
            let item = format!("an item of {what}");
            let count = |node: &Node, problems: &mut Problems| whole(node, &item, 1, spec.most, problems);
            each(node, what, example, problems, count).map(ParamValue::Counts)
        }
        ParamKind::CountOr(word) => count_or(node, what, word, problems).map(ParamValue::Text),
        ParamKind::Rate => quantity(node, what, example, parse_frame_rate, problems).map(ParamValue::Rate),
        ParamKind::Speed => quantity(node, what, example, str::parse, problems).map(ParamValue::Speed),
        ParamKind::Classes => classes_of(node, what, example, problems).map(ParamValue::Classes),
        ParamKind::CoreLinks => core_links(node, what, example, problems).map(ParamValue::CoreLinks),
        ParamKind::Flag => flag(node, what, problems).map(ParamValue::Flag),
        ParamKind::Families => each(node, what, example, problems, family).map(ParamValue::Families),
        ParamKind::Choice(words) => word(node, what, words, problems).map(ParamValue::Text),
        ParamKind::Choices(words) => {
            let one = |item: &Node, problems: &mut Problems| word(item, &format!("an item of {what}"), words, problems);
            each(node, what, example, problems, one).map(ParamValue::Texts)
        }
        ParamKind::Text | ParamKind::Command | ParamKind::File => {
            text(node, what, example, problems).map(|t| ParamValue::Text(t.to_owned()))
        }
        ParamKind::Interfaces => texts(interface, problems),
        // The manufacturer of the DUT chooses these names.
        ParamKind::DutInterfaces => texts(|n, p| owned(n, "an interface of the DUT", "ge-0/0/0", p), problems),
        // The existence of the port or flow is checked elsewhere.
        ParamKind::Ports => texts(|n, p| owned(n, "a port", "p1", p), problems),
        ParamKind::Flows => texts(|n, p| owned(n, "a flow", "voice", p), problems),
    }
}

fn owned(node: &Node, what: &str, example: &str, problems: &mut Problems) -> Option<String> {
    text(node, what, example, problems).map(str::to_owned)
}

/// Reads a number or a word, as text.
fn count_or(node: &Node, what: &str, word: &str, problems: &mut Problems) -> Option<String> {
    let found = match &node.value {
        Value::Scalar { text, .. } if text == word => Some(text.clone()),
        Value::Scalar { text, .. } => {
            let number = parse_count(text).ok().and_then(|n| u16::try_from(n).ok());
            number.filter(|n| *n > 0).map(|n| n.to_string())
        }
        _ => None,
    };
    if found.is_none() {
        let message = format!("{what} is a number from 1 to {} or `{word}`, not {}", u16::MAX, node.what());
        problems.add(&node.span, message, format!("write for instance `500` or `{word}`"));
    }
    found
}

/// An example of this kind of value, for help texts.
pub(crate) fn example(kind: ParamKind) -> &'static str {
    match kind {
        ParamKind::Sizes => "[64, 512, 1518, imix]",
        ParamKind::Size => "imix",
        ParamKind::Percents => "[10, 50, 90, 100]",
        ParamKind::Percent => "0.5",
        ParamKind::Duration => "60 s",
        ParamKind::Count => "20",
        ParamKind::Counts => "[1, 10, 25]",
        ParamKind::CountOr(_) => "500",
        ParamKind::Rate => "100 kfps",
        ParamKind::Speed => "100 Mbit/s",
        ParamKind::Classes => "[{name: gold, precedence: 5, weight: 70}, {name: bronze, dscp: 8, weight: 5}]",
        ParamKind::CoreLinks => "[1-2, 3-4]",
        ParamKind::Flag => "true",
        ParamKind::Families => "[ipv4, ipv6]",
        ParamKind::Choice(words) | ParamKind::Choices(words) => match words.first() {
            Some(first) => first,
            None => "",
        },
        ParamKind::Text => "some text",
        ParamKind::Command => "systemctl restart router",
        ParamKind::File => "my-router.conf",
        ParamKind::Interfaces => "[eth1, eth2]",
        ParamKind::DutInterfaces => "[ge-0/0/0, ge-0/0/1]",
        ParamKind::Ports => "[p1, p2]",
        ParamKind::Flows => "[voice, video]",
    }
}

/// Reads a number of links between routers, or a list of their names.
fn core_links(node: &Node, what: &str, example: &str, problems: &mut Problems) -> Option<CoreLinksDown> {
    if !matches!(node.value, Value::List(_)) {
        return whole(node, what, 0, MOST_LINKS, problems).map(|count| CoreLinksDown::Count(count as usize));
    }
    let item = format!("an item of {what}");
    let name =
        |node: &Node, problems: &mut Problems| quantity(node, &item, "1-2", str::parse::<CoreLinkName>, problems);
    each(node, what, example, problems, name).map(CoreLinksDown::Named)
}

/// Reads a list item by item; reports repeated items.
fn each<T: ToString>(
    node: &Node,
    what: &str,
    example: &str,
    problems: &mut Problems,
    read: impl Fn(&Node, &mut Problems) -> Option<T>,
) -> Option<Vec<T>> {
    let nodes = items(node, what, example, problems)?;
    let mut seen = HashSet::new();
    let mut values = Vec::with_capacity(nodes.len());
    for item in nodes {
        let Some(value) = read(item, problems) else { continue };
        let shown = value.to_string();
        if seen.insert(shown.clone()) {
            values.push(value);
        } else {
            problems.add(&item.span, format!("{what} lists {} twice", quote(&shown)), "list each value once");
        }
    }
    (values.len() == nodes.len()).then_some(values)
}

/// A class as written in a suite, with a codepoint or an IP precedence.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GivenClass {
    name: String,
    precedence: Option<u8>,
    dscp: Option<Bits<6>>,
    weight: u32,
}

/// Reads classes of service.
fn classes_of(node: &Node, what: &str, example: &str, problems: &mut Problems) -> Option<Vec<ServiceClass>> {
    let help = such_as(example);
    let given: Vec<GivenClass> = typed::read(node, &help, problems)?;
    let mut all = Vec::with_capacity(given.len());
    for GivenClass { name, precedence, dscp, weight } in given {
        let dscp = match (precedence, dscp) {
            (Some(precedence @ 0..=7), None) => precedence * 8,
            (None, Some(dscp)) => dscp.get() as u8,
            _ => {
                let message =
                    format!("class {} of {what} needs a `precedence` from 0 to 7 or a `dscp`, not both", quote(&name));
                return problems.refuse(&node.span, message, help);
            }
        };
        all.push(ServiceClass { name, dscp, weight });
    }
    match classes::refuse_classes(&all) {
        Some(why) => problems.refuse(&node.span, format!("{what}: {why}"), help),
        None => Some(all),
    }
}

fn size(node: &Node, problems: &mut Problems) -> Option<PacketSize> {
    quantity(node, "a frame size", "64", str::parse, problems)
}

fn percent(node: &Node, zero_ok: bool, problems: &mut Problems) -> Option<f64> {
    let number = match &node.value {
        Value::Scalar { text, plain } if *plain || text.contains('%') => number(text),
        _ => None,
    };
    match number {
        Some(n) if n <= 100.0 && (n > 0.0 || zero_ok) => Some(n),
        Some(n) => {
            let bounds = if zero_ok { "from 0 to 100" } else { "above 0 and at most 100" };
            problems.refuse(&node.span, format!("a percentage of {n} is out of range"), format!("use a value {bounds}"))
        }
        None => {
            let message = format!("a percentage is a number, not {}", node.what());
            problems.refuse(
                &node.span,
                message,
                "write a number from 0 to 100, `50` or `50 %`; `0.5` is half of one per cent",
            )
        }
    }
}

/// A percentage with or without its sign.
fn number(text: &str) -> Option<f64> {
    (text.len() <= MAX_PERCENTAGE).then(|| parse_percent(text)).flatten().filter(|n| n.is_finite())
}

fn family(node: &Node, problems: &mut Problems) -> Option<Family> {
    match word(node, "an IP version", &["ipv4", "ipv6"], problems)?.as_str() {
        "ipv4" => Some(Family::Ipv4),
        _ => Some(Family::Ipv6),
    }
}

fn interface(node: &Node, problems: &mut Problems) -> Option<String> {
    let text = text(node, "an interface", "eth1", problems)?;
    let usable = |c: char| !c.is_whitespace() && !c.is_control() && c != '/' && c != ':';
    let (host, name) = text.split_once('/').unwrap_or(("", text));
    let of_host = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let has_host = host.len() <= MAX_HOST && host.chars().all(of_host) && host.is_empty() != text.contains('/');
    let is_name = !name.is_empty() && name.len() <= MAX_INTERFACE && name.chars().all(usable);
    if has_host && is_name && name != "." && name != ".." {
        return Some(text.to_owned());
    }
    problems.refuse(
        &node.span,
        format!("{} cannot be the name of an interface", quote(text)),
        "names of Linux interfaces have at most 15 characters, no blanks, no `/` and no `:`; `ip link` lists them; an interface \
         of another host is `host/interface`",
    )
}
