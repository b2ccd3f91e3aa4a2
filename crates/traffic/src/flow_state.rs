//! Records which frames of a flow have arrived, how often, and in which order.

use drophammer_wire::signature::{SEQUENCES, unwrap_sequence};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Classification of a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The frame arrived for the first time.
    New,
    /// The frame has arrived before. It does not count again (RFC 4737 section 2.2: only the first copy counts).
    Duplicate,
    /// The frame is so old that it cannot be distinguished from a duplicate.
    TooOld,
}

/// Which frames of a flow have arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrived {
    /// Number of the first frame in `bits`, a multiple of 64.
    pub from: u64,
    /// One bit per frame, lowest bit of a word first.
    pub bits: Vec<u64>,
}

/// An advance of the highest sequence number over missing numbers, and the arrival that caused it.
#[derive(Clone, Copy, Debug)]
struct Jump {
    /// First of the skipped sequence numbers.
    from: u64,
    /// Index of the arrival that skipped them.
    arrival: u64,
}

/// Maximum number of jumps stored per flow. The extent of a packet that arrives after more jumps is a lower bound.
const JUMPS: usize = 64;

/// Maximum number of positions by which a frame can be late. If it would be later, its sequence number is taken as one
/// after a gap. Routers lose more frames in a row than they hold back, so most numbers belong to future frames.
const LATE: u64 = 1 << 24;

/// State of one flow. Sequence numbers start at 0 and do not wrap.
///
/// A frame in order touches only these 48 bytes; the state for loss, duplicates and reordering is elsewhere. The
/// analyzer needs even less for such frames (`analyzer::awaited`), so that thousands of flows stay in the cache.
#[derive(Clone, Debug)]
pub struct FlowState {
    /// RFC 4737 NextExp: the highest sequence number so far plus one.
    next_expected: u64,
    /// The number that follows the last arrival; 0 before the first arrival.
    follows_last: u64,
    /// The window covers numbers below this one. All numbers from this one up to NextExp have arrived.
    noted: u64,
    /// One bit per sequence number: a ring whose length is a power of two.
    window: Box<[Line]>,
    out_of_order: Box<OutOfOrder>,
}

/// Bits of a window, in a separate cache line: no other flow, and so no other thread, writes it.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line([u64; WORDS]);

/// Number of words in a line.
const WORDS: usize = 8;

/// Frames in order enter the window in runs of this length, or when a frame arrives out of order. With thousands of
/// flows the windows are not in the cache, so entering frames one by one would be slow. And a gap must not take the
/// time to enter millions of frames.
pub(crate) const RUN: u64 = 4_096;

/// State for frames out of order.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct OutOfOrder {
    /// Number of frames of the flow.
    frames: u64,
    /// Distinct frames whose number does not follow the number of the previous arrival.
    breaks: u64,
    /// Number of sequence numbers below NextExp that have not arrived.
    missing: u64,
    duplicated: u64,
    reordered: u64,
    reordered_3: u64,
    max_extent: u64,
    /// First number of the run of consecutive frames that ends with the last arrival.
    run_start: u64,
    /// The last three arrivals before that run, newest first; `None` if there were fewer.
    before_run: [Option<u64>; 3],
    jump_count: u64,
    jumps: [Jump; JUMPS],
}

impl FlowState {
    /// Creates the state for a flow of `frames` frames. The window covers `window_limit` of them, at least 512. Only
    /// these can be distinguished from duplicates.
    pub fn new(frames: u64, window_limit: u64) -> FlowState {
        let lines = frames.min(window_limit).div_ceil(64 * WORDS as u64).next_power_of_two();
        FlowState {
            next_expected: 0,
            follows_last: 0,
            noted: 0,
            window: vec![Line([0; WORDS]); lines as usize].into_boxed_slice(),
            out_of_order: Box::new(OutOfOrder {
                frames,
                breaks: 0,
                missing: 0,
                duplicated: 0,
                reordered: 0,
                reordered_3: 0,
                max_extent: 0,
                run_start: 0,
                before_run: [None; 3],
                jump_count: 0,
                jumps: [Jump { from: 0, arrival: 0 }; JUMPS],
            }),
        }
    }

