//! Errors in stacks of headers.

use super::locate::MAX_LAYERS;
use drophammer_model::size::FrameSize;
use drophammer_model::traffic::{FieldError, FieldName, HeaderKind};
use std::fmt;

/// An invalid stack of headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackError {
    /// Index of the header, from 0.
    pub header: usize,
    /// Kind of the header; `None` if there is none.
    pub kind: Option<HeaderKind>,
    /// What is wrong.
    pub cause: Cause,
}

/// What is wrong with a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// There are no headers.
    Empty,
    /// The first header is not Ethernet.
    NoEthernet,
    /// This header cannot follow a header of the given kind.
    Misplaced(HeaderKind),
    /// No header follows the last label.
    LabelsOnNothing,
    /// The last label is not the bottom of its stack.
    EndlessLabels,
    /// VXLAN follows UDP to another port than its own.
    VxlanPort,
    /// Something follows the raw bytes.
    RawNotLast,
    /// No following header determines this field.
    NoType(FieldName),
    /// This address is neither specified nor derived.
    NoAddress(FieldName),
    /// A field has invalid values.
    Field(FieldName, FieldError),
    /// Options are too long.
    OptionsTooLong {
        /// Length in bytes.
        length: usize,
        /// Maximum length in bytes.
        most: usize,
    },
    /// Extension headers in an order that RFC 8200 section 4.1 does not allow.
    ExtensionOrder,
    /// The data of a routing header has this length instead of 4 bytes plus a multiple of 8.
    RoutingData(usize),
    /// The size is given for an IP packet, but the stack has no IP header.
    NoIp,
    /// The size has no room for the headers and, in a test frame, the signature.
    TooSmall {
        /// Requested size.
        asked: FrameSize,
        /// Required size.
        needed: usize,
    },
    /// The frame has this many bytes, more than 65,535.
    TooLong(usize),
    /// There are more headers than [`MAX_LAYERS`].
    TooMany,
}

impl std::error::Error for StackError {}

impl fmt::Display for StackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Some(kind) => {
                write!(f, "header {} (`{kind}`): ", self.header + 1)?;
                kind
            }
            None => HeaderKind::Raw,
        };
        match &self.cause {
            Cause::Empty => write!(f, "there are no headers; begin with `ethernet`"),
            Cause::NoEthernet => write!(f, "a frame begins with `ethernet`; put that header first"),
            Cause::Misplaced(below) => {
                write!(f, "`{kind}` cannot follow `{below}`; {}", remedy(kind, *below))
            }
            Cause::LabelsOnNothing => {
                write!(f, "no header follows the last label; add `ipv4`, `ipv6` or `raw` after it")
            }
            Cause::EndlessLabels => write!(
                f,
                "the label stack has no end: this is its last label, but `bottom_of_stack` is false; leave that out, or write \
                 the labels as `raw` bytes"
            ),
            Cause::VxlanPort => write!(f, "`vxlan` follows, whose port is 4789; write `destination_port: 4789`"),
            Cause::RawNotLast => write!(f, "`raw` must be the last header; write what follows it as `raw` bytes too"),
            Cause::NoType(field) => {
                write!(f, "no header follows that determines its `{field}`; write `{field}`, or add a header")
            }
            Cause::NoAddress(field) => write!(f, "it has no `{field}` address; write `{field}`"),
            Cause::Field(field, error) => write!(f, "`{field}`: {error}"),
            Cause::OptionsTooLong { length, most } => {
                write!(f, "its options have {length} bytes; write at most {most}")
            }
            Cause::ExtensionOrder => write!(
                f,
                "its extension headers are not in the order of RFC 8200; write hop_by_hop, destination_options, routing, \
                 fragment, destination_options, each at most once and the first destination_options only before routing"
            ),
            Cause::RoutingData(length) => {
                write!(f, "its routing header has {length} bytes of data; write 4, 12, 20 and so on, at most 2044")
            }
            Cause::NoIp => {
                write!(
                    f,
                    "the size is given for an IP packet, but the stack has none; write the size of the frame, for instance 64"
                )
            }
            Cause::TooSmall { asked: FrameSize::Frame(n), needed } => write!(
                f,
                "a frame of {n} bytes has no room for the headers, the requested payload and the FCS; write a size of at \
                 least {needed}, or remove headers"
            ),
            Cause::TooSmall { asked: FrameSize::Ip(n), needed } => write!(
                f,
                "an IP packet of {n} bytes has no room for the headers and the requested payload; write a size of at \
                 least ip{needed}, or remove headers"
            ),
            Cause::TooLong(length) => write!(f, "the frame has {length} bytes; the maximum is 65535"),
            Cause::TooMany => write!(f, "there are too many headers; write at most {MAX_LAYERS}"),
        }
    }
}

fn remedy(kind: HeaderKind, below: HeaderKind) -> &'static str {
    match (kind, below) {
        (HeaderKind::Ethernet, _) => "a second Ethernet header needs `gre` or `vxlan` before it",
        (HeaderKind::Vlan, _) => "a tag needs `ethernet` or another `vlan` before it",
        (HeaderKind::Mpls, _) => "a label needs `ethernet`, `vlan`, `mpls` or `gre` before it",
        (HeaderKind::Vxlan, _) => "VXLAN needs `udp` before it",
        (HeaderKind::Gre, _) => "GRE needs `ipv4` or `ipv6` before it",
        (
            HeaderKind::Udp | HeaderKind::Tcp | HeaderKind::IcmpEcho,
            HeaderKind::Udp | HeaderKind::Tcp | HeaderKind::IcmpEcho,
        ) => "leave one of them out",
        (HeaderKind::Udp | HeaderKind::Tcp | HeaderKind::IcmpEcho, _) => "it needs `ipv4` or `ipv6` before it",
        _ => "only `raw` can follow there",
    }
}
