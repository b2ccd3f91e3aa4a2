//! Elements of a routing table.

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
    /// Time from reception to re-advertisement.
    pub propagation_delay: Duration,
    /// Time from a change of the best path to the forwarding table.
    pub fib_delay: Duration,
    /// Additional time for each further route.
    pub fib_time_per_route: Duration,
}

/// A session that is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// True if it is in the same AS.
    pub internal: bool,
    /// True if routes are reflected for it.
    pub client: bool,
    /// BGP identifier.
    pub router_id: u32,
    /// Address.
    pub address: IpAddr,
    /// Whether IPv4 routes are advertised.
    pub ipv4: bool,
    /// Whether IPv6 routes are advertised.
    pub ipv6: bool,
}

/// A path received from a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Its attributes.
    pub attributes: AttributesId,
    /// Its next hop, as a number chosen by the caller; a path with `None` is never used.
    pub hop: Option<u32>,
    /// The peer that advertised it.
    pub peer: PeerId,
    /// Whether that peer is internal.
    pub internal: bool,
    /// Whether routes are reflected for that peer.
    pub client: bool,
}

/// What is to be sent to a peer about a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Telling {
    /// A route with the attributes of this set; to external peers, of the first set that is the same for them.
    Announce(AttributesId),
    /// A withdrawal.
    Withdraw,
}

/// A change of the forwarding table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FibChange {
    /// The prefix.
    pub net: Net,
    /// Its number, from 1.
    pub number: u32,
    /// The next hop; `None` if the route is removed.
    pub hop: Option<u32>,
}

/// A prefix with all its state.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub net: Net,
    pub paths: Paths,
    pub best: Option<Path>,
    /// The best path as it is advertised to peers.
    pub exported: Option<Path>,
    /// The next hop that the forwarding table has or will have.
    pub hop: Option<u32>,
    /// Delayed withdrawals of it.
    pub late: u32,
}

/// Paths to a prefix, mostly one or two.
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

/// The attributes that should be advertised to peer `id` for a prefix: no route goes back to the peer that it came
/// from, nor from one internal peer to another (RFC 4271 section 9.2) unless one of them is a client (RFC 4456 section 6).
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
