//! Modifiers of RFC 2544 section 11: additional load on a router beside the frames of a test.

use crate::trial::TrialSpec;

crate::choice! {
    /// What is sent beside the frames of a test (RFC 2544 section 11). Filters (section 11.4) have their own test.
    #[derive(Default)]
    pub enum Modifier {
        /// Nothing.
        #[default]
        None = "none",
        /// One frame in a hundred goes to the hardware broadcast address (section 11.1).
        Broadcast = "broadcast",
        /// One management query to the router per second (section 11.2).
        Management = "management",
        /// Changes of routes that no test frame uses (section 11.3).
        RoutingUpdate = "routing_update",
    }
}

impl Modifier {
    /// All modifiers except [`Modifier::None`].
    pub const SOME: [Modifier; 3] = [Modifier::Broadcast, Modifier::Management, Modifier::RoutingUpdate];

    /// The modifier of a trial, as far as its frames show it. Queries and changes of routes are events of a trial.
    pub fn of_frames(spec: &TrialSpec) -> Modifier {
        if spec.flows.iter().any(|flow| flow.background) { Modifier::Broadcast } else { Modifier::None }
    }

    /// The key of a figure with this modifier, from its `key` without: `throughput_64_broadcast_pps`.
    pub fn figure_key(self, key: &str, size: &str) -> String {
        match self {
            Modifier::None => key.to_owned(),
            some => key.replacen(&format!("_{size}_"), &format!("_{}_", some.size_word(size)), 1),
        }
    }

    /// A frame size with the modifier, as in keys of figures: `64_broadcast`.
    pub fn size_word(self, size: &str) -> String {
        if self == Modifier::None { size.to_owned() } else { format!("{size}_{self}") }
    }

    /// The modifier of the figure with this key.
    pub fn of_figure(key: &str) -> Modifier {
        let has = |modifier: &Modifier| key.contains(&format!("_{modifier}_"));
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
        }
        assert_eq!(Modifier::Broadcast.figure_key("throughput_64_pps", "64"), "throughput_64_broadcast_pps");
        assert_eq!(
            Modifier::RoutingUpdate.figure_key("latency_imix_50_ns", "imix"),
            "latency_imix_routing_update_50_ns"
        );
    }
}
