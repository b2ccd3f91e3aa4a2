//! IPv6 extension headers (RFC 8200 section 4).

use super::error::Cause;
use super::locate::Stop;
use super::number::*;
use crate::ipv6;
use drophammer_model::traffic::{Bits, Extension, Octets};

/// Maximum number of extension headers in a packet. Longer chains are not followed.
const MAX: usize = 8;

/// Maximum length of an option list: 256 units of eight bytes, less type and length.
const MAX_OPTIONS: usize = 256 * 8 - 2;

/// Returns the length of the extension header of type `number` at the front of `bytes`; `None` if it is not an
/// extension header.
fn length(number: u8, bytes: &[u8]) -> Option<Result<usize, Stop>> {
    let length = match number {
        FRAGMENT => Ok(8),
        HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS => bytes.get(1).map(|n| (usize::from(*n) + 1) * 8).ok_or(Stop::Cut),
        _ => return None,
    };
    Some(length.and_then(|l| if l <= bytes.len() { Ok(l) } else { Err(Stop::Cut) }))
}

/// Skips the extension headers of a packet with a complete fixed header. Returns the length of all headers, and the
/// protocol after them or the reason why there is none.
pub(super) fn skip(packet: &[u8]) -> (usize, Result<u8, Stop>) {
    let (mut at, mut number) = (ipv6::LEN, packet[6]);
    for _ in 0..=MAX {
        let bytes = &packet[at..];
        match length(number, bytes) {
            None => return (at, Ok(number)),
            Some(Err(stop)) => return (at, Err(stop)),
            Some(Ok(length)) => {
                at += length;
                // The offset is not 0, or more fragments follow.
                if number == FRAGMENT && u16::from_be_bytes([bytes[2], bytes[3]]) & 0xfff9 != 0 {
                    return (at, Err(Stop::Fragment));
                }
                number = bytes[0];
            }
        }
    }
    (at, Err(Stop::Depth))
}

/// Iterates over the extension headers in `headers`, which start with the fixed header: `(type, offset, length)` for each.
pub(super) fn each(headers: &[u8]) -> impl Iterator<Item = (u8, usize, usize)> {
    let mut at = ipv6::LEN;
    let mut number = headers.get(6).copied().unwrap_or_default();
    std::iter::from_fn(move || {
        let bytes = headers.get(at..).filter(|b| !b.is_empty())?;
        let length = length(number, bytes)?.ok()?;
        let found = (number, at, length);
        at += length;
        number = bytes[0];
        Some(found)
    })
}

/// Returns the offset in `headers` of the field that contains the type after the extension headers.
pub(super) fn next_header_at(headers: &[u8]) -> usize {
    each(headers).last().map_or(6, |(_, at, _)| at)
}

/// Returns the offset in `headers` of the final destination, which is part of the pseudo-header (RFC 8200 section 8.1).
pub(super) fn final_destination_at(headers: &[u8]) -> usize {
    each(headers)
        .filter(|(number, ..)| *number == ROUTING)
        .find_map(|(_, at, length)| {
            let (kind, left) = (headers[at + 2], headers[at + 3]);
            match kind {
                _ if left == 0 || length < 24 => None,
                // Segments are listed from the last to the first (RFC 8754 section 2).
                SEGMENT_ROUTING => Some(at + 8),
                // Addresses are listed in order, after four reserved bytes (RFC 5095, RFC 6275).
                0 | 2 => Some(at + length - 16),
                _ => None,
            }
        })
        .unwrap_or(24)
}

fn number(extension: &Extension) -> u8 {
    match extension {
        Extension::HopByHop { .. } => HOP_BY_HOP,
        Extension::DestinationOptions { .. } => DESTINATION_OPTIONS,
        Extension::Routing { .. } => ROUTING,
        Extension::Fragment { .. } => FRAGMENT,
    }
}

