//! Quantities with their unit in the type.

use crate::medium::Medium;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{Add, Sub};
use std::str::FromStr;
use std::time::Duration;

/// Nanoseconds since the start of a run, on the port's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Instant(pub u64);

impl Instant {
    /// Time since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, rhs: Duration) -> Instant {
        Instant(self.0.saturating_add(u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;
    fn sub(self, rhs: Duration) -> Instant {
        Instant(self.0.saturating_sub(u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// Frames per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FrameRate(pub f64);

impl FrameRate {
    /// Frames per second as a number.
    pub fn pps(self) -> f64 {
        self.0
    }

    /// This rate times `factor` (0.5 for half the load).
    pub fn scaled(self, factor: f64) -> FrameRate {
        FrameRate(self.0 * factor)
    }

    /// Number of whole frames in `duration` at this rate, rounded down.
    pub fn frames_in(self, duration: Duration) -> u64 {
        (self.0 * duration.as_secs_f64() + 1e-9) as u64
    }
}

impl fmt::Display for FrameRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} fps", group_digits(self.0.round() as u64))
    }
}

/// Groups digits: `1234567` becomes `1,234,567`.
pub fn group_digits(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// Bits per second of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bandwidth(pub u64);

impl Bandwidth {
    /// The highest frame rate of an Ethernet line of this speed for frames of `frame_bytes` (FCS included):
    /// `line / (8 * (size + 20))`, RFC 2544 Appendix B.
    pub fn line_rate(self, frame_bytes: f64) -> FrameRate {
        Medium::Ethernet.line_rate(self, frame_bytes)
    }
}

impl fmt::Display for Bandwidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, name) in [(1_000_000_000u64, "Gbit/s"), (1_000_000, "Mbit/s"), (1_000, "kbit/s")] {
            if self.0 >= unit {
                let value = self.0 as f64 / unit as f64;
                return write!(f, "{} {name}", (value * 1000.0).round() / 1000.0);
            }
        }
        write!(f, "{} bit/s", self.0)
    }
}

/// Why a quantity could not be read. The text describes the correct form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct QuantityError(pub String);

fn number_and_unit(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_' || c == ',')).unwrap_or(text.len());
    Some((grouped_number(&text[..split])?, text[split..].trim()))
}

/// Parses `1500`, `1,500`, `1_500.25`. Accepts commas only between groups of three digits: `1,5` is refused, because
/// some readers would take it for one and a half.
pub fn grouped_number(text: &str) -> Option<f64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let mut groups = whole.split([',', '_']);
    let first = groups.next()?;
    let grouped = whole.len() > first.len();
    if first.is_empty() || (grouped && first.len() > 3) || groups.any(|g| g.len() != 3) {
        return None;
    }
    if fraction.is_empty() || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    format!("{}.{fraction}", whole.replace([',', '_'], "")).parse().ok()
}

/// The factor of a unit prefix; 1 without a prefix.
fn prefix(letter: &str) -> Option<f64> {
    Some(match letter {
        "" => 1.0,
        "k" => 1e3,
        "m" => 1e6,
        "g" => 1e9,
        "t" => 1e12,
        _ => return None,
    })
}

/// The factor of `unit`, which ends with one of `names` or is only a prefix: `Gbit/s`, `G`.
fn factor(unit: &str, names: &[&str]) -> Option<f64> {
    let unit = unit.to_ascii_lowercase();
    let letter = names.iter().find_map(|name| unit.strip_suffix(name)).unwrap_or(&unit);
    prefix(letter.trim())
}

impl FromStr for Bandwidth {
    type Err = QuantityError;

    /// Parses `10 Gbit/s`, `2.5G`, `100M`. Refuses numbers without a unit, because bit/s and Gbit/s are too far apart
    /// to guess, and bytes (`GB/s`).
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = |why: &str| {
            let range = "write 1 bit/s to 1000 Tbit/s, for instance `10G`, `10 Gbit/s` or `100M`";
            QuantityError(format!("`{text}` is not a line speed{why}; {range}"))
        };
        let (number, unit) = number_and_unit(text).ok_or_else(|| bad(""))?;
        if unit.is_empty() {
            return Err(bad(", because it has no unit"));
        }
        if unit.contains('B') && !unit.ends_with("BPS") && !unit.contains("BIT") {
            return Err(bad(", because `B` stands for bytes"));
        }
        let factor = factor(unit, &["bits/s", "bit/s", "bps", "b/s", "bit", "b"]).ok_or_else(|| bad(""))?;
        let bits = number * factor;
        if !(1.0..=1e15).contains(&bits) {
            return Err(bad(", because it is out of range"));
        }
        Ok(Bandwidth(bits.round() as u64))
    }
}

