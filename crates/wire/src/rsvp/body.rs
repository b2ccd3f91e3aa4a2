//! Contents of each type of message (RFC 2205 section 3.1, RFC 3209 section 3): mandatory and optional objects. The order of the
//! objects does not matter, except that the objects of flows follow STYLE.

use super::message::{Message, Objects, Writer};
use super::object::{ErrorSpec, HelloObject, Hop, Object, Sender, Session, SessionAttribute, Style, UnknownClass};
use super::route::{ExplicitRoute, RecordRoute};
use super::traffic::{Adspec, Tspec};
use super::{class, error, kind, malformed};
use crate::Malformed;
use std::net::Ipv4Addr;

/// An object of an unknown class or type whose message must be refused (RFC 2205 section 3.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownObject {
    /// Code of the answer: [`error::UNKNOWN_CLASS`] or [`error::UNKNOWN_CTYPE`].
    pub code: u8,
    /// Value of the answer: class number and C-Type.
    pub value: u16,
}

/// Path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Path<'a> {
    /// The session.
    pub session: Session,
    /// The previous hop.
    pub hop: Hop,
    /// Refresh period in ms.
    pub refresh: u32,
    /// Hops that the path must take.
    pub explicit_route: Option<ExplicitRoute<'a>>,
    /// EtherType of the protocol for which the sender wants a label.
    pub label_request: Option<u16>,
    /// Priorities, flags and name.
    pub attribute: Option<SessionAttribute<'a>>,
    /// The sender.
    pub sender: Sender,
    /// Its traffic.
    pub tspec: Tspec,
    /// What the path offers.
    pub adspec: Option<Adspec>,
    /// Hops that the message has taken.
    pub record_route: Option<RecordRoute<'a>>,
}

/// Resv.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Resv<'a> {
    /// The session.
    pub session: Session,
    /// The next hop.
    pub hop: Hop,
    /// Refresh period in ms.
    pub refresh: u32,
    /// The receiver, if it wants a confirmation.
    pub confirm: Option<Ipv4Addr>,
    /// Style of the reservation.
    pub style: Style,
    /// The reserved flows.
    pub flows: Flows<'a>,
}

/// PathErr.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathErr {
    /// The session.
    pub session: Session,
    /// The error.
    pub error: ErrorSpec,
    /// The sender.
    pub sender: Sender,
    /// Its traffic.
    pub tspec: Option<Tspec>,
}

/// ResvErr.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ResvErr<'a> {
    /// The session.
    pub session: Session,
    /// The previous hop.
    pub hop: Hop,
    /// The error.
    pub error: ErrorSpec,
    /// Style of the reservation.
    pub style: Style,
    /// The refused flow.
    pub flows: Flows<'a>,
}

/// PathTear.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathTear {
    /// The session.
    pub session: Session,
    /// The previous hop.
    pub hop: Hop,
    /// The sender.
    pub sender: Sender,
    /// Its traffic.
    pub tspec: Option<Tspec>,
    /// What the path offers.
    pub adspec: Option<Adspec>,
}

/// ResvTear.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ResvTear<'a> {
    /// The session.
    pub session: Session,
    /// The next hop.
    pub hop: Hop,
    /// Style of the reservation.
    pub style: Style,
    /// The flows that end; their FLOWSPECs have no meaning.
    pub flows: Flows<'a>,
}

/// ResvConf.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ResvConf<'a> {
    /// The session.
    pub session: Session,
    /// The node that confirms, with code [`error::CONFIRMATION`].
    pub error: ErrorSpec,
    /// The receiver.
    pub confirm: Ipv4Addr,
    /// Style of the reservation.
    pub style: Style,
    /// The confirmed flows.
    pub flows: Flows<'a>,
}

/// Hello (RFC 3209 section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Its only object.
    pub hello: HelloObject,
}

/// One sender of a flow descriptor, with the objects that apply to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flow<'a> {
    /// Requested service: the last FLOWSPEC before this filter.
    pub flowspec: Option<Tspec>,
    /// The sender.
    pub filter: Sender,
    /// Label that the previous hop must use.
    pub label: Option<u32>,
    /// Hops that the message has taken.
    pub record_route: Option<RecordRoute<'a>>,
}

impl Flow<'_> {
    /// Appends the flow to a flow descriptor list.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let flowspec = self.flowspec.map(Object::Flowspec);
        let label = self.label.map(Object::Label);
        let record_route = self.record_route.map(Object::RecordRoute);
        let all = [flowspec, Some(Object::FilterSpec(self.filter)), label, record_route];
        all.iter().flatten().for_each(|object| object.emit(out));
    }
}

