//! `drophammer rsvp`.

use super::{Job, Link, run as run_job};
use crate::Ended;
use crate::args::RsvpArgs;
use drophammer_model::quantity::group_digits;
use drophammer_rig::rsvp::{
    self, HelloConfig, IngressRange, LspRange, Pace, RefreshReduction, RouteHop, RsvpCommand, RsvpConfig,
};
use drophammer_rig::{Command, ProtocolConfig};

/// `drophammer rsvp`.
pub fn run(args: &RsvpArgs) -> Ended {
    run_job(&args.link, read(args))
}

fn read(args: &RsvpArgs) -> Result<(Link, Job), String> {
    let link = Link::read(&args.link)?;
    let [address, neighbour] = link.ipv4("RSVP-TE")?;
    let mut config = RsvpConfig {
        refresh: args.refresh,
        refresh_reduction: args.refresh_reduction.then(RefreshReduction::default),
        hello: args.hello.map(|interval| HelloConfig { interval }),
        ..RsvpConfig::default()
    };
    let (mut commands, mut what) = (Vec::new(), format!("answers LSPs to {address}"));
    if let Some(endpoint) = args.endpoint.filter(|_| args.lsps > 0) {
        let next = RouteHop { address: neighbour, prefix_len: 32, loose: false };
        let lsps = LspRange::new(args.lsps, address, endpoint);
        config.ingress.push(IngressRange { explicit_route: vec![next], ..IngressRange::new(lsps) });
        commands.push(Command::Rsvp(RsvpCommand::SetUp(Pace { lsps: 0..args.lsps, per_second: args.rate })));
        what = format!("{} LSPs to {endpoint}", group_digits(args.lsps.into()));
    }
    config.check()?;
    let job = Job {
        protocol: rsvp::NAME,
        session: "LSP",
        config: ProtocolConfig::Rsvp(Box::new(config)),
        also: Vec::new(),
        commands,
        headline: format!("RSVP-TE from {address} through {neighbour}, {what}"),
        lost: &["timeouts", "lost_neighbours", "resv_tear_received"],
        columns: &[
            ("Path sent", "path_sent"),
            ("Resv received", "resv_received"),
            ("PathErr received", "path_err_received"),
            ("timeouts", "timeouts"),
        ],
        // An egress waits for LSPs.
        advice: (args.lsps > 0).then(|| {
            format!("check that RSVP-TE runs on the router's interface with {neighbour}, and that it has a route to the egress")
        }),
    };
    Ok((link, job))
}
