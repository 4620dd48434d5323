//! Comparing with the reference, and saying how near it came: `scripts/parity` makes a table of what is said.

/// Requires a difference to be below its limit, and tells both.
///
/// # Panics
/// Where it is not.
#[allow(clippy::print_stdout, reason = "rows of a table, which a test runner shows on demand")]
pub(crate) fn near(case: &str, what: &str, worst: f32, limit: f32) {
    println!("| {case} | {what} | {worst:.1e} | {limit:.0e} |");
    assert!(worst < limit, "{case}, {what}: {worst}");
}
