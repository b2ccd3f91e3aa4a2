//! `drophammer bfd`.

use super::{Job, Link, run as run_job};
use crate::Ended;
use crate::args::BfdArgs;
use drophammer_model::quantity::show_duration;
use drophammer_rig::ProtocolConfig;
use drophammer_rig::bfd::{self, SessionConfig};

/// `drophammer bfd`.
pub fn run(args: &BfdArgs) -> Ended {
    run_job(&args.link, read(args))
}

fn read(args: &BfdArgs) -> Result<(Link, Job), String> {
    let link = Link::read(&args.link)?;
    let micros = u32::try_from(args.interval.as_micros()).ok().filter(|us| *us > 0);
    let interval =
        micros.ok_or_else(|| format!("--interval: {} is not in 1us to 71 min", show_duration(args.interval)))?;
    let config = SessionConfig {
        desired_min_tx: interval,
        required_min_rx: interval,
        detect_mult: args.multiplier,
        passive: args.passive,
        ..SessionConfig::new(link.gateway)
    };
    let (address, gateway) = (link.address, link.gateway);
    let job = Job {
        protocol: bfd::NAME,
        session: "session",
        config: ProtocolConfig::Bfd(vec![config]),
        also: Vec::new(),
        commands: Vec::new(),
        headline: format!(
            "BFD from {address} to {gateway}, interval {}, multiplier {}",
            show_duration(args.interval),
            args.multiplier
        ),
        lost: &["sessions_down"],
        columns: &[
            ("packets sent", "packets_sent"),
            ("received", "packets_received"),
            ("discarded", "packets_discarded"),
            ("went down", "sessions_down"),
        ],
        advice: (!args.passive)
            .then(|| format!("check that the router has a BFD session with {address} on the interface with {gateway}")),
    };
    Ok((link, job))
}
