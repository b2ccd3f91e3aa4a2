//! A bound on the connections that are answered at the same time.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Places for connections.
pub struct Places {
    free: Mutex<usize>,
    freed: Condvar,
}

/// A taken place; free again when it is dropped.
pub struct Place(Arc<Places>);

impl Places {
    /// This many places.
    pub fn new(places: usize) -> Arc<Places> {
        Arc::new(Places { free: Mutex::new(places), freed: Condvar::new() })
    }

    /// Takes a place; waits until one is free.
    pub fn take(self: &Arc<Places>) -> Place {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free = self.freed.wait_while(free, |free| *free == 0).unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        Place(self.clone())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_place_is_given_again_when_it_is_free() {
        let places = Places::new(1);
        let first = places.take();
        let (took, taken) = channel();
        let thread = std::thread::spawn({
            let places = places.clone();
            move || {
                let second = places.take();
                took.send(()).unwrap();
                second
            }
        });
        assert!(taken.try_recv().is_err(), "it waits");
        drop(first);
        taken.recv().unwrap();
        drop(thread.join().unwrap());
        assert_eq!(*places.free.lock().unwrap(), 1);
    }
}
