//! Checks of each attribute, and the treatment of errors (RFC 7606 sections 3 and 7; RFC 6793 section 6; RFC 8092).

use super::as_path::{AsPath, PathError};
use super::attributes::{Raw, flag, kind};
use super::walker::{Context, Received};
use std::net::Ipv4Addr;

/// Treatment of an invalid attribute.
pub(super) enum Error {
    /// The session ends: an unknown attribute claims to be well-known.
    Unrecognized,
    /// The attribute counts as absent.
    Discard(&'static str),
    /// All routes of the message count as withdrawn.
    Withdraw(&'static str),
}

use Error::{Discard, Withdraw};

const LENGTH: &str = "wrong length";

/// Required flags of an attribute of this type; `None` for an unknown type.
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
    value.try_into().map(u32::from_be_bytes).map_err(|_| Withdraw(LENGTH))
}

/// Checks that a value is a list of members of `size` bytes, at least one.
fn list(value: &[u8], size: usize) -> Result<&[u8], Error> {
    if value.is_empty() || !value.len().is_multiple_of(size) { Err(Withdraw(LENGTH)) } else { Ok(value) }
}

/// Stores one attribute in `received`.
#[inline]
pub(super) fn take<'a>(received: &mut Received<'a>, attribute: &Raw<'a>, context: &Context) -> Result<(), Error> {
    let (kind, value) = (attribute.kind, attribute.value);
    let Some(flags) = flags_of(kind) else {
        if attribute.flags & flag::OPTIONAL == 0 {
            return Err(Error::Unrecognized);
        }
        received.unknown += 1;
        return Ok(());
    };
    if attribute.flags & (flag::OPTIONAL | flag::TRANSITIVE) != flags {
        return Err(Withdraw("wrong flags"));
    }
    match kind {
        kind::ORIGIN => match value {
            [origin @ 0..=2] => received.origin = Some(*origin),
            [_] => return Err(Withdraw("undefined value")),
            _ => return Err(Withdraw(LENGTH)),
        },
        kind::AS_PATH => {
            let path = AsPath::new(value, context.four_octet_as);
            path.check().map_err(|e| Withdraw(path_reason(e)))?;
            received.as_path = Some(path);
        }
        kind::NEXT_HOP => {
            let address = Ipv4Addr::from(number(value)?);
            // RFC 4271 section 6.3: a valid host address.
            if address.is_unspecified() || address.is_loopback() || address.octets()[0] >= 224 {
                return Err(Withdraw("no host address"));
            }
            received.next_hop = Some(address);
        }
        kind::MULTI_EXIT_DISC => received.med = Some(number(value)?),
        kind::LOCAL_PREF | kind::ORIGINATOR_ID | kind::CLUSTER_LIST if !context.ibgp => {
            return Err(Discard("from an external peer"));
        }
        kind::LOCAL_PREF => received.local_pref = Some(number(value)?),
        kind::ORIGINATOR_ID => received.originator_id = Some(number(value)?.into()),
        kind::CLUSTER_LIST => received.cluster_list = list(value, 4)?,
        kind::ATOMIC_AGGREGATE if value.is_empty() => received.atomic_aggregate = true,
        kind::ATOMIC_AGGREGATE => return Err(Discard(LENGTH)),
        kind::AGGREGATOR => {
            let octets = if context.four_octet_as { 4 } else { 2 };
            received.aggregator = Some(aggregator(value, octets)?);
        }
        kind::COMMUNITIES => received.communities = list(value, 4)?,
        kind::EXTENDED_COMMUNITIES => received.extended_communities = list(value, 8)?,
        kind::IPV6_EXTENDED_COMMUNITIES => _ = list(value, 20)?,
        kind::LARGE_COMMUNITIES => received.large_communities = list(value, 12)?,
        kind::AS4_PATH | kind::AS4_AGGREGATOR if context.four_octet_as => {
            return Err(Discard("from a speaker of 4 octets"));
        }
        kind::AS4_PATH => {
            let path = AsPath::new(value, true);
            path.check().map_err(|e| Discard(path_reason(e)))?;
            if value.is_empty() {
                return Err(Discard(LENGTH));
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

/// AS and identifier of an aggregator.
fn aggregator(value: &[u8], octets: usize) -> Result<&[u8], Error> {
    match value.len() == octets + 4 {
        false => Err(Discard(LENGTH)),
        true if value[..octets].iter().all(|byte| *byte == 0) => Err(Discard("AS 0")),
        true => Ok(value),
    }
}
