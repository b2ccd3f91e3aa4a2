//! Traffic patterns: frame size, IP versions, direction, distribution over the ports, destinations.

use crate::modifier::Modifier;
use crate::size::PacketSize;
use crate::traffic::{Extension, Field, Header, HeaderKind, Octets};
use crate::trial::{Family, FlowSpec, PortIndex, Targets, TrialSpec};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;

crate::choice! {
    /// Which ports send.
    pub enum Direction {
        /// Both ports of each pair, at the same rate (RFC 2544 section 14).
        Bidirectional = "bidirectional",
        /// Only the first port of each pair.
        Unidirectional = "unidirectional",
    }
}

crate::choice! {
    /// Which ports send to which (RFC 2285 section 3.3).
    #[derive(Default)]
    pub enum Distribution {
        /// The two ports of each pair, to each other (RFC 2285 section 3.3.1).
        #[default]
        NonMeshed = "non_meshed",
        /// Each port of the first half, with the port at the same position in the second half. If neighbouring ports
        /// are on one card, this is traffic between cards.
        Crossed = "crossed",
        /// Every port to every other port, with the same number of frames to each (RFC 2285 section 3.3.3).
        FullyMeshed = "fully_meshed",
    }
}

crate::choice! {
    /// What the DUT does with the outermost label of each frame (RFC 3031 section 3.10, RFC 5695 section 6.1).
    pub enum LabelOperation {
        /// Nothing: frames arrive as sent, for example in a loop without DUT.
        Keep = "keep",
        /// Replaces the label.
        Swap = "swap",
        /// Removes the label.
        Pop = "pop",
        /// Adds labels to packets without labels.
        Push = "push",
    }
}

crate::choice! {
    /// An extension header of IPv6 (RFC 8200 section 4), with the length of RFC 5180 section 5.3.
    pub enum ExtensionHeader {
        /// Hop-by-hop options, 8 bytes of padding: the only header that routers on the path may process.
        HopByHop = "hop_by_hop",
        /// Destination options, 8 bytes of padding.
        DestinationOptions = "destination_options",
        /// A routing header of type 2 (RFC 6275 section 6.4) with no segments left, 24 bytes.
        Routing = "routing",
        /// A fragment header on an unfragmented packet (RFC 6946), 8 bytes.
        Fragment = "fragment",
    }
}

/// Routing header type 2: Mobile IPv6.
const MOBILE: u8 = 2;

impl ExtensionHeader {
    /// Length in bytes.
    pub fn bytes(self) -> u16 {
        match self {
            ExtensionHeader::HopByHop | ExtensionHeader::DestinationOptions | ExtensionHeader::Fragment => 8,
            ExtensionHeader::Routing => 24,
        }
    }

    /// Builds the header to send.
    pub fn header(self) -> Extension {
        match self {
            ExtensionHeader::HopByHop => Extension::HopByHop { options: Octets::default() },
            ExtensionHeader::DestinationOptions => Extension::DestinationOptions { options: Octets::default() },
            ExtensionHeader::Routing => {
                Extension::Routing { routing_type: MOBILE, segments_left: 0, data: Octets(vec![0; 20]) }
            }
            ExtensionHeader::Fragment => {
                Extension::Fragment { offset: Default::default(), more: false, identification: 0 }
            }
        }
    }

    /// Returns the kind of this extension header.
    fn of(extension: &Extension) -> ExtensionHeader {
        match extension {
            Extension::HopByHop { .. } => ExtensionHeader::HopByHop,
            Extension::DestinationOptions { .. } => ExtensionHeader::DestinationOptions,
            Extension::Routing { .. } => ExtensionHeader::Routing,
            Extension::Fragment { .. } => ExtensionHeader::Fragment,
        }
    }

    /// The extension headers of a flow's frames, in order.
    fn of_flow(flow: &FlowSpec) -> Vec<ExtensionHeader> {
        let of = |header: &Header| match header {
            Header::Ipv6(ipv6) => ipv6.extensions.iter().map(ExtensionHeader::of).collect(),
            _ => Vec::new(),
        };
        flow.headers.iter().map(of).find(|found: &Vec<_>| !found.is_empty()).unwrap_or_default()
    }
}

/// Maximum number of labels per frame.
pub const MAX_LABELS: u8 = 8;
/// Bytes of a label.
pub const LABEL_BYTES: u16 = 4;

/// The MPLS labels of a pattern's frames, which are added to the frame size (RFC 5695 section 4.1.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Labels {
    /// What the DUT does with the outermost label.
    pub operation: LabelOperation,
    /// Labels of each sent frame, 1 to [`MAX_LABELS`]; 0 if the DUT pushes labels.
    pub sent: u8,
}

