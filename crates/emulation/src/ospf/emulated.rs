//! The LSAs of the topology behind the device, computed from its configuration: their names, and their bodies on demand.

use super::NAME;
use super::config::{Externals, Networks, OspfConfig, Part, Shape, Topology, mask};
use crate::protocol::Refused;
use drophammer_wire::ospf::body::{link, router_flag};
use drophammer_wire::ospf::{Authentication, External, LsaKey, Router, RouterLink, Summary, lsa_type};
use std::net::Ipv4Addr;
use std::ops::Range;

/// Emulated routers, networks of other areas and external routes, numbered in this order.
#[derive(Clone, Debug)]
pub(super) struct Emulated {
    device: Ipv4Addr,
    topology: Option<Topology>,
    inter_area: Option<Networks>,
    external: Option<Externals>,
    /// Links of a random topology: the neighbours of router `i` are `links[starts[i]..starts[i + 1]]`. Empty for a grid.
    starts: Vec<u32>,
    links: Vec<u32>,
}

/// The next pseudo-random number (splitmix64).
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Pairs of connected routers.
fn random_links(routers: u32, extra_links: u32, seed: u64) -> Vec<(u32, u32)> {
    let mut state = seed;
    let mut pairs: Vec<_> =
        (1..routers).map(|router| (router, (random(&mut state) % u64::from(router)) as u32)).collect();
    let extra = if routers < 2 { 0 } else { extra_links };
    for _ in 0..extra {
        let [a, b] = [0; 2].map(|_: u32| (random(&mut state) % u64::from(routers)) as u32);
        pairs.push((a, if a == b { (a + 1) % routers } else { b }));
    }
    pairs
}

impl Emulated {
    /// The LSAs of `config`.
    ///
    /// # Errors
    /// A router whose links do not fit into one packet.
    pub fn new(config: &OspfConfig, authentication: &Authentication) -> Result<Emulated, Refused> {
        let mut emulated = Emulated {
            device: config.router_id,
            topology: config.topology,
            inter_area: config.inter_area,
            external: config.external,
            starts: Vec::new(),
            links: Vec::new(),
        };
        if let Some(Topology { routers, shape: Shape::Random { extra_links, seed }, .. }) = config.topology {
            let pairs = random_links(routers, extra_links, seed);
            let mut starts = vec![0u32; routers as usize + 1];
            for (a, b) in &pairs {
                starts[*a as usize + 1] += 1;
                starts[*b as usize + 1] += 1;
            }
            for i in 1..starts.len() {
                starts[i] += starts[i - 1];
            }
            let (mut next, mut links) = (starts.clone(), vec![0; pairs.len() * 2]);
            for (a, b) in pairs {
                for (from, to) in [(a, b), (b, a)] {
                    let at = &mut next[from as usize];
                    links[*at as usize] = to;
                    *at += 1;
                }
            }
            (emulated.starts, emulated.links) = (starts, links);
        }
        let most = config.most_links(authentication);
        if let Some(topology) = &config.topology
            && let Some(router) = (0..topology.routers).find(|router| emulated.links_of(topology, *router) > most)
        {
            let reason =
                format!("emulated router {router} has more than {most} links: use fewer stub networks or links");
            return Err(Refused::new(NAME, reason));
        }
        Ok(emulated)
    }

    fn routers(&self) -> u32 {
        self.topology.map_or(0, |t| t.routers)
    }

    fn inter_areas(&self) -> u32 {
        self.inter_area.map_or(0, |n| n.count)
    }

    fn externals(&self) -> u32 {
        self.external.map_or(0, |e| e.networks.count)
    }

    /// Number of LSAs.
    pub fn len(&self) -> u32 {
        self.routers() + self.inter_areas() + self.externals()
    }

    /// Flags of the device's Router-LSA.
    pub fn device_flags(&self) -> u8 {
        let flag = |set: bool, flag| if set { flag } else { 0 };
        flag(self.inter_area.is_some(), router_flag::BORDER) | flag(self.external.is_some(), router_flag::EXTERNAL)
    }

    /// Link of the device's Router-LSA to emulated router 0.
    pub fn device_link(&self) -> Option<RouterLink> {
        let topology = self.topology?;
        Some(self.point_to_point(&topology, topology.first_router_id, 1))
    }

    /// Numbers of the LSAs of a part.
    ///
    /// # Errors
    /// Indices that do not exist.
    pub fn numbers(&self, part: &Part) -> Result<Range<u32>, Refused> {
        let (range, first, count, what) = match part {
            Part::Routers(range) => (range, 0, self.routers(), "emulated routers"),
            Part::InterArea(range) => (range, self.routers(), self.inter_areas(), "networks of other areas"),
            Part::External(range) => (range, self.routers() + self.inter_areas(), self.externals(), "external routes"),
        };
        if range.end > count || range.start > range.end {
            return Err(Refused::new(NAME, format!("{range:?} of {count} {what}: give a range within them")));
        }
        Ok(first + range.start..first + range.end)
    }

