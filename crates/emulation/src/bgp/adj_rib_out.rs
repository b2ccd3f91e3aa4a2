//! Waiting routes, and the UPDATEs for them, which go directly into the send buffer: memory per job, not per route.

use super::Negotiated;
use super::advertised::Advertised;
use drophammer_model::Instant;
use drophammer_model::routes::{Change, Prefix, RouteAttributes, Routes, VpnRoutes};
use drophammer_model::trial::Family;
use drophammer_wire::bgp::route_refresh::{self, subtype};
use drophammer_wire::bgp::update::nlri::Frame;
use drophammer_wire::bgp::update::{Attributes, Labels, Packer, packer};
use drophammer_wire::bgp::{AfiSafi, RouteRefresh, message};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

pub use drophammer_model::routes::Packing;

/// Routes to advertise or to withdraw, and how to send them.
#[derive(Clone, Debug)]
pub struct RouteSet {
    /// Their prefixes and attributes.
    pub routes: Arc<Routes>,
    /// The part of `routes` that is meant.
    pub part: Range<u32>,
    /// How they are packed into UPDATEs.
    pub packing: Packing,
    /// What their NLRI contain in addition to prefixes.
    pub encapsulation: Encapsulation,
}

impl RouteSet {
    /// Unicast routes.
    pub fn unicast(routes: Arc<Routes>, part: Range<u32>, packing: Packing) -> RouteSet {
        RouteSet { routes, part, packing, encapsulation: Encapsulation::default() }
    }

    /// The family in which they are sent.
    pub fn afi_safi(&self) -> AfiSafi {
        self.encapsulation.kind.afi_safi(self.routes.family())
    }
}

/// Routes of some VRFs to advertise or to withdraw on one session, and how to send them.
#[derive(Clone, Debug)]
pub struct VpnRouteSet {
    /// Routes of all VRFs.
    pub routes: Arc<VpnRoutes>,
    /// The VRFs that are meant.
    pub vrfs: Range<u32>,
    /// The routes of each of these VRFs that are meant.
    pub part: Range<u32>,
    /// How they are packed into UPDATEs. All routes of an UPDATE belong to one VRF.
    pub packing: Packing,
    /// Path identifier, sent if ADD-PATH is negotiated (RFC 7911).
    pub path_id: u32,
}

impl VpnRouteSet {
    /// All routes of all VRFs.
    pub fn all(routes: Arc<VpnRoutes>, packing: Packing) -> VpnRouteSet {
        let (vrfs, part) = (0..routes.vrfs().count, 0..routes.per_vrf());
        VpnRouteSet { routes, vrfs, part, packing, path_id: 0 }
    }

    /// The routes as ranges of numbers over all VRFs: one for each VRF, or a single one if all routes of each VRF are meant.
    pub(super) fn parts(&self) -> impl Iterator<Item = Range<u32>> + Clone + use<> {
        let (per_vrf, part) = (self.routes.per_vrf(), self.part.clone());
        let (first, count, size) = match part == (0..per_vrf) {
            true => (self.vrfs.start, u32::from(!self.vrfs.is_empty()), self.vrfs.len() as u32 * per_vrf),
            false => (self.vrfs.start, self.vrfs.len() as u32, part.len() as u32),
        };
        (first..first + count).map(move |vrf| vrf * per_vrf + part.start..vrf * per_vrf + part.start + size)
    }

    /// The same, without VRFs and routes that do not exist.
    fn clamped(mut self) -> VpnRouteSet {
        self.vrfs.end = self.vrfs.end.min(self.routes.vrfs().count);
        self.part.end = self.part.end.min(self.routes.per_vrf());
        self
    }

    /// The routes of one VRF, without route targets.
    fn of_vrf(&self, vrf: u32) -> RouteSet {
        let (slice, (first, shared)) = (self.routes.slice(vrf), self.routes.labels(vrf));
        // A label counts from the first prefix of the VRF.
        let labels = Labels::Blocks { first, shared, start: 0u32.wrapping_sub(slice.start) };
        let distinguisher = self.routes.distinguisher(vrf);
        RouteSet {
            routes: self.routes.routes().clone(),
            part: slice.start + self.part.start..slice.start + self.part.end,
            packing: self.packing,
            encapsulation: Encapsulation {
                kind: EncapsulationKind::Vpn { labels, distinguisher, communities: [0; 8] },
                path_id: self.path_id,
            },
        }
    }
}

