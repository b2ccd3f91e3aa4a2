//! One BFD session: the state machine of RFC 5880 section 6.2 and the procedures of section 6.8.

use drophammer_model::Instant;
use drophammer_wire::bfd::{Control, State, diagnostic};
use std::net::IpAddr;
use std::time::Duration;

/// Smallest interval of packets while a session is not Up, in µs (section 6.8.3).
const SLOW: u32 = 1_000_000;

/// A session with a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionConfig {
    /// Address of the peer, on the link of the device.
    pub peer: IpAddr,
    /// Desired Min TX Interval, in µs.
    pub desired_min_tx: u32,
    /// Required Min RX Interval, in µs.
    pub required_min_rx: u32,
    /// Detect Mult.
    pub detect_mult: u8,
    /// Passive role: sends nothing until a packet of the peer has arrived (section 6.1).
    pub passive: bool,
}

impl SessionConfig {
    /// An active session with intervals of 300 ms and multiplier 3.
    pub fn new(peer: IpAddr) -> SessionConfig {
        SessionConfig { peer, desired_min_tx: 300_000, required_min_rx: 300_000, detect_mult: 3, passive: false }
    }
}

/// State of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Address of the peer.
    pub peer: IpAddr,
    /// bfd.SessionState.
    pub state: State,
    /// bfd.RemoteSessionState.
    pub remote_state: State,
    /// bfd.LocalDiag: why the session last left Up.
    pub diagnostic: u8,
    /// Diagnostic in the peer's last packet.
    pub remote_diagnostic: u8,
    /// When it last became Up.
    pub up_at: Option<Instant>,
    /// When it last left Up.
    pub down_at: Option<Instant>,
    /// When the peer's last packet arrived.
    pub heard_at: Option<Instant>,
    /// Negotiated interval of sent packets before jitter.
    pub transmit_interval: Duration,
    /// Time without a packet after which the session goes down; zero before the first packet.
    pub detection_time: Duration,
    /// Packets sent.
    pub sent: u64,
    /// How often it became Up.
    pub times_up: u64,
    /// How often it left Up, for any reason.
    pub times_down: u64,
    /// How often the detection time expired in Init or Up.
    pub detections: u64,
    /// How often the neighbour signaled Down or AdminDown in Init or Up.
    pub signaled: u64,
    /// Packets of the peer that are missing between others, at least, while both ends were Up (section 6.8.7).
    pub missing: u64,
    /// How often it left Up when own packets had been late by so much that this may be the reason. These times say nothing about the peer.
    pub own_fault: u64,
    /// By how much own packets were late at most, when it left Up for that reason.
    pub late: Duration,
}

/// Deadlines, and values that packets change.
#[derive(Clone, Debug)]
pub(super) struct Session {
    config: SessionConfig,
    discriminator: u32,
    remote_discriminator: u32,
    state: State,
    remote_state: State,
    diagnostic: u8,
    remote_diagnostic: u8,
    remote_min_rx: u32,
    remote_min_tx: u32,
    remote_detect_mult: u8,
    remote_demand: bool,
    /// bfd.DesiredMinTxInterval: at least `SLOW` while the session is not Up.
    desired_min_tx: u32,
    /// The interval of sent packets. A larger interval takes effect only after a Poll Sequence has confirmed it.
    effective_min_tx: u32,
    /// A Poll Sequence is in progress.
    polling: bool,
    /// The peer's Poll has not been answered yet.
    owes_final: bool,
    /// The next packet differs from the last one.
    changed: bool,
    last_sent: Instant,
    next_packet: Option<Instant>,
    /// The interval from which `next_packet` was computed.
    paced: Duration,
    expires: Option<Instant>,
    /// Late packets explain until this time that the session goes down. They were late by that much.
    lapse: Option<(Instant, Duration)>,
    gaps: Gaps,
    /// AdminDown is sent until this time.
    farewell: Option<Instant>,
    random: u64,
    report: Times,
}

