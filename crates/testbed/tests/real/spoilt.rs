//! A trial that the tester itself has spoilt is invalid, reports the reason, and is repeated. Each kind of disturbance
//! is applied to a real trial through a Linux router in a namespace.

use crate::anew::{self, Checked};
use crate::common::{Memory, read_suite};
use drophammer_lab::{Dut, Lab};
use drophammer_methods::pattern::Pattern;
use drophammer_methods::{TestError, Testbed};
use drophammer_model::pattern::{Direction, Distribution};
use drophammer_model::quantity::Instant;
use drophammer_model::record::TrialRecord;
use drophammer_model::suite::Suite;
use drophammer_model::trial::{Family, Load, Validity};
use drophammer_port::af_packet::AfPacket;
use drophammer_port::{Clock, Port, PortError, PortInfo, Received, Sent, SystemClock, pass_on};
use drophammer_rig::{Ports, Rig};
use drophammer_testbed::setup::TestSetup;
use drophammer_testbed::validity::HostTolerance;
use drophammer_testbed::{Session, config};
use std::cell::Cell;
use std::process::{Child, Command};
use std::rc::Rc;
use std::time::Duration;

/// The disturbance in the middle of the first trial.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spoil {
    /// No disturbance.
    Not,
    /// The receiving socket is not read for this long.
    Deaf(Duration),
    /// The sender's own ring is full for some bursts.
    RingFull,
    /// The process is stopped (SIGSTOP) and later continued.
    Stopped,
    /// The wall clock is changed.
    ClockSet,
    /// The sending interface is switched off, and on again.
    SendingDown,
    /// The receiving interface is switched off, and on again.
    ReceivingDown,
    /// The tester's end of the link accepts no frames of this size for a while, so that the router's end drops them.
    EndFull,
    /// The interface is deleted.
    Deleted,
}

impl Spoil {
    /// True if it acts at the receiving port.
    fn of_the_receiver(self) -> bool {
        matches!(self, Spoil::Deaf(_) | Spoil::ReceivingDown | Spoil::EndFull)
    }
}

/// Duration of a disturbance, such as the time for which an interface is switched off, in seconds.
const SPELL_S: &str = "0.3";

/// Number of test frames after which the disturbance starts.
const AFTER: usize = 2_000;

/// State that is shared by the ports of a trial.
#[derive(Default)]
struct Fuse {
    armed: Cell<bool>,
    /// Number of frames sent since the fuse was armed.
    frames: Cell<usize>,
}

impl Fuse {
    /// True if it is time for the disturbance; returns true only once.
    fn burns(&self) -> bool {
        let now = self.armed.get() && self.frames.get() > AFTER;
        if now {
            self.armed.set(false);
        }
        now
    }
}

/// A port with a disturbance. It acts once, when the fuse is armed and some test frames have been sent.
struct Spoiled {
    inner: AfPacket,
    info: PortInfo,
    clock: SystemClock,
    spoil: Spoil,
    fuse: Rc<Fuse>,
    until: Option<Instant>,
    /// Number of remaining sends for which the ring is full.
    full: u32,
    child: Option<Child>,
}

impl Spoiled {
    fn new(inner: AfPacket, clock: SystemClock, spoil: Spoil, fuse: &Rc<Fuse>) -> Spoiled {
        let mut info = inner.info().clone();
        // As with an interface of a real card, refused frames are the tester's own fault.
        info.refusal_is_device_loss &= spoil != Spoil::RingFull;
        Spoiled { inner, info, clock, spoil, fuse: fuse.clone(), until: None, full: 0, child: None }
    }

    /// Starts `script` in parallel. Dropping the port waits for its end.
    fn shell(&mut self, script: &str) {
        self.child = Some(Command::new("sh").arg("-ec").arg(script).spawn().expect("a shell"));
    }

    /// Runs `first` immediately, and `then` at the end of the disturbance.
    fn spell(&mut self, first: &str, then: &str) {
        let done = Command::new("sh").arg("-ec").arg(first).status().expect("a shell");
        assert!(done.success(), "{first}");
        self.shell(&format!("sleep {SPELL_S}; {then}"));
    }

