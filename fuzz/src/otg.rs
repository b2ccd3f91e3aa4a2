//! Configurations of the Open Traffic Generator API: any bytes are a configuration or refused with reasons, always the same.

use drophammer_server::check;

/// The bytes are JSON.
pub fn run(data: &[u8]) {
    let Ok(document) = serde_json::from_slice::<serde_json::Value>(data) else { return };
    let checked = check(document.clone());
    if let Err(reasons) = &checked {
        assert!(!reasons.is_empty() && reasons.iter().all(|reason| !reason.is_empty()));
    }
    assert_eq!(check(document), checked);
}
