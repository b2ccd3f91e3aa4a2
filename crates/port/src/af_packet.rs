//! AF_PACKET with `sendmmsg` and `recvmmsg`. Works on every interface of every Linux system, and needs no privilege in
//! a user namespace.
//!
//! A port has two sockets. One only sends. It bypasses the queueing discipline, except on a veth link that has one,
//! where the discipline is the router's input queue. The other receives with the kernel's timestamps and ignores sent
//! frames. Sending blocks (with a time-out) when the send buffer is full, so that a partial `sendmmsg` can only mean
//! that the device's ring refused the frame at which it stopped. On a veth pair, a third socket sends consecutive TCP
//! segments with one call ([`Port::send_stream`]).

mod stream;
pub(crate) mod sys;

use crate::clock::SystemClock;
use crate::device::{CardDrops, Carrier, merges_queues, number};
use crate::netlink;
use crate::unplugged::{Mark, restore};
use crate::{
    BURST, Backend, Batch, Clock, Filled, LinkControl, Port, PortCounters, PortError, PortInfo, Queue, Received, Sent,
    one_by_one,
};
use drophammer_model::registry::BackendSpec;
use drophammer_wire::{MacAddr, ethernet};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use stream::{Fate, Streams};

/// Name and summary of this backend.
pub static SPEC: BackendSpec = BackendSpec {
    name: "af_packet",
    summary: "Linux packet sockets on any interface (veth, tap, Ethernet); needs CAP_NET_RAW or a user namespace",
};

/// This backend.
pub const BACKEND: Backend = Backend {
    spec: &SPEC,
    usable: || Ok(()),
    begin: |interfaces, queues, clock| one_by_one(interfaces, |name| AfPacket::open_queues(name, queues, clock)),
    most_queues: MOST_QUEUES,
};

/// Smallest slot. An odd multiple of the cache line, so that the headers of neighbouring slots do not fall into the same
/// cache sets.
const MIN_SLOT: usize = 33 * 64;
/// Requested receive buffer: room for more than a gap of 10 ms at a million frames per second.
const RECEIVE_BUFFER: usize = 64 << 20;
/// Maximum number of sockets over which the kernel spreads frames.
pub(crate) const MOST_QUEUES: u32 = 256;
/// Requested send buffer.
const SEND_BUFFER: usize = 8 << 20;
/// The two clocks differ only by clock steps, so a sample after this many bursts is enough to follow them.
const SAMPLE_EVERY: u32 = 4_096;

/// An interface to be opened, in the current network namespace.
pub(crate) struct Interface<'a> {
    pub name: &'a str,
    pub index: i32,
    pub driver: String,
    pub mac: MacAddr,
    pub mtu: u32,
    /// Returns the error text for a missing permission; the argument names what was not permitted.
    forbidden: fn(&str) -> String,
}

impl<'a> Interface<'a> {
    /// Finds an interface that exists and is up.
    pub fn find(name: &'a str, forbidden: fn(&str) -> String) -> Result<Interface<'a>, PortError> {
        let index = sys::interface_index(name)
            .map_err(|_| PortError::open(name, "there is no such interface; `ip link` lists them"))?;
        let mut found = Interface { name, index, driver: driver(name), mac: MacAddr([0; 6]), mtu: 0, forbidden };
        let socket = sys::packet_socket(0).map_err(found.explain("a packet socket"))?;
        found.mac = MacAddr(sys::interface_mac(&socket, name).map_err(found.explain("hardware address"))?);
        found.mtu = sys::interface_mtu(&socket, name).map_err(found.explain("MTU"))?;
        let is_up = sys::has_flags(&socket, name, libc::IFF_UP).map_err(found.explain("flags"))?;
        if !is_up && !restore(name).unwrap_or(false) {
            return Err(PortError::open(name, format!("it is down; `ip link set {name} up`")));
        }
        Ok(found)
    }

    /// Returns the error for the case that `what` failed on this interface.
    pub fn explain<'b>(&'b self, what: &'static str) -> impl Fn(io::Error) -> PortError + use<'a, 'b> {
        move |e| PortError::open(self.name, explained(what, &e, self.forbidden))
    }
}

/// Returns the reason of an error of `what`; the text of `forbidden` if permission is missing.
pub(crate) fn explained(what: &str, e: &io::Error, forbidden: fn(&str) -> String) -> String {
    match e.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => forbidden(what),
        _ => format!("{what}: {e}"),
    }
}

