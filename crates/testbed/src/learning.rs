//! Learning frames (RFC 2544 section 23 b): traffic that shows that a device forwards between its ports.
//!
//! A router has to learn only its neighbours, and it has learned them already by ARP and Neighbor Discovery.
//! Destinations are behind these neighbours and need no learning. So the frames go to a limited number of destinations
//! in pseudo-random order: 400 per port for each pair of interfaces or sub-interfaces. They do not reach every
//! destination of a large range.

use drophammer_model::suite::{Addressing, PortConfig, VlanTag};
use drophammer_model::topology::{CoreLinkName, System};
use drophammer_model::traffic::{Arriving, ArrivingTag, Bits, Header, Ipv4, Ipv6, Udp, Vlan};
use drophammer_model::trial::{Family, FlowSpec, Load, TrialSpec};
use drophammer_model::{FrameSize, PacketSize};
use std::collections::BTreeSet;

/// Frames per second of each port.
pub(crate) const RATE_PPS: f64 = 2_000.0;
/// Time for the flows of a pair of ports or sub-interfaces, in seconds.
const PAIR_S: f64 = 0.2;
/// Longest time for the flows of all pairs, in seconds.
const MOST_S: f64 = 2.0;
/// Minimum number of frames per flow. The traffic lasts longer if necessary.
const LEAST_FRAMES: f64 = 4.0;

/// One side of a pair: an interface of the DUT, or a sub-interface.
struct End<'a> {
    name: String,
    tags: &'a [VlanTag],
    addressing: [Option<&'a Addressing>; 2],
}

impl<'a> End<'a> {
    /// The interface at a port and its sub-interfaces.
    fn all(port: &'a PortConfig) -> impl Iterator<Item = End<'a>> {
        let own = End { name: port.name.clone(), tags: &[], addressing: [port.ipv4.as_ref(), port.ipv6.as_ref()] };
        let vlans = port.vlans.iter().map(|vlan| {
            let ids = vlan.tags.iter().map(|tag| format!(".{}", tag.vid));
            let name = std::iter::once(port.name.clone()).chain(ids).collect();
            End { name, tags: &vlan.tags, addressing: [vlan.ipv4.as_ref(), vlan.ipv6.as_ref()] }
        });
        std::iter::once(own).chain(vlans)
    }

    fn addressing(&self, family: Family) -> Option<&'a Addressing> {
        match family {
            Family::Ipv4 => self.addressing[0],
            Family::Ipv6 => self.addressing[1],
        }
    }
}

/// Returns the headers of frames that leave with `tags`; none without tags.
fn headers(tags: &[VlanTag], family: Family) -> Vec<Header> {
    if tags.is_empty() {
        return Vec::new();
    }
    let vlan = |tag: &VlanTag| {
        let (tpid, vid) = (Some(tag.tpid.into()), Bits::new(tag.vid.into()).into());
        Header::Vlan(Vlan { tpid, vid, ..Vlan::default() })
    };
    let ip = match family {
        Family::Ipv4 => Header::Ipv4(Ipv4::default()),
        Family::Ipv6 => Header::Ipv6(Ipv6::default()),
    };
    tags.iter().map(vlan).chain([ip, Header::Udp(Udp::default())]).collect()
}

/// Returns how frames must arrive if they leave the DUT with `tags`.
fn arriving(tags: &[VlanTag]) -> Arriving {
    let vlans = tags.iter().map(|tag| ArrivingTag { vid: Bits::new(tag.vid.into()), pcp: None });
    Arriving { vlans: vlans.collect(), ..Arriving::default() }
}

fn flow(family: Family, ports: [usize; 2], from: &End<'_>, to: &End<'_>) -> Option<FlowSpec> {
    let (sources, destinations) = (from.addressing(family)?.destinations, to.addressing(family)?.destinations);
    let group = format!("{family} {} to {}", from.name, to.name);
    let tagged = !from.tags.is_empty();
    Some(FlowSpec {
        headers: headers(from.tags, family),
        arrives: tagged.then(|| arriving(to.tags)),
        ..FlowSpec::new(group, ports[0], ports[1], sources, destinations)
    })
}

/// Total rate of all ports in [`between_all`], in frames per second.
const ALL_PPS: f64 = 20_000.0;
/// Maximum share of a link between two routers that these frames use.
const OF_LINK: f64 = 0.5;
/// Length of a learning frame in bytes. `BESIDE`: additional bytes that each frame takes on the line.
const FRAME: u16 = 128;
const BESIDE: f64 = 20.0;

