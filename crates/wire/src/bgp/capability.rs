//! Capabilities (RFC 5492), which two speakers exchange in their OPENs. A session uses the capabilities that both have sent.
//!
//! ```text
//! +------------------------------+
//! | Code (1)     | Length (1)    |  Value (length bytes)
//! +------------------------------+
//! ```

use super::AfiSafi;
use crate::Malformed;

pub use crate::numbers::bgp_capability as code;

/// How a speaker uses path identifiers in a family, as it announces it (RFC 7911).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PathDirection {
    /// True if the speaker can receive several paths.
    pub receive: bool,
    /// True if the speaker can send several paths.
    pub send: bool,
}

/// Graceful restart (RFC 4724, flag N of RFC 8538).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct GracefulRestart {
    /// Flag R: the speaker has restarted, and the peer must not wait for its End-of-RIB.
    pub restarted: bool,
    /// Flag N: a NOTIFICATION does not end the graceful restart, only a hard reset does.
    pub notification: bool,
    /// Time in seconds for which the peer should keep routes after the end of the session, below 4096.
    pub seconds: u16,
    /// Families whose routes may be kept; true if forwarding continued over the restart (flag F).
    pub families: Vec<(AfiSafi, bool)>,
}

/// A capability.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Capability {
    /// Routes of this family. There is one capability per family.
    Multiprotocol(AfiSafi),
    /// ROUTE-REFRESH is supported.
    RouteRefresh,
    /// Routes of the family may have a next hop of the other address family (its AFI).
    ExtendedNextHop(Vec<(AfiSafi, u16)>),
    /// Messages of up to 65535 bytes are supported.
    ExtendedMessage,
    /// Routes can outlive the session.
    GracefulRestart(GracefulRestart),
    /// The speaker's AS number; AS paths have 4 octets per AS.
    FourOctetAs(u32),
    /// Families whose routes may have several labels (RFC 8277 section 2.1), each with the highest number of labels that the speaker can
    /// receive: at least 2, 255 for no limit.
    MultipleLabels(Vec<(AfiSafi, u8)>),
    /// Path identifiers by family.
    AddPath(Vec<(AfiSafi, PathDirection)>),
    /// ROUTE-REFRESH messages mark the start and the end of the routes.
    EnhancedRouteRefresh,
    /// Any other capability, whose value is not interpreted.
    Unknown {
        /// The code, which is not in [`code`].
        code: u8,
        /// The value, at most 255 bytes.
        value: Vec<u8>,
    },
}

/// Returns the family in `[afi, afi, safi]`.
fn family(afi: [u8; 2], safi: u8) -> AfiSafi {
    AfiSafi::new(u16::from_be_bytes(afi), safi)
}

impl Capability {
    /// Parses one capability from its code and value.
    ///
    /// # Errors
    /// The length of the value is invalid for this code. An invalid path direction is left out (RFC 7911 section 4), and so is a number of
    /// labels below 2 (RFC 8277 section 2.1).
    pub fn parse(code: u8, value: &[u8]) -> Result<Capability, Malformed> {
        let wrong = |reason| Err(Malformed::new("bgp capability", reason));
        Ok(match (code, value) {
            (code::MULTIPROTOCOL, &[a, b, _, safi]) => Capability::Multiprotocol(family([a, b], safi)),
            (code::ROUTE_REFRESH, []) => Capability::RouteRefresh,
            (code::EXTENDED_MESSAGE, []) => Capability::ExtendedMessage,
            (code::ENHANCED_ROUTE_REFRESH, []) => Capability::EnhancedRouteRefresh,
            (code::FOUR_OCTET_AS, &[a, b, c, d]) => Capability::FourOctetAs(u32::from_be_bytes([a, b, c, d])),
            (code::EXTENDED_NEXT_HOP, value) => match value.as_chunks::<6>() {
                (entries, []) => Capability::ExtendedNextHop(
                    entries
                        .iter()
                        .map(|&[a, b, _, safi, c, d]| (family([a, b], safi), u16::from_be_bytes([c, d])))
                        .collect(),
                ),
                _ => return wrong("extended next hop is not of 6 bytes per family"),
            },
            (code::GRACEFUL_RESTART, &[flags, low, ref families @ ..]) => match families.as_chunks::<4>() {
                (families, []) => Capability::GracefulRestart(GracefulRestart {
                    restarted: flags & 0x80 != 0,
                    notification: flags & 0x40 != 0,
                    seconds: u16::from_be_bytes([flags & 0x0f, low]),
                    families: families.iter().map(|&[a, b, safi, f]| (family([a, b], safi), f & 0x80 != 0)).collect(),
                }),
                _ => return wrong("graceful restart does not have 4 bytes per family"),
            },
            (code::ADD_PATH, value) => match value.as_chunks::<4>() {
                (entries, []) => Capability::AddPath(
                    entries
                        .iter()
                        .filter(|entry| (1..=3).contains(&entry[3]))
                        .map(|&[a, b, safi, way]| {
                            (family([a, b], safi), PathDirection { receive: way & 1 != 0, send: way & 2 != 0 })
                        })
                        .collect(),
                ),
                _ => return wrong("add-path does not have 4 bytes per family"),
            },
            (code::MULTIPLE_LABELS, value) => match value.as_chunks::<4>() {
                (entries, []) => {
                    let several = entries.iter().filter(|entry| entry[3] > 1);
                    Capability::MultipleLabels(several.map(|&[a, b, safi, n]| (family([a, b], safi), n)).collect())
                }
                _ => return wrong("multiple labels does not have 4 bytes per family"),
            },
            (
                code::MULTIPROTOCOL
                | code::ROUTE_REFRESH
                | code::EXTENDED_MESSAGE
                | code::ENHANCED_ROUTE_REFRESH
                | code::FOUR_OCTET_AS
                | code::GRACEFUL_RESTART,
                _,
            ) => return wrong("length does not fit the code"),
            (code, value) => Capability::Unknown { code, value: value.to_vec() },
        })
    }

