//! EXPLICIT_ROUTE and RECORD_ROUTE (RFC 3209 sections 4.3 and 4.4).

use super::malformed;
use crate::Malformed;
use std::net::Ipv4Addr;

/// Types of subobjects.
const IPV4: u8 = 1;
const LABEL: u8 = 3;
const AS_NUMBER: u8 = 32;

/// Splits subobjects; each has its type and its length in bytes, these two bytes included.
#[derive(Clone, Copy, Debug)]
struct Subobjects<'a>(&'a [u8]);

impl<'a> Iterator for Subobjects<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let [kind, length] = *self.0.first_chunk::<2>()?;
        let body = self.0.get(2..length.into()).filter(|_| length % 4 == 0)?;
        self.0 = &self.0[length.into()..];
        Some((kind, body))
    }
}

/// Checks the length of every subobject.
fn checked(body: &[u8]) -> Result<&[u8], Malformed> {
    let mut all = Subobjects(body);
    all.by_ref().for_each(drop);
    if all.0.is_empty() { Ok(body) } else { Err(malformed("length of a hop does not fit")) }
}

/// A hop of an explicit route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExplicitHop<'a> {
    /// Any node with an address in this prefix.
    Ipv4 {
        /// Other nodes may be passed before this hop.
        loose: bool,
        /// The prefix.
        address: Ipv4Addr,
        /// Length of the prefix in bits.
        prefix_len: u8,
    },
    /// An autonomous system.
    AsNumber {
        /// Other nodes may be passed before this hop.
        loose: bool,
        /// Its number.
        number: u16,
    },
    /// Any other type.
    Other {
        /// Other nodes may be passed before this hop.
        loose: bool,
        /// Type, 7 bits.
        kind: u8,
        /// Contents: 2 bytes and a multiple of 4.
        body: &'a [u8],
    },
}

impl<'a> ExplicitHop<'a> {
    fn parse((kind, body): (u8, &'a [u8])) -> ExplicitHop<'a> {
        let (loose, kind) = (kind & 0x80 != 0, kind & 0x7f);
        match (kind, body) {
            (IPV4, &[a, b, c, d, prefix_len, _]) => {
                ExplicitHop::Ipv4 { loose, address: Ipv4Addr::new(a, b, c, d), prefix_len }
            }
            (AS_NUMBER, &[high, low]) => ExplicitHop::AsNumber { loose, number: u16::from_be_bytes([high, low]) },
            _ => ExplicitHop::Other { loose, kind, body },
        }
    }

    /// Appends the hop to an explicit route.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let l = |loose: bool| if loose { 0x80 } else { 0 };
        match *self {
            ExplicitHop::Ipv4 { loose, address, prefix_len } => {
                out.extend([l(loose) | IPV4, 8]);
                out.extend(address.octets());
                out.extend([prefix_len, 0]);
            }
            ExplicitHop::AsNumber { loose, number } => {
                out.extend([l(loose) | AS_NUMBER, 4]);
                out.extend(number.to_be_bytes());
            }
            ExplicitHop::Other { loose, kind, body } => {
                out.extend([l(loose) | kind, body.len() as u8 + 2]);
                out.extend_from_slice(body);
            }
        }
    }
}

/// An explicit route: its hops as bytes, whose lengths fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExplicitRoute<'a>(pub(super) &'a [u8]);

impl<'a> ExplicitRoute<'a> {
    /// A route from hops that [`ExplicitHop::emit`] wrote.
    ///
    /// # Errors
    /// A length that does not fit.
    pub fn new(hops: &'a [u8]) -> Result<ExplicitRoute<'a>, Malformed> {
        checked(hops).map(ExplicitRoute)
    }

    /// The hops.
    pub fn hops(&self) -> impl Iterator<Item = ExplicitHop<'a>> + use<'a> {
        Subobjects(self.0).map(ExplicitHop::parse)
    }
}

/// An entry of a recorded route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedHop<'a> {
    /// Address of a node.
    Ipv4 {
        /// The address.
        address: Ipv4Addr,
        /// 32.
        prefix_len: u8,
        /// Local protection available (1) and in use (2).
        flags: u8,
    },
    /// Label that a node uses.
    Label {
        /// Global label (1).
        flags: u8,
        /// The label.
        label: u32,
    },
    /// Any other type.
    Other {
        /// Type.
        kind: u8,
        /// Contents: 2 bytes and a multiple of 4.
        body: &'a [u8],
    },
}

impl<'a> RecordedHop<'a> {
    fn parse((kind, body): (u8, &'a [u8])) -> RecordedHop<'a> {
        match (kind, body) {
            (IPV4, &[a, b, c, d, prefix_len, flags]) => {
                RecordedHop::Ipv4 { address: Ipv4Addr::new(a, b, c, d), prefix_len, flags }
            }
            (LABEL, &[flags, 1, a, b, c, d]) => RecordedHop::Label { flags, label: u32::from_be_bytes([a, b, c, d]) },
            _ => RecordedHop::Other { kind, body },
        }
    }

    /// Appends the entry to a recorded route.
    pub fn emit(&self, out: &mut Vec<u8>) {
        match *self {
            RecordedHop::Ipv4 { address, prefix_len, flags } => {
                out.extend([IPV4, 8]);
                out.extend(address.octets());
                out.extend([prefix_len, flags]);
            }
            RecordedHop::Label { flags, label } => {
                out.extend([LABEL, 8, flags, 1]);
                out.extend(label.to_be_bytes());
            }
            RecordedHop::Other { kind, body } => {
                out.extend([kind, body.len() as u8 + 2]);
                out.extend_from_slice(body);
            }
        }
    }
}

/// A recorded route: its entries as bytes, whose lengths fit. The first entry is the last node that was passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordRoute<'a>(pub(super) &'a [u8]);

impl<'a> RecordRoute<'a> {
    /// A route from entries that [`RecordedHop::emit`] wrote.
    ///
    /// # Errors
    /// A length that does not fit.
    pub fn new(hops: &'a [u8]) -> Result<RecordRoute<'a>, Malformed> {
        checked(hops).map(RecordRoute)
    }

    /// The entries.
    pub fn hops(&self) -> impl Iterator<Item = RecordedHop<'a>> + use<'a> {
        Subobjects(self.0).map(RecordedHop::parse)
    }
}
