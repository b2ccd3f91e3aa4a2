//! The `duts:` section.

use super::dut_topology;
use super::errors::{Problems, did_you_mean, list, quote};
use super::fields::{Fields, items, name, refuse_repeated, text};
use super::raw::Node;
use super::values::{params, resolve};
use drophammer_model::capabilities::Need;
use drophammer_model::environment::TESTER;
use drophammer_model::registry::{ParamKind, Registry};
use drophammer_model::role::RouterRole;
use drophammer_model::suite::{DutConfig, ParamValue, PortConfig, Profile};
use drophammer_model::topology::System;
use std::path::Path;

const EXAMPLE: &str = "{name: frr, kind: frr}";
/// Key of the system of routers that make up a DUT.
pub(super) const TOPOLOGY: &str = "topology";

/// The parts of the suite that must agree with the routers under test.
pub(crate) struct Around<'a> {
    pub profile: Profile,
    /// Folder of the suite file.
    pub folder: &'a Path,
    /// The ports, if they could be read.
    pub ports: Option<&'a [PortConfig]>,
    /// Names of the routers to run; all if empty.
    pub only: &'a [String],
}

/// Reads the routers under test.
pub(crate) fn read(
    node: &Node,
    registry: &Registry,
    around: &Around,
    problems: &mut Problems,
) -> Option<Vec<DutConfig>> {
    let nodes = items(node, "`duts`", &format!("- {EXAMPLE}"), problems)?;
    let duts: Vec<_> = nodes.iter().filter_map(|n| one(n, registry, around, problems)).collect();
    refuse_repeated("DUTs", duts.iter().map(|(dut, node)| (dut.name.as_str(), &node.span)), problems);
    (duts.len() == nodes.len()).then(|| duts.into_iter().map(|(dut, _)| dut).collect())
}

fn one<'n>(
    node: &'n Node,
    registry: &Registry,
    around: &Around,
    problems: &mut Problems,
) -> Option<(DutConfig, &'n Node)> {
    let fields = Fields::of(node, "a DUT", EXAMPLE, problems)?;
    let name_node = fields.required("name", "a DUT", "name: frr", problems);
    let name = name_node.and_then(|n| name(n, "the name of a DUT", true, problems));
    if let (Some(TESTER), Some(node)) = (name.as_deref(), name_node) {
        let message = format!("`{TESTER}` is the tester's own name in the results");
        problems.add(&node.span, message, "give the DUT another name");
    }
    let kind_node = fields.required("kind", "a DUT", "kind: frr", problems)?;
    let kind = text(kind_node, "`kind`", "frr", problems)?;
    let Some(spec) = registry.kind(kind) else {
        let help = did_you_mean(kind, registry.kinds.iter().map(|k| k.name));
        return problems.refuse(&kind_node.span, format!("there is no DUT kind {}", quote(kind)), help);
    };
    let topology = fields.optional(TOPOLOGY, |node| Some((dut_topology::read(node, problems)?, &node.span)))?;
    let keys: Vec<_> = ["name", "kind", TOPOLOGY].into_iter().chain(spec.params.iter().map(|p| p.key)).collect();
    let what = format!("a DUT of kind `{kind}`");
    fields.refuse_unknown(&what, &keys, problems);
    let find = |key: &str| fields.value(key);
    let resolved = resolve(spec.params, around.profile, find, (&kind_node.span, &what), problems)?;
    let for_each_port = |kind: ParamKind| matches!(kind, ParamKind::Interfaces | ParamKind::DutInterfaces);
    for param in spec.params.iter().filter(|p| for_each_port(p.kind)) {
        let Some(given) = resolved.get(param.key) else { continue };
        let ParamValue::Texts(interfaces) = &given.value else { continue };
        if let (Some(ports), Some(at)) = (around.ports.map(<[_]>::len), given.node)
            && ports != interfaces.len()
        {
            let count = interfaces.len();
            let message = format!("`{}` names {count} interfaces, but the suite has {ports} ports", param.key);
            problems.add(&at.span, message, "name one interface for each port, in the order of `ports:`");
        }
    }
    let mut params = params(&resolved);
    for param in spec.params.iter().filter(|p| p.kind == ParamKind::File) {
        if let Some(ParamValue::Text(path)) = params.0.get_mut(param.key) {
            *path = around.folder.join(&*path).display().to_string();
        }
    }
    let dut = DutConfig {
        name: name.clone().unwrap_or_default(),
        kind: kind.to_owned(),
        params,
        topology: topology.as_ref().map(|(topology, _)| *topology),
    };
    // A DUT that does not run does not have to fit the rest.
    let runs = around.only.is_empty() || name.as_ref().is_some_and(|name| around.only.contains(name));
    if let Some(ports) = around.ports.filter(|_| runs).map(|ports| spec.ports_of(&dut, ports)) {
        if let Some((topology, span)) = &topology
            && let Err(unsuited) = System::of(&ports, topology)
        {
            problems.add(span, unsuited.what, unsuited.remedy);
        }
        let needs = RouterRole::of(&ports).needs();
        if let Some(need) = spec.capabilities.lacks(&needs) {
            let message = format!("the ports need `{need}`, which routers of kind `{kind}` do not support");
            problems.add(&kind_node.span, message, format!("kinds that can: {}", list(registry.able(&needs))));
        }
    }
    if let Some((_, span)) = topology.filter(|_| !spec.capabilities.systems) {
        let able = list(registry.able(&[Need::Systems]));
        let help = format!("leave `{TOPOLOGY}` out, or take a kind that can: {able}");
        problems.add(span, format!("{what} cannot consist of several routers"), help);
    }
    name?;
    Some((dut, name_node?))
}
