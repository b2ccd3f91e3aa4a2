//! Parses an UPDATE in place: routes and attributes are slices of the message, and nothing is copied.
//!
//! Errors are handled as RFC 7606 requires: the session ends ([`Update::parse`] returns the NOTIFICATION), the routes
//! count as withdrawn, or an attribute counts as absent. The most severe treatment applies.

use super::super::notification::{code, update as sub};
use super::super::{AfiSafi, Notification};
use super::as_path::{AsPath, PathError};
use super::attributes::{Raw, flag, kind, next};
use super::nlri::{Nlri, Routes};
use super::{FamilySet, LabelStacks};
use drophammer_model::trial::Family;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Negotiated properties of the session that affect the parsing of an UPDATE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// True if AS numbers have 4 octets.
    pub four_octet_as: bool,
    /// True if the peer is in the same AS.
    pub ibgp: bool,
    /// Families in which the peer sends path identifiers.
    pub path_ids: FamilySet,
    /// Families in which the peer may send several labels per route (RFC 8277 section 2.3).
    pub label_stacks: LabelStacks,
}

/// Treatment of an UPDATE that does not end the session. Later variants are more severe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Treatment {
    /// There are no errors.
    #[default]
    Whole,
    /// Some attributes were discarded.
    AttributeDiscard,
    /// All routes of the message count as withdrawn.
    TreatAsWithdraw,
}

/// The first error among the most severe ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Type of the attribute; 0 if the error is not in an attribute.
    pub kind: u8,
    /// The error.
    pub reason: &'static str,
}

/// Received attributes, except discarded ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received<'a> {
    /// ORIGIN: 0 IGP, 1 EGP, 2 incomplete.
    pub origin: Option<u8>,
    /// AS_PATH.
    pub as_path: Option<AsPath<'a>>,
    /// AS4_PATH, from a speaker with 2 octets per AS.
    pub as4_path: Option<AsPath<'a>>,
    /// NEXT_HOP of IPv4 unicast.
    pub next_hop: Option<Ipv4Addr>,
    /// MULTI_EXIT_DISC.
    pub med: Option<u32>,
    /// LOCAL_PREF.
    pub local_pref: Option<u32>,
    /// True if ATOMIC_AGGREGATE is present.
    pub atomic_aggregate: bool,
    /// AGGREGATOR, 6 or 8 bytes.
    pub aggregator: Option<&'a [u8]>,
    /// Communities, 4 bytes each.
    pub communities: &'a [u8],
    /// Extended communities, 8 bytes each.
    pub extended_communities: &'a [u8],
    /// Large communities, 12 bytes each.
    pub large_communities: &'a [u8],
    /// ORIGINATOR_ID.
    pub originator_id: Option<Ipv4Addr>,
    /// CLUSTER_LIST, 4 bytes each.
    pub cluster_list: &'a [u8],
    /// Number of unknown attributes.
    pub unknown: u16,
}

/// MP_REACH_NLRI or MP_UNREACH_NLRI.
#[derive(Clone, Debug)]
pub struct Multiprotocol<'a> {
    /// Family, supported or not.
    pub family: AfiSafi,
    /// Next hop as received; empty in a withdrawal.
    pub next_hop: &'a [u8],
    /// Routes; `None` if the family is not supported.
    pub routes: Option<Routes<'a>>,
    /// True if there are no routes.
    pub is_empty: bool,
    /// True if a route has more labels than this speaker can receive.
    pub too_many_labels: bool,
}

