//! The job of `drophammer bgp`, from the command line.

use crate::args::BgpArgs;
use crate::{key_file, on_link};
use drophammer_model::quantity::{group_digits, show_duration};
use drophammer_model::routes::Packing;
use drophammer_model::suite::read::DEFAULT_SEED;
use drophammer_model::trial::Family;
use drophammer_rig::{Tag, Tags};
use drophammer_testbed::speaker::SpeakerConfig;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::Duration;

/// An example of the addresses.
const EXAMPLE: &str = "`--address 192.0.2.2/24 --to 192.0.2.1`";
/// EtherType of a VLAN tag (IEEE 802.1Q).
const VLAN: u16 = 0x8100;
/// BGP identifier of a router without an IPv4 address: of the block of shared addresses (RFC 6598), so no interface has it.
const IDENTIFIER: Ipv4Addr = Ipv4Addr::new(100, 64, 0, 1);
/// Longest hold time, a field of 16 bits (RFC 4271 section 4.2).
const LONGEST_HOLD: Duration = Duration::from_secs(65_535);
/// Longest key of TCP MD5 that Linux accepts.
const LONGEST_KEY: usize = 80;

/// The session, and what is advertised in it.
#[derive(Debug)]
pub struct Job {
    /// Interface.
    pub interface: String,
    /// The router.
    pub speaker: SpeakerConfig,
    /// `internet`, `uniform`, or the path of an MRT file.
    pub source: String,
    /// Number of its routes.
    pub routes: u32,
    /// How they are packed into messages.
    pub packing: Packing,
    /// How long the session is kept once everything is advertised; until Ctrl-C when absent.
    pub duration: Option<Duration>,
    /// Seed of random choices.
    pub seed: u64,
}

impl Job {
    /// Reads the command line.
    ///
    /// # Errors
    /// What is wrong with it, and what to write instead.
    pub fn read(args: &BgpArgs) -> Result<Job, String> {
        let bad = || format!("--address: `{}` is not an address with its prefix length; write {EXAMPLE}", args.address);
        let (address, prefix_len) = on_link::with_length(&args.address).ok_or_else(bad)?;
        let peer = args.to;
        [address, peer].into_iter().try_for_each(on_link::refuse_public)?;
        if address == peer {
            return Err(format!("{address} cannot be both ends of the session; write {EXAMPLE}"));
        }
        if !on_link::holds(address, prefix_len, peer) {
            return Err(format!("{peer} is not on the link of {address}/{prefix_len}; write {EXAMPLE}"));
        }
        for (name, asn) in [("as", args.asn), ("peer-as", args.peer_as)] {
            if asn == 0 {
                return Err(format!("--{name}: AS 0 is reserved (RFC 7607); write for instance 65001"));
            }
        }
        let hold = args.hold;
        if hold.subsec_nanos() > 0 || hold > LONGEST_HOLD || (1..3).contains(&hold.as_secs()) {
            return Err(format!(
                "--hold: {} is no hold time; write whole seconds from 3 to 65535, or 0s for a session that never expires",
                show_duration(hold)
            ));
        }
        let router_id = args.router_id.unwrap_or(match address {
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
            tags: tags.map_err(|e| format!("--vlan: {e}"))?,
            peer,
            asn: args.asn,
            peer_as: args.peer_as,
            router_id,
            hold,
            passive: args.passive,
            md5_key: args.md5_file.as_deref().map(key).transpose()?,
            gtsm: args.gtsm,
        };
        Ok(Job {
            interface: args.interface.clone(),
            speaker,
            source: args.table.clone(),
            routes: args.routes,
            packing: Packing { routes_per_update: args.routes_per_update, pace: args.rate, prepend: 0 },
            duration: args.duration,
            seed: args.seed.unwrap_or(DEFAULT_SEED),
        })
    }

    /// Family of the session and its routes.
    pub fn family(&self) -> Family {
        if self.speaker.address.is_ipv4() { Family::Ipv4 } else { Family::Ipv6 }
    }

    /// The job in words.
    pub fn headline(&self) -> String {
        let SpeakerConfig { address, asn, peer, peer_as, .. } = &self.speaker;
        let routes = match self.routes {
            0 => "no routes".to_owned(),
            n => format!("{} {} routes ({})", group_digits(u64::from(n)), self.family(), self.source),
        };
        let until = self.duration.map_or("until Ctrl-C".to_owned(), |time| format!("then for {}", show_duration(time)));
        format!("{}: BGP from {address} (AS {asn}) to {peer} (AS {peer_as}), {routes}, {until}", self.interface)
    }
}

/// The key in a file, without the end of its line.
fn key(path: &Path) -> Result<Vec<u8>, String> {
    let name = path.display();
    // It may be a pipe, as of `<(pass show bgp)` in a shell.
    let text = key_file::of_pipe(path).map_err(|e| format!("--md5-file: cannot read `{name}`: {e}"))?;
    let key = text.trim_end_matches(['\r', '\n']);
    if key.is_empty() || key.len() > LONGEST_KEY || key.contains('\n') {
        return Err(format!("--md5-file: `{name}` must be one line of 1 to {LONGEST_KEY} bytes"));
    }
    Ok(key.as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: BgpArgs,
    }

    fn read(line: &str) -> Result<Job, String> {
        let line =
            Line::try_parse_from(["bgp"].into_iter().chain(line.split_whitespace())).map_err(|e| e.to_string())?;
        Job::read(&line.args)
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_can() {
        for (line, word) in [
            ("a", "--address"),
            ("a --address 192.0.2.2 --to 192.0.2.1", "prefix length"),
            ("a --address 192.0.2.2/24 --to 198.18.0.1", "not on the link"),
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
        let job = read("eth1 --address 192.0.2.2/24 --to 192.0.2.1 --routes 1000000").unwrap();
        assert_eq!(
            job.headline(),
            "eth1: BGP from 192.0.2.2 (AS 65001) to 192.0.2.1 (AS 65000), 1,000,000 IPv4 routes (internet), until Ctrl-C"
        );
        assert_eq!(job.speaker.router_id, Ipv4Addr::new(192, 0, 2, 2));
        let job = read("eth1 --address 2001:db8::2/64 --to 2001:db8::1 --as 65000 --for 5s").unwrap();
        assert!(job.headline().ends_with("no routes, then for 5 s"), "{}", job.headline());
        assert_eq!((job.family(), job.speaker.router_id), (Family::Ipv6, IDENTIFIER));
    }
}