fn forbidden(_: &str) -> String {
    "not permitted; run as root, with CAP_NET_RAW, or where user namespaces are allowed".into()
}

/// A packet socket for receiving, with slots for a burst.
pub(crate) struct Receiver {
    pub socket: OwnedFd,
    /// Size of a slot in bytes.
    pub slot: usize,
    pub memory: Box<[u8]>,
    headers: sys::Headers,
    clock: SystemClock,
    /// Wall clock minus steady clock at the last sample, number of bursts received since, and number of bursts between samples.
    wall_offset: i128,
    offset_age: u32,
    sample_every: u32,
}

impl Receiver {
    /// Opens a socket on `interface` that samples the clocks after every `sample_every` bursts.
    pub fn open(
        interface: &Interface<'_>,
        buffer: usize,
        sample_every: u32,
        clock: SystemClock,
    ) -> io::Result<Receiver> {
        let socket = sys::packet_socket(libc::ETH_P_ALL as u16)?;
        sys::configure_receiver(&socket, interface.index, buffer)?;
        sys::bind(&socket, interface.index, libc::ETH_P_ALL as u16)?;
        let slot = slot_size(interface.mtu);
        let mut memory = vec![0; BURST * slot].into_boxed_slice();
        let headers = sys::Headers::to_receive(memory.as_mut_ptr(), slot);
        let wall_offset = clock.wall_offset();
        Ok(Receiver { socket, slot, memory, headers, clock, wall_offset, offset_age: 0, sample_every })
    }

    /// Samples the difference between the clocks.
    fn sample_offset(&mut self) {
        self.offset_age = 0;
        self.wall_offset = self.clock.wall_offset();
    }

    /// Fills the slots after those that `filled` describes, without waiting.
    pub fn receive(&mut self, filled: &mut Vec<Filled>) -> io::Result<()> {
        let from = filled.len();
        let n = match self.headers.receive(&self.socket, from) {
            Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) => return Ok(()),
            received => received?,
        };
        self.offset_age += 1;
        if self.offset_age >= self.sample_every {
            self.sample_offset();
        }
        let now = self.clock.now();
        for i in from..from + n {
            let arrived = self.headers.received(i);
            let at = arrived.wall.map_or(now, |ns| self.clock.from_wall(ns, self.wall_offset));
            filled.push(sys::whole(&arrived, &mut self.memory[i * self.slot..][..self.slot], at));
        }
        Ok(())
    }
}

/// Link state shared by the queues of an interface.
struct Link {
    interface: String,
    /// For requests to the kernel about the interface.
    control: OwnedFd,
    /// True if one of the queues took the link down.
    unplugged: AtomicBool,
    /// Number of times that a queue took the link down or up.
    switched: AtomicU32,
    /// Outlives the process, unlike `unplugged`.
    mark: Mark,
}

impl Drop for Link {
    fn drop(&mut self) {
        if *self.unplugged.get_mut() {
            // An interface that stays down could not be opened again. Errors do not matter: the interface may be gone.
            let _ = sys::set_interface_up(&self.control, &self.interface, true);
            self.mark.set(false);
        }
    }
}

/// An interface, or one queue of it, as a tester port.
pub struct AfPacket {
    info: PortInfo,
    sender: OwnedFd,
    receiver: Receiver,
    slots: Batch,
    send_headers: sys::Headers,
    /// Socket for runs of segments, if the link supports it.
    streams: Option<Streams>,
    received: Vec<Filled>,
    /// Frames dropped at the socket.
    receive_drops: u64,
    /// For a tap: counts the frames dropped on the way to the socket.
    unseen: Option<Unseen>,
    /// Frames dropped by the network card.
    card_drops: CardDrops,
    /// Carrier of the link, if this is a network card.
    carrier: Option<Carrier>,
    link: Arc<Link>,
    /// Value of the link's `switched` when the port's socket last reported that the link is down.
    seen_switched: u32,
}

// The message headers point into boxes that the port owns and never moves, so sending it to another thread is fine.
// SAFETY: nothing in the port is tied to a thread.
unsafe impl Send for AfPacket {}

impl AfPacket {
    /// Opens `interface` in the current network namespace.
    ///
    /// # Errors
    /// [`PortError::Open`] with the remedy: the interface does not exist or is down, or a privilege is missing.
    pub fn open(interface: &str, clock: SystemClock) -> Result<AfPacket, PortError> {
        Ok(AfPacket::open_queues(interface, 1, clock)?.remove(0))
    }

