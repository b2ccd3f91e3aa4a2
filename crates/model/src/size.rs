//! Sizes of test frames: one size, or a mix of sizes (IMIX).

use crate::quantity::QuantityError;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Ethernet header (14) and FCS (4), in bytes.
pub const ETHERNET_OVERHEAD: u16 = 18;
/// Smallest Ethernet frame, FCS included.
pub const MIN_FRAME: u16 = 64;
/// Smallest IPv4 test packet: IPv4 (20), UDP (8), signature (12).
pub const MIN_IPV4_PACKET: u16 = 40;
/// Smallest IPv6 test packet: IPv6 (40), UDP (8), signature (12).
pub const MIN_IPV6_PACKET: u16 = 60;
/// Largest frame that the tester builds, FCS included.
pub const MAX_FRAME: u16 = 9_216;

/// Most parts of a mix.
pub const MAX_MIX_PARTS: usize = 64;
/// Most frames in one round of a mix; keeps the arithmetic of [`PacketSize::round`] within 32 bits.
pub const MAX_MIX_FRAMES: u64 = 10_000;

/// Size of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FrameSize {
    /// Frame size as RFC 2544 counts it: header, payload and FCS.
    Frame(u16),
    /// Size of the IP packet, as in the 2001 router test ("40-byte packets"); the frame around it is padded to 64.
    Ip(u16),
}

impl FrameSize {
    /// Bytes on the line including FCS, excluding preamble and gap; IPv6 packets below 60 bytes grow to 60, because
    /// IPv6, UDP and signature need them (78-byte frame).
    pub fn frame_bytes(self, ipv6: bool) -> u16 {
        (self.ip_bytes(ipv6) + ETHERNET_OVERHEAD).max(MIN_FRAME)
    }

    /// Length of the IP packet in bytes.
    pub fn ip_bytes(self, ipv6: bool) -> u16 {
        let asked = match self {
            FrameSize::Frame(n) => n.saturating_sub(ETHERNET_OVERHEAD),
            FrameSize::Ip(n) => n,
        };
        asked.max(if ipv6 { MIN_IPV6_PACKET } else { MIN_IPV4_PACKET })
    }
}

impl fmt::Display for FrameSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameSize::Frame(n) => write!(f, "{n}"),
            FrameSize::Ip(n) => write!(f, "ip{n}"),
        }
    }
}

impl FromStr for FrameSize {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = |why: &str| QuantityError(format!("`{text}` is not a frame size: {why}"));
        let (digits, ip) = match text.strip_prefix("ip") {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let n: u16 =
            digits.parse().map_err(|_| bad("write bytes with FCS (`64`), an IP packet (`ip40`) or a mix (`imix`)"))?;
        if ip {
            if !(MIN_IPV4_PACKET..=MAX_FRAME - ETHERNET_OVERHEAD).contains(&n) {
                return Err(bad("an IP test packet has 40 to 9198 bytes"));
            }
            Ok(FrameSize::Ip(n))
        } else {
            if !(MIN_FRAME..=MAX_FRAME).contains(&n) {
                return Err(bad("a frame has 64 to 9216 bytes, FCS included"));
            }
            Ok(FrameSize::Frame(n))
        }
    }
}

/// Size of the frames in a test row: one size, or a mix.
///
/// Written `64`, `ip40`, `imix` (RFC 6985 genome `aaaaaaaddddg`), `imix-2001` (the mix of the 2001 core router test),
/// any other genome (`imix:aaaaaaadddg`) or counts (`imix:7x64,4x570,1x1518`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "SizeText", into = "String")]
pub enum PacketSize {
    /// All frames have the same size.
    Fixed(FrameSize),
    /// A repeating sequence; each count is the number of frames of that size in one round.
    Mix {
        /// As the user wrote it.
        name: String,
        /// Size and frames of that size in each round; never empty, counts never 0.
        parts: Vec<(FrameSize, u16)>,
    },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum SizeText {
    Number(u16),
    Text(String),
}

impl TryFrom<SizeText> for PacketSize {
    type Error = QuantityError;
    fn try_from(raw: SizeText) -> Result<Self, Self::Error> {
        match raw {
            SizeText::Number(n) => n.to_string().parse(),
            SizeText::Text(t) => t.parse(),
        }
    }
}

impl From<PacketSize> for String {
    fn from(size: PacketSize) -> String {
        size.to_string()
    }
}

impl fmt::Display for PacketSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PacketSize::Fixed(size) => size.fmt(f),
            PacketSize::Mix { name, .. } => f.write_str(name),
        }
    }
}

