//! Result of the negotiation by OPENs.

use super::cause::Cause;
use super::config::SessionConfig;
use drophammer_wire::bgp::message::{MAX_LEN, MAX_LEN_EXTENDED};
use drophammer_wire::bgp::notification::{Notification, code, open};
use drophammer_wire::bgp::{AfiSafi, Capability, GracefulRestart, Open, PathDirection};
use std::net::Ipv4Addr;
use std::time::Duration;

/// The negotiated parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// Families that both support, in the order of this speaker.
    pub families: Vec<AfiSafi>,
    /// True if AS numbers in UPDATEs have 4 octets (RFC 6793).
    pub four_octet_as: bool,
    /// Use of path identifiers by this speaker, by family; families without path identifiers are absent.
    pub add_path: Vec<(AfiSafi, PathDirection)>,
    /// Families in which routes may have several labels, each with the highest number that this speaker can receive.
    pub label_stacks: Vec<(AfiSafi, u8)>,
    /// Longest message that this speaker may send, in bytes.
    pub max_send: usize,
    /// Longest message that this speaker must accept, in bytes.
    pub max_receive: usize,
    /// The hold time; zero for never.
    pub hold: Duration,
    /// Time between KEEPALIVEs before jitter; zero for never.
    pub keepalive: Duration,
    /// True if the peer accepts ROUTE-REFRESH and this speaker offers it.
    pub route_refresh: bool,
    /// True if both mark beginning and end of a refresh (RFC 7313).
    pub enhanced_route_refresh: bool,
    /// True if both speakers are in one AS.
    pub ibgp: bool,
    /// BGP identifier of this speaker.
    pub local_id: Ipv4Addr,
    /// BGP identifier of the peer.
    pub peer_id: Ipv4Addr,
    /// AS of this speaker.
    pub local_as: u32,
    /// AS of the peer.
    pub peer_as: u32,
    /// Graceful restart capability of the peer.
    pub graceful_restart: Option<GracefulRestart>,
    /// All capabilities of the peer.
    pub peer_capabilities: Vec<Capability>,
}

impl Negotiated {
    /// Negotiates from `config` and the peer's OPEN.
    ///
    /// # Errors
    /// If the OPEN is not acceptable (RFC 4271 section 6.2, RFC 6286 section 2.2): another AS, this speaker's identifier from an
    /// internal peer, no common family (RFC 5492).
    pub fn from_opens(config: &SessionConfig, theirs: Open) -> Result<Negotiated, Cause> {
        let reject = |subcode, data, why| Cause::Rejected { answer: Notification::new(code::OPEN, subcode, data), why };
        let peer_as = theirs.speaker_as();
        if config.peer_as != 0 && peer_as != config.peer_as || peer_as == 0 {
            let why = format!("the peer says AS {peer_as}, but AS {} was expected", config.peer_as);
            return Err(reject(open::BAD_PEER_AS, vec![], why));
        }
        let (ibgp, local_id, peer_id) = (peer_as == config.local_as, config.router_id, theirs.identifier);
        if ibgp && peer_id == local_id {
            let why = format!("the peer of the same AS has the same BGP identifier {peer_id}");
            return Err(reject(open::BAD_IDENTIFIER, peer_id.octets().to_vec(), why));
        }
        let has = |capability: &Capability| theirs.capabilities.contains(capability);
        let mut named: Vec<_> = theirs
            .capabilities
            .iter()
            .filter_map(|capability| match capability {
                Capability::Multiprotocol(family) => Some(*family),
                _ => None,
            })
            .collect();
        if named.is_empty() {
            named.push(AfiSafi::IPV4_UNICAST);
        }
        let ours = config.effective_families();
        let families: Vec<_> = ours.iter().copied().filter(|family| named.contains(family)).collect();
        if families.is_empty() {
            let mut wanted = Vec::new();
            for family in ours {
                // Cannot fail: the value has 4 bytes.
                let _ = Capability::Multiprotocol(*family).append(&mut wanted);
            }
            let list = |families: &[AfiSafi]| families.iter().map(AfiSafi::to_string).collect::<Vec<_>>().join(", ");
            let why = format!("the peer offers {}, not {}", list(&named), list(ours));
            return Err(reject(open::UNSUPPORTED_CAPABILITY, wanted, why));
        }
        let extended = config.extended_messages && has(&Capability::ExtendedMessage);
        let hold = Duration::from_secs(config.hold_time.as_secs().min(65535).min(u64::from(theirs.hold_time)));
        let third = hold / 3;
        Ok(Negotiated {
            add_path: add_path(config, &theirs, &families),
            label_stacks: label_stacks(config, &theirs, &families),
            families,
            four_octet_as: config.four_octet_as
                && theirs.capabilities.iter().any(|c| matches!(c, Capability::FourOctetAs(_))),
            max_send: if extended { MAX_LEN_EXTENDED } else { MAX_LEN },
            // A peer may send them whenever this speaker has advertised that it accepts them (RFC 8654 section 4).
            max_receive: if config.extended_messages { MAX_LEN_EXTENDED } else { MAX_LEN },
            hold,
            keepalive: config.keepalive.map_or(third, |wanted| wanted.min(third)),
            route_refresh: config.route_refresh && has(&Capability::RouteRefresh),
            enhanced_route_refresh: config.route_refresh && has(&Capability::EnhancedRouteRefresh),
            ibgp,
            local_id,
            peer_id,
            local_as: config.local_as,
            peer_as,
            // The last one counts if there are several (RFC 4724 section 3).
            graceful_restart: theirs.capabilities.iter().rev().find_map(|capability| match capability {
                Capability::GracefulRestart(restart) => Some(restart.clone()),
                _ => None,
            }),
            peer_capabilities: theirs.capabilities,
        })
    }