    /// RFC 4737 NextExp.
    #[inline]
    pub fn next_expected(&self) -> u64 {
        self.next_expected
    }

    /// True if NextExp is the only number that can arrive in order.
    #[inline]
    pub(crate) fn is_in_order(&self) -> bool {
        self.follows_last == self.next_expected
    }

    /// Returns the full sequence number of a frame with these lower 28 bits: above NextExp, or at most [`LATE`] below it.
    #[inline]
    pub(crate) fn unwrap(&self, sequence: u32) -> u64 {
        let full = unwrap_sequence(sequence, self.next_expected + SEQUENCES / 2 - LATE);
        if full < self.next_expected + RUN { full } else { self.far_ahead(full) }
    }

    /// Returns the full sequence number of a frame that seems to be `full`, far above NextExp. If the flow has no such
    /// frame, the frame is more than [`LATE`] late.
    #[cold]
    fn far_ahead(&self, full: u64) -> u64 {
        if full < self.out_of_order.frames { full } else { full.checked_sub(SEQUENCES).unwrap_or(full) }
    }

    /// Number of distinct frames.
    pub fn received(&self) -> u64 {
        self.next_expected - self.out_of_order.missing
    }

    /// Number of copies after the first.
    pub fn duplicated(&self) -> u64 {
        self.out_of_order.duplicated
    }

    /// Type-P-Reordered (RFC 4737 section 3.3): sequence below NextExp.
    pub fn reordered(&self) -> u64 {
        self.out_of_order.reordered
    }

    /// n-reordered with n = 3 (RFC 4737 section 5.4.1): the three frames before it all have higher numbers.
    pub fn reordered_3(&self) -> u64 {
        self.out_of_order.reordered_3
    }

    /// Largest reordering extent (RFC 4737 section 4.2.2), in arrivals.
    pub fn max_extent(&self) -> u64 {
        self.out_of_order.max_extent
    }

    /// Frames whose number follows the number of the previous arrival (2001 core router test).
    pub fn in_sequence(&self) -> u64 {
        self.received() - self.out_of_order.breaks
    }

    /// Number of sequence numbers that the window covers; a multiple of 64.
    pub(crate) fn window_bits(&self) -> u64 {
        (self.window.len() * WORDS) as u64 * 64
    }

    /// Returns the index of the word that contains the bit of `sequence`.
    #[inline]
    fn word_of(&self, sequence: u64) -> usize {
        (sequence / 64) as usize & (self.window.len() * WORDS - 1)
    }

    #[inline]
    fn word(&mut self, index: usize) -> &mut u64 {
        &mut self.window[index / WORDS].0[index % WORDS]
    }

    #[inline]
    fn bit(&mut self, sequence: u64) -> (&mut u64, u64) {
        let index = self.word_of(sequence);
        (self.word(index), 1 << (sequence % 64))
    }

    /// Counts an arrival.
    #[inline]
    pub fn arrive(&mut self, sequence: u64) -> Arrival {
        if sequence != self.next_expected || sequence != self.follows_last {
            return self.arrive_out_of_order(sequence);
        }
        self.next_expected = sequence + 1;
        self.follows_last = sequence + 1;
        if self.next_expected.is_multiple_of(RUN) {
            self.note();
        }
        Arrival::New
    }

    /// Counts `frames` arrivals in order. Only the last one may end a run. Equivalent to that many calls of
    /// [`FlowState::arrive`].
    pub(crate) fn arrive_in_order(&mut self, frames: u64) {
        debug_assert!(self.is_in_order() && self.next_expected % RUN + frames <= RUN);
        self.next_expected += frames;
        self.follows_last = self.next_expected;
        if self.next_expected.is_multiple_of(RUN) {
            self.note();
        }
    }