/// Letters of RFC 6985 section 4 and the frame size each stands for. `z` (the MTU) is left out because it is not a
/// fixed size.
const GENOME: [(char, u16); 9] =
    [('a', 64), ('b', 128), ('c', 256), ('d', 512), ('e', 1024), ('f', 1280), ('g', 1518), ('h', 2112), ('i', 9000)];

impl FromStr for PacketSize {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = match text {
            "imix" => genome("aaaaaaaddddg")?,
            // Light Reading 2001: 40 bytes 56 %, 1500 bytes 23 %, 576 bytes 17 %, 52 bytes 5 % (sic: 101 %).
            "imix-2001" => {
                vec![
                    (FrameSize::Ip(40), 56),
                    (FrameSize::Ip(1500), 23),
                    (FrameSize::Ip(576), 17),
                    (FrameSize::Ip(52), 5),
                ]
            }
            _ => match text.strip_prefix("imix:") {
                Some(spec) if spec.contains('x') => counts(spec)?,
                Some(spec) => genome(spec)?,
                None => return Ok(PacketSize::Fixed(text.parse()?)),
            },
        };
        let frames: u64 = parts.iter().map(|(_, n)| u64::from(*n)).sum();
        if parts.len() > MAX_MIX_PARTS || frames > MAX_MIX_FRAMES {
            return Err(QuantityError(format!(
                "this mix has {} parts and {frames} frames in a round; write at most {MAX_MIX_PARTS} parts and {MAX_MIX_FRAMES} frames",
                parts.len()
            )));
        }
        Ok(PacketSize::Mix { name: text.to_owned(), parts })
    }
}

fn genome(text: &str) -> Result<Vec<(FrameSize, u16)>, QuantityError> {
    let mut parts: Vec<(FrameSize, u16)> = Vec::new();
    for letter in text.chars() {
        let size = GENOME.iter().find(|(l, _)| *l == letter).map(|(_, s)| FrameSize::Frame(*s)).ok_or_else(|| {
            QuantityError(format!("`{letter}` is no IMIX genome letter (RFC 6985); known are a to i"))
        })?;
        match parts.iter_mut().find(|(s, _)| *s == size) {
            Some((_, n)) => *n = n.saturating_add(1),
            None => parts.push((size, 1)),
        }
    }
    if parts.is_empty() {
        return Err(QuantityError("an IMIX needs at least one frame size".into()));
    }
    Ok(parts)
}

fn counts(text: &str) -> Result<Vec<(FrameSize, u16)>, QuantityError> {
    text.split(',')
        .map(|part| {
            let bad = || QuantityError(format!("`{part}` is no IMIX part; write count x size, for instance `7x64`"));
            let (count, size) = part.trim().split_once('x').ok_or_else(bad)?;
            let count: u16 = count.trim().parse().ok().filter(|n| *n > 0).ok_or_else(bad)?;
            Ok((size.trim().parse()?, count))
        })
        .collect()
}

impl PacketSize {
    /// The frame sizes of one round, interleaved so that large frames are spread out, as [`FrameSize`] in sending order.
    /// Length 1 for a fixed size; the sum of all counts for a mix.
    pub fn round(&self) -> Vec<FrameSize> {
        match self {
            PacketSize::Fixed(size) => vec![*size],
            PacketSize::Mix { parts, .. } => {
                let total: u32 = parts.iter().map(|(_, n)| u32::from(*n)).sum();
                // Largest-remainder interleave: the part that lags most behind its share goes next.
                let mut sent = vec![0u32; parts.len()];
                (1..=total)
                    .map(|place| {
                        let next = (0..parts.len())
                            .filter(|i| sent[*i] < u32::from(parts[*i].1))
                            .max_by_key(|i| i64::from(place * u32::from(parts[*i].1)) - i64::from(sent[*i] * total))
                            .unwrap_or(0);
                        sent[next] += 1;
                        parts[next].0
                    })
                    .collect()
            }
        }
    }

