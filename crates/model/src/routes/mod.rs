//! Routes: a million of them described in a few hundred bytes.
//!
//! A [`RouteRange`] is pure arithmetic: it computes the prefix and group of route `i`, the attributes of a group, and
//! the index of a prefix on request. So a table is expanded while it is sent and recognised while it is received. A
//! [`RouteTable`] contains routes listed one by one. [`Routes`] is either of them.

mod affine;
mod afi_safi;
mod attributes;
mod internet;
mod order;
mod prefix;
mod range;
mod space;
mod table;
mod vpn;

pub use afi_safi::{AfiSafi, RouteKind};
pub use attributes::{Amount, AttributePattern, GroupSizes, Origin, PathSegment, PathSegmentKind, RouteAttributes};
pub use order::Order;
pub use prefix::{Prefix, PrefixError};
pub(crate) use prefix::{address, number};
pub use range::{Description, RouteError, RouteRange};
pub use space::reserved;
pub use table::RouteTable;
pub use vpn::{
    Administrator, Counting, FIRST_LABEL, LAST_LABEL, LabelPer, PrefixesPerVrf, VpnError, VpnId, VpnIdError, VpnRoutes,
    VrfRange,
};

use crate::label_edge::CoreProtocol;
use crate::trial::Family;
use crate::trial::PortIndex;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

/// Mixes the bits of a number into a pseudo-random number (finalizer of splitmix64).
#[inline]
pub(crate) fn mix(n: u64) -> u64 {
    let n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ n >> 31
}

/// Routes with indices from 0, in groups of consecutive routes with the same attributes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
// There are only a few values of this type, each behind an `Arc`, and a range is read for every route.
#[allow(clippy::large_enum_variant)]
pub enum Routes {
    /// Computed routes.
    Range(RouteRange),
    /// Routes listed one by one. Records contain only the description.
    Table(Arc<RouteTable>),
}

impl From<RouteRange> for Routes {
    fn from(range: RouteRange) -> Routes {
        Routes::Range(range)
    }
}

impl From<RouteTable> for Routes {
    fn from(table: RouteTable) -> Routes {
        Routes::Table(Arc::new(table))
    }
}

impl Routes {
    /// Description of the routes in words.
    pub fn name(&self) -> String {
        match self {
            Routes::Range(range) => match range.description() {
                Description::Uniform { first, count, step: 1, order, .. } => {
                    format!("{count} × /{} from {first}, {order}", first.length())
                }
                Description::Uniform { first, count, step, order, .. } => {
                    format!("{count} × /{} from {first}, every {step}th, {order}", first.length())
                }
                Description::Internet { family, count, seed, order, .. } => {
                    format!("{count} {family} routes like the Internet's (seed {seed}), {order}")
                }
            },
            Routes::Table(table) => table.name().to_owned(),
        }
    }

    /// Family of the routes. Only unicast is supported so far.
    pub fn afi_safi(&self) -> AfiSafi {
        AfiSafi::unicast(self.family())
    }

    /// IP version of the prefixes.
    pub fn family(&self) -> Family {
        match self {
            Routes::Range(range) => range.family,
            Routes::Table(table) => table.family(),
        }
    }

    /// Number of routes.
    pub fn len(&self) -> u32 {
        match self {
            Routes::Range(range) => range.count,
            Routes::Table(table) => table.len(),
        }
    }

    /// True if there are no routes, which is only possible for a table.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Prefix of route `i`, which is below [`Routes::len`].
    #[inline]
    pub fn prefix(&self, i: u32) -> Prefix {
        match self {
            Routes::Range(range) => range.prefix(i),
            Routes::Table(table) => table.prefix(i),
        }
    }

    /// The route with exactly this prefix.
    #[inline]
    pub fn index_of(&self, prefix: &Prefix) -> Option<u32> {
        match self {
            Routes::Range(range) => range.index_of(prefix),
            Routes::Table(table) => table.index_of(prefix),
        }
    }

