//! Routing tables of the Internet from files: MRT TABLE_DUMP_V2 (RFC 6396 section 4.3, with paths of RFC 8050), plain
//! or compressed with gzip, bzip2, xz or zstd, as route collectors publish them.
//!
//! A file contains the routes of all peers of a collector. A table contains the routes of one peer and one IP version.
//! A file can contain several dumps, each with its own peer index table, as BIRD appends them; AS and address identify
//! a peer across dumps. This module splits the file into records, so that the routes of other peers cost nothing. It
//! skips and counts what it cannot read ([`LeftOut`]), but refuses a truncated file. `mrt/attributes.rs` reads the
//! attributes of the chosen peer's routes, `mrt/packed.rs` reads compressed files.

mod attributes;
mod packed;

use bgpkit_parser::models::{MrtMessage, TableDumpV2Message};
use bgpkit_parser::parse_mrt_record;
use drophammer_model::quantity::group_digits;
use drophammer_model::routes::{Prefix, RouteAttributes, RouteTable};
use drophammer_model::trial::Family;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

/// MRT type TABLE_DUMP_V2.
const TABLE_DUMP_V2: u16 = 13;
/// Subtype PEER_INDEX_TABLE of TABLE_DUMP_V2.
const PEER_INDEX_TABLE: u16 = 1;
/// Length of a record's header in bytes.
const HEADER: usize = 12;
/// Longest record in bytes; a file with a longer one is not MRT.
const LONGEST: usize = 16 << 20;
/// Maximum size of a file after decompression, several times the size of the largest collector's file. A small file
/// could expand to any size.
const MOST: u64 = 16 << 30;
/// Maximum number of routes of a table, several times the size of the Internet's table.
const MOST_ROUTES: u32 = 16_000_000;
/// A file without a usable table.
#[derive(Debug, thiserror::Error)]
#[error("{}: {what}", .path.display())]
pub struct MrtError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong, and where.
    pub what: String,
}

/// The peer whose routes are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerChoice {
    /// The peer with the most routes of the IP version; the first one if several have the same number.
    MostRoutes,
    /// The peer with this index in the file. If there are several, the one with the most routes.
    Index(u16),
    /// The peer in this AS. If there are several, the one with the most routes.
    As(u32),
}

/// A peer of the collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MrtPeer {
    /// Index in the first peer index table that names it.
    pub index: u16,
    /// AS number.
    pub asn: u32,
    /// Address.
    pub address: IpAddr,
    /// Number of IPv4 and of IPv6 routes. If a prefix has several paths, each of them counts.
    pub routes: [u32; 2],
}

/// Counts of what the table leaves out or changes: routes and records of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Routes that cannot be read: the peer is not in the peer index table, or the attributes are wrong.
    pub routes: u64,
    /// Records that cannot be read.
    pub records: u64,
    /// The first unreadable route or record, with its place and the cause.
    pub first: Option<String>,
    /// Routes with an AS_SET in the path, which was removed (RFC 9774).
    pub sets: u64,
    /// Routes whose path was cut to 254 ASes.
    pub long_paths: u64,
}

impl LeftOut {
    /// Describes the counts in words, one text each.
    pub fn words(&self) -> Vec<String> {
        let counted = |count: u64, what: &str| (count > 0).then(|| format!("{what}: {}", group_digits(count)));
        let mut words: Vec<String> = [
            counted(self.routes, "routes that cannot be read, left out"),
            counted(self.records, "records that cannot be read, left out"),
            counted(self.sets, "routes whose AS_SETs were removed (RFC 9774)"),
            counted(self.long_paths, "routes whose path was cut to 254 ASes"),
        ]
        .into_iter()
        .flatten()
        .collect();
        words.extend(self.first.as_ref().map(|first| format!("the first one left out: {first}")));
        words
    }

    fn route(&mut self, why: MrtError) {
        self.routes += 1;
        self.first.get_or_insert(why.what);
    }

