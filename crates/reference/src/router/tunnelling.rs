//! Policy routing by ingress interface, and tunnels.

use super::Router;
use super::forward::{Arrival, count_down, trim};
use super::header::{IP, is_special4};
use crate::config::ConfigError;
use crate::faults::{WrongFrame, is_nth};
use crate::table::Target;
use crate::tunnels::{self, End, TunnelCounters};
use drophammer_model::role::{Policy, PolicySource, PolicyTarget, TUNNEL_OVERHEAD, Tunnel};
use drophammer_wire::frame::Frame;
use drophammer_wire::{checksum, icmpv4, ipv4};
use std::net::{IpAddr, Ipv4Addr};

impl Router {
    pub(super) fn add_tunnel(&mut self, tunnel: Tunnel) -> Result<(), ConfigError> {
        if self.fib.find4(tunnel.local) != Some(Target::Local) {
            return Err(ConfigError::Tunnel(tunnel.local, "its local end is not an address of the device"));
        }
        if self.tunnel_between(tunnel.local, tunnel.remote).is_some() {
            return Err(ConfigError::Tunnel(tunnel.local, "another one has the same ends"));
        }
        self.tunnels.push(End::new(tunnel));
        Ok(())
    }

    /// Adds a policy. The tunnels and interfaces that it uses must already exist.
    pub(super) fn add_policy(&mut self, policy: &Policy) -> Result<(), ConfigError> {
        let no_tunnel = ConfigError::Limit("the tunnel of a policy");
        match policy.from {
            PolicySource::Interface(interface) if interface >= self.interfaces.len() => {
                return Err(ConfigError::NoSuchPort(interface));
            }
            PolicySource::Tunnel(tunnel) if tunnel >= self.tunnels.len() => return Err(no_tunnel),
            PolicySource::Interface(_) | PolicySource::Tunnel(_) => {}
        }
        if self.policies.iter().any(|(from, _)| *from == policy.from) {
            return Err(ConfigError::Limit("two policies for one interface or tunnel"));
        }
        let target = match policy.to {
            PolicyTarget::NextHop { via, interface } => Target::Via(self.next_hop(interface, via.into())?),
            PolicyTarget::Tunnel(tunnel) if tunnel < self.tunnels.len() => Target::Tunnel(tunnel),
            PolicyTarget::Tunnel(_) => return Err(no_tunnel),
        };
        self.policies.push((policy.from, target));
        Ok(())
    }

    /// Counters of a tunnel, by its index in the configuration; `None` if it does not exist.
    pub fn tunnel_counters(&self, tunnel: usize) -> Option<TunnelCounters> {
        Some(self.tunnels.get(tunnel)?.counters)
    }

    /// The tunnel between these addresses.
    pub(super) fn tunnel_between(&self, local: Ipv4Addr, remote: Ipv4Addr) -> Option<usize> {
        self.tunnels.iter().position(|end| (end.tunnel.local, end.tunnel.remote) == (local, remote))
    }

    /// The target of a packet from this source after policies; `target` is the target according to the routes. Policies
    /// do not apply to broadcasts of a connected prefix.
    pub(super) fn by_policy(&self, from: PolicySource, target: Option<Target>) -> Option<Target> {
        if target == Some(Target::Broadcast) || self.faults.policy_ignored {
            return target;
        }
        self.policies.iter().find(|policy| policy.0 == from).map(|policy| policy.1).or(target)
    }

    /// Takes a packet from a tunnel, and forwards the packet inside.
    #[cold]
    pub(super) fn take_tunnelled(&mut self, arrival: Arrival, tunnel: usize, frame: &mut Frame) -> bool {
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
            self.take_own_ipv4(arrival, packet);
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
            self.report4(arrival, packet, |original| icmpv4::Repr::TimeExceeded { code: 0, original });
            return false;
        }
        let martian = is_special4(destination) || is_special4(source) || destination.is_link_local();
        let target = if martian { None } else { self.by_policy(PolicySource::Tunnel(tunnel), target) };
        let next_hop = match target {
            Some(Target::Tunnel(next)) => return self.enter_tunnel(arrival, next, total, frame),
            Some(Target::Via(next_hop)) => Some(next_hop),
            Some(Target::Connected(out)) => self.neighbours.intern(out, IpAddr::V4(destination)),
            _ => {
                self.truth.dropped.no_route += 1;
                self.report_no_route4(arrival, packet);
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
            self.refuse_large(arrival, mtu, &frame[IP..]);
            return false;
        }
        trim(frame, total, tags);
        count_down(frame);
        self.forward(arrival.now, arrival.interface, next_hop, frame)
    }

    /// Sends the packet of `total` bytes in `frame` into a tunnel. Nothing is fragmented: a packet larger than the tunnel's
    /// MTU is dropped.
    #[cold]
    pub(super) fn enter_tunnel(&mut self, arrival: Arrival, tunnel: usize, total: usize, frame: &mut Frame) -> bool {
        let Tunnel { remote, mtu, .. } = self.tunnels[tunnel].tunnel;
        if total > mtu as usize && !self.lets_pass(WrongFrame::Giant) {
            self.refuse_large(arrival, mtu as usize, &frame[IP..]);
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
        self.forward(arrival.now, arrival.interface, next_hop, frame)
    }
}
