//! Routing tables from MRT files that the test writes byte by byte (RFC 6396 section 4.3): the tables that result from
//! them, and the errors for damaged files.

use drophammer_model::routes::{Origin, Prefix, RouteAttributes, RouteTable, Routes};
use drophammer_model::trial::Family;
use drophammer_testbed::mrt::{self, MrtError, PeerChoice, peers};
use proptest::prelude::*;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

/// Reads only the table.
fn read(path: &Path, family: Family, choice: PeerChoice) -> Result<RouteTable, MrtError> {
    mrt::read(path, family, choice).map(|(table, _)| table)
}

fn record(kind: u16, subtype: u16, body: &[u8]) -> Vec<u8> {
    let mut r = 1_700_000_000u32.to_be_bytes().to_vec();
    r.extend(kind.to_be_bytes());
    r.extend(subtype.to_be_bytes());
    r.extend((body.len() as u32).to_be_bytes());
    r.extend(body);
    r
}

/// Peers 0 (AS 64500), 1 (AS 4200000001, IPv6 address), 2 (AS 64500 again, with a 2-octet AS).
fn peer_table() -> Vec<u8> {
    let mut b = vec![192, 0, 2, 255, 0, 4];
    b.extend(b"view");
    b.extend([0, 3]);
    b.extend([2, 192, 0, 2, 1, 192, 0, 2, 1, 0, 0, 0xfb, 0xf4]);
    b.extend([3, 192, 0, 2, 2]);
    b.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    b.extend(4_200_000_001u32.to_be_bytes());
    b.extend([0, 192, 0, 2, 3, 192, 0, 2, 3, 0xfb, 0xf4]);
    record(13, 1, &b)
}

fn attribute(flags: u8, kind: u8, value: &[u8]) -> Vec<u8> {
    [&[flags, kind, value.len() as u8], value].concat()
}

/// The attributes ORIGIN, AS_PATH with one sequence, and NEXT_HOP.
fn plain(path: &[u32]) -> Vec<u8> {
    let mut segment = vec![2, path.len() as u8];
    path.iter().for_each(|a| segment.extend(a.to_be_bytes()));
    [attribute(0x40, 1, &[0]), attribute(0x40, 2, &segment), attribute(0x40, 3, &[192, 0, 2, 1])].concat()
}

fn entry(peer: u16, path_id: Option<u32>, attributes: &[u8]) -> Vec<u8> {
    let mut e = peer.to_be_bytes().to_vec();
    e.extend([0; 4]);
    path_id.iter().for_each(|id| e.extend(id.to_be_bytes()));
    e.extend((attributes.len() as u16).to_be_bytes());
    e.extend(attributes);
    e
}

/// A RIB record. `prefix` is the prefix length and the bytes of the prefix.
fn rib(subtype: u16, prefix: &[u8], entries: &[Vec<u8>]) -> Vec<u8> {
    let body = [&[0, 0, 0, 7], prefix, &(entries.len() as u16).to_be_bytes(), &entries.concat()].concat();
    record(13, subtype, &body)
}

