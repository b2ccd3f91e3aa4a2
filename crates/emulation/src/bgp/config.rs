//! Configuration of a session.

use drophammer_wire::Malformed;
use drophammer_wire::bgp::open::{self, Open};
use drophammer_wire::bgp::{AfiSafi, Capability, GracefulRestart, PathDirection};
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;
use std::time::Duration;

/// Graceful restart capability of a speaker (RFC 4724).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GracefulRestartConfig {
    /// How long the peer should keep routes, in whole seconds below 4096.
    pub restart_time: Duration,
    /// Applies after a NOTIFICATION too (RFC 8538).
    pub notification: bool,
    /// This speaker has restarted (flag R).
    pub restarted: bool,
    /// It forwarded during the restart, in all families (flag F).
    pub forwarding: bool,
}

/// Configuration of one side of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionConfig {
    /// AS number of this speaker.
    pub local_as: u32,
    /// Expected AS number of the peer; 0 for any.
    pub peer_as: u32,
    /// BGP identifier of this speaker; not zero.
    pub router_id: Ipv4Addr,
    /// Proposed hold time in whole seconds: 0 (the session never expires), or 3 to 65535. The smaller of the two proposals
    /// counts.
    pub hold_time: Duration,
    /// Interval between KEEPALIVEs; a third of the negotiated hold time if absent or longer than that.
    pub keepalive: Option<Duration>,
    /// Maximum duration of an attempt to connect.
    pub connect_timeout: Duration,
    /// Time to the next attempt after one that failed before its maximum duration.
    pub connect_retry: Duration,
    /// Time between the end of a session and the next attempt ("IdleHoldTime").
    pub idle_hold: Duration,
    /// True to accept connections only, and never open one.
    pub passive: bool,
    /// Families of the exchanged routes. If empty, the speaker sends no capability, which means IPv4 unicast.
    pub families: Vec<AfiSafi>,
    /// Use of path identifiers, by family.
    pub add_path: Vec<(AfiSafi, PathDirection)>,
    /// Families in which the peer may send several labels per route (RFC 8277 section 2.1), each with their highest number, 2 or more. This
    /// speaker still sends one label per route.
    pub multiple_labels: Vec<(AfiSafi, u8)>,
    /// True to support messages of up to 65535 bytes (RFC 8654).
    pub extended_messages: bool,
    /// Graceful restart capability, if offered.
    pub graceful_restart: Option<GracefulRestartConfig>,
    /// True to support ROUTE-REFRESH (RFC 2918, RFC 7313).
    pub route_refresh: bool,
    /// True to offer AS numbers of 4 octets (RFC 6793). Without them, `local_as` has 2 octets.
    pub four_octet_as: bool,
    /// Seed of the jitter of timers.
    pub seed: u64,
}

impl SessionConfig {
    /// An active speaker of IPv4 unicast with a hold time of 90 s. It supports route refresh and extended messages, tries to
    /// connect every 5 s and waits 1 s after the end of a session.
    pub fn new(local_as: u32, peer_as: u32, router_id: Ipv4Addr) -> SessionConfig {
        SessionConfig {
            local_as,
            peer_as,
            router_id,
            hold_time: Duration::from_secs(90),
            keepalive: None,
            connect_timeout: Duration::from_secs(5),
            connect_retry: Duration::from_secs(5),
            idle_hold: Duration::from_secs(1),
            passive: false,
            families: vec![AfiSafi::IPV4_UNICAST],
            add_path: Vec::new(),
            multiple_labels: Vec::new(),
            extended_messages: true,
            graceful_restart: None,
            route_refresh: true,
            four_octet_as: true,
            seed: 0,
        }
    }

    /// The families of routes: the configured ones, or the default one.
    pub fn effective_families(&self) -> &[AfiSafi] {
        if self.families.is_empty() { &[AfiSafi::IPV4_UNICAST] } else { &self.families }
    }

