//! The job of `drophammer bgp`, from the command line.

use crate::args::BgpArgs;
use crate::{key_file, on_link};
use drophammer_model::quantity::{group_digits, show_duration};
use drophammer_model::routes::{AfiSafi, Packing, Routes};
use drophammer_model::suite::DEFAULT_SEED;
use drophammer_model::trial::Family;
use drophammer_rig::{Tag, Tags};
use drophammer_testbed::speaker::{SpeakerConfig, Table, table};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

/// An example of the addresses.
const EXAMPLE: &str = "`--address 192.0.2.2/24 --to 192.0.2.1`";
/// An example of a session that passes through a router.
const FAR: &str = "`--address 192.0.2.2/24 --gateway 192.0.2.1 --source 10.0.0.2 --to 10.0.0.1`";
/// EtherType of a VLAN tag (IEEE 802.1Q).
const VLAN: u16 = 0x8100;
/// BGP identifier of a router without an IPv4 address. It is a shared address (RFC 6598), because no interface has such
/// an address.
const IDENTIFIER: Ipv4Addr = Ipv4Addr::new(100, 64, 0, 1);
/// Longest hold time, a field of 16 bits (RFC 4271 section 4.2).
const LONGEST_HOLD: Duration = Duration::from_secs(65_535);
/// Longest key of TCP MD5 that Linux accepts.
const LONGEST_KEY: usize = 80;

/// The session, and the routes that are advertised in it.
#[derive(Debug)]
pub struct Job {
    pub interface: String,
    pub speaker: SpeakerConfig,
    /// `internet`, `uniform`, or the path of an MRT file.
    pub source: String,
    /// Number of routes to advertise; `None` for all routes of a file, or for no made-up routes.
    pub routes: Option<u32>,
    /// VRFs that each have these routes; 0 for unicast routes.
    pub vrfs: u32,
    /// How routes are packed into messages.
    pub packing: Packing,
    /// How long to keep the session after all routes were acknowledged; `None` for until Ctrl-C.
    pub duration: Option<Duration>,
    /// Seed of random choices.
    pub seed: u64,
}

