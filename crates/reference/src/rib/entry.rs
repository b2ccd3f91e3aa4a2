//! What a routing table is made of.

use super::attributes::{AttributesId, Interned};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// A prefix: its first address and its length.
pub type Net = (IpAddr, u8);

/// Index of a peer.
pub type PeerId = u16;

/// Times of a table.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timing {
    /// From reception to re-advertisement.
    pub propagation_delay: Duration,
    /// From a change of the best path to the forwarding table.
    pub fib_delay: Duration,
    /// Time of each further route.
    pub fib_time_per_route: Duration,
}

/// A session that is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Of the same AS.
    pub internal: bool,
    /// Routes are reflected for it.
    pub client: bool,
    /// BGP identifier.
    pub router_id: u32,
    /// Address.
    pub address: IpAddr,
    /// Are IPv4 routes told?
    pub ipv4: bool,
    /// Are IPv6 routes told?
    pub ipv6: bool,
}

/// A path that a peer told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// What was told.
    pub attributes: AttributesId,
    /// The way there, a number of the caller's; `None` makes the path one that is never used.
    pub hop: Option<u32>,
    /// Who told it.
    pub peer: PeerId,
    /// Is that an internal peer?
    pub internal: bool,
    /// And one for which routes are reflected?
    pub client: bool,
}

/// What a peer is to be told about a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Telling {
    /// A route with the attributes of this set; to external peers, of the first set that reads the same there.
    Announce(AttributesId),
    /// No route any more.
    Withdraw,
}

/// A change of the forwarding table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FibChange {
    /// The prefix.
    pub net: Net,
    /// Its number, from 1.
    pub number: u32,
    /// The way; `None` when the route goes.
    pub hop: Option<u32>,
}

/// A prefix with all that is known of it.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub net: Net,
    pub paths: Paths,
    pub best: Option<Path>,
    /// The best path as far as peers are told of it.
    pub exported: Option<Path>,
    /// The way that the forwarding table has or will have.
    pub hop: Option<u32>,
    /// Withdrawals of it that are kept back.
    pub late: u32,
}

/// Mostly one or two.
#[derive(Clone, Debug)]
pub(super) enum Paths {
    None,
    One(Path),
    Many(Vec<Path>),
}

impl Paths {
    pub fn all(&self) -> &[Path] {
        match self {
            Paths::None => &[],
            Paths::One(path) => std::slice::from_ref(path),
            Paths::Many(paths) => paths,
        }
    }

    pub fn put(&mut self, path: Path) {
        match self {
            Paths::None => *self = Paths::One(path),
            Paths::One(own) if own.peer == path.peer => *own = path,
            Paths::One(own) => *self = Paths::Many(vec![*own, path]),
            Paths::Many(paths) => match paths.iter_mut().find(|p| p.peer == path.peer) {
                Some(own) => *own = path,
                None => paths.push(path),
            },
        }
    }

    pub fn remove(&mut self, peer: PeerId) -> bool {
        match self {
            Paths::One(own) if own.peer == peer => *self = Paths::None,
            Paths::Many(paths) => {
                let before = paths.len();
                paths.retain(|p| p.peer != peer);
                let gone = paths.len() < before;
                if let [only] = paths[..] {
                    *self = Paths::One(only);
                }
                return gone;
            }
            _ => return false,
        }
        true
    }
}

/// What peer `id` should know of a prefix: no route goes back to where it came from, nor from one internal peer to another
/// (RFC 4271 section 9.2) unless one of them is a client (RFC 4456 section 6).
pub(super) fn wanted(entry: &Entry, id: PeerId, peer: &Peer, interned: &Interned) -> Option<AttributesId> {
    let path = entry.exported.filter(|p| p.peer != id)?;
    let family = if entry.net.0.is_ipv4() { peer.ipv4 } else { peer.ipv6 };
    if !family || path.internal && peer.internal && !path.client && !peer.client {
        return None;
    }
    Some(if peer.internal { path.attributes } else { interned.export(path.attributes) })
}

/// A prefix without the bits beyond its length; `None` when its family has no such length.
pub fn net(address: IpAddr, len: u8) -> Option<Net> {
    let address = match address {
        IpAddr::V4(a) if len <= 32 => {
            Ipv4Addr::from_bits(a.to_bits() & u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0)).into()
        }
        IpAddr::V6(a) if len <= 128 => {
            Ipv6Addr::from_bits(a.to_bits() & u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)).into()
        }
        _ => return None,
    };
    Some((address, len))
}
