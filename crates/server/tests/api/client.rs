//! Clients of REST and gRPC that write HTTP by hand.

use crate::server::PATIENCE;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

/// Types and flags of HTTP/2 frames (RFC 9113 section 6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Longest frame that every server takes.
const MOST_IN_A_FRAME: usize = 16_384;

/// A connection that waits no longer than [`PATIENCE`].
pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends a request, as in `POST /config`. Returns the status of the answer and its body.
pub fn rest(address: SocketAddr, request: &str, body: Option<&Value>) -> (u16, Vec<u8>) {
    let body = body.map(Value::to_string).unwrap_or_default();
    let about = format!("content-type: application/json\r\ncontent-length: {}", body.len());
    let text = format!("{request} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{about}\r\n\r\n{body}");
    let mut stream = connect(address);
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
    let body = answer.split_off(end + 4);
    let head = String::from_utf8(answer).unwrap().to_lowercase();
    assert!(!head.contains("transfer-encoding"), "{head}");
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body)
}

fn write_frame(to: &mut impl Write, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> std::io::Result<()> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    to.write_all(&frame)
}

/// Calls a method of gRPC, with this header `authorization`. Returns the message of the answer, after the 5 bytes in
/// front of it, or nothing if the call is refused.
pub fn grpc(
    stream: impl Read + Write,
    method: &str,
    message: &[u8],
    authorization: Option<&str>,
) -> std::io::Result<Vec<u8>> {
    grpc_with_end(stream, method, message, authorization).map(|(answer, _)| answer)
}

/// Like [`grpc`]. Also returns the last headers, which have the status of the call, as they were sent.
pub fn grpc_with_end(
    mut stream: impl Read + Write,
    method: &str,
    message: &[u8],
    authorization: Option<&str>,
) -> std::io::Result<(Vec<u8>, Vec<u8>)> {
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")?;
    write_frame(&mut stream, SETTINGS, 0, 0, &[])?;
    let mut headers = Vec::new();
    let path = format!("/otg.Openapi/{method}");
    let fixed = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path.as_str()),
        (":authority", "localhost"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    for (name, value) in fixed.into_iter().chain(authorization.map(|value| ("authorization", value))) {
        // A literal without indexing (RFC 7541 section 6.2.2).
        headers.push(0);
        for text in [name, value] {
            headers.push(text.len() as u8);
            headers.extend(text.bytes());
        }
    }
    write_frame(&mut stream, HEADERS, END_HEADERS, 1, &headers)?;
    // Not compressed, and the length.
    let mut body = vec![0];
    body.extend((message.len() as u32).to_be_bytes());
    body.extend(message);
    assert!(body.len() <= MOST_IN_A_FRAME);
    write_frame(&mut stream, DATA, END_STREAM, 1, &body)?;
    let mut answer = Vec::new();
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head)?;
        let [a, b, c, kind, flags, ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        stream.read_exact(&mut payload)?;
        match kind {
            SETTINGS if flags & ACK == 0 => write_frame(&mut stream, SETTINGS, ACK, 0, &[])?,
            DATA => answer.extend(payload),
            HEADERS if flags & END_STREAM != 0 => return Ok((answer, payload)),
            _ => {}
        }
    }
}