    fn record(&mut self, why: MrtError) {
        self.records += 1;
        self.first.get_or_insert(why.what);
    }
}

/// The peers of a file with the number of their routes, by index.
///
/// # Errors
/// [`MrtError`] for a file that cannot be read, is cut off, or is not a RIB of TABLE_DUMP_V2.
pub fn peers(path: &Path) -> Result<Vec<MrtPeer>, MrtError> {
    Ok(counted(path)?.0)
}

/// Like [`peers`], but also returns the counts that belong to no peer.
fn counted(path: &Path) -> Result<(Vec<MrtPeer>, LeftOut), MrtError> {
    let mut left_out = LeftOut::default();
    let mut peers = Peers::default();
    let mut records = Records::open(path)?;
    let mut body = Vec::new();
    while let Some(record) = records.next(&mut body)? {
        match record {
            Record::Peers => peers.table(records.peers(&body)?),
            Record::Rib(family, paths) => {
                let rib = Rib { body: &body, family, paths };
                match rib.entries() {
                    Err(why) => left_out.record(records.error(&why)),
                    Ok(entries) => entries.iter().for_each(|entry| match peers.find(entry.peer) {
                        Some(at) => peers.known[at].routes[family as usize] += 1,
                        None => {
                            let why = format!("has a route of peer {}, whom no peer index table names", entry.peer);
                            left_out.route(records.error(&why));
                        }
                    }),
                }
            }
            Record::Other => {}
        }
    }
    if peers.known.is_empty() {
        let left_out = left_out.first.map(|what| MrtError { path: path.into(), what });
        return Err(left_out.unwrap_or_else(|| records.empty()));
    }
    Ok((peers.known, left_out))
}

/// The peers of a file while it is being read.
#[derive(Default)]
struct Peers {
    /// Peers of all tables so far, without duplicates.
    known: Vec<MrtPeer>,
    /// Positions in `known`, by index in the current table.
    current: BTreeMap<u16, usize>,
}

impl Peers {
    /// Adds another peer index table.
    fn table(&mut self, table: Vec<MrtPeer>) {
        self.current.clear();
        // Two entries of one table are two peers, even if they have the same AS and address.
        let mut taken = vec![false; self.known.len()];
        for peer in table {
            let same = |(at, known): (usize, &MrtPeer)| {
                let fits = !taken[at] && (known.asn, known.address) == (peer.asn, peer.address);
                fits.then_some((known.index != peer.index, at))
            };
            let at = self.known[..taken.len()].iter().enumerate().filter_map(same).min().map(|(_, at)| at);
            let at = at.unwrap_or(self.known.len());
            match taken.get_mut(at) {
                Some(taken) => *taken = true,
                None => self.known.push(peer.clone()),
            }
            self.current.insert(peer.index, at);
        }
    }

    /// Returns the position of the peer with this index.
    fn find(&self, index: u16) -> Option<usize> {
        self.current.get(&index).copied()
    }
}