/// A file with three IPv4 routes of peer 0, two of peer 1 and one of peer 2; an IPv6 route of peer 1; a multicast
/// route; and a message.
fn file() -> Vec<u8> {
    let rich = [
        attribute(0x40, 1, &[2]),
        // A path of a sequence, a set, and a sequence.
        attribute(
            0x40,
            2,
            &[2, 2, 0, 0, 0xfb, 0xf4, 0, 0, 0, 10, 1, 1, 0, 0, 0, 99, 2, 2, 0xfa, 0x56, 0xea, 0, 0, 0, 0, 11],
        ),
        attribute(0x40, 3, &[192, 0, 2, 1]),
        attribute(0x80, 4, &[0, 0, 0, 50]),
        attribute(0x40, 5, &[0, 0, 0, 200]),
        attribute(0xc0, 8, &[0xfb, 0xf4, 0, 2, 0xff, 0xff, 0xff, 1, 0xfb, 0xf4, 0, 1]),
        attribute(0xc0, 32, &[0, 0, 0xfb, 0xf4, 0, 0, 0, 1, 0, 0, 0, 2]),
        // Two unknown optional attributes: one is transitive, the other is not.
        attribute(0xc0, 222, &[1, 2, 3]),
        attribute(0x80, 221, &[4]),
        attribute(0x40, 6, &[]),
        attribute(0xc0, 7, &[0, 1, 0x11, 0x70, 192, 0, 2, 9]),
        // Two extended communities: a route target, and one that must not leave its AS.
        attribute(0xc0, 16, &[0, 2, 0, 1, 0, 0, 0, 5, 0x40, 4, 0, 1, 0, 0, 0, 6]),
        attribute(0xc0, 25, &[7; 20]),
    ]
    .concat();
    // MP_REACH_NLRI as in a RIB: only the length and the next hop (RFC 6396 section 4.3.4).
    let mut reach = vec![16, 0x20, 1, 0xd, 0xb8];
    reach.extend([0; 12]);
    let v6 =
        [attribute(0x40, 1, &[0]), plain(&[4_200_000_001, 12])[4..].to_vec(), attribute(0x80, 14, &reach)].concat();
    [
        peer_table(),
        rib(2, &[8, 20], &[entry(0, None, &plain(&[64500, 10])), entry(1, None, &plain(&[4_200_000_001, 10]))]),
        // The bits beyond the prefix length are not zero.
        rib(2, &[20, 20, 1, 0xff], &[entry(0, None, &rich)]),
        rib(3, &[8, 232], &[entry(0, None, &plain(&[64500]))]),
        rib(2, &[24, 20, 2, 3], &[entry(2, None, &plain(&[64500, 9])), entry(0, None, &plain(&[64500, 10]))]),
        rib(2, &[0], &[entry(1, None, &plain(&[4_200_000_001]))]),
        rib(4, &[32, 0x2a, 0, 0, 1], &[entry(1, None, &v6)]),
        record(16, 4, &[1, 2, 3]),
    ]
    .concat()
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

fn bzip2(bytes: &[u8]) -> Vec<u8> {
    let mut out = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::best());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

fn prefixes(table: &RouteTable) -> Vec<String> {
    (0..table.len()).map(|i| table.prefix(i).to_string()).collect()
}

#[test]
fn the_peer_with_most_routes_gives_the_table() {
    let folder = Folder::new();
    let path = folder.file("rib.mrt", &file());
    let counts: Vec<_> = peers(&path).unwrap().iter().map(|p| (p.index, p.asn, p.routes)).collect();
    assert_eq!(counts, [(0, 64500, [3, 0]), (1, 4_200_000_001, [2, 1]), (2, 64500, [1, 0])]);
    let table = read(&path, Family::Ipv4, PeerChoice::MostRoutes).unwrap();
    assert_eq!(table.name(), "rib.mrt, AS 64500 (192.0.2.1)");
    // The two routes with the same attributes form one group.
    assert_eq!(prefixes(&table), ["20.0.0.0/8", "20.2.3.0/24", "20.1.240.0/20"]);
    let routes = Routes::from(table);
    assert_eq!((routes.groups(), routes.group_of(1), routes.group_of(2)), (2, 0, 1));
    assert_eq!(routes.attributes(0), RouteAttributes { as_path: vec![10], ..Default::default() });
    let rich = RouteAttributes {
        origin: Origin::Incomplete,
        as_path: vec![10, 4_200_000_000, 11],
        path: None,
        med: Some(50),
        local_pref: Some(200),
        communities: vec![0xfbf4_0001, 0xfbf4_0002, 0xffff_ff01],
        large_communities: vec![[64500, 1, 2]],
        next_hop: None,
        atomic_aggregate: true,
        aggregator: Some((70_000, Ipv4Addr::new(192, 0, 2, 9))),
        extended_communities: vec![[0, 2, 0, 1, 0, 0, 0, 5]],
        // RFC 4271 section 9: the unknown attribute is marked as partial.
        others: [attribute(0xc0, 25, &[7; 20]), attribute(0xe0, 222, &[1, 2, 3])].concat(),
    };
    assert_eq!(routes.attributes(1), rich);
}

#[test]
fn a_peer_can_be_named_and_families_are_apart() {
    let folder = Folder::new();
    let path = folder.file("rib.mrt", &file());
    let table = |family, choice| read(&path, family, choice).map(|t| prefixes(&t)).map_err(|e| e.to_string());
    assert_eq!(table(Family::Ipv4, PeerChoice::Index(1)).unwrap(), ["20.0.0.0/8", "0.0.0.0/0"]);
    assert_eq!(table(Family::Ipv4, PeerChoice::As(64500)).unwrap().len(), 3, "of two the one with more routes");
    assert_eq!(table(Family::Ipv4, PeerChoice::Index(2)).unwrap(), ["20.2.3.0/24"]);
    assert_eq!(table(Family::Ipv6, PeerChoice::MostRoutes).unwrap(), ["2a00:1::/32"]);
    let v6 = Routes::from(read(&path, Family::Ipv6, PeerChoice::As(4_200_000_001)).unwrap());
    assert_eq!(v6.attributes(0), RouteAttributes { as_path: vec![12], ..Default::default() });
    let at = path.display();
    let none = table(Family::Ipv4, PeerChoice::As(1)).unwrap_err();
    assert_eq!(none, format!("{at}: there is no peer in AS 1 among its 3 peers (indices 0 to 2)"));
    let none = table(Family::Ipv6, PeerChoice::Index(0)).unwrap_err();
    assert_eq!(none, format!("{at}: peer 0 has no routes of IPv6"));
}

#[test]
fn compressed_files_are_known_by_their_contents() {
    let folder = Folder::new();
    let plain = read(&folder.file("rib", &file()), Family::Ipv4, PeerChoice::MostRoutes).unwrap();
    // Two streams in sequence form one file.
    let whole = file();
    let (a, b) = whole.split_at(100);
    for (packed, name) in [(gzip as fn(&[u8]) -> Vec<u8>, "a.gz"), (bzip2, "b.bz2")] {
        for bytes in [packed(&whole), [packed(a), packed(b)].concat()] {
            let table = read(&folder.file(name, &bytes), Family::Ipv4, PeerChoice::MostRoutes).unwrap();
            assert_eq!(prefixes(&table), prefixes(&plain));
        }
        let packed = packed(&whole);
        let cut = folder.file(name, &packed[..packed.len() / 2]);
        let error = peers(&cut).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("is cut off"), "{error}");
    }
}

