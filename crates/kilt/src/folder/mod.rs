//! Folders that one process builds and others map: stores and indexes.
//!
//! A folder `NAME` is built beside its place and renamed, so that it is there whole or not at all:
//!
//! | path | what |
//! |---|---|
//! | `.NAME.building.lock` | a file that is locked while a process builds `NAME`; its text names the process |
//! | `.NAME.building` | the folder that is being built |
//! | `.NAME.replaced` | the folder that stood at `NAME` before, until the new one has its name |
//!
//! A process that finds the lock taken waits until the other process ends, however it ends. [`Place::vacant`] then says
//! whether there is still something to build. What a killed process left is removed by the next build in the same
//! parent folder, except where a build can go on: such a build keeps a file named [`JOURNAL`] in its folder.
//!
//! A finished folder lists the length and the BLAKE3 hash of its files in a header. [`Contents`] compares them.

mod contents;
mod lock;
mod place;

pub use contents::{Contents, File, STAMP};
pub use place::{Building, JOURNAL, Leftover, Place, leftovers};
