//! Flows between the sites of VRFs, with the encapsulation in which they must arrive.

use super::{FIRST_TRANSPORT, FIRST_VPN, InUse, Sites, block_of};
use crate::core::prefix;
use crate::setup::TestSetup;
use drophammer_methods::TestError;
use drophammer_methods::vpns::VrfView;
use drophammer_model::label_edge::DUT_LOOPBACK;
use drophammer_model::routes::Routes;
use drophammer_model::size::PacketSize;
use drophammer_model::traffic::{
    Arriving, ArrivingLabel, ArrivingTag, Bits, Ethernet, Field, HOP_LIMIT, Header, Ipv4, Ipv6, Mpls, Udp, Vlan,
};
use drophammer_model::trial::{AddressRange, Family, FlowSpec, PortIndex, Targets};
use drophammer_rig::ldp::Lsr;
use drophammer_wire::ldp::Label;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::sync::Arc;

/// Maximum number of flows to VRFs. A router with a label for each route needs a flow for each.
const MOST_FLOWS: usize = 65_536;

/// Source addresses in the first route of a site.
fn sources(routes: &Routes) -> AddressRange {
    let first = match routes.prefix(0).address() {
        IpAddr::V4(network) => Ipv4Addr::from_bits(network.to_bits() + 1).into(),
        IpAddr::V6(network) => Ipv6Addr::from_bits(network.to_bits() + 1).into(),
    };
    AddressRange { first, step: 1, count: 1 }
}

/// The IP header of a family.
fn ip(family: Family) -> Header {
    match family {
        Family::Ipv4 => Header::Ipv4(Ipv4::default()),
        Family::Ipv6 => Header::Ipv6(Ipv6::default()),
    }
}

fn targets(routes: &Arc<Routes>, part: &Range<u32>) -> Targets {
    Targets::Routes { routes: routes.clone(), first: part.start, count: part.len() as u32 }
}

/// The flow from the CE router of a VRF to its remote site. The TTL of the labels depends on the model that the DUT follows (RFC 3443), so it is not
/// compared.
pub(super) fn to_core(sites: &Sites, vrf: &VrfView, part: Range<u32>, size: &PacketSize, group: &str) -> FlowSpec {
    let labels = [FIRST_TRANSPORT + vrf.core as u32, FIRST_VPN + vrf.number];
    let label = |label| ArrivingLabel { label: Bits::new(label), tc: None, ttl: None };
    let tag = Vlan { vid: Field::from(Bits::new(vrf.vid.into())), ..Vlan::default() };
    let weight = f64::from(part.len() as u32);
    FlowSpec {
        weight,
        headers: vec![
            Header::Ethernet(Ethernet::default()),
            Header::Vlan(tag),
            ip(sites.family),
            Header::Udp(Udp::default()),
        ],
        arrives: Some(Arriving { labels: labels.map(label).to_vec(), ttl: Some(HOP_LIMIT - 1), ..Arriving::default() }),
        size: Some(size.with_tags(4)),
        ..FlowSpec::new(
            group,
            vrf.customer,
            vrf.core,
            sources(&sites.customers[vrf.site as usize]),
            targets(&sites.remote, &part),
        )
    }
}

/// The flow from the CE router of a site to the CE router of another site of the VRF.
pub(super) fn to_other(
    sites: &Sites,
    from: &VrfView,
    to: &VrfView,
    part: Range<u32>,
    size: &PacketSize,
    group: &str,
) -> FlowSpec {
    let tag = Vlan { vid: Field::from(Bits::new(from.vid.into())), ..Vlan::default() };
    let [own, others] = [from, to].map(|site| &sites.customers[site.site as usize]);
    FlowSpec {
        weight: f64::from(part.len() as u32),
        headers: vec![
            Header::Ethernet(Ethernet::default()),
            Header::Vlan(tag),
            ip(sites.family),
            Header::Udp(Udp::default()),
        ],
        arrives: Some(Arriving {
            vlans: vec![ArrivingTag { vid: Bits::new(to.vid.into()), pcp: None }],
            ttl: Some(HOP_LIMIT - 1),
            ..Arriving::default()
        }),
        size: Some(size.with_tags(4)),
        ..FlowSpec::new(group, from.customer, to.customer, sources(own), targets(others, &part))
    }
}