    /// Opens `queues` queues of `interface`, at least one. The kernel spreads received frames over them by its own hash
    /// of addresses and ports. The device may have fewer queues. The kernel chooses the device queue through which a
    /// frame leaves.
    ///
    /// # Errors
    /// The errors of [`AfPacket::open`], or [`PortError::Open`] for more than 256 queues.
    pub fn open_queues(interface: &str, queues: u32, clock: SystemClock) -> Result<Vec<AfPacket>, PortError> {
        let count = queues.max(1);
        if count > MOST_QUEUES {
            let reason = format!("{queues} queues; the backend af_packet opens up to {MOST_QUEUES}");
            return Err(PortError::open(interface, reason));
        }
        let place = Interface::find(interface, forbidden)?;
        let control = sys::packet_socket(0).map_err(place.explain("a packet socket"))?;
        let (unplugged, switched) = (AtomicBool::new(false), AtomicU32::new(0));
        let mark = Mark::open(interface, place.index).map_err(place.explain("a netlink socket"))?;
        let link = Arc::new(Link { interface: interface.into(), control, unplugged, switched, mark });
        let open = |index| AfPacket::socket(&place, Queue { index, count }, link.clone(), clock);
        let ports = (0..count).map(open).collect::<Result<Vec<_>, _>>()?;
        if count > 1 {
            sys::spread(ports.iter().map(|port| &port.receiver.socket)).map_err(place.explain("PACKET_FANOUT"))?;
        }
        Ok(ports.into_iter().map(AfPacket::drained).collect())
    }

    /// Opens the sockets of one port. The caller may have to drop frames that were received before binding.
    fn socket(place: &Interface<'_>, queue: Queue, link: Arc<Link>, clock: SystemClock) -> Result<AfPacket, PortError> {
        let Interface { name, index, ref driver, mac, mtu, .. } = *place;
        let sender = sys::packet_socket(0).map_err(place.explain("a packet socket"))?;
        let discipline = netlink::has_discipline(index).map_err(place.explain("queueing discipline"))?;
        // On a veth link that has a discipline, it is the input queue of the router behind the link. If it is bypassed,
        // the frames of this socket share one queue of the ring. Otherwise the kernel spreads them over all queues by
        // addresses and ports, so frames of a flow could overtake each other. Only a port with the same number of
        // queues takes that into account.
        let input_queue = driver == "veth" && discipline && sys::transmit_queues(name) <= queue.count;
        sys::configure_sender(&sender, !input_queue, SEND_BUFFER).map_err(place.explain("socket options"))?;
        sys::bind(&sender, index, 0).map_err(place.explain("bind"))?;
        let receiver =
            Receiver::open(place, RECEIVE_BUFFER, SAMPLE_EVERY, clock).map_err(place.explain("a packet socket"))?;

        let slot = slot_size(mtu);
        let slots = Batch::new(BURST, slot);
        let send_headers = sys::Headers::to_send(slots.start(), slot);
        // On other devices, frames could overtake each other, because single frames bypass the queueing discipline.
        let streams = (driver == "veth").then(|| Streams::open(name, index, SEND_BUFFER)).flatten();
        // On veth, the other end counts the frames that this end refuses. With several queues, several sockets share
        // the received frames.
        let unseen = (driver == "tun" && queue.count == 1).then(|| Unseen::open(name)).flatten();
        let carrier = Carrier::open(name, driver);
        Ok(AfPacket {
            info: PortInfo {
                queue,
                refusal_is_device_loss: matches!(driver.as_str(), "veth" | "tun"),
                // The kernel spreads frames over the sockets by its own hash, so each socket gets frames of every receive queue.
                merges_queues: merges_queues(name, 1),
                ..PortInfo::new(name, &SPEC, driver, mac, mtu)
            },
            sender,
            receiver,
            slots,
            send_headers,
            streams,
            received: Vec::with_capacity(BURST),
            receive_drops: 0,
            unseen,
            card_drops: CardDrops::open(name, queue),
            carrier,
            seen_switched: link.switched.load(Ordering::Relaxed),
            link,
        })
    }

    /// Drops frames that the socket received before it was bound, when it listened on every interface, and before it
    /// shared frames with the other queues.
    fn drained(mut self) -> AfPacket {
        while matches!(self.receive(), Ok(frames) if !frames.is_empty()) {}
        self.receive_drops = 0;
        let _ = sys::take_statistics(&self.receiver.socket);
        if let Some(unseen) = &mut self.unseen {
            unseen.begin();
        }
        self
    }

