//! Routes that have been advertised to one peer, and those that are still to be advertised.

use super::AttributesId;
use std::collections::VecDeque;

/// Not advertised.
const NOTHING: u32 = u32::MAX;

/// An Adj-RIB-Out, by index of the prefix.
#[derive(Clone, Debug, Default)]
pub struct AdjRibOut {
    told: Vec<u32>,
    count: usize,
    /// Prefixes that may have changed for this peer, each once, in the order in which they changed.
    news: VecDeque<u32>,
    waits: Vec<bool>,
}

impl AdjRibOut {
    /// Resets it as for a new session.
    pub fn clear(&mut self) {
        *self = AdjRibOut::default();
    }

    /// True if nothing has been advertised and nothing is pending.
    pub fn is_empty(&self) -> bool {
        self.count == 0 && self.news.is_empty()
    }

    /// Number of advertised prefixes.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The attributes advertised for a prefix.
    pub fn told(&self, i: u32) -> Option<AttributesId> {
        self.told.get(i as usize).copied().filter(|told| *told != NOTHING)
    }

    /// Records what has been advertised for a prefix.
    pub fn tell(&mut self, i: u32, attributes: Option<AttributesId>) {
        let at = i as usize;
        if self.told.len() <= at {
            self.told.resize(at + 1, NOTHING);
        }
        self.count = self.count + usize::from(attributes.is_some()) - usize::from(self.told[at] != NOTHING);
        self.told[at] = attributes.unwrap_or(NOTHING);
    }

    /// Marks a prefix as possibly changed.
    pub fn mark(&mut self, i: u32) {
        let at = i as usize;
        if self.waits.len() <= at {
            self.waits.resize(at + 1, false);
        }
        if !std::mem::replace(&mut self.waits[at], true) {
            self.news.push_back(i);
        }
    }

    /// The marked prefix whose turn it is.
    pub fn first(&self) -> Option<u32> {
        self.news.front().copied()
    }

    /// Removes that prefix from the marked ones.
    pub fn pop(&mut self) {
        if let Some(i) = self.news.pop_front() {
            self.waits[i as usize] = false;
        }
    }
}
