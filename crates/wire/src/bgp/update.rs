//! UPDATE (RFC 4271 section 4.3): announced and withdrawn routes.
//!
//! ```text
//! +-----------------------------------------------------+
//! |   Withdrawn Routes Length (2)                       |
//! +-----------------------------------------------------+
//! |   Withdrawn Routes: NLRI of IPv4 unicast            |
//! +-----------------------------------------------------+
//! |   Total Path Attribute Length (2)                   |
//! +-----------------------------------------------------+
//! |   Path Attributes; routes of all other families     |
//! |   are in MP_REACH_NLRI and MP_UNREACH_NLRI          |
//! +-----------------------------------------------------+
//! |   Network Layer Reachability Information: announced |
//! |   routes of IPv4 unicast                            |
//! +-----------------------------------------------------+
//! ```
//!
//! [`packer`] writes whole messages directly into a send buffer, with [`attributes`] that are encoded once per group of
//! routes. [`walker`] parses a message without copying, and handles errors as RFC 7606 requires. [`nlri`] is one route.

pub mod as_path;
pub mod attributes;
pub mod nlri;
pub mod packer;
pub mod walker;

pub use as_path::AsPath;
pub use attributes::Attributes;
pub use nlri::{Labels, Nlri};
pub use packer::Packer;
pub use walker::{Context, Fault, Treatment, Update};

use super::AfiSafi;

/// A set of families, among the six supported ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FamilySet(u8);

impl FamilySet {
    /// No family.
    pub const NONE: FamilySet = FamilySet(0);

    fn bit(family: AfiSafi) -> u8 {
        AfiSafi::ALL.iter().position(|f| *f == family).map_or(0, |at| 1 << at)
    }

    /// These families, without unsupported ones.
    pub fn of(families: impl IntoIterator<Item = AfiSafi>) -> FamilySet {
        FamilySet(families.into_iter().fold(0, |bits, family| bits | FamilySet::bit(family)))
    }

    /// True if the set contains this family.
    #[inline]
    pub fn has(self, family: AfiSafi) -> bool {
        self.0 != 0 && self.0 & FamilySet::bit(family) != 0
    }
}

/// Families whose routes have label stacks (RFC 8277 section 2.3), each with the highest number of labels: 2 or more, 255 for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LabelStacks([u8; AfiSafi::ALL.len()]);

impl LabelStacks {
    /// No family.
    pub const NONE: LabelStacks = LabelStacks([0; AfiSafi::ALL.len()]);

    /// These families, without unsupported ones.
    pub fn of(families: impl IntoIterator<Item = (AfiSafi, u8)>) -> LabelStacks {
        let mut all = LabelStacks::NONE;
        for (family, most) in families {
            if let Some(at) = AfiSafi::ALL.iter().position(|known| *known == family) {
                all.0[at] = most;
            }
        }
        all
    }

    /// The highest number of labels in this family; `None` if its routes have no stacks.
    #[inline]
    pub fn most(self, family: AfiSafi) -> Option<u8> {
        let at = AfiSafi::ALL.iter().position(|known| *known == family)?;
        Some(self.0[at]).filter(|most| *most > 1)
    }
}

/// True if routes of this family can be written and parsed.
pub fn is_known(family: AfiSafi) -> bool {
    FamilySet::bit(family) != 0
}
