//! Checks that a configuration is possible.

use crate::config::{Config, ConfigError};
use crate::faults::Faults;

pub(super) fn check(config: &Config) -> Result<(), ConfigError> {
    if config.capacity_pps.is_some_and(|c| !(1..=1_000_000_000).contains(&c)) {
        return Err(ConfigError::Limit("capacity_pps"));
    }
    if config.buffer == 0 {
        return Err(ConfigError::Limit("buffer"));
    }
    if !config.filter_time_per_rule.is_zero() && !config.classes.is_empty() {
        return Err(ConfigError::Limit("a time per rule of a device with classes"));
    }
    if !config.extension_time.is_zero() && !config.classes.is_empty() {
        return Err(ConfigError::Limit("a time for extension headers of a device with classes"));
    }
    if config.faults.sag.is_some() && !config.classes.is_empty() {
        return Err(ConfigError::Limit("a sag of a device with classes"));
    }
    for port in &config.ports {
        if port.speed.is_some_and(|s| !(1..=1_000_000_000_000_000).contains(&s.0)) {
            return Err(ConfigError::Limit("speed"));
        }
        if port.speed.is_some() && port.egress_buffer == 0 {
            return Err(ConfigError::Limit("egress_buffer"));
        }
    }
    check_faults(&config.faults, config.ports.len())
}

pub(super) fn check_faults(faults: &Faults, ports: usize) -> Result<(), ConfigError> {
    let named = [faults.misroute.map(|m| m.to_port), faults.own_frames.map(|o| o.port)];
    if let Some(port) = named.into_iter().flatten().find(|p| *p >= ports) {
        return Err(ConfigError::NoSuchPort(port));
    }
    if faults.sag.is_some_and(|s| !(1..=1_000_000_000).contains(&s.capacity_pps)) {
        return Err(ConfigError::Limit("capacity_pps of the sag"));
    }
    Ok(())
}