/// What the NLRI of routes contain in addition to prefixes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Encapsulation {
    /// Labels and route distinguisher. Together with the IP version of the prefixes they determine the family.
    pub kind: EncapsulationKind,
    /// Path identifier, sent if ADD-PATH is negotiated (RFC 7911).
    pub path_id: u32,
}

/// Labels and route distinguisher of routes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum EncapsulationKind {
    /// Unicast.
    #[default]
    Unicast,
    /// Unicast with labels (RFC 8277).
    Labelled(Labels),
    /// VPN routes (RFC 4364, RFC 4659).
    Vpn {
        /// Their labels.
        labels: Labels,
        /// Route distinguisher.
        distinguisher: [u8; 8],
        /// Route targets and other extended communities.
        communities: [u8; 8],
    },
}

impl EncapsulationKind {
    /// The family of such routes for an IP version.
    pub fn afi_safi(&self, family: Family) -> AfiSafi {
        match (self, family) {
            (EncapsulationKind::Unicast, family) => AfiSafi::unicast(family),
            (EncapsulationKind::Labelled(_), Family::Ipv4) => AfiSafi::IPV4_LABELLED,
            (EncapsulationKind::Labelled(_), Family::Ipv6) => AfiSafi::IPV6_LABELLED,
            (EncapsulationKind::Vpn { .. }, Family::Ipv4) => AfiSafi::VPNV4,
            (EncapsulationKind::Vpn { .. }, Family::Ipv6) => AfiSafi::VPNV6,
        }
    }
}

/// The speaker's own next hops. Without an IPv6 address, labelled and VPN routes of IPv6 have the IPv4-mapped address as next hop (RFC 4798,
/// RFC 4659), and IPv6 unicast routes are not sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NextHops {
    /// IPv4.
    pub ipv4: Option<Ipv4Addr>,
    /// IPv6, global.
    pub ipv6: Option<Ipv6Addr>,
    /// IPv6, link-local (RFC 2545).
    pub link_local: Option<Ipv6Addr>,
}

impl NextHops {
    /// NEXT_HOP, which only IPv4 unicast has, and the next hop of MP_REACH_NLRI with its length; `None` without an address.
    fn of(&self, family: AfiSafi, given: Option<IpAddr>) -> Option<(Option<Ipv4Addr>, [u8; 32], usize)> {
        let ipv4 = match given {
            Some(IpAddr::V4(address)) => Some(address),
            _ => self.ipv4,
        };
        let ipv6 = match given {
            Some(IpAddr::V6(address)) => Some(address),
            _ => self.ipv6,
        };
        let (mut bytes, mut end) = ([0; 32], 0);
        let mut put = |part: &[u8]| {
            bytes[end..end + part.len()].copy_from_slice(part);
            end += part.len();
        };
        if family.is_vpn() {
            put(&[0; 8]);
        }
        if family.address_bits() == Some(32) {
            put(&ipv4?.octets());
            return Some((Some(ipv4?).filter(|_| family == AfiSafi::IPV4_UNICAST), bytes, end));
        }
        match ipv6 {
            Some(address) => put(&address.octets()),
            None if family.is_labelled() => put(&ipv4?.to_ipv6_mapped().octets()),
            None => return None,
        }
        if let (AfiSafi::IPV6_UNICAST, Some(link_local), None) = (family, self.link_local, given) {
            put(&link_local.octets());
        }
        Some((None, bytes, end))
    }
}

/// Counts of sent routes and messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Advertised routes.
    pub advertised: u64,
    /// Withdrawn routes.
    pub withdrawn: u64,
    /// UPDATE messages that advertise routes.
    pub updates: u64,
    /// Attribute sets of advertised routes: one for each change from one set to another.
    pub sets: u64,
    /// Messages.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Routes that could not be sent, because their family is not negotiated, there is no next hop for it, or their attributes fill
    /// the longest message.
    pub skipped: u64,
}

enum Job {
    Routes(RouteJob),
    EndOfRib(AfiSafi),
    Raw { bytes: Vec<u8>, at: usize },
}

struct RouteJob {
    change: Change,
    /// The remaining routes; with VRFs, the remaining routes of the first VRF.
    set: RouteSet,
    /// The remaining VRFs, for routes of VRFs.
    vrfs: Option<Box<Vrfs>>,
    /// Time of the first message, and number of routes sent since.
    since: Option<(Instant, u64)>,
}