/// Reads the chosen peer's routes of one IP version, and names the table after file and peer. Routes have no next hop,
/// which means the speaker itself, because the file's next hops belong to another network. Paths do not contain the
/// peer's own AS, because another AS will advertise them, and no AS_SETs (RFC 9774). All transitive attributes remain.
/// If a prefix has several paths in a record (RFC 8050), the first one counts. If it is in several records, the last
/// record counts.
///
/// # Errors
/// [`MrtError`] as for [`peers`], if the peer does not exist or has no routes, and if none of its routes can be read.
pub fn read(path: &Path, family: Family, choice: PeerChoice) -> Result<(RouteTable, LeftOut), MrtError> {
    let (peers, mut left_out) = counted(path)?;
    let fail = |what: String| MrtError { path: path.into(), what };
    let fits = |p: &MrtPeer| match choice {
        PeerChoice::MostRoutes => true,
        PeerChoice::Index(index) => p.index == index,
        PeerChoice::As(asn) => p.asn == asn,
    };
    let count = |p: &MrtPeer| p.routes[family as usize];
    // In reverse: `max_by_key` returns the last of several maxima, but the first is wanted.
    let chosen = peers.iter().enumerate().rev().filter(|(_, p)| fits(p)).max_by_key(|(_, p)| count(p));
    let named = match choice {
        PeerChoice::MostRoutes => String::new(),
        PeerChoice::Index(index) => format!(" {index}"),
        PeerChoice::As(asn) => format!(" in AS {asn}"),
    };
    let last = peers.iter().map(|p| p.index).max().unwrap_or(0);
    let Some((place, peer)) = chosen else {
        return Err(fail(format!("there is no peer{named} among its {} peers (indices 0 to {last})", peers.len())));
    };
    if count(peer) == 0 {
        return Err(fail(match choice {
            PeerChoice::MostRoutes => left_out.first.unwrap_or_else(|| format!("no peer has routes of {family}")),
            _ => format!("peer {} has no routes of {family}", peer.index),
        }));
    }
    if count(peer) > MOST_ROUTES {
        return Err(fail(format!("peer {} has {} routes; a table has at most {MOST_ROUTES}", peer.index, count(peer))));
    }
    let mut records = Records::open(path)?;
    let mut body = Vec::new();
    let mut error = None;
    let mut ready: Vec<(Prefix, RouteAttributes)> = Vec::new();
    let mut tables = Peers::default();
    let mut next = || -> Result<Option<(Prefix, RouteAttributes)>, MrtError> {
        while ready.is_empty() {
            let Some(record) = records.next(&mut body)? else { return Ok(None) };
            let paths = match record {
                Record::Peers => {
                    tables.table(records.peers(&body)?);
                    continue;
                }
                Record::Rib(of, paths) if of == family => paths,
                _ => continue,
            };
            let rib = Rib { body: &body, family, paths };
            // Unreadable records have been counted already.
            let (Ok(entries), Ok(prefix)) = (rib.entries(), rib.prefix()) else { continue };
            for entry in entries.iter().filter(|entry| tables.find(entry.peer) == Some(place)) {
                match attributes::read(entry.attributes, peer.asn, &mut left_out) {
                    Ok(attributes) => ready.push((prefix, attributes)),
                    Err(why) => left_out.route(records.error(&format!("route {prefix}: {why}"))),
                }
            }
        }
        // From the last path to the first: a later route to a prefix replaces the earlier one, so the first path remains.
        Ok(ready.pop())
    };
    let name = file_name(path);
    let routes = std::iter::from_fn(|| {
        next().unwrap_or_else(|e| {
            error = Some(e);
            None
        })
    });
    let table = RouteTable::new(format!("{name}, AS {} ({})", peer.asn, peer.address), family, routes);
    match (error, left_out.first.take_if(|_| table.is_empty())) {
        (Some(error), _) => Err(error),
        (None, Some(why)) => Err(fail(why)),
        (None, None) => Ok((table, left_out)),
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned())
}

/// Kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Record {
    Peers,
    /// Unicast routes; true if they have path identifiers (RFC 8050).
    Rib(Family, bool),
    /// Anything else, for example multicast. It is skipped.
    Other,
}

/// The records of a file, one after the other.
struct Records {
    path: PathBuf,
    input: Box<dyn Read>,
    /// Number of the last record, from 1.
    number: u64,
    /// Bytes read, after decompression.
    read: u64,
    /// Maximum number of bytes to read.
    most: u64,
    header: [u8; HEADER],
    /// Type of the first record.
    first: Option<u16>,
}

impl Records {
    fn open(path: &Path) -> Result<Records, MrtError> {
        let fail = |e: io::Error| MrtError { path: path.into(), what: format!("cannot be read: {e}") };
        // Opening anything else may block, or the contents may be endless.
        if !std::fs::metadata(path).map_err(fail)?.is_file() {
            return Err(MrtError { path: path.into(), what: "is not a regular file".into() });
        }
        let file = BufReader::with_capacity(1 << 20, File::open(path).map_err(fail)?);
        let input = packed::open(path, file).map_err(|what| MrtError { path: path.into(), what })?;
        Ok(Records { path: path.into(), input, number: 0, read: 0, most: MOST, header: [0; HEADER], first: None })
    }

