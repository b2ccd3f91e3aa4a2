//! The routes to which flows lead, for other hosts. A specification of a trial only names its tables, because their routes stay in the
//! files of the run. It also does not say which flows share their routes, and these divide them among themselves.

use drophammer_model::routes::{Prefix, RouteAttributes, RouteTable, Routes};
use drophammer_model::trial::{Targets, TrialSpec};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;

/// Maximum number of characters of all prefixes of a trial, which fit into a message with the rest of the trial: some 400,000
/// prefixes of IPv4.
const MOST: usize = 6 << 20;

/// Routes, and the flows that lead to them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shared {
    /// Indices of these flows.
    flows: Vec<usize>,
    /// Prefixes of a table in order, separated by spaces.
    #[serde(default)]
    prefixes: Option<String>,
}

/// The routes of a trial.
///
/// # Errors
/// They do not fit into a message.
pub(crate) fn of(spec: &TrialSpec) -> Result<Vec<Shared>, String> {
    let mut found: Vec<(&Arc<Routes>, Vec<usize>)> = Vec::new();
    let mut places: HashMap<*const Routes, usize> = HashMap::new();
    for (index, flow) in spec.flows.iter().enumerate() {
        let Targets::Routes { routes, .. } = &flow.destinations else { continue };
        let place = *places.entry(Arc::as_ptr(routes)).or_insert(found.len());
        match found.get_mut(place) {
            Some((_, flows)) => flows.push(index),
            None => found.push((routes, vec![index])),
        }
    }
    let mut size = 0;
    let mut all = Vec::new();
    for (routes, flows) in found {
        let prefixes = match &**routes {
            Routes::Table(table) => {
                let prefixes: Vec<String> = (0..table.len()).map(|route| table.prefix(route).to_string()).collect();
                Some(prefixes.join(" "))
            }
            Routes::Range(_) => None,
        };
        size += prefixes.as_ref().map_or(0, String::len);
        if size > MOST {
            return Err(format!(
                "the routes of files do not fit into a message to other hosts: they have more than {MOST} characters; use fewer routes of the file"
            ));
        }
        all.push(Shared { flows, prefixes });
    }
    Ok(all)
}

/// The trial with these routes.
///
/// # Errors
/// They do not belong to it.
pub(crate) fn filled(spec: &TrialSpec, all: &[Shared]) -> Result<TrialSpec, String> {
    let mut spec = spec.clone();
    for table in all {
        let prefixes: Option<Result<Vec<Prefix>, _>> =
            table.prefixes.as_ref().map(|prefixes| prefixes.split(' ').map(str::parse).collect());
        let prefixes = prefixes.transpose().map_err(|e| format!("a prefix of a table {e}"))?;
        let mut routes: Option<Arc<Routes>> = None;
        for index in &table.flows {
            let Some(flow) = spec.flows.get_mut(*index) else { return Err("routes for an unknown flow".into()) };
            let Targets::Routes { routes: named, .. } = &mut flow.destinations else {
                return Err("routes for a flow that does not lead to any".into());
            };
            let same = routes.get_or_insert_with(|| match &prefixes {
                None => named.clone(),
                Some(prefixes) => {
                    let routes = prefixes.iter().map(|prefix| (*prefix, RouteAttributes::default()));
                    Arc::new(RouteTable::new(named.name(), flow.family, routes).into())
                }
            });
            *named = same.clone();
        }
    }
    Ok(spec)
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::trial::{AddressRange, Family, FlowSpec, Load};

    fn trial(prefixes: &[&str]) -> TrialSpec {
        // A table puts routes with the same attributes next to each other, so it reorders these.
        let attributes = |n: usize| RouteAttributes { as_path: vec![n as u32 % 2], ..RouteAttributes::default() };
        let routes = prefixes.iter().enumerate().map(|(n, text)| (text.parse().unwrap(), attributes(n)));
        let routes: Arc<Routes> = Arc::new(RouteTable::new("a file", Family::Ipv4, routes).into());
        let source = AddressRange { first: "198.18.0.2".parse().unwrap(), step: 1, count: 1 };
        let flow = |first, count| FlowSpec {
            destinations: Targets::Routes { routes: routes.clone(), first, count },
            ..FlowSpec::new("flow", 0, 1, source, source)
        };
        TrialSpec {
            purpose: String::new(),
            size: "64".parse().unwrap(),
            flows: vec![flow(0, 2), flow(2, 1), FlowSpec::new("other", 0, 1, source, source)],
            load: Load::Constant { rate_pps: 1.0 },
            duration_s: 1.0,
            bin_s: None,
            drain_s: 1.0,
            events: vec![],
        }
    }

    #[test]
    fn other_hosts_reach_the_same_addresses_of_a_table() {
        let spec = trial(&["10.0.0.0/8", "10.1.0.0/16", "192.0.2.0/24"]);
        let tables = of(&spec).unwrap();
        assert_eq!(tables.len(), 1);
        let text = serde_json::to_string(&(&spec, &tables)).unwrap();
        let (named, tables): (TrialSpec, Vec<Shared>) = serde_json::from_str(&text).unwrap();
        assert!(!named.flows[0].destinations.exist(), "a specification only names its tables");
        let there = filled(&named, &tables).unwrap();
        let [Targets::Routes { routes: one, .. }, Targets::Routes { routes: other, .. }] =
            [&there.flows[0].destinations, &there.flows[1].destinations]
        else {
            panic!("{there:?}")
        };
        assert!(Arc::ptr_eq(one, other), "flows to the same routes divide them");
        for (here, there) in spec.flows.iter().zip(&there.flows) {
            let addresses = |targets: &Targets| match targets {
                Targets::Addresses(_) => Vec::new(),
                Targets::Routes { routes, .. } => {
                    let of_round = |round| (0..routes.len()).map(move |route| (route, round));
                    (0..3).flat_map(of_round).map(|(route, round)| routes.address(route, round)).collect()
                }
            };
            assert!(there.destinations.exist());
            assert_eq!(addresses(&here.destinations), addresses(&there.destinations));
        }
    }

    #[test]
    fn tables_that_do_not_belong_to_the_trial_are_refused() {
        let spec = trial(&["10.0.0.0/8", "10.1.0.0/16", "192.0.2.0/24"]);
        let refused =
            |flow, prefixes: &str| filled(&spec, &[Shared { flows: vec![flow], prefixes: Some(prefixes.into()) }]);
        assert!(refused(0, "10.0.0.0/8").is_ok());
        for (flow, prefixes) in [(9, "10.0.0.0/8"), (2, "10.0.0.0/8"), (0, ""), (0, "10.0.0.0/8 x")] {
            assert!(refused(flow, prefixes).is_err(), "{flow} {prefixes}");
        }
    }
}
