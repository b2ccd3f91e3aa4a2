//! Turns the program of a stream into starts and stops of a flow of the rig.
//!
//! In the rig, a stream is a flow that has a frame due at every multiple of its interval, for as long as the traffic lasts. These
//! multiples number the frames. To send n frames, the stream is started before frame k and stopped before frame k + n, so exactly
//! n frames leave, whenever the client starts it. Commands are given shortly before they take effect, so that a client can still
//! stop or pause the stream.

use crate::build::Program;
use drophammer_rig::TransmitAction;
use std::time::Duration;

/// How long before its effect a command is given.
pub const LEAD: Duration = Duration::from_millis(5);

/// A frame that is due this soon leaves before a stop.
const CLOSE: Duration = Duration::from_millis(1);

/// State of a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// It does not send.
    Stopped,
    /// It waits for its next burst.
    Waiting { at: Duration },
    /// It sends up to, but not including, this frame.
    Sending { end: Option<u64> },
    /// All frames are due; some may not have left.
    Finishing,
    /// The client has paused it. `left` frames of the burst are still to be sent.
    Paused { left: Option<u64> },
}

/// A command to the flow of the rig, at a time of the traffic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Order {
    /// Start or stop.
    pub action: TransmitAction,
    /// When it takes effect, after the start of the traffic.
    pub at: Duration,
}

/// The run of a stream.
#[derive(Clone, Debug)]
pub struct Windows {
    program: Program,
    phase: Phase,
    bursts_left: Option<u64>,
    /// Frames, since it was started, that are due before its next start or stop.
    planned: u64,
    /// That number at the start of the burst, and the first frame of the burst.
    before_burst: (u64, u64),
    /// Time of the last command.
    ordered: Duration,
}

impl Windows {
    /// A stopped stream.
    pub fn new(program: Program) -> Windows {
        let (phase, ordered) = (Phase::Stopped, Duration::ZERO);
        Windows { program, phase, bursts_left: None, planned: 0, before_burst: (0, 0), ordered }
    }

    /// True while it sends, or will send without another command of the client.
    pub fn is_active(&self) -> bool {
        matches!(self.phase, Phase::Waiting { .. } | Phase::Sending { .. } | Phase::Finishing)
    }

    /// True if the client has paused it.
    pub fn is_paused(&self) -> bool {
        matches!(self.phase, Phase::Paused { .. })
    }

    /// The number of its frames, once all of them are due.
    pub fn finishing(&self) -> Option<u64> {
        (self.phase == Phase::Finishing).then_some(self.planned)
    }

    /// Records that all its frames have left.
    pub fn finish(&mut self) {
        self.phase = Phase::Stopped;
    }

    /// Starts its program at `now`.
    pub fn start(&mut self, now: Duration) {
        self.planned = 0;
        self.bursts_left = self.program.bursts;
        let nothing = self.program.frames == Some(0);
        self.phase = if nothing { Phase::Stopped } else { Phase::Waiting { at: now + self.program.delay } };
    }

    /// If it does not send: frames that leave, since it was started, until its next start.
    pub fn planned(&self) -> u64 {
        self.planned
    }

    /// Ends its program at `now`.
    pub fn stop(&mut self, now: Duration) -> Option<Order> {
        let order = self.interrupt(now).map(|(order, _)| order);
        self.phase = Phase::Stopped;
        order
    }

    /// Ends the burst at `now`. Returns how many of its frames are left.
    fn interrupt(&mut self, now: Duration) -> Option<(Order, Option<u64>)> {
        let Phase::Sending { end } = self.phase else { return None };
        let (next, at) = self.cut(now.max(self.ordered));
        let (next, at) = match end {
            Some(end) if end < next => (end, self.before(end)),
            _ => (next, at),
        };
        let (before, first) = self.before_burst;
        self.planned = before + next.saturating_sub(first);
        Some((self.order(TransmitAction::Stop, at), end.map(|end| end - next)))
    }

    /// The first frame that need not leave after `at`, and a moment before it. A slow flow must not send another frame long after
    /// it was stopped.
    fn cut(&self, at: Duration) -> (u64, Duration) {
        let next = (at.as_nanos() as f64 * self.program.rate_pps / 1e9).ceil() as u64;
        let due = self.time_of(next);
        if self.before(next) < at && due > at + CLOSE {
            return (next, at + (due - at) / 2);
        }
        let next = self.frame_from(at, at);
        (next, self.before(next))
    }

    /// Time between two frames.
    pub fn interval(&self) -> Duration {
        Duration::try_from_secs_f64(1.0 / self.program.rate_pps).unwrap_or(Duration::MAX)
    }

    /// Some of the frames that are planned did not leave. If it is paused before its end, they leave when it is resumed. Returns
    /// how many never leave.
    pub fn postpone(&mut self, frames: u64) -> u64 {
        let Phase::Paused { left: Some(left) } = &mut self.phase else { return frames };
        *left += frames;
        self.planned -= frames.min(self.planned);
        0
    }