impl Job {
    /// Reads the command line. Errors say what is wrong, and what to write instead.
    pub fn read(args: &BgpArgs) -> Result<Job, String> {
        let bad = || format!("--address: `{}` is not an address with its prefix length; write {EXAMPLE}", args.address);
        let (address, prefix_len) = on_link::with_length(&args.address).ok_or_else(bad)?;
        let (peer, source) = (args.to, args.source.unwrap_or(address));
        let gateway = args.gateway.unwrap_or(peer);
        [address, source, gateway, peer].into_iter().try_for_each(on_link::refuse_public)?;
        if source == peer || address == gateway {
            return Err(format!("{address} cannot be both ends of the session; write {EXAMPLE}"));
        }
        if !on_link::holds(address, prefix_len, gateway) {
            let help = match args.gateway {
                Some(_) => format!("name a router on that link as --gateway, as in {FAR}"),
                None => format!("write {EXAMPLE}, or for a peer behind a router {FAR}"),
            };
            return Err(format!("{gateway} is not on the link of {address}/{prefix_len}; {help}"));
        }
        if source.is_ipv4() != address.is_ipv4() || source.is_ipv4() != peer.is_ipv4() {
            return Err(format!("{source}, {peer} and {address} must have one IP version; write {FAR}"));
        }
        // A link-local address means nothing on another link.
        let local = |address: IpAddr| matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
        if local(source) != local(peer) || (local(peer) && gateway != peer) {
            return Err(format!(
                "a session between {source} and {peer} has one link-local end, or passes a router; write two link-local addresses on \
                 one link, as in `--address fe80::2/64 --to fe80::1`, or none"
            ));
        }
        for (name, asn) in [("as", args.asn), ("peer-as", args.peer_as)] {
            if asn == 0 {
                return Err(format!("--{name}: AS 0 is reserved (RFC 7607); write for instance 65001"));
            }
        }
        let hold = args.hold;
        if hold.subsec_nanos() > 0 || hold > LONGEST_HOLD || (1..3).contains(&hold.as_secs()) {
            return Err(format!(
                "--hold: {} is not a hold time; write whole seconds from 3 to 65535, or 0s for a session that never expires",
                show_duration(hold)
            ));
        }
        let router_id = args.router_id.unwrap_or(match source {
            IpAddr::V4(address) => address,
            IpAddr::V6(_) => IDENTIFIER,
        });
        if router_id.is_unspecified() {
            return Err("--router-id: 0.0.0.0 is not a BGP identifier (RFC 6286); write for instance 192.0.2.2".into());
        }
        if args.rate.is_some_and(|rate| !(rate.is_finite() && rate > 0.0)) {
            return Err("--rate: write how many routes per second, for instance 10000".into());
        }
        let tags = args.vlan.map_or(Ok(Tags::NONE), |vid| Tags::new(&[Tag { tpid: VLAN, vid }]));
        let speaker = SpeakerConfig {
            address,
            prefix_len,
            gateway,
            source,
            tags: tags.map_err(|e| format!("--vlan: {e}"))?,
            peer,
            family: match (args.vpn, address) {
                (0, IpAddr::V4(_)) => AfiSafi::IPV4_UNICAST,
                (0, IpAddr::V6(_)) => AfiSafi::IPV6_UNICAST,
                (_, IpAddr::V4(_)) => AfiSafi::VPNV4,
                (_, IpAddr::V6(_)) => AfiSafi::VPNV6,
            },
            asn: args.asn,
            peer_as: args.peer_as,
            router_id,
            hold,
            passive: args.passive,
            md5_key: args
                .md5_file
                .as_deref()
                .map(|path| key_file::one_line("--md5-file", path, LONGEST_KEY))
                .transpose()?,
            gtsm_hops: args.gtsm.then_some(args.hops),
        };
        Ok(Job {
            interface: args.interface.clone(),
            speaker,
            source: args.table.clone(),
            routes: args.routes,
            vrfs: args.vpn,
            packing: Packing { routes_per_update: args.routes_per_update, pace: args.rate, prepend: 0 },
            duration: args.duration,
            seed: args.seed.unwrap_or(DEFAULT_SEED),
        })
    }

    /// Family of the session and its routes.
    pub fn family(&self) -> Family {
        if self.speaker.address.is_ipv4() { Family::Ipv4 } else { Family::Ipv6 }
    }

    /// The routes to advertise, if there are any. Fails if the table has fewer routes, or its file cannot be read.
    pub fn table(&self) -> Result<Option<Table>, String> {
        let made_up = ["internet", "uniform"].contains(&self.source.as_str());
        if self.routes == Some(0) || self.routes.is_none() && made_up {
            return Ok(None);
        }
        let routes = table(&self.source, AfiSafi::unicast(self.family()), self.routes, self.seed)?;
        Ok(Some(match self.vrfs {
            0 => Table::Unicast(Arc::new(routes)),
            vrfs => Table::vpn(routes, vrfs, self.speaker.asn).map_err(|e| format!("--vpn: {e}"))?,
        }))
    }

