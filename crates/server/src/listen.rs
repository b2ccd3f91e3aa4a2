//! Listeners: addresses where clients connect. Each speaks HTTP/1.1 and HTTP/2, with or without TLS.

use crate::connection::Limited;
use axum::Router;
use axum_server::Handle;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

/// Time that open requests get when the server ends.
const GRACE: Duration = Duration::from_secs(1);

/// An address to which clients connect, and what they find there.
pub struct Listener {
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<RustlsConfig>,
    router: Router,
    limited: Limited,
}

/// A TLS configuration with a certificate made now. Clients of the API do not verify it.
fn self_signed(address: SocketAddr) -> Result<RustlsConfig, String> {
    let failed = |e: &dyn std::fmt::Display| format!("no certificate can be made: {e}");
    let names = vec!["localhost".to_owned(), address.ip().to_string()];
    let made = rcgen::generate_simple_self_signed(names).map_err(|e| failed(&e))?;
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| failed(&e))?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())
        .map_err(|e| failed(&e))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(RustlsConfig::from_config(Arc::new(config)))
}

impl Listener {
    /// Binds the address.
    ///
    /// # Errors
    /// The address cannot be used, or the certificate cannot be made.
    pub fn bind(address: SocketAddr, tls: bool, router: Router, limited: Limited) -> Result<Listener, String> {
        let cannot = |e: std::io::Error| format!("cannot listen on {address}: {e}");
        let listener = TcpListener::bind(address).map_err(cannot)?;
        listener.set_nonblocking(true).map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        let tls = tls.then(|| self_signed(address)).transpose()?;
        Ok(Listener { listener, address, tls, router, limited })
    }

    /// The address to which clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves clients until `until` is done.
    ///
    /// # Errors
    /// The server failed.
    pub async fn serve(self, until: impl Future<Output = ()>) -> Result<(), String> {
        let handle = Handle::new();
        let service = self.router.into_make_service();
        let failed = |e: std::io::Error| format!("the server failed: {e}");
        let ending = handle.clone();
        let served = async move {
            let server = axum_server::from_tcp(self.listener).map_err(failed)?.handle(handle);
            match self.tls {
                Some(tls) => server.acceptor(RustlsAcceptor::new(tls).acceptor(self.limited)).serve(service).await,
                None => server.acceptor(self.limited).serve(service).await,
            }
            .map_err(failed)
        };
        tokio::pin!(served);
        tokio::select! {
            ended = &mut served => return ended,
            () = until => ending.graceful_shutdown(Some(GRACE)),
        }
        served.await
    }
}
