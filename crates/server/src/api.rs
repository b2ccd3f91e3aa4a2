//! The calls of the API. Both REST ([`crate::http`]) and gRPC pass each call as JSON to [`Api::call`].

use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

/// A call of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Replaces the configuration (`POST /config`).
    SetConfig,
    /// Returns the configuration as it was set (`GET /config`).
    GetConfig,
    /// Changes the rate or size of flows (`PATCH /config`).
    UpdateConfig,
    /// Adds to the configuration (`PATCH /config/append`).
    AppendConfig,
    /// Removes parts of the configuration (`PATCH /config/delete`).
    DeleteConfig,
    /// Starts and stops traffic, protocols, links and captures (`POST /control/state`).
    SetControlState,
    /// Makes devices act once (`POST /control/action`).
    SetControlAction,
    /// Returns counts and rates (`POST /monitor/metrics`).
    GetMetrics,
    /// Returns what devices learned (`POST /monitor/states`).
    GetStates,
    /// Returns captured frames as a file (`POST /monitor/capture`).
    GetCapture,
    /// Returns versions (`GET /capabilities/version`).
    GetVersion,
    /// Returns what clients may send (`GET /capabilities`); only REST has it.
    GetCapabilities,
}

/// Answer to a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// A message of the model.
    Json(Value),
    /// A file.
    Bytes(Vec<u8>),
}

/// What caused a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The request: it is malformed, contradicts the configuration, or needs something that is not supported.
    Validation,
    /// The server or its environment.
    Internal,
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// HTTP status.
    pub code: i32,
    /// What caused it.
    pub kind: FailureKind,
    /// Reasons, each with its remedy or the path of the field.
    pub errors: Vec<String>,
}

impl FailureKind {
    /// Its name in the model.
    pub(crate) fn name(self) -> &'static str {
        match self {
            FailureKind::Validation => "validation",
            FailureKind::Internal => "internal",
        }
    }
}

impl Failure {
    /// The request is wrong, for these reasons.
    pub fn validation(errors: Vec<String>) -> Failure {
        Failure { code: 400, kind: FailureKind::Validation, errors }
    }

    /// The server cannot do what is requested.
    pub fn internal(error: impl ToString) -> Failure {
        Failure { code: 500, kind: FailureKind::Internal, errors: vec![error.to_string()] }
    }

    /// The message `Error` of the model.
    pub fn to_json(&self) -> Value {
        serde_json::json!({"code": self.code, "kind": self.kind.name(), "errors": self.errors})
    }
}

/// Maximum number of calls that wait at the same time.
const QUEUE: usize = 64;

/// A call on its way to the engine.
pub(crate) struct Request {
    pub(crate) call: Call,
    pub(crate) body: Value,
    pub(crate) answer: oneshot::Sender<Result<Answer, Failure>>,
}

/// Takes calls to the engine, one after the other.
#[derive(Clone)]
pub struct Api {
    requests: mpsc::Sender<Request>,
}

impl Api {
    /// A handle, and the end at which the calls arrive.
    pub(crate) fn new() -> (Api, mpsc::Receiver<Request>) {
        let (requests, arriving) = mpsc::channel(QUEUE);
        (Api { requests }, arriving)
    }

    /// Makes a call and waits for its answer. `body` is the JSON of the request message; `null` and `{}` are the empty message.
    ///
    /// # Errors
    /// [`Failure`]. A configuration that is refused changes nothing.
    pub async fn call(&self, call: Call, body: Value) -> Result<Answer, Failure> {
        let (answer, answered) = oneshot::channel();
        self.requests.try_send(Request { call, body, answer }).map_err(|e| match e {
            mpsc::error::TrySendError::Full(_) => Failure {
                code: 503,
                kind: FailureKind::Internal,
                errors: vec![format!("{QUEUE} calls already wait; send the next one when an answer has arrived")],
            },
            mpsc::error::TrySendError::Closed(_) => Failure::internal("the server is ending"),
        })?;
        answered.await.unwrap_or_else(|_| Err(Failure::internal("the server is ending")))
    }
}
