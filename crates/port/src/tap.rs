//! The far end of a tap interface: frames that the kernel sends through the interface are received here, and frames
//! sent here arrive at the interface. It is for a device in a separate process; the tester uses the interface itself,
//! with `af_packet`.
//!
//! The interface is not persistent: it disappears with the port or, at the latest, with the process. Each frame takes
//! one system call.

use crate::af_packet::{slot_size, sys};
use crate::{BURST, Batch, Clock, Filled, Port, PortCounters, PortError, PortInfo, Received, Sent, SystemClock};
use drophammer_model::registry::BackendSpec;
use drophammer_wire::MacAddr;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

/// This backend.
pub static SPEC: BackendSpec = BackendSpec {
    name: "tap",
    summary: "the far end of a tap interface, for the reference device in its own process; needs /dev/net/tun",
};

/// Device file for creating taps.
const DEVICE: &str = "/dev/net/tun";

/// The far end of a tap interface.
pub struct Tap {
    info: PortInfo,
    file: File,
    clock: SystemClock,
    slots: Batch,
    memory: Box<[u8]>,
    arrived: Vec<Filled>,
}

fn open() -> Result<File, String> {
    let opened = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(DEVICE);
    opened.map_err(|e| match e.kind() {
        ErrorKind::NotFound => {
            format!("there is no {DEVICE}: load the kernel module tun (`modprobe tun`), or use veth")
        }
        ErrorKind::PermissionDenied => format!("not permitted to open {DEVICE}; run as root, or use veth"),
        _ => format!("cannot open {DEVICE}: {e}"),
    })
}

/// Checks if this process can create taps, as far as possible without creating one.
///
/// # Errors
/// The reason and the remedy.
pub fn usable() -> Result<(), String> {
    open().map(drop)
}

impl Tap {
    /// Creates the interface `name` in the current network namespace, down. Frames longer than `mtu` plus headers are truncated.
    ///
    /// # Errors
    /// [`PortError::Open`] with the remedy: the system has no taps, a privilege is missing, or the name is in use.
    pub fn create(name: &str, mtu: u32, clock: SystemClock) -> Result<Tap, PortError> {
        let fail = |reason: String| PortError::open(name, reason);
        let device = OwnedFd::from(open().map_err(&fail)?);
        sys::make_tap(&device, name).map_err(|e| match e.raw_os_error() {
            Some(libc::EPERM) => fail("not permitted to create a tap; run as root, or use veth".into()),
            Some(libc::EBUSY) => fail("an interface with this name exists already".into()),
            _ => fail(format!("cannot create a tap: {e}")),
        })?;
        let mac = sys::interface_mac(&device, name).map_err(|e| fail(format!("hardware address: {e}")))?;
        let slot = slot_size(mtu);
        Ok(Tap {
            info: PortInfo { stamps_arrivals: false, ..PortInfo::new(name, &SPEC, "tun", MacAddr(mac), mtu) },
            file: device.into(),
            clock,
            slots: Batch::new(BURST, slot),
            memory: vec![0; BURST * slot].into_boxed_slice(),
            arrived: Vec::with_capacity(BURST),
        })
    }

    fn lost(&self, source: io::Error) -> PortError {
        PortError::lost(&self.info, source)
    }
}

impl Port for Tap {
    info_and_slots!();

    fn send(&mut self, frames: usize) -> Result<Sent, PortError> {
        let mut sent = Sent::default();
        for i in 0..frames {
            loop {
                match self.file.write(self.slots.frame(i)) {
                    Ok(_) => sent.accepted += 1,
                    Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                    Err(e) => match e.raw_os_error() {
                        Some(libc::ENOBUFS | libc::EAGAIN | libc::ENOMEM) => sent.refuse(i),
                        _ => return Err(self.lost(e)),
                    },
                }
                break;
            }
        }
        Ok(sent)
    }

    fn receive(&mut self) -> Result<Received<'_>, PortError> {
        self.arrived.clear();
        let slot = self.slots.slot_size();
        while self.arrived.len() < BURST {
            let start = self.arrived.len() * slot;
            match self.file.read(&mut self.memory[start..start + slot]) {
                // A tap provides no arrival times, so frames get the time at which they are taken.
                Ok(len) => self.arrived.push(Filled::new(len, self.clock.now())),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => return Err(self.lost(e)),
            }
        }
        Ok(Received::new(&self.memory, slot, &self.arrived))
    }

    /// The tap reports to the sender which frames do not fit into its queue, so it loses none unnoticed.
    fn counters(&mut self) -> Result<PortCounters, PortError> {
        Ok(PortCounters::default())
    }

    fn readable(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }
}
