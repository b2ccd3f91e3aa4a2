//! Formats numbers and texts for people. Files for machines (CSV, JSON) do not use it.

use drophammer_model::outcome::Cell;
use drophammer_model::quantity::group_digits;
use drophammer_model::visible::one_line;

/// Text for a missing value, which must never be shown as 0.
pub const DASH: &str = "\u{2013}";

/// Formats a number without its unit. From 1000 on, numbers are whole and have thousands separators; smaller numbers
/// have about four significant digits. Only zero is shown as `0`, and only exactly 100 % as `100`.
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
        significant(value)
    }
}

/// Formats with four significant digits, without trailing zeros after the point; for 1e-6 <= |value| < 1000.
fn significant(value: f64) -> String {
    let magnitude = value.abs().log10().floor() as i32;
    let decimals = usize::try_from((3 - magnitude).max(0)).unwrap_or(0);
    trim(&format!("{value:.decimals$}")).to_owned()
}

/// Removes trailing zeros after the point of a decimal number.
pub fn trim(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

fn percent(value: f64) -> String {
    if value == 0.0 || value == 100.0 {
        return value.to_string();
    }
    // Use at least two decimals, even if they are zeros, so that a column of percentages lines up. 99.9996 must not be
    // shown as 100, and 0.0004 not as 0: that is the difference between loss and no loss.
    let mut texts = (2..=9).map(|decimals| format!("{value:.decimals$}"));
    let exact = |text: &String| !matches!(text.parse().unwrap_or(f64::NAN), 0.0 | 100.0);
    texts.find(exact).unwrap_or_else(|| format!("{value:e}"))
}

/// A cell in the unit of its column.
pub fn cell(cell: &Cell, unit: &str) -> String {
    match cell {
        Cell::None => DASH.into(),
        // Frame sizes are always written without separators: 1518.
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

/// `1 trial`, `1,234 trials`.
pub fn several(n: usize, what: &str) -> String {
    format!("{} {what}{}", group_digits(n as u64), if n == 1 { "" } else { "s" })
}

/// Heading of a column with its unit: `Throughput [fps]`.
pub fn heading(title: &str, unit: &str) -> String {
    if unit.is_empty() { title.to_owned() } else { format!("{title} [{unit}]") }
}

/// Formats a time in nanoseconds with a suitable unit: `1.234 µs`.
pub fn nanoseconds(ns: f64) -> String {
    let (value, unit) = match ns.abs() {
        x if x >= 1e9 => (ns / 1e9, "s"),
        x if x >= 1e6 => (ns / 1e6, "ms"),
        x if x >= 1e3 => (ns / 1e3, "µs"),
        _ => (ns, "ns"),
    };
    format!("{} {unit}", number(value, unit))
}

/// Maximum length of an external text on a line of the text and Markdown reports, in characters. CSV and JSON contain
/// the whole text.
const LONGEST: usize = 2_000;

/// Makes external text safe to show as one line on a terminal: characters that could move the cursor or reverse the
/// text become visible.
pub fn plain(text: &str) -> String {
    shorten(&one_line(text), LONGEST)
}

/// The first `longest` characters of a text, and the number of characters left out.
pub fn shorten(text: &str, longest: usize) -> String {
    match text.char_indices().nth(longest) {
        None => text.to_owned(),
        Some((end, _)) => {
            let more = group_digits(text[end..].chars().count() as u64);
            format!("{}\u{2026} ({more} more characters)", text[..end].trim_end())
        }
    }
}

/// At most `width` characters of a line, with an ellipsis if some are left out.
pub fn ellipsis(line: &str, width: usize) -> String {
    if line.chars().count() <= width {
        return line.to_owned();
    }
    line.chars().take(width - 1).collect::<String>().trim_end().to_owned() + "\u{2026}"
}

/// Makes external text safe to show as several lines on a terminal.
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
