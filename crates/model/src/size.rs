//! Sizes of test frames: one size, or a mix of sizes (IMIX).

use crate::quantity::{QuantityError, grouped_number, parse_count};
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

/// Maximum number of parts of a mix that is written as text.
pub const MAX_MIX_PARTS: usize = 64;
/// Maximum number of parts of any mix.
pub const MAX_SIZES: usize = 256;
/// Maximum number of frames in one round of a mix, so that [`PacketSize::round`] can compute with 32 bits.
pub const MAX_MIX_FRAMES: u64 = 10_000;

/// Size of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FrameSize {
    /// Frame size as in RFC 2544: header, payload and FCS.
    Frame(u16),
    /// Size of the IP packet, as in the 2001 router test ("40-byte packets"); its frame is padded to 64 bytes.
    Ip(u16),
}

impl FrameSize {
    /// Bytes on the line including FCS, without preamble and gap. Shorter IPv6 packets are extended to 60 bytes (a
    /// 78-byte frame), because IPv6, UDP and signature need this.
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
        let bad = |why: &str| QuantityError(format!("`{text}` is not a frame size; {why}"));
        let (digits, ip) = match text.strip_prefix("ip") {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let n = parse_count(digits)
            .map_err(|_| bad("write bytes with FCS (`64`), an IP packet (`ip40`) or a mix (`imix`)"))?;
        let packets = MIN_IPV4_PACKET..=MAX_FRAME - ETHERNET_OVERHEAD;
        match u16::try_from(n) {
            Ok(n) if ip && packets.contains(&n) => Ok(FrameSize::Ip(n)),
            Ok(n) if !ip && (MIN_FRAME..=MAX_FRAME).contains(&n) => Ok(FrameSize::Frame(n)),
            _ if ip => Err(bad("write 40 to 9198 bytes for an IP packet, for instance `ip40`")),
            Ok(n) if packets.contains(&n) => {
                Err(bad(&format!("write 64 to 9216 bytes with FCS, or `ip{n}` for an IP packet of {n} bytes")))
            }
            _ => Err(bad("write 64 to 9216 bytes with FCS, or for instance `ip40` for an IP packet of 40 bytes")),
        }
    }
}

/// Size of the frames in a test row: one size, or a mix.
///
/// Written `64`, `ip40`, `imix` (RFC 6985 genome `aaaaaaaddddg`), `imix-2001` (the mix of the 2001 core router test),
/// or `imix:` with any other genome (`imix:aaaaaaadddg`), counts (`imix:7x64,4x570,1x1518`) or weights, with or without
/// `%` (`imix:58.33x64,33.33x570,8.33x1518`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub enum PacketSize {
    /// All frames have the same size.
    Fixed(FrameSize),
    /// A repeating sequence.
    Mix {
        /// The mix as the user wrote it, or any other words for it.
        name: String,
        /// Each size with its number of frames per round; never empty, counts never 0.
        parts: Vec<(FrameSize, u16)>,
    },
}

/// A size in a file or a message: its name, and the parts of a mix if they do not follow from its name.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Number(u16),
    Text(String),
    Parts { name: String, parts: Vec<(String, u16)> },
}

impl TryFrom<Written> for PacketSize {
    type Error = QuantityError;
    fn try_from(written: Written) -> Result<Self, Self::Error> {
        match written {
            Written::Number(n) => n.to_string().parse(),
            Written::Text(text) => text.parse(),
            Written::Parts { name, parts } => {
                let frames: u64 = parts.iter().map(|(_, n)| u64::from(*n)).sum();
                if !(1..=MAX_SIZES).contains(&parts.len())
                    || parts.iter().any(|(_, n)| *n == 0)
                    || frames > MAX_MIX_FRAMES
                {
                    return Err(QuantityError(format!(
                        "the mix `{name}` has {} parts and {frames} frames in a round; write 1 to {MAX_SIZES} parts and at most \
                         {MAX_MIX_FRAMES} frames, none of them 0",
                        parts.len()
                    )));
                }
                let parts: Result<_, _> = parts.into_iter().map(|(size, n)| Ok((size.parse()?, n))).collect();
                Ok(PacketSize::Mix { name, parts: parts? })
            }
        }
    }
}