/// Reads a count: `1000000`, `1,000,000`, `1M`, `1.5k`.
///
/// # Errors
/// If it is negative, not a whole number, or above 2^53.
pub fn parse_count(text: &str) -> Result<u64, QuantityError> {
    let bad = || QuantityError(format!("`{text}` is not a whole number; write for instance `1000`, `1,000` or `1k`"));
    if let Ok(number) = text.trim().parse() {
        return Ok(number);
    }
    let (number, unit) = number_and_unit(text).ok_or_else(bad)?;
    let product = number * factor(unit, &[]).ok_or_else(bad)?;
    let rounded = product.round();
    // The product of a decimal fraction and a power of ten may not be exact.
    let whole =
        (product - rounded).abs() <= 1e-6 * product.min(1.0) && rounded <= (1u64 << f64::MANTISSA_DIGITS) as f64;
    if whole { Ok(rounded as u64) } else { Err(bad()) }
}

/// Reads a percentage, with or without its sign: `50`, `0.5 %`.
pub fn parse_percent(text: &str) -> Option<f64> {
    let text = text.trim();
    grouped_number(text.strip_suffix('%').unwrap_or(text).trim_end())
}

/// Reads a duration with its unit: `60 s`, `500 ms`, `2 min`, `100 us`.
pub fn parse_duration(text: &str) -> Result<Duration, QuantityError> {
    let bad = || {
        let units = "write a number with `ns`, `us`, `ms`, `s`, `min` or `h`, for instance `60 s`";
        QuantityError(format!("`{text}` is not a duration; {units}"))
    };
    let (number, unit) = number_and_unit(text).ok_or_else(bad)?;
    let factor = match unit {
        "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
        "ms" | "msec" => 1e-3,
        "us" | "µs" | "usec" => 1e-6,
        "ns" | "nsec" => 1e-9,
        "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
        "h" | "hr" | "hour" | "hours" => 3600.0,
        _ => return Err(bad()),
    };
    Duration::try_from_secs_f64(number * factor).map_err(|_| bad())
}

/// Formats a duration: `60 s`, `1.5 s`, `250 ms`, `3 min 20 s`.
pub fn show_duration(d: Duration) -> String {
    let s = d.as_secs_f64();
    if s >= 120.0 {
        let whole = s.round() as u64;
        if whole.is_multiple_of(60) {
            format!("{} min", whole / 60)
        } else {
            format!("{} min {} s", whole / 60, whole % 60)
        }
    } else if s >= 1.0 {
        format!("{} s", (s * 100.0).round() / 100.0)
    } else if s >= 1e-3 {
        format!("{} ms", (s * 1e5).round() / 100.0)
    } else if s >= 1e-6 {
        format!("{} µs", (s * 1e8).round() / 100.0)
    } else {
        format!("{} ns", d.as_nanos())
    }
}

/// Maximum accepted frame rate, in frames per second.
const MOST_FRAMES: f64 = 1e12;

/// Reads a number that may have a prefix: `1000`, `1.5k`, `2M`.
pub fn prefixed_number(text: &str) -> Option<f64> {
    let (number, unit) = number_and_unit(text)?;
    Some(number * factor(unit, &[])?)
}

