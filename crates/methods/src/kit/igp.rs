//! Interface of a test to the emulated P routers as neighbours in OSPF (RFC 2328) and LDP (RFC 5036).
//!
//! Behind some core ports are prefixes, the same ones behind each of these ports. OSPF advertises each of them in an AS-external-LSA, LDP
//! with a label of its own. The actions [`RouteAction::Igp`] advertise and withdraw parts, also during a trial.

use crate::routing::RouteAction;
use crate::testbed::{TestError, Testbed};
use drophammer_model::label_edge::CoreProtocol;
use drophammer_model::routes::{AttributePattern, Order, Prefix, RouteRange, Routes};
use drophammer_model::trial::PortIndex;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// The first prefix.
pub const FIRST: Ipv4Addr = Ipv4Addr::new(20, 0, 0, 0);
/// Length of all prefixes.
pub const LENGTH: u8 = 24;
/// Label of the first prefix at each P router; the others follow.
pub const FIRST_LABEL: u32 = 1_000;
/// Maximum number of prefixes.
pub const MOST: u32 = 65_536;

/// What the P routers have behind them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IgpPlan {
    /// Number of prefixes, at most [`MOST`].
    pub prefixes: u32,
    /// Core ports with the prefixes behind them, the one with the lowest metric first.
    pub behind: Vec<PortIndex>,
    /// True if LDP starts, too, at all core ports that have it.
    pub ldp: bool,
}

impl IgpPlan {
    /// The prefixes as destinations of frames, in order.
    ///
    /// # Errors
    /// Too many prefixes.
    pub fn routes(&self) -> Result<Arc<Routes>, TestError> {
        let failed =
            |why: String| TestError::NotApplicable(format!("{} prefixes from {FIRST}/{LENGTH}: {why}", self.prefixes));
        if self.prefixes > MOST {
            return Err(failed(format!("the tester has at most {MOST}")));
        }
        let first = Prefix::masked(FIRST.into(), LENGTH).ok_or_else(|| failed("no prefix".into()))?;
        let range = RouteRange::uniform(first, self.prefixes, 1, AttributePattern::internet(0));
        let range = range.map_err(|e| failed(e.to_string()))?.in_order(Order::Sorted);
        Ok(Arc::new(Routes::Range(range)))
    }

    /// Metric of the prefixes behind a port: 10 for the first port, 20 for the second one.
    pub fn metric(&self, port: PortIndex) -> Option<u32> {
        self.behind.iter().position(|own| *own == port).map(|place| 10 * (place as u32 + 1))
    }
}

/// How many messages of OSPF and LDP a P router has sent and received since it started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IgpCounts {
    /// Link State Updates sent and received.
    pub updates: [u64; 2],
    /// LSAs sent a second time.
    pub lsas_retransmitted: u64,
    /// Label mappings sent and received.
    pub mappings: [u64; 2],
    /// OSPF adjacencies and LDP sessions that ended without a command.
    pub lost: u64,
    /// Packets of the DUT that were missing between others of the BFD session, at least.
    pub bfd_missing: u64,
    /// Time in which more Link State Updates waited for their turn than one, because the P router sends them one after the other.
    pub flooding: Duration,
}

impl IgpCounts {
    fn with(self, other: &IgpCounts, of: impl Fn(u64, u64) -> u64, flooding: Duration) -> IgpCounts {
        let both = |own: [u64; 2], other: [u64; 2]| [of(own[0], other[0]), of(own[1], other[1])];
        IgpCounts {
            updates: both(self.updates, other.updates),
            lsas_retransmitted: of(self.lsas_retransmitted, other.lsas_retransmitted),
            mappings: both(self.mappings, other.mappings),
            lost: of(self.lost, other.lost),
            bfd_missing: of(self.bfd_missing, other.bfd_missing),
            flooding,
        }
    }
}

impl std::ops::Add for IgpCounts {
    type Output = IgpCounts;
    fn add(self, other: IgpCounts) -> IgpCounts {
        let flooding = self.flooding + other.flooding;
        self.with(&other, u64::saturating_add, flooding)
    }
}

impl std::ops::Sub for IgpCounts {
    type Output = IgpCounts;
    fn sub(self, before: IgpCounts) -> IgpCounts {
        let flooding = self.flooding.saturating_sub(before.flooding);
        self.with(&before, u64::saturating_sub, flooding)
    }
}

/// The emulated P routers behind the core ports.
pub trait Igp {
    /// Stops the P routers, and starts them with `plan` at all core ports with OSPF. Waits until all adjacencies and sessions are up. The PE
    /// router behind each P router is advertised from the start, the prefixes are not. Returns the time that this took.
    ///
    /// # Errors
    /// [`TestError::Failed`] with the port and protocol that is not up after `within`.
    fn start(&mut self, plan: &IgpPlan, within: Duration) -> Result<Duration, TestError>;

    /// Begins an action.
    ///
    /// # Errors
    /// [`TestError::NotApplicable`] for an action of other routers, or for prefixes that the port does not have.
    fn act(&mut self, action: &RouteAction) -> Result<(), TestError>;

    /// Waits until the DUT has acknowledged all LSAs and the P routers have sent all labels. Returns false if this is not so after
    /// `within`.
    ///
    /// # Errors
    /// [`TestError::Interrupted`], [`TestError::DutDied`].
    fn await_settled(&mut self, within: Duration) -> Result<bool, TestError>;

    /// Waits until the DUT has advertised a label for each of these prefixes to the P router behind `port`. Returns the time that this took;
    /// `None` if it did not after `within`.
    ///
    /// # Errors
    /// [`TestError::Interrupted`], [`TestError::DutDied`].
    fn await_labels(
        &mut self,
        port: PortIndex,
        part: Range<u32>,
        within: Duration,
    ) -> Result<Option<Duration>, TestError>;

    /// The DUT's label for each of these prefixes, as the P router behind `port` knows it; 3 is implicit null.
    fn labels(&self, port: PortIndex, part: Range<u32>) -> Vec<Option<u32>>;

    /// Waits until the DUT has advertised a label, which may be implicit null, for the PE router behind port `of` to the P router behind `port`. `None` if it did
    /// not after `within`.
    ///
    /// # Errors
    /// [`TestError::Interrupted`], [`TestError::DutDied`].
    fn await_pe_label(&mut self, port: PortIndex, of: PortIndex, within: Duration) -> Result<Option<u32>, TestError>;

    /// What the P router behind `port` has sent and received.
    fn counts(&self, port: PortIndex) -> IgpCounts;
}

/// Core ports with all of these protocols.
///
/// # Errors
/// [`TestError::NotApplicable`] if there are fewer than `least`.
pub fn core_ports(bed: &dyn Testbed, protocols: &[CoreProtocol], least: usize) -> Result<Vec<PortIndex>, TestError> {
    let has = |port: &usize| protocols.iter().all(|protocol| bed.ports()[*port].core.contains(protocol));
    let ports: Vec<_> = (0..bed.ports().len()).filter(has).collect();
    if ports.len() < least {
        let words = protocols.iter().map(|protocol| protocol.word()).collect::<Vec<_>>().join(", ");
        let why = format!("it needs {least} ports with `core: [{words}]`; the suite has {}", ports.len());
        return Err(TestError::NotApplicable(why));
    }
    Ok(ports)
}
