//! Expected and actual counters of every interface inside a loop.

use crate::trial::RoutersSeen;
use drophammer_model::quantity::group_digits;
use drophammer_model::router_interfaces::{InterfaceOf, RouterInterface};
use drophammer_model::topology::{CycleHop, System};
use std::collections::BTreeMap;

/// One counter of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Counter {
    /// Index of the router.
    pub router: usize,
    /// Interface or tunnel.
    pub at: InterfaceOf,
    /// True if it counts sent packets, false if it counts received packets.
    pub out: bool,
}

/// Growth of the counters over a trial: packets and bytes.
pub(super) type Grown = BTreeMap<Counter, (u64, u64)>;

/// The growth during a trial. A counter that decreased counts as 0, so its packets appear to be missing.
pub(super) fn grown(routers: &RoutersSeen) -> Grown {
    let find = |of: &RouterInterface| routers.before.iter().find(|b| (b.router, b.at) == (of.router, of.at));
    let mut all = Grown::new();
    for after in &routers.after {
        let Some(before) = find(after) else { continue };
        let one = |out| Counter { router: after.router, at: after.at, out };
        let by = |after: u64, before: u64| after.saturating_sub(before);
        let came = (by(after.in_packets, before.in_packets), by(after.in_bytes, before.in_bytes));
        let went = (by(after.out_packets, before.out_packets), by(after.out_bytes, before.out_bytes));
        all.extend([(one(false), came), (one(true), went)]);
    }
    all
}

/// The growth without frames that the routers sent on their own, mainly ARP: the excess of a counter over its expected
/// value, up to `own_frames`. If packets are missing, these frames cannot be told apart and stay included.
pub(super) fn without_own(grown: &Grown, compared: &[Compared], own_frames: u64) -> Grown {
    let mut of_packets = grown.clone();
    for compared in compared.iter().filter(|compared| compared.is_right(own_frames)) {
        of_packets.entry(compared.counter).and_modify(|(packets, _)| *packets = compared.expected);
    }
    of_packets
}

/// A place on the path of the loop.
#[derive(Clone, Debug)]
struct Station {
    /// Counters whose sum is the number of packets that arrive here.
    counters: Vec<Counter>,
    /// Description of what lies between this place and the next one.
    beyond: String,
}

/// Expected counts.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    /// Growth of each counter per injected packet.
    per_packet: BTreeMap<Counter, u64>,
    /// Growth of each counter per ICMP error that comes back to the tester.
    per_error: BTreeMap<Counter, u64>,
    /// Place where packets enter.
    entry: Station,
    /// The places of one round, in order.
    round: Vec<Station>,
    /// Output counter of each hop of the round.
    hops: Vec<Counter>,
}

/// A counter with its expected value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Compared {
    pub counter: Counter,
    pub expected: u64,
    pub counted: u64,
}

impl Compared {
    /// Difference between the actual and the expected value.
    pub fn difference(&self) -> i128 {
        i128::from(self.counted) - i128::from(self.expected)
    }

    /// Returns true if packets that the routers sent on their own can explain the difference.
    pub fn is_right(&self, own_frames: u64) -> bool {
        (0..=i128::from(own_frames)).contains(&self.difference())
    }
}

/// Packets that were lost at some place, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub packets: u64,
    pub place: String,
}

impl Ended {
    /// `100 packets ended in r2, between first link to r1 and link to r3`
    pub fn text(&self) -> String {
        format!("{} packets ended {}", group_digits(self.packets), self.place)
    }
}

