//! A simulated clock that the device and the observer of a test share with the tester.

use drophammer_model::quantity::Instant;
use drophammer_port::Clock;
use drophammer_port::simulated::SimulatedClock;
use std::cell::RefCell;
use std::rc::Rc;

/// Virtual time that is shared by all copies of this value.
#[derive(Clone)]
pub struct SharedClock(Rc<RefCell<SimulatedClock>>);

impl SharedClock {
    /// Shares `clock`.
    pub fn new(clock: SimulatedClock) -> SharedClock {
        SharedClock(Rc::new(RefCell::new(clock)))
    }
}

impl Clock for SharedClock {
    fn now(&self) -> Instant {
        self.0.borrow().now()
    }

    fn wait(&mut self, deadline: Instant) {
        self.0.borrow_mut().wait(deadline);
    }

    fn pass(&mut self, deadline: Instant) {
        self.0.borrow_mut().pass(deadline);
    }

    fn passes(&self) -> bool {
        self.0.borrow().passes()
    }

    fn wall_offset(&self) -> i128 {
        0
    }

    fn is_virtual(&self) -> bool {
        true
    }
}
