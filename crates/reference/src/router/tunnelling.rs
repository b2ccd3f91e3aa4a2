//! Policy routing by incoming interface, and the way into tunnels and out of them.

use super::Router;
use super::forward::{count_down, trim};
use super::header::{IP, is_special4};
use crate::config::ConfigError;
use crate::faults::{WrongFrame, is_nth};
use crate::table::Target;
use crate::tunnels::{self, End, TunnelCounters};
use drophammer_model::Instant;
use drophammer_model::role::{Policy, PolicySource, PolicyTarget, TUNNEL_OVERHEAD, Tunnel};
use drophammer_wire::frame::Frame;
use drophammer_wire::{MacAddr, checksum, icmpv4, ipv4};
use std::net::{IpAddr, Ipv4Addr};

impl Router {
    pub(super) fn add_tunnel(&mut self, tunnel: Tunnel) -> Result<(), ConfigError> {
        if self.fib.find4(tunnel.local) != Some(Target::Local) {
            return Err(ConfigError::Tunnel(tunnel.local, "its own end is no address of the device"));
        }
        if self.tunnel_between(tunnel.local, tunnel.remote).is_some() {
            return Err(ConfigError::Tunnel(tunnel.local, "another one has the same ends"));
        }
        self.tunnels.push(End::new(tunnel));
        Ok(())
    }

    /// Adds a policy; its tunnels and interfaces must exist.
    pub(super) fn add_policy(&mut self, policy: &Policy) -> Result<(), ConfigError> {
        let is_there = |interface: usize| {
            let known = interface < self.interfaces.len();
            known.then_some(()).ok_or(ConfigError::NoSuchPort(interface))
        };
        let no_tunnel = ConfigError::Limit("the tunnel of a policy");
        match policy.from {
            PolicySource::Interface(interface) => is_there(interface)?,
            PolicySource::Tunnel(tunnel) if tunnel >= self.tunnels.len() => return Err(no_tunnel),
            PolicySource::Tunnel(_) => {}
        }
        if self.policies.iter().any(|(from, _)| *from == policy.from) {
            return Err(ConfigError::Limit("two policies for one interface or tunnel"));
        }
        let target = match policy.to {
            PolicyTarget::NextHop { via, interface } => {
                is_there(interface)?;
                Target::Via(self.neighbours.intern(interface, via.into()).ok_or(ConfigError::Limit("neighbours"))?)
            }
            PolicyTarget::Tunnel(tunnel) if tunnel < self.tunnels.len() => Target::Tunnel(tunnel),
            PolicyTarget::Tunnel(_) => return Err(no_tunnel),
        };
        self.policies.push((policy.from, target));
        Ok(())
    }

    /// Counters of tunnel number `tunnel` of its configuration; `None` if it does not exist.
    pub fn tunnel_counters(&self, tunnel: usize) -> Option<TunnelCounters> {
        Some(self.tunnels.get(tunnel)?.counters)
    }

    /// The tunnel with these ends, the device's own first.
    pub(super) fn tunnel_between(&self, local: Ipv4Addr, remote: Ipv4Addr) -> Option<usize> {
        self.tunnels.iter().position(|end| (end.tunnel.local, end.tunnel.remote) == (local, remote))
    }

    /// The target of a packet from this source, for which the routes give `target`. Broadcasts of a connected prefix
    /// are exempt from policies.
    pub(super) fn by_policy(&self, from: PolicySource, target: Option<Target>) -> Option<Target> {
        if target == Some(Target::Broadcast) || self.faults.policy_ignored {
            return target;
        }
        self.policies.iter().find(|policy| policy.0 == from).map(|policy| policy.1).or(target)
    }

