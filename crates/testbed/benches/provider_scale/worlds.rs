//! The reference device in virtual time, and in real time behind `memory` ports.

use crate::common::{Memory, one_thread, resolve, with_bed, with_setup};
use crate::recorded_s;
use drophammer_model::quantity::Instant;
use drophammer_model::suite::Suite;
use drophammer_model::trial::Family;
use drophammer_port::memory::{self, MemoryPort};
use drophammer_port::{BURST, Clock, Port, PortError, Received, Sent, SystemClock, pass_on, wait};
use drophammer_reference::{Router, Truth};
use drophammer_rig::host_mac;
use drophammer_testbed::setup::TestSetup;
use drophammer_testbed::simulated::{self, NoDut};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Room for tags and labels in addition to the MTU of a port.
const EXTRA: u32 = 32;
/// Longest sleep of the device, which then looks whether the case has ended.
const SLEEP: Duration = Duration::from_millis(20);

/// Frames that wait for room in the ring of a port of the device; more are lost, as in the output queue of any router.
const WAITING: usize = 8_192;

/// Bursts that the device takes from one port before it answers: more than fit into a ring at once.
const MOST_BURSTS: usize = 4 * memory::RING_BURSTS;

/// Where a case runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum World {
    Virtual,
    Memory,
}

impl World {
    /// Its name among the arguments.
    pub fn name(self) -> &'static str {
        match self {
            World::Virtual => "virtual",
            World::Memory => "memory",
        }
    }
}

/// What a case sees of the device.
pub trait Device {
    fn truth(&self) -> Truth;

    /// Processor time of its own thread, in s; 0 if it has none.
    fn processor_s(&self) -> f64;
}

impl Device for simulated::Reference {
    fn truth(&self) -> Truth {
        simulated::Reference::truth(self)
    }

    fn processor_s(&self) -> f64 {
        0.0
    }
}