impl Expected {
    /// Expected counts of packets with this TTL that enter at `port`; `None` if the system has no loop or no such port.
    pub fn of(system: &System, port: usize, ttl: u8, ports: &[String]) -> Option<Expected> {
        let (cycle, passes) = (system.cycle()?, system.passes(port, ttl)?);
        let (entry, edge) = system.edge(port)?;
        let per_error = errors(system, system.expires_at(port, ttl)?, entry, edge)?;
        let mut per_packet = BTreeMap::new();
        let mut add = |router, at, out, count| {
            *per_packet.entry(Counter { router, at, out }).or_insert(0) += count;
        };
        add(entry, InterfaceOf::Interface(edge), false, 1);
        let next = |index: usize| &cycle[(index + 1) % cycle.len()];
        for (index, hop) in cycle.iter().enumerate() {
            let (next, passes) = (next(index), passes[index]);
            add(hop.router, InterfaceOf::Interface(hop.to), true, passes);
            add(next.router, InterfaceOf::Interface(next.from), false, passes);
            // A loop has one tunnel.
            if hop.to_tunnel {
                add(hop.router, InterfaceOf::Tunnel(0), true, passes);
            }
            if next.from_tunnel {
                add(next.router, InterfaceOf::Tunnel(0), false, passes);
            }
        }
        let name = |counter: Counter| counter_place(system, counter.router, counter.at, ports);
        let entry_counter = Counter { router: entry, at: InterfaceOf::Interface(edge), out: false };
        // In one round, a packet passes a router with ports only once.
        let joins = |hop: &CycleHop| (hop.router == entry).then_some(entry_counter);
        let round = cycle.iter().flat_map(|hop| stations(hop, joins(hop), &name)).collect();
        let entry = Station {
            counters: vec![entry_counter],
            beyond: format!("between the tester and {} of {}", name(entry_counter), router_name(entry)),
        };
        let hops =
            cycle.iter().map(|hop| Counter { router: hop.router, at: InterfaceOf::Interface(hop.to), out: true });
        Some(Expected { per_packet, per_error, hops: hops.collect(), entry, round })
    }

    /// The counters that some packet or ICMP error must pass; counters of other interfaces are ignored.
    pub fn counters(&self) -> impl Iterator<Item = Counter> {
        let more = self.per_error.keys().filter(|counter| !self.per_packet.contains_key(counter));
        self.per_packet.keys().chain(more).copied()
    }

    /// The counters that packets of the loop pass but ICMP errors do not.
    pub fn without_errors(&self) -> Vec<Counter> {
        self.per_packet.keys().filter(|counter| !self.per_error.contains_key(counter)).copied().collect()
    }

    /// The counters of the tunnel, which carries no ICMP errors and no ARP; the counters of
    /// [`Expected::without_errors`] if packets do not reach the tunnel.
    pub fn in_tunnel(&self) -> Vec<Counter> {
        let mut counters = self.without_errors();
        let in_tunnel =
            |counter: &Counter| matches!(counter.at, InterfaceOf::Tunnel(_)) && self.per_packet[counter] > 0;
        if counters.iter().any(in_tunnel) {
            counters.retain(in_tunnel);
        }
        counters
    }

    /// Expected growth of a counter.
    fn expected(&self, counter: Counter, injected: u64, errors: u64) -> u64 {
        let of = |each: &BTreeMap<Counter, u64>| each.get(&counter).copied().unwrap_or(0);
        injected * of(&self.per_packet) + errors * of(&self.per_error)
    }

    /// Every counter with its expected value, for this number of injected packets and of ICMP errors that came back.
    ///
    /// # Errors
    /// The first counter that was not read.
    pub fn compare(&self, grown: &Grown, injected: u64, errors: u64) -> Result<Vec<Compared>, Counter> {
        let one = |counter: Counter| {
            let (counted, _) = grown.get(&counter).copied().ok_or(counter)?;
            Ok(Compared { counter, expected: self.expected(counter, injected, errors), counted })
        };
        self.counters().map(one).collect()
    }

    /// Places where packets were lost: on the way in, then in the order of the round.
    pub fn ended(&self, grown: &Grown, injected: u64, errors: u64) -> Vec<Ended> {
        let beyond = |counters: &[Counter]| -> i128 {
            let of = |counter: &Counter| {
                let counted = grown.get(counter).map_or(0, |counted| counted.0);
                i128::from(counted) - i128::from(self.expected(*counter, injected, errors))
            };
            counters.iter().map(of).sum()
        };
        // The first counter of a place counts the packets from the previous place; the others count packets added
        // there.
        let one = |index: usize| {
            let (station, next) = (&self.round[index], &self.round[(index + 1) % self.round.len()]);
            let packets = beyond(&station.counters) - beyond(&next.counters[..1]);
            let packets = u64::try_from(packets).ok().filter(|packets| *packets > 0)?;
            Some(Ended { packets, place: station.beyond.clone() })
        };
        let outside = u64::try_from(-beyond(&self.entry.counters)).ok().filter(|packets| *packets > 0);
        let outside = outside.map(|packets| Ended { packets, place: self.entry.beyond.clone() });
        outside.into_iter().chain((0..self.round.len()).filter_map(one)).collect()
    }

    /// The output counter of a hop, and how often each ICMP error passes it.
    pub fn hop(&self, hop: usize) -> Option<(Counter, u64)> {
        let counter = *self.hops.get(hop)?;
        Some((counter, self.per_error.get(&counter).copied().unwrap_or(0)))
    }

