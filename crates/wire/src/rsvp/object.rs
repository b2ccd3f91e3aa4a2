//! Objects (RFC 2205 appendix A, RFC 3209 section 4, RFC 2961).

use super::message::{RawObject, emit_object};
use super::route::{ExplicitRoute, RecordRoute};
use super::traffic::{Adspec, Service, Tspec};
use super::{MessageId, MessageIdAck, MessageIdList, class, malformed};
use crate::Malformed;
use std::net::Ipv4Addr;

/// SESSION of a tunnel: LSP_TUNNEL_IPv4 (RFC 3209 section 4.6.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Session {
    /// Egress of the tunnel.
    pub destination: Ipv4Addr,
    /// Identifier of the tunnel.
    pub tunnel_id: u16,
    /// Extended tunnel ID, usually the address of the ingress.
    pub extended_tunnel_id: Ipv4Addr,
}

/// SENDER_TEMPLATE or FILTER_SPEC of a tunnel: LSP_TUNNEL_IPv4 (RFC 3209 section 4.6.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sender {
    /// Ingress of the tunnel.
    pub address: Ipv4Addr,
    /// Identifier of the LSP.
    pub lsp_id: u16,
}

/// RSVP_HOP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Address of the interface through which the message was sent.
    pub address: Ipv4Addr,
    /// Logical interface handle, which the neighbour returns.
    pub interface: u32,
}

/// ERROR_SPEC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorSpec {
    /// The node that found the error.
    pub node: Ipv4Addr,
    /// Flags.
    pub flags: u8,
    /// See [`super::error`].
    pub code: u8,
    /// Details of the error; the meaning depends on the code.
    pub value: u16,
}

/// STYLE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Flags; none are defined.
    pub flags: u8,
    /// Option vector, 24 bits.
    pub options: u32,
}

impl Style {
    /// Fixed filter: one reservation for each sender.
    pub const FF: Style = Style { flags: 0, options: 0b01010 };
    /// Shared explicit: the named senders share one reservation.
    pub const SE: Style = Style { flags: 0, options: 0b10010 };

    /// True if the lowest 5 bits equal those of `other`; the other bits are reserved.
    pub fn is(self, other: Style) -> bool {
        (self.options ^ other.options) & 0x1f == 0
    }
}

/// Flags of SESSION_ATTRIBUTE.
pub mod attribute_flag {
    /// Transit routers may repair the LSP locally.
    pub const LOCAL_PROTECTION: u8 = 1;
    /// Labels should be recorded.
    pub const LABEL_RECORDING: u8 = 2;
    /// The ingress may reroute the tunnel without tearing it down: the egress should use the style SE.
    pub const SE_STYLE: u8 = 4;
}

/// SESSION_ATTRIBUTE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionAttribute<'a> {
    /// Resource affinities, if present: exclude any, include any, include all.
    pub affinities: Option<[u32; 3]>,
    /// Priority for taking resources; 0 is the highest, 7 the lowest.
    pub setup: u8,
    /// Priority for keeping resources.
    pub holding: u8,
    /// See [`attribute_flag`].
    pub flags: u8,
    /// Name of the LSP, at most 255 bytes.
    pub name: &'a [u8],
}

/// HELLO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HelloObject {
    /// False for HELLO ACK.
    pub request: bool,
    /// Instance of the sender; not zero.
    pub source: u32,
    /// Instance of the receiver as the sender knows it; 0 if unknown.
    pub destination: u32,
}

/// How to handle an unknown class, by its top bits (RFC 2205 section 3.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownClass {
    /// Refuse the message.
    Reject,
    /// Ignore the object.
    Ignore,
    /// Pass the object on unexamined.
    Forward,
}

impl UnknownClass {
    /// Handling of this class, if it is unknown.
    pub fn of(class: u8) -> UnknownClass {
        match class >> 6 {
            0 | 1 => UnknownClass::Reject,
            2 => UnknownClass::Ignore,
            _ => UnknownClass::Forward,
        }
    }
}