#[test]
fn of_several_paths_of_a_peer_the_first_counts() {
    let folder = Folder::new();
    let routes = [entry(0, Some(1), &plain(&[64500, 1])), entry(0, Some(2), &plain(&[64500, 2]))];
    let path = folder.file("paths", &[peer_table(), rib(8, &[8, 20], &routes)].concat());
    assert_eq!(peers(&path).unwrap()[0].routes, [2, 0]);
    let table = Routes::from(read(&path, Family::Ipv4, PeerChoice::Index(0)).unwrap());
    assert_eq!((table.len(), table.attributes(0).as_path), (1, vec![1]));
}

/// A second dump after the first, as BIRD appends them. Its peers have other indices; equal peers count as one.
#[test]
fn dumps_may_stand_one_behind_the_other() {
    let folder = Folder::new();
    let peer = |id: u8, asn: u32| [&[2, 192, 0, 2, id, 192, 0, 2, id][..], &asn.to_be_bytes()].concat();
    let table = |peers: &[Vec<u8>]| {
        let count = (peers.len() as u16).to_be_bytes();
        record(13, 1, &[&[192, 0, 2, 255, 0, 0][..], &count, &peers.concat()].concat())
    };
    let bytes = [
        table(&[peer(1, 64500), peer(2, 64501), peer(2, 64501)]),
        rib(2, &[8, 20], &[entry(0, None, &plain(&[64500, 1])), entry(1, None, &plain(&[64501, 1]))]),
        rib(2, &[8, 21], &[entry(0, None, &plain(&[64500, 1])), entry(2, None, &plain(&[64501, 1]))]),
        table(&[peer(9, 64509), peer(2, 64501), peer(1, 64500)]),
        rib(2, &[8, 20], &[entry(2, None, &plain(&[64500, 7]))]),
        rib(2, &[8, 22], &[entry(2, None, &plain(&[64500, 1])), entry(0, None, &plain(&[64509, 1]))]),
        rib(4, &[32, 0x2a, 0, 0, 1], &[entry(1, None, &plain(&[64501, 3]))]),
    ];
    let path = folder.file("appended", &bytes.concat());
    let counts: Vec<_> = peers(&path).unwrap().iter().map(|p| (p.index, p.asn, p.routes)).collect();
    assert_eq!(counts, [(0, 64500, [4, 0]), (1, 64501, [1, 1]), (2, 64501, [1, 0]), (0, 64509, [1, 0])]);
    let routes = Routes::from(read(&path, Family::Ipv4, PeerChoice::MostRoutes).unwrap());
    let told =
        |prefix: &str| routes.index_of(&prefix.parse().unwrap()).map(|i| routes.attributes(routes.group_of(i)).as_path);
    assert_eq!(
        (routes.len(), told("20.0.0.0/8"), told("22.0.0.0/8")),
        (3, Some(vec![7]), Some(vec![1])),
        "the later dump"
    );
    assert_eq!(prefixes(&read(&path, Family::Ipv6, PeerChoice::As(64501)).unwrap()), ["2a00:1::/32"]);
    assert_eq!(prefixes(&read(&path, Family::Ipv4, PeerChoice::As(64509)).unwrap()), ["22.0.0.0/8"]);
}

