//! Bodies of LSAs (RFC 2328 appendix A.4.2 to A.4.5; opaque: RFC 5250).
//!
//! ```text
//! Router    | 0 VEB (1) | 0 (1) | # links (2) | Link ID (4), Link Data (4), type (1), # TOS (1), metric (2), TOS metrics |
//! Network   | mask (4) | attached routers (4 each) |
//! Summary   | mask (4) | 0 (1) | metric (3) | TOS metrics |
//! External  | mask (4) | E, 0 (1) | metric (3) | forwarding address (4) | tag (4) | TOS metrics |
//! ```
//! Metrics of other types of service are skipped.

use super::{address_at, lsa_type, u16_at, u32_at};
use crate::Malformed;
use std::net::Ipv4Addr;

/// Metric of an unreachable destination in Summary and AS-external-LSAs.
pub const LS_INFINITY: u32 = 0xff_ffff;
/// Length of a link in a Router-LSA.
pub const LINK_LEN: usize = 12;

/// Types of links in a Router-LSA.
pub mod link {
    /// Point-to-point connection to another router.
    pub const POINT_TO_POINT: u8 = 1;
    /// Connection to a transit network.
    pub const TRANSIT: u8 = 2;
    /// Connection to a stub network.
    pub const STUB: u8 = 3;
    /// Virtual link.
    pub const VIRTUAL: u8 = 4;
}

/// Flags of a Router-LSA.
pub mod router_flag {
    /// B: area border router.
    pub const BORDER: u8 = 1;
    /// E: AS boundary router.
    pub const EXTERNAL: u8 = 2;
    /// V: endpoint of a virtual link.
    pub const VIRTUAL: u8 = 4;
}

/// Body of an LSA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// Type 1.
    Router(Router<'a>),
    /// Type 2.
    Network(Network<'a>),
    /// Type 3, to a network, and type 4, to an AS boundary router.
    Summary(Summary),
    /// Type 5.
    External(External),
    /// Types 9 to 11: not interpreted.
    Opaque(&'a [u8]),
}

impl<'a> Body<'a> {
    /// Parses the body of an LSA of type `kind`.
    ///
    /// # Errors
    /// An unknown type; a length that does not fit.
    pub fn parse(kind: u8, body: &'a [u8]) -> Result<Body<'a>, Malformed> {
        let bad = |reason| Err(Malformed::new("ospf lsa", reason));
        match kind {
            lsa_type::ROUTER => Router::parse(body).map(Body::Router),
            lsa_type::NETWORK => match body.split_first_chunk::<4>() {
                Some((mask, routers)) if routers.len() % 4 == 0 => {
                    Ok(Body::Network(Network { mask: (*mask).into(), routers: routers.as_chunks().0 }))
                }
                _ => bad("length of a Network-LSA"),
            },
            lsa_type::SUMMARY_NETWORK | lsa_type::SUMMARY_ASBR => match body.len() {
                8.. => Ok(Body::Summary(Summary { mask: address_at(body, 0), metric: u32_at(body, 4) & LS_INFINITY })),
                _ => bad("length of a Summary-LSA"),
            },
            lsa_type::EXTERNAL => match body.len() {
                16.. => Ok(Body::External(External {
                    mask: address_at(body, 0),
                    type_2: body[4] & 0x80 != 0,
                    metric: u32_at(body, 4) & LS_INFINITY,
                    forwarding: address_at(body, 8),
                    tag: u32_at(body, 12),
                })),
                _ => bad("length of an AS-external-LSA"),
            },
            lsa_type::OPAQUE_LINK..=lsa_type::OPAQUE_AS => Ok(Body::Opaque(body)),
            _ => bad("unknown type"),
        }
    }
}

/// Body of a Router-LSA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Router<'a> {
    /// See [`router_flag`].
    pub flags: u8,
    /// Number of links.
    pub count: u16,
    links: &'a [u8],
}

/// A link of a Router-LSA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouterLink {
    /// Link ID: the neighbour's router ID, the Designated Router's address, or the network.
    pub id: Ipv4Addr,
    /// Link Data: the router's interface address, or the mask of a stub network.
    pub data: Ipv4Addr,
    /// See [`link`].
    pub kind: u8,
    /// Cost.
    pub metric: u16,
}

impl RouterLink {
    /// Appends the link to `out`.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend(self.id.octets());
        out.extend(self.data.octets());
        out.extend([self.kind, 0]);
        out.extend(self.metric.to_be_bytes());
    }
}

