//! The filter of the router: changed while it runs, and applied to every frame in transit.

use super::Router;
use crate::config::ConfigError;
use crate::faults::is_nth;
use crate::filter::{Filter, Packet};
use drophammer_model::filter::{FilterDirection, FilterList};

impl Router {
    /// Replaces its filter by these lists from now on; an empty list restores that of its configuration. The counters
    /// of the rules begin at 0.
    ///
    /// # Errors
    /// [`ConfigError::Filter`]; the filter does not change then.
    pub fn set_filter(&mut self, lists: Vec<FilterList>) -> Result<(), ConfigError> {
        self.filter = if lists.is_empty() { self.own_filter.clone() } else { Filter::new(lists, self.ports.len())? };
        self.rules_read = 0;
        Ok(())
    }

    /// Frames that each rule of the filter decided on, list after list.
    pub fn filter_matches(&self) -> &[u64] {
        &self.filter.matches
    }

    /// Whether the filter on ingress permits the packet, which came by interface `ingress`.
    #[inline(never)]
    pub(super) fn passes_ingress(&mut self, ingress: usize, packet: &Packet) -> bool {
        self.rules_read = 0;
        self.passes(FilterDirection::Ingress, ingress, packet)
    }

    /// Whether the filter on egress of the output port to `next_hop` permits it.
    #[inline(never)]
    pub(super) fn passes_egress(&mut self, next_hop: usize, packet: &Packet) -> bool {
        self.passes(FilterDirection::Egress, self.neighbours.get(next_hop).interface, packet)
    }

    fn passes(&mut self, direction: FilterDirection, interface: usize, packet: &Packet) -> bool {
        let port = self.interfaces[interface].port;
        let Some(decision) = self.filter.decide(direction, port, packet) else { return true };
        self.rules_read += decision.looked_at;
        if decision.permits {
            self.decisions.0 += 1;
            let dropped = is_nth(self.decisions.0, self.faults.filter_deny_every);
            self.truth.dropped.fault_filter += u64::from(dropped);
            return !dropped;
        }
        self.decisions.1 += 1;
        let leaks = is_nth(self.decisions.1, self.faults.filter_leak_every);
        let count = if leaks { &mut self.truth.leaked } else { &mut self.truth.dropped.filtered };
        *count += 1;
        leaks
    }
}
