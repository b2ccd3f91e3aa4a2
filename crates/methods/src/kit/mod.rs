//! Parts shared by all tests: how to declare a test ([`parameters`], [`figure`], [`table`], [`plan`]), its interface to
//! the testbed ([`testbed`], [`trial`], [`routing`]), traffic ([`pattern`], [`modifiers`]), searches
//! ([`throughput_search`], [`mlrsearch`]), and tables of routes (`route_*`). A test begins with `use
//! crate::kit::prelude::*`.

pub mod attempts;
pub mod figure;
pub mod filter_lists;
pub mod igp;
pub mod igp_traffic;
pub(crate) mod labelled;
pub(crate) mod lossy;
pub mod lsps;
pub(crate) mod maximum_load;
pub mod mlrsearch;
pub mod modifiers;
pub mod parameters;
pub mod pattern;
pub mod plan;
pub mod prelude;
pub mod report;
pub(crate) mod route_probe;
pub mod route_spread;
pub mod route_steps;
pub mod route_tests;
pub mod route_traffic;
pub mod routed;
pub mod routes_sent;
pub mod routing;
pub mod table;
pub mod testbed;
pub mod throughput_search;
pub mod trial;
pub mod trial_count;
pub mod vpn_traffic;
pub mod vpns;
