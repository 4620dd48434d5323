//! Builds questions from documents, triples and rules, and answers them with explanations.

use std::ops::ControlFlow;

use candle_core::{DType, Device, Tensor};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sporran_checkpoint::Tokenizer;
use sporran_kilt::{
    kb::{EntityId, KnowledgeBase, Part, Triple},
    korc::Question,
};
use sporran_reasoner::{
    Error,
    embedding::{self, EmbeddingModel, Storage},
    korc::{
        self, BuildOptions, Built, Document, Entities, EntityTables, FactAnswers, Mention, SPLITS, Sources,
        Statistics, Templates, Unit,
    },
    question::{
        Edges, EmbedStarOptions, ObjectiveOptions, Parts, QuestionExample, QuestionInput, QuestionKind,
        QuestionModel, QuestionObjective, QuestionTraining, Reading, ReasonerKind, Topic, Vectors,
        linked_part,
    },
    rules::{self, Clause, Graph, MineOptions, Rule, Shape, Step},
};
use sporran_training::{
    Training, TrainingOptions, Variables, VocabularyOptions, tokenizer_files, train, train_vocabulary,
};
use sporran_transformers::BertConfig;

const BORN: u32 = 0;
const LANGUAGE: u32 = 1;
const SPEAKS: u32 = 2;
const PEOPLE: u32 = 60;
const TOWNS: [&str; 6] = ["Aberport", "Brookhaven", "Castleford", "Dunmore", "Eastwick", "Fairholm"];
const LANGUAGES: [&str; 3] = ["Arvish", "Bretic", "Corlan"];

/// People are born in towns, each with a language that they speak too. Each person is in two documents.
struct World {
    kb: KnowledgeBase,
    entities: Entities,
    documents: Vec<Document>,
    rules: Vec<Rule>,
    templates: Templates,
}

impl World {
    fn new() -> Self {
        let mut kb = KnowledgeBase::default();
        let mut table = "id\tlabel\ttype\n".to_owned();
        let mut add = |kb: &mut KnowledgeBase, name: &str, class: &str| {
            let id = kb.add_entity(&format!("Q{}", kb.entity_count())).unwrap();
            kb.set_label(id, name);
            table.push_str(&format!("{}\t{name}\t{class}\n", kb.entity_name(id)));
            id.0
        };
        let people: Vec<u32> = (0..PEOPLE)
            .map(|at| {
                let letters: String =
                    [at / 10, at % 10].map(|digit| char::from(b'a' + digit as u8)).iter().collect();
                add(&mut kb, &format!("Nam{letters} Sur{letters}"), "person")
            })
            .collect();
        let towns = TOWNS.map(|name| add(&mut kb, name, "town"));
        let languages = LANGUAGES.map(|name| add(&mut kb, name, "language"));
        for (name, label) in [("P1", "place of birth"), ("P2", "language"), ("P3", "language spoken")] {
            let id = kb.add_relation(name).unwrap();
            kb.set_relation_label(id, label);
        }
        let mut documents = Vec::new();
        let say = |kb: &mut KnowledgeBase, s, r, o| kb.add(Part::Train, Triple::new(s, r, o)).unwrap();
        for (at, &town) in towns.iter().enumerate() {
            say(&mut kb, town, LANGUAGE, languages[at % 3]);
        }
        for (at, &person) in people.iter().enumerate() {
            let town = at % 6;
            say(&mut kb, person, BORN, towns[town]);
            say(&mut kb, person, SPEAKS, languages[town % 3]);
            let name = kb.label(EntityId(person)).to_owned();
            for (number, verb) in ["was born in", "comes from"].iter().enumerate() {
                let text = format!("{name} {verb} {}.", TOWNS[town]);
                let start = text.len() - TOWNS[town].len() - 1;
                documents.push(Document {
                    id: format!("{at}-{number}"),
                    title: name.clone(),
                    mentions: vec![
                        Mention { start: 0, end: name.len(), entity: EntityId(person) },
                        Mention { start, end: text.len() - 1, entity: EntityId(towns[town]) },
                    ],
                    relations: vec![Triple::new(person, BORN, towns[town])],
                    text,
                    place: None,
                });
            }
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &table).unwrap();
        let tables = EntityTables { tables: vec![file.path().to_owned()], ..EntityTables::default() };
        let entities = Entities::load(&tables, &kb).unwrap();
        let options = MineOptions { acyclic_length: 0, batch: 500, batches: 9, ..MineOptions::default() };
        let graph = Graph::of(kb.triples(Part::Train));
        let rules = rules::mine(&graph, &options, 1, &mut |_| ControlFlow::Continue(())).unwrap();
        Self { kb, entities, documents, rules, templates: Templates::default() }
    }

    fn sources(&self) -> Sources<'_> {
        Sources {
            kb: &self.kb,
            entities: &self.entities,
            documents: &self.documents,
            rules: &self.rules,
            templates: &self.templates,
        }
    }

    fn build(&self) -> Built {
        korc::build(&self.sources(), &options(), 3).unwrap()
    }
}

