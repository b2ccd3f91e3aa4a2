//! Tests of routing: capacity, rates and convergence of BGP, with and without traffic to the routes.

pub mod bgp_pass_through;
pub mod bgp_session_capacity;
pub mod bgp_table_capacity;
pub mod bgp_table_dump;
pub mod bgp_update_rate;
pub mod convergence_skyline;
pub mod fib_convergence;
pub mod igp_convergence;
pub mod ldp_capacity;
pub mod link_failover;
pub mod longest_match;
pub mod lsp_capacity;
pub mod rib_fib_capacity;
pub mod route_filtering;
pub mod route_flap;
pub mod route_forwarding;
pub mod route_outage;
pub mod vpn_route_flap;
pub mod vpn_scale;
