//! SENDER_TSPEC, FLOWSPEC and ADSPEC (RFC 2210, RFC 2215, RFC 2211).

use super::malformed;
use crate::Malformed;

/// Service numbers (RFC 2215 section 3).
const GENERAL: u8 = 1;
const CONTROLLED_LOAD: u8 = 5;
/// The token bucket parameter and its length in words.
const TOKEN_BUCKET: [u8; 4] = [127, 0, 0, 5];

/// Traffic of a sender or a reservation: a token bucket (RFC 2215 section 3.6). Rates in bytes per second, sizes in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tspec {
    /// Token bucket rate; not negative.
    pub rate: f32,
    /// Token bucket size.
    pub bucket: f32,
    /// Peak rate; infinite if unknown.
    pub peak: f32,
    /// Minimum policed unit.
    pub min_policed: u32,
    /// Maximum packet size.
    pub max_packet: u32,
}

/// The object that a token bucket is in, by its service.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Service {
    /// SENDER_TSPEC.
    Sender,
    /// FLOWSPEC of controlled load.
    ControlledLoad,
}

impl Tspec {
    /// A flow of constant rate, in bytes per second, with packets of at most `max_packet` bytes.
    pub fn constant(rate: f32, max_packet: u32) -> Tspec {
        Tspec { rate, bucket: rate, peak: rate, min_policed: 20, max_packet }
    }

    /// The service and the token bucket of a SENDER_TSPEC or FLOWSPEC. A FLOWSPEC of guaranteed service (RFC 2212) has its token
    /// bucket in the same place.
    pub(super) fn parse(body: &[u8], flowspec: bool) -> Result<Tspec, Malformed> {
        let Some((head, words)) = body.split_first_chunk::<12>() else {
            return Err(malformed("a short traffic specification"));
        };
        let [version, _, _, _, service, _, _, _, parameter @ ..] = *head;
        if version >> 4 != 0 || parameter[0] != TOKEN_BUCKET[0] || parameter[2..] != TOKEN_BUCKET[2..] {
            return Err(malformed("a traffic specification without token bucket"));
        }
        if !(if flowspec { [2, CONTROLLED_LOAD].contains(&service) } else { service == GENERAL }) {
            return Err(malformed("an unknown service in a traffic specification"));
        }
        let (words, _) = words.as_chunks::<4>();
        let &[rate, bucket, peak, min_policed, max_packet, ..] = words else {
            return Err(malformed("a short token bucket"));
        };
        let float = |bytes| match f32::from_be_bytes(bytes) {
            value if value >= 0.0 => Ok(value),
            _ => Err(malformed("a negative rate or size")),
        };
        Ok(Tspec {
            rate: float(rate)?,
            bucket: float(bucket)?,
            peak: float(peak)?,
            min_policed: u32::from_be_bytes(min_policed),
            max_packet: u32::from_be_bytes(max_packet),
        })
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>, service: Service) {
        let service = if service == Service::Sender { GENERAL } else { CONTROLLED_LOAD };
        out.extend([0, 0, 0, 7, service, 0, 0, 6]);
        out.extend(TOKEN_BUCKET);
        for value in [self.rate, self.bucket, self.peak] {
            out.extend(value.to_be_bytes());
        }
        out.extend(self.min_policed.to_be_bytes());
        out.extend(self.max_packet.to_be_bytes());
    }
}

/// What a path offers: the default general parameters, and whether all hops support controlled load (RFC 2210 section 3.3).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adspec {
    /// A hop without support for integrated services is on the path.
    pub broken: bool,
    /// Number of hops with integrated services.
    pub hops: u32,
    /// Estimate of the available bandwidth, in bytes per second.
    pub bandwidth: f32,
    /// Minimum latency in µs; 2^32 - 1 if unknown.
    pub latency: u32,
    /// Composed MTU in bytes.
    pub mtu: u32,
    /// The path offers the controlled-load service.
    pub controlled_load: bool,
}

impl Adspec {
    /// Parses the contents of an ADSPEC. Other services and parameters are skipped.
    pub(super) fn parse(body: &[u8]) -> Result<Adspec, Malformed> {
        const SHORT: Malformed = malformed("a short ADSPEC");
        let (head, mut rest) = body.split_first_chunk::<4>().ok_or(SHORT)?;
        if head[0] >> 4 != 0 || usize::from(u16::from_be_bytes([head[2], head[3]])) * 4 != rest.len() {
            return Err(malformed("length of an ADSPEC does not fit"));
        }
        let (mut general, mut controlled_load) = (None, false);
        while let Some((&[service, flags, high, low], after)) = rest.split_first_chunk::<4>() {
            let length = usize::from(u16::from_be_bytes([high, low])) * 4;
            let (parameters, after) = after.split_at_checked(length).ok_or(SHORT)?;
            rest = after;
            match service {
                GENERAL => general = Some((flags & 0x80 != 0, parameters)),
                CONTROLLED_LOAD => controlled_load = flags & 0x80 == 0,
                _ => {}
            }
        }
        let Some((broken, mut parameters)) = general else {
            return Err(malformed("an ADSPEC without general parameters"));
        };
        let mut found = [None; 4];
        while let Some((&[id, _, high, low], after)) = parameters.split_first_chunk::<4>() {
            let length = usize::from(u16::from_be_bytes([high, low])) * 4;
            let (value, after) = after.split_at_checked(length).ok_or(SHORT)?;
            parameters = after;
            if let 4 | 6 | 8 | 10 = id {
                found[usize::from(id) / 2 - 2] = Some(*value.first_chunk::<4>().ok_or(SHORT)?);
            }
        }
        let [Some(hops), Some(bandwidth), Some(latency), Some(mtu)] = found else {
            return Err(malformed("an ADSPEC without a general parameter"));
        };
        let bandwidth = f32::from_be_bytes(bandwidth);
        if bandwidth.is_nan() {
            return Err(malformed("an ADSPEC whose bandwidth is not a number"));
        }
        let [hops, latency, mtu] = [hops, latency, mtu].map(u32::from_be_bytes);
        Ok(Adspec { broken, hops, bandwidth, latency, mtu, controlled_load })
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        out.extend([0, 0, 0, if self.controlled_load { 10 } else { 9 }]);
        out.extend([GENERAL, if self.broken { 0x80 } else { 0 }, 0, 8]);
        for (id, value) in [(4, self.hops), (6, self.bandwidth.to_bits()), (8, self.latency), (10, self.mtu)] {
            out.extend([id, 0, 0, 1]);
            out.extend(value.to_be_bytes());
        }
        if self.controlled_load {
            out.extend([CONTROLLED_LOAD, 0, 0, 0]);
        }
    }
}
