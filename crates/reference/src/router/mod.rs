//! The router itself: what happens to a frame, and when.

mod classing;
mod control;
mod core;
mod forward;
mod header;
mod icmp;
mod mistreat;
mod routing;
mod signalling;
mod tunnelling;
mod vpn;

use self::classing::OnLine;
pub use self::core::Resolved;
use self::forward::Arrival;
use self::icmp::ErrorLimit;
use crate::class_line::ClassLine;
use crate::classes::{Classes, Pace};
use crate::config::{self, Config, ConfigError};
use crate::egress::{Departures, InputQueue, Line, Parked};
use crate::faults::{Faults, LoadMeter, WrongFrame};
use crate::fib::{Fib, Room};
use crate::filter::Filter;
use crate::greeter::Greeter;
use crate::igp::Igp;
use crate::interfaces::{self, ByTags, Interface};
use crate::labels::{Labels, Pushed};
use crate::moment::earlier;
use crate::neighbours::{Action, Neighbours, Pending};
use crate::pool::Pool;
use crate::random::Random;
use crate::rib::{GLOBAL, TableId};
use crate::rsvp::Rsvp;
use crate::server::Server;
use crate::speaker::Speaker;
use crate::table::Target;
use crate::truth::{PortCounters, Truth};
use crate::tunnels::End;
use crate::vpn::Pes;
use crate::vrf_bfd::VrfBfd;
use drophammer_model::Instant;
use drophammer_model::filter::{FilterDirection, FilterList};
use drophammer_model::role::PolicySource;
use drophammer_wire::MacAddr;
use drophammer_wire::ethernet::{self, ethertype};
use drophammer_wire::frame::Frame;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// A reference device; the documentation of the crate lists what is exact.
pub struct Router {
    ports: Vec<Port>,
    /// The interfaces: the ports by port number, then the sub-interfaces.
    interfaces: Vec<Interface>,
    by_tags: ByTags,
    fib: Fib,
    labels: Labels,
    pushed: Pushed,
    loopback: Option<Ipv4Addr>,
    /// Number of VRFs.
    vrfs: usize,
    pes: Pes,
    /// The state of the forwarding table and the links for which the device knows the PE routers that it reaches.
    resolved: u64,
    /// Number of links that went down or came up.
    link_changes: u64,
    /// True if labels have a separate TTL.
    pipe: bool,
    tunnels: Vec<End>,
    /// Source of the packets, and their target: a neighbour or a tunnel.
    policies: Vec<(PolicySource, Target)>,
    speaker: Option<Box<Speaker>>,
    greeter: Option<Box<Greeter>>,
    igp: Option<Box<Igp>>,
    vrf_bfd: VrfBfd,
    rsvp: Option<Box<Rsvp>>,
    /// Packets of the speaker, one after the other, and the output interface and the end of each packet.
    spoken: (Vec<u8>, Vec<(usize, usize)>),
    filter: Filter,
    /// The configured filter.
    own_filter: Filter,
    filter_ns_per_rule: u64,
    /// Additional time for extension headers, and the time for the current packet.
    extension_ns: (u64, u64),
    /// Number of packets with extension headers.
    extended: u64,
    /// Number of rules that were examined for the current frame.
    rules_read: u64,
    /// Number of packets that the filter permitted and denied.
    decisions: (u64, u64),
    /// Packets with labels to be swapped.
    swaps: u64,
    neighbours: Neighbours,
    server: Server,
    classes: Option<Classes<forward::Waiting>>,
    /// True if some line has classes.
    classed: bool,
    /// Number of frames in the queues of lines with classes that another station may answer.
    answerable: usize,
    /// Number of parked frames of all ports.
    parked: usize,
    delay: Duration,
    jitter: Duration,
    faults: Faults,
    /// True if some faults act on test frames.
    faulty: bool,
    departures: Departures,
    pool: Pool,
    truth: Truth,
    now: Instant,
    next_own: Instant,
    pending_limit: usize,
    errors: ErrorLimit,
    /// Separate generators for delays and faults, so that a fault does not change the delays.
    delay_random: Random,
    fault_random: Random,
    load: LoadMeter,
    /// The running sum for [`Faults::drop_growth`].
    growth: u64,
    /// For [`Faults::management`]: number of echo requests and SSH connections that arrived under overload.
    asked_busy: u64,
    /// True if the device has permanently stopped answering them.
    management_dead: bool,
    /// Memory for the next frame that is passed without its own memory.
    spare: Frame,
}

