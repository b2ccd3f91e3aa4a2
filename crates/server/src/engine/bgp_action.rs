//! Actions of BGP: NOTIFICATIONs that a client wants to be sent, and graceful restarts.

use super::bench::Bench;
use super::control::places;
use crate::api::Failure;
use crate::model::read::Object;
use drophammer_emulation::bgp::{BgpCommand, State};
use drophammer_rig::Act;
use drophammer_wire::bgp::Notification;
use drophammer_wire::bgp::notification::{cease, code};
use std::time::Duration;

/// Errors whose subcode has a name: choice, code, and the names. Each name ends with its number.
const NAMED: [(&str, u8, &[&str]); 4] = [
    (
        "cease",
        code::CEASE,
        &[
            "admin_shutdown_code6_subcode2",
            "max_number_prefix_reached_code6_subcode1",
            "peer_deleted_code6_subcode3",
            "admin_reset_code6_subcode4",
            "connection_reject_code6_subcode5",
            "other_config_changes_code6_subcode6",
            "connection_collision_resolution_code6_subcode7",
            "out_of_resources_code6_subcode8",
            "hard_reset_code6_subcode9",
            "bfd_session_down_code6_subcode10",
        ],
    ),
    (
        "message_header_error",
        code::MESSAGE_HEADER,
        &[
            "connection_not_synchronized_code1_subcode1",
            "bad_message_length_code1_subcode2",
            "bad_message_type_code1_subcode3",
        ],
    ),
    (
        "open_message_error",
        code::OPEN,
        &[
            "unsupported_version_number_code2_subcode1",
            "error_peer_as_code2_subcode2",
            "error_bgp_id_code2_subcode3",
            "unsupported_optional_parameter_code2_subcode4",
            "auth_failed_code2_subcode5",
            "unsupported_hold_time_code2_subcode6",
            "unsupported_capability_code2_subcode7",
        ],
    ),
    (
        "update_message_error",
        code::UPDATE,
        &[
            "malformed_attrib_list_code3_subcode1",
            "unrecognized_wellknown_attrib_code3_subcode2",
            "wellknown_attrib_missing_code3_subcode3",
            "attrib_flags_error_code3_subcode4",
            "attrib_length_error_code3_subcode5",
            "invalid_origin_attrib_code3_subcode6",
            "as_routing_loop_code3_subcode7",
            "invalid_nhop_attrib_code3_subcode8",
            "error_optional_attrib_code3_subcode9",
            "invalid_network_field_code3_subcode10",
            "abnormal_aspath_code3_subcode11",
        ],
    ),
];

/// All choices of an error.
const KINDS: [&str; 7] = [
    "cease",
    "message_header_error",
    "open_message_error",
    "update_message_error",
    "hold_timer_expired",
    "finite_state_machine_error",
    "custom",
];

