//! AF_XDP: test frames pass through rings in memory shared with the kernel and bypass its network stack. Other frames
//! pass through a packet socket. Needs root (`bpf()`).
//!
//! Slots are frames in that memory, and received frames are lent from where the kernel has put them, so this process
//! copies no test frame.
//!
//! A frame that was handed over leaves with the next call or stays in the ring until the device takes it. The
//! completion ring limits the frames in flight; a frame for which it has no room is refused and counts as not offered.
//! The kernel provides no arrival times, so frames get the time at which their burst was taken.

mod program;
mod sys;
mod umem;

use crate::af_packet::{self, Interface, Receiver, sys as packet};
use crate::bpf;
use crate::clock::SystemClock;
use crate::device::{CardDrops, merges_queues, receive_queues};
use crate::{
    BURST, Backend, Batch, Clock, Filled, Port, PortCounters, PortError, PortInfo, Queue, Received, Sent, one_by_one,
};
use drophammer_model::registry::BackendSpec;
use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;
use umem::{SendFrames, Umem};

/// Name and summary of this backend.
pub static SPEC: BackendSpec = BackendSpec {
    name: "af_xdp",
    summary: "rings shared with the kernel, bypassing its network stack; faster than af_packet; needs root",
};

/// This backend.
pub const BACKEND: Backend = Backend {
    spec: &SPEC,
    usable,
    begin: |interfaces, queues, clock| one_by_one(interfaces, |name| AfXdp::open_queues(name, queues, clock)),
    most_queues: af_packet::MOST_QUEUES,
};

/// Receive chunks: room for a gap of 16 ms at a million frames per second.
const RECEIVE: u32 = 16_384;
/// Maximum number of frames in flight to the device.
const SEND: u32 = 2_048;
/// Space that the kernel keeps free at the start of a chunk.
const HEADROOM: usize = 256;
/// Maximum number of calls for one burst. A call ends early after 32 frames or at a frame that the device dropped.
/// Frames left after this many calls stay in the ring for the next burst.
const KICKS: usize = BURST + 8;
/// Every `FAIR` receive calls some slots are reserved for the packet socket, so that test traffic cannot starve ARP.
const FAIR: u32 = 16;
/// Number of slots reserved in that case.
const KEPT: usize = 8;
/// How long to retry binding, because the kernel releases a queue a moment after its last socket was closed.
const QUEUE_FREE: Duration = Duration::from_secs(2);

/// Chunks to send from: each slot keeps one chunk while all others are in flight.
const SEND_CHUNKS: u32 = SEND + BURST as u32;
/// Length of an Ethernet header with two VLAN tags.
const TAGGED_HEADER: usize = 22;

/// Returns the room for the largest frame of `mtu`, in whole cache lines.
fn frame_room(mtu: u32) -> usize {
    (mtu as usize + TAGGED_HEADER).next_multiple_of(64)
}

/// Error message for an unprivileged user.
fn forbidden(what: &str) -> String {
    format!(
        "{what} is not permitted; the backend af_xdp needs root (CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW outside of user \
         namespaces); as an ordinary user, use the backend af_packet"
    )
}

/// Checks whether this process may use the backend, not whether an interface supports it.
///
/// # Errors
/// The reason and the remedy.
pub fn usable() -> Result<(), String> {
    let loaded = bpf::socket_map(1).and_then(|map| program::load(&map));
    loaded.map(drop).map_err(|e| af_packet::explained("bpf()", &e, forbidden))
}

/// State that the queues of an interface share. The last queue drops it.
struct Attached {
    // The link is dropped first, so that no frame is redirected to a closed socket.
    _link: OwnedFd,
    _map: OwnedFd,
    mode: bpf::Mode,
}