/// The time between packets of the peer in state Up.
#[derive(Clone, Copy, Debug, Default)]
struct Gaps {
    /// When the last packet arrived; `None` if the peer need not keep to the interval since then.
    last: Option<Instant>,
    /// Packets that are missing before the last one, if that one was not late.
    doubtful: u64,
    /// Own packets left late since the last packet arrived: frames may have found no room at the tester.
    own_fault: bool,
}

/// Counts and times.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    up_at: Option<Instant>,
    down_at: Option<Instant>,
    heard_at: Option<Instant>,
    sent: u64,
    up: u64,
    down: u64,
    detections: u64,
    signaled: u64,
    missing: u64,
    own_fault: u64,
    late: Duration,
}

fn micros(us: u32) -> Duration {
    Duration::from_micros(us.into())
}

impl Session {
    pub fn new(config: SessionConfig, discriminator: u32, seed: u64) -> Session {
        Session {
            config,
            discriminator,
            remote_discriminator: 0,
            state: State::AdminDown,
            remote_state: State::Down,
            diagnostic: diagnostic::NONE,
            remote_diagnostic: diagnostic::NONE,
            remote_min_rx: 1,
            remote_min_tx: 0,
            remote_detect_mult: 0,
            remote_demand: false,
            desired_min_tx: SLOW.max(config.desired_min_tx),
            effective_min_tx: SLOW.max(config.desired_min_tx),
            polling: false,
            owes_final: false,
            changed: false,
            last_sent: Instant(0),
            next_packet: None,
            paced: Duration::ZERO,
            expires: None,
            lapse: None,
            gaps: Gaps::default(),
            farewell: None,
            random: seed ^ u64::from(discriminator) << 32,
            report: Times::default(),
        }
    }

    pub fn config(&self) -> &SessionConfig {
        &self.config
    }

    pub fn report(&self) -> Report {
        let Times { up_at, down_at, heard_at, sent, up, down, detections, signaled, missing, own_fault, late } =
            self.report;
        Report {
            peer: self.config.peer,
            state: self.state,
            remote_state: self.remote_state,
            diagnostic: self.diagnostic,
            remote_diagnostic: self.remote_diagnostic,
            up_at,
            down_at,
            heard_at,
            transmit_interval: self.interval(),
            detection_time: self.detection_time(),
            sent,
            times_up: up,
            times_down: down,
            detections,
            signaled,
            missing,
            own_fault,
            late,
        }
    }

    /// Leaves AdminDown.
    pub fn start(&mut self, now: Instant) {
        if self.state == State::AdminDown {
            let fresh = Session::new(self.config, self.discriminator, 0);
            let Session { report, random, .. } = *self;
            *self = Session { state: State::Down, changed: true, next_packet: Some(now), report, random, ..fresh };
            self.reschedule(now);
        }
    }

    /// Enters AdminDown, and announces it for one detection time (section 6.8.16).
    pub fn stop(&mut self, now: Instant) {
        if self.state != State::AdminDown {
            let heard = self.remote_discriminator != 0;
            self.go(now, State::AdminDown, diagnostic::ADMINISTRATIVELY_DOWN);
            let detection = (self.interval() * self.config.detect_mult.into()).max(self.detection_time());
            (self.polling, self.owes_final, self.expires) = (false, false, None);
            self.farewell = heard.then(|| now + detection);
            self.changed = heard;
            self.next_packet = heard.then_some(now);
        }
    }

    /// Changes the state, and stores the reason if the session leaves Init or Up.
    fn go(&mut self, now: Instant, state: State, diagnostic: u8) {
        if self.state == State::Up {
            (self.report.down_at, self.report.down) = (Some(now), self.report.down + 1);
            self.note_lapse(now);
            if let Some((_, late)) = self.lapse.filter(|(until, _)| *until >= now && state == State::Down) {
                (self.report.own_fault, self.report.late) = (self.report.own_fault + 1, self.report.late.max(late));
            }
        }
        if state == State::Up {
            (self.report.up_at, self.report.up) = (Some(now), self.report.up + 1);
        }
        self.state = state;
        self.diagnostic = diagnostic;
        self.changed = true;
        let desired =
            if state == State::Up { self.config.desired_min_tx } else { SLOW.max(self.config.desired_min_tx) };
        if desired != self.desired_min_tx {
            self.desired_min_tx = desired;
            // A Poll Sequence announces the interval (section 6.8.3). While the session is Up, a larger interval takes effect
            // only after this sequence.
            self.polling = true;
            if state != State::Up || desired < self.effective_min_tx {
                self.effective_min_tx = desired;
            }
        }
    }

