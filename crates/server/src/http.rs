//! REST: paths and JSON bodies.

use crate::api::{Answer, Api, Call, Failure};
use crate::model::Config;
use axum::Router;
use axum::body::{Bytes, HttpBody, to_bytes};
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, patch, post};
use serde::Serialize;
use serde_json::Value;
use serde_json::ser::{Formatter, Serializer};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Largest body of a request in bytes.
const MOST_BODY: usize = 64 << 20;
/// Maximum number of commas, brackets and braces in a body. Each value takes up to 150 bytes in memory.
const MOST_VALUES: usize = 2_000_000;
/// Maximum total length in bytes of all bodies and files in transit.
const MOST_BYTES: usize = 256 << 20;
/// How long the body of a request may take to arrive.
const ARRIVAL: Duration = Duration::from_secs(60);

/// Room for bodies and files that are on their way, so that many clients together do not fill the memory.
#[derive(Clone)]
pub(crate) struct Room(Arc<Semaphore>);

impl Room {
    /// Room for so many bytes.
    pub(crate) fn new(bytes: usize) -> Room {
        Room(Arc::new(Semaphore::new(bytes >> 10)))
    }

    /// Reserves room for this many bytes.
    pub(crate) fn reserve(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Failure> {
        let kib = u32::try_from(bytes.div_ceil(1 << 10)).unwrap_or(u32::MAX);
        self.0.clone().try_acquire_many_owned(kib).map_err(|_| Failure {
            code: 503,
            ..Failure::internal(
                "many large requests or answers are on their way; send this again when those are through",
            )
        })
    }

    /// Waits for the body of a request, of at most `most` bytes. Its room is free when the second part is dropped.
    pub(crate) async fn body(&self, request: Request, most: usize) -> Result<(Bytes, OwnedSemaphorePermit), Failure> {
        let told = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let length: usize = if request.body().is_end_stream() { 0 } else { told.unwrap_or(most) };
        let large =
            || Failure { code: 413, ..Failure::validation(vec![format!("the body has more than {} MiB", most >> 20)]) };
        if length > most {
            return Err(large());
        }
        let room = self.reserve(length)?;
        let arriving = to_bytes(request.into_body(), length.min(most));
        let arrived = tokio::time::timeout(ARRIVAL, arriving).await.map_err(|_| Failure {
            code: 408,
            ..Failure::validation(vec![format!("the body did not arrive within {} s", ARRIVAL.as_secs())])
        })?;
        Ok((arrived.map_err(|_| large())?, room))
    }
}

/// What handlers share.
#[derive(Clone)]
struct Shared {
    api: Api,
    room: Room,
}

impl Shared {
    async fn answer(&self, call: Call, request: Request) -> Result<Response, Failure> {
        let body = self.body(request).await?;
        match self.api.call(call, body).await? {
            Answer::Json(value) => Ok(json(StatusCode::OK, &value)),
            Answer::Bytes(bytes) => {
                let file = File { _room: self.room.reserve(bytes.len())?, bytes };
                Ok(([(header::CONTENT_TYPE, "application/octet-stream")], Bytes::from_owner(file)).into_response())
            }
        }
    }

    /// Waits for the body of a request, and reads it.
    async fn body(&self, request: Request) -> Result<Value, Failure> {
        let (body, _room) = self.room.body(request, MOST_BODY).await?;
        let values = body.iter().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count();
        if values > MOST_VALUES {
            let text = format!("the body has more than {MOST_VALUES} values");
            return Err(Failure { code: 413, ..Failure::validation(vec![text]) });
        }
        if body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&body).map_err(|e| Failure::validation(vec![format!("the body is not JSON: {e}")]))
    }
}

/// A file on its way to a client.
struct File {
    bytes: Vec<u8>,
    _room: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for File {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Answers what clients may send.
async fn capabilities(State(shared): State<Shared>, request: Request) -> Response {
    // The first time takes longer than the thread of the rig may stop for.
    match tokio::task::spawn_blocking(Config::accepted).await {
        Ok(_) => answer(shared, Call::GetCapabilities, request).await,
        Err(e) => refusal(&Failure::internal(e)),
    }
}

async fn answer(shared: Shared, call: Call, request: Request) -> Response {
    shared.answer(call, request).await.unwrap_or_else(|failure| refusal(&failure))
}

/// The answer to a call that failed.
pub(crate) fn refusal(failure: &Failure) -> Response {
    json(status(failure.code), &failure.to_json())
}

pub(crate) fn status(code: i32) -> StatusCode {
    let status = u16::try_from(code).ok().and_then(|code| StatusCode::from_u16(code).ok());
    status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

pub(crate) fn json(status: StatusCode, value: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], text(value)).into_response()
}

/// Writes floats with a point and without an exponent: clients that read answers as YAML take `5e-6` for a string.
struct Plain;

impl Formatter for Plain {
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        let digits = value.to_string();
        let point = if digits.contains('.') { "" } else { ".0" };
        writer.write_all(digits.as_bytes())?;
        writer.write_all(point.as_bytes())
    }
}

fn text(value: &Value) -> Vec<u8> {
    let mut text = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut text, Plain)).expect("JSON can be written to memory");
    text
}

macro_rules! handler {
    ($call:ident) => {
        |State(shared): State<Shared>, request: Request| answer(shared, Call::$call, request)
    };
}

/// The paths of the API.
pub fn router(api: Api) -> Router {
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
        .route("/capabilities", get(capabilities))
        .route("/capabilities/version", get(handler!(GetVersion)))
        .fallback(|| async {
            let failure = Failure { code: 404, ..Failure::validation(vec!["there is no such path".into()]) };
            refusal(&failure)
        })
        .with_state(Shared { api, room: Room::new(MOST_BYTES) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn floats_have_a_point_and_no_exponent() {
        let value = json!([5e-6, 1.25e-7, 0.0, 100.0, 1e16, -2.5, 7, u64::MAX, "5e-6"]);
        let written = String::from_utf8(text(&value)).unwrap();
        let expected = r#"[0.000005,0.000000125,0.0,100.0,10000000000000000.0,-2.5,7,18446744073709551615,"5e-6"]"#;
        assert_eq!(written, expected);
        assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), value);
    }
}
