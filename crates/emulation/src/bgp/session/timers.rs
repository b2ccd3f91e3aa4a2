//! The timers of a session.

use super::{Cause, Session, State, TcpAction};
use drophammer_model::Instant;
use drophammer_wire::bgp::notification::{Notification, code};
use std::time::Duration;

/// Shortest time between two KEEPALIVEs (RFC 4271 section 4.4).
const BETWEEN_KEEPALIVES: Duration = Duration::from_secs(1);

/// Expiry of each timer, if it runs.
#[derive(Clone, Debug)]
pub(super) struct Timers {
    /// The session gives up the attempt to connect, and starts another.
    pub connect_retry: Option<Instant>,
    /// The peer has been silent for too long.
    pub hold: Option<Instant>,
    /// A KEEPALIVE is due.
    pub keepalive: Option<Instant>,
    /// The next attempt after an end.
    pub idle_hold: Option<Instant>,
    /// The connection is reset although the last message still waits.
    pub linger: Option<Instant>,
    hold_time: Duration,
    random: u64,
}

impl Timers {
    pub fn new(seed: u64) -> Timers {
        Timers {
            connect_retry: None,
            hold: None,
            keepalive: None,
            idle_hold: None,
            linger: None,
            hold_time: Duration::ZERO,
            random: seed,
        }
    }

    pub fn next(&self) -> Option<Instant> {
        [self.connect_retry, self.hold, self.keepalive, self.idle_hold, self.linger].into_iter().flatten().min()
    }

    /// Stops the timers of an attempt or a session; `idle_hold` and `linger` continue.
    pub fn stop_session(&mut self) {
        (self.connect_retry, self.hold, self.keepalive) = (None, None, None);
    }

    /// 75 to 100 % of `time` (RFC 4271 section 10).
    fn jittered(&mut self, time: Duration) -> Duration {
        // SplitMix64.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.random;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let fraction = f64::from((x >> 32) as u32) / f64::from(u32::MAX);
        time.mul_f64(0.75 + 0.25 * fraction)
    }

    /// (Re)starts ConnectRetryTimer.
    pub fn start_connect_retry(&mut self, now: Instant, time: Duration) {
        // With a time of zero, it would expire for ever at the same instant.
        self.connect_retry = Some(now + self.jittered(time.max(Duration::from_millis(1))));
    }

    /// Starts HoldTimer with a new duration; zero stops it.
    pub fn start_hold(&mut self, now: Instant, time: Duration) {
        self.hold_time = time;
        self.restart_hold(now);
    }

    /// Restarts HoldTimer after a received message.
    pub fn restart_hold(&mut self, now: Instant) {
        self.hold = (!self.hold_time.is_zero()).then(|| now + self.hold_time);
    }

    /// (Re)starts KeepaliveTimer; zero stops it.
    pub fn start_keepalive(&mut self, now: Instant, time: Duration) {
        self.keepalive = (!time.is_zero()).then(|| now + self.jittered(time).max(BETWEEN_KEEPALIVES));
    }
}

impl Session {
    /// Handles timers that have expired at `now`.
    pub(super) fn run_timers(&mut self, now: Instant) {
        let due = |timer: Option<Instant>| timer.is_some_and(|at| at <= now);
        if due(self.timers.linger) {
            self.abort_unwritten();
        }
        if due(self.timers.hold) {
            let expired = Notification::bare(code::HOLD_TIMER_EXPIRED, 0);
            self.end(now, Cause::HoldTimerExpired(self.timers.hold_time), Some(expired));
        }
        if due(self.timers.keepalive) {
            self.push_keepalive();
            self.restart_keepalive(now);
        }
        if due(self.timers.connect_retry) {
            if self.state == State::Connect {
                self.tcp_actions.push_back(TcpAction::Abort);
                self.go(now, State::Connect, Some(Cause::TimedOut));
            } else {
                self.go(now, State::Connect, None);
            }
            self.timers.start_connect_retry(now, self.config.connect_timeout);
            self.tcp_actions.push_back(TcpAction::Connect);
        }
        if due(self.timers.idle_hold) {
            self.timers.idle_hold = None;
            self.begin(now);
        }
    }

    /// Resets a connection whose last message is still waiting.
    pub(super) fn abort_unwritten(&mut self) {
        if self.timers.linger.take().is_some() {
            self.out.clear();
            self.tcp_actions.push_back(TcpAction::Abort);
        }
    }

    /// Postpones the next KEEPALIVE after a sent message.
    pub(super) fn restart_keepalive(&mut self, now: Instant) {
        if self.state >= State::OpenConfirm {
            let time = self.negotiated.as_ref().map_or(Duration::ZERO, |n| n.keepalive);
            self.timers.start_keepalive(now, time);
        }
    }
}