    /// Handles a packet that belongs to this session and arrived at `now` (section 6.8.6). It keeps the session up if it is read before
    /// [`Session::expire`] is called, even if the detection time is over by then.
    ///
    /// # Errors
    /// Why it is discarded.
    pub fn receive(&mut self, now: Instant, control: &Control<'_>) -> Result<(), &'static str> {
        if self.state == State::AdminDown {
            return Err("session is AdminDown");
        }
        let interval_before = self.remote_interval();
        self.remote_discriminator = control.my_discriminator;
        self.remote_state = control.state;
        self.remote_demand = control.demand;
        self.remote_min_rx = control.required_min_rx;
        self.remote_min_tx = control.desired_min_tx;
        self.remote_detect_mult = control.detect_mult;
        self.remote_diagnostic = control.diagnostic;
        self.report.heard_at = Some(now);
        if control.is_final && self.polling {
            (self.polling, self.effective_min_tx) = (false, self.desired_min_tx);
        }
        match (self.state, control.state) {
            (State::Init | State::Up, State::AdminDown) | (State::Up, State::Down) => {
                self.report.signaled += 1;
                self.go(now, State::Down, diagnostic::NEIGHBOR_SIGNALED_DOWN);
            }
            (State::Down, State::Down) => self.go(now, State::Init, self.diagnostic),
            (State::Down, State::Init) | (State::Init, State::Init | State::Up) => {
                self.go(now, State::Up, diagnostic::NONE);
            }
            _ => {}
        }
        self.count_missing(now, control, interval_before.max(self.remote_interval()));
        self.owes_final |= control.poll;
        self.expires = Some(now + self.detection_time());
        self.reschedule(now);
        Ok(())
    }

    /// Counts the packets that are missing before this one. They come after 75 to 100 % of the interval (section 6.8.7), so that after a missing
    /// one the gap is 150 % or more. It is as long before a packet that was late, but then the next one comes soon.
    fn count_missing(&mut self, now: Instant, control: &Control<'_>, interval: Duration) {
        // During a Poll Sequence, the peer may still use an interval from before.
        let both_up = self.state == State::Up && control.state == State::Up;
        let steady = both_up && !control.poll && !control.is_final;
        let own_fault = self.is_late(now);
        let before = std::mem::replace(&mut self.gaps, Gaps { last: steady.then_some(now), doubtful: 0, own_fault });
        let Some(last) = before.last.filter(|_| steady) else { return };
        let (gap, spare) = (now.since(last), interval / 2);
        if gap > spare {
            self.report.missing += before.doubtful;
        }
        if !before.own_fault && !own_fault {
            self.gaps.doubtful = (gap.saturating_sub(spare).as_nanos() / interval.as_nanos()) as u64;
        }
    }

    /// True if a packet should have left half an interval of the peer's packets ago.
    fn is_late(&self, now: Instant) -> bool {
        self.next_packet.is_some_and(|due| now.since(due) >= self.remote_interval() / 2)
    }

    /// Notes if the next packet is late by so much that the peer may miss it: half of the time that the peer waits after the first
    /// interval. The rest is for one lost packet, or for delays behind this session.
    fn note_lapse(&mut self, now: Instant) {
        let interval = self.interval();
        let limit = (interval * self.config.detect_mult.saturating_sub(1).into() / 2).max(interval / 10);
        let late = self.next_packet.map_or(Duration::ZERO, |due| now.since(due));
        self.gaps.own_fault |= self.is_late(now);
        if self.state == State::Up && late >= limit {
            // After its detection time, the peer tells it within the interval of packets of a session that is down.
            let told = interval * self.config.detect_mult.into() + micros(SLOW);
            let before = self.lapse.filter(|(until, _)| *until >= now).map_or(Duration::ZERO, |(_, late)| late);
            self.lapse = Some((now + told, late.max(before)));
        }
    }

    /// Negotiated interval of sent packets (section 6.8.7).
    fn interval(&self) -> Duration {
        micros(self.effective_min_tx.max(self.remote_min_rx))
    }

    /// Negotiated interval of received packets (section 6.8.7); never zero.
    fn remote_interval(&self) -> Duration {
        micros(self.config.required_min_rx.max(self.remote_min_tx))
    }

    /// Section 6.8.4.
    fn detection_time(&self) -> Duration {
        self.remote_interval() * self.remote_detect_mult.into()
    }

    /// True if it may send periodic packets (section 6.8.7).
    fn is_periodic(&self) -> bool {
        let demand = self.remote_demand && self.state == State::Up && self.remote_state == State::Up;
        let silent = self.config.passive && self.remote_discriminator == 0;
        !silent && self.remote_min_rx != 0 && (!demand || self.polling)
    }

    /// The current interval with jitter: 75 to 100 % of it, or to 90 % if one missing packet is enough (section 6.8.7).
    fn jittered(&mut self) -> Duration {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let range = if self.config.detect_mult == 1 { 15 } else { 25 };
        let part = 750 + (self.random >> 33) % (range * 10 + 1);
        self.paced = self.interval();
        Duration::from_nanos((self.paced.as_nanos() as u64 / 1000).saturating_mul(part))
    }

    /// Sets the time of the next periodic packet after a change of the interval. The new interval counts from the last
    /// packet (section 6.8.3).
    fn reschedule(&mut self, now: Instant) {
        if !self.is_periodic() {
            self.next_packet = None;
            return;
        }
        if self.next_packet.is_none() || self.paced != self.interval() {
            self.next_packet = Some((self.last_sent + self.jittered()).max(now));
        }
    }

    /// Handles the end of the detection time (section 6.8.4).
    pub fn expire(&mut self, now: Instant) {
        if self.farewell.is_some_and(|end| end <= now) {
            (self.farewell, self.next_packet, self.changed) = (None, None, false);
        }
        if self.expires.is_none_or(|at| at > now) {
            return;
        }
        self.expires = None;
        self.remote_discriminator = 0;
        if matches!(self.state, State::Init | State::Up) {
            self.report.detections += 1;
            self.go(now, State::Down, diagnostic::DETECTION_TIME_EXPIRED);
        }
        self.reschedule(now);
    }

    /// The next packet that is due now.
    pub fn transmit(&mut self, now: Instant) -> Option<Control<'static>> {
        let is_final = std::mem::take(&mut self.owes_final);
        let silent = self.state == State::AdminDown && self.farewell.is_none();
        let due = self.next_packet.is_some_and(|at| at <= now) || self.changed && self.is_periodic();
        if silent || !is_final && !due {
            return None;
        }
        self.note_lapse(now);
        self.changed = false;
        self.last_sent = now;
        if due {
            self.next_packet = Some(now + self.jittered());
        }
        Some(Control {
            diagnostic: self.diagnostic,
            state: self.state,
            // A packet has P or F, not both.
            poll: self.polling && !is_final && self.remote_discriminator != 0,
            is_final,
            detect_mult: self.config.detect_mult,
            my_discriminator: self.discriminator,
            your_discriminator: self.remote_discriminator,
            desired_min_tx: self.desired_min_tx,
            required_min_rx: self.config.required_min_rx,
            ..Control::default()
        })
    }

    /// Counts a packet if it was `sent`. A packet to an unresolved neighbour is lost.
    pub fn sent(&mut self, sent: bool) {
        self.report.sent += u64::from(sent);
    }

    /// When something is due; `Instant(0)` for now.
    pub fn next_deadline(&self) -> Option<Instant> {
        let speaks = self.state != State::AdminDown || self.farewell.is_some();
        let at_once = speaks && (self.owes_final || self.changed && self.is_periodic());
        [at_once.then_some(Instant(0)), self.next_packet, self.expires, self.farewell].into_iter().flatten().min()
    }
}
