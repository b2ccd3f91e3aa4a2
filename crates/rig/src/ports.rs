//! The tester's ports, and the threads that drive them.

use crate::act::Acts;
use crate::far::{Far, FarPorts};
use crate::hosts::{HostControl, Hosts};
use drophammer_model::Instant;
use drophammer_model::trial::PortIndex;
use drophammer_port::priority::HighPriority;
use drophammer_port::{Backend, Clock, Port, PortError, PortInfo, SystemClock};
use drophammer_traffic::{Control, LaneError, Layout, QueueIndex, Traffic};

/// Rate in frames per second above which the generator in the kernel is used even if it shares the processor of the
/// packet loop. User space sends slower loads more evenly.
const SHARED_PPS: f64 = 300e3;

/// The tester's ports, driven by the calling thread or by several threads.
///
/// The queues of a port ([`PortInfo::queue`]) are adjacent and in order. Emulated devices send through the first queue.
pub enum Ports {
    /// One thread, in real or virtual time.
    One {
        /// Queues of all ports.
        ports: Vec<Box<dyn Port>>,
        /// The ports' clock.
        clock: Box<dyn Clock>,
    },
    /// Several threads in real time.
    Lanes {
        /// Queues of all ports.
        ports: Vec<Box<dyn Port + Send>>,
        /// The ports' clock.
        clock: SystemClock,
        /// Processor of each thread. The caller has pinned the calling thread to the first processor.
        processors: Vec<usize>,
    },
    /// On other hosts, whose threads drive them.
    Far(FarPorts),
}

impl Ports {
    /// Creates ports in real time from a list of their queues. They use the calling thread if `processors` contains at
    /// most one processor, otherwise one thread per processor, but no more threads than queues.
    pub fn real(ports: Vec<Box<dyn Port + Send>>, clock: SystemClock, processors: &[usize]) -> Ports {
        let threads = processors.len().min(ports.len());
        if threads <= 1 {
            let ports = ports.into_iter().map(|port| port as Box<dyn Port>).collect();
            return Ports::One { ports, clock: Box::new(clock) };
        }
        Ports::Lanes { ports, clock, processors: processors[..threads].to_vec() }
    }

    /// Returns the number of ports.
    pub fn len(&self) -> usize {
        self.first_queues().count()
    }

    /// Returns the number of queues of all ports.
    pub fn queues(&self) -> usize {
        match self {
            Ports::One { ports, .. } => ports.len(),
            Ports::Lanes { ports, .. } => ports.len(),
            Ports::Far(far) => far.ports.len(),
        }
    }

    /// True if there is no port.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Iterates over the first queue of each port.
    fn first_queues(&self) -> impl Iterator<Item = QueueIndex> {
        (0..self.queues()).filter(|queue| self.queue_info(*queue).queue.index == 0)
    }

    /// Returns port `index` as its first queue.
    ///
    /// # Panics
    /// If the port does not exist.
    pub fn get(&mut self, index: PortIndex) -> &mut dyn Port {
        let queue = self.first_queue(index);
        self.queue(queue)
    }

    /// Returns the first queue of port `index`.
    ///
    /// # Panics
    /// If the port does not exist.
    pub(crate) fn first_queue(&self, index: PortIndex) -> QueueIndex {
        self.first_queues().nth(index).expect("a port of the rig")
    }

    /// Returns queue `index` of all ports.
    pub fn queue(&mut self, index: QueueIndex) -> &mut dyn Port {
        match self {
            Ports::One { ports, .. } => ports[index].as_mut(),
            Ports::Lanes { ports, .. } => ports[index].as_mut(),
            Ports::Far(far) => &mut far.ports[index],
        }
    }

    /// Returns the properties of port `index`, which are the properties of its first queue.
    ///
    /// # Panics
    /// If the port does not exist.
    pub fn info(&self, index: PortIndex) -> &PortInfo {
        self.queue_info(self.first_queue(index))
    }

    fn queue_info(&self, index: QueueIndex) -> &PortInfo {
        match self {
            Ports::One { ports, .. } => ports[index].info(),
            Ports::Lanes { ports, .. } => ports[index].info(),
            Ports::Far(far) => far.ports[index].info(),
        }
    }

    /// Returns the ports' clock.
    pub fn clock(&self) -> &dyn Clock {
        match self {
            Ports::One { clock, .. } => clock.as_ref(),
            Ports::Lanes { clock, .. } => clock,
            Ports::Far(far) => &far.clock,
        }
    }

    /// Returns the ports' clock, mutable for waiting.
    pub fn clock_mut(&mut self) -> &mut dyn Clock {
        match self {
            Ports::One { clock, .. } => clock.as_mut(),
            Ports::Lanes { clock, .. } => clock,
            Ports::Far(far) => &mut far.clock,
        }
    }

