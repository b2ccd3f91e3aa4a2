//! Arguments of `plan`, and of the commands that need no suite: `blast`, `listen`, `bgp`, `watch`.

use super::{AccessArgs, SuiteArgs, Words, choices, one_of};
use crate::blast::{MAX_FLOWS, MAX_SOURCES};
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use drophammer_lab::{KINDS, Language};
use drophammer_model::capabilities::Placement;
use drophammer_model::quantity::{parse_count, parse_duration, prefixed_number};
use drophammer_model::traffic::parse_dscp;
use drophammer_model::trial::Family;
use drophammer_port::af_packet;
use drophammer_port::auto::AUTO;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Traffic between two interfaces, or between two VLANs of one interface.
#[derive(Clone, Debug, Args)]
pub struct BlastArgs {
    /// Sending interface
    #[arg(required_unless_present = "dut")]
    pub from: Option<String>,
    /// Receiving interface; without it, frames go from the first VLAN of --vlan to the second one and back into the same interface
    pub to: Option<String>,
    /// Bring up a router of this kind in namespaces, as `run` does, and send through it; replaces the two interfaces
    #[arg(long, value_name = "KIND", value_parser = routers(), conflicts_with_all = ["from", "address", "gateway", "vlan", "mpls"])]
    pub dut: Option<String>,
    /// Rate of each sending interface: frames (`100kfps`, `100k`, `100000`), bits without preamble and gap (`950Mbit/s`, `1G`), or a share of the
    /// line (`50%`)
    #[arg(long, value_name = "RATE", default_value = "1kfps")]
    pub rate: String,
    /// Frame size with FCS, a mix of sizes (`imix`, `imix:58.33x64,33.33x570,8.33x1518`), or several sizes, sent one after the other, each for the
    /// time --for
    #[arg(long, value_name = "SIZE[,SIZE]", default_value = "64")]
    pub size: String,
    /// How long to send [default: until Ctrl-C]. The command then waits for missing frames, at most 1 s
    #[arg(long = "for", value_name = "DURATION")]
    pub duration: Option<String>,
    /// IP version of the frames [default: the version of --address, or ipv4]
    #[arg(long, value_name = "FAMILY", value_parser = one_of(FAMILIES))]
    pub family: Option<Family>,
    /// Raise the rate in steps of 1 s, starting with --rate, until frames are lost; print that rate and the one before
    #[arg(long, conflicts_with = "duration")]
    pub until_loss: bool,
    /// How much each step of --until-loss raises the rate
    #[arg(long, value_name = "SHARE", default_value = "10%", requires = "until_loss")]
    pub step: String,
    /// Also send from the second interface to the first, at the same rate
    #[arg(long)]
    pub bidirectional: bool,
    /// Flows in each direction, each with its own source port (ICMP: identifier); reordering is counted within a flow
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_FLOWS)))]
    pub flows: Option<u32>,
    /// Header of test frames after IP, by its name in suites
    #[arg(long, value_enum, value_name = "HEADER", default_value_t = Transport::Udp)]
    pub transport: Transport,
    /// Number of source addresses of each flow, from the host's address on
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MAX_SOURCES), default_value_t = 1)]
    pub sources: u32,
    /// Send frames with the headers and sizes in this capture (pcap or pcapng, also compressed with gzip), in the same proportions. Their addresses
    /// come from --address, and blast's own payload identifies them when they arrive
    #[arg(long, value_name = "FILE", conflicts_with_all = ["size", "flows", "transport", "vlan", "mpls", "dscp"])]
    pub pcap: Option<PathBuf>,
    /// VLAN tags of all frames, in addition to --size, the outer one first; they must arrive. With one interface: the VLANs of its two ends
    #[arg(long, value_name = "ID[,ID]", value_delimiter = ',', num_args = 1, value_parser = clap::value_parser!(u16).range(1..=4094))]
    pub vlan: Vec<u16>,
    /// MPLS labels of test frames, in addition to --size, the outermost first; they must arrive
    #[arg(long, value_name = "LABEL[,LABEL]", value_delimiter = ',', num_args = 1, value_parser = clap::value_parser!(u32).range(0..=0xf_ffff))]
    pub mpls: Vec<u32>,
    /// Differentiated services codepoint of test frames (RFC 2474), a number from 0 to 63 or a name (`ef`, `af41`, `cs6`); it must arrive
    #[arg(long, value_name = "DSCP", value_parser = parse_dscp)]
    pub dscp: Option<u8>,
    /// Address of the emulated host on each interface, with the length of its prefix
    #[arg(long, value_name = "A/LEN,B/LEN", value_delimiter = ',', num_args = 1)]
    pub address: Vec<String>,
    /// Address of the router on each interface; ARP or Neighbor Discovery finds its MAC address
    #[arg(long, value_name = "A,B", value_delimiter = ',', num_args = 1)]
    pub gateway: Vec<String>,
    /// Line speed, for rates in per cent, as in `10G` [default: reported by the interface]
    #[arg(long, value_name = "SPEED")]
    pub speed: Option<String>,
    /// Backend that sends and receives the frames; see `drophammer list backends`
    #[arg(long, value_name = "NAME", value_parser = choices(), default_value = AUTO.spec.name)]
    pub backend: String,
    /// Threads that send and receive: 2 gives each interface its own; more need --queues
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..), default_value_t = 1)]
    pub threads: u16,
    /// Queues of each interface; addresses and ports decide which queue receives a frame
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256), default_value_t = 1)]
    pub queues: u16,
    /// Print one JSON object per line instead of a table
    #[arg(long)]
    pub json: bool,
}

