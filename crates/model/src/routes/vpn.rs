//! Routes of many VPNs (RFC 4364): the route distinguisher, route targets and label of each route are computed from the index of its VRF.

use super::{AfiSafi, Prefix, Routes};
use crate::trial::Family;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

/// Lowest label that a router may assign; labels 0 to 15 are reserved (RFC 3032 section 2.1).
pub const FIRST_LABEL: u32 = 16;
/// Highest label: it has 20 bits.
pub const LAST_LABEL: u32 = (1 << 20) - 1;

/// Administrator of a [`VpnId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Administrator {
    /// An AS number of 2 octets; the assigned number has 4 octets.
    As2(u16),
    /// An IPv4 address; the assigned number has 2 octets.
    Ipv4(Ipv4Addr),
    /// An AS number of 4 octets; the assigned number has 2 octets.
    As4(u32),
}

/// An administrator and a number that it has assigned, as in route distinguishers (RFC 4364 section 4.2) and route targets (RFC 4360
/// section 4, RFC 5668).
///
/// Written `65000:7`, `192.0.2.1:7` or `4200000000:7`; `65000L:7` has 4 octets for an AS number that would fit into 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VpnId {
    /// Administrator.
    pub administrator: Administrator,
    /// Assigned number.
    pub number: u32,
}

/// Subtype of a route target (RFC 4360 section 4).
const ROUTE_TARGET: u8 = 2;

impl VpnId {
    /// `number` assigned by an AS whose number has 2 octets.
    pub const fn as2(asn: u16, number: u32) -> VpnId {
        VpnId { administrator: Administrator::As2(asn), number }
    }

    /// The highest assigned number.
    const fn most(self) -> u32 {
        match self.administrator {
            Administrator::As2(_) => u32::MAX,
            Administrator::Ipv4(_) | Administrator::As4(_) => 0xffff,
        }
    }

    /// The identifier whose assigned number is `n` higher; `None` if that does not fit.
    pub fn plus(self, n: u32) -> Option<VpnId> {
        let number = self.number.checked_add(n).filter(|number| *number <= self.most())?;
        Some(VpnId { number, ..self })
    }

    /// Type of the administrator, and the six bytes of both parts.
    fn parts(self) -> (u8, [u8; 6]) {
        let [.., high, low] = self.number.to_be_bytes();
        match self.administrator {
            Administrator::As2(asn) => {
                let ([a, b], [c, d, e, f]) = (asn.to_be_bytes(), self.number.to_be_bytes());
                (0, [a, b, c, d, e, f])
            }
            Administrator::Ipv4(address) => {
                let [a, b, c, d] = address.octets();
                (1, [a, b, c, d, high, low])
            }
            Administrator::As4(asn) => {
                let [a, b, c, d] = asn.to_be_bytes();
                (2, [a, b, c, d, high, low])
            }
        }
    }

    fn of_parts(kind: u8, [a, b, c, d, e, f]: [u8; 6]) -> Option<VpnId> {
        let short = u32::from(u16::from_be_bytes([e, f]));
        let (administrator, number) = match kind {
            0 => (Administrator::As2(u16::from_be_bytes([a, b])), u32::from_be_bytes([c, d, e, f])),
            1 => (Administrator::Ipv4([a, b, c, d].into()), short),
            2 => (Administrator::As4(u32::from_be_bytes([a, b, c, d])), short),
            _ => return None,
        };
        Some(VpnId { administrator, number })
    }

    /// As a route distinguisher.
    pub fn distinguisher(self) -> [u8; 8] {
        let (kind, [a, b, c, d, e, f]) = self.parts();
        [0, kind, a, b, c, d, e, f]
    }

    /// As a route target, which is an extended community.
    pub fn route_target(self) -> [u8; 8] {
        let (kind, [a, b, c, d, e, f]) = self.parts();
        [kind, ROUTE_TARGET, a, b, c, d, e, f]
    }

    /// The identifier in a route distinguisher; `None` for a type other than 0, 1 and 2.
    pub fn from_distinguisher([high, kind, a, b, c, d, e, f]: [u8; 8]) -> Option<VpnId> {
        VpnId::of_parts(kind, [a, b, c, d, e, f]).filter(|_| high == 0)
    }