/// VRFs of a job. The first one is in progress.
struct Vrfs {
    left: VpnRouteSet,
    /// Route targets of the first VRF.
    targets: Vec<[u8; 8]>,
}

impl RouteJob {
    fn routes(change: Change, set: RouteSet) -> Job {
        Job::Routes(RouteJob { change, set, vrfs: None, since: None })
    }

    fn vpn(change: Change, left: VpnRouteSet) -> Job {
        let vrf = left.vrfs.start;
        let (set, targets) = (left.of_vrf(vrf), left.routes.targets(vrf).collect());
        Job::Routes(RouteJob { change, set, vrfs: Some(Box::new(Vrfs { left, targets })), since: None })
    }

    /// Continues with the next VRF; false if there is none.
    fn next_vrf(&mut self) -> bool {
        let Some(Vrfs { left, targets }) = self.vrfs.as_deref_mut() else { return false };
        left.vrfs.start += 1;
        let vrf = left.vrfs.start;
        if left.vrfs.is_empty() {
            return false;
        }
        self.set = left.of_vrf(vrf);
        targets.clear();
        targets.extend(left.routes.targets(vrf));
        true
    }

    /// True if an UPDATE can have routes of several VRFs: withdrawals, which have no attributes.
    fn extends(&self) -> bool {
        let Packing { routes_per_update, pace, .. } = self.set.packing;
        self.vrfs.is_some() && self.change == Change::Withdraw && routes_per_update == 0 && pace.is_none()
    }

    /// The VRF in progress; 0 without VRFs.
    fn vrf(&self) -> u32 {
        self.vrfs.as_ref().map_or(0, |vrfs| vrfs.left.vrfs.start)
    }

    /// Earliest time of the next message, where the first one is not sent before `begin`; `None` means now.
    fn due(&self, begin: Option<Instant>) -> Option<Instant> {
        let pace = self.set.packing.pace.filter(|pace| *pace > 0.0)?;
        let Some((start, sent)) = self.since else { return begin };
        Some(start + Duration::try_from_secs_f64(sent as f64 / pace).unwrap_or(Duration::MAX))
    }
}

/// Everything that attributes depend on, except the routes.
#[derive(Clone, Copy, PartialEq)]
struct Speaker {
    four_octet_as: bool,
    ibgp: bool,
    local_as: u32,
    next_hops: NextHops,
}

/// The encoded attributes of one group, ready to be copied.
#[derive(Default)]
struct Encoded {
    /// The speaker, the job and the VRF of the attributes; `group` is a group of that job.
    by: Option<(Speaker, u64, u32)>,
    group: Option<u32>,
    /// The attributes of the group, and its path after the speaker's AS; the memory is reused.
    of: RouteAttributes,
    as_path: Vec<u32>,
    extended: Vec<[u8; 8]>,
    attributes: Vec<u8>,
    next_hop: [u8; 32],
    next_hop_len: usize,
    /// True if there is a next hop.
    usable: bool,
}

/// Jobs in order. Each is written as fast as the buffer and its pace allow.
#[derive(Default)]
pub struct AdjRibOut {
    jobs: VecDeque<Job>,
    advertised: Advertised,
    /// Number of the job at the front.
    front: u64,
    encoded: Encoded,
    sent: Sent,
    /// Number of the first job of the last refresh of each family.
    refreshes: Vec<(AfiSafi, u64)>,
    /// End of the last paced job; the next paced job begins then.
    paced_until: Option<Instant>,
}

impl AdjRibOut {
    /// An Adj-RIB-Out without jobs.
    pub fn new() -> AdjRibOut {
        AdjRibOut::default()
    }

    /// Advertises the routes `part`, as far as they exist, as unicast routes.
    pub fn advertise(&mut self, routes: Arc<Routes>, part: Range<u32>, packing: Packing) {
        self.push(Change::Advertise, RouteSet::unicast(routes, part, packing));
    }

    /// Withdraws the routes `part`, as far as they exist, as unicast routes.
    pub fn withdraw(&mut self, routes: Arc<Routes>, part: Range<u32>, packing: Packing) {
        self.push(Change::Withdraw, RouteSet::unicast(routes, part, packing));
    }