/// Answers that the knowledge base has, and documents in one split each.
fn facts(hold_out: bool) -> BuildOptions {
    BuildOptions {
        inverse: false,
        split: Unit::Documents,
        valid: 0.1,
        facts: Some(FactAnswers { covered: 0.5, hold_out }),
        ..BuildOptions::default()
    }
}

fn options() -> BuildOptions {
    facts(false)
}

#[test]
fn questions_are_anonymous_and_split_by_question_triple() {
    let world = World::new();
    let built = world.build();
    assert!(built.questions.iter().all(|questions| !questions.is_empty()));
    let table = Statistics::of(&world.sources(), &built).table;
    // Half of 120 documents are for training.
    assert_eq!((table.splits[0].unique_documents, table.splits[0].split.as_str()), (60, SPLITS[0]));
    let pair = |question: &Question| (question.topics().to_vec(), question.extra["relation"].clone());
    let trained: Vec<_> = built.questions[0].iter().map(pair).collect();
    assert!(built.questions[2].iter().all(|question| trained.contains(&pair(question))));
    assert!(built.questions[3].iter().all(|question| !trained.contains(&pair(question))));
    for question in built.questions.iter().flatten() {
        let texts = [question.document(), &question.question, question.title.as_deref().unwrap()];
        let topic = world.kb.entity(&question.topics()[0]).unwrap();
        for part in world.kb.label(topic).split(' ') {
            assert!(texts.iter().all(|text| !text.contains(part)), "{question:?}");
        }
        assert!(question.labels().iter().all(|label| !question.document().contains(label.as_str())));
    }
    let again = world.build();
    assert_eq!(again.questions, built.questions);
}

#[test]
fn question_triples_are_removed_from_the_knowledge_base() {
    let world = World::new();
    let built = korc::build(&world.sources(), &facts(true), 3).unwrap();
    let known: Vec<(u32, u32, u32)> =
        built.knowledge.iter().map(|triple| (triple.subject.0, triple.relation.0, triple.object.0)).collect();
    for origin in built.origins.iter().flatten() {
        for answer in &origin.answers {
            assert!(!known.contains(&origin.asked.triple(origin.entity.0, answer.0)));
        }
        for chain in &origin.chains {
            assert!(chain.knowledge.iter().all(|triple| known.contains(triple)), "{chain:?}");
        }
    }
    assert!(built.knowledge.len() < world.kb.triples(Part::Train).len());
}

/// A question's triple: document, entity, relation with its direction.
fn triple_of(question: &Question) -> (String, String, String) {
    let text = |key: &str| question.extra[key].as_str().unwrap().to_owned();
    (text("document_id"), question.topics()[0].clone(), text("relation"))
}

/// The properties of every benchmark by KoRC's rules.
fn assert_korc(world: &World, built: &Built) {
    let [train, valid, iid, ood] = &built.questions;
    let learned: Vec<_> = train.iter().chain(valid).map(triple_of).collect();
    let trained: Vec<_> = train.iter().map(triple_of).collect();
    for (test, is_known) in [(iid, true), (ood, false)] {
        for (document, entity, relation) in test.iter().map(triple_of) {
            // The whole document is new, so its entity in it is too.
            assert!(learned.iter().all(|(other, _, _)| *other != document), "{document}");
            let known = trained.iter().any(|(_, other, asked)| (other, asked) == (&entity, &relation));
            assert_eq!(known, is_known, "{entity} {relation}");
        }
    }
    let mut entities: Vec<(String, String)> =
        iid.iter().chain(ood).map(triple_of).map(|(document, entity, _)| (document, entity)).collect();
    entities.sort();
    entities.dedup();
    assert!(entities.windows(2).all(|pair| pair[0].0 != pair[1].0), "one entity of a test document");
    for (question, origin) in built.questions.iter().flatten().zip(built.origins.iter().flatten()) {
        let document = &world.documents[origin.document];
        let mut ends: Vec<EntityId> = origin.chains.iter().map(|chain| EntityId(chain.answer)).collect();
        ends.sort_unstable();
        assert_eq!(ends, origin.answers, "the answers are the ends of the chains");
        assert_eq!(question.ids().len(), ends.len());
        for chain in &origin.chains {
            let triples: Vec<(u32, u32, u32)> =
                chain.document.iter().chain(&chain.knowledge).copied().collect();
            // The chain leads from the entity to the answer, one triple after the other.
            let end = triples.iter().fold(origin.entity.0, |at, &(s, _, o)| {
                assert!(at == s || at == o, "{chain:?}");
                if at == s { o } else { s }
            });
            assert_eq!(end, chain.answer);
            assert!(!document.entities().contains(&EntityId(end)));
            let said: Vec<(u32, u32, u32)> =
                document.relations.iter().map(|it| (it.subject.0, it.relation.0, it.object.0)).collect();
            assert!(!chain.document.is_empty() && chain.document.iter().all(|it| said.contains(it)));
            assert!(!said.contains(&triples[triples.len() - 1]));
        }
    }
}