/// TTL of a frame that one router has forwarded.
const BEHIND_ONE: u8 = 63;

/// Returns slow traffic of `families` from each port to each other port, with one group per pair of routers. It must
/// arrive with the TTL that is left after one router. While the links `down` are down, it uses at most half of a link
/// between routers.
pub(crate) fn between_all(
    ports: &[PortConfig],
    families: &[Family],
    system: &System,
    down: &BTreeSet<CoreLinkName>,
) -> TrialSpec {
    let mut flows = Vec::new();
    let pairs = (0..ports.len()).flat_map(|from| (0..ports.len()).map(move |to| (from, to)));
    for (from, to) in pairs.filter(|(from, to)| from != to) {
        for family in families {
            let (Some(a), Some(b)) = (ports[from].addressing(*family), ports[to].addressing(*family)) else { continue };
            let number = |port| system.edge(port).map_or(0, |(router, _)| router + 1);
            let group = format!("{family} r{} to r{}", number(from), number(to));
            flows.push(FlowSpec {
                headers: headers(&[], *family),
                arrives: Some(Arriving { ttl: Some(BEHIND_ONE), ..Arriving::default() }),
                ..FlowSpec::new(group, from, to, a.destinations, b.destinations)
            });
        }
    }
    let most = system.full_mesh_loads(down).map_or(1.0, |loads| loads.most()).max(f64::MIN_POSITIVE);
    let link = system
        .topology
        .core_speed
        .map_or(f64::INFINITY, |speed| speed.0 as f64 / 8.0 / (f64::from(FRAME) + BESIDE) * OF_LINK / most);
    let rate_pps = RATE_PPS.min(ALL_PPS / ports.len() as f64).min(link);
    let of_port = flows.len() as f64 / ports.len() as f64;
    TrialSpec {
        purpose: "frames on the remaining paths".into(),
        size: PacketSize::Fixed(FrameSize::Frame(FRAME)),
        flows,
        load: Load::Constant { rate_pps },
        duration_s: PAIR_S.max(of_port * LEAST_FRAMES / rate_pps),
        bin_s: None,
        drain_s: 0.3,
        events: vec![],
    }
}

/// Returns the ends between which learning frames run for each pair of ports, with the numbers of the two ports. These
/// are the two interfaces, and pairs of their sub-interfaces: first with first, and so on. With only one port, its
/// first sub-interface is paired with the second, and so on.
fn pairs(ports: &[PortConfig]) -> Vec<(Vec<[End<'_>; 2]>, [usize; 2])> {
    if let [only] = ports {
        let vlans: Vec<_> = End::all(only).skip(1).collect();
        let mut vlans = vlans.into_iter();
        let pairs = std::iter::from_fn(|| Some([vlans.next()?, vlans.next()?]));
        return vec![(pairs.collect(), [0, 0])];
    }
    let both = ports.as_chunks::<2>().0.iter().enumerate();
    both.map(|(pair, [a, b])| (End::all(a).zip(End::all(b)).map(<[_; 2]>::from).collect(), [2 * pair, 2 * pair + 1]))
        .collect()
}

/// Returns slow traffic of `families` in both directions between the ports of each pair, and between their
/// sub-interfaces: first with first, and so on.
pub(crate) fn learning(ports: &[PortConfig], families: &[Family]) -> TrialSpec {
    let mut flows = Vec::new();
    let mut duration_s = PAIR_S;
    for (all, numbers) in pairs(ports) {
        let (mut pairs, mut sending) = (0.0, 0.0);
        for ends in all {
            let before = flows.len();
            for (from, to) in [(0, 1), (1, 0)] {
                let at = [numbers[from], numbers[to]];
                flows.extend(families.iter().filter_map(|family| flow(*family, at, &ends[from], &ends[to])));
            }
            let found = (flows.len() - before) / 2;
            pairs += f64::from(u8::from(found > 0));
            sending += found as f64;
        }
        duration_s = duration_s.max((pairs * PAIR_S).min(MOST_S)).max(sending * LEAST_FRAMES / RATE_PPS);
    }
    TrialSpec {
        purpose: "learning frames".into(),
        size: PacketSize::Fixed(FrameSize::Frame(128)),
        flows,
        load: Load::Constant { rate_pps: RATE_PPS },
        duration_s,
        bin_s: None,
        drain_s: 0.3,
        events: vec![],
    }
}