    /// The identifier in a route target; `None` for any other extended community.
    pub fn from_route_target([kind, subtype, a, b, c, d, e, f]: [u8; 8]) -> Option<VpnId> {
        VpnId::of_parts(kind, [a, b, c, d, e, f]).filter(|_| subtype == ROUTE_TARGET)
    }
}

impl fmt::Display for VpnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.administrator {
            Administrator::As2(asn) => write!(f, "{asn}:{}", self.number),
            Administrator::Ipv4(address) => write!(f, "{address}:{}", self.number),
            Administrator::As4(asn) if asn <= 0xffff => write!(f, "{asn}L:{}", self.number),
            Administrator::As4(asn) => write!(f, "{asn}:{}", self.number),
        }
    }
}

/// A text is not a [`VpnId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not of the form `65000:7`, `192.0.2.1:7` or `4200000000:7`")]
pub struct VpnIdError;

impl FromStr for VpnId {
    type Err = VpnIdError;

    fn from_str(text: &str) -> Result<VpnId, VpnIdError> {
        let (administrator, number) = text.split_once(':').ok_or(VpnIdError)?;
        let number: u32 = number.parse().map_err(|_| VpnIdError)?;
        let administrator = if let Ok(address) = administrator.parse() {
            Administrator::Ipv4(address)
        } else if let Ok(asn) = administrator.parse() {
            Administrator::As2(asn)
        } else {
            Administrator::As4(administrator.trim_end_matches('L').parse().map_err(|_| VpnIdError)?)
        };
        let id = VpnId { administrator, number };
        if number <= id.most() { Ok(id) } else { Err(VpnIdError) }
    }
}

impl Serialize for VpnId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for VpnId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<VpnId, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|e| de::Error::custom(format!("`{text}` {e}")))
    }
}

/// One identifier per VRF, at equal distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counting {
    /// Identifier of VRF 0.
    pub first: VpnId,
    /// Distance from one VRF to the next; 0 if all VRFs have the same.
    #[serde(default = "crate::one", skip_serializing_if = "crate::is_one")]
    pub step: u32,
}

impl Counting {
    /// `first`, and one more for each following VRF.
    pub const fn from(first: VpnId) -> Counting {
        Counting { first, step: 1 }
    }

    /// The identifier of VRF `vrf`; `None` if it does not fit.
    pub fn at(&self, vrf: u32) -> Option<VpnId> {
        self.first.plus(vrf.checked_mul(self.step)?)
    }

    /// The VRF with this identifier. `None` if no VRF has it, or all have it.
    fn vrf_of(&self, id: VpnId) -> Option<u32> {
        let same = id.administrator == self.first.administrator;
        let distance = id.number.checked_sub(self.first.number).filter(|_| same)?;
        (distance.checked_rem(self.step) == Some(0)).then(|| distance / self.step)
    }
}

/// Which routes of a VRF share a label (RFC 4364 section 4.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LabelPer {
    /// One label for each VRF.
    Vrf,
    /// One label for each CE, which has this number of consecutive routes.
    Ce(u32),
    /// One label for each route.
    Route,
}

/// VRFs of a PE, numbered from 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VrfRange {
    /// Number of VRFs.
    pub count: u32,
    /// Their route distinguishers.
    pub distinguisher: Counting,
    /// The route targets of each VRF, at most 16.
    pub targets: Vec<Counting>,
    /// Label of route 0 of VRF 0; all others follow.
    pub first_label: u32,
    /// Which routes share a label.
    pub label_per: LabelPer,
}

/// Which prefixes each VRF has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PrefixesPerVrf {
    /// All VRFs have all prefixes.
    Same,
    /// Each VRF has an equal part of the prefixes, in order.
    Own,
}

/// Why routes of VPNs cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum VpnError {
    #[error("there are no VRFs or no routes; give at least one of each")]
    Empty,
    #[error("{0} prefixes cannot be divided among {1} VRFs; make their number a multiple")]
    Uneven(u32, u32),
    #[error("{0} VRFs have {1} routes each, which is more than 4294967295 in all; use several sessions")]
    TooMany(u32, u32),
    #[error("two VRFs have the route distinguisher {0}; make its step at least 1")]
    SameDistinguisher(VpnId),
    #[error(
        "{0} and its successors do not fit {1} VRFs; start lower or take an AS number of 2 octets as administrator"
    )]
    Identifiers(VpnId, u32),
    #[error("{0} route targets per VRF are too many; give at most 16")]
    Targets(usize),
    #[error("labels {first} to {last} are not all within 16 to 1048575; start elsewhere or share labels per VRF or CE")]
    Labels { first: u32, last: u64 },
}