#[test]
fn questions_by_the_papers_rules_keep_their_properties() {
    let world = World::new();
    let options = BuildOptions::default();
    for seed in 0..5 {
        let built = korc::build(&world.sources(), &options, seed).unwrap();
        assert_korc(&world, &built);
        assert!(built.questions.iter().all(|questions| !questions.is_empty()), "{seed}");
        // The knowledge base stays whole.
        assert_eq!(built.knowledge, world.kb.triples(Part::Train));
        let documents = |split: usize| -> Vec<usize> {
            let mut found: Vec<usize> = built.origins[split].iter().map(|origin| origin.document).collect();
            found.dedup();
            found
        };
        let valid = documents(1);
        assert!(documents(0).iter().any(|document| valid.contains(document)), "{seed}");
    }
    let few = BuildOptions { max_answers: 1, inverse: false, ..options };
    let built = korc::build(&world.sources(), &few, 1).unwrap();
    assert!(built.origins.iter().flatten().all(|origin| origin.answers.len() == 1));
    assert!(built.origins.iter().flatten().all(|origin| !origin.asked.is_backward()));
}

/// Random entities, triples, rules, and documents that state one or two of the triples.
fn random_world(seed: u64) -> World {
    const ENTITIES: u32 = 40;
    const RELATIONS: u32 = 4;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut kb = KnowledgeBase::default();
    let name = |at: u32| -> String {
        let letters = [at / 26, at % 26].map(|letter| char::from(b'a' + letter as u8));
        format!("Ent{}{}", letters[0], letters[1])
    };
    let mut table = "id\tlabel\ttype\n".to_owned();
    for at in 0..ENTITIES {
        kb.add_entity(&format!("Q{at}")).unwrap();
        table.push_str(&format!("Q{at}\t{}\tthing\n", name(at)));
    }
    for at in 0..RELATIONS {
        kb.add_relation(&format!("P{at}")).unwrap();
    }
    for _ in 0..150 {
        let subject = rng.random_range(0..ENTITIES);
        let object = (subject + rng.random_range(1..ENTITIES)) % ENTITIES;
        kb.add(Part::Train, Triple::new(subject, rng.random_range(0..RELATIONS), object)).unwrap();
    }
    let triples = kb.triples(Part::Train).to_vec();
    let documents = (0..30)
        .map(|at| {
            let mut relations: Vec<Triple> =
                (0..rng.random_range(1..3)).map(|_| triples[rng.random_range(0..triples.len())]).collect();
            relations.sort_unstable();
            relations.dedup();
            let mut named: Vec<EntityId> =
                relations.iter().flat_map(|triple| [triple.subject, triple.object]).collect();
            named.sort_unstable();
            named.dedup();
            let (mut text, mut mentions) = (String::new(), Vec::new());
            for &entity in &named {
                let start = text.len();
                text.push_str(&name(entity.0));
                mentions.push(Mention { start, end: text.len(), entity });
                text.push_str(" came. ");
            }
            Document { id: at.to_string(), title: "News".into(), text, mentions, relations, place: None }
        })
        .collect();
    let rules = (0..10)
        .map(|_| {
            let mut step = |_| {
                let relation = rng.random_range(0..RELATIONS);
                if rng.random_bool(0.5) { Step::forward(relation) } else { Step::backward(relation) }
            };
            let body: Vec<Step> = (0..3).map(&mut step).collect();
            let length = rng.random_range(1..4);
            let relation = rng.random_range(0..RELATIONS);
            let clause = Clause { relation, shape: Shape::Cyclic, body: body[..length].to_vec() };
            Rule { clause, predicted: 2, support: 1, confidence: rng.random_range(0.0..1.0) }
        })
        .collect();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &table).unwrap();
    let tables = EntityTables { tables: vec![file.path().to_owned()], ..EntityTables::default() };
    let entities = Entities::load(&tables, &kb).unwrap();
    World { kb, entities, documents, rules, templates: Templates::default() }
}

#[test]
fn random_benchmarks_keep_the_properties_of_the_papers_rules() {
    let mut questions = [0; 4];
    for seed in 0..60 {
        let world = random_world(seed);
        let built = korc::build(&world.sources(), &BuildOptions::default(), seed).unwrap();
        assert_korc(&world, &built);
        for (count, found) in questions.iter_mut().zip(&built.questions) {
            *count += found.len();
        }
    }
    assert!(questions.iter().all(|count| *count > 0), "{questions:?}");
}

