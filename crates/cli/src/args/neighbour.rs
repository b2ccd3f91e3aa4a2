//! Arguments of `ospf`, `ldp`, `rsvp` and `bfd`.

use super::choices;
use super::commands::{count, without_zone};
use clap::{Args, ValueEnum};
use drophammer_model::quantity::parse_duration;
use drophammer_model::routes::Prefix;
use drophammer_port::auto::AUTO;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

/// The link to the neighbour, and the form of the output.
#[derive(Clone, Debug, Args)]
pub struct NeighbourLink {
    /// Interface that leads to the router
    pub interface: String,
    /// Address of the emulated router on the interface, with the length of its prefix
    #[arg(long, value_name = "A/LEN")]
    pub address: String,
    /// Address of the router under test on the link
    #[arg(long, value_name = "ADDRESS", value_parser = without_zone)]
    pub to: IpAddr,
    /// How long to stay up [default: until Ctrl-C]
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// VLAN tag of all frames
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u16).range(1..=4094))]
    pub vlan: Option<u16>,
    /// Backend that sends and receives; see `drophammer list backends`
    #[arg(long, value_name = "NAME", value_parser = choices(), default_value = AUTO.spec.name)]
    pub backend: String,
    /// Print one JSON object per line instead of a table
    #[arg(long)]
    pub json: bool,
}

/// An OSPFv2 adjacency.
#[derive(Clone, Debug, Args)]
pub struct OspfArgs {
    /// The link.
    #[command(flatten)]
    pub link: NeighbourLink,
    /// Router ID [default: the address]
    #[arg(long, value_name = "ADDRESS")]
    pub router_id: Option<Ipv4Addr>,
    /// Area of the link
    #[arg(long, value_name = "AREA", default_value = "0.0.0.0")]
    pub area: Ipv4Addr,
    /// Type of the network, as configured on the neighbour
    #[arg(long, value_enum, default_value_t = OspfNetwork::PointToPoint)]
    pub network: OspfNetwork,
    /// Routers of an emulated topology behind the tester, each with one stub network
    #[arg(long, value_name = "N", value_parser = count, default_value = "0", hide_default_value = true)]
    pub routers: u32,
    /// External routes to advertise (type 5)
    #[arg(long, value_name = "N", value_parser = count, default_value = "0", hide_default_value = true)]
    pub externals: u32,
    /// Time between two Hellos, as configured on the neighbour
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "10s")]
    pub hello: Duration,
    /// Time without a Hello after which the neighbour is down, as configured on the neighbour
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "40s")]
    pub dead: Duration,
    /// File with the key of MD5 authentication, 1 to 16 bytes on one line; its key ID is 1
    #[arg(long, value_name = "FILE")]
    pub md5_file: Option<PathBuf>,
}

/// Type of an OSPF network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OspfNetwork {
    /// Two routers without a designated router.
    PointToPoint,
    /// A LAN with a designated router.
    Broadcast,
}

/// An LDP session.
#[derive(Clone, Debug, Args)]
pub struct LdpArgs {
    /// The link.
    #[command(flatten)]
    pub link: NeighbourLink,
    /// LSR-ID [default: the address]
    #[arg(long, value_name = "ADDRESS")]
    pub lsr_id: Option<Ipv4Addr>,
    /// The tester's end of the session [default: the address]
    #[arg(long, value_name = "ADDRESS")]
    pub transport_address: Option<Ipv4Addr>,
    /// FECs to advertise a label for
    #[arg(long, value_name = "N", value_parser = count, default_value = "0", hide_default_value = true)]
    pub fecs: u32,
    /// First FEC; the others follow it
    #[arg(long, value_name = "PREFIX", default_value = "10.0.0.0/32")]
    pub first: Prefix,
    /// Label of the first FEC, the labels of the other FECs follow; or `implicit-null` or `explicit-null` for all FECs
    #[arg(long, value_name = "LABEL", default_value = "16")]
    pub labels: String,
}

/// LSPs of RSVP-TE.
#[derive(Clone, Debug, Args)]
pub struct RsvpArgs {
    /// The link.
    #[command(flatten)]
    pub link: NeighbourLink,
    /// LSPs to set up
    #[arg(long, value_name = "N", value_parser = count, default_value = "0", hide_default_value = true, requires = "endpoint")]
    pub lsps: u32,
    /// Address of the egress of the LSPs
    #[arg(long, value_name = "ADDRESS")]
    pub endpoint: Option<Ipv4Addr>,
    /// LSPs to set up per second [default: as fast as possible]
    #[arg(long, value_name = "N", value_parser = count, default_value = "0", hide_default_value = true)]
    pub rate: u32,
    /// Refresh period
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "30s")]
    pub refresh: Duration,
    /// Offer refresh reduction: MESSAGE_ID, bundles and summary refreshes (RFC 2961)
    #[arg(long)]
    pub refresh_reduction: bool,
    /// Send Hellos at this interval (RFC 3209 section 5) [default: answer only]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub hello: Option<Duration>,
}

/// A BFD session.
#[derive(Clone, Debug, Args)]
pub struct BfdArgs {
    /// The link.
    #[command(flatten)]
    pub link: NeighbourLink,
    /// Desired minimum transmit interval, and required minimum receive interval
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "300ms")]
    pub interval: Duration,
    /// Detection time multiplier
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..), default_value_t = 3)]
    pub multiplier: u8,
    /// Wait for the router's first packet
    #[arg(long)]
    pub passive: bool,
}