const FAMILIES: Words<Family> = &[("ipv4", Family::Ipv4, "IPv4"), ("ipv6", Family::Ipv6, "IPv6")];

/// The header after IP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Transport {
    /// UDP
    #[default]
    Udp,
    /// TCP segments without a connection
    Tcp,
    /// ICMP or ICMPv6 echo requests
    #[value(name = "icmp_echo")]
    IcmpEcho,
}

/// Frames that arrive at an interface.
#[derive(Debug, Args)]
pub struct ListenArgs {
    /// Interface
    pub interface: String,
    /// How long to listen [default: until Ctrl-C]
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Lines of the table at the end
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub top: usize,
    /// Backend that receives; see `drophammer list backends`
    #[arg(long, value_name = "NAME", value_parser = choices(), default_value = AUTO.spec.name)]
    pub backend: String,
    /// Print one JSON object per line instead of tables
    #[arg(long)]
    pub json: bool,
}

/// The API.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Address and port for clients; port 0 takes any free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8443")]
    pub listen: SocketAddr,
    /// Speak HTTP instead of HTTPS
    #[arg(long)]
    pub http: bool,
    /// Address and port for clients of gRPC; port 0 takes any free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:40051")]
    pub grpc: SocketAddr,
    /// gRPC over TLS, with a certificate like that of HTTPS [default: on, unless --grpc is on loopback]
    #[arg(long)]
    pub grpc_tls: bool,
    /// gRPC without TLS even if --grpc is not on loopback, as clients such as snappi expect by default
    #[arg(long, conflicts_with = "grpc_tls")]
    pub grpc_plaintext: bool,
    /// File with a token, on one line, which clients must send: `Authorization: Bearer TOKEN`, in gRPC as metadata. Only its owner may have access to
    /// the file
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Interface for a location, such as `localhost:5555=eth1`; may be repeated. Any other location is the name of an interface
    #[arg(long = "port", value_name = "LOCATION=INTERFACE", value_parser = location)]
    pub ports: Vec<(String, String)>,
    /// Stop all flows when no client has called for this time; 0 s to let them run
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "10 min")]
    pub idle_stop: Duration,
    /// Folder with the files that suites of clients may name: configurations, included files, tables [default: they may name none]
    #[arg(long, value_name = "DIR")]
    pub suites: Option<PathBuf>,
    /// Folder for the folders of clients' runs [default: drophammer-runs]
    #[arg(long, value_name = "DIR")]
    pub runs: Option<PathBuf>,
    /// Suites of clients may name any file and run commands as this user; only with --listen on loopback. Everybody with an account on this machine
    /// is then a client
    #[arg(long)]
    pub trust_suites: bool,
    /// Backend of the ports of this machine; see `drophammer list backends`
    #[arg(long, value_name = "NAME", value_parser = choices(), default_value = af_packet::BACKEND.spec.name)]
    pub backend: String,
    #[command(flatten)]
    pub hosts: AccessArgs,
    /// Traffic of agents stops if they hear nothing of this server for so long
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "2s", requires = "nats")]
    pub silence: Duration,
}

