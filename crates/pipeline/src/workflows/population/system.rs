//! An opened config that extracts facts from texts, for servers and other programs. It needs no run folder.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use sporran_extractor::{
    Argument, Coreference, Document, EntityType, FactExtractor, Link, Linker, Mention, MentionFinder,
    MentionForm, Span,
};

use super::{options::PopulationOptions, parts::open, populate::text};
use crate::Result;

/// The models of a config, ready to extract facts.
pub struct FactSystem {
    extractor: FactExtractor,
    relations: BTreeMap<String, String>,
}

/// A fact of a text.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct TextFact {
    /// The subject.
    pub subject: FactArgument,
    /// The name of the property, such as `DATE_OF_BIRTH`.
    pub property: String,
    /// The relation of the knowledge base in `[triples.relations]`; `None` if the config has none for the property.
    pub relation: Option<String>,
    /// The object.
    pub object: FactArgument,
    /// The confidence of the extractor, 0 to 1.
    pub confidence: f32,
    /// The sentence that expresses the fact.
    pub sentence: TextSpan,
}

/// The subject or the object of a fact.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FactArgument {
    /// The mention in the sentence of the fact.
    pub mention: TextSpan,
    /// The most descriptive mention of the same entity: for `she`, the name.
    pub name: TextSpan,
    /// The linked entity; `None` without a link.
    pub entity: Option<String>,
    /// The confidence of the link, 0 to 1.
    pub link_confidence: Option<f32>,
}

/// A mention of an entity in a text.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct TextMention {
    /// The mention.
    pub mention: TextSpan,
    /// The type of its entity.
    pub kind: EntityType,
    /// Its form.
    pub form: MentionForm,
    /// The confidence of the finder, 0 to 1.
    pub confidence: f32,
    /// The linked entity; `None` without a link.
    pub entity: Option<String>,
    /// The confidence of the link, 0 to 1.
    pub link_confidence: Option<f32>,
}

/// A part of a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TextSpan {
    /// The first code point.
    pub start: usize,
    /// The code point after the last.
    pub end: usize,
    /// The text in one line.
    pub text: String,
}

impl FactSystem {
    /// Loads the models of a config. `[input]` and `[annotations]` are not read.
    ///
    /// # Errors
    /// Errors of the models and of the tables of names.
    pub fn open(options: &PopulationOptions) -> Result<Self> {
        Ok(Self { extractor: open(options)?, relations: options.triples.relations.clone() })
    }

    /// The facts of texts, by subject, object and property. Result `i` is that of `texts[i]`.
    ///
    /// # Errors
    /// Errors of a model.
    pub fn facts(&self, texts: &[&str]) -> Result<Vec<Vec<TextFact>>> {
        let documents = documents(texts);
        let found = self.extractor.read(&documents)?;
        let each = documents.iter().zip(found);
        Ok(each
            .map(|(document, found)| {
                let fact = |fact: sporran_extractor::Fact| TextFact {
                    subject: argument(document, &fact.subject),
                    relation: self.relations.get(&fact.property).cloned(),
                    property: fact.property,
                    object: argument(document, &fact.object),
                    confidence: fact.confidence,
                    sentence: span(document, fact.sentence),
                };
                found.facts.into_iter().map(fact).collect()
            })
            .collect())
    }
}

impl FactSystem {
    /// Whether the config has a linker.
    #[must_use]
    pub fn links(&self) -> bool {
        self.extractor.linker.is_some()
    }

    /// The mentions of texts with their links, by their start. Result `i` is that of `texts[i]`.
    ///
    /// # Errors
    /// Errors of a model.
    pub fn mentions(&self, texts: &[&str]) -> Result<Vec<Vec<TextMention>>> {
        let FactExtractor { mentions, coreference, linker, .. } = &self.extractor;
        linked_mentions(texts, mentions.as_ref(), coreference.as_deref(), linker.as_ref())
    }
}

/// The mentions that `finder` finds in texts, by their start, with the links of `linker`. Result `i` is that of `texts[i]`.
///
/// # Errors
/// Errors of a model.
pub(crate) fn linked_mentions(
    texts: &[&str],
    finder: &dyn MentionFinder,
    coreference: Option<&dyn Coreference>,
    linker: Option<&Linker>,
) -> Result<Vec<Vec<TextMention>>> {
    let documents = documents(texts);
    let found = finder.mentions(&documents)?;
    let linked = |(document, mentions): (&Document, Vec<Mention>)| -> Result<Vec<TextMention>> {
        let chains = match coreference {
            Some(coreference) => coreference.chains(document, &mentions)?,
            None => Vec::new(),
        };
        let links = match linker {
            Some(linker) => linker.link(document, &mentions, &chains),
            None => vec![None; mentions.len()],
        };
        let mention = |(mention, link): (Mention, Option<Link>)| TextMention {
            mention: span(document, mention.span),
            kind: mention.kind,
            form: mention.form,
            confidence: mention.confidence,
            link_confidence: link.as_ref().map(|link| link.confidence),
            entity: link.map(|link| link.entity),
        };
        Ok(mentions.into_iter().zip(links).map(mention).collect())
    };
    documents.iter().zip(found).map(linked).collect()
}

fn documents(texts: &[&str]) -> Vec<Document> {
    texts.iter().enumerate().map(|(at, text)| Document::new(at.to_string(), *text)).collect()
}

fn span(document: &Document, at: Span) -> TextSpan {
    TextSpan { start: at.start, end: at.end, text: text(document, at) }
}

fn argument(document: &Document, argument: &Argument) -> FactArgument {
    FactArgument {
        mention: span(document, argument.span),
        name: span(document, argument.name),
        entity: argument.link.as_ref().map(|link| link.entity.clone()),
        link_confidence: argument.link.as_ref().map(|link| link.confidence),
    }
}
