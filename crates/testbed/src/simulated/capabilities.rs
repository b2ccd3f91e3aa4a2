//! Capabilities of the reference device beyond the core of a DUT.

use super::ReferenceDut;
use crate::kinds::REFERENCE;
use drophammer_lab::{Classes, Filters, LabError, Management, Usage};
use drophammer_model::classes::EgressClasses;
use drophammer_model::filter::FilterList;

/// Memory in bytes of a device that has not aged.
const MEMORY: u64 = 64 << 20;

impl Usage for ReferenceDut {
    fn memory(&mut self) -> Vec<(String, u64)> {
        let router = self.reference.0.borrow();
        // A device that does not age reports no memory.
        let aged = router.faults().ageing.map(|ageing| MEMORY.saturating_add(ageing.bytes(router.now())));
        aged.map(|bytes| (REFERENCE.to_owned(), bytes)).into_iter().collect()
    }
}

impl Filters for ReferenceDut {
    fn set_filter(&mut self, lists: &[FilterList]) -> Result<(), LabError> {
        self.reference.set_filter(lists).map_err(|e| LabError::Unusable {
            what: format!("{}: {e}", self.record.name),
            remedy: "this is a bug in Drophammer".into(),
        })
    }
}

impl Classes for ReferenceDut {
    fn set_classes(&mut self, lists: &[EgressClasses]) -> Result<(), LabError> {
        self.reference.set_classes(lists).map_err(|e| LabError::Unusable {
            what: format!("{}: {e}", self.record.name),
            remedy: "change the classes of the test in the suite".into(),
        })
    }
}

impl Management for ReferenceDut {
    fn has_ssh(&self) -> bool {
        self.ssh
    }
}
