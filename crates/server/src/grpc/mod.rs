//! gRPC of the API, service `otg.Openapi`: the descriptors of our own tables turn its messages into the JSON of the REST API
//! ([`transcode`]), so both reach the same [`Api::call`](crate::api::Api::call). There is no generated code.

pub mod check;
mod service;
mod table;
pub mod transcode;

pub(crate) use service::refuse;
pub use service::{MOST_BYTES, routes};