struct Port {
    mac: MacAddr,
    /// Longest frame with a packet that the port accepts, without FCS.
    longest: usize,
    /// True while the link is down.
    down: bool,
    line: Line,
    /// The input queue, for [`Faults::input_queue`].
    input: InputQueue,
    /// Replaces the line if the port has classes.
    classes: Option<Box<ClassLine<OnLine>>>,
    parked: VecDeque<Parked>,
    /// Frames from this port on which faults could act since the faults were set, for [`Faults::by_port`].
    test_frames: u64,
    counters: PortCounters,
}

/// Bytes of two VLAN tags, which a frame may have in addition to the MTU.
const TWO_TAGS: usize = 8;

impl Router {
    /// Creates a device.
    ///
    /// # Errors
    /// [`ConfigError`] if the configuration contradicts itself.
    pub fn new(config: Config) -> Result<Router, ConfigError> {
        config::check(&config)?;
        let room = |limit: Option<usize>| limit.unwrap_or(usize::MAX);
        let (all, ipv4, ipv6) = (room(config.fib_limit), room(config.fib_limit_ipv4), room(config.fib_limit_ipv6));
        let vrfs = config.vrfs.len();
        let mut fib = Fib::new(Room { all, ipv4, ipv6 }, vrfs);
        let interfaces = interfaces::interfaces(&config)?;
        let by_tags = ByTags::new(&interfaces)?;
        let table_of = |interface: &Interface| interface.vrf.map_or(GLOBAL, |vrf| vrf as TableId + 1);
        for (i, interface) in interfaces.iter().enumerate() {
            let table = table_of(interface);
            if let Some((address, len)) = interface.ipv4 {
                fib.add_own(table, address.into(), len, Target::Connected(i))?;
                if len < 31 {
                    let broadcast =
                        Ipv4Addr::from_bits(address.to_bits() | u32::MAX.checked_shr(len.into()).unwrap_or(0));
                    fib.add_own(table, broadcast.into(), 32, Target::Broadcast)?;
                }
            }
            if let Some((address, len)) = interface.ipv6 {
                fib.add_own(table, address.into(), len, Target::Connected(i))?;
            }
        }
        let loopback = config.loopback.map(|own| (GLOBAL, IpAddr::V4(own)));
        let own = interfaces.iter().flat_map(|i| i.addresses().map(move |own| (table_of(i), own)));
        for (table, address) in own.chain(loopback) {
            fib.add_own(table, address, if address.is_ipv4() { 32 } else { 128 }, Target::Local)?;
        }
        let igp = match &config.core {
            None => None,
            Some(own) => {
                self::core::check(own, &interfaces)?;
                fib.add_own(GLOBAL, own.role.loopback.into(), 32, Target::Local)?;
                let reserved: Vec<u32> = config.labels.iter().map(|route| route.label).collect();
                let mut igp = Igp::new(own, &|i| interfaces[i].mtu, config.seed, &reserved);
                igp.set_faults(config.faults.igp);
                Some(Box::new(igp))
            }
        };
        let mut vrf_bfd = VrfBfd::new(&config.vrfs, &interfaces, config.seed);
        vrf_bfd.suppress(config.faults.igp.bfd_packet_missing);
        let count = config.ports.len();
        let speaker =
            config.bgp.as_ref().map(|bgp| Speaker::new(&config, bgp, &interfaces).map(Box::new)).transpose()?;
        let rsvp = config.rsvp.as_ref().map(|rsvp| Rsvp::new(rsvp, config.seed, &interfaces).map(Box::new));
        let rsvp = rsvp.transpose()?;
        let greeter = config.ssh.then(|| Box::new(Greeter::new(config.seed, &interfaces)));
        let ports = config.ports.iter().map(|p| Port {
            mac: p.mac,
            longest: p.mtu as usize + ethernet::LEN + TWO_TAGS,
            down: false,
            line: Line::new(p.speed, p.egress_buffer),
            input: InputQueue::default(),
            classes: None,
            parked: VecDeque::new(),
            test_frames: 0,
            counters: PortCounters::default(),
        });
        let classes = match config.capacity_pps {
            _ if config.classes.is_empty() => None,
            Some(capacity) => Some(Classes::new(config.classes, Pace::Frames(capacity))?),
            None => return Err(ConfigError::Limit("classes without a capacity")),
        };
        let own = FilterList { direction: FilterDirection::Ingress, interfaces: Vec::new(), rules: config.filter };
        let own_filter = Filter::new(if own.rules.is_empty() { Vec::new() } else { vec![own] }, count)?;
        let mut router = Router {
            classes,
            ports: ports.collect(),
            interfaces,
            by_tags,
            fib,
            labels: Labels::new(vrfs),
            pushed: Pushed::default(),
            loopback: config.loopback,
            vrfs,
            pes: Pes::default(),
            resolved: 0,
            link_changes: 0,
            pipe: config.pipe,
            tunnels: Vec::new(),
            policies: Vec::new(),
            speaker,
            greeter,
            igp,
            vrf_bfd,
            rsvp,
            spoken: (Vec::new(), Vec::new()),
            filter: own_filter.clone(),
            own_filter,
            filter_ns_per_rule: u64::try_from(config.filter_time_per_rule.as_nanos()).unwrap_or(u64::MAX),
            extension_ns: (u64::try_from(config.extension_time.as_nanos()).unwrap_or(u64::MAX), 0),
            extended: 0,
            rules_read: 0,
            decisions: (0, 0),
            swaps: 0,
            neighbours: Neighbours::new(config.neighbour_lifetime),
            server: Server::new(config.capacity_pps, config.buffer, config.faults.sag),
            classed: false,
            answerable: 0,
            parked: 0,
            delay: config.delay,
            jitter: config.jitter,
            next_own: config.faults.own_frames.map_or(Instant(0), |own| Instant(0) + own.interval),
            faulty: config.faults.act_on_frames(),
            faults: config.faults,
            departures: Departures::new(count),
            pool: Pool::default(),
            truth: Truth::default(),
            now: Instant(0),
            pending_limit: config.pending_per_neighbour,
            errors: ErrorLimit { limit: config.icmp_errors_per_second, second: 0, used: 0 },
            delay_random: Random::new(config.seed),
            fault_random: Random::new(config.seed ^ 0x6661_756c_7473),
            load: LoadMeter::default(),
            growth: 0,
            asked_busy: 0,
            management_dead: false,
            spare: Frame::default(),
        };
        router.add_configured(config.routes, &config.labels, &config.pushed)?;
        for tunnel in config.tunnels {
            router.add_tunnel(tunnel)?;
        }
        for policy in &config.policies {
            router.add_policy(policy)?;
        }
        Ok(router)
    }