impl<'a> Multiprotocol<'a> {
    /// Returns `None` if lengths are inconsistent, a route cannot be parsed, or the next hop is invalid for the family.
    #[inline]
    fn read(attribute: &Raw<'a>, context: &Context) -> Option<Multiprotocol<'a>> {
        let ([high, low, safi], rest) = attribute.value.split_first_chunk::<3>()?;
        let family = AfiSafi::new(u16::from_be_bytes([*high, *low]), *safi);
        let is_reach = attribute.kind == kind::MP_REACH_NLRI;
        let (next_hop, routes) = if is_reach {
            let (length, rest) = rest.split_first()?;
            // A reserved byte separates the next hop from the routes (RFC 4760 section 3).
            let (next_hop, rest) = rest.split_at_checked(usize::from(*length))?;
            (next_hop, rest.get(1..)?)
        } else {
            (&[][..], rest)
        };
        let known = Routes::new(family, context.path_ids.has(family), routes);
        let most = context.label_stacks.most(family).filter(|_| is_reach);
        let known = known.map(|routes| routes.with_stacks(most.is_some()));
        let fits = !is_reach || next_hop_fits(family, next_hop.len());
        let readable = known.as_ref().is_none_or(|routes| routes.are_readable());
        let too_many =
            |most| known.clone().into_iter().flatten().flatten().any(|r| r.labels.len() > 3 * usize::from(most));
        let too_many_labels = most.filter(|most| *most < u8::MAX).is_some_and(too_many);
        let is_empty = routes.is_empty();
        (fits && readable).then_some(Multiprotocol { family, next_hop, routes: known, is_empty, too_many_labels })
    }

    /// Returns the address of the next hop: without the distinguisher of VPN routes, and the global address if there are two.
    pub fn address(&self) -> Option<IpAddr> {
        let skip = if self.family.is_vpn() { 8 } else { 0 };
        let rest = self.next_hop.get(skip..)?;
        match rest.len() {
            4 => Some(IpAddr::from(*rest.first_chunk::<4>()?)),
            16 | 24 | 32 | 40 => Some(Ipv6Addr::from(*rest.first_chunk::<16>()?).into()),
            _ => None,
        }
    }
}

/// A parsed UPDATE.
#[derive(Clone, Debug)]
pub struct Update<'a> {
    withdrawn: Routes<'a>,
    announced: Routes<'a>,
    /// MP_REACH_NLRI.
    pub reach: Option<Multiprotocol<'a>>,
    /// MP_UNREACH_NLRI.
    pub unreach: Option<Multiprotocol<'a>>,
    /// Attributes.
    pub attributes: Received<'a>,
    /// All attributes as received, in two parts. If there is at most one MP_REACH_NLRI or MP_UNREACH_NLRI, the parts do
    /// not contain it. UPDATEs with the same bytes in both parts have the same attributes.
    pub raw: [&'a [u8]; 2],
    /// Treatment of the message.
    pub treatment: Treatment,
    /// Reason for the treatment.
    pub fault: Option<Fault>,
    /// Number of discarded attributes.
    pub discarded: u16,
}

/// Returns attributes and announced routes of a body that has both and withdraws nothing; `None` for any other body.
#[inline]
pub fn announced_alone(body: &[u8]) -> Option<(&[u8], &[u8])> {
    let ([0, 0, high, low], rest) = body.split_first_chunk::<4>()? else { return None };
    let (attributes, routes) = rest.split_at_checked(usize::from(u16::from_be_bytes([*high, *low])))?;
    (!attributes.is_empty() && !routes.is_empty()).then_some((attributes, routes))
}

/// Returns the MP_REACH_NLRI of a body that has no other routes and whose other attributes are exactly the bytes
/// `around` it, in the form of [`Update::raw`]. `None` for any other body.
#[inline]
pub fn reach_between<'a>(body: &'a [u8], context: &Context, around: [&[u8]; 2]) -> Option<Multiprotocol<'a>> {
    let ([0, 0, high, low], attributes) = body.split_first_chunk::<4>()? else { return None };
    if attributes.len() != usize::from(u16::from_be_bytes([*high, *low])) {
        return None;
    }
    let (attribute, rest) = next(attributes.strip_prefix(around[0])?).ok()?;
    let plain = attribute.flags & (flag::OPTIONAL | flag::TRANSITIVE) == flag::OPTIONAL;
    let fits = attribute.kind == kind::MP_REACH_NLRI && plain && rest == around[1];
    if fits { Multiprotocol::read(&attribute, context).filter(|reach| !reach.too_many_labels) } else { None }
}

