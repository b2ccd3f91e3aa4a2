//! The tests, one file each, and the two traits between a test and its testbed.
//!
//! A [`Method`] does no I/O, reads no clock and starts no thread: it requests trials from a [`Testbed`] and evaluates
//! the results. So the same test runs on a router in a rack, on a router in a namespace and, in virtual time, on the
//! reference device.

pub mod device;
pub mod forwarding;
pub mod kit;
pub mod routes;
pub mod selftest;

// Folders group the files, but module paths are flat.
pub use device::*;
pub use forwarding::*;
pub use igp::Igp;
pub use kit::*;
pub use lsps::{LspPlan, Lsps, Signalling, UpLsp};
pub use plan::Plan;
pub use routes::*;
pub use routing::{
    Change, ControlPlane, Packing, PeerView, RouteAction, Routing, Sending, SessionView, Settled, Trace, Verified,
};
pub use selftest::tester_ceiling;
pub use testbed::{Contestant, Facts, HighestLoads, Known, LowerBound, PortView, Setting, TestError, Testbed};
pub use trial::{CountersSeen, LastGrowth, RoutersSeen, Seen, Stillness, TimedActions, Trial};
pub use trial_count::TrialCount;
pub use vpns::Vpns;

use drophammer_model::outcome::Outcome;
use drophammer_model::registry::TestSpec;
use drophammer_model::suite::Params;

/// A test.
pub trait Method: Sync {
    /// Name, parameters and sources.
    fn spec(&self) -> &'static TestSpec;

    /// Describes what the test will do with these parameters.
    fn plan(&self, params: &Params) -> Plan;

    /// Runs the test and writes each result into `outcome` immediately, so that an error or an interruption loses
    /// nothing that was measured before.
    ///
    /// # Errors
    /// The reason why the test stopped; see [`TestError`].
    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError>;

    /// True if the test runs once for all DUTs, which are up at the same time: [`Method::run_together`].
    fn is_joint(&self) -> bool {
        false
    }

    /// [`Method::run`] for all DUTs at the same time: `outcomes[i]` is the outcome of contestant i of the testbed.
    ///
    /// # Errors
    /// Errors of [`Method::run`].
    fn run_together(&self, bed: &mut dyn Testbed, params: &Params, outcomes: &mut [Outcome]) -> Result<(), TestError> {
        let _ = (bed, params, outcomes);
        Err(TestError::NotApplicable("it runs on one router at a time".into()))
    }
}

/// All tests, in the order in which `drophammer list tests` shows them.
pub static METHODS: &[&dyn Method] = &[
    &throughput::Throughput,
    &forwarding_rate::ForwardingRate,
    &frame_loss_rate::FrameLossRate,
    &latency::Latency,
    &ping_delay::PingDelay,
    &back_to_back::BackToBack,
    &system_recovery::SystemRecovery,
    &mixed_families::MixedFamilies,
    &extension_headers::ExtensionHeaders,
    &fixed_rate::FixedRate,
    &overload::Overload,
    &soak::Soak,
    &packet_order::PacketOrder,
    &filters::Filters,
    &class_of_service::ClassOfService,
    &head_of_line_blocking::HeadOfLineBlocking,
    &head_to_head::HeadToHead,
    &flood::Flood,
    &idle_traffic::IdleTraffic,
    &error_frames::ErrorFrames,
    &counter_accuracy::CounterAccuracy,
    &routing_loop::RoutingLoop,
    &bgp_table_capacity::BgpTableCapacity,
    &bgp_table_dump::BgpTableDump,
    &bgp_pass_through::BgpPassThrough,
    &bgp_update_rate::BgpUpdateRate,
    &bgp_session_capacity::BgpSessionCapacity,
    &rib_fib_capacity::RibFibCapacity,
    &lsp_capacity::LspCapacity,
    &longest_match::LongestMatch,
    &fib_convergence::FibConvergence,
    &convergence_skyline::ConvergenceSkyline,
    &route_flap::RouteFlap,
    &route_filtering::RouteFiltering,
    &link_failover::LinkFailover,
    &vpn_scale::VpnScale,
    &vpn_route_flap::VpnRouteFlap,
    &igp_convergence::IgpConvergence,
    &ldp_capacity::LdpCapacity,
    &reset::ResetTest,
    &tester_ceiling::TesterCeiling,
];

/// The test of this name.
pub fn find(name: &str) -> Option<&'static dyn Method> {
    METHODS.iter().copied().find(|m| m.spec().name == name)
}