    /// Takes a packet of a tunnel, and forwards the packet in it.
    #[cold]
    pub(super) fn take_tunnelled(
        &mut self,
        now: Instant,
        ingress: usize,
        from: MacAddr,
        tunnel: usize,
        frame: &mut Frame,
    ) -> bool {
        let Some(inner) = tunnels::carried(&frame[IP..]) else {
            self.truth.transit += 1;
            self.truth.dropped.malformed += 1;
            return false;
        };
        let total = inner.len();
        let bytes = frame.bytes_mut();
        bytes.truncate(IP + inner.end);
        bytes.drain(IP..IP + inner.start);
        let counters = &mut self.tunnels[tunnel].counters;
        counters.in_packets += 1;
        counters.in_octets += total as u64;
        let packet = &frame[IP..];
        let address = |at: usize| Ipv4Addr::new(packet[at], packet[at + 1], packet[at + 2], packet[at + 3]);
        let (source, destination) = (address(12), address(16));
        let target = self.fib.find4(destination);
        if target == Some(Target::Local) {
            self.truth.control += 1;
            self.take_own_ipv4(now, ingress, from, packet);
            return false;
        }
        self.truth.transit += 1;
        let header = usize::from(packet[0] & 15) * 4;
        if packet[0] >> 4 != 4 || !(ipv4::LEN..=total).contains(&header) {
            self.truth.dropped.malformed += 1;
            return false;
        }
        if checksum::fold(checksum::sum(&packet[..header])) != 0xffff {
            self.truth.dropped.checksum += 1;
            return false;
        }
        if packet[8] <= 1 && !self.lets_pass(WrongFrame::Ttl) {
            self.truth.dropped.ttl += 1;
            self.report4(now, ingress, from, packet, |original| icmpv4::Repr::TimeExceeded { code: 0, original });
            return false;
        }
        let martian = is_special4(destination) || is_special4(source) || destination.is_link_local();
        let target = if martian { None } else { self.by_policy(PolicySource::Tunnel(tunnel), target) };
        let next_hop = match target {
            Some(Target::Tunnel(next)) => return self.enter_tunnel(now, ingress, from, next, total, frame),
            Some(Target::Via(next_hop)) => Some(next_hop),
            Some(Target::Connected(out)) => self.neighbours.intern(out, IpAddr::V4(destination)),
            _ => {
                self.truth.dropped.no_route += 1;
                self.report4(now, ingress, from, packet, |original| icmpv4::Repr::DestinationUnreachable {
                    code: icmpv4::unreachable::NET,
                    next_hop_mtu: 0,
                    original,
                });
                return false;
            }
        };
        let Some(next_hop) = next_hop else {
            self.truth.dropped.unresolved += 1;
            return false;
        };
        let out = &self.interfaces[self.neighbours.get(next_hop).interface];
        let (mtu, tags) = (out.mtu, out.tags.len());
        if total > mtu && !self.lets_pass(WrongFrame::Giant) {
            self.refuse_large(now, ingress, from, mtu, &frame[IP..]);
            return false;
        }
        trim(frame, total, tags);
        count_down(frame);
        self.forward(now, ingress, next_hop, frame)
    }

    /// Sends the packet of `total` bytes in `frame` into a tunnel. Nothing is fragmented: one beyond the tunnel's MTU is dropped.
    #[cold]
    pub(super) fn enter_tunnel(
        &mut self,
        now: Instant,
        ingress: usize,
        from: MacAddr,
        tunnel: usize,
        total: usize,
        frame: &mut Frame,
    ) -> bool {
        let Tunnel { remote, mtu, .. } = self.tunnels[tunnel].tunnel;
        if total > mtu as usize && !self.lets_pass(WrongFrame::Giant) {
            self.refuse_large(now, ingress, from, mtu as usize, &frame[IP..]);
            return false;
        }
        let next_hop = match self.fib.find4(remote) {
            Some(Target::Via(next_hop)) => Some(next_hop),
            Some(Target::Connected(out)) => self.neighbours.intern(out, IpAddr::V4(remote)),
            _ => None,
        };
        let Some(next_hop) = next_hop else {
            self.truth.dropped.no_route += 1;
            return false;
        };
        let out = &self.interfaces[self.neighbours.get(next_hop).interface];
        let (outer, tags) = (total + TUNNEL_OVERHEAD as usize, out.tags.len());
        if outer > out.mtu && !self.lets_pass(WrongFrame::Giant) {
            self.truth.dropped.mtu += 1;
            return false;
        }
        if self.faults.tunnel_keeps_ttl {
            self.truth.ttl_kept += 1;
        } else {
            count_down(frame);
        }
        let end = &mut self.tunnels[tunnel];
        end.counters.out_packets += 1;
        end.counters.out_octets += total as u64;
        self.truth.tunnelled += 1;
        let sticks_after = self.faults.tunnel_sticks_after;
        let is_stuck = sticks_after > 0 && self.truth.tunnelled > sticks_after;
        if is_stuck || is_nth(self.truth.tunnelled, self.faults.tunnel_drop_every) {
            self.truth.dropped.fault_tunnel += 1;
            return false;
        }
        tunnels::wrap(frame.bytes_mut(), total, &end.tunnel);
        trim(frame, outer, tags);
        self.forward(now, ingress, next_hop, frame)
    }

    /// Drops a packet that does not fit, and informs its source if it may not be fragmented (RFC 1191 section 4).
    fn refuse_large(&mut self, now: Instant, ingress: usize, from: MacAddr, mtu: usize, packet: &[u8]) {
        self.truth.dropped.mtu += 1;
        if packet[6] & 0x40 != 0 {
            self.report4(now, ingress, from, packet, |original| icmpv4::Repr::DestinationUnreachable {
                code: icmpv4::unreachable::FRAGMENTATION_NEEDED,
                next_hop_mtu: mtu.min(0xffff) as u16,
                original,
            });
        }
    }
}
