//! What the reference device can do beyond the core of a DUT.

use super::ReferenceDut;
use crate::kinds::REFERENCE;
use drophammer_lab::Usage;

/// Memory of a device that has not aged, in bytes.
const MEMORY: u64 = 64 << 20;

impl Usage for ReferenceDut {
    fn memory(&mut self) -> Vec<(String, u64)> {
        let router = self.reference.0.borrow();
        // A device that does not age reports no memory.
        let aged = router.faults().ageing.map(|ageing| MEMORY.saturating_add(ageing.bytes(router.now())));
        aged.map(|bytes| (REFERENCE.to_owned(), bytes)).into_iter().collect()
    }
}