/// The stored form of [`VpnRoutes`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    vrfs: VrfRange,
    routes: Arc<Routes>,
    prefixes_per_vrf: PrefixesPerVrf,
}

/// Routes of many VRFs: a few hundred bytes, whatever the number of VRFs and routes.
///
/// Route `r` of VRF `v` has number `v * per_vrf + r`. It has the attributes of its prefix's group in [`Routes`]: groups of at least
/// [`VpnRoutes::per_vrf`] routes make one attribute set per VRF.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Description", into = "Description")]
pub struct VpnRoutes {
    vrfs: VrfRange,
    routes: Arc<Routes>,
    prefixes_per_vrf: PrefixesPerVrf,
    per_vrf: u32,
    labels_per_vrf: u32,
}

impl VpnRoutes {
    /// Routes of these VRFs with these prefixes.
    ///
    /// # Errors
    /// If there are none, or numbers, identifiers or labels do not fit.
    pub fn new(vrfs: VrfRange, routes: Arc<Routes>, prefixes_per_vrf: PrefixesPerVrf) -> Result<VpnRoutes, VpnError> {
        let VrfRange { count, distinguisher, first_label, .. } = vrfs;
        let per_vrf = match prefixes_per_vrf {
            _ if count == 0 || routes.is_empty() => return Err(VpnError::Empty),
            PrefixesPerVrf::Same => routes.len(),
            PrefixesPerVrf::Own if routes.len().is_multiple_of(count) => routes.len() / count,
            PrefixesPerVrf::Own => return Err(VpnError::Uneven(routes.len(), count)),
        };
        per_vrf.checked_mul(count).ok_or(VpnError::TooMany(count, per_vrf))?;
        if distinguisher.step == 0 && count > 1 {
            return Err(VpnError::SameDistinguisher(distinguisher.first));
        }
        if vrfs.targets.len() > 16 {
            return Err(VpnError::Targets(vrfs.targets.len()));
        }
        for ids in vrfs.targets.iter().chain([&distinguisher]) {
            ids.at(count - 1).ok_or(VpnError::Identifiers(ids.first, count))?;
        }
        let labels_per_vrf = match vrfs.label_per {
            LabelPer::Vrf => 1,
            LabelPer::Ce(routes) => per_vrf.div_ceil(routes.max(1)),
            LabelPer::Route => per_vrf,
        };
        let last = u64::from(first_label) + u64::from(labels_per_vrf) * u64::from(count) - 1;
        if first_label < FIRST_LABEL || last > u64::from(LAST_LABEL) {
            return Err(VpnError::Labels { first: first_label, last });
        }
        Ok(VpnRoutes { vrfs, routes, prefixes_per_vrf, per_vrf, labels_per_vrf })
    }

    /// Its VRFs.
    pub fn vrfs(&self) -> &VrfRange {
        &self.vrfs
    }

    /// All prefixes, with their attributes.
    pub fn routes(&self) -> &Arc<Routes> {
        &self.routes
    }

    /// Routes of each VRF.
    pub fn per_vrf(&self) -> u32 {
        self.per_vrf
    }

    /// Number of routes of all VRFs.
    #[allow(clippy::len_without_is_empty)] // there is at least one
    pub fn len(&self) -> u32 {
        self.vrfs.count * self.per_vrf
    }

    /// Family of the routes: VPNv4 or VPNv6.
    pub fn afi_safi(&self) -> AfiSafi {
        match self.routes.family() {
            Family::Ipv4 => AfiSafi::VPNV4,
            Family::Ipv6 => AfiSafi::VPNV6,
        }
    }

    /// The prefixes of VRF `vrf`, as a part of [`VpnRoutes::routes`].
    pub fn slice(&self, vrf: u32) -> Range<u32> {
        match self.prefixes_per_vrf {
            PrefixesPerVrf::Same => 0..self.per_vrf,
            PrefixesPerVrf::Own => vrf * self.per_vrf..(vrf + 1) * self.per_vrf,
        }
    }

