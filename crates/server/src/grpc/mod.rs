//! gRPC of the API, service `otg.Openapi`: its messages become the JSON of the REST API ([`transcode`]) by the descriptors of our
//! own tables, so that both ways in reach the same [`Api::call`](crate::api::Api::call). There is no generated code.

pub mod check;
mod service;
mod table;
pub mod transcode;

pub use service::{MOST_BYTES, routes};
