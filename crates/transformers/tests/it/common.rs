//! Compares with the reference and prints the differences. `scripts/parity` makes a table of them.

/// Requires a difference to be below its limit, and prints both.
///
/// # Panics
/// Where it is not.
#[allow(clippy::print_stdout, reason = "rows of a table, which a test runner shows on demand")]
pub(crate) fn near(case: &str, what: &str, worst: f32, limit: f32) {
    println!("| {case} | {what} | {worst:.1e} | {limit:.0e} |");
    assert!(worst < limit, "{case}, {what}: {worst}");
}
