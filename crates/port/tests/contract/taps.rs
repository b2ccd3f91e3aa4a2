//! Frames that a tap takes from its device but does not deliver to the port are losses of the tester, and the port
//! counts them.

use super::{Bench, Checked, check, frame, take_all};
use drophammer_port::af_packet::AfPacket;
use drophammer_port::tap::Tap;
use drophammer_port::{BURST, Port};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// The tap, and frames of each burst.
const NAME: &str = "p0";
const FRAMES: usize = 60;

/// A program that drops all frames that an interface receives before any socket sees them. It is removed with the
/// value.
struct Thief {
    _link: OwnedFd,
    _program: OwnedFd,
}

impl Thief {
    fn at(interface: &str) -> io::Result<Thief> {
        const PROG_LOAD: libc::c_long = 5;
        const LINK_CREATE: libc::c_long = 28;
        const XDP: u32 = 6;
        const ATTACH_XDP: u32 = 37;
        const GENERIC: u32 = 2;
        // r0 = XDP_DROP; exit.
        let program: [u64; 2] = [0x0000_0001_0000_00b7, 0x0000_0000_0000_0095];
        let bpf = |command: libc::c_long, attributes: &[u32]| {
            // SAFETY: the attributes of the command, with their true length; what they point at lives through the call.
            let fd = unsafe {
                libc::syscall(libc::SYS_bpf, command, attributes.as_ptr(), std::mem::size_of_val(attributes))
            };
            // SAFETY: the descriptor is new and owned by nobody else.
            if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) }) }
        };
        let halves = |pointer: u64| [pointer as u32, (pointer >> 32) as u32];
        let (code, license) = (halves(program.as_ptr() as u64), halves(c"GPL".as_ptr() as u64));
        let loaded = bpf(PROG_LOAD, &[XDP, program.len() as u32, code[0], code[1], license[0], license[1], 0, 0])?;
        let index = std::fs::read_to_string(format!("/sys/class/net/{interface}/ifindex"))?;
        let index: u32 = index.trim().parse().map_err(io::Error::other)?;
        let link = bpf(LINK_CREATE, &[std::os::fd::AsRawFd::as_raw_fd(&loaded) as u32, index, ATTACH_XDP, GENERIC])?;
        Ok(Thief { _link: link, _program: loaded })
    }
}

/// Sends a burst from the device of the tap. Returns how many frames reached the port, and how many it counts as
/// dropped.
fn burst(bench: &Bench, tap: &mut Tap, port: &mut AfPacket, wrapped: &[u8]) -> Result<(u64, u64), String> {
    let mut whole = frame(false, 200, 3, 0);
    whole.splice(12..12, wrapped.iter().copied());
    (0..FRAMES).for_each(|slot| tap.slots().put(slot, &whole));
    let sent = tap.send(FRAMES).map_err(|e| e.to_string())?;
    check(sent.accepted as usize == FRAMES, || format!("{sent:?}"))?;
    let mut came = 0;
    take_all(&bench.clock, port, |_, frame| {
        came += 1;
        check(frame == whole, || "another frame".into())
    })?;
    Ok((came, port.counters().map_err(|e| e.to_string())?.receive_drops))
}

pub fn lost(bench: &Bench) -> Checked {
    // Users who may not load programs, and other backends, are tested elsewhere.
    if bench.name != "af_packet" || bench.captured {
        return Ok(());
    }
    const _: () = assert!(FRAMES <= BURST);
    let mut tap = Tap::create(NAME, 1_500, bench.clock).map_err(|e| e.to_string())?;
    bench.ip(&[&format!("link set {NAME} arp off multicast off addrgenmode none up")])?;
    let mut port = AfPacket::open(NAME, bench.clock).map_err(|e| e.to_string())?;
    let all = FRAMES as u64;
    // The kernel accepts no frame with two tags, and counts it as dropped although the port has received it.
    let dropped = || std::fs::read_to_string(format!("/sys/class/net/{NAME}/statistics/rx_dropped"));
    let before = dropped();
    let two_tags = [0x88, 0xa8, 0, 200, 0x81, 0, 0, 100];
    for wrapped in [&[][..], &two_tags] {
        let counted = burst(bench, &mut tap, &mut port, wrapped)?;
        check(counted == (all, 0), || format!("{counted:?}, wrapped in {wrapped:?}"))?;
    }
    check(before.ok() != dropped().ok(), || "rx_dropped has not grown, so nothing is proven of it".into())?;
    let thief = match Thief::at(NAME) {
        Err(e) if e.raw_os_error() == Some(libc::EPERM) => return Ok(()),
        thief => thief.map_err(|e| e.to_string())?,
    };
    let counted = burst(bench, &mut tap, &mut port, &[])?;
    check(counted == (0, all), || format!("{counted:?} while a program takes all"))?;
    drop(thief);
    let counted = burst(bench, &mut tap, &mut port, &two_tags)?;
    check(counted == (all, all), || format!("{counted:?} afterwards"))
}