/// Documents about Paris and about Rome.
#[test]
fn the_questions_of_a_small_world_are_those_worked_out_by_hand() {
    let mut kb = KnowledgeBase::default();
    let names = ["Paris", "France", "Castex", "Borne", "Rome", "Italy", "Meloni", "Draghi", "Oslo"];
    let mut table = "id\tlabel\ttype\n".to_owned();
    for (at, name) in names.iter().enumerate() {
        kb.add_entity(&format!("Q{at}")).unwrap();
        let class = if at % 4 < 2 { "place" } else { "person" };
        table.push_str(&format!("Q{at}\t{name}\t{class}\n"));
    }
    for (id, label) in
        [("P1", "has part"), ("P2", "capital"), ("P3", "prime minister"), ("P4", "head of government")]
    {
        let id = kb.add_relation(id).unwrap();
        kb.set_relation_label(id, label);
    }
    // The capitals; prime ministers, one of which the first document mentions; no head of government.
    for triple in [(1, 1, 0), (5, 1, 4), (1, 2, 2), (1, 2, 3), (5, 2, 6), (5, 2, 7)] {
        kb.add(Part::Train, Triple::new(triple.0, triple.1, triple.2)).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let tables = EntityTables { tables: vec![write("e.tsv", &table)], ..EntityTables::default() };
    let entities = Entities::load(&tables, &kb).unwrap();
    // A city leads to the head of the government of the country that it is the capital of.
    let rules = write(
        "rules.txt",
        "P4(X,Y) <- capital(A,X), prime minister(A,Y)\t0.05\nP1(X,Y) <- spouse(X,A), P4(Y,A)\t1\n",
    );
    let rules = rules::load_human(&rules, &kb).unwrap().rules;
    let document = |id: &str, text: &str, mentioned: &[u32], relation: Triple| Document {
        id: id.to_owned(),
        title: "News".to_owned(),
        mentions: mentioned
            .iter()
            .map(|&at| {
                let start = text.find(names[at as usize]).unwrap();
                Mention { start, end: start + names[at as usize].len(), entity: EntityId(at) }
            })
            .collect(),
        relations: vec![relation],
        text: text.to_owned(),
        place: None,
    };
    let documents: Vec<Document> = (0..10)
        .map(|at| match at % 2 {
            0 => document(
                &format!("fr-{at}"),
                "Paris is in France. Castex left.",
                &[0, 1, 2],
                Triple::new(1, 1, 0),
            ),
            _ => document(&format!("it-{at}"), "Rome is in Italy.", &[4, 5], Triple::new(5, 1, 4)),
        })
        .collect();
    let templates = Templates::default();
    let sources =
        Sources { kb: &kb, entities: &entities, documents: &documents, rules: &rules, templates: &templates };
    let built = korc::build(&sources, &BuildOptions::default(), 1).unwrap();
    // Each document has one question: its city's head of government. The chain is the document's capital, backward,
    // then the prime minister. Nobody that the document mentions is an answer, and no fact has the relation P4.
    // The inverse relation, from a prime minister, would start with a triple that no document states. A rule of people
    // derives answers with any score, and one of an unknown relation derives none.
    for origin in built.origins.iter().flatten() {
        let (entity, said, answers) = match origin.document % 2 {
            0 => (0, (1, 1, 0), &[3][..]),
            _ => (4, (5, 1, 4), &[6, 7][..]),
        };
        assert_eq!((origin.entity, origin.asked), (EntityId(entity), Step::forward(3)));
        assert_eq!(origin.answers.iter().map(|answer| answer.0).collect::<Vec<_>>(), answers);
        for chain in &origin.chains {
            assert_eq!(chain.document, [said]);
            assert_eq!(chain.knowledge, [(said.0, 2, chain.answer)]);
        }
    }
    // Ten questions in ten documents: three for tests, five for training, two for validation.
    let counts = built.questions.each_ref().map(Vec::len);
    assert_eq!((counts[0], counts[1], counts[2] + counts[3]), (5, 2, 3));
    let all = built.questions.iter().flatten();
    for question in all {
        assert_eq!(question.extra["relation"], "P4");
        assert_eq!(question.extra["relation_label"], "head of government");
        assert_eq!(question.template_question.as_deref(), Some(question.question.as_str()));
        let has_mark = question.question.contains("[place ") && question.document().starts_with("[place ");
        assert!(has_mark && !question.document().contains("Rome"), "{question:?}");
        assert_eq!(question.extra["chains"][0]["rule"], "P4(X,Y) <= P2(A,X), P3(A,Y)");
    }
    let table = Statistics::of(&sources, &built).table;
    assert_eq!((table.all.hops, table.all.hops_in_document), (2.0.into(), 1.0.into()));
    assert_eq!((table.all.documents, table.all.unique_documents, table.all.relations), (10, 10, Some(1)));
}

#[test]
fn inverse_relations_are_asked() {
    let world = World::new();
    let built = korc::build(&world.sources(), &BuildOptions::default(), 3).unwrap();
    let inverse: Vec<_> =
        built.origins.iter().flatten().filter(|origin| origin.asked.is_backward()).collect();
    assert!(!inverse.is_empty());
    // A document states where a person is from, so an inverse question is about a town, and asks who else is from it.
    for origin in inverse {
        assert_eq!(world.entities.class(origin.entity), Some("town"));
        assert_eq!(origin.asked.relation(), BORN);
        let document = &world.documents[origin.document];
        assert!(origin.answers.iter().all(|answer| !document.entities().contains(answer)));
    }
    let asked = built.questions.iter().flatten().filter(|question| question.extra["relation"] == "Inv: P1");
    for question in asked {
        let text = &question.question;
        assert!(text.starts_with("What has [town ") || text.starts_with("Of what is [town "), "{text}");
    }
}

#[test]
fn a_question_whose_words_have_an_answer_is_left_out() {
    let mut world = World::new();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), r#"{"P3":["Does {} speak Arvish, or what?"]}"#).unwrap();
    world.templates = Templates::load(file.path()).unwrap();
    let built = korc::build(&world.sources(), &BuildOptions::default(), 3).unwrap();
    let asked: Vec<&Question> =
        built.questions.iter().flatten().filter(|question| question.extra["relation"] == "P3").collect();
    assert!(!asked.is_empty());
    assert!(asked.iter().all(|question| !question.labels().iter().any(|label| label == "Arvish")));
}

