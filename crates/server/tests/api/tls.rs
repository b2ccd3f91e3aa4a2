//! gRPC with and without TLS: a client asks a whole server for its version.

pub use crate::client::connect;

use crate::client::grpc;
use crate::server;
use drophammer_port::INTERFACE_BACKENDS;
use drophammer_server::token::Token;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

/// Runs a server without ports while `client` uses its addresses of REST and gRPC.
pub fn with_server<T>(grpc_tls: bool, token: Option<Token>, client: impl FnOnce(SocketAddr, SocketAddr) -> T) -> T {
    server::with_server(&INTERFACE_BACKENDS[0], HashMap::new(), grpc_tls, token, client)
}

/// Asks for the version, with this header `authorization`. Returns the message of the answer.
pub fn version(stream: impl Read + Write, authorization: Option<&str>) -> std::io::Result<Vec<u8>> {
    grpc(stream, "GetVersion", &[], authorization)
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
pub fn is_version(answer: &[u8]) {
    let text = b">=1.40.0,<2.0.0";
    assert!(answer.windows(text.len()).any(|bytes| bytes == text), "{answer:?}");
}

#[test]
fn grpc_over_tls_answers_over_tls_only() {
    with_server(true, None, |_, address| {
        let mut stream = secured(address);
        is_version(&version(&mut stream, None).unwrap());
        assert_eq!(stream.conn.alpn_protocol(), Some(&b"h2"[..]));
        assert!(version(connect(address), None).is_err(), "a client without TLS");
    });
}

#[test]
fn grpc_without_tls_answers_without_tls_only() {
    with_server(false, None, |_, address| {
        is_version(&version(connect(address), None).unwrap());
        assert!(secured(address).write_all(b"PRI").is_err(), "a client with TLS");
    });
}