/// Reads a frame rate: `100 kfps`, `100k`, `1.5 Mpps`, `250000`. Refuses `100M`, which can mean bits or frames, and `1G`, which
/// elsewhere means bits.
pub fn parse_frame_rate(text: &str) -> Result<FrameRate, QuantityError> {
    let bad = |why: &str| {
        let range = "write more than 0 and at most 1000 Gfps, for instance `250000`, `100k` or `1.2 Mfps`";
        QuantityError(format!("`{text}` is not a frame rate{why}; {range}"))
    };
    let (number, unit) = number_and_unit(text).ok_or_else(|| bad(""))?;
    if matches!(unit, "m" | "M" | "g" | "G" | "t" | "T") {
        return Err(bad(&format!(", because it can be {0}bit/s or {0}fps", text.trim())));
    }
    let rate = number * factor(unit, &["fps", "pps", "frames/s", "packets/s"]).ok_or_else(|| bad(""))?;
    if !(rate > 0.0 && rate <= MOST_FRAMES) {
        return Err(bad(", because it is out of range"));
    }
    Ok(FrameRate(rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_rate_is_that_of_rfc_2544() {
        assert_eq!(Bandwidth(10_000_000_000).line_rate(64.0).pps().trunc(), 14_880_952.0);
        assert_eq!(Bandwidth(10_000_000).line_rate(1518.0).pps().trunc(), 812.0);
    }

    #[test]
    fn units_are_read_and_guesses_are_refused() {
        assert_eq!("2.5 Gbit/s".parse::<Bandwidth>(), Ok(Bandwidth(2_500_000_000)));
        for text in ["10", "10 GiB", "10 GB/s", "10 MBps", "10GB", "0.5 bit/s", "2000 T", "G"] {
            let error = text.parse::<Bandwidth>().unwrap_err().0;
            assert!(error.contains("; write 1 bit/s to 1000 Tbit/s"), "{text}: {error}");
        }
        assert_eq!(parse_duration("2 min").unwrap(), Duration::from_secs(120));
        assert_eq!(parse_duration("250ms").unwrap(), Duration::from_millis(250));
        assert!(parse_duration("60").is_err());
        assert!(parse_duration("-1 s").is_err());
        assert_eq!(parse_frame_rate("1.5 Mpps").unwrap().pps(), 1.5e6);
        for text in ["100M", "1 G", "1.5m", "1T"] {
            assert!(parse_frame_rate(text).unwrap_err().0.contains(&format!("it can be {text}bit/s")), "{text}");
        }
        for text in ["0 fps", "0", "10 s", "fps", "2 Tfps"] {
            let error = parse_frame_rate(text).unwrap_err().0;
            assert!(error.contains("; write more than 0 and at most 1000 Gfps"), "{text}: {error}");
        }
    }

    #[test]
    fn numbers_are_read_as_people_write_them() {
        let speed = |text: &str| text.parse::<Bandwidth>().unwrap().0;
        assert_eq!(
            ["1G", "10g", "100M", "2.5 Gb", "1GBPS"].map(speed),
            [1_000_000_000, 10_000_000_000, 100_000_000, 2_500_000_000, 1_000_000_000]
        );
        let rate = |text: &str| parse_frame_rate(text).unwrap().pps();
        assert_eq!(["100k", "100000", "1.5Mfps", "100,000"].map(rate), [1e5, 1e5, 1.5e6, 1e5]);
        assert_eq!(["0.5", "100k", "1.5M", "1 fps"].map(prefixed_number), [Some(0.5), Some(1e5), Some(1.5e6), None]);
        assert_eq!(["50", "50%", "0.5 %"].map(|text| parse_percent(text).unwrap()), [50.0, 50.0, 0.5]);
        assert_eq!(
            ["7", "1,000", "1k", "1.1M", "0"].map(|text| parse_count(text).unwrap()),
            [7, 1000, 1000, 1_100_000, 0]
        );
        for text in ["1.5", "1.0001k", "-1", "", "k", "1 kfps", "99999999999999999999"] {
            assert!(parse_count(text).is_err(), "{text} must be refused");
        }
        assert_eq!(parse_duration("5m").unwrap(), Duration::from_secs(300));
        assert_eq!(parse_percent("half"), None);
    }

    #[test]
    fn commas_group_digits_and_never_mean_a_fraction() {
        assert_eq!(parse_frame_rate("1,488,095 fps").unwrap().pps(), 1_488_095.0);
        assert_eq!(parse_frame_rate("1_488_095.5 fps").unwrap().pps(), 1_488_095.5);
        for text in ["1,5 s", "10,25 s", "1000,000 s", ",500 s", "1.5,000 s", "1. s", ".5 s", "1,000,00 s"] {
            assert!(parse_duration(text).is_err(), "{text} must be refused");
        }
    }

    #[test]
    fn digits_are_grouped_by_three() {
        assert_eq!(group_digits(0), "0");
        assert_eq!(group_digits(999), "999");
        assert_eq!(group_digits(1_234_567), "1,234,567");
    }
}