    /// True if the error reports that the link is down because this port took it down. Each socket reports this once,
    /// possibly after the link is up again.
    fn is_our_doing(&mut self, e: &io::Error) -> bool {
        if e.raw_os_error() != Some(libc::ENETDOWN) {
            return false;
        }
        let switched = self.link.switched.load(Ordering::Relaxed);
        let before = std::mem::replace(&mut self.seen_switched, switched);
        before != switched || self.link.unplugged.load(Ordering::Relaxed)
    }

    fn lost(&self, source: io::Error) -> PortError {
        PortError::lost(&self.info, source)
    }

    fn link_error(&self, e: &io::Error) -> PortError {
        PortError::Link { interface: self.info.interface.clone(), reason: e.to_string() }
    }

    /// Sends the slots from `from` to `frames` as single frames.
    fn send_apart(&mut self, from: usize, frames: usize, sent: &mut Sent) -> Result<(), PortError> {
        self.slots.expect_own(self.send_headers.base(), &self.info.interface);
        for i in from..frames {
            self.send_headers.set_len(i, self.slots.frame(i).len());
        }
        let mut at = from;
        while at < frames {
            match self.send_headers.send(&self.sender, at, frames) {
                Ok(n) => {
                    sent.accepted += n as u32;
                    at += n;
                    if at < frames {
                        // The kernel stopped at this frame: the ring or the link refused it, or it is too long.
                        self.refuse_too_long(self.slots.frame(at))?;
                        at = self.refused(at, frames, sent);
                    }
                }
                Err(e) => match e.raw_os_error() {
                    Some(libc::EINTR) => {}
                    Some(libc::EMSGSIZE) => {
                        self.refuse_too_long(self.slots.frame(at))?;
                        return Err(self.lost(e));
                    }
                    Some(libc::ENOBUFS | libc::EAGAIN | libc::ENOMEM) => at = self.refused(at, frames, sent),
                    _ if self.is_our_doing(&e) => {
                        // These frames are lost, like frames sent into a pulled cable.
                        sent.accepted += (frames - at) as u32;
                        at = frames;
                    }
                    _ => return Err(self.lost(e)),
                },
            }
        }
        Ok(())
    }

    /// Counts slot `at` of `frames` as refused, and returns the next one to send. Without carrier, this one and all after it are lost,
    /// like frames sent into a pulled cable.
    fn refused(&mut self, at: usize, frames: usize, sent: &mut Sent) -> usize {
        let clock = &self.receiver.clock;
        if self.carrier.as_mut().is_some_and(|carrier| carrier.is_gone(clock.now())) {
            sent.accepted += (frames - at) as u32;
            return frames;
        }
        sent.refuse(at);
        at + 1
    }

    /// Returns an error for a frame that the kernel never accepts: longer than the MTU plus header and one IEEE 802.1Q tag.
    fn refuse_too_long(&self, frame: &[u8]) -> Result<(), PortError> {
        let tagged = frame.get(12..14) == Some(&ethernet::ethertype::VLAN.to_be_bytes());
        let most = |mtu: u32| mtu as usize + ethernet::LEN + if tagged { 4 } else { 0 };
        if frame.len() <= most(self.info.mtu) {
            return Ok(());
        }
        let name = &self.info.interface;
        // The MTU may have been changed since the port was opened.
        let mtu = sys::interface_mtu(&self.sender, name).map_err(|e| self.lost(e))?;
        if frame.len() <= most(mtu) {
            return Ok(());
        }
        let (len, wanted) = (frame.len(), frame.len() - ethernet::LEN);
        let text = format!(
            "a frame of {len} bytes without FCS is too long for its MTU of {mtu}; `ip link set {name} mtu {wanted}`"
        );
        Err(self.lost(io::Error::new(io::ErrorKind::InvalidInput, text)))
    }
}

/// Room for the largest frame of `mtu` with two VLAN tags and [`sys::ROOM`], as an odd multiple of 64. Larger frames
/// (from a peer in the same kernel with segmentation offload) are cut off; the lab switches that offload off.
pub(crate) fn slot_size(mtu: u32) -> usize {
    let lines = (mtu as usize + 26).div_ceil(64) | 1;
    (lines * 64).max(MIN_SLOT)
}

/// Driver of an interface, as reported by `ethtool -i`.
pub(crate) fn driver(interface: &str) -> String {
    // veth and tap have no device link. `ethtool -i` works for all, but needs an ioctl.
    let base = Path::new("/sys/class/net").join(interface);
    if let Ok(link) = std::fs::read_link(base.join("device/driver")) {
        return link.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    }
    if base.join("tun_flags").exists() { "tun".into() } else { sys::driver_name(interface).unwrap_or_default() }
}

