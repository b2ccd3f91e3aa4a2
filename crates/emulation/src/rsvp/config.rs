//! Configuration: LSPs as ranges, timers, and extensions.

use drophammer_wire::rsvp::{EXPLICIT_NULL, IMPLICIT_NULL, MAX_LABEL, Sender, Session};
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;
use std::time::Duration;

/// Maximum number of LSPs of a device.
pub const MOST_LSPS: u32 = 1_000_000;
/// Labels below this one are reserved (RFC 3032 section 2.1).
const FIRST_LABEL: u32 = 16;

/// Configuration of RSVP on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RsvpConfig {
    /// LSPs that begin at the device. They are numbered from 0, across all ranges.
    pub ingress: Vec<IngressRange>,
    /// LSPs that are expected to end at the device, numbered from 0 as well.
    pub egress: Vec<EgressRange>,
    /// Labels of LSPs that end at an address of the device, and are in no range; at most [`super::MOST_FOREIGN`] such LSPs.
    pub foreign: LabelPolicy,
    /// Refresh period R (RFC 2205 section 3.7), at least 1 ms.
    pub refresh: Duration,
    /// Each refresh comes after R, plus or minus up to this share of R in percent, at most 50. RFC 2205 says 50.
    pub jitter_percent: u8,
    /// K: state expires after (K + 0.5) * 1.5 * R without a refresh, with the R of the neighbour.
    pub keep_multiplier: u8,
    /// Refresh reduction; `None` if it is not supported.
    pub refresh_reduction: Option<RefreshReduction>,
    /// Hello requests to the gateway; `None` to answer requests only.
    pub hello: Option<HelloConfig>,
    /// Reservations ask for a confirmation.
    pub confirm: bool,
    /// Style of reservations of LSPs that end here.
    #[serde(default)]
    pub style: ReservationStyle,
}

/// Style of reservations (RFC 2205 section 1.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReservationStyle {
    /// Shared explicit if the Path asks for it, otherwise fixed filter.
    #[default]
    Asked,
    /// Always shared explicit.
    SharedExplicit,
    /// Always fixed filter.
    FixedFilter,
}

impl Default for RsvpConfig {
    /// No LSPs; R is 30 s, K is 3, no extension, and implicit null for foreign LSPs.
    fn default() -> RsvpConfig {
        RsvpConfig {
            ingress: Vec::new(),
            egress: Vec::new(),
            foreign: LabelPolicy::ImplicitNull,
            refresh: Duration::from_secs(30),
            jitter_percent: 50,
            keep_multiplier: 3,
            refresh_reduction: None,
            hello: None,
            confirm: false,
            style: ReservationStyle::Asked,
        }
    }
}

/// Refresh reduction (RFC 2961). Each part is used with neighbours that are refresh-reduction-capable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RefreshReduction {
    /// Refreshes acknowledged state by Srefresh; otherwise by whole messages with their MESSAGE_ID.
    pub summary_refresh: bool,
    /// Sends messages that are due at the same time in one Bundle.
    pub bundle: bool,
    /// Rf: time to the first retransmission. Each later one takes twice as long.
    pub retransmit: Duration,
    /// Rl: how often an unacknowledged message is sent before its normal refreshes continue.
    pub retransmit_limit: u8,
}

impl Default for RefreshReduction {
    /// All parts, with the timers of RFC 2961 section 6.
    fn default() -> RefreshReduction {
        RefreshReduction {
            summary_refresh: true,
            bundle: true,
            retransmit: Duration::from_millis(500),
            retransmit_limit: 3,
        }
    }
}

/// Hello requests (RFC 3209 section 5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HelloConfig {
    /// Time between two requests, at least 1 ms. A neighbour is lost after 3.5 intervals without a Hello.
    pub interval: Duration,
}

/// LSPs that differ in numbers only, one LSP per tunnel. Tunnels fill one endpoint after the other, and LSPs fill one sender after
/// the other, because sender and LSP ID identify an LSP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LspRange {
    /// Number of LSPs.
    pub count: u32,
    /// Egress address of the first tunnels; the next endpoints follow it.
    pub endpoint: Ipv4Addr,
    /// Number of tunnels to each endpoint.
    pub tunnels_per_endpoint: u16,
    /// First tunnel ID of each endpoint.
    pub tunnel_id: u16,
    /// Sender address of the first LSPs, and their extended tunnel ID; the next senders follow it.
    pub sender: Ipv4Addr,
    /// Number of LSPs of each sender.
    pub lsps_per_sender: u16,
    /// First LSP ID of each sender.
    pub lsp_id: u16,
}

/// Identifies an LSP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LspKey {
    /// The tunnel.
    pub session: Session,
    /// The LSP in the tunnel.
    pub sender: Sender,
}

impl LspRange {
    /// `count` LSPs with up to 50000 tunnels to each endpoint and as many LSPs of each sender; identifiers from 1 on.
    pub fn new(count: u32, sender: Ipv4Addr, endpoint: Ipv4Addr) -> LspRange {
        let (per, first) = (50_000, 1);
        LspRange {
            count,
            endpoint,
            tunnels_per_endpoint: per,
            tunnel_id: first,
            sender,
            lsps_per_sender: per,
            lsp_id: first,
        }
    }