    fn act(&mut self) {
        let (me, name) = (std::process::id(), self.info.interface.clone());
        match self.spoil {
            // The disturbance of the clock does not involve a port.
            Spoil::Not | Spoil::ClockSet => {}
            Spoil::Deaf(time) => self.until = Some(self.clock.now() + time),
            Spoil::RingFull => self.full = 2_000,
            Spoil::Stopped => self.shell(&format!("kill -STOP {me}; sleep {SPELL_S}; kill -CONT {me}")),
            Spoil::SendingDown | Spoil::ReceivingDown => {
                self.spell(&format!("ip link set {name} down"), &format!("ip link set {name} up"));
            }
            Spoil::EndFull => {
                self.spell(&format!("ip link set {name} mtu 1300"), &format!("ip link set {name} mtu 1500"));
            }
            Spoil::Deleted => {
                let done = Command::new("ip").args(["link", "delete", &name]).status().expect("ip");
                assert!(done.success(), "ip link delete");
            }
        }
    }
}

impl Drop for Spoiled {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.wait();
        }
    }
}

impl Port for Spoiled {
    pass_on!(inner: slots, counters);

    fn info(&self) -> &PortInfo {
        &self.info
    }

    fn send(&mut self, frames: usize) -> Result<Sent, PortError> {
        self.fuse.frames.set(self.fuse.frames.get() + frames);
        if self.spoil != Spoil::Not && !self.spoil.of_the_receiver() && self.fuse.burns() {
            self.act();
        }
        if self.full > 0 {
            self.full -= 1;
            let mask = if frames == 64 { u64::MAX } else { (1 << frames) - 1 };
            return Ok(Sent { accepted: 0, refused: frames as u32, refused_mask: mask });
        }
        self.inner.send(frames)
    }

    fn receive(&mut self) -> Result<Received<'_>, PortError> {
        if let Some(until) = self.until {
            if self.clock.now() < until {
                return Ok(Received::none());
            }
            self.until = None;
        }
        if self.spoil.of_the_receiver() && self.fuse.burns() {
            self.act();
        }
        self.inner.receive()
    }
}

/// A clock whose wall clock is changed by 2.5 ms in the middle of the trial, if requested.
struct Set {
    inner: SystemClock,
    fuse: Option<Rc<Fuse>>,
    step: Cell<i128>,
}

impl Clock for Set {
    fn now(&self) -> Instant {
        self.inner.now()
    }

    fn wait(&mut self, deadline: Instant) {
        self.inner.wait(deadline);
    }

    fn wall_offset(&self) -> i128 {
        if self.fuse.as_ref().is_some_and(|f| f.burns()) {
            self.step.set(2_500_000);
        }
        self.inner.wall_offset() + self.step.get()
    }

    fn is_virtual(&self) -> bool {
        false
    }
}

struct Case {
    name: &'static str,
    spoil: Spoil,
    /// The expected reason for the first trial; empty if the trial must be valid.
    says: &'static str,
    size: &'static str,
    rate_pps: f64,
    seconds: f64,
}

const fn case(name: &'static str, spoil: Spoil, says: &'static str) -> Case {
    Case { name, spoil, says, size: "1400", rate_pps: 20_000.0, seconds: 0.5 }
}

/// An additional case without disturbance: measures the kernel's work for the tester on the router's processor.
const SHARE: &str = "the_testers_share_of_the_routers_processor";

const CASES: [Case; 10] = [
    case("nothing_spoils_it", Spoil::Not, ""),
    Case { size: "64", rate_pps: 150_000.0, seconds: 1.0, ..case(SHARE, Spoil::Not, "") },
    Case {
        size: "64",
        // The socket has room for 160,000 frames.
        rate_pps: 140_000.0,
        seconds: 1.5,
        ..case("the_receive_socket_overflows", Spoil::Deaf(Duration::from_millis(1_400)), "in its own receive path")
    },
    case("the_sender_is_refused", Spoil::RingFull, "less than intended"),
    case("the_process_is_stopped", Spoil::Stopped, "held off the processor"),
    case("the_wall_clock_is_set", Spoil::ClockSet, "the wall clock was set by 2"),
    case("the_sending_interface_goes_down", Spoil::SendingDown, "`t0` stopped working"),
    case("the_receiving_interface_goes_down", Spoil::ReceivingDown, "`t1` stopped working"),
    case("the_testers_end_drops", Spoil::EndFull, "in its own receive path"),
    case("the_interface_is_deleted", Spoil::Deleted, ""),
];

