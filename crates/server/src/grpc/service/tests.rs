//! Whole calls: a client of gRPC, the routes, and an engine that gives one answer.

use super::super::transcode::{from_json, to_json, unwrap, wrap};
use super::*;
use crate::token::{Token, guarded};
use serde_json::json;
use std::path::PathBuf;
use tokio::sync::mpsc;

/// What the client and the engine got.
struct Outcome {
    answer: Result<Vec<Bytes>, Status>,
    calls: Vec<(Call, Value)>,
}

impl Outcome {
    /// The one message of the answer.
    fn message(&self) -> Vec<u8> {
        let messages = self.answer.as_ref().unwrap();
        assert_eq!(messages.len(), 1);
        messages[0].to_vec()
    }

    /// The failure as JSON, which has the code of the status.
    fn failure(&self) -> (Code, Value) {
        let status = self.answer.as_ref().unwrap_err();
        let error: Value = serde_json::from_str(status.message()).unwrap();
        assert_eq!(error["code"], i32::from(status.code()));
        (status.code(), error)
    }
}

/// Calls a method with these messages, as a client does. The engine gives `answer`.
async fn call(method: &str, messages: Vec<Bytes>, answer: Result<Answer, Failure>) -> Outcome {
    let (api, mut arriving) = Api::new();
    let (seen, mut calls) = mpsc::unbounded_channel();
    let engine = tokio::spawn(async move {
        while let Some(request) = arriving.recv().await {
            seen.send((request.call, request.body)).unwrap();
            request.answer.send(answer.clone()).unwrap();
        }
    });
    let mut client = tonic::client::Grpc::new(routes(api));
    client.ready().await.unwrap();
    let path = format!("/otg.Openapi/{method}").try_into().unwrap();
    let received = client.streaming(tonic::Request::new(tokio_stream::iter(messages)), path, Raw).await;
    let answer = match received {
        Err(status) => Err(status),
        Ok(response) => collected(response.into_inner()).await,
    };
    drop(client);
    engine.await.unwrap();
    Outcome { answer, calls: std::iter::from_fn(|| calls.try_recv().ok()).collect() }
}

async fn collected(mut stream: Streaming<Bytes>) -> Result<Vec<Bytes>, Status> {
    let mut messages = Vec::new();
    while let Some(message) = stream.message().await? {
        messages.push(message);
    }
    Ok(messages)
}

/// A request around the message that has this JSON.
fn request(message: &str, json: &Value) -> Vec<Bytes> {
    vec![wrap(&from_json(message, json).unwrap()).into()]
}

fn pieces(bytes: &[u8], size: usize) -> Vec<Bytes> {
    let piece = |piece: &[u8]| Data { chunk_size: size as u64, datum: Bytes::copy_from_slice(piece) };
    bytes.chunks(size).map(|bytes| piece(bytes).encode_to_vec().into()).collect()
}

fn done(json: Value) -> Result<Answer, Failure> {
    Ok(Answer::Json(json))
}

#[tokio::test]
async fn a_call_without_the_token_is_refused_in_the_words_of_grpc() {
    let (api, _calls) = Api::new();
    let token = Token::new(b"sesame").unwrap();
    let mut client = tonic::client::Grpc::new(guarded(routes(api), Some(&token), refuse));
    client.ready().await.unwrap();
    let path = "/otg.Openapi/GetVersion".try_into().unwrap();
    let messages = tokio_stream::iter(vec![Bytes::new()]);
    let Err(status) = client.streaming(tonic::Request::new(messages), path, Raw).await else {
        panic!("it is accepted");
    };
    assert_eq!(status.code(), Code::Unauthenticated);
    let error: Value = serde_json::from_str(status.message()).unwrap();
    assert_eq!(error["errors"], json!(["this server wants a token; send `Authorization: Bearer TOKEN`"]));
}

#[tokio::test]
async fn a_request_becomes_json_and_an_answer_a_message() {
    let config = json!({"ports": [{"name": "p1"}]});
    let outcome = call("SetConfig", request("Config", &config), done(json!({"warnings": ["w"]}))).await;
    assert_eq!(outcome.calls, [(Call::SetConfig, config.clone())]);
    assert_eq!(to_json("Warning", &unwrap(&outcome.message()).unwrap()), Ok(json!({"warnings": ["w"]})));

    let outcome = call("GetConfig", vec![Bytes::new()], done(config.clone())).await;
    assert_eq!(outcome.calls, [(Call::GetConfig, Value::Null)]);
    assert_eq!(to_json("Config", &unwrap(&outcome.message()).unwrap()), Ok(config));

    let outcome = call("GetCapture", request("CaptureRequest", &json!({})), Ok(Answer::Bytes(vec![1, 2]))).await;
    assert_eq!(unwrap(&outcome.message()), Ok(vec![1, 2]));
}

#[tokio::test]
async fn requests_of_real_clients_become_the_json_that_they_send_over_rest() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/recorded");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().path();
        if file.extension().is_some_and(|extension| extension == "json") {
            continue;
        }
        let (_, method) = file.file_stem().unwrap().to_str().unwrap().split_once('.').unwrap();
        let expected = serde_json::from_slice(&std::fs::read(file.with_extension("json")).unwrap()).unwrap();
        let bytes = Bytes::from(std::fs::read(&file).unwrap());
        let outcome = call(method, vec![bytes.clone()], Err(Failure::internal("not now"))).await;
        let found = METHODS.iter().find(|found| found.name == method).unwrap();
        assert_eq!(outcome.calls, [(found.call, expected)], "{}", file.display());
        // Clients write fields in the order of their numbers, and so does this.
        let inner = unwrap(&bytes).unwrap();
        assert_eq!(from_json(found.request.unwrap(), &outcome.calls[0].1), Ok(inner), "{}", file.display());
        count += 1;
    }
    assert!(count >= 18, "{count} requests");
}