    /// Advertises or withdraws the routes of `set`, as far as they exist.
    pub fn push(&mut self, change: Change, mut set: RouteSet) {
        set.part.end = set.part.end.min(set.routes.len());
        if !set.part.is_empty() {
            match change {
                Change::Advertise => self.advertised.advertise(&set),
                Change::Withdraw => self.advertised.withdraw(&set),
            }
            self.jobs.push_back(RouteJob::routes(change, set));
        }
    }

    /// Advertises or withdraws the routes of VRFs of `set`, as far as they exist.
    pub fn push_vpn(&mut self, change: Change, set: VpnRouteSet) {
        let set = set.clamped();
        if !set.vrfs.is_empty() && !set.part.is_empty() {
            match change {
                Change::Advertise => self.advertised.advertise_vpn(&set),
                Change::Withdraw => self.advertised.withdraw_vpn(&set),
            }
            self.jobs.push_back(RouteJob::vpn(change, set));
        }
    }

    /// Advertises all advertised routes of `family` again, after the waiting jobs (RFC 2918 section 4). If `marked`, sends the markers
    /// of beginning and end with them (RFC 7313 section 4). A refresh of the family that waits already does it.
    pub fn refresh(&mut self, family: AfiSafi, marked: bool) {
        let first = self.front + self.jobs.len() as u64;
        match self.refreshes.iter_mut().find(|(of, _)| *of == family) {
            Some((_, waits)) if *waits > self.front => return,
            Some((_, last)) => *last = first,
            None => self.refreshes.push((family, first)),
        }
        let mark = |jobs: &mut VecDeque<Job>, subtype| {
            let mut bytes = vec![0; route_refresh::LEN];
            RouteRefresh { family, subtype }.emit(&mut bytes);
            if marked {
                jobs.push_back(Job::Raw { bytes, at: 0 });
            }
        };
        mark(&mut self.jobs, subtype::BEGIN);
        let routes = self.advertised.all().filter(|set| set.afi_safi() == family);
        self.jobs.extend(routes.map(|set| RouteJob::routes(Change::Advertise, set)));
        let routes = self.advertised.all_vpn().filter(|set| set.routes.afi_safi() == family);
        self.jobs.extend(routes.map(|set| RouteJob::vpn(Change::Advertise, set)));
        mark(&mut self.jobs, subtype::END);
    }

    /// Sends the End-of-RIB marker of a family (RFC 4724), if the family is negotiated.
    pub fn end_of_rib(&mut self, family: AfiSafi) {
        self.jobs.push_back(Job::EndOfRib(family));
    }

