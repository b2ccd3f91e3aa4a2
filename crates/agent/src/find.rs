//! Finds the agents that lend the ports of a rig.

use crate::link::Link;
use crate::message::{MOST_PORTS, fits, split};
use crate::{Problem, Settings};
use drophammer_model::trial::PortIndex;

/// An agent, as a holder of leases sees it.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) name: String,
    /// Interfaces with their places in the rig.
    pub(crate) ports: Vec<(String, PortIndex)>,
    /// Number of its clock among all clocks; 0 is the controller's.
    pub(crate) clock: usize,
}

/// Finds the hosts of ports.
pub(crate) async fn find(link: &Link, settings: &Settings, names: &[String]) -> Result<Vec<Host>, Problem> {
    if names.is_empty() || names.len() > MOST_PORTS {
        return Err(Problem(format!("a rig has 1 to {MOST_PORTS} ports on other hosts, not {}", names.len())));
    }
    let agents = link.announced().await?;
    let mut hosts: Vec<Host> = Vec::new();
    let mut clocks = vec![settings.clock.clone()];
    for (port, name) in names.iter().enumerate() {
        let (host, interface) = split(name).ok_or_else(|| {
            Problem(format!("{name} is on this machine; start an agent here too, and write HOST/{name} for all ports"))
        })?;
        let known = || agents.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
        let Some((_, found)) = agents.iter().find(|(name, _)| name == host) else {
            let all = if agents.is_empty() { "none is there".into() } else { format!("there are {}", known()) };
            return Err(Problem(format!(
                "there is no agent `{host}` ({all}); start `drophammer agent --name {host}` there"
            )));
        };
        fits(&settings.version, host, &found.version, found.protocol).map_err(Problem)?;
        if found.ports.iter().all(|(own, _)| own != interface) {
            let own: Vec<&str> = found.ports.iter().map(|(own, _)| own.as_str()).collect();
            return Err(Problem(format!("{host} does not lend {interface}; it lends {}", own.join(", "))));
        }
        let clock = clocks.iter().position(|known| *known == found.clock).unwrap_or_else(|| {
            clocks.push(found.clock.clone());
            clocks.len() - 1
        });
        match hosts.iter_mut().find(|known| known.name == host) {
            Some(known) => known.ports.push((interface.into(), port)),
            None => hosts.push(Host { name: host.into(), ports: vec![(interface.into(), port)], clock }),
        }
    }
    Ok(hosts)
}
