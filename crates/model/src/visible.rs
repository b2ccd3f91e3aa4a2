//! Makes hidden characters visible in text from outside (suites, DUTs, kernels). These are characters that hide,
//! reorder or erase the text around them.

use std::fmt::Write;

/// True if the character moves the cursor, changes the direction of the text around it, or has no width. This includes
/// line feed and tab.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            // Soft hyphen, Arabic letter mark, Mongolian vowel separator.
            '\u{ad}' | '\u{61c}' | '\u{180e}'
            // Zero width, direction marks, separators of lines and paragraphs, embeddings and overrides.
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            // Word joiner, invisible operators, isolates.
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            // Tags.
            | '\u{e0000}'..='\u{e007f}')
}

/// Returns the text with each hidden character written as `\u{1b}`, except those in `keep`.
pub fn visible(text: &str, keep: &[char]) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) && !keep.contains(&c) {
            let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    out
}

/// Returns the text on one line: line feeds and tabs become spaces, other hidden characters become visible.
pub fn one_line(text: &str) -> String {
    visible(&text.replace(['\n', '\t', '\r'], " "), &[])
}

/// Returns the text with each byte of a hidden character replaced by `?`, except line feeds and tabs. Byte offsets do
/// not change.
pub fn masked(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) && !matches!(c, '\n' | '\t' | '\r') {
            out.extend(std::iter::repeat_n('?', c.len_utf8()));
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_are_shown() {
        assert_eq!(one_line("a\x1b[31mb\nc\u{202e}d"), "a\\u{1b}[31mb c\\u{202e}d");
        assert_eq!(visible("a\n\tb\u{7}\u{9b}\u{e0041}", &['\n', '\t']), "a\n\tb\\u{7}\\u{9b}\\u{e0041}");
        for plain in ["Grüße \u{b5}s \u{2265} 1", "日本", "\u{1f600}", "\u{5d0}\u{627}"] {
            assert_eq!(one_line(plain), plain);
        }
    }

    #[test]
    fn masked_text_keeps_its_places() {
        let text = "a: \u{202e}b\x1b\nc: d";
        let masked = masked(text);
        assert_eq!(masked, "a: ???b?\nc: d");
        assert_eq!(masked.find("c:"), text.find("c:"));
    }
}
