//! Integration tests of this crate, in one program so that it is linked once.

mod causal;
mod device;
mod lstm;
mod parity;
