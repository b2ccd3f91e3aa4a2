//! Modifiers of RFC 2544 section 11: load on a router in addition to the frames of a test.

use crate::param::ChoiceWord;
use crate::trial::TrialSpec;
use std::fmt;

/// Additional load on a router during a test (RFC 2544 section 11).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Modifier {
    /// No additional load.
    #[default]
    None,
    /// One frame in a hundred goes to the hardware broadcast address (section 11.1).
    Broadcast,
    /// One management query to the router per second (section 11.2).
    Management,
    /// Route changes that do not affect the test frames (section 11.3).
    RoutingUpdate,
    /// Packet filters; only the last condition permits the test frames (section 11.4).
    Filters {
        /// Number of conditions, including the one that permits the frames.
        conditions: u64,
    },
}

/// Conditions of the larger filter of RFC 2544 section 11.4.
pub const RFC_CONDITIONS: u64 = 25;

impl fmt::Display for Modifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl ChoiceWord for Modifier {
    const WORDS: &'static [&'static str] = &["none", "broadcast", "management", "routing_update", "filters"];

    fn of_word(word: &str) -> Option<Self> {
        std::iter::once(Modifier::None).chain(Modifier::SOME).find(|modifier| modifier.word() == word)
    }

    fn to_word(&self) -> &'static str {
        self.word()
    }
}

impl Modifier {
    /// All modifiers except [`Modifier::None`].
    pub const SOME: [Modifier; 4] = [
        Modifier::Broadcast,
        Modifier::Management,
        Modifier::RoutingUpdate,
        Modifier::Filters { conditions: RFC_CONDITIONS },
    ];

    /// As written in suite files, without the number of conditions.
    pub const fn word(self) -> &'static str {
        match self {
            Modifier::None => "none",
            Modifier::Broadcast => "broadcast",
            Modifier::Management => "management",
            Modifier::RoutingUpdate => "routing_update",
            Modifier::Filters { .. } => "filters",
        }
    }

    /// The modifier of a trial, if its flows show it. Queries and route changes are events of the trial, and the record
    /// of a trial shows whether there were filters.
    pub fn of_frames(spec: &TrialSpec) -> Modifier {
        if spec.flows.iter().any(|flow| flow.background) { Modifier::Broadcast } else { Modifier::None }
    }

    /// Adds the modifier to the `key` of a figure: `throughput_64_broadcast_pps`.
    pub fn figure_key(self, key: &str, size: &str) -> String {
        match self {
            Modifier::None => key.to_owned(),
            some => key.replacen(&format!("_{size}_"), &format!("_{}_", some.size_word(size)), 1),
        }
    }

    /// Adds the modifier to a frame size, as in the keys of figures: `64_broadcast`.
    pub fn size_word(self, size: &str) -> String {
        if self == Modifier::None { size.to_owned() } else { format!("{size}_{self}") }
    }

    /// Reads the modifier from the key of a figure. It follows the frame size, so it is never the second word;
    /// `latency_filters_64_25_percent` has none.
    pub fn of_figure(key: &str) -> Modifier {
        let has = |modifier: &Modifier| {
            key.split_once(&format!("_{modifier}_")).is_some_and(|(before, _)| before.contains('_'))
        };
        Modifier::SOME.into_iter().find(has).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_figures_tell_the_modifier() {
        for modifier in [Modifier::None].into_iter().chain(Modifier::SOME) {
            let key = modifier.figure_key("throughput_64_pps", "64");
            assert_eq!(Modifier::of_figure(&key), modifier, "{key}");
            assert_eq!(Modifier::of_word(modifier.word()), Some(modifier));
            assert!(Modifier::WORDS.contains(&modifier.word()));
        }
        assert_eq!(Modifier::of_figure("latency_filters_64_25_percent"), Modifier::None);
        let few = Modifier::Filters { conditions: 1 };
        assert_eq!(few.figure_key("throughput_64_pps", "64"), "throughput_64_filters_pps");
        assert_eq!(Modifier::Broadcast.figure_key("throughput_64_pps", "64"), "throughput_64_broadcast_pps");
        assert_eq!(
            Modifier::RoutingUpdate.figure_key("latency_imix_50_ns", "imix"),
            "latency_imix_routing_update_50_ns"
        );
    }
}