impl Port for AfPacket {
    info_and_slots!();

    fn send(&mut self, frames: usize) -> Result<Sent, PortError> {
        let mut sent = Sent::default();
        self.send_apart(0, frames, &mut sent)?;
        Ok(sent)
    }

    fn send_stream(&mut self, frames: usize) -> Result<Sent, PortError> {
        let (mut sent, mut at, mut left) = (Sent::default(), 0, 0);
        while let Some(streams) = self.streams.as_mut().filter(|_| at < frames) {
            let Some(run) = stream::run(&self.slots, at, frames) else {
                at += 1;
                continue;
            };
            if left < at {
                self.send_apart(left, at, &mut sent)?;
                left = at;
                continue;
            }
            let fate = streams.send(&self.slots, at, &run);
            let (first, all) = (at, run.frames as u32);
            at += run.frames;
            match fate {
                Fate::Sent => sent.accepted += all,
                // A duplicate segment does no harm, but a missing one is retransmitted only after a second. So all
                // segments count as refused and are sent again.
                Fate::Refused | Fate::Torn => {
                    sent.refused += all;
                    sent.refused_mask |= (u64::MAX >> (64 - all)) << first;
                }
                // Resend them one by one to find the frame that failed.
                Fate::Down | Fate::Impossible => self.send_apart(first, at, &mut sent)?,
            }
            if matches!(fate, Fate::Torn | Fate::Impossible) {
                // The other end has less room than a run needs. Only with single frames is it known which ones are refused.
                self.streams = None;
            }
            left = at;
        }
        self.send_apart(left, frames, &mut sent)?;
        Ok(sent)
    }

    fn receive(&mut self) -> Result<Received<'_>, PortError> {
        self.received.clear();
        match self.receiver.receive(&mut self.received) {
            Err(e) if !self.is_our_doing(&e) => Err(self.lost(e)),
            _ => Ok(Received::new(&self.receiver.memory, self.slots.slot_size(), &self.received)),
        }
    }

    fn counters(&mut self) -> Result<PortCounters, PortError> {
        // Every trial starts with this call. A clock step before the trial does not invalidate it, so its times must
        // not depend on an older sample.
        self.receiver.sample_offset();
        let at_interface = self.unseen.as_ref().and_then(Unseen::at_interface);
        // Reading resets the kernel's counters, so they are added up here.
        let at_socket = sys::take_statistics(&self.receiver.socket).map_err(|e| self.lost(e))?;
        self.receive_drops += u64::from(at_socket.tp_drops);
        let unseen = self.unseen.as_mut().map_or(0, |unseen| unseen.update(at_interface, at_socket.tp_packets));
        Ok(PortCounters { receive_drops: self.receive_drops + unseen + self.card_drops.update() })
    }

    fn readable(&self) -> Option<BorrowedFd<'_>> {
        Some(self.receiver.socket.as_fd())
    }

    fn link(&mut self) -> Option<&mut dyn LinkControl> {
        Some(self)
    }
}

impl LinkControl for AfPacket {
    fn set_link(&mut self, up: bool) -> Result<(), PortError> {
        self.link.unplugged.store(!up, Ordering::Relaxed);
        self.link.switched.fetch_add(1, Ordering::Relaxed);
        if !up {
            self.link.mark.set(true);
        }
        let mut switched = sys::set_interface_up(&self.sender, &self.info.interface, up);
        if up {
            if switched.is_ok() {
                self.link.mark.set(false);
            }
            // Each socket reports once that the link was down.
            switched = switched.and_then(|()| sys::clear_error(&self.sender));
            switched = switched.and_then(|()| sys::clear_error(&self.receiver.socket));
        }
        switched.map_err(|e| self.link_error(&e))
    }

    fn has_carrier(&mut self) -> Result<bool, PortError> {
        let both = libc::IFF_UP | libc::IFF_RUNNING;
        sys::has_flags(&self.sender, &self.info.interface, both).map_err(|e| self.link_error(&e))
    }
}

/// Counts frames that a tap received from the device behind it but that the kernel dropped before they reached the
/// port's only socket.
///
/// No kernel counter contains exactly these frames: an interface's `rx_dropped` also includes frames that its sockets
/// received but no kernel protocol accepts, for example frames with two VLAN tags. So they are computed as the frames
/// that the interface received minus those that reached the socket, including frames dropped there.
#[derive(Debug)]
struct Unseen {
    /// File that contains the number of frames that the interface received, as text.
    received: File,
    seen: Difference,
}

