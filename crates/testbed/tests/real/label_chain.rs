//! A guest as a P router with FRR's OSPF and LDP between two emulated P routers, by each backend; and two guests in a row. Frames with the labels of the
//! first guest arrive with those of the P router behind the second one; on the link between the guests they have the label that the
//! second guest has assigned. In both directions.

use crate::anew::{Case, Checked};
use crate::common::Memory;
use crate::common::label_chain::{ALL, FECS, FRAMES, WAYS, prepare, send, suite, unclean};
use crate::uml::{guests, nothing_left};
use drophammer_lab::kinds::uml;
use drophammer_lab::{Dut, Lab};
use drophammer_methods::igp::{FIRST, LENGTH};
use drophammer_model::suite::Suite;
use drophammer_model::trial::Family;
use drophammer_port::{Backend, INTERFACE_BACKENDS, SystemClock};
use drophammer_rig::{Ports, Rig};
use drophammer_testbed::config::hosts_and_routers;
use drophammer_testbed::setup::TestSetup;
use drophammer_testbed::validity::HostTolerance;
use drophammer_testbed::{Session, real};
use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, bind, recv, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// The interface of both guests that leads to the other one.
const BETWEEN: &str = "d1";
/// EtherType of packets with labels (RFC 3032 section 5), and of IPv4.
const MPLS: [u8; 2] = [0x88, 0x47];
const IPV4: [u8; 2] = [0x08, 0x00];

fn text<E: ToString>(e: E) -> String {
    e.to_string()
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(what()) }
}

/// Numbers of frames to FECs, by the index of the FEC and the outermost label; `None` without a label.
type Seen = BTreeMap<(u32, Option<u32>), u64>;

/// Listens on the link between the guests.
struct Listener {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Seen, String>>,
}

impl Listener {
    /// Listens in the network namespace of this process.
    fn start(process: u32) -> Result<Listener, String> {
        let home = File::open(format!("/proc/{process}/ns/net")).map_err(text)?;
        // Only a thread of its own may change its namespace.
        let opened = thread::spawn(move || {
            setns(home, CloneFlags::CLONE_NEWNET)?;
            open()
        });
        let socket = opened.join().map_err(|_| "the thread ended")?.map_err(|e| format!("{BETWEEN}: {e}"))?;
        let stop = Arc::new(AtomicBool::new(false));
        let until = stop.clone();
        Ok(Listener { stop, thread: thread::spawn(move || listen(&socket, &until)) })
    }

    fn end(self) -> Result<Seen, String> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| "the thread ended")?
    }
}

/// Opens a socket for all frames of the link.
fn open() -> nix::Result<OwnedFd> {
    let link = getifaddrs()?.filter(|i| i.interface_name == BETWEEN).find_map(|i| i.address);
    let link = link.filter(|address| address.as_link_addr().is_some()).ok_or(Errno::ENODEV)?;
    let socket = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::EthAll)?;
    let _ = setsockopt(&socket, sockopt::RcvBufForce, &(8 << 20));
    setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::milliseconds(20))?;
    bind(socket.as_raw_fd(), &link)?;
    Ok(socket)
}

/// Counts frames until `stop` is set and none is left.
fn listen(socket: &OwnedFd, stop: &AtomicBool) -> Result<Seen, String> {
    let (mut seen, mut frame) = (Seen::new(), [0; 2048]);
    loop {
        match recv(socket.as_raw_fd(), &mut frame, MsgFlags::empty()) {
            Ok(length) => {
                if let Some(found) = fec(&frame[..length]) {
                    *seen.entry(found).or_default() += 1;
                }
            }
            Err(Errno::EAGAIN) if stop.load(Ordering::Relaxed) => return Ok(seen),
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(e) => return Err(text(e)),
        }
    }
}

/// FEC and label of a frame to a FEC.
fn fec(frame: &[u8]) -> Option<(u32, Option<u32>)> {
    let word = |at: usize| Some(u32::from_be_bytes(*frame.get(at..)?.first_chunk()?));
    let (packet, label) = match frame.get(12..14)? {
        kind if kind == MPLS => (18, Some(word(14)? >> 12)),
        kind if kind == IPV4 => (14, None),
        _ => return None,
    };
    let fec = word(packet + 16)?.checked_sub(FIRST.to_bits())? >> (32 - LENGTH);
    (fec < FECS).then_some((fec, label))
}

