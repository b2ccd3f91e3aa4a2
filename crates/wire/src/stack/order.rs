//! Order in which headers may follow each other.

use super::error::{Cause, StackError};
use super::extensions;
use super::layers::MAX_LAYERS;
use drophammer_model::traffic::{Header, HeaderKind};

/// Longest options of IPv4 and TCP in bytes: 15 words less the fixed header of 5.
const MAX_OPTIONS: usize = 40;

/// Checks whether these headers form a valid frame.
pub(super) fn check(headers: &[Header]) -> Result<(), StackError> {
    let Some(first) = headers.first() else {
        return Err(StackError { header: 0, kind: None, cause: Cause::Empty });
    };
    let wrong = |header: usize, cause| Err(StackError { header, kind: Some(headers[header].kind()), cause });
    if first.kind() != HeaderKind::Ethernet {
        return wrong(0, Cause::NoEthernet);
    }
    // Raw bytes, which come last, are not a layer.
    if headers.get(MAX_LAYERS).is_some_and(|h| h.kind() != HeaderKind::Raw) {
        return wrong(MAX_LAYERS, Cause::TooMany { most: MAX_LAYERS });
    }
    for (i, pair) in headers.windows(2).enumerate() {
        let (below, kind) = (pair[0].kind(), pair[1].kind());
        if below == HeaderKind::Raw {
            return wrong(i, Cause::RawNotLast);
        }
        if !follows(below, kind) {
            return wrong(i + 1, Cause::Misplaced { below });
        }
    }
    for (i, header) in headers.iter().enumerate() {
        if let Err(cause) = itself(header, headers.get(i + 1)) {
            return wrong(i, cause);
        }
    }
    Ok(())
}

fn follows(below: HeaderKind, kind: HeaderKind) -> bool {
    use HeaderKind::*;
    match below {
        Ethernet | Vlan => matches!(kind, Vlan | Mpls | Ipv4 | Ipv6 | Raw),
        Mpls => matches!(kind, Mpls | Ipv4 | Ipv6 | Raw),
        Ipv4 | Ipv6 => matches!(kind, Ipv4 | Ipv6 | Gre | Udp | Tcp | IcmpEcho | Raw),
        Gre => matches!(kind, Ethernet | Mpls | Ipv4 | Ipv6 | Raw),
        Udp | Tcp | IcmpEcho => kind == Raw,
        Raw => false,
    }
}

fn itself(header: &Header, next: Option<&Header>) -> Result<(), Cause> {
    for (field, values) in header.fields() {
        values.map_or(Ok(()), |v| v.check()).map_err(|error| Cause::Field { field, error })?;
    }
    let options = match header {
        Header::Ipv4(ipv4) => ipv4.options.0.len(),
        Header::Tcp(tcp) => tcp.options.0.len(),
        _ => 0,
    };
    if options > MAX_OPTIONS {
        return Err(Cause::OptionsTooLong { length: options, most: MAX_OPTIONS });
    }
    match header {
        Header::Ipv6(ipv6) => extensions::check(&ipv6.extensions),
        Header::Mpls(mpls) => match next {
            None => Err(Cause::LabelsOnNothing),
            Some(Header::Mpls(_)) => Ok(()),
            // Any value of the field may be sent, so all must be true.
            Some(_) => match &mpls.bottom_of_stack {
                Some(bottom) if (0..bottom.count().min(MOST_VALUES)).any(|i| !bottom.at(i)) => {
                    Err(Cause::EndlessLabels)
                }
                _ => Ok(()),
            },
        },
        _ => Ok(()),
    }
}

/// Most values of a flag that are checked, because lists have no maximum length.
const MOST_VALUES: u64 = 65_536;