impl<'a> Router<'a> {
    fn parse(body: &'a [u8]) -> Result<Router<'a>, Malformed> {
        let bad = Malformed::new("ospf lsa", "length of a Router-LSA");
        if body.len() < 4 {
            return Err(bad);
        }
        let router = Router { flags: body[0], count: u16_at(body, 2), links: &body[4..] };
        match router.links().count() == usize::from(router.count) {
            true => Ok(router),
            false => Err(bad),
        }
    }

    /// Its links.
    pub fn links(&self) -> impl Iterator<Item = RouterLink> + use<'a> {
        let (mut rest, mut left) = (self.links, self.count);
        std::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            let (head, after) = rest.split_first_chunk::<LINK_LEN>()?;
            // Four bytes for each other type of service.
            rest = after.get(4 * usize::from(head[9])..)?;
            Some(RouterLink {
                id: address_at(head, 0),
                data: address_at(head, 4),
                kind: head[8],
                metric: u16_at(head, 10),
            })
        })
    }

    /// Appends the beginning of a body to `out`; `count` links must follow.
    pub fn emit(flags: u8, count: u16, out: &mut Vec<u8>) {
        out.extend([flags, 0]);
        out.extend(count.to_be_bytes());
    }
}

/// Body of a Network-LSA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network<'a> {
    /// Mask of the network.
    pub mask: Ipv4Addr,
    /// Router IDs of the attached routers.
    pub routers: &'a [[u8; 4]],
}

impl Network<'_> {
    /// Appends the body to `out`.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend(self.mask.octets());
        out.extend_from_slice(self.routers.as_flattened());
    }
}

/// Body of a Summary-LSA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Mask of the network; 0.0.0.0 in type 4.
    pub mask: Ipv4Addr,
    /// Cost, 24 bits.
    pub metric: u32,
}

impl Summary {
    /// Appends the body to `out`.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend(self.mask.octets());
        out.extend((self.metric & LS_INFINITY).to_be_bytes());
    }
}

/// Body of an AS-external-LSA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct External {
    /// Mask of the network.
    pub mask: Ipv4Addr,
    /// E: the metric is of type 2, larger than any cost inside the AS.
    pub type_2: bool,
    /// Cost, 24 bits.
    pub metric: u32,
    /// Where to forward packets; 0.0.0.0 for the advertising router.
    pub forwarding: Ipv4Addr,
    /// Tag, not used by OSPF.
    pub tag: u32,
}

impl External {
    /// Appends the body to `out`.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend(self.mask.octets());
        out.extend((u32::from(self.type_2) << 31 | self.metric & LS_INFINITY).to_be_bytes());
        out.extend(self.forwarding.octets());
        out.extend(self.tag.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn again(body: &Body<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        match body {
            Body::Router(router) => {
                Router::emit(router.flags, router.count, &mut out);
                router.links().for_each(|link| link.emit(&mut out));
            }
            Body::Network(network) => network.emit(&mut out),
            Body::Summary(summary) => summary.emit(&mut out),
            Body::External(external) => external.emit(&mut out),
            Body::Opaque(bytes) => out.extend_from_slice(bytes),
        }
        out
    }

    #[test]
    fn links_with_other_types_of_service_are_read() {
        let stub = [10, 1, 0, 0, 255, 255, 255, 0, 3, 1, 0, 5, 8, 0, 0, 9];
        let point = [10, 0, 0, 2, 192, 0, 2, 1, 1, 0, 0, 10];
        let body = [&[2, 0, 0, 2], &stub[..], &point].concat();
        let Ok(Body::Router(router)) = Body::parse(1, &body) else { panic!("a Router-LSA") };
        let links: Vec<_> = router.links().collect();
        let link =
            |id: [u8; 4], data: [u8; 4], kind, metric| RouterLink { id: id.into(), data: data.into(), kind, metric };
        assert_eq!(links, [link([10, 1, 0, 0], [255, 255, 255, 0], 3, 5), link([10, 0, 0, 2], [192, 0, 2, 1], 1, 10)]);
        assert!(Body::parse(1, &body[..31]).is_err(), "half a link");
        assert!(Body::parse(1, &body[..3]).is_err() && Body::parse(2, &body[..6]).is_err());
        assert!(Body::parse(3, &body[..7]).is_err() && Body::parse(5, &body[..15]).is_err());
        assert!(Body::parse(7, &body).is_err(), "a type that this crate does not know");
    }

    proptest! {
        #[test]
        fn what_is_written_again_means_the_same(kind in 0u8..12, bytes in proptest::collection::vec(any::<u8>(), 0..80), few: bool) {
            let mut bytes = bytes;
            if kind == 1 && few && bytes.len() > 4 {
                (bytes[2], bytes[3]) = (0, (bytes.len() / 20) as u8);
            }
            if let Ok(body) = Body::parse(kind, &bytes) {
                let out = again(&body);
                prop_assert_eq!(again(&Body::parse(kind, &out).unwrap()), out);
            }
        }
    }
}
