//! The API as its clients see it, malicious ones too.

#[path = "../../../../fuzz/src/corpus.rs"]
mod corpus;
mod grpc;
mod otg;
mod tls;
