//! What route tests share: parameters, tables of routes, and what is said of a session that ended.

use crate::parameters;
use crate::report::note;
use crate::routing::{Packing, PeerIndex, Routing, Settled, WatchIndex};
use crate::testbed::{TestError, Testbed};
use drophammer_model::capabilities::Need;
use drophammer_model::outcome::Outcome;
use drophammer_model::registry::{ParamKind, ParamSpec};
use drophammer_model::routes::Routes;
use drophammer_model::suite::Params;
use drophammer_model::trial::{Family, PortIndex};
use std::sync::Arc;
use std::time::Duration;

/// Role that a DUT of a route test without traffic plays; with it see [`crate::route_traffic::NEEDS`].
pub const NEEDS: &[Need] = &[Need::Bgp];

/// Where a value stands that no RFC has.
pub const CONFORMANT: &str = "default of the profile conformant";

/// `families`
pub const FAMILIES: ParamSpec =
    ParamSpec::new("families", ParamKind::Families, "[ipv4]", "[ipv4, ipv6]", "IP versions, one after the other");
/// `table`
pub const TABLE: ParamSpec = ParamSpec::new(
    "table",
    ParamKind::Text,
    "internet",
    "internet",
    "routes: `internet` (prefix lengths and attributes distributed as in the Internet), `uniform` (one length), or an MRT file (RFC 6396)",
);
/// `routes_per_update`
pub const PER_UPDATE: ParamSpec = ParamSpec::new(
    "routes_per_update",
    ParamKind::Text,
    "fit",
    "fit",
    "routes in one UPDATE message at most: a number, or `fit` for as many as share attributes and fit",
);
/// `patience`
pub const PATIENCE: ParamSpec = ParamSpec::new(
    "patience",
    ParamKind::Duration,
    "10 s",
    "60 s",
    "routes are given up when nothing has changed for this long",
);
/// `establish`
pub const ESTABLISH: ParamSpec =
    ParamSpec::new("establish", ParamKind::Duration, "20 s", "120 s", "time for the sessions to come up");

/// What all tests that load a table have at the end of their parameters.
pub const SESSIONS: [ParamSpec; 3] = [PER_UPDATE, PATIENCE, ESTABLISH];

/// The families of a test.
pub fn families(params: &Params) -> Vec<Family> {
    params.families("families").unwrap_or_else(|| vec![Family::Ipv4])
}

/// `patience`.
pub fn patience(params: &Params) -> Duration {
    params.duration("patience").unwrap_or(Duration::from_secs(60))
}

/// `establish`.
pub fn establish_within(params: &Params) -> Duration {
    params.duration("establish").unwrap_or(Duration::from_secs(120))
}

/// `routes_per_update`.
///
/// # Errors
/// Neither a number from 1 to 65,535 nor `fit`.
pub fn packing(params: &Params) -> Result<Packing, TestError> {
    let text = params.text("routes_per_update").unwrap_or_else(|| "fit".into());
    let routes_per_update = match text.as_str() {
        "fit" => 0,
        number => number.parse().ok().filter(|n| *n > 0).ok_or_else(|| {
            TestError::NotApplicable(format!("`routes_per_update: {number}` is neither `fit` nor 1 to 65535"))
        })?,
    };
    Ok(Packing { routes_per_update, ..Packing::default() })
}

/// The first session of each port in `family`, in the order of the ports.
///
/// # Errors
/// Fewer than `least` ports have one.
pub fn one_per_port(bed: &mut dyn Testbed, family: Family, least: usize) -> Result<Vec<PeerIndex>, TestError> {
    let mut ports: Vec<PortIndex> = Vec::new();
    let mut found = Vec::new();
    for (index, peer) in bed.routing()?.peers().iter().enumerate() {
        if peer.family == family && !ports.contains(&peer.port) {
            ports.push(peer.port);
            found.push(index);
        }
    }
    if found.len() < least {
        return Err(TestError::NotApplicable(format!(
            "this test needs {least} ports with {family} sessions, the suite has {}",
            found.len()
        )));
    }
    Ok(found)
}

/// Routes of a test by its parameter `table`.
///
/// # Errors
/// A file that cannot be read, or that has fewer routes.
pub fn table(bed: &mut dyn Testbed, params: &Params, family: Family, count: u32) -> Result<Arc<Routes>, TestError> {
    let source = params.text("table").unwrap_or_else(|| "internet".into());
    bed.routing()?.table(&source, family, count)
}

