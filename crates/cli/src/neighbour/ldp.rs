//! `drophammer ldp`.

use super::{Job, Link, run as run_job};
use crate::Ended;
use crate::args::LdpArgs;
use drophammer_model::quantity::group_digits;
use drophammer_rig::ldp::{self, AdvertisedFecs, FecRange, LabelPattern, LdpCommand, LsrConfig};
use drophammer_rig::{Command, ProtocolConfig};

/// `drophammer ldp`.
pub fn run(args: &LdpArgs) -> Ended {
    run_job(&args.link, read(args))
}

fn read(args: &LdpArgs) -> Result<(Link, Job), String> {
    let link = Link::read(&args.link)?;
    let [address, neighbour] = link.ipv4("LDP")?;
    let transport = args.transport_address.unwrap_or(address);
    let mut config = LsrConfig::new(args.lsr_id.unwrap_or(address), transport);
    let mut commands = Vec::new();
    if args.fecs > 0 {
        let fecs = FecRange::new(args.first, args.fecs);
        config.advertised.push(AdvertisedFecs { fecs, labels: labels(&args.labels)? });
        commands.push(Command::Ldp(LdpCommand::Advertise { range: 0, part: 0..args.fecs }));
    }
    config.check()?;
    let fecs = match args.fecs {
        0 => "no FECs".to_owned(),
        n => format!("{} FECs from {} on", group_digits(n.into()), args.first),
    };
    let job = Job {
        protocol: ldp::NAME,
        session: "session",
        config: ProtocolConfig::Ldp(config),
        also: (transport != address).then_some((transport.into(), 1)).into_iter().collect(),
        commands,
        headline: format!("LDP from {transport} to {neighbour}, {fecs}"),
        lost: &["sessions_lost"],
        columns: &[
            ("mappings sent", "mappings_sent"),
            ("received", "mappings_received"),
            ("withdrawn", "withdraws_received"),
            ("hellos received", "hellos_received"),
        ],
        advice: Some(format!(
            "check that LDP runs on the router's interface with {neighbour}, and that the router has a route to {transport}"
        )),
    };
    Ok((link, job))
}

fn labels(text: &str) -> Result<LabelPattern, String> {
    match text {
        "implicit-null" => Ok(LabelPattern::ImplicitNull),
        "explicit-null" => Ok(LabelPattern::ExplicitNull),
        number => number.parse().map(|first| LabelPattern::Counting { first, step: 1 }).map_err(|_| {
            format!("--labels: `{number}` is not a label; write for instance `16`, `implicit-null` or `explicit-null`")
        }),
    }
}