    /// Name of an LSA.
    pub fn key(&self, number: u32) -> LsaKey {
        if let Some(topology) = self.topology.filter(|t| number < t.routers) {
            let id = Ipv4Addr::from_bits(topology.first_router_id.to_bits() + number);
            return LsaKey { kind: lsa_type::ROUTER, id, router: id };
        }
        let number = number - self.routers();
        match (self.inter_area.filter(|n| number < n.count), self.external) {
            (Some(networks), _) => {
                LsaKey { kind: lsa_type::SUMMARY_NETWORK, id: networks.network(number), router: self.device }
            }
            (None, Some(external)) => {
                let id = external.networks.network(number - self.inter_areas());
                LsaKey { kind: lsa_type::EXTERNAL, id, router: self.device }
            }
            (None, None) => unreachable!("a number below `len`"),
        }
    }

    /// Number of the LSA with this name.
    pub fn number_of(&self, key: &LsaKey) -> Option<u32> {
        match key.kind {
            lsa_type::ROUTER => self.router(key.router).filter(|_| key.id == key.router),
            lsa_type::SUMMARY_NETWORK if key.router == self.device => {
                Some(self.routers() + self.inter_area?.index_of(key.id)?)
            }
            lsa_type::EXTERNAL if key.router == self.device => {
                Some(self.routers() + self.inter_areas() + self.external?.networks.index_of(key.id)?)
            }
            _ => None,
        }
    }

    /// Index of an emulated router.
    pub fn router(&self, id: Ipv4Addr) -> Option<u32> {
        let topology = self.topology?;
        id.to_bits().checked_sub(topology.first_router_id.to_bits()).filter(|index| *index < topology.routers)
    }

    /// Metric of an LSA before commands change it.
    pub fn metric(&self, number: u32) -> u32 {
        let beyond = number.checked_sub(self.routers());
        match (beyond, self.topology, self.inter_area, self.external) {
            (None, Some(topology), ..) => topology.stub_cost.into(),
            (Some(n), _, Some(networks), _) if n < networks.count => networks.metric,
            (_, _, _, external) => external.map_or(0, |e| e.networks.metric),
        }
    }

    /// Largest metric of an LSA.
    pub fn most_metric(&self, number: u32) -> u32 {
        if number < self.routers() { u16::MAX.into() } else { drophammer_wire::ospf::body::LS_INFINITY }
    }

