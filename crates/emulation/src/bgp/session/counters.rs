//! Counters of messages.

use drophammer_wire::bgp::message::kind;

/// Number of received or written messages, by type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// OPENs.
    pub opens: u64,
    /// Received UPDATEs. The session does not count sent UPDATEs, because its user writes them.
    pub updates: u64,
    /// NOTIFICATIONs.
    pub notifications: u64,
    /// KEEPALIVEs.
    pub keepalives: u64,
    /// ROUTE-REFRESHes.
    pub route_refreshes: u64,
}

impl Counters {
    pub(super) fn count(&mut self, kind: u8) {
        match kind {
            kind::OPEN => self.opens += 1,
            kind::UPDATE => self.updates += 1,
            kind::NOTIFICATION => self.notifications += 1,
            kind::KEEPALIVE => self.keepalives += 1,
            _ => self.route_refreshes += 1,
        }
    }
}
