//! Estimates of the resources of a dense index.
//!
//! The encoder is loaded and encodes a few passages of the sample. Their vectors give the length of a vector, and the time
//! gives the rate. The sizes of files and buffers follow from the number of vectors and their length.

use std::time::Instant;

use sporran_kernels::{CodeBits, Codes, Panels, Storage};
use sporran_kilt::resources::memory;

use super::{DenseOptions, HnswLibrary, IndexOptions, PassageEncoder, pq::parts_of, rows::PORTION};
use crate::{
    Result,
    plan::{ALLOCATED, IndexPlan, PlannedPassages},
};

/// The number of passages that are encoded.
const ENCODED: usize = 128;
/// The values of a token in the buffers of an encoder, for each value of its vector.
const BUFFERED: u64 = 16;
/// The rows that are in memory at once while the files are written and while recall is measured.
const AT_ONCE: u64 = 16_384;

/// The sizes of an index over vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sizes {
    /// Bytes of its files.
    disk: u64,
    /// Bytes that its build allocates.
    memory: u64,
    /// Bytes of its files that its build maps, without the vectors in `f32`.
    mapped: u64,
}

/// The sizes of an index over `count` vectors of `dim` values.
fn sizes(options: &IndexOptions, is_distance: bool, count: u64, dim: u64, threads: u64) -> Result<Sizes> {
    let batches = AT_ONCE.min(count) * dim * 8;
    Ok(match options {
        _ if is_distance => Sizes { disk: count * dim * 4, memory: batches, mapped: 0 },
        IndexOptions::Flat(options) => {
            let panels = count.div_ceil(Panels::ROWS as u64);
            let panel = Storage::from(options.storage).panel_bytes(dim as usize) as u64;
            let rescored =
                if options.rescore > 0 { count * dim * options.rescore_storage.bytes() as u64 } else { 0 };
            Sizes { disk: panels * panel + rescored, memory: batches, mapped: 0 }
        }
        IndexOptions::Pq(options) => {
            let bits = CodeBits::from(options.bits);
            let parts = parts_of(options, dim as usize)?;
            let codes = count.div_ceil(Codes::ROWS as u64) * bits.block_bytes(parts) as u64;
            let centroids = bits.codes() as u64 * dim * 4;
            let rescored =
                if options.rescore > 0 { count * dim * options.rescore_storage.bytes() as u64 } else { 0 };
            let sample = count.min(options.sample as u64);
            Sizes {
                disk: codes + centroids + rescored,
                // The sample, and for each thread the codes and distances of its points.
                memory: sample * dim * 4 + threads * sample * 16 + 4 * centroids + batches,
                mapped: codes + rescored,
            }
        }
        IndexOptions::Hnsw(options) => {
            let vectors = count * dim * options.storage.bytes() as u64;
            let links = count * 8 * options.links as u64;
            match options.library {
                HnswLibrary::Own => Sizes {
                    disk: vectors + links,
                    // Links, rows in 8 bits with their scales, extra values and the order, and the visits of each walk.
                    memory: links + count * (dim + 4) + count * 24 + threads * count + batches,
                    mapped: vectors + links,
                },
                HnswLibrary::HnswRs => {
                    // Each point has its own vector, the lists of all layers, and for each link a shared pointer.
                    let graph = count * (4 * dim + 900 + 48 * options.links as u64);
                    Sizes {
                        disk: vectors + links + count * (4 * dim + 64),
                        memory: 2 * graph + batches,
                        mapped: vectors,
                    }
                }
            }
        }
    })
}

impl DenseOptions {
    /// The estimated resources of the index.
    pub(super) fn plan_index(&self, passages: PlannedPassages<'_>) -> Result<IndexPlan> {
        let before = memory();
        let encoder = PassageEncoder::load(self)?;
        let every = passages.sample.len().div_ceil(ENCODED).max(1);
        let some: Vec<(&str, &str)> = passages
            .sample
            .iter()
            .step_by(every)
            .map(|(title, text)| (title.as_str(), text.as_str()))
            .collect();
        let start = Instant::now();
        let vectors = encoder.encode(&some)?;
        let seconds = start.elapsed().as_secs_f64() / some.len().max(1) as f64 * passages.count as f64;
        let (dim, count) = (vectors.dim() as u64, passages.count);
        let buffers = self.batch_tokens as u64 * dim * 4 * BUFFERED;
        // Where the system tells the memory of the process, the encoder's is measured. Its greatest memory counts where it
        // is the greatest of the process so far.
        let encoder = match (before, memory()) {
            (Some(before), Some(after)) => {
                let kept = after.now.saturating_sub(before.now);
                let most = after.most.saturating_sub(before.now);
                if after.most > before.most { most } else { most.min(kept + buffers) }
            }
            _ => 2 * weights(self) + buffers,
        };
        let threads = rayon::current_num_threads() as u64;
        let is_distance = self.similarity()?.is_distance();
        let sizes = sizes(&self.index, is_distance, count, dim, threads)?;
        let rows = count * dim * 4;
        let portions = PORTION as u64 * dim * 8;
        Ok(IndexPlan {
            kind: "dense",
            disk_bytes: sizes.disk,
            build_disk_bytes: sizes.disk + rows,
            memory_bytes: encoder + ((sizes.memory + portions) as f64 * ALLOCATED) as u64,
            mapped_bytes: rows + sizes.mapped,
            seconds,
        })
    }
}

/// Bytes of the files of the passage encoder.
fn weights(options: &DenseOptions) -> u64 {
    let folder = options.passage_model.as_ref().unwrap_or(&options.model);
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    files.filter_map(|file| file.metadata().ok()).filter(|file| file.is_file()).map(|file| file.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dense::{FlatOptions, HnswOptions, PqOptions, Storage as Stored};

    #[test]
    fn sizes_are_those_of_the_files() {
        let flat = |storage, rescore| {
            let options = FlatOptions { storage, rescore, ..FlatOptions::default() };
            sizes(&IndexOptions::Flat(options), false, 64, 8, 2).unwrap().disk
        };
        assert_eq!((flat(Stored::F32, 0), flat(Stored::F16, 0)), (64 * 8 * 4, 64 * 8 * 2));
        // A scale and a sum of 4 bytes for each vector in 8 bits, and vectors in 16 bits for rescoring.
        assert_eq!(flat(Stored::Int8, 0), 64 * (8 + 4 + 4));
        assert_eq!(flat(Stored::Int8, 4) - flat(Stored::Int8, 0), 64 * 8 * 2);
        let pq = sizes(&IndexOptions::Pq(PqOptions::default()), false, 64, 8, 2).unwrap();
        assert_eq!(pq.disk, 64 + 256 * 8 * 4);
        let hnsw = sizes(&IndexOptions::Hnsw(HnswOptions::default()), false, 100, 8, 2).unwrap();
        assert_eq!(hnsw.disk, 100 * (8 * 4 + 32 * 4));
        assert!(hnsw.memory > hnsw.disk);
    }
}
