//! Hello (RFC 2328 appendix A.3.2).
//!
//! ```text
//! +-------------------------------+---------------+---------------+
//! |                         Network Mask                          |
//! +-------------------------------+---------------+---------------+
//! |         HelloInterval         |    Options    |    Rtr Pri    |
//! +-------------------------------+---------------+---------------+
//! |                     RouterDeadInterval                        |
//! |                      Designated Router                        |
//! |                   Backup Designated Router                    |
//! |                    Neighbor, repeated                         |
//! +---------------------------------------------------------------+
//! ```

use super::{address_at, u16_at, u32_at};
use crate::Malformed;
use std::net::Ipv4Addr;

/// Length without neighbours.
pub const LEN: usize = 20;

/// A Hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// Mask of the network.
    pub mask: Ipv4Addr,
    /// Seconds between Hellos.
    pub hello_interval: u16,
    /// See [`option`](super::option).
    pub options: u8,
    /// Priority in the election of the Designated Router; 0 for a router that cannot become it.
    pub priority: u8,
    /// Seconds without a Hello after which a neighbour is down.
    pub dead_interval: u32,
    /// Address of the Designated Router as the sender sees it; 0.0.0.0 without one.
    pub designated: Ipv4Addr,
    /// Address of the Backup Designated Router; 0.0.0.0 without one.
    pub backup: Ipv4Addr,
    /// Router IDs of the neighbours that the sender has heard.
    pub neighbours: &'a [[u8; 4]],
}

impl<'a> Hello<'a> {
    /// Parses the body of a Hello.
    ///
    /// # Errors
    /// Fewer than 20 bytes, or half a neighbour.
    pub fn parse(body: &'a [u8]) -> Result<Hello<'a>, Malformed> {
        if body.len() < LEN {
            return Err(Malformed::new("ospf hello", "fewer than 20 bytes"));
        }
        let (neighbours, []) = body[LEN..].as_chunks::<4>() else {
            return Err(Malformed::new("ospf hello", "half a neighbour"));
        };
        Ok(Hello {
            mask: address_at(body, 0),
            hello_interval: u16_at(body, 4),
            options: body[6],
            priority: body[7],
            dead_interval: u32_at(body, 8),
            designated: address_at(body, 12),
            backup: address_at(body, 16),
            neighbours,
        })
    }

    /// Appends the body to `out`.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend(self.mask.octets());
        out.extend(self.hello_interval.to_be_bytes());
        out.extend([self.options, self.priority]);
        out.extend(self.dead_interval.to_be_bytes());
        out.extend(self.designated.octets());
        out.extend(self.backup.octets());
        out.extend_from_slice(self.neighbours.as_flattened());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn emit_undoes_parse(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            match Hello::parse(&bytes) {
                Ok(hello) => {
                    let mut again = Vec::new();
                    hello.emit(&mut again);
                    prop_assert_eq!(again, bytes);
                }
                Err(_) => prop_assert!(bytes.len() < LEN || bytes.len() % 4 != 0),
            }
        }
    }
}