/// The number at the end of a name.
fn subcode_of(name: &str) -> u8 {
    name.rsplit("subcode").next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Reads which error a peer is told.
fn notification(o: &mut Object<'_>) -> Notification {
    let kind = o.choice(&KINDS, "cease");
    let mut error = o.object_or_empty(kind);
    if let Some((_, code, names)) = NAMED.iter().find(|(named, ..)| *named == kind) {
        let subcode = subcode_of(names[error.word("subcode", names, 0)]);
        // A hard reset contains the reason (RFC 8538 section 3.1).
        let data = match (*code, subcode) {
            (code::CEASE, cease::HARD_RESET) => vec![code::CEASE, cease::ADMINISTRATIVE_RESET],
            _ => Vec::new(),
        };
        return Notification::new(*code, subcode, data);
    }
    match kind {
        "hold_timer_expired" => Notification::bare(code::HOLD_TIMER_EXPIRED, 0),
        "finite_state_machine_error" => Notification::bare(code::FINITE_STATE_MACHINE, 0),
        _ => {
            let [code, subcode] = ["code", "subcode"].map(|key| error.number_or(key, u8::MAX.into(), 0) as u8);
            Notification::bare(code, subcode)
        }
    }
}

/// What sessions are to do.
#[derive(Clone, Debug)]
pub(super) enum BgpAction {
    /// End with this NOTIFICATION, and come back at once.
    Notify(Notification),
    /// Restart gracefully: end, with or without a NOTIFICATION, and come back after this time.
    Restart(Duration, Option<Notification>),
}

impl Bench {
    /// Reads an action of BGP, and the sessions that carry it out.
    pub(super) fn read_bgp_action(&self, mut bgp: Object<'_>) -> (Vec<usize>, BgpAction) {
        let names = self.built.sessions.iter().map(|session| session.name.as_str());
        let kind = bgp.choice(&["notification", "initiate_graceful_restart"], "notification");
        let mut o = bgp.object_or_empty(kind);
        if kind == "notification" {
            let sessions = places(&mut o, "names", "BGP peer", names);
            // The FIN follows the NOTIFICATION.
            o.only("fin_delay", 0);
            return (sessions, BgpAction::Notify(notification(&mut o)));
        }
        let sessions = places(&mut o, "peer_names", "BGP peer", names);
        if let Some(without) = sessions.iter().map(|i| &self.built.sessions[*i]).find(|session| !session.restarts) {
            let text = format_args!("`{}` does not offer it; set `graceful_restart.enable_gr`", without.name);
            o.wrong("peer_names", text);
        }
        let away = Duration::from_secs(o.number_or("restart_delay", 3_600, 30));
        let last = o.object("notification").map(|mut o| notification(&mut o));
        (sessions, BgpAction::Restart(away, last))
    }

    /// Lets these sessions carry out an action.
    ///
    /// # Errors
    /// A session has no connection; then none does anything.
    pub(super) fn bgp_action(&mut self, sessions: &[usize], action: &BgpAction) -> Result<(), Failure> {
        let connected = |session: &usize| {
            let found = self.rig.session(*session);
            found.is_some_and(|(routers, router)| routers.session(router).state() >= State::OpenSent)
        };
        let mut without = sessions.iter().filter(|session| !connected(session));
        if let Some(first) = without.next() {
            let (name, count) = (&self.built.sessions[*first].name, 1 + without.count());
            return Err(Failure::internal(format!(
                "{count} of the peers have no connection, for example `{name}`: wait until they are up, or name others"
            )));
        }
        for session in sessions {
            let place = self.rig.hosts().place(*session);
            let peer = place.router;
            let command = match action.clone() {
                BgpAction::Notify(notification) => BgpCommand::Notify { peer, notification },
                BgpAction::Restart(away, notification) => BgpCommand::Restart { peer, away, notification },
            };
            self.rig.command(place.port, &Act::bgp(place.device, command)).map_err(Failure::internal)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::read::Errors;
    use serde_json::{Value, json};

    fn read(text: Value) -> Result<Notification, Vec<String>> {
        let errors = Errors::default();
        let mut o = Object::document(text, &errors);
        let found = notification(&mut o);
        drop(o);
        errors.or(found)
    }

    #[test]
    fn every_error_has_its_code_and_subcode() {
        for (text, code, subcode) in [
            (json!({}), 6, 2),
            (json!({"cease": {"subcode": "bfd_session_down_code6_subcode10"}}), 6, 10),
            (json!({"choice": "message_header_error"}), 1, 1),
            (json!({"open_message_error": {"subcode": "auth_failed_code2_subcode5"}}), 2, 5),
            (json!({"update_message_error": {"subcode": "abnormal_aspath_code3_subcode11"}}), 3, 11),
            (json!({"choice": "hold_timer_expired", "hold_timer_expired": {}}), 4, 0),
            (json!({"choice": "finite_state_machine_error"}), 5, 0),
            (json!({"custom": {"code": 9, "subcode": "77"}}), 9, 77),
        ] {
            assert_eq!(read(text.clone()), Ok(Notification::bare(code, subcode)), "{text}");
        }
        let hard = read(json!({"cease": {"subcode": "hard_reset_code6_subcode9"}})).unwrap();
        assert_eq!(hard.inside_hard_reset(), Some(Notification::bare(6, 4)));
        for (_, code, names) in NAMED {
            let wrong = names.iter().find(|name| !name.ends_with(&format!("code{code}_subcode{}", subcode_of(name))));
            assert_eq!(wrong, None);
        }
    }

    #[test]
    fn errors_that_do_not_exist_are_refused_by_path() {
        for (text, error) in [
            (json!({"custom": {"code": 256}}), "custom.code: 256 is not a whole number from 0 to 255"),
            (json!({"cease": {"subcode": "other"}}), "cease.subcode: `other` is not supported; supported: admin_sh"),
            (json!({"choice": "other"}), "other: not supported"),
        ] {
            let found = read(text).unwrap_err();
            assert!(found[0].starts_with(error), "{found:?}");
        }
    }
}