#[test]
fn no_mark_of_a_question_has_an_answer() {
    let world = World::new();
    // The languages have numbers for labels.
    let relabelled = |labels: [&str; 3]| {
        let mut table = "id\tlabel\ttype\n".to_owned();
        for number in 0..world.kb.entity_count() as u32 {
            let id = EntityId(number);
            let label = world.entities.label(id).unwrap();
            let label = LANGUAGES.iter().position(|name| *name == label).map_or(label, |at| labels[at]);
            let class = world.entities.class(id).unwrap();
            table.push_str(&format!("{}\t{label}\t{class}\n", world.kb.entity_name(id)));
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &table).unwrap();
        let tables = EntityTables { tables: vec![file.path().to_owned()], ..EntityTables::default() };
        Entities::load(&tables, &world.kb).unwrap()
    };
    let build = |entities: &Entities, options: &BuildOptions| {
        korc::build(&Sources { entities, ..world.sources() }, options, 3).unwrap()
    };
    // One digit is in a third of all marks.
    let digits = relabelled(["3", "5", "8"]);
    for options in [BuildOptions::default(), options()] {
        let built = build(&digits, &options);
        let asked: Vec<&Question> = built.questions.iter().flatten().collect();
        assert!(!asked.is_empty());
        for question in asked {
            let words = format!("{} {}", question.document(), question.question);
            assert!(question.labels().iter().all(|label| !words.contains(label.as_str())), "{words}");
        }
    }
    // The bracket and the class are in every mark of a person.
    let bracket = relabelled(["[person", "Bretic", "Corlan"]);
    let built = build(&bracket, &BuildOptions::default());
    let about_people =
        built.questions.iter().flatten().filter(|question| question.question.contains("[person "));
    let labels: Vec<&String> = about_people.flat_map(Question::labels).collect();
    assert!(labels.iter().any(|label| *label == "Bretic"));
    assert!(labels.iter().all(|label| *label != "[person"));
}

#[test]
fn a_leak_fails_the_build() {
    let mut world = World::new();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), r#"{"P3":["Does {} speak Arvish, or what?"]}"#).unwrap();
    world.templates = Templates::load(file.path()).unwrap();
    let error = korc::build(&world.sources(), &options(), 3).unwrap_err();
    assert!(
        matches!(&error, Error::Leak { leaks, .. } if leaks[0].contains("it contains the answer's name `Arvish`")),
        "{error}"
    );
    let shares = BuildOptions { train: 0.9, valid: 0.1, ..options() };
    let error = korc::build(&world.sources(), &shares, 3).unwrap_err();
    assert!(matches!(error, Error::Argument(message) if message.contains("so that tests have documents")));
}

/// A TransferNet that starts from the named entities.
fn names_walk(steps: usize) -> QuestionKind {
    QuestionKind::TransferNet { steps, topic: Topic::Names, edges: Edges::Share, reading: Reading::Separate }
}

/// An EmbedKGQA that starts from the named entities.
fn names_embedding() -> QuestionKind {
    QuestionKind::EmbedKgqa { rank: 8, topic: Topic::Names, batch_normalisation: false }
}

fn parts(kind: QuestionKind, questions: &[Question]) -> Parts {
    let texts: Vec<&str> =
        questions.iter().flat_map(|question| [question.question.as_str(), question.document()]).collect();
    let vocabulary = VocabularyOptions { size: 400, min_frequency: 2, marks: vec![] };
    let files = tokenizer_files(&train_vocabulary(texts.into_iter(), &vocabulary).unwrap()).unwrap();
    let json = files.into_iter().find(|(name, _)| name == "tokenizer.json").unwrap().1;
    let tokenizer = Tokenizer::from_json("t".as_ref(), String::from_utf8(json).unwrap()).unwrap();
    let encoder = BertConfig {
        vocab_size: tokenizer.vocab_size(),
        hidden_size: 32,
        num_hidden_layers: 1,
        num_attention_heads: 2,
        intermediate_size: 48,
        hidden_dropout_prob: 0.0,
        attention_probs_dropout_prob: 0.0,
        head_dropout: 0.0,
        max_position_embeddings: 64,
        initializer_range: 0.1,
        ..BertConfig::default()
    };
    Parts { kind, encoder, tokenizer, max_tokens: 64, variables: Variables::new(2), vectors: Vectors::Drawn }
}