/// An object.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Object<'a> {
    /// SESSION.
    Session(Session),
    /// RSVP_HOP.
    Hop(Hop),
    /// TIME_VALUES: refresh period in ms.
    TimeValues(u32),
    /// ERROR_SPEC.
    Error(ErrorSpec),
    /// STYLE.
    Style(Style),
    /// FLOWSPEC.
    Flowspec(Tspec),
    /// FILTER_SPEC.
    FilterSpec(Sender),
    /// SENDER_TEMPLATE.
    SenderTemplate(Sender),
    /// SENDER_TSPEC.
    SenderTspec(Tspec),
    /// ADSPEC.
    Adspec(Adspec),
    /// RESV_CONFIRM: address of the receiver that wants a confirmation.
    Confirm(Ipv4Addr),
    /// LABEL: 20 bits, but a faulty sender may use 32.
    Label(u32),
    /// LABEL_REQUEST: EtherType of the protocol that the LSP carries.
    LabelRequest(u16),
    /// EXPLICIT_ROUTE.
    ExplicitRoute(ExplicitRoute<'a>),
    /// RECORD_ROUTE.
    RecordRoute(RecordRoute<'a>),
    /// HELLO.
    Hello(HelloObject),
    /// MESSAGE_ID.
    MessageId(MessageId),
    /// MESSAGE_ID_ACK or MESSAGE_ID_NACK.
    MessageIdAck(MessageIdAck),
    /// MESSAGE_ID_LIST.
    MessageIdList(MessageIdList<'a>),
    /// SESSION_ATTRIBUTE.
    Attribute(SessionAttribute<'a>),
    /// An object that this crate does not interpret: an unknown class, or an unknown type of a known class.
    Other {
        /// Class number.
        class: u8,
        /// C-Type.
        ctype: u8,
        /// Contents, a multiple of 4 bytes.
        body: &'a [u8],
    },
}

impl<'a> Object<'a> {
    /// Interprets an object.
    ///
    /// # Errors
    /// A known type whose contents have the wrong length or an impossible value.
    pub fn parse(raw: RawObject<'a>) -> Result<Object<'a>, Malformed> {
        let RawObject { class, ctype, body } = raw;
        Ok(match (class, ctype) {
            (class::SESSION, 7) => {
                let [a, [_, _, high, low], b] = words(body)?;
                Object::Session(Session {
                    destination: a.into(),
                    tunnel_id: u16::from_be_bytes([high, low]),
                    extended_tunnel_id: b.into(),
                })
            }
            (class::RSVP_HOP, 1) => {
                let [address, interface] = words(body)?;
                Object::Hop(Hop { address: address.into(), interface: u32::from_be_bytes(interface) })
            }
            (class::TIME_VALUES, 1) => Object::TimeValues(u32::from_be_bytes(words::<1>(body)?[0])),
            (class::ERROR_SPEC, 1) => {
                let [node, [flags, code, high, low]] = words(body)?;
                let value = u16::from_be_bytes([high, low]);
                Object::Error(ErrorSpec { node: node.into(), flags, code, value })
            }
            (class::STYLE, 1) => {
                let [[flags, a, b, c]] = words(body)?;
                Object::Style(Style { flags, options: u32::from_be_bytes([0, a, b, c]) })
            }
            (class::FLOWSPEC, 2) => Object::Flowspec(Tspec::parse(body, true)?),
            (class::FILTER_SPEC, 7) => Object::FilterSpec(sender(body)?),
            (class::SENDER_TEMPLATE, 7) => Object::SenderTemplate(sender(body)?),
            (class::SENDER_TSPEC, 2) => Object::SenderTspec(Tspec::parse(body, false)?),
            (class::ADSPEC, 2) => Object::Adspec(Adspec::parse(body)?),
            (class::RESV_CONFIRM, 1) => Object::Confirm(words::<1>(body)?[0].into()),
            (class::LABEL, 1) => Object::Label(u32::from_be_bytes(words::<1>(body)?[0])),
            (class::LABEL_REQUEST, 1) => {
                let [[_, _, high, low]] = words(body)?;
                Object::LabelRequest(u16::from_be_bytes([high, low]))
            }
            (class::EXPLICIT_ROUTE, 1) => Object::ExplicitRoute(ExplicitRoute::new(body)?),
            (class::RECORD_ROUTE, 1) => Object::RecordRoute(RecordRoute::new(body)?),
            (class::HELLO, 1 | 2) => {
                let [source, destination] = words(body)?.map(u32::from_be_bytes);
                Object::Hello(HelloObject { request: ctype == 1, source, destination })
            }
            (class::MESSAGE_ID, 1) => {
                let [[flags, a, b, c], id] = words(body)?;
                let (epoch, id) = (u32::from_be_bytes([0, a, b, c]), u32::from_be_bytes(id));
                Object::MessageId(MessageId { flags, epoch, id })
            }
            (class::MESSAGE_ID_ACK, 1 | 2) => {
                let [[flags, a, b, c], id] = words(body)?;
                let (epoch, id) = (u32::from_be_bytes([0, a, b, c]), u32::from_be_bytes(id));
                Object::MessageIdAck(MessageIdAck { known: ctype == 1, flags, epoch, id })
            }
            (class::MESSAGE_ID_LIST, 1) => {
                let ([[flags, a, b, c], ids @ ..], []) = body.as_chunks::<4>() else {
                    return Err(malformed("a short MESSAGE_ID_LIST"));
                };
                Object::MessageIdList(MessageIdList { flags: *flags, epoch: u32::from_be_bytes([0, *a, *b, *c]), ids })
            }
            (class::SESSION_ATTRIBUTE, 7) => attribute(None, body)?,
            (class::SESSION_ATTRIBUTE, 1) => {
                let Some((affinities, rest)) = body.split_at_checked(12) else {
                    return Err(malformed("a short SESSION_ATTRIBUTE"));
                };
                attribute(Some(words(affinities)?.map(u32::from_be_bytes)), rest)?
            }
            (class, ctype) => Object::Other { class, ctype, body },
        })
    }

    /// Class number and C-Type.
    pub fn kind(&self) -> (u8, u8) {
        match self {
            Object::Session(_) => (class::SESSION, 7),
            Object::Hop(_) => (class::RSVP_HOP, 1),
            Object::TimeValues(_) => (class::TIME_VALUES, 1),
            Object::Error(_) => (class::ERROR_SPEC, 1),
            Object::Style(_) => (class::STYLE, 1),
            Object::Flowspec(_) => (class::FLOWSPEC, 2),
            Object::FilterSpec(_) => (class::FILTER_SPEC, 7),
            Object::SenderTemplate(_) => (class::SENDER_TEMPLATE, 7),
            Object::SenderTspec(_) => (class::SENDER_TSPEC, 2),
            Object::Adspec(_) => (class::ADSPEC, 2),
            Object::Confirm(_) => (class::RESV_CONFIRM, 1),
            Object::Label(_) => (class::LABEL, 1),
            Object::LabelRequest(_) => (class::LABEL_REQUEST, 1),
            Object::ExplicitRoute(_) => (class::EXPLICIT_ROUTE, 1),
            Object::RecordRoute(_) => (class::RECORD_ROUTE, 1),
            Object::Hello(hello) => (class::HELLO, if hello.request { 1 } else { 2 }),
            Object::MessageId(_) => (class::MESSAGE_ID, 1),
            Object::MessageIdAck(ack) => (class::MESSAGE_ID_ACK, if ack.known { 1 } else { 2 }),
            Object::MessageIdList(_) => (class::MESSAGE_ID_LIST, 1),
            Object::Attribute(attribute) => {
                (class::SESSION_ATTRIBUTE, if attribute.affinities.is_some() { 1 } else { 7 })
            }
            Object::Other { class, ctype, .. } => (*class, *ctype),
        }
    }

    /// Appends the object. A name is cut after 255 bytes.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let (class, ctype) = self.kind();
        emit_object(out, class, ctype, |out| match *self {
            Object::Session(session) => {
                out.extend(session.destination.octets());
                out.extend(u32::from(session.tunnel_id).to_be_bytes());
                out.extend(session.extended_tunnel_id.octets());
            }
            Object::Hop(hop) => {
                out.extend(hop.address.octets());
                out.extend(hop.interface.to_be_bytes());
            }
            Object::TimeValues(word) | Object::Label(word) => out.extend(word.to_be_bytes()),
            Object::Error(error) => {
                out.extend(error.node.octets());
                out.extend([error.flags, error.code]);
                out.extend(error.value.to_be_bytes());
            }
            Object::Style(style) => out.extend(flagged(style.flags, style.options)),
            Object::Flowspec(tspec) => tspec.emit(out, Service::ControlledLoad),
            Object::SenderTspec(tspec) => tspec.emit(out, Service::Sender),
            Object::FilterSpec(sender) | Object::SenderTemplate(sender) => {
                out.extend(sender.address.octets());
                out.extend(u32::from(sender.lsp_id).to_be_bytes());
            }
            Object::Adspec(adspec) => adspec.emit(out),
            Object::Confirm(receiver) => out.extend(receiver.octets()),
            Object::LabelRequest(protocol) => out.extend(u32::from(protocol).to_be_bytes()),
            Object::ExplicitRoute(ExplicitRoute(hops)) | Object::RecordRoute(RecordRoute(hops)) => {
                out.extend_from_slice(hops);
            }
            Object::Hello(hello) => {
                out.extend(hello.source.to_be_bytes());
                out.extend(hello.destination.to_be_bytes());
            }
            Object::MessageId(MessageId { flags, epoch, id })
            | Object::MessageIdAck(MessageIdAck { flags, epoch, id, .. }) => {
                out.extend(flagged(flags, epoch));
                out.extend(id.to_be_bytes());
            }
            Object::MessageIdList(list) => {
                out.extend(flagged(list.flags, list.epoch));
                out.extend_from_slice(list.ids.as_flattened());
            }
            Object::Attribute(attribute) => {
                for affinity in attribute.affinities.into_iter().flatten() {
                    out.extend(affinity.to_be_bytes());
                }
                let name = &attribute.name[..attribute.name.len().min(255)];
                out.extend([attribute.setup, attribute.holding, attribute.flags, name.len() as u8]);
                // RFC 3209 section 4.7.1: the name is padded to at least 8 bytes.
                let padded = name.len().max(8);
                out.extend(name.iter().copied().chain(std::iter::repeat(0)).take(padded));
            }
            Object::Other { body, .. } => out.extend_from_slice(body),
        });
    }
}

/// A word of 8 bits and 24 bits.
fn flagged(flags: u8, value: u32) -> [u8; 4] {
    (u32::from(flags) << 24 | value & 0xff_ffff).to_be_bytes()
}

/// Contents of exactly `N` words.
fn words<const N: usize>(body: &[u8]) -> Result<[[u8; 4]; N], Malformed> {
    let (words, _) = body.as_chunks::<4>();
    words.try_into().map_err(|_| malformed("wrong length of an object"))
}

fn sender(body: &[u8]) -> Result<Sender, Malformed> {
    let [address, [_, _, high, low]] = words(body)?;
    Ok(Sender { address: address.into(), lsp_id: u16::from_be_bytes([high, low]) })
}

fn attribute(affinities: Option<[u32; 3]>, body: &[u8]) -> Result<Object<'_>, Malformed> {
    let Some((&[setup, holding, flags, length], rest)) = body.split_first_chunk::<4>() else {
        return Err(malformed("a short SESSION_ATTRIBUTE"));
    };
    let Some(name) = rest.get(..length.into()) else {
        return Err(malformed("a name longer than its SESSION_ATTRIBUTE"));
    };
    Ok(Object::Attribute(SessionAttribute { affinities, setup, holding, flags, name }))
}
