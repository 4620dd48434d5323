//! The time of day.

use std::time::{SystemTime, UNIX_EPOCH};

/// The seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
