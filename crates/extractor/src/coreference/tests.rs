use super::*;
use crate::{
    MentionFinder, RuleMentions,
    tagger::{Tagged, with_rest},
};

/// The chains of a text with names in brackets, each with a letter for its type, as texts.
fn chains(marked: &str) -> Vec<Vec<String>> {
    let (document, mentions, chains) = resolved(marked);
    let of = |chain: &Chain| {
        let text = |(at, _): &(usize, f32)| document.slice(mentions[*at].span).unwrap().to_owned();
        chain.mentions.iter().map(text).collect()
    };
    chains.iter().map(of).collect()
}

/// The document of such a text, its mentions and its chains.
fn resolved(marked: &str) -> (Document, Vec<Mention>, Vec<Chain>) {
    let mut text = String::new();
    let mut spans = Vec::new();
    let mut rest = marked;
    while let Some(start) = rest.find('[') {
        let end = rest.find(']').unwrap();
        text.push_str(&rest[..start]);
        let (kind, name) = rest[start + 1..end].split_once(' ').unwrap();
        let kind = match kind {
            "P" => EntityType::Person,
            "O" => EntityType::Organisation,
            "L" => EntityType::Location,
            _ => EntityType::Date,
        };
        let from = text.chars().count();
        text.push_str(name);
        spans.push((crate::Span { start: from, end: text.chars().count() }, kind));
        rest = &rest[end + 1..];
    }
    text.push_str(rest);
    let document = Document::new("d", text);
    let names = spans.into_iter().map(|(span, kind)| Tagged {
        tokens: document.tokens_of(span),
        kind,
        confidence: 1.0,
    });
    let mentions = with_rest(&document, names.collect());
    let chains = Rules.chains(&document, &mentions).unwrap();
    for chain in &chains {
        assert!(chain.mentions.is_sorted_by_key(|(at, _)| *at));
        assert!(chain.mentions.iter().any(|(at, _)| *at == chain.representative));
        assert!(chain.mentions.iter().chain(&chain.others).all(|(_, sure)| (0.0..=1.0).contains(sure)));
        assert!(chain.others.is_sorted_by(|a, b| a.0 < b.0));
        assert!(chain.others.iter().all(|(at, _)| chain.mentions.iter().all(|(own, _)| own != at)));
    }
    (document, mentions, chains)
}

#[test]
fn a_mention_outside_of_a_chain_has_the_confidence_that_it_belongs_to_it() {
    let (_, _, chains) = resolved("[P Ann Lee] met [P Eve Poe]. She left.");
    // Ann, Eve, she: the text is about Ann, but she may be Eve. Both shares add up to 0.98.
    assert_eq!((chains[0].mentions.len(), chains[0].others.len()), (2, 0));
    let [(she, sure)] = chains[1].others[..] else { panic!("{chains:?}") };
    assert_eq!(she, 2);
    assert!(sure < chains[0].mentions[1].1 && (sure + chains[0].mentions[1].1 - 0.98).abs() < 1e-5);
    // A pronoun that precedes two names that agree is in no chain, and may be either of both.
    let (_, _, chains) = resolved("She won. [P Ann Lee] met [P Eve Poe].");
    let others: Vec<&[(usize, f32)]> = chains.iter().map(|chain| chain.others.as_slice()).collect();
    assert_eq!(others, [&[(0, ADOPTED / 2.0)], &[(0, ADOPTED / 2.0)]]);
}

#[test]
fn names_and_their_parts_are_one() {
    let found = chains("[P John Smith] left [O Acme Inc.] in [D 1950]. [P Smith] sold [O Acme].");
    assert_eq!(found, [vec!["John Smith", "Smith"], vec!["Acme Inc.", "Acme"], vec!["1950"]]);
}

#[test]
fn a_pronoun_means_what_the_text_is_about_and_what_fits_it() {
    let found =
        chains("[P Ann Lee] married [P Bob Ray] in [L Rome]. She left him. [P Eve Poe] saw her there.");
    assert_eq!(found[0], ["Ann Lee", "She", "her"]);
    assert_eq!(found[1], ["Bob Ray", "him"]);
    let found = chains("[O Acme] is in [L Rome]. Its owner, [P John Roe], loves it.");
    assert_eq!(found[0], ["Acme", "Its", "it"]);
}

#[test]
fn a_relative_pronoun_refers_to_the_mention_before_it() {
    let found = chains("[P Ann Lee] met [P Bob Ray], who went to [O Yale University], where he taught.");
    assert_eq!(found[1][..2], ["Bob Ray", "who"]);
    assert_eq!(found[2], ["Yale University", "where"]);
}

#[test]
fn a_description_means_what_it_describes() {
    let found = chains("[P Ann Lee] founded [O Acme]. The company grew. His company failed.");
    assert_eq!(found[1], ["Acme", "The company"]);
}

#[test]
fn speakers_are_one_and_a_lone_pronoun_is_in_no_chain() {
    assert_eq!(chains("I was born here. My name is long."), [["I", "My"]]);
    assert!(chains("He sings.").is_empty() && chains("").is_empty());
}

#[test]
fn a_pronoun_before_the_only_name_that_fits_means_it() {
    assert_eq!(
        chains("She won in [L Rome]. Later, [P Ann Lee] left."),
        [vec!["She", "Ann Lee"], vec!["Rome"]]
    );
    assert_eq!(chains("She won. [P Ann Lee] met [P Eve Poe]."), [["Ann Lee"], ["Eve Poe"]]);
}

#[test]
fn what_is_far_away_is_not_meant() {
    let filler = "Nothing was said about that. ".repeat(8);
    let found = chains(&format!("[O Acme] and [O Bolt] grew. {filler}It rained."));
    assert_eq!(found, [["Acme"], ["Bolt"]]);
}

#[test]
fn a_document_of_many_names_and_pronouns_takes_no_long_time() {
    let text: String = (0..6_000).map(|at| format!("[P Ann{at} Lee{}] left. She won. ", at % 50)).collect();
    let began = std::time::Instant::now();
    let found = chains(&text);
    assert!(found.len() >= 6_000 && began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
}

#[test]
fn untyped_names_get_types_from_another_finder() {
    /// A finder of one name, a person.
    struct One;
    impl MentionFinder for One {
        fn mentions(&self, documents: &[Document]) -> crate::Result<Vec<Vec<Mention>>> {
            let mut found = RuleMentions.mentions(documents)?;
            for (document, own) in documents.iter().zip(&mut found) {
                own.retain(|mention| document.slice(mention.span) == Some("Ann Smith"));
                own.iter_mut().for_each(|mention| mention.kind = EntityType::Person);
            }
            Ok(found)
        }
    }
    let document = Document::new("d", "Ann Smith left Paris. She slept.");
    let mentions = crate::proposals(&document);
    let she = mentions.len() - 1;
    let with_her = |coreference: &dyn Coreference| {
        let chains = coreference.chains(&document, &mentions).unwrap();
        let own = chains.iter().find(|chain| chain.mentions.iter().any(|(at, _)| *at == she));
        own.map(|chain| document.slice(mentions[chain.representative].span).unwrap())
    };
    assert_eq!(with_her(&Rules), None);
    let typed = TypedCoreference { coreference: Box::new(Rules), finder: Box::new(One) };
    assert_eq!(with_her(&typed), Some("Ann Smith"));
}
