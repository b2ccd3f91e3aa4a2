//! Quantities with their unit in the type.

use crate::medium::Medium;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{Add, Sub};
use std::str::FromStr;
use std::time::Duration;

/// Nanoseconds since the start of a run, as counted by the port's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Instant(pub u64);

impl Instant {
    /// Time since `earlier`; zero when `earlier` is later.
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

    /// Whole frames that fall into `duration` at this rate, rounded down.
    pub fn frames_in(self, duration: Duration) -> u64 {
        (self.0 * duration.as_secs_f64() + 1e-9) as u64
    }
}

impl fmt::Display for FrameRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} fps", group_digits(self.0.round() as u64))
    }
}

/// `1234567` as `1,234,567`.
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

/// Why a quantity could not be read. The text names the correct form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct QuantityError(pub String);

fn number_and_unit(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_' || c == ',')).unwrap_or(text.len());
    Some((grouped_number(&text[..split])?, text[split..].trim()))
}

/// `1500`, `1,500`, `1_500.25`. A comma is accepted only between groups of three digits: `1,5` is refused, because some
/// readers take it for one and a half.
pub(crate) fn grouped_number(text: &str) -> Option<f64> {
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

impl FromStr for Bandwidth {
    type Err = QuantityError;

    /// `10 Gbit/s`, `2.5 Gbit/s`, `100 Mbit/s`; a number without unit is refused, because bit/s and Gbit/s are too far
    /// apart to guess.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad =
            || QuantityError(format!("`{text}` is not a line speed; write for instance `10 Gbit/s` or `100 Mbit/s`"));
        let (number, unit) = number_and_unit(text).ok_or_else(bad)?;
        let factor = match unit.to_ascii_lowercase().as_str() {
            "gbit/s" | "gbps" | "gb/s" => 1e9,
            "mbit/s" | "mbps" | "mb/s" => 1e6,
            "kbit/s" | "kbps" => 1e3,
            "bit/s" | "bps" => 1.0,
            _ => return Err(bad()),
        };
        let bits = number * factor;
        if !(1.0..=1e15).contains(&bits) {
            return Err(bad());
        }
        Ok(Bandwidth(bits.round() as u64))
    }
}

/// Reads a duration with its unit: `60 s`, `500 ms`, `2 min`, `100 us`.
pub fn parse_duration(text: &str) -> Result<Duration, QuantityError> {
    let bad = || QuantityError(format!("`{text}` is not a duration; write for instance `60 s`, `500 ms` or `2 min`"));
    let (number, unit) = number_and_unit(text).ok_or_else(bad)?;
    let factor = match unit {
        "s" | "sec" | "second" | "seconds" => 1.0,
        "ms" => 1e-3,
        "us" | "µs" => 1e-6,
        "ns" => 1e-9,
        "min" | "minute" | "minutes" => 60.0,
        "h" | "hour" | "hours" => 3600.0,
        _ => return Err(bad()),
    };
    Duration::try_from_secs_f64(number * factor).map_err(|_| bad())
}

/// A duration in readable form: `60 s`, `1.5 s`, `250 ms`, `3 min 20 s`.
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

/// Reads a frame rate: `100 kfps`, `1.5 Mpps`, `250000 fps`.
pub fn parse_frame_rate(text: &str) -> Result<FrameRate, QuantityError> {
    let bad = || QuantityError(format!("`{text}` is not a frame rate; write for instance `250000 fps` or `1.2 Mfps`"));
    let (number, unit) = number_and_unit(text).ok_or_else(bad)?;
    let factor = match unit.to_ascii_lowercase().as_str() {
        "fps" | "pps" => 1.0,
        "kfps" | "kpps" => 1e3,
        "mfps" | "mpps" => 1e6,
        "gfps" | "gpps" => 1e9,
        _ => return Err(bad()),
    };
    if number <= 0.0 {
        return Err(bad());
    }
    Ok(FrameRate(number * factor))
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
        assert!("10".parse::<Bandwidth>().is_err());
        assert!("10 GiB".parse::<Bandwidth>().is_err());
        assert_eq!(parse_duration("2 min").unwrap(), Duration::from_secs(120));
        assert_eq!(parse_duration("250ms").unwrap(), Duration::from_millis(250));
        assert!(parse_duration("60").is_err());
        assert!(parse_duration("-1 s").is_err());
        assert_eq!(parse_frame_rate("1.5 Mpps").unwrap().pps(), 1.5e6);
        assert!(parse_frame_rate("0 fps").is_err());
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
