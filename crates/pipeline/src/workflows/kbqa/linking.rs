//! The project's entity linker for the documents of a benchmark.

use sporran_extractor::{Chain, Document, EntityType, Linker, Mention, MentionForm, Span};
use sporran_reasoner::korc::{MentionLinker, Vertex};

/// A linker of DocRED's vertices. The mentions of a vertex are a chain, so they share their best link.
pub(super) struct VertexLinker(pub(super) Linker);

impl MentionLinker for VertexLinker {
    fn link(&self, text: &str, vertices: &[Vertex]) -> Vec<Option<String>> {
        let document = Document::new("", text);
        let characters = |byte: usize| text[..byte].chars().count();
        let mut mentions = Vec::new();
        let (mut chains, mut places) = (Vec::new(), Vec::new());
        for vertex in vertices {
            let first = mentions.len();
            for &(start, end) in &vertex.mentions {
                let span = Span { start: characters(start), end: characters(end) };
                let tokens = document.tokens.partition_point(|token| token.end <= span.start)
                    ..document.tokens.partition_point(|token| token.start < span.end);
                let sentence = document.sentences.partition_point(|sentence| sentence.span.end <= span.start);
                let kind = if vertex.is_value { EntityType::Date } else { EntityType::Other };
                mentions.push(Mention {
                    span,
                    tokens,
                    sentence,
                    kind,
                    form: MentionForm::Name,
                    confidence: 1.0,
                });
            }
            let length = |at: &usize| mentions[*at].span.end - mentions[*at].span.start;
            if let Some(representative) = (first..mentions.len()).max_by_key(length) {
                let mentions = (first..mentions.len()).map(|at| (at, 1.0)).collect();
                chains.push(Chain { mentions, representative, others: Vec::new() });
            }
            places.push(first..mentions.len());
        }
        let links = self.0.link(&document, &mentions, &chains);
        places
            .into_iter()
            .map(|place| {
                let found = links[place].iter().flatten();
                found.max_by(|a, b| a.confidence.total_cmp(&b.confidence)).map(|link| link.entity.clone())
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use sporran_extractor::{AliasTableBuilder, LinkerOptions};

    use super::*;

    #[test]
    fn a_vertex_has_the_link_of_its_surest_mention_and_a_value_has_none() {
        let mut names = AliasTableBuilder::default();
        names.add("Ann Smith", "Q1", 1.0);
        names.add("Ann", "Q1", 1.0);
        names.add("Ann", "Q2", 4.0);
        names.add("1912", "Q3", 1.0);
        let options = LinkerOptions { similarity: 1.0, ..LinkerOptions::default() };
        let linker = VertexLinker(Linker::new(names.build(), options));
        let text = "Ann Smith — Ann — slept in 1912 in Rome.";
        let at = |name: &str, from: usize| {
            let start = from + text[from..].find(name).unwrap();
            (start, start + name.len())
        };
        let vertex = |mentions: &[(usize, usize)], is_value| Vertex { mentions: mentions.to_vec(), is_value };
        let vertices = [
            vertex(&[at("Ann Smith", 0)], false),
            vertex(&[at("1912", 0)], true),
            vertex(&[at("Rome", 0)], false),
            vertex(&[at("Ann", 9)], false),
        ];
        let linked = linker.link(text, &vertices);
        assert_eq!(linked, [Some("Q1".to_owned()), None, None, Some("Q2".to_owned())]);
        assert_eq!(linker.link("", &[Vertex::default()]), [None]);
    }
}