/// Sends frames in both directions, and compares their labels between the guests with those that the second guest told the tester.
fn swaps(setup: &mut TestSetup<'_>, suite: &Suite) -> Checked {
    let params = &suite.tests[0].params;
    let guest = *guests().first().ok_or("no guest")?;
    for ports in WAYS {
        let begun = Instant::now();
        let way = prepare(setup, params, ports).map_err(text)?;
        let ready = begun.elapsed();
        let listener = Listener::start(guest)?;
        let result = send(setup, params, &way).map_err(text);
        let seen = listener.end()?;
        let wrong = unclean(&result?);
        ensure(wrong.is_none(), || wrong.unwrap_or_default())?;
        let wanted: Seen = (0..FECS).zip(&way.second).map(|(fec, label)| ((fec, Some(*label)), FRAMES)).collect();
        ensure(seen == wanted, || format!("between the guests: {seen:?}, not {wanted:?}"))?;
        let same = way.first.iter().zip(&way.second).filter(|(first, second)| first == second).count();
        ensure(same == 0, || format!("both guests have the same label for {same} FECs: a swap would not be seen"))?;
        eprintln!(
            "    port {} to port {}: ready after {:.1} s, {ALL} of {ALL} frames; the first FEC has label {} before the guests, {} between them",
            ports.0,
            ports.1,
            ready.as_secs_f64(),
            way.first[0],
            way.second[0]
        );
    }
    Ok(())
}

/// Runs `act` on a rig of this backend at the ports of `dut`.
fn with_rig(
    lab: &Lab,
    dut: &mut dyn Dut,
    (suite, backend): (&Suite, &Backend),
    act: impl FnOnce(&mut TestSetup<'_>) -> Checked,
) -> Checked {
    let clock = SystemClock::start();
    let open = real::open(lab, dut.interfaces(), backend, 1, clock)?;
    let rig = Rig::new(Ports::real(open, clock, &[]), &hosts_and_routers(&suite.ports, &[Family::Ipv4], suite.seed));
    let mut session = Session::new(suite.seed, suite.profile, u64::from(std::process::id()));
    session.tolerance.host = HostTolerance::ANY;
    let mut memory = Memory::default();
    let mut setup = TestSetup::new("row", &suite.ports, rig, dut, &mut session, &mut memory);
    setup.await_forwarding(&[Family::Ipv4]).map_err(text).and_then(|()| act(&mut setup))
}

fn chain(lab: &mut Lab) -> Checked {
    let folder = tempfile::tempdir().map_err(text)?;
    let suite = suite("uml, memory: 256", 2);
    let begun = Instant::now();
    let mut dut = real::bring_up(lab, &suite.duts[0], &suite, folder.path(), &|| false).map_err(text)?;
    eprintln!("    two guests with an LDP session after {:.1} s", begun.elapsed().as_secs_f64());
    with_rig(lab, dut.as_mut(), (&suite, &INTERFACE_BACKENDS[0]), |setup| swaps(setup, &suite))?;
    dut.check().map_err(text)?;
    real::take_down(dut, folder.path())?;
    nothing_left()
}

/// Sends frames with the labels of one guest's LDP by each backend that this machine has: the counts are the same.
fn backends(lab: &mut Lab) -> Checked {
    let folder = tempfile::tempdir().map_err(text)?;
    let suite = suite("uml, memory: 256, links: veth", 1);
    let params = &suite.tests[0].params;
    let mut dut = real::bring_up(lab, &suite.duts[0], &suite, folder.path(), &|| false).map_err(text)?;
    for backend in INTERFACE_BACKENDS.iter().filter(|backend| (backend.usable)().is_ok()) {
        let begun = Instant::now();
        let name = backend.spec.name;
        let swapped = with_rig(lab, dut.as_mut(), (&suite, backend), |setup| {
            let way = prepare(setup, params, WAYS[0]).map_err(text)?;
            match unclean(&send(setup, params, &way).map_err(text)?) {
                None => Ok(()),
                Some(wrong) => Err(wrong),
            }
        });
        swapped.map_err(|e| format!("{name}: {e}"))?;
        eprintln!("    {name}: {ALL} of {ALL} frames to {FECS} FECs, {:.1} s", begun.elapsed().as_secs_f64());
    }
    dut.check().map_err(text)?;
    real::take_down(dut, folder.path())?;
    nothing_left()
}

/// The tests.
pub fn cases() -> Vec<Case> {
    let unfit = uml::unfit_processor;
    vec![
        Case::in_lab("the_first_of_two_guests_swaps_to_the_label_of_the_second", chain).again().long().unless(unfit()),
        Case::in_lab("frames_with_labels_of_ldp_count_the_same_by_every_backend", backends)
            .again()
            .long()
            .unless(unfit()),
    ]
}