    /// Sends bytes unchanged: whole messages, or invalid ones for tests. A write takes up to 4096 of them at a time.
    pub fn raw(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.jobs.push_back(Job::Raw { bytes, at: 0 });
        }
    }

    /// Forgets all waiting jobs and all advertised routes.
    pub fn clear(&mut self) {
        self.advertised.clear();
        self.front += self.jobs.len() as u64;
        self.jobs.clear();
        self.paced_until = None;
    }

    /// The session has ended: the next session advertises all routes that were advertised or waited to be.
    pub fn say_again(&mut self) {
        self.front += self.jobs.len() as u64;
        let routes = self.advertised.all().map(|set| RouteJob::routes(Change::Advertise, set));
        let vpn = self.advertised.all_vpn().map(|set| RouteJob::vpn(Change::Advertise, set));
        self.jobs = routes.chain(vpn).collect();
        self.paced_until = None;
    }

    /// True if no job waits.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Counts since the beginning.
    pub fn progress(&self) -> Sent {
        self.sent
    }

    /// When [`AdjRibOut::write`] can write again: `now` or earlier if immediately; `None` if no job waits.
    pub fn next_deadline(&self, now: Instant) -> Option<Instant> {
        match self.jobs.front()? {
            Job::Routes(job) => Some(job.due(self.paced_until).unwrap_or(now)),
            _ => Some(now),
        }
    }

    /// Writes whole messages to the front of `buffer` and returns their length. The job determines the length of a message, not
    /// the room: without enough room, it writes nothing. A buffer of [`Negotiated::max_send`] bytes always has room for
    /// one message, and so does one of 4096 unless [`Packing::routes_per_update`] or the attributes require longer ones.
    pub fn write(&mut self, now: Instant, agreed: &Negotiated, next_hops: NextHops, buffer: &mut [u8]) -> usize {
        let speaker =
            Speaker { four_octet_as: agreed.four_octet_as, ibgp: agreed.ibgp, local_as: agreed.local_as, next_hops };
        let mut at = 0;
        // Length of the last message, if the job may withdraw the next VRF's routes in it too.
        let mut open = 0;
        while let Some(job) = self.jobs.front_mut() {
            let room = &mut buffer[at - open..];
            let (bytes, done) = match job {
                Job::Routes(job) => {
                    if job.due(self.paced_until).is_some_and(|due| due > now) {
                        break;
                    }
                    let before = job.set.part.start;
                    let (bytes, last) = if agreed.has(job.set.afi_safi()) {
                        self.encoded.begin(speaker, self.front, job.vrf());
                        write_routes(job, &mut self.encoded, &speaker, agreed, room, open, &mut self.sent)
                    } else {
                        self.sent.skipped += u64::from(job.set.part.end - before);
                        job.set.part.start = job.set.part.end;
                        (0, 0)
                    };
                    let (start, sent) = job.since.unwrap_or((now, 0));
                    let moved = job.set.part.start - before;
                    if moved > 0 {
                        job.since = Some((start, sent + u64::from(moved)));
                    } else {
                        break;
                    }
                    let done = job.set.part.is_empty() && !job.next_vrf();
                    open = if job.extends() && !done { last } else { 0 };
                    if done {
                        self.paced_until = job.due(None).or(self.paced_until);
                    }
                    (bytes, done)
                }
                Job::EndOfRib(family) if agreed.has(*family) => {
                    let bytes = packer::end_of_rib(room, *family);
                    if bytes == 0 {
                        break;
                    }
                    self.sent.messages += 1;
                    (bytes, true)
                }
                Job::EndOfRib(_) => (0, true),
                Job::Raw { bytes, at } => {
                    let rest = &bytes[*at..];
                    let piece = &rest[..rest.len().min(message::MAX_LEN)];
                    let Some(room) = room.get_mut(..piece.len()) else { break };
                    room.copy_from_slice(piece);
                    *at += piece.len();
                    self.sent.messages += 1;
                    (piece.len(), *at == bytes.len())
                }
            };
            at += bytes;
            self.sent.bytes += bytes as u64;
            if done {
                self.jobs.pop_front();
                self.front += 1;
            }
        }
        at
    }
}

