//! Tests of [`FlowState`].

use super::*;
use proptest::prelude::*;
use std::collections::HashSet;

impl Arrived {
    fn numbers(&self) -> Vec<u64> {
        let is_in = |s: &u64| self.bits[((s - self.from) / 64) as usize] >> (s % 64) & 1 == 1;
        (self.from..self.from + self.bits.len() as u64 * 64).filter(is_in).collect()
    }
}

fn after(sequence: &[u64]) -> FlowState {
    let mut state = FlowState::new(1000, 1000);
    sequence.iter().for_each(|s| {
        state.arrive(*s);
    });
    state
}

#[test]
fn example_of_the_2001_test() {
    // 1 2 4 3 5 has two packets in sequence (numbers from 0 here).
    let state = after(&[0, 1, 3, 2, 4]);
    assert_eq!((state.in_sequence(), state.reordered(), state.max_extent()), (2, 1, 1));
}

#[test]
fn examples_of_rfc_4737() {
    // Section 4.2.4 figure: 1 2 3 5 6 7 8 4 9 10: one reordered packet with extent 4, 3-reordered.
    let state = after(&[0, 1, 2, 4, 5, 6, 7, 3, 8, 9]);
    assert_eq!((state.reordered(), state.max_extent(), state.reordered_3()), (1, 4, 1));
    // 1 2 3 7 8 9 10 4 5 6 11: three reordered frames with extents 4, 5, 6; only the first is 3-reordered (5.4.2).
    let state = after(&[0, 1, 2, 6, 7, 8, 9, 3, 4, 5, 10]);
    assert_eq!((state.reordered(), state.max_extent(), state.reordered_3()), (3, 6, 1));
}

#[test]
fn the_last_missing_frame_is_found() {
    assert_eq!(after(&[0, 1, 3, 4]).last_missing(5, &[]), Some(2));
    assert_eq!(after(&[0, 1, 2]).last_missing(5, &[]), Some(4));
    assert_eq!(after(&[0, 1, 2]).last_missing(3, &[]), None);
    assert_eq!(after(&[0, 2]).last_missing(5, &[3, 4]), Some(1));
    assert_eq!(after(&[0, 2]).last_missing(5, &[1, 3, 4]), None);
}

/// Returns a flow of `frames` frames. The first `next` have been sent, and the last of them has arrived.
fn under_way(frames: u64, next: u64) -> FlowState {
    let mut state = FlowState::new(frames, 512);
    assert_eq!(state.arrive(next - 1), Arrival::New);
    state
}

fn carried(sequence: u64) -> u32 {
    (sequence % SEQUENCES) as u32
}

#[test]
fn frames_after_a_long_outage_are_new() {
    // More than half of the numbers are lost in a row, across a wrap.
    let (before, lost) = (150_000_000, 200_000_000);
    let mut state = under_way(u64::MAX, before);
    for sequence in before + lost..before + lost + 3 {
        assert_eq!(state.unwrap(carried(sequence)), sequence);
        assert_eq!(state.arrive(sequence), Arrival::New);
    }
    assert_eq!((state.received(), state.duplicated()), (4, 0));
}

#[test]
fn a_flow_with_fewer_frames_than_numbers_has_no_doubt() {
    for frames in [200_000_000, SEQUENCES] {
        let state = under_way(frames, frames - 1);
        for sequence in [2 * RUN, LATE, frames / 2, frames - LATE, frames - 1] {
            assert_eq!(state.unwrap(carried(sequence)), sequence, "of {frames}");
        }
    }
    // A number beyond the end of the flow does not belong to its frames.
    assert!(under_way(1_000, 900).unwrap(carried(SEQUENCES - 1)) >= 1_000);
}

fn by_definition(arrivals: &[u64]) -> (u64, u64, u64, u64, u64) {
    let mut seen = HashSet::new();
    let (mut duplicated, mut reordered, mut extent, mut in_sequence, mut three) = (0, 0, 0, 0, 0);
    let mut order: Vec<u64> = Vec::new();
    for s in arrivals {
        if !seen.insert(*s) {
            duplicated += 1;
            continue;
        }
        let i = order.len();
        if order.iter().any(|o| o > s) {
            reordered += 1;
            let j = order.iter().position(|o| o > s).unwrap();
            extent = extent.max((i - j) as u64);
        }
        if i >= 3 && order[i - 3..].iter().all(|o| o > s) {
            three += 1;
        }
        in_sequence += u64::from(*s == order.last().map_or(0, |l| l + 1));
        order.push(*s);
    }
    (duplicated, reordered, extent, in_sequence, three)
}