/// Brings sessions up from scratch.
///
/// # Errors
/// Those of [`Routing::establish`].
pub fn establish(bed: &mut dyn Testbed, peers: &[PeerIndex], params: &Params) -> Result<Vec<Duration>, TestError> {
    bed.routing()?.establish(peers, establish_within(params))
}

/// The sessions of `peers` that went down since they were established, and why each did.
pub fn losses(routing: &dyn Routing, peers: &[PeerIndex]) -> Vec<String> {
    let told = |peer: &PeerIndex| {
        let session = routing.session(*peer);
        let name = &routing.peers()[*peer].name;
        (session.losses > 0).then(|| format!("the session of {name} went down: {}", session.cause))
    };
    peers.iter().filter_map(told).collect()
}

/// Notes them.
///
/// # Errors
/// A bed without routers.
pub fn note_losses(
    bed: &mut dyn Testbed,
    family: Family,
    peers: &[PeerIndex],
    outcome: &mut Outcome,
) -> Result<(), TestError> {
    for lost in losses(bed.routing()?, peers) {
        note(outcome, format!("{family}: {lost}"));
    }
    Ok(())
}

/// Says what is wrong with a watch that is not complete, in words.
pub fn complaint(routing: &dyn Routing, watch: WatchIndex, settled: &Settled) -> String {
    let v = routing.verified(watch);
    let mut said = Vec::new();
    let mut say = |count: u64, what: &str| {
        if count > 0 {
            said.push(format!("{count} {what}"));
        }
    };
    say(v.missing, "missing");
    say(v.wrong, "with wrong attributes");
    say(v.lingering, "not withdrawn");
    say(v.unexpected, "unexpected");
    say(v.withdrawn_in_error, "withdrawn in error");
    if !settled.cause.is_empty() {
        said.push(settled.cause.clone());
    }
    said.join(", ")
}

/// Cells of the DUT's memory: the sum, in MiB.
pub fn memory_mib(memory: &[(String, u64)]) -> Option<f64> {
    (!memory.is_empty()).then(|| memory.iter().map(|(_, bytes)| *bytes).sum::<u64>() as f64 / 1_048_576.0)
}

/// A figure is the tester's own where the tester alone needs this share of the time.
pub const TESTER_LIMITED: f64 = 0.5;

/// Was the tester late for so much of this time that it is its own?
pub fn tester_late(settled: &Settled, time_s: f64) -> bool {
    settled.sending.late_s > TESTER_LIMITED * time_s
}

/// The number of routes of parameter `key`.
pub fn routes(params: &Params, key: &str) -> u32 {
    parameters::count(params, key)
}

/// Routes per second; `None` for a time shorter than the instants of UPDATEs are worth.
pub fn rate(routes: u64, time_s: f64) -> Option<f64> {
    (time_s > 1e-6).then(|| routes as f64 / time_s)
}

/// How a number of routes is written: `200,000`.
pub fn thousands(routes: u64) -> String {
    let digits = routes.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Runs `each` for every family of the test, with the sessions ended and the routes gone after each. A family that does not
/// apply is noted, and the others still run.
///
/// # Errors
/// The first that [`TestError::NotApplicable`] is not, else that if no family applied.
pub fn for_each_family(
    bed: &mut dyn Testbed,
    params: &Params,
    notes: &mut Vec<String>,
    mut each: impl FnMut(&mut dyn Testbed, Family, &mut Vec<String>) -> Result<(), TestError>,
) -> Result<(), TestError> {
    let (mut skipped, mut done) = (None, 0);
    for family in families(params) {
        let result = each(bed, family, notes);
        // Whatever came of it, the next test begins without routes; a DUT that is gone has none.
        let cleared = match &result {
            Err(TestError::DutDied(_) | TestError::Interrupted | TestError::Store(_)) => Ok(()),
            _ => bed.routing().and_then(|r| r.reset(patience(params))),
        };
        match result {
            Ok(()) => done += 1,
            Err(TestError::NotApplicable(why)) => {
                notes.push(format!("{family} not tested: {why}"));
                skipped.get_or_insert(TestError::NotApplicable(why));
            }
            Err(other) => return Err(other),
        }
        cleared?;
    }
    match skipped {
        Some(error) if done == 0 => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_takes_time() {
        assert_eq!((rate(500, 0.25), rate(500, 0.0), rate(500, 1e-9)), (Some(2_000.0), None, None));
    }

    #[test]
    fn numbers_for_people() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(40_000), "40,000");
        assert_eq!(thousands(2_400_000), "2,400,000");
    }
}