    /// Describes the job in words.
    pub fn headline(&self, table: Option<&Table>) -> String {
        let SpeakerConfig { source: address, asn, peer, peer_as, gateway, .. } = &self.speaker;
        let routes = match table.map(Table::prefixes) {
            None => "no routes".to_owned(),
            Some(routes) => {
                let name = match routes {
                    Routes::Range(_) => &self.source,
                    Routes::Table(table) => table.name(),
                };
                let each = format!("{} {} routes", group_digits(u64::from(routes.len())), self.family());
                match self.vrfs {
                    0 => format!("{each} ({name})"),
                    vrfs => format!("{} VRFs with {each} each ({name})", group_digits(vrfs.into())),
                }
            }
        };
        let peer = if gateway == peer { peer.to_string() } else { format!("{peer} by {gateway}") };
        let until = self.duration.map_or("until Ctrl-C".to_owned(), |time| format!("then for {}", show_duration(time)));
        format!("{}: BGP from {address} (AS {asn}) to {peer} (AS {peer_as}), {routes}, {until}", self.interface)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::parsed;

    fn read(line: &str) -> Result<Job, String> {
        Job::read(&parsed(line)?)
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_can() {
        for (line, word) in [
            ("a", "--address"),
            ("a --address 192.0.2.2 --to 192.0.2.1", "prefix length"),
            ("a --address 192.0.2.2/24 --to 198.18.0.1", "not on the link of 192.0.2.2/24; write `--address"),
            ("a --address 192.0.2.2/24 --to 10.0.0.1 --gateway 198.18.0.1", "name a router on that link as --gateway"),
            ("a --address 192.0.2.2/24 --to 10.0.0.1 --gateway 192.0.2.1 --source 2001:db8::1", "one IP version"),
            ("a --address fe80::2/64 --to fe80::1 --source 2001:db8::1", "one link-local end"),
            ("a --address fe80::2/64 --to fe80::1 --gateway fe80::3", "passes a router"),
            ("a --address 192.0.2.2/24 --to 192.0.2.1 --hops 3", "--gtsm"),
            ("a --address 192.0.2.2/24 --to 192.0.2.1 --routes x", "`x` is not a whole number"),
            ("a --address 192.0.2.2/24 --to fe80::x", "is not an address; write"),
            ("a --address 192.0.2.2/24 --to 192.0.2.2", "both ends"),
            ("a --address 8.8.8.8/24 --to 8.8.8.1", "RFC 6815"),
            ("a --address 192.0.2.2/24 --to 2001:db8::1", "not on the link"),
            ("a --address 192.0.2.2/24 --to 192.0.2.1 --as 0", "AS 0"),
            ("a --address 192.0.2.2/24 --to 192.0.2.1 --hold 2s", "from 3 to 65535"),
            ("a --address 192.0.2.2/24 --to 192.0.2.1 --rate 0", "routes per second"),
            ("a --address 192.0.2.2/24 --to 192.0.2.1 --vlan 4095", "4094"),
            ("a --address 192.0.2.2/24 --to 192.0.2.1 --md5-file /nowhere", "cannot read"),
            ("a --address 192.0.2.2/24 --to 192.0.2.1 --md5-file /dev/zero", "one line of 1 to 80 bytes"),
        ] {
            let error = read(line).expect_err(line);
            assert!(error.contains(word), "{line}: {error}");
        }
    }

    #[test]
    fn the_headline_says_who_tells_whom_what() {
        let job = read("eth1 --address 192.0.2.2/24 --to 192.0.2.1 --routes 1M").unwrap();
        let routes = job.table().unwrap();
        assert_eq!(
            job.headline(routes.as_ref()),
            "eth1: BGP from 192.0.2.2 (AS 65001) to 192.0.2.1 (AS 65000), 1,000,000 IPv4 routes (internet), until Ctrl-C"
        );
        assert_eq!(job.speaker.router_id, Ipv4Addr::new(192, 0, 2, 2));
        let job = read("eth1 --address 2001:db8::2/64 --to 2001:db8::1 --as 65000 --for 5s").unwrap();
        let headline = job.headline(job.table().unwrap().as_ref());
        assert!(headline.ends_with("no routes, then for 5 s"), "{headline}");
        assert_eq!((job.family(), job.speaker.router_id), (Family::Ipv6, IDENTIFIER));
        let far =
            read("eth1 --address 192.0.2.2/31 --gateway 192.0.2.3 --source 10.0.0.2 --to 10.0.0.1 --gtsm --hops 3")
                .unwrap();
        assert_eq!((far.speaker.router_id, far.speaker.gtsm_hops), (Ipv4Addr::new(10, 0, 0, 2), Some(3)));
        let ends = "BGP from 10.0.0.2 (AS 65001) to 10.0.0.1 by 192.0.2.3 (AS 65000)";
        assert!(far.headline(None).contains(ends), "{}", far.headline(None));
        assert_eq!(
            read("eth1 --address fe80::2/64 --to fe80::1%eth1").unwrap().speaker.peer,
            "fe80::1".parse::<IpAddr>().unwrap()
        );
    }
}