/// A ComplEx of 8 complex numbers for the world's triples.
fn embedding(kb: &KnowledgeBase) -> EmbeddingModel {
    let options = serde_json::from_value(serde_json::json!({
        "model": "complex", "dim": 16, "initial": "normal", "initial-scale": 0.1, "training": { "epochs": 30 }
    }));
    let folder = tempfile::tempdir().unwrap();
    let options = options.unwrap();
    let training =
        embedding::Training { kb, options: &options, seed: 4, folder: folder.path(), storage: Storage::F32 };
    let outcome = embedding::train(&training, &mut |_| ControlFlow::Continue(())).unwrap();
    EmbeddingModel::open(&outcome.model).unwrap()
}

fn right(model: &QuestionModel, questions: &[Question], kb: &KnowledgeBase) -> f64 {
    let inputs: Vec<QuestionInput<'_>> = questions.iter().map(QuestionInput::of).collect();
    let answered = model.answers(&inputs, 1).unwrap();
    let hits = answered.iter().zip(questions).filter(|(answered, question)| {
        answered
            .answers
            .first()
            .is_some_and(|answer| question.ids().iter().any(|id| id == kb.entity_name(answer.entity)))
    });
    hits.count() as f64 / questions.len() as f64
}

#[test]
fn models_learn_to_answer_and_come_back_from_their_folders() {
    let world = World::new();
    let built = world.build();
    let (learned, held_out) = (&built.questions[0], &built.questions[3]);
    let (transfer, embed) = (names_walk(2), names_embedding());
    let trained = embedding(&world.kb);
    let rows = trained.vectors_for(&world.kb);
    let vectors = || Tensor::from_slice(&rows, (world.kb.entity_count(), 16), &Device::Cpu).unwrap();
    let expected = 0.9;
    for (kind, start) in [
        (transfer, Vectors::Drawn),
        (embed, Vectors::Drawn),
        (embed, Vectors::From(vectors())),
        (embed, Vectors::Fixed(vectors())),
    ] {
        let stays = match &start {
            Vectors::Drawn => None,
            Vectors::From(_) => Some(false),
            Vectors::Fixed(_) => Some(true),
        };
        let model = QuestionModel::new(Parts { vectors: start, ..parts(kind, learned) }, &world.kb).unwrap();
        let examples: Vec<QuestionExample> = learned
            .iter()
            .map(|question| QuestionExample {
                input: model.read(&QuestionInput::of(question)).unwrap(),
                answers: question.ids().iter().map(|id| world.kb.entity(id).unwrap().0).collect(),
            })
            .collect();
        let options = TrainingOptions {
            steps: 120,
            tokens_per_batch: 512,
            learning_rate: 5e-3,
            warmup_steps: Some(10),
            ..TrainingOptions::default()
        };
        let folder = tempfile::tempdir().unwrap();
        let training = Training {
            objective: &QuestionObjective::new(&model, examples, &options, ObjectiveOptions::default()),
            variables: model.encoder().variables(),
            options: &options,
            evaluate: None,
            folder: folder.path(),
            extra_files: &[],
        };
        train(&training, &mut |_| ControlFlow::Continue(())).unwrap();
        let share = right(&model, held_out, &world.kb);
        assert!(share >= expected, "{kind:?}: {share}");

        let saved = folder.path().join("model");
        model.save(&saved, &world.kb, "role = \"reasoner\"\n").unwrap();
        let loaded = QuestionModel::load(&saved, &world.kb).unwrap();
        if let Some(stays) = stays {
            let tensors =
                candle_core::safetensors::load(saved.join("model.safetensors"), &Device::Cpu).unwrap();
            let found = tensors["question.entities"].to_dtype(DType::F32).unwrap();
            let found: Vec<f32> = found.flatten_all().unwrap().to_vec1().unwrap();
            let moved = found.iter().zip(&rows).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert_eq!(moved < 2e-3, stays, "{moved}");
        }
        assert!(right(&loaded, held_out, &world.kb) >= expected);
        let question = &held_out[0];
        let one = QuestionInput::of(question);
        let found = loaded.answers(&[one], 1).unwrap().remove(0);
        let answer = &found.answers[0];
        // The town leads to the language, directly or by another town's people.
        let bridge = answer.bridge.unwrap();
        assert!(TOWNS.contains(&&question.document()[bridge.start..bridge.end]), "{found:?}");
        let (first, last) = (answer.triples[0], answer.triples[answer.triples.len() - 1]);
        assert!(first.0 == bridge.entity || first.2 == bridge.entity);
        assert!(last.2 == answer.entity.0 || last.0 == answer.entity.0);
        assert!((0.0..=1.0).contains(&answer.confidence));
        // A batch equals its single members.
        let other = QuestionInput::of(&held_out[1]);
        let both = loaded.answers(&[other, one], 1).unwrap();
        assert_eq!(both[1].answers[0].entity, answer.entity);
    }
}