/// True if there are routes of a supported family.
#[inline]
fn has_routes(multiprotocol: Option<&Multiprotocol<'_>>) -> bool {
    multiprotocol.and_then(|m| m.routes.as_ref()).is_some_and(|routes| !routes.is_empty())
}

fn reset(subcode: u8, data: &[u8]) -> Notification {
    Notification::new(code::UPDATE, subcode, data)
}

impl<'a> Update<'a> {
    /// Parses the body of an UPDATE, which follows the header.
    ///
    /// # Errors
    /// The NOTIFICATION that ends the session: inconsistent lengths (3/1), an unknown well-known attribute (3/2),
    /// routes that cannot be parsed (3/9, 3/10), or a second MP_REACH_NLRI or MP_UNREACH_NLRI (3/1). Also an error in a
    /// message with attributes but no announced route, because the routes themselves may be lost (RFC 7606 section
    /// 5.2).
    pub fn parse(body: &'a [u8], context: &Context) -> Result<Update<'a>, Notification> {
        let field = |bytes: &'a [u8]| -> Option<(&'a [u8], &'a [u8])> {
            let (length, rest) = bytes.split_first_chunk::<2>()?;
            rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))
        };
        let split = || {
            let (withdrawn, rest) = field(body)?;
            let (attributes, nlri) = field(rest)?;
            Some((withdrawn, attributes, nlri))
        };
        let Some((withdrawn, attributes, nlri)) = split() else {
            return Err(reset(sub::MALFORMED_ATTRIBUTE_LIST, &[]));
        };
        let ids = context.path_ids.has(AfiSafi::IPV4_UNICAST);
        let ipv4 = |bytes| Routes::new(AfiSafi::IPV4_UNICAST, ids, bytes).unwrap_or_else(Routes::none);
        let mut update = Update {
            withdrawn: ipv4(withdrawn),
            announced: ipv4(nlri),
            reach: None,
            unreach: None,
            attributes: Received::default(),
            raw: [attributes, &[]],
            treatment: Treatment::Whole,
            fault: None,
            discarded: 0,
        };
        if !update.withdrawn.are_readable() || !update.announced.are_readable() {
            return Err(reset(sub::INVALID_NETWORK_FIELD, &[]));
        }
        let mut seen = [0u64; 4];
        let mut rest = attributes;
        let mut multiprotocol = 0;
        let mut only_unreach = true;
        let mut set_aside = None;
        while !rest.is_empty() {
            let (attribute, after) = match next(rest) {
                Ok(found) => found,
                Err(reason) => {
                    update.mark(Treatment::TreatAsWithdraw, 0, reason);
                    only_unreach = false;
                    break;
                }
            };
            let (word, bit) = (usize::from(attribute.kind >> 6), 1 << (attribute.kind & 63));
            let again = seen[word] & bit != 0;
            seen[word] |= bit;
            only_unreach &= attribute.kind == kind::MP_UNREACH_NLRI;
            if let kind::MP_REACH_NLRI | kind::MP_UNREACH_NLRI = attribute.kind {
                if again {
                    return Err(reset(sub::MALFORMED_ATTRIBUTE_LIST, &[]));
                }
                multiprotocol += 1;
                if multiprotocol == 1 {
                    update.raw = [&attributes[..attributes.len() - rest.len()], after];
                } else {
                    update.raw = [attributes, &[]];
                }
                update.multiprotocol(&attribute, context)?;
            } else if again {
                // RFC 7606 section 3 g: only the first occurrence counts.
                update.mark(Treatment::AttributeDiscard, attribute.kind, "occurs twice");
                update.discarded += 1;
            } else {
                match take(&mut update.attributes, &attribute, context) {
                    Err(Error::Withdraw(reason)) if attribute.kind == kind::NEXT_HOP && update.announced.is_empty() => {
                        set_aside = Some(reason);
                    }
                    taken => update.treat(&attribute, taken)?,
                }
            }
            rest = after;
        }
        // RFC 4760 section 3: a NEXT_HOP in addition to MP_REACH_NLRI is ignored if no other route needs it.
        if let Some(reason) = set_aside.filter(|_| update.reach.is_none()) {
            update.mark(Treatment::TreatAsWithdraw, kind::NEXT_HOP, reason);
        }
        let announces = !update.announced.is_empty() || update.reach.is_some();
        if announces {
            update.check_mandatory(context);
        } else if update.treatment == Treatment::TreatAsWithdraw && !only_unreach {
            return Err(reset(sub::MALFORMED_ATTRIBUTE_LIST, &[]));
        }
        Ok(update)
    }

    fn mark(&mut self, treatment: Treatment, kind: u8, reason: &'static str) {
        if treatment > self.treatment || self.fault.is_none() {
            self.fault = Some(Fault { kind, reason });
        }
        self.treatment = self.treatment.max(treatment);
    }

    /// Implements RFC 7606 section 3 d.
    fn check_mandatory(&mut self, context: &Context) {
        let a = &self.attributes;
        let missing = match () {
            () if a.origin.is_none() => Some((kind::ORIGIN, "ORIGIN is missing")),
            () if a.as_path.is_none() => Some((kind::AS_PATH, "AS_PATH is missing")),
            () if a.next_hop.is_none() && !self.announced.is_empty() => Some((kind::NEXT_HOP, "NEXT_HOP is missing")),
            () if a.local_pref.is_none() && context.ibgp => Some((kind::LOCAL_PREF, "LOCAL_PREF is missing")),
            () => None,
        };
        if let Some((kind, reason)) = missing {
            self.mark(Treatment::TreatAsWithdraw, kind, reason);
        }
    }

    /// Applies the treatment that the first occurrence of an attribute requires to the message.
    #[inline]
    fn treat(&mut self, attribute: &Raw<'a>, taken: Result<(), Error>) -> Result<(), Notification> {
        match taken {
            Ok(()) => Ok(()),
            Err(Error::Unrecognized) => Err(reset(sub::UNRECOGNIZED_WELL_KNOWN, attribute.whole)),
            Err(Error::Discard(reason)) => {
                self.discarded += 1;
                self.mark(Treatment::AttributeDiscard, attribute.kind, reason);
                Ok(())
            }
            Err(Error::Withdraw(reason)) => {
                self.mark(Treatment::TreatAsWithdraw, attribute.kind, reason);
                Ok(())
            }
        }
    }

    fn multiprotocol(&mut self, attribute: &Raw<'a>, context: &Context) -> Result<(), Notification> {
        if attribute.flags & (flag::OPTIONAL | flag::TRANSITIVE) != flag::OPTIONAL {
            self.mark(Treatment::TreatAsWithdraw, attribute.kind, "wrong flags");
        }
        let Some(all) = Multiprotocol::read(attribute, context) else {
            return Err(reset(sub::OPTIONAL_ATTRIBUTE, attribute.whole));
        };
        if all.too_many_labels {
            // RFC 8277 section 2.1.
            self.mark(Treatment::TreatAsWithdraw, attribute.kind, "more labels than offered");
        }
        *(if attribute.kind == kind::MP_REACH_NLRI { &mut self.reach } else { &mut self.unreach }) = Some(all);
        Ok(())
    }

    /// True if routes are announced. False if they count as withdrawn.
    #[inline]
    pub fn announces(&self) -> bool {
        self.treatment != Treatment::TreatAsWithdraw && (!self.announced.is_empty() || has_routes(self.reach.as_ref()))
    }

    /// True if routes are withdrawn or count as withdrawn.
    #[inline]
    pub fn withdraws(&self) -> bool {
        let reached = || !self.announced.is_empty() || has_routes(self.reach.as_ref());
        !self.withdrawn.is_empty()
            || has_routes(self.unreach.as_ref())
            || (self.treatment == Treatment::TreatAsWithdraw && reached())
    }

    /// Iterates over the announced routes; none if they count as withdrawn.
    pub fn announced(&self) -> impl Iterator<Item = Nlri<'a>> + use<'a> {
        let (plain, others) = match self.treatment {
            Treatment::TreatAsWithdraw => (Routes::none(), Routes::none()),
            _ => self.reached(),
        };
        plain.chain(others).flatten()
    }

    /// Iterates over the withdrawn routes, and the routes that count as withdrawn.
    pub fn withdrawn(&self) -> impl Iterator<Item = Nlri<'a>> + use<'a> {
        let (plain, others) = match self.treatment {
            Treatment::TreatAsWithdraw => self.reached(),
            _ => (Routes::none(), Routes::none()),
        };
        let unreach = self.unreach.as_ref().and_then(|m| m.routes.clone()).unwrap_or_else(Routes::none);
        self.withdrawn.clone().chain(unreach).chain(plain).chain(others).flatten()
    }

    fn reached(&self) -> (Routes<'a>, Routes<'a>) {
        let others = self.reach.as_ref().and_then(|m| m.routes.clone()).unwrap_or_else(Routes::none);
        (self.announced.clone(), others)
    }

    /// Returns the next hop of routes of `family`.
    #[inline]
    pub fn next_hop(&self, family: AfiSafi) -> Option<IpAddr> {
        match &self.reach {
            Some(reach) if reach.family == family => reach.address(),
            _ => self.attributes.next_hop.map(IpAddr::V4),
        }
    }

    /// Returns the family whose End-of-RIB this is, if it is one (RFC 4724 section 2).
    pub fn end_of_rib(&self) -> Option<AfiSafi> {
        if !self.withdrawn.is_empty() || !self.announced.is_empty() || self.reach.is_some() {
            return None;
        }
        match &self.unreach {
            Some(unreach) if unreach.is_empty && self.raw.iter().all(|attributes| attributes.is_empty()) => {
                Some(unreach.family)
            }
            None if self.raw.iter().all(|attributes| attributes.is_empty()) => Some(AfiSafi::IPV4_UNICAST),
            _ => None,
        }
    }
}