/// An interface, or one queue of it, as a tester port.
pub struct AfXdp {
    info: PortInfo,
    attached: Arc<Attached>,
    bound: Bound,
    /// Receives the frames that are not test frames.
    packets: Receiver,
    clock: SystemClock,
    /// True if a drop by the device ends a call with an error that does not identify the frame.
    drops_are_device_loss: bool,
    /// True if the kernel may have left frames in the send ring.
    unsent: bool,
    slots: Batch,
    /// Where the kernel finds the frames of `slots`.
    send_frames: SendFrames,
    received: Vec<Filled>,
    /// The frames that are currently lent.
    lent: Vec<NonNull<[u8]>>,
    /// Addresses of chunks that go back to the kernel before more frames are taken.
    returning: Vec<u64>,
    calls: u32,
    /// Frames lost at the packet socket. Except on veth, also frames that the device dropped on sending.
    other_drops: u64,
    /// Frames dropped by the network card.
    card_drops: CardDrops,
}

// SAFETY: the message headers point into boxes that the port owns and never moves. Lent frames are in memory that the
// port co-owns. Nothing in it is tied to a thread.
unsafe impl Send for AfXdp {}

impl AfXdp {
    /// Opens `interface` in the current network namespace. Frames at device queues other than the first arrive through
    /// the packet socket.
    ///
    /// # Errors
    /// [`PortError::Open`] with the remedy: the interface does not exist or is down, a privilege is missing, another
    /// XDP program is attached, or the MTU is too large for a chunk.
    pub fn open(interface: &str, clock: SystemClock) -> Result<AfXdp, PortError> {
        Ok(AfXdp::open_queues(interface, 1, clock)?.remove(0))
    }

    /// Opens the first `queues` queues of `interface`, at least one. The device decides at which queue a test frame
    /// arrives. The kernel spreads other frames over the queues by its own hash of addresses and ports.
    ///
    /// # Errors
    /// The errors of [`AfXdp::open`], or [`PortError::Open`] if the device has fewer queues.
    pub fn open_queues(interface: &str, queues: u32, clock: SystemClock) -> Result<Vec<AfXdp>, PortError> {
        let place = Interface::find(interface, forbidden)?;
        let fail = |reason: String| PortError::open(interface, reason);
        // A chunk is a power of two, no larger than a page.
        let chunk = *[2_048, 4_096].iter().find(|c| **c >= frame_room(place.mtu) + HEADROOM).ok_or_else(|| {
            let (mtu, most) = (place.mtu, 4_096 - TAGGED_HEADER - HEADROOM);
            fail(format!("its MTU of {mtu} is too large for the backend af_xdp, which takes up to {most}"))
        })?;
        let (count, there) = (queues.max(1), receive_queues(interface));
        if count > there {
            let remedy = format!("`ethtool -L {interface} combined {count}`, or fewer queues");
            return Err(fail(format!("{count} queues, but it has {there} to receive; {remedy}")));
        }
        let map = bpf::socket_map(count).map_err(place.explain("bpf()"))?;
        let loaded = program::load(&map).map_err(place.explain("bpf()"))?;
        let mut bound = Vec::new();
        for queue in 0..count {
            let one = Bound::new(&place, chunk, queue).map_err(|e| match e.raw_os_error() {
                Some(libc::EBUSY) => fail(format!("another program has an AF_XDP socket on its queue {queue}")),
                _ => place.explain("an AF_XDP socket")(e),
            })?;
            bpf::insert(&map, queue, &one.socket).map_err(place.explain("bpf()"))?;
            bound.push(one);
        }
        let (link, mode) = bpf::attach(&loaded, place.index).map_err(|e| match e.raw_os_error() {
            Some(libc::EBUSY) => fail(format!("another XDP program is attached; `ip link set {interface} xdp off`")),
            _ => place.explain("attaching an XDP program")(e),
        })?;
        let attached = Arc::new(Attached { _link: link, _map: map, mode });
        // Few bursts take this path, so each of them can have its own sample of the clocks.
        let packets = || Receiver::open(&place, 4 << 20, 1, clock).map_err(place.explain("a packet socket"));
        let packets = (0..count).map(|_| packets()).collect::<Result<Vec<_>, _>>()?;
        if count > 1 {
            packet::spread(packets.iter().map(|p| &p.socket)).map_err(place.explain("PACKET_FANOUT"))?;
        }
        let ports = (0..).zip(bound).zip(packets).map(|((index, bound), packets)| {
            let mut port = AfXdp::new(&place, Queue { index, count }, attached.clone(), bound, packets, clock);
            // Until it is bound, the packet socket receives frames of every interface.
            while matches!(port.receive(), Ok(frames) if !frames.is_empty()) {}
            let _ = packet::take_statistics(&port.packets.socket);
            port
        });
        Ok(ports.collect())
    }