    /// Returns which thread drives which queue of which port.
    pub fn layout(&self) -> Layout {
        let mut queues: Vec<usize> = Vec::new();
        for queue in 0..self.queues() {
            match queues.last_mut() {
                Some(count) if self.queue_info(queue).queue.index > 0 => *count += 1,
                _ => queues.push(1),
            }
        }
        let layout = Layout::queues(&queues, 1 + self.further_processors().len());
        let merging: Vec<PortIndex> = (0..self.queues())
            .filter(|queue| self.queue_info(*queue).merges_queues)
            .map(|queue| layout.port_of(queue))
            .collect();
        merging.into_iter().fold(layout, Layout::merging)
    }

    /// Returns the processors of all threads except the first.
    pub fn further_processors(&self) -> &[usize] {
        match self {
            Ports::One { .. } | Ports::Far(_) => &[],
            Ports::Lanes { processors, .. } => &processors[1..],
        }
    }

    /// Drives `traffic` no longer than until `until`, with `hosts` behind the ports, which perform `acts[i]` at event
    /// i. Ends the traffic when `stopped` returns true. The traffic must be planned for [`Ports::layout`] or fewer
    /// lanes.
    ///
    /// # Errors
    /// A port stopped working or a thread failed.
    pub fn drive(
        &mut self,
        traffic: &mut Traffic,
        hosts: &mut Hosts,
        acts: Acts<'_>,
        stopped: &dyn Fn() -> bool,
        until: Instant,
    ) -> Result<(), LaneError> {
        let mut lanes = hosts.by_lane(traffic.layout()).into_iter();
        let own = lanes.next().expect("a layout has a lane");
        let mut own = HostControl { hosts: own, acts, links: Vec::new(), stopped };
        // Only the first lane checks for a stop request. It then ends all lanes.
        let other = |hosts| HostControl { hosts, acts, links: Vec::new(), stopped: || false };
        let mut others: Vec<_> = lanes.map(other).collect();
        let driven = self.drive_with(traffic, &mut own, &mut others, until);
        hosts.take_passed();
        driven
    }

    /// Like [`Ports::drive`], with one control per lane instead of hosts.
    ///
    /// # Panics
    /// If the ports are on other hosts: their threads drive them.
    pub(crate) fn drive_with<C: Control + Send>(
        &mut self,
        traffic: &mut Traffic,
        first: &mut dyn Control,
        others: &mut [C],
        until: Instant,
    ) -> Result<(), LaneError> {
        match self {
            Ports::One { ports, clock } => {
                let _priority = (!clock.is_virtual()).then(HighPriority::new);
                traffic.drive(ports, clock.as_mut(), first, until).map_err(LaneError::from)
            }
            Ports::Lanes { ports, clock, processors } => {
                let processors = &processors[1..=others.len()];
                traffic.drive_lanes(ports, *clock, processors, first, others, until)
            }
            Ports::Far(_) => unreachable!("a rig with ports on other hosts has far traffic"),
        }
    }

    /// Returns what carries messages to the hosts that have these ports.
    ///
    /// # Panics
    /// If the ports are on this host.
    pub(crate) fn far(&mut self) -> &mut dyn Far {
        match self {
            Ports::Far(far) => far.far.as_mut(),
            _ => unreachable!("far traffic has ports on other hosts"),
        }
    }
}

/// Opens `queues` queues, at least one, of each interface in the calling thread's network namespace as ports of
/// `backend`. A generator in the kernel runs on the processor `spare`, or on the processor of the packet loop if there
/// is none.
///
/// # Errors
/// [`PortError::Open`] with the remedy.
pub fn open(
    interfaces: &[&str],
    backend: &Backend,
    queues: u32,
    clock: SystemClock,
    spare: Option<usize>,
) -> Result<Vec<Box<dyn Port + Send>>, PortError> {
    let mut ports = (backend.begin)(interfaces, queues.max(1), clock)?;
    for kernel in ports.iter_mut().filter_map(|port| port.kernel_generator()) {
        kernel.place(spare, if spare.is_some() { 0.0 } else { SHARED_PPS });
    }
    Ok(ports)
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_port::memory::{self, MemoryPort};
    use drophammer_port::pass_on;
    use drophammer_wire::MacAddr;

    /// A port with different properties.
    struct Other {
        info: PortInfo,
        inner: MemoryPort,
    }

    impl Port for Other {
        pass_on!(inner: slots, send, receive, counters);

        fn info(&self) -> &PortInfo {
            &self.info
        }
    }

    #[test]
    fn a_port_that_merges_queues_of_a_card_has_no_known_order() {
        let clock = SystemClock::start();
        for merges in [[false, false], [false, true], [true, true]] {
            let ends = memory::pair([1, 2].map(MacAddr::local), 1_500, clock);
            let port = |(inner, merges_queues): (MemoryPort, bool)| {
                let info = PortInfo { merges_queues, ..inner.info().clone() };
                Box::new(Other { info, inner }) as Box<dyn Port + Send>
            };
            let ports = Ports::real(ends.into_iter().zip(merges).map(port).collect(), clock, &[]);
            let merging = (0..2).filter(|port| merges[*port]);
            assert_eq!(ports.layout(), merging.fold(Layout::one(2), Layout::merging));
        }
    }
}
