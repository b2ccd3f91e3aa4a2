//! MRT files that BIRD, FRR and OpenBGPD wrote about routes from emulated routers (`cargo run -p drophammer-testbed
//! --example daemons` makes them). They must contain exactly the routes that were sent, with their attributes.

#[path = "../common/mrt_plan.rs"]
mod plan;

use drophammer_model::routes::{RouteAttributes, RouteTable, Routes};
use drophammer_model::trial::Family;
use drophammer_testbed::mrt::{LeftOut, PeerChoice, peers, read};
use std::path::{Path, PathBuf};

/// Name of the file; true if its routes have path identifiers (RFC 8050); LOCAL_PREF that the daemon has set on routes
/// of external peers.
const FILES: [(&str, bool, Option<u32>); 4] = [
    ("bird.mrt", false, Some(100)),
    ("bird-paths.mrt", true, Some(100)),
    ("frr.mrt.gz", false, None),
    ("openbgpd.mrt.bz2", false, Some(100)),
];

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mrt_recorded").join(name)
}

/// Checks that the table contains exactly the first `count` routes that were sent, with their attributes.
fn same(table: RouteTable, sent: &Routes, count: u32, local_pref: Option<u32>, what: &str) {
    let table = Routes::from(table);
    assert_eq!(table.len(), count, "{what}");
    for i in 0..count {
        let prefix = sent.prefix(i);
        let found = table.index_of(&prefix).unwrap_or_else(|| panic!("{what}: {prefix} is not there"));
        let of = |routes: &Routes, i| routes.attributes(routes.group_of(i));
        let wanted = RouteAttributes { local_pref, ..of(sent, i) };
        assert_eq!(of(&table, found), wanted, "{what}: {prefix}");
    }
}

#[test]
fn every_route_that_was_sent_is_read_with_its_attributes() {
    for (name, _, local_pref) in FILES {
        let path = file(name);
        for family in [Family::Ipv4, Family::Ipv6] {
            let sent = plan::routes(family);
            let (first, left_out) = read(&path, family, PeerChoice::MostRoutes).unwrap();
            assert_eq!(left_out, LeftOut::default(), "{name}");
            assert!(first.name().contains(&format!("{name}, AS 65001 (")), "{}", first.name());
            same(first, &sent, sent.len(), local_pref, &format!("{name}, {family}"));
        }
        let (second, _) = read(&path, Family::Ipv4, PeerChoice::As(plan::ROUTERS[1])).unwrap();
        same(second, &plan::routes(Family::Ipv4), plan::SECOND, local_pref, &format!("{name}, the second router"));
        assert!(read(&path, Family::Ipv6, PeerChoice::As(plan::ROUTERS[1])).is_err());
    }
}

#[test]
fn the_peers_are_the_sessions() {
    for (name, ..) in FILES {
        let all = peers(&file(name)).unwrap();
        let mut told: Vec<_> = all.iter().filter(|p| p.routes != [0, 0]).collect();
        told.sort_by_key(|p| p.address);
        let of: Vec<_> = told.iter().map(|p| (p.asn, p.address.to_string())).collect();
        let wanted = [(65001, "198.18.1.2"), (4_200_000_002, "198.19.1.2"), (65001, "2001:2:0:1::2")];
        assert_eq!(of, wanted.map(|(asn, address)| (asn, address.to_owned())), "{name}");
        // BIRD appends dumps, and each dump counts.
        let routes: Vec<_> = told.iter().map(|p| p.routes).collect();
        let dumps = routes[0][0] / 300;
        assert_eq!(routes, [[300, 0], [plan::SECOND, 0], [0, 150]].map(|r| r.map(|n| n * dumps)), "{name}");
        // There is at most one peer without routes, for the daemon's own routes.
        assert!(all.len() - told.len() <= 1, "{name}: {all:?}");
    }
}

/// Checks the types of records in the bytes: the contents of the files must match their names.
#[test]
fn the_files_are_what_they_are_called() {
    use std::io::Read;
    for (name, paths, _) in FILES {
        let bytes = std::fs::read(file(name)).unwrap();
        let mut whole = Vec::new();
        match &bytes[..2] {
            [0x1f, 0x8b] => _ = flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut whole).unwrap(),
            b"BZ" => _ = bzip2::read::BzDecoder::new(&bytes[..]).read_to_end(&mut whole).unwrap(),
            _ => whole = bytes.clone(),
        }
        assert_eq!(whole == bytes, name.ends_with(".mrt"), "{name}");
        let (mut rest, mut subtypes) = (&whole[..], std::collections::BTreeSet::new());
        while let Some((head, after)) = rest.split_first_chunk::<12>() {
            subtypes.insert((head[5], head[7]));
            rest = &after[u32::from_be_bytes([head[8], head[9], head[10], head[11]]) as usize..];
        }
        let wanted = if paths { [(13, 1), (13, 8), (13, 10)] } else { [(13, 1), (13, 2), (13, 4)] };
        assert!(subtypes.iter().eq(&wanted), "{name}: {subtypes:?}");
    }
}