#[test]
fn what_is_wrong_with_a_file_is_told_with_its_name_and_place() {
    let folder = Folder::new();
    let say = |bytes: &[u8]| {
        let path = folder.file("bad", bytes);
        let error = read(&path, Family::Ipv4, PeerChoice::MostRoutes).unwrap_err().to_string();
        error.strip_prefix(&format!("{}: ", path.display())).unwrap_or_else(|| panic!("{error}")).to_owned()
    };
    let (table, good) = (peer_table(), entry(0, None, &plain(&[64500, 10])));
    assert_eq!(say(&[]), "is empty");
    assert!(say(&record(16, 4, &[0; 20])).starts_with("contains BGP messages (type BGP4MP) and no RIB"));
    assert!(say(&record(12, 1, &[0; 20])).contains("old format TABLE_DUMP;"));
    assert_eq!(say(&record(99, 1, &[])), "contains no RIB of TABLE_DUMP_V2; its first record has type 99");
    assert!(
        say(b"<html>this is not a routing table</html>").contains("is not an MRT file; take a RIB in TABLE_DUMP_V2")
    );
    let whole = file();
    assert_eq!(
        say(&whole[..table.len() + 5]),
        format!("record 2 is cut off: the contents end at byte {}; download the file again", table.len() + 5)
    );
    assert!(say(&whole[..table.len() + 30]).starts_with("record 2 is cut off"));
    let with = |bytes: Vec<u8>| say(&[table.clone(), bytes].concat());
    assert_eq!(
        with(rib(2, &[33, 1, 2, 3, 4, 5], std::slice::from_ref(&good))),
        "record 2 has a prefix of 33 bits in IPv4"
    );
    let mut short = rib(2, &[8, 20], std::slice::from_ref(&good));
    short.truncate(short.len() - 1);
    short[11] -= 1;
    assert_eq!(with(short), "record 2 ends within route 1 of 1");
    let mut long = rib(2, &[8, 20], std::slice::from_ref(&good));
    long.push(0);
    long[11] += 1;
    assert_eq!(with(long), "record 2 has 1 bytes after its 1 routes");
    assert!(
        with(rib(2, &[8, 20], &[entry(7, None, &plain(&[1]))]))
            .contains("route of peer 7, whom no peer index table names")
    );
    assert!(say(&rib(2, &[8, 20], &[good])).contains("whom no peer index table names"));
    let no_path = with(rib(2, &[8, 20], &[entry(0, None, &attribute(0x40, 1, &[0]))]));
    assert_eq!(no_path, "record 2 route 20.0.0.0/8: it has no readable AS_PATH");
    let absent = read(&folder.0.path().join("absent"), Family::Ipv4, PeerChoice::MostRoutes).unwrap_err().to_string();
    assert!(absent.contains("absent: cannot be read: "), "{absent}");
}