/// Runs a case with the first DUT of `suite`.
pub fn with_world<T>(world: World, suite: &Suite, case: impl FnOnce(&mut TestSetup<'_>, &dyn Device) -> T) -> T {
    match world {
        World::Virtual => with_bed(suite, &[Family::Ipv4], |_| {}, |bed, device| case(bed, device)),
        World::Memory => in_memory(suite, case),
    }
}

/// The device's thread, as the others see it.
#[derive(Default)]
struct Shared {
    ended: AtomicBool,
    processor_ns: AtomicU64,
    truth: Mutex<Truth>,
}

impl Device for Shared {
    fn truth(&self) -> Truth {
        *self.truth.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn processor_s(&self) -> f64 {
        self.processor_ns.load(Ordering::Relaxed) as f64 / 1e9
    }
}

fn in_memory<T>(suite: &Suite, case: impl FnOnce(&mut TestSetup<'_>, &dyn Device) -> T) -> T {
    let clock = SystemClock::start();
    let config = simulated::config(&suite.duts[0], &suite.ports, suite.seed);
    let (mut near, mut far) = (Vec::new(), Vec::new());
    for (index, (port, device)) in suite.ports.iter().zip(&config.ports).enumerate() {
        let [ours, theirs] = joined([host_mac(suite.seed, index), device.mac], port.mtu + EXTRA, clock);
        near.push(ours);
        far.push(theirs);
    }
    let shared = Arc::new(Shared::default());
    let router = Router::new(config).unwrap_or_else(|e| panic!("{e}"));
    std::thread::scope(|scope| {
        let own = shared.clone();
        // The device ends even if the case panics.
        let _end = End(&shared.ended);
        scope.spawn(move || serve(router, far, clock, &own));
        let ports = one_thread(near, Box::new(clock));
        with_setup(suite, &[Family::Ipv4], ports, &mut NoDut, &mut Memory::default(), |bed| {
            resolve(bed);
            case(bed, &*shared)
        })
    })
}

/// Sets a flag when it goes out of scope.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The loop of the device.
fn serve(mut router: Router, mut ports: Vec<Joined>, clock: SystemClock, shared: &Shared) {
    // Frames wait for room in the ring of their port.
    let mut waiting: Vec<VecDeque<Vec<u8>>> = ports.iter().map(|_| VecDeque::new()).collect();
    let mut told = clock.now();
    while !shared.ended.load(Ordering::Relaxed) {
        let mut busy = false;
        // The device reads all frames that have arrived by now before it finds out which timers have expired by now.
        let now = clock.now();
        for (index, port) in ports.iter_mut().enumerate() {
            for _ in 0..MOST_BURSTS {
                let frames = port.receive().unwrap_or_else(|e| panic!("{e}"));
                if frames.is_empty() {
                    break;
                }
                busy = true;
                frames.iter().for_each(|arrival| router.receive(arrival.at, index, arrival.frame));
            }
        }
        let mut lost = 0;
        router.poll(now, &mut |_, port, frame| match waiting[port].len() < WAITING {
            true => waiting[port].push_back(frame.to_vec()),
            false => lost += 1,
        });
        router.note_transmit_refused(lost);
        for (port, waiting) in ports.iter_mut().zip(&mut waiting) {
            busy |= flush(port, waiting);
        }
        let full = waiting.iter().any(|waiting| !waiting.is_empty());
        // Not at each turn: it costs more than a turn.
        if now.since(told) >= SLEEP {
            told = now;
            shared.processor_ns.store((recorded_s() * 1e9) as u64, Ordering::Relaxed);
            *shared.truth.lock().unwrap_or_else(PoisonError::into_inner) = *router.truth();
        }
        if full {
            std::thread::yield_now();
        } else if !busy {
            let rest = router.next_deadline().map_or(SLEEP, |at| at.since(clock.now())).min(SLEEP);
            let all: Vec<_> = ports.iter().filter_map(Port::readable).collect();
            wait::until_readable(&all, rest).unwrap_or_else(|e| panic!("{e}"));
        }
    }
}

/// Sends what has room; true if that was anything.
fn flush(port: &mut Joined, waiting: &mut VecDeque<Vec<u8>>) -> bool {
    let mut any = false;
    loop {
        let count = waiting.len().min(BURST);
        if count == 0 {
            return any;
        }
        waiting.iter().take(count).enumerate().for_each(|(slot, frame)| port.slots().put(slot, frame));
        let accepted = port.send(count).unwrap_or_else(|e| panic!("{e}")).accepted as usize;
        waiting.drain(..accepted);
        any |= accepted > 0;
        if accepted < count {
            return any;
        }
    }
}

/// An end of two `memory` ports that wakes the other end, so that both can sleep.
struct Joined {
    port: MemoryPort,
    socket: UnixStream,
    /// True while a byte for this end, or for the other one, is in its socket.
    called: Arc<AtomicBool>,
    calls: Arc<AtomicBool>,
}

fn joined(macs: [drophammer_wire::MacAddr; 2], mtu: u32, clock: SystemClock) -> [Joined; 2] {
    let [a, b] = memory::pair(macs, mtu, clock);
    let (left, right) = UnixStream::pair().unwrap_or_else(|e| panic!("a pair of sockets: {e}"));
    let flags = [Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false))];
    let end = |port, socket: UnixStream, own: usize| {
        socket.set_nonblocking(true).unwrap_or_else(|e| panic!("{e}"));
        Joined { port, socket, called: flags[own].clone(), calls: flags[1 - own].clone() }
    };
    [end(a, left, 0), end(b, right, 1)]
}

impl Port for Joined {
    pass_on!(port: info, slots, counters);

    fn send(&mut self, frames: usize) -> Result<Sent, PortError> {
        let sent = self.port.send(frames)?;
        if sent.accepted > 0 && !self.calls.swap(true, Ordering::AcqRel) {
            // One byte at a time always has room.
            let _ = self.socket.write(&[0]);
        }
        Ok(sent)
    }

    fn receive(&mut self) -> Result<Received<'_>, PortError> {
        if self.called.load(Ordering::Acquire) {
            let mut byte = [0];
            // The other end sets the flag before it writes the byte. The swap shows all frames for which it found the flag set.
            if self.socket.read(&mut byte).is_ok() {
                self.called.swap(false, Ordering::AcqRel);
            }
        }
        self.port.receive()
    }

    fn readable(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }
}

/// Seconds between two instants.
pub fn seconds(from: Instant, to: Instant) -> f64 {
    to.since(from).as_secs_f64()
}
