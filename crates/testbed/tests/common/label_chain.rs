//! P routers in a row between two emulated ones: frames with labels in both directions.

use super::read_suite;
use drophammer_methods::igp::IgpPlan;
use drophammer_methods::igp_traffic::IgpCase;
use drophammer_methods::{Change, TestError, Testbed};
use drophammer_model::label_edge::CoreProtocol;
use drophammer_model::quantity::FrameRate;
use drophammer_model::suite::{Params, Suite};
use drophammer_model::trial::TrialResult;
use drophammer_testbed::setup::TestSetup;
use std::time::Duration;

/// Number of FECs.
pub const FECS: u32 = 50;
/// Frames to each FEC.
pub const FRAMES: u64 = 20;
/// Frames of a trial.
pub const ALL: u64 = FECS as u64 * FRAMES;
/// Sending and receiving port of each direction.
pub const WAYS: [(usize, usize); 2] = [(0, 1), (1, 0)];
const RATE: FrameRate = FrameRate(2_000.0);
/// Time limit for each step before the frames.
const LIMIT: Duration = Duration::from_secs(60);

/// A suite with this DUT of `routers` routers.
pub fn suite(kind: &str, routers: usize) -> Suite {
    let topology = if routers > 1 { format!(", topology: {{chain: {routers}}}") } else { String::new() };
    let port = |name| format!("{{name: {name}, speed: 100 Mbit/s, ipv6: off, mtu: 1600, core: [ospf, ldp]}}");
    read_suite(&format!(
        "suite: row\nprofile: quick\nseed: 11\nduts: [{{name: row, kind: {kind}{topology}}}]\n\
         ports: [{}, {}]\ntests: [{{ldp_capacity: {{drain: 500 ms}}}}]\n",
        port("p1"),
        port("p2")
    ))
}

/// One direction.
pub struct Way {
    case: IgpCase,
    /// The label of each FEC at the router where the frames enter.
    pub first: Vec<u32>,
    /// The label of each FEC at the router where they leave.
    pub second: Vec<u32>,
}

/// Lets the P router behind the receiving port advertise the FECs, and waits until frames to all of them arrive. Both routers advertise their
/// labels to every neighbour (RFC 5036 section 2.6.1), so each P router of the tester hears those of its own.
pub fn prepare(bed: &mut TestSetup<'_>, params: &Params, (sender, receiver): (usize, usize)) -> Result<Way, TestError> {
    let plan = IgpPlan { prefixes: FECS, behind: vec![receiver], ldp: true };
    let case = IgpCase { protocol: CoreProtocol::Ldp, sender, routes: plan.routes()?, plan, rate: RATE };
    bed.igp()?.start(&case.plan, LIMIT)?;
    case.await_links(bed, params, LIMIT)?;
    for protocol in [CoreProtocol::Ospf, CoreProtocol::Ldp] {
        bed.igp()?.act(&case.action(receiver, protocol, Change::Advertise, case.whole()))?;
    }
    let mut labels = |port| {
        bed.igp()?.await_labels(port, case.whole(), LIMIT)?;
        let known: Option<Vec<u32>> = bed.igp()?.labels(port, case.whole()).into_iter().collect();
        known.ok_or_else(|| TestError::Failed(format!("a router has no label for a FEC after {LIMIT:?}")))
    };
    let (first, second) = (labels(sender)?, labels(receiver)?);
    case.await_prefixes(bed, params, case.whole(), LIMIT)?;
    Ok(Way { case, first, second })
}

/// Sends [`FRAMES`] frames to each FEC.
pub fn send(bed: &mut TestSetup<'_>, params: &Params, way: &Way) -> Result<TrialResult, TestError> {
    let flows = way.case.flows(bed, way.case.whole())?;
    let trial = way.case.trial(bed, params, "labelled frames".into(), flows, ALL as f64 / RATE.pps(), &[])?;
    Ok(bed.run(&trial)?.result)
}

/// Returns what is wrong if not every frame of every FEC arrived once, at the right port, with the right label and TTLs.
pub fn unclean(result: &TrialResult) -> Option<String> {
    let [group] = &result.groups[..] else { return Some(format!("{} groups", result.groups.len())) };
    let right = (group.offered, group.received) == (ALL, ALL)
        && group.deviations.is_empty()
        && group.stray + group.corrupted + group.duplicated == 0;
    let each = result.destinations.iter().flat_map(|counts| &counts.received);
    let (fecs, full) = (each.clone().count(), each.clone().all(|frames| u64::from(*frames) == FRAMES));
    (!right || fecs != FECS as usize || !full)
        .then(|| format!("{group:?}, frames of each FEC: {:?}", each.collect::<Vec<_>>()))
}
