//! The TTL of packets when labels are pushed and popped (RFC 3443).

use drophammer_model::registry::{ParamKind, ParamSpec};
use drophammer_model::suite::Params;

/// Parameter `ttl_model` of the kinds that forward by labels.
pub const TTL_MODEL: ParamSpec = ParamSpec::new(
    "ttl_model",
    ParamKind::Choice(&["uniform", "pipe"]),
    "uniform",
    "uniform",
    "labels have the TTL of the packet and give it back (uniform), or have one of their own, 255 where they are pushed (pipe; RFC 3443)",
);

/// True if labels have a TTL of their own.
pub fn is_pipe(params: &Params) -> bool {
    params.text(TTL_MODEL.key).as_deref() == Some("pipe")
}
