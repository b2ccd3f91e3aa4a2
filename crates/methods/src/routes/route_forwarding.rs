//! Waits for the forwarding plane: a router may advertise a route before it forwards by it (RFC 7747 section 5.1).

use crate::kit::prelude::*;
use crate::route_probe::{CLEAN, Probe};
use crate::route_tests::{self, Case, PATIENCE, REFUSED, follow, must_be_complete, patience, thousands};
use crate::route_traffic::Stream;
use crate::routing::{Packing, PeerIndex};

/// Interval at which the number of routes is read.
const LOOK: Duration = Duration::from_millis(100);
/// Minimum number of probes of [`load_paths`] for this many origins. The probes of the last origin are omitted if the
/// DUT reports its number of routes.
pub fn least_probes(origins: usize) -> usize {
    origins.saturating_sub(1) * CLEAN as usize
}

/// Frames to routes to which the DUT must forward.
#[derive(Clone, Debug)]
pub struct Way {
    /// The frames; all of them must arrive at the port of this stream.
    pub stream: Stream,
    /// Load of the test; a probe has a lower load.
    pub rate: FrameRate,
}

impl Way {
    fn family(&self) -> Family {
        self.stream.routes.family()
    }

    /// Number of target routes of the frames.
    pub fn routes(&self) -> u64 {
        self.stream.part.len() as u64
    }
}

/// Waits until the DUT has `count` routes in its forwarding plane, if it reports their number; otherwise until frames
/// to every route of `way` arrive. If this does not happen in time, adds a note, and the test continues anyway.
///
/// # Errors
/// Errors of a trial.
pub fn await_installed(
    bed: &mut dyn Testbed,
    params: &Params,
    outcome: &mut Outcome,
    way: &Way,
    count: u64,
) -> Result<(), TestError> {
    let left = match count_reaches(bed, way.family(), count, patience(params))? {
        Some(reached) => reached.err(),
        None => comes_through(bed, params, way)?,
    };
    note_unready(outcome, way, left);
    Ok(())
}

/// Waits until frames to every route of `way` arrive at the right port. The number of routes in the DUT is not enough
/// here, because it does not show where they lead. If the frames do not arrive in time, adds a note, and the test
/// continues.
///
/// # Errors
/// Errors of a trial.
pub fn await_way(bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome, way: &Way) -> Result<(), TestError> {
    let left = comes_through(bed, params, way)?;
    note_unready(outcome, way, left);
    Ok(())
}

fn note_unready(outcome: &mut Outcome, way: &Way, left: Option<String>) {
    if let Some(why) = left {
        note(outcome, format!("{}: the forwarding plane was not ready: {why}; measured nevertheless.", way.family()));
    }
}

/// Waits for the number of routes. `None` if the DUT does not report it; `Err` with the difference if the number did
/// not get closer for `patience`.
fn count_reaches(
    bed: &mut dyn Testbed,
    family: Family,
    count: u64,
    patience: Duration,
) -> Result<Option<Result<(), String>>, TestError> {
    let (mut before, mut nearest, mut moved_s) = (None, u64::MAX, bed.routing()?.now_s());
    loop {
        let routing = bed.routing()?;
        let Some(routes) = routing.dut().fib_routes(family) else { return Ok(None) };
        if routes == count && before == Some(routes) {
            return Ok(Some(Ok(())));
        }
        let (off, now_s) = (routes.abs_diff(count), routing.now_s());
        if off < nearest {
            (nearest, moved_s) = (off, now_s);
        } else if now_s - moved_s > patience.as_secs_f64() {
            return Ok(Some(Err(format!(
                "it holds {} routes instead of {}, and the number did not get closer for {} s",
                thousands(routes),
                thousands(count),
                patience.as_secs_f64()
            ))));
        }
        before = Some(routes);
        bed.settle(LOOK)?;
    }
}

/// Probes the way. Returns a description of the loss if it did not shrink for the patience of the test.
fn comes_through(bed: &mut dyn Testbed, params: &Params, way: &Way) -> Result<Option<String>, TestError> {
    let probe = Probe { family: way.family(), streams: vec![way.stream.clone()], rate: way.rate, per_route: true };
    let left = probe.comes_through(bed, params)?;
    Ok(left.map(|result| lost_of(&result, way, patience(params).as_secs_f64())))
}

fn lost_of(result: &TrialResult, way: &Way, patience_s: f64) -> String {
    let counts = result.destinations.first();
    let missed: Vec<u32> = counts.map_or_else(Vec::new, |counts| {
        let pairs = (way.stream.part.start..).zip(counts.offered.iter().zip(&counts.received));
        pairs.filter(|(_, (offered, received))| received < offered).map(|(route, _)| route).collect()
    });
    let example =
        missed.first().map_or(String::new(), |first| format!(", such as {},", way.stream.routes.prefix(*first)));
    format!(
        "frames to {} of {} routes{example} did not arrive at the right port, and the loss did not shrink for {patience_s} s",
        thousands(missed.len() as u64),
        thousands(way.routes())
    )
}

/// Brings the sessions up again and advertises all routes at each of `origins`. The first has the shortest AS path, and
/// each subsequent one has a path longer by two. The last one advertises first, and the DUT forwards to its routes
/// before the next one advertises, so that every alternate path has been in use. `observer` must then have all routes
/// of the first.
///
/// # Errors
/// [`TestError::Failed`] if the router does not accept the table; errors of a trial.
pub fn load_paths(
    bed: &mut dyn Testbed,
    params: &Params,
    outcome: &mut Outcome,
    case: &Case,
    observer: PeerIndex,
    origins: &[PeerIndex],
    rate: FrameRate,
) -> Result<(), TestError> {
    bed.routing()?.reset(PATIENCE.get(params))?;
    let sessions: Vec<PeerIndex> = std::iter::once(observer).chain(origins.iter().copied()).collect();
    route_tests::establish(bed, &sessions, params)?;
    let watch = bed.routing()?.watch(observer, origins[0], &case.all);
    for (place, peer) in origins.iter().enumerate().rev() {
        let longer = Packing { prepend: 2 * place as u8, ..case.packing };
        let advertise = Case { packing: longer, ..case.clone() }.advertise(*peer, case.whole());
        if place == 0 {
            let settled = follow(bed, params, &advertise, watch)?;
            must_be_complete(bed, watch, &settled, || REFUSED.into())?;
        } else {
            let routing = bed.routing()?;
            routing.act(&advertise)?;
            let settled = routing.await_settled(&[], PATIENCE.get(params))?;
            if !settled.complete {
                return Err(TestError::Failed(format!("{REFUSED}: {}", settled.cause)));
            }
        }
        let way = Way { stream: case.stream(observer, *peer, case.whole()), rate };
        if place + 1 == origins.len() {
            await_installed(bed, params, outcome, &way, case.all.len().into())?;
        } else {
            await_way(bed, params, outcome, &way)?;
        }
    }
    Ok(())
}