fn check(good: bool, what: impl FnOnce() -> String) -> Checked {
    if good { Ok(()) } else { Err(what()) }
}

fn suite() -> Suite {
    read_suite(
        "suite: spoilt\nprofile: quick\nseed: 3\nduts: [{name: box, kind: linux}]\nports:\n  - {name: p1, speed: 1 Gbit/s}\n  \
         - {name: p2, speed: 1 Gbit/s}\ntests:\n  - throughput\n",
    )
}

/// The trials of one case, and the final result for the test.
fn trials(device: &mut dyn Dut, case: &Case) -> Result<(Vec<TrialRecord>, Result<u64, TestError>), String> {
    let suite = suite();
    let clock = SystemClock::start();
    let fuse = Rc::new(Fuse::default());
    let open = |i: usize| -> Result<Box<dyn Port>, String> {
        let port = AfPacket::open(&device.interfaces()[i].name, clock).map_err(|e| e.to_string())?;
        let here = (i == 1) == case.spoil.of_the_receiver() && case.spoil != Spoil::ClockSet;
        let spoil = if here { case.spoil } else { Spoil::Not };
        Ok(Box::new(Spoiled::new(port, clock, spoil, &fuse)))
    };
    let ports = vec![open(0)?, open(1)?];
    let families = [Family::Ipv4];
    let watched = (case.spoil == Spoil::ClockSet).then(|| fuse.clone());
    let clock = Box::new(Set { inner: clock, fuse: watched, step: Cell::new(0) });
    let mut session = Session::new(suite.seed, suite.profile, 5);
    session.tolerance.host = HostTolerance::ANY;
    let mut memory = Memory::default();
    let hosts = config::hosts(&suite.ports, &families, suite.seed);
    let rig = Rig::new(Ports::One { ports, clock }, &hosts);
    let outcome = {
        let mut bed = TestSetup::new("box", &suite.ports, rig, device, &mut session, &mut memory);
        let method = drophammer_methods::find("throughput").unwrap();
        let params = drophammer_suite::defaults(method.spec().params, drophammer_model::suite::Profile::Quick);
        bed.begin_test(method, &params, bed.left);
        bed.await_forwarding(&families).map_err(|e| format!("before the trial: {e}"))?;
        let size = case.size.parse().map_err(|e| format!("{e:?}"))?;
        let direction = Direction::Bidirectional;
        let (distribution, routes) = (Distribution::NonMeshed, 0);
        let pattern = Pattern { direction, distribution, routes, ..Pattern::one_way(size, families.to_vec(), 0.3) };
        let load = Load::Constant { rate_pps: case.rate_pps };
        let mut spec = pattern.trial(bed.ports(), case.name.into(), load, case.seconds).map_err(|e| e.to_string())?;
        fuse.frames.set(0);
        fuse.armed.set(true);
        // Use one direction, so that each port has a fixed role.
        spec.flows.retain(|f| f.from == 0);
        bed.trial(&spec).map(|r| r.offered())
    };
    Ok((memory.trials().into_iter().cloned().collect(), outcome))
}

/// Maximum number of attempts. Other programs may keep this machine so busy that no trial is valid; this is reported,
/// and the case then proves nothing.
const TRIES: usize = 10;

fn run(device: &mut dyn Dut, case: &Case) -> Checked {
    for attempt in 1..=TRIES {
        match once(device, case)? {
            Seen::Good => return Ok(()),
            Seen::Noise => println!("    attempt {attempt} of {TRIES} proves nothing"),
        }
    }
    Err("the machine is too busy for any trial".into())
}

/// Result of a case.
enum Seen {
    Good,
    /// Other programs' use of the processor spoilt the attempts.
    Noise,
}