#[test]
fn bad_entries_are_left_out_and_counted() {
    let folder = Folder::new();
    let good = |n: u8| rib(2, &[24, 20, 2, n], &[entry(0, None, &plain(&[64500, 10]))]);
    let mut bytes = peer_table();
    (0..100).for_each(|n| bytes.extend(good(n)));
    bytes.extend(rib(2, &[8, 21], &[entry(7, None, &plain(&[1])), entry(0, None, &attribute(0x40, 1, &[0]))]));
    bytes.extend(rib(2, &[33, 1, 2, 3, 4, 5], &[]));
    let path = folder.file("rib", &bytes);
    let (table, left_out) = mrt::read(&path, Family::Ipv4, PeerChoice::MostRoutes).unwrap();
    assert_eq!((table.len(), left_out.routes, left_out.records), (100, 2, 1));
    let words = left_out.words();
    assert_eq!(words[..2], ["routes that cannot be read, left out: 2", "records that cannot be read, left out: 1"]);
    assert!(words[2].contains("record 102 has a route of peer 7, whom no peer index table names"), "{words:?}");
    // Elements that are removed from a path are also counted.
    let (_, left_out) = mrt::read(&folder.file("rich", &file()), Family::Ipv4, PeerChoice::MostRoutes).unwrap();
    assert_eq!(left_out.words(), ["routes whose AS_SETs were removed (RFC 9774): 1"]);
}

#[test]
fn xz_and_zstd_are_read_by_their_programs() {
    let folder = Folder::new();
    let plain = folder.file("rib", &file());
    let wanted = prefixes(&read(&plain, Family::Ipv4, PeerChoice::MostRoutes).unwrap());
    for (program, name) in [("xz", "rib.xz"), ("zstd", "rib.zst")] {
        let packed = folder.0.path().join(name);
        let out = std::fs::File::create(&packed).unwrap();
        let status = std::process::Command::new(program).args(["--stdout", "--quiet"]).arg(&plain).stdout(out).status();
        if status.is_err() {
            println!("NOT CHECKED: {program} is not installed");
            continue;
        }
        assert_eq!(prefixes(&read(&packed, Family::Ipv4, PeerChoice::MostRoutes).unwrap()), wanted, "{name}");
        let whole = std::fs::read(&packed).unwrap();
        let cut = folder.file("cut", &whole[..whole.len() - 8]);
        let error = peers(&cut).unwrap_err().to_string();
        assert!(error.contains("is cut off"), "{error}");
    }
    let lz4 = peers(&folder.file("rib.lz4", &[0x04, 0x22, 0x4d, 0x18, 0])).unwrap_err().to_string();
    assert!(lz4.ends_with("is compressed with lz4; run `lz4 -d FILE`, and use the resulting file"), "{lz4}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn damaged_files_never_panic(at in 0usize..800, value: u8, cut in 0usize..800) {
        let folder = Folder::new();
        let mut bytes = file();
        let at = at % bytes.len();
        bytes[at] = value;
        bytes.truncate(bytes.len().min(cut.max(20)));
        let path = folder.file("damaged", &bytes);
        for family in [Family::Ipv4, Family::Ipv6] {
            if let Ok(table) = read(&path, family, PeerChoice::MostRoutes) {
                prop_assert!((1..=8).contains(&table.len()));
                prop_assert!(prefixes(&table).iter().all(|p| p.parse::<Prefix>().is_ok()));
            }
        }
    }
}
