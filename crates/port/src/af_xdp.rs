//! AF_XDP: test frames go through rings in memory shared with the kernel, past its network stack; what is not test
//! traffic goes through a packet socket. Needs root (`bpf()`).
//!
//! A frame that was handed over leaves with the next call or stays in the ring until the device takes it; frames under
//! way are bounded by the completion ring, and a frame for which it has no room is refused, which is the tester's own
//! doing. The kernel tells no time of arrival: frames get the time at which their burst was taken.

mod program;
mod sys;

use crate::af_packet::sys::{self as packet, ROOM};
use crate::af_packet::{driver, slot_size};
use crate::bpf;
use crate::clock::SystemClock;
use crate::{BURST, Batch, Clock, Port, PortCounters, PortError, PortInfo, Received, Sent};
use drophammer_model::quantity::Instant;
use drophammer_model::registry::BackendSpec;
use drophammer_wire::MacAddr;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// This backend.
pub static SPEC: BackendSpec = BackendSpec {
    name: "af_xdp",
    summary: "rings shared with the kernel, past its network stack; faster than af_packet; needs root",
};

/// Chunks to receive into: room for a gap of 16 ms at a million frames per second.
const RECEIVE: u32 = 16_384;
/// Frames under way to the device at most.
const SEND: u32 = 2_048;
/// What the kernel keeps free at the start of a chunk.
const HEADROOM: usize = 256;
/// Calls for one burst at most. A call ends early at 32 frames or at a frame that the device dropped; what is left after
/// so many stays in the ring for the next ones.
const KICKS: usize = BURST + 8;
/// Every so many receive calls some slots are kept for the packet socket, so that test traffic cannot starve ARP.
const FAIR: u32 = 16;
/// Slots kept then.
const KEPT: usize = 8;
/// The kernel gives a queue back a moment after its last socket was closed.
const QUEUE_FREE: Duration = Duration::from_secs(2);

/// What an ordinary user is told.
fn forbidden(what: &str) -> String {
    format!(
        "{what} is not permitted; the backend af_xdp needs root (CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW outside of user \
         namespaces); as an ordinary user take the backend af_packet"
    )
}

/// May this process use the backend? Not: does an interface support it.
///
/// # Errors
/// Why not, and the remedy.
pub fn usable() -> Result<(), String> {
    bpf::socket_map().and_then(|map| program::load(&map)).map(drop).map_err(|e| match e.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => forbidden("bpf()"),
        _ => format!("the backend af_xdp does not work here: bpf(): {e}"),
    })
}

/// An interface as a tester port.
pub struct AfXdp {
    info: PortInfo,
    // The link goes first: no frame is redirected to a socket that goes.
    _link: OwnedFd,
    _map: OwnedFd,
    socket: OwnedFd,
    rings: sys::Rings,
    frames: sys::Frames,
    packets: OwnedFd,
    clock: SystemClock,
    zero_copy: bool,
    native: bool,
    /// A drop by the device ends a call with an error that does not say which frame it was.
    drops_are_device_loss: bool,
    /// Chunks that may be sent from.
    free: Vec<u64>,
    /// The kernel may have left frames in the send ring.
    unsent: bool,
    slots: Batch,
    received: Vec<(usize, Instant)>,
    receive_memory: Box<[u8]>,
    packet_headers: packet::Headers,
    wall_offset: i128,
    calls: u32,
    /// Frames lost at the packet socket or, not on veth, dropped by the device on sending.
    other_drops: u64,
}

// SAFETY: the message headers point into boxes that the port owns and never moves; nothing in it is tied to a thread.
unsafe impl Send for AfXdp {}

