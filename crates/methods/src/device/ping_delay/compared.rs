//! The figures of one frame size, over all IP versions.

use super::{ANSWER, ANSWERED, DELAY, Way};
use crate::kit::prelude::*;

/// Median delay of one way, in µs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Delay {
    /// Without the tester's share.
    Measured(f64),
    /// The tester's share is longer than the measured time, so it hides the delay. The whole time, including the
    /// tester's share, is an upper bound.
    AtMost(f64),
}

impl Delay {
    pub(super) fn measured(self) -> Option<f64> {
        if let Delay::Measured(us) = self { Some(us) } else { None }
    }

    fn most(self) -> f64 {
        match self {
            Delay::Measured(us) | Delay::AtMost(us) => us,
        }
    }

    /// The longer of the two delays, or an upper bound if it is unclear which one is longer.
    fn slower(self, other: Delay) -> Delay {
        let (long, short) = if self.most() < other.most() { (other, self) } else { (self, other) };
        // If both are equal, prefer the measured one, which is exact.
        if long.most() > short.most() || long.measured().is_some() { long } else { short }
    }
}

/// Figures of one frame size, taken from its slowest IP version.
#[derive(Default)]
pub(super) struct Compared {
    through: Option<Delay>,
    to: Option<Delay>,
    answered_percent: Option<f64>,
}

impl Compared {
    pub(super) fn take(&mut self, way: Way, delay: Option<Delay>, answered_percent: Option<f64>) {
        let slowest = match way {
            Way::Through => &mut self.through,
            Way::To => &mut self.to,
        };
        *slowest = (*slowest).into_iter().chain(delay).reduce(Delay::slower);
        let least = self.answered_percent.into_iter().chain(answered_percent);
        self.answered_percent = least.min_by(f64::total_cmp);
    }

    /// Adds the figures of a size. If there was no reply at all, the figure has no value, because the router failed.
    pub(super) fn rank(&self, outcome: &mut Outcome, size: &PacketSize, ways: &[Way]) {
        for (way, delay, spec, title) in
            [(Way::Through, self.through, DELAY, "Delay by ping"), (Way::To, self.to, ANSWER, "Answer to a ping")]
        {
            if ways.contains(&way) {
                let us = delay.map(Delay::most);
                let figure = spec.of(&[("size", size)], format!("{title}, {size}"), us);
                let tester_limited = matches!(delay, Some(Delay::AtMost(_)));
                outcome.ranks.push(RankFigure { tester_limited, ..figure });
            }
        }
        outcome.ranks.push(ANSWERED.of(&[("size", size)], format!("Pings answered, {size}"), self.answered_percent));
    }
}

#[cfg(test)]
mod tests {
    use super::Delay::{AtMost, Measured};
    use super::*;
    use drophammer_model::figure::{Figure, RoundFigure};

    #[test]
    fn the_slowest_family_and_the_least_answered_way_are_compared() {
        let mut compared = Compared::default();
        compared.take(Way::Through, Some(Measured(3.0)), Some(100.0));
        compared.take(Way::To, Some(Measured(9.0)), Some(50.0));
        compared.take(Way::Through, Some(Measured(4.0)), Some(100.0));
        compared.take(Way::To, None, Some(0.0));
        assert_eq!((compared.through, compared.to), (Some(Measured(4.0)), Some(Measured(9.0))));
        assert_eq!(compared.answered_percent, Some(0.0));
    }

    #[test]
    fn a_router_that_the_tester_hides_has_a_bound_and_one_that_is_silent_has_failed() {
        let round = |delays: &[Option<Delay>]| {
            let (mut compared, mut outcome) = (Compared::default(), Outcome::default());
            delays.iter().for_each(|delay| compared.take(Way::To, *delay, Some(100.0)));
            compared.rank(&mut outcome, &"64".parse().unwrap(), &[Way::To]);
            assert_eq!((outcome.ranks.len(), outcome.ranks[0].key.as_str()), (2, "ping_answer_64_us"));
            outcome.ranks[0].round()
        };
        let measured = RoundFigure::Measured;
        assert_eq!(round(&[Some(AtMost(5.0))]), measured(Figure::at_most(5.0)));
        assert_eq!(round(&[None]), RoundFigure::Failed);
        // It is certain which family is slower only if the bound of the other one is no higher.
        for families in [[AtMost(5.0), Measured(5.0)], [Measured(5.0), AtMost(5.0)], [AtMost(4.0), Measured(5.0)]] {
            assert_eq!(round(&families.map(Some)), measured(Figure::exactly(5.0)));
        }
        assert_eq!(round(&[Some(Measured(3.0)), Some(AtMost(5.0))]), measured(Figure::at_most(5.0)));
    }
}
