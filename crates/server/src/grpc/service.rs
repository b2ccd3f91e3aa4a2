//! The methods of service `otg.Openapi`.
//!
//! Methods `stream...` carry the same messages in pieces, each in a message `Data`, because clients limit the size of a
//! received message. Every method is served as one that streams in both directions; the other methods send and receive only
//! one message.

use super::transcode;
use crate::api::{Answer, Api, Call, Failure};
use axum::Router;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use axum::routing::post;
use prost::Message;
use prost::bytes::{Buf, BufMut, Bytes};
use serde_json::Value;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::{BoxFuture, BoxStream, tokio_stream};
use tonic::server::{Grpc, StreamingService};
use tonic::{Code, Status, Streaming};

/// Maximum length of a request in bytes, over all its pieces.
pub const MOST_BYTES: usize = 64 << 20;
/// Maximum length in bytes of a message that clients receive by default.
const RECEIVED_AT_ONCE: usize = 4 << 20;
/// Bytes in a piece of an answer.
const PIECE: usize = 1 << 20;
/// Maximum length in bytes of a failure as JSON. It travels in a header, where each byte can become three, and clients refuse
/// headers above 8 KiB.
const MOST_OF_FAILURE: usize = 2400;

/// A method, with the messages inside those that surround request and answer.
struct Method {
    name: &'static str,
    call: Call,
    /// `None`: the request is empty.
    request: Option<&'static str>,
    /// `None`: the answer is a file.
    answer: Option<&'static str>,
    streams: Streams,
}

/// What the method with the prefix `stream` carries in pieces.
#[derive(Clone, Copy, PartialEq)]
enum Streams {
    Nothing,
    Request,
    Answer,
}

const fn method(
    name: &'static str,
    call: Call,
    request: Option<&'static str>,
    answer: Option<&'static str>,
    streams: Streams,
) -> Method {
    Method { name, call, request, answer, streams }
}

const METHODS: [Method; 11] = [
    method("SetConfig", Call::SetConfig, Some("Config"), Some("Warning"), Streams::Request),
    method("GetConfig", Call::GetConfig, None, Some("Config"), Streams::Answer),
    method("UpdateConfig", Call::UpdateConfig, Some("ConfigUpdate"), Some("Warning"), Streams::Nothing),
    method("AppendConfig", Call::AppendConfig, Some("ConfigAppend"), Some("Warning"), Streams::Nothing),
    method("DeleteConfig", Call::DeleteConfig, Some("ConfigDelete"), Some("Warning"), Streams::Nothing),
    method("SetControlState", Call::SetControlState, Some("ControlState"), Some("Warning"), Streams::Request),
    method(
        "SetControlAction",
        Call::SetControlAction,
        Some("ControlAction"),
        Some("ControlActionResponse"),
        Streams::Request,
    ),
    method("GetMetrics", Call::GetMetrics, Some("MetricsRequest"), Some("MetricsResponse"), Streams::Answer),
    method("GetStates", Call::GetStates, Some("StatesRequest"), Some("StatesResponse"), Streams::Answer),
    method("GetCapture", Call::GetCapture, Some("CaptureRequest"), None, Streams::Answer),
    method("GetVersion", Call::GetVersion, None, Some("Version"), Streams::Nothing),
];

/// A piece of a message.
#[derive(Clone, PartialEq, Message)]
struct Data {
    /// Bytes in each piece but the last.
    #[prost(uint64, tag = "1")]
    chunk_size: u64,
    #[prost(bytes = "bytes", tag = "2")]
    datum: Bytes,
}

/// The methods as routes, for a listener of their own or together with the routes of REST. The listener must speak
/// HTTP/2.
pub fn routes(api: Api) -> Router {
    Router::new().route("/otg.Openapi/{method}", post(serve)).with_state(api)
}

async fn serve(State(api): State<Api>, Path(name): Path<String>, request: Request) -> Response {
    let (plain, streaming) = match name.strip_prefix("stream") {
        Some(plain) => (plain, true),
        None => (name.as_str(), false),
    };
    let found =
        METHODS.iter().find(|method| method.name == plain && !(streaming && method.streams == Streams::Nothing));
    let Some(method) = found else {
        return Status::unimplemented(format!("otg.Openapi has no method {name}")).into_http();
    };
    let streams = if streaming { method.streams } else { Streams::Nothing };
    let mut grpc = Grpc::new(Raw).apply_max_message_size_config(Some(MOST_BYTES), None);
    grpc.streaming(Exchange { api, method, streams }, request).await.map(axum::body::Body::new)
}

/// One call of a method.
struct Exchange {
    api: Api,
    method: &'static Method,
    streams: Streams,
}

impl StreamingService<Bytes> for Exchange {
    type Response = Bytes;
    type ResponseStream = BoxStream<Bytes>;
    type Future = BoxFuture<tonic::Response<Self::ResponseStream>, Status>;

