//! Routes that must come, and which of them are there.

use super::bitmap::Bitmap;
use super::verdict::Verdict;
use super::{Expected, Verified};
use drophammer_model::Instant;
use drophammer_model::routes::{Prefix, Routes};
use drophammer_wire::bgp::AfiSafi;
use std::ops::Range;
use std::sync::Arc;

/// Never, in a list of times.
pub(super) const NEVER: u32 = u32::MAX;

/// A part of some routes. Bit `i` is route `part.start + i`.
pub(super) struct Expectation {
    pub family: AfiSafi,
    pub distinguisher: Option<[u8; 8]>,
    pub routes: Arc<Routes>,
    pub part: Range<u32>,
    pub expected: Expected,
    /// Those that must be there.
    wanted: Bitmap,
    present: Bitmap,
    /// Present with attributes that are wrong.
    wrong: Bitmap,
    wanted_present: u32,
    /// Beginning of the expectation or of its last change.
    epoch: Instant,
    times: Option<Vec<u32>>,
    counts: Verified,
}

impl Expectation {
    pub fn new(
        now: Instant,
        family: AfiSafi,
        distinguisher: Option<[u8; 8]>,
        routes: Arc<Routes>,
        part: Range<u32>,
        expected: Expected,
    ) -> Expectation {
        let end = part.end.min(routes.len());
        let part = part.start.min(end)..end;
        let n = part.end - part.start;
        let mut wanted = Bitmap::new(n);
        wanted.set_all(0..n, true);
        Expectation {
            family,
            distinguisher,
            routes,
            times: expected.times.then(|| vec![NEVER; n as usize]),
            part,
            expected,
            wanted,
            present: Bitmap::new(n),
            wrong: Bitmap::new(n),
            wanted_present: 0,
            epoch: now,
            counts: Verified::default(),
        }
    }

    /// From `now` on the routes of `part` must be there, or gone. Times count from `now`.
    pub fn change(&mut self, now: Instant, part: Range<u32>, present: bool) {
        let start = part.start.max(self.part.start) - self.part.start;
        let end = part.end.min(self.part.end).saturating_sub(self.part.start);
        if start < end {
            self.wanted.set_all(start..end, present);
        }
        self.wanted_present = self.wanted.common(&self.present);
        self.epoch = now;
        (self.counts.first_at, self.counts.last_at) = (None, None);
        if let Some(times) = &mut self.times {
            times.fill(NEVER);
        }
    }

    fn moved(&mut self, now: Instant, i: u32) {
        self.counts.first_at.get_or_insert(now);
        self.counts.last_at = Some(now);
        if let Some(times) = &mut self.times {
            times[i as usize] = (now.since(self.epoch).as_micros()).min(u128::from(NEVER - 1)) as u32;
        }
    }

    /// Route `i` of the part is announced. Was it absent?
    #[inline]
    pub fn announced(&mut self, now: Instant, i: u32, verdict: Verdict) -> bool {
        self.counts.announcements += 1;
        if verdict.is_wrong() || self.wrong.ones() > 0 {
            self.wrong.set(i, verdict.is_wrong());
            self.counts.wrong_next_hop += u64::from(verdict.next_hop);
            self.counts.wrong_as_path += u64::from(verdict.as_path);
            self.counts.wrong_attributes += u64::from(verdict.attributes);
        }
        let new = self.present.set(i, true);
        if new {
            self.wanted_present += u32::from(self.wanted.get(i));
            self.moved(now, i);
        } else {
            self.counts.repeated += 1;
        }
        new
    }

    /// Route `i` of the part is withdrawn. Was it present?
    #[inline]
    pub fn withdrawn(&mut self, now: Instant, i: u32) -> bool {
        self.counts.withdrawals += 1;
        if !self.present.set(i, false) {
            return false;
        }
        self.wrong.set(i, false);
        if self.wanted.get(i) {
            self.wanted_present -= 1;
            self.counts.withdrawn_in_error += 1;
        }
        self.moved(now, i);
        true
    }

    /// All that are present are gone with the session.
    pub fn lost(&mut self, now: Instant) {
        let gone: Vec<u32> = match self.times {
            Some(_) => self.present.without(&Bitmap::new(self.part.end - self.part.start)).collect(),
            None => self.present.first().into_iter().collect(),
        };
        gone.into_iter().for_each(|i| self.moved(now, i));
        self.present.clear();
        self.wrong.clear();
        self.wanted_present = 0;
    }

    /// Are all there that must be, and no others?
    #[inline]
    pub fn is_complete(&self) -> bool {
        self.wanted_present == self.wanted.ones() && self.present.ones() == self.wanted_present
    }

    pub fn present(&self) -> u32 {
        self.present.ones()
    }

    pub fn report(&self) -> Verified {
        Verified {
            expected: self.wanted.ones(),
            present: self.wanted_present,
            missing: self.wanted.ones() - self.wanted_present,
            unexpected: self.present.ones() - self.wanted_present,
            wrong: self.wrong.ones(),
            ..self.counts
        }
    }

    fn prefixes<'a>(&'a self, bits: impl Iterator<Item = u32> + 'a) -> impl Iterator<Item = Prefix> + 'a {
        bits.map(|i| self.routes.prefix(self.part.start + i))
    }

    pub fn missing(&self) -> impl Iterator<Item = Prefix> + '_ {
        self.prefixes(self.wanted.without(&self.present))
    }

    /// Those that came or went at `since` or later; none where times are not kept.
    pub fn moved_since(&self, since: Instant) -> impl Iterator<Item = Prefix> + '_ {
        let since = u32::try_from(since.since(self.epoch).as_micros()).unwrap_or(NEVER);
        let times = self.times.as_deref().unwrap_or_default();
        let moved = (0..).zip(times).filter(move |(_, at)| **at != NEVER && **at >= since).map(|(i, _)| i);
        self.prefixes(moved)
    }

    /// Present, but they must be gone.
    pub fn unexpected(&self) -> impl Iterator<Item = Prefix> + '_ {
        self.prefixes(self.present.without(&self.wanted))
    }

    pub fn times(&self) -> Option<&[u32]> {
        self.times.as_deref()
    }
}