    fn new(
        place: &Interface<'_>,
        queue: Queue,
        attached: Arc<Attached>,
        bound: Bound,
        packets: Receiver,
        clock: SystemClock,
    ) -> AfXdp {
        let xdp = if attached.mode == bpf::Mode::Native { "native" } else { "generic" };
        let copies = if bound.zero_copy { "zero-copy" } else { "copy" };
        let driver = format!("{}, {xdp} XDP, {copies}", place.driver);
        let drops_are_device_loss = place.driver == "veth";
        let chunks = RECEIVE..RECEIVE + SEND_CHUNKS;
        let send_frames = SendFrames::new(bound.umem.clone(), chunks, frame_room(place.mtu));
        AfXdp {
            info: PortInfo {
                queue,
                // Frames in the ring of a veth pair wait for the router: the ring is the router's input queue.
                refusal_is_device_loss: drops_are_device_loss,
                // Frames at queues that are not opened arrive through the packet socket, later than frames in the ring.
                merges_queues: merges_queues(place.name, queue.count),
                stamps_arrivals: false,
                ..PortInfo::new(place.name, &SPEC, &driver, place.mac, place.mtu)
            },
            attached,
            bound,
            packets,
            clock,
            drops_are_device_loss,
            unsent: false,
            slots: Batch::within(send_frames.clone(), BURST),
            send_frames,
            received: Vec::with_capacity(BURST),
            lent: Vec::with_capacity(BURST),
            returning: Vec::with_capacity(BURST),
            calls: 0,
            other_drops: 0,
            card_drops: CardDrops::open(place.name, queue),
        }
    }

    /// True if the driver itself runs the program, before the kernel allocates a packet for each frame.
    pub fn is_native(&self) -> bool {
        self.attached.mode == bpf::Mode::Native
    }

    fn lost(&self, source: io::Error) -> PortError {
        PortError::lost(&self.info, source)
    }

    /// Asks the kernel to send the frames in the ring, as far as the device accepts them.
    fn flush(&mut self) -> Result<(), PortError> {
        let mut room = 0;
        for _ in 0..if self.bound.zero_copy { 1 } else { KICKS } {
            match sys::kick(&self.bound.socket) {
                Ok(()) => {
                    self.unsent = false;
                    return Ok(());
                }
                Err(e) => match e.raw_os_error() {
                    // The ring of a veth pair is full. Retrying immediately would let the router set the pace of the tester.
                    Some(libc::EAGAIN) if self.drops_are_device_loss => {
                        let before = std::mem::replace(&mut room, self.bound.rings.send.room());
                        if room == before {
                            break;
                        }
                    }
                    Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EINTR) => {}
                    Some(libc::EBUSY) => self.other_drops += u64::from(!self.drops_are_device_loss),
                    _ => return Err(self.lost(e)),
                },
            }
        }
        self.unsent = true;
        Ok(())
    }

    /// Takes up to `most` frames from the ring. Returns previously lent chunks to the kernel.
    #[inline]
    fn take_ring(&mut self, most: usize) {
        self.lent.clear();
        if !self.returning.is_empty() {
            // There is room: the ring has an entry for every receive chunk.
            self.returning.drain(..).for_each(|address| self.bound.rings.fill.push(address));
            self.bound.rings.fill.publish();
        }
        while self.returning.len() < most {
            let Some(descriptor) = self.bound.rings.receive.pop() else { break };
            self.returning.push(descriptor.addr);
            if let Some(frame) = self.bound.umem.at(descriptor.addr, descriptor.len as usize) {
                self.lent.push(frame);
            }
        }
        if !self.returning.is_empty() {
            self.bound.rings.receive.release();
            let now = self.clock.now();
            self.received.extend(self.lent.iter().map(|frame| Filled::new(frame.len(), now)));
        }
    }

    /// Also lends frames from the packet socket, as far as there is room.
    fn take_packets(&mut self) -> Result<(), PortError> {
        let from = self.received.len();
        self.packets.receive(&mut self.received).map_err(|e| self.lost(e))?;
        let all = Received::new(&self.packets.memory, self.packets.slot, &self.received);
        self.lent.extend((from..all.len()).map(|i| NonNull::from(all.get(i).frame)));
        Ok(())
    }
}

