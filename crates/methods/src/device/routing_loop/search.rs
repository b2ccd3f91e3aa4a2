//! The highest load without loss, and overload.

use super::circled::{Circled, circled, first_of};
use super::counted::Ended;
use super::{Circle, OVERLOAD, PRECISION, rows};
use crate::kit::prelude::*;
use crate::pattern::{RETREAT, RETREATS};
use crate::trial::Stillness;

/// Settings of the search for one size.
pub(super) struct Setting<'a> {
    pub circle: &'a Circle,
    pub pattern: &'a Pattern,
    pub params: &'a Params,
    pub stillness: Stillness,
    /// Length of a trial in seconds.
    pub trial_s: f64,
    /// Bytes of the injected packets.
    pub ip_bytes: u16,
    /// Latest possible time at which the last packet of a trial without queueing was in the tunnel.
    pub alone: Duration,
}

impl Setting<'_> {
    /// Returns why a load without loss cannot be sustained, if buffers absorbed packets.
    fn filling(&self, of: &Circled) -> Option<String> {
        let drain = Drain {
            longer: of.longer_than(self.alone),
            at_most: of.in_tunnel.at_most.saturating_sub(self.alone),
            wan_percent: rows::wan_share(self.circle, self.ip_bytes, of),
        };
        let precision = PRECISION.get(self.params).0;
        drain.filling(precision, self.trial_s, self.alone.max(self.stillness.step))
    }

    /// Repeats the accounting trial. If packets are lost now, returns a description of where.
    pub(super) fn sticks(
        &self,
        bed: &mut dyn Testbed,
        accounting: &TrialSpec,
        after: &str,
    ) -> Result<Option<String>, TestError> {
        let spec = TrialSpec { purpose: format!("{}, after {after}", accounting.purpose), ..accounting.clone() };
        let again = circled(bed, self.circle, &spec, self.stillness)?;
        bed.settle(PAUSE.get(self.params))?;
        let ended: Vec<String> = again.ended.iter().map(Ended::text).collect();
        Ok((!again.is_lossless())
            .then(|| format!("after {after} the loop no longer carries the lowest load: {}", first_of(&ended))))
    }

    fn trial(&self, bed: &mut dyn Testbed, what: &str, rate: FrameRate, trial_s: f64) -> Result<Circled, TestError> {
        let spec = self.circle.trial(bed, &self.pattern.size, what, rate, trial_s);
        let done = circled(bed, self.circle, &spec, self.stillness)?;
        bed.settle(PAUSE.get(self.params))?;
        Ok(done)
    }
}

/// What a trial without loss shows about full buffers.
struct Drain {
    /// Minimum time by which its packets circulated longer than without queueing.
    longer: Duration,
    /// Maximum of this time, because reading the counters takes time.
    at_most: Duration,
    /// Load of a direction of the WAN link, in per cent of its speed; `None` if it has no speed.
    wan_percent: Option<f64>,
}

impl Drain {
    /// Returns why the load cannot be sustained, if buffers absorbed packets that the loop cannot carry in the long
    /// run. Buffered packets have many rounds left, so they circulate for about as long as the load was too high. A
    /// time of at most `precision` per cent of the trial does not distort the figure. A time longer than `alone`, a
    /// doubling, cannot be due to slow readings.
    fn filling(&self, precision: f64, trial_s: f64, alone: Duration) -> Option<String> {
        let allowed = Duration::from_secs_f64(precision / 100.0 * trial_s);
        // A link that was offered more than it carries has filled a buffer, whatever the readings show.
        let ms = |time: Duration| (time.as_secs_f64() * 1e3).round();
        let why = match self.wan_percent {
            Some(percent) if percent > 100.0 + precision => format!("the load takes {percent:.1} % of the WAN link"),
            _ if self.longer > allowed => {
                format!("packets circulated {} ms longer than without queueing", ms(self.longer))
            }
            _ if self.at_most > allowed + alone => {
                format!("packets circulated up to {} ms longer than without queueing", ms(self.at_most))
            }
            _ => return None,
        };
        Some(format!("{why}: buffers were filling"))
    }
}

/// The highest load without loss.
pub(super) struct Found {
    pub best: Circled,
    /// True if packets were lost at some rate, or if buffers filled.
    pub was_lossy: bool,
    /// True if the tester could not offer more.
    pub tester_limited: bool,
    /// True if the suite allows no higher load (`max_load`), and nothing was lost.
    pub capped: bool,
}

/// Above this ratio of the bounds, the next rate is their geometric mean.
const FAR: f64 = 4.0;

