//! Keeps the link-layer address of the gateway known: asks at once, repeats with back-off, refreshes before it grows stale.

use drophammer_model::Instant;
use drophammer_wire::MacAddr;
use std::time::Duration;

/// A known address is asked for again after this time, well before the 30 s of RFC 4861 (REACHABLE_TIME).
pub const REFRESH: Duration = Duration::from_secs(20);
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LAST_RETRY: Duration = Duration::from_secs(1);
/// Unanswered refreshes that go to the known address alone, before everybody is asked again.
const UNICAST_ATTEMPTS: u32 = 3;

/// To whom a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Broadcast or solicited-node multicast.
    Everybody,
    /// The address known so far.
    Unicast(MacAddr),
}

/// State of the resolution of one gateway.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gateway {
    mac: Option<MacAddr>,
    confirmed: Option<Instant>,
    due: Instant,
    attempts: u32,
}

impl Gateway {
    /// Last known address. It is kept while a gateway does not answer: the DUT may be restarting under load.
    pub fn mac(&self) -> Option<MacAddr> {
        self.mac
    }

    /// When the address was last heard of.
    pub fn confirmed(&self) -> Option<Instant> {
        self.confirmed
    }

    /// When to ask next.
    pub fn deadline(&self) -> Instant {
        self.due
    }

    /// The gateway said that it is at `mac`.
    pub fn confirm(&mut self, now: Instant, mac: MacAddr) {
        if mac.is_group() || mac == MacAddr::default() {
            return;
        }
        *self = Gateway { mac: Some(mac), confirmed: Some(now), due: now + REFRESH, attempts: 0 };
    }

    /// To be asked now, if it is time; the next attempt is then scheduled.
    pub fn poll(&mut self, now: Instant) -> Option<Ask> {
        if now < self.due {
            return None;
        }
        let ask = match self.mac {
            Some(mac) if self.attempts < UNICAST_ATTEMPTS => Ask::Unicast(mac),
            _ => Ask::Everybody,
        };
        let retry = FIRST_RETRY.saturating_mul(1 << self.attempts.min(4)).min(LAST_RETRY);
        self.attempts = self.attempts.saturating_add(1);
        self.due = now + retry;
        Some(ask)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    #[test]
    fn asks_at_once_and_backs_off_to_a_second() {
        let mut gateway = Gateway::default();
        let mut asked = Vec::new();
        while asked.len() < 7 {
            let now = gateway.deadline();
            assert_eq!(gateway.poll(now), Some(Ask::Everybody));
            assert_eq!(gateway.poll(now), None);
            asked.push(now);
        }
        assert_eq!(asked, [0, 100, 300, 700, 1500, 2500, 3500].map(ms));
    }

    #[test]
    fn refreshes_by_unicast_then_asks_everybody() {
        let mut gateway = Gateway::default();
        let mac = MacAddr::local(1);
        gateway.confirm(ms(5), MacAddr::BROADCAST);
        assert_eq!(gateway.mac(), None);
        gateway.confirm(ms(5), mac);
        assert_eq!(gateway.poll(ms(20_004)), None);
        for _ in 0..3 {
            assert_eq!(gateway.poll(gateway.deadline()), Some(Ask::Unicast(mac)));
        }
        assert_eq!(gateway.poll(gateway.deadline()), Some(Ask::Everybody));
        assert_eq!((gateway.mac(), gateway.confirmed()), (Some(mac), Some(ms(5))));
        gateway.confirm(ms(30_000), MacAddr::local(2));
        assert_eq!((gateway.mac(), gateway.deadline()), (Some(MacAddr::local(2)), ms(50_000)));
    }
}
