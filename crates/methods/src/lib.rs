//! The tests, one file each, and the two traits between a test and the testbed it runs on.
//!
//! A [`Method`] does no I/O, reads no clock and starts no thread: it requests trials from a [`Testbed`] and evaluates
//! the results. So the same test runs on a router in a rack, on one in a namespace and, in virtual time, on the
//! reference device.

pub mod attempts;
pub mod back_to_back;
pub mod bgp_pass_through;
pub mod bgp_session_capacity;
pub mod bgp_table_capacity;
pub mod bgp_table_dump;
pub mod bgp_update_rate;
pub mod class_of_service;
pub mod convergence_skyline;
pub mod counter_accuracy;
mod episodes;
pub mod error_frames;
pub mod extension_headers;
pub mod fib_convergence;
pub mod figure;
pub mod filter_lists;
pub mod filters;
pub mod fixed_rate;
mod flood;
pub mod flood_targets;
pub mod forwarding_rate;
pub mod frame_loss_rate;
pub mod head_of_line_blocking;
pub mod head_to_head;
pub mod idle_traffic;
mod labelled;
pub mod latency;
pub mod link_failover;
pub mod longest_match;
mod lossy;
pub mod mixed_families;
pub mod mlrsearch;
pub mod modifiers;
pub mod overload;
pub mod packet_order;
pub mod parameters;
pub mod pattern;
pub mod ping_delay;
pub mod report;
pub mod reset;
pub mod rib_fib_capacity;
pub mod route_filtering;
pub mod route_flap;
pub mod route_forwarding;
pub mod route_outage;
mod route_probe;
pub mod route_spread;
pub mod route_steps;
pub mod route_tests;
pub mod route_traffic;
pub mod routed;
pub mod routes_sent;
pub mod routing;
pub mod routing_loop;
pub mod selftest;
pub mod soak;
pub mod system_recovery;
pub mod table;
pub mod testbed;
pub mod tester_ceiling;
pub mod throughput;
pub mod throughput_search;
pub mod trial;
pub mod trial_count;

pub use routing::{
    Change, ControlPlane, Packing, PeerView, RouteAction, Routing, Sending, SessionView, Settled, Trace, Verified,
};
pub use testbed::{Contestant, Facts, HighestLoads, Known, LowerBound, PortView, Setting, TestError, Testbed};
pub use trial::{CountersSeen, LastGrowth, RoutersSeen, Seen, Stillness, TimedActions, Trial};
pub use trial_count::TrialCount;

use crate::parameters::FRAME_SIZES;
use crate::pattern::Pattern;
use drophammer_model::outcome::Outcome;
use drophammer_model::registry::{Arrivals, TestSpec};
use drophammer_model::suite::Params;
use std::time::Duration;

/// A test.
pub trait Method: Sync {
    /// Name, parameters and sources.
    fn spec(&self) -> &'static TestSpec;

    /// Runs the test and writes results into `outcome` as they come, so that an error or an interruption keeps
    /// everything measured until then.
    ///
    /// # Errors
    /// Whatever stopped it; see [`TestError`].
    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError>;

    /// True if the test runs once for all DUTs, which are up at the same time: [`Method::run_together`].
    fn is_joint(&self) -> bool {
        false
    }

    /// True if the router may be idle for a while between two steps of the test ([`Testbed::progress`]).
    fn may_pause(&self) -> bool {
        true
    }

    /// [`Method::run`] for all DUTs at the same time: `outcomes[i]` is the outcome of contestant i of the testbed.
    ///
    /// # Errors
    /// As for [`Method::run`].
    fn run_together(&self, bed: &mut dyn Testbed, params: &Params, outcomes: &mut [Outcome]) -> Result<(), TestError> {
        let _ = (bed, params, outcomes);
        Err(TestError::NotApplicable("it runs on each router alone".into()))
    }

    /// Approximate duration on one DUT, for progress before any trial has been timed.
    fn estimate(&self, params: &Params) -> Duration;

    /// The same if the throughput of every pattern is known from an earlier test, so that no search is needed.
    fn estimate_known(&self, params: &Params) -> Duration {
        self.estimate(params)
    }

    /// Number of trials on one DUT, searches included. No earlier test has found the throughput of `searches` of the
    /// patterns of [`Method::searched`]. `None` if the number is not known in advance.
    fn trials(&self, params: &Params, searches: usize) -> Option<TrialCount> {
        let _ = (params, searches);
        None
    }

    /// The patterns whose throughput the test needs. It searches those that no earlier test has found, and later tests
    /// then know the result.
    fn searched(&self, params: &Params) -> Vec<Pattern> {
        route_traffic::load_patterns(self.spec(), params)
    }

    /// The traffic patterns that it offers, for which the tester's own ceiling must be known.
    fn patterns(&self, params: &Params) -> Vec<Pattern> {
        let sizes = FRAME_SIZES.find(params).unwrap_or_default();
        let own = sizes.into_iter().map(|size| Pattern::new(size, params));
        own.chain(route_traffic::load_patterns(self.spec(), params)).collect()
    }

    /// What it must know of arrivals. A rate needs counts alone, and a backend without times is faster.
    fn arrivals(&self) -> Arrivals {
        Arrivals::Stamped
    }

    /// How long the DUT's processor may stand still in a trial with events of `trial_s` seconds, if that is longer than the limit of
    /// other trials. A test that counts losses has no such time; one that only reads times of seconds can bear it. Trials without
    /// events, as those of a search, never have it.
    fn tolerated_stall(&self, trial_s: f64) -> Duration {
        let _ = trial_s;
        Duration::ZERO
    }

    /// Deviations of these parameters from the source of the test ("trials of 1 s instead of 60 s (RFC 2544 section
    /// 24)"). They omit the test's name, so that a run states what several tests share once; empty for a conformant
    /// run.
    fn deviations(&self, params: &Params) -> Vec<String> {
        let _ = params;
        Vec::new()
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
    &flood_targets::Flood,
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
    &longest_match::LongestMatch,
    &fib_convergence::FibConvergence,
    &convergence_skyline::ConvergenceSkyline,
    &route_flap::RouteFlap,
    &route_filtering::RouteFiltering,
    &link_failover::LinkFailover,
    &reset::ResetTest,
    &tester_ceiling::TesterCeiling,
];

/// The test of this name.
pub fn find(name: &str) -> Option<&'static dyn Method> {
    METHODS.iter().copied().find(|m| m.spec().name == name)
}