impl From<PacketSize> for Written {
    fn from(size: PacketSize) -> Written {
        let name = size.to_string();
        match &size {
            PacketSize::Mix { parts, .. } if name.parse().ok().as_ref() != Some(&size) => {
                Written::Parts { name, parts: parts.iter().map(|(size, n)| (size.to_string(), *n)).collect() }
            }
            _ => Written::Text(name),
        }
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

/// Letters of RFC 6985 section 4 with their frame sizes, except `z` (the MTU), which is not a fixed size.
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
                Some(spec) if spec.contains('x') => weights(spec)?,
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
            QuantityError(format!("`{letter}` is not an IMIX genome letter (RFC 6985); known are a to i"))
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

/// Maximum number of decimals of a weight.
const DECIMALS: i32 = 6;

/// Reads sizes with weights: counts, per cent or any other numbers. Reduces weights to the smallest whole numbers in
/// the same ratio, or to [`MAX_MIX_FRAMES`] frames if that is less; then the error of a share is at most 0.01 per cent
/// of all frames.
fn weights(text: &str) -> Result<Vec<(FrameSize, u16)>, QuantityError> {
    let limits = format!(
        "write weight x size, for instance `7x64`, `58.33x64` or `7xip40`, with weights above 0 and at most {MOST_WEIGHT} and \
         at most {DECIMALS} decimals"
    );
    let mut parts: Vec<(FrameSize, u64)> = Vec::new();
    let (mut signs, mut sum) = (0, 0.0);
    for part in text.split(',').map(str::trim) {
        let bad = || QuantityError(format!("`{part}` is not an IMIX part; {limits}"));
        let (weight, size) = part.split_once('x').ok_or_else(bad)?;
        let number = weight.trim().trim_end_matches('%');
        let scaled = grouped_number(number.trim_end()).ok_or_else(bad)? * 10f64.powi(DECIMALS);
        if !(scaled >= 1.0 && scaled <= MOST_WEIGHT as f64 * 10f64.powi(DECIMALS))
            || (scaled - scaled.round()).abs() > 1e-3
        {
            return Err(bad());
        }
        sum += scaled / 10f64.powi(DECIMALS);
        signs += usize::from(number.len() < weight.trim().len());
        if parts.len() == MAX_MIX_PARTS {
            return Err(QuantityError(format!(
                "the mix has more than {MAX_MIX_PARTS} parts; write at most {MAX_MIX_PARTS}"
            )));
        }
        parts.push((size.trim().parse()?, scaled.round() as u64));
    }
    if signs > 0 && signs < parts.len() {
        let error = format!("`{text}` has weights with and without `%`; write all of them in per cent, or none");
        return Err(QuantityError(error));
    }
    if signs > 0 && !(99.0..=101.0).contains(&sum) {
        let error = format!("the parts of `{text}` are {sum} % together; write parts that are 100 % together");
        return Err(QuantityError(error));
    }
    reduced(text, &parts)
}

/// The largest weight of a part.
const MOST_WEIGHT: u64 = 1_000_000_000;

/// The frames of each size in one round.
fn reduced(text: &str, parts: &[(FrameSize, u64)]) -> Result<Vec<(FrameSize, u16)>, QuantityError> {
    fn divisor(a: u64, b: u64) -> u64 {
        if b == 0 { a } else { divisor(b, a % b) }
    }
    // Counts stay as they are: `2x64,2x570` sends two of each in a round.
    let unit = 10u64.pow(DECIMALS as u32);
    let sum: u64 = parts.iter().map(|(_, weight)| weight).sum();
    let whole = parts.iter().all(|(_, weight)| weight.is_multiple_of(unit)) && sum / unit <= MAX_MIX_FRAMES;
    let common = if whole { unit } else { parts.iter().fold(0, |all, (_, weight)| divisor(all, *weight)) };
    let total = u128::from(sum / common);
    let most = u128::from(MAX_MIX_FRAMES);
    let frames: Vec<u128> = parts.iter().map(|(_, weight)| u128::from(weight / common)).collect();
    if total <= most {
        return Ok(parts.iter().zip(frames).map(|((size, _), n)| (*size, n as u16)).collect());
    }
    // Frames left over by rounding down go to the parts with the largest remainders.
    let mut counts: Vec<u128> = frames.iter().map(|n| n * most / total).collect();
    let mut order: Vec<usize> = (0..frames.len()).collect();
    order.sort_by_key(|i| std::cmp::Reverse(frames[*i] * most % total));
    let left = most - counts.iter().sum::<u128>();
    order.iter().take(left as usize).for_each(|i| counts[*i] += 1);
    if let Some((size, _)) = parts.iter().zip(&counts).find_map(|(part, count)| (*count == 0).then_some(part)) {
        return Err(QuantityError(format!(
            "the share of `{size}` in `{text}` is too small; write at least one frame in {MAX_MIX_FRAMES}"
        )));
    }
    Ok(parts.iter().zip(counts).map(|((size, _), n)| (*size, n as u16)).collect())
}

impl PacketSize {
    /// The frame sizes of one round in sending order, interleaved so that large frames are spread out.
    pub fn round(&self) -> Vec<FrameSize> {
        match self {
            PacketSize::Fixed(size) => vec![*size],
            PacketSize::Mix { parts, .. } => {
                let total: u32 = parts.iter().map(|(_, n)| u32::from(*n)).sum();
                // Largest-remainder interleaving: the part that is furthest behind its share is next.
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

    /// The same frames with `bytes` more for tags or labels. Sizes given for IP packets do not change, because they do
    /// not include headers before the packet.
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

    /// Largest IP packet in this size or mix, in bytes, for which the MTU must be large enough.
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
            "imix:1x64,1000000x128",
            "imix:50%x64,20%x128",
            "imix:50%x64,50x128",
            "imix:0.0000001x64",
            "imix:2000000000x64",
        ] {
            assert!(text.parse::<PacketSize>().is_err(), "{text} must be refused");
        }
    }

    #[test]
    fn a_mix_with_other_parts_than_its_name_is_written_with_them() {
        let mix = |name: &str, parts: &[(u16, u16)]| PacketSize::Mix {
            name: name.into(),
            parts: parts.iter().map(|(size, n)| (FrameSize::Frame(*size), *n)).collect(),
        };
        let many: Vec<_> = (0..256).map(|i| (64 + i, 1)).collect();
        for size in [
            mix("128 to 132", &[(132, 1), (130, 1), (128, 1)]),
            mix("imix:7x64,1x1518", &[(68, 7), (1518, 1)]),
            mix("64 to 319", &many),
        ] {
            let json = serde_json::to_string(&size).unwrap();
            assert_eq!(serde_json::from_str::<PacketSize>(&json).unwrap(), size, "{json}");
        }
        for (size, n) in [("63", 1), ("64", 0), ("64", 10_001), ("imix", 1)] {
            let json = serde_json::json!({"name": "a", "parts": [[size, n]]});
            assert!(serde_json::from_value::<PacketSize>(json).is_err(), "{n} frames of {size}");
        }
        for parts in [0, 257] {
            let json = serde_json::json!({"name": "a", "parts": vec![("64", 1); parts]});
            assert!(serde_json::from_value::<PacketSize>(json).is_err(), "{parts} parts");
        }
    }

    #[test]
    fn weights_in_per_cent_or_large_counts_keep_their_ratio() {
        let counts = |text: &str| match text.parse() {
            Ok(PacketSize::Mix { parts, .. }) => parts.iter().map(|(_, n)| *n).collect::<Vec<_>>(),
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(counts("imix:58.33x64,33.33x570,8.33x1518"), [5833, 3333, 833]);
        assert_eq!(counts("imix:58.33%x64, 33.33 %x570,8.33%x1518"), [5833, 3333, 833]);
        assert_eq!(counts("imix:58333333x64"), [1]);
        assert_eq!(counts("imix:58333333x64,33333333x570,8333334x1518"), [5833, 3333, 834]);
        assert_eq!(counts("imix:0.5x64,0.25x570,0.25x1518"), [2, 1, 1]);
        assert_eq!(counts("imix:2x64,2x570"), [2, 2]);
        assert_eq!(counts("imix:7xip40,1xip1500"), [7, 1]);
    }

    #[test]
    fn refused_sizes_and_parts_name_the_limits_and_the_packet() {
        for (text, words) in [
            ("imix:7x40", "write 64 to 9216 bytes with FCS, or `ip40` for an IP packet of 40 bytes"),
            ("40", "or `ip40` for an IP packet of 40 bytes"),
            ("20", "write 64 to 9216 bytes with FCS"),
            ("99999", "write 64 to 9216 bytes with FCS"),
            ("ip20", "write 40 to 9198 bytes"),
            ("imix:0x64", "with weights above 0 and at most 1000000000"),
            ("imix:50%x64,20%x128", "70 % together"),
        ] {
            let error = text.parse::<PacketSize>().unwrap_err().0;
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