    /// Changes the faults from now on. The numbering of frames continues, unless it is that of [`Faults::by_port`]; the
    /// device's own frames start after one interval.
    ///
    /// # Errors
    /// [`ConfigError`] if a fault contains a port that does not exist or a capacity that is out of range.
    pub fn set_faults(&mut self, faults: Faults) -> Result<(), ConfigError> {
        config::check_faults(&faults, self.ports.len())?;
        if faults.sag.is_some() && self.classes.is_some() {
            return Err(ConfigError::Limit("sag, which cannot be combined with classes"));
        }
        if faults.sag != self.faults.sag {
            self.server.set_sag(faults.sag);
        }
        self.next_own = faults.own_frames.map_or(Instant(0), |own| self.now + own.interval);
        if let Some(speaker) = &mut self.speaker {
            speaker.set_faults(faults.bgp);
        }
        if let Some(igp) = &mut self.igp {
            igp.set_faults(faults.igp);
        }
        self.vrf_bfd.suppress(faults.igp.bfd_packet_missing);
        if let Some(rsvp) = &mut self.rsvp {
            rsvp.forget_at(faults.forget_lsp_on_refresh);
        }
        self.ports.iter_mut().for_each(|port| port.test_frames = 0);
        self.faulty = faults.act_on_frames();
        self.faults = faults;
        Ok(())
    }

    /// The current faults.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Replaces the filter with these lists from now on; an empty list restores the configured filter. The counters of the
    /// rules start at 0.
    ///
    /// # Errors
    /// [`ConfigError::Filter`]; the filter is then unchanged.
    pub fn set_filter(&mut self, lists: Vec<FilterList>) -> Result<(), ConfigError> {
        self.filter = if lists.is_empty() { self.own_filter.clone() } else { Filter::new(lists, self.ports.len())? };
        self.rules_read = 0;
        Ok(())
    }

    /// Number of frames decided by each rule of the filter, list after list.
    pub fn filter_matches(&self) -> &[u64] {
        &self.filter.matches
    }

    /// The latest instant that was passed to the device.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// What the device did.
    pub fn truth(&self) -> &Truth {
        &self.truth
    }

    /// The counters of `port` as the device reports them (see [`Faults::counter_error`]); `None` for a port that does not exist.
    pub fn counters(&self, port: usize) -> Option<PortCounters> {
        let mut told = self.ports.get(port)?.counters;
        let after = self.faults.counter_error_after;
        for count in [&mut told.in_unicast, &mut told.out_unicast].into_iter().filter(|count| **count >= after) {
            *count = count.saturating_add_signed(self.faults.counter_error);
        }
        Some(told)
    }