    /// True if UPDATEs that this speaker sends carry path identifiers in `family`.
    pub fn add_path_send(&self, family: AfiSafi) -> bool {
        self.add_path.iter().any(|(of, way)| *of == family && way.send)
    }

    /// True if UPDATEs that the peer sends carry path identifiers in `family`.
    pub fn add_path_receive(&self, family: AfiSafi) -> bool {
        self.add_path.iter().any(|(of, way)| *of == family && way.receive)
    }

    /// True if `family` is in use.
    pub fn has(&self, family: AfiSafi) -> bool {
        self.families.contains(&family)
    }

    /// Whether the peer continued to forward `family` during its restart (RFC 4724, flag F). `None` if it does not offer
    /// graceful restart for it.
    pub fn peer_kept_forwarding(&self, family: AfiSafi) -> Option<bool> {
        let restart = self.graceful_restart.as_ref()?;
        restart.families.iter().find(|(of, _)| *of == family).map(|(_, kept)| *kept)
    }
}

/// Path identifiers are sent by a speaker that can send them to one that can receive them (RFC 7911 section 4).
fn add_path(config: &SessionConfig, theirs: &Open, families: &[AfiSafi]) -> Vec<(AfiSafi, PathDirection)> {
    let offered = theirs.capabilities.iter().rev().find_map(|capability| match capability {
        Capability::AddPath(entries) => Some(&entries[..]),
        _ => None,
    });
    let way = |entries: &[(AfiSafi, PathDirection)], family| {
        // An entry without a direction is not encoded, so it is ignored here too.
        entries.iter().rev().find(|(of, way)| *of == family && (way.receive || way.send)).map(|(_, way)| *way)
    };
    let agreed = |&family: &AfiSafi| {
        let (ours, theirs) = (way(&config.add_path, family)?, way(offered?, family)?);
        let both = PathDirection { receive: ours.receive && theirs.send, send: ours.send && theirs.receive };
        (both.receive || both.send).then_some((family, both))
    };
    families.iter().filter_map(agreed).collect()
}

