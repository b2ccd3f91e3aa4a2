//! REST: paths and JSON bodies.

use crate::api::{Answer, Api, Call, Failure};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, patch, post};
use serde_json::Value;

/// Largest body of a request in bytes.
const MOST_BODY: usize = 64 << 20;

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
        .route("/capabilities/version", get(handler!(GetVersion)))
        .fallback(|| async {
            let failure = Failure { code: 404, ..Failure::validation(vec!["there is no such path".into()]) };
            json(StatusCode::NOT_FOUND, &failure.to_json())
        })
        .layer(DefaultBodyLimit::max(MOST_BODY))
        .with_state(api)
}
