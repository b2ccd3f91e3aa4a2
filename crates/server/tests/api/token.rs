//! A server that wants a token, and what it can do: clients that write HTTP by hand.

use super::client::grpc_with_end;
use super::tls::{connect, is_version, version, with_server};
use drophammer_server::token::Token;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::SocketAddr;

/// `grpc-status: 16`, which is `UNAUTHENTICATED`, in the Huffman code of RFC 7541.
const UNAUTHENTICATED: [u8; 12] = [0x88, 0x9a, 0xca, 0xc8, 0xb2, 0x12, 0x34, 0xda, 0x8f, 0x82, 0x0b, 0x9f];

/// The answer to a request, as in `GET /config`, with these further headers.
fn ask(address: SocketAddr, request: &str, headers: &str) -> String {
    let mut stream = connect(address);
    let about = "Connection: close\r\nContent-Length: 0\r\n";
    let request = format!("{request} HTTP/1.1\r\nHost: {address}\r\n{about}{headers}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_client_without_the_token_gets_nothing() {
    with_server(false, Some(Token::new(b"sesame").unwrap()), |rest, grpc| {
        let (plain, of_runs) = (r#""errors":[""#, r#""errors":[{"message":""#);
        for (request, status, errors) in [
            ("GET /capabilities/version", "200", plain),
            ("GET /config", "200", plain),
            ("GET /nowhere", "404", plain),
            ("POST /control/action", "400", plain),
            ("GET /x-drophammer/run", "200", of_runs),
            ("POST /x-drophammer/run", "415", of_runs),
            ("DELETE /x-drophammer/run/none", "404", of_runs),
            ("GET /x-drophammer/run/none/events", "404", of_runs),
        ] {
            let (none, other) = ("this server wants a token", "this is not the token of this server");
            for (wrong, why) in
                [("", none), ("Authorization: Basic sesame\r\n", none), ("Authorization: Bearer open\r\n", other)]
            {
                let answer = ask(rest, request, wrong);
                assert!(answer.starts_with("HTTP/1.1 401") && answer.contains("www-authenticate: Bearer"), "{answer}");
                assert!(answer.contains(&format!("{errors}{why}")), "{request}: {answer}");
            }
            let answer = ask(rest, request, "Authorization: Bearer sesame\r\n");
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{request}: {answer}");
        }
        for method in ["GetVersion", "streamGetConfig", "Nothing"] {
            for wrong in [None, Some("Bearer open"), Some("sesame")] {
                let (answer, end) = grpc_with_end(connect(grpc), method, &[], wrong).unwrap();
                let is_told = end.windows(UNAUTHENTICATED.len()).any(|bytes| bytes == UNAUTHENTICATED);
                assert!(answer.is_empty() && is_told, "{method}: {wrong:?}: {end:x?}");
            }
        }
        is_version(&version(connect(grpc), Some("Bearer sesame")).unwrap());
        let (_, end) = grpc_with_end(connect(grpc), "streamGetConfig", &[], Some("Bearer sesame")).unwrap();
        assert!(!end.windows(UNAUTHENTICATED.len()).any(|bytes| bytes == UNAUTHENTICATED), "{end:x?}");
    });
}

#[test]
fn the_server_tells_what_it_can_do() {
    with_server(false, None, |rest, _| {
        let answer = ask(rest, "GET /capabilities", "");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        let told: Value = serde_json::from_str(body).unwrap();
        assert_eq!(told["backend"], "af_packet");
        let kinds = &told["requests"]["get_metrics"]["properties"]["choice"]["enum"];
        assert!(kinds.as_array().unwrap().contains(&"bgpv4".into()), "{kinds}");
        let headers = &told["requests"]["set_config"]["properties"]["flows"]["items"]["properties"]["packet"]["items"];
        assert!(headers["properties"]["mpls"]["properties"]["label"].is_object(), "{headers}");
    });
}
