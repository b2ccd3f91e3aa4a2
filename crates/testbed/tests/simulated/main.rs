//! Whole runs on the reference device in virtual time, with exact expected counts.

#![allow(missing_docs)]

#[path = "../common/mod.rs"]
mod common;

mod abreast;
mod ahead;
mod class_of_service;
mod class_priority;
mod core_classes;
mod counter_accuracy;
mod encapsulation;
mod events;
mod extension_headers;
mod filter_modifier;
mod filters;
mod flood;
mod head_of_line_blocking;
mod head_to_head;
mod known_methods;
mod labels;
mod many_ports;
mod methods;
mod mixed_families;
mod modifiers;
mod one_port;
mod overload;
mod packet_order;
mod pairings;
mod ping_delay;
mod pipe_systems;
mod planned_trials;
mod priority_tags;
mod queues;
mod reference;
mod reference_bgp;
mod reset;
mod resumed;
mod rounds;
mod routing_loop;
mod selftest;
mod simulated_systems;
mod soak;
mod suites;
mod unread_counters;
mod vlans;
mod wrong_frames;