    /// Prefix of route `route` of VRF `vrf`.
    #[inline]
    pub fn prefix(&self, vrf: u32, route: u32) -> Prefix {
        self.routes.prefix(self.slice(vrf).start + route)
    }

    /// The route of VRF `vrf` with exactly this prefix.
    #[inline]
    pub fn index_of(&self, vrf: u32, prefix: &Prefix) -> Option<u32> {
        let slice = self.slice(vrf);
        self.routes.index_of(prefix).filter(|i| slice.contains(i)).map(|i| i - slice.start)
    }

    /// Route distinguisher of VRF `vrf`, which exists.
    pub fn distinguisher(&self, vrf: u32) -> [u8; 8] {
        self.vrfs.distinguisher.at(vrf).unwrap_or(self.vrfs.distinguisher.first).distinguisher()
    }

    /// The VRF with this route distinguisher.
    #[inline]
    pub fn vrf_of_distinguisher(&self, distinguisher: [u8; 8]) -> Option<u32> {
        let id = VpnId::from_distinguisher(distinguisher)?;
        // A single VRF may have step 0.
        let vrf = self.vrfs.distinguisher.vrf_of(id).or((id == self.vrfs.distinguisher.first).then_some(0))?;
        Some(vrf).filter(|vrf| *vrf < self.vrfs.count)
    }

    /// The route targets of VRF `vrf`, which exists.
    pub fn targets(&self, vrf: u32) -> impl Iterator<Item = [u8; 8]> + '_ {
        self.vrfs.targets.iter().filter_map(move |ids| ids.at(vrf)).map(VpnId::route_target)
    }

    /// The VRFs that have this route target, unless all have it.
    pub fn vrfs_of_target(&self, target: [u8; 8]) -> impl Iterator<Item = u32> + '_ {
        let (id, count) = (VpnId::from_route_target(target), self.vrfs.count);
        self.vrfs.targets.iter().filter_map(move |ids| {
            // The target of a single VRF is its own even with step 0.
            let alone = (count == 1 && id == Some(ids.first)).then_some(0);
            ids.vrf_of(id?).filter(|vrf| *vrf < count).or(alone)
        })
    }

    /// The VRF that has this route target, which no other VRF has; `None` for any other extended community.
    pub fn vrf_of_target(&self, target: [u8; 8]) -> Option<u32> {
        let all_have = |ids: &Counting| ids.step == 0 && Some(ids.first) == VpnId::from_route_target(target);
        let mut vrfs = self.vrfs_of_target(target);
        let vrf = vrfs.next()?;
        let others = vrfs.any(|other| other != vrf) || self.vrfs.count > 1 && self.vrfs.targets.iter().any(all_have);
        (!others).then_some(vrf)
    }

    /// Label of route 0 of VRF `vrf`, and the number of consecutive routes that share a label.
    #[inline]
    pub fn labels(&self, vrf: u32) -> (u32, u32) {
        let shared = match self.vrfs.label_per {
            LabelPer::Vrf => self.per_vrf,
            LabelPer::Ce(routes) => routes.max(1),
            LabelPer::Route => 1,
        };
        (self.vrfs.first_label + vrf * self.labels_per_vrf, shared)
    }

    /// Label of route `route` of VRF `vrf`.
    #[inline]
    pub fn label(&self, vrf: u32, route: u32) -> u32 {
        let (first, shared) = self.labels(vrf);
        first + route / shared
    }
}

impl TryFrom<Description> for VpnRoutes {
    type Error = VpnError;

    fn try_from(Description { vrfs, routes, prefixes_per_vrf }: Description) -> Result<VpnRoutes, VpnError> {
        VpnRoutes::new(vrfs, routes, prefixes_per_vrf)
    }
}

