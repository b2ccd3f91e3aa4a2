//! Turns the model into what a rig takes: emulated devices, sessions with their routes, and flows.
//!
//! Names become indices here. Nothing is opened or sent, and the same configuration always gives the same result.

mod devices;
mod flows;
mod routers;

pub use devices::{NeighbourName, SessionName, SessionRange};
pub use flows::{PlannedFlow, Program, Stream as PlannedStream};
pub use routers::{LspPlace, RouterKind, RouterName};

use crate::model::{Config, read::Errors};
use drophammer_model::quantity::Bandwidth;
use drophammer_model::routes::Routes;
use drophammer_rig::Config as RigConfig;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

/// What is known about an open port.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// MTU of the interface in bytes.
    pub mtu: u32,
    /// The largest frame that the port sends, without FCS.
    pub largest_frame: usize,
    /// Speed of the line, as configured, or as reported by an interface that has a line.
    pub speed: Option<Bandwidth>,
    /// Speed that the interface reports, even without a line: good enough for shares of the line and for the metrics of the port.
    pub reported: Option<Bandwidth>,
    /// True if the other end is an interface of this machine, without a line between them.
    pub is_virtual: bool,
}

/// A configuration, built.
#[derive(Clone, Debug)]
pub struct Built {
    /// The emulated devices. The first device of each port has no address; it is the port itself.
    pub rig: RigConfig,
    /// BGP sessions in the order of the rig.
    pub sessions: Vec<SessionName>,
    /// Routers of other protocols.
    pub routers: Vec<RouterName>,
    /// Gateways of the devices.
    pub neighbours: Vec<NeighbourName>,
    /// Flows in the order of the configuration.
    pub flows: Vec<PlannedFlow>,
    /// Warnings about what deviates from the configuration.
    pub warnings: Vec<String>,
}

/// What a name of the configuration refers to.
#[derive(Clone, Debug)]
struct Place {
    port: usize,
    /// Index of the device on the port.
    device: usize,
    addresses: Vec<IpAddr>,
    routes: Option<Arc<Routes>>,
    /// The LSP that begins there.
    lsp: Option<LspPlace>,
}

/// Maximum number of groups whose rates are recorded. Each takes up to 7 MB.
const MOST_RATED: usize = 16;

/// Builds `config` for ports with these links.
///
/// # Errors
/// Everything that is contradictory or impossible, each with its path.
pub fn build(config: &Config, links: &[Link], seed: u64) -> Result<Built, Vec<String>> {
    let errors = Errors::default();
    let mut places: HashMap<String, Place> = HashMap::new();
    let (rig, sessions, neighbours, routers) = devices::devices(config, links, seed, &mut places, &errors);
    let mut warnings = Vec::new();
    let flows = flows::flows(config, links, &rig, &places, &errors, &mut warnings);
    let groups = flows.iter().flat_map(|flow: &PlannedFlow| &flow.streams).map(|stream| &stream.spec.group);
    let groups = groups.collect::<HashSet<_>>().len();
    if config.events.rate_threshold.is_some() && groups > MOST_RATED {
        let text =
            format_args!("rates of at most {MOST_RATED} flows (times pairs of ports) are recorded, not of {groups}");
        errors.add("events.dp_events", text);
    }
    if let Err(why) = rig.check(links.len()) {
        errors.add("devices", why);
    }
    errors.or(Built { rig, sessions, routers, neighbours, flows, warnings })
}

/// Checks a configuration without opening anything, as if its ports were virtual links of 1 Gbit/s. Returns warnings.
///
/// # Errors
/// Everything that is wrong or not supported, each with its path.
pub fn check(document: Value) -> Result<Vec<String>, Vec<String>> {
    let config = Config::read(document)?;
    let speed = Some(Bandwidth(1_000_000_000));
    let link = Link { mtu: 1_500, largest_frame: 1_522, speed, reported: None, is_virtual: true };
    let built = build(&config, &vec![link; config.ports.len()], 0)?;
    Ok([built.warnings, config.warnings].concat())
}

#[cfg(test)]
mod tests;