    /// Prefixes of consecutive routes; faster than single lookups. The part is clamped to the existing routes.
    pub fn iter(&self, part: Range<u32>) -> Prefixes<'_> {
        let part = part.start.min(self.len())..part.end.min(self.len());
        let left = part.end.saturating_sub(part.start);
        match self {
            Routes::Range(range) => range.iter(part.start, left),
            Routes::Table(table) => Prefixes::Table(table.slice(part.start..part.start + left).iter()),
        }
    }

    /// Group of route `i`.
    #[inline]
    pub fn group_of(&self, i: u32) -> u32 {
        match self {
            Routes::Range(range) => range.group_of(i),
            Routes::Table(table) => table.group_of(i),
        }
    }

    /// Number of groups.
    pub fn groups(&self) -> u32 {
        match self {
            Routes::Range(range) => self.group_of(range.count - 1) + 1,
            Routes::Table(table) => table.groups(),
        }
    }

    /// Routes of group `group`, which is below [`Routes::groups`].
    pub fn group(&self, group: u32) -> Range<u32> {
        match self {
            Routes::Range(range) => {
                let start = |g: u32| range.attributes.routes_per_group.start(g).min(u64::from(range.count)) as u32;
                start(group)..start(group.saturating_add(1))
            }
            Routes::Table(table) => table.group(group),
        }
    }

    /// Attributes of group `group`.
    pub fn attributes(&self, group: u32) -> RouteAttributes {
        match self {
            Routes::Range(range) => range.attributes.attributes(group),
            Routes::Table(table) => table.attributes(group),
        }
    }

    /// Like [`Routes::attributes`], but reuses the memory of `out`.
    pub fn attributes_into(&self, group: u32, out: &mut RouteAttributes) {
        match self {
            Routes::Range(range) => range.attributes.attributes_into(group, out),
            Routes::Table(table) => out.clone_from(&table.attributes(group)),
        }
    }

    /// A host address that longest match resolves to route `i`, different for each `salt`; the network address if
    /// longer prefixes of a table cover the whole route (see [`RouteTable::reachable`]).
    pub fn address(&self, i: u32, salt: u32) -> IpAddr {
        match self {
            Routes::Range(_) => self.prefix(i).host(salt),
            Routes::Table(table) => table.host(i, salt),
        }
    }
}

/// Prefixes of consecutive routes.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum Prefixes<'a> {
    Range { range: &'a RouteRange, place: u32, left: u32 },
    Arranged { range: &'a RouteRange, next: u32, left: u32 },
    Table(std::slice::Iter<'a, Prefix>),
}

impl Iterator for Prefixes<'_> {
    type Item = Prefix;

    #[inline]
    fn next(&mut self) -> Option<Prefix> {
        match self {
            Prefixes::Range { range, place, left } => {
                *left = left.checked_sub(1)?;
                let prefix = range.at(*place);
                *place = range.scattered.after(*place);
                Some(prefix)
            }
            Prefixes::Arranged { range, next, left } => {
                *left = left.checked_sub(1)?;
                let prefix = range.arranged(*next);
                *next += 1;
                Some(prefix)
            }
            Prefixes::Table(rest) => rest.next().copied(),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match self {
            Prefixes::Range { left, .. } | Prefixes::Arranged { left, .. } => (*left as usize, Some(*left as usize)),
            Prefixes::Table(rest) => rest.size_hint(),
        }
    }
}

/// Index of the BGP session of an emulated router, over all ports of a testbed.
pub type PeerIndex = usize;

/// How routes are packed into UPDATE messages.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Packing {
    /// Maximum number of routes in an UPDATE; 0 for all routes with the same attributes that fit into 4096 bytes (RFC
    /// 4271 section 4).
    pub routes_per_update: u16,
    /// Routes per second; `None` for the maximum rate that the peer accepts.
    pub pace: Option<f64>,
    /// How many more times the router prepends its own AS, which makes the route less preferred. Within one AS, where
    /// nothing is prepended, the router lowers LOCAL_PREF by this number instead.
    pub prepend: u8,
}

/// Whether an UPDATE advertises or withdraws routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The routes are reachable.
    Advertise,
    /// The routes are no longer reachable.
    Withdraw,
}

/// An action of the emulated routers.
#[derive(Clone, Debug)]
pub enum RouteAction {
    /// Advertise or withdraw a part of `routes`.
    Routes {
        /// Router that sends the UPDATEs.
        peer: PeerIndex,
        /// Advertise or withdraw.
        change: Change,
        /// The routes.
        routes: Arc<Routes>,
        /// Indices within `routes`.
        part: Range<u32>,
        /// How to pack them into UPDATEs.
        packing: Packing,
    },
    /// End a session with a NOTIFICATION (Cease, RFC 4486). It stays down until it is established again.
    Close {
        /// Router that ends the session.
        peer: PeerIndex,
    },
    /// Take the link of a port down, as if a cable was pulled, or up again.
    Link {
        /// The port.
        port: PortIndex,
        /// True for up.
        up: bool,
    },
    /// Let the P router behind a core port advertise or withdraw a part of its prefixes.
    Igp {
        /// The port.
        port: PortIndex,
        /// OSPF (AS-external-LSAs) or LDP (labels).
        protocol: CoreProtocol,
        /// Advertise or withdraw.
        change: Change,
        /// Numbers of the prefixes.
        part: Range<u32>,
    },
}

#[cfg(test)]
mod tests;