impl From<VpnRoutes> for Description {
    fn from(VpnRoutes { vrfs, routes, prefixes_per_vrf, .. }: VpnRoutes) -> Description {
        Description { vrfs, routes, prefixes_per_vrf }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{AttributePattern, RouteRange};
    use super::*;
    use proptest::prelude::*;

    fn routes(count: u32) -> Arc<Routes> {
        Arc::new(
            RouteRange::uniform("20.0.0.0/24".parse().unwrap(), count, 1, AttributePattern::default()).unwrap().into(),
        )
    }

    fn vrfs(count: u32, label_per: LabelPer) -> VrfRange {
        VrfRange {
            count,
            distinguisher: Counting::from(VpnId::as2(65_000, 1)),
            targets: vec![
                Counting::from(VpnId::as2(65_000, 1_001)),
                Counting { first: VpnId::as2(65_000, 9), step: 0 },
            ],
            first_label: FIRST_LABEL,
            label_per,
        }
    }

    #[test]
    fn identifiers_have_the_bytes_of_the_rfcs() {
        for (text, distinguisher) in [
            ("65000:7", [0, 0, 0xfd, 0xe8, 0, 0, 0, 7]),
            ("192.0.2.1:7", [0, 1, 192, 0, 2, 1, 0, 7]),
            ("4200000000:7", [0, 2, 0xfa, 0x56, 0xea, 0, 0, 7]),
            ("65000L:7", [0, 2, 0, 0, 0xfd, 0xe8, 0, 7]),
        ] {
            let id: VpnId = text.parse().unwrap();
            assert_eq!((id.distinguisher(), id.to_string()), (distinguisher, text.to_owned()));
            let target = id.route_target();
            assert_eq!((target[0], target[1], &target[2..]), (distinguisher[1], 2, &distinguisher[2..]), "{text}");
            assert_eq!(VpnId::from_distinguisher(distinguisher), Some(id));
            assert_eq!(VpnId::from_route_target(target), Some(id));
            assert_eq!(serde_json::from_str::<VpnId>(&serde_json::to_string(&id).unwrap()).unwrap(), id);
        }
        for wrong in ["", "7", "65000", "a:7", "1:", "192.0.2.1:65536", "4200000000:65536", "4294967296:1"] {
            assert_eq!(wrong.parse::<VpnId>(), Err(VpnIdError), "{wrong}");
        }
        assert_eq!(VpnId::from_distinguisher([0, 3, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(VpnId::from_distinguisher([1, 0, 0, 0, 0, 0, 0, 0]), None);
        // Route origin (RFC 4360 section 5).
        assert_eq!(VpnId::from_route_target([0, 3, 0, 1, 0, 0, 0, 7]), None);
    }

    #[test]
    fn labels_per_vrf_ce_and_route() {
        let of = |label_per| VpnRoutes::new(vrfs(3, label_per), routes(10), PrefixesPerVrf::Same).unwrap();
        let labels = |all: &VpnRoutes| (0..3).map(|v| [0, 3, 4, 9].map(|r| all.label(v, r))).collect::<Vec<_>>();
        assert_eq!(labels(&of(LabelPer::Vrf)), [[16; 4], [17; 4], [18; 4]]);
        assert_eq!(labels(&of(LabelPer::Ce(4))), [[16, 16, 17, 18], [19, 19, 20, 21], [22, 22, 23, 24]]);
        assert_eq!(labels(&of(LabelPer::Route)), [[16, 19, 20, 25], [26, 29, 30, 35], [36, 39, 40, 45]]);
    }

    #[test]
    fn prefixes_of_all_and_of_each() {
        let same = VpnRoutes::new(vrfs(4, LabelPer::Vrf), routes(12), PrefixesPerVrf::Same).unwrap();
        assert_eq!((same.per_vrf(), same.len(), same.prefix(3, 2)), (12, 48, same.routes().prefix(2)));
        let own = VpnRoutes::new(vrfs(4, LabelPer::Vrf), routes(12), PrefixesPerVrf::Own).unwrap();
        assert_eq!((own.per_vrf(), own.len(), own.prefix(3, 2)), (3, 12, own.routes().prefix(11)));
        let prefix = own.prefix(3, 2);
        assert_eq!((own.index_of(3, &prefix), own.index_of(2, &prefix)), (Some(2), None));
        assert_eq!(
            (0..4).map(|v| own.vrf_of_distinguisher(own.distinguisher(v))).collect::<Option<Vec<_>>>(),
            Some(vec![0, 1, 2, 3])
        );
        assert_eq!(own.vrf_of_distinguisher(VpnId::as2(65_000, 5).distinguisher()), None);
        let targets: Vec<_> = own.targets(2).collect();
        assert_eq!(targets, ["65000:1003", "65000:9"].map(|t| t.parse::<VpnId>().unwrap().route_target()));
        assert_eq!((own.vrf_of_target(targets[0]), own.vrf_of_target(targets[1])), (Some(2), None));
        let again: VpnRoutes = serde_json::from_str(&serde_json::to_string(&own).unwrap()).unwrap();
        assert_eq!(again, own);
    }

    #[test]
    fn a_target_of_several_vrfs_names_none() {
        let of = |targets: &[(u32, u32)]| {
            let counting = |&(first, step)| Counting { first: VpnId::as2(65_000, first), step };
            let vrfs = VrfRange { targets: targets.iter().map(counting).collect(), ..vrfs(3, LabelPer::Vrf) };
            let all = VpnRoutes::new(vrfs, routes(1), PrefixesPerVrf::Same).unwrap();
            (1..6).map(|number| all.vrf_of_target(VpnId::as2(65_000, number).route_target())).collect::<Vec<_>>()
        };
        // Each VRF has two targets: its own and the next VRF's.
        assert_eq!(of(&[(2, 1), (1, 1)]), [Some(0), None, None, Some(2), None]);
        // All have target 2, which the second one would have as its own.
        assert_eq!(of(&[(1, 1), (2, 0)]), [Some(0), None, Some(2), None, None]);
        assert_eq!(of(&[(1, 1), (1, 1)]), [Some(0), Some(1), Some(2), None, None]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let refused = |vrfs, n, per| VpnRoutes::new(vrfs, routes(n), per).unwrap_err();
        let (same, own) = (PrefixesPerVrf::Same, PrefixesPerVrf::Own);
        assert_eq!(refused(vrfs(0, LabelPer::Vrf), 1, same), VpnError::Empty);
        assert_eq!(refused(vrfs(3, LabelPer::Vrf), 10, own), VpnError::Uneven(10, 3));
        assert_eq!(
            refused(vrfs(1 << 20, LabelPer::Vrf), 1, same),
            VpnError::Labels { first: 16, last: 15 + (1 << 20) }
        );
        assert_eq!(refused(vrfs(200, LabelPer::Route), 10_000, same), VpnError::Labels { first: 16, last: 2_000_015 });
        let low = VrfRange { first_label: 3, ..vrfs(1, LabelPer::Vrf) };
        assert_eq!(refused(low, 1, same), VpnError::Labels { first: 3, last: 3 });
        let first: VpnId = "192.0.2.1:65000".parse().unwrap();
        let narrow = VrfRange { distinguisher: Counting::from(first), ..vrfs(1_000, LabelPer::Vrf) };
        assert_eq!(refused(narrow, 1, same), VpnError::Identifiers(first, 1_000));
        let twins = VrfRange { distinguisher: Counting { first, step: 0 }, ..vrfs(2, LabelPer::Vrf) };
        assert_eq!(refused(twins, 1, same), VpnError::SameDistinguisher(first));
        let wide = VrfRange { targets: vec![Counting::from(first); 17], ..vrfs(1, LabelPer::Vrf) };
        assert_eq!(refused(wide, 1, same), VpnError::Targets(17));
        assert_eq!(refused(vrfs(100_000, LabelPer::Vrf), 50_000, same), VpnError::TooMany(100_000, 50_000));
    }

    proptest! {
        #[test]
        fn vrfs_are_found_by_distinguisher_and_target(
            count in 1u32..5_000, step in 1u32..10, number in 0u32..5_000, as4: bool, vrf: u32, other: [u8; 8],
        ) {
            let administrator = if as4 { Administrator::As4(70_000) } else { Administrator::As2(9) };
            let ids = Counting { first: VpnId { administrator, number }, step };
            let vrfs = VrfRange { distinguisher: ids, targets: vec![ids], ..vrfs(count, LabelPer::Vrf) };
            let all = VpnRoutes::new(vrfs, routes(1), PrefixesPerVrf::Same).unwrap();
            let vrf = vrf % count;
            prop_assert_eq!(all.vrf_of_distinguisher(all.distinguisher(vrf)), Some(vrf));
            prop_assert_eq!(all.targets(vrf).map(|t| all.vrf_of_target(t)).collect::<Vec<_>>(), vec![Some(vrf)]);
            if let Some(vrf) = all.vrf_of_distinguisher(other) {
                prop_assert_eq!(all.distinguisher(vrf), other);
            }
        }
    }
}
