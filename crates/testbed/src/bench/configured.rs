//! Filters and classes of service that a test configures on the device.

use super::{Bench, failed};
use drophammer_lab::{no_classes, no_filters};
use drophammer_methods::TestError;
use drophammer_model::classes::EgressClasses;
use drophammer_model::filter::FilterList;
use drophammer_model::record::{ClassRecord, FilterRecord, Record};
use std::collections::BTreeSet;

impl Bench<'_> {
    /// Replaces the device's filters by `lists` and records them; an empty list removes the filters. With several DUTs,
    /// `of_each` contains the lists of each DUT as if it were alone.
    ///
    /// # Errors
    /// [`TestError::NotApplicable`] if this kind of device has no filters; an error if the device refuses them, or they
    /// cannot be stored.
    pub(crate) fn set_filter(
        &mut self,
        lists: &[FilterList],
        of_each: &[(String, Vec<FilterList>)],
    ) -> Result<(), TestError> {
        if !lists.is_empty() && !crate::kinds::takes_filters(&self.device.record().kind) {
            let why = "this router cannot be given packet filters; `drophammer list duts` names the kinds that can";
            return Err(TestError::NotApplicable(why.into()));
        }
        // After a failure the device may have accepted some of the filters, and these must be removed too.
        self.filtered = true;
        self.device.filters().ok_or_else(no_filters).and_then(|device| device.set_filter(lists)).map_err(failed)?;
        self.filtered = !lists.is_empty();
        self.filtered_duts = of_each.iter().map(|(dut, _)| dut.clone()).collect();
        // Each DUT has the same number of rules.
        let rules: u64 = lists.iter().map(|list| list.rules.len() as u64).sum();
        self.filter_rules = rules / of_each.len().max(1) as u64;
        let alone = [(self.dut.clone(), lists.to_vec())];
        for (dut, lists) in if of_each.is_empty() { &alone } else { of_each } {
            let (dut, test, round) = (dut.clone(), self.test.clone(), self.session.round);
            let mut lists = lists.clone();
            let mut left_out = 0;
            for list in &mut lists {
                left_out += list.rules.len().saturating_sub(FilterRecord::MOST_RULES) as u64;
                list.rules.truncate(FilterRecord::MOST_RULES);
            }
            let record = Record::Filter(FilterRecord { dut, test, round, lists, left_out });
            self.observer.record(&record).map_err(TestError::Store)?;
        }
        Ok(())
    }

    /// Replaces the device's classes of service by `lists` and records them; an empty list removes the classes.
    ///
    /// # Errors
    /// The device refuses the classes, or they cannot be stored.
    pub(crate) fn set_classes(&mut self, lists: &[EgressClasses]) -> Result<(), TestError> {
        // After a failure the device may have accepted some of the classes, and these must be removed too.
        self.classed = true;
        self.device.classes().ok_or_else(no_classes).and_then(|device| device.set_classes(lists)).map_err(failed)?;
        self.classed = !lists.is_empty();
        let (dut, test, round) = (self.dut.clone(), self.test.clone(), self.session.round);
        let record = Record::Classes(ClassRecord { dut, test, round, lists: lists.to_vec() });
        self.observer.record(&record).map_err(TestError::Store)
    }

    /// Removes what the ended test configured on the device.
    ///
    /// # Errors
    /// The configuration could not be removed. The next test would find the device in an unexpected state.
    pub(crate) fn end_test(&mut self) -> Result<(), TestError> {
        self.facts.ports.iter_mut().for_each(|port| port.routed.clear());
        let of_each: Vec<_> = self.filtered_duts.drain(..).map(|dut| (dut, Vec::new())).collect();
        // Removes all of them, even if one removal fails.
        let unfiltered = if self.filtered { self.set_filter(&[], &of_each) } else { Ok(()) };
        let unclassed = if self.classed { self.set_classes(&[]) } else { Ok(()) };
        let around = std::mem::take(&mut self.around);
        let restored = if self.links_down.is_empty() { Ok(()) } else { self.set_core_links(&BTreeSet::new(), &around) };
        let silent = self.stop_core();
        unfiltered.and(unclassed).and(restored).and(silent)
    }
}
