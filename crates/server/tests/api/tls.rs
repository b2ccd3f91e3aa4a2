//! gRPC with and without TLS: a client that writes HTTP/2 by hand asks a whole server for its version.

use drophammer_port::INTERFACE_BACKENDS;
use drophammer_server::runs::{Refused, Run, Starter, Wrong};
use drophammer_server::server::{Listening, Options, serve};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Types and flags of HTTP/2 frames (RFC 9113 section 6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// How long to wait for the server, which answers at once unless the machine is busy.
const PATIENCE: Duration = Duration::from_secs(120);

/// Starts no runs.
struct NoRuns;

impl Starter for NoRuns {
    fn start(&self, _: &str, _: &[String]) -> Result<Arc<dyn Run>, Refused> {
        Err(Refused { code: 1, errors: vec![Wrong::of("this server runs no suites")] })
    }
}

/// Runs a server while `client` uses the address of its gRPC.
fn with_server<T>(grpc_tls: bool, client: impl FnOnce(SocketAddr) -> T) -> T {
    let options = Options {
        backend: &INTERFACE_BACKENDS[0],
        lender: None,
        idle_stop: None,
        interfaces: HashMap::new(),
        may_use: |_| Ok(()),
        warn: |text| panic!("{text}"),
    };
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let listening = Listening { rest: any, tls: false, grpc: any, grpc_tls };
    let stop = Arc::new(AtomicBool::new(false));
    let (tell, told) = mpsc::channel();
    std::thread::scope(|scope| {
        let server =
            scope.spawn(|| serve(options, listening, Box::new(NoRuns), 1, &stop, |_, grpc| tell.send(grpc).unwrap()));
        let done = client(told.recv_timeout(PATIENCE).unwrap());
        stop.store(true, Ordering::Relaxed);
        assert_eq!(server.join().unwrap(), Ok(()));
        done
    })
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn write_frame(to: &mut impl Write, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> std::io::Result<()> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    to.write_all(&frame)
}

/// Calls `GetVersion` and returns the message of the answer.
fn version(mut stream: impl Read + Write) -> std::io::Result<Vec<u8>> {
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")?;
    write_frame(&mut stream, SETTINGS, 0, 0, &[])?;
    let mut headers = Vec::new();
    for (name, value) in [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/otg.Openapi/GetVersion"),
        (":authority", "localhost"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ] {
        // A literal without indexing (RFC 7541 section 6.2.2).
        headers.push(0);
        for text in [name, value] {
            headers.push(text.len() as u8);
            headers.extend(text.bytes());
        }
    }
    write_frame(&mut stream, HEADERS, END_HEADERS, 1, &headers)?;
    // A message of no bytes.
    write_frame(&mut stream, DATA, END_STREAM, 1, &[0; 5])?;
    let mut message = Vec::new();
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head)?;
        let [a, b, c, kind, flags, ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        stream.read_exact(&mut payload)?;
        match kind {
            SETTINGS if flags & ACK == 0 => write_frame(&mut stream, SETTINGS, ACK, 0, &[])?,
            DATA => message.extend(payload),
            HEADERS if flags & END_STREAM != 0 => return Ok(message),
            _ => {}
        }
    }
}

/// Takes any certificate, as clients of the API do.
#[derive(Debug)]
struct AnyCertificate;

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

fn secured(address: SocketAddr) -> StreamOwned<ClientConnection, TcpStream> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let connection = ClientConnection::new(Arc::new(config), ServerName::try_from("localhost").unwrap()).unwrap();
    StreamOwned::new(connection, connect(address))
}

/// The message `Version` in its frame of gRPC, and in the answer.
fn is_version(answer: &[u8]) {
    let text = b">=1.40.0,<2.0.0";
    assert!(answer.windows(text.len()).any(|bytes| bytes == text), "{answer:?}");
}

#[test]
fn grpc_over_tls_answers_over_tls_only() {
    with_server(true, |address| {
        let mut stream = secured(address);
        is_version(&version(&mut stream).unwrap());
        assert_eq!(stream.conn.alpn_protocol(), Some(&b"h2"[..]));
        assert!(version(connect(address)).is_err(), "a client without TLS");
    });
}

#[test]
fn grpc_without_tls_answers_without_tls_only() {
    with_server(false, |address| {
        is_version(&version(connect(address)).unwrap());
        assert!(secured(address).write_all(b"PRI").is_err(), "a client with TLS");
    });
}
