//! Static routes, of which the best one with its link up is used.

use crate::config::{ConfigError, Route};
use crate::router::Router;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// A static route with its rank among those to the same prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankedRoute {
    /// The route; its port is a port, not a sub-interface.
    pub route: Route,
    /// The route with the lowest rank is used among those whose link is not known to be down.
    pub rank: u32,
}

/// The routes to one prefix.
struct Choice {
    /// In order of rank.
    routes: Vec<Route>,
    /// Index of the route that the router has.
    used: Option<usize>,
}

/// The routes of one router.
pub struct Routes {
    choices: BTreeMap<(IpAddr, u8), Choice>,
    /// Ports whose links are known to be down.
    down: BTreeSet<usize>,
}

impl Choice {
    /// Gives the router the best available route.
    fn choose(&mut self, down: &BTreeSet<usize>, router: &mut Router) -> Result<(), ConfigError> {
        let best = self.routes.iter().position(|route| !down.contains(&route.port));
        if best == self.used {
            return Ok(());
        }
        match best.or(self.used).map(|i| (self.routes[i], best)) {
            Some((route, Some(_))) => router.add_route(route)?,
            Some((route, None)) => drop(router.remove_route(route.prefix, route.prefix_len)),
            None => {}
        }
        self.used = best;
        Ok(())
    }
}

impl Routes {
    /// Gives a router the best of `routes` while all links are up.
    ///
    /// # Errors
    /// A route that it refuses: all are tried, so that none is refused later.
    pub fn install(routes: &[RankedRoute], router: &mut Router) -> Result<Routes, ConfigError> {
        let mut sorted = routes.to_vec();
        sorted.sort_by_key(|route| route.rank);
        let mut choices: BTreeMap<(IpAddr, u8), Choice> = BTreeMap::new();
        for RankedRoute { route, .. } in &sorted {
            router.add_route(*route)?;
            let of_prefix = choices.entry((route.prefix, route.prefix_len));
            of_prefix.or_insert(Choice { routes: Vec::new(), used: None }).routes.push(*route);
        }
        let mut routes = Routes { choices, down: BTreeSet::new() };
        routes.choose(router)?;
        Ok(routes)
    }

    fn choose(&mut self, router: &mut Router) -> Result<(), ConfigError> {
        self.choices.values_mut().try_for_each(|choice| choice.choose(&self.down, router))
    }

    /// Notes that the link of a port is known to be down, or up again.
    pub fn link(&mut self, port: usize, up: bool, router: &mut Router) {
        let changed = if up { self.down.remove(&port) } else { self.down.insert(port) };
        if changed {
            // Every route was accepted before.
            let accepted = self.choose(router);
            debug_assert_eq!(accepted, Ok(()));
        }
    }
}
