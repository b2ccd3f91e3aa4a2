//! The API as its clients see it, malicious ones too.

#[path = "../../../../fuzz/src/corpus.rs"]
mod corpus;
mod malicious_grpc;
mod malicious_otg;
mod tls;