    /// Records that `frames` were lost between a link and the device, because the code that moves frames did not keep
    /// up.
    pub fn note_receive_overflow(&mut self, frames: u64) {
        self.truth.receive_overflow += frames;
    }

    /// Records that links refused `frames` that [`Router::poll`] sent.
    pub fn note_transmit_refused(&mut self, frames: u64) {
        self.truth.transmit_refused += frames;
    }

    /// The MAC address that the device knows for a neighbour on an interface.
    pub fn neighbour(&self, interface: usize, address: IpAddr) -> Option<MacAddr> {
        self.neighbours.find(interface, address).and_then(|i| self.neighbours.get(i).mac)
    }

    /// Takes a frame (without FCS) whose last bit arrives at `now`. [`Router::poll`] returns the frames that it causes, even
    /// at the same instant.
    ///
    /// # Panics
    /// If there is no such port.
    pub fn receive(&mut self, now: Instant, port: usize, frame: &[u8]) {
        let mut copy = std::mem::take(&mut self.spare);
        let bytes = copy.bytes_mut();
        bytes.clear();
        bytes.extend_from_slice(frame);
        self.take(now, port, &mut copy);
        self.spare = copy;
    }

    /// Like [`Router::receive`], but the device may keep the frame's memory and leave other memory, or none, in its
    /// place. Returns true if [`Router::next_notice`] is certainly unchanged.
    ///
    /// # Panics
    /// If there is no such port.
    pub fn take(&mut self, now: Instant, port: usize, frame: &mut Frame) -> bool {
        self.now = self.now.max(now);
        let now = self.now;
        if self.classes.is_some() {
            self.serve_classes(now);
        }
        self.serve_lines(now);
        let installed = (self.speaker.is_some() || self.igp.is_some()) && self.install_routes(now);
        self.take_frame(now, port, frame) && !installed && self.answerable == 0
    }

    /// Returns true if [`Router::next_notice`] is certainly unchanged, as do all the functions that it calls.
    #[inline(always)]
    fn take_frame(&mut self, now: Instant, port: usize, frame: &mut Frame) -> bool {
        self.truth.received += 1;
        let ingress = &mut self.ports[port];
        if ingress.down {
            self.truth.ignored += 1;
            return false;
        }
        ingress.counters.in_octets += frame.len() as u64 + 4;
        let Ok((header, packet)) = ethernet::Repr::parse(frame) else {
            ingress.counters.in_errors += 1;
            self.truth.ignored += 1;
            return false;
        };
        if frame.len() < ethernet::MIN_WITHOUT_FCS && !self.lets_pass(WrongFrame::Runt) {
            self.truth.runts += 1;
            return self.refuse(port);
        }
        let ingress = &mut self.ports[port];
        if frame.len() > ingress.longest
            && matches!(header.ethertype, ethertype::IPV4 | ethertype::IPV6)
            && self.faults.forwards != Some(WrongFrame::Giant)
        {
            self.truth.giants += 1;
            return self.refuse(port);
        }
        let group = header.destination.is_group();
        if group {
            ingress.counters.in_group += 1;
        } else if header.destination == ingress.mac {
            ingress.counters.in_unicast += 1;
        } else {
            self.truth.ignored += 1;
            return false;
        }
        let arrival = Arrival { now, interface: port, from: header.source };
        match header.ethertype {
            ethertype::IPV4 => self.take_ipv4(arrival, group, None, frame),
            ethertype::IPV6 => self.take_ipv6(arrival, group, frame),
            ethertype::ARP => {
                self.take_arp(now, port, packet);
                false
            }
            _ => self.take_tagged(arrival, group, frame),
        }
    }

    /// True if a fault makes the device forward such wrong frames.
    #[inline(always)]
    pub(super) fn lets_pass(&self, wrong: WrongFrame) -> bool {
        self.faults.forwards == Some(wrong)
    }

    /// Counts a frame that is not a valid Ethernet frame.
    #[cold]
    fn refuse(&mut self, port: usize) -> bool {
        self.ports[port].counters.in_errors += 1;
        self.truth.ignored += 1;
        false
    }

    /// Processes everything that is due until `now`, and passes each departing frame to `out`, in order of departure.
    pub fn poll(&mut self, now: Instant, out: &mut dyn FnMut(Instant, usize, &[u8])) {
        self.give(now, |at, port, frame| out(at, port, frame));
    }