/// Both must offer several labels (RFC 8277 section 2.1).
fn label_stacks(config: &SessionConfig, theirs: &Open, families: &[AfiSafi]) -> Vec<(AfiSafi, u8)> {
    let offered = theirs.capabilities.iter().find_map(|capability| match capability {
        Capability::MultipleLabels(entries) => Some(&entries[..]),
        _ => None,
    });
    let most_in = |entries: &[(AfiSafi, u8)], family: AfiSafi| {
        entries.iter().find(|(of, most)| *of == family && *most > 1 && family.is_labelled()).copied()
    };
    let both = |family: &AfiSafi| {
        most_in(offered?, *family)?;
        most_in(&config.multiple_labels, *family)
    };
    families.iter().filter_map(both).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: AfiSafi = AfiSafi::IPV4_UNICAST;
    const V6: AfiSafi = AfiSafi::IPV6_UNICAST;

    fn ours() -> SessionConfig {
        SessionConfig { families: vec![V6, V4], ..SessionConfig::new(65001, 65000, Ipv4Addr::new(192, 0, 2, 1)) }
    }

    fn theirs() -> SessionConfig {
        SessionConfig {
            families: vec![V4, AfiSafi::VPNV4, V6],
            ..SessionConfig::new(65000, 65001, Ipv4Addr::new(192, 0, 2, 9))
        }
    }

    fn agree(ours: &SessionConfig, theirs: &SessionConfig) -> Result<Negotiated, Cause> {
        Negotiated::from_opens(ours, theirs.open())
    }

    fn rejected(ours: &SessionConfig, theirs: &SessionConfig) -> (u8, Vec<u8>) {
        match agree(ours, theirs) {
            Err(Cause::Rejected { answer, why }) => {
                assert!(answer.code == code::OPEN && !why.is_empty());
                (answer.subcode, answer.data)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_both_say_holds() {
        let agreed = agree(&ours(), &theirs()).unwrap();
        assert_eq!(agreed.families, [V6, V4]);
        assert!(agreed.has(V4) && !agreed.has(AfiSafi::VPNV4));
        assert_eq!((agreed.max_send, agreed.max_receive), (65535, 65535));
        assert!(agreed.four_octet_as && agreed.route_refresh && agreed.enhanced_route_refresh && !agreed.ibgp);
        assert_eq!((agreed.hold.as_secs(), agreed.keepalive.as_secs()), (90, 30));
        assert_eq!((agreed.peer_id, agreed.peer_as), (Ipv4Addr::new(192, 0, 2, 9), 65000));
    }

    #[test]
    fn what_one_does_not_say_does_not_hold() {
        let short = SessionConfig { extended_messages: false, route_refresh: false, ..theirs() };
        let agreed = agree(&ours(), &short).unwrap();
        assert_eq!((agreed.max_send, agreed.max_receive), (4096, 65535));
        assert!(!agreed.route_refresh && !agreed.enhanced_route_refresh);
        let agreed = agree(&SessionConfig { extended_messages: false, ..ours() }, &theirs()).unwrap();
        assert_eq!((agreed.max_send, agreed.max_receive), (4096, 4096));
        for (ours, theirs) in [(false, true), (true, false), (true, true)] {
            let with = |four_octet_as, config| SessionConfig { four_octet_as, ..config };
            let agreed = agree(&with(ours, self::ours()), &with(theirs, self::theirs())).unwrap();
            assert_eq!((agreed.four_octet_as, agreed.peer_as), (ours && theirs, 65_000));
        }
    }

    #[test]
    fn an_old_speaker_has_ipv4_and_two_octets() {
        let old = Open { my_as: 65000, hold_time: 180, identifier: Ipv4Addr::new(9, 9, 9, 9), capabilities: vec![] };
        let agreed = Negotiated::from_opens(&ours(), old.clone()).unwrap();
        assert_eq!((&agreed.families[..], agreed.four_octet_as), (&[V4][..], false));
        let only_v6 = SessionConfig { families: vec![V6], ..ours() };
        let Err(Cause::Rejected { answer, why }) = Negotiated::from_opens(&only_v6, old) else { panic!() };
        assert_eq!((answer.subcode, &answer.data[..]), (7, &[1, 4, 0, 2, 0, 1][..]));
        assert_eq!(why, "the peer offers IPv4 unicast, not IPv6 unicast");
    }

    #[test]
    fn the_shorter_hold_time_holds_and_zero_is_never() {
        let hold = |ours_s, theirs_s, keepalive: Option<u64>| {
            let ours = SessionConfig {
                hold_time: Duration::from_secs(ours_s),
                keepalive: keepalive.map(Duration::from_secs),
                ..ours()
            };
            let agreed = agree(&ours, &SessionConfig { hold_time: Duration::from_secs(theirs_s), ..theirs() }).unwrap();
            (agreed.hold.as_secs(), agreed.keepalive.as_secs())
        };
        assert_eq!(hold(30, 9, None), (9, 3));
        assert_eq!(hold(9, 30, Some(1)), (9, 1));
        assert_eq!(hold(9, 30, Some(8)), (9, 3));
        assert_eq!(hold(0, 30, Some(8)), (0, 0));
        assert_eq!(hold(30, 0, None), (0, 0));
        assert_eq!(hold(1_000_000, 65535, None), (65535, 21845));
    }

    #[test]
    fn any_as_is_right_if_none_is_expected() {
        let open = |local_as| SessionConfig { local_as, ..theirs() };
        let ours = SessionConfig { peer_as: 0, ..ours() };
        let agreed = [64_512, 65_001].map(|asn| agree(&ours, &open(asn)).unwrap());
        assert_eq!(agreed.map(|agreed| (agreed.peer_as, agreed.ibgp)), [(64_512, false), (65_001, true)]);
        assert_eq!(rejected(&ours, &open(0)).0, 2);
    }

    #[test]
    fn wrong_peers_are_rejected() {
        assert_eq!(rejected(&ours(), &SessionConfig { local_as: 65010, ..theirs() }), (2, vec![]));
        assert_eq!(rejected(&ours(), &SessionConfig { local_as: 4_200_000_000, ..theirs() }), (2, vec![]));
        let twin = SessionConfig { local_as: 65001, router_id: ours().router_id, ..theirs() };
        let inside = SessionConfig { peer_as: 65001, ..ours() };
        assert_eq!(rejected(&inside, &twin), (3, vec![192, 0, 2, 1]));
        let external = SessionConfig { router_id: ours().router_id, ..theirs() };
        assert!(agree(&ours(), &external).is_ok(), "RFC 6286: unique within an AS");
    }

    #[test]
    fn path_identifiers_go_from_sender_to_receiver() {
        let way = |receive, send| PathDirection { receive, send };
        let a = SessionConfig { add_path: vec![(V4, way(true, true)), (V6, way(true, false))], ..ours() };
        let b = SessionConfig { add_path: vec![(V4, way(false, true)), (V6, way(true, false))], ..theirs() };
        let agreed = agree(&a, &b).unwrap();
        assert_eq!(agreed.add_path, [(V4, way(true, false))]);
        assert!(agreed.add_path_receive(V4) && !agreed.add_path_send(V4) && !agreed.add_path_receive(V6));
        let twice = SessionConfig { add_path: vec![(V4, way(false, true)), (V4, way(false, false))], ..b };
        assert!(
            agree(&a, &twice).unwrap().add_path_receive(V4)
                && Negotiated::from_opens(&twice, a.open()).unwrap().add_path_send(V4)
        );
    }

    #[test]
    fn several_labels_are_read_where_both_offer_them() {
        let config = |mine: SessionConfig, entries: &[(AfiSafi, u8)]| SessionConfig {
            families: vec![V4, AfiSafi::VPNV4, AfiSafi::VPNV6],
            multiple_labels: entries.to_vec(),
            ..mine
        };
        let a = config(ours(), &[(AfiSafi::VPNV4, 2), (AfiSafi::VPNV6, 255), (V4, 9)]);
        let agreed = agree(&a, &config(theirs(), &[(AfiSafi::VPNV4, 9), (AfiSafi::VPNV6, 1), (V4, 9)])).unwrap();
        assert_eq!(agreed.label_stacks, [(AfiSafi::VPNV4, 2)]);
        assert_eq!(agree(&a, &config(theirs(), &[])).unwrap().label_stacks, []);
    }

    #[test]
    fn forwarding_that_went_on_is_known() {
        let restart = super::super::GracefulRestartConfig {
            restart_time: Duration::from_secs(120),
            notification: false,
            restarted: true,
            forwarding: true,
        };
        let agreed = agree(&ours(), &SessionConfig { graceful_restart: Some(restart), ..theirs() }).unwrap();
        assert_eq!(agreed.peer_kept_forwarding(V6), Some(true));
        assert_eq!(agreed.peer_kept_forwarding(AfiSafi::VPNV6), None);
        assert_eq!(agreed.graceful_restart.unwrap().seconds, 120);
        assert_eq!(agree(&ours(), &theirs()).unwrap().peer_kept_forwarding(V4), None);
    }
}
