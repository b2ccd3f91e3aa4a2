//! Declares a figure of a test: its key, its unit, which value is better, and what it means.

use drophammer_model::figure::Scale;
use drophammer_model::outcome::RankFigure;
use drophammer_model::registry::FigureShape;
use drophammer_model::trial::Family;
use std::fmt::Display;

/// A figure by which routers are ranked. A test lists it in its
/// [`TestSpec::figures`](drophammer_model::registry::TestSpec) and creates it with [`FigureSpec::of`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FigureSpec {
    key: &'static str,
    unit: &'static str,
    help: &'static str,
    better: Better,
}

/// Which of two values is better, and the difference from which they are not equal.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Better {
    Higher,
    Lower,
    /// Like [`Better::LowerBy`], but higher is better.
    HigherBy(Option<f64>),
    /// Figures that can be 0 are compared by difference. Two figures that differ by less than this are equal; `None`
    /// until the value is known.
    LowerBy(Option<f64>),
}

impl FigureSpec {
    /// A figure for which higher is better, compared by ratio. `key` has placeholders for what the figure describes:
    /// `throughput_{size}_pps`.
    pub const fn higher(key: &'static str, unit: &'static str, help: &'static str) -> FigureSpec {
        FigureSpec { key, unit, help, better: Better::Higher }
    }

    /// A figure for which lower is better, compared by ratio.
    pub const fn lower(key: &'static str, unit: &'static str, help: &'static str) -> FigureSpec {
        FigureSpec { key, unit, help, better: Better::Lower }
    }

    /// A figure that can be 0 and for which lower is better. It also needs [`FigureSpec::by`].
    pub const fn lower_by_difference(key: &'static str, unit: &'static str, help: &'static str) -> FigureSpec {
        FigureSpec { key, unit, help, better: Better::LowerBy(None) }
    }

    /// A figure that can be 0 and for which higher is better. It also needs [`FigureSpec::by`].
    pub const fn higher_by_difference(key: &'static str, unit: &'static str, help: &'static str) -> FigureSpec {
        FigureSpec { key, unit, help, better: Better::HigherBy(None) }
    }

    /// Adds the least difference, in the figure's unit: figures that differ by less count as equal. Set it in the
    /// constant, unless only the measurement determines it.
    #[must_use]
    pub const fn by(self, least: f64) -> FigureSpec {
        let better = match self.better {
            Better::Higher | Better::HigherBy(_) => Better::HigherBy(Some(least)),
            Better::Lower | Better::LowerBy(_) => Better::LowerBy(Some(least)),
        };
        FigureSpec { better, ..self }
    }

    /// Description of the figure for the registry.
    pub const fn shape(&self) -> FigureShape {
        FigureShape { key: self.key, help: self.help }
    }

    /// The figure of a router. `parts` fill the placeholders of the key, as (name, text).
    pub fn of(&self, parts: &[(&str, &dyn Display)], title: impl Into<String>, value: Option<f64>) -> RankFigure {
        let figure = RankFigure::new(self.filled(parts), title, self.unit, value);
        match self.better {
            Better::Higher => RankFigure { higher_is_better: true, ..figure },
            Better::Lower => figure,
            Better::LowerBy(least) | Better::HigherBy(least) => {
                debug_assert!(least.is_some(), "{}: the least difference is missing", self.key);
                let least = least.unwrap_or_default();
                let higher_is_better = matches!(self.better, Better::HigherBy(_));
                RankFigure { higher_is_better, scale: Scale::Difference, least, resolution: least, ..figure }
            }
        }
    }

    /// The key with its placeholders filled.
    fn filled(&self, parts: &[(&str, &dyn Display)]) -> String {
        let (mut key, mut rest) = (String::new(), self.key);
        while let Some((literal, (name, tail))) =
            rest.split_once('{').and_then(|(literal, tail)| Some((literal, tail.split_once('}')?)))
        {
            let part = parts.iter().find(|(given, _)| *given == name);
            debug_assert!(part.is_some(), "{}: `{name}` is missing", self.key);
            key += literal;
            key += &part.map_or_else(String::new, |(_, part)| part.to_string());
            rest = tail;
        }
        for (name, _) in parts {
            debug_assert!(self.key.contains(&format!("{{{name}}}")), "{}: `{name}` is not part of it", self.key);
        }
        key + rest
    }
}

/// Picks the figure of a family from those of IPv4 and IPv6.
pub(crate) fn of_family(both: &[FigureSpec; 2], family: Family) -> FigureSpec {
    both[usize::from(family == Family::Ipv6)]
}

/// The word for a family in keys, such as `ipv4`.
pub(crate) fn word(family: Family) -> String {
    family.to_string().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_gets_its_parts_by_name() {
        let figure = FigureSpec::higher("flood_{target}_{size}_percent", "%", "a share");
        let made = figure.of(&[("size", &64), ("target", &"own")], "Answered", Some(5.0));
        assert_eq!((&*made.key, &*made.unit, made.higher_is_better), ("flood_own_64_percent", "%", true));
        assert_eq!(figure.shape().key, "flood_{target}_{size}_percent");
        assert_eq!(FigureSpec::lower("bgp_sessions_s", "s", "").of(&[], "Time", None).key, "bgp_sessions_s");
    }

    #[test]
    fn figures_that_may_be_0_are_compared_by_difference() {
        let figure = FigureSpec::lower_by_difference("lost", "frames", "frames lost").by(1.0);
        let made = figure.of(&[], "Lost", Some(0.0));
        assert_eq!((made.scale, made.least, made.resolution), (Scale::Difference, 1.0, 1.0));
        assert_eq!(figure.by(0.5).of(&[], "Lost", None).least, 0.5);
        let growth = FigureSpec::higher_by_difference("growth", "%", "growth of a rate").by(0.5);
        assert!(growth.of(&[], "Growth", Some(-1.0)).higher_is_better && !made.higher_is_better);
    }

    #[test]
    #[should_panic(expected = "lost_{size}: `size` is missing")]
    fn a_key_without_one_of_its_parts_is_a_mistake() {
        FigureSpec::lower("lost_{size}", "frames", "").of(&[], "Lost", None);
    }

    #[test]
    #[should_panic(expected = "lost_{size}: `family` is not part of it")]
    fn a_part_that_the_key_does_not_have_is_a_mistake() {
        FigureSpec::lower("lost_{size}", "frames", "").of(&[("size", &64), ("family", &"ipv4")], "Lost", None);
    }

    #[test]
    #[should_panic(expected = "lost: the least difference is missing")]
    fn a_figure_compared_by_difference_without_the_least_is_a_mistake() {
        FigureSpec::lower_by_difference("lost", "frames", "").of(&[], "Lost", None);
    }
}
