//! Messages of gRPC: any bytes are a message or refused, and what is a message stays the same on its way to JSON and back.

use drophammer_server::grpc::transcode::{from_json, to_json};

/// Messages that clients send, and some that the server sends.
pub const MESSAGES: [&str; 11] = [
    "Config",
    "ConfigUpdate",
    "ConfigAppend",
    "ConfigDelete",
    "ControlState",
    "ControlAction",
    "MetricsRequest",
    "StatesRequest",
    "CaptureRequest",
    "MetricsResponse",
    "StatesResponse",
];

/// The first byte chooses the message, the others are its bytes.
pub fn run(data: &[u8]) {
    let Some((first, bytes)) = data.split_first() else { return };
    let message = MESSAGES[usize::from(*first) % MESSAGES.len()];
    match to_json(message, bytes) {
        Ok(json) => {
            let again = from_json(message, &json).unwrap();
            assert_eq!(to_json(message, &again).unwrap(), json);
        }
        Err(refused) => assert!(!refused.reason.is_empty()),
    }
}