/// The flow from the remote site of a VRF to its CE router. `labels` are the labels that the DUT has advertised. The TTL of the packet depends on the
/// model that the DUT follows (RFC 3443), so it is not compared.
fn to_customer(
    sites: &Sites,
    vrf: &VrfView,
    part: Range<u32>,
    labels: &[u32],
    size: &PacketSize,
    group: &str,
) -> FlowSpec {
    let entry = |label: &u32| Header::Mpls(Mpls { label: Field::from(Bits::new(*label)), ..Mpls::default() });
    let weight = f64::from(part.len() as u32);
    FlowSpec {
        weight,
        headers: std::iter::once(Header::Ethernet(Ethernet::default()))
            .chain(labels.iter().map(entry))
            .chain([ip(sites.family), Header::Udp(Udp::default())])
            .collect(),
        arrives: Some(Arriving {
            vlans: vec![ArrivingTag { vid: Bits::new(vrf.vid.into()), pcp: None }],
            ..Arriving::default()
        }),
        size: Some(size.with_tags(4 * labels.len() as u16)),
        ..FlowSpec::new(
            group,
            vrf.core,
            vrf.customer,
            sources(&sites.remote),
            targets(&sites.customers[vrf.site as usize], &part),
        )
    }
}

impl TestSetup<'_> {
    /// The flows to the CE router of a VRF: one for each run of consecutive routes with the same labels.
    pub(super) fn to_customers(
        &self,
        used: &InUse,
        sites: &Sites,
        vrf: &VrfView,
        part: Range<u32>,
        size: &PacketSize,
        group: &str,
    ) -> Result<Vec<FlowSpec>, TestError> {
        let rig = &self.routing.bench.rig;
        let transport = self.transport_label(vrf.core)?;
        let no_label = |route: u32| {
            let prefix = sites.customers[vrf.site as usize].prefix(route);
            TestError::Failed(format!("the DUT has advertised no label for {prefix} of {}", vrf.name()))
        };
        let pe = self.vpns.pes.iter().find(|(port, _)| *port == vrf.core).map(|(_, session)| *session);
        let found = block_of(used, vrf, sites.family).zip(pe).and_then(|(block, pe)| {
            let (_, id) = block.at_pes.iter().find(|(session, _)| *session == pe)?;
            Some((rig.session(pe)?, *id, vrf.number - block.base))
        });
        let Some(((routers, router), id, index)) = found else { return Err(no_label(part.start)) };
        let adj_rib_in = routers.adj_rib_in(router);
        let mut flows = Vec::new();
        let mut begin = part.start;
        while begin < part.end {
            let labels = adj_rib_in.label_of(id, index, begin).ok_or_else(|| no_label(begin))?;
            let same = |route: &u32| adj_rib_in.label_of(id, index, *route) == Some(labels);
            let end = (begin + 1..part.end).find(|route| !same(route)).unwrap_or(part.end);
            let stack: Vec<u32> = transport.into_iter().chain(labels.iter().copied()).collect();
            flows.push(to_customer(sites, vrf, begin..end, &stack, size, group));
            if flows.len() * used.vrfs.len() > MOST_FLOWS {
                let why =
                    "the DUT gives each route a label of its own, so these routes need too many flows: ask for fewer";
                return Err(TestError::NotApplicable(why.into()));
            }
            begin = end;
        }
        Ok(flows)
    }

    /// The label that the DUT has advertised for its loopback address at a core port; `None` if the P router must remove the label.
    fn transport_label(&self, core: PortIndex) -> Result<Option<u32>, TestError> {
        let device = self.routing.bench.rig.hosts().device(core, crate::core::P_ROUTER);
        let lsr = device.and_then(|device| device.protocol::<Lsr>());
        let loopback = prefix(DUT_LOOPBACK, 32)?;
        let name = &self.routing.bench.facts.ports[core].name;
        match lsr.and_then(|lsr| lsr.label_for(loopback)) {
            Some(Label::IMPLICIT_NULL) => Ok(None),
            Some(label) => Ok(Some(label.value())),
            None => Err(TestError::Failed(format!("the DUT has advertised no label for {loopback} by LDP at {name}"))),
        }
    }
}