/// A flow descriptor list as bytes; every object in it is known and whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flows<'a>(&'a [u8]);

impl<'a> Flows<'a> {
    /// A list that [`Flow::emit`] wrote.
    ///
    /// # Errors
    /// If there is no flow, or an object is malformed.
    pub fn new(objects: &'a [u8]) -> Result<Flows<'a>, Malformed> {
        Flows::checked(objects, &[])
    }

    /// As [`Flows::new`], but objects of the `ignored` classes may be malformed.
    fn checked(objects: &'a [u8], ignored: &[u8]) -> Result<Flows<'a>, Malformed> {
        for object in Objects(objects).filter(|object| !ignored.contains(&object.class)) {
            Object::parse(object)?;
        }
        match Flows(objects).iter().next() {
            Some(_) => Ok(Flows(objects)),
            None => Err(malformed("no FILTER_SPEC")),
        }
    }

    /// The flows. A FLOWSPEC applies to all filters up to the next one.
    pub fn iter(&self) -> impl Iterator<Item = Flow<'a>> + use<'a> {
        let mut objects = Objects(self.0).filter_map(|raw| Object::parse(raw).ok()).peekable();
        let mut flowspec = None;
        std::iter::from_fn(move || {
            let filter = loop {
                match objects.next()? {
                    Object::Flowspec(found) => flowspec = Some(found),
                    Object::FilterSpec(filter) => break filter,
                    _ => {}
                }
            };
            let mut flow = Flow { flowspec, filter, label: None, record_route: None };
            while let Some(object) = objects.next_if(|o| !matches!(o, Object::Flowspec(_) | Object::FilterSpec(_))) {
                match object {
                    Object::Label(label) => flow.label = Some(label),
                    Object::RecordRoute(route) => flow.record_route = Some(route),
                    _ => {}
                }
            }
            Some(flow)
        })
    }
}

/// Contents of a message.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Body<'a> {
    Path(Path<'a>),
    Resv(Resv<'a>),
    PathErr(PathErr),
    ResvErr(ResvErr<'a>),
    PathTear(PathTear),
    ResvTear(ResvTear<'a>),
    ResvConf(ResvConf<'a>),
    Hello(Hello),
    /// Nothing but the objects that [`Message::ids`] returns.
    Ack,
    /// Nothing but the objects that [`Message::ids`] returns.
    Srefresh,
}

/// The first object of each class.
#[derive(Default)]
struct Found<'a> {
    session: Option<Session>,
    hop: Option<Hop>,
    refresh: Option<u32>,
    error: Option<ErrorSpec>,
    style: Option<Style>,
    template: Option<Sender>,
    tspec: Option<Tspec>,
    adspec: Option<Adspec>,
    confirm: Option<Ipv4Addr>,
    label_request: Option<u16>,
    explicit_route: Option<ExplicitRoute<'a>>,
    record_route: Option<RecordRoute<'a>>,
    attribute: Option<SessionAttribute<'a>>,
    hello: Option<HelloObject>,
    unknown: Option<UnknownObject>,
    /// Objects after STYLE.
    flows: &'a [u8],
}

impl<'a> Found<'a> {
    /// Objects of the `ignored` classes may be malformed or of unknown types.
    fn walk(objects: Objects<'a>, ignored: &[u8]) -> Result<Found<'a>, Malformed> {
        let mut found = Found::default();
        let mut rest = objects;
        while let Some(raw) = rest.next() {
            let object = match Object::parse(raw) {
                Err(_) | Ok(Object::Other { .. }) if ignored.contains(&raw.class) => continue,
                object => object?,
            };
            match object {
                Object::Session(session) => _ = found.session.get_or_insert(session),
                Object::Hop(hop) => _ = found.hop.get_or_insert(hop),
                Object::TimeValues(refresh) => _ = found.refresh.get_or_insert(refresh),
                Object::Error(error) => _ = found.error.get_or_insert(error),
                Object::Style(style) if found.style.is_none() => {
                    found.style = Some(style);
                    found.flows = rest.0;
                }
                Object::SenderTemplate(sender) => _ = found.template.get_or_insert(sender),
                Object::SenderTspec(tspec) => _ = found.tspec.get_or_insert(tspec),
                Object::Adspec(adspec) => _ = found.adspec.get_or_insert(adspec),
                Object::Confirm(receiver) => _ = found.confirm.get_or_insert(receiver),
                Object::LabelRequest(protocol) => _ = found.label_request.get_or_insert(protocol),
                Object::ExplicitRoute(route) => _ = found.explicit_route.get_or_insert(route),
                Object::RecordRoute(route) => _ = found.record_route.get_or_insert(route),
                Object::Attribute(attribute) => _ = found.attribute.get_or_insert(attribute),
                Object::Hello(hello) => _ = found.hello.get_or_insert(hello),
                Object::Other { class, ctype, .. } => found.unknown = found.unknown.or(unknown(class, ctype)),
                Object::Style(_) | Object::Flowspec(_) | Object::FilterSpec(_) | Object::Label(_) => {}
                Object::MessageId(_) | Object::MessageIdAck(_) | Object::MessageIdList(_) => {}
            }
        }
        Ok(found)
    }

    fn flows(&self, ignored: &[u8]) -> Result<(Style, Flows<'a>), Malformed> {
        Ok((need(self.style, "no STYLE")?, Flows::checked(self.flows, ignored)?))
    }
}

/// The refusal of an unknown object, if its class asks for one.
fn unknown(class: u8, ctype: u8) -> Option<UnknownObject> {
    let code = match class {
        // Class 0 is NULL. Policy and authentication are not supported; SCOPE is for wildcard reservations only.
        0 | class::POLICY_DATA | class::INTEGRITY | class::SCOPE => return None,
        class::SESSION | class::RSVP_HOP..=class::LABEL | class::LABEL_REQUEST..=class::MESSAGE_ID_LIST => {
            error::UNKNOWN_CTYPE
        }
        _ if UnknownClass::of(class) == UnknownClass::Reject => error::UNKNOWN_CLASS,
        _ => return None,
    };
    Some(UnknownObject { code, value: u16::from_be_bytes([class, ctype]) })
}

fn need<T>(object: Option<T>, reason: &'static str) -> Result<T, Malformed> {
    object.ok_or(malformed(reason))
}

const NO_SESSION: &str = "no SESSION of an IPv4 tunnel";
const NO_HOP: &str = "no RSVP_HOP";
const NO_TIME: &str = "no TIME_VALUES";
const NO_ERROR: &str = "no ERROR_SPEC";
const NO_TEMPLATE: &str = "no SENDER_TEMPLATE";

impl<'a> Body<'a> {
    /// Contents of a message other than a Bundle, and the first object for which the message must be refused, if any.
    ///
    /// # Errors
    /// A mandatory object is missing, an object is malformed, or the type of the message is unknown.
    pub fn parse(message: &Message<'a>) -> Result<(Body<'a>, Option<UnknownObject>), Malformed> {
        // RFC 2205 sections 3.1.5 and 3.1.6: the traffic in tear messages has no meaning.
        let ignored: &[u8] = match message.kind {
            kind::PATH_TEAR => &[class::SENDER_TSPEC, class::ADSPEC],
            kind::RESV_TEAR => &[class::FLOWSPEC],
            _ => &[],
        };
        let found = Found::walk(message.objects(), ignored)?;
        let session = || need(found.session, NO_SESSION);
        let hop = || need(found.hop, NO_HOP);
        let refresh = || need(found.refresh, NO_TIME);
        let error = || need(found.error, NO_ERROR);
        let body = match message.kind {
            kind::PATH => Body::Path(Path {
                session: session()?,
                hop: hop()?,
                refresh: refresh()?,
                explicit_route: found.explicit_route,
                label_request: found.label_request,
                attribute: found.attribute,
                sender: need(found.template, NO_TEMPLATE)?,
                tspec: need(found.tspec, "no SENDER_TSPEC")?,
                adspec: found.adspec,
                record_route: found.record_route,
            }),
            kind::RESV => {
                let (style, flows) = found.flows(ignored)?;
                let (session, hop, refresh) = (session()?, hop()?, refresh()?);
                Body::Resv(Resv { session, hop, refresh, confirm: found.confirm, style, flows })
            }
            kind::PATH_ERR => {
                let sender = need(found.template, NO_TEMPLATE)?;
                Body::PathErr(PathErr { session: session()?, error: error()?, sender, tspec: found.tspec })
            }
            kind::RESV_ERR => {
                let (style, flows) = found.flows(ignored)?;
                Body::ResvErr(ResvErr { session: session()?, hop: hop()?, error: error()?, style, flows })
            }
            kind::PATH_TEAR => {
                let sender = need(found.template, NO_TEMPLATE)?;
                let (tspec, adspec) = (found.tspec, found.adspec);
                Body::PathTear(PathTear { session: session()?, hop: hop()?, sender, tspec, adspec })
            }
            kind::RESV_TEAR => {
                let (style, flows) = found.flows(ignored)?;
                Body::ResvTear(ResvTear { session: session()?, hop: hop()?, style, flows })
            }
            kind::RESV_CONF => {
                let (style, flows) = found.flows(ignored)?;
                let confirm = need(found.confirm, "no RESV_CONFIRM")?;
                Body::ResvConf(ResvConf { session: session()?, error: error()?, confirm, style, flows })
            }
            kind::HELLO => Body::Hello(Hello { hello: need(found.hello, "no HELLO")? }),
            kind::ACK => Body::Ack,
            kind::SREFRESH => Body::Srefresh,
            _ => return Err(malformed("unknown type of message")),
        };
        Ok((body, found.unknown))
    }

    /// Type of the message, one of [`kind`].
    pub fn kind(&self) -> u8 {
        match self {
            Body::Path(_) => kind::PATH,
            Body::Resv(_) => kind::RESV,
            Body::PathErr(_) => kind::PATH_ERR,
            Body::ResvErr(_) => kind::RESV_ERR,
            Body::PathTear(_) => kind::PATH_TEAR,
            Body::ResvTear(_) => kind::RESV_TEAR,
            Body::ResvConf(_) => kind::RESV_CONF,
            Body::Hello(_) => kind::HELLO,
            Body::Ack => kind::ACK,
            Body::Srefresh => kind::SREFRESH,
        }
    }

    /// Appends the message to `out`. The objects of `ids` come first (RFC 2961 section 4.1).
    pub fn emit(&self, flags: u8, ttl: u8, ids: &[Object<'_>], out: &mut Vec<u8>) {
        let mut writer = Writer::new(out, self.kind(), flags, ttl);
        ids.iter().for_each(|object| writer.object(object));
        let mut put =
            |objects: &[Option<Object<'_>>]| objects.iter().flatten().for_each(|object| writer.object(object));
        let (session, hop, error) =
            (|s| Some(Object::Session(s)), |h| Some(Object::Hop(h)), |e| Some(Object::Error(e)));
        let flows = match *self {
            Body::Path(path) => {
                put(&[
                    session(path.session),
                    hop(path.hop),
                    Some(Object::TimeValues(path.refresh)),
                    path.explicit_route.map(Object::ExplicitRoute),
                    path.label_request.map(Object::LabelRequest),
                    path.attribute.map(Object::Attribute),
                    Some(Object::SenderTemplate(path.sender)),
                    Some(Object::SenderTspec(path.tspec)),
                    path.adspec.map(Object::Adspec),
                    path.record_route.map(Object::RecordRoute),
                ]);
                None
            }
            Body::Resv(resv) => {
                put(&[session(resv.session), hop(resv.hop), Some(Object::TimeValues(resv.refresh))]);
                put(&[resv.confirm.map(Object::Confirm), Some(Object::Style(resv.style))]);
                Some(resv.flows)
            }
            Body::PathErr(e) => {
                put(&[session(e.session), error(e.error), Some(Object::SenderTemplate(e.sender))]);
                put(&[e.tspec.map(Object::SenderTspec)]);
                None
            }
            Body::ResvErr(e) => {
                put(&[session(e.session), hop(e.hop), error(e.error), Some(Object::Style(e.style))]);
                Some(e.flows)
            }
            Body::PathTear(tear) => {
                put(&[session(tear.session), hop(tear.hop), Some(Object::SenderTemplate(tear.sender))]);
                put(&[tear.tspec.map(Object::SenderTspec), tear.adspec.map(Object::Adspec)]);
                None
            }
            Body::ResvTear(tear) => {
                put(&[session(tear.session), hop(tear.hop), Some(Object::Style(tear.style))]);
                Some(tear.flows)
            }
            Body::ResvConf(conf) => {
                put(&[session(conf.session), error(conf.error)]);
                put(&[Some(Object::Confirm(conf.confirm)), Some(Object::Style(conf.style))]);
                Some(conf.flows)
            }
            Body::Hello(Hello { hello }) => {
                put(&[Some(Object::Hello(hello))]);
                None
            }
            Body::Ack | Body::Srefresh => None,
        };
        if let Some(Flows(flows)) = flows {
            writer.bytes(flows);
        }
        writer.finish();
    }
}
