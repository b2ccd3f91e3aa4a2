//! Messages (RFC 5036 section 3.5).
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |U|   Message Type              |      Message Length           |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |                     Message ID                                |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ```

#[cfg(test)]
mod tests;

use super::fec::{Fecs, IPV4, IPV6};
use super::pdu::{DEFAULT_MAX, RawMessage, VERSION};
use super::status::{Status, code};
use super::tlv::{TLV_HEADER, Tlvs, UNKNOWN, Writer, fixed, tlv_kind};
use super::{Label, LdpId, kind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Length of the header.
pub(super) const MESSAGE_HEADER: usize = 8;

/// Bits of the Common Hello Parameters.
const TARGETED: u16 = 0x8000;
const REQUEST_TARGETED: u16 = 0x4000;
const GTSM: u16 = 0x2000;
/// Bits of the Common Session Parameters.
const ON_DEMAND: u8 = 0x80;
const LOOP_DETECTION: u8 = 0x40;
/// Bit S of a capability: the sender has it (RFC 5561 section 3).
const CAPABLE: u8 = 0x80;

/// A hello (section 3.5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Hold time in seconds; 0 for the default (15 s for link hellos, 45 s for targeted ones), 65535 for ever.
    pub hold: u16,
    /// Bit T: a targeted hello.
    pub targeted: bool,
    /// Bit R: the sender of a targeted hello requests hellos.
    pub request_targeted: bool,
    /// Bit G: the sender supports GTSM (RFC 6720).
    pub gtsm: bool,
    /// IPv4 transport address; without one it is the source address of the packet.
    pub ipv4_transport: Option<Ipv4Addr>,
    /// IPv6 transport address.
    pub ipv6_transport: Option<Ipv6Addr>,
    /// Configuration sequence number.
    pub sequence: Option<u32>,
}

impl Hello {
    /// A link hello with this hold time in seconds and transport address.
    pub const fn link(hold: u16, transport: Ipv4Addr) -> Hello {
        Hello {
            hold,
            targeted: false,
            request_targeted: false,
            gtsm: false,
            ipv4_transport: Some(transport),
            ipv6_transport: None,
            sequence: None,
        }
    }
}

/// Capabilities of a speaker (RFC 5561).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Its capabilities may change during the session (RFC 5561).
    pub dynamic: bool,
    /// It handles typed wildcard FEC elements (RFC 5918).
    pub typed_wildcard: bool,
    /// It ignores notifications with unknown status codes (RFC 5919).
    pub unrecognized_notification: bool,
}

/// An initialization message (section 3.5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Initialization {
    /// Proposed keepalive time in seconds; 0 is not allowed.
    pub keepalive: u16,
    /// Bit A: downstream on demand; otherwise downstream unsolicited.
    pub on_demand: bool,
    /// Bit D: loop detection based on path vectors.
    pub loop_detection: bool,
    /// Path vector limit; 0 without loop detection.
    pub path_vector_limit: u8,
    /// Proposed maximum PDU Length; values up to 255 mean the default of 4096.
    pub max_pdu: u16,
    /// LDP identifier of the receiver.
    pub receiver: LdpId,
    /// Capabilities of the sender.
    pub capabilities: Capabilities,
}

impl Initialization {
    /// Downstream unsolicited without loop detection and capabilities, PDUs of 4096 bytes; `keepalive` in seconds.
    pub const fn new(keepalive: u16, receiver: LdpId) -> Initialization {
        Initialization {
            keepalive,
            on_demand: false,
            loop_detection: false,
            path_vector_limit: 0,
            max_pdu: DEFAULT_MAX,
            receiver,
            capabilities: Capabilities { dynamic: false, typed_wildcard: false, unrecognized_notification: false },
        }
    }
}

/// Addresses of one family, as an Address List TLV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses<'a> {
    ipv6: bool,
    bytes: &'a [u8],
}

impl<'a> Addresses<'a> {
    /// IPv4 addresses.
    pub fn ipv4(addresses: &'a [[u8; 4]]) -> Addresses<'a> {
        Addresses { ipv6: false, bytes: addresses.as_flattened() }
    }

    /// IPv6 addresses.
    pub fn ipv6(addresses: &'a [[u8; 16]]) -> Addresses<'a> {
        Addresses { ipv6: true, bytes: addresses.as_flattened() }
    }

    fn parse(value: &'a [u8]) -> Result<Addresses<'a>, Status> {
        const MALFORMED: Status = Status::new(code::MALFORMED_TLV_VALUE);
        let (family, bytes) = value.split_first_chunk().ok_or(MALFORMED)?;
        let (ipv6, width) = match u16::from_be_bytes(*family) {
            IPV4 => (false, 4),
            IPV6 => (true, 16),
            _ => return Err(Status::new(code::UNSUPPORTED_ADDRESS_FAMILY)),
        };
        if bytes.len().is_multiple_of(width) { Ok(Addresses { ipv6, bytes }) } else { Err(MALFORMED) }
    }

    /// The addresses.
    pub fn iter(&self) -> impl Iterator<Item = IpAddr> + use<'a> {
        let (four, six) = if self.ipv6 { (&[][..], self.bytes) } else { (self.bytes, &[][..]) };
        let four = four.as_chunks::<4>().0.iter().map(|bytes| IpAddr::from(*bytes));
        four.chain(six.as_chunks::<16>().0.iter().map(|bytes| IpAddr::from(*bytes)))
    }
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// An event or an error.
    Notification(Status),
    /// Discovery.
    Hello(Hello),
    /// Parameters of the session.
    Initialization(Initialization),
    /// Sign of life.
    KeepAlive,
    /// Interface addresses of the sender.
    Address(Addresses<'a>),
    /// The sender no longer has these addresses.
    AddressWithdraw(Addresses<'a>),
    /// The sender's label for a FEC.
    LabelMapping {
        /// The FEC: prefixes.
        fecs: Fecs<'a>,
        /// The label.
        label: Label,
        /// Message ID of the request that it answers, if any.
        request: Option<u32>,
    },
    /// The sender requests a label.
    LabelRequest {
        /// The FEC.
        fecs: Fecs<'a>,
    },
    /// The sender's label for the FEC is no longer valid.
    LabelWithdraw {
        /// The FEC.
        fecs: Fecs<'a>,
        /// The label; `None` for all labels of the FEC.
        label: Option<Label>,
    },
    /// The sender no longer needs the receiver's label.
    LabelRelease {
        /// The FEC.
        fecs: Fecs<'a>,
        /// The label; `None` for all labels of the FEC.
        label: Option<Label>,
    },
    /// The sender no longer needs an answer to a request.
    LabelAbortRequest {
        /// The FEC.
        fecs: Fecs<'a>,
        /// Message ID of the request.
        request: u32,
    },
}

/// The parameters of a message. Unknown and unused ones are skipped.
#[derive(Default)]
struct Parameters<'a> {
    fec: Option<&'a [u8]>,
    addresses: Option<&'a [u8]>,
    label: Option<Label>,
    status: Option<Status>,
    hello: Option<[u8; 4]>,
    ipv4_transport: Option<Ipv4Addr>,
    ipv6_transport: Option<Ipv6Addr>,
    sequence: Option<u32>,
    session: Option<[u8; 14]>,
    request: Option<u32>,
    capabilities: Capabilities,
}

impl<'a> Parameters<'a> {
    fn parse(body: &'a [u8]) -> Result<Parameters<'a>, Status> {
        let mut found = Parameters::default();
        for tlv in Tlvs(body) {
            let tlv = tlv?;
            match tlv.kind {
                tlv_kind::FEC => found.fec = Some(tlv.value),
                tlv_kind::ADDRESS_LIST => found.addresses = Some(tlv.value),
                tlv_kind::GENERIC_LABEL => {
                    let label = Label::new(u32::from_be_bytes(fixed(tlv.value)?));
                    found.label = Some(label.ok_or(Status::new(code::MALFORMED_TLV_VALUE))?);
                }
                tlv_kind::STATUS => found.status = Some(Status::from_bytes(fixed(tlv.value)?)),
                tlv_kind::COMMON_HELLO => found.hello = Some(fixed(tlv.value)?),
                tlv_kind::IPV4_TRANSPORT_ADDRESS => {
                    found.ipv4_transport = Some(fixed::<4>(tlv.value)?.into());
                }
                tlv_kind::IPV6_TRANSPORT_ADDRESS => {
                    found.ipv6_transport = Some(fixed::<16>(tlv.value)?.into());
                }
                tlv_kind::CONFIGURATION_SEQUENCE => found.sequence = Some(u32::from_be_bytes(fixed(tlv.value)?)),
                tlv_kind::COMMON_SESSION => found.session = Some(fixed(tlv.value)?),
                tlv_kind::LABEL_REQUEST_ID => found.request = Some(u32::from_be_bytes(fixed(tlv.value)?)),
                tlv_kind::DYNAMIC_CAPABILITY => found.capabilities.dynamic = capable(tlv.value),
                tlv_kind::TYPED_WILDCARD => found.capabilities.typed_wildcard = capable(tlv.value),
                tlv_kind::UNRECOGNIZED_NOTIFICATION => {
                    found.capabilities.unrecognized_notification = capable(tlv.value);
                }
                // Loop detection is off, and the status says enough.
                tlv_kind::HOP_COUNT
                | tlv_kind::PATH_VECTOR
                | tlv_kind::EXTENDED_STATUS
                | tlv_kind::RETURNED_PDU
                | tlv_kind::RETURNED_MESSAGE => {}
                _ if tlv.ignorable => {}
                _ => return Err(Status::new(code::UNKNOWN_TLV)),
            }
        }
        Ok(found)
    }

    fn fecs(&self) -> Result<Fecs<'a>, Status> {
        Fecs::parse(required(self.fec)?)
    }

    /// The FEC of a mapping or a request; wildcards are for withdraws and releases.
    fn prefixes(&self) -> Result<Fecs<'a>, Status> {
        let fecs = self.fecs()?;
        if fecs.are_prefixes() { Ok(fecs) } else { Err(Status::new(code::UNKNOWN_FEC)) }
    }
}

fn capable(value: &[u8]) -> bool {
    value.first().is_some_and(|flags| flags & CAPABLE != 0)
}

fn required<T>(parameter: Option<T>) -> Result<T, Status> {
    parameter.ok_or(Status::new(code::MISSING_MESSAGE_PARAMETERS))
}

impl<'a> RawMessage<'a> {
    /// Parses the parameters; `None` if the receiver must ignore the message.
    ///
    /// # Errors
    /// The status to send in a notification. If it is not fatal, the receiver ignores the message.
    pub fn parse(&self) -> Result<Option<Message<'a>>, Status> {
        let head = self.kind | if self.ignorable { UNKNOWN } else { 0 };
        self.content().map_err(|status| status.about(self.id, head))
    }

    fn content(&self) -> Result<Option<Message<'a>>, Status> {
        let known = (kind::ADDRESS..=kind::ADDRESS_WITHDRAW).contains(&self.kind)
            || (kind::LABEL_MAPPING..=kind::LABEL_ABORT_REQUEST).contains(&self.kind)
            || [kind::NOTIFICATION, kind::HELLO, kind::INITIALIZATION, kind::KEEPALIVE].contains(&self.kind);
        if !known {
            return if self.ignorable { Ok(None) } else { Err(Status::new(code::UNKNOWN_MESSAGE_TYPE)) };
        }
        let found = Parameters::parse(self.body)?;
        Ok(Some(match self.kind {
            kind::NOTIFICATION => Message::Notification(required(found.status)?),
            kind::HELLO => {
                let [a, b, c, d] = required(found.hello)?;
                let flags = u16::from_be_bytes([c, d]);
                Message::Hello(Hello {
                    hold: u16::from_be_bytes([a, b]),
                    targeted: flags & TARGETED != 0,
                    request_targeted: flags & REQUEST_TARGETED != 0,
                    gtsm: flags & GTSM != 0,
                    ipv4_transport: found.ipv4_transport,
                    ipv6_transport: found.ipv6_transport,
                    sequence: found.sequence,
                })
            }
            kind::INITIALIZATION => {
                let [va, vb, ka, kb, flags, limit, ma, mb, receiver @ ..] = required(found.session)?;
                if u16::from_be_bytes([va, vb]) != VERSION {
                    return Err(Status::new(code::BAD_PROTOCOL_VERSION));
                }
                Message::Initialization(Initialization {
                    keepalive: u16::from_be_bytes([ka, kb]),
                    on_demand: flags & ON_DEMAND != 0,
                    loop_detection: flags & LOOP_DETECTION != 0,
                    path_vector_limit: limit,
                    max_pdu: u16::from_be_bytes([ma, mb]),
                    receiver: LdpId::from_bytes(receiver),
                    capabilities: found.capabilities,
                })
            }
            kind::KEEPALIVE => Message::KeepAlive,
            kind::ADDRESS => Message::Address(Addresses::parse(required(found.addresses)?)?),
            kind::ADDRESS_WITHDRAW => Message::AddressWithdraw(Addresses::parse(required(found.addresses)?)?),
            kind::LABEL_MAPPING => {
                let (fecs, label) = (found.prefixes()?, required(found.label)?);
                Message::LabelMapping { fecs, label, request: found.request }
            }
            kind::LABEL_REQUEST => Message::LabelRequest { fecs: found.prefixes()? },
            kind::LABEL_WITHDRAW => Message::LabelWithdraw { fecs: found.fecs()?, label: found.label },
            kind::LABEL_RELEASE => Message::LabelRelease { fecs: found.fecs()?, label: found.label },
            _ => Message::LabelAbortRequest { fecs: found.prefixes()?, request: required(found.request)? },
        }))
    }
}

impl Message<'_> {
    /// Its type.
    pub fn kind(&self) -> u16 {
        match self {
            Message::Notification(_) => kind::NOTIFICATION,
            Message::Hello(_) => kind::HELLO,
            Message::Initialization(_) => kind::INITIALIZATION,
            Message::KeepAlive => kind::KEEPALIVE,
            Message::Address(_) => kind::ADDRESS,
            Message::AddressWithdraw(_) => kind::ADDRESS_WITHDRAW,
            Message::LabelMapping { .. } => kind::LABEL_MAPPING,
            Message::LabelRequest { .. } => kind::LABEL_REQUEST,
            Message::LabelWithdraw { .. } => kind::LABEL_WITHDRAW,
            Message::LabelRelease { .. } => kind::LABEL_RELEASE,
            Message::LabelAbortRequest { .. } => kind::LABEL_ABORT_REQUEST,
        }
    }

    /// Length of the message in bytes.
    pub fn message_len(&self) -> usize {
        let tlv = |length: usize| TLV_HEADER + length;
        let word = |present: bool| if present { tlv(4) } else { 0 };
        MESSAGE_HEADER
            + match self {
                Message::Notification(_) => tlv(Status::LEN),
                Message::Hello(hello) => {
                    let ipv6 = if hello.ipv6_transport.is_some() { tlv(16) } else { 0 };
                    word(true) + word(hello.ipv4_transport.is_some()) + word(hello.sequence.is_some()) + ipv6
                }
                Message::Initialization(init) => {
                    let Capabilities { dynamic, typed_wildcard, unrecognized_notification } = init.capabilities;
                    let capabilities = [dynamic, typed_wildcard, unrecognized_notification];
                    tlv(14) + capabilities.into_iter().filter(|has| *has).count() * tlv(1)
                }
                Message::KeepAlive => 0,
                Message::Address(list) | Message::AddressWithdraw(list) => tlv(2 + list.bytes.len()),
                Message::LabelMapping { fecs, request, .. } => {
                    tlv(fecs.as_bytes().len()) + word(true) + word(request.is_some())
                }
                Message::LabelRequest { fecs } => tlv(fecs.as_bytes().len()),
                Message::LabelWithdraw { fecs, label } | Message::LabelRelease { fecs, label } => {
                    tlv(fecs.as_bytes().len()) + word(label.is_some())
                }
                Message::LabelAbortRequest { fecs, .. } => tlv(fecs.as_bytes().len()) + word(true),
            }
    }

    /// Writes it with this Message ID to the front of `buffer`, which has at least [`Message::message_len`] bytes.
    pub fn emit(&self, id: u32, buffer: &mut [u8]) {
        let mut out = Writer::new(buffer);
        out.u16(self.kind());
        out.u16((self.message_len() - 4) as u16);
        out.u32(id);
        let word = |out: &mut Writer, kind: u16, value: u32| out.tlv(kind, &value.to_be_bytes());
        match self {
            Message::Notification(status) => out.tlv(tlv_kind::STATUS, &status.to_bytes()),
            Message::Hello(hello) => emit_hello(hello, &mut out),
            Message::Initialization(init) => emit_initialization(init, &mut out),
            Message::KeepAlive => {}
            Message::Address(list) | Message::AddressWithdraw(list) => {
                out.u16(tlv_kind::ADDRESS_LIST);
                out.u16(2 + list.bytes.len() as u16);
                out.u16(if list.ipv6 { IPV6 } else { IPV4 });
                out.bytes(list.bytes);
            }
            Message::LabelMapping { fecs, label, request } => {
                out.tlv(tlv_kind::FEC, fecs.as_bytes());
                word(&mut out, tlv_kind::GENERIC_LABEL, label.value());
                request.iter().for_each(|request| word(&mut out, tlv_kind::LABEL_REQUEST_ID, *request));
            }
            Message::LabelRequest { fecs } => out.tlv(tlv_kind::FEC, fecs.as_bytes()),
            Message::LabelWithdraw { fecs, label } | Message::LabelRelease { fecs, label } => {
                out.tlv(tlv_kind::FEC, fecs.as_bytes());
                label.iter().for_each(|label| word(&mut out, tlv_kind::GENERIC_LABEL, label.value()));
            }
            Message::LabelAbortRequest { fecs, request } => {
                out.tlv(tlv_kind::FEC, fecs.as_bytes());
                word(&mut out, tlv_kind::LABEL_REQUEST_ID, *request);
            }
        }
    }
}

fn emit_hello(hello: &Hello, out: &mut Writer) {
    let bit = |set: bool, bit: u16| if set { bit } else { 0 };
    let flags = bit(hello.targeted, TARGETED) | bit(hello.request_targeted, REQUEST_TARGETED) | bit(hello.gtsm, GTSM);
    out.u16(tlv_kind::COMMON_HELLO);
    out.u16(4);
    out.u16(hello.hold);
    out.u16(flags);
    if let Some(address) = hello.ipv4_transport {
        out.tlv(tlv_kind::IPV4_TRANSPORT_ADDRESS, &address.octets());
    }
    if let Some(sequence) = hello.sequence {
        out.tlv(tlv_kind::CONFIGURATION_SEQUENCE, &sequence.to_be_bytes());
    }
    if let Some(address) = hello.ipv6_transport {
        out.tlv(tlv_kind::IPV6_TRANSPORT_ADDRESS, &address.octets());
    }
}

fn emit_initialization(init: &Initialization, out: &mut Writer) {
    let flags = if init.on_demand { ON_DEMAND } else { 0 } | if init.loop_detection { LOOP_DETECTION } else { 0 };
    out.u16(tlv_kind::COMMON_SESSION);
    out.u16(14);
    out.u16(VERSION);
    out.u16(init.keepalive);
    out.bytes(&[flags, init.path_vector_limit]);
    out.u16(init.max_pdu);
    out.bytes(&init.receiver.to_bytes());
    let Capabilities { dynamic, typed_wildcard, unrecognized_notification } = init.capabilities;
    for (kind, has) in [
        (tlv_kind::DYNAMIC_CAPABILITY, dynamic),
        (tlv_kind::TYPED_WILDCARD, typed_wildcard),
        (tlv_kind::UNRECOGNIZED_NOTIFICATION, unrecognized_notification),
    ] {
        if has {
            out.tlv(UNKNOWN | kind, &[CAPABLE]);
        }
    }
}