    fn error(&self, what: &str) -> MrtError {
        MrtError { path: self.path.clone(), what: format!("record {} {what}", self.number) }
    }

    fn empty(&self) -> MrtError {
        let what = match self.first {
            None => "is empty".to_owned(),
            Some(12) => "is a RIB in the old format TABLE_DUMP; take one in TABLE_DUMP_V2".to_owned(),
            Some(16 | 17) => "contains BGP messages (type BGP4MP) and no RIB; take a RIB of TABLE_DUMP_V2".to_owned(),
            Some(other) => format!("contains no RIB of TABLE_DUMP_V2; its first record has type {other}"),
        };
        MrtError { path: self.path.clone(), what }
    }

    /// Fills `buffer`. Returns the number of bytes read, which is smaller at the end of the file.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, MrtError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.input.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // Decompressors report a truncated file like this.
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                    self.read += filled as u64;
                    return Err(self.cut_off());
                }
                Err(e) => {
                    let what = format!("cannot be read beyond byte {} of its contents: {e}", self.read + filled as u64);
                    return Err(MrtError { path: self.path.clone(), what });
                }
            }
        }
        self.read += filled as u64;
        if self.read > self.most {
            let what = format!("contains more than {} bytes; take a smaller dump", self.most);
            return Err(MrtError { path: self.path.clone(), what });
        }
        Ok(filled)
    }

    fn cut_off(&self) -> MrtError {
        self.error(&format!("is cut off: the contents end at byte {}; download the file again", self.read))
    }

    /// Reads the next record into `body`, without its header; `None` at the end of the file.
    fn next(&mut self, body: &mut Vec<u8>) -> Result<Option<Record>, MrtError> {
        let mut header = [0; HEADER];
        self.number += 1;
        match self.fill(&mut header)? {
            0 => return Ok(None),
            HEADER => {}
            _ => return Err(self.cut_off()),
        }
        self.header = header;
        let short = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let (kind, subtype) = (short(4), short(6));
        let length = u32::from_be_bytes([header[8], header[9], header[10], header[11]]) as usize;
        if length > LONGEST {
            return Err(match self.number {
                1 => MrtError {
                    path: self.path.clone(),
                    what: "is not an MRT file; take a RIB in TABLE_DUMP_V2 (RFC 6396), plain or compressed by gzip, bzip2, xz or zstd".into(),
                },
                _ => self.error(&format!("claims a length of {length} bytes: the file is damaged; download it again")),
            });
        }
        self.first.get_or_insert(kind);
        body.resize(length, 0);
        if self.fill(body)? < length {
            return Err(self.cut_off());
        }
        Ok(Some(match (kind, subtype) {
            (TABLE_DUMP_V2, PEER_INDEX_TABLE) => Record::Peers,
            (TABLE_DUMP_V2, 2 | 8) => Record::Rib(Family::Ipv4, subtype == 8),
            (TABLE_DUMP_V2, 4 | 10) => Record::Rib(Family::Ipv6, subtype == 10),
            _ => Record::Other,
        }))
    }

    /// Parses a peer index table (RFC 6396 section 4.3.1).
    fn peers(&self, body: &[u8]) -> Result<Vec<MrtPeer>, MrtError> {
        let bad = |why: &str| self.error(&format!("is an unreadable peer index table: {why}"));
        let record = parse_mrt_record(&mut [&self.header, body].concat().as_slice());
        let table = match record.map_err(|e| bad(&e.to_string()))?.message {
            MrtMessage::TableDumpV2Message(TableDumpV2Message::PeerIndexTable(table)) => table,
            _ => return Err(bad("it is something else")),
        };
        let peer = |(index, p): (&u16, &bgpkit_parser::models::Peer)| MrtPeer {
            index: *index,
            asn: p.peer_asn.to_u32(),
            address: p.peer_ip,
            routes: [0; 2],
        };
        let mut peers: Vec<MrtPeer> = table.id_peer_map.iter().map(peer).collect();
        peers.sort_by_key(|p| p.index);
        Ok(peers)
    }
}