impl AfXdp {
    /// Opens `interface` in the current network namespace.
    ///
    /// # Errors
    /// [`PortError::Open`] with the remedy: no such interface, it is down, no privilege, it has another XDP program, its MTU
    /// is too large for a chunk.
    pub fn open(interface: &str, clock: SystemClock) -> Result<AfXdp, PortError> {
        let fail = |reason: String| PortError::Open { interface: interface.to_owned(), reason };
        let index = packet::interface_index(interface)
            .map_err(|_| fail("there is no such interface; `ip link` lists them".into()))?;
        let explain = |what: &'static str| {
            move |e: io::Error| match e.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => fail(forbidden(what)),
                _ => fail(format!("{what}: {e}")),
            }
        };
        let packets = packet::packet_socket(libc::ETH_P_ALL as u16).map_err(explain("a packet socket"))?;
        let mac = packet::interface_mac(&packets, interface).map_err(explain("hardware address"))?;
        let mtu = packet::interface_mtu(&packets, interface).map_err(explain("MTU"))?;
        if !packet::interface_is_up(&packets, interface).map_err(explain("flags"))? {
            return Err(fail(format!("it is down; `ip link set {interface} up`")));
        }
        // Room for the frame with two VLAN tags. Chunks are powers of two up to a page.
        let needed = mtu as usize + 22 + HEADROOM;
        let chunk = *[2_048, 4_096].iter().find(|c| **c >= needed).ok_or_else(|| {
            fail(format!(
                "its MTU of {mtu} is too large for the backend af_xdp, which takes up to {}",
                4_096 - 22 - HEADROOM
            ))
        })?;
        let map = bpf::socket_map().map_err(explain("bpf()"))?;
        let loaded = program::load(&map).map_err(explain("bpf()"))?;
        let (socket, rings, frames, zero_copy) = bound(index, chunk).map_err(|e| match e.raw_os_error() {
            Some(libc::EBUSY) => fail("another program has an AF_XDP socket on its queue 0".into()),
            _ => explain("an AF_XDP socket")(e),
        })?;
        bpf::insert(&map, &socket).map_err(explain("bpf()"))?;
        let (link, mode) = bpf::attach(&loaded, index).map_err(|e| match e.raw_os_error() {
            Some(libc::EBUSY) => fail(format!("another XDP program is attached; `ip link set {interface} xdp off`")),
            _ => explain("attaching an XDP program")(e),
        })?;
        packet::configure_receiver(&packets, index, 4 << 20).map_err(explain("socket options"))?;
        packet::bind(&packets, index, libc::ETH_P_ALL as u16).map_err(explain("bind"))?;

        let slot = slot_size(mtu);
        let mut receive_memory = vec![0; BURST * slot].into_boxed_slice();
        let driver = driver(interface);
        let copies = if zero_copy { "zero-copy" } else { "copy" };
        let mut port = AfXdp {
            drops_are_device_loss: driver == "veth",
            info: PortInfo {
                interface: interface.to_owned(),
                backend: SPEC.name,
                driver: format!(
                    "{driver}, {} XDP, {copies}",
                    if mode == bpf::Mode::Native { "native" } else { "generic" }
                ),
                mac: MacAddr(mac),
                mtu,
                refusal_is_device_loss: false,
            },
            _link: link,
            _map: map,
            socket,
            rings,
            free: (0..u64::from(SEND)).map(|i| (u64::from(RECEIVE) + i) * chunk as u64).collect(),
            frames,
            packets,
            wall_offset: clock.wall_offset(),
            clock,
            zero_copy,
            native: mode == bpf::Mode::Native,
            unsent: false,
            slots: Batch::new(BURST, slot),
            received: Vec::with_capacity(BURST),
            packet_headers: packet::Headers::to_receive(receive_memory.as_mut_ptr(), slot),
            receive_memory,
            calls: 0,
            other_drops: 0,
        };
        // What came in between opening and binding of the packet socket is of every interface.
        while matches!(port.receive(), Ok(frames) if !frames.is_empty()) {}
        let _ = packet::take_drops(&port.packets);
        Ok(port)
    }

    /// Does the driver itself run the program, before the kernel makes a packet of its own of each frame?
    pub fn is_native(&self) -> bool {
        self.native
    }

    fn lost(&self, source: io::Error) -> PortError {
        PortError::Lost { interface: self.info.interface.clone(), source }
    }

    /// Has the kernel send what is in the ring, as far as the device takes it.
    fn flush(&mut self) -> Result<(), PortError> {
        for _ in 0..if self.zero_copy { 1 } else { KICKS } {
            match sys::kick(&self.socket) {
                Ok(()) => {
                    self.unsent = false;
                    return Ok(());
                }
                Err(e) => match e.raw_os_error() {
                    Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EINTR) => {}
                    Some(libc::EBUSY) => self.other_drops += u64::from(!self.drops_are_device_loss),
                    _ => return Err(self.lost(e)),
                },
            }
        }
        self.unsent = true;
        Ok(())
    }

    /// Takes up to `most` frames out of the ring.
    #[inline]
    fn take_ring(&mut self, most: usize) {
        let slot_size = self.slots.slot_size();
        let mut taken = 0;
        while taken < most {
            let Some(descriptor) = self.rings.receive.pop() else { break };
            let start = taken * slot_size + ROOM;
            let len = (descriptor.len as usize).min(slot_size - ROOM);
            if self.frames.read(descriptor.addr, &mut self.receive_memory[start..start + len]) {
                self.received.push((len, Instant(0)));
                taken += 1;
            }
            // There is room: the ring has an entry for every chunk that we receive into.
            self.rings.fill.push(descriptor.addr);
        }
        if taken > 0 {
            self.rings.receive.release();
            self.rings.fill.publish();
            let now = self.clock.now();
            self.received.iter_mut().for_each(|(_, at)| *at = now);
        }
    }

    /// Fills the remaining slots with what the kernel got. Returns which of them begin without room.
    fn take_packets(&mut self) -> Result<u64, PortError> {
        let (from, slot, mut tagged) = (self.received.len(), self.slots.slot_size(), 0);
        match self.packet_headers.receive(&self.packets, from) {
            Ok(n) => {
                self.wall_offset = self.clock.wall_offset();
                let now = self.clock.now();
                for i in from..from + n {
                    let arrived = self.packet_headers.received(i);
                    let at = arrived.wall.map_or(now, |ns| self.clock.from_wall(ns, self.wall_offset));
                    let memory = &mut self.receive_memory[i * slot..][..slot];
                    self.received.push((packet::whole(&arrived, memory, &mut tagged, i), at));
                }
                Ok(tagged)
            }
            Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) => Ok(0),
            Err(e) => Err(self.lost(e)),
        }
    }
}