    /// The same frames with `bytes` more for tags or labels. IP packet sizes stay as they are, because they do not
    /// count the headers before the packet.
    #[must_use]
    pub fn with_tags(&self, bytes: u16) -> PacketSize {
        let longer = |size: FrameSize| match size {
            FrameSize::Frame(frame) => FrameSize::Frame(frame + bytes),
            FrameSize::Ip(_) => size,
        };
        match self {
            PacketSize::Fixed(size) => PacketSize::Fixed(longer(*size)),
            PacketSize::Mix { parts, .. } if parts.iter().all(|(size, _)| longer(*size) == *size) => self.clone(),
            PacketSize::Mix { parts, .. } => {
                let parts: Vec<_> = parts.iter().map(|(size, count)| (longer(*size), *count)).collect();
                let words: Vec<_> = parts.iter().map(|(size, count)| format!("{count}x{size}")).collect();
                PacketSize::Mix { name: format!("imix:{}", words.join(",")), parts }
            }
        }
    }

    /// Mean frame size on the line, FCS included, without preamble and gap.
    pub fn mean_frame_bytes(&self, ipv6: bool) -> f64 {
        match self {
            PacketSize::Fixed(size) => f64::from(size.frame_bytes(ipv6)),
            PacketSize::Mix { parts, .. } => {
                let frames: f64 = parts.iter().map(|(_, n)| f64::from(*n)).sum();
                parts.iter().map(|(s, n)| f64::from(s.frame_bytes(ipv6)) * f64::from(*n)).sum::<f64>() / frames
            }
        }
    }

    /// Mean length of the IP packets in bytes.
    pub fn mean_ip_bytes(&self, ipv6: bool) -> f64 {
        let round = self.round();
        round.iter().map(|size| f64::from(size.ip_bytes(ipv6))).sum::<f64>() / round.len() as f64
    }

    /// Largest IP packet in this size or mix, in bytes: what the MTU must hold.
    pub fn largest_ip_bytes(&self, ipv6: bool) -> u16 {
        self.round().into_iter().map(|s| s.ip_bytes(ipv6)).max().unwrap_or(MIN_FRAME)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forty_byte_packets_travel_in_64_byte_frames() {
        let size: FrameSize = "ip40".parse().unwrap();
        assert_eq!((size.ip_bytes(false), size.frame_bytes(false)), (40, 64));
        assert_eq!((size.ip_bytes(true), size.frame_bytes(true)), (60, 78));
        assert_eq!(FrameSize::Frame(64).ip_bytes(false), 46);
    }

    #[test]
    fn tags_come_on_top_of_frames_and_not_of_packets() {
        let with = |text: &str| text.parse::<PacketSize>().unwrap().with_tags(8);
        assert_eq!(with("64"), "72".parse().unwrap());
        assert_eq!((with("ip40").to_string(), with("imix-2001").to_string()), ("ip40".into(), "imix-2001".into()));
        assert_eq!(with("imix"), "imix:7x72,4x520,1x1526".parse().unwrap());
    }

    #[test]
    fn a_mix_keeps_its_counts_and_spreads_them() {
        let mix: PacketSize = "imix".parse().unwrap();
        let round = mix.round();
        assert_eq!(round.len(), 12);
        assert_eq!(round.iter().filter(|s| **s == FrameSize::Frame(64)).count(), 7);
        assert_eq!(round.iter().filter(|s| **s == FrameSize::Frame(512)).count(), 4);
        assert!(round.windows(2).all(|w| w[0] != FrameSize::Frame(512) || w[1] != FrameSize::Frame(512)));
        let by_hand = (7.0 * 64.0 + 4.0 * 512.0 + 1518.0) / 12.0;
        assert!((mix.mean_frame_bytes(false) - by_hand).abs() < 1e-9);
    }

    #[test]
    fn text_and_back() {
        for text in ["64", "1518", "ip40", "imix", "imix-2001", "imix:aab", "imix:7x64,4x570,1x1518"] {
            let size: PacketSize = text.parse().unwrap();
            assert_eq!(size.to_string(), text);
            let json = serde_json::to_string(&size).unwrap();
            assert_eq!(serde_json::from_str::<PacketSize>(&json).unwrap(), size);
        }
        for text in [
            "63",
            "9217",
            "ip39",
            "imix:",
            "imix:q",
            "imix:0x64",
            "imix:7x",
            "sixty-four",
            "",
            "imix:65535x64,65535x128",
        ] {
            assert!(text.parse::<PacketSize>().is_err(), "{text} must be refused");
        }
    }
}
