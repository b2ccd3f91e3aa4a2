//! DUTs whose counters cannot be read at one time, and the kernel's counters of the tester's interfaces.

use crate::common::{Memory, one_thread, resolve, suite, with_setup};
use drophammer_lab::{Dut, LabError};
use drophammer_methods::pattern::Pattern;
use drophammer_methods::{TestError, Testbed};
use drophammer_model::environment::DutRecord;
use drophammer_model::trial::{Family, Load};
use drophammer_testbed::setup::TestSetup;
use drophammer_testbed::simulated;
use std::collections::BTreeMap;
use std::time::Duration;

/// The counters that cannot be read the next time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unread {
    Own,
    LostByTester,
    Nothing,
}

struct Flaky(Unread);

impl Flaky {
    fn read(&mut self, what: Unread) -> Result<(), LabError> {
        if self.0 != what {
            return Ok(());
        }
        self.0 = Unread::Nothing;
        Err(LabError::Unusable { what: "a control program that hangs".into(), remedy: "wait".into() })
    }
}

impl Dut for Flaky {
    fn record(&self) -> DutRecord {
        DutRecord::default()
    }

    fn check(&mut self) -> Result<(), LabError> {
        Ok(())
    }

    fn counters(&mut self) -> Result<BTreeMap<String, u64>, LabError> {
        self.read(Unread::Own).map(|()| BTreeMap::new())
    }

    fn lost_by_tester(&mut self) -> Result<Option<Vec<u64>>, LabError> {
        self.read(Unread::LostByTester).map(|()| None)
    }
}

/// A DUT at whose first port the kernel receives three frames between two readings. Only a limited number of readings
/// succeed.
struct Interfaces {
    readings: u64,
    most: u64,
}

impl Dut for Interfaces {
    fn record(&self) -> DutRecord {
        DutRecord::default()
    }

    fn check(&mut self) -> Result<(), LabError> {
        Ok(())
    }

    fn counters(&mut self) -> Result<BTreeMap<String, u64>, LabError> {
        self.readings += 1;
        if self.readings > self.most {
            return Err(LabError::Unusable { what: "an interface that is gone".into(), remedy: "wait".into() });
        }
        let counters = [("t0.rx_packets", 100 + 3 * self.readings), ("t1.rx_packets", 40)];
        Ok(counters.map(|(name, frames)| (name.to_owned(), frames)).into())
    }
}

/// The ports of a simulated router, for which the bed reads the counters of `device`.
fn with_bed(device: &mut dyn Dut, act: impl FnOnce(&mut TestSetup<'_>)) {
    let suite = suite("", "tests:\n  - throughput\n");
    let dut = &suite.duts[0];
    let config = simulated::config(dut, &suite.ports, suite.seed);
    let parts = simulated::build_with(config, dut, &suite.ports, suite.seed).unwrap();
    let ports = one_thread(parts.ports, Box::new(parts.clock));
    with_setup(&suite, &[Family::Ipv4], ports, device, &mut Memory::default(), act);
}

#[test]
fn what_the_kernel_received_stands_beside_an_observation() {
    for (most, expected) in [(2, Some(vec![3, 0])), (1, None), (0, None)] {
        with_bed(&mut Interfaces { readings: 0, most }, |bed| {
            let seen = bed.observe(Duration::from_millis(100)).unwrap();
            assert_eq!(seen.received_by_kernel, expected, "{most} readings");
        });
    }
}

#[test]
fn counters_that_cannot_be_read_fail_one_test_and_not_those_after_it() {
    for unread in [Unread::Own, Unread::LostByTester] {
        with_bed(&mut Flaky(unread), |bed| fails_one_trial(bed, unread));
    }
}

fn fails_one_trial(bed: &mut TestSetup<'_>, unread: Unread) {
    let method = drophammer_methods::find("throughput").unwrap();
    let params = drophammer_suite::defaults(method.spec().params, drophammer_model::suite::Profile::Quick);
    bed.begin_test(method, &params, bed.left);
    resolve(bed);
    let pattern = Pattern::one_way("64".parse().unwrap(), vec![Family::Ipv4], 0.3);
    let load = Load::Constant { rate_pps: 1_000.0 };
    let spec = pattern.trial(bed.ports(), "a trial".into(), load, 0.1).unwrap();
    match bed.trial(&spec) {
        Err(TestError::Failed(why)) => assert!(why.contains("the counters cannot be read"), "{why}"),
        other => panic!("{unread:?}: {other:?}"),
    }
    let result = bed.trial(&spec).unwrap();
    assert_eq!((result.offered(), result.received()), (100, 100), "{unread:?}");
}
