//! The flows between the sites of a VRF.

use super::{FIRST_TRANSPORT, FIRST_VPN, InUse};
use drophammer_methods::vpns::VrfView;
use drophammer_model::routes::Routes;
use drophammer_model::size::PacketSize;
use drophammer_model::traffic::{
    Arriving, ArrivingLabel, ArrivingTag, Bits, Ethernet, Field, HOP_LIMIT, Header, Ipv4, Mpls, Udp, Vlan,
};
use drophammer_model::trial::{AddressRange, FlowSpec, Targets};
use std::net::Ipv4Addr;
use std::ops::Range;
use std::sync::Arc;

/// Source addresses in the first route of a site.
fn sources(routes: &Routes) -> AddressRange {
    let prefix = routes.prefix(0);
    let std::net::IpAddr::V4(network) = prefix.address() else { unreachable!("routes of VRFs are of IPv4") };
    AddressRange { first: Ipv4Addr::from_bits(network.to_bits() + 1).into(), step: 1, count: 1 }
}

fn targets(routes: &Arc<Routes>, part: &Range<u32>) -> Targets {
    Targets::Routes { routes: routes.clone(), first: part.start, count: part.len() as u32 }
}

/// The flow from the CE router of a VRF to its remote site. The TTL of the labels depends on the model that the DUT follows (RFC 3443), so it is not
/// compared.
pub(super) fn to_core(used: &InUse, vrf: &VrfView, part: Range<u32>, size: &PacketSize, group: &str) -> FlowSpec {
    let labels = [FIRST_TRANSPORT + vrf.core as u32, FIRST_VPN + vrf.number];
    let label = |label| ArrivingLabel { label: Bits::new(label), tc: None, ttl: None };
    let tag = Vlan { vid: Field::from(Bits::new(vrf.vid.into())), ..Vlan::default() };
    let weight = f64::from(part.len() as u32);
    FlowSpec {
        weight,
        headers: vec![
            Header::Ethernet(Ethernet::default()),
            Header::Vlan(tag),
            Header::Ipv4(Ipv4::default()),
            Header::Udp(Udp::default()),
        ],
        arrives: Some(Arriving { labels: labels.map(label).to_vec(), ttl: Some(HOP_LIMIT - 1), ..Arriving::default() }),
        size: Some(size.with_tags(4)),
        ..FlowSpec::new(group, vrf.customer, vrf.core, sources(&used.customer), targets(&used.remote, &part))
    }
}

/// The flow from the remote site of a VRF to its CE router. `labels` are those that the DUT advertised. The TTL of the packet depends on the model that
/// the DUT follows (RFC 3443), so it is not compared.
pub(super) fn to_customer(
    used: &InUse,
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
            .chain([Header::Ipv4(Ipv4::default()), Header::Udp(Udp::default())])
            .collect(),
        arrives: Some(Arriving {
            vlans: vec![ArrivingTag { vid: Bits::new(vrf.vid.into()), pcp: None }],
            ..Arriving::default()
        }),
        size: Some(size.with_tags(4 * labels.len() as u16)),
        ..FlowSpec::new(group, vrf.core, vrf.customer, sources(&used.remote), targets(&used.customer, &part))
    }
}
