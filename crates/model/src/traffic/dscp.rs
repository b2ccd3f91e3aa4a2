//! Names of differentiated services codepoints.

/// Names other than `cs0` to `cs7` and `af11` to `af43`: the default (RFC 2474), lower effort (RFC 8622), voice admit (RFC
/// 5865), expedited forwarding (RFC 3246).
const NAMES: [(&str, u8); 7] =
    [("be", 0), ("df", 0), ("default", 0), ("le", 1), ("va", 44), ("voice-admit", 44), ("ef", 46)];

/// Reads a codepoint: a number from 0 to 63, or a name such as `ef`, `af41` or `cs6`.
///
/// # Errors
/// The message lists the valid forms.
pub fn parse_dscp(text: &str) -> Result<u8, String> {
    let word = text.trim().to_ascii_lowercase();
    let digit = |at: usize, least: u8, most: u8| {
        let digit = word.as_bytes().get(at).map(|byte| byte.wrapping_sub(b'0'));
        digit.filter(|digit| (least..=most).contains(digit))
    };
    let class = match word.get(..2) {
        // RFC 2474 section 4.2.2.
        Some("cs") if word.len() == 3 => digit(2, 0, 7).map(|class| class * 8),
        // RFC 2597 section 6.
        Some("af") if word.len() == 4 => digit(2, 1, 4).zip(digit(3, 1, 3)).map(|(class, drop)| class * 8 + drop * 2),
        _ => None,
    };
    let named = || NAMES.iter().find(|(name, _)| *name == word).map(|(_, value)| *value);
    let number = || word.parse::<u8>().ok().filter(|number| *number <= 63);
    class.or_else(named).or_else(number).ok_or_else(|| {
        let names = "`ef`, `af11` to `af43`, `cs0` to `cs7`, `va`, `le` or `be`";
        let what = if word.bytes().all(|b| b.is_ascii_digit()) { "is not in 0..=63" } else { "is no DSCP" };
        format!("{} {what}; write 0 to 63, or {names}", text.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_for_the_codepoints_of_the_rfcs() {
        for (text, value) in
            [("ef", 46), ("EF", 46), ("af41", 34), ("af11", 10), ("AF43", 38), ("cs6", 48), ("be", 0), ("46", 46)]
        {
            assert_eq!(parse_dscp(text), Ok(value), "{text}");
        }
        for text in ["64", "af44", "af51", "af4", "cs8", "cs", "-1", "", "eff", "ä1"] {
            let error = parse_dscp(text).unwrap_err();
            assert!(error.contains("; write 0 to 63, or `ef`"), "{text}: {error}");
        }
    }
}
