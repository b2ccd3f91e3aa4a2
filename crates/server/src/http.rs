//! REST: paths, JSON bodies and TLS.

use crate::api::{Answer, Api, Call, Failure};
use crate::server::Listening;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, patch, post};
use axum_server::Handle;
use axum_server::tls_rustls::RustlsConfig;
use serde_json::Value;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

/// Largest body of a request in bytes.
const MOST_BODY: usize = 64 << 20;
/// Time for open requests when the server ends.
const GRACE: Duration = Duration::from_secs(1);

/// The server of REST, bound to its address.
pub struct Rest {
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<RustlsConfig>,
    router: Router,
}

async fn answer(api: Api, call: Call, body: Bytes) -> Response {
    let body = match body.is_empty() {
        true => Ok(Value::Null),
        false => serde_json::from_slice(&body),
    };
    let answered = match body {
        Ok(body) => api.call(call, body).await,
        Err(e) => Err(Failure::validation(vec![format!("the body is not JSON: {e}")])),
    };
    match answered {
        Ok(Answer::Json(value)) => json(StatusCode::OK, &value),
        Ok(Answer::Bytes(bytes)) => ([(header::CONTENT_TYPE, "application/octet-stream")], bytes).into_response(),
        Err(failure) => {
            let status = u16::try_from(failure.code).ok().and_then(|code| StatusCode::from_u16(code).ok());
            json(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), &failure.to_json())
        }
    }
}

fn json(status: StatusCode, value: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

macro_rules! handler {
    ($call:ident) => {
        |State(api): State<Api>, body: Bytes| answer(api, Call::$call, body)
    };
}

fn router(api: Api) -> Router {
    let config = post(handler!(SetConfig)).get(handler!(GetConfig)).patch(handler!(UpdateConfig));
    Router::new()
        .route("/config", config)
        .route("/config/append", patch(handler!(AppendConfig)))
        .route("/config/delete", patch(handler!(DeleteConfig)))
        .route("/control/state", post(handler!(SetControlState)))
        .route("/control/action", post(handler!(SetControlAction)))
        .route("/monitor/metrics", post(handler!(GetMetrics)))
        .route("/monitor/states", post(handler!(GetStates)))
        .route("/monitor/capture", post(handler!(GetCapture)))
        .route("/capabilities/version", get(handler!(GetVersion)))
        .fallback(|| async {
            let failure = Failure { code: 404, ..Failure::validation(vec!["there is no such path".into()]) };
            json(StatusCode::NOT_FOUND, &failure.to_json())
        })
        .layer(DefaultBodyLimit::max(MOST_BODY))
        .with_state(api)
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

impl Rest {
    /// Binds the address.
    ///
    /// # Errors
    /// The address cannot be used, or the certificate cannot be made.
    pub fn bind(listening: Listening, api: Api) -> Result<Rest, String> {
        let cannot = |e: std::io::Error| format!("cannot listen on {}: {e}", listening.rest);
        let listener = TcpListener::bind(listening.rest).map_err(cannot)?;
        listener.set_nonblocking(true).map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        let tls = listening.tls.then(|| self_signed(address)).transpose()?;
        Ok(Rest { listener, address, tls, router: router(api) })
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
            match self.tls {
                Some(tls) => {
                    axum_server::from_tcp_rustls(self.listener, tls)
                        .map_err(failed)?
                        .handle(handle)
                        .serve(service)
                        .await
                }
                None => axum_server::from_tcp(self.listener).map_err(failed)?.handle(handle).serve(service).await,
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
