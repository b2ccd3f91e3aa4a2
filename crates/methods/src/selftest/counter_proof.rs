//! Compares every counter of the tester with the reference device, which counts what it did to each frame. The counters
//! must be equal to the frame, or the tester is not trustworthy.

use crate::kit::prelude::*;
use crate::selftest::TRIAL_DURATION;
use drophammer_model::outcome::Verdict;
use drophammer_model::trial::GroupCounts;
use std::collections::BTreeMap;

/// The test.
pub struct CounterProof;

/// `load`
pub const LOAD: Param<FrameRate> = Param::fixed("load", "20 kfps", "load per sending port");
/// `fault`
pub const FAULT: Param<Option<String>> = Param::optional("fault", "what the device does wrong, as text for the table");

static SPEC: TestSpec = TestSpec {
    name: NAME,
    title: TITLE,
    summary: "each counter of the tester, compared with a device that counts what it did to every frame",
    source: "own; RFC 1242, RFC 2285, RFC 4737, RFC 5560",
    params: params![&TRAFFIC, &[LOAD.spec(), TRIAL_DURATION.spec(), DRAIN.spec(), FAULT.spec()]],
    figures: &[],
    tables: &[],
    needs: &[],
};

/// Name of the test and key of its table.
pub const NAME: &str = "counter_proof";
/// Title of the test.
pub const TITLE: &str = "Counters against the reference device";
/// Counters that are compared with the device.
pub const WHAT: &str =
    "offered, lost, duplicated, reordered, corrupted, stray and late frames, and frames in a wrong encapsulation";

columns! {
    /// One counter of one device.
    struct CounterRow {
        fault: String = "The device",
        counter: String,
        device: u64 = "The device did" ["frames"],
        tester: u64 = "The tester counted" ["frames"],
        difference: u64 ["frames"],
    }
}

const TABLE: TableSpec<CounterRow> = TableSpec::new(NAME, "Counters: what the device did, what the tester counted");
/// Frames that arrived at the device to be forwarded.
const TRANSIT: &str = "truth.transit";

/// Counters of the device for the trial.
struct Did<'a>(&'a BTreeMap<String, u64>);

impl Did<'_> {
    /// Sum of the device's counters that begin with `prefix`.
    fn sum(&self, prefix: &str) -> u64 {
        self.0.iter().filter(|(key, _)| key.starts_with(prefix)).map(|(_, n)| n).sum()
    }

    fn count(&self, key: &str) -> u64 {
        self.0.get(key).copied().unwrap_or(0)
    }
}

impl Method for CounterProof {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn plan(&self, params: &Params) -> Plan {
        let trials = FRAME_SIZES.get(params).len() as f64;
        Plan::times(params, 1)
            .counting(FRAME_SIZES.get(params).len())
            .taking(TRIAL_DURATION.seconds(params) * trials + unpaused_s(params, trials, 1.0))
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        TABLE.begin(outcome);
        note(outcome, "The device is our own reference device, so these figures do not describe any router.");
        for size in FRAME_SIZES.get(params) {
            let pattern = Pattern::new(size, params);
            let rate_pps = LOAD.get(params).pps();
            let purpose = format!("counters, {}", pattern.size_text());
            let load = Load::Constant { rate_pps };
            let spec = pattern.trial(bed.ports(), purpose, load, TRIAL_DURATION.seconds(params))?;
            let result = bed.trial(&spec)?;
            let did = Did(&result.dut_counters);
            if did.count(TRANSIT) == 0 {
                return Err(TestError::NotApplicable("this device does not count what it did to frames".into()));
            }
            let fault = FAULT.get(params).unwrap_or_else(|| "faultless".into());
            compare(outcome, &fault, &result, &did);
        }
        Ok(())
    }
}

/// `(name, what the device did, what the tester counted)`.
fn pairs(result: &TrialResult, did: &Did) -> Vec<(&'static str, u64, u64)> {
    let counted = |count: fn(&GroupCounts) -> u64| result.sum(count);
    // A frame with a wrong byte, at a wrong port, to a wrong neighbour or in a wrong encapsulation arrives, but does
    // not count as received.
    let wrong = ["truth.corrupted", "truth.misrouted", "truth.wrong_next_hop", "truth.encapsulation"];
    let spoilt: u64 = wrong.iter().map(|key| did.count(key)).sum();
    // Frames that never reached the device: its ring rejected them, or its socket overflowed.
    let before = counted(|g| g.refused) + did.count("truth.receive_overflow");
    let lost = before + did.sum("truth.dropped.") + did.count("truth.transmit_refused") + spoilt;
    vec![
        ("offered", before + did.count(TRANSIT), result.offered()),
        ("lost", lost, result.lost()),
        ("duplicated", did.count("truth.duplicated"), counted(|g| g.duplicated)),
        // All frames sent after a held frame overtake it.
        ("reordered (RFC 4737)", did.count("truth.reordered") + did.count("truth.held"), counted(|g| g.reordered)),
        ("corrupted", did.count("truth.corrupted"), counted(|g| g.corrupted)),
        ("stray", did.count("truth.misrouted") + did.count("truth.wrong_next_hop"), counted(|g| g.stray)),
        ("wrong encapsulation", did.count("truth.encapsulation"), counted(|g| g.deviations.values().sum())),
        ("late", did.count("truth.held"), counted(|g| g.late)),
    ]
}

fn compare(outcome: &mut Outcome, fault: &str, result: &TrialResult, did: &Did) {
    for (name, device, tester) in pairs(result, did) {
        let difference = tester.abs_diff(device);
        let row = CounterRow { fault: fault.into(), counter: name.into(), device, tester, difference };
        TABLE.add(outcome, row, [result.trial], (difference > 0).then(|| "not equal".into()));
    }
    let wrong: Vec<&str> = pairs(result, did).iter().filter(|(_, a, b)| a != b).map(|(name, ..)| *name).collect();
    let found =
        if wrong.is_empty() { "every counter equal".into() } else { format!("not equal: {}", wrong.join(", ")) };
    outcome.verdicts.push(Verdict::decided(format!("a device that {fault}"), wrong.is_empty(), found));
}