impl Labels {
    /// Length of the sent labels in bytes.
    pub fn bytes(self) -> u16 {
        u16::from(self.sent) * LABEL_BYTES
    }

    /// The labels of a flow's frames; `None` if they have none.
    fn of(flow: &FlowSpec) -> Option<Labels> {
        let labels = |headers: &[Header]| headers.iter().filter(|h| h.kind() == HeaderKind::Mpls).count();
        let sent = u8::try_from(labels(&flow.headers)).ok()?;
        let arrives = flow.arrives.as_ref().map_or(&[][..], |arrives| &arrives.labels);
        if sent == 0 {
            return (!arrives.is_empty()).then_some(Labels { operation: LabelOperation::Push, sent });
        }
        let first = flow.headers.iter().find_map(|header| match header {
            Header::Mpls(mpls) => Some((&mpls.label, &mpls.ttl)),
            _ => None,
        });
        // A router may forward a packet with its incoming label, but must change the TTL.
        let kept = arrives.first().zip(first).is_some_and(|(arrives, (label, ttl))| {
            Field::from(arrives.label) == *label && arrives.ttl.is_some_and(|arrives| Field::from(arrives) == *ttl)
        });
        let operation = match arrives.len().cmp(&usize::from(sent)) {
            Ordering::Less => LabelOperation::Pop,
            Ordering::Equal if kept => LabelOperation::Keep,
            Ordering::Equal | Ordering::Greater => LabelOperation::Swap,
        };
        Some(Labels { operation, sent })
    }
}

/// Describes the labels: `1 label, swap`.
impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.operation == LabelOperation::Push {
            return f.write_str("labels pushed");
        }
        let plural = if self.sent == 1 { "" } else { "s" };
        write!(f, "{} label{plural}, {}", self.sent, self.operation)
    }
}

/// Shares of IPv4 and IPv6 frames in patterns with both, unless both have the same share and size.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FamilyMix {
    /// Share of IPv6 frames in thousandths of a per cent, above 0 and below 100,000.
    pub ipv6_milli_percent: u32,
    /// Size or mix of the IPv6 frames.
    pub ipv6_size: PacketSize,
}

impl FamilyMix {
    /// A mix with this share of IPv6 frames in per cent; `None` unless the share is above 0 and below 100 %.
    pub fn new(ipv6_percent: f64, ipv6_size: PacketSize) -> Option<FamilyMix> {
        let milli = (ipv6_percent * 1e3).round();
        (1.0..100_000.0).contains(&milli).then_some(FamilyMix { ipv6_milli_percent: milli as u32, ipv6_size })
    }

    /// Share of this family's frames, in per cent.
    pub fn percent(&self, family: Family) -> f64 {
        let ipv6 = f64::from(self.ipv6_milli_percent) / 1e3;
        if family == Family::Ipv6 { ipv6 } else { 100.0 - ipv6 }
    }
}

/// Identifies a traffic pattern: trials with the same key can be compared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PatternKey {
    /// Size or mix of the frames; only of the IPv4 frames if IPv6 frames differ.
    pub size: PacketSize,
    /// IP versions, in the order of the suite.
    pub families: Vec<Family>,
    /// Share and size of the IPv6 frames, if they differ.
    pub mix: Option<FamilyMix>,
    /// Direction.
    pub direction: Direction,
    /// Which ports send to which.
    pub distribution: Distribution,
    /// Number of BGP routes that contain the destinations, over all ports; 0 if the destinations are hosts in the
    /// networks behind the ports.
    pub routes: u32,
    /// MPLS labels of the frames.
    pub labels: Option<Labels>,
    /// Extension headers of the IPv6 frames, included in their size.
    pub extensions: Vec<ExtensionHeader>,
    /// Load in addition to the frames of the test.
    pub modifier: Modifier,
}

impl PatternKey {
    /// The pattern with which the tester's own ceiling is measured. A loop joins ports in pairs and has no routers.
    /// Neither this nor the modifier changes the tester's work per frame.
    #[must_use]
    pub fn on_loop(&self) -> PatternKey {
        // A loop pushes no labels.
        let labels = self.labels.filter(|labels| labels.sent > 0);
        let labels = labels.map(|labels| Labels { operation: LabelOperation::Keep, ..labels });
        PatternKey {
            distribution: Distribution::NonMeshed,
            routes: 0,
            labels,
            modifier: Modifier::None,
            ..self.clone()
        }
    }