/// True if the length of the next hop is valid for the family (RFC 4760, 2545, 8277, 4364, 4659). Unknown families
/// allow any length.
fn next_hop_fits(family: AfiSafi, length: usize) -> bool {
    match (super::is_known(family), family.ip_version(), family.is_vpn()) {
        (false, ..) => true,
        (true, Some(Family::Ipv4), false) => length == 4,
        (true, Some(Family::Ipv4), true) => length == 12,
        (true, _, false) => [16, 32].contains(&length),
        (true, _, true) => [24, 48].contains(&length),
    }
}

// Checks of each attribute (RFC 7606 sections 3 and 7; RFC 6793 section 6; RFC 8092).

/// Treatment of an invalid attribute.
enum Error {
    /// The session ends: an unknown attribute claims to be well-known.
    Unrecognized,
    /// The attribute counts as absent.
    Discard(&'static str),
    /// All routes of the message count as withdrawn.
    Withdraw(&'static str),
}

const LENGTH: &str = "wrong length";

/// Returns the required flags of an attribute of this type; `None` for an unknown type.
const fn flags_of(kind: u8) -> Option<u8> {
    Some(match kind {
        kind::ORIGIN | kind::AS_PATH | kind::NEXT_HOP | kind::LOCAL_PREF | kind::ATOMIC_AGGREGATE => flag::TRANSITIVE,
        kind::MULTI_EXIT_DISC
        | kind::ORIGINATOR_ID
        | kind::CLUSTER_LIST
        | kind::MP_REACH_NLRI
        | kind::MP_UNREACH_NLRI => flag::OPTIONAL,
        kind::AGGREGATOR
        | kind::COMMUNITIES
        | kind::EXTENDED_COMMUNITIES
        | kind::AS4_PATH
        | kind::AS4_AGGREGATOR
        | kind::IPV6_EXTENDED_COMMUNITIES
        | kind::LARGE_COMMUNITIES => flag::OPTIONAL | flag::TRANSITIVE,
        _ => return None,
    })
}

fn number(value: &[u8]) -> Result<u32, Error> {
    value.try_into().map(u32::from_be_bytes).map_err(|_| Error::Withdraw(LENGTH))
}

/// Checks that a value is a list of at least one member of `size` bytes.
fn list(value: &[u8], size: usize) -> Result<&[u8], Error> {
    if value.is_empty() || !value.len().is_multiple_of(size) { Err(Error::Withdraw(LENGTH)) } else { Ok(value) }
}

/// Stores one attribute in `received`.
#[inline]
fn take<'a>(received: &mut Received<'a>, attribute: &Raw<'a>, context: &Context) -> Result<(), Error> {
    let (kind, value) = (attribute.kind, attribute.value);
    let Some(flags) = flags_of(kind) else {
        if attribute.flags & flag::OPTIONAL == 0 {
            return Err(Error::Unrecognized);
        }
        received.unknown += 1;
        return Ok(());
    };
    if attribute.flags & (flag::OPTIONAL | flag::TRANSITIVE) != flags {
        return Err(Error::Withdraw("wrong flags"));
    }
    match kind {
        kind::ORIGIN => match value {
            [origin @ 0..=2] => received.origin = Some(*origin),
            [_] => return Err(Error::Withdraw("undefined value")),
            _ => return Err(Error::Withdraw(LENGTH)),
        },
        kind::AS_PATH => {
            let path = AsPath::new(value, context.four_octet_as);
            path.check().map_err(|e| Error::Withdraw(path_reason(e)))?;
            received.as_path = Some(path);
        }
        kind::NEXT_HOP => {
            let address = Ipv4Addr::from(number(value)?);
            // RFC 4271 section 6.3: it must be a valid host address.
            if address.is_unspecified() || address.is_loopback() || address.octets()[0] >= 224 {
                return Err(Error::Withdraw("no host address"));
            }
            received.next_hop = Some(address);
        }
        kind::MULTI_EXIT_DISC => received.med = Some(number(value)?),
        kind::LOCAL_PREF | kind::ORIGINATOR_ID | kind::CLUSTER_LIST if !context.ibgp => {
            return Err(Error::Discard("from an external peer"));
        }
        kind::LOCAL_PREF => received.local_pref = Some(number(value)?),
        kind::ORIGINATOR_ID => received.originator_id = Some(number(value)?.into()),
        kind::CLUSTER_LIST => received.cluster_list = list(value, 4)?,
        kind::ATOMIC_AGGREGATE if value.is_empty() => received.atomic_aggregate = true,
        kind::ATOMIC_AGGREGATE => return Err(Error::Discard(LENGTH)),
        kind::AGGREGATOR => {
            let octets = if context.four_octet_as { 4 } else { 2 };
            received.aggregator = Some(aggregator(value, octets)?);
        }
        kind::COMMUNITIES => received.communities = list(value, 4)?,
        kind::EXTENDED_COMMUNITIES => received.extended_communities = list(value, 8)?,
        kind::IPV6_EXTENDED_COMMUNITIES => _ = list(value, 20)?,
        kind::LARGE_COMMUNITIES => received.large_communities = list(value, 12)?,
        kind::AS4_PATH | kind::AS4_AGGREGATOR if context.four_octet_as => {
            return Err(Error::Discard("from a speaker of 4 octets"));
        }
        kind::AS4_PATH => {
            let path = AsPath::new(value, true);
            path.check_far().map_err(|e| Error::Discard(path_reason(e)))?;
            if value.is_empty() {
                return Err(Error::Discard(LENGTH));
            }
            received.as4_path = Some(path);
        }
        kind::AS4_AGGREGATOR => _ = aggregator(value, 4)?,
        _ => {}
    }
    Ok(())
}

fn path_reason(error: PathError) -> &'static str {
    match error {
        PathError::Syntax => "segments do not add up",
        PathError::Confederation => "segments of a confederation",
        PathError::Zero => "AS 0",
    }
}

/// Checks AS and identifier of an aggregator.
fn aggregator(value: &[u8], octets: usize) -> Result<&[u8], Error> {
    match value.len() == octets + 4 {
        false => Err(Error::Discard(LENGTH)),
        true if value[..octets].iter().all(|byte| *byte == 0) => Err(Error::Discard("AS 0")),
        true => Ok(value),
    }
}

#[cfg(test)]
#[path = "walker_tests.rs"]
mod tests;