proptest! {
    #[test]
    fn numbers_unwrap_ahead_and_a_little_behind(
        next in 1u64..1 << 40, late in 0..LATE, ahead in 0..SEQUENCES - LATE
    ) {
        let state = under_way(u64::MAX, next);
        let behind = next.saturating_sub(late);
        prop_assert_eq!(state.unwrap(carried(behind)), behind);
        prop_assert_eq!(state.unwrap(carried(next + ahead)), next + ahead);
    }

    #[test]
    fn equals_the_definitions(arrivals in proptest::collection::vec(0u64..120, 0..200)) {
        let state = after(&arrivals);
        let distinct: HashSet<_> = arrivals.iter().collect();
        prop_assert_eq!(state.received(), distinct.len() as u64);
        let found = (state.duplicated(), state.reordered(), state.max_extent(), state.in_sequence(), state.reordered_3());
        prop_assert_eq!(found, by_definition(&arrivals));
        let sent = arrivals.iter().max().map_or(0, |m| m + 1);
        let missing = (0..sent).rev().find(|s| !distinct.contains(s));
        prop_assert_eq!(state.last_missing(sent, &[]), missing);
        let all: Vec<u64> = (0..sent).filter(|s| !distinct.contains(s)).collect();
        prop_assert_eq!(state.missing(sent, &[]).collect::<Vec<_>>(), &*all);
        let gaps = state.gaps(usize::MAX);
        prop_assert_eq!(gaps.iter().cloned().flatten().collect::<Vec<_>>(), all);
        for most in 0..4 {
            prop_assert_eq!(&state.gaps(most), &gaps[gaps.len().saturating_sub(most)..]);
        }
        prop_assert!(state.tells_all());
        let arrived = state.arrived();
        prop_assert_eq!((arrived.from, arrived.numbers()), (0, (0..sent).filter(|s| distinct.contains(s)).collect()));
    }

    #[test]
    fn long_runs_between_gaps_are_remembered(
        runs in proptest::collection::vec((1u64..3 * RUN, 1u64..200), 1..8), window in 0u32..3, back in proptest::collection::vec(any::<u64>(), 40)
    ) {
        // A window of one line, of half the longest run, or of all frames.
        let mut state = FlowState::new(1 << 20, [1, RUN + 1, 1 << 20][window as usize]);
        let width = state.window_bits();
        let (mut next, mut gone) = (0, HashSet::new());
        for (run, gap) in runs {
            (next..next + run).for_each(|s| assert_eq!(state.arrive(s), Arrival::New));
            gone.extend(next + run..next + run + gap);
            next += run + gap;
        }
        // A frame after all gaps ends the last one.
        prop_assert_eq!(state.arrive(next), Arrival::New);
        let lowest = (next + 1).saturating_sub(width);
        let expected: Vec<u64> = (lowest..next).filter(|s| gone.contains(s)).collect();
        prop_assert_eq!(state.missing(next + 1, &[]).collect::<Vec<_>>(), &*expected);
        prop_assert_eq!(state.gaps(usize::MAX).into_iter().flatten().collect::<Vec<_>>(), expected.clone());
        let arrived = state.arrived();
        prop_assert!(arrived.from < lowest + 64);
        let there = (arrived.from..=next).filter(|s| !expected.contains(s)).collect::<Vec<_>>();
        prop_assert_eq!(arrived.numbers(), there);
        for sequence in back.into_iter().map(|b| b % next) {
            let expected = if sequence < lowest {
                Arrival::TooOld
            } else if gone.remove(&sequence) {
                Arrival::New
            } else {
                Arrival::Duplicate
            };
            prop_assert_eq!(state.arrive(sequence), expected);
        }
    }

    #[test]
    fn a_narrow_window_never_counts_a_frame_twice(arrivals in proptest::collection::vec(0u64..8000, 0..600)) {
        let mut state = FlowState::new(8000, 64);
        let new = arrivals.iter().filter(|s| state.arrive(**s) == Arrival::New).count();
        let distinct: HashSet<_> = arrivals.iter().collect();
        prop_assert!(new <= distinct.len());
        prop_assert_eq!(state.received(), new as u64);
    }
}
