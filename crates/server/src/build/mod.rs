//! From the model to what a rig takes: emulated devices, sessions with their routes, and flows.
//!
//! Names become indices here. Nothing is opened or sent, and the same configuration always gives the same result.

mod devices;
mod flows;
mod routers;

pub use devices::{NeighbourName, SessionName, SessionRange};
pub use flows::{PlannedFlow, Program};
pub use routers::{LspPlace, RouterKind, RouterName};

use crate::model::{Config, read::Errors};
use drophammer_model::quantity::Bandwidth;
use drophammer_model::routes::Routes;
use drophammer_rig::Config as RigConfig;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// What is known about an open port.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// MTU of the interface in bytes.
    pub mtu: u32,
    /// The largest frame that the port sends, without FCS.
    pub largest_frame: usize,
    /// Speed of its line, if configured or reported.
    pub speed: Option<Bandwidth>,
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
    /// What is done differently from the configuration.
    pub warnings: Vec<String>,
}

/// Where a name of the configuration is.
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

/// Builds `config` for ports with these links.
///
/// # Errors
/// All that contradicts itself or is not possible, each with its path.
pub fn build(config: &Config, links: &[Link], seed: u64) -> Result<Built, Vec<String>> {
    let errors = Errors::default();
    let mut places: HashMap<String, Place> = HashMap::new();
    let (rig, sessions, neighbours, routers) = devices::devices(config, links, seed, &mut places, &errors);
    let mut warnings = Vec::new();
    let flows = flows::flows(config, links, &rig, &places, &errors, &mut warnings);
    if let Err(why) = rig.check(links.len()) {
        errors.add("devices", why);
    }
    errors.or(Built { rig, sessions, routers, neighbours, flows, warnings })
}

#[cfg(test)]
mod tests;
