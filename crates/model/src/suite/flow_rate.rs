//! The rate of a flow as a suite describes it.

use crate::quantity::{Bandwidth, FrameRate, QuantityError, parse_frame_rate, parse_percent};
use std::str::FromStr;

/// Rate of a flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FlowRate {
    /// Frames per second.
    Frames(FrameRate),
    /// Bits of frames per second, including FCS, without preamble and gap (layer 2).
    Bits(Bandwidth),
    /// Share of the sending port's line rate in per cent (RFC 2544 Appendix B).
    Percent(f64),
}

impl FromStr for FlowRate {
    type Err = QuantityError;

    /// `10 kfps`, `10k`, `10000`; `100 Mbit/s`, `1G`; `5 %`. `100M` is refused: it may mean bits or frames.
    fn from_str(text: &str) -> Result<FlowRate, QuantityError> {
        let bad = |why: &str| {
            let kinds = "write frames per second (`10 kfps`), bits per second (`100 Mbit/s`) or a share of the line above 0 and at most \
                         100 % (`5 %`)";
            QuantityError(format!("`{}` is no rate{why}; {kinds}", text.trim()))
        };
        if text.trim_end().ends_with('%') {
            let share = parse_percent(text).ok_or_else(|| bad(""))?;
            return match share > 0.0 && share <= 100.0 {
                true => Ok(FlowRate::Percent(share)),
                false => Err(bad(", because it is out of range")),
            };
        }
        // No tester sends 1 Gfps, so `1G` is 1 Gbit/s.
        let last = text.trim_end().chars().last().unwrap_or_default();
        match (parse_frame_rate(text), text.parse().map(FlowRate::Bits)) {
            (Ok(_), Ok(_)) if matches!(last, 'm' | 'M') => {
                Err(bad(&format!(", because it can be {0}bit/s or {0}fps", text.trim())))
            }
            (_, Ok(bits)) if matches!(last, 'g' | 'G') => Ok(bits),
            (Ok(frames), _) => Ok(FlowRate::Frames(frames)),
            (_, Ok(bits)) => Ok(bits),
            _ => Err(bad("")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_one_meaning_are_read_and_others_are_refused() {
        for (text, rate) in [
            ("10 kfps", FlowRate::Frames(FrameRate(10_000.0))),
            ("100k", FlowRate::Frames(FrameRate(100_000.0))),
            ("100000", FlowRate::Frames(FrameRate(100_000.0))),
            ("1G", FlowRate::Bits(Bandwidth(1_000_000_000))),
            ("8 Mbit/s", FlowRate::Bits(Bandwidth(8_000_000))),
            ("5 %", FlowRate::Percent(5.0)),
        ] {
            assert_eq!(text.parse(), Ok(rate), "{text}");
        }
        for (text, why) in [
            ("100M", "it can be 100Mbit/s or 100Mfps"),
            ("0 %", "out of range"),
            ("101%", "out of range"),
            ("fast", "is no rate;"),
            ("0", "is no rate;"),
        ] {
            let QuantityError(error) = text.parse::<FlowRate>().unwrap_err();
            assert!(error.contains(why) && error.contains("at most 100 %"), "{text}: {error}");
        }
    }
}
