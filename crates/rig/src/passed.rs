//! Frames that one lane passes to another.

use drophammer_model::quantity::Instant;
use drophammer_port::Arrival;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Maximum number of waiting frames. It limits the tester's memory in a flood of requests.
const MOST: usize = 1024;

/// Frames for the devices of a port that arrived at a queue of another lane than the one that serves the devices.
#[derive(Default)]
pub(crate) struct Passed {
    any: AtomicBool,
    frames: Mutex<Vec<(Instant, Vec<u8>)>>,
}

impl Passed {
    /// Keeps a frame for the other lane, unless too many wait.
    pub(crate) fn pass(&self, arrival: Arrival<'_>) {
        let mut frames = self.frames.lock().unwrap_or_else(PoisonError::into_inner);
        if frames.len() < MOST {
            frames.push((arrival.at, arrival.frame.to_vec()));
        }
        self.any.store(true, Ordering::Release);
    }

    /// The frames that were passed since the last call.
    pub(crate) fn take(&self) -> Vec<(Instant, Vec<u8>)> {
        if !self.any.swap(false, Ordering::Acquire) {
            return Vec::new();
        }
        std::mem::take(&mut *self.frames.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