    fn call(&mut self, request: tonic::Request<Streaming<Bytes>>) -> Self::Future {
        let Exchange { api, method, streams } = self;
        let (api, method, streams) = (api.clone(), *method, *streams);
        Box::pin(async move {
            let body = json_of(method, streams, request.into_inner()).await?;
            let answer = api.call(method.call, body).await.map_err(|failure| status(&failure))?;
            bytes_of(method, streams, answer).map(tonic::Response::new)
        })
    }
}

/// Waits for the whole request, and reads it.
async fn json_of(method: &Method, streams: Streams, mut pieces: Streaming<Bytes>) -> Result<Value, Status> {
    let mut bytes = Vec::new();
    let mut count = 0;
    while let Some(piece) = pieces.message().await? {
        let piece = match streams {
            Streams::Request => Data::decode(piece).map_err(|e| refused(&e))?.datum,
            _ => piece,
        };
        count += 1;
        if bytes.len() + piece.len() > MOST_BYTES {
            return Err(refused(&format!("the request has more than {} MiB", MOST_BYTES >> 20)));
        }
        bytes.extend_from_slice(&piece);
    }
    match (streams, method.request) {
        (Streams::Request, Some(message)) => transcode::to_json(message, &bytes).map_err(|e| refused(&e)),
        _ if count != 1 => Err(refused(&format!("{} takes one message, not {count}", method.name))),
        (_, Some(message)) => {
            let inner = transcode::unwrap(&bytes).map_err(|e| refused(&e))?;
            drop(bytes);
            transcode::to_json(message, &inner).map_err(|e| refused(&e))
        }
        (_, None) if bytes.is_empty() => Ok(Value::Null),
        (_, None) => Err(refused(&format!("the request of {} has no fields", method.name))),
    }
}

/// The messages that carry an answer.
fn bytes_of(method: &Method, streams: Streams, answer: Answer) -> Result<BoxStream<Bytes>, Status> {
    let inner: Bytes = match (answer, method.answer) {
        (Answer::Json(mut json), Some(message)) => {
            transcode::drop_extensions(&mut json);
            transcode::from_json(message, &json).map_err(|e| status(&Failure::internal(e)))?.into()
        }
        (Answer::Bytes(bytes), None) => bytes.into(),
        (Answer::Json(_), None) | (Answer::Bytes(_), Some(_)) => {
            return Err(status(&Failure::internal(format!("{} has an answer of another kind", method.name))));
        }
    };
    if streams == Streams::Answer {
        let starts = (0..inner.len()).step_by(PIECE);
        let pieces = starts.map(move |start| {
            let datum = inner.slice(start..inner.len().min(start + PIECE));
            Ok(Data { chunk_size: PIECE as u64, datum }.encode_to_vec().into())
        });
        return Ok(Box::pin(tokio_stream::iter(pieces)));
    }
    if method.answer.is_none() && inner.len() > RECEIVED_AT_ONCE {
        return Err(status(&Failure {
            code: 413,
            ..Failure::internal(format!(
                "the file has {} bytes, and clients receive at most 4 MiB in one message; enable streaming, or get it by REST",
                inner.len()
            ))
        }));
    }
    Ok(Box::pin(tokio_stream::once(Ok(transcode::wrap(&inner).into()))))
}

/// A request that cannot be read.
fn refused(reason: &impl ToString) -> Status {
    status(&Failure::validation(vec![reason.to_string()]))
}

/// The answer to a request that is refused before it is read.
pub(crate) fn refuse(failure: &Failure) -> Response {
    status(failure).into_http()
}

/// A failure as clients expect it: the message is the JSON of `Error`, with the code of gRPC.
fn status(failure: &Failure) -> Status {
    let code = match failure.code {
        400 => Code::InvalidArgument,
        401 => Code::Unauthenticated,
        404 => Code::NotFound,
        409 => Code::FailedPrecondition,
        413 => Code::ResourceExhausted,
        501 => Code::Unimplemented,
        503 => Code::Unavailable,
        _ => Code::Internal,
    };
    let errors = fitting(&failure.errors);
    Status::new(code, Failure { code: code.into(), errors, ..failure.clone() }.to_json().to_string())
}

/// As many of the errors as fit into a header, and the number of the others.
fn fitting(errors: &[String]) -> Vec<String> {
    let mut left = MOST_OF_FAILURE;
    let mut fitting = Vec::new();
    for (at, error) in errors.iter().enumerate() {
        // One byte can become six bytes of JSON.
        let Some(rest) = left.checked_sub(Value::from(error.as_str()).to_string().len()) else {
            if fitting.is_empty() {
                fitting.push(format!("{}...", &error[..error.floor_char_boundary(left / 6)]));
            }
            let others = errors.len() - at.max(1);
            fitting.extend((others > 0).then(|| format!("{others} more errors; REST returns all of them")));
            break;
        };
        left = rest;
        fitting.push(error.clone());
    }
    fitting
}

/// Messages as they are.
#[derive(Clone, Copy, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put(message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

#[cfg(test)]
mod tests;
