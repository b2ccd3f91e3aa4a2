//! Frames that the tester's ends of virtual links lost during a trial.

use drophammer_model::trial::PortIndex;
use drophammer_rig::{Act, Acts};

/// Returns the number of frames that the tester lost between two counts by port. Leaves out the ports of links that
/// `acts` took down: the device also counts the frames that it sent into such a link, and these losses are expected.
pub(super) fn lost_between(before: Option<&[u64]>, now: Option<&[u64]>, acts: Acts<'_>) -> u64 {
    let unplugged =
        |port: PortIndex| acts.iter().flatten().any(|(at, act)| *at == port && matches!(act, Act::Link(false)));
    let before = |port: PortIndex| before.and_then(|counts| counts.get(port)).copied().unwrap_or(0);
    let now = now.unwrap_or_default().iter().enumerate();
    now.filter(|(port, _)| !unplugged(*port)).map(|(port, lost)| lost.saturating_sub(before(port))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_ports_whose_links_went_down_may_lose_frames() {
        let lost = |acts: Acts<'_>| lost_between(Some(&[5, 7, 0]), Some(&[5, 20_007, 100]), acts);
        assert_eq!(lost(&[]), 20_100);
        // One event takes the link of port 2 down, a later one brings it up again.
        let failover = [vec![(2, Act::Link(false))], vec![(2, Act::Link(true))]];
        assert_eq!(lost(&failover), 20_000);
        assert_eq!(lost(&[vec![(1, Act::Link(true))]]), 20_100);
        assert_eq!(lost(&[vec![(1, Act::Link(false)), (2, Act::Link(false))]]), 0);
    }

    #[test]
    fn counts_that_are_not_known_are_none() {
        assert_eq!(lost_between(None, None, &[]), 0);
        assert_eq!(lost_between(None, Some(&[3, 4]), &[]), 7);
        assert_eq!(lost_between(Some(&[3]), None, &[]), 0);
        assert_eq!(lost_between(Some(&[3]), Some(&[1, 2]), &[]), 2, "a counter that began anew has lost nothing");
    }
}
