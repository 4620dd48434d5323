//! The `sporran` program.
fn main() {}