    /// Brings the window up to date.
    #[cold]
    fn note(&mut self) {
        let mut from = self.noted.max(self.next_expected.saturating_sub(self.window_bits()));
        while from < self.next_expected {
            let count = (64 - from % 64).min(self.next_expected - from);
            *self.word(self.word_of(from)) |= (u64::MAX >> (64 - count)) << (from % 64);
            from += count;
        }
        self.noted = self.next_expected;
    }

    /// Counts an arrival that skips numbers, was skipped itself, is a duplicate, or follows such a frame.
    #[cold]
    fn arrive_out_of_order(&mut self, sequence: u64) -> Arrival {
        self.note();
        let verdict = self.arrive_in_window(sequence);
        self.noted = self.next_expected;
        verdict
    }

    fn arrive_in_window(&mut self, sequence: u64) -> Arrival {
        if sequence >= self.next_expected {
            if sequence > self.next_expected {
                self.jump(sequence);
            }
            self.next_expected = sequence + 1;
            let (word, mask) = self.bit(sequence);
            *word |= mask;
        } else {
            if sequence + self.window_bits() < self.next_expected {
                return Arrival::TooOld;
            }
            let (word, mask) = self.bit(sequence);
            if *word & mask != 0 {
                self.out_of_order.duplicated += 1;
                return Arrival::Duplicate;
            }
            *word |= mask;
            self.reorder(sequence);
        }
        if sequence != self.follows_last {
            let before_run = self.last_three();
            self.out_of_order.breaks += 1;
            self.out_of_order.before_run = before_run;
            self.out_of_order.run_start = sequence;
        }
        self.follows_last = sequence + 1;
        Arrival::New
    }

    /// Returns the last three sequence numbers that arrived, newest first.
    fn last_three(&self) -> [Option<u64>; 3] {
        let run = self.follows_last - self.out_of_order.run_start;
        std::array::from_fn(|back| match (back as u64).checked_sub(run) {
            None => Some(self.follows_last - 1 - back as u64),
            Some(before) => self.out_of_order.before_run[before as usize],
        })
    }

    /// Handles an advance of the highest number past missing numbers: clears their bits, which are one ring length old.
    fn jump(&mut self, sequence: u64) {
        let jump = Jump { from: self.next_expected, arrival: self.received() };
        let state = &mut self.out_of_order;
        state.jumps[(state.jump_count % JUMPS as u64) as usize] = jump;
        state.jump_count += 1;
        state.missing += sequence - self.next_expected;
        let missing = (sequence - self.next_expected).min(self.window_bits());
        for i in 0..missing {
            let (word, mask) = self.bit(sequence - 1 - i);
            *word &= !mask;
        }
    }

    /// Handles a skipped number that arrived after all.
    fn reorder(&mut self, sequence: u64) {
        let received = self.received();
        let last = self.last_three();
        let state = &mut self.out_of_order;
        state.missing -= 1;
        state.reordered += 1;
        if last.iter().all(|l| l.is_some_and(|l| l > sequence)) {
            state.reordered_3 += 1;
        }
        // The earliest arrival with a higher number is the one that skipped this number. Jumps are ascending, so it is
        // the last jump that started at or below the number.
        let kept = state.jump_count.min(JUMPS as u64);
        let earliest = (0..kept)
            .map(|back| state.jumps[((state.jump_count - 1 - back) % JUMPS as u64) as usize])
            .find(|j| j.from <= sequence)
            .or_else(|| (kept > 0).then(|| state.jumps[((state.jump_count - kept) % JUMPS as u64) as usize]));
        if let Some(jump) = earliest {
            state.max_extent = state.max_extent.max(received - jump.arrival);
        }
    }

    /// True if the frame has arrived, or has left the window.
    pub(crate) fn may_have(&self, sequence: u64) -> bool {
        let word = self.word_of(sequence);
        let bits = self.window[word / WORDS].0[word % WORDS];
        sequence < self.next_expected
            && (sequence >= self.noted
                || sequence + self.window_bits() < self.next_expected
                || bits & (1 << (sequence % 64)) != 0)
    }