/// Frames that an interface received minus those that its socket saw.
#[derive(Debug, Default, PartialEq, Eq)]
struct Difference {
    /// Frames that the interface had received when the socket started counting.
    before: u64,
    at_socket: u64,
    lost: u64,
}

impl Difference {
    /// Returns the largest difference so far. The socket counts a frame before the interface does, so a single
    /// difference can be too small but not too large.
    fn update(&mut self, at_interface: u64, more_at_socket: u64) -> u64 {
        self.at_socket += more_at_socket;
        let now = at_interface.saturating_sub(self.before).saturating_sub(self.at_socket);
        self.lost = self.lost.max(now);
        self.lost
    }
}

impl Unseen {
    /// `None` if the system does not report the frames that the interface received.
    fn open(interface: &str) -> Option<Unseen> {
        let received = File::open(format!("/sys/class/net/{interface}/statistics/rx_packets")).ok()?;
        Some(Unseen { received, seen: Difference::default() })
    }

    /// Restarts the count. The socket's own count starts at 0 at the same time.
    fn begin(&mut self) {
        self.seen = Difference { before: self.at_interface().unwrap_or(0), ..Difference::default() };
    }

    /// Returns the number of frames that the interface has received since its creation. Must be read before the socket's count.
    fn at_interface(&self) -> Option<u64> {
        number(&self.received)
    }

    /// Returns the number of frames lost between interface and socket, if the interface has this count and the socket
    /// has received this many more frames.
    fn update(&mut self, at_interface: Option<u64>, more_at_socket: u32) -> u64 {
        // If the interface is gone, no more frames were received.
        self.seen.update(at_interface.unwrap_or(0), more_at_socket.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Described;

    #[test]
    fn a_clock_step_before_a_trial_is_in_none_of_its_times() {
        let clock = SystemClock::start();
        // Without the privilege for packet sockets there is nothing to test.
        let Ok(mut port) = AfPacket::open("lo", clock) else { return };
        // Pretend that the wall clock was set by a second after the last sample, and that few frames have arrived since.
        port.receiver.wall_offset -= 1_000_000_000;
        port.receiver.offset_age = 100;
        port.counters().unwrap();
        let wrong = (port.receiver.wall_offset - clock.wall_offset()).abs();
        assert!(wrong < 10_000_000, "{wrong} ns");
        assert_eq!(port.receiver.offset_age, 0);
    }

    #[test]
    fn a_frame_that_the_card_dropped_is_lost_by_the_tester() {
        let Ok(mut port) = AfPacket::open("lo", SystemClock::start()) else { return };
        let system = Described::new("af_packet");
        system.interface("eth1", 1, &[]);
        system.drops("eth1", [7, 0, 0]);
        port.card_drops = CardDrops::of(system.class(), &["eth1".to_owned()]);
        let before = port.counters().unwrap().receive_drops;
        system.drops("eth1", [10, 3, 0]);
        assert_eq!(port.counters().unwrap().receive_drops - before, 3);
    }

    #[test]
    fn frames_for_a_link_without_carrier_are_lost_and_not_refused() {
        let Ok(mut port) = AfPacket::open("lo", SystemClock::start()) else { return };
        let system = Described::new("af_packet_carrier");
        system.interface("eth1", 1, &[]);
        for (has, next, counts) in [(true, 4, (0, 1)), (false, 8, (5, 0))] {
            system.carrier("eth1", has);
            port.carrier = Carrier::of(system.class(), "eth1");
            let mut sent = Sent::default();
            assert_eq!(port.refused(3, 8, &mut sent), next);
            assert_eq!((sent.accepted, sent.refused), counts);
        }
    }

    #[test]
    fn what_is_between_two_counts_is_not_lost() {
        let mut all = Difference { before: 100, ..Difference::default() };
        assert_eq!(all.update(100, 0), 0);
        // Ten frames; the socket counted two of them before the interface did.
        assert_eq!((all.update(108, 10), all.update(110, 0)), (0, 0));
        assert_eq!(all.update(120, 7), 3, "three of ten did not come to the socket");
        assert_eq!((all.update(124, 5), all.update(125, 0)), (3, 3), "one is being counted");
        assert_eq!(all.update(0, 0), 3, "the interface is gone");
    }
}
