//! Tests of forwarding: rates, loss, delay, order, filters, classes of service.

pub mod back_to_back;
pub mod class_of_service;
pub(crate) mod episodes;
pub mod extension_headers;
pub mod filters;
pub mod fixed_rate;
pub mod forwarding_rate;
pub mod frame_loss_rate;
pub mod head_of_line_blocking;
pub mod head_to_head;
pub mod latency;
pub mod mixed_families;
pub mod overload;
pub mod packet_order;
pub mod soak;
pub mod system_recovery;
pub mod throughput;