    /// Returns the sequence numbers below `sent` within the window that have not arrived and are not in `never_left`.
    /// Both lists ascend.
    pub fn missing(&self, sent: u64, never_left: &[u64]) -> impl DoubleEndedIterator<Item = u64> {
        let lowest = self.next_expected.saturating_sub(self.window_bits());
        (lowest..sent).filter(move |s| {
            let word = self.word_of(*s);
            let bits = self.window[word / WORDS].0[word % WORDS];
            let arrived = *s < self.next_expected && (*s >= self.noted || bits & (1 << (s % 64)) != 0);
            !arrived && never_left.binary_search(s).is_err()
        })
    }

    /// Returns the highest of [`FlowState::missing`].
    pub fn last_missing(&self, sent: u64, never_left: &[u64]) -> Option<u64> {
        self.missing(sent, never_left).next_back()
    }

    /// Returns the missing sequence numbers below NextExp within the window as ascending ranges. If there are more than
    /// `most` ranges, returns only the highest.
    pub fn gaps(&self, most: usize) -> Vec<Range<u64>> {
        let lowest = self.next_expected.saturating_sub(self.window_bits());
        let mut left = self.out_of_order.missing;
        let mut gaps: Vec<Range<u64>> = Vec::new();
        // All numbers from `noted` up to NextExp have arrived.
        let mut above = self.noted.min(self.next_expected);
        while above > lowest && left > 0 {
            let sequence = above - 1;
            let word = self.word_of(sequence);
            let bits = self.window[word / WORDS].0[word % WORDS];
            if bits == u64::MAX && sequence % 64 == 63 && above >= lowest + 64 {
                above -= 64;
                continue;
            }
            if bits & (1 << (sequence % 64)) == 0 {
                left -= 1;
                let found = gaps.len();
                match gaps.last_mut() {
                    Some(gap) if gap.start == above => gap.start = sequence,
                    _ if found == most => break,
                    _ => gaps.push(sequence..above),
                }
            }
            above = sequence;
        }
        gaps.reverse();
        gaps
    }

    /// Calls `take(first, missing)` for words of 64 sequence numbers within the window, in ascending order. The
    /// arguments are the first number, and a bit for each number below NextExp that has not arrived. May skip words
    /// without a missing number.
    pub(crate) fn each_missing(&self, mut take: impl FnMut(u64, u64)) {
        let mut left = self.out_of_order.missing;
        let mut first = self.next_expected.saturating_sub(self.window_bits()).next_multiple_of(64);
        while left > 0 && first < self.noted.min(self.next_expected) {
            let word = self.word_of(first);
            let mut missing = !self.window[word / WORDS].0[word % WORDS];
            // All numbers from `noted` up to NextExp have arrived.
            let known = self.noted.min(self.next_expected) - first;
            if known < 64 {
                missing &= u64::MAX >> (64 - known);
            }
            if missing != 0 {
                left = left.saturating_sub(missing.count_ones().into());
                take(first, missing);
            }
            first += 64;
        }
    }

    /// Returns the frames within the window that have arrived.
    pub fn arrived(&self) -> Arrived {
        // The window may start and end in the same line of the ring.
        let from = self.next_expected.saturating_sub(self.window_bits()).next_multiple_of(64);
        let bits = (from..self.next_expected).step_by(64).map(|first| {
            let word = self.word_of(first);
            let known = self.window[word / WORDS].0[word % WORDS];
            // All numbers from `noted` up to NextExp have arrived.
            let all = u64::MAX.checked_shl(self.noted.saturating_sub(first).min(64) as u32).unwrap_or(0);
            let end = (self.next_expected - first).min(64);
            (known | all) & u64::MAX >> (64 - end)
        });
        Arrived { from, bits: bits.collect() }
    }

    /// True if every frame so far is within the window, so that [`FlowState::missing`] is complete.
    pub fn tells_all(&self) -> bool {
        self.next_expected <= self.window_bits()
    }
}

#[cfg(test)]
mod tests;