/// A socket bound to queue 0, with chunks to receive into.
fn bound(interface: i32, chunk: usize) -> io::Result<(OwnedFd, sys::Rings, sys::Frames, bool)> {
    let start = std::time::Instant::now();
    loop {
        let frames = sys::Frames::new((RECEIVE + SEND) as usize, chunk)?;
        let socket = sys::socket()?;
        let mut rings = sys::configure(&socket, &frames, RECEIVE, SEND)?;
        (0..u64::from(RECEIVE)).for_each(|i| rings.fill.push(i * chunk as u64));
        rings.fill.publish();
        match sys::bind(&socket, interface) {
            Ok(zero_copy) => return Ok((socket, rings, frames, zero_copy)),
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) && start.elapsed() < QUEUE_FREE => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(e) => return Err(e),
        }
    }
}

impl Port for AfXdp {
    fn info(&self) -> &PortInfo {
        &self.info
    }

    fn slots(&mut self) -> &mut Batch {
        &mut self.slots
    }

    fn send(&mut self, frames: usize) -> Result<Sent, PortError> {
        let mut sent = Sent::default();
        while let Some(address) = self.rings.completion.pop() {
            self.free.push(address);
        }
        self.rings.completion.release();
        let mut room = self.rings.send.room();
        for i in 0..frames {
            let frame = self.slots.frame(i);
            let address = if room > 0 { self.free.pop() } else { None };
            match address {
                Some(address) if self.frames.write(address, frame) => {
                    self.rings.send.push(libc::xdp_desc { addr: address, len: frame.len() as u32, options: 0 });
                    room -= 1;
                    sent.accepted += 1;
                }
                unused => {
                    self.free.extend(unused);
                    sent.refused += 1;
                    sent.refused_mask |= 1 << i;
                }
            }
        }
        self.rings.send.publish();
        self.flush()?;
        Ok(sent)
    }

    fn receive(&mut self) -> Result<Received<'_>, PortError> {
        if self.unsent {
            self.flush()?;
        }
        self.received.clear();
        self.calls = self.calls.wrapping_add(1);
        self.take_ring(if self.calls.is_multiple_of(FAIR) { BURST - KEPT } else { BURST });
        let tagged = if self.received.len() < BURST { self.take_packets()? } else { 0 };
        Ok(Received::behind_room(&self.receive_memory, self.slots.slot_size(), tagged, &self.received))
    }

    fn counters(&mut self) -> Result<PortCounters, PortError> {
        self.other_drops += u64::from(packet::take_drops(&self.packets).map_err(|e| self.lost(e))?);
        let ring = sys::statistics(&self.socket).map_err(|e| self.lost(e))?;
        // With copies, a frame for which there was no chunk is in `rx_dropped` already.
        let no_chunk = if self.zero_copy { ring.rx_fill_ring_empty_descs } else { 0 };
        Ok(PortCounters { receive_drops: self.other_drops + ring.rx_dropped + ring.rx_ring_full + no_chunk })
    }
}
