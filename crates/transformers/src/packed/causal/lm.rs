//! The packed decoder as a language model.

use candle_core::{Device, Tensor};
use sporran_checkpoint::{Error, Result, SpecialTokens};
use sporran_kernels::{Activation, Rows, Table};

use super::{
    super::{
        kv_cache::KvCache,
        layers::{Linear, Machine},
        ragged::Ragged,
    },
    PackedLlama,
};
use crate::{
    batch::Batch,
    causal::{CausalCache, CausalLm},
    decode::GenerationOptions,
};

impl PackedLlama {
    /// Bounds and scales logits.
    fn finish(&self, machine: &Machine, logits: &mut [f32]) {
        let scale = self.logit_scale / self.logit_cap.unwrap_or(1.0);
        if scale != 1.0 {
            logits.iter_mut().for_each(|logit| *logit *= scale);
        }
        if let Some(cap) = self.logit_cap {
            Activation::Tanh.forward(machine.core.isa, logits);
            logits.iter_mut().for_each(|logit| *logit *= cap);
        }
    }

    /// The logits of all rows of `states`, row after row.
    fn logits(&self, machine: &mut Machine, states: &Rows) -> Result<Vec<f32>> {
        let mut logits = self.head()?.values(machine, states);
        self.finish(machine, &mut logits);
        Ok(logits)
    }

    fn head(&self) -> Result<&Linear> {
        self.head.as_ref().ok_or_else(|| Error::Batch {
            expected: "a model that scores words".into(),
            found: "an encoder".into(),
        })
    }
}

impl CausalLm for PackedLlama {
    fn begin(&self, input: &Batch, cache: &mut CausalCache) -> Result<Vec<f32>> {
        if cache.rows() != 0 {
            let found = format!("one of {} rows", cache.rows());
            return Err(Error::Batch { expected: "an empty cache".into(), found });
        }
        let ragged = Ragged::new(input)?;
        if self.reads_again_after.is_some() {
            cache.remember(input.rows()?);
        }
        self.machines.with(|machine| {
            let (xs, prompts) = self.read(machine, &ragged.tokens, &ragged.lengths, None)?;
            let mut last = Rows::new(prompts.len(), self.output_width());
            let mut end = 0;
            for (row, length) in ragged.lengths.iter().enumerate() {
                end += length;
                last.row_mut(row).copy_from_slice(xs.row(end - 1));
            }
            cache.packed = Some(KvCache::new(prompts, self.layers.len()));
            self.logits(machine, &last)
        })
    }

    fn decode(&self, tokens: &[u32], rows: usize, cache: &mut CausalCache) -> Result<Vec<f32>> {
        if rows == 0 || tokens.is_empty() || !tokens.len().is_multiple_of(rows) {
            let found = format!("{} tokens", tokens.len());
            return Err(Error::Batch { expected: format!("as many tokens for each of {rows} rows"), found });
        }
        let each = tokens.len() / rows;
        if cache.rows() == 0 {
            let rows: Vec<&[u32]> = tokens.chunks_exact(each).collect();
            return self.begin(&Batch::new(&rows, self.tokens.pad, &self.device)?, cache);
        }
        if cache.rows() != rows {
            let (expected, found) = (format!("tokens for {} rows", cache.rows()), format!("{rows} rows"));
            return Err(Error::Batch { expected, found });
        }
        let again = self.reads_again_after.and_then(|last| cache.outgrow(tokens, rows, last));
        if let Some(all) = again {
            return self.begin(&Batch::new(&all, self.tokens.pad, &self.device)?, cache);
        }
        let Some(kept) = &mut cache.packed else {
            let (expected, found) = ("a cache of this model".into(), "another model's".into());
            return Err(Error::Batch { expected, found });
        };
        self.machines.with(|machine| {
            let mut xs = Rows::default();
            for at in 0..each {
                let column: Vec<u32> = (0..rows).map(|row| tokens[row * each + at]).collect();
                xs = self.step(machine, &column, kept)?;
            }
            self.logits(machine, &xs)
        })
    }

    fn forward(&self, input: &Batch) -> Result<Tensor> {
        let ragged = Ragged::new(input)?;
        self.machines.with(|machine| {
            // Nothing is kept, since no token follows.
            let (xs, _) = self.read(machine, &ragged.tokens, &ragged.lengths, Some(&mut |_| {}))?;
            let mut logits = Rows::default();
            self.head()?.forward(machine, &xs, &mut logits);
            (0..logits.count()).for_each(|row| self.finish(machine, logits.row_mut(row)));
            ragged.padded(&logits, &self.device)
        })
    }

    fn special_tokens(&self) -> &SpecialTokens {
        &self.tokens
    }

    fn generation_defaults(&self) -> &GenerationOptions {
        &self.generation
    }

    fn vocab_size(&self) -> usize {
        match (&self.embeddings, &self.head) {
            (_, Some(head)) => head.matrix.outputs(),
            (table, None) => table.as_ref().map_or(0, Table::count),
        }
    }

    fn max_length(&self) -> usize {
        self.max_length
    }

    fn has_learned_positions(&self) -> bool {
        self.positions.is_some()
    }

    fn joins(&self) -> bool {
        true
    }

    fn device(&self) -> &Device {
        &self.device
    }
}