    /// The pattern of a trial. Fully meshed traffic between two ports has the same key as traffic of one pair.
    pub fn of(spec: &TrialSpec) -> PatternKey {
        let tested: Vec<&FlowSpec> = spec.flows.iter().filter(|flow| !flow.background).collect();
        let mut families: Vec<Family> = Vec::new();
        for flow in &tested {
            if !families.contains(&flow.family) {
                families.push(flow.family);
            }
        }
        let answered = |flow: &&FlowSpec| tested.iter().any(|other| (other.from, other.to) == (flow.to, flow.from));
        let both = tested.iter().all(answered);
        let direction = if both { Direction::Bidirectional } else { Direction::Unidirectional };
        let labels = tested.first().copied().and_then(Labels::of);
        // Labelled flows always have a separate size with room for the labels.
        let own_size = |flow: &&FlowSpec| flow.family == Family::Ipv6 && flow.size.is_some() && labels.is_none();
        let ipv6 = tested.iter().copied().find(own_size);
        let mix = ipv6.and_then(|flow| {
            let own = || tested.iter().filter(|other| other.from == flow.from);
            let share = flow.weight / own().map(|flow| flow.weight).sum::<f64>();
            FamilyMix::new(share * 100.0, flow.size.clone()?)
        });
        let meshed = |flow: &&FlowSpec| tested.iter().any(|other| other.from == flow.from && other.to != flow.to);
        // The ports of crossed pairs all have the same distance and are not neighbours.
        let apart = |flow: &&FlowSpec| flow.from.abs_diff(flow.to);
        let distance = tested.first().map_or(0, apart);
        let crossed = distance > 1 && tested.iter().all(|flow| apart(flow) == distance);
        let distribution = if tested.iter().any(meshed) {
            Distribution::FullyMeshed
        } else if crossed {
            Distribution::Crossed
        } else {
            Distribution::NonMeshed
        };
        let mut behind: BTreeMap<(PortIndex, Family), u32> = BTreeMap::new();
        for flow in &tested {
            if let Targets::Routes { count, .. } = &flow.destinations {
                behind.insert((flow.to, flow.family), *count);
            }
        }
        let extended = tested.iter().find(|flow| flow.family == Family::Ipv6);
        let extensions = extended.map_or(Vec::new(), |flow| ExtensionHeader::of_flow(flow));
        let (size, routes, modifier) = (
            spec.size.clone(),
            behind.values().fold(0, |sum: u32, count| sum.saturating_add(*count)),
            Modifier::of_frames(spec),
        );
        PatternKey { size, families, mix, direction, distribution, routes, labels, extensions, modifier }
    }
}

/// Display form: `64/ipv4+ipv6/bidirectional`.
impl fmt::Display for PatternKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let families: Vec<_> = self.families.iter().map(|f| f.to_string().to_lowercase()).collect();
        write!(f, "{}/{}", self.size, families.join("+"))?;
        if let Some(mix) = &self.mix {
            write!(f, "({} % of {})", mix.percent(Family::Ipv6), mix.ipv6_size)?;
        }
        write!(f, "/{}", self.direction)?;
        if self.distribution != Distribution::NonMeshed {
            write!(f, "/{}", self.distribution)?;
        }
        if self.routes > 0 {
            write!(f, "/{} routes", self.routes)?;
        }
        if let Some(labels) = &self.labels {
            write!(f, "/{labels}")?;
        }
        for extension in &self.extensions {
            write!(f, "/{extension}")?;
        }
        match self.modifier {
            Modifier::None => {}
            Modifier::Filters { conditions } => write!(f, "/{conditions} filter conditions")?,
            some => write!(f, "/{some}")?,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_has_frames_of_both_families() {
        let of = |percent: f64| FamilyMix::new(percent, "64".parse().unwrap()).is_some();
        assert_eq!(
            [0.0, 0.0004, 0.001, 50.0, 99.999, 100.0, f64::NAN].map(of),
            [false, false, true, true, true, false, false]
        );
    }

    #[test]
    fn shown_for_people() {
        let families = vec![Family::Ipv4, Family::Ipv6];
        let direction = Direction::Unidirectional;
        let mut key = PatternKey {
            size: "imix".parse().unwrap(),
            families,
            mix: None,
            direction,
            distribution: Distribution::NonMeshed,
            routes: 0,
            labels: None,
            extensions: Vec::new(),
            modifier: Modifier::None,
        };
        assert_eq!(key.to_string(), "imix/ipv4+ipv6/unidirectional");
        key.mix = FamilyMix::new(15.0, "512".parse().unwrap());
        assert_eq!(key.to_string(), "imix/ipv4+ipv6(15 % of 512)/unidirectional");
        let (distribution, modifier) = (Distribution::FullyMeshed, Modifier::Broadcast);
        let meshed = PatternKey { distribution, routes: 200_000, modifier, ..key.clone() };
        assert_eq!(meshed.to_string(), format!("{key}/fully_meshed/200000 routes/broadcast"));
        assert_eq!(meshed.on_loop(), key);
        assert_eq!(key.mix.map(|mix| (mix.percent(Family::Ipv4), mix.percent(Family::Ipv6))), Some((85.0, 15.0)));
    }
}
