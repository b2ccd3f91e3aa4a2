//! BFD of the device on its core links (RFC 5880, RFC 5881): asynchronous mode in the passive role, so the neighbour begins. Intervals
//! are [`INTERVAL`] in state Up and 1 s otherwise.

use crate::faults::is_nth;
use crate::random::Random;
use drophammer_model::Instant;
use drophammer_wire::bfd::{Control, LEN, State, diagnostic};
use std::time::Duration;

/// Time between packets in state Up, and that the neighbour may use.
pub const INTERVAL: Duration = Duration::from_millis(50);
/// Time between packets in other states (RFC 5880 section 6.8.3).
const SLOW: Duration = Duration::from_secs(1);
const DETECT_MULT: u8 = 3;

fn us(duration: Duration) -> u32 {
    duration.as_micros() as u32
}

/// A session with the neighbour on a link.
pub struct Session {
    discriminator: u32,
    state: State,
    diagnostic: u8,
    /// What the neighbour has said: state, discriminator, intervals in µs, multiplier.
    remote_state: State,
    remote: u32,
    remote_min_rx: u32,
    remote_min_tx: u32,
    remote_mult: u8,
    /// The neighbour has not confirmed the own intervals yet.
    polls: bool,
    /// A packet with F is due.
    confirms: bool,
    /// Next packet, and the time when the neighbour is lost; `None` for never.
    send_at: Option<Instant>,
    lost_at: Option<Instant>,
    /// Number of packets, including those that a fault suppressed.
    sent: u64,
    pub suppressed: u64,
    random: Random,
}

impl Session {
    pub fn new(discriminator: u32, seed: u64) -> Session {
        Session {
            discriminator,
            state: State::Down,
            diagnostic: diagnostic::NONE,
            remote_state: State::Down,
            remote: 0,
            remote_min_rx: 0,
            remote_min_tx: us(SLOW),
            remote_mult: DETECT_MULT,
            polls: false,
            confirms: false,
            send_at: None,
            lost_at: None,
            sent: 0,
            suppressed: 0,
            random: Random::new(seed ^ u64::from(discriminator)),
        }
    }

    pub fn is_up(&self) -> bool {
        self.state == State::Up
    }

    /// The interval that it wants for its own packets.
    fn wanted(&self) -> u32 {
        us(if self.is_up() { INTERVAL } else { SLOW })
    }

    /// Takes a Control packet (RFC 5880 section 6.8.6). Returns true if the session has gone down.
    pub fn receive(&mut self, now: Instant, control: &Control<'_>) -> bool {
        let wrong = control.your_discriminator != 0 && control.your_discriminator != self.discriminator;
        if wrong || control.authentication.is_some() {
            return false;
        }
        self.remote = control.my_discriminator;
        self.remote_state = control.state;
        (self.remote_min_rx, self.remote_min_tx) = (control.required_min_rx, control.desired_min_tx);
        self.remote_mult = control.detect_mult;
        self.polls &= !control.is_final;
        self.confirms |= control.poll;
        let before = self.state;
        self.state = match (self.state, control.state) {
            (State::Down, State::Down) => State::Init,
            (State::Down, State::Init) | (State::Init, State::Init | State::Up) => State::Up,
            (_, State::AdminDown) | (State::Up, State::Down) => State::Down,
            (state, _) => state,
        };
        let detection = Duration::from_micros(u64::from(us(INTERVAL).max(self.remote_min_tx)));
        self.lost_at = Some(now + detection * u32::from(self.remote_mult));
        let went_down = before == State::Up && self.state == State::Down;
        if went_down {
            self.diagnostic = diagnostic::NEIGHBOR_SIGNALED_DOWN;
        }
        if self.state != before {
            self.polls = self.is_up();
            self.send_at = Some(now);
        } else if self.confirms || self.send_at.is_none() {
            self.send_at = Some(now);
        }
        went_down
    }

    /// Declares the neighbour lost if its packets are missing. Returns true if the session has gone down.
    pub fn expire(&mut self, now: Instant) -> bool {
        if self.lost_at.is_none_or(|at| at > now) {
            return false;
        }
        let was_up = self.is_up();
        (self.state, self.remote, self.lost_at) = (State::Down, 0, None);
        self.diagnostic = diagnostic::DETECTION_TIME_EXPIRED;
        if !was_up {
            // The passive role: silent until the neighbour speaks.
            self.send_at = None;
        }
        was_up
    }

    /// The next packet until `now`. Every `missing`-th one is suppressed.
    pub fn transmit(&mut self, now: Instant, missing: u64) -> Option<[u8; LEN]> {
        self.send_at.filter(|at| *at <= now)?;
        // 75 % to 90 % of the interval (section 6.8.7).
        let interval = u64::from(self.wanted().max(self.remote_min_rx)) * 1000;
        let jittered = interval * 3 / 4 + self.random.below(interval * 3 / 20);
        self.send_at = (self.remote_min_rx > 0).then(|| now + Duration::from_nanos(jittered));
        let control = Control {
            diagnostic: self.diagnostic,
            state: self.state,
            poll: self.polls && !self.confirms,
            is_final: std::mem::take(&mut self.confirms),
            detect_mult: DETECT_MULT,
            my_discriminator: self.discriminator,
            your_discriminator: self.remote,
            desired_min_tx: self.wanted(),
            required_min_rx: us(INTERVAL),
            ..Control::default()
        };
        self.sent += 1;
        if is_nth(self.sent, missing) {
            self.suppressed += 1;
            return None;
        }
        let mut bytes = [0; LEN];
        control.emit(&mut bytes);
        Some(bytes)
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        [self.send_at, self.lost_at].into_iter().flatten().min()
    }
}
