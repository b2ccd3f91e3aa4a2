//! The server: one thread for the rig, and the network on a runtime of its own.

use crate::api::Api;
use crate::connection::Limited;
use crate::listen::Listener;
use crate::runs::{self, Runs, Starter};
use crate::token::{Token, guarded};
use crate::{engine, grpc, http};
use drophammer_port::Backend;
use drophammer_rig::Lender;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How the server works.
#[derive(Clone)]
pub struct Options {
    /// Backend of the ports.
    pub backend: &'static Backend,
    /// Opens ports of other hosts, if they can be reached.
    pub lender: Option<Arc<dyn Lender + Send + Sync>>,
    /// Flows stop when no client has called for this time.
    pub idle_stop: Option<Duration>,
    /// Interfaces by the locations that stand for them. Any other location is the name of an interface.
    pub interfaces: HashMap<String, String>,
    /// Returns the reason if an interface must not become a port.
    pub may_use: fn(&str) -> Result<(), String>,
    /// Shows the user messages that no client receives.
    pub warn: fn(&str),
}

/// Where clients reach the server.
#[derive(Clone, Debug)]
pub struct Listening {
    /// Address of REST.
    pub rest: SocketAddr,
    /// True for HTTPS with a certificate that the server makes itself.
    pub tls: bool,
    /// Address of gRPC.
    pub grpc: SocketAddr,
    /// True for gRPC over TLS.
    pub grpc_tls: bool,
    /// The token that clients must send, if they must send one.
    pub token: Option<Token>,
}

/// How often the server checks whether the user wants it to stop.
const LOOK: Duration = Duration::from_millis(50);

/// Serves clients until `stop` is set, and then ends the runs that they started with `starter`. Calls `ready` with the addresses of
/// REST and gRPC when clients can connect.
///
/// # Errors
/// An address cannot be used, or the certificate cannot be made.
pub fn serve(
    options: Options,
    listening: Listening,
    starter: Box<dyn Starter>,
    seed: u64,
    stop: &Arc<AtomicBool>,
    ready: impl FnOnce(SocketAddr, SocketAddr),
) -> Result<(), String> {
    let (api, requests) = Api::new();
    let ended = Arc::new(AtomicBool::new(false));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|e| format!("no threads for the network: {e}"))?;
    let (stops, ends) = (stop.clone(), ended.clone());
    // Clients of both listeners share the limit of connections.
    let limited = Limited::new();
    let runs = Runs::new(starter, listening.rest.ip().is_loopback());
    let token = listening.token.as_ref();
    let paths = guarded(http::router(api.clone()), token, http::refusal);
    let paths = paths.merge(guarded(runs.routes(), token, runs::refuse));
    let calls = guarded(grpc::routes(api), token, grpc::refuse);
    let rest = Listener::bind(listening.rest, listening.tls, paths, limited.clone())?;
    let grpc = Listener::bind(listening.grpc, listening.grpc_tls, calls, limited)?;
    let owner = format!("serve on {}", rest.address());
    let rig = std::thread::Builder::new().name("rig".into()).spawn(move || {
        let ran = engine::run(options, &owner, seed, requests, &stops);
        ends.store(true, Ordering::Relaxed);
        ran
    });
    let rig = rig.map_err(|e| format!("no thread for the rig: {e}"))?;
    let served = runtime.block_on(async {
        ready(rest.address(), grpc.address());
        let until = || async {
            while !stop.load(Ordering::Relaxed) && !ended.load(Ordering::Relaxed) {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::try_join!(rest.serve(until()), grpc.serve(until())).map(|_| ())
    });
    stop.store(true, Ordering::Relaxed);
    runs.end();
    let ran = rig.join().unwrap_or_else(|_| Err("the thread of the rig failed".into()));
    served.and(ran)
}
