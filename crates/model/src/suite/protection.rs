//! Protection of BGP's TCP connections.

use super::Mask;
use std::fmt;

/// A text that must not appear in records, reports or messages.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Replaces it in stored files.
    pub const HIDDEN: &'static str = "<secret>";

    /// Wraps a text.
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The text.
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