/// Returns the length in bytes of the extension header on the wire.
fn sent(extension: &Extension) -> usize {
    match extension {
        Extension::HopByHop { options } | Extension::DestinationOptions { options } => {
            (2 + options.0.len()).next_multiple_of(8)
        }
        Extension::Routing { data, .. } => 4 + data.0.len(),
        Extension::Fragment { .. } => 8,
    }
}

/// Returns the total length in bytes.
pub(super) fn total(extensions: &[Extension]) -> usize {
    extensions.iter().map(sent).sum()
}

/// Checks that these headers can be sent in the order of RFC 8200 section 4.1.
pub(super) fn check(extensions: &[Extension]) -> Result<(), Cause> {
    let mut last = None;
    for (i, extension) in extensions.iter().enumerate() {
        let routing_follows = extensions[i..].iter().any(|e| matches!(e, Extension::Routing { .. }));
        let place = match extension {
            Extension::HopByHop { .. } => 0,
            Extension::DestinationOptions { .. } if routing_follows => 1,
            Extension::Routing { .. } => 2,
            Extension::Fragment { .. } => 3,
            Extension::DestinationOptions { .. } => 4,
        };
        if last.is_some_and(|last| last >= place) {
            return Err(Cause::ExtensionOrder);
        }
        last = Some(place);
        match extension {
            Extension::HopByHop { options } | Extension::DestinationOptions { options }
                if options.0.len() > MAX_OPTIONS =>
            {
                return Err(Cause::OptionsTooLong { length: options.0.len(), most: MAX_OPTIONS });
            }
            Extension::Routing { data, .. } if data.0.len() % 8 != 4 || data.0.len() > MAX_OPTIONS => {
                return Err(Cause::RoutingData(data.0.len()));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Writes the headers after the fixed header in `headers`, and their next header fields. The last of these fields keeps its value.
pub(super) fn write(extensions: &[Extension], headers: &mut [u8]) {
    let (mut at, mut type_at) = (ipv6::LEN, 6);
    for extension in extensions {
        headers[type_at] = number(extension);
        let length = sent(extension);
        let bytes = &mut headers[at..at + length];
        bytes[1] = (length / 8 - 1) as u8;
        match extension {
            Extension::HopByHop { options } | Extension::DestinationOptions { options } => {
                let (head, padding) = bytes[2..].split_at_mut(options.0.len());
                head.copy_from_slice(&options.0);
                // A single byte is Pad1, which is zero; more bytes are PadN.
                if padding.len() > 1 {
                    padding[0] = 1;
                    padding[1] = padding.len() as u8 - 2;
                }
            }
            Extension::Routing { routing_type, segments_left, data } => {
                bytes[2] = *routing_type;
                bytes[3] = *segments_left;
                bytes[4..].copy_from_slice(&data.0);
            }
            Extension::Fragment { offset, more, identification } => {
                bytes[2..4].copy_from_slice(&((offset.get() as u16) << 3 | u16::from(*more)).to_be_bytes());
                bytes[4..].copy_from_slice(&identification.to_be_bytes());
            }
        }
        type_at = at;
        at += length;
    }
}

/// Parses the extension headers in `headers`.
pub(super) fn read(headers: &[u8]) -> Vec<Extension> {
    each(headers)
        .map(|(number, at, length)| {
            let bytes = &headers[at..at + length];
            match number {
                HOP_BY_HOP => Extension::HopByHop { options: Octets(bytes[2..].to_vec()) },
                ROUTING => Extension::Routing {
                    routing_type: bytes[2],
                    segments_left: bytes[3],
                    data: Octets(bytes[4..].to_vec()),
                },
                FRAGMENT => Extension::Fragment {
                    offset: Bits::new(u32::from(u16::from_be_bytes([bytes[2], bytes[3]]) >> 3)),
                    more: bytes[3] & 1 == 1,
                    identification: u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
                },
                _ => Extension::DestinationOptions { options: Octets(bytes[2..].to_vec()) },
            }
        })
        .collect()
}
