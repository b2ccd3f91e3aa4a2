//! Checks each counter of the tester against the reference device, which makes one kind of error at a time and reports
//! the number of errors.

use super::SelfTest;
use crate::config::hosts;
use crate::observer::Observer;
use crate::session::Session;
use crate::setup::{Left, TestSetup};
use crate::{device, real, simulated};
use drophammer_lab::{Dut, Links};
use drophammer_methods::parameters::{DRAIN, FRAME_SIZES};
use drophammer_methods::selftest::TRIAL_DURATION;
use drophammer_methods::selftest::counter_proof::{self, CounterProof, FAULT};
use drophammer_methods::{Method, TestError};
use drophammer_model::outcome::Outcome;
use drophammer_model::suite::{DutConfig, Params, Profile};
use drophammer_model::traffic::Deviation;
use drophammer_model::trial::Family;
use drophammer_port::{Backend, SystemClock};
use drophammer_reference::{Corrupt, Encapsulation, Faults, Hold, Misroute, NOBODY, Reorder, WrongNextHop};
use drophammer_rig::{Ports, Rig};
use std::time::{Duration, Instant};

pub(super) const NAME: &str = counter_proof::NAME;
pub(super) const TITLE: &str = counter_proof::TITLE;

/// Length of the trial on each device.
const TRIAL: Duration = Duration::from_secs(1);
/// Additional time per device: it has to come up, and the tester waits for lost frames.
const BESIDE: Duration = Duration::from_millis(1_500);
/// A frame is late after a second. A held frame must exceed that by more than the tester's own latency.
const HELD: Duration = Duration::from_millis(1_200);
/// Time to wait for late frames.
const DRAIN_TIME: Duration = Duration::from_millis(1_500);

/// Returns the devices, as text and as faults. Intervals are primes, so that they do not coincide with other periods.
fn devices() -> Vec<(&'static str, Faults)> {
    let none = Faults::default();
    vec![
        ("does nothing wrong", none.clone()),
        ("drops every 97th frame", Faults { drop_every: 97, ..none.clone() }),
        ("drops 1 % at random", Faults { drop_share: 0.01, ..none.clone() }),
        ("sends every 89th frame twice", Faults { duplicate_every: 89, ..none.clone() }),
        (
            "lets 3 frames pass every 101st",
            Faults { reorder: Some(Reorder { every: 101, positions: 3 }), ..none.clone() },
        ),
        (
            "changes a byte of every 83rd frame",
            Faults { corrupt: Some(Corrupt { every: 83, offset: None, fix_checksum: false }), ..none.clone() },
        ),
        // Not in the signature: its check has 16 bits, so a corrected frame could by chance pass as a frame of an earlier trial.
        (
            "changes a byte and corrects the checksum of every 79th frame",
            Faults { corrupt: Some(Corrupt { every: 79, offset: Some(0), fix_checksum: true }), ..none.clone() },
        ),
        (
            "sends every 103rd frame to port 1",
            Faults { misroute: Some(Misroute { every: 103, to_port: 0 }), ..none.clone() },
        ),
        (
            "sends every 107th frame to a station that does not exist",
            Faults { wrong_next_hop: Some(WrongNextHop { every: 107, mac: NOBODY }), ..none.clone() },
        ),
        (
            "puts a VLAN tag on every 109th frame",
            Faults {
                encapsulation: Some(Encapsulation { every: 109, change: Deviation::VlanUnexpected }),
                ..none.clone()
            },
        ),
        ("holds every 1,009th frame for 1.2 s", Faults { hold: Some(Hold { every: 1_009, time: HELD }), ..none }),
    ]
}

/// Duration of the whole step.
pub(super) fn estimate() -> Duration {
    (TRIAL + BESIDE) * devices().len() as u32
}

/// Proves the counters of `backend`. The results of one device are kept if the next device fails.
///
/// # Errors
/// The error that stopped the proof.
pub(super) fn prove(
    test: &mut SelfTest<'_>,
    backend: &'static Backend,
    session: &mut Session,
    observer: &mut dyn Observer,
    left: Left,
    outcome: &mut Outcome,
) -> Result<(), TestError> {
    let mut result = Ok(());
    for (words, faults) in devices() {
        let mut one = Outcome::default();
        result = on_device(test, backend, session, observer, left, (words, faults), &mut one);
        append(outcome, one);
        if result.is_err() {
            break;
        }
    }
    result
}

/// Adds the results of one device: appends its rows to the table, and copies the rest.
fn append(outcome: &mut Outcome, one: Outcome) {
    for table in one.tables {
        match outcome.tables.iter_mut().find(|t| t.key == table.key) {
            Some(found) => found.rows.extend(table.rows),
            None => outcome.tables.push(table),
        }
    }
    outcome.verdicts.extend(one.verdicts);
    outcome.notes.extend(one.notes.into_iter().filter(|n| !outcome.notes.contains(n)).collect::<Vec<_>>());
}

fn on_device(
    test: &mut SelfTest<'_>,
    backend: &'static Backend,
    session: &mut Session,
    observer: &mut dyn Observer,
    left: Left,
    (words, faults): (&str, Faults),
    outcome: &mut Outcome,
) -> Result<(), TestError> {
    let failed = |what: &str, e: &dyn std::fmt::Display| TestError::Failed(format!("{what}: {e}"));
    let name = backend.spec.name;
    let dut = DutConfig {
        name: name.into(),
        kind: crate::kinds::REFERENCE.into(),
        params: Params::default(),
        topology: None,
    };
    let folder = test.work_dir.join(format!("{name}-reference"));
    std::fs::create_dir_all(&folder)
        .map_err(|e| TestError::Store(format!("cannot create {}: {e}", folder.display())))?;
    let mut config = simulated::config(&dut, &test.ports, test.seed);
    config.faults = faults;
    let stop = || observer.stopped();
    let up = device::bring_up_with(test.lab, &dut, &test.ports, &folder, Links::Veth, config, &stop);
    let mut device = match up {
        Ok(device) => device,
        Err(_) if observer.stopped() => return Err(TestError::Interrupted),
        Err(e) => return Err(failed("the reference device did not come up", &e)),
    };
    let clock = SystemClock::start();
    let ports = real::open_apart(test.lab, device.interfaces(), backend, 1, clock)
        .map_err(|e| failed("its ports cannot be opened", &e))?;
    let config = hosts(&test.ports, &[Family::Ipv4], test.seed);
    let rig = Rig::new(Ports::real(ports, clock, &[]), &config);
    let result = {
        let mut setup = TestSetup::new(name, &test.ports, rig, &mut device, session, observer);
        setup.begin_own(NAME, Left { since: Instant::now(), ..left });
        let params = params(test, words);
        setup.await_forwarding(&[Family::Ipv4]).and_then(|()| CounterProof.run(&mut setup, &params, outcome))
    };
    let down = real::take_down(Box::new(device), &folder);
    result?;
    down.map_err(|e| failed("the reference device could not be taken down", &e))
}

fn params(test: &SelfTest<'_>, words: &str) -> Params {
    let mut params = drophammer_suite::defaults(CounterProof.spec().params, Profile::Quick);
    FRAME_SIZES.set(&mut params, vec![test.sizes[0].clone()]);
    TRIAL_DURATION.set(&mut params, TRIAL.max(test.trial));
    DRAIN.set(&mut params, DRAIN_TIME);
    FAULT.set(&mut params, Some(words.into()));
    params
}