/// The folder of a model of this kind that is trained on the questions.
fn learned(
    kind: QuestionKind,
    objective: ObjectiveOptions,
    world: &World,
    questions: &[Question],
    folder: &std::path::Path,
) {
    let model = QuestionModel::new(parts(kind, questions), &world.kb).unwrap();
    let example = |question: &Question| QuestionExample {
        input: model.read(&QuestionInput::of(question)).unwrap(),
        answers: question.ids().iter().map(|id| world.kb.entity(id).unwrap().0).collect(),
    };
    let options = TrainingOptions {
        steps: 120,
        tokens_per_batch: 512,
        learning_rate: 5e-3,
        warmup_steps: Some(10),
        ..TrainingOptions::default()
    };
    let training = Training {
        objective: &QuestionObjective::new(
            &model,
            questions.iter().map(example).collect(),
            &options,
            objective,
        ),
        variables: model.encoder().variables(),
        options: &options,
        evaluate: None,
        folder,
        extra_files: &[],
    };
    train(&training, &mut |_| ControlFlow::Continue(())).unwrap();
    model.save(&folder.join("model"), &world.kb, "role = \"reasoner\"\n").unwrap();
}

#[test]
fn a_walk_from_the_given_entity_learns_with_both_kinds_of_edges() {
    let world = World::new();
    let built = world.build();
    let (questions, held_out) = (&built.questions[0], &built.questions[3]);
    for (edges, reading) in [
        (Edges::Attention, Reading::Separate),
        (Edges::Sum, Reading::Original),
        // Older folders have this form.
        (Edges::Sum, Reading::Separate),
    ] {
        let kind = QuestionKind::TransferNet { steps: 2, topic: Topic::Given, edges, reading };
        let folder = tempfile::tempdir().unwrap();
        learned(kind, ObjectiveOptions::default(), &world, questions, folder.path());
        let model = QuestionModel::load(&folder.path().join("model"), &world.kb).unwrap();
        assert_eq!(model.kind(), kind);
        let share = right(&model, held_out, &world.kb);
        assert!(share >= 0.9, "{edges:?}, {reading:?}: {share}");
        let written = std::fs::read_to_string(folder.path().join("model/reasoner.json")).unwrap();
        assert_eq!(written.contains("\"reading\":\"original\""), reading == Reading::Original);
        let question = &held_out[0];
        let found = model.answers(&[QuestionInput::of(question)], 1).unwrap().remove(0);
        let answer = &found.answers[0];
        // The walk starts at the hidden entity, which is no name in the document.
        let topic = world.kb.entity(&question.topics()[0]).unwrap().0;
        let first = answer.triples[0];
        assert!(answer.bridge.is_none() && (first.0 == topic || first.2 == topic), "{answer:?}");
        // Without the entity there is nothing to start from.
        let unknown = QuestionInput { topics: &[], ..QuestionInput::of(question) };
        assert!(model.answers(&[unknown], 1).unwrap()[0].answers.is_empty());
    }
}

#[test]
fn an_embed_kgqa_learns_with_batch_normalisation_smoothing_and_a_norm_penalty() {
    let world = World::new();
    let built = world.build();
    let questions = &built.questions[0];
    let kind = QuestionKind::EmbedKgqa { rank: 8, topic: Topic::Given, batch_normalisation: true };
    let trained = |norm_penalty: f64| {
        let folder = tempfile::tempdir().unwrap();
        let objective = ObjectiveOptions {
            smoothing: 0.05,
            norm_penalty,
            questions_per_batch: Some(4),
            head_learning_rate: Some(1e-2),
        };
        learned(kind, objective, &world, questions, folder.path());
        let saved = folder.path().join("model");
        let tensors = candle_core::safetensors::load(saved.join("model.safetensors"), &Device::Cpu).unwrap();
        let variance = &tensors["question.product-norm.running-variance"];
        assert_eq!((variance.dtype(), variance.dims()), (DType::F32, &[2][..]));
        assert_ne!(variance.to_vec1::<f32>().unwrap(), [1.0, 1.0]);
        let vectors = tensors["question.entities"].to_dtype(DType::F32).unwrap();
        let norm = vectors.sqr().unwrap().sum_all().unwrap().to_scalar::<f32>().unwrap();
        (QuestionModel::load(&saved, &world.kb).unwrap(), norm)
    };
    let (model, norm) = trained(1e-3);
    assert_eq!(model.kind(), kind);
    let share = right(&model, questions, &world.kb);
    assert!(share >= 0.9, "{share}");
    // A batch equals its single members.
    let inputs: Vec<QuestionInput<'_>> = questions[..3].iter().map(QuestionInput::of).collect();
    let all = model.answers(&inputs, 1).unwrap();
    for (input, found) in inputs.iter().zip(&all) {
        assert_eq!(model.answers(&[*input], 1).unwrap()[0].answers[0].entity, found.answers[0].entity);
    }
    let (_, shrunk) = trained(0.1);
    assert!(shrunk < norm, "{shrunk} {norm}");
}

