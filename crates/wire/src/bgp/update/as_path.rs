//! AS_PATH and AS4_PATH (RFC 4271 section 5.1.2, RFC 6793).

use super::attributes::AS_TRANS;
use drophammer_model::routes::PathSegment;

/// Segment type: unordered ASes.
pub const AS_SET: u8 = 1;
/// Segment type: ordered ASes.
pub const AS_SEQUENCE: u8 = 2;
/// Segment type within a confederation (RFC 5065): ordered ASes. Type 4 is unordered.
pub const AS_CONFED_SEQUENCE: u8 = 3;

/// Maximum number of ASes in a segment.
pub const SEGMENT_MAX: usize = 255;

/// The value of an AS_PATH or AS4_PATH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsPath<'a> {
    bytes: &'a [u8],
    /// Number of octets per AS: 2 or 4.
    octets: u8,
}

/// Error in a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathError {
    /// A segment has an unknown type or no AS, or extends beyond the end of the path (RFC 7606 section 7.2).
    Syntax,
    /// The path has a segment of a confederation, but this speaker is not a member (RFC 5065 section 5).
    Confederation,
    /// The path contains AS 0 (RFC 7607).
    Zero,
}

impl<'a> AsPath<'a> {
    /// Wraps a value with 2 or 4 octets per AS.
    pub fn new(bytes: &'a [u8], four_octet: bool) -> AsPath<'a> {
        AsPath { bytes, octets: if four_octet { 4 } else { 2 } }
    }

    /// Returns the bytes of the path.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Checks an AS_PATH against the RFCs.
    pub fn check(&self) -> Result<(), PathError> {
        self.check_with(false)
    }

    /// Checks an AS4_PATH against the RFCs. It may have segments of a confederation, which [`merged`] ignores (RFC 6793 section 6).
    pub fn check_far(&self) -> Result<(), PathError> {
        self.check_with(true)
    }

    fn check_with(&self, confederations: bool) -> Result<(), PathError> {
        let mut rest = self.bytes;
        while let [kind, n, tail @ ..] = rest {
            let length = usize::from(*n) * usize::from(self.octets);
            if !(AS_SET..=4).contains(kind) || *n == 0 || tail.len() < length {
                return Err(PathError::Syntax);
            }
            if *kind >= AS_CONFED_SEQUENCE && !confederations {
                return Err(PathError::Confederation);
            }
            let (ases, after) = tail.split_at(length);
            if ases.chunks_exact(usize::from(self.octets)).any(|asn| asn.iter().all(|byte| *byte == 0)) {
                return Err(PathError::Zero);
            }
            rest = after;
        }
        if rest.is_empty() { Ok(()) } else { Err(PathError::Syntax) }
    }

    /// Iterates over the segments up to the first invalid one: type and ASes.
    pub fn segments(&self) -> impl Iterator<Item = (u8, impl Iterator<Item = u32> + use<'a>)> + use<'a> {
        let octets = usize::from(self.octets);
        let mut rest = self.bytes;
        std::iter::from_fn(move || {
            let [kind, n, tail @ ..] = rest else { return None };
            let (ases, after) = tail.split_at_checked(usize::from(*n) * octets)?;
            rest = after;
            let number = |asn: &[u8]| asn.iter().fold(0, |number, byte| number << 8 | u32::from(*byte));
            Some((*kind, ases.chunks_exact(octets).map(number)))
        })
    }

    /// True if all segments are sequences.
    pub fn is_sequence(&self) -> bool {
        self.segments().all(|(kind, _)| kind == AS_SEQUENCE)
    }

    /// Iterates over all ASes in order. ASes of a set are in the order of the message.
    pub fn ases(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.segments().flat_map(|(_, ases)| ases)
    }

    /// Iterates over the ASes outside confederations, in order.
    fn outer_ases(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.segments().filter(|(kind, _)| *kind < AS_CONFED_SEQUENCE).flat_map(|(_, ases)| ases)
    }

    /// Returns the length for comparing routes: a set counts as one (RFC 4271 section 9.1.2.2).
    pub fn length(&self) -> usize {
        self.segments().map(|(kind, ases)| if kind == AS_SET { 1 } else { ases.count() }).sum()
    }
}

/// Iterates over the ASes of a route's path: AS_PATH, with its end replaced by AS4_PATH unless the latter is longer
/// (RFC 6793 section 4.2.3). Segments of confederations in AS4_PATH do not count (section 6).
pub fn merged<'a>(path: AsPath<'a>, path4: Option<AsPath<'a>>) -> impl Iterator<Item = u32> + use<'a> {
    let (all, far) = (path.ases().count(), path4.map_or(0, |p| p.outer_ases().count()));
    let (near, path4) = if path4.is_some() && all >= far { (all - far, path4) } else { (all, None) };
    path.ases().take(near).chain(path4.into_iter().flat_map(|p| p.outer_ases()))
}

/// Appends one sequence, split into segments of [`SEGMENT_MAX`].
pub fn append(out: &mut Vec<u8>, ases: &[u32], four_octet: bool) {
    for ases in ases.chunks(SEGMENT_MAX) {
        append_ases(out, AS_SEQUENCE, ases, four_octet);
    }
}

/// Appends a segment, split if it has more than [`SEGMENT_MAX`] ASes.
pub fn append_segment(out: &mut Vec<u8>, segment: &PathSegment, four_octet: bool) {
    for ases in segment.ases.chunks(SEGMENT_MAX) {
        append_ases(out, segment.kind.code(), ases, four_octet);
    }
}

fn append_ases(out: &mut Vec<u8>, kind: u8, ases: &[u32], four_octet: bool) {
    out.extend_from_slice(&[kind, ases.len() as u8]);
    match four_octet {
        true => append_each(out, ases, |asn| asn.to_be_bytes()),
        false => append_each(out, ases, |asn| u16::try_from(*asn).unwrap_or(AS_TRANS).to_be_bytes()),
    }
}

/// Appends the bytes of each item. Allocates room for all items at once, because allocation is most of the work.
#[inline]
pub(super) fn append_each<T, const N: usize>(out: &mut Vec<u8>, items: &[T], bytes: impl Fn(&T) -> [u8; N]) {
    let start = out.len();
    out.resize(start + items.len() * N, 0);
    for (to, item) in out[start..].as_chunks_mut::<N>().0.iter_mut().zip(items) {
        *to = bytes(item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_wrong() {
        let check = |bytes: &[u8]| AsPath::new(bytes, false).check();
        assert_eq!(check(&[]), Ok(()));
        assert_eq!(check(&[2, 1, 0, 5, 1, 2, 0, 6, 0, 7]), Ok(()));
        for wrong in [&[2, 0][..], &[2, 1, 0], &[2, 1, 0, 5, 2], &[5, 1, 0, 5], &[0, 1, 0, 5]] {
            assert_eq!(check(wrong), Err(PathError::Syntax), "{wrong:?}");
        }
        assert_eq!(check(&[3, 1, 0, 5]), Err(PathError::Confederation));
        assert_eq!(check(&[2, 2, 0, 5, 0, 0]), Err(PathError::Zero));
        let far = |bytes: &[u8]| AsPath::new(bytes, true).check_far();
        assert_eq!(far(&[3, 1, 0, 0, 0, 5, 2, 1, 0, 0, 0, 6]), Ok(()));
        assert_eq!(far(&[4, 1, 0, 0, 0, 5, 2, 1, 0, 0]), Err(PathError::Syntax));
        assert_eq!(AsPath::new(&[2, 1, 0, 5, 1, 2, 0, 6, 0, 7], false).length(), 2);
    }

    #[test]
    fn a_far_part_of_four_octets() {
        let path = [2, 3, 0, 10, 0x5b, 0xa0, 0x5b, 0xa0];
        let path4 = [2, 2, 0, 2, 0, 0, 0, 3, 0, 0];
        let of = |path4: Option<&'static [u8]>| {
            let path4 = path4.map(|p| AsPath::new(p, true));
            merged(AsPath::new(&path, false), path4).collect::<Vec<_>>()
        };
        let path4: &'static [u8] = path4.to_vec().leak();
        assert_eq!(of(Some(path4)), [10, 131_072, 196_608]);
        assert_eq!(of(None), [10, 23_456, 23_456]);
        // A segment of a confederation before the others.
        assert_eq!(of(Some(&[3, 1, 0, 4, 0, 0, 2, 2, 0, 2, 0, 0, 0, 3, 0, 0])), [10, 131_072, 196_608]);
        assert_eq!(of(Some(&[4, 1, 0, 4, 0, 0])), [10, 23_456, 23_456]);
        // An AS4_PATH that is longer does not belong to this path.
        assert_eq!(of(Some(&[2, 4, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4])), [10, 23_456, 23_456]);
    }

    proptest! {
        #[test]
        fn read_what_is_written(ases in prop::collection::vec(1u32.., 0..600), four: bool) {
            let mut bytes = Vec::new();
            append(&mut bytes, &ases, four);
            let path = AsPath::new(&bytes, four);
            prop_assert_eq!(path.check(), Ok(()));
            let expected: Vec<u32> = ases.iter().map(|a| if four || *a < 65536 { *a } else { 23_456 }).collect();
            prop_assert_eq!(path.ases().collect::<Vec<_>>(), expected);
            prop_assert!(path.is_sequence() && path.length() == ases.len());
        }

        #[test]
        fn nothing_panics(bytes in prop::collection::vec(0u8..6, 0..40), four: bool) {
            let path = AsPath::new(&bytes, four);
            let _ = (path.check(), path.length(), merged(path, Some(path)).count());
        }
    }
}
