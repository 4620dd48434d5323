//! The check of a generator's models, without loading them.

use sporran_checkpoint::{Tokenizer, find_gguf};
use sporran_config::Document;
use sporran_transformers::wrong_model_type;

use crate::{
    ReleasedNsmnConfig,
    kind::{GeneratorKind, GeneratorModel},
    registry::TAKERS,
};

/// Reports models that are missing or do not fit, and other mistakes of a generator's options. `is_trained`: the models
/// exist already. `depth`: the number of retrieved passages.
pub fn check_generator(
    options: &dyn GeneratorKind,
    (key, is_trained): (&str, bool),
    depth: Option<usize>,
    document: &mut Document<'_>,
) {
    options.check(key, document);
    for GeneratorModel { key, folder, device, precision, passages: _, takes } in options.models(key) {
        // A GGUF file contains its config and its tokenizer.
        let is_gguf = find_gguf(folder).is_ok_and(|found| found.is_some_and(|file| file.is_file()));
        if is_trained && !is_gguf {
            let key = format!("{key}.model");
            document.check_checkpoint(&key, folder);
            // The released networks of NSMN have a vocabulary of words instead of a tokenizer.
            let reads_words = || ReleasedNsmnConfig::names(folder).is_ok_and(|is| is);
            if folder.exists() && !Tokenizer::is_in(folder) && !reads_words() {
                document.report_key(&key, format!("no file tokenizer.json in {}", folder.display()));
            }
        }
        if let Some(message) = is_trained.then(|| wrong_model_type(folder, takes, TAKERS)).flatten() {
            document.report_key(&format!("{key}.model"), message);
        }
        if let Err(error) = device.check(precision) {
            document.report_key(&format!("{key}.device"), error.to_string());
        }
    }
    for (key, passages) in options.read_passages(key) {
        if let Some(depth) = depth.filter(|depth| passages > *depth) {
            let message = format!("expected at most `evidence.depth` ({depth}), found {passages}");
            document.report_key(&format!("{key}.prompt.passages"), message);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use sporran_config::Text;

    use super::*;
    use crate::GeneratorOptions;

    #[test]
    fn a_model_of_another_type_is_reported_with_the_kinds_that_take_it() {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../transformers/tests/data");
        let check = |kind: &str, model: &str| {
            let keys = format!("[generator]\nkind = \"{kind}\"\nmodel = {:?}\n", data.join(model));
            let text = Text::new(Path::new("c.toml"), keys, &[]);
            let mut document = Document::parse(&text);
            let written = document.clone();
            let generator: GeneratorOptions = document.read_stage("generator").ok().flatten().unwrap();
            document.restore(written);
            check_generator(&*generator, ("generator", true), None, &mut document);
            let found = document.into_diagnostics();
            found.iter().map(ToString::to_string).filter(|it| it.contains("expected")).collect::<Vec<_>>()
        };
        let found = check("extractive", "t5-relu");
        let start = "c.toml:3: `generator.model`: expected DPR's reader, found an encoder-decoder (`t5`) in ";
        assert!(found[0].starts_with(start), "{found:?}");
        let kinds = "; kinds that take it: `seq2seq`, `fid`, `rag-sequence`, `rag-token`, `memnet`";
        assert!(found[0].ends_with(kinds), "{found:?}");
        let found = check("seq2seq", "encoders/bert-sequence");
        assert!(found[0].ends_with("kinds that take it: `verifier`"), "{found:?}");
        for (kind, model) in [
            ("seq2seq", "bart"),
            ("extractive", "encoders/dpr-reader"),
            ("causal", "llama"),
            ("verifier", "encoders/bert-sequence"),
        ] {
            assert!(check(kind, model).is_empty(), "{kind}");
        }
    }
}
