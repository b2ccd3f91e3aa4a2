//! One or few LSPs: set up, torn down, timed out, refused, lost and restarted.

use super::common::*;
use drophammer_emulation::rsvp::RsvpConfig;

#[test]
fn an_lsp_is_set_up_and_torn_down() {
    let mut world = World::new(3, RsvpConfig::default());
    world.set_up(0..3, 0);
    world.run_to(seconds(1.0));
    assert_eq!(world.up(), [3; 2]);
    world.tear_down(1..2, 0);
    world.run_to(seconds(2.0));
    assert_eq!(world.up(), [2; 2]);
    assert_eq!([0, 1, 2].map(|lsp| world.rsvp(INGRESS).label_of(lsp)), [Some(100_000), None, Some(100_002)]);
}