    /// Ends a paused stream that has nothing left to send.
    pub fn rest(&mut self) {
        if self.phase == (Phase::Paused { left: Some(0) }) && self.bursts_left == Some(0) {
            self.phase = Phase::Stopped;
        }
    }

    /// Pauses it at `now`.
    pub fn pause(&mut self, now: Duration) -> Option<Order> {
        match self.phase {
            Phase::Waiting { .. } => self.phase = Phase::Paused { left: self.program.frames },
            Phase::Finishing => self.phase = Phase::Paused { left: Some(0) },
            _ => {}
        }
        let (order, left) = self.interrupt(now)?;
        self.phase = Phase::Paused { left };
        Some(order)
    }

    /// Lets a paused stream send again from `now` on.
    pub fn resume(&mut self, now: Duration) -> Option<Order> {
        let Phase::Paused { left } = self.phase else { return None };
        Some(self.burst(now, now, left))
    }

    /// The orders that are due at `now`.
    pub fn due(&mut self, now: Duration, orders: &mut Vec<Order>) {
        // Many short bursts may be due at the same time.
        for _ in 0..MOST_ORDERS {
            match self.phase {
                Phase::Waiting { at } if at <= now + LEAD => {
                    orders.push(self.burst(at, now, self.program.frames));
                }
                Phase::Sending { end: Some(end) } if self.before(end) <= now + LEAD => {
                    orders.push(self.order(TransmitAction::Stop, self.before(end)));
                    self.bursts_left = self.bursts_left.map(|left| left.saturating_sub(1));
                    self.phase = match self.bursts_left {
                        Some(0) => Phase::Finishing,
                        _ => Phase::Waiting { at: self.time_of(end - 1) + self.program.gap },
                    };
                }
                _ => return,
            }
        }
    }

    /// When [`Windows::due`] has the next order.
    pub fn next(&self) -> Option<Duration> {
        let at = match self.phase {
            Phase::Waiting { at } => at,
            Phase::Sending { end: Some(end) } => self.before(end),
            _ => return None,
        };
        Some(at.saturating_sub(LEAD))
    }

    /// Begins a burst at `at`, or as soon as possible after `now`.
    fn burst(&mut self, at: Duration, now: Duration, frames: Option<u64>) -> Order {
        let first = self.frame_from(at, now.max(self.ordered));
        self.before_burst = (self.planned, first);
        self.planned += frames.unwrap_or(0);
        let end = frames.map(|frames| first + frames);
        self.phase = Phase::Sending { end };
        self.order(TransmitAction::Start, self.before(first))
    }

    /// An order, not before the last one.
    fn order(&mut self, action: TransmitAction, at: Duration) -> Order {
        self.ordered = self.ordered.max(at);
        Order { action, at: self.ordered }
    }

    /// When frame `k` is due.
    fn time_of(&self, k: u64) -> Duration {
        Duration::from_nanos((k as f64 * 1e9 / self.program.rate_pps) as u64)
    }

    /// A moment between frame `k` and the frame before it.
    fn before(&self, k: u64) -> Duration {
        Duration::from_nanos(((k as f64 - 0.5) * 1e9 / self.program.rate_pps).max(0.0) as u64)
    }

    /// The first frame that is due at `at` or later and can still be started or stopped at `earliest`.
    fn frame_from(&self, at: Duration, earliest: Duration) -> u64 {
        let mut k = (at.as_nanos() as f64 * self.program.rate_pps / 1e9 - 1e-6).ceil().max(0.0) as u64;
        while self.before(k) < earliest {
            k += 1;
        }
        k
    }
}