/// The routes to one prefix (RFC 6396 section 4.3.2).
struct Rib<'a> {
    body: &'a [u8],
    family: Family,
    paths: bool,
}

/// One route of a [`Rib`] (section 4.3.4).
#[derive(Clone, Copy)]
struct Entry<'a> {
    peer: u16,
    /// The route's attributes, encoded as in a message.
    attributes: &'a [u8],
}

impl<'a> Rib<'a> {
    /// Splits the body into sequence number and prefix, and the rest.
    fn split(&self) -> Result<(&'a [u8], &'a [u8]), String> {
        let length = *self.body.get(4).ok_or("ends before its prefix")?;
        let most = if self.family == Family::Ipv4 { 32 } else { 128 };
        if length > most {
            return Err(format!("has a prefix of {length} bits in {}", self.family));
        }
        self.body
            .split_at_checked(5 + usize::from(length).div_ceil(8))
            .ok_or_else(|| "ends within its prefix".to_owned())
    }

    fn prefix(&self) -> Result<Prefix, String> {
        let head = self.split()?.0;
        let mut bytes = [0; 16];
        bytes[..head.len() - 5].copy_from_slice(&head[5..]);
        let address = match self.family {
            Family::Ipv4 => IpAddr::from(Ipv4Addr::from([bytes[0], bytes[1], bytes[2], bytes[3]])),
            Family::Ipv6 => IpAddr::from(Ipv6Addr::from(bytes)),
        };
        // Bits beyond the length have no meaning (RFC 6396 section 4.3.2).
        Prefix::masked(address, head[4]).ok_or_else(|| "has no prefix".to_owned())
    }

    fn entries(&self) -> Result<Vec<Entry<'a>>, String> {
        let (count, mut rest) = self.split()?.1.split_first_chunk::<2>().ok_or("ends before its routes")?;
        let count = u16::from_be_bytes(*count);
        // Peer, time, path identifier, length.
        let head = if self.paths { 12 } else { 8 };
        let mut entries = Vec::with_capacity(usize::from(count).min(rest.len() / head));
        for n in 1..=count {
            let cut = || format!("ends within route {n} of {count}");
            let lengths = rest.get(head - 2..head).ok_or_else(cut)?;
            let length = usize::from(u16::from_be_bytes([lengths[0], lengths[1]]));
            let (whole, after) = rest.split_at_checked(head + length).ok_or_else(cut)?;
            entries.push(Entry { peer: u16::from_be_bytes([whole[0], whole[1]]), attributes: &whole[head..] });
            rest = after;
        }
        if rest.is_empty() { Ok(entries) } else { Err(format!("has {} bytes after its {count} routes", rest.len())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_small_file_of_many_bytes_ends_at_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bomb.gz");
        let mut out = flate2::write::GzEncoder::new(File::create(&path).unwrap(), flate2::Compression::best());
        // Records of an unknown type with 64 KiB each, which are skipped.
        let record = [&[0; 8][..], &(1u32 << 16).to_be_bytes(), &[0; 1 << 16]].concat();
        (0..100).for_each(|_| out.write_all(&record).unwrap());
        out.finish().unwrap();
        let mut records = Records { most: 1 << 20, ..Records::open(&path).unwrap() };
        let mut body = Vec::new();
        let error = std::iter::from_fn(|| Some(records.next(&mut body))).find_map(Result::err).unwrap().to_string();
        assert!(error.ends_with("contains more than 1048576 bytes; take a smaller dump"), "{error}");
        assert!(records.read < (1 << 20) + (1 << 17));
        let zero = peers(Path::new("/dev/zero")).unwrap_err().to_string();
        assert_eq!(zero, "/dev/zero: is not a regular file");
    }
}
