//! The bundled tagger, models/ner-small, on texts that it was not trained on.

use std::path::PathBuf;

use sporran_extractor::{
    Annotated, Coreference, Document, EntityType, MentionFinder, MentionForm,
    coreference::Rules,
    tagger::{Computing, Tagger},
};
use sporran_kilt::knowledgenet;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn tagger() -> Tagger {
    Tagger::open(&root().join("models/ner-small"), Computing::default()).unwrap()
}

#[test]
fn names_of_an_english_text_are_found_and_put_into_chains() {
    let text = "Jane Goodall was born in London on 3 April 1934. She studied at the University of Cambridge.";
    let document = Document::new("d", text);
    let mentions = tagger().mentions(std::slice::from_ref(&document)).unwrap().remove(0);
    let found: Vec<(&str, EntityType)> =
        mentions.iter().map(|mention| (document.slice(mention.span).unwrap(), mention.kind)).collect();
    assert_eq!(
        found,
        [
            ("Jane Goodall", EntityType::Person),
            ("London", EntityType::Location),
            ("3 April 1934", EntityType::Date),
            ("She", EntityType::Person),
            ("University of Cambridge", EntityType::Organisation),
        ]
    );
    let chains = Rules.chains(&document, &mentions).unwrap();
    assert_eq!(chains[0].mentions.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0, 3]);
}

#[test]
fn most_names_of_minikilts_facts_are_found() {
    let records = knowledgenet::load(root().join("examples/minikilt/gold/knowledgenet-test.json")).unwrap();
    let records: Vec<Annotated> = records.iter().map(Annotated::from_knowledgenet).collect();
    let documents: Vec<Document> = records.iter().map(|record| record.document.clone()).collect();
    let found = tagger().tag(&documents).unwrap();
    let (mut all, mut hit) = (0, 0);
    for (record, found) in records.iter().zip(&found) {
        all += record.mentions.len();
        let is_found = |tokens: &std::ops::Range<usize>| found.iter().any(|name| name.tokens == *tokens);
        hit += record.mentions.iter().filter(|(tokens, _)| is_found(tokens)).count();
    }
    assert!(all > 50 && hit * 10 > all * 7, "{hit} of {all}");
}

#[test]
fn the_mentions_of_a_document_do_not_depend_on_other_documents() {
    let texts = ["Ann Lee joined Acme Inc.", "", "👩‍🔬 في القاهرة He met Bob Ray in Rome.", "   \n\n x "];
    let documents: Vec<Document> = texts.iter().map(|text| Document::new(*text, *text)).collect();
    let tagger = tagger();
    let together = tagger.mentions(&documents).unwrap();
    for (document, mentions) in documents.iter().zip(&together) {
        assert_eq!(&tagger.mentions(std::slice::from_ref(document)).unwrap()[0], mentions);
        for mention in mentions {
            assert_eq!(mention.span, document.span(mention.tokens.clone()));
            let sentence = &document.sentences[mention.sentence].tokens;
            assert!(sentence.start <= mention.tokens.start && mention.tokens.end <= sentence.end);
        }
        assert!(mentions.is_sorted_by(|a, b| a.span.end <= b.span.start));
    }
    assert!(together[2].iter().any(|mention| mention.form == MentionForm::Pronoun));
    assert!(tagger.mentions(&[]).unwrap().is_empty());
}

#[test]
fn a_long_document_is_read_whole() {
    let text = "Ann Lee met Bob Ray in Rome. ".repeat(2_000);
    let document = Document::new("d", text);
    let mentions = tagger().mentions(std::slice::from_ref(&document)).unwrap().remove(0);
    assert_eq!(mentions[mentions.len() - 1].sentence, 1_999);
}