/// A socket that is bound to a queue, with its receive chunks.
struct Bound {
    socket: OwnedFd,
    rings: sys::Rings,
    umem: Arc<Umem>,
    zero_copy: bool,
}

impl Bound {
    fn new(place: &Interface<'_>, chunk: usize, queue: u32) -> io::Result<Bound> {
        let start = std::time::Instant::now();
        loop {
            let umem = Arc::new(Umem::new((RECEIVE + SEND_CHUNKS) as usize, chunk)?);
            let socket = sys::socket()?;
            let mut rings = sys::configure(&socket, &umem, RECEIVE, SEND)?;
            (0..u64::from(RECEIVE)).for_each(|i| rings.fill.push(i * chunk as u64));
            rings.fill.publish();
            match sys::bind(&socket, place.index, queue) {
                Ok(zero_copy) => return Ok(Bound { socket, rings, umem, zero_copy }),
                Err(e) if e.raw_os_error() == Some(libc::EBUSY) && start.elapsed() < QUEUE_FREE => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(e) => return Err(e),
            }
        }
    }
}

impl Port for AfXdp {
    info_and_slots!();

    fn send(&mut self, frames: usize) -> Result<Sent, PortError> {
        self.slots.expect_own(self.send_frames.start(), &self.info.interface);
        let mut sent = Sent::default();
        while let Some(address) = self.bound.rings.completion.pop() {
            self.slots.take_back(self.send_frames.at(address));
        }
        self.bound.rings.completion.release();
        let mut room = self.bound.rings.send.room();
        for i in 0..frames {
            match if room > 0 { self.slots.hand_over(i) } else { None } {
                Some((frame, len)) => {
                    let addr = self.send_frames.address(frame);
                    self.bound.rings.send.push(libc::xdp_desc { addr, len: len as u32, options: 0 });
                    room -= 1;
                    sent.accepted += 1;
                }
                None => sent.refuse(i),
            }
        }
        self.bound.rings.send.publish();
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
        if self.received.len() < BURST {
            self.take_packets()?;
        }
        // SAFETY: `lent` contains slots of the packet socket, which only this function fills, and chunks that the
        // kernel has put into the receive ring. The kernel does not write to these chunks until they are in the fill
        // ring again, for which `take_ring` needs `&mut self`. Frames to send are in other chunks. `self.bound.umem`
        // keeps the memory alive.
        Ok(unsafe { Received::scattered(&self.lent, &self.received) })
    }

    fn counters(&mut self) -> Result<PortCounters, PortError> {
        let others = packet::take_statistics(&self.packets.socket).map_err(|e| self.lost(e))?;
        self.other_drops += u64::from(others.tp_drops);
        let ring = sys::statistics(&self.bound.socket).map_err(|e| self.lost(e))?;
        // In copy mode, a frame without a free chunk is already included in `rx_dropped`.
        let no_chunk = if self.bound.zero_copy { ring.rx_fill_ring_empty_descs } else { 0 };
        let at_ring = ring.rx_dropped + ring.rx_ring_full + no_chunk;
        Ok(PortCounters { receive_drops: self.other_drops + at_ring + self.card_drops.update() })
    }
}
