//! A complete small backend in one file. It has only what [`drophammer_port`] requires of a new backend.
//!
//! Its interfaces exist only while their process does. Two neighbours in the list of names are the two ends of a line of UNIX
//! datagrams, so no port can be opened without the other one.

use drophammer_model::registry::BackendSpec;
use drophammer_port::{
    BURST, Backend, Batch, Clock, Filled, Opened, Port, PortCounters, PortError, PortInfo, Received, Sent, SystemClock,
    info_and_slots,
};
use drophammer_wire::MacAddr;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;

static SPEC: BackendSpec = BackendSpec { name: "datagrams", summary: "pairs of UNIX sockets within one process" };
const BACKEND: Backend = Backend { spec: &SPEC, usable: || Ok(()), begin, most_queues: 1 };

/// Bytes of a slot.
const SLOT: usize = 1_536;

struct Datagrams {
    info: PortInfo,
    socket: UnixDatagram,
    clock: SystemClock,
    slots: Batch,
    memory: Vec<u8>,
    received: Vec<Filled>,
}

/// Makes a line for each pair of interfaces, and a port for each end.
fn begin(interfaces: &[&str], _: u32, clock: SystemClock) -> Opened {
    let mut ports: Vec<Box<dyn Port + Send>> = Vec::new();
    for pair in interfaces.chunks(2) {
        let [near, far] = *pair else { return Err(PortError::open(pair[0], "it has no other end")) };
        let (a, b) = UnixDatagram::pair().map_err(|e| PortError::open(near, e.to_string()))?;
        for (interface, socket) in [(near, a), (far, b)] {
            socket.set_nonblocking(true).map_err(|e| PortError::open(interface, e.to_string()))?;
            let mac = MacAddr::local(ports.len() as u64);
            let info = PortInfo { stamps_arrivals: false, ..PortInfo::new(interface, &SPEC, "unix", mac, 1_500) };
            let (slots, memory) = (Batch::new(BURST, SLOT), vec![0; BURST * SLOT]);
            ports.push(Box::new(Datagrams { info, socket, clock, slots, memory, received: Vec::with_capacity(BURST) }));
        }
    }
    Ok(ports)
}

impl Port for Datagrams {
    info_and_slots!();

    fn send(&mut self, frames: usize) -> Result<Sent, PortError> {
        let mut sent = Sent::default();
        for slot in 0..frames {
            match self.socket.send(self.slots.frame(slot)) {
                Ok(_) => sent.accepted += 1,
                Err(e) if e.kind() == ErrorKind::WouldBlock => sent.refuse(slot),
                Err(e) => return Err(PortError::lost(&self.info, e)),
            }
        }
        Ok(sent)
    }

    fn receive(&mut self) -> Result<Received<'_>, PortError> {
        self.received.clear();
        let now = self.clock.now();
        for slot in self.memory.chunks_mut(SLOT) {
            match self.socket.recv(slot) {
                Ok(len) => self.received.push(Filled::new(len, now)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => return Err(PortError::lost(&self.info, e)),
            }
        }
        Ok(Received::new(&self.memory, SLOT, &self.received))
    }

    /// A socket that is full refuses frames, so none is lost here.
    fn counters(&mut self) -> Result<PortCounters, PortError> {
        Ok(PortCounters::default())
    }

    fn readable(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }
}

#[test]
fn ports_that_need_each_other_are_opened_together() {
    let clock = SystemClock::start();
    let mut ports = (BACKEND.begin)(&["a0", "a1", "b0", "b1"], 1, clock).unwrap();
    let names: Vec<_> = ports.iter().map(|port| (port.info().backend, port.info().interface.clone())).collect();
    assert_eq!(names, ["a0", "a1", "b0", "b1"].map(|name| ("datagrams", name.to_owned())));
    let alone = BACKEND.open("c0", clock).err().map(|e| e.to_string());
    assert_eq!(alone.as_deref(), Some("cannot open interface `c0`: it has no other end"));

    for (from, to) in [(0, 1), (3, 2)] {
        let begun = clock.now();
        let frame = |i: usize| vec![i as u8; 60 + i];
        (0..5).for_each(|i| ports[from].slots().put(i, &frame(i)));
        assert_eq!(ports[from].send_stream(5).unwrap(), Sent { accepted: 5, ..Sent::default() });
        let came = ports[to].receive().unwrap();
        assert!(came.iter().enumerate().all(|(i, arrival)| arrival.frame == frame(i) && arrival.at >= begun));
        assert_eq!((came.len(), ports[from].receive().unwrap().len()), (5, 0));
    }
    // Nobody reads, so the socket refuses frames for which it has no room, and nothing is lost.
    let (mut accepted, mut refused, mut came) = (0, 0, 0);
    while refused == 0 {
        (0..BURST).for_each(|i| ports[0].slots().put(i, &[1; 1_514]));
        let sent = ports[0].send(BURST).unwrap();
        assert_eq!(sent.refused_mask.count_ones(), sent.refused);
        (accepted, refused) = (accepted + sent.accepted as usize, refused + sent.refused);
    }
    while let n @ 1.. = ports[1].receive().unwrap().len() {
        came += n;
    }
    assert_eq!((came, ports[1].counters().unwrap()), (accepted, PortCounters::default()));
}

#[test]
fn a_plain_port_has_no_capability() {
    let mut ports = (BACKEND.begin)(&["a0", "a1"], 1, SystemClock::start()).unwrap();
    let port = ports[0].as_mut();
    assert!(port.link().is_none() && port.ahead().is_none() && port.kernel_generator().is_none());
    assert_eq!((port.info().largest_frame, drophammer_port::has_carrier(port).unwrap()), (1_514, true));
    let refused = drophammer_port::set_link(port, false).unwrap_err().to_string();
    assert!(refused.contains("the backend datagrams cannot take a link down"), "{refused}");
}
