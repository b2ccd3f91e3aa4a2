//! A trial laid out before it starts: everything that the packet path needs is computed and allocated here.

use crate::analyzer::{Analyzer, destination};
use crate::generator::PortGenerator;
use crate::payload::Pattern;
use drophammer_model::quantity::Instant;
use drophammer_model::trial::{Family, Load, PortIndex, TrialSpec};
use drophammer_wire::MacAddr;
use drophammer_wire::signature::{MAX_FLOWS, TrialKey};

/// What a tester port knows of its link.
#[derive(Clone, Copy, Debug, Default)]
pub struct Neighbour {
    /// Our address.
    pub mac: MacAddr,
    /// The device's address as ARP told it.
    pub device_ipv4: Option<MacAddr>,
    /// The device's address as neighbour discovery told it.
    pub device_ipv6: Option<MacAddr>,
}

impl Neighbour {
    fn device(&self, family: Family) -> Option<MacAddr> {
        match family {
            Family::Ipv4 => self.device_ipv4,
            Family::Ipv6 => self.device_ipv6,
        }
    }
}

/// Identity of a trial within a run.
#[derive(Clone, Debug)]
pub struct Timing {
    /// Seed of the run: the same addresses in all trials (RFC 4814).
    pub seed: u64,
    /// Key of this trial.
    pub key: TrialKey,
    /// Keys of trials before it, to recognise stale frames.
    pub earlier: Vec<TrialKey>,
    /// Backlog up to which a late generator catches up, in ns of load; what is later is not sent. It catches up at 1.2
    /// times the load at most, so that no burst is offered that was not asked for.
    pub max_backlog_ns: u64,
    /// A frame that arrives later than this after its departure is counted as late, in ns.
    pub late_ns: u64,
}

/// Why a trial cannot be laid out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A flow names a port that does not exist.
    #[error("flow {flow} uses port {port}, but there are {ports} ports")]
    NoSuchPort {
        /// Flow, from 0.
        flow: usize,
        /// Port named.
        port: PortIndex,
        /// Ports that exist.
        ports: usize,
    },
    /// The device's MAC address on a port is not known.
    #[error("the device does not answer on port {port} for {family} (no MAC address)")]
    NoNeighbour {
        /// Port.
        port: PortIndex,
        /// IP version.
        family: Family,
    },
    /// Addresses do not fit the flow's family, or there are none.
    #[error("flow {flow}: addresses do not fit {family}")]
    WrongAddresses {
        /// Flow, from 0.
        flow: usize,
        /// IP version.
        family: Family,
    },
    /// No flow, too many flows, or nothing to send.
    #[error("{0}")]
    Empty(String),
}

/// A trial, ready to run.
pub struct Plan {
    pub(crate) generators: Vec<PortGenerator>,
    pub(crate) analyzer: Analyzer,
    pub(crate) groups: Vec<String>,
    pub(crate) drain_ns: u64,
    pub(crate) maximum: bool,
}

/// Bits that all flows together may use to tell duplicates from late frames (256 MiB).
const WINDOW_BUDGET: u64 = 1 << 31;
/// Time bins at most per group.
pub(crate) const MAX_BINS: usize = 1_000_000;

impl Plan {
    /// Lays out `spec` over `ports`.
    ///
    /// # Errors
    /// [`PlanError`]; nothing has been sent.
    pub fn new(spec: &TrialSpec, ports: &[Neighbour], timing: &Timing) -> Result<Plan, PlanError> {
        if spec.flows.is_empty() || spec.flows.len() > MAX_FLOWS as usize {
            return Err(PlanError::Empty(format!("a trial has 1 to {MAX_FLOWS} flows, not {}", spec.flows.len())));
        }
        let mut groups: Vec<String> = Vec::new();
        for (i, flow) in spec.flows.iter().enumerate() {
            for port in [flow.from, flow.to] {
                if port >= ports.len() {
                    return Err(PlanError::NoSuchPort { flow: i, port, ports: ports.len() });
                }
            }
            for range in [&flow.sources, &flow.destinations] {
                if range.first.is_ipv4() != (flow.family == Family::Ipv4) || range.count == 0 {
                    return Err(PlanError::WrongAddresses { flow: i, family: flow.family });
                }
            }
            if ports[flow.from].device(flow.family).is_none() {
                return Err(PlanError::NoNeighbour { port: flow.from, family: flow.family });
            }
            if !(flow.weight.is_finite() && flow.weight > 0.0) {
                return Err(PlanError::Empty(format!("flow {i} has no share of the load")));
            }
            if !groups.contains(&flow.group) {
                groups.push(flow.group.clone());
            }
        }
        let pattern = Pattern::new(timing.seed);
        let bin_ns = spec.bin_s.map(|s| (s * 1e9).round() as u64).filter(|ns| *ns > 0);
        let bins = bin_ns.map_or(0, |ns| {
            let span = spec.sending_time().as_nanos() as f64 + spec.drain_s * 1e9;
            (((span / ns as f64).ceil() as usize) + 1).min(MAX_BINS)
        });
        let mut generators = Vec::new();
        for port in spec.senders() {
            let device = |family| ports[port].device(family).unwrap_or_default();
            generators.push(PortGenerator::new(
                spec,
                port,
                ports[port].mac,
                &device,
                &groups,
                timing,
                &pattern,
                bin_ns,
                bins,
            )?);
        }
        if generators.iter().all(|g| g.total() == 0) {
            return Err(PlanError::Empty("the load is less than one frame".into()));
        }
        let frames: Vec<u64> = {
            let mut frames = vec![0; spec.flows.len()];
            generators.iter().for_each(|g| g.planned(&mut frames));
            frames
        };
        let window = (WINDOW_BUDGET / spec.flows.len() as u64).max(64);
        let hosts = ports.iter().map(|p| destination(&[p.mac.0.as_slice(), &[0; 2]].concat())).collect();
        let analyzer = Analyzer::new(spec, hosts, &groups, &frames, window, timing, pattern, bin_ns, bins);
        Ok(Plan {
            generators,
            analyzer,
            groups,
            drain_ns: (spec.drain_s.max(0.0) * 1e9).round() as u64,
            maximum: matches!(spec.load, Load::Maximum { .. }),
        })
    }

    /// Generators and analyzer of a trial that starts at `start`, for those who drive them without ports and clock.
    pub fn into_parts(mut self, start: Instant) -> (Vec<PortGenerator>, Analyzer) {
        self.begin(start);
        (self.generators, self.analyzer)
    }

    /// The trial starts at `start`.
    pub(crate) fn begin(&mut self, start: Instant) {
        self.generators.iter_mut().for_each(|g| g.begin(start));
        self.analyzer.begin(start);
    }
}
