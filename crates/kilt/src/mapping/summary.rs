//! The counts of a mapping.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{BleuHistogram, Fate, MappedSet};

/// The counts of a mapping.
///
/// `read` is the sum of `written`, `without_evidence`, `without_page` and `without_output`; `outputs` that of
/// `outputs_written`, `outputs_incomplete`, `outputs_below` and `outputs_equal`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MapSummary {
    /// Records read.
    pub read: u64,
    /// Records written.
    pub written: u64,
    /// Records skipped because the dataset has no evidence for them.
    pub without_evidence: u64,
    /// Records dropped because all pages of their evidence are missing.
    pub without_page: u64,
    /// Records dropped because no output was kept, though a page exists.
    pub without_output: u64,
    /// Sets of evidence in the dataset, each of which is enough for its record.
    pub outputs: u64,
    /// Outputs with evidence that were written.
    pub outputs_written: u64,
    /// Outputs dropped because pages or texts are missing; in `train` the answer stays without them.
    pub outputs_incomplete: u64,
    /// Outputs dropped because the BLEU of a span is too low; in `train` the answer stays without them.
    pub outputs_below: u64,
    /// Outputs dropped because another of the same record has the same spans.
    pub outputs_equal: u64,
    /// Pieces of evidence in all sets.
    pub pieces: u64,
    /// Pieces whose page is in the source.
    pub pages: u64,
    /// Pieces with a span of BLEU 1.
    pub exact: u64,
    /// Pieces with a span of a lower BLEU, above 0.
    pub fuzzy: u64,
    /// Pieces with known text without a matching span in their page.
    pub unmatched: u64,
    /// The mean BLEU of the pieces with known text and page; none without such pieces.
    pub mean_bleu: Option<f64>,
    /// These pieces by BLEU (Petroni et al. 2021, figure 5).
    pub histogram: BleuHistogram,
    /// Records with evidence in the dataset that were not written, as a share; none without such records.
    pub discarded: Option<f64>,
}

impl MapSummary {
    /// Counts the pieces of a set, and returns the sum of their BLEU.
    pub(super) fn count(&mut self, set: &MappedSet) -> f64 {
        self.outputs += 1;
        self.pieces += (set.items.len() + set.missing) as u64;
        self.pages += set.items.len() as u64;
        let mut total = 0.0;
        for score in set.items.iter().filter_map(|item| item.bleu_score) {
            total += score;
            self.histogram.add(score);
            let kind = match score {
                1.0 => &mut self.exact,
                0.0 => &mut self.unmatched,
                _ => &mut self.fuzzy,
            };
            *kind += 1;
        }
        total
    }

    /// Sets the means and shares from the sum of all BLEU.
    pub(super) fn finish(&mut self, total: f64) {
        let scored = self.histogram.total();
        self.mean_bleu = (scored > 0).then(|| total / scored as f64);
        let with_evidence = self.read - self.without_evidence;
        let discarded = self.without_page + self.without_output;
        self.discarded = (with_evidence > 0).then(|| discarded as f64 / with_evidence as f64);
    }

    pub(super) fn decide(&mut self, fate: Fate) {
        let count = match fate {
            Fate::Written => &mut self.outputs_written,
            Fate::Incomplete => &mut self.outputs_incomplete,
            Fate::Below => &mut self.outputs_below,
            Fate::Equal => &mut self.outputs_equal,
        };
        *count += 1;
    }
}

impl fmt::Display for MapSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} written of {} read; {} without evidence in the dataset, {} without a page, {} without an output left",
            self.written, self.read, self.without_evidence, self.without_page, self.without_output
        )?;
        writeln!(
            f,
            "{} outputs with evidence written of {}; {} that lack a page or a text, {} with a span of too low a BLEU, {} equal to another",
            self.outputs_written,
            self.outputs,
            self.outputs_incomplete,
            self.outputs_below,
            self.outputs_equal
        )?;
        write!(
            f,
            "{} pieces of evidence, {} with a page; {} exact, {} fuzzy, {} not found there",
            self.pieces, self.pages, self.exact, self.fuzzy, self.unmatched
        )?;
        if let Some(mean) = self.mean_bleu {
            let bins: Vec<String> = self.histogram.0.iter().map(u64::to_string).collect();
            write!(f, "; mean BLEU {mean:.3}; by tenths {}", bins.join(" "))?;
        }
        match self.discarded {
            Some(share) => write!(f, "\n{:.2}% of the records with evidence discarded", 100.0 * share),
            None => Ok(()),
        }
    }
}
