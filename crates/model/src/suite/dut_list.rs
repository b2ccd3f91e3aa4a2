//! The `duts:` section.

use super::errors::{Problems, did_you_mean, quote};
use super::fields::{Fields, items, name, refuse_repeated, text};
use super::raw::Node;
use super::values::{params, resolve};
use super::{DutConfig, ParamValue, Profile};
use crate::environment::TESTER;
use crate::registry::{ParamKind, Registry};
use std::path::Path;

const EXAMPLE: &str = "{name: frr, kind: frr}";

/// Reads the routers under test. `folder` is that of the suite file, `ports` the number of ports where that is
/// known.
pub(crate) fn read(
    node: &Node,
    registry: &Registry,
    profile: Profile,
    folder: &Path,
    ports: Option<usize>,
    problems: &mut Problems,
) -> Option<Vec<DutConfig>> {
    let nodes = items(node, "`duts`", &format!("- {EXAMPLE}"), problems)?;
    let duts: Vec<_> = nodes.iter().filter_map(|n| one(n, registry, profile, folder, ports, problems)).collect();
    refuse_repeated("DUTs", duts.iter().map(|(dut, node)| (dut.name.as_str(), &node.span)), problems);
    (duts.len() == nodes.len()).then(|| duts.into_iter().map(|(dut, _)| dut).collect())
}

fn one<'n>(
    node: &'n Node,
    registry: &Registry,
    profile: Profile,
    folder: &Path,
    ports: Option<usize>,
    problems: &mut Problems,
) -> Option<(DutConfig, &'n Node)> {
    let fields = Fields::of(node, "a DUT", EXAMPLE, problems)?;
    let name_node = fields.required("name", "a DUT", "name: frr", problems);
    let name = name_node.and_then(|n| name(n, "the name of a DUT", true, problems));
    if let (Some(TESTER), Some(node)) = (name.as_deref(), name_node) {
        problems.add(
            &node.span,
            format!("`{TESTER}` is the tester's own name in the results"),
            "call the DUT otherwise",
        );
    }
    let kind_node = fields.required("kind", "a DUT", "kind: frr", problems)?;
    let kind = text(kind_node, "`kind`", "frr", problems)?;
    let Some(spec) = registry.kind(kind) else {
        let help = did_you_mean(kind, registry.kinds.iter().map(|k| k.name));
        problems.add(&kind_node.span, format!("there is no DUT kind {}", quote(kind)), help);
        return None;
    };
    let keys: Vec<_> = ["name", "kind"].into_iter().chain(spec.params.iter().map(|p| p.key)).collect();
    fields.refuse_unknown(&format!("a DUT of kind `{kind}`"), &keys, problems);
    let what = format!("a DUT of kind `{kind}`");
    let find = |key: &str| fields.get(key).map(|e| &e.value);
    let resolved = resolve(spec.params, profile, find, (&kind_node.span, &what), problems)?;
    for param in spec.params.iter().filter(|p| p.kind == ParamKind::Interfaces) {
        let Some(given) = resolved.get(param.key) else { continue };
        let ParamValue::Texts(interfaces) = &given.value else { continue };
        if let (Some(ports), Some(at)) = (ports, given.node)
            && ports != interfaces.len()
        {
            problems.add(
                &at.span,
                format!("`{}` names {} interfaces, but the suite has {ports} ports", param.key, interfaces.len()),
                "name one interface for each port, in the order of `ports:`",
            );
        }
    }
    let mut params = params(&resolved);
    for param in spec.params.iter().filter(|p| p.kind == ParamKind::File) {
        if let Some(ParamValue::Text(path)) = params.0.get_mut(param.key) {
            *path = folder.join(&*path).display().to_string();
        }
    }
    Some((DutConfig { name: name?, kind: kind.to_owned(), params }, name_node?))
}
