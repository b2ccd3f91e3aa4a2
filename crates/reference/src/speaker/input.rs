//! Effects of UPDATEs on the routing table.

use super::{Hops, read};
use crate::config::{Beyond, RibLimit};
use crate::rib::{Path, PeerId, Rib};
use crate::truth::BgpTruth;
use drophammer_emulation::bgp::Negotiated;
use drophammer_model::Instant;
use drophammer_wire::bgp::notification::{Notification, cease, code};
use std::net::IpAddr;

/// The routing table and related state.
pub(super) struct Table {
    pub rib: Rib,
    pub asn: u32,
    /// BGP identifier of the device, and its cluster's.
    pub router_id: u32,
    /// External routes are advertised to internal peers with the device as next hop.
    pub next_hop_self: bool,
    pub limit: Option<RibLimit>,
    /// Routes that may still come before the session is reset.
    pub until_reset: Option<u64>,
    /// Routes that may still be advertised before a malformed UPDATE follows.
    pub until_malformed: Option<u64>,
    pub truth: BgpTruth,
}

/// Origin of an UPDATE.
pub(super) struct Source<'a, 'b> {
    pub now: Instant,
    pub peer: PeerId,
    pub port: usize,
    /// Whether its routes are reflected.
    pub client: bool,
    pub hops: &'a mut Hops<'b>,
}

impl Table {
    /// Processes the body of an UPDATE.
    ///
    /// # Errors
    /// The NOTIFICATION that ends the session. The part before the point of error takes effect.
    pub fn update(&mut self, from: Source<'_, '_>, body: &[u8], with: &Negotiated) -> Result<(), Notification> {
        let Source { now, peer, port, client, hops } = from;
        let update = read::read(body, with.ibgp)?;
        self.truth.updates_received += 1;
        for net in update.withdrawn.into_iter().flatten() {
            self.truth.withdrawals_received += 1;
            self.rib.withdraw(now, net, peer);
        }
        if self.rib.paths() == 0 {
            self.rib.forget();
        }
        for (nets, next_hop) in update.announced {
            let Some(attributes) = update.attributes.clone().zip(next_hop) else {
                for net in nets {
                    self.truth.routes_received += 1;
                    self.truth.treated_as_withdrawn += 1;
                    self.rib.withdraw(now, net, peer);
                }
                continue;
            };
            let (mut attributes, next_hop) = attributes;
            attributes.next_hop = next_hop;
            if with.ibgp {
                // Its originator in the AS, which is advertised to the peers to which it is reflected.
                attributes.originator = attributes.originator.or(Some(with.peer_id.to_bits()));
            }
            let looped = attributes.passed(self.asn) || attributes.reflected_by(self.router_id);
            let hop = if looped { None } else { hops(port, next_hop) };
            let id = self.rib.intern(&attributes);
            for net in nets {
                self.truth.routes_received += 1;
                self.truth.looped += u64::from(looped);
                self.truth.unreachable += u64::from(!looped && hop.is_none());
                if !self.rib.announce(now, net, Path { attributes: id, hop, peer, internal: with.ibgp, client }) {
                    self.truth.over_limit += 1;
                    if let Some(RibLimit { paths, beyond: Beyond::Reset }) = self.limit {
                        return Err(too_many(net.0, paths));
                    }
                }
                if let Some(left) = &mut self.until_reset {
                    *left -= 1;
                    if *left == 0 {
                        self.until_reset = None;
                        return Err(Notification::bare(code::CEASE, cease::ADMINISTRATIVE_RESET));
                    }
                }
            }
        }
        Ok(())
    }
}

/// RFC 4486 section 4: family and upper bound.
fn too_many(address: IpAddr, bound: usize) -> Notification {
    let mut data = vec![0, if address.is_ipv4() { 1 } else { 2 }, 1];
    data.extend((bound.min(u32::MAX as usize) as u32).to_be_bytes());
    Notification::new(code::CEASE, cease::MAXIMUM_PREFIXES, data)
}
