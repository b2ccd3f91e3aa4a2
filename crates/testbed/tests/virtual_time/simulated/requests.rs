//! Trials on the reference device in which several things happen at the same time: each has the same result as if it
//! happened alone.

use crate::common::*;
use drophammer_methods::{Seen, Stillness, TestError, Testbed, Trial};
use drophammer_model::beside::{ExtraFrame, ProtocolCount};
use drophammer_model::echo::{EchoRequest, EchoTarget};
use drophammer_model::management::{Answers, Inquiry, Question};
use drophammer_model::trial::{Family, FlowSpec, Load, TrialSpec};
use drophammer_testbed::setup::TestSetup;
use std::time::Duration;

/// 10,000 frames per second from the first port to the second, for a second.
fn load(bed: &TestSetup<'_>) -> Trial {
    let range = |port: usize| bed.ports()[port].addressing(Family::Ipv4).unwrap().destinations;
    Trial::new(TrialSpec {
        purpose: "several at once".into(),
        size: "64".parse().unwrap(),
        flows: vec![FlowSpec::new("all", 0, 1, range(0), range(1))],
        load: Load::Constant { rate_pps: 10_000.0 },
        duration_s: 1.0,
        bin_s: None,
        drain_s: 0.5,
        events: vec![],
    })
}

fn inquiry() -> Inquiry {
    let (interval, afterwards) = (Duration::from_millis(100), Duration::from_millis(200));
    Inquiry { questions: vec![Question::Ping], interval, afterwards }
}

#[test]
fn what_happens_at_once_is_seen_as_if_it_happened_alone() {
    with_bed(
        &suite("", "tests: [throughput]\n"),
        &[Family::Ipv4],
        |_| {},
        |bed, _| {
            let (ask, extra) = (Some(inquiry()), Some(Vec::new()));
            let alone = [Trial { ask: ask.clone(), ..load(bed) }, Trial { extra: extra.clone(), ..load(bed) }];
            let [asked, observed] = alone.map(|trial| bed.run(&trial).unwrap());
            let both = bed.run(&Trial { ask, extra, ..load(bed) }).unwrap();
            let frames = |seen: &Seen| (seen.result.offered(), seen.result.received());
            assert_eq!([&asked, &observed, &both].map(frames), [(10_000, 10_000); 3]);
            let answers = |seen: &Seen| {
                let counts = |a: &Answers| (a.asked, a.times.len());
                seen.answered.iter().map(|a| (counts(&a.during), counts(&a.afterwards))).collect::<Vec<_>>()
            };
            assert_eq!([&asked, &both].map(answers), [vec![((10, 10), (2, 2))], vec![((10, 10), (2, 2))]]);
            // The answers to the questions are among the other frames, except those that arrive after the trial.
            let replies = |seen: &Seen| -> Option<u64> {
                let of = |count: &&ProtocolCount| count.protocol == "ICMP echo reply";
                Some(seen.other.as_ref()?.protocols.iter().filter(of).map(|count| count.frames).sum())
            };
            assert_eq!([&asked, &observed, &both].map(replies), [None, Some(0), Some(10)]);
        },
    );
}

#[test]
fn what_would_give_a_wrong_answer_at_once_is_refused() {
    with_bed(
        &suite("", "tests: [throughput]\n"),
        &[Family::Ipv4],
        |_| {},
        |bed, _| {
            let echo = vec![EchoRequest {
                at: Duration::from_millis(10),
                from: 0,
                to: EchoTarget::Router,
                family: Family::Ipv4,
                frame_bytes: 64,
            }];
            let (step, quiet) = (Duration::from_millis(10), Duration::from_millis(20));
            let routers = Some(Stillness { quiet, step, patience: Duration::from_secs(1) });
            let extra = Some(Vec::<ExtraFrame>::new());
            for (trial, why) in [
                (Trial { ask: Some(inquiry()), echo: echo.clone(), ..load(bed) }, "distinguished by their numbers"),
                (Trial { extra: extra.clone(), routers, ..load(bed) }, "observed over different periods"),
                (Trial { joint: true, extra, ..load(bed) }, "can only offer a load"),
            ] {
                let Err(TestError::NotApplicable(said)) = bed.run(&trial) else { panic!("{why}") };
                assert!(said.contains(why), "{said}");
            }
            // Each of the two is possible alone.
            assert_eq!(bed.run(&Trial { echo, ..load(bed) }).unwrap().echoes.len(), 1);
        },
    );
}