/// A BGP session.
#[derive(Debug, Args)]
pub struct BgpArgs {
    /// Interface that leads to the router
    pub interface: String,
    /// Address of the emulated router on the interface, with the length of its prefix; may be link-local (`fe80::2/64`)
    #[arg(long, value_name = "A/LEN")]
    pub address: String,
    /// Address of its peer; a link-local address is looked up on the interface
    #[arg(long, value_name = "ADDRESS", value_parser = without_zone)]
    pub to: IpAddr,
    /// Router on the link that leads to --to, if that is a loopback address or several hops away
    #[arg(long, value_name = "ADDRESS")]
    pub gateway: Option<IpAddr>,
    /// Address of the emulated router in the session, such as its loopback [default: --address]
    #[arg(long, value_name = "ADDRESS")]
    pub source: Option<IpAddr>,
    /// AS number of the emulated router
    #[arg(long = "as", value_name = "ASN", default_value_t = 65_001)]
    pub asn: u32,
    /// AS number of its peer
    #[arg(long, value_name = "ASN", default_value_t = 65_000)]
    pub peer_as: u32,
    /// Routes to advertise, of the family of the addresses [default: all of a file, none otherwise]
    #[arg(long, value_name = "N", value_parser = count)]
    pub routes: Option<u32>,
    /// Source of the routes: `internet`, `uniform`, or an MRT file (RFC 6396), also compressed with gzip, bzip2, xz or
    /// zstd
    #[arg(long, value_name = "SOURCE", default_value = "internet")]
    pub table: String,
    /// Advertise the routes in each of N VRFs, as VPNv4 or VPNv6 routes (RFC 4364, 4659): VRF n has the route distinguisher
    /// and route target AS:n, and the label 15 + n
    #[arg(long, value_name = "N", value_parser = count, default_value = "0", hide_default_value = true)]
    pub vpn: u32,
    /// Routes per second [default: as fast as the peer accepts them]
    #[arg(long, value_name = "N", value_parser = per_second)]
    pub rate: Option<f64>,
    /// Maximum number of routes in an UPDATE [default: as many as share their attributes and fit]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub routes_per_update: u16,
    /// How long to keep the session after the peer has acknowledged all routes [default: until Ctrl-C]
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Proposed hold time (RFC 4271 section 4.2)
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "90s")]
    pub hold: Duration,
    /// BGP identifier [default: the address, or 100.64.0.1 with IPv6]
    #[arg(long, value_name = "ADDRESS")]
    pub router_id: Option<Ipv4Addr>,
    /// Wait for the peer to connect
    #[arg(long)]
    pub passive: bool,
    /// File with the key of TCP MD5 (RFC 2385), on one line
    #[arg(long, value_name = "FILE")]
    pub md5_file: Option<PathBuf>,
    /// Send TTL 255, and drop segments with less (GTSM, RFC 5082)
    #[arg(long)]
    pub gtsm: bool,
    /// With --gtsm: maximum number of hops to the peer; accepts segments with a TTL of at least 256 minus N
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=254), default_value_t = 1, requires = "gtsm")]
    pub hops: u8,
    /// VLAN tag of all frames
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u16).range(1..=4094))]
    pub vlan: Option<u16>,
    /// Seed for the attributes of made-up routes [default: 2544, as in suites]
    #[arg(long)]
    pub seed: Option<u64>,
    /// Backend that sends and receives; see `drophammer list backends`
    #[arg(long, value_name = "NAME", value_parser = choices(), default_value = AUTO.spec.name)]
    pub backend: String,
    /// Print one JSON object per line instead of a table
    #[arg(long)]
    pub json: bool,
}

