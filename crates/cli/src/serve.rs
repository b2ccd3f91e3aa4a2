//! `drophammer serve`: the Open Traffic Generator API.

use crate::args::ServeArgs;
use crate::clock::secret;
use crate::hosts;
use crate::observer::stop_flag;
use crate::output::{err, say};
use crate::run::{RUNS, usable_backend};
use crate::served::Served;
use crate::{Ended, Exit, Failure};
use drophammer_lab::kinds::external::refuse_in_use;
use drophammer_rig::Lender;
use drophammer_server::server::{Listening, Options, serve};
use nix::net::if_::if_nametoindex;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// The interface of each location.
fn interfaces(ports: &[(String, String)]) -> Result<HashMap<String, String>, Failure> {
    let mut all = HashMap::new();
    for (location, interface) in ports {
        // Agents know the interfaces of other hosts.
        if !interface.contains('/') && if_nametoindex(interface.as_str()).is_err() {
            let text = format!("this machine has no interface {interface}; `ip link` lists them");
            return Err(Failure::environment(text));
        }
        if all.insert(location.clone(), interface.clone()).is_some() {
            return Err(Failure::usage(format!("--port gives `{location}` two interfaces; a location stands for one")));
        }
    }
    Ok(all)
}

/// `drophammer serve`.
pub fn run(args: &ServeArgs) -> Ended {
    let stop = stop_flag()?;
    let interfaces = interfaces(&args.ports)?;
    let controller = hosts::controller(hosts::settings(&args.hosts, args.silence, true)?, None)?;
    let options = Options {
        backend: usable_backend(&args.backend)?,
        lender: controller.map(|controller| Arc::new(controller) as Arc<dyn Lender + Send + Sync>),
        interfaces,
        idle_stop: Some(args.idle_stop).filter(|time| !time.is_zero()),
        may_use: |name| refuse_in_use(name).map_err(|e| e.to_string()),
        warn: |text| err!("warning: {text}"),
    };
    if args.trust_suites && !args.listen.ip().is_loopback() {
        let text = "--trust-suites lets clients run commands; listen on loopback, such as 127.0.0.1, or leave it out";
        return Err(Failure::usage(text));
    }
    let folder = |path: &Path| {
        path.canonicalize()
            .map_err(|e| Failure::usage(format!("--suites: cannot read folder `{}`: {e}", path.display())))
    };
    let suites = args.suites.as_deref().map(folder).transpose()?;
    let runs = args.runs.clone().unwrap_or_else(|| RUNS.into());
    let starter = Box::new(Served { suites, runs, trusted: args.trust_suites });
    let listening = Listening { rest: args.listen, tls: !args.http, grpc: args.grpc, grpc_tls: args.grpc_tls };
    let scheme = if args.http { "http" } else { "https" };
    // The server works even if nobody reads standard output.
    let ready = |rest, grpc| {
        _ = say(format!("serving the Open Traffic Generator API on {scheme}://{rest}, gRPC on {grpc}; Ctrl-C ends it"));
    };
    serve(options, listening, starter, secret(), &stop, ready).map_err(Failure::environment)?;
    Ok(Exit::Good)
}
