//! Estimates of the resources of a sparse index.
//!
//! An index over the sample is built in a temporary folder, and one over half of it. The number of different terms grows
//! by Heaps' law and the bits of a posting with the logarithm of the number of passages, both at the rates between the two.
//! Everything else is proportional to the number of passages.

use std::{convert::Infallible, path::Path, time::Instant};

use serde::Serialize;
use sporran_kilt::{PassageId, store::SampledPassage};

use super::{
    builder::{Build, MEMORY, MOST_TERMS, Model, build_quietly, chunk_bytes, run_buffer, run_bytes},
    header::Header,
};
use crate::{
    Error, Result,
    layout::{self, Header as _},
    plan::{ALLOCATED, IndexPlan, PlannedPassages},
};

/// The passages of the sample, at most.
const MOST: usize = 16_384;
/// Bytes of a worker for each of its terms: the term and about one and a half words with the same stem, each with an
/// allocation and a slot of a hash table.
const WORKER_TERM: f64 = 200.0;
/// Bytes of a worker for each posting of its chunk: the posting, and the same by term.
const WORKER_POSTING: f64 = 20.0;

/// The sizes of an index.
struct Size {
    terms: f64,
    postings: f64,
    /// Bytes of the files of postings and of terms, without the hash table.
    posting_bytes: f64,
    term_bytes: f64,
}

impl Size {
    /// Builds an index in `folder`.
    fn of<M: Model>(
        model: &M,
        options: &impl Serialize,
        sample: &[&SampledPassage],
        folder: &Path,
    ) -> Result<Self> {
        let hash = "sample";
        let passages =
            (0..).zip(sample).map(|(id, (title, text))| Ok::<_, Infallible>((PassageId(id), title, text)));
        build_quietly(model, options, passages, hash, folder.to_owned().into(), Build::new(&mut |_| {}))?;
        let (header, _) = layout::open_unchecked::<Header>(folder, M::KIND, hash)?;
        let bytes = |names: [&str; 2]| {
            let some = header.sections().iter().filter(|section| names.contains(&section.name.as_str()));
            some.map(|section| section.bytes as f64).sum::<f64>()
        };
        Ok(Self {
            terms: f64::from(header.terms),
            postings: header.postings as f64,
            posting_bytes: bytes(["postings", "blocks"]),
            term_bytes: bytes(["terms", "names"]),
        })
    }
}

/// The estimated resources of an index.
pub(super) fn plan<M: Model>(
    model: &M,
    options: &impl Serialize,
    passages: PlannedPassages<'_>,
) -> Result<IndexPlan> {
    let sample: Vec<&SampledPassage> =
        passages.sample.iter().step_by(passages.sample.len().div_ceil(MOST).max(1)).collect();
    let half: Vec<&SampledPassage> = sample.iter().copied().step_by(2).collect();
    let folder = tempfile::tempdir().map_err(Error::io(&std::env::temp_dir(), "create"))?;
    let timed = |sample: &[&SampledPassage], name: &str| -> Result<(Size, f64)> {
        let start = Instant::now();
        let size = Size::of(model, options, sample, &folder.path().join(name))?;
        Ok((size, start.elapsed().as_secs_f64()))
    };
    // The first build also warms what both read.
    let (half_count, (half, half_seconds)) = (half.len(), timed(&half, "half")?);
    let (whole, whole_seconds) = timed(&sample, "whole")?;
    let owned: Vec<SampledPassage> = sample.iter().map(|&passage| passage.clone()).collect();
    let run_bytes = run_bytes(model, &owned)? as f64;

    let count = passages.count as f64;
    let scale = count / sample.len().max(1) as f64;
    // Files are opened, synced and renamed once, whatever their sizes.
    let each = (whole_seconds - half_seconds).max(0.0) / (sample.len() - half_count).max(1) as f64;
    let seconds = whole_seconds + each * (count - sample.len() as f64).max(0.0);
    let growth = if half.terms > 0.0 { (whole.terms / half.terms).log2().clamp(0.0, 1.0) } else { 1.0 };
    let terms = whole.terms * scale.max(1.0).powf(growth);
    let postings = whole.postings * scale;
    let of_posting = |size: &Size| size.posting_bytes / size.postings.max(1.0);
    let more_bits = (of_posting(&whole) - of_posting(&half)).max(0.0) * scale.max(1.0).log2();
    let slots = (terms * 1.5 + 1.0).log2().ceil().exp2() * 4.0;
    let disk = postings * (of_posting(&whole) + more_bits)
        + terms * (whole.term_bytes / whole.terms.max(1.0))
        + slots
        + 4.0 * count;

    let runs = run_bytes * scale;
    let memory = MEMORY as f64;
    let in_memory = runs.min(memory / 2.0);
    let text: usize = sample.iter().map(|(title, text)| title.len() + text.len()).sum();
    let chunk = (chunk_bytes(MEMORY) as f64).min(text as f64 * scale);
    let worker = chunk
        + terms.min(MOST_TERMS as f64) * WORKER_TERM
        + chunk * whole.postings / text.max(1) as f64 * WORKER_POSTING;
    let chunks = (text as f64 * scale / chunk.max(1.0)).ceil();
    let workers = (rayon::current_num_threads() as f64 + 1.0).min(chunks);
    let collecting = in_memory + workers * worker + 2.0 * chunk + 4.0 * count;
    // Runs of equal length, of which those beyond the budget are on disk.
    let spilled = if runs > 0.0 { chunks * (1.0 - in_memory / runs) } else { 0.0 };
    let buffers = spilled * run_buffer(MEMORY, chunks as usize) as f64;
    let merging = in_memory + buffers + 8.0 * count + 8.0 * terms + slots;
    Ok(IndexPlan {
        kind: M::KIND,
        disk_bytes: disk as u64,
        build_disk_bytes: (disk + runs - in_memory) as u64,
        memory_bytes: (collecting.max(merging) * ALLOCATED) as u64,
        mapped_bytes: 0,
        seconds,
    })
}