    /// Packets forwarded by all routers together, without ICMP errors.
    pub fn sent_on(&self, grown: &Grown, errors: u64) -> u64 {
        let of = |counter: &Counter| {
            let own = errors * self.per_error.get(counter).copied().unwrap_or(0);
            grown.get(counter).map_or(0, |counted| counted.0.saturating_sub(own))
        };
        self.hops.iter().map(of).sum()
    }
}

/// The counters that a packet passes at one hop, each with a description of what follows it.
fn stations(hop: &CycleHop, joins: Option<Counter>, name: &dyn Fn(Counter) -> String) -> Vec<Station> {
    let counter = |at, out| Counter { router: hop.router, at, out };
    let (came, goes) = (InterfaceOf::Interface(hop.from), InterfaceOf::Interface(hop.to));
    let mut passed = vec![counter(came, false)];
    passed.extend(hop.from_tunnel.then(|| counter(InterfaceOf::Tunnel(0), false)));
    passed.extend(hop.to_tunnel.then(|| counter(InterfaceOf::Tunnel(0), true)));
    passed.push(counter(goes, true));
    let router = router_name(hop.router);
    let between = |at: usize| match passed.get(at + 1) {
        Some(next) => format!("in {router}, between {} and {}", name(passed[at]), name(*next)),
        None => format!("on the {} of {router}", name(passed[at])),
    };
    let one = |at: usize| {
        let mut counters = vec![passed[at]];
        // Injected packets join here.
        counters.extend(joins.filter(|_| at == 0));
        Station { counters, beyond: between(at) }
    };
    (0..passed.len()).map(one).collect()
}

/// Counters that an ICMP error passes on its path from router `from` to the port `edge` of router `entry`. Between two
/// routers, the routes use the first link.
fn errors(system: &System, from: usize, entry: usize, edge: usize) -> Option<BTreeMap<Counter, u64>> {
    let mut counted = BTreeMap::new();
    let mut at = from;
    while at != entry {
        let next = if entry > at { at + 1 } else { at - 1 };
        let link = system.links.iter().find(|link| link.beyond(at) == Some(next))?;
        for (router, out) in [(at, true), (next, false)] {
            let interface = InterfaceOf::Interface(link.end_at(router)?.interface);
            counted.insert(Counter { router, at: interface, out }, 1);
        }
        at = next;
    }
    counted.insert(Counter { router: entry, at: InterfaceOf::Interface(edge), out: true }, 1);
    Some(counted)
}

/// `r1`
pub(super) fn router_name(router: usize) -> String {
    format!("r{}", router + 1)
}

/// `port p1`, `link to r3`, `second link to r1`, `tunnel to r2`
pub(super) fn counter_place(system: &System, router: usize, at: InterfaceOf, ports: &[String]) -> String {
    let interface = match at {
        InterfaceOf::Tunnel(tunnel) => {
            let remote = system.routers[router].role.tunnels.get(tunnel).map(|tunnel| tunnel.remote);
            let ends_there =
                |role: &drophammer_model::role::RouterRole| role.tunnels.iter().any(|t| Some(t.local) == remote);
            let other = system.routers.iter().position(|other| ends_there(&other.role));
            return other.map_or_else(|| at.to_string(), |other| format!("tunnel to {}", router_name(other)));
        }
        InterfaceOf::Interface(interface) => interface,
    };
    let own = &system.routers[router].ports;
    if let Some(port) = own.clone().nth(interface) {
        return format!("port {}", ports.get(port).map_or("", String::as_str));
    }
    let joins = |link: &&drophammer_model::topology::CoreLink| link.end_at(router).is_some();
    let Some(link) =
        system.links.iter().filter(joins).find(|l| l.end_at(router).is_some_and(|e| e.interface == interface))
    else {
        return at.to_string();
    };
    let other = link.beyond(router).map(router_name).unwrap_or_default();
    let parallel: Vec<_> = system.links.iter().filter(|one| one.name == link.name).collect();
    match parallel.iter().position(|one| *one == link) {
        Some(number) if parallel.len() > 1 => format!("{} link to {other}", ["first", "second"][number.min(1)]),
        _ => format!("link to {other}"),
    }
}

/// `r2 tunnel to r3 in: 990 of 1,000`
pub(super) fn told(system: &System, ports: &[String], compared: &Compared) -> String {
    let Compared { counter, expected, counted } = *compared;
    format!(
        "{} {} {}: {} of {}",
        router_name(counter.router),
        counter_place(system, counter.router, counter.at, ports),
        if counter.out { "out" } else { "in" },
        group_digits(counted),
        group_digits(expected)
    )
}