/// Searches between the rate of `accounted`, at which nothing was lost, and the highest possible rate.
pub(super) fn highest(
    bed: &mut dyn Testbed,
    setting: &Setting<'_>,
    accounted: Circled,
    outcome: &mut Outcome,
) -> Result<Found, TestError> {
    let limits = setting.pattern.limits(bed);
    let links = setting.circle.most(setting.ip_bytes);
    let asked = MAX_LOAD.get(setting.params);
    let by_suite = asked.is_some_and(|asked| links.is_none_or(|links| asked.pps() < links.pps()));
    let by_links = links.map_or(f64::INFINITY, FrameRate::pps).min(asked.map_or(f64::INFINITY, FrameRate::pps));
    let mut top = by_links.min(limits.max.pps());
    let mut by_tester = limits.max.pps() < by_links;
    let (mut best, mut retreats) = (accounted, 0);
    // Tries the top first, because it is not known to lose packets.
    let mut lossy: Option<f64> = None;
    let mut filling = None;
    let width = PRECISION.get(setting.params).0 / 100.0;
    loop {
        let low = best.rate().pps();
        let rate = match lossy {
            None => top,
            Some(high) if high - low <= width * high => break,
            Some(high) if high > FAR * low => (high * low).sqrt(),
            Some(high) => (high + low) / 2.0,
        };
        if rate <= low {
            break;
        }
        match setting.trial(bed, "search", FrameRate(rate), setting.trial_s) {
            Ok(done) => {
                let absorbed = setting.filling(&done);
                if done.is_lossless() && absorbed.is_none() {
                    best = done;
                    if lossy.is_none() {
                        break;
                    }
                    continue;
                }
                (lossy, by_tester) = (Some(rate), false);
                filling = absorbed.filter(|_| done.is_lossless()).map(|why| (done.rate(), why));
            }
            Err(TestError::Unfit(why)) if retreats < RETREATS => {
                retreats += 1;
                note_unfit(outcome, setting.pattern, "not tried:", FrameRate(rate), &why);
                top = rate * RETREAT;
                // Rates above this are unknown; the search continues below.
                (lossy, by_tester) = (lossy.map(|_| top), true);
            }
            Err(other) => return Err(other),
        }
    }
    if let Some((rate, why)) = filling {
        note_of(outcome, setting.pattern, format!("at {rate} nothing was lost, but {why}"));
    }
    if lossy.is_none() && !by_tester {
        let what = if links.is_some_and(|links| links.pps() <= top) {
            "the links cannot carry more IP packets, and nothing was lost"
        } else {
            "no higher load was tried, and nothing was lost"
        };
        note_of(outcome, setting.pattern, what);
    }
    let capped = lossy.is_none() && !by_tester && by_suite;
    Ok(Found { best, was_lossy: lossy.is_some(), tester_limited: by_tester, capped })
}

/// Measures the rates of all interfaces at twice the highest load without loss, or at the load from the suite.
pub(super) fn overload(
    bed: &mut dyn Testbed,
    setting: &Setting<'_>,
    highest: FrameRate,
    outcome: &mut Outcome,
) -> Result<(), TestError> {
    let limits = setting.pattern.limits(bed);
    let wanted = OVERLOAD.get(setting.params).unwrap_or(highest.scaled(2.0));
    let rate = FrameRate(wanted.pps().min(limits.max.pps()));
    if rate.pps() < wanted.pps() {
        deviate(outcome, setting.pattern, format!("overload of {rate} instead of {wanted}"));
    }
    let mut done = Vec::new();
    for times in [1.0, 2.0] {
        match setting.trial(bed, "overload", rate, times * setting.trial_s) {
            Ok(circled) => done.push(circled),
            Err(TestError::Unfit(why)) => {
                note_unfit(outcome, setting.pattern, "no overload:", rate, &why);
                return Ok(());
            }
            Err(other) => return Err(other),
        }
    }
    let [short, long] = &done[..] else { return Ok(()) };
    if long.is_lossless() {
        note_of(outcome, setting.pattern, format!("no packet was lost at {rate} either"));
    }
    rows::overloaded(outcome, setting.circle, setting.pattern, short, long);
    rows::rates(outcome, setting.circle, setting.pattern, "overload", &[short, long]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: Duration = Duration::from_millis(300);

    /// Returns true if this trial of 5 s, whose packets circulated longer by these milliseconds, filled buffers; 3 %
    /// are allowed.
    fn fills(longer: u64, at_most: u64, wan_percent: Option<f64>) -> bool {
        let ms = Duration::from_millis;
        Drain { longer: ms(longer), at_most: ms(at_most), wan_percent }.filling(3.0, 5.0, ALONE).is_some()
    }

    #[test]
    fn what_goes_on_for_longer_than_the_precision_fills_buffers() {
        assert!(!fills(0, 0, None));
        assert!(!fills(150, 150, None) && fills(151, 151, None));
    }

    #[test]
    fn slow_readings_fill_none_up_to_twice_the_time_without_queueing() {
        assert!(!fills(0, 450, None) && fills(0, 451, None));
    }

    #[test]
    fn a_link_that_had_more_than_it_carries_filled_buffers_whatever_the_readings_say() {
        assert!(!fills(0, 0, Some(103.0)) && fills(0, 0, Some(104.5)));
        let drain = Drain { longer: Duration::ZERO, at_most: Duration::ZERO, wan_percent: Some(104.5) };
        let why = drain.filling(3.0, 5.0, ALONE).unwrap();
        assert_eq!(why, "the load takes 104.5 % of the WAN link: buffers were filling");
    }
}