#[tokio::test]
async fn a_large_request_comes_in_pieces() {
    let config = json!({"ports": (0..100).map(|port| json!({"name": format!("p{port}")})).collect::<Value>()});
    let bytes = from_json("Config", &config).unwrap();
    let outcome = call("streamSetConfig", pieces(&bytes, 100), done(json!({}))).await;
    assert_eq!(outcome.calls, [(Call::SetConfig, config)]);
    assert_eq!(unwrap(&outcome.message()), Ok(Vec::new()));

    let outcome = call("streamSetConfig", vec![Bytes::from_static(&[0x12, 5, 1])], done(json!({}))).await;
    assert_eq!(outcome.failure().0, Code::InvalidArgument);
    assert_eq!(outcome.calls, []);
}

#[tokio::test]
async fn a_request_has_a_limit_in_all_its_pieces() {
    let piece = pieces(&vec![0; 8 << 20], 8 << 20).remove(0);
    let outcome = call("streamSetConfig", vec![piece; 9], done(json!({}))).await;
    assert_eq!(outcome.failure().1["errors"], json!(["the request has more than 64 MiB"]));
    assert_eq!(outcome.calls, []);
}

#[tokio::test]
async fn a_large_answer_goes_in_pieces_or_not_at_all() {
    let file: Vec<u8> = (0..5 << 20).map(|at: u32| (at >> 8) as u8).collect();
    let wanted = request("CaptureRequest", &json!({"port_name": "p1"}));
    let outcome = call("streamGetCapture", wanted.clone(), Ok(Answer::Bytes(file.clone()))).await;
    let pieces = outcome.answer.unwrap();
    assert_eq!(pieces.len(), 5);
    let data: Vec<u8> = pieces.into_iter().flat_map(|piece| Data::decode(piece).unwrap().datum).collect();
    assert!(data == file);

    let outcome = call("GetCapture", wanted, Ok(Answer::Bytes(file))).await;
    let (code, error) = outcome.failure();
    assert_eq!(code, Code::ResourceExhausted);
    assert!(error["errors"][0].as_str().unwrap().starts_with("the file has 5242880 bytes, and clients"), "{error}");
}

#[tokio::test]
async fn what_is_not_supported_is_refused_by_its_path() {
    let bytes = vec![wrap(&[0x32, 5, 0x12, 3, 0xaa, 1, 0]).into()];
    let outcome = call("SetConfig", bytes, done(json!({}))).await;
    let errors = json!(["flows[0].packet[0]: field 21 (snmpv2c) of FlowHeader is not supported"]);
    assert_eq!(outcome.failure(), (Code::InvalidArgument, json!({"code": 3, "kind": "validation", "errors": errors})));
    assert_eq!(outcome.calls, []);

    for (method, messages, error) in [
        ("GetVersion", vec![Bytes::from_static(&[8, 1])], "the request of GetVersion has no fields"),
        ("GetConfig", vec![], "GetConfig takes one message, not 0"),
        ("SetConfig", vec![Bytes::new(); 2], "SetConfig takes one message, not 2"),
    ] {
        let outcome = call(method, messages, done(json!({}))).await;
        assert_eq!(outcome.failure().1["errors"], json!([error]));
        assert_eq!(outcome.calls, []);
    }
}

#[tokio::test]
async fn methods_that_do_not_exist_are_not_implemented() {
    for method in ["GetNothing", "streamGetVersion", "streamUpdateConfig", "stream"] {
        let outcome = call(method, vec![Bytes::new()], done(json!({}))).await;
        assert_eq!(outcome.answer.unwrap_err().code(), Code::Unimplemented, "{method}");
        assert_eq!(outcome.calls, []);
    }
}

#[tokio::test]
async fn failures_keep_their_kind_and_get_a_code_of_grpc() {
    let failure = Failure { code: 404, ..Failure::validation(vec!["no \"flow\" {x} of 100 % é".into()]) };
    let outcome = call("GetMetrics", request("MetricsRequest", &json!({})), Err(failure)).await;
    let error = json!({"code": 5, "kind": "validation", "errors": ["no \"flow\" {x} of 100 % é"]});
    assert_eq!(outcome.failure(), (Code::NotFound, error));

    let outcome = call("GetMetrics", request("MetricsRequest", &json!({})), done(json!({"unknown": 1}))).await;
    let (code, error) = outcome.failure();
    assert_eq!((code, error["kind"].as_str()), (Code::Internal, Some("internal")));
    assert_eq!(error["errors"], json!(["MetricsResponse: unrecognized field name 'unknown'"]));
}

#[test]
fn a_failure_fits_into_a_header() {
    let size = |failure: &Failure| status(failure).into_http::<()>().headers()["grpc-message"].len();
    let many: Vec<_> = (0..1000).map(|flow| format!("flows[{flow}]: it has no name")).collect();
    let fitted = fitting(&many);
    assert_eq!(fitted.last().unwrap(), &format!("{} more errors; REST returns all of them", 1001 - fitted.len()));
    assert_eq!(fitted[0], many[0]);
    for errors in [many, vec!["\u{1}".repeat(10_000)], vec!["é".repeat(10_000); 2], vec!["\"".repeat(2399)]] {
        assert!(size(&Failure::validation(errors)) < 7900);
    }
    assert_eq!(fitting(&["a".repeat(9000)])[0].len(), 403);
    assert_eq!(fitting(&[]), Vec::<String>::new());
}