/// A plan.
#[derive(Debug, Args)]
pub struct PlanArgs {
    #[command(flatten)]
    pub suite: SuiteArgs,
    /// Print the configuration of the router instead, in this language
    #[arg(long, value_name = "LANGUAGE", value_parser = one_of(LANGUAGES))]
    pub config: Option<Language>,
    /// Interfaces of the router, in the order of the ports [default: FILL-IN-1, FILL-IN-2 and so on]
    #[arg(long, value_name = "A,B", value_delimiter = ',', requires = "config")]
    pub interfaces: Vec<String>,
}

#[rustfmt::skip]
const LANGUAGES: Words<Language> = &[
    ("frr", Language::Frr, "FRRouting"),
    ("bird", Language::Bird, "BIRD 2"),
    ("iosxr", Language::IosXr, "Cisco IOS XR; not loaded on a device"),
    ("junos", Language::Junos, "Juniper Junos; not loaded on a device"),
    ("sros", Language::SrOs, "Nokia SR OS; not loaded on a device"),
    ("linux", Language::Linux, "Commands of ip(8) and sysctl(8)"),
    ("vyos", Language::VyOs, "VyOS; not loaded on a device"),
    ("eos", Language::Eos, "Arista EOS; not loaded on a device"),
    ("ios-xe", Language::IosXe, "Cisco IOS XE; not loaded on a device"),
    ("routeros", Language::RouterOs, "MikroTik RouterOS 7; not loaded on a device"),
];

/// A run in another process.
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// Folder of the run
    #[arg(value_name = "DIR", default_value = "drophammer-runs/latest")]
    pub folder: PathBuf,
    /// How many earlier lines to print first
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub lines: usize,
}

/// Parses an address and ignores its zone (`fe80::1%eth1`), because the interface already determines it.
pub fn without_zone(text: &str) -> Result<IpAddr, String> {
    let address = text.split_once('%').map_or(text, |(address, _)| address);
    address.parse().map_err(|_| format!("`{text}` is not an address; write for instance `192.0.2.1` or `fe80::1`"))
}

/// Parses a location and its interface: `localhost:5555=eth1`.
fn location(text: &str) -> Result<(String, String), String> {
    let parts = text.rsplit_once('=').filter(|(location, interface)| !location.is_empty() && !interface.is_empty());
    let parts = parts.map(|(location, interface)| (location.to_owned(), interface.to_owned()));
    parts.ok_or_else(|| format!("`{text}` names no interface; write for instance `localhost:5555=eth1`"))
}

/// Parses a number of routes: `1000000`, `1M`.
pub fn count(text: &str) -> Result<u32, String> {
    let number = parse_count(text).map_err(|e| e.to_string())?;
    u32::try_from(number).map_err(|_| format!("{number} is not in 0..={}", u32::MAX))
}

/// Parses routes per second: `1000`, `1k`.
fn per_second(text: &str) -> Result<f64, String> {
    let bare = |c: char| c.is_ascii_digit() || ".,_kKmM".contains(c);
    let rate = prefixed_number(text).filter(|rate| *rate > 0.0 && text.chars().all(bare));
    rate.ok_or_else(|| format!("`{text}` is not a rate; write routes per second above 0, for instance `1000` or `1k`"))
}

/// Kinds of routers that can be brought up on this machine.
fn routers() -> PossibleValuesParser {
    let here = KINDS.iter().map(|kind| kind.spec()).filter(|spec| spec.capabilities.placement == Placement::Lab);
    here.map(|spec| spec.name).collect::<Vec<_>>().into()
}