#[test]
fn the_part_of_an_embed_kgqa_star_has_the_tests_entities_if_asked_for() {
    let world = World::new();
    let built = world.build();
    let learned = &built.questions[0][..1];
    let tests = &built.questions[3];
    // A RoBERTa of 70 tokens, with a tokenizer of a few words.
    let roberta = tempfile::tempdir().unwrap();
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../transformers/tests/data/encoders/roberta-mlm");
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(std::path::Path::new(data).join(name), roberta.path().join(name)).unwrap();
    }
    let special = |id: u32, content: &str| {
        serde_json::json!({ "id": id, "content": content, "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false, "special": true })
    };
    let tokenizer = serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "decoder": null,
        "added_tokens": [special(0, "<s>"), special(1, "<pad>"), special(2, "</s>"), special(3, "<unk>")],
        "pre_tokenizer": { "type": "Whitespace" },
        "post_processor": { "type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0],
            "trim_offsets": true, "add_prefix_space": false },
        "model": { "type": "WordLevel", "unk_token": "<unk>", "vocab": { "<s>": 0, "<pad>": 1, "</s>": 2,
            "<unk>": 3, "person": 4, "town": 5, "language": 6, "born": 7, "birth": 8, "of": 9 } },
    });
    std::fs::write(roberta.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let trained = |with_tests: bool| {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("model");
        let options: EmbedStarOptions = serde_json::from_value(serde_json::json!({
            "model": model, "rank": 4, "reach": 1, "with-tests": with_tests, "batch-normalisation": true,
            "encoder": { "from": roberta.path() }, "optimizer": { "steps": 2, "warmup-steps": 0 },
        }))
        .unwrap();
        assert_eq!(options.reads_tests(), with_tests);
        let training = QuestionTraining {
            kb: &world.kb,
            passages: None,
            live: None,
            questions: learned,
            valid: &[],
            tests,
            max_answers: 4,
            seed: 1,
            config: "c",
            folder: &folder.path().join("training"),
        };
        options.train(&training, &mut |_| {}).unwrap();
        let loaded = QuestionModel::load(&model, &world.kb).unwrap();
        assert!(loaded.answers(&[QuestionInput::of(&learned[0])], 1).is_ok());
        let description = std::fs::read_to_string(model.join("reasoner.json")).unwrap();
        let description: serde_json::Value = serde_json::from_str(&description).unwrap();
        let entities = description["entities"].as_array().unwrap();
        tests.iter().all(|test| entities.iter().any(|entity| *entity == test.topics()[0]))
    };
    assert!(trained(true) && !trained(false));
}

#[test]
fn entities_without_a_vector_are_no_answers() {
    let world = World::new();
    let built = world.build();
    let question = &built.questions[3][0];
    // The document's town, its people and its language.
    let part = linked_part(&world.kb, [question], false, 1).unwrap();
    assert!(part.entity_count() < world.kb.entity_count());
    let model = QuestionModel::new(parts(names_embedding(), &built.questions[0]), &part).unwrap();
    let folder = tempfile::tempdir().unwrap();
    model.save(folder.path(), &part, "").unwrap();
    let mut loaded = QuestionModel::load(folder.path(), &world.kb).unwrap();
    loaded.set_threshold(0.0);
    let found = loaded.answers(&[QuestionInput::of(question)], 64).unwrap().remove(0);
    assert!(!found.answers.is_empty());
    for answer in &found.answers {
        let name = world.kb.entity_name(answer.entity);
        assert!(part.entity(name).is_some(), "{name} has no vector");
    }
}

#[test]
fn a_question_about_an_entity_without_a_vector_has_no_answer() {
    let world = World::new();
    let built = world.build();
    let question = &built.questions[3][0];
    // A part with another town, its people and its language.
    let part = built.questions[0]
        .iter()
        .map(|other| linked_part(&world.kb, [other], false, 1).unwrap())
        .find(|part| part.entity(&question.topics()[0]).is_none())
        .unwrap();
    let kind = QuestionKind::EmbedKgqa { rank: 8, topic: Topic::Given, batch_normalisation: false };
    let model = QuestionModel::new(parts(kind, &built.questions[0]), &part).unwrap();
    let folder = tempfile::tempdir().unwrap();
    model.save(folder.path(), &part, "").unwrap();
    let mut loaded = QuestionModel::load(folder.path(), &world.kb).unwrap();
    loaded.set_threshold(0.0);
    let found = loaded.answers(&[QuestionInput::of(question)], 64).unwrap().remove(0);
    assert!(found.answers.is_empty(), "{:?}", found.answers);
}

#[test]
fn vectors_of_another_size_are_refused() {
    let world = World::new();
    let built = world.build();
    let rows = Tensor::zeros((world.kb.entity_count(), 6), DType::F32, &Device::Cpu).unwrap();
    let parts = parts(names_embedding(), &built.questions[0]);
    let error = QuestionModel::new(Parts { vectors: Vectors::Fixed(rows), ..parts }, &world.kb).unwrap_err();
    assert!(error.to_string().contains("rows of 16, found"), "{error}");
}