    /// Returns the capability's code.
    pub fn code(&self) -> u8 {
        match self {
            Capability::Multiprotocol(_) => code::MULTIPROTOCOL,
            Capability::RouteRefresh => code::ROUTE_REFRESH,
            Capability::ExtendedNextHop(_) => code::EXTENDED_NEXT_HOP,
            Capability::ExtendedMessage => code::EXTENDED_MESSAGE,
            Capability::GracefulRestart(_) => code::GRACEFUL_RESTART,
            Capability::FourOctetAs(_) => code::FOUR_OCTET_AS,
            Capability::MultipleLabels(_) => code::MULTIPLE_LABELS,
            Capability::AddPath(_) => code::ADD_PATH,
            Capability::EnhancedRouteRefresh => code::ENHANCED_ROUTE_REFRESH,
            Capability::Unknown { code, .. } => *code,
        }
    }

    /// Appends code, length and value.
    ///
    /// # Errors
    /// The value is longer than 255 bytes (63 families or more). Nothing is appended.
    pub fn append(&self, out: &mut Vec<u8>) -> Result<(), Malformed> {
        let at = out.len();
        out.extend_from_slice(&[self.code(), 0]);
        let put = |out: &mut Vec<u8>, family: AfiSafi| {
            out.extend_from_slice(&family.afi.to_be_bytes());
            out.push(family.safi);
        };
        match self {
            Capability::Multiprotocol(family) => {
                out.extend_from_slice(&family.afi.to_be_bytes());
                out.extend_from_slice(&[0, family.safi]);
            }
            Capability::RouteRefresh | Capability::ExtendedMessage | Capability::EnhancedRouteRefresh => {}
            Capability::ExtendedNextHop(entries) => {
                for (family, next_hop) in entries {
                    out.extend_from_slice(&family.afi.to_be_bytes());
                    out.extend_from_slice(&[0, family.safi]);
                    out.extend_from_slice(&next_hop.to_be_bytes());
                }
            }
            Capability::GracefulRestart(restart) => {
                let flags = u16::from(restart.restarted) << 15 | u16::from(restart.notification) << 14;
                out.extend_from_slice(&(flags | restart.seconds.min(0xfff)).to_be_bytes());
                for &(family, forwarding) in &restart.families {
                    put(out, family);
                    out.push(u8::from(forwarding) << 7);
                }
            }
            Capability::FourOctetAs(number) => out.extend_from_slice(&number.to_be_bytes()),
            Capability::MultipleLabels(entries) => {
                for &(family, most) in entries.iter().filter(|(_, most)| *most > 1) {
                    put(out, family);
                    out.push(most);
                }
            }
            Capability::AddPath(entries) => {
                for &(family, way) in entries.iter().filter(|(_, way)| way.receive || way.send) {
                    put(out, family);
                    out.push(u8::from(way.receive) | u8::from(way.send) << 1);
                }
            }
            Capability::Unknown { value, .. } => out.extend_from_slice(value),
        }
        match u8::try_from(out.len() - at - 2) {
            Ok(length) => out[at + 1] = length,
            Err(_) => {
                out.truncate(at);
                return Err(Malformed::new("bgp capability", "its value is longer than 255 bytes"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_family() -> impl Strategy<Value = AfiSafi> {
        prop_oneof![
            Just(AfiSafi::IPV4_UNICAST),
            Just(AfiSafi::IPV6_UNICAST),
            Just(AfiSafi::VPNV4),
            Just(AfiSafi::IPV6_LABELLED),
            any::<(u16, u8)>().prop_map(|(afi, safi)| AfiSafi::new(afi, safi)),
        ]
    }

    fn any_direction() -> impl Strategy<Value = PathDirection> {
        (1u8..=3).prop_map(|way| PathDirection { receive: way & 1 != 0, send: way & 2 != 0 })
    }

    /// Generates any capability that can be written.
    pub fn any_capability() -> impl Strategy<Value = Capability> {
        use proptest::collection::vec;
        prop_oneof![
            any_family().prop_map(Capability::Multiprotocol),
            Just(Capability::RouteRefresh),
            Just(Capability::ExtendedMessage),
            Just(Capability::EnhancedRouteRefresh),
            any::<u32>().prop_map(Capability::FourOctetAs),
            vec((any_family(), any::<u16>()), 0..5).prop_map(Capability::ExtendedNextHop),
            vec((any_family(), any_direction()), 0..5).prop_map(Capability::AddPath),
            vec((any_family(), 2u8..), 0..5).prop_map(Capability::MultipleLabels),
            (any::<bool>(), any::<bool>(), 0u16..4096, vec((any_family(), any::<bool>()), 0..5)).prop_map(
                |(restarted, notification, seconds, families)| {
                    Capability::GracefulRestart(GracefulRestart { restarted, notification, seconds, families })
                }
            ),
            (128u8.., vec(any::<u8>(), 0..200)).prop_map(|(code, value)| Capability::Unknown { code, value }),
        ]
    }

    fn written(capability: &Capability) -> Vec<u8> {
        let mut out = Vec::new();
        capability.append(&mut out).unwrap();
        out
    }

    #[test]
    fn bytes_of_each() {
        let v6 = AfiSafi::IPV6_UNICAST;
        assert_eq!(written(&Capability::Multiprotocol(v6)), [1, 4, 0, 2, 0, 1]);
        assert_eq!(written(&Capability::RouteRefresh), [2, 0]);
        assert_eq!(written(&Capability::ExtendedNextHop(vec![(AfiSafi::VPNV4, 2)])), [5, 6, 0, 1, 0, 128, 0, 2]);
        assert_eq!(written(&Capability::ExtendedMessage), [6, 0]);
        let labels = Capability::MultipleLabels(vec![(AfiSafi::VPNV4, 3), (v6, 1)]);
        assert_eq!(written(&labels), [8, 4, 0, 1, 128, 3]);
        let read = Capability::parse(code::MULTIPLE_LABELS, &[0, 1, 128, 3, 0, 2, 1, 1]).unwrap();
        assert_eq!(read, Capability::MultipleLabels(vec![(AfiSafi::VPNV4, 3)]));
        let restart = GracefulRestart {
            restarted: true,
            notification: false,
            seconds: 300,
            families: vec![(v6, true), (v6, false)],
        };
        let bytes = [64, 10, 0x81, 0x2c, 0, 2, 1, 0x80, 0, 2, 1, 0];
        assert_eq!(written(&Capability::GracefulRestart(restart)), bytes);
        assert_eq!(written(&Capability::FourOctetAs(4_200_000_001)), [65, 4, 0xfa, 0x56, 0xea, 0x01]);
        let both = PathDirection { receive: true, send: true };
        assert_eq!(written(&Capability::AddPath(vec![(v6, both)])), [69, 4, 0, 2, 1, 3]);
        assert_eq!(written(&Capability::EnhancedRouteRefresh), [70, 0]);
    }

    #[test]
    fn lengths_that_do_not_fit_are_refused() {
        for (code, length) in [(1, 3), (1, 5), (2, 1), (5, 7), (6, 1), (64, 1), (64, 4), (65, 2), (69, 5), (70, 4)] {
            assert!(Capability::parse(code, &vec![0; length]).is_err(), "code {code} with {length} bytes");
        }
    }

    #[test]
    fn a_direction_that_is_none_is_left_out() {
        let read = Capability::parse(69, &[0, 1, 1, 4, 0, 2, 1, 1, 0, 1, 1, 0]).unwrap();
        let receive = PathDirection { receive: true, send: false };
        assert_eq!(read, Capability::AddPath(vec![(AfiSafi::IPV6_UNICAST, receive)]));
    }

    #[test]
    fn too_many_families_are_refused_without_a_trace() {
        let families = vec![(AfiSafi::VPNV4, false); 64];
        let mut out = vec![7];
        assert!(
            Capability::GracefulRestart(GracefulRestart { families, ..Default::default() }).append(&mut out).is_err()
        );
        assert_eq!(out, [7]);
    }

    proptest! {
        #[test]
        fn parse_undoes_append(capability in any_capability()) {
            let out = written(&capability);
            prop_assert_eq!(usize::from(out[1]), out.len() - 2);
            prop_assert_eq!(Capability::parse(out[0], &out[2..]).unwrap(), capability);
        }

        #[test]
        fn arbitrary_values_never_panic(code: u8, value in proptest::collection::vec(any::<u8>(), 0..=255)) {
            if let Ok(read) = Capability::parse(code, &value) {
                let out = written(&read);
                prop_assert_eq!(Capability::parse(out[0], &out[2..]).unwrap(), read);
            }
        }
    }
}
