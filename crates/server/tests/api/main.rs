//! The API as its clients see it, malicious ones too.

mod client;
#[path = "../../../../fuzz/src/corpus.rs"]
mod corpus;
mod malicious_grpc;
mod malicious_otg;
mod recorded;
mod server;
mod tls;
mod token;
