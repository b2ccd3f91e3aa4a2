//! Numbers and texts as people read them. Files for machines (CSV, JSON) do not pass through here.

use drophammer_model::outcome::Cell;
use drophammer_model::quantity::group_digits;
use drophammer_model::visible::one_line;

/// Shown for a missing value. Never 0.
pub const DASH: &str = "\u{2013}";

/// A number in its unit, without the unit itself: whole with thousands separators from 1000 on, about four significant
/// digits below. A value that is not zero never reads `0`, and a percentage that is not 100 never reads `100`.
pub fn number(value: f64, unit: &str) -> String {
    if !value.is_finite() {
        return DASH.into();
    }
    if unit == "%" {
        return percent(value);
    }
    let size = value.abs();
    if value == 0.0 {
        "0".into()
    } else if !(1e-6..1e15).contains(&size) {
        format!("{value:.3e}")
    } else if size >= 1000.0 {
        let whole = size.round() as u64;
        format!("{}{}", if value < 0.0 { "-" } else { "" }, group_digits(whole))
    } else {
        significant(value, 4)
    }
}

/// `digits` significant digits, without trailing zeros behind the point; for 1e-6 <= |value| < 1000.
fn significant(value: f64, digits: i32) -> String {
    let magnitude = value.abs().log10().floor() as i32;
    let decimals = usize::try_from((digits - 1 - magnitude).max(0)).unwrap_or(0);
    trim(format!("{value:.decimals$}"))
}

fn trim(text: String) -> String {
    if !text.contains('.') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn percent(value: f64) -> String {
    if value == 0.0 || value == 100.0 {
        return value.to_string();
    }
    // Two decimals, also when they are zeros, so that a column of percentages lines up.
    for decimals in 2..=9 {
        let text = format!("{value:.decimals$}");
        let reads: f64 = text.parse().unwrap_or(f64::NAN);
        // 99.9996 is not 100, and 0.0004 is not 0: that is all the difference between loss and no loss.
        if reads == 0.0 || reads == 100.0 {
            continue;
        }
        return text;
    }
    format!("{value:e}")
}

/// A cell in the unit of its column.
pub fn cell(cell: &Cell, unit: &str) -> String {
    match cell {
        Cell::None => DASH.into(),
        // Frame sizes are written 1518 everywhere.
        Cell::Count(n) if *n < 10_000 && unit == "bytes" => n.to_string(),
        Cell::Count(n) => group_digits(*n),
        Cell::Number(x) if unit == "bit/s" && x.abs() >= 1e6 => match x.abs() {
            size if size >= 1e9 => format!("{} G", number(x / 1e9, "")),
            _ => format!("{} M", number(x / 1e6, "")),
        },
        Cell::Number(x) => number(*x, unit),
        Cell::Text(t) if t.is_empty() => DASH.into(),
        Cell::Text(t) => t.clone(),
    }
}

/// Heading of a column with its unit: `Throughput [fps]`.
pub fn heading(title: &str, unit: &str) -> String {
    if unit.is_empty() { title.to_owned() } else { format!("{title} [{unit}]") }
}

/// A time in nanoseconds with the unit that fits: `1.234 µs`.
pub fn nanoseconds(ns: f64) -> String {
    let (value, unit) = match ns.abs() {
        x if x >= 1e9 => (ns / 1e9, "s"),
        x if x >= 1e6 => (ns / 1e6, "ms"),
        x if x >= 1e3 => (ns / 1e3, "µs"),
        _ => (ns, "ns"),
    };
    format!("{} {unit}", number(value, unit))
}

/// Longest text from elsewhere on a line of the text and Markdown reports, in characters; CSV and JSON have all of it.
const LONGEST: usize = 2_000;

/// Text from elsewhere on one line of a terminal: characters that could move the cursor or reverse the text become visible.
pub fn plain(text: &str) -> String {
    shorten(&one_line(text), LONGEST)
}

/// The first `longest` characters of a text, with their number where some are left out.
pub fn shorten(text: &str, longest: usize) -> String {
    match text.char_indices().nth(longest) {
        None => text.to_owned(),
        Some((end, _)) => {
            let more = group_digits(text[end..].chars().count() as u64);
            format!("{}\u{2026} ({more} more characters)", text[..end].trim_end())
        }
    }
}

/// Text from elsewhere on several lines of a terminal.
pub fn plain_lines(text: &str) -> String {
    text.lines().map(plain).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well_and_do_not_lie() {
        for (value, unit, text) in [
            (14_880_952.38, "fps", "14,880,952"),
            (999.96, "fps", "1000"),
            (12.345, "µs", "12.35"),
            (-1234.6, "µs", "-1,235"),
            (0.5, "s", "0.5"),
            (0.0, "fps", "0"),
            (1e-9, "s", "1.000e-9"),
            (0.0004, "%", "0.0004"),
            (99.9996, "%", "99.9996"),
            (100.0, "%", "100"),
            (33.3333, "%", "33.33"),
            (5.4, "%", "5.40"),
            (0.0, "%", "0"),
            (f64::NAN, "%", DASH),
        ] {
            assert_eq!(number(value, unit), text, "{value} {unit}");
        }
        assert_eq!(cell(&Cell::None, "fps"), DASH);
        assert_eq!(cell(&Cell::Count(0), "fps"), "0");
        assert_eq!(cell(&Cell::Number(195_166_272.4), "bit/s"), "195.2 M");
        assert_eq!(cell(&Cell::Number(12e9), "bit/s"), "12 G");
        assert_eq!(nanoseconds(1_234.0), "1.234 µs");
        assert_eq!(plain("a\x1b[31mb\nc"), "a\\u{1b}[31mb c");
        assert_eq!(plain(&"x".repeat(LONGEST)), "x".repeat(LONGEST));
        assert_eq!(plain(&"x".repeat(LONGEST + 1)), "x".repeat(LONGEST) + "\u{2026} (1 more characters)");
    }
}
