//! Flows to frames on time (generator); frames to loss, order and latency (analyzer).
