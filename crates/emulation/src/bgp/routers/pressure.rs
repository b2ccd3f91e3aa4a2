//! Measures why a router's messages are delayed: by the DUT, or by the tester itself.

use crate::bgp::AdjRibOut;
use crate::tcp::{ConnectionId, TcpStack};
use drophammer_model::Instant;
use std::ops::{Add, Sub};
use std::time::Duration;

/// How long a router had unsent or unacknowledged messages since its creation. Waiting for a pace does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// The DUT's TCP had no room: its window was closed, or it had not acknowledged the full send buffer.
    pub held: Duration,
    /// Everything was sent, but the DUT's TCP had not acknowledged it.
    pub unanswered: Duration,
    /// There was room, but due messages had not been sent: the tester was late.
    pub late: Duration,
}

impl Add for Pressure {
    type Output = Pressure;

    fn add(self, more: Pressure) -> Pressure {
        Pressure {
            held: self.held + more.held,
            unanswered: self.unanswered + more.unanswered,
            late: self.late + more.late,
        }
    }
}

impl Sub for Pressure {
    type Output = Pressure;

    /// The difference since `before`.
    fn sub(self, before: Pressure) -> Pressure {
        Pressure {
            held: self.held.saturating_sub(before.held),
            unanswered: self.unanswered.saturating_sub(before.unanswered),
            late: self.late.saturating_sub(before.late),
        }
    }
}

/// The side that must act next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Turn {
    /// Nothing waits to be sent.
    #[default]
    Nobody,
    /// The DUT must make room.
    Room,
    /// The DUT must acknowledge.
    Answer,
    /// The tester must send, from this time on.
    Own(Instant),
    /// The tester had more to send than it sends at a time.
    Behind,
}

/// Messages sent within this time count as on time: a port's routers are polled some ten thousand times a second.
const IN_TIME: Duration = Duration::from_micros(200);

/// Measures the delays.
#[derive(Debug, Default)]
pub(super) struct Meter {
    turn: Turn,
    /// End of the counted time.
    until: Instant,
    total: Pressure,
}

impl Meter {
    /// The delays up to `now`.
    pub fn read(&self, now: Instant) -> Pressure {
        let spent = |since: Instant| now.since(since);
        let mut total = self.total;
        match self.turn {
            Turn::Nobody => {}
            Turn::Room => total.held += spent(self.until),
            Turn::Answer => total.unanswered += spent(self.until),
            Turn::Own(due) if now.since(due) <= IN_TIME => {}
            Turn::Own(due) => total.late += spent(self.until.max(due)),
            Turn::Behind => total.late += spent(self.until),
        }
        total
    }

    fn count(&mut self, now: Instant) {
        self.total = self.read(now);
        self.until = self.until.max(now);
    }

    /// A packet from the DUT at `now` may have made room: the tester must act until it has tried to send.
    pub fn heard(&mut self, now: Instant, connection: Option<ConnectionId>, stack: &TcpStack) {
        self.count(now);
        match self.turn {
            Turn::Room => self.turn = Turn::Own(now),
            Turn::Answer if connection.is_none_or(|c| stack.unacknowledged(c) == 0) => self.turn = Turn::Nobody,
            _ => {}
        }
    }

    /// Everything that can be sent at `now` has been sent. `longest` is the maximum length of a message in bytes; without a
    /// connection the session is down.
    pub fn sent(
        &mut self,
        now: Instant,
        says: Option<(ConnectionId, usize)>,
        adj_rib_out: &AdjRibOut,
        stack: &TcpStack,
    ) {
        self.count(now);
        let Some((connection, longest)) = says else {
            self.turn = Turn::Nobody;
            return;
        };
        self.turn = match adj_rib_out.next_deadline(now) {
            _ if stack.unsent(connection) > 0 => Turn::Room,
            Some(due) if due <= now && stack.can_send(connection) < longest => Turn::Room,
            Some(due) if due <= now => Turn::Behind,
            Some(due) => Turn::Own(due),
            None if stack.unacknowledged(connection) > 0 => Turn::Answer,
            None => Turn::Nobody,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_turn_has_its_account() {
        let ms = |n: u64| Instant(n * 1_000_000);
        let time = Duration::from_millis;
        let (stack, adj_rib_out) = (TcpStack::new(Default::default()), AdjRibOut::new());
        let mut meter = Meter { turn: Turn::Room, until: ms(10), ..Meter::default() };
        assert_eq!(meter.read(ms(15)), Pressure { held: time(5), ..Pressure::default() });
        // Room was made, and the tester did not check for 3 ms.
        meter.heard(ms(17), None, &stack);
        assert_eq!(meter.read(ms(20)), Pressure { held: time(7), late: time(3), ..Pressure::default() });
        meter.sent(ms(20), None, &adj_rib_out, &stack);
        assert_eq!(meter.read(ms(99)), Pressure { held: time(7), late: time(3), ..Pressure::default() });
        // A message is not late before it is due.
        let mut meter = Meter { turn: Turn::Own(ms(30)), until: ms(10), ..Meter::default() };
        assert_eq!((meter.read(ms(29)), meter.read(ms(34)).late), (Pressure::default(), time(4)));
        assert_eq!(meter.read(Instant(30_200_000)), Pressure::default(), "as good as in time");
        // An older packet does not turn time back.
        meter.count(ms(34));
        meter.heard(ms(32), None, &stack);
        assert_eq!(meter.read(ms(36)).late, time(6));
        let behind = Meter { turn: Turn::Behind, until: ms(10), ..Meter::default() };
        assert_eq!(behind.read(Instant(10_000_100)).late, Duration::from_nanos(100));
        let before = meter.read(ms(36));
        let mut meter = Meter { turn: Turn::Answer, until: ms(36), total: before };
        meter.heard(ms(40), None, &stack);
        assert_eq!(meter.read(ms(90)) - before, Pressure { unanswered: time(4), ..Pressure::default() });
        assert_eq!(before + before - before, before);
    }
}
