//! A whole server for a test.

use drophammer_port::Backend;
use drophammer_server::runs::{Refused, Run, Starter, Wrong};
use drophammer_server::server::{Listening, Options, serve};
use drophammer_server::token::Token;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// How long to wait for the server, which answers at once unless the machine is busy.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Starts no runs.
struct NoRuns;

impl Starter for NoRuns {
    fn start(&self, _: &str, _: &[String]) -> Result<Arc<dyn Run>, Refused> {
        Err(Refused { code: 1, errors: vec![Wrong::of("this server runs no suites")] })
    }
}

/// Stops the server, even if its client panics.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs a server while `client` uses its addresses of REST and gRPC. Its ports are of `backend`, and `interfaces` has
/// their names by the locations that clients write.
pub fn with_server<T>(
    backend: &'static Backend,
    interfaces: HashMap<String, String>,
    grpc_tls: bool,
    token: Option<Token>,
    client: impl FnOnce(SocketAddr, SocketAddr) -> T,
) -> T {
    let options = Options {
        backend,
        lender: None,
        idle_stop: None,
        interfaces,
        may_use: |_| Ok(()),
        warn: |text| panic!("{text}"),
    };
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let listening = Listening { rest: any, tls: false, grpc: any, grpc_tls, token };
    let stop = Arc::new(AtomicBool::new(false));
    let (tell, told) = mpsc::channel();
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            serve(options, listening, Box::new(NoRuns), 1, &stop, |rest, grpc| tell.send((rest, grpc)).unwrap())
        });
        let stops = Stop(&stop);
        let (rest, grpc) = told.recv_timeout(PATIENCE).unwrap();
        let done = client(rest, grpc);
        drop(stops);
        assert_eq!(server.join().unwrap(), Ok(()));
        done
    })
}
