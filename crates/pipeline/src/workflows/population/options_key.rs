//! The key of the extracted facts.

use serde::Serialize;

use crate::{Result, run_dir::key::StepKey};

/// Options that do not change the facts: output folders and training. Each file of `[input]` is a separate
/// step. The hash of the pages covers the content of the source.
const WITHOUT: [&str; 12] = [
    "name",
    "output",
    "annotations",
    "teacher",
    "relations.linear",
    "relations.training",
    "relations.bilstm",
    "linker.names",
    "input.files",
    "source.path",
    "source.redirects",
    "source.indexes",
];

/// The key of the options that change the facts.
///
/// # Errors
/// Those of [`StepKey::new`].
pub(super) fn options_key(options: &impl Serialize) -> Result<StepKey> {
    Ok(StepKey::new("populate", options)?.without(&WITHOUT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{run_dir::key::tests::assert_complete, workflows::population::PopulationOptions};

    #[test]
    fn every_option_of_population_is_in_its_key_but_those_that_change_no_fact() {
        let text = r#"
            name = "r"
            coreference = "rules"
            parses = ["parses.conllu"]
            [source]
            path = "pages.jsonl"
            redirects = "redirects.tsv"
            [annotations]
            files = ["a.json"]
            [teacher]
            model = "teacher"
            readings = "readings"
            input = { format = "text", files = ["t.txt"] }
            [mentions]
            tagger = "tagger"
            types = "types"
            [linker]
            aliases = "aliases"
            names = [{ file = "names.tsv", format = "table" }]
            types = "types.json"
            facts = "facts"
            outside-links = true
            [input]
            format = "knowledgenet"
            files = ["in.json"]
            folds = [4]
            [triples]
            relations = { A = "P1" }
            [relations]
            model = "model"
            [relations.linear]
            [relations.training]
            from = "from"
            [relations.training.encoder]
            vocabulary = 10
            hidden-size = 4
            layers = 1
            heads = 2
            [relations.bilstm]
            from = "from"
            vectors = "vectors.txt"
            [relations.seq2seq]
            from = "from"
        "#;
        // Combines tables that exclude each other, so that every option is present.
        let options: PopulationOptions = toml::from_str(text).unwrap();
        let tree = toml::Value::try_from(&options).unwrap();
        assert_complete(&tree, |tree| options_key(tree).unwrap(), &WITHOUT);
    }
}