    /// The OPEN of this speaker.
    pub fn open(&self) -> Open {
        let mut capabilities: Vec<_> = self.families.iter().copied().map(Capability::Multiprotocol).collect();
        if self.route_refresh {
            capabilities.extend([Capability::RouteRefresh, Capability::EnhancedRouteRefresh]);
        }
        if self.extended_messages {
            capabilities.push(Capability::ExtendedMessage);
        }
        if let Some(restart) = self.graceful_restart {
            capabilities.push(Capability::GracefulRestart(GracefulRestart {
                restarted: restart.restarted,
                notification: restart.notification,
                seconds: restart.restart_time.as_secs().min(4095) as u16,
                families: self.effective_families().iter().map(|&family| (family, restart.forwarding)).collect(),
            }));
        }
        if self.four_octet_as {
            capabilities.push(Capability::FourOctetAs(self.local_as));
        }
        if !self.add_path.is_empty() {
            capabilities.push(Capability::AddPath(self.add_path.clone()));
        }
        if !self.multiple_labels.is_empty() {
            capabilities.push(Capability::MultipleLabels(self.multiple_labels.clone()));
        }
        Open {
            my_as: open::two_octets(self.local_as),
            hold_time: self.hold_time.as_secs().min(65535) as u16,
            identifier: self.router_id,
            capabilities,
        }
    }

    /// The OPEN as a message.
    ///
    /// # Errors
    /// If a peer would refuse a value (AS 0, identifier 0.0.0.0, a hold time of 1 or 2 s), the AS number is too large, or there are
    /// too many families.
    pub fn open_message(&self) -> Result<Vec<u8>, Malformed> {
        let wrong = |reason| Err(Malformed::new("bgp open", reason));
        match self.open() {
            _ if self.local_as == 0 => wrong("AS 0 is reserved"),
            _ if !self.four_octet_as && self.local_as > 0xffff => wrong("the AS number has more than 2 octets"),
            open if open.identifier.is_unspecified() => wrong("the BGP identifier is zero"),
            open if matches!(open.hold_time, 1 | 2) => wrong("the hold time is 1 or 2 s"),
            open => open.message(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_wire::bgp::frame;

    fn config() -> SessionConfig {
        SessionConfig::new(4_200_000_000, 65000, Ipv4Addr::new(192, 0, 2, 1))
    }

    #[test]
    fn what_is_wanted_is_said() {
        let restart = GracefulRestartConfig {
            restart_time: Duration::from_secs(9999),
            notification: true,
            restarted: false,
            forwarding: true,
        };
        let both = PathDirection { receive: true, send: true };
        let config = SessionConfig {
            families: vec![AfiSafi::IPV4_UNICAST, AfiSafi::VPNV6],
            add_path: vec![(AfiSafi::VPNV6, both)],
            multiple_labels: vec![(AfiSafi::VPNV6, 3)],
            graceful_restart: Some(restart),
            ..config()
        };
        let message = config.open_message().unwrap();
        let open = Open::parse(frame(&message, 4096).unwrap().unwrap().body).unwrap();
        assert_eq!((open.my_as, open.speaker_as(), open.hold_time), (23456, 4_200_000_000, 90));
        let restart = GracefulRestart {
            restarted: false,
            notification: true,
            seconds: 4095,
            families: vec![(AfiSafi::IPV4_UNICAST, true), (AfiSafi::VPNV6, true)],
        };
        for capability in [
            Capability::Multiprotocol(AfiSafi::VPNV6),
            Capability::RouteRefresh,
            Capability::EnhancedRouteRefresh,
            Capability::ExtendedMessage,
            Capability::GracefulRestart(restart),
            Capability::AddPath(vec![(AfiSafi::VPNV6, both)]),
            Capability::MultipleLabels(vec![(AfiSafi::VPNV6, 3)]),
        ] {
            assert!(open.capabilities.contains(&capability), "{capability:?}");
        }
    }

    #[test]
    fn what_is_not_wanted_is_not_said() {
        let bare = SessionConfig { families: vec![], route_refresh: false, extended_messages: false, ..config() };
        assert_eq!(bare.open().capabilities, [Capability::FourOctetAs(4_200_000_000)]);
        assert_eq!(bare.effective_families(), [AfiSafi::IPV4_UNICAST]);
        assert_eq!(SessionConfig { four_octet_as: false, local_as: 65_001, ..bare }.open().capabilities, []);
    }

    #[test]
    fn what_a_peer_would_refuse_is_not_sent() {
        let hold = Duration::from_secs(2);
        assert!(SessionConfig { hold_time: hold, ..config() }.open_message().is_err());
        assert!(SessionConfig { local_as: 0, ..config() }.open_message().is_err());
        assert!(SessionConfig { four_octet_as: false, ..config() }.open_message().is_err());
        assert!(SessionConfig { router_id: Ipv4Addr::UNSPECIFIED, ..config() }.open_message().is_err());
        let families = (0..900).map(|afi| AfiSafi::new(afi, 1)).collect();
        assert!(SessionConfig { families, ..config() }.open_message().is_err());
    }
}