    /// The LSP with this number in the range.
    pub fn key(&self, index: u32) -> LspKey {
        let place = |per: u16| (index / u32::from(per), (index % u32::from(per)) as u16);
        let (endpoint, tunnel) = place(self.tunnels_per_endpoint);
        let (sender, lsp) = place(self.lsps_per_sender);
        let address = Ipv4Addr::from_bits(self.sender.to_bits().wrapping_add(sender));
        LspKey {
            session: Session {
                destination: Ipv4Addr::from_bits(self.endpoint.to_bits().wrapping_add(endpoint)),
                tunnel_id: self.tunnel_id.wrapping_add(tunnel),
                extended_tunnel_id: address,
            },
            sender: Sender { address, lsp_id: self.lsp_id.wrapping_add(lsp) },
        }
    }

    /// Number in the range of this LSP.
    pub fn index(&self, key: &LspKey) -> Option<u32> {
        self.index_in(&key.session).filter(|index| self.key(*index).sender == key.sender)
    }

    /// Number in the range of the LSP in this tunnel.
    pub(super) fn index_in(&self, session: &Session) -> Option<u32> {
        let endpoint = session.destination.to_bits().checked_sub(self.endpoint.to_bits())?;
        let tunnel = session.tunnel_id.checked_sub(self.tunnel_id).filter(|t| *t < self.tunnels_per_endpoint)?;
        let index = endpoint.checked_mul(self.tunnels_per_endpoint.into())?.checked_add(tunnel.into())?;
        (index < self.count && self.key(index).session == *session).then_some(index)
    }

    fn check(&self) -> Result<(), String> {
        let last = self.count.saturating_sub(1);
        for (what, per, first) in
            [("tunnel", self.tunnels_per_endpoint, self.tunnel_id), ("LSP", self.lsps_per_sender, self.lsp_id)]
        {
            if per == 0 || u32::from(first) + u32::from(per) > 1 << 16 {
                return Err(format!("{per} {what} IDs from {first} on: use at least 1, up to 65535"));
            }
        }
        let fits = |first: Ipv4Addr, per: u16| first.to_bits().checked_add(last / u32::from(per)).is_some();
        if !(fits(self.endpoint, self.tunnels_per_endpoint) && fits(self.sender, self.lsps_per_sender)) {
            return Err("the addresses of a range exceed 255.255.255.255: use lower ones or fewer LSPs".into());
        }
        Ok(())
    }
}

/// LSPs that begin at the device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IngressRange {
    /// The LSPs.
    pub lsps: LspRange,
    /// Bandwidth of each LSP in bit/s: rate, bucket of one second, and peak rate.
    pub bandwidth: u64,
    /// Setup priority, 0 (highest) to 7.
    pub setup_priority: u8,
    /// Holding priority, 0 (highest) to 7; at least as high as the setup priority.
    pub holding_priority: u8,
    /// Hops of the explicit route. The endpoint follows as a loose hop.
    pub explicit_route: Vec<RouteHop>,
    /// Paths record the route.
    pub record_route: bool,
    /// Asks the egress for the style SE.
    pub shared_explicit: bool,
    /// Further flags of SESSION_ATTRIBUTE (RFC 3209 section 4.7, RFC 4090 section 4.3).
    #[serde(default)]
    pub flags: u8,
    /// Beginning of the names of the LSPs, at most 240 bytes; their number follows.
    pub name: String,
    /// True if the name is complete, so no number follows.
    #[serde(default)]
    pub whole_name: bool,
}

impl IngressRange {
    /// LSPs without bandwidth, with priority 7 and no hop before the endpoint.
    pub fn new(lsps: LspRange) -> IngressRange {
        IngressRange {
            lsps,
            bandwidth: 0,
            setup_priority: 7,
            holding_priority: 7,
            explicit_route: Vec::new(),
            record_route: false,
            shared_explicit: false,
            flags: 0,
            name: "lsp".into(),
            whole_name: false,
        }
    }
}

/// A hop of an explicit route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteHop {
    /// Address of the hop.
    pub address: Ipv4Addr,
    /// Length of the prefix, usually 32.
    pub prefix_len: u8,
    /// Other routers may be passed before this hop.
    pub loose: bool,
}

/// LSPs that end at the device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EgressRange {
    /// The LSPs.
    pub lsps: LspRange,
    /// Their labels.
    pub labels: LabelPolicy,
}

/// Labels that an egress hands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum LabelPolicy {
    /// Implicit null: the previous hop pops the label.
    ImplicitNull,
    /// Explicit null.
    ExplicitNull,
    /// A label for each LSP: this one for LSP 0 of the range, the next one for LSP 1.
    From(u32),
}