/// What a trial says if other programs had the tester's processor: it sent too little, did not poll its ports, or sent in bunches.
const NOISE: [&str; 3] = ["less than intended", "held off the processor", "more than 1 ms late"];

/// True if other programs on the processor spoilt the trial.
fn is_noise(reason: &str) -> bool {
    let is_late = |r: &str| NOISE.iter().any(|noise| r.contains(noise));
    reason.split("; ").all(is_late)
}

fn once(device: &mut dyn Dut, case: &Case) -> Result<Seen, String> {
    let (trials, outcome) = trials(device, case)?;
    let reasons: Vec<String> = trials
        .iter()
        .map(|t| match &t.result.validity {
            Validity::Valid => "valid".into(),
            Validity::Invalid(reasons) => reasons.join("; "),
        })
        .collect();
    reasons.iter().for_each(|r| println!("    {r}"));
    let first = reasons.first().ok_or("no trial was stored")?;
    if case.name == SHARE {
        // Check this in valid and invalid trials, if the router has its own processor and its threads are visible.
        let health = &trials[0].result.health;
        let (Some(used), Some(_)) = (health.dut_used_ns, &health.dut_processor) else { return Ok(Seen::Good) };
        let Some(tester) = health.tester_on_dut_ns else {
            // Check this only with the privilege to count it.
            let counted = drophammer_port::softirq_time::SoftirqTime::on(0);
            return counted.map_or(Ok(Seen::Good), |_| Err("it is not known".into()));
        };
        check(tester > 0 && tester < used, || format!("{tester} ns of {used} ns"))?;
        return Ok(Seen::Good);
    }
    let noisy = |reason: &str| is_noise(reason) && !(is_noise(case.says) && reason.contains(case.says));
    if case.spoil == Spoil::Deleted {
        // With its interface, the device has lost its link, which is reported.
        check(first.contains("counts until then are not valid"), || first.clone())?;
        return match outcome {
            Err(TestError::DutDied(e) | TestError::Failed(e)) if !e.is_empty() => Ok(Seen::Good),
            other => Err(format!("{other:?}")),
        };
    }
    if case.says.is_empty() {
        return match first.as_str() {
            "valid" if trials.len() == 1 => Ok(Seen::Good),
            _ if noisy(first) => Ok(Seen::Noise),
            _ => Err("a good trial was thrown away".into()),
        };
    }
    if noisy(first) && !first.contains(case.says) {
        return Ok(Seen::Noise);
    }
    check(first.contains(case.says), || format!("the first attempt does not say `{}`", case.says))?;
    check(trials.len() > 1, || "it was not repeated".into())?;
    check(trials.iter().enumerate().all(|(i, t)| t.attempt as usize == i + 1), || "attempts are misnumbered".into())?;
    let offered = match outcome {
        Ok(offered) => offered,
        Err(TestError::Unfit(last)) if reasons[1..].iter().all(|r| is_noise(r)) => {
            println!("    too busy: {}", last.join("; "));
            return Ok(Seen::Noise);
        }
        Err(e) => return Err(e.to_string()),
    };
    check(reasons.last().is_some_and(|r| r == "valid"), || "the last attempt is not valid".into())?;
    let last = &trials[trials.len() - 1].result;
    check(offered == last.offered() && offered > 0, || format!("the test was given {offered}, not the last attempt"))?;
    Ok(Seen::Good)
}

/// A case for each disturbance.
pub fn cases() -> Vec<anew::Case> {
    // One of them is short enough to run every time.
    CASES
        .iter()
        .enumerate()
        .map(|(at, case)| {
            let whole = anew::Case::in_lab(case.name, move |lab| disturbed(lab, case));
            if at == 0 { whole } else { whole.long() }
        })
        .collect()
}

fn disturbed(lab: &mut Lab, case: &Case) -> Checked {
    let suite = suite();
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let kind = drophammer_lab::find("linux").ok_or("no kind linux")?;
    let role = drophammer_model::role::RouterRole::of(&suite.ports);
    let device = kind.bring_up(lab, &suite.duts[0], &role, folder.path(), &|| false);
    let mut device = device.map_err(|e| e.to_string())?;
    let result = run(device.as_mut(), case);
    let _ = device.take_down();
    result
}
