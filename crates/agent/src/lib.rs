//! A rig whose ports are on other hosts, over NATS with JetStream.