impl LabelPolicy {
    /// The label of the LSP with this number in its range.
    pub fn label(self, index: u32) -> u32 {
        match self {
            LabelPolicy::ImplicitNull => IMPLICIT_NULL,
            LabelPolicy::ExplicitNull => EXPLICIT_NULL,
            LabelPolicy::From(first) => first + index,
        }
    }

    fn check(self, count: u32) -> Result<(), String> {
        match self {
            LabelPolicy::From(first) if first < FIRST_LABEL || first.saturating_add(count) > MAX_LABEL + 1 => {
                Err(format!("{count} labels from {first} on: labels are 16 to {MAX_LABEL}"))
            }
            _ => Ok(()),
        }
    }
}

impl RsvpConfig {
    /// Checks all values.
    ///
    /// # Errors
    /// What is wrong, and what would be accepted.
    pub fn check(&self) -> Result<(), String> {
        let ranges = || self.ingress.iter().map(|i| &i.lsps).chain(self.egress.iter().map(|e| &e.lsps));
        if ranges().map(|range| u64::from(range.count)).sum::<u64>() > MOST_LSPS.into() {
            return Err(format!("more than {MOST_LSPS} LSPs on a device"));
        }
        ranges().try_for_each(LspRange::check)?;
        self.egress.iter().try_for_each(|range| range.labels.check(range.lsps.count))?;
        self.foreign.check(super::MOST_FOREIGN as u32)?;
        for range in &self.ingress {
            if range.setup_priority > 7 || range.holding_priority > range.setup_priority {
                return Err(format!(
                    "setup priority {} and holding priority {}: use 0 to 7, and a number for holding that is not larger",
                    range.setup_priority, range.holding_priority
                ));
            }
            if range.name.len() > 240 || range.explicit_route.len() > 100 {
                return Err("a name of more than 240 bytes, or more than 100 hops".into());
            }
        }
        let hello = self.hello.as_ref().map(|hello| hello.interval);
        let retransmit = self.refresh_reduction.as_ref().map(|reduction| reduction.retransmit);
        let times = [Some(self.refresh), hello, retransmit];
        if times.iter().flatten().any(|time| time.as_millis() < 1 || time.as_millis() > u32::MAX.into()) {
            return Err("times must be 1 ms to 49 days".into());
        }
        if self.jitter_percent > 50 {
            return Err(format!("a jitter of {} %: at most 50", self.jitter_percent));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn impossible_values_are_refused() {
        let range = || LspRange::new(10, [192, 0, 2, 1].into(), [10, 0, 0, 1].into());
        let with = |change: fn(&mut RsvpConfig)| {
            let egress = vec![EgressRange { lsps: range(), labels: LabelPolicy::From(16) }];
            let mut config = RsvpConfig { ingress: vec![IngressRange::new(range())], egress, ..RsvpConfig::default() };
            change(&mut config);
            config.check().err().unwrap_or_default()
        };
        assert_eq!(with(|_| {}), "");
        assert!(with(|c| c.egress[0].labels = LabelPolicy::From(15)).contains("labels are 16"));
        assert!(with(|c| c.egress[0].labels = LabelPolicy::From(MAX_LABEL - 8)).contains("labels are 16"));
        assert_eq!(with(|c| c.egress[0].labels = LabelPolicy::From(MAX_LABEL - 9)), "");
        assert!(with(|c| c.ingress[0].lsps.tunnel_id = 20_000).contains("50000 tunnel IDs from 20000"));
        assert!(with(|c| c.ingress[0].lsps.lsps_per_sender = 0).contains("0 LSP IDs"));
        assert!(with(|c| c.ingress[0].holding_priority = 8).contains("priority 8"));
        assert!(with(|c| c.ingress[0].lsps.count = MOST_LSPS).contains("more than 1000000"));
        assert!(with(|c| c.refresh = Duration::ZERO).contains("1 ms"));
        assert!(with(|c| c.jitter_percent = 51).contains("51 %"));
        let last = |c: &mut RsvpConfig| {
            c.ingress[0].lsps.endpoint = [255, 255, 255, 255].into();
            c.ingress[0].lsps.tunnels_per_endpoint = 9;
        };
        assert!(with(last).contains("255.255.255.255"));
    }

    proptest! {
        #[test]
        fn numbers_and_keys_belong_together(
            count in 1u32..200_000, per_endpoint in 1u16..60_000, per_sender in 1u16..60_000, at: u32, other: u32,
        ) {
            let range = LspRange {
                tunnels_per_endpoint: per_endpoint,
                lsps_per_sender: per_sender,
                ..LspRange::new(count, [192, 0, 2, 1].into(), [10, 0, 0, 1].into())
            };
            let (at, other) = (at % count, other % count);
            let (a, b) = (range.key(at), range.key(other));
            prop_assert_eq!(range.index(&a), Some(at));
            prop_assert_eq!(a.sender == b.sender, at == other, "sender and LSP ID name the LSP");
            prop_assert_eq!(range.index(&range.key(count)), None);
            prop_assert_eq!(range.index(&LspKey { session: a.session, sender: b.sender }).is_some(), at == other);
        }
    }
}