    /// Neighbours of a router of the topology.
    fn neighbours(&self, topology: &Topology, router: u32) -> impl Iterator<Item = u32> + '_ {
        let (routers, columns) = (
            topology.routers,
            match topology.shape {
                Shape::Grid { columns } => columns,
                Shape::Random { .. } => 0,
            },
        );
        let grid = [
            (columns > 0 && router >= columns).then(|| router - columns),
            (columns > 0 && !router.is_multiple_of(columns)).then(|| router - 1),
            (columns > 0 && !(router + 1).is_multiple_of(columns)).then(|| router + 1),
            (columns > 0).then(|| router.saturating_add(columns)),
        ];
        let start = self.starts.get(router as usize).copied().unwrap_or(0) as usize;
        let end = self.starts.get(router as usize + 1).copied().unwrap_or(0) as usize;
        grid.into_iter().flatten().filter(move |n| *n < routers).chain(self.links[start..end].iter().copied())
    }

    fn links_of(&self, topology: &Topology, router: u32) -> usize {
        usize::from(router == 0) + self.neighbours(topology, router).count() + usize::from(topology.stubs)
    }

    /// An unnumbered link to `router`; `number` stands for the interface's MIB-II index.
    fn point_to_point(&self, topology: &Topology, router: Ipv4Addr, number: u32) -> RouterLink {
        let data = Ipv4Addr::from_bits(number);
        RouterLink { id: router, data, kind: link::POINT_TO_POINT, metric: topology.link_cost }
    }

    /// Appends the body of an LSA to `out`.
    pub fn write(&self, number: u32, metric: u32, out: &mut Vec<u8>) {
        if let Some(topology) = self.topology.filter(|t| number < t.routers) {
            return self.write_router(&topology, number, metric as u16, out);
        }
        let number = number - self.routers();
        match (self.inter_area.filter(|n| number < n.count), self.external) {
            (Some(networks), _) => Summary { mask: mask(networks.length), metric }.emit(out),
            (None, Some(external)) => {
                let Externals { networks, type_2, tag, forwarding } = external;
                External { mask: mask(networks.length), type_2, metric, forwarding, tag }.emit(out);
            }
            (None, None) => unreachable!("a number below `len`"),
        }
    }

    fn write_router(&self, topology: &Topology, router: u32, metric: u16, out: &mut Vec<u8>) {
        let id = |index: u32| Ipv4Addr::from_bits(topology.first_router_id.to_bits() + index);
        Router::emit(0, self.links_of(topology, router) as u16, out);
        let device = (router == 0).then_some(self.device);
        let others = self.neighbours(topology, router).map(id);
        for (number, to) in (1..).zip(device.into_iter().chain(others)) {
            self.point_to_point(topology, to, number).emit(out);
        }
        let networks =
            Networks { first: topology.first_stub, length: topology.stub_length, count: 0, metric: metric.into() };
        for stub in 0..u32::from(topology.stubs) {
            let network = networks.network(router * u32::from(topology.stubs) + stub);
            RouterLink { id: network, data: mask(topology.stub_length), kind: link::STUB, metric }.emit(out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_wire::ospf::Body;
    use std::collections::{BTreeMap, BTreeSet};

    fn emulated(shape: Shape, routers: u32) -> Emulated {
        let topology = Topology {
            routers,
            shape,
            first_router_id: [10, 0, 0, 0].into(),
            link_cost: 5,
            stubs: 2,
            first_stub: [20, 0, 0, 0].into(),
            stub_length: 24,
            stub_cost: 7,
        };
        let networks = |first: [u8; 4], length, count| Networks { first: first.into(), length, count, metric: 20 };
        let external =
            Externals { networks: networks([30, 0, 0, 0], 28, 20), type_2: true, tag: 9, forwarding: [0; 4].into() };
        let config = OspfConfig {
            topology: Some(topology),
            inter_area: Some(networks([40, 0, 0, 0], 16, 10)),
            external: Some(external),
            ..OspfConfig::new([1, 1, 1, 1].into())
        };
        Emulated::new(&config, &Authentication::Null).unwrap()
    }

    /// Router and its neighbours, by router ID.
    fn graph(emulated: &Emulated, routers: u32) -> BTreeMap<Ipv4Addr, Vec<Ipv4Addr>> {
        let one = |number| {
            let mut body = Vec::new();
            emulated.write(number, 7, &mut body);
            let Ok(Body::Router(router)) = Body::parse(1, &body) else { panic!("a Router-LSA") };
            let stubs: Vec<_> = router.links().filter(|l| l.kind == link::STUB).map(|l| l.id).collect();
            let first = 20 << 24 | number << 9;
            assert_eq!(stubs, [first, first | 256].map(Ipv4Addr::from_bits));
            (emulated.key(number).id, router.links().filter(|l| l.kind == 1).map(|l| l.id).collect())
        };
        (0..routers).map(one).collect()
    }

    #[test]
    fn links_are_the_same_in_both_directions_and_connect_all_routers() {
        let grid = emulated(Shape::Grid { columns: 4 }, 10);
        let random = emulated(Shape::Random { extra_links: 15, seed: 3 }, 50);
        for (emulated, routers) in [(grid, 10), (random, 50)] {
            let graph = graph(&emulated, routers);
            let device = Ipv4Addr::new(1, 1, 1, 1);
            for (from, tos) in &graph {
                for to in tos.iter().filter(|to| **to != device) {
                    let count = |a: &Ipv4Addr, b: &Ipv4Addr| graph[a].iter().filter(|n| *n == b).count();
                    assert_eq!(count(from, to), count(to, from), "{from} {to}");
                }
            }
            let (mut reached, mut next) = (BTreeSet::new(), vec![emulated.device_link().unwrap().id]);
            while let Some(id) = next.pop() {
                if id != device && reached.insert(id) {
                    next.extend(&graph[&id]);
                }
            }
            assert_eq!(reached.len(), routers as usize);
            assert_eq!(graph.values().filter(|all| all.contains(&device)).count(), 1);
        }
    }

    #[test]
    fn every_name_has_its_number() {
        let all = emulated(Shape::Grid { columns: 4 }, 10);
        assert_eq!(all.len(), 40);
        for number in 0..all.len() {
            assert_eq!(all.number_of(&all.key(number)), Some(number));
        }
        assert_eq!((all.metric(9), all.metric(10), all.metric(39)), (7, 20, 20));
        assert_eq!(all.numbers(&Part::External(3..5)), Ok(23..25));
        assert_eq!(all.numbers(&Part::InterArea(0..10)), Ok(10..20));
        assert!(all.numbers(&Part::Routers(3..11)).is_err());
        let stranger = LsaKey { kind: 5, id: [30, 0, 1, 64].into(), router: [1, 1, 1, 1].into() };
        assert_eq!(all.number_of(&stranger), None);
        assert_eq!(all.number_of(&LsaKey { id: [30, 0, 0, 8].into(), ..stranger }), None, "not the first of a network");
    }

    #[test]
    fn a_router_with_too_many_links_is_refused() {
        let mut config = OspfConfig::new([1, 1, 1, 1].into());
        config.topology = Some(Topology { stubs: 200, ..emulated(Shape::Grid { columns: 1 }, 1).topology.unwrap() });
        let refused = Emulated::new(&config, &Authentication::Null).unwrap_err();
        assert!(refused.reason.contains("more than 119 links"), "{refused}");
    }
}
