//! Links between routers, by direction.

use super::{CoreLinkName, System};
use crate::classes::{EgressClasses, WayOut, counter_name};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// The way from one router of a system to a neighbour. Routers are numbered from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoreWay {
    /// Number of the router that sends.
    pub from: usize,
    /// Number of the router at the other end.
    pub to: usize,
}

impl CoreWay {
    /// The link.
    pub fn link(&self) -> CoreLinkName {
        CoreLinkName(self.from.min(self.to), self.from.max(self.to))
    }
}

/// Display form: `r1 to r2`
impl fmt::Display for CoreWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{} to r{}", self.from, self.to)
    }
}

impl System {
    /// The ways between routers that a packet takes from one port to another while the links in `down` are down; none
    /// if both ports are at one router. `None` if the packet is lost.
    pub fn ways(&self, from: usize, to: usize, down: &BTreeSet<CoreLinkName>) -> Option<Vec<CoreWay>> {
        let path = self.route(from, to, down)?;
        Some(path.windows(2).map(|hop| CoreWay { from: hop[0] + 1, to: hop[1] + 1 }).collect())
    }

    /// Both ways over all links that are not down, in the order of the links.
    pub fn ways_up(&self, down: &BTreeSet<CoreLinkName>) -> Vec<CoreWay> {
        let names = self.links.iter().map(|link| link.name).filter(|name| !down.contains(name));
        names.flat_map(|CoreLinkName(a, b)| [CoreWay { from: a, to: b }, CoreWay { from: b, to: a }]).collect()
    }

    /// Index of the interface to this way in the role of the sending router; `None` if there is no such link.
    pub fn interface_of(&self, way: CoreWay) -> Option<usize> {
        let link = self.links.iter().find(|link| link.name == way.link())?;
        Some(link.end_at(way.from.checked_sub(1)?)?.interface)
    }

    /// Prefix of the counters of a class on this way, among the counters of a system: `r1.d3.gold`.
    pub fn class_counter(&self, way: CoreWay, class: &str) -> Option<String> {
        Some(format!("r{}.{}", way.from, counter_name(self.interface_of(way)?, class)))
    }

    /// The classes of one router (by index) out of the system's, numbered by the router's own interfaces.
    ///
    /// # Errors
    /// If a way names a link that does not exist.
    pub fn classes_of(&self, router: usize, lists: &[EgressClasses]) -> Result<Vec<EgressClasses>, String> {
        let ports = &self.routers[router].ports;
        let mut own = Vec::new();
        for list in lists {
            let interface = match list.at {
                WayOut::Port(port) => ports.contains(&port).then(|| port - ports.start),
                WayOut::Core(way) => match self.interface_of(way) {
                    None => return Err(format!("there are classes for {way}, but no such link")),
                    Some(interface) => (way.from == router + 1).then_some(interface),
                },
            };
            own.extend(interface.map(|port| EgressClasses { at: WayOut::Port(port), ..list.clone() }));
        }
        Ok(own)
    }
}
