//! Annotation of evidence, as in the campaign of the KILT paper (Petroni et al. 2021, appendix).
//!
//! [`candidates`] selects passages of several systems' rankings for the records of a task file and writes a
//! [`sheet`]. Each annotator fills in a copy. [`merge`] adds the passages that enough annotators accepted to the
//! records, and [`agreement`] measures how far the annotators agree. [`review`] lists the records whose evidence has
//! few words of their answers.

pub mod agreement;
pub mod candidates;
pub mod merge;
mod passages;
pub mod review;
pub mod sheet;
mod votes;