/// Maximum number of orders that are given at the same time.
const MOST_ORDERS: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn program(frames: Option<u64>) -> Program {
        Program { rate_pps: 1_000.0, delay: Duration::ZERO, frames, bursts: Some(1), gap: Duration::ZERO }
    }

    /// Counts the frames that leave between these orders, up to `until`, at the rate of [`program`].
    fn sent(orders: &[Order], until: Duration) -> u64 {
        let due = |at: Duration| (at.as_micros() as u64).div_ceil(1_000);
        let (mut frames, mut from) = (0, None);
        for order in orders {
            match order.action {
                TransmitAction::Start => from = Some(due(order.at)),
                _ => frames += from.take().map_or(0, |from| due(order.at) - from),
            }
        }
        frames + from.map_or(0, |from| due(until) - from)
    }

    #[test]
    fn a_number_of_frames_is_exact_whenever_it_starts() {
        for start in [Duration::ZERO, MS, 7 * MS / 3, Duration::from_nanos(123_456_789)] {
            let (mut windows, mut orders) = (Windows::new(program(Some(100))), Vec::new());
            windows.start(start);
            let mut now = start;
            while windows.finishing().is_none() {
                windows.due(now, &mut orders);
                now = windows.next().unwrap_or(now);
            }
            assert_eq!((orders.len(), sent(&orders, now), windows.finishing()), (2, 100, Some(100)));
            assert!(orders[0].at >= start && orders[0].at <= start + MS);
        }
    }

    #[test]
    fn bursts_keep_their_gap_and_their_frames() {
        let program = Program { bursts: Some(3), gap: 20 * MS, ..program(Some(5)) };
        let (mut windows, mut orders) = (Windows::new(program), Vec::new());
        windows.start(Duration::ZERO);
        let mut now = Duration::ZERO;
        while windows.finishing().is_none() {
            windows.due(now, &mut orders);
            now = windows.next().unwrap_or(now);
        }
        assert_eq!((orders.len(), sent(&orders, now), windows.finishing()), (6, 15, Some(15)));
        // Frame 4 is due at 4 ms, so the second burst begins with frame 24.
        assert_eq!((orders[2].at - orders[0].at).as_micros(), 23_500);
    }

    #[test]
    fn a_pause_postpones_the_rest() {
        let (mut windows, mut orders) = (Windows::new(program(Some(100))), Vec::new());
        windows.start(Duration::ZERO);
        windows.due(Duration::ZERO, &mut orders);
        orders.extend(windows.pause(30 * MS + MS / 5));
        assert!(windows.is_paused() && !windows.is_active());
        assert_eq!((sent(&orders, 40 * MS), windows.next()), (31, None));
        orders.extend(windows.resume(50 * MS));
        let mut now = 50 * MS;
        while windows.finishing().is_none() {
            windows.due(now, &mut orders);
            now = windows.next().unwrap_or(now);
        }
        assert_eq!((sent(&orders, now), windows.finishing()), (100, Some(100)));
    }

    #[test]
    fn a_slow_flow_sends_nothing_long_after_it_was_stopped() {
        // A frame every 2 s, the first at 2 s.
        let start = Duration::from_millis(900);
        for (stop, planned) in [(1_000, 0), (1_500, 0), (1_998, 0), (1_999, 1), (2_001, 1), (3_500, 1), (5_998, 2)] {
            let program = Program { rate_pps: 0.5, ..program(None) };
            let (mut windows, mut orders) = (Windows::new(program), Vec::new());
            windows.start(start);
            windows.due(start, &mut orders);
            let (stop, last) = (stop * MS, orders[0].at);
            let order = windows.stop(stop).unwrap();
            let at = order.at.as_nanos() as f64 / 1e9;
            assert!(
                order.at >= stop.max(last) && order.at <= stop.max(last) + 2 * LEAD + Duration::from_secs(1),
                "{order:?}"
            );
            assert_eq!((windows.planned(), ((at - 2.0) / 2.0).ceil().max(0.0) as u64), (planned, planned), "{stop:?}");
        }
    }

    #[test]
    fn what_a_pause_did_not_let_out_leaves_later() {
        let (mut windows, mut orders) = (Windows::new(program(Some(100))), Vec::new());
        windows.start(Duration::ZERO);
        windows.due(Duration::ZERO, &mut orders);
        windows.pause(30 * MS + MS / 5);
        assert_eq!(windows.planned(), 31);
        assert_eq!((windows.postpone(20), windows.planned()), (0, 11));
        orders = windows.resume(50 * MS).into_iter().collect();
        let mut now = 50 * MS;
        while windows.finishing().is_none() {
            windows.due(now, &mut orders);
            now = windows.next().unwrap_or(now);
        }
        assert_eq!((sent(&orders, now), windows.finishing()), (89, Some(100)));
        // All frames are due, but three have not left.
        windows.pause(now);
        windows.postpone(3);
        windows.rest();
        orders = windows.resume(now + MS).into_iter().collect();
        while windows.finishing().is_none() {
            windows.due(now, &mut orders);
            now = windows.next().unwrap_or(now);
        }
        assert_eq!((sent(&orders, now), windows.finishing()), (3, Some(100)));
        windows.pause(now);
        windows.rest();
        assert!(!windows.is_paused() && !windows.is_active(), "nothing is left");
        assert_eq!(windows.postpone(2), 2);
    }

    #[test]
    fn a_stop_comes_after_what_was_ordered_before() {
        let (mut windows, mut orders) = (Windows::new(program(None)), Vec::new());
        windows.start(Duration::ZERO);
        windows.due(Duration::ZERO, &mut orders);
        orders.extend(windows.stop(20 * MS));
        assert!(!windows.is_active());
        windows.start(21 * MS);
        windows.due(21 * MS, &mut orders);
        assert!(orders[2].at <= 22 * MS);
        orders.extend(windows.stop(21 * MS));
        assert!(orders.is_sorted_by_key(|order| order.at), "{orders:?}");
        assert_eq!(windows.next(), None);
    }
}