    /// Like [`Router::poll`]; `out` may keep the memory of the frames.
    pub fn give(&mut self, now: Instant, mut out: impl FnMut(Instant, usize, &mut Frame)) {
        self.now = self.now.max(now);
        let now = self.now;
        self.serve_classes(now);
        self.serve_lines(now);
        self.run_vrf_bfd(now);
        self.speak(now);
        self.greet(now);
        self.run_core(now);
        self.signal(now);
        self.install_routes(now);
        self.speak_unasked(now);
        self.ask_neighbours(now);
        self.release_parked(now);
        while let Some(departure) = self.departures.take(now) {
            let frame = self.pool.get_mut(departure.slot);
            let counters = &mut self.ports[departure.port].counters;
            counters.out_octets += frame.len() as u64 + 4;
            if !departure.unicast && frame[0] & 1 == 1 {
                counters.out_group += 1;
            } else {
                counters.out_unicast += 1;
            }
            if departure.transit {
                self.truth.forwarded += 1;
                self.truth.queued -= 1;
            }
            if self.faults.priority_tags {
                // An 802.1Q tag with VLAN 0 and priority 5.
                frame.bytes_mut().splice(12..12, [0x81, 0x00, 0xa0, 0x00]);
            }
            out(departure.at, departure.port, frame);
            self.pool.release(departure.slot);
        }
    }

    /// The next time when [`Router::poll`] has something to do; `None` if nothing is pending.
    pub fn next_deadline(&self) -> Option<Instant> {
        let core = self.igp.as_ref().and_then(|igp| igp.fib_end());
        let installed = earlier(core, self.speaker.as_ref().and_then(|s| s.fib_end()));
        let leaving = earlier(self.departures.next(), self.next_on_lines());
        earlier(installed, earlier(leaving, self.next_timer()))
    }

    /// Like [`Router::next_deadline`], but ignores test frames at their output port: until then, one call of
    /// [`Router::poll`] has the same effect as many.
    pub fn next_notice(&self) -> Option<Instant> {
        let leaving = earlier(self.departures.next_notice(), self.next_answerable_on_lines());
        earlier(leaving, self.next_timer())
    }

    /// Like [`Router::next_notice`], but includes all frames on their way to the ports marked in `ports`.
    pub fn next_notice_or_at(&self, ports: &[bool]) -> Option<Instant> {
        let leaving = earlier(self.departures.next_at(ports), self.next_on_lines());
        earlier(leaving, self.next_notice())
    }

    fn next_timer(&self) -> Option<Instant> {
        let own = self.faults.own_frames.map(|_| self.next_own);
        let served = self.classes.as_ref().and_then(Classes::deadline);
        let mut next = earlier(served, earlier(self.neighbours.next_deadline(), own));
        next = earlier(next, self.speaker.as_ref().and_then(|s| s.next_deadline()));
        next = earlier(next, self.rsvp.as_ref().and_then(|rsvp| rsvp.next_deadline()));
        next = earlier(next, self.greeter.as_ref().and_then(|g| g.next_deadline()));
        next = earlier(next, self.igp.as_ref().and_then(|igp| igp.next_deadline()));
        next = earlier(next, self.vrf_bfd.next_deadline());
        // This runs for every frame.
        if self.parked > 0 {
            let limits = self.ports.iter().flat_map(|port| port.parked.iter().map(|f| f.limit));
            next = earlier(next, limits.min());
        }
        next
    }

    fn ask_neighbours(&mut self, now: Instant) {
        // This is rare, so the list may be allocated.
        let (mut due, pool) = (Vec::new(), &mut self.pool);
        self.neighbours.poll(now, |i, neighbour, action| match action {
            Action::Ask(mac) => due.push((i, mac, Vec::new())),
            Action::GiveUp => {
                neighbour.own.drain(..).for_each(|slot| pool.release(slot));
                due.push((i, None, std::mem::take(&mut neighbour.pending)));
            }
        });
        for (i, mac, lost) in due {
            if lost.is_empty() && self.neighbours.get(i).attempts() > 0 {
                self.ask(now, i, mac);
            }
            for Pending { slot, ingress } in lost {
                self.truth.dropped.unresolved += 1;
                self.truth.queued -= 1;
                self.report_unreachable_host(now, ingress, slot);
                self.pool.release(slot);
            }
        }
    }

    fn release_parked(&mut self, now: Instant) {
        if self.parked == 0 {
            return;
        }
        for (i, port) in self.ports.iter_mut().enumerate() {
            // They are in order of their limits, because they were parked in chronological order.
            while let Some(parked) = port.parked.front().copied().filter(|p| p.limit <= now) {
                port.parked.pop_front();
                self.parked -= 1;
                self.truth.reorder_expired += 1;
                self.departures.schedule_apart(parked.limit, i, parked.slot);
            }
        }
    }
}