/// Writes messages while there is room, only one message if there is a pace, and skips groups that cannot be sent. Advances the job.
/// `buffer` begins with a message of `open` bytes, which takes the first routes. Returns the number of added bytes, and the length of the
/// last message.
fn write_routes(
    job: &mut RouteJob,
    encoded: &mut Encoded,
    speaker: &Speaker,
    agreed: &Negotiated,
    buffer: &mut [u8],
    open: usize,
    sent: &mut Sent,
) -> (usize, usize) {
    let extends = job.extends();
    let advertise = job.change == Change::Advertise;
    let RouteSet { routes, part, packing, encapsulation } = &mut job.set;
    let communities: &[[u8; 8]] = match (&job.vrfs, &encapsulation.kind) {
        (Some(vrfs), _) => &vrfs.targets,
        (None, EncapsulationKind::Vpn { communities, .. }) => std::slice::from_ref(communities),
        (None, _) => &[],
    };
    // Routes of the following VRFs that may be in the same message.
    let following = match &job.vrfs {
        Some(vrfs) if extends => (vrfs.left.vrfs.len() - 1) * vrfs.left.part.len(),
        _ => 0,
    };
    let family = encapsulation.kind.afi_safi(routes.family());
    let (labels, distinguisher) = match encapsulation.kind {
        EncapsulationKind::Unicast => (Labels::Same(0), [0; 8]),
        EncapsulationKind::Labelled(labels) => (labels, [0; 8]),
        EncapsulationKind::Vpn { labels, distinguisher, .. } => (labels, distinguisher),
    };
    let path_id = agreed.add_path_send(family).then_some(encapsulation.path_id);
    let mut frame = Frame { family, path_id, labels, distinguisher };
    let asked = match u32::from(packing.routes_per_update) {
        0 => u32::MAX,
        asked => asked,
    };
    let counter = if advertise { &mut sent.advertised } else { &mut sent.withdrawn };
    let parts = |prefix: Prefix| (prefix.address(), prefix.length());
    let mut prefixes = routes.iter(part.clone()).map(parts);
    let (mut at, mut last, mut group_end) = (open, open, 0);
    if open > 0 {
        frame.labels = Labels::Withdrawn;
        let packer = Packer { frame, attributes: &[], next_hop: &[], max_len: agreed.max_send.min(message::MAX_LEN) };
        let packed = packer.extend(buffer, open, part.end - part.start, &mut prefixes);
        part.start += packed.routes;
        *counter += u64::from(packed.routes);
        (at, last) = (packed.bytes, packed.bytes);
    }
    while part.start < part.end {
        // Labels count over the whole job: the first route of a message continues where the last message ended.
        frame.labels = if advertise { labels.from(part.start) } else { Labels::Withdrawn };
        let mut end = part.end;
        if advertise {
            if part.start >= group_end {
                let group = routes.group_of(part.start);
                group_end = routes.group(group).end;
                if encoded.group != Some(group) {
                    routes.attributes_into(group, &mut encoded.of);
                    encoded.fill(family, speaker, communities, packing.prepend);
                    encoded.group = Some(group);
                    sent.sets += 1;
                }
            }
            end = end.min(group_end);
        }
        let (attributes, next_hop): (&[u8], &[u8]) = match advertise {
            true => (&encoded.attributes, &encoded.next_hop[..encoded.next_hop_len]),
            false => (&[], &[]),
        };
        let mut packer = Packer { frame, attributes, next_hop, max_len: agreed.max_send };
        let (Ok(needs), true) = (packer.needs(), encoded.usable || !advertise) else {
            sent.skipped += u64::from(end - part.start);
            sent.sets -= u64::from(advertise);
            part.start = end;
            prefixes = routes.iter(part.clone()).map(parts);
            if packing.pace.is_some() {
                break;
            }
            continue;
        };
        let most = (end - part.start).min(asked);
        let all = packer.overhead() + (most as usize + following) * frame.longest();
        if asked == u32::MAX && needs <= message::MAX_LEN {
            packer.max_len = packer.max_len.min(message::MAX_LEN);
        }
        let room = &mut buffer[at..];
        if room.len() < all.min(packer.max_len) {
            break;
        }
        // A separate copy stays in registers.
        let mut next = prefixes.clone();
        let packed = match advertise {
            true => packer.announce(room, most, &mut next),
            false => packer.withdraw(room, most, &mut next),
        };
        prefixes = next;
        part.start += packed.routes;
        *counter += u64::from(packed.routes);
        sent.messages += u64::from(packed.bytes > 0);
        sent.updates += u64::from(advertise && packed.bytes > 0);
        at += packed.bytes;
        last = packed.bytes;
        if packed.routes == 0 || packing.pace.is_some() {
            break;
        }
    }
    (at - open, last)
}

impl Encoded {
    /// Discards attributes that were encoded for another speaker, job or VRF.
    fn begin(&mut self, speaker: Speaker, job: u64, vrf: u32) {
        if self.by != Some((speaker, job, vrf)) {
            (self.by, self.group) = (Some((speaker, job, vrf)), None);
        }
    }

    /// Encodes the attributes of the group with these additional extended communities.
    fn fill(&mut self, family: AfiSafi, speaker: &Speaker, communities: &[[u8; 8]], prepend: u8) {
        self.attributes.clear();
        let of = &self.of;
        let Some((next_hop, bytes, length)) = speaker.next_hops.of(family, of.next_hop) else {
            self.usable = false;
            return;
        };
        (self.usable, self.next_hop, self.next_hop_len) = (true, bytes, length);
        // RFC 4271 section 5.1.2: a speaker prepends its AS only towards other ASes.
        let own = if speaker.ibgp { 0 } else { 1 + usize::from(prepend) };
        self.as_path.clear();
        self.as_path.extend(std::iter::repeat_n(speaker.local_as, own).chain(of.as_path.iter().copied()));
        self.extended.clone_from(&of.extended_communities);
        self.extended.extend_from_slice(communities);
        let attributes = Attributes {
            origin: of.origin.code(),
            as_path: &self.as_path,
            path: of.path.as_deref(),
            next_hop,
            med: of.med,
            local_pref: speaker.ibgp.then_some(of.local_pref.unwrap_or(100).saturating_sub(prepend.into())),
            communities: &of.communities,
            extended_communities: &self.extended,
            large_communities: &of.large_communities,
            atomic_aggregate: of.atomic_aggregate,
            aggregator: of.aggregator,
            others: &of.others,
        };
        attributes.append(speaker.four_octet_as, &mut self.attributes);
    }
}

#[cfg(test)]
#[path = "adj_rib_out_tests.rs"]
mod tests;
