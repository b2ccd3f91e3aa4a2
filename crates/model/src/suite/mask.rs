//! The secrets of a suite, hidden in texts that are stored or shown.

use serde_json::Value;
use std::borrow::Cow;
use std::fmt;

/// The secrets of a suite; empty by default.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Mask(Vec<String>);

impl fmt::Debug for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mask of {}", self.0.len())
    }
}

impl Mask {
    /// Minimum number of bytes of a secret that is hidden within other texts. A shorter secret would also match within
    /// ordinary words.
    pub const LEAST: usize = 4;

    /// A mask of all secrets with at least 4 bytes.
    pub fn of<'s>(secrets: impl IntoIterator<Item = &'s str>) -> Mask {
        let long = |secret: &&str| secret.len() >= Mask::LEAST && *secret != Secret::HIDDEN;
        let mut secrets: Vec<String> = secrets.into_iter().filter(long).map(str::to_owned).collect();
        // A secret may be part of another one.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Mask(secrets)
    }

    /// True if there are no secrets.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if this text contains no secret.
    pub fn leaves(&self, text: &str) -> bool {
        !self.0.iter().any(|secret| text.contains(secret))
    }

    /// The text with [`Secret::HIDDEN`] in place of secrets, even within words.
    pub fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.0.iter().fold(Cow::Borrowed(text), |text, secret| match text.contains(secret) {
            true => Cow::Owned(text.replace(secret, Secret::HIDDEN)),
            false => text,
        })
    }

    /// Like [`Mask::text`], for a message with quotations that may be cut off (`…`) within a secret.
    pub fn message(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.0 {
            let beginnings = secret.char_indices().map(|(at, _)| at).filter(|at| *at >= Mask::LEAST).rev();
            for at in beginnings.collect::<Vec<_>>() {
                text = text.replace(&format!("{}\u{2026}", &secret[..at]), &format!("{}\u{2026}", Secret::HIDDEN));
            }
        }
        self.text(&text).into_owned()
    }

    /// Hides secrets in all strings of a value, but not in the keys of its maps.
    pub fn json(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Cow::Owned(masked) = self.text(text) {
                    *text = masked;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.json(item)),
            Value::Object(entries) => entries.values_mut().for_each(|value| self.json(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// A text that must not appear in records, reports or messages.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The text that replaces a secret in stored files.
    pub const HIDDEN: &'static str = "<secret>";

    /// Wraps a text.
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// Returns the text.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Secret::HIDDEN)
    }
}

/// Protection against segments that do not come from the peer; none by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BgpProtection {
    /// Key with which both sides sign their segments: TCP MD5 (RFC 2385).
    pub md5: Option<Secret>,
    /// Segments must come from a neighbour on the link: GTSM (RFC 5082).
    pub gtsm: bool,
}

impl BgpProtection {
    /// True if there is no protection.
    pub fn is_none(&self) -> bool {
        *self == BgpProtection::default()
    }

    /// A mask that hides the key in other texts.
    pub fn mask(&self) -> Mask {
        Mask::of(self.md5.as_ref().map(Secret::expose))
    }

    /// A copy with [`Secret::HIDDEN`] in place of the key.
    pub fn without_secrets(&self) -> BgpProtection {
        BgpProtection { md5: self.md5.as_ref().map(|_| Secret::new(Secret::HIDDEN)), gtsm: self.gtsm }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn secrets_are_hidden_within_other_texts() {
        let mask = Mask::of(["sesame", "sesame4711", "abc", Secret::HIDDEN]);
        assert_eq!(mask.text("./set --key=sesame4711 sesame abc"), "./set --key=<secret> <secret> abc");
        assert!(mask.leaves("abc") && !mask.leaves("xsesamex") && Mask::default().leaves("sesame"));
        let mut value = json!({"config": [["setup", "./set sesame"], 1, true, null], "sesame": "x"});
        mask.json(&mut value);
        assert_eq!(value, json!({"config": [["setup", "./set <secret>"], 1, true, null], "sesame": "x"}));
        let message = "`./set sesame47\u{2026}`, `sesame\u{2026}`, `x ses\u{2026}`, sesame";
        let masked = "`./set <secret>\u{2026}`, `<secret>\u{2026}`, `x ses\u{2026}`, <secret>";
        assert_eq!(mask.message(message), masked);
        assert_eq!(format!("{mask:?}"), "Mask of 2");
    }
}
